"""Shortcuts for tables of millions of entries say what the general way says: footprints of entries that are alike, and
products that the lowering never sees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import dpmodel as dpm
from dpmodel.compile import bridge
from dpmodel.compile.affine_map import AffineMap
from dpmodel.compile.bridge import lower
from dpmodel.compile.footprint import AlikeView, entry_sensitivities, footprint
from dpmodel.compile.table_products import without_products

SHAPE = (7, 4)
PATTERN = sp.coo_array((np.random.default_rng(3).random(SHAPE) < 0.5) * 1.0)


def table(**declared: Any) -> dpm.Private:
    return dpm.Private(shape=SHAPE, name="A", **declared)


DECLARED = [
    {"unit": "row", "bounds": [-1, 1]},
    {"unit": "row", "bounds": [0, 1], "max_l1": 2.5},
    {"unit": "row", "max_l2": 3},
    {"unit": "row", "linf": 1, "l1": 2.5, "l2": 1.5},
    {"unit": "row", "linf": 1, "row_l1": 2.5},
    {"unit": "column", "linf": 2, "l1": 5},
    {"unit": "column", "linf": 2, "row_l1": 2.5},
    {"unit": "entry", "linf": 0.7},
    {"unit": "all", "linf": 1, "l2": 2},
    {"unit": "all", "linf": 1, "row_l1": 2},
    {"unit": "row", "bounds": [np.zeros(SHAPE), 1 + np.arange(28.0).reshape(SHAPE)]},
]


def footprints(affine: AffineMap, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for alike in (True, False):
        with monkeypatch.context() as patch:
            if not alike:
                patch.setattr(AlikeView, "of", staticmethod(lambda block, part: None))
            yield footprint(affine).parts, entry_sensitivities(affine, affine.private_matrix)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("declared", DECLARED, ids=str)
def test_entries_that_are_alike_have_the_footprint_of_any(
    declared: dict[str, Any], sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sparse and isinstance(declared.get("bounds", [0])[0], np.ndarray):
        pytest.skip("bounds of these entries are no bounds of that pattern")
    A = table(**declared, **({"sparsity": PATTERN.coords} if sparse else {}))
    x, t = cp.Variable(4), cp.Variable()
    turned = cp.Variable(7)
    for constraints in (
        [2 * (A @ x) <= 1],
        [-A @ x >= t],
        [A[2:6] @ x <= 1],
        [A.T @ turned == 3],
        [cp.sum(A @ x) <= 1],
    ):
        ours, general = footprints(lower(cp.Problem(cp.Minimize(0), constraints)).affine, monkeypatch)
        for part, found in ours[0].items():
            for norm, bound in general[0][part].as_mapping().items():
                assert found.as_mapping()[norm] == pytest.approx(bound, rel=1e-12), (part, norm)
            assert found.exact == general[0][part].exact
        assert ours[1] == pytest.approx(general[1], rel=1e-12)


def written_out(affine: AffineMap) -> tuple[Any, ...]:
    """All coefficients by the names of what they are of, and whatever else does not depend on the order of theta."""
    names = {block.offset + k: (block.name, k) for block in affine.parameters for k in range(block.size)}
    names[affine.theta_size - 1] = ("one", 0)
    found = {}
    for part in ("objective", "offset", "scalar", "public_matrix", "private_matrix"):
        linear = getattr(affine, part)
        assert (np.diff(linear.row * affine.theta_size + linear.column) > 0).all()
        for row, column, value in zip(linear.row, linear.column, linear.coefficient, strict=True):
            found[part, int(row), names[int(column)]] = round(float(value), 12)
    cones = [(cone.kind, cone.start, cone.size, cone.constraint, cone.label) for cone in affine.cones]
    return found, affine.variables, affine.column_names, dict(affine.variable_columns), cones, affine.integer.tolist()


def models() -> Iterator[tuple[cp.Problem, bool]]:
    """Problems, and whether their products are kept apart."""
    A, S = table(unit="row", linf=1), dpm.Private(shape=SHAPE, name="S", sparsity=PATTERN.coords, unit="row", linf=1)
    b = dpm.Private(shape=7, name="b", unit="entry", linf=1)
    x, z = cp.Variable(4, name="x", bounds=[0, 1]), cp.Variable(2, name="z")
    w = cp.Variable(4, name="w", integer=True)
    cost = cp.Minimize(cp.sum(x) + z[0] + cp.sum(w))
    public = [z >= 0, w >= 0]
    for M in (A, S):
        e = M @ x
        yield cp.Problem(cost, [e >= b, *public]), True
        yield (
            cp.Problem(cost, [*public, cp.norm(w) <= 9, e <= 1, -e <= 3 * z[0] + b, cp.sum(e) == 1, cp.cumsum(e) <= 7]),
            True,
        )
        yield cp.Problem(cost, [*public, np.ones((3, 7)) @ (M @ w) + z[1] >= 1, 2 * e - M @ x <= b, M @ w == 2]), True
        none = cp.Parameter((0, 4), name="none")
        yield cp.Problem(cost, [*public, e <= b, none @ x <= 1]), True  # a parameter that nothing is left of
        norm, q = cp.norm(w - b[:4]), cp.Parameter(4, name="q")  # parameters in another order than the cones'
        yield cp.Problem(cp.Minimize(norm + q @ x), [*public, e <= b]), True
        yield cp.Problem(cost, [*public, e <= 1, cp.norm1(M @ w) <= 3]), False  # it stands elsewhere too
        yield cp.Problem(cp.Minimize(0), [e <= 1]), False  # x would be gone
    yield cp.Problem(cost, [*public, A @ x >= 1, S @ w <= 2]), True


def as_it_stands(problem: cp.Problem) -> tuple[cp.Problem, tuple[()]]:
    return problem, ()


def test_products_kept_apart_give_the_same_standard_form(monkeypatch: pytest.MonkeyPatch) -> None:
    for number, (problem, kept) in enumerate(models()):
        assert bool(without_products(problem)[1]) == kept, number
        ours = lower(problem)
        with monkeypatch.context() as patch:
            patch.setattr(bridge, "without_products", as_it_stands)
            theirs = lower(problem)
        assert written_out(ours.affine) == written_out(theirs.affine), number


def test_solutions_and_duals_are_written_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The values that a solve gives the variables and constraints are the same ones in the same places."""
    found = []
    for separate in (without_products, as_it_stands):
        monkeypatch.setattr(bridge, "without_products", separate)
        A = dpm.Private(np.eye(6, 4) * 2, name="A", unit="row", bounds=[0, 2])
        x, y = cp.Variable(4, name="x", bounds=[0, 3]), cp.Variable(name="y")
        problem = dpm.Problem(cp.Minimize(cp.sum(x) + y), [y >= 1, A @ x <= 5, cp.sum(x) >= 2 - y])
        problem.solve(epsilon=1e6, mechanism="laplace-once", rng=3)
        found.append([x.value, y.value, *(np.array(c.dual_value) for c in problem.constraints)])
    for one, other in zip(*found, strict=True):
        assert np.shape(one) == np.shape(other) and one == pytest.approx(other, abs=1e-5)
