"""What is done to the numbers of a block before anything else sees them: the declared bounds, held row by row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpmodel._types import Floats, PrivateArray
from dpmodel.annotate.bounds import Unit
from dpmodel.annotate.entry_ranges import Range
from dpmodel.annotate.layout import Layout
from dpmodel.annotate.values import limit_entries
from dpmodel.errors import SourceError


@dataclass(frozen=True)
class Columns:
    """The columns of a matrix where each lies: what a frame hands out without a copy."""

    each: tuple[Floats, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return self.each[0].shape[0], len(self.each)

    def __getitem__(self, rows: slice) -> Columns:
        return Columns(tuple(column[rows] for column in self.each))


@dataclass(frozen=True)
class Limits:
    """Declared bounds of the rows of one parameter, so that what a record can do never rests on who computed its row.

    ``clips`` : range of the entries, () or (1, width) each. ``magnitude`` : as declared, of rows.
    """

    clips: Range
    magnitude: Mapping[str, float]
    unit: Unit
    width: int

    def checked(self, numbers: Any, rows: int, number: int) -> Floats | Columns:
        """(rows, width) of what was computed from block ``number``: an array, or a tuple of columns.

        Raises
        ------
        SourceError
            For another shape or type: the fault of who computed it, whatever the records hold.
        """
        parts = [np.asarray(each) for each in (numbers if isinstance(numbers, tuple) else (numbers,))]
        alone = not isinstance(numbers, tuple)
        array = (parts[0][:, None] if parts[0].ndim == 1 else parts[0]) if alone else Columns(tuple(parts))
        shapes = [array.shape] if alone else [(*each.shape, len(parts)) for each in parts]
        if any(shape != (rows, self.width) for shape in shapes) or any(each.dtype.kind not in "biuf" for each in parts):
            raise SourceError(
                f"block {number}: numbers of another shape or type than declared",
                why="every row of a block gives the same count of real numbers",
                remedy="float arrays of the declared width",
            )
        return array

    @property
    def none(self) -> Floats:
        """(0, width) of a block without rows."""
        return np.zeros((0, self.width))

    def hold(self, numbers: Floats | Columns, out: Floats | None = None) -> PrivateArray:
        """(rows, width) a copy within the bounds; what is not finite is put to the middle of its range.

        ``out`` : memory for it, used if it has the shape, whole, in Fortran order.
        """
        if out is None or out.shape != numbers.shape or not out.flags.f_contiguous:
            out = np.empty(numbers.shape, order="F")
        with np.errstate(all="ignore"):  # a warning would tell of an odd record
            if isinstance(numbers, Columns):
                for place, column in enumerate(numbers.each):
                    out[:, place] = column
            else:
                out[...] = numbers
            finite = math.isfinite(float(out.sum()))  # a pass less, where all are
        if not finite:
            np.copyto(out, self._middle, where=~np.isfinite(out))
        rows = out.shape[0]
        if rows:
            layout = Layout(self.unit, rows, out.size, rows, True, False)
            limit_entries(PrivateArray(out.reshape(-1, order="F")), self.clips, layout, self.magnitude)
        return PrivateArray(out)

    @cached_property
    def _middle(self) -> Floats:
        """(1, width) or (): 0 moved into the range where that has no middle."""
        lower, upper = self.clips
        closed = np.isfinite(lower) & np.isfinite(upper)
        with np.errstate(invalid="ignore"):
            return np.where(closed, lower / 2 + upper / 2, np.clip(0.0, lower, upper))
