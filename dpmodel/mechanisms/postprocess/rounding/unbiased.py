"""Unbiased rounding to integers that keeps sums: over one partition of the entries, or over two."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import breadth_first_order, connected_components

from dpmodel._types import Floats, Integers, Mask
from dpmodel.errors import SpecificationError
from dpmodel.privacy import PublicGenerator

_BITS = 40  # fractions are taken to the nearest multiple of 2^-40
_WHOLE = 1e-9  # entries this close to an integer are it


def near_integer(sums: Floats) -> Mask:
    """Which sums are whole but for the rounding of what they were computed from."""
    out: Mask = np.abs(sums - np.rint(sums)) <= 1e-7 + _WHOLE * np.abs(sums)
    return out


def common(x: Floats, generator: PublicGenerator) -> Floats:
    """``floor(x + u)`` with one u, uniform on [0, 1), for all entries.

    Unbiased: E floor(t + u) = t. Differences keep their bounds: x_i - x_j <= g with g whole gives
    floor(x_i + u) <= floor(x_j + u + g) = floor(x_j + u) + g. So chains stay monotone."""
    whole, fraction = _split(x)
    u = int(generator.integers(0, 1 << _BITS))
    return whole + ((fraction + u) >> _BITS)


def one_partition(x: Floats, group: Integers, groups: int, generator: PublicGenerator) -> Floats:
    """Systematic sampling: every entry goes to its floor or ceiling, every group's sum likewise (whole sums are
    kept).

    With c_k the sum of the fractions of a group's entries up to the k-th and u uniform on [0, 1), one per group,
    entry k gains floor(c_k + u) - floor(c_{k-1} + u). It is 0 or 1 as its fraction is below 1; its mean is
    c_k - c_{k-1} because E floor(t + u) = t; all gains of the group add up to floor(c_last + u). In integer
    multiples of 2^-40, so exact; one entry of a group is moved by at most 1e-6 to make a sum that is whole up to
    rounding exactly so. O(n log n).
    Entries of group -1 are alone.
    """
    n = x.size
    own = np.where(group >= 0, group, groups + np.arange(n))
    whole, fraction = _split(x)
    order = np.argsort(own, kind="stable")
    own, f = own[order], fraction[order].copy()
    begin = np.flatnonzero(np.append(True, own[1:] != own[:-1])) if n else np.zeros(0, dtype=np.int64)
    if not n:
        return x.copy()
    size = np.diff(np.append(begin, n))
    total = np.add.reduceat(f, begin)
    off = _off_whole(total)
    sums = np.add.reduceat(x[order], begin)
    fix = near_integer(sums) & (off != 0)
    if fix.any():
        # The entry of the group whose fraction is furthest from whole takes the rounding.
        depth = np.minimum(f, (1 << _BITS) - f)
        label = np.repeat(np.arange(begin.size), size)
        deepest = np.lexsort((depth, label))[begin + size - 1]
        f[deepest[fix]] = np.clip(f[deepest[fix]] - off[fix], 0, 1 << _BITS)
    so_far = np.cumsum(f)
    u = generator.integers(0, 1 << _BITS, size=begin.size)
    shift = np.repeat(u - (so_far[begin] - f[begin]), size)
    gain = ((so_far + shift) >> _BITS) - ((so_far - f + shift) >> _BITS)
    out = np.empty(n)
    out[order] = whole[order] + gain
    return out


def two_partitions(
    x: Floats, row: Integers, column: Integers, rows: int, columns: int, generator: PublicGenerator
) -> Floats:
    """Every entry, every row's sum, every column's sum and (if all entries are in both) the total go to their
    floor or ceiling; whole ones stay. Each entry keeps its mean. Rows and columns: any two partitions, -1 for none.

    Method: Cox (1987) for the frame, Doerr (2006) for rounding bit by bit. The table gets a further row and column with
    the negative sums and the total in the corner, so that all rows and columns sum to zero. Fractions are integer
    multiples of 2^-40. From the last bit on: the entries with the bit set are an even number in every row and column
    (sums are whole, lower bits are zero); paired off within rows and within columns they form cycles, alternately in
    rows and columns, so of even length. On each cycle, with one fair coin, every other entry gains the bit and the rest
    lose it. Each pair cancels: sums stay. Each entry's mean stays: a martingale. An entry with the bit set and no lower
    ones stays between its floor and ceiling. After the first bit all are whole.

    Entries that are not exactly consistent (sums whole to 1e-7 only) are first moved by as much, along a spanning
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
    whole, fraction = _split(np.concatenate([x, frame]))
    fraction = _consistent(fraction, edge_row, edge_column, rows + 1, columns + 1)
    return (whole + (_bit_by_bit(fraction, edge_row, edge_column, generator) >> _BITS))[: x.size]


def _split(x: Floats) -> tuple[Floats, Integers]:
    """Whole part and fraction in multiples of 2^-40."""
    nearest = np.rint(x)
    x = np.where(np.abs(x - nearest) <= _WHOLE, nearest, x)
    whole = np.floor(x)
    return whole, np.rint((x - whole) * 2.0**_BITS).astype(np.int64)


def _off_whole(total: Integers) -> Integers:
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
        off_row = _off_whole(_sums(fraction, row, rows))
        off_column = _off_whole(_sums(fraction, column, columns))
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
