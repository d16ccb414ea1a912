"""Least squares under equalities, factorised once: the x-updates of the ADMM, and its last step to a feasible point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg as sla
import scipy.sparse as sp
import scipy.sparse.linalg as spla

from dpmodel._types import Floats
from dpmodel.released.form import LikelihoodForm

Map = Callable[[Floats], Floats]
Repair = Callable[[Floats], Floats | None]

DENSE = 2500  # columns (or equalities) up to which a dense factorisation is used
GRAM = 1500  # equalities up to which their Gram matrix is dense, where K is diagonal


class InconsistentEqualities(Exception):
    """No x satisfies E x = e."""


def x_update(B: sp.csr_array, equality: sp.csr_array, value: Floats, p: Floats) -> Map:
    """q -> argmin over E x = e of 1/2 x'K x - q'x with K = A'diag(p)A and A = [I; B]: the cheapest of four for these
    sizes and penalty weights, (m,). Errors: InconsistentEqualities."""
    n = B.shape[1]
    if np.all(np.diff(B.indptr) <= 1):
        return diagonal_update(p[:n] + np.asarray(B.power(2).T @ p[n:]), equality, value)
    if n <= DENSE and (n <= 300 or B.nnz > 20 * n) and value.size <= DENSE:
        dense = B.toarray() * np.sqrt(p[n:])[:, None]
        return dense_update(dense.T @ dense + np.diag(p[:n]), equality, value)
    K = sp.csr_array(B.T @ sp.csr_array(sp.diags_array(p[n:]) @ B) + sp.diags_array(p[:n]))
    return sparse_update(K, equality, value)


def diagonal_update(diagonal: Floats, equality: sp.csr_array, value: Floats) -> Map:
    """K diagonal: ``x = v - K^-1 E'(E K^-1 E')^+ (E v - e)`` with v = K^-1 q, the projection onto {E x = e} in the
    norm of K. Few rows of many entries: by the Gram matrix's pseudo-inverse, which is dense (p, p) and drops redundant
    rows. Errors: InconsistentEqualities."""
    rows = value.size
    if not rows:
        return lambda q: q / diagonal
    if not (rows <= min(100, GRAM) or (rows <= GRAM and equality.nnz >= 30 * rows)):
        return sparse_update(sp.csr_array(sp.diags_array(diagonal)), equality, value)
    E = sp.csr_array(equality)
    per_column = np.bincount(E.indices, minlength=E.shape[1]).astype(float)
    gram: Floats
    if per_column @ per_column <= 2e8:
        gram = (E @ sp.diags_array(1 / diagonal) @ E.T).toarray()
    else:
        gram, columns = np.zeros((rows, rows)), sp.csc_array(E)
        for start in range(0, E.shape[1], 8192):
            block = columns[:, start : start + 8192].toarray() / np.sqrt(diagonal[start : start + 8192])
            gram += block @ block.T
    inverse, transposed = _pseudo_inverse(gram), sp.csr_array(E.T)

    def solve(q: Floats) -> Floats:
        v = q / diagonal
        v -= (transposed @ (inverse @ (E @ v - value))) / diagonal
        return v

    _check_equalities(E, value, solve(np.zeros(diagonal.size)))
    return solve


def dense_update(K: Floats, equality: sp.csr_array, value: Floats) -> Map:
    """``x = X q + x0``: the explicit inverse on the equalities, one product with an (n, n) matrix per step.
    Errors: InconsistentEqualities."""
    # K is positive definite; potri halves the work of a general inverse.
    scale = float(np.mean(np.diag(K)))
    factor, failed = sla.lapack.dpotrf(K / scale, lower=1)
    if failed:
        raise np.linalg.LinAlgError("the matrix of the x-update is not positive definite")
    half, _ = sla.lapack.dpotri(factor, lower=1)
    inverse: Floats = (np.tril(half) + np.tril(half, -1).T) / scale
    start = np.zeros(K.shape[0])
    if equality.shape[0]:
        Y: Floats = np.asarray((equality @ inverse).T)
        pinv = _pseudo_inverse(equality @ Y)
        start = Y @ (pinv @ value)
        start += Y @ (pinv @ (value - equality @ start))
        inverse = inverse - Y @ pinv @ Y.T
        _check_equalities(equality, value, start)
    return lambda q: np.asarray(inverse @ q + start)


def sparse_update(K: sp.csr_array, equality: sp.csr_array, value: Floats) -> Map:
    """Sparse factors of ``[[K, E'], [E, -delta I]]`` (symmetric ordering, no pivoting: the matrix is quasi-definite).

    A second round is one of the proximal method of multipliers, which takes the effect of delta away: two leave about
    delta^2 of the multipliers. Redundant rows of E are harmless. Errors: InconsistentEqualities.
    """
    delta, scale, n = 1e-8, float(K.diagonal().mean()), K.shape[0]
    norms = np.sqrt(np.asarray(equality.power(2).sum(axis=1)).ravel())
    norms[norms == 0] = 1.0
    E, right = sp.csr_array(sp.diags_array(1 / norms) @ equality), value / norms
    blocks = [[K / scale, E.T], [E, -delta * sp.eye_array(E.shape[0])]] if E.shape[0] else [[K / scale]]
    system = sp.csc_array(sp.block_array(blocks))
    factors = spla.splu(system, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})

    def solve(q: Floats) -> Floats:
        multiplier = np.zeros(right.size)
        for _ in range(2 if right.size else 1):
            found = factors.solve(np.concatenate([q / scale, right - delta * multiplier]))
            multiplier = found[n:]
        return np.asarray(found[:n])

    _check_equalities(E, right, solve(np.zeros(n)))
    return solve


def _pseudo_inverse(gram: Floats) -> Floats:
    """Of a positive semidefinite matrix; rows with a relative eigenvalue below 1e-11 are redundant."""
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    keep = values > 1e-11 * max(float(values.max(initial=0.0)), np.finfo(float).tiny)
    inverse: Floats = (vectors[:, keep] / values[keep]) @ vectors[:, keep].T
    return inverse


def _check_equalities(equality: sp.csr_array, value: Floats, x: Floats) -> None:
    """Errors: InconsistentEqualities, if x, which satisfies them as well as possible, does not."""
    residual = float(np.abs(equality @ x - value).max(initial=0.0))
    size = max(float(np.abs(value).max(initial=0.0)), float((abs(equality) @ np.abs(x)).max(initial=0.0)))
    if residual > 1e-7 * size:
        raise InconsistentEqualities


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
            onto.append(diagonal_update(np.ones(n + q), rows, value))
        return onto[0](z)

    lower = np.concatenate([form.lower, np.zeros(q)])
    nearest = nearest_point(project, np.ones(n + q), lower, np.concatenate([form.upper, np.full(q, np.inf)]))

    def repair(x: Floats) -> Floats | None:
        found = nearest(np.concatenate([x, value[E.shape[0] :] - scaled @ x]) if q else x)
        return None if found is None else found[:n]

    return repair
