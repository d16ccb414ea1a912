"""Objective perturbation: exact densities of the minimiser, certificates, forecasts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from descents import Replay
from regressions import objective, regression
from scipy.stats import binom, norm

from dpmodel.contract import Options
from dpmodel.privacy import SeededSource
from dpmodel.regressions import objective_perturbation as module
from dpmodel.regressions import perturbed_objective
from dpmodel.regressions.losses import Loss
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.objective_perturbation import (
    OBJECTIVE_PERTURBATION,
    Design,
    ObjectivePerturbation,
    design,
    facts_of,
    leverage,
    noise_level,
    perturbed,
    ridge_for,
)
from dpmodel.regressions.sets import FreeSpace, L1Ball, L2Ball
from dpmodel.regressions.synthetic import each_population

FALSE_ALARM = 1e-7
EPSILON, DELTA = 1.0, 1e-3
LOSSES = [
    Loss("logistic"),
    Loss("binary_logistic"),
    Loss("huber", 0.3),
    Loss("squared", clip=0.8),
    Loss("squared_hinge", clip=1.2),
    Loss("logistic", clip=0.4),
]


def labels(loss: Loss, n: int, rng: np.random.Generator) -> np.ndarray:
    if loss.labels == "number":
        return rng.uniform(-1, 1, n)
    return rng.choice([-1.0, 1.0] if loss.labels == "sign" else [0.0, 1.0], n)


def label_range(loss: Loss) -> tuple[float, float]:
    return (0.0, 1.0) if loss.labels == "binary" else (-1.0, 1.0)


def problem(loss: Loss, X: np.ndarray, y: np.ndarray, **how: Any) -> PrivateRegression:
    return regression(X, y, loss, l2=1.0, label=label_range(loss), mean=False, **how)


def rows_of(rng: np.random.Generator, n: int, p: int) -> np.ndarray:
    X = rng.normal(size=(n, p))
    return X / np.maximum(np.linalg.norm(X, axis=1), 1.0)[:, None]


# ---------------------------------------------------------------------- sensitivities by brute force
@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_gradients_and_determinants_of_neighbours(loss: Loss, intercept: bool, absent: bool) -> None:
    rng = np.random.default_rng(5)
    n, p = 4, 3
    weights = np.array([0.5, 2.0, 1.0, 1.5])
    closest = 0.0
    for repeat in range(24):
        X, y = rows_of(rng, n, p), labels(loss, n, rng)
        if repeat % 2:
            X[1] /= max(np.linalg.norm(X[1]), 1e-9)
        other, said = X.copy(), y.copy()
        other[1], said[1] = (0.0, 0.0) if absent else (-X[1] if repeat % 4 == 1 else X[1], labels(loss, 1, rng)[0])
        how = {"intercept": intercept, "absent": absent, "weights": weights, "ridge": 0.2}
        pair = [problem(loss, *each, **how) for each in ((X, y), (other, said))]
        plan = design(pair[0], EPSILON, DELTA, 20.0)
        assert plan is not None
        w = rng.normal(size=pair[0].size) * rng.choice([0.1, 1.0, 30.0])
        objectives = [perturbed(model, plan, np.zeros(model.size)) for model in pair]
        moved = np.linalg.norm(objectives[0].gradient(w) - objectives[1].gradient(w))
        limit = pair[0].gradient_sensitivity(2.0)
        assert moved <= limit
        closest = max(closest, float(moved) / limit)
        logs = [np.linalg.slogdet(hessian(each, w))[1] for each in objectives]
        assert abs(logs[0] - logs[1]) <= plan.curvature
    assert closest > 0.4  # random pairs come near


def hessian(objective: Any, w: np.ndarray) -> np.ndarray:
    rows = objective.rows
    second = perturbed_objective.curvature(objective.loss, rows.predict(w), rows.labels, objective.facts.clip)
    out: np.ndarray = replace(rows, weights=second * rows.weights).gram() + np.diag(objective.h)
    return out


# ---------------------------------------------------------------------- exact densities in one dimension
WORST = [  # (x, y) of one record and of the one in its place
    ((1.0, 1.0), (1.0, -1.0)),
    ((1.0, 1.0), (-1.0, 1.0)),
    ((1.0, 1.0), (0.0, 1.0)),
    ((0.0, 1.0), (1.0, -1.0)),
    ((0.7, 0.3), (-1.0, -0.2)),
]
GRID = np.linspace(-1, 1, 100_001)


def pair_of(loss: Loss, which: int, **how: Any) -> list[PrivateRegression]:
    """Two rows, one of which is replaced."""
    pair = []
    for x, y in WORST[which]:
        if loss.labels != "number":
            y = (1.0 if y > 0 else -1.0) if loss.labels == "sign" else float(y > 0)
        pair.append(problem(loss, np.array([[x], [0.5]]), np.array([y, 1.0]), **how))
    return pair


def density(model: PrivateRegression, plan: Design, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(k,) b_D(w) and the log density of the exact minimiser."""
    each = perturbed(model, plan, np.zeros(1))
    z = w[:, None] * np.asarray(each.rows.blocks[0][0])[:, 0]
    y = np.broadcast_to(each.rows.labels, z.shape)
    derivatives = np.clip(each.loss.derivative(z, y), -plan.facts.clip, plan.facts.clip)
    bends = perturbed_objective.curvature(each.loss, z.ravel(), y.ravel(), plan.facts.clip).reshape(z.shape)
    x = np.asarray(each.rows.blocks[0][0])[:, 0]
    b = -(derivatives @ x + each.h[0] * w)
    return b, norm.logpdf(b, scale=plan.sigma) + np.log(bends @ x**2 + each.h[0])


def hockey_stick(pair: list[PrivateRegression], plan: Design, epsilon: float = EPSILON) -> float:
    """The larger delta of the two directions at this epsilon, by quadrature."""
    span = (plan.sigma * 9 + 10) / plan.facts.strong
    w = GRID * span
    logs = [density(model, plan, w)[1] for model in pair]
    p, q = (np.exp(each) for each in logs)
    for each in (p, q):
        assert np.trapezoid(each, w) == pytest.approx(1, abs=1e-4)
    return max(float(np.trapezoid(np.maximum(a - math.exp(epsilon) * b, 0), w)) for a, b in ((p, q), (q, p)))


@pytest.mark.parametrize(("share", "held"), [(0.5, 0.0), (0.1, 0.0), (0.01, 500.0)])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_exact_density_keeps_delta(loss: Loss, share: float, held: float) -> None:
    """``held`` : the user's ridge, which keeps w near 0, where labels of both signs pull all they can."""
    found = []
    for which in range(len(WORST)):
        pair = pair_of(loss, which, ridge=held)
        plan = design(pair[0], EPSILON, DELTA, ridge_for(pair[0], share * EPSILON))
        assert plan is not None
        found.append(hockey_stick(pair, plan))
    assert max(found) <= DELTA * (1 + 1e-6)
    if held and loss.labels == "number":
        assert max(found) > DELTA / 3  # not idle: of the four corners two are attained here


def curvature_forgotten(model: PrivateRegression) -> Design:
    """All of epsilon for the noise, and hardly a ridge: what the determinants cost is forgotten."""
    honest = design(model, EPSILON, DELTA, 50.0)
    assert honest is not None
    mu = noise_level(EPSILON, DELTA, [(2, 1.0), (2, 0.01)])
    facts = replace(honest.facts, strong=0.02, ridge=0.02)
    return replace(honest, ridge=0.02, mu=mu, sigma=model.gradient_sensitivity(2.0) / mu, facts=facts)


def noise_halved(model: PrivateRegression) -> Design:
    honest = design(model, EPSILON, DELTA, 0.0)
    assert honest is not None
    return replace(honest, sigma=honest.sigma / 2)


def test_exact_density_catches_broken_twins() -> None:
    flat = [pair_of(Loss("logistic"), which) for which in range(3)]
    assert max(hockey_stick(pair, curvature_forgotten(pair[0])) for pair in flat) > 3 * DELTA
    held = pair_of(Loss("huber", 0.3), 0, ridge=500.0)
    assert hockey_stick(held, noise_halved(held[0])) > 3 * DELTA


# ---------------------------------------------------------------------- audits of the release


def test_run_releases_that_point() -> None:
    for which, model in enumerate(pair_of(Loss("logistic"), 0)):
        options = Options(EPSILON, DELTA)
        mechanism = ObjectivePerturbation(ridge=2.0)
        plan = design(model, EPSILON, DELTA, 2.0)
        assert plan is not None
        source = Replay(which)
        outcome = mechanism.run(model, options, source)
        ((_, zero, scale), (_, point, output)), (b, released) = source.asked, source.given
        assert not zero.any() and scale == plan.sigma and output == plan.output
        # run adds <b, w>: the minimiser is where the gradient without b is -b, which is b_D(w) = b.
        w = np.linspace(point[0] - 1e-3, point[0] + 1e-3, 20_001)
        exact = np.interp(b[0], density(model, plan, w)[0][::-1], w[::-1])
        assert point[0] == pytest.approx(exact, abs=plan.radius + 1e-9)
        assert outcome.x == pytest.approx(released)


# ---------------------------------------------------------------------- the cost, by another formula
def gaussian_tail(mu: float, epsilon: float) -> float:
    return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-2), (8.0, 1e-5)])
def test_noise_costs_the_budget(epsilon: float, delta: float, absent: bool) -> None:
    rng = np.random.default_rng(0)
    model = problem(
        Loss("logistic"), rows_of(rng, 50, 3), labels(Loss("logistic"), 50, rng), intercept=True, absent=absent
    )
    plan, _ = OBJECTIVE_PERTURBATION.chosen(model, Options(epsilon, delta))
    assert plan.curvature == pytest.approx(math.log1p(0.25 * leverage(model, plan.ridge)))
    left = epsilon - plan.curvature
    out = 2 * plan.radius / plan.output
    first = model.gradient_sensitivity(2.0) / plan.sigma
    second = model.row.moving(2.0) / plan.sigma if absent else 0.0
    spent = sum(2 * gaussian_tail(math.hypot(each, out), left) for each in (first, second))
    assert spent <= delta * (1 - module._FAILURE) * (1 + 1e-6)
    assert spent >= 0.45 * delta
    # h is convex in mu^2 where it is used: the chord from 0 lies above.
    mus = np.linspace(0.02, 1, 50) * math.hypot(first, out)
    chord = (mus / mus[-1]) ** 2 * gaussian_tail(float(mus[-1]), left)
    assert (np.array([gaussian_tail(float(mu), left) for mu in mus]) <= chord * (1 + 1e-6) + 1e-15).all()


def test_users_ridge_counts() -> None:
    rng = np.random.default_rng(0)
    model = problem(Loss("logistic"), rows_of(rng, 50, 3), labels(Loss("logistic"), 50, rng), ridge=4.0)
    assert leverage(model, 0.0) == pytest.approx(1 / 8)  # 4 ||w||^2 has the second derivative 8
    assert ridge_for(model, 0.5) == 0.0
    assert leverage(model, ridge_for(model, 0.01)) == pytest.approx(math.expm1(0.01) / 0.25, rel=1e-6)
    with_intercept = problem(
        Loss("logistic"), rows_of(rng, 50, 3), labels(Loss("logistic"), 50, rng), ridge=4.0, intercept=True
    )
    assert math.isinf(leverage(with_intercept, 0.0))  # nothing holds the intercept
    assert ridge_for(with_intercept, 0.5) > 0


def test_the_minimiser_lies_within_its_public_bound_for_weak_labels() -> None:
    """ln 2 at prediction 0 counts whole, however small labels are: the number of certified steps rests on this."""
    n, weak, strong = 1000, 0.01, 0.005
    model = regression(
        np.ones((n, 1)), np.full(n, weak), "logistic", lower=-1, upper=1, label=(-weak, weak), mean=False
    )
    low, high = 0.0, 1e5
    for _ in range(100):  # n weak sigma(-weak w) = strong w
        middle = (low + high) / 2
        low, high = (middle, high) if n * weak / (1 + math.exp(weak * middle)) > strong * middle else (low, middle)
    assert low > 100
    assert facts_of(model, strong, strong, 0.0).size >= low


# ---------------------------------------------------------------------- forecasts
def simulated_data(risk: Any, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    X = risk.mean + (rng.random((n, risk.mean.shape[1])) - 0.5) * np.sqrt(12 * risk.variance)
    z = X @ risk.truth[0]
    if risk.model.loss.labels == "number":
        return X, np.clip(z + risk.noise * rng.normal(size=n), *risk.model.row.label)
    return X, np.where(rng.random(n) < 1 / (1 + np.exp(-z)), 1.0, -1.0)


@pytest.mark.parametrize(
    ("loss", "domain"),
    [
        ("logistic", L2Ball(8, 3.0)),
        pytest.param("logistic", FreeSpace(8), marks=pytest.mark.slow),
        pytest.param("squared", L1Ball(8, 1.0), marks=pytest.mark.slow),
    ],
)
def test_forecast_against_measured(loss: str, domain: Any) -> None:
    """On data of the kind the forecast is about: the mean excess within a factor of 3, the proved bound kept."""
    rng = np.random.default_rng(0)
    n, options = 1500, Options(1.0, 1e-6)
    how = {"lower": -0.35, "upper": 0.35, "domain": domain}
    shape = regression(np.zeros((n, 8)), np.zeros(n), loss, **how)
    forecast = OBJECTIVE_PERTURBATION.forecast(shape, options)
    excess = []
    for k, risk in enumerate(each_population(shape)):
        model = regression(*simulated_data(risk, n, rng), loss, **how)
        exact = ObjectivePerturbation(ridge=1e-3)
        best = design(model, 300.0, 1e-6, exact.ridge)
        assert best is not None
        least, _ = perturbed(model, replace(best, ridge=1e-3), np.zeros(8)).minimise(np.zeros(8), 1e-6, 1.0)
        excess += [
            objective(model, OBJECTIVE_PERTURBATION.run(model, options, SeededSource(100 * k + j)).x)
            - objective(model, least)
            for j in range(4)
        ]
    assert forecast.error.predicted / 3 <= np.mean(excess) <= 3 * forecast.error.predicted
    assert forecast.proved == domain.bounded
    if domain.bounded:
        failures = int(np.sum(np.array(excess) > forecast.error.alpha))
        assert binom.sf(failures - 1, len(excess), options.beta) > FALSE_ALARM
    assert not forecast.vacuous
