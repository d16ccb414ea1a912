"""Reads CVXPY expressions over shares as ``Terms``: one person's, or sums over all people.

Every atom is followed with one record in place of all, so that nothing as long as the data is made. Which axis is the
record is known from the shares and the private rows; a public array gets its rows from what it meets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Integers
from dpmodel.compile.affine_reader import pairs
from dpmodel.compile.atoms import is_number, kind, number_of
from dpmodel.compile.refusals import short
from dpmodel.errors import UnsupportedModelError
from dpmodel.joint.leaves import Flat, Leaves, Public, Value
from dpmodel.joint.terms import (
    ALL,
    PERSON,
    Terms,
    Unread,
    broadcast,
    constant,
    joined,
    multiplied,
    numbering,
    product,
    reshaped,
    summed_over,
)
from dpmodel.marks.private import Private
from dpmodel.marks.shares import Shares

_SAME = ("conjugate", "real", "wrap")
_MOVED = ("hstack", "vstack", "concatenate", "transpose", "diag", "diagonal", "upper_tri")
_EXTREMES = ("maximum", "minimum", "max", "min", "abs", "norm1")


class Reader(Leaves):
    """Reads the expressions of one problem with these ``shares``.

    ``rows`` : terms <= 0 that say what each further column t of a share is; ``extra`` of these. ``off_zero`` : those t
    that are not 0 where the share is.
    """

    def __init__(self, shares: Shares) -> None:
        super().__init__(shares)
        self.rows: list[Terms] = []
        self.extra = 0
        self.off_zero: set[int] = set()
        self._found: dict[int, tuple[Any, Value]] = {}

    # ------------------------------------------------------------------ the tree
    def read(self, node: Any) -> Value:
        """Errors: UnsupportedModelError of the innermost expression that is not read."""
        known = self._found.get(id(node))
        if known is None:
            try:
                known = self._found[id(node)] = node, self._read(node)
            except Unread as refused:
                raise UnsupportedModelError(short(node), why=refused.why, remedy=refused.remedy) from None
        return known[1]

    def _read(self, node: Any) -> Value:
        if isinstance(node, cp.Variable):
            return self.of_shares(node)
        if isinstance(node, Private):
            return self.of_private(node)
        if is_number(node):
            return Public(number_of(node), node.name() if isinstance(node, cp.Parameter) else "")
        values = [self.read(arg) for arg in node.args]
        name = kind(node)
        if name in _SAME:
            return values[0]
        if name == "negate":
            return self._scaled(values[0], -1.0)
        if name in ("add", "multiply", "divide"):
            return self._entrywise(name, values, tuple(node.shape))
        if name == "matmul":
            return self._matmul(values[0], values[1], tuple(node.shape))
        if name == "sum":
            return self._sum(values[0], node.axis, bool(node.keepdims))
        if name in ("promote", "broadcast"):
            return self._entrywise("add", values, tuple(node.shape))
        if name == "reshape":
            return self._reshape(values[0], tuple(node.shape), node.order)
        if name == "index":
            return self._index(node, values[0])
        if name in _MOVED:
            return self._rearranged(node, values)
        if name in _EXTREMES:
            return self._extreme(node, name, values)
        if isinstance(node, cp.cumsum):
            return self._running(node, values[0])
        raise Unread(
            f"{type(node).__name__} of shares is not read: read are sums, products with numbers, indices and "
            "reshapes, and per person maximum, minimum, abs, pos and norm1",
            "a linear or piecewise linear form of it",
        )

    # ------------------------------------------------------------------ sums and products
    def _scaled(self, value: Value, factor: float) -> Value:
        if isinstance(value, Flat):
            return replace(value, inner=value.inner.times(factor))
        return value.times(factor) if isinstance(value, Terms) else Public(value.value * factor)

    def aligned(self, values: Iterable[Value], shape: tuple[int, ...]) -> list[Terms]:
        """All as parts of an expression of ``shape``, with the record on the same axis."""
        values = list(values)
        axes = {
            value.axis + len(shape) - len(value.shape)
            for value in values
            if isinstance(value, Terms) and value.axis is not None
        }
        if len(axes) > 1:
            raise Unread(
                "the records of one argument meet another axis of the other",
                "the record on the same axis of both: a number of each person has shape (records, 1) beside shares",
            )
        axis = axes.pop() if axes else None
        out = []
        for value in values:
            if isinstance(value, Public):
                value = self.rows_of(value, None if axis is None else axis - len(shape) + len(value.shape))
            assert isinstance(value, Terms)
            if axis is not None and value.axis is None:
                if not value.plain:
                    raise Unread(
                        "what belongs to one person stands beside a sum over all people, or beside a private number "
                        "that is nobody's",
                        "limits of one person's share by their own numbers, and limits of sums by public or declared "
                        "capacities; a table of people declared with unit='row'",
                    )
                if (place := axis - len(shape) + len(value.shape)) >= 0 and value.shape[place] != 1:
                    raise Unread("a sum over all people has an axis as long as there are records", "fewer entries")
                value = value.owned()
            out.append(broadcast(value, shape, axis))
        return out

    def _entrywise(self, name: str, values: list[Value], shape: tuple[int, ...]) -> Value:
        if any(isinstance(value, Flat) for value in values):
            return self._flat(name, values)
        if name == "divide":
            bottom = values[1]
            if not isinstance(bottom, Public):
                raise Unread("a division by shares or private numbers", "products with numbers")
            with np.errstate(divide="ignore"):
                inverse = 1.0 / bottom.dense
            if not np.isfinite(inverse).all():
                raise Unread("a division by 0", "numbers other than 0")
            name, values = "multiply", [values[0], Public(inverse)]
        parts = self.aligned(values, shape)
        if name == "multiply":
            return multiplied(parts[0], parts[1], self.met)
        return joined(parts, shape, parts[0].axis)

    def _flat(self, name: str, values: list[Value]) -> Value:
        """The same of vectors that were matrices with a row for each record."""
        first = next(value for value in values if isinstance(value, Flat))
        inner: list[Value] = []
        for value in values:
            if isinstance(value, Flat) and value.order == first.order and value.inner.shape == first.inner.shape:
                inner.append(value.inner)
            elif isinstance(value, Public) and value.shape == first.shape:
                inner.append(Public(value.dense.reshape(first.inner.shape, order=first.order)))  # type: ignore[call-overload]
            elif isinstance(value, Public) and prod(value.shape) == 1:
                inner.append(Public(value.dense.reshape(())))
            else:
                raise Unread("a vector of all people's numbers beside another kind", "matrices with a row per record")
        out = self._entrywise(name, inner, first.inner.shape)
        assert isinstance(out, Terms)
        return Flat(out, first.order)

    def _sum(self, value: Value, axis: Any, keepdims: bool) -> Value:
        if isinstance(value, Flat):
            value = value.inner
            axis, keepdims = None, False
        assert isinstance(value, Terms)
        dims = len(value.shape)
        axes = set(range(dims)) if axis is None else {a % dims for a in np.atleast_1d(axis).tolist()}
        out = summed_over(value, axes, keepdims)
        return out if value.axis is None or value.axis not in axes else self._total(out)

    def _total(self, terms: Terms) -> Terms:
        """Of terms of each person, summed over all people: public ones are summed here and now."""
        share, datum, number = terms.share.copy(), terms.datum.copy(), terms.number.copy()
        person = share == PERSON
        shared = person & (datum < 0)
        number[shared] *= self.count
        share[shared] = ALL
        for column in self.columns:
            if isinstance(column.source, Private):
                continue
            mine = person & (datum >= column.first) & (datum < column.first + column.width)
            number[mine] *= column.source.sum(axis=0)[datum[mine] - column.first]
            share[mine], datum[mine] = ALL, -1
        return replace(terms, share=share, datum=datum, number=number)

    def _matmul(self, left: Value, right: Value, shape: tuple[int, ...]) -> Value:
        if isinstance(left, Flat) or isinstance(right, Flat):
            if len(left.shape) != 1 or len(right.shape) != 1:
                raise Unread("a vector of all people's numbers times a matrix", "matrices with a row per record")
            return self._sum(self._flat("multiply", [left, right]), None, False)
        dims = max(len(left.shape), len(right.shape), 2)
        one_right = len(right.shape) == 1
        # Axes from the end: of the left one rows -2, inner -1; of the right one inner -2, columns -1; before, batches.
        at_left = _from_end(left, shift=0)
        at_right = _from_end(right, shift=-1 if one_right else 0)
        inner = at_left == -1 or at_right == -2
        if inner:
            fits = at_left in (-1, None) and at_right in (-2, None)
        else:
            fits = None in (at_left, at_right) or (at_left == at_right and at_left < -2)  # type: ignore[operator]
        if not fits or dims > 3 or (dims == 3 and not (at_left == -3 or at_right == -3)):
            raise Unread(
                "a matrix product in which the numbers of one person meet those of another",
                "cp.multiply(a, x) summed over the axes of a share, or trace(a.T @ x)",
            )
        a = self._factor(left, -1 if inner else None, at_right)
        b = self._factor(right, (-1 if one_right else -2) if inner else None, at_left)
        if (a.axis is None) != (b.axis is None):
            for each in (a, b):
                if each.axis is None and not each.plain:
                    raise Unread(
                        "what belongs to one person is multiplied by a sum over all people, or by a private number "
                        "that is nobody's",
                        "public numbers, or a row for each person",
                    )
        width, columns = int(a.one[-1]) if a.shape else 1, 1 if one_right else int(b.one[-1])
        row, at = np.divmod(a.place, width)
        to, column = np.divmod(b.place, columns)
        i, j = pairs(at, to)
        share, datum, number = product(a, i, b, j, a.axis is None and b.axis is None, self.met)
        axis = None
        end = at_left if at_left is not None else at_right
        if not inner and end is not None:
            axis = {-1: len(shape) - 1, -2: len(shape) - 2 + one_right, -3: 0}[end]
        out = Terms(shape, axis, row[i] * columns + column[j], share, datum, number)
        if inner:
            return self._total(out)
        return out if axis is None else out.owned()

    def _factor(self, value: Value, inner: int | None, other: int | None) -> Terms:
        """A factor as terms; a public one has a row for each record where it is summed over records (``inner`` : that
        axis from the end), or where ``other`` is a batch of records."""
        if isinstance(value, Terms):
            return value
        assert isinstance(value, Public)
        if inner is not None:
            return self.rows_of(value, len(value.shape) + inner)
        if other == -3 and len(value.shape) == 3:
            return self.rows_of(value, 0)
        if sp.issparse(value.value):
            places = sp.coo_array(value.value)
            row, column = places.coords
            place = row.astype(np.int64) * value.shape[1] + column
            order = np.argsort(place, kind="stable")
            none = np.full(place.size, -1)
            return Terms(value.shape, None, place[order], np.full(place.size, ALL), none, places.data[order])
        return constant(value.value)

    # ------------------------------------------------------------------ the same numbers in other places
    def _reshape(self, value: Value, shape: tuple[int, ...], order: str) -> Value:
        if isinstance(value, Flat):
            if value.order != order:
                raise Unread("entries of several people mixed by a reshape", "the same order= as before")
            value = value.inner
        assert isinstance(value, Terms)
        out = reshaped(value, shape, order)
        if out is not None:
            return out
        if len(shape) == 1:
            return Flat(value, order)
        raise Unread("entries of several people mixed by a reshape", "the record on an axis of its own")

    def _index(self, node: Any, value: Value) -> Terms:
        if isinstance(value, Flat):
            raise Unread("an index into a vector of all people's numbers", "matrices with a row per record")
        assert isinstance(value, Terms)
        given = getattr(node, "_orig_key", None)
        key = _expanded(node.key if given is None else given, len(value.shape))
        if value.axis is not None:
            place, axis = 0, 0
            while axis < value.axis or key[place] is None:
                axis += _consumed(key[place])
                place += 1
            mine = key[place] if axis == value.axis else None
            every = isinstance(mine, slice) and mine.indices(self.count) == (0, self.count, 1)
            if not every:
                raise Unread(
                    "an index takes some of the records, or changes their order",
                    "all of them; public 0/1 weights for a part: cp.sum(cp.multiply(w, x), axis=0), w of shape "
                    "(records, 1)",
                )
            key[place] = slice(None)
        return self._probed([value], lambda arrays: arrays[0][tuple(key)], tuple(node.shape))

    def _rearranged(self, node: Any, values: list[Value]) -> Terms:
        axes = {(value.axis, len(value.shape)) for value in values if isinstance(value, Terms)}
        axis = next((a for a, _ in axes if a is not None), None)
        dims = next((d for a, d in axes if a is not None), 0)
        parts = []
        for value in values:
            if isinstance(value, Flat):
                raise Unread("a vector of all people's numbers beside others", "matrices with a row per record")
            if isinstance(value, Public):
                value = self.rows_of(value, axis if len(value.shape) == dims else None)
            parts.append(value)
        if axis is not None and any(part.axis is None for part in parts):
            raise Unread("numbers of each person beside numbers without a row for each person", "the same rows in all")
        return self._probed(parts, node.numeric, tuple(node.shape))

    def _probed(self, parts: list[Terms], moved: Any, shape: tuple[int, ...]) -> Terms:
        """What an atom that moves entries does, found by sending numbers through it: with two records in place of all.
        An entry that it fills with 0 is no term."""
        starts = np.cumsum([1, *(part.places for part in parts)])
        axis: int | None
        origin: Any
        if all(part.axis is None for part in parts):
            axis = None
            origin = moved([numbering(part.shape) + start for part, start in zip(parts, starts[:-1], strict=True)])
        else:
            axis, origin = self._with_two(parts, starts, moved)
        one = tuple(1 if a == axis else d for a, d in enumerate(shape))
        origin = np.rint(np.asarray(origin, dtype=np.float64)).astype(np.int64).ravel() - 1
        assert origin.size == prod(one)
        whole = [part.at((), None, part.place + start - 1) for part, start in zip(parts, starts[:-1], strict=True)]
        return joined(whole, (), None).moved(shape, axis, origin)

    @staticmethod
    def _with_two(parts: list[Terms], starts: Integers, moved: Any) -> tuple[int, Any]:
        """The axis of the record, and where the entries of one record come from."""

        def sent(numbers: list[Any]) -> Any:
            shapes = [tuple(2 if a == p.axis else d for a, d in enumerate(p.shape)) for p in parts]
            return np.asarray(moved([np.array(np.broadcast_to(n, s)) for n, s in zip(numbers, shapes, strict=True)]))

        which = sent([np.arange(2).reshape([-1 if a == p.axis else 1 for a in range(len(p.shape))]) for p in parts])
        origin = sent([numbering(p.one) + start for p, start in zip(parts, starts[:-1], strict=True)])
        for axis, size in enumerate(which.shape):
            if size == 2 and not which.take(0, axis).any():
                second = which.take(1, axis)
                if (second == (origin.take(1, axis) > 0)).all():
                    return axis, origin.take(0, axis)
        raise Unread("entries of several people are mixed", "the record on an axis of its own")

    def _running(self, node: Any, value: Value) -> Terms:
        if not isinstance(value, Terms) or node.axis is None or node.axis % len(value.shape) == value.axis:
            raise Unread("a running sum over records", "cp.cumsum along an axis of a share")
        axis = node.axis % len(value.shape)
        along = value.one[axis]
        index = np.moveaxis(numbering(value.one), axis, 0).reshape(along, -1)
        later, earlier = np.tril_indices(along)
        i, j = pairs(index[earlier].ravel(), value.place)
        return value.some(j).at(value.shape, value.axis, index[later].ravel()[i])

    # ------------------------------------------------------------------ piecewise linear
    def _extreme(self, node: Any, name: str, values: list[Value]) -> Terms:
        """A further column t of the share for each entry, with ``t >= each`` of a maximum, ``<=`` of a minimum."""
        if not any(isinstance(value, Terms) and value.axis is not None for value in values):
            raise Unread(
                f"{name} of a sum over all people, or of private numbers that are nobody's",
                f"{name} of one person's share, inside the sum over people; limits of sums as constraints",
            )
        sign = -1.0 if name in ("minimum", "min") else 1.0
        if name in ("maximum", "minimum"):
            arguments = self.aligned(values, tuple(node.shape))
            target = np.arange(arguments[0].places)
            shape, axis = arguments[0].shape, arguments[0].axis
        else:
            (inner,) = self.aligned(values, tuple(node.args[0].shape))
            if name in ("abs", "norm1"):
                if ((inner.share >= 0) & (inner.share < self.size) & (inner.datum < 0) & (inner.number > 0)).all():
                    return inner if name == "abs" else self._norm(node, inner)
                arguments, target = [inner, inner.times(-1.0)], np.arange(inner.places)
                shape, axis = inner.shape, inner.axis
            else:
                dims = len(inner.shape)
                axes = set(range(dims)) if node.axis is None else {a % dims for a in np.atleast_1d(node.axis).tolist()}
                if inner.axis in axes:
                    raise Unread(f"{name} over records", f"{name} over the axes of a share")
                every = np.arange(inner.places)
                numbers = Terms(inner.shape, inner.axis, every, every, every, np.ones(inner.places))
                outer = summed_over(numbers, axes, bool(node.keepdims))
                arguments, target, shape, axis = [inner], outer.place, outer.shape, outer.axis
        out = self._columns_t(arguments, target, sign, shape, axis)
        return out if name != "norm1" else self._norm(node, out)

    def _norm(self, node: Any, out: Terms) -> Terms:
        summed = self._sum(out, node.axis, bool(node.keepdims))
        assert isinstance(summed, Terms)
        return summed

    def _columns_t(
        self, arguments: list[Terms], target: Integers, sign: float, shape: tuple[int, ...], axis: int | None
    ) -> Terms:
        places = int(target.max()) + 1
        first, self.extra = self.size + self.extra, self.extra + places
        for part in arguments:
            rows = np.arange(target.size)
            t = Terms((target.size,), None, rows, first + target, np.full(rows.size, -1), np.full(rows.size, -sign))
            shifted = part.at((target.size,), None, part.place).times(sign)
            self.rows.append(joined([shifted, t], (target.size,), None))
            # Where the share is 0, t may be 0 if what it is compared with is public and on the right side of 0.
            at_zero = shifted.some(shifted.share == PERSON)
            constants = np.zeros(target.size)
            np.add.at(constants, at_zero.place, at_zero.number)
            private = at_zero.place[at_zero.datum >= 0]
            nested = shifted.place[np.isin(shifted.share, np.array([*self.off_zero], dtype=np.int64))]
            self.off_zero |= {int(first + t) for t in target[np.concatenate([private, nested])]}
            self.off_zero |= {int(first + t) for t in target[constants > 0]}
        every = np.arange(places)
        return Terms(shape, axis, every, first + every, np.full(places, -1), np.ones(places))


def _from_end(value: Value, shift: int) -> int | None:
    """The axis of the record in a matrix product, counted from the end; a vector on the right is a column."""
    if not isinstance(value, Terms) or value.axis is None:
        return None
    return value.axis - len(value.shape) + shift


def _expanded(key: Any, dims: int) -> list[Any]:
    """The parts of an index, with full slices for the axes that it leaves out."""
    parts = list(key) if isinstance(key, tuple) else [key]
    used = sum(_consumed(part) for part in parts if part is not Ellipsis)
    full = [slice(None)] * (dims - used)
    where = next((i for i, part in enumerate(parts) if part is Ellipsis), None)
    if where is None:
        return [*parts, *full]
    return [*parts[:where], *full, *parts[where + 1 :]]


def _consumed(part: Any) -> int:
    """Axes that a part of an index takes."""
    if part is None:
        return 0
    if isinstance(part, slice | int | np.integer):
        return 1
    array = np.asarray(part)
    return array.ndim if array.dtype == bool else 1
