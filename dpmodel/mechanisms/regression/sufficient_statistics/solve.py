"""Minimising a released quadratic under the public penalty and constraints: post-processing."""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg

from dpmodel._types import Floats
from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.compile.regression.domain import Domain
from dpmodel.compile.regression.penalty import Penalty

# Sets whose projection is a formula.
SIMPLE = ("free", "l1", "l2", "linf", "box", "simplex", "product")
# Beyond this many coefficients such sets are solved by projected steps, not by a conic solver.
_CONIC = 300


def solvable(model: PrivateRegression) -> bool:
    """Whether some way below serves this set and penalty."""
    return model.public is not None or _by_steps(model.domain, model.penalty)


def _by_steps(domain: Domain, penalty: Penalty) -> bool:
    return penalty.other is None and (domain.kind == "free" or not penalty.l1.any())


def minimise(model: PrivateRegression, P: Floats, q: Floats) -> Floats:
    """(p,) the coefficients where ``w'Pw - 2 q'w + penalty(w)`` is least over the set; P positive semidefinite."""
    domain, penalty = model.domain, model.penalty
    if domain.kind == "free" and penalty.smooth:
        return solve_normal(P + np.diag(penalty.ridge), q - penalty.linear / 2)
    steps = _by_steps(domain, penalty)
    if model.public is not None and not (steps and domain.kind in SIMPLE and model.size > _CONIC):
        return model.public.minimise_quadratic(P, q)
    return accelerated(domain, penalty, P, q)


def solve_normal(P: Floats, q: Floats) -> Floats:
    """(p,) solution of ``P w = q``, of least norm in scaled columns where P is singular."""
    scale = 1 / np.sqrt(np.maximum(np.diag(P), 1e-300 + 1e-14 * float(np.diag(P).max(initial=0.0))))
    H, h = P * np.outer(scale, scale), q * scale
    try:
        factor = scipy.linalg.cho_factor(H)
        if float(np.abs(np.diag(factor[0])).min(initial=math.inf)) > 1e-7:
            return np.asarray(scale * scipy.linalg.cho_solve(factor, h))
    except np.linalg.LinAlgError:
        pass
    return scale * (np.linalg.pinv(H, rcond=1e-12, hermitian=True) @ h)


def accelerated(
    domain: Domain, penalty: Penalty, P: Floats, q: Floats, steps: int = 5000, tolerance: float = 1e-9
) -> Floats:
    """Nesterov's proximal gradient with restarts, over ``domain.project`` or soft thresholding."""
    ridge = penalty.ridge
    top = float(np.linalg.eigvalsh(P + np.diag(ridge)).max(initial=0.0))
    step = 0.5 / max(top * (1 + 1e-9), 1e-300)
    w = domain.project(domain.center())
    ahead, momentum = w, 1.0
    for _ in range(steps):
        gradient = 2 * (P @ ahead + ridge * ahead - q) + penalty.linear
        moved = ahead - step * gradient
        new = domain.project(penalty.shrink(moved, step) if domain.kind == "free" else moved)
        if float((ahead - new) @ (new - w)) > 0:
            momentum = 1.0
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead, sensitivity = new + (momentum - 1) / following * (new - w), float(np.linalg.norm(new - w))
        w, momentum = new, following
        if sensitivity <= tolerance * (float(np.linalg.norm(w)) + 1e-300) and momentum > 2:
            break
    return w
