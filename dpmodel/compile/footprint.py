"""What one record's change does to linear functions of the parameters, and so to the standard form.

For every ``Records`` the parameters are grouped into *blocks* whose units are numbered by the same record
(row i of one, entry i of another). A record moves one unit number in each block; blocks that cannot
be paired by number are hit in any pair of units, so their bounds are added. Different ``Records`` are
different people, and one record's change touches one of them: the footprint is the largest over Records.

Exactness. Each bound is attained by some change inside the declared bounds in the usual case that every
entry of the part depends on one private entry (scaling, reuse, slicing, transposing and constant factors on
either side keep that). Where entries mix several private entries, the maximum entry (linf) is still
exact; l1 and l2 are exact for 1-norm balls and units of one entry, l2 for 2-norm balls, both for
coefficients of one sign, and upper bounds otherwise (the smallest of several valid ones).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel.annotate.bounds import Ball
from dpmodel.annotate.private import Private
from dpmodel.annotate.records import DEFAULT_RECORDS, Records
from dpmodel.compile.affine_map import AffineMap, Floats, Integers, LinearMap, ThetaBlock, sum_by
from dpmodel.compile.extremes import group_ids, max_linear, max_squares

# Up to this side a Gram matrix's largest eigenvalue is computed exactly; beyond, its row sums bound it.
_DENSE_GRAM = 600


@dataclass(frozen=True)
class Change:
    """Bounds on the change of a list of numbers (c, b, or the entries of A) by one record.

    ``row_l1`` and ``column_l1`` bound the 1-norm of any one row or column of A (nan elsewhere);
    ``row_l2`` the 2-norm of any one row of A. ``exact``: whether l1 and l2 are attained.
    """

    l1: float
    l2: float
    linf: float
    row_l1: float = math.nan
    column_l1: float = math.nan
    exact: bool = True

    def as_mapping(self) -> Mapping[str, float]:
        out = {"l1": self.l1, "l2": self.l2, "linf": self.linf}
        if not math.isnan(self.row_l1):
            out["row_l1"] = self.row_l1
            out["column_l1"] = self.column_l1
        return out

    @property
    def finite(self) -> bool:
        return math.isfinite(self.linf)

    def scaled_for_rounding(self, relative: float) -> Change:
        k = 1 + relative
        return Change(self.l1 * k, self.l2 * k, self.linf * k, self.row_l1 * k, self.column_l1 * k, self.exact)


NO_CHANGE = Change(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Blocks:
    """The private parameters of one ``Records``, split into blocks whose units are paired by number."""

    records: Records
    blocks: tuple[tuple[ThetaBlock, ...], ...]

    @property
    def parameters(self) -> tuple[ThetaBlock, ...]:
        return tuple(p for block in self.blocks for p in block)


@dataclass(frozen=True)
class Footprint:
    """What one record's change does to the standard form of a problem.

    ``parts`` : change of ``"objective"`` (c), ``"offset"`` (the objective's constant), ``"scalar"`` (b) and
    ``"matrix"`` (the entries of A), each the largest over ``Records``; ``by_records`` the same per Records.
    """

    parts: Mapping[str, Change]
    by_records: Mapping[Records, Mapping[str, Change]]

    def __getitem__(self, part: str) -> Change:
        return self.parts[part]


def record_blocks(affine: AffineMap) -> tuple[Blocks, ...]:
    """Group the private parameters by Records and by paired units.

    Vectors of which a record owns an entry are paired with rows or columns of a table, and with each other when
    the user named their ``Records``. Two vectors that nobody said anything about may well be tables of counts in
    which one record sits in different places; they are not paired, which can only enlarge the bounds.
    """
    by_records: dict[Records, dict[Any, list[ThetaBlock]]] = {}
    for number, block in enumerate(affine.private_blocks):
        parameter: Private = block.parameter
        layout = parameter.layout
        key = ("record", layout.unit_count) if layout.paired else ("unpaired", number)
        by_records.setdefault(parameter.records, {}).setdefault(key, []).append(block)
    groups = []
    for records, keyed in by_records.items():
        blocks: list[tuple[ThetaBlock, ...]] = []
        for members in keyed.values():
            table = any(member.parameter.unit in ("row", "column") for member in members)
            named = records is not DEFAULT_RECORDS
            blocks += [tuple(members)] if table or named else [(member,) for member in members]
        groups.append(Blocks(records, tuple(blocks)))
    return tuple(groups)


def footprint(affine: AffineMap) -> Footprint:
    """The footprint of a lowered problem; cost is a few passes over its private coefficients."""
    private = affine.private_columns
    maps = {
        name: part.select(private[part.column])
        for name, part in (
            ("objective", affine.objective),
            ("offset", affine.offset),
            ("scalar", affine.scalar),
            ("matrix", affine.matrix),
        )
    }
    per_records: dict[Records, Mapping[str, Change]] = {}
    for group in record_blocks(affine):
        per_records[group.records] = {
            name: change_under(group, part, affine.theta_size, matrix_rows=affine.rows if name == "matrix" else None)
            for name, part in maps.items()
        }
    parts = {name: largest(changes[name] for changes in per_records.values()) for name in maps}
    return Footprint(parts, per_records)


def largest(changes: Iterable[Change]) -> Change:
    """Entrywise maximum: one record belongs to one Records only."""
    out = None
    for change in changes:
        if out is None:
            out = change
            continue
        out = Change(
            max(out.l1, change.l1),
            max(out.l2, change.l2),
            max(out.linf, change.linf),
            _fmax(out.row_l1, change.row_l1),
            _fmax(out.column_l1, change.column_l1),
            out.exact and change.exact,
        )
    return out if out is not None else NO_CHANGE


def change_of(affine: AffineMap, part: LinearMap) -> Mapping[Records, Change]:
    """Change of arbitrary linear functions of theta (a mechanism's measurements), per Records."""
    private = affine.private_columns
    part = part.select(private[part.column])
    return {group.records: change_under(group, part, affine.theta_size) for group in record_blocks(affine)}


def change_under(group: Blocks, part: LinearMap, theta_size: int, matrix_rows: int | None = None) -> Change:
    """Change of ``part`` by one record of ``group``; ``matrix_rows`` = m when its rows are entries of A."""
    total: Change | None = None
    touched: list[Integers] = []
    for block in group.blocks:
        change, rows = _block_change(block, part, theta_size, matrix_rows)
        if rows.size == 0:
            continue
        if total is None:
            total, touched = change, [rows]
            continue
        disjoint = not np.isin(rows, np.concatenate(touched)).any()
        total = Change(
            total.l1 + change.l1,
            math.hypot(total.l2, change.l2) if disjoint else total.l2 + change.l2,
            max(total.linf, change.linf) if disjoint else total.linf + change.linf,
            _fadd(total.row_l1, change.row_l1),
            _fadd(total.column_l1, change.column_l1),
            total.exact and change.exact and disjoint,
        )
        touched.append(rows)
    return total if total is not None else NO_CHANGE


def _block_change(
    block: tuple[ThetaBlock, ...], part: LinearMap, theta_size: int, matrix_rows: int | None
) -> tuple[Change, Integers]:
    """Change by the one unit number that a record owns in ``block``, and the rows of ``part`` it can touch."""
    view = _view(block, part, theta_size)
    if view is None:
        nothing = Change(0.0, 0.0, 0.0) if matrix_rows is None else Change(0.0, 0.0, 0.0, 0.0, 0.0)
        return nothing, np.zeros(0, dtype=np.int64)
    part = view.part
    linf, entry_maxima, entry_units = view.largest_entries()
    l1, l1_exact = view.one_norm(entry_maxima, entry_units)
    l2, l2_exact = view.two_norm(entry_maxima, entry_units)
    row_l1 = column_l1 = math.nan
    if matrix_rows is not None:
        row_l1 = view.grouped_one_norm(part.row % matrix_rows)
        column_l1 = view.grouped_one_norm(part.row // matrix_rows)
    l2 = min(l2, l1)
    return Change(l1, l2, linf, row_l1, column_l1, l1_exact and l2_exact), _distinct(part.row)


def _view(block: tuple[ThetaBlock, ...], part: LinearMap, theta_size: int) -> _View | None:
    """The coefficients of ``part`` on the block's private entries, or None if there are none."""
    owner = np.full(theta_size, -1, dtype=np.int64)
    unit = np.zeros(theta_size, dtype=np.int64)
    cap = np.zeros(theta_size)
    unit_count = 1
    for number, member in enumerate(block):
        layout = member.parameter.layout
        owner[member.columns] = number
        unit[member.columns] = layout.units
        cap[member.columns] = member.parameter.entry_caps
        unit_count = max(unit_count, layout.unit_count)
    part = part.select(owner[part.column] >= 0)
    return _View(block, part, owner, unit, cap, unit_count) if part.nnz else None


class _View:
    """One block's coefficients with, per coefficient, the parameter, unit and cap of its private entry."""

    def __init__(
        self,
        block: tuple[ThetaBlock, ...],
        part: LinearMap,
        owner: Integers,
        unit: Integers,
        cap: Floats,
        unit_count: int,
    ) -> None:
        self.block = block
        self.part = part
        self.owner, self.unit, self.cap = owner, unit, cap
        self.unit_count = unit_count
        self.size = np.abs(part.coefficient)
        # A row mixes when it depends on two private entries of the same record. Rows are sorted.
        if bool((part.row[1:] != part.row[:-1]).all()):
            rows_units, count = np.arange(part.nnz, dtype=np.int64), part.nnz
        else:
            rows_units, count = group_ids(part.row, unit[part.column])
        self.mixes = count < part.nnz
        self._repeats = int(np.bincount(part.column).max()) > 1
        self.row_unit, self.row_unit_count = rows_units, count
        self.aligned = self._signs_can_agree() if self.mixes else True

    def _members(self) -> Iterable[tuple[ThetaBlock, Any, Ball]]:
        for number, member in enumerate(self.block):
            mask = self.owner[self.part.column] == number
            if mask.any():
                parameter: Private = member.parameter
                yield member, mask, parameter.ball

    def _matrix_rows_of(self, member: ThetaBlock, columns: Integers) -> Integers:
        rows: Integers = member.parameter.layout.rows
        return rows[columns - member.offset]

    def _support(self, weights: Floats, mask: Any, groups: Integers, count: int, member: ThetaBlock, ball: Ball) -> Any:
        columns = self.part.column[mask]
        return max_linear(
            weights[mask], self.cap[columns], groups[mask], count, self._matrix_rows_of(member, columns), ball
        )

    def largest_entries(self) -> tuple[float, Floats, Integers]:
        """Largest change of any entry; per (entry, unit) its largest change, and that unit."""
        maxima = np.zeros(self.row_unit_count)
        for member, mask, ball in self._members():
            maxima += self._support(self.size, mask, self.row_unit, self.row_unit_count, member, ball)
        units = np.zeros(self.row_unit_count, dtype=np.int64)
        units[self.row_unit] = self.unit[self.part.column]
        return float(maxima.max(initial=0.0)), maxima, units

    def one_norm(self, entry_maxima: Floats, entry_units: Integers) -> tuple[float, bool]:
        """Sum over private entries of (column 1-norm) * |d_j|, largest over units."""
        width = self.owner.size
        weights = sum_by(self.part.column, weights=self.size, minlength=width)
        total = np.zeros(self.unit_count)
        for member in self.block:
            columns = np.arange(member.offset, member.offset + member.size, dtype=np.int64)
            total += max_linear(
                weights[columns],
                self.cap[columns],
                self.unit[columns],
                self.unit_count,
                self._matrix_rows_of(member, columns),
                member.parameter.ball,
            )
        bound = float(total.max(initial=0.0))
        if not self.mixes or self.aligned or self._is_one_norm_ball():
            return bound, True
        other = sum_by(entry_units, weights=entry_maxima, minlength=self.unit_count)
        return min(bound, float(other.max(initial=0.0))), False

    def two_norm(self, entry_maxima: Floats, entry_units: Integers) -> tuple[float, bool]:
        if not self.mixes:
            return self._two_norm_unmixed()
        # Each entry at its own maximum at once: attained when nothing but caps bounds d and signs agree.
        worst = np.sqrt(sum_by(entry_units, weights=entry_maxima**2, minlength=self.unit_count))
        bounds = [(float(worst.max(initial=0.0)), self.aligned and self._is_box())]
        columns_l2 = np.sqrt(sum_by(self.part.column, weights=self.size**2, minlength=self.owner.size))
        by_columns = 0.0
        for member in self.block:
            columns = np.arange(member.offset, member.offset + member.size, dtype=np.int64)
            per_unit = max_linear(
                columns_l2[columns],
                self.cap[columns],
                self.unit[columns],
                self.unit_count,
                self._matrix_rows_of(member, columns),
                member.parameter.ball,
            )
            by_columns += float(per_unit.max(initial=0.0))
        bounds.append((by_columns, self._is_one_norm_ball()))
        if all(math.isfinite(member.parameter.l2) for member in self.block):
            by_balls = sum(member.parameter.l2 * self._operator_norm(mask) for member, mask, _ in self._members())
            bounds.append((by_balls, len(self.block) == 1 and self._is_two_norm_ball()))
        return min(bounds, key=lambda pair: (pair[0], not pair[1]))

    def _two_norm_unmixed(self) -> tuple[float, bool]:
        width = self.owner.size
        squares = sum_by(self.part.column, weights=self.size**2, minlength=width)
        total = np.zeros(self.unit_count)
        for member in self.block:
            columns = np.arange(member.offset, member.offset + member.size, dtype=np.int64)
            total += max_squares(
                squares[columns],
                self.cap[columns],
                self.unit[columns],
                self.unit_count,
                self._matrix_rows_of(member, columns),
                member.parameter.ball,
            )
        # Only combinations of norms can leave a gap (see max_squares).
        balls = [member.parameter.ball for member in self.block]
        exact = all(
            sum(map(math.isfinite, (b.l1, b.l2, b.row_l1))) <= 1
            and math.isinf(b.row_l1)
            and (math.isinf(b.l1) or _all_equal(member.parameter.entry_caps))
            for member, b in zip(self.block, balls, strict=True)
        )
        return float(np.sqrt(total.max(initial=0.0))), exact

    def grouped_one_norm(self, keys: Integers) -> float:
        """Largest 1-norm of the change within one group of entries (a row or a column of A)."""
        units = self.unit[self.part.column]
        if all(member.parameter.layout.unit_count == 1 for member in self.block):
            groups, count = keys, int(keys.max()) + 1
        else:
            groups, count = group_ids(keys, units)
        total = np.zeros(count)
        for member, mask, ball in self._members():
            if not self._repeats:
                columns = self.part.column[mask]
                rows = self._matrix_rows_of(member, columns)
                total += max_linear(self.size[mask], self.cap[columns], groups[mask], count, rows, ball)
                continue
            # Coefficients of the same private entry within a group add up.
            cells, cell_count = group_ids(groups[mask], self.part.column[mask])
            weight = sum_by(cells, weights=self.size[mask], minlength=cell_count)
            cell_group = np.zeros(cell_count, dtype=np.int64)
            cell_group[cells] = groups[mask]
            cell_column = np.zeros(cell_count, dtype=np.int64)
            cell_column[cells] = self.part.column[mask]
            total += max_linear(
                weight, self.cap[cell_column], cell_group, count, self._matrix_rows_of(member, cell_column), ball
            )
        return float(total.max(initial=0.0))

    def _is_one_norm_ball(self) -> bool:
        """One parameter whose set of changes is a 1-norm ball, or units of a single entry."""
        if len(self.block) != 1:
            return False
        parameter: Private = self.block[0].parameter
        caps = parameter.entry_caps
        single = parameter.layout.unit_size == 1
        return single or (math.isfinite(parameter.ball.l1) and bool((caps >= parameter.ball.l1 * (1 - 1e-12)).all()))

    def _is_two_norm_ball(self) -> bool:
        parameter: Private = self.block[0].parameter
        ball = parameter.ball
        return (
            math.isfinite(ball.l2)
            and math.isinf(ball.l1)
            and math.isinf(ball.row_l1)
            and bool((parameter.entry_caps >= ball.l2 * (1 - 1e-12)).all())
        )

    def _is_box(self) -> bool:
        return all(
            all(map(math.isinf, (ball.l1, ball.l2, ball.row_l1)))
            for ball in (member.parameter.ball for member in self.block)
        )

    def _operator_norm(self, mask: Any) -> float:
        """Largest 2-norm gain of any unit's coefficients (never understated)."""
        columns, column_count = group_ids(self.part.column[mask])
        rows, row_count = group_ids(self.row_unit[mask])
        matrix = sp.csr_array((self.part.coefficient[mask], (rows, columns)), shape=(row_count, column_count))
        gram = matrix.T @ matrix if column_count <= row_count else matrix @ matrix.T
        if gram.shape[0] <= _DENSE_GRAM:
            return math.sqrt(float(np.linalg.eigvalsh(gram.toarray())[-1])) * (1 + 1e-9)
        return math.sqrt(float(abs(gram).sum(axis=1).max())) * (1 + 1e-9)

    def _signs_can_agree(self) -> bool:
        """Whether flipping signs of entries and of private entries makes all coefficients non-negative.

        Then one choice of signs of d lets every row reach its largest absolute value. It fails exactly
        when the bipartite graph of coefficients has a cycle with an odd number of negative signs, that
        is when in the double cover (a node and its negation) a node is connected to its negation.
        """
        columns, column_count = group_ids(self.part.column)
        nodes = self.row_unit_count + column_count
        source = self.row_unit
        target = self.row_unit_count + columns
        negative = self.part.coefficient < 0
        flipped = np.where(negative, target + nodes, target)
        mirrored = np.where(negative, target, target + nodes)
        edges = sp.coo_array(
            (
                np.ones(2 * source.size, dtype=np.int8),
                (np.concatenate([source, source + nodes]), np.concatenate([flipped, mirrored])),
            ),
            shape=(2 * nodes, 2 * nodes),
        )
        labels = sp.csgraph.connected_components(edges, directed=False)[1]
        return not bool((labels[:nodes] == labels[nodes:]).any())


def _all_equal(values: Floats) -> bool:
    return bool(values.size == 0 or (values == values[0]).all())


def _distinct(sorted_values: Integers) -> Integers:
    """Distinct values of a sorted array."""
    return sorted_values[np.r_[True, sorted_values[1:] != sorted_values[:-1]]]


def _fmax(a: float, b: float) -> float:
    return float(np.fmax(a, b))


def _fadd(a: float, b: float) -> float:
    return a + b if not (math.isnan(a) or math.isnan(b)) else math.nan


def entry_changes(affine: AffineMap, part: LinearMap) -> Floats:
    """(height,) largest change of each function of ``part`` by one record."""
    out = np.zeros(part.height)
    for group in record_blocks(affine):
        total = np.zeros(part.height)
        for block in group.blocks:
            total += _block_entry_changes(block, part, affine.theta_size)
        out = np.maximum(out, total)
    return out


def _block_entry_changes(block: tuple[ThetaBlock, ...], part: LinearMap, theta_size: int) -> Floats:
    view = _view(block, part, theta_size)
    out = np.zeros(part.height)
    if view is None:
        return out
    _, maxima, _ = view.largest_entries()
    rows = np.zeros(view.row_unit_count, dtype=np.int64)
    rows[view.row_unit] = view.part.row
    np.maximum.at(out, rows, maxima)
    return out
