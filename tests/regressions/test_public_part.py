"""What is computed over public constraints and penalties as CVXPY wrote them."""

from __future__ import annotations

import math

import cvxpy as cp
import numpy as np
import pytest

from dpmodel import Private
from dpmodel.errors import InfeasibleError, MissingValueError, UnsupportedModelError
from dpmodel.regressions.public import PublicPart, positive_part

P = 5


def psd_set():
    w, X = cp.Variable(P), cp.Variable((P, P), PSD=True)
    return w, (cp.diag(X) == 1 + w, cp.norm_inf(w) <= 0.5, X[0, 1] == w[2])


def cone_set():
    w, t = cp.Variable(P), cp.Variable(2)
    return w, (cp.norm(w[:3]) <= t[0], cp.norm1(w[3:]) <= t[1], cp.sum(t) <= 2, w >= -1)


def exp_set():
    w = cp.Variable(P)
    return w, (cp.sum(cp.exp(w)) <= P, w >= -3)


def box_set():
    w, b = cp.Variable(P - 1), cp.Variable()
    return cp.hstack([w, b]), (cp.norm1(w) <= 1.5, w >= -0.5, cp.abs(b) <= 2)


SETS = {"psd": psd_set, "cone": cone_set, "exp": exp_set, "box": box_set}
PENALTIES = {
    "none": lambda w: None,
    "ridge": lambda w: 0.3 * cp.sum_squares(w[:3]) + w[0],
    "l1": lambda w: 0.2 * cp.norm1(w) + 0.1 * cp.norm(w[:2]),
}


def reference(w, goal, constraints):
    problem = cp.Problem(cp.Minimize(goal), list(constraints))
    problem.solve(solver=cp.CLARABEL)
    return w.value, problem.value


@pytest.mark.slow
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("name", SETS)
def test_all_solves_agree_with_cvxpy(name, penalty):
    w, constraints = SETS[name]()
    extra = PENALTIES[penalty](w)
    public = PublicPart(w, constraints, extra)
    draws = np.random.default_rng(7)
    plus = 0 if extra is None else extra
    for _ in range(2):
        v, A = draws.normal(size=P), draws.normal(size=(P - 2, P))
        best, value = reference(w, cp.sum_squares(w - v), constraints)
        assert np.allclose(public.project(v), best, atol=1e-3)
        assert np.sum((public.project(v) - v) ** 2) <= value + 1e-6
        _, value = reference(w, v @ w, constraints)
        assert abs(v @ public.minimise(v) - value) <= 1e-5
        goal = cp.sum_squares(A @ w) - 2 * v @ w + plus
        _, value = reference(w, goal, constraints)
        assert abs(at(w, goal, public.minimise_quadratic(A.T @ A, v), public) - value) < 1e-5
        _, value = reference(w, cp.sum_squares(A @ w) - 2 * v @ w, constraints)
        alone = public.minimise_quadratic(A.T @ A, v, with_penalty=False)
        assert abs(np.sum((A @ alone) ** 2) - 2 * v @ alone - value) < 1e-5
        for step in (0.01, 2.0):
            goal = cp.sum_squares(w - v) / (2 * step) + plus
            _, value = reference(w, goal, constraints)
            assert abs(at(w, goal, public.proximal(v, step), public) - value) < 1e-5 / step


def at(w, expression, value, public):
    """The expression's value with the coefficients (and what hangs on them) at ``value``."""
    for variable, number in public.complete(value).items():
        variable.save_value(number)
    return float(expression.value)


@pytest.mark.parametrize("name", SETS)
def test_norms_bound_the_set(name):
    w, constraints = SETS[name]()
    public = PublicPart(w, constraints)
    draws = np.random.default_rng(2)
    corners = [public.minimise(draws.normal(size=P)) for _ in range(10)]
    lower, upper = public.bounds()
    for corner in corners:
        assert (lower <= corner).all() and (corner <= upper).all()
        for order in (1.0, 2.0, math.inf):
            assert np.linalg.norm(corner, ord=order) <= public.norm(order) < 20
    # Exact on the largest entry.
    sides = [reference(w, sign * w[j], constraints)[1] for j in range(P) for sign in (-1, 1)]
    assert math.isclose(public.norm(math.inf), -min(sides), rel_tol=1e-4)


def test_norms_of_boxes_and_simplices_are_exact():
    w = cp.Variable(P)
    corner = PublicPart(w, (w >= 0, cp.sum(w) == 2))
    assert math.isclose(corner.norm(1), 2, rel_tol=1e-5) and math.isclose(corner.norm(2), 2, rel_tol=1e-5)
    box = PublicPart(w, (w >= -1, w <= 2))
    assert math.isclose(box.norm(1), 2 * P, rel_tol=1e-5) and math.isclose(box.norm(2), 2 * P**0.5, rel_tol=1e-5)


def test_the_users_variables_and_multipliers_stay_as_they_are():
    w, constraints = cone_set()
    penalty = cp.norm1(w)
    mine = np.arange(P) * 100.0
    w.value = mine
    public = PublicPart(w, constraints, penalty)
    public.project(mine)
    public.minimise(mine)
    public.minimise_quadratic(np.eye(P), mine)
    public.proximal(mine, 0.1)
    public.norm(1)
    assert public.feasible()
    found = public.complete(np.zeros(P))
    assert np.array_equal(w.value, mine)
    other = next(v for v in found if v is not w)
    assert other.value is None and all(d.value is None for c in constraints for d in c.dual_variables)


def test_complete_gives_exactly_w_and_what_hangs_on_it():
    w, M, t = cp.Variable(3, nonneg=True), cp.Variable((2, 2)), cp.Variable()
    stack = cp.hstack([cp.vec(M, order="F"), w])
    public = PublicPart(stack, (cp.norm1(stack) <= t, t <= 9), 0.1 * t)
    value = np.array([0.1, -0.2, 0.3, 1 / 3, 0.5, 0.6, 0.7])
    found = public.complete(value)
    assert np.array_equal(found[w], value[4:]) and np.array_equal(found[M], value[:4].reshape(2, 2, order="F"))
    assert math.isclose(found[t], np.abs(value).sum(), rel_tol=1e-6)  # the least penalty
    assert {v.shape for v in found} == {(3,), (2, 2), ()}
    # On the boundary too.
    value *= 9 / np.abs(value).sum()
    assert math.isclose(public.complete(value)[t], 9, rel_tol=1e-5)


def test_complete_where_the_coefficients_are_not_plain():
    v = cp.Variable(3)
    public = PublicPart(2 * v[1:] + 1, (v[0] == v[1], cp.norm_inf(v) <= 5))
    found = public.complete(np.array([3.0, -1.0]))
    assert np.allclose(found[v], [1.0, 1.0, -1.0], atol=1e-5)
    assert np.allclose(public.project(np.array([30.0, 2.0])), [11, 2], atol=1e-5)
    tied = cp.Variable((2, 2), symmetric=True)
    public = PublicPart(cp.vec(tied, order="F"))
    assert not public.free
    assert np.allclose(public.project(np.array([1.0, 2, 4, 5])), [1, 3, 3, 5], atol=1e-5)


def test_a_free_quadratic_is_solved_directly(monkeypatch):
    w, b = cp.Variable(P - 1), cp.Variable()
    draws = np.random.default_rng(1)
    A = draws.normal(size=(9, P))
    K = draws.normal(size=(P - 1, P - 1))
    matrix = np.zeros((P, P))
    for penalty, H, h in (
        (None, np.zeros((P, P)), np.zeros(P)),
        (0.3 * cp.sum_squares(w) + 2 * w[0] + 1, np.diag([0.3] * (P - 1) + [0]), np.array([2.0, 0, 0, 0, 0])),
        (cp.sum_squares(K @ w) + cp.square(b - 1), matrix, np.array([0, 0, 0, 0, -2.0])),
    ):
        matrix[:4, :4], matrix[4, 4] = K.T @ K, 1.0
        public = PublicPart(cp.hstack([w, b]), (), penalty)
        monkeypatch.setattr(PublicPart, "_solve", lambda *_: pytest.fail("a solver ran"))
        q = draws.normal(size=P)
        assert np.allclose(public.minimise_quadratic(A.T @ A, q), np.linalg.solve(A.T @ A + H, q - h / 2), rtol=1e-9)
        assert np.array_equal(public.project(q), q)
    with pytest.raises(UnsupportedModelError, match="without bounds"):
        public.minimise_quadratic(np.diag([1.0, 1, 1, 1, 0]), np.ones(P), with_penalty=False)


def test_public_parameters_are_read_at_each_call():
    w, radius, weight = cp.Variable(P), cp.Parameter(nonneg=True, name="radius"), cp.Parameter(nonneg=True)
    public = PublicPart(w, (cp.norm1(w) <= radius, w <= 10), weight * cp.sum_squares(w))
    with pytest.raises(MissingValueError, match="radius"):
        public.project(np.ones(P) * 20)
    weight.value = 1.0
    for value in (1.0, 3.0, 1.0):
        radius.value = value
        assert math.isclose(np.abs(public.project(np.arange(P) * 4.0)).sum(), value, rel_tol=1e-6)
        assert math.isclose(public.norm(math.inf), value, rel_tol=1e-4)
    for value in (1.0, 4.0):
        weight.value = value
        assert np.allclose(public.proximal(np.full(P, 0.1), 1.0), 0.1 / (1 + 2 * value), atol=1e-6)
        assert np.allclose(public.minimise_quadratic(np.eye(P), np.full(P, 0.1)), 0.1 / (1 + value), atol=1e-6)


def test_what_cannot_be_served_is_refused():
    w = cp.Variable(P)
    flag = cp.Variable(P, boolean=True)
    secret = Private(np.ones(P), name="secret", linf=1)
    for constraints, word in (
        ((w <= flag,), "boolean"),
        ((w <= cp.Variable(P, integer=True),), "integer"),
        ((w <= secret,), "private"),
        ((cp.norm1(w) >= 1,), "convex"),
    ):
        with pytest.raises(UnsupportedModelError, match=word):
            PublicPart(w, constraints)
    with pytest.raises(UnsupportedModelError, match="penalty"):
        PublicPart(w, (), -cp.norm1(w))


def test_empty_and_unbounded_sets():
    w = cp.Variable(P)
    for constraints in ((w[0] + w[1] >= 3, w <= 1), (cp.norm(w) <= 1, w[0] >= 2)):
        public = PublicPart(w, constraints)
        assert not public.feasible()
        for call in (public.require_feasible, lambda p=public: p.project(np.ones(P)), lambda p=public: p.norm(1)):
            with pytest.raises(InfeasibleError, match="public"):
                call()
    for constraints in ((cp.sum(w) <= 1,), (cp.norm(w[:2]) <= w[2],), ()):
        public = PublicPart(w, constraints)
        public.require_feasible()
        assert public.norm(2) == math.inf
        with pytest.raises(UnsupportedModelError, match="without bounds"):
            public.minimise(np.array([0, 0, -1.0, 0, 0]))


def test_negative_eigenvalues_count_as_zero():
    draws = np.random.default_rng(0)
    P_ = draws.normal(size=(6, 6))
    P_ = P_ + P_.T
    out = positive_part(P_)
    values, vectors = np.linalg.eigh(P_)
    assert np.allclose(out, (vectors * np.maximum(values, 0)) @ vectors.T)
    w = cp.Variable(6)
    public = PublicPart(w, (cp.norm(w) <= 1,))
    found = public.minimise_quadratic(P_, np.ones(6))
    best, _ = reference(w, cp.quad_form(w, cp.psd_wrap(out)) - 2 * cp.sum(w), public.constraints)
    assert np.allclose(found, best, atol=1e-4)
