"""Whole node values on a tree: parents stay the sums of their children, and every node moves by less than one."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from dpmodel._types import Floats
from dpmodel.errors import SpecificationError
from dpmodel.numerics.trees.tree import Generation, Tree
from dpmodel.privacy import public_generator

How = Literal["unbiased", "nearest", "controlled"]

_WHOLE = 1e-9  # Values this near to an integer (relative from 1 on, at most _COARSE) are that number.
_COARSE = 1e-3
_CONSISTENT = 1e-6


def round_tree(tree: Tree, x: Floats, how: How = "unbiased", seed: int | None = None) -> Floats:
    """(N,) integers, consistent, each the floor or the ceiling of ``x``; whole entries of x stay.

    So whole bounds (x >= 0 above all) and whole known totals are kept.

    Parameters
    ----------
    x : (N,) consistent node values.
    how : "unbiased": random, and the mean of every node's result is its x. "nearest": roots to the nearest, then the
        largest fractions among siblings go up (earlier ones first), which for the given parent is the nearest in
        every norm. "controlled": without chance, and the sum of the first j siblings, for any j, is
        also the floor or the ceiling of its true value, so that sums over runs of siblings stay within one.
    seed : of the random choices ("unbiased" only); None is 0.

    Proof that "unbiased" is, by induction from the roots, which go up with probability equal to their fraction. Let a
    parent's value be an integer plus F, F the sum of its children's fractions f_c, with phi the fraction of F. It went
    up with probability phi, and K = ceil(F) or floor(F) children have to go up. Draw U uniform on (0, phi] if the
    parent went up, on (phi, 1] if not: over both, U is uniform on (0, 1]. Let child c go up if one of U, U + 1, ...
    lies in (C_{c-1}, C_c], C the running sums of f. This interval has length f_c < 1, so it catches at most one
    point, and one with probability f_c. The points up to F number floor(F - U) + 1, which is ceil(F) if U <= phi and
    floor(F) otherwise: K. (Systematic sampling, Madow 1949; controlled rounding, Cox 1987.)
    Values within 1e-9 (relative) of an integer count as whole, which moves means by no more than that.

    Raises
    ------
    SpecificationError
        An unknown ``how``, a wrong shape, values that are not finite or not consistent (to 1e-6, relative).
    """
    if how not in get_args(How):
        raise SpecificationError(f"rounding {how!r} is not known", remedy=f"one of {', '.join(get_args(How))}")
    given = np.asarray(x, dtype=np.float64)
    _check(tree, given)
    draw = public_generator(0 if seed is None else seed).uniform
    down = np.floor(given)
    near = np.rint(given)
    whole = np.abs(given - near) <= np.minimum(_WHOLE * np.maximum(np.abs(given), 1.0), _COARSE)
    down[whole] = near[whole]
    fraction = np.where(whole, 0.0, given - down)

    roots = tree.levels[0]
    if how == "unbiased":
        up = draw(size=roots.stop) < fraction[roots]
    else:
        up = fraction[roots] >= 0.5
    found = down
    found[roots] += up
    for generation in tree.generations:
        f = fraction[generation.below]
        lower_bounds = down[generation.below]
        quota = found[generation.nodes] - generation.sum(lower_bounds)
        if how == "nearest":
            up = _largest(generation, f, quota)
        else:
            chance = draw(size=quota.size) if how == "unbiased" else np.full(quota.size, 0.5)
            up = _systematic(generation, f, quota, chance)
            up = _repaired(generation, f, given[generation.below] - lower_bounds, quota, up)
        found[generation.below] = lower_bounds + up
    return found


def _systematic(generation: Generation, f: Floats, quota: Floats, chance: Floats) -> Floats:
    """(c,) 0 or 1, ``quota`` of each parent's children at 1, by the points U, U + 1, ... with ``chance`` placing U."""
    running = np.cumsum(f)
    starts = generation.starts
    running -= generation.spread(running[starts] - f[starts])
    total = running[np.append(starts[1:], f.size) - 1]
    base = np.floor(total)
    phi = total - base
    base, phi = np.where(quota < base, base - 1, base), np.where(quota < base, 1.0, phi)  # F whole but for rounding.
    up = quota > base
    u = np.where(up, phi * (1 - chance), phi + (1 - phi) * (1 - chance))
    caught = np.floor(np.maximum(running, 0.0) - generation.spread(u)) + 1
    last = running >= generation.spread(total)
    caught = np.where(last, generation.spread(quota), caught)
    chosen: Floats = np.diff(caught, prepend=0.0)
    chosen[starts] = caught[starts]
    return chosen


def _repaired(generation: Generation, f: Floats, exact: Floats, quota: Floats, up: Floats) -> Floats:
    """``up``, but by largest fractions where rounding errors of x spoiled it: not 0 or 1, or a whole child moved."""
    wrong = (up != np.rint(np.clip(up, 0.0, 1.0))) | ((f == 0) & (up != 0))
    bad = generation.sum(wrong.astype(np.float64)) + np.abs(generation.sum(up) - quota) > 0
    if not bad.any():
        return up
    repaired: Floats = np.where(generation.spread(bad), _largest(generation, exact, quota), up)
    return repaired


def _largest(generation: Generation, f: Floats, quota: Floats) -> Floats:
    """(c,) 1 for the ``quota`` largest fractions of each family, ties to the earlier. A quota below zero, or above the
    number of children (x consistent up to rounding only), moves the smallest down, or all up once more."""
    family = np.repeat(np.arange(quota.size), generation.counts)
    order = np.lexsort((-f, family))
    rank = np.empty(f.size)
    rank[order] = np.arange(f.size) - np.repeat(generation.starts, generation.counts)
    count = generation.spread(generation.counts.astype(np.float64))
    target = generation.spread(quota)
    rounds = np.floor(target / count)  # 0 unless out of range.
    extra: Floats = rounds + (rank < target - rounds * count)
    return extra


def _check(tree: Tree, x: Floats) -> None:
    if x.shape != (tree.size,) or not np.isfinite(x).all():
        raise SpecificationError(f"rounding needs {tree.size} finite node values, in the tree's order")
    for generation in tree.generations:
        gap = np.abs(generation.sum(x[generation.below]) - x[generation.nodes])
        size = np.abs(x[generation.nodes]) + generation.sum(np.abs(x[generation.below]))
        if (gap > _CONSISTENT * np.maximum(size, 1.0)).any():
            raise SpecificationError(
                "the node values to round are not consistent",
                why="a parent differs from the sum of its children",
                remedy="fit them first",
            )
