"""Where private values lie: outside every CVXPY object, so that no attribute of one can show them.

The key is the parameter's identity; an entry goes when its parameter goes. Only ``compile`` (to build
the parameter vector inside a mechanism's ``run``) reads from here.
"""

from __future__ import annotations

import weakref
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from dpmodel.annotate.sources.contract import RowSource, SourceRows

# Free entries (a PrivateArray), the CSR matrix of a parameter whose positions are private too, or ``SourceRows``.
Sealed: TypeAlias = Any

_values: dict[int, Sealed] = {}
_sources: dict[int, weakref.ref[Any]] = {}


def seal(parameter: Any, entries: Sealed | None, source: Any = None) -> None:
    """Keep ``entries`` (the free entries, 1-D, a CSR matrix, or ``SourceRows``) as the private value of ``parameter``.

    They are not copied but made read-only: nobody else may hold memory that can still write to them. ``source`` is
    the array the user passed; only a weak reference is kept, to notice when the same memory reaches a model as a
    plain constant.
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
    if isinstance(source, np.ndarray):
        _sources[key] = weakref.ref(source)


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
    """Whether ``array`` is a view of what the user passed as the private value."""
    reference = _sources.get(id(parameter))
    source = reference() if reference is not None else None
    return source is not None and isinstance(array, np.ndarray) and np.may_share_memory(source, array)


def _forget(key: int) -> None:
    _values.pop(key, None)
    _sources.pop(key, None)
