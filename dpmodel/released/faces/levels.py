"""Epsilon split over the levels of a tree of sums, for what a least-squares fit makes of the noisy numbers."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import cvxpy as cp
import numpy as np
from scipy.optimize import minimize

from dpmodel._types import Floats, Integers, PrivateArray
from dpmodel.errors import SpecificationError
from dpmodel.kernels.direct_measurement import Kind, refuse_without_delta
from dpmodel.marks.domain import array_of
from dpmodel.marks.noisy import Noisy
from dpmodel.marks.private import Private
from dpmodel.marks.records import NEIGHBORS, Neighbors, Records
from dpmodel.privacy import PrivacyLoss, gaussian_mu, zcdp_rho
from dpmodel.privacy.distributions import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
from dpmodel.released.faces.measure import checked_kind
from dpmodel.released.trees import Tree
from dpmodel.text import TextTable, long_frame, number, wrapped

if TYPE_CHECKING:
    from dpmodel.released.faces.tree_query import TreeOfSums

_LAWS = {
    "laplace": Laplace,
    "gaussian": Gaussian,
    "discrete-laplace": DiscreteLaplace,
    "discrete-gaussian": DiscreteGaussian,
}
Weights = Literal["levels", "nodes"] | Mapping[Hashable, float]


def most_moved(tree: Tree, each: Floats, neighbors: Neighbors) -> float:
    """Largest sum of ``each`` (nodes,) >= 0 over the nodes that one record moves, each of them by one.

    Added or removed: the nodes from a leaf to its root. Replaced: those on two such paths, but for the nodes on both.
    These split at the children of one node (or at the roots), so the largest sum takes the two best children of some
    node, each with its best path down. Exact, one pass from the leaves up.
    """
    best, most = each.copy(), 0.0

    def two(below: Floats, starts: Integers, counts: Integers) -> tuple[Floats, Floats]:
        first = np.maximum.reduceat(below, starts)
        top = below == np.repeat(first, counts)
        rest = np.maximum.reduceat(np.where(top, 0.0, below), starts)
        return first, np.where(
            np.add.reduceat(top.astype(np.int64), starts) > 1, first, np.where(counts > 1, rest, 0.0)
        )

    replaced = neighbors == "replace-one"
    for generation in reversed(tree.generations):
        first, second = two(best[generation.below], generation.starts, generation.counts)
        if replaced and (several := generation.counts > 1).any():
            most = max(most, float((first + second)[several].max()))
        best[generation.nodes] += first
    roots = best[tree.levels[0]]
    if not replaced:
        return float(roots.max())
    if roots.size > 1:
        most = max(most, float(np.sort(roots)[-2:].sum()))
    return most


def variances(tree: Tree, information: Floats, total_is_public: bool) -> Floats:
    """(nodes,) variance of every node's best linear unbiased estimate, exactly.

    ``information`` (nodes,) : 1 / variance of the number measured at a node, 0 where there is none. The sums tie a
    node to its children only, so one pass up joins a node's own number with the sum of its children's estimates, and
    one down joins that with what is told from outside its subtree: its parent's estimate from elsewhere, less its
    siblings. Sound for noise of any law: least squares is linear in the numbers.
    """
    with np.errstate(divide="ignore"):
        own = 1 / information
        up = own.copy()
        for generation in reversed(tree.generations):
            nodes = generation.nodes
            up[nodes] = 1 / (information[nodes] + 1 / generation.sum(up[generation.below]))
        outside = np.full(tree.size, np.inf)
        outside[tree.levels[0]] = 0.0 if total_is_public else np.inf
        out = 1 / (1 / up + 1 / outside)
        for generation in tree.generations:
            nodes, below = generation.nodes, up[generation.below]
            here = 1 / (information[nodes] + 1 / outside[nodes])
            others = np.maximum(generation.spread(generation.sum(below)) - below, 0.0)
            outside[generation.below] = generation.spread(here) + others
            out[generation.below] = 1 / (1 / below + 1 / outside[generation.below])
    return out


@dataclass(frozen=True, eq=False, repr=False)
class LevelSplit:
    """How noise is divided over the levels of a tree of sums, and the error that is expected of the fit.

    Privacy
        A record moves the nodes of one path from a leaf to its root by one each (replaced: of two paths, less what they
        share). With noise of scale s / w_v at node v the loss is at most ``sum w_v / s`` (Laplace) over the
        nodes moved, and mu^2 = ``sum w_v^2 / s^2`` (Gaussian): s takes the largest of these sums over all records
        (``most_moved``, exact on any tree). Where all that is declared is that a record changes the leaves by at most m
        in the 1-norm (``most``), its change is a sum of signed moves of single leaves of total size m: m times the
        largest norm of a path bounds both norms, by the triangle inequality. All numbers are one release of
        ``DirectMeasurement`` ("Weighted"). Under replace-one the top of a tree with one root is the number of records,
        which is public; it is given as it is and needs no noise. Which split is taken follows from the tree, the
        weights, epsilon and delta: public facts.
    Split
        Let level l have N_l nodes, f_l = N_l / N_{l-1} children to a node, p_l = 1 - 1/f_l (p = 1 at the top), and let
        a_l be the weight of the level's mean squared error. By symmetry the least-squares error of a regular tree
        splits into independent deviations of nodes from their siblings' mean. Numbers with information t_l (1 /
        variance) at level l tell of a deviation of level j the information ``J_j = sum_{l >= j} t_l / (f_{j+1} ...
        f_l)``, so
        ``V_l = p_l / J_l + V_{l-1} / f_l^2``, and ``sum a_l V_l = sum c_j p_j / J_j`` with
        ``c_j = a_j + c_{j+1} / f_{j+1}^2``.

        *Gaussian.* The cost ``sum t_l`` equals ``sum p_j J_j`` (the sum over j telescopes). By Lagrange J_j ~
        sqrt(c_j), which is t_l ~ ``sqrt(c_l) - sqrt(c_{l+1}) / f_{l+1}``, positive as c_l > c_{l+1} / f_{l+1}^2: noisy
        deviations, which could weigh levels in ways that noisy sums cannot, are no better. Replaced, with the top
        public: the cost is ``J_1 + sum_{j > 1} p_j J_j``, hence J_1 ~ sqrt(c_1 p_1). Where that makes t_1 negative,
        level 1 is not measured: J_1 = J_2 / f_2, and both make one term ``(c_1 p_1 f_2 + c_2 p_2) / J_2``, and so on.
        The tests hold this against a solver, noisy deviations at their own cost included.

        *Laplace.* t_l ~ e_l^2 at a cost of ``sum e_l``: every set of levels has its own best split (a level without
        budget gains nothing from a little), found by L-BFGS; levels are left out and put back one at a time, from
        all and from the leaves alone. On trees of up to 6 levels that found the best of all sets (tests), no proof.

        Other trees: f_l is the mean over a level, where leaves higher up count as chains of only children, and
        such a leaf is measured once with the budget of all levels from its own down. For every tree the split so found,
        an even one and the leaves alone are compared by the exact variances of their least-squares fits.
    Utility
        ``deviations`` are exact for least squares without bounds, by the deviation of the law that is drawn.
        Non-negativity makes small counts better.
    Cost
        Linear in the nodes; the split itself .03 s at 5 levels, .5 s at 19.

    ``levels, sizes`` : their names and numbers of nodes. ``shares`` : (levels,) of epsilon (Laplace) or of the squared
    privacy parameter (Gaussian, which composes in squares); 0 where nothing is measured. ``weights`` : (nodes,) 1 /
    scale up to a factor, 0 where nothing is measured; ``moved`` : 1-norm and 2-norm of a record's weighted change.
    ``deviations`` : (levels,) root mean square error expected of the fitted numbers; ``scales`` : of the noise on nodes
    with children (on the leaves of the last level).
    """

    levels: tuple[Hashable, ...]
    sizes: Integers
    loss: PrivacyLoss
    neighbors: Neighbors
    distribution: Kind
    total_is_public: bool
    shares: Floats
    weights: Floats
    moved: tuple[float, float]
    scales: Floats
    deviations: Floats
    error: float

    @staticmethod
    def of(
        tree: Tree,
        levels: tuple[Hashable, ...],
        loss: PrivacyLoss,
        weights: Weights,
        neighbors: Neighbors,
        distribution: str,
        most: float | None = None,
    ) -> LevelSplit:
        """The split with the least expected error. ``most`` : in the 1-norm, that a record moves the leaf counts, where
        it is not sure to add one to one of them; then nothing is public.

        Raises
        ------
        SpecificationError
            For weights that are no positive number for every level, other neighbors and distributions, Gaussian noise
            without delta, and a tree with a single leaf under replace-one, whose number is public.
        """
        if neighbors not in NEIGHBORS:
            raise SpecificationError(f"neighbors={neighbors!r}", remedy=" or ".join(map(repr, NEIGHBORS)))
        sizes = np.diff(tree.bounds)
        of_levels = _of_levels(weights, levels, sizes)
        kind = checked_kind(distribution)
        refuse_without_delta(kind, loss.delta)
        kinds: tuple[Kind, ...] = (kind,)
        if kind == "auto":
            kinds = ("laplace", "gaussian") if loss.delta > 0 else ("laplace",)
        # Leaves higher up count as chains of only children.
        ended = np.cumsum([int(tree.is_leaf[level].sum()) for level in tree.levels])
        wide = sizes + np.concatenate([[0], ended[:-1]])
        public = int((wide == 1).sum()) if neighbors == "replace-one" and most is None else 0
        if public == wide.size:
            raise SpecificationError(
                "a tree with a single leaf under replace-one",
                why="replacing a record does not change the number of records, which is public",
                remedy="use it as it is",
            )
        found = []
        for each in kinds:
            best = _best_shares(wide.astype(np.float64), of_levels, public, 2 if "laplace" in each else 1)
            left = np.arange(wide.size) >= public
            for shares in (best, left / left.sum(), np.arange(wide.size) == wide.size - 1):
                arguments = (tree, levels, sizes, loss, neighbors, each, public > 0, most)
                found.append(_forecast(*arguments, np.asarray(shares, dtype=np.float64), of_levels))
        return min(found, key=lambda split: split.error)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, a row per level."""
        rows = zip(self.levels, self.sizes, self.shares, self.scales, self.deviations, strict=True)
        return {
            "epsilon": self.loss.epsilon,
            "delta": self.loss.delta,
            "neighbors": self.neighbors,
            "distribution": self.distribution,
            "levels": [
                {"level": a, "nodes": int(n), "share": float(s), "scale": float(b), "expected_error": float(d)}
                for a, n, s, b, d in rows
            ],
        }

    def __str__(self) -> str:
        rows = []
        for k, level in enumerate(self.levels):
            measured = f"{100 * self.shares[k]:.1f} %" if self.shares[k] else "-"
            if self.total_is_public and self.sizes[: k + 1].max() == 1:
                measured = "public"
            scale = number(self.scales[k]) if self.shares[k] else "-"
            rows.append((str(level), int(self.sizes[k]), measured, scale, number(self.deviations[k])))
        what = "epsilon" if "laplace" in self.distribution else "mu^2"
        cost = f"epsilon = {number(self.loss.epsilon)}" + (
            f", delta = {number(self.loss.delta)}" * ("gauss" in self.distribution)
        )
        footer = ("expected error: root mean square of the fitted numbers, before bounds such as nonneg help",)
        columns = ("level", "nodes", f"share of {what}", "noise scale", "expected error")
        return str(
            TextTable(columns, rows, title=f"{cost}, {self.distribution} noise, {self.neighbors}", footer=footer)
        )

    __repr__ = __str__


def _forecast(
    tree: Tree,
    levels: tuple[Hashable, ...],
    sizes: Integers,
    loss: PrivacyLoss,
    neighbors: Neighbors,
    kind: Kind,
    total_is_public: bool,
    most: float | None,
    shares: Floats,
    of_levels: Floats,
) -> LevelSplit:
    at = np.repeat(np.arange(sizes.size), sizes)
    each = np.where(tree.is_leaf, np.cumsum(shares[::-1])[::-1][at], shares[at])
    weights = each if "laplace" in kind else np.sqrt(each)
    paths, times = (neighbors, 1.0) if most is None else ("add-remove", most)
    moved = (times * most_moved(tree, weights, paths), times * math.sqrt(most_moved(tree, weights**2, paths)))
    if "laplace" in kind:
        unit = moved[0] / loss.epsilon
    else:
        unit = moved[1] / (gaussian_mu(*loss) if kind == "gaussian" else math.sqrt(2 * zcdp_rho(*loss)))
    different, of_node = np.unique(weights, return_inverse=True)
    information = np.zeros(different.size)
    deviation = _LAWS[kind](unit / different[different > 0]).standard_deviation
    information[different > 0] = 1 / np.square(np.maximum(deviation, 1e-100))
    variance = variances(tree, information[of_node], total_is_public)
    mean = np.add.reduceat(variance, tree.bounds[:-1]) / sizes
    with np.errstate(divide="ignore"):
        scales = unit / (shares if "laplace" in kind else np.sqrt(shares))
    error = math.sqrt(of_levels @ mean / of_levels.sum())
    return LevelSplit(
        levels, sizes, loss, neighbors, kind, total_is_public, shares, weights, moved, scales, np.sqrt(mean), error
    )


def _of_levels(weights: Any, levels: tuple[Hashable, ...], sizes: Integers) -> Floats:
    """(levels,) weights of the levels' mean squared errors."""
    if isinstance(weights, str) and weights in ("levels", "nodes"):
        return np.ones(sizes.size) if weights == "levels" else sizes.astype(np.float64)
    if not isinstance(weights, Mapping):
        shown = repr(weights) if isinstance(weights, str) else f"a {type(weights).__name__}"
        raise SpecificationError(
            f"weights are {shown}",
            why="a weight belongs to a level, by its name",
            remedy=f"'levels', 'nodes', or {{{', '.join(f'{level!r}: 1' for level in levels)}}}",
        )
    odd = [key for key in weights if key not in levels] + [key for key in levels if key not in weights]
    if odd:
        what = "is no level" if odd[0] in weights else "has no weight"
        raise SpecificationError(
            f"weights: {odd[0]!r} {what}",
            remedy=f"a positive number for each of {', '.join(map(repr, levels))}; hierarchy(levels=) names levels",
        )
    found = [weights[level] for level in levels]
    for level, weight in zip(levels, found, strict=True):
        if isinstance(weight, bool) or not isinstance(weight, int | float | np.number) or not 0 < weight < math.inf:
            raise SpecificationError(
                f"weights: {level!r} has {weight!r}",
                why="a level whose errors do not count at all need not be in the tree",
                remedy="a positive number",
            )
    return np.array(found, dtype=np.float64)


def _best_shares(sizes: Floats, of_levels: Floats, public: int, power: int) -> Floats:
    """(levels,) shares with the least ``sum c_j p_j / J_j`` on the regular tree with these sizes; ``power`` :
    information is share ** power. See ``LevelSplit``; nothing for the first ``public`` levels."""
    fan = np.concatenate([[np.inf], sizes[1:] / sizes[:-1]])
    c = of_levels.copy()
    for j in range(c.size - 2, -1, -1):
        c[j] += c[j + 1] / fan[j + 1] ** 2
    fan, c = fan[public:], c[public:]
    cost = c * (1 - 1 / fan)
    shares = _gaussian_shares(fan, c, cost) if power == 1 else _laplace_shares(fan, cost)
    return np.concatenate([np.zeros(public), shares])


def _gaussian_shares(fan: Floats, c: Floats, cost: Floats) -> Floats:
    J, first, joint = np.sqrt(c), 0, float(cost[0])
    while True:
        J[first] = math.sqrt(joint)
        if first + 1 == c.size or J[first] >= J[first + 1] / fan[first + 1]:
            break
        joint = fan[first + 1] * joint + float(cost[first + 1])
        first += 1
    J[:first] = 0.0
    J[first:-1] -= J[first + 1 :] / fan[first + 1 :]
    J = np.maximum(J, 0.0)
    return np.asarray(J / J.sum())


def _laplace_shares(fan: Floats, cost: Floats) -> Floats:
    k = fan.size
    steps = np.concatenate([[0.0], np.cumsum(np.log(fan[1:]))])
    told = np.triu(np.exp(np.minimum(steps[:, None] - steps, 0.0)))  # J = told @ information

    def best(used: tuple[int, ...], start: Floats) -> tuple[float, Floats]:
        columns = told[:, used]

        def value(u: Floats) -> tuple[float, Floats]:
            e = np.exp(u - u.max())
            J, total = columns @ e**2, e.sum()
            error = (cost / J).sum()
            slope = -2 * e**2 * (columns.T @ (cost / J**2)) / error + 2 * e / total
            return math.log(error) + 2 * math.log(total), slope

        found = minimize(value, np.log(np.maximum(start[list(used)], 0.1 / k)), jac=True, method="L-BFGS-B")
        shares = np.zeros(k)
        shares[list(used)] = np.exp(found.x - found.x.max())
        return float(found.fun), shares / shares.sum()

    results = []
    for used in (tuple(range(k)), (k - 1,)):
        now = best(used, np.full(k, 1 / k))
        while k > 1:
            others = [tuple(sorted({*used} ^ {level})) for level in range(k - 1)]
            tried = [best(other, now[1]) for other in others]
            at = min(range(k - 1), key=lambda i: tried[i][0])
            if tried[at][0] >= now[0] - 1e-9:
                break
            used, now = others[at], tried[at]
        results.append(now)
    shares = min(results, key=lambda result: result[0])[1]
    shares[:-1][shares[:-1] < 1e-3] = 0.0  # they would tell less than 1e-6 of what an even share tells
    return np.asarray(shares / shares.sum())


def private_sums(
    tree: Tree, counts: Any, records: Records, name: str, attributes: dict[str, Any], nodes: Any = slice(None)
) -> Private:
    """Sums of ``counts`` (leaves,) at ``nodes`` (all), where each record adds one to one leaf.

    Sensitivity: a record adds one to every node on a path from a leaf to its root. Added or removed, it moves that many
    entries by one. Replaced, it moves the nodes of one path down and those of another up, and leaves what they share
    (``most_moved``). Counts are whole (rounding others could move two of them by two) and cut where
    sums of them could not be exact (beyond 2^52 / leaves), which is public policy: sums have no rounding errors, and a
    record adds one or, where its leaf is cut, nothing. Replaced, it may then move the nodes of one of the two paths
    alone, with those that both share: the larger of the two numbers of nodes is declared. (For the nodes that
    ``LevelSplit`` measures, none of a level of one node, the second is never larger: another path shares none of them.)
    Errors: SpecificationError, for counts of another size or not whole; and where replacing a record changes nothing.
    """
    leaves = int(tree.is_leaf.sum())
    if isinstance(counts, cp.Expression):
        raise SpecificationError(
            f"counts are a {type(counts).__name__}",
            why="noise here takes each record to add one to one leaf, which a parameter or an expression does not say",
            remedy=f"measure of Dataset.count, or of an array of {leaves} counts; of others "
            "dpmodel.measure(tree.query(counts), epsilon=...), with one scale of noise for all levels",
        )
    array = numbers_of(counts)
    if counts is not None:
        if array is None:
            raise SpecificationError("counts are no array of numbers", remedy=f"({leaves},) numbers")
        if array.size != leaves:
            raise SpecificationError(f"{array.size} counts for {leaves} leaves", remedy="one per leaf, in their order")
        if ((array != np.rint(array)) | np.isinf(array)).any():
            raise SpecificationError(
                "counts that are not whole",
                why="each record adds one to one leaf",
                remedy="query(Private(values, ...)) for sums of other numbers",
            )
    each = np.zeros(tree.size)
    each[nodes] = 1.0
    moved = most_moved(tree, each, records.neighbors)
    if moved:
        moved = max(moved, most_moved(tree, each, "add-remove"))
    else:
        raise SpecificationError(
            "a single node under replace-one",
            why="replacing a record does not change the number of records, which is public",
            remedy="use it as it is",
        )
    most = 2.0**52 // leaves
    value = None if array is None else PrivateArray(tree.sums(np.clip(array, -most, most))[nodes])
    shape = (int(each.sum()),)
    l1, l2 = moved, math.sqrt(moved)
    return Private(value, shape=shape, name=name, unit="all", l1=l1, l2=l2, linf=1, records=records, **attributes)


def numbers_of(counts: Any) -> PrivateArray | None:
    """Flat numbers, or None: an error of NumPy could show entries, also as the context of another."""
    try:
        array = np.asarray(None) if counts is None else array_of(counts)
        return None if counts is None or array.dtype.kind in "mM" else PrivateArray(array.astype(np.float64).ravel())
    except (TypeError, ValueError, OverflowError):
        return None


@dataclass(frozen=True, eq=False, repr=False)
class MeasuredTree:
    """Node sums, released with noise of unequal scales: for ``fit`` of the tree that measured them.

    ``noisy`` : the numbers of the ``nodes`` that were measured (numbers in breadth-first order). ``total`` : the number
    of records under replace-one, where it is public, else None. ``split`` : the budget's shares and expected errors.
    """

    noisy: Noisy
    nodes: Integers
    total: float | None
    split: LevelSplit
    of: TreeOfSums

    def to_frame(self, *, backend: str = "pandas") -> Any:
        """A data frame with a row for each number measured. ``backend`` : "pandas", "polars" or "pyarrow"."""
        names: tuple[Hashable, ...] = getattr(self.of, "names", tuple(range(self.of.size)))
        nodes = self.nodes.tolist()
        at = np.searchsorted(self.of.tree.bounds, self.nodes, "right") - 1
        columns = {
            "level": np.array([str(self.of.levels[level]) for level in at.tolist()]),
            "value": self.noisy.value,
            "deviation": self.noisy.standard_deviation,
        }
        return long_frame(columns, (("node", tuple(names[node] for node in nodes)),), backend)

    def __str__(self) -> str:
        return wrapped(f"{self.noisy.name}: {self.nodes.size} of {self.of.size} nodes measured") + f"\n{self.split}"

    __repr__ = __str__
