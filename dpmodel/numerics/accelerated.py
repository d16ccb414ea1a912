"""Nesterov's accelerated steps with restarts: post-processing, simulations, and starting points that are certified."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from dpmodel._types import Floats


def accelerated(w: Floats, step: Callable[[Floats], Floats], weights: Floats | float = 1.0) -> Iterator[Floats]:
    """Points after w (p,), without end; ``step`` : a (proximal) gradient step in the metric ``diag(weights)``. Momentum
    starts again where it points uphill (O'Donoghue and Candes 2015). With w (B, p), of every row by itself."""
    ahead, t = w, np.ones((*w.shape[:-1], 1))
    while True:
        after = step(ahead)
        uphill = ((ahead - after) * (weights * (after - w))).sum(axis=-1, keepdims=True) > 0
        t = np.where(uphill, 1.0, t)
        then = (1 + np.sqrt(1 + 4 * t * t)) / 2
        ahead, w, t = after + (t - 1) / then * (after - w), after, then
        yield w
