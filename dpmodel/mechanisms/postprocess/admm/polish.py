"""From a nearly optimal point to the vertex next to it: the active set solved for, primal and dual."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpmodel._types import Floats
from dpmodel.mechanisms.postprocess.admm.linear import XUpdate
from dpmodel.mechanisms.postprocess.admm.splits import Splits

HELD, FREE = 1e3, 1e-4  # penalties of splits that are held and of straight ones that are not, relative to rho p
ROUNDS = 6


def polish(
    splits: Splits, refactor: Callable[[Floats], XUpdate], w: Floats, y: Floats, x: Floats, rho: float
) -> tuple[Floats, Floats]:
    """(x, y): the optimum of the problem in which w_i stays where it is at the kink of h_i or at a bound, and every
    other h_i is continued from the side on which w_i is, as a line or parabola.

    If these are the pieces that meet at an optimum, that is it. Solved by the proximal method of multipliers from the
    given x, (n,), and multipliers y, (m,): each round is one x-update with penalties that stay the same, and its error
    shrinks by about FREE / HELD per round where the held splits determine x and y. A'y is in the range of E'.
    """
    kink = (splits.absolute > 0) & (w == splits.centre)
    held = kink | (w == splits.lower) | (w == splits.upper)
    curve = 2 * splits.square
    flat = ~held & (curve == 0)
    p = np.where(held, HELD * rho * splits.weight, np.where(flat, FREE * rho * splits.weight, curve))
    derivative = np.sign(w - splits.centre) * splits.absolute + splits.linear
    multiplier = np.where(held, y, derivative)
    centre = np.where(held, w, splits.centre)
    update = refactor(p)
    for _ in range(ROUNDS):
        centre = np.where(flat, splits.apply(x), centre)
        x = update.solve(splits.adjoint(p * centre - multiplier))
        now = multiplier + p * (splits.apply(x) - centre)
        multiplier = np.where(held, now, derivative)
    # Rounding has left a little of A'y outside of the range of E', which the dual bound would multiply by x.
    zero = update.solve(np.zeros(splits.size))
    for _ in range(2):
        now = now + p * splits.apply(update.solve(-splits.adjoint(now)) - zero)
    return x, now
