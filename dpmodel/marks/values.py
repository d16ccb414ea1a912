"""A private value on its way in: checked, copied once, clipped and scaled."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, PrivateArray
from dpmodel.errors import SpecificationError
from dpmodel.marks.bounds import Range
from dpmodel.marks.domain import EXACT_INTEGERS, array_of, frame_columns, is_frame
from dpmodel.marks.layout import Layout, at, canonical, free_entries
from dpmodel.marks.magnitude import scale_listed, scale_units

_BLOCK = 1 << 16
# How far entries of a parameter declared integer may be from integers.
_WHOLE = 1e-9


class Handed(np.ndarray[Any, Any]):
    """A float array in Fortran order that was made for one private value and is used for nothing else: no copy of it is
    taken. ``array.view(Handed)`` says so."""


def checked_entries(parameter: Any, value: Any, where: str) -> PrivateArray:
    """(size,) the free entries of ``value``, in memory of their own, or in that of a ``Handed`` one.

    Raises
    ------
    SpecificationError
        For what is no real numeric array of the declared shape, NaN and infinite entries, integers beyond 2^53,
        extended precision, and values that contradict the attributes.
    """
    array = _numbers(parameter, value, where)
    attributes = parameter.attributes
    halves = attributes["diag"] or any(attributes[key] for key in ("symmetric", "PSD", "NSD"))
    if parameter.sparse_idx is None and not halves and not sp.issparse(array):
        handed = isinstance(value, Handed) and array.dtype == np.float64 and array.flags.f_contiguous
        entries = np.asarray(array).reshape(-1, order="F") if handed else _columns_copied(array)
        _refuse_infinite(entries, where)
        _refuse_structure(parameter, array, entries, where)
        return PrivateArray(entries)
    dense = array.astype(np.float64)
    entries = np.array(free_entries(parameter, dense), dtype=np.float64)
    _refuse_infinite(entries, where)
    _refuse_infinite(dense.data if sp.issparse(dense) else dense, where)
    _refuse_structure(parameter, dense, entries, where)
    return PrivateArray(entries)


def checked_rows(parameter: Any, value: Any, where: str) -> sp.csr_array:
    """(n, p) ``value`` as a CSR matrix of its own memory, duplicates added up. Errors as ``checked_entries``."""
    array = _numbers(parameter, value, where)
    rows = sp.csr_array(array, dtype=np.float64, copy=True)
    rows.sum_duplicates()
    _refuse_infinite(rows.data, where)
    _refuse_structure(parameter, rows, rows.data, where)
    return rows


def limit_entries(entries: PrivateArray, clips: Range, layout: Layout, magnitude: Mapping[str, float]) -> None:
    """Clip ``entries`` (size,) to their range and scale their units, in place."""
    lower, upper = clips
    if lower.ndim == upper.ndim == 2:
        view = entries.reshape((layout.height, layout.width), order="F")
        np.clip(view, lower, upper, out=view)
    elif np.isfinite(lower).any() or np.isfinite(upper).any():
        np.clip(entries, lower, upper, out=entries)
    scale_units(entries, layout, magnitude)


def limit_rows(rows: sp.csr_array, clips: Range, layout: Layout, magnitude: Mapping[str, float]) -> None:
    """The same for a CSR matrix whose ranges all hold zero: entries that are not stored stay zero."""
    owner = np.repeat(np.arange(rows.shape[0], dtype=np.int64), np.diff(rows.indptr))
    lower, upper = (at(end, layout, owner, rows.indices) for end in clips)
    np.clip(rows.data, lower, upper, out=rows.data)
    units = {
        "row": owner,
        "column": rows.indices,
        "all": np.zeros_like(owner),
        "entry": np.arange(rows.nnz, dtype=np.int64),
    }[layout.unit]
    scale_listed(rows.data, units, rows.nnz if layout.unit == "entry" else layout.unit_count, magnitude)
    rows.eliminate_zeros()


def _numbers(parameter: Any, value: Any, where: str) -> Any:
    """``value`` as an array or canonical sparse coordinates: real numbers in the declared shape."""
    if isinstance(value, cp.Expression):
        raise SpecificationError(f"{where}: value is a CVXPY expression", remedy="a number or an array")
    array: Any = None
    with contextlib.suppress(TypeError, ValueError):  # ragged
        array = canonical(value) if sp.issparse(value) else value if is_frame(value) else array_of(value)
    if array is not None and tuple(array.shape) != tuple(parameter.shape):
        raise SpecificationError(
            f"{where}: value has shape {tuple(array.shape)}, declared {tuple(parameter.shape)}",
            why="shapes are public and fixed when the model is written",
            remedy=f"a value of shape {tuple(parameter.shape)}",
        )
    if sp.issparse(array):
        _exact(array.data, where)
        return array
    if not is_frame(array):
        return _exact(array, where)
    out = np.empty(array.shape, dtype=np.float64, order="F")
    for j, column in enumerate(frame_columns(array)):  # each has a type of its own
        out[:, j] = _exact(column, where)
    return out


def _exact(array: Any, where: str) -> Any:
    """The array, if it holds real numbers that double precision keeps; objects as floats, each read by itself."""
    kind = "O" if array is None else array.dtype.kind
    if array is not None and kind == "O":
        each = [n.item() if isinstance(n, np.generic) else n for n in array.ravel().tolist()]
        if all(isinstance(number, bool | int | float) for number in each):
            kind = "i" if any(abs(number) >= EXACT_INTEGERS for number in each if isinstance(number, int)) else "f"
            array = array.astype(np.float64) if kind == "f" else array
    if kind not in "biuf":
        raise SpecificationError(
            f"{where}: value is not a real numeric array",
            why="noise is added to real numbers",
            remedy="convert to float (and encode categories) first",
        )
    wide = kind == "f" and array.dtype.itemsize > 8
    if wide or (kind in "iu" and array.size and max(-int(array.min()), int(array.max())) >= EXACT_INTEGERS):
        raise SpecificationError(
            f"{where}: value has {'extended precision' if wide else 'integers beyond 2^53'}",
            why="as double-precision numbers they would be rounded, which can enlarge a record's change",
            remedy="float64 numbers: count in larger units, or clip before the value is given",
        )
    return array


def _columns_copied(array: Any) -> Floats:
    """(size,) a copy in Fortran order; row by row in blocks that fit into a cache, because it turns the matrix."""
    if array.ndim != 2 or array.flags.f_contiguous:
        return np.array(array.ravel(order="F"), dtype=np.float64)
    out = np.empty(array.shape, dtype=np.float64, order="F")
    step = max(1, _BLOCK // array.shape[1])
    for start in range(0, array.shape[0], step):
        out[start : start + step] = array[start : start + step]
    return out.reshape(-1, order="F")


def _refuse_infinite(entries: Any, where: str) -> None:
    # NaN passes through minima and maxima, and neither needs memory.
    if entries.size and not (np.isfinite(entries.min()) and np.isfinite(entries.max())):
        raise SpecificationError(
            f"{where}: value has NaN or infinite entries",
            why="they have no bounded sensitivity",
            remedy="impute or drop them before the value is given",
        )


def _refuse_structure(parameter: Any, value: Any, entries: Floats, where: str) -> None:
    """Attributes must hold (bounds are clipped instead): without them the model would be another."""
    attributes = parameter.attributes
    broken = ""
    if (attributes["nonneg"] or attributes["pos"]) and entries.size and entries.min() < 0:
        broken = "nonneg"
    elif (attributes["nonpos"] or attributes["neg"]) and entries.size and entries.max() > 0:
        broken = "nonpos"
    elif parameter.sparse_idx is not None and parameter.shape:
        inside = np.count_nonzero(entries)
        total = np.count_nonzero(value.data if sp.issparse(value) else value)
        broken = "sparsity" if total != inside else ""
    elif attributes["diag"] or any(attributes[k] for k in ("symmetric", "PSD", "NSD")):
        full = value.toarray() if sp.issparse(value) else value
        if attributes["diag"]:
            broken = "diag" if np.count_nonzero(full) != np.count_nonzero(np.diag(full)) else ""
        elif not np.allclose(full, full.T, rtol=1e-9, atol=1e-9):
            broken = "symmetric"
        elif attributes["PSD"] or attributes["NSD"]:
            eigenvalues = np.linalg.eigvalsh(full if attributes["PSD"] else -full)
            broken = "definite" if eigenvalues[0] < -1e-8 * max(1.0, abs(eigenvalues[-1])) else ""
    if not broken and (attributes["boolean"] or attributes["integer"]) and not _whole(parameter, value, entries):
        broken = "integer"
    if broken:
        raise SpecificationError(
            f"{where}: value contradicts its attributes ({broken})",
            why="attributes are public promises about the parameter",
            remedy="drop the attribute, or repair the data before the value is given",
        )


def _whole(parameter: Any, value: Any, entries: Floats) -> bool:
    """Whether entries declared integer are so, to 1e-9 whatever their size: discrete noise is calibrated to that.

    Not by CVXPY's projection, which leaves values as they are where a leaf has two attributes (or bounds).
    """
    nearest = np.rint(entries)
    if parameter.attributes["boolean"] is True:
        return _near(entries, np.clip(nearest, 0.0, 1.0))
    if parameter.attributes["integer"] is True:
        return _near(entries, nearest)
    # Lists of positions.
    full = np.atleast_1d(np.asarray(value.toarray() if sp.issparse(value) else value, dtype=np.float64))
    some, bits = (
        full[where] if len(where) else np.zeros(0) for where in (parameter.integer_idx, parameter.boolean_idx)
    )
    return _near(some, np.rint(some)) and _near(bits, np.clip(np.rint(bits), 0.0, 1.0))


def _near(entries: Floats, whole: Floats) -> bool:
    return bool(np.abs(entries - whole).max(initial=0.0) <= _WHOLE)
