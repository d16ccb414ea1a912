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
from replaying import Transcript
from scipy.optimize import brentq
from scipy.stats import binom, gamma

from dpmodel.as_printed.algorithms_4_to_6 import ALGORITHM_4
from dpmodel.marks import Private, Records
from dpmodel.privacy import pure_composition_delta, zcdp_rho
from dpmodel.programs import weights as primal_weights
from dpmodel.programs.weights import MULTIPLICATIVE_WEIGHTS, scalar_rows

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
    rng, rows = np.random.default_rng(4), scalar_rows(made.model)
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
    rows = scalar_rows(made.model)
    reach, single = sampled(made, declared)
    assert reach <= rows.reach * (1 + 1e-9) and single <= rows.sensitivity * (1 + 1e-9)
    assert reach >= 0.6 * rows.reach, "the bound is of the right size"


class Signs:
    """Random score maps with coefficients of both signs, and how far a record can really move scores apart."""

    def __init__(self, seed: int, **declared: Any) -> None:
        rng = np.random.default_rng(seed)
        self.M = rng.integers(-3, 4, size=(5, 3)).astype(float) * (rng.random((5, 3)) < 0.7)
        self.M[:3] += np.eye(3) * 4
        b, x = Private(shape=3, name="b", **declared), cp.Variable(5, bounds=[-9, 9])
        rows = [x == self.M @ b] if seed % 2 else [x <= self.M @ b]
        self.rows = scalar_rows(game(cp.Minimize(0), rows, b).model)
        self.scores = np.vstack([self.M, -self.M]) if seed % 2 else self.M

    def exact(self, moves: np.ndarray) -> float:
        """Over the ``moves`` (k, 3) of b that one record can make."""
        scores = np.c_[moves @ self.scores.T, np.zeros(len(moves))]
        return float(np.ptp(scores, axis=1).max())


@pytest.mark.parametrize("seed", range(8))
def test_scores_of_both_signs_move_apart_as_far_as_stated(seed: int) -> None:
    """Every corner of what a record can do; one entry moves alone, or all at once."""
    box = np.array(list(itertools.product([-1.0, 1.0], repeat=3)))
    one, every = Signs(seed, unit="entry", linf=1.0), Signs(seed, linf=1.0)
    assert one.exact(np.eye(3)) <= one.rows.reach <= one.exact(np.eye(3)) * (1 + 4e-3)
    assert every.exact(box) <= every.rows.reach


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
    scores = scalar_rows(made.model).now(theta).scores(np.zeros(2))
    assert np.abs(scores).max() <= 2.0**39 * 1e-6 * 1.1


# ------------------------------------------------------------------ the budget and the plan
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_selections_use_up_the_budget(delta: float) -> None:
    made = histogram(delta=delta)
    promise = made.promise(MULTIPLICATIVE_WEIGHTS)
    each, steps = promise.plan.epsilon, promise.plan.count
    spent = steps * each if delta == 0 else steps * each**2 / 8
    assert spent == pytest.approx(1.0 if delta == 0 else zcdp_rho(1.0, delta))
    source = Transcript(0)
    made.play(MULTIPLICATIVE_WEIGHTS, source)
    assert len(source.draws) == steps
    assert promise.noise["selection scale"] == pytest.approx(scalar_rows(made.model).reach / each)


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


def test_more_people_and_more_budget_promise_less_error() -> None:
    errors = [
        histogram(people=n, epsilon=e).promise(MULTIPLICATIVE_WEIGHTS).error for n, e in ((1e4, 1), (1e4, 4), (1e6, 4))
    ]
    assert errors == sorted(errors, reverse=True)


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


TWINS: dict[str, Any] = {
    "": lambda steps, delta: steps,
    "range halved": lambda steps, delta: replace(steps, epsilon=2 * steps.epsilon),
    "steps forgotten": lambda steps, delta: replace(
        steps, epsilon=steps.epsilon * (steps.count if delta == 0 else math.sqrt(steps.count))
    ),
}


def spent(engine: Any, twin: str, delta: float, monkeypatch: pytest.MonkeyPatch) -> float:
    """The exact epsilon of a game of 4 steps that claims 1."""
    monkeypatch.setattr(primal_weights, "MOST_STEPS", 4)
    worst = 0.0
    # Pure budgets are worst where the row that gains is unlikely, zCDP where both signs are close.
    for level in (0.0, 0.1) if delta == 0 else (0.0, 0.01, 0.02):
        made, one, two = tiny(1.0, delta, level)
        promise = made.promise(engine)
        assert promise.plan.count == 4, "the shortest games would be worthless"
        promise = replace(promise, plan=TWINS[twin](promise.plan, delta))
        p, q = distributions(made, engine, promise, one, two)
        assert p.sum() == pytest.approx(1) and q.sum() == pytest.approx(1)
        worst = max(worst, exact_epsilon(p, q, delta))
    return worst


def test_exact_privacy_of_pure_games(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0.8 <= spent(MULTIPLICATIVE_WEIGHTS, "", 0.0, monkeypatch) <= 1.0


def test_exact_privacy_of_concentrated_games(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0.45 <= spent(MULTIPLICATIVE_WEIGHTS, "", 1e-3, monkeypatch) <= 1.0


@pytest.mark.parametrize("delta", [0.0, 1e-3])
@pytest.mark.parametrize("twin", ["range halved", "steps forgotten"])
def test_broken_twins_are_found_out(twin: str, delta: float, monkeypatch: pytest.MonkeyPatch) -> None:
    assert spent(MULTIPLICATIVE_WEIGHTS, twin, delta, monkeypatch) > 1.05


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


def test_a_bolder_promise_is_found_out() -> None:
    made, runs = histogram(people=500), 12
    bold = made.promise(MULTIPLICATIVE_WEIGHTS).error / 12
    missed = sum(
        made.violation(MULTIPLICATIVE_WEIGHTS, made.play(MULTIPLICATIVE_WEIGHTS, s).x) > bold for s in range(runs)
    )
    assert binom.sf(missed - 1, runs, made.beta) < 1e-7


def test_it_learns_something() -> None:
    """Against the uniform distribution, which knows no data."""
    made = histogram(people=100_000)
    point = made.play(MULTIPLICATIVE_WEIGHTS, 1)
    uniform = made.violation(MULTIPLICATIVE_WEIGHTS, np.full(64, 1 / 64))
    assert made.violation(MULTIPLICATIVE_WEIGHTS, point.x) < uniform / 10


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


def test_a_target_cuts_the_public_set() -> None:
    """The promise is made before the target is known; the point respects it exactly."""
    made = packing(people=0.1)
    cost = np.ones(12)
    polytope = made.task.polytope.with_row(cost, 4.1)
    point = made.play(MULTIPLICATIVE_WEIGHTS, 2, polytope=polytope)
    assert cost @ point.x <= 4.1 + 1e-9 and polytope.violation(point.x) <= 1e-9
    own = MULTIPLICATIVE_WEIGHTS.promise(replace(made.task, polytope=polytope))
    assert own.error <= made.promise(MULTIPLICATIVE_WEIGHTS).error * 1.01


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


def test_counts_under_add_remove_are_ordinary_numbers() -> None:
    """Right-hand sides are read as written: an entry of zero is a bound of zero, not an absent constraint."""
    people = Records("people", neighbors="add-remove")
    b = Private(shape=2, name="b", unit="entry", linf=1.0, bounds=[0, 9], records=people)
    x = cp.Variable(2, bounds=[0, 9])
    made = game(cp.Minimize(0), [x <= b], b)
    made.seal(b=[0.0, 4.0])
    assert made.violation(MULTIPLICATIVE_WEIGHTS, np.array([3.0, 0.0])) == 3.0
