"""Which entries of the standard form the records of each private parameter reach, by label."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dpmodel._types import Integers
from dpmodel.compile.standard_form.affine_map import AffineMap, LinearMap, ThetaBlock
from dpmodel.compile.standard_form.extremes import most_items

_MOST = 12  # labels of one part


def reached(affine: AffineMap) -> tuple[dict[str, Any], ...]:
    """A row for each parameter, part and label: how many entries there are, and how many one record reaches at most."""
    rows = np.array([cone.label for cone in affine.cones for _ in range(cone.size)], dtype=object)
    columns = np.array(affine.column_names, dtype=object)
    out: list[dict[str, Any]] = []
    for block in affine.private_blocks:
        parts = {
            "c": (_of(affine.objective, block), lambda items: columns[items]),
            "b": (_of(affine.scalar, block), lambda items: rows[items]),
            "A": (_of(affine.private_matrix, block), lambda items: _both(rows, columns, items, affine.rows)),
        }
        for part, (found, labels) in parts.items():
            out += [
                {"parameter": block.name, "part": part, "where": where, "entries": count, "one record": most}
                for where, count, most in _by_label(*found, labels)
            ]
    return tuple(out)


def _of(part: LinearMap, block: ThetaBlock) -> tuple[Integers, Integers]:
    """Entries of a part and the units that move them."""
    mine = part.select((part.column >= block.offset) & (part.column < block.offset + block.size))
    return mine.row, block.parameter.layout.units[mine.column - block.offset]


def _both(rows: Any, columns: Any, items: Integers, height: int) -> Any:
    below, beside = rows[items % height], columns[items // height]
    return np.array([f"{row}, coefficients of {column}" for row, column in zip(below, beside, strict=True)], object)


def _by_label(items: Integers, units: Integers, labels: Any) -> Iterator[tuple[str, int, int]]:
    if not items.size:
        return
    told = labels(items)
    found: Sequence[str] = list(dict.fromkeys(told.tolist()))
    for label in found[:_MOST]:
        mine = told == label
        yield label, int(np.unique(items[mine]).size), most_items(units[mine], items[mine])
    if len(found) > _MOST:
        rest = np.isin(told, found[_MOST:])
        count = int(np.unique(items[rest]).size)
        yield f"{len(found) - _MOST} more", count, most_items(units[rest], items[rest])
