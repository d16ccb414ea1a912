"""What is proved of shares: no resource over its capacity, and how much value may be lost. From released numbers."""

from __future__ import annotations

import math

from dpmodel._types import Floats
from dpmodel.joint.descent import Path
from dpmodel.text import number


def planned_margin(free: float, unused: float, beta: float) -> str:
    """What a plan says: nothing is used beyond its capacity, and how much is left free for the noise."""
    return (
        f"no resource is used beyond its capacity, except with probability {number(beta)}; {number(free)} of each is "
        f"left free for the noise, {number(100 * min(unused, 1.0))} % of the capacity in the middle"
    )


def value_lost(path: Path, capacity: Floats, beta: float) -> float:
    """What mean answers may be worth less than the best that the limits allow, except with probability ``beta``.

    ``sum_t w_t p_t'(b - d~_t)`` is the gap of the dual with noise, a martingale whose predictable variance is V (see
    ``NoisyPrices``). rho is fixed by public numbers that come before the steps: V at the first prices.
    """
    gap = float(path.weights @ (path.prices * (capacity - path.demand)).sum(axis=1))
    lengths = (path.prices**2).sum(axis=1)
    variance, rho = path.noise**2 * float(path.weights @ lengths), path.noise**2 * float(lengths[0])
    if rho == 0:
        return math.inf if variance > 0 else max(gap, 0.0)
    total = variance + rho
    return max(gap + math.sqrt(total * math.log(total / (rho * beta**2))), 0.0)


def statement_of(scales: Floats, lost: float, beta: float, noisy: bool) -> str:
    """What a release says: overload, value, and by how much shares were scaled down. ``noisy`` : whether capacities are
    private, so that the value is held against what noise has left of them."""
    text = f"no resource is used beyond its capacity, except with probability {number(beta)}"
    least = float(scales.min(initial=1.0))
    if math.isfinite(lost):
        text += (
            f"; with the same probability shares are worth at least {number(least)} of (the most that is possible with "
            f"the limit on each person's use{' and the capacities as released' * noisy}, less {number(lost)})"
        )
    return text
