"""Private features and labels, and how large one record's row of them may be.

A record owns a row of a table (a column, where the user's table is turned round) or an entry of a vector; its features
are ``owned @ map`` with a public matrix, so that ``X[:, :2]``, ``X @ G`` and ``X @ cp.diag(c)`` are rows of their own.
All bounds are about these rows and derived from what was declared of the owned ones: they are the public facts that
sensitivities rest on.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.marks.layout import Lists
from dpmodel.marks.private import Private

_MOST_PAIRED = 12  # scores up to which all pairs are compared


@dataclass(frozen=True)
class RowBounds:
    """Bounds on a row ``a`` of all features, in the order of the stacked coefficients.

    ``lower``, ``upper`` : (p,) per column (infinite where only a norm is declared). ``constant`` : (p,) bool, columns
    that are the same public number in every row (intercepts; lower = upper there).
    ``l1, l2, linf`` : norms of the columns that are not constant, declared or derived; inf where nothing bounds them.
    ``label`` : (lowest, highest) label. ``absent`` : whether a record may be missing, which makes its row (constants
    apart) and its label zero; otherwise one row is replaced by another. ``mixed`` : columns are made of others, and
    not every row within the bounds can occur: no lower bound may rest on them.
    ``lists`` : (first, end, size) of columns first .. end - 1, none of them in two lists, whose 1-norm in one row is
    at most size: one category of each list.
    """

    lower: Floats
    upper: Floats
    constant: np.ndarray
    l1: float
    l2: float
    linf: float
    label: tuple[float, float]
    absent: bool
    mixed: bool = False
    lists: Lists = ()

    @staticmethod
    def of(
        lower: Floats,
        upper: Floats,
        constant: np.ndarray | None = None,
        *,
        l1: float = math.inf,
        l2: float = math.inf,
        linf: float = math.inf,
        label: tuple[float, float] = (-math.inf, math.inf),
        absent: bool = False,
        mixed: bool = False,
        lists: Lists = (),
    ) -> RowBounds:
        """Derive the missing norms from columns and norms alike, and columns from norms."""
        lower, upper = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
        constant = np.zeros(lower.size, dtype=bool) if constant is None else np.asarray(constant, dtype=bool)
        size = np.maximum(np.abs(lower), np.abs(upper))
        if lists and not any(constant[first:end].any() for first, end, _ in lists):
            each = size.copy()
            for first, end, most in lists:
                each[first:end] = 0.0
                each[first] = most
            l1, l2 = min(l1, float(each[~constant].sum())), min(l2, length(each[~constant]))
        size = size[~constant]
        l1, l2, linf = min(l1, float(size.sum())), min(l2, length(size)), min(linf, float(size.max(initial=0.0)))
        l1, l2, linf = derived(l1, l2, linf, max(size.size, 1))
        lower, upper = (
            np.where(constant, lower, np.maximum(lower, -linf)),
            np.where(constant, upper, np.minimum(upper, linf)),
        )
        ends = float(label[0]), float(label[1])
        return RowBounds(lower, upper, constant, l1, l2, linf, ends, absent, mixed, lists)

    @property
    def size(self) -> int:
        return int(self.lower.size)

    @property
    def label_bound(self) -> float:
        """Largest |label|."""
        return max(abs(self.label[0]), abs(self.label[1]))

    @cached_property
    def magnitudes(self) -> Floats:
        """(p,) largest size of each column."""
        return np.maximum(np.abs(self.lower), np.abs(self.upper))

    def moving(self, order: float) -> float:
        """Largest norm (order 1, 2 or inf) of the columns that are not constant."""
        return {1.0: self.l1, 2.0: self.l2, math.inf: self.linf}[float(order)]

    def fixed(self, order: float) -> float:
        """Norm of the constant columns."""
        values = self.lower[self.constant]
        if float(order) == 2.0:
            return length(values)
        return float(np.linalg.norm(values, ord=order)) if values.size else 0.0

    def norm(self, order: float) -> float:
        """Largest norm of a whole row."""
        a, c = self.moving(order), self.fixed(order)
        return max(a, c) if math.isinf(order) else a + c if order == 1 else math.hypot(a, c)

    def sensitivity(self, bound: float, order: float) -> float:
        """How far one record moves ``sum_i s_i a_i`` in this norm, for numbers ``|s_i| <= bound`` that depend on the
        record alone (and on what was released).

        Replace-one: two such vectors of norm at most ``bound * norm`` each: twice that, attained by s = bound and
        -bound on one row. An absent record has a zero row but for the constants: columns that are not constant move by
        ``bound`` times their norm, constant ones by twice theirs.
        """
        if not self.absent:
            return 2 * bound * self.norm(order)
        a, c = bound * self.moving(order), 2 * bound * self.fixed(order)
        return max(a, c) if math.isinf(order) else a + c if order == 1 else math.hypot(a, c)

    def largest_prediction(self, w: Floats) -> float:
        """Largest |<a, w>| over the rows allowed, for one released ``w`` (p,)."""
        return float(self.largest_predictions(w[None])[0])

    def largest_predictions(self, w: Floats) -> Floats:
        """(B,) the same for every row of w (B, p)."""
        if self._centred and self._by_columns:
            top, level = self._ends
            return np.asarray(np.abs(w) @ top + np.abs(w @ level))
        fixed, moving = self._fixed, self._moving
        u = w if fixed.size == 0 else w[:, moving]
        low, high = (end if fixed.size == 0 else end[moving] for end in (self.lower, self.upper))
        size = np.abs(u)
        with np.errstate(invalid="ignore"):
            ends = low * u, high * u
        if not self._finite:  # 0 times infinity is 0 here
            ends = np.where(u == 0, 0.0, ends[0]), np.where(u == 0, 0.0, ends[1])
        columns = np.maximum(np.maximum(*ends).sum(axis=1), -np.minimum(*ends).sum(axis=1))
        if not self._by_columns:
            norms = size.max(axis=1, initial=0.0), np.linalg.norm(u, axis=1), size.sum(axis=1)
            for bound, norm in zip((self.l1, self.l2, self.linf), norms, strict=True):
                with np.errstate(invalid="ignore"):
                    columns = np.minimum(columns, np.where((norm == 0) | (bound == 0), 0.0, bound * norm))
        return np.asarray(columns + np.abs(w[:, fixed] @ self.lower[fixed]))

    def spreads(self, w: Floats) -> Floats:
        """(B,) largest ``<a, w_j - w_k>`` over the rows allowed and the pairs of K scores, for every w (B, K, p); for
        many scores a bound on it, by their differences from the mean of the w_j."""
        count, scores, _ = w.shape
        if scores <= _MOST_PAIRED:
            first, second = np.triu_indices(scores, 1)
            between = w[:, first] - w[:, second]
            return np.asarray(self.largest_predictions(between.reshape(-1, self.size)).reshape(count, -1).max(axis=1))
        between = w - w.mean(axis=1, keepdims=True)
        each = np.sort(self.largest_predictions(between.reshape(-1, self.size)).reshape(count, -1), axis=1)
        return np.asarray(each[:, -1] + each[:, -2])

    @cached_property
    def _centred(self) -> bool:
        """Whether columns have bounds around 0."""
        return self._finite and bool((self.lower == -self.upper)[self._moving].all())

    @cached_property
    def _ends(self) -> tuple[Floats, Floats]:
        """(p,), (p,): upper bounds of the columns that move, and values of the constant ones; 0 elsewhere."""
        return np.where(self.constant, 0.0, self.upper), np.where(self.constant, self.lower, 0.0)

    @cached_property
    def _by_columns(self) -> bool:
        """Whether no norm says more than the columns' bounds, which alone decide ``largest_predictions`` then."""
        size = self.magnitudes[self._moving]
        return self.l1 >= float(size.sum()) and self.l2 >= length(size) and self.linf >= float(size.max(initial=0.0))

    @cached_property
    def _fixed(self) -> Integers:
        return np.flatnonzero(self.constant)

    @cached_property
    def _moving(self) -> Integers:
        return np.flatnonzero(~self.constant)

    @cached_property
    def _finite(self) -> bool:
        return bool(np.isfinite(self.lower).all() and np.isfinite(self.upper).all())

    def prediction_bound(self, w1: float, w2: float, winf: float) -> float:
        """Largest |<a, w>| for w of these norms (each may be inf)."""
        pairs = ((math.inf, w1), (2.0, w2), (1.0, winf))
        return min(product(self.norm(order), size) for order, size in pairs)


def length(values: Floats) -> float:
    """2-norm of the values. Their squares neither overflow nor vanish: a norm that is too small is too little noise."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0 or math.isinf(largest):
        return largest
    return largest * float(np.linalg.norm(values / largest))


def derived(l1: float, l2: float, linf: float, size: int) -> tuple[float, float, float]:
    """Norms of ``size`` numbers, each bounded by the others."""
    linf = min(linf, l2, l1)
    l2 = min(l2, l1, math.sqrt(size) * linf)
    return min(l1, math.sqrt(size) * l2, size * linf), l2, linf


def product(a: float, b: float) -> float:
    """a b, where 0 times infinity is 0: a number that is not used needs no bound."""
    return 0.0 if a == 0 or b == 0 else a * b


# ------------------------------------------------------------------ private features and labels


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
        ends = np.maximum(np.abs(low), np.abs(high))
        declared = (
            min(magnitude["max_l1"], float(ends.sum())),
            min(magnitude["max_l2"], length(ends)),
            min(magnitude["max_linf"], float(ends.max())),
        )
        l1, l2, linf = derived(*declared, ends.size)
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
