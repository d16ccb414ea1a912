"""The sums of a least-squares problem over its private rows, and what is made of them once they are noised."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.compile.regression.rows import Rows, Table, added
from dpmodel.mechanisms.regression.sufficient_statistics.layout import CHUNK, MOST_AMPLIFICATION, Layout


@dataclass(frozen=True)
class Statistics:
    """``gram`` (k, k) sum omega u u', ``first`` (k,) sum omega u, ``cross`` (k,) sum omega r u, ``labels`` sum omega r,
    in the units of a ``Layout``; ``total`` : sum omega."""

    gram: Floats
    first: Floats
    cross: Floats
    labels: float
    total: float


@dataclass(frozen=True)
class Spread:
    """Deviations of the noise in released statistics: ``pair`` in an off-diagonal entry of gram, and in each entry of
    the rest; ``own`` on the diagonal."""

    pair: float
    own: float
    first: float
    cross: float
    labels: float

    @staticmethod
    def of(layout: Layout, sigma: float) -> Spread:
        """For noise of this standard deviation on each measured number."""
        off = 1.0 if layout.pure else math.sqrt(0.5)
        first, labels = (sigma / layout.alpha, sigma / layout.gamma) if layout.shifted else (0.0, 0.0)
        return Spread(sigma * off, sigma, first, sigma / layout.beta, labels)

    def times(self, factor: float) -> Spread:
        """The standard deviations of entries where fewer columns stand for all."""
        return Spread(self.pair * factor, self.own * factor, self.first * factor, self.cross * factor, self.labels)


def summed(layout: Layout, rows: Table) -> Statistics:
    """Sums over all rows, at most ``CHUNK`` rows at a time. PRIVATE: to be noised."""
    gram, first, cross, labels, total, loose = rows.map_reduce(partial(part_summed, layout), _together, step=CHUNK)
    if not loose:
        return Statistics(gram, first, cross, labels, total)
    m, width = layout.middle, layout.width
    s, t = first[layout.moving], cross[layout.moving]
    gram = gram[np.ix_(layout.moving, layout.moving)]
    if m.any():
        gram = gram - np.outer(s, m) - np.outer(m, s) + total * np.outer(m, m)
    return Statistics(gram / np.outer(width, width), (s - total * m) / width, (t - labels * m) / width, labels, total)


_Sums = tuple[Floats, Floats, Floats, float, float, bool]


def part_summed(layout: Layout, part: Rows) -> _Sums:
    """gram, first, cross, labels and total of some rows, and whether they are raw columns: a fact of the model."""
    loose = any(sp.issparse(m) for m, _ in part.blocks) and layout.amplification <= MOST_AMPLIFICATION
    shift = part.labels if part.offset is None else part.labels - part.offset
    residual = np.clip((shift - layout.label_middle) / layout.label_width, -1, 1)
    gram, first, cross = (_add_raw if loose else _add_centred)(layout, part, residual)
    labels = float(residual.sum() if part.weights is None else residual @ part.weights)
    return gram, first, cross, labels, float(part.count if part.weights is None else part.weights.sum()), loose


def _together(a: _Sums, b: _Sums) -> _Sums:
    return (*added(a[:-1], b[:-1]), a[-1])


def _add_raw(layout: Layout, rows: Rows, residual: Floats) -> tuple[Floats, Floats, Floats]:
    return rows.gram(), rows.combine(np.ones(rows.count)), rows.combine(residual)


def _add_centred(layout: Layout, rows: Rows, residual: Floats) -> tuple[Floats, Floats, Floats]:
    first: Any = rows.blocks[0][0]
    if rows.own and not sp.issparse(first) and first.shape[1] == layout.size:
        x = first  # memory asked for anew, part by part, may cost as much as the sums
    else:
        x = np.empty((rows.count, layout.size), order="F")
        for matrix, start in rows.blocks:
            x[:, start : start + matrix.shape[1]] = matrix.toarray() if sp.issparse(matrix) else matrix
    u = x if layout.count == layout.size else x[:, layout.moving]
    u -= layout.middle
    u /= layout.width
    # Readers clip rows to their bounds; a second time here, because sensitivity rests on it.
    if layout.boxed:
        limit = 1 / math.sqrt(max(layout.count, 1))
        np.clip(u, -limit, limit, out=u)
    else:
        u /= np.maximum(np.linalg.norm(u, axis=1, keepdims=True), 1.0)
    weighted = u if rows.weights is None else u * rows.weights[:, None]
    return weighted.T @ u, weighted.sum(axis=0), weighted.T @ residual


def to_vector(layout: Layout, s: Statistics) -> Floats:
    """(entries,) the numbers that are measured."""
    upper = np.triu_indices(layout.count)
    triangle = s.gram[upper]
    if not layout.pure:
        triangle = np.where(upper[0] == upper[1], triangle, math.sqrt(2) * triangle)
    parts = [triangle, layout.beta * s.cross]
    if layout.shifted:
        parts += [layout.alpha * s.first, np.array([layout.gamma * s.labels])]
    return np.concatenate(parts)


def from_vector(layout: Layout, vector: Floats, total: float) -> Statistics:
    """The statistics that these released numbers stand for. g and h are moved to the nearest values that rows allow,
    ``|g|, |h| <= total``, which brings them no further from the truth."""
    k = layout.count
    upper = np.triu_indices(k)
    triangle, rest = vector[: upper[0].size], vector[upper[0].size :]
    if not layout.pure:
        triangle = np.where(upper[0] == upper[1], triangle, triangle / math.sqrt(2))
    gram = np.zeros((k, k))
    gram[upper] = triangle
    gram = gram + np.triu(gram, 1).T
    first, labels = np.zeros(k), 0.0
    if layout.shifted:
        first, labels = rest[k : 2 * k] / layout.alpha, float(rest[2 * k]) / layout.gamma
        first = first * min(1.0, total / max(float(np.linalg.norm(first)), 1e-300))
        labels = min(max(labels, -total), total)
    return Statistics(gram, first, rest[:k] / layout.beta, labels, total)
