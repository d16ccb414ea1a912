"""Rows that another row implies: limits so wide that a budget is reached first. Without them sets have simpler shapes.

Over x >= 0, ``a'x <= b`` with a >= 0 implies ``g'x <= h`` where ``b max_j (g_j / a_j) <= h``.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Mask

# Rows that are tried as budgets, of those with an entry in every column.
_MOST_BUDGETS = 8


def without_implied(A: sp.csr_array, b: Floats, lower: Floats) -> Mask:
    """(rows,) the rows of ``A x <= b, x >= lower`` to keep: the others follow from one of these."""
    keep, count = np.ones(b.size, dtype=bool), np.diff(A.indptr)
    if b.size < 2 or not (lower >= 0).all() or not count.all():
        return keep
    least = np.minimum.reduceat(A.data, A.indptr[:-1])
    budgets = np.flatnonzero((least > 0) & (b >= 0) & (count == A.shape[1]))
    for k in budgets[:_MOST_BUDGETS]:
        if not keep[k]:
            continue
        row = slice(A.indptr[k], A.indptr[k + 1])
        budget = np.empty(A.shape[1])
        budget[A.indices[row]] = A.data[row]
        most = np.maximum(np.maximum.reduceat(A.data / budget[A.indices], A.indptr[:-1]), 0.0)
        implied = most * b[k] <= b
        implied[k] = False
        keep &= ~implied
    return keep
