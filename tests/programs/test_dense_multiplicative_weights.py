"""Dense multiplicative weights: sensitivity by brute force, oracles, plans, utility."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import binom

import dpmodel as dpm
from dpmodel.as_printed.algorithm_2 import ALGORITHM_2
from dpmodel.contract import Options, no_progress
from dpmodel.privacy import SeededSource
from dpmodel.privacy.accounting import Spend
from dpmodel.programs.dense_oracles import ListedSelection, ProductSelection, oracles
from dpmodel.programs.dense_weights import DENSE_MULTIPLICATIVE_WEIGHTS, DenseMeasure
from dpmodel.programs.goals import Task
from dpmodel.programs.rows import private_rows, public_polyhedron

ENGINE = DENSE_MULTIPLICATIVE_WEIGHTS


class Cover:
    """Private rows ``A x >= 1`` (twice ``A x <= 3`` too) over a public set of n columns."""

    def __init__(self, values, shape="simplex", twice=False, records=None, budget=None, **bounds):
        n = np.shape(values)[1]
        self.A = dpm.Private(np.asarray(values, float), unit="row", records=records, **bounds)
        x = cp.Variable(n, nonneg=True)
        public = {
            "simplex": [cp.sum(x) == 2],
            "box": [x <= 1],
            "product": [cp.sum(x[: n // 2]) == 1, cp.sum(x[n // 2 :]) <= 2],
            "general": [x <= 1, np.arange(1, n + 1) @ x <= n],
        }[shape]
        rows = [self.A @ x >= 1] + ([self.A @ x <= 3] if twice else [])
        problem = dpm.Problem(cp.Minimize(0), [*rows, *public])
        self.model = problem._model(None)
        self.problem, self.rows, self.polytope = problem, private_rows(self.model), public_polyhedron(self.model)

    def theta(self, values):
        self.A.value = np.asarray(values, float)
        return self.model.read_private()

    def task(self, epsilon=1.0, delta=1e-6, **sensitivities):
        task = Task(
            self.model, self.polytope, np.zeros(self.polytope.size), Spend.of(epsilon, delta), epsilon, delta, 0.05
        )
        return replace(task, **sensitivities)


def vertices(polytope):
    """(k, n) vertices of a product of simplices and boxes."""
    shape = polytope.product
    choices = [list(np.flatnonzero(shape.block == b)) + [None] * bool(o) for b, o in enumerate(shape.optional)]
    out = []
    for chosen in itertools.product(*[c for c in choices if c]):
        v = shape.base.copy()
        for j in chosen:
            if j is not None:
                v[j] += shape.step[j]
        out.append(v)
    return np.array(out)


# ---------------------------------------------------------------------- sensitivity
class NotLazy(DenseMeasure):
    """Broken: the update goes to the projected distribution."""

    def projected(self):
        y = super().projected()
        self._log = np.log(np.maximum(y, 1e-300))
        return y


class NotDense(DenseMeasure):
    """Broken: plain multiplicative weights."""

    def projected(self):
        return np.exp(self._log - logsumexp(self._log))


def average_row(measure, rows, theta, history, density, rate):
    """(n,) u after the points of ``history`` were released."""
    G, h = rows.values(theta)
    measure = measure(rows.count, density)
    for x in history:
        measure.projected()
        measure.add(rate * (G @ x - h))
    return G.T @ measure.projected()


SHAPES = {
    "simplex": {"bounds": [0, 1]},
    "box": {"bounds": [-1, 2]},
    "product": {"bounds": [0, 1], "max_l1": 2.0},
    "simplex, add-remove": {"bounds": [0, 1], "records": dpm.Records(neighbors="add-remove")},
    "product, two rows": {"bounds": [0, 1], "twice": True},
    "simplex, no bounds": {},
    "box, 2-norm": {"bounds": [-2, 2], "max_l2": 1.5},
}


def draw_row(rng, name, n):
    row = np.round(rng.uniform(-3, 3, n), 1) if name in ("simplex, no bounds", "box, 2-norm") else rng.uniform(-1, 2, n)
    row = row if rng.random() < 0.4 else rng.choice([-1.0, 0.0, 1.0, 2.0], n)
    return np.zeros(n) if rng.random() < 0.2 else row


def worst_moves(name, measure=DenseMeasure, trials=120):
    """Largest moves of u between neighbours, divided by what is allowed: in the two norms and in score range."""
    rng = np.random.default_rng(1)
    m, n = 6, 4
    cover = Cover(np.zeros((m, n)), name.split(",")[0], **SHAPES[name])
    rows, points = cover.rows, vertices(cover.polytope)
    selection = ProductSelection.of(rows, cover.polytope)
    worst = np.zeros(3)
    for _ in range(trials):
        values = np.array([draw_row(rng, name, n) for _ in range(m)])
        other = values.copy()
        other[rng.integers(m)] = draw_row(rng, name, n)
        history = points[rng.integers(len(points), size=rng.integers(0, 6))]
        density, rate = int(rng.integers(1, rows.count + 1)), 10 ** rng.uniform(-1.5, 1.5)
        before, after = (
            average_row(measure, rows, cover.theta(v), history, density, rate).copy() for v in (values, other)
        )
        share = min(rows.per_record / density, 1.0)
        moved = after - before
        allowed = share * np.array([rows.swing(1), rows.swing(2), selection.row_range])
        worst = np.maximum(
            worst, np.array([np.abs(moved).sum(), np.linalg.norm(moved), np.ptp(points @ moved)]) / allowed
        )
    return worst


@pytest.mark.parametrize("name", SHAPES)
def test_sensitivity(name: str) -> None:
    worst = worst_moves(name)
    assert (worst <= 1 + 1e-9).all()
    assert worst.max() > 0.3  # not far from what really happens


@pytest.mark.parametrize("twin", [NotLazy, NotDense])
def test_broken_measures_move_more(twin) -> None:
    assert worst_moves("simplex", twin, trials=250).max() > 1.3


def test_row_range() -> None:
    """``row_range`` holds for all pairs of rows and vertices, and is exact for rows in [0, 1] on a simplex."""
    rng = np.random.default_rng(3)
    for name in SHAPES:
        cover = Cover(np.zeros((3, 4)), name.split(",")[0], **SHAPES[name])
        points = vertices(cover.polytope)
        product = ProductSelection.of(cover.rows, cover.polytope)
        listed = ListedSelection.of(cover.rows, cover.polytope, points)
        assert product.log_count == pytest.approx(math.log(len(points)))
        assert len(listed.points) == len(points)
        seen = 0.0
        for _ in range(80):
            G = cover.rows.values(cover.theta([draw_row(rng, name, 4) for _ in range(3)]))[0].toarray()
            seen = max(seen, *(np.ptp(points @ (a - b)) for a, b in itertools.combinations([*G, np.zeros(4)], 2)))
        assert 0.3 * min(product.row_range, listed.row_range) < seen <= min(product.row_range, listed.row_range) + 1e-9
    cover = Cover(np.zeros((3, 4)), "simplex", bounds=[0, 1])
    assert ProductSelection.of(cover.rows, cover.polytope).row_range == pytest.approx(4)  # (a - b)'(2 e_j - 2 e_k)
    assert ListedSelection.of(cover.rows, cover.polytope, np.full((1, 4), 9.0)) is None


# ---------------------------------------------------------------------- oracles
@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("shape", ["simplex", "box", "product", "general"])
def test_oracle_error(shape: str, delta: float) -> None:
    """The mean loss over T steps exceeds its bound with probability at most beta (exact binomial tail)."""
    rng = np.random.default_rng(11)
    cover = Cover(np.zeros((6, 6)), shape, bounds=[-1, 1])
    spend, beta, trials = Spend.of(1.0, delta), 0.1, 60
    limit = binom.isf(1e-7, trials, beta)
    points = None if shape == "general" else vertices(cover.polytope)
    found = [*oracles(cover.rows, cover.polytope, None)]
    if points is not None:
        found.append(ListedSelection.of(cover.rows, cover.polytope, points))
    for oracle in found:
        for steps in (1, 6):
            bound = float(oracle.error(spend, np.array([float(steps)]), beta)[0]) * 0.01
            source, ratios = SeededSource(7), []
            for _ in range(trials):
                u, tilt = rng.uniform(-1, 1, 6) * bound, rng.uniform(-0.1, 0.1, 6) * bound
                best = (tilt + u) @ cover.polytope.minimise(tilt + u)
                lost = [(tilt + u) @ oracle.minimise(u, tilt, 0.01, spend, steps, source) - best for _ in range(steps)]
                assert min(lost) > -1e-9
                ratios.append(np.mean(lost) / bound)
            assert np.sum(np.array(ratios) > 1) <= limit
            assert np.quantile(ratios, 0.95) > 0.02  # the bound is not out of all proportion


# ---------------------------------------------------------------------- plans and utility
def ballots(m, n, rng):
    return (rng.random((m, n)) < 0.4).astype(float)


def worst_mean(cover, theta, x, density):
    G, h = cover.rows.values(theta)
    return float(np.sort(np.maximum(G @ x - h, 0.0))[-density:].mean()), np.asarray(G @ x - h)


@pytest.mark.parametrize(("shape", "delta"), [("simplex", 0.0), ("general", 1e-6)])
def test_utility(shape: str, delta: float) -> None:
    """V, slack rows and public constraints as promised, on a planted feasible program."""
    rng = np.random.default_rng(4)
    values = ballots(3000, 6, rng)
    values[:, 1] = 1.0
    cover = Cover(values, shape, bounds=[0, 1])
    task, theta = cover.task(8.0, delta, violation=0.35), cover.theta(values)
    promise = ENGINE.promise(task)
    assert promise.alpha <= 0.35 and promise.slack_rows < 2000 and promise.proved
    found, trials = [], 8
    for seed in range(trials):
        x = ENGINE.point(task, promise, theta, SeededSource(seed), no_progress).x
        v, residual = worst_mean(cover, theta, x, promise.plan.density)
        assert cover.polytope.violation(x) <= 1e-9
        found.append(v)
        if v <= promise.error:
            assert (residual > promise.alpha).sum() <= promise.slack_rows
    assert np.sum(np.array(found) > promise.error) <= binom.isf(1e-7, trials, 0.05)
    uniform = worst_mean(cover, theta, np.full(6, 2 / 6 if shape == "simplex" else 0.0), promise.plan.density)[0]
    assert np.median(found) < uniform


def test_tilt() -> None:
    """w'x + V(x) <= w'x* + error, with idle rows so that slack in the rows does not pay for the objective."""
    rng = np.random.default_rng(6)
    values = ballots(2000, 4, rng)
    values[:, 0] = 1.0
    cover = Cover(values, "simplex", bounds=[0, 1])
    tilt = np.array([0.3, 0.0, 0.1, 0.0])
    task, theta = cover.task(8.0, 1e-6, tilt=tilt), cover.theta(values)
    promise = ENGINE.promise(task)
    assert promise.plan.idle == promise.plan.density
    G, h = cover.rows.values(theta)
    x = cp.Variable(4, nonneg=True)
    best = cp.Problem(cp.Minimize(tilt @ x), [G @ x <= h, cp.sum(x) == 2]).solve(solver=cp.HIGHS)
    trials, bad = 15, 0
    for seed in range(trials):
        x = ENGINE.point(task, promise, theta, SeededSource(seed), no_progress).x
        bad += tilt @ x + worst_mean(cover, theta, x, promise.plan.density)[0] > best + promise.error
    assert bad <= binom.isf(1e-7, trials, 0.05)


def test_plan_follows_what_was_asked() -> None:
    cover = Cover(ballots(20_000, 8, np.random.default_rng(0)), "simplex", bounds=[0, 1])
    free = ENGINE.promise(cover.task())
    assert 0 < free.alpha < free.width and 1 < free.slack_rows < 10_000
    asked = ENGINE.promise(cover.task(slack_rows=4000))
    assert asked.slack_rows == 4000 and asked.plan.density == 4001
    assert ENGINE.promise(cover.task(slack_rows=8000)).alpha < asked.alpha
    wanted = ENGINE.promise(cover.task(violation=0.3))
    fewer = ENGINE.promise(cover.task(slack_rows=wanted.slack_rows - 1))
    assert wanted.alpha <= 0.3 < fewer.alpha
    # More budget: fewer rows left out; the best number of steps: neither more nor fewer are better.
    assert ENGINE.promise(cover.task(4.0, violation=0.3)).slack_rows < wanted.slack_rows
    spend, density = cover.task().spend, asked.plan.density
    oracle = next(o for o in oracles(cover.rows, cover.polytope, None) if o.name == asked.plan.oracle)

    def error(steps):
        low, high = cover.rows.residual_range(cover.polytope)
        share = cover.rows.per_record / density
        regret = (high - low) * math.sqrt(math.log(20_000 / density) / (2 * steps))
        return share * float(oracle.error(spend, np.array([float(steps)]), 0.05)[0]) + regret

    assert error(asked.plan.steps) == pytest.approx(asked.error)
    assert asked.error <= min(error(asked.plan.steps * f) for f in (0.5, 0.8, 1.25, 2)) + 1e-12


def test_listed_points() -> None:
    cover = Cover(ballots(2000, 4, np.random.default_rng(0)), "general", bounds=[0, 1])
    points = np.array([[1, 1, 0, 0], [0.5, 0.5, 0.5, 0.25], [4.0, 0, 0, 0]])
    task = cover.task(vertices=points)
    promise = ENGINE.promise(task)
    assert promise.noise["ln(vertices)"] == pytest.approx(math.log(2)) and promise.caveats
    x = ENGINE.point(task, promise, cover.model.read_private(), SeededSource(0), no_progress).x
    assert x == pytest.approx(points[0] * (w := (x[0] - 0.5) * 2) + points[1] * (1 - w)) and 0 <= w <= 1


# ---------------------------------------------------------------------- as published
def test_published_constants() -> None:
    cover = Cover(ballots(4000, 4, np.random.default_rng(0)), "simplex", bounds=[0, 1])
    task = cover.task(20.0, 1e-6, violation=0.7)
    promise = ALGORITHM_2.promise(task)
    plan, log_m = promise.plan, math.log(4000)
    assert plan.steps == math.ceil(36 * log_m / 0.7**2)  # rho = 1
    assert plan.rate == pytest.approx(math.sqrt(log_m / plan.steps) / 2, rel=1e-5)
    assert plan.rate * 2 <= 0.5
    low, high = cover.rows.residual_range(cover.polytope)
    assert plan.range_bound == pytest.approx(2 * (high - low) / plan.density, rel=5e-3)
    oracle_error = plan.range_bound / plan.step_epsilon * math.log(4 * plan.steps / 0.05)
    assert oracle_error <= 0.7 / 3 * (1 + 1e-9)
    assert promise.alpha == 0.7 and promise.slack_rows == plan.density - 1 == promise.noise["s by Theorem 15"] - 1
    assert ENGINE.promise(cover.task(20.0, 1e-6, slack_rows=promise.slack_rows)).alpha < promise.alpha
    back = ALGORITHM_2.promise(cover.task(20.0, 1e-6, slack_rows=promise.slack_rows))
    assert back.alpha == pytest.approx(0.7, rel=0.05) and back.slack_rows == promise.slack_rows
    theta = cover.model.read_private()
    x = ALGORITHM_2.point(task, promise, theta, SeededSource(0), no_progress).x
    assert worst_mean(cover, theta, x, plan.density)[0] <= promise.error


def test_published_refusals_and_vacuity() -> None:
    values = ballots(200, 4, np.random.default_rng(0))
    cover, general = (Cover(values, shape, bounds=[0, 1]) for shape in ("simplex", "general"))
    assert ALGORITHM_2.suits(cover.model, Options(1.0, 1e-6)).eligible
    assert "delta" in ALGORITHM_2.suits(cover.model, Options(1.0, 0.0)).reason
    assert "steps" in ALGORITHM_2.suits(cover.model, Options(1.0, 1e-6, violation=1e-3)).reason
    assert "vertices" in ALGORITHM_2.suits(general.model, Options(1.0, 1e-6)).reason
    assert ENGINE.suits(general.model, Options(1.0, 0.0)).eligible
    promise = ALGORITHM_2.promise(cover.task(0.1))
    assert promise.slack_rows == promise.rows and promise.error == promise.width  # says nothing, and says so
    x = ALGORITHM_2.point(cover.task(0.1), promise, cover.model.read_private(), SeededSource(0), no_progress).x
    assert cover.polytope.violation(x) <= 1e-9
