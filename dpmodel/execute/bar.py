"""A bar that appears when work has taken a second, and goes when it ends: in a terminal by rich, in a notebook."""

from __future__ import annotations

import importlib
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable
from html import escape
from typing import Any, Protocol

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
