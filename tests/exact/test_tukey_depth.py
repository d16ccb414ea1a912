"""tukey-depth: the distribution of the choice and what it promises."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hull_membership import in_hull
from scipy.stats import binom

from dpmodel.contract import Options
from dpmodel.exact.model import PrivatePoints
from dpmodel.exact.tukey_depth import TUKEY_DEPTH, depth_plan, row_epsilon
from dpmodel.privacy import SeededSource

FALSE_ALARM = 1e-7


def model_of(
    points: Any, levels: tuple[int, ...], neighbors: Any = "add-remove", expected: int | None = None
) -> PrivatePoints:
    rows = np.asarray(points, dtype=np.int64).reshape(-1, len(levels))
    records = len(rows) if neighbors == "replace-one" else None
    guess = len(rows) if expected is None else expected
    return PrivatePoints((Fraction(0),) * len(levels), Fraction(1), levels, neighbors, records, guess, lambda: rows)


def answers(model: PrivatePoints, options: Options, runs: int, seed: int) -> np.ndarray:
    source = SeededSource(seed)
    return np.array([[int(v) for v in TUKEY_DEPTH.run(model, options, source).answer] for _ in range(runs)])


# ------------------------------------------------------------------ privacy


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0])
@pytest.mark.parametrize("rate", [1.0, 0.3, 1e-3])
def test_sampling_is_paid_for(epsilon: float, rate: float) -> None:
    """The worst ratios of the class docstring, from its two-valued extreme distributions."""
    t = row_epsilon(epsilon, rate, replace=False)
    assert math.log(1 - rate + rate * math.exp(t)) == pytest.approx(epsilon, rel=1e-9)
    assert -math.log(1 - rate + rate * math.exp(-t)) <= epsilon * (1 + 1e-9)
    t = row_epsilon(epsilon, rate, replace=True)
    ratio = (1 - rate + rate * math.exp(t)) / (1 - rate + rate * math.exp(-t))
    assert math.log(ratio) == pytest.approx(epsilon, rel=1e-9)
    assert epsilon / 2 * (1 - 1e-9) <= t


# ------------------------------------------------------------------ promise
def worst_case(levels: tuple[int, ...], n: int) -> np.ndarray:
    """Points on the corners of a unit cube: only 2^d candidates are in the hull, each of depth n / 2^d."""
    corners = np.stack(np.unravel_index(np.arange(2 ** len(levels)), (2,) * len(levels)), axis=1)
    return corners[np.arange(n) % len(corners)]


@pytest.mark.parametrize("levels", [(101,), (11, 11), (5, 5, 5)])
@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
def test_needed_points_are_enough(levels: tuple[int, ...], neighbors: Any) -> None:
    options = Options(1.0, 0.0, beta=0.2)
    needed = int(TUKEY_DEPTH.forecast(model_of([], levels, neighbors, expected=150), options).error.needed)
    points = worst_case(levels, needed)
    runs = 30
    found = answers(model_of(points, levels, neighbors), options, runs, 3)
    hits = sum(in_hull(points, [Fraction(int(v)) for v in at]) for at in found)
    assert binom.cdf(hits, runs, 1 - options.beta) > FALSE_ALARM


def test_sampled_cube() -> None:
    rng = np.random.default_rng(0)
    points = rng.integers(0, 14, size=(4000, 3))
    model = model_of(points, (14, 14, 14), expected=12_000)
    plan = depth_plan(model, Options(1.0, 0.0))
    assert plan.rate == pytest.approx(200 / 12_000)
    assert plan.needed < 4000
    assert binom.cdf(plan.kept - 1, plan.needed, plan.rate) <= 0.025
    assert binom.cdf(plan.kept - 1, plan.needed - 1, plan.rate) > 0.025
    (at,) = answers(model, Options(1.0, 0.0), 1, 7)
    assert in_hull(points, [Fraction(int(v)) for v in at])


# ------------------------------------------------------------------ public facts
def test_forecast_reads_no_points() -> None:
    def forbidden() -> Any:
        raise AssertionError

    model = PrivatePoints((Fraction(0),) * 2, Fraction(1), (101, 101), "add-remove", None, 40, forbidden)
    forecast = TUKEY_DEPTH.forecast(model, Options(1.0, 1e-6))
    # K = 1 + floor(ln(10201 / .05)) = 13, so 4 * 12 + 1
    assert forecast.error.needed == 49
    assert forecast.vacuous and forecast.proved and forecast.delta == 0
    assert "at least 49 points" in forecast.statement


@pytest.mark.parametrize(
    ("levels", "epsilon", "words"),
    [((3,) * 5, 1.0, "have 5"), ((2000, 2000), 1.0, "4,000,000"), ((50, 50, 50), 0.05, "too slow")],
)
def test_refusals_say_the_number(levels: tuple[int, ...], epsilon: float, words: str) -> None:
    verdict = TUKEY_DEPTH.eligible(model_of([], levels, expected=100), Options(epsilon, 0.0))
    assert not verdict.eligible
    assert words in verdict.reason


def test_a_huge_expected_number_keeps_to_the_rates_that_coins_have() -> None:
    few = model_of(np.zeros((3, 4)), (3,) * 4, expected=6_000_000)
    assert depth_plan(few, Options(1.0, 0.0)).rate == 2.0**-16
    assert TUKEY_DEPTH.run(few, Options(1.0, 0.0), SeededSource(0)).status == "found"
    many = model_of(np.zeros((3, 4)), (20,) * 4, expected=10**9)
    assert "too slow" in TUKEY_DEPTH.eligible(many, Options(1.0, 0.0)).reason
