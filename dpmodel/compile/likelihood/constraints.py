"""The constraints of a post-processing problem as bounds and sparse rows, with the labels they came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.compile.affine_reader import Affine, AffineReader, flat
from dpmodel.compile.likelihood.objective import Outside
from dpmodel.compile.refusals import constraint_label
from dpmodel.errors import SpecificationError

_SERVED = ("nonneg", "nonpos", "pos", "neg", "bounds", "boolean", "integer")


@dataclass(frozen=True, eq=False)
class Origins:
    """Where the rows of a form came from. ``labels`` : one per constraint. ``equality, inequality`` : (p,), (q,) number
    of the constraint behind each row. ``lower, upper`` : (n,) number of the constraint behind each bound, -1 for the
    variable's own. ``broken`` : numbers of the constraints that no variable enters and that do not hold. ``names`` :
    (name, first column) of the variables."""

    labels: tuple[str, ...]
    equality: Integers
    inequality: Integers
    lower: Integers
    upper: Integers
    broken: tuple[int, ...] = ()
    names: tuple[tuple[str, int], ...] = ()

    def column(self, j: int) -> str:
        """The name of column j's variable, with the entry where it has several."""
        name, start, size = "x", 0, self.lower.size
        for k, (each, first) in enumerate(self.names):
            if first <= j:
                name, start = each, first
                size = (self.names[k + 1][1] if k + 1 < len(self.names) else self.lower.size) - first
        return name if size == 1 else f"{name}, entry {j - start}"


@dataclass(eq=False)
class Constraints:
    """Read so far: bounds (n,) with their constraints' numbers, blocks of rows, and every expression with its rows."""

    reader: AffineReader
    size: int
    lower: Floats = field(init=False)
    upper: Floats = field(init=False)
    integer: Any = field(init=False)
    lower_from: Integers = field(init=False)
    upper_from: Integers = field(init=False)
    equality: list[tuple[sp.csr_array, Floats, int]] = field(default_factory=list)
    inequality: list[tuple[sp.csr_array, Floats, int]] = field(default_factory=list)
    broken: list[int] = field(default_factory=list)
    seen: list[tuple[Any, Affine]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lower, self.upper = np.full(self.size, -np.inf), np.full(self.size, np.inf)
        self.integer = np.zeros(self.size, dtype=bool)
        self.lower_from, self.upper_from = (np.full(self.size, -1, dtype=np.int64) for _ in range(2))

    def add_variable(self, variable: Any) -> None:
        """The attributes of a variable.

        Raises
        ------
        Outside
            For attributes that tie entries to each other.
        """
        attributes = variable.attributes
        if any(value for name, value in attributes.items() if name not in _SERVED and name != "bounds"):
            raise Outside(f"an attribute of {variable.name()}")
        first = self.reader.start[variable.id]
        mine = slice(first, first + variable.size)
        if attributes["nonneg"] or attributes["pos"]:
            self.lower[mine] = np.maximum(self.lower[mine], 0.0)
        if attributes["nonpos"] or attributes["neg"]:
            self.upper[mine] = np.minimum(self.upper[mine], 0.0)
        if attributes["bounds"] is not None:
            low, high = (self._side(each, tuple(variable.shape)) for each in attributes["bounds"])
            self.lower[mine] = np.maximum(self.lower[mine], low)
            self.upper[mine] = np.minimum(self.upper[mine], high)
        for index, boolean in ((variable.boolean_idx, True), (variable.integer_idx, False)):
            if len(index):
                shape = tuple(variable.shape) or (1,)
                try:
                    at = first + np.ravel_multi_index(tuple(np.asarray(i) for i in index), shape, order="F")
                except ValueError:
                    raise SpecificationError(
                        f"the {'boolean' if boolean else 'integer'} indices of {variable.name()} do not fit its shape",
                        why="CVXPY wants one list of positions per axis, as numpy.nonzero gives them",
                        remedy="integer=numpy.nonzero(mask)",
                    ) from None
                self.integer[at] = True
                if boolean:
                    self.lower[at] = np.maximum(self.lower[at], 0.0)
                    self.upper[at] = np.minimum(self.upper[at], 1.0)

    def _side(self, bound: Any, shape: tuple[int, ...]) -> Floats:
        value = bound.value if isinstance(bound, cp.Expression) else bound
        if value is None:
            raise Outside("a bound without a value")
        value = value.toarray() if sp.issparse(value) else value
        return flat(np.broadcast_to(np.asarray(value, dtype=np.float64), shape))

    def add(self, constraint: Any, number: int) -> None:
        """One constraint.

        Raises
        ------
        Outside
            Unless it is linear.
        """
        expression, equality = _normal(constraint)
        if expression is None or not expression.is_affine():
            raise Outside(f"a {type(constraint).__name__} constraint that is not linear")
        rows = self.reader.read(expression)
        self.seen.append((expression, rows))
        matrix, right = rows.csr(self.size), -rows.offset
        if np.isnan(right).any() or (equality and np.isinf(right).any()) or not np.isfinite(matrix.data).all():
            raise SpecificationError(
                f"{constraint_label(constraint, number)} has NaN or infinite entries",
                remedy="finite numbers (infinite bounds can be left out)",
            )
        count = np.diff(matrix.indptr)
        void = np.isposinf(right)
        empty = (count == 0) & ~void
        if empty.any():
            slack = 1e-9 * max(1.0, float(np.abs(right[empty]).max()))
            if (np.abs(right[empty]) > 1e-9).any() if equality else (right[empty] < -slack).any():
                self.broken.append(number)
        if np.isneginf(right).any():
            self.broken.append(number)
            void |= np.isneginf(right)
        single = np.flatnonzero((count == 1) & ~void)
        if single.size:
            self._bound(matrix, right, single, equality, number)
        many = np.flatnonzero((count > 1) & ~void)
        if many.size:
            block = (matrix, right) if many.size == count.size else (sp.csr_array(matrix[many]), right[many])
            (self.equality if equality else self.inequality).append((*block, number))

    def _bound(self, matrix: sp.csr_array, right: Floats, single: Integers, equality: bool, number: int) -> None:
        at = matrix.indptr[single]
        where, derivative = matrix.indices[at].astype(np.int64), matrix.data[at]
        value = right[single] / derivative
        below, above = (derivative < 0) | equality, (derivative > 0) | equality
        for mask, bound, source, better in (
            (below, self.lower, self.lower_from, np.maximum),
            (above, self.upper, self.upper_from, np.minimum),
        ):
            before = bound[where[mask]]
            better.at(bound, where[mask], value[mask])
            source[where[mask][bound[where[mask]] != before]] = number

    def settle(self) -> None:
        """Bounds of integers become whole, and those that cross by no more than rounding meet."""
        whole = self.integer
        self.lower[whole] = np.ceil(self.lower[whole] - 1e-9)
        self.upper[whole] = np.floor(self.upper[whole] + 1e-9)
        j = np.flatnonzero(self.lower > self.upper)
        j = j[~bounds_cross(self.lower[j], self.upper[j])]
        self.lower[j] = self.upper[j] = (self.lower[j] + self.upper[j]) / 2

    def stacked(self, equality: bool) -> tuple[Any, Floats, Integers]:
        """All rows of a kind: matrix (or None), right sides, constraint numbers."""
        blocks = self.equality if equality else self.inequality
        if not blocks:
            return None, np.zeros(0), np.zeros(0, dtype=np.int64)
        matrix = blocks[0][0] if len(blocks) == 1 else sp.csr_array(sp.vstack([block[0] for block in blocks]))
        numbers = np.repeat([block[2] for block in blocks], [block[1].size for block in blocks])
        return matrix, np.concatenate([block[1] for block in blocks]), numbers.astype(np.int64)


def bounds_cross(lower: Floats, upper: Floats) -> Any:
    """(k,) where lower bounds exceed upper ones by more than rounding."""
    with np.errstate(invalid="ignore"):
        size = np.minimum(np.abs(lower), np.abs(upper))
        return lower > upper + 1e-9 * np.where(np.isfinite(size), size, 0.0) + 1e-14


def _normal(constraint: Any) -> tuple[Any, bool]:
    """(f, True) for f = 0, (f, False) for f <= 0, (None, False) for others."""
    args = constraint.args
    if isinstance(constraint, cp.constraints.Equality):
        return args[0] - args[1], True
    if isinstance(constraint, cp.constraints.Inequality):
        return args[0] - args[1], False
    if isinstance(constraint, cp.constraints.Zero):
        return args[0], True
    if isinstance(constraint, cp.constraints.NonNeg):
        return -args[0], False
    if isinstance(constraint, cp.constraints.NonPos):
        return args[0], False
    return None, False
