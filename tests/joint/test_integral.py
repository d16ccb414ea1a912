"""Whole shares: answers are drawn by public coins, so that capacities hold in spite of noise and coins together."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy.stats import binom

import dpmodel as dpm
from dpmodel.contract import Options
from dpmodel.joint.certificate import Sums
from dpmodel.joint.integral import drawn_scales
from dpmodel.joint.model import JointModel
from dpmodel.joint.noisy_prices import NoisyPrices
from dpmodel.joint.outcome import Prices
from dpmodel.joint.rule import shares_of
from dpmodel.privacy import noise_source

pytestmark = pytest.mark.filterwarnings("ignore::dpmodel.errors.NotPrivateWarning")
N, RUNS, BETA = 400, 150, 0.05
OPTIONS = Options(100.0, 1e-6, beta=BETA, release="joint", feasibility="auto")


def seats(count: int = 40, **declared: Any) -> JointModel:
    """Everybody wants a seat of one kind, at any price."""
    people = dpm.Records("people")
    v = dpm.Private(np.full((N, 2), [1e6, 0.0]), unit="row", records=people, name="values")
    use = dpm.Private(np.ones((N, 2)), unit="row", records=people, name="use", **declared)
    x = dpm.Shares((N, 2), records=people, boolean=True, name="x")
    rows = [cp.sum(cp.multiply(use, x), axis=0) <= count, cp.sum(x, axis=1) <= 1]
    return JointModel.of(dpm.Problem(cp.Maximize(cp.sum(cp.multiply(v, x))), rows))


@pytest.mark.parametrize("limit", [1.0, 0.11])
def test_coins_and_noise_together_overload_as_rarely_as_stated(limit: float) -> None:
    """With hardly any noise the coins alone decide. A limit of a ninth makes answers rarer, and no smaller."""
    model, over = seats(bounds=[0, 1]), 0
    form, people = model.form, model.form.people(np.asarray(model.read_table().rows))
    for seed in range(RUNS):
        outcome = NoisyPrices(largest_use=limit, steps=5).run(model, OPTIONS, noise_source(seed))
        over += bool((form.used(people, shares_of(form, outcome, people, 0)).sum(axis=0) > model.capacity).any())
    assert over <= binom.isf(1e-6, RUNS, BETA)


def test_what_whole_answers_use_counts_and_not_the_limit_of_mean_ones() -> None:
    """The exact chance of more than 40 seats taken, of 80 that are drawn: with Chernoff for ninths of seats it is too
    large."""
    over = {}
    for largest in (1.0, 0.11):
        (scale,) = drawn_scales(np.array([80.0]), np.array([40.0]), largest, BETA / 2)
        over[largest] = binom.sf(40, N, scale * 80 / N)
    assert over[1.0] <= BETA / 2 < BETA < over[0.11]


def test_half_of_beta_is_for_the_noise_and_half_for_the_coins() -> None:
    model = seats(bounds=[0, 1])
    outcome = NoisyPrices(largest_use=1.0, steps=5).run(model, OPTIONS, noise_source(0))
    mean = outcome.weights @ outcome.demand
    assert (outcome.scales <= drawn_scales(mean, model.capacity, model.largest_use, BETA / 2)).all()
    assert np.isnan(outcome.lost) and "worth" not in outcome.statement


def test_whole_shares_without_a_bound_on_use_are_refused() -> None:
    model = seats(nonneg=True)
    verdict = NoisyPrices().eligible(model, OPTIONS)
    assert not verdict.eligible and "whole" in verdict.reason and "bounds=" in verdict.reason


def test_a_resource_of_nothing_is_kept_from_all() -> None:
    assert drawn_scales(np.array([5.0, 0.0, -1.0]), np.array([0.0, 0.0, 1.0]), 1.0, 0.1).tolist() == [0.0, 1.0, 1.0]


def test_the_most_that_is_possible_is_not_rounded_down() -> None:
    """Greedy takes the small one, and the large one does not fit any more: the best whole share is worth five times as
    much, and what a certificate holds shares against must not be less."""
    people = dpm.Records("people")
    v = dpm.Private(np.full((N, 2), [0.1, 0.5]), unit="row", records=people, name="values", bounds=[0, 1])
    x = dpm.Shares((N, 2), records=people, boolean=True, name="x")
    rows = [cp.sum(x, axis=0) <= N, x @ np.array([1.0, 10.0]) <= 10]
    model = JointModel.of(dpm.Problem(cp.Maximize(cp.sum(cp.multiply(v, x))), rows))
    free = np.zeros((1, 2))
    prices = Prices("optimal", free, np.ones(1), np.ones(2), 1e6, free, model.capacity, 0.05, seed=1)
    _, surplus = model.read_table().map_reduce(Sums(model.form, prices, free[0], model.most_value))
    assert surplus >= 0.5 * N * (1 - 1e-9)
