"""Synthetic databases stay inside what was declared; plans that no statement settles are settled by them and say so."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.programs import simulation
from dpmodel.programs.model import Program
from dpmodel.programs.simulation import DATABASES, databases
from dpmodel.programs.split_votes import SplitVotes

DECLARED: dict[str, dict[str, Any]] = {
    "ballots": {"unit": "row", "bounds": [0, 1], "max_l1": 3},
    "shares": {"unit": "row", "bounds": [0, 1], "max_l1": 0.5},
    "signed": {"unit": "row", "bounds": [-2, 1], "max_l2": 2.5},
    "no zero": {"unit": "row", "bounds": [2, 5]},
    "columns": {"unit": "column", "bounds": [0, 4], "max_l1": 9},
    "entries": {"unit": "entry", "bounds": [-1, 3]},
    "unbounded": {"unit": "row"},
}


def covering(rows: int = 200, seed: int = 0, budget: float = 2.0, **declared: Any) -> dpm.Problem:
    ballots = (np.random.default_rng(seed).random((rows, 6)) < 0.3).astype(float)
    A = dpm.Private(ballots, name="A", **(declared or DECLARED["ballots"]))
    x = cp.Variable(6, bounds=[0, 1], name="x")
    return dpm.Problem(cp.Minimize(0), [A @ x >= 1, cp.sum(x) <= budget])


@pytest.mark.parametrize("name", DECLARED)
def test_draws_are_inside_what_is_declared(name: str) -> None:
    how = DECLARED[name]
    A = dpm.Private(shape=(30, 6), name="A", **how)
    x = cp.Variable(6, bounds=[0, 1], name="x")
    model = dpm.Problem(cp.Minimize(cp.sum(x)), [A @ x <= 9])._model(None)
    found = databases(model, DATABASES)
    assert len(found) == DATABASES and len({theta.tobytes() for theta in found}) == DATABASES
    for theta in found:
        table = theta[model.affine.private_blocks[0].columns].reshape((30, 6), order="F")
        low, high = how.get("bounds", [-1, 1])
        # Units that are too large are scaled, so a range without zero need not hold for them.
        assert table.min() >= low - 1e-12 and table.max() <= high + 1e-12 and np.ptp(table) > 0
        units = table if how["unit"] == "row" else table.T
        assert np.abs(units).sum(axis=1).max() <= how.get("max_l1", np.inf) * (1 + 1e-12)
        assert np.linalg.norm(units, axis=1).max() <= how.get("max_l2", np.inf) * (1 + 1e-12)


def test_a_vacuous_plan_is_settled_without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least error in simulation is chosen, the plan says so, and other data give the same plan."""

    def refused(self: Program) -> Any:
        raise AssertionError("a plan reads no private value")

    monkeypatch.setattr(Program, "read_private", refused)
    plan, other = (covering(seed=seed).plan(0.5, 1e-6) for seed in (0, 1))
    simulated = {
        c.mechanism: c.forecast.error.against_public
        for c in plan.candidates
        if c.forecast is not None and c.forecast.error.slack_rows > 0
    }
    assert {"noisy-hinge-descent", "dense-multiplicative-weights"} <= set(simulated)
    assert np.isfinite(list(simulated.values())).all()
    assert plan.chosen.mechanism == min({**simulated, "public-only": 1.0}, key=lambda name: simulated.get(name, 1.0))
    assert any("synthetic databases" in line for line in plan.chosen.forecast.caveats)  # type: ignore[union-attr]
    assert plan.to_dict() == other.to_dict()


def test_a_mechanism_that_does_nothing_useful_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its point taken away split votes buy nothing: the choice turns to another."""
    before = covering().plan(0.5, 1e-6)
    assert before.chosen.mechanism == "split-votes"

    def stuck(self: Any, task: Any, *rest: Any) -> Any:
        from dpmodel.programs.goals import Point

        return Point(task.polytope.nearest(np.zeros(task.polytope.size)))

    monkeypatch.setattr(SplitVotes, "point", stuck)
    assert covering().plan(0.5, 1e-6).chosen.mechanism != "split-votes"


@pytest.fixture(scope="module")
def large() -> dpm.Problem:
    return covering(rows=2000)


def test_a_statement_asked_for_decides_by_itself(large: dpm.Problem) -> None:
    for asked in (dpm.AllBut(alpha=0.5), dpm.AllBut(rows=1000)):
        plan = large.plan(20.0, 1e-6, feasibility=asked)
        assert plan.chosen.forecast is not None and not plan.chosen.forecast.vacuous
        assert all("synthetic" not in " ".join(c.forecast.caveats) for c in plan.candidates if c.forecast is not None)


@pytest.mark.slow
def test_a_prediction_beats_a_better_statement(large: dpm.Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the best statement leaves rows out, the simulation decides; what is proved of the choice is said."""
    engines = "noisy-hinge-descent", "dense-multiplicative-weights", "split-votes"
    told = {c.mechanism: c.forecast for c in large.plan(20.0, 1e-6).candidates if c.forecast is not None}
    best = min(told, key=lambda name: (told[name].vacuous, told[name].error.rank))
    assert best == engines[1] and not told[best].vacuous and told[engines[2]].vacuous
    for winner in engines:
        shares = {name: 0.2 if name == winner else 0.4 for name in engines}
        monkeypatch.setattr(
            simulation, "against_public", lambda mechanism, *_, shares=shares: shares.get(mechanism.name, 0.9)
        )
        plan = covering(rows=2000).plan(20.0, 1e-6)
        assert plan.chosen.mechanism == winner and plan.chosen.forecast is not None
        statement = plan.chosen.forecast.statement
        assert statement == told[winner].statement or (told[winner].vacuous and statement.startswith("no guarantee"))


@pytest.mark.parametrize("share", [30.0, 3.0])
def test_what_noise_hides_from_one_is_not_tried_with_another(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cheapest run comes first; where it is thirty times worse than a point that reads nothing, it is the last."""
    tried: list[str] = []
    monkeypatch.setattr(simulation, "against_public", lambda mechanism, *_: tried.append(mechanism.name) or share)
    plan = covering().plan(0.5, 1e-6)
    assert plan.chosen.mechanism == "public-only" and len(tried) == (1 if share > 20 else 3)
    told = {c.mechanism: c.forecast for c in plan.candidates if c.forecast is not None and c.forecast.error.slack_rows}
    assert set(told) == set(tried) and {each.error.against_public for each in told.values()} == {share}
    words = next(line for line in told[tried[0]].caveats if "synthetic" in line)
    assert all(name in words for name in tried)
    untold = [c.reason for c in plan.candidates if c.code == "behind" and "not simulated" in c.reason]
    assert len(untold) == 3 - len(tried) and all(f"{tried[0]} does 30 times worse" in each for each in untold)
