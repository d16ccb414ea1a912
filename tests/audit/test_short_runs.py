"""Regressions in few steps, whose draws get much of the budget each: one record loses nearly all that is charged.

So a replay finds half of the noise, a share or a step that is not paid for, and a choice without noise at some budgets.
"""

from __future__ import annotations

import math
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel import audit
from dpmodel.mechanisms import FrankWolfe, GaussianFrankWolfe, MirrorDescent, NoisyDescent, SufficientStatistics

pytestmark = pytest.mark.filterwarnings("ignore")
RNG = np.random.default_rng(0)
X, Y = RNG.uniform(-1, 1, (30, 2)), RNG.uniform(-1, 1, 30)


def rows(private: Any, **declared: Any) -> Any:
    return private(X, name="X", unit="row", **declared)


def plain(private: Any) -> Any:
    w, y = cp.Variable(2, name="w"), private(Y, name="y", unit="entry", bounds=[-1, 1])
    return cp.Minimize(cp.sum_squares(rows(private, bounds=[-1, 1]) @ w - y)), [cp.norm1(w) <= 1]


def unit_rows(private: Any) -> Any:
    """Rows of bounded length, labels that are signs."""
    w, y = cp.Variable(2, name="w"), private(np.sign(Y), name="y", unit="entry", bounds=[-1, 1])
    losses = cp.logistic(-cp.multiply(y, rows(private, max_l2=1.0) @ w))
    return cp.Minimize(cp.sum(losses)), [cp.norm1(w) <= 1]


def absent(private: Any) -> Any:
    """Records that come and go, and an intercept."""
    people = dpm.Records("people", neighbors="add-remove")
    w, b = cp.Variable(2, name="w"), cp.Variable(name="b")
    y = private(np.sign(Y), name="y", unit="entry", bounds=[-1, 1], records=people)
    losses = cp.logistic(-cp.multiply(y, rows(private, bounds=[-1, 1], records=people) @ w + b))
    return cp.Minimize(cp.sum(losses)), [cp.norm1(w) <= 1, cp.abs(b) <= 1]


SHORT = {
    "frank-wolfe": FrankWolfe(steps=1, rate=0.0, clip=math.inf),
    "noisy-descent": NoisyDescent(steps=2),
    "noisy-descent, middles": NoisyDescent(steps=2, middle=True),
    "mirror-descent": MirrorDescent(steps=2, map="entropic"),
    "gaussian-frank-wolfe": GaussianFrankWolfe(steps=2, memory=1.0),
    "sufficient-statistics": SufficientStatistics(),
}


BUDGETS = [(1e-3, 0.0), (1.0, 1e-6), (100.0, 0.0)]
CASES = [
    pytest.param(name, model, *budget, marks=[] if model is plain and budget[0] == 1 else [pytest.mark.slow])
    for name in SHORT
    for model in ((plain,) if name == "sufficient-statistics" else (plain, unit_rows, absent))
    for budget in BUDGETS
    if (name, model) != ("mirror-descent", absent)  # it wants one norm of all coefficients
]


@pytest.mark.parametrize(("name", "model", "epsilon", "delta"), CASES)
def test_less_noise_would_lose_more_than_is_charged(name: str, model: Any, epsilon: float, delta: float) -> None:
    found = audit.replay(model, SHORT[name], epsilon, delta, neighbors=8)
    assert not found.faults
    divisors = (2,) if model is plain else (2, 5)
    assert any(dict(found.caught).get(f"the noise divided by {divisor}") for divisor in divisors)
