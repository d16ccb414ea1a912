"""What mechanisms of exact linear algebra hand back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Found:
    """What ``run`` hands back: released data only.

    ``status`` : "found", or "nothing" where the mechanism has no answer (the subspace {0}, a search that failed by a
    noisy count). ``answer`` : for vectors a ``Basis``; for inequalities the (d,) point x, floats or, where it is exact,
    Fractions; for points the (d,) grid position, Fractions. ``missed`` : a released (noisy) count of the rows that the
    answer misses at most (stable-span: except with probability beta), or None. ``estimate``, ``sigma`` : a noisy count
    of those that it is likely to miss, and the standard deviation of its noise, where the mechanism has one.
    ``notes`` : public words.
    """

    status: str
    answer: Any
    missed: float | None = None
    notes: tuple[str, ...] = ()
    estimate: float | None = None
    sigma: float | None = None
