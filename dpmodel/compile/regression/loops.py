"""Losses written record by record: ``sum(cp.square(X[i] @ w - y[i]) for i in range(n))``.

Terms of one kind differ in the record and in public numbers alone. They are gathered by kind, and each kind is read
once, as the expression of all records that has these terms as its entries: ``cp.square(X @ w - y)``. The work is linear
in the number of terms, and a kind misread is found where the objective is compared at random points.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.compile.regression.forms import (
    exponent,
    is_number,
    is_private,
    kind,
    number_of,
    picks_rows,
    rebuilt,
    unfit,
)
from dpmodel.marks.private import Private

_ENTRYWISE = ("add", "negate", "multiply", "divide", "maximum", "minimum", "abs", "logistic", "huber", "power")
_SHAPES = ("promote", "broadcast", "reshape", "transpose", "conjugate", "sum", "max", "min")


class _NotOfOneRecord(Exception):
    """The term reads more than one record, or is built of atoms that do not act entry by entry."""


@dataclass
class _Kind:
    """Terms alike: the first as written, and by record the factor and the public numbers within."""

    first: Any
    factors: dict[int, float] = field(default_factory=dict)
    numbers: dict[int, list[Any]] = field(default_factory=dict)


@dataclass
class Loops:
    """The terms of single records met so far."""

    count: int
    kinds: dict[Hashable, _Kind] = field(default_factory=dict)
    known: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    def add(self, expression: Any, factor: float) -> bool:
        """Take ``factor * expression`` if it is a term of one record."""
        if self.count == 1 or not picks_rows(expression):
            return False
        reading = _Reading(self)
        try:
            key = reading.key(expression)
        except _NotOfOneRecord:
            return False
        record, turn = reading.record, 0
        assert record is not None
        while record in (found := self.kinds.setdefault((key, turn), _Kind(expression))).factors:
            turn += 1  # the same record again: a kind of its own
        found.factors[record], found.numbers[record] = factor, reading.numbers
        return True

    def expressions(self) -> Iterator[tuple[Any, Floats]]:
        """(entries, factors (n,)) of every kind, records without a term with factor 0."""
        for found in self.kinds.values():
            factors = np.zeros(self.count)
            factors[list(found.factors)] = list(found.factors.values())
            some = next(iter(found.numbers.values()))
            rows = [found.numbers.get(i, some) for i in range(self.count)]
            columns = iter([np.stack(column) for column in zip(*rows, strict=True)])
            yield _lifted(found.first, columns), factors


@dataclass
class _Reading:
    """One walk through a term: its record, the public numbers in order, and a key that is equal for terms alike."""

    loops: Loops
    record: int | None = None
    numbers: list[Any] = field(default_factory=list)

    def key(self, node: Any) -> Any:
        name = kind(node)
        if name == "index" and isinstance(node.args[0], Private):
            return self._entry(node)
        if is_number(node):
            value = _number(node)
            if value is None:
                return self._public(node)
            self.numbers.append(value)
            return "numbers", value.size
        if _opaque(node):
            if not node.is_affine():
                raise _NotOfOneRecord
            return self._public(node)
        if name == "matmul" and all(is_private(arg) or _number(arg) is not None for arg in node.args):
            raise _NotOfOneRecord
        if name != "matmul" and any(arg.size != node.size for arg in node.args):
            raise _NotOfOneRecord  # one number for a whole row: with a record each, it would stand for a column
        if name == "matmul" or _entry_by_entry(node):
            data = exponent(node) if name == "power" else float(number_of(node.M)) if name == "huber" else None
            return name, data, node.size == 1, *[self.key(arg) for arg in node.args]
        raise _NotOfOneRecord

    def _entry(self, node: Any) -> Hashable:
        """A private row, or a part of it."""
        parameter, (record, rest) = node.args[0], _record_of(node)
        if self.record not in (None, record) or _records(parameter) != self.loops.count:
            raise _NotOfOneRecord
        self.record = record
        return "private", id(parameter), repr(rest)

    def _public(self, node: Any) -> Any:
        """Public expressions: equal keys for equal trees."""
        known = self.loops.known.get(id(node))
        if known is None:
            if not node.args:
                key: Any = id(node) if node.variables() else np.asarray(node.value).tobytes()
            elif any(isinstance(arg, list) for arg in node.args):
                raise _NotOfOneRecord
            else:
                key = (type(node), repr(node.get_data()), *[self._public(arg) for arg in node.args])
            known = self.loops.known[id(node)] = node, key  # the node is kept: its id must not be used again
        return known[1]


def _axis(parameter: Private) -> int:
    """Along which records are numbered."""
    return 1 if parameter.ndim == 2 and parameter.unit == "column" else 0


def _records(parameter: Private) -> int:
    return int(parameter.shape[_axis(parameter)])


def _record_of(node: Any) -> tuple[int, Any]:
    """(record, key of the rest) of ``X[i]``, ``X[i, :2]``, ``y[i]`` or ``XT[:, i]``."""
    parameter, keys = node.args[0], getattr(node, "_orig_key", None)
    if keys is None:
        raise _NotOfOneRecord
    axis = _axis(parameter)
    rows = range(parameter.shape[axis])[node.key[axis]]
    keys = keys if isinstance(keys, tuple) else (keys,)
    if len(rows) != 1 or len(keys) > parameter.ndim:
        raise _NotOfOneRecord
    return rows[0], keys[1 - axis] if len(keys) == 2 else slice(None)


def _number(node: Any) -> Any:
    """Value of a public number or vector, which may differ from term to term; None for anything else."""
    if not is_number(node) or (node.ndim > 1 and node.size > 1):
        return None
    value = number_of(node)
    value = np.asarray(value.toarray() if sp.issparse(value) else value)
    return value.reshape(()) if value.size == 1 else value


def _opaque(node: Any) -> bool:
    """Whether a part without private parameters is the same for all records, as it is written."""
    if is_private(node):
        return False
    mixes = kind(node) == "matmul" and any(_number(arg) is not None for arg in node.args)
    return node.size > 1 or not (mixes or _entry_by_entry(node))


def _entry_by_entry(node: Any) -> bool:
    """Whether the atom acts on each entry, or on the one that it has."""
    name = kind(node)
    if name in _ENTRYWISE:
        return True
    return name in (*_SHAPES, "quad_over_lin", "norm1", "pnorm") and node.args[0].size == 1


def _product(node: Any, left: Any, right: Any) -> Any:
    """``left @ right``, one of which has a row for each record: k numbers, of which the other is a map."""
    rows, other = left, right
    if not _by_record(node.args[0]):
        rows, other = right, left.T if left.ndim == 2 else left
    if rows.ndim == 1 and other.size == 1:
        return cp.multiply(rows, cp.reshape(other, (), order="F"))
    if node.size == 1 and other.ndim == 2:
        other = cp.reshape(other, (other.size,), order="F")
    if rows.ndim != 2 or rows.shape[1] != other.shape[0]:
        unfit(node, "a row of one record is multiplied by something else than a map of its entries", "X[i] @ w")
    return rows @ other


def _by_record(node: Any) -> bool:
    """Whether it becomes one number, or row of numbers, for each record."""
    return _number(node) is not None if is_number(node) else not _opaque(node)


def _lifted(node: Any, numbers: Iterator[Any]) -> Any:
    """The expression of all records that has terms like this one as its entries."""
    name = kind(node)
    if name == "index" and isinstance(node.args[0], Private):
        parameter, rest = node.args[0], _record_of(node)[1]
        if parameter.ndim == 1:
            return parameter
        rows = parameter.T if parameter.unit == "column" else parameter
        return rows if isinstance(rest, slice) and rest == slice(None) else rows[:, rest]
    if is_number(node):
        if _number(node) is None:
            return node
        found = next(numbers)
        return cp.Constant(found[0] if found.ndim == 1 and np.ptp(found) == 0 else found)
    if _opaque(node):
        return node
    args = [_lifted(arg, numbers) for arg in node.args]
    match name:
        case "matmul":
            return _product(node, *args)
        case "quad_over_lin":
            return cp.square(args[0]) / args[1]
        case "norm1" | "pnorm":
            return cp.abs(args[0])
        case _ if name in _SHAPES:
            return args[0]
        case _:
            return rebuilt(node, args)
