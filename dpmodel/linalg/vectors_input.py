"""Vectors, points and equations as given by the user -> ``PrivateVectors``: exact rows, checked, sealed.

Everything is checked before any budget is spent, and no message shows an entry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel.annotate.elements import array_of
from dpmodel.errors import SpecificationError
from dpmodel.linalg.public_facts import EXPECTED, expected_of, rank_of, require_neighbors, share_of
from dpmodel.mechanisms.linalg.systems import ExactRows, PrivateVectors, VectorTask
from dpmodel.numerics.fields.entries import matrix, refuse_other_fields
from dpmodel.numerics.fields.field import Field


def vectors_model(
    rows: ExactRows,
    field: Field,
    *,
    task: VectorTask,
    neighbors: Any,
    rank: Any,
    corrupted: Any,
    expected: Any,
    where: str,
    added: int = 0,
) -> PrivateVectors:
    """The model of exact rows (n, d), which are sealed here: nobody else holds them.

    ``rank`` : bound on the dimension of their span less ``added``, or None. Errors as ``span``.
    """
    n, d = rows.shape
    sealed = np.ascontiguousarray(rows)
    sealed.setflags(write=False)
    model = public_vectors(
        field,
        d,
        task=task,
        neighbors=neighbors,
        rank=rank,
        corrupted=corrupted,
        records=n if neighbors == "replace-one" else None,
        expected=expected,
        where=where,
        added=added,
        read=lambda: sealed,
    )
    if n == 0 and neighbors == "replace-one":
        raise SpecificationError(
            f"{where}: an empty system, without any record",
            why="their number is public under replace-one, and there is nothing to replace",
            remedy="one row per record",
        )
    return model


def public_vectors(
    field: Field,
    dimension: int,
    *,
    task: VectorTask,
    neighbors: Any,
    rank: Any,
    corrupted: Any,
    records: int | None,
    expected: Any,
    where: str,
    added: int = 0,
    read: Callable[[], ExactRows],
) -> PrivateVectors:
    """The model from public facts (``records``: None where their number is private) and the one way to the rows."""
    require_neighbors(neighbors, where)
    share = share_of(corrupted, where)
    return PrivateVectors(
        field=field,
        dimension=dimension,
        task=task,
        neighbors=neighbors,
        rank=rank_of(rank, dimension, added, where),
        records=records,
        expected=expected_of(expected, records, where, default=0 if share is None else EXPECTED),
        _rows=read,
        corrupted=share,
    )


def equation_rows(A: Any, b: Any, field: Field, grid: Any, where: str) -> ExactRows:
    """(n, d + 1) exact rows (a, -b)."""
    left = matrix(A, f"{where}: A", field)
    refuse_other_fields(b, f"{where}: b", field)
    b = b.toarray() if sp.issparse(b) else b
    if not hasattr(b, "__len__") or isinstance(b, str | bytes):
        raise SpecificationError(f"{where}: b is not a list of numbers", remedy="one right-hand side for each row of A")
    try:
        side = array_of(b)
    except (ValueError, TypeError):
        side = np.asarray(None)  # ragged: refused with the other shapes
    side = side.reshape(-1) if side.ndim == 2 and 1 in side.shape else side
    if side.ndim != 1 or side.size != left.shape[0]:
        raise SpecificationError(  # without their numbers: how many records there are may be private
            f"{where}: b does not fit the rows of A",
            why="row i of A and entry i of b are one record's equation",
            remedy="a vector with one entry for each row of A",
        )
    if left.dtype.kind != side.dtype.kind or left.dtype.kind in "OUS":
        left, side = left.astype(object), side.astype(object)  # each entry keeps its own type
    rows = field.exact_rows(np.hstack([left, side[:, None]]), grid=grid, what=f"{where}: A and b")
    last = rows[:, -1:]
    return np.hstack([rows[:, :-1], -last if field.order is None else field.subtract(np.zeros_like(last), last)])
