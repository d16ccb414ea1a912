"""One person's row changes, everything that was released before stays: what the demands lose is at most the claim."""

from __future__ import annotations

import math
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from blocks import Broken
from models_of_shares import advertisers, charging, marked, timetables
from scipy.optimize import linprog

import dpmodel as dpm
from dpmodel.contract import Options
from dpmodel.errors import SourceError
from dpmodel.joint import noisy_prices, respond, simulation
from dpmodel.joint.noisy_prices import NoisyPrices
from dpmodel.joint.programs import solved
from dpmodel.joint.rule import shares_of
from dpmodel.marks.row_sources import MemoryBlocks
from dpmodel.marks.rows import SourceRows
from dpmodel.privacy import gaussian_mu

OPTIONS = Options(1.0, 1e-6, beta=0.05, release="joint", feasibility="auto")
MU = gaussian_mu(1.0, 1e-6)
HOURS, PEOPLE = 24, 30


@pytest.fixture(autouse=True)
def few_synthetic_people(monkeypatch):
    for name, few in (("_PEOPLE", 20), ("_STEPS", 6), ("_LIMITS", 3), ("_WANTED", (1.0,))):
        monkeypatch.setattr(simulation, name, few)


class Noted:
    """Seeded noise that notes what it is added to, with its scale."""

    is_private = False

    def __init__(self, seed=0):
        self.rng, self.values, self.scales, self.released = np.random.default_rng(seed), [], [], []

    def gaussian(self, values, scale):
        self.values.append(np.array(values))
        self.scales.append(scale)
        self.released.append(np.asarray(values) + self.rng.normal(scale=scale, size=np.shape(values)))
        return self.released[-1]


class Replayed(Noted):
    """Releases what was released on other data, and notes what it would have been added to."""

    def __init__(self, transcript):
        super().__init__()
        self.transcript = list(transcript)

    def gaussian(self, values, scale):
        super().gaussian(values, scale)
        return self.transcript[len(self.values) - 1]


def realised(model, other, mechanism, seed=0):
    """mu of the transcript of ``model`` against that of ``other`` at the same releases, and both outcomes."""
    first = Noted(seed)
    one = mechanism.run(model, OPTIONS, first)
    second = Replayed(first.released)
    two = mechanism.run(other, OPTIONS, second)
    assert first.scales == second.scales and np.array_equal(one.prices, two.prices)
    moved = [np.sum((a - b) ** 2) / s**2 for a, b, s in zip(first.values, second.values, first.scales, strict=True)]
    return math.sqrt(sum(moved)), one, two


def street(values, power, wish, neighbors="replace-one", capacity=0.1, largest=None):
    """The model of a street of chargers with these data."""
    people = dpm.Records("households", neighbors=neighbors)
    v = dpm.Private(values, unit="row", records=people, name="values")
    p = dpm.Private(power, unit="entry", bounds=[0, 1], records=people, name="power")
    w = dpm.Private(wish, unit="entry", bounds=[0, 12], records=people, name="wish")
    x = dpm.Shares(np.shape(values), records=people, nonneg=True, name="charge")
    limits = [cp.multiply(p[:, None], x).sum(axis=0) <= capacity * len(wish), cp.sum(x, axis=1) <= w, x <= 1]
    problem = dpm.Problem(cp.Maximize(cp.sum(cp.multiply(v, x))), limits)
    model, _ = problem._model().check(OPTIONS)
    return model


def household(rng):
    return rng.random(HOURS), rng.uniform(0.5, 1), rng.uniform(3, 8)


def neighbours(first, second, seed=0, **how):
    """Two streets that differ in household 0."""
    rng = np.random.default_rng(seed)
    rest = [household(rng) for _ in range(PEOPLE - 1)]
    streets = []
    for own in (first, second):
        values, power, wish = zip(own, *rest, strict=True)
        streets.append(street(np.array(values), np.array(power), np.array(wish), **how))
    return streets


def at_any_price(hours):
    """Whoever wants these hours at any price, and no other."""
    values = np.full(HOURS, -1.0)
    values[hours] = 1e300
    return values, 1.0, 12.0


MORNING, EVENING = at_any_price(slice(0, 12)), at_any_price(slice(12, 24))
NOBODY = np.zeros(HOURS), 0.0, 0.0


@pytest.mark.parametrize("limit", [None, 1.0, 3.0])
def test_the_worst_household_loses_all_that_is_charged_and_no_more(limit):
    loss, *_ = realised(*neighbours(MORNING, EVENING), NoisyPrices(largest_use=limit, steps=20))
    assert 0.999 * MU < loss <= MU


def test_the_worst_household_that_may_be_absent():
    loss, *_ = realised(*neighbours(MORNING, NOBODY, neighbors="add-remove"), NoisyPrices(steps=20))
    assert 0.999 * MU < loss <= MU


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize("seed", range(4))
def test_no_household_loses_more(seed, neighbors):
    rng = np.random.default_rng(seed)
    odd = [
        household(rng),
        (rng.normal(scale=1e300, size=HOURS), 1.0, 12.0),
        (np.full(HOURS, 5e-324), 1e-300, 12.0),
        (np.full(HOURS, 1e300), np.nextafter(1.0, 0.0), np.nextafter(12.0, 0.0)),
        (-np.ones(HOURS), 1.0, 0.0),
    ]
    for own in odd:
        other = NOBODY if neighbors == "add-remove" else household(rng)
        loss, *_ = realised(*neighbours(own, other, seed, neighbors=neighbors), NoisyPrices(steps=8), seed)
        assert loss <= MU


def test_who_is_absent_may_be_handed_what_is_worth_nothing_by_a_solver(monkeypatch):
    """A limit in which less of one entry leaves less room for another: where nothing is worth anything HiGHS hands out
    some of it, so that an absent person counts as any other does. A twin who took it for nothing is found."""
    W, rhs = np.array([[-1.0, 2, 2], [-2, -1, -1], [-1, 1, 0]]), np.array([1.0, 0, 2])

    def model(first):
        people, values = dpm.Records("people", neighbors="add-remove"), np.zeros((20, 3))
        values[0] = first
        mark = dpm.Private(values, unit="row", name="v", records=people, bounds=[-1e6, 1e6])
        x = dpm.Shares((20, 3), records=people, bounds=[0, 3], name="x")
        rows = [x @ W.T <= rhs, cp.sum(x, axis=0) <= 5000]
        return dpm.Problem(cp.Maximize(cp.sum(cp.multiply(mark, x))), rows)._model().check(OPTIONS)[0]

    absent, mechanism = model(np.zeros(3)), NoisyPrices(largest_use=1.0, steps=8)
    _, used = respond.respond(absent.form, absent.form.people(np.zeros((1, 3))), np.zeros(3), 1.0)
    assert used.any() and not absent.given.absent_uses_nothing
    for present in (np.array([-1e6, 1e6, -1e6]), np.array([1e6, -1e6, -1e6]), np.array([-1e6, -1e6, 1e6])):
        assert realised(model(present), absent, mechanism)[0] <= MU
    monkeypatch.setattr(type(absent), "sensitivity", lambda self, radius: radius)
    assert realised(model(np.array([-1e6, 1e6, -1e6])), absent, mechanism)[0] > 1.05 * MU


def with_supply(own, supply, neighbors="replace-one"):
    """Appointments whose supply is private too: each record moves one slot's by one."""
    values = np.vstack([own, np.random.default_rng(0).random((PEOPLE - 1, 4))])
    people = dpm.Records("people", neighbors=neighbors)
    v = dpm.Private(values, unit="row", records=people, name="values")
    b = dpm.Private(supply, name="supply", l1=2, linf=1, bounds=[0, 50], records=people)
    x = dpm.Shares(values.shape, records=people, nonneg=True, name="x")
    rows = [cp.sum(x, axis=0) <= b, cp.sum(x, axis=1) <= 1]
    return dpm.Problem(cp.Maximize(cp.sum(cp.multiply(v, x))), rows)._model().check(OPTIONS)[0]


@pytest.mark.parametrize("beyond", [0.0, 1e9])
def test_a_private_capacity_and_the_demands_together_cost_what_is_charged(beyond):
    """One record moves two slots' supply by one each, 2-norm sqrt(2), and its own demand from one slot to another;
    beyond a bound of the supply it moves nothing more."""
    first = np.array([1e300, -1, -1, -1]), np.array([9.0, 8.0, 7.0, 50.0 + beyond])
    second = np.array([-1, 1e300, -1, -1]), np.array([10.0, 7.0, 7.0, 50.0 + 2 * beyond])
    loss, one, _ = realised(with_supply(*first), with_supply(*second), NoisyPrices(steps=20))
    assert 0.999 * MU < loss <= MU and np.isfinite(one.scales).all()


@pytest.mark.parametrize("make", [timetables, advertisers])
@pytest.mark.parametrize("seed", range(3))
def test_no_row_of_other_models_loses_more(make, seed):
    rng = np.random.default_rng(seed)
    models = []
    for _ in range(2):
        problem, _ = marked(make(PEOPLE, seed=seed))
        model, _ = problem._model().check(OPTIONS)
        models.append(model)
    rows = models[0].read_table().rows.copy()
    rows[3] = rng.random(rows.shape[1]) if seed else 1.0
    table = replace(models[1].read_table(), rows=rows)
    object.__setattr__(models[1], "read_table", lambda: table)
    loss, *_ = realised(*models, NoisyPrices(steps=8), seed)
    assert 0 < loss <= MU


def test_what_all_others_get_is_the_same_whatever_one_row_holds():
    """The coalition of all others sees prices and its own shares: nothing else of household 0."""
    model, other = neighbours(MORNING, EVENING)
    _, one, two = realised(model, other, NoisyPrices(steps=8))
    form = model.form
    first, second = (
        shares_of(form, outcome, form.people(np.asarray(each.read_table().rows)), 0)
        for each, outcome in ((model, one), (other, two))
    )
    assert np.array_equal(first[1:], second[1:])
    assert not np.array_equal(first[0], second[0])


def test_an_answer_depends_on_nobody_else():
    """Alone, among others, in any order: the same numbers, to the last digit."""
    for make in (charging, timetables, advertisers):
        problem, _ = marked(make(40))
        model, _ = problem._model().check(OPTIONS)
        form, rows = model.form, np.asarray(model.read_table().rows)
        prices = np.random.default_rng(0).random(form.resources)
        for radius in (np.inf, 0.7):
            together = respond.respond(form, form.people(rows), prices, radius)[0]
            backwards = respond.respond(form, form.people(rows[::-1]), prices, radius)[0][::-1]
            alone = [respond.respond(form, form.people(row[None]), prices, radius)[0][0] for row in rows]
            assert np.array_equal(together, backwards) and np.array_equal(together, np.array(alone))


# ------------------------------------------------------------------ broken twins are found
def test_half_the_noise_is_found():
    class Half(Noted):
        def gaussian(self, values, scale):
            return super().gaussian(values, scale / 2)

    first = Half()
    model, other = neighbours(MORNING, EVENING)
    NoisyPrices(steps=20).run(model, OPTIONS, first)
    second = Replayed(first.released)
    NoisyPrices(steps=20).run(other, OPTIONS, second)
    moved = [np.sum((a - b) ** 2) / s**2 for a, b, s in zip(first.values, second.values, first.scales, strict=True)]
    assert math.sqrt(sum(moved)) > 1.9 * MU


@pytest.mark.parametrize("twin", ["no limit on one person's use", "shares counted twice"])
def test_a_broken_demand_is_found(twin, monkeypatch):
    kept = respond.respond

    def broken(form, people, prices, radius, ceiling=None):
        if twin.startswith("no limit"):
            return kept(form, people, prices, np.inf, ceiling)
        x, use = kept(form, people, prices, radius, ceiling)
        return 2 * x, 2 * use

    monkeypatch.setattr(noisy_prices, "respond", broken)
    loss, *_ = realised(*neighbours(MORNING, EVENING), NoisyPrices(largest_use=1.0, steps=20))
    assert loss > 1.9 * MU


def test_a_step_chosen_by_the_data_is_found(monkeypatch):
    """Prices that follow a household's own numbers are other ones on the neighbour: the replay says so."""

    class Steps(NoisyPrices):
        def settings(self, model, options):
            found = super().settings(model, options)
            return replace(found, pace=found.pace * (1 + float(np.asarray(model.read_table().rows)[0, 0] > 0)))

    with pytest.raises(AssertionError):
        realised(*neighbours(MORNING, EVENING), Steps(steps=20))


PAIRS = np.array([[1.0, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]])


def test_one_program_for_several_people_would_let_one_decide():
    """Two people, the second of whom has several best answers: the first's numbers choose among them where both are
    solved in one program, and do not where each has one."""
    people = dpm.Records("people")
    v = dpm.Private(np.ones((2, 4)), unit="row", records=people, name="values")
    x = dpm.Shares((2, 4), records=people, nonneg=True, name="x")
    rows = [x @ PAIRS.T <= 1, x <= 1, cp.sum(x, axis=0) <= 1]
    model, _ = dpm.Problem(cp.Maximize(cp.sum(cp.multiply(v, x))), rows)._model().check(OPTIONS)
    form, rng = model.form, np.random.default_rng(0)
    assert not form.single
    apart, together = set(), set()
    for _ in range(30):
        both = np.array([rng.normal(size=4) * 10.0 ** rng.integers(-2, 13), np.ones(4)])
        apart.add(tuple(solved(form, form.people(both), np.zeros(4), np.inf)[1]))
        joint = linprog(-both.ravel(), sp.block_diag([PAIRS, PAIRS]), np.ones(6), bounds=(0, 1), method="highs")
        together.add(tuple(np.round(joint.x[4:], 6)))
    assert len(apart) == 1 < len(together)


# ------------------------------------------------------------------ rows in blocks
def values_of(block):
    return np.asarray(block)


def in_blocks(own, source=MemoryBlocks):
    """Appointments, of which household ``own`` asks for one."""
    values = np.vstack([np.random.default_rng(0).random((PEOPLE - 1, 4)), own])
    people = dpm.Records("people")
    rows = SourceRows(source([values[:10], values[10:]]), values_of, 4)
    v = dpm.Private(rows, unit="row", records=people, name="values")
    x = dpm.Shares(values.shape, records=people, nonneg=True, name="x")
    limits = [cp.sum(x, axis=0) <= 3, cp.sum(x, axis=1) <= 1]
    return dpm.Problem(cp.Maximize(cp.sum(cp.multiply(v, x))), limits)._model().check(OPTIONS)[0]


def test_rows_in_blocks_lose_no_more():
    loss, *_ = realised(in_blocks([1e300, -1, -1, -1]), in_blocks([-1, 1e300, -1, -1]), NoisyPrices(steps=10))
    assert 0.999 * MU < loss <= MU


def test_a_block_that_counts_twice_is_refused():
    with pytest.raises(SourceError, match="counted twice"):
        NoisyPrices(steps=10).run(in_blocks([1e300, -1, -1, -1], Broken), OPTIONS, Noted())
