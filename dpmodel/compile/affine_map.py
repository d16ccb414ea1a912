"""The standard form as an affine function of the parameters.

A lowered problem reads: minimise ``c'x + d`` subject to ``b - A x`` in a product of cones, where
every entry of c, d, b and A is an affine function of the parameter vector theta. ``AffineMap`` holds those
functions as coordinates (row, column, coefficient); nothing in it depends on any parameter's value.

How far one record moves such functions is found for all units at once (``max_linear``, ``max_squares``). One
record changes a unit of a parameter by d, free within ``|d_j| <= cap_j``, ``||d||_1 <= l1``, ``||d||_2 <= l2`` and, per
matrix row i, ``||d_i||_1 <= row_l1``. The set is symmetric in the sign of every d_j, so for weights w >= 0 the maximum
of ``sum w_j d_j`` is the support function of a box cut by balls. Without the 2-norm the constraints are nested sums
(entry, row, unit), and filling entries in decreasing order of weight is optimal (greedy on a laminar family). With it,
every multiplier mu >= 0 of the 1-norm gives an upper bound (weak duality). Without row sums the best mu gives the
maximum itself; row sums are left out there, so with both the result is an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.marks.bounds import Ball
from dpmodel.marks.layout import some
from dpmodel.marks.layout import sum_by as sum_by
from dpmodel.numerics.array_program import ConeBlock, ConeKind


@dataclass(frozen=True)
class LinearMap:
    """``height`` linear functions of theta, as coordinates.

    ``row``, ``column`` : (nnz,) integers; ``coefficient`` : (nnz,) floats, perhaps one number broadcast. Pairs of
    row and column are unique.
    """

    row: Integers
    column: Integers
    coefficient: Floats
    height: int

    @property
    def nnz(self) -> int:
        return int(self.row.size)

    @cached_property
    def positions(self) -> Integers:
        """(r,) the rows with a coefficient, increasing; computed once, as a map may have millions of coordinates."""
        if (self.row[1:] > self.row[:-1]).all():
            return self.row
        if (self.row[1:] < self.row[:-1]).any():
            return np.unique(self.row)
        return self.row[np.diff(self.row, prepend=-1) > 0]  # much faster than ``np.unique`` where rows are in order

    @property
    def single(self) -> bool:
        """Whether no row has two coefficients."""
        return self.positions.size == self.nnz

    @cached_property
    def columns_between(self) -> tuple[int, int]:
        """The first and the last entry of theta with a coefficient."""
        return (int(self.column.min()), int(self.column.max())) if self.nnz else (0, -1)

    @cached_property
    def repeats(self) -> bool:
        """Whether some entry of theta has two coefficients."""
        return bool(self.nnz) and int(np.bincount(self.column).max()) > 1

    def units_of(self, block: ThetaBlock) -> Integers:
        """(nnz,) the unit that owns each coefficient's entry of theta, where all lie in ``block``; computed once."""
        if block.offset not in self.found:
            units = block.parameter.layout.units
            short = units.astype(np.int32) if units.max(initial=0) < 2**31 else units
            self.found[block.offset] = short[self.column - block.offset if block.offset else self.column]
        units_here: Integers = self.found[block.offset]
        return units_here

    @cached_property
    def found(self) -> dict[Hashable, Any]:
        """Memory for public facts of this map, which are computed once."""
        return {}

    def within(self, block: ThetaBlock) -> bool:
        """Whether all coefficients are of entries in ``block``."""
        first, last = self.columns_between
        return block.offset <= first and last < block.offset + block.size

    def compact(self) -> LinearMap:
        """The map without its empty rows: row i is row ``positions[i]``."""
        if self.positions is self.row:
            row = np.arange(self.nnz, dtype=np.int64)
        elif (self.row[1:] >= self.row[:-1]).all():
            row = np.cumsum(np.diff(self.row, prepend=self.row[:1]) > 0)
        else:
            row = np.searchsorted(self.positions, self.row)
        return LinearMap(row, self.column, self.coefficient, self.positions.size)

    def select(self, mask: npt.NDArray[np.bool_]) -> LinearMap:
        if mask.all():
            return self
        return LinearMap(self.row[mask], self.column[mask], some(self.coefficient, mask), self.height)

    def apply(self, theta: Floats) -> Floats:
        """(height,) values at ``theta``; only for maps of moderate height (not the matrix map)."""
        return sum_by(self.row, weights=self.coefficient * theta[self.column], minlength=self.height)

    def tocsr(self, width: int) -> sp.csr_array:
        return sp.csr_array((self.coefficient, (self.row, self.column)), shape=(self.height, width))

    @staticmethod
    def of(row: Any, column: Any, coefficient: Any, height: int) -> LinearMap:
        """Coordinates with duplicates added up and zeros dropped."""
        row = np.asarray(row, dtype=np.int64)
        column = np.asarray(column, dtype=np.int64)
        coefficient = np.asarray(coefficient, dtype=np.float64)
        after = row[1:] > row[:-1]
        if not after.all():
            if not (after | ((row[1:] == row[:-1]) & (column[1:] > column[:-1]))).all():
                # Mostly a few runs sorted by row, which a stable sort merges; by both keys only where needed.
                order = np.argsort(row, kind="stable")
                sorted_row = row[order]
                if ((sorted_row[1:] == sorted_row[:-1]) & (np.diff(column[order]) < 0)).any():
                    order = np.lexsort((column, row))
                row, column, coefficient = row[order], column[order], coefficient[order]
            new = (row[1:] != row[:-1]) | (column[1:] != column[:-1])
            if not new.all():
                starts = np.append(0, np.flatnonzero(new) + 1)
                coefficient = np.add.reduceat(coefficient, starts)
                row, column = row[starts], column[starts]
        keep = coefficient != 0
        if not keep.all():
            row, column, coefficient = row[keep], column[keep], coefficient[keep]
        return LinearMap(row, column, coefficient, int(height))


def joined(parts: Sequence[LinearMap]) -> LinearMap:
    """The sum of linear maps of the same height."""
    nonzero = [part for part in parts if part.nnz]
    if len(nonzero) <= 1:
        return nonzero[0] if nonzero else parts[0]
    return LinearMap.of(
        np.concatenate([part.row for part in nonzero]),
        np.concatenate([part.column for part in nonzero]),
        np.concatenate([part.coefficient for part in nonzero]),
        nonzero[0].height,
    )


def private_mask(blocks: Iterable[ThetaBlock], theta_size: int) -> npt.NDArray[np.bool_]:
    """(P,) mask of the private entries of theta."""
    mask = np.zeros(theta_size, dtype=bool)
    for block in blocks:
        if block.private:
            mask[block.columns] = True
    return mask


def numbered(values: Integers) -> tuple[Integers, Integers]:
    """The distinct values, increasing, and for each of ``values`` the number of its own; nothing is sorted."""
    if not values.size:
        return values, values
    present = np.zeros(int(values.max()) + 1, dtype=bool)
    present[values] = True
    distinct = np.flatnonzero(present)
    place = np.empty(present.size, dtype=np.int64)
    place[distinct] = np.arange(distinct.size)
    return distinct, place[values]


def coordinates_of(position: Integers, rows: int) -> tuple[Integers, Integers]:
    """Row and column of entries at ``row + rows * column`` of a matrix."""
    column = position // max(rows, 1)
    row = column * max(rows, 1)
    return np.subtract(position, row, out=row), column  # several times faster than the remainder


def by_columns(data: Floats, row: Integers, column: Integers, shape: tuple[int, int]) -> sp.csr_array:
    """CSR matrix of entries that are given column by column, in order."""
    if shape[0] < 2**16:  # short integers are sorted by counting, which is faster than by way of CSC
        order = np.argsort(row.astype(np.uint16), kind="stable")
        ends = np.append(0, np.cumsum(np.bincount(row, minlength=shape[0])))
        return sp.csr_array((data[order], column[order], ends), shape=shape)
    ends = np.cumsum(np.bincount(column, minlength=shape[1]))
    return sp.csc_array((data, row, np.append(0, ends)), shape=shape).tocsr()


@dataclass(frozen=True)
class ThetaBlock:
    """Where one parameter's free entries lie in theta, and the parameter (a cvxpy leaf)."""

    parameter: Any
    offset: int
    size: int
    private: bool

    @property
    def columns(self) -> slice:
        return slice(self.offset, self.offset + self.size)

    @property
    def name(self) -> str:
        return str(self.parameter.name())

    @property
    def why_not_integer(self) -> str:
        """Why the parameter may hold fractions, after its own clipping; "" where it holds integers by declaration."""
        parameter = self.parameter
        if parameter.attributes["integer"] is not True and parameter.attributes["boolean"] is not True:
            grid = "Private(..., integer=True), after multiplying decimals by the inverse of their grid"
            return f"{self.name} is not declared whole; {grid}"
        if any(math.isfinite(parameter.magnitude[key]) for key in ("max_l1", "max_l2")):
            return f"{self.name} is scaled to max_l1 or max_l2"
        ends = np.concatenate(parameter.entry_range)  # bounds and max_linf
        integral = (ends == np.rint(ends)) | ~np.isfinite(ends)
        return "" if integral.all() else f"{self.name} has bounds that are not whole"


@dataclass(frozen=True)
class AffineMap:
    """The standard form as a function of theta = (parameters, 1).

    ``variables`` : number of columns n; ``rows`` : number of rows m; ``theta_size`` : P, the constant 1
    included as the last entry. ``objective`` (height n), ``offset`` (height 1), ``scalar`` (height m) and
    ``matrix`` (height m * n; its row ``i + m * j`` is entry (i, j) of A) are linear maps of theta. The last is kept as
    its coefficients of public numbers and of private ones, ``public_matrix`` and ``private_matrix``: there may be
    millions of them.
    ``column_names`` : (n,) name of the variable behind each column; ``variable_columns`` : id of a user's variable ->
    its first column, for variables whose entries are columns one to one.
    """

    variables: int
    rows: int
    theta_size: int
    objective: LinearMap
    offset: LinearMap
    scalar: LinearMap
    public_matrix: LinearMap
    private_matrix: LinearMap
    cones: tuple[ConeBlock, ...]
    parameters: tuple[ThetaBlock, ...]
    column_names: tuple[str, ...]
    variable_columns: Mapping[int, int]
    boolean: Integers
    integer: Integers
    maximize: bool

    @property
    def matrix(self) -> LinearMap:
        """All of A, joined at every call."""
        return joined([self.public_matrix, self.private_matrix])

    @cached_property
    def private_blocks(self) -> tuple[ThetaBlock, ...]:
        return tuple(block for block in self.parameters if block.private)

    @cached_property
    def private_columns(self) -> npt.NDArray[np.bool_]:
        """(P,) mask of the private entries of theta."""
        mask = private_mask(self.parameters, self.theta_size)
        mask.setflags(write=False)  # every caller gets this array
        return mask

    @cached_property
    def private_parts(self) -> Mapping[str, LinearMap]:
        """The private coefficients of objective, offset and scalar."""
        private, parts = self.private_columns, ("objective", "offset", "scalar")
        return {name: getattr(self, name).select(private[getattr(self, name).column]) for name in parts}

    @cached_property
    def private_coordinates(self) -> tuple[Integers, Integers]:
        """Row and column of A of every private coefficient, in the order of ``private_matrix``."""
        position, m = self.private_matrix.row, self.rows
        if self.private_matrix.positions is position and self.variables <= position.size:
            # Positions are in order, so nothing has to be divided.
            starts = np.searchsorted(position, m * np.arange(self.variables + 1, dtype=np.int64))
            column = np.repeat(np.arange(self.variables), np.diff(starts))
            row = position - np.repeat(m * np.arange(self.variables, dtype=np.int64), np.diff(starts))
        else:
            row, column = coordinates_of(position, m)
        if max(self.rows, self.variables) < 2**31:  # as SciPy's matrices have, in half the memory
            row, column = row.astype(np.int32), column.astype(np.int32)
        row.setflags(write=False)
        column.setflags(write=False)
        return row, column

    def equalities(self) -> npt.NDArray[np.bool_]:
        """(m,) whether each row lies in a zero cone."""
        return self._of_kind("zero")

    def inequalities(self) -> npt.NDArray[np.bool_]:
        """(m,) whether each row lies in a nonneg cone."""
        return self._of_kind("nonneg")

    def _of_kind(self, kind: ConeKind) -> npt.NDArray[np.bool_]:
        mask = np.zeros(self.rows, dtype=bool)
        for block in self.cones:
            if block.kind == kind:
                mask[block.rows] = True
        return mask

    def block_of_row(self) -> Integers:
        """(m,) number of the cone block of each row."""
        sizes = [block.size for block in self.cones]
        return np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)

    def is_linear(self) -> bool:
        return all(block.kind in ("zero", "nonneg") for block in self.cones)


def group_ids(*keys: Integers) -> tuple[Integers, int]:
    """Number the distinct tuples of ``keys`` in order: (size,) ids and their count."""
    if keys[0].size == 0:
        return np.zeros(0, dtype=np.int64), 0
    combined = keys[0].astype(np.int64, copy=False)
    for key in keys[1:]:
        combined = combined * (int(key.max()) + 1) + key
    steps = np.diff(combined)
    if (steps >= 0).all():
        ids = np.concatenate([[0], np.cumsum(steps > 0)])
        return ids, int(ids[-1]) + 1
    # Keys come in long sorted runs (rows within columns): a merge sort profits, the sort of ``np.unique`` does not.
    order = np.argsort(combined, kind="stable")
    fresh = np.diff(combined[order]) > 0
    ids = np.empty(combined.size, dtype=np.int64)
    ids[order] = np.concatenate([[0], np.cumsum(fresh)])
    return ids, int(fresh.sum()) + 1


def largest_group(*keys: Integers) -> int:
    """The largest number of equal tuples of ``keys``."""
    if keys[0].size == 0:
        return 0
    combined = keys[0].astype(np.int64, copy=False)
    for key in keys[1:]:
        combined = combined * (int(key.max()) + 1) + key
    if (combined[1:] > combined[:-1]).all():
        return 1
    return int(np.bincount(group_ids(combined)[0]).max())


def most_items(units: Integers, items: Integers) -> int:
    """The largest number of distinct ``items`` that one unit has."""
    if units.size == 0:
        return 0
    if np.array_equal(units + (int(items[0]) - int(units[0])), items):  # items are the units, shifted
        return 1
    # Mostly each unit has one item, which is seen without sorting: the one written last to its place is that of all.
    last = np.zeros(int(units.max()) + 1, dtype=np.int64)
    last[units] = items
    if np.array_equal(last[units], items):
        return 1
    pairs = items.astype(np.int64) * last.size + units
    if (pairs[1:] > pairs[:-1]).all():  # by items and then by units: all are distinct
        return int(np.bincount(units).max())
    ids, count = group_ids(units, items)
    owner = np.zeros(count, dtype=np.int64)
    owner[ids] = units
    return int(np.bincount(owner).max())


def max_linear(weights: Floats, caps: Floats, groups: Integers, count: int, rows: Integers, ball: Ball) -> Floats:
    """(count,) maximum of ``sum_j weights_j |d_j|`` over each group's changes; a bound under 2-norm and ``row_l1``.

    ``weights, caps, groups, rows`` : (size,); weights are non-negative, caps may be infinite;
    ``rows`` are the matrix rows that ``row_l1`` speaks of.
    """
    weights, caps, groups, rows = _positive(weights, caps, groups, rows, ball)
    if weights.size == 0:
        return np.zeros(count)
    taken = _amounts(weights, caps, groups, rows, ball)
    bound = sum_by(groups, weights=weights * taken, minlength=count)
    # The maximum under the other bounds is the answer where it keeps the 2-norm too.
    over = sum_by(groups, weights=taken**2, minlength=count) > ball.l2**2 * (1 + 1e-12)
    if over.any():
        within = over[groups]
        tighter = _with_two_norm(weights[within], caps[within], groups[within], count, ball)
        bound[over] = np.minimum(bound, tighter)[over]
    return bound


def max_squares(weights: Floats, caps: Floats, groups: Integers, count: int, rows: Integers, ball: Ball) -> Floats:
    """(count,) maximum of ``sum_j weights_j d_j^2``: exact for equal caps and no row bound, else an upper bound.

    A convex function is largest at an extreme point. With equal caps and a 1-norm those have full
    entries and one remainder, and filling by decreasing weight is best. Otherwise
    ``d_j^2 <= cap_j |d_j|`` reduces to the linear case, which is exact when every entry is 0 or full.
    The 2-norm alone is the linear case in d^2.
    """
    weights, caps, groups, rows = _positive(weights, caps, groups, rows, ball)
    if weights.size == 0:
        return np.zeros(count)
    flat = Ball(ball.l1, np.inf, ball.row_l1)
    equal = bool(np.isfinite(caps[0]) and (caps == caps[0]).all())
    if equal and not np.isfinite(ball.row_l1):
        taken, order = _greedy(weights, caps, groups, ball.l1)
        bound = sum_by(groups[order], weights=weights[order] * taken**2, minlength=count)
    elif np.isinf(caps).any():
        bound = np.full(count, np.inf)
        finite = np.ones(count, dtype=bool)
        finite[groups[np.isinf(caps)]] = False
        keep = finite[groups]
        inner = _fill(weights[keep] * caps[keep], caps[keep], groups[keep], count, rows[keep], flat)
        bound[finite] = inner[finite]
    else:
        bound = _fill(weights * caps, caps, groups, count, rows, flat)
    if np.isfinite(ball.l2):
        squares = Ball(ball.l2**2, np.inf, np.inf)
        bound = np.minimum(bound, _fill(weights, caps**2, groups, count, rows, squares))
    return bound


def _positive(weights: Floats, caps: Floats, groups: Integers, rows: Integers, ball: Ball) -> Any:
    """Entries of positive weight, their caps at most the norms of the ball."""
    weights = np.asarray(weights, dtype=np.float64)
    active = weights > 0
    if not active.all():
        weights, caps, groups, rows = weights[active], caps[active], groups[active], rows[active]
    return weights, np.minimum(caps, min(ball.l1, ball.l2, ball.row_l1)), groups, rows


def _fill(weights: Floats, caps: Floats, groups: Integers, count: int, rows: Integers, ball: Ball) -> Floats:
    """(count,) value of greedy filling."""
    return sum_by(groups, weights=weights * _amounts(weights, caps, groups, rows, ball), minlength=count)


def _amounts(weights: Floats, caps: Floats, groups: Integers, rows: Integers, ball: Ball) -> Floats:
    """(size,) amounts of greedy filling under caps of entries, sums of rows and sums of units."""
    if np.isfinite(ball.row_l1):
        caps = _in_place(*_greedy(weights, caps, group_ids(groups, rows)[0], ball.row_l1))
    if np.isfinite(ball.l1):
        caps = _in_place(*_greedy(weights, caps, groups, ball.l1))
    return caps


def _in_place(taken: Floats, order: Integers) -> Floats:
    out = np.empty_like(taken)
    out[order] = taken
    return out


def _greedy(weights: Floats, caps: Floats, groups: Integers, total: float) -> tuple[Floats, Integers]:
    """Fill entries of each group by decreasing weight up to ``total``: the amounts, and the order they come in."""
    order = np.lexsort((-weights, groups))
    if not np.isfinite(total):
        return caps[order], order
    sorted_groups = groups[order]
    sorted_caps = np.minimum(caps[order], total)
    # What is filled before an entry is summed in integer multiples of 2^-bits of the total, rounded down, so
    # that the room left is never understated and sums over many groups are exact.
    bits = min(40, 62 - int(np.ceil(np.log2(sorted_groups.size + 1))))
    amounts = np.floor(sorted_caps / total * 2.0**bits).astype(np.int64)
    before = _running_before(amounts, sorted_groups)
    room = (1.0 - before * 2.0**-bits) * total
    return np.clip(room, 0.0, sorted_caps), order


def _running_before(values: Any, sorted_groups: Integers) -> Any:
    """Per-group running sums that leave out the entry itself; ``sorted_groups`` has equal ids side by side."""
    if values.size == 0:
        return values
    starts = np.flatnonzero(np.r_[True, sorted_groups[1:] != sorted_groups[:-1]])
    lengths = np.diff(np.r_[starts, sorted_groups.size])
    running = np.cumsum(values) - values
    return running - np.repeat(running[starts], lengths)


def _with_two_norm(weights: Floats, caps: Floats, groups: Integers, count: int, ball: Ball) -> Floats:
    """(count,) upper bound under caps, 1-norm and 2-norm, least over the 1-norm's multiplier (golden section)."""

    def boxed_ball(w: Floats) -> Floats:
        return _box_and_ball(w, caps, groups, count, ball.l2)

    if not np.isfinite(ball.l1):
        return boxed_ball(weights)
    low = np.zeros(count)
    high = np.zeros(count)
    np.maximum.at(high, groups, weights)

    def value(mu: Floats) -> Floats:
        return mu * ball.l1 + boxed_ball(np.maximum(weights - mu[groups], 0.0))

    best = np.minimum(value(low), value(high))
    golden = (np.sqrt(5) - 1) / 2
    for _ in range(40):
        left = high - golden * (high - low)
        right = low + golden * (high - low)
        at_left, at_right = value(left), value(right)
        best = np.minimum(best, np.minimum(at_left, at_right))
        smaller = at_left <= at_right
        low, high = np.where(smaller, low, left), np.where(smaller, right, high)
    return best


def _box_and_ball(weights: Floats, caps: Floats, groups: Integers, count: int, l2: float) -> Floats:
    """(count,) maximum of ``w'd`` over ``0 <= d <= cap``, ``||d||_2 <= l2``.

    For every lam > 0, ``sum_j max_{0<=d<=cap} (w d - lam d^2 / 2) + lam l2^2 / 2`` is an upper bound, and the best
    lam attains the maximum (strong duality). Entries with w / cap >= lam are full, so between
    neighbouring ratios the bound is smooth and its best lam has a closed form. Sums over prefixes
    only choose lam; the bound itself is summed afresh per group.
    """
    everything = sum_by(groups, weights=weights * caps, minlength=count)
    if weights.size == 0:
        return everything
    lengths = np.sqrt(sum_by(groups, weights=weights**2, minlength=count))
    with np.errstate(invalid="ignore"):
        if (weights * l2 <= caps * lengths[groups]).all():  # the ball's own maximum lies inside every cap
            return np.minimum(l2 * lengths, everything)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.where(np.isinf(caps), 0.0, weights / caps)
    order = np.lexsort((-ratio, groups))
    g, w, u, r = groups[order], weights[order], caps[order], ratio[order]
    u = np.where(np.isinf(u), 0.0, u)  # never full: their ratio is 0
    squares = w**2
    full_square = _running_before(u**2, g)
    rest = np.maximum(sum_by(g, weights=squares, minlength=count)[g] - _running_before(squares, g), squares)
    upper = np.r_[np.inf, r[:-1]]
    upper[np.r_[True, g[1:] != g[:-1]]] = np.inf
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        radius = l2**2 - full_square
        lam = np.where(radius > 0, np.sqrt(rest / np.maximum(radius, 1e-300)), np.inf)
        lam = np.minimum(np.maximum(lam, r), upper)
        guess = _running_before(w * u, g) - lam / 2 * full_square + rest / (2 * lam) + lam * l2**2 / 2
    guess = np.where(np.isfinite(guess) & (lam > 0), guess, np.inf)
    least = np.full(count, np.inf)
    np.minimum.at(least, g, guess)
    chosen = np.zeros(count)
    hit = (guess == least[g]) & np.isfinite(guess)
    chosen[g[hit]] = lam[hit]
    lam = chosen[groups]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        best = np.minimum(caps, np.where(lam > 0, weights / lam, 0.0))
        terms = weights * best - lam / 2 * best**2
    bound = sum_by(groups, weights=terms, minlength=count) + chosen / 2 * l2**2
    return np.where(chosen > 0, np.minimum(bound, everything), everything)
