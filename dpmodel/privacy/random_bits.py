"""Random bits of the operating system, and uniform real numbers of which only the first bits were drawn.

Nothing is buffered: every word is asked of the system when it is used, so neither a fork nor a thread nor a pickle
can see the same bits twice.

A uniform real number U in [0, 1) stands for the sequence of all its binary digits, fair and independent. After n of
them, as the integer ``first``, U lies in [first, first + 1] 2^-n. An event of U is decided as soon as that interval
decides it; otherwise more digits are drawn. What is decided is what the whole sequence would have decided, so the
event has its exact probability, whatever the arithmetic, as long as the arithmetic gives enclosures. The events asked
about here have boundaries of probability 0, so an answer comes with probability 1, in the time of a few draws.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Ball = Any  # flint.arb: an interval that holds the number it stands for

# Digits that a double holds, with one more number beside them exactly: first and first + 1 are both exact.
FIRST_BITS = 53
# How far numpy's log and exp may be off, relatively: sixteen units in the last place. They claim four at most, and a
# test compares them with ball arithmetic. It is all that enclosures in doubles take on trust.
LIBRARY_ERROR = 2.0**-48

_Answer = TypeVar("_Answer")


def random_words(count: int) -> Words:
    """(count,) independent uniform 64-bit words from the system's generator."""
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def uniform_ball(first: int, bits: int) -> Ball:
    """The interval [first, first + 1] 2^-bits."""
    import flint  # the first draws that need more digits are rare

    return flint.arb(mid=(2 * first + 1, -bits - 1), rad=(1, -bits - 1))


def settle(first: int, bits: int, question: Callable[[Ball], _Answer | None]) -> _Answer:
    """The answer of ``question`` about the uniform U whose first ``bits`` digits are ``first``.

    ``question`` sees an interval that holds U, at a working precision that grows with it, and answers None as long as
    the interval leaves it open.
    """
    import flint

    while True:
        with flint.ctx.workprec(bits + 64):
            answer = question(uniform_ball(first, bits))
        if answer is not None:
            return answer
        first, bits = first << 64 | int(random_words(1)[0]), bits + 64


def below(uniform: Ball, threshold: Ball) -> bool | None:
    """Whether U < threshold, or None where the enclosures overlap."""
    if uniform < threshold:
        return True
    return False if uniform > threshold else None
