"""What a noise-once mechanism measures: few linear functions of the private entries that determine a part.

A part of the standard form (c, b or the private entries of A) is ``R S theta``: the mechanism releases
``S theta`` with noise and rebuilds the part by the public matrix R. Two choices of S are built:

* *entries*: the distinct entries of the part, where entries that are multiples of each other (a parameter
  reused in several constraints, both signs of an absolute value, the two halves of a symmetric matrix) are measured
  once;
* *inputs*: the private parameters' own entries, better when the part combines few of them many times.

Every row of S is scaled so that one record moves all rows by the same amount at most; the noise is then
spread in proportion to how far each number can move.

Rounding. The values are exact dot products rounded once (2^-53 of the value at most) and clamped at ``limit``:
2^40 times the least of their largest change, ``D_1 / t`` and ``D_2 / sqrt(t)``, where t numbers at most depend on the
data of one record. So rounding adds at most 2^-12 of D_1 to the 1-norm and of D_2 to the 2-norm sensitivity between two
neighbours, which ``ROUNDING`` (for up to three parts, and the sums behind the bounds) adds to every sensitivity.
Numbers that are one private entry times a power of two are not rounded at all; there the clamp is 2^40 times
their change. The clamp is public policy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, PrivateArray
from dpmodel.classify.private_lp import PrivateLP
from dpmodel.compile.affine_map import AffineMap, LinearMap, numbered
from dpmodel.compile.footprint import Sensitivity, entry_sensitivities, most_touched, sensitivity_of
from dpmodel.compile.form import value_range
from dpmodel.marks.layout import sum_by
from dpmodel.marks.records import Records
from dpmodel.numerics.public_facts import cached

CLAMP = 2.0**40
ROUNDING = 2.0**-10
# Entries beyond this are taken as this, so that no product or sum of theirs overflows.
_HUGE = 1e150


@dataclass(frozen=True)
class Measurement:
    """``part = recover @ (queries theta)`` with public ``recover``.

    ``queries`` : (k, P) scaled functions S of theta; ``recover`` : (h, k) sparse, h = entries of the part, in
    increasing order of ``positions``. ``sensitivity`` : what one record does to the k numbers, per Records,
    rounding included. ``lower, upper`` : (k,) public range of the numbers; ``limit`` : where their absolute values
    are clamped. ``if_rounded`` : finds the same limit for numbers that are rounded.
    """

    part: str
    strategy: str
    queries: LinearMap
    recover: sp.csr_array
    positions: Integers
    sensitivity: Mapping[Records, Sensitivity]
    lower: Floats
    upper: Floats
    limit: float
    if_rounded: Callable[[], float]

    @cached_property
    def shared_limit(self) -> float:
        """Where numbers that are rounded are clamped."""
        return self.if_rounded()

    @property
    def furthest(self) -> float:
        """Largest absolute value that the public ranges allow (inf where there is none)."""
        return float(np.maximum(np.abs(self.lower), np.abs(self.upper)).max(initial=0.0))

    @property
    def count(self) -> int:
        return self.queries.height

    @property
    def l1(self) -> float:
        return max((sensitivity.l1 for sensitivity in self.sensitivity.values()), default=0.0)

    @property
    def l2(self) -> float:
        return max((sensitivity.l2 for sensitivity in self.sensitivity.values()), default=0.0)

    def gain(self, order: int) -> Floats:
        """(h,) 1-norm or 2-norm of the rows of ``recover``: how noise on the k numbers reaches each entry."""
        return self._gains[order - 1]

    @cached_property
    def _gains(self) -> tuple[Floats, Floats]:
        if self.recover.nnz == self.recover.shape[0] == np.count_nonzero(np.diff(self.recover.indptr)):
            alone = np.asarray(np.abs(self.recover.data), dtype=np.float64)
            return alone, alone
        size = abs(self.recover)
        one, squares = (np.asarray(each.sum(axis=1), dtype=np.float64).ravel() for each in (size, size.multiply(size)))
        return one, np.sqrt(squares)

    def values(self, theta: PrivateArray) -> PrivateArray:
        """(k,) the private numbers; for a mechanism's ``run`` only."""
        exact = exact_rows(self.queries, theta)
        return PrivateArray(np.clip(np.clip(exact, self.lower, self.upper), -self.limit, self.limit))

    def rebuild(self, released: Floats, clip: bool = True) -> Floats:
        """(h,) entries of the part from released numbers, moved into their public range first if ``clip``."""
        return np.asarray(self.recover @ (np.clip(released, self.lower, self.upper) if clip else released))


@cached
def measurements(model: PrivateLP, part: str) -> tuple[Measurement, ...]:
    """The choices of S for one part, computed once per problem."""
    whole = model.form.private_part(part)
    positions, dense = whole.positions, whole.compact()
    by_entries = scaled(model, part, "entries", *_by_entries(dense), positions)
    if dense.nnz == dense.height:
        return (by_entries,)
    return by_entries, scaled(model, part, "inputs", *_by_inputs(dense), positions)


def best_measurement(model: PrivateLP, part: str, order: int) -> Measurement:
    """The choice with the least worst noise when the noise is scaled to the 1-norm or 2-norm sensitivity."""

    def worst(m: Measurement) -> float:
        return (m.l1 if order == 1 else m.l2) * float(m.gain(order).max(initial=0.0))

    return min(measurements(model, part), key=worst)


def scaled(
    model: PrivateLP,
    part: str,
    strategy: str,
    queries: LinearMap,
    recover: sp.csr_array,
    positions: Integers,
    factor: Floats | None = None,
) -> Measurement:
    """The measurement with its rows scaled by ``factor``, or to equal change; change and range attached."""
    moves = entry_sensitivities(model.affine, queries)
    if factor is None:
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = np.where((moves > 0) & np.isfinite(moves), moves.max(initial=0.0) / moves, 1.0)
        factor = np.where(np.abs(factor - 1.0) < 1e-12, 1.0, factor)
    moves = moves * factor
    step = float(moves[moves > 0].min(initial=math.inf)) if moves.any() else 0.0
    if (factor != 1.0).any():
        queries = LinearMap(queries.row, queries.column, queries.coefficient * factor[queries.row], queries.height)
        recover = sp.csr_array(recover @ sp.diags_array(1.0 / factor))
    sensitivity = {
        records: value.scaled_for_rounding(ROUNDING) for records, value in sensitivity_of(model.affine, queries).items()
    }
    lower, upper = value_range(model.affine, queries)
    shared = partial(_shared_limit, model.affine, queries, step, sensitivity)
    limit = CLAMP * step if step > 0 and never_rounded(queries) else shared()
    return Measurement(part, strategy, queries, recover, positions, sensitivity, lower, upper, limit, shared)


def never_rounded(queries: LinearMap) -> bool:
    """Whether every number is one private entry times a power of two."""
    single = queries.nnz == 0 or int(np.bincount(queries.row).max()) == 1
    return single and bool((np.abs(np.frexp(queries.coefficient)[0]) == 0.5).all())


def _shared_limit(
    affine: AffineMap, queries: LinearMap, step: float, sensitivity: Mapping[Records, Sensitivity]
) -> float:
    """Where rounded numbers are clamped, so that rounding stays inside the allowance (the module's docstring)."""
    if step == 0:
        return math.inf  # bounds that fix every number
    touched = max(most_touched(affine, queries.row, queries.column), 1)
    l1 = max(c.l1 for c in sensitivity.values())
    l2 = max(c.l2 for c in sensitivity.values())
    return CLAMP * min(step, l1 / touched, l2 / math.sqrt(touched))


def _by_entries(part: LinearMap) -> tuple[LinearMap, sp.csr_array]:
    """Distinct rows up to a factor, and the factors."""
    height = part.height
    counts = np.bincount(part.row, minlength=height)
    if (counts == 1).all():
        return _by_inputs(part)
    first = np.r_[0, np.cumsum(counts)[:-1]]
    lead = part.coefficient[first]
    normal = part.coefficient / lead[part.row]
    if np.unique(counts * (int(part.column.max()) + 1) + part.column[first]).size == height:
        # Rows that are multiples of each other have as many entries, from the same column on: none are.
        return LinearMap(part.row, part.column, normal, height), sp.csr_array(sp.diags_array(lead))
    # Rows that are multiples of each other agree in these sums; whether they really are is checked below.
    golden = 1 + np.modf((part.column + 1) * 0.6180339887498949)[0]
    silver = 1 + np.modf((part.column + 1) * 0.4142135623730951)[0]
    signature = np.c_[
        counts,
        part.column[first],
        np.round(sum_by(part.row, weights=normal * golden, minlength=height), 9),
        np.round(sum_by(part.row, weights=normal * silver, minlength=height), 9),
    ]
    _, representative, group = np.unique(signature, axis=0, return_index=True, return_inverse=True)
    group = np.ravel(group)
    if not _same_rows(part, normal, first, counts, representative[group]):
        representative = group = np.arange(height)
    chosen = np.zeros(height, dtype=bool)
    chosen[representative] = True
    number = np.full(height, -1, dtype=np.int64)
    number[representative] = np.arange(representative.size)
    keep = chosen[part.row]
    queries = LinearMap.of(number[part.row[keep]], part.column[keep], normal[keep], int(representative.size))
    recover = sp.csr_array((lead, group, np.arange(height + 1)), shape=(height, int(representative.size)))
    return queries, recover


def _same_rows(part: LinearMap, normal: Floats, first: Integers, counts: Integers, model_row: Integers) -> bool:
    """Whether every row equals (up to rounding) the row it is to be rebuilt from."""
    if not (counts == counts[model_row]).all():
        return False
    within = np.arange(part.nnz) - first[part.row]
    twin = first[model_row[part.row]] + within
    same_columns = bool((part.column == part.column[twin]).all())
    return same_columns and bool((np.abs(normal - normal[twin]) <= 1e-12 * np.abs(normal)).all())


def _by_inputs(part: LinearMap) -> tuple[LinearMap, sp.csr_array]:
    columns, number = numbered(part.column)
    k = int(columns.size)
    queries = LinearMap(np.arange(k, dtype=np.int64), columns, np.ones(k), k)
    ends = np.cumsum(np.bincount(part.row, minlength=part.height))  # rows are in order
    return queries, sp.csr_array((part.coefficient, number, np.append(0, ends)), shape=(part.height, k))


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
