"""Rows in blocks: the one way in which anything reads private rows that do not lie in one array."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from dpmodel._types import Floats, PrivateArray
from dpmodel.errors import SourceError, SpecificationError
from dpmodel.marks.bounds import Range
from dpmodel.marks.layout import Layout, Lists, Unit
from dpmodel.marks.values import limit_entries

T = TypeVar("T")
# Sums of blocks are added in a tree: a number of one block passes at most twice the logarithm of this many additions.
MOST_BLOCKS = 2**20


class RowSource(ABC):
    """A table of private records in blocks. The number of blocks and the rows in each are public.

    A block is an eager data frame (pandas, polars, pyarrow) or an (n, k) array, with the columns of the table. Only the
    functions given to ``map_reduce`` see it.
    """

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, ...]:
        """Rows in each block, in order."""

    @abstractmethod
    def map_reduce(self, function: Callable[[Any, int], T], combine: Callable[[T, T], T]) -> T:
        """``function(block, number)`` of every block, combined as ``in_order`` does, whatever finishes first.

        ``function`` is pure and can be pickled (by cloudpickle): a block that fails is tried again, and none counts
        twice.
        Errors: SourceError, when a block cannot be read; the message holds no values.
        """

    @property
    def trusted(self) -> str:
        """Who sees rows besides this process, in words for the guarantee; "" for nobody."""
        return ""

    @property
    def count(self) -> int:
        """Number of rows."""
        return sum(self.sizes)


@dataclass(frozen=True)
class SourceRows:
    """Numbers computed from the rows of a source, one row at a time: what a ``Private`` of unit "row" is given.

    ``numbers`` : block -> (rows, width) float array, or a tuple of ``width`` columns (rows,), of which no copy is made;
    or (rows,) where ``width`` is None. Row i is a function of record i alone, and finite. It can be pickled where the
    source's workers are other processes.
    """

    source: RowSource
    numbers: Callable[[Any], PrivateArray | tuple[Any, ...]]
    width: int | None

    def __post_init__(self) -> None:
        blocks = len(self.source.sizes)
        if not 0 < blocks <= MOST_BLOCKS:
            raise SpecificationError(
                f"a source of {blocks} blocks",
                why=f"its sums are rounded as those of 1 to {MOST_BLOCKS} blocks",
                remedy="larger blocks" if blocks else "at least one row",
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.source.count,) if self.width is None else (self.source.count, self.width)


def in_order(parts: Iterable[T], combine: Callable[[T, T], T]) -> T:
    """All ``parts`` combined in a tree that depends on their number alone.

    Neighbours of equal size meet as soon as both are there, so that at most ``log2 n`` of n parts are kept, and a part
    goes through at most ``2 log2 n + 1`` combinations: what sums may lose to rounding.
    """
    waiting: list[tuple[int, T]] = []
    for part in parts:
        size, whole = 1, part
        while waiting and waiting[-1][0] == size:
            whole = combine(waiting.pop()[1], whole)
            size *= 2
        waiting.append((size, whole))
    out = waiting.pop()[1]
    while waiting:
        out = combine(waiting.pop()[1], out)
    return out


# ---- Passes over blocks as they go on, for whoever shows progress: numbers of blocks, which are public


_told: ContextVar[Callable[[int, int], None] | None] = ContextVar("dpmodel_passes", default=None)


@contextmanager
def watched(told: Callable[[int, int], None]) -> Iterator[None]:
    """While it lasts, ``told(number, count)`` is called before each block of a pass in this process; it may raise."""
    token = _told.set(told)
    try:
        yield
    finally:
        _told.reset(token)


def numbers(count: int) -> Iterator[int]:
    """0 .. count - 1, each told as its turn comes. A block that is tried again is not told again."""
    told = _told.get()
    for number in range(count):
        if told is not None and count > 1:
            told(number, count)
        yield number


# ---- One block of a source: read, worked on, tried again, and what is said of it if that fails


@dataclass(frozen=True)
class Failed:
    """What stands for a sum that could not be made, where an exception would travel with what a worker holds."""

    what: str
    why: str

    def error(self) -> SourceError:
        return SourceError(self.what, why=self.why, remedy="the source made anew, once its engine answers")


def worked(
    function: Callable[[Any, int], T],
    load: Callable[[], Any],
    number: int,
    columns: Sequence[Any] | None = None,
    tries: int = 3,
) -> T | Failed:
    """``function(block, number)`` of the block that ``load`` gives, tried again where that fails: no error leaves.

    ``columns`` : names that the block must have (arrays have none).
    """
    failed = Failed("", "")
    for _ in range(tries):
        try:
            block = load()
            names = column_names(block)
            if columns is not None and names is not None and names != list(columns):
                return Failed(
                    f"block {number} has other columns than the first", "a table has the same columns throughout"
                )
            return function(block, number)
        except SourceError as error:
            return Failed(error.what, error.why)
        except Exception as error:  # its text may hold values
            failed = Failed(f"block {number} could not be read", f"it ended with {type(error).__name__}, each time")
    return failed


def joined(combine: Callable[[T, T], T], a: T | Failed, b: T | Failed) -> T | Failed:
    """Two sums combined; where one failed, the failure."""
    for each in (a, b):
        if isinstance(each, Failed):
            return each
    try:
        return combine(a, b)  # type: ignore[arg-type]
    except SourceError as error:
        return Failed(error.what, error.why)
    except Exception as error:
        return Failed("sums of two blocks could not be added", f"it ended with {type(error).__name__}")


def handed_out(found: T | Failed) -> T:
    """The sum; SourceError where it failed."""
    if isinstance(found, Failed):
        raise found.error()
    return found


def column_names(block: Any) -> list[Any] | None:
    """Of a data frame (pyarrow's too); None of an array."""
    names = getattr(block, "column_names", None)
    if names is None:
        names = getattr(block, "columns", None)
    return None if names is None else list(names)


# ---- What is done to the numbers of a block before anything else sees them: the declared bounds, held row by row


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

    ``clips`` : range of the entries, () or (1, width) each. ``magnitude``, ``lists`` : as declared, of rows.
    """

    clips: Range
    magnitude: Mapping[str, float]
    unit: Unit
    width: int
    lists: Lists = ()

    def checked(self, numbers: Any, rows: int, number: int) -> Floats | Columns:
        """(rows, width) of what was computed from block ``number``: an array, or a tuple of columns.
        Errors: SourceError, for another shape or type: the fault of who computed it, whatever the records hold."""
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
            layout = Layout(self.unit, rows, out.size, rows, True, False, lists=self.lists)
            limit_entries(PrivateArray(out.reshape(-1, order="F")), self.clips, layout, self.magnitude)
        return PrivateArray(out)

    @cached_property
    def _middle(self) -> Floats:
        """(1, width) or (): 0 moved into the range where that has no middle."""
        lower, upper = self.clips
        closed = np.isfinite(lower) & np.isfinite(upper)
        with np.errstate(invalid="ignore"):
            return np.where(closed, lower / 2 + upper / 2, np.clip(0.0, lower, upper))
