"""The perturbed objective's solver: certificates hold, the proved number of steps is enough, work is as forecast."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from descents import Replay
from regressions import regression
from test_objective_perturbation import DELTA, EPSILON, LOSSES, labels, problem, rows_of

from dpmodel.contract import Options
from dpmodel.regressions import objective_perturbation as module
from dpmodel.regressions import perturbed_objective
from dpmodel.regressions.losses import Loss
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.objective_perturbation import (
    OBJECTIVE_PERTURBATION,
    Design,
    design,
    perturbed,
    ridge_for,
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
        derivatives = np.clip(derivatives, -each.facts.reach, each.facts.reach)
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


class Counted(np.ndarray):
    """Features that count the products with one vector, in those of all rows."""

    passes: ClassVar[list[float]] = [0.0]
    whole: ClassVar[int] = 1

    def __matmul__(self, other: Any) -> Any:
        if np.ndim(other) == 1:
            Counted.passes[0] += max(self.shape) / Counted.whole
        return np.asarray(self) @ np.asarray(other)


def counted(model: PrivateRegression, plan: Design, b: np.ndarray) -> tuple[bool, float]:
    """Whether a run of the solver was certified, and its products with the rows."""
    each = perturbed(model, plan, b)
    (features, first), *rest = each.rows.blocks
    Counted.passes[0], Counted.whole = 0.0, model.count
    each = replace(each, rows=replace(each.rows, blocks=((features.view(Counted), first), *rest)))
    _, found = each.minimise(model.domain.center(), plan.radius, plan.linear + module._penalty_size(model))
    return found, Counted.passes[0]


def test_work_on_few_rows() -> None:
    """Products with the rows, for easy and for separable data."""
    counts = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, y = rows_of(rng, 200, 4), labels(Loss("logistic"), 200, rng)
        model = problem(Loss("logistic"), X, np.sign(X[:, 0]) if seed % 2 else y)
        plan = design(model, 1.0, 1e-6, 2.0)
        assert plan is not None
        found, passes = counted(model, plan, rng.normal(size=4) * plan.sigma)
        assert found
        counts.append(passes)
    assert max(counts) <= plan.facts.passes(1e-3, plan.linear)[0] == 24


SIZES = {
    "free": FreeSpace(8),
    "l1": L1Ball(8, 3.0),
    "l2": L2Ball(8, 1.0),
    "box": Box(np.full(8, -1.0), np.full(8, 2.0)),
}


@pytest.mark.parametrize("rows", ["even", "scaled", "separable", "shares"])
@pytest.mark.parametrize(("kind", "l1"), [*((kind, 0.0) for kind in SIZES), ("free", 30.0)])
def test_work_on_many_rows(kind: str, l1: float, rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """About as many passes as the forecast says, and never the accelerated steps; for badly scaled columns too."""
    monkeypatch.setattr(perturbed_objective.Facts, "steps", lambda self, *args: 0)
    rng = np.random.default_rng(3)
    n, p = 40_000, 8
    X = rng.uniform(-1, 1, (n, p))
    if rows == "scaled":
        X *= np.logspace(0, -4, p)
    if rows == "shares":
        X = rng.dirichlet(0.3 * np.ones(p), n)
    X /= np.maximum(np.linalg.norm(X, axis=1), 1)[:, None]
    z = X @ rng.normal(size=p) * (1000 if rows == "separable" else 3)
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-np.clip(z, -500, 500))), 1.0, -1.0)
    model = problem(Loss("logistic"), X, y, domain=SIZES[kind])
    model = replace(model, penalty=Penalty(np.zeros(p), np.full(p, l1), np.zeros(p)), _memo={})
    plan = design(model, 3.0, 1e-6, ridge_for(model, 0.05))
    assert plan is not None
    usual, most = plan.facts.passes(1.0, plan.linear)
    assert most < 400
    found, passes = counted(model, plan, rng.normal(size=p) * plan.sigma)
    assert found and passes <= usual + 15  # the sample's steps, and a pair of further ones


@pytest.mark.parametrize("kind", ["free", "l1"])
def test_many_columns(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Conjugate gradients, or accelerated steps with a guessed length, in place of Hessians."""
    monkeypatch.setattr(perturbed_objective, "DENSE", 3)
    monkeypatch.setattr(perturbed_objective.Facts, "steps", lambda self, *args: 0)
    rng = np.random.default_rng(3)
    model = problem(
        Loss("logistic"), rows_of(rng, 12_000, 8), labels(Loss("logistic"), 12_000, rng), domain=SIZES[kind]
    )
    plan = design(model, 3.0, 1e-6, ridge_for(model, 0.05))
    assert plan is not None
    found, passes = counted(model, plan, rng.normal(size=8) * plan.sigma)
    assert found and passes <= plan.facts.passes(1.0, plan.linear)[1]


def test_forecast_tells_the_work() -> None:
    model = regression(np.zeros((100_000, 5)), np.zeros(100_000), "logistic", l2=1.0)
    options = Options(1.0, 1e-6)
    work = OBJECTIVE_PERTURBATION.forecast(model, options).work
    plan, _ = OBJECTIVE_PERTURBATION._choose(model, options)
    most = 2 * plan.facts.steps(plan.radius * plan.facts.strong / 2, plan.linear)
    assert work.startswith("about 12 products") and int(work.split("most ")[1].split()[0].replace(",", "")) > most


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_curvature_is_the_derivative_of_the_slope(loss: Loss) -> None:
    rng = np.random.default_rng(0)
    z, y, step = rng.normal(size=200) * 2, labels(loss, 200, rng), 1e-6
    found = perturbed_objective.curvature(loss, z, y, math.inf)
    numeric = (loss.derivative(z + step, y) - loss.derivative(z - step, y)) / (2 * step)
    assert np.quantile(np.abs(found - numeric), 0.98) < 1e-4  # all but points within a step of a kink
    assert (found <= loss.smoothness).all()


def test_conjugate_gradients_stop_where_curvature_underflows() -> None:
    assert not perturbed_objective._conjugate_gradients(lambda v: 0.0 * v, np.ones(3), 5, 1e-3).any()
