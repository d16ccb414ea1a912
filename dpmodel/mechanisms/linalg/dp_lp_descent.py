"""The inner solver of dp-lp: noisy normalised descent on the hinge of violated rows, inside a flat and its public region."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpmodel.mechanisms.linalg.integer_flat import Region, nearest
from dpmodel.mechanisms.linalg.integer_rows import IntegerRows, exact_product
from dpmodel.privacy import NoiseSource

Floats = npt.NDArray[np.float64]

# Directions of rows are multiples of 2^-26, points and offsets of the grids below: all sums and products are exact in
# doubles for up to 2^26 rows, in whatever order they are added, so no rounding depends on other records.
_DIRECTION_BITS, _POINT_BITS = 26, 22


@dataclass(frozen=True)
class Schedule:
    """``steps`` T, first and last step length and first and last target depth as shares of the radius of the region."""

    steps: int = 200
    first: float = 0.2
    last: float = 1e-4
    depth: float = 0.5
    damping: float = 1.0


@dataclass(frozen=True, eq=False)
class ScaledRows:
    """Private rows in the orthonormal coordinates w of a flat, ``slack = offset + direction'w``, one record each.

    ``directions`` (m, q) of norm at most 1, ``offsets`` (m,) distances; rows that do not move on the flat are left out.
    """

    directions: Floats
    offsets: Floats


def reduced_rows(rows: IntegerRows, region: Region) -> IntegerRows:
    """(n, q + 1) integers r with ``r (1, z)`` = slack times the flat's common denominator, exactly, row by row."""
    return exact_product(rows, region.flat.integer_frame[0])


def scaled_rows(reduced: IntegerRows, region: Region, origin: Floats, radius: float) -> ScaledRows:
    """The rows that move on the flat, in coordinates ``w = R (z - origin)``, by their distance from w.

    Every operation is elementwise along the rows, so the numbers of a row depend on that row alone, to the last bit.
    """
    moving = (reduced[:, 1:] != 0).any(axis=1)
    r = reduced[moving].astype(np.float64)
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
    return ScaledRows(directions, offsets)


def point_grid(radius: float) -> float:
    """Grid of the points w: a power of two, 2^-22 of the radius or finer."""
    return float(2.0 ** (math.ceil(math.log2(radius)) - _POINT_BITS))


def descend(
    rows: ScaledRows,
    public: Floats,
    start: Floats,
    radius: float,
    schedule: Schedule,
    sigma: float,
    source: NoiseSource,
) -> Floats:
    """A (q,) grid point w with few rows far below 0.

    Parameters
    ----------
    public : (k, q + 1) rows with unit normals, ``public (1, w) >= 0``. ``start`` : (q,). ``radius`` : of the region.
    sigma : deviation of the Gaussian noise on each sum of directions.

    Notes
    -----
    Step t adds up the directions of all rows with slack below the target depth, plus noise, and moves along the sum
    by at most the step length, which shrinks geometrically, as the depth does: at first the point is drawn inwards, at
    the end only towards rows that are violated, so that a hidden equality holds to about the last step length.
    """
    q = start.size
    grid = point_grid(radius)
    w = np.rint(start / grid) * grid
    ratio = (schedule.last / schedule.first) ** (1 / max(schedule.steps - 1, 1))
    length = schedule.first * radius
    floor = schedule.damping * sigma * math.sqrt(q)
    for _ in range(schedule.steps):
        below = rows.offsets + rows.directions @ w < schedule.depth * length
        total = rows.directions.T @ below.astype(np.float64)
        noisy = source.gaussian(total, sigma)
        w = w + length * noisy / max(float(np.linalg.norm(noisy)), floor)
        w = np.clip(np.rint(nearest(public, w) / grid) * grid, -2 * radius, 2 * radius)
        length *= ratio
    return w
