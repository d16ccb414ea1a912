"""Mechanisms from elsewhere, and ones that fail: named, held to the budget, and never the end of a solve."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.contract import YES, Mechanism, Outcome, Serves, Verdict
from dpmodel.forecast import Forecast, Violation
from dpmodel.marks.measured import Measured
from dpmodel.programs.model import Program
from dpmodel.programs.noise_once import LAPLACE_ONCE
from dpmodel.solve import registry
from dpmodel.solve.registry import by_name

SECRET = 7321.4375


class Plugin(Mechanism[Program]):
    """Does as it is told."""

    name, source, serves = "plugin", "a test", Serves(Program)

    def __init__(self, forecast: Any = None, outcome: Any = None, error: BaseException | None = None) -> None:
        plain = Forecast(statement="exact", epsilon=1.0, delta=0.0, beta=0.05, error=Violation(violation=0.0))
        self.told, self.outcome, self.error = plain if forecast is None else forecast, outcome, error
        self.runs = 0

    def eligible(self, model: Any, options: Any) -> Verdict:
        if self.error is not None:
            raise self.error
        return YES

    def forecast(self, model: Any, options: Any) -> Any:
        return self.told(model) if callable(self.told) else self.told

    def run(self, model: Any, options: Any, noise: Any, progress: Any = None) -> Any:
        self.runs += 1
        return self.outcome


def demands() -> dpm.Problem:
    b = dpm.Private([SECRET, 30.0], name="b", unit="entry", linf=1)
    x = cp.Variable(2, bounds=[0, 1e4], name="x")
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b])


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "KINDS", dict(registry.KINDS))
    from dpmodel.solve import planner

    monkeypatch.setattr(planner, "KINDS", registry.KINDS)


GOOD = Forecast(statement="exact", epsilon=1.0, delta=0.0, beta=0.05, error=Violation(violation=0.0))
GREEDY = {
    "epsilon": replace(GOOD, epsilon=5.0),
    "delta": replace(GOOD, delta=1e-3),
    "nan": replace(GOOD, epsilon=float("nan")),
    "no forecast": lambda model: None,
    "a number": lambda model: 3,
}


@pytest.mark.parametrize("kind", GREEDY)
@pytest.mark.parametrize("registered", [False, True])
def test_a_forecast_beyond_the_budget_is_refused_by_name(kind: str, registered: bool) -> None:
    plugin, budget = Plugin(GREEDY[kind]), dpm.Budget(100.0, 0.5)
    if registered:
        dpm.register_mechanism(plugin)
    with pytest.raises(dpm.errors.UnsupportedModelError, match="plugin"):
        demands().solve(epsilon=1.0, mechanism="plugin" if registered else plugin, budget=budget, rng=0)
    assert budget.spent.epsilon == 0 and plugin.runs == 0
    if registered:  # and it never ends a solve that another can serve
        problem = demands()
        problem.solve(epsilon=1.0, rng=0)
        assert problem.release is not None and problem.release.mechanism == "laplace-once"
        assert "failed: " in str(problem.plan(1.0)) and "plugin" in str(problem.plan(1.0))


X = np.zeros(2)
NUMBERS_OF_B = Measured(
    [SECRET, 31.0], "truncated laplace", 1.0, ("b",), [0, 1], [0, 0], [0, 1], [1.0, 1.0], (2,), 1.0, 0.1, 9.0
)
WRONG = {
    "None": None,
    "a number": 3.0,
    "an array": X,
    "a short point": Outcome("optimal", np.zeros(1), None, None),
    "a matrix": Outcome("optimal", np.zeros((2, 1)), None, None),
    "no numbers": Outcome("optimal", ["a", "b"], None, None),  # type: ignore[arg-type]
    "nan": Outcome("optimal", np.array([0.0, np.nan]), None, None),
    "a value": Outcome("optimal", X, None, "3"),  # type: ignore[arg-type]
    "no numbers by name": Outcome("optimal", X, None, None, expected={"rows": "a"}),  # type: ignore[dict-item]
    "an estimate that is nan": Outcome("optimal", X, None, None, expected={"rows": float("nan")}),
    "estimates in a list": Outcome("optimal", X, None, None, expected=[1.0]),  # type: ignore[arg-type]
    "measured in a list": Outcome("optimal", X, None, None, measured=[NUMBERS_OF_B]),  # type: ignore[arg-type]
    "measured as an array": Outcome("optimal", X, None, None, measured=(X,)),  # type: ignore[arg-type]
    **{
        f"measured with {name}": Outcome("optimal", X, None, None, measured=(replace(NUMBERS_OF_B, **{name: wrong}),))
        for name, wrong in {
            "values": [SECRET, float("inf")],
            "coefficient": [1.0],
            "row": [0, 2],
            "parameter": [0, -1],
            "entry": [0, 2],
            "sizes": (),
            "parameters": (3,),
            "law": "uniform",
            "scale": 0.0,
            "half_width": 0.0,
            "epsilon": float("nan"),
        }.items()
    },
}


@pytest.mark.parametrize("kind", WRONG)
def test_an_outcome_of_the_wrong_form_is_refused_by_name(kind: str) -> None:
    with pytest.raises(dpm.DPModelError, match="plugin handed back") as caught:
        demands().solve(epsilon=1.0, mechanism=Plugin(outcome=WRONG[kind]), rng=0)
    assert "spent" in str(caught.value) and "7321" not in str(caught.value)


def test_numbers_that_a_plugin_measured_are_released_and_answered_again() -> None:
    problem = demands()
    well = Outcome("optimal", X, None, None, measured=(NUMBERS_OF_B,), expected={"rows": 2.0})
    problem.solve(epsilon=1.0, mechanism=Plugin(outcome=well), rng=0)
    assert problem.release.measured == (NUMBERS_OF_B,) and problem.release.estimates["rows"] == 2
    assert problem.resolve("centred") == pytest.approx(SECRET + 31)


@pytest.mark.parametrize("wrong", [3, Plugin, "laplace-once", None])
def test_what_is_no_mechanism_is_not_registered(wrong: Any) -> None:
    with pytest.raises(dpm.errors.SpecificationError, match="no mechanism"):
        dpm.register_mechanism(wrong)


class Dinner(Plugin):
    name, serves = "dinner", Serves(int)


def test_names_and_kinds_are_checked() -> None:
    dpm.register_mechanism(Plugin())
    with pytest.raises(dpm.errors.SpecificationError, match="there already"):
        dpm.register_mechanism(Plugin())
    with pytest.raises(dpm.errors.SpecificationError, match="serves"):
        dpm.register_mechanism(Dinner())


NUMBERS = (ZeroDivisionError(), OverflowError(), FloatingPointError(), np.linalg.LinAlgError("singular"))
DEFECTS = (IndexError("x"), NameError("x"), TypeError("x"), AttributeError("x"), KeyError("x"), AssertionError())
ERRORS = (*NUMBERS, *DEFECTS, MemoryError(), dpm.errors.SpecificationError("odd"))


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_a_mechanism_that_fails_to_plan_is_a_line_and_a_log_record(error: Exception, caplog: Any) -> None:
    dpm.register_mechanism(Plugin(error=error))
    problem = demands()
    with caplog.at_level(logging.WARNING, logger="dpmodel"):
        problem.solve(epsilon=1.0, rng=0)
    assert problem.release is not None and problem.release.mechanism == "laplace-once"
    assert any("plugin" in record.getMessage() for record in caplog.records)
    line = next(c for c in problem.plan(1.0).candidates if c.mechanism == "plugin")
    assert not line.eligible and line.reason.startswith("failed: ")
    with pytest.raises(dpm.errors.UnsupportedModelError, match="plugin"):
        demands().solve(epsilon=1.0, mechanism="plugin", rng=0)


@pytest.mark.parametrize("broken", ["eligible", "forecast"])
def test_each_mechanism_may_fail_and_the_next_serves(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other; where all have failed, a DPModelError."""

    def fail(*_: Any, **__: Any) -> Any:
        raise IndexError("index 3 is out of bounds")

    classes = {type(each) for each in registry.KINDS[Program].mechanisms}
    monkeypatch.setattr(type(LAPLACE_ONCE), broken, fail)
    assert demands().plan(1.0).chosen.mechanism not in ("laplace-once", "gaussian-once")
    for each in classes:
        monkeypatch.setattr(each, broken, fail)
    with pytest.raises(dpm.DPModelError, match="no mechanism serves"):
        demands().plan(1.0)
    with pytest.raises(dpm.DPModelError, match="no mechanism serves"):
        demands().solve(epsilon=1.0, rng=0)


@pytest.mark.parametrize("error", (*NUMBERS, *DEFECTS), ids=lambda e: type(e).__name__)
def test_numbers_are_blamed_for_arithmetic_only(error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """In a mechanism, which is named, and in the planner itself: a defect is called one, and the log has the place."""
    dpm.register_mechanism(Plugin(error=error))
    with caplog.at_level(logging.WARNING, logger="dpmodel"):
        line = next(c for c in demands().plan(1.0).candidates if c.mechanism == "plugin")
    assert type(error).__name__ in line.reason
    assert ("numbers of this model" in line.reason) == (error in NUMBERS)
    assert ("a defect of plugin" in line.reason) == (error in DEFECTS)
    assert any(record.exc_info and record.exc_info[1] is error for record in caplog.records)

    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(Program, "lower_bounds", fail)
    with pytest.raises(dpm.errors.UnsupportedModelError, match=type(error).__name__) as caught:
        demands().plan(1.0)
    assert ("numbers of this model" in caught.value.why) == (error in NUMBERS)
    assert ("a defect" in caught.value.why) == (error in DEFECTS)


class Stumbling(Plugin):
    """Leaves rows out, says nothing, and fails when it is run."""

    def run(self, model: Any, options: Any, noise: Any, progress: Any = None) -> Any:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


@pytest.mark.parametrize(
    "outcome", [ValueError("boom"), None, Outcome("optimal", np.zeros(7), None, None)], ids=["error", "none", "shape"]
)
def test_a_mechanism_that_fails_on_synthetic_databases_ends_no_plan(outcome: Any, caplog: Any) -> None:
    told = Forecast("some", 0.1, 0.0, 0.05, Violation(violation=1e9, slack_rows=1, private_rows=20, width=1.0))
    dpm.register_mechanism(Stumbling(told, outcome))
    A = dpm.Private(np.ones((20, 6)), name="A", unit="row", bounds=[0, 5])
    x = cp.Variable(6, bounds=[0, 1], name="x")
    plan = dpm.Problem(cp.Minimize(cp.sum(x)), [A @ x >= 1]).plan(0.1, 1e-6)
    assert plan.chosen.mechanism != "plugin"
    assert "plugin failed to plan" in caplog.text


def test_a_mechanism_that_fails_on_synthetic_rows_is_a_line(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """Where no statement decides, mechanisms run while they are planned."""
    engine = by_name("noisy-hinge-descent")

    def fail(*_: Any, **__: Any) -> Any:
        raise NameError("undefined")

    def lines() -> dict[str, Any]:
        A = dpm.Private(shape=(200, 6), name="A", unit="row", bounds=[0, 1], max_l1=3)
        x = cp.Variable(6, bounds=[0, 1], name="x")
        plan = dpm.Problem(cp.Minimize(0), [A @ x >= 1, cp.sum(x) <= 2]).plan(0.5, 1e-6)
        assert plan.chosen.eligible
        return {candidate.mechanism: candidate for candidate in plan.candidates}

    assert not np.isnan(lines()[engine.name].forecast.error.against_public)
    monkeypatch.setattr(type(engine), "run", fail)  # of every mechanism that is made of an engine
    with caplog.at_level(logging.WARNING, logger="dpmodel"):
        broken = lines()[engine.name]
    assert not broken.eligible and f"a defect of {engine.name}" in broken.reason
    assert any(engine.name in record.getMessage() for record in caplog.records)
