"""An objective as weighted absolute values and squares of affine residuals, plus a linear term."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np

from dpmodel._types import Floats
from dpmodel.compile.affine_reader import (
    Affine,
    AffineReader,
    Gather,
    NotAffine,
    Scale,
    atom_kinds,
    flat,
    group,
    spread,
)


class Outside(NotAffine):
    """The problem does not fit the form: only a general solver serves it."""


@dataclass(eq=False)
class Residual:
    """``node`` : affine expression r; ``absolute, square`` : (size,) weights of |r| and r^2, and how many terms gave
    each entry its weight (halves of maxima and minima aside: a positive and a negative part make one whole)."""

    node: Any
    absolute: Floats
    square: Floats
    absolute_terms: Any
    square_terms: Any

    @staticmethod
    def of(node: Any) -> Residual:
        zeros = [np.zeros(node.size) for _ in range(2)]
        return Residual(node, *zeros, *(np.zeros(node.size, dtype=np.int64) for _ in range(2)))


@dataclass(eq=False)
class Objective:
    """Terms read so far. Weights may be negative where the term is linear, or bends the other way."""

    reader: AffineReader
    residuals: dict[int, Residual] = field(default_factory=dict)
    linear: list[tuple[Affine, Floats]] = field(default_factory=list)
    constant: float = 0.0

    def add(self, node: Any, weights: Floats) -> None:
        """Add ``sum_k weights_k node_k``, k column by column.

        Raises
        ------
        Outside
            For a term of any other kind.
        """
        if not weights.any():
            return
        kinds = _kinds()
        if self.reader.is_constant(node):
            self.constant += float(weights @ flat(node.value))
        elif isinstance(node, kinds["abs"]):
            self._absolute(node.args[0], weights)
        elif isinstance(node, kinds["norm1"]):
            self._absolute(node.args[0], group(tuple(node.args[0].shape), node.axis).back(weights))
        elif isinstance(node, kinds["power"]):
            self._power(node, weights)
        elif isinstance(node, kinds["squares"]) and self.reader.is_constant(node.args[1]):
            over = float(flat(node.args[1].value)[0])
            if over <= 0:
                raise Outside("division by a number that is not positive")
            self._square(node.args[0], group(tuple(node.args[0].shape), node.axis).back(weights) / over)
        elif isinstance(node, kinds["form"]) and self.reader.is_constant(node.args[1]):
            matrix = node.args[1].value
            diagonal = np.asarray(matrix.diagonal(), dtype=np.float64)
            if abs(matrix).sum() != np.abs(diagonal).sum():
                raise Outside("a quadratic form with products")
            self._square(node.args[0], weights * diagonal)
        elif isinstance(node, (kinds["maximum"], kinds["minimum"])) and len(node.args) == 2:
            self._larger(node, weights, 1.0 if isinstance(node, kinds["maximum"]) else -1.0)
        elif node.is_affine():
            self.linear.append((self.reader.read(node), weights))
        elif node.is_atom_convex() and node.is_atom_concave():
            for arg, step in self.reader.steps(node):
                self.add(arg, weights if step is None else step.back(weights))
        else:
            raise Outside(type(node).__name__)

    def _power(self, node: Any, weights: Floats) -> None:
        power = getattr(node.p, "value", node.p)
        if power == 2:
            self._square(node.args[0], weights)
        elif power == 1:
            self.add(node.args[0], weights)
        else:
            raise Outside(f"a power of {power}")

    def _larger(self, node: Any, weights: Floats, sign: float) -> None:
        """max(a, b) = (a + b) / 2 + |a - b| / 2, min with a minus."""
        if not all(arg.is_affine() for arg in node.args):
            raise Outside("the larger of terms that are not affine")
        for arg in node.args:
            step = spread(tuple(arg.shape), tuple(node.shape))
            self.add(arg, (weights if step is None else step.back(weights)) / 2)
        a, b = node.args
        zero = self.reader.is_constant(b) and not np.any(flat(b.value)) and a.shape == node.shape
        self._absolute(a if zero else a - b, sign * weights / 2, half=True)

    def _absolute(self, node: Any, weights: Floats, half: bool = False) -> None:
        if (weights < 0).any():
            raise Outside("an absolute value with a negative weight")
        if not node.is_affine():
            sign = 1.0 if node.is_nonneg() else -1.0 if node.is_nonpos() else 0.0
            if not sign:
                raise Outside("the absolute value of a term that is not affine")
            self.add(node, sign * weights)
            return
        if self.reader.is_constant(node):
            self.constant += float(weights @ np.abs(flat(node.value)))
            return
        node, weights = self._peeled(node, weights, 1)
        found = self.residuals.setdefault(id(node), Residual.of(node))
        found.absolute += weights
        found.absolute_terms += (weights > 0) & (not half)

    def _square(self, node: Any, weights: Floats) -> None:
        if (weights < 0).any():
            raise Outside("a square with a negative weight")
        kinds = _kinds()
        if not node.is_affine():
            if isinstance(node, kinds["abs"]):
                self._square(node.args[0], weights)
            elif isinstance(node, kinds["norm2"]) and node.p == 2:
                self._square(node.args[0], group(tuple(node.args[0].shape), node.axis).back(weights))
            else:
                raise Outside("the square of a term that is not affine")
            return
        if self.reader.is_constant(node):
            self.constant += float(weights @ np.square(flat(node.value)))
            return
        node, weights = self._peeled(node, weights, 2)
        found = self.residuals.setdefault(id(node), Residual.of(node))
        found.square += weights
        found.square_terms += weights > 0

    def _peeled(self, node: Any, weights: Floats, power: int) -> tuple[Any, Floats]:
        """Factors and rearrangements outside a residual move into the weights, so that one residual stays one."""
        while isinstance(node, atom_kinds()["outer"]):
            steps = self.reader.steps(node)
            if len(steps) != 1:
                break
            arg, step = steps[0]
            if isinstance(step, Scale):
                weights = weights * np.abs(step.factor) ** power
            elif isinstance(step, Gather) and not isinstance(arg, cp.Variable):
                weights = step.back(weights)
            else:
                break
            node = arg
        return node, weights


@cache
def _kinds() -> dict[str, Any]:
    x = cp.Variable(3)
    return {
        "abs": type(cp.abs(x)),
        "norm1": type(cp.norm1(x)),
        "power": cp.Power,
        "squares": type(cp.sum_squares(x)),
        "form": type(cp.quad_form(x, np.eye(3))),
        "norm2": cp.Pnorm,
        "maximum": type(cp.maximum(x, 0)),
        "minimum": type(cp.minimum(x, 0)),
    }
