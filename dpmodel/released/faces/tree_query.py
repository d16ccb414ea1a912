"""The tree of sums over a histogram: what to measure for ranges, and how to read them back."""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import cvxpy as cp
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, Labels
from dpmodel.errors import SpecificationError
from dpmodel.marks.noisy import Noisy
from dpmodel.marks.private import Private
from dpmodel.marks.records import Neighbors, Records
from dpmodel.privacy import Budget, noise_source, validate_privacy
from dpmodel.released.faces.consistent import (
    Consistent,
    Round,
    assembled,
    box,
    checked_noisy,
    finite,
    flattened,
    public_array,
    refuse_contradiction,
    rounded_tree,
)
from dpmodel.released.faces.levels import LevelSplit, MeasuredTree, Weights, numbers_of, private_sums
from dpmodel.released.faces.measure import checked_kind, planned, publish
from dpmodel.released.faces.refits import AUTO, Setting, settled
from dpmodel.released.form import picks
from dpmodel.released.model import Postprocessing
from dpmodel.released.trees import Tree, TreeProblem

# ------------------------------------------------------------------ sums over a known tree


class TreeOfSums:
    """Sums of leaf values over a ``tree``: what histograms and hierarchies share."""

    tree: Tree
    levels: Sequence[Hashable]

    @property
    def size(self) -> int:
        """Number of nodes."""
        return self.tree.size

    @property
    def sensitivity(self) -> int:
        """How far one record in one leaf moves all nodes in the 1-norm (add-remove): the number of levels."""
        return len(self.tree.levels)

    @property
    def matrix(self) -> sp.csr_array:
        """(nodes, leaves) 0/1 matrix: nodes as sums of leaves."""
        return self.tree.incidence

    def _in_order(self, values: Any) -> Any:
        """Values of the leaves in their order, where they came with names; others as they are."""
        return values

    def answers(self, leaf_values: Any) -> Floats:
        """(nodes,) the sums of public leaf values: (leaves,) in their order, or by name where leaves have names."""
        values = public_array(self._in_order(leaf_values), "leaf_values")
        if values.size != self.tree.leaves.size:
            raise SpecificationError(f"{values.size} values for {self.tree.leaves.size} leaves", remedy="one per leaf")
        return self.tree.sums(values)

    def query(self, leaf_values: Any) -> cp.Expression:
        """The affine expression (nodes,) of Private leaf counts (or of a CVXPY vector), for ``measure``. Under
        "replace-one" ``private`` needs less noise: it knows that the total stays, and this does not."""
        leaves = self.tree.leaves.size
        if tuple(leaf_values.shape) != (leaves,):
            raise SpecificationError(f"leaf counts of shape {tuple(leaf_values.shape)}", remedy=f"shape ({leaves},)")
        named: Labels = getattr(leaf_values, "labels", ())
        wanted: tuple[Hashable, ...] = getattr(self, "leaves", ())
        if len(named) == 1 and wanted:
            given = tuple(named[0][1])
            last = tuple(name[-1] if isinstance(name, tuple) else name for name in wanted)
            if given not in (wanted, last, tuple(range(leaves))):
                raise SpecificationError(
                    "leaf counts have other names than the leaves, or another order",
                    why="an expression of them is matched by place",
                    remedy="categories as in hierarchy.leaves: Dataset(frame, domain={column: hierarchy.leaves})",
                )
        return cp.Constant(self.matrix, name="tree of sums") @ leaf_values

    def private(
        self, counts: Any, *, neighbors: Neighbors = "replace-one", name: str = "counts", **attributes: Any
    ) -> Private:
        """The node sums of private counts, for ``dpmodel.measure`` (one scale of noise, an even split of epsilon) or a
        problem of one's own: as ``query`` of a Private vector, without its matrix.

        Parameters
        ----------
        counts : (leaves,) array, each record adding one to one entry; None to plan without data. {name: count} or a
            pandas Series by name where leaves have names.
        neighbors : "add-remove", or "replace-one", where the number of records is public.
        attributes : of ``Private``, such as ``integer=True`` for whole noise.
        """
        leaves = self._in_order(counts)
        return private_sums(self.tree, leaves, Records.of_table(None, neighbors, None), name, attributes)

    def split(
        self,
        epsilon: float,
        delta: float = 0.0,
        *,
        weights: Weights = "levels",
        neighbors: Neighbors = "replace-one",
        distribution: str = "auto",
    ) -> LevelSplit:
        """How ``measure`` with these arguments divides epsilon over the levels, and what error is expected. Public."""
        loss = validate_privacy(epsilon, delta)
        return LevelSplit.of(self.tree, tuple(self.levels), loss, weights, neighbors, distribution)

    def measure(
        self,
        counts: Any,
        epsilon: float,
        delta: float = 0.0,
        *,
        weights: Weights = "levels",
        neighbors: Neighbors | None = None,
        distribution: str = "auto",
        name: str | None = None,
        budget: Budget | None = None,
        rng: Any = None,
    ) -> MeasuredTree:
        """Node sums with noise of unequal scales, for ``fit``: the split with the least expected error of the fit.

        Privacy, and how epsilon is split: ``LevelSplit``. One release, charged once.

        Parameters
        ----------
        counts : (leaves,) whole numbers, each record adding one to one of them; by name where leaves have names. Or
            ``Dataset.count`` of the column of leaves, or another ``Private`` vector of integers with a bound on how far
            a record moves it.
        epsilon, delta : as in ``dpmodel.measure``, for all levels together.
        weights : whose errors count. "levels": the mean squared error of every level alike (an even split is nearly
            best). "nodes": every node alike, so mostly the leaves. Or {level: positive number} for the mean squared
            error of each level.
        neighbors : "add-remove", or "replace-one", where the number of records is public: the top node is given as it
            is, and ``fit`` keeps it. None: those of a Dataset, "replace-one" of arrays.
        distribution : "auto" takes the less of the expected errors with Laplace and, with delta > 0, Gaussian noise;
            or a name, as in ``dpmodel.measure``; discrete ones keep numbers whole.
        name, budget, rng : as in ``dpmodel.measure``.

        Raises
        ------
        SpecificationError, MissingValueError, BudgetExceededError
            Before anything is spent.
        """
        loss, parameter = validate_privacy(epsilon, delta), isinstance(counts, Private)
        kind = checked_kind(distribution, loss.delta, budget)
        if parameter:
            neighbors = self._relation(counts, neighbors)
        said, most = neighbors or "replace-one", counts.l1 if parameter and counts.total is None else None
        split = LevelSplit.of(self.tree, tuple(self.levels), loss, weights, said, kind, most)
        nodes, leaves, name = np.flatnonzero(split.weights), counts, name or (counts.name() if parameter else "counts")
        if parameter:
            private = self._in_place(counts, nodes)
        else:
            leaves = self._in_order(counts)
            whole = {"integer": True} if split.distribution.startswith("discrete") else {}
            private = private_sums(self.tree, leaves, Records.of_table(None, said, None), name, whole, nodes)
        plan = planned(private, name, *loss).weighted(split.weights[nodes], *split.moved)
        noisy = publish(plan, private, name, loss, split.distribution, noise_source(rng), budget)
        total = counts.total if parameter else None
        if split.total_is_public and not parameter:  # exactly, so that it is the same whoever is replaced
            total = math.fsum(np.clip(np.asarray(numbers_of(leaves)), -1e290, 1e290).tolist())
        return MeasuredTree(noisy, nodes, total if split.total_is_public else None, split, self)

    def _relation(self, counts: Private, neighbors: Neighbors | None) -> Neighbors:
        """The relation of ``counts``, which are whole numbers of the leaves."""
        if counts.size != self.tree.leaves.size and not (counts.labels and getattr(self, "leaves", ())):
            raise SpecificationError(
                f"{counts.size} counts for {self.tree.leaves.size} leaves", remedy="one per leaf, in their order"
            )
        if not counts.attributes["integer"] or not math.isfinite(counts.l1):
            raise SpecificationError(
                f"{counts.name()} is not declared whole, or has no bound l1",
                why="how far a record moves the sums of leaves follows from it",
                remedy="Dataset.count(by=...), or Private(counts, unit='entry', linf=1, integer=True)",
            )
        if neighbors not in (None, counts.records.neighbors):
            raise SpecificationError(
                f"neighbors={neighbors!r}, and {counts.records.neighbors!r} of {counts.name()}",
                why="what a record may change is said once, where the counts are declared",
                remedy="no neighbors= here",
            )
        return counts.records.neighbors

    def _in_place(self, counts: Private, nodes: Integers) -> cp.Expression:
        """The sums at ``nodes`` of ``counts``, matched by name where both have names."""
        matrix = self.matrix[nodes]
        if counts.labels and getattr(self, "leaves", ()):
            each = [axis for _, axis in counts.labels]
            names = each[0] if len(each) == 1 else itertools.product(*each)
            matrix = matrix[:, np.argsort(self._in_order({name: place for place, name in enumerate(names)}))]
        return cp.Constant(sp.csr_array(matrix), name="tree of sums") @ cp.vec(counts, order="C")

    def _taken(self, measured: MeasuredTree) -> tuple[Noisy, Integers]:
        """The numbers and their nodes, if they were measured on this tree."""
        of = measured.of
        same = of is self or (
            np.array_equal(of.tree.parent, self.tree.parent) and getattr(of, "names", ()) == getattr(self, "names", ())
        )
        if not same:
            raise SpecificationError(
                "these sums were measured on another tree", remedy="fit of the tree that measured them"
            )
        return measured.noisy, measured.nodes

    def _fitted(
        self, parts: Any, low: Floats, high: Floats, words: str, alpha: float, form: str
    ) -> tuple[Postprocessing, Setting]:
        """The model of measured nodes, ``parts`` (Noisy, nodes), within the bounds, and how it is spelled.

        Contradictions of known numbers have been refused before (``known_nodes``, ``refuse_contradiction``): they are
        not looked for again, and no solver has to look for the tree.
        """
        tree, rows = self.tree, [(noisy, picks(nodes, self.size)) for noisy, nodes in parts]

        def build(setting: Setting) -> Postprocessing:
            bounds = {"equality": tree.consistency, "lower": low, "upper": high}
            arrays, measurements, places = assembled(rows, setting, self.size, **bounds)
            description = f"post-processing: {words}; it costs no privacy"
            model = Postprocessing(arrays, measurements, places, description=description)
            model.cached("consistent", lambda: True)
            node = arrays.matrix.indices.astype(np.int64)
            noise = (arrays.value, arrays.absolute, arrays.square)
            model.cached("tree problem", lambda: TreeProblem(tree, node, *noise, low, high, np.arange(tree.size)))
            return model

        return settled(build, alpha, form)


def known_nodes(
    tree: Tree,
    low: Floats,
    high: Floats,
    zeros: Integers,
    fixed: Mapping[int, float],
    names: Sequence[Hashable],
) -> tuple[Floats, Floats]:
    """(nodes,) bounds with known nodes and structural zeros (and all below these) put in.
    Errors: InfeasibleError, unless some consistent numbers lie within them: a node's own bounds must meet the range of
    its children's sum."""
    low, high = low.copy(), high.copy()
    zero = np.zeros(tree.size, dtype=bool)
    zero[zeros] = True
    for level in tree.levels[1:]:
        zero[level] |= zero[tree.parent[level]]
    for place in np.flatnonzero(zero).tolist():
        refuse_contradiction(repr(names[place]), 0.0, "it has to be", low[place], high[place])
    low[zero] = high[zero] = 0.0
    for place, value in fixed.items():
        refuse_contradiction(repr(names[place]), value, "it has to be", low[place], high[place])
        low[place] = high[place] = value
    # The range of the sum of each node's children, from the bottom up.
    least, most = low.copy(), high.copy()
    for level in reversed(tree.levels[1:]):
        up, first = tree.parent[level], int(tree.parent[level][0])
        here = np.unique(up)
        below, above = (np.bincount(up - first, weights=ends[level])[here - first] for ends in (least, most))
        own = low[here] == high[here]
        for node, a, b in zip(here[own].tolist(), below[own].tolist(), above[own].tolist(), strict=True):
            refuse_contradiction(repr(names[node]), float(low[node]), "its parts sum to", a, b)
        # Known parts decide their sum to the last digit.
        sums = np.where(own, np.clip(low[here], below, above), 0.0)
        low[here], high[here] = np.where(own, sums, low[here]), np.where(own, sums, high[here])
        least[here], most[here] = np.where(own, sums, below), np.where(own, sums, above)
    return low, high


# ------------------------------------------------------------------ the tree over a histogram


@dataclass(frozen=True, eq=False)
class TreeQuery(TreeOfSums):
    """Sums over consecutive blocks of bins, blocks of blocks, up to the whole: a node is the sum of its children.

    Nodes are numbered breadth first: 0 is the total, the last ``bins`` are the histogram. The last block of a level
    may be smaller where the sizes do not divide.

    ``sensitivity`` : one record that sits in one bin moves every level by one, so the answers by ``height`` in the
    1-norm and sqrt(height) in the 2-norm (add-remove; replace-one: twice and sqrt(2) times that).
    """

    bins: int
    branching: int = 2
    tree: Tree = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tree", Tree.complete(self.bins, self.branching))

    @property
    def levels(self) -> range:  # type: ignore[override]
        """Numbers of the levels, top first."""
        return range(self.height)

    @property
    def height(self) -> int:
        """Number of levels, leaves and root included."""
        return len(self.tree.bounds) - 1

    def by_level(self, values: Any) -> Floats:
        """(nodes,) from one number per level, top first: such as scales."""
        each = np.asarray(values, dtype=np.float64).ravel()
        if each.size != self.height:
            raise SpecificationError(f"{each.size} numbers for {self.height} levels", remedy="one per level, top first")
        return np.repeat(each, np.diff(self.tree.bounds))

    # ------------------------------------------------------------------ ranges of the noisy tree
    def covering(self, start: int, stop: int) -> Integers:
        """The nodes, one level after the other, whose sum is the range ``start:stop``."""
        first, last = self._checked(start, stop)
        out = [np.arange(a[0], b[0]) for a, b in self._pieces(first, last)]
        return np.concatenate(out) if out else np.zeros(0, dtype=np.int64)

    def read_raw(self, noisy: Noisy, start: Any, stop: Any) -> Any:
        """Ranges ``start:stop`` as sums of noisy nodes, at most 2 (branching - 1) of each level: unbiased, and without
        any fit. Numbers, or arrays of them."""
        return self._summed(checked_noisy(noisy, "noisy").value, start, stop)

    def raw_sigma(self, noisy: Noisy, start: Any, stop: Any) -> Any:
        """Standard deviations of ``read_raw``."""
        return np.sqrt(self._summed(np.square(checked_noisy(noisy, "noisy").standard_deviation), start, stop))

    def _summed(self, values: Floats, start: Any, stop: Any) -> Any:
        if values.size != self.size:
            raise SpecificationError(
                f"{values.size} noisy numbers for a tree of {self.size} nodes",
                remedy="a number for every node, from the top level down",
            )
        first, last = self._checked(start, stop)
        before = np.concatenate([[0.0], np.cumsum(values.ravel())])
        total = np.zeros(first.size)
        for a, b in self._pieces(first, last):
            total += before[b] - before[a]
        return float(total[0]) if np.ndim(start) == 0 and np.ndim(stop) == 0 else total

    def _checked(self, start: Any, stop: Any) -> tuple[Integers, Integers]:
        return checked_ranges(start, stop, self.bins)

    def _pieces(self, start: Integers, stop: Integers) -> list[tuple[Integers, Integers]]:
        """Runs of nodes: what a level gives on the left and on the right, for all ranges at once."""
        pieces, k = [], self.branching
        live = start < stop
        for level in range(self.height - 1, -1, -1):
            offset, size = self.tree.bounds[level], self.tree.bounds[level + 1] - self.tree.bounds[level]
            # A smaller last block is whole when the range reaches the end of the level.
            up_start, up_stop = -(-start // k), np.where(stop == size, -(-size // k), stop // k)
            climbs = live & (up_start < up_stop) & (level > 0)
            left = np.where(climbs, np.minimum(up_start * k, stop), np.where(live, stop, start))
            right = np.where(climbs, np.minimum(up_stop * k, stop), stop)
            pieces.append((offset + start, offset + left))
            pieces.append((offset + right, offset + np.where(climbs, stop, right)))
            start, stop, live = np.where(climbs, up_start, 0), np.where(climbs, up_stop, 0), climbs
        return pieces

    # ------------------------------------------------------------------ fitting
    def fit(
        self,
        noisy: Noisy | MeasuredTree | Mapping[int, Noisy],
        *,
        nonneg: bool = True,
        total: float | None = None,
        bounds: Any = None,
        alpha: float = 1.0,
        form: str = AUTO,
    ) -> FittedTree:
        """A consistent tree fitted to noisy node sums.

        Parameters
        ----------
        noisy : what ``measure`` of this tree returned; all nodes, breadth first; or {level: Noisy} (0 is the top, -1
            the leaves) where only some were measured.
        nonneg : bins are at least 0. bounds : (low, high) of the bins, numbers or (bins,) arrays.
        total : the sum of all bins, where it is public.
        alpha, form : as in ``neg_log_likelihood``; "auto" is least squares with bounds from the top level
            down (``LeastSquaresTree``): no level is expected to come out worse than published. The forms by name are
            optima, of which the plan names the levels that come out worse.

        Raises
        ------
        SpecificationError
            For measurements of the wrong size or without a distribution.
        InfeasibleError
            For a total that the bounds cannot meet.
        """
        if isinstance(noisy, MeasuredTree) and total is None:
            total = noisy.total
        leaves = slice(self.tree.bounds[-2], self.size)
        low, high = np.full(self.size, -np.inf), np.full(self.size, np.inf)
        low[leaves], high[leaves] = box(self.bins, nonneg, bounds)
        if total is not None:
            known = finite(total, "total")
            refuse_contradiction(
                "the total", known, "the bins can sum to", float(low[leaves].sum()), float(high[leaves].sum())
            )
            low[0], high[0] = (max(low[0], known), min(high[0], known)) if self.size == 1 else (known, known)
        words = f"a tree of {self.bins} bins, {self.height} levels"
        return FittedTree(*self._fitted(self._measured(noisy), low, high, words, alpha, form), query=self)

    def _measured(self, noisy: Any) -> list[tuple[Noisy, Integers]]:
        bounds = self.tree.bounds
        if isinstance(noisy, MeasuredTree):
            return [self._taken(noisy)]
        if not isinstance(noisy, Mapping):
            flat = flattened(checked_noisy(noisy, "noisy"), name="tree")
            if flat.size != self.size:
                raise SpecificationError(
                    f"{flat.size} noisy numbers for a tree of {self.size} nodes",
                    remedy=f"all nodes breadth first, or {{level: Noisy}} (levels of {_sizes(bounds)} nodes)",
                )
            return [(flat, np.arange(self.size))]
        out = []
        for level, each in noisy.items():
            if not isinstance(level, numbers.Integral) or not -self.height <= int(level) < self.height:
                raise SpecificationError(f"level {level!r}", remedy=f"0 (the top) to {self.height - 1} (the bins)")
            place = int(level) % self.height
            flat = flattened(checked_noisy(each, f"level {level}"), name=f"level {place}")
            nodes = np.arange(bounds[place], bounds[place + 1])
            if flat.size != nodes.size:
                what = f"{flat.size} noisy numbers for the {nodes.size} nodes of level {place}"
                raise SpecificationError(what, remedy="one for every node of the level")
            out.append((flat, nodes))
        return out


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FittedTree(Consistent):
    """A tree of sums fitted to noisy ones: ``solve()``, then read the histogram and ranges."""

    query: TreeQuery

    @property
    def nodes(self) -> Floats:
        """(nodes,) breadth first."""
        return self.x

    @property
    def histogram(self) -> Floats:
        """(bins,)"""
        return self.x[self.query.tree.bounds[-2] :]

    def range(self, start: int, stop: int) -> float:
        """The sum of bins ``start:stop``."""
        return float(self.ranges([start], [stop])[0])

    def ranges(self, starts: Any, stops: Any) -> Floats:
        """(k,) sums of many ranges of bins, by running sums."""
        first, last = checked_ranges(starts, stops, self.query.bins)
        before = np.concatenate([[0.0], np.cumsum(self.histogram)])
        return np.asarray(before[last] - before[first])

    def ranges_matrix(self, starts: Any, stops: Any) -> sp.csr_array:
        """(k, nodes) matrix of ranges as sums of few nodes, for ``of=`` of ``standard_errors`` and ``intervals``."""
        first, last = checked_ranges(starts, stops, self.query.bins)
        nodes = [self.query.covering(int(a), int(b)) for a, b in zip(first, last, strict=True)]
        rows = np.repeat(np.arange(len(nodes)), [n.size for n in nodes])
        columns = np.concatenate([*nodes, np.zeros(0, dtype=np.int64)])
        return sp.csr_array((np.ones(columns.size), (rows, columns)), shape=(len(nodes), self.query.size))

    def functions(self, of: Any) -> tuple[sp.csr_array, tuple[int, ...]] | None:
        """ "histogram", a slice of bins, or a list of slices."""
        tree = self.query.tree
        if isinstance(of, str):
            if of != "histogram":
                raise SpecificationError(
                    f"of={of!r}", remedy="'histogram', a slice of bins, or a matrix over the nodes"
                )
            return picks(np.arange(tree.bounds[-2], tree.size), tree.size), (self.query.bins,)
        ranges = [of] if isinstance(of, slice) else of
        if not isinstance(ranges, list) or not ranges or not all(isinstance(each, slice) for each in ranges):
            return None
        ends = [each.indices(self.query.bins) for each in ranges]
        if any(step != 1 for *_, step in ends):
            raise SpecificationError("a slice of bins with steps", remedy="slice(start, stop)")
        return self.ranges_matrix([a for a, _, _ in ends], [b for _, b, _ in ends]), (len(ends),)

    def _variables(self, x: Floats) -> Mapping[str, Any]:
        return {"histogram": x[self.query.tree.bounds[-2] :], "nodes": x}

    def _rounded(self, x: Floats, round: Round, seed: int) -> Floats:
        return rounded_tree(self.query.tree, x, self._form.lower, self._form.upper, round, seed)


def tree_query(bins: Any, branching: int = 2) -> TreeQuery:
    """The tree of sums over a histogram.

    Parameters
    ----------
    bins : their number, or a histogram (a vector, a Private or an expression), of which only the length is read.
    branching : children of a node, 2 or more. Wide trees are lower: fewer levels share the budget.

    Examples
    --------
    >>> import numpy as np, dpmodel as dpm
    >>> tree = dpm.released.tree_query(8)
    >>> tree.answers(np.arange(8.0))[:3]
    array([28.,  6., 22.])
    >>> tree.sensitivity
    4
    """
    if isinstance(bins, numbers.Integral) and not isinstance(bins, bool):
        count = int(bins)
    else:
        shape = tuple(bins.shape) if hasattr(bins, "shape") else np.shape(bins)
        if len(shape) != 1:
            what = f"shape {shape}" if shape else f"type {type(bins).__name__}"
            raise SpecificationError(f"bins of {what}", remedy="the number of bins (whole), or a vector")
        count = int(shape[0])
    if count < 1:
        raise SpecificationError(f"bins={count}", remedy="at least one bin")
    if not isinstance(branching, numbers.Integral) or isinstance(branching, bool) or int(branching) < 2:
        raise SpecificationError(f"branching={branching!r}", remedy="an integer of 2 or more")
    return TreeQuery(count, int(branching))


def checked_ranges(start: Any, stop: Any, bins: int) -> tuple[Integers, Integers]:
    """Ranges as two arrays of equal length.
    Errors: SpecificationError, for ranges outside 0 to ``bins``, and those that stop before they start."""
    given = np.broadcast_arrays(np.atleast_1d(start), np.atleast_1d(stop))
    if any(g.dtype.kind not in "iu" and g.size for g in given):
        raise SpecificationError("ranges of bins are given by integers", remedy="0 <= start <= stop <= bins")
    first, last = (np.asarray(g, dtype=np.int64) for g in given)
    wrong: npt.NDArray[np.bool_] = (first < 0) | (last > bins) | (first > last)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise SpecificationError(
            f"range {first[at]}:{last[at]} of {bins} bins", remedy="0 <= start <= stop <= bins, as in Python"
        )
    return first, last


def _sizes(bounds: tuple[int, ...]) -> str:
    return ", ".join(str(b - a) for a, b in itertools.pairwise(bounds))
