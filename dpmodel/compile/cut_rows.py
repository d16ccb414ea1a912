"""Expressions of private rows written anew with fewer rows: nothing as long as the data is ever made.

Private parameters are declared alike, public tables that are the same for all records cut, shapes and full slices along
the records adapted. Whatever the tree does is then the same function of the number of rows, or it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count as counting
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel.compile.refusals import short
from dpmodel.compile.regression.forms import is_private, kind
from dpmodel.errors import DPModelError, SpecificationError, UnsupportedModelError
from dpmodel.marks import vault
from dpmodel.marks.private import Private

# Rows that are left: enough for records that are not alike to show it (sums of neighbouring ones, a first or last one).
FEWEST = 11
_SHAPED = ("promote", "broadcast", "reshape")


def rows_of_one_source(private: Sequence[Private]) -> int:
    """How many rows all of ``private`` have, some of which have them in blocks.

    Raises
    ------
    SpecificationError
        Where they lie in different places, or are not as many.
    """
    rows = {p.shape[0] if p.ndim else 0 for p in private}
    sources = [vault.source_of(p) for p in private if p.has_value or not p.in_blocks]
    if any(source is not sources[0] for source in sources) or not all(p.in_blocks for p in private) or len(rows) != 1:
        name = next(p.name() for p in private if p.in_blocks)
        raise SpecificationError(
            f"{name} has its rows in blocks, and other private parameters are elsewhere",
            why="row i of every private parameter is read in one pass over one source",
            remedy="SourceRows(...) of the same source for each, or arrays in memory for all",
        )
    return rows.pop()


class CutRows:
    """Expressions over ``private`` parameters of ``count`` rows, of which ``few`` are left.

    ``fewest`` : rows wanted; ``few`` is that or more, so that it is the size of nothing else in ``expressions``; all of
    them where there are no more.

    Raises
    ------
    UnsupportedModelError
        For what is another function of the number of rows.
    """

    def __init__(
        self, expressions: Iterable[Any], private: Sequence[Private], count: int, fewest: int = FEWEST
    ) -> None:
        self.count = count
        roots = list(expressions)
        if any(count in p.shape[1:] for p in private) or any(
            count in variable.shape for root in roots for variable in root.variables()
        ):
            self.refuse(roots[0], "its coefficients are as many as its rows")
        sizes = {size for root in roots for node in _walk(root) for size in node.shape}
        few = next(size for size in counting(fewest) if size not in sizes)
        self.few = min(few, count)
        self._made = {id(p): p.with_rows(self.few) for p in private}
        self._large = {id(self._made[id(p)]): p for p in private}

    def original(self, parameter: Any) -> Private:
        """The parameter that a cut one stands for."""
        return self._large[id(parameter)]

    def cut(self, node: Any) -> Any:
        """``node`` with few rows."""
        if id(node) not in self._made:
            try:
                made = self._made[id(node)] = self._rebuilt(node)
                follows = tuple(made.shape) == self._fewer(node.shape)
            except (ValueError, TypeError) as error:
                if isinstance(error, DPModelError):
                    raise
                follows = False
            if not follows:
                self.refuse(node, "its shape does not follow the number of rows")
        return self._made[id(node)]

    def _rebuilt(self, node: Any) -> Any:
        if self.count not in node.shape and not is_private(node):
            return node  # a public number of all rows, such as their count written as a sum, stays what it is
        if not node.args:
            return self._leaf(node)
        args = [self.cut(arg) for arg in node.args]
        if kind(node) in _SHAPED:
            data = [self._fewer(each) if isinstance(each, tuple) else each for each in node.get_data()]
            return type(node)(*args, *data)
        if kind(node) == "index" and self.count in node.args[0].shape:
            return args[0][self._key(node)]
        return node.copy(args)

    def _leaf(self, node: Any) -> Any:
        if not isinstance(node, cp.Constant) or sp.issparse(node.value):
            self.refuse(node, "it holds a number for every row")
        value = np.asarray(node.value)
        for axis, size in enumerate(value.shape):
            if size == self.count:
                first = value.take([0], axis=axis)
                if not (value == first).all():
                    self.refuse(node, "it holds another number for every row")
                value = np.repeat(first, self.few, axis=axis)
        return cp.Constant(value)

    def _key(self, node: Any) -> tuple[Any, ...]:
        """The slices of an index, all of which take all rows."""
        keys = getattr(node, "_orig_key", None)
        keys = keys if isinstance(keys, tuple) else (keys,)
        out, shape = [], node.args[0].shape
        for key, size in zip((*keys, *[slice(None)] * (len(shape) - len(keys))), shape, strict=False):
            plain = isinstance(key, slice | int | np.integer)
            if not plain or (size == self.count and (not isinstance(key, slice) or key.indices(size) != (0, size, 1))):
                self.refuse(node, "it takes some of the rows")
            out.append(slice(None) if size == self.count else key)
        return tuple(out)

    def _fewer(self, shape: Any) -> tuple[int, ...]:
        return tuple(self.few if size == self.count else size for size in shape)

    def refuse(self, node: Any, why: str) -> None:
        """Say why ``node`` is no function of rows that are read alike."""
        raise UnsupportedModelError(
            f"{short(node)} in a model of rows in blocks",
            why=f"{why}, and rows in blocks are read alike, a block at a time",
            remedy="public numbers of a record as columns of the table; or the rows as arrays in memory",
        )


def _walk(expression: Any) -> Iterator[Any]:
    stack, seen = [expression], set()
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            stack.extend(node.args)
