"""What the noise may do to rows, and how far rows give way: public bounds, cone by cone."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.stats import binom

from dpmodel._types import Floats
from dpmodel.compile.affine_map import AffineMap
from dpmodel.numerics.array_program import ConeBlock
from dpmodel.privacy import Gaussian, Laplace, public_generator
from dpmodel.programs.model import Program
from dpmodel.programs.noise_design import (
    NoiseDesign,
    NoisyPart,
    box_reach,
    curved_rows,
    private_columns,
    row_reach,
    row_tails,
)

# Draws that set the shape of a simulation, those that it looks for beyond its quantile, the least of these, and what
# all may cost in multiplications; steps of a bisection, and numbers that are held at once.
_PILOT, _BEYOND, _LEAST_BEYOND, _WORK, _BISECTION, _BLOCK = 100, 200, 15, 2e8, 160, 2_000_000


@dataclass(frozen=True)
class RowMargins:
    """Public bounds on what the noise does to the rows (m,), along the interior direction (the same number in all rows
    of a cone): ``one`` at any fixed point, so that rows made easier by it keep every truly feasible one; ``all`` at
    every point at once, so at one that was chosen after the noise."""

    one: Floats
    all: Floats


def row_margins(model: Program, noise: NoiseDesign) -> RowMargins:
    """What the noise on b and A can do to each row, and how far to relax."""
    fixed = uniform = np.zeros(model.affine.rows)
    if "matrix" in noise.parts:
        # Box: the largest noise times the public size of x; it serves one x and all. The rows' own way where it is
        # better, which the design decided.
        part = noise.parts["matrix"]
        for_one, for_all = (None if part.clip else row_reach(model, part)) or (box_reach(model, part.reach),) * 2
        fixed, uniform = fixed + for_one, uniform + for_all
    on_b = simulated_margins(model, noise, sides=2)
    if on_b is not None:
        return RowMargins(on_b + margin(model.affine, fixed), on_b + margin(model.affine, uniform))
    on_b = reach_on_b(model, noise)
    return RowMargins(margin(model.affine, on_b + fixed), margin(model.affine, on_b + uniform))


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


def simulated_margins(model: Program, noise: NoiseDesign, sides: Literal[1, 2]) -> Floats | None:
    """(m,) multiples t of the interior direction d that cover the noise on b in all rows at once, except with
    the part's beta; None where no private side lies in another cone than inequalities and equations, or the box of
    ``margin`` is as good.

    The noise e on b has a public law. ``T_c`` is the least t with ``e + t d`` in cone c, or with both ``e + t d`` and
    ``t d - e`` in it (``sides`` 2); in a linear row the noise itself, or its size. A cone is closed under addition, so
    with t >= T_c a gap that lies in it does so after ``e + t d`` is added to it. Second-order: ``||tail|| - head``
    (with both sides ``||tail|| + |head|``); semidefinite: minus the least eigenvalue (the spectral norm); others:
    bisection, rounded up. ``t = q u`` for a public shape u, with q a bound on the quantile of ``max_c T_c / u_c`` that
    is found as for sums of draws (``inwards.py``, which has the proof: simulated, with a binomial margin that is part
    of beta). The shape is the mean and three deviations of T in a few draws of their own. One side is enough where rows
    are made harder: the law is symmetric.
    """
    part = noise.parts.get("scalar")
    if part is None or part.clip or not isinstance(part.distribution, Laplace | Gaussian):
        return None
    curved = curved_rows(model)
    if not curved[part.measurement.positions].any():
        return None
    reach = reach_on_b(model, noise)
    m, law = part.measurement, part.distribution
    unit = np.where(curved, 0.0, reach / law.scale)
    key = "cones", sides, type(law), part.beta, unit.tobytes(), contents(m.recover)
    found = model.cached(key, lambda: _quantile(model, part, unit, sides))
    box = margin(model.affine, reach)
    if found is None or found[curved].sum() * law.scale >= box[curved].sum():
        return None
    return np.asarray(found * law.scale)


def mean_shortfalls(model: Program, noise: NoiseDesign) -> Floats | None:
    """(m,) mean of ``T_c`` above 0 in cones (``simulated_margins``, one side), 0 elsewhere: an estimate; None without
    noise on b in cones."""
    part = noise.parts.get("scalar")
    curved = curved_rows(model)
    if part is None or part.distribution is None or not curved[part.measurement.positions].any():
        return None
    m = part.measurement
    key = "mean in cones", type(part.distribution), contents(m.recover)
    found = model.cached(key, lambda: np.maximum(_shortfalls(model, part, _PILOT, 1), 0.0).mean(axis=1))
    return np.asarray(np.where(curved, found, 0.0) * part.distribution.scale)


def _quantile(model: Program, part: NoisyPart, unit: Floats, sides: Literal[1, 2]) -> Floats | None:
    """(m,) t of ``simulated_margins`` for noise of scale 1; ``unit`` : the shape of linear rows. None where it would be
    too much work."""
    first = _shortfalls(model, part, _PILOT, sides)
    shape = np.where(unit > 0, unit, first.mean(axis=1) + 3 * first.std(axis=1))
    noised = shape > 0
    work = part.measurement.recover.nnz + sum(s**1.5 for b in model.affine.cones if b.kind == "psd" for s in b.sizes)
    work += sum(_BISECTION * b.size for b in model.affine.cones if b.kind in ("exp", "pow3d"))
    draws = int(min(_BEYOND / part.beta, _WORK / work))
    place = place_of(draws, part.beta)
    if draws * part.beta < _LEAST_BEYOND or place >= draws:
        return None
    found, step = [], max(_BLOCK // model.affine.rows, 1)
    for start in range(0, draws, step):
        drawn = _shortfalls(model, part, min(step, draws - start), sides, seed=1 + start)[noised]
        found.append((drawn / shape[noised, None]).max(axis=0))
    return shape * float(np.partition(np.concatenate(found), place)[place])


def contents(matrix: sp.csr_array) -> tuple[Any, ...]:
    """All that a sparse matrix holds, for the key of a cache."""
    return matrix.shape, *(each.tobytes() for each in (matrix.data, matrix.indices, matrix.indptr))


def place_of(draws: int, beta: float) -> int:
    """k - 1 of the docstring of ``inwards.py``: where the quantile stands among so many draws, in order; ``draws``, if
    none will do."""
    return int(binom.isf(beta / 1000, draws, 1 - (beta - beta / 1000)))


def _shortfalls(model: Program, part: NoisyPart, draws: int, sides: int, seed: int = 0) -> Floats:
    """(m, draws) ``T`` of ``simulated_margins`` in every row under noise of scale 1."""
    law: Laplace | Gaussian = Gaussian(1.0) if "gaussian" in getattr(part.distribution, "name", "") else Laplace(1.0)
    m = part.measurement
    noise: Floats = np.zeros((model.affine.rows, draws))
    noise[m.positions] = m.recover @ law.sample((m.recover.shape[1], draws), public_generator(seed))
    out = np.zeros_like(noise)
    for block in model.affine.cones:
        e = noise[block.rows]
        if not e.any():
            continue
        if block.kind in ("zero", "nonneg"):
            out[block.rows] = np.abs(e) if sides == 2 or block.kind == "zero" else e
            continue
        out[block.rows] = np.repeat(_outside(block, e, sides), block.sizes, axis=0)
    return out


def _outside(block: ConeBlock, points: Floats, sides: int) -> Floats:
    """(k, draws) least t with ``point + t d``, and with 2 ``sides`` also ``t d - point``, in each of the k cones of a
    block, for ``points`` (rows, draws)."""
    starts = np.r_[0, np.cumsum(block.sizes)[:-1]].astype(np.int64)
    if block.kind == "soc":
        squares = np.add.reduceat(points**2, starts, axis=0) - points[starts] ** 2
        heads = np.abs(points[starts]) if sides == 2 else -points[starts]
        return np.asarray(np.sqrt(np.maximum(squares, 0.0)) * (1 + 1e-12) + heads)
    if block.kind == "psd":
        least = []
        for start, size in zip(starts, block.sizes, strict=True):
            side = math.isqrt(size)
            square = points[start : start + size].T.reshape(-1, side, side)
            values = np.linalg.eigvalsh((square + square.transpose(0, 2, 1)) / 2)
            least.append((np.abs(values).max(axis=1) if sides == 2 else -values[:, 0]) * (1 + 1e-12))
        return np.array(least)
    triples = points.reshape(-1, 3, points.shape[1]).transpose(0, 2, 1)
    one = _steps_inside(block, triples)
    return one if sides == 1 else np.maximum(one, _steps_inside(block, -triples))


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
