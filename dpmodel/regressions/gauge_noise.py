"""Noise for delta 0 whose density falls with a norm in which no row is longer than 1.

``exp(-N(b) / beta)`` hides any vector with ``N <= beta epsilon`` with epsilon, whatever the norm N is (Hardt and Talwar
2010). Independent Laplace noise is the norm ``||b||_1 / (largest 1-norm of a row)``; but a row of an encoded table is
no such thing as any point of that ball. It has one category of each list and a number within its bounds in each
other column: it lies in a product of 1-norm balls, one for each list. That product as the unit ball of N needs less
noise, the less the more it has of small balls: with p numbers in [-1, 1] alone, ``sqrt((p+1)(p+2)/3)`` for each in
place of ``sqrt(2) p``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dpmodel._types import Floats, Integers
from dpmodel.privacy import NoiseSource
from dpmodel.regressions.features import RowBounds, length

_LEAST = 2.0**-20  # of a sum of exponential variables (or a Gaussian vector): shorter ones are drawn again
_LONGEST = 64.0  # root mean square of a Gaussian vector: longer ones too


@dataclass(frozen=True, eq=False)
class Group:
    """Some coordinates, in blocks: ``N_g(b) = max_l ||b_l||_order / size_l``.

    ``columns`` : (d,) the coordinates; ``block`` : (d,) the number of the block of each, 0, 1, ...; ``size`` : (d,) of
    its block; ``order`` : 1, or 2 for a single block; ``share`` : of the norm that this group is a part of.
    """

    columns: Integers
    block: Integers
    size: Floats
    order: int = 1
    share: float = 1.0

    @cached_property
    def variance(self) -> Floats:
        """(d,) of the coordinates at beta / share = 1.

        ``b = r c v`` with r ~ Gamma(d) and v = u / N_g(u), u uniform in the unit ball; N_g(u) has the law U^(1/d)
        and is independent of v, so E b^2 = (d+1)(d+2) c^2 E u^2. Of u in the 1-norm ball of m coordinates that is
        2 / ((m+1)(m+2)), in the 2-norm ball 1 / (m+2).
        """
        d, m = self.columns.size, np.bincount(self.block)[self.block]
        square = 2 / ((m + 1.0) * (m + 2.0)) if self.order == 1 else 1 / (m + 2.0)
        out: Floats = (d + 1.0) * (d + 2.0) * square * self.size**2
        return out

    def norm(self, b: Floats) -> float:
        own = b[self.columns] / self.size
        if self.order == 2:
            return float(np.linalg.norm(own))
        return float(np.bincount(self.block, np.abs(own)).max())

    def draw(self, noise: NoiseSource, scale: float) -> Floats:
        """(d,) with the density ``exp(-N_g(b) / scale)``; see ``Gauge.draw``."""
        d, blocks = self.columns.size, int(self.block.max()) + 1
        while True:
            if self.order == 2:
                v, longest = np.asarray(noise.gaussian(np.zeros(d), 1.0)), 1.0
                size = float(np.linalg.norm(v))
                v, usual = v / max(size, _LEAST), _LEAST < size < _LONGEST * math.sqrt(d)
            else:
                drawn = np.asarray(noise.laplace(np.zeros(d + blocks), 1.0))
                inner = np.bincount(self.block, np.abs(drawn[:d]))
                sums = inner + np.abs(drawn[d:])
                usual = bool(sums.min() > _LEAST)
                v = drawn[:d] / np.maximum(sums, _LEAST)[self.block]
                longest = float((inner / np.maximum(sums, _LEAST)).max())
            if usual and longest > 0.5:
                break
        radius = float(np.abs(noise.laplace(np.zeros(d), scale)).sum())
        return np.asarray((radius / longest) * self.size * v)


@dataclass(frozen=True, eq=False)
class Gauge:
    """``N = sum_g share_g N_g``, shares that sum to 1: N <= 1 for every row allowed.

    ``constant`` : N of the columns that all rows share. Of K scores the coordinates are those of the matrix of a
    derivative and a row, s and x: blocks are of K times as many, of size 2 c (order 1) or sqrt(2) c (order 2), so that
    ``N <= t`` where ``||s||_1 <= 2 t`` and ``||s||_2 <= sqrt(2) t``.
    """

    groups: tuple[Group, ...]
    count: int
    constant: float

    def norm(self, b: Floats) -> float:
        return sum(group.share * group.norm(b) for group in self.groups)

    @cached_property
    def deviations(self) -> Floats:
        """(count,) standard deviation of the coordinates at beta = 1."""
        out = np.zeros(self.count)
        for group in self.groups:
            out[group.columns] = np.sqrt(group.variance) / group.share
        return out

    @property
    def rounding(self) -> float:
        """What ``draw`` may be off by, as a share of the 2-norm of what it draws."""
        largest = max(math.sqrt(g.columns.size) * float(g.size.max() / g.size.min()) for g in self.groups)
        return (self.count + 40) * 2.0**-51 + largest * 2.0**-57

    def draw(self, noise: NoiseSource, beta: float) -> Floats:
        """(count,) b with the density ``exp(-N(b) / beta)``, in double precision.

        Exact numbers first. The blocks of u are independent and uniform in 1-norm balls: of m + 1 exponential variables
        the shares of the first m in their sum are uniform in the simplex (signs by symmetry). u is uniform in the
        product of the balls, so its norm ``longest`` and its direction are independent; so are a block's shares of
        their sum. Drawing again where a sum is tiny, or longest below 1/2, leaves the law of the direction as it is; so
        does, for the 2-norm, drawing again by the length of a Gaussian vector. The norm of b, ``radius``, is Gamma(d),
        a sum of d exponential variables: the density of b is then ``exp(-N / scale)`` up to a constant.
        Then what is computed. Exponential and Gaussian variables come on a grid of 2^-80 of their scale, with
        probabilities within a factor of ``1 + 2^-73`` each of those of continuous ones rounded to it (of Gaussian ones
        at most 64 sqrt(d) long, in the mean over them). Sums are at least 2^-20 and longest at least 1/2, so that b is
        off by the ``rounding`` share of its length, and the chance of drawing again, given the direction, by a factor
        of ``1 + d 2^-50`` at most.
        """
        out = np.zeros(self.count)
        for group in self.groups:
            out[group.columns] = group.draw(noise, beta / group.share)
        return out


def gauge_of(row: RowBounds, scores: int = 1) -> Gauge:
    """The norm whose noise is expected to do least harm, of those that the declarations allow.

    Harm: the sum over coefficients of variance over information, which is n times the mean square of a column; guessed
    from public facts alone: 1/3 of the largest square for a number, an even share of its list's for a category. Blocks
    are the columns' bounds, the lists, or the 1-norm or 2-norm of a row. The groups tried: all blocks in one, in two by
    their number of columns, constant columns for themselves, larger lists each for itself. Shares minimise the harm:
    they go by the cube root of a group's.
    """
    fixed = np.flatnonzero(row.constant & (row.lower != 0))
    moving = np.flatnonzero(~row.constant & (row.magnitudes > 0))
    sizes, count = row.magnitudes, row.size
    square = np.where(row.constant, sizes**2, sizes**2 / 3)
    listed = [(np.arange(first, end), size) for first, end, size in row.lists]
    for columns, size in listed:
        square[columns] = size**2 / columns.size
    if moving.size:
        square[moving] = np.minimum(square[moving], max(row.moving(2.0) ** 2 / moving.size, 1e-300))
    structures: list[list[tuple[Integers, float, int]]] = []
    single = np.setdiff1d(moving, np.concatenate([columns for columns, _ in listed])) if listed else moving
    if np.isfinite(sizes[single]).all():
        structures.append([(columns, size, 1) for columns, size in listed])
        structures[0] += [(np.array([j]), float(sizes[j]), 1) for j in single]
    for order, total in ((1, float(sizes[moving].sum())), (2, length(sizes[moving]))):
        if moving.size > 1 and row.moving(order) < total * (1 - 1e-9):
            structures.append([(moving, row.moving(order), order)])
    constants = [(np.array([j]), float(sizes[j]), 1) for j in fixed]
    best: tuple[Group, ...] = ()
    least = math.inf
    for blocks in structures:
        for parts in _partitions(blocks, constants):
            groups = [_group(part, count, scores) for part in parts]
            harm = [
                float((g.variance / np.maximum(square[g.columns % count], 1e-300)).sum()) ** (1 / 3) for g in groups
            ]
            if (total := sum(harm)) < least:
                least = total
                best = tuple(replace(g, share=h / total) for g, h in zip(groups, harm, strict=True))
    held = set(fixed.tolist())
    constant = sum(g.share for g in best if held & set((g.columns % count).tolist()))
    return Gauge(best, count * scores, constant)


_Block = tuple[Integers, float, int]


def _partitions(blocks: Sequence[_Block], constants: Sequence[_Block]) -> list[list[list[_Block]]]:
    """The groups tried, see ``gauge_of``; a block of the 2-norm is a group."""
    if any(order == 2 for *_, order in blocks):
        return [[list(blocks), *([list(constants)] if constants else [])]]
    every = [*blocks, *constants]
    found = [[list(every)]]
    for m in sorted({columns.size for columns, *_ in every})[:-1]:
        few = [block for block in every if block[0].size <= m]
        found.append([few, [block for block in every if block[0].size > m]])
        found.append([few, *[[block] for block in every if block[0].size > m]])
    if constants and blocks:
        found.append([list(blocks), list(constants)])
    return found


def _group(blocks: Sequence[_Block], count: int, scores: int) -> Group:
    order, classes = blocks[0][2], np.arange(scores) * count
    columns = [np.add.outer(classes, columns).ravel() for columns, *_ in blocks]
    widths = [each.size for each in columns]
    wide = 1.0 if scores == 1 else 2.0 if order == 1 else math.sqrt(2)
    size = np.repeat([size * wide for _, size, _ in blocks], widths)
    return Group(np.concatenate(columns), np.repeat(np.arange(len(blocks)), widths), size, order)
