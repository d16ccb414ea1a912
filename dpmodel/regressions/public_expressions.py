"""Public expressions: their rows, their summands, and which entries of the variables each entry depends on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.compile.affine_reader import Affine, AffineReader, Gather, NotAffine, group, spread
from dpmodel.compile.atoms import is_number, kind, number_of
from dpmodel.compile.refusals import constraint_label, short
from dpmodel.errors import UnsupportedModelError
from dpmodel.marks.private import Private
from dpmodel.regressions.monomials import NODE, VARIABLE, Monomials, unfit

_ENTRYWISE: Any = type(cp.exp(cp.Variable())).__base__


class Dependence:
    """Of entries of expressions of ``variables``: the entries of the variables that they depend on, one column each."""

    def __init__(self, reader: Monomials, variables: Iterable[cp.Variable]) -> None:
        self.reader = reader
        self.start = {v.id: int(reader.read(v).coo()[1][0]) // reader.radix for v in variables}
        self.width = reader.width
        self._known: dict[int, Any] = {}

    def of(self, expression: Any) -> sp.csr_array:
        """(entries, width) of zeros and other numbers; what cannot be followed depends on all that stands in it."""
        try:
            return self.of_rows(self.reader.read(expression))
        except (NotAffine, UnsupportedModelError):
            return self._together(expression)

    def of_rows(self, rows: Affine) -> sp.csr_array:
        """The same of rows of public monomials."""
        row, column, _ = rows.coo()
        owner, entry, _ = self.reader.parts_of(column)
        kinds = self.reader.kinds[owner]
        mine = kinds == VARIABLE
        out = pattern(row[mine], column[mine] // self.reader.radix, (rows.size, self.width))
        for k in np.unique(owner[kinds == NODE]).tolist():
            mine = owner == k
            inner = self._of_node(self.reader.owners[k])
            out = out + pattern(row[mine], entry[mine], (rows.size, inner.shape[0])) @ inner
        return sp.csr_array(out)

    def _of_node(self, node: Any) -> sp.csr_array:
        """Of an atom that is not affine."""
        if id(node) not in self._known:
            args = [arg for arg in node.args if arg.variables()]
            if isinstance(node, _ENTRYWISE):
                steps = [(self.of(arg), spread(tuple(arg.shape), tuple(node.shape))) for arg in args]
                found = sum(inner[step.index] if isinstance(step, Gather) else inner for inner, step in steps)
            elif len(args) == 1 and hasattr(node, "axis"):
                index = group(tuple(args[0].shape), node.axis).index
                found = pattern(index, np.arange(index.size), (node.size, index.size)) @ self.of(args[0])
            else:
                found = self._together(node)
            self._known[id(node)] = sp.csr_array(found)
        return self._known[id(node)]

    def _together(self, node: Any) -> sp.csr_array:
        """Every entry depends on all variables."""
        columns = np.concatenate([self.start[v.id] + np.arange(v.size) for v in node.variables()])
        row = np.repeat(np.arange(node.size), columns.size)
        return pattern(row, np.tile(columns, node.size), (node.size, self.width))


def pattern(row: Any, column: Any, shape: tuple[int, int]) -> sp.csr_array:
    return sp.csr_array((np.ones(row.size), (row, column)), shape=shape)


def rows_of(expression: Any, start: Mapping[int, int]) -> Affine:
    """The rows of a public affine expression of variables whose entries begin at ``start[variable.id]``."""
    try:
        return AffineReader(start).read(expression)
    except NotAffine as error:
        raise not_followed(expression, error) from None


def not_followed(expression: Any, error: NotAffine) -> UnsupportedModelError:
    """What to raise of a public expression that was not followed."""
    return UnsupportedModelError(
        f"{short(expression)}: {error}",
        why="beside private rows, public expressions are read as real matrices and numbers, and this one is not",
        remedy="real constants, sums, products with matrices, rearrangements of entries",
    )


def vector_of(expression: Any, count: int) -> Floats:
    """() or (n,) value of a public expression that stands beside per-record ones."""
    value = number_of(expression)
    value = np.asarray(value.toarray() if sp.issparse(value) else value, dtype=np.float64).ravel(order="F")
    if value.size == 1:
        return np.asarray(value.reshape(()))
    if value.size != count:
        unfit(expression, f"it has {value.size} entries for {count} records", "one number per record, or one for all")
    return value


def summands(
    expression: Any, factor: float = 1.0, whole: Callable[[Any], bool] = is_number
) -> Iterator[tuple[float, Any]]:
    """(factor, term) of a scalar: through sums, public multiples and changes of shape, down to what is ``whole``."""
    args = expression.args
    if whole(expression):
        yield factor, expression
        return
    match kind(expression):
        case "add":
            for arg in args:
                yield from summands(arg, factor, whole)
        case "negate":
            yield from summands(args[0], -factor, whole)
        case "promote" | "broadcast" | "reshape" | "transpose" | "conjugate" | "max" if args[0].size == 1:
            yield from summands(args[0], factor, whole)
        case "multiply" | "matmul" if any(arg.size == 1 and is_number(arg) for arg in args):
            number, rest = args if args[0].size == 1 and is_number(args[0]) else args[::-1]
            yield from summands(rest, factor * float(vector_of(number, 1)), whole)
        case "divide" if is_number(args[1]):
            yield from summands(args[0], factor / float(vector_of(args[1], 1)), whole)
        case _:
            yield factor, expression


_NOT_CONVEX = ("boolean", "integer", "complex", "imag", "hermitian")


def require_convex(coefficients: cp.Expression, constraints: tuple[Any, ...], penalty: cp.Expression | None) -> None:
    labels = [constraint_label(constraint, number) for number, constraint in enumerate(constraints)]
    parts: list[Any] = [coefficients, *constraints, *([] if penalty is None else [penalty])]
    for label, part in zip(["the coefficients", *labels, "the penalty"], parts, strict=False):
        for variable in part.variables():
            wrong = [name for name in _NOT_CONVEX if variable.attributes[name]]
            if wrong:
                raise UnsupportedModelError(
                    f"variable {variable.name()!r} is {wrong[0]}",
                    why="a regression's public set must be convex and real",
                    remedy="a continuous variable, rounded after release",
                )
        private = [p.name() for p in part.parameters() if isinstance(p, Private)]
        if private:
            raise UnsupportedModelError(
                f"{label}: {private[0]} is private",
                why="a private regression has its private data in the losses and public constraints",
                remedy="public constraints on the coefficients: a cp.Parameter, or released data",
            )
        if not (part.is_convex() if isinstance(part, cp.Expression) else part.is_dcp()):
            raise UnsupportedModelError(
                f"{label}: not convex by CVXPY's rules", why="the public set must be convex (DCP)", remedy="DCP atoms"
            )
