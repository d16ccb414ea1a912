"""Sufficient statistics of least squares: sensitivity, noise, the shrinking rule, post-processing and forecasts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from regressions import objective, regression

from dpmodel.as_printed.adassp import ADASSP_AS_PRINTED
from dpmodel.contract import Mechanism, Options
from dpmodel.privacy import SeededSource, gaussian_mu
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.moments import (
    Spread,
    from_vector,
    layout_of,
    normal_equations,
    quadratic,
    sensitivity_l1,
    sensitivity_l2,
    shrunk,
    summed,
    to_vector,
)
from dpmodel.regressions.public import PublicPart
from dpmodel.regressions.rows import Rows
from dpmodel.regressions.sets import L1Ball, L2Ball
from dpmodel.regressions.sufficient_statistics import (
    SUFFICIENT_STATISTICS,
    by_steps,
    noise_bounds,
    sizes_of,
    spread_of,
)
from dpmodel.regressions.synthetic import each_population

pytestmark = pytest.mark.filterwarnings("ignore::dpmodel.errors.NotPrivateWarning")


@pytest.mark.parametrize("acute", [False, True])
def test_the_stated_largest_change_is_the_largest(acute: bool) -> None:
    """Against a search over the plane of two vectors of the ball, and attained there."""
    generator = np.random.default_rng(1)
    for alpha, beta, gamma in [(0, 1.1, 0), (1, 1, 0.5), (0.3, 2.5, 1), (2, 0.4, 0.1), (0, 1.7, 0)]:
        angle = np.abs(generator.random(60_000)) * math.pi * (0.5 if acute else 1.0)
        one, two = (np.maximum(generator.random(60_000), (generator.random(60_000) < 0.8)) for _ in range(2))
        r, q = (np.sign(generator.standard_normal(60_000)) for _ in range(2))
        k = one * two * np.cos(angle)
        moved = one**4 + two**4 - 2 * k**2 + alpha**2 * (one**2 + two**2 - 2 * k)
        moved += beta**2 * (one**2 + two**2 - 2 * r * q * k) + gamma**2 * (r - q) ** 2
        stated = sensitivity_l2(acute=acute)(alpha, beta, gamma)
        assert 0.999 * stated <= math.sqrt(moved.max()) <= stated * (1 + 1e-12)


def test_boxed_one_norm_change_bounds_a_search_over_corners() -> None:
    generator = np.random.default_rng(2)
    k = 4
    upper = np.triu_indices(k)
    U, V = (generator.integers(-1, 2, (40_000, k)) / math.sqrt(k) for _ in range(2))
    r, q = (generator.integers(0, 2, 40_000) * 2 - 1 for _ in range(2))
    squares = np.einsum("ni,nj->nij", U, U) - np.einsum("ni,nj->nij", V, V)
    for alpha, beta, gamma in [(0, 1.1, 0), (1, 1, 0.5), (0.3, 2.5, 1)]:
        moved = np.abs(squares[:, upper[0], upper[1]]).sum(1) + alpha * np.abs(U - V).sum(1)
        moved = moved + beta * np.abs(r[:, None] * U - q[:, None] * V).sum(1) + gamma * np.abs(r - q)
        stated = sensitivity_l1(k, 2.0, True)(alpha, beta, gamma)
        assert 0.85 * stated <= moved.max() <= stated * (1 + 1e-12)


# -------------------------------------------------------------------------- what is released


def made(n: int = 400, p: int = 4, seed: int = 0, **declared: Any) -> PrivateRegression:
    generator = np.random.default_rng(seed)
    X = generator.uniform(-1, 1, (n, p))
    y = np.clip(X @ np.linspace(0.5, -0.3, p) + 0.1 * generator.standard_normal(n), -1, 1)
    return regression(X, y, **{"lower": -1.0, "upper": 1.0, **declared})


# -------------------------------------------------------------------------- the sums themselves


def test_statistics_survive_the_vector() -> None:
    model = made(intercept=True)
    for pure in (False, True):
        layout = layout_of(model, pure)
        assert layout is not None
        s = summed(layout, model.read_rows())
        again = from_vector(layout, to_vector(layout, s), s.total)
        for name in ("gram", "first", "cross", "labels"):
            np.testing.assert_allclose(getattr(again, name), getattr(s, name), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bounds", [{"lower": -1.0, "upper": 1.0}, {"lower": 0.0}, {"lower": 0.3}, {"l2": 2.0}])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("absent", [False, True])
def test_without_noise_the_quadratic_is_the_objective(bounds: dict[str, Any], intercept: bool, absent: bool) -> None:
    """Weights, offsets, intercepts, centred columns: value differences equal those of the true objective."""
    generator = np.random.default_rng(3)
    X, y = generator.uniform(0.4, 1, (5000, 3)), generator.uniform(0, 1, 5000)
    weights, offset = generator.uniform(0.5, 2, 5000), generator.uniform(-0.1, 0.1, 5000)
    label = (0.0, 1.0)
    if absent:  # some records are
        y, label = y + 1, (1.0, 2.0)
        X[::7], y[::7] = 0, 0
    declared: dict[str, Any] = {"upper": 1.0, **bounds, "absent": absent, "intercept": intercept}
    model = regression(X, y, weights=weights, label=label, mean=False, **declared)
    rows = replace(model.read_rows(), offset=offset)
    model = replace(model, read=lambda: rows, offset_bound=0.1)
    layout = layout_of(model, False)
    assert layout is not None
    s = summed(layout, rows)
    P, q = quadratic(layout, s, np.zeros((3, 3)))
    points = generator.standard_normal((4, model.size))
    true = np.array([objective(model, w) for w in points])
    mine = np.array([w @ P @ w - 2 * q @ w for w in points])
    np.testing.assert_allclose(mine - mine[0], true - true[0], rtol=1e-9, atol=1e-7)


# -------------------------------------------------------------------------- what is made of it


@pytest.mark.parametrize("intercept", [False, True])
def test_the_released_program_is_convex_whatever_the_noise(intercept: bool) -> None:
    for seed in range(20):
        generator = np.random.default_rng(seed)
        model = made(n=20, p=5, lower=-1.0 if intercept else -0.5, intercept=intercept, ridge=0.01 * (seed % 3))
        layout = layout_of(model, False)
        assert layout is not None
        s = from_vector(layout, 30 * generator.standard_normal(layout.entries), 20.0)
        spread = Spread.of(layout, 30.0)
        added = shrunk(layout, s, spread, np.full(5, 0.2 * (seed % 3)))
        P, _ = quadratic(layout, s, added)
        assert np.linalg.eigvalsh(P)[0] >= -1e-6 * np.abs(P).max()


@pytest.mark.parametrize("intercept", [False, True])
def test_the_rule_works_on_the_normal_equations(intercept: bool) -> None:
    """Labels that are an exact function of the columns: its coefficients solve them."""
    generator = np.random.default_rng(10)
    X, w = generator.random((300, 3)), np.array([0.3, 0.5, 0.1])
    model = regression(X, X @ w + 0.05 * intercept, lower=0.0, upper=1.0, label=(0.0, 1.0), intercept=intercept)
    layout = layout_of(model, False)
    assert layout is not None and layout.label_middle == 0.5
    S, z, _, _ = normal_equations(layout, summed(layout, model.read_rows()))
    np.testing.assert_allclose(S @ (w * layout.width / layout.label_width), z, rtol=1e-9)


@pytest.mark.parametrize("pure", [False, True])
def test_the_rule_is_told_the_true_deviations(pure: bool) -> None:
    layout = layout_of(made(intercept=True), pure)
    assert layout is not None
    source, scale = SeededSource(0), 2.0
    draws = [
        from_vector(layout, (source.laplace if pure else source.gaussian)(np.zeros(layout.entries), scale), 1e9)
        for _ in range(8000)
    ]
    told = spread_of(layout, scale)
    pairs = {
        "pair": [s.gram[0, 1] for s in draws],
        "own": [s.gram[1, 1] for s in draws],
        "first": [s.first[0] for s in draws],
        "cross": [s.cross[0] for s in draws],
        "labels": [s.labels for s in draws],
    }
    for name, values in pairs.items():
        assert np.std(values) == pytest.approx(getattr(told, name), rel=0.06)


def with_public(model: PrivateRegression, radius: float | None) -> PrivateRegression:
    w = cp.Variable(model.size)
    return replace(model, public=PublicPart(w, () if radius is None else (cp.norm1(w) <= radius,)), _memo={})


def test_solvers_agree() -> None:
    """Closed form, by_steps steps and CVXPY on the same released quadratic."""
    generator = np.random.default_rng(8)
    A = generator.standard_normal((30, 6))
    P, q = A.T @ A, A.T @ generator.standard_normal(30)
    free = with_public(made(p=6), None)
    assert free.public is not None
    np.testing.assert_allclose(free.public.minimise_quadratic(P, q), np.linalg.solve(P, q), rtol=1e-7)
    ball = L1Ball(6, 0.3)
    model = with_public(made(p=6, domain=ball), 0.3)
    assert model.public is not None
    np.testing.assert_allclose(model.public.minimise_quadratic(P, q), by_steps(ball, model.penalty, P, q), atol=2e-5)


def test_constrained_solutions_stay_in_the_set() -> None:
    model = made(p=6, domain=L1Ball(6, 0.3))
    one = SUFFICIENT_STATISTICS.run(model, Options(1.0, 1e-6), SeededSource(0)).x
    two = SUFFICIENT_STATISTICS.run(with_public(model, 0.3), Options(1.0, 1e-6), SeededSource(0)).x
    assert one is not None and np.abs(one).sum() <= 0.3 + 1e-9
    np.testing.assert_allclose(one, two, atol=1e-4)


# -------------------------------------------------------------------------- forecasts


def drawn(risk: Any, n: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels of a synthetic population."""
    model = risk.model
    moving = ~model.row.constant
    X = risk.mean[0, moving] + np.sqrt(12 * risk.variance[0, moving]) * (generator.random((n, int(moving.sum()))) - 0.5)
    truth = risk.truth[0]
    z = X @ truth[moving] + float(model.row.lower[~moving] @ truth[~moving])
    return X, np.clip(z + risk.noise * generator.standard_normal(n), *model.row.label)


FORECASTS: dict[str, tuple[int, int, float, dict[str, Any]]] = {
    "free": (20_000, 30, 1e-6, {"lower": -1.0, "upper": 1.0}),
    "drowned": (2000, 50, 1e-6, {"lower": -1.0, "upper": 1.0}),
    "pure": (20_000, 20, 0.0, {"lower": -1.0, "upper": 1.0}),
    "columns": (20_000, 20, 1e-6, {"lower": 0.0, "upper": 100.0, "intercept": True}),
    "l1": (20_000, 50, 1e-6, {"lower": -1.0, "upper": 1.0, "domain": L1Ball(50, 1.0)}),
    "fewer columns simulated": (8000, 600, 1e-6, {"lower": -1.0, "upper": 1.0, "domain": L2Ball(600, 1.0)}),
}


@pytest.mark.parametrize("name", FORECASTS)
@pytest.mark.parametrize("mechanism", [SUFFICIENT_STATISTICS, ADASSP_AS_PRINTED], ids=lambda m: m.name)
@pytest.mark.slow
def test_forecasts_are_within_a_factor_of_what_happens(name: str, mechanism: Mechanism) -> None:
    n, p, delta, declared = FORECASTS[name]
    options = Options(1.0, delta)
    base = regression(np.zeros((n, p)), np.zeros(n), **declared)
    if not mechanism.eligible(base, options).eligible:
        assert delta == 0
        return
    predicted = mechanism.forecast(base, options).error.predicted
    generator, found = np.random.default_rng(9), []
    for risk in each_population(base):
        model = regression(*drawn(risk, n, generator), **declared)
        for seed in range(1 if p > 100 else 4):
            found.append(risk.excess(mechanism.run(model, options, SeededSource(seed)).x[None])[0])
    assert predicted / 1.5 <= np.mean(found) <= predicted * 1.5


def test_the_proved_bound_holds_on_any_data() -> None:
    """No failure in 300 runs at beta = .05 (a union bound, loose); falling in n."""
    model = made(n=2000, p=3, domain=L2Ball(3, 1.0))
    options = Options(2.0, 1e-5)
    forecast = SUFFICIENT_STATISTICS.forecast(model, options)
    assert forecast.proved and math.isfinite(forecast.error.alpha)
    best = objective(model, by_steps(model.domain, model.penalty, *_moments(model)))
    losses = [
        objective(model, SUFFICIENT_STATISTICS.run(model, options, SeededSource(seed)).x) - best  # type: ignore[arg-type]
        for seed in range(300)
    ]
    assert max(losses) <= forecast.error.alpha
    larger = made(n=2_000, p=3, domain=L2Ball(3, 1.0))
    larger = replace(larger, count=10**6, total=1e6, scale=1e-6, _memo={})
    alpha = SUFFICIENT_STATISTICS.forecast(larger, options).error.alpha
    assert alpha < 0.05 < forecast.error.alpha
    assert not SUFFICIENT_STATISTICS.forecast(made(), options).proved


def _moments(model: PrivateRegression) -> tuple[np.ndarray, np.ndarray]:
    rows: Rows = model.read_rows()
    return model.scale * rows.gram(), model.scale * rows.combine(rows.labels)


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("lower", [-1.0, 0.0])
def test_bounds_on_the_noise_hold_and_are_not_wild(pure: bool, lower: float) -> None:
    """sup |E| from below, at the vectors that the noise itself points to: none of 400 draws is beyond the bound of
    beta = .05, which is at most 10 times (40 for Laplace noise) the median."""
    model = made(p=8, domain=L2Ball(8, 1.0), lower=lower)
    layout = layout_of(model, pure)
    assert layout is not None
    source, reach, spread = SeededSource(0), sizes_of(model, layout), spread_of(layout, 1.0)
    bound, off = noise_bounds(model, layout, spread, 0.05)
    found, norms = [], []
    for _ in range(400):
        draw = (source.laplace if pure else source.gaussian)(np.zeros(layout.entries), 1.0)
        s = from_vector(layout, draw, model.total)
        values, vectors = np.linalg.eigh(s.gram)
        norms.append(np.abs(values).max())
        ways = [*vectors.T, s.cross / np.linalg.norm(s.cross), *(-vectors.T)]
        sizes = []
        for v in (reach.two * way for way in ways):
            linear = v @ s.gram @ v - 2 * s.cross @ v
            sizes += [abs(linear + 2 * v0 * (s.first @ v - s.labels)) for v0 in (-reach.base, reach.base)]
        found.append(max(sizes))
    assert max(found) <= bound <= (40 if pure else 10) * np.median(found)
    assert max(norms) <= off


# -------------------------------------------------------------------------- AdaSSP


def test_adassp_is_the_published_one_where_that_is_private_and_enlarged_elsewhere() -> None:
    model = regression(np.zeros((10, 3)), np.zeros(10), l2=1.0, absent=True)
    scales = ADASSP_AS_PRINTED.scales(model, Options(1.0, 1e-6))
    printed = 3 * math.sqrt(math.log(6e6))
    assert scales.unit == printed
    assert [scales.eigenvalue, scales.matrix, scales.vector] == pytest.approx([printed] * 3)
    enlarged = 0
    for epsilon in (0.01, 1.0, 30.0):
        for delta in (1e-8, 1e-2, 0.3):
            scales = ADASSP_AS_PRINTED.scales(model, Options(epsilon, delta))
            assert math.sqrt(3) / scales.unit <= gaussian_mu(epsilon, delta) * (1 + 1e-12)
            enlarged += scales.unit > 3 * math.sqrt(math.log(6 / delta)) / epsilon * (1 + 1e-9)
    assert enlarged
