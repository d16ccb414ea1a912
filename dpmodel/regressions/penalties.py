"""The public part of a regression's objective: ridge, l1, linear and other convex terms of the coefficients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np

from dpmodel._types import Floats
from dpmodel.compile.atoms import diagonal, exponent, is_number, kind, require_values
from dpmodel.compile.refusals import short
from dpmodel.errors import InfeasibleError, UnsupportedModelError
from dpmodel.regressions.public import PublicPart, Twin
from dpmodel.regressions.public_expressions import summands, vector_of


@dataclass(frozen=True)
class Penalty:
    """``sum_j ridge_j w_j^2 + sum_j l1_j |w_j| + <linear, w> + constant + other(w)``.

    ``ridge``, ``l1``, ``linear`` : (p,), the first two non-negative. ``other`` : a convex function of w that is none of
    these (then only mechanisms that post-process with CVXPY or subgradients serve), ``other_derivative`` a subgradient.
    """

    ridge: Floats
    l1: Floats
    linear: Floats
    constant: float = 0.0
    other: Callable[[Floats], float] | None = None
    other_derivative: Callable[[Floats], Floats] | None = None

    @staticmethod
    def none(size: int) -> Penalty:
        return Penalty(np.zeros(size), np.zeros(size), np.zeros(size))

    @cached_property
    def smooth(self) -> bool:
        """Whether it is quadratic."""
        return self.other is None and not self.l1.any()

    @cached_property
    def absent(self) -> bool:
        return self.smooth and not (self.ridge.any() or self.linear.any())

    def value(self, w: Floats) -> float:
        return float(self.values(w[None])[0])

    def values(self, w: Floats) -> Floats:
        """(B,) of every row of w (B, p)."""
        out: Floats = (w * w) @ self.ridge + np.abs(w) @ self.l1 + w @ self.linear + self.constant
        return out if self.other is None else out + np.array([self.other(row) for row in w])

    def derivative(self, w: Floats) -> Floats:
        """(p,) gradient of the quadratic part."""
        return np.zeros_like(w) if self.absent else 2 * self.ridge * w + self.linear

    def subgradient(self, w: Floats) -> Floats:
        """(p,) a subgradient of all of it; (B, p) for every row of such a w."""
        out = self.derivative(w)
        return out if self.smooth else out + self.l1 * np.sign(w) + self.other_subgradient(w)

    def other_subgradient(self, w: Floats) -> Floats | float:
        """The same of ``other`` alone."""
        if self.other_derivative is None:
            return 0.0
        return self.other_derivative(w) if w.ndim == 1 else np.stack([self.other_derivative(row) for row in w])

    def shrink(self, w: Floats, step: float | Floats) -> Floats:
        """(p,) proximal step of the l1 part: soft thresholding by ``step * l1``."""
        return np.sign(w) * np.maximum(np.abs(w) - step * self.l1, 0.0)


# ------------------------------------------------------------------ reading the public terms


def whole_penalty(public: list[tuple[float, cp.Expression]]) -> cp.Expression | None:
    """The public terms added up, or None.

    Raises
    ------
    UnsupportedModelError
        Naming a term that is not convex.
    """
    for factor, expression in public:
        term = expression if factor == 1 else factor * expression
        if not term.is_convex():
            raise UnsupportedModelError(
                f"the objective: {short(term)} is not convex by CVXPY's rules",
                why="a regulariser must be convex (DCP); a parameter whose sign matters needs nonneg=True",
                remedy="cp.norm1, cp.sum_squares or another convex function of the coefficients, with a weight >= 0",
            )
        require_values(expression.parameters())
    parts = [expression if factor == 1 else factor * expression for factor, expression in public]
    return sum(parts[1:], parts[0]) if parts else None


def read_penalty(public: list[tuple[float, cp.Expression]], part: PublicPart) -> Penalty:
    """Ridge, l1 and linear parts of single coefficients; the rest as ``other``.

    Where the coefficients are not variables stacked, or the terms use other variables (the t of an epigraph), the
    penalty at w is the least that the constraints allow at w.
    """
    reader = _Reader(part.twin)
    rest: list[tuple[float, Any]] = []
    swap = {id(user): copy for user, copy in part.twin.pairs}
    for factor, expression in public:
        for times, term in summands(expression.tree_copy(swap), factor):
            if is_number(term):
                reader.constant += times * float(vector_of(term, 1))
            elif not reader.recognised(term, np.asarray(times)):
                rest.append((times, term))
    if not rest:
        return reader.penalty()
    left = sum(factor * expression for factor, expression in rest)
    known = {place.variable.id for place in part.twin.places if (place.index >= 0).all()}
    if all(v.id in known for v in left.variables()):
        return reader.penalty(*_direct(left, part.twin))
    return reader.penalty(*_least(left, part.twin, part.twin.constraints))


class _Reader:
    """Adds up what is recognised."""

    def __init__(self, twin: Twin) -> None:
        self.twin = twin
        self.ridge, self.l1, self.linear = np.zeros((3, twin.w.size))
        self.constant = 0.0

    def penalty(
        self, other: Callable[[Floats], float] | None = None, derivative: Callable[[Floats], Floats] | None = None
    ) -> Penalty:
        return Penalty(self.ridge, self.l1, self.linear, self.constant, other, derivative)

    def recognised(self, expression: Any, factor: Floats) -> bool:
        """Take ``sum_i factor_i expression_i``, if it is a sum of squares, absolute values and multiples of entries."""
        if expression.is_affine():
            return self._add(expression, factor, "linear")
        args, one = expression.args, expression.size == 1
        match kind(expression):
            case "sum" if one:
                return self.recognised(args[0], factor)
            case "abs":
                return self._add(args[0], factor, "l1")
            case "norm1" if one:
                return self._add(args[0], factor, "l1")
            case "power" if exponent(expression) == 2:
                return self._squares(args[0], factor)
            case "quad_over_lin" if one and is_number(args[1]):
                return self._squares(args[0], factor / vector_of(args[1], 1))
            case "quad_form" if is_number(args[1]):
                weights = diagonal(args[1])
                return weights is not None and self._add(args[0], factor * weights, "ridge")
            case "matmul" if one and any(is_number(arg) and arg.size == args[0].size for arg in args):
                number, rest = args if is_number(args[0]) else args[::-1]
                return rest.size == number.size and self.recognised(rest, factor * vector_of(number, rest.size))
            case "multiply" if any(is_number(arg) for arg in args):
                number, rest = args if is_number(args[0]) else args[::-1]
                return self.recognised(rest, factor * vector_of(number, expression.size))
            case "divide" if is_number(args[1]):
                return self.recognised(args[0], factor / vector_of(args[1], expression.size))
        return False

    def _squares(self, inner: Any, factor: Floats) -> bool:
        if inner.size == 1 and kind(inner) == "pnorm" and inner.p == 2:
            inner = inner.args[0]
        return self._add(inner, factor, "ridge")

    def _add(self, inner: Any, factor: Floats, what: str) -> bool:
        """Add ``sum_i factor_i f(inner_i)`` if every inner_i is a multiple of one coefficient plus a number."""
        read = self.twin.affine(inner) if inner.is_affine() else None
        if read is None:
            return False
        A, offset = read
        weights = np.broadcast_to(factor, offset.shape)
        if what == "linear":
            self.linear += A.T @ weights
            self.constant += float(weights @ offset)
            return True
        held = np.diff(A.indptr)
        if (held > 1).any() or (weights < 0).any() or (what == "l1" and offset[held == 1].any()):
            return False
        if what == "l1":
            self.l1 += abs(A).T @ weights
            self.constant += float(weights @ np.abs(offset))
        else:
            self.ridge += (A * A).T @ weights
            self.linear += 2 * (A.T @ (weights * offset))
            self.constant += float(weights @ offset**2)
        return True


def _direct(left: Any, twin: Twin) -> tuple[Callable[[Floats], float], Callable[[Floats], Floats]]:
    """Value and subgradient of an expression of the coefficients alone."""

    def value(w: Floats) -> float:
        twin.assign(w)
        return math.inf if left.value is None else float(left.value)

    def derivative(w: Floats) -> Floats:
        try:
            return twin.derivative(left, w)
        except NotImplementedError:  # some atoms have none
            return _least(left, twin, [])[1](w)

    return value, derivative


def _least(
    left: Any, twin: Twin, constraints: list[Any]
) -> tuple[Callable[[Floats], float], Callable[[Floats], Floats]]:
    """The least value over all variables that give these coefficients; its derivative is the multiplier of that
    equality."""
    target = cp.Parameter(twin.w.size)
    tie = twin.w == target
    problem = cp.Problem(cp.Minimize(left), [*constraints, tie])

    def solve(w: Floats) -> float:
        target.value = np.asarray(w, dtype=np.float64)
        try:
            problem.solve(solver=cp.CLARABEL)
        except cp.SolverError:
            raise InfeasibleError(
                "the public penalty could not be computed", why="its solver stopped", remedy="a simpler penalty"
            ) from None
        return math.inf if problem.value is None else float(problem.value)

    def derivative(w: Floats) -> Floats:
        solve(w)
        multiplier = tie.dual_value
        return np.zeros(w.size) if multiplier is None else -np.asarray(multiplier, dtype=np.float64).ravel(order="F")

    return solve, derivative
