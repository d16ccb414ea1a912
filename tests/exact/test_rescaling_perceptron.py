"""The rescaling perceptron: sensitivities, what it spends, audits with broken twins, and when it ends."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from auditing import epsilon_lower_bound
from inequalities import asked, missed, planted_system, system
from replaying import Transcript
from scipy.stats import binom

from dpmodel._types import Floats
from dpmodel.contract import Options
from dpmodel.exact.cones import GridRows, grid_direction
from dpmodel.exact.rescaling_perceptron import (
    RESCALING_PERCEPTRON,
    SearchPlan,
    moments_sensitivity,
    plan_search,
    release_sensitivity,
    search,
)
from dpmodel.privacy import Cost, SeededSource, compose

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
    costs = [Cost.gaussian(by_length[draw.values[0].size] / draw.arguments[0]) for draw in source.draws]
    assert len(costs) == plan.rounds + len(plan.marks) + (plan.rescaling is not None)
    assert (plan.rescaling is None) == (margin == 0.5)
    assert 0.999 * epsilon < compose(costs, delta).epsilon <= epsilon * (1 + 1e-9)


def test_run_spends_what_the_plan_says() -> None:
    model = planted_system(4, 0.1, 300, "margin", 0)
    draws, plan = asked(RESCALING_PERCEPTRON, model, ONE), plan_search(model, ONE)
    assert {distribution for distribution, *_ in draws} == {"gaussian"}
    scales = [scale for _, scale, size in draws if size == 5]
    assert np.allclose(scales, plan.sigmas[: len(scales)], rtol=1e-12)
    assert {scale for _, scale, size in draws if size == 1} == {plan.mark_sigma}
    assert draws[0][1] == plan.rescaling


# ---------------------------------------------------------------------- audits
def transcript(rows: Floats, plan: SearchPlan) -> tuple[Floats, Floats]:
    """Exact values and standard deviations of all releases of one run in which every row is violated in every round."""
    source = Transcript(5)
    always = replace(plan, threshold=2.0, slack=2.0, enough=-math.inf)
    search(GridRows.of(rows), always, np.zeros((0, rows.shape[1])), True, source.gaussian)
    values = np.concatenate([draw.values[0] for draw in source.draws])
    return values, np.concatenate([np.full(draw.values[0].size, draw.arguments[0]) for draw in source.draws])


def audited(one: Floats, two: Floats, plan: SearchPlan, delta: float, twin: str = "", runs: int = 40_000) -> float:
    """The epsilon that the log likelihood ratio of whole transcripts proves: a normal of mean +-S^2 / 2 and standard
    deviation S, S^2 the sum of squares of the differences over the noise."""
    (a, scale), (b, again) = transcript(one, plan), transcript(two, plan)
    assert (scale == again).all()
    noise = scale * (0.5 if twin == "noise halved" else 1.0)
    if twin == "count without noise":
        noise[one.shape[1]] = 1e-6  # of the first round
    loss = float(np.linalg.norm((a - b) / noise))
    samples = [
        sign * loss**2 / 2 + loss * np.random.default_rng(seed).standard_normal(runs)
        for sign, seed in ((1, 6), (-1, 7))
    ]
    return epsilon_lower_bound(*samples, delta=delta, confidence=1 - FALSE_ALARM)


AUDIT = Options(2.0, 1e-3)
E1 = np.array([[1.0, 0.0]])


@pytest.mark.parametrize("rescaling", ["always", "never"])
def test_audit_add_remove(rescaling: str) -> None:
    plan = plan_search(system(E1, 0.3), AUDIT, rescaling)
    found = audited(E1, np.zeros((0, 2)), plan, AUDIT.delta)
    assert 0.4 * AUDIT.epsilon < found <= AUDIT.epsilon  # the pair is the worst: so many draws find half of it


@pytest.mark.parametrize("twin", ["noise halved", "count without noise"])
def test_audit_catches_twins(twin: str) -> None:
    plan = plan_search(system(E1, 0.3), AUDIT, "never")
    assert audited(E1, np.zeros((0, 2)), plan, AUDIT.delta, twin) > AUDIT.epsilon


def test_audit_replace_one_and_the_twin_with_the_scale_of_add_remove() -> None:
    honest, broken = (plan_search(system(E1, 0.3, neighbors=n), AUDIT, "never") for n in ("replace-one", "add-remove"))
    assert audited(E1, -E1, honest, AUDIT.delta, runs=800_000) <= AUDIT.epsilon
    assert audited(E1, -E1, broken, AUDIT.delta, runs=800_000) > AUDIT.epsilon


@pytest.mark.parametrize("broken", [False, True])
def test_audit_of_the_number_of_rounds(broken: bool) -> None:
    """Ending on the exact count tells whether a single row is violated."""
    plan = replace(plan_search(system(E1, 0.3), ONE, "never"), slack=2.0, enough=0.5, rounds=4, marks=(1, 4))
    plan = replace(plan, sigmas=plan.sigmas[:4])
    rounds = []
    for rows, seed in ((E1, 8), (np.zeros((0, 2)), 9)):
        source = SeededSource(seed)

        def draw(values: Floats, sigma: float, source: SeededSource = source) -> Floats:
            return values if broken and values.size == 1 else source.gaussian(values, sigma)

        data = GridRows.of(rows)
        rounds.append([search(data, plan, np.zeros((0, 2)), True, draw).rounds for _ in range(600)])
    found = epsilon_lower_bound(*map(np.array, rounds), delta=ONE.delta, confidence=1 - FALSE_ALARM)
    assert (found > ONE.epsilon) == broken


# ---------------------------------------------------------------------- when it ends, and what is forecast
def test_the_search_ends_on_a_released_count() -> None:
    model = planted_system(3, 0.3, 2000, "margin", 0)
    plan = plan_search(model, ONE)
    for enough, rounds in ((math.inf, plan.marks[0]), (-math.inf, plan.rounds)):
        ended = search(grid(model), replace(plan, enough=enough), model.cone, True, SeededSource(0).gaussian)
        assert ended.rounds == rounds
    assert plan.rounds == plan.marks[-1]


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
