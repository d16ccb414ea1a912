"""How engines become mechanisms: targets, paid searches, penalties, private objectives, and who pays for what."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from replaying import Transcript

import dpmodel as dpm
from dpmodel._types import Floats
from dpmodel.contract import YES, Options, Outcome, Serves, Verdict
from dpmodel.known import capped
from dpmodel.privacy import SeededSource
from dpmodel.privacy.accounting import Spend
from dpmodel.programs.goals import (
    Point,
    Promise,
    Task,
    best_route,
    objective_design,
)
from dpmodel.programs.model import Program
from dpmodel.programs.nearly_feasible import NearlyFeasible
from dpmodel.programs.public import known_without_data
from dpmodel.programs.rows import private_rows

COST = np.array([1.0, 2.0, 4.0])


SERVES = Serves(Program, ("scalar low",))


@dataclass(eq=False)
class Recorder(NearlyFeasible):
    """An algorithm that solves exactly (not private): what it was asked stays in ``tasks``."""

    serves: Serves = SERVES
    takes_tilt: bool = True
    search_steps: int = 6
    gaussian_only: bool = False
    own_composition: bool = False
    error: float = 0.01
    slack: int = 0
    tasks: list[Task] = field(default_factory=list)
    name: str = "recorder"
    source: str = "none"

    def suits(self, model: Any, options: Options) -> Any:
        return YES

    def promise(self, task: Task) -> Promise:
        size = self.error * (1 + float(np.abs(task.tilt).max()))
        return Promise(size, 1.0, self.slack, private_rows(task.model).count, 1.0, "one solve")

    def point(self, task: Task, promise: Promise, theta: Floats, source: Any, progress: Any) -> Point:
        self.tasks.append(task)
        G, h = private_rows(task.model).values(theta)
        x, t = cp.Variable(task.polytope.size), cp.Variable(nonneg=True)
        rows = [task.polytope.A_ub @ x <= task.polytope.b_ub] if task.polytope.A_ub.shape[0] else []
        cp.Problem(
            cp.Minimize(task.tilt @ x + t), [G @ x - h <= t, x >= task.polytope.lower, x <= task.polytope.upper, *rows]
        ).solve(solver=cp.HIGHS)
        return Point(np.asarray(x.value))

    def excess(self, task: Task, promise: Promise, x: Floats, theta: Floats) -> float:
        G, h = private_rows(task.model).values(theta)
        return float(max(0.0, (G @ x - h).max()))

    def excess_sensitivity(self, task: Task) -> float:
        return 0.5

    def excess_limit(self, promise: Promise) -> float:
        return promise.alpha


def cover(maximize: bool = False, private_cost: bool = False) -> dpm.Problem:
    """Cheapest x in [0, 1]^3 with x_1 + x_2 >= 1 and x_2 + x_3 >= 1: x = (0, 1, 0), value 2."""
    A = dpm.Private([[1, 1, 0], [0, 1, 1]], name="A", unit="row", bounds=[0, 1])
    x = cp.Variable(3, bounds=[0, 1], name="x")
    c: Any = COST
    if private_cost:
        c = dpm.Private(COST, name="c", linf=1e-6, bounds=[0, 5])
    objective = cp.Maximize(-(c @ x)) if maximize else cp.Minimize(c @ x)
    return dpm.Problem(objective, [A @ x >= 1])


def run(engine: Recorder, problem: dpm.Problem, seed: int = 0, **asked: Any) -> tuple[Any, Outcome]:
    options = replace(Options(1e6, 1e-6), **asked)
    mechanism, model = engine, problem._model(None)
    verdict = mechanism.eligible(model, options)
    assert verdict.eligible, verdict.reason
    forecast = capped(mechanism.forecast(model, options), known_without_data(model))
    engine.tasks.clear()
    return forecast, mechanism.run(model, options, SeededSource(seed))


def test_target_is_a_public_row() -> None:
    engine = Recorder()
    forecast, outcome = run(engine, cover(), target=3.0, goal="target")
    assert outcome.x is not None and COST @ outcome.x <= 3 + 1e-9
    assert len(engine.tasks) == 1 and not engine.tasks[0].tilted
    assert "at most the target 3" in forecast.statement and math.isnan(forecast.error.objective)
    assert forecast.error.violation == pytest.approx(engine.error)


def test_penalty_promises_what_its_algebra_says() -> None:
    engine = Recorder()
    forecast, outcome = run(engine, cover(), goal="penalty", penalty=20.0)
    task = engine.tasks[0]
    np.testing.assert_allclose(task.tilt, COST / 20)
    error = engine.error * (1 + COST.max() / 20)
    span = 7.0
    assert forecast.error.objective == pytest.approx(20 * error, rel=1e-4)
    assert forecast.error.violation == pytest.approx(error + span / 20, rel=1e-4)
    # The exact penalty at a weight above the largest multiplier gives the true optimum.
    np.testing.assert_allclose(outcome.x, [0, 1, 0], atol=1e-6)


def test_penalty_weight_is_chosen_from_public_facts() -> None:
    engine = Recorder()
    forecast, _ = run(engine, cover(), goal="penalty")
    weight = forecast.noise["objective treated by"]["weight"]
    assert weight == pytest.approx(7 * math.sqrt(1 / engine.error), rel=1e-3)
    twin = cover()
    twin.parameters()[0].value = np.eye(2, 3)
    other, _ = run(Recorder(), twin, goal="penalty")
    assert other == forecast


@pytest.mark.parametrize("private_cost", [False, True])
def test_search_finds_the_optimum(private_cost: bool) -> None:
    engine = Recorder(search_steps=12, error=1e-9)
    forecast, outcome = run(engine, cover(private_cost=private_cost), goal="search", delta=0.0, epsilon=1e9)
    assert outcome.x is not None
    steps = forecast.noise["objective treated by"]["runs"]
    assert len(engine.tasks) == steps - 1 == 11  # some target passed: the run without one is not made
    assert COST @ outcome.x <= 2 + 7.0 * 2.0 ** (1 - steps) * (2 if private_cost else 1) + 1e-3
    assert forecast.error.objective == pytest.approx(forecast.error.span * 2.0 ** (1 - steps), abs=1e-3)


@pytest.mark.parametrize(("answer", "all_pass"), [(-1e12, True), (1e12, False)])
@pytest.mark.parametrize("values", [[[1, 1, 0], [0, 1, 1]], np.zeros((2, 3)), np.ones((2, 3))])
def test_answers_alone_decide_which_targets_pass(values: Any, answer: float, all_pass: bool) -> None:
    """Whatever the data say: what is drawn and then not used would pass every test of what is drawn."""

    class Answering(SeededSource):
        def laplace(self, values: object, scale: float) -> Floats:
            return np.full(np.shape(values), answer)  # type: ignore[arg-type]

    problem = cover()
    problem.parameters()[0].value = values
    model, options = problem._model(None), Options(1.0, 0.0, goal="search")
    mechanism = Recorder()
    tests = mechanism.forecast(model, options).noise["objective treated by"]["runs"] - 1  # type: ignore[index]
    assert tests >= 1
    notes = mechanism.run(model, options, Answering(0)).notes
    assert len(mechanism.tasks) == tests + (not all_pass)  # without a target only where none passed
    assert any(f"search: {tests * all_pass} of {tests} targets passed" in note for note in notes)


def test_a_search_leaves_room_for_its_tests_in_the_rows_asked_for() -> None:
    engine = Recorder(serves=Serves(Program, leaves_out=True), slack=1)
    model, mechanism = cover()._model(None), engine
    ample = Options(1e6, 0.0, goal="search", slack_rows=2)
    assert mechanism.eligible(model, ample).eligible
    assert mechanism.forecast(model, ample).error.slack_rows <= 2
    # Tests at this budget err by more than two rows: there is no room.
    assert isinstance(mechanism.forecast(model, Options(1.0, 0.0, goal="search", slack_rows=2)), Verdict)


def test_a_private_objective_is_measured_once_with_its_own_half() -> None:
    engine, source = Recorder(), Transcript(3)
    problem = cover(private_cost=True)
    model, options = problem._model(None), Options(1.0, 0.0, goal="penalty")
    mechanism = engine
    forecast = mechanism.forecast(model, options)
    engine.tasks.clear()
    mechanism.run(model, options, source)
    assert len(engine.tasks) == 1 and engine.tasks[0].epsilon == 0.5
    (draw,) = source.draws
    assert draw.arguments[0] == pytest.approx(3e-6 / 0.5, rel=2e-3)  # l1 change of three entries
    assert forecast.noise["objective"]["distribution"]["distribution"] == "laplace"


@pytest.mark.parametrize("goal", ["target", "search", "penalty"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("gaussian_only", [False, True])
def test_an_objective_and_its_engine_share_one_budget(delta: float, gaussian_only: bool, goal: Any) -> None:
    """Epsilons add up, and so do deltas: of the objective's measurement, and of what the engine was given, which is no
    more than half of the whole in any currency."""
    engine = Recorder(gaussian_only=gaussian_only)
    model, mechanism = cover(private_cost=True)._model(None), engine
    options = Options(1.0, delta, goal=goal, target=3.0 if goal == "target" else None)
    mechanism.forecast(model, options)
    measured = objective_design(model, options)
    assert measured is not None
    engine.tasks.clear()
    mechanism.run(model, options, SeededSource(1))
    route = best_route(model, engine, options)
    assert route is not None
    for task in engine.tasks if goal != "search" else [route.whole]:
        assert measured.epsilon + task.epsilon <= 1 + 1e-12 and measured.delta + task.delta <= delta
        half = Spend.of(0.5, delta / 2, gaussian_only=gaussian_only)
        assert task.spend.rho == half.rho and task.spend.epsilon == half.epsilon


def test_without_a_bounded_objective_the_reason_is_given() -> None:
    A = dpm.Private([[1.0, 1.0]], name="A", unit="row", bounds=[0, 1])
    c = dpm.Private([1.0, 2.0], name="c", linf=0.1)  # no range: no public span
    x = cp.Variable(2, bounds=[0, 1], name="x")
    problem = dpm.Problem(cp.Minimize(c @ x), [A @ x >= 1])
    verdict = Recorder().forecast(problem._model(None), Options(1.0, 1e-6))
    assert isinstance(verdict, Verdict) and "do not bound the objective" in verdict.reason


def test_promises_that_say_nothing_are_called_so() -> None:
    forecast, _ = run(Recorder(error=5.0), cover(), target=3.0)
    assert forecast.vacuous and forecast.statement.startswith("no guarantee at this size")
    forecast, _ = run(Recorder(slack=2), cover(), target=3.0)
    assert forecast.vacuous
    forecast, _ = run(Recorder(slack=1), cover(), target=3.0)
    assert not forecast.vacuous and "all but 1 of the 2 private constraints" in forecast.statement
