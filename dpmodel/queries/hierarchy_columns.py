"""Names and a tree from a parent column or from nested columns."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from dpmodel.errors import SpecificationError
from dpmodel.marks.dataset.open_table import columns_of
from dpmodel.marks.domain import elements
from dpmodel.numerics.trees.tree import Tree

Names = tuple[Hashable, ...]


def from_parents(table: Any, parents: Any, name: str, parent: str) -> tuple[Names, Tree]:
    """Names in breadth-first order and their tree."""
    if parents is not None:
        names, above = elements(table), elements(parents)
    elif isinstance(table, Mapping) and not {name, parent} <= set(table):
        names, above = list(table.keys()), list(table.values())
    else:
        names, above = columns_of(
            table,
            (name, parent),
            "{child: parent}, name= and parent= of the columns, or columns= of nested ones",
        )
    if len(names) != len(above):
        raise SpecificationError(f"{len(names)} names and {len(above)} parents", remedy="one parent per name")
    number = _numbered(names)
    up = np.full(len(names), -1, dtype=np.int64)
    for i, each in enumerate(above):
        if missing(each):
            continue
        if not isinstance(each, Hashable) or each not in number:
            raise SpecificationError(
                f"{names[i]!r} has the parent {each!r}, which is not a name",
                remedy="every parent in the list of names; None (or NaN) as the parent of a root",
            )
        up[i] = number[each]
    if not names:
        raise SpecificationError("a hierarchy without nodes")
    tree, order, _ = Tree.of_parents(up, names)
    return tuple(names[i] for i in order.tolist()), tree


def from_columns(table: Any, columns: tuple[str, ...]) -> tuple[Names, Tree]:
    """Names (or paths, where names repeat) in breadth-first order and their tree."""
    if not columns:
        raise SpecificationError("no nested columns", remedy="columns=('nation', 'state', 'county'), top first")
    rows = list(zip(*columns_of(table, columns, "nested columns, top first"), strict=True))
    paths: dict[tuple[Any, ...], int] = {}
    up: list[int] = []
    leaves: set[tuple[Any, ...]] = set()
    for row in rows:
        depth = next((i for i, each in enumerate(row) if missing(each)), len(row))
        if not depth or any(not missing(each) for each in row[depth:]):
            raise SpecificationError(f"row {row!r} has a gap", remedy="values missing at the end of a row only")
        if row[:depth] in leaves:
            raise SpecificationError(f"{row[:depth]!r} is listed twice", remedy="one row per leaf")
        leaves.add(row[:depth])
        above = -1
        for end in range(1, depth + 1):
            found = paths.get(row[:end])
            if found is None:
                found = paths[row[:end]] = len(up)
                up.append(above)
            above = found
    listed = list(paths)
    if not listed:
        raise SpecificationError("a hierarchy without nodes")
    tree, order, _ = Tree.of_parents(up)
    inner = next((listed[i] for i, child in zip(order.tolist(), tree.children.tolist(), strict=True)
                  if child and listed[i] in leaves), None)  # fmt: skip
    if inner is not None:
        raise SpecificationError(f"{inner!r} is a leaf in one row and has parts in another", remedy="name the rest")
    unique = len({path[-1] for path in listed}) == len(listed)
    names: Sequence[Hashable] = [path[-1] for path in listed] if unique else listed
    return tuple(names[i] for i in order.tolist()), tree


def _numbered(names: Sequence[Any]) -> dict[Hashable, int]:
    number: dict[Hashable, int] = {}
    for i, each in enumerate(names):
        if not isinstance(each, Hashable) or missing(each):
            raise SpecificationError(f"name number {i} is {each!r}", remedy="text or numbers")
        if number.setdefault(each, i) != i:
            raise SpecificationError(f"{each!r} is listed twice", remedy="one row per node, and different names")
    return number


def missing(value: Any) -> bool:
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and value != value)
