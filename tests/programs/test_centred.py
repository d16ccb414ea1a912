"""``centred``, the default: what is said of it is true, infeasible draws included, and no choice does worse than it."""

from __future__ import annotations

import warnings
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy.stats import binom

import dpmodel as dpm
from dpmodel.programs import noise_once
from tests.benchmarks.programs.treatments import measured
from tests.benchmarks.regret.models import MODELS

BETA, DRAWS, FALSE_ALARM = 0.2, 60, 1e-8


# ---------------------------------------------------------------------------------- true, whatever is drawn
def random_model(seed: int) -> tuple[dpm.Problem, Any]:
    """Two blocks of private rows, of unequal size; on every other seed capacities so tight that draws contradict each
    other, equalities, private coefficients with and without a bound on x. And what its true rows are missed by."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(3, 7)), int(rng.integers(2, 5))
    x = cp.Variable(n, nonneg=True, name="x")
    A, start = rng.uniform(0, 2, (m, n)), rng.uniform(1, 4, n)
    need, half = A @ start, start[:2] * 0.8
    b = dpm.Private(need, name="b", unit="entry", linf=0.4)
    c = dpm.Private(half, name="c", unit="all", linf=0.2, l1=0.2)
    kind = seed % 4
    left: Any = A
    if kind == 1:
        left = dpm.Private(A, name="A", unit="entry", linf=0.05)
    elif kind == 2:
        left = dpm.Private(A, name="A", unit="row", l1=0.1, bounds=[0, 2])
    rows = [left @ x == b if kind == 3 else left @ x >= b, x[:2] >= c]
    if seed % 8 >= 4 or kind == 2:
        rows.append(cp.sum(x) <= 1.02 * start.sum())
    problem = dpm.Problem(cp.Minimize(rng.uniform(1, 3, n) @ x if seed % 5 else 0), rows)

    def missed() -> float:
        gap = need - A @ x.value
        return max(float(np.abs(gap).max() if kind == 3 else gap.max()), float((half - x.value[:2]).max()), 0.0)

    return problem, missed


def broken(seeds: range, feasibility: str = "centred") -> tuple[int, int, int]:
    """Of ``DRAWS`` releases of each model: how many break what the plan says, what the release says; gave way."""
    plan_broken = release_broken = gave_way = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in seeds:
            problem, missed = random_model(seed)
            for draw in range(DRAWS):
                problem.solve(1.0, 1e-6, beta=BETA, mechanism="laplace-once", feasibility=feasibility, rng=draw)
                release, forecast = problem.release, problem.last_plan.chosen.forecast
                found = missed() - 1e-5
                plan_broken += found > forecast.error.violation
                release_broken += found > release.accuracy.violation_alpha
                gave_way += release.status == "least_violation"
                assert release.accuracy.proved
    return plan_broken, release_broken, gave_way


def most(count: int) -> int:
    return int(binom.isf(FALSE_ALARM, count * DRAWS, BETA))


@pytest.mark.parametrize("models", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", range(4))
def test_plan_and_release_say_what_holds(kind: int, models: int) -> None:
    """False alarms: 1e-8 for each of the eight counts, were every statement as bold as it may be."""
    seeds = range(kind, 4 * models, 4)
    plan_broken, release_broken, gave_way = broken(seeds)
    assert plan_broken <= most(len(seeds)) and release_broken <= most(len(seeds))
    if kind in (0, 2, 3):
        assert gave_way > 0, "draws that contradict each other are among them"


def test_a_bound_at_the_point_without_its_noise_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: what x misses of the released rows alone, which is what the solver sees."""
    real = noise_once.violation_at
    monkeypatch.setattr(noise_once, "violation_at", lambda *given: real(*given) / 20)
    assert broken(range(0, 16, 4))[1] > most(4)


def test_coefficients_need_no_bound_on_x() -> None:
    rng = np.random.default_rng(0)
    A = rng.uniform(1, 3, (4, 6))
    x = cp.Variable(6, nonneg=True, name="x")
    private = dpm.Private(A, name="A", unit="entry", linf=0.01)
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [private @ x >= 10])
    plan = problem.plan(1.0)
    forecast = plan.chosen.forecast
    assert plan.chosen.mechanism == "laplace-once" and not plan.answer and not forecast.vacuous
    assert "times the sum of |x|" in forecast.statement
    problem.solve(1.0, rng=0)
    alpha = problem.release.accuracy.violation_alpha
    assert problem.release.accuracy.proved and (10 - A @ x.value).max() <= alpha < 10
    with pytest.raises(dpm.errors.UnsupportedModelError, match="no public bound on x"):
        problem.plan(1.0, feasibility="relaxed")


def test_a_multiple_of_x_says_nothing_where_the_declared_ranges_say_more() -> None:
    rng, w, people = np.random.default_rng(0), cp.Variable(3, name="w"), dpm.Records("people")
    X = dpm.Private(rng.uniform(-1, 1, (40, 3)), name="X", unit="row", bounds=[-1, 1], records=people)
    y = dpm.Private(rng.uniform(-1, 1, 40), name="y", unit="entry", bounds=[-1, 1], records=people)
    problem = dpm.Problem(cp.Minimize(cp.max(cp.abs(X @ w - y))))
    assert problem.plan(1.0, mechanism="laplace-once").chosen.forecast.vacuous
    assert not problem.plan(200.0, mechanism="laplace-once").chosen.forecast.vacuous
    with pytest.warns(dpm.errors.NoGuaranteeWarning):
        problem.solve(1.0)
    assert problem.release.guarantee.epsilon == 0


# ---------------------------------------------------------------------------------- no choice does worse


def test_relaxed_is_told_from_it() -> None:
    """Planted: the old default. Every row is short."""
    told = measured(MODELS["transport"](0), range(1), feasibility="relaxed")
    assert told.rows == 1.0 and told.short > 0.1


def test_what_leaves_constraints_out_is_compared_where_a_person_owns_one_or_it_is_asked_for() -> None:
    x = cp.Variable(3, bounds=[0, 9], name="x")
    own = dpm.Private(shape=(500, 3), name="own", unit="row", bounds=[0, 1])
    sums = dpm.Private(shape=(500, 3), name="sums", unit="entry", linf=1, bounds=[0, 1])
    sides = dpm.Private(shape=3, name="sides", unit="entry", linf=1, bounds=[0, 9])
    who = ("dense-multiplicative-weights", "noisy-hinge-descent", "point-exponential", "cheapest-point")
    for rows, asked, compared in (
        (own @ x >= 1, {}, True),
        (sums @ x >= 1, {}, False),
        (x >= sides, {}, False),
        (x >= sides, {"feasibility": dpm.AllBut(alpha=5)}, True),
        (x >= sides, {"goal": dpm.Search()}, True),
        (x >= sides, {"mechanism": "noisy-hinge-descent"}, True),
    ):
        plan = dpm.Problem(cp.Minimize(cp.sum(x)), [rows]).plan(1.0, 1e-6, compare="all", **asked)
        told = [each for each in plan.candidates if each.mechanism in who]
        refused = [each for each in told if "leaves private constraints out" in each.reason]
        assert refused == ([] if compared else told), (str(rows), asked)


def test_what_leaves_rows_out_is_chosen_by_how_many_are_short() -> None:
    """One person, one constraint, 1,000 rows: the choice does best on synthetic databases, and a plan says so where its
    statement says nothing."""
    A, x = dpm.Private(np.full((1000, 5), 0.5), name="A", unit="row"), cp.Variable(5, bounds=[0, 1], name="x")
    plan = dpm.Problem(cp.Maximize(cp.sum(x)), [A @ x <= 1.25]).plan(epsilon=1, delta=1e-6)
    readers = [each.forecast for each in plan.candidates if each.reads]
    shares = [each.error.against_public for each in readers if each.error.slack_rows]
    assert plan.chosen.forecast.error.against_public == min(shares)
    assert plan.chosen.forecast.vacuous == bool(plan.answer)
