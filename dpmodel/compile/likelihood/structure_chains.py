"""Recognising monotone chains: rows x_i + gap <= x_j that string the variables into paths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.errors import InfeasibleError

_MEETS = 1e-9  # relative crossing of bounds that counts as rounding


@dataclass(frozen=True, eq=False)
class Chains:
    """Paths along which z = x - shift does not fall, each between two bounds that are the same all along it.

    ``order`` : (m,) variables, chain after chain, each from its least to its greatest; variables that bounds along a
    chain pin down cut it and are left out. ``start`` : (c + 1,) chain k is ``order[start[k]:start[k + 1]]``.
    ``shift`` : (m,). ``lower, upper`` : (c,) bounds of z. ``pinned, pinned_value`` : variables left out, and their x.
    """

    order: Integers
    start: Integers
    shift: Floats
    lower: Floats
    upper: Floats
    pinned: Integers
    pinned_value: Floats


def chains(G: sp.csr_array, g: Floats, lower: Floats, upper: Floats) -> Chains | str:
    """The rows ``G x <= g`` as chains, or the reason why they are none. O(n log n), vectorised."""
    if (np.diff(G.indptr) != 2).any():
        return "inequalities on several variables that overlap"
    data = G.data.reshape(-1, 2)
    if (data[:, 0] != -data[:, 1]).any():
        return "inequalities that overlap and are not differences"
    pairs = G.indices.reshape(-1, 2).astype(np.int64)
    first_is_low = data[:, 0] > 0
    low = np.where(first_is_low, pairs[:, 0], pairs[:, 1])
    high = np.where(first_is_low, pairs[:, 1], pairs[:, 0])
    gap = -g / np.abs(data[:, 0])
    sort = np.lexsort((gap, high, low))  # of one pair the widest gap counts
    low, high, gap = low[sort], high[sort], gap[sort]
    final = np.append((low[1:] != low[:-1]) | (high[1:] != high[:-1]), True)
    low, high, gap = low[final], high[final], gap[final]
    n = lower.size
    if np.bincount(low, minlength=n).max() > 1 or np.bincount(high, minlength=n).max() > 1:
        return "an order that is not a chain"
    ordered = _paths(low, high, gap, n)
    if ordered is None:
        return "an order that runs in a circle"
    order, chain, shift = ordered
    return _bounded(order, chain, shift, lower[order] - shift, upper[order] - shift)


def _paths(low: Integers, high: Integers, gap: Floats, n: int) -> tuple[Integers, Integers, Floats] | None:
    """Variables in the order of their paths, the path of each, and the gaps added up from its start. By doubling."""
    before = np.arange(n)
    before[high] = low
    steps, along = np.zeros(n, dtype=np.int64), np.zeros(n)
    steps[high], along[high] = 1, gap
    hop = before.copy()
    for _ in range(max(1, n).bit_length()):
        if (hop == hop[hop]).all():
            break
        steps, along, hop = steps + steps[hop], along + along[hop], hop[hop]
    if (before[hop] != hop).any():
        return None
    used = np.zeros(n, dtype=bool)
    used[low] = used[high] = True
    members = np.flatnonzero(used)
    order = members[np.lexsort((steps[members], hop[members]))]
    _, chain = np.unique(hop[order], return_inverse=True)
    return order, chain.astype(np.int64), along[order]


def _bounded(order: Integers, chain: Integers, shift: Floats, lower: Floats, upper: Floats) -> Chains | str:
    """Bounds passed along the chains: a lower bound holds for all later variables, an upper one for all earlier."""
    low = running_maximum(lower, chain)
    high = -running_maximum(-upper[::-1], chain[::-1])[::-1]
    with np.errstate(invalid="ignore"):
        crossing = np.where(low > high, low - high, 0.0)
    if crossing.any():
        worst = int(np.argmax(crossing))
        if crossing[worst] > _MEETS * max(1.0, abs(float(low[worst])), abs(float(high[worst]))):
            least, most = low[worst] + shift[worst], high[worst] + shift[worst]
            raise InfeasibleError(
                f"entry {order[worst]} must be at least {least:.9g} and at most {most:.9g}",
                why="bounds of entries before and after it on its monotone chain contradict each other",
            )
    pinned = low >= high
    free = ~pinned
    order_free, low_free, high_free = order[free], low[free], high[free]
    place = np.flatnonzero(free)
    follows = (place[1:] == place[:-1] + 1) & (chain[free][1:] == chain[free][:-1])
    if (follows & ((low_free[1:] != low_free[:-1]) | (high_free[1:] != high_free[:-1]))).any():
        return "a monotone chain whose bounds change along it"
    new = np.flatnonzero(np.append(True, ~follows)) if place.size else np.zeros(0, dtype=np.int64)
    start = np.append(new, place.size).astype(np.int64)
    value = (low[pinned] + high[pinned]) / 2 + shift[pinned]
    return Chains(order_free, start, shift[free], low_free[new], high_free[new], order[pinned], value)


def running_maximum(values: Floats, chain: Integers) -> Floats:
    """Largest value so far within each stretch of equal ``chain``; by doubling."""
    out, step = values.copy(), 1
    while step < values.size:
        same = chain[step:] == chain[:-step]
        if not same.any():
            break
        out[step:] = np.where(same, np.maximum(out[step:], out[:-step]), out[step:])
        step *= 2
    return out
