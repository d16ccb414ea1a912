"""Progress of long work: one contract, and what is made of it on a screen.

A ``Report`` is called with a stage in words and the share done of the run (0 while it is prepared). Both are public:
numbers of steps that a plan knows, never one that was found in the data. What comes when depends on how long work
takes, which may depend on what is read, so nothing here says times, and what may be kept (a file, a log, a pipe) gets
each stage once, at its beginning, whatever it takes. Bars, which wait until work has taken a second, go when it ends:
in a terminal by rich, in a notebook as an output of the cell.
"""

from __future__ import annotations

import importlib
import inspect
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from html import escape
from typing import Any, Protocol

from dpmodel.errors import SpecificationError
from dpmodel.text import printable

AFTER = 1.0  # seconds of work before anything is shown
_BETWEEN = 0.2  # seconds between two pictures in a notebook


class Display(Protocol):
    """Where a bar is drawn. ``waits`` : whether somebody else's thread may draw it."""

    waits: bool

    def show(self, stage: str, done: float) -> None:
        """``done`` : share of the work; 0: not known yet."""

    def close(self) -> None:
        """Remove it."""


class Bar:
    """A ``Report``: the last stage is drawn on ``display`` from ``after`` seconds on (of the monotonic clock)."""

    def __init__(self, display: Display, after: float = AFTER, clock: Callable[[], float] = time.monotonic) -> None:
        self._display, self._clock, self._after = display, clock, after
        self._lock, self._last = threading.Lock(), ("", 0.0)
        self._began, self._open, self._closed = clock(), False, False
        self._timer: threading.Timer | None = None
        if display.waits:  # a stage that says nothing for long is shown all the same
            self._timer = threading.Timer(after, self._draw)
            self._timer.daemon = True
            self._timer.start()

    def __call__(self, stage: str, done: float) -> None:
        self._last = stage, done
        if self._open or self._clock() - self._began >= self._after:
            self._draw()

    def _draw(self) -> None:
        with self._lock:
            if not self._closed and self._last[0]:
                self._open = True
                self._display.show(*self._last)

    def close(self) -> None:
        """No more is drawn, and what was drawn goes."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._closed = True
            if self._open:
                self._display.close()


def screen() -> Display | None:
    """Where this process can draw a bar, None for nowhere."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if type(shell).__name__ == "ZMQInteractiveShell":
        return _Notebook()
    if multiprocessing.parent_process() is not None:  # workers share one terminal
        return None
    return _Terminal() if getattr(sys.stderr, "isatty", lambda: False)() else None


class _Terminal:
    """A line on standard error, redrawn by rich."""

    waits = True

    def __init__(self, console: Any = None) -> None:
        self._console = console
        self._bars: Any = None
        self._task: Any = None

    def show(self, stage: str, done: float) -> None:
        if self._bars is None:
            self._begin(stage)
        self._bars.update(self._task, description=stage, total=1.0 if done > 0 else None, completed=done)

    def _begin(self, stage: str) -> None:
        # Rich costs tens of milliseconds to import, and most work is done before.
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn
        from rich.table import Column

        words = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
        console = self._console or Console(stderr=True)
        bars = Progress(
            SpinnerColumn("line"), words, BarColumn(24), TaskProgressColumn(),
            console=console, transient=True, redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip
        self._bars, self._task = bars, bars.add_task(stage, total=None)
        bars.start()

    def close(self) -> None:
        if self._bars is not None:
            self._bars.stop()


class _Notebook:
    """An output of the cell, redrawn; empty at the end."""

    waits = False

    def __init__(self) -> None:
        self._handle: Any = None
        self._drawn = -_BETWEEN

    def show(self, stage: str, done: float) -> None:
        now = time.monotonic()
        if now - self._drawn >= _BETWEEN:
            self._drawn = now
            share = f' value="{min(max(done, 0.0), 1.0):.3f}"' if done > 0 else ""
            self._put(f'<progress max="1"{share}></progress> {escape(stage)}')

    def _put(self, page: str) -> None:
        ipython: Any = importlib.import_module("IPython.display")
        if self._handle is None:
            self._handle = ipython.display(ipython.HTML(page), display_id=True)
        else:
            self._handle.update(ipython.HTML(page))

    def close(self) -> None:
        if self._handle is not None:
            self._put("")


# ----------------------------------------------------------------------------------------------------------- reports
Report = Callable[[str, float], None]

# Work inside other work has no bar of its own: how many pieces there are may be private (a search that stops early).
_inside: ContextVar[bool] = ContextVar("dpmodel_progress", default=False)


def silent(stage: str, done: float) -> None:
    """Say nothing."""


@contextmanager
def shown(progress: Any = None, verbose: bool = False) -> Iterator[Report]:
    """What to report to while a piece of work lasts.

    ``progress`` : a function (stage, share), which is called; False for silence; None for a bar in terminals and
        notebooks; True for stages as lines where there is neither. ``verbose`` : lines in any case, between what else
        is printed.
    Errors: SpecificationError, for anything else, and functions of other arguments.
    """
    _check(progress)
    inner = _inside.get()
    token = _inside.set(True)
    bar = None
    try:
        report: Report = silent
        if callable(progress):
            report = progress
        elif progress is not False:
            display = None if inner or verbose else screen()
            bar = None if display is None else Bar(display)
            report = bar or (_Lines() if (progress or verbose) and not inner else silent)
        yield report
    finally:
        _inside.reset(token)
        if bar is not None:
            bar.close()


def _check(progress: Any) -> None:
    if not callable(progress):
        if progress is not None and not isinstance(progress, bool):
            raise SpecificationError(
                f"progress={type(progress).__name__}",
                remedy="progress=True or False, or a function (stage, share done)",
            )
    elif progress is not silent:  # what ``shown`` mostly hands to work inside needs no check, which takes long
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


class _Lines:
    """Each stage once, on standard error."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, stage: str, done: float) -> None:
        if stage not in self._said:
            self._said.add(stage)
            print(printable(f"[dpmodel] {stage}"), file=sys.stderr, flush=True)
