"""Sources for tests: an array whose last column is the label, in blocks, and private models over it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np

import dpmodel as dpm
from dpmodel.marks.row_sources import MemoryBlocks
from dpmodel.marks.rows import RowSource, SourceRows

P = 3


def features_of(block: Any) -> np.ndarray:
    return np.asarray(block)[:, :-1]


def labels_of(block: Any) -> np.ndarray:
    return np.asarray(block)[:, -1]


def table(rows: int = 120, seed: int = 0) -> np.ndarray:
    """(rows, P + 1), some entries beyond the declared bounds."""
    rng = np.random.default_rng(seed)
    out = rng.uniform(-1.3, 1.3, size=(rows, P + 1))
    out[:, -1] = np.where(out[:, 0] + 0.3 * rng.normal(size=rows) > 0, 1.0, -1.0)
    return out


class Broken(MemoryBlocks):
    """A source that counts a block twice."""

    def map_reduce(self, function: Any, combine: Any) -> Any:
        return combine(super().map_reduce(function, combine), function(self.blocks[1], 1))


Write = Callable[[Any, Any, int], tuple[Any, list[Any]]]


def _logistic(X: Any, y: Any, n: int) -> tuple[Any, list[Any]]:
    w, b = cp.Variable(P, name="w"), cp.Variable(name="b")
    return cp.sum(cp.logistic(-cp.multiply(y, X @ w + b))) / n + 0.01 * cp.sum_squares(w), []


def _ball(X: Any, y: Any, n: int) -> tuple[Any, list[Any]]:
    w = cp.Variable(P, name="w")
    return cp.sum_squares(X @ w - y) / n, [cp.norm1(w) <= 1]


def _huber(X: Any, y: Any, n: int) -> tuple[Any, list[Any]]:
    w, b = cp.Variable(P, name="w"), cp.Variable(name="b")
    return cp.sum(cp.huber(X @ w + b - y, 0.5)) / n, [cp.abs(w) <= 1, cp.abs(b) <= 1]


def _hinge(X: Any, y: Any, n: int) -> tuple[Any, list[Any]]:
    w = cp.Variable(2, name="w")
    return cp.sum(cp.pos(1 - cp.multiply(y, X[:, :2] @ w + 0.25))) / n, [cp.norm(w) <= 1]


MODELS: dict[str, Write] = {"logistic": _logistic, "squared, ball": _ball, "huber, box": _huber, "hinge": _hinge}


def problem(
    name: str, data: np.ndarray | RowSource, neighbors: Any = "replace-one", bounds: Any = (-1, 1)
) -> dpm.Problem:
    """The model of this name over an array (n, P + 1), or over a source of such blocks."""
    people = dpm.Records("people", neighbors)
    if isinstance(data, RowSource):
        n, X, y = data.count, SourceRows(data, features_of, P), SourceRows(data, labels_of, None)
    else:
        n, X, y = len(data), features_of(data), labels_of(data)
    features = dpm.Private(X, name="X", unit="row", bounds=bounds, records=people)
    labels = dpm.Private(y, name="y", unit="entry", bounds=(-1, 1), records=people)
    objective, constraints = MODELS[name](features, labels, n)
    return dpm.Problem(cp.Minimize(objective), constraints)
