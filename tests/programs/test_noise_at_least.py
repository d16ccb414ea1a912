"""The bound below forecasts of noise once, where private coefficients are alike; and choices that rest on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import dpmodel as dpm
from dpmodel.forecast import Forecast, Violation
from dpmodel.programs.noise_once import GAUSSIAN_ONCE, LAPLACE_ONCE, NoiseOnce, missed_at_least


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


def told(of: NoiseOnce, made: dpm.Problem, options: Any) -> tuple[float, Violation]:
    """The bound and what is forecast."""
    model = made._model(None)
    assert of.eligible(model, options).eligible
    bound, forecast = of.bound(model, options), of.forecast(model, options)
    assert isinstance(forecast, Forecast) and isinstance(forecast.error, Violation)
    assert 0 < bound <= forecast.error.rank
    return bound, forecast.error


@pytest.mark.parametrize("of", [LAPLACE_ONCE, GAUSSIAN_ONCE], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("feasibility", ["relaxed", "centred"])
@pytest.mark.parametrize("kind", ["box", "signed", "simplex", "doubled"])
def test_below_the_forecast(of: NoiseOnce, feasibility: Any, kind: str) -> None:
    for m, seed in ((3, 0), (40, 1), (400, 2)):
        made = problem(kind, m, seed)
        asked = made.plan(1.0, 1e-6, feasibility=feasibility, mechanism="laplace-once").options
        for epsilon in (0.1, 1.0, 100.0, 1e5):
            bound, forecast = told(of, made, replace(asked, epsilon=epsilon))
            if epsilon == 1.0 and feasibility == "centred":  # and not by much
                assert forecast.expected <= 1.01 * bound


def test_no_bound_where_entries_differ() -> None:
    x, weights = cp.Variable(6, bounds=[0, 1], name="x"), np.linspace(1, 2, 6)
    A = table(40, 6, 0, bounds=[0, 1])
    for rows in (A @ cp.multiply(weights, x) >= 1, A @ x >= dpm.Private(np.ones(40), name="b", linf=1)):
        made = dpm.Problem(cp.Minimize(cp.sum(x)), [rows])
        options = made.plan(1.0, 1e-6, mechanism="laplace-once").options
        assert LAPLACE_ONCE.bound(made._model(None), options) == 0


def test_a_bound_too_high_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: far more than the bound."""
    made = problem("box", 40, 0)
    options = replace(made.plan(1.0, 1e-6, mechanism="laplace-once").options, epsilon=1e5)

    told(LAPLACE_ONCE, made, options)
    monkeypatch.setattr("dpmodel.programs.noise_once.missed_at_least", lambda *given: 20 * missed_at_least(*given))
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
    tried = [each.mechanism for each in lazy.candidates if each.forecast and each.forecast.error.slack_rows]
    assert len(tried) > 1
