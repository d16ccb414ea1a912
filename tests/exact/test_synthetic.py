"""Synthetic systems keep what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from auditing import kolmogorov_distance, kolmogorov_limit
from inequalities import system
from scipy.special import betainc

from dpmodel.contract import Options
from dpmodel.exact.cones import KINDS, forecast_missed, least_seen, synthetic


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 2, 5, 300])
@pytest.mark.parametrize("margin", [0.01, 0.3, 1.0])
def test_unit_rows_with_the_margin_in_the_cone(kind: str, size: int, margin: float) -> None:
    model = system(np.zeros((0, size)), margin, public=-np.eye(size))
    rows, z = synthetic(model, 3, 400, kind)  # type: ignore[arg-type]
    assert rows.shape == (400, size)
    assert np.abs(np.linalg.norm(rows, axis=1) - 1).max() < 1e-9
    assert (rows @ z).min() >= margin - 1e-9
    assert z.min() >= 0
    assert np.linalg.norm(z) == pytest.approx(1)


@pytest.mark.parametrize("size", [2, 3, 20])
def test_heights_have_the_conditional_law(size: int) -> None:
    """P(t <= x) for a uniform unit vector given t >= margin, by the Beta distribution of t^2."""
    margin, count = 0.2, 20_000
    rows, z = synthetic(system(np.zeros((0, size)), margin), 7, count, "uniform")

    def cdf(t: np.ndarray) -> np.ndarray:
        tail = betainc((size - 1) / 2, 0.5, 1 - np.clip(t, margin, 1) ** 2)
        return 1 - tail / betainc((size - 1) / 2, 0.5, 1 - margin**2)

    assert kolmogorov_distance(rows @ z, cdf) <= kolmogorov_limit(count, 1e-7)
    assert kolmogorov_distance(rows @ z + 0.02, cdf) > kolmogorov_limit(count, 1e-7)


def test_forecasts_scale_the_rows_and_are_remembered() -> None:
    model, calls = system(np.zeros((0, 4)), 0.1, expected=10_000_000), []

    def run(rows: np.ndarray, weight: float, seed: int) -> np.ndarray:
        calls.append(len(rows) * weight)
        return np.zeros(4) if seed % 2 else synthetic(model, seed, 1)[1]

    median, high = forecast_missed(model, Options(1.0, 1e-6), "x", run, steps=1000)
    assert (median, round(high / 1e6)) == (0.0, 10)
    assert calls == pytest.approx([1e7] * len(calls))
    number = len(calls)
    assert forecast_missed(model, Options(1.0, 1e-6), "x", run, steps=1000) == (median, high)
    assert len(calls) == number


@pytest.mark.parametrize("expected", [100, 5_000, 1_000_000])
def test_no_run_is_seen_to_miss_less(expected: int) -> None:
    """A mechanism that knows the planted vector, which misses nothing, is seen to miss exactly that. It is the same for
    every kind of instance."""
    model = system(np.zeros((0, 4)), 0.1, expected=expected)
    knows = lambda rows, weight, seed: synthetic(model, seed, 1)[1]  # noqa: E731
    about = {"steps": 40_000, "seeds": 3}
    least = least_seen(model, **about)
    assert forecast_missed(model, Options(1.0, 1e-6), "knows", knows, **about) == (0.0, least)
    assert (least > 0) == (expected > 277)  # rows that work allows: 4e8 / (3 seeds, 3 kinds, steps, 4 columns)


@pytest.mark.parametrize("beta", [0.05, 0.3])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.06, 0.3, 0.5, 1.0])
def test_runs_that_cannot_say_anything_any_more_are_not_made(share: float, beta: float) -> None:
    """With runs that miss everything ever so often: the same verdict as of all runs, the same numbers where it says
    something, and a few runs where all of them miss everything."""
    options = Options(1.0, 1e-6, beta=beta)

    def run(rows: np.ndarray, weight: float, seed: int) -> np.ndarray:
        calls.append(seed)
        fails = np.random.default_rng(seed).uniform() < share
        return np.zeros(4) if fails else synthetic(model, seed, 1)[1]

    found = {}
    for nothing in (np.inf, 50.0):
        model, calls = system(np.zeros((0, 4)), 0.1, expected=100), []
        found[nothing] = (*forecast_missed(model, options, "x", run, seeds=60, nothing=nothing), len(calls))
    (median, high, runs), (cut_median, cut_high, cut_runs) = found[np.inf], found[50.0]
    assert (cut_high >= 50) == (high >= 50) and runs == 60 * len(KINDS)
    if high < 50:
        assert (cut_median, cut_high, cut_runs) == (median, high, runs)
    assert cut_runs <= (60 if high >= 50 else runs)
    assert share < 1 or cut_runs == 60 - np.ceil((1 - beta) * 59)
