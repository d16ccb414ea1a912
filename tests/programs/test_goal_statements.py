"""What engines promise under every way to treat the objective, against runs on data made to break it.

Every mechanism x goal x option: rows that all bind at the optimum, a target that the optimum just reaches, a private
objective whose noise is as large as the statement allows for. A statement that holds with probability 1 - beta is
rejected with probability at most 1e-7 per test (exact binomial tail).
"""

from __future__ import annotations

import warnings
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from families import PORTFOLIO
from scipy.stats import binom

import dpmodel as dpm
from dpmodel.contract import Options, Outcome
from dpmodel.forecast import Forecast
from dpmodel.privacy import SeededSource
from dpmodel.programs.goals import Point
from dpmodel.programs.model import Program
from dpmodel.programs.nearly_feasible import NearlyFeasible
from dpmodel.programs.noise_once import objective_loss
from dpmodel.programs.rows import private_rows, public_polyhedron
from dpmodel.solve.registry import by_name

FALSE_ALARM, BETA, TOLERANCE = 1e-7, 0.01, 1e-5
COST = np.array([1.0, 2.0])
ENGINES = [mechanism for mechanism in PORTFOLIO if isinstance(mechanism, NearlyFeasible)]
KINDS = ("rows", "sides", "coefficients")
GOALS = ("target", "search", "penalty")
ASKED: dict[str, dict[str, Any]] = {"nothing": {}, "rows": {"slack_rows": 40}, "alpha": {"violation": 0.2}}


def problem(kind: str, private_cost: bool) -> dpm.Problem:
    """Least cost of two columns under 200 rows, half of which ask for each column: the optimum is (.8, .8)."""
    x = cp.Variable(2, bounds=[0, 1], name="x")
    half = np.repeat(np.eye(2), 100, axis=0)
    c: Any = dpm.Private(COST, name="c", linf=0.2, bounds=[0, 4]) if private_cost else COST
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # public numbers of the same shape, on purpose
        if kind == "rows":
            rows = dpm.Private(half, name="A", unit="row", bounds=[0, 1]) @ x >= 0.8
        elif kind == "sides":
            b = dpm.Private(np.full(200, -0.8), name="b", unit="entry", linf=1e-3, bounds=[-1, 0])
            rows = -half @ x <= b
        else:
            rows = dpm.Private(half, name="A", unit="row", linf=1e-3, l1=2e-3, bounds=[0, 1]) @ x >= 0.8
        return dpm.Problem(cp.Minimize(c @ x), [rows])


OPTIMUM = 2.4


def options_for(goal: Any, ask: str, delta: float, epsilon: float) -> Options:
    target = OPTIMUM if goal == "target" else None
    return Options(epsilon, delta, BETA, goal=goal, target=target, **ASKED[ask])


def broken(model: Program, forecast: Any, outcome: Outcome) -> bool:
    """Whether one release breaks what was said of it."""
    if outcome.x is None:
        return True  # a feasible point reaches the target, so the released set must not be empty
    way = forecast.noise["objective treated by"]
    allowed = way["target missed by"] if way["way"] == "target" else forecast.error.objective
    G, h = private_rows(model).values(model.read_private())
    left_out = int((G @ outcome.x - h > forecast.error.violation + outcome.extra_violation + TOLERANCE).sum())
    dear = COST @ outcome.x > OPTIMUM + allowed + TOLERANCE
    return bool(
        left_out > forecast.error.slack_rows or dear or public_polyhedron(model).violation(outcome.x) > TOLERANCE
    )


def failures(mechanism: Any, model: Program, options: Options, runs: int) -> int:
    forecast = mechanism.forecast(model, options)
    return sum(broken(model, forecast, mechanism.run(model, options, SeededSource(s))) for s in range(runs))


def plausible(failed: int, runs: int) -> bool:
    return failed == 0 or float(binom.sf(failed - 1, runs, BETA)) > FALSE_ALARM


def served(kind: str, private_cost: bool, goal: str, runs: int, settings: Any) -> list[tuple[Any, ...]]:
    """(mechanism, asked, delta, epsilon, failures) of every engine that serves."""
    model, out = problem(kind, private_cost)._model(None), []
    for ask, delta, epsilon in settings:
        options = options_for(goal, ask, delta, epsilon)
        for mechanism in ENGINES:
            if not mechanism.eligible(model, options).eligible:
                continue
            if isinstance(mechanism.forecast(model, options), Forecast):
                out.append((mechanism.name, ask, delta, epsilon, failures(mechanism, model, options, runs)))
    return out


def check(kind: str, private_cost: bool, goal: str, runs: int, settings: Any) -> None:
    found = served(kind, private_cost, goal, runs, settings)
    print(found)
    assert found
    assert all(plausible(case[-1], runs) for case in found), found


QUICK, RUNS = [("nothing", 1e-6, 2.0)], 24


@pytest.mark.parametrize("goal", ["target", "penalty"])
def test_goals_with_a_private_objective_are_kept(goal: str) -> None:
    check("rows", True, goal, RUNS, QUICK)


def test_a_target_without_the_noise_of_its_objective_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the released objective were the true one."""
    for bound in ("objective_loss", "objective_noise"):
        monkeypatch.setattr(f"dpmodel.programs.nearly_feasible.{bound}", lambda model, noise: 0.0)
    found = served("rows", True, "target", RUNS, QUICK)
    wrong = {name for name, *_, failed in found if not plausible(failed, RUNS)}
    assert wrong >= {"noisy-hinge-descent", "dense-multiplicative-weights", "point-exponential"}, found


def cut_off(monkeypatch: pytest.MonkeyPatch, runs: int) -> int:
    """Released objectives whose cut leaves out a point that reaches the target; no engine runs."""
    x, best = cp.Variable(2, bounds=[0, 1], name="x"), np.array([0.0, 0.5])
    c = dpm.Private(np.array([0.0, 1.0]), name="c", linf=3.0, bounds=[0, 4])
    rows = dpm.Private(np.repeat(np.eye(2), 20, axis=0), name="A", unit="row", bounds=[0, 1])
    model = dpm.Problem(cp.Minimize(c @ x), [rows @ x >= 0.5, cp.sum(x) >= 0.5, cp.sum(x) <= 0.5])._model(None)
    left_out: list[bool] = []

    def look(self: Any, task: Any, route: Any, cost: np.ndarray, cut: float, *_: Any) -> tuple[Any, Point]:
        left_out.append(bool(cost @ best > cut + TOLERANCE))
        return route.promise, Point(best)

    monkeypatch.setattr(NearlyFeasible, "_run_below", look)
    options, mechanism = Options(1.0, 1e-6, BETA, goal="target", target=0.5), by_name("point-exponential")
    empty = [mechanism.run(model, options, SeededSource(s)).x is None for s in range(runs)]  # type: ignore[union-attr]
    return sum(empty) + sum(left_out)


def test_noise_beyond_all_that_points_differ_by_cuts_off_no_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss is capped by what any public point loses; the room for the noise of an objective is not."""
    assert plausible(cut_off(monkeypatch, 100), 100)
    monkeypatch.setattr("dpmodel.programs.nearly_feasible.objective_noise", objective_loss)
    assert not plausible(cut_off(monkeypatch, 100), 100)


@pytest.mark.slow
@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("private_cost", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_engine_keeps_every_goal(kind: str, private_cost: bool, goal: str) -> None:
    budgets = [(0.0, 2.0), (1e-6, 2.0)] + ([(1e-6, 50.0)] if goal != "search" else [])
    check(kind, private_cost, goal, 12, [(ask, *budget) for ask in ASKED for budget in budgets])
