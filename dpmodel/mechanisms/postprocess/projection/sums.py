"""Separable losses under bounds and disjoint sums, exactly, by the breakpoints of the multiplier."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpmodel._types import Floats, Integers
from dpmodel.compile.likelihood.structure import Separable, Sums

_TIE = 1e-12  # derivatives this small against the weights they are sums of are rounding


class Least(NamedTuple):
    """(n,) the smallest and the largest minimiser of each variable's loss without bounds; infinite where there is none
    or where the loss is flat for ever."""

    low: Floats
    high: Floats


def least(single: Separable) -> Least:
    """Minimisers variable by variable: weighted medians, weighted means, and what lies between. O(r log r)."""
    low = _lowest(single)
    if (single.curvature > 0).all():
        return Least(low, low)
    return Least(low, -_lowest(_mirrored(single))[::-1])


def start(single: Separable, lower: Floats, upper: Floats) -> Floats:
    """(n,) the minimiser of each variable's loss within its bounds.

    Of several minimisers the middle one, cut to the bounds (the mean of the two middle values of an even number
    of equally good measurements). Where the loss is flat for ever, as for a variable that nobody measured, the number
    nearest to zero. Infinite where the loss falls for ever.
    """
    low, high = least(single)
    with np.errstate(invalid="ignore"):
        middle = low + (high - low) / 2
    flat = (low != high) & ~(np.isfinite(low) & np.isfinite(high))
    x = np.where(flat, np.clip(0.0, low, high), np.where(low == high, low, middle))
    out: Floats = np.clip(x, lower, upper)
    return out


def loss(single: Separable, x: Floats) -> Floats:
    """(n,) each variable's loss at x, up to a constant of its own."""
    away = single.weight * np.abs(x[single.owner] - single.point)
    kinks = np.bincount(single.owner, weights=away, minlength=x.size)
    out: Floats = single.curvature / 2 * np.square(x - single.centre) + single.derivative * x + kinks
    return out


def running_sum(values: Floats, owner: Integers) -> Floats:
    """Sums so far within each stretch of equal ``owner``; by doubling, so no digits are lost to other stretches."""
    out, step = values.astype(np.float64), 1
    while step < values.size:
        same = owner[step:] == owner[:-step]
        if not same.any():
            break
        out[step:] = out[step:] + np.where(same, out[:-step], 0.0)
        step *= 2
    return out


def _mirrored(single: Separable) -> Separable:
    """The loss in -x, variables in reverse order (which keeps the points sorted)."""
    n = single.curvature.size
    return Separable(
        single.curvature[::-1],
        -single.centre[::-1],
        -single.derivative[::-1],
        n - 1 - single.owner[::-1],
        -single.point[::-1],
        single.weight[::-1],
    )


def _lowest(single: Separable) -> Floats:
    """Smallest minimisers. The derivative right of a point is negative at the points before the minimiser only, so
    counting those finds the point or the stretch where it changes sign."""
    n, q = single.curvature.size, single.curvature
    owner, count = single.owner, np.bincount(single.owner, minlength=n)
    total = np.bincount(owner, weights=single.weight, minlength=n)
    sums = running_sum(single.weight, owner)
    with np.errstate(over="ignore"):
        after = q[owner] * (single.point - single.centre[owner]) + single.derivative[owner] + 2 * sums - total[owner]
    rounding = np.where(q > 0, 0.0, _TIE * (total + np.abs(single.derivative)))
    passed = np.bincount(owner, weights=after < -rounding[owner], minlength=n).astype(np.int64)
    first = np.cumsum(count) - count
    here = passed < count
    next_point = np.full(n, np.inf)
    before = np.full(n, np.inf)  # derivative left of the next point
    place = (first + passed)[here]
    next_point[here], before[here] = single.point[place], after[place] - 2 * single.weight[place]
    done = np.zeros(n)
    done[passed > 0] = sums[(first + passed - 1)[passed > 0]]
    at_point = here & (before <= rounding)
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = single.centre - (single.derivative + 2 * done - total) / q
    curved = np.where(at_point, next_point, inside)
    # Without curvature derivatives change at points only: before the first one the loss may be flat or rise for ever.
    straight = np.where((passed == 0) & (single.derivative - total >= -rounding), -np.inf, next_point)
    return np.where(q > 0, curved, straight)


class _Edges(NamedTuple):
    """Stretches that variables can still move along, upwards in their sum. A stretch opens when the multiplier of its
    sum reaches ``price`` and then moves at ``rate`` (infinite: all at once) up to ``length``."""

    variable: Integers
    group: Integers
    price: Floats
    rate: Floats
    length: Floats

    def moved(self, multiplier: Floats, *, with_jumps: bool) -> Floats:
        """How far each stretch has moved at the multipliers (one per group); jumps there done, or not."""
        ahead = multiplier[self.group] - self.price
        jump = np.isinf(self.rate)
        open_ = ahead >= 0 if with_jumps else ahead > 0
        with np.errstate(invalid="ignore"):
            linear = np.minimum(ahead * self.rate, self.length)
        return np.where(open_, np.where(jump, self.length, linear), 0.0)


def project_sums(single: Separable, sums: Sums, lower: Floats, upper: Floats) -> Floats:
    """Minimise a separable convex loss subject to disjoint sums and bounds.

    With multiplier m of its sum, variable j minimises ``f_j(x) - m a_j x``; ``a_j x_j`` does not fall as m rises, and
    is piecewise linear in m (with jumps at kinks). From the minimiser without the sum (m = 0), all variables move
    the same way until the sum is met, so nothing cancels. The breakpoints are sorted and halved; between the last
    two the way is straight, so the end is exact. Inequalities: the same if the sum is too large, otherwise nothing.
    Of several minimisers, variables that are free to move at the last multiplier go in proportion to the room they
    have (unlimited room counts as all that is missing from the sum).

    Cost: O(r log r) for r breakpoints, all sums at once. The caller has checked that the bounds reach the targets.
    """
    x = start(single, lower, upper)
    inside = sums.group >= 0
    reached = np.bincount(sums.group[inside], weights=(sums.coefficient * x)[inside], minlength=sums.target.size)
    missing = np.where(sums.equality, sums.target - reached, np.minimum(sums.target - reached, 0.0))
    active = np.flatnonzero(inside & (missing[sums.group] != 0))
    if not active.size:
        return x
    a = sums.coefficient[active]
    direction = np.sign(a) * np.sign(missing[sums.group[active]])
    room = np.where(direction > 0, upper[active], -lower[active])
    edges = _edges(_turned(single, active, direction), direction * x[active], room, np.abs(a), sums.group[active])
    need = np.abs(missing)
    edges = edges._replace(length=np.minimum(edges.length, need[edges.group]))
    moved, moving = _meet(edges, need)
    step = np.bincount(edges.variable, weights=moved, minlength=active.size)
    last = np.bincount(edges.variable, weights=moving, minlength=active.size)
    x[active] = np.clip(x[active] + direction * step / np.abs(a), lower[active], upper[active])
    # Rounding in long sums: what is still missing goes to the variables that moved last.
    group, size = sums.group[active], np.bincount(sums.group[active], weights=last, minlength=need.size)
    share = np.divide(last, size[group], out=np.zeros(last.size), where=size[group] > 0)
    left = sums.target - np.bincount(group, weights=a * x[active], minlength=need.size)
    x[active] += share * left[group] / a
    return np.clip(x, lower, upper)


def _turned(single: Separable, active: Integers, direction: Floats) -> Separable:
    """The losses of some variables, in ``direction * x``."""
    new = np.full(single.curvature.size, -1, dtype=np.int64)
    new[active] = np.arange(active.size)
    keep = new[single.owner] >= 0
    owner = new[single.owner[keep]]
    point = direction[owner] * single.point[keep]
    order = np.lexsort((point, owner))
    return Separable(
        single.curvature[active],
        direction * single.centre[active],
        direction * single.derivative[active],
        owner[order],
        point[order],
        single.weight[keep][order],
    )


def _edges(single: Separable, z: Floats, room: Floats, size: Floats, group: Integers) -> _Edges:
    """The stretches above z, from point to point and up to ``room``."""
    n = z.size
    ahead = (single.point > z[single.owner]) & (single.point < room[single.owner])
    sign = np.where(single.point > z[single.owner], -1.0, 1.0)
    tilt = np.bincount(single.owner, weights=sign * single.weight, minlength=n)
    owner = np.concatenate([np.arange(n), single.owner[ahead]])
    point = np.concatenate([z, single.point[ahead]])
    gain = np.concatenate([tilt, 2 * single.weight[ahead]])
    order = np.lexsort((point, owner))
    owner, point, gain = owner[order], point[order], gain[order]
    derivative = (
        single.curvature[owner] * (point - single.centre[owner]) + single.derivative[owner] + running_sum(gain, owner)
    )
    end = room[owner].copy()
    follows = owner[1:] == owner[:-1]
    end[:-1][follows] = point[1:][follows]
    with np.errstate(divide="ignore"):
        rate = np.square(size[owner]) / single.curvature[owner]
    # At the start the derivative upwards is not negative, by optimality; what rounding leaves of a zero is a zero.
    pull = np.bincount(single.owner, weights=single.weight, minlength=n) + np.abs(single.derivative)
    derivative[(single.curvature[owner] == 0) & (np.abs(derivative) <= _TIE * pull[owner])] = 0.0
    price = np.maximum(derivative, 0.0) / size[owner]
    return _Edges(owner, group[owner], price, rate, size[owner] * np.maximum(end - point, 0.0))


def _meet(edges: _Edges, need: Floats) -> tuple[Floats, Floats]:
    """How far each stretch moves so that every group moves by what it needs, and the last step of the way."""

    def total(moved: Floats) -> Floats:
        return np.bincount(edges.group, weights=moved, minlength=need.size).astype(np.float64)

    with np.errstate(divide="ignore"):
        closing = edges.price + edges.length / edges.rate
    when = np.concatenate([edges.price, closing])
    whose = np.concatenate([edges.group, edges.group])
    order = np.lexsort((when, whose))
    when, whose = when[order], whose[order]
    count = np.bincount(whose, minlength=need.size)
    first = np.cumsum(count) - count
    low, high = first.copy(), first + np.maximum(count, 1) - 1  # the answer lies in [low, high]
    at = np.minimum(low, when.size - 1)
    while (low < high).any():
        at = np.minimum((low + high) // 2, when.size - 1)
        enough = total(edges.moved(when[at], with_jumps=True)) >= need
        high = np.where(enough, np.minimum(high, at), high)
        low = np.where(enough, low, np.minimum(at + 1, high))
    at = np.minimum(low, when.size - 1)
    here = when[at]
    upto, beyond = edges.moved(here, with_jumps=False), edges.moved(here, with_jumps=True)
    early = total(upto) > need  # met on the straight way from the breakpoint before
    previous = when[np.maximum(at - 1, np.minimum(first, when.size - 1))]
    back = edges.moved(previous, with_jumps=True)
    one = np.where(early[edges.group], back, upto)
    two = np.where(early[edges.group], upto, beyond)
    gain = total(two) - total(one)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(gain > 0, np.clip((need - total(one)) / gain, 0.0, 1.0), 1.0)
    return one + share[edges.group] * (two - one), two - one
