"""Tree problems in integers: the same objective at whole points, with all kinks and bounds whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpmodel._types import Floats
from dpmodel.numerics.trees.tree import TreeProblem

_ROUNDING = 1e-9  # a bound this near to an integer is taken to be it


def is_integer(problem: TreeProblem) -> bool:
    """Whether values and finite bounds are integers; then the ends of all optimal stretches are."""
    used = problem.value[problem.absolute > 0]
    bounds = np.concatenate([problem.lower, problem.upper])
    bounds = bounds[np.isfinite(bounds)]
    return bool((used == np.rint(used)).all() and (bounds == np.rint(bounds)).all())


def integer_problem(problem: TreeProblem) -> TreeProblem:
    """A problem with whole values and bounds that is the same at whole points, so has the same optima over these.

    With ``f = v - floor(v)`` and whole x, ``|x - v| = (1 - f) |x - floor(v)| + f |x - ceil(v)|``: both
    sides are f at floor(v), 1 - f at ceil(v), and have derivatives -1 before and 1 beyond.
    """
    if is_integer(problem):
        return problem
    floor = np.floor(problem.value)
    fraction = problem.value - floor
    between = fraction > 0
    return replace(
        problem,
        node=np.concatenate([problem.node, problem.node[between]]),
        value=np.concatenate([floor, floor[between] + 1.0]),
        absolute=np.concatenate([problem.absolute * (1.0 - fraction), (problem.absolute * fraction)[between]]),
        square=np.concatenate([problem.square, problem.square[between]]),
        lower=-_lower_bound(-problem.lower),
        upper=_lower_bound(problem.upper),
    )


def _lower_bound(bound: Floats) -> Floats:
    """Largest integers below; infinite bounds as they are."""
    return np.where(np.isinf(bound), bound, np.floor(bound + _ROUNDING))
