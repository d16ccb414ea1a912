"""How large one record's row of features and its label may be: the public facts that sensitivities rest on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpmodel._types import Floats, Integers

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
    ) -> RowBounds:
        """Derive the missing norms from columns and norms alike, and columns from norms."""
        lower, upper = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
        constant = np.zeros(lower.size, dtype=bool) if constant is None else np.asarray(constant, dtype=bool)
        size = np.maximum(np.abs(lower), np.abs(upper))[~constant]
        l1, l2, linf = min(l1, float(size.sum())), min(l2, length(size)), min(linf, float(size.max(initial=0.0)))
        l1, l2, linf = derived(l1, l2, linf, max(size.size, 1))
        lower, upper = (
            np.where(constant, lower, np.maximum(lower, -linf)),
            np.where(constant, upper, np.minimum(upper, linf)),
        )
        return RowBounds(lower, upper, constant, l1, l2, linf, (float(label[0]), float(label[1])), absent, mixed)

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

    def sensitivity(self, reach: float, order: float) -> float:
        """How far one record moves ``sum_i s_i a_i`` in this norm, for numbers ``|s_i| <= reach`` that depend on the
        record alone (and on what was released).

        Replace-one: two such vectors of norm at most ``reach * norm`` each: twice that, attained by s = reach and
        -reach on one row. An absent record has a zero row but for the constants: columns that are not constant move by
        ``reach`` times their norm, constant ones by twice theirs.
        """
        if not self.absent:
            return 2 * reach * self.norm(order)
        a, c = reach * self.moving(order), 2 * reach * self.fixed(order)
        return max(a, c) if math.isinf(order) else a + c if order == 1 else math.hypot(a, c)

    def reach(self, w: Floats) -> float:
        """Largest |<a, w>| over the rows allowed, for one released ``w`` (p,)."""
        return float(self.reaches(w[None])[0])

    def reaches(self, w: Floats) -> Floats:
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
            return np.asarray(self.reaches(between.reshape(-1, self.size)).reshape(count, -1).max(axis=1))
        between = w - w.mean(axis=1, keepdims=True)
        each = np.sort(self.reaches(between.reshape(-1, self.size)).reshape(count, -1), axis=1)
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
        """Whether no norm says more than the columns' bounds: then theirs is the least of the bounds of ``reaches``."""
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
