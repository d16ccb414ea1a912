"""Footprint -> cells of Table 1: part and level of every private parameter, with the reason in words."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from html import escape
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from dpmodel._types import Integers
from dpmodel.compile.affine_map import AffineMap, LinearMap, ThetaBlock, coordinates_of, group_ids, most_items
from dpmodel.compile.footprint import Blocks, Footprint, Sensitivity, record_blocks
from dpmodel.errors import SpecificationError
from dpmodel.figures import Square, taxonomy_grid
from dpmodel.marks.records import listed, record_words
from dpmodel.programs.taxonomy import Level, Part, TaxonomyCell, squares
from dpmodel.programs.taxonomy import cell as taxonomy_cell
from dpmodel.programs.theorems import LowerBound, lower_bound
from dpmodel.text import PlainData, TextTable, number, printable, screenful, wrapped

# Texts name no more parameters than this at once, and tables show no more rows of one kind.
_MOST_NAMES = 5

_HINT = 'Constraints have names where you give them some: (x <= 1).set_label("capacity").'
_PART_WORDS = {"objective": "the coefficients c", "scalar": "right-hand sides b"}


@dataclass(frozen=True)
class Cell:
    """Where one private parameter enters the standard form, and how far one record moves that part.

    ``part`` : "objective", "scalar", "row", "column" or "matrix"; ``level`` : "low" (bounded) or "high".
    ``parameter`` : its name; ``where`` : labels of the constraints (or the objective) it enters.
    ``sensitivity`` : bounds ``l1, l2, linf`` on what one record does to that part of the standard form (to
    c, to b, or entrywise to A, then with ``row_l1`` and ``column_l1``), by all parameters of the same Records.
    ``record`` : what a record is. ``single_entry`` : whether one record owns a single entry.
    ``relaxed`` : solvable only if a few constraints may be violated.
    ``size`` : the largest range that is declared of a number of that part; inf where none is.
    ``equality`` : whether the parameter stands in an equality constraint. ``spare`` : whether one record owns a few
    of many constraints, which could be left out. ``joint`` : whether every record owns the variables that the parameter
    stands beside, so that it can be solved jointly whatever ``solvable`` says of publishing them.
    """

    part: Part
    level: Level
    parameter: str
    reason: str
    theorem: str
    sensitivity: Mapping[str, float]
    solvable: bool
    relaxed: bool
    where: tuple[str, ...]
    record: str
    single_entry: bool
    size: float = math.inf
    equality: bool = False
    spare: bool = False
    joint: bool = False

    # A MappingProxyType can neither be pickled nor copied.
    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "sensitivity": dict(self.sensitivity)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, sensitivity=MappingProxyType(state["sensitivity"]))

    @property
    def drowns(self) -> bool:
        """Whether one record moves a number as far as its whole declared range: noise on it leaves nothing then."""
        return self.level == "low" and 0 < self.size <= self.sensitivity["linf"]

    @property
    def taxonomy(self) -> TaxonomyCell:
        return taxonomy_cell(self.part, self.level)

    def lower_bound(self, epsilon: float, delta: float, beta: float) -> LowerBound | None:
        """The theorem's least error at this cell; bounded changes: what its proof says of them (``LowerBound.scaled``).

        None where the theorem's gadgets do not apply: to aggregates, of which a record moves many entries
        by little; to rows, of which some may be violated; and, for bounded changes, to inequalities. Those may have
        a point that keeps them for all data (a bed for everybody who can come), which the equalities of Theorems 36
        and 38 have not.
        """
        if self.level == "high":
            return None if self.relaxed else lower_bound(self.part, epsilon, delta, beta)
        # One coefficient of a private row is Theorem 38's gadget, in which a record owns one column.
        gadget = {"objective": "objective", "scalar": "scalar", "row": "column"}.get(self.part)
        if not self.single_entry or gadget is None or not (self.equality or gadget == "objective"):
            return None
        return lower_bound(gadget, epsilon, delta, beta).scaled(self.sensitivity["linf"])

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        out = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**out, "sensitivity": dict(self.sensitivity), "where": list(self.where)}

    @property
    def verdict(self) -> str:
        """Part, level, and whether it can be solved, by which theorem."""
        verdict = "solvable" if self.solvable else "impossible"
        if self.relaxed:
            verdict = "solvable if a few constraints may be violated"
        if self.drowns:
            few = "solvable if a few constraints may be violated; otherwise"
            verdict = f"{few if self.spare else 'solvable, but'} at epsilon 1 or less the answer drowns in noise"
        if self.joint:
            verdict = f"solvable jointly; published, {verdict}"
        return f"{self.part}, {self.level} sensitivity: {verdict} ({self.theorem})"

    @property
    def words(self) -> tuple[str, ...]:
        """What Table 1 says of the cell in a sentence, why the parameter is in it, and how far one record moves it."""
        told = self.taxonomy.summary if self.theorem == self.taxonomy.theorem else ""
        told = self.taxonomy.joint.summary if self.joint else told
        moves = ", ".join(f"{key} {number(value)}" for key, value in self.sensitivity.items())
        moved = "" if self.level == "high" else f" ({moves})"
        return (*([told] if told else []), f"{self.reason}{moved}", *([self.drowned] if self.drowns else []))

    @property
    def drowned(self) -> str:
        """Why the answer drowns, and what the theorem leaves to any mechanism at epsilon 1."""
        moved, size = number(self.sensitivity["linf"]), number(self.size)
        text = (
            f"It drowns: one record moves a number by {moved}, and the range declared of it is {size}. Noise that "
            "hides a record is as large as the number, unless epsilon is well above 1 or long sums average it out."
        )
        text += " feasibility=dpm.AllBut(rows=...) leaves a few constraints out instead." if self.spare else ""
        least = self.lower_bound(1.0, 0.0, 0.05)
        return text if least is None else f"{text} {least.theorem} at epsilon 1, beta 0.05: {least.statement}."

    def __str__(self) -> str:
        return printable(f"{self.parameter}: {self.verdict}; {self.reason}")


@dataclass(frozen=True)
class Classification(PlainData):
    """The cells of a problem; empty when nothing is private.

    ``words`` : what it is when it is in no cell, such as a post-processing of published numbers.
    """

    cells: tuple[Cell, ...]
    words: str = ""

    @property
    def solvable(self) -> bool:
        """Whether every cell can be solved privately (perhaps in the relaxed sense, perhaps jointly)."""
        return all(cell.solvable or cell.joint for cell in self.cells)

    @property
    def joint(self) -> str:
        """Who learns what, where records own the variables; "" elsewhere."""
        told = next((cell.taxonomy.joint for cell in self.cells if cell.joint), None)
        if told is None:
            return ""
        return f"others learn {told.others_learn}; a person learns {told.person_learns} ({told.theorem})"

    def parts(self) -> tuple[str, ...]:
        """The distinct parts, in the order of the cells."""
        return tuple(dict.fromkeys(cell.part for cell in self.cells))

    def to_dict(self) -> dict[str, Any]:
        cells = [cell.to_dict() for cell in self.cells]
        return {"solvable": self.solvable, "cells": cells, "words": self.words, "joint": self.joint}

    @classmethod
    def _of(cls, data: Mapping[str, Any]) -> Self:
        found = super()._of(data)
        str(found)  # parts, levels and sensitivities that Table 1 does not have
        return found

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        for cell in self.cells:
            verdict = "no" if not cell.solvable else "yes, all but a few rows" if cell.relaxed else "yes"
            verdict = f"jointly; published: {verdict}" if cell.joint else verdict
            moves = "arbitrarily far"
            if cell.level == "low":
                moves = ", ".join(f"{key} {number(value)}" for key, value in cell.sensitivity.items())
            rows.append((cell.parameter, f"{cell.part}, {cell.level}", verdict, cell.theorem, moves, cell.reason))
        return _few_of_a_kind(rows)

    def __str__(self) -> str:
        if not self.cells:
            return self.words or "Nothing is private: the problem is solved as it is."
        lines, kinds = ["Classification (HRRU14, Table 1)"], self.kinds()
        for names, cell in kinds[:_MOST_NAMES]:
            lines += [wrapped(f"{names}: {cell.verdict}"), *(wrapped(line, "  ") for line in cell.words)]
        if len(kinds) > _MOST_NAMES:
            lines.append(f"... and {len(kinds) - _MOST_NAMES} more kinds in to_dict()")
        lines += [wrapped(f'release="joint": {self.joint}')] if self.joint else []
        if any(re.match(r"constraint \d+ \(", label) for cell in self.cells for label in cell.where):
            lines.append(wrapped(_HINT))
        return screenful("\n".join(lines), "classification.to_dict()")

    def __repr__(self) -> str:
        return f"<Classification: {'; '.join(self.verdicts()[:2]) or self.words or 'nothing is private'}>"

    def verdicts(self) -> tuple[str, ...]:
        """A line for each kind of cell, without its reason."""
        return tuple(printable(f"{names}: {cell.verdict}") for names, cell in self.kinds())

    def told(self) -> tuple[str, ...]:
        """A line for each kind of cell, without its sensitivity."""
        return tuple(printable(f"{names}: {cell.verdict}; {cell.reason}") for names, cell in self.kinds())

    def kinds(self) -> list[tuple[str, Cell]]:
        """Cells of which the same is to be said, with the names of their parameters: features and labels, say."""
        alike: dict[tuple[str, ...], list[Cell]] = {}
        for cell in self.cells:
            alike.setdefault((cell.part, cell.level, cell.theorem, cell.reason), []).append(cell)
        return [(listed(list(dict.fromkeys(c.parameter for c in cells))), cells[0]) for cells in alike.values()]

    def plot(self, ax: Any = None) -> Any:
        """Draw Table 1 with the cells of this model lit (extra ``[plot]``); returns the figure.

        Raises
        ------
        SpecificationError, MissingExtraError
            For a model in no cell; without matplotlib.
        """
        if not self.cells:
            raise SpecificationError(
                "no cell to light", why=self.words or "nothing is private", remedy="dpm.taxonomy().plot() is the table"
            )
        lit: dict[tuple[str, str], list[str]] = {}
        for cell in self.cells:
            names = lit.setdefault((cell.taxonomy.label, cell.level), [])
            names += [] if cell.parameter in names else [cell.parameter]
        drawn = [s if (s.part, s.level) not in lit else s._replace(**self._own(s)) for s in squares()]
        return taxonomy_grid(drawn, lit, ax)

    def _own(self, square: Square) -> dict[str, str]:
        """Verdict and theorem of this model's cells where they are not the table's."""
        mine = [c for c in self.cells if (c.taxonomy.label, c.level) == (square.part, square.level)]
        worst = next((cell for cell in mine if not cell.solvable), mine[0])
        verdict = "no" if not worst.solvable else "yes*" if worst.relaxed else "yes"
        verdict = "joint" if worst.joint else verdict
        return {"verdict": verdict, "theorem": worst.theorem}

    def _repr_html_(self) -> str:
        if not self.cells:
            return f"<p>{escape(str(self))}</p>"
        footer = (f'release="joint": {self.joint}',) if self.joint else ()
        return TextTable(_COLUMNS, self._rows(), "Classification (HRRU14, Table 1)", footer)._repr_html_()


def _few_of_a_kind(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """At most ``_MOST_NAMES`` rows of the same cell and verdict, and how many more there are."""
    out: list[tuple[str, ...]] = []
    counts: dict[tuple[str, ...], int] = {}
    for row in rows:
        counts[row[1:4]] = counts.get(row[1:4], 0) + 1
        if counts[row[1:4]] <= _MOST_NAMES:
            out.append(row)
    for kind, count in counts.items():
        if count > _MOST_NAMES:
            out.append((f"... and {count - _MOST_NAMES} more", *kind, "", "see to_dict() for all of them"))
    return out


_COLUMNS = ("private parameter", "cell", "solvable", "HRRU14", "one record moves it by at most", "why")


def classify(affine: AffineMap, footprint: Footprint, places: Mapping[str, tuple[str, ...]]) -> Classification:
    """Find the cell of every (private parameter, part) pair.

    ``places`` : name of each private parameter -> labels of the constraints or objective it stands in.
    """
    cells: list[Cell] = []
    matrix = affine.private_matrix
    objective, offset, scalar = (affine.private_parts[name] for name in ("objective", "offset", "scalar"))
    for group in record_blocks(affine):
        sensitivities = footprint.by_records[group.records]
        touch = _Touch.of(affine, group, matrix, scalar, bounded=sensitivities["matrix"].finite)
        for block in group.parameters:
            wheres = places.get(block.name, ())
            if _enters(objective, block) or (_enters(offset, block) and not _enters(scalar, block)):
                alone = "it stands only in the objective's constant term, which no solution depends on"
                sensitivity, words = sensitivities["objective"], "" if _enters(objective, block) else alone
                numbers = _Numbers.of(affine, objective, block, sensitivity, in_rows=False)
                cells.append(_cell("objective", sensitivity, numbers, block, wheres, words))
            if _enters(matrix, block):
                sensitivity = sensitivities["matrix"]
                numbers = _Numbers.of(affine, matrix, block, sensitivity)
                cells.append(_cell(touch.part, sensitivity, numbers, block, wheres, touch.words, touch.separable))
            if _enters(scalar, block):
                sensitivity = sensitivities["scalar"]
                numbers = _Numbers.of(affine, scalar, block, sensitivity)
                if touch.part == "row" and touch.reaches_matrix and touch.with_scalar:
                    words = "it moves together with the same row of A, so a record owns one constraint"
                    besides = sensitivities["matrix"]
                    cells.append(_cell("row", sensitivity, numbers, block, wheres, words, touch.separable, besides))
                else:
                    cells.append(_cell("scalar", sensitivity, numbers, block, wheres, ""))
    return Classification(tuple(cells))


@dataclass(frozen=True)
class _Numbers:
    """What is declared of the numbers of a part that one parameter enters: see `Cell`."""

    size: float
    equality: bool
    spare: bool

    @staticmethod
    def of(
        affine: AffineMap, part: LinearMap, block: ThetaBlock, sensitivity: Sensitivity, in_rows: bool = True
    ) -> _Numbers:
        inside = (part.column >= block.offset) & (part.column < block.offset + block.size)
        if not inside.any():
            return _Numbers(math.inf, False, False)
        entry, size = part.column[inside] - block.offset, math.inf
        low, high = block.parameter.entry_range
        if np.isfinite(low).all() and np.isfinite(high).all():
            width = (high - low)[entry] * np.abs(part.coefficient[inside])
            size = float((width if part.single else np.bincount(group_ids(part.row[inside])[0], width)).max())
        if not in_rows:
            return _Numbers(size, False, False)
        kinds = np.array([cone.kind for cone in affine.cones])
        rows = part.row[inside] % affine.rows
        here = set(kinds[np.unique(affine.block_of_row()[rows])])
        spare = size <= sensitivity.linf and here == {"nonneg"} and (rows != rows[0]).any()
        spare = spare and most_items(block.parameter.layout.units[entry], rows) == 1
        return _Numbers(size, "zero" in here, bool(spare))


@dataclass(frozen=True)
class _Touch:
    """Which rows and columns of A one record of a Records can reach."""

    part: Part
    words: str
    with_scalar: bool
    separable: bool
    reaches_matrix: bool = True

    @staticmethod
    def of(affine: AffineMap, group: Blocks, matrix: LinearMap, scalar: LinearMap, bounded: bool) -> _Touch:
        if not matrix.nnz:
            return _Touch("row", "", False, False, reaches_matrix=False)
        reach = [_Reach.of(affine, block, matrix, scalar) for block in group.blocks]
        rows = sum(most_items(each.units, each.rows) for each in reach)
        reached = np.zeros(max(affine.rows, 1), dtype=bool)
        for each in reach:
            reached[each.rows] = True
        all_rows = np.flatnonzero(reached)
        # Columns decide only where rows do not.
        few = rows == 1 and all_rows.size == 1
        columns = sum(most_items(each.units, each.columns) for each in reach) if rows > 1 or few else 0
        kinds = np.unique(affine.block_of_row()[all_rows]) if all_rows.size else all_rows
        linear = all(affine.cones[kind].kind in ("zero", "nonneg") for kind in kinds)
        if few and columns == 1 and not bounded:
            # Leaving a few rows out is no way out when there is only one: this is the gadget of Theorem 38.
            return _Touch("column", "one record moves one coefficient of the only private row of A", False, False)
        if rows <= 1:
            words = "one record moves coefficients of one row of A"
            together = sum(each.most_rows_with_scalar() for each in reach)
            return _Touch("row", words, together <= 1, linear, reaches_matrix=rows == 1)
        if columns == 1:
            return _Touch("column", f"one record moves coefficients of one column of A, in {rows} rows", False, False)
        words = f"one record moves coefficients in {rows} rows and {columns} columns of A"
        separable = linear and rows < all_rows.size  # a few rows of their own, which can be left out as one can
        return _Touch("row" if separable else "matrix", words, False, separable)


@dataclass(frozen=True)
class _Reach:
    """Per private coefficient of one block: its unit, and its row and column of A; the same for b."""

    units: Integers
    rows: Integers
    columns: Integers
    scalar_units: Integers
    scalar_rows: Integers

    @staticmethod
    def of(affine: AffineMap, block: tuple[ThetaBlock, ...], matrix: LinearMap, scalar: LinearMap) -> _Reach:
        only = block[0]
        if len(block) == 1 and matrix is affine.private_matrix and matrix.nnz and matrix.within(only):
            in_b = scalar.select((scalar.column >= only.offset) & (scalar.column < only.offset + only.size))
            units = only.parameter.layout.units[in_b.column - only.offset]
            return _Reach(matrix.units_of(only), *affine.private_coordinates, units, in_b.row)
        unit = np.full(affine.theta_size, -1, dtype=np.int64)
        for member in block:
            unit[member.columns] = member.parameter.layout.units
        in_a = matrix.select(unit[matrix.column] >= 0)
        in_b = scalar.select(unit[scalar.column] >= 0)
        return _Reach(unit[in_a.column], *coordinates_of(in_a.row, affine.rows), unit[in_b.column], in_b.row)

    def most_rows_with_scalar(self) -> int:
        """The largest number of rows of A and b together that one unit reaches."""
        if not self.scalar_rows.size:
            return most_items(self.units, self.rows)
        units = np.concatenate([self.units, self.scalar_units])
        return most_items(units, np.concatenate([self.rows, self.scalar_rows]))


def _enters(part: LinearMap, block: ThetaBlock) -> bool:
    return bool(((part.column >= block.offset) & (part.column < block.offset + block.size)).any())


def _cell(
    part: Part,
    sensitivity: Sensitivity,
    numbers: _Numbers,
    block: ThetaBlock,
    places: tuple[str, ...],
    words: str,
    separable: bool = True,
    besides: Sensitivity | None = None,
) -> Cell:
    parameter = block.parameter
    level: Level = "low" if sensitivity.finite and (besides is None or besides.finite) else "high"
    entry = taxonomy_cell(part, level)
    solvable = entry.solvable and (level == "low" or separable)
    theorem = entry.theorem if solvable or not entry.solvable else "Theorem 38"
    return Cell(
        part=part,
        level=level,
        parameter=block.name,
        reason=_reason(part, level, sensitivity, numbers.size, block, places, words, solvable),
        theorem=theorem,
        sensitivity=MappingProxyType(dict(sensitivity.as_mapping())),
        solvable=solvable,
        relaxed=solvable and entry.relaxed,
        where=places,
        record=record_words([parameter]),
        single_entry=parameter.layout.unit_size == 1,
        size=numbers.size,
        equality=numbers.equality,
        spare=numbers.spare,
    )


def _reason(
    part: str,
    level: str,
    sensitivity: Sensitivity,
    size: float,
    block: ThetaBlock,
    places: tuple[str, ...],
    words: str,
    solvable: bool,
) -> str:
    where = listed(list(places)) if places else "the model"
    enters = f"{words}; {block.name} stands in" if words else f"{block.name} enters {_PART_WORDS[part]} through"
    text = f"{enters} {where}; {record_words([block.parameter])}"
    if level == "low":
        beside = f"in a declared range of {number(size)}" if size < math.inf else "no range is declared"
        return f"{text} and moves each number of this part by at most {number(sensitivity.linf)} ({beside})"
    bound = "no bound is declared on how far it moves it"
    if not solvable and part == "matrix":
        bound += ", and it reaches too many constraints to leave them out"
    return f"{text}, and {bound}"
