"""One run for one charge, and no private time: broken mechanisms and a clock that moves while data are read."""

from __future__ import annotations

import re
import time
import warnings
from typing import Any

import cvxpy as cp
import numpy as np
import polars as pl
import pytest

import dpmodel as dpm
from dpmodel.contract import YES, Mechanism, Outcome, Serves, no_progress
from dpmodel.forecast import Forecast, Violation
from dpmodel.numerics.cone_program import SolverFailure
from dpmodel.privacy import Cost
from dpmodel.programs.model import Program
from dpmodel.solve.wall import charge_then_run

FAILURES = [
    SolverFailure("no answer"),
    ValueError("x"),
    MemoryError(),
    KeyboardInterrupt(),
    SystemExit(3),
    RecursionError(),
]


def lp(mechanism: Any = "laplace-once") -> tuple[dpm.Problem, dict[str, Any]]:
    x = cp.Variable(2, name="x", bounds=[0, 9])
    b = dpm.Private([1.0, 2.0], name="b", unit="entry", linf=1)
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b]), {"epsilon": 1, "rng": 0, "mechanism": mechanism}


class Failing(Mechanism[Program]):
    """Reads, then fails: every time, or the first time only."""

    name, source, serves = "failing", "for this test", Serves(Program)

    def __init__(self, error: BaseException, times: float) -> None:
        self.error, self.times, self.runs = error, times, 0

    def eligible(self, model: Any, options: Any) -> Any:
        return YES

    def forecast(self, model: Any, options: Any) -> Forecast:
        return Forecast("nothing", options.epsilon, options.delta, options.beta, Violation())

    def run(self, model: Any, options: Any, noise: Any, progress: Any = None) -> Outcome:
        self.runs += 1
        model.read_private()
        if self.runs <= self.times:
            raise self.error
        return Outcome("optimal", np.zeros(model.affine.variables), None, None)


@pytest.mark.parametrize("times", [1, 2, np.inf])
@pytest.mark.parametrize("error", FAILURES, ids=repr)
def test_a_run_that_fails_is_not_run_again(error: BaseException, times: float) -> None:
    """A second run would read again, under one charge."""
    mechanism = Failing(error, times)
    problem, how = lp(mechanism)
    budget = dpm.Budget(5)
    try:
        problem.solve(**how, budget=budget)
    except BaseException as caught:
        assert isinstance(caught, (dpm.DPModelError, KeyboardInterrupt, SystemExit))
    assert mechanism.runs == 1 and budget.spent.epsilon == 1
    assert problem.release.status in ("solver_error", "stopped") and not problem.release.variables
    assert problem.release.spent == (1, 0)


@pytest.mark.parametrize("error", FAILURES, ids=repr)
def test_nor_by_the_wall_alone(error: BaseException) -> None:
    mechanism = Failing(error, 1)
    problem, _ = lp(mechanism)
    model, budget = problem._model(None), dpm.Budget(1)
    outcome, failure = charge_then_run(
        lambda report: mechanism.run(model, None, None, report),
        name="failing",
        budget=budget,
        cost=Cost.pure(1.0),
        label="a test",
        report=no_progress,
    )
    assert mechanism.runs == 1 and outcome is None and failure is not None and budget.spent.epsilon == 1
    assert failure.__cause__ is None is failure.__context__ and failure.__traceback__ is None


def regression() -> tuple[dpm.Problem, dict[str, Any]]:
    rng = np.random.default_rng(0)
    X = dpm.Private(rng.uniform(-1, 1, (200, 2)), name="X", unit="row", bounds=[-1, 1])
    y = dpm.Private(rng.uniform(-1, 1, 200), name="y", unit="row", bounds=[-1, 1])
    w = cp.Variable(2, name="w")
    problem = dpm.Problem(cp.Minimize(cp.sum_squares(X @ w - y)), [cp.norm1(w) <= 1])
    return problem, {"epsilon": 1, "delta": 1e-6, "rng": 0}


ENTRIES = {
    "laplace-once": lambda: lp(),
    "gaussian-once": lambda: (lp()[0], {"epsilon": 1, "delta": 1e-6, "rng": 0, "mechanism": "gaussian-once"}),
    **{
        name: lambda name=name: (regression()[0], {**regression()[1], "mechanism": name})
        for name in ("sufficient-statistics", "noisy-descent", "frank-wolfe", "objective-perturbation")
    },
}


@pytest.mark.parametrize("name", ENTRIES)
def test_no_time_that_private_data_can_move_is_reported(name: str, monkeypatch: Any) -> None:
    """The clock jumps by an hour whenever private values are read; no timing may show it."""
    problem, how = ENTRIES[name]()
    problem.plan(**{key: value for key, value in how.items() if key != "rng"})
    hours = 0.0
    real = time.perf_counter
    from dpmodel.marks import vault

    read = vault.unseal

    def slow(*given: Any) -> Any:
        nonlocal hours
        hours += 3600.0
        return read(*given)

    monkeypatch.setattr(vault, "unseal", slow)
    monkeypatch.setattr(time, "perf_counter", lambda: real() + hours)
    problem.solve(**how)
    release = problem.release
    assert hours > 0 and release.timings
    assert all(0 <= seconds < 3600 for seconds in release.timings.values())
    untimed = [note for note in release.notes if "how long the run took is not released" in note]
    assert ("solve" in release.timings) != bool(untimed)
    if "solve" in release.timings:
        assert release.timings["solve"] > 0


def test_timings_of_learners_tell_the_planning(monkeypatch: Any) -> None:
    """Planning is public work and most of a fit: all of it is done under the clock of ``solve``, which tells it."""
    from dpmodel.learn import PrivateLinearRegression

    def elsewhere(*given: Any, **named: Any) -> None:
        raise AssertionError("planned beforehand, where no clock looks")

    monkeypatch.setattr(dpm.Problem, "plan", elsewhere)
    rng = np.random.default_rng(0)
    model = PrivateLinearRegression(
        epsilon=1.0, delta=1e-6, bounds=(-1, 1), label_bounds=(-1, 1), random_state=0, mechanism="noisy-descent"
    )
    model.fit(rng.uniform(-1, 1, (200, 2)), rng.uniform(-1, 1, 200))
    assert model.release_.timings["plan"] > 0 and "solve" not in model.release_.timings
    assert model.plan_.chosen.mechanism == "noisy-descent"


@pytest.mark.parametrize(
    "epsilon, delta, said",
    [
        (10.0, 0.0, ""),
        (10.5, 0.0, "epsilon 10.5 hardly"),
        (1.0, 1 / 61, ""),
        (1.0, 1 / 59, "one record in 59 .*n = 60"),
        (50.0, 0.5, "epsilon 50 .*; delta 0.5 "),
    ],
)
def test_what_promises_next_to_nothing_warns_once_before_the_charge(epsilon: float, delta: float, said: str) -> None:
    budget = dpm.Budget(200.0, 0.6)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", dpm.errors.NotPrivateWarning)
        dpm.measure(_counts(60), epsilon, delta, budget=budget, distribution=_law(delta))
    assert len(caught) == bool(said) and all(re.search(said, str(each.message)) for each in caught)
    assert all(each.filename == __file__ for each in caught)
    if said:
        with warnings.catch_warnings(), pytest.raises(dpm.errors.NotPrivateWarning):
            warnings.simplefilter("error", dpm.errors.NotPrivateWarning)
            dpm.measure(_counts(60), epsilon, delta, budget=budget, distribution=_law(delta))
    assert len(budget.history) == 1


@pytest.mark.parametrize("records", [60, 61])
def test_a_number_of_records_that_is_not_public_is_not_in_the_warning(records: int) -> None:
    """Under add-remove it is private: the limit is 1/100 whatever it is."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", dpm.errors.NotPrivateWarning)
        dpm.measure(_counts(records, "add-remove"), 1.0, 0.0099, distribution="gaussian")
        assert not caught
        dpm.measure(_counts(records, "add-remove"), 1.0, 0.01, distribution="gaussian")
    assert [str(each.message) for each in caught] == [
        "delta 0.01 would let one record in 100 be published as it is: take far less than 1/n, such as 1e-6"
    ]


def _law(delta: float) -> Any:
    return "gaussian" if delta else "laplace"


def _counts(records: int, neighbors: Any = "replace-one") -> Any:
    frame = pl.DataFrame({"town": ["a", "b", "b"] * records}).head(records)
    return dpm.Dataset(frame, domain={"town": ["a", "b"]}, neighbors=neighbors).count("town")
