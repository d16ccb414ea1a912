"""Monotone regression: separable losses along chains x_1 <= x_2 <= ..., exactly."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from scipy.optimize import isotonic_regression

from dpmodel._types import Floats
from dpmodel.compile.likelihood.structure import Separable
from dpmodel.compile.likelihood.structure_chains import Chains

_TIE = 1e-12  # derivatives this small against the weights they are sums of are rounding


def project_chains(single: Separable, chains: Chains, x: Floats) -> Floats:
    """x with the variables of the chains set to the minimiser of a separable convex loss along them.

    Bounds that are the same all along a chain are met by cutting the solution without bounds. Proof: let z solve the
    problem without bounds, y = z cut to [L, U], and w any monotone point within [L, U]. Put h = w - y. Where z < L
    (a start of the chain) z + h = z + (w - L) <= w; where z > U (an end of it) z + h = z + (w - U) >= w; between, z + h
    = w. So z + h is monotone, and the directional derivative of the loss F at z along h is not negative. Where z < L,
    h >= 0 and the derivative of a convex loss to the right is no less at y = L than at z; where z > U likewise to the
    left; elsewhere y = z. So F'(y; h) >= F'(z; h) >= 0 for all w: y is optimal.

    Variables that nobody measured take the value of the one before (of the one after, at the start of a chain; the
    number in the bounds nearest to zero where a whole chain has none).

    Cost: least squares O(n) (pool adjacent violators); absolute or mixed losses O(r log r) for r measurements, with a
    heap, about 10 microseconds each; one pass in Python per chain.
    """
    x = x.copy()
    x[chains.pinned] = chains.pinned_value
    if not chains.order.size:
        return x
    q, centre = single.curvature[chains.order], single.centre[chains.order] - chains.shift
    place = np.full(x.size, -1, dtype=np.int64)
    place[chains.order] = np.arange(chains.order.size)
    kept = place[single.owner] >= 0
    at, weight = place[single.owner[kept]], single.weight[kept]
    point = single.point[kept] - chains.shift[at]
    kinks = np.bincount(at, minlength=q.size)
    measured = (q > 0) | (kinks > 0)
    z = np.full(q.size, np.nan)
    sort = np.argsort(at, kind="stable")
    at, point, weight = at[sort], point[sort], weight[sort]
    bounds = np.concatenate([[0], np.cumsum(kinks)])
    for a, b in zip(chains.start[:-1], chains.start[1:], strict=True):
        own = a + np.flatnonzero(measured[a:b])
        if not own.size:
            continue
        if not kinks[a:b].any():
            z[own] = isotonic_regression(centre[own], weights=q[own]).x
            continue
        part = slice(bounds[a], bounds[b])
        node = np.searchsorted(own, at[part])
        z[own] = _mixed(q[own], centre[own], node, point[part], weight[part])
    chain = np.repeat(np.arange(chains.lower.size), np.diff(chains.start))
    z = _filled(z, chain)
    x[chains.order] = np.clip(z, chains.lower[chain], chains.upper[chain]) + chains.shift
    return x


def _filled(z: Floats, chain: np.ndarray) -> Floats:
    """Gaps (nan) take the value before, or else the one after, within the chain; or else zero."""
    known = ~np.isnan(z)
    if known.all():
        return z
    index = np.arange(z.size)
    before = np.maximum.accumulate(np.where(known, index, -1))
    after = np.minimum.accumulate(np.where(known, index, z.size)[::-1])[::-1]
    has_before = (before >= 0) & (chain[np.maximum(before, 0)] == chain)
    last = np.minimum(after, z.size - 1)
    has_after = (after < z.size) & (chain[last] == chain)
    out: Floats = np.where(has_before, z[np.maximum(before, 0)], np.where(has_after, z[last], 0.0))
    return out


def _mixed(q: Floats, centre: Floats, node: np.ndarray, point: Floats, weight: Floats) -> Floats:
    """Minimise sum q_i/2 (z_i - centre_i)^2 + sum of weight |z_node - point| over monotone z.

    With losses that are not strictly convex there may be several solutions; the mean of the smallest and the largest
    one is taken. It treats up and down alike, and is optimal because the solutions are a convex set.
    """
    base = float(np.median(np.concatenate([centre[q > 0], point])))
    low = _smallest(q, np.where(q > 0, centre - base, 0.0), node, point - base, weight)
    if (q > 0).all():
        return low + base
    n = q.size
    turned = np.where(q > 0, base - centre, 0.0)[::-1]
    high = -_smallest(q[::-1], turned, (n - 1 - node)[::-1], (base - point)[::-1], weight[::-1])[::-1]
    return low + (high - low) / 2 + base


def _smallest(q: Floats, centre: Floats, node: np.ndarray, point: Floats, weight: Floats) -> Floats:
    """The smallest solution, by dynamic programming along the chain.

    F_i(y) = least loss of z_1 <= ... <= z_i = y, and G_i(y) = min over z <= y of F_i(z), whose derivative is that of
    F_i where that is negative and 0 beyond its minimiser m_i. So F_{i+1} = G_i + f_{i+1} needs the derivative of G_i
    only: it is kept as breakpoints (place, jump, change of steepness) in a heap, greatest first, and is 0 to the right
    of all. Adding a loss and cutting at the new minimiser removes each breakpoint at most once: O(r log r). Back along
    the chain z_n = m_n and z_i = min(m_i, z_{i+1}), by convexity.
    """
    heap: list[tuple[float, float, float]] = []
    minimisers: list[float] = []
    n = q.size
    stop = np.searchsorted(node, np.arange(n), side="right").tolist()
    points, weights = point.tolist(), weight.tolist()
    rounding = 0.0 if (q > 0).all() else _TIE * float(weight.max(initial=0.0))
    begin = 0
    for own_q, own_c, end in zip(q.tolist(), centre.tolist(), stop, strict=True):
        # The derivative right of all breakpoints is steep * y + level.
        steep, level = own_q, -own_q * own_c
        for i in range(begin, end):
            level += weights[i]
            heappush(heap, (-points[i], 2 * weights[i], 0.0))
        begin = end
        least, p, left = None, 0.0, 0.0
        while heap:
            minus, jump, sensitivity = heap[0]
            p = -minus
            right = steep * p + level
            if right < -rounding:
                break
            heappop(heap)
            left = right - jump
            steep -= sensitivity
            level = left - steep * p
            if left < -rounding:
                least = p
                heappush(heap, (minus, -left, -steep))
                break
        if least is None and steep > 0:
            least = -level / steep
            heappush(heap, (-least, 0.0, -steep))
        elif least is None:  # without curvature the derivative left of all points is negative: only rounding hid it
            least = p
            heappush(heap, (-p, abs(left), 0.0))
        minimisers.append(least)
    out: Floats = np.minimum.accumulate(np.array(minimisers)[::-1])[::-1]
    return out
