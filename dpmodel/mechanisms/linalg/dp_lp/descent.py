"""The inner solver of dp-lp: noisy normalised descent on violated rows, inside a flat and its public region."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dpmodel._types import Floats, Mask, PrivateArray
from dpmodel.numerics.fields.integer_flat import Region, nearest
from dpmodel.numerics.fields.integer_rows import IntegerRows, exact_product

# Directions of rows are multiples of 2^-26, points and offsets of the grids below: all products, and sums of up to 2^26
# rows, are exact in doubles, in whatever order they are added, so no rounding depends on other records.
_DIRECTION_BITS, _POINT_BITS = 26, 22
_BLOCK = 2**26
_FAR = 2**900


@dataclass(frozen=True)
class Schedule:
    """``steps`` T, first and last step length and first and last target depth as shares of the radius of the region."""

    steps: int = 200
    first: float = 0.1
    last: float = 3e-4
    depth: float = 0.25
    damping: float = 1.0

    def later(self) -> Schedule:
        """The schedule of later rounds, which start at a good point."""
        return replace(self, first=self.first / 4)


@dataclass(frozen=True, eq=False)
class ScaledRows:
    """Private rows in the orthonormal coordinates w of a flat, ``slack = offset + direction'w``, one record each.

    ``directions`` (m, q) of norm at most 1, ``offsets`` (m,) distances; rows that do not move on the flat are left out:
    ``kept`` (n,) says which are in.
    """

    directions: PrivateArray
    offsets: PrivateArray
    kept: Mask

    def slack(self, w: Floats) -> PrivateArray:
        """(m,) slacks at a point of the grid: no sum is rounded."""
        return PrivateArray(self.offsets + self.directions @ w)

    def pull(self, mask: Mask) -> PrivateArray:
        """(q,) the exact sum of the directions of the mask (m,): blocks of rows are added up in integers."""
        whole = np.zeros(self.directions.shape[1], dtype=np.int64)
        for start in range(0, mask.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            part = self.directions[block].T @ mask[block].astype(np.float64)
            whole += (part * 2.0**_DIRECTION_BITS).astype(np.int64)
        return PrivateArray(whole / 2.0**_DIRECTION_BITS)

    def only(self, mask: Mask) -> ScaledRows:
        """The rows of the mask (m,)."""
        kept = self.kept.copy()
        kept[kept] = mask
        return ScaledRows(PrivateArray(self.directions[mask]), PrivateArray(self.offsets[mask]), kept)


def reduced_rows(rows: IntegerRows, region: Region, largest: int) -> IntegerRows:
    """(n, q + 1) integers r with ``r (1, z)`` = slack times the flat's common denominator, exactly, row by row."""
    return exact_product(rows, region.flat.integer_frame[0], largest)


def scaled_rows(reduced: IntegerRows, region: Region, origin: Floats, radius: float) -> ScaledRows:
    """The rows that move on the flat, in coordinates ``w = R (z - origin)``, by their distance from w.

    Every operation is elementwise along the rows, so the numbers of a row depend on that row alone, to the last bit.
    """
    moving = (reduced[:, 1:] != 0).any(axis=1)
    r = _in_doubles(reduced[moving])
    inverse = np.linalg.inv(region.metric)
    q = inverse.shape[0]
    offset = r[:, 0].copy()
    for j in range(q):
        offset += r[:, j + 1] * origin[j]
    g = np.zeros((r.shape[0], q))
    for i in range(q):
        for j in range(i + 1):  # the inverse is upper triangular
            g[:, i] += r[:, j + 1] * inverse[j, i]
    norm = np.zeros(r.shape[0])
    for i in range(q):
        norm += g[:, i] * g[:, i]
    norm = np.sqrt(norm) * (1 + 1e-12)
    unit = 2.0**_DIRECTION_BITS
    directions = np.trunc(g / norm[:, None] * unit) / unit
    step = point_grid(radius) / unit
    limit = 2.0 ** math.ceil(math.log2(4 * radius))
    offsets = np.clip(np.rint(offset / norm / step) * step, -limit, limit)
    return ScaledRows(PrivateArray(directions), PrivateArray(offsets), moving)


def _in_doubles(whole: IntegerRows) -> PrivateArray:
    """Each row over the largest of its numbers but the first: distances stay, and no norm over- or underflows."""
    largest = np.abs(whole[:, 1:]).max(axis=1, initial=0)[:, None]
    if whole.dtype != object:
        return PrivateArray(np.asarray(whole / largest.astype(np.float64)))
    # Python's division of integers rounds once. Offsets far beyond every region are as good as these.
    clipped = np.clip(whole, -largest * _FAR, largest * _FAR)
    return PrivateArray(np.asarray(clipped / largest, dtype=np.float64))


def point_grid(radius: float) -> float:
    """Grid of the points w: a power of two, 2^-22 of the radius or finer."""
    return float(2.0 ** (math.ceil(math.log2(radius)) - _POINT_BITS))


def on_grid(w: Floats, radius: float) -> Floats:
    """The nearest grid point, for points within twice the radius (as the region is); others are drawn in."""
    grid = point_grid(radius)
    near: Floats = w * min(1.0, 2 * radius / max(float(np.linalg.norm(w)), 1e-300))
    return np.asarray(np.rint(near / grid) * grid)


def descend(
    rows: ScaledRows,
    public: Floats,
    start: Floats,
    radius: float,
    schedule: Schedule,
    sigma: float,
    noisy_pull: Callable[[Mask], Floats],
) -> Floats:
    """A (q,) grid point w with few rows far below 0.

    Parameters
    ----------
    public : (k, q + 1) rows with unit normals, ``public (1, w) >= 0``. ``start`` : (q,). ``radius`` : of the region.
    noisy_pull : mask of rows to the released sum of their directions, with Gaussian noise of standard deviation
    ``sigma``.

    Notes
    -----
    Step t adds up the directions of all rows with slack below the target depth, plus noise, and moves along the sum
    by at most the step length, which shrinks geometrically, as the depth does: at first the point is drawn inwards, at
    the end only towards rows that are violated, so that a hidden equality holds to about the last step length.
    """
    q = start.size
    w = on_grid(start, radius)
    ratio = (schedule.last / schedule.first) ** (1 / max(schedule.steps - 1, 1))
    length = schedule.first * radius
    lower_bound = schedule.damping * sigma * math.sqrt(q)
    for _ in range(schedule.steps):
        noisy = noisy_pull(np.asarray(rows.slack(w) < schedule.depth * length))
        w = w + length * noisy / max(float(np.linalg.norm(noisy)), lower_bound)
        w = on_grid(nearest(public, w), radius)
        length *= ratio
    return w
