"""Remedies of impossible cells: each is applied, planned and solved, shares values without showing them, and forecasts
without reading them."""

from __future__ import annotations

import json
import math
import re
import warnings

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.errors import DPModelError, NoGuaranteeWarning, SpecificationError
from dpmodel.marks import vault
from dpmodel.programs.remedies import Remedy, statements
from dpmodel.text import plain

SECRET = 7321.4375
REQUEST = {"epsilon": 1.0, "delta": 0.0, "beta": 0.05}


def data(*shape):
    return np.random.default_rng(5).uniform(0.1, 0.9, shape)


def objective(values=None, **declared):
    """Of unequal bounds, twelve entries of one record each."""
    c = dpm.Private(data(12) if values is None else values, name="theta", unit="entry", **declared)
    x = cp.Variable(12, bounds=[0, np.linspace(1, 2, 12)], name="x")
    return dpm.Problem(cp.Maximize(c @ x), [(cp.sum(x) <= 4).set_label("places")])


def scalar(values=None, rows=20, **declared):
    b = dpm.Private(data(rows) if values is None else values, name="theta", unit="entry", **declared)
    A = cp.Constant(np.random.default_rng(1).uniform(0.2, 1, (rows, 3)), name="weights")
    x = cp.Variable(3, bounds=[0, 5], name="x")
    return dpm.Problem(cp.Minimize(cp.sum(x)), [(A @ x >= b).set_label("need"), cp.sum(x) <= 14])


def capacity(values=None):
    """At most b: one end is declared, and it is the one that counts."""
    b = dpm.Private(data(5) + 1 if values is None else values, name="theta", unit="entry", nonneg=True)
    x = cp.Variable(5, name="x", nonneg=True)
    return dpm.Problem(cp.Maximize(cp.sum(x)), [(x <= b).set_label("capacity"), x <= 8])


def equality(values=None):
    b = dpm.Private(data(4) if values is None else values, name="theta", unit="entry")
    return dpm.Problem(cp.Minimize(0), [(cp.Variable(4, name="x") == b).set_label("equal")])


def column(values=None):
    A = dpm.Private(data(6, 4) if values is None else values, name="theta", unit="column")
    x = cp.Variable(4, bounds=[0, 5], name="x")
    return dpm.Problem(cp.Maximize(cp.sum(x)), [(A @ x <= 3).set_label("cap")])


def single_row(values=None):
    a = dpm.Private(data(4) if values is None else values, name="theta", unit="entry")
    x = cp.Variable(4, bounds=[0, 1], name="x")
    return dpm.Problem(cp.Maximize(cp.sum(x)), [(a @ x <= 1).set_label("cap")])


def matrix(values=None):
    A = dpm.Private(data(2, 3) if values is None else values, name="theta", unit="row")
    x = cp.Variable((3, 4), bounds=[0, 1], name="x")
    return dpm.Problem(cp.Maximize(cp.sum(x)), [(cp.sum(A @ x, axis=0) <= 1).set_label("cap")])


def cone(values=None):
    A = dpm.Private(data(4, 3) if values is None else values, name="theta", unit="row")
    x = cp.Variable(3, bounds=[0, 1], name="x")
    return dpm.Problem(cp.Maximize(cp.sum(x)), [(cp.norm(A @ x) <= 1).set_label("cap")])


CELLS = {
    objective: ("objective", ("joint", "declared-change", "bounds", "public")),
    scalar: ("scalar", ("leave-out", "declared-change", "bounds", "public", "worst-case")),
    capacity: ("scalar", ("worst-case", "leave-out", "declared-change", "bounds", "public")),
    equality: ("scalar", ("declared-change", "bounds", "public")),
    column: ("column", ("declared-change", "bounds", "public")),
    single_row: ("column", ("declared-change", "bounds", "public")),
    matrix: ("matrix", ("declared-change", "bounds", "public")),
    cone: ("row", ("declared-change", "bounds", "public")),
}
# Of "joint" see tests/solve/test_joint_remedy.py.
CASES = [(build, name) for build, (_, names) in CELLS.items() for name in names if name != "joint"]


def error_of(problem, **request):
    with pytest.raises(dpm.ImpossibilityError) as caught:
        problem.plan(**{**REQUEST, **request})
    return caught.value


def remedy_of(problem, name, **request):
    return next(each for each in error_of(problem, **request).remedies if each.name == name)


@pytest.mark.parametrize("build", CELLS, ids=lambda build: build.__name__)
def test_what_is_offered_for_each_cell_in_order(build):
    part, names = CELLS[build]
    problem = build()
    assert [cell.part for cell in problem.classify().cells] == [part]
    remedies = error_of(problem).remedies
    assert tuple(each.name for each in remedies) == names
    assert all("theta" in each.statement or each.name in ("joint", "leave-out", "worst-case") for each in remedies)


@pytest.mark.parametrize(("build", "name"), CASES, ids=lambda case: getattr(case, "__name__", case))
def test_every_remedy_is_applied_planned_and_solved(build, name):
    problem = build()
    before, labels = str(problem), [each.label for each in problem.constraints]
    remedy = remedy_of(problem, name)
    changed = remedy.apply()
    assert type(changed) is dpm.Problem and changed is not problem
    assert [each.label for each in changed.constraints][: len(labels)] == labels
    assert {id(v) for v in problem.variables()} <= {id(v) for v in changed.variables()}
    if name == "public":
        (given,) = changed.parameters()
        assert type(given) is cp.Parameter and given.value is None and given.name() == "theta"
        given.value = data(*given.shape)
        changed.solve(rng=0)
        assert changed.release.guarantee.epsilon == 0 and remedy.forecast is None
    else:
        assert changed.is_dp()
        plan, forecast = remedy.plan(), remedy.forecast
        assert plan.chosen.forecast == forecast
        budget = dpm.Budget(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoGuaranteeWarning)
            changed.solve(**remedy.request, rng=0, budget=budget)
        assert changed.release.mechanism == plan.chosen.mechanism
        assert budget.spent.epsilon == pytest.approx(forecast.epsilon) and forecast.epsilon <= 1
        assert "x" in changed.release.variables
    assert str(problem) == before and not problem.is_dp() and problem.release is None


@pytest.mark.parametrize(("build", "name"), CASES, ids=lambda case: getattr(case, "__name__", case))
def test_twins_hold_the_values_and_show_none(build, name):
    problem = build()
    (own,) = problem.parameters()
    values = np.full(own.shape, SECRET)
    own.value = values
    changed = remedy_of(problem, name).apply()
    (twin,) = changed.parameters()
    assert twin is not own and twin.value is None and twin.name() == "theta"
    assert str(SECRET) not in repr(twin) + str(changed) + repr(vars(twin))
    held = vault.unseal(twin)
    if name == "public":
        assert held is None
    elif name in ("declared-change", "leave-out"):
        assert (held == SECRET).all() and held.size == own.size
    else:
        assert (held == 1).all()  # the end of bounds=(0, 1)
    assert (vault.unseal(own) == SECRET).all()


@pytest.mark.parametrize("build", CELLS, ids=lambda build: build.__name__)
def test_nothing_is_planned_before_it_is_looked_at_and_nothing_is_ever_read(build, monkeypatch):
    problem = build()
    (own,) = problem.parameters()
    own.value = np.full(own.shape, SECRET)
    monkeypatch.setattr(vault, "unseal", lambda parameter: pytest.fail("a private value was read"))
    planned = []
    plan = dpm.Problem.plan
    monkeypatch.setattr(
        dpm.Problem, "plan", lambda self, *given, **named: planned.append(0) or plan(self, *given, **named)
    )
    error = error_of(problem)
    assert len(planned) == 1 and error.remedies and error.remedy == error.remedies[0].statement
    text = str(error)
    assert len(planned) > 1 and str(SECRET) not in text
    count = len(planned)
    assert str(error) == text and len(planned) == count  # kept
    assert "  try: " in text and "  or: " in text and "error.remedies" in text
    shown = next((each for each in error.remedies if each.helps), error.remedies[0])
    assert str(shown) in text and shown.outlook in text


def test_plain_data():
    for remedy in error_of(objective()).remedies:
        found = json.loads(json.dumps(remedy.to_dict(), allow_nan=False))
        assert found["name"] == remedy.name and found["outlook"] == remedy.outlook
        assert (found["forecast"] is None) == (remedy.name == "public")
        assert found == plain(found)
    told = remedy_of(objective(), "declared-change").to_dict()
    assert told["settings"] == {"linf": 1.0} and told["drowns"] == "inf"


def test_an_error_is_printed_even_if_forecasts_fail(monkeypatch):
    error = error_of(objective())
    monkeypatch.setattr(Remedy, "plan", lambda self, **settings: 1 / 0)
    assert error.remedies[0].statement in str(error)
    error = error_of(objective())
    monkeypatch.setattr(Remedy, "plan", lambda self, **settings: [][0])
    assert error.remedies[0].statement in str(error)


# ------------------------------------------------------------------ a declared change, and where the answer drowns
def test_the_forecast_is_a_function_of_the_declared_change():
    remedy = remedy_of(objective(), "declared-change")
    losses = [remedy.plan(linf=B).chosen.forecast.error.objective for B in (0.5, 1, 4)]
    assert losses == pytest.approx([losses[1] / 2, losses[1], 4 * losses[1]])
    assert remedy.forecast.error.objective == losses[1]


@pytest.mark.parametrize("level", [0.5, 4.0])
def test_the_answer_drowns_where_the_loss_is_as_large_as_the_objective(level):
    remedy = remedy_of(objective(typical=level), "declared-change")
    # The box around the public set: x_j up to 1 + j/11, sum at most 4.
    span = level * np.minimum(np.linspace(1, 2, 12), 4).sum()
    loss = remedy.forecast.error.objective
    assert remedy.drowns == pytest.approx(span / loss, rel=0.1)
    assert re.search(r"beyond linf=[\d.]+ the answer drowns$", str(remedy))
    unguessed = remedy_of(objective(), "declared-change")  # no public level
    assert math.isinf(unguessed.drowns) and "Private(typical=)" in str(unguessed)
    x = cp.Variable(2, name="x")
    c = dpm.Private(data(2), name="theta", unit="entry", typical=1)
    free = remedy_of(dpm.Problem(cp.Minimize(c @ x), [cp.norm1(x - 1e3) <= 1e9]), "declared-change")
    assert "typical" not in free.outlook
    assert math.isnan(remedy_of(objective(), "bounds").drowns)


def test_rows_drown_at_the_range_of_their_left_sides_or_the_size_of_their_right_hand_sides():
    problem = scalar()
    remedy = remedy_of(problem, "declared-change")
    weights = np.random.default_rng(1).uniform(0.2, 1, (20, 3))
    expected = remedy.forecast.error.expected
    width = 5 * weights.sum(axis=1).max()
    assert remedy.drowns == pytest.approx(width / expected, rel=0.1)
    small = remedy_of(scalar(typical=0.25), "declared-change")
    assert small.drowns == pytest.approx(0.25 / expected, rel=0.1)


def test_a_column_drowns_at_the_size_of_its_right_hand_side():
    a = dpm.Private(data(6, 4), name="theta", unit="column", typical=0.5)
    x = cp.Variable(4, bounds=[0, 5], name="x")
    remedy = remedy_of(dpm.Problem(cp.Maximize(cp.sum(x)), [a @ x <= np.linspace(1, 3, 6)]), "declared-change")
    assert remedy.settings == {"row_l1": 1.0}
    assert remedy.drowns == pytest.approx(3 / remedy.forecast.error.expected, rel=0.1)


@pytest.mark.parametrize("changes", [{"integer": True}, {"max_l2": None}, {"unit": "all"}, {"symmetric": True}])
def test_a_twin_changes_bounds_and_norms_alone(changes):
    """What a value is checked for when it is given need not hold of one that is handed on."""
    with pytest.raises(SpecificationError, match="twin"):
        dpm.Private([0.5, 3.0], name="p", unit="entry", linf=1, bounds=[0, 10]).twin(**changes)


# ------------------------------------------------------------------ worst case and rows left out
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("end", [1.0, 1.6])
def test_the_worst_case_holds_for_all_values_within_the_bounds(seed, end):
    rng = np.random.default_rng(seed)
    values = rng.choice([0.0, end], 20) if seed % 2 else rng.uniform(0, end, 20)
    problem = scalar(values)
    remedy = remedy_of(problem, "worst-case")
    changed = remedy.apply(bounds=(0, end))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoGuaranteeWarning)
        changed.solve(**remedy.request, rng=seed)
    weights = np.random.default_rng(1).uniform(0.2, 1, (20, 3))
    x = changed.release.variables["x"]
    assert (weights @ x >= values - 1e-6).all() and changed.release.guarantee.epsilon == 0


def test_rows_are_left_out_where_one_record_owns_one():
    problem = scalar(rows=3000)
    remedy = remedy_of(problem, "leave-out")
    assert remedy.request["feasibility"] == dpm.AllBut(rows=300)
    assert remedy.helps and 0 < remedy.forecast.error.slack_rows <= 300
    changed = remedy.apply()
    (cell,) = changed.classify().cells
    assert (cell.part, cell.level, cell.relaxed) == ("row", "high", True)
    changed.solve(**remedy.request, rng=0)
    x, error = changed.release.variables["x"], remedy.forecast.error
    short = data(3000) - np.random.default_rng(1).uniform(0.2, 1, (3000, 3)) @ x
    assert (short > 1).sum() <= error.slack_rows


# ------------------------------------------------------------------ several obstacles, other problems
def two_parameters():
    c = dpm.Private(data(3), name="c", unit="entry")
    b = dpm.Private(data(3), name="b", unit="entry")
    x = cp.Variable(3, bounds=[0, 9], name="x")
    return dpm.Problem(cp.Minimize(c @ x), [(x >= b).set_label("least")])


def test_another_impossible_cell_comes_next():
    remedy = remedy_of(two_parameters(), "declared-change")
    assert remedy.forecast is None and remedy.outlook == "" and str(remedy) == remedy.statement
    changed = remedy.apply(linf=0.5)
    error = error_of(changed)
    assert error.parameter == "b"
    last = next(each for each in error.remedies if each.name == "declared-change").apply(linf=0.25)
    assert last.is_dp() and {p.name(): p.linf for p in last.parameters()} == {"c": 0.5, "b": 0.25}


def test_a_parameter_in_two_parts_is_changed_in_both():
    c = dpm.Private(data(3), name="c", unit="entry")
    x = cp.Variable(3, bounds=[0, 9], name="x")
    error = error_of(dpm.Problem(cp.Minimize(c @ x), [x >= c]))
    assert error.remedies[0].apply().is_dp()


def test_a_remedy_applies_to_a_copy_and_refuses_other_problems():
    problem = objective()
    remedy = remedy_of(problem, "declared-change")
    changed = remedy.apply(dpm.Problem(problem.objective, [*problem.constraints, cp.sum(problem.variables()[0]) <= 2]))
    assert changed.is_dp() and len(changed.constraints) == 2
    with pytest.raises(SpecificationError, match="no private parameter 'theta'"):
        remedy.apply(two_parameters())
    with pytest.raises(DPModelError):
        remedy.apply(linf=-1)


def test_what_was_asked_for_is_asked_again():
    remedy = remedy_of(objective(), "declared-change", epsilon=0.5, delta=1e-6, beta=0.1)
    assert remedy.request == {"epsilon": 0.5, "delta": 1e-6, "beta": 0.1}
    assert remedy.forecast.epsilon == 0.5
    remedy = remedy_of(capacity(), "declared-change", feasibility="safe")
    assert remedy.request["feasibility"] == remedy.plan().options.feasibility == "safe"
    assert remedy_of(capacity(), "worst-case", feasibility="safe").request["feasibility"] == "strict"


def test_a_measurement_has_remedies():
    secret = dpm.Private([3.0, 5.0], name="secret", unit="entry")
    with pytest.raises(dpm.ImpossibilityError) as caught:
        dpm.measure(secret, 1.0)
    assert "cannot be measured" in caught.value.what and "constraint" not in str(caught.value)
    for remedy in caught.value.remedies[:2]:
        (twin,) = remedy.apply().parameters()
        assert dpm.measure(twin, 1.0, rng=0).shape == (2,)


def test_statements_of_parts():
    for part in ("objective", "scalar", "row", "column", "matrix"):
        assert all("{" not in text and "theta" not in text for text in statements(part))
        assert len(statements(part)) >= 3
    with pytest.raises(SpecificationError, match="unknown part"):
        statements("all")
