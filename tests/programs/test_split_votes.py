"""Split votes: sensitivity by enumeration, the proof between the lines, what a release states, integers, elections."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodel as dpm
from dpmodel import audit, mechanisms
from dpmodel._types import PrivateArray
from dpmodel.errors import SpecificationError
from dpmodel.privacy import SeededSource
from dpmodel.programs import split_votes
from dpmodel.programs.goals import task_of
from dpmodel.programs.nearly_feasible import best_route
from dpmodel.programs.rows import RowPart
from dpmodel.programs.split_votes import SPLIT_VOTES, SplitVotes, vote_sensitivity, votes

pytestmark = pytest.mark.filterwarnings("ignore::dpmodel.errors.NoGuaranteeWarning")

SIX = np.array(list(itertools.product([0.0, 1.0], repeat=6)))  # all ballots of six projects
ALL = np.arange(6)
STARTS = [np.zeros(6), np.array([1, 0, 0, 1, 0, 0.0]), np.array([0.3, 0, 1, 0.8, 0, 0.0]), np.full(6, 0.9), np.ones(6)]


def part(rows: np.ndarray, sides: np.ndarray | None = None) -> RowPart:
    """Covering rows ``rows x >= sides`` (1)."""
    h = -np.ones(len(rows)) if sides is None else -sides
    return RowPart(((sp.csr_array(-rows), 1.0, 0),), PrivateArray(h), rows.shape[1])


def one_vote(row: np.ndarray, start: np.ndarray, side: float = 1.0) -> np.ndarray:
    size = row.size
    return np.asarray(votes(np.zeros(size), start, np.ones(size), np.arange(size), part(row[None], np.array([side]))))


# ------------------------------------------------------------------ sensitivity
@pytest.mark.parametrize("start", STARTS, ids=str)
def test_the_sensitivity_by_all_ballots_of_six_projects(start: np.ndarray) -> None:
    """No two ballots are more than 2 apart, none is more than 1 from an absent one; both are attained at the start."""
    each = np.array([one_vote(ballot, start) for ballot in SIX])
    assert (each >= 0).all()
    apart = np.abs(each[:, None] - each[None]).sum(axis=2)
    assert apart.max() <= 2 + 1e-12 and np.abs(each).sum(axis=1).max() <= 1 + 1e-12
    if not start.any():
        assert apart.max() == pytest.approx(2) and np.abs(each).sum(axis=1).max() == pytest.approx(1)
        np.testing.assert_allclose(each, SIX / np.maximum(SIX.sum(axis=1), 1)[:, None])


@pytest.mark.parametrize("start", STARTS[:3], ids=str)
def test_a_sum_moves_by_what_one_ballot_moves(start: np.ndarray) -> None:
    """Every ballot beside three others: sums of neighbors, in memory and by rows in two parts."""
    others = SIX[[5, 21, 60]]
    total = [votes(np.zeros(6), start, np.ones(6), ALL, part(np.vstack([others, ballot]))) for ballot in SIX]
    apart = np.abs(np.array(total)[:, None] - np.array(total)[None]).sum(axis=2)
    assert apart.max() <= 2 + 1e-12
    for ballot, at_once in zip(SIX, total, strict=True):
        parts = votes(np.zeros(6), start, np.ones(6), ALL, part(others)) + one_vote(ballot, start)
        np.testing.assert_allclose(parts, at_once, atol=1e-12)


odd = st.one_of(st.floats(-1e300, 1e300), st.sampled_from([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 5e-324, 1e308]))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(odd, min_size=4, max_size=4), odd, st.lists(st.floats(0, 1), min_size=4, max_size=4), st.integers(0, 15)
)
def test_no_row_has_more_than_one_vote(row: list[float], side: float, start: list[float], columns: int) -> None:
    """Whatever its numbers are, beyond every declaration too."""
    live = np.flatnonzero([columns >> j & 1 for j in range(4)])
    with np.errstate(all="ignore"):
        given_row = part(np.array([row]), np.array([side]))
        vote = votes(np.zeros(4), np.array(start), np.full(4, 2.0), live, given_row)
    assert (vote >= 0).all() and vote.sum() <= 1 + 1e-12


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_votes_never_say_more_than_what_is_covered(seed: int) -> None:
    """The lemma: ``shortage(x) <= shortage(z) - vote'y``, row by row; general weights and sides, steps of any size."""
    rng = np.random.default_rng(seed)
    d = 5
    A, side = rng.exponential(size=(9, d)) * (rng.random((9, d)) < 0.6), rng.uniform(-0.5, 3, 9)
    lower = rng.uniform(0, 0.4, d)
    upper = lower + rng.uniform(0, 2, d)
    z = lower + rng.random(d) * (upper - lower)
    x = z + rng.random(d) * (upper - z)
    alone = np.maximum(side - A @ lower, 0)
    y = np.divide(x - z, upper - z, out=np.zeros(d), where=upper > z)
    for row, b, full in zip(A, side, alone, strict=True):
        vote = votes(lower, z, upper, np.arange(d), part(row[None], np.array([b])))
        short = [max(b - row @ at, 0) / full if full > 0 else 0.0 for at in (z, x)]
        assert short[1] <= short[0] - vote @ y + 1e-9


@pytest.mark.parametrize(("neighbors", "change"), [("replace-one", 2.0), ("add-remove", 1.0)])
def test_the_noise_follows_from_one_vote_a_person(neighbors: str, change: float) -> None:
    """Whatever the length of a ballot; two rows of one record count twice."""
    task = task_of(election(neighbors=neighbors)._model(None), SPLIT_VOTES, options(election()))
    assert vote_sensitivity(task) == pytest.approx(change, rel=2e-3)
    plan = SplitVotes(rounds=2)._plan(task, split_votes.private_rows(task.model))
    assert sum(vote_sensitivity(task) / scale for scale in plan.scales) == pytest.approx(0.5)


# ------------------------------------------------------------------ elections
def ballots_of(n: int = 400, d: int = 8, seed: int = 0) -> np.ndarray:
    """Two groups of voters with favourites of their own."""
    rng = np.random.default_rng(seed)
    taste = rng.normal(size=(2, d)) * 2
    score = taste[rng.integers(0, 2, n)] + rng.gumbel(size=(n, d))
    return (np.argsort(np.argsort(-score, axis=1), axis=1) < rng.integers(1, 4, n)[:, None]).astype(float)


def election(
    A: np.ndarray | None = None, neighbors: Any = "replace-one", money: float = 3.5, **declared: Any
) -> dpm.Problem:
    A = ballots_of() if A is None else A
    declared = {"bounds": [0, 1], **declared}
    boolean = declared.pop("boolean", False)
    ballots = dpm.Private(A, name="ballots", unit="row", records=dpm.Records(neighbors=neighbors), **declared)
    x = cp.Variable(A.shape[1], boolean=True, name="x") if boolean else cp.Variable(A.shape[1], bounds=[0, 1], name="x")
    cost = np.linspace(1, 2, A.shape[1])
    return dpm.Problem(cp.Minimize(0), [ballots @ x >= 1, cost @ x <= money])


def options(problem: dpm.Problem, epsilon: float = 0.5, **given: Any) -> Any:
    return problem.plan(epsilon=epsilon, mechanism="split-votes", **given).options


def short(A: np.ndarray, x: np.ndarray) -> float:
    return float((A @ x < 0.9).mean())


@pytest.mark.parametrize("boolean", [False, True])
@pytest.mark.parametrize("rounds", [1, 2])
def test_with_little_noise_the_most_votes_win(rounds: int, boolean: bool) -> None:
    A = ballots_of()
    problem = election(A, boolean=boolean)
    problem.solve(epsilon=1e4, mechanism=SplitVotes(rounds=rounds), rng=0)
    x, cost = problem.var_dict["x"].value, np.linspace(1, 2, 8)
    assert cost @ x <= 3.5 + 1e-6 and problem.release.guarantee.delta == 0
    share = A.T @ (1 / A.sum(axis=1))
    if rounds == 1 and not boolean:  # in the order of votes per money
        order = np.argsort(-share / cost)
        spent = np.cumsum(cost[order])
        bought = np.zeros(8)
        bought[order] = np.clip((3.5 - spent + cost[order]) / cost[order], 0, 1)
        np.testing.assert_allclose(x, bought, atol=1e-6)
    if boolean:
        assert set(np.unique(x)) <= {0.0, 1.0}
    whole = [np.array(point) for point in itertools.product([0.0, 1.0], repeat=8) if cost @ point <= 3.5]
    assert short(A, x) <= min(short(A, point) for point in whole) + 0.05


def test_two_rounds_see_who_is_covered_twice() -> None:
    """Seven tenths want a and b alike, three tenths want d alone. One sum buys a and b, two buy one of them and d."""
    A = np.zeros((1000, 4))
    A[:700, :2], A[700:, 3] = 1, 1
    x = {}
    for rounds in (1, 2):
        ballots = dpm.Private(A, name="ballots", unit="row", bounds=[0, 1])
        y = cp.Variable(4, bounds=[0, 1], name="x")
        problem = dpm.Problem(cp.Minimize(0), [ballots @ y >= 1, cp.sum(y) <= 2])
        problem.solve(epsilon=20, mechanism=SplitVotes(rounds=rounds), rng=1)
        x[rounds] = y.value
    assert short(A, x[1]) == pytest.approx(0.3) and short(A, x[2]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("infeasible", [False, True])
def test_the_note_is_true(rounds: int, infeasible: bool) -> None:
    """Proved with probability .95: in 300 draws it fails at most 15 + 5.5 deviations of a binomial (false alarms below
    1e-6), with empty ballots too. At most noise a bound is still stated."""
    A = np.repeat(np.eye(6), 50, axis=0)  # votes that overlap nowhere: the bound is equal to the truth but for noise
    if infeasible:
        A[::3] = 0
    problem = election(A, money=5.0)
    model, given = problem._model(None), options(problem, 4.0)
    engine, failed, stated = SplitVotes(rounds=rounds), 0, 0
    for seed in range(300):
        outcome = engine.run(model, given, SeededSource(seed))
        missed = float(np.maximum(1 - A @ outcome.x, 0).mean())
        for note in outcome.notes:
            if "miss on average at most" in note:
                stated += 1
                failed += missed > float(note.split("at most ")[1].split("%")[0]) / 100 + 0.005
    assert failed <= 15 + 5.5 * np.sqrt(300 * 0.05 * 0.95)
    assert stated >= 290


@pytest.mark.parametrize("rounds", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_twin_that_counts_whole_ballots_is_caught(rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: votes that are not split. They move by more than the noise is for."""

    def unsplit(lower: Any, start: Any, upper: Any, live: Any, rows: RowPart) -> PrivateArray:
        return PrivateArray(-rows.matrix().sum(axis=0)[live])

    each = np.array([unsplit(0, STARTS[0], 1, ALL, part(ballot[None])) for ballot in SIX])
    assert np.abs(each[:, None] - each[None]).sum(axis=2).max() > 2.5

    def build(private: Any) -> dpm.Problem:
        ballots = private(np.eye(6)[:4], name="ballots", unit="row", bounds=[0, 1])
        x = cp.Variable(6, bounds=[0, 1], name="x")
        return dpm.Problem(cp.Minimize(0), [ballots @ x >= 1, cp.sum(x) <= 2])

    model = audit.neighbors.Data(build, {}, name="ballots")
    engine = SplitVotes(rounds=rounds)
    assert not audit.mechanism(engine, [model], 1.0, 1e-6, neighbors=8, runs=2).faults
    monkeypatch.setattr(split_votes, "votes", unsplit)
    found = audit.mechanism(engine, [model], 1.0, 1e-6, neighbors=8, runs=2).faults
    assert any(fault.startswith("replay") for fault in found)


# ------------------------------------------------------------------ what it serves
def test_what_it_serves_and_what_it_does_not() -> None:
    A = ballots_of()
    x = cp.Variable(8, bounds=[0, 1], name="x")

    def reason(rows: Any, **declared: Any) -> str:
        ballots = dpm.Private(A, name="ballots", unit="row", **declared)
        plan = dpm.Problem(cp.Minimize(0), [rows(ballots), cp.sum(x) <= 3]).plan(epsilon=1, delta=1e-6, compare="all")
        return next(c for c in plan.candidates if c.mechanism == "split-votes").reason

    assert reason(lambda b: b @ x >= 1, bounds=[0, 1]) == ""
    assert reason(lambda b: b @ x >= 1, nonneg=True) == ""  # relative rows
    assert "covering rows" in reason(lambda b: b @ x >= 1, bounds=[-1, 1])
    assert "covering rows" in reason(lambda b: b @ x <= 1, bounds=[0, 1])
    assert "covering rows" in reason(lambda b: b @ x == 1, bounds=[0, 1])
    with pytest.raises(SpecificationError, match="rounds=3"):
        mechanisms.SplitVotes(rounds=3)


@pytest.mark.parametrize("goal", [dpm.Penalty(), dpm.Search(), dpm.Target(9.0)])
def test_public_objectives(goal: Any) -> None:
    """A cover at least cost, and a slack for each voter: columns without private numbers have no vote."""
    A = ballots_of()
    ballots = dpm.Private(A, name="ballots", unit="row", bounds=[0, 1])
    x, cost = cp.Variable(8, bounds=[0, 1], name="x"), np.linspace(1, 2, 8)
    problem = dpm.Problem(cp.Minimize(cost @ x), [ballots @ x >= 1])
    problem.solve(epsilon=5, delta=1e-6, mechanism="split-votes", goal=goal, rng=0)
    assert problem.release.value == pytest.approx(cost @ x.value, abs=1e-6)
    assert (x.value >= -1e-9).all() and (x.value <= 1 + 1e-9).all()
    slack = cp.Variable(len(A), bounds=[0, 1])
    other = dpm.Problem(cp.Minimize(cp.sum(slack)), [ballots @ x + slack >= 1, cost @ x <= 4])
    task = task_of(other._model(None), SPLIT_VOTES, options(other))
    assert split_votes.voted_columns(task).size == 8


def test_a_plan_takes_it_and_says_what_to_expect() -> None:
    plan = election().plan(epsilon=1, delta=1e-6)
    assert plan.chosen.mechanism == "split-votes" and plan.chosen.forecast.delta == 0
    assert "expected, by synthetic databases" in plan.chosen.forecast.statement
    assert best_route(election()._model(None), SPLIT_VOTES, replace(plan.options)) is not None


def test_nothing_is_stated_of_a_point_below_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver without an answer in the second round: the sums of that round are about points above its start."""
    problem = election(np.repeat(np.eye(6), 50, axis=0), money=4.0)
    model, given = problem._model(None), options(problem, 4.0)
    assert SplitVotes(rounds=2).run(model, given, SeededSource(1)).notes
    solve, calls = split_votes.ask, []

    def fails(*args: Any) -> Any:
        calls.append(args)
        return replace(solve(*args), x=None) if len(calls) == 3 else solve(*args)

    monkeypatch.setattr(split_votes, "ask", fails)
    outcome = SplitVotes(rounds=2).run(model, given, SeededSource(1))
    assert len(calls) == 3 and not any("miss on average" in note for note in outcome.notes)
