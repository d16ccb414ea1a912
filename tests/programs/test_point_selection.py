"""The choice among public points: how far scores move, its exact distribution, what it promises, and broken twins."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from replaying import Transcript
from scipy.stats import binom

import dpmodel as dpm
from dpmodel.contract import Options, no_progress
from dpmodel.marks import Private, Records
from dpmodel.privacy import SeededSource
from dpmodel.privacy.accounting import Spend
from dpmodel.programs.goals import Task
from dpmodel.programs.points import POINT_EXPONENTIAL as ENGINE
from dpmodel.programs.points import _range, violated
from dpmodel.programs.rows import private_rows, public_polyhedron

FALSE_ALARM = 1e-7


def ballots(
    voters: int = 4, options: int = 3, neighbors: Any = "replace-one", **declared: Any
) -> tuple[dpm.Problem, Private]:
    """Every voter approves some options; half of them may be paid for."""
    how = declared or {"bounds": [0, 1]}
    A = Private(shape=(voters, options), name="A", unit="row", records=Records(neighbors=neighbors), **how)
    x = cp.Variable(options, bounds=[0, 1])
    cost = np.arange(1.0, options + 1)
    return dpm.Problem(cp.Minimize(cost @ x), [A @ x >= 1, cost @ x <= cost.sum() / 2]), A


def paired() -> tuple[dpm.Problem, list[Private]]:
    """A row of A, an entry of b and a row of C belong to one record; equalities count twice."""
    people = Records()
    A = Private(shape=(4, 2), name="A", unit="row", bounds=[-1, 1], records=people)
    b = Private(shape=4, name="b", unit="entry", bounds=[-1, 1], records=people)
    C = Private(shape=(4, 2), name="C", unit="row", bounds=[-1, 1], records=people)
    x = cp.Variable(2, bounds=[-1, 1])
    return dpm.Problem(cp.Minimize(cp.sum(x)), [A @ x == b, C @ x <= 0]), [A, b, C]


def task_of(problem: dpm.Problem, epsilon: float = 1.0, delta: float = 0.0, **asked: Any) -> Task:
    model = problem._model(None)
    polytope = asked.pop("polytope", public_polyhedron(model))
    whole = "spend" not in asked
    spend = asked.pop("spend", Spend.of(epsilon, delta))
    beta = asked.pop("beta", 0.05)
    return Task(model, polytope, np.zeros(polytope.size), spend, epsilon, delta, beta, **asked, whole=whole)


def theta_of(problem: dpm.Problem, *values: tuple[Private, Any]) -> np.ndarray:
    for parameter, value in values:
        parameter.value = value
    return problem._model(None).read_private()


# ------------------------------------------------------------------------------------------ eligible
def test_what_it_serves() -> None:
    problem, _ = ballots()
    model = problem._model(None)
    assert ENGINE.suits(model, Options(1.0, 0.0)).eligible
    wide, _ = ballots(4, 9)
    refused = ENGINE.suits(wide._model(None), Options(1.0, 0.0))
    assert not refused.eligible and "vertices=" in refused.reason
    assert ENGINE.suits(wide._model(None), Options(1.0, 0.0, vertices=np.eye(9))).eligible
    x = cp.Variable(2)
    b = Private(shape=2, name="b", unit="entry", bounds=[0, 1])
    loose = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b])
    assert "do not bound" in ENGINE.suits(loose._model(None), Options(1.0, 0.0)).reason
    c = Private(shape=2, name="c", l1=1)
    public = dpm.Problem(cp.Minimize(c @ x), [x >= 0, x <= 1])
    assert "no constraint is private" in ENGINE.suits(public._model(None), Options(1.0, 0.0)).reason


# --------------------------------------------------------------------------------------- sensitivity
def scores_of(task: Task, points: np.ndarray, threshold: float, theta: np.ndarray) -> np.ndarray:
    G, h = private_rows(task.model).values(theta)
    return -violated(G, h, points, threshold)


def moves(case: str, draws: int, seed: int) -> tuple[int, list[np.ndarray]]:
    """The declared range and the score changes of random neighbours."""
    rng = np.random.default_rng(seed)
    parameters: list[Private]
    if case == "paired":
        problem, parameters = paired()
    else:
        unbounded = {"bounds": None} if case == "relative" else {"bounds": [0, 1]}
        problem, one = ballots(neighbors="add-remove" if case == "add-remove" else "replace-one", **unbounded)
        parameters = [one]
    task = task_of(problem, violation=0.1 if case != "relative" else 0.01)
    promise = ENGINE.promise(task)
    points = promise.plan.listed()[0][:5000]
    out = []
    for _ in range(draws):
        values = [np.round(rng.normal(size=p.shape) * 1.5) for p in parameters]
        others = [value.copy() for value in values]
        for other in others:
            other[1] = 0 if case == "add-remove" else np.round(rng.normal(size=other[1].shape) * 1.5)
        one, two = (theta_of(problem, *zip(parameters, v, strict=True)) for v in (values, others))
        asked = task, points, promise.alpha
        out.append(scores_of(*asked, one) - scores_of(*asked, two))
    return _range(private_rows(task.model)), out


@pytest.mark.parametrize("case", ["replace-one", "add-remove", "paired", "relative"])
def test_the_range_of_score_changes(case: str) -> None:
    """Never above the declared range, and attained for single rows."""
    declared, sensitivities = moves(case, 80, 3)
    found = max(float(sensitivity.max() - sensitivity.min()) for sensitivity in sensitivities)
    assert found <= declared
    assert declared == {"replace-one": 2, "add-remove": 1, "paired": 6, "relative": 2}[case]
    assert found >= (declared if case != "paired" else 3)
    if case == "add-remove":
        assert all((sensitivity <= 0).all() for sensitivity in sensitivities)


# ----------------------------------------------------------------------------------------- exact distribution
def permute_and_flip_distribution(scores: np.ndarray, scale: float) -> np.ndarray:
    accept = np.exp((scores - scores.max()) / scale)
    distribution = np.zeros(scores.size)
    orders = list(itertools.permutations(range(scores.size)))
    for order in orders:
        left = 1.0
        for i in order:
            distribution[i] += left * accept[i] / len(orders)
            left *= 1 - accept[i]
    return distribution


def exponential_distribution(scores: np.ndarray, scale: float) -> np.ndarray:
    weight = np.exp((scores - scores.max()) / scale)
    return np.asarray(weight / weight.sum())


CANDIDATES = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
# One voter moves from the first option to the second: one score rises and another falls.
ONE = np.array([[0, 1, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]], dtype=float)
TWO = np.array([[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]], dtype=float)


def asked_of(A: np.ndarray, epsilon: float, delta: float, **asked: Any) -> tuple[np.ndarray, float, str]:
    problem, parameter = ballots()
    task = task_of(problem, epsilon, delta, vertices=CANDIDATES, **asked)
    source = Transcript(1)
    ENGINE.point(task, ENGINE.promise(task), theta_of(problem, (parameter, A)), source, no_progress)
    (draw,) = source.draws
    return draw.values[0], *draw.arguments


def privacy_loss(epsilon: float, delta: float, twin: float = 1.0, **asked: Any) -> tuple[float, float, str]:
    """Largest and smallest log ratio of the exact distributions on the worst-case pair; ``twin`` scales the noise."""
    distributions = []
    for A in (ONE, TWO):
        scores, scale, kind = asked_of(A, epsilon, delta, **asked)
        distribution = permute_and_flip_distribution if kind == "permute_and_flip" else exponential_distribution
        distributions.append(distribution(scores, scale * twin))
    ratio = np.log(distributions[0] / distributions[1])
    return float(ratio.max()), float(ratio.min()), kind


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_the_exact_privacy_loss(epsilon: float) -> None:
    """Pure epsilon, also where delta is allowed; a part of a zCDP budget has bounded range; the twins exceed both."""
    for delta in (0.0, 1e-6):
        high, low, kind = privacy_loss(epsilon, delta)
        assert kind == "permute_and_flip"
        assert max(high, -low) <= epsilon * (1 + 1e-9)
    assert max(high, -low) > 0.6 * epsilon
    high, low, _ = privacy_loss(epsilon, 0.0, twin=0.5)  # the range halved: one score up, one down forgotten
    assert max(high, -low) > epsilon * 1.2
    part = Spend.of(epsilon, 1e-6).part(0.25)
    high, low, kind = privacy_loss(epsilon, 1e-6, spend=part)
    assert kind == "exponential" and part.rho is not None
    assert (high - low) ** 2 / 8 <= part.rho * (1 + 1e-9)
    assert (high - low) ** 2 / 8 > 0.9 * part.rho
    high, low, _ = privacy_loss(epsilon, 1e-6, 0.5, spend=part)
    assert (high - low) ** 2 / 8 > 2 * part.rho


def test_parts_of_a_budget_are_never_taken_as_pure() -> None:
    """A search runs several engines and tests on parts of one rho: pure epsilons beside them would not add up."""
    problem, _ = ballots()
    for share in (0.05, 0.3, 0.999):
        part = Spend.of(1.0, 1e-6).part(share)
        task = replace(task_of(problem, 1.0, 1e-6, spend=part), epsilon=share, delta=share * 1e-6)
        choice = ENGINE.promise(task).plan
        assert not choice.pure and choice.epsilon**2 / 8 == pytest.approx(part.rho)
    assert ENGINE.promise(task_of(problem, 1.0, 1e-6)).plan.pure
    assert ENGINE.promise(task_of(problem, 0.5, 0.0, spend=Spend(0.1, None))).plan.epsilon == 0.1


# ------------------------------------------------------------------------------------------- promises
def test_resolutions() -> None:
    """Finer nets cost rows: what was asked decides."""
    problem, _ = ballots(1000)
    free = ENGINE.promise(task_of(problem))
    assert free.proved and free.rows == 1000 and free.gain == 1 and free.width == pytest.approx(1, abs=1e-4)
    for wanted in (0.5, 0.2, 0.05):
        promise = ENGINE.promise(task_of(problem, violation=wanted))
        assert promise.alpha == wanted and promise.proved
    few = ENGINE.promise(task_of(problem, slack_rows=18))
    more = ENGINE.promise(task_of(problem, slack_rows=25))
    assert few.slack_rows <= 18 < more.slack_rows <= 25
    assert more.alpha < few.alpha / 3
    both = ENGINE.promise(task_of(problem, slack_rows=18, violation=0.3))
    assert both.alpha == 0.3 and both.slack_rows <= 18
    assert ENGINE.promise(task_of(problem, slack_rows=0)).plan.listed()[0].shape[0] >= 1
    # Add-remove halves the range, and epsilon counts.
    other, _ = ballots(1000, neighbors="add-remove")
    assert (
        ENGINE.promise(task_of(other, violation=0.2)).slack_rows
        <= ENGINE.promise(task_of(problem, violation=0.2)).slack_rows / 2
    )
    part = Spend.of(1.0, 1e-6).part(0.5)
    assert ENGINE.promise(task_of(problem, delta=1e-6, spend=part)).slack_rows > free.slack_rows


def test_every_point_stays_in_a_body_cut_by_a_target() -> None:
    problem, A = ballots(20)
    theta = theta_of(problem, (A, np.ones((20, 3))))
    model = problem._model(None)
    polytope = public_polyhedron(model).with_row(np.array([1.0, 2.0, 3.0]), 1.3)
    task = task_of(problem, polytope=polytope)
    promise = ENGINE.promise(task)
    assert promise.proved
    for seed in range(5):
        x = ENGINE.point(task, promise, theta, SeededSource(seed), no_progress).x
        assert polytope.violation(x) <= 1e-9
    nothing = task_of(problem, polytope=public_polyhedron(model).with_row(np.array([1.0, 2.0, 3.0]), 0.0))
    assert ENGINE.promise(nothing).plan.listed()[0].tolist() == [[0, 0, 0]]
    given = task_of(problem, polytope=polytope, vertices=CANDIDATES)
    assert ENGINE.promise(given).plan.listed()[0].tolist() == [[1, 0, 0]]
    none = task_of(problem, polytope=polytope, vertices=CANDIDATES[2:])
    assert polytope.violation(ENGINE.promise(none).plan.listed()[0][0]) <= 1e-9


def feasible_ballots(rng: np.random.Generator, voters: int) -> np.ndarray:
    """Everyone approves at least a third of a point that is paid for: A x >= 1 at a known x."""
    A = rng.random((voters, 3))
    hard = rng.random(voters) < 0.7
    A[hard] = rng.permuted(np.tile([1.0, 0.5, 0.0], (int(hard.sum()), 1)), axis=1)
    x = np.array([1.0, 1.0, 0.0])
    return np.asarray(A[A @ x >= 1])


@pytest.mark.parametrize("case", ["slack", "violation", "part", "add-remove", "relative"])
def test_the_promise_holds(case: str) -> None:
    """All but s rows within alpha, as often as promised (exact binomial tail), beta = 0.3 to make failures likely."""
    rng = np.random.default_rng(4)
    A = feasible_ballots(rng, 300)
    how: dict[str, Any] = {"bounds": None} if case == "relative" else {"bounds": [0, 1]}
    problem, parameter = ballots(A.shape[0], neighbors="add-remove" if case == "add-remove" else "replace-one", **how)
    asked: dict[str, Any] = {"slack_rows": 7} if case == "slack" else {"violation": 0.15}
    if case == "part":
        asked["spend"] = Spend.of(2.0, 1e-6).part(0.5)
    task = task_of(problem, 2.0, 1e-6 if case == "part" else 0.0, beta=0.3, **asked)
    promise, theta = ENGINE.promise(task), theta_of(problem, (parameter, A))
    assert promise.proved
    G, h = private_rows(task.model).values(theta)
    runs, failures = 60, 0
    source = SeededSource(11)
    for _ in range(runs):
        x = ENGINE.point(task, promise, theta, source, no_progress).x
        assert task.polytope.violation(x) <= 1e-9
        out = int((G @ x - h > promise.alpha + 1e-9).sum())
        failures += out > promise.slack_rows
        assert ENGINE.excess(task, promise, x, theta) == out
    assert binom.sf(failures - 1, runs, 0.3) > FALSE_ALARM
    assert ENGINE.excess_limit(promise) == promise.slack_rows and ENGINE.excess_sensitivity(task) == 1
    # The test can fail: a point taken at random misses the promise.
    blind = rng.choice(promise.plan.listed()[0], runs)
    missed = int(((blind @ G.T - h > promise.alpha).sum(axis=1) > promise.slack_rows).sum())
    assert binom.sf(missed - 1, runs, 0.3) < FALSE_ALARM


def test_given_points_are_compared_with_the_best_of_them() -> None:
    problem, parameter = ballots()
    task = task_of(problem, 50.0, vertices=CANDIDATES)
    promise = ENGINE.promise(task)
    assert not promise.proved and "best of them" in promise.caveats[0]
    x = ENGINE.point(task, promise, theta_of(problem, (parameter, ONE)), SeededSource(1), no_progress).x
    assert x.tolist() == CANDIDATES[0].tolist()
    assert promise.slack_rows == 0 and replace(promise, gain=2.0).alpha == 0


def test_blocks_of_points_agree() -> None:
    rng = np.random.default_rng(1)
    import scipy.sparse as sp

    import dpmodel.programs.points as module

    for columns in (5, 30):
        G, h = sp.random_array((40, columns), density=0.4, rng=rng, format="csr"), rng.normal(size=40)
        points = rng.normal(size=(101, columns))
        expected = (G.toarray() @ points.T > (h + 0.2)[:, None]).sum(axis=0)
        old = module._AT_ONCE
        try:
            for at_once in (1, 400, old):
                module._AT_ONCE = at_once
                assert violated(sp.csr_array(G), h, points, 0.2).tolist() == expected.tolist()
        finally:
            module._AT_ONCE = old
