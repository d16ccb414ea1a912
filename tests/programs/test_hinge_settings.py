"""Settings by simulation: more budget does not hurt, on ballots that the settings were not drawn from."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import mannwhitneyu

import dpmodel as dpm
from dpmodel.contract import Options
from dpmodel.privacy import SeededSource
from dpmodel.programs.goals import best_route, with_promise
from dpmodel.programs.hinge import NOISY_HINGE_DESCENT as ENGINE
from dpmodel.programs.hinge import NoisyHingeDescent
from dpmodel.programs.model import Program
from dpmodel.programs.nearly_feasible import settle
from dpmodel.programs.rows import private_rows

FALSE_ALARM, SEEDS = 1e-6, range(16)
HINGE = ENGINE


def ballots(voters: int, projects: int, most: int, spread: float, seed: int) -> np.ndarray:
    """(voters, projects) approvals: each voter up to ``most``, by popularity and taste."""
    rng = np.random.default_rng(seed)
    popular = spread * rng.normal(size=projects)
    out = np.zeros((voters, projects))
    for row, count in zip(out, rng.integers(1, most + 1, voters), strict=True):
        row[np.argsort(-(popular + rng.gumbel(size=projects)))[:count]] = 1
    return out


def covering(approved: np.ndarray, priced: bool = False) -> dpm.Problem:
    """Cover every voter with 0.8 of the money that a full cover takes; ``priced``: as cheaply as possible instead."""
    voters, projects = approved.shape
    cost = np.random.default_rng(projects).uniform(0.5, 2, projects)
    full = linprog(cost, A_ub=-approved, b_ub=-np.ones(voters), bounds=(0, 1)).fun
    A = dpm.Private(approved, name="A", unit="row", bounds=[0, 1], max_l1=int(approved.sum(axis=1).max()))
    x = cp.Variable(projects, bounds=[0, 1], name="x")
    if priced:
        return dpm.Problem(cp.Minimize(cost @ x), [A @ x >= 1])
    return dpm.Problem(cp.Minimize(0), [A @ x >= 1, cost @ x <= 0.8 * full])


def short(approved: np.ndarray, model: Program, epsilon: float, delta: float) -> np.ndarray:
    """(seeds,) mean shortfall of a voter."""
    options = Options(epsilon, delta)
    points = (HINGE.run(model, options, SeededSource(seed)).x for seed in SEEDS)
    return np.array([np.maximum(1 - approved @ x, 0).mean() for x in points])


CASES = [(4000, 20, 6, 1.0), (600, 20, 6, 0.5), (2000, 40, 10, 2.0)]


def judge(
    case: tuple[int, int, int, float], delta: float, epsilons: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
) -> list[str]:
    """What gets worse with more budget: exact one-sided rank tests of the mean shortfall at neighbouring budgets,
    beyond a fiftieth of it (settings are chosen on other ballots). False alarms below FALSE_ALARM in all."""
    approved = ballots(*case, seed=5)
    model = covering(approved)._model(None)
    found = {epsilon: short(approved, model, epsilon, delta) for epsilon in epsilons}
    broken = []
    for less, more in itertools.pairwise(found):
        test = mannwhitneyu(found[more] * 0.98, found[less], alternative="greater", method="exact")
        if test.pvalue <= FALSE_ALARM / (len(found) - 1):
            medians = np.median(found[less]), np.median(found[more])
            broken.append(f"{medians[0]:.5f} at epsilon {less}, {medians[1]:.5f} at {more}")
    return broken


@pytest.mark.slow
@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_more_budget_does_not_hurt(case: tuple[int, int, int, float], delta: float) -> None:
    assert not judge(case, delta)


def test_the_best_statement_is_run_where_one_was_asked_for() -> None:
    model = covering(ballots(300, 8, 3, 1.0, 0))._model(None)
    for options in (
        Options(1.0, 1e-6, slack_rows=30),
        Options(1.0, 1e-6, violation=0.1),
        Options(1, 1e-6, by_proof=True),
    ):
        assert settle(model, ENGINE, options) is best_route(model, ENGINE, options)


@pytest.mark.parametrize("steps", [10, 40])
def test_the_settings_that_do_best_without_data_are_run(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that covers everybody with so many steps and nobody else: those settings are taken, no data read."""

    def good_at(self: Any, task: Any, promise: Any, *rest: Any) -> Any:
        from dpmodel.programs.goals import Point

        return Point(np.full(task.polytope.size, float(promise.plan.steps == steps)))

    def refused(self: Program) -> Any:
        raise AssertionError("settings read no private value")

    monkeypatch.setattr(NoisyHingeDescent, "point", good_at)
    monkeypatch.setattr(Program, "read_private", refused)
    for priced in (False, True):
        model = covering(ballots(100, 8, 3, 1.0, 0), priced=priced)._model(None)
        options = Options(1.0, 1e-6, goal="penalty" if priced else "auto")
        route = settle(model, ENGINE, options)
        assert route.promise.plan.steps == steps
        assert HINGE.forecast(model, options).noise["steps"] == steps


@pytest.mark.parametrize("priced", [False, True])
def test_other_settings_state_their_own_error(priced: bool) -> None:
    """The statement of a way to treat the objective follows from that of its engine, whichever settings are run."""
    model = covering(ballots(300, 8, 3, 1.0, 0), priced=priced)._model(None)
    options = Options(1.0, 1e-6, goal="penalty" if priced else "auto")
    route = best_route(model, ENGINE, options)
    assert route is not None and len(route.promise.others()) > 2
    same = with_promise(route, route.promise)
    assert same == replace(route, violation=pytest.approx(route.violation))
    for promise in route.promise.others():
        other = with_promise(route, promise)
        assert other.violation >= promise.alpha and other.slack_rows == promise.slack_rows
        if priced:
            assert other.objective_alpha == pytest.approx(route.weight * promise.error)
    assert private_rows(model).count == route.promise.rows
