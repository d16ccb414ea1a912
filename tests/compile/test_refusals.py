"""What cannot be compiled is refused: the innermost expression, the rule, and how to rewrite it."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from walking import assert_no_trace

from dpmodel.compile.bridge import lower
from dpmodel.compile.refusals import short, where_used
from dpmodel.errors import DPModelError, SpecificationError, UnsupportedModelError
from dpmodel.marks import Private

SECRET = np.array([7321.4375, 8642.8125])
x = cp.Variable(2, name="x")


def q(name: str = "q", **given: Any) -> Private:
    return Private(SECRET, unit="entry", linf=1, name=name, **{"nonneg": True, **given})


def s() -> Private:
    return Private(7321.4375, linf=1, name="s", nonneg=True)


def table() -> Private:
    return Private(shape=(4, 2), unit="row", name="W", bounds=(0, 1))


def minimise(expression: Any, *constraints: Any) -> cp.Problem:
    return cp.Problem(cp.Minimize(expression), list(constraints))


# case -> (problem, words of the message)
REFUSED: dict[str, tuple[Callable[[], cp.Problem], tuple[str, ...]]] = {
    "concave objective": (lambda: minimise(cp.sum(cp.sqrt(x))), ("the objective", "not convex")),
    "concave inside": (lambda: minimise(0, cp.sum_squares(x) >= 1), ("constraint 0", "not convex")),
    "bilinear in variables": (lambda: minimise(x[0] * x[1]), ("x[0] * x[1]", "not convex")),
    "quasi-convex": (lambda: minimise(cp.ceil(x[0]) + q()[0]), ("ceil(x[0])", "not convex")),
    "sign of a parameter unknown": (
        lambda: minimise(cp.sum(cp.multiply(q(nonneg=False), cp.abs(x)))),
        ("nonneg=True",),
    ),
    "square of a parameter": (lambda: minimise(0, x >= cp.multiply(q(), q())), ("q * q", "DPP", "beforehand")),
    "product of two": (lambda: minimise(0, x >= cp.multiply(q("a"), q("b"))), ("a, b", "one Private", "beforehand")),
    "y * (X @ w)": (
        lambda: minimise(cp.sum(cp.pos(1 - cp.multiply(q("y"), Private(shape=(2, 2), unit="row", name="W") @ x)))),
        ("W, y", "z == W @ x"),
    ),
    # Products of a private table with x are lowered apart; what they are multiplied by is not lost on the way.
    "a parameter times W @ x": (
        lambda: minimise(cp.sum(x), cp.Parameter(name="k", value=50.0) * (table() @ x) <= 10),
        ("k * ", "DPP"),
    ),
    "parameters times W @ x": (
        lambda: minimise(cp.sum(x), cp.multiply(cp.Parameter(4, name="k"), table() @ x) <= 10),
        ("k * ", "DPP"),
    ),
    "a matrix times W @ x": (
        lambda: minimise(cp.sum(x), cp.Parameter((2, 4), name="k") @ (table() @ x) <= 10),
        ("k @ ", "DPP"),
    ),
    "a private number times W @ x": (lambda: minimise(cp.sum(x), s() * (table() @ x) <= 10), ("W", "DPP")),
    "division": (lambda: minimise(cp.sum(x / q())), ("x / q", "DPP", "linearly")),
    "inside a nested sum": (lambda: minimise(cp.sum(3 * (cp.sum(x) + (q() @ x) / s()))), ("/ s", "DPP")),
    "quad_form": (lambda: minimise(cp.quad_form(x, Private(shape=(2, 2), linf=1, PSD=True, name="P"))), ("P", "DPP")),
    "quad_over_lin": (lambda: minimise(cp.quad_over_lin(x, s())), ("quad_over_lin", "DPP")),
    "exponent": (lambda: minimise(cp.sum(cp.power(x, s()))), ("the objective",)),
    "convolution": (lambda: minimise(0, cp.convolve(q(), x) >= 1), ("convolve(q, x)", "DPP")),
    "complex variable": (lambda: minimise(cp.norm(cp.Variable(2, complex=True, name="z"))), ("complex variable z",)),
    "hermitian": (lambda: minimise(cp.real(cp.trace(cp.Variable((2, 2), hermitian=True)))), ("complex variable",)),
    "variable bounds": (
        lambda: minimise(cp.sum(cp.Variable(2, bounds=[0, q()], name="y"))),
        ("y has a parameter", "y <= q"),
    ),
    "constraint that lowering would drop": (
        lambda: minimise(cp.sum(x), x >= q(), cp.FiniteSet(x[0], [5, 7])),
        ("FiniteSet",),
    ),
    "n-d power cone": (
        lambda: minimise(cp.sum(x), cp.PowConeND(x, cp.Variable(), np.array([0.5, 0.5]))),
        ("PowConeND", "3-d"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    build, words = REFUSED[case]
    problem = build()
    with pytest.raises(UnsupportedModelError) as caught:
        lower(problem)
    message = str(caught.value)
    for word in words:
        assert word in message, message
    assert caught.value.why and caught.value.remedy
    assert_no_trace([caught.value, "".join(traceback.format_exception(caught.value)), problem], [SECRET])


def test_the_innermost_expression_is_named_and_not_the_whole() -> None:
    problem = minimise(cp.sum(x), cp.norm1(x) + cp.sum(cp.exp(cp.inv_pos(x) + cp.multiply(q("a"), q("b")))) <= 10)
    with pytest.raises(UnsupportedModelError) as caught:
        lower(problem)
    assert "a * b is not affine in its parameters" in caught.value.what.replace("multiply(a, b)", "a * b")


def test_the_users_label_is_used() -> None:
    constraint = (x >= cp.multiply(q(), q())).set_label("demand")
    with pytest.raises(UnsupportedModelError, match="demand: "):
        lower(minimise(0, constraint))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_constants_must_be_finite(bad: float) -> None:
    for problem in (
        minimise(cp.sum(x), x >= np.array([bad, 1.0])),
        minimise(np.array([bad, 1.0]) @ x),
        minimise(0, np.array([[1.0, bad]]) @ x <= q()[:1]),
        minimise(cp.sum(x) + bad),
    ):
        with pytest.raises(SpecificationError):
            lower(problem)


# Atoms whose parameters CVXPY hides from .args, and atoms of a parameter alone: accepted, and seen.
ACCEPTED: dict[str, Callable[[], cp.Problem]] = {
    "huber threshold": lambda: minimise(cp.sum(cp.huber(x, s()))),
    "exp of a parameter": lambda: minimise(0, x >= cp.exp(q())),
    "norm of a parameter": lambda: minimise(cp.norm(q()) + cp.sum(x)),
    "inv_pos of a parameter": lambda: minimise(0, x >= cp.inv_pos(q())),
    "dotsort": lambda: minimise(cp.dotsort(x, q())),
    "perspective of a sum": lambda: minimise(cp.sum(x), cp.norm(x - q()) <= s()),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_every_private_parameter_of_an_accepted_problem_is_in_the_map(case: str) -> None:
    problem = ACCEPTED[case]()
    affine = lower(problem).affine
    assert {b.name for b in affine.private_blocks} == {p.name() for p in problem.parameters()}
    for block in affine.private_blocks:
        columns = np.concatenate(
            [part.column for part in (affine.objective, affine.offset, affine.scalar, affine.matrix)]
        )
        assert np.isin(np.arange(block.offset, block.offset + block.size), columns).all(), "a parameter vanished"


def test_where_a_parameter_is_used() -> None:
    p, other = q("p"), q("other")
    problem = minimise(p @ x, (x >= p).set_label("demand"), x <= other, cp.sum(cp.huber(x - p)) <= 9)
    assert where_used(problem, p)[:2] == ("the objective", "demand") and len(where_used(problem, p)) == 3
    assert len(where_used(problem, other)) == 1


def test_a_problem_without_constraints_and_without_variables_in_parts() -> None:
    p = q("p")
    affine = lower(minimise(p @ x)).affine
    assert affine.rows == 0 and affine.matrix.nnz == 0 and affine.cones == ()
    with pytest.raises((DPModelError, ValueError)):
        lower(minimise(cp.sum(x), "not a constraint"))  # type: ignore[arg-type]


def test_two_parameters_with_one_id_are_refused() -> None:
    """CVXPY would merge them, and the private one could vanish behind the public one."""
    p = q("p")
    for other in (cp.Parameter(2, id=p.id), pickle.loads(pickle.dumps(p)), cp.Variable(2, var_id=p.id)):
        for constraints in ([x >= p, x >= other], [x >= other, x >= p]):
            with pytest.raises(UnsupportedModelError, match="same CVXPY id"):
                lower(minimise(cp.sum(x), *constraints))
    lower(minimise(cp.sum(x), p <= x, 2 * p <= x))


def test_labels_leave_out_tables_of_numbers_and_keep_indices() -> None:
    table, w = np.random.default_rng(0).uniform(0, 2, (5, 30)), cp.Variable(30, name="w")
    assert short(table @ w <= cp.Parameter(5, name="limit")) == "[...] @ w <= limit"
    assert short(cp.sum(cp.vstack([table[0] @ w, table[1] @ w]))) == "sum(vstack([...] @ w, [...] @ w))"
    assert short(cp.Constant(table, name="R") @ w[0:30] <= w[0]).startswith("R @ w[:] <= ")
    assert short(w[0] + cp.sum(w[1:4]) <= 2) == "w[0] + sum(w[1:4]) <= 2"
