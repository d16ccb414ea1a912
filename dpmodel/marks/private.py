"""A private parameter: a ``cvxpy.Parameter`` that fails closed."""

from __future__ import annotations

import math
import numbers
import operator
import sys
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import cvxpy as cp
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dpmodel._types import Floats, Labels, PrivateArray
from dpmodel.errors import PublicPatternWarning, SpecificationError, users_line
from dpmodel.marks import vault
from dpmodel.marks.bounds import (
    Ball,
    SensitivityBounds,
    column_bounds,
    declared_range,
    holds_zero,
    names_of,
    positive,
    range_of_columns,
    read_bounds,
    refuse_contradictions,
    within_norms,
)
from dpmodel.marks.layout import UNITS, Layout, Unit, canonical, layout_of, spread
from dpmodel.marks.records import DEFAULT_RECORDS, Records
from dpmodel.marks.rows import Limits, SourceRows
from dpmodel.marks.values import checked_entries, checked_rows, limit_entries, limit_rows, sensitivity_bounds

Positions = Literal["public", "private"]

# Norms are sums of squares, which vanish or overflow outside this range.
_LEAST_SENSITIVITY, _MOST_SENSITIVITY = 1e-100, 1e100
_NORMS = ("l1", "l2", "linf", "row_l1")
_REFUSED_ATTRIBUTES = ("complex", "imag", "hermitian")


class Private(cp.Parameter):  # type: ignore[misc]
    """A parameter computed from records that must stay private.

    It behaves as a ``cvxpy.Parameter`` in expressions, but it fails closed: ``value`` reads as None for
    ever, so neither CVXPY nor a printed expression, residual or objective can show it. The value is
    copied, checked and kept outside the object; only a mechanism that has paid for it reads it.
    Pickles and problem copies carry the annotation; a pickle does not carry the value.

    Parameters
    ----------
    value : array, scipy sparse matrix or number; may be given later (``parameter.value = ...``). ``SourceRows`` leaves
        the records where they lie (files, workers): regressions and programs in which a record owns its constraints
        read them block by block.
    shape : needed when no value is given.
    name : shown in messages.
    unit : what one record owns: ``"all"`` (an aggregate; a record may move every entry), ``"entry"``,
        ``"row"`` (of more axes than two, all that lies along the first) or ``"column"``.
    l1, l2, linf, row_l1 : how far one record may move its unit in the data as given, in these norms
        (``row_l1``: the 1-norm of the change of any one matrix row). The missing ones are derived. None at all, and no
        magnitude, means arbitrarily far, which unit ``"all"`` does not allow.
    max_l1, max_l2, max_linf : magnitude of one unit. Larger units are scaled (entries clipped, for
        ``max_linf``) to it: public policy, without a message. One record then moves its unit
        by at most twice that, or once where it can only be absent (add-remove, no declared change, unit not "all").
    records : whose data it is; parameters of the same ``Records`` move together.
    typical : a public guess of the value inside the bounds, one number or of its shape, not computed from the data: for
        forecasts and default prices only.
    positions : of a matrix, ``"private"`` protects *which* entries are not zero like the values, yet keeps the
        value as a sparse matrix (regressions read it as such, and so do programs in which a record owns its
        constraints, if it is large; other models turn it into a dense one). Bounds must then hold 0.
    **cvxpy_attributes : ``nonneg``, ``bounds=(lo, hi)`` (entrywise magnitude; values are clipped to it), numbers or
        arrays with lo < hi (for a matrix (n, p), vectors of length p hold one bound per column), or for a matrix
        ``{column: (lo, hi)}`` for every column, by name (of a data frame) or index;
        ``symmetric``, ``PSD``, ``diag``, ``sparsity`` and the other attributes of CVXPY.

    Attributes
    ----------
    labels : per axis its name and its categories, which are public: from ``Dataset``, and the column names of a frame
        (not its index, which may name people). () without names.
    cut_by : the declarations that may change the value as it was given: bounds, magnitudes, of ``Dataset`` also rows
        that do not count. Public; whether anything was cut is private.
    total : the public sum of the entries, of counts in which each record adds one to one entry under "replace-one"
        (``Dataset.count``); None of others.
    mean_bounds : the public bounds of what a mean is of (``Dataset.mean``); None of others.

    Notes
    -----
    A scipy sparse value without ``sparsity=`` makes the *positions* of its stored entries public (only
    their values are protected) and a ``PublicPatternWarning`` says so. Give ``sparsity=`` to say
    that the positions are public knowledge, or ``positions="private"`` (or a dense array) to protect them too.

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
        typical: Any = None,
        records: Records | None = None,
        positions: Positions = "public",
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
        lists = cvxpy_attributes.pop("lists", ())  # what encoders declare, see Layout
        shape = _resolve_shape(value, shape, where)
        self._in_blocks = isinstance(value, SourceRows)
        if self._in_blocks:
            _refuse_unlike_rows(unit, shape, positions, cvxpy_attributes, where)
        self._hides_positions = _hides_positions(positions, shape, cvxpy_attributes, where)
        if sp.issparse(value) and not self._hides_positions and "sparsity" not in cvxpy_attributes and len(shape) == 2:
            cvxpy_attributes["sparsity"] = _public_pattern(value, where)
        bounds = cvxpy_attributes.get("bounds")
        if bounds is not None:
            bounds = list(read_bounds(bounds, shape[1] if len(shape) == 2 else None, names_of(value), where))
        # For twins: what was declared, before anything is derived from it.
        self._declared = dict(
            unit=unit, l1=l1, l2=l2, linf=linf, row_l1=row_l1, max_l1=max_l1, max_l2=max_l2, max_linf=max_linf,
            typical=typical, **{**cvxpy_attributes, "bounds": bounds, "lists": lists},
        )  # fmt: skip
        told, per_column = column_bounds(bounds, shape, where)
        if told is not None:
            cvxpy_attributes["bounds"] = told
        try:
            super().__init__(shape, name=name, **cvxpy_attributes)
        except (ValueError, TypeError) as error:
            if "upper bounds are less than" in str(error):
                raise SpecificationError(
                    f"{where}: in bounds a lowest value lies above its highest",
                    why="no value lies between them",
                    remedy="bounds=[lo, hi], the lower end first",
                ) from None
            if "not feasible as lower or upper bound" in str(error):
                raise SpecificationError(
                    f"{where}: NaN in bounds",
                    why="values are clipped to the bounds, and nothing can be clipped to NaN",
                    remedy="bounds=[lo, hi], two numbers; None for an end that is open",
                ) from None
            raise SpecificationError(
                f"{where}: {str(error).rpartition('got an ')[2]}",
                why="besides unit, bounds and records, keywords are CVXPY's parameter attributes",
                remedy="bounds, l1, l2, linf, row_l1, max_l1, max_l2, max_linf, unit, records, name, shape",
            ) from None
        self._where = f"Private({self.name()!r})"
        names = names_of(value) if len(self.shape) == 2 else None
        self.labels: Labels = ((None, ()), ("column", names)) if names else ()
        cuts = ("bounds", "max_l1", "max_l2", "max_linf")
        self.cut_by: tuple[str, ...] = tuple(name for name in cuts if self._declared[name] is not None)
        self.total: int | None = None
        self.mean_bounds: tuple[float, float] | None = None
        self._unit: Unit = unit
        self._records = records if records is not None else DEFAULT_RECORDS
        self._layout = replace(layout_of(self, unit, where), lists=tuple(lists))
        sensitivity = {
            key: positive(key, given, where)
            for key, given in (("l1", l1), ("l2", l2), ("linf", linf), ("row_l1", row_l1))
        }
        if math.isfinite(sensitivity["row_l1"]) and len(self.shape) < 2:
            raise SpecificationError(
                f"{where}: row_l1 on shape {self.shape}", why="row_l1 bounds rows of a matrix", remedy="l1="
            )
        refuse_contradictions(sensitivity, where)
        self._magnitude = {
            key: positive(key, given, where)
            for key, given in (("max_l1", max_l1), ("max_l2", max_l2), ("max_linf", max_linf))
        }
        refuse_contradictions(self._magnitude, where)
        if self._in_blocks and per_column is None and any(np.ndim(end) for end in bounds or ()):
            raise SpecificationError(
                f"{where}: bounds entry by entry for rows in blocks",
                why="rows that nobody holds in one array share their bounds",
                remedy="bounds=(lo, hi), numbers or one number per column",
            )
        self._entry_clips = declared_range(self.bounds, per_column, self, self._layout, self._magnitude, where)
        if self._hides_positions and not holds_zero(self._entry_clips):
            raise SpecificationError(
                f"{where}: positions='private' with bounds that exclude 0",
                why="entries that are not stored are zero, and clipping would fill them all in",
                remedy="bounds with 0 inside, or a dense value",
            )
        self._range = within_norms(self._entry_clips, self._magnitude)
        # An absent unit is zero, so add-remove moves a unit by its size only. An aggregate is owned by nobody, and with
        # a declared change (counts, say) a unit moves without coming or going: then one record more or less takes it
        # from any value to any other that its magnitude and the declared change allow.
        declared = any(map(math.isfinite, sensitivity.values()))
        owned = self._records.neighbors == "add-remove" and unit != "all" and not declared
        self._vanishes = owned and holds_zero(self._range)
        self._caps, self._ball, self._sensitivity = sensitivity_bounds(
            sensitivity, self._magnitude, self._range, self._layout, absent_is_zero=owned
        )
        reach = self._sensitivity.linf
        if math.isfinite(reach) and not (reach == 0 or _LEAST_SENSITIVITY <= reach <= _MOST_SENSITIVITY):
            raise SpecificationError(
                f"{where}: one record moves an entry by at most {reach:g}",
                why=f"outside [{_LEAST_SENSITIVITY:g}, {_MOST_SENSITIVITY:g}] it cannot be squared in floating point",
                remedy="other units for this parameter",
            )
        if unit == "all" and not self._sensitivity.finite:
            raise SpecificationError(
                f"{where}: unit='all' without a bound",
                why="a record that may move every entry arbitrarily far leaves nothing to protect it with",
                remedy="l1=, l2= or linf= (how far one record moves it), bounds=[lo, hi], "
                "or the unit that one record owns (unit='entry', 'row' or 'column')",
            )
        self._typical = None if typical is None else self._guess(typical)
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
        return self._sensitivity.l1

    @property
    def l2(self) -> float:
        """Bound on the 2-norm of the change of one unit, given or derived."""
        return self._sensitivity.l2

    @property
    def linf(self) -> float:
        """Bound on the change of any entry, given or derived."""
        return self._sensitivity.linf

    @property
    def row_l1(self) -> float:
        """Bound on the 1-norm of the change of any matrix row, given or derived."""
        return self._sensitivity.row_l1

    @property
    def sensitivity(self) -> SensitivityBounds:
        return self._sensitivity

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
        return spread(self._caps, self._layout)

    @property
    def entry_range(self) -> tuple[Floats, Floats]:
        """(size,), (size,): public lower and upper bounds of the free entries (may be infinite)."""
        return spread(self._range[0], self._layout), spread(self._range[1], self._layout)

    @property
    def column_range(self) -> tuple[Floats, Floats]:
        """(p,), (p,): public lower and upper bounds of each matrix column; (1,), (1,) for what is no matrix."""
        return range_of_columns(self._range, self._layout, self.shape[1] if len(self.shape) == 2 else 1)

    @property
    def typical(self) -> Floats | None:
        """(size,) the public guess of the free entries, scaled to the declared norms; None where none was given."""
        return self._typical

    def _guess(self, typical: Any) -> Floats:
        where = f"{self._where}: typical"
        if self._in_blocks or self._hides_positions:
            why = "a guess has a number for every entry, and these are not all in one array"
            raise SpecificationError(f"{where}=", why=why, remedy="leave it out")
        number = isinstance(typical, numbers.Real) and not isinstance(typical, bool)
        shape = self.shape if number or sp.issparse(typical) else None
        try:
            finite = bool(np.isfinite(typical.data if sp.issparse(typical) else np.asarray(typical)).all())
            shape = np.shape(typical) if shape is None else shape
        except (TypeError, ValueError):
            shape = None
        if shape != self.shape or not finite:
            form = f"of shape {shape}" if shape is not None else f"of type {type(typical).__name__}"
            raise SpecificationError(
                f"{where} {form if shape != self.shape else 'with NaN or infinite numbers'}",
                why="a guess is a finite number for every entry, or one for all",
                remedy=f"typical=200, say, or an array of shape {self.shape} that is not computed from the data",
            )
        guess = np.full(self._layout.size, typical) if number else checked_entries(self, typical, where)
        low, high = (spread(end, self._layout) for end in self._entry_clips)
        beyond = (guess < low) | (guess > high)
        if beyond.any():
            raise SpecificationError(
                f"{where} outside what was declared in {int(beyond.sum())} of {guess.size} entries",
                why="private values are cut to the bounds, so no true number can be there",
                remedy="a guess inside, or wider bounds=[lo, hi]",
            )
        return self._scaled_guess(guess)

    def _scaled_guess(self, guess: Floats) -> Floats:
        """(size,) ``guess`` in its declared range and norms."""
        entries = PrivateArray(np.array(guess, dtype=np.float64))
        limit_entries(entries, self._entry_clips, self._layout, self._magnitude)
        entries.setflags(write=False)
        return entries

    def _refuse_as_guess(self, value: Any) -> None:
        """Raise, and seal nothing, where the guess is the private array itself: plans and default prices would show it.

        By identity and memory alone: whether numbers are equal would tell something to whoever guesses them. (Python
        has one object for equal small integers.)"""
        typical = self._declared["typical"]
        same = typical is value and not np.isscalar(typical)
        if typical is not None and (same or self.shares_memory(typical)):
            vault.seal(self, None)
            raise SpecificationError(
                f"{self._where}: typical is the private array itself",
                why="a guess is public: plans and default prices depend on it without noise",
                remedy="a guess that is not computed from the data: last year's published numbers, one number for all",
            )

    @property
    def positions(self) -> Positions:
        """Whether the positions of a sparse value are protected like its entries."""
        return "private" if self._hides_positions else "public"

    @property
    def magnitude(self) -> Mapping[str, float]:
        """Declared ``max_l1, max_l2, max_linf`` of one unit (inf where not declared)."""
        return self._magnitude

    @property
    def vanishes(self) -> bool:
        """Whether all that one record does is to be there or not: its unit, and no part of it, becomes zero."""
        return self._vanishes

    @property
    def in_blocks(self) -> bool:
        """Whether its rows lie in a source, and are read block by block."""
        return self._in_blocks

    @property
    def limits(self) -> Limits:
        """What every block's numbers are held to, of a parameter ``in_blocks``."""
        width = int(self.shape[1]) if self.ndim == 2 else 1
        return Limits(self._entry_clips, self._magnitude, self._unit, width, self._layout.lists)

    @property
    def has_alike_rows(self) -> bool:
        """Whether nothing is declared of one of its rows alone: of one ``in_blocks``, or with private positions."""
        if self._in_blocks:
            return True
        return self._hides_positions and self._unit == "row" and all(np.ndim(end) != 1 for end in self._entry_clips)

    def with_rows(self, count: int) -> Private:
        """A parameter without a value, declared like this one, of ``count`` rows; of one with ``has_alike_rows``."""
        new = Private(shape=(count, *self.shape[1:]), name=self.name(), records=self._records, **self._declared)
        new.cut_by = self.cut_by
        return new

    def twin(self, *, sealed: bool = True, **changes: Any) -> Private:
        """A parameter with this one's name, records and value, declared as ``changes`` say and else like this one.
        ``sealed`` : False leaves the value out, for forecasts.

        The value goes from the vault to the vault. It is clipped and scaled to the new declarations, entry by entry or
        unit by unit, without a message: nothing that can be seen depends on it. Bounds and norms alone can change:
        what a value is checked for when it is given (integers, symmetry) would not hold of this one.
        """
        if unknown := sorted(changes.keys() - {"bounds", "l1", "l2", "linf", "row_l1"}):
            what = f"{self._where}: twin({unknown[0]}=)"
            raise SpecificationError(what, why="bounds and norms alone can change", remedy="bounds=, l1=, l2= or linf=")
        given = {"shape": self.shape, "name": self.name(), "records": self._records, "positions": self.positions}
        if self._in_blocks:
            return Private(vault.unseal(self), **given, **{**self._declared, **changes})
        new = Private(**given, **{**self._declared, **changes, "typical": None})
        new._declared["typical"] = self._declared["typical"]
        new._typical = None if self._typical is None else new._scaled_guess(self._typical)
        new.labels = self.labels
        new.cut_by = tuple(dict.fromkeys((*self.cut_by, *new.cut_by)))
        entries = vault.unseal(self) if sealed else None
        if entries is not None:
            entries = entries.copy()
            limit = limit_rows if self._hides_positions else limit_entries
            limit(entries, new._entry_clips, new._layout, new._magnitude)
            vault.seal(new, entries)
        return new

    def moving(self, factor: float) -> Private:
        """A parameter without a value, declared like this one, whose unit a record moves ``factor`` times as far: for
        forecasts of what would be if data were other than they are."""
        twin = object.__new__(Private)
        twin.__dict__ = {**self.__dict__, "_caps": self._caps * factor, "_vanishes": False}
        twin._sensitivity = SensitivityBounds(*(getattr(self._sensitivity, name) * factor for name in _NORMS))
        twin._ball = Ball(*(getattr(self._ball, name) * factor for name in ("l1", "l2", "row_l1")))
        return twin

    @property
    def has_value(self) -> bool:
        return vault.is_sealed(self)

    # ------------------------------------------------------------------ the value goes in, never out
    @property
    def value(self) -> None:
        """None, always: a private value leaves only through a mechanism.

        Raises
        ------
        SpecificationError
            When a plain ``cp.Problem`` asks for it in order to solve.
        """
        # CVXPY would say that the parameter has no value, and send the reader after the wrong mistake.
        if sys._getframe(1).f_code is cp.Problem._solve.__code__:
            raise SpecificationError(
                f"a plain cp.Problem with the private parameter {self.name()}",
                why="CVXPY solves without noise, so it gets no private value",
                remedy="dpm.Problem(objective, constraints) in its place, or dpm.Problem(problem), and "
                "solve(epsilon=...)",
            )
        return None

    @value.setter
    def value(self, value: Any) -> None:
        if value is None:
            vault.seal(self, None)
            return
        if self._in_blocks or isinstance(value, SourceRows):
            if not (self._in_blocks and isinstance(value, SourceRows) and value.shape == self.shape):
                raise SpecificationError(
                    f"{self._where}: rows in blocks and arrays in one parameter, or rows in blocks of another shape",
                    why="where rows lie is public and decides what can read them: it is told when the model is written",
                    remedy=f"Private(SourceRows(...)) of shape {self.shape}",
                )
            vault.seal(self, value)
            return
        if self._hides_positions:
            rows = checked_rows(self, value, self._where)
            limit_rows(rows, self._entry_clips, self._layout, self._magnitude)
            vault.seal(self, rows, source=value)
            return
        entries = checked_entries(self, value, self._where)
        limit_entries(entries, self._entry_clips, self._layout, self._magnitude)
        vault.seal(self, entries, source=value)
        self._refuse_as_guess(value)

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


def _refuse_unlike_rows(
    unit: Unit, shape: tuple[int, ...], positions: Any, attributes: Mapping[str, Any], where: str
) -> None:
    """Blocks hold rows of a matrix, or entries of a vector, and nothing holds all of them."""
    fits = unit == "row" or (unit == "entry" and len(shape) == 1)
    other = [key for key, given in attributes.items() if key != "bounds" and given not in (None, False)]
    if fits and not other and positions == "public":
        return
    what = f"unit={unit!r}" if not fits else f"{(*other, 'positions')[0]}="
    raise SpecificationError(
        f"{where}: {what} for rows in blocks",
        why="a block holds whole records, and what is promised of the matrix as a whole cannot be checked in blocks",
        remedy="unit='row' (or 'entry' for a vector), bounds= or max_l2=; counts and sums of a Dataset for the rest",
    )


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
        raise SpecificationError(f"{where}: shape is not a tuple of integers", remedy="shape=(rows, columns)") from None
    if any(n == 0 for n in shape):
        raise SpecificationError(
            f"{where}: empty, shape {shape}", why="there is nothing to protect", remedy="at least one entry"
        )
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
        "are protected. Pass sparsity= to say so, or positions='private' to protect the positions as well.",
        PublicPatternWarning,
        stacklevel=users_line(),
    )
    coords: tuple[npt.NDArray[Any], ...] = pattern.coords
    return coords


def _hides_positions(positions: Any, shape: tuple[int, ...], attributes: Mapping[str, Any], where: str) -> bool:
    if not isinstance(positions, str) or positions not in ("public", "private"):
        raise SpecificationError(
            f"{where}: positions={positions!r}" if isinstance(positions, str) else f"{where}: positions is not a word",
            remedy="positions='public' or positions='private'",
        )
    if positions == "public":
        return False
    refused = [key for key in ("sparsity", "diag", "symmetric", "PSD", "NSD") if attributes.get(key)]
    if refused or len(shape) != 2:
        raise SpecificationError(
            f"{where}: positions='private' on {f'a parameter with {refused[0]}=' if refused else f'shape {shape}'}",
            why=f"{refused[0]} makes positions public" if refused else "it keeps a matrix sparse",
            remedy="a matrix without that attribute, or leave positions out",
        )
    return True
