"""Synthetic systems keep what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from auditing import kolmogorov_distance, kolmogorov_limit
from inequalities import system
from scipy.special import betainc

from dpmodel.contract import Options
from dpmodel.exact.cones import KINDS, forecast_missed, synthetic


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
