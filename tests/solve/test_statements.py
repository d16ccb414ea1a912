"""Every number in a statement is held against what is known without data: no row is violated by more than any can be,
no target missed by more than the objective's range, no more rows left out than there are.

The ranges are found here by plain programs over the public set, not by the package's own.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from tests.zoo import finance, flows, health, pipelines, places, production, systems  # noqa: F401

NUMBER = r"(-?[\d.]+(?:e[-+]?\d+)?)(?! times)"
# What a statement may say: pattern -> the public range that bounds its numbers.
SAID = {
    rf"violated by (?:more than|at most) {NUMBER}": "violation",
    rf"{NUMBER} where no point meets the released": "violation",
    rf"lie at most {NUMBER} inside": "sides",
    rf"tightened by at most {NUMBER}": "sides",
    rf"objective is (?:within {NUMBER} of|at most {NUMBER} worse than)": "objective",
    rf"missed by at most {NUMBER}": "missed",
    rf"noise on the objective costs at most {NUMBER}": "objective",
    r"all but (\d+)": "rows",
}
ROUNDED = 1e-3  # statements have four digits


@dataclass(frozen=True)
class Known:
    """``ranges`` : the most that each kind of number can be, whatever the data."""

    problem: dpm.Problem
    ranges: dict[str, float]
    maximised: bool
    best: float
    worst: float


def random_model(seed: int) -> Known:
    """x in a box under a budget, rows ``A x <= b``; A, b or c private with declared ranges, in two Records or one."""
    rng = np.random.default_rng(seed)
    n, m, kind = int(rng.integers(2, 5)), int(rng.integers(2, 6)), seed % 5
    high, budget = float(rng.uniform(1, 4)), float(rng.uniform(2, 5))
    A, b, c = rng.uniform(0.2, 1, (m, n)), rng.uniform(1, 3, m), rng.uniform(0.5, 2, n)
    x, people = cp.Variable(n, bounds=[0, high], name="x"), dpm.Records("people")
    A_high, (b_low, b_high), (c_low, c_high) = A, (b, b), (c, c)
    left, right, cost = A, b, c
    if kind in (0, 3):
        b_low, b_high = np.zeros(m), np.full(m, 4.0)
        right = dpm.Private(b, name="b", unit="entry", linf=0.5, bounds=[0, 4], records=people)
    if kind in (1, 4):
        A_high = np.ones((m, n))
        left = dpm.Private(A, name="A", unit="row", bounds=[0, 1], records=people)
    if kind == 2:
        A_high = np.ones((m, n))
        left = dpm.Private(A, name="A", unit="entry", linf=0.2, bounds=[0, 1], records=people)
    if kind in (3, 4):
        c_low, c_high = np.zeros(n), np.full(n, 3.0)
        cost = dpm.Private(c, name="c", unit="all", l1=1.0, bounds=[0, 3], records=dpm.Records("others"))
    maximised = bool(rng.integers(2))
    goal = cp.Maximize if maximised else cp.Minimize
    problem = dpm.Problem(goal(cost @ x), [left @ x <= right, cp.sum(x) <= budget])

    def most(a: np.ndarray) -> float:
        y = cp.Variable(n, bounds=[0, high])
        return float(cp.Problem(cp.Maximize(a @ y), [cp.sum(y) <= budget]).solve())

    worst, best = -most(-c_low), most(c_high)
    rows = max(min(high, budget) * A_high[i].sum() - b_low[i] for i in range(m))  # in the box of the public set
    # Noise on A is not cut to the ranges of A, so tightened rows may lie as far inside as it is large.
    sides = np.inf if kind in (1, 2, 4) else max(b_high - b_low)
    ranges = {"violation": max(rows, 0.0), "sides": sides, "objective": best - worst, "rows": m}
    return Known(problem, ranges, maximised, best, worst)


def contradictions(statement: str, ranges: dict[str, float]) -> list[str]:
    """The numbers of ``statement`` that are beyond what can be."""
    found = []
    for pattern, kind in SAID.items():
        for match in re.finditer(pattern, statement):
            told = next(group for group in match.groups() if group)
            if float(told) > ranges[kind] * (1 + ROUNDED) + 1e-6:
                found.append(f"{told} ({kind} at most {ranges[kind]:g}) in: {statement}")
    return found


def asked(known: Known, seed: int) -> list[dict[str, Any]]:
    middle = (known.best + known.worst) / 2
    target = middle if seed % 2 else known.worst + 0.9 * (known.best - known.worst)
    return [
        {}, {"feasibility": "relaxed"}, {"feasibility": "safe"}, {"feasibility": "strict"},
        {"goal": dpm.Target(target)}, {"goal": dpm.Search()}, {"goal": dpm.Penalty()},
        {"feasibility": dpm.AllBut(alpha=known.ranges["violation"] / 3)}, {"feasibility": dpm.AllBut(rows=1)},
    ]  # fmt: skip


def examined(seeds: range) -> tuple[list[str], int]:
    """Contradictions, and how many numbers were looked at."""
    found, count = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in seeds:
            known = random_model(seed)
            for how in asked(known, seed):
                ranges, goal = dict(known.ranges), how.get("goal")
                if isinstance(goal, dpm.Target):
                    missed = goal.value - known.worst if known.maximised else known.best - goal.value
                    ranges["missed"] = max(missed, 0.0)
                for epsilon in (0.01, 3.0):
                    try:
                        plan = known.problem.plan(epsilon, 1e-6, compare="all", as_printed=True, **how)
                    except dpm.DPModelError:
                        continue
                    for each in plan.candidates:
                        if each.forecast is not None:
                            statement = each.forecast.statement
                            count += sum(len(re.findall(pattern, statement)) for pattern in SAID)
                            found += [f"{each.mechanism}, {how}: {line}" for line in contradictions(statement, ranges)]
    return found, count


@pytest.mark.parametrize("seeds", [range(5), pytest.param(range(5, 30), marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", range(5))
def test_no_statement_contradicts_what_is_known(kind: int, seeds: range) -> None:
    found, count = examined(seeds[kind::5])
    assert not found, "\n".join(found)
    assert count > 15 * len(seeds[kind::5])


def test_a_number_beyond_its_range_is_seen() -> None:
    """Planted: the sentence that was found, of an objective whose range is 6."""
    ranges = {"violation": 2.0, "missed": 1.0, "objective": 6.0, "rows": 5.0, "sides": 1.0}
    words = (
        "all but 6 of the 5 private constraints are violated by at most 3.1, and the objective is at least the target"
    )
    assert len(contradictions(f"{words} 1, missed by at most 17.52", ranges)) == 3
