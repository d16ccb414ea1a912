"""Public numbers, one per free entry, kept as short as they were declared.

A range or cap is an array of shape () (the same for all entries), (1, columns) (one per matrix column) or (size,) (one
per free entry, in the order of the layout). The first two broadcast against the matrix without taking its memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dpmodel._types import Floats
from dpmodel.annotate.layout import Layout


def spread(numbers: Floats, layout: Layout) -> Floats:
    """(size,) the number of each free entry, read-only; without memory of its own where all are the same."""
    if numbers.ndim == 2:
        full = np.repeat(numbers[0], layout.height)
        full.setflags(write=False)
        return full
    return alike(numbers, layout.size) if numbers.size == 1 else np.broadcast_to(numbers, (layout.size,))


def alike(number: Floats, size: int) -> Floats:
    """(size,) one number (1,), read-only and without memory of its own: ``np.broadcast_to``, several times faster."""
    out: Floats = np.ndarray(size, number.dtype, number, strides=(0,))
    out.setflags(write=False)
    return out


def same_for_all(numbers: Floats) -> bool:
    """Whether what ``spread`` gave is one number for all entries."""
    return numbers.strides == (0,) or numbers.size == 1


def all_equal(numbers: Floats) -> bool:
    """Whether they are one number, however kept."""
    return bool(numbers.size == 0 or same_for_all(numbers) or (numbers == numbers[0]).all())


def each(function: Callable[..., Floats], *numbers: Floats) -> Floats:
    """``function`` of these, entry by entry; of one entry, without memory for the rest, where all are the same."""
    size = max(part.size for part in numbers)
    if size > 1 and all(same_for_all(part) for part in numbers):
        return alike(function(*(np.atleast_1d(part)[:1] for part in numbers)), size)
    return function(*numbers)


def some(numbers: Floats, which: Any) -> Floats:
    """``numbers[which]``, for a mask or places; still one number where they are the same for all."""
    if numbers.size > 1 and same_for_all(numbers):
        return alike(numbers[:1], int(np.count_nonzero(which) if which.dtype == bool else which.size))
    return np.asarray(numbers[which])


def at(numbers: Floats, layout: Layout, rows: Any, columns: Any) -> Floats:
    """The numbers of the entries in these ``rows`` and ``columns`` of a layout that holds all entries."""
    if numbers.ndim == 0:
        return numbers
    return np.asarray(numbers[0, columns] if numbers.ndim == 2 else numbers[rows + layout.height * columns])


def largest_sum(numbers: Floats, layout: Layout) -> float:
    """Largest sum of non-negative ``numbers`` over one unit."""
    if not layout.size:
        return 0.0
    if numbers.ndim == 0:
        return layout.unit_size * float(numbers)
    if numbers.ndim == 2:
        total, most = float(numbers.sum()), float(numbers.max())
        return {"all": layout.height * total, "row": total, "column": layout.height * most, "entry": most}[layout.unit]
    units = layout.by_unit(numbers)
    if units is not None:
        return float(units.sum(axis=1).max())
    return float(np.bincount(layout.units, weights=numbers, minlength=layout.unit_count).max(initial=0.0))
