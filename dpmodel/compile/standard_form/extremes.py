"""The largest value of simple functions of one record's change, unit by unit, without loops.

One record changes a unit of a parameter by d, free within ``|d_j| <= cap_j``, ``||d||_1 <= l1``,
``||d||_2 <= l2`` and, per matrix row i, ``||d_i||_1 <= row_l1``. The set is symmetric in the sign of every
d_j, so for weights w >= 0 the maximum of ``sum w_j d_j`` is the support function of a box cut by
balls. Without the 2-norm the constraints are nested sums (entry, row, unit), and filling entries in
decreasing order of weight is optimal (greedy on a laminar family). With it, every multiplier mu >= 0
of the 1-norm gives an upper bound (weak duality); the best mu gives the maximum itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpmodel._types import Floats, Integers
from dpmodel.marks.bounds import Ball
from dpmodel.marks.layout import sum_by

_SEARCH_STEPS = 40


def group_ids(*keys: Integers) -> tuple[Integers, int]:
    """Number the distinct tuples of ``keys`` in order: (size,) ids and their count."""
    if keys[0].size == 0:
        return np.zeros(0, dtype=np.int64), 0
    combined = keys[0].astype(np.int64, copy=False)
    for key in keys[1:]:
        combined = combined * (int(key.max()) + 1) + key
    steps = np.diff(combined)
    if (steps >= 0).all():
        ids = np.concatenate([[0], np.cumsum(steps > 0)])
        return ids, int(ids[-1]) + 1
    # Keys come in long sorted runs (rows within columns), which a merge sort uses and np.unique's sort does not.
    order = np.argsort(combined, kind="stable")
    fresh = np.diff(combined[order]) > 0
    ids = np.empty(combined.size, dtype=np.int64)
    ids[order] = np.concatenate([[0], np.cumsum(fresh)])
    return ids, int(fresh.sum()) + 1


def largest_group(*keys: Integers) -> int:
    """The largest number of equal tuples of ``keys``."""
    if keys[0].size == 0:
        return 0
    combined = keys[0].astype(np.int64, copy=False)
    for key in keys[1:]:
        combined = combined * (int(key.max()) + 1) + key
    if (combined[1:] > combined[:-1]).all():
        return 1
    return int(np.bincount(group_ids(combined)[0]).max())


def most_items(units: Integers, items: Integers) -> int:
    """The largest number of distinct ``items`` that one unit has."""
    if units.size == 0:
        return 0
    if np.array_equal(units + (int(items[0]) - int(units[0])), items):  # row by row, perhaps of a later constraint
        return 1
    # One item each, as mostly, is seen without sorting: what was written last to a unit's place stands in all of it.
    last = np.zeros(int(units.max()) + 1, dtype=np.int64)
    last[units] = items
    if np.array_equal(last[units], items):
        return 1
    pairs = items.astype(np.int64) * last.size + units
    if (pairs[1:] > pairs[:-1]).all():  # by items and then by units: all are distinct
        return int(np.bincount(units).max())
    ids, count = group_ids(units, items)
    owner = np.zeros(count, dtype=np.int64)
    owner[ids] = units
    return int(np.bincount(owner).max())


def max_linear(weights: Floats, caps: Floats, groups: Integers, count: int, rows: Integers, ball: Ball) -> Floats:
    """(count,) maximum of ``sum_j weights_j |d_j|`` over each group's changes.

    ``weights, caps, groups, rows`` : (size,); weights are non-negative, caps may be infinite;
    ``rows`` are the matrix rows that ``row_l1`` speaks of.
    """
    weights, caps, groups, rows = _that_count(weights, caps, groups, rows, ball)
    if weights.size == 0:
        return np.zeros(count)
    taken = _taken(weights, caps, groups, rows, ball)
    bound = sum_by(groups, weights=weights * taken, minlength=count)
    # What the other bounds allow is the maximum where it keeps the 2-norm too; only elsewhere is there more to find.
    over = sum_by(groups, weights=taken**2, minlength=count) > ball.l2**2 * (1 + 1e-12)
    if over.any():
        within = over[groups]
        tighter = _with_two_norm(weights[within], caps[within], groups[within], count, ball)
        bound[over] = np.minimum(bound, tighter)[over]
    return bound


def max_squares(weights: Floats, caps: Floats, groups: Integers, count: int, rows: Integers, ball: Ball) -> Floats:
    """(count,) maximum of ``sum_j weights_j d_j^2``: exact for equal caps and no row bound, else an upper bound.

    A convex function is largest at an extreme point. With equal caps and a 1-norm those have full
    entries and one remainder, and filling by decreasing weight is best. Otherwise
    ``d_j^2 <= cap_j |d_j|`` reduces to the linear case, which is exact when every entry is 0 or full.
    The 2-norm alone is the linear case in d^2.
    """
    weights, caps, groups, rows = _that_count(weights, caps, groups, rows, ball)
    if weights.size == 0:
        return np.zeros(count)
    flat = Ball(ball.l1, np.inf, ball.row_l1)
    equal = bool(np.isfinite(caps[0]) and (caps == caps[0]).all())
    if equal and not np.isfinite(ball.row_l1):
        taken, order = _greedy(weights, caps, groups, ball.l1)
        bound = sum_by(groups[order], weights=weights[order] * taken**2, minlength=count)
    elif np.isinf(caps).any():
        bound = np.full(count, np.inf)
        finite = np.ones(count, dtype=bool)
        finite[groups[np.isinf(caps)]] = False
        keep = finite[groups]
        inner = _fill(weights[keep] * caps[keep], caps[keep], groups[keep], count, rows[keep], flat)
        bound[finite] = inner[finite]
    else:
        bound = _fill(weights * caps, caps, groups, count, rows, flat)
    if np.isfinite(ball.l2):
        squares = Ball(ball.l2**2, np.inf, np.inf)
        bound = np.minimum(bound, _fill(weights, caps**2, groups, count, rows, squares))
    return bound


def _that_count(weights: Floats, caps: Floats, groups: Integers, rows: Integers, ball: Ball) -> Any:
    """Entries of positive weight, capped by the norms of the whole."""
    weights = np.asarray(weights, dtype=np.float64)
    active = weights > 0
    if not active.all():
        weights, caps, groups, rows = weights[active], caps[active], groups[active], rows[active]
    return weights, np.minimum(caps, min(ball.l1, ball.l2, ball.row_l1)), groups, rows


def _fill(weights: Floats, caps: Floats, groups: Integers, count: int, rows: Integers, ball: Ball) -> Floats:
    """(count,) what greedy filling reaches."""
    return sum_by(groups, weights=weights * _taken(weights, caps, groups, rows, ball), minlength=count)


def _taken(weights: Floats, caps: Floats, groups: Integers, rows: Integers, ball: Ball) -> Floats:
    """(size,) amounts of greedy filling under entry caps, row sums and the unit's sum."""
    if np.isfinite(ball.row_l1):
        caps = _in_place(*_greedy(weights, caps, group_ids(groups, rows)[0], ball.row_l1))
    if np.isfinite(ball.l1):
        caps = _in_place(*_greedy(weights, caps, groups, ball.l1))
    return caps


def _in_place(taken: Floats, order: Integers) -> Floats:
    out = np.empty_like(taken)
    out[order] = taken
    return out


def _greedy(weights: Floats, caps: Floats, groups: Integers, total: float) -> tuple[Floats, Integers]:
    """Fill entries of each group by decreasing weight up to ``total``: amounts, and the order they are in."""
    order = np.lexsort((-weights, groups))
    if not np.isfinite(total):
        return caps[order], order
    sorted_groups = groups[order]
    sorted_caps = np.minimum(caps[order], total)
    # What is filled before an entry is summed in whole multiples of 2^-bits of the total, rounded down, so
    # that the room left is never understated and sums over many groups are exact.
    bits = min(40, 62 - int(np.ceil(np.log2(sorted_groups.size + 1))))
    amounts = np.floor(sorted_caps / total * 2.0**bits).astype(np.int64)
    before = _running_before(amounts, sorted_groups)
    room = (1.0 - before * 2.0**-bits) * total
    return np.clip(room, 0.0, sorted_caps), order


def _running_before(values: Any, sorted_groups: Integers) -> Any:
    """Per-group running sums that leave out the entry itself; ``sorted_groups`` has equal ids side by side."""
    if values.size == 0:
        return values
    starts = np.flatnonzero(np.r_[True, sorted_groups[1:] != sorted_groups[:-1]])
    lengths = np.diff(np.r_[starts, sorted_groups.size])
    running = np.cumsum(values) - values
    return running - np.repeat(running[starts], lengths)


def _with_two_norm(weights: Floats, caps: Floats, groups: Integers, count: int, ball: Ball) -> Floats:
    """Upper bound (tight) with the 2-norm: minimise over the 1-norm's multiplier, group by group."""

    def boxed_ball(w: Floats) -> Floats:
        return _box_and_ball(w, caps, groups, count, ball.l2)

    if not np.isfinite(ball.l1):
        return boxed_ball(weights)
    low = np.zeros(count)
    high = np.zeros(count)
    np.maximum.at(high, groups, weights)

    def value(mu: Floats) -> Floats:
        return mu * ball.l1 + boxed_ball(np.maximum(weights - mu[groups], 0.0))

    best = np.minimum(value(low), value(high))
    golden = (np.sqrt(5) - 1) / 2
    for _ in range(_SEARCH_STEPS):
        left = high - golden * (high - low)
        right = low + golden * (high - low)
        at_left, at_right = value(left), value(right)
        best = np.minimum(best, np.minimum(at_left, at_right))
        smaller = at_left <= at_right
        low, high = np.where(smaller, low, left), np.where(smaller, right, high)
    return best


def _box_and_ball(weights: Floats, caps: Floats, groups: Integers, count: int, l2: float) -> Floats:
    """(count,) maximum of ``w'd`` over ``0 <= d <= cap``, ``||d||_2 <= l2``.

    For every lam > 0, ``sum_j max_{0<=d<=cap} (w d - lam d^2 / 2) + lam l2^2 / 2`` is an upper bound, and the best
    lam attains the maximum (strong duality). Entries with w / cap >= lam are full, so between
    neighbouring ratios the bound is smooth and its best lam has a closed form. Sums over prefixes
    only choose lam; the bound itself is summed afresh per group.
    """
    everything = sum_by(groups, weights=weights * caps, minlength=count)
    if weights.size == 0:
        return everything
    lengths = np.sqrt(sum_by(groups, weights=weights**2, minlength=count))
    with np.errstate(invalid="ignore"):
        if (weights * l2 <= caps * lengths[groups]).all():  # the ball's own maximum lies inside every cap
            return np.minimum(l2 * lengths, everything)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.where(np.isinf(caps), 0.0, weights / caps)
    order = np.lexsort((-ratio, groups))
    g, w, u, r = groups[order], weights[order], caps[order], ratio[order]
    u = np.where(np.isinf(u), 0.0, u)  # never full: their ratio is 0
    squares = w**2
    full_square = _running_before(u**2, g)
    rest = np.maximum(sum_by(g, weights=squares, minlength=count)[g] - _running_before(squares, g), squares)
    upper = np.r_[np.inf, r[:-1]]
    upper[np.r_[True, g[1:] != g[:-1]]] = np.inf
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        radius = l2**2 - full_square
        lam = np.where(radius > 0, np.sqrt(rest / np.maximum(radius, 1e-300)), np.inf)
        lam = np.minimum(np.maximum(lam, r), upper)
        guess = _running_before(w * u, g) - lam / 2 * full_square + rest / (2 * lam) + lam * l2**2 / 2
    guess = np.where(np.isfinite(guess) & (lam > 0), guess, np.inf)
    least = np.full(count, np.inf)
    np.minimum.at(least, g, guess)
    chosen = np.zeros(count)
    hit = (guess == least[g]) & np.isfinite(guess)
    chosen[g[hit]] = lam[hit]
    lam = chosen[groups]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        best = np.minimum(caps, np.where(lam > 0, weights / lam, 0.0))
        terms = weights * best - lam / 2 * best**2
    bound = sum_by(groups, weights=terms, minlength=count) + chosen / 2 * l2**2
    return np.where(chosen > 0, np.minimum(bound, everything), everything)
