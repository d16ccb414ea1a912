"""The public arguments that the functions of ``linalg`` share: checked in one place, in the same words."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpmodel.errors import SpecificationError
from dpmodel.exact.fields import Field
from dpmodel.marks.records import NEIGHBORS

# A public guess of the number of records where one is needed, that number is private and nothing was said.
EXPECTED = 10_000
# Positions are kept in 64 bits.
_MOST_LEVELS = 2**40


def not_finite(what: str) -> SpecificationError:
    """The error for private numbers that are none."""
    return SpecificationError(
        f"{what} hold NaN or infinite entries",
        why="every entry must be a number (the entries are not shown)",
        remedy="drop or fill these rows by a public rule",
    )


def require_neighbors(neighbors: Any, where: str) -> None:
    """SpecificationError for anything but the two relations."""
    if neighbors not in NEIGHBORS:
        raise SpecificationError(
            f"{where}: neighbors is neither 'add-remove' nor 'replace-one'",
            why="it decides what one record may change",
            remedy="neighbors='add-remove' or neighbors='replace-one'",
        )


def field_of(field: Any, where: str) -> Field:
    """``field``, if it is one."""
    if isinstance(field, Field) and not isinstance(field, type):
        return field
    counts = isinstance(field, numbers.Integral) and not isinstance(field, bool)
    raise SpecificationError(
        f"{where}: field is of type {type(field).__name__}, which is no field",
        why="arithmetic is exact, in a field that is public",
        remedy=f"field=GF({field})" if counts else "field=QQ for rational numbers, or field=GF(q)",
    )


def expected_of(expected: Any, records: int | None, where: str, default: int = EXPECTED) -> int:
    """``records`` where that is public, else the public guess of it; ``default`` where there is none."""
    if expected is not None and (not is_integer(expected, 1) or expected > 2**53):
        raise SpecificationError(
            f"{where}: expected is not an integer of at least 1 and at most 2^53",
            why="it is a public guess of the number of records, by which mechanisms are compared",
            remedy=f"expected={EXPECTED}",
        )
    if records is not None:
        return records
    return default if expected is None else int(expected)


def each_of(value: Any, d: int, what: str) -> list[Any]:
    """``value`` for each of d coordinates: one for all of them, or one each."""
    one = isinstance(value, str) or not isinstance(value, Sequence | np.ndarray)
    entries = [value] * d if one else list(value)
    if len(entries) != d:
        raise SpecificationError(
            f"{what} has {len(entries)} entries",
            why=f"there are {d} coordinates",
            remedy="one number for all of them, or one each",
        )
    return entries


def rank_of(rank: Any, d: int, added: int, where: str) -> int:
    """The bound on the dimension of vectors with d entries, ``added`` of which are not the user's; d without one."""
    if rank is None:
        return d
    if not is_integer(rank, 1 - added) or int(rank) + added > d:
        raise SpecificationError(
            f"{where}: rank is not an integer between {1 - added} and {d - added}",
            why="it is a public bound on the dimension of what the records span",
            remedy=f"rank={d - added}, or leave it out",
        )
    return int(rank) + added


def share_of(corrupted: Any, where: str) -> float | None:
    """A share in [0, 1), or None."""
    if corrupted is None:
        return None
    if not is_real(corrupted) or not 0 <= float(corrupted) < 1:
        raise SpecificationError(
            f"{where}: corrupted is not a number in [0, 1)",
            why="it is a public guess of the share of records outside the subspace that is wanted",
            remedy="corrupted=0.02, or leave it out",
        )
    return float(corrupted)


def is_integer(value: Any, least: int) -> bool:
    """Whether it is an integer, and at least that."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= least


def is_real(value: Any) -> bool:
    """Whether it is a number that a float can hold, and finite."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def require_levels(levels: Sequence[int], where: str) -> None:
    """SpecificationError for a grid that positions in 64 bits cannot number."""
    if max(levels) > _MOST_LEVELS:
        raise SpecificationError(
            f"{where}: more than {_MOST_LEVELS:,} grid points along a coordinate",
            why="positions are machine integers",
            remedy="a larger step",
        )
