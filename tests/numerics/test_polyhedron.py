"""Public polyhedra against other solvers: linear minimisation, projections, boxes, and recognised products."""

from __future__ import annotations

from typing import Any

import clarabel
import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import dpmodel as dpm
from dpmodel.numerics.cone_program import SolverFailure
from dpmodel.numerics.nearest_point import Projector, onto_row
from dpmodel.numerics.polyhedron import Polyhedron, _fold

SEEDS = st.integers(0, 2**32 - 1)
QUICK = settings(deadline=None, max_examples=30, derandomize=True, suppress_health_check=list(HealthCheck))
INF = np.inf


def polyhedron(
    lower: Any, upper: Any, A_ub: Any = None, b_ub: Any = (), A_eq: Any = None, b_eq: Any = ()
) -> Polyhedron:
    lower, upper = np.asarray(lower, dtype=float), np.asarray(upper, dtype=float)
    empty = np.zeros((0, lower.size))
    return _fold(
        Polyhedron(
            sp.csr_array(np.asarray(empty if A_ub is None else A_ub, dtype=float)),
            np.asarray(b_ub, dtype=float),
            sp.csr_array(np.asarray(empty if A_eq is None else A_eq, dtype=float)),
            np.asarray(b_eq, dtype=float),
            lower,
            upper,
        )
    )


def random_polyhedron(rng: np.random.Generator, *, bounded: bool = True) -> tuple[Polyhedron, np.ndarray]:
    """One with a known point; some bounds infinite unless ``bounded``, some columns fixed."""
    n, p, q = int(rng.integers(1, 6)), int(rng.integers(0, 4)), int(rng.integers(0, 2))
    point = rng.normal(size=n) * 3
    lower, upper = point - rng.exponential(size=n), point + rng.exponential(size=n)
    fixed = rng.random(n) < 0.15
    lower[fixed] = upper[fixed] = point[fixed]
    if not bounded:
        lower[rng.random(n) < 0.4] = -INF
        upper[rng.random(n) < 0.4] = INF
    sparse = rng.random((p, n)) < 0.7
    A_ub, A_eq = rng.normal(size=(p, n)) * sparse, rng.normal(size=(q, n))
    return polyhedron(lower, upper, A_ub, A_ub @ point + rng.exponential(size=p), A_eq, A_eq @ point), point


def by_linprog(polytope: Polyhedron, cost: np.ndarray) -> Any:
    return linprog(
        cost,
        polytope.A_ub.toarray() if polytope.b_ub.size else None,
        polytope.b_ub if polytope.b_ub.size else None,
        polytope.A_eq.toarray() if polytope.b_eq.size else None,
        polytope.b_eq if polytope.b_eq.size else None,
        np.c_[polytope.lower, polytope.upper],
    )


def by_clarabel(polytope: Polyhedron, x: np.ndarray) -> np.ndarray:
    """Projection by an interior-point method."""
    n = polytope.size
    eye = np.eye(n)
    up, low = np.isfinite(polytope.upper), np.isfinite(polytope.lower)
    A = np.vstack([polytope.A_eq.toarray(), polytope.A_ub.toarray(), eye[up], -eye[low]])
    b = np.r_[polytope.b_eq, polytope.b_ub, polytope.upper[up], -polytope.lower[low]]
    cones = [clarabel.ZeroConeT(polytope.b_eq.size), clarabel.NonnegativeConeT(b.size - polytope.b_eq.size)]
    options = clarabel.DefaultSettings()
    options.verbose = False
    options.tol_gap_abs = options.tol_gap_rel = options.tol_feas = 1e-11
    solver = clarabel.DefaultSolver(sp.csc_matrix(eye), -x, sp.csc_matrix(A), b, cones, options)
    return np.asarray(solver.solve().x)


# ------------------------------------------------------------------------------------ linear programs
@QUICK
@given(SEEDS)
def test_minimise_and_support_against_scipy(seed: int) -> None:
    """The same optimum, call after call (the basis is kept), and a support that bounds it from above."""
    rng = np.random.default_rng(seed)
    polytope, _ = random_polyhedron(rng)
    for cost in [rng.normal(size=polytope.size) * 10.0 ** rng.integers(-8, 9) for _ in range(4)] + [
        np.zeros(polytope.size)
    ]:
        expected = by_linprog(polytope, cost)
        found = polytope.minimise(cost)
        assert expected.status == 0 and found is not None
        scale = 1e-7 * (1 + float(np.abs(cost) @ np.abs(found)))
        assert abs(cost @ found - expected.fun) <= scale
        assert polytope.violation(found) <= 1e-7
        assert polytope.support(-cost) >= -expected.fun - 1e-12 * abs(expected.fun)
        assert polytope.support(-cost) <= -expected.fun + 3e-6 * (1 + abs(expected.fun)) + scale
    assert not polytope.empty


@QUICK
@given(SEEDS)
def test_unbounded_is_told_from_bounded(seed: int) -> None:
    rng = np.random.default_rng(seed)
    polytope, _ = random_polyhedron(rng, bounded=False)
    for _ in range(3):
        cost = rng.normal(size=polytope.size)
        expected = by_linprog(polytope, cost)
        found = polytope.minimise(cost)
        assert (found is None) == (expected.status == 3)
        assert np.isinf(polytope.support(-cost)) == (expected.status == 3)
    assert not polytope.empty  # a call after an unbounded one


def test_empty() -> None:
    assert polyhedron([0.0], [-1.0]).empty
    below_zero = polyhedron([0, 0], [INF, INF], [[1, 1]], [-1])
    assert below_zero.empty
    with pytest.raises(SolverFailure):
        below_zero.minimise(np.ones(2))
    with pytest.raises(SolverFailure):
        below_zero.minimise(-np.ones(2))
    assert polyhedron([0, 0], [1, 1], [[0, 0]], [-1]).empty  # 0 <= -1
    assert polyhedron([0, 0], [1, 1], None, (), [[0, 0]], [1]).empty  # 0 = 1
    assert polyhedron([0, 0], [1, 1], [[1, 1]], [2]).with_row(np.array([-1.0, -1.0]), -3).empty
    assert not polyhedron([0, 0], [1, 1], [[0, 0]], [0]).empty


def test_a_polyhedron_without_rows() -> None:
    polytope = polyhedron([-1, 0], [1, 2])
    assert polytope.minimise(np.array([1.0, -1.0])).tolist() == [-1.0, 2.0]  # type: ignore[union-attr]
    assert polytope.support(np.array([1.0, 1.0])) == pytest.approx(3, abs=1e-5)


def test_single_entry_rows_become_bounds() -> None:
    polytope = polyhedron([-9, -9], [9, 9], [[2, 0], [-3, 0], [0, 1], [1, 1]], [4, 3, 5, 7], [[0, -2]], [6])
    assert polytope.b_ub.size == 1 and polytope.b_eq.size == 0
    assert polytope.lower.tolist() == [-1, -3] and polytope.upper.tolist() == [2, -3]
    cut = polytope.with_row(np.array([-1.0, 0.0]), -0.5)
    assert cut.lower.tolist() == [0.5, -3] and cut.b_ub.size == 1
    assert polytope.lower.tolist() == [-1, -3]  # the original stays


# ----------------------------------------------------------------------------------------- projection
@QUICK
@given(SEEDS, st.booleans())
def test_onto_row_is_exact(seed: int, equality: bool) -> None:
    """Optimality conditions to 1e-9: feasible, and x - y is in the normal cone; and Clarabel finds the same point."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 8))
    inside = rng.normal(size=n)
    lower, upper = inside - rng.exponential(size=n), inside + rng.exponential(size=n)
    lower[rng.random(n) < 0.3], upper[rng.random(n) < 0.3] = -INF, INF
    fixed = rng.random(n) < 0.2
    lower[fixed] = upper[fixed] = inside[fixed]
    a = np.round(rng.normal(size=n), 1) * 10.0 ** rng.integers(-2, 3)
    b = float(a @ inside) if equality else float(a @ inside) + rng.exponential()
    x = inside + rng.normal(size=n) * rng.choice([0.1, 3.0, 100.0])
    y = onto_row(x, a, b, lower, upper, equality=equality)
    assert (y >= lower).all() and (y <= upper).all()
    size = 1e-9 * (1 + abs(b) + float(np.abs(a) @ np.abs(y)))
    assert a @ y <= b + size and (not equality or a @ y >= b - size)
    polytope = polyhedron(lower, upper, [a], [b]) if not equality else polyhedron(lower, upper, None, (), [a], [b])
    assert np.allclose(y, by_clarabel(polytope, x), atol=1e-6 * (1 + float(np.abs(x).max())))
    assert np.allclose(polytope.project(x), y, atol=1e-12)


@pytest.mark.parametrize("b", [-6.0, -5.0, 0.0, 4.0, 5.0])
def test_onto_row_at_the_ends_of_what_the_box_allows(b: float) -> None:
    a, lower, upper = np.array([1.0, -2.0]), np.array([-1.0, -2.0]), np.array([0.0, 2.0])
    x = np.array([7.0, 0.5])
    if -5 <= b <= 4:
        y = onto_row(x, a, b, lower, upper, equality=True)
        assert a @ y == pytest.approx(b, abs=1e-12)
    else:
        with pytest.raises(SolverFailure):
            onto_row(x, a, b, lower, upper, equality=True)
    if b < -5:
        with pytest.raises(SolverFailure):
            onto_row(x, a, b, lower, upper, equality=False)
    else:
        assert a @ onto_row(x, a, b, lower, upper, equality=False) <= b + 1e-12


@QUICK
@given(SEEDS)
def test_projections_are_as_near_where_rows_differ_in_length(seed: int) -> None:
    rng = np.random.default_rng(seed)
    plain, point = random_polyhedron(rng)
    size = [10.0 ** rng.uniform(-3, 3, rows) for rows in (plain.b_ub.size, plain.b_eq.size)]
    projector = Projector(
        sp.csr_array(sp.diags_array(size[0]) @ plain.A_ub), size[0] * plain.b_ub,
        sp.csr_array(sp.diags_array(size[1]) @ plain.A_eq), size[1] * plain.b_eq, plain.lower, plain.upper,
    )  # fmt: skip
    for x in (point + rng.normal(size=plain.size) * 3, point):
        assert np.allclose(projector.project(x), by_clarabel(plain, x), atol=3e-5)


@QUICK
@given(SEEDS)
@example(259)  # two rows that fix one column, to the rounding of their quotients
def test_general_projection_against_clarabel(seed: int) -> None:
    rng = np.random.default_rng(seed)
    polytope, point = random_polyhedron(rng, bounded=bool(rng.random() < 0.7))
    projector = Projector(polytope.A_ub, polytope.b_ub, polytope.A_eq, polytope.b_eq, polytope.lower, polytope.upper)
    for _ in range(2):
        x = point + rng.normal(size=polytope.size) * 3
        expected = by_clarabel(polytope, x)
        assert np.allclose(polytope.project(x), expected, atol=3e-5)
        assert np.allclose(projector.project(x), expected, atol=3e-5)


@QUICK
@given(SEEDS)
def test_nearest_is_feasible_and_near(seed: int) -> None:
    rng = np.random.default_rng(seed)
    polytope, point = random_polyhedron(rng)
    for x in (point + rng.normal(size=polytope.size), point, polytope.project(point + rng.normal(size=polytope.size))):
        near = polytope.nearest(x)
        assert polytope.violation(near) <= 2e-7
        assert np.abs(near - x).sum() <= np.abs(by_clarabel(polytope, x) - x).sum() + 1e-6
    assert np.allclose(polytope.nearest(point), point, atol=1e-9)
    for missed in (1e-8, 1e-7, 1e-6):  # about what solvers leave open
        x = point + missed * rng.normal(size=polytope.size)
        near = polytope.nearest(x)
        assert polytope.violation(near) <= 1e-9 * (1 + np.abs(x).max())
        assert np.abs(near - x).sum() <= np.abs(point - x).sum() * (1 + 1e-6) + 1e-12


# --------------------------------------------------------------------------------------------- bounds
@QUICK
@given(SEEDS)
@example(616)  # HiGHS ends with "unknown" from an earlier basis
def test_boxes_and_norms_hold_at_extreme_points(seed: int) -> None:
    """Vertices maximise convex functions, so random vertices (by linear programs) must respect every bound."""
    rng = np.random.default_rng(seed)
    polytope, point = random_polyhedron(rng, bounded=bool(rng.random() < 0.5))
    if rng.random() < 0.5:  # the non-negative orthant has shortcuts of its own
        keep = np.maximum(point, 0)
        polytope = polyhedron(
            np.where(rng.random(point.size) < 0.8, 0.0, -INF),
            np.where(rng.random(point.size) < 0.5, keep + 1, INF),
            np.abs(polytope.A_ub.toarray()),
            np.abs(polytope.A_ub.toarray()) @ keep + 1,
        )
    lower, upper = polytope.box
    points = [polytope.minimise(rng.normal(size=polytope.size)) for _ in range(12)]
    points += [polytope.minimise(sign * np.ones(polytope.size)) for sign in (-1, 1)]
    found = np.array([p for p in points if p is not None]).reshape(-1, polytope.size)
    slack = 1e-6
    assert (found >= lower - slack).all() and (found <= upper + slack).all()
    assert (np.abs(found).sum(axis=1) <= polytope.l1 + slack).all()
    assert (np.abs(found) <= polytope.linf + slack).all()
    for one in found:
        assert (np.linalg.norm(found - one, axis=1) <= polytope.diameter + slack).all()


def test_the_box_is_tightened_by_rows() -> None:
    polytope = polyhedron([0, 0, 0], [INF, INF, 1], [[1, 2, 0]], [4], [[0, 1, 1]], [1.5])
    lower, upper = polytope.box
    assert np.allclose(lower, [0, 0.5, 0]) and np.allclose(upper, [4, 1.5, 1])
    assert (polytope.upper == [INF, INF, 1]).all()
    assert polytope.linf == pytest.approx(4) and polytope.l1 == pytest.approx(4.5, abs=1e-4)
    open_ended = polyhedron([0, -INF, 0], [INF, INF, 1], [[1, 2, 0], [1, 0, 1]], [4, 2])
    assert np.allclose(open_ended.box[1], [2, 2, 1]) and np.isinf(open_ended.l1)


def test_tightening_allows_for_rounding() -> None:
    """The residue of large terms that cancel is rounded; the bound must not cut off true points."""
    big = 1e15
    polytope = polyhedron([0, big], [INF, big + 2], [[1.0, 0.1]], [0.1 * big + 0.3])
    assert polytope.box[1][0] >= 0.3


@pytest.mark.parametrize(
    "polytope",
    [
        polyhedron([0, 0, 0], [INF] * 3, None, (), [[1, 2, 4]], [4]),
        polyhedron([0, 0, 0], [INF] * 3, None, (), [[-1, -2, -4]], [-4]),
        polyhedron([0, 0, 0], [INF] * 3, [[1, 1, 1]], [2]),
        polyhedron([0, 0, -1, 5], [INF, INF, 1, 5], [[1, 1, 0, 0]], [3]),
        polyhedron([1, 0, 0, 0], [INF] * 4, [[1, 1, 0, 0]], [3], [[0, 0, 1, 3]], [1]),
        polyhedron([0, 0, 0], [1, 1, 7], None, (), [[1, 1, 1]], [1]),
        polyhedron([-2, 0], [3, 1]),
    ],
)
def test_products_are_recognised(polytope: Polyhedron) -> None:
    """Its vertices lie in the set, and their best is the optimum, for random costs."""
    product = polytope.product
    assert product is not None
    rng = np.random.default_rng(1)
    for _ in range(20):
        cost = rng.normal(size=polytope.size)
        best = float(cost @ product.base)
        for number, optional in enumerate(product.optional):
            gains = (cost * product.step)[product.block == number]
            best += min(float(gains.min()), 0.0) if optional else float(gains.min())
        assert best == pytest.approx(by_linprog(polytope, cost).fun, abs=1e-9)
    free = (product.block >= 0).sum() + product.optional.sum()
    assert product.choices.sum() == free
    assert (product.step[product.block < 0] == 0).all()


@pytest.mark.parametrize(
    "polytope",
    [
        polyhedron([0, 0], [INF, 0.5], None, (), [[1, 1]], [1]),  # a bound cuts the simplex
        polyhedron([0, 0], [INF, INF], [[1, -1]], [1]),
        polyhedron([0, 0], [INF, INF], [[-1, -1]], [-1]),
        polyhedron([0, 0, 0], [1, 1, 1], [[1, 1, 0], [0, 1, 1]], [1, 1]),  # rows share a column
        polyhedron([-INF, 0], [INF, 1]),
        polyhedron([0, 0], [INF, 1]),  # unbounded
        polyhedron([0, 0], [INF, INF], None, (), [[1, -1]], [0]),
        polyhedron([0, 0], [INF, INF], [[1, 1]], [-1]),  # empty
        polyhedron([0, 0], [1, -1]),  # empty
        polyhedron([0, 0], [1, 1], None, (), [[0, 0]], [1]),  # empty: 0 = 1
    ],
)
def test_other_sets_are_no_products(polytope: Polyhedron) -> None:
    assert polytope.product is None


def test_the_public_part_of_a_problem() -> None:
    """Private rows are left out; a private right-hand side with a bound counts with its largest value."""
    b = dpm.Private(shape=2, name="b", unit="entry", bounds=[0, 3])
    A = dpm.Private(shape=(2, 3), name="A", unit="row", bounds=[0, 1])
    x = cp.Variable(3, nonneg=True)
    problem = dpm.Problem(
        cp.Minimize(cp.sum(x)), [A @ x >= 1, x[0] + x[1] <= b[0], x[2] <= b[1], cp.sum(x) == 4, x[0] <= 2]
    )
    polytope = Polyhedron.of(problem._model(None).public.program)
    assert polytope.lower.tolist() == [0, 0, 0] and polytope.upper[[0, 2]] == pytest.approx([2, 3])
    assert polytope.b_ub == pytest.approx([3]) and polytope.A_ub.toarray().tolist() == [[1, 1, 0]]
    assert polytope.b_eq.tolist() == [4] and polytope.violation(np.array([1.0, 1, 2])) == 0
    assert polytope.violation(np.array([1.0, 1, 1])) == 1 and polytope.violation(np.array([2.5, 0, 1.5])) == 0.5


def test_a_support_is_solved_once_for_all_lengths_and_copies_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    polytope, _ = random_polyhedron(rng)
    direction = rng.normal(size=polytope.size)
    once = polytope.support(direction)
    twin = polytope.copy()
    monkeypatch.setattr(Polyhedron, "minimise", lambda *given: pytest.fail("solved again"))
    assert polytope.support(4 * direction) == pytest.approx(4 * once, rel=1e-5, abs=1e-5)
    assert twin.support(direction) == once
    # Points found tell a lower bound, and no more.
    assert polytope.reaches(direction, once - 1e-4) and not polytope.reaches(direction, once + 1e-4)
    # Nowhere is further than anywhere else in no direction, and a set with a point is not empty.
    assert polytope.support(0 * direction) == pytest.approx(0, abs=1e-5) and not polytope.empty


def test_open_sets_are_found_unbounded() -> None:
    whole = Polyhedron(
        sp.csr_array((0, 2)), np.zeros(0), sp.csr_array((0, 2)), np.zeros(0), np.zeros(2), np.full(2, np.inf)
    )
    assert whole.minimise(np.array([1.0, -1.0])) is None and whole.support(np.array([1.0, 0.0])) == np.inf
    assert np.array_equal(whole.minimise(np.array([1.0, 0.0])), [0, 0])


def test_a_row_that_is_there_already_moves() -> None:
    """A budget and a target of one cost stay one row; another row is added."""
    budget = Polyhedron(
        sp.csr_array([[1.0, 2.0]]), np.array([3.0]), sp.csr_array((0, 2)), np.zeros(0), np.zeros(2), np.full(2, 5.0)
    )
    for target, b in ((2.0, 2.0), (4.0, 3.0)):
        cut = budget.with_row(np.array([1.0, 2.0]), target)
        assert cut.A_ub.shape[0] == 1 and cut.b_ub.tolist() == [b]
    assert budget.b_ub.tolist() == [3.0]
    assert budget.with_row(np.array([1.0, 2.5]), 2.0).A_ub.shape[0] == 2
    assert budget.with_row(np.array([0.0, 2.0]), 2.0).upper.tolist() == [5.0, 1.0]
