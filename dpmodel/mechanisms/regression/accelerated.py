"""Nesterov's accelerated steps with restarts: post-processing, simulations, and starting points that are certified."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from dpmodel._types import Floats


def accelerated(w: Floats, step: Callable[[Floats], Floats], weights: Floats | float = 1.0) -> Iterator[Floats]:
    """Points after w, without end; ``step`` : a (proximal) gradient step in the metric ``diag(weights)``. Momentum
    starts again where it points uphill (O'Donoghue and Candes 2015)."""
    ahead, t = w, 1.0
    while True:
        after = step(ahead)
        if float((ahead - after) @ (weights * (after - w))) > 0:
            t = 1.0
        then = (1 + math.sqrt(1 + 4 * t * t)) / 2
        ahead, w, t = after + (t - 1) / then * (after - w), after, then
        yield w
