"""Spellings of regressions: how a user may write each loss in CVXPY, and what it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cvxpy as cp
import numpy as np

from dpmodel.annotate import Private, Records

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

# name -> (loss, parameter, objective to be minimised)
SPELLINGS: dict[str, tuple[str, float, Write]] = {
    "sum_squares": ("squared", np.nan, lambda m: cp.sum_squares(m.r)),
    "no intercept": ("squared", np.nan, lambda m: cp.sum_squares(m.X @ m.w - m.y)),
    "turned round": ("squared", np.nan, lambda m: cp.sum_squares(m.y - m.X @ m.w - m.b)),
    "mean of squares": ("squared", np.nan, lambda m: cp.mean(cp.square(m.r))),
    "norm squared": ("squared", np.nan, lambda m: cp.norm(m.r, 2) ** 2 / N),
    "sum_squares of norm": ("squared", np.nan, lambda m: cp.sum_squares(cp.norm(m.r))),
    "power": ("squared", np.nan, lambda m: cp.sum(cp.power(m.r, 2)) / (2 * N)),
    "quad_over_lin": ("squared", np.nan, lambda m: cp.quad_over_lin(m.r, N)),
    "scaled inside": ("squared", np.nan, lambda m: cp.sum_squares(m.r / np.sqrt(N))),
    "half": ("squared", np.nan, lambda m: 0.5 * cp.sum_squares(2 * m.r)),
    "weights inside": ("squared", np.nan, lambda m: cp.sum_squares(cp.multiply(ROOTS, m.r))),
    "weights outside": ("squared", np.nan, lambda m: cp.sum(cp.multiply(ROOTS, cp.square(m.r)))),
    "weights @": ("squared", np.nan, lambda m: m.weight @ cp.square(m.r) / N),
    "@ weights": ("squared", np.nan, lambda m: cp.square(m.r) @ m.weight),
    "weights parameter": ("squared", np.nan, lambda m: cp.sum(cp.multiply(m.weight, m.r**2))),
    "scalar product": ("squared", np.nan, lambda m: cp.scalar_product(ROOTS, cp.square(m.r))),
    "offset": ("squared", np.nan, lambda m: cp.sum_squares(m.X @ m.w + SHIFT - m.y)),
    "columns": ("squared", np.nan, lambda m: cp.sum_squares(m.X @ m.W - m.Y)),
    "columns, intercept": ("squared", np.nan, lambda m: cp.mean((m.X @ m.W + m.b - m.Y) ** 2)),
    "fro norm": ("squared", np.nan, lambda m: cp.norm(m.X @ m.W - m.Y, "fro") ** 2),
    "reshaped": ("squared", np.nan, lambda m: cp.sum_squares(cp.reshape(m.X @ m.W, (N,), order="F") - m.y)),
    "row vector": ("squared", np.nan, lambda m: cp.sum_squares(m.w @ m.X.T - m.y)),
    "two blocks": ("squared", np.nan, lambda m: cp.sum_squares(m.X @ m.w + m.Z @ m.v + m.b - m.y)),
    "public block": ("squared", np.nan, lambda m: cp.sum_squares(m.X @ m.w + PUBLIC @ m.v + m.b - m.y)),
    "only public features": ("squared", np.nan, lambda m: cp.sum_squares(PUBLIC @ m.v + m.b - m.y)),
    "only an intercept": ("squared", np.nan, lambda m: cp.sum_squares(m.b - m.y)),
    "one column": ("squared", np.nan, lambda m: cp.sum_squares(cp.multiply(m.x, m.s) + m.b - m.y)),
    "one column, *": ("squared", np.nan, lambda m: cp.sum_squares(m.x * m.s + m.X @ m.w - m.y)),
    "public column": ("squared", np.nan, lambda m: cp.sum_squares(SHIFT * m.s + m.X @ m.w - m.y)),
    "difference of variables": (
        "squared",
        np.nan,
        lambda m: cp.sum_squares(m.X @ (m.w - cp.hstack([m.v, m.s])) - m.y),
    ),
    "split in two": ("squared", np.nan, lambda m: cp.sum_squares(m.X @ m.w - m.X @ cp.hstack([m.v, m.s]) - m.y)),
    "public map": ("squared", np.nan, lambda m: cp.sum_squares(m.X @ (np.ones((P, 2)) @ m.v) - m.y)),
    "scaled columns": ("squared", np.nan, lambda m: cp.sum_squares(m.X @ cp.multiply([1, 2, 3], m.w) - m.y)),
    "stacked columns": (
        "squared",
        np.nan,
        lambda m: cp.sum_squares(cp.hstack([m.X, np.ones((N, 1))]) @ cp.hstack([m.w, m.b]) - m.y),
    ),
    "groups": ("squared", np.nan, lambda m: cp.sum_squares(m.X @ m.w + m.v[[0, 0, 1, 1, 0, 1, 1]] - m.y)),
    "public label": ("squared", np.nan, lambda m: cp.sum_squares(m.X @ m.w - SHIFT)),
    "two sums": ("squared", np.nan, lambda m: cp.sum_squares(m.r) / 3 + 2 * cp.sum(cp.square(m.r))),
    "norm1": ("absolute", np.nan, lambda m: cp.norm1(m.r)),
    "norm 1 of a column": ("absolute", np.nan, lambda m: cp.norm(m.X @ m.W - m.Y, 1)),
    "sum abs": ("absolute", np.nan, lambda m: cp.sum(cp.abs(m.r)) / N),
    "mean abs of a multiple": ("absolute", np.nan, lambda m: cp.mean(cp.abs(m.r / 2))),
    "maximum of both": ("absolute", np.nan, lambda m: cp.sum(cp.maximum(m.r, -m.r))),
    "pos and neg": ("absolute", np.nan, lambda m: cp.sum(cp.pos(m.r) + cp.neg(m.r))),
    "weighted abs": ("absolute", np.nan, lambda m: m.weight @ cp.abs(m.r)),
    "huber": ("huber", 0.5, lambda m: cp.sum(cp.huber(m.r, 0.5))),
    "huber of one": ("huber", 1.0, lambda m: cp.sum(cp.huber(m.X @ m.w - m.y)) / 2),
    "huber of a parameter": ("huber", 0.3, lambda m: cp.mean(cp.huber(m.r, m.tau))),
    "huber scaled": ("huber", 0.25, lambda m: cp.sum(cp.huber(4 * m.r)) / 16),
    "quantile by maximum": (
        "quantile",
        0.3,
        lambda m: cp.sum(cp.maximum(0.3 * (m.y - m.z), -0.7 * (m.y - m.z))),
    ),
    "quantile by maximum of r": ("quantile", 0.7, lambda m: cp.sum(cp.maximum(0.3 * m.r, -0.7 * m.r))),
    "quantile by parts": ("quantile", 0.2, lambda m: cp.mean(0.2 * cp.pos(m.y - m.z) + 0.8 * cp.pos(m.z - m.y))),
    "quantile by pos and neg": ("quantile", 0.2, lambda m: cp.mean(0.8 * cp.pos(m.r) + 0.2 * cp.neg(m.r))),
    "quantile by abs": ("quantile", 0.3, lambda m: cp.sum(0.5 * cp.abs(m.y - m.z) + (m.tau - 0.5) * (m.y - m.z))),
    "quantile by sums": ("quantile", 0.3, lambda m: 0.5 * cp.norm1(m.r) + (0.5 - m.tau) * cp.sum(m.r)),
    "quantile parameter": ("quantile", 0.3, lambda m: cp.sum(cp.maximum(m.tau * -m.r, (1 - m.tau) * m.r))),
    "scalene": ("quantile", 0.3, lambda m: cp.sum(cp.scalene(m.r, 0.7, 0.3))),
    "quantile weights": ("quantile", 0.25, lambda m: m.weight @ (cp.pos(-m.r) + 3 * cp.pos(m.r))),
    "logistic": ("logistic", np.nan, lambda m: cp.sum(cp.logistic(-m.margin))),
    "logistic mean": ("logistic", np.nan, lambda m: cp.sum(cp.logistic(cp.multiply(-m.y, m.z))) / N),
    "logistic folded": ("logistic", np.nan, lambda m: cp.mean(cp.logistic(-m.X @ m.w))),
    "logistic rising": ("logistic", np.nan, lambda m: cp.mean(cp.logistic(m.X @ m.w))),
    "logistic folded intercept": ("logistic", np.nan, lambda m: cp.sum(cp.logistic(-(m.X @ m.w + m.b)))),
    "logistic public signs": ("logistic", np.nan, lambda m: cp.sum(cp.logistic(-cp.multiply(SIGNS, m.z)))),
    "logistic of opposite": ("logistic", np.nan, lambda m: cp.sum(cp.logistic(m.margin))),
    "logistic temperature": ("logistic", np.nan, lambda m: cp.sum(cp.logistic(-m.margin / 2))),
    "logistic weights": ("logistic", np.nan, lambda m: m.weight @ cp.logistic(-m.margin)),
    "logistic expanded": (
        "logistic",
        np.nan,
        lambda m: cp.sum(cp.logistic(-cp.multiply(m.y, m.X @ m.w) - m.y * m.b)),
    ),
    "logistic offset": ("logistic", np.nan, lambda m: cp.sum(cp.logistic(-cp.multiply(m.y, m.z + SHIFT)))),
    "logistic one column": ("logistic", np.nan, lambda m: cp.sum(cp.logistic(-cp.multiply(m.y, m.x * m.s + m.b)))),
    "binary": ("binary_logistic", np.nan, lambda m: cp.sum(cp.logistic(m.z) - cp.multiply(m.t, m.z))),
    "binary mean": ("binary_logistic", np.nan, lambda m: cp.mean(cp.logistic(m.X @ m.w) - cp.multiply(m.t, m.X @ m.w))),
    "binary sums": ("binary_logistic", np.nan, lambda m: cp.sum(cp.logistic(m.z)) - cp.sum(cp.multiply(m.t, m.z))),
    "binary @": ("binary_logistic", np.nan, lambda m: (cp.sum(cp.logistic(m.z)) - m.t @ m.z) / N),
    "likelihood": ("binary_logistic", np.nan, lambda m: -cp.sum(cp.multiply(m.t, m.z) - cp.logistic(m.z))),
    "cross entropy": (
        "binary_logistic",
        np.nan,
        lambda m: cp.sum(cp.multiply(m.t, cp.logistic(-m.z)) + cp.multiply(1 - m.t, cp.logistic(m.z))),
    ),
    "cross entropy, one side": (
        "binary_logistic",
        np.nan,
        lambda m: cp.sum(cp.logistic(-m.z) + cp.multiply(1 - m.t, m.z)),
    ),
    "binary public labels": (
        "binary_logistic",
        np.nan,
        lambda m: cp.sum(cp.logistic(m.z) - cp.multiply(SIGNS > 0, m.z)),
    ),
    "binary offset": (
        "binary_logistic",
        np.nan,
        lambda m: cp.sum(cp.logistic(m.z + SHIFT) - cp.multiply(m.t, m.z + SHIFT)),
    ),
    "hinge": ("hinge", np.nan, lambda m: cp.sum(cp.pos(1 - m.margin))),
    "hinge maximum": ("hinge", np.nan, lambda m: cp.mean(cp.maximum(0, 1 - m.margin))),
    "hinge negative part": ("hinge", np.nan, lambda m: cp.sum(cp.neg(m.margin - 1))),
    "hinge minimum": ("hinge", np.nan, lambda m: -cp.sum(cp.minimum(m.margin - 1, 0))),
    "hinge folded": ("hinge", np.nan, lambda m: cp.sum(cp.pos(1 - m.X @ m.w)) / N),
    "hinge public signs": ("hinge", np.nan, lambda m: cp.sum(cp.pos(1 - cp.multiply(SIGNS, m.z)))),
    "hinge folded, offset": ("hinge", np.nan, lambda m: cp.sum(cp.pos(2 - m.X @ m.w))),
    "hinge doubled": ("hinge", np.nan, lambda m: cp.sum(cp.pos(2 - 2 * m.margin))),
    "hinge of opposite": ("hinge", np.nan, lambda m: cp.sum(cp.pos(1 + m.margin))),
    "hinge weights": ("hinge", np.nan, lambda m: m.weight @ cp.pos(1 - m.margin)),
    "squared hinge": ("squared_hinge", np.nan, lambda m: cp.sum_squares(cp.pos(1 - m.margin))),
    "squared hinge power": ("squared_hinge", np.nan, lambda m: cp.mean(cp.square(cp.maximum(1 - m.margin, 0)))),
    "squared hinge norm": ("squared_hinge", np.nan, lambda m: cp.norm(cp.pos(1 - m.margin)) ** 2),
    "squared hinge folded": ("squared_hinge", np.nan, lambda m: cp.sum_squares(cp.pos(1 - m.X @ m.w))),
    # labels: multiples, recoded
    "half the label": ("squared", np.nan, lambda m: cp.sum_squares(m.y / 2 - m.X @ m.w)),
    "twice the label": ("squared", np.nan, lambda m: cp.sum_squares(m.X @ m.w - 2 * m.y)),
    "both scaled": ("absolute", np.nan, lambda m: cp.norm1(2 * m.X @ m.w + m.b - 3 * m.y + 1)),
    "minus the label": ("huber", 0.5, lambda m: cp.sum(cp.huber(m.X @ m.w + m.y, 0.5))),
    "label scaled by record": ("squared", np.nan, lambda m: cp.sum_squares(m.X @ m.w - cp.multiply(ROOTS, m.y))),
    "quantile of a multiple": (
        "quantile",
        0.7,
        lambda m: cp.sum(cp.maximum(0.3 * (m.z - m.y / 4), -0.7 * (m.z - m.y / 4))),
    ),
    "logistic recoded": ("logistic", np.nan, lambda m: cp.sum(cp.logistic(cp.multiply(1 - 2 * m.t, m.X @ m.w)))),
    "logistic recoded, intercept": ("logistic", np.nan, lambda m: cp.mean(cp.logistic(-cp.multiply(2 * m.t - 1, m.z)))),
    "logistic recoded, half": ("logistic", np.nan, lambda m: cp.sum(cp.logistic(-cp.multiply(m.t - 0.5, m.z + SHIFT)))),
    "hinge recoded": ("hinge", np.nan, lambda m: cp.sum(cp.pos(1 - cp.multiply(2 * m.t - 1, m.z)))),
    "squared hinge recoded": (
        "squared_hinge",
        np.nan,
        lambda m: cp.sum_squares(cp.pos(1 - cp.multiply(2 * m.t - 1, m.z))),
    ),
    "cross entropy @": (
        "binary_logistic",
        np.nan,
        lambda m: m.t @ cp.logistic(-m.X @ m.w) + (1 - m.t) @ cp.logistic(m.X @ m.w),
    ),
    "cross entropy of signs": (
        "binary_logistic",
        np.nan,
        lambda m: cp.sum(cp.logistic(m.z) - cp.multiply((1 + m.y) / 2, m.z)),
    ),
    "cross entropy, turned": (
        "binary_logistic",
        np.nan,
        lambda m: cp.sum(cp.logistic(m.z + SHIFT) - cp.multiply(1 - m.t, m.z + SHIFT)),
    ),
    # columns: picked, mixed, scaled, of one table
    "picked columns": ("squared", np.nan, lambda m: cp.sum_squares(m.X[:, :2] @ m.v - m.y)),
    "picked by a list": ("squared", np.nan, lambda m: cp.sum_squares(m.X[:, [2, 0]] @ m.v - m.y)),
    "picked by a mask": (
        "absolute",
        np.nan,
        lambda m: cp.norm1(m.X[:, np.array([True, False, True])] @ m.v + m.b - m.y),
    ),
    "columns turned": ("squared", np.nan, lambda m: cp.sum_squares(m.X[:, ::-1] @ m.w - m.y)),
    "picked in two": ("squared", np.nan, lambda m: cp.sum_squares(m.X[:, 1:] @ m.v + m.X[:, [0]] @ m.W[:1, 0] - m.y)),
    "one column each": (
        "squared",
        np.nan,
        lambda m: cp.sum_squares(m.X[:, 0] * m.s + cp.multiply(m.X[:, -1], m.b) - m.y),
    ),
    "mixed columns": ("squared", np.nan, lambda m: cp.sum_squares((m.X @ MIX) @ m.v - m.y)),
    "mixed to more": ("squared", np.nan, lambda m: cp.sum_squares((m.Z @ MIX.T) @ m.w - m.y)),
    "mixed and plain": (
        "logistic",
        np.nan,
        lambda m: cp.sum(cp.logistic(-cp.multiply(m.y, (m.X @ MIX) @ m.v + m.X @ m.w))),
    ),
    "scaled by a diagonal": ("squared", np.nan, lambda m: cp.sum_squares(m.X @ cp.diag(SCALES) @ m.w - m.y)),
    "scaled columns, entrywise": ("squared", np.nan, lambda m: cp.sum_squares(cp.multiply(m.X, SCALES) @ m.w - m.y)),
    "divided columns": ("huber", 1.0, lambda m: cp.sum(cp.huber((m.X / np.abs(SCALES)) @ m.w + m.b - m.y))),
    "centred and scaled": ("squared", np.nan, lambda m: cp.sum_squares(((m.X - 0.5) / 2) @ m.w + m.b - m.y)),
    "stacked, then mixed": (
        "squared",
        np.nan,
        lambda m: cp.sum_squares((cp.hstack([m.X, np.ones((N, 1))]) @ np.vstack([MIX, [1, 1]])) @ m.v - m.y),
    ),
    "stacked, then picked": ("squared", np.nan, lambda m: cp.sum_squares(cp.hstack([m.X, m.Z])[:, 2:4] @ m.v - m.y)),
    "label in the table": ("squared", np.nan, lambda m: cp.sum_squares(m.D[:, :3] @ m.w + m.b - m.D[:, 3])),
    "sign in the table": ("logistic", np.nan, lambda m: cp.sum(cp.logistic(-cp.multiply(m.D[:, 0], m.D[:, 1:] @ m.w)))),
    "label mixed of the table": (
        "absolute",
        np.nan,
        lambda m: cp.norm1(m.D[:, 1:] @ m.w - m.D @ np.array([2.0, 0, 0, 1])),
    ),
    "one output of two": ("squared", np.nan, lambda m: cp.sum_squares(m.X @ m.w - m.Z[:, 1])),
    "labels of a column": ("squared", np.nan, lambda m: cp.sum_squares(m.X @ m.w - m.Y[:, 0])),
    # weights by a diagonal
    "diagonal of weights": ("squared", np.nan, lambda m: cp.sum_squares(cp.diag(ROOTS) @ (m.X @ m.w - m.y))),
    "numpy's diagonal": ("absolute", np.nan, lambda m: cp.norm1(np.diag(ROOTS) @ m.r)),
    "diagonal of losses": ("huber", 0.5, lambda m: cp.sum(cp.diag(m.weight) @ cp.huber(m.r, 0.5))),
    "diagonal of rows": (
        "squared",
        np.nan,
        lambda m: cp.sum_squares((cp.diag(ROOTS) @ m.X) @ m.w - cp.multiply(ROOTS, m.y)),
    ),
    # squares taken apart
    "expanded": ("squared", np.nan, lambda m: cp.sum_squares(m.X @ m.w) - 2 * m.y @ (m.X @ m.w)),
    "expanded, @": ("squared", np.nan, lambda m: cp.sum_squares(m.X @ m.w) - 2 * (m.X @ m.w) @ m.y),
    "expanded mean": ("squared", np.nan, lambda m: (cp.sum_squares(m.z) - 2 * cp.sum(cp.multiply(m.y, m.z))) / N),
    "expanded, public labels": ("squared", np.nan, lambda m: cp.sum_squares(m.X @ m.w) - 2 * SHIFT @ (m.X @ m.w)),
    "expanded, both labels": ("squared", np.nan, lambda m: cp.sum_squares(m.X @ m.w) - (2 * m.y + SHIFT) @ (m.X @ m.w)),
    "residual and a linear part": ("squared", np.nan, lambda m: cp.sum_squares(m.r) + cp.sum(m.z)),
    # stacked
    "stacked with a ridge": (
        "squared",
        np.nan,
        lambda m: cp.sum_squares(cp.hstack([m.X @ m.w - m.y, np.sqrt(0.3) * m.w])),
    ),
    "norm of a stack": ("squared", np.nan, lambda m: cp.norm(cp.hstack([m.X @ m.w - m.y, 2 * m.w])) ** 2),
    "concatenated": ("squared", np.nan, lambda m: cp.sum(cp.square(cp.concatenate([m.X @ m.w - m.y, m.w])))),
    "stacked columns of residuals": (
        "squared",
        np.nan,
        lambda m: cp.sum_squares(cp.vstack([m.X @ m.W - m.Y, 2 * m.W])),
    ),
    "stacked with a lasso": ("absolute", np.nan, lambda m: cp.norm1(cp.hstack([m.r, m.tau * m.w]))),
    "largest of a stack": ("absolute", np.nan, lambda m: cp.sum(cp.max(cp.vstack([m.r, -m.r]), axis=0))),
    "quantile of a stack": ("quantile", 0.7, lambda m: cp.sum(cp.max(cp.vstack([0.3 * m.r, -0.7 * m.r]), axis=0))),
    "hinge of a stack": ("hinge", np.nan, lambda m: cp.sum(cp.max(cp.vstack([np.zeros(N), 1 - m.margin]), axis=0))),
    "hinge of columns": (
        "hinge",
        np.nan,
        lambda m: cp.sum(cp.max(cp.hstack([cp.reshape(1 - m.margin, (N, 1), order="F"), np.zeros((N, 1))]), axis=1)),
    ),
    "least of a stack": ("hinge", np.nan, lambda m: -cp.sum(cp.min(cp.vstack([m.margin - 1, np.zeros(N)]), axis=0))),
    # one-sided, other margins
    "one-sided": ("quantile", 0.0, lambda m: cp.sum(cp.pos(m.r))),
    "one-sided below": ("quantile", 1.0, lambda m: cp.mean(cp.neg(m.X @ m.w - m.y))),
    "one-sided, maximum": ("quantile", 1.0, lambda m: m.weight @ cp.maximum(m.y / 2 - m.z, 0)),
    "margin of 2": ("hinge", np.nan, lambda m: cp.sum(cp.pos(2 - m.margin))),
    "margin of a tenth": ("hinge", np.nan, lambda m: cp.mean(cp.pos(0.1 - cp.multiply(m.y, m.X @ m.w)))),
    "squared hinge, margin of 3": ("squared_hinge", np.nan, lambda m: cp.sum_squares(cp.pos(3 - m.margin))),
    "margin of 2, recoded": ("hinge", np.nan, lambda m: cp.sum(cp.pos(2 - cp.multiply(2 * m.t - 1, m.z)))),
    # record by record
    "loop": ("squared", np.nan, lambda m: sum(cp.square(m.X[i] @ m.w - m.y[i]) for i in range(N))),
    "loop, intercept and mean": (
        "squared",
        np.nan,
        lambda m: sum((m.y[i] - m.X[i, :] @ m.w - m.b) ** 2 for i in range(N)) / N,
    ),
    "loop of sums of squares": (
        "squared",
        np.nan,
        lambda m: sum(cp.sum_squares(m.X[i] @ m.w - m.y[i]) for i in range(N)),
    ),
    "loop of norms": ("absolute", np.nan, lambda m: sum(cp.norm1(m.X[i] @ m.w - m.y[i]) for i in reversed(range(N)))),
    "loop of slices": (
        "squared",
        np.nan,
        lambda m: sum(cp.sum_squares(m.X[i : i + 1] @ m.w - m.y[i : i + 1]) for i in range(N)),
    ),
    "loop, turned round": ("absolute", np.nan, lambda m: sum(cp.abs(m.w @ m.X[i] - m.y[i] / 2) for i in range(N))),
    "loop with numbers": (
        "squared",
        np.nan,
        lambda m: sum(ROOTS[i] * cp.square(m.X[i] @ m.w + SHIFT[i] - m.y[i]) for i in range(N)),
    ),
    "loop with public labels": ("squared", np.nan, lambda m: sum(cp.square(m.X[i] @ m.w - SHIFT[i]) for i in range(N))),
    "loop with public rows": (
        "squared",
        np.nan,
        lambda m: sum(cp.square(PUBLIC[i] @ m.v + m.b - m.y[i]) for i in range(N)),
    ),
    "loop over some": ("squared", np.nan, lambda m: sum(cp.square(m.X[i] @ m.w - m.y[i]) for i in (1, 2, 5))),
    "loop over some twice": ("squared", np.nan, lambda m: sum(cp.square(m.X[i] @ m.w - m.y[i]) for i in (1, 2, 5, 2))),
    "loop of part of a row": (
        "squared",
        np.nan,
        lambda m: sum(cp.square(m.D[i, :3] @ m.w - m.D[i, 3]) for i in range(N)),
    ),
    "loop of mixed rows": (
        "squared",
        np.nan,
        lambda m: sum(cp.square((m.X[i] @ MIX) @ m.v - m.y[i]) for i in range(N)),
    ),
    "loop of differences": (
        "squared",
        np.nan,
        lambda m: sum(cp.square(m.X[i] @ (m.w - cp.hstack([m.v, m.s])) - m.y[i]) for i in range(N)),
    ),
    "loop of logistic": ("logistic", np.nan, lambda m: sum(cp.logistic(-m.y[i] * (m.X[i] @ m.w)) for i in range(N))),
    "loop of signs": (
        "logistic",
        np.nan,
        lambda m: sum(cp.logistic(-SIGNS[i] * (m.X[i] @ m.w + m.b)) for i in range(N)),
    ),
    "loop of likelihoods": (
        "binary_logistic",
        np.nan,
        lambda m: sum(cp.logistic(m.X[i] @ m.w) - m.t[i] * (m.X[i] @ m.w) for i in range(N)),
    ),
    "loop of hinges": (
        "hinge",
        np.nan,
        lambda m: sum(cp.pos(1 - cp.multiply(m.y[i], m.X[i] @ m.w)) for i in range(N)) / N,
    ),
    "loop of quantiles": (
        "quantile",
        0.3,
        lambda m: sum(cp.maximum(0.3 * (m.y[i] - m.X[i] @ m.w), -0.7 * (m.y[i] - m.X[i] @ m.w)) for i in range(N)),
    ),
    "loop of huber": ("huber", 0.5, lambda m: sum(cp.huber(m.X[i] @ m.w - m.y[i], 0.5) for i in range(N))),
    "loop, stacked": (
        "squared",
        np.nan,
        lambda m: cp.sum_squares(cp.hstack([m.X[i] @ m.w - m.y[i] for i in range(N)])),
    ),
    "loop of one column": ("squared", np.nan, lambda m: sum(cp.square(m.x[i] * m.s + m.b - m.y[i]) for i in range(N))),
    "loop and a penalty": (
        "squared",
        np.nan,
        lambda m: sum(cp.square(m.X[i] @ m.w - m.y[i]) for i in range(N)) + 0.5 * cp.norm1(m.w),
    ),
    # a record owns a column
    "columns are records": ("squared", np.nan, lambda m: cp.sum_squares(m.XT.T @ m.w - m.y)),
    "columns are records, @": ("logistic", np.nan, lambda m: cp.sum(cp.logistic(-cp.multiply(m.y, m.w @ m.XT + m.b)))),
    "columns are records, picked": ("absolute", np.nan, lambda m: cp.norm1(m.XT.T[:, :2] @ m.v - m.y / 2)),
    "columns are records, mixed": (
        "hinge",
        np.nan,
        lambda m: cp.sum(cp.pos(1 - cp.multiply(m.y, (m.XT.T @ MIX) @ m.v))),
    ),
    "columns are records, beside rows": ("squared", np.nan, lambda m: cp.sum_squares(m.XT.T @ m.w + m.Z @ m.v - m.y)),
    "loop of maps of rows": (
        "squared",
        np.nan,
        lambda m: sum(cp.square(m.v @ (MIX.T @ m.X[i]) - m.y[i]) for i in range(N)),
    ),
    "loop of coefficients in a column": (
        "squared",
        np.nan,
        lambda m: sum(cp.square(m.W.T @ m.X[i] + m.X[i] @ m.W - 2 * m.y[i]) for i in range(N)),
    ),
    "loop of slices of a vector": (
        "absolute",
        np.nan,
        lambda m: sum(cp.abs(m.x[i : i + 1] @ m.W[:1, 0] - m.y[i]) for i in range(N)),
    ),
    "loop of columns": ("squared", np.nan, lambda m: sum(cp.square(m.XT[:, i] @ m.w - m.y[i]) for i in range(N))),
}
