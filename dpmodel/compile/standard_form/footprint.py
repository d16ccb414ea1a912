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

from dpmodel._types import Floats, Integers
from dpmodel.compile.standard_form.affine_map import AffineMap, LinearMap, ThetaBlock, coordinates_of
from dpmodel.compile.standard_form.block_view import block_view
from dpmodel.compile.standard_form.extremes import most_items
from dpmodel.marks.private import Private
from dpmodel.marks.records import DEFAULT_RECORDS, Records, refuse_unnamed


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

    Raises
    ------
    SpecificationError
        For different people without a name of their own (``refuse_unnamed``).
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
