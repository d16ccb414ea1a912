"""The certificate of shares: its sums are what they say, one person moves them by D at most, its interval covers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from models_of_shares import Model, advertisers, appointments, charging, marked, plain, timetables
from replaying import Transcript

import dpmodel as dpm
from dpmodel.errors import SpecificationError
from dpmodel.joint import simulation
from dpmodel.joint.certificate import Sums, certify, sensitivity, why_not
from dpmodel.joint.model import JointModel
from dpmodel.joint.outcome import Prices
from dpmodel.joint.rule import shares_of
from dpmodel.privacy import noise_source

N = 60


@pytest.fixture(autouse=True)
def few_synthetic_people(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, few in (("_PEOPLE", 20), ("_STEPS", 6), ("_LIMITS", 3), ("_WANTED", (1.0,))):
        monkeypatch.setattr(simulation, name, few)


def bounded(model: Model) -> Model:
    """The model, with values between 0 and 1."""

    def inner(mark: Any, shares: Any) -> Any:
        return model(
            lambda value, **declared: mark(value, **{**({"bounds": [0, 1]} if np.max(value) <= 1 else {}), **declared}),
            shares,
        )

    return inner


MODELS: dict[str, Callable[[], Model]] = {
    "charging": lambda: bounded(charging(N, 6)),
    "timetables": lambda: bounded(timetables(N)),
    "appointments": lambda: bounded(appointments(N)),
    "whole appointments": lambda: bounded(appointments(N, boolean=True)),
    "advertisers": lambda: advertisers(N),
}


def prices_for(model: JointModel, seed: int = 0, whole: bool = False) -> Prices:
    rng = np.random.default_rng(seed)
    prices = rng.uniform(0, 0.8, (4, model.capacity.size))
    return Prices(
        "optimal", prices, np.array([0.1, 0.2, 0.3, 0.4]), rng.uniform(0.3, 1, model.capacity.size), 0.8,
        prices, model.capacity, 0.05, seed=7 if whole else None,
    )  # fmt: skip


def sums_of(model: JointModel, prices: Prices) -> np.ndarray:
    mean = np.asarray(prices.weights @ prices.prices)
    return np.asarray(model.read_table().map_reduce(Sums(model.form, prices, mean, model.most_value)))


@pytest.mark.parametrize("name", MODELS)
def test_the_sums_are_worth_and_surplus(name: str) -> None:
    made = MODELS[name]()
    problem, _ = marked(made)
    model = JointModel.of(problem)
    prices = prices_for(model, whole="whole" in name)
    worth, surplus = sums_of(model, prices)
    shares = shares_of(model.form, prices, model.form.people(np.asarray(model.read_table().rows)), 0)
    objective, constraints = plain(made, shares.reshape(problem.variables()[0].shape))
    assert worth == pytest.approx(float(objective.value))
    # Weak duality, against the optimum that a solver finds.
    (x,) = objective.variables()
    best = cp.Problem(objective, [*constraints, x >= 0]).solve(solver="HIGHS")
    mean = prices.weights @ prices.prices
    assert model.capacity @ mean + surplus >= best - 1e-6


@pytest.mark.parametrize("name", [name for name in MODELS if name != "advertisers"])
def test_one_person_moves_them_by_at_most_the_sensitivity(name: str) -> None:
    model = JointModel.of(marked(MODELS[name]())[0])
    table, form = model.read_table(), model.form
    rng = np.random.default_rng(1)
    low, high = model.given.ranges
    rows = [np.where(rng.random(low.size) < 0.5, low, high) for _ in range(12)] + [low, high]
    moved = 0.0
    for seed in range(6):
        prices = prices_for(model, seed, "whole" in name)
        if seed == 0:  # nothing costs anything and all is handed out: worth and surplus are both V
            free = np.zeros_like(prices.prices)
            prices = Prices("optimal", free, prices.weights, np.ones(free.shape[1]), 1e6, free, model.capacity, 0.05,
                            seed=prices.seed)  # fmt: skip
        each = Sums(form, prices, prices.weights @ prices.prices, model.most_value)
        found = np.array([np.asarray(each(form.people(np.asarray(row)[None, :]), 0)) for row in rows])
        moved = max(moved, np.abs(found[:, None] - found[None]).sum(axis=2).max())
    assert table.count == N and moved <= sensitivity(model)
    assert moved > 0.6 * sensitivity(model)  # half of it would be caught


@pytest.mark.parametrize("epsilon", [0.2, 2.0])
def test_the_interval_covers(epsilon: float) -> None:
    """120 draws at beta .2: 48 misses or more have a probability below 1e-6 (a fifth of them are expected)."""
    made = MODELS["charging"]()
    model = JointModel.of(marked(made)[0])
    prices = prices_for(model)
    worth, surplus = sums_of(model, prices)
    true = worth / (model.capacity @ (prices.weights @ prices.prices) + surplus)
    source = noise_source(3)
    found = [certify(model, epsilon, 0.2, prices, source) for _ in range(120)]
    assert sum(each.lower > true for each in found) < 48
    assert all(0 <= each.lower <= each.estimate <= each.upper == 1 for each in found)


def test_it_draws_what_one_person_moves_both_sums_by() -> None:
    """Values up to 1, wishes up to 8 hours of 6: V = 6, and both sums move by V."""
    model = JointModel.of(marked(bounded(charging(N, 6)))[0])
    source = Transcript(0)
    certify(model, 0.5, 0.2, prices_for(model), source)
    (draw,) = source.draws
    assert draw.distribution == "laplace" and draw.values[0].shape == (2,)
    assert 2 * 6 / 0.5 <= draw.arguments[0] <= 2 * 6 / 0.5 * (1 + 1e-9)


def test_it_is_part_of_the_charge_and_of_the_release() -> None:
    problem, _ = marked(bounded(charging(1000, 6)))
    budget = dpm.Budget(1, 1e-6)
    problem.solve(1.0, 1e-6, release="joint", certify=0.2, budget=budget, rng=0)
    release = problem.release
    assert budget.spent.epsilon == pytest.approx(1) and release.guarantee.epsilon == pytest.approx(1)
    found = release.certificate
    assert found is not None and found.epsilon == pytest.approx(0.2) and found.level == 0.95
    assert "% of the optimum or more" in " ".join(str(release).split())
    again = type(release).from_json(release.to_json())
    assert again.certificate == found and str(again) == str(release)
    assert 0.2 < found.lower < 1 and release.share(3).shape == (6,)


def test_the_optimum_is_an_interval_where_it_was_measured() -> None:
    made = bounded(charging(1000, 6))
    problem, _ = marked(made)
    problem.solve(1.0, 1e-6, release="joint", certify=0.2, rng=0)
    optimum, share = problem.release.optimum, problem.release.certificate.lower
    assert optimum.level == pytest.approx(0.9) and optimum.lower / optimum.upper == pytest.approx(share)
    objective, constraints = plain(made, np.zeros((1000, 6)))
    (x,) = objective.variables()
    assert optimum.lower <= cp.Problem(objective, [*constraints, x >= 0]).solve(solver="HIGHS") <= optimum.upper
    problem.solve(1.0, 1e-6, release="joint", rng=0)
    with pytest.raises(SpecificationError, match="sum of private numbers") as caught:
        _ = problem.release.optimum
    assert "certify=" in caught.value.remedy


def test_what_is_not_bounded_is_not_measured() -> None:
    problem, _ = marked(charging(N, 6))
    with pytest.raises(SpecificationError, match="certify=") as caught:
        problem.solve(1.0, 1e-6, release="joint", certify=0.1)
    assert "bounds what a share is worth" in caught.value.why
    assert why_not(JointModel.of(marked(bounded(charging(N, 6)))[0])) == ""
    assert math.isfinite(JointModel.of(marked(advertisers(N))[0]).most_value)
