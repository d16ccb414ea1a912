"""A noised objective is minimised from the vertex where the bound on the noise was found: the same optimum, sooner."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.numerics.cone_program import solve_cone_program
from dpmodel.programs import feasibility as module


def flow(seed: int, **variable: Any) -> dpm.Problem:
    """Cheapest flows over a random network with capacities; costs are private."""
    rng = np.random.default_rng(seed)
    arcs = np.array([(i, j) for i in range(8) for j in range(8) if i != j and rng.random() < 0.7])
    net = np.zeros((8, len(arcs)))
    net[arcs[:, 0], range(len(arcs))], net[arcs[:, 1], range(len(arcs))] = 1.0, -1.0
    send = np.zeros(8)
    send[0], send[7] = 3.0, -3.0
    x = cp.Variable(len(arcs), name="x", **variable)
    c = dpm.Private(rng.uniform(1, 5, len(arcs)), name="costs", unit="entry", linf=0.1, bounds=[0, 6])
    return dpm.Problem(cp.Minimize(c @ x), [net @ x == send, x >= 0, x <= 2, cp.sum(x[:5]) <= 4])


@pytest.mark.parametrize("seed", range(4))
def test_the_same_optimum(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    solved = []

    def both(program: Any, *, start: Any = None, **given: Any) -> Any:
        warm = solve_cone_program(program, start=start, **given)
        solved.append((start, warm, solve_cone_program(program, **given), program.b))
        return warm

    monkeypatch.setattr(module, "solve_cone_program", both)
    for epsilon in (1.0, 5.0, 50.0):
        flow(seed).solve(epsilon=epsilon, rng=seed, mechanism="laplace-once")
    assert len(solved) == 3
    for start, warm, cold, b in solved:
        assert start is not None and warm.status == cold.status == "optimal"
        assert warm.value == pytest.approx(cold.value, rel=1e-9)
        assert b @ warm.dual == pytest.approx(b @ cold.dual, rel=1e-7)
    np.testing.assert_allclose(warm.x, cold.x, atol=1e-7)  # little noise, no cost at a bound: one vertex is best


def test_where_there_is_no_such_vertex() -> None:
    # At the last epsilon noise hides every cost, and no bound on it is looked for.
    for problem, solver, epsilon in ((flow(0, integer=True), None, 1), (flow(0), "CLARABEL", 1), (flow(0), None, 0.1)):
        problem.solve(epsilon=epsilon, rng=0, solver=solver, mechanism="laplace-once")
        assert problem._model(None).public.start is None or epsilon == 1
        assert problem.release is not None and problem.release.status == "optimal"


def test_runs_on_private_data_leave_it_as_it_is() -> None:
    """A released number that decided where a later solve begins would make that solve depend on this one's data."""
    problem = flow(1)
    problem.plan(epsilon=1.0, mechanism="laplace-once")
    public = problem._model(None).public
    start = public.start
    assert start is not None and start.arrays is not None
    statuses, cost = [each.value for each in start.vertex.basis.col_status], start.arrays.program.c.copy()
    for seed in range(3):
        problem.solve(epsilon=1.0, rng=seed, mechanism="laplace-once")
        assert public.start is start and [each.value for each in start.vertex.basis.col_status] == statuses
        assert np.array_equal(start.arrays.program.c, cost)
