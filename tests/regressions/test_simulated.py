"""The synthetic populations: their gradients against large samples, and what they are allowed to know."""

from __future__ import annotations

import math

import cvxpy as cp
import numpy as np
import pytest
from regressions import regression

import dpmodel as dpm
from dpmodel.contract import Options
from dpmodel.privacy.noise import public_generator
from dpmodel.regressions.descent_search import Search
from dpmodel.regressions.frank_wolfe import FrankWolfe
from dpmodel.regressions.losses import Loss
from dpmodel.regressions.sets import L1Ball
from dpmodel.regressions.synthetic import choosers, each_population, synthetic, weak_population
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


def test_columns_that_move_together():
    """The last population has the variances and the signal of its like, and a signal that the columns hardly carry."""
    model = model_of(Loss("squared"), p=4)
    *others, tied = each_population(model)
    assert tied.tied and not any(risk.tied or risk.common.any() for risk in others)
    matrix = np.diag(tied.variance[0]) + tied.common.T @ tied.common
    np.testing.assert_allclose(np.diag(matrix), others[-1].variance[0])
    w = np.arange(5.0)
    np.testing.assert_allclose(tied.covariance(w[None])[0], matrix @ w)
    signal = [float((risk.truth * risk.covariance(risk.truth)).sum()) for risk in (others[-1], tied)]
    assert signal[1] == pytest.approx(signal[0], rel=0.05)
    assert np.linalg.norm(tied.truth[0, :4]) > 2 * np.linalg.norm(others[-1].truth[0, :4])
    short = regression(np.zeros((9, 9)), np.zeros(9), l2=1.0)  # rows as short as that exclude each other's columns
    assert not any(risk.tied for risk in each_population(short))


def test_labels_that_hardly_depend_on_the_columns():
    """They deviate as much as others, and there is little to gain; noise that harms only there is found out."""
    model = model_of(Loss("squared"), n=4000, p=60)
    strong, weak = each_population(model)[0], weak_population(model)
    assert weak.nothing == pytest.approx(0.15**2 * strong.nothing, rel=0.1)
    deviations = [
        float(risk.noise[0] ** 2 + (risk.truth * risk.covariance(risk.truth)).sum()) for risk in (strong, weak)
    ]
    assert deviations[0] == pytest.approx(deviations[1])
    shares = choosers(model).nothing.copy()
    search = Search(model, lambda settings: None, pure=False, steps=None)
    shares[-1] = 0.0
    assert search._scores(shares)[0] == search._scores(choosers(model).nothing)[0] == pytest.approx(0.0, abs=0.01)
    shares[-1] = 10 * choosers(model).nothing[-1]
    assert search._scores(shares)[0] == pytest.approx(math.log(10) / 4, abs=0.01)


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


@pytest.mark.parametrize(("loss", "norm"), [("logistic", 1.0), ("hinge", 0.5)])
def test_drawn_rows_are_as_short_as_declared(loss: str, norm: float) -> None:
    model = regression(np.zeros((50, 9)), np.ones(50), loss, l2=norm)
    rows = synthetic(each_population(model)[0], public_generator(0)).read_rows()
    assert np.linalg.norm(rows.blocks[0][0], axis=1).max() <= norm * (1 + 1e-12)
    assert set(np.unique(rows.labels)) == {-1.0, 1.0}
