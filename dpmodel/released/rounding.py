"""Integers out of fitted numbers, with the total, the sums of a tree or all constraints kept."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
import scipy.sparse as sp
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse.csgraph import breadth_first_order, connected_components

from dpmodel._types import Floats, Integers, Mask
from dpmodel.errors import DPModelError, InfeasibleError, SpecificationError
from dpmodel.privacy import PublicGenerator, public_generator
from dpmodel.released.form import LikelihoodForm, canonical
from dpmodel.released.trees import Generation, Tree, largest_fractions

# ------------------------------------------------------------------ trees


TreeRounding = Literal["unbiased", "nearest", "controlled"]

_NEAR = 1e-9  # Values this near to an integer (relative from 1 on, at most 1e-3) are that number.


def round_tree(tree: Tree, x: Floats, how: TreeRounding = "unbiased", seed: int | None = None) -> Floats:
    """(N,) integers, consistent, each the floor or the ceiling of ``x``; integers of x stay.

    So bounds and totals that are integers hold (x >= 0 above all).

    ``x`` : (N,) consistent node values.
    ``how`` : "unbiased": random, and the mean of every node's result is its x. "nearest": roots to the nearest, then
        the largest fractions among siblings go up (earlier ones first), which for the given parent is the nearest in
        every norm. "controlled": without chance, and the sum of the first j siblings, for any j, is
        also the floor or the ceiling of its true value, so that sums over runs of siblings stay within one.
    ``seed`` : of the random choices ("unbiased" only); None is 0.

    Proof that "unbiased" is, by induction from the roots, which go up with probability equal to their fraction. Let a
    parent's value be an integer plus F, F the sum of its children's fractions f_c, with phi the fraction of F. It went
    up with probability phi, and K = ceil(F) or floor(F) children have to go up. Draw U uniform on (0, phi] if the
    parent went up, on (phi, 1] if not: over both, U is uniform on (0, 1]. Let child c go up if one of U, U + 1, ...
    lies in (C_{c-1}, C_c], C the running sums of f. This interval has length f_c < 1, so it catches at most one
    point, and one with probability f_c. The points up to F number floor(F - U) + 1, which is ceil(F) if U <= phi and
    floor(F) otherwise: K. (Systematic sampling, Madow 1949; controlled rounding, Cox 1987.)
    Values within 1e-9 of an integer (relative, at most 1e-3) count as that integer: means move by no more.
    Errors: SpecificationError, an unknown ``how``, a wrong shape, values that are not finite or not consistent (to
    1e-6, relative).
    """
    if how not in get_args(TreeRounding):
        raise SpecificationError(f"rounding {how!r} is not known", remedy=f"one of {', '.join(get_args(TreeRounding))}")
    given = np.asarray(x, dtype=np.float64)
    _check(tree, given)
    draw = public_generator(0 if seed is None else seed).uniform
    near = np.rint(given)
    integral = np.abs(given - near) <= np.minimum(_NEAR * np.maximum(np.abs(given), 1.0), 1e-3)
    found = np.where(integral, near, np.floor(given))
    fraction = np.where(integral, 0.0, given - found)

    roots = tree.levels[0]
    if how == "unbiased":
        up = draw(size=roots.stop) < fraction[roots]
    else:
        up = fraction[roots] >= 0.5
    found[roots] += up
    for generation in tree.generations:
        f = fraction[generation.below]
        floors = found[generation.below]
        quota = found[generation.nodes] - generation.sum(floors)
        if how == "nearest":
            up = largest_fractions(generation, f, quota)
        else:
            chance = draw(size=quota.size) if how == "unbiased" else np.full(quota.size, 0.5)
            up = _systematic(generation, f, quota, chance)
            up = _repaired(generation, f, given[generation.below] - floors, quota, up)
        found[generation.below] = floors + up
    return found


def _systematic(generation: Generation, f: Floats, quota: Floats, chance: Floats) -> Floats:
    """(c,) 0 or 1, ``quota`` of each parent's children at 1, by the points U, U + 1, ... with ``chance`` placing U."""
    running = np.cumsum(f)
    starts = generation.starts
    running -= generation.spread(running[starts] - f[starts])
    total = running[np.append(starts[1:], f.size) - 1]
    base = np.floor(total)
    phi = total - base
    base, phi = np.where(quota < base, base - 1, base), np.where(quota < base, 1.0, phi)  # F an integer
    up = quota > base
    u = np.where(up, phi * (1 - chance), phi + (1 - phi) * (1 - chance))
    caught = np.floor(np.maximum(running, 0.0) - generation.spread(u)) + 1
    last = running >= generation.spread(total)
    caught = np.where(last, generation.spread(quota), caught)
    chosen: Floats = np.diff(caught, prepend=0.0)
    chosen[starts] = caught[starts]
    return chosen


def _repaired(generation: Generation, f: Floats, exact: Floats, quota: Floats, up: Floats) -> Floats:
    """``up``, but by largest fractions where rounding errors of x spoiled it: not 0 or 1, or an integer moved."""
    wrong = (up != np.rint(np.clip(up, 0.0, 1.0))) | ((f == 0) & (up != 0))
    bad = generation.sum(wrong.astype(np.float64)) + np.abs(generation.sum(up) - quota) > 0
    if not bad.any():
        return up
    repaired: Floats = np.where(generation.spread(bad), largest_fractions(generation, exact, quota), up)
    return repaired


def _check(tree: Tree, x: Floats) -> None:
    if x.shape != (tree.size,) or not np.isfinite(x).all():
        raise SpecificationError(f"rounding needs {tree.size} finite node values, in the tree's order")
    for generation in tree.generations:
        gap = np.abs(generation.sum(x[generation.below]) - x[generation.nodes])
        size = np.abs(x[generation.nodes]) + generation.sum(np.abs(x[generation.below]))
        if (gap > 1e-6 * np.maximum(size, 1.0)).any():
            raise SpecificationError(
                "the node values to round are not consistent",
                why="a parent differs from the sum of its children",
                remedy="fit them first",
            )


# ------------------------------------------------------------------ unbiased, over partitions


_BITS = 40  # fractions are taken to the nearest multiple of 2^-40


def near_integer(sums: Floats) -> Mask:
    """Which sums are integers but for the rounding of what they were computed from."""
    out: Mask = np.abs(sums - np.rint(sums)) <= 1e-7 + _NEAR * np.abs(sums)
    return out


def common(x: Floats, generator: PublicGenerator) -> Floats:
    """``floor(x + u)`` with one u, uniform on [0, 1), for all entries.

    Unbiased: E floor(t + u) = t. Differences keep their bounds: x_i - x_j <= g with g an integer gives
    floor(x_i + u) <= floor(x_j + u + g) = floor(x_j + u) + g. So chains stay monotone."""
    base, fraction = _split(x)
    u = int(generator.integers(0, 1 << _BITS))
    return base + ((fraction + u) >> _BITS)


def one_partition(x: Floats, group: Integers, groups: int, generator: PublicGenerator) -> Floats:
    """Systematic sampling: every entry goes to its floor or ceiling, every group's sum likewise (integers
    stay).

    With c_k the sum of the fractions of a group's entries up to the k-th and u uniform on [0, 1), one per group,
    entry k gains floor(c_k + u) - floor(c_{k-1} + u). It is 0 or 1 as its fraction is below 1; its mean is
    c_k - c_{k-1} because E floor(t + u) = t; all gains of the group add up to floor(c_last + u). In integer
    multiples of 2^-40, so exact; one entry of a group is moved by at most 1e-6 to make a sum that is an integer
    up to rounding exactly one. O(n log n). An entry of group -1 is a group of its own.
    """
    n = x.size
    own = np.where(group >= 0, group, groups + np.arange(n))
    base, fraction = _split(x)
    order = np.argsort(own, kind="stable")
    own, f = own[order], fraction[order].copy()
    begin = np.flatnonzero(np.append(True, own[1:] != own[:-1])) if n else np.zeros(0, dtype=np.int64)
    if not n:
        return x.copy()
    size = np.diff(np.append(begin, n))
    total = np.add.reduceat(f, begin)
    off = _off_integer(total)
    sums = np.add.reduceat(x[order], begin)
    fix = near_integer(sums) & (off != 0)
    if fix.any():
        # The entry of the group whose fraction is furthest from an integer takes the rounding.
        depth = np.minimum(f, (1 << _BITS) - f)
        label = np.repeat(np.arange(begin.size), size)
        deepest = np.lexsort((depth, label))[begin + size - 1]
        f[deepest[fix]] = np.clip(f[deepest[fix]] - off[fix], 0, 1 << _BITS)
    so_far = np.cumsum(f)
    u = generator.integers(0, 1 << _BITS, size=begin.size)
    shift = np.repeat(u - (so_far[begin] - f[begin]), size)
    gain = ((so_far + shift) >> _BITS) - ((so_far - f + shift) >> _BITS)
    out = np.empty(n)
    out[order] = base[order] + gain
    return out


def two_partitions(
    x: Floats, row: Integers, column: Integers, rows: int, columns: int, generator: PublicGenerator
) -> Floats:
    """Every entry, every row's sum, every column's sum and (if all entries are in both) the total go to their
    floor or ceiling; integers stay. Each entry keeps its mean. Rows and columns: any two partitions, -1 for none.

    Method: Cox (1987) for the frame, Doerr (2006) for rounding bit by bit. The table gets a further row and column with
    the negative sums and the total in the corner, so that all rows and columns sum to zero. Fractions are integer
    multiples of 2^-40. From the last bit on: the entries with the bit set are an even number in every row and column
    (sums are integers, lower bits are zero); paired off within rows and within columns they form cycles, alternately in
    rows and columns, so of even length. On each cycle, with one fair coin, every other entry gains the bit and the rest
    lose it. Each pair cancels: sums stay. Each entry's mean stays: a martingale. An entry with the bit set and no lower
    ones stays between its floor and ceiling. After the first bit all are integers.

    Entries that are not exactly consistent (sums within 1e-7 of integers) are first moved by as much, along a spanning
    forest. Cost: 40 passes over the fractional entries. Error: SpecificationError if that is not enough.
    """
    r, c = np.where(row >= 0, row, rows), np.where(column >= 0, column, columns)
    by_row, by_column = np.bincount(r, weights=x, minlength=rows + 1), np.bincount(c, weights=x, minlength=columns + 1)
    # The last row and column take what is in none; the corner makes up for both.
    frame_row, frame_column = -by_row[:rows], -by_column[:columns]
    corner = -(by_row[rows] + frame_column.sum())
    edge_row = np.concatenate([r, np.arange(rows), np.full(columns + 1, rows)])
    edge_column = np.concatenate([c, np.full(rows, columns), np.arange(columns + 1)])
    frame = np.append(np.concatenate([frame_row, frame_column]), corner)
    frame = np.where(near_integer(frame), np.rint(frame), frame)
    base, fraction = _split(np.concatenate([x, frame]))
    fraction = _consistent(fraction, edge_row, edge_column, rows + 1, columns + 1)
    return (base + (_bit_by_bit(fraction, edge_row, edge_column, generator) >> _BITS))[: x.size]


def _split(x: Floats) -> tuple[Floats, Integers]:
    """Integer part, and fraction in multiples of 2^-40."""
    nearest = np.rint(x)
    x = np.where(np.abs(x - nearest) <= _NEAR, nearest, x)
    base = np.floor(x)
    return base, np.rint((x - base) * 2.0**_BITS).astype(np.int64)


def _off_integer(total: Integers) -> Integers:
    """How far sums of fractions are above the nearest integer."""
    half = np.int64(1) << (_BITS - 1)
    out: Integers = ((total + half) & ((1 << _BITS) - 1)) - half
    return out


def _sums(fraction: Integers, node: Integers, nodes: int) -> Integers:
    out = np.zeros(nodes, dtype=np.int64)
    np.add.at(out, node, fraction)
    return out


def _consistent(fraction: Integers, row: Integers, column: Integers, rows: int, columns: int) -> Integers:
    """Fractions moved along a spanning forest of the fractional entries so that rows and columns sum to integers.

    In each tree what the rows are off and what the columns are off add up to the same, so going from the leaves
    to the root, each entry of the tree takes what its lower end is off, and the root is right in the end.
    """
    one = 1 << _BITS
    for _ in range(8):
        live = np.flatnonzero((fraction > 0) & (fraction < one))
        off_row = _off_integer(_sums(fraction, row, rows))
        off_column = _off_integer(_sums(fraction, column, columns))
        if not off_row.any() and not off_column.any():
            return fraction
        _, first = np.unique(row[live] * columns + column[live], return_index=True)
        edge = live[first]
        nodes = rows + columns
        link = sp.coo_array((np.ones(edge.size), (row[edge], rows + column[edge])), shape=(nodes, nodes))
        parts, label = connected_components(link, directed=False)
        _, root = np.unique(label, return_index=True)
        tops = np.full(parts, nodes)
        ends = np.concatenate([row[edge], root])
        others = np.concatenate([rows + column[edge], tops])
        graph = sp.coo_array((np.ones(ends.size), (ends, others)), shape=(nodes + 1, nodes + 1)).tocsr()
        order, before = breadth_first_order(graph, nodes, directed=False)
        number = sp.coo_array((edge + 1, (row[edge], rows + column[edge])), shape=(nodes + 1, nodes + 1)).tocsr()
        child = order[1:]
        above = before[child]
        up, down = np.minimum(child, above), np.maximum(child, above)
        through = np.asarray(number[up, down]).ravel().astype(np.int64) - 1
        off = np.concatenate([off_row, off_column, [0]]).tolist()
        moved = fraction.copy()
        for node, parent, entry in zip(child[::-1].tolist(), above[::-1].tolist(), through[::-1].tolist(), strict=True):
            if off[node] and entry >= 0:
                moved[entry] -= off[node]
                off[parent] -= off[node]
        fraction = np.clip(moved, 0, one)  # entries next to an integer become it, and the rest is spread again
    raise SpecificationError(
        "the sums to keep are not integers, nor are the entries consistent with them",
        why="sums may be off an integer by rounding only",
        remedy="project the table onto the constraints first, or use how='controlled'",
    )


def _bit_by_bit(fraction: Integers, row: Integers, column: Integers, generator: PublicGenerator) -> Integers:
    live = np.flatnonzero((fraction > 0) & (fraction < (1 << _BITS)))
    f = fraction[live]
    in_rows, in_columns = np.argsort(row[live], kind="stable"), np.argsort(column[live], kind="stable")
    place = np.zeros(live.size, dtype=np.int64)
    for bit in range(_BITS):
        mask = (f >> bit) & 1 == 1
        count = int(mask.sum())
        if not count:
            continue
        chosen = np.flatnonzero(mask)
        place[chosen] = np.arange(count)
        beside = _partners(place[in_rows[mask[in_rows]]])
        below = _partners(place[in_columns[mask[in_columns]]])
        around = sp.coo_array((np.ones(count), (np.arange(count), below[beside])), shape=(count, count))
        _, side = connected_components(around, directed=True, connection="weak")
        other = side[beside]
        coin = 2 * generator.integers(0, 2, size=int(side.max()) + 1) - 1
        sign = coin[np.minimum(side, other)] * np.where(side < other, 1, -1)
        f[chosen] += sign.astype(np.int64) << bit
    out = fraction.copy()
    out[live] = f
    return out


def _partners(order: Integers) -> Integers:
    """Neighbours paired off in this order."""
    out = np.empty(order.size, dtype=np.int64)
    out[order[0::2]], out[order[1::2]] = order[1::2], order[0::2]
    return out


# ------------------------------------------------------------------ forms


How = Literal["unbiased", "controlled"]


def round_total(x: Floats, *, how: How = "unbiased", seed: int = 0) -> Floats:
    """Integers whose total is the floor or ceiling of that of ``x``, (n,), and each the floor or ceiling of
    its own: at random, with the mean of each kept over ``seed``, or ("controlled") by largest fractions, which is the
    nearest in sum |y - x| and sum (y - x)^2, earlier entries first. Post-processing: costs no privacy."""
    if how == "unbiased":
        return one_partition(x, np.zeros(x.size, dtype=np.int64), 1, public_generator(seed))
    snapped = np.where(np.abs(x - np.rint(x)) <= 1e-9, np.rint(x), x)
    out = np.floor(snapped)
    out[np.argsort(out - snapped, kind="stable")[: int(np.rint(x.sum()) - out.sum())]] += 1.0
    return out


def round_form(form: LikelihoodForm, x: Any, *, how: How = "unbiased", seed: int = 0) -> Floats:
    """Integers near x that meet all constraints of ``form``, which x meets. Post-processing: costs no privacy.

    Entries marked ``integer`` are rounded, or all where none is. ``x`` : (n,).

    ``how="unbiased"`` : every entry goes to its floor or ceiling and keeps its mean over ``seed``. It serves forms with
    integer bounds that round all entries, under one of two kinds of constraints: differences between two
    entries (chains); or sums with equal coefficients, at most two per entry, whose rows fall into two classes
    without overlap inside a class (a two-way table, say), and the total besides.
    ``how="controlled"`` : an integer point near x in sum |y - x| (``nearest_integer``), for any linear constraints.

    Errors: SpecificationError where no unbiased way is known, InfeasibleError where no integer point exists,
    DPModelError where the search ended without one.
    """
    v = np.asarray(x, dtype=np.float64).ravel()
    if how not in ("unbiased", "controlled"):
        raise SpecificationError(f"how={how!r}", why='it is "unbiased" or "controlled"')
    if not np.isfinite(v).all():
        raise SpecificationError("entries that are not finite", why="they have no nearest integer")
    if v.size != form.size:
        raise SpecificationError(f"a point of {v.size} entries", why=f"the form has {form.size}")
    integer = form.integer if form.integer.any() else np.ones(v.size, dtype=bool)
    if how == "controlled":
        rows = sp.vstack([form.equality, form.inequality], format="csr")
        least = np.concatenate([form.equality_value, np.full(form.inequality_value.size, -np.inf)])
        most = np.concatenate([form.equality_value, form.inequality_value])
        return nearest_integer(v, rows, least, most, form.lower, form.upper, integer)
    if not integer.all():
        raise _unknown(form, "some entries are rounded and others stay")
    return _unbiased(form, v, seed)


def _unbiased(form: LikelihoodForm, x: Floats, seed: int) -> Floats:
    rows = canonical(sp.csr_array(sp.vstack([form.equality, form.inequality], format="csr")))
    counts = np.diff(rows.indptr)
    row = np.repeat(np.arange(counts.size), counts)
    sizes = np.bincount(row, weights=np.abs(rows.data), minlength=counts.size)
    scale = np.where(counts > 0, sizes / np.maximum(counts, 1), 1.0)
    net = np.bincount(row, weights=rows.data, minlength=counts.size)
    if (np.abs(np.abs(rows.data) - scale[row]) > 1e-12 * scale[row]).any():
        raise _unknown(form, "the coefficients of a constraint differ")
    difference = (counts == 2) & (np.abs(net) < scale)
    _keeps(form, x, rows @ x / scale, scale)
    many = counts > 1
    if difference[many].all() and many.any():
        return common(x, public_generator(seed))
    if (difference & many).any() or (np.abs(np.abs(net) - scale * counts) > 1e-9 * scale * counts).any():
        raise _unknown(form, "sums and differences together")
    A = rows[np.flatnonzero(many)]
    touched = np.bincount(A.indices, minlength=x.size)
    if touched.max(initial=0) > 2:  # a total goes along with two partitions
        A = A[np.flatnonzero(np.diff(A.indptr) < x.size)]
        if (np.bincount(A.indices, minlength=x.size) != 2).any():
            raise _unknown(form, "an entry is in more than two sums")
    labels, generator = _two_classes(form, A, x.size), public_generator(seed)
    if len(labels) == 2:
        return two_partitions(x, labels[0], labels[1], A.shape[0], A.shape[0], generator)
    return one_partition(x, labels[0], A.shape[0], generator)


def _keeps(form: LikelihoodForm, x: Floats, sums: Floats, scale: Floats) -> None:
    """Refuse where the floor or the ceiling of an entry or sum is outside its bounds."""
    slack = 1e-6
    (down, up), (low, high) = (
        [np.where(near_integer(v), np.rint(v), end(v)) for end in (np.floor, np.ceil)] for v in (x, sums)
    )
    most = np.concatenate([form.equality_value, form.inequality_value]) / scale
    tolerance = slack * np.maximum(1.0, np.abs(most))
    wrong = (high > most + tolerance) | ((np.arange(most.size) < form.equality_value.size) & (low < most - tolerance))
    if wrong.any() or (down < form.lower - slack).any() or (up > form.upper + slack).any():
        raise SpecificationError(
            "floors and ceilings do not keep the bounds or constraints",
            why="a bound, total or limit is not an integer",
            remedy=_instead(form),
        )


def _two_classes(form: LikelihoodForm, A: sp.csr_array, n: int) -> list[Integers]:
    """Rows in two classes, neither overlapping itself: for each class the row that every entry is in, -1 for none."""
    r = A.shape[0]
    row = np.repeat(np.arange(r), np.diff(A.indptr))
    order = np.argsort(A.indices, kind="stable")
    var, row = A.indices[order], row[order]
    again = np.flatnonzero(var[1:] == var[:-1])
    one, two = row[again], row[again + 1]
    # Every row twice, once per class; entries tie a row in one class to its neighbour in the other.
    ends, others = np.concatenate([one, one + r]), np.concatenate([two + r, two])
    _, part = connected_components(sp.coo_array((np.ones(ends.size), (ends, others)), shape=(2 * r, 2 * r)), False)
    if (part[:r] == part[r:]).any():
        raise _unknown(form, "the sums overlap in a circle of odd length")
    second = part[:r] > part[r:]
    labels = []
    for chosen in (~second, second):
        label = np.full(n, -1, dtype=np.int64)
        here = chosen[row]
        label[var[here]] = row[here]
        labels.append(label)
    return labels if second.any() else labels[:1]


def _unknown(form: LikelihoodForm, why: str) -> SpecificationError:
    return SpecificationError(
        "no unbiased rounding is known that keeps these constraints", why=why, remedy=_instead(form)
    )


def _instead(form: LikelihoodForm) -> str:
    """What to do where no unbiased rounding is known: only what can succeed."""
    rows = canonical(form.equality)
    count = np.diff(rows.indptr)
    fractional = rows.data != np.rint(rows.data)
    integral = np.bincount(np.repeat(np.arange(count.size), count), weights=fractional, minlength=count.size) == 0
    fixed = (form.lower == form.upper) & ~near_integer(np.where(form.lower == form.upper, form.lower, 0.0))
    if (integral & ~near_integer(form.equality_value)).any() or fixed.any():
        return "integers as known numbers (no integers sum to others), or no rounding"
    return "how='controlled'"


# ------------------------------------------------------------------ the nearest, by mixed-integer programming

_TOLERANCE = 1e-6  # how far HiGHS may leave a row from its bounds, and an integer from itself
# With more entries to decide, those that the linear program makes integers are fixed, and only the others are searched:
# near the nearest, in a fraction of the time.
_MANY = 3_000
# Nodes of a search times its integer entries; it stops there with the best point found. A count, not a time: results
# repeat.
_NODES = 20_000


def nearest_integer(
    x: Floats, rows: sp.csr_array, least: Floats, most: Floats, lower: Floats, upper: Floats, integer: Mask
) -> Floats:
    """A y near x in sum |y - x|, ``least <= rows y <= most`` and ``lower <= y <= upper``, integers where ``integer``.

    Where all entries must be integers, floors and ceilings of x come first, and the nearest of these is the answer if
    one keeps the rows. A linear program finds it if its vertex is integral (always, for two-way tables and trees); else
    binary variables decide: all n, or of more than ``_MANY`` entries only those that are fractional at the vertex,
    which is near the nearest. Else it is the nearest of all integers (of so many, only if the vertex is one). A search
    of k integer entries ends after 1 + ``_NODES / k`` nodes with the best point found. Bounds of rows that are integers
    up to rounding count as these. Errors: InfeasibleError where there is no point; DPModelError where none was found.
    """
    least, most = _snapped(least), _snapped(most)
    lower = np.where(integer, np.ceil(lower - _TOLERANCE), lower)
    upper = np.where(integer, np.floor(upper + _TOLERANCE), upper)
    if (lower > upper).any():
        j = int(np.flatnonzero(lower > upper)[0])
        raise InfeasibleError(f"entry {j} must be an integer", why="no integer lies within its bounds")
    if integer.all():
        found = _floor_or_ceiling(x, rows, least, most, lower, upper)
        if found is not None:
            return found
    return _any_integer(x, rows, least, most, lower, upper, integer)


def _snapped(bound: Floats) -> Floats:
    nearest = np.rint(bound)
    with np.errstate(invalid="ignore"):
        close = np.abs(bound - nearest) <= _TOLERANCE * np.maximum(1.0, np.abs(bound) * 1e-3)
    return np.where(close, nearest, bound)


def _floor_or_ceiling(
    x: Floats, rows: sp.csr_array, least: Floats, most: Floats, lower: Floats, upper: Floats
) -> Floats | None:
    """y = base + z with z binary where x is no integer; None where none serves."""
    base = np.floor(np.where(np.abs(x - np.rint(x)) <= 1e-9, np.rint(x), x))
    fraction = np.clip(x - base, 0.0, 1.0)
    low = np.maximum(0.0, lower - base)
    high = np.minimum(np.where(fraction > 1e-9, 1.0, 0.0), upper - base)
    if (low > high).any():
        return None
    cost, least, most = 1 - 2 * fraction, least - rows @ base, most - rows @ base
    z = _milp(cost, rows, least, most, low, high, np.zeros(x.size))
    if z is None:
        return None
    integral = np.abs(z - np.rint(z)) <= _TOLERANCE
    if integral.all():
        return base + np.rint(z)
    many = int((low < high).sum()) > _MANY
    if many:
        low, high = np.where(integral, np.rint(z), low), np.where(integral, np.rint(z), high)
    z = _milp(cost, rows, least, most, low, high, np.where(integral & many, 0.0, 1.0))
    if many and z is None:
        raise _none_found(f"of {x.size} entries all but {int((~integral).sum())} were fixed, and no point is left")
    return None if z is None else base + np.rint(z)


def _any_integer(
    x: Floats, rows: sp.csr_array, least: Floats, most: Floats, lower: Floats, upper: Floats, integer: Mask
) -> Floats:
    """y = base + z with t >= |y - x|."""
    n = x.size
    base = np.where(integer, np.rint(x), x)
    rest = x - base
    one = sp.eye_array(n, format="csr")
    both = sp.vstack(
        [sp.hstack([rows, sp.csr_array((rows.shape[0], n))]), sp.hstack([one, -one]), sp.hstack([one, one])],
        format="csr",
    )
    far = np.full(n, np.inf)
    program = (
        np.concatenate([np.zeros(n), np.ones(n)]),
        both,
        np.concatenate([least - rows @ base, -far, rest]),
        np.concatenate([most - rows @ base, rest, far]),
        np.concatenate([lower - base, np.zeros(n)]),
        np.concatenate([upper - base, far]),
    )
    many = int(integer.sum()) > _MANY
    z = _milp(*program, np.concatenate([integer & (not many), np.zeros(n)]))
    if z is None:
        raise InfeasibleError(
            "no integers meet the constraints",
            why="the constraints hold for fractions only (or for nothing)",
            remedy="drop integrality, or the constraints that cannot be met in integers",
        )
    if many and (np.abs(z[:n] - np.rint(z[:n]))[integer] > _TOLERANCE).any():
        raise _none_found(f"the vertex is fractional, and {int(integer.sum())} entries are too many to search")
    return base + np.where(integer, np.rint(z[:n]), z[:n])


def _milp(
    cost: Floats, rows: sp.csr_array, least: Floats, most: Floats, low: Floats, high: Floats, integral: Floats
) -> Floats | None:
    """The optimum, or None where there is no point."""
    if not cost.size:
        return np.zeros(0)
    if not integral.any():
        return _lp(cost, rows, least, most, low, high)
    limits = [LinearConstraint(rows, least, most)] if rows.shape[0] else []
    bounds, nodes = Bounds(low, high), 1 + _NODES // int(integral.sum())
    found = milp(cost, constraints=limits, bounds=bounds, integrality=integral, options={"node_limit": nodes})
    if found.x is not None:
        out: Floats = found.x
        return out
    if found.status == 2:
        return None
    raise _none_found(f"the search ended after {nodes} nodes")


def _lp(cost: Floats, rows: sp.csr_array, least: Floats, most: Floats, low: Floats, high: Floats) -> Floats | None:
    """A vertex, by the interior-point method and crossover: simplex takes several times as long on crossing margins."""
    same = least == most
    above, below = ~same & np.isfinite(most), ~same & np.isfinite(least)
    found = linprog(
        cost,
        A_ub=sp.vstack([rows[above], -rows[below]], format="csr"),
        b_ub=np.concatenate([most[above], -least[below]]),
        A_eq=rows[same],
        b_eq=least[same],
        bounds=np.stack([low, high], axis=1),
        method="highs-ipm",
    )
    if found.status == 0:
        out: Floats = found.x
        return out
    if found.status == 2:
        return None
    raise _none_found(f"HiGHS: {found.message}")


def _none_found(why: str) -> DPModelError:
    return DPModelError(
        "no integers that keep the constraints were found",
        why=f"{why}; more than two crossing margins make it a hard search",
        remedy="no rounding, or at most two crossing margins that have to be kept",
    )
