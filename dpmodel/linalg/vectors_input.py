"""Vectors, points and equations as given by the user -> ``PrivateVectors``: exact rows, checked, sealed.

Everything is checked before any budget is spent, and no message shows an entry.
"""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

from dpmodel.annotate.records import NEIGHBORS
from dpmodel.errors import SpecificationError
from dpmodel.mechanisms.linalg.entries import matrix
from dpmodel.mechanisms.linalg.fields import Field
from dpmodel.mechanisms.linalg.systems import ExactRows, PrivateVectors, VectorTask
from dpmodel.mechanisms.mechanism import Request
from dpmodel.privacy import validate_privacy

# A public guess of the number of records where one is needed, that number is private and nothing was said.
EXPECTED = 10_000


def request_of(epsilon: Any, delta: Any, beta: Any) -> Request:
    """The checked request.

    Raises
    ------
    SpecificationError
        Unless 0 < epsilon, 0 < delta < 1 and 0 < beta < 1.
    """
    loss = validate_privacy(epsilon, delta)
    if not 0 < loss.delta < 1:
        raise SpecificationError(
            "delta is not between 0 and 1",
            why="a subspace that needs some record never appears without it: only delta > 0 can hide that",
            remedy="delta=1e-6",
        )
    if not _is_real(beta) or not 0 < float(beta) < 1:
        raise SpecificationError(
            "beta is not a number between 0 and 1",
            why="beta is the probability that the accuracy statement fails",
            remedy="beta=0.05",
        )
    return Request(loss.epsilon, loss.delta, float(beta))


def field_of(field: Any, where: str) -> Field:
    """``field``, if it is one."""
    if isinstance(field, Field) and not isinstance(field, type):
        return field
    whole = isinstance(field, numbers.Integral) and not isinstance(field, bool)
    raise SpecificationError(
        f"{where}: field is of type {type(field).__name__}, which is no field",
        why="arithmetic is exact, in a field that is public",
        remedy=f"field=GF({field})" if whole else "field=QQ for rational numbers, or field=GF(q)",
    )


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
    if neighbors not in NEIGHBORS:
        raise SpecificationError(
            f"{where}: neighbors is neither 'add-remove' nor 'replace-one'",
            why="it decides what one record may change",
            remedy="neighbors='add-remove' or neighbors='replace-one'",
        )
    n, d = rows.shape
    if n == 0 and neighbors == "replace-one":
        raise SpecificationError(f"{where}: an empty system, without any record", remedy="one row per record")
    records = n if neighbors == "replace-one" else None
    share = _share(corrupted, where)
    sealed = np.ascontiguousarray(rows)
    sealed.setflags(write=False)
    return PrivateVectors(
        field=field,
        dimension=d,
        task=task,
        neighbors=neighbors,
        rank=_rank(rank, d, added, where),
        records=records,
        expected=_expected(expected, records, share is not None, where),
        _rows=lambda: sealed,
        corrupted=share,
    )


def equation_rows(A: Any, b: Any, field: Field, grid: Any, where: str) -> ExactRows:
    """(n, d + 1) exact rows (a, -b)."""
    left = matrix(A, f"{where}: A")
    if not hasattr(b, "__len__") or isinstance(b, str | bytes):
        raise SpecificationError(f"{where}: b is not a list of numbers", remedy="one right-hand side for each row of A")
    side = np.asarray(b) if hasattr(b, "dtype") or hasattr(b, "__array__") else _listed(b)
    side = side.reshape(-1) if side.ndim == 2 and 1 in side.shape else side
    if side.ndim != 1 or side.size != left.shape[0]:
        shape = "x".join(map(str, side.shape))
        raise SpecificationError(
            f"{where}: b of shape {shape} does not fit A with {left.shape[0]} rows",
            why="row i of A and entry i of b are one record's equation",
            remedy="a vector with one entry for each row of A",
        )
    if left.dtype.kind != side.dtype.kind or left.dtype.kind in "OUS":
        left, side = left.astype(object), side.astype(object)  # each entry keeps its own type
    rows = field.exact_rows(np.hstack([left, side[:, None]]), grid=grid, what=f"{where}: A and b")
    last = rows[:, -1:]
    return np.hstack([rows[:, :-1], -last if field.order is None else field.subtract(np.zeros_like(last), last)])


def _listed(b: Any) -> np.ndarray[Any, Any]:
    """b entry by entry where NumPy would unite types."""
    try:
        side = np.asarray(b)
        if side.dtype.kind in "biuf":
            floats = side.dtype.kind == "f"
            return (
                side if not floats or all(isinstance(x, float | np.floating) for x in b) else np.array(b, dtype=object)
            )
        return np.array(b, dtype=object)
    except (ValueError, TypeError, OverflowError):
        return np.array(b, dtype=object)


def _rank(rank: Any, d: int, added: int, where: str) -> int:
    if rank is None:
        return d
    if isinstance(rank, bool) or not isinstance(rank, numbers.Integral) or not 1 <= int(rank) + added <= d:
        raise SpecificationError(
            f"{where}: rank is not a whole number between {1 - added} and {d - added}",
            why="it is a public bound on the dimension of what the records span",
            remedy=f"rank={d - added}, or leave it out",
        )
    return int(rank) + added


def _share(corrupted: Any, where: str) -> float | None:
    if corrupted is None:
        return None
    if not _is_real(corrupted) or not 0 <= float(corrupted) < 1:
        raise SpecificationError(
            f"{where}: corrupted is not a number in [0, 1)",
            why="it is a public guess of the share of records outside the subspace that is wanted",
            remedy="corrupted=0.02, or leave it out",
        )
    return float(corrupted)


def _expected(expected: Any, records: int | None, required: bool, where: str) -> int:
    """The guess; 0 where there is none and nothing needs one."""
    if expected is None:
        return records if records is not None else EXPECTED if required else 0
    if isinstance(expected, bool) or not isinstance(expected, numbers.Integral) or int(expected) < 1:
        raise SpecificationError(
            f"{where}: expected is not a whole number of at least 1",
            why="it is a public guess of the number of records, for the forecast",
            remedy=f"expected={EXPECTED}",
        )
    return int(expected) if records is None else records


def _is_real(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(float(value))
