"""Separable least squares over a polyhedron, for millions of variables: proximal steps, each by semismooth Newton.

    minimise  1/2 sum_j weight_j (z_j - target_j)^2   subject to  A z = b,  lower <= z <= upper

Everything here is released or public. A proximal term (z - z_k)^2 / (2 tau) makes every coordinate strictly convex, so
that the dual of one step has the maximiser in closed form, ``z(l) = clip((weight target + z_k / tau + A'l) / (weight +
1 / tau))``, and is smooth and concave in l. Its generalised Hessian is ``A D A'`` with D positive on the coordinates
that are strictly inside their bounds only, so few of many take part; Newton's equation is solved by conjugate
gradients with a diagonal preconditioner and a Levenberg-Marquardt ridge that goes to zero with the residual. The outer
loop is the proximal point method (Rockafellar 1976); the combination is that of Li, Sun and Toh, "A highly efficient
semismooth Newton augmented Lagrangian method for solving Lasso problems" (SIAM J. Optim. 28, 2018). Both loops stop on
residuals of the optimality conditions.

Why not a solver through CVXPY: interior-point methods and OSQP factorise, which a table of 1e6 cells does not allow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.numerics.nearest_point import conjugate_gradients

_OUTER, _NEWTON, _CG = 40, 300, 60
# Share of the residual to which Newton's equation is solved; Armijo's constant; least step of the line search.
_INEXACT, _ARMIJO, _LEAST_STEP = 0.1, 1e-4, 1e-7
# Levenberg-Marquardt: share of the middle diagonal entry added to the Hessian, while the residual is as at first.
_RIDGE = 0.3


@dataclass(frozen=True)
class DiagonalQP:
    """The program above. ``A`` : (m, n) sparse, ``b`` (m,); the others (n,), weights >= 0, bounds may be infinite."""

    A: sp.csr_array
    b: Floats
    weight: Floats
    target: Floats
    lower: Floats
    upper: Floats


@dataclass(frozen=True)
class QPSolution:
    """``z`` (n,) within its bounds; ``primal`` and ``dual`` : largest residual of ``A z = b`` (rows scaled to unit
    length) and of stationarity; ``converged`` : both within the tolerance asked for; ``steps`` : Newton steps."""

    z: Floats
    primal: float
    dual: float
    converged: bool
    steps: int


def solve_diagonal_qp(program: DiagonalQP, *, start: Floats, tolerance: float, tau: float = 30.0) -> QPSolution:
    """Solve to residuals of at most ``tolerance`` (in the units of z, for weights of order one).

    Parameters
    ----------
    start : (n,) centre of the first proximal step; where the minimiser is not unique, one near it is found.
    tau : first proximal parameter, in units of 1 / weight; grows threefold per step.
    """
    A, b = _unit_rows(program.A, program.b)
    At = sp.csr_array(A.T)
    centre = np.clip(start, program.lower, program.upper)
    multiplier = np.zeros(b.size)
    strict = bool((program.weight > 0).all())
    primal = dual = np.inf
    steps = 0
    for _ in range(_OUTER):
        step = _Step(program, A, At, b, centre, 0.0 if strict else 1.0 / tau)
        multiplier, z, primal, taken = step.solve(multiplier, tolerance)
        steps += taken
        dual = 0.0 if strict else float(np.abs(z - centre).max(initial=0.0)) / tau
        centre = z
        if strict or (dual <= tolerance and primal <= tolerance):
            break
        tau *= 3.0
    return QPSolution(centre, primal, dual, primal <= tolerance and dual <= tolerance, steps)


def _unit_rows(A: sp.csr_array, b: Floats) -> tuple[sp.csr_array, Floats]:
    """The same equations with rows of 2-norm one (empty rows stay)."""
    squares = A.copy()
    squares.data = squares.data**2
    norm = np.sqrt(np.asarray(squares.sum(axis=1)).ravel())
    scale = np.where(norm > 0, 1.0 / np.where(norm > 0, norm, 1.0), 1.0)
    return sp.csr_array(sp.diags_array(scale) @ A), b * scale


class _Step:
    """One proximal step: its dual function, minimised by Newton's method with conjugate gradients."""

    def __init__(
        self, program: DiagonalQP, A: sp.csr_array, At: sp.csr_array, b: Floats, centre: Floats, pull: float
    ) -> None:
        self.p, self.A, self.At, self.b, self.centre, self.pull = program, A, At, b, centre, pull
        self.curvature = program.weight + pull
        self.base = (program.weight * program.target + pull * centre) / self.curvature
        self.squares = A.copy()
        self.squares.data = self.squares.data**2

    def point(self, multiplier: Floats) -> tuple[Floats, Floats, float, Floats]:
        """z before and after its bounds, the negative dual function, and its gradient ``A z - b``."""
        raw = self.base + (self.At @ multiplier) / self.curvature
        z = np.clip(raw, self.p.lower, self.p.upper)
        gap = np.asarray(self.A @ z - self.b)
        fit = 0.5 * float((self.p.weight * (z - self.p.target) ** 2).sum())
        near = 0.5 * self.pull * float(((z - self.centre) ** 2).sum())
        return raw, z, float(multiplier @ gap) - fit - near, gap

    def solve(self, multiplier: Floats, tolerance: float) -> tuple[Floats, Floats, float, int]:
        raw, z, value, gap = self.point(multiplier)
        first = float(np.linalg.norm(gap))
        taken = 0
        while taken < _NEWTON and np.abs(gap).max(initial=0.0) > tolerance:
            inside = (raw > self.p.lower) & (raw < self.p.upper)
            share = _RIDGE * min(1.0, float(np.linalg.norm(gap)) / first)
            direction = self._newton(np.where(inside, 1.0 / self.curvature, 0.0), gap, share)
            derivative = float(gap @ direction)
            length = 1.0
            while True:
                trial = self.point(multiplier + length * direction)
                if trial[2] <= value + _ARMIJO * length * derivative + 1e-12 * abs(value) or length < _LEAST_STEP:
                    break
                length /= 2
            multiplier = multiplier + length * direction
            raw, z, value, gap = trial
            taken += 1
        return multiplier, z, float(np.abs(gap).max(initial=0.0)), taken

    def _newton(self, active: Floats, gap: Floats, share: float) -> Floats:
        """Solve ``(A diag(active) A' + ridge) d = -gap`` to a share of the residual."""
        diagonal = np.asarray(self.squares @ active)
        live = diagonal[diagonal > 0]
        # Where all columns of a row are at their bounds the Hessian is zero: the ridge makes that a gradient step.
        ridge = share * float(np.median(live)) + 1e-12 * float(live.max()) if live.size else 1.0
        columns = np.flatnonzero(active)
        if 2 * columns.size < active.size:
            At, active = self.At[columns], active[columns]
            A = sp.csr_array(At.T)
        else:
            A, At = self.A, self.At
        return conjugate_gradients(
            lambda d: np.asarray(A @ (active * (At @ d))) + ridge * d, -gap, 1.0 / (diagonal + ridge), _INEXACT, _CG
        )
