"""Progress of long work: one contract, and what is made of it on a screen.

A ``Report`` is called with a stage in words and the share done of the run (0 while it is prepared). Both are public:
numbers of steps that a plan knows, never one that was found in the data. What comes when depends on how long work
takes, which may depend on what is read, so nothing here says times, and what may be kept (a file, a log, a pipe) gets
each stage once, at its beginning, whatever it takes. Bars, which wait until work has taken a second, go when it ends.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from dpmodel.errors import SpecificationError
from dpmodel.execute.bar import Bar, screen
from dpmodel.text import printable

Report = Callable[[str, float], None]

# Work inside other work has no bar of its own: how many pieces there are may be private (a search that stops early).
_inside: ContextVar[bool] = ContextVar("dpmodel_progress", default=False)


def silent(stage: str, done: float) -> None:
    """Say nothing."""


@contextmanager
def shown(progress: Any = None, verbose: bool = False) -> Iterator[Report]:
    """What to report to while a piece of work lasts.

    Parameters
    ----------
    progress : a function (stage, share), which is called; False for silence; None for a bar in terminals and notebooks;
        True for stages as lines where there is neither. ``verbose`` : lines in any case, between what else is printed.

    Raises
    ------
    SpecificationError
        For anything else, and functions of other arguments.
    """
    report = reporter(progress, verbose)
    inner = _inside.get()
    token = _inside.set(True)
    bar = None
    try:
        if report in (_bar_or_lines, _bar_or_nothing):
            display = None if inner or verbose else screen()
            bar = None if display is None else Bar(display)
            report = bar or (_Lines() if report is _bar_or_lines and not inner else silent)
        yield report
    finally:
        _inside.reset(token)
        if bar is not None:
            bar.close()


def reporter(progress: Any, verbose: bool) -> Report:
    """``progress`` checked: a function as it is, else a mark for what ``shown`` makes of it."""
    # What ``shown`` mostly hands to work inside needs no check, which takes long.
    if callable(progress) and progress is not silent:
        try:
            inspect.signature(progress).bind("stage", 0.0)
        except TypeError:
            raise SpecificationError(
                f"progress={getattr(progress, '__name__', type(progress).__name__)} does not take two arguments",
                why="it is called with the stage in words and the share done",
                remedy="def progress(stage, share): ...",
            ) from None
        except ValueError:  # builtins that do not tell their arguments
            pass
    if callable(progress):
        report: Report = progress
        return report
    if progress is not None and not isinstance(progress, bool):
        raise SpecificationError(
            f"progress={type(progress).__name__}", remedy="progress=True or False, or a function (stage, share done)"
        )
    if progress or (progress is None and verbose):
        return _bar_or_lines
    return silent if progress is False else _bar_or_nothing


def _bar_or_lines(stage: str, done: float) -> None:
    """Stands for ``progress=True``."""


def _bar_or_nothing(stage: str, done: float) -> None:
    """Stands for ``progress=None``."""


class _Lines:
    """Each stage once, on standard error."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, stage: str, done: float) -> None:
        if stage not in self._said:
            self._said.add(stage)
            print(printable(f"[dpmodel] {stage}"), file=sys.stderr, flush=True)
