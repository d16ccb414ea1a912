"""What the parts of one solve lose adds up to its epsilon and its delta: read off the noise that is drawn.

Nothing here reads a share or a delta from the mechanism: the scales come from the arguments of the noise source, and
how far a record moves what is drawn from the model.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from families import PORTFOLIO
from replaying import Transcript
from scipy.stats import norm

import dpmodel as dpm
from dpmodel.contract import Options, Outcome
from dpmodel.marks.private import Private
from dpmodel.programs import goals as routes
from dpmodel.programs import nearly_feasible as engines
from dpmodel.programs.nearly_feasible import NearlyFeasible

SIZE, BUDGETS = 12, [(epsilon, delta) for epsilon in (0.3, 1.0, 8.0) for delta in (1e-6, 1e-2)]
ENGINES = [each for each in PORTFOLIO if isinstance(each, NearlyFeasible)]
MOVES = {"l1": 0.1 * SIZE, "l2": 0.1 * math.sqrt(SIZE)}


@cache
def model(rows: str) -> Any:
    """A private objective of which a record moves every number, so that its noise is Gaussian, beside private rows."""
    rng = np.random.default_rng(0)
    c = Private(rng.uniform(0, 1, SIZE), name="c", unit="all", bounds=[0, 1], **MOVES)
    x, A = cp.Variable(SIZE, nonneg=True, name="x"), rng.uniform(0, 1, (30, SIZE))
    if rows == "sides":
        limits: Any = A @ x <= Private(np.full(30, 0.6), name="b", unit="all", l1=0.01, bounds=[0, 2])
    else:
        unit = {"rows": "row", "coefficients": "entry"}[rows]
        limits = (
            Private(A, name="A", unit=unit, bounds=[0, 1], **({"linf": 1e-3} if unit == "entry" else {})) @ x <= 0.6
        )
    problem = dpm.Problem(cp.Minimize(c @ x), [cp.sum(x) == 1, limits])
    return problem._model(None)


def delta_of(sigma: float, moved: float, epsilon: float) -> float:
    """Of Gaussian noise, exactly (Balle and Wang 2018)."""
    mu = moved / sigma
    return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


def spent(mechanism: Any, rows: str, epsilon: float, delta: float) -> float:
    """What the objective's noise and the rows' budget take of delta, as a share of it."""
    made, options = model(rows), Options(epsilon, delta, goal="penalty")
    source, theta = Transcript(0), made.read_private()
    engines._released_cost(made, options, theta, source)
    ((kind, scale),) = [(draw.distribution, draw.arguments[0]) for draw in source.draws]
    whole = routes.task_of(made, mechanism, options)
    left = epsilon - whole.epsilon
    assert left > 0
    if kind == "laplace":
        assert MOVES["l1"] / scale <= left * (1 + 1e-9)
        return whole.delta / delta
    return (delta_of(float(scale), MOVES["l2"], left) + whole.delta) / delta


@pytest.mark.parametrize("rows", ["sides", "rows", "coefficients"])
@pytest.mark.parametrize("mechanism", ENGINES, ids=lambda each: each.name)
def test_a_measured_objective_and_the_rows_share_delta(mechanism: Any, rows: str) -> None:
    shares = [spent(mechanism, rows, *budget) for budget in BUDGETS]
    assert max(shares) <= 1 + 1e-6 and max(shares) > 0.95, shares


def test_delta_spent_twice_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the objective is measured at all of delta, the rows at their half of it."""
    real = routes.design_noise

    def twice(made: Any, part: Options, kinds: Any) -> Any:
        return real(made, replace(part, delta=part.delta / routes.OBJECTIVE_SHARE), kinds)

    monkeypatch.setattr(routes, "design_noise", twice)
    assert min(spent(each, "sides", 1.0, 1e-6) for each in ENGINES) > 1.4


def test_bounded_noise_shares_delta_between_sides_and_coefficients() -> None:
    """strict-truncated-laplace: the mass that only one of two neighbours can reach, from the widths that are drawn."""
    (strict,) = [each for each in PORTFOLIO if each.name == "strict-truncated-laplace"]
    A = Private(np.full((3, 2), 1.0), name="A", unit="entry", linf=0.01, bounds=[0.5, 1.5])
    b = Private(np.full(3, 5.0), name="b", unit="entry", linf=0.1, bounds=[4, 6])
    x = cp.Variable(2, bounds=[0, 3], name="x")
    made = dpm.Problem(cp.Maximize(cp.sum(x)), [A @ x <= b])._model(None)
    for epsilon, delta in BUDGETS:
        source, options = Transcript(0), Options(epsilon, delta, feasibility="strict")
        outcome = strict.run(made, options, source)
        assert isinstance(outcome, Outcome)
        lost = [
            (moved / draw.arguments[0], draw.arguments)
            for draw, moved in zip(source.draws, _moves(source), strict=True)
        ]
        assert sum(each for each, _ in lost) <= epsilon * (1 + 1e-6)
        mass = [(math.exp(each) - 1) / (2 * (math.exp(width / scale) - 1)) for each, (scale, width) in lost]
        assert 0.5 * delta < sum(mass) <= delta * (1 + 1e-6)


def _moves(source: Transcript) -> list[float]:
    """By how much one record moves what was drawn: 0.1 of the three sides, 0.01 of the six coefficients."""
    return [0.1 if draw.values[0].size == 3 else 0.01 for draw in source.draws]
