"""Expressions of private rows as polynomials of low degree, read by the affine reader.

A coefficient stands at (row, column), and a column is a monomial ``w t``: w is 1, an entry of a variable, an entry of a
*product* ``X @ e`` of private features with a public expression e, or an entry of a *node*, an atom that is not affine.
t is 1, one private number of a record, or the product of two. A column is one integer, ``w * radix + t``, so that sums,
gathers, scalings and products with constants are what they are for affine expressions. This reader
adds products of two expressions of which neither is constant: at most one w and two private numbers in a monomial.

``X @ e`` is one column for each record, however many features there are: large tables are not read entry by entry.
Other private expressions (``cp.multiply(X, V)``) are.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, NoReturn

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.compile.affine_reader import (
    Affine,
    AffineReader,
    Gather,
    NotAffine,
    Scale,
    flat,
    kind_of,
    numbering,
    pairs,
    spread,
)
from dpmodel.compile.atoms import diagonal, is_private, kind, number_of
from dpmodel.compile.refusals import short
from dpmodel.errors import SpecificationError, UnsupportedModelError
from dpmodel.marks.private import Private
from dpmodel.regressions.features import Features, tidy

_MOST_BLOCKS = 1 << 12  # most private numbers of one record, products of two included
_MOST_ENTRIES = 3_000_000  # most entries of a private matrix that is read entry by entry
_LARGE = 1_000_000  # most entries of a public table that is read entry by entry
# Kinds of owners of w: no variable, a variable, a product of private features or of a public table, a node.
ONE, VARIABLE, FEATURES, TABLE, NODE = range(5)
_FOLLOWED = ("add", "identity", "negate", "sum", "trace", "rearrange")


class NotPerRecord(UnsupportedModelError):
    """A term with private rows that is no sum over the records (a largest residual, say)."""


# What to try where a private number multiplies a loss.
WEIGHTS = "public weights, or a Private with bounds=[0, W] that multiplies nothing but the losses"


def unfit(
    expression: Any, why: str, remedy: str, error: type[UnsupportedModelError] = UnsupportedModelError
) -> NoReturn:
    """Refuse an objective with private rows, naming the term that does not fit."""
    raise error(f"the objective: {short(expression)} does not fit a private regression", why=why, remedy=remedy)


# ------------------------------------------------------------------ what columns are made of
@dataclass(frozen=True, eq=False)
class Table:
    """A public matrix (n, k) with a key that is equal for equal numbers."""

    matrix: Any

    @cached_property
    def key(self) -> Hashable:
        m = self.matrix
        parts = (m.indptr, m.indices, m.data) if sp.issparse(m) else (m,)
        return (m.shape, *(blake2b(np.ascontiguousarray(part).tobytes()).digest() for part in parts))

    def name(self) -> str:
        return "a public table"


@dataclass(frozen=True, eq=False)
class Product:
    """``features @ expression``, one entry for each record. ``expression`` : (k,), public and affine."""

    features: Features | Table
    expression: cp.Expression


@dataclass(frozen=True)
class Block:
    """One private number of every record (``features`` of one column), or the product of two blocks (``factors``)."""

    features: Any
    factors: tuple[int, ...] = ()

    def name(self) -> str:
        return "" if self.features is None else self.features.name()


@dataclass(frozen=True)
class _Piece:
    """``coefficient * (matrix[rows] @ expression)``: private features or a public (n, k); ``rows``: records."""

    coefficient: Any
    matrix: Any
    expression: cp.Expression
    rows: Any = None


class _NoRows(Exception):
    """A matrix that is no stack of the features of single records."""


@dataclass(eq=False)
class Monomials(AffineReader):
    """Reads expressions over ``count`` records.

    ``start`` : id of a variable -> its first w. ``owners`` : what w belong to: None (for w = 1), variables, products,
    nodes. ``blocks`` : of private numbers; t is ``1 + block * count + record``, or 0 for the number 1.
    """

    start: Any = field(default_factory=dict)
    count: int = 0
    owners: list[Any] = field(default_factory=lambda: [None])
    blocks: list[Block] = field(default_factory=list)
    _next: int = 1
    _table: Integers = field(default_factory=lambda: np.zeros((2, 64), dtype=np.int64))  # first w and kind by owner
    _places: dict[Hashable, int] = field(default_factory=dict)
    _products: dict[Hashable, tuple[int, float]] = field(default_factory=dict)

    @property
    def radix(self) -> int:
        return 1 + _MOST_BLOCKS * self.count

    @property
    def width(self) -> int:
        """Number of w."""
        return self._next

    # ------------------------------------------------------------------ what columns are
    def parts_of(self, column: Integers) -> tuple[Integers, Integers, Integers]:
        """(owner, entry of it, t) of columns."""
        w, t = np.divmod(column, self.radix)
        owner = np.searchsorted(self.firsts, w, side="right") - 1
        return owner, w - self.firsts[owner], t

    @property
    def firsts(self) -> Integers:
        """(owners,) the first w of each."""
        return self._table[0, : len(self.owners)]

    @property
    def kinds(self) -> Integers:
        """(owners,) ``ONE`` to ``NODE``."""
        return self._table[1, : len(self.owners)]

    def block_of(self, t: Integers) -> Integers:
        """The block of every t; -1 for the number 1."""
        return np.where(t > 0, (t - 1) // self.count, -1)

    def records(self, column: Integers) -> Integers:
        """The record whose numbers a monomial holds; -1 for none, -2 where they are of two records."""
        owner, entry, t = self.parts_of(column)
        first = np.where(self.kinds[owner] == FEATURES, entry, -1)
        second = np.where(t > 0, (t - 1) % self.count, -1)
        out = np.where(first < 0, second, first)
        return np.where((first >= 0) & (second >= 0) & (first != second), -2, out)

    def _new(self, owner: Any, size: int) -> int:
        first = self._next
        if (first + size) * self.radix > 1 << 62:
            raise NotAffine("so many entries of so many records")
        if len(self.owners) == self._table.shape[1]:
            self._table = np.concatenate([self._table, np.zeros_like(self._table)], axis=1)
        kind_ = VARIABLE if isinstance(owner, cp.Variable) else NODE
        if isinstance(owner, Product):
            kind_ = FEATURES if isinstance(owner.features, Features) else TABLE
        self._table[:, len(self.owners)] = first, kind_
        self.owners.append(owner)
        self._next += size
        return first

    def _block(self, key: Hashable, block: Block) -> int:
        if key not in self._places:
            if len(self.blocks) == _MOST_BLOCKS:
                raise NotAffine("so many private numbers beside each other")
            self._places[key] = len(self.blocks)
            self.blocks.append(block)
        return self._places[key]

    # ------------------------------------------------------------------ reading
    def is_leaf(self, node: Any) -> bool:
        return isinstance(node, (cp.Variable, Private))

    def _rows(self, node: Any) -> Affine:
        if self.is_constant(node):
            return _constant(flat(_real(node)))
        if isinstance(node, Private):
            return self._numbers(node, np.arange(node.size))
        if isinstance(node, cp.Variable):
            if node.id not in self.start:
                self.start[node.id] = self._new(node, node.size)
            return self._columns(self.start[node.id] + np.arange(node.size))
        args, name = node.args, kind_of(node)
        if name == "rearrange" and isinstance(args[0], Private) and kind(node) == "index":
            return self._numbers(args[0], _entries(node), node)
        if name == "matmul" and min(arg.ndim for arg in args) > 0:
            return self._matrix_product(node)
        if name == "multiply" and not any(map(self.is_constant, args)):
            left, right = (self._spread(arg, node) for arg in args)
            return self._times(left, right, node)
        if name in _FOLLOWED or (name == "divide" and self.is_constant(args[1])) or name in ("multiply", "matmul"):
            return super()._rows(node)
        if node.is_atom_convex() and node.is_atom_concave() and name != "divide" and kind(node) != "power":
            return super()._rows(node)
        return self._columns(self._new(node, node.size) + np.arange(node.size))

    def _columns(self, w: Integers) -> Affine:
        return Affine(np.zeros(w.size), pick=w * self.radix)

    def _spread(self, arg: Any, node: Any) -> Affine:
        step, rows = spread(tuple(arg.shape), tuple(node.shape)), self.read(arg)
        return rows if step is None else step.forward(rows)

    def steps(self, node: Any) -> Any:
        if kind_of(node) in ("multiply", "divide"):
            for arg in node.args:
                if self.is_constant(arg):
                    _real(arg)  # finite, and there
        return super().steps(node)

    def _product(self, left: Any, right: Any) -> Any:
        left, right = (cp.Constant(_real(arg)) if self.is_constant(arg) else arg for arg in (left, right))
        return super()._product(left, right)

    # ------------------------------------------------------------------ private numbers
    def _numbers(self, parameter: Private, entry: Integers, picked: Any = None) -> Affine:
        """Entries of a private parameter, each a number of its own."""
        turned = parameter.ndim == 2 and parameter.unit == "column"
        count = parameter.shape[turned] if parameter.ndim else 1
        if parameter.size == 1 and self.count > 1:
            unfit(parameter, "one private number that all records share is no label", "one entry per record")
        if count != self.count and picked is not None:
            unfit(picked, f"{parameter.name()} has other records", "tables of the same records", NotPerRecord)
        if turned and count != self.count == parameter.shape[0]:
            raise SpecificationError(
                f"{parameter.name()}: unit='column' in a private regression",
                why="its rows are the records here",
                remedy="unit='row'",
            )
        if count != self.count or parameter.ndim == 0:
            unfit(
                parameter,
                f"it has shape {tuple(parameter.shape)}, in which entries are not numbered like the records",
                f"a Private of shape ({self.count},) with unit='entry'",
            )
        if entry.size > _MOST_ENTRIES:
            raise NotAffine("a private table of this size, taken apart")
        owned = parameter.size // count
        place, record = np.divmod(entry, count) if not turned else np.divmod(entry, owned)[::-1]
        used, which = np.unique(place, return_inverse=True)
        blocks = np.array([self._place(parameter, int(p), owned, turned) for p in used], dtype=np.int64)
        t = 1 + blocks[which.ravel()] * self.count + record
        return Affine(np.zeros(t.size), pick=t)

    def _place(self, parameter: Private, place: int, owned: int, turned: bool) -> int:
        found = self._places.get((id(parameter), place))
        if found is None:
            pick = None if owned == 1 else sp.csr_array(([1.0], ([place], [0])), shape=(owned, 1))
            features = Features(parameter, tidy(pick), turned)
            found = self._places[(id(parameter), place)] = self._block(features.key, Block(features))
        return found

    # ------------------------------------------------------------------ products
    def _times(self, left: Affine, right: Affine, node: Any) -> Affine:
        """The entrywise product."""
        (i, a, x), (j, b, y) = _terms(left), _terms(right)
        here, there = pairs(i, j)
        return self._multiplied(i[here], a[here], x[here], b[there], y[there], left.size, node)

    def _multiplied(
        self, row: Integers, a: Integers, x: Floats, b: Integers, y: Floats, size: int, node: Any
    ) -> Affine:
        """The sums of ``x_k y_k`` times the monomials a_k and b_k (columns), each in row ``row_k``."""
        (u, s), (v, t) = np.divmod(a, self.radix), np.divmod(b, self.radix)
        if ((u > 0) & (v > 0)).any():
            unfit(node, "it is a product of variables", "a model that is affine in the variables")
        both = (s > 0) & (t > 0)
        joined = s + t
        if both.any():
            joined[both] = self._product_blocks(s[both], t[both], node)
        column, data = (u + v) * self.radix + joined, x * y
        plain = column == 0
        offset = np.bincount(row[plain], weights=data[plain], minlength=size).astype(np.float64)
        return Affine(offset, row=row[~plain], column=column[~plain], data=data[~plain])

    def _product_blocks(self, s: Integers, t: Integers, node: Any) -> Integers:
        """The t of products of two private numbers of one record."""
        (p, i), (q, j) = np.divmod(s - 1, self.count), np.divmod(t - 1, self.count)
        if (i != j).any():
            unfit(
                node,
                "a product of private parameters that is not entrywise",
                "y @ (X @ w), or cp.sum(cp.multiply(y, X @ w))",
            )
        low, high = np.minimum(p, q), np.maximum(p, q)
        codes, which = np.unique(low * _MOST_BLOCKS + high, return_inverse=True)
        found = []
        for code in codes:
            factors = divmod(int(code), _MOST_BLOCKS)
            if factors[0] == factors[1]:
                unfit(node, f"{self.blocks[factors[0]].name()} is multiplied by itself", "the product beforehand")
            if any(self.blocks[f].factors for f in factors):
                unfit(node, "three private numbers are multiplied", "the product, computed beforehand")
            found.append(self._block(("product", *factors), Block(None, factors)))
        return 1 + np.asarray(found, dtype=np.int64)[which.ravel()] * self.count + i

    def _matrix_product(self, node: Any) -> Affine:
        left, right = node.args
        try:
            for matrix, rest, turned in ((left, right, False), (right, left, True)):
                if is_private(matrix) and not matrix.variables() and not is_private(rest):
                    return self._of_features(matrix, rest, turned, node)
        except _NoRows:
            pass
        if any(map(self.is_constant, (left, right))):
            return super()._rows(node)
        a, b = self.read(left), self.read(right)
        m, k = left.shape if left.ndim == 2 else (1, left.size)
        columns = right.shape[1] if right.ndim == 2 else 1
        (r, x, p), (s, y, q) = _terms(a), _terms(b)
        here, there = pairs(r // m, s % k)
        row = r[here] % m + m * (s[there] // k)
        return self._multiplied(row, x[here], p[here], y[there], q[there], m * columns, node)

    def _of_features(self, matrix: Any, rest: Any, turned: bool, node: Any) -> Affine:
        """``matrix @ rest``, or ``rest @ matrix``, with ``matrix`` made of the features of single records."""
        numbers = not rest.variables()
        if numbers:
            rest = cp.Constant(number_of(rest))
        elif not rest.is_affine():
            unfit(rest, "predictions must be affine in the variables", "an affine prediction")
        side = rest if rest.ndim == 1 else (rest.T if turned else rest)
        columns = [side] if side.ndim == 1 else [side[:, c] for c in range(side.shape[1])]
        if turned and matrix.ndim == 2:
            matrix = matrix.args[0] if kind(matrix) == "transpose" else matrix.T
        found = [self._sum(self._through(matrix, column), numbers) for column in columns]
        if len(found) == 1:
            return found[0]
        rows = stacked(found)
        if not turned:
            return rows
        size, place = found[0].size, np.arange(node.size)  # entry (column, record) is row ``record`` of this column
        return Gather(place % len(found) * size + place // len(found), rows.size).forward(rows)

    def _sum(self, pieces: list[_Piece], numbers: bool) -> Affine:
        """The sum of pieces, row by row; ``numbers`` : their expressions hold no variables."""
        out: list[Affine] = []
        for piece in pieces:
            if not isinstance(piece.matrix, Features):
                read = self._public(piece.matrix, piece.expression, numbers)
            elif numbers:
                column = piece.matrix
                values = np.asarray(piece.expression.value, dtype=np.float64).ravel()
                mixed = sp.csr_array(values[:, None] if column.map is None else column.map @ values[:, None])
                features = Features(column.parameter, tidy(mixed), column.turned)
                records = np.arange(self.count) if piece.rows is None else piece.rows
                if features.map is not None and not features.map.nnz:
                    read = _constant(np.zeros(records.size))
                else:
                    block = self._block(features.key, Block(features))
                    read = Affine(np.zeros(records.size), pick=1 + block * self.count + records)
            else:
                records = np.arange(self.count) if piece.rows is None else piece.rows
                first, ratio = self._product_of(piece.matrix, piece.expression)
                read = self._columns(first + records)
                piece = replace(piece, coefficient=ratio * piece.coefficient)
            coefficient = np.asarray(piece.coefficient)
            out.append(Scale(coefficient).forward(read) if coefficient.ndim or coefficient != 1 else read)
        if len(out) == 1:
            return out[0]
        row, column_, data = (np.concatenate(each) for each in zip(*(each.coo() for each in out), strict=True))
        return Affine(sum((each.offset for each in out[1:]), out[0].offset), row=row, column=column_, data=data)

    def _public(self, matrix: Any, expression: Any, numbers: bool) -> Affine:
        """``matrix @ expression`` with a public matrix, which is one column for each record where it is large."""
        if numbers:
            return _constant(np.asarray(matrix @ np.asarray(expression.value, dtype=np.float64)).ravel())
        stored = matrix.nnz if sp.issparse(matrix) else matrix.size
        if matrix.shape[0] != self.count or stored <= _LARGE:
            return super()._rows(cp.Constant(matrix) @ expression)
        first, ratio = self._product_of(Table(matrix), expression)
        row = np.arange(self.count)
        return Affine(np.zeros(row.size), row=row, column=(first + row) * self.radix, data=np.full(row.size, ratio))

    def _product_of(self, features: Any, expression: Any) -> tuple[int, float]:
        """(first w, factor) of ``features @ expression``: one w for all multiples of it, however they are written."""
        rows = tidied(self.read(expression))
        column = rows.column
        if (column % self.radix).any() or (self.kinds[self.parts_of(column)[0]] != VARIABLE).any():
            raise _NoRows
        lead = float(rows.data[0]) if rows.data.size else 1.0
        numbers = (np.round(each / lead, 12) + 0.0 for each in (rows.data, rows.offset))
        key = (features.key, *(each.tobytes() for each in (rows.row, rows.column, *numbers)))
        if key not in self._products:
            expression = expression if expression.ndim == 1 else cp.reshape(expression, (expression.size,), order="F")
            self._products[key] = self._new(Product(features, expression), self.count), lead
        first, before = self._products[key]
        return first, lead / before

    # ------------------------------------------------------------------ matrices of features
    def _through(self, matrix: Any, e: Any, columns: Any = None) -> list[_Piece]:
        """Pieces of ``matrix @ columns @ e``: sums, multiples, picked, mixed and stacked columns of private and public
        matrices. ``columns`` : public (p, k), or None. Multiples are moved to the coefficients."""
        if self.is_constant(matrix):
            value = number_of(matrix)
            return [_Piece(1.0, value if columns is None else value @ columns, e)]
        if isinstance(matrix, Private) or (kind(matrix) == "transpose" and isinstance(matrix.args[0], Private)):
            return [self._features(matrix, None, columns, e)]
        args = matrix.args
        match kind(matrix):
            case "add" if all(arg.shape == matrix.shape for arg in args):
                return [piece for arg in args for piece in self._through(arg, e, columns)]
            case "negate":
                return self._through(args[0], -e, columns)
            case "multiply" | "divide" if any(map(self.is_constant, args)):
                return self._scaled(matrix, e, columns)
            case "matmul" if self.is_constant(args[1]) and matrix.ndim == 2:
                return self._through(args[0], e, _composed(sp.csr_array(number_of(args[1])), columns))
            case "matmul" if self.is_constant(args[0]) and matrix.ndim == 1 and args[1].ndim == 1:
                return self._through(args[1], e, _composed(sp.csr_array(sp.csr_array(number_of(args[0])).T), columns))
            case "matmul" if self.is_constant(args[1]) and matrix.ndim == 1 and args[0].ndim == 1:
                return self._through(args[0], e, _composed(sp.csr_array(number_of(args[1])), columns))
            case "matmul" if self.is_constant(args[0]) and args[0].shape == (self.count, self.count):
                weights = diagonal(args[0])
                if weights is not None and matrix.ndim == 2:
                    pieces = self._through(args[1], e, columns)
                    return [replace(piece, coefficient=piece.coefficient * weights) for piece in pieces]
            case "index" if isinstance(args[0], Private) and (found := _rows_and_columns(matrix)) is not None:
                rows, chosen = found
                return [self._features(args[0], rows, _composed(chosen, columns), e)]
            case "index" if matrix.ndim == 2 and (picked := _picked_columns(matrix)) is not None:
                return self._through(args[0], e, _composed(picked, columns))
            case "hstack" if matrix.ndim == 2:
                start, out = 0, []
                for arg in args:
                    part = slice(start, start + arg.shape[1])
                    start = part.stop
                    if columns is not None:
                        out += self._through(arg, e, columns[part])
                    else:
                        out += self._through(arg, e if len(args) == 1 else e[part])
                return out
        raise _NoRows

    def _scaled(self, matrix: Any, e: Any, columns: Any) -> list[_Piece]:
        """``_through`` of a matrix times one number, one number for each column, or one for each row."""
        factor, rest = matrix.args if self.is_constant(matrix.args[0]) else matrix.args[::-1]
        if kind(matrix) == "divide" and factor is matrix.args[0]:
            raise _NoRows
        value = number_of(factor)
        value = np.asarray(value.toarray() if sp.issparse(value) else value)
        value = 1 / value if kind(matrix) == "divide" else value
        if np.ptp(value) == 0:
            return self._through(rest, float(value.flat[0]) * e, columns)
        if rest.ndim == 2 and (value == value[:1]).all():
            scales = sp.csr_array(sp.diags_array(np.broadcast_to(value, rest.shape)[0]))
            return self._through(rest, e, _composed(scales, columns))
        if rest.ndim == 2 and (value == value[:, :1]).all():
            by_row = np.broadcast_to(value, rest.shape)[:, 0]
            return [replace(piece, coefficient=piece.coefficient * by_row) for piece in self._through(rest, e, columns)]
        raise _NoRows

    def _features(self, matrix: Any, rows: Any, columns: Any, e: Any) -> _Piece:
        """Rows of a private matrix in which records own rows, or of a transposed one in which they own columns."""
        parameter = matrix.args[0] if kind(matrix) == "transpose" else matrix
        turned = parameter.ndim == 2 and parameter.unit == "column"
        if parameter.ndim != 2 or (rows is None and turned != (kind(matrix) == "transpose")):
            raise _NoRows
        features = Features(parameter, tidy(columns), turned)
        if features.count != self.count or e.size != features.size:
            raise _NoRows
        return _Piece(1.0, features, e, rows)


def _real(number: Any) -> Any:
    """``number_of``; NotAffine for complex numbers, as later products of them may be real."""
    if number.is_complex():
        raise NotAffine("a complex constant")
    return number_of(number)


def _constant(offset: Floats) -> Affine:
    none = np.zeros(0, dtype=np.int64)
    return Affine(offset, row=none, column=none, data=np.zeros(0))


def _terms(rows: Affine) -> tuple[Integers, Integers, Floats]:
    """(row, column, data), the constant part at column 0, row by row."""
    row, column, data = rows.coo()
    constant = np.flatnonzero(rows.offset)
    row, column = np.concatenate([row, constant]), np.concatenate([column, np.zeros_like(constant)])
    data = np.concatenate([data, rows.offset[constant]])
    order = np.argsort(row, kind="stable")
    return row[order], column[order], data[order]


def stacked(found: list[Affine]) -> Affine:
    """The rows of all, in order."""
    if len(found) == 1:
        return found[0]
    starts = np.cumsum([0, *(rows.size for rows in found[:-1])])
    parts = [
        (row + start, column, data) for start, (row, column, data) in zip(starts, map(Affine.coo, found), strict=True)
    ]
    row, column, data = (np.concatenate(each) for each in zip(*parts, strict=True))
    return Affine(np.concatenate([rows.offset for rows in found]), row=row, column=column, data=data)


def tidied(rows: Affine) -> Affine:
    """The same rows, sorted, each monomial of a row once, without those that cancel up to rounding (1e-14)."""
    row, column, data = rows.coo()
    if row.size == 0:
        return _constant(rows.offset)
    order = np.lexsort((column, row))
    row, column, data = row[order], column[order], data[order]
    first = np.flatnonzero(np.r_[True, (np.diff(row) != 0) | (np.diff(column) != 0)])
    sums, sizes = np.add.reduceat(data, first), np.add.reduceat(np.abs(data), first)
    nonzero = np.abs(sums) > 1e-14 * sizes
    return Affine(rows.offset, row=row[first][nonzero], column=column[first][nonzero], data=sums[nonzero])


def _composed(inner: Any, outer: Any) -> Any:
    return inner if outer is None else outer if inner is None else sp.csr_array(inner @ outer)


def _keys(node: Any) -> tuple[Any, ...]:
    key = getattr(node, "_orig_key", node.key)
    return key if isinstance(key, tuple) else (key,)


def _entries(node: Any) -> Integers:
    """The entries of a private parameter (in Fortran order) that an index picks."""
    parameter = node.args[0]
    found = _rows_and_columns(node, both=True)
    if found is None:
        return np.asarray(numbering(tuple(parameter.shape))[getattr(node, "_orig_key", node.key)]).ravel(order="F")
    first, second = found
    return np.asarray(first[:, None] + parameter.shape[0] * second[None, :]).ravel(order="F")


def _rows_and_columns(node: Any, both: bool = False) -> Any:
    """(records, map of the columns or None) of ``X[rows, columns]`` with one of them a number or a slice; with ``both``
    the two lists of numbers. None for other indices."""
    parameter, keys = node.args[0], _keys(node)
    if parameter.ndim != 2 or len(keys) > 2 or any(part is None or part is Ellipsis for part in keys):
        return None
    keys = (*keys, slice(None))[:2]
    if sum(not isinstance(part, (slice, int, np.integer)) for part in keys) > 1:
        return None
    if any(not isinstance(part, slice) and np.ndim(part) > 1 for part in keys):
        return None
    first, second = (np.atleast_1d(np.arange(size)[part]) for size, part in zip(parameter.shape, keys, strict=True))
    if both:
        return first, second
    rows, chosen = (second, first) if parameter.unit == "column" else (first, second)
    owned = parameter.shape[0 if parameter.unit == "column" else 1]
    if parameter.unit == "column" and rows.size > 1:
        return None  # columns of records in a row: what multiplies them from the right is no coefficient
    if node.ndim == 1 and rows.size > 1:
        return None  # one number of several records
    return rows, None if np.array_equal(chosen, np.arange(owned)) else _picking(chosen, owned)


def _picking(chosen: Integers, size: int) -> sp.csr_array:
    """(size, k) the map that picks columns."""
    return sp.csr_array((np.ones(chosen.size), (chosen, np.arange(chosen.size))), shape=(size, chosen.size))


def _picked_columns(expression: Any) -> Any:
    """CSR (p, k) map of ``matrix[:, columns]``; None where rows are picked too."""
    inner, keys = expression.args[0], _keys(expression)
    if inner.ndim != 2 or len(keys) > 2 or any(part is None or part is Ellipsis for part in keys):
        return None
    n, p = inner.shape
    if not isinstance(keys[0], slice) or keys[0].indices(n) != (0, n, 1):
        return None
    chosen = np.atleast_1d(np.arange(p)[keys[1] if len(keys) == 2 else slice(None)])
    return _picking(chosen, p)
