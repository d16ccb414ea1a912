"""Euclidean projection onto a public cone ``{y : B y >= 0}``, and onto its part inside the unit ball."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import nnls

from dpmodel._types import Floats

# Points whose rows reach this multiple of their norm below zero count as inside.
_INSIDE = 1e-13
_POLISH = 3

Projector = Callable[[Floats], Floats]


def projector(cone_rows: Floats) -> Projector:
    """The map ``(D,) -> (D,)`` onto ``{y : B y >= 0}``; looks at the rows once. See ``project``."""
    B = np.asarray(cone_rows, dtype=np.float64)
    norms = np.linalg.norm(B, axis=1)
    B = B[norms > 0] / norms[norms > 0, None]
    if B.shape[0] == 0:
        return lambda y: np.array(y, dtype=np.float64)
    if ((B != 0).sum(axis=1) == 1).all():
        lower = np.where((B > 0).any(axis=0), 0.0, -np.inf)
        upper = np.where((B < 0).any(axis=0), 0.0, np.inf)
        return lambda y: np.clip(y, lower, upper)
    return lambda y: _onto(B, np.asarray(y, dtype=np.float64))


def project(cone_rows: Floats, y: Floats) -> Floats:
    """The nearest point of ``{y : B y >= 0}``.

    Parameters
    ----------
    cone_rows : (k, D) B; zero rows count for nothing, k = 0 is the whole space.
    y : (D,).

    Returns
    -------
    p : (D,) a new array with ``B p >= -1e-12 ||y||`` for unit rows; coordinate rows hold exactly. A point with
        ``B y >= -1e-13 ||y||`` is returned as it is, so that projecting twice is projecting once.

    The Karush-Kuhn-Tucker conditions of ``min ||p - y||^2 / 2`` say ``p = y + B'l``, where ``l >= 0`` minimises
    ``||B'l + y||``: clipping for coordinate rows, else non-negative least squares (Lawson and Hanson 1974).
    """
    return projector(cone_rows)(y)


def into_ball(point: Floats) -> Floats:
    """(D,) a cone point scaled to norm 1 at most.

    After a projection onto a cone this is the projection onto the cone's part in the unit ball: for the nearest cone
    point p of y, ``<y - p, p> = 0`` and ``<y - p, q> <= 0`` on the cone, so ``<y - p/||p||, q - p/||p||> <= (||p|| - 1)
    (<p/||p||, q> - 1) <= 0`` for cone points q of norm 1 at most where ``||p|| > 1``.
    """
    return np.asarray(point / max(1.0, float(np.linalg.norm(point))))


def _onto(B: Floats, y: Floats) -> Floats:
    size = float(np.linalg.norm(y))
    p = y / size if size > 0 else y.copy()
    if not size or (B @ p).min() >= -_INSIDE:
        return y.copy()
    for _ in range(_POLISH):  # rounding of the first solve is mended by the next, which starts next to the cone
        multipliers = np.asarray(nnls(B.T, -p, maxiter=30 * sum(B.shape))[0], dtype=np.float64)
        p = p + B.T @ multipliers
        left = float(np.linalg.norm(p))
        if left <= 1e-12:  # what rounding leaves of the apex
            return np.zeros_like(y)
        if (B @ p).min() >= -_INSIDE * left / 2:
            return p * size
    return p * size if (B @ p).min() >= -1e-12 else np.zeros_like(y)
