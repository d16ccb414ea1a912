"""Rows that have released tables: post-processing, which costs no privacy.

1. *A tree.* Of the pairs of columns in the tables, the tree with the largest sum of mutual informations (Chow and Liu
   1968), and rows drawn along it: every column and every pair on the tree is as released, all others are independent
   given the columns between them. Among m rows that share the value of the parent the values of the child are dealt
   out, not drawn: with one random offset, at even steps of the cumulative conditional distribution (systematic
   sampling), to the rows in random order. A value of probability p is then taken by m p rows up to less than 1, where m
   draws would be off by sqrt(m p (1 - p)).
2. *Moves.* Table by table, in random order, rows leave cells that have too many for cells that have too few, a part of
   the surplus at a time: half of them take over the two (or more) values alone, the others become copies of a row of
   that cell, where there is one, which keeps what the values go with (PrivSyn's gradual update, Zhang and others 2021).
   All tables are met but for a rest, which sweeps make smaller; where tables contradict each other, it stays.

Combinations of columns that are in no table together are near what the tables imply, and not measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree
from scipy.special import rel_entr

from dpmodel._types import Floats, Integers
from dpmodel.privacy import PublicGenerator

Pairs = Mapping[tuple[int, int], Floats]
# Moves: sweeps over all tables, and (rows x tables) that are looked at in all of them, where there is more.
_SWEEPS, _LOOKED_AT = 20, 200_000_000


def information(table: Floats) -> float:
    """The mutual information of the columns of a table (a, b) of counts."""
    joint = table / max(float(table.sum()), 1e-300)
    return float(rel_entr(joint, np.outer(joint.sum(axis=1), joint.sum(axis=0))).sum())


def tree_of(pairs: Pairs, count: int) -> list[tuple[int, int]]:
    """(parent, child) of ``count`` columns, parents before their children: the forest of largest information. -1 is the
    parent of the first column of each of its trees."""
    found = {pair: information(table) for pair, table in pairs.items()}
    most = max(found.values(), default=0.0)
    rows, columns = np.array(list(found) or np.zeros((0, 2)), dtype=np.int64).T
    lengths = [1 + most - each for each in found.values()]  # no edge has length 0, which says that there is none
    tree = minimum_spanning_tree(coo_array((lengths, (rows, columns)), shape=(count, count)).tocsr())
    out: list[tuple[int, int]] = []
    parts = connected_components(tree, directed=False)[1]
    for first in np.unique(parts, return_index=True)[1].tolist():
        order, parents = breadth_first_order(tree, first, directed=False)
        out += [(max(int(parents[column]), -1), int(column)) for column in order.tolist()]
    return out


def drawn(pairs: Pairs, singles: list[Floats], rows: int, generator: PublicGenerator) -> Integers:
    """(rows, columns) codes, drawn along the tree of ``pairs``; ``singles`` : table of each column."""
    out = np.zeros((rows, len(singles)), dtype=np.int64)
    for parent, child in tree_of(pairs, len(singles)):
        if parent < 0:
            given, tables = np.zeros(rows, dtype=np.int64), singles[child][None]
        else:
            pair = (parent, child) if (parent, child) in pairs else (child, parent)
            given = out[:, parent]
            tables = pairs[pair] if pair == (parent, child) else pairs[pair].T
        out[:, child] = _dealt(given, tables, generator)
    return out


def _dealt(given: Integers, tables: Floats, generator: Any) -> Integers:
    """(rows,) values with the conditional distribution ``tables[given]``, dealt out at even steps."""
    sums = tables.sum(axis=1, keepdims=True)
    chances = np.where(sums > 0, tables / np.where(sums > 0, sums, 1.0), 1 / tables.shape[1])
    order = np.lexsort((generator.uniform(size=given.size), given))
    counts = np.bincount(given, minlength=len(tables))
    place = np.arange(given.size) - np.repeat(np.cumsum(counts) - counts, counts)
    steps = (place + np.repeat(generator.uniform(size=len(tables)), counts)) / np.repeat(counts, counts)
    ends = np.minimum(np.cumsum(chances, axis=1), 1.0)
    ends[:, -1] = 1.0
    sorted_given = given[order]
    flat = np.searchsorted((ends + np.arange(len(tables))[:, None]).ravel(), sorted_given + steps, side="right")
    out = np.empty(given.size, dtype=np.int64)
    out[order] = np.clip(flat - sorted_given * tables.shape[1], 0, tables.shape[1] - 1)
    return out


def moved(rows: Integers, tables: Mapping[tuple[int, ...], Floats], generator: Any) -> Integers:
    """The rows (n, columns) after the moves towards ``tables``: columns -> counts, whose sums are all the same."""
    rows, wanted = rows.copy(), {columns: _scaled(table, len(rows)) for columns, table in tables.items()}
    listed = [columns for columns in tables if len(columns) > 1]
    sweeps = min(_SWEEPS, max(_LOOKED_AT // max(rows.shape[0] * len(listed), 1), 1))
    for sweep in range(sweeps):
        part = 1 - 0.9 * sweep / sweeps
        for number in generator.permutation(len(listed)).tolist():
            _move(rows, listed[number], wanted[listed[number]], part, generator)
    return rows


def _scaled(table: Floats, count: int) -> Floats:
    total = float(table.sum())
    return table * (count / total) if total > 0 else np.full(table.shape, count / table.size)


def _move(rows: Integers, columns: tuple[int, ...], wanted: Floats, part: float, generator: Any) -> None:
    """Move ``part`` of the surplus of every cell of one table, in place."""
    shape, count = wanted.shape, rows.shape[0]
    flat = np.ravel_multi_index(tuple(rows[:, column] for column in columns), shape)
    found = np.bincount(flat, minlength=wanted.size)
    gap = wanted.ravel() - found
    chance = part * np.maximum(-gap, 0) / np.maximum(found, 1)
    leaving = generator.permutation(np.flatnonzero(generator.uniform(size=count) < chance[flat]))
    missing = np.cumsum(np.maximum(gap, 0))
    if leaving.size == 0 or missing[-1] <= 0:
        return
    steps = (np.arange(leaving.size) + generator.uniform()) * (missing[-1] / leaving.size)
    cell = np.searchsorted(missing, steps, side="right").clip(max=wanted.size - 1)
    # Rows by cell: those of cell c begin at starts[c].
    order = np.argsort(flat.astype(np.uint16) if wanted.size <= 1 << 16 else flat, kind="stable")
    starts = np.cumsum(found) - found
    copies = (found[cell] > 0) & (generator.uniform(size=leaving.size) < 0.5)
    taken = cell[copies]
    models = order[starts[taken] + (generator.uniform(size=taken.size) * found[taken]).astype(np.int64)]
    new = rows[leaving]
    new[copies] = rows[models]
    new[:, list(columns)] = np.stack(np.unravel_index(cell, shape), axis=1)
    rows[leaving] = new
