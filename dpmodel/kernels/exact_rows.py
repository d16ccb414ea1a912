"""Linear functions of private numbers, each value rounded once, and what rounding adds to their sensitivity.

Values that are exact dot products rounded once and clamped at ``CLAMP`` times their sensitivity differ between two
neighbours by at most 2^-12 of it more than without rounding. ``ROUNDING`` covers that, for up to three parts and the
sums behind the bounds.
"""

from __future__ import annotations

import math
from itertools import chain

import numpy as np

from dpmodel._types import Floats
from dpmodel.compile.affine_map import LinearMap

CLAMP = 2.0**40
ROUNDING = 2.0**-10
# Entries beyond this are taken as this, so that no product or sum of theirs overflows.
_HUGE = 1e150


def never_rounded(queries: LinearMap) -> bool:
    """Whether every number is one private entry times a power of two."""
    single = queries.nnz == 0 or int(np.bincount(queries.row).max()) == 1
    return single and bool((np.abs(np.frexp(queries.coefficient)[0]) == 0.5).all())


def exact_rows(part: LinearMap, theta: Floats) -> Floats:
    """(height,) ``part`` at ``theta``, each value rounded once (as if computed with unbounded precision)."""
    x = np.clip(theta[part.column], -_HUGE, _HUGE)
    counts = np.bincount(part.row, minlength=part.height)
    product = part.coefficient * x
    if (counts <= 1).all():
        out = np.zeros(part.height)
        out[part.row] = product
        return out
    terms = [product]
    if not (np.abs(part.coefficient) == 1).all():  # else products are not rounded
        terms.append(_product_error(part.coefficient, x, product))
    ends = np.cumsum(counts)
    if (part.row[1:] < part.row[:-1]).any():
        order = np.argsort(part.row, kind="stable")
        terms = [each[order] for each in terms]
    single = counts == 1
    out = np.zeros(part.height)
    out[single] = terms[0][ends[single] - 1]
    for i in np.flatnonzero(counts > 1):
        rows = slice(ends[i] - counts[i], ends[i])
        out[i] = math.fsum(chain.from_iterable(each[rows].tolist() for each in terms))  # Python's floats add up faster
    return out


def _product_error(a: Floats, b: Floats, product: Floats) -> Floats:
    """``a * b - product`` exactly (Dekker's splitting; overflow gives nan, treated as no correction)."""
    with np.errstate(over="ignore", invalid="ignore"):
        split = 134217729.0  # 2^27 + 1
        a_high = split * a - (split * a - a)
        b_high = split * b - (split * b - b)
        a_low, b_low = a - a_high, b - b_high
        error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return np.where(np.isfinite(error), error, 0.0)
