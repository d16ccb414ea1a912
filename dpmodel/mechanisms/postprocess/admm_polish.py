"""From a nearly optimal point to the vertex next to it: the active set solved for, primal and dual."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpmodel.compile.affine_map import Floats
from dpmodel.mechanisms.postprocess.admm_linear import XUpdate
from dpmodel.mechanisms.postprocess.admm_splits import Splits

FREE = 1e-7  # penalty of splits that are not held, relative to their own
ROUNDS = 3  # each takes the effect of FREE away by as much again


def polish(
    splits: Splits, refactor: Callable[[Floats], XUpdate], w: Floats, y: Floats, x: Floats
) -> tuple[Floats, Floats]:
    """(x, y): x near the given one with (A x)_i = w_i wherever w_i is at the kink of h_i or at a bound, and multipliers
    with A'y in the range of E' that differ from the given ones there only; both up to FREE^ROUNDS, where that can be.

    If these splits are those that hold at an optimum where they determine x and y, the result is that optimum. Both are
    the x-update's least-squares problem with the penalties of the other splits made negligible: for x with targets w
    there and A x elsewhere, for y with the residual of A'y as its right-hand side.
    """
    kink = (splits.absolute > 0) & (w == splits.centre)
    held = kink | (w == splits.lower) | (w == splits.upper)
    p = np.where(held, splits.weight, FREE * splits.weight)
    update = refactor(p)
    zero = update.solve(np.zeros(splits.size))
    for _ in range(ROUNDS):
        target = np.where(held, w, splits.apply(x))
        x = update.solve(splits.adjoint(p * target))
    for _ in range(ROUNDS):
        y = y + p * splits.apply(update.solve(-splits.adjoint(y)) - zero)
    return x, y
