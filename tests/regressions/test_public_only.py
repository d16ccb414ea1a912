"""The best point without data: what it is, what its statement says on any data, and when plans take it."""

from __future__ import annotations

import math
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from regressions import objective, regression
from scipy.optimize import minimize_scalar

import dpmodel as dpm
from dpmodel.contract import Options
from dpmodel.regressions.excess import PUBLIC_ONLY_REGRESSION, excess_forecast, known_of
from dpmodel.regressions.losses import Loss
from dpmodel.regressions.model import PrivateRegression, objective_range, public_excess, public_point
from dpmodel.regressions.penalties import Penalty
from dpmodel.regressions.rows import Rows
from dpmodel.regressions.sets import Box, Domain, L1Ball, L2Ball

pytestmark = pytest.mark.filterwarnings("ignore::dpmodel.errors.NotPrivateWarning")

LOSSES = [Loss("squared"), Loss("absolute"), Loss("huber", 0.5), Loss("quantile", 0.75), Loss("quantile", 0.1)]
LOSSES += [Loss("logistic"), Loss("binary_logistic"), Loss("hinge"), Loss("squared_hinge")]
SETS: list[Domain | None] = [None, L1Ball(3, 2.0), L2Ball(3, 0.7), Box(np.array([-1.0, 0, -9]), np.array([1.0, 2, 9]))]


def model_of(loss: Loss, domain: Domain | None, label: tuple[float, float], ridge: float = 0.0) -> PrivateRegression:
    label = {"sign": (-1.0, 1.0), "binary": (0.0, 1.0)}.get(loss.labels, label)
    X, y = np.zeros((4, 2)), np.full(4, label[0])
    return regression(X, y, loss, domain=domain, lower=[-1, 0], upper=[2, 3], label=label, intercept=True, ridge=ridge)


def worst(model: PrivateRegression, w: np.ndarray) -> float:
    """Largest objective at w over all corners of the bounds, where it is attained (losses are convex)."""
    corners = [np.array([a, b, 1.0]) @ w for a in (-1, 2) for b in (0, 3)]
    losses = [model.loss.value(np.array([z]), np.array([y]))[0] for z in corners for y in model.row.label]
    return model.weight * float(max(losses)) + model.penalty.value(w)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{loss.name} {loss.parameter:g}")
@pytest.mark.parametrize("label", [(1.0, 5.0), (-3.0, -1.0), (-1.0, 1.0)], ids=str)
def test_without_constraints_it_is_the_best_constant(loss: Loss, label: tuple[float, float]) -> None:
    """No constant has a smaller largest loss over the labels."""
    model = model_of(loss, None, label)
    w = public_point(model)
    assert not w[:2].any()
    best = minimize_scalar(lambda c: worst(model, np.array([0.0, 0.0, c])), bounds=(-10, 10), method="bounded")
    assert worst(model, w) <= best.fun * (1 + 1e-3) + 1e-6
    assert worst(model, w) == pytest.approx(public_excess(model))


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{loss.name} {loss.parameter:g}")
@pytest.mark.parametrize("domain", SETS, ids=lambda d: "free" if d is None else d.kind)
@given(label=st.tuples(st.floats(-9, 9), st.floats(0.1, 9)), ridge=st.sampled_from([0.0, 0.3]), seed=st.integers(0, 99))
@settings(max_examples=5, deadline=None)
def test_its_bound_holds_on_any_data(
    loss: Loss, domain: Domain | None, label: tuple[float, float], ridge: float, seed: int
) -> None:
    """Rows and labels at random corners: the excess over random points of the set stays below the bound, and every
    point's below the range of the objective."""
    model = model_of(loss, domain, (label[0], label[0] + label[1]), ridge)
    rng = np.random.default_rng(seed)
    low, high = model.row.lower[:2], model.row.upper[:2]
    X, y = np.where(rng.random((4, 2)) < 0.5, low, high), rng.choice(model.row.label, 4)
    rows = Rows(((X, 0), (np.ones((4, 1)), 2)), y, 3)
    model = replace(model, read=lambda: rows)
    w = public_point(model)
    np.testing.assert_allclose(model.domain.project(w), w, atol=1e-9)
    assert worst(model, w) <= worst(model, np.asarray(model.domain.center())) * (1 + 1e-9)
    others = [model.domain.project(rng.normal(size=3) * 10 ** rng.uniform(-1, 1)) for _ in range(20)]
    values = np.array([objective(model, v) for v in others])
    assert objective(model, w) - values.min() <= public_excess(model) * (1 + 1e-9)
    assert values.max() - values.min() <= objective_range(model) * (1 + 1e-9)


def test_offsets_and_columns_count() -> None:
    """Public offsets are part of the prediction; without an intercept columns of one sign can predict a constant."""
    model = model_of(Loss("squared"), None, (1.0, 5.0))
    moved = replace(model, offset_bound=4.0, offset_range=(2.0, 4.0), _memo={})
    assert public_point(model)[2] == 3.0 and public_point(moved)[2] == 0.0
    ages = regression(np.zeros((4, 1)), np.zeros(4), lower=20.0, upper=60.0, label=(100.0, 300.0))
    assert public_point(ages)[0] > 0 and public_excess(ages) < 300.0**2
    either = regression(np.zeros((4, 1)), np.zeros(4), lower=-1.0, upper=1.0, label=(100.0, 300.0))
    assert public_point(either)[0] == 0


def test_nothing_is_known_of_penalties_without_a_least_value() -> None:
    model = model_of(Loss("squared"), L2Ball(3, 1.0), (0.0, 1.0))
    slanted = replace(model, penalty=Penalty(np.zeros(3), np.zeros(3), np.ones(3)), _memo={})
    assert math.isinf(public_excess(slanted)) and math.isinf(objective_range(slanted))
    assert not PUBLIC_ONLY_REGRESSION.forecast(slanted, Options(1.0, 0.0)).proved


# ------------------------------------------------------------------------------------------- statements and plans
@pytest.mark.parametrize("share", [0.5, 1.5])
def test_a_bound_that_the_public_point_keeps_too_is_not_stated(share: float) -> None:
    model = model_of(Loss("squared"), L2Ball(3, 1.0), (0.0, 1.0))
    bound = share * min(public_excess(model), objective_range(model))
    predicted = known_of(model).predicted / 2
    forecast = excess_forecast(model, Options(1.0, 0.0), predicted=predicted, at_most=bound, work="")
    assert forecast.proved == ("at most" in forecast.statement) == (share < 1) and not forecast.vacuous
    assert forecast.error.alpha == (bound if share < 1 else predicted)


@pytest.mark.parametrize("predicted", [1.0, 1.1, math.inf, math.nan])
def test_predictions_no_better_than_it_say_nothing(predicted: float) -> None:
    model = model_of(Loss("squared"), L2Ball(3, 1.0), (0.0, 1.0))
    forecast = excess_forecast(model, Options(1.0, 0.0), predicted=predicted * known_of(model).predicted, work="")
    assert forecast.vacuous and "says nothing" in forecast.statement


def ratings(n: int) -> tuple[dpm.Problem, np.ndarray, cp.Variable, cp.Variable]:
    """Labels in [1, 5] of which the columns tell next to nothing."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(0, 1, (n, 2)), np.clip(3.2 + rng.normal(0, 0.5, n), 1, 5)
    people = dpm.Records("people")
    P = dpm.Private(X, name="X", unit="row", bounds=[np.zeros(2), np.ones(2)], records=people)
    Y = dpm.Private(y, name="y", unit="entry", bounds=[1, 5], records=people)
    w, b = cp.Variable(2), cp.Variable()
    return dpm.Problem(cp.Minimize(cp.sum_squares(P @ w + b - Y) / n)), X, w, b


def test_little_data_gets_the_best_constant_for_nothing() -> None:
    problem, X, w, b = ratings(60)
    budget = dpm.Budget(1.0)
    with pytest.warns(dpm.errors.NoGuaranteeWarning):
        problem.solve(0.02, budget=budget, rng=0)
    assert problem.release is not None and problem.release.mechanism == "public-only"
    assert problem.release.guarantee.epsilon == 0 and not budget.history
    np.testing.assert_allclose(X @ w.value + b.value, 3.0)
    assert not problem.release.accuracy.proved or "at most 4" in problem.release.accuracy.statement
