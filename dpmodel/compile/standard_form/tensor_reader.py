"""Coefficients of affine expressions as functions of the parameters, read off the tree in a few passes over arrays.

A coefficient stands at (row, variable, parameter): it multiplies the product of one entry of the variables and one of
the parameters. Entry n of the variables and the last entry of the parameters are the number 1, for terms that lack one
of them. Variable and parameter together are one column, ``variable * theta_size + parameter``, so that sums, scalings
and rearrangements are followed as in any affine expression (``affine_tree``). What comes on top are products of
parameters with variables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np

from dpmodel._types import Floats, Integers
from dpmodel.compile.affine_tree import Affine, AffineReader, NotAffine, Step, kind_of, pairs


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
    at ``start[variable.id]`` and ``parameters[parameter.id]``. No parameter needs a value, and none is read."""

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

        Raises
        ------
        NotAffine
            For atoms that cannot be followed.
        """
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
            if kind == "product" and {left.ndim, right.ndim} <= {1, 2}:
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
