"""The affine map against CVXPY itself: number by number."""

from __future__ import annotations

import warnings
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from cvxpy.reductions.chain import Chain
from cvxpy.reductions.cvx_attr2constr import CvxAttr2Constr
from cvxpy.reductions.dcp2cone.cone_matrix_stuffing import ConeMatrixStuffing
from cvxpy.reductions.dcp2cone.dcp2cone import Dcp2Cone
from cvxpy.reductions.eliminate_zero_sized import EliminateZeroSized
from cvxpy.reductions.flip_objective import FlipObjective
from cvxpy.reductions.solvers.conic_solvers.conic_solver import ConicSolver
from models import MODELS, Model, random_value

from dpmodel.compile import bridge
from dpmodel.compile.affine_map import AffineMap, LinearMap
from dpmodel.compile.bridge import lower
from dpmodel.compile.form import standard_form as form_of
from dpmodel.errors import UnsupportedModelError
from dpmodel.marks import Private
from dpmodel.marks.layout import free_entries


def draw_values(problem: cp.Problem, rng: np.random.Generator) -> dict[str, Any]:
    return {p.name(): random_value(rng, p) for p in problem.parameters()}


def theta_of(affine: AffineMap, values: dict[str, Any]) -> np.ndarray:
    theta = np.full(affine.theta_size, np.nan)
    for block in affine.parameters:
        theta[block.columns] = free_entries(block.parameter, values[block.name])
    theta[-1] = 1.0
    return theta


def standard_form(affine: AffineMap, theta: np.ndarray) -> tuple[np.ndarray, float, sp.csr_array, np.ndarray]:
    """(c, d, A, b) by dense products, not by the map's own ``apply``."""

    def evaluate(part: LinearMap) -> np.ndarray:
        out = np.zeros(part.height)
        np.add.at(out, part.row, part.coefficient * theta[part.column])
        return out

    A = evaluate(affine.matrix).reshape((affine.rows, affine.variables), order="F")
    return evaluate(affine.objective), float(evaluate(affine.offset)[0]), sp.csr_array(A), evaluate(affine.scalar)


def cvxpy_standard_form(problem: cp.Problem) -> tuple[np.ndarray, float, np.ndarray, np.ndarray]:
    """What CVXPY's own chain, with its default backend, makes of plain parameters with values."""
    reductions: list[Any] = [FlipObjective()] if isinstance(problem.objective, cp.Maximize) else []
    reductions += [Dcp2Cone(quad_obj=False), CvxAttr2Constr(reduce_bounds=True), EliminateZeroSized()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # CVXPY reads its own sparse parameters densely
        program, _ = Chain(reductions=[*reductions, ConeMatrixStuffing(quad_obj=False)]).apply(problem)
    program = ConicSolver.format_constraints(program, [0, 1, 2])
    c, d, A, b = program.apply_parameters()
    return np.asarray(c).ravel(), float(d), -A.toarray(), np.asarray(b).ravel()


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_agrees_with_cvxpy_number_by_number(model: Model) -> None:
    rng = np.random.default_rng(1)
    problem, private = model.private()
    affine = lower(problem).affine
    assert {b.name for b in affine.private_blocks} == {p.name() for p in private}
    for _ in range(3):
        values = draw_values(problem, rng)
        c, d, A, b = standard_form(affine, theta_of(affine, values))
        theirs = cvxpy_standard_form(model.plain(values))
        for ours, expected in zip((c, d, A.toarray(), b), theirs, strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-12, atol=1e-12)
    assert affine.is_linear() == ("lp" in model.tags)
    tiles_rows_and_theta(affine)


def tiles_rows_and_theta(affine: AffineMap) -> None:
    ends = 0
    for block in affine.cones:
        assert block.start == ends
        assert not block.sizes or sum(block.sizes) == block.size
        ends += block.size
    assert ends == affine.rows
    ends = 0
    for parameter in affine.parameters:
        assert parameter.offset == ends
        assert parameter.size == (parameter.parameter.layout.size if parameter.private else parameter.parameter.size)
        ends += parameter.size
    assert ends + 1 == affine.theta_size
    assert len(affine.column_names) == affine.variables and all(affine.column_names)


def test_labels_and_numbers_of_constraints_survive() -> None:
    b = Private(shape=2, unit="entry", linf=1, name="b")
    x = cp.Variable(2, nonneg=True, name="x")
    rows = [(x >= b).set_label("demand"), cp.sum(x) == 4, cp.norm(x) <= 9]
    affine = lower(cp.Problem(cp.Minimize(cp.sum(x)), rows)).affine
    found = {block.constraint: block.label for block in affine.cones}
    assert found[0] == "demand" and found[1].startswith("constraint 1") and -1 in found
    touched = np.unique(affine.block_of_row()[affine.scalar.select(affine.private_columns[affine.scalar.column]).row])
    assert [affine.cones[i].label for i in touched] == ["demand"]


def test_an_index_beyond_32_bits() -> None:
    """m * n above 2^31: the row numbers of the matrix map must not wrap around."""
    n, m = 20_000, 200_000
    pattern = (np.array([0, 5, m - 1]), np.array([0, 7, n - 1]))
    A = Private(shape=(m, n), sparsity=pattern, unit="row", linf=1, name="A")
    x = cp.Variable(n)
    affine = lower(cp.Problem(cp.Minimize(0), [A @ x <= 1])).affine
    assert affine.matrix.height == m * n
    assert sorted(zip(affine.matrix.row % m, affine.matrix.row // m, strict=True)) == [(0, 0), (5, 7), (m - 1, n - 1)]


def test_duplicate_coordinates_are_added_up() -> None:
    part = LinearMap.of([1, 0, 1, 1], [2, 0, 2, 1], [1.0, 4.0, 2.0, 0.0], 3)
    assert part.nnz == 2
    np.testing.assert_array_equal(part.apply(np.array([1.0, 1.0, 10.0])), [4.0, 30.0, 0.0])
    np.testing.assert_array_equal(part.tocsr(3).toarray(), [[4, 0, 0], [0, 0, 3], [0, 0, 0]])


def test_write_back_gives_the_users_variables() -> None:
    values = {"demand": np.array([1.0, 2.0])}
    demand = Private(values["demand"], unit="entry", linf=1, name="demand")
    x = cp.Variable(2, nonneg=True)
    problem = cp.Problem(cp.Maximize(-cp.sum(x)), [x >= demand])
    lowered = lower(problem)
    lowered.write_back(problem, np.array([1.5, 2.5]), None, cp.OPTIMAL, -4.0)
    np.testing.assert_allclose(x.value, [1.5, 2.5])
    assert problem.value == -4.0 and problem.status == cp.OPTIMAL


# Affine expressions of a vector p (4,) and a matrix M (3, 3), some of which CVXPY's usual backend cannot write.
EXPRESSIONS = {
    "convolve": lambda p, M: cp.convolve([1.0, -2.0, 1.0], p),
    "conv": lambda p, M: cp.convolve([1.0, 1.0], M[0, :]),
    "diagonal matrix sliced": lambda p, M: 2 * cp.diag(p)[0, 1:],
    "diagonal matrix sliced below": lambda p, M: cp.diag(p)[1:, :2] @ np.array([1.0, 3.0]),
    "diagonal of a matrix": lambda p, M: cp.diag(M)[1:] - cp.diag(M)[0],
    "cumsum": lambda p, M: cp.cumsum(p) + cp.sum(p),
    "diff": lambda p, M: cp.diff(p, 2),
    "upper triangle": lambda p, M: cp.upper_tri(M),
    "vector to triangle": lambda p, M: cp.vec(cp.vec_to_upper_tri(p[:3]), order="F"),
    "trace": lambda p, M: cp.reshape(cp.trace(M @ np.diag([1.0, 2.0, 3.0])), (1,), order="F"),
    "outer": lambda p, M: cp.vec(cp.outer(p, np.array([1.0, 2.0])), order="F"),
    "blocks": lambda p, M: cp.vec(cp.bmat([[M, M.T], [M.T, -M]]), order="F"),
    "picked": lambda p, M: p[[3, 0, 0]] + M[1, ::-1],
    "reshaped": lambda p, M: cp.vec(cp.reshape(p, (2, 2), order="C") @ np.ones((2, 1)), order="F"),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_every_affine_expression_that_cvxpy_writes_is_mapped(name: str) -> None:
    rng = np.random.default_rng(3)
    private = Private(shape=4, name="p", linf=1), Private(shape=(3, 3), name="M", linf=1)
    plain = cp.Parameter(4), cp.Parameter((3, 3))
    expression = EXPRESSIONS[name](*plain)
    x = cp.Variable(EXPRESSIONS[name](*private).shape)
    affine = lower(cp.Problem(cp.Minimize(cp.sum(x)), [EXPRESSIONS[name](*private) <= x])).affine
    for _ in range(2):
        values = {"p": rng.normal(size=4), "M": rng.normal(size=(3, 3))}
        for parameter, value in zip(plain, values.values(), strict=True):
            parameter.value = value
        _, _, _, b = standard_form(affine, theta_of(affine, values))
        assert b == pytest.approx(-np.ravel(expression.value, order="F"), abs=1e-12)


def test_what_no_backend_writes_is_refused_in_words(monkeypatch: Any) -> None:
    def apply(self: Any, problem: Any) -> Any:
        raise ValueError("The truth value of an array is ambiguous, 7321.4375")

    for way in (ConeMatrixStuffing, bridge._Stuffing):
        monkeypatch.setattr(way, "apply", apply)
    x, p = cp.Variable(2), Private(shape=2, name="p", linf=1)
    with pytest.raises(UnsupportedModelError, match="function of its parameters") as caught:
        lower(cp.Problem(cp.Minimize(cp.sum(x)), [x >= p]))
    assert "7321" not in str(caught.value)


def test_coefficients_of_two_public_numbers_are_one_entry() -> None:
    """A is kept column by column; ``x + p x`` says two things of the same place."""
    x, p, b = cp.Variable(3, nonneg=True), cp.Parameter(value=2.0), Private(np.ones(2), linf=0.1, name="b")
    table = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 1.0]])
    form = form_of(lower(cp.Problem(cp.Minimize(cp.sum(x)), [table @ x + p * (table @ x) >= b])).affine)
    kept = form.A0[form.private_rows]
    assert form.A0.has_canonical_format and np.array_equal(np.sort(kept.toarray(), axis=0), np.sort(-3 * table, axis=0))
