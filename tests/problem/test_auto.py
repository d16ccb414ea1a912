"""``feasibility="auto"``: what is expected to cost least, where a public level tells; and what ``compare`` shows."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.errors import SpecificationError, UnsupportedModelError

DEMAND = np.array([40.0, 55.0, 70.0, 65.0])


def transport(supply: float = 300.0, **declared: Any) -> tuple[dpm.Problem, Any]:
    demand = dpm.Private(DEMAND, name="demand", unit="entry", linf=1, **declared)
    x = cp.Variable((2, 4), nonneg=True, name="x")
    cost = np.array([[3.0, 4.0, 6.0, 5.0], [5.0, 3.0, 2.0, 7.0]])
    served = (cp.sum(x, axis=0) >= demand).set_label("served")
    return dpm.Problem(cp.Minimize(cp.sum(cp.multiply(cost, x))), [cp.sum(x, axis=1) <= supply, served]), served


def test_inequalities_are_priced_and_what_is_expected_is_told_where_a_level_is_known() -> None:
    for declared, level in [({"typical": 60}, True), ({"bounds": [0, 100]}, True), ({}, False)]:
        problem, _ = transport(**declared)
        plan = problem.plan(1)
        assert plan.options.feasibility == "priced"
        assert bool(plan.chosen.forecast.expected) == level == ("expected, priced: cost +" in str(plan))
    problem, _ = transport(supply=90.0, bounds=[0, 100])  # its middle, 50 each, leaves no point
    assert not problem.plan(1).chosen.forecast.expected


def test_what_is_expected_is_least_for_the_choice_and_falls_with_epsilon() -> None:
    problem, _ = transport(typical=60)
    costs = []
    for epsilon in (0.5, 1, 2, 4):
        expected = problem.plan(epsilon).chosen.forecast.expected
        assert min(expected, key=lambda name: expected[name].cost) == next(iter(expected)) == "priced"
        costs.append(expected["priced"].cost)
    assert costs == sorted(costs, reverse=True)
    assert problem.plan(1).chosen.forecast.expected["priced"].short == pytest.approx(0.1)


def test_expected_cost_is_what_is_realised() -> None:
    """Level of the data; the mean of 300 seeds, whose deviation is below the cost itself: within 25 %."""
    problem, _ = transport(typical=DEMAND.copy())
    forecast = problem.plan(1).chosen.forecast.expected["priced"].cost
    best, prices = float(DEMAND @ [3, 3, 2, 5]), 10 * np.array([3.0, 3.0, 2.0, 5.0])
    found = []
    for seed in range(300):
        value = problem.solve(1, rng=seed)
        short = np.maximum(DEMAND - problem.release.variables["x"].sum(axis=0), 0)
        found.append(value + prices @ short - best)
    assert np.mean(found) == pytest.approx(forecast, rel=0.25)


def test_a_price_at_which_a_row_is_not_served_is_refused_where_the_level_shows_it() -> None:
    problem, served = transport(typical=60)
    with pytest.raises(SpecificationError, match="served: a price of 4") as caught:
        problem.plan(1, feasibility=dpm.Priced({served: 4}))
    assert "1 row would not be served" in str(caught.value)
    assert problem.plan(1, feasibility=dpm.Priced({served: 6})).options.feasibility == "priced"
    unknown, served = transport()
    unknown.solve(1, feasibility=dpm.Priced({served: 4}), rng=0)
    assert any("not served" in note for note in unknown.release.notes)


def test_compare_answers_every_treatment_from_the_same_numbers() -> None:
    problem, _ = transport(typical=60)
    problem.solve(1, rng=0)
    table = problem.release.compare()
    rows = {row["feasibility"]: row for row in table.to_dict()["rows"]}
    assert list(rows) == ["centred", "priced", "safe", "relaxed"]
    objective = {name: row["objective"] for name, row in rows.items()}
    assert objective["relaxed"] < objective["centred"] < objective["priced"] < objective["safe"]
    assert min(rows, key=lambda name: rows[name]["expected cost"]) == "priced"
    assert rows["safe"]["rows short"] < rows["priced"]["rows short"] < rows["centred"]["rows short"]
    assert min(rows, key=lambda name: rows[name]["regret"]) == "priced"
    assert problem.release.spent == (1, 0)  # the last release is still the one of the solve
    read = dpm.Release.from_json(problem.release.to_json())
    with pytest.raises(SpecificationError, match="its problem is gone"):
        read.compare()


def test_compare_is_at_the_prices_of_the_release_and_in_the_sense_of_the_objective() -> None:
    problem, served = transport()
    found = []
    for price in (40, 900):
        problem.solve(1, feasibility=dpm.Priced({served: price}), rng=0)
        rows = {row["feasibility"]: row for row in problem.release.compare().to_dict()["rows"]}
        assert rows["priced"]["objective"] == pytest.approx(problem.release.value)
        found.append(rows["relaxed"]["expected cost"] - rows["relaxed"]["objective"])
    assert found[1] == pytest.approx(found[0] * 900 / 40)
    need = dpm.Private(DEMAND, name="need", unit="entry", linf=1, typical=60)
    x = cp.Variable(4, nonneg=True)
    sold = dpm.Problem(cp.Maximize(cp.sum(x)), [x <= need])
    sold.solve(1, rng=0)
    rows = sold.release.compare().to_dict()["rows"]
    assert all(row["objective"] > 0 and row["expected value"] < row["objective"] for row in rows)


def test_numbers_have_no_strict_answer_and_equalities_no_safe_one() -> None:
    problem, _ = transport(typical=60)
    problem.solve(1, rng=0)
    with pytest.raises(UnsupportedModelError, match="no answer that is strict") as refused:
        problem.resolve("strict")
    assert '"safe"' in str(refused.value)
    with pytest.raises(SpecificationError, match="resolve with AllBut"):
        problem.resolve(dpm.AllBut(rows=1))
    demand = dpm.Private(DEMAND, name="demand", unit="entry", linf=1, typical=60)
    y = cp.Variable(4)
    equal = dpm.Problem(cp.Minimize(cp.sum(y)), [y == demand])
    equal.solve(1, rng=0)
    with pytest.raises(UnsupportedModelError, match="cannot be made harder"):
        equal.resolve("safe")
    assert [row["feasibility"] for row in equal.release.compare().to_dict()["rows"]] == ["centred", "priced", "relaxed"]


def test_other_parameters_of_the_same_name_are_refused() -> None:
    problem, _ = transport(typical=60)
    problem.solve(1, rng=0)
    short = dpm.Private(DEMAND[:2], name="demand", unit="entry", linf=1)
    x = cp.Variable(2)
    with pytest.raises(SpecificationError, match="2 entries, and 4 were measured"):
        dpm.Problem(cp.Minimize(cp.sum(x)), [x >= short]).resolve(release=problem.release)


def test_a_private_parameter_is_no_constraint_to_price() -> None:
    problem, served = transport()
    (demand,) = served.parameters()
    with pytest.raises(SpecificationError, match="no constraint of this problem"):
        problem.plan(1, feasibility=dpm.Priced({demand: 40}))


@pytest.mark.parametrize(
    ("prices", "words"),
    [
        ({"nothing": 3}, "no constraint of this problem"),
        (-1, "zero, negative or not finite"),
        (0, "zero, negative or not finite"),
        ("high", "of type str"),
        ([1, 2, 3], r"of shape \(3,\)"),
        ([[1, 2], [3]], "of type list"),
        ({}, r"Priced\({}\) without a price"),
    ],
)
def test_prices_that_are_none_are_refused(prices: Any, words: str) -> None:
    problem, _ = transport()
    with pytest.raises(SpecificationError, match=words):
        problem.plan(1, feasibility=dpm.Priced(prices))


def test_a_price_for_a_public_constraint_and_services_that_are_none() -> None:
    problem, _ = transport()
    public = problem.constraints[0]
    with pytest.raises(SpecificationError, match="no private number enters it"):
        problem.plan(1, feasibility=dpm.Priced({public: 3}))
    for service in (0.0, 1.0, 2):
        with pytest.raises(SpecificationError, match="service="):
            problem.plan(1, feasibility=dpm.Priced(service=service))
    with pytest.raises(SpecificationError, match="one of the two"):
        problem.plan(1, feasibility=dpm.Priced(3, service=0.9))
    with pytest.raises(SpecificationError, match="it is a class"):
        problem.plan(1, feasibility=dpm.Priced)
    c = dpm.Private([1.0, 2.0], name="c", l1=1)
    x = cp.Variable(2, bounds=[0, 1])
    with pytest.raises(SpecificationError, match="Priced\\(\\) without a private constraint"):
        dpm.Problem(cp.Minimize(c @ x), [cp.sum(x) == 1]).plan(1, feasibility=dpm.Priced(3))


def test_constraints_without_a_price_are_named() -> None:
    """And what is said to cost least says that their overrun is not counted."""
    need = dpm.Private([30.0, 20.0, 25.0], name="need", unit="entry", linf=1, typical=25)
    stock = dpm.Private([45.0, 50.0], name="stock", unit="entry", linf=5, typical=50)
    x = cp.Variable((2, 3), nonneg=True)
    served = (cp.sum(x, axis=0) >= need).set_label("served")
    cap = (cp.sum(x, axis=1) <= stock).set_label("cap")
    problem = dpm.Problem(cp.Minimize(cp.sum(cp.multiply(np.array([[4.0, 2, 5], [3, 6, 1]]), x))), [served, cap])
    for prices, named in (({served: 90}, True), ({served: 90, cap: 70}, False), (90, False)):
        plan = problem.plan(1, feasibility=dpm.Priced(prices))
        problem.solve(1, feasibility=dpm.Priced(prices), rng=5)
        rows = plan.chosen.forecast.rows  # type: ignore[union-attr]
        assert ("cap: no price, stands as released" in rows) == named
        assert ("cap: no price, stands as released" in problem.release.notes) == named
        for statement in (plan.chosen.forecast.statement, problem.release.accuracy.statement):  # type: ignore[union-attr]
            assert "the given prices" in statement
            assert ("leave out what constraints without one are missed by" in statement) == named
        assert any("weighed against the cost" in row and row.startswith("served") for row in rows)
