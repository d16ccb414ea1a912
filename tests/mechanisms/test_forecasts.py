"""Properties of forecasts: more budget never hurts, larger changes never help, and the planner takes the least."""

from __future__ import annotations

import math
from typing import Any

import cvxpy as cp
import pytest
from cases import CASES, WEIGHTS
from families import PORTFOLIO
from families import verdict as verdict_of
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodel as dpm
from dpmodel.marks import Private
from dpmodel.solve.planner import make_plan

EPSILON = st.floats(0.05, 20)
DELTA = st.floats(1e-12, 0.05)
MORE = st.floats(1.0, 10)
FEW = settings(max_examples=8, deadline=None, derandomize=True)
# One release: noise, and so the forecast, in proportion to the change.
IN_PROPORTION = {"laplace-once", "gaussian-once", "vertex-exponential", "theorem-34", "strict-truncated-laplace"}
IN_PROPORTION |= {"strict-truncated-gaussian"}
OPEN = {(name, how): CASES[name].open(feasibility=how) for name in CASES for how in ("relaxed", "strict")}
SERVED = [
    (mechanism, name, how)
    for (name, how), opened in OPEN.items()
    for mechanism in PORTFOLIO
    if name in ("prices", "running_totals", "packing", "rows_and_sides", "objective_and_sides", "ball")
    and verdict_of(mechanism, opened.model, opened.options).eligible
]


def alpha(mechanism: Any, name: str, how: str, **asked: float) -> float:
    opened = OPEN[name, how]
    options = CASES[name].open(feasibility=how, **asked).options
    found: float = mechanism.forecast(opened.model, options).error.rank  # what plans compare
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("mechanism", "name", "how"), SERVED, ids=[f"{m.name}-{n}-{h}" for m, n, h in SERVED])
def test_more_budget_never_raises_the_forecast(mechanism: Any, name: str, how: str) -> None:
    @settings(FEW, max_examples=8 if mechanism.name in IN_PROPORTION else 2)
    @given(EPSILON, DELTA, MORE)
    def check(epsilon: float, delta: float, more: float) -> None:
        base = alpha(mechanism, name, how, epsilon=epsilon, delta=delta)
        assert alpha(mechanism, name, how, epsilon=epsilon * more, delta=delta) <= base * (1 + 1e-6)
        assert alpha(mechanism, name, how, epsilon=epsilon, delta=delta * more) <= base * (1 + 1e-6)
        assert alpha(mechanism, name, how, epsilon=epsilon, delta=delta, beta=0.2) <= base * (1 + 1e-6)

    check()


def sized(size: float, part: str) -> dpm.Problem:
    x = cp.Variable(4, bounds=[0, 3])
    if part == "objective":
        return dpm.Problem(cp.Minimize(Private(shape=4, name="c", l1=size) @ x), [cp.sum(x) == 1])
    if part == "scalar":
        return dpm.Problem(cp.Maximize(cp.sum(x)), [WEIGHTS @ x <= Private(shape=3, name="b", l1=size)])
    return dpm.Problem(cp.Maximize(cp.sum(x)), [Private(shape=(3, 4), name="A", linf=size) @ x <= 4])


@pytest.mark.parametrize("part", ["objective", "scalar", "matrix"])
@FEW
@given(size=st.floats(1e-3, 1e3), more=MORE, delta=st.sampled_from([0.0, 1e-6]))
def test_larger_changes_never_lower_the_forecast(part: str, size: float, more: float, delta: float) -> None:
    small, large = (
        {
            c.mechanism: c.forecast.alpha
            for c in sized(s, part).plan(1.0, delta).candidates
            if c.forecast is not None and c.mechanism in IN_PROPORTION
        }
        for s in (size, size * more)
    )
    assert small.keys() == large.keys()
    for name, value in small.items():
        assert large[name] >= value * (1 - 1e-6)
        assert large[name] == pytest.approx(value * more, rel=1e-4)  # and in proportion


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@FEW
@given(epsilon=EPSILON, delta=st.sampled_from([0.0, 1e-9, 1e-6, 1e-3]))
def test_the_planner_takes_the_least(name: str, epsilon: float, delta: float) -> None:
    opened = OPEN[name, "relaxed"]
    plan = make_plan(opened.model, CASES[name].open(epsilon=epsilon, delta=delta).options)
    chosen = plan.chosen.forecast
    assert chosen is not None and math.isfinite(chosen.alpha)
    telling = [c.forecast for c in plan.candidates if c.forecast is not None and not c.forecast.vacuous]
    assert chosen.vacuous == (not telling)
    costs = [forecast.error.cost for forecast in telling if math.isfinite(forecast.error.cost)]
    if costs and math.isfinite(chosen.error.cost):  # what the answer is expected to cost comes first
        assert chosen.error.cost <= min(costs) * (1 + 1e-5)
    else:
        proved = [forecast.error.rank for forecast in telling if forecast.proved]
        assert not proved or (chosen.proved and chosen.error.rank <= min(proved) * (1 + 1e-5))
    assert plan.chosen.forecast.epsilon <= epsilon and plan.chosen.forecast.delta <= delta
