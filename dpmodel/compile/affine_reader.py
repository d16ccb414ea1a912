"""Affine CVXPY expressions as sparse rows, read off the tree by its public face, without lowering.

Everything is flattened column by column (Fortran order), as CVXPY itself does for any number of dimensions. Sums,
scalings, rearrangements and products with constants are followed exactly; any other affine atom is asked for its
Jacobian. Public parameters count as constants with their present values; ``TensorReader`` reads coefficients
as functions of the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.compile import atoms
from dpmodel.marks.layout import sum_by


@dataclass(frozen=True, eq=False)
class Gather:
    """Entry k of the result is entry ``index[k]`` of the argument, or zero where that is -1. ``size`` : argument's."""

    index: Integers
    size: int

    def forward(self, rows: Affine) -> Affine:
        held = self.index >= 0
        at = self.index if held.all() else np.where(held, self.index, 0)
        offset = np.where(held, rows.offset[at], 0.0) if rows.size else np.zeros(self.index.size)
        if rows.pick is not None:
            return Affine(offset, pick=np.where(held, rows.pick[at], -1) if rows.size else np.full(self.index.size, -1))
        row, column, data = rows.coo()
        there = np.flatnonzero(held)
        which, entry = pairs(self.index[there], row)
        return Affine(offset, row=there[which], column=column[entry], data=data[entry], width=rows.width)

    def back(self, weights: Floats) -> Floats:
        held = self.index >= 0
        return sum_by(self.index[held], weights=weights[held], minlength=self.size)


@dataclass(frozen=True, eq=False)
class Scale:
    """Every entry times a factor, (size,) or one number."""

    factor: Any

    def forward(self, rows: Affine) -> Affine:
        row, column, data = rows.coo()
        factor = np.asarray(self.factor)
        with np.errstate(invalid="ignore"):  # infinite ones are told of by whoever reads the coefficients
            data = data * (factor if factor.ndim == 0 else factor[row])
            offset = rows.offset * factor
        return Affine(offset, row=row, column=column, data=data, width=rows.width)

    def back(self, weights: Floats) -> Floats:
        return np.asarray(weights * self.factor)


@dataclass(frozen=True, eq=False)
class Group:
    """Entry k of the argument is added to entry ``index[k]`` of the result, of ``size`` entries."""

    index: Integers
    size: int

    def forward(self, rows: Affine) -> Affine:
        row, column, data = rows.coo()
        offset = sum_by(self.index, weights=rows.offset, minlength=self.size)
        return Affine(offset, row=self.index[row], column=column, data=data, width=rows.width)

    def back(self, weights: Floats) -> Floats:
        return np.asarray(weights[self.index])


@dataclass(frozen=True, eq=False)
class Times:
    """``table`` (CSR, CSC or dense) times the argument."""

    table: Any

    @cached_property
    def matrix(self) -> Any:
        """CSR or CSC."""
        return self.table if sp.issparse(self.table) else _compressed(self.table)

    def forward(self, rows: Affine) -> Affine:
        offset = self.matrix @ rows.offset if rows.offset.any() else np.zeros(self.table.shape[0])
        if rows.pick is not None and (rows.pick >= 0).all():
            row, column, data = self._entries()
            return Affine(offset, row=row, column=rows.pick[column], data=data, width=rows.width)
        row, column, data = rows.coo()
        used, place = np.unique(column, return_inverse=True)  # columns may be many more than entries
        product = sp.coo_array(self.matrix @ sp.csr_array((data, (row, place)), shape=(rows.size, used.size)))
        return Affine(offset, row=product.row, column=used[product.col], data=product.data, width=rows.width)

    def _entries(self) -> tuple[Integers, Integers, Floats]:
        table = self.table
        if not sp.issparse(table):
            return _nonzero(table)
        outer = np.repeat(np.arange(table.indptr.size - 1), np.diff(table.indptr))
        return (*((outer, table.indices) if table.format == "csr" else (table.indices, outer)), table.data)

    def back(self, weights: Floats) -> Floats:
        return np.asarray(self.matrix.T @ weights)


Step = Gather | Scale | Group | Times | None


@dataclass(frozen=True, eq=False)
class Affine:
    """``A x + offset`` with ``offset`` (size,). A is given by coordinates ``row, column, data`` (duplicates add up), or
    by ``pick`` (size,): row k is variable ``pick[k]``, or nothing where that is -1. ``width`` : columns."""

    offset: Floats
    row: Any = None
    column: Any = None
    data: Any = None
    pick: Any = None
    width: int = 0

    @property
    def size(self) -> int:
        return int(self.offset.size)

    def coo(self) -> tuple[Integers, Integers, Floats]:
        if self.pick is None:
            return self.row, self.column, self.data
        row = np.flatnonzero(self.pick >= 0)
        return row, self.pick[row], np.ones(row.size)

    def csr(self, width: int | None = None) -> sp.csr_array:
        """A (size, width) without duplicates and zeros."""
        row, column, data = self.coo()
        if width is None:
            width = max(self.width, int(column.max(initial=-1)) + 1)
        matrix = sp.csr_array(sp.coo_array((data, (row, column)), shape=(self.size, width)))
        matrix.eliminate_zeros()
        return matrix


def pairs(left: Integers, right: Integers) -> tuple[Integers, Integers]:
    """All (i, k) with ``left[i] == right[k]``: i and k. ``left``, ``right`` : integers from 0 on."""
    if np.array_equal(left, right) and (left[1:] > left[:-1]).all():
        here = np.arange(left.size)
        return here, here
    order = np.argsort(right, kind="stable")
    counts = np.bincount(right, minlength=int(left.max(initial=-1)) + 1)
    times = counts[left]
    here = np.repeat(np.arange(left.size), times)
    within = np.arange(here.size) - np.repeat(np.cumsum(times) - times, times)
    return here, order[(np.cumsum(counts) - counts)[left][here] + within]


def flat(value: Any) -> Floats:
    """A real value column by column.
    Errors: NotAffine, for complex numbers, of which later products may be real."""
    value = value.toarray() if sp.issparse(value) else value
    if np.iscomplexobj(value):
        raise NotAffine("a complex constant")
    return np.asarray(value, dtype=np.float64).ravel(order="F")


@dataclass(eq=False)
class AffineReader:
    """Reads expressions of the variables whose entries start at column ``start[variable.id]``."""

    start: Mapping[int, int]
    _constant: dict[int, tuple[Any, bool]] = field(default_factory=dict)
    _read: dict[int, tuple[Any, Affine]] = field(default_factory=dict)

    def is_leaf(self, node: Any) -> bool:
        """Whether its entries have columns of their own."""
        return isinstance(node, cp.Variable)

    def is_constant(self, node: Any) -> bool:
        """Whether no leaf stands in the tree."""
        known = self._constant.get(id(node))
        if known is None:
            here = not self.is_leaf(node) and all(map(self.is_constant, node.args))
            known = self._constant[id(node)] = node, here
        return known[1]

    def read(self, node: Any) -> Affine:
        """The rows of an affine expression."""
        known = self._read.get(id(node))
        if known is None:
            known = self._read[id(node)] = node, self._rows(node)
        return known[1]

    def _leaf(self, node: Any) -> Affine:
        first = self.start[node.id]
        return Affine(np.zeros(node.size), pick=np.arange(first, first + node.size))

    def _rows(self, node: Any) -> Affine:
        if self.is_constant(node):
            offset, none = flat(node.value), np.zeros(0, dtype=np.int64)
            return Affine(offset, row=none, column=none, data=np.zeros(0))
        if self.is_leaf(node):
            return self._leaf(node)
        parts = [self.read(arg) if step is None else step.forward(self.read(arg)) for arg, step in self.steps(node)]
        if len(parts) == 1:
            return parts[0]
        moving = [part for part in parts if part.pick is not None or part.data.size]
        offset = sum((part.offset for part in parts[1:]), parts[0].offset)
        if len(moving) == 1 and moving[0].pick is not None:
            return Affine(offset, pick=moving[0].pick)
        if not moving:  # coefficients that are all zero
            return Affine(offset, row=parts[0].row, column=parts[0].column, data=parts[0].data)
        coordinates = [part.coo() for part in moving]
        row, column, data = (np.concatenate(each) for each in zip(*coordinates, strict=True))
        return Affine(offset, row=row, column=column, data=data, width=max(part.width for part in moving))

    def steps(self, node: Any) -> list[tuple[Any, Step]]:
        """An affine atom as a sum of linear maps of its arguments: (argument, map), None for the identity."""
        kind, args = kind_of(node), node.args
        if kind == "add":
            return [(arg, spread(tuple(arg.shape), tuple(node.shape))) for arg in args]
        if kind == "identity":
            return [(args[0], None)]
        if kind == "negate":
            return [(args[0], Scale(-1.0))]
        if kind == "sum":
            return [(args[0], _grouped(node))]
        if kind == "trace" and args[0].ndim == 2:
            return [(args[0], Times(_diagonal(args[0].shape[0])))]
        if kind == "divide" and self.is_constant(args[1]):
            with np.errstate(divide="ignore"):
                return [(args[0], Scale(_one(1.0 / flat(args[1].value))))]
        if kind == "multiply":
            left = self.is_constant(args[0])
            if left or self.is_constant(args[1]):
                factor, other = (args[0], args[1]) if left else (args[1], args[0])
                if factor.shape == other.shape or (factor.size == 1 and other.size == node.size):
                    return [(other, Scale(_one(flat(factor.value))))]
        elif kind == "matmul":
            step = self._product(*args)
            if step is not None:
                return [step]
        elif kind == "rearrange":
            return _rearranged(node)
        return self._jacobians(node)

    def _product(self, left: Any, right: Any) -> tuple[Any, Step] | None:
        if max(left.ndim, right.ndim) > 2 or min(left.ndim, right.ndim) < 1:
            return None
        if self.is_constant(left):
            table = _table(left.value)
            count = right.shape[1] if right.ndim == 2 else 1
            return right, Times(table if count == 1 else _repeated(Times(table).matrix, count))
        table = _table(right.value, column=True).T
        count = left.shape[0] if left.ndim == 2 else 1
        return left, Times(table if count == 1 else sp.csr_array(sp.kron(Times(table).matrix, sp.eye_array(count))))

    def _jacobians(self, node: Any) -> list[tuple[Any, Step]]:
        """By CVXPY's own gradient, over stand-ins for the arguments."""
        stand_ins = [arg if self.is_constant(arg) else cp.Variable(arg.shape) for arg in node.args]
        copy = node.copy(stand_ins)
        if not copy.is_affine():
            raise NotAffine(type(node).__name__)
        for arg in stand_ins:
            if isinstance(arg, cp.Variable):
                arg.value = np.zeros(arg.shape)
        out: list[tuple[Any, Step]] = [(cp.Constant(copy.value), None)]
        try:
            gradient = copy.grad
        except NotImplementedError:  # real and imaginary parts have none
            raise NotAffine(type(node).__name__) from None
        for arg, stand_in in zip(node.args, stand_ins, strict=True):
            if stand_in in gradient:
                derivative = gradient[stand_in]
                derivative = derivative if sp.issparse(derivative) else np.atleast_2d(derivative)
                out.append((arg, Times(sp.csr_array(sp.csr_array(derivative).T))))
        return out


class NotAffine(Exception):
    """An atom that cannot be followed."""


# ------------------------------------------------------------------ single atoms
def spread(shape: tuple[int, ...], wanted: tuple[int, ...]) -> Step:
    if shape == wanted:
        return None
    return Gather(_broadcast(shape, wanted), int(np.prod(shape, dtype=np.int64)))


def _broadcast(shape: tuple[int, ...], wanted: tuple[int, ...]) -> Integers:
    out = np.empty(wanted, dtype=np.int64, order="F")  # less than half the time of ``np.broadcast_to``
    out[...] = numbering(shape)
    return out.ravel(order="F")


def numbering(shape: tuple[int, ...]) -> Integers:
    """0, 1, ... column by column, in this shape."""
    return np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape, order="F")


def _grouped(node: Any) -> Group:
    return group(tuple(node.args[0].shape), node.axis)


def group(shape: tuple[int, ...], axis: Any) -> Group:
    """Sums over ``axis`` (None: all; a number or several)."""
    if axis is None:
        return Group(np.zeros(int(np.prod(shape, dtype=np.int64)), dtype=np.int64), 1)
    axes = {a % len(shape) for a in (axis if isinstance(axis, tuple | list) else (axis,))} if shape else set()
    kept = tuple(1 if a in axes else d for a, d in enumerate(shape))
    return Group(_broadcast(kept, shape), int(np.prod(kept, dtype=np.int64)))


def _diagonal(side: int) -> sp.csr_array:
    """(1, side^2) what sums the diagonal of a square matrix."""
    entry = np.arange(side)
    return sp.csr_array((np.ones(side), (np.zeros_like(entry), entry * (side + 1))), shape=(1, side * side))


def _rearranged(node: Any) -> list[tuple[Any, Step]]:
    """Where the entries go is found by sending their numbers through the atom; structural zeros have number 0."""
    starts = np.cumsum([1, *(arg.size for arg in node.args)])
    firsts = zip(node.args, starts[:-1], strict=True)
    numbers = [
        _numbers(tuple(arg.shape)) + (first - 1) if first > 1 else _numbers(tuple(arg.shape)) for arg, first in firsts
    ]
    moved = np.asarray(node.numeric(numbers))
    if moved.size != node.size:
        raise NotAffine(type(node).__name__)
    place = np.rint(moved).astype(np.int64).ravel(order="F")
    out: list[tuple[Any, Step]] = []
    for arg, first, end in zip(node.args, starts[:-1], starts[1:], strict=True):
        mine = (place >= first) & (place < end)
        out.append((arg, Gather(np.where(mine, place - first, -1), arg.size)))
    return out


@lru_cache(maxsize=8)
def _numbers(shape: tuple[int, ...]) -> Floats:
    """1, 2, ... column by column. Kept, because ``x[i]`` for every i must not cost the whole of x each time."""
    out = numbering(shape).astype(np.float64) + 1.0
    out.setflags(write=False)
    return out


def _table(value: Any, column: bool = False) -> Any:
    """A constant factor as a matrix, CSR, CSC or dense: a vector is a row, or a column. Errors as ``flat``."""
    if np.iscomplexobj(value):
        raise NotAffine("a complex constant")
    if sp.issparse(value):
        return value if value.format in ("csr", "csc") else sp.csr_array(value)
    value = np.asarray(value, dtype=np.float64)
    if value.ndim == 1:
        return value[:, None] if column else value[None, :]
    return value


def _nonzero(table: Floats) -> tuple[Integers, Integers, Floats]:
    """Row, column and value of what is not zero, row by row; ``table.nonzero()`` takes ten times as long where most of
    it is."""
    row, column = np.divmod(np.flatnonzero(table != 0), max(table.shape[1], 1))
    return row, column, table[row, column]


def _compressed(table: Floats) -> sp.csr_array:
    """A matrix without its zeros."""
    row, column, data = _nonzero(table)
    ends = np.cumsum(np.bincount(row, minlength=table.shape[0]))
    return sp.csr_array((data, column, np.append(0, ends)), shape=table.shape)


def _repeated(matrix: Any, count: int) -> Any:
    """``matrix`` (CSR or CSC) ``count`` times along the diagonal, in a tenth of the time that ``sp.kron`` takes."""
    by_rows, copy = matrix.format == "csr", np.arange(count)[:, None]
    indices, starts = matrix.indices + matrix.shape[by_rows] * copy, matrix.indptr[:-1] + matrix.nnz * copy
    arrays = np.tile(matrix.data, count), indices.ravel(), np.append(starts, matrix.nnz * count)
    return (sp.csr_array if by_rows else sp.csc_array)(arrays, shape=tuple(count * side for side in matrix.shape))


def _one(values: Floats) -> Any:
    """One number where all are the same."""
    return float(values[0]) if values.size and (values == values[0]).all() else values


# Atoms of ``atoms.kind`` that are followed, by what is done with them.
_FOLLOWED = {
    **{name: name for name in ("add", "negate", "sum", "divide", "multiply", "matmul", "trace")},
    **dict.fromkeys(("real", "conjugate", "wrap"), "identity"),
    **dict.fromkeys(("index", "reshape", "transpose", "promote", "broadcast", "hstack", "vstack"), "rearrange"),
    **dict.fromkeys(("concatenate", "diag", "diagonal", "upper_tri"), "rearrange"),
}
# What may stand outside of an expression and be read as factors and places of its entries.
OUTER = ("negate", "divide", "multiply", "rearrange")


def kind_of(node: Any) -> str:
    """What is done with an atom; "" for those that are not followed."""
    return _FOLLOWED.get(atoms.kind(node), "")


class AtBound(cp.constraints.NonNeg):  # type: ignore[misc]
    """``sign`` times (``entries`` of a variable less ``bound``), as CVXPY's constraints for attributes have it; atoms
    for it take long to make and to read."""

    def __init__(self, variable: cp.Variable, entries: Integers, sign: float, bound: Any) -> None:
        cp.Constraint.__init__(self, [])
        self.variable, self.entries, self.sign = variable, entries.ravel(order="F"), sign
        bound = bound.value if isinstance(bound, cp.Expression) else bound
        self.offset = -sign * np.full(entries.shape, bound, dtype=np.float64).ravel(order="F")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.entries.shape

    @property
    def size(self) -> int:
        return self.entries.size

    def variables(self) -> list[cp.Variable]:
        return [self.variable]


@cache
def _is_leaf(kind: type) -> bool:
    return issubclass(kind, (cp.Variable, cp.Parameter, AtBound))  # several times slower than a look at what is kept


class TensorReader(AffineReader):
    """Reads expressions of ``variables`` entries of variables and ``theta_size - 1`` entries of parameters, which begin
    at ``start[variable.id]`` and ``parameters[parameter.id]``. No parameter needs a value, and none is read.

    A coefficient stands at (row, variable, parameter): it multiplies the product of one entry of the variables and one
    of the parameters. Entry n of the variables and the last entry of the parameters are the number 1, for terms that
    lack one of them. Variable and parameter together are one column, ``variable * theta_size + parameter``, so that
    sums, scalings and rearrangements are followed as in any affine expression. What comes on top are products of
    parameters with variables.
    """

    def __init__(
        self, start: Mapping[int, int], variables: int, parameters: Mapping[int, int], theta_size: int
    ) -> None:
        super().__init__(start)
        self._parameters, self._variables, self._theta_size = parameters, variables, theta_size
        self._column_of_one = (variables + 1) * theta_size - 1

    def is_leaf(self, node: Any) -> bool:
        return _is_leaf(node.__class__)

    def coefficients(self, expressions: Sequence[Any]) -> tuple[Integers, Integers, Integers, Floats]:
        """Row, variable, parameter and coefficient, of all ``expressions`` one after the other; duplicates add up.
        Errors: NotAffine, for atoms that cannot be followed."""
        none = np.zeros(0, dtype=np.int64)
        parts, begin = [(none, none, np.zeros(0))], 0
        for each in expressions:
            row, column, data = self._coordinates(self.read(each))
            parts.append((row + begin, column, data))
            begin += each.size
        row, column, data = (np.concatenate(each) for each in zip(*parts, strict=True))
        variable = column // self._theta_size
        return row, variable, column - self._theta_size * variable, data

    def _leaf(self, node: Any) -> Affine:
        entry = np.arange(node.size)
        if type(node) is AtBound:
            column = (self.start[node.variable.id] + 1 + node.entries) * self._theta_size - 1
            return Affine(node.offset, row=entry, column=column, data=np.full(node.size, node.sign))
        if isinstance(node, cp.Parameter):
            pick = self._variables * self._theta_size + self._parameters[node.id] + entry
        else:
            pick = (self.start[node.id] + 1 + entry) * self._theta_size - 1
        return Affine(np.zeros(node.size), pick=pick)

    def _rows(self, node: Any) -> Affine:
        if len(node.args) == 2 and not any(map(self.is_constant, node.args)):
            kind, (left, right) = kind_of(node), node.args
            if kind == "multiply" and left.shape == right.shape:
                entry = np.arange(node.size)
                return self._products(node, (entry, entry), (entry, np.zeros_like(entry)))
            if kind == "matmul" and {left.ndim, right.ndim} <= {1, 2}:
                height, length = left.shape[0] if left.ndim == 2 else 1, right.shape[0]
                inner, place = np.divmod(np.arange(left.size), height)
                other, key = np.divmod(np.arange(right.size), length)
                return self._products(node, (inner, place), (key, height * other))
        return super()._rows(node)

    def _jacobians(self, node: Any) -> list[tuple[Any, Step]]:
        """None: CVXPY gives some of these atoms variables of their own (cumulative sums), which has fewer entries."""
        raise NotAffine(type(node).__name__)

    def _products(self, node: Any, left: tuple[Integers, Integers], right: tuple[Integers, Integers]) -> Affine:
        """Products of entries of the two arguments that have the same key, added at the sum of their places. ``left``,
        ``right`` : (size,) key and place of every entry."""
        # CVXPY's own rule (DPP): nothing that is read here has to be checked for it.
        ends = node.args, node.args[::-1]
        if not any(not one.variables() and not other.parameters() for one, other in ends):
            raise NotAffine(type(node).__name__)
        row, column, data = self._coordinates(self.read(node.args[0]))
        other_row, other_column, other_data = self._coordinates(self.read(node.args[1]))
        here, there = pairs(left[0][row], right[0][other_row])
        place = left[1][row[here]] + right[1][other_row[there]]
        # (variable, 1) and (1, parameter) make (variable, parameter).
        column = column[here] + other_column[there] - self._column_of_one
        return Affine(np.zeros(node.size), row=place, column=column, data=data[here] * other_data[there])

    def _coordinates(self, rows: Affine) -> tuple[Integers, Integers, Floats]:
        """With the offset as coefficients of 1."""
        row, column, data = rows.coo()
        constant = np.flatnonzero(rows.offset)
        if not constant.size:
            return row, column, data
        one = np.full(constant.size, self._column_of_one)
        offset = rows.offset[constant]
        return np.concatenate([row, constant]), np.concatenate([column, one]), np.concatenate([data, offset])
