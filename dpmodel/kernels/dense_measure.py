"""A lazy measure over constraints and its exact Bregman projection onto the 1/s-dense distributions.

Source: HRRU14, Algorithm 1 and Definition 8; Herbster and Warmuth 2001. *Lazy* means that updates go to the measure
that was never projected: only then does the weight of a row depend on this row (and on released points) alone.
"""

from __future__ import annotations

import math

import numpy as np

from dpmodel._types import Floats, PrivateArray

# Exponents above this are taken as this: such weights are above every threshold, and nothing overflows.
_LARGE = 600.0
# Sums below this are taken again relative to their own largest weight, before they underflow.
_TINY = 1e-200
_PATIENCE = 20  # steps before a better start is looked for
_BLOCK = 2**16  # entries looked at together: they stay in the processor's cache, and temporaries small


def project_dense(
    log_weights: Floats, density: int, idle: int = 0, out: Floats | None = None, near: float = math.nan
) -> tuple[Floats, float]:
    """(m,) the 1/s-dense distribution nearest to the measure ``A = exp(log_weights)`` in relative entropy.

    That is ``y_i = min(1, c A_i) / s`` with c such that all ``y`` add up to one: the Karush-Kuhn-Tucker conditions of
    ``min sum y ln(y / A)`` over ``sum y = 1, 0 <= y <= 1/s`` say so.

    With t = 1/c, ``sum min(A, t) = s t``: when k weights are capped (A >= t), t is the sum of the others divided by ``s
    - k``. Starting with k = 0 and capping what reaches t is Newton's method on the concave, piecewise linear function
    ``sum min(1, c A)`` of c: t falls, the capped set grows, and t is exact as soon as the set stays the same. In every
    step the product of what is missing from s and of the derivative falls to a quarter or less. A handful of O(m) steps
    is usual. After 20, t starts anew at m times the s-th largest weight (found by selection; if t were more, the
    weights from there on would be too small to fill the sum), below which the derivative is at most m^2: some 60 steps
    then reach rounding in the worst case. Weights are taken relative to the largest uncapped one before sums underflow.
    ``near`` saves the first steps: a concave function lies below its tangents, so one step from anywhere ends where the
    others begin, at a t that is not too small.

    Parameters
    ----------
    log_weights : (m,) finite; left as it is.
    density : s, 1 <= s <= m.
    idle : number of further weights ``exp(0)`` that take part and are not returned.
    out : (m,) where to put the answer, or None.
    near : a guess of ln t, or nan; of the last projection, if weights have not changed much.

    Returns
    -------
    y, ln t : y (m,) sums to 1 (with the idle ones) up to a relative 2^-45; entries at most 1/s.
    """
    out = np.empty_like(log_weights) if out is None else out
    if density == log_weights.size and not idle:
        out.fill(1.0 / density)
        return out, math.nan
    shift = float(log_weights.max(initial=0.0 if idle else -np.inf))
    np.subtract(log_weights, shift, out=out)  # none is above zero
    weights, rest = np.exp(out, out=out), float(np.exp(-shift)) if idle else 0.0
    capped, threshold = 0, (float(weights.sum()) + idle * rest) / density
    guess, passes = math.exp(near - shift) if near < shift else math.nan, 0
    if guess < min(threshold, 1.0):
        count, below = _all_split(weights, guess, idle, rest)
        if count < density and _TINY <= below <= density - count:
            capped, threshold = -1, below / (density - count)
    while threshold <= 1.0 or passes:  # at first the largest weight is 1
        passes += 1
        if passes == _PATIENCE:
            every = np.append(log_weights, np.zeros(idle))
            shift = float(np.partition(every, every.size - density)[every.size - density])
            weights, rest = _relative(log_weights, shift, out), float(np.exp(min(-shift, _LARGE))) if idle else 0.0
            capped, threshold = -1, float(every.size)
            del every
        count, below = _all_split(weights, threshold, idle, rest)
        # At s capped weights, what the others weigh is lost in the rounding of one of them.
        if count <= capped or count >= density:
            break
        capped = count
        if below < _TINY:
            uncapped = log_weights[weights < threshold]
            shift = float(uncapped.max(initial=0.0 if idle and rest < threshold else -np.inf))
            weights, rest = _relative(log_weights, shift, out), float(np.exp(min(-shift, _LARGE))) if idle else 0.0
            below = float(np.exp(uncapped - shift).sum()) + (idle * rest if rest <= 1.0 else 0.0)
        threshold = below / (density - capped)
    np.minimum(weights, threshold, out=weights)
    weights *= 1.0 / (threshold * density)
    return weights, shift + math.log(threshold)


def _relative(log_weights: Floats, shift: float, out: Floats) -> Floats:
    """(m,) ``exp(log_weights - shift)``, without overflow."""
    np.subtract(log_weights, shift, out=out)
    np.minimum(out, _LARGE, out=out)
    np.exp(out, out=out)
    return out


def _all_split(weights: Floats, threshold: float, idle: int, rest: float) -> tuple[int, float]:
    """How many weights, the ``idle`` ones (``rest`` each) included, reach the threshold, and the sum of the others."""
    count, below = (idle, 0.0) if rest >= threshold else (0, idle * rest)
    for start in range(0, weights.size, _BLOCK):
        block = weights[start : start + _BLOCK]
        low = block < threshold
        count += block.size - int(np.count_nonzero(low))
        below += float((block * low).sum())
    return count, below


class DenseMeasure:
    """The lazy measure of dense multiplicative weights over m rows, uniform at first.

    ``idle`` : so many more rows that never change (they read ``0 <= 0``); only their number is kept. Memory: two
    vectors of m numbers.
    """

    def __init__(self, rows: int, density: int, idle: int = 0) -> None:
        self._log: Floats = np.zeros(rows)
        self._projected: Floats = np.empty(rows)
        self._density, self._idle, self._near = density, idle, math.nan

    def projected(self) -> PrivateArray:
        """(m,) the 1/s-dense distribution to weigh the rows with; overwritten by the next call."""
        y, self._near = project_dense(self._log, self._density, self._idle, self._projected, self._near)
        return PrivateArray(y)

    def add(self, gain: Floats, start: int = 0) -> None:
        """Multiply the weights from ``start`` on by ``exp(gain)``: violated rows gain."""
        self._log[start : start + gain.size] += gain
