"""Mirror maps against CVXPY, and mirror descent's composition and theorem."""

from __future__ import annotations

import math

import cvxpy as cp
import numpy as np
import pytest
from descents import seeded
from regressions import objective, regression
from scipy.stats import binom

from dpmodel.contract import Mechanism, Options
from dpmodel.regressions.mirror_descent import (
    MIRROR_DESCENT,
    Entropic,
    MirrorDescent,
    MirrorMap,
    PNorm,
    Shape,
    mirror_maps,
)
from dpmodel.regressions.sets import L1Ball, L2Ball, Simplex

OPTIONS = Options(1.0, 1e-6)
SIZE, RADIUS = 4, 2.0
SHAPES: tuple[Shape, ...] = ("ball", "simplex", "solid")
CORNERS = {"ball": RADIUS * np.vstack([np.eye(SIZE), -np.eye(SIZE)]), "simplex": RADIUS * np.eye(SIZE)}
CORNERS["solid"] = RADIUS * np.eye(SIZE + 1)[:, :SIZE]
MAPS: dict[str, MirrorMap] = {f"entropic {shape}": Entropic(SIZE, RADIUS, shape) for shape in SHAPES}
MAPS |= {f"{r} {shape}": PNorm(SIZE, RADIUS, shape, r) for r in (1.2, 1.5, 2.0) for shape in SHAPES}


def _inside(w: np.ndarray, shape: str) -> bool:
    total = float(np.abs(w).sum())
    if shape == "ball":
        return total <= RADIUS * (1 + 1e-9)
    exact = abs(total - RADIUS) <= 1e-9 if shape == "simplex" else total <= RADIUS * (1 + 1e-9)
    return bool((w >= 0).all()) and exact


def _value(name: str, chosen: MirrorMap, w: np.ndarray) -> float:
    """psi, for the entropic map the least over all weights of the corners."""
    if isinstance(chosen, PNorm):
        return float(np.linalg.norm(w, ord=chosen.r)) ** 2 / 2
    C = CORNERS[chosen.shape]
    x = cp.Variable(C.shape[0], nonneg=True)
    problem = cp.Problem(cp.Maximize(cp.sum(cp.entr(x))), [cp.sum(x) == 1, C.T @ x == w])
    problem.solve(solver=cp.CLARABEL)
    return -(RADIUS**2) * float(problem.value)


@pytest.mark.parametrize("name", MAPS)
def test_points_minimise(name: str) -> None:
    rng = np.random.default_rng(0)
    chosen = MAPS[name]
    for size in (0.1, 1.0, 10.0):
        g = size * rng.standard_normal(SIZE)
        found = chosen.point(g)
        assert _inside(found, chosen.shape)
        w = cp.Variable(SIZE)
        inside = [cp.norm1(w) <= RADIUS]
        if chosen.shape != "ball":
            inside = [w >= 0, cp.sum(w) == RADIUS if chosen.shape == "simplex" else cp.sum(w) <= RADIUS]
        if isinstance(chosen, PNorm):
            psi = cp.square(cp.pnorm(w, chosen.r, approx=False)) / 2 if chosen.r < 2 else cp.sum_squares(w) / 2
            problem = cp.Problem(cp.Minimize(g @ w + psi), inside)
        else:
            C = CORNERS[chosen.shape]
            x = cp.Variable(C.shape[0], nonneg=True)
            linear = g @ (C.T @ x) - RADIUS**2 * cp.sum(cp.entr(x))
            problem = cp.Problem(cp.Minimize(linear), [cp.sum(x) == 1, w == C.T @ x])
        problem.solve(solver=cp.CLARABEL)
        assert np.allclose(found, w.value, atol=2e-4)


@pytest.mark.parametrize("shape", ["ball", "simplex", "solid"])
@pytest.mark.parametrize("p", [1, 2, 7, 300])
def test_p_norm_maps_find_a_point_for_gradients_of_any_size(shape: Shape, p: int) -> None:
    """On a simplex, one gradient in five is beyond a plain search for a root."""
    generator = np.random.default_rng(p)
    for radius in (0.1, 37.0):
        for r in (1.5, 1 + 1 / max(math.log(max(p, 2)), 1.0)):
            chosen = PNorm(p, radius, shape, r)
            for size in (1e-3, 1.0, 1e3, 1e8, 1e150):
                g = generator.normal(size=p) * size
                w = chosen.point(g)
                assert float(np.abs(w).sum()) <= radius * (1 + 1e-12)
                assert shape == "ball" or (w >= 0).all()
                assert shape != "simplex" or math.isclose(float(w.sum()), radius, rel_tol=1e-12)
                if size == 1.0:  # least: no other point of the set is better
                    for _ in range(20):
                        v = generator.dirichlet(np.ones(p)) * radius
                        assert _goal(g, w, r) <= _goal(g, v, r) + 1e-9 * max(1.0, radius**2)


def _goal(g: np.ndarray, w: np.ndarray, r: float) -> float:
    return float(g @ w + np.linalg.norm(w, ord=r) ** 2 / 2)


@pytest.mark.parametrize("name", MAPS)
def test_regret_is_as_proved(name: str) -> None:
    """The deterministic half of the theorem, with random gradients."""
    rng = np.random.default_rng(1)
    chosen, h, steps = MAPS[name], 0.3, 40
    total, played, squares = np.zeros(SIZE), 0.0, 0.0
    for _ in range(steps):
        e = rng.standard_normal(SIZE) + np.array([1.0, 0, 0, 0])
        played += float(e @ chosen.point(h * total))
        squares += float(np.linalg.norm(e, ord=chosen.dual)) ** 2
        total += e
    best = -RADIUS * max(float(np.abs(total).max()) if chosen.shape == "ball" else float((-total).max()), -math.inf)
    if chosen.shape == "solid":
        best = min(best, 0.0)
    assert played - best <= chosen.spread / h + h * squares / (2 * chosen.strength) + 1e-9


@pytest.mark.parametrize("name", MAPS)
def test_spread_and_noise_norm(name: str) -> None:
    rng = np.random.default_rng(2)
    chosen = MAPS[name]
    points = [chosen.point(rng.standard_normal(SIZE) * 10 ** rng.uniform(-1, 3)) for _ in range(5)]
    values = [_value(name, chosen, w) for w in (*points, chosen.point(np.zeros(SIZE)))]
    assert max(values) - min(values) <= chosen.spread + 1e-6
    norms = np.linalg.norm(rng.standard_normal((20_000, SIZE)), ord=chosen.dual, axis=1)
    late = int((norms > chosen.noise_norm(0.05)).sum())
    assert late <= binom.isf(1e-7, 20_000, 0.05)


def test_sets() -> None:
    assert set(mirror_maps(L1Ball(3, 1.0))) == {"entropic", "p-norm", "p-norm 1.5"}
    assert mirror_maps(Simplex(3, 1.0))["entropic"].shape == "simplex"
    assert mirror_maps(Simplex(3, 1.0, solid=True))["entropic"].shape == "solid"
    assert mirror_maps(L2Ball(3, 1.0)) == {}
    assert isinstance(MIRROR_DESCENT, Mechanism)
    free = regression(np.ones((5, 2)), np.ones(5), l2=1.0)
    assert not MIRROR_DESCENT.eligible(free, OPTIONS).eligible


def test_it_learns_a_sparse_signal_and_the_theorem_holds() -> None:
    rng = np.random.default_rng(0)
    n, p = 4000, 40
    X = rng.choice([-1.0, 1.0], (n, p))
    v = np.zeros(p)
    v[:5] = 0.2
    y = np.clip(X @ v + 0.1 * rng.standard_normal(n), -2, 2)
    model = regression(X, y, "squared", domain=L1Ball(p, 1.0), lower=-1.0, upper=1.0, label=(-2.0, 2.0))
    nothing, best = objective(model, np.zeros(p)), 0.01
    losses = [objective(model, MIRROR_DESCENT.run(model, OPTIONS, seeded(k)).x) for k in range(3)]
    assert np.mean(losses) - best < 0.2 * (nothing - best)
    # Wide labels, so that the bound is below the public point's: bounds that this point keeps too are not stated.
    plain = regression(X, y, "absolute", domain=L1Ball(p, 1.0), lower=-1.0, upper=1.0, label=(-20.0, 20.0))
    mechanism, options = MirrorDescent(steps=16, averaging="all", map="entropic"), Options(4.0, 1e-6, beta=0.1)
    forecast = mechanism.forecast(plain, options)
    assert forecast.proved
    least = float(np.abs(y - X @ v).mean()) - 0.02
    late = sum(
        objective(plain, mechanism.run(plain, options, seeded(k)).x) - least > forecast.error.alpha for k in range(30)
    )
    assert late <= binom.isf(1e-7, 30, 0.1)
