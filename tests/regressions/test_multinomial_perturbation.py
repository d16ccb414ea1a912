"""Objective perturbation of K scores: determinants, corners, exact densities, certificates, and the plan's choice."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from descents import Replay
from scipy.stats import norm
from test_multinomial import OPTIONS, drawn, multinomial, objective

from dpmodel.contract import Options
from dpmodel.privacy import SeededSource, gaussian_delta
from dpmodel.regressions import objective_perturbation as module
from dpmodel.regressions import perturbed_objective
from dpmodel.regressions.descent import NOISY_DESCENT
from dpmodel.regressions.losses import Softmax, softmax
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.objective_perturbation import (
    OBJECTIVE_PERTURBATION,
    Design,
    ObjectivePerturbation,
    corners,
    design,
    facts_of,
    noise_level,
    perturbed,
    ridge_for,
)
from dpmodel.regressions.penalties import Penalty
from dpmodel.regressions.perturbed_objective import (
    PerturbedObjective,
    bending,
    classes_gram,
)
from dpmodel.regressions.sets import Box, L2Ball

EPSILON, DELTA = 1.0, 1e-3


def labelled(X: Any, labels: np.ndarray, **how: Any) -> PrivateRegression:
    """The model of rows X and labels (n, K), which need not be one-hot."""
    model = multinomial(np.asarray(X), np.zeros(len(X)), labels.shape[1], **how)
    rows = replace(model.read_rows(), labels=labels)
    return replace(model, read=lambda: rows)


# ------------------------------------------------------------------ determinants
def logdet(objective: PerturbedObjective, w: np.ndarray) -> float:
    rows = objective.rows.in_memory
    assert rows is not None
    return float(np.linalg.slogdet(classes_gram(rows, softmax(rows.predict(w))) + np.diag(objective.h))[1])


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_determinants_cost_no_more_than_stated_and_that_is_reached(classes: int) -> None:
    rng, largest = np.random.default_rng(classes), 0.0
    for _ in range(30):
        X, places, own = rng.uniform(-1, 1, (4, 2)), rng.integers(classes, size=4), float(rng.choice([0.0, 2.0]))
        other, far = X.copy(), 10.0 ** rng.uniform(-2, 2)
        other[0] = rng.choice([0.0, 1.0]) * rng.uniform(-1, 1, 2)
        weights = rng.uniform(0.2, 2, 4)
        weights[0] = weights.max()
        how: dict[str, Any] = {"intercept": bool(rng.random() < 0.5), "weights": weights, "ridge": own}
        pair = [multinomial(rows, places, classes, **how) for rows in (X, other)]
        plan = design(pair[0], EPSILON, DELTA, ridge_for(pair[0], 10.0 ** rng.uniform(-2, -0.1)))
        assert plan is not None and plan.curvature <= 0.8
        w = far * rng.normal(size=pair[0].size)
        one, two = (logdet(perturbed(each, plan, 0 * w), w) for each in pair)
        assert abs(one - two) <= plan.curvature
        largest = max(largest, abs(one - two) / plan.curvature)
    assert largest > 0.2
    # Two rows of full and of no length, equal chances, no other record.
    pair = [multinomial(np.full((1, 2), x), [0], classes) for x in (1.0, 0.0)]
    plan = design(pair[0], EPSILON, DELTA, ridge_for(pair[0], 0.6))
    assert plan is not None
    one, two = (logdet(perturbed(each, plan, np.zeros(2 * classes)), np.zeros(2 * classes)) for each in pair)
    assert 0.6 * (1 - 1e-9) < one - two <= plan.curvature
    if classes > 2:  # a broken twin: the determinants of one prediction
        assert one - two > 1.5 * math.log1p(0.25 * module.leverage(pair[0], plan.ridge))


def test_second_derivatives_are_those_of_the_gradient() -> None:
    rng = np.random.default_rng(0)
    for weights in (None, rng.uniform(0.5, 2, 30)):
        model = drawn(30, 2, 4, 0, intercept=True, weights=weights)
        rows, w, move = model.read_rows(), rng.normal(size=12), rng.normal(size=12)

        def gradient(w: np.ndarray, model: Any = model, rows: Any = rows) -> np.ndarray:
            return np.asarray(rows.combine(model.loss.derivative(rows.predict(w), rows.labels)))

        slope = (gradient(w + 1e-6 * move) - gradient(w - 1e-6 * move)) / 2e-6
        z = rows.predict(w)
        np.testing.assert_allclose(classes_gram(rows, softmax(z)) @ move, slope, atol=1e-7)
        bent = bending(model.loss, z, rows.labels, math.sqrt(2))(rows.predict(move))
        np.testing.assert_allclose(rows.combine(bent), slope, atol=1e-7)


# ------------------------------------------------------------------ corners
def at_corners(one: Any, two: Any) -> np.ndarray:
    """(K^2,) squared lengths of Delta at the corners, for (row, label) of a record and of the one in its place."""
    (x, y), (other, label) = one, two
    eye = np.eye(y.size)
    return np.array([((np.outer(e - y, x) - np.outer(f - label, other)) ** 2).sum() for e in eye for f in eye])


def hull(rng: np.random.Generator, classes: int) -> np.ndarray:
    if rng.random() < 0.5:
        return np.vstack([np.zeros(classes), np.eye(classes)])[rng.integers(classes + 1)]
    return rng.dirichlet(np.ones(classes + 1))[1:]


@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_no_labels_and_rows_cost_more_at_the_corners(classes: int, intercept: bool, absent: bool) -> None:
    rng, dearest = np.random.default_rng(0), 0.0
    model = multinomial(np.zeros((1, 2)), [0], classes, intercept=intercept, absent=absent)
    shares, left, ends = corners(model), 0.6, (1 - module._OUTPUT, module._OUTPUT)
    mu = noise_level(left, 1e-4, shares)
    stated = sum(number * gaussian_delta(math.sqrt(share) * mu, left) for number, share in shares)
    assert 0.9e-4 < stated <= 1e-4
    full = model.row.sensitivity(math.sqrt(2), 2.0) ** 2
    for number in range(15):
        rows = rng.choice([-1.0, 1.0], (2, 2)) * rng.choice([1.0, 1.0, rng.random()])
        labels = [hull(rng, classes), hull(rng, classes)]
        if number == 0:  # the dearest
            rows, labels = np.array([[1.0, 1.0], [-1.0, -1.0]]), [np.eye(classes)[0]] * 2
        if absent:
            rows[1], labels[1] = 0.0, np.zeros(classes)
        rows = np.column_stack([rows, np.ones(2)]) if intercept else rows
        squares = at_corners((rows[0], labels[0]), (rows[1], labels[1])) / full
        assert squares.max() <= 1 + 1e-12
        squares = squares[::classes] if absent and not intercept else squares  # the absent record has no corners
        levels = np.sqrt(squares * ends[0] + ends[1]) * mu
        dearest = max(dearest, sum(gaussian_delta(float(each), left) for each in levels) / stated)
    assert dearest <= 1 + 1e-9
    assert dearest > (0.02 if intercept else 0.999)


# ------------------------------------------------------------------ exact densities of the minimiser
def plane_delta(
    pair: list[PrivateRegression], plan: Design, sigma: float, middle: Any, span: float, whole: bool = True
) -> float:
    """The larger delta of the two directions at EPSILON, by quadrature over the coefficients that sum to 0 over the
    classes: a plane, here. What these have in common is normal, independent of them, and the same for both. Over a part
    of the plane it is a lower bound."""
    classes, size = pair[0].scores, pair[0].row.size
    shift = np.linalg.svd(np.ones((1, classes)))[2][1:]  # (K - 1, K)
    basis = np.kron(shift, np.eye(size))  # (2, K p)
    steps = np.linspace(-span, span, 501)
    v = np.stack(np.meshgrid(steps, steps, indexing="ij"), axis=-1).reshape(-1, 2) + middle
    w = v @ basis
    logs = []
    for model in pair:
        each, rows = perturbed(model, plan, np.zeros(model.size)), model.read_rows()
        X = np.hstack([m for m, _ in rows.blocks])
        p = softmax(np.einsum("mkj,nj->mnk", w.reshape(-1, classes, size), X))
        b = -(np.einsum("mnk,nj->mkj", p - rows.labels, X).reshape(len(w), -1) + each.h * w + each.linear) @ basis.T
        bends = np.einsum("mnk,kl->mnkl", p, np.eye(classes)) - p[..., :, None] * p[..., None, :]
        inner = np.einsum("mnkl,ni,nj->mkilj", bends, X, X).reshape(len(w), classes * size, -1)
        second = basis @ (inner + np.diag(each.h)) @ basis.T
        logs.append(norm.logpdf(b, scale=sigma).sum(axis=1) + np.linalg.slogdet(second)[1])
    first, other = (np.exp(each) * (steps[1] - steps[0]) ** 2 for each in logs)
    for each in (first, other):
        assert not whole or float(each.sum()) == pytest.approx(1, abs=1e-4)
    return max(float(np.maximum(a - math.exp(EPSILON) * b, 0).sum()) for a, b in ((first, other), (other, first)))


def opposite(ridge: float) -> tuple[list[PrivateRegression], np.ndarray]:
    """Two classes and nearly opposite rows of one; a public linear term makes the other all but sure for both: the
    gradient moves by nearly 2 sqrt(2). And where the minimiser then is."""
    lean = 0.15
    pull = np.array([0.0, 1.0, 0.0, -1.0]) * 60 * ridge / math.sqrt(2)
    pair = []
    for side in (1.0, -1.0):
        model = multinomial(np.array([[side * math.sqrt(1 - lean**2), lean]]), [0], 2, l2=1.0)
        pair.append(replace(model, scale=1.0, penalty=Penalty(np.zeros(4), np.zeros(4), pull), _memo={}))
    shift = np.linalg.svd(np.ones((1, 2)))[2][1:]
    return pair, -(np.kron(shift, np.eye(2)) @ pull) / ridge


@pytest.mark.parametrize("ridge", [5.0, 20.0])
def test_audit_of_the_sensitivity_by_exact_densities(ridge: float) -> None:
    pair, middle = opposite(ridge)
    plan = design(pair[0], EPSILON, DELTA, ridge)
    assert plan is not None

    def found(sigma: float) -> float:
        return plane_delta(pair, plan, sigma, middle, 7 * sigma / ridge)

    assert DELTA / 10 < found(plan.sigma) <= DELTA
    assert found(plan.sigma / math.sqrt(2)) > 3 * DELTA  # a broken twin: derivatives of size 1


def test_audit_of_the_determinants_by_exact_densities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three classes, a row of full length in place of one of none. Densities differ the most where chances are equal,
    and more than noise of the size that hides the derivatives forgives."""
    delta = 1e-6

    def found() -> float:
        pair = [labelled(np.array([[x]]), np.full((1, 3), 1 / 3)) for x in (1.0, 0.0)]
        plan = design(pair[0], EPSILON, delta, ridge_for(pair[0], 0.9 * EPSILON))
        assert plan is not None
        return plane_delta(pair, plan, plan.sigma, 0.0, 20.0, whole=False)

    assert found() <= delta
    monkeypatch.setattr(module, "determinants", lambda model: (1, 0.25))  # a broken twin: those of one prediction
    assert found() > 10 * delta


# ------------------------------------------------------------------ the release
@pytest.mark.parametrize("domain", [None, Box(np.full(9, -0.2), np.full(9, 0.3)), L2Ball(9, 0.7)])
@pytest.mark.parametrize("absent", [False, True])
def test_run_releases_the_minimiser_with_the_noise_of_the_design(domain: Any, absent: bool) -> None:
    """That the gradient there is -b (free), or is held back by the set alone."""
    model = drawn(400, 2, 3, 0, intercept=True, domain=domain, absent=absent)
    mechanism, source = ObjectivePerturbation(ridge=40.0), Replay(0)
    plan = design(model, 1.0, 1e-6, 40.0)
    assert plan is not None and plan.facts.clip == pytest.approx(math.sqrt(2))
    assert plan.curvature == pytest.approx(2 * math.log1p(3 / 40 / 3))
    outcome = mechanism.run(model, OPTIONS, source)
    ((_, zero, scale), (_, point, output)), (b, released) = source.asked, source.given
    assert not zero.any() and scale == plan.sigma and output == plan.output
    assert outcome.x is not None and np.array_equal(outcome.x, model.domain.project(released))
    gradient = perturbed(model, plan, b).gradient(point)
    held = model.domain.project(point - gradient / plan.facts.smooth)
    assert np.linalg.norm(held - point) <= 2 * plan.radius
    assert 2 * plan.radius / plan.output == pytest.approx(plan.mu * math.sqrt(module._OUTPUT))


@pytest.mark.parametrize("twin", ["", "one Newton step"])
def test_certified_on_the_worst_rows(twin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows at a corner, labels of one class or of none, and no Newton steps: accelerated steps end with the
    certificate, and the minimiser lies within its public bound. A twin without them has none."""
    for places in (0, -1):
        model = multinomial(np.ones((300, 2)), np.full(300, places), 3, intercept=True)
        plan = design(model, 1.0, 1e-6, 40.0)
        assert plan is not None
        b = plan.sigma * np.random.default_rng(0).standard_normal(9)
        monkeypatch.setattr(perturbed_objective, "NEWTON_STEPS", 0)
        if twin:
            monkeypatch.setattr(perturbed_objective.Facts, "steps", lambda *_: 1)
        point, found = perturbed(model, plan, b).minimise(np.zeros(9), plan.radius, plan.linear)
        assert found != bool(twin)
        assert twin or float(np.linalg.norm(point)) <= facts_of(model, 40.0, 40.0, plan.linear).size


def test_rows_without_a_class_move_the_minimiser_far() -> None:
    """Where labels sum to 0 losses have no lower bound: all scores fall until the ridge holds them. The public bound
    on the minimiser counts that."""
    n, strong = 1000, 0.005
    model = multinomial(np.ones((n, 1)), np.full(n, -1), 3)
    facts = facts_of(model, strong, strong, 0.0)
    w = -n / 3 / strong * np.ones(3)  # equal chances, and each derivative n / 3
    rows = model.read_rows()
    np.testing.assert_allclose(
        rows.combine(model.loss.derivative(rows.predict(w), rows.labels)) + strong * w, 0, atol=1e-6
    )
    assert np.linalg.norm(w) <= facts.size <= 4 * np.linalg.norm(w)


# ------------------------------------------------------------------ refusals and plans
def test_refusals() -> None:
    model = drawn(30, 2, 3, 0)
    judge = partial(OBJECTIVE_PERTURBATION.eligible, model)
    assert judge(OPTIONS).eligible and "delta > 0" in judge(Options(1.0, 0.0)).reason
    assert "strongly convex" in ObjectivePerturbation(ridge=0.0).eligible(model, OPTIONS).reason
    assert "takes all of epsilon" in ObjectivePerturbation(ridge=0.1).eligible(model, OPTIONS).reason


@pytest.mark.slow
def test_plans_prefer_it_where_many_records_leave_little_noise() -> None:
    """Columns that move together are learnt exactly, by descent only in many steps."""
    many, few = (multinomial(np.zeros((n, 6)), np.zeros(n), 4, intercept=True) for n in (100_000, 300))
    for model, better in ((many, True), (few, False)):
        own, descent = (each.forecast(model, OPTIONS) for each in (OBJECTIVE_PERTURBATION, NOISY_DESCENT))
        assert not better or own.error.predicted < 0.5 * descent.error.predicted
        assert "products with the rows" in own.work and not own.proved
    x = OBJECTIVE_PERTURBATION.run(drawn(2000, 2, 3, 1), Options(300.0, 1e-6), SeededSource(0)).x
    assert x is not None and isinstance(drawn(1, 2, 3, 1).loss, Softmax)


def test_what_is_proved_of_bounded_sets_holds() -> None:
    """On the worst labels for a ball, a third of the rows of each class, and on those of one class alone."""
    corner = np.random.default_rng(0).choice([-1.0, 1.0], (3000, 2))
    for places in (np.arange(3000) % 3, np.zeros(3000)):
        model = multinomial(corner, places, 3, domain=L2Ball(6, 0.5))
        options = Options(3.0, 1e-6)
        forecast = OBJECTIVE_PERTURBATION.forecast(model, options)
        plan = design(model, 20.0, 1e-6, 0.05)  # hardly a ridge
        assert forecast.proved and plan is not None
        best, found = perturbed(model, plan, np.zeros(6)).minimise(np.zeros(6), 1e-4, 1.0)
        least = objective(model, best)
        assert found and least + 1e-5 < objective(model, np.zeros(6))
        for seed in range(20):
            x = OBJECTIVE_PERTURBATION.run(model, options, SeededSource(seed)).x
            assert x is not None and objective(model, x) - least <= forecast.error.alpha < 0.3
