"""Expressions of one person's share, as coordinates: what is public of them, and where the private numbers go in.

All records have the same expression, so that it is written for one: an expression of shape (n, 24) with the record on
axis 0 has 24 places, and a coefficient of place p is ``number * share[s] * data[d]`` for the person's share and row of
data. Its cost does not depend on the number of records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpmodel._types import Floats, Integers
from dpmodel.compile.affine_reader import pairs

PERSON = -1  # in place of an entry of the share: a number of the person, without a share
ALL = -2  # a number that is nobody's: of an expression without a record, as a whole


class Unread(Exception):
    """An expression that is not read; told with its place by whoever called. ``why`` : the rule; ``remedy``."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(why)
        self.why, self.remedy = why, remedy


@dataclass(frozen=True, eq=False)
class Terms:
    """A sum of terms at the places of an expression of ``shape``.

    ``axis`` : which axis is the record; None where no axis is, because the expression is a sum over all of them, or
    nobody's. ``place`` : where a term stands, counted in C order with one record in place of all. ``share`` : entry of
    the share, ``PERSON`` or ``ALL``. ``datum`` : number of the person's row of data that it is multiplied by, -1 for
    none; with ``ALL``, entry of the private numbers that are nobody's. ``number`` : public.
    """

    shape: tuple[int, ...]
    axis: int | None
    place: Integers
    share: Integers
    datum: Integers
    number: Floats

    @property
    def one(self) -> tuple[int, ...]:
        """The shape with one record."""
        return tuple(1 if a == self.axis else d for a, d in enumerate(self.shape))

    @property
    def places(self) -> int:
        return int(np.prod(self.one, dtype=np.int64))

    @property
    def plain(self) -> bool:
        """Whether these are public numbers alone, which are nobody's."""
        return bool(((self.share == ALL) & (self.datum < 0)).all())

    def at(self, shape: tuple[int, ...], axis: int | None, place: Integers) -> Terms:
        return replace(self, shape=shape, axis=axis, place=place)

    def some(self, which: Any) -> Terms:
        """The terms in ``which``, at their places."""
        return replace(
            self, place=self.place[which], share=self.share[which], datum=self.datum[which], number=self.number[which]
        )

    def times(self, factor: float) -> Terms:
        return replace(self, number=self.number * factor)

    def moved(self, shape: tuple[int, ...], axis: int | None, origin: Integers) -> Terms:
        """Place p of the result is place ``origin[p]`` of this."""
        new, old = pairs(origin, self.place)
        return self.some(old).at(shape, axis, new)

    def grouped(self, shape: tuple[int, ...], axis: int | None, target: Integers) -> Terms:
        """Place p is added to place ``target[p]`` of the result."""
        return self.at(shape, axis, target[self.place])

    def owned(self) -> Terms:
        """Public numbers as every person's."""
        return replace(self, share=np.where(self.share == ALL, PERSON, self.share))


def constant(array: Any) -> Terms:
    """Public numbers that are nobody's, zeros left out."""
    array = np.asarray(array, dtype=np.float64)
    flat = array.ravel()
    place = np.flatnonzero(flat)
    return Terms(tuple(array.shape), None, place, np.full(place.size, ALL), np.full(place.size, -1), flat[place])


def numbering(shape: tuple[int, ...]) -> Integers:
    """0, 1, ... row by row, in this shape."""
    return np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape)


def broadcast(terms: Terms, shape: tuple[int, ...], axis: int | None) -> Terms:
    """``terms`` as part of an expression of ``shape`` with the record on ``axis``."""
    if terms.shape == shape and terms.axis == axis:
        return terms
    one = tuple(1 if a == axis else d for a, d in enumerate(shape))
    return terms.moved(shape, axis, np.broadcast_to(numbering(terms.one), one).ravel())


def joined(parts: list[Terms], shape: tuple[int, ...], axis: int | None) -> Terms:
    """The sum of ``parts``, which all have this shape."""
    if len(parts) == 1:
        return parts[0]
    fields = ((part.place, part.share, part.datum, part.number) for part in parts)
    return Terms(shape, axis, *map(np.concatenate, zip(*fields, strict=True)))


# Two numbers of a person multiplied: the data of the products.
Meet = Callable[[Integers, Integers], Integers]


def product(
    left: Terms, i: Integers, right: Terms, j: Integers, total: bool, meet: Meet
) -> tuple[Integers, Integers, Floats]:
    """Share, datum and number of terms ``i`` of ``left`` times terms ``j`` of ``right``.

    ``total`` : whether the factors are as a whole, and not one person's.
    Errors: Unread, for what is not affine in a share, or in a person's private numbers (``meet``).
    """
    share, datum = (left.share[i], right.share[j]), (left.datum[i], right.datum[j])
    if ((share[0] >= 0) & (share[1] >= 0)).any():
        raise Unread("shares times shares are not linear", "a linear objective and linear limits")
    nobodys = [(s == ALL) & (d >= 0) for s, d in zip(share, datum, strict=True)]
    if (nobodys[0] & ((share[1] != ALL) | (datum[1] >= 0))).any() or (
        nobodys[1] & ((share[0] != ALL) | (datum[0] >= 0))
    ).any():
        raise Unread(
            "a private parameter that has no row for each person is a factor, and a share would tell of it",
            "unit='row' (or 'entry' for a vector) with a row for each person, or a number published first "
            "(dpm.measure)",
        )
    if total and not (left.plain or right.plain):
        raise Unread("a sum over all people is multiplied by another", "a sum over people of each one's own product")
    both = (datum[0] >= 0) & (datum[1] >= 0)
    met = np.maximum(*datum)
    if both.any():
        met[both] = meet(datum[0][both], datum[1][both])
    return np.maximum(*share), met, left.number[i] * right.number[j]


def multiplied(left: Terms, right: Terms, meet: Meet) -> Terms:
    """Entry by entry, of the same shape and axis."""
    i, j = pairs(left.place, right.place)
    share, datum, number = product(left, i, right, j, left.axis is None, meet)
    return Terms(left.shape, left.axis, left.place[i], share, datum, number)


def reshaped(terms: Terms, shape: tuple[int, ...], order: str) -> Terms | None:
    """In a new shape, where one axis of that is the record; else None."""
    axis: int | None = None
    if terms.axis is not None:
        before, count = int(np.prod(terms.shape[: terms.axis])), terms.shape[terms.axis]
        found = [a for a, d in enumerate(shape) if d == count and int(np.prod(shape[:a])) == before]
        if not found:
            return None
        axis = found[0]
    one = tuple(1 if a == axis else d for a, d in enumerate(shape))
    origin = numbering(terms.one).reshape(one, order=order)  # type: ignore[call-overload]
    return terms.moved(shape, axis, np.asarray(origin).ravel())


def summed_over(terms: Terms, axes: set[int], keepdims: bool) -> Terms:
    """Sums over ``axes``; over the record, the terms of a total are those of each person still."""
    kept = tuple(1 if a in axes else d for a, d in enumerate(terms.one))
    target = np.broadcast_to(numbering(kept), terms.one).ravel()
    axis = None if terms.axis is None or terms.axis in axes else terms.axis
    if keepdims:
        shape = tuple(1 if a in axes else d for a, d in enumerate(terms.shape))
    else:
        shape = tuple(d for a, d in enumerate(terms.shape) if a not in axes)
        axis = None if axis is None else axis - sum(a < axis for a in axes)
    return terms.grouped(shape, axis, target)
