"""Private features and labels: what a record owns, seen through a public linear map.

A record owns a row of a table (a column, where the user's table is turned round) or an entry of a vector; its features
are ``owned @ map`` with a public matrix, so that ``X[:, :2]``, ``X @ G`` and ``X @ cp.diag(c)`` are rows of their own.
All bounds are about these rows and derived from what was declared of the owned ones.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.compile.regression.row_bounds import derived, length, product
from dpmodel.marks.private import Private

# The largest singular value of a map is computed up to this many columns (or rows); beyond, a bound that is cheap.
_MOST_SINGULAR = 500


@dataclass(frozen=True, eq=False)
class Features:
    """Row i is ``owned_i @ map``.

    ``parameter`` : Private (n, p) or a vector of n entries (p = 1); (p, n), if ``turned``: a record owns a column.
    ``map`` : CSR (p, k), public; None for the identity.
    """

    parameter: Private
    map: Any = None
    turned: bool = False

    @property
    def count(self) -> int:
        """n, the number of records."""
        return int(self.parameter.shape[1 if self.turned else 0])

    @property
    def owned(self) -> int:
        """p, the numbers that one record owns."""
        return int(self.parameter.size) // self.count

    @property
    def size(self) -> int:
        """k, the numbers in a row."""
        return self.owned if self.map is None else int(self.map.shape[1])

    def name(self) -> str:
        """As written: ``X``, or ``X[:, 2]`` for one column."""
        one = self.map is not None and self.map.shape[1] == self.map.nnz == 1 and self.map.data[0] == 1
        turn = ".T" if self.turned else ""
        return f"{self.parameter.name()}{turn}" + (f"[:, {self.map.nonzero()[0][0]}]" if one else "")

    @cached_property
    def key(self) -> Hashable:
        """Equal for equal features."""
        m = self.map
        return (self.source, *(() if m is None else (m.shape, *(a.tobytes() for a in (m.indptr, m.indices, m.data)))))

    @property
    def source(self) -> Hashable:
        """Equal for features of the same owned numbers."""
        return id(self.parameter), self.turned

    @property
    def mixed(self) -> bool:
        """Whether columns are made of several owned numbers, or several columns of one."""
        return self.map is not None and not _apart(self.map)

    def same(self, other: Features | None) -> bool:
        return other is not None and self.key == other.key

    def rows(self, owned: Any) -> Any:
        """(n, k) dense or sparse: these features of numbers in the shape of the parameter."""
        return through(self.map, self._by_record(owned))

    def predict(self, owned: Any, w: Floats) -> Floats:
        """(n,) or (n, K): these features times coefficients (k,) or (k, K), without making the features."""
        return np.asarray(self._by_record(owned) @ (w if self.map is None else self.map @ w))

    def _by_record(self, owned: Any) -> Any:
        """(n, p)"""
        owned = owned if owned.ndim == 2 else owned[:, None]
        return owned.T if self.turned else owned

    # ------------------------------------------------------------------ bounds, from the declarations alone
    @cached_property
    def owned_range(self) -> tuple[Floats, Floats]:
        """(p,), (p,): range of each owned number."""
        parameter = self.parameter
        if not self.turned:
            return parameter.column_range
        lower, upper = parameter.entry_range
        layout = parameter.layout
        if layout.stored is None:
            shape = tuple(parameter.shape)
            low, high = (end.reshape(shape, order="F") for end in (lower, upper))
            return low.min(axis=1), high.max(axis=1)
        low, high = np.zeros(self.owned), np.zeros(self.owned)  # entries that are not stored are zeros
        np.minimum.at(low, layout.rows, lower)
        np.maximum.at(high, layout.rows, upper)
        return low, high

    @cached_property
    def column_range(self) -> tuple[Floats, Floats]:
        """(k,), (k,): range of each column of the rows, widened by what rounding may add to a sum of products."""
        low, high = self.owned_range
        if self.map is None:
            return low, high
        up, down = _parts(self.map)
        slack = self._rounding
        return _times(low, up) + _times(-high, down) - slack, _times(high, up) + _times(-low, down) + slack

    @cached_property
    def norms(self) -> tuple[float, float, float]:
        """Largest l1, l2 and linf norm of a row; inf where nothing bounds them.

        ``a = x @ M``: ``|a|_q <= |x|_r * max{|x @ M|_q : |x|_r <= 1}`` for each declared or derived norm r of the
        owned numbers. These maxima are the largest q-norm of a row of M (r = 1), the largest singular value
        (q = r = 2), the largest r*-norm of a column (q = inf), and the largest sum of |M| over a column for
        q = r = inf.
        """
        low, high = self.owned_range
        magnitude = self.parameter.magnitude
        reach = np.maximum(np.abs(low), np.abs(high))
        declared = (
            min(magnitude["max_l1"], float(reach.sum())),
            min(magnitude["max_l2"], length(reach)),
            min(magnitude["max_linf"], float(reach.max())),
        )
        l1, l2, linf = derived(*declared, reach.size)
        if self.map is None:
            return l1, l2, linf
        low, high = self.column_range
        size = np.maximum(np.abs(low), np.abs(high))
        if not np.isfinite(size).all():  # then no norm was declared either
            return math.inf, math.inf, math.inf
        M = abs(self.map)
        rows1, columns1 = (np.asarray(M.sum(axis=axis)).ravel() for axis in (1, 0))
        largest = float(M.max()) if M.nnz else 0.0
        rows2, columns2 = (_lengths(M, axis) for axis in (1, 0))
        slack = self._rounding
        extra = (float(slack.sum()), length(slack), float(slack.max(initial=0.0)))
        bounds = (
            min(product(l1, float(rows1.max(initial=0.0))), float(size.sum())),
            min(product(l2, _singular(self.map)), product(l1, float(rows2.max(initial=0.0))), length(size)),
            min(
                product(l1, largest),
                product(l2, float(columns2.max(initial=0.0))),
                product(linf, float(columns1.max(initial=0.0))),
                float(size.max(initial=0.0)),
            ),
        )
        wide = 1.0 if not slack.any() and _picks(self.map) else 1 + 1e-12
        l1, l2, linf = (b * wide + e for b, e in zip(bounds, extra, strict=True))
        return derived(l1, l2, linf, self.size)

    @cached_property
    def _rounding(self) -> Floats:
        """(k,) how far a computed entry of ``x @ M`` may be from the true one: none where it is one product."""
        low, high = self.owned_range
        terms = np.diff(self.map.tocsc().indptr)
        error = 2 * (terms + 4) * 2.0**-53 * _times(np.maximum(np.abs(low), np.abs(high)), abs(self.map))
        return np.where(terms <= 1, 0.0, error)


@dataclass(frozen=True, eq=False)
class Label:
    """``scale_i * number_i + shift_i`` for one private number of record i, or K as they are.

    ``features`` : of one column, or of K. ``scale``, ``shift`` : () or (n,) public. ``limits`` : of the labels, beyond
    which only rounding can take them; there they are clipped.
    """

    features: Features
    scale: Floats
    shift: Floats
    limits: tuple[float, float] = (-math.inf, math.inf)

    @property
    def parameter(self) -> Private:
        return self.features.parameter

    @property
    def plain(self) -> bool:
        """Whether it is the private number as it is."""
        return bool((self.scale == 1).all() and not self.shift.any())

    @cached_property
    def range(self) -> tuple[float, float]:
        """(lowest, highest) label."""
        lows, highs = self.features.column_range
        low, high = float(lows.min()), float(highs.max())
        with np.errstate(invalid="ignore"):
            ends = [np.where(self.scale == 0, 0.0, self.scale * end) + self.shift for end in (low, high)]
        lowest, highest = min(float(e.min()) for e in ends), max(float(e.max()) for e in ends)
        return max(lowest, self.limits[0]), min(highest, self.limits[1])

    def of(self, owned: Any) -> Floats:
        """(n,) or (n, K) labels of numbers in the shape of the parameter, not clipped."""
        columns = self.features.rows(owned)
        values: Floats = columns.toarray() if sp.issparse(columns) else np.asarray(columns)
        values = values.ravel() if values.shape[1] == 1 else values
        return values if self.plain else self.scale * values + self.shift


def through(map: Any, owned: Any) -> Any:
    """(n, k) dense or CSR: ``owned @ map`` for the map of ``Features``."""
    if map is None:
        return sp.csr_array(owned) if sp.issparse(owned) else owned
    return sp.csr_array(owned @ map) if sp.issparse(owned) else np.asarray(owned @ map)


def tidy(matrix: Any) -> Any:
    """CSR in one order without stored zeros; None for the identity (and for None)."""
    if matrix is None:
        return None
    out = sp.csr_array(matrix, dtype=np.float64, copy=True)
    out.sum_duplicates()
    out.eliminate_zeros()
    p, k = out.shape
    if p == k == out.nnz and (out.data == 1).all() and (out.indices == np.arange(p)).all() and _picks(out):
        return None
    return out


def _apart(matrix: Any) -> bool:
    """Whether every column of the map is a multiple of one owned number, none of them twice."""
    columns, rows = np.diff(matrix.tocsc().indptr), np.diff(matrix.indptr)
    return bool((columns <= 1).all() and (rows <= 1).all())


def _picks(matrix: Any) -> bool:
    """Whether every column of the map is one of the owned numbers as it is, none of them twice."""
    return _apart(matrix) and bool((matrix.data == 1).all())


def _parts(matrix: Any) -> tuple[Any, Any]:
    """Positive and negative part."""
    return matrix.maximum(0), (-matrix).maximum(0)


def _times(x: Floats, matrix: Any) -> Floats:
    """(k,) x @ matrix for a non-negative matrix: numbers that may be infinite count only where they are used."""
    free = ~np.isfinite(x)
    out: Floats = np.asarray(np.where(free, 0.0, x) @ matrix)
    for sign in (1.0, -1.0):
        hit = np.asarray((free & (np.sign(x) == sign)).astype(float) @ matrix) > 0
        out = np.where(hit, sign * np.inf, out)
    return out


def _lengths(matrix: Any, axis: int) -> Floats:
    """2-norms of the rows (axis 1) or columns (axis 0)."""
    largest = float(matrix.max()) if matrix.nnz else 0.0
    if largest == 0:
        return np.zeros(matrix.shape[1 - axis])
    unit = matrix / largest
    return np.asarray(largest * np.sqrt(np.asarray(unit.multiply(unit).sum(axis=axis)).ravel()))


def _singular(matrix: Any) -> float:
    """At least the largest singular value: ``sqrt(|M|_1 |M|_inf)`` bounds it."""
    size = abs(matrix)
    if not size.nnz:
        return 0.0
    bound = math.sqrt(float(size.sum(axis=0).max())) * math.sqrt(float(size.sum(axis=1).max()))
    if min(matrix.shape) > _MOST_SINGULAR or _picks(matrix):
        return bound
    return min(bound, float(np.linalg.norm(matrix.toarray(), ord=2)) * (1 + 1e-9))
