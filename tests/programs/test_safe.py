"""``feasibility="safe"`` keeps its word in many draws of tight models: whatever is released, the rows that it lists are
short by at most what it says and all others hold, except with probability beta. Draws without a point are included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from lists import false_lists, released
from scipy.stats import binom, norm

import dpmodel as dpm
from dpmodel._types import Floats
from dpmodel.contract import Options
from dpmodel.privacy import Gaussian
from dpmodel.programs.inwards import inwards, joint_quantile
from dpmodel.programs.model import Program
from dpmodel.programs.noise_design import NoisyPart, design_noise
from dpmodel.programs.public import leaves_a_point

BETA, DRAWS, FALSE_ALARM = 0.05, 200, 1e-7


def private(value: Any, name: str, **declared: Any) -> Any:
    return dpm.Private(np.asarray(value, dtype=float), name=name, **{"unit": "entry", "linf": 1.0, **declared})


def capped_rows() -> dpm.Problem:
    """The true needs are exactly what there is room for, row by row and in all."""
    need = np.array([12.0, 40, 7, 22, 31, 9, 55, 3])
    x = cp.Variable(8, nonneg=True)
    rows = [x >= private(need, "need"), x[:4] <= need[:4], x[4:] <= need[4:] + 20, cp.sum(x) <= need.sum()]
    return dpm.Problem(cp.Minimize(np.arange(1.0, 9) @ x), rows)


def no_room_at_all() -> dpm.Problem:
    """Nor does the true program have a point."""
    x = cp.Variable(4, nonneg=True)
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= private([12.0, 40, 7, 22], "need"), cp.sum(x) <= 60])


def coefficients() -> dpm.Problem:
    """Private coefficients of both signs under x of both signs, and sides of another size."""
    A = private([[1.0, -2, 1], [-3, 1, 2]], "A", linf=0.05)
    x = cp.Variable(3, bounds=[-4, 4])
    return dpm.Problem(cp.Minimize(cp.norm1(x)), [A @ x >= private([7.0, 0.5], "b", linf=0.2), cp.sum(x) <= 1])


def integers() -> dpm.Problem:
    """Staff in whole numbers: private output of each and private needs, under a head count that binds."""
    A, x = private([[3.0, 2, 0], [0, 2, 5]], "output", linf=0.1), cp.Variable(3, integer=True, bounds=[0, 9])
    rows = [A @ x >= private([20.0, 31], "need", linf=2.0), cp.sum(x) <= 11]
    return dpm.Problem(cp.Minimize(np.array([3.0, 2, 4]) @ x), rows)


def equalities_beside() -> dpm.Problem:
    """Two plants send all that they make to four markets; what is made is public and just enough."""
    need, x = np.array([14.0, 20, 9, 30]), cp.Variable((2, 4), nonneg=True)
    rows = [cp.sum(x, axis=1) == [33, 40], cp.sum(x, axis=0) >= private(need, "need"), x[0, 3] == x[1, 2]]
    return dpm.Problem(cp.Minimize(cp.sum(cp.multiply(np.array([[1.0, 2, 3, 4], [4, 3, 2, 1]]), x))), rows)


def two_of_unequal_size() -> dpm.Problem:
    """Numbers of two sizes in rows of their own and in one together, of two groups of people."""
    few = private([3.0, 4], "few", linf=0.5, records=dpm.Records("few"))
    many = private([300.0], "many", linf=40.0, records=dpm.Records("many"))
    x = cp.Variable(3, nonneg=True)
    rows = [x[:2] >= few, x[2:] >= many, x[1:2] + x[2:] >= many + 2 * few[:1], x[0] <= 3, x[1] + x[2] <= 310]
    return dpm.Problem(cp.Minimize(cp.sum(x)), rows)


def sums(periods: int) -> Any:
    """Of the past, of the future and of neighbours: many of few numbers, so that these are measured."""
    past = np.tril(np.ones((periods, periods)))
    return np.vstack([past, past.T, np.eye(periods) + np.eye(periods, k=1)])


def running_sums(periods: int = 16) -> dpm.Problem:
    """What is made covers all sums of demand, with hardly any room."""
    demand = 5.0 + np.arange(periods) % 4
    theta, make = private(demand, "demand"), cp.Variable(periods, bounds=[0, 30])
    rows = [sums(periods) @ make >= sums(periods) @ theta, cp.sum(make) <= demand.sum() + 20]
    return dpm.Problem(cp.Minimize(np.linspace(1, 2, periods) @ make), rows)


def running_sums_within_bounds(periods: int = 9) -> dpm.Problem:
    """All demands lie at the end of their declared range: clipped noise would have a mean."""
    x, theta = cp.Variable(periods, nonneg=True), private(np.full(periods, 5.0), "demand", bounds=[0, 5])
    rows = [sums(periods) @ x >= sums(periods) @ theta, cp.sum(x) <= 5 * periods + 2]
    return dpm.Problem(cp.Minimize(np.arange(1.0, periods + 1) @ x), rows)


WRITTEN: list[tuple[Callable[[], dpm.Problem], str]] = [
    (capped_rows, "laplace"), (capped_rows, "gaussian"), (no_room_at_all, "laplace"), (coefficients, "laplace"),
    (integers, "laplace"), (equalities_beside, "laplace"), (two_of_unequal_size, "laplace"),
    (running_sums, "laplace"), (running_sums, "gaussian"),
    (running_sums_within_bounds, "laplace"), (running_sums_within_bounds, "gaussian"),
]  # fmt: skip


@pytest.mark.parametrize("draws", [30, pytest.param(DRAWS, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("write", "kind"), WRITTEN, ids=lambda each: each if isinstance(each, str) else each.__name__)
def test_the_list_is_true(write: Callable[[], dpm.Problem], kind: str, draws: int) -> None:
    model = write()._model(None)
    outcomes = released(model, draws, BETA, kind)
    without = sum(bool(outcome.short) for outcome in outcomes)
    assert without > draws / 20 or leaves_a_point(model), "draws without a point belong to this test"
    assert false_lists(model, outcomes) <= binom.isf(FALSE_ALARM, draws, BETA)


# ------------------------------------------------------------------------------------------ rows that miss together
def part_of(problem: dpm.Problem, kind: Any) -> tuple[Program, NoisyPart]:
    model, options = problem._model(None), Options(1.0, 1e-6, BETA, "safe")
    return model, design_noise(model, options, {"scalar": kind}).parts["scalar"]


def uncovered(part: NoisyPart, t: Floats, *, end: float = np.inf) -> tuple[int, int]:
    """In how many of 20,000 draws some row is moved outwards by more than t, and how many may be. ``end`` : draws are
    cut there, as those of numbers at the end of their declared range are."""
    assert part.distribution is not None
    draws, rng = 20_000, np.random.default_rng(8)
    noise = np.minimum(part.distribution.sample((part.measurement.count, draws), rng), end)
    return int((t < (part.measurement.recover @ noise).T).any(axis=1).sum()), int(binom.isf(FALSE_ALARM, draws, BETA))


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("periods", [5, 30])
def test_rows_that_miss_together_are_covered_together(periods: int, kind: Any) -> None:
    """By no more than it takes: the simulated quantile is not far below what would do. The count finds a t that is too
    small by a tenth."""
    model, part = part_of(running_sums(periods=periods), kind)
    assert part.measurement.mixes
    t = inwards(model, part)
    count, most = uncovered(part, t)
    assert BETA / 2 * 20_000 < count <= most < uncovered(part, 0.9 * t)[0]
    alone = part.measurement.gain(2) * Gaussian(part.distribution.scale).max_abs_quantile(1, 2 * BETA / t.size)
    assert kind == "laplace" or (t < 0.99 * alone).all(), "against a union bound over rows"
    assert kind == "gaussian" or (t < part.reach)[1:].all()


def test_rows_that_cost_more_are_moved_less() -> None:
    """Shares of the risk, which go by public multipliers, stay beside the simulation."""
    x, theta = cp.Variable(6, nonneg=True), private(np.arange(6.0), "demand", bounds=[0, 9])
    problem = dpm.Problem(cp.Minimize(np.array([9.0, 9, 9, 9, 9, 1]) @ x), [sums(6) @ x >= sums(6) @ theta])
    model, part = part_of(problem, "gaussian")
    t = inwards(model, part)
    count, most = uncovered(part, t)
    assert count <= most and np.ptp(t / part.measurement.gain(2)) > 0.1


def test_clipped_draws_are_not_simulated() -> None:
    """At the end of their range draws are cut to one side and add up: what covers uncut ones does not cover them."""
    model, part = part_of(running_sums_within_bounds(80), "laplace")
    assert not part.clip
    joint, part = inwards(model, part), replace(part, clip=True)
    assert (inwards(model, part) == part.reach).all()
    assert (joint < part.reach)[1:].all()
    count, most = uncovered(part, joint)
    assert count <= most
    assert uncovered(part, joint, end=0.0)[0] > most


def test_a_simulation_that_would_be_too_much_work_is_not_run() -> None:
    recover = sp.csr_array(np.tril(np.ones((3, 3))))
    units = np.sqrt(np.arange(1.0, 4))
    assert joint_quantile(recover, units, Gaussian(1.0), 1e-9) == np.inf
    found = [joint_quantile(recover, units, Gaussian(1.0), beta) for beta in (0.2, 0.05, 0.01)]
    assert found == sorted(found)
    alone = joint_quantile(sp.csr_array([[1.0]]), np.ones(1), Gaussian(1.0), 0.05)
    assert norm.isf(0.05) < alone < norm.isf(0.04)
