"""The weighted average of private rows, under the lazy measure of dense multiplicative weights.

``HeldWeights`` keeps a number for every row. ``RecomputedWeights`` keeps none: after the points x_1 .. x_t the
log-weight of row i is ``sum_k rate (g_i'x_k - h_i) = rate t (g_i'x - h_i)`` at their mean x, a function of this row and
of what was released. What the projection needs of all rows together, the threshold where weights are capped, is found
from sums over blocks.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Protocol

import numpy as np

from dpmodel._types import Floats, PrivateArray
from dpmodel.mechanisms.lp.dense_weights.measure import DenseMeasure
from dpmodel.mechanisms.lp.row_tables import RowPart, RowTable

_BINS = 1024
# Relative width of thresholds that are taken as one: far below the 2^-40 that sums of weights may be off by.
_ALIKE = 2.0**-46


class RowWeights(Protocol):
    """The weights of all rows."""

    def average(self) -> PrivateArray:
        """(n,) ``sum_i y_i g_i``, y the 1/s-dense projection of the measure."""
        ...

    def learn(self, x: Floats) -> None:
        """Multiply the weights by ``exp(rate (G x - h))``: violated rows gain."""
        ...


class HeldWeights:
    """Of rows in memory. Memory: three vectors of m numbers."""

    def __init__(self, parts: tuple[RowPart, ...], rate: float, density: int, idle: int) -> None:
        self._parts, self._rate = tuple(replace(part, h=PrivateArray(rate * part.h)) for part in parts), rate
        self._starts = np.concatenate([[0], np.cumsum([part.count for part in parts])])
        self._measure = DenseMeasure(int(self._starts[-1]), density, idle)

    def average(self) -> PrivateArray:
        y, ends = self._measure.projected(), self._starts[1:]
        pulled = [part.pull(y[start:end]) for part, start, end in zip(self._parts, self._starts, ends, strict=False)]
        return PrivateArray(np.sum(pulled, axis=0)) if len(pulled) > 1 else pulled[0]

    def learn(self, x: Floats) -> None:
        for part, start in zip(self._parts, self._starts, strict=False):
            self._measure.add(part.residual(self._rate * x), int(start))


class RecomputedWeights:
    """Of rows in blocks: some four passes over them for an average, of which one has two products.

    With t the threshold and L the log-weights (zero for the ``idle`` rows), ``sum_i min(exp(L_i - ln t), 1) = s``. The
    left side falls in t. A pass counts rows and adds weights between the edges of a grid, which says between which two
    edges ln t lies; the next pass has its grid there. Once no row lies between the two, the capped rows are known, and
    t is what the others weigh, divided by s minus the number of the capped ones: as in ``measure.project_dense``. From
    one step to the next ln t moves by no more than the least and the largest gain of a row, which is where the first
    grid lies (where rounding has it beside the grid, the grid moves on).

    ``count`` : m. ``gains`` : public bounds of ``g_i'x - h_i``.
    """

    def __init__(
        self, table: RowTable, count: int, rate: float, density: int, idle: int, gains: tuple[float, float]
    ) -> None:
        self._table, self._rate, self._density, self._idle = table, rate, density, idle
        self._gains = gains[0] * rate, gains[1] * rate
        self._all = density == count and not idle
        self._threshold = math.log((count + idle) / density)
        self._sum: Floats = np.zeros(0)
        self._steps = 0

    def average(self) -> PrivateArray:
        if self._steps == 0:
            return self._table.map_reduce(partial(_pulled, None, 0.0, self._threshold, self._density))
        point, scale = self._sum / self._steps, self._rate * self._steps
        if self._all:  # every weight is 1/s
            return self._table.map_reduce(partial(_pulled, None, 0.0, 0.0, self._density))
        self._threshold = self._find(point, scale)
        return self._table.map_reduce(partial(_pulled, point, scale, self._threshold, self._density))

    def learn(self, x: Floats) -> None:
        self._sum = self._sum + x if self._steps else x.copy()
        self._steps += 1

    def _find(self, point: Floats, scale: float) -> float:
        """ln t."""
        low, high = self._threshold + self._gains[0], self._threshold + self._gains[1]
        span = max(high - low, _ALIKE)
        while True:
            edges = np.linspace(low, high, _BINS + 1)
            counts, sums = self._table.map_reduce(partial(_binned, point, scale, edges))
            if self._idle:
                idle = _split(np.zeros(1), edges)
                counts = PrivateArray(counts + self._idle * idle[0])
                sums = PrivateArray(sums + self._idle * idle[1])
            # At every edge: rows above it, and the weight of the others relative to it.
            above, below = counts[::-1].cumsum()[::-1][1:], _carried(sums[:-1], edges)
            reached = np.flatnonzero(above + below >= self._density)
            if reached.size == 0:  # beside the grid
                low, high = low - span, low
            elif reached[-1] == _BINS:
                low, high = high, high + span
            else:
                at = int(reached[-1])
                low, high = float(edges[at]), float(edges[at + 1])
                if counts[at + 1] == 0 or high - low <= max(_ALIKE, 2 * np.spacing(abs(low))):
                    return high + math.log(float(below[at + 1]) / (self._density - float(above[at + 1])))
                continue
            span *= 2


def _log_weights(point: Floats, scale: float, part: RowPart) -> PrivateArray:
    out = part.residual(point)
    out *= scale
    return out


def _pulled(point: Floats | None, scale: float, threshold: float, density: int, part: RowPart) -> PrivateArray:
    """``sum_i min(exp(L_i - threshold), 1) g_i / s`` over a part; without a point all log-weights are zero."""
    logs = np.zeros(part.count) if point is None else _log_weights(point, scale, part)
    weights = np.exp(np.minimum(logs - threshold, 0.0))
    weights /= density
    return part.pull(weights)


def _binned(point: Floats, scale: float, edges: Floats, part: RowPart) -> tuple[PrivateArray, PrivateArray]:
    return _split(_log_weights(point, scale, part), edges)


def _split(logs: Floats, edges: Floats) -> tuple[PrivateArray, PrivateArray]:
    """(bins + 2,), (bins + 2,): how many log-weights lie below all edges, between each two, and above all; and the
    weights of each relative to its upper edge (of the last: nothing)."""
    last = edges.size - 1
    width = (edges[-1] - edges[0]) / last
    place = np.clip(np.ceil((logs - edges[0]) / width), 0, last + 1).astype(np.int64)
    weights = np.exp(np.minimum(logs - edges[np.minimum(place, last)], 0.0))
    counts = np.asarray(np.bincount(place, minlength=last + 2), dtype=np.float64)
    sums = np.asarray(np.bincount(place, weights=weights, minlength=last + 2), dtype=np.float64)
    return PrivateArray(counts), PrivateArray(sums)


def _carried(sums: Floats, edges: Floats) -> Floats:
    """(k,) at every edge, relative to it, the sum of all weights up to it; ``sums`` (k,) relative to upper edges."""
    fall, out = np.exp(-np.diff(edges)), sums.copy()
    for k, factor in enumerate(fall, start=1):
        out[k] += out[k - 1] * factor
    return out
