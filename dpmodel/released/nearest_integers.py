"""The nearest whole point that meets linear constraints (controlled rounding), by mixed-integer programming."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from dpmodel._types import Floats, Mask
from dpmodel.errors import DPModelError, InfeasibleError

_WHOLE = 1e-6  # how far from its bounds HiGHS may leave a row
# With more entries to decide, those that the linear program makes whole are kept, and nothing else is searched: near
# the nearest, in a fraction of the time.
_MANY = 3_000
# Nodes of a search times its whole entries; it stops there and the best point found is taken. A count, not a time: so
# results repeat.
_NODES = 20_000


def nearest_integer(
    x: Floats, rows: sp.csr_array, least: Floats, most: Floats, lower: Floats, upper: Floats, whole: Mask
) -> Floats:
    """The y with ``least <= rows y <= most``, ``lower <= y <= upper`` and y_j whole where ``whole_j`` that has the
    least sum |y - x|.

    First only floors and ceilings of x are tried when all entries must be whole: as a linear program, whose
    vertex is the answer where it is whole (as for two-way tables and trees, always), then with n binary variables (of
    more than ``_MANY`` entries those that the vertex leaves fractional alone, which is near the nearest); then all
    integers (of so many, the vertex alone). A search of k whole entries ends after 1 + ``_NODES / k`` nodes with the
    best point found, which keeps all rows and is near the nearest. Rows whose bounds are whole up to rounding are held
    at whole numbers. Errors: InfeasibleError where there is no such point; DPModelError where none was found.
    """
    least, most = _snapped(least), _snapped(most)
    lower = np.where(whole, np.ceil(lower - _WHOLE), lower)
    upper = np.where(whole, np.floor(upper + _WHOLE), upper)
    if (lower > upper).any():
        j = int(np.flatnonzero(lower > upper)[0])
        raise InfeasibleError(f"entry {j} must be whole", why="no integer lies within its bounds")
    if whole.all():
        found = _floor_or_ceiling(x, rows, least, most, lower, upper)
        if found is not None:
            return found
    return _any_integer(x, rows, least, most, lower, upper, whole)


def largest_remainders(x: Floats) -> Floats:
    """Nearest integers with the (rounded) total of x: everything down, then the largest fractions up. Exact for
    sum |y - x| and sum (y - x)^2. Ties go to the first."""
    snapped = np.where(np.abs(x - np.rint(x)) <= 1e-9, np.rint(x), x)
    out = np.floor(snapped)
    wanted = int(np.rint(x.sum()) - out.sum())
    out[np.argsort(out - snapped, kind="stable")[:wanted]] += 1.0
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
    cost, least, most = 1 - 2 * fraction, least - rows @ base, most - rows @ base
    z = _milp(cost, rows, least, most, low, high, np.zeros(x.size))
    if z is None:
        return None
    whole = np.abs(z - np.rint(z)) <= _WHOLE
    if whole.all():
        return base + np.rint(z)
    if int((low < high).sum()) > _MANY:
        kept = np.rint(z)
        near = _milp(
            cost, rows, least, most, np.where(whole, kept, low), np.where(whole, kept, high), np.where(whole, 0.0, 1.0)
        )
        if near is None:
            raise _none_found(f"of {x.size} entries all but {int((~whole).sum())} were kept, which no whole point does")
        return base + np.rint(near)
    z = _milp(cost, rows, least, most, low, high, np.ones(x.size))
    return None if z is None else base + np.rint(z)


def _any_integer(
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
    program = (
        np.concatenate([np.zeros(n), np.ones(n)]),
        both,
        np.concatenate([least - rows @ base, -far, rest]),
        np.concatenate([most - rows @ base, rest, far]),
        np.concatenate([lower - base, np.zeros(n)]),
        np.concatenate([upper - base, far]),
    )
    many = int(whole.sum()) > _MANY
    z = _milp(*program, np.concatenate([whole & (not many), np.zeros(n)]))
    if z is None:
        raise InfeasibleError(
            "no integers meet the constraints",
            why="the constraints hold for fractions only (or for nothing)",
            remedy="drop integrality, or the constraints that cannot be met in integers",
        )
    if many and (np.abs(z[:n] - np.rint(z[:n]))[whole] > _WHOLE).any():
        raise _none_found(f"the vertex is fractional, and {int(whole.sum())} entries are too many to search")
    return base + np.where(whole, np.rint(z[:n]), z[:n])


def _milp(
    cost: Floats, rows: sp.csr_array, least: Floats, most: Floats, low: Floats, high: Floats, integral: Floats
) -> Floats | None:
    """The optimum, or None where there is no point."""
    if not cost.size:
        return np.zeros(0)
    if not integral.any():
        return _lp(cost, rows, least, most, low, high)
    limits = [LinearConstraint(rows, least, most)] if rows.shape[0] else []
    bounds, nodes = Bounds(low, high), 1 + _NODES // int(integral.sum())
    found = milp(cost, constraints=limits, bounds=bounds, integrality=integral, options={"node_limit": nodes})
    if found.x is not None:
        out: Floats = found.x
        return out
    if found.status == 2:
        return None
    raise _none_found(f"the search ended after {nodes} nodes")


def _lp(cost: Floats, rows: sp.csr_array, least: Floats, most: Floats, low: Floats, high: Floats) -> Floats | None:
    """A vertex, by the interior-point method and crossover: simplex takes several times as long on crossing margins."""
    same = least == most
    above, below = ~same & np.isfinite(most), ~same & np.isfinite(least)
    found = linprog(
        cost,
        A_ub=sp.vstack([rows[above], -rows[below]], format="csr"),
        b_ub=np.concatenate([most[above], -least[below]]),
        A_eq=rows[same],
        b_eq=least[same],
        bounds=np.stack([low, high], axis=1),
        method="highs-ipm",
    )
    if found.status == 0:
        out: Floats = found.x
        return out
    if found.status == 2:
        return None
    raise _none_found(f"HiGHS: {found.message}")


def _none_found(why: str) -> DPModelError:
    return DPModelError(
        "no integers that keep the constraints were found",
        why=f"{why}; more than two crossing margins make it a hard search",
        remedy="no rounding, or at most two crossing margins that have to be kept",
    )
