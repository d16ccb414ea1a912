"""Where private values lie: outside every CVXPY object, so that no attribute of one can show them.

The key is the parameter's identity; an entry goes when its parameter goes. Only ``compile`` (to build
the parameter vector inside a mechanism's ``run``) reads from here.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dpmodel.marks.rows import RowSource, SourceRows

# Free entries (a PrivateArray), the CSR matrix of a parameter whose positions are private too, or ``SourceRows``.
Sealed: TypeAlias = Any

_values: dict[int, Sealed] = {}
_sources: dict[int, tuple[Callable[[], Any], Any]] = {}


def seal(parameter: Any, entries: Sealed | None, source: Any = None) -> None:
    """Keep ``entries`` (the free entries, 1-D, a CSR matrix, or ``SourceRows``) as the private value of ``parameter``.

    They are not copied but made read-only: nobody else may hold memory that can still write to them. ``source`` is
    what the user passed; only where it lies is kept, and a weak reference to the array that owns the memory, to notice
    when the same memory reaches a model as public numbers.
    """
    key = id(parameter)
    if key not in _values:
        weakref.finalize(parameter, _forget, key)
    if entries is None:
        _forget(key)
        return
    if not isinstance(entries, SourceRows):
        for array in (entries.data, entries.indices, entries.indptr) if sp.issparse(entries) else (entries,):
            array.setflags(write=False)
    _values[key] = entries
    _sources.pop(key, None)
    array = _lying(source)
    if array is not None:
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        _sources[key] = weakref.ref(owner), _Place(array.__array_interface__)


def unseal(parameter: Any) -> Sealed | None:
    """The private entries, or the CSR matrix of a parameter with ``positions="private"``, or None.

    To be called inside a mechanism's ``run`` only.
    """
    return _values.get(id(parameter))


def source_of(parameter: Any) -> RowSource | None:
    """Where the rows of ``parameter`` lie, if not in memory. Public: it says where, not what."""
    found = _values.get(id(parameter))
    return found.source if isinstance(found, SourceRows) else None


def is_sealed(parameter: Any) -> bool:
    """Whether a value was given."""
    return id(parameter) in _values


def shares_memory(parameter: Any, array: Any) -> bool:
    """Whether ``array`` has a number in common with the memory of what the user passed as the private value.

    Of memory that is no more, nothing is said: something else may lie there.
    """
    owner, place = _sources.get(id(parameter), (lambda: None, None))
    found = _lying(array)
    if found is None or owner() is None:
        return False
    return np.shares_memory(np.asarray(place), found)


def _lying(source: Any) -> npt.NDArray[Any] | None:
    """The array of numbers that ``source`` is: an array, or a series or a frame of pandas with columns of one type."""
    types: Any = getattr(source, "dtypes", None)
    if getattr(types, "ndim", 0) and len(set(types)) > 1:
        return None  # a copy
    values = source if isinstance(source, np.ndarray) else getattr(source, "values", None)
    return values if isinstance(values, np.ndarray) and values.dtype.kind in "biuf" else None


class _Place:
    """Where an array lies, and no hold on it."""

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface


def _forget(key: int) -> None:
    _values.pop(key, None)
    _sources.pop(key, None)
