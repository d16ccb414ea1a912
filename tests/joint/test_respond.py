"""The best answer to prices, against a solver: bounds, one limit, the ball, bundles, ceilings, several limits."""

from __future__ import annotations

import warnings

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from models_of_shares import advertisers, appointments, charging, marked, timetables

import dpmodel as dpm
from dpmodel.contract import Options
from dpmodel.joint.form import Affine, Form
from dpmodel.joint.respond import respond

OPTIONS = Options(1.0, 1e-6, release="joint", feasibility="auto")


def form_of(model):
    problem, _ = marked(model)
    found, _ = problem._model().check(OPTIONS)
    return found.form, found.form.people(np.asarray(found.read_table().rows))


def use_of(form, people, i):
    A = np.zeros((form.resources, form.size))
    A[form.use_at] = people.use[min(i, people.use.shape[0] - 1)]
    return A


def best_value(form, people, i, prices, radius=np.inf, ceiling=None):
    """By Clarabel, for person i."""

    def of(array):
        return array[min(i, array.shape[0] - 1)]

    A, W = use_of(form, people, i), np.zeros((len(form.personal), form.size + form.extra))
    W[form.limits_at] = of(people.coefficients)
    z = cp.Variable(form.size + form.extra)
    x = z[: form.size]
    rows = [x >= 0]
    rows += [W @ z <= of(people.limits)] if len(form.personal) else []
    if people.caps is not None:
        finite = np.isfinite(of(people.caps))
        rows += [x[finite] <= of(people.caps)[finite]]
    rows += [cp.norm(A @ x) <= radius] if np.isfinite(radius) else []
    rows += [A @ x <= ceiling] if ceiling is not None else []
    score = of(people.values).copy()
    score[: form.size] -= A.T @ prices
    problem = cp.Problem(cp.Maximize(score @ z), rows)
    problem.solve(solver="CLARABEL")
    return problem.value


def value_of(form, people, i, prices, x):
    score = people.values[min(i, people.values.shape[0] - 1)][: form.size] - use_of(form, people, i).T @ prices
    return float(score @ x[i])


@pytest.mark.parametrize("radius", [np.inf, 1.5, 0.6])
@pytest.mark.parametrize("make", [charging, appointments])
def test_answers_are_the_best_inside_the_ball(make, radius):
    form, people = form_of(make(12, seed=3))
    rng = np.random.default_rng(0)
    for prices in (np.zeros(form.resources), rng.random(form.resources), np.full(form.resources, 0.9)):
        x, use = respond(form, people, prices, radius)
        assert (np.linalg.norm(use, axis=1) <= radius * (1 + 1e-12)).all() and (x >= 0).all()
        for i in range(people.count):
            best = best_value(form, people, i, prices, radius)
            assert value_of(form, people, i, prices, x) == pytest.approx(best, abs=2e-6 * (1 + abs(best)))


@pytest.mark.parametrize("make", [timetables, advertisers])
def test_answers_are_the_best_without_the_ball_and_inside_it_with(make):
    """Where resources are shared among entries the ball is kept, and what is inside is near the best there."""
    form, people = form_of(make(10, seed=1))
    prices = np.random.default_rng(1).random(form.resources) / 4
    x, _ = respond(form, people, prices, np.inf)
    for i in range(people.count):
        assert value_of(form, people, i, prices, x) == pytest.approx(best_value(form, people, i, prices), abs=2e-6)
    x, use = respond(form, people, prices, 0.5)
    assert (np.linalg.norm(use, axis=1) <= 0.5).all()
    pairs = [(value_of(form, people, i, prices, x), best_value(form, people, i, prices, 0.5)) for i in range(10)]
    found, best = np.array(pairs).T
    assert (found <= best + 2e-6).all() and (found >= 0.8 * best - 2e-6).all() and found.sum() >= 0.9 * best.sum()


def plain_form(values, weights, budget, use, caps, extra=0):
    """A form whose numbers are all a person's own data, k entries that use a resource each."""
    k = len(values)
    data = np.concatenate([values, weights, [budget], use, caps])
    starts = np.cumsum([0, k, k, 1, k, k])

    def own(part, count):
        places = starts[part] + np.arange(count), np.arange(count)
        return Affine(sp.csr_array((np.ones(count), places), shape=(data.size, count)), np.zeros(count))

    every = np.arange(k)
    form = Form(
        data=(("all", data.size),),
        private=frozenset({"all"}),
        shape=(k,),
        extra=0,
        resources=k,
        use_at=(every, every),
        limits_at=(np.zeros(k, dtype=np.intp), every),
        values=own(0, k),
        caps=(own(4, k),),
        use=own(3, k),
        coefficients=own(1, k),
        limits=own(2, 1),
        personal=np.array([True]),
    )
    return form, form.people(data[None])


@pytest.mark.parametrize("seed", range(30))
def test_odd_people_get_the_best_too(seed):
    """Zero weights, zero use, no bound, ties, values of very different size."""
    rng = np.random.default_rng(seed)
    k = 5
    values = rng.choice([-1.0, 0.0, 0.5, 0.5, 1.0, 2.0], k) * 10.0 ** rng.integers(-3, 4)
    weights, use = rng.choice([0.0, 0.5, 1.0, 3.0], k), rng.choice([0.0, 0.3, 1.0], k)
    caps = rng.choice([0.0, 0.5, 2.0], k)
    form, people = plain_form(values, weights, float(rng.choice([0.0, 1.0, 4.0])), use, caps)
    for radius in (np.inf, 1.0, 0.25):
        for prices in (np.zeros(k), rng.random(k)):
            x, _ = respond(form, people, prices, radius)
            best = best_value(form, people, 0, prices, radius)
            assert value_of(form, people, 0, prices, x) == pytest.approx(best, abs=1e-5 * (np.abs(values).max() + 1e-9))


@pytest.mark.parametrize("seed", range(20))
def test_answers_are_the_best_where_entries_use_nothing_or_next_to_it(seed):
    """There the answer jumps with the limit's multiplier. The first is 2 of what the ball does not see."""
    rng, k = np.random.default_rng(seed), 5
    values, weights, use, budget = np.array([1, 1, 0.9]), np.ones(3), np.array([1.0, 1, 0]), 2.0
    if seed:
        values, weights, use = (rng.random(k) * 10.0 ** rng.integers(-2, 3, k) for _ in range(3))
        use, budget = use * (rng.random(k) < 0.7), float(rng.random() * 10)
    form, people = plain_form(values, weights, budget, use, np.full(values.size, 10.0))
    for radius in (0.1, 1.0):
        prices = rng.random(values.size) / 10
        x, _ = respond(form, people, prices, radius)
        best = best_value(form, people, 0, prices, radius)
        assert value_of(form, people, 0, prices, x) == pytest.approx(best, rel=1e-5, abs=1e-9)


def test_whole_shares_are_whole_with_several_limits():
    people, rng = dpm.Records("people"), np.random.default_rng(2)
    wish = dpm.Private(rng.random((6, 4)), unit="row", records=people, name="wish", bounds=[0, 1])
    x = dpm.Shares((6, 4), records=people, boolean=True, name="x")
    rows = [x[:, 0] + x[:, 1] + x[:, 2] <= 1.5, x[:, 1] + x[:, 2] + x[:, 3] <= 1.5, cp.sum(x, axis=0) <= 2]
    model, _ = dpm.Problem(cp.Maximize(cp.sum(cp.multiply(wish, x))), rows)._model().check(OPTIONS)
    every = model.form.people(np.asarray(model.read_table().rows))
    found, _ = respond(model.form, every, np.zeros(model.form.resources), np.inf)
    assert not model.form.single and set(np.unique(found)) == {0.0, 1.0}


def test_nobody_takes_what_is_worth_nothing():
    form, people = plain_form(np.zeros(3), np.ones(3), 1.0, np.ones(3), np.ones(3))
    assert not respond(form, people, np.zeros(3), np.inf)[0].any()
    assert not respond(form, people, np.zeros(3), 0.5)[0].any()


def test_a_ceiling_is_what_one_person_may_use():
    form, people = form_of(charging(12, seed=3))
    ceiling = np.linspace(0.05, 0.3, form.resources)
    x, use = respond(form, people, np.zeros(form.resources), np.inf, ceiling)
    assert (use <= ceiling * (1 + 1e-9)).all()
    for i in range(people.count):
        best = best_value(form, people, i, np.zeros(form.resources), ceiling=ceiling)
        assert value_of(form, people, i, np.zeros(form.resources), x) == pytest.approx(best, abs=1e-5)


def test_several_limits_and_kinks_go_to_a_solver():
    people = dpm.Records("people")
    rng = np.random.default_rng(2)
    wish = dpm.Private(rng.random((6, 4)), unit="row", records=people, name="wish", bounds=[0, 1])
    x = dpm.Shares((6, 4), records=people, nonneg=True, name="x")
    happy = cp.sum(cp.minimum(x, wish)) + 0.1 * cp.sum(cp.multiply(wish, x))
    rows = [x[:, 0] + x[:, 1] <= 0.8, x[:, 1] + x[:, 2] <= 0.7, x <= 1, cp.sum(x, axis=0) <= 2]
    model, _ = dpm.Problem(cp.Maximize(happy), rows)._model().check(OPTIONS)
    form, every = model.form, model.form.people(np.asarray(model.read_table().rows))
    assert not form.single and form.extra
    prices = np.full(form.resources, 0.3)
    found, use = respond(form, every, prices, np.inf)
    assert np.allclose(use, found)
    for i in range(6):
        own = np.asarray(wish.layout and model.read_table().row(i))
        worth = np.minimum(found[i], own).sum() + 0.1 * own @ found[i] - prices @ found[i]
        assert worth == pytest.approx(best_value(form, every, i, prices), abs=1e-5)
    _, use = respond(form, every, prices, 0.3)
    assert (np.linalg.norm(use, axis=1) <= 0.3).all()


@pytest.mark.parametrize("make", [charging, appointments, timetables, advertisers])
def test_others_do_not_change_an_answer_by_a_bit(make):
    """Each person alone, a part of the people, and all of them: the same numbers to the last bit."""
    form, people = form_of(make(30, seed=3))
    rng = np.random.default_rng(0)
    some = np.flatnonzero(rng.random(people.count) < 0.4)
    for radius in (np.inf, 1.5, 0.25):
        prices = rng.random(form.resources) / 3
        x, use = respond(form, people, prices, radius)
        for which in (some, *([i] for i in range(people.count))):
            alone, used = respond(form, people.part(which), prices, radius)
            assert np.array_equal(alone, x[which]) and np.array_equal(used, use[which])


def test_bundles_are_added_up_in_one_order():
    """Use that is a product with a public matrix lies by columns where people are many."""
    rng = np.random.default_rng(1)
    records = dpm.Records("people")
    own = [dpm.Private(rng.random((40, 7)), unit="row", records=records, name=name, bounds=[0, 1]) for name in "wu"]
    x = dpm.Shares((40, 7), records=records, nonneg=True, name="x")
    crossed = cp.sum(x @ rng.random((7, 4)), axis=0) <= 4
    rows = [x <= 1, cp.sum(x, axis=1) <= 2, crossed, cp.sum(cp.multiply(own[1], x), axis=0) <= 4]
    model, _ = dpm.Problem(cp.Maximize(cp.sum(cp.multiply(own[0], x))), rows)._model().check(OPTIONS)
    form, people = model.form, model.form.people(np.asarray(model.read_table().rows))
    found, used = respond(form, people, np.zeros(form.resources), 0.6)
    for i in range(40):
        alone, own_use = respond(form, people.part([i]), np.zeros(form.resources), 0.6)
        assert np.array_equal(alone[0], found[i]) and np.array_equal(own_use[0], used[i])


_ODD = np.array([0, 5e-324, 1e-300, 1e-150, 1e-12, 0.5, 1, 1, 1e12, 1e20, 1e150, 1e300, 1.7e308])


@pytest.mark.parametrize("make", [charging, appointments, timetables, advertisers])
def test_no_number_of_a_person_becomes_the_sum_of_all(make):
    """Without bounds a number may be of any size: use stays finite and inside the ball."""
    form, _ = form_of(make(12, seed=3))
    rng = np.random.default_rng(5)
    rows = rng.choice(_ODD, (300, form.width)) * rng.choice([-1, 1, 1], (300, form.width))
    rows = np.where(rng.random(rows.shape) < rng.random((300, 1)), rows, rng.random(rows.shape))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # which would tell of an odd record
        people = form.people(rows)
        for radius, ceiling in ((np.inf, None), (1.5, None), (0.25, None), (1.0, np.full(form.resources, 0.1))):
            x, use = respond(form, people, rng.random(form.resources), radius, ceiling)
            assert np.isfinite(x).all() and np.isfinite(use).all() and (use >= 0).all()
            assert (np.linalg.norm(use, axis=1) <= radius * (1 + 1e-12)).all()
            assert ceiling is None or (use <= ceiling * (1 + 1e-12)).all()
