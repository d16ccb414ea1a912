"""One block of a source: read, worked on, tried again, and what is said of it if that fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from dpmodel.errors import SourceError

T = TypeVar("T")
_TRIES = 3


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
    tries: int = _TRIES,
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
