"""What the noise may do to rows, and how far rows give way: public bounds, cone by cone."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpmodel._types import Floats
from dpmodel.compile.affine_map import AffineMap
from dpmodel.numerics.array_program import ConeBlock
from dpmodel.programs.model import Program
from dpmodel.programs.noise_design import NoiseDesign, box_reach, private_columns, row_reach, row_tails


@dataclass(frozen=True)
class RowMargins:
    """Public bounds on what the noise does to the rows (m,), along the interior direction (the same number in all rows
    of a cone): ``one`` at any fixed point, so that rows made easier by it keep every truly feasible one; ``all`` at
    every point at once, so at one that was chosen after the noise."""

    one: Floats
    all: Floats


def row_margins(model: Program, noise: NoiseDesign) -> RowMargins:
    """What the noise on b and A can do to each row, and how far to relax."""
    fixed = uniform = reach_on_b(model, noise)
    if "matrix" in noise.parts:
        # Box: the largest noise times the public size of x; it serves one x and all. The rows' own way where it is
        # better, which the design decided.
        part = noise.parts["matrix"]
        for_one, for_all = (None if part.clip else row_reach(model, part)) or (box_reach(model, part.reach),) * 2
        fixed, uniform = fixed + for_one, uniform + for_all
    return RowMargins(margin(model.affine, fixed), margin(model.affine, uniform))


def reach_at(model: Program, noise: NoiseDesign, x: Floats) -> Floats:
    """(m,) the bounds of ``RowMargins.all`` before cones are looked at, at the point ``x`` (n,): they hold for all
    points at once, so for one that was chosen after the noise."""
    reach = reach_on_b(model, noise)
    if "matrix" not in noise.parts:
        return reach
    part = noise.parts["matrix"]
    # The rows' own way where the design decided that it is better, and where entries do not mix what was measured.
    tails = None if part.clip else row_tails(model, part, float(np.linalg.norm(x[private_columns(model)])))
    return reach + (model.form.sums_over_rows(part.reach, np.abs(x)) if tails is None else tails[1])


def reach_on_b(model: Program, noise: NoiseDesign) -> Floats:
    """(m,) bounds on the noise on b, on both sides."""
    reach = np.zeros(model.affine.rows)
    if "scalar" in noise.parts:
        reach[noise.parts["scalar"].measurement.positions] = noise.parts["scalar"].reach
    return reach


# ------------------------------------------------------------------ how far rows give way
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
            direction[block.rows] = np.concatenate([np.eye(math.isqrt(size)).ravel() for size in block.sizes])
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

    Second-order: ``t - tau_0 >= ||tau_rest||_2``. Semidefinite: the largest spectral norm of a symmetric matrix in the
    box, which is that of the bounds themselves. Exponential and power cones: the worst corner, since the box is their
    hull and the cone convex.
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
            per_cone = _largest_eigenvalues(block, part) * (1 + 1e-9)
        else:
            corners = part.reshape(-1, 1, 3) * np.array([*itertools.product((-1.0, 1.0), repeat=3)])
            per_cone = _steps_inside(block, corners).max(axis=1) * (1 + 1e-9)
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
            per_cone = _largest_eigenvalues(block, -part)
        else:
            per_cone = _steps_inside(block, part.reshape(-1, 1, 3))[:, 0]
        t[block.rows] = np.repeat(np.maximum(per_cone, 0.0), block.sizes)
    return t


def _largest_eigenvalues(block: ConeBlock, part: Floats) -> Floats:
    """(k,) largest eigenvalue of (the symmetric part of) each of the k matrices in the rows of a semidefinite block."""
    squares = [each.reshape(math.isqrt(each.size), -1) for each in np.split(part, np.cumsum(block.sizes)[:-1])]
    return np.array([np.linalg.eigvalsh((each + each.T) / 2)[-1] for each in squares])


def _steps_inside(block: ConeBlock, points: Floats) -> Floats:
    """(k, p) least t with ``point + t d`` in each of k three-dimensional cones, for p points each (k, p, 3), by
    bisection, rounded up."""
    direction = np.array([-1.0, 1.0, 1.0]) if block.kind == "exp" else np.array([1.0, 1.0, 0.0])
    alphas = np.asarray(block.alphas)[:, None]

    def inside(t: Floats) -> npt.NDArray[np.bool_]:
        x, y, z = np.moveaxis(points + t[..., None] * direction, -1, 0)
        with np.errstate(all="ignore"):
            if block.kind == "exp":
                curved = (y > 0) & (y * np.exp(np.minimum(x / y, 700.0)) <= z)
                return np.asarray(curved | ((y == 0) & (x <= 0) & (z >= 0)))
            return np.asarray((x >= 0) & (y >= 0) & (x**alphas * y ** (1 - alphas) >= np.abs(z)))

    low, high = np.zeros(points.shape[:2]), np.abs(points).max(axis=-1, initial=0.0) + 1e-12
    while not inside(high).all() and float(high.max(initial=0.0)) < 1e300:
        high = np.where(inside(high), high, 2 * high)
    high = np.where(inside(low), 0.0, high)
    for _ in range(80):
        middle = (low + high) / 2
        low, high = np.where(inside(middle), low, middle), np.where(inside(middle), middle, high)
    return high
