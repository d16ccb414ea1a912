"""Noisy mirror descent as published: its range, what one record moves, the shuffled guarantee, the release."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from descents import replayed
from regressions import objective, regression

from dpmodel.as_printed.stochastic_mirror_descent import (
    STOCHASTIC_MIRROR_DESCENT,
    applicable_rows,
    fresh_pattern,
    largest_epsilon,
    plan_descent,
    printed_epsilon,
    record_gradient,
    shuffled_epsilon,
    whole_epsilon,
)
from dpmodel.contract import Options
from dpmodel.privacy import SeededSource, gaussian_delta
from dpmodel.regressions.losses import Loss
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.sets import L2Ball
from dpmodel.regressions.synthetic import each_population

DELTA = 1e-3


def hinge(n: int = 300, p: int = 3, seed: int = 0, **how: Any) -> PrivateRegression:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    X /= np.linalg.norm(X, axis=1)[:, None]
    return regression(X, np.sign(X[:, 0]), "hinge", **({"l2": 1.0, "domain": L2Ball(p, 2.0)} | how))


# ---------------------------------------------------------------------- the range
def test_numbers_of_the_paper() -> None:
    """The printed epsilon at its largest step, and that epsilon = 1 is out of reach (notes on AMU20)."""
    assert printed_epsilon(0.5, 10_000, 1e-6) == pytest.approx(0.114, abs=5e-4)
    assert printed_epsilon(0.5, 1_000_000, 1e-6) == pytest.approx(0.0114, abs=5e-5)
    reach = largest_epsilon(10_000, 2e-6)
    assert reach is not None and reach == pytest.approx(0.114, abs=5e-4)
    assert largest_epsilon(100, 1e-6) is None
    assert applicable_rows(1.0, 1e-6) == 0


def test_refuses_what_the_theorem_does_not_cover() -> None:
    model = hinge(10_000)
    verdict = STOCHASTIC_MIRROR_DESCENT.eligible(model, Options(1.0, 2e-6))
    assert not verdict.eligible
    assert "epsilon <= 1/(2 sqrt n)" in verdict.reason and "0.114" in verdict.reason
    assert STOCHASTIC_MIRROR_DESCENT.eligible(model, Options(0.114, 2e-6)).eligible
    rows = applicable_rows(0.3, 2e-6)
    assert f"at most {rows} rows" in STOCHASTIC_MIRROR_DESCENT.eligible(model, Options(0.3, 2e-6)).reason
    assert STOCHASTIC_MIRROR_DESCENT.eligible(hinge(rows), Options(0.3, 2e-6)).eligible
    assert not STOCHASTIC_MIRROR_DESCENT.eligible(hinge(rows + 1), Options(0.3, 2e-6)).eligible


# ---------------------------------------------------------------------- one record
@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["hinge", "absolute", "quantile", "logistic", "squared"])
def test_one_record_moves_one_step(loss: str, intercept: bool, absent: bool) -> None:
    rng = np.random.default_rng(3)
    p = 3 + intercept
    moved = 0.0
    for _ in range(150):
        X = rng.normal(size=(2, 3))
        X /= np.linalg.norm(X, axis=1)[:, None]
        X[1] = -X[0] if rng.random() < 0.3 else X[1]
        y = np.array([1.0, -1.0]) if loss in ("hinge", "logistic") else rng.uniform(-1, 1, 2)
        if absent:
            X[1], y[1] = 0.0, 0.0
        how = {"l2": 1.0, "intercept": intercept, "absent": absent, "domain": L2Ball(p, 2.0)}
        model = regression(X, y, Loss(loss, 0.3), **how)  # type: ignore[arg-type]
        rows, w = model.read_rows(), model.domain.project(rng.normal(size=p) * 3)
        sensitivity = np.linalg.norm(record_gradient(model, rows, 0, w) - record_gradient(model, rows, 1, w))
        limit = model.row.sensitivity(model.derivative_bound, 2.0) * (1 + 1e-9)
        assert sensitivity <= limit
        moved = max(moved, float(sensitivity) / limit)
    assert moved > 0.45


def test_transcripts_of_neighbours() -> None:
    """Given the same releases, only the step that reads the record differs, and each record is read once at most."""
    model = hinge(500, absent=False)
    options = Options(0.3, DELTA)
    plan = plan_descent(model, options.epsilon, options.delta)
    seen = 0
    for record in range(6):
        rows = model.read_rows()
        X = np.array(rows.blocks[0][0])
        X[record] = -X[record]
        other = replace(model, read=lambda X=X, rows=rows: replace(rows, blocks=((X, 0),)))
        first, second = replayed(lambda m, s: STOCHASTIC_MIRROR_DESCENT.run(m, options, s).x, model, other, 7)
        assert set(first.scales[2:]) == {plan.sigma}
        differ = [
            k for k, (a, b) in enumerate(zip(first.values, second.values, strict=True)) if not np.array_equal(a, b)
        ]
        assert len(differ) <= 1
        for k in differ:
            seen += 1
            assert np.linalg.norm(first.values[k] - second.values[k]) <= model.row.sensitivity(
                model.derivative_bound, 2.0
            )
    assert seen >= 1


@pytest.mark.parametrize(("n", "epsilon", "delta"), [(500, 0.3, 1e-3), (10_000, 0.1, 1e-6), (10_000, 0.01, 1e-6)])
def test_noise_keeps_both_theorems(n: int, epsilon: float, delta: float) -> None:
    model = hinge(n)
    plan = plan_descent(model, epsilon, delta)
    e0, d0 = plan.step_epsilon, plan.step_delta
    assert e0 <= 0.5
    assert max(shuffled_epsilon(e0, n, delta / 2), printed_epsilon(e0, n, delta / 2)) <= epsilon * (1 + 1e-9)
    assert plan.sigma >= 8 * math.sqrt(math.log(1 / d0)) / e0  # as printed, L = 1
    assert gaussian_delta(2.0 / plan.sigma, e0) <= d0
    assert delta / 2 + (math.exp(epsilon) + 1) * (1 + math.exp(-e0) / 2) * n * d0 <= delta * (1 + 1e-9)
    # A twin with a quarter of the noise would not: the printed constant has that much room and no more.
    assert gaussian_delta(8.0 / plan.sigma, e0) > d0
    diameter = 4.0
    assert plan.rate == pytest.approx(diameter / (math.sqrt(n) * (1 + plan.sigma * math.sqrt(3))))


def test_shuffled_epsilon_is_the_published_formula() -> None:
    n, delta, e0 = 10_000, 5e-7, 0.5
    inside = 8 * math.sqrt(math.exp(e0) * math.log(4 / delta)) / math.sqrt(n) + 8 * math.exp(e0) / n
    assert shuffled_epsilon(e0, n, delta) == pytest.approx(
        math.log(1 + (math.exp(e0) - 1) / (math.exp(e0) + 1) * inside), rel=1e-12
    )
    assert math.isinf(shuffled_epsilon(4.0, n, delta))  # beyond ln(n / (16 ln(2/delta)))
    assert whole_epsilon(0.2, n, 1e-6) < whole_epsilon(0.4, n, 1e-6)


def test_pattern_of_fresh_steps() -> None:
    """Half of the records, in about n ln 2 steps, and no data in it."""
    n = 2000
    plan = plan_descent(hinge(n), 0.05, DELTA)
    lengths = []
    for seed in range(20):
        pattern = fresh_pattern(n, plan, SeededSource(seed))
        assert pattern.sum() == n // 2 and pattern[0] and pattern.size <= 2 * n
        lengths.append(pattern.size)
    # Variance of the number of draws: sum (k/n) / (1 - k/n)^2 = about 0.307 n; 20 runs, six standard deviations.
    assert abs(np.mean(lengths) - n * math.log(2)) < 6 * math.sqrt(0.307 * n / 20)


# ---------------------------------------------------------------------- forecast
@pytest.mark.slow
def test_forecast_against_measured() -> None:
    """On data drawn as the forecast draws them, within a factor of 3."""
    rng = np.random.default_rng(0)
    n, options = 10_000, Options(0.1, 1e-6)
    shape = regression(np.zeros((n, 2)), np.zeros(n), "hinge", lower=-0.7, upper=0.7, domain=L2Ball(2, 3.0))
    forecast = STOCHASTIC_MIRROR_DESCENT.forecast(shape, options)
    assert not forecast.proved and "Theorem 4" in forecast.caveats[0]
    excess = []
    for k, risk in enumerate(each_population(shape)):
        X = risk.mean + (rng.random((n, 2)) - 0.5) * np.sqrt(12 * risk.variance)
        y = np.where(rng.random(n) < 1 / (1 + np.exp(-X @ risk.truth[0])), 1.0, -1.0)
        model = regression(X, y, "hinge", lower=-0.7, upper=0.7, domain=L2Ball(2, 3.0))
        for j in range(2):
            x = STOCHASTIC_MIRROR_DESCENT.run(model, options, SeededSource(10 * k + j)).x
            assert x is not None
            excess.append(objective(model, x) - objective(model, risk.truth[0]))
    assert forecast.error.predicted / 3 <= np.mean(excess) <= 3 * forecast.error.predicted


def test_sparse_rows_and_offsets() -> None:
    dense = hinge(60)
    rows = dense.read_rows()
    offset = np.linspace(-1, 1, 60)
    sparse = replace(rows, blocks=((sp.csr_array(rows.blocks[0][0]), 0),), offset=offset)
    w = np.array([0.3, -0.2, 0.1])
    for i in (0, 7, 59):
        each = record_gradient(dense, sparse, i, w)
        a = rows.blocks[0][0][i]
        expected = dense.loss.derivative(np.array([a @ w + offset[i]]), rows.labels[i : i + 1])[0] * a
        assert np.allclose(each, expected)
