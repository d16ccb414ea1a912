"""Which entries of the standard form the records of each private parameter reach, by label."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from dpmodel._types import Integers
from dpmodel.compile.standard_form.affine_map import AffineMap, LinearMap, ThetaBlock
from dpmodel.compile.standard_form.extremes import most_items

_MOST = 12  # labels of one part


def reached(affine: AffineMap) -> tuple[dict[str, Any], ...]:
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
    for code in found[:_MOST].tolist():
        mine = codes == code
        yield tell(code), int(np.unique(items[mine]).size), most_items(units[mine], items[mine])
    if found.size > _MOST:
        rest = np.isin(codes, found[_MOST:])
        count = int(np.unique(items[rest]).size)
        yield f"{found.size - _MOST} more", count, most_items(units[rest], items[rest])
