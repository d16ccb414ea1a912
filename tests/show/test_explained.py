"""A plan explained: what would do better is what a plan of that problem says, and figures along other axes."""

from __future__ import annotations

import json
import pickle
from typing import Any

import cvxpy as cp
import pytest

import dpmodel as dpm

STATISTICS = "sufficient-statistics"


def program(need: float = 1.0, cost: float = 0.1, value: Any = None) -> dpm.Problem:
    c = dpm.Private(shape=3, name="cost", unit="entry", linf=cost, bounds=[0, 5])
    b = dpm.Private(value, shape=3, name="need", unit="entry", linf=need, bounds=[0, 60])
    x = cp.Variable(3, bounds=[0, 100], name="x")
    return dpm.Problem(cp.Minimize(c @ x), [(x >= b).set_label("wards")])


def lasso(count: int) -> dpm.Problem:
    people = dpm.Records("people")
    X = dpm.Private(shape=(count, 2), name="X", unit="row", bounds=[-1, 1], records=people)
    y = dpm.Private(shape=count, name="y", unit="entry", bounds=[-1, 1], records=people)
    w = cp.Variable(2, name="w")
    return dpm.Problem(cp.Minimize(cp.sum_squares(X @ w - y) / count), [cp.norm1(w) <= 1])


def changes(problem: dpm.Problem, epsilon: float, **asked: Any) -> dict[str, str]:
    told = problem.plan(epsilon, 1e-6, **{"feasibility": "centred", **asked}).explain().changes
    return {row["change"].partition(",")[0].partition(" (")[0]: row["error"] for row in told}


def errors(problem: dpm.Problem, epsilon: float, mechanism: str) -> Any:
    return problem.plan(epsilon, 1e-6, mechanism=mechanism, feasibility="centred").chosen.forecast.error


def test_what_would_do_better_is_what_a_plan_of_that_problem_says() -> None:
    name = program().plan(2.0, 1e-6, feasibility="centred").chosen.mechanism
    found = changes(program(), 2.0)
    assert set(found) == {"twice the epsilon", "half the sensitivity", "cost public", "need public"}
    expected = {
        "twice the epsilon": errors(program(), 4.0, name),
        "half the sensitivity": errors(program(0.5, 0.05), 2.0, name),
    }
    for change, error in expected.items():
        told = f"objective within {error.objective:.4g}, violation within {error.alone:.4g} ({error.violation:.4g})"
        told += f", expected extra cost {error.cost:.4g}"
        assert found[change] == told, change
    assert found["need public"].endswith("violation within 0") and "violation within 0" not in found["cost public"]
    assert found["cost public"].startswith("objective within 0")


def test_more_records_are_a_larger_regression() -> None:
    error = errors(lasso(120), 1.0, STATISTICS)
    assert changes(lasso(60), 1.0, mechanism=STATISTICS)["twice the records"] == f"excess risk {error.predicted:.4g}"


def test_constraints_left_out_at_which_the_error_halves() -> None:
    A = dpm.Private(shape=(20000, 6), name="A", unit="row", bounds=[0, 1])
    x = cp.Variable(6, bounds=[0, 1], name="x")
    problem = dpm.Problem(cp.Minimize(0), [(A @ x >= 0.5).set_label("people"), cp.sum(x) <= 2])
    asked: dict[str, Any] = {"mechanism": "dense-multiplicative-weights"}
    plan = problem.plan(5.0, 1e-6, feasibility=dpm.AllBut(rows=500), **asked)
    (told,) = [row for row in plan.explain().changes if "left out instead of 500" in row["change"]]
    rows, then = int(told["change"].split()[0]), float(told["error"].split(",")[0].rsplit(" ", 1)[1])
    now = plan.chosen.forecast.error.violation
    again = problem.plan(5.0, 1e-6, feasibility=dpm.AllBut(rows=rows), **asked)
    assert again.chosen.forecast.error.violation == pytest.approx(then, rel=1e-3)
    fewer = problem.plan(5.0, 1e-6, feasibility=dpm.AllBut(rows=rows // 2), **asked)
    assert rows > 500 and then <= now / 2 < fewer.chosen.forecast.error.violation


def test_every_other_mechanism_has_a_verdict_and_a_reason() -> None:
    plan = program().plan(2.0, 1e-6, feasibility="centred")
    told = plan.explain()
    assert {row["mechanism"] for row in told.others} == {c.mechanism for c in plan.candidates} - {plan.chosen.mechanism}
    for row in told.others:
        assert row["why"] and row["verdict"] in ("lost", "does not apply", "failed")
    assert str(plan.chosen.mechanism) in told.statement
    text, page = str(told), told._repr_html_()
    for words in ("What would do better", "Why not another mechanism"):
        assert words in text and words in page
    assert json.loads(json.dumps(told.to_dict()))["changes"]


@pytest.mark.parametrize("width", [50, 80])
def test_it_fits(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert max(map(len, str(program().explain(2.0, 1e-6)).splitlines())) <= width


def test_what_a_statement_means_depends_on_its_kind() -> None:
    proved = " ".join(program().plan(2.0).explain().meaning)
    assert "proved" in proved and "95" not in proved and "all but 5 of 100" in proved and "7.389 times" in proved
    assert "predicted" in " ".join(lasso(60).plan(1.0, 1e-6, mechanism=STATISTICS).explain().meaning)
    nothing = program(need=50.0).plan(0.01)
    assert "add nothing" in " ".join(nothing.explain().meaning) or "costs no privacy" in " ".join(
        nothing.explain().meaning
    )


def test_a_copy_of_a_plan_tells_all_but_changes() -> None:
    plan = program().plan(2.0)
    copy = type(plan).from_json(plan.to_json())
    assert copy.explain().changes == () and copy.explain().others == plan.explain().others


def test_a_copy_of_an_explanation_keeps_what_was_found_and_no_way_to_the_data() -> None:
    told = program(value=[20.0, 30.0, 12.0]).plan(2.0).explain()
    copy = pickle.loads(pickle.dumps(told))
    assert copy.changes == told.changes != () and copy.plan._forecaster is None and str(copy) == str(told)


def test_no_value_is_carried_to_what_is_varied() -> None:
    """Forecasts elsewhere are of problems without private values."""
    problem = program(value=[20.0, 30.0, 12.0])
    model = problem.plan(2.0)._forecaster.model.varied("sensitivity", 0.5)
    assert not any(p.has_value for p in model.problem.parameters())
    assert {p.name(): p.linf for p in model.problem.parameters()} == {"cost": 0.05, "need": 0.5}
    assert {p.name(): p.has_value for p in problem.parameters()} == {"cost": False, "need": True}


# ------------------------------------------------------------------ figures
def drawn(figure: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in figure.axes[0].get_lines()}


def test_errors_against_the_sensitivity_and_the_records() -> None:
    pytest.importorskip("matplotlib")
    plan = program().plan(2.0, 1e-6, feasibility="centred")
    figure = plan.plot([0.5, 1.0], against="sensitivity")
    name = plan.chosen.mechanism
    half, now = drawn(figure)[f"{name} (chosen)"].get_ydata()
    assert now == pytest.approx(plan.chosen.forecast.error.violation)
    assert half == pytest.approx(errors(program(0.5, 0.05), 2.0, name).violation)
    assert "sensitivity" in figure.axes[0].get_xlabel()
    plan = lasso(60).plan(1.0, 1e-6, mechanism=STATISTICS)
    figure = plan.plot([60, 120], against="records")
    now, more = drawn(figure)[f"{STATISTICS} (chosen)"].get_ydata()
    assert now == pytest.approx(plan.chosen.forecast.error.predicted) and more < now
    assert "records" in figure.axes[0].get_xlabel()


def test_axes_along_which_nothing_is_known_say_why() -> None:
    pytest.importorskip("matplotlib")
    plan = program().plan(2.0)
    for against, words in (("records", "how private numbers"), ("size", "epsilon")):
        with pytest.raises(dpm.errors.SpecificationError, match=words):
            plan.plot(against=against)
    with pytest.raises(dpm.errors.SpecificationError, match="regression"):
        lasso(60).plan(1.0, 1e-6, mechanism=STATISTICS).plot(against="sensitivity")
    with pytest.raises(dpm.errors.SpecificationError, match="multiples"):
        plan.plot([0.0], against="sensitivity")
    with pytest.raises(dpm.errors.SpecificationError, match="need the problem"):
        type(plan).from_json(plan.to_json()).plot(against="sensitivity")


def test_at_delta_0_a_plan_says_what_the_smallest_delta_would_give():
    """Of rows with a 2-norm Gaussian noise is less than Laplace noise; not of one column, and not at delta > 0."""
    said = {}
    for columns, delta in ((40, 0.0), (1, 0.0), (40, 1e-6)):
        records = dpm.Records("rows")
        X = dpm.Private(shape=(3000, columns), name="X", unit="row", max_l2=1.0, records=records)
        t = dpm.Private(shape=3000, name="t", unit="entry", bounds=(0, 1), records=records)
        z = X @ cp.Variable(columns)
        problem = dpm.Problem(cp.Minimize(cp.sum(cp.huber(z - t)) / 3000))
        said[columns, delta] = problem.plan(epsilon=1, delta=delta)._better
    assert "with delta 1e-12 (objective-perturbation), excess risk" in said[40, 0.0]
    assert "delta" not in said[1, 0.0] + said[40, 1e-6]
