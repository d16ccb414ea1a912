"""The rescaling perceptron: sensitivities, what it spends, and what is forecast."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from inequalities import missed, planted_system, system
from replaying import Transcript
from scipy.stats import binom

from dpmodel._types import Floats
from dpmodel.contract import Options
from dpmodel.exact.cones import GridRows, grid_direction
from dpmodel.exact.rescaling_perceptron import (
    RESCALING_PERCEPTRON,
    moments_sensitivity,
    plan_search,
    release_sensitivity,
    search,
)
from dpmodel.privacy import SeededSource, gaussian_epsilon

ONE = Options(1.0, 1e-6)
# An honest mechanism fails one of these audits or forecasts with at most this probability.
FALSE_ALARM = 1e-7


def grid(model: Any) -> GridRows:
    return GridRows.of(model.lifted(*model.read_rows()))


# ---------------------------------------------------------------------- sensitivity
def unit_rows(rng: np.random.Generator, n: int, size: int) -> Floats:
    rows = rng.standard_normal((n, size))
    rows[rng.random(n) < 0.1] = 0
    return rows / np.maximum(np.linalg.norm(rows, axis=1), 1e-300)[:, None]


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
def test_one_record_moves_releases_by_no_more_than_planned(neighbors: str) -> None:
    rng, largest, largest_moments = np.random.default_rng(2), 0.0, 0.0
    swap = neighbors == "replace-one"
    for trial in range(200):
        size = int(rng.integers(1, 6))
        plan = plan_search(system(np.zeros((10, size)), 0.05, neighbors=neighbors), ONE)
        rows = unit_rows(rng, int(rng.integers(1, 12)), size)
        # Half of the trials look for the worst: opposite rows, or rows at right angles.
        new = -rows[-1] if trial % 2 else unit_rows(rng, 1, size)[0]
        other = np.vstack([rows[:-1], new]) if swap else rows[:-1]
        sensitivity, y = rng.standard_normal((size, size)), rng.standard_normal(size) * (trial % 3 > 0)
        moved = []
        for data in (rows, other):
            work = GridRows.of(data).rescaled(sensitivity)
            mask = work.below(grid_direction(y), 0.3)
            moved.append(np.append(work.sum(mask), plan.count_weight * work.number(mask)))
        bound = release_sensitivity(swap, plan.count_weight)
        largest = max(largest, float(np.linalg.norm(moved[0] - moved[1])) / bound)
        tops = np.linalg.norm(GridRows.of(rows).second_moments() - GridRows.of(other).second_moments())
        largest_moments = max(largest_moments, float(tops) / moments_sensitivity(swap))
    assert 0.99 < largest <= 1  # and no bound is idle
    assert 0.9 < largest_moments <= 1


# ---------------------------------------------------------------------- what is spent
@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 1e-9), (8.0, 1e-3)])
@pytest.mark.parametrize("margin", [0.5, 0.02])
def test_noise_adds_up_to_the_budget(neighbors: str, epsilon: float, delta: float, margin: float) -> None:
    model = planted_system(6, margin, 400, "uniform", 3, neighbors=neighbors)
    options, source = Options(epsilon, delta), Transcript(4)
    plan = plan_search(model, options)
    search(grid(model), replace(plan, enough=-math.inf), model.cone, True, source.gaussian)
    swap, size = neighbors == "replace-one", 6
    by_length = {
        size * (size + 1) // 2: moments_sensitivity(swap),
        size + 1: release_sensitivity(swap, plan.count_weight),
        1: 1.0,
    }
    mus = [by_length[draw.values[0].size] / draw.arguments[0] for draw in source.draws]
    assert len(mus) == plan.rounds + len(plan.marks) + (plan.rescaling is not None)
    assert (plan.rescaling is None) == (margin == 0.5)
    assert 0.999 * epsilon < gaussian_epsilon(math.hypot(*mus), delta) <= epsilon * (1 + 1e-9)


# ---------------------------------------------------------------------- when it ends, and what is forecast


@pytest.mark.parametrize(("size", "margin", "count", "kind"), [(5, 0.1, 1500, "skewed"), (20, 0.05, 4000, "margin")])
def test_forecast_is_kept(size: int, margin: float, count: int, kind: str) -> None:
    runs, facts = 12, (size, margin, count, kind)
    forecast = RESCALING_PERCEPTRON.forecast(planted_system(*facts, 0), ONE)
    over = 0
    for seed in range(runs):
        model = planted_system(*facts, 100 + seed)
        over += (
            missed(model, RESCALING_PERCEPTRON.run(model, ONE, SeededSource(200 + seed)).answer) > forecast.error.missed
        )
    # Simulations are no proof: what is tested is that twice the promised rate of failures is not exceeded.
    assert binom.sf(over - 1, runs, 2 * ONE.beta) > FALSE_ALARM
    assert not forecast.vacuous and not forecast.proved
