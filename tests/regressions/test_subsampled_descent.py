"""Descent on samples: what a record can add, and what noise it gets."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from descents import Replay, model_of, moves, neighbour, random_pair, replayed, seeded
from regressions import objective, regression

import dpmodel as dpm
from dpmodel.contract import Options
from dpmodel.privacy import subsampled_epsilon, subsampled_multiplier
from dpmodel.privacy.accounting import Spend
from dpmodel.regressions import descent
from dpmodel.regressions.descent import NoisyDescent, SampledNoise, sampled_gradient
from dpmodel.regressions.noisy_gradient import Settings, descend, descent_metric
from dpmodel.regressions.rows import Rows

OPTIONS = Options(1.0, 1e-6)


def _noise(model: Any, rate: float = 0.5, multiplier: float = 3.0) -> SampledNoise:
    return SampledNoise(model, descent_metric(model), Spend(1.0, 1.0), 4, 0.0, rate, multiplier)


def sampled(mechanism: NoisyDescent, model: Any) -> SampledNoise:
    found = mechanism.noise(model, OPTIONS, mechanism.plan(model, OPTIONS)[0])
    assert isinstance(found, SampledNoise)
    return found


@pytest.mark.parametrize("name", ["unit rows", "columns, intercept", "absent"])
def test_neighbours_differ_in_one_vector_and_scales_are_public(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = NoisyDescent(steps=5, rate=0.5)
    model = model_of(name)
    plan = sampled(mechanism, model)
    assert plan.multiplier == subsampled_multiplier(1.0, 1e-6, 0.5, 5, replace=True)
    coins = np.random.default_rng(0).random((5, model.count))
    drawn = itertools.cycle(coins)  # of a generator of its own, so that the source sees the sums alone

    class Coins:
        def __init__(self, _: Any, rate: float) -> None:
            self.coins = next(drawn) < rate

        def of(self, first: int, count: int) -> np.ndarray:
            return self.coins[first : first + count]

    monkeypatch.setattr(descent, "poisson_coins", Coins)
    for seed in range(4):
        other = neighbour(name, model, np.random.default_rng(seed))
        first, second = replayed(lambda m, s: mechanism.run(m, OPTIONS, s).x, model, other, seed)
        assert (moves(first, second, 2.0) <= 2 / plan.multiplier * (1 + 1e-9)).all()


def test_random_neighbours_move_samples_as_far_as_is_paid_for() -> None:
    generator, worst = np.random.default_rng(1), 0.0
    for number in range(150):
        model, rows, others = random_pair(generator, "free")
        noise = _noise(model, multiplier=2.0)
        settings = Settings(4, float(10.0 ** generator.uniform(-4, 0)), 0.0, 0.0, "last")

        def run(rows: Rows, source: Replay, noise: Any = noise, settings: Settings = settings) -> np.ndarray:
            return descend(noise.model, noise.metric, settings, sampled_gradient(noise, rows, source))["last"]

        first, second = replayed(run, rows, others, number)
        vectors = 1 if model.row.absent and model.row.fixed(2.0) == 0 else 2
        moved = moves(first, second, 2.0)[1::2]  # every other call draws the coins
        worst = max(worst, float(moved.max()) * noise.multiplier / vectors)
    assert 0.99 < worst <= 1 + 1e-12


# ---------------------------------------------------------------------- utility, refusals
def _logistic(n: int, sparse: bool = False) -> Any:
    rng = np.random.default_rng(0)
    X = rng.choice([-1.0, 1.0], (n, 8)) / math.sqrt(8)
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-X @ (2 * np.ones(8)))), 1.0, -1.0)
    return regression(sp.csr_array(X) if sparse else X, y, "logistic", l2=1.0)


def test_it_learns_and_sparse_equals_dense() -> None:
    dense, sparse = _logistic(30_000), _logistic(30_000, sparse=True)
    mechanism = NoisyDescent(steps=64, rate=1 / 8)
    a, b = (mechanism.run(model, OPTIONS, seeded(1)).x for model in (dense, sparse))
    assert a is not None and b is not None and np.allclose(a, b)
    best, nothing = objective(dense, 2 * np.ones(8)), objective(dense, np.zeros(8))
    assert objective(dense, a) - best < 0.2 * (nothing - best)
    forecast = mechanism.forecast(dense, OPTIONS)
    assert "8 passes" in forecast.work and not forecast.proved
    noise = sampled(mechanism, dense)
    assert subsampled_epsilon(noise.multiplier, noise.rate, noise.steps, 1e-6, replace=True) <= 1.0


def test_settings_are_checked_and_delta_is_needed() -> None:
    with pytest.raises(dpm.errors.SpecificationError, match="rate"):
        NoisyDescent(rate=0.0)
    verdict = NoisyDescent(rate=0.1).eligible(model_of("unit rows"), Options(1.0, 0.0))
    assert not verdict.eligible and "delta" in verdict.reason


def test_samples() -> None:
    rows = Rows(((np.arange(6.0)[:, None], 0),), np.arange(6.0), 1, offset=np.ones(6), weights=np.full(6, 2.0))
    some = rows.part(np.array([1, 4]))
    assert some.count == 2 and some.predict(np.ones(1)).tolist() == [2.0, 5.0]
    assert some.combine(np.ones(2)).tolist() == [10.0]
    gradient = sampled_gradient(_noise(model_of("unit rows")), model_of("unit rows").read_rows(), seeded(0))
    assert gradient(np.zeros(4)).shape == (4,)
