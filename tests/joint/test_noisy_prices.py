"""What is stated of shares, on worst cases: overload, value, whole shares, private capacities. Seeds are fixed; a test
fails by chance with probability 1e-6 at most."""

from __future__ import annotations

from functools import partial

import cvxpy as cp
import numpy as np
import pytest
from models_of_shares import advertisers, charging, marked, timetables
from scipy.stats import binom

import dpmodel as dpm
from dpmodel.contract import Options
from dpmodel.joint import simulation
from dpmodel.joint.even_shares import EVEN_SHARES
from dpmodel.joint.integral import coins, drawn_scales
from dpmodel.joint.lower_bound import least_loss
from dpmodel.joint.noisy_prices import NoisyPrices
from dpmodel.joint.respond import respond
from dpmodel.joint.rule import shares_of
from dpmodel.privacy import noise_source

pytestmark = pytest.mark.filterwarnings("ignore::dpmodel.errors.NotPrivateWarning")
RUNS = 150


@pytest.fixture(autouse=True)
def few_synthetic_people(monkeypatch):
    for name, few in (("_PEOPLE", 20), ("_STEPS", 6), ("_LIMITS", 3), ("_WANTED", (1.0,))):
        monkeypatch.setattr(simulation, name, few)


def options(beta, epsilon=1.0):
    return Options(epsilon, 1e-6, beta=beta, release="joint", feasibility="auto")


def model_of(problem, beta=0.2):
    return problem._model().check(options(beta))[0]


def most_of(runs, beta):
    """As many failures of ``runs`` are as likely as 1e-6."""
    return int(binom.isf(1e-6, runs, beta))


def people_of(model):
    return model.form.people(np.asarray(model.read_table().rows))


def used(model, outcome):
    people = people_of(model)
    return model.form.used(people, shares_of(model.form, outcome, people, 0)).sum(axis=0)


def crowded(n=200, m=5, **attributes):
    """Everybody wants one unit of the first resource at any price, and of the others at one."""
    rng = np.random.default_rng(0)
    values = rng.random((n, m)) + np.array([1e6, 0, 0, 0, 0])
    people = dpm.Records("people")
    v = dpm.Private(values, unit="row", records=people, name="values")
    x = dpm.Shares((n, m), records=people, name="x", **(attributes or {"nonneg": True}))
    return dpm.Problem(cp.Maximize(cp.sum(cp.multiply(v, x))), [cp.sum(x, axis=0) <= n / 4, cp.sum(x, axis=1) <= 1])


@pytest.mark.parametrize("beta", [0.2, 0.02])
def test_no_resource_is_overloaded_more_often_than_stated(beta):
    model = model_of(crowded(), beta)
    mechanism, over = NoisyPrices(largest_use=1.0, steps=6), 0
    for seed in range(RUNS):
        outcome = mechanism.run(model, options(beta), noise_source(seed))
        over += bool((used(model, outcome) > model.capacity * (1 + 1e-9)).any())
    assert over <= most_of(RUNS, beta)
    assert beta < 0.1 or over > 0  # the worst case tries the statement


def test_a_margin_of_half_the_size_overloads(monkeypatch):
    from dpmodel.joint import noisy_prices

    model, over = model_of(crowded()), 0
    kept = simulation.margin
    monkeypatch.setattr(simulation, "margin", lambda *given: kept(*given) / 4)
    monkeypatch.setattr(noisy_prices, "margin", lambda *given: kept(*given) / 4)
    for seed in range(RUNS):
        outcome = NoisyPrices(largest_use=1.0, steps=6).run(model, options(0.2), noise_source(seed))
        over += bool((used(model, outcome) > model.capacity * (1 + 1e-9)).any())
    assert over > most_of(RUNS, 0.2)


@pytest.mark.parametrize("make", [partial(charging, hours=6), advertisers])
def test_no_more_value_is_lost_than_stated(make):
    problem, _ = marked(make(150))
    model = model_of(problem)
    mechanism, missed = NoisyPrices(largest_use=1.0, steps=10), 0
    people, form = people_of(model), model.form
    best = best_inside(model, people, 1.0)
    for seed in range(RUNS // 3):
        outcome = mechanism.run(model, options(0.2), noise_source(seed))
        mean = sum(w * respond(form, people, p, 1.0)[0] for w, p in zip(outcome.weights, outcome.prices, strict=True))
        missed += (people.values * mean).sum() < best - outcome.lost - 1e-6
    assert missed <= most_of(RUNS // 3, 0.2)
    assert np.isfinite(outcome.lost) and outcome.lost > 0


def best_inside(model, people, radius):
    """At most the optimum with every person's use in the ball: the best average over prices of a long descent."""
    prices, mean, spent = np.ones(model.form.resources), 0.0, 0.0
    for step in range(1, 400):
        x, use = respond(model.form, people, prices, radius)
        mean, spent = mean + x, spent + use.sum(axis=0)
        prices = np.maximum(prices + 2 / step**0.5 * (use.sum(axis=0) / model.capacity - 1), 0.0)
    fits = min(1.0, float((model.capacity / np.maximum(spent / 399, 1e-9)).min()))
    return float((people.values * mean / 399).sum()) * fits


@pytest.mark.parametrize("beta", [0.2])
def test_whole_shares_are_whole_and_do_not_overload(beta):
    model = model_of(crowded(boolean=True), beta)
    assert model.form.integral
    mechanism, over = NoisyPrices(largest_use=0.8, steps=6), 0
    for seed in range(RUNS):
        outcome = mechanism.run(model, options(beta), noise_source(seed))
        people = people_of(model)
        shares = shares_of(model.form, outcome, people, 0)
        assert np.isin(shares, (0.0, 1.0)).all() and (shares.sum(axis=1) <= 1).all()
        over += bool((shares.sum(axis=0) > model.capacity).any())
    assert over <= most_of(RUNS, beta)


def test_coins_keep_as_many_as_they_may():
    """Sums of coins stay below the capacity as often as stated; the bound is not idle: at twice the scale they do
    not."""
    rng, people, most, capacity = np.random.default_rng(0), 400, np.array([300.0]), np.array([100.0])
    (scale,) = drawn_scales(most, capacity, 1.0, 0.2)
    sums = rng.binomial(people, scale * most[0] / people, 2000)
    assert (sums > capacity[0]).sum() <= most_of(2000, 0.2)
    assert (rng.binomial(people, min(1.5 * scale * most[0] / people, 1), 2000) > capacity[0]).mean() > 0.5
    assert drawn_scales(np.array([10.0]), capacity, 1.0, 0.2) == 1


def test_coins_are_the_same_for_the_same_person_and_others_for_others():
    weights = np.arange(1, 6) / 15
    drawn = [coins(7, person, weights) for person in range(2000)]
    assert drawn == [coins(7, person, weights) for person in range(2000)]
    counts = np.bincount([step for step, _ in drawn], minlength=5) / 2000
    assert np.abs(counts - weights).max() < 0.06 and drawn[0] != drawn[1]


def test_private_capacities_are_kept_as_often_as_stated():
    n, beta, over = 200, 0.2, 0
    people = dpm.Records("people")
    supply = dpm.Private([60.0, 45.0], name="supply", unit="entry", linf=1, bounds=[0, 100], records=people)
    values = np.random.default_rng(1).random((n, 3)) + np.array([1e6, 0, 0])
    v = dpm.Private(values, unit="row", records=people, name="values")
    x = dpm.Shares((n, 3), records=people, nonneg=True, name="x")
    rows = [cp.sum(x[:, :2], axis=0) <= supply, cp.sum(x[:, 2]) <= 50, cp.sum(x, axis=1) <= 1]
    problem = dpm.Problem(cp.Maximize(cp.sum(cp.multiply(v, x))), rows)
    model = model_of(problem)
    for seed in range(RUNS):
        outcome = NoisyPrices(largest_use=1.0, steps=6).run(model, options(beta, 4.0), noise_source(seed))
        over += bool((used(model, outcome) > np.array([60.0, 45.0, 50.0]) * (1 + 1e-9)).any())
    assert "capacities as released" in outcome.statement
    assert over <= most_of(RUNS, beta)


# ------------------------------------------------------------------ even shares, and what nobody can do
@pytest.mark.parametrize("make", [charging, timetables, advertisers])
def test_even_shares_fit_with_certainty(make):
    problem, _ = marked(make(60))
    model = model_of(problem)
    outcome = EVEN_SHARES.run(model, options(0.05), noise_source(0))
    assert (used(model, outcome) <= model.capacity * (1 + 1e-9)).all()
    assert EVEN_SHARES.forecast(model, options(0.05)).spends_nothing


def test_a_plan_takes_even_shares_where_noise_drowns_prices():
    problem, _ = marked(charging(15))
    plan = problem.plan(0.1, 1e-6, release="joint", compare="all")
    assert plan.chosen.mechanism == "even-shares"
    problem, _ = marked(charging(20_000))
    assert problem.plan(1.0, 1e-6, release="joint").chosen.mechanism == "noisy-prices"


def test_the_least_loss_is_below_what_a_private_release_loses():
    """A release that gives everybody who asks a share of b less Laplace noise on their number is private, and loses
    more than the bound says that every one must."""
    rng, capacity, epsilon = np.random.default_rng(0), 100, 1.0
    bound = least_loss(capacity, epsilon, 0.0)
    losses = []
    for extra in range(6):
        asking = capacity + extra + rng.laplace(scale=1 / epsilon, size=20_000)
        # never more than b in all: the share is b over what they are at most, with a margin for the rest
        share = np.minimum(capacity / np.maximum(asking + 6 / epsilon, 1), 1)
        given = share * (capacity + extra)
        losses.append(np.mean(capacity - np.minimum(given, capacity)))
    assert 0.2 < bound < max(losses)
    assert least_loss(capacity, 0.5, 0.0) > bound > least_loss(capacity, 2.0, 0.0)
    assert least_loss(capacity, 1.0, 0.1) < bound
