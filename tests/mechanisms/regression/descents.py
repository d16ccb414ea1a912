"""What the tests of gradient mechanisms share: models of every kind of bound, neighbours, and sources that replay."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from regressions import regression

from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.compile.domain import L1Ball
from dpmodel.compile.rows import Rows
from dpmodel.privacy import NotPrivateWarning, SeededSource

N = 40


def seeded(seed: int) -> SeededSource:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        return SeededSource(seed)


@dataclass
class Replay:
    """Records values and scales; hands out the given answers instead of noise, or draws them from a seed."""

    source: SeededSource
    answers: list[np.ndarray] | None = None
    values: list[np.ndarray] = field(default_factory=list)
    scales: list[float] = field(default_factory=list)
    given: list[np.ndarray] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    is_private: bool = False

    def _answer(self, kind: str, values: Any, scale: float, draw: Callable[[Any, float], np.ndarray]) -> np.ndarray:
        number = len(self.values)
        self.values.append(np.array(values))
        self.scales.append(scale)
        self.kinds.append(kind)
        out = draw(values, scale) if self.answers is None else self.answers[number]
        self.given.append(out)
        return out

    def gaussian(self, values: Any, scale: float) -> np.ndarray:
        return self._answer("gaussian", values, scale, self.source.gaussian)

    def laplace(self, values: Any, scale: float) -> np.ndarray:
        return self._answer("laplace", values, scale, self.source.laplace)

    def truncated_laplace(self, values: Any, scale: float, half_width: float) -> np.ndarray:
        raise AssertionError("not used by descents")

    def noisy_max(self, scores: Any, scale: float, *, kind: str) -> int:
        raise AssertionError("not used by descents")


def _columns(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.uniform(0, 1, (n, 3)) * [100.0, 1.0, 0.01]


def _unit(rng: np.random.Generator, n: int) -> np.ndarray:
    x = rng.standard_normal((n, 4))
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1.0)


def _signs(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.choice([-1.0, 1.0], n)


def _numbers(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.uniform(-2, 2, n)


# name -> rows, labels, and the model's other arguments
CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "unit rows": (_unit, _signs, {"loss": "logistic", "l2": 1.0}),
    "unit rows, hinge": (_unit, _signs, {"loss": "hinge", "l2": 1.0, "intercept": True}),
    "columns": (_columns, _signs, {"loss": "logistic", "lower": 0.0, "upper": np.array([100.0, 1, 0.01])}),
    "columns, intercept": (
        _columns,
        _signs,
        {"loss": "logistic", "lower": 0.0, "upper": np.array([100.0, 1, 0.01]), "intercept": True},
    ),
    "absent": (
        _columns,
        _signs,
        {
            "loss": "hinge",
            "lower": 0.0,
            "upper": np.array([100.0, 1, 0.01]),
            "intercept": True,
            "absent": True,
        },
    ),
    "quantile": (_unit, _numbers, {"loss": "quantile", "l2": 1.0, "label": (-2.0, 2.0), "intercept": True}),
    "squared": (_unit, _numbers, {"loss": "squared", "l2": 1.0, "label": (-2.0, 2.0)}),
    "squared, ball": (
        _unit,
        _numbers,
        {"loss": "squared", "lower": -1.0, "upper": 1.0, "label": (-2.0, 2.0), "domain": L1Ball(4, 1.0)},
    ),
    "weights": (_unit, _signs, {"loss": "logistic", "l2": 1.0, "weights": np.linspace(0.5, 2.0, N)}),
}


def model_of(name: str, seed: int = 0, n: int = N) -> PrivateRegression:
    rows, labels, options = CASES[name]
    rng = np.random.default_rng(seed)
    options = dict(options)
    loss: Any = options.pop("loss")
    if loss == "quantile":
        from dpmodel.compile.losses import Loss

        loss = Loss("quantile", 0.3)
    return regression(rows(rng, n), labels(rng, n), loss, **options)


def neighbour(name: str, model: PrivateRegression, rng: np.random.Generator, extreme: bool = True) -> PrivateRegression:
    """The model with another record in one place: random, an end of the bounds, the same row with the opposite label,
    or (absent records) nothing."""
    make, labels, _ = CASES[name]
    rows = model.read_rows()
    i = int(rng.integers(rows.count))
    X, y = rows.blocks[0][0].copy(), rows.labels.copy()
    other, label = make(rng, 1)[0], float(labels(rng, 1)[0])
    if model.row.absent:
        other, label = np.zeros_like(other), 0.0
    elif extreme and rng.random() < 0.5:
        other, label = X[i], -y[i]
    elif extreme and rng.random() < 0.5:
        low, high = model.row.lower[: other.size], model.row.upper[: other.size]
        ends = np.where(rng.random(other.size) < 0.5, low, high)
        norm = np.linalg.norm(ends)
        other = ends * min(1.0, model.row.l2 / norm) if norm > 0 else ends
    X[i], y[i] = other, label
    changed = Rows(((X, 0), *rows.blocks[1:]), y, rows.size, rows.offset, rows.weights)
    return replace(model, read=lambda: changed, _memo=dict(model._memo))
