"""What is said of the value of shares: of the best answers alone, by an inequality that holds as often as stated."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from models_of_shares import appointments, charging, marked, timetables
from scipy.stats import binom

import dpmodel as dpm
from dpmodel.contract import Options
from dpmodel.joint.bounds import value_lost
from dpmodel.joint.descent import Path
from dpmodel.joint.model import JointModel
from dpmodel.joint.noisy_prices import NoisyPrices
from dpmodel.privacy import noise_source

pytestmark = pytest.mark.filterwarnings("ignore::dpmodel.errors.NotPrivateWarning")
OPTIONS = Options(1.0, 1e-6, beta=0.1, release="joint", feasibility="auto")


def lost(problem: Any, limit: float) -> tuple[float, str]:
    model = JointModel.of(problem)
    found = NoisyPrices(largest_use=limit, steps=5).run(model, OPTIONS, noise_source(0))
    return found.lost, found.statement


def test_value_is_spoken_of_where_answers_are_the_best_inside() -> None:
    """A bundle, and whoever has several limits, is moved towards 0 into the ball: not the best answer there."""
    assert np.isfinite(lost(marked(charging(40, 6))[0], 0.5)[0])  # exact in the ball
    for model in (timetables(40), appointments(40, boolean=True)):
        value, text = lost(marked(model)[0], 0.5)
        assert np.isnan(value) and "worth" not in text
    bundles = marked(timetables(40))[0]
    value, text = lost(bundles, JointModel.of(bundles).largest_use)  # the ball keeps nothing out
    assert np.isfinite(value) and "worth" in text


def test_no_part_of_a_value_is_promised_where_entries_work_together() -> None:
    people = dpm.Records("people")
    wish = dpm.Private(np.ones((40, 2)), unit="row", records=people, name="wish", bounds=[0, 1])
    x = dpm.Shares((40, 2), records=people, bounds=[0, 1], name="x")
    value = cp.sum(cp.multiply(wish, x)) - 2 * cp.sum(cp.abs(x[:, 0] - x[:, 1]))
    value, text = lost(dpm.Problem(cp.Maximize(value), [cp.sum(x, axis=0) <= np.array([1.0, 20.0])]), 2.0)
    assert np.isnan(value) and "worth" not in text


def misses(beta: float, factor: float) -> int:
    """Of 600 paths those that lose more than the bound, with ``factor`` times the noise that the bound is told. Each
    stops, with prices of 0, at the worst moment for the bound; nobody asks for anything, so all capacity is lost."""
    steps, noise, capacity, found = 30, 2.0, np.array([100.0]), 0
    weights = 2 * np.arange(1, steps + 1) / (steps * (steps + 1))
    for seed in range(600):
        rng = np.random.default_rng(seed)
        prices, demand, total = np.ones((steps, 1)), np.zeros((steps, 1)), 0.0
        for t in range(steps):
            if t:
                prices[t] = 0.0 if total > 2.5 * factor else 1.0 + t % 3
            demand[t] = factor * noise / np.sqrt(weights[t]) * rng.standard_normal()
            total += float(weights[t] * prices[t] @ demand[t])
        bound = value_lost(Path(prices, demand, weights, noise), capacity, beta)
        found += bound < float(weights @ (prices * capacity).sum(axis=1))
    return found


@pytest.mark.parametrize("beta", [0.3, 0.05])
def test_noise_exceeds_what_is_allowed_for_as_rarely_as_stated(beta: float) -> None:
    most = binom.isf(1e-6, 600, beta)
    assert misses(beta, 1.0) <= most < misses(beta, 8.0)
