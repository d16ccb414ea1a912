"""The cells of a problem in words, and which entries of the standard form the records reach."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpmodel._types import Integers
from dpmodel.compile.affine_map import AffineMap, LinearMap, ThetaBlock, most_items
from dpmodel.text import number

if TYPE_CHECKING:
    from dpmodel.programs.classifier import Cell, Classification


def sentences(classification: Classification) -> tuple[str, ...]:
    """One for each parameter and cell; parameters of which the same is to be said share one."""
    return tuple(sentence(cell, names) for names, cell in classification.kinds())


def sentence(cell: Cell, name: str) -> str:
    """What the cell of the parameters ``name`` means for this problem."""
    moves, all_moves = (number(cell.sensitivity.get(norm)) for norm in ("linf", "l1"))
    if cell.part == "objective" and cell.theorem != cell.taxonomy.theorem:  # a regression
        return (
            f"{name}: a record is one term of the objective and moves its gradient by at most {moves} in a coordinate, "
            f"per unit of the loss's derivative; more records make that less, and noise of this size hides any one of "
            f"them ({cell.theorem})."
        )
    if cell.level == "high":
        return f"{name}: {_HIGH[cell.part if cell.relaxed or cell.part != 'row' else 'matrix']} ({cell.theorem})."
    size = f" (in a declared range of {number(cell.size)})" if math.isfinite(cell.size) else ""
    by = f"one record moves {_WHAT[cell.part]} by at most {moves} each{size} and {all_moves} in all"
    if cell.part in ("column", "row", "matrix"):
        by += f", and by {number(cell.sensitivity.get('row_l1'))} within one constraint"
    end = ". At epsilon 1 that noise is as large as the numbers: the answer drowns" if cell.drowns else ""
    return f"{name}: {by}; {_LOW[cell.part]} ({cell.theorem}){end}."


_WHAT = {
    "objective": "costs",
    "scalar": "right-hand sides",
    "row": "coefficients",
    "matrix": "coefficients",
    "column": "coefficients",
}
_LOW = {
    "objective": "noise of this size on the costs hides it and all constraints hold exactly, so what is lost is value, "
    "about that noise times the size of the solution",
    "scalar": "noise of this size on the right-hand sides hides it, so what is lost is that constraints are missed, or "
    "made harder, by about that noise",
    "row": "noise on coefficients is multiplied by the solution, so the smaller the variables are bound to be the "
    "less constraints are missed by",
    "column": "noise on coefficients is multiplied by the solution, and only the columns that a record reaches need it",
}
_LOW["matrix"] = _LOW["row"]
_HIGH = {
    "objective": "one record may put any number into the costs, so a good solution would show what it put there: no "
    "private algorithm finds one",
    "scalar": "one record may put a right-hand side anywhere, so a solution that nearly meets it would show where: no "
    "private algorithm finds one",
    "column": "one record may put any numbers into its column, so a solution that nearly meets the constraints would "
    "show many records: no private algorithm finds one, even if some constraints may be left out",
    "row": "one record owns a constraint and may put any numbers into it, so not all constraints can hold, but all but "
    "a few can",
}
_HIGH["matrix"] = (
    "one record may put any numbers into constraints that cannot all be left out, so a solution that nearly meets them "
    "would show what it put there: no private algorithm finds one"
)


_MOST_LABELS = 12  # labels of one part


def entries_moved(affine: AffineMap) -> tuple[dict[str, Any], ...]:
    """A row for each parameter, part and label: how many entries there are, and how many one record reaches at most."""
    sizes = [cone.size for cone in affine.cones]
    rows, row_labels = _codes([cone.label for cone in affine.cones])
    columns, column_labels = _codes(affine.column_names)
    rows, wide = np.repeat(rows, sizes), len(column_labels)
    out: list[dict[str, Any]] = []

    def both(code: int) -> str:
        return f"{row_labels[code // wide]}, coefficients of {column_labels[code % wide]}"

    for block in affine.private_blocks:
        c, b, A = (_of(part, block) for part in (affine.objective, affine.scalar, affine.private_matrix))
        places = rows[A[0] % affine.rows] * wide + columns[A[0] // affine.rows] if A[0].size else A[0]
        parts = (
            ("c", c, columns[c[0]], column_labels.__getitem__),
            ("b", b, rows[b[0]], row_labels.__getitem__),
            ("A", A, places, both),
        )
        out += [
            {"parameter": block.name, "part": name, "where": where, "entries": count, "one record": most}
            for name, (items, units), codes, tell in parts
            for where, count, most in _by_label(items, units, codes, tell)
        ]
    return tuple(out)


def _codes(labels: Sequence[str]) -> tuple[Integers, list[str]]:
    """A number for each label, the same for equal ones, in the order in which they come; and what they stand for."""
    number = {label: k for k, label in enumerate(dict.fromkeys(labels))}
    return np.array([number[label] for label in labels], dtype=np.int64), list(number)


def _of(part: LinearMap, block: ThetaBlock) -> tuple[Integers, Integers]:
    """Entries of a part and the units that move them."""
    mine = part.select((part.column >= block.offset) & (part.column < block.offset + block.size))
    return mine.row, block.parameter.layout.units[mine.column - block.offset]


def _by_label(
    items: Integers, units: Integers, codes: Integers, tell: Callable[[int], str]
) -> Iterator[tuple[str, int, int]]:
    found, first = np.unique(codes, return_index=True)
    found = found[np.argsort(first)]
    for code in found[:_MOST_LABELS].tolist():
        mine = codes == code
        yield tell(code), int(np.unique(items[mine]).size), most_items(units[mine], items[mine])
    if found.size > _MOST_LABELS:
        rest = np.isin(codes, found[_MOST_LABELS:])
        count = int(np.unique(items[rest]).size)
        yield f"{found.size - _MOST_LABELS} more", count, most_items(units[rest], items[rest])
