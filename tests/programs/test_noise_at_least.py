"""The bound below forecasts of noise once, where private coefficients are alike; and choices that rest on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import dpmodel as dpm
from dpmodel.contract import Candidate
from dpmodel.forecast import Bound, Forecast, Violation
from dpmodel.programs.noise_once import GAUSSIAN_ONCE, LAPLACE_ONCE, NoiseOnce, at_least
from dpmodel.solve.planner import BEHIND


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small problems are looked at too."""
    monkeypatch.setattr("dpmodel.programs.noise_once.FEW", 0)


def table(m: int, n: int, seed: int, **declared: Any) -> dpm.Private:
    """Some entries of every row, one record owning one row."""
    rng = np.random.default_rng(seed)
    entries = sp.coo_array((rng.random((m, n)) < 0.3) | (np.arange(n) == rng.integers(0, n, (m, 1))))
    values = rng.uniform(0, 1, entries.nnz)
    return dpm.Private(
        sp.coo_array((values, entries.coords), shape=(m, n)), name="A", unit="row", sparsity=entries.coords, **declared
    )


def problem(kind: str, m: int, seed: int) -> dpm.Problem:
    n = 6
    x = cp.Variable(n, bounds=[0, 1], name="x") if kind != "simplex" else cp.Variable(n, nonneg=True, name="x")
    A = table(m, n, seed, bounds=[0, 1] if kind != "signed" else [-1, 1], max_l1=2.0)
    rows = {"simplex": [cp.sum(x) == 1, A @ x >= 0.1], "doubled": [2 * A @ x >= 1]}
    return dpm.Problem(cp.Minimize(np.linspace(1, 2, n) @ x), rows.get(kind, [A @ x >= 0.5]))


def told(of: NoiseOnce, made: dpm.Problem, options: Any) -> tuple[Violation, Violation]:
    """The bound and what is forecast, both held against what is known without data."""
    door = made._door(None)
    assert of.eligible(door.data, options).eligible
    (bound,) = of.at_least(door.data, options)
    forecast = of.forecast(door.data, options)
    both = (Candidate(of.name, "", True, "", each) for each in (bound.hoped(options), forecast))
    held = [door.capped(options, each).forecast for each in both]
    assert isinstance(forecast, Forecast) and all(isinstance(each, Forecast) for each in held)
    orders = [each.error.order(each, options) for each in held]
    assert orders[0] <= orders[1]
    assert isinstance(bound.error, Violation) and isinstance(forecast.error, Violation)
    return bound.error, forecast.error


@pytest.mark.parametrize("of", [LAPLACE_ONCE, GAUSSIAN_ONCE], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("feasibility", ["relaxed", "centred"])
@pytest.mark.parametrize("kind", ["box", "signed", "simplex", "doubled"])
def test_below_the_forecast(of: NoiseOnce, feasibility: Any, kind: str) -> None:
    for m, seed in ((3, 0), (40, 1), (400, 2)):
        made = problem(kind, m, seed)
        asked = made.plan(1.0, 1e-6, feasibility=feasibility, mechanism="laplace-once").options
        for epsilon in (0.1, 1.0, 100.0, 1e5):
            bound, forecast = told(of, made, replace(asked, epsilon=epsilon))
            assert bound.violation <= forecast.violation and bound.expected <= forecast.expected * (1 + 1e-12)
            assert bound.against_public <= forecast.against_public
            if epsilon == 1.0:  # and not by much
                assert forecast.against_public <= 1.01 * bound.against_public
                assert forecast.violation <= 10 * bound.violation


def test_no_bound_where_entries_differ() -> None:
    x, weights = cp.Variable(6, bounds=[0, 1], name="x"), np.linspace(1, 2, 6)
    A = table(40, 6, 0, bounds=[0, 1])
    for rows in (A @ cp.multiply(weights, x) >= 1, A @ x >= dpm.Private(np.ones(40), name="b", linf=1)):
        made = dpm.Problem(cp.Minimize(cp.sum(x)), [rows])
        options = made.plan(1.0, 1e-6, mechanism="laplace-once").options
        assert not list(LAPLACE_ONCE.at_least(made._door(None).data, options))


def test_a_bound_too_high_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: far more than the bound."""
    made = problem("box", 40, 0)
    options = replace(made.plan(1.0, 1e-6, mechanism="laplace-once").options, epsilon=1e5)

    def wrong(model: Any, options: Any, kind: Any) -> Any:
        for bound in at_least(model, options, kind):
            error = bound.error
            yield Bound(replace(error, violation=20 * error.violation, expected=20 * error.expected), bound.proved)

    told(LAPLACE_ONCE, made, options)
    monkeypatch.setattr("dpmodel.programs.noise_once.at_least", wrong)
    with pytest.raises(AssertionError):
        told(LAPLACE_ONCE, made, options)


def test_choices_that_simulations_settle_are_those_of_a_full_comparison() -> None:
    """No statement says anything here: whatever leaves rows out is tried, also behind the best statement."""
    m, n = 5000, 50
    rng = np.random.default_rng(0)
    columns = rng.integers(0, 5, (m, 10)) + np.arange(0, n, 5)
    data = sp.coo_array((np.ones(columns.size), (np.repeat(np.arange(m), 10), columns.ravel())), shape=(m, n))
    x = cp.Variable(n, bounds=[0, 1], name="x")
    A = dpm.Private(data, name="A", unit="row", bounds=[0, 1], max_l1=10, sparsity=data.coords)
    cost = np.linspace(1, 2, n)
    made = dpm.Problem(cp.Minimize(cost @ x), [cost @ x <= 0.6 * cost.sum(), A @ x >= 1])
    lazy, full = made.plan(1.0, 1e-6), made.plan(1.0, 1e-6, compare="all")
    assert lazy.chosen == full.chosen and lazy.answer == full.answer
    reasons = {each.mechanism: each.reason for each in lazy.candidates}
    assert all(reasons[name].startswith(BEHIND) for name in ("laplace-once", "gaussian-once"))
    tried = [each.mechanism for each in lazy.candidates if each.forecast and each.forecast.error.slack_rows]
    assert len(tried) > 1
