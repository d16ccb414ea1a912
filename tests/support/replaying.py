"""One run on two neighbours with the same answers: what differs between the two has leaked past the noise.

``Transcript`` draws noise from a seed and writes down every answer; given to a second run it hands out these answers
again, whatever the values, and writes down the values. So the second run knows of its data only what the answers of
the first one tell, and every difference of outcome, note, count, status or time comes from somewhere else.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from dpmodel import linalg as solving
from dpmodel.exact import model as systems
from dpmodel.marks import vault
from dpmodel.privacy import Budget, SeededSource
from dpmodel.privacy.conversions import gaussian_mu, zcdp_epsilon


@dataclass
class Draw:
    """One call: ``distribution`` and its public arguments, the exact ``values`` of each run, the ``answer`` that both
    got."""

    distribution: str
    arguments: tuple[Any, ...]
    values: list[np.ndarray]
    answer: Any
    callers: frozenset[str] = frozenset()  # "file:function" of the package that the call came through

    @property
    def sensitivity(self) -> np.ndarray:
        return (self.values[1] - self.values[0]).ravel()

    @property
    def loss(self) -> tuple[float, float, float]:
        """(pure epsilon, rho, delta) that this draw really loses between the two runs; epsilon inf for Gaussians."""
        scale, d = self.arguments[0], self.sensitivity
        if "gaussian" in self.distribution:
            rho = float(d @ d) / (2 * scale**2)
            return (math.inf if rho else 0.0), rho, 0.0
        if self.distribution == "noisy_max":
            epsilon = float(np.ptp(d)) / scale
            return epsilon, epsilon**2 / (8 if self.arguments[1] == "exponential" else 2), 0.0
        epsilon, delta = float(np.abs(d).sum()) / scale, 0.0
        if self.distribution == "truncated_laplace":
            # What one run may answer and the other may not: the outer |d| of each window.
            window, inside = self.arguments[1], -math.expm1(-self.arguments[1] / scale)
            beyond = (np.exp(-(window - np.abs(d)) / scale) - math.exp(-window / scale)) / (2 * inside)
            delta = float(beyond.sum())
        return epsilon, epsilon**2 / 2, delta


@dataclass
class Transcript:
    """A source of noise, and the tape of what it drew; ``replay`` is the source of a second run."""

    seed: int
    events: list[str] = field(default_factory=list)
    draws: list[Draw] = field(default_factory=list)
    clock: float = 0.0
    crash_at: int | None = None
    is_private: bool = False
    _source: Any = None

    def __post_init__(self) -> None:
        self._source = SeededSource(self.seed)

    def _draw(self, distribution: str, values: Any, *arguments: Any, **named: Any) -> Any:
        self.spend(values)
        self.events.append("draw")
        if self.crash_at is not None and len(self.draws) >= self.crash_at:
            raise FloatingPointError(f"at {np.sum(values)}")  # speaks of private values
        answer = getattr(self._source, distribution)(values, *arguments, **named)
        exact = np.array(values, dtype=float)
        self.draws.append(Draw(distribution, (*arguments, *named.values()), [exact], answer, _callers()))
        return answer

    def spend(self, values: Any) -> None:
        """A private step takes as long as its data say."""
        self.clock += 1.0 + float(np.abs(np.asarray(values, dtype=float)).sum()) % 7.0

    def laplace(self, values: Any, scale: float) -> Any:
        return self._draw("laplace", values, scale)

    def gaussian(self, values: Any, scale: float) -> Any:
        return self._draw("gaussian", values, scale)

    def discrete_laplace(self, values: Any, scale: float) -> Any:
        return self._draw("discrete_laplace", values, scale)

    def discrete_gaussian(self, values: Any, scale: float) -> Any:
        return self._draw("discrete_gaussian", values, scale)

    def truncated_laplace(self, values: Any, scale: float, half_width: float) -> Any:
        return self._draw("truncated_laplace", values, scale, half_width)

    def noisy_max(self, scores: Any, scale: float, *, kind: str) -> int:
        return int(self._draw("noisy_max", scores, scale, kind=kind))

    def replay(self) -> Replay:
        return Replay(self.seed, draws=self.draws)

    # ------------------------------------------------------------------ what was lost
    def lost(self, epsilon: float, delta: float) -> float:
        """Share of (epsilon, delta) that the two runs lose together: at most 1 if the claim holds for them.

        The least that basic composition, zCDP, and the exact distribution of all Gaussian draws beside the pure ones
        prove.
        """
        losses = [draw.loss for draw in self.draws if len(draw.values) == 2]
        spilt = sum(loss[2] for loss in losses)
        if spilt > delta:
            return math.inf
        shares = [sum(loss[0] for loss in losses) / epsilon]
        if delta - spilt > 0:
            rho = sum(loss[1] for loss in losses)
            shares.append(zcdp_epsilon(rho, delta - spilt) / epsilon if rho else 0.0)
            pure = sum(loss[0] for loss in losses if math.isfinite(loss[0]))
            normal = math.sqrt(2 * sum(loss[1] for loss in losses if math.isinf(loss[0])))
            if pure < epsilon:
                shares.append(max(pure / epsilon, normal / gaussian_mu(epsilon - pure, delta - spilt)))
        return min(shares)


@dataclass
class Replay(Transcript):
    """Hands out the answers of the first run. ``astray``: where the second one asked something else."""

    astray: list[str] = field(default_factory=list)
    _next: int = 0

    def _draw(self, distribution: str, values: Any, *arguments: Any, **named: Any) -> Any:
        self.spend(values)
        self.events.append("draw")
        exact = np.array(values, dtype=float)
        if self._next >= len(self.draws):
            self.astray.append(f"{distribution}: one draw more than the first run")
            raise AssertionError(self.astray[-1])
        draw = self.draws[self._next]
        asked = distribution, (*arguments, *named.values()), exact.shape
        expected = draw.distribution, draw.arguments, draw.values[0].shape
        if asked != expected:
            self.astray.append(f"draw {self._next}: {asked} where the first run has {expected}")
            raise AssertionError(self.astray[-1])
        self._next += 1
        draw.values.append(exact)
        return draw.answer


_ROOM = str(Path(vault.__file__).parents[1]) + os.sep


def _callers() -> frozenset[str]:
    frame, found = sys._getframe(1), set()
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_ROOM):
            found.add(f"{file[len(_ROOM) :]}:{frame.f_code.co_name}")
        frame = frame.f_back
    return frozenset(found)


@contextmanager
def watched(source: Transcript) -> Iterator[None]:
    """Notes charges and reads in ``source.events``, and makes all clocks run by what the private steps take."""

    def charge(self: Any, *given: Any, **named: Any) -> Any:
        source.events.append("charge")
        return Budget_charge(self, *given, **named)

    def unseal(parameter: Any) -> Any:
        source.events.append(f"read {parameter.name()}")
        entries = vault_unseal(parameter)
        source.spend(getattr(entries, "data", entries))
        return entries

    def reading(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def read_rows(self: Any) -> Any:
            rows = read(self)
            if id(self._rows) not in own:  # made up for a forecast, or a part of what was read
                return rows
            source.events.append("read rows")
            for part in rows if isinstance(rows, tuple) else (rows,):
                source.spend(getattr(part, "data", part))
            return rows

        return read_rows

    def now() -> float:
        source.clock += 2.0**-10
        return source.clock

    own: set[int] = set()

    def execute(model: Any, *given: Any, **named: Any) -> Any:
        own.add(id(model._rows))
        return run(model, *given, **named)

    run = solving.execute
    Budget_charge, vault_unseal = Budget.charge, vault.unseal
    with mock.patch.object(Budget, "charge", charge), mock.patch.object(vault, "unseal", unseal):
        kinds = (systems.PrivateVectors, systems.PrivateInequalities, systems.PrivatePoints)
        patches = [mock.patch.object(kind, "read_rows", reading(kind.read_rows)) for kind in kinds]
        patches.append(mock.patch("time.perf_counter", now))
        patches.append(mock.patch.object(solving, "execute", execute))
        for patch in patches:
            patch.start()
        try:
            yield
        finally:
            for patch in patches:
                patch.stop()
