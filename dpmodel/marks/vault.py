"""Where private values lie: outside every CVXPY object, so that no attribute of one can show them.

The key is the parameter's identity; an entry is deleted with its parameter. Values are read by the readers of private
rows in ``compile`` and ``regressions``, inside a mechanism's ``run``, and where a ``Private`` is copied.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from itertools import count
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dpmodel.marks.rows import RowSource, SourceRows

# Free entries (a PrivateArray), the CSR matrix of a parameter whose positions are private too, or ``SourceRows``.
Sealed: TypeAlias = Any

_values: dict[int, Sealed] = {}
_sources: dict[int, tuple[Callable[[], Any], Any]] = {}
_stamps: dict[int, int] = {}
_next_stamp = count()


def seal(parameter: Any, entries: Sealed | None, source: Any = None) -> None:
    """Keep ``entries`` (the free entries, 1-D, a CSR matrix, or ``SourceRows``) as the private value of ``parameter``.

    They are not copied but made read-only: no other array may write to their memory. ``source`` is what the user
    passed. Of it the address and a weak reference to the owner of the memory stay, to notice when the same memory
    enters a model as public numbers.
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
    _values[key], _stamps[key] = entries, next(_next_stamp)
    _sources.pop(key, None)
    array = _memory_of(source)
    if array is not None:
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        _sources[key] = weakref.ref(owner), _Address(array.__array_interface__)


def unseal(parameter: Any) -> Sealed | None:
    """The private entries, or the CSR matrix of a parameter with ``positions="private"``, or None.

    Called inside a mechanism's ``run``, and to copy a parameter.
    """
    return _values.get(id(parameter))


def source_of(parameter: Any) -> RowSource | None:
    """Where the rows of ``parameter`` are stored, if not in memory: a public fact."""
    found = _values.get(id(parameter))
    return found.source if isinstance(found, SourceRows) else None


def is_sealed(parameter: Any) -> bool:
    """Whether the parameter has a value."""
    return id(parameter) in _values


def stamp(parameter: Any) -> int | None:
    """A number that every value which is set gets, whatever is in it: another one tells that it was set again."""
    return _stamps.get(id(parameter))


def shares_memory(parameter: Any, array: Any) -> bool:
    """Whether ``array`` shares memory with what the user passed as the private value.

    False once that memory is freed: something else may lie there.
    """
    owner, address = _sources.get(id(parameter), (lambda: None, None))
    found = _memory_of(array)
    if found is None or owner() is None:
        return False
    return np.shares_memory(np.asarray(address), found)


def _memory_of(source: Any) -> npt.NDArray[Any] | None:
    """The memory of ``source``: an array, or a pandas series or frame with columns of one type. None for others."""
    types: Any = getattr(source, "dtypes", None)
    if getattr(types, "ndim", 0) and len(set(types)) > 1:
        return None  # a copy
    values = source if isinstance(source, np.ndarray) else getattr(source, "values", None)
    return values if isinstance(values, np.ndarray) and values.dtype.kind in "biuf" else None


class _Address:
    """The address of an array, without a reference to it."""

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface


def _forget(key: int) -> None:
    for each in (_values, _sources, _stamps):
        each.pop(key, None)
