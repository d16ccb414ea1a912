"""The closed forms of public sets, against CVXPY, brute force and their definitions."""

from __future__ import annotations

import itertools
import math

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmodel.errors import UnsupportedModelError
from dpmodel.regressions.sets import Box, Domain, FreeSpace, L1Ball, L2Ball, Product, Simplex, onto_simplex

ORDERS = (1.0, 2.0, math.inf)

SETS = {
    "l1": L1Ball(5, 1.5),
    "l1, one": L1Ball(1, 2.0),
    "l1, zero": L1Ball(3, 0.0),
    "l2": L2Ball(5, 0.7),
    "l2, zero": L2Ball(2, 0.0),
    "linf": Box(-2 * np.ones(4), 2 * np.ones(4)),
    "box": Box([-1.0, 0.5, -3.0], [2.0, 0.5, -1.0]),
    "simplex": Simplex(4, 2.5),
    "simplex, one": Simplex(1, 2.5),
    "simplex, zero": Simplex(3, 0.0),
    "solid": Simplex(4, 2.5, solid=True),
    "solid, one": Simplex(1, 2.5, solid=True),
    "product": Product(((L1Ball(3, 1.5), 0), (Box([-2.0], [1.0]), 3))),
    "products": Product(((Box([0.0], [3.0]), 0), (Simplex(3, 1.0, solid=True), 1), (L1Ball(2, 2.0), 4))),
    "with l2": Product(((L2Ball(3, 1.5), 0), (Box([-2.0], [1.0]), 3))),
}
LISTED = [name for name, domain in SETS.items() if domain.vertices is not None]


def written(domain: Domain, w: cp.Expression) -> list[cp.Constraint]:
    """The set in CVXPY's words."""
    if isinstance(domain, L1Ball):
        return [cp.norm1(w) <= domain.radius]
    if isinstance(domain, L2Ball):
        return [cp.norm(w) <= domain.radius]
    if isinstance(domain, Box):
        return [w >= domain.lower, w <= domain.upper]
    if isinstance(domain, Simplex):
        return [w >= 0, cp.sum(w) <= domain.total if domain.solid else cp.sum(w) == domain.total]
    assert isinstance(domain, Product)
    return [c for part, start in domain.parts for c in written(part, w[start : start + part.size])]


def points(size, count=30, scale=1e4):
    draws = np.random.default_rng(size)
    return [draws.normal(size=size) * draws.choice([0.1, 1.0, 10.0, scale]) for _ in range(count)]


@pytest.mark.parametrize("name", SETS)
def test_projection_and_minimum_agree_with_cvxpy(name):
    domain = SETS[name]
    w, v = cp.Variable(domain.size), cp.Parameter(domain.size)
    constraints = written(domain, w)
    nearest = cp.Problem(cp.Minimize(cp.sum_squares(w - v)), constraints)
    least = cp.Problem(cp.Minimize(v @ w), constraints)
    for point in points(domain.size, 6, scale=3.0):
        v.value = point
        nearest.solve(solver=cp.CLARABEL)
        found = domain.project(point)
        assert np.allclose(found, w.value, atol=1e-4 * (1 + np.abs(point).max()) ** 0.5)
        assert np.linalg.norm(found - point) <= np.linalg.norm(w.value - point) * (1 + 1e-6) + 1e-6
        value = least.solve(solver=cp.CLARABEL)
        assert math.isclose(point @ domain.minimise(point), value, rel_tol=1e-6, abs_tol=1e-6)


@pytest.mark.parametrize("name", SETS)
def test_points_lie_in_the_set_and_in_its_norms(name):
    domain = SETS[name]
    w = cp.Variable(domain.size)
    constraints = written(domain, w)
    found = [domain.center()]
    for point in points(domain.size):
        found += [domain.project(point), domain.minimise(point)]
    for x in found:
        w.value = x
        assert max(float(np.max(c.violation())) for c in constraints) <= 1e-12
        assert np.allclose(domain.project(x), x, rtol=0, atol=1e-12)
    for order in ORDERS:
        assert max(np.linalg.norm(x, ord=order) for x in found) <= domain.norm(order) + 1e-12
        far = max(np.linalg.norm(x - y, ord=order) for x in found for y in found)
        assert far <= domain.diameter(order) + 1e-12


@pytest.mark.parametrize("name", LISTED)
def test_vertices_norms_diameters_and_ranges_by_brute_force(name):
    """A convex function is largest at a vertex; so norms, diameters and ranges can be counted out, and are exact."""
    domain = SETS[name]
    corners = np.stack([domain.vertex(j) for j in range(domain.vertices)])
    for g in points(domain.size, 5):
        assert np.allclose(domain.scores(g), corners @ g)
        assert math.isclose(domain.scores(g).min(), g @ domain.minimise(g), rel_tol=1e-12, abs_tol=1e-12)
    for order in ORDERS:
        largest = max(np.linalg.norm(c, ord=order) for c in corners)
        assert math.isclose(largest, domain.norm(order), abs_tol=1e-12)
        longest = max(np.linalg.norm(c - d, ord=order) for c in corners for d in corners)
        assert math.isclose(longest, domain.diameter(order), abs_tol=1e-12)
    sensitivity = 0.3
    ranges = [np.ptp(corners @ np.array(d)) for d in itertools.product([-sensitivity, sensitivity], repeat=domain.size)]
    assert math.isclose(max(ranges), domain.score_range(sensitivity), abs_tol=1e-12)


def test_vertices_are_all_different_and_extreme():
    for name in LISTED:
        domain = SETS[name]
        if "zero" in name or name == "box":
            continue  # all vertices in one point, or a flat side
        corners = np.stack([domain.vertex(j) for j in range(domain.vertices)])
        assert np.unique(corners, axis=0).shape == corners.shape
        for j, corner in enumerate(corners):
            others = np.delete(corners, j, axis=0)
            if not others.size:
                continue
            mix = cp.Variable(others.shape[0], nonneg=True)
            cp_problem = cp.Problem(cp.Minimize(0), [mix @ others == corner, cp.sum(mix) == 1])
            cp_problem.solve(solver=cp.HIGHS)
            assert cp_problem.status == "infeasible", (name, j)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30),
    st.floats(1e-3, 1e3),
)
def test_simplex_projection_satisfies_its_conditions(values, total):
    """The nearest point is max(w - t, 0) with sum ``total``: these are the conditions of optimality."""
    w = np.array(values)
    out = onto_simplex(w, total)
    size = 1e-9 * (total + 1e-3 * np.abs(w).max())
    assert (out >= 0).all() and abs(out.sum() - total) <= 1e-12 * total
    shift = w - out
    t = shift[out > 0]
    assert np.ptp(t) <= size
    assert (w[out == 0] <= t.min() + size).all()


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(st.floats(-100, 100), min_size=1, max_size=12), st.floats(0, 50))
def test_l1_projection_satisfies_its_conditions(values, radius):
    w = np.array(values)
    out = L1Ball(w.size, radius).project(w)
    assert np.abs(out).sum() <= radius * (1 + 1e-12) + (np.abs(w).sum() <= radius) * 1e-9
    # For every vertex v: <w - out, v - out> <= 0.
    gap = w - out
    assert radius * np.abs(gap).max() - gap @ out <= 1e-9 * (1 + np.abs(w).max()) * (1 + radius)


def test_unbounded_sets():
    half = Box([0.0, -math.inf], [math.inf, 1.0])
    assert half.kind == "box" and not half.bounded and half.vertices is None and half.score_range(1.0) == math.inf
    assert np.array_equal(half.minimise(np.array([1.0, -1.0])), [0.0, 1.0])
    assert np.array_equal(half.minimise(np.zeros(2)), [0.0, 0.0])
    for domain in (half, FreeSpace(2), Product(((L1Ball(1, 1.0), 0), (FreeSpace(1), 1)))):
        assert not domain.bounded and domain.norm(2.0) == math.inf == domain.diameter(1.0)
        with pytest.raises(UnsupportedModelError, match="without bounds"):
            domain.minimise(np.array([1.0, 1.0]))
    assert Box([-math.inf], [math.inf]).kind != "linf"


def test_sets_without_vertices_say_so():
    for domain in (L2Ball(3, 1.0), Box(np.zeros(13), 1.0), Box([0.0], [math.inf]), SETS["with l2"]):
        assert domain.vertices is None
        with pytest.raises(UnsupportedModelError, match="vertices"):
            domain.scores(np.zeros(domain.size))
        with pytest.raises(UnsupportedModelError, match="vertices"):
            domain.vertex(0)
    assert Product(((L1Ball(2000, 1.0), 0), (L1Ball(2000, 1.0), 2000))).vertices is None
