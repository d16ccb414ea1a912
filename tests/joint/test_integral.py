"""Whole shares: answers are drawn by public coins, so that capacities hold in spite of noise and coins together."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy.stats import binom

import dpmodel as dpm
from dpmodel.contract import Options
from dpmodel.errors import SpecificationError
from dpmodel.joint.certificate import Sums
from dpmodel.joint.integral import drawn_scales, seats_of
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


def test_seats_are_dealt_once_each_and_evenly() -> None:
    """Of 7 people, with fewer seats than people, more, and none of a kind; the same in parts as at once."""
    for held in ([3, 0, 2], [4, 9, 1], [20, 0, 0], [0, 0, 0]):
        dealt = seats_of(5, 7, np.array(held, dtype=float), 0, 7)
        assert dealt.sum(axis=0).tolist() == held and np.ptp(dealt.sum(axis=1)) <= 1 and (dealt >= 0).all()
        parts = [seats_of(5, 7, np.array(held, dtype=float), first, 3) for first in (0, 3)]
        np.testing.assert_array_equal(np.concatenate(parts), dealt[:6])


def test_a_lottery_of_seats_fits_reads_nothing_and_is_taken_where_noise_is_large() -> None:
    people, rng, budget = dpm.Records("people"), np.random.default_rng(1), dpm.Budget(1, 1e-6)
    likes, weight = rng.random((50, 3)), rng.uniform(0.5, 1, 50)
    mark = dpm.Private(likes, unit="row", records=people, bounds=[0, 1], name="likes")
    heavy = dpm.Private(weight, unit="entry", records=people, bounds=[0, 1], name="weight")
    x = dpm.Shares((50, 3), records=people, boolean=True, name="x")
    capacity = np.array([7.0, 3.9, 11])
    rows = [cp.sum(cp.multiply(heavy[:, None], x), axis=0) <= capacity, cp.sum(x, axis=1) <= 1]
    problem = dpm.Problem(cp.Maximize(cp.sum(cp.multiply(mark, x))), rows)
    for _ in range(5):
        problem.solve(1.0, 1e-6, release="joint", budget=budget)
        shares: list[np.ndarray] = []
        problem.release.deliver(lambda _, share, sent=shares: sent.append(share))
        assert problem.release.mechanism == "even-shares" and budget.spent.epsilon == 0
        assert set(np.unique(shares)) <= {0.0, 1.0} and np.sum(shares) >= 18
        assert (weight @ np.array(shares) <= np.floor(capacity)).all()
        at_home = problem.release.rule.share(person=7, likes=likes[7], weight=weight[7])
        np.testing.assert_array_equal(at_home, shares[7])
    with pytest.raises(SpecificationError, match="person=50"):
        problem.release.rule.share(person=50, likes=likes[7], weight=weight[7])
