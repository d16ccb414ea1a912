"""The planner: candidates, choice by forecast, forcing, several parts, and words; public facts only."""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import fields

import cvxpy as cp
import numpy as np
import pytest
from families import AS_PRINTED, PORTFOLIO

import dpmodel as dpm
from dpmodel.contract import Candidate, Mechanism, Serves, Verdict
from dpmodel.forecast import Forecast, Violation
from dpmodel.programs.model import Program
from dpmodel.programs.vertex import VertexExponential
from dpmodel.solve import planner
from dpmodel.solve.planner import select_mechanism
from dpmodel.solve.registry import by_name


def forecast(alpha, **others):
    settings = {"statement": "", "epsilon": 1, "delta": 0, "beta": 0.05}
    own = {each.name for each in fields(Forecast)}
    error = Violation(**({"violation": alpha} | {name: given for name, given in others.items() if name not in own}))
    return Forecast(**(settings | {name: given for name, given in others.items() if name in own}), error=error)


def candidate(name, alpha, eligible=True, **others):
    return Candidate(name, "", eligible, "", forecast(alpha, **others) if eligible else None)


def scalar_problem(**declared):
    b = dpm.Private(shape=6, name="b", **(declared or {"unit": "entry", "linf": 1}))
    x = cp.Variable(6, nonneg=True, name="x")
    return dpm.Problem(cp.Minimize(cp.sum(x)), [(x >= b).set_label("need"), cp.sum(x) <= 100])


def aggregate_problem(size):
    """One record moves every entry: the 2-norm of its change is far below the 1-norm."""
    b = dpm.Private(shape=size, name="b", linf=1)
    x = cp.Variable(size, name="x")
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b])


def simplex_problem():
    c = dpm.Private(shape=6, name="c", unit="entry", linf=1)
    x = cp.Variable(6, nonneg=True, name="x")
    return dpm.Problem(cp.Minimize(c @ x), [cp.sum(x) == 1])


def box_problem():
    c = dpm.Private(shape=6, name="c", unit="entry", linf=1)
    x = cp.Variable(6, bounds=[0, 1], name="x")
    return dpm.Problem(cp.Minimize(c @ x), [cp.sum(x) >= 1])


# ------------------------------------------------------------------ the registry
def test_names_are_unique_and_found():
    names = [mechanism.name for mechanism in PORTFOLIO]
    assert len(set(names)) == len(names)
    for mechanism in PORTFOLIO:
        assert by_name(mechanism.name) is mechanism
        assert isinstance(mechanism, Mechanism)
        assert mechanism.source


def test_unknown_names_list_the_known():
    with pytest.raises(dpm.errors.SpecificationError, match="no such mechanism") as caught:
        by_name("laplace")
    assert all(repr(mechanism.name) in caught.value.remedy for mechanism in PORTFOLIO)


# ------------------------------------------------------------------ the choice
def test_least_forecast_wins():
    assert select_mechanism([candidate("a", 3), candidate("b", 1), candidate("c", 2)]).mechanism == "b"


def test_the_ineligible_never_win():
    assert select_mechanism([candidate("a", 0, eligible=False), candidate("b", 9)]).mechanism == "b"
    assert select_mechanism([candidate("a", 0, eligible=False)]) is None
    assert select_mechanism([]) is None


def test_the_first_wins_among_equals():
    assert select_mechanism([candidate("a", 2), candidate("b", 2)]).mechanism == "a"


def test_infinite_forecasts_are_compared_by_their_noise():
    large = candidate("large", math.inf, noise={"objective": {"largest_noise": 5.0}})
    small = candidate("small", math.inf, noise={"objective": {"largest_noise": 2.0}})
    unknown = candidate("unknown", math.inf)
    assert select_mechanism([large, small, unknown]).mechanism == "small"
    assert select_mechanism([unknown, large]).mechanism == "large"
    assert select_mechanism([small, candidate("finite", 1e9)]).mechanism == "finite"


def test_alpha_is_the_larger_known_part():
    assert forecast(2.0, objective=3.0).alpha == 3.0
    assert forecast(2.0).alpha == 2.0
    assert forecast(math.nan).alpha == 0.0


@pytest.mark.parametrize(
    ("build", "options", "winner"),
    [
        (simplex_problem, {}, "vertex-exponential"),
        (simplex_problem, {"delta": 1e-6}, "vertex-exponential"),
        (box_problem, {}, "laplace-once"),
        (scalar_problem, {}, "laplace-once"),
        (scalar_problem, {"delta": 1e-6}, "laplace-once"),
        (lambda: aggregate_problem(400), {"delta": 1e-6}, "gaussian-once"),
        (lambda: aggregate_problem(400), {}, "laplace-once"),
        (
            lambda: scalar_problem(unit="entry", linf=1, bounds=[0, 5]),
            {"delta": 1e-6, "feasibility": "strict"},
            "strict-truncated-laplace",
        ),
    ],
)
def test_the_decision_table(build, options, winner):
    plan = build().plan(epsilon=10, **options, compare="all")
    assert plan.chosen.mechanism == winner == build().plan(epsilon=10, **options).chosen.mechanism
    assert plan.chosen.forecast.alpha == min(c.forecast.alpha for c in plan.candidates if c.eligible)
    assert not plan._forced


def test_laplace_on_b_by_hand():
    # Six draws of scale 1, each below ln(6 / beta); rows give way by that and are violated by twice it.
    plan = scalar_problem().plan(epsilon=1, beta=0.05, mechanism="laplace-once", feasibility="centred")
    assert plan.chosen.forecast.alpha == pytest.approx(2 * math.log(6 / 0.05), rel=0.01)


# ------------------------------------------------------------------ forcing
@pytest.mark.parametrize("name", ["laplace-once", "gaussian-once"])
def test_forcing(name):
    plan = scalar_problem().plan(epsilon=1, delta=1e-6, mechanism=name, as_printed=True)
    assert plan.chosen.mechanism == name
    assert plan._forced
    assert len(plan.candidates) == len(PORTFOLIO)


@pytest.mark.parametrize("mechanism", [m.name for m in PORTFOLIO])
def test_forcing_an_ineligible_one_says_why_and_what_would_do(mechanism):
    problem = scalar_problem()
    known = {c.mechanism: c for c in problem.plan(epsilon=1, as_printed=True).candidates}
    if known[mechanism].eligible or "leaves private constraints out" in known[mechanism].reason:
        return  # the latter where they are named, they serve
    with pytest.raises(dpm.errors.UnsupportedModelError) as caught:
        problem.plan(epsilon=1, mechanism=mechanism)
    assert known[mechanism].reason in str(caught.value)
    assert "'laplace-once'" in caught.value.remedy


# ------------------------------------------------------------------ adding an algorithm
@dataclasses.dataclass(frozen=True)
class Perfect(Mechanism[Program]):
    serves = Serves(Program)
    name: str = "perfect"
    source: str = "a dream"

    def eligible(self, model, options):
        return Verdict(True)

    def forecast(self, model, options):
        return forecast(1e-9, statement="no error")

    def run(self, model, options, noise, progress=None):
        raise NotImplementedError


def test_a_line_in_the_registry_is_all_it_takes(monkeypatch):
    programs = planner.KINDS[Program]
    monkeypatch.setitem(planner.KINDS, Program, dataclasses.replace(programs, added=(Perfect(),)))
    plan = scalar_problem().plan(epsilon=1)
    assert plan.chosen.mechanism == "perfect"
    assert "no error" in str(plan)


# ------------------------------------------------------------------ several parts
def two_parts(apart):
    one, two = (dpm.Records("one"), dpm.Records("two")) if apart else (dpm.Records("all"),) * 2
    c = dpm.Private(shape=3, name="c", unit="entry", linf=1, records=one)
    b = dpm.Private(shape=3, name="b", unit="entry", linf=1, records=two)
    x = cp.Variable(3, bounds=[0, 50])
    return dpm.Problem(cp.Minimize(c @ x), [x >= b])


@pytest.mark.parametrize("mechanism", ["laplace-once", "gaussian-once"])
def test_the_split_of_the_budget_is_in_the_plan(mechanism):
    together = two_parts(apart=False).plan(epsilon=1, delta=1e-6, mechanism=mechanism)
    noise = together.chosen.forecast.noise
    assert set(noise) == {"objective", "scalar"}
    shares = [part["share"] for part in noise.values()]
    power = 1 if mechanism == "laplace-once" else 2
    assert sum(share**power for share in shares) == pytest.approx(1)
    assert "split of the budget" in str(together)
    apart = two_parts(apart=True).plan(epsilon=1, delta=1e-6, mechanism=mechanism).chosen.forecast
    assert [part["share"] for part in apart.noise.values()] == pytest.approx([1, 1])
    assert apart.alpha < together.chosen.forecast.alpha


# ------------------------------------------------------------------ words and data
def test_every_reason_and_statement_is_printed():
    plan = scalar_problem().plan(epsilon=1, delta=1e-6)
    text = " ".join(str(plan.table()).split())
    assert all(each.mechanism in text for each in plan.candidates) and text.count("->") == 1
    for each in plan.candidates:
        told = " ".join(plan.why(each.mechanism).split())
        for shown in (text, told):
            assert each.reason in shown and (each.forecast is None or each.forecast.work in shown)
        assert (": chosen" in told) == (each is plan.chosen)
    with pytest.raises(dpm.errors.SpecificationError, match="no mechanism 'magic'"):
        plan.why("magic")
    page, compared = plan._repr_html_(), sum(each.forecast is not None for each in plan.candidates)
    assert page.count("<tr") == compared + 1
    (winner,) = re.findall(r"<tr style=.*?</tr>", page)
    assert f">{plan.chosen.mechanism}<" in winner


def test_more_budget_is_told_in_the_numbers_of_the_statement():
    """Twice the epsilon halves both: told by the larger alone, it read like what one epsilon gives already."""
    plan = scalar_problem().plan(epsilon=1, feasibility="centred")
    number = r"([\d.]+)"
    stated = re.search(rf"violated by more than {number}, or {number} where", plan.chosen.forecast.statement)
    better = re.search(rf"with twice the epsilon, violation within {number} \({number}\)", plan._better)
    assert stated and better
    for now, then in zip(stated.groups(), better.groups(), strict=True):
        assert float(then) == pytest.approx(float(now) / 2, rel=1e-2)


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_a_plan_prints_in_a_few_lines_the_choice_first(width, monkeypatch):
    """The choice, its cell and statement, the runner-up, what more budget would bring."""
    monkeypatch.setenv("COLUMNS", str(width))
    for problem in (scalar_problem(), simplex_problem(), two_parts(True)):
        plan = problem.plan(epsilon=1, delta=1e-6)
        lines = str(plan).splitlines()
        assert len(lines) <= 20 and max(map(len, lines)) <= width
        assert lines[0].endswith(f": {plan.chosen.mechanism}") and "low sensitivity" in str(plan)
        assert problem is not scalar_problem or "(centred)" in lines[1]
        assert any("with twice the epsilon" in line for line in lines) and "plan.table()" in lines[-1]
        again = dpm.Plan.from_json(plan.to_json())
        assert str(again).splitlines()[:3] == lines[:3]
        second = plan.runner_up
        assert second and second != plan.chosen.mechanism and any(f"runner-up: {second}" in line for line in lines)


def test_what_would_be_better_counts_the_constraints_left_out():
    """With ``AllBut(alpha=)`` alpha stays as it was asked for, and fewer constraints are left out."""
    rows, x = dpm.Private(shape=(2000, 3), unit="row", bounds=[0, 1]), cp.Variable(3, bounds=[0, 1])
    problem = dpm.Problem(cp.Minimize(0), [rows @ x >= 1])
    now, then = (problem.plan(epsilon=e, delta=1e-6, feasibility=dpm.AllBut(alpha=0.2)) for e in (8, 16))
    left_out = then.chosen.forecast.error.slack_rows
    assert 0 < left_out < now.chosen.forecast.error.slack_rows
    assert f"{left_out} constraints left out (now " in now._better


def test_published_constants_are_compared_where_asked_for():
    names = {each.mechanism for each in scalar_problem().plan(epsilon=1).candidates}
    assert names == {each.name for each in PORTFOLIO} - AS_PRINTED
    assert {"theorem-34", "algorithm-4"} <= AS_PRINTED


def test_planning_twice_gives_the_same_and_solves_nothing_again(monkeypatch):
    problem = box_problem()
    first = problem.plan(epsilon=1, delta=1e-6).to_dict()
    from dpmodel.compile import public_set

    monkeypatch.setattr(public_set, "solve_cone_program", lambda *a, **k: pytest.fail("solved again"))
    assert problem.plan(epsilon=1, delta=1e-6).to_dict() == first


def test_plan_follows_public_parameters():
    cap = cp.Parameter(name="cap")
    c = dpm.Private(shape=3, name="c", unit="entry", linf=1)
    x = cp.Variable(3, nonneg=True)
    problem = dpm.Problem(cp.Minimize(c @ x), [cp.sum(x) <= cap, x <= 1e3])
    alphas = []
    for size in (1.0, 10.0):
        cap.value = size
        alphas.append(problem.plan(epsilon=1, mechanism="laplace-once").chosen.forecast.alpha)
    assert alphas[1] == pytest.approx(10 * alphas[0], rel=1e-3)


# ------------------------------------------------------------------ requests


def test_vertices_by_variable_and_as_array_agree():
    problem = simplex_problem()
    (x,) = problem.variables()
    points = np.eye(6)[:3]
    for given in (points, points.tolist(), [{x: point} for point in points]):
        options = problem.plan(epsilon=1, mechanism=VertexExponential(vertices=given)).options
        assert np.array_equal(options.vertices, points)


def test_vertices_of_matrix_variables_are_read_by_columns():
    c = dpm.Private(shape=(2, 2), name="c", unit="entry", linf=1)
    x, y = cp.Variable((2, 2), nonneg=True), cp.Variable(nonneg=True)
    problem = dpm.Problem(cp.Minimize(cp.sum(cp.multiply(c, x)) + y), [cp.sum(x) + y <= 100])
    matrix = np.array([[1.0, 2.0], [3.0, 4.0]])
    point = {x: matrix, y: 5.0}
    options = problem.plan(epsilon=1, mechanism=VertexExponential(vertices=[point, point])).options
    assert sorted(options.vertices[0]) == [1, 2, 3, 4, 5]
    problem.parameters()[0].value = np.zeros((2, 2))
    problem.solve(epsilon=1, mechanism=VertexExponential(vertices=[point, point]), rng=0)
    assert np.array_equal(x.value, matrix)
    assert y.value == 5


def test_points_need_every_variable_of_the_standard_form():
    c = dpm.Private(shape=2, name="c", unit="entry", linf=1)
    x = cp.Variable(2)
    problem = dpm.Problem(cp.Minimize(c @ x), [cp.norm1(x) <= 1])
    with pytest.raises(dpm.errors.SpecificationError, match="auxiliary variables"):
        problem.plan(epsilon=1, mechanism=VertexExponential(vertices=np.eye(2)))


def test_a_loss_in_the_objective_counts_beside_violations() -> None:
    """c and b private: Laplace noise violates less, and loses far more of the objective than Gaussian noise."""
    people = dpm.Records("people")
    c = dpm.Private(shape=40, name="c", l1=1, l2=0.05, bounds=[0, 5], records=people)
    b = dpm.Private(shape=3, name="b", unit="entry", linf=0.01, bounds=[5, 9], records=people)
    x = cp.Variable(40, bounds=[0, 1])
    rows = cp.Constant(np.ones((3, 40)), name="rows")
    plan = dpm.Problem(cp.Maximize(c @ x), [rows @ x <= b]).plan(1.0, 1e-6, feasibility="centred")
    once = {k.mechanism: k.forecast for k in plan.candidates if k.mechanism in ("laplace-once", "gaussian-once")}
    assert not once["gaussian-once"].vacuous and once["laplace-once"].vacuous
    assert once["gaussian-once"].error.rank < once["laplace-once"].error.rank


@pytest.mark.parametrize("reason", ["no delta", "no way to measure"])
def test_strict_takes_the_public_point_where_it_alone_can_promise(reason):
    """Beds for needs of 0 to 100: 100 everywhere is enough whatever the data are."""
    declared = {"unit": "entry", "linf": 1.0 if reason == "no delta" else 1e-3}
    scale = 1.0 if reason == "no delta" else 1e11  # numbers beyond what can be measured with so little noise
    need = dpm.Private(np.array([12.0, 75.0]) * scale, name="need", bounds=[0, 100 * scale], **declared)
    x = cp.Variable(2, nonneg=True)
    problem, budget = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= need]), dpm.Budget(1, 1e-6)
    with pytest.warns(dpm.errors.NoGuaranteeWarning, match="without data"):
        problem.solve(epsilon=1, delta=0 if reason == "no delta" else 1e-6, feasibility="strict", budget=budget)
    assert x.value == pytest.approx(100 * scale) and budget.spent.epsilon == 0
    assert "every private constraint holds" in problem.release.accuracy.statement


def test_strict_without_delta_is_told_that_delta_is_what_it_needs():
    with pytest.raises(dpm.errors.UnsupportedModelError, match="takes delta > 0") as caught:
        scalar_problem().plan(epsilon=1, feasibility="strict")
    assert "delta=1e-6" in caught.value.remedy and 'feasibility="safe"' in caught.value.remedy


def test_strict_without_bounds_is_told_the_next_weaker_promise():
    """Not "relaxed", under which every row that binds is short. No equality is safe."""
    with pytest.raises(dpm.errors.DPModelError) as caught:
        scalar_problem().plan(epsilon=1, delta=1e-6, feasibility="strict")
    assert 'feasibility="safe"' in caught.value.remedy and "relaxed" not in caught.value.remedy
    need, x = dpm.Private([12.0, 75.0], name="need", unit="entry", linf=1), cp.Variable(2)
    with pytest.raises(dpm.errors.DPModelError) as caught:
        dpm.Problem(cp.Minimize(cp.sum(x)), [x == need]).plan(epsilon=1, delta=1e-6, feasibility="strict")
    assert 'feasibility="centred"' in caught.value.remedy
