"""From an affine subspace to coordinates of its own and back, keeping convex hulls (KMMST24, Algorithm 6, Aff2Lin)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpmodel._types import Array, Mask
from dpmodel.numerics.fields.echelon import Basis


@dataclass(frozen=True, eq=False)
class Aff2Lin:
    """An affine subspace of Q^q of dimension k - 1, and its points by k - 1 of their coordinates.

    ``lifted`` : basis of the span of the (x, 1). ``columns`` (k - 1,) : which coordinates. ``table`` (k, q) Fractions :
    for every point x of the subspace ``x = table[0] + sum_i x[columns[i]] table[i + 1]`` (the paper's T, equation 9).

    Lemma 9: a convex combination of projected points goes up to the same combination of the points, since both maps are
    affine on the subspace and inverse to each other.
    """

    lifted: Basis
    columns: tuple[int, ...]
    table: Array

    def project(self, points: Array) -> Array:
        """(n, k - 1) the chosen coordinates of (n, q) points."""
        return points[:, list(self.columns)]

    def go_up(self, v: Sequence[Fraction]) -> tuple[Fraction, ...]:
        """The point of the subspace whose chosen coordinates are ``v``."""
        return tuple(np.array([Fraction(1), *v], dtype=object) @ self.table)

    def holds(self, points: Array) -> Mask:
        """(n,) which of (n, q) integer points lie in the subspace, exactly."""
        return self.lifted.contains(np.column_stack([points, np.ones(len(points), dtype=np.int64)]))


def aff2lin(lifted: Basis) -> Aff2Lin | None:
    """The maps for the affine span of points, given by the span of the vectors (x, 1); None where that holds none."""
    first = last_first(lifted)
    if not first.pivots or first.pivots[0] != 0:
        return None
    return Aff2Lin(lifted, tuple(column - 1 for column in first.pivots[1:]), first.rows[:, 1:])


def last_first(basis: Basis) -> Basis:
    """The same subspace with the last coordinate moved to the front: if some (x, 1) is in it, the first row of the
    echelon form is (1, point) and the others are (0, direction)."""
    return basis.field.echelon(basis.field.integral(np.hstack([basis.rows[:, -1:], basis.rows[:, :-1]])))
