"""The nearest whole point that meets linear constraints (controlled rounding), by mixed-integer programming."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.optimize import Bounds, LinearConstraint, milp

from dpmodel.compile.affine_map import Floats, Integers
from dpmodel.compile.postprocessing import Mask
from dpmodel.errors import DPModelError, InfeasibleError

_WHOLE = 1e-6  # how far from its bounds HiGHS may leave a row


def nearest_whole(
    x: Floats, rows: sp.csr_array, least: Floats, most: Floats, lower: Floats, upper: Floats, whole: Mask
) -> Floats:
    """The y with ``least <= rows y <= most``, ``lower <= y <= upper`` and y_j whole where ``whole_j`` that has the
    least sum |y - x|.

    First only floors and ceilings of x are tried when all entries must be whole (n binary variables, linear cost;
    where the rows are a two-way table its vertices are whole and HiGHS has nothing to branch on), then all whole
    numbers. Rows whose bounds are whole up to rounding are held at whole numbers. Errors: InfeasibleError where there
    is no such point; DPModelError where HiGHS gives up.
    """
    least, most = _snapped(least), _snapped(most)
    lower = np.where(whole, np.ceil(lower - _WHOLE), lower)
    upper = np.where(whole, np.floor(upper + _WHOLE), upper)
    if (lower > upper).any():
        j = int(np.flatnonzero(lower > upper)[0])
        raise InfeasibleError(f"entry {j} must be whole", why="no whole number lies within its bounds")
    if whole.all():
        found = _floor_or_ceiling(x, rows, least, most, lower, upper)
        if found is not None:
            return found
    return _any_whole(x, rows, least, most, lower, upper, whole)


def largest_remainders(x: Floats, group: Integers, groups: int) -> Floats:
    """Nearest whole numbers with the sums of groups kept (to the nearest whole number): everything down, then those
    with the largest fractions up. Exact for sum |y - x| and sum (y - x)^2. Ties go to the first. O(n log n),
    vectorised. Entries of group -1 are rounded alone."""
    out = np.rint(x)
    inside = np.flatnonzero(group >= 0)
    own, v = group[inside], x[inside]
    snapped = np.where(np.abs(v - np.rint(v)) <= 1e-9, np.rint(v), v)
    down = np.floor(snapped)
    wanted = np.rint(np.bincount(own, weights=v, minlength=groups)) - np.bincount(own, weights=down, minlength=groups)
    order = np.lexsort((np.arange(own.size), down - snapped, own))
    count = np.bincount(own, minlength=groups)
    rank = np.arange(own.size) - np.repeat(np.cumsum(count) - count, count)
    out[inside] = down
    out[inside[order]] += rank < wanted[own[order]]
    return out


def _snapped(bound: Floats) -> Floats:
    nearest = np.rint(bound)
    with np.errstate(invalid="ignore"):
        close = np.abs(bound - nearest) <= _WHOLE * np.maximum(1.0, np.abs(bound) * 1e-3)
    return np.where(close, nearest, bound)


def _floor_or_ceiling(
    x: Floats, rows: sp.csr_array, least: Floats, most: Floats, lower: Floats, upper: Floats
) -> Floats | None:
    """y = base + z with z binary where x is not whole."""
    base = np.floor(np.where(np.abs(x - np.rint(x)) <= 1e-9, np.rint(x), x))
    fraction = np.clip(x - base, 0.0, 1.0)
    low = np.maximum(0.0, lower - base)
    high = np.minimum(np.where(fraction > 1e-9, 1.0, 0.0), upper - base)
    if (low > high).any():
        return None
    z = _milp(1 - 2 * fraction, rows, least - rows @ base, most - rows @ base, low, high, np.ones(x.size))
    return None if z is None else base + np.rint(z)


def _any_whole(
    x: Floats, rows: sp.csr_array, least: Floats, most: Floats, lower: Floats, upper: Floats, whole: Mask
) -> Floats:
    """y = base + z with t >= |y - x|."""
    n = x.size
    base = np.where(whole, np.rint(x), x)
    rest = x - base
    one = sp.eye_array(n, format="csr")
    both = sp.vstack(
        [sp.hstack([rows, sp.csr_array((rows.shape[0], n))]), sp.hstack([one, -one]), sp.hstack([one, one])],
        format="csr",
    )
    far = np.full(n, np.inf)
    z = _milp(
        np.concatenate([np.zeros(n), np.ones(n)]),
        both,
        np.concatenate([least - rows @ base, -far, rest]),
        np.concatenate([most - rows @ base, rest, far]),
        np.concatenate([lower - base, np.zeros(n)]),
        np.concatenate([upper - base, far]),
        np.concatenate([whole.astype(float), np.zeros(n)]),
    )
    if z is None:
        raise InfeasibleError(
            "no whole numbers meet the constraints",
            why="the constraints hold for fractions only (or for nothing)",
            remedy="drop integrality, or the constraints that cannot be met in whole numbers",
        )
    return base + np.where(whole, np.rint(z[:n]), z[:n])


def _milp(
    cost: Floats, rows: sp.csr_array, least: Floats, most: Floats, low: Floats, high: Floats, integral: Floats
) -> Floats | None:
    """The optimum, or None where there is no point."""
    if not cost.size:
        return np.zeros(0)
    limits = [LinearConstraint(rows, least, most)] if rows.shape[0] else []
    found = milp(cost, constraints=limits, bounds=Bounds(low, high), integrality=integral)
    if found.x is not None and found.status == 0:
        out: Floats = found.x
        return out
    if found.status == 2:
        return None
    raise DPModelError("controlled rounding stopped early", why=f"HiGHS: {found.message}", remedy="how='unbiased'")
