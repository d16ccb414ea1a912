"""Public numbers and expressions beside private rows, and refusals that name a term."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.compile.affine_reader import Affine, AffineReader, NotAffine
from dpmodel.compile.atoms import is_number, kind, number_of
from dpmodel.compile.refusals import short
from dpmodel.errors import UnsupportedModelError
from dpmodel.marks.private import Private


class NotPerRecord(UnsupportedModelError):
    """A term with private rows that is no sum over the records (a largest residual, say)."""


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


def picks_rows(expression: Any) -> bool:
    """Whether some private entries or rows are picked by number."""
    if kind(expression) == "index" and isinstance(expression.args[0], Private):
        return True
    return any(picks_rows(arg) for arg in expression.args)


def unfit(
    expression: Any, why: str, remedy: str, error: type[UnsupportedModelError] = UnsupportedModelError
) -> NoReturn:
    """Refuse an objective with private rows, naming the term that did not fit."""
    raise error(f"the objective: {short(expression)} does not fit a private regression", why=why, remedy=remedy)


def rows_of(expression: Any, start: Mapping[int, int]) -> Affine:
    """The rows of a public affine expression of variables whose entries begin at ``start[variable.id]``."""
    try:
        return AffineReader(start).read(expression)
    except NotAffine as error:
        raise UnsupportedModelError(
            f"{short(expression)}: {error}",
            why="beside private rows, public expressions are read as real matrices and numbers, and this one is not",
            remedy="real constants, sums, products with matrices, rearrangements of entries",
        ) from None
