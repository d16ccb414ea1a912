"""Passes over blocks as they go on, for whoever shows progress: numbers of blocks, which are public."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

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
