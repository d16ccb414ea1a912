"""Least squares under equalities, factorised once: the x-updates of the ADMM, and its last step to a feasible point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla

from dpmodel._types import Floats
from dpmodel.released.form import LikelihoodForm

Map = Callable[[Floats], Floats]
Repair = Callable[[Floats], Floats | None]


class InconsistentEqualities(Exception):
    """No x satisfies E x = e."""


def x_update(K: sp.csr_array, equality: sp.csr_array, value: Floats) -> Map:
    """q -> argmin over E x = e of 1/2 x'K x - q'x, K positive definite: sparse factors of ``[[K, E'], [E, -delta I]]``
    (symmetric ordering, no pivoting: the matrix is quasi-definite).

    Further rounds are of the proximal method of multipliers, which takes the effect of delta away: three leave about
    delta^3 of the multipliers. Redundant rows of E are harmless; a smaller delta would magnify what rounding leaves of
    them. Errors: InconsistentEqualities.
    """
    delta, scale, n = 1e-5, float(K.diagonal().mean()), K.shape[0]
    norms = np.sqrt(np.asarray(equality.power(2).sum(axis=1)).ravel())
    norms[norms == 0] = 1.0
    E, right = sp.csr_array(sp.diags_array(1 / norms) @ equality), value / norms
    blocks = [[K / scale, E.T], [E, -delta * sp.eye_array(E.shape[0])]] if E.shape[0] else [[K / scale]]
    system = sp.csc_array(sp.block_array(blocks))
    factors = spla.splu(system, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})

    def solve(q: Floats) -> Floats:
        multiplier = np.zeros(right.size)
        for _ in range(3 if right.size else 1):
            found = factors.solve(np.concatenate([q / scale, right - delta * multiplier]))
            multiplier = found[n:]
        return np.asarray(found[:n])

    x = solve(np.zeros(n))
    residual = float(np.abs(E @ x - right).max(initial=0.0))
    size = max(float(np.abs(right).max(initial=0.0)), float((abs(E) @ np.abs(x)).max(initial=0.0)))
    if residual > 1e-7 * size:
        raise InconsistentEqualities
    return solve


# ------------------------------------------------------------------ the last step
def nearest_point(project: Map, weight: Floats, lower: Floats, upper: Floats) -> Repair:
    """start -> the point of {z : E z = e, lower <= z <= upper} nearest to it in the norm ``sum weight_j z_j^2``, of
    which ``project`` is the projection onto {E z = e}; None where none was found that keeps the equalities to 1e-8 of
    its largest entry.

    Semismooth Newton on the dual: the point is z(c) = clip(start + c), with c in W^-1 range(E') such that z(c)
    keeps the equalities. One step solves Q D d = Q(project(z) - z) by conjugate gradients, D marking entries
    strictly inside their bounds and Q the projection onto that range, and is shortened until the dual objective
    rises. From a point that ADMM has nearly finished it takes a few steps.
    """

    def direction(inside: Any, move: Floats, base: Floats) -> Floats:
        """d in the range of Q with Q D d = move, roughly."""
        d, r = np.zeros(move.size), move.copy()
        s, rr = r.copy(), float((weight * r) @ r)
        goal = 1e-8 * rr
        for _ in range(200):
            held = np.where(inside, s, 0.0)
            image = held - (project(held) - base)
            image += 1e-9 * s
            curve = float((weight * s) @ image)
            if curve <= 1e-300:
                break
            step = rr / curve
            d += step * s
            r -= step * image
            new = float((weight * r) @ r)
            if new <= goal:
                break
            s = r + (new / rr) * s
            rr = new
        return d

    def nearest(start: Floats) -> Floats | None:
        base = project(np.zeros(start.size))
        flat = project(start)  # some point that keeps the equalities
        c, z = np.zeros(start.size), np.clip(start, lower, upper)
        size = max(float(np.abs(start).max(initial=0.0)), float(np.abs(base).max(initial=0.0)), 1e-300)
        best, least = z, np.inf

        def dual(c: Floats, z: Floats) -> float:
            """min over the box of 1/2 |z - start|^2 - <c, z - flat>, at its minimiser z."""
            away = z - start
            return float(weight @ (0.5 * away * away - c * (z - flat)))

        value = dual(c, z)
        for _ in range(60):
            move = project(z) - z
            far = float(np.abs(move).max(initial=0.0))
            if far < least:
                best, least = z, far
            if far <= 1e-11 * size:
                break
            d = direction((start + c > lower) & (start + c < upper), move, base)
            gain, length = float((weight * d) @ move), 1.0
            while True:
                trial = np.clip(start + c + length * d, lower, upper)
                new = dual(c + length * d, trial)
                if new >= value + 1e-4 * length * gain - 1e-13 * abs(value) or length < 1e-6:
                    break
                length /= 2
            c, z, value = c + length * d, trial, new
        return best if least <= 1e-8 * max(float(np.abs(best).max(initial=0.0)), 1e-300) else None

    return nearest


def repairer(form: LikelihoodForm) -> Repair:
    """The last step: to the nearest feasible point. Inequalities get slack variables."""
    E, G, n, q = form.equality, form.inequality, form.size, form.inequality.shape[0]
    if not E.shape[0] and not q:
        return lambda x: np.clip(x, form.lower, form.upper)
    if not np.isfinite(form.lower).any() and not np.isfinite(form.upper).any() and not q:
        return lambda x: x
    norms = np.sqrt(np.asarray(G.power(2).sum(axis=1)).ravel()) if q else np.zeros(0)
    norms[norms == 0] = 1.0
    scaled = sp.diags_array(1 / norms) @ G if q else G
    rows = sp.csr_array(sp.block_array([[E, None], [scaled, sp.eye_array(q)]])) if q else E
    value = np.concatenate([form.equality_value, form.inequality_value / norms])
    onto: list[Map] = []

    def project(z: Floats) -> Floats:
        if not onto:  # few problems need it
            onto.append(x_update(sp.eye_array(n + q, format="csr"), rows, value))
        return onto[0](z)

    lower = np.concatenate([form.lower, np.zeros(q)])
    nearest = nearest_point(project, np.ones(n + q), lower, np.concatenate([form.upper, np.full(q, np.inf)]))

    def repair(x: Floats) -> Floats | None:
        found = nearest(np.concatenate([x, value[E.shape[0] :] - scaled @ x]) if q else x)
        return None if found is None else found[:n]

    return repair
