"""Algorithm 10 as published: its constants, what it spends, and that it runs where they are made small."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dpmodel._types import Floats
from dpmodel.mechanisms.contract import Request
from dpmodel.mechanisms.linalg.synthetic import instance
from dpmodel.mechanisms.linalg.systems import PrivateInequalities
from dpmodel.mechanisms.published.algorithm_10 import (
    ALGORITHM_10,
    MOST_ROUNDS,
    PUBLISHED,
    Algorithm10,
    Constants,
    schedule,
)
from dpmodel.privacy import Cost, SeededSource, compose

ONE = Request(1.0, 1e-6)
SMALL = Constants(flat=5.0, steps=100.0, growth=0.5, luck=0.1, thresholds=1e-4)


def model_of(rows: Floats, margin: float | None, homogeneous: bool = True, public: int = 0) -> PrivateInequalities:
    """Of ``rows y >= 0``."""
    n, size = rows.shape
    variables = size if homogeneous else size - 1
    A, b = (-rows, np.zeros(n)) if homogeneous else (-rows[:, 1:], rows[:, 0])
    return PrivateInequalities(
        variables, homogeneous, -np.eye(variables)[:public], np.zeros(public), margin, None, "add-remove", None,
        max(n, 1), lambda: (A, b),
    )  # fmt: skip


def planted(size: int, margin: float, count: int, seed: int, homogeneous: bool = True) -> PrivateInequalities:
    rows = instance(model_of(np.zeros((0, size)), margin, homogeneous), seed, count, "margin")
    return model_of(rows, margin, homogeneous)


class Captured(SeededSource):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.laplaces: list[float] = []
        self.gaussians = 0

    def laplace(self, values: Any, scale: float) -> Floats:
        self.laplaces.append(scale)
        return super().laplace(values, scale)

    def gaussian(self, values: Any, scale: float) -> Floats:
        self.gaussians += 1
        return super().gaussian(values, scale)


# ---------------------------------------------------------------------- the published constants
@pytest.mark.parametrize("size", [1, 2, 10])
def test_constants_of_the_proofs(size: int) -> None:
    plan = schedule(size, 1e-9, ONE, PUBLISHED)
    assert plan.flat == pytest.approx(1 / (500 * size))
    assert plan.inner == math.ceil(8 * (500 * size) ** 2 * math.log(3 * math.sqrt(size)))
    assert plan.steps == 9_000_000 * size**2
    assert plan.rescalings >= 1000 * size * math.log(1 / (500 * size * 1e-9))
    assert plan.rounds == plan.rescalings * (plan.tries * plan.inner + plan.steps)
    assert (7 / 8 + 1 / 256) ** plan.tries <= 1 / 256


@pytest.mark.parametrize("size", [2, 8])
def test_thresholds_give_the_noise_that_the_proofs_need(size: int) -> None:
    """Where m >= threshold / 2, sigma keeps the inequalities of Lemmas 30 and 31."""
    plan = schedule(size, 1e-4, ONE, PUBLISHED)
    log = math.log(plan.rounds / ONE.beta)  # a smaller logarithm than the plan's
    least = plan.done / 2 - 2 / plan.epsilon * (log + math.log(2 / plan.delta))
    sigma = 4 / (plan.epsilon * least) * math.sqrt(2 * math.log(8 / plan.delta))
    assert sigma * math.sqrt(2 * log) <= 1 / (12_000 * size)
    assert sigma**2 * (size + 2 * math.sqrt(size * log) + 2 * log) <= 1 / 4
    least = plan.few / 2 - 2 / plan.epsilon * (log + math.log(2 / plan.delta))
    sigma = 4 / (plan.epsilon * least) * math.sqrt(2 * math.log(8 / plan.delta))
    assert sigma <= plan.flat / (2 * math.sqrt(2 * log))
    assert sigma <= 1 / (2 * plan.inner * math.sqrt(8 * size * log))
    assert 2 * sigma * math.sqrt(2 * log) + 5 * size * sigma**2 * log < 1 / 2
    # Doubling sigma breaks one of them: the thresholds are not idle.
    assert 2.5 * sigma > 1 / (2 * plan.inner * math.sqrt(8 * size * log))


def test_refused_with_the_number_of_rounds() -> None:
    verdict = ALGORITHM_10.eligible(planted(2, 0.3, 10, 0), ONE)
    assert not verdict.eligible and "rounds" in verdict.reason and "e+08" in verdict.reason
    forecast = ALGORITHM_10.forecast(planted(2, 0.3, 10, 0), ONE)
    assert forecast.vacuous and forecast.error.needed > 1e12 and forecast.error.missed == forecast.error.needed


@pytest.mark.parametrize(
    ("model", "request_", "word"),
    [
        (model_of(np.ones((2, 2)), None), ONE, "margin"),
        (model_of(np.ones((2, 2)), 2.0), ONE, "margin"),
        (model_of(np.ones((2, 2)), 0.5), Request(1.0, 0.0), "delta"),
        (model_of(np.ones((2, 2)), 0.5, public=1), ONE, "public constraints"),
    ],
)
def test_refusals(model: PrivateInequalities, request_: Request, word: str) -> None:
    verdict = Algorithm10(constants=SMALL).eligible(model, request_)
    assert not verdict.eligible and word in verdict.reason


# ---------------------------------------------------------------------- what is spent
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-8), (1.0, 1e-6), (20.0, 1e-4)])
def test_rounds_add_up_to_the_budget(epsilon: float, delta: float) -> None:
    plan = schedule(2, 0.3, Request(epsilon, delta), SMALL)
    assert plan.rounds <= MOST_ROUNDS
    costs = [Cost.pure(plan.epsilon)] * plan.rounds + [Cost.approximate(plan.epsilon, plan.delta)] * plan.rounds
    assert compose(costs, delta).epsilon <= epsilon * (1 + 1e-9)
    # The twin that forgets the counts, as Theorem 8 does, is over the budget.
    twin = math.sqrt(2) * plan.epsilon
    costs = [Cost.pure(twin)] * plan.rounds + [Cost.approximate(twin, plan.delta)] * plan.rounds
    assert compose(costs, delta).epsilon > epsilon or plan.epsilon == 2.0


def test_run_asks_for_the_planned_noise() -> None:
    request, mechanism = Request(50.0, 1e-4), Algorithm10(constants=SMALL)
    plan, source = schedule(3, 0.1, request, SMALL), Captured(1)
    mechanism.run(planted(3, 0.1, 2000, 0), request, source)
    assert set(source.laplaces) <= {1 / plan.epsilon, 2 / plan.epsilon}
    assert len(source.laplaces) <= 2 * plan.rounds
    assert source.gaussians <= plan.rounds + plan.tries * plan.rescalings  # random starts draw, too


# ---------------------------------------------------------------------- what is found
@pytest.mark.parametrize("homogeneous", [True, False])
def test_runs_where_the_constants_are_small(homogeneous: bool) -> None:
    request, mechanism = Request(1000.0, 1e-4), Algorithm10(constants=SMALL)
    found_any = 0
    for seed in range(6):
        model = planted(2, 0.3, 3000, seed, homogeneous)
        assert mechanism.eligible(model, request).eligible
        found = mechanism.run(model, request, SeededSource(seed))
        if found.status == "found":
            A, b = model.read_rows()
            found_any += np.count_nonzero(A @ found.answer > b) <= 300
    assert found_any >= (6 if homogeneous else 3)


def test_rescaling_reaches_small_margins() -> None:
    """With little noise and tiny thresholds the whole loop, rescalings included, solves narrow systems exactly."""
    constants = Constants(flat=3.0, steps=30.0, growth=6.0, luck=2.0, thresholds=1e-9)
    request, rescalings = Request(1e9, 1e-4), []
    for seed in range(4):
        model = planted(3, 0.02, 20_000, seed)
        found = Algorithm10(constants=constants).run(model, request, SeededSource(seed))
        assert found.status == "found"
        missed = np.count_nonzero(model.lifted(*model.read_rows()) @ found.answer < 0)
        rescalings.append((found.notes, missed))
        assert missed <= 400
    assert any(not notes[0].startswith("0 ") for notes, _ in rescalings), rescalings


def test_no_rows() -> None:
    found = Algorithm10(constants=SMALL).run(model_of(np.zeros((0, 2)), 0.3), Request(1000.0, 1e-4), SeededSource(0))
    assert found.status == "found" and np.isfinite(found.answer).all()


def test_changed_constants_prove_nothing() -> None:
    forecast = Algorithm10(constants=SMALL).forecast(planted(2, 0.3, 100, 0), ONE)
    assert forecast.vacuous and not forecast.proved and forecast.caveats
