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
}
