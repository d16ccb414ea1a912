"""Private constraints as a list of rows ``G x <= h``, each a function of few records: public facts, and the rows.

All bounds speak of every database that the annotations allow. They hold for rows as computed, because private values
are clipped to their declared ranges before they are sealed. A mechanism's ``run`` asks a ``RowTable`` for sums over the
rows, and is the same whether they lie in memory (one part) or in blocks elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Array, Floats, Integers, Mask, PrivateArray
from dpmodel.compile.affine_map import AffineMap, most_items
from dpmodel.compile.footprint import most_touched, record_blocks
from dpmodel.compile.form import StandardForm, ranges_in_order
from dpmodel.compile.rows import BlockRows, MemoryRows, RecordRows, added, summed
from dpmodel.contract import Verdict
from dpmodel.marks.layout import each, same_for_all, sum_by
from dpmodel.memo import cached
from dpmodel.numerics.polyhedron import Polyhedron
from dpmodel.programs.model import PrivateNumbers, Program

T = TypeVar("T")
# Relative rows whose own width is below this (their numbers are zero or nearly subnormal) read ``0 <= 0``.
_TINY = 1e-290


@dataclass(frozen=True)
class RowPart:
    """Some of the rows.

    ``blocks`` : (matrix (k, w), factor, start): G has ``factor * matrix`` in the columns start .. start + w; matrices
    are dense or CSR. ``shared`` (n,) : public numbers added to every row of G, or None. ``h`` (k,). ``here`` (k,) : 0
    for absent rows, which read ``0 <= 0``, 1 for others; None: all are there.
    """

    blocks: tuple[tuple[Any, float, int], ...]
    h: PrivateArray
    size: int
    shared: Floats | None = None
    here: Floats | None = None

    @property
    def count(self) -> int:
        return int(self.h.size)

    def residual(self, x: Floats) -> PrivateArray:
        """(k,) ``G x - h``. One product with the rows."""
        products = [matrix @ (factor * x[start : start + matrix.shape[1]]) for matrix, factor, start in self.blocks]
        out = products[0] if products else np.zeros(self.count)
        for other in products[1:]:
            out += other
        out -= self.h
        if self.shared is not None:
            out += float(self.shared @ x)
        if self.here is not None:
            out *= self.here
        return PrivateArray(out)

    def pull(self, weights: Floats) -> PrivateArray:
        """(n,) ``G' weights``. One product with the rows."""
        if self.here is not None:
            weights = weights * self.here
        out = np.zeros(self.size) if self.shared is None else self.shared * float(weights.sum())
        for (matrix, factor, start), turned in zip(self.blocks, self._turned, strict=True):
            out[start : start + matrix.shape[1]] += factor * (turned @ weights)
        return PrivateArray(out)

    @cached_property
    def _turned(self) -> tuple[Any, ...]:
        """Views: the matrices turned, made once."""
        return tuple(matrix.T for matrix, _, _ in self.blocks)

    def matrix(self) -> sp.csr_array:
        """(k, n) G."""
        out = sp.csr_array((self.count, self.size))
        for matrix, factor, start in self.blocks:
            entries = sp.coo_array(matrix)
            place = entries.row, entries.col + start
            out = out + sp.csr_array((factor * entries.data, place), shape=out.shape)
        if self.shared is not None:
            out = out + sp.csr_array(np.ones((self.count, 1))) @ sp.csr_array(self.shared[None])
        return sp.csr_array(out if self.here is None else sp.diags_array(self.here) @ out)


@dataclass(frozen=True)
class Widths:
    """How wide a row without public bounds is, by which it is divided: ``scale`` (n,) times its entries, of which the
    sum counts, or the largest (``by_norm``), plus its side."""

    scale: Floats
    by_norm: bool

    def shares(self, G: sp.csr_array, h: PrivateArray) -> tuple[sp.csr_array, PrivateArray]:
        """The rows divided by their own widths."""
        size = abs(G)
        largest = size.max(axis=1).toarray().ravel() * float(self.scale[0]) if self.by_norm else size @ self.scale
        width = np.asarray(largest).ravel() + np.abs(h)
        sized = np.isfinite(width) & (width > _TINY)
        factor = np.divide(1.0, width, out=np.zeros_like(width), where=sized)
        G.data[np.repeat(~sized, np.diff(G.indptr))] = 0.0
        # Columns that the public set fixes at zero are outside the width, and say nothing.
        G = sp.csr_array(sp.diags_array(factor) @ G @ sp.diags_array((self.scale > 0).astype(float)))
        return G, PrivateArray(np.where(sized, h, 0.0) * factor)


@dataclass(frozen=True)
class Treatment:
    """What makes inequalities with bounds of the rows of records; public, and it travels to where blocks lie.

    ``equalities`` : per kind of row; these stand twice, with both signs. ``absent`` : rows whose private numbers are
    all zero read ``0 <= 0``. ``widths`` : of rows without public bounds, else None.
    """

    equalities: tuple[bool, ...]
    size: int
    absent: bool
    widths: Widths | None

    def parts(self, rows: RecordRows) -> Iterator[RowPart]:
        with np.errstate(over="ignore", invalid="ignore"):  # a warning would tell of an odd record
            part = RowPart(rows.blocks, rows.sides, self.size, rows.shared, _here(rows) if self.absent else None)
            for sign in (1.0, -1.0) if self.equalities[rows.kind] else (1.0,):
                yield self._shared(_signed(part, sign))

    def _shared(self, part: RowPart) -> RowPart:
        if self.widths is None:
            # An absent row is met with equality.
            return part
        h = part.h if part.here is None else PrivateArray(part.h * part.here)
        G, h = self.widths.shares(part.matrix(), h)
        return RowPart(((G, 1.0, 0),), h, self.size)


@dataclass(frozen=True)
class RowTable:
    """The private rows of a program, of which sums can be asked: all of them ``in_memory``, or ``blocks`` as
    inequalities by ``treatment``."""

    in_memory: tuple[RowPart, ...] | None
    blocks: BlockRows | None = None
    treatment: Treatment | None = None

    def map_reduce(self, function: Callable[[RowPart], T], combine: Callable[[T, T], T] = added) -> T:
        """``function`` of every part, combined, in one pass. Both are pure and can be pickled: they may run elsewhere,
        and again if they fail there."""
        if self.in_memory is not None:
            return reduce(combine, map(function, self.in_memory))
        assert self.blocks is not None and self.treatment is not None
        by_block = partial(_treated, self.treatment, function, combine)
        return summed(self.blocks.source, self.blocks, by_block, combine)


def _treated(
    treatment: Treatment, function: Callable[[RowPart], T], combine: Callable[[T, T], T], rows: RecordRows
) -> T:
    return reduce(combine, map(function, treatment.parts(rows)))


def _signed(part: RowPart, sign: float) -> RowPart:
    if sign > 0:
        return part
    blocks = tuple((matrix, -factor, start) for matrix, factor, start in part.blocks)
    shared = None if part.shared is None else -part.shared
    return RowPart(blocks, PrivateArray(-part.h), part.size, shared, part.here)


def _here(rows: RecordRows) -> Floats:
    """(k,) private: 1 for rows with a private number that is not zero."""
    out = np.zeros(rows.sides.size, dtype=bool)
    for numbers in rows.numbers:
        out |= np.diff(numbers.indptr) > 0 if sp.issparse(numbers) else (numbers != 0).any(axis=1)
    return out.astype(np.float64)


# ---------------------------------------------------------------- public facts
# What points of a solver miss bounds by, and more than sums of entries are rounded by.
_SOLVER = 1e-6


def public_polyhedron(model: Program) -> Polyhedron:
    """The public constraints of a linear model."""
    return model.public.polyhedron


def plain_rows(model: Program, *, integers: bool = False) -> Verdict | None:
    """No, unless the model is a linear program over continuous variables (or ``integers``) whose private rows are as
    written."""
    if not model.affine.is_linear():
        return Verdict(False, "serves linear programs (no second-order, semidefinite, exponential or power cones)")
    if (model.affine.boolean.size or model.affine.integer.size) and not integers:
        return Verdict(False, "serves continuous variables")
    if model.split_rows:
        return Verdict(False, "CVXPY split an expression with private numbers into rows: it serves plain constraints")
    return None


@cached
def plain_linear(model: Program, *, integers: bool = False) -> Verdict | None:
    """``plain_rows`` over a bounded public set."""
    refused = plain_rows(model, integers=integers)
    if refused is not None:
        return refused
    if not _bounded(model):
        return Verdict(
            False, "the public constraints do not bound x; give bounds=[lo, hi] or a public constraint that bounds it"
        )
    return None


def _bounded(model: Program) -> bool:
    """Whether the public constraints bound x, or contradict each other."""
    if model.public.program.keep.any():
        if model.public.endless and model.public.feasible:
            return False  # most unbounded sets, without a polyhedron
        polytope = public_polyhedron(model)
        return all(np.isfinite(end).all() for end in polytope.box) or polytope.empty or math.isfinite(polytope.l1)
    lower, upper = model.public.box
    return bool((lower > upper).any()) or bool((np.isfinite(lower) & np.isfinite(upper)).all())


@dataclass(frozen=True)
class PrivateRows:
    """The private rows of a linear model as inequalities ``G x <= h``; equalities stand twice, with both signs.

    ``index`` (k,) rows of the standard form, ``sign`` (k,) their signs. ``per_record`` : the most rows of G that one
    record reaches. ``absent`` : neighbors are add-remove, every row belongs to one record, and a row whose private
    numbers are all zero is absent; it reads ``0 <= 0``. ``relative`` : the values have no public bounds; every row is
    divided by its own width ``w = scale |a| + |b|`` (a function of this row alone), so violations are shares of it.
    ``lower, upper`` (n,) : bounds of the entries of every row of G; ``h_lower, h_upper`` : of h;
    ``norm1, norm2, norminf`` : bounds of the norms of one row. Zero rows are inside all bounds.
    ``h_present`` : bounds of h over rows that are not absent. ``residual`` : bounds of ``G_i x - h_i`` over the box of
    the public set, row by row, widened by what points of a solver may miss the box and sums are rounded by.
    """

    model: Program
    index: Integers
    sign: Floats
    per_record: int
    absent: bool
    relative: bool
    lower: Floats
    upper: Floats
    h_lower: float
    h_upper: float
    norm1: float
    norm2: float
    norminf: float
    h_present: tuple[float, float]
    residual: tuple[float, float]

    @property
    def count(self) -> int:
        return self.model.all_rows(int(self.index.size))

    # ------------------------------------------------------------------ how far rows can differ
    def swing(self, order: int) -> float:
        """Largest 1- or 2-norm of the difference of two rows of G (zero rows included)."""
        return self._swings[order - 1]

    @cached_property
    def _swings(self) -> tuple[float, float]:
        span, one_sign = self.upper - self.lower, bool(((self.lower >= 0) | (self.upper <= 0)).all())
        # Rows of one sign have a non-negative inner product.
        apart = (math.sqrt(2) if one_sign else 2) * self.norm2
        return min(float(span.sum()), 2 * self.norm1), min(float(np.linalg.norm(span)), apart)

    def sum_sensitivity(self, order: int) -> float:
        """Largest 1- or 2-norm sensitivity, by one record, of a sum over rows i of G_i or 0, chosen row by row."""
        one = (self.norm1 if order == 1 else self.norm2) if self.absent else self.swing(order)
        return self.per_record * one

    def residual_range(self, polytope: Polyhedron) -> tuple[float, float]:
        """Public bounds of ``G_i x - h_i`` over all rows, databases and points of ``polytope``, a part of the public
        set.

        Two ways, and the better of them: what any row with such entries can be over the polytope; and each row over the
        box, which counts for a column only in the rows that it stands in (an auxiliary variable per record, say).
        """
        if self.relative:
            return -1.0, 1.0
        low, high = polytope.box
        if (low >= 0).all():
            beyond = polytope.reaches(self.upper, self.residual[1] + self.h_present[0])  # the box says more
            up = math.inf if beyond else polytope.support(self.upper)
            down = polytope.support(-self.lower) if self.lower.any() else 0.0
            other = self.norm1 * float(high.max(initial=0.0)) if self.norm1 > 0 else 0.0  # the other norms say no more
        else:
            size = np.maximum(np.abs(self.lower), np.abs(self.upper))
            up = down = float(size @ np.maximum(np.abs(low), np.abs(high)))
            other = min(self.norm1 * polytope.linf, self.norminf * polytope.l1)
        up, down = min(max(up, 0.0), other), min(max(down, 0.0), other)
        # An absent row has residual zero.
        below, above = max(-down - self.h_present[1], self.residual[0]), min(up - self.h_present[0], self.residual[1])
        return min(0.0, below), max(0.0, above)

    # ------------------------------------------------------------------ the one reading of private values
    def values(self, theta: PrivateNumbers) -> tuple[sp.csr_array, PrivateArray]:
        """(k x n) G and (k,) h at theta; for a mechanism's ``run`` only. Rows whose unbounded numbers overflow read
        ``0 <= 0``, as do rows too small to divide; without a warning, which would tell."""
        assert isinstance(theta, np.ndarray)  # mechanisms that read no blocks are not asked
        with np.errstate(over="ignore", invalid="ignore"):
            G, h = rows_at(self.model, theta, self.index, absent=self.absent)
            if (self.sign < 0).any():
                G.data *= np.repeat(self.sign, np.diff(G.indptr))
                h *= self.sign
            return self._widths().shares(G, h) if self.relative else (G, h)

    def table(self, private: PrivateNumbers | RowTable) -> RowTable:
        """The same as a table, of which sums can be asked, wherever the rows lie; a table is one already."""
        if isinstance(private, np.ndarray):
            G, h = self.values(private)
            return RowTable((RowPart(((G, 1.0, 0),), h, int(G.shape[1])),))
        if not isinstance(private, BlockRows | MemoryRows):
            return private
        widths = self._widths() if self.relative else None
        equalities = tuple(kind.equality for kind in private.maker.kinds)
        treatment = Treatment(equalities, private.maker.size, self.absent, widths)
        if isinstance(private, BlockRows):
            return RowTable(None, private, treatment)
        return RowTable(tuple(part for rows in private.all() for part in treatment.parts(rows)))

    def _widths(self) -> Widths:
        return Widths(*_relative_scale(public_polyhedron(self.model)))


@cached
def private_rows(model: Program) -> PrivateRows:
    """The private rows of a linear model whose public set is bounded; computed once per problem."""
    form, affine = model.form, model.affine
    zero = affine.equalities()
    rows = np.flatnonzero(form.private_rows)
    index = np.concatenate([rows, rows[zero[rows]]])
    sign = np.concatenate([np.ones(rows.size), -np.ones(int(zero[rows].sum()))])
    both = zero[rows].any()
    low, high, least, most = _entry_bounds(model, rows, bool(both))
    h_low, h_high = form.side_range
    h_low, h_high = (form.b0 + h_low)[index], (form.b0 + h_high)[index]
    h_low, h_high = np.where(sign > 0, h_low, -h_high), np.where(sign > 0, h_high, -h_low)
    least, most = np.where(sign > 0, least[index], -most[index]), np.where(sign > 0, most[index], -least[index])
    residual = float((least - h_high).min(initial=0.0)), float((most - h_low).max(initial=0.0))
    residual = residual[0] - _SOLVER * (1 - residual[0]), residual[1] + _SOLVER * (1 + residual[1])
    h_lower, h_upper = float(h_low.min(initial=0.0)), float(h_high.max(initial=0.0))
    if h_low.size:
        h_lower, h_upper = float(h_low.min()), float(h_high.max())
    absent = rows_vanish(model)
    present = h_lower, h_upper
    if absent:
        h_lower, h_upper = min(h_lower, 0.0), max(h_upper, 0.0)
    size = np.maximum(np.abs(low), np.abs(high))
    norminf = float(size.max(initial=0.0))
    norm1, norm2 = _declared_norms(model, rows)
    norm1 = min(norm1, float(size.sum()))
    norm2 = min(norm2, float(np.linalg.norm(size)), math.sqrt(norm1 * norminf) if math.isfinite(norm1) else math.inf)
    relative = not (math.isfinite(norm1) and math.isfinite(h_lower) and math.isfinite(h_upper))
    if relative:
        scale, by_norm = _relative_scale(public_polyhedron(model))
        inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
        low, high = np.where(low < 0, -inverse, 0.0), np.where(high > 0, inverse, 0.0)
        h_lower, h_upper = (0.0 if h_lower >= 0 else -1.0), (0.0 if h_upper <= 0 else 1.0)
        norminf = float(inverse.max(initial=0.0))
        support = int(((low < 0) | (high > 0)).sum())
        norm1 = norminf * (support if by_norm else 1.0)
        norm2 = norminf * (math.sqrt(support) if by_norm else 1.0)
    return PrivateRows(
        model, index, sign, rows_per_record(model, zero), absent, relative,
        low, high, h_lower, h_upper, norm1, norm2, norminf, present, residual,
    )  # fmt: skip


def _relative_scale(polytope: Polyhedron) -> tuple[Floats, bool]:
    """Per column the factor in a row's own width, and whether the width is ``factor * max |a|`` instead of a sum."""
    low, high = polytope.box
    size = np.maximum(np.abs(low), np.abs(high))
    by_norm = polytope.l1 < float(size.sum()) / 2
    return (np.full(size.size, polytope.l1) if by_norm else size), by_norm


def _entry_bounds(model: Program, rows: Integers, both_signs: bool) -> tuple[Floats, Floats, Floats, Floats]:
    """(n,), (n,): bounds over the private rows of the entries of each column, zero included; and (m,), (m,): of every
    private row times x, over the box of the public set."""
    form, affine = model.form, model.affine
    low, high = np.zeros(affine.variables), np.zeros(affine.variables)
    ends = np.zeros(affine.rows), np.zeros(affine.rows)
    box = public_polyhedron(model).box
    row, column, entry = public_entries(model)
    np.minimum.at(low, column, entry)
    np.maximum.at(high, column, entry)
    shared = form.matrix.nnz and row.size
    if shared:
        fixed = ~at_private_entries(model, row, column)
        row, column, entry = row[fixed], column[fixed], entry[fixed]
    _add_ends(None, ends, row, entry, entry, box, column)
    if form.matrix.nnz:
        below, above = matrix_range(model)
        row, column = form.matrix_positions()
        if shared:
            constant = np.asarray(form.A0[row, column]).ravel()
            below, above = constant + below, constant + above
        first = np.r_[0, np.flatnonzero(column[1:] != column[:-1]) + 1]  # positions go column by column
        here = column[first]
        low[here] = np.minimum(low[here], below[0] if same_for_all(below) else np.minimum.reduceat(below, first))
        high[here] = np.maximum(high[here], above[0] if same_for_all(above) else np.maximum.reduceat(above, first))
        _add_ends(form, ends, row, below, above, box, column)
    return (np.minimum(low, -high), np.maximum(high, -low), *ends) if both_signs else (low, high, *ends)


@cached
def matrix_range(model: Program) -> tuple[Floats, Floats]:
    """Least and largest private contribution to every entry of A that has one, in the order of ``matrix_positions``."""
    return ranges_in_order(model.affine, model.form.matrix)


def public_entries(model: Program) -> tuple[Integers, Integers, Floats]:
    """Row, column and value of the public entries of A in the private rows."""
    A0 = model.form.A0
    row = np.repeat(np.arange(model.affine.rows), np.diff(A0.indptr))
    own = np.flatnonzero(model.form.private_rows[row])
    return row[own], A0.indices[own], A0.data[own]


def at_private_entries(model: Program, row: Integers, column: Integers) -> Mask:
    """Whether private numbers stand at these places of A too; ``np.isin`` takes long where they are millions."""
    private, place = model.form.matrix.positions, row + np.int64(model.affine.rows) * column
    if not private.size:
        return np.zeros(place.size, dtype=bool)
    return np.asarray(private[np.searchsorted(private, place).clip(max=private.size - 1)] == place)


def _add_ends(
    form: StandardForm | None,
    ends: tuple[Floats, Floats],
    row: Integers,
    low: Floats,
    high: Floats,
    box: tuple[Floats, Floats],
    column: Integers,
) -> None:
    """Add to the least and largest values of every row what entries between ``low`` and ``high`` contribute over the
    box. ``form`` : whose private entries they are, all of them; None for others."""
    alike = form if row.size > 1 and same_for_all(low) and same_for_all(high) else None  # one number for a column
    sides = box if alike else tuple(x[column] for x in box)
    least, most = np.full(sides[0].size, np.inf), np.full(sides[0].size, -np.inf)
    for end in (low[:1], high[:1]) if alike else (low, high):
        for x in sides:
            with np.errstate(invalid="ignore"):
                corner = end * x
            nothing = np.isnan(corner)  # zero times infinity: nothing is known
            np.minimum(least, np.where(nothing, -np.inf, corner), out=least)
            np.maximum(most, np.where(nothing, np.inf, corner), out=most)
    for end, part in zip(ends, (least, most), strict=True):
        end += alike.sums_by_column(part) if alike else sum_by(row, weights=part, minlength=end.size)


def _declared_norms(model: Program, rows: Integers) -> tuple[float, float]:
    """Bounds of the 1- and 2-norm of a row of A from declared magnitudes of the records' own units (inf if none)."""
    form, affine = model.form, model.affine
    public, _, entries = public_entries(model)
    l1, squares = (sum_by(public, weights=each, minlength=affine.rows) for each in (np.abs(entries), entries**2))
    if not form.matrix.nnz:
        return float(l1.max(initial=0.0)), math.sqrt(float(squares.max(initial=0.0)))
    row, column = form.matrix_coordinates()[0], form.matrix.column
    norms = [np.zeros(affine.rows), np.zeros(affine.rows)]
    once = form.matrix.single  # every entry of A depends on one private number
    for block in affine.private_blocks:
        part, here = form.matrix, row
        if not part.within(block):
            inside = (column >= block.offset) & (column < block.offset + block.size)
            part, here = part.select(inside), row[inside]
        if not part.nnz:
            continue
        limits = block.parameter.magnitude["max_l1"], block.parameter.magnitude["max_l2"]
        if not any(map(math.isfinite, limits)) or most_items(here, part.units_of(block)) > 1:
            for norm in norms:
                norm[here] = math.inf
            continue
        entry, size = part.column, each(np.abs, part.coefficient)
        gain, alone = np.zeros(affine.rows), not form.matrix.repeats
        if alone and same_for_all(size):
            gain[here] = size[0]
        elif alone:
            np.maximum.at(gain, here, size)
        else:  # coefficients of the same private number in the same row add up
            cell, number = np.unique(here * np.int64(affine.theta_size) + entry, return_inverse=True)
            alone = cell.size == number.size
            per_number = sum_by(number.astype(np.int64), weights=size, minlength=cell.size)
            np.maximum.at(gain, cell // affine.theta_size, per_number)
        for order, limit in enumerate(limits):
            if math.isfinite(limit) and (order == 0 or (once and alone)):
                norms[order] += gain * limit
            else:
                norms[order][here] = math.inf
    l1, l2 = norms[0] + l1, norms[1] + np.sqrt(squares)
    return float(l1[rows].max(initial=0.0)), float(l2[rows].max(initial=0.0))


def first_records(affine: AffineMap) -> Mapping[int, int]:
    """Per offset of a private parameter the number of its first record; records of unpaired parameters of the same
    ``Records`` count as different ones."""
    start: dict[int, int] = {}
    first = 0
    for group in record_blocks(affine):
        for block in group.blocks:
            start |= dict.fromkeys((member.offset for member in block), first)
            first += max(member.parameter.layout.unit_count for member in block)
    return start


def owners(model: Program) -> tuple[Integers, Integers]:
    """(entries,), (entries,): the row of every private coefficient in A and b, and the record that it belongs to."""
    form, blocks = model.form, model.affine.private_blocks
    if len(blocks) == 1 and not form.scalar.nnz:
        return form.matrix_coordinates()[0], form.matrix.units_of(blocks[0])
    owner, start = np.full(model.affine.theta_size, -1, dtype=np.int64), first_records(model.affine)
    for member in blocks:
        owner[member.columns] = start[member.offset] + member.parameter.layout.units
    rows = np.concatenate([form.matrix_coordinates()[0], form.scalar.row])
    return rows, owner[np.concatenate([form.matrix.column, form.scalar.column])]


def rows_vanish(model: Program) -> bool:
    """Whether a row of zeros can only mean that its record is absent: no row holds numbers of two records, and zero is
    what an absent record leaves."""
    blocks = model.affine.private_blocks
    return bool(blocks) and all(block.parameter.vanishes for block in blocks) and most_items(*owners(model)) <= 1


def rows_per_record(model: Program, twice: Mask | None = None) -> int:
    """The most private rows that one record reaches; those of the mask ``twice`` count double."""
    form, m = model.form, max(model.affine.rows, 1)
    rows, columns = form.matrix_coordinates()[0], form.matrix.column
    if form.scalar.nnz:
        rows, columns = np.concatenate([rows, form.scalar.row]), np.concatenate([columns, form.scalar.column])
    if len(model.affine.private_blocks) == 1 and not form.scalar.nnz:
        most = most_items(form.matrix.units_of(model.affine.private_blocks[0]), rows)
    else:
        most = most_touched(model.affine, rows, columns)
    if twice is None or not (twice & form.private_rows).any():
        return most
    if most == 1:
        return 2
    again = twice[rows]
    rows, columns = np.concatenate([rows, rows[again] + m]), np.concatenate([columns, columns[again]])
    return most_touched(model.affine, rows, columns)


# ---------------------------------------------------------------------- private values, for ``run`` only
def rows_at(model: Program, theta: PrivateArray, index: Integers, *, absent: bool) -> tuple[sp.csr_array, PrivateArray]:
    """(k x n) and (k,): the rows ``index`` of the standard form at theta; absent ones read ``0 <= 0`` if ``absent``."""
    form, (m, n) = model.form, (max(model.affine.rows, 1), model.affine.variables)
    if not form.matrix.nnz and not absent:  # only sides are private
        return form.A0[index], PrivateArray((form.b0 + form.scalar.apply(theta))[index])
    in_order = bool((np.diff(index) > 0).all())
    rows = index if in_order else np.unique(index)
    row, column = form.matrix_coordinates()
    place = np.full(m, -1, dtype=row.dtype)  # products read the columns in it: half the memory where it can be
    place[rows] = np.arange(rows.size)
    row, data = place[row], form.matrix.coefficient * theta[form.matrix.column]
    inside = row >= 0
    if not inside.all():
        row, column, data = row[inside], column[inside], data[inside]
    # Entries come column by column, so that every row gets its own in order: nothing is sorted.
    A, public = sp.csr_array((data, (row, column)), shape=(rows.size, n)), sp.csr_array(form.A0[rows])
    A = sp.csr_array(public + A) if public.nnz else A
    A = A if in_order else sp.csr_array(A[place[index]])
    b = (form.b0 + form.scalar.apply(theta))[index]
    if absent:
        here = present(model, theta)[index].astype(np.float64)
        A.data *= np.repeat(here, np.diff(A.indptr))
        b *= here
    return A, PrivateArray(b)


def present(model: Program, theta: Array) -> Mask:
    """(m,) private: the rows with a private number that is not zero."""
    touched = np.zeros(max(model.affine.rows, 1), dtype=bool)
    touched[model.form.matrix_coordinates()[0][theta[model.form.matrix.column] != 0]] = True
    touched[model.form.scalar.row[theta[model.form.scalar.column] != 0]] = True
    return touched
