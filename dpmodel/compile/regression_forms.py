"""Functions of one record that are affine in the variables, read off the user's tree: predictions, margins, residuals.

A form is a sum of monomials ``coefficient_i * (private vectors)_i * (matrix @ expression)_i``, i being the record.
Nothing is lowered: private matrices stay what they are, and public expressions of the variables as CVXPY wrote them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NoReturn

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel.annotate.private import Private
from dpmodel.compile.affine_map import Floats
from dpmodel.compile.refusals import short
from dpmodel.errors import MissingValueError, SpecificationError, UnsupportedModelError


class NotPerRecord(UnsupportedModelError):
    """A term with private rows that is no sum over the records (a largest residual, say)."""


def _kinds() -> dict[str, tuple[type, ...]]:
    """Classes of CVXPY's atoms, found on instances: factories and approximations hide their names."""
    x, s, matrix = cp.Variable(3), cp.Variable(), cp.Variable((3, 2))
    found: dict[str, list[Any]] = {
        "add": [x + x],
        "negate": [-x],
        "multiply": [cp.multiply(np.ones(3), x)],
        "matmul": [np.ones((3, 3)) @ x],
        "divide": [x / 2],
        "sum": [cp.sum(x)],
        "promote": [cp.multiply(s, np.ones(3)).args[0]],
        "broadcast": [cp.broadcast_to(x, (2, 3))],
        "reshape": [cp.reshape(x, (3, 1), order="F")],
        "transpose": [matrix.T],
        "conjugate": [cp.conj(x)],
        "hstack": [cp.hstack([x, x])],
        "maximum": [cp.maximum(x, 0)],
        "minimum": [cp.minimum(x, 0)],
        "abs": [cp.abs(x)],
        "power": [cp.square(x), cp.power(x, 2, approx=False)],
        "pnorm": [cp.norm(x, 2), cp.pnorm(x, 2, approx=False)],
        "norm1": [cp.norm1(x)],
        "quad_over_lin": [cp.sum_squares(x)],
        "quad_form": [cp.quad_form(x, np.eye(3))],
        "huber": [cp.huber(x)],
        "logistic": [cp.logistic(x)],
        "max": [cp.max(x)],
        "index": [x[:2], x[[0, 1]]],
    }
    return {name: tuple({type(atom) for atom in atoms}) for name, atoms in found.items()}


_CLASSES = _kinds()


def kind(expression: Any) -> str:
    """Name of the atom; "" for others. (``multiply`` is a subclass of CVXPY's matrix product: exact classes only.)"""
    found = type(expression)
    return next((name for name, classes in _CLASSES.items() if found in classes), "")


def exponent(expression: Any) -> float:
    """Exponent of a power; nan where a parameter decides it."""
    return float("nan") if expression.p.parameters() else float(expression.p.value)


def is_private(expression: Any) -> bool:
    return any(isinstance(parameter, Private) for parameter in expression.parameters())


def is_number(expression: Any) -> bool:
    """Whether it holds neither variables nor private parameters."""
    return not expression.variables() and not is_private(expression)


def number_of(expression: Any) -> Any:
    """Value of a public expression without variables: dense, or sparse as it is.

    Raises
    ------
    MissingValueError, SpecificationError
        For a public parameter without a value; for NaN and infinite entries.
    """
    require_values(expression)
    value = expression.value
    if value is None:
        raise SpecificationError(f"{short(expression)} has no value", why="it is outside the domain of an atom")
    data = value.data if sp.issparse(value) else np.asarray(value, dtype=np.float64)
    if not np.isfinite(data).all():
        raise SpecificationError(f"{short(expression)} has NaN or infinite entries", remedy="finite numbers")
    return sp.csr_array(value, dtype=np.float64) if sp.issparse(value) else data


def require_values(expression: Any) -> None:
    """Raise MissingValueError unless the public parameters in ``expression`` have values."""
    names = [p.name() for p in expression.parameters() if p.value is None and not isinstance(p, Private)]
    if names:
        raise MissingValueError(
            f"public parameter {names[0]} has no value",
            why="losses, weights and penalties are read when the problem is classified and planned",
            remedy=f"{names[0]}.value = ... before planning",
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


def unfit(
    expression: Any, why: str, remedy: str, error: type[UnsupportedModelError] = UnsupportedModelError
) -> NoReturn:
    """Refuse an objective with private rows, naming the term that did not fit."""
    raise error(f"the objective: {short(expression)} does not fit a private regression", why=why, remedy=remedy)


@dataclass(frozen=True)
class Monomial:
    """``coefficient * vectors * (matrix @ expression)``, record by record.

    ``coefficient`` : () or (n,) public. ``vectors`` : private vectors of n entries. ``matrix`` : Private or public
    (n, k), with ``expression`` (k,) public and affine in the variables; or None with a scalar ``expression``; or
    both None.
    """

    coefficient: Floats
    vectors: tuple[Private, ...] = ()
    matrix: Any = None
    expression: cp.Expression | None = None

    def times(self, factor: Floats) -> Monomial:
        return replace(self, coefficient=self.coefficient * factor)

    @property
    def is_number(self) -> bool:
        return self.expression is None and not self.vectors


Form = tuple[Monomial, ...]

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
        return (Monomial(_ONE, (expression,)),)
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
    if any(p is q for p in a.vectors for q in b.vectors):
        unfit(expression, f"{a.vectors[0].name()} is multiplied by itself", "the product, computed beforehand")
    bearer = a if a.expression is not None else b
    return Monomial(a.coefficient * b.coefficient, (*a.vectors, *b.vectors), bearer.matrix, bearer.expression)


def _matmul(expression: Any, count: int) -> Form:
    """``matrix @ coefficients`` (or ``coefficients @ matrix.T``)."""
    left, right = expression.args
    if not left.variables() and not is_private(right):
        return _through(left, right, expression, count)
    if not right.variables() and not is_private(left):
        return _through(_transposed(right), left, expression, count)
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


def _through(matrix: Any, coefficients: Any, whole: Any, count: int) -> Form:
    """Monomials of ``matrix @ coefficients``: sums, multiples and stacked columns of private and public matrices.

    Multiples are moved to the coefficients, so that the prediction is whole: label and margin stand beside it as it is.
    """
    if is_number(matrix):
        value = number_of(matrix)
        if value.ndim == 1:  # (k,) @ (k,): a scalar, the same for all records
            return (Monomial(_ONE, expression=_flat(matrix @ coefficients)),)
        if value.shape[0] != count:
            return form_of(cp.promote(_flat(whole), (count,)), count) if whole.size == 1 else _wrong(whole, count)
        return (Monomial(_ONE, (), value, _flat(coefficients)),)
    if isinstance(matrix, Private):
        if matrix.ndim != 2 or matrix.shape[0] != count or coefficients.size != matrix.shape[1]:
            return _wrong(whole, count)
        return (Monomial(_ONE, (), matrix, _flat(coefficients)),)
    match kind(matrix):
        case "add":
            return tuple(m for arg in matrix.args for m in _through(arg, coefficients, whole, count))
        case "negate":
            return _through(matrix.args[0], -coefficients, whole, count)
        case "multiply":
            for factor, rest in (matrix.args, matrix.args[::-1]):
                if is_number(factor) and np.ptp(value := np.asarray(_dense(number_of(factor)))) == 0:
                    return _through(rest, float(value.flat[0]) * coefficients, whole, count)
        case "divide":
            if is_number(matrix.args[1]) and np.ptp(value := np.asarray(_dense(number_of(matrix.args[1])))) == 0:
                return _through(matrix.args[0], coefficients / float(value.flat[0]), whole, count)
        case "hstack" if matrix.ndim == 2 and coefficients.size == matrix.shape[1]:
            flat, start, out = _flat(coefficients), 0, []
            for arg in matrix.args:
                if arg.shape[1] == 1 and isinstance(arg, Private):
                    out += list(_through(arg, cp.reshape(flat[start], (1,), order="F"), whole, count))
                else:
                    out += list(_through(arg, flat[start : start + arg.shape[1]], whole, count))
                start += arg.shape[1]
            return tuple(out)
    return unfit(
        matrix,
        "features are private matrices, their sums, multiples and stacked columns",
        "scale columns on the other side, X @ cp.multiply(scales, w), and compute other features beforehand",
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
    copies = {v: cp.Variable(v.shape) for v in expression.variables()}
    twin = expression.tree_copy({id(v): copy for v, copy in copies.items()})
    for copy in copies.values():
        copy.save_value(np.zeros(copy.shape))
    gradient = twin.grad
    out = [Monomial(np.asarray(twin.value, dtype=np.float64).ravel(order="F"))]
    for variable, copy in copies.items():
        matrix = sp.csr_array(gradient[copy]).T.tocsr()
        if matrix.shape[0] == matrix.shape[1] and matrix.nnz == matrix.shape[0]:
            unfit(
                expression,
                f"variable {variable.name()} has a coefficient of its own for every record",
                "coefficients that many records share",
            )
        flat = cp.vec(variable, order="F") if variable.ndim != 1 else variable
        out.append(Monomial(_ONE, (), matrix, flat))
    return tuple(out)
