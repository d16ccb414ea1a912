"""Values of a column on a public grid of integers, so that sums are exact in every engine and in any order.

A sum of floats rounds, and how depends on the other records and on the order in which an engine adds: one record may
move it by more than it moves the real sum. Integers add exactly. So every value is clipped to its bounds and rounded,
by itself, to a multiple of a power of two, and the multiples are added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# A grid of 2^20 steps on the larger side of zero: sums of up to 2^33 rows are integers below 2^53.
_BITS = 20


@dataclass(frozen=True)
class Grid:
    """``step`` : a power of two, 1 for declared integers within 2^20. ``low``, ``high`` : ends in steps, integers.
    ``whole`` : whether sums are declared integers in the units of the column."""

    step: float
    low: int
    high: int
    whole: bool

    @staticmethod
    def of(low: float, high: float, *, integers: bool) -> Grid:
        """The grid of values in [low, high]; the ends are rounded outwards."""
        largest = max(abs(low), abs(high))
        step = math.ldexp(1.0, math.frexp(largest)[1] - _BITS)
        step = max(step, 1.0) if integers else step
        return Grid(step, math.floor(low / step), math.ceil(high / step), integers)
