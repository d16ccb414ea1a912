"""A model of rows in blocks, recognised on a few rows: nothing as long as the data is ever made.

The user's tree is written anew with n' rows for n: private parameters declared alike, public tables that are the same
for all records cut, shapes and full slices along the records adapted. Whatever the tree does is then the same function
of the number of rows, or it is refused. What is recognised of the small model (loss, scale, coefficients, penalty) is
that of the large one, whose parameters are put back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count as counting
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel.annotate import vault
from dpmodel.annotate.private import Private
from dpmodel.compile.refusals import refuse_blocks, short
from dpmodel.compile.regression.features import Features, Label
from dpmodel.compile.regression.forms import is_private, kind
from dpmodel.compile.regression.multinomial import recognise_regression
from dpmodel.compile.regression.recognise import Outputs, Recognised
from dpmodel.errors import DPModelError, SpecificationError, UnsupportedModelError

_FEWEST = 11  # rows of the small model
_SHAPED = ("promote", "broadcast", "reshape")


def recognise_blocks(problem: cp.Problem) -> Recognised | Outputs:
    """As ``recognise``, for a problem with private parameters ``in_blocks``.

    Raises
    ------
    UnsupportedModelError, SpecificationError
        For what is no regression over the rows of one source; before any budget is spent.
    """
    private = [p for p in problem.parameters() if isinstance(p, Private)]
    name = next(p.name() for p in private if p.in_blocks)
    rows = {p.shape[0] if p.ndim else 0 for p in private}
    sources = [vault.source_of(p) for p in private if p.has_value or not p.in_blocks]
    if any(source is not sources[0] for source in sources) or not all(p.in_blocks for p in private) or len(rows) != 1:
        raise SpecificationError(
            f"{name} has its rows in blocks, and other private parameters are elsewhere",
            why="row i of every private parameter is read in one pass over one source",
            remedy="SourceRows(...) of the same source for each, or arrays in memory for all",
        )
    small = _Small(problem, private, rows.pop())
    found = recognise_regression(small.problem) if small.fits else None
    if found is None:
        refuse_blocks(private)
    assert found is not None
    if isinstance(found, Outputs):
        return replace(found, parts=tuple(small.enlarged(part) for part in found.parts))
    return small.enlarged(found)


@dataclass
class _Small:
    """``problem`` with few rows; ``fits`` : whether private parameters stand in the objective alone."""

    original: cp.Problem
    private: list[Private]
    count: int

    def __post_init__(self) -> None:
        objective = self.original.objective
        sizes = {size for node in _walk(objective.args[0]) for size in node.shape}
        self.few = next(size for size in counting(_FEWEST) if size not in sizes)
        self._made = {id(p): p.with_rows(self.few) for p in self.private}
        self._large = {id(self._made[id(p)]): p for p in self.private}
        self.fits = not any(isinstance(p, Private) for c in self.original.constraints for p in c.parameters())
        if any(self.count in p.shape[1:] for p in self.private) or any(
            self.count in v.shape for v in self.original.variables()
        ):
            self._refuse(objective.args[0], "its coefficients are as many as its rows")
        self.problem = cp.Problem(type(objective)(self._smaller(objective.args[0])), self.original.constraints)

    # ------------------------------------------------------------------ the tree with fewer rows
    def _smaller(self, node: Any) -> Any:
        if id(node) not in self._made:
            try:
                made = self._made[id(node)] = self._rebuilt(node)
                follows = tuple(made.shape) == self._fewer(node.shape)
            except (ValueError, TypeError) as error:
                if isinstance(error, DPModelError):
                    raise
                follows = False
            if not follows:
                self._refuse(node, "its shape does not follow the number of rows")
        return self._made[id(node)]

    def _rebuilt(self, node: Any) -> Any:
        if self.count not in node.shape and not is_private(node):
            return node  # a public number of all rows, such as their count written as a sum, stays what it is
        if not node.args:
            return self._leaf(node)
        args = [self._smaller(arg) for arg in node.args]
        if kind(node) in _SHAPED:
            data = [self._fewer(each) if isinstance(each, tuple) else each for each in node.get_data()]
            return type(node)(*args, *data)
        if kind(node) == "index" and self.count in node.args[0].shape:
            return args[0][self._key(node)]
        return node.copy(args)

    def _leaf(self, node: Any) -> Any:
        if not isinstance(node, cp.Constant) or sp.issparse(node.value):
            self._refuse(node, "it holds a number for every row")
        value = np.asarray(node.value)
        for axis, size in enumerate(value.shape):
            if size == self.count:
                first = value.take([0], axis=axis)
                if not (value == first).all():
                    self._refuse(node, "it holds another number for every row")
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
                self._refuse(node, "it takes some of the rows")
            out.append(slice(None) if size == self.count else key)
        return tuple(out)

    def _fewer(self, shape: Any) -> tuple[int, ...]:
        return tuple(self.few if size == self.count else size for size in shape)

    def _refuse(self, node: Any, why: str) -> None:
        raise UnsupportedModelError(
            f"{short(node)} in a model of rows in blocks",
            why=f"{why}, and rows in blocks are read alike, a block at a time",
            remedy="public numbers of a record as columns of the table; or the rows as arrays in memory",
        )

    # ------------------------------------------------------------------ and back
    def enlarged(self, found: Recognised) -> Recognised:
        """What was recognised, of the user's parameters. Public tables keep their few rows, which are all alike."""
        label = found.label
        ends = [label.scale, label.shift] if isinstance(label, Label) else [label]
        tables = [found.offset, *ends, *(f for f, _ in found.blocks if not isinstance(f, Features))]
        if found.weights is not None or not all(map(_alike, tables)):  # such as a running sum of ones
            self._refuse(self.original.objective.args[0], "public numbers in it differ from row to row")
        if isinstance(label, Label):
            scale, shift = (np.asarray(np.ravel(end)[0]) for end in (label.scale, label.shift))
            label = replace(label, features=self._features(label.features), scale=scale, shift=shift)
        return replace(
            found,
            count=self.count,
            blocks=tuple((self._features(f) if isinstance(f, Features) else f, start) for f, start in found.blocks),
            label=label,
        )

    def _features(self, features: Features) -> Features:
        return replace(features, parameter=self._large[id(features.parameter)])


def _alike(table: Any) -> bool:
    """Whether all rows of a public table are the same; of None and of one number for all rows, too."""
    rows = np.atleast_1d(0.0 if table is None else table.toarray() if sp.issparse(table) else table)
    return np.allclose(rows, rows[:1], rtol=1e-12, atol=0)


def _walk(expression: Any) -> Iterator[Any]:
    stack, seen = [expression], set()
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            stack.extend(node.args)
