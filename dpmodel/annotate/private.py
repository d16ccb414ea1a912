"""A private parameter: a ``cvxpy.Parameter`` that fails closed."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Mapping
from typing import Any

import cvxpy as cp
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dpmodel.annotate import vault
from dpmodel.annotate.bounds import UNITS, Ball, ChangeBounds, Unit, positive, refuse_contradictions
from dpmodel.annotate.layout import Layout, canonical, free_entries, layout_of
from dpmodel.annotate.magnitude import change_bounds, scale_units
from dpmodel.annotate.records import DEFAULT_RECORDS, Records
from dpmodel.errors import SpecificationError

Floats = npt.NDArray[np.float64]

_EXACT_INTEGERS = 2.0**53
# Norms are sums of squares, which vanish or overflow outside this range.
_LEAST_CHANGE, _MOST_CHANGE = 1e-100, 1e100
_REFUSED_ATTRIBUTES = ("complex", "imag", "hermitian")


class PublicPatternWarning(UserWarning):
    """The positions of a sparse value's stored entries were taken as public."""


class Private(cp.Parameter):  # type: ignore[misc]
    """A parameter computed from records that must stay private.

    It behaves as a ``cvxpy.Parameter`` in expressions, but it fails closed: ``value`` reads as None for
    ever, so neither CVXPY nor a printed expression, residual or objective can show it. The value is
    copied, checked and kept outside the object; only a mechanism that has paid for it reads it.
    Pickles and problem copies carry the annotation; a pickle does not carry the value.

    Parameters
    ----------
    value : array, scipy sparse matrix or number; may be given later (``parameter.value = ...``).
    shape : needed when no value is given.
    name : shown in messages.
    unit : what one record owns: ``"all"`` (an aggregate; a record may move every entry), ``"entry"``,
        ``"row"`` or ``"column"``.
    l1, l2, linf, row_l1 : how far one record may move its unit in the data as given, in these norms
        (``row_l1``: the 1-norm of the change of any one matrix row). The missing ones are derived. None at all, and no
        magnitude, means arbitrarily far, which unit ``"all"`` does not allow.
    max_l1, max_l2, max_linf : magnitude of one unit. Larger units are scaled (entries clipped, for
        ``max_linf``) to it: public policy, without a message. One record then moves its unit
        by at most twice that (replace-one, and unit "all" always) or once that (add-remove).
    records : whose data it is; parameters of the same ``Records`` move together.
    **cvxpy_attributes : ``nonneg``, ``bounds=[lo, hi]`` (entrywise magnitude; values are clipped to it),
        ``symmetric``, ``PSD``, ``diag``, ``sparsity`` and the other attributes of CVXPY.

    Notes
    -----
    A scipy sparse value without ``sparsity=`` makes the *positions* of its stored entries public (only
    their values are protected) and a ``PublicPatternWarning`` says so. Give ``sparsity=`` to say
    that the positions are public knowledge, or a dense array to protect them too.

    Raises
    ------
    SpecificationError
        For contradicting, negative, zero or infinite bounds; unit "all" without a bound; NaN or
        infinite values; wrong shapes; values that contradict the attributes; complex data.
    """

    def __init__(
        self,
        value: Any = None,
        *,
        shape: int | tuple[int, ...] | None = None,
        name: str | None = None,
        unit: Unit = "all",
        l1: float | None = None,
        l2: float | None = None,
        linf: float | None = None,
        row_l1: float | None = None,
        max_l1: float | None = None,
        max_l2: float | None = None,
        max_linf: float | None = None,
        records: Records | None = None,
        **cvxpy_attributes: Any,
    ) -> None:
        if name is not None and not isinstance(name, str):
            raise SpecificationError(f"Private: name=<{type(name).__name__}>", remedy="name='demand'")
        where = f"Private({name!r})" if name else "Private"
        if not isinstance(unit, str) or unit not in UNITS:
            raise SpecificationError(
                f"{where}: unit={repr(unit) if isinstance(unit, str) else type(unit).__name__}",
                why="the unit says what one record owns",
                remedy="unit='all', 'entry', 'row' or 'column'",
            )
        if records is not None and not isinstance(records, Records):
            raise SpecificationError(f"{where}: records={type(records).__name__}", remedy="records=Records('people')")
        for refused in _REFUSED_ATTRIBUTES:
            if cvxpy_attributes.get(refused):
                raise SpecificationError(
                    f"{where}: {refused}=True",
                    why="sensitivities are defined here for real parameters",
                    remedy="two private parameters, one for the real and one for the imaginary part",
                )
        shape = _resolve_shape(value, shape, where)
        if sp.issparse(value) and "sparsity" not in cvxpy_attributes and len(shape) == 2:
            cvxpy_attributes["sparsity"] = _public_pattern(value, where)
        try:
            super().__init__(shape, name=name, **cvxpy_attributes)
        except (ValueError, TypeError) as error:
            raise SpecificationError(
                f"{where}: {error}",
                why="besides unit, bounds and records, keywords are CVXPY's parameter attributes",
                remedy="l1, l2, linf, row_l1, max_l1, max_l2, max_linf, unit, records, name, shape, or an attribute",
            ) from None
        self._where = f"Private({self.name()!r})"
        self._unit: Unit = unit
        self._records = records if records is not None else DEFAULT_RECORDS
        self._layout = layout_of(self, unit, where)
        change = {
            key: positive(key, given, where)
            for key, given in (("l1", l1), ("l2", l2), ("linf", linf), ("row_l1", row_l1))
        }
        if math.isfinite(change["row_l1"]) and len(self.shape) < 2:
            raise SpecificationError(
                f"{where}: row_l1 on shape {self.shape}", why="row_l1 bounds rows of a matrix", remedy="l1="
            )
        refuse_contradictions(change, where)
        self._magnitude = {
            key: positive(key, given, where)
            for key, given in (("max_l1", max_l1), ("max_l2", max_l2), ("max_linf", max_linf))
        }
        refuse_contradictions(self._magnitude, where)
        self._entry_clips = self._declared_range(where)
        self._lower, self._upper = self._entry_bounds()
        # An absent unit is zero, so add-remove moves a unit by its size only. An aggregate is owned by nobody:
        # taking one record away moves it between any two values that its magnitude allows.
        owned = self._records.neighbors == "add-remove" and unit != "all"
        # With a declared change (counts, say) or bounds without zero, a unit may move without coming or going.
        zero_fits = bool((self._lower <= 0).all() and (self._upper >= 0).all())
        self._vanishes = owned and zero_fits and not any(map(math.isfinite, change.values()))
        self._caps, self._ball, self._change = change_bounds(
            change, self._magnitude, (self._lower, self._upper), self._layout, absent_is_zero=owned
        )
        reach = self._change.linf
        if math.isfinite(reach) and not (reach == 0 or _LEAST_CHANGE <= reach <= _MOST_CHANGE):
            raise SpecificationError(
                f"{where}: one record moves an entry by at most {reach:g}",
                why=f"changes outside [{_LEAST_CHANGE:g}, {_MOST_CHANGE:g}] cannot be squared in floating point",
                remedy="other units for this parameter",
            )
        if unit == "all" and not self._change.finite:
            raise SpecificationError(
                f"{where}: unit='all' without a bound",
                why="a record that may move every entry arbitrarily far leaves nothing to protect it with",
                remedy="l1=, l2= or linf= (how far one record moves it), bounds=[lo, hi], "
                "or the unit that one record owns (unit='entry', 'row' or 'column')",
            )
        if value is not None:
            self.value = value

    # ------------------------------------------------------------------ what was declared (public)
    @property
    def unit(self) -> Unit:
        return self._unit

    @property
    def records(self) -> Records:
        return self._records

    @property
    def l1(self) -> float:
        """Bound on the 1-norm of the change of one unit, given or derived (inf: arbitrarily far)."""
        return self._change.l1

    @property
    def l2(self) -> float:
        """Bound on the 2-norm of the change of one unit, given or derived."""
        return self._change.l2

    @property
    def linf(self) -> float:
        """Bound on the change of any entry, given or derived."""
        return self._change.linf

    @property
    def row_l1(self) -> float:
        """Bound on the 1-norm of the change of any matrix row, given or derived."""
        return self._change.row_l1

    @property
    def change(self) -> ChangeBounds:
        return self._change

    @property
    def layout(self) -> Layout:
        return self._layout

    @property
    def ball(self) -> Ball:
        """The norm bounds that say more than the entry caps do (inf where none was declared)."""
        return self._ball

    @property
    def entry_caps(self) -> Floats:
        """(size,) largest change of each free entry, from ``linf`` and the entry's own bounds."""
        return self._caps

    @property
    def entry_range(self) -> tuple[Floats, Floats]:
        """(size,), (size,): public lower and upper bounds of the free entries (may be infinite)."""
        return self._lower, self._upper

    @property
    def magnitude(self) -> Mapping[str, float]:
        """Declared ``max_l1, max_l2, max_linf`` of one unit (inf where not declared)."""
        return self._magnitude

    @property
    def vanishes(self) -> bool:
        """Whether all that one record does is to be there or not: its unit, and no part of it, becomes zero."""
        return self._vanishes

    @property
    def has_value(self) -> bool:
        return vault.is_sealed(self)

    # ------------------------------------------------------------------ the value goes in, never out
    @property
    def value(self) -> None:
        """None, always: a private value leaves only through a mechanism."""
        return None

    @value.setter
    def value(self, value: Any) -> None:
        if value is None:
            vault.seal(self, None)
            return
        vault.seal(self, self._clip(self._checked(value)), source=value)

    @property
    def value_sparse(self) -> None:
        """None, always."""
        return None

    @value_sparse.setter
    def value_sparse(self, value: Any) -> None:
        self.value = value

    def save_value(self, val: Any, sparse_path: bool = False) -> None:
        """CVXPY's way of storing a value: goes the same guarded way."""
        self.value = val

    def project_and_assign(self, val: Any) -> None:
        self.value = self.project(val)

    def shares_memory(self, array: Any) -> bool:
        """Whether ``array`` is (a view of) the array that was passed as the private value."""
        return vault.shares_memory(self, array)

    def __deepcopy__(self, memo: dict[Any, Any]) -> Private:
        new: Private = super().__deepcopy__(memo)
        # CVXPY leaves its recursion guard on both objects; on the copy it would switch this method off.
        self.__dict__.pop("__deepcopy__", None)
        new.__dict__.pop("__deepcopy__", None)
        vault.seal(new, vault.unseal(self))
        return new

    def __repr__(self) -> str:
        bounds = ", ".join(
            f"{key}={getattr(self, key):g}" for key in ("l1", "l2", "linf") if math.isfinite(getattr(self, key))
        )
        state = "value sealed" if self.has_value else "no value"
        return f"Private({self.name()!r}, shape={self.shape}, unit={self._unit!r}, {bounds or 'unbounded'}, {state})"

    # ------------------------------------------------------------------ checks
    def _checked(self, value: Any) -> Floats:
        if isinstance(value, cp.Expression):
            raise SpecificationError(f"{self._where}: value is a CVXPY expression", remedy="a number or an array")
        try:
            dense = canonical(value) if sp.issparse(value) else np.asarray(value)
            kind = dense.dtype.kind
            wide = kind == "f" and dense.dtype.itemsize > 8
        except (TypeError, ValueError):
            kind, wide = "O", False
        if kind not in "biuf":
            raise SpecificationError(
                f"{self._where}: value is not a real numeric array",
                why="noise is added to real numbers",
                remedy="convert to float (and encode categories) first",
            )
        dense = dense.astype(np.float64)
        if tuple(dense.shape) != tuple(self.shape):
            raise SpecificationError(
                f"{self._where}: value has shape {tuple(dense.shape)}, declared {tuple(self.shape)}",
                why="shapes are public and fixed when the model is written",
                remedy=f"a value of shape {tuple(self.shape)}",
            )
        entries = free_entries(self, dense)
        stored: Any = dense.data if sp.issparse(dense) else dense
        if wide or (kind in "iu" and stored.size and np.abs(stored).max() >= _EXACT_INTEGERS):
            raise SpecificationError(
                f"{self._where}: value has {'extended precision' if wide else 'integers beyond 2^53'}",
                why="as double-precision numbers they would be rounded, which can enlarge a record's change",
                remedy="float64 numbers: count in larger units, or clip before the value is given",
            )
        if not (np.isfinite(entries).all() and np.isfinite(stored).all()):
            raise SpecificationError(
                f"{self._where}: value has NaN or infinite entries",
                why="they have no bounded sensitivity",
                remedy="impute or drop them before the value is given",
            )
        self._refuse_structure(dense, entries)
        return entries

    def _refuse_structure(self, value: Any, entries: Floats) -> None:
        """Attributes must hold (bounds are clipped instead): without them the model would be another."""
        attributes = self.attributes
        broken = ""
        if (attributes["nonneg"] or attributes["pos"]) and entries.size and entries.min() < 0:
            broken = "nonneg"
        elif (attributes["nonpos"] or attributes["neg"]) and entries.size and entries.max() > 0:
            broken = "nonpos"
        elif self.sparse_idx is not None and self.shape:
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
        elif (attributes["boolean"] or attributes["integer"]) and not np.allclose(
            np.asarray(self.project(value)).ravel(), value.ravel(), atol=1e-9
        ):
            broken = "integer"
        if broken:
            raise SpecificationError(
                f"{self._where}: value contradicts its attributes ({broken})",
                why="attributes are public promises about the parameter",
                remedy="drop the attribute, or repair the data before the value is given",
            )

    def _clip(self, entries: Floats) -> Floats:
        return scale_units(np.clip(entries, *self._entry_clips), self._layout, self._magnitude)

    # ------------------------------------------------------------------ bounds
    def _declared_range(self, where: str) -> tuple[Floats, Floats]:
        """What entries are clipped to: ``bounds``, the sign attributes and ``max_linf``."""
        size = self._layout.size
        lower, upper = np.full(size, -np.inf), np.full(size, np.inf)
        if self.bounds is not None:
            lower = np.maximum(lower, self._free_bound(self.bounds[0]))
            upper = np.minimum(upper, self._free_bound(self.bounds[1]))
        attributes = self.attributes
        if attributes["nonneg"] or attributes["pos"] or attributes["boolean"] is True:
            lower = np.maximum(lower, 0.0)
        if attributes["nonpos"] or attributes["neg"]:
            upper = np.minimum(upper, 0.0)
        if attributes["boolean"] is True:
            upper = np.minimum(upper, 1.0)
        limit = self._magnitude["max_linf"]
        lower, upper = np.maximum(lower, -limit), np.minimum(upper, limit)
        if (lower > upper).any():
            raise SpecificationError(
                f"{where}: no value satisfies bounds, sign attributes and max_linf at once",
                why="their ranges do not meet",
                remedy="bounds inside [-max_linf, max_linf] and of the declared sign",
            )
        if min(self._magnitude["max_l1"], self._magnitude["max_l2"]) < math.inf and (
            (lower > 0).any() or (upper < 0).any()
        ):
            raise SpecificationError(
                f"{where}: bounds that exclude 0 together with max_l1 or max_l2",
                why="scaling a unit to its largest norm would take its entries out of the bounds",
                remedy="bounds with 0 inside, or max_linf",
            )
        return lower, upper

    def _entry_bounds(self) -> tuple[Floats, Floats]:
        """Public range of the free entries: what they are clipped to, and no entry above its unit's norm."""
        lower, upper = self._entry_clips
        limit = min(self._magnitude.values())
        return np.maximum(lower, -limit), np.minimum(upper, limit)

    def _free_bound(self, bound: Any) -> Floats:
        if sp.issparse(bound):
            coo = sp.coo_array(bound)
            coo.sum_duplicates()
            return np.asarray(coo.data, dtype=np.float64)
        array = np.asarray(bound, dtype=np.float64)
        if array.size == 1:
            return np.full(self._layout.size, float(array.reshape(())))
        return free_entries(self, array)


def _resolve_shape(value: Any, shape: int | tuple[int, ...] | None, where: str) -> tuple[int, ...]:
    if shape is None:
        if value is None:
            raise SpecificationError(
                f"{where}: neither value nor shape", why="shapes are public", remedy="shape=(rows, columns)"
            )
        shape = _shape_of(value, where)
    elif isinstance(shape, (int, np.integer)):
        shape = (int(shape),)
    try:
        shape = tuple(operator.index(n) for n in shape)
    except TypeError:
        raise SpecificationError(
            f"{where}: shape is not a tuple of whole numbers", remedy="shape=(rows, columns)"
        ) from None
    if any(n == 0 for n in shape):
        raise SpecificationError(f"{where}: empty, shape {shape}", remedy="at least one entry")
    return shape


def _shape_of(value: Any, where: str) -> tuple[int, ...]:
    try:
        return tuple(value.shape) if sp.issparse(value) else np.shape(value)
    except (TypeError, ValueError):
        shape = None
    if shape is None:  # raised here and not above: the chained error would hold what numpy saw
        raise SpecificationError(
            f"{where}: value is not a real numeric array",
            why="its rows have different lengths, or it is not an array",
            remedy="a number, or an array with rows of equal length",
        )
    return shape


def _public_pattern(value: Any, where: str) -> tuple[npt.NDArray[Any], ...]:
    pattern = canonical(value)
    if pattern.nnz == 0:
        raise SpecificationError(
            f"{where}: a sparse value without stored entries", remedy="sparsity=(rows, columns), or a dense value"
        )
    warnings.warn(
        f"{where}: the positions of the {pattern.nnz} stored entries are taken as public; only their values "
        "are protected. Pass sparsity= to say so, or a dense array to protect the positions as well.",
        PublicPatternWarning,
        stacklevel=3,
    )
    coords: tuple[npt.NDArray[Any], ...] = pattern.coords
    return coords
