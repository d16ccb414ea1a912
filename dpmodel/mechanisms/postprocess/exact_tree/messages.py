"""Messages of the exact tree solver: least cost of a subtree as a function of its node's value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpmodel._types import Floats, Integers
from dpmodel.mechanisms.postprocess.exact_tree.plan import Group, LevelPlan, Round, Tables, TreePlan
from dpmodel.numerics.trees.tree import Generation


@dataclass(frozen=True, eq=False)
class Messages:
    """Convex piecewise-linear functions, one per node, of which row i of a table holds where the derivative passes from
    the i-th smallest derivative of the level to the next (row 0: left end of the domain, last row: right end; -inf and
    inf where there is none, and then smaller or larger derivatives never occur).

    ``before`` : for each level (k + 1, nodes with children), the sum of the children on the children's derivatives
    (None for levels of leaves only).
    ``after`` : for each level (k' + 1, nodes), with the nodes' own bounds and terms,
    on the derivatives kept.
    """

    before: tuple[Floats | None, ...]
    after: tuple[Floats, ...]
    plan: TreePlan

    def roots(self) -> tuple[Floats, Floats]:
        """Ends of the optimal stretch of each root."""
        return self.after[0][0], self.after[0][-1]

    def children(self, number: int, x: Floats) -> tuple[Floats, Floats]:
        """(children,) ends of the stretches in which the children of level ``number`` may share x, one per parent."""
        family, total = self.plan.levels[number].family, self.before[number]
        assert family is not None and total is not None
        return segments(family, self.after[number + 1], marginal_rows(total, x))


def messages(plan: TreePlan, value: Floats) -> Messages:
    """From the leaves up.

    The least cost of dividing x among children has conjugate the sum of theirs, so its segment ends are sums of theirs
    derivative by derivative. Adding ``w |x - v|`` to g moves derivatives left of v down and right of v up by w, so the
    new place where derivative t is passed is v clipped between the old places of t - w and t + w.
    """
    before: list[Floats | None] = []
    after: list[Floats] = []
    below: Floats | None = None
    for level in reversed(plan.levels):
        total = None
        tables = level.tables
        assert tables is not None
        if level.family is not None:
            assert below is not None
            total = level.family.sum(below)
        entering = total if tables.entry is None or total is None else total[tables.entry]
        below = _with_leaves(level, tables, plan, entering)
        for now in tables.rounds:
            below = _measured(now, below, value)
        below = below[tables.kept]
        before.append(total)
        after.append(below)
    return Messages(tuple(reversed(before)), tuple(reversed(after)), plan)


def _with_leaves(level: LevelPlan, tables: Tables, plan: TreePlan, total: Floats | None) -> Floats:
    """The table before own terms: the children's sums cut to the bounds, and zero on their domain for leaves."""
    if level.inner is None:
        assert total is not None
        if level.cut is None:
            return total
        table = total.copy()
    else:
        low, high = plan.lower[level.nodes], plan.upper[level.nodes]
        table = np.empty((tables.rows, level.size))
        table[: tables.zero] = low
        table[tables.zero :] = high
        if total is not None:
            table[:, level.inner] = total
        if level.cut is None:
            return table
    cut = level.cut
    low, high = plan.lower[level.nodes][cut], plan.upper[level.nodes][cut]
    table[:, cut] = np.clip(table[:, cut], low, high)
    return table


def _measured(now: Round, old: Floats, value: Floats) -> Floats:
    new = np.empty((now.rows, old.shape[1]))
    for group in now.groups:
        v = value[group.measurement]
        if group.columns is None:
            _shift_all(group, old, v, new)
        else:
            part = old[:, group.columns]
            new[:, group.columns] = np.minimum(np.maximum(part[group.below], v), part[group.above])
    if now.rest is not None:
        new[:, now.rest] = old[:, now.rest][now.keep]
    return new


def _shift_all(group: Group, old: Floats, v: Floats, new: Floats) -> None:
    """The same for all columns, without copies of rows where they are consecutive."""
    same = group.below == group.above
    inside = np.flatnonzero(~same)
    if inside.size == 0 or int(inside[-1]) - int(inside[0]) != inside.size - 1:
        new[:] = np.minimum(np.maximum(old[group.below], v), old[group.above])
        return
    first, last = int(inside[0]), int(inside[-1]) + 1
    low, high = group.below[first:last], group.above[first:last]
    new[:first] = old[group.below[:first]]
    new[last:] = old[group.below[last:]]
    if (np.diff(low) == 1).all() and (np.diff(high) == 1).all():
        np.maximum(old[low[0] : low[0] + low.size], v, out=new[first:last])
        np.minimum(new[first:last], old[high[0] : high[0] + high.size], out=new[first:last])
    else:
        new[first:last] = np.minimum(np.maximum(old[low], v), old[high])


def marginal_rows(total: Floats, x: Floats) -> Integers:
    """(parents,) the row at which the segment that holds x begins. ``total`` : (k + 1, parents)."""
    k = total.shape[0] - 1
    if k <= 1:
        return np.zeros(x.size, dtype=np.int64)
    passed = total[1:k] <= x
    if k < 100:
        return np.asarray(np.add.reduce(passed.view(np.int8), axis=0, dtype=np.int8), dtype=np.int64)
    return np.asarray(passed.sum(axis=0, dtype=np.int64))


def segments(family: Generation, below: Floats, row: Integers) -> tuple[Floats, Floats]:
    """(children,) left and right ends of each child's segment of the derivative that begins at its parent's ``row``."""
    k, n = below.shape[0] - 1, below.shape[1]
    flat = below if below.flags.c_contiguous else np.ascontiguousarray(below)
    at = family.spread(row) * n + np.arange(n)
    left = flat.ravel().take(at)
    if k == 0:
        return left, left
    at += n
    return left, flat.ravel().take(at)
