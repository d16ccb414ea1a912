"""Equalities that say what margins of a table are, recognised from the rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers

AGREE = 1e-9  # relative difference at which two rows about the same cell of a margin contradict


class Contradiction(Exception):
    """Two rows give one cell of a margin different values."""


def margins_of(
    equality: sp.csr_array, value: Floats, shape: Sequence[int]
) -> tuple[list[tuple[int, ...]], list[Floats]] | None:
    """The margins (tuples of axes) and their values that E x = e fixes, for x a table of ``shape`` flattened in C
    order; None unless every row is a constant times the sum of one cell of a margin and every such margin is complete.

    A row's smallest and largest index are the corners of its cell if it is one: on each axis the same position, or
    the first and the last. Then its indices are those of a pattern moved by the smallest, which is compared whole.
    Errors: Contradiction.
    """
    E = sp.csr_array(equality)
    E.sum_duplicates()
    E.sort_indices()
    counts = np.diff(E.indptr)
    n = math.prod(shape)
    if not counts.size or n != E.shape[1] or (counts == 0).any():
        return None
    factor = E.data[E.indptr[:-1]]
    if (factor == 0).any() or not np.array_equal(E.data, np.repeat(factor, counts)):
        return None
    first, last = E.indices[E.indptr[:-1]], E.indices[E.indptr[1:] - 1]
    low = np.stack(np.unravel_index(first, tuple(shape)), axis=1)
    high = np.stack(np.unravel_index(last, tuple(shape)), axis=1)
    sizes = np.asarray(shape)
    held = (low == high) & (sizes > 1)
    if not (held | ((low == 0) & (high == sizes - 1))).all():
        return None
    target = value / factor
    margins: list[tuple[int, ...]] = []
    targets: list[Floats] = []
    kinds, kind = np.unique(held, axis=0, return_inverse=True)
    kind = kind.ravel()
    strides: Integers = np.concatenate([np.cumprod(sizes[::-1])[::-1][1:], [1]]).astype(np.int64)
    for number, fixed in enumerate(kinds):
        axes = np.flatnonzero(fixed)
        rows = np.flatnonzero(kind == number)
        pattern = np.zeros(1, dtype=np.int64)
        for axis in np.flatnonzero(~fixed):
            pattern = (pattern[:, None] + strides[axis] * np.arange(sizes[axis])).ravel()
        if (counts[rows] != pattern.size).any():
            return None
        at = (E.indptr[rows].astype(np.int64)[:, None] + np.arange(pattern.size)).ravel()
        if not np.array_equal(E.indices[at].reshape(rows.size, -1), first[rows].astype(np.int64)[:, None] + pattern):
            return None
        cells = sizes[axes]
        place = (
            np.ravel_multi_index(tuple(low[rows][:, axes].T), tuple(cells)) if axes.size else np.zeros(rows.size, int)
        )
        found = np.full(math.prod(cells), np.nan)
        found[place] = target[rows]
        if np.isnan(found).any():
            return None
        if (np.abs(found[place] - target[rows]) > AGREE * (1 + np.abs(target[rows]))).any():
            raise Contradiction
        margins.append(tuple(int(a) for a in axes))
        targets.append(found.reshape(tuple(cells)))
    return margins, targets
