"""Functions of one record that are affine in the variables, read off the user's tree: predictions, margins, residuals.

A form is a sum of monomials ``coefficient_i * (private vectors)_i * (matrix @ expression)_i``, i being the record.
Sums and products are read down to ``(private or public matrix) @ variables``. Nothing is lowered: private matrices stay
what they are, seen through a public map of their columns at most, and public expressions of the variables as CVXPY
wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.compile.affine_reader import Affine, AffineReader, NotAffine
from dpmodel.compile.atoms import diagonal, is_number, is_private, kind, number_of
from dpmodel.compile.refusals import short
from dpmodel.errors import UnsupportedModelError
from dpmodel.marks.private import Private
from dpmodel.regressions.features import Features, tidy


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


@dataclass(frozen=True)
class Monomial:
    """``coefficient * vectors * (matrix @ expression)``, record by record.

    ``coefficient`` : () or (n,) public. ``vectors`` : private features of one column. ``matrix`` : private features or
    public (n, k), with ``expression`` (k,) public and affine in the variables; or None with a scalar ``expression``;
    or both None.
    """

    coefficient: Floats
    vectors: tuple[Features, ...] = ()
    matrix: Any = None
    expression: cp.Expression | None = None

    def times(self, factor: Floats) -> Monomial:
        return replace(self, coefficient=self.coefficient * factor)


Form = tuple[Monomial, ...]


# ------------------------------------------------------------------ reading forms off the tree


_ONE = np.asarray(1.0)


def form_of(expression: Any, count: int) -> Form:
    """The monomials of an expression with one entry per record (or one entry for all), affine in the variables.

    Raises
    ------
    UnsupportedModelError
        Naming the innermost part that is none.
    """
    if is_number(expression):
        return (Monomial(vector_of(expression, count)),)
    if expression.size not in (1, count):
        unfit(
            expression,
            f"it has shape {tuple(expression.shape)}: not one entry for each of {count} records",
            "vectors of one entry per record; X @ w for the predictions",
        )
    if isinstance(expression, Private):
        if expression.size == 1 and count > 1:
            unfit(expression, "one private number that all records share is no label", "one entry per record")
        if expression.shape[:1] != (count,):  # reshaped: a row of it, which a record may own, would be several labels
            unfit(
                expression,
                f"it has shape {tuple(expression.shape)}, in which entries are not numbered like the records",
                f"a Private of shape ({count},) with unit='entry'",
            )
        return (Monomial(_ONE, (Features(expression),)),)
    if not is_private(expression) and expression.size == 1:
        return (Monomial(_ONE, expression=_flat(expression)),)
    match kind(expression):
        case "add":
            return tuple(m for arg in expression.args for m in form_of(arg, count))
        case "negate":
            return tuple(m.times(np.asarray(-1.0)) for m in form_of(expression.args[0], count))
        case "promote" | "broadcast" | "reshape" | "transpose" | "conjugate":
            return form_of(_same_entries(expression), count)
        case "divide" if is_number(expression.args[1]):
            by = vector_of(expression.args[1], count)
            return tuple(m.times(1 / by) for m in form_of(expression.args[0], count))
        case "multiply":
            left, right = (form_of(arg, count) for arg in expression.args)
            return tuple(_product(a, b, expression) for a in left for b in right)
        case "matmul":
            return _matmul(expression, count)
        case "index" if is_private(expression) and (column := _picked_columns(expression)) is not None:
            return _numbers(expression.args[0], column, expression, count)
    if not is_private(expression):
        return _jacobian_form(expression)
    return unfit(
        expression,
        "predictions are built from X @ w, public numbers, +, -, and entrywise products with one private vector",
        "X @ w + b for the predictions, with X a Private of unit='row' and w, b variables",
    )


def _same_entries(expression: Any) -> Any:
    """The argument of an atom that only changes the shape."""
    inner = expression.args[0]
    if inner.size not in (1, expression.size):
        unfit(
            expression,
            f"shape {tuple(inner.shape)} is broadcast to {tuple(expression.shape)}",
            "vectors of equal shapes: (n,) with (n,)",
        )
    return inner


def _flat(expression: Any) -> cp.Expression:
    """(k,) or () for a column, a row, or a vector."""
    if expression.size == 1:
        return expression if expression.ndim == 0 else cp.reshape(expression, (), order="F")
    return expression if expression.ndim == 1 else cp.reshape(expression, (expression.size,), order="F")


def _product(a: Monomial, b: Monomial, expression: Any) -> Monomial:
    if a.expression is not None and b.expression is not None:
        unfit(expression, "it is a product of variables", "a model that is affine in the variables")
    if any(p.same(q) for p in a.vectors for q in b.vectors):
        unfit(expression, f"{a.vectors[0].name()} is multiplied by itself", "the product, computed beforehand")
    bearer = a if a.expression is not None else b
    return Monomial(a.coefficient * b.coefficient, (*a.vectors, *b.vectors), bearer.matrix, bearer.expression)


def _matmul(expression: Any, count: int) -> Form:
    """``matrix @ coefficients`` (or ``coefficients @ matrix.T``)."""
    left, right = expression.args
    square = is_number(left) and left.size == count**2 > 1 and right.size == count
    if square and (weights := diagonal(left)) is not None:
        return tuple(m.times(weights) for m in form_of(right, count))
    for matrix, rest, turned in ((left, right, False), (right, left, True)):
        if not matrix.variables() and not is_private(rest):
            matrix = _transposed(matrix) if turned else matrix
            if expression.variables():
                return _through(matrix, rest, expression, count)
            numbers = sp.csr_array(np.reshape(_dense(number_of(rest)), (-1, 1)))
            return _numbers(matrix, numbers, expression, count)
    matrix = next((arg for arg in (left, right) if is_number(arg)), None)
    if matrix is not None:
        unfit(
            expression,
            "a public matrix mixes the records",
            "cp.multiply(weights, ...) for weights; the product computed beforehand otherwise",
        )
    return unfit(
        expression,
        "a product of private parameters that is not entrywise",
        "y @ (X @ w), or cp.sum(cp.multiply(y, X @ w))",
    )


def _transposed(expression: Any) -> Any:
    return expression.args[0] if kind(expression) == "transpose" else expression.T


def _picked_columns(expression: Any) -> Any:
    """CSR (p, k) map of ``matrix[:, columns]``; None where rows are picked too."""
    inner, key = expression.args[0], getattr(expression, "_orig_key", expression.key)
    key = key if isinstance(key, tuple) else (key,)
    if inner.ndim != 2 or len(key) > 2 or any(part is None or part is Ellipsis for part in key):
        return None
    n, p = inner.shape
    if not isinstance(key[0], slice) or key[0].indices(n) != (0, n, 1):
        return None
    chosen = np.atleast_1d(np.arange(p)[key[1] if len(key) == 2 else slice(None)])
    return sp.csr_array((np.ones(chosen.size), (chosen, np.arange(chosen.size))), shape=(p, chosen.size))


def _numbers(matrix: Any, column: Any, whole: Any, count: int) -> Form:
    """``matrix @ column`` with public numbers (p, 1): one private number per record."""
    if column.shape[1] != 1:
        return _wrong(whole, count)
    out = []
    for m in _through(matrix, cp.Constant([1.0]), whole, count, column):
        coefficient = m.coefficient * (1.0 if m.expression is None else float(number_of(m.expression).item()))
        if isinstance(m.matrix, Features):
            out.append(Monomial(coefficient, (m.matrix,)))
        else:
            out.append(Monomial(coefficient * (1.0 if m.matrix is None else _dense(m.matrix).ravel())))
    return tuple(out)


def _through(matrix: Any, coefficients: Any, whole: Any, count: int, columns: Any = None) -> Form:
    """Monomials of ``matrix @ columns @ coefficients``: sums, multiples, picked, mixed and stacked columns of private
    and public matrices. ``columns`` : public (p, k), or None.

    Multiples are moved to the coefficients, so that the prediction is whole: label and margin stand beside it as it is.
    """
    if is_number(matrix):
        value = number_of(matrix)
        value = value if columns is None else value @ columns
        if value.ndim == 1:  # (k,) @ (k,): a scalar, the same for all records
            return (Monomial(_ONE, expression=_flat(matrix @ coefficients)),)
        if value.shape[0] != count:
            return (Monomial(_ONE, expression=_flat(whole)),) if whole.size == 1 else _wrong(whole, count)
        return (Monomial(_ONE, (), value, _flat(coefficients)),)
    turned = kind(matrix) == "transpose" and isinstance(matrix.args[0], Private) and matrix.args[0].unit == "column"
    if isinstance(matrix, Private) or turned:
        features = Features(matrix.args[0] if turned else matrix, tidy(columns), turned)
        if matrix.ndim != 2 or features.count != count or coefficients.size != features.size:
            return _wrong(whole, count)
        return (Monomial(_ONE, (), features, _flat(coefficients)),)

    def through(inner: Any, mixed: Any = columns) -> Form:
        return _through(inner, coefficients, whole, count, mixed)

    match kind(matrix):
        case "add":
            return tuple(m for arg in matrix.args for m in through(arg))
        case "negate":
            return _through(matrix.args[0], -coefficients, whole, count, columns)
        case "multiply" | "divide" if any(is_number(arg) for arg in matrix.args):
            factor, rest = matrix.args if is_number(matrix.args[0]) else matrix.args[::-1]
            value = np.asarray(_dense(number_of(factor)))
            if kind(matrix) == "divide" and factor is matrix.args[0]:
                return _no_features(matrix)
            value = 1 / value if kind(matrix) == "divide" else value
            if np.ptp(value) == 0:
                return _through(rest, float(value.flat[0]) * coefficients, whole, count, columns)
            if rest.ndim == 2 and (value == value[:1]).all():
                return through(rest, _mixed(sp.diags_array(np.broadcast_to(value, rest.shape)[0]), columns))
            if rest.ndim == 2 and (value == value[:, :1]).all():
                return tuple(m.times(np.broadcast_to(value, rest.shape)[:, 0]) for m in through(rest))
        case "matmul" if matrix.ndim == 2 and is_number(matrix.args[1]):
            return through(matrix.args[0], _mixed(sp.csr_array(number_of(matrix.args[1])), columns))
        case "matmul" if matrix.ndim == 2 and matrix.args[0].shape == (count, count) and is_number(matrix.args[0]):
            if (weights := diagonal(matrix.args[0])) is not None:
                return tuple(m.times(weights) for m in through(matrix.args[1]))
        case "index" if (chosen := _picked_columns(matrix)) is not None and matrix.ndim == 2:
            return through(matrix.args[0], _mixed(chosen, columns))
        case "hstack" if matrix.ndim == 2 and (columns is not None or coefficients.size == matrix.shape[1]):
            start, out = 0, []
            for arg in matrix.args:
                part = slice(start, start + arg.shape[1])
                start = part.stop
                if columns is not None:
                    out += list(through(arg, columns[part]))
                elif len(matrix.args) == 1:
                    out += list(through(arg))
                else:
                    out += list(_through(arg, _flat(coefficients)[part], whole, count))
            return tuple(out)
    return _no_features(matrix)


def _mixed(inner: Any, outer: Any) -> Any:
    return inner if outer is None else sp.csr_array(inner @ outer)


def _no_features(matrix: Any) -> Form:
    return unfit(
        matrix,
        "features are private matrices, their sums, multiples, picked, stacked and publicly mixed columns",
        "X[:, :2] @ v, (X @ G) @ w with a public G, X @ cp.multiply(scales, w); other features computed beforehand",
    )


def _dense(value: Any) -> Any:
    return value.toarray() if sp.issparse(value) else value


def _wrong(whole: Any, count: int) -> Form:
    return unfit(
        whole,
        f"a matrix of {count} rows (one per record) times a vector of coefficients was expected",
        "X @ w with X (records x features) a Private of unit='row' and w a vector",
    )


def _jacobian_form(expression: Any) -> Form:
    """A public expression of the variables with one entry per record, as (sparse matrix) @ variable + numbers."""
    if not expression.is_affine():
        unfit(expression, "predictions must be affine in the variables", "an affine prediction")
    variables = expression.variables()
    starts = np.cumsum([0, *(variable.size for variable in variables)])
    read = rows_of(expression, {v.id: int(start) for v, start in zip(variables, starts, strict=False)})
    rows = read.csr(int(starts[-1]))
    out = [Monomial(read.offset)]
    for variable, start in zip(variables, starts, strict=False):
        matrix = rows[:, start : start + variable.size]
        if matrix.shape[0] == matrix.shape[1] and matrix.nnz == matrix.shape[0]:
            unfit(
                expression,
                f"variable {variable.name()} has a coefficient of its own for every record",
                "coefficients that many records share",
            )
        flat = cp.vec(variable, order="F") if variable.ndim != 1 else variable
        out.append(Monomial(_ONE, (), matrix, flat))
    return tuple(out)
