"""The leaves of expressions over shares: shares, private rows, public arrays, and private numbers that are nobody's."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.joint.terms import ALL, PERSON, Terms, Unread, constant
from dpmodel.marks.private import Private
from dpmodel.marks.shares import Shares


@dataclass(frozen=True, eq=False)
class Public:
    """Numbers, dense or CSR, whose rows are people's if what they meet says so. ``name`` : a parameter's."""

    value: Any
    name: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    @property
    def dense(self) -> Floats:
        return np.asarray(self.value.toarray() if sp.issparse(self.value) else self.value, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Flat:
    """``inner`` written as one vector, in which the record is no axis; products of two of a kind and sums are read."""

    inner: Terms
    order: str

    @property
    def shape(self) -> tuple[int, ...]:
        return (prod(self.inner.shape),)


Value = Terms | Public | Flat


@dataclass(frozen=True, eq=False)
class Column:
    """A parameter or public array whose rows are people's: ``width`` numbers of each, from ``first`` on.

    ``source`` : the Private, or the array (n, width).
    """

    name: str
    first: int
    width: int
    source: Any


class Leaves:
    """What the expressions of one problem with these ``shares`` stand on.

    ``columns`` : what a row of data consists of, as it was met. ``aside`` : private parameters without a row for each
    person, and where their entries begin.
    """

    def __init__(self, shares: Shares) -> None:
        self.shares = shares
        self.count = int(shares.shape[0])
        self.size = prod(shares.shape[1:])
        self.columns: list[Column] = []
        self.aside: list[tuple[Any, int]] = []
        self._width = self._aside = 0
        self._public: dict[tuple[int, int], tuple[Any, Terms]] = {}

    def of_shares(self, node: Any) -> Terms:
        if node.id != self.shares.id:
            raise Unread(
                f"variable {node.name()} is not owned record by record, so that it would tell everybody of everybody",
                "dpm.Shares for what people own; what all share is a capacity, public or declared",
            )
        entries = np.arange(self.size)
        none = np.full(self.size, -1)
        return Terms(tuple(node.shape), 0, entries, entries, none, np.ones(self.size))

    def of_private(self, node: Private) -> Terms:
        shape = tuple(node.shape)
        owned = node.unit == "row" or (node.unit == "entry" and len(shape) == 1)
        if owned and shape[:1] == (self.count,) and node.records is self.shares.records:
            width = prod(shape[1:])
            first = self._column(node.name(), width, node)
            entries = np.arange(width)
            return Terms(shape, 0, entries, np.full(width, PERSON), first + entries, np.ones(width))
        if shape[:1] == (self.count,) and node.records is not self.shares.records and owned:
            same = node.records.people is self.shares.records.people
            raise Unread(
                f"{node.name()} has a row for each of {self._whose(node.records)}"
                + (", numbered as the rows of a table are" if same else "")
                + f", and the shares belong to {self._whose(self.shares.records)}",
                "the same records= for the shares and for the private data of their owners: records=data.records of a "
                "Dataset",
            )
        if node.layout.size != node.size:
            raise Unread(f"{node.name()} has structure, and no row for each person", "a parameter of all its entries")
        if not node.sensitivity.finite:
            raise Unread(
                f"one record may move {node.name()} arbitrarily far, and it has no row for each person",
                "l1=, l2= or linf= (how far one record moves it), or bounds=[lo, hi]",
            )
        if not any(each is node for each, _ in self.aside):
            self.aside.append((node, self._aside))
            self._aside += int(node.size)
        first = next(start for each, start in self.aside if each is node)
        entries = np.arange(int(node.size))
        datum = first + entries.reshape(shape, order="F").ravel()  # entries are counted column by column
        return Terms(shape, None, entries, np.full(entries.size, ALL), datum, np.ones(entries.size))

    @staticmethod
    def _whose(records: Any) -> str:
        return f"{records.name}" if records.name else "unnamed records"

    def _column(self, name: str, width: int, source: Any) -> int:
        for column in self.columns:
            if column.source is source:
                return column.first
        self.columns.append(Column(name, self._width, width, source))
        self._width += width
        return self.columns[-1].first

    def rows_of(self, public: Public, axis: int | None) -> Terms:
        """Public numbers in an expression whose record is on ``axis`` (None: no axis, or one that they do not have)."""
        shape = public.shape
        if axis is None or axis < 0 or shape[axis] == 1 != self.count:
            return constant(public.dense)
        known = self._public.get((id(public), axis))
        if known is None:
            known = self._public[id(public), axis] = public, self._own_rows(public.dense, axis, public.name)
        return known[1]

    def _own_rows(self, array: Floats, axis: int, name: str) -> Terms:
        if array.shape[axis] != self.count:
            raise Unread(
                f"an array of shape {array.shape} has no row for each of {self.count} records where one is needed",
                f"{self.count} along that axis",
            )
        rows = np.moveaxis(array, axis, 0).reshape(self.count, -1)
        varying = np.flatnonzero((rows != rows[0]).any(axis=0))
        shared = np.setdiff1d(np.flatnonzero(rows[0]), varying)
        datum, number = np.full(shared.size + varying.size, -1), np.ones(shared.size + varying.size)
        number[: shared.size] = rows[0, shared]
        if varying.size:
            own = np.ascontiguousarray(rows[:, varying])
            first = self._column(name or "public", varying.size, own)
            datum[shared.size :] = first + np.arange(varying.size)
        place = np.concatenate([shared, varying])
        return Terms(array.shape, axis, place, np.full(place.size, PERSON), datum, number)

    def met(self, left: Integers, right: Integers) -> Integers:
        """The data of products of two numbers of a person, which are public.
        Errors: Unread, where one is private: the product would not be affine in private data."""
        pairs, which = np.unique(np.stack([left, right]), axis=1, return_inverse=True)
        columns = [self._public_column(each) for each in pairs]
        first = self._column("public", pairs.shape[1], columns[0] * columns[1])
        return first + which.reshape(left.shape)

    def _public_column(self, data: Integers) -> Floats:
        """(n, d) the numbers of all people."""
        out = np.empty((self.count, data.size))
        for column in self.columns:
            mine = (data >= column.first) & (data < column.first + column.width)
            if mine.any() and isinstance(column.source, Private):
                raise Unread(
                    f"{column.name} is multiplied by another number of the same person, public or private, and the "
                    "product is not affine in a row of data",
                    f"the product of {column.name} and that number declared as one Private",
                )
            if mine.any():
                out[:, mine] = column.source[:, data[mine] - column.first]
        return out
