"""``feasibility="safe"`` with private numbers inside norms, squares, exponentials and their kind: refused before the
charge, or served with a point that keeps what the release says of the user's own constraint."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm

# With this beta a statement fails in one of ten million runs: no counting.
BETA, SEEDS = 1e-7, 2

ATOMS: dict[str, Callable[[Any], Any]] = {
    "norm": lambda e: cp.norm(e) <= 9,
    "sum of squares": lambda e: cp.sum_squares(e) <= 80,
    "squares": lambda e: cp.square(e) <= 80,
    "exponential": lambda e: cp.sum(cp.exp(e)) <= 80,
    "logarithm": lambda e: cp.log(e + 12) >= 1,
    "log-sum-exp": lambda e: cp.log_sum_exp(e) <= 9,
    "logistic": lambda e: cp.sum(cp.logistic(e)) <= 9,
    "cube": lambda e: cp.power(e, 3) <= 80,
    "quotient": lambda e: cp.quad_over_lin(e, 8) <= 9,
    "inverse": lambda e: cp.inv_pos(e + 12) <= 0.5,
    "one-norm": lambda e: cp.norm1(e) <= 15,
    "largest": lambda e: cp.norm_inf(e) <= 9,
    "geometric mean": lambda e: cp.geo_mean(e + 12) >= 4,
}
# Ways in which x is bounded: of two of them the box of single entries knows nothing.
SETS: dict[str, Callable[[Any], list[Any]]] = {
    "box": lambda x: [x >= -2, x <= 2],
    "simplex": lambda x: [x >= 0, cp.sum(x) <= 2],
    "ball": lambda x: [cp.norm(x) <= 2],
    "free": lambda x: [],
}
SHIFT, TABLE = np.array([0.5, -0.4]), np.array([[0.5, -0.2], [0.1, 0.4]])


def model(atom: str, held: str, inside: str, private: Any) -> tuple[cp.Minimize, list[Any], Any]:
    """``inside`` : whether the private numbers are added to x or multiplied with it. ``private`` makes a parameter."""
    x = cp.Variable(2, name="x")
    e = x + private(SHIFT) if inside == "added" else private(TABLE) @ x
    return cp.Minimize(cp.sum(x) + cp.norm1(x)), [ATOMS[atom](e), *SETS[held](x)], x


def declared(numbers: Any) -> Any:
    return dpm.Private(numbers, name="p", unit="entry", linf=0.05)


ALL = list(itertools.product(ATOMS, SETS, ("added", "multiplied")))
QUICK = [each for each in ALL if each[1:] in {("box", "added"), ("simplex", "multiplied")}]


@pytest.mark.parametrize(
    ("atom", "held", "inside"),
    [each if each in QUICK else pytest.param(*each, marks=pytest.mark.slow) for each in ALL],
)
def test_safe_refuses_before_the_charge_or_gives_a_point_that_keeps_its_word(atom: str, held: str, inside: str) -> None:
    objective, rows, x = model(atom, held, inside, declared)
    problem, budget = dpm.Problem(objective, rows), dpm.Budget(1e6, 1e-6)
    for seed in range(SEEDS):
        try:
            problem.solve(epsilon=40, beta=BETA, feasibility="safe", budget=budget, rng=seed)
        except dpm.errors.UnsupportedModelError:
            assert budget.spent.epsilon == 0 and held == "free"
            return
        release = problem.release
        assert release.status in ("optimal", "optimal_inaccurate", "least_violation"), release.status
        told = " ".join([str(release), str(problem.last_plan)])
        assert not re.search(r"harder by unbounded|\binf\b|\bnan\b", told)
        if release.spent == (0, 0) or release.accuracy.short:
            continue
        _, truth, y = model(atom, held, inside, cp.Constant)
        y.value = x.value
        assert max(float(np.max(row.violation())) for row in truth) <= 1e-4


def test_no_mechanism_of_this_generator_is_always_refused() -> None:
    """Of every atom something is served within a box, so that the test above says something."""
    for atom in ATOMS:
        plan = dpm.Problem(*model(atom, "box", "added", declared)[:2]).plan(epsilon=40, beta=BETA, feasibility="safe")
        assert plan.chosen.forecast is not None
