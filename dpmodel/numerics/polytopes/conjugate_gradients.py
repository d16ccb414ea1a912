"""Steps of Newton's method on multipliers: linear equations, solved nearly and without a factorisation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpmodel._types import Floats


def conjugate_gradients(
    times: Callable[[Floats], Floats], right: Floats, precondition: Floats, share: float, steps: int
) -> Floats:
    """d with ``times(d)`` near ``right``: to a ``share`` of its 2-norm, or as near as so many ``steps`` come. ``times``
    : a positive definite matrix; ``precondition`` : the inverse of its diagonal, about."""
    found, residual = np.zeros(right.size), right
    goal = share * float(np.linalg.norm(right))
    search = scaled = precondition * residual
    product = float(residual @ scaled)
    for _ in range(steps):
        image = times(search)
        length = product / float(search @ image)
        found = found + length * search
        residual = residual - length * image
        if float(np.linalg.norm(residual)) <= goal:
            break
        scaled = precondition * residual
        product, earlier = float(residual @ scaled), product
        search = scaled + (product / earlier) * search
    return found
