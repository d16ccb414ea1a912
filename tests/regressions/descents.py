"""What the tests of gradient mechanisms share: models of every kind of bound, neighbours, and sources that replay."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from regressions import regression

from dpmodel.errors import NotPrivateWarning
from dpmodel.privacy import SeededSource
from dpmodel.regressions.losses import Loss
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.rows import Rows
from dpmodel.regressions.sets import Box, Domain, FreeSpace, L1Ball, Product, Simplex

N = 40


def seeded(seed: int) -> SeededSource:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        return SeededSource(seed)


class Replay(SeededSource):
    """Keeps (kind, values, scale) of everything it is asked for; hands out the given answers, then draws of its own."""

    def __init__(self, seed: int = 0, answers: Sequence[Any] = ()) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotPrivateWarning)
            super().__init__(seed)
        self.answers, self.given = answers, list[Any]()
        self.asked: list[tuple[str, np.ndarray, float]] = []

    def _answer(self, kind: str, values: Any, scale: float, draw: Callable[[Any, float], Any]) -> Any:
        assert np.isfinite(values).all() and 0 < scale < math.inf
        self.asked.append((kind, np.array(values, dtype=float), scale))
        number = len(self.given)
        self.given.append(self.answers[number] if number < len(self.answers) else draw(values, scale))
        return np.copy(self.given[-1])  # callers may write into what they are given

    def gaussian(self, values: Any, scale: float) -> np.ndarray:
        return self._answer("gaussian", values, scale, super().gaussian)

    def laplace(self, values: Any, scale: float) -> np.ndarray:
        return self._answer("laplace", values, scale, super().laplace)

    def noisy_max(self, scores: Any, scale: float, *, kind: Any) -> int:
        return int(self._answer(kind, scores, scale, lambda s, b: super(Replay, self).noisy_max(s, b, kind=kind)))

    @property
    def scales(self) -> list[float]:
        return [scale for _, _, scale in self.asked]

    @property
    def values(self) -> list[np.ndarray]:
        return [values for _, values, _ in self.asked]


def replayed(run: Callable[[Any, Replay], Any], one: Any, other: Any, seed: int = 0) -> tuple[Replay, Replay]:
    """What ``run`` asks for on ``one``, and on ``other`` with the same answers: the same noise, whatever the rows."""
    first = Replay(seed)
    released = run(one, first)
    second = Replay(seed, first.given)
    np.testing.assert_equal(run(other, second), released)
    assert [(kind, scale) for kind, _, scale in first.asked] == [(kind, scale) for kind, _, scale in second.asked]
    return first, second


def spent(first: Replay, second: Replay) -> float:
    """What two runs with the same answers tell apart: epsilon of Laplace draws, mu^2 of Gaussian ones."""
    (kind,) = {kind for kind, *_ in first.asked}
    order = 1 if kind == "laplace" else 2
    return float((moves(first, second, order) ** order).sum())


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
        loss = Loss("quantile", 0.3)
    return regression(rows(rng, n), labels(rng, n), loss, **options)


def neighbour(name: str, model: PrivateRegression, rng: np.random.Generator) -> PrivateRegression:
    """The model with another record in one place: random, an end of the bounds, the same row with the opposite label,
    or (absent records) nothing."""
    make, labels, _ = CASES[name]
    rows = model.read_rows()
    i = int(rng.integers(rows.count))
    X, y = rows.blocks[0][0].copy(), rows.labels.copy()
    other, label = make(rng, 1)[0], float(labels(rng, 1)[0])
    if model.row.absent:
        other, label = np.zeros_like(other), 0.0
    elif rng.random() < 0.5:
        other, label = X[i], -y[i]
    elif rng.random() < 0.5:
        low, high = model.row.lower[: other.size], model.row.upper[: other.size]
        ends = np.where(rng.random(other.size) < 0.5, low, high)
        norm = np.linalg.norm(ends)
        other = ends * min(1.0, model.row.l2 / norm) if norm > 0 else ends
    X[i], y[i] = other, label
    changed = Rows(((X, 0), *rows.blocks[1:]), y, rows.size, rows.offset, rows.weights)
    return replace(model, read=lambda: changed, _memo=dict(model._memo))


def random_pair(generator: np.random.Generator, domain: str) -> tuple[PrivateRegression, Rows, Rows]:
    """A random model, and the rows of two neighbours within its bounds: the worst ones in half of the cases."""
    n, p, intercept = 12, int(generator.integers(1, 5)), bool(generator.random() < 0.5)
    name = str(generator.choice(["squared", "huber", "quantile", "logistic", "binary_logistic", "hinge"]))
    clip = float(generator.choice([math.inf, math.inf, 0.3]))
    loss = Loss(name, {"huber": 0.5, "quantile": 0.3}.get(name, math.nan), clip)  # type: ignore[arg-type]
    absent = bool(generator.random() < 0.4)
    label = {"number": (-1.0, 2.0), "sign": (-1.0, 1.0), "binary": (0.0, 1.0)}[loss.labels]
    low, high = -generator.uniform(0, 3, p), generator.uniform(0.1, 3, p) * 10.0 ** generator.integers(-2, 3, p)
    if not absent and generator.random() < 0.5:
        low, high = low + 4, high + 4
    l2 = float(generator.choice([math.inf, 1.0])) if (low <= 0).all() else math.inf

    def row() -> np.ndarray:
        a = np.where(generator.random(p) < 0.5, low, high)
        return a * min(1.0, l2 / max(float(np.linalg.norm(a)), 1e-9))

    X, y = np.array([row() for _ in range(n)]), generator.choice(label, n)
    other, labels = X.copy(), y.copy()
    other[3], labels[3] = (0.0, 0.0) if absent else (row(), label[0])
    if not absent and generator.random() < 0.5:
        other[3], y[3] = X[3], label[1]
    size = p + intercept
    over: dict[str, Domain] = {
        "free": FreeSpace(size),
        "l1": L1Ball(size, 2.0),
        "solid": Simplex(size, 2.0, solid=True),
        "product": Product(((L1Ball(p, 2.0), 0), (Box(np.array([-9.0]), np.array([1.0])), p)))
        if intercept
        else L1Ball(p, 2.0),
    }
    weights = generator.uniform(0.1, 3, n) if generator.random() < 0.3 else None
    offset = generator.normal(size=n) if generator.random() < 0.3 else None
    model = regression(
        X, y, loss, domain=over[domain], lower=low, upper=high, l2=l2, label=label, intercept=intercept,
        absent=absent, weights=weights,
    )  # fmt: skip
    sparse = bool(generator.random() < 0.3)

    def rows(matrix: np.ndarray, told: np.ndarray) -> Rows:
        blocks: list[tuple[Any, int]] = [(sp.csr_array(matrix) if sparse else matrix, 0)]
        if intercept:
            blocks.append((np.ones((n, 1)), p))
        return Rows(tuple(blocks), told, size, offset, weights)

    bound = 0.0 if offset is None else float(np.abs(offset).max())
    return replace(model, offset_bound=bound, _memo={}), rows(X, y), rows(other, labels)


def moves(first: Replay, second: Replay, order: float) -> np.ndarray:
    """How far each release moved, in scales (order 0: the range of the moves). Scales must not depend on the rows."""
    assert first.scales == second.scales
    sensitivities = [a - b for a, b in zip(first.values, second.values, strict=True)]
    if order == 0:
        return np.array([np.ptp(d) / s for d, s in zip(sensitivities, first.scales, strict=True)])
    return np.array([np.linalg.norm(d, ord=order) / s for d, s in zip(sensitivities, first.scales, strict=True)])
