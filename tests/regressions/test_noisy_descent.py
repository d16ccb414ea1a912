"""Noisy descent: sensitivities, composition, settings and utility."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from descents import CASES, Replay, model_of, moves, random_pair, replayed, seeded
from regressions import objective, regression
from scipy.optimize import minimize
from scipy.stats import binom

from dpmodel.contract import Options
from dpmodel.privacy import gaussian_mu
from dpmodel.privacy.accounting import Spend
from dpmodel.regressions.descent import NOISY_DESCENT, NoisyDescent
from dpmodel.regressions.noisy_gradient import Settings, StepNoise, descend, descent_metric, private_gradient
from dpmodel.regressions.penalties import Penalty
from dpmodel.regressions.rows import Rows
from dpmodel.regressions.sets import Box, L2Ball

OPTIONS = Options(1.0, 1e-6)


# ---------------------------------------------------------------------- sensitivity
def test_metric_transposes_and_inverts() -> None:
    rng = np.random.default_rng(0)
    for name in CASES:
        model = model_of(name)
        metric = descent_metric(model)
        g, v = rng.standard_normal(model.size), rng.standard_normal(model.size)
        assert metric.sums(g) @ v == pytest.approx(g @ metric.coefficients(v))
        assert np.allclose(metric.coordinates(metric.coefficients(v)), v)
        rows = model.read_rows().blocks[0][0]
        for a in rows[:10]:
            full = np.concatenate([a, np.ones(model.size - a.size)])
            moved = metric.sums(full)
            assert np.linalg.norm(moved) <= metric.row.norm(2) * (1 + 1e-12)
    assert descent_metric(model_of("columns, intercept")).exchange == 3
    assert descent_metric(model_of("absent")).exchange is None  # an absent row is no centred row


# ---------------------------------------------------------------------- composition
def _last(noise: StepNoise, settings: Settings, rows: Rows, source: Replay) -> np.ndarray:
    return descend(noise.model, noise.metric, settings, private_gradient(noise, rows, source))["last"]


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_random_neighbours_cost_all_of_the_budget_and_no_more(delta: float) -> None:
    generator, worst = np.random.default_rng(0), 0.0
    spend, order = Spend.of(1.0, delta, gaussian_only=True), 1.0 if delta == 0 else 2.0
    for number in range(150):
        model, rows, others = random_pair(generator, str(generator.choice(["free", "l1", "product"])))
        share = 0.4 if 0 < model.loss.middle_bound(model.row.label_bound) < math.inf and number % 2 else 0.0
        noise = StepNoise(model, descent_metric(model), spend, 4, share)
        settings = Settings(4, float(10.0 ** generator.uniform(-4, 2)), 0.3, share, "last")
        moved = moves(*replayed(partial(_last, noise, settings), rows, others, number), order)
        cost = moved.sum() if delta == 0 else math.hypot(*moved) / gaussian_mu(1.0, delta)
        worst = max(worst, float(cost))
    assert 0.99 < worst <= 1 + 1e-12  # the worst neighbours cost all of it, and no more


# ---------------------------------------------------------------------- settings, forecasts
def test_units_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.uniform(0, 1, (400, 3)), rng.choice([-1.0, 1.0], 400)
    scale, shift = np.array([100.0, 1.0, 1e-3]), np.array([7.0, 0.0, -3.0])
    plain = regression(X, y, "logistic", lower=0.0, upper=1.0, intercept=True)
    moved = regression(X * scale + shift, y, "logistic", lower=shift, upper=scale + shift, intercept=True)
    options = Options(5.0, 1e-6)
    mechanism = NoisyDescent(steps=20)
    one = mechanism.plan(plain, options)  # for both, so that the same noise must give the same answer
    monkeypatch.setattr(NoisyDescent, "plan", lambda self, model, options: one)
    a, b = (mechanism.run(model, options, seeded(3)).x for model in (plain, moved))
    assert a is not None and b is not None
    assert np.allclose(plain.read_rows().predict(a), moved.read_rows().predict(b), rtol=1e-6, atol=1e-6)


# ---------------------------------------------------------------------- utility
def _logistic(n: int, p: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    X = rng.choice([-1.0, 1.0], (n, p)) / math.sqrt(p)
    v = 2 * rng.choice([-1.0, 1.0], p)
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-X @ v)), 1.0, -1.0)
    return regression(X, y, "logistic", l2=1.0)


def _best(model: Any) -> float:
    return float(minimize(lambda w: objective(model, w), np.zeros(model.size), method="BFGS").fun)


def test_it_learns_about_as_well_as_forecast() -> None:
    model = _logistic(20_000, 8, 0)
    forecast = NOISY_DESCENT.forecast(model, OPTIONS)
    best = _best(model)
    excess = [objective(model, NOISY_DESCENT.run(model, OPTIONS, seeded(k)).x) - best for k in range(5)]
    nothing = objective(model, np.zeros(8)) - best
    assert np.mean(excess) < 0.15 * nothing
    assert np.mean(excess) < 5 * max(forecast.error.predicted, 0.002)
    assert not forecast.vacuous


def test_steps_come_to_rest_where_half_of_the_labels_are_alike() -> None:
    """Labels of 8,000 records, half of them 3.3 of a range from 0 to 8.3: with the longest steps the loss is 1.2 times
    that of their median."""
    rng, n = np.random.default_rng(0), 8000
    groups = [rng.integers(0, k, n) for k in (2, 6, 9)]
    X = np.hstack([np.eye(int(group.max()) + 1)[group] for group in groups])
    y = np.where(rng.random(n) < 0.5, 3.3, np.clip(3.1 + rng.standard_normal(n) + groups[0] / 2, 0.0, 8.3))
    model = regression(X, y, "absolute", label=(0.0, 8.3), l2=math.sqrt(3), intercept=True)
    found = NOISY_DESCENT.run(model, Options(3.0, 1e-6), seeded(0)).x
    assert found is not None
    assert objective(model, found) < 1.04 * np.abs(y - 3.3).mean()


def test_the_theorem_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not the public point keeps the bound too; in so many columns that the noise is Gaussian."""
    monkeypatch.setattr("dpmodel.regressions.excess.public_excess", lambda model: np.inf)
    monkeypatch.setattr("dpmodel.regressions.excess.capped", lambda forecast, known: forecast)
    model = _logistic(3000, 20, 1)
    model = replace(model, domain=L2Ball(20, 3.0), _memo={})
    mechanism = NoisyDescent(steps=20, momentum=False, averaging="all")
    options = Options(1.0, 1e-6, beta=0.1)
    forecast = mechanism.forecast(model, options)
    assert forecast.proved and "at most" in forecast.statement
    best = _best(model)  # the free minimum is no larger than that of the ball
    runs = 40
    late = sum(
        objective(model, mechanism.run(model, options, seeded(k)).x) - best > forecast.error.alpha for k in range(runs)
    )
    assert late <= binom.isf(1e-7, runs, 0.1)
    assert not NoisyDescent(steps=20).forecast(model, options).proved


def test_constraints_and_penalties_hold() -> None:
    model = _logistic(2000, 5, 3)
    boxed = replace(model, domain=Box(np.zeros(5), np.full(5, 0.5)), _memo={})
    x = NoisyDescent(steps=8).run(boxed, OPTIONS, seeded(0)).x
    assert x is not None and (x >= 0).all() and (x <= 0.5).all()
    sparse = replace(model, penalty=replace(model.penalty, l1=np.full(5, 10.0)), _memo={})
    x = NoisyDescent(steps=32, averaging="last").run(sparse, Options(50.0, 1e-6), seeded(0)).x
    assert x is not None and np.abs(x).max() < 1e-6  # a large l1 penalty shrinks all coefficients to 0


def test_noise_that_drives_coefficients_away_stays_finite() -> None:
    model = regression(np.full((20, 3), 0.5), np.ones(20), "squared", l2=1.0)
    for share in (0.0, 0.5):
        noise = StepNoise(model, descent_metric(model), Spend.of(0.01, 1e-6, gaussian_only=True), 128, share)
        gradient = private_gradient(noise, model.read_rows(), seeded(0))
        points = descend(model, noise.metric, Settings(128, 0.5, 0.97, share, "last"), gradient)
        assert all(np.isfinite(w).all() for w in points.values())


@pytest.mark.parametrize("steps", [5, 6, 7, 9])
def test_a_descent_that_diverges_tells_nothing_of_zeros(steps: int) -> None:
    """A public penalty throws points to infinity, where 0 times infinity would be an error for some rows only."""
    generator = np.random.default_rng(0)
    X, y = generator.choice([-1.0, 1.0], (40, 1)), generator.choice([-1.0, 1.0], 40)
    zero = X.copy()
    zero[3] = 0.0
    none = np.zeros(1)
    steep = Penalty(none, none, none, other=lambda w: 1e6 * float((w**4).sum()), other_derivative=lambda w: 4e6 * w**3)
    model = replace(regression(X, y, "logistic", lower=-1, upper=1), penalty=steep)
    spend = Spend.of(1.0, 1e-6, gaussian_only=True)
    noise = StepNoise(model, descent_metric(model), spend, steps, 0.0)
    found = []
    for matrix in (X, zero):
        rows = Rows(((matrix, 0),), y, 1)
        with np.errstate(all="raise", under="ignore"):
            told = private_gradient(noise, rows, Replay(1))

            def gradient(w: np.ndarray, told: Any = told) -> np.ndarray:
                assert np.isfinite(w).all()
                out: np.ndarray = told(w)
                return out

            found.append(descend(model, noise.metric, Settings(steps, 1.0, 0.0, 0.0, "last"), gradient)["last"])
    assert all(np.isfinite(w).all() for w in found)
