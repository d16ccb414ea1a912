"""Messages of the exact tree solver: least cost of a subtree as a function of its node's value."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dpmodel._types import Floats, Integers
from dpmodel.errors import InfeasibleError
from dpmodel.memo import PublicFacts
from dpmodel.released.trees import Generation, Tree, TreeProblem


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


# ------------------------------------------------------------------ what does not depend on the values


TABLE_LIMIT = (20_000, 64)  # numbers in all tables: so many, and so many per node
_GROUPS = 64  # different weights within one level
_BITS = 44  # integer weights where no common unit is found
_DENOMINATORS = 60
_FEASIBLE = 1e-9  # relative: fixed values that add up to this are taken to agree


@dataclass(frozen=True, eq=False)
class Group:
    """Nodes of a level whose next measurement has one weight w. ``columns`` : within the level, None for all.
    ``measurement`` : (columns,) which of ``TreeProblem.value``. ``below, above`` : for each row of the new table the
    row of the old one at derivative - w and + w."""

    columns: Integers | None
    measurement: Integers
    below: Integers
    above: Integers


@dataclass(frozen=True, eq=False)
class Round:
    """One measurement for some nodes of a level. ``rest`` : columns of the others (None where there are none), whose
    rows are ``keep`` of the old table. ``rows`` : of the new table."""

    rows: int
    groups: tuple[Group, ...]
    rest: Integers | None
    keep: Integers


@dataclass(frozen=True, eq=False)
class Tables:
    """The shared derivatives of a level's messages: with k derivatives there are k + 1 rows of segment ends.

    ``entry`` : rows of the children's table for each row before own terms, None for the same. ``zero`` : rows before it
    are left of derivative 0. ``rows`` : before own terms. ``after`` : (k,) derivatives after them, of which rows
    ``kept``, since prices cannot be larger. ``entries`` : numbers held.
    """

    entry: Integers | None
    zero: int
    rows: int
    rounds: tuple[Round, ...]
    after: Integers
    kept: slice
    entries: int


@dataclass(frozen=True, eq=False)
class LevelPlan:
    """One level. ``inner`` : columns of nodes with children (None: all), ``family`` : these children (None: none).
    ``cut`` : columns whose own bounds say more than their children's, or None. ``tables`` : None where derivatives are
    too many different ones to share."""

    nodes: slice
    inner: Integers | None
    family: Generation | None
    cut: Integers | None
    tables: Tables | None

    @property
    def size(self) -> int:
        return int(self.nodes.stop - self.nodes.start)


@dataclass(frozen=True, eq=False)
class TreePlan(PublicFacts):
    """Everything about a ``TreeProblem`` but its values; cheap to use again with others.

    ``lower, upper`` : (N,) domains after adding up children's. ``levels`` : from the roots down. ``entries`` : how many
    numbers their tables hold, 0 without. Weights are ``units`` (k,), integers, times ``unit``.
    """

    tree: Tree
    node: Integers
    absolute: Floats
    given_lower: Floats
    given_upper: Floats
    lower: Floats
    upper: Floats
    units: Integers
    unit: float
    levels: tuple[LevelPlan, ...]
    entries: int

    @property
    def shared(self) -> bool:
        """Whether the messages of a level are rows of one table."""
        return all(level.tables is not None for level in self.levels)

    def fits(self, problem: TreeProblem) -> bool:
        """Whether it was made for this problem, values aside."""
        return (
            problem.tree is self.tree
            and problem.node is self.node
            and problem.absolute is self.absolute
            and problem.lower is self.given_lower
            and problem.upper is self.given_upper
        )


def whole_weights(weights: Floats) -> tuple[Integers, float]:
    """Integers u and a unit with ``u unit`` equal to the weights to a relative 1e-12 where they are small
    multiples of a common unit (so the objective changes by no more than that share), else to 2^-44 of the largest
    weight (2^-35 with 2^24 measurements). Sums of integers are exact, so derivatives that should be equal are.
    """
    if weights.size and weights.min() == weights.max() > 0:
        return np.ones(weights.shape, dtype=np.int64), float(weights[0])
    known, where = np.unique(weights, return_inverse=True)
    positive = known[known > 0]
    if positive.size == 0:
        return np.zeros(weights.shape, dtype=np.int64), 1.0
    smallest, largest = float(positive[0]), float(positive[-1])
    if largest / smallest < 2.0**30:
        for m in range(1, _DENOMINATORS + 1):
            q = known / smallest * m
            if (np.abs(q - np.rint(q)) <= 1e-12 * q).all():
                return np.rint(q).astype(np.int64)[where.ravel()], smallest / m
    unit = largest * 2.0 ** -min(_BITS, 60 - int(weights.size).bit_length())  # sums stay below 2^62
    return np.rint(known / unit).astype(np.int64)[where.ravel()], unit


def domains(problem: TreeProblem) -> tuple[Floats, Floats, npt.NDArray[np.bool_]]:
    """(lower, upper, cut): the values each node can take given its subtree, and which inner nodes' own bounds matter.

    Raises
    ------
    InfeasibleError
        If a node's bounds and its children's disagree by more than a relative 1e-9.
    """
    tree = problem.tree
    lower, upper = np.array(problem.lower, dtype=np.float64), np.array(problem.upper, dtype=np.float64)
    cut = np.zeros(tree.size, dtype=bool)
    for number, level in reversed(list(enumerate(tree.levels))):
        if number < len(tree.generations):
            family = tree.generations[number]
            inner = family.nodes
            low, high = family.sum(lower[family.below]), family.sum(upper[family.below])
            cut[inner] = (lower[inner] > low) | (upper[inner] < high)
            lower[inner] = np.maximum(lower[inner], low)
            upper[inner] = np.minimum(upper[inner], high)
        a, b = lower[level], upper[level]
        with np.errstate(invalid="ignore"):
            tolerance = _FEASIBLE * np.maximum(1.0, np.maximum(np.abs(a), np.abs(b)))
            empty = ~(a <= b + tolerance) | (a == np.inf) | (b == -np.inf)
        if empty.any():
            at = level.start + int(np.flatnonzero(empty)[0])
            raise InfeasibleError(
                f"no value of node {at} of the tree satisfies the bounds",
                why=f"with the bounds below it, it is at least {lower[at]:.12g} and at most {upper[at]:.12g}",
                remedy="correct the bounds or the known totals of this node or of nodes below it",
            )
        crossed = a > b
        lower[level] = np.where(crossed, b, a)
    return lower, upper, cut


def tree_plan(problem: TreeProblem) -> TreePlan:
    """Domains, derivative tables and index arrays.

    Raises
    ------
    InfeasibleError
        As ``domains``.
    """
    lower, upper, cut = domains(problem)
    units, unit = whole_weights(problem.absolute)
    levels, entries = _levels(problem, units, cut)
    given = (problem.tree, problem.node, problem.absolute, problem.lower, problem.upper)
    return TreePlan(*given, lower, upper, units, unit, levels, entries)


def _reach(problem: TreeProblem, units: Integers, cut: npt.NDArray[np.bool_]) -> list[int | None]:
    """For each level the largest total weight above a node, which bounds the prices there; None where bounds of inner
    nodes above may add any price."""
    tree = problem.tree
    own = np.zeros(tree.size, dtype=np.int64)
    if problem.node.size == tree.size and (np.diff(problem.node) == 1).all():
        own += units
    else:
        np.add.at(own, problem.node, units)
    above = np.zeros(tree.size, dtype=np.int64)
    out: list[int | None] = []
    free = True
    for number, level in enumerate(tree.levels):
        if number:
            parents = tree.parent[level]
            above[level] = above[parents] + own[parents]
        out.append(int(above[level].max(initial=0)) if free else None)
        free = free and not cut[level].any()
    return out


def _levels(problem: TreeProblem, units: Integers, cut: npt.NDArray[np.bool_]) -> tuple[tuple[LevelPlan, ...], int]:
    """The levels and the size of their tables; no tables and 0 where these would be too large."""
    tree = problem.tree
    reach = _reach(problem, units, cut)
    used, nodes, turn = _by_node(problem, units)
    edges = np.searchsorted(nodes, tree.bounds)
    limit = TABLE_LIMIT[0] + TABLE_LIMIT[1] * tree.size
    plans: list[LevelPlan] = []
    table: Integers | None = np.zeros(0, dtype=np.int64)
    entries = 0
    for number, level in reversed(list(enumerate(tree.levels))):
        leaf = tree.is_leaf[level]
        inner = np.flatnonzero(~leaf)
        family = tree.generations[number] if inner.size else None
        part = slice(edges[number], edges[number + 1])
        mine = (used[part], nodes[part] - level.start, turn[part])
        tables = None if table is None else _tables(table, leaf, mine, units, reach[number], limit - entries)
        table = None if tables is None else tables.after
        entries += 0 if tables is None else tables.entries
        columns = None if inner.size == leaf.size else inner
        bounded = np.flatnonzero(cut[level]) if cut[level].any() else None
        plans.append(LevelPlan(level, columns, family, bounded, tables))
    if table is not None:
        return tuple(reversed(plans)), entries
    return tuple(replace(plan, tables=None) for plan in reversed(plans)), 0


def _by_node(problem: TreeProblem | TreePlan, units: Integers) -> tuple[Integers, Integers, Integers]:
    """(used, nodes, turn): measurements with a weight in the order of their nodes, these, and how many of the same node
    came before."""
    used = np.flatnonzero(units > 0)
    nodes = problem.node[used]
    if (np.diff(nodes) < 0).any():
        used = used[np.argsort(nodes, kind="stable")]
        nodes = problem.node[used]
    again = np.concatenate([[False], nodes[1:] == nodes[:-1]])[: used.size]
    turn = np.zeros(used.size, dtype=np.int64)
    if again.any():
        turn = np.arange(used.size) - np.maximum.accumulate(np.where(again, 0, np.arange(used.size)))
    return used, nodes, turn


def turns(plan: TreePlan) -> list[list[tuple[Integers, Integers]]]:
    """For each level and round (measurements, columns): the first measurement of each node, then the second, ..."""
    used, nodes, turn = _by_node(plan, plan.units)
    edges = np.searchsorted(nodes, plan.tree.bounds)
    out = []
    for number, level in enumerate(plan.tree.levels):
        part = slice(edges[number], edges[number + 1])
        which, column, when = used[part], nodes[part] - level.start, turn[part]
        rounds = range(int(when.max(initial=-1)) + 1)
        out.append([(which[when == r], column[when == r]) for r in rounds])
    return out


def _tables(
    below: Integers,
    leaf: npt.NDArray[np.bool_],
    mine: tuple[Integers, Integers, Integers],
    units: Integers,
    reach: int | None,
    limit: int,
) -> Tables | None:
    """The tables of a level whose children have derivatives ``below``; None where they would be too large."""
    before, entry = below, None
    if leaf.any():
        before = np.union1d(below, np.zeros(1, dtype=np.int64))
        if before.size != below.size:
            entry = np.concatenate([[0], np.searchsorted(below, before, side="right")])
    found = _rounds(*mine, units, before, leaf.size, limit)
    if found is None:
        return None
    rounds, derivatives, entries = found
    first, last = 0, int(derivatives.size)
    if reach is not None:
        first, last = (int(i) for i in np.searchsorted(derivatives, [-reach, reach + 1]))
    zero = int(np.searchsorted(before, 0)) + 1
    return Tables(entry, zero, before.size + 1, rounds, derivatives[first:last], slice(first, last + 1), entries)


def _rounds(
    used: Integers, column: Integers, turn: Integers, units: Integers, derivatives: Integers, size: int, limit: int
) -> tuple[tuple[Round, ...], Integers, int] | None:
    """The rounds of one level (measurements ``used`` of nodes ``column``, the ``turn``-th of its node), the derivatives
    afterwards, and how many numbers they hold; None where these are more than ``limit``."""
    rounds = []
    entries = 0
    for r in range(int(turn.max(initial=-1)) + 1):
        now = turn == r if r or turn.any() else slice(None)
        which, at = used[now], column[now]
        mixed = units[which]
        weights = mixed[:1] if mixed.min() == mixed.max() else np.unique(mixed)
        if weights.size > _GROUPS:
            return None
        parts = [derivatives + w for w in weights] + [derivatives - w for w in weights]
        rest = None
        if at.size < size:
            missing = np.ones(size, dtype=bool)
            missing[at] = False
            rest = np.flatnonzero(missing)
            parts.append(derivatives)
        new = np.unique(np.concatenate(parts))
        groups = []
        for w in weights:
            mine = mixed == w
            below = np.concatenate([[0], np.searchsorted(derivatives + w, new, side="right")])
            above = np.concatenate([[0], np.searchsorted(derivatives - w, new, side="right")])
            columns = None if weights.size == 1 and rest is None else at[mine]
            groups.append(Group(columns, which[mine], below, above))
        keep = np.concatenate([[0], np.searchsorted(derivatives, new, side="right")])
        rounds.append(Round(new.size + 1, tuple(groups), rest, keep))
        derivatives = new
        entries += (new.size + 1) * size
        if entries > limit:
            return None
    if not rounds:
        entries += (derivatives.size + 1) * size
    return tuple(rounds), derivatives, entries


# ------------------------------------------------------------------ lists of segments


@dataclass(frozen=True, eq=False)
class Lists:
    """Convex piecewise-linear functions of n nodes: segments in the order of nodes, then derivatives. ``first`` : (n +
    1,) node j has ``first[j]:first[j + 1]``; ``derivative, start, end`` : (m,). ``left, right`` : (n,) domains."""

    first: Integers
    derivative: Integers
    start: Floats
    end: Floats
    left: Floats
    right: Floats

    @property
    def owner(self) -> Integers:
        """(m,) node of each segment."""
        return np.repeat(np.arange(self.left.size), np.diff(self.first))

    def passing(self, derivative: Integers, owner: Integers) -> tuple[Floats, Floats]:
        """(n,) ends of the stretch on which each node's function has ``derivative`` (n,) among its subgradients."""
        n = self.left.size
        wanted = derivative[owner]
        less = np.bincount(owner[self.derivative < wanted], minlength=n)
        upto = np.bincount(owner[self.derivative <= wanted], minlength=n)
        left, right = self.right.copy(), self.left.copy()
        has = self.first[:-1] + less < self.first[1:]
        left[has] = self.start[(self.first[:-1] + less)[has]]
        has = upto > 0
        right[has] = self.end[(self.first[:-1] + upto - 1)[has]]
        return left, right


@dataclass(frozen=True, eq=False)
class SparseMessages:
    """As ``Messages``: ``before`` the sums over children, ``after`` with own bounds and terms."""

    before: tuple[Lists | None, ...]
    after: tuple[Lists, ...]
    plan: TreePlan

    def roots(self) -> tuple[Floats, Floats]:
        """Ends of the optimal stretch of each root."""
        top = self.after[0]
        return top.passing(np.zeros(top.left.size, dtype=np.int64), top.owner)

    def children(self, number: int, x: Floats) -> tuple[Floats, Floats]:
        """(children,) ends of the stretches in which the children of level ``number`` may share x, one per parent."""
        family, total, below = self.plan.levels[number].family, self.before[number], self.after[number + 1]
        assert family is not None and total is not None
        owner = total.owner
        passed = np.bincount(owner[total.start <= x[owner]], minlength=x.size)
        at = total.first[:-1] + np.maximum(passed - 1, 0)
        some = np.diff(total.first) > 0
        price = np.zeros(x.size, dtype=np.int64)
        price[some] = total.derivative[at[some]]
        return below.passing(family.spread(price), below.owner)


def exact_messages(plan: TreePlan, value: Floats) -> Messages | SparseMessages:
    """In shared tables where these are small enough."""
    return messages(plan, value) if plan.shared else sparse_messages(plan, value)


def sparse_messages(plan: TreePlan, value: Floats) -> SparseMessages:
    """From the leaves up; time N log^2 N or so per level of N segments."""
    order = plan.cached("turns", lambda: turns(plan))
    before: list[Lists | None] = []
    after: list[Lists] = []
    below: Lists | None = None
    for level, rounds in zip(reversed(plan.levels), reversed(order), strict=True):
        total = None
        if level.family is not None:
            assert below is not None
            total = _sum(level.family, below)
        below = _sparse_with_leaves(level, plan, total)
        for which, columns in rounds:
            below = _sparse_measured(below, plan.units[which], value[which], columns)
        before.append(total)
        after.append(below)
    return SparseMessages(tuple(reversed(before)), tuple(reversed(after)), plan)


def _sum(family: Generation, below: Lists) -> Lists:
    """Infimal convolution over siblings: all their segments in the order of derivatives.

    Where children are unbounded to the left, derivatives smaller than the largest of their first ones never occur; the
    sum begins with an endless segment of that derivative, and children stand at the ends of theirs.
    """
    n, parents = below.left.size, family.counts.size
    owner = below.owner
    of = family.spread(np.arange(parents))
    parent = of[owner]
    base = family.sum(below.left)
    head = None
    keep = np.ones(owner.size, dtype=bool)
    if np.isinf(base).any():
        endless = np.isinf(below.left)
        least = np.full(parents, np.iinfo(np.int64).min)
        np.maximum.at(least, of[endless], below.derivative[below.first[:-1][endless]])
        early = below.derivative <= least[parent]
        count = np.bincount(owner[early], minlength=n)
        place = below.left.copy()
        place[count > 0] = below.end[(below.first[:-1] + count - 1)[count > 0]]
        base = family.sum(place)
        keep = ~early
        head = np.flatnonzero(family.sum(endless.astype(np.float64)) > 0)
    length = (below.end - below.start)[keep]
    derivative, parent = below.derivative[keep], parent[keep]
    order = np.lexsort((derivative, parent))
    derivative, parent, length = derivative[order], parent[order], length[order]
    start, end = _running(base, parent, length)
    used = np.isfinite(start)
    derivative, parent, start, end = derivative[used], parent[used], start[used], end[used]
    if head is not None:
        parent = np.concatenate([head, parent])
        derivative = np.concatenate([least[head], derivative])
        start = np.concatenate([np.full(head.size, -np.inf), start])
        end = np.concatenate([base[head], end])
        order = np.argsort(parent, kind="stable")
        derivative, parent, start, end = derivative[order], parent[order], start[order], end[order]
    return Lists(_first(parent, parents), derivative, start, end, family.sum(below.left), family.sum(below.right))


def _running(base: Floats, parent: Integers, length: Floats) -> tuple[Floats, Floats]:
    """(start, end) of segments laid one after another from each parent's base. Running sums by doubling within each
    parent, so that no parent's rounding errors depend on the others."""
    m = parent.size
    place = np.arange(m) - np.searchsorted(parent, parent)
    total = length.copy()
    step = 1
    while step <= int(place.max(initial=0)):
        total[step:] += np.where(place[step:] >= step, total[:-step], 0.0)
        step *= 2
    end = base[parent] + total
    start = np.empty(m)
    start[1:] = end[:-1]
    fresh = place == 0
    start[fresh] = base[parent[fresh]]
    return start, end


def _sparse_with_leaves(level: LevelPlan, plan: TreePlan, total: Lists | None) -> Lists:
    """Before own terms: the children's sums cut to the bounds, and zero on their domain for leaves."""
    low, high = plan.lower[level.nodes], plan.upper[level.nodes]
    if level.inner is None:
        assert total is not None
        if level.cut is None:
            return total
        owner, derivative, start, end = total.owner, total.derivative, total.start, total.end
    else:
        leaf = np.ones(level.size, dtype=bool)
        leaf[level.inner] = False
        owner = np.flatnonzero(leaf)
        derivative, start, end = np.zeros(owner.size, dtype=np.int64), low[owner], high[owner]
        if total is not None:
            owner = np.concatenate([owner, level.inner[total.owner]])
            order = np.argsort(owner, kind="stable")
            owner = owner[order]
            derivative = np.concatenate([derivative, total.derivative])[order]
            start = np.concatenate([start, total.start])[order]
            end = np.concatenate([end, total.end])[order]
    start, end = np.maximum(start, low[owner]), np.minimum(end, high[owner])
    some = start < end
    return Lists(_first(owner[some], level.size), derivative[some], start[some], end[some], low, high)


def _sparse_measured(old: Lists, units: Integers, value: Floats, columns: Integers) -> Lists:
    """With ``units |x - value|`` added at ``columns``: segments split at the value, left parts down, right parts up."""
    n = old.left.size
    weight = np.zeros(n, dtype=np.int64)
    at = np.full(n, np.inf)
    weight[columns], at[columns] = units, value
    owner = old.owner
    weight, at = weight[owner], at[owner]
    start = np.column_stack([old.start, np.maximum(old.start, at)]).ravel()
    end = np.column_stack([np.minimum(old.end, at), old.end]).ravel()
    derivative = np.column_stack([old.derivative - weight, old.derivative + weight]).ravel()
    some = start < end
    owner = np.repeat(owner, 2)[some]
    return Lists(_first(owner, n), derivative[some], start[some], end[some], old.left, old.right)


def _first(owner: Integers, n: int) -> Integers:
    return np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=n))])
