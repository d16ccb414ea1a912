"""Thirty regressions: every loss, penalties and sets, intercepts, both neighbour relations, loops, several outputs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import cvxpy as cp
import numpy as np

from .face import Case, Noted, NotedSource, Private, Problem, Records, solved

N, P = 1500, 4
BUDGETS = ((0.2, 1e-6), (1.0, 1e-6), (5.0, 1e-6))
PURE = ((0.5, 0.0), (2.0, 0.0), (8.0, 0.0))
Made = Callable[[Any], Any]


class Data:
    """People's rows X, numbers y, signs s, zeros and ones t, two outputs Y, three classes K; coefficients w, b, W."""

    def __init__(self, neighbors: str = "replace-one", size: int = N, unit_rows: bool = False) -> None:
        rng = np.random.default_rng(30)
        people = Records("people", neighbors=neighbors)
        X = rng.uniform(-1, 1, (size, P))
        score = X @ [0.5, -0.3, 0.2, 0.0] + 0.1 * rng.normal(size=size)
        if unit_rows:
            self.X = Private(X / 2, name="X", unit="row", max_l2=1, records=people)
        else:
            self.X = Private(X, name="X", unit="row", bounds=[-1, 1], records=people)

        def column(values: np.ndarray, name: str, low: float, high: float) -> Private:
            return Private(values.clip(low, high), name=name, unit="entry", bounds=[low, high], records=people)

        self.y = column(score, "y", -1, 1)
        self.s = column(np.where(score > 0, 1.0, -1.0), "s", -1, 1)
        self.t = column((score > 0.1).astype(float), "t", 0, 1)
        both = np.stack([score, -score], axis=1).clip(-1, 1)
        self.Y = Private(both, name="Y", unit="row", bounds=[-1, 1], records=people)
        classes = np.eye(3)[np.digitize(score, [-0.2, 0.2])]
        self.K = Private(classes, name="K", unit="row", bounds=[0, 1], max_l1=1, records=people)
        self.w, self.b, self.n = cp.Variable(P, name="w"), cp.Variable(name="b"), size
        self.W, self.V = cp.Variable((P, 2), name="W"), cp.Variable((P, 3), name="V")

    @property
    def z(self) -> Any:
        return self.X @ self.w

    @property
    def margin(self) -> Any:
        return cp.multiply(self.s, self.X @ self.w + self.b)


CASES: list[Case] = []
_number = count()


def _add(
    name: str, loss: Made, rows: Made = lambda d: [], pure: bool = False, quick: bool = False, **data: Any
) -> None:
    def run(epsilon: float, delta: float, source: NotedSource) -> Noted:
        made = Data(**data)
        return solved(Problem(cp.Minimize(loss(made)), rows(made)), epsilon, delta, source)

    CASES.append(Case(f"{next(_number):02d} {name}", run, PURE if pure else BUDGETS, quick))


def l1_ball(d: Data) -> list[Any]:
    return [cp.norm1(d.w) <= 1]


def l2_ball(d: Data) -> list[Any]:
    return [cp.norm2(d.w) <= 1]


def both_balls(d: Data) -> list[Any]:
    return [cp.norm2(d.w) <= 3, cp.abs(d.b) <= 1]


AWAY = {"neighbors": "add-remove"}
_add("least squares, l1 ball", lambda d: cp.sum_squares(d.z - d.y) / d.n, l1_ball, quick=True)
_add("least squares, l1 ball, pure", lambda d: cp.sum_squares(d.z - d.y) / d.n, l1_ball, pure=True, quick=True)
_add("least squares, add-remove", lambda d: cp.sum_squares(d.z + d.b - d.y) / d.n, both_balls, **AWAY)
_add("least squares, simplex", lambda d: cp.sum_squares(d.z - d.y), lambda d: [d.w >= 0, cp.sum(d.w) == 1])
_add("least squares, box", lambda d: cp.mean(cp.square(d.z - d.y)), lambda d: [d.w >= -1, d.w <= 1])
_add("ridge, free", lambda d: cp.sum_squares(d.z + d.b - d.y) / d.n + 0.1 * cp.sum_squares(d.w))
_add("ridge, unit rows", lambda d: cp.sum_squares(d.z - d.y) / d.n + 0.1 * cp.sum_squares(d.w), unit_rows=True)
_add("lasso, penalty", lambda d: cp.sum_squares(d.z - d.y) / d.n + 0.05 * cp.norm1(d.w), l2_ball)
_add("elastic net", lambda d: cp.sum_squares(d.z - d.y) / d.n + 0.05 * cp.norm1(d.w) + 0.1 * cp.sum_squares(d.w))
_add("least squares, expanded", lambda d: (cp.sum_squares(d.z) - 2 * d.y @ d.z) / d.n, l1_ball)
_add(
    "least squares, loop",
    lambda d: sum(cp.square(d.X[i] @ d.w - d.y[i]) for i in range(d.n)) / d.n,
    l1_ball,
    size=150,
)
_add(
    "least squares, two outputs",
    lambda d: cp.sum_squares(d.X @ d.W - d.Y) / d.n,
    lambda d: [cp.norm1(d.W, axis=0) <= 1],
)
_add("absolute deviations", lambda d: cp.norm1(d.z + d.b - d.y) / d.n, both_balls)
_add("absolute deviations, pure", lambda d: cp.norm1(d.z - d.y) / d.n, l1_ball, pure=True)
_add("Huber, l1 ball", lambda d: cp.sum(cp.huber(d.z - d.y, 0.5)) / d.n, l1_ball)
_add("Huber, ridge, add-remove", lambda d: cp.mean(cp.huber(d.z - d.y, 0.2)) + 0.1 * cp.sum_squares(d.w), **AWAY)
_add("quantile", lambda d: cp.sum(cp.maximum(0.8 * (d.y - d.z), -0.2 * (d.y - d.z))) / d.n, l2_ball)
_add("median of one number", lambda d: cp.sum(cp.abs(d.y - d.b)) / d.n, lambda d: [cp.abs(d.b) <= 1], quick=True)
_add("newsvendor", lambda d: cp.sum(cp.maximum(3 * (d.y - d.b), d.b - d.y)), pure=True, quick=True)
_add("logistic, ridge", lambda d: cp.sum(cp.logistic(-d.margin)) / d.n + 0.05 * cp.sum_squares(d.w), both_balls)
_add("logistic, l1 ball", lambda d: cp.mean(cp.logistic(-cp.multiply(d.s, d.z))), l1_ball)
_add("logistic of zeros and ones", lambda d: cp.mean(cp.logistic(d.z) - cp.multiply(d.t, d.z)), l2_ball)
_add(
    "logistic, pure",
    lambda d: cp.mean(cp.logistic(-cp.multiply(d.s, d.z))) + 0.1 * cp.sum_squares(d.w),
    pure=True,
)
_add("hinge, l2 ball", lambda d: cp.sum(cp.pos(1 - cp.multiply(d.s, d.z))) / d.n, l2_ball, unit_rows=True)
_add("hinge, ridge, intercept", lambda d: cp.mean(cp.pos(1 - d.margin)) + 0.05 * cp.sum_squares(d.w), both_balls)
_add("squared hinge", lambda d: cp.mean(cp.square(cp.pos(1 - cp.multiply(d.s, d.z)))), l1_ball, **AWAY)
_add(
    "multinomial",
    lambda d: (cp.sum(cp.log_sum_exp(d.X @ d.V, axis=1)) - cp.sum(cp.multiply(d.K, d.X @ d.V))) / d.n,
    lambda d: [cp.norm(d.V, "fro") <= 2],
)
_add("least squares, general set", lambda d: cp.mean(cp.square(d.z - d.y)), lambda d: [*l2_ball(d), d.w >= -0.1])
_add("least squares, free", lambda d: cp.sum_squares(d.z - d.y))
_add("mean", lambda d: cp.sum_squares(d.y - d.b) / d.n, quick=True)
