"""The choice among vertices: what is recognised, how far scores move, and what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.marks import Private, Records
from dpmodel.programs.vertex import VertexExponential, _range, candidates

Write = Callable[[Any], list[Any]]
A = np.array([1.0, 2.0, 4.0])

# name -> constraints on x (3, nonneg) and the vertices expected, None where another set must not be recognised.
SETS: dict[str, tuple[Write, Any]] = {
    "simplex": (lambda x: [cp.sum(x) == 1], np.eye(3)),
    "scaled": (lambda x: [cp.sum(x) == 5], 5 * np.eye(3)),
    "weighted": (lambda x: [A @ x == 4], np.diag(4 / A)),
    "negated": (lambda x: [-(A @ x) == -4], np.diag(4 / A)),
    "below": (lambda x: [cp.sum(x) <= 2], np.vstack([2 * np.eye(3), np.zeros(3)])),
    "weighted below": (lambda x: [A @ x <= 4], np.vstack([np.diag(4 / A), np.zeros(3)])),
    "redundant bounds": (lambda x: [cp.sum(x) == 1, x <= 1, x[0] <= 7], np.eye(3)),
    "an extra row": (lambda x: [cp.sum(x) == 1, x[0] + x[1] >= 0.5], None),
    "a cutting bound": (lambda x: [cp.sum(x) == 1, x[2] <= 0.9], None),
    "a fixed entry": (lambda x: [cp.sum(x) == 1, x[1] == 0.25], None),
    "a raised lower bound": (lambda x: [cp.sum(x) == 1, x >= 0.1], None),
    "a missing column": (lambda x: [x[0] + x[1] == 1, x <= 1], None),
    "a sign": (lambda x: [x[0] + x[1] - x[2] == 1], None),
    "from above": (lambda x: [cp.sum(x) >= 1, x <= 5], None),
    "a norm": (lambda x: [cp.sum(x) == 1, cp.norm2(x) <= 0.8], None),
}


def build(name: str, maximise: bool = False, **declared: Any) -> tuple[dpm.Problem, Private, cp.Variable]:
    c = Private(shape=3, name="c", **(declared or {"l1": 1.0}))
    x = cp.Variable(3, nonneg=True)
    side = cp.Maximize if maximise else cp.Minimize
    return dpm.Problem(side(c @ x), SETS[name][0](x)), c, x


@pytest.mark.parametrize("maximise", [False, True])
@pytest.mark.parametrize("name", SETS)
def test_which_sets_are_recognised(name: str, maximise: bool) -> None:
    problem, c, x = build(name, maximise)
    found = candidates(problem._model(None), None)
    expected = SETS[name][1]
    assert (found is None) == (expected is None)
    if found is None or expected is None:
        return
    points = found.points.toarray()
    assert found.all_vertices
    assert sorted(map(tuple, np.round(points, 12))) == sorted(map(tuple, np.round(expected, 12)))
    # Their best is the optimum, for random objectives.
    rng = np.random.default_rng(1)
    for _ in range(5):
        cost = rng.normal(size=3)
        best = cp.Problem((cp.Maximize if maximise else cp.Minimize)(cost @ x), problem.constraints).solve()
        over = points @ cost
        assert best == pytest.approx(over.max() if maximise else over.min(), abs=1e-6)
    # A large epsilon finds it, and the objective is not released.
    c.value = [3.0, 1.0, 2.0]
    assert problem.solve(epsilon=1e6, mechanism="vertex-exponential", rng=1) is None
    scores = points @ np.array([3.0, 1.0, 2.0])
    assert np.array([3.0, 1.0, 2.0]) @ x.value == pytest.approx(scores.max() if maximise else scores.min())


SENSITIVITIES: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "l1": ({"l1": 1.0}, [s * np.eye(3)[i] for i in range(3) for s in (-1, 1)]),
    "linf": ({"linf": 0.5}, [np.array(s) / 2 for s in itertools.product([-1, 1], repeat=3)]),
    "l1 and linf": (
        {"l1": 1.0, "linf": 0.5},
        [np.array(s) / 2 for s in itertools.product([-1, 0, 1], repeat=3) if np.abs(s).sum() == 2],
    ),
    "entry": ({"unit": "entry", "linf": 2.0}, [2 * s * np.eye(3)[i] for i in range(3) for s in (-1, 1)]),
    "add-remove": (
        {"unit": "entry", "max_linf": 2.0, "records": Records("people", neighbors="add-remove")},
        [2 * s * np.eye(3)[i] for i in range(3) for s in (-1, 1)],
    ),
}


@pytest.mark.parametrize("how", SENSITIVITIES)
@pytest.mark.parametrize("name", [n for n in SETS if SETS[n][1] is not None])
def test_the_range_of_score_changes(name: str, how: str) -> None:
    """R against the extreme points of the change sets (the range is convex, so they suffice)."""
    declared, extremes = SENSITIVITIES[how]
    problem, _, _ = build(name, **declared)
    found = candidates(problem._model(None), None)
    assert found is not None
    moves = np.array([found.points @ d for d in extremes])
    worst = float((moves.max(axis=1) - moves.min(axis=1)).max())
    reach = _range(problem._model(None), None)
    assert worst <= reach
    if name in ("simplex", "scaled", "below") and how in ("l1", "entry", "add-remove", "l1 and linf"):
        assert reach <= 1.002 * max(worst, float(np.abs(moves).max()))


def test_given_points() -> None:
    """Any public points, as rows or as {variable: value}; the statement is about the best of them."""
    c = Private([1.0, -2.0, 0.5], name="c", l1=1.0)
    x, y = cp.Variable(2, bounds=[-1, 1], name="x"), cp.Variable(name="y")
    problem = dpm.Problem(cp.Minimize(c[:2] @ x + c[2] * y), [cp.sum(x) + y <= 1, y >= -1])
    assert not _candidate(problem.plan(1.0)).eligible
    rows = [[1.0, 0.0, 0.0], [0.0, 1.0, -1.0], [-1.0, 1.0, 1.0]]
    dicts = [{x: row[:2], y: row[2]} for row in rows]
    for given in (rows, dicts):
        chosen = _candidate(problem.plan(1.0, mechanism=VertexExponential(vertices=given)))
        assert chosen.eligible and "best of the given points" in chosen.forecast.statement
        problem.solve(epsilon=1e6, mechanism=VertexExponential(vertices=given), rng=1)
        assert np.r_[x.value, y.value].tolist() in rows
        assert x.value.tolist() == [0.0, 1.0] or x.value.tolist() == [-1.0, 1.0]
    with pytest.raises(dpm.errors.SpecificationError, match="violates"):
        problem.plan(1.0, mechanism=VertexExponential(vertices=[[1.0, 1.0, 1.0]]))


def test_given_points_are_checked_against_cones_and_integers() -> None:
    c = Private([1.0, 2.0], unit="entry", linf=1, name="c")
    x = cp.Variable(2)
    in_a_cone = dpm.Problem(cp.Maximize(c @ x), [cp.norm(x) <= 1])
    with pytest.raises(dpm.errors.SpecificationError):
        in_a_cone.plan(1, 1e-6, mechanism=VertexExponential(vertices=[[5, 5], [7, 7]]))
    whole = cp.Variable(2, integer=True)
    integers = dpm.Problem(cp.Maximize(c @ whole), [whole >= 0, whole <= 3])
    with pytest.raises(dpm.errors.SpecificationError, match="integer"):
        integers.plan(1, 1e-6, mechanism=VertexExponential(vertices=[[0.5, 1], [1, 1]]))


def _candidate(plan: Any) -> Any:
    return next(candidate for candidate in plan.candidates if candidate.mechanism == "vertex-exponential")


def test_points_whose_scores_no_record_can_move() -> None:
    """They need no noise, and are no reason to stop."""
    c = Private([1.0, 2.0], name="c", l1=1.0)
    x = cp.Variable(3, nonneg=True)
    problem = dpm.Problem(cp.Minimize(c @ x[:2] - x[2]), [cp.sum(x) <= 1])
    points = [[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    assert _candidate(problem.plan(1.0, mechanism=VertexExponential(vertices=points))).forecast.alpha == 0
    for seed in range(20):
        problem.solve(epsilon=0.01, mechanism=VertexExponential(vertices=points), rng=seed)
        assert x.value.tolist() == [0.0, 0.0, 1.0]


def test_public_scores_that_drown_private_ones_are_refused() -> None:
    c = Private([1.0, 2.0], unit="entry", linf=1, name="c")
    x = cp.Variable(2, nonneg=True)
    known = cp.Constant([3e13, 2e13], name="known")
    plan = dpm.Problem(cp.Minimize(c @ x + known @ x), [cp.sum(x) == 1]).plan(1, 1e-6)
    refused = _candidate(plan)
    assert not refused.eligible and "drown" in refused.reason
