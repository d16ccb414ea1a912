"""Chosen bits in the place of the system's random ones, for samplers whose answers are to be known beforehand."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dpmodel.privacy import sampling as random_bits

MASK = 2**64 - 1


class Given:
    """``os.urandom`` that hands out ``words`` in order, and fails when there are none left."""

    def __init__(self, words: Iterable[int]) -> None:
        self.left = np.array([int(word) for word in words], dtype=np.uint64)

    def __call__(self, size: int) -> bytes:
        count, rest = divmod(size, 8)
        assert rest == 0 and count <= self.left.size, "more bits are asked for than were given"
        now, self.left = self.left[:count], self.left[count:]
        return now.tobytes()


def give(monkeypatch, words: Iterable[int]) -> Given:
    given = Given(words)
    monkeypatch.setattr(random_bits.os, "urandom", given)
    return given


def digits_of(number, count: int) -> tuple[int, list[int]]:
    """Of an ``arb`` in [0, 1): the first 53 binary digits, and ``count`` words of 64 that follow."""
    whole = int((number * 2 ** (53 + 64 * count)).floor().unique_fmpz())
    words = [whole >> 64 * (count - 1 - i) & MASK for i in range(count)]
    return whole >> 64 * count, words
