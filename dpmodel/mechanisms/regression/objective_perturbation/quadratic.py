"""A convex quadratic over a simple set or with an l1 term: its minimiser, to nearly the last digit.

For solvers that already hold the (p, p) Hessian: nothing here touches a record, and nothing here is relied upon for
privacy (what is found is certified elsewhere).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from dpmodel._types import Floats
from dpmodel.compile.regression.domain import Box, Domain, L1Ball, L2Ball, Product, Simplex

_STIFF = 10.0  # the multiplier method's penalty over a bound on the Hessian, in the end
_GROWTH = 10.0  # of that penalty in a round; soft at first, so that few kinks lie on the way of a step
_SOFT = 6  # rounds of growth
_ROUNDS = 30
_NEWTON = 30
_HALVINGS = 20


@dataclass(frozen=True)
class SimplePart:
    """``I(w)``: the indicator of a set whose projection is in closed form, or ``sum_j l1_j |w_j|``; never both."""

    domain: Domain
    l1: Floats  # (p,)

    def prox(self, x: Floats, step: float) -> Floats:
        """(p,) argmin over v of ``step I(v) + ||v - x||^2 / 2``."""
        if self.l1.any():
            return np.sign(x) * np.maximum(np.abs(x) - step * self.l1, 0.0)
        return self.domain.project(x)

    def value(self, w: Floats) -> float:
        """``I(w)`` for a point of the set."""
        return float(self.l1 @ np.abs(w))

    def bend(self, x: Floats, step: float) -> tuple[Floats, Floats]:
        """(p,) d and (p, k) U: ``diag(d) - U U'`` is a generalised derivative of ``prox(., step)`` at x."""
        if self.l1.any():
            return (np.abs(x) > step * self.l1).astype(np.float64), np.zeros((x.size, 0))
        return _bend(self.domain, x)


def _bend(domain: Domain, x: Floats) -> tuple[Floats, Floats]:
    none = np.zeros((x.size, 0))
    match domain:
        case Box():
            return ((x > domain.lower) & (x < domain.upper)).astype(np.float64), none
        case L2Ball():
            size = float(np.linalg.norm(x))
            if size <= domain.radius:
                return np.ones(x.size), none
            share = domain.radius / size
            return np.full(x.size, share), (np.sqrt(share) * x / size)[:, None]
        case L1Ball() | Simplex():
            v = domain.project(x)
            active = (v != 0).astype(np.float64)
            if isinstance(domain, L1Ball):
                inside = float(np.abs(x).sum()) <= domain.radius
            else:
                inside = domain.solid and float(np.maximum(x, 0.0).sum()) <= domain.total
            if inside or not active.any():
                return active if isinstance(domain, Simplex) else np.ones(x.size), none
            return active, (np.sign(v) / np.sqrt(active.sum()))[:, None]
        case Product():
            parts = [(start, *_bend(part, x[start : start + part.size])) for part, start in domain.parts]
            columns = np.zeros((x.size, sum(each.shape[1] for _, _, each in parts)))
            k = 0
            for start, d, each in parts:
                columns[start : start + d.size, k : k + each.shape[1]] = each
                k += each.shape[1]
            return np.concatenate([d for _, d, _ in parts]), columns
        case _:  # no set
            return np.ones(x.size), none


def minimise_quadratic(hessian: Floats, gradient: Floats, start: Floats, part: SimplePart, share: float) -> Floats:
    """(p,) near the minimiser v of ``<gradient, v - start> + (v - start)' hessian (v - start) / 2 + I(v)``.

    The method of multipliers with semismooth Newton steps (Li, Sun and Toh 2018, for the lasso): with ``x = v + u``,
    ``u = multiplier / rho``, every round minimises over v the smooth convex ``quadratic(v) + min_z (I(z) + rho
    ||x - z||^2 / 2)``, whose gradient is ``quadratic' + rho (x - prox(x))`` and whose Hessian ``hessian + rho (1 -
    prox')``, and puts ``u = x - prox(x)``. A round shrinks the multiplier's error by ``1 + rho / |hessian|`` at least
    where the prox is piecewise linear. Ends where what is left is below ``share`` of the way from ``start``, or
    ``share^2`` of v.

    Errors
        The last iterate where steps run out or rounding leaves no positive definite matrix.
    """
    most = _STIFF * float(np.abs(hessian).sum(axis=1).max())
    rho = most / _GROWTH**_SOFT
    v, u = start, -gradient / rho

    def value(v: Floats) -> float:
        move, x = v - start, v + u
        z = part.prox(x, 1 / rho)
        return float(gradient @ move + move @ (hessian @ move) / 2 + rho * (x - z) @ (x - z) / 2) + part.value(z)

    least, gap = max(share**2, 1e-17), math.inf
    z, scale = start, float(np.linalg.norm(gradient)) + 1e-300
    for k in range(_ROUNDS):
        best = value(v)
        for _ in range(_NEWTON):
            x = v + u
            derivative = gradient + hessian @ (v - start) + rho * (x - part.prox(x, 1 / rho))
            d, columns = part.bend(x, 1 / rho)
            matrix = hessian + rho * (columns @ columns.T)
            matrix[np.diag_indices_from(matrix)] += rho * (1 - d)
            move = solve_positive(matrix, -derivative)
            fall, length = float(derivative @ move), 1.0
            if not fall < 0:
                break
            for _ in range(_HALVINGS):
                now = value(v + length * move)
                if now <= best + 1e-4 * length * fall + 1e-15 * abs(best):
                    break
                length /= 2
            v, best = v + length * move, now
            # Quadratic convergence: after so short a step what is left is rounding.
            if np.abs(move).max() <= 1e-2 * share * np.abs(v - start).max() + max(1e-11, least) * np.abs(v).max():
                break
        x = v + u
        z = part.prox(x, 1 / rho)
        u, gap, before = x - z, float(np.abs(v - z).max()), gap
        if gap <= share * float(np.abs(z - start).max()) + least * float(np.abs(z).max()) or rho * gap <= 1e-17 * scale:
            break
        if before / 2 < gap <= 1e-12 * float(np.abs(z).max()):  # rounding
            break
        if k < _SOFT:
            rho, u = rho * _GROWTH, u / _GROWTH
    return z


def solve_positive(matrix: Floats, right: Floats) -> Floats:
    """(p,) by Cholesky; 0 where rounding leaves no positive definite matrix."""
    try:
        factor = scipy.linalg.cho_factor(matrix, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        return np.zeros_like(right)
    return np.asarray(scipy.linalg.cho_solve(factor, right, check_finite=False), dtype=np.float64)
