"""Algorithm 4, tightened and published: sensitivity by brute force, exact privacy of tiny games, utility, refusals."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import cvxpy as cp
import games
import numpy as np
import pytest
from games import Game, Scripted, excess_moves, game, histogram, neighbours, packing, private_case, refusal
from scipy.optimize import brentq
from scipy.stats import gamma

from dpmodel.as_printed.algorithms_4_to_6 import ALGORITHM_4
from dpmodel.marks import Private
from dpmodel.privacy import pure_composition_delta, zcdp_rho
from dpmodel.programs.weights import MULTIPLICATIVE_WEIGHTS
from dpmodel.programs.weights_rows import game_rows

ENGINES = (MULTIPLICATIVE_WEIGHTS, ALGORITHM_4)


# ------------------------------------------------------------------ sensitivity
def several(**declared: Any) -> tuple[Game, dict[str, dict[str, Any]]]:
    """Mixed, scaled and reused right-hand sides in inequalities and equalities."""
    b = Private(shape=4, name="b", **declared)
    x = cp.Variable(3, bounds=[-1, 2], name="x")
    M = np.random.default_rng(2).normal(size=(4, 3))
    made = game(
        cp.Minimize(0), [M @ x <= b, x[:2] == 0.5 * b[:2] - b[2:], M @ x >= -2 * b, x <= np.tril(M.T @ M) @ b[:3]], b
    )
    made.seal(b=[0.5, -0.2, 1.0, 0.3])
    return made, {"b": declared}


DECLARED: dict[str, dict[str, Any]] = {
    "entry": {"unit": "entry", "linf": 0.3},
    "l1": {"l1": 0.3},
    "l2": {"l2": 0.3},
    "linf": {"linf": 0.3},
    "both": {"l1": 0.5, "linf": 0.3},
}
REGISTRY: dict[str, dict[str, dict[str, Any]]] = {
    "demand": {"b": {"unit": "entry", "linf": 1.0}},
    "running_totals": {"b": {"unit": "entry", "linf": 1.0}},
    "packing": {"b": {"l1": 1.0, "bounds": [5, 100]}},
    "flow": {"b": {"linf": 0.5}},
}


def sampled(made: Game, declared: dict[str, dict[str, Any]], draws: int = 60) -> tuple[float, float]:
    """Largest range and largest single change of the scores over random neighbours and points."""
    rng, rows = np.random.default_rng(4), game_rows(made.model)
    x = rng.normal(size=made.model.affine.variables)
    reach = single = 0.0
    for theta, moved in neighbours(made, declared, rng, draws):
        sensitivity = rows.now(moved).scores(x) - rows.now(theta).scores(x)
        reach = max(reach, float(sensitivity.max() - sensitivity.min()))
        single = max(single, float(np.abs(sensitivity).max()))
    return reach, single


@pytest.mark.parametrize("name", [*DECLARED, *REGISTRY])
def test_scores_move_apart_by_at_most_the_range(name: str) -> None:
    made, declared = several(**DECLARED[name]) if name in DECLARED else (private_case(name), REGISTRY[name])
    rows = game_rows(made.model)
    reach, single = sampled(made, declared)
    bound = rows.range_over(made.task.polytope)
    assert reach <= bound * (1 + 1e-9) and single <= rows.single_over(made.task.polytope) * (1 + 1e-9)
    assert reach >= 0.6 * bound, "the bound is of the right size"


def test_scores_are_the_violations_of_the_model_as_written() -> None:
    made, _ = several(**DECLARED["entry"])
    x, b = np.array([0.3, -0.5, 1.5]), np.array([0.5, -0.2, 1.0, 0.3])
    M = np.random.default_rng(2).normal(size=(4, 3))
    worst = max(
        float((M @ x - b).max()),
        float(np.abs(x[:2] - 0.5 * b[:2] + b[2:]).max()),
        float((-2 * b - M @ x).max()),
        float((x - np.tril(M.T @ M) @ b[:3]).max()),
        0.0,
    )
    columns = made.model.affine.variables
    assert columns == 3
    assert MULTIPLICATIVE_WEIGHTS.excess(
        made.task, made.promise(MULTIPLICATIVE_WEIGHTS), x, made.model.read_private()
    ) == (pytest.approx(worst))


def test_huge_values_are_clamped() -> None:
    b = Private(shape=2, name="b", linf=1e-6)
    x = cp.Variable(2, bounds=[0, 1])
    made = game(cp.Minimize(0), [x <= b], b)
    theta = made.seal(b=[1e300, -1e300])
    scores = game_rows(made.model).now(theta).scores(np.zeros(2))
    assert np.abs(scores).max() <= 2.0**39 * 1e-6 * 1.1


# ------------------------------------------------------------------ the budget and the plan


def test_the_promise_by_hand() -> None:
    """On the unit simplex with rows of zeros and ones: W = 1, equalities twice, R = 2 linf."""
    made = histogram(cells=64, queries=40, people=20_000)
    rho, R, k, beta = zcdp_rho(1.0, 1e-6), 2 / 20_000, 81, 0.1

    def error(T: int) -> float:
        scale = R / math.sqrt(8 * rho / T)
        return math.sqrt(math.log(64) / (2 * T)) + scale * (math.log(k) + gamma.ppf(1 - beta, T) / T)

    best = min(error(T) for T in range(100, 5000))
    promise = made.promise(MULTIPLICATIVE_WEIGHTS)
    assert promise.error == pytest.approx(best, rel=2e-3)
    assert promise.width == 1.0 and promise.rows == 40 and promise.gain == 1.0 and promise.slack_rows == 0


def test_published_constants_by_hand() -> None:
    """alpha = 6 Delta sqrt(8 T ln 1/delta) ln(mT/beta)/epsilon with T = 9 rho^2 ln d/alpha^2."""
    made = histogram(cells=64, queries=40, people=20_000)
    m, d, delta, beta = 81, 64, 1e-6, 0.1

    def gap(alpha: float) -> float:
        T = 9 * math.log(d) / alpha**2
        return 6 / 20_000 * math.sqrt(8 * T * math.log(1 / delta)) * math.log(m * T / beta) - alpha

    alpha = float(brentq(gap, 1e-3, 10))
    promise = made.promise(ALGORITHM_4)
    assert promise.error == pytest.approx(alpha, rel=5e-3)
    assert (
        promise.plan.count == math.ceil(9 * math.log(d) / alpha**2)
        or abs(promise.plan.count - 9 * math.log(d) / alpha**2) <= 1
    )
    assert pure_composition_delta(promise.plan.epsilon, promise.plan.count, 1.0) <= delta
    assert promise.error > made.promise(MULTIPLICATIVE_WEIGHTS).error


# ------------------------------------------------------------------ exact privacy
def tiny(epsilon: float, delta: float, level: float) -> tuple[Game, Any, Any]:
    """One private equality, whose two signs move against each other: the worst case for the range."""
    b = Private(shape=1, name="b", linf=0.005)
    x = cp.Variable(2, nonneg=True)
    made = game(cp.Minimize(0), [cp.sum(x) == 1, x[0] - x[1] == b[0]], b, epsilon=epsilon, delta=delta)
    return made, made.seal(b=[level]), made.seal(b=[level + 0.005])


def distributions(made: Game, engine: Any, promise: Any, one: Any, two: Any) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of all sequences of selections under two data sets."""
    found = []
    for sequence in itertools.product(range(3), repeat=promise.plan.count):
        pair = []
        for theta in (one, two):
            source: Any = Scripted(sequence)
            engine.point(made.task, promise, theta, source, lambda stage, done: None)
            pair.append(source.log_probability)
        found.append(pair)
    return tuple(np.exp(np.array(found).T))  # type: ignore[return-value]


def exact_epsilon(p: np.ndarray, q: np.ndarray, delta: float) -> float:
    """Least epsilon such that neither hockey-stick divergence exceeds delta."""

    def excess(epsilon: float) -> float:
        return max(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((p, q), (q, p))) - delta

    if delta == 0:
        return float(np.abs(np.log(p / q)).max())
    return float(brentq(excess, 0.0, 50.0)) if excess(0.0) > 0 else 0.0


def test_exact_privacy_of_the_published_game(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its steps are set by hand: the published constants are far from tight."""
    made, one, two = tiny(1.0, 1e-3, 0.0)
    promise = made.promise(ALGORITHM_4)
    each = 1.0 / math.sqrt(8 * 4 * math.log(1e3))
    promise = replace(promise, plan=replace(promise.plan, count=4, epsilon=each))
    assert exact_epsilon(*distributions(made, ALGORITHM_4, promise, one, two), 1e-3) <= 1.0


# ------------------------------------------------------------------ utility
@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
@pytest.mark.parametrize("write", [histogram, packing], ids=lambda w: w.__name__)
def test_the_promise_is_kept(engine: Any, write: Any) -> None:
    made, runs = write(beta=0.003), 3  # all three runs fail with probability 3e-8, if each does with at most beta
    promise = made.promise(engine)
    found = [made.play(engine, seed) for seed in range(runs)]
    missed = sum(made.violation(engine, point.x) > promise.error + point.extra_violation for point in found)
    assert missed < runs
    assert max(made.task.polytope.violation(point.x) for point in found) <= 1e-9
    assert all(not point.notes for point in found)


def test_a_tilt_is_paid_for_by_the_same_error() -> None:
    """w'x + V(x) <= w'x* + error, whatever the size of w."""
    made = packing()
    b = made.model.read_private()
    promise = made.promise(MULTIPLICATIVE_WEIGHTS)
    W, x = np.random.default_rng(5).random((30, 12)), cp.Variable(12)
    cost = np.random.default_rng(1).normal(size=12)
    inside = np.full(12, 4.2 / 12)
    sides = W @ inside + 0.01
    rows = [W @ x <= sides, cp.sum(x) >= 4, np.arange(1.0, 13) @ x <= 30, x >= 0, x <= 1]
    best = cp.Problem(cp.Minimize(cost @ x), rows).solve(solver=cp.HIGHS)
    for weight in (0.1, 50.0):
        point = made.play(MULTIPLICATIVE_WEIGHTS, 3, b, tilt=weight * cost)
        value = weight * float(cost @ point.x) + made.violation(MULTIPLICATIVE_WEIGHTS, point.x)
        assert value <= weight * best + promise.error


def test_a_signed_solution_in_a_one_norm_ball() -> None:
    """Free variables, of which only the sum of magnitudes is bounded: a sparse signed truth is found."""
    rng = np.random.default_rng(3)
    M, truth = rng.choice([-1.0, 1.0], size=(60, 20)), np.zeros(20)
    truth[[2, 7]] = 0.6, -0.4
    b = Private(shape=60, name="b", linf=1e-5)
    x = cp.Variable(20, name="x")
    made = game(cp.Minimize(0), [cp.norm1(x) <= 1, M @ x == b], b)
    made.seal(b=M @ truth)
    verdict = MULTIPLICATIVE_WEIGHTS.suits(made.model, made.options)
    assert verdict.eligible, verdict.reason
    point, promise = made.play(MULTIPLICATIVE_WEIGHTS, 1), made.promise(MULTIPLICATIVE_WEIGHTS)
    assert promise.noise["L"] == pytest.approx(1) and promise.width == pytest.approx(2)
    assert made.violation(MULTIPLICATIVE_WEIGHTS, point.x) <= promise.error < 0.2
    user = point.x[promise.plan.form.signed]
    assert np.abs(user).sum() <= 1 + 1e-9 and np.abs(user - truth).max() < 0.1


def test_the_excess_of_a_search_moves_by_at_most_its_change() -> None:
    made, declared = several(**DECLARED["l1"])
    rng, limit = np.random.default_rng(9), MULTIPLICATIVE_WEIGHTS.excess_sensitivity(made.task)
    pairs = list(neighbours(made, declared, rng, 20))
    assert 0.3 * limit <= excess_moves(made, MULTIPLICATIVE_WEIGHTS, pairs, rng.uniform(-1, 2, (20, 3))) <= limit


# ------------------------------------------------------------------ refusals


def test_refusals() -> None:
    x = cp.Variable(3, bounds=[0, 1], name="x")
    far = Private(shape=3, name="far", unit="entry")
    assert "arbitrarily" in refusal(MULTIPLICATIVE_WEIGHTS, game(cp.Minimize(0), [x <= far], far))
    assert "right-hand sides" in refusal(MULTIPLICATIVE_WEIGHTS, games.noisy_rows())
    assert "delta > 0" in refusal(ALGORITHM_4, histogram(), delta=0.0)
    assert "steps" in refusal(ALGORITHM_4, histogram(people=10**9))


def test_too_many_public_rows() -> None:
    b = Private(shape=1, name="b", linf=1.0)
    x = cp.Variable(400, bounds=[0, 1])
    made = game(cp.Minimize(0), [x[0] <= b, x[1:] + x[:-1] <= 1], b)
    assert "public rows" in refusal(MULTIPLICATIVE_WEIGHTS, made)
