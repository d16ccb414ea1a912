"""The perturbed objective's solver: certificates hold, the proved number of steps is enough."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from descents import Replay
from scipy.sparse.linalg import LinearOperator
from test_objective_perturbation import DELTA, EPSILON, LOSSES, labels, problem, rows_of

from dpmodel.contract import Options
from dpmodel.regressions import objective_perturbation as module
from dpmodel.regressions import perturbed_objective
from dpmodel.regressions.losses import Loss
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.objective_perturbation import (
    OBJECTIVE_PERTURBATION,
    design,
    perturbed,
)
from dpmodel.regressions.penalties import Penalty
from dpmodel.regressions.sets import Box, FreeSpace, L1Ball, L2Ball, Product

SETS = {
    "free": FreeSpace(5),
    "l1": L1Ball(5, 0.4),
    "l2": L2Ball(5, 0.4),
    "box": Box(np.full(5, -0.1), np.full(5, 0.3)),
    "product": Product(((L1Ball(4, 0.4), 0), (FreeSpace(1), 4))),
}


@pytest.mark.parametrize(("kind", "penalty"), [*((kind, "none") for kind in SETS), ("free", "l1")])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_certificate(loss: Loss, kind: str, penalty: str) -> None:
    """The certified distance holds for points near and far, and the solver's point is within the radius."""
    rng = np.random.default_rng(2)
    model = problem(loss, rows_of(rng, 300, 5), labels(loss, 300, rng), domain=SETS[kind], ridge=0.5)
    if penalty == "l1":
        model = replace(model, penalty=Penalty(model.penalty.ridge, np.full(5, 2.0), np.full(5, 0.1)), _memo={})
    plan = design(model, EPSILON, DELTA, 1.0)
    assert plan is not None
    each = perturbed(model, plan, rng.normal(size=5) * plan.sigma)
    limit = plan.linear + module._penalty_size(model)
    best, found = each.minimise(np.zeros(5), plan.radius, limit)
    assert found
    sharper, _ = each.minimise(best, plan.radius / 50, limit)
    assert np.linalg.norm(best - sharper) <= plan.radius * 1.03
    value = total_value(each, model)
    assert np.linalg.norm(sharper) <= plan.facts.size * (1 + 1e-9)
    for size in (1e-6, 1e-2, 1.0):
        start = model.domain.project(best + rng.normal(size=5) * size)
        point, bound = each.certify(start)
        assert np.linalg.norm(point - sharper) <= bound + plan.radius / 50
        assert value(point) >= value(sharper) - 1e-6


def total_value(each: Any, model: PrivateRegression) -> Any:
    """The perturbed objective's value: derivatives integrated from 0, which serves clipped losses too."""

    def value(w: np.ndarray) -> float:
        z = each.rows.predict(w)
        t = np.linspace(0, 1, 201)[:, None]
        derivatives = each.loss.derivative((t * z).ravel(), np.tile(each.rows.labels, 201))
        derivatives = np.clip(derivatives, -each.facts.clip, each.facts.clip)
        losses = np.trapezoid(derivatives.reshape(201, -1) * z, t[:, 0], axis=0).sum()
        smooth = float(losses + (each.h * w) @ w / 2 + each.linear @ w)
        return smooth + float(model.penalty.l1 @ np.abs(w)) / model.scale

    return value


@pytest.mark.parametrize("kind", ["free", "l1"])
def test_accelerated_steps_are_enough(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Newton's method the certificate comes too, within the number of steps that is proved."""
    monkeypatch.setattr(perturbed_objective, "NEWTON_STEPS", 0)
    rng = np.random.default_rng(2)
    model = problem(Loss("logistic"), rows_of(rng, 100, 5), labels(Loss("logistic"), 100, rng), domain=SETS[kind])
    plan = design(model, EPSILON, DELTA, 2.0)
    assert plan is not None
    assert plan.facts.steps(plan.radius * plan.facts.strong / 2, plan.linear) < 3000
    _, found = perturbed(model, plan, np.full(5, plan.sigma)).minimise(np.ones(5), plan.radius, plan.linear)
    assert found


def test_without_certificate_the_centre_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perturbed_objective.PerturbedObjective, "certify", lambda self, w: (w, math.inf))
    monkeypatch.setattr(perturbed_objective.Facts, "steps", lambda self, *args: 3)
    rng = np.random.default_rng(0)
    model = problem(Loss("logistic"), rows_of(rng, 30, 2), labels(Loss("logistic"), 30, rng))
    source = Replay()
    OBJECTIVE_PERTURBATION.run(model, Options(EPSILON, DELTA), source)
    assert len(source.asked) == 2 and not source.values[1].any()


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_curvature_is_the_derivative_of_the_slope(loss: Loss) -> None:
    rng = np.random.default_rng(0)
    z, y, step = rng.normal(size=200) * 2, labels(loss, 200, rng), 1e-6
    found = perturbed_objective.curvature(loss, z, y, math.inf)
    numeric = (loss.derivative(z + step, y) - loss.derivative(z - step, y)) / (2 * step)
    assert np.quantile(np.abs(found - numeric), 0.98) < 1e-4  # all but points within a step of a kink
    assert (found <= loss.smoothness).all()


def test_conjugate_gradients_stop_where_curvature_underflows() -> None:
    operator = LinearOperator((3, 3), matvec=lambda v: 0.0 * v)
    found = perturbed_objective._conjugate_gradients(operator, np.ones(3), 1e-3)
    assert not np.isfinite(found).all() or not found.any()  # no step: the certificate decides


def test_no_positive_definite_matrix() -> None:
    assert not perturbed_objective.solve_positive(-np.eye(2), np.ones(2)).any()
