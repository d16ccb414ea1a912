"""What the exact tree solver knows before it sees values: domains, integer weights, derivative tables, families."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dpmodel._types import Floats, Integers
from dpmodel.errors import InfeasibleError
from dpmodel.numerics.public_facts import PublicFacts
from dpmodel.numerics.trees.tree import Generation, Tree, TreeProblem

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
