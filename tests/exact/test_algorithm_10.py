"""Algorithms 9 and 10 as published: the noisy average, the constants, what is drawn, and that small ones run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from inequalities import asked, missed, planted_system, system
from replaying import Transcript

from dpmodel._types import Floats
from dpmodel.as_printed.algorithm_10 import (
    ALGORITHM_10,
    AS_PRINTED,
    Algorithm10,
    Constants,
    noisy_average,
    schedule,
)
from dpmodel.contract import Options
from dpmodel.exact.cones import GridRows
from dpmodel.kernels.direct_measurement import ROUNDING
from dpmodel.privacy import SeededSource

ONE = Options(1.0, 1e-6)
SMALL = Algorithm10(constants=Constants(flat=5.0, steps=100.0, growth=0.5, luck=0.1, thresholds=1e-4))


# ---------------------------------------------------------------------- the noisy average
class Shifted(Transcript):
    """Answers Laplace requests with a fixed shift."""

    def __init__(self, shift: float) -> None:
        super().__init__(0)
        self.shift = shift

    def laplace(self, values: Any, scale: float) -> Floats:
        super().laplace(values, scale)
        return np.asarray(values) + self.shift


def average(rows: Floats, source: Any, epsilon: float = 1.0, delta: float = 1e-3) -> Floats | None:
    return noisy_average(GridRows.of(rows), np.ones(len(rows), dtype=bool), epsilon, delta, source)


def test_scales_are_those_of_the_paper() -> None:
    epsilon, delta, source = 0.7, 1e-4, Shifted(3.0)
    assert average(np.tile([[0.6, 0.8]], (100, 1)), source, epsilon, delta) is not None
    number, mean = source.draws
    assert number.values[0] == 100 and number.arguments == (2 / epsilon,)
    assert np.allclose(mean.values[0], [0.6, 0.8], atol=1e-7)
    printed = 4 / (epsilon * (103 - 2 / epsilon * math.log(2 / delta))) * math.sqrt(2 * math.log(8 / delta))
    assert printed <= mean.arguments[0] <= printed * (1 + 2 * ROUNDING)


@pytest.mark.parametrize("swap", [False, True])
def test_one_record_moves_the_average_by_two_over_the_larger_number(swap: bool) -> None:
    rng, largest = np.random.default_rng(1), 0.0
    for trial in range(400):
        n, size = int(rng.integers(1, 9)), int(rng.integers(1, 4))
        rows = rng.standard_normal((n, size))
        if trial % 2:
            rows[:-1] = -rows[-1]  # the worst
        rows /= np.linalg.norm(rows, axis=1)[:, None]
        other = np.vstack([rows[:-1], -rows[-1]]) if swap else rows[:-1]
        means = []
        for data in (rows, other):
            source = Shifted(50.0)
            average(data, source)
            means.append(source.draws[1].values[0])
        largest = max(largest, float(np.linalg.norm(means[0] - means[1])) * n / 2)
    assert 0.99 < largest <= 1 + ROUNDING


# ---------------------------------------------------------------------- the published constants
@pytest.mark.parametrize("size", [1, 2, 10])
def test_constants_of_the_proofs(size: int) -> None:
    plan = schedule(size, 1e-9, ONE, AS_PRINTED)
    assert plan.flat == pytest.approx(1 / (500 * size))
    assert plan.inner == math.ceil(8 * (500 * size) ** 2 * math.log(3 * math.sqrt(size)))
    assert plan.steps == 9_000_000 * size**2
    assert plan.rescalings >= 1000 * size * math.log(1 / (500 * size * 1e-9))
    assert plan.rounds == plan.rescalings * (plan.tries * plan.inner + plan.steps)
    assert (7 / 8 + 1 / 256) ** plan.tries <= 1 / 256


@pytest.mark.parametrize("size", [2, 8])
def test_thresholds_give_the_noise_that_the_proofs_need(size: int) -> None:
    """Where m >= threshold / 2, sigma keeps the inequalities of Lemmas 30 and 31."""
    plan = schedule(size, 1e-4, ONE, AS_PRINTED)
    log = math.log(plan.rounds / ONE.beta)  # a smaller logarithm than the plan's

    def sigma_at(threshold: float) -> float:
        least = threshold / 2 - 2 / plan.epsilon * (log + math.log(2 / plan.delta))
        return 4 / (plan.epsilon * least) * math.sqrt(2 * math.log(8 / plan.delta))

    sigma = sigma_at(plan.done)
    assert sigma * math.sqrt(2 * log) <= 1 / (12_000 * size)
    assert sigma**2 * (size + 2 * math.sqrt(size * log) + 2 * log) <= 1 / 4
    sigma = sigma_at(plan.few)
    assert sigma <= plan.flat / (2 * math.sqrt(2 * log))
    assert sigma <= 1 / (2 * plan.inner * math.sqrt(8 * size * log))
    assert 2 * sigma * math.sqrt(2 * log) + 5 * size * sigma**2 * log < 1 / 2
    # Doubling sigma breaks one of them: the thresholds are not idle.
    assert 2.5 * sigma > 1 / (2 * plan.inner * math.sqrt(8 * size * log))


def test_refused_with_the_number_of_rounds() -> None:
    model = system(np.ones((10, 2)), 0.3)
    verdict, forecast = ALGORITHM_10.eligible(model, ONE), ALGORITHM_10.forecast(model, ONE)
    assert not verdict.eligible and "rounds" in verdict.reason and "e+08" in verdict.reason
    assert forecast.vacuous and forecast.error.needed > 1e12 and forecast.error.missed == forecast.error.needed
    changed = SMALL.forecast(model, ONE)
    assert changed.vacuous and not changed.proved and changed.caveats


@pytest.mark.parametrize(
    ("facts", "delta", "word"),
    [
        ({"margin": None}, 1e-6, "margin"),
        ({"margin": 2.0}, 1e-6, "margin"),
        ({"margin": 0.5}, 0.0, "delta"),
        ({"margin": 0.5, "public": -np.eye(2)[:1]}, 1e-6, "public constraints"),
    ],
)
def test_refusals(facts: dict[str, Any], delta: float, word: str) -> None:
    verdict = SMALL.eligible(system(np.ones((2, 2)), **facts), Options(1.0, delta))
    assert not verdict.eligible and word in verdict.reason


# ---------------------------------------------------------------------- what is spent


def test_run_asks_for_the_planned_noise() -> None:
    options = Options(50.0, 1e-4)
    plan = schedule(3, 0.1, options, SMALL.constants)
    draws = asked(SMALL, planted_system(3, 0.1, 2000, "margin", 0), options)
    laplaces = [scale for distribution, scale, _ in draws if distribution == "laplace"]
    assert set(laplaces) <= {1 / plan.epsilon, 2 / plan.epsilon} and len(laplaces) <= 2 * plan.rounds
    # Random starts draw, too.
    assert len(draws) - len(laplaces) <= plan.rounds + plan.tries * plan.rescalings


# ---------------------------------------------------------------------- what is found
@pytest.mark.parametrize("homogeneous", [True, False])
def test_runs_where_the_constants_are_small(homogeneous: bool) -> None:
    options, found_any = Options(1000.0, 1e-4), 0
    for seed in range(6):
        model = planted_system(2, 0.3, 3000, "margin", seed, homogeneous=homogeneous)
        assert SMALL.eligible(model, options).eligible
        found = SMALL.run(model, options, SeededSource(seed))
        found_any += found.status == "found" and missed(model, found.answer) <= 300
    assert found_any >= (6 if homogeneous else 3)
    none = SMALL.run(system(np.zeros((0, 2)), 0.3), options, SeededSource(0))
    assert none.status == "found" and np.isfinite(none.answer).all()
