"""Nets: finitely many public points of a polyhedron such that every point of it is near one of them.

Near is what private rows see: the *drift* of a net bounds ``|G_i (x - p)|`` over all rows G_i inside their public
bounds, all x of the polyhedron and the kept point p that x is rounded to. Two kinds of nets, both deterministic:

* a product of scaled simplices and intervals is cut into the lattice ``{k / N}`` of every simplex and the midpoints of
  every interval;
* any other polyhedron of dimension at most 4 (inside its equalities) is covered by cubes, whose centres are projected
  onto it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.numerics.polyhedron import Polyhedron, Product

MOST_POINTS = 200_000
MOST_DIMENSIONS = 4
# Centres of cubes times rows of the polyhedron, which are gone through one after the other.
_MOST_PRODUCTS = 2e7
_SWEEPS = 400


@dataclass(frozen=True)
class RowBounds:
    """What is publicly known of rows: entries in [lower, upper] (n,), zero inside; 1-norm and 2-norm of a row."""

    lower: Floats
    upper: Floats
    norm1: float
    norm2: float


class Net(Protocol):
    """``levels`` : nets from coarse to fine: upper bounds on the size and the drift of each."""

    @property
    def levels(self) -> list[tuple[int, float]]: ...

    def points(self, level: int) -> tuple[Floats, float]:
        """(k, n) the points of one level, all in the polyhedron, and their drift."""
        ...

    def drift_for(self, level: int, bounds: RowBounds) -> float:
        """Upper bound on the drift for other rows."""
        ...


@dataclass(frozen=True, kw_only=True)
class Choices:
    """Public candidates: ``points`` (k, n), or level ``level`` of ``net``, whose points are only listed for a run. Rows
    count as violated beyond ``threshold``."""

    threshold: float
    points: Floats | None = None
    net: Net | None = None
    level: int = 0

    def listed(self) -> tuple[Floats, float]:
        """(k, n) the candidates, and the threshold: larger where projections onto the polytope came out less exact than
        planned."""
        if self.points is not None:
            return self.points, self.threshold
        assert self.net is not None
        found, drift = self.net.points(self.level)
        return found, max(drift, self.threshold)


def level_for(net: Net, slack: Floats, weight: float, violation: float | None, slack_rows: int | None) -> int:
    """The coarsest level whose drift is within ``violation``, the finest whose ``slack`` (levels,) is within
    ``slack_rows``, or, asked for neither, the one with the least ``drift + weight slack``."""
    drift = np.array([drift for _, drift in net.levels])
    if violation is not None:
        fine = np.flatnonzero(drift <= violation)
        return int(fine[0]) if fine.size else drift.size - 1
    if slack_rows is not None:
        within = np.flatnonzero(slack <= slack_rows)
        return int(within[np.argmin(drift[within])]) if within.size else 0
    return int(np.argmin(drift + weight * slack))


def net_of(polytope: Polyhedron, bounds: RowBounds, most: int = MOST_POINTS, *, cubes: bool = False) -> Net | None:
    """A net of at most ``most`` points at its finest, or None for polyhedra of no listed kind, too
    many choices, or no point."""
    if polytope.empty:
        return None
    product = None if cubes else polytope.product
    net: Net | None = None
    if product is not None:
        # The coarsest lattice has the vertices of the simplices.
        vertices = np.where((product.by_block[1] == 1) & product.optional, 1, product.choices)
        # With more blocks, two cells in each are too many points.
        few = vertices.size <= 32 and math.prod(vertices.tolist()) <= most
        net = ProductNet(product, bounds, most) if few else None
    else:
        flat = _inside_equalities(polytope)
        if flat is not None:
            net = CubeNet(flat, bounds, min(most, int(_MOST_PRODUCTS / max(flat.sides.size, 1))))
    # Many choices in many blocks: even the coarsest lattice has too many points.
    return net if net is not None and net.levels else None


def _shrinking(first: float) -> Iterator[float]:
    """Powers of 1.05, the largest not below ``first`` and 400 smaller ones: the same steps for every polyhedron."""
    top = math.ceil(math.log(max(first, 1e-300)) / math.log(1.05))
    return (1.05**power for power in range(top, max(top - 400, -14_000), -1))


# ------------------------------------------------------------------------------------------- products
@dataclass(frozen=True)
class ProductNet:
    """Lattices of simplices and midpoints of intervals.

    A block of c choices (the choice of none included) is ``base + step_j w_j`` with weights w in the unit simplex. With
    lattice ``{k / N}``, w is rounded down to multiples of 1/N and the r = N - sum of floors largest remainders f
    are rounded up, r <= min(N, c - 1). The remainders add up to r, and the largest r of them to at least r^2 / c, so
    what moves down is ``D = r - sum_up f <= r (c - r) / c`` (times 1/N), and as much moves up. The row's dot product
    changes by the difference of two averages of ``G_j step_j`` of weight D/N: by at most D/N times their spread. A
    single column that may take any share (c = 2) is an interval: N midpoints, and half a cell times the row's entry.
    The blocks' changes add up; all columns together change by at most ``norm1`` times the largest entry's change, and
    ``norm2`` times the 2-norm.
    """

    product: Product
    bounds: RowBounds
    most: int

    @cached_property
    def _blocks(self) -> list[_Block]:
        every, all_steps = self.product.columns, self.product.step
        if not every:
            return []
        flat, starts = np.concatenate(every), np.cumsum([0, *(columns.size for columns in every[:-1])])
        step = all_steps[flat]
        ends = np.stack([self.bounds.lower[flat] * step, self.bounds.upper[flat] * step])
        most, least = np.maximum.reduceat(ends.max(axis=0), starts), np.minimum.reduceat(ends.min(axis=0), starts)
        # Taking none counts 0 (and 0 is inside the bounds of every entry).
        spread, half = np.maximum(most, 0.0) - np.minimum(least, 0.0), 0.5 * np.maximum(most, -least)
        largest = np.maximum.reduceat(np.abs(step), starts)
        parts = (every, self.product.choices.tolist(), spread.tolist(), half.tolist(), largest.tolist())
        return [
            _Block(columns, choices, alone := columns.size == 1 and choices == 2, middle if alone else wide, size)
            for columns, choices, wide, middle, size in zip(*parts, strict=True)
        ]

    def _size(self, cells: list[int]) -> int:
        total = 1
        for block, n in zip(self._blocks, cells, strict=True):
            total *= block.size(n)
            if total > self.most:
                return self.most + 1
        return total

    def _drift(self, cells: list[int]) -> float:
        by_blocks, largest, squares = 0.0, 0.0, 0.0
        for block, n in zip(self._blocks, cells, strict=True):
            moved = block.moved(n)
            by_blocks += block.cost * moved
            if block.interval:
                largest, squares = max(largest, block.step / (2 * n)), squares + (block.step / (2 * n)) ** 2
            else:
                # Every weight moves by at most 1 / N, all together by 2 D / N.
                largest, squares = max(largest, block.step / n), squares + block.step**2 * 2 * moved / n
        return float(min(by_blocks, self.bounds.norm1 * largest, self.bounds.norm2 * math.sqrt(squares)) * (1 + 1e-9))

    @cached_property
    def _levels(self) -> list[tuple[list[int], int, float]]:
        if not self._blocks:
            return [([], 1, 0.0)]
        levels: list[tuple[list[int], int, float]] = []
        for each in _shrinking(max(block.cost for block in self._blocks)):
            cells = [block.cells(each) for block in self._blocks]
            size = self._size(cells)
            if size > self.most:
                break
            if not levels or cells != levels[-1][0]:
                levels.append((cells, size, self._drift(cells)))
        return levels

    @property
    def levels(self) -> list[tuple[int, float]]:
        return [(size, drift) for _, size, drift in self._levels]

    def points(self, level: int) -> tuple[Floats, float]:
        cells, size, drift = self._levels[level]
        out = np.tile(self.product.base, (size, 1))
        repeat = 1
        for block, n in zip(self._blocks, cells, strict=True):
            weights = block.weights(n)
            index = np.arange(size) // repeat % weights.shape[0]
            out[:, block.columns] += self.product.step[block.columns] * weights[index]
            repeat *= weights.shape[0]
        return out, drift

    def drift_for(self, level: int, bounds: RowBounds) -> float:
        return replace(self, bounds=bounds)._drift(self._levels[level][0])


@dataclass(frozen=True, eq=False)
class _Block:
    """One simplex or interval. ``choices`` : c, none included; ``cost`` : the spread of ``G_j step_j``, or half the
    largest size for an interval; ``step`` : the largest size of a step."""

    columns: Integers
    choices: int
    interval: bool
    cost: float
    step: float

    def moved(self, cells: int) -> float:
        """D / N (1 / N for an interval, whose cost is that of half a cell)."""
        c, r = self.choices, min(cells, self.choices // 2)
        return 1.0 / cells if self.interval else r * (c - r) / c / cells

    def cells(self, each: float) -> int:
        """Least N for which the block's drift is at most ``each``."""
        c, half = self.choices, self.choices // 2
        if self.cost <= 0:
            return 1
        share = each / self.cost * (1 + 1e-12)
        if self.interval:
            return max(1, math.ceil(1 / share))
        few = math.ceil(c * (1 - share))  # while N <= c / 2, D / N = (c - N) / c
        return max(1, few) if few <= half else max(half, math.ceil(half * ((c + 1) // 2) / c / share))

    def size(self, cells: int) -> int:
        return cells if self.interval else math.comb(cells + self.choices - 1, self.choices - 1)

    def weights(self, cells: int) -> Floats:
        """(k, columns) the lattice; the share of taking none is left out."""
        if self.interval:
            return ((np.arange(cells) + 0.5) / cells)[:, None]
        bars, count = self.choices - 1, self.size(cells)
        flat = itertools.chain.from_iterable(itertools.combinations(range(cells + bars), bars))
        places = np.fromiter(flat, dtype=np.int64, count=count * bars).reshape(count, bars)
        ends = np.c_[np.full(count, -1), places, np.full(count, cells + bars)]
        return np.asarray(np.diff(ends, axis=1) - 1, dtype=np.float64)[:, : self.columns.size] / cells


# ------------------------------------------------------------------------------- any small polyhedron
@dataclass(frozen=True)
class Flat:
    """``{x = origin + basis y : rows y <= sides}``: a polyhedron in d free directions (orthonormal columns of basis).

    ``lower, upper`` (d,) : a box around it; ``inner`` (d,) : a point with room on every side.
    """

    origin: Floats
    basis: Floats
    rows: Floats
    sides: Floats
    lower: Floats
    upper: Floats
    inner: Floats
    bounds: tuple[Floats, Floats]


def _inside_equalities(polytope: Polyhedron) -> Flat | None:
    """The polyhedron in its free directions; None when these are too many, or it has no inner point there."""
    bounded = np.isfinite(polytope.lower) & np.isfinite(polytope.upper)
    fixed = bounded & (polytope.upper - polytope.lower <= 1e-12 * (1 + np.abs(polytope.lower)))
    if (~fixed).sum() - polytope.b_eq.size > MOST_DIMENSIONS or polytope.size > 2000:
        return None
    equal = np.vstack([polytope.A_eq.toarray(), np.eye(polytope.size)[fixed]])
    basis = scipy.linalg.null_space(equal) if equal.size else np.eye(polytope.size)
    if basis.shape[1] > MOST_DIMENSIONS:
        return None
    origin = polytope.minimise(np.zeros(polytope.size))
    assert origin is not None  # a zero cost has a least value
    if equal.size:  # HiGHS meets equalities up to its tolerance only
        sides = np.concatenate([polytope.b_eq, polytope.lower[fixed]])
        origin = origin - scipy.linalg.lstsq(equal, equal @ origin - sides)[0]
    up, low = np.isfinite(polytope.upper) & ~fixed, np.isfinite(polytope.lower) & ~fixed
    eye = np.eye(polytope.size)
    C = np.vstack([polytope.A_ub.toarray(), eye[up], -eye[low]])
    g = np.concatenate([polytope.b_ub, polytope.upper[up], -polytope.lower[low]])
    rows, sides = C @ basis, g - C @ origin
    size = np.linalg.norm(rows, axis=1)
    keep = size > 1e-12 * np.linalg.norm(C, axis=1)
    rows, sides = rows[keep] / size[keep, None], sides[keep] / size[keep]
    d = basis.shape[1]
    if d == 0:
        zero = np.zeros(0)
        return Flat(origin, basis, np.zeros((0, 0)), zero, zero, zero, zero, (polytope.lower, polytope.upper))
    ends = [(-polytope.support(-basis[:, j]), polytope.support(basis[:, j])) for j in range(d)]
    lower, upper = np.array(ends).T - origin @ basis
    if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
        return None
    # Rows that the box already implies cut nothing off.
    reach = np.maximum(rows, 0) @ upper + np.minimum(rows, 0) @ lower
    cutting = reach > sides
    rows, sides = rows[cutting], sides[cutting]
    inner = _inner_point(rows, sides, lower, upper)
    if rows.shape[0] > 200 or inner is None:
        return None
    return Flat(origin, basis, rows, sides, lower, upper, inner, (polytope.lower, polytope.upper))


def _inner_point(rows: Floats, sides: Floats, lower: Floats, upper: Floats) -> Floats | None:
    """(d,) the centre of a largest ball inside the rows, or None when it is flat."""
    d = lower.size
    none = sp.csr_array((0, d + 1))
    ball = Polyhedron(
        sp.csr_array(np.c_[rows, np.ones(rows.shape[0])]),
        sides,
        none,
        np.zeros(0),
        np.append(lower, 0.0),
        np.append(upper, float((upper - lower).max())),
    )
    found = ball.minimise(np.append(np.zeros(d), -1.0))
    return found[:d] if found is not None and found[d] > 1e-7 * float((upper - lower).max()) else None


@dataclass(frozen=True)
class CubeNet:
    """Projected centres of cubes.

    The box around the polyhedron is cut into cubes of half-diagonal r. A point x of the polyhedron lies in a cube with
    centre c; the projection p of c satisfies ``|x - p| <= |x - c| <= r``, because projecting onto a convex set moves
    two points no further apart and leaves x where it is. Centres further than r from the polyhedron are dropped.
    Computed projections p' have a proved error: with multipliers l >= 0 of the rows, strong convexity gives ``|p' -
    p|^2 <= |p' - c|^2 - 2 dual(l)``; it is added to r. So ``|G_i (x - p')| <= norm2 (r + error)``.
    """

    flat: Flat
    bounds: RowBounds
    most: int

    @cached_property
    def _levels(self) -> list[tuple[Integers, int, float]]:
        width = self.flat.upper - self.flat.lower
        if not width.size:
            return [(np.zeros(0, dtype=np.int64), 1, 0.0)]
        levels: list[tuple[Integers, int, float]] = []
        for side in _shrinking(float(width.max())):
            cells = np.maximum(np.ceil(width / side), 1).astype(np.int64)
            size = math.prod(int(n) for n in cells)
            if size > self.most:
                break
            # From the sides alone, so that a part of the polyhedron never promises less at the same size. One percent
            # is for the error of projections; the true drift is known once the points are built.
            levels.append((cells, size, 1.01 * self.bounds.norm2 * side * math.sqrt(width.size) / 2))
        return levels

    @property
    def levels(self) -> list[tuple[int, float]]:
        return [(size, drift) for _, size, drift in self._levels]

    def points(self, level: int) -> tuple[Floats, float]:
        flat = self.flat
        cells, size, _ = self._levels[level]
        if not cells.size:
            return flat.origin[None, :].copy(), 0.0
        half = (flat.upper - flat.lower) / cells / 2
        repeat = np.concatenate([[1], np.cumprod(cells)[:-1]])
        index = np.arange(size)[:, None] // repeat % cells
        centres = flat.lower + (2 * index + 1) * half
        radius = float(np.linalg.norm(half))
        near = (centres @ flat.rows.T - flat.sides <= radius).all(axis=1)
        found, error = _project_all(flat, centres[near], radius)
        x = np.clip(flat.origin + found @ flat.basis.T, *flat.bounds)
        return x, self.bounds.norm2 * (radius + error) * (1 + 1e-9)

    def drift_for(self, level: int, bounds: RowBounds) -> float:
        share = bounds.norm2 / self.bounds.norm2 if self.bounds.norm2 > 0 else math.inf
        return self._levels[level][2] * share if bounds.norm2 > 0 else 0.0


def _project_all(flat: Flat, centres: Floats, radius: float) -> tuple[Floats, float]:
    """(k', d) projections of the centres (k, d) that may lie within ``radius``, and the largest error of one.

    Hildreth's method: coordinate ascent on the multipliers, row after row, for all centres at once.
    """
    rows, sides = flat.rows, flat.sides
    outside = (centres @ rows.T > sides).any(axis=1)
    inside = centres[~outside]
    if not outside.any():
        return inside, 0.0
    done: list[Floats] = []
    errors: list[Floats] = []
    c = centres[outside]
    p, dual = c.copy(), np.zeros((c.shape[0], rows.shape[0]))
    room = np.maximum(sides - rows @ flat.inner, 1e-300)
    for sweep in range(1, _SWEEPS + 1):
        for i in range(rows.shape[0]):
            new = np.maximum(dual[:, i] + p @ rows[i] - sides[i], 0.0)
            p -= (new - dual[:, i])[:, None] * rows[i]
            dual[:, i] = new
        if sweep % 5 and sweep != _SWEEPS:
            continue
        # Into the polyhedron, towards its inner point, by as much as the worst row needs.
        over = np.maximum(p @ rows.T - sides, 0.0)
        share = (over / (over + room)).max(axis=1) * (1 + 1e-9) + 1e-12
        moved = p + np.minimum(share, 1.0)[:, None] * (flat.inner - p)
        pulled = dual @ rows
        value = (dual * (c @ rows.T - sides)).sum(axis=1) - (pulled**2).sum(axis=1) / 2
        error = np.sqrt(np.maximum(((moved - c) ** 2).sum(axis=1) - 2 * value, 0.0))
        far = 2 * value > radius**2 * (1 + 1e-9)
        good = ~far & ((error <= 1e-3 * radius) | (sweep == _SWEEPS))
        done.append(moved[good])
        errors.append(error[good])
        left = ~far & ~good
        if not left.any():
            break
        c, p, dual = c[left], p[left], dual[left]
    every = np.concatenate([inside, *done])
    return every, float(np.concatenate(errors).max(initial=0.0)) if errors else 0.0
