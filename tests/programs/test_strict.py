"""``feasibility="strict"``: what no release can beat, by linear programs over all mechanisms and by simulation, and the
public worst case."""

from __future__ import annotations

import math
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from replaying import Transcript
from scipy.stats import binom, norm

import dpmodel as dpm
from dpmodel.contract import Options
from dpmodel.privacy import SeededSource, gaussian_delta
from dpmodel.programs.strict import (
    STRICT_TRUNCATED_GAUSSIAN,
    STRICT_TRUNCATED_LAPLACE,
    strict_least,
    strict_lower_bounds,
)

STEPS = [(1.0, 0.01), (1.0, 0.001), (0.5, 0.01), (2.0, 0.01)]


def private(value: Any, name: str = "b", **declared: Any) -> Any:
    return dpm.Private(np.asarray(value, dtype=float), name=name, **{"unit": "entry", "linf": 1.0, **declared})


def shares(**declared: Any) -> dpm.Problem:
    x = cp.Variable(2, nonneg=True, name="x")
    return dpm.Problem(cp.Maximize(np.array([1.0, 2]) @ x), [x <= private([50.0, 70], **declared)])


def steps(epsilon: float, delta: float) -> int:
    """The least loss, in changes by one record, that is proved for half of all draws."""
    model = shares(bounds=[0, 1e6])._model(None)
    return int(strict_least(model, Options(epsilon, delta, feasibility="strict"))["tightened by"])


def largest_chance(epsilon: float, delta: float, k: int, values: int) -> float:
    """Over all (epsilon, delta)-DP mechanisms on 0..values - 1 that never answer more than the value: the largest
    probability to answer at most k - 1 below the top. An outcome of a mechanism is the loss."""
    P = cp.Variable((values, values), nonneg=True)  # P[d, o] : answer o at value d
    rows = [cp.sum(P, axis=1) == 1, *(P[d, d + 1 :] == 0 for d in range(values - 1))]
    for d in range(values - 1):
        for one, other in ((P[d], P[d + 1]), (P[d + 1], P[d])):
            rows.append(cp.sum(cp.pos(one - math.exp(epsilon) * other)) <= delta)
    return float(cp.Problem(cp.Maximize(cp.sum(P[values - 1, values - k :])), rows).solve(solver="CLARABEL"))


@pytest.mark.parametrize(("epsilon", "delta"), STEPS)
def test_the_bound_is_the_best_of_all_mechanisms(epsilon: float, delta: float) -> None:
    """F_k is what the best mechanism has; k is the last at which that is at most a half."""
    k = steps(epsilon, delta)
    chance = [delta * math.expm1(j * epsilon) / math.expm1(epsilon) for j in (k, k + 1)]
    assert chance[0] <= 0.5 < chance[1]
    for j, expected in ((k, chance[0]), (k + 1, min(chance[1], 1.0))):
        found = largest_chance(epsilon, delta, j, k + 4)
        assert found <= expected + 1e-6
        assert j > k or found == pytest.approx(expected, abs=1e-5)


def test_without_delta_no_loss_is_avoided() -> None:
    assert largest_chance(2.0, 0.0, 5, 6) == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.3, 1e-3)])
def test_truncated_noise_keeps_the_bound_and_is_within_a_step_of_it(epsilon: float, delta: float) -> None:
    """In the median, row by row: two numbers of unequal size."""
    people = {"records": dpm.Records("people")}
    b, d = private(500.0, bounds=[0, 900], **people), private(7000.0, "d", linf=20.0, bounds=[0, 9000], **people)
    x = cp.Variable(2, nonneg=True, name="x")
    for rows, moved in (([x[0] <= b, x[1] <= 5], 1.0), ([x[0] <= 5, x[1] <= d], 20.0)):
        model = dpm.Problem(cp.Maximize(cp.sum(x)), rows)._model(None)
        options = Options(epsilon, delta, feasibility="strict")
        least = strict_least(model, options)["tightened by"]
        runs = [STRICT_TRUNCATED_LAPLACE.run(model, options, SeededSource(seed)) for seed in range(200)]
        true = 505.0 if moved == 1 else 7005.0
        lost = np.array([true - run.x.sum() for run in runs])  # type: ignore[union-attr]
        assert (lost >= least - 1e-6).sum() >= binom.isf(1 - 1e-7, 200, 0.5)
        assert (lost <= least + moved).sum() >= binom.isf(1 - 1e-7, 200, 0.5)


def test_the_bound_ends_with_the_declared_range() -> None:
    for bounds, expected in ([[45, 90], 13.0], [[45, 57], 12.0], [None, 13.0]):
        declared = {} if bounds is None else {"bounds": bounds}
        problem = dpm.Problem(cp.Maximize(cp.sum(x := cp.Variable(2))), [x <= private([50.0, 52], **declared)])
        model = problem._model(None)
        assert strict_least(model, Options(1.0, 1e-6, feasibility="strict")) == pytest.approx(
            {"tightened by": expected}
        )


NOTHING: dict[str, Any] = {
    "a sum": lambda x: [cp.sum(x) <= cp.sum(private([5.0, 6], bounds=[0, 9]))],
    "in a coefficient too": lambda x: [(p := private(5.0, bounds=[1, 9])) * x[0] <= p],
    "symmetric": lambda x: [x <= dpm.Private(np.eye(2), name="S", symmetric=True, linf=1.0, unit="entry")[0]],
    "fractions of integers": lambda x: [x <= private([5.0, 6], integer=True, linf=0.5)],
    "a limit on the norm": lambda x: [x <= dpm.Private([1.0, 2], name="b", unit="all", l1=1.0, max_l2=9)],
}


@pytest.mark.parametrize("name", NOTHING)
def test_nothing_is_claimed_where_the_chain_is_not_there(name: str) -> None:
    x = cp.Variable(2, nonneg=True, name="x")
    model = dpm.Problem(cp.Maximize(cp.sum(x)), NOTHING[name](x))._model(None)
    assert strict_lower_bounds(model, Options(1.0, 1e-6, feasibility="strict")) == ()
    claimed = strict_lower_bounds(model, Options(1.0, 0.0, feasibility="strict"))
    assert bool(claimed) == (name in ("a sum", "in a coefficient too")), "any chain will do without delta"


def test_plans_have_the_bound_beside_the_mechanisms() -> None:
    problem = shares(bounds=[0, 90])
    plan = problem.plan(1.0, 1e-6, feasibility="strict", compare="all")
    (line,) = plan.lower_bounds
    assert "at least 13 inside" in line and "at least 1/2" in line and line in " ".join(str(plan.table()).split())
    assert plan.chosen.forecast.error.tightening >= 13


# ------------------------------------------------------------------------------------------ the public worst case
@pytest.mark.filterwarnings("ignore::dpmodel.errors.NoGuaranteeWarning")
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_public_worst_case_is_listed_and_costs_what_it_says(delta: float) -> None:
    problem = shares(bounds=[40, 90])
    plan = problem.plan(1.0, delta, feasibility="strict", compare="all")
    (listed,) = (each for each in plan.candidates if each.mechanism == "public-only")
    assert listed.eligible and listed.forecast is not None and listed.forecast.spends_nothing
    assert "the public worst case" in listed.forecast.statement
    assert listed.forecast.error.objective == pytest.approx(3 * 50, rel=1e-5)  # at 40 of at most 90 in both
    problem.solve(epsilon=1.0, delta=delta, feasibility="strict", mechanism="public-only", rng=0)
    assert problem.variables()[0].value == pytest.approx([40, 40], abs=1e-5)
    assert problem.release.guarantee.epsilon == 0


def test_without_delta_the_public_worst_case_is_taken_and_the_theorem_stands_beside_it() -> None:
    plan = shares(bounds=[40, 90]).plan(1.0, feasibility="strict")
    assert plan.chosen.mechanism == "public-only"
    (line,) = plan.lower_bounds
    assert "no strict release does better than the public worst case" in line
    assert "takes delta > 0" in plan.why("strict-truncated-laplace")


# ------------------------------------------------------------------------------------------ Laplace or Gaussian
@pytest.mark.parametrize(("count", "chosen"), [(2, "laplace"), (4, "gaussian"), (60, "gaussian")])
def test_the_plan_takes_the_noise_that_tightens_less(count: int, chosen: str) -> None:
    """Where one record moves many numbers that is Gaussian noise; all true rows hold with either."""
    b = private(np.linspace(500, 800, count), unit="all", bounds=[0, 1000])
    x = cp.Variable(count, nonneg=True, name="x")
    problem = dpm.Problem(cp.Maximize(np.linspace(1, 2, count) @ x), [x <= b])
    plan = problem.plan(1.0, 1e-6, feasibility="strict", compare="all")
    assert plan.chosen.mechanism == f"strict-truncated-{chosen}"
    found = {c.mechanism: c.forecast.error.tightening for c in plan.candidates if c.forecast is not None}
    assert found[plan.chosen.mechanism] == min(found[f"strict-truncated-{kind}"] for kind in ("laplace", "gaussian"))
    for seed in range(20):
        problem.solve(1.0, 1e-6, feasibility="strict", rng=seed)
        inside = np.linspace(500, 800, count) - x.value
        assert inside.min() >= -1e-6 and inside.max() <= found[plan.chosen.mechanism] + 1e-6


@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 1e-6), (1.0, 1e-2), (8.0, 1e-6)])
def test_gaussian_noise_of_sides_coefficients_and_costs_keeps_its_delta(epsilon: float, delta: float) -> None:
    """Read off the draws: two people's numbers of unequal size in three parts, of which one is not truncated."""
    people = {"unit": "entry", "records": dpm.Records("people")}
    c = dpm.Private([1.0, 2], name="c", linf=0.5, bounds=[0, 9], **people)
    A = dpm.Private(np.ones((3, 2)), name="A", linf=0.01, bounds=[0.5, 1.5], **people)
    b = dpm.Private([5.0, 6, 7], name="b", linf=0.1, bounds=[4, 9], **people)
    d = dpm.Private([50.0], name="d", linf=7.0, bounds=[40, 90], records=dpm.Records("others"))
    x = cp.Variable(2, bounds=[0, 3], name="x")
    model = dpm.Problem(cp.Minimize(-c @ x), [A @ x <= b, cp.sum(x) <= d])._model(None)
    source, options = Transcript(0), Options(epsilon, delta, feasibility="strict")
    assert STRICT_TRUNCATED_GAUSSIAN.eligible(model, options).eligible
    STRICT_TRUNCATED_GAUSSIAN.run(model, options, source)
    scales, windows, cut = {}, set(), 0
    for draw in source.draws:
        size = draw.values[0].size
        scales[draw.distribution, size] = draw.arguments[0]
        if draw.distribution == "truncated_gaussian":
            cut += size
            windows.add(round(draw.arguments[1] / draw.arguments[0], 9))
    assert cut == 10 and set(scales) == {("gaussian", 2), ("truncated_gaussian", 6), ("truncated_gaussian", 4)}
    (window,) = windows
    squares = (0.5 / scales["gaussian", 2]) ** 2 + (0.01 / scales["truncated_gaussian", 6]) ** 2
    # Sides are scaled, so that one record moves each by as much: as the largest.
    mu = math.sqrt(squares + (7.0 / scales["truncated_gaussian", 4]) ** 2)
    beyond = cut * norm.sf(window)
    total = (gaussian_delta(mu, epsilon) + math.exp(epsilon) * beyond) / (1 - 2 * beyond)
    assert 0.9 * delta <= total <= delta * (1 + 1e-9)


@pytest.mark.parametrize(
    ("delta", "bounds", "expected"), [(0.2, [-5, 5], None), (0.1, [-5, 9], 9.0), (0.2, [3, 5], None)]
)
def test_a_number_that_is_there_or_not_changes_by_way_of_its_absence(
    delta: float, bounds: list[float], expected: float | None
) -> None:
    """Two neighbors from 5 to -5, so that one step's chance says nothing of it; also where absence is out of range."""
    x = cp.Variable(2, nonneg=True, name="x")
    records = dpm.Records("people", neighbors="add-remove")
    b = dpm.Private([5.0, 4], name="b", unit="entry", bounds=bounds, records=records)
    model = dpm.Problem(cp.Maximize(cp.sum(x)), [x <= b + 9])._model(None)
    options = Options(1.0, delta, feasibility="strict")
    assert strict_least(model, options) == ({} if expected is None else pytest.approx({"tightened by": expected}))
    assert bool(strict_lower_bounds(model, options)) == (expected is not None)


def test_more_than_half_of_all_draws_may_keep_a_number_whose_other_end_is_two_neighbors_away() -> None:
    """The best mechanism for -5, absent (0), 5 with epsilon 1 and delta 0.2: in 74 % of draws no loss of 10 at 5."""
    assert largest_chance(1.0, 0.2, 2, 3) == pytest.approx(0.2 * (1 + math.e), abs=1e-5)
