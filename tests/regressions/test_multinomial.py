"""Multinomial regressions: bounds on the derivative, sensitivity by brute force, spending and forecasts."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from descents import Replay, moves, replayed, seeded
from scipy.optimize import minimize

import dpmodel as dpm
from dpmodel.contract import Options
from dpmodel.marks.row_sources import MemoryBlocks
from dpmodel.marks.rows import SourceRows
from dpmodel.privacy import gaussian_mu
from dpmodel.privacy.accounting import Spend
from dpmodel.programs.classifier import Classification
from dpmodel.regressions.descent import NOISY_DESCENT, NoisyDescent
from dpmodel.regressions.excess import PUBLIC_ONLY_REGRESSION
from dpmodel.regressions.features import RowBounds
from dpmodel.regressions.losses import Softmax, softmax
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.noisy_gradient import Settings, StepNoise, descend, descent_metric, private_gradient
from dpmodel.regressions.objective_perturbation import OBJECTIVE_PERTURBATION, ObjectivePerturbation
from dpmodel.regressions.penalties import Penalty
from dpmodel.regressions.rows import Rows
from dpmodel.regressions.sets import Box, FreeSpace
from dpmodel.regressions.synthetic import populations_of

OPTIONS = Options(1.0, 1e-6)


def multinomial(
    X: Any, places: Any, classes: int, *, lower: Any = -1.0, upper: Any = 1.0, l2: float = math.inf,
    intercept: bool = False, absent: bool = False, weights: Any = None, domain: Any = None, ridge: float = 0.0,
) -> PrivateRegression:  # fmt: skip
    """The model of rows X (n, p), dense or CSR, taken as they are, and labels ``places`` (n,), -1 for none."""
    n, p = X.shape
    size = p + intercept
    lows, highs = np.ones(size), np.ones(size)
    lows[:p], highs[:p] = lower, upper
    constant = np.arange(size) >= p
    blocks: list[tuple[Any, int]] = [(X, 0), *([(np.ones((n, 1)), p)] if intercept else [])]
    rows = Rows(tuple(blocks), (np.asarray(places)[:, None] == np.arange(classes)).astype(float), size, None, weights)
    ridges = np.tile(np.where(constant, 0.0, ridge), classes)
    return PrivateRegression(
        loss=Softmax(classes=classes),
        count=n,
        scale=1.0 / n,
        row=RowBounds.of(lows, highs, constant, l2=l2, label=(0.0, 1.0), absent=absent),
        domain=FreeSpace(size * classes) if domain is None else domain,
        penalty=Penalty(ridges, np.zeros(ridges.size), np.zeros(ridges.size)),
        classification=Classification(()),
        read=lambda: rows,
        total=float(n if weights is None else weights.sum()),
        largest_weight=1.0 if weights is None else float(weights.max()),
    )


def drawn(n: int, p: int, classes: int, seed: int, **how: Any) -> PrivateRegression:
    """Labels by their chances under random coefficients."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, p))
    scores = X @ rng.normal(size=(p, classes)) * 1.5
    return multinomial(X, (scores + rng.gumbel(size=scores.shape)).argmax(axis=1), classes, **how)


def objective(model: PrivateRegression, w: np.ndarray) -> float:
    """The true objective at w. Test-only: it reads the rows."""
    rows = model.read_rows()
    losses = model.loss.value(rows.predict(w), rows.labels)
    losses = losses if rows.weights is None else losses * rows.weights
    return model.scale * float(losses.sum()) + model.penalty.value(w)


def best(model: PrivateRegression) -> float:
    rows = model.read_rows()

    def gradient(w: np.ndarray) -> np.ndarray:
        data = model.scale * rows.combine(model.loss.derivative(rows.predict(w), rows.labels))
        return data + model.penalty.subgradient(w)

    return float(minimize(partial(objective, model), np.zeros(model.size), jac=gradient, method="L-BFGS-B").fun)


# ------------------------------------------------------------------ the derivative and its bounds
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_bounds_hold_and_are_reached(classes: int) -> None:
    rng, eye = np.random.default_rng(classes), np.eye(classes)
    for order in (1.0, 2.0):
        loss = Softmax(classes=classes, order=order)
        for spread in (0.0, 0.1, 1.0, 5.0, 60.0):
            corners = rng.integers(0, 2, (4000, classes)) * spread
            z = np.vstack([corners, rng.uniform(0, spread, (4000, classes)), eye * spread, spread - eye * spread])
            labels = np.vstack([np.zeros(classes), eye, rng.dirichlet(np.ones(classes + 1), 20)[:, 1:]])
            whole = np.linalg.norm(loss.derivative(z[:, None], labels[None]), ord=order, axis=-1)
            rest = np.linalg.norm(softmax(z) - 1 / classes, ord=order, axis=-1)
            bound, rest_bound = loss.derivative_bound(spread, 1.0), loss.rest_bound(spread, 1.0)
            assert whole.max() <= bound * (1 + 1e-12)
            assert rest.max() <= rest_bound * (1 + 1e-12) + 1e-15
            assert rest.max() >= rest_bound * (1 - 1e-9), "reached"
            if spread in (0.0, 60.0):
                assert whole.max() >= bound * (1 - 1e-9), "reached"
        middles = np.linalg.norm(loss.middle(np.vstack([np.zeros(classes), eye])), ord=order, axis=-1)
        assert middles.max() == pytest.approx(loss.middle_bound(1.0))
        assert loss.derivative_bound(math.inf, 1.0) == pytest.approx(2.0 if order == 1 else math.sqrt(2))
        assert loss.rest_bound(math.inf, 1.0) == pytest.approx(loss.middle_bound(1.0))


def test_derivatives_are_those_of_the_loss_and_half_as_smooth_as_one_number() -> None:
    rng, loss = np.random.default_rng(0), Softmax(classes=4)
    z, y = 3 * rng.normal(size=(50, 4)), np.eye(4)[rng.integers(4, size=50)]
    step = 1e-6
    for k, e in enumerate(np.eye(4) * step):
        slope = (loss.value(z + e, y) - loss.value(z - e, y)) / (2 * step)
        np.testing.assert_allclose(slope, loss.derivative(z, y)[:, k], atol=1e-8)
    p = softmax(np.vstack([z, [[50.0, 50.0, 0.0, 0.0]]]))
    second = np.apply_along_axis(np.diag, 1, p) - p[:, :, None] * p[:, None, :]
    largest = np.linalg.eigvalsh(second)[:, -1].max()
    assert largest == pytest.approx(loss.smoothness) and largest <= loss.smoothness + 1e-12


def test_rows_take_k_predictions_as_k_regressions_do() -> None:
    rng = np.random.default_rng(0)
    X, weights, w = rng.normal(size=(20, 3)), rng.uniform(1, 2, 20), rng.normal(size=8)
    for matrix in (X, sp.csr_array(X)):
        rows = multinomial(matrix, np.arange(20) % 2, 2, intercept=True, weights=weights).read_rows()
        full = np.column_stack([X, np.ones(20)])
        np.testing.assert_allclose(rows.predict(w), full @ w.reshape(2, 4).T)
        np.testing.assert_allclose(rows.combine(rows.labels), ((rows.labels.T * weights) @ full).ravel())


@pytest.mark.parametrize("classes", [2, 3, 12, 13, 20])
def test_no_row_tells_two_classes_further_apart(classes: int) -> None:
    """Up to 12 classes it is exact; for more a bound by differences from the mean, on both sides of the limit."""
    rng, corners = np.random.default_rng(classes), np.array([[x, y] for x in (-1.0, 2.0) for y in (-3.0, 1.0)])
    row = multinomial(corners, np.zeros(4, dtype=int), classes, lower=[-1.0, -3.0], upper=[2.0, 1.0]).row
    w = rng.normal(size=(50, classes, 2))
    w[0], w[0, 0], w[0, 1] = 0.0, (1.0, -1.0), (-1.0, 1.0)  # two opposite ones among equal ones
    scores = w @ corners.T
    brute = (scores.max(axis=1) - scores.min(axis=1)).max(axis=1)
    stated = row.spreads(w)
    assert (brute <= stated * (1 + 1e-12)).all()
    if classes <= 12:
        np.testing.assert_allclose(stated, brute)


# ------------------------------------------------------------------ sensitivity
def _gradient(model: PrivateRegression, w: np.ndarray) -> np.ndarray:
    rows = model.read_rows()
    return rows.combine(model.loss.derivative(rows.predict(w), rows.labels))


def test_sensitivity_is_reached_by_near_rows_of_which_each_has_the_others_class() -> None:
    """Some coefficients tell two rows apart however near they are: ``2 sqrt(2) |a|`` is reached up to rounding."""
    a, near = np.array([[1.0, -1.0]]), np.array([[1.0, -1.0 + 1e-6]])
    one, two = multinomial(a, [2], 3), multinomial(near, [0], 3)
    across = np.array([1.0, 1.0]) * 1e9  # 0 at a, 1000 at the other
    w = np.stack([0 * across, 0 * across, across]) - np.array([[-1.0], [0.0], [1.0]]) * np.array([100.0, -100.0])
    moved = np.linalg.norm(_gradient(one, w.ravel()) - _gradient(two, w.ravel()))
    stated = one.gradient_sensitivity(2.0)
    assert stated == pytest.approx(2 * math.sqrt(2) * math.sqrt(2), rel=1e-9)
    assert moved <= stated and moved == pytest.approx(stated, rel=1e-5)


def test_no_neighbours_move_the_noised_sums_further() -> None:
    """All corners, labels and a few coefficients for two rows of one record, in both norms, whole and rests alone."""
    rng = np.random.default_rng(0)
    corners = np.array([[x, y] for x in (-1.0, 0.0, 2.0) for y in (-1.0, 1.0)])
    tight = 0.0
    for order, classes, absent in ((2.0, 3, False), (1.0, 3, False), (2.0, 2, False), (2.0, 3, True), (1.0, 2, True)):
        how: dict[str, Any] = {"lower": [-1.0, -1.0], "upper": [2.0, 1.0], "intercept": True, "absent": absent}
        models = [multinomial(a[None], [k], classes, **how) for a in corners for k in range(classes)]
        gone = multinomial(np.zeros((1, 2)), [-1], classes, **how)
        metric = descent_metric(models[0])
        assert (metric.exchange is None) == absent
        spend = Spend.of(1.0, 0.0 if order == 1 else 1e-6, gaussian_only=True)
        for scale in (0.0, 0.3, 3.0, 300.0):
            w = scale * rng.normal(size=models[0].size)
            for share in (0.0, 0.5):
                noise = StepNoise(models[0], metric, spend, 4, share)
                stated = noise.sensitivity(noise.bound(w))
                sums = []
                for model in [*models, *([gone] if absent else [])]:
                    rows = model.read_rows()
                    v = noise.loss.derivative(rows.predict(w), rows.labels)
                    v = v - noise.loss.middle(rows.labels) if share else v
                    sums.append(metric.sums(rows.combine(v)))
                far = [np.linalg.norm(a - b, ord=order) for a in sums for b in (sums[-1:] if absent else sums)]
                assert max(far) <= stated * (1 + 1e-9)
                tight = max(tight, max(far) / stated if stated else 0.0)
    assert tight > 0.9


def _last(noise: StepNoise, settings: Settings, rows: Rows, source: Replay) -> np.ndarray:
    return descend(noise.model, noise.metric, settings, private_gradient(noise, rows, source))["last"]


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_random_neighbours_cost_no_more_than_the_budget(delta: float) -> None:
    rng, worst = np.random.default_rng(0), 0.0
    spend, order = Spend.of(1.0, delta, gaussian_only=True), 1.0 if delta == 0 else 2.0
    for number in range(80):
        n, p, classes = 12, int(rng.integers(1, 4)), int(rng.integers(2, 14))
        absent, weighted = rng.random() < 0.3, rng.random() < 0.3
        X, places = rng.choice([-1.0, 1.0], (n, p)), rng.integers(classes, size=n)
        weights = rng.uniform(0.1, 3, n) if weighted else None
        how: dict[str, Any] = {"intercept": bool(rng.random() < 0.5), "absent": absent, "weights": weights}
        A, others = X.copy(), places.copy()
        at = int(np.argmax(weights)) if weights is not None else 3
        A[at] = 0.0 if absent else rng.choice([-1.0, 1.0], p) if rng.random() < 0.5 else X[at]
        others[at] = -1 if absent else (places[at] + 1) % classes
        one, two = multinomial(X, places, classes, **how), multinomial(A, others, classes, **how)
        share = 0.4 if number % 2 else 0.0
        noise = StepNoise(one, descent_metric(one), spend, 4, share)
        settings = Settings(4, float(10.0 ** rng.uniform(-4, 3)), 0.3, share, "last")
        run = partial(_last, noise, settings)
        moved = moves(*replayed(run, one.read_rows(), two.read_rows(), number), order)
        cost = moved.sum() if delta == 0 else math.hypot(*moved) / gaussian_mu(1.0, delta)
        worst = max(worst, float(cost))
    assert 0.6 < worst <= 1 + 1e-12


# ------------------------------------------------------------------ populations and forecasts


def test_the_truth_is_best_and_knowing_nothing_is_not() -> None:
    model = multinomial(np.zeros((50, 4)), np.zeros(50), 3, intercept=True)
    populations = populations_of(model)
    np.testing.assert_allclose(populations.excess(populations.truth), 0.0, atol=1e-6)
    assert (populations.nothing > 0.05).all()
    assert not populations.start.any()
    ridged = populations_of(replace(model, penalty=Penalty(np.full(15, 0.1), np.zeros(15), np.zeros(15)), _memo={}))
    assert (ridged.best < ridged.values(ridged.truth)).all()


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", [NOISY_DESCENT, OBJECTIVE_PERTURBATION])
@pytest.mark.parametrize(("n", "p", "classes"), [(4000, 4, 3), (10_000, 8, 4)])
def test_the_forecast_is_near_the_excess_risk_on_data_of_its_populations(
    n: int, p: int, classes: int, mechanism: Any
) -> None:
    """Rows and labels drawn from the populations that forecasts are made on: means of 3 runs each. Seeds 0 to 2."""
    empty = multinomial(np.zeros((n, p)), np.zeros(n), classes, intercept=True)
    forecast, rng = mechanism.forecast(empty, OPTIONS), np.random.default_rng(0)
    populations, found = populations_of(empty), []
    for b in range(populations.count):
        a = populations.mean[b] + np.sqrt(populations.variance[b]) * rng.standard_normal((n, p + 1))
        a += populations.common[b] * rng.standard_normal((n, 1))
        scores = a @ populations.truth[b].reshape(classes, p + 1).T
        places = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
        model = replace(multinomial(a[:, :p], places, classes, intercept=True), _memo=empty._memo)
        least = best(model)
        runs = [mechanism.run(model, OPTIONS, seeded(seed)).x for seed in range(3)]
        found.append(np.mean([objective(model, x) - least for x in runs if x is not None]))
    assert not forecast.vacuous
    assert 0.6 < np.mean(found) / forecast.error.predicted < 1.7


@pytest.mark.slow
def test_it_learns_and_says_so() -> None:
    model = drawn(20_000, 3, 3, 0)
    mechanism = NoisyDescent(steps=16)
    forecast = mechanism.forecast(model, OPTIONS)
    excess = objective(model, mechanism.run(model, OPTIONS, seeded(0)).x) - best(model)
    nothing = objective(model, np.zeros(9)) - best(model)
    assert excess < 0.1 * nothing and not forecast.vacuous and forecast.error.predicted < 0.2 * nothing
    assert "noise on 9 sums in each" in forecast.work
    public = PUBLIC_ONLY_REGRESSION.forecast(model, OPTIONS)
    assert public.epsilon == 0 and public.error.predicted > forecast.error.predicted and not public.proved
    x = PUBLIC_ONLY_REGRESSION.run(model, OPTIONS, seeded(0)).x
    assert x is not None and not x.any()


@pytest.mark.slow
def test_constraints_hold_and_samples_serve() -> None:
    model = drawn(30_000, 2, 3, 1, domain=Box(np.zeros(6), np.full(6, 0.5)))
    for mechanism in (NoisyDescent(steps=4), NoisyDescent(steps=64, rate=2 / 64), OBJECTIVE_PERTURBATION):
        x = mechanism.run(model, OPTIONS, seeded(0)).x
        assert x is not None and (x >= 0).all() and (x <= 0.5).all() and x.any()


# ------------------------------------------------------------------ blocks
def _asked(X: Any, Y: Any, n: int) -> dpm.Problem:
    people = dpm.Records("people")
    features = dpm.Private(X, name="X", unit="row", bounds=[-1, 1], records=people)
    labels = dpm.Private(Y, name="Y", unit="row", bounds=[0, 1], max_l1=1, records=people)
    W, b = cp.Variable((2, 3), name="W"), cp.Variable(3, name="b")
    scores = features @ W + b
    return dpm.Problem(cp.Minimize(cp.sum(cp.log_sum_exp(scores, axis=1) - cp.sum(cp.multiply(labels, scores), 1)) / n))


def _first(block: Any) -> Any:
    return block[:, :2]


def _others(block: Any) -> Any:
    return block[:, 2:]


@pytest.mark.parametrize("mechanism", [NoisyDescent(steps=3), ObjectivePerturbation(ridge=50.0)])
def test_rows_in_blocks_release_what_rows_in_memory_do(mechanism: Any) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.uniform(-1, 1, (90, 2)), np.eye(3)[rng.integers(3, size=90)]
    source = MemoryBlocks(np.split(np.hstack([X, Y]), [7, 7, 50]))
    inside = _asked(X, Y, 90)
    outside = _asked(SourceRows(source, _first, 2), SourceRows(source, _others, 3), 90)
    assert outside._model(None).in_blocks
    for problem in (inside, outside):
        problem.solve(1, 1e-6, mechanism=mechanism, rng=0)
    for one, two in zip(inside.variables(), outside.variables(), strict=True):
        np.testing.assert_allclose(one.value, two.value, rtol=1e-9, atol=1e-12)
