"""Whether a point lies in a convex hull, decided exactly: floats propose, rationals certify."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog


def in_hull(points: npt.NDArray[np.int64], at: Sequence[Fraction]) -> bool:
    """Membership of ``at`` in the hull of integer points, by convex weights or by a separating direction."""
    if len(points) == 0:
        return False
    points = np.unique(points, axis=0)
    target = np.array([float(v) for v in at])
    weights = linprog(
        np.zeros(len(points)),
        A_eq=np.vstack([points.T, np.ones(len(points))]),
        b_eq=np.append(target, 1.0),
        method="highs-ds",
    )
    if weights.status == 0 and _combines(points[weights.x > 1e-9], at):
        return True
    if _separated(points, at, target):
        return False
    raise AssertionError("neither certificate holds")


def _combines(support: npt.NDArray[np.int64], at: Sequence[Fraction]) -> bool:
    """Whether the exact weights of affinely independent points that give ``at`` exist and are not negative."""
    rows = [[Fraction(int(z[j])) for z in support] + [Fraction(at[j])] for j in range(len(at))]
    rows.append([Fraction(1)] * (len(support) + 1))
    done = 0
    for column in range(len(support)):
        found = next((i for i in range(done, len(rows)) if rows[i][column] != 0), None)
        if found is None:
            return False
        rows[done], rows[found] = rows[found], rows[done]
        rows[done] = [v / rows[done][column] for v in rows[done]]
        for i, row in enumerate(rows):
            if i != done and row[column] != 0:
                rows[i] = [a - row[column] * b for a, b in zip(row, rows[done], strict=True)]
        done += 1
    return all(row[-1] == 0 for row in rows[done:]) and all(row[-1] >= 0 for row in rows[:done])


def _separated(points: npt.NDArray[np.int64], at: Sequence[Fraction], target: npt.NDArray[np.float64]) -> bool:
    d = len(target)
    # max t with <u, z - at> <= -t for all z, |u| <= 1
    found = linprog(
        np.append(np.zeros(d), -1.0),
        A_ub=np.hstack([points - target, np.ones((len(points), 1))]),
        b_ub=np.zeros(len(points)),
        bounds=[(-1, 1)] * d + [(0, None)],
        method="highs",
    )
    if found.status != 0:
        return False
    u = [Fraction(float(v)) for v in found.x[:d]]
    level = sum((a * b for a, b in zip(u, at, strict=True)), start=Fraction(0))
    return all(sum(a * int(b) for a, b in zip(u, z, strict=True)) < level for z in points)
