"""How far rows must give way so that noise on b and A cannot cut off (or let in) a point.

Row i of a noised program reads ``b_i + e_i - (A_i + N_i) x``. Given public bounds ``|e_i| <= tau_b[i]`` and
``|N_i x| <= tau_A[i]``, the noise in a cone's rows lies in the box of half-widths ``tau = tau_b + tau_A``, and
``margin`` finds t with ``box + t d`` inside the cone for its interior direction d. Relaxing by ``+t d`` then keeps
every truly feasible point; tightening by ``-t d`` makes every point that satisfies the noised row satisfy the
true one. Both follow from the cone being closed under addition.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from dpmodel._types import Floats
from dpmodel.compile.affine_map import AffineMap
from dpmodel.numerics.array_program import ConeBlock


def interior_direction(affine: AffineMap) -> Floats:
    """(m,) a direction inside every cone: 1 for linear rows, the axis of second-order cones, the identity for
    semidefinite ones, (-1, 1, 1) for exponential and (1, 1, 0) for power cones. For zero-cone rows 1, the
    direction in which their band grows."""
    direction = np.ones(affine.rows)
    for block in affine.cones:
        if block.kind == "soc":
            direction[block.rows] = 0.0
            direction[block.start + np.r_[0, np.cumsum(block.sizes)[:-1]].astype(np.int64)] = 1.0
        elif block.kind == "psd":
            direction[block.rows] = np.concatenate([np.eye(_side(size)).ravel() for size in block.sizes])
        elif block.kind == "exp":
            direction[block.rows] = np.tile([-1.0, 1.0, 1.0], len(block.sizes))
        elif block.kind == "pow3d":
            direction[block.rows] = np.tile([1.0, 1.0, 0.0], len(block.sizes))
    return direction


def giving_way(affine: AffineMap, private: npt.NDArray[np.bool_]) -> Floats:
    """(m,) interior directions of the ``private`` rows (m,), 0 elsewhere. A cone gives way as a whole: its axis may lie
    in a row that is itself public."""
    moves = private.copy()
    for block in affine.cones:
        if block.kind not in ("zero", "nonneg") and private[block.rows].any():
            moves[block.rows] = True
    return np.where(moves, interior_direction(affine), 0.0)


def margin(affine: AffineMap, tau: Floats) -> Floats:
    """(m,) multiples t of the interior direction that cover the box of half-widths ``tau`` (m,), cone by cone.

    The same number in all rows of a cone, 0 where no row of the cone is noised.

    Second-order: ``t - tau_0 >= ||tau_rest||_2``. Semidefinite: ``t >= ||box||_F >= spectral norm``. Exponential and
    power cones: the worst corner is checked and the least t found by bisection on it.
    """
    t = np.zeros(affine.rows)
    for block in affine.cones:
        part = tau[block.rows]
        if not part.any():
            continue
        if block.kind in ("zero", "nonneg"):
            t[block.rows] = part
            continue
        starts = np.r_[0, np.cumsum(block.sizes)[:-1]].astype(np.int64)
        if block.kind == "soc":
            squares = np.add.reduceat(part**2, starts)
            heads = part[starts]
            tails = np.sqrt(np.maximum(squares - heads**2, 0.0)) * (1 + 1e-12)
            per_cone = heads + tails
        elif block.kind == "psd":
            per_cone = np.array([_spectral(part[s : s + size]) for s, size in zip(starts, block.sizes, strict=True)])
        else:
            per_cone = np.array([_triple(block, number, part[s : s + 3]) for number, s in enumerate(starts)])
        t[block.rows] = np.repeat(per_cone, block.sizes)
    return t


def shortfalls(affine: AffineMap, gap: Floats) -> Floats:
    """(m,) least t >= 0 with ``gap + t d`` in each cone, d its interior direction; the same number in all its rows. For
    zero cones the absolute gap.

    Second-order: ``||tail|| - head``. Semidefinite: minus the least eigenvalue. Exponential and power cones: bisection,
    rounded up.
    """
    t = np.zeros(affine.rows)
    for block in affine.cones:
        part = gap[block.rows]
        if block.kind in ("zero", "nonneg"):
            t[block.rows] = np.abs(part) if block.kind == "zero" else np.maximum(-part, 0.0)
            continue
        starts = np.r_[0, np.cumsum(block.sizes)[:-1]].astype(np.int64)
        if block.kind == "soc":
            tails = part.copy()
            tails[starts] = 0.0
            per_cone = np.sqrt(np.add.reduceat(tails**2, starts)) - part[starts]
        elif block.kind == "psd":
            pairs = zip(starts, block.sizes, strict=True)
            squares = [part[s : s + size].reshape(_side(size), -1) for s, size in pairs]
            per_cone = np.array([-float(np.linalg.eigvalsh((each + each.T) / 2)[0]) for each in squares])
        else:
            per_cone = _steps_inside(block, part.reshape(-1, 3))
        t[block.rows] = np.repeat(np.maximum(per_cone, 0.0), block.sizes)
    return t


def _steps_inside(block: ConeBlock, points: Floats) -> Floats:
    """(k,) least t with ``point + t d`` in each of k three-dimensional cones, by bisection, rounded up."""
    direction = np.array([-1.0, 1.0, 1.0]) if block.kind == "exp" else np.array([1.0, 1.0, 0.0])
    alphas = np.asarray(block.alphas) if block.kind == "pow3d" else np.zeros(len(points))

    def inside(t: Floats) -> npt.NDArray[np.bool_]:
        x, y, z = (points + t[:, None] * direction).T
        with np.errstate(all="ignore"):
            if block.kind == "exp":
                curved = (y > 0) & (y * np.exp(np.minimum(x / y, 700.0)) <= z)
                return np.asarray(curved | ((y == 0) & (x <= 0) & (z >= 0)))
            return np.asarray((x >= 0) & (y >= 0) & (x**alphas * y ** (1 - alphas) >= np.abs(z)))

    low, high = np.zeros(len(points)), np.abs(points).max(axis=1, initial=0.0) + 1e-12
    while not inside(high).all() and float(high.max(initial=0.0)) < 1e300:
        high = np.where(inside(high), high, 2 * high)
    high = np.where(inside(low), 0.0, high)
    for _ in range(80):
        middle = (low + high) / 2
        low, high = np.where(inside(middle), low, middle), np.where(inside(middle), middle, high)
    return high


def _side(size: int) -> int:
    return math.isqrt(size)


def _spectral(tau: Floats) -> float:
    """Largest spectral norm of a symmetric matrix with entries bounded by tau: that of the bounds themselves."""
    side = _side(tau.size)
    square = tau.reshape(side, side)
    return float(np.linalg.eigvalsh((square + square.T) / 2)[-1]) * (1 + 1e-9)


def _triple(block: ConeBlock, number: int, tau: Floats) -> float:
    """Least t such that the whole box plus t d lies in a three-dimensional cone."""
    if not tau.any():
        return 0.0
    scale = float(tau.max())
    a, b, c = tau / scale

    def slack(t: float) -> float:
        if block.kind == "exp":
            # y e^(x/y) <= z: worst at the largest x, and at the largest y when x <= 0 (it grows with y then).
            if t <= a or t <= b:
                return -1.0
            y = t + b
            return float((t - c) - y * np.exp((a - t) / y))
        alpha = block.alphas[number]
        if t <= a or t <= b:
            return -1.0
        return float((t - a) ** alpha * (t - b) ** (1 - alpha) - c)

    high = 1.0
    while slack(high) < 0:
        high *= 2
        if high > 1e6:
            return float("inf")
    low = max(a, b)
    root = high if slack(low) >= 0 else brentq(slack, low, high, xtol=1e-12)
    root = float(root) * (1 + 1e-9) + 1e-12
    # The bracket's end is on the right side even if the root is off by the tolerance.
    return scale * (root if slack(root) >= 0 else high)
