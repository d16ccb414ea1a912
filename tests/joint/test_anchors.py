"""Two papers' algorithms on people with shares: what they draw is what they pay for, and without noise they arrive."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.as_printed.jointly_private_programming import (
    JOINTLY_PRIVATE_PROGRAMMING,
    JointlyPrivateProgramming,
    Public,
)
from dpmodel.as_printed.noisy_dual_mirror_descent import NOISY_DUAL_GRADIENT_DESCENT, NOISY_DUAL_MIRROR_DESCENT
from dpmodel.contract import Options
from dpmodel.joint.model import JointModel
from dpmodel.joint.respond import respond
from dpmodel.privacy import gaussian_epsilon, gaussian_mu, noise_source
from tests.benchmarks.joint.instances import instance
from tests.benchmarks.joint.optimum import optimum

ANCHORS = [JOINTLY_PRIVATE_PROGRAMMING, NOISY_DUAL_MIRROR_DESCENT, NOISY_DUAL_GRADIENT_DESCENT]
OPTIONS = Options(1.0, 1e-6, 0.05, release="joint")
anchors = pytest.mark.parametrize("anchor", ANCHORS, ids=lambda each: each.name)


def _problem(first: float, neighbors: str = "replace-one") -> dpm.Problem:
    """Charging cars; the first household wants its hours in the morning (``first`` 0) or in the evening (1)."""
    of = instance("charging", 30)
    worth = of.private["worth"].copy()
    worth[0] = np.where((np.arange(24) < 12) == (first == 0), 1e6, 0.0)
    power, hours = of.private["power"].copy(), of.private["hours"].copy()
    power[0], hours[0] = 1.0, 8.0
    return replace(of, private={"worth": worth, "power": power, "hours": hours}).problem(neighbors)


@anchors
@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_demands_of_neighbours_cost_what_is_charged_and_no_more(
    anchor: JointlyPrivateProgramming, neighbors: str
) -> None:
    """The worst neighbours reach the charge; half of the noise is found out."""
    anchor = replace(anchor, steps=12, dual_bound=5.0)
    one, other = (JointModel.of(_problem(first, neighbors)) for first in (0, 1))
    prices = anchor.run(one, OPTIONS, noise_source(3)).prices
    radius, plan = one.largest_use, anchor.settings(anchor.public(one), OPTIONS)
    apart = 0.0
    for p in prices:
        uses = [respond(m.form, m.read_table().person(0), p, radius)[1][0] for m in (one, other)]
        if neighbors == "add-remove":
            uses[1] = np.zeros(24)
        apart += float(((uses[0] - uses[1]) ** 2).sum())
    realised, charged = math.sqrt(apart) / plan.noise, anchor.forecast(one, OPTIONS).event
    assert charged is not None and realised <= charged.mu * (1 + 1e-9)
    assert realised > 0.999 * charged.mu and 2 * realised > charged.mu
    assert charged.mu <= gaussian_mu(OPTIONS.epsilon, OPTIONS.delta) * (1 + 1e-12)
    assert gaussian_epsilon(charged.mu, OPTIONS.delta) <= OPTIONS.epsilon


@anchors
def test_without_noise_it_finds_the_optimum(anchor: JointlyPrivateProgramming) -> None:
    of = instance("charging", 300)
    best, form, people = optimum(of), of.form, of.form.people(np.asarray(of.table.rows))
    order = 1 if anchor is NOISY_DUAL_MIRROR_DESCENT else 2
    given = Public(of.capacity, of.people, math.sqrt(8), 1e-9, float(np.linalg.norm(best.prices, order)))
    values, demands = [], []

    def measure(prices: np.ndarray, scale: float) -> np.ndarray:
        x, use = respond(form, people, prices, given.radius)
        values.append(float((people.values * x).sum()))
        demands.append(use.sum(axis=0))
        return demands[-1]

    prices, demand = replace(anchor, steps=800, pace=20.0 if order == 1 else 5.0).walk(measure, given, OPTIONS)
    assert (prices >= 0).all() and np.array_equal(demand, demands)
    assert float(np.mean(values)) == pytest.approx(best.value, rel=0.04)
    assert (np.mean(demands, axis=0) <= 1.1 * of.capacity).all()
    bound = given.bound * (2 if anchor is JOINTLY_PRIVATE_PROGRAMMING else 1.1)
    assert (np.linalg.norm(prices, order, axis=1) <= bound * (1 + 1e-9)).all()


def test_noise_is_that_of_their_composition() -> None:
    given = Public(np.full(24, 100.0), 1000, 2.0, 3.0, 5.0)
    found = JOINTLY_PRIVATE_PROGRAMMING.settings(given, OPTIONS)
    step = 1 / math.sqrt(8 * 4_000_000 * math.log(2e6))
    assert found.count == 4_000_000  # (n G)^2
    assert found.noise == pytest.approx(3 * math.sqrt(2 * math.log(1.25 * 2 * 4_000_000 / 1e-6)) / step)
    renyi = NOISY_DUAL_MIRROR_DESCENT.settings(given, OPTIONS)
    rho = renyi.count * 9 / (2 * renyi.noise**2)
    assert renyi.count == 10_000 and rho + 2 * math.sqrt(rho * math.log(1e6)) == pytest.approx(1)
    few = replace(JOINTLY_PRIVATE_PROGRAMMING, steps=1)  # where the printed noise would be too little
    assert few.settings(given, Options(40.0, 1e-6)).noise >= 3 / gaussian_mu(40.0, 1e-6) * (1 - 1e-12)


@anchors
def test_what_is_released_can_be_handed_out(anchor: JointlyPrivateProgramming) -> None:
    """Capacities are exceeded by what the statement allows at most."""
    model = JointModel.of(_problem(0))
    found = replace(anchor, steps=20, dual_bound=5.0).run(model, OPTIONS, noise_source(1))
    assert found.fault(24) == "" and found.demand.shape == (20, 24)
    noise = anchor.settings(replace(anchor, steps=20, dual_bound=5.0).public(model), OPTIONS).noise
    assert (found.at_most > found.demand.mean(axis=0)).all() and noise > 0


def test_plans_as_printed_have_them_with_their_reasons() -> None:
    plan = _problem(0).plan(1.0, 1e-6, release="joint", as_printed=True)
    lines = {each.mechanism: each for each in plan.candidates}
    for anchor in ANCHORS:
        assert not lines[anchor.name].eligible and "bound on prices" in lines[anchor.name].reason
    bids = instance("advertisers", 30).problem().plan(1.0, 1e-6, release="joint", as_printed=True)
    lines = {each.mechanism: each for each in bids.candidates}
    assert lines[NOISY_DUAL_MIRROR_DESCENT.name].eligible and bids.chosen.mechanism not in {a.name for a in ANCHORS}
    many = instance("advertisers", 3000).problem().plan(1.0, 1e-6, release="joint", as_printed=True)
    lines = {each.mechanism: each for each in many.candidates}
    assert "passes over 3000 people" in lines[JOINTLY_PRIVATE_PROGRAMMING.name].reason
