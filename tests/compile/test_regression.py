"""Recognising regressions: every spelling against CVXPY's own numbers, refusals with their reasons, and what is no
candidate at all."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import MODELS
from regression_spellings import MIX, PUBLIC, ROOTS, SCALES, SHIFT, SPELLINGS, Leaves, N, P

from dpmodel.annotate import Private, Records, vault
from dpmodel.classify.regression_model import private_regression
from dpmodel.compile.regression import loops as regression_loops
from dpmodel.compile.regression import recognise as module
from dpmodel.compile.regression.recognise import Recognised, recognise
from dpmodel.errors import DPModelError, MissingValueError, SpecificationError, UnsupportedModelError


def minimise(expression: Any, *constraints: Any) -> cp.Problem:
    return cp.Problem(cp.Minimize(expression), list(constraints))


def fill(m: Leaves, rng: np.random.Generator, signs: bool) -> dict[int, Any]:
    """Give the private leaves values within their bounds; the same numbers as constants, for CVXPY's own tree."""
    X = rng.normal(size=m.X.shape)
    values = {
        m.X: X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1),
        m.Z: rng.uniform(-1, 2, size=m.Z.shape),
        m.x: rng.uniform(0, 3, size=N),
        m.y: rng.choice([-1.0, 1.0], size=N) if signs else rng.uniform(-1, 1, size=N),
        m.Y: rng.uniform(-1, 1, size=(N, 1)),
        m.t: rng.choice([0.0, 1.0], size=N),
        m.D: rng.uniform(-1, 1, size=m.D.shape),
        m.XT: rng.uniform(-0.5, 0.5, size=m.XT.shape),
    }
    for parameter, value in values.items():
        parameter.value = value
    return {id(parameter): cp.Constant(value) for parameter, value in values.items()}


def compare(problem: cp.Problem, m: Leaves, seed: int, signs: bool = False) -> Recognised:
    """The model's objective over the rows as a mechanism reads them, beside CVXPY's own value."""
    found = recognise(problem)
    assert found is not None
    rng = np.random.default_rng(seed)
    constants = fill(m, rng, signs)
    model = private_regression(found)
    rows = model.read_rows()
    maximize = isinstance(problem.objective, cp.Maximize)
    gaps = []
    for _ in range(2):
        for variable in problem.variables():
            variable.value = np.abs(rng.normal(size=variable.shape))
        c = np.asarray(found.coefficients.value, dtype=float).ravel(order="F")
        losses = model.loss.value(rows.predict(c), rows.labels)
        losses = losses if rows.weights is None else losses * rows.weights
        mine = model.scale * losses.sum() + model.penalty.value(c)
        theirs = float(np.asarray(problem.objective.args[0].tree_copy(constants).value).reshape(()))
        gaps.append((-theirs if maximize else theirs) - mine)
        if not found.up_to_constant:
            assert gaps[-1] == pytest.approx(0, abs=1e-9 * max(1, abs(mine)))
    assert gaps[0] == pytest.approx(gaps[1], abs=1e-9 * max(1, abs(mine)))  # what no solution depends on
    assert model.count == N and found.size == c.size == model.row.size
    return found


# ------------------------------------------------------------------------------------ spellings
@pytest.mark.parametrize("name", SPELLINGS)
def test_spelling(name: str) -> None:
    loss, parameter, write = SPELLINGS[name]
    m = Leaves()
    found = compare(minimise(write(m)), m, 1, signs=loss in ("logistic", "hinge", "squared_hinge"))
    assert found.loss.name == loss
    assert found.loss.parameter == pytest.approx(parameter, nan_ok=True)
    if not found.penalty_expression:
        assert found.penalty.absent
    assert found.weights is None or found.weights.mean() == pytest.approx(1)


@pytest.mark.parametrize("name", ["sum_squares", "norm1", "logistic", "binary", "hinge", "quantile by parts"])
def test_maximising_the_negative_is_the_same(name: str) -> None:
    m = Leaves()
    problem = cp.Problem(cp.Maximize(-SPELLINGS[name][2](m) / 2 - 0.1 * cp.norm1(m.w)), [m.w <= 1])
    found = compare(problem, m, 2)
    assert found.loss.name == SPELLINGS[name][0]
    assert found.penalty.l1.tolist()[:3] == pytest.approx([0.1] * 3)


@pytest.mark.parametrize(
    ("write", "coefficients", "constant"),
    [
        (lambda m: cp.sum_squares(m.r), 4, [False] * 3 + [True]),
        (lambda m: cp.sum_squares(m.b + m.X @ m.w - m.y), 4, [False] * 3 + [True]),
        (lambda m: cp.sum_squares(m.X @ m.w + m.Z @ m.v + m.b - m.y), 6, [False] * 5 + [True]),
        (lambda m: cp.sum_squares(PUBLIC @ m.v + m.X @ m.w - m.y), 5, [False] * 5),
        (lambda m: cp.sum_squares(np.ones((N, 2)) @ m.v + m.X @ m.w - m.y), 5, [False] * 3 + [True] * 2),
        (lambda m: cp.sum_squares(m.x * m.s + m.b - m.y), 2, [False, True]),
    ],
)
def test_private_columns_come_first_and_intercepts_last(write: Any, coefficients: int, constant: list[bool]) -> None:
    found = recognise(minimise(write(Leaves())))
    assert found is not None
    assert found.size == coefficients
    assert found.constant.tolist() == constant
    assert [start for _, start in found.blocks] == sorted(start for _, start in found.blocks)


def test_plain_variables_stay_plain() -> None:
    m = Leaves()
    found = recognise(minimise(cp.sum_squares(m.X @ m.w - m.y)))
    assert found is not None and found.coefficients is m.w


def test_scales_and_weights() -> None:
    m = Leaves()
    mean = recognise(minimise(cp.sum_squares(m.r) / N))
    weighted = recognise(minimise(3 * ROOTS @ cp.abs(m.r)))
    assert mean is not None and mean.scale == pytest.approx(1 / N) and mean.weights is None
    assert weighted is not None and weighted.weights is not None
    np.testing.assert_allclose(weighted.scale * weighted.weights, 3 * ROOTS)


def test_labels_are_the_users_parameters() -> None:
    m = Leaves()
    label = recognise(minimise(cp.sum_squares(m.r))).label  # type: ignore[union-attr]
    assert label.parameter is m.y and label.plain  # type: ignore[union-attr]
    assert recognise(minimise(cp.sum(cp.pos(1 - m.X @ m.w)))).label is None  # type: ignore[union-attr]
    public = recognise(minimise(cp.norm1(m.X @ m.w - SHIFT)))
    assert public is not None
    np.testing.assert_allclose(public.label, SHIFT)
    assert public.private == (m.X,)
    labels = recognise(minimise(cp.sum_squares(PUBLIC @ m.v - m.y)))
    assert labels is not None and labels.private == (m.y,)


def test_one_record_and_attributes_of_variables() -> None:
    X = Private(shape=(1, 3), name="X", unit="row", max_l2=1)
    found = recognise(minimise(cp.sum(cp.pos(1 - X @ cp.Variable(3)))))
    assert found is not None and found.count == 1
    m = Leaves()
    for attributes in ({"nonneg": True}, {"bounds": [-1, 1]}, {"nonpos": True}):
        w = cp.Variable(3, **attributes)
        found = recognise(minimise(cp.sum_squares(m.X @ w - m.y), cp.sum(w) <= 1))
        assert found is not None and found.coefficients is w
    diagonal = cp.Variable((3, 3), diag=True)
    assert recognise(minimise(cp.sum_squares(m.X @ cp.diag(diagonal) - m.y))) is not None
    symmetric = cp.Variable((3, 3), PSD=True)
    assert recognise(minimise(cp.sum_squares(m.X @ symmetric[:, 0] - m.y) + cp.trace(symmetric))) is not None


# ------------------------------------------------------------------------------------ penalties
W = np.array([0.5, 2.0, 0.0])
PENALTIES: dict[str, tuple[Any, str]] = {
    "ridge": (lambda m: 0.5 * cp.sum_squares(m.w), "ridge"),
    "ridge as a norm": (lambda m: m.tau * cp.norm(m.w, 2) ** 2, "ridge"),
    "ridge of entries": (lambda m: cp.sum(cp.multiply(W, cp.square(m.w))), "ridge"),
    "ridge around a point": (lambda m: cp.sum_squares(m.w - W), "ridge linear"),
    "scaled ridge": (lambda m: cp.sum_squares(cp.multiply(W, m.w) / 3), "ridge"),
    "ridge by a form": (lambda m: cp.quad_form(m.w, np.diag(W)), "ridge"),
    "ridge with the intercept": (lambda m: cp.sum_squares(cp.hstack([m.w, m.b])), "ridge"),
    "square of one": (lambda m: m.w[1] ** 2 + 2 * cp.square(m.b), "ridge"),
    "l1": (lambda m: m.tau * cp.norm1(m.w), "l1"),
    "weighted l1": (lambda m: W @ cp.abs(m.w), "l1"),
    "l1 by multiply": (lambda m: cp.norm1(cp.multiply(W, m.w)), "l1"),
    "l1 of slices": (lambda m: cp.norm1(m.w[:2]) + 2 * cp.abs(m.w[2]), "l1"),
    "elastic net": (lambda m: 0.1 * (0.5 * cp.norm1(m.w) + 0.25 * cp.sum_squares(m.w)), "ridge l1"),
    "linear": (lambda m: np.array([1.0, -2, 3]) @ m.w - m.b + 4, "linear"),
    "a number": (lambda m: cp.Constant(3) + m.tau, ""),
    "group lasso": (lambda m: cp.norm(m.w[:2], 2) + 0.3 * cp.sum_squares(m.w), "ridge other"),
    "largest": (lambda m: cp.norm_inf(m.w), "other"),
    "fused": (lambda m: cp.tv(m.w) + cp.norm1(m.w), "l1 other"),
    "form": (lambda m: cp.quad_form(m.w, np.array([[2.0, 1, 0], [1, 2, 0], [0, 0, 1]])), "other"),
    "entropy": (lambda m: -cp.sum(cp.entr(m.w)), "other"),
    "barrier": (lambda m: -cp.sum(cp.log(m.w)), "other"),
}


@pytest.mark.parametrize("name", PENALTIES)
def test_penalty(name: str) -> None:
    m = Leaves()
    write, parts = PENALTIES[name]
    found = compare(minimise(cp.sum_squares(m.r) / N + write(m)), m, 3)
    penalty = found.penalty
    present = {
        "ridge": penalty.ridge.any(),
        "l1": penalty.l1.any(),
        "linear": penalty.linear.any(),
        "other": penalty.other is not None,
    }
    assert " ".join(key for key in present if present[key]) == parts
    assert found.penalty_expression is not None
    rng = np.random.default_rng(5)
    for _ in range(3):  # a subgradient is below the penalty
        w, u = np.abs(rng.normal(size=4)), np.abs(rng.normal(size=4))
        assert penalty.value(u) >= penalty.value(w) + penalty.subgradient(w) @ (u - w) - 1e-8


@pytest.mark.parametrize("name", PENALTIES)
def test_penalty_beside_scaled_coefficients(name: str) -> None:
    m = Leaves()
    z = m.X @ cp.multiply([0.5, 2.0, 4.0], m.w) + m.b
    found = compare(minimise(cp.norm1(z - m.y) + PENALTIES[name][0](m)), m, 4)
    assert (found.penalty.other is not None) == ("other" in PENALTIES[name][1])
    if found.penalty.other is not None:
        w, u = np.array([0.5, 0.25, 1, 2]), np.array([0.25, 1, 0.5, 1])
        value, slope = found.penalty.value, found.penalty.subgradient(w)
        assert value(u) >= value(w) + slope @ (u - w) - 1e-8


def test_penalties_of_auxiliary_variables_are_the_least_that_the_constraints_allow() -> None:
    m = Leaves()
    t = cp.Variable()
    found = recognise(minimise(cp.sum_squares(m.X @ m.w - m.y) + 2 * t, cp.norm1(m.w) <= t))
    assert found is not None and found.penalty.other is not None
    w = np.array([0.5, -1.0, 0.25])
    assert found.penalty.value(w) == pytest.approx(3.5, rel=1e-6)
    np.testing.assert_allclose(found.penalty.subgradient(w), [2, -2, 2], atol=1e-5)
    u, v = cp.Variable(3, nonneg=True), cp.Variable(3, nonneg=True)
    found = recognise(minimise(cp.norm1(m.X @ (u - v) - m.y) + cp.sum(u + v)))
    assert found is not None
    assert found.penalty.value(w) == pytest.approx(1.75, rel=1e-6)


# ------------------------------------------------------------------------------------ refusals
TRAPS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "margins of each record": (lambda m: cp.sum(cp.pos(SHIFT + 2 - m.margin)), ("maximum", "margin", "cp.pos(1 -")),
    "margin of 0": (lambda m: cp.sum(cp.pos(-m.margin)), ("not positive", "cp.pos(1 -")),
    "margin below 0": (lambda m: cp.sum(cp.pos(-1 - m.margin)), ("not positive",)),
    "two margins": (lambda m: cp.sum(cp.pos(1 - m.margin) + cp.pos(2 - m.margin)), ("differs from the others",)),
    "two multiples": (
        lambda m: cp.sum_squares(m.X @ m.w - m.y) + cp.sum_squares(m.X @ m.w - 2 * m.y),
        ("difference", "same public multiple"),
    ),
    "other multiples": (lambda m: cp.sum(cp.pos(m.X @ m.w - m.y) + cp.neg(m.X @ m.w - 2 * m.y)), ("difference",)),
    "label of squares alone": (lambda m: cp.sum_squares(m.X @ m.w) - 2 * m.y @ (m.Z @ m.v), ("another prediction",)),
    "square of the label": (
        lambda m: cp.sum_squares(m.X @ m.w) - 2 * m.y @ (m.X @ m.w) + cp.sum_squares(m.y),
        ("no solution depends",),
    ),
    "label times a square": (lambda m: cp.sum_squares(m.X @ m.w) + m.y @ cp.square(m.X @ m.w), ("label multiplies",)),
    "shifted recoded": (lambda m: cp.sum(cp.logistic(1 - cp.multiply(2 * m.t - 1, m.z))), ("nothing is added",)),
    "recoded beside": (
        lambda m: cp.sum(cp.logistic(cp.multiply(1 - 2 * m.t, m.X @ m.w) + m.b)),
        ("another prediction",),
    ),
    "two codes": (
        lambda m: cp.sum(cp.logistic(-cp.multiply(2 * m.t - 1, m.z)) + cp.logistic(-cp.multiply(m.t, m.z))),
        ("unlike the others",),
    ),
    "recoded without a range": (
        lambda m: cp.sum(
            cp.logistic(-cp.multiply(2 * Private(shape=N, name="q", unit="entry", records=m.people) - 1, m.X @ m.w))
        ),
        ("does not say", "bounds=[0, 1]"),
    ),
    "two losses, stacked": (lambda m: cp.sum(cp.hstack([cp.square(m.r), cp.abs(m.r)])), ("one loss for all",)),
    "three kinks, stacked": (
        lambda m: cp.sum(cp.max(cp.vstack([m.r - 0.1, -m.r - 0.1, np.zeros(N)]), axis=0)),
        ("shifted",),
    ),
    "largest over records": (lambda m: cp.sum(cp.max(cp.vstack([m.r, -m.r]), axis=1)), ("(2,)",)),
    "squared one-sided": (lambda m: cp.sum_squares(cp.pos(m.r)), ("no margin",)),
    "column times label": (
        lambda m: cp.sum_squares(cp.multiply(m.X[:, 0], m.y) * m.s - m.y),
        ("multiplies the prediction",),
    ),
    "column times column": (
        lambda m: cp.sum_squares(cp.multiply(m.X[:, 0], m.X[:, 1]) * m.s - m.y),
        ("neither the label",),
    ),
    "column squared": (lambda m: cp.sum_squares(cp.multiply(m.X[:, 0], m.X[:, 0]) * m.s - m.y), ("by itself",)),
    "some rows of some columns": (lambda m: cp.sum_squares(m.X[1:, :2] @ m.v - m.y[1:]), ("(6,)",)),
    "rows turned and columns picked": (lambda m: cp.sum_squares(m.X[::-1, :2] @ m.v - m.y), ("X[6",)),
    "rows weighted unlike": (
        lambda m: cp.sum_squares((cp.diag(ROOTS) @ m.X) @ m.w + m.Z @ m.v - m.y),
        ("weighted unlike",),
    ),
    "mixed before the columns": (lambda m: cp.sum_squares((np.tri(N) @ m.X) @ m.w - m.y), ("features are",)),
    "shifted logistic": (lambda m: cp.sum(cp.logistic(1 - m.margin)), ("logistic", "nothing is added")),
    "private threshold": (lambda m: cp.sum(cp.huber(m.r, m.t[0])), ("t stands where", "public number")),
    "public exponent": (lambda m: cp.sum(cp.power(m.r, cp.Parameter(value=2))), ("none of the losses",)),
    "label among the features": (lambda m: cp.sum_squares(m.X @ m.w + m.y * m.b - m.y), ("another prediction",)),
    "label sum apart": (lambda m: cp.sum(cp.pos(1 - m.margin)) + cp.sum(m.y) * m.b, ("no loss of single records",)),
    "label squared": (lambda m: cp.sum(cp.pos(1 - cp.multiply(cp.multiply(m.y, m.y), m.z))), ("multiplied by itself",)),
    "rows split": (lambda m: cp.sum_squares(m.X[:3] @ m.w - m.y[:3]), ("(3,)",)),
    "other rows": (lambda m: cp.sum_squares(m.X @ m.w - m.y) + cp.sum_squares(m.X[::-1] @ m.w - m.y), ("X[6",)),
    "two slopes": (lambda m: cp.sum(cp.abs(m.X @ m.w - m.y)) + cp.norm1(m.X @ m.w * 2 - m.y), ("difference",)),
    "two predictions": (
        lambda m: cp.sum_squares(m.X @ m.w - m.y) + cp.sum_squares(m.X @ cp.Variable(3) - m.y),
        ("another prediction",),
    ),
    "other features": (
        lambda m: cp.sum_squares(m.X @ m.w - m.y) + cp.sum_squares(m.Z @ m.v - m.y),
        ("another prediction", "one prediction"),
    ),
    "two losses": (lambda m: cp.sum_squares(m.r) + cp.norm1(m.r), ("norm1", "one loss for all")),
    "linear beside": (lambda m: cp.sum_squares(m.r) + cp.sum(m.X @ m.w), ("another prediction",)),
    "private penalty weight": (lambda m: cp.sum_squares(m.r) + m.t[0] * cp.norm1(m.w), ("t[0] * norm1(w)",)),
    "private constant": (lambda m: cp.sum_squares(m.r) + cp.sum(m.y), ("no solution depends",)),
    "negative weights": (lambda m: cp.sum(cp.multiply(SHIFT, cp.square(m.r))), ("negative weight",)),
    "insensitive": (lambda m: cp.sum(cp.pos(cp.abs(m.r) - 0.1)), ("abs", "affine")),
    "two kinks": (lambda m: cp.sum(cp.maximum(m.r - 0.1, -m.r - 0.1, 0)), ("maximum", "shifted")),
    "exponential": (lambda m: cp.sum(cp.exp(m.X @ m.w)), ("exp(X @ w)", "cp.logistic")),
    "cube": (lambda m: cp.sum(cp.power(cp.abs(m.r), 3)), ("Power",)),
    "many outputs with one intercept": (
        lambda m: cp.sum_squares(m.X @ cp.Variable((3, 2)) + m.b - m.Z),
        (
            "shape (7, 2)",
            "several outputs",
            "a column (or one entry) for each output",
            "one problem for each output",
            "Y[:, 0]",
        ),
    ),
    "many outputs, one by one": (
        lambda m: sum(cp.sum_squares(m.X @ cp.Variable(3) - m.Z[:, j]) for j in range(2)),
        ("Z[:, 0] and Z[:, 1]", "one private label", "X @ W[:, 0] - Y[:, 0]"),
    ),
    "cross entropy without a range": (
        lambda m: cp.sum(
            cp.logistic(m.z) - cp.multiply((Private(shape=N, name="q", unit="entry", records=m.people) + 1) / 2, m.z)
        ),
        ("beside cp.logistic",),
    ),
    "broadcast": (lambda m: cp.sum_squares(m.X @ m.W - m.y), ("(7, 7)",)),
    "two labels": (lambda m: cp.sum_squares(m.r - m.t), ("y and t",)),
    "gradient at 0": (lambda m: cp.sum(cp.logistic(m.X @ m.w)) - (m.X.T @ m.t) @ m.w, ("y @ (X @ w)",)),
    "half binary": (lambda m: cp.sum(cp.logistic(m.z) - 0.5 * cp.multiply(m.t, m.z)), ("beside cp.logistic",)),
    "half signs": (lambda m: cp.sum(cp.logistic(m.z) - cp.multiply(m.y / 2, m.z)), ("beside cp.logistic",)),
    "squared margin": (lambda m: cp.sum_squares(1 - m.margin), ("multiplies the prediction",)),
    "mixing": (lambda m: cp.sum_squares(np.tri(N) @ (m.X @ m.w - m.y)), ("mixes the records",)),
    "private weights": (lambda m: cp.sum(cp.multiply(m.t, cp.square(m.X @ m.w - 1))), ("public weights",)),
    "variance": (lambda m: cp.var(m.r), ("Sum(",)),
    "softmax": (lambda m: cp.sum(cp.log_sum_exp(cp.vstack([np.zeros(N), m.z]), axis=0)), ("log_sum_exp",)),
    "concave penalty": (lambda m: cp.sum_squares(m.r) + cp.sum(cp.sqrt(m.v)), ("not convex", "cp.norm1")),
    "convex with minus": (lambda m: cp.sum_squares(m.r) - cp.norm1(m.w), ("not convex",)),
    "columns scaled by a matrix": (lambda m: cp.sum_squares(cp.multiply(m.X, PUBLIC[:, [0, 1, 0]]) @ m.w), ("X @ cp",)),
    "weights of some features": (
        lambda m: cp.sum_squares(m.X @ m.w + cp.multiply(ROOTS, m.Z @ m.v) - m.y),
        ("weighted unlike",),
    ),
    "huber weights inside": (lambda m: cp.sum(cp.huber(cp.multiply(ROOTS, m.r))), ("different thresholds",)),
    "huber without threshold": (lambda m: cp.sum(cp.huber(m.r, 0)), ("positive threshold",)),
    "label between": (lambda m: cp.sum_squares(m.X @ m.w) + cp.sum_squares(m.X @ m.w - m.y), ("difference",)),
    "a loop of pairs": (
        lambda m: sum(cp.pos(1 - (m.X[i] - m.X[i + 1]) @ m.w) for i in range(N - 1)),
        ("one by one", "one expression for all"),
    ),
    "a loop with another's label": (
        lambda m: sum(cp.abs(m.X[i] @ m.w - m.y[N - 1 - i]) for i in range(N)),
        ("one by one", "of one record in each term"),
    ),
    "a loop of products": (
        lambda m: sum(cp.abs(m.X[i] @ cp.multiply(m.D[i, :3], m.w)) for i in range(N)),
        ("one by one",),
    ),
    "a loop of labels times rows": (
        lambda m: sum(cp.logistic(-(m.y[i] * m.X[i]) @ m.w) for i in range(N)),
        ("one by one",),
    ),
    "a loop of two predictions": (
        lambda m: sum(cp.square(m.X[i] @ m.w + m.v[i % 2] - m.y[i]) for i in range(N)),
        ("another prediction",),
    ),
    "a loop of two losses": (
        lambda m: sum((cp.square if i % 2 else cp.abs)(m.X[i] @ m.w - m.y[i]) for i in range(N)),
        ("one loss for all",),
    ),
    "a loop and a whole": (
        lambda m: cp.sum_squares(m.X @ m.w - m.y) + sum(cp.square(m.X[i] @ m.w - 2 * m.y[i]) for i in range(3)),
        ("difference",),
    ),
    "scalar parameter": (
        lambda m: cp.sum_squares(m.X @ m.w - Private(shape=(), name="level", linf=1, records=m.people)),
        ("all records share",),
    ),
}


@pytest.mark.parametrize("name", TRAPS)
def test_refused(name: str) -> None:
    write, words = TRAPS[name]
    with pytest.raises(UnsupportedModelError) as caught:
        recognise(minimise(write(Leaves())))
    for word in words:
        assert word in str(caught.value), str(caught.value)
    assert caught.value.what.startswith("the objective: ")
    assert caught.value.why and caught.value.remedy


def test_private_constraints_and_bounds_are_refused() -> None:
    m = Leaves()
    radius = Private(shape=(), name="radius", linf=1)
    with pytest.raises(UnsupportedModelError, match="ball: radius is private"):
        recognise(minimise(cp.sum_squares(m.r), (cp.norm1(m.w) <= radius).set_label("ball")))
    with pytest.raises(UnsupportedModelError, match="ring: not convex"):
        recognise(minimise(cp.sum_squares(m.r), (cp.norm2(m.w) >= 1).set_label("ring")))
    w = cp.Variable(3, name="u", bounds=[0, m.t[:3]])
    with pytest.raises(UnsupportedModelError, match="bounds variable u"):
        recognise(minimise(cp.sum_squares(m.X @ w - m.y)))
    with pytest.raises(UnsupportedModelError, match="integer"):
        recognise(minimise(cp.sum_squares(m.X @ cp.Variable(3, integer=True) - m.y)))


@pytest.mark.parametrize("shape", [(1, 20), (10, 2)])
def test_a_record_that_owns_several_labels_is_refused(shape: tuple[int, int]) -> None:
    """Taken for one label per record after reshaping, (1, 20) would get noise too small by a factor of 20."""
    people = Records("people")
    X = Private(shape=(20, 2), unit="row", bounds=[-1, 1], records=people, name="X")
    y = Private(shape=shape, unit="row", bounds=[-1, 1], records=people, name="y")
    w = cp.Variable(2)
    with pytest.raises(UnsupportedModelError, match="shape"):
        recognise(minimise(cp.sum_squares(X @ w - cp.vec(y, order="F")) / 20, cp.norm1(w) <= 1))


def test_a_feature_that_is_one_row_is_refused() -> None:
    m = Leaves()
    f = Private(shape=(1, N), unit="row", bounds=[-1, 1], records=m.people, name="f")
    with pytest.raises(UnsupportedModelError, match="shape"):
        recognise(minimise(cp.sum_squares(m.X @ m.w + cp.multiply(cp.vec(f, order="F"), cp.Variable()) - m.y)))


def test_one_record_and_a_scalar_label_is_refused_in_words() -> None:
    X = Private(shape=(1, 3), unit="row", bounds=[-1, 1], name="X")
    y = Private(shape=(), unit="entry", bounds=[-1, 1], name="y")
    w = cp.Variable(3)
    with pytest.raises(DPModelError, match="shape"):
        recognise(minimise(cp.sum_squares(X @ w - y), cp.norm1(w) <= 1))


def test_two_parameters_of_one_id_are_refused() -> None:
    m = Leaves()
    other = Private(shape=(N, 2), name="other", unit="row", max_l2=1)
    other.id = m.X.id
    with pytest.raises(UnsupportedModelError, match="same CVXPY id"):
        recognise(minimise(cp.sum_squares(m.X @ m.w + other @ m.v - m.y)))


def test_public_numbers_are_read_and_must_be_there() -> None:
    m = Leaves()
    lam = cp.Parameter(nonneg=True, name="lam")
    problem = minimise(cp.sum(cp.huber(m.r, m.tau)) + lam * cp.norm1(m.w))
    with pytest.raises(MissingValueError, match="lam has no value"):
        recognise(problem)
    lam.value = 2.0
    assert recognise(problem).penalty.l1.max() == 2  # type: ignore[union-attr]
    lam.value, m.tau.value = 3.0, 0.125
    found = recognise(problem)
    assert found is not None and found.penalty.l1.max() == 3 and found.loss.parameter == 0.125
    m.tau.value = None
    with pytest.raises(MissingValueError, match="tau has no value"):
        recognise(problem)
    with pytest.raises(SpecificationError, match="NaN or infinite"):
        recognise(minimise(np.full(N, np.inf) @ cp.abs(m.r)))


# ------------------------------------------------------------------------------------ candidates
def test_which_of_the_models_are_regressions() -> None:
    """Models of changes, of aggregates and of largest residuals keep to the standard form."""
    found = set()
    for model in MODELS:
        problem, _ = model.private()
        for parameter in problem.parameters():
            if not isinstance(parameter, Private):
                parameter.value = np.ones(parameter.shape)
        if recognise(problem) is not None:
            found.add(model.name)
    assert found == {"least_squares", "least_squares_private_rows", "logistic"}


def _moved(m: Leaves) -> Private:
    return Private(shape=(N, 3), name="A", unit="row", linf=1)


NO_CANDIDATES: dict[str, Any] = {
    "linear loss": lambda m: minimise(cp.sum(m.X @ m.w) / N, cp.norm1(m.w) <= 1),
    "labelled linear loss": lambda m: minimise(-m.y @ (m.X @ m.w), cp.norm1(m.w) <= 1),
    "linear beside a public norm": lambda m: minimise(cp.sum(m.X @ m.w) + cp.sum_squares(m.w)),
    "constraints": lambda m: minimise(cp.sum_squares(m.w), m.X @ m.w <= 1),
    "bounded changes": lambda m: minimise(cp.norm1(_moved(m) @ m.w - 1)),
    "bounded change of labels": lambda m: minimise(cp.norm1(PUBLIC @ m.v - Private(shape=N, unit="entry", linf=1))),
    "aggregate": lambda m: minimise(cp.sum_squares(Private(shape=(N, 3), linf=1) @ m.w)),
    "columns": lambda m: minimise(cp.sum_squares(Private(shape=(N, 3), unit="column", max_linf=1) @ m.w)),
    "largest residual": lambda m: minimise(cp.norm_inf(m.r)),
    "norm": lambda m: minimise(cp.norm(m.r)),
    "denoising": lambda m: minimise(cp.sum_squares(cp.Variable(N) - m.y)),
    "total of the records": lambda m: minimise(cp.square(cp.sum(m.X @ m.w) - 3)),
    "a loop and a record of another table": lambda m: minimise(
        sum(cp.square(m.X[i] @ m.w - m.y[i]) for i in range(N))
        + cp.square(Private(shape=(N + 2, 2), name="more", unit="row", max_l2=1, records=m.people)[N + 1] @ m.v)
    ),
    "a loop over part of another table": lambda m: minimise(
        sum(
            cp.square(row @ m.w - m.y[i])
            for i, row in enumerate(Private(shape=(N + 2, P), name="more", unit="row", max_l2=1, records=m.people))
            if i < N
        )
    ),
    "one row": lambda m: minimise(cp.square(m.X[0] @ m.w - cp.sum(m.y))),
    "nothing private": lambda m: minimise(cp.sum_squares(m.w)),
}


@pytest.mark.parametrize("name", NO_CANDIDATES)
def test_no_candidate(name: str) -> None:
    assert recognise(NO_CANDIDATES[name](Leaves())) is None


# ------------------------------------------------------------------------------------ the certificate
def test_a_wrong_claim_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = module.match
    for change in ({"weight": lambda w: w * (1 + 1e-6)}, {"factor": lambda f: -f}, {"offset": lambda _: SHIFT}):
        [(name, alter)] = change.items()

        def broken(*given: Any, name: str = name, alter: Any = alter) -> Any:
            out = honest(*given)
            return replace(out, **{name: alter(getattr(out, name))})

        monkeypatch.setattr(module, "match", broken)
        m = Leaves()
        # A heavy penalty must not hide the difference, nor a constant that was left out.
        for loss in (cp.sum_squares(m.r), cp.sum_squares(m.z) - 2 * m.y @ m.z):
            with pytest.raises(UnsupportedModelError, match="other values"):
                recognise(minimise(loss + 1e4 * cp.sum_squares(m.w)))


@pytest.mark.parametrize("wrong", [lambda e: e + 0.01, lambda e: 1.001 * e])
def test_a_loop_misread_is_caught(monkeypatch: pytest.MonkeyPatch, wrong: Any) -> None:
    honest = regression_loops._lifted
    m = Leaves()
    loop = sum(cp.square(m.X[i] @ m.w - m.y[i]) for i in range(N))
    assert recognise(minimise(loop)) is not None

    def broken(node: Any, *rest: Any) -> Any:
        out = honest(node, *rest)
        return wrong(out) if node.is_affine() and node.variables() else out

    monkeypatch.setattr(regression_loops, "_lifted", broken)
    with pytest.raises(UnsupportedModelError):
        recognise(minimise(loop))


@pytest.mark.parametrize("matrix", [np.diag(np.arange(1.0, N + 1)), np.tri(N)])
def test_loops_over_as_many_records_as_features(matrix: np.ndarray) -> None:
    """What acts on a row's entries is not taken for what acts on the records, which no certificate sees beside a
    penalty of any size."""
    m = Leaves()
    S = Private(shape=(N, N), name="S", unit="row", max_l2=1, records=m.people)
    w = cp.Variable(N)
    for penalty in (0, 1e16 * cp.sum_squares(w)):
        found = recognise(minimise(sum(cp.square((matrix @ S[i]) @ w - m.y[i]) for i in range(N)) + penalty))
        assert found is not None and found.weights is None
        [(features, _)] = found.blocks
        np.testing.assert_allclose(features.rows(np.eye(N)), matrix.T)
        with pytest.raises(UnsupportedModelError, match="one by one"):
            recognise(minimise(sum(cp.logistic(-(m.y[i] * S[i]) @ w) for i in range(N)) + penalty))


def test_private_values_and_the_users_variables_are_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    m = Leaves()
    fill(m, np.random.default_rng(0), signs=True)
    m.w.value, m.b.value = np.ones(3), None

    def forbidden(*_: Any) -> None:
        raise AssertionError("a private value was read")

    monkeypatch.setattr(vault, "unseal", forbidden)
    for write in (lambda m: cp.sum_squares(m.r) + cp.norm_inf(m.w), lambda m: cp.sum(cp.logistic(-m.margin))):
        found = recognise(minimise(write(m), m.w <= 3))
        assert found is not None
        private_regression(found)
    np.testing.assert_array_equal(m.w.value, np.ones(3))
    assert m.b.value is None and m.v.value is None


def test_large_models_are_recognised_without_dense_copies() -> None:
    people = Records("people")
    X = Private(shape=(100_000, 1_000), name="X", unit="row", bounds=[-1, 1], records=people)
    y = Private(shape=100_000, name="y", unit="entry", bounds=[-1, 1], records=people)
    w = cp.Variable(1_000)
    before = time.process_time()
    found = recognise(minimise(cp.sum(cp.logistic(-cp.multiply(y, X @ w))) / 1e5 + cp.norm1(w), cp.norm1(w) <= 1))
    assert found is not None and found.penalty.l1.all()
    assert time.process_time() - before < 5


# ------------------------------------------------------------------------------------ random compositions
@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.data())
def test_random_compositions(data: st.DataObject) -> None:
    composition(data)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_more_random_compositions(data: st.DataObject) -> None:
    composition(data)


def composition(data: st.DataObject) -> None:
    """Blocks, intercepts, offsets, weights, scales and penalties, put together at random."""
    m = Leaves()
    pick = lambda *options: data.draw(st.sampled_from(options))  # noqa: E731
    z: Any = pick(
        lambda: m.X @ m.w,
        lambda: m.w @ m.X.T,
        lambda: m.X @ (2 * m.w),
        lambda: (m.X / 2) @ m.w,
        lambda: m.X[:, 1:] @ m.v,
        lambda: m.X @ cp.diag(SCALES) @ m.w,
        lambda: (m.X @ MIX) @ m.v,
        lambda: m.XT.T @ m.w,
    )()
    for extra in (lambda: m.Z @ m.v, lambda: PUBLIC @ m.v, lambda: m.x * m.s, lambda: m.b, lambda: SHIFT):
        if data.draw(st.booleans()):
            z = z + extra()
    kind = pick("squared", "absolute", "huber", "quantile", "logistic", "binary_logistic", "hinge", "squared_hinge")
    label = pick(m.y, m.y, 2 * m.y, m.y / 3)
    r = pick(lambda: z - label, lambda: label - z)()
    tau = data.draw(st.floats(0.1, 0.9))
    turned = pick(lambda: cp.multiply(m.y, z), lambda: -cp.multiply(-m.y, z), lambda: cp.multiply(2 * m.t - 1, z))()
    losses = {
        "squared": lambda: pick(cp.square(r), (r / 3) ** 2),
        "absolute": lambda: pick(cp.abs(r), cp.maximum(r, -r), cp.pos(r) + cp.neg(r)),
        "huber": lambda: cp.huber(r, tau),
        "quantile": lambda: pick(
            cp.maximum(tau * r, (tau - 1) * r),
            tau * cp.pos(r) + (1 - tau) * cp.neg(r),
            0.5 * cp.abs(r) + (tau - 0.5) * r,
        ),
        "logistic": lambda: cp.logistic(-turned),
        "binary_logistic": lambda: pick(
            cp.logistic(z) - cp.multiply(m.t, z), cp.logistic(-z) + cp.multiply(1 - m.t, z)
        ),
        "hinge": lambda: pick(cp.pos(1 - turned), cp.neg(turned - 1), cp.pos(tau - turned)),
        "squared_hinge": lambda: cp.square(cp.pos(1 - turned)),
    }[kind]()
    objective = pick(cp.sum(losses), cp.mean(losses), ROOTS @ losses, cp.sum(cp.multiply(ROOTS, losses)) / 5)
    objective = pick(1, 0.25) * objective
    u = m.w if any(v is m.w for v in z.variables()) else m.v
    for penalty in (lambda: 0.5 * cp.norm1(u), lambda: cp.sum_squares(u) / 3, lambda: cp.norm(u)):
        if data.draw(st.booleans()):
            objective = objective + penalty()
    problem = pick(minimise(objective), cp.Problem(cp.Maximize(-objective)))
    found = compare(problem, m, 7, signs=kind in ("logistic", "hinge", "squared_hinge"))
    expected = "absolute" if kind == "quantile" and abs(tau - 0.5) < 1e-9 else kind
    assert found.loss.name == expected


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.data())
def test_what_is_recognised_is_right_and_the_rest_is_refused(data: st.DataObject) -> None:
    right_or_refused(data)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_more_of_what_is_recognised_is_right_and_the_rest_is_refused(data: st.DataObject) -> None:
    right_or_refused(data)


def right_or_refused(data: st.DataObject) -> None:
    """Random sums of random atoms of random affine parts: few are losses, none may be taken for what it is not."""
    m = Leaves()
    number = st.sampled_from([0, 0, 1, -1, 2, 0.5])

    pick = lambda *options: data.draw(st.sampled_from(options))  # noqa: E731
    z = pick(m.z, m.z, m.X[:, :2] @ m.v + m.b, (m.X @ MIX) @ m.v, m.XT.T @ m.w + m.b)
    labels = [m.y, pick(m.y, m.y / 2, 1 - 2 * m.y), pick(m.t, 2 * m.t - 1) if data.draw(st.booleans()) else m.y]

    def affine() -> Any:
        a, b, c, d = (data.draw(number) for _ in range(4))
        y = pick(*labels)
        return a * z + b * cp.multiply(y, z) + c * y + d * np.ones(N)

    def atom() -> Any:
        name = data.draw(st.sampled_from(["abs", "pos", "square", "logistic", "maximum", "huber", "affine", "hinge2"]))
        u = affine()
        return {
            "abs": lambda: cp.abs(u),
            "pos": lambda: cp.pos(u),
            "square": lambda: cp.square(u),
            "logistic": lambda: cp.logistic(u),
            "maximum": lambda: cp.maximum(u, affine()),
            "huber": lambda: cp.huber(u, 0.5),
            "affine": lambda: u,
            "hinge2": lambda: cp.square(cp.pos(u)),
        }[name]()

    def summed(entries: Any) -> Any:
        write = pick(cp.sum, cp.sum, lambda e: cp.sum(cp.diag(ROOTS) @ e), lambda e: cp.sum(cp.hstack([e, m.w])))
        return write(entries)

    objective = summed(atom())
    for _ in range(data.draw(st.integers(0, 2))):
        objective = objective + data.draw(st.sampled_from([1, 2, -1, 0.5])) * summed(atom())
    problem = minimise(objective)
    try:
        found = recognise(problem)
    except UnsupportedModelError as error:
        assert error.why and error.remedy
        return
    if found is None:
        return
    compare(problem, m, 9)
