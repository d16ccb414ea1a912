"""``dpm.losses``: each is read as its loss, with the numbers of the model that is spelled out."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from regression_spellings import ROOTS, SHIFT, SIGNS, Leaves, N
from test_read import compare, minimise

import dpmodel as dpm
from dpmodel.errors import SpecificationError
from dpmodel.marks import Private
from dpmodel.regressions.build import private_regression
from dpmodel.regressions.read import Recognised, recognise

LOSSES: dict[str, tuple[Any, Any, str]] = {
    "squared": (lambda m, **k: dpm.losses.squared(m.z, m.y, **k), lambda m: cp.sum_squares(m.r), ""),
    "absolute": (lambda m, **k: dpm.losses.absolute(m.z, m.y, **k), lambda m: cp.norm1(m.r), ""),
    "huber": (lambda m, **k: dpm.losses.huber(m.z, m.y, 0.5, **k), lambda m: cp.sum(cp.huber(m.r, 0.5)), ""),
    "quantile": (
        lambda m, **k: dpm.losses.quantile(m.z, m.y, 0.3, **k),
        lambda m: cp.sum(0.3 * cp.pos(m.y - m.z) + 0.7 * cp.pos(m.z - m.y)),
        "",
    ),
    "logistic": (
        lambda m, **k: dpm.losses.logistic(m.z, m.y, **k),
        lambda m: cp.sum(cp.logistic(-m.margin)),
        "signs",
    ),
    "binary_logistic": (
        lambda m, **k: dpm.losses.binary_logistic(m.z, m.t, **k),
        lambda m: cp.sum(cp.logistic(m.z) - cp.multiply(m.t, m.z)),
        "",
    ),
    "hinge": (lambda m, **k: dpm.losses.hinge(m.z, m.y, **k), lambda m: cp.sum(cp.pos(1 - m.margin)), "signs"),
    "squared_hinge": (
        lambda m, **k: dpm.losses.squared_hinge(m.z, m.y, **k),
        lambda m: cp.sum_squares(cp.pos(1 - m.margin)),
        "signs",
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_each_is_read_as_its_loss(name: str) -> None:
    write, spelled, signs = LOSSES[name]
    m = Leaves()
    plain = compare(minimise(write(m) + 0.5 * cp.norm1(m.w)), m, 1, signs=bool(signs))
    expected = recognise(minimise(spelled(m) + 0.5 * cp.norm1(m.w)))
    assert isinstance(expected, Recognised)
    assert plain.loss == expected.loss and plain.loss.name == name
    one, two = private_regression(plain), private_regression(expected)
    assert one.scale == pytest.approx(two.scale) and plain.weights is None
    assert one.classification.cells[0].sensitivity == pytest.approx(two.classification.cells[0].sensitivity)
    np.testing.assert_allclose(plain.penalty.l1, expected.penalty.l1)
    assert [start for _, start in plain.blocks] == [start for _, start in expected.blocks]


@pytest.mark.parametrize("name", LOSSES)
def test_weights(name: str) -> None:
    write, _, signs = LOSSES[name]
    m = Leaves()
    found = compare(minimise(write(m, weights=ROOTS)), m, 2, signs=bool(signs))
    assert found.weights is not None
    np.testing.assert_allclose(found.weights, ROOTS / ROOTS.mean())
    mean, total = (recognise(minimise(write(m, **given))) for given in ({"weights": 1 / N}, {}))
    assert isinstance(mean, Recognised) and isinstance(total, Recognised)
    assert mean.scale == pytest.approx(total.scale / N) and mean.weights is None


def test_labels_in_a_table_in_a_column_and_public() -> None:
    m = Leaves()
    compare(minimise(dpm.losses.squared(m.D[:, :3] @ m.w, m.D[:, 3])), m, 3)
    compare(minimise(dpm.losses.huber(m.X @ m.W, m.Y, weights=ROOTS)), m, 3)
    assert compare(minimise(dpm.losses.absolute(m.X @ m.w, SHIFT)), m, 3).private == (m.X,)
    assert compare(minimise(dpm.losses.hinge(m.z, SIGNS)), m, 3).loss.name == "hinge"


def test_softmax() -> None:
    m = Leaves()
    Y = Private(shape=(N, 4), name="classes", unit="row", bounds=[0, 1], max_l1=1, records=m.people)
    W, b = cp.Variable((3, 4)), cp.Variable(4)
    for given in ({}, {"weights": ROOTS}):
        found = recognise(minimise(dpm.losses.softmax(m.X @ W + b, Y, **given) + cp.sum_squares(W)))
        assert isinstance(found, Recognised) and found.loss.scores == 4
        assert (found.weights is None) == (not given)


def test_what_would_be_broadcast_is_refused() -> None:
    m = Leaves()
    for write in (dpm.losses.squared, dpm.losses.logistic):
        with pytest.raises(SpecificationError, match=r"\(7,\) and labels of shape \(7, 1\)"):
            write(m.z, m.Y)
        with pytest.raises(SpecificationError, match="weights of shape"):
            write(m.z, m.y, weights=np.ones(3))
    with pytest.raises(SpecificationError, match="positive"):
        dpm.losses.huber(m.z, m.y, 0.0)
    with pytest.raises(SpecificationError, match="level"):
        dpm.losses.quantile(m.z, m.y, 1.0)
    with pytest.raises(SpecificationError, match="scores"):
        dpm.losses.softmax(m.z, m.Y)


def test_all_are_documented_and_public() -> None:
    assert sorted([*LOSSES, "softmax"]) == sorted(dpm.losses.__all__)
    assert all(getattr(dpm.losses, name).__doc__ for name in dpm.losses.__all__)
