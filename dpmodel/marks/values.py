"""A private value on its way in: checked, copied once, clipped and scaled; and what scaling says of sensitivities."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, PrivateArray
from dpmodel.errors import SpecificationError
from dpmodel.marks.bounds import Ball, Range, SensitivityBounds, complete
from dpmodel.marks.domain import EXACT_INTEGERS, array_of, frame_columns, is_frame
from dpmodel.marks.layout import Layout, at, canonical, free_entries, largest_sum, sum_by

# Scaled entries are rounded a few times; the change bounds that carry over are enlarged by it.
_ROUNDING = 2.0**-50
_TINY = float(np.finfo(float).tiny)
_BLOCK = 1 << 18


def scale_units(entries: Floats, layout: Layout, magnitude: Mapping[str, float]) -> None:
    """Scale the units of ``entries`` (size,) in place to the 1-norm ``max_l1`` and then to the 2-norm ``max_l2``."""
    view = layout.by_unit(entries)
    if view is None:
        scale_listed(entries, layout.units, layout.unit_count, magnitude)
        return
    count = view.shape[0]
    blocks = [slice(start, start + _block(count)) for start in range(0, view.shape[1], _block(count))]

    def largest() -> Floats:
        out = np.full(count, _TINY)
        for block in blocks:
            np.maximum(out, np.abs(view[:, block]).max(axis=1), out=out)
        return out

    def sums(largest: Floats, order: int) -> Floats:
        out = np.zeros(count)
        for block in blocks:
            out += ((np.abs(view[:, block]) / largest[:, None]) ** order).sum(axis=1)
        return out

    def multiply(factor: Floats) -> None:
        for block in blocks:
            view[:, block] *= factor[:, None]

    _scale(magnitude, largest, sums, multiply)


def scale_listed(entries: Floats, units: Integers, count: int, magnitude: Mapping[str, float]) -> None:
    """The same for entries with the unit of each in a list (sparse values), ``count`` units in all."""

    def largest() -> Floats:
        out = np.full(count, _TINY)
        np.maximum.at(out, units, np.abs(entries))
        return out

    def sums(largest: Floats, order: int) -> Floats:
        return sum_by(units, weights=(np.abs(entries) / largest[units]) ** order, minlength=count)

    def multiply(factor: Floats) -> None:
        entries[...] *= factor[units]

    _scale(magnitude, largest, sums, multiply)


def _scale(
    magnitude: Mapping[str, float],
    largest: Callable[[], Floats],
    sums: Callable[[Floats, int], Floats],
    multiply: Callable[[Floats], None],
) -> None:
    for key, order in (("max_l1", 1), ("max_l2", 2)):
        limit = magnitude[key]
        if math.isinf(limit):
            continue
        # Squares of huge entries overflow and of tiny ones vanish; scaled by the largest entry of their own
        # unit they do neither. (A scale shared by units would let one record move another's last bits.)
        peaks = largest()
        norms = sums(peaks, order)
        with np.errstate(over="ignore"):
            norms = peaks * (norms if order == 1 else np.sqrt(norms))
        multiply(np.divide(limit, norms, out=np.ones_like(norms), where=norms > limit))


def _block(count: int) -> int:
    """How many entries of each of ``count`` units are worked on at once: temporaries of some megabytes."""
    return max(1, _BLOCK // count)


def sensitivity_bounds(
    sensitivity: Mapping[str, float],
    magnitude: Mapping[str, float],
    entry_range: tuple[Floats, Floats],
    layout: Layout,
    *,
    absent_is_zero: bool,
) -> tuple[Floats, Ball, SensitivityBounds]:
    """Caps of the entries, the norm bounds that say more than the caps, and all norms completed.

    ``sensitivity`` : declared ``l1, l2, linf, row_l1``; ``magnitude`` : ``max_l1, max_l2, max_linf``; ``entry_range`` :
    what entries are clipped to (a number where all have the same). ``absent_is_zero`` : a record's unit may
    be missing, nothing else happens to it, and its change is its size; otherwise one value is replaced by another.
    """
    lower, upper = entry_range
    size = np.maximum(np.abs(lower), np.abs(upper))
    l1, l2 = magnitude["max_l1"], magnitude["max_l2"]
    if not absent_is_zero:
        l1, l2 = 2 * l1, _apart(l2, entry_range, layout)
    moved, linf = _after_scaling(sensitivity, magnitude, size, layout)
    l1, l2, row_l1 = min(l1, moved["l1"]), min(l2, moved["l2"]), moved["row_l1"]
    caps = np.minimum(size if absent_is_zero else upper - lower, linf)
    largest = float(np.max(caps, initial=0.0))
    # A 2-norm bound above the 1-norm bound, or one no change can reach, says nothing: left out, because
    # fewer norms mean exact and cheaper bounds.
    below = 1 - 1e-12
    ball = Ball(
        l1=l1 if l1 < largest_sum(caps, layout) * below else math.inf,
        l2=l2 if l2 < l1 * below and l2 < _largest_norm(caps, layout) * below else math.inf,
        row_l1=row_l1 if row_l1 < min(l1, layout.unit_row_size * largest) * below else math.inf,
    )
    completed = _complete({"l1": l1, "l2": l2, "linf": largest, "row_l1": row_l1}, layout)
    return np.asarray(np.minimum(caps, completed.linf)), ball, completed


def _apart(norm: float, entry_range: tuple[Floats, Floats], layout: Layout) -> float:
    """The 2-norm between two units x and y of 2-norm at most ``norm`` r and entries in ``entry_range``.

    ``||x - y||^2 <= 2 r^2 - 2 x'y``, where x_j y_j is negative only in entries that may have both signs, and at least
    lower_j upper_j there. So sqrt(2) r for entries of known signs, and 2 r at most.
    """
    if math.isinf(norm):
        return norm
    below, above = (np.maximum(end / norm, 0.0) for end in (-entry_range[0], entry_range[1]))  # products in any units
    return norm * min(2.0, math.sqrt(2 + 2 * largest_sum(np.asarray(below * above), layout)))


def _after_scaling(
    sensitivity: Mapping[str, float], magnitude: Mapping[str, float], size: Floats, layout: Layout
) -> tuple[Mapping[str, float], Floats]:
    """What the declared change bounds still say once units are scaled to max_l1 and max_l2: norms, and entries.

    They speak of the data as given, x and y at distance D; clipping moves no two entries apart. Scaled units are s x
    and t y with s, t in [0, 1], of size at most M.

    - A unit of one entry is clipped by it: nothing changes.
    - Scaling to a 2-norm ball is the projection onto it and never enlarges the 2-norm of a change; scaling to a 1-norm
      ball enlarges its 1-norm at most twofold (Dunkl and Williams 1964, for any norm).
    - In any norm, with s <= t: ``||s x - t y|| <= s ||x - y|| + (t - s) ||y|| <= D + M``, since ``t ||y|| <= M``.
    - An entry: where x_j and y_j have different signs ``|s x_j - t y_j| <= |x_j| + |y_j| = |x_j - y_j| <= D``, and
      otherwise it is at most the larger of the two, ``M_j`` (``size``).
    """
    to_l1, to_l2 = magnitude["max_l1"], magnitude["max_l2"]
    linf = np.asarray(sensitivity["linf"])
    if (math.isinf(to_l1) and math.isinf(to_l2)) or not any(map(math.isfinite, sensitivity.values())):
        return sensitivity, linf
    given = _complete(sensitivity, layout)
    rounding = _ROUNDING * layout.unit_size * min(to_l1, to_l2)
    if layout.unit_size <= 1:
        return dict.fromkeys(sensitivity, given.linf + rounding), np.asarray(given.linf + rounding)
    sizes = _complete({"l1": to_l1, "l2": to_l2, "linf": float(size.max(initial=0.0)), "row_l1": math.inf}, layout)
    kept = {key: getattr(given, key) + getattr(sizes, key) + rounding for key in sensitivity}
    if math.isinf(to_l1):
        kept["l2"] = given.l2 + rounding
    else:  # after the first scaling, and the second does not enlarge the 2-norm
        last = "l2" if math.isfinite(to_l2) else "l1"
        kept[last] = min(kept[last], 2 * given.l1 + rounding)
    return kept, np.maximum(size, given.linf) + rounding


def _complete(norms: Mapping[str, float], layout: Layout) -> SensitivityBounds:
    return complete(**norms, size=layout.unit_size, row_size=layout.unit_row_size, rows=layout.unit_rows)


def _largest_norm(caps: Floats, layout: Layout) -> float:
    """2-norm of the largest change that the entry caps alone allow one unit."""
    return math.sqrt(largest_sum(caps**2, layout)) if np.isfinite(caps).all() else math.inf


# ------------------------------------------------------------------ the value, checked, copied and clipped


_COPIED = 1 << 16


class Handed(np.ndarray[Any, Any]):
    """A float array in Fortran order that was made for one private value and is used for nothing else: no copy of it is
    taken. ``array.view(Handed)`` says so."""


def checked_entries(parameter: Any, value: Any, where: str) -> PrivateArray:
    """(size,) the free entries of ``value``, in memory of their own, or in that of a ``Handed`` one.
    Errors: SpecificationError, for what is no real numeric array of the declared shape, NaN and infinite entries,
    integers beyond 2^53, extended precision, and values that contradict the attributes."""
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
    if layout.lists:
        view = entries.reshape((layout.height, layout.width), order="F")
        for first, end, most in layout.lists:
            norms = np.abs(view[:, first:end]).sum(axis=1)
            if (beyond := norms > most).any():
                view[beyond, first:end] *= (most / norms[beyond])[:, None]


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
    for first, end, most in layout.lists:
        own = np.flatnonzero((rows.indices >= first) & (rows.indices < end))
        norms = sum_by(owner[own], weights=np.abs(rows.data[own]), minlength=rows.shape[0])
        rows.data[own] *= (most / np.maximum(norms, most))[owner[own]]
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
    step = max(1, _COPIED // array.shape[1])
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
    # How far entries of a parameter declared integer may be from integers.
    return bool(np.abs(entries - whole).max(initial=0.0) <= 1e-9)
