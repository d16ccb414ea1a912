"""Hierarchies such as nation, state, county: trees with names, from a parent column or nested ones, and their fits."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, Labels
from dpmodel.errors import SpecificationError
from dpmodel.marks.dataset.open_table import columns_of
from dpmodel.marks.domain import elements
from dpmodel.marks.layout import labels_of
from dpmodel.marks.noisy import Noisy
from dpmodel.released.faces.consistent import (
    Consistent,
    Round,
    box,
    checked_noisy,
    flattened,
    public_array,
    rounded_tree,
)
from dpmodel.released.faces.levels import MeasuredTree
from dpmodel.released.faces.refits import AUTO
from dpmodel.released.faces.tree_query import TreeOfSums, known_nodes
from dpmodel.released.form import picks
from dpmodel.released.trees import Tree

Names = tuple[Hashable, ...]


def from_parents(table: Any, parents: Any, name: str, parent: str) -> tuple[Names, Tree]:
    """Names in breadth-first order, and their tree, from the parent of each."""
    if parents is not None:
        names, above = elements(table), elements(parents)
    elif isinstance(table, Mapping) and not {name, parent} <= set(table):
        names, above = list(table.keys()), list(table.values())
    else:
        names, above = columns_of(
            table,
            (name, parent),
            "{child: parent}, name= and parent= of the columns, or columns= of nested ones",
        )
    if len(names) != len(above):
        raise SpecificationError(f"{len(names)} names and {len(above)} parents", remedy="one parent per name")
    number = _numbered(names)
    up = np.full(len(names), -1, dtype=np.int64)
    for i, each in enumerate(above):
        if missing(each):
            continue
        if not isinstance(each, Hashable) or each not in number:
            raise SpecificationError(
                f"{names[i]!r} has the parent {each!r}, which is not a name",
                remedy="every parent in the list of names; None (or NaN) as the parent of a root",
            )
        up[i] = number[each]
    if not names:
        raise SpecificationError("a hierarchy without nodes", remedy="at least one name")
    tree, order, _ = Tree.of_parents(up, names)
    return tuple(names[i] for i in order.tolist()), tree


def from_columns(table: Any, columns: tuple[str, ...]) -> tuple[Names, Tree]:
    """Names (paths, where names repeat) in breadth-first order, and their tree, from rows of leaves."""
    if not columns:
        raise SpecificationError("no nested columns", remedy="columns=('nation', 'state', 'county'), top first")
    rows = list(zip(*columns_of(table, columns, "nested columns, top first"), strict=True))
    paths: dict[tuple[Any, ...], int] = {}
    up: list[int] = []
    leaves: set[tuple[Any, ...]] = set()
    for row in rows:
        depth = next((i for i, each in enumerate(row) if missing(each)), len(row))
        if not depth or any(not missing(each) for each in row[depth:]):
            raise SpecificationError(f"row {row!r} has a gap", remedy="values missing at the end of a row only")
        if row[:depth] in leaves:
            raise SpecificationError(f"{row[:depth]!r} is listed twice", remedy="one row per leaf")
        leaves.add(row[:depth])
        above = -1
        for end in range(1, depth + 1):
            found = paths.get(row[:end])
            if found is None:
                found = paths[row[:end]] = len(up)
                up.append(above)
            above = found
    listed = list(paths)
    if not listed:
        raise SpecificationError("a hierarchy without nodes", remedy="at least one name")
    tree, order, _ = Tree.of_parents(up)
    inner = next((listed[i] for i, child in zip(order.tolist(), tree.children.tolist(), strict=True)
                  if child and listed[i] in leaves), None)  # fmt: skip
    if inner is not None:
        raise SpecificationError(f"{inner!r} is a leaf in one row and has parts in another", remedy="name the rest")
    unique = len({path[-1] for path in listed}) == len(listed)
    names: Sequence[Hashable] = [path[-1] for path in listed] if unique else listed
    return tuple(names[i] for i in order.tolist()), tree


def _numbered(names: Sequence[Any]) -> dict[Hashable, int]:
    number: dict[Hashable, int] = {}
    for i, each in enumerate(names):
        if not isinstance(each, Hashable) or missing(each):
            raise SpecificationError(f"name number {i} is {each!r}", remedy="text or numbers")
        if number.setdefault(each, i) != i:
            raise SpecificationError(f"{each!r} is listed twice", remedy="one row per node, and different names")
    return number


def missing(value: Any) -> bool:
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and value != value)


# ------------------------------------------------------------------ the hierarchy


@dataclass(frozen=True, eq=False, repr=False)
class Hierarchy(TreeOfSums):
    """A tree (or forest) of named nodes, each the sum of its children.

    ``names`` : (nodes,) in breadth-first order: the order of all arrays over nodes. ``levels`` : names of the levels,
    top first. ``tree`` : the nodes in arrays.
    """

    names: tuple[Hashable, ...]
    levels: tuple[Hashable, ...]
    tree: Tree

    def __repr__(self) -> str:
        return f"<Hierarchy: {self.size} nodes in the levels {', '.join(map(str, self.levels))}>"

    @cached_property
    def leaves(self) -> tuple[Hashable, ...]:
        """Names of the nodes without children, in the order of the columns of ``matrix``."""
        return tuple(self.names[i] for i in np.flatnonzero(self.tree.is_leaf))

    def level(self, level: Hashable) -> tuple[Hashable, ...]:
        """Names of the nodes of a level, in the order of its numbers."""
        return self.names[self._span(level)]

    def index(self, name: Hashable) -> int:
        """Number of a node. A path (top, ..., name) where the name alone is not unique.

        Raises
        ------
        SpecificationError
            For names of no node or of several.
        """
        found = self._numbers.get(name) if isinstance(name, Hashable) else None
        if found is None:
            found = self._short.get(name) if isinstance(name, Hashable) else None
        if found is None:
            levels = ", ".join(map(repr, self.levels[:9]))
            raise SpecificationError(
                f"no node is called {name!r}", remedy=f"a name in hierarchy.names (levels are called {levels})"
            )
        if found < 0:
            paths = [n for n in self.names if isinstance(n, tuple) and n[-1] == name]
            raise SpecificationError(
                f"{len(paths)} nodes are called {name!r}", remedy="their paths: " + ", ".join(map(repr, paths[:3]))
            )
        return found

    def _in_order(self, values: Any) -> Any:
        """Values of the leaves in the order of ``leaves``; those with names are matched by them."""
        if isinstance(values, Mapping):
            names, numbers = list(values), list(values.values())
        else:
            axes = labels_of(values, getattr(values, "shape", ()))
            names, numbers = list(axes[0][1]) if len(axes) == 1 else [], values
            # pandas numbers rows that nobody named.
            if not names or (names == list(range(len(names))) and 0 not in self._numbers):
                return values
            numbers = elements(values)
        number = self._paths | self._short | self._numbers
        place = {number.get(name, -1): i for i, name in enumerate(names)}
        wanted = np.flatnonzero(self.tree.is_leaf).tolist()
        if len(names) != len(wanted) or set(place) != set(wanted):
            raise SpecificationError(
                f"{len(names)} values with names, not one for each of the {len(wanted)} leaves",
                why="which names they have is not shown, as it may be private",
                remedy="one value for each name in hierarchy.leaves, or for each path (top, ..., leaf)",
            )
        return [numbers[place[leaf]] for leaf in wanted]

    def fit(
        self,
        noisy: Noisy | MeasuredTree | Mapping[Hashable, Noisy | Sequence[Noisy]],
        *,
        known: Mapping[Hashable, Any] | None = None,
        structural_zeros: Iterable[Hashable] = (),
        nonneg: bool = True,
        bounds: Any = None,
        alpha: float = 1.0,
        form: str = AUTO,
    ) -> FittedHierarchy:
        """Consistent numbers fitted to noisy ones.

        Parameters
        ----------
        noisy : what ``measure`` of this hierarchy returned; all nodes in the order of ``names``; or {level or node:
            Noisy}, and several for one as a list. Labelled ones (a pandas Series indexed by node) are matched by name
            and may leave nodes out.
        known : {level or node: number(s)}, public: they hold exactly.
        structural_zeros : nodes that are 0, with all below them.
        nonneg : leaves are at least 0. bounds : (low, high) of the leaves, numbers or (leaves,) arrays.
        alpha, form : as in ``neg_log_likelihood``; "auto" is least squares with bounds from the top level
            down (``LeastSquaresTree``): no level is expected to be less accurate than published. Named forms are
            optima: the plan lists the levels that come out worse.

        Raises
        ------
        SpecificationError
            For unknown names, measurements of the wrong size or without a distribution.
        InfeasibleError
            For known numbers that contradict each other, the bounds or the structural zeros.
        """
        parts = []
        fixed: dict[int, float] = {}
        if isinstance(noisy, MeasuredTree):
            parts.append(self._taken(noisy))
            if noisy.total is not None:
                fixed[0] = noisy.total
            noisy = {}
        elif not isinstance(noisy, Mapping):
            noisy = {None: noisy}
        for key, given in noisy.items():
            for each in given if isinstance(given, list | tuple) else [given]:
                parts.append(self._measured(key, each))
        leaves = np.flatnonzero(self.tree.is_leaf)
        low, high = np.full(self.size, -np.inf), np.full(self.size, np.inf)
        low[leaves], high[leaves] = box(leaves.size, nonneg, bounds)
        zeroed = [structural_zeros] if isinstance(structural_zeros, str) else structural_zeros
        zeros = np.array([self.index(name) for name in zeroed], dtype=np.int64)
        for key, value in (known or {}).items():
            nodes = self._nodes(key)
            values = public_array(value, f"known[{key!r}]")
            if values.size != nodes.size:
                what = f"known[{key!r}]: {values.size} numbers for {nodes.size} nodes"
                raise SpecificationError(what, remedy="one number for every node")
            for node, number in zip(nodes.tolist(), values.tolist(), strict=True):
                if fixed.setdefault(node, number) != number:
                    raise SpecificationError(
                        f"{self.names[node]!r} is known to be {fixed[node]:.12g} and {number:.12g}",
                        remedy="one of them",
                    )
        low, high = known_nodes(self.tree, low, high, zeros, fixed, self.names)
        words = f"a hierarchy of {self.size} nodes, {len(self.levels)} levels"
        return FittedHierarchy(*self._fitted(parts, low, high, words, alpha, form), hierarchy=self)

    def _measured(self, key: Hashable, noisy: Any) -> tuple[Noisy, Integers]:
        what = "noisy" if key is None else f"noisy[{key!r}]"
        noisy = checked_noisy(noisy, what)
        nodes = np.arange(self.size) if key is None else self._nodes(key)
        name = "hierarchy" if key is None else str(key)
        labels = noisy.labels[0][1] if len(noisy.labels) == 1 else ()
        # pandas numbers rows that nobody named.
        if labels and (labels != tuple(range(len(labels))) or 0 in self._numbers):
            said = [self.index(label) for label in labels]
            outside = sorted(set(said) - set(nodes.tolist()))
            if outside:
                raise SpecificationError(
                    f"{what} has {self.names[outside[0]]!r}, which is not in {key!r}",
                    remedy="labels among those nodes, or another key",
                )
            if len(set(said)) != len(said):
                raise SpecificationError(f"{what} names a node twice", remedy="a list of two measurements")
            nodes = np.array(said, dtype=np.int64)
        if noisy.size != nodes.size:
            raise SpecificationError(
                f"{what}: {noisy.size} noisy numbers for {nodes.size} nodes", remedy="in the order of hierarchy.level()"
            )
        return flattened(noisy, name=name), nodes

    def _nodes(self, key: Hashable) -> Integers:
        """Node numbers of a level or of one node."""
        if key in self.levels:
            return np.arange(self.size, dtype=np.int64)[self._span(key)]
        return np.array([self.index(key)], dtype=np.int64)

    def _span(self, level: Hashable) -> slice:
        if level not in self.levels:
            raise SpecificationError(f"no level is called {level!r}", remedy=", ".join(map(repr, self.levels)))
        return self.tree.levels[self.levels.index(level)]

    @cached_property
    def _numbers(self) -> dict[Hashable, int]:
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def _paths(self) -> dict[Hashable, int]:
        """(top, ..., name) -> leaf."""
        paths: list[Names] = []
        for name, up in zip(self.names, self.tree.parent.tolist(), strict=True):
            paths.append((*(paths[up] if up >= 0 else ()), name[-1] if isinstance(name, tuple) else name))
        return {paths[i]: i for i in np.flatnonzero(self.tree.is_leaf).tolist()}

    @cached_property
    def _short(self) -> dict[Hashable, int]:
        """Last name of a path -> node; -1 where several nodes have it."""
        out: dict[Hashable, int] = {}
        for i, name in enumerate(self.names):
            if isinstance(name, tuple):
                out[name[-1]] = -1 if name[-1] in out else i
        return out


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FittedHierarchy(Consistent):
    """Consistent numbers of a hierarchy: ``solve()``, then read them by name."""

    hierarchy: Hierarchy

    def read(self, name: Hashable) -> float:
        """The number of one node."""
        return float(self.x[self.hierarchy.index(name)])

    def level(self, level: Hashable) -> Floats:
        """The numbers of a level, in the order of ``hierarchy.level``."""
        return self.x[self.hierarchy._span(level)]

    def to_dict(self) -> dict[Hashable, float]:
        """{name: number} of all nodes."""
        return dict(zip(self.hierarchy.names, self.x.tolist(), strict=True))

    def functions(self, of: Any) -> tuple[sp.csr_array, tuple[int, ...]] | None:
        """A level, a name, or a list of names."""
        if isinstance(of, list) and of and not any(isinstance(each, list | float | int) for each in of):
            nodes = np.array([self.hierarchy.index(name) for name in of], dtype=np.int64)
        elif isinstance(of, str | tuple) or (isinstance(of, Hashable) and of in self.hierarchy.levels):
            nodes = self.hierarchy._nodes(of)
        else:
            return None
        return picks(nodes, self.hierarchy.size), (nodes.size,)

    def _variables(self, x: Floats) -> Mapping[str, Any]:
        return {str(level): x[self.hierarchy._span(level)] for level in self.hierarchy.levels}

    def _labels(self) -> Mapping[str, Labels]:
        def text(name: Hashable) -> Hashable:
            return " / ".join(map(str, name)) if isinstance(name, tuple) else name

        levels = self.hierarchy.levels
        return {str(level): ((str(level), tuple(map(text, self.hierarchy.level(level)))),) for level in levels}

    def _rounded(self, x: Floats, round: Round, seed: int) -> Floats:
        return rounded_tree(self.hierarchy.tree, x, self._form.lower, self._form.upper, round, seed)


def hierarchy(
    table: Any,
    parents: Any = None,
    *,
    columns: Sequence[str] | None = None,
    name: str = "name",
    parent: str = "parent",
    levels: Sequence[Hashable] | None = None,
) -> Hierarchy:
    """A hierarchy from public names.

    Parameters
    ----------
    table : one of: {child: parent} (None for a root); a table with a column of names and one of their parents, called
        ``name`` and ``parent``; names, with ``parents`` as a second array; or with ``columns`` a table whose rows are
        the leaves, such as counties with their state and nation. Tables are mappings of columns or frames.
    columns : names of the nested columns, top first. Cells missing at the end of a row make a leaf higher up. Where
        names repeat in different places, paths name all nodes.
    levels : names of the levels, top first; default: ``columns``, or 0, 1, 2 ...

    Raises
    ------
    SpecificationError
        For a cycle, a parent that is not a name, names given twice, rows with gaps, and missing columns.

    Examples
    --------
    >>> import dpmodel as dpm
    >>> places = dpm.released.hierarchy({"country": None, "north": "country", "south": "country", "port": "south"})
    >>> places.level(1)
    ('north', 'south')
    >>> places.answers({"north": 2, "port": 3})
    array([5., 2., 3., 3.])
    """
    if columns is not None:
        names, tree = from_columns(table, tuple(columns))
        default: Sequence[Hashable] = tuple(columns)[: len(tree.levels)]
    else:
        names, tree = from_parents(table, parents, name, parent)
        default = range(len(tree.levels))
    chosen = tuple(default if levels is None else levels)
    if len(chosen) != len(tree.levels) or len(set(chosen)) != len(chosen):
        raise SpecificationError(f"{len(chosen)} names of levels for {len(tree.levels)} levels", remedy="one for each")
    return Hierarchy(names, chosen, tree)
