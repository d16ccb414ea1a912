"""Names of CVXPY's atoms, and values of public expressions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.compile.refusals import short
from dpmodel.errors import MissingValueError, SpecificationError
from dpmodel.marks.private import Private


def _kinds() -> dict[str, tuple[type, ...]]:
    """Name -> classes of the atom, taken from instances: factories and approximations hide the classes."""
    x, s, matrix, square = cp.Variable(3), cp.Variable(), cp.Variable((3, 2)), cp.Variable((2, 2))
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
        "vstack": [cp.vstack([x, x])],
        "concatenate": [cp.concatenate([x, x])],
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
        "log_sum_exp": [cp.log_sum_exp(x)],
        "max": [cp.max(x)],
        "min": [cp.min(x)],
        "index": [x[:2], x[[0, 1]]],
        "diag": [cp.diag(x)],
        "diagonal": [cp.diag(square)],
        "upper_tri": [cp.upper_tri(square)],
        "trace": [cp.trace(square)],
        "real": [cp.real(x)],
    }
    kinds: dict[str, tuple[type, ...]] = {name: tuple({type(atom) for atom in atoms}) for name, atoms in found.items()}
    return kinds | {"wrap": tuple(cp.atoms.affine.wraps.Wrap.__subclasses__())}


_KINDS = {found: name for name, classes in reversed(_kinds().items()) for found in classes}


def kind(expression: Any) -> str:
    """Name of the atom; "" for others. By the exact class: ``multiply`` is a subclass of CVXPY's matrix product."""
    return _KINDS.get(type(expression), "")


def exponent(expression: Any) -> float:
    """Exponent of a power; nan where a parameter decides it."""
    return float("nan") if expression.p.parameters() else float(expression.p.value)


def is_private(expression: Any) -> bool:
    return any(isinstance(parameter, Private) for parameter in expression.parameters())


def is_number(expression: Any) -> bool:
    """Whether the expression holds neither variables nor private parameters."""
    return not expression.variables() and not is_private(expression)


def number_of(expression: Any) -> Any:
    """Value of a public expression without variables: dense, or CSR where it is sparse.
    Errors: MissingValueError, SpecificationError, for a public parameter without a value; for NaN, infinite entries and
    points outside an atom's domain."""
    require_values(expression.parameters())
    if kind(expression) == "diag" and expression.k == 0:  # dense, it would have n x n entries for n records
        return sp.dia_array((np.atleast_2d(number_of(expression.args[0])), [0]), shape=expression.shape).tocsr()
    value = expression.value
    if value is None:
        raise SpecificationError(f"{short(expression)} has no value", why="it is outside the domain of an atom")
    data = value.data if sp.issparse(value) else np.asarray(value, dtype=np.float64)
    if not np.isfinite(data).all():
        raise SpecificationError(f"{short(expression)} has NaN or infinite entries", remedy="finite numbers")
    return sp.csr_array(value, dtype=np.float64) if sp.issparse(value) else data


def require_values(parameters: Iterable[Any]) -> None:
    """Raise MissingValueError unless the public ones among the ``parameters`` have values."""
    names = [p.name() for p in parameters if p.value is None and not isinstance(p, Private)]
    if names:
        raise MissingValueError(
            f"public parameter {names[0]} has no value",
            why="losses, weights and penalties are read when the problem is classified and planned",
            remedy=f"{names[0]}.value = ... before planning",
        )


def rebuilt(expression: Any, args: list[Any]) -> Any:
    """The same atom of other arguments, whose shapes may differ."""
    match kind(expression):
        case "add":
            return sum(args[1:], args[0])
        case "multiply":
            return cp.multiply(*args)
        case "divide":
            return args[0] / args[1]
    return expression.copy(args)


def diagonal(expression: Any) -> Floats | None:
    """(n,) diagonal of a public square matrix; None if it is not diagonal."""
    matrix = sp.coo_array(number_of(expression))
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.data[matrix.row != matrix.col].any():
        return None
    return np.asarray(sp.csr_array(matrix).diagonal())
