"""Spellings of regressions: how a user may write each loss in CVXPY, and what it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cvxpy as cp
import numpy as np

from dpmodel.marks import Private, Records

N, P = 7, 3
ROOTS = np.sqrt(np.arange(1.0, N + 1))
SHIFT = np.linspace(-0.5, 0.5, N)
SIGNS = np.array([1.0, -1, -1, 1, 1, -1, 1])
MIX = np.array([[1.0, 0.5], [0, -2], [0.25, 1]])
SCALES = np.array([0.5, 2.0, -1.0])


@dataclass
class Leaves:
    """Fresh leaves of one model; labels of every kind share one declaration, within [-1, 1]."""

    people: Records = field(default_factory=lambda: Records("people"))

    def __post_init__(self) -> None:
        self.X = Private(shape=(N, P), name="X", unit="row", max_l2=1, records=self.people)
        self.Z = Private(shape=(N, 2), name="Z", unit="row", bounds=[-1, 2], records=self.people)
        self.x = Private(shape=N, name="x", unit="entry", bounds=[0, 3], records=self.people)
        self.y = Private(shape=N, name="y", unit="entry", bounds=[-1, 1], records=self.people)
        self.Y = Private(shape=(N, 1), name="Y", unit="row", bounds=[-1, 1], records=self.people)
        self.D = Private(shape=(N, 4), name="D", unit="row", bounds=[-1, 1], records=self.people)
        self.XT = Private(shape=(P, N), name="XT", unit="column", max_l2=1, records=self.people)
        self.t = Private(shape=N, name="t", unit="entry", bounds=[0, 1], nonneg=True, records=self.people)
        self.w = cp.Variable(P, name="w")
        self.v = cp.Variable(2, name="v")
        self.W = cp.Variable((P, 1), name="W")
        self.b = cp.Variable(name="b")
        self.s = cp.Variable(name="s")
        self.tau = cp.Parameter(name="tau", value=0.3, nonneg=True)
        self.weight = cp.Parameter(N, name="weight", value=np.arange(1.0, N + 1), nonneg=True)

    @property
    def r(self) -> Any:
        return self.X @ self.w + self.b - self.y

    @property
    def z(self) -> Any:
        return self.X @ self.w + self.b

    @property
    def margin(self) -> Any:
        return cp.multiply(self.y, self.X @ self.w + self.b)


Write = Callable[[Leaves], Any]
PUBLIC = np.arange(2.0 * N).reshape(N, 2) / N

# By loss: name -> objective to be minimised, or (parameter of the loss, objective).
_BY_LOSS: dict[str, dict[str, Any]] = {
    "squared": {
        "sum_squares": lambda m: cp.sum_squares(m.r),
        "no intercept": lambda m: cp.sum_squares(m.X @ m.w - m.y),
        "turned round": lambda m: cp.sum_squares(m.y - m.X @ m.w - m.b),
        "mean of squares": lambda m: cp.mean(cp.square(m.r)),
        "norm squared": lambda m: cp.norm(m.r, 2) ** 2 / N,
        "sum_squares of norm": lambda m: cp.sum_squares(cp.norm(m.r)),
        "power": lambda m: cp.sum(cp.power(m.r, 2)) / (2 * N),
        "quad_over_lin": lambda m: cp.quad_over_lin(m.r, N),
        "scaled inside": lambda m: cp.sum_squares(m.r / np.sqrt(N)),
        "half": lambda m: 0.5 * cp.sum_squares(2 * m.r),
        "weights inside": lambda m: cp.sum_squares(cp.multiply(ROOTS, m.r)),
        "weights outside": lambda m: cp.sum(cp.multiply(ROOTS, cp.square(m.r))),
        "weights @": lambda m: m.weight @ cp.square(m.r) / N,
        "@ weights": lambda m: cp.square(m.r) @ m.weight,
        "weights parameter": lambda m: cp.sum(cp.multiply(m.weight, m.r**2)),
        "scalar product": lambda m: cp.scalar_product(ROOTS, cp.square(m.r)),
        "offset": lambda m: cp.sum_squares(m.X @ m.w + SHIFT - m.y),
        "columns": lambda m: cp.sum_squares(m.X @ m.W - m.Y),
        "columns, intercept": lambda m: cp.mean((m.X @ m.W + m.b - m.Y) ** 2),
        "fro norm": lambda m: cp.norm(m.X @ m.W - m.Y, "fro") ** 2,
        "reshaped": lambda m: cp.sum_squares(cp.reshape(m.X @ m.W, (N,), order="F") - m.y),
        "row vector": lambda m: cp.sum_squares(m.w @ m.X.T - m.y),
        "two blocks": lambda m: cp.sum_squares(m.X @ m.w + m.Z @ m.v + m.b - m.y),
        "public block": lambda m: cp.sum_squares(m.X @ m.w + PUBLIC @ m.v + m.b - m.y),
        "only public features": lambda m: cp.sum_squares(PUBLIC @ m.v + m.b - m.y),
        "only an intercept": lambda m: cp.sum_squares(m.b - m.y),
        "one column": lambda m: cp.sum_squares(cp.multiply(m.x, m.s) + m.b - m.y),
        "one column, *": lambda m: cp.sum_squares(m.x * m.s + m.X @ m.w - m.y),
        "public column": lambda m: cp.sum_squares(SHIFT * m.s + m.X @ m.w - m.y),
        "difference of variables": lambda m: cp.sum_squares(m.X @ (m.w - cp.hstack([m.v, m.s])) - m.y),
        "split in two": lambda m: cp.sum_squares(m.X @ m.w - m.X @ cp.hstack([m.v, m.s]) - m.y),
        "public map": lambda m: cp.sum_squares(m.X @ (np.ones((P, 2)) @ m.v) - m.y),
        "scaled columns": lambda m: cp.sum_squares(m.X @ cp.multiply([1, 2, 3], m.w) - m.y),
        "stacked columns": lambda m: cp.sum_squares(cp.hstack([m.X, np.ones((N, 1))]) @ cp.hstack([m.w, m.b]) - m.y),
        "groups": lambda m: cp.sum_squares(m.X @ m.w + m.v[[0, 0, 1, 1, 0, 1, 1]] - m.y),
        "public label": lambda m: cp.sum_squares(m.X @ m.w - SHIFT),
        "two sums": lambda m: cp.sum_squares(m.r) / 3 + 2 * cp.sum(cp.square(m.r)),
        "half the label": lambda m: cp.sum_squares(m.y / 2 - m.X @ m.w),
        "twice the label": lambda m: cp.sum_squares(m.X @ m.w - 2 * m.y),
        "label scaled by record": lambda m: cp.sum_squares(m.X @ m.w - cp.multiply(ROOTS, m.y)),
        "picked columns": lambda m: cp.sum_squares(m.X[:, :2] @ m.v - m.y),
        "picked by a list": lambda m: cp.sum_squares(m.X[:, [2, 0]] @ m.v - m.y),
        "columns turned": lambda m: cp.sum_squares(m.X[:, ::-1] @ m.w - m.y),
        "picked in two": lambda m: cp.sum_squares(m.X[:, 1:] @ m.v + m.X[:, [0]] @ m.W[:1, 0] - m.y),
        "one column each": lambda m: cp.sum_squares(m.X[:, 0] * m.s + cp.multiply(m.X[:, -1], m.b) - m.y),
        "mixed columns": lambda m: cp.sum_squares((m.X @ MIX) @ m.v - m.y),
        "mixed to more": lambda m: cp.sum_squares((m.Z @ MIX.T) @ m.w - m.y),
        "scaled by a diagonal": lambda m: cp.sum_squares(m.X @ cp.diag(SCALES) @ m.w - m.y),
        "scaled columns, entrywise": lambda m: cp.sum_squares(cp.multiply(m.X, SCALES) @ m.w - m.y),
        "centred and scaled": lambda m: cp.sum_squares(((m.X - 0.5) / 2) @ m.w + m.b - m.y),
        "stacked, then mixed": lambda m: cp.sum_squares(
            (cp.hstack([m.X, np.ones((N, 1))]) @ np.vstack([MIX, [1, 1]])) @ m.v - m.y
        ),
        "stacked, then picked": lambda m: cp.sum_squares(cp.hstack([m.X, m.Z])[:, 2:4] @ m.v - m.y),
        "label in the table": lambda m: cp.sum_squares(m.D[:, :3] @ m.w + m.b - m.D[:, 3]),
        "one output of two": lambda m: cp.sum_squares(m.X @ m.w - m.Z[:, 1]),
        "labels of a column": lambda m: cp.sum_squares(m.X @ m.w - m.Y[:, 0]),
        "diagonal of weights": lambda m: cp.sum_squares(cp.diag(ROOTS) @ (m.X @ m.w - m.y)),
        "diagonal of rows": lambda m: cp.sum_squares((cp.diag(ROOTS) @ m.X) @ m.w - cp.multiply(ROOTS, m.y)),
        "expanded": lambda m: cp.sum_squares(m.X @ m.w) - 2 * m.y @ (m.X @ m.w),
        "expanded, @": lambda m: cp.sum_squares(m.X @ m.w) - 2 * (m.X @ m.w) @ m.y,
        "expanded mean": lambda m: (cp.sum_squares(m.z) - 2 * cp.sum(cp.multiply(m.y, m.z))) / N,
        "expanded, public labels": lambda m: cp.sum_squares(m.X @ m.w) - 2 * SHIFT @ (m.X @ m.w),
        "expanded, both labels": lambda m: cp.sum_squares(m.X @ m.w) - (2 * m.y + SHIFT) @ (m.X @ m.w),
        "residual and a linear part": lambda m: cp.sum_squares(m.r) + cp.sum(m.z),
        "stacked with a ridge": lambda m: cp.sum_squares(cp.hstack([m.X @ m.w - m.y, np.sqrt(0.3) * m.w])),
        "norm of a stack": lambda m: cp.norm(cp.hstack([m.X @ m.w - m.y, 2 * m.w])) ** 2,
        "concatenated": lambda m: cp.sum(cp.square(cp.concatenate([m.X @ m.w - m.y, m.w]))),
        "stacked columns of residuals": lambda m: cp.sum_squares(cp.vstack([m.X @ m.W - m.Y, 2 * m.W])),
        "loop": lambda m: sum(cp.square(m.X[i] @ m.w - m.y[i]) for i in range(N)),
        "loop, intercept and mean": lambda m: sum((m.y[i] - m.X[i, :] @ m.w - m.b) ** 2 for i in range(N)) / N,
        "loop of sums of squares": lambda m: sum(cp.sum_squares(m.X[i] @ m.w - m.y[i]) for i in range(N)),
        "loop of slices": lambda m: sum(cp.sum_squares(m.X[i : i + 1] @ m.w - m.y[i : i + 1]) for i in range(N)),
        "loop with numbers": lambda m: sum(ROOTS[i] * cp.square(m.X[i] @ m.w + SHIFT[i] - m.y[i]) for i in range(N)),
        "loop with public labels": lambda m: sum(cp.square(m.X[i] @ m.w - SHIFT[i]) for i in range(N)),
        "loop with public rows": lambda m: sum(cp.square(PUBLIC[i] @ m.v + m.b - m.y[i]) for i in range(N)),
        "loop over some": lambda m: sum(cp.square(m.X[i] @ m.w - m.y[i]) for i in (1, 2, 5)),
        "loop over some twice": lambda m: sum(cp.square(m.X[i] @ m.w - m.y[i]) for i in (1, 2, 5, 2)),
        "loop of part of a row": lambda m: sum(cp.square(m.D[i, :3] @ m.w - m.D[i, 3]) for i in range(N)),
        "loop of mixed rows": lambda m: sum(cp.square((m.X[i] @ MIX) @ m.v - m.y[i]) for i in range(N)),
        "loop of differences": lambda m: sum(
            cp.square(m.X[i] @ (m.w - cp.hstack([m.v, m.s])) - m.y[i]) for i in range(N)
        ),
        "loop, stacked": lambda m: cp.sum_squares(cp.hstack([m.X[i] @ m.w - m.y[i] for i in range(N)])),
        "loop of one column": lambda m: sum(cp.square(m.x[i] * m.s + m.b - m.y[i]) for i in range(N)),
        "loop and a penalty": lambda m: sum(cp.square(m.X[i] @ m.w - m.y[i]) for i in range(N)) + 0.5 * cp.norm1(m.w),
        "columns are records": lambda m: cp.sum_squares(m.XT.T @ m.w - m.y),
        "columns are records, beside rows": lambda m: cp.sum_squares(m.XT.T @ m.w + m.Z @ m.v - m.y),
        "loop of maps of rows": lambda m: sum(cp.square(m.v @ (MIX.T @ m.X[i]) - m.y[i]) for i in range(N)),
        "loop of coefficients in a column": lambda m: sum(
            cp.square(m.W.T @ m.X[i] + m.X[i] @ m.W - 2 * m.y[i]) for i in range(N)
        ),
        "loop of columns": lambda m: sum(cp.square(m.XT[:, i] @ m.w - m.y[i]) for i in range(N)),
    },
    "absolute": {
        "norm1": lambda m: cp.norm1(m.r),
        "norm 1 of a column": lambda m: cp.norm(m.X @ m.W - m.Y, 1),
        "sum abs": lambda m: cp.sum(cp.abs(m.r)) / N,
        "mean abs of a multiple": lambda m: cp.mean(cp.abs(m.r / 2)),
        "maximum of both": lambda m: cp.sum(cp.maximum(m.r, -m.r)),
        "pos and neg": lambda m: cp.sum(cp.pos(m.r) + cp.neg(m.r)),
        "weighted abs": lambda m: m.weight @ cp.abs(m.r),
        "both scaled": lambda m: cp.norm1(2 * m.X @ m.w + m.b - 3 * m.y + 1),
        "picked by a mask": lambda m: cp.norm1(m.X[:, np.array([True, False, True])] @ m.v + m.b - m.y),
        "label mixed of the table": lambda m: cp.norm1(m.D[:, 1:] @ m.w - m.D @ np.array([2.0, 0, 0, 1])),
        "numpy's diagonal": lambda m: cp.norm1(np.diag(ROOTS) @ m.r),
        "stacked with a lasso": lambda m: cp.norm1(cp.hstack([m.r, m.tau * m.w])),
        "largest of a stack": lambda m: cp.sum(cp.max(cp.vstack([m.r, -m.r]), axis=0)),
        "loop of norms": lambda m: sum(cp.norm1(m.X[i] @ m.w - m.y[i]) for i in reversed(range(N))),
        "loop, turned round": lambda m: sum(cp.abs(m.w @ m.X[i] - m.y[i] / 2) for i in range(N)),
        "columns are records, picked": lambda m: cp.norm1(m.XT.T[:, :2] @ m.v - m.y / 2),
        "loop of slices of a vector": lambda m: sum(cp.abs(m.x[i : i + 1] @ m.W[:1, 0] - m.y[i]) for i in range(N)),
    },
    "huber": {
        "huber": (0.5, lambda m: cp.sum(cp.huber(m.r, 0.5))),
        "huber of one": (1.0, lambda m: cp.sum(cp.huber(m.X @ m.w - m.y)) / 2),
        "huber of a parameter": (0.3, lambda m: cp.mean(cp.huber(m.r, m.tau))),
        "huber scaled": (0.25, lambda m: cp.sum(cp.huber(4 * m.r)) / 16),
        "minus the label": (0.5, lambda m: cp.sum(cp.huber(m.X @ m.w + m.y, 0.5))),
        "divided columns": (1.0, lambda m: cp.sum(cp.huber((m.X / np.abs(SCALES)) @ m.w + m.b - m.y))),
        "diagonal of losses": (0.5, lambda m: cp.sum(cp.diag(m.weight) @ cp.huber(m.r, 0.5))),
        "loop of huber": (0.5, lambda m: sum(cp.huber(m.X[i] @ m.w - m.y[i], 0.5) for i in range(N))),
    },
    "quantile": {
        "quantile by maximum": (0.3, lambda m: cp.sum(cp.maximum(0.3 * (m.y - m.z), -0.7 * (m.y - m.z)))),
        "quantile by maximum of r": (0.7, lambda m: cp.sum(cp.maximum(0.3 * m.r, -0.7 * m.r))),
        "quantile by parts": (0.2, lambda m: cp.mean(0.2 * cp.pos(m.y - m.z) + 0.8 * cp.pos(m.z - m.y))),
        "quantile by pos and neg": (0.2, lambda m: cp.mean(0.8 * cp.pos(m.r) + 0.2 * cp.neg(m.r))),
        "quantile by abs": (0.3, lambda m: cp.sum(0.5 * cp.abs(m.y - m.z) + (m.tau - 0.5) * (m.y - m.z))),
        "quantile by sums": (0.3, lambda m: 0.5 * cp.norm1(m.r) + (0.5 - m.tau) * cp.sum(m.r)),
        "quantile parameter": (0.3, lambda m: cp.sum(cp.maximum(m.tau * -m.r, (1 - m.tau) * m.r))),
        "scalene": (0.3, lambda m: cp.sum(cp.scalene(m.r, 0.7, 0.3))),
        "quantile weights": (0.25, lambda m: m.weight @ (cp.pos(-m.r) + 3 * cp.pos(m.r))),
        "quantile of a multiple": (0.7, lambda m: cp.sum(cp.maximum(0.3 * (m.z - m.y / 4), -0.7 * (m.z - m.y / 4)))),
        "quantile of a stack": (0.7, lambda m: cp.sum(cp.max(cp.vstack([0.3 * m.r, -0.7 * m.r]), axis=0))),
        "one-sided": (0.0, lambda m: cp.sum(cp.pos(m.r))),
        "one-sided below": (1.0, lambda m: cp.mean(cp.neg(m.X @ m.w - m.y))),
        "one-sided, maximum": (1.0, lambda m: m.weight @ cp.maximum(m.y / 2 - m.z, 0)),
        "loop of quantiles": (
            0.3,
            lambda m: sum(cp.maximum(0.3 * (m.y[i] - m.X[i] @ m.w), -0.7 * (m.y[i] - m.X[i] @ m.w)) for i in range(N)),
        ),
    },
    "logistic": {
        "logistic": lambda m: cp.sum(cp.logistic(-m.margin)),
        "logistic mean": lambda m: cp.sum(cp.logistic(cp.multiply(-m.y, m.z))) / N,
        "logistic folded": lambda m: cp.mean(cp.logistic(-m.X @ m.w)),
        "logistic rising": lambda m: cp.mean(cp.logistic(m.X @ m.w)),
        "logistic folded intercept": lambda m: cp.sum(cp.logistic(-(m.X @ m.w + m.b))),
        "logistic public signs": lambda m: cp.sum(cp.logistic(-cp.multiply(SIGNS, m.z))),
        "logistic of opposite": lambda m: cp.sum(cp.logistic(m.margin)),
        "logistic temperature": lambda m: cp.sum(cp.logistic(-m.margin / 2)),
        "logistic weights": lambda m: m.weight @ cp.logistic(-m.margin),
        "logistic expanded": lambda m: cp.sum(cp.logistic(-cp.multiply(m.y, m.X @ m.w) - m.y * m.b)),
        "logistic offset": lambda m: cp.sum(cp.logistic(-cp.multiply(m.y, m.z + SHIFT))),
        "logistic one column": lambda m: cp.sum(cp.logistic(-cp.multiply(m.y, m.x * m.s + m.b))),
        "logistic recoded": lambda m: cp.sum(cp.logistic(cp.multiply(1 - 2 * m.t, m.X @ m.w))),
        "logistic recoded, intercept": lambda m: cp.mean(cp.logistic(-cp.multiply(2 * m.t - 1, m.z))),
        "logistic recoded, half": lambda m: cp.sum(cp.logistic(-cp.multiply(m.t - 0.5, m.z + SHIFT))),
        "mixed and plain": lambda m: cp.sum(cp.logistic(-cp.multiply(m.y, (m.X @ MIX) @ m.v + m.X @ m.w))),
        "sign in the table": lambda m: cp.sum(cp.logistic(-cp.multiply(m.D[:, 0], m.D[:, 1:] @ m.w))),
        "loop of logistic": lambda m: sum(cp.logistic(-m.y[i] * (m.X[i] @ m.w)) for i in range(N)),
        "loop of signs": lambda m: sum(cp.logistic(-SIGNS[i] * (m.X[i] @ m.w + m.b)) for i in range(N)),
        "columns are records, @": lambda m: cp.sum(cp.logistic(-cp.multiply(m.y, m.w @ m.XT + m.b))),
    },
    "binary_logistic": {
        "binary": lambda m: cp.sum(cp.logistic(m.z) - cp.multiply(m.t, m.z)),
        "binary mean": lambda m: cp.mean(cp.logistic(m.X @ m.w) - cp.multiply(m.t, m.X @ m.w)),
        "binary sums": lambda m: cp.sum(cp.logistic(m.z)) - cp.sum(cp.multiply(m.t, m.z)),
        "binary @": lambda m: (cp.sum(cp.logistic(m.z)) - m.t @ m.z) / N,
        "likelihood": lambda m: -cp.sum(cp.multiply(m.t, m.z) - cp.logistic(m.z)),
        "cross entropy": lambda m: cp.sum(cp.multiply(m.t, cp.logistic(-m.z)) + cp.multiply(1 - m.t, cp.logistic(m.z))),
        "cross entropy, one side": lambda m: cp.sum(cp.logistic(-m.z) + cp.multiply(1 - m.t, m.z)),
        "binary public labels": lambda m: cp.sum(cp.logistic(m.z) - cp.multiply(SIGNS > 0, m.z)),
        "binary offset": lambda m: cp.sum(cp.logistic(m.z + SHIFT) - cp.multiply(m.t, m.z + SHIFT)),
        "cross entropy @": lambda m: m.t @ cp.logistic(-m.X @ m.w) + (1 - m.t) @ cp.logistic(m.X @ m.w),
        "cross entropy of signs": lambda m: cp.sum(cp.logistic(m.z) - cp.multiply((1 + m.y) / 2, m.z)),
        "cross entropy, turned": lambda m: cp.sum(cp.logistic(m.z + SHIFT) - cp.multiply(1 - m.t, m.z + SHIFT)),
        "loop of likelihoods": lambda m: sum(cp.logistic(m.X[i] @ m.w) - m.t[i] * (m.X[i] @ m.w) for i in range(N)),
    },
    "hinge": {
        "hinge": lambda m: cp.sum(cp.pos(1 - m.margin)),
        "hinge maximum": lambda m: cp.mean(cp.maximum(0, 1 - m.margin)),
        "hinge negative part": lambda m: cp.sum(cp.neg(m.margin - 1)),
        "hinge minimum": lambda m: -cp.sum(cp.minimum(m.margin - 1, 0)),
        "hinge folded": lambda m: cp.sum(cp.pos(1 - m.X @ m.w)) / N,
        "hinge public signs": lambda m: cp.sum(cp.pos(1 - cp.multiply(SIGNS, m.z))),
        "hinge folded, offset": lambda m: cp.sum(cp.pos(2 - m.X @ m.w)),
        "hinge doubled": lambda m: cp.sum(cp.pos(2 - 2 * m.margin)),
        "hinge of opposite": lambda m: cp.sum(cp.pos(1 + m.margin)),
        "hinge weights": lambda m: m.weight @ cp.pos(1 - m.margin),
        "hinge recoded": lambda m: cp.sum(cp.pos(1 - cp.multiply(2 * m.t - 1, m.z))),
        "hinge of a stack": lambda m: cp.sum(cp.max(cp.vstack([np.zeros(N), 1 - m.margin]), axis=0)),
        "hinge of columns": lambda m: cp.sum(
            cp.max(cp.hstack([cp.reshape(1 - m.margin, (N, 1), order="F"), np.zeros((N, 1))]), axis=1)
        ),
        "least of a stack": lambda m: -cp.sum(cp.min(cp.vstack([m.margin - 1, np.zeros(N)]), axis=0)),
        "margin of 2": lambda m: cp.sum(cp.pos(2 - m.margin)),
        "margin of a tenth": lambda m: cp.mean(cp.pos(0.1 - cp.multiply(m.y, m.X @ m.w))),
        "margin of 2, recoded": lambda m: cp.sum(cp.pos(2 - cp.multiply(2 * m.t - 1, m.z))),
        "loop of hinges": lambda m: sum(cp.pos(1 - cp.multiply(m.y[i], m.X[i] @ m.w)) for i in range(N)) / N,
        "columns are records, mixed": lambda m: cp.sum(cp.pos(1 - cp.multiply(m.y, (m.XT.T @ MIX) @ m.v))),
    },
    "squared_hinge": {
        "squared hinge": lambda m: cp.sum_squares(cp.pos(1 - m.margin)),
        "squared hinge power": lambda m: cp.mean(cp.square(cp.maximum(1 - m.margin, 0))),
        "squared hinge norm": lambda m: cp.norm(cp.pos(1 - m.margin)) ** 2,
        "squared hinge folded": lambda m: cp.sum_squares(cp.pos(1 - m.X @ m.w)),
        "squared hinge recoded": lambda m: cp.sum_squares(cp.pos(1 - cp.multiply(2 * m.t - 1, m.z))),
        "squared hinge, margin of 3": lambda m: cp.sum_squares(cp.pos(3 - m.margin)),
    },
}
# name -> (loss, parameter, objective)
SPELLINGS: dict[str, tuple[str, float, Write]] = {
    name: (loss, *(given if isinstance(given, tuple) else (np.nan, given)))
    for loss, spellings in _BY_LOSS.items()
    for name, given in spellings.items()
}
