"""From an affine subspace to coordinates of its own and back, keeping convex hulls (KMMST24, Algorithm 6, Aff2Lin)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[Any]


@dataclass(frozen=True)
class Aff2Lin:
    """An affine subspace of dimension k - 1 of Q^q, and its points by k - 1 of their coordinates.

    ``columns`` (k - 1,) : which coordinates. ``table`` (k, q) : for every point x of the subspace
    ``x = sum_i x[columns[i]] table[i] + table[k - 1]`` (the paper's T without its last column, equation 9).

    Lemma 9: a convex combination of projected points goes up to the same combination of the points, since both maps are
    affine on the subspace and inverse to each other.
    """

    columns: tuple[int, ...]
    table: tuple[tuple[Fraction, ...], ...]

    @property
    def dimension(self) -> int:
        """k - 1."""
        return len(self.columns)

    def project(self, points: Rows) -> Rows:
        """(n, k - 1) the chosen coordinates of (n, q) points."""
        return points[:, list(self.columns)]

    def go_up(self, v: Sequence[Fraction]) -> tuple[Fraction, ...]:
        """The point of the subspace whose chosen coordinates are ``v``."""
        sides = zip(*self.table, strict=True)
        return tuple(sum((a * b for a, b in zip(v, side, strict=False)), start=side[-1]) for side in sides)

    def holds(self, points: Rows) -> npt.NDArray[np.bool_]:
        """(n,) which of (n, q) whole-number points lie in the subspace, exactly."""
        scale = lcm(*(entry.denominator for row in self.table for entry in row), 1)
        whole = np.array([[int(entry * scale) for entry in row] for row in self.table], dtype=object)
        largest = max((abs(v) for v in [*whole.ravel().tolist(), scale]), default=1)
        size = max(abs(int(points.max(initial=0))), abs(int(points.min(initial=0))), 1)
        kind: Any = np.int64 if largest * size * (len(self.table) + 1) < 2**62 else object
        whole, exact = whole.astype(kind), points.astype(kind)
        expected = exact[:, list(self.columns)] @ whole[:-1] + whole[-1]
        return np.asarray((expected == exact * scale).all(axis=1), dtype=bool)


def aff2lin(lifted: Iterable[Iterable[Any]]) -> Aff2Lin:
    """The maps for the affine span of u_1, ..., u_k, given by rows that span the same as (u_1, 1), ..., (u_k, 1).

    ``lifted`` : (k, q + 1) independent rows of rationals, not all with last entry 0.

    Raises
    ------
    ValueError
        If the rows are dependent, or no point has (x, 1) in their span.
    """
    rows = [[Fraction(entry) for entry in row] for row in lifted]
    q = len(rows[0]) - 1
    pivots: list[int] = []
    for column in (q, *range(q)):  # the last column first: it must be among the chosen ones
        done = len(pivots)
        found = next((i for i in range(done, len(rows)) if rows[i][column] != 0), None)
        if found is None:
            if column == q:
                raise ValueError("the span holds no (x, 1)")
            continue
        rows[done], rows[found] = rows[found], rows[done]
        head = [entry / rows[done][column] for entry in rows[done]]
        rows = [_less(row, head, row[column]) for row in rows]
        rows[done] = head
        pivots.append(column)
        if len(pivots) == len(rows):
            break
    if len(pivots) < len(rows):
        raise ValueError("dependent rows")
    table = [row[:q] for row in (*rows[1:], rows[0])]
    return Aff2Lin(tuple(pivots[1:]), tuple(tuple(row) for row in table))


def _less(row: list[Fraction], head: list[Fraction], factor: Fraction) -> list[Fraction]:
    return [a - factor * b for a, b in zip(row, head, strict=True)] if factor else row
