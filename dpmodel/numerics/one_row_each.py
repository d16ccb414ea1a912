"""Linear minimisation where every column stands in one row at most: by filling rows, without a linear program.

Boxes with a budget, simplices, supplies of a transportation problem. In row i of ``a'x <= b`` or ``= b`` every column
starts at the end where ``a_j x_j`` is least. What is left of b is filled by the columns that pay most for it (a
fractional knapsack, whose greedy solution is optimal), all of it in equalities, what pays in inequalities. Rows whose
columns have no such end are turned round, ``-a'x >= -b``: there b has to be filled, and what pays goes beyond it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.marks.layout import sum_by


@dataclass(frozen=True)
class OneRowEach:
    """``column``, ``row``, ``value`` (k,) : the entries of A, columns all different, rows in order.
    ``start`` (n,) : where columns begin. ``capacity`` (k,), ``room`` (rows,) : how much of b they can take, and how
    much is left of it. ``filled`` (rows,) : whether all of it must be taken; ``open`` : and more may.
    ``lower, upper`` (n,)."""

    column: Integers
    row: Integers
    value: Floats
    start: Floats
    capacity: Floats
    room: Floats
    filled: Any
    open: Any
    lower: Floats
    upper: Floats

    @staticmethod
    def of(A: sp.csr_array, b_ub: Floats, b_eq: Floats, lower: Floats, upper: Floats) -> Any:
        """``A`` : the rows of inequalities, then those of equalities. None where columns stand in several rows (those
        that the box implies left out), where one has no end to start from, or where the set is empty."""
        if (lower > upper).any():
            return None
        b, equality = np.concatenate([b_ub, b_eq]), np.r_[np.zeros(b_ub.size, bool), np.ones(b_eq.size, bool)]
        row, column = np.repeat(np.arange(b.size), np.diff(A.indptr)), A.indices
        with np.errstate(invalid="ignore"):
            ends = A.data * lower[column], A.data * upper[column]
        least, most = (sum_by(row, weights=end, minlength=b.size) for end in (np.minimum(*ends), np.maximum(*ends)))
        bites = equality | ~(most <= b)
        stay = bites[row]
        row, column, value = row[stay], column[stay], A.data[stay]
        low, high = np.minimum(*ends)[stay], np.maximum(*ends)[stay]
        turned = ~np.isfinite(least) & np.isfinite(most)
        b, least = np.where(turned, -b, b), np.where(turned, -most, least)
        value, low, high = (np.where(turned[row], *pair) for pair in ((-value, value), (-high, low), (-low, high)))
        if not np.isfinite(least[bites]).all() or not value.all() or np.bincount(column, minlength=1).max() > 1:
            return None
        room, filled = b - least, equality | turned
        full = sum_by(row, weights=high - low, minlength=b.size)
        if (room[bites] < 0).any() or (full < room)[filled & bites].any():
            return None
        start = np.where(np.isfinite(lower), lower, np.where(np.isfinite(upper), upper, 0.0))
        start[column] = np.where(value > 0, lower[column], upper[column])
        return OneRowEach(column, row, value, start, high - low, room, filled, turned & ~equality, lower, upper)

    def minimise(self, cost: Floats) -> Floats | None:
        """(n,) a point of least ``cost'x``; None when unbounded."""
        x = np.where(cost > 0, self.lower, np.where(cost < 0, self.upper, self.start))
        x[self.column] = self.start[self.column]
        if not np.isfinite(x).all():
            return None
        if not self.row.size:
            return x
        price = cost[self.column] / self.value
        beyond = self.open[self.row] & (price < 0)
        if np.isinf(self.capacity[beyond]).any():
            return None
        order = np.flatnonzero(self.filled[self.row] | (price < 0))  # the others take nothing
        row, price = self.row[order], price[order]
        if ((price[1:] < price[:-1]) & (row[1:] == row[:-1])).any():
            place = np.lexsort((price, row)) if row[0] != row[-1] else np.argsort(price, kind="stable")
            order, row = order[place], row[place]
        capacity = np.minimum(self.capacity[order], self.room[row])
        before = np.cumsum(capacity) - capacity
        starts, first = np.zeros(row.size), np.flatnonzero(row[1:] != row[:-1]) + 1
        starts[first] = before[first]
        before -= np.maximum.accumulate(starts)  # of rows that come earlier
        taken = np.clip(self.room[row] - before, 0.0, capacity)
        taken = np.where(beyond[order], self.capacity[order], taken)
        x[self.column[order]] += taken / self.value[order]
        return np.clip(x, self.lower, self.upper)
