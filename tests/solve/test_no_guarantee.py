"""Statements that say nothing: the plan begins with it and says what would help; a solve warns before it charges."""

from __future__ import annotations

import pickle
import re
import warnings
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.solve import planner
from dpmodel.solve.planner import select_mechanism


def costs(linf: float = 2.0) -> dpm.Problem:
    """100 private coefficients in [-1, 1], x in the unit cube: no two points are more than 200 apart."""
    c = dpm.Private(np.linspace(-1, 1, 100), name="c", unit="entry", linf=linf, bounds=[-1, 1])
    return dpm.Problem(cp.Minimize(c @ cp.Variable(100, bounds=[0, 1], name="x")))


def roster(linf: float = 5.0) -> dpm.Problem:
    """40 people, 14 days, wishes 0 to 5, a row per person."""
    wishes = np.random.default_rng(0).integers(0, 6, (40, 14)).astype(float)
    C = dpm.Private(wishes, name="wishes", unit="row", linf=linf, bounds=[0, 5])
    X = cp.Variable((40, 14), name="X", bounds=[0, 1])
    return dpm.Problem(cp.Maximize(cp.sum(cp.multiply(C, X))), [cp.sum(X, axis=1) <= 5, cp.sum(X, axis=0) >= 8])


def demands(linf: float = 1.0) -> dpm.Problem:
    b = dpm.Private([20.0, 30.0], name="b", unit="entry", linf=linf, bounds=[0, 50])
    x = cp.Variable(2, bounds=[0, 60], name="x")
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b])


STRICT = {"delta": 1e-6, "feasibility": "strict"}
# A model, the budget that is too small, and what the statement was before it was capped.
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "costs": (costs, {"epsilon": 0.1}),
    "roster": (roster, {"epsilon": 1.0}),
    "demands": (demands, {"epsilon": 0.01, "mechanism": "laplace-once"}),
    "strict": (demands, {"epsilon": 0.01, **STRICT}),
    "forced strict": (demands, {"epsilon": 0.01, "mechanism": "strict-truncated-laplace", **STRICT}),
}
each_case = pytest.mark.parametrize("name", CASES)


@each_case
def test_the_plan_begins_with_it(name: str) -> None:
    build, asked = CASES[name]
    plan = build().plan(**asked)
    assert plan.chosen.forecast is not None and plan.chosen.forecast.vacuous
    assert str(plan).startswith("No guarantee") and str(plan).startswith(plan.answer[:40])
    assert plan.answer in plan.to_dict()["answer"] and "No guarantee" in plan._repr_html_()


@each_case
def test_a_warning_that_is_an_error_costs_nothing(name: str, tmp_path: Any) -> None:
    build, asked = CASES[name]
    problem, budget = build(), dpm.Budget(10.0, 1e-3, ledger=tmp_path / "spent.sqlite")
    with warnings.catch_warnings():
        warnings.simplefilter("error", dpm.errors.NoGuaranteeWarning)
        with pytest.raises(dpm.errors.NoGuaranteeWarning, match="No guarantee"):
            problem.solve(**asked, budget=budget, rng=0)
    assert budget.spent.epsilon == budget.spent.delta == 0 and problem.release is None
    with pytest.warns(dpm.errors.NoGuaranteeWarning) as seen:
        problem.solve(**asked, rng=0)
    assert [each.filename for each in seen if each.category is dpm.errors.NoGuaranteeWarning] == [__file__]
    assert problem.release is not None and problem.release.accuracy.vacuous


def test_what_says_something_is_quiet() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", dpm.errors.NoGuaranteeWarning)
        problem = demands()
        problem.solve(epsilon=5.0, rng=0)
    assert problem.release is not None and not problem.release.accuracy.vacuous
    assert problem.plan(5.0).answer == "" and str(problem.plan(5.0)).startswith("Plan for epsilon 5")


@each_case
def test_what_is_said_to_help_does(name: str) -> None:
    """From the epsilon named on the mechanism named says something, and not at 4/5 of it; so with the change named."""
    build, asked = CASES[name]
    answer = build().plan(**asked).answer
    found = re.search(r"from epsilon (\S+) on (\S+) says something", answer)
    assert found is not None, answer
    epsilon, mechanism = float(found[1]), found[2]
    assert _says(build(), asked | {"epsilon": epsilon, "mechanism": mechanism})
    assert not _says(build(), asked | {"epsilon": 0.8 * epsilon, "mechanism": mechanism})
    times = re.search(r"numbers (\S+) times less", answer)
    assert times is not None, answer
    linf = {costs: 2.0, roster: 5.0, demands: 1.0}[build] / float(times[1])
    assert _says(build(0.95 * linf), asked | {"mechanism": mechanism})
    assert not _says(build(1.25 * linf), asked | {"mechanism": mechanism})


def _says(problem: dpm.Problem, asked: dict[str, Any]) -> bool:
    forecast = problem.plan(**asked).chosen.forecast
    assert forecast is not None
    return not forecast.vacuous


def test_without_a_bound_on_x_no_epsilon_is_named() -> None:
    c = dpm.Private([1.0, 2.0], name="c", unit="entry", bounds=[0, 3])
    x = cp.Variable(2, name="x")
    plan = dpm.Problem(cp.Minimize(c @ x), [x[0] + x[1] >= 1]).plan(1.0)
    assert "public bound on the variables" in plan.answer


def test_the_public_point_wins_where_noise_hides_more_than_the_ranges_leave_unknown() -> None:
    for epsilon, best in ((0.01, "public-only"), (5.0, "laplace-once")):
        plan = demands().plan(epsilon)
        two = [c for c in plan.candidates if c.mechanism in ("public-only", "laplace-once")]
        chosen = select_mechanism(two, plan.options)
        assert chosen is not None and chosen.mechanism == best and chosen.forecast is not None
        assert (chosen.forecast.epsilon == 0) == (best == "public-only")


def test_a_perfect_public_point_is_taken_in_silence() -> None:
    """Every allowed database is served by one point: reading data buys nothing."""
    b = dpm.Private([1.0, 2.0], name="b", unit="entry", linf=1, bounds=[0, 3])
    x = cp.Variable(2, bounds=[0, 5], name="x")
    problem, budget = dpm.Problem(cp.Minimize(0), [x >= b]), dpm.Budget(1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", dpm.errors.NoGuaranteeWarning)
        problem.solve(epsilon=1.0, budget=budget, rng=0)
    release = problem.release
    assert release is not None and release.mechanism == "public-only" and (x.value >= 3 - 1e-6).all()
    assert budget.spent.epsilon == 0 and release.guarantee.epsilon == 0 and not release.accuracy.vacuous


def test_what_was_asked_for_and_is_not_reached_is_told_before_the_charge() -> None:
    b = dpm.Private([5.0, 30.0, 9.0], name="b", unit="entry", linf=1, bounds=[0, 40])
    x = cp.Variable(3, bounds=[0, 100])
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b])
    budget = dpm.Budget(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", dpm.errors.NoGuaranteeWarning)
        for asked in (dpm.AllBut(alpha=1), dpm.AllBut(alpha=1, rows=1)):
            with pytest.raises(dpm.errors.NoGuaranteeWarning, match="alpha=1, which was asked for"):
                problem.solve(1.0, feasibility=asked, budget=budget, rng=0)
        problem.solve(1.0, feasibility=dpm.AllBut(alpha=20), budget=budget, rng=0)
    assert budget.spent.epsilon == 1


@each_case
def test_what_would_help_is_looked_for_when_it_is_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build, asked = CASES[name]
    searched: list[str] = []

    def search(mechanism: str, *given: Any) -> str:
        searched.append(mechanism)
        return "this would help"

    monkeypatch.setattr(planner, "what_would_help", search)
    problem = build()
    with pytest.warns(dpm.errors.NoGuaranteeWarning, match=r"tells what would help$"):
        problem.solve(**asked, rng=0)
    plan = problem.last_plan
    assert plan is not None and problem.release is not None and not searched
    assert problem.release.plan["answer"] == plan._first and "would help" not in plan._first
    assert "this would help" in str(plan) and len(searched) == 1
    assert plan.answer == plan.to_dict()["answer"] and plan.answer.startswith(plan._first) and len(searched) == 1


def test_a_copy_of_a_plan_knows_what_would_help_and_holds_no_model() -> None:
    plan = costs().plan(0.1)
    copied = pickle.loads(pickle.dumps(plan))
    assert plan._forecaster is not None and copied._forecaster is None
    assert copied.to_json() == plan.to_json() and copied.answer == plan.answer != plan._first


def test_no_epsilon_helps_is_said_only_where_it_helps_no_mechanism() -> None:
    """15 sales in [0, 200], the median: descent never says something, a choice among quantiles does from 2 on."""
    sales = dpm.Private(np.linspace(5, 190, 15), name="sales", unit="entry", bounds=[0, 200])
    problem = dpm.Problem(cp.Minimize(cp.norm1(sales - cp.Variable(name="order"))))
    answer = problem.plan(1.0).answer
    at = re.search(r"from epsilon ([\d.]+) on (\S+) says something", answer)
    assert at is not None, answer
    enough = problem.plan(float(at[1]))
    assert not enough.answer and enough.chosen.mechanism == at[2]


def test_no_amount_is_promised_where_the_true_constraints_cannot_be_met() -> None:
    """90 are needed, 10 are there: whatever is released is short by more than the noise, and no draw contradicts."""
    need = dpm.Private([30.0, 20.0, 40.0], name="need", unit="entry", linf=1)
    x = cp.Variable(3, nonneg=True, name="x")
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= need, cp.sum(x) <= 10])
    statement = problem.plan(1.0, feasibility="centred").chosen.forecast.statement
    assert "where no point meets the released constraints but one meets the true ones" in statement
    problem.solve(1.0, rng=0, feasibility="centred")
    assert "because no point meets the released numbers" in problem.release.accuracy.statement
