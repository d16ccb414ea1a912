"""Random points at which expressions are compared: on copies of the tree, with synthetic numbers for private
parameters.

Neither the user's variables nor any private value is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.marks.private import Private
from dpmodel.privacy import public_generator

# Private parameters with more entries are stood for by sparse ones, of about so many entries, at least so many a row:
# what mixes the entries of a row shows in two of them.
_DENSE, _STORED, _EACH = 1_000_000, 200_000, 2


class Point:
    """Numbers for variables and private parameters, by which public leaves keep their values.

    ``dense`` : large private matrices too are stood for by dense arrays. ``size`` : if positive, all variables are
    positive and below it. ``numbers`` : those of another point, for the private parameters.
    """

    def __init__(
        self,
        variables: Iterable[Any],
        private: Iterable[Private],
        seed: int,
        dense: bool = False,
        size: float = 0.0,
        numbers: dict[int, Any] | None = None,
    ) -> None:
        rng = public_generator(seed)
        self.swap: dict[int, Any] = {}
        self.numbers: dict[int, Any] = {}
        for variable in variables:
            copy = cp.Variable(variable.shape)
            copy.save_value(_inside(variable, rng.uniform(0.1, 1.0, size=variable.shape), rng, size))
            self.swap[id(variable)] = copy
        for parameter in private:
            number = _stand_in(parameter, rng, dense) if numbers is None else numbers[id(parameter)]
            self.numbers[id(parameter)] = number
            self.swap[id(parameter)] = cp.Constant(number)

    def value(self, expression: Any) -> Any:
        """Value of an expression here; None where CVXPY has none."""
        return expression.tree_copy(self.swap).value

    def scalar(self, expression: Any) -> float:
        """Value of a scalar; nan where CVXPY has none."""
        with np.errstate(all="ignore"):
            value = self.value(expression)
        return float("nan") if value is None else float(np.asarray(value).reshape(()))

    def vector(self, expression: Any) -> Floats:
        """The same, flat."""
        value = self.value(expression)
        value = value.toarray() if sp.issparse(value) else value
        return np.asarray(value, dtype=np.float64).ravel(order="F")


def at_a_random_point(evaluate: Callable[[bool, float], Floats]) -> Floats:
    """Numbers that ``evaluate(dense, size)`` finds with a ``Point``: near 0 where they are not finite elsewhere
    (logarithms and the like), on dense stand-ins where some atom takes no sparse ones."""
    for size in (0.0, 0.01):
        try:
            found = evaluate(False, size)
        except (TypeError, ValueError, AttributeError):
            found = evaluate(True, size)
        if np.isfinite(found).all():
            break
    return found


def _inside(variable: Any, value: Any, rng: Any, size: float) -> Any:
    """Random values that respect the variable's attributes."""
    attributes = variable.attributes
    if size:
        value = value * size
    elif not any(attributes[key] for key in ("nonneg", "pos")):
        value = value * rng.choice([-1.0, 1.0], size=variable.shape)
    if any(attributes[key] for key in ("symmetric", "PSD", "NSD", "diag", "nonpos", "neg")) or (
        variable.sparse_idx is not None
    ):
        value = variable.project(value)
    return np.asarray(value.toarray() if sp.issparse(value) else value)


def _stand_in(parameter: Private, rng: Any, dense: bool) -> Any:
    """Random numbers of the parameter's shape, structure and sign."""
    attributes = parameter.attributes

    def draw(size: Any) -> Any:
        out = rng.uniform(-1, 1, size=size)
        out = np.abs(out) if attributes["nonneg"] or attributes["pos"] else out
        return -np.abs(out) if attributes["nonpos"] or attributes["neg"] else out

    shape = parameter.shape
    if parameter.sparse_idx is not None and shape:
        index = parameter.sparse_idx
        if len(shape) == 2:
            return sp.csc_array((draw(len(index[0])), tuple(index)), shape=shape)
        out = np.zeros(shape)
        out[index] = draw(len(index[0]))
        return out
    if len(shape) == 2 and parameter.size > _DENSE and not dense:
        rows, columns = shape
        each = max(_EACH, _STORED // rows)
        place = np.repeat(np.arange(rows), each), rng.integers(columns, size=rows * each)
        return sp.csc_array((draw(rows * each), place), shape=shape)
    value = draw(shape)
    if any(attributes[key] for key in ("symmetric", "PSD", "NSD")):
        value = (value + value.T) / 2
    return np.diag(np.diag(value)) if attributes["diag"] else value
