"""How a node's value is divided among its children where every division within their segments costs the same."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpmodel._types import Floats
from dpmodel.numerics.trees.tree import Generation

_NARROW = 64

# All functions: x (parents,), left <= right (children,) with sums around x; they return (children,) values between left
# and right that add up to x, up to rounding. Ends may be infinite.


def in_order(family: Generation, x: Floats, left: Floats, right: Floats) -> Floats:
    """The first child is filled first. Integers stay whole."""
    base, room, up = _base(family, x, left, right)
    rest = np.abs(x - family.sum(base))
    given = np.zeros_like(room)
    narrow = np.flatnonzero(family.counts <= _NARROW)
    for k in range(int(family.counts[narrow].max(initial=0))):
        narrow = narrow[family.counts[narrow] > k]
        at = family.starts[narrow] + k
        part = np.minimum(rest[narrow], room[at])
        given[at] = part
        rest[narrow] -= part
    for wide in np.flatnonzero(family.counts > _NARROW):
        span = slice(family.starts[wide], family.starts[wide] + family.counts[wide])
        filled = np.minimum(np.cumsum(np.minimum(room[span], rest[wide])), rest[wide])
        given[span] = np.diff(filled, prepend=0.0)
    return np.asarray(np.clip(base + np.where(up, given, -given), left, right))


def pro_rata(family: Generation, x: Floats, left: Floats, right: Floats) -> Floats:
    """In proportion to the lengths of the segments; equal shares to those without an end, if any."""
    base, room, up = _base(family, x, left, right)
    rest = np.abs(x - family.sum(base))
    endless = np.isinf(room)
    if endless.any():
        some = family.spread(family.sum(endless.astype(np.float64))) > 0
        room = np.where(some, endless.astype(np.float64), room)
    total = family.sum(room)
    share = np.divide(rest, total, out=np.zeros_like(rest), where=total > 0)
    given = family.spread(share) * room
    return np.asarray(np.clip(base + np.where(up, given, -given), left, right))


def nearest(family: Generation, x: Floats, left: Floats, right: Floats, target: Floats, spread: Floats) -> Floats:
    """The division that minimises ``sum (child - target)^2 / spread``."""
    if family.uniform and family.arity == 2:
        t, a, b, s = (item.reshape(-1, 2) for item in (target, left, right, spread))
        first = t[:, 0] + (x - t[:, 0] - t[:, 1]) * (s[:, 0] / (s[:, 0] + s[:, 1]))
        out = np.empty_like(t)
        low, high = np.maximum(a[:, 0], x - b[:, 1]), np.minimum(b[:, 0], x - a[:, 1])
        np.minimum(np.maximum(first, low), high, out=out[:, 0])
        np.subtract(x, out[:, 0], out=out[:, 1])
        return np.asarray(np.clip(out.ravel(), left, right))
    return _knapsack(family, x, left, right, target, spread)


def _knapsack(family: Generation, x: Floats, left: Floats, right: Floats, target: Floats, spread: Floats) -> Floats:
    """Variable fixing (Bitran and Hax 1981): share out what is missing, fix the children that leave their segments on
    the side that is exceeded more, and share out again. At most as many rounds as children in the largest family."""
    free = np.ones(left.size, dtype=bool)
    out = np.clip(target, left, right)
    for _ in range(int(family.counts.max()) + 1):
        fixed = family.sum(np.where(free, 0.0, out))
        weight = family.sum(np.where(free, spread, 0.0))
        missing = x - fixed - family.sum(np.where(free, target, 0.0))
        level = np.divide(missing, weight, out=np.zeros_like(missing), where=weight > 0)
        wish = target + family.spread(level) * spread
        over = np.where(free, np.maximum(wish - right, 0.0), 0.0)
        under = np.where(free, np.maximum(left - wish, 0.0), 0.0)
        more = family.sum(over) - family.sum(under)
        out = np.where(free, np.clip(wish, left, right), out)
        side = family.spread(more)
        leaving = ((side > 0) & (over > 0)) | ((side < 0) & (under > 0))
        if not leaving.any():
            break
        free &= ~leaving
    return out


def whole(family: Generation, x: Floats, left: Floats, right: Floats, division: Floats) -> Floats:
    """A division into integers, each the given one rounded up or down, for whole x, left and right: differences of
    the rounded running sums of the fractions."""
    near = np.rint(division)
    settled = np.abs(division - near) <= 1e-9 + 1e-14 * np.abs(division)
    floor = np.where(settled, near, np.floor(division))
    running = np.rint(np.cumsum(np.where(settled, 0.0, division - floor)))
    out = floor + np.diff(running, prepend=0.0)
    wrong = (family.sum(out) != x) | (family.sum(((out < left) | (out > right)).astype(np.float64)) > 0)
    if wrong.any():  # rounding errors of very large numbers
        out = np.where(family.spread(wrong), in_order(family, x, left, right), out)
    return np.asarray(out, dtype=np.float64)


def _base(family: Generation, x: Floats, left: Floats, right: Floats) -> tuple[Floats, Floats, npt.NDArray[np.bool_]]:
    """(base, room, up): points from which to go up (or down), how far each child can go, and which way."""
    base = left
    open_left = np.isinf(left)
    if not open_left.any():
        return base, right - left, np.ones(left.size, dtype=bool)
    base = np.where(open_left, np.where(np.isinf(right), 0.0, right), left)
    up = family.spread(family.sum(base) <= x)
    return base, np.where(up, right - base, base - left), up
