"""The affine span of nearly all of many points, when each point is one person's record."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpmodel._types import Array
from dpmodel.annotate.records import Neighbors
from dpmodel.linalg.conduct import ProgressArgument, conduct
from dpmodel.linalg.public_facts import field_of, vectors_request
from dpmodel.linalg.subspace_result import AffineSubspace, common, frozen
from dpmodel.linalg.vectors_input import vectors_model
from dpmodel.numerics.fields.echelon import Basis
from dpmodel.privacy import Budget

__all__ = ["AffineSubspace", "affine_span", "point_and_directions"]


def affine_span(
    points: Any,
    *,
    field: Any,
    epsilon: float,
    delta: float,
    neighbors: Neighbors = "replace-one",
    budget: Budget | None = None,
    grid: Any = None,
    rank: int | None = None,
    corrupted: float | None = None,
    expected: int | None = None,
    beta: float = 0.05,
    mechanism: Any = "auto",
    rng: Any = None,
    progress: ProgressArgument = None,
) -> AffineSubspace:
    """Find an affine subspace of the affine span of the points that contains nearly all of them, exactly.

    KMMST24, Algorithm 3 and Theorem B: the span of the vectors (u, 1). The empty set where nothing is found.

    Parameters
    ----------
    points : (n, d) matrix, one row per record, with entries as in ``span``.
    rank : public bound on the dimension of the affine span, 0 .. d (default d).

    The other arguments, the errors and the notes are those of ``span``; a point at the origin is a point like any
    other.

    Returns
    -------
    AffineSubspace
    """
    request = vectors_request(epsilon, delta, beta)
    numbers = field_of(field, "affine_span")
    model = vectors_model(
        numbers.exact_rows(points, grid=grid, what="points", ones=True),
        numbers,
        task="affine span",
        neighbors=neighbors,
        rank=rank,
        added=1,
        corrupted=corrupted,
        expected=expected,
        where="affine_span",
    )
    conducted = conduct(
        model,
        request,
        mechanism=mechanism,
        budget=budget,
        rng=rng,
        progress=progress,
        label="linalg.affine_span",
        record="a record is one point",
    )
    point, directions = point_and_directions(conducted.found.answer)
    return AffineSubspace(
        homogeneous=conducted.found.answer, point=point, directions=directions, **common(conducted, grid)
    )


def point_and_directions(homogeneous: Basis) -> tuple[Array | None, Basis]:
    """From a basis of vectors (u, 1) to the canonical point (d,) or None, and directions.

    With the last coordinate moved to the front, the first row of the echelon form is (1, point) and the others are
    (0, direction).
    """
    field = homogeneous.field
    moved = np.hstack([homogeneous.rows[:, -1:], homogeneous.rows[:, :-1]])
    basis = field.echelon(field.exact_rows(moved))
    pointed = basis.dimension > 0 and basis.pivots[0] == 0
    rows = basis.rows[1:, 1:] if pointed else basis.rows[:, 1:]
    pivots = tuple(column - 1 for column in basis.pivots if column > 0)
    return (frozen(basis.rows[0, 1:]) if pointed else None), Basis(field, frozen(rows), pivots)
