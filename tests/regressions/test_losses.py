"""Losses against CVXPY's own, derivatives against differences, and the reaches that sensitivities rest on."""

from __future__ import annotations

import math
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmodel.regressions.losses import Loss
from dpmodel.regressions.perturbed_objective import curvature

LOSSES = [
    Loss("squared"),
    Loss("absolute"),
    Loss("huber", 0.7),
    Loss("quantile", 0.3),
    Loss("logistic"),
    Loss("binary_logistic"),
    Loss("hinge"),
    Loss("squared_hinge"),
]
CVXPY = {
    "squared": lambda z, y, _: cp.square(z - y),
    "absolute": lambda z, y, _: cp.abs(z - y),
    "huber": lambda z, y, m: cp.huber(z - y, m),
    "quantile": lambda z, y, tau: tau * cp.pos(y - z) + (1 - tau) * cp.pos(z - y),
    "logistic": lambda z, y, _: cp.logistic(-cp.multiply(y, z)),
    "binary_logistic": lambda z, y, _: cp.logistic(z) - cp.multiply(y, z),
    "hinge": lambda z, y, _: cp.pos(1 - cp.multiply(y, z)),
    "squared_hinge": lambda z, y, _: cp.square(cp.pos(1 - cp.multiply(y, z))),
}


def labels_of(loss: Loss, size: int, rng: np.random.Generator, bound: float = 1.0) -> np.ndarray:
    if loss.labels == "sign":
        return rng.choice([-1.0, 1.0], size)
    if loss.labels == "binary":
        return rng.choice([0.0, 1.0], size)
    return rng.uniform(-bound, bound, size)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_values_are_cvxpys(loss):
    rng = np.random.default_rng(1)
    z, y = rng.normal(0, 3, 200), labels_of(loss, 200, rng, 2.0)
    expected = CVXPY[loss.name](cp.Constant(z), cp.Constant(y), loss.parameter).value
    np.testing.assert_allclose(loss.value(z, y), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_slopes_are_differences(loss):
    rng = np.random.default_rng(2)
    z, y = rng.normal(0, 3, 200), labels_of(loss, 200, rng, 2.0)
    h = 1e-6
    near_kink = np.abs(loss.derivative(z + 2 * h, y) - loss.derivative(z - 2 * h, y)) > 1e-3
    difference = (loss.value(z + h, y) - loss.value(z - h, y)) / (2 * h)
    np.testing.assert_allclose(loss.derivative(z, y)[~near_kink], difference[~near_kink], atol=2e-5)
    assert near_kink.mean() < 0.05


@pytest.mark.parametrize("loss", [Loss("absolute"), Loss("quantile", 0.3), Loss("hinge")], ids=lambda loss: loss.name)
@pytest.mark.parametrize("sharpness", [0.5, 20.0])
def test_losses_of_some_sharpness_are_smooth_and_near(loss: Loss, sharpness: float) -> None:
    """Labels of two sizes; the distance is that of the integrals of the derivatives."""
    smooth = replace(loss, sharpness=sharpness)
    z = np.linspace(-30, 30, 60_001)
    for y in (-1.0, 0.4, 1.0):
        first = smooth.derivative(z, np.full(z.size, y))
        second = curvature(smooth, z, np.full(z.size, y), math.inf)
        assert (np.diff(first) >= -1e-12).all()
        assert np.abs(first).max() <= np.abs(loss.derivative(z, np.full(z.size, y))).max()
        np.testing.assert_allclose(np.gradient(first, z)[1:-1], second[1:-1], atol=0.6 * sharpness)  # a jump at hinge's
        assert np.median(np.abs(np.gradient(first, z) - second)) < 1e-3
        assert np.diff(first).max() <= smooth.smoothness * np.diff(z).max() * (1 + 1e-9)
        below = loss.value(z, np.full(z.size, y)) - np.concatenate([[0], np.cumsum((first[1:] + first[:-1]) / 2e3)])
        below -= below.min()  # both are 0 at the kink
        assert below.max() <= 1.01 / sharpness


@pytest.mark.parametrize("clip", [math.inf, 0.4])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(size=st.floats(0, 20), bound=st.floats(0.1, 5), seed=st.integers(0, 99))
def test_slopes_stay_within_their_bounds_and_reach_them(loss, clip, size, bound, seed):
    loss = Loss(loss.name, loss.parameter, clip)
    bound = 1.0 if loss.labels != "number" else bound
    rng = np.random.default_rng(seed)
    z = np.concatenate([rng.uniform(-size, size, 400), [-size, size, -size, size, 0.0]])
    y = np.concatenate([labels_of(loss, 400, rng, bound), [bound, bound, -bound, -bound, bound]])
    if loss.labels == "binary":
        y = np.abs(y)
    derivative, middle = loss.derivative(z, y), loss.middle(y)
    slack = 1e-9 * (1 + size + bound)
    assert np.abs(derivative).max() <= loss.derivative_bound(size, bound) + slack
    assert np.abs(middle).max() <= loss.middle_bound(bound) + slack
    assert np.abs(derivative - middle).max() <= loss.rest_bound(size, bound) + slack
    if loss.name in ("squared", "logistic", "binary_logistic", "squared_hinge"):
        assert np.abs(derivative).max() >= loss.derivative_bound(size, bound) - slack  # the corners attain it
    if loss.name in ("squared", "logistic", "binary_logistic") and math.isinf(clip):
        assert np.abs(derivative - middle).max() >= loss.rest_bound(size, bound) - slack


@pytest.mark.parametrize("loss", [x for x in LOSSES if math.isfinite(x.smoothness)], ids=lambda loss: loss.name)
def test_smoothness_is_the_largest_second_derivative(loss):
    rng = np.random.default_rng(3)
    z, y = rng.uniform(-4, 4, 20_000), labels_of(loss, 20_000, rng, 2.0)
    ratio = np.abs(loss.derivative(z + 1e-4, y) - loss.derivative(z, y)) / 1e-4
    assert loss.smoothness * 0.99 <= ratio.max() <= loss.smoothness * (1 + 1e-6)


def test_absent_records_have_no_slope_where_signs_are_labels():
    for name in ("logistic", "hinge", "squared_hinge"):
        loss = Loss(name)
        assert loss.derivative(np.array([3.0]), np.zeros(1)) == 0
        assert loss.middle(np.zeros(1)) == 0
