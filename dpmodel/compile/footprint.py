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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.compile.affine_map import (
    AffineMap,
    LinearMap,
    ThetaBlock,
    coordinates_of,
    group_ids,
    largest_group,
    max_linear,
    max_squares,
    most_items,
)
from dpmodel.marks.bounds import Ball
from dpmodel.marks.layout import alike, all_equal, each, same_for_all, sum_by
from dpmodel.marks.private import Private
from dpmodel.marks.records import DEFAULT_RECORDS, Records, refuse_unnamed

# Up to this side a Gram matrix's largest eigenvalue is computed exactly; beyond, its row sums bound it.
_DENSE_GRAM = 600
# Products of coefficients that a Gram matrix may cost.
_MOST_PRODUCTS = 2e7


def block_view(block: tuple[ThetaBlock, ...], part: LinearMap, theta_size: int) -> BlockView | None:
    """The coefficients of ``part`` on the block's private entries, or None if there are none."""
    if not part.nnz:
        return None
    alike = AlikeView.of(block, part)
    if alike is not None:
        return alike
    view = BlockView(block, part, theta_size)
    return view if view.part.nnz else None


class BlockView:
    """One block of parameters seen by a list of linear functions: norms of what one unit's change does to them.

    Per coefficient it has the parameter, unit and cap of its private entry.
    """

    def __init__(self, block: tuple[ThetaBlock, ...], part: LinearMap, theta_size: int) -> None:
        self.block = block
        self.owner, self.unit = np.full(theta_size, -1, dtype=np.int64), np.zeros(theta_size, dtype=np.int64)
        self.cap, self.unit_count = np.zeros(theta_size), 1
        for number, member in enumerate(block):
            layout = member.parameter.layout
            self.owner[member.columns], self.unit[member.columns] = number, layout.units
            self.cap[member.columns] = member.parameter.entry_caps
            self.unit_count = max(self.unit_count, layout.unit_count)
        self.part = part = part.select(self.owner[part.column] >= 0)
        if not part.nnz:
            return
        self.size = np.abs(part.coefficient)
        # A row mixes when it depends on two private entries of the same record. Rows are sorted.
        alone = len(block) == 1 and block[0].parameter.layout.unit_size == 1  # every entry is a unit
        if alone or bool((part.row[1:] != part.row[:-1]).all()):
            rows_units, count = np.arange(part.nnz, dtype=np.int64), part.nnz
        else:
            rows_units, count = group_ids(part.row, self.unit[part.column])
        self.mixes = count < part.nnz
        self._repeats = int(np.bincount(part.column).max()) > 1
        self.row_unit, self.row_unit_count = rows_units, count
        self.aligned = self._signs_can_agree() if self.mixes else True

    @property
    def rows_of_entries(self) -> Integers:
        """(entries,) the row of each of the entries that ``largest_entries`` tells of."""
        rows = np.zeros(self.row_unit_count, dtype=np.int64)
        rows[self.row_unit] = self.part.row
        return rows

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

    def _per_unit(self, weights: Floats, most: Callable[..., Floats]) -> list[Floats]:
        """Per parameter, (units,) the largest value that a unit's change attains under weights on its entries."""
        out = []
        for member in self.block:
            columns = np.arange(member.offset, member.offset + member.size, dtype=np.int64)
            rows = self._matrix_rows_of(member, columns)
            unit, ball = self.unit[columns], member.parameter.ball
            out.append(most(weights[columns], self.cap[columns], unit, self.unit_count, rows, ball))
        return out

    def largest_entries(self) -> tuple[float, Floats, Integers]:
        """Largest change of any entry; per (entry, unit) its largest change, and where entries mix that unit."""
        maxima = np.zeros(self.row_unit_count)
        if not self.mixes:  # one coefficient each
            room = self.cap.copy()
            for member in self.block:
                ball = member.parameter.ball
                room[member.columns] = np.minimum(room[member.columns], min(ball.l1, ball.l2, ball.row_l1))
            maxima[self.row_unit] = self.size * room[self.part.column]
            return float(maxima.max(initial=0.0)), maxima, np.zeros(0, dtype=np.int64)
        for member, mask, ball in self._members():
            maxima += self._support(self.size, mask, self.row_unit, self.row_unit_count, member, ball)
        units = np.zeros(self.row_unit_count, dtype=np.int64)
        units[self.row_unit] = self.unit[self.part.column]
        return float(maxima.max(initial=0.0)), maxima, units

    def one_norm(self, entry_maxima: Floats, entry_units: Integers) -> tuple[float, bool]:
        """Sum over private entries of (column 1-norm) * |d_j|, largest over units."""
        width = self.owner.size
        weights = sum_by(self.part.column, weights=self.size, minlength=width)
        total = np.sum(self._per_unit(weights, max_linear), axis=0)
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
        by_columns = sum(float(each.max(initial=0.0)) for each in self._per_unit(columns_l2, max_linear))
        bounds.append((by_columns, self._is_one_norm_ball()))
        if all(math.isfinite(member.parameter.l2) for member in self.block):
            by_balls = sum(member.parameter.l2 * self._operator_norm(mask) for member, mask, _ in self._members())
            bounds.append((by_balls, len(self.block) == 1 and self._is_two_norm_ball()))
        return min(bounds, key=lambda pair: (pair[0], not pair[1]))

    def _largest_squares(self) -> float:
        """Largest square of the 2-norm of what one unit does to rows of a single coefficient."""
        squares = sum_by(self.part.column, weights=self.size**2, minlength=self.owner.size)
        return float(np.sum(self._per_unit(squares, max_squares), axis=0).max(initial=0.0))

    def _two_norm_unmixed(self) -> tuple[float, bool]:
        # Only combinations of norms can leave a gap (see max_squares).
        balls = [member.parameter.ball for member in self.block]
        exact = all(
            sum(map(math.isfinite, (b.l1, b.l2, b.row_l1))) <= 1
            and math.isinf(b.row_l1)
            and (math.isinf(b.l1) or all_equal(member.parameter.entry_caps))
            for member, b in zip(self.block, balls, strict=True)
        )
        return math.sqrt(self._largest_squares()), exact

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
        if (
            column_count > _DENSE_GRAM < row_count
            and np.square(np.diff(matrix.indptr), dtype=float).sum() > _MOST_PRODUCTS
        ):
            # Where the Gram matrix would fill up, its row sums are had without it: those of |A|'|A| or |A||A|'.
            size = abs(matrix)
            sums = size.T @ (size @ np.ones(column_count)), size @ (size.T @ np.ones(row_count))
            return math.sqrt(min(float(each.max()) for each in sums)) * (1 + 1e-9)
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


class AlikeView(BlockView):
    """The same where coefficients differ in their place and sign alone.

    They are of one size, on private entries of one parameter with one cap; no row and no private entry has two of them;
    and the entries of a unit lie in one matrix row, if the change of a matrix row is bounded. What a group of them can
    do then grows with how many they are, and the largest group stands for all: nothing is sorted, and millions of
    entries cost a few passes.
    """

    def __init__(self, block: tuple[ThetaBlock, ...], member: ThetaBlock, part: LinearMap, cap: float) -> None:
        self.block, self.part, self._member = block, part, member
        self._weight, self._cap = abs(float(part.coefficient[0])), cap
        self.mixes, self.aligned = False, True

    @staticmethod
    def of(block: tuple[ThetaBlock, ...], part: LinearMap) -> AlikeView | None:
        """None where something of it does not hold."""
        if not part.nnz or not part.single:
            return None
        member = next((one for one in block if part.within(one)), None)
        if member is None or part.repeats:
            return None
        parameter: Private = member.parameter
        in_one_row, caps = parameter.unit in ("row", "entry") or math.isinf(parameter.ball.row_l1), parameter.entry_caps
        if not in_one_row or not same_for_all(caps):
            return None
        return AlikeView(block, member, part, float(caps[0])) if all_equal(each(np.abs, part.coefficient)) else None

    @property
    def rows_of_entries(self) -> Integers:
        return self.part.row

    @property
    def _units(self) -> Integers:
        return self.part.units_of(self._member)

    def _most(self, count: int) -> float:
        """Largest 1-norm that ``count`` entries of one unit attain."""
        return _most_alike(max_linear, self._weight, self._cap, count, self._member.parameter.ball)

    @cached_property
    def _unit_size(self) -> int:
        """The largest number of entries of one unit."""
        whole = self.part.nnz == self._member.size
        return self._member.parameter.layout.unit_size if whole else int(np.bincount(self._units).max())

    def largest_entries(self) -> tuple[float, Floats, Integers]:
        most = self._most(1)
        return most, alike(np.array([most]), self.part.nnz), np.zeros(0, dtype=np.int64)

    def one_norm(self, entry_maxima: Floats, entry_units: Integers) -> tuple[float, bool]:
        return self._most(self._unit_size), True

    def _largest_squares(self) -> float:
        square = self._weight * self._weight
        return _most_alike(max_squares, square, self._cap, self._unit_size, self._member.parameter.ball)

    def grouped_one_norm(self, keys: Integers) -> float:
        if self._unit_size == 1:
            return self._most(1)  # a record reaches one entry
        if all(member.parameter.layout.unit_count == 1 for member in self.block):
            return self._most(int(np.bincount(keys).max()))
        # Where keys are in order (columns of A), nothing is sorted; else mostly no group has entries of two units.
        if (keys[1:] < keys[:-1]).any() and most_items(keys, self._units) == 1:
            return self._most(int(np.bincount(keys).max()))
        return self._most(largest_group(keys, self._units))


@lru_cache(maxsize=100)  # parts of a problem, and what is measured of them, ask the same again and again
def _most_alike(most: Callable[..., Floats], weight: float, cap: float, count: int, ball: Ball) -> float:
    """What ``most`` says of ``count`` entries of one unit that are all alike."""
    weights, caps, groups = np.full(count, weight), np.full(count, cap), np.zeros(count, dtype=np.int64)
    return float(most(weights, caps, groups, 1, groups, ball)[0])


@dataclass(frozen=True)
class Sensitivity:
    """Bounds on the change of a list of numbers (c, b, or the entries of A) by one record.

    ``row_l1`` and ``column_l1`` bound the 1-norm of any one row or column of A (nan elsewhere);
    ``exact``: whether l1 and l2 are attained.
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

    def scaled_for_rounding(self, relative: float) -> Sensitivity:
        k = 1 + relative
        return Sensitivity(self.l1 * k, self.l2 * k, self.linf * k, self.row_l1 * k, self.column_l1 * k, self.exact)


NO_SENSITIVITY = Sensitivity(0.0, 0.0, 0.0)


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

    parts: Mapping[str, Sensitivity]
    by_records: Mapping[Records, Mapping[str, Sensitivity]]

    def __getitem__(self, part: str) -> Sensitivity:
        return self.parts[part]


def record_blocks(affine: AffineMap) -> tuple[Blocks, ...]:
    """Group the private parameters by Records and by paired units.

    Vectors of which a record owns an entry are paired with rows or columns of a table, and with each other when
    the user gave them ``Records``. Two vectors that nobody said anything about may well be tables of counts in
    which one record sits in different places; they are not paired, which can only enlarge the bounds.
    Errors: SpecificationError, for different people without a name of their own (``refuse_unnamed``).
    """
    refuse_unnamed(block.parameter for block in affine.private_blocks)
    by_records: dict[Records, dict[Any, list[ThetaBlock]]] = {}
    for number, block in enumerate(affine.private_blocks):
        parameter: Private = block.parameter
        layout = parameter.layout
        # Rows of two tables are numbered in two ways, though the people be the same.
        key = ("record", parameter.records, layout.unit_count) if layout.paired else ("unpaired", number)
        by_records.setdefault(parameter.records.people, {}).setdefault(key, []).append(block)
    groups = []
    for records, keyed in by_records.items():
        blocks: list[tuple[ThetaBlock, ...]] = []
        for members in keyed.values():
            table = any(member.parameter.unit in ("row", "column") for member in members)
            given = members[0].parameter.records is not DEFAULT_RECORDS  # those of a key are of the same Records
            blocks += [tuple(members)] if table or given else [(member,) for member in members]
        groups.append(Blocks(records, tuple(blocks)))
    return tuple(groups)


def most_touched(affine: AffineMap, rows: Integers, columns: Integers) -> int:
    """The most rows that depend on the data of one record, at most; (nnz,) coordinates of linear functions of theta."""
    most = 0
    for group in record_blocks(affine):
        total = 0
        for block in group.blocks:
            unit = np.full(affine.theta_size, -1, dtype=np.int64)
            for member in block:
                unit[member.columns] = member.parameter.layout.units
            owned = unit[columns]
            total += most_items(owned[owned >= 0], rows[owned >= 0])
        most = max(most, total)
    return most


def footprint(affine: AffineMap) -> Footprint:
    """The footprint of a lowered problem; cost is a few passes over its private coefficients."""
    private = affine.private_columns
    maps = {
        name: part.select(private[part.column])
        for name, part in (
            ("objective", affine.objective),
            ("offset", affine.offset),
            ("scalar", affine.scalar),
        )
    } | {"matrix": affine.private_matrix}
    per_records: dict[Records, Mapping[str, Sensitivity]] = {}
    for group in record_blocks(affine):
        per_records[group.records] = {
            name: sensitivity_under(group, part, affine, matrix=name == "matrix") for name, part in maps.items()
        }
    parts = {name: largest(sensitivities[name] for sensitivities in per_records.values()) for name in maps}
    return Footprint(parts, per_records)


def largest(sensitivities: Iterable[Sensitivity]) -> Sensitivity:
    """Entrywise maximum: one record belongs to one Records only."""
    out = None
    for sensitivity in sensitivities:
        if out is None:
            out = sensitivity
            continue
        out = Sensitivity(
            max(out.l1, sensitivity.l1),
            max(out.l2, sensitivity.l2),
            max(out.linf, sensitivity.linf),
            _fmax(out.row_l1, sensitivity.row_l1),
            _fmax(out.column_l1, sensitivity.column_l1),
            out.exact and sensitivity.exact,
        )
    return out if out is not None else NO_SENSITIVITY


def sensitivity_of(affine: AffineMap, part: LinearMap) -> Mapping[Records, Sensitivity]:
    """Change of arbitrary linear functions of theta (a mechanism's measurements), per Records."""
    private = affine.private_columns
    part = part.select(private[part.column])
    return {group.records: sensitivity_under(group, part, affine) for group in record_blocks(affine)}


def sensitivity_under(group: Blocks, part: LinearMap, affine: AffineMap, matrix: bool = False) -> Sensitivity:
    """Change of ``part`` by one record of ``group``; ``matrix`` : its rows are entries of A."""
    key = "sensitivity", tuple(tuple(member.offset for member in block) for block in group.blocks), matrix
    if key not in part.found:
        part.found[key] = _sensitivity_under(group, part, affine, matrix)
    known: Sensitivity = part.found[key]
    return known


def _sensitivity_under(group: Blocks, part: LinearMap, affine: AffineMap, matrix: bool) -> Sensitivity:
    total: Sensitivity | None = None
    touched: list[Integers] = []
    for block in group.blocks:
        sensitivity, rows = _block_sensitivity(block, part, affine, matrix)
        if rows.size == 0:
            continue
        if total is None:
            total, touched = sensitivity, [rows]
            continue
        disjoint = not np.isin(rows, np.concatenate(touched)).any()
        total = Sensitivity(
            total.l1 + sensitivity.l1,
            math.hypot(total.l2, sensitivity.l2) if disjoint else total.l2 + sensitivity.l2,
            max(total.linf, sensitivity.linf) if disjoint else total.linf + sensitivity.linf,
            _fadd(total.row_l1, sensitivity.row_l1),
            _fadd(total.column_l1, sensitivity.column_l1),
            total.exact and sensitivity.exact and disjoint,
        )
        touched.append(rows)
    return total if total is not None else NO_SENSITIVITY


def _block_sensitivity(
    block: tuple[ThetaBlock, ...], part: LinearMap, affine: AffineMap, matrix: bool
) -> tuple[Sensitivity, Integers]:
    """Change by the one unit number that a record owns in ``block``, and the rows of ``part`` it can touch."""
    view = block_view(block, part, affine.theta_size)
    if view is None:
        nothing = Sensitivity(0.0, 0.0, 0.0, 0.0, 0.0) if matrix else Sensitivity(0.0, 0.0, 0.0)
        return nothing, np.zeros(0, dtype=np.int64)
    part = view.part
    linf, entry_maxima, entry_units = view.largest_entries()
    l1, l1_exact = view.one_norm(entry_maxima, entry_units)
    l2, l2_exact = view.two_norm(entry_maxima, entry_units)
    row_l1 = column_l1 = math.nan
    if matrix:
        known = part is affine.private_matrix
        rows, columns = affine.private_coordinates if known else coordinates_of(part.row, affine.rows)
        row_l1, column_l1 = view.grouped_one_norm(rows), view.grouped_one_norm(columns)
    l2 = min(l2, l1)
    return Sensitivity(l1, l2, linf, row_l1, column_l1, l1_exact and l2_exact), part.positions


def _fmax(a: float, b: float) -> float:
    return float(np.fmax(a, b))


def _fadd(a: float, b: float) -> float:
    return a + b if not (math.isnan(a) or math.isnan(b)) else math.nan


def entry_sensitivities(affine: AffineMap, part: LinearMap) -> Floats:
    """(height,) largest change of each function of ``part`` by one record."""
    out = np.zeros(part.height)
    for group in record_blocks(affine):
        out = np.maximum(out, entries_under(group, part, affine))
    return out


def entries_under(group: Blocks, part: LinearMap, affine: AffineMap) -> Floats:
    """(height,) the same by one record of ``group``."""
    total = np.zeros(part.height)
    for block in group.blocks:
        total += _block_entry_sensitivities(block, part, affine.theta_size)
    return total


def _block_entry_sensitivities(block: tuple[ThetaBlock, ...], part: LinearMap, theta_size: int) -> Floats:
    view = block_view(block, part, theta_size)
    out = np.zeros(part.height)
    if view is None:
        return out
    _, maxima, _ = view.largest_entries()
    np.maximum.at(out, view.rows_of_entries, maxima)
    return out
