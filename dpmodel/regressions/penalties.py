"""The public part of a regression's objective: ridge, l1, linear and other convex terms of the coefficients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.compile.affine_reader import Affine
from dpmodel.compile.atoms import require_values
from dpmodel.compile.refusals import short
from dpmodel.errors import InfeasibleError, UnsupportedModelError
from dpmodel.regressions.public import PublicPart, Twin
from dpmodel.regressions.public_expressions import summands
from dpmodel.regressions.terms import entries_of


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
    Errors: UnsupportedModelError, naming a term that is not convex."""
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
    twin = part.twin
    ridge, l1, linear = np.zeros((3, twin.w.size))
    constant, rest = 0.0, list[tuple[float, Any]]()
    swap = {id(user): copy for user, copy in twin.pairs}
    for factor, expression in public:
        for times, term in summands(expression.tree_copy(swap), factor):
            found = _entries(term, times, twin)
            if found is None:
                rest.append((times, term))
                continue
            for atom, weight, A, offset in found:
                match atom:
                    case "affine":
                        linear += A.T @ weight
                        constant += float(weight @ offset)
                    case "abs":
                        l1 += abs(A).T @ weight
                        constant += float(weight @ np.abs(offset))
                    case "square":
                        ridge += (A * A).T @ weight
                        linear += 2 * (A.T @ (weight * offset))
                        constant += float(weight @ offset**2)
    penalty = Penalty(ridge, l1, linear, constant)
    if not rest:
        return penalty
    left = sum(factor * expression for factor, expression in rest)
    known = {place.variable.id for place in twin.places if (place.index >= 0).all()}
    direct = all(v.id in known for v in left.variables())
    value, derivative = _direct(left, twin) if direct else _least(left, twin, twin.constraints)
    return replace(penalty, other=value, other_derivative=derivative)


def _entries(term: Any, times: float, twin: Twin) -> list[tuple[str, Floats, sp.csr_array, Floats]] | None:
    """(atom, weights (m,), A (m, p), offset (m,)): ``times * term`` as a sum of ``weight atom(A w + offset)``.

    None where other atoms are in it, or several coefficients in one.
    """
    reader, read = twin.reader(), []
    for each in entries_of(term, times, reader):
        atom = "square" if each.atom == "affine" and each.power == 2 else each.atom if each.power == 1 else ""
        if atom not in ("affine", "abs", "square"):
            return None
        rows = each.parts[0]
        affine = twin.of_coefficients(Affine(rows.offset, rows.row, rows.column // reader.radix - 1, rows.data))
        if affine is None:
            return None
        held = np.diff(affine[0].indptr)
        shifted = atom == "abs" and affine[1][held == 1].any()
        if atom != "affine" and ((held > 1).any() or (each.weight < 0).any() or shifted):
            return None
        read.append((atom, each.weight, *affine))
    return read


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
