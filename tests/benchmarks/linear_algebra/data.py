"""Data of the benchmarks of exact linear algebra, and the exact facts about them that no private release has.

Folders are options of the scripts. ``adult`` needs ``adult_pgm.csv.gz`` (UCI Adult with integer codes), ``mushrooms``
needs ``agaricus_train.npz`` and ``agaricus_test.npz`` (UCI Mushroom, one-hot); the others come with scikit-learn.

Adult is one-hot over the values that occur, of every column with at most 50 of them (so without age, fnlwgt and
hours-per-week, with the label): 11 columns, 175 values. In both sets every row has as many ones as any other, so the
dimension of the span (Adult 164 of 175, mushrooms 86 of 127) is one more than that of the affine span (163 and 85).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import clarabel
import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.optimize import linprog
from sklearn.datasets import load_breast_cancer, load_iris

from dpmodel.as_printed import stable_span as stable_span_published
from dpmodel.exact import stable_span
from dpmodel.exact.model import PrivateInequalities, PrivateVectors
from dpmodel.exact.partition import stable_partition

MOST_VALUES = 50
SPAN_DIMENSIONS = {"adult": (175, 164), "mushrooms": (127, 86)}

# Public ranges of the columns, round numbers about what such measurements can be; they scale, nothing is clipped.
IRIS = ((4, 8), (1.5, 5), (0, 7), (0, 3))
_CANCER = (30, 40, 200, 2500, 0.2, 0.4, 0.5, 0.2, 0.4, 0.1)  # mean: radius, texture, perimeter, area, smoothness, ...
_CANCER_ERROR = (3, 5, 25, 600, 0.04, 0.2, 0.4, 0.06, 0.1, 0.03)
_CANCER_WORST = (40, 50, 300, 5000, 0.3, 1.2, 1.3, 0.3, 0.7, 0.3)
CANCER = tuple((0.0, float(top)) for top in (*_CANCER, *_CANCER_ERROR, *_CANCER_WORST))


def adult(folder: Path) -> np.ndarray:
    """(48842, 175) rows of 0 and 1."""
    table = pd.read_csv(folder / "adult_pgm.csv.gz")
    blocks = []
    for name in table:
        values, codes = np.unique(table[name].to_numpy(), return_inverse=True)
        if values.size <= MOST_VALUES:
            blocks.append(np.eye(values.size, dtype=np.int64)[codes])
    return np.hstack(blocks)


def mushrooms(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """(8124, 127) rows of 0 and 1, 22 ones each, and (8124,) labels -1 (edible) and 1 (poisonous)."""
    blocks, labels = [], []
    for part in ("train", "test"):
        with np.load(folder / f"agaricus_{part}.npz", allow_pickle=False) as held:
            shape, indices, pointers = tuple(held["shape"]), held["indices"].astype(np.int32), held["indptr"]
            blocks.append(sp.csr_array((np.ones(indices.size, dtype=np.int64), indices, pointers), shape=shape))
            labels.append(np.where(held["y"] > 0, 1, -1))
    return sp.csr_array(sp.vstack(blocks)).toarray(), np.concatenate(labels)


def encoded(rows: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """The columns of each category, where blocks lie side by side: found in the data, which stand for the encoder."""
    blocks, start = [], 0
    while start < rows.shape[1]:
        ones = (np.cumsum(rows[:, start:], axis=1) == 1).all(axis=0)
        stop = start + 1 + int(np.argmax(ones))
        blocks.append(tuple(range(start, stop)))
        start = stop
    return tuple(blocks)


def _scaled(X: np.ndarray, ranges: tuple[tuple[float, float], ...]) -> np.ndarray:
    low, high = np.array(ranges, dtype=float).T
    scaled: np.ndarray = (2 * X - low - high) / (high - low)
    return scaled


@dataclass(frozen=True, eq=False)
class HalfSpace:
    """``signed`` (n, d) : label times (features, 1), so that a half-space w is right about row i where
    ``signed[i] w >= 0``. ``margin`` : the largest ``min_i signed[i] w / (|signed[i]| |w|)``, at most 0 where no
    half-space is right about all rows, reached by ``widest``. ``largest`` : bound on the entries if they are whole
    numbers, else None.
    """

    name: str
    signed: np.ndarray
    labels: np.ndarray
    margin: float
    widest: np.ndarray
    largest: int | None

    def wrong(self, w: Any) -> int:
        """Rows that w violates; all of them where there is no w."""
        if w is None:
            return len(self.signed)
        point = np.array([float(value) for value in w])
        return int(np.sum(self.signed @ point < 0)) if np.any(point) else len(self.signed)

    def model(self, neighbors: str, share: float = 0.5) -> PrivateInequalities:
        """With ``share`` of the margin promised (none where there is none). The promise is computed from the data,
        which no private release may do: it stands for knowledge from elsewhere."""
        return self._model(neighbors, share * self.margin if self.margin > 0 else None, 0)

    def offset(self, neighbors: str) -> PrivateInequalities:
        """The same half-spaces as ``signed w >= 1``, without a promise: what mechanisms of integers serve."""
        return self._model(neighbors, None, 1)

    def _model(self, neighbors: str, promise: float | None, least: int) -> PrivateInequalities:
        n, d = self.signed.shape
        rows, sides, public = -self.signed, np.full(n, -least), n if neighbors == "replace-one" else None
        none = np.zeros((0, d)), np.zeros(0)
        return PrivateInequalities(
            d, least == 0, *none, promise, self.largest, neighbors, public, n, lambda: (rows, sides)  # type: ignore[arg-type]
        )  # fmt: skip


def max_margin(signed: np.ndarray) -> tuple[float, np.ndarray]:
    """(margin, w) of the widest half-space: separable or not by HiGHS, then ``min |w|^2, rows w >= 1`` by Clarabel."""
    rows = np.unique(signed / np.linalg.norm(signed, axis=1, keepdims=True), axis=0)
    n, d = rows.shape
    box = [(-1.0, 1.0)] * d + [(None, 1.0)]
    least = np.append(np.zeros(d), -1.0)
    gap = linprog(least, A_ub=np.column_stack([-rows, np.ones(n)]), b_ub=np.zeros(n), bounds=box)
    if gap.status != 0 or -gap.fun <= 1e-9:
        return 0.0, np.asarray(gap.x[:d])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.NonnegativeConeT(n)]
    quadratic, sides = sp.csc_matrix(sp.identity(d)), -np.ones(n)
    solver = clarabel.DefaultSolver(quadratic, np.zeros(d), sp.csc_matrix(-rows), sides, cones, settings)
    w = np.array(solver.solve().x)
    return float((rows @ w).min() / np.linalg.norm(w)), w


def half_space(name: str, folder: Path | None = None) -> HalfSpace:
    """ "mushrooms", "iris" (setosa or not) or "breast cancer" (benign or not), with an intercept."""
    if name == "mushrooms":
        if folder is None:
            raise ValueError("mushrooms: a folder is needed")
        X, y = mushrooms(folder)
        largest: int | None = 1
    elif name == "iris":
        X, target = load_iris(return_X_y=True)
        X, y, largest = _scaled(X, IRIS), np.where(target == 0, 1, -1), None
    elif name == "iris in mm":
        X, target = load_iris(return_X_y=True)
        X, y, largest = np.rint(10 * X).astype(np.int64), np.where(target == 0, 1, -1), 100
    elif name == "breast cancer":
        X, target = load_breast_cancer(return_X_y=True)
        X, y, largest = _scaled(X, CANCER), np.where(target == 1, 1, -1), None
    else:
        raise ValueError(f"no data set {name!r}")
    signed = y[:, None] * np.column_stack([X, np.ones(len(X), dtype=X.dtype)])
    return HalfSpace(name, signed, y, *max_margin(signed.astype(float)), largest)


def vectors(
    field: Any, rows: np.ndarray, task: str = "span", neighbors: str = "add-remove", corrupted: float | None = None
) -> PrivateVectors:
    """A system of vectors whose number is known to forecasts."""
    n, d = rows.shape
    public = n if neighbors == "replace-one" else None
    return PrivateVectors(field, d, task, neighbors, d, public, n, lambda: rows, corrupted)  # type: ignore[arg-type]


@contextmanager
def partitioned_once() -> Iterator[None]:
    """Within it the rows of one system are partitioned once, however often they are released from."""
    held: list[tuple[Any, bytes, Any]] = []

    def cached(field: Any, rows: np.ndarray) -> Any:
        key = rows.tobytes() if rows.dtype != object else repr(rows.tolist()).encode()
        if not held or held[0][0] is not field or held[0][1] != key:
            held[:] = [(field, key, stable_partition(field, rows))]
        return held[0][2]

    here, there = (mock.patch.object(each, "stable_partition", cached) for each in (stable_span, stable_span_published))
    with here, there:
        yield


@dataclass(frozen=True, eq=False)
class Planted:
    """Equations ``a x = b`` of which all but the corrupted hold at ``x``, as rows (a, -b); ``wrong`` of them do not."""

    rows: np.ndarray
    x: np.ndarray
    wrong: int


def planted(field: Any, d: int, m: int, share: float, seed: int) -> Planted:
    """m uniform equations in d unknowns; a ``share`` of them, in random places, get a random right-hand side.

    Over QQ: coefficients and x integers in -10 .. 10, random sides in -1000 .. 1000. Over GF(q) all is uniform, so
    one in q of the random sides is right.
    """
    rng = np.random.default_rng(seed)
    q = field.order
    low, high = (-10, 11) if q is None else (0, q)
    A, x = rng.integers(low, high, size=(m, d)), rng.integers(low, high, size=d)
    b = A @ x if q is None else field.matmul(A, x[:, None])[:, 0]
    bad = rng.permutation(m)[: round(share * m)]
    corrupted = b.copy()
    corrupted[bad] = rng.integers(-1000, 1001, bad.size) if q is None else rng.integers(0, q, bad.size)
    minus = -corrupted if q is None else field.subtract(np.zeros_like(b), corrupted)
    return Planted(np.column_stack([A, minus]), x, int(np.sum(corrupted != b)))
