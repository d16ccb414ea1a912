"""Every usual spelling of a public set is recognised, and what is not is still computed right."""

from __future__ import annotations

import math

import cvxpy as cp
import numpy as np
import pytest

from dpmodel.errors import InfeasibleError, MissingValueError, UnsupportedModelError
from dpmodel.regressions.public import PublicPart
from dpmodel.regressions.read_sets import ConvexSet, domain_of
from dpmodel.regressions.sets import Box, FreeSpace, L1Ball, L2Ball, Product, Simplex

P = 4
C = 1.5


def parameter(value):
    return cp.Parameter(nonneg=True, value=value)


SPELLINGS = {
    "norm1": (lambda w: [cp.norm1(w) <= C], L1Ball(P, C)),
    "norm(w, 1)": (lambda w: [cp.norm(w, 1) <= C], L1Ball(P, C)),
    "pnorm(w, 1)": (lambda w: [cp.pnorm(w, 1) <= C], L1Ball(P, C)),
    "sum of abs": (lambda w: [cp.sum(cp.abs(w)) <= C], L1Ball(P, C)),
    "mean of abs": (lambda w: [cp.mean(cp.abs(w)) <= C / P], L1Ball(P, C)),
    "scaled": (lambda w: [3 * cp.norm1(-w / 2) + 1 <= 1 + 1.5 * C], L1Ball(P, C)),
    "turned": (lambda w: [cp.Constant(C) >= cp.norm1(w)], L1Ball(P, C)),
    "positive and negative parts": (lambda w: [cp.sum(cp.pos(w) + cp.neg(w)) <= C], L1Ball(P, C)),
    "maximum": (lambda w: [cp.sum(cp.maximum(w, -w)) <= C], L1Ball(P, C)),
    "permuted": (lambda w: [cp.norm1(w[::-1]) <= C], L1Ball(P, C)),
    "parameter": (lambda w: [cp.norm1(w) <= parameter(C)], L1Ball(P, C)),
    "parameter in front": (lambda w: [parameter(2.0) * cp.norm1(w) <= 2 * C], L1Ball(P, C)),
    "tiny": (lambda w: [cp.norm1(w) <= 1e-7], L1Ball(P, 1e-7)),
    "huge": (lambda w: [cp.norm1(w) <= 1e9], L1Ball(P, 1e9)),
    "two radii": (lambda w: [cp.norm1(w) <= 2 * C, cp.norm1(w) <= C], L1Ball(P, C)),
    "wide box": (lambda w: [cp.norm1(w) <= C, w <= 2, w >= -7], L1Ball(P, C)),
    "wide l2 ball": (lambda w: [cp.norm1(w) <= C, cp.norm(w) <= C], L1Ball(P, C)),
    "squared l1": (lambda w: [cp.square(cp.norm1(w)) <= C**2], L1Ball(P, C)),
    "norm2": (lambda w: [cp.norm2(w) <= C], L2Ball(P, C)),
    "norm": (lambda w: [cp.norm(w) <= C], L2Ball(P, C)),
    "sum_squares": (lambda w: [cp.sum_squares(w) <= C**2], L2Ball(P, C)),
    "sum of squares": (lambda w: [cp.sum(w**2) <= C**2], L2Ball(P, C)),
    "norm squared": (lambda w: [cp.norm(w, 2) ** 2 <= C**2], L2Ball(P, C)),
    "quad_form": (lambda w: [cp.quad_form(w, np.eye(P)) <= C**2], L2Ball(P, C)),
    "SOC": (lambda w: [cp.SOC(cp.Constant(C), w)], L2Ball(P, C)),
    "l2 in l1": (lambda w: [cp.norm(w) <= C, cp.norm1(w) <= 2 * C], L2Ball(P, C)),
    "norm_inf": (lambda w: [cp.norm_inf(w) <= C], Box(-C * np.ones(P), C)),
    "norm(w, 'inf')": (lambda w: [cp.norm(w, "inf") <= C], Box(-C * np.ones(P), C)),
    "max of abs": (lambda w: [cp.max(cp.abs(w)) <= C], Box(-C * np.ones(P), C)),
    "abs": (lambda w: [cp.abs(w) <= C], Box(-C * np.ones(P), C)),
    "two sides": (lambda w: [cp.Constant(-C) <= w, w <= C], Box(-C * np.ones(P), C)),
    "squares": (lambda w: [w**2 <= C**2], Box(-C * np.ones(P), C)),
    "abs per entry": (
        lambda w: [cp.abs(w) <= np.arange(1.0, P + 1)],
        Box(-np.arange(1.0, P + 1), np.arange(1.0, P + 1)),
    ),
    "fixed entry": (
        lambda w: [w[0] == 2, w[1:] <= 1, w[1:] >= 0],
        Box(np.array([2.0, 0, 0, 0]), np.array([2.0, 1, 1, 1])),
    ),
    "one side": (lambda w: [w >= 0], Box(np.zeros(P), math.inf)),
    "cone": (lambda w: [cp.NonNeg(w)], Box(np.zeros(P), math.inf)),
    "simplex": (lambda w: [w >= 0, cp.sum(w) == C], Simplex(P, C)),
    "simplex, ones": (lambda w: [w >= 0, np.ones(P) @ w == C, w <= 2], Simplex(P, C)),
    "simplex, turned": (lambda w: [cp.Constant(0) <= w, -2 * cp.sum(w) == -2 * C], Simplex(P, C)),
    "solid simplex": (lambda w: [w >= 0, cp.sum(w) <= C], Simplex(P, C, solid=True)),
    "l1 and sign": (lambda w: [w >= 0, cp.norm1(w) <= C], Simplex(P, C, solid=True)),
    "nothing": (lambda w: [], FreeSpace(P)),
    "a part": (lambda w: [cp.norm1(w[:3]) <= C], Product(((L1Ball(3, C), 0), (FreeSpace(1), 3)))),
    "two balls": (
        lambda w: [cp.norm1(w[:2]) <= C, cp.norm(w[2:]) <= 1],
        Product(((L1Ball(2, C), 0), (L2Ball(2, 1.0), 2))),
    ),
    "ball and box": (
        lambda w: [cp.norm(w[1:]) <= C, cp.abs(w[0]) <= 3],
        Product(((Box([-3.0], [3.0]), 0), (L2Ball(3, C), 1))),
    ),
}


def same(a, b):
    if isinstance(a, Product):
        return isinstance(b, Product) and all(
            s == t and same(u, v) for (u, s), (v, t) in zip(a.parts, b.parts, strict=True)
        )
    if type(a) is not type(b) or a.size != b.size:
        return False
    if isinstance(a, Box):
        return np.allclose(a.lower, b.lower, rtol=1e-12) and np.allclose(a.upper, b.upper, rtol=1e-12)
    if isinstance(a, Simplex):
        return a.solid == b.solid and math.isclose(a.total, b.total, rel_tol=1e-12)
    return isinstance(a, FreeSpace) or math.isclose(a.radius, b.radius, rel_tol=1e-12)


@pytest.mark.parametrize("name", SPELLINGS)
def test_spelling_is_recognised(name):
    write, expected = SPELLINGS[name]
    w = cp.Variable(P, name="w")
    found = domain_of(PublicPart(w, tuple(write(w))))
    assert same(found, expected), found


ATTRIBUTES = {
    "nonneg": ({"nonneg": True}, Box(np.zeros(P), math.inf)),
    "nonpos": ({"nonpos": True}, Box(np.full(P, -math.inf), np.zeros(P))),
    "bounds": ({"bounds": [-1, 2]}, Box(-np.ones(P), 2.0)),
    "one bound": ({"bounds": [None, np.arange(P)]}, Box(np.full(P, -math.inf), np.arange(P))),
    "parameter": ({"bounds": [0, cp.Parameter(P, value=np.ones(P))]}, Box(np.zeros(P), 1.0)),
}


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes_count_as_constraints(name):
    given, expected = ATTRIBUTES[name]
    found = domain_of(PublicPart(cp.Variable(P, **given)))
    assert same(found, expected), found


def test_several_variables_stacked():
    w, v, b = cp.Variable(2), cp.Variable((2, 2)), cp.Variable()
    stack = cp.hstack([w, cp.vec(v, order="F"), b])
    found = domain_of(PublicPart(stack, (cp.norm1(w) + cp.norm1(cp.vec(v, order="C")) <= 2, b >= 0)))
    assert same(found, Product(((L1Ball(6, 2.0), 0), (Box([0.0], [math.inf]), 6))))
    found = domain_of(PublicPart(stack, (cp.norm(w) <= 1, cp.norm(v, "fro") <= 2)))
    assert same(found, Product(((L2Ball(2, 1.0), 0), (L2Ball(4, 2.0), 2), (FreeSpace(1), 6))))


COLUMNS = {
    "norm(W, 1)": (lambda W: cp.norm(W, 1) <= C, L1Ball(P, C)),
    "norm1": (lambda W: cp.norm1(W) <= C, L1Ball(P, C)),
    "norm(W, 2)": (lambda W: cp.norm(W, 2) <= C, L2Ball(P, C)),
    "fro": (lambda W: cp.norm(W, "fro") <= C, L2Ball(P, C)),
    "inf": (lambda W: cp.norm(W, "inf") <= C, Box(-C * np.ones(P), C)),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns(name):
    write, expected = COLUMNS[name]
    W = cp.Variable((P, 1))
    for coefficients in (W, cp.vec(W, order="F"), W[:, 0]):
        assert same(domain_of(PublicPart(coefficients, (write(W),))), expected)


def test_norms_of_wide_matrices_are_not_norms_of_vectors():
    W = cp.Variable((2, 2))
    for constraint in (cp.norm(W, 1) <= C, cp.norm(W, 2) <= C, cp.norm(W, "inf") <= C):
        assert isinstance(domain_of(PublicPart(cp.vec(W, order="F"), (constraint,))), ConvexSet)


def test_a_regular_affine_map_of_free_variables_is_free():
    v = cp.Variable(3)
    assert domain_of(PublicPart(2 * v - 1)) == FreeSpace(3)
    assert isinstance(domain_of(PublicPart(np.ones((3, 3)) @ v)), ConvexSet)


def test_parameter_values_are_read_at_the_call():
    w, radius = cp.Variable(P), cp.Parameter(nonneg=True, name="radius")
    public = PublicPart(w, (cp.norm1(w) <= radius,))
    with pytest.raises(MissingValueError, match="radius"):
        domain_of(public)
    for value in (1.0, 0.25, 0.0):
        radius.value = value
        assert domain_of(public) == L1Ball(P, value)


def psd(w):
    X = cp.Variable((2, 2), PSD=True)
    return [cp.diag(X) == w[:2], cp.trace(X) <= 1, X[0, 1] == w[2], cp.abs(w[3]) <= 1]


def largest(w):
    t = cp.Variable(2)  # the sum of the two largest sizes, by auxiliary variables
    return [cp.sum_largest(cp.abs(w), 2) <= t[0] + t[1], t <= 1]


GENERAL = {
    "l1 and box": (lambda w: [cp.norm1(w) <= C, w <= 0.5], "polyhedron"),
    "equality": (lambda w: [cp.norm1(w) <= C, w[0] + w[1] == 0], "polyhedron"),
    "shifted l1": (lambda w: [cp.norm1(w - 0.2) <= C], "polyhedron"),
    "weighted l1": (lambda w: [cp.norm1(cp.multiply(np.arange(1, P + 1), w)) <= C], "polyhedron"),
    "rows": (lambda w: [np.vander(np.arange(1.0, 5), P) @ w <= 1, w >= -1, w <= 1], "polyhedron"),
    "monotone": (lambda w: [cp.diff(w) >= 0, w[0] >= 0, w[-1] <= 1], "polyhedron"),
    "a cut that random points miss": (
        lambda w: [cp.maximum(cp.norm1(w), 4 * w[0] - 1.9 * C - 0.5) <= C],
        "polyhedron",
    ),
    "l2 and box": (lambda w: [cp.norm(w) <= C, w >= 0], "general"),
    "ellipsoid": (lambda w: [cp.quad_form(w, np.diag([1.0, 2, 3, 4])) <= 1], "general"),
    "huber": (lambda w: [cp.sum(cp.huber(w, 0.5)) <= 1], "general"),
    "groups": (lambda w: [cp.mixed_norm(cp.reshape(w, (2, 2), order="F"), 2, 1) <= 1], "general"),
    "interleaved": (lambda w: [cp.norm1(w[::2]) <= 1, cp.norm1(w[1::2]) <= 1], "polyhedron"),
    "psd": (psd, "general"),
    "auxiliary": (largest, "polyhedron"),
    "crossing balls": (lambda w: [cp.norm1(w) <= C, cp.norm(w) <= 1], "general"),
    "l1 + l2": (lambda w: [cp.norm1(w) + cp.norm(w) <= C], "general"),
}


@pytest.mark.parametrize("name", GENERAL)
def test_general_sets_are_computed_with_solvers(name):
    write, kind = GENERAL[name]
    w = cp.Variable(P, name="w")
    constraints = tuple(write(w))
    found = domain_of(PublicPart(w, constraints))
    assert isinstance(found, ConvexSet) and found.kind == kind and found.vertices is None
    assert w.value is None
    draws = np.random.default_rng(3)
    corners = []
    for _ in range(2):
        v = draws.normal(size=P) * 2
        problem = cp.Problem(cp.Minimize(cp.sum_squares(w - v)), constraints)
        problem.solve(solver=cp.CLARABEL)
        near = found.project(v)
        assert np.allclose(near, w.value, atol=2e-4)
        assert np.linalg.norm(near - v) <= np.linalg.norm(w.value - v) + 1e-6
        value = cp.Problem(cp.Minimize(v @ w), constraints).solve(solver=cp.CLARABEL)
        corner = found.minimise(v)
        assert abs(v @ corner - value) <= 1e-5
        corners.append(corner)
    for order in (1.0, 2.0, math.inf):
        assert max(np.linalg.norm(c, ord=order) for c in corners) <= found.norm(order) < 20
        distance = max(np.linalg.norm(c - d, ord=order) for c in corners for d in corners)
        assert distance <= found.diameter(order) + 1e-9
    assert np.linalg.norm(found.center() - found.project(np.zeros(P))) == 0


@pytest.mark.parametrize(
    "write",
    [
        lambda w: cp.maximum(cp.norm1(w), 3 * w[150]),
        lambda w: cp.norm1(w) + cp.pos(w[150] - 0.9),
        lambda w: cp.norm1(cp.multiply(np.where(np.arange(200) == 150, 1.01, 1.0), w)),
        lambda w: cp.maximum(cp.norm_inf(w), w[0] + w[1] - 0.5),
        lambda w: cp.sum_squares(w) + cp.square(w[150]),
        lambda w: cp.quad_form(w, np.diag(np.where(np.arange(200) == 150, 1.01, 1.0))),
        lambda w: cp.norm(w) + 0.001 * w[0],
        lambda w: cp.norm1(w - np.eye(200)[150] * 1e-6),
        lambda w: cp.maximum(cp.norm(w), 0.1 * cp.norm1(w)),
    ],
)
def test_almost_a_ball_is_not_a_ball(write):
    w = cp.Variable(200)
    assert isinstance(domain_of(PublicPart(w, (write(w) <= 1,))), ConvexSet)


def test_norms_of_a_general_set_use_what_its_parts_say():
    w = cp.Variable(P)
    both = domain_of(PublicPart(w, (cp.norm1(w) <= C, cp.norm_inf(w) <= 0.5)))
    assert math.isclose(both.norm(1), C, rel_tol=1e-5)
    assert math.isclose(both.norm(math.inf), 0.5, rel_tol=1e-5)
    assert both.norm(2) <= 1.0 + 1e-5
    large = cp.Variable(400)  # too many for solvers: the parts alone
    found = domain_of(
        PublicPart(large, (cp.norm(large[:200]) <= 3, large[200:] >= 0, cp.sum(large[200:]) <= 4, large[0] >= 0))
    )
    assert isinstance(found, ConvexSet)
    assert math.isclose(found.norm(2), 5.0, rel_tol=1e-5)
    assert math.isclose(found.norm(1), 3 * math.sqrt(200) + 4, rel_tol=1e-5)
    assert math.isclose(found.norm(math.inf), 4, rel_tol=1e-5)


def test_unbounded_sets():
    w = cp.Variable(P)
    found = domain_of(PublicPart(w, (cp.sum(w) <= 1, w[0] >= 0)))
    assert isinstance(found, ConvexSet) and not found.bounded
    with pytest.raises(UnsupportedModelError, match="without bounds"):
        found.minimise(-np.arange(P))
    found = domain_of(PublicPart(w, (cp.norm(w[:2]) <= w[2],)))
    assert found.kind == "general" and not found.bounded
    with pytest.raises(UnsupportedModelError, match="without bounds"):
        found.minimise(np.array([0, 0, -1.0, 0]))


EMPTY = {
    "box": lambda w: [w >= 1, w <= 0],
    "negative radius": lambda w: [cp.norm1(w) <= -1],
    "negative simplex": lambda w: [w >= 0, cp.sum(w) == -1],
    "small box": lambda w: [w >= 0, w <= 0.1, cp.sum(w) == 1],
    "two totals": lambda w: [w >= 0, cp.sum(w) == 1, cp.sum(w) == 2],
    "rows": lambda w: [w[0] + w[1] >= 3, cp.norm(w) <= 1],
    "constant": lambda w: [w <= 1, cp.Constant(1) <= 0],
}


@pytest.mark.parametrize("name", EMPTY)
def test_empty_sets_are_refused(name):
    w = cp.Variable(P)
    with pytest.raises(InfeasibleError):
        domain_of(PublicPart(w, tuple(EMPTY[name](w))))
