"""The synthetic populations: their gradients against large samples, and what they are allowed to know."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from regressions import regression

import dpmodel as dpm
from dpmodel.contract import Options
from dpmodel.privacy.noise import public_generator
from dpmodel.regressions.frank_wolfe import FrankWolfe
from dpmodel.regressions.losses import Loss
from dpmodel.regressions.sets import L1Ball
from dpmodel.regressions.synthetic import each_population, synthetic
from dpmodel.simulate import simulate

LOSSES = [Loss("squared"), Loss("absolute"), Loss("huber", 0.2), Loss("quantile", 0.3), Loss("logistic"), Loss("hinge")]
LOSSES += [Loss("binary_logistic"), Loss("squared_hinge"), Loss("squared", clip=0.3)]


def model_of(loss: Loss, n: int = 50, p: int = 6, **options):
    label = (0.0, 1.0) if loss.labels == "binary" else (-1.0, 1.0)
    return regression(np.zeros((n, p)), np.zeros(n), loss, lower=0.0, upper=2.0, label=label, intercept=True, **options)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{loss.name}-{loss.clip}")
def test_gradients_are_those_of_a_sample(loss):
    """100,000 rows: entries are within 6 standard errors, and the grid adds at most 3 % of the largest derivative."""
    rng, count = np.random.default_rng(0), 100_000
    for risk in each_population(model_of(loss)):
        a = risk.mean[0] + np.sqrt(risk.variance[0]) * rng.standard_normal((count, risk.mean.shape[1]))
        a += risk.common[0] * rng.standard_normal((count, 1))
        star = a @ risk.truth[0]
        if loss.labels == "number":
            y = np.clip(star + risk.noise * rng.standard_normal(count), *risk.model.row.label)
        else:
            hit = rng.random(count) < 1 / (1 + np.exp(-star))
            y = np.where(hit, 1.0, -1.0 if loss.labels == "sign" else 0.0)
        w = 0.5 * risk.truth[0] + 0.1 * rng.normal(size=risk.mean.shape[1])
        z = a @ w
        terms = loss.derivative(z, y)[:, None] * a
        expected, error = terms.mean(axis=0), 6 * terms.std(axis=0) / np.sqrt(count)
        slack = 0.03 * np.abs(terms).mean(axis=0).max()
        assert (np.abs(risk.gradients(w[None])[0] - expected) <= error + slack).all()
        value = loss.value(z, y)
        assert abs(risk.values(w[None])[0] - value.mean()) <= 6 * value.std() / np.sqrt(count) + 0.05 * value.mean()


def test_populations_know_public_facts_only():
    """Two data sets of one shape and the same bounds have the same populations."""
    one, two = (regression(np.full((9, 3), x), np.full(9, x), lower=-1, upper=1) for x in (0.0, 0.7))
    for a, b in zip(each_population(one), each_population(two), strict=True):
        np.testing.assert_array_equal(a.truth, b.truth)
        assert a.nothing == b.nothing > 0


def test_the_truth_is_nearly_optimal():
    for loss in LOSSES[:7]:
        if loss.name == "quantile":
            continue  # its best intercept is not the truth's
        for risk in each_population(model_of(loss)):
            size = np.abs(risk.gradients(risk.truth)).max()
            assert size <= 0.25 * np.abs(risk.gradients(np.zeros((1, 7)))).max() + 0.02, loss.name


SETS = ({}, {"box": (0.0, 0.2)}, {"ball": 0.5}, {"l1": 0.4})
RIDGES = (0.0, 0.1)


@pytest.mark.parametrize("ridge", RIDGES)
@pytest.mark.parametrize("within", SETS, ids=lambda within: "-".join(within) or "free")
@pytest.mark.parametrize("name", ["squared", "hinge"])
def test_no_point_of_the_set_is_far_below_the_least_that_is_found(name, within, ridge):
    """Sets and penalties that keep the truth out, too: an excess risk below zero would be promised otherwise."""
    w = cp.Variable(4, name="w")
    X = dpm.Private(shape=(200, 4), name="X", unit="row", bounds=[0, 1])
    y = dpm.Private(shape=200, name="y", unit="entry", bounds=[-1, 1])
    loss = cp.sum_squares(X @ w - y) if name == "squared" else cp.sum(cp.pos(1 - cp.multiply(y, X @ w)))
    sets = {
        "box": lambda ends: [w >= ends[0], w <= ends[1]],
        "ball": lambda radius: [cp.norm2(w) <= radius],
        "l1": lambda radius: [cp.norm1(w) <= radius],
    }
    constraints = [each for kind, size in within.items() for each in sets[kind](size)]
    problem = dpm.Problem(cp.Minimize(loss / 200 + ridge * cp.sum_squares(w)), constraints or [cp.norm_inf(w) <= 9])
    model = problem._model(None)
    rng = np.random.default_rng(0)
    for risk in each_population(model):
        least = min(
            float((risk.least_from(model.domain.project(start)[None]) - risk.best)[0])
            for start in (risk.truth[0], rng.normal(size=4))
        )
        assert -least <= 0.02 * risk.nothing + 1e-6


def test_real_runs_on_drawn_rows_err_as_forecast() -> None:
    """The mean over the populations, each twice, is near the forecast; rows keep the bounds."""
    model = regression(np.zeros((4000, 5)), np.zeros(4000), "squared", lower=-1, upper=1, domain=L1Ball(5, 1.0))
    mechanism, options = FrankWolfe(), Options(1.0, 1e-6)
    one = each_population(model)[0]
    rows = synthetic(one, public_generator(0)).read_rows()
    assert np.abs(rows.blocks[0][0]).max() <= 1 and np.abs(rows.labels).max() <= 1 and rows.count == 4000
    found = simulate(mechanism, model, options, 2 * len(each_population(model)))["excess risk"]
    assert np.mean(found) == pytest.approx(mechanism.forecast(model, options).error.predicted, rel=0.5)
