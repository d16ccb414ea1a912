"""Public structure and numbers at the ends of what is allowed: every mechanism plans, refuses, or says why."""

from __future__ import annotations

import math
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from families import PORTFOLIO
from families import verdict as verdict_of
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodel as dpm
from dpmodel.contract import Options

SHAPES = ("simplexes", "boxes", "supplies", "equalities", "point")
PRIVATE = ("sides", "rows", "cost and sides")


def model_of(shape: str, private: str, blocks: int, choices: int, share: float, seed: int) -> Any:
    """``blocks`` x ``choices`` columns; ``share`` of the public coefficients in private rows are not zero."""
    rng = np.random.default_rng(seed)
    X = cp.Variable((blocks, choices), nonneg=True, name="X")
    public = {
        "simplexes": [cp.sum(X, axis=1) == 1],
        "boxes": [X <= 2],
        "supplies": [cp.sum(X, axis=1) <= 30],
        "equalities": [cp.sum(X, axis=1) == 1, cp.sum(X[:, 0]) == blocks / 2],
        "point": [X == 1],
    }[shape]
    n, x = blocks * choices, cp.vec(X, order="F")
    M = rng.random((4, n)) * (rng.random((4, n)) < share)
    cost: Any = rng.random(n)
    if private == "rows":
        rows = dpm.Private(np.ones((8, n)), name="A", unit="row", bounds=[0, 1]) @ x >= 1
    else:
        rows = M @ x <= dpm.Private(np.ones(4), name="b", unit="entry", linf=1, bounds=[0, 10])
    if private == "cost and sides":
        cost = dpm.Private(cost, name="c", linf=0.1, bounds=[0, 2])
    return dpm.Problem(cp.Minimize(cost @ x), [*public, rows])._model(None)


def plan_all(model: Any, options: Options) -> int:
    """Every mechanism, outside the planner, which would catch what fails; how many serve."""
    served = 0
    for mechanism in PORTFOLIO:
        try:
            if verdict_of(mechanism, model, options).eligible:
                forecast = mechanism.forecast(model, options)
                served += 1
                assert not math.isnan(forecast.alpha) and forecast.epsilon <= options.epsilon
        except dpm.DPModelError:
            pass
    return served


@pytest.mark.slow
@given(
    shape=st.sampled_from(SHAPES),
    private=st.sampled_from(PRIVATE),
    size=st.sampled_from([(1, 1), (1, 5), (3, 2), (10, 20), (40, 3)]),
    share=st.sampled_from([0.0, 0.1, 1.0]),
    epsilon=st.sampled_from([1e-12, 0.1, 1.0, 3000.0, 1e12]),
    delta=st.sampled_from([0.0, 1e-100, 1e-6, 0.999]),
    beta=st.sampled_from([1e-300, 1e-17, 0.05, 1 - 1e-12]),
    asked=st.sampled_from([
        {}, {"violation": 1e-300}, {"violation": 5e-324}, {"violation": 1e-9}, {"slack_rows": 1}, {"penalty": 1e-300},
        {"penalty": 1e300}, {"target": 1e-300}, {"target": 1e300},
    ]),
)  # fmt: skip
@settings(max_examples=40, deadline=None, derandomize=True)
def test_no_mechanism_breaks(
    shape: str, private: str, size: tuple[int, int], share: float, epsilon: float, delta: float, beta: float,
    asked: dict[str, Any],
) -> None:  # fmt: skip
    goal: Any = next((name for name in ("penalty", "target") if name in asked), "auto")
    plan_all(model_of(shape, private, *size, share, 0), Options(epsilon, delta, beta, goal=goal, **asked))


FOUND: dict[str, tuple[Any, Any]] = {
    "no net of many simplexes": (("simplexes", "sides", 10, 20, 1.0), {}),
    "zero coefficients": (("simplexes", "sides", 10, 20, 0.0), {}),
    "no error, no width": (("boxes", "sides", 3, 2, 0.0), {}),
    "beta below rounding": (("boxes", "rows", 2, 2, 1.0), {"beta": 1e-17}),
    "alpha whose square is zero": (("boxes", "rows", 2, 2, 1.0), {"violation": 1e-300}),
    "tiny penalty": (("boxes", "rows", 2, 2, 1.0), {"goal": "penalty", "penalty": 1e-300}),
    "tiny target": (("boxes", "rows", 2, 2, 1.0), {"goal": "target", "target": 1e-300}),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_broke_once(name: str) -> None:
    shape, asked = FOUND[name]
    beta = asked.get("beta", 0.05)
    rest = {key: value for key, value in asked.items() if key != "beta"}
    served = plan_all(model_of(*shape, 0), Options(1.0, 1e-6, beta, **rest))
    assert served >= (0 if "goal" in asked else 1)
