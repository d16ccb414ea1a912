"""Recognising regressions: every spelling against CVXPY's own numbers, penalties, and claims that are caught."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from regression_spellings import MIX, PUBLIC, ROOTS, SCALES, SHIFT, SPELLINGS, Leaves, N

from dpmodel.errors import UnsupportedModelError
from dpmodel.marks import Private, vault
from dpmodel.regressions import read as module
from dpmodel.regressions.build import private_regression
from dpmodel.regressions.monomials import Monomials
from dpmodel.regressions.read import Recognised, recognise


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
        value, derivative = found.penalty.value, found.penalty.subgradient(w)
        assert value(u) >= value(w) + derivative @ (u - w) - 1e-8


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


# ------------------------------------------------------------------------------------ the certificate
def test_a_wrong_claim_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = module.match
    for sensitivity in ({"weight": lambda w: w * (1 + 1e-6)}, {"factor": lambda f: -f}, {"offset": lambda _: SHIFT}):
        [(name, alter)] = sensitivity.items()

        def broken(*given: Any, name: str = name, alter: Any = alter) -> Any:
            out = honest(*given)
            return replace(out, **{name: alter(getattr(out, name))})

        monkeypatch.setattr(module, "match", broken)
        m = Leaves()
        # A heavy penalty must not hide the difference, nor a constant that was left out.
        for loss in (cp.sum_squares(m.r), cp.sum_squares(m.z) - 2 * m.y @ m.z):
            with pytest.raises(UnsupportedModelError, match="other values"):
                recognise(minimise(loss + 1e4 * cp.sum_squares(m.w)))


@pytest.mark.parametrize("factor", [-1.0, 1 + 1e-6])
def test_a_product_misread_is_caught(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    honest = Monomials._product_of
    m = Leaves()
    loop = sum(cp.square(m.X[i] @ m.w - m.y[i]) for i in range(N))
    for loss in (loop, cp.norm1(m.r)):
        monkeypatch.setattr(Monomials, "_product_of", honest)
        assert recognise(minimise(loss)) is not None

        def broken(self: Any, *rest: Any) -> tuple[int, float]:
            first, ratio = honest(self, *rest)
            return first, factor * ratio

        monkeypatch.setattr(Monomials, "_product_of", broken)
        with pytest.raises(UnsupportedModelError, match="other values"):
            recognise(minimise(loss))


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
