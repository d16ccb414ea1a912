"""Recognise a tree in a likelihood's arrays, however its sums are spelled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from dpmodel._types import Floats, Integers, Mask
from dpmodel.released.form import LikelihoodForm, bounds_cross, canonical, picks
from dpmodel.released.trees import Tree, TreeProblem, ordered


def tree_of(form: LikelihoodForm) -> TreeProblem | None:
    """The form as a tree, or None.

    Each row of M, E and G must be a multiple of a sum of distinct variables, except for rows of E that say "a variable
    is the sum of others" (a multiple of ``x_p - sum x_c = 0``) or "two variables are equal". The sets that the rows
    sum must be nested or disjoint once every variable is written as the sum of those it consists of. Rows of E and
    G on such sets become fixed values and bounds of their nodes. Coefficients of one row are compared exactly.
    Linear terms and everything else: None. Sorting aside, the time is linear in the nonzeros. Bounds of a node that
    contradict each other stay as they are: solvers find no point.
    """
    if form.size == 0 or form.linear.any():
        return None
    heavy = (form.absolute > 0) | (form.square > 0)
    measured = _sums(form.matrix, heavy)
    bounds = _sums(form.inequality, np.ones(form.inequality.shape[0], dtype=bool))
    equal = _equalities(form)
    if measured is None or bounds is None or equal is None:
        return None
    if (form.inequality_value[bounds.empty] < 0).any():
        return None
    sets = (measured, equal.sums, bounds)
    place = _nodes(form.size, equal, sets)
    if place is None:
        return None
    tree, select, (at, fixed_at, bounds_at) = place

    scale = measured.scale
    rows = measured.rows
    lower, upper = np.full(tree.size, -np.inf), np.full(tree.size, np.inf)
    np.maximum.at(lower, select, form.lower)
    np.minimum.at(upper, select, form.upper)
    level = form.inequality_value[bounds.rows] / bounds.scale
    above = bounds.scale > 0
    np.minimum.at(upper, bounds_at[above], level[above])
    np.maximum.at(lower, bounds_at[~above], level[~above])
    fixed = form.equality_value[equal.sums.rows] / equal.sums.scale
    np.minimum.at(upper, fixed_at, fixed)
    np.maximum.at(lower, fixed_at, fixed)
    crossed = np.flatnonzero(lower > upper)  # by rounding only: one value from two spellings
    crossed = crossed[~bounds_cross(lower[crossed], upper[crossed])]
    lower[crossed] = upper[crossed] = (lower[crossed] + upper[crossed]) / 2
    return TreeProblem(
        tree=tree,
        node=at,
        value=form.value[rows] / scale,
        absolute=form.absolute[rows] * np.abs(scale),
        square=form.square[rows] * np.square(scale),
        lower=lower,
        upper=upper,
        select=select,
    )


def form_of_nodes(problem: TreeProblem) -> LikelihoodForm:
    """The same over all nodes of the tree, its sums as equalities."""
    return LikelihoodForm.of(
        picks(problem.node, problem.tree.size),
        problem.value,
        absolute=problem.absolute,
        square=problem.square,
        equality=problem.tree.consistency,
        lower=problem.lower,
        upper=problem.upper,
    )


@dataclass(frozen=True)
class _Sums:
    """Rows that are multiples of sums: row ``rows[i]`` of the form is ``scale[i]`` times the sum of the variables in
    row i of ``members``. ``empty`` : rows of the form without any variable."""

    members: sp.csr_array
    rows: Integers
    scale: Floats
    empty: Integers


def _taken(matrix: sp.csr_array, rows: Integers) -> sp.csr_array:
    return matrix if rows.size == matrix.shape[0] else matrix[rows]


def _sums(matrix: sp.csr_array, wanted: Mask) -> _Sums | None:
    """The wanted rows, or None when one is no multiple of a sum."""
    clean = canonical(matrix)
    length = np.diff(clean.indptr)
    rows = np.flatnonzero(wanted & (length > 0))
    part = _taken(clean, rows)
    scale = part.data[part.indptr[:-1]]
    if not np.array_equal(part.data, np.repeat(scale, np.diff(part.indptr))):
        return None
    return _Sums(part, rows, scale, np.flatnonzero(wanted & (length == 0)))


@dataclass(frozen=True)
class _Equalities:
    """``sums`` : rows that fix a sum. ``twins`` : (t, 2) variables that are equal. ``child, parent`` : (c,) children,
    and their parents, of the rows "parent = sum of children", of which there are ``families``."""

    sums: _Sums
    twins: Integers
    child: Integers
    parent: Integers
    families: int


def _equalities(form: LikelihoodForm) -> _Equalities | None:
    """The rows of E by kind, or None when one is of another kind."""
    E = canonical(form.equality)
    length = np.diff(E.indptr)
    empty = length == 0
    if form.equality_value[empty].any():
        return None
    filled = np.flatnonzero(~empty)
    part = _taken(E, filled)
    count = length[filled]
    first = np.repeat(part.data[part.indptr[:-1]], count)
    like = part.data == first
    if not (like | (part.data == -first)).all():
        return None
    starts = part.indptr[:-1]
    same = np.add.reduceat(like, starts, dtype=np.int64) if filled.size else np.zeros(0, dtype=np.int64)
    summing = same == count
    other = filled[~summing]
    if form.equality_value[other].any() or (np.minimum(same, count - same)[~summing] > 1).any():
        return None
    sums = _sums(form.equality, np.isin(np.arange(E.shape[0]), filled[summing]))
    if sums is None:
        return None
    twin = ~summing & (count == 2)
    family = ~summing & (count > 2)
    lone = np.where(same == 1, True, False)  # The parent is the one entry of its sign: the first, or unlike it.
    is_parent = like == np.repeat(lone, count)
    of_family = np.repeat(family, count)
    parent = part.indices[of_family & is_parent]  # One for each family, in order.
    child = part.indices[of_family & ~is_parent]
    return _Equalities(
        sums,
        part.indices[np.repeat(twin, count)].reshape(-1, 2).astype(np.int64),
        child.astype(np.int64),
        np.repeat(parent.astype(np.int64), count[family] - 1),
        int(family.sum()),
    )


class _Place(NamedTuple):
    """``select`` : node of each variable. ``at`` : for each family of sums the node of each of its rows."""

    tree: Tree
    select: Integers
    at: tuple[Integers, ...]


def _nodes(variables: int, equal: _Equalities, sums: tuple[_Sums, ...]) -> _Place | None:
    """A tree with a node for each variable and each set that is summed, or None when they do not nest."""
    twins = equal.twins  # variables that must be equal are one node
    graph = sp.coo_array((np.ones(twins.shape[0]), (twins[:, 0], twins[:, 1])), shape=(variables, variables))
    kinds, kind = connected_components(graph, directed=False)
    up = np.full(kinds, -1, dtype=np.int64)
    child, parent = kind[equal.child], kind[equal.parent]
    up[child] = parent
    is_parent = np.zeros(kinds, dtype=bool)
    is_parent[parent] = True
    once = np.bincount(child, minlength=kinds).max(initial=0) <= 1
    if not once or int(is_parent.sum()) != equal.families:
        return None
    base = ordered(up)
    if base is None:
        return None
    single = [np.diff(s.members.indptr) == 1 for s in sums]
    at = [np.full(s.rows.size, -1, dtype=np.int64) for s in sums]
    if all(one.all() for one in single):
        for s, places in zip(sums, at, strict=True):
            places[:] = base.position[kind[s.members.indices]]
        return _Place(base.tree, base.position[kind], tuple(at))

    # Sets over the leaves of the tree so far: first its own inner nodes, then the rows that sum several variables.
    inner, to_leaves = np.flatnonzero(~base.tree.is_leaf), base.tree.incidence
    onto = to_leaves[base.position[kind]]
    several = [
        canonical(abs(s.members[np.flatnonzero(~one)]).sign() @ onto) for s, one in zip(sums, single, strict=True)
    ]
    if any((part.data != 1).any() for part in several):
        return None
    several.insert(0, to_leaves[inner])
    leaf_node = base.tree.leaves
    parts = [part for part in several if part.shape[0]]
    family = _laminar(parts[0] if len(parts) == 1 else sp.csr_array(sp.vstack(parts, format="csr")))
    if family is None:
        return None
    node_of = np.empty(kinds, dtype=np.int64)
    node_of[leaf_node] = family.leaf
    node_of[inner] = family.row[: inner.size]
    select = node_of[base.position[kind]]
    done = inner.size
    for s, one, places in zip(sums, single, at, strict=True):
        more = int((~one).sum())
        places[~one] = family.row[done : done + more]
        done += more
        starts = s.members.indptr[:-1][one]
        places[one] = select[s.members.indices[starts]]
    return _Place(family.tree, select, tuple(at))


class _Family(NamedTuple):
    """``row`` : node of each row, ``leaf`` : node of each column."""

    tree: Tree
    row: Integers
    leaf: Integers


def _laminar(sets: sp.csr_array) -> _Family | None:
    """The tree of 0/1 rows with two or more entries each, if any two are nested or disjoint.

    List the rows of each column by falling size, ties in one fixed order, and let the predecessor of a row in a column
    be the one before it. The family is laminar if and only if each row has one predecessor throughout. If it does
    and rows A before B share a column, then A is reached from B by predecessors, and these steps are the same in
    all columns of B: so B lies within A. If it is laminar, the rows of each column are a chain, and the
    predecessor of B is the last row before B that contains B, whatever the column. Equal sets are neighbours.
    """
    count, columns = sets.shape
    size = np.diff(sets.indptr)
    by_size = np.argsort(-size, kind="stable")
    back = np.empty(count, dtype=np.int64)
    back[by_size] = np.arange(count)
    # Rows by falling size, then column by column: scipy's transposition keeps the rows' order.
    ranked = sp.csr_array((np.ones(sets.nnz, dtype=np.int8), sets.indices, sets.indptr), shape=sets.shape)[by_size]
    by_column = ranked.tocsc()
    rows, starts = by_column.indices, by_column.indptr
    before = np.empty_like(rows)
    before[1:] = rows[:-1]
    before[starts[:-1][np.diff(starts) > 0]] = -1
    above = np.empty(count, dtype=np.int64)
    above[rows] = before
    if not np.array_equal(above[rows], before):
        return None

    size = size[by_size]
    twin = (above >= 0) & (size == size[above])
    same = np.where(twin, above, np.arange(count))  # Towards the first of equal sets, by doubling.
    while True:
        further = same[same]
        if np.array_equal(further, same):
            break
        same = further
    sets_kept = np.flatnonzero(~twin)
    number = np.empty(count, dtype=np.int64)
    number[sets_kept] = np.arange(sets_kept.size)
    node = number[same]

    # Nodes: the distinct sets, then the columns. Siblings are to stand in the order of their first columns.
    up_set = above[sets_kept]
    up_set = np.where(up_set >= 0, node[up_set], -1)
    up_leaf = np.full(columns, -1, dtype=np.int64)
    filled = np.diff(starts) > 0
    up_leaf[filled] = node[rows[starts[1:][filled] - 1]]
    first = np.concatenate([ranked.indices[ranked.indptr[:-1]][sets_kept], np.arange(columns)])
    order = np.argsort(first, kind="stable")
    rank = np.empty(order.size, dtype=np.int64)
    rank[order] = np.arange(order.size)
    up = np.concatenate([up_set, up_leaf])[order]
    up[up >= 0] = rank[up[up >= 0]]
    found = ordered(up)
    if found is None:  # Not reached: parents are larger than their children.
        return None
    position = found.position[rank]
    return _Family(found.tree, position[node[back]], position[sets_kept.size :])
