"""What every mechanism of exact linear algebra has: the three methods of a mechanism, over one of the systems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from dpmodel.mechanisms.contract import Forecast, Progress, Request, Verdict, no_progress
from dpmodel.privacy import NoiseSource


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


@runtime_checkable
class SystemMechanism(Protocol):
    """One algorithm over ``PrivateVectors``, ``PrivateInequalities`` or ``PrivatePoints``."""

    @property
    def name(self) -> str:
        """Name in the registry."""
        ...

    @property
    def source(self) -> str:
        """Paper and theorem."""
        ...

    def eligible(self, model: Any, request: Request) -> Verdict:
        """Yes, or the reason why not; public facts only."""
        ...

    def forecast(self, model: Any, request: Request) -> Forecast:
        """``Forecast.missed`` rows and ``Forecast.needed`` records; public facts only."""
        ...

    def run(self, model: Any, request: Request, noise: NoiseSource, progress: Progress = no_progress) -> Found:
        """The only method that reads private rows."""
        ...
