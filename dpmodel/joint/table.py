"""The private rows of people, as a mechanism's ``run`` sees them: parts of them at a time, in memory or in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, PrivateArray
from dpmodel.compile.form import require_private_values
from dpmodel.compile.rows import HeldNumbers, added, cached_rows, held_numbers, rows_of_one_source, summed
from dpmodel.joint.form import Form, People
from dpmodel.joint.read import Read
from dpmodel.marks import vault
from dpmodel.marks.private import Private
from dpmodel.marks.rows import RowSource

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class PeopleTable:
    """``count`` people, of whom nothing is known but sums over them, and each by themselves.

    ``rows`` : (count, width) rows of data in memory; None where they lie in ``source``, whose blocks ``reader`` reads.
    """

    form: Form
    count: int
    rows: PrivateArray | None
    source: RowSource | None = None
    reader: BlockReader | None = None

    def map_reduce(self, function: Callable[[People, int], T], combine: Callable[[T, T], T] = added) -> T:
        """``function(people, first)`` of every part of the people, of which ``first`` is the number of the first,
        combined in one pass.

        ``function``, like ``combine``, is pure and can be pickled: it may run elsewhere, and again if it fails there.
        """
        return self._rows(partial(_of_people, form=self.form, function=function), combine)

    def row(self, i: int) -> PrivateArray:
        """(width,) the row of data of person i."""
        if self.rows is not None:
            return PrivateArray(self.rows[i].copy())
        return PrivateArray(self._rows(partial(_row_of, i), added))

    def person(self, i: int) -> People:
        """Person i alone."""
        return self.form.people(self.row(i)[None, :])

    def _rows(self, function: Callable[[Floats, int], T], combine: Callable[[T, T], T]) -> T:
        if self.rows is None:
            assert self.source is not None and self.reader is not None
            return summed(self.source, self.reader, partial(_apart, function), combine)
        step = cached_rows(self.rows.shape[1])
        starts = range(0, self.count, step)
        return reduce(combine, (function(self.rows[start : start + step], start) for start in starts))


def _of_people(rows: Floats, first: int, form: Form, function: Callable[[People, int], T]) -> T:
    return function(form.people(rows), first)


def _apart(function: Callable[[Floats, int], T], part: tuple[Floats, int]) -> T:
    return function(*part)


def _row_of(i: int, rows: Floats, first: int) -> Floats:
    inside = first <= i < first + len(rows)
    return rows[i - first].copy() if inside else np.zeros(rows.shape[1])


@dataclass(frozen=True, eq=False)
class BlockReader:
    """Rows of data of one block, from public facts alone; it travels to where the block lies.

    ``held`` : the numbers of every private parameter. ``public`` : arrays with a row for every person.
    """

    held: HeldNumbers
    public: tuple[Floats, ...]
    width: int

    def parts(self, block: Any, number: int, step: int | None) -> Iterator[tuple[Floats, int]]:
        """As ``PartReader`` has them: rows (B, width), and the number of the first."""
        for owned, first in self.held.parts(block, number, cached_rows(self.width) if step is None else step):
            stop = first + owned[0].shape[0]
            yield np.concatenate([*owned, *(array[first:stop] for array in self.public)], axis=1), first


def people_table(read: Read) -> PeopleTable:
    """The people of a problem, for a mechanism's ``run`` and what is handed out to one person.
    Errors: MissingValueError, where a value is missing; SpecificationError, for rows in different places."""
    require_private_values(read.private)
    if any(parameter.in_blocks for parameter in read.private):
        rows_of_one_source(read.private)
        sealed: list[Any] = [vault.unseal(parameter) for parameter in read.private]
        reader = BlockReader(held_numbers(read.private, sealed), read.public, read.form.width)
        return PeopleTable(read.form, read.count, None, sealed[0].source, reader)
    return PeopleTable(read.form, read.count, _in_memory(read.private, read.public, read.count, read.form.width))


def _in_memory(private: Sequence[Private], public: Sequence[Floats], count: int, width: int) -> PrivateArray:
    """(count, width) a copy, a person's numbers beside each other."""
    rows, at = np.empty((count, width)), 0
    for parameter in private:
        size = int(parameter.size) // count
        rows[:, at : at + size] = _owned(parameter, count)
        at += size
    for array in public:
        rows[:, at : at + array.shape[1]] = array
        at += array.shape[1]
    rows.setflags(write=False)
    return PrivateArray(rows)


def _owned(parameter: Private, count: int) -> Floats:
    """(count, size) the numbers of each person, a share's in C order."""
    entries: Any = vault.unseal(parameter)
    if sp.issparse(entries):
        return np.asarray(entries.toarray())
    layout = parameter.layout
    if layout.size == parameter.size and parameter.sparse_idx is None:
        return np.asarray(entries.reshape(parameter.shape, order="F").reshape(count, -1))
    shape = count, int(parameter.size) // count
    return np.asarray(sp.csr_array((entries, (layout.rows, layout.columns)), shape=shape).toarray())
