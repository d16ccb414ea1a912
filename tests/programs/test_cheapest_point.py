"""The cheapest point that passes: whom it serves and what it promises."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import binom

import dpmodel as dpm
from dpmodel.contract import Options
from dpmodel.marks import Private, Records
from dpmodel.privacy import SeededSource
from dpmodel.programs.points import PointExponential
from dpmodel.programs.rows import private_rows

MECHANISM = PointExponential(cheapest=True)
FALSE_ALARM = 1e-7
COST = np.array([1.0, 2.0, 3.0])


def ballots(voters: int, neighbors: Any = "replace-one", **declared: Any) -> tuple[dpm.Problem, Private]:
    how = declared or {"bounds": [0, 1]}
    A = Private(shape=(voters, 3), name="A", unit="row", records=Records(neighbors=neighbors), **how)
    x = cp.Variable(3, bounds=[0, 1])
    return dpm.Problem(cp.Minimize(COST @ x), [A @ x >= 1, cp.sum(x) <= 2.5]), A


def test_what_it_serves() -> None:
    def verdict(problem: dpm.Problem, **asked: Any) -> str:
        found = MECHANISM.eligible(problem._model(None), Options(1.0, 1e-6, **asked))
        return "" if found.eligible else found.reason

    problem, A = ballots(500)
    x = cp.Variable(3, bounds=[0, 1])
    assert verdict(problem) == ""
    assert "no target" in verdict(problem, target=1.0)
    assert "strict" in verdict(problem, feasibility="strict")
    assert "no objective" in verdict(dpm.Problem(cp.Minimize(0), [A @ x >= 1]))
    c = Private(shape=3, name="c", l1=1, records=A.records)
    assert "public objectives" in verdict(dpm.Problem(cp.Minimize(c @ x), [A @ x >= 1]))
    assert "private constraints" in verdict(dpm.Problem(cp.Minimize(c @ x), [x <= 1]))
    wide, y = Private(shape=(5, 30), name="W", unit="row", bounds=[0, 1]), cp.Variable(30, bounds=[0, 1])
    large = dpm.Problem(cp.Minimize(cp.sum(y)), [wide @ y >= 1, cp.sum(y) <= 9, y[0] + y[1] <= 1])
    assert "vertices=" in verdict(large)
    assert verdict(large, vertices=np.eye(30)) == ""


@pytest.mark.parametrize("case", ["net", "relative", "add-remove", "given points"])
def test_the_promise_holds(case: str) -> None:
    """Rows left out and objective, as often as promised (exact binomial tail); beta = 0.3 to make failures likely."""
    rng = np.random.default_rng(3)
    values = rng.permuted(np.tile([1.0, 0.6, 0.0], (400, 1)), axis=1)
    values = values[values @ [1.0, 0.9, 0.2] >= 1]
    how: dict[str, Any] = {"bounds": None} if case == "relative" else {"bounds": [0, 1]}
    problem, A = ballots(len(values), "add-remove" if case == "add-remove" else "replace-one", **how)
    A.value = values
    vertices = rng.random((200, 3)) @ np.diag([1, 1, 0.5]) if case == "given points" else None
    if vertices is not None:
        vertices[0] = [1.0, 1.0, 0.4]
    options = Options(2.0, 1e-6, beta=0.3, vertices=vertices, violation=0.15 if case != "relative" else 0.05)
    model = problem._model(None)
    forecast = MECHANISM.forecast(model, options)
    assert forecast.proved == (vertices is None) and forecast.delta == 0 and not forecast.vacuous
    G, h = private_rows(model).values(model.read_private())
    best = linprog(COST, G.toarray(), h, bounds=[(0, 1)] * 3).fun
    if vertices is not None:
        best = min(COST @ p for p in vertices if (G @ p <= h + options.violation).all())
    failures, cheap, runs = 0, 0, 80
    for seed in range(runs):
        outcome = MECHANISM.run(model, options, SeededSource(seed))
        assert outcome.x is not None and outcome.x.sum() <= 2.5 + 1e-9 and outcome.value == COST @ outcome.x
        out = int((G @ outcome.x - h > forecast.error.violation + 1e-9).sum())
        failures += out > forecast.error.slack_rows or outcome.value > best + forecast.error.objective + 1e-9
        cheap += outcome.value < best + forecast.error.objective / 2
    assert binom.sf(failures - 1, runs, 0.3) > FALSE_ALARM
    if vertices is None:
        assert cheap > 0.3 * runs  # the order by cost matters
