"""Rows of a table as private matrices: features of a regression, and who has what."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Integers
from dpmodel.errors import SpecificationError
from dpmodel.marks.dataset.declared import Declared, refuse_unknown
from dpmodel.marks.dataset.encoder import Encoder, Term
from dpmodel.marks.dataset.reading import WHO
from dpmodel.marks.dataset.table import Flags, People, computed
from dpmodel.marks.domain import elements, key
from dpmodel.marks.private import Private
from dpmodel.marks.rows import SourceRows
from dpmodel.marks.values import Handed

# Numbers of a table beyond which its rows are read in blocks: half a gigabyte.
_IN_MEMORY = 1 << 26


def rows(
    people: People,
    columns: str | Iterable[Term],
    ordinal: str | Sequence[str],
    *,
    scale: bool,
    first: bool,
    in_blocks: bool | None,
    name: str | None,
) -> Private:
    """``Dataset.rows``."""
    _refuse_unlike_answer(in_blocks, "rows")
    terms = [columns] if isinstance(columns, str) else list(columns)
    named = (ordinal,) if isinstance(ordinal, str) else tuple(ordinal)
    if isinstance(columns, str) and columns not in named and people.declared.listed(columns):
        named = (columns,) if len(people.declared.categories(columns)) == 2 else named
    encoder = Encoder.of(people.declared, terms, named, scale=scale)
    if isinstance(columns, str) and len(encoder.names) > 1:
        raise SpecificationError(
            f"Dataset.rows: {columns!r} has {len(encoder.names)} categories, which are no vector of numbers",
            remedy=f"rows([{columns!r}]) for a matrix with a column per category, or ordinal={columns!r} for codes",
        )
    if people.person is not None and people.max_rows != 1 and not first:
        raise SpecificationError(
            "Dataset.rows: a person may have several rows",
            why="a regression protects a row, and a person must own no more than one",
            remedy="rows(..., first=True): the first row of each person in the order of order=; or one row a person",
        )
    used = list(dict.fromkeys(c for term in terms for c in ([term] if isinstance(term, str) else term)))
    # Refuses rows outside, where that is an error; how many rows there are is public.
    counted = people.summed(people.bounded(people.used([]), 1), {}, {}, used)
    count = sum(found[0] for found in counted.values())
    low, high = encoder.ranges
    called = name or (columns if isinstance(columns, str) else "rows")
    large = people.table.lazy and count * len(people.declared.columns) > _IN_MEMORY
    width = None if isinstance(columns, str) else len(encoder.names)
    numbers = encoder.vector if width is None else encoder.matrix
    value: Any
    if people.table.stays or (large if in_blocks is None else in_blocks):
        value = SourceRows(people.blocks, numbers, width)
    else:
        block = nw.to_native(people.one_row_each)
        value = computed(lambda: numbers(block)).view(Handed)
    if width is None:
        return Private(value, name=called, unit="entry", bounds=[low[0], high[0]], records=people.records)
    norms: dict[str, Any] = {}
    if max(-low.min(), high.max()) <= 1:  # else norms would hide that columns have units of their own
        one, two = encoder.norms
        norms = {"max_l1": one, "max_l2": two} if two < math.sqrt(len(encoder.names)) else {}
    private = Private(value, name=called, unit="row", bounds=[low, high], records=people.records, **norms)
    private.labels = ((None, ()), ("column", encoder.names))
    return private


def incidence(
    people: People, person: str, item: str, items: Sequence[Any] | None, *, in_blocks: bool | None, name: str | None
) -> Private:
    """``Dataset.incidence``."""
    _refuse_unlike_answer(in_blocks, "incidence")
    for column in (person, item):
        refuse_unknown(column, people.declared.columns)
    if people.person != person:
        raise SpecificationError(
            f"Dataset.incidence: rows of {person!r}, but privacy_id is {people.person!r}",
            why="a row of the matrix must be a record"
            + ", and every row of the table is one" * (people.person is None),
            remedy=f"Dataset(..., privacy_id={person!r})",
        )
    listed = people.declared.categories(item) if items is None else tuple(elements(items))
    named = Declared.of(people.declared.columns, None, {item: listed}, decimal=people.declared.decimal)
    everybody = replace(people, declared=named, order=())
    place = named.place(item)
    visits = everybody.used([item])
    everybody.summed(visits, {}, {}, [item])
    visits = visits.distinct([WHO, place])
    declared: dict[str, Any] = {"unit": "row", "bounds": [0.0, 1.0], "max_l1": people.max_rows}
    declared |= {"name": name or f"{person} x {item}", "records": people.records}
    if people.table.stays if in_blocks is None else in_blocks:
        flags = Flags(place, len(listed), people.max_rows)
        # Of everybody, whatever they have.
        source = everybody.used([]).distinct([WHO, place]).flagged(flags).blocks(flags.names)
        return _labelled(Private(SourceRows(source, flags.numbers, len(listed)), **declared), person, item, listed)
    if people.max_rows is not None:
        visits = everybody.bounded(visits, people.max_rows)
    pairs = visits.eager([WHO, place])
    # Who is there at all is public under replace-one, and a row of zeros tells nothing else. In the order of ``rows``,
    # because row i of one is taken for the same person's as row i of the other.
    count, number = computed(lambda: _numbered(people.one_row_each[WHO]))
    places = computed(lambda: (number(pairs[WHO]), pairs[place].to_numpy()))
    matrix = sp.csr_array((np.ones(len(pairs)), places), shape=(count, len(listed)))
    return _labelled(Private(matrix, positions="private", **declared), person, item, listed)


def _labelled(private: Private, person: str, item: str, listed: tuple[Any, ...]) -> Private:
    private.labels = ((person, ()), (item, listed))
    return private


def _refuse_unlike_answer(in_blocks: Any, method: str) -> None:
    if in_blocks not in (None, True, False):
        raise SpecificationError(f"Dataset.{method}: in_blocks is not True, False or None", remedy="in_blocks=True")


def _numbered(column: nw.Series[Any]) -> tuple[int, Callable[[nw.Series[Any]], Integers]]:
    """How many different values there are, and the number of each."""
    if column.dtype.is_numeric():
        values = column.to_numpy()
        order = np.argsort(values)
        return values.size, lambda given: order[np.searchsorted(values, given.to_numpy(), sorter=order)]
    place = {value: i for i, value in enumerate(key(v) for v in elements(column))}
    return len(place), lambda given: np.array([place[key(v)] for v in elements(given)], dtype=np.int64)
