"""Statements against what is known without data: caps and vacuity are true on the worst data, by brute force."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from families import verdict
from hypothesis import given
from hypothesis import strategies as st

import dpmodel as dpm
from dpmodel.contract import Options
from dpmodel.forecast import ExcessRisk, Forecast, RowsMissed, Violation
from dpmodel.known import Known, capped
from dpmodel.privacy import SeededSource
from dpmodel.programs import public as points
from dpmodel.programs.noise_once import LAPLACE_ONCE
from dpmodel.programs.public import PublicPoint, known_without_data, public_points
from dpmodel.programs.public_only import PUBLIC_ONLY, choose
from dpmodel.programs.rows import public_polyhedron

PLAIN = Forecast(statement="a bound", epsilon=1.0, delta=0.0, beta=0.05, error=Violation())
SIZES = st.floats(0, 100, allow_nan=False)


@given(a=SIZES, v=SIZES, span=SIZES, width=SIZES, loss=SIZES, miss=SIZES)
def test_a_statement_says_nothing_exactly_if_a_public_point_keeps_it(
    a: float, v: float, span: float, width: float, loss: float, miss: float
) -> None:
    known = Known(objective=span, violation=width, points=((loss, miss),))
    found = capped(replace(PLAIN, error=Violation(a, v)), known)
    kept = any(x <= a * (1 + 2e-6) and y <= v * (1 + 2e-6) for x, y in ((span, width), (loss, min(miss, width))))
    assert found.vacuous == kept
    assert found.error.objective == min(a, span) and found.error.violation == min(v, width)
    assert found.statement.startswith("no guarantee") == kept
    assert capped(found, known) == found


def test_what_is_not_known_caps_nothing() -> None:
    for forecast in (
        PLAIN,
        replace(PLAIN, error=Violation(objective=1e9)),
        replace(PLAIN, error=Violation(violation=1e9, slack_rows=3)),
    ):
        assert not capped(forecast, Known()).vacuous
    assert capped(replace(PLAIN, error=Violation(objective=math.inf)), Known(violation=0.0)).vacuous


@given(rows=st.integers(1, 1000), left_out=st.integers(0, 1000), alpha=SIZES, loss=SIZES, miss=SIZES)
def test_rows_left_out_say_something_where_no_width_is_known(
    rows: int, left_out: int, alpha: float, loss: float, miss: float
) -> None:
    """Nothing is known about violations: a public point keeps the statement if it keeps alpha in every row, or if all
    rows are left out, and not because an unknown width times a few rows is as large as any."""
    left_out = min(left_out, rows)
    stated = replace(PLAIN, error=Violation(objective=0.0, violation=alpha, slack_rows=left_out, private_rows=rows))
    for width in (math.nan, math.inf):
        for exact in (False, True):
            forecast = replace(stated, error=replace(stated.error, width=width, exact=exact))
            unbounded = capped(forecast, Known(objective=0.0, points=((0.0, math.inf), (loss, math.inf))))
            assert unbounded.vacuous == (left_out == rows)
            found = capped(forecast, Known(points=((0.0, miss),)))
            assert found.vacuous == (left_out == rows or miss <= alpha * (1 + 2e-6))


def test_each_kind_of_statement_has_its_own_measure() -> None:
    assert capped(replace(PLAIN, error=ExcessRisk(predicted=2.0)), Known(predicted=2.0)).vacuous
    assert capped(replace(PLAIN, error=ExcessRisk(predicted=1.91)), Known(predicted=2.0)).vacuous  # within luck
    assert not capped(replace(PLAIN, error=ExcessRisk(predicted=1.89)), Known(predicted=2.0)).vacuous
    assert capped(replace(PLAIN, error=RowsMissed(missed=10.0, needed=1.0)), Known(missed=10.0)).vacuous
    assert not capped(replace(PLAIN, error=RowsMissed(missed=9.0, needed=50.0)), Known(missed=10.0)).vacuous
    assert capped(replace(PLAIN, error=RowsMissed(missed=9.0, needed=11.0)), Known(missed=10.0, records=10.0)).vacuous
    unknown = Known(missed=math.inf, records=math.inf)
    assert not capped(replace(PLAIN, error=RowsMissed(needed=1e9)), unknown).vacuous
    assert capped(replace(PLAIN, error=RowsMissed(needed=math.inf)), unknown).vacuous
    tight = replace(PLAIN, error=Violation(violation=0.0, tightening=5.0))
    assert capped(tight, Known(tightening=5.0)).vacuous and not capped(tight, Known(tightening=5.1)).vacuous
    free = replace(PLAIN, epsilon=0.0, error=Violation(violation=0.0))
    assert not capped(free, Known()).vacuous and capped(replace(free, error=Violation(violation=1.0)), Known()).vacuous


# ---------------------------------------------------------------------- models, their data at the ends of every range
def private_cost(rng: np.random.Generator) -> tuple[dpm.Problem, Any]:
    low, high = np.sort(rng.uniform(-3, 3, (2, 4)), axis=0)
    c = dpm.Private(shape=4, name="c", unit="entry", bounds=[float(low.min()), float(high.max())])
    x = cp.Variable(4, name="x", bounds=[rng.uniform(-2, 0), rng.uniform(0, 2)])
    rows = rng.uniform(-1, 1, (3, 4))
    return dpm.Problem(cp.Minimize(c @ x), [cp.Constant(rows, name="R") @ x <= 1]), (c, x, rows, 1.0)


def private_sides(rng: np.random.Generator) -> tuple[dpm.Problem, Any]:
    b = dpm.Private(shape=3, name="b", unit="entry", linf=0.5, bounds=[0, float(rng.uniform(1, 4))])
    x = cp.Variable(4, name="x", bounds=[0, float(rng.uniform(1, 5))])
    rows = cp.Constant(rng.uniform(0, 1, (3, 4)), name="R")
    return dpm.Problem(cp.Minimize(cp.sum(x)), [rows @ x >= b]), (b, x)


def private_rows(rng: np.random.Generator) -> tuple[dpm.Problem, Any]:
    A = dpm.Private(shape=(2, 3), name="A", unit="entry", linf=0.1, bounds=[float(rng.uniform(-1, 0.5)), 1.0])
    x = cp.Variable(3, name="x", bounds=[-1, 2])
    return dpm.Problem(cp.Minimize(cp.sum(x)), [A @ x >= 1]), (A, x)


def private_equalities(rng: np.random.Generator) -> tuple[dpm.Problem, Any]:
    b = dpm.Private(shape=2, name="b", unit="entry", linf=0.5, bounds=[0, 3])
    x = cp.Variable(3, name="x", bounds=[0, 4])
    return dpm.Problem(cp.Minimize(0), [cp.Constant(rng.uniform(0, 1, (2, 3)), name="R") @ x == b]), (b, x)


MODELS = (private_cost, private_sides, private_rows, private_equalities)


def corners(parameter: dpm.Private, rng: np.random.Generator, count: int = 4) -> list[np.ndarray]:
    low, high = (np.broadcast_to(end, parameter.size) for end in parameter.entry_range)
    ends = [np.array(pick) for pick in itertools.islice(itertools.product(*zip(low, high, strict=True)), 16)]
    inside = [rng.uniform(low, high) for _ in range(count)]
    return [np.reshape(each, parameter.shape, order="F") for each in (*ends, *inside)]


@pytest.mark.parametrize("build", MODELS)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_public_points_keep_their_bounds_on_the_worst_data(build: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem, (parameter, *_) = build(rng)
    model = problem._model(None)
    known = known_without_data(model)
    for point in public_points(model):
        loss = miss = 0.0
        for value in corners(parameter, rng):
            twin = cp.Parameter(parameter.shape, value=value)
            plain = _with(problem, parameter, twin)
            plain.solve(solver=cp.HIGHS)
            plain_x = plain.variables()[0]
            best = plain.value if plain.status == "optimal" else None
            plain_x.value = np.reshape(point.x[: plain_x.size], plain_x.shape, order="F")
            if best is not None:
                loss = max(loss, plain.objective.value - best)
            misses = [np.max(c.violation()) for c in plain.constraints if parameter.name() in str(c) or c.parameters()]
            miss = max(miss, *misses, 0.0)
        assert loss <= point.loss + 1e-5 and miss <= point.violation + 1e-5
        assert point.loss <= known.objective * (1 + 1e-5) + 1e-5 and point.violation <= known.violation + 1e-5


def _with(problem: dpm.Problem, old: dpm.Private, new: cp.Parameter) -> cp.Problem:
    """The same problem over a public parameter."""
    memo = {id(old): new}

    def copied(expression: Any) -> Any:
        if id(expression) in memo:
            return memo[id(expression)]
        if not getattr(expression, "args", None):
            return expression
        return expression.copy([copied(arg) for arg in expression.args])

    return cp.Problem(copied(problem.objective), [copied(each) for each in problem.constraints])


SCALES, GAPS = (4.0, 1e3, 1e6), (0.9, 1e-2, 1e-4)


@pytest.mark.parametrize("size", SCALES)
@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("kind", ["sides", "coefficients", "equalities"])
def test_a_violation_counts_whatever_the_size_of_the_declared_bounds(kind: str, gap: float, size: float) -> None:
    """A row is missed by ``gap`` on the worst data, and by nothing at the next point."""
    x = cp.Variable(2, name="x", bounds=[0, size])
    p = dpm.Private(shape=2, name="p", unit="entry", linf=1.0, bounds=[size / 2, size])
    if kind == "equalities":  # the ends of the range lie at the same distance from the middle
        rows, safe, missed = [x == p], 3 * size / 4, size / 4
        model = dpm.Problem(cp.Minimize(0), rows)._model(None)
        short = PublicPoint(model, np.full(2, safe + gap), "").violation - missed
        assert short == pytest.approx(gap, abs=1e-9 * size)
        return
    if kind == "coefficients":
        p = dpm.Private(shape=2, name="p", unit="entry", linf=0.1, bounds=[0.5, 1])
    rows = [x >= p] if kind == "sides" else [cp.multiply(p, x) >= size / 2]
    model = dpm.Problem(cp.Minimize(cp.sum(x)), rows)._model(None)
    at = size - (gap if kind == "sides" else 2 * gap)
    assert PublicPoint(model, np.full(2, size), "").violation == 0.0
    assert PublicPoint(model, np.full(2, at), "").violation == pytest.approx(gap, abs=1e-11 * size)
    capped = dpm.Problem(cp.Minimize(cp.sum(x)), [*rows, x <= at])._model(None)
    point = min(public_points(capped), key=lambda each: each.violation)
    assert point.violation == pytest.approx(gap, rel=0.1)
    for feasibility in ("safe", "strict"):
        assert not verdict(PUBLIC_ONLY, capped, Options(1.0, 0.0, feasibility=feasibility)).eligible
        assert verdict(PUBLIC_ONLY, model, Options(1.0, 0.0, feasibility=feasibility)).eligible


def test_points_are_looked_for_until_one_keeps_the_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cheapest point loses nothing: it keeps what leaves open all that rows can be violated by."""
    looked_for = []
    for name in ("_cheapest", "_safest", "middle_point"):
        find = getattr(points, name)
        monkeypatch.setattr(points, name, lambda model, find=find, name=name: (looked_for.append(name), find(model))[1])
    b = dpm.Private(shape=2, name="b", unit="entry", linf=0.5, bounds=[1, 3])
    x = cp.Variable(2, bounds=[0, 4])
    model = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b])._model(None)
    for violation, seen in ((3.0, ["_cheapest"]), (0.5, ["_cheapest", "_safest", "middle_point"])):
        looked_for.clear()
        told = Forecast("", 1.0, 0.0, 0.05, Violation(0.0, violation))
        assert capped(told, known_without_data(model)).vacuous == (violation == 3.0)
        assert looked_for == seen


@pytest.mark.parametrize("build", MODELS)
@pytest.mark.parametrize("mode", ["relaxed", "safe"])
def test_of_points_that_violate_nothing_the_one_that_loses_least_is_chosen(build: Any, mode: Any) -> None:
    for seed in range(6):
        model = build(np.random.default_rng(seed))[0]._model(None)
        safe = [point.loss for point in public_points(model) if point.violation == 0]
        point = choose(model, mode)
        if safe:
            assert point is not None and point.violation == 0
            assert point.loss <= min(safe) + 1e-6


@pytest.mark.parametrize("build", MODELS)
def test_public_only_reads_nothing(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, _ = build(np.random.default_rng(0))  # its parameters have no values at all
    model, options = problem._model(None), Options(1.0, 0.0)

    def refuse(self: Any) -> Any:
        raise AssertionError("private values were read")

    monkeypatch.setattr(type(model), "read_private", refuse)
    assert PUBLIC_ONLY.eligible(model, options).eligible
    forecast = PUBLIC_ONLY.forecast(model, options)
    assert forecast.epsilon == forecast.delta == 0 and forecast.error.against_public == 1
    outcome = PUBLIC_ONLY.run(model, options, SeededSource(0))
    assert outcome.x is not None
    at_most = forecast.error.violation if forecast.error.violation > 0 else 0
    assert PublicPoint(model, outcome.x, "").violation <= at_most + 1e-6


@pytest.mark.parametrize("build", MODELS)
def test_no_plan_states_more_than_is_known(build: Any) -> None:
    problem, _other = build(np.random.default_rng(1))
    known = known_without_data(problem._model(None))
    for epsilon in (1e-3, 1.0, 100.0):
        for candidate in problem.plan(epsilon).candidates:
            if candidate.forecast is None:
                continue
            stated = candidate.forecast
            assert not stated.error.objective > known.objective and not stated.error.violation > known.violation
            if not stated.spends_nothing:
                assert stated.vacuous == stated.statement.startswith("no guarantee")


@pytest.mark.parametrize("build", [private_sides, private_rows])
@pytest.mark.parametrize("seed", range(3))
def test_noise_of_a_larger_promise_than_the_middle_of_the_ranges_is_not_taken(build: Any, seed: int) -> None:
    """Centred: nothing is shifted in either, so their promises are of one kind, and the smaller one decides."""
    problem, _ = build(np.random.default_rng(seed))
    chosen = set()
    for epsilon in (1e-3, 0.3, 1.0, 3.0, 1e3):
        plan = problem.plan(epsilon, 1e-6, feasibility="centred", compare="all")
        free = next(c.forecast for c in plan.candidates if c.mechanism == "public-only")
        assert free is not None and free.error.violation > 0 and "middle" in free.statement
        stated = [c.forecast for c in plan.candidates if c.forecast is not None and not c.forecast.spends_nothing]
        for error, vacuous in ((each.error, each.vacuous) for each in stated if each.error.centred):
            told = error.violation if math.isnan(error.alone) else error.alone
            assert vacuous == (free.error.violation <= told * (1 + 2e-6))
        nothing = all(forecast.vacuous for forecast in stated)
        helps = any(forecast.error.helps for forecast in stated)
        assert (plan.chosen.mechanism == "public-only") == (nothing and not helps)
        assert bool(plan.answer) == nothing
        chosen.add(nothing)
    assert chosen == {True, False}


@pytest.mark.parametrize("feasibility", ["relaxed", "centred", "safe"])
@pytest.mark.parametrize("cost", [0.0, 1.0])
def test_every_release_is_a_public_point_also_where_rows_give_way(cost: float, feasibility: Any) -> None:
    """The caps speak of public points only, so a row may not give way beyond what any data allow."""
    rng = np.random.default_rng(0)
    v, u, w = (cp.Variable(3, name=name, nonneg=True) for name in "vuw")
    b = dpm.Private(np.zeros(3), name="b", unit="entry", bounds=(0, 1 / 50))
    d = dpm.Private(np.zeros(3), name="d", unit="entry", linf=1 / 50, bounds=(0, 1))
    R = cp.Constant(rng.uniform(0.2, 1, 3), name="R")
    # Least noise on w, which needs most room, and most noise on v.
    rows = [u <= b, v <= 50 * b, w <= d, w >= 1, R @ v >= 0.9 * R.value.sum()]
    model = dpm.Problem(cp.Minimize(cost * cp.sum(v)), rows)._model(None)
    options = Options(1.0, 0.0, feasibility=feasibility)
    forecast, polytope = LAPLACE_ONCE.forecast(model, options), public_polyhedron(model)
    gave_way = 0
    for seed in range(4):
        outcome = LAPLACE_ONCE.run(model, options, SeededSource(seed))
        gave_way += outcome.extra_violation > 0
        assert outcome.x is not None and polytope.violation(outcome.x) < 1e-6
        assert PublicPoint(model, outcome.x, "").violation <= known_without_data(model).violation
        assert forecast.error.violation <= known_without_data(model).violation
    assert gave_way


# ---------------------------------------------------------------------- one function for every family


SYSTEMS: tuple[Any, ...] = (
    {"task": "span", "dimension": 3},
    {"task": "equations", "dimension": 3, "corrupted": 0.01},
    pytest.param({"task": "inequalities", "dimension": 2, "margin": 0.3}, marks=pytest.mark.slow),
    pytest.param({"task": "inequalities", "dimension": 2, "bound": 5}, marks=pytest.mark.slow),
    {"task": "hull", "dimension": 2},
)


@pytest.mark.parametrize("asked", SYSTEMS, ids=lambda asked: "-".join(map(str, asked.values())))
def test_exact_systems_of_a_few_records_say_nothing_and_of_many_something(asked: dict[str, Any]) -> None:
    spoken = set()
    for records in (4, 4_000 if "bound" in asked else 4_000_000):
        plan = dpm.linalg.plan(**asked, epsilon=1.0, delta=1e-6, records=records, neighbors="add-remove")
        for forecast in (each.forecast for each in plan.candidates if each.forecast is not None):
            assert forecast.vacuous == forecast.statement.startswith("no guarantee")
            assert not (forecast.vacuous and records > 4 and forecast is plan.chosen.forecast)
            assert forecast.vacuous or records > 4
            spoken.add(forecast.vacuous)
    assert spoken == {True, False}


@pytest.mark.filterwarnings("error")
def test_numbers_without_a_range_do_not_count_where_their_variable_is_zero() -> None:
    A = dpm.Private(shape=(2, 2), name="A", unit="entry", linf=1.0)
    x = cp.Variable(2, name="x", nonneg=True)
    model = dpm.Problem(cp.Minimize(cp.sum(x)), [A @ x <= 1, cp.sum(x) <= 5])._model(None)
    assert PublicPoint(model, np.zeros(2), "").violation == 0.0
    assert PublicPoint(model, np.array([0.0, 1.0]), "").violation == math.inf
