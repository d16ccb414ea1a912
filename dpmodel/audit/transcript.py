"""One run on two neighbours with the same answers: what differs between the two has leaked past the noise.

``Transcript`` draws noise from a seed and writes down every answer. Its ``replay`` hands these answers to a second run,
whatever the values, and writes down the values. So the second run knows of its data only what the answers of the first
one tell. Every difference of outcome, note, status or number of steps comes from somewhere else, and the values of the
two runs say exactly how much the draws lose.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from scipy.special import ndtr

from dpmodel._types import Floats
from dpmodel.privacy import Cost, SeededSource, laplace_rho, pure_rho
from dpmodel.privacy.conversions import gaussian_mu, zcdp_epsilon


@dataclass
class Draw:
    """One call: ``distribution`` and its public arguments (the scale first), the exact ``values`` of each run, the
    ``answer`` that both got. ``callers`` : where it came from, for whoever notes that."""

    distribution: str
    arguments: tuple[Any, ...]
    values: list[Floats]
    answer: Any
    callers: frozenset[str] = frozenset()

    @property
    def event(self) -> Cost | None:
        """What it loses between the two runs, by its own law; None for truncated noise, which is known by (epsilon,
        delta) alone."""
        scale, d = self.arguments[0], np.abs(self.moved)
        if self.distribution.startswith("truncated"):
            return None
        if self.distribution == "noisy_max":
            epsilon = float(np.ptp(self.moved)) / scale
            return (Cost.exponential if self.arguments[1] == "exponential" else Cost.pure)(epsilon)
        if "gaussian" in self.distribution:
            mu = float(np.linalg.norm(d)) / scale
            return Cost.gaussian(mu) if self.distribution == "gaussian" else Cost.zcdp(mu * mu / 2)
        law = laplace_rho if self.distribution == "laplace" else pure_rho
        rho = math.fsum(law(float(each) / scale) for each in d.ravel() if each)
        return replace(Cost.pure(float(d.sum()) / scale), rho=rho, law="Laplace")

    @property
    def moved(self) -> Floats:
        """(entries,) what the second run asked minus what the first one did."""
        return np.asarray((self.values[1] - self.values[0]).ravel())

    def loss(self, epsilon: float, delta: float, factor: float = 1.0) -> tuple[float, float, float]:
        """(pure epsilon, rho, delta) that this draw loses between the two runs, with ``factor`` times its noise;
        epsilon is inf for Gaussians. Truncated ones, which are claimed to be (``epsilon``, ``delta``)-DP together with
        what is composed with them before they are truncated, take a share of delta."""
        scale, d = self.arguments[0] * factor, self.moved
        if "gaussian" in self.distribution:
            rho, spilt = float(d @ d) / (2 * scale**2), 0.0
            if self.distribution == "truncated_gaussian":
                # What only one run may answer, under the noise of the other (`privacy.truncated_gaussian_width`).
                window = self.arguments[1] / scale
                beyond = float((ndtr(-window) - ndtr(-window - np.abs(d) / scale)).sum())
                outside = min(2 * d.size * float(ndtr(-window)), 1 - 1e-9)
                spilt = (math.exp(epsilon) * beyond + outside * delta) / (1 - outside)
            return (math.inf if rho else 0.0), rho, spilt
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
    """A source of noise, and the tape of what it drew.

    ``factor`` : times the noise that is asked for (a planted fault). ``crash_at`` : the draw that fails.
    ``events`` : "charge" and "draw", in order.
    """

    seed: int
    factor: float = 1.0
    events: list[str] = field(default_factory=list)
    draws: list[Draw] = field(default_factory=list)
    crash_at: int | None = None
    is_private: bool = False

    def __post_init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is not private is known here
            self._source = SeededSource(self.seed)

    def _draw(self, distribution: str, values: Any, *arguments: Any, **named: Any) -> Any:
        self.events.append("draw")
        if self.crash_at is not None and len(self.draws) >= self.crash_at:
            raise FloatingPointError(f"at {np.sum(values)}")  # speaks of private values
        larger = tuple(argument * self.factor for argument in arguments)
        answer = getattr(self._source, distribution)(values, *larger, **named)
        exact = np.array(values, dtype=float)
        self.draws.append(Draw(distribution, (*arguments, *named.values()), [exact], answer))
        return answer

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

    def truncated_gaussian(self, values: Any, scale: float, half_width: float) -> Any:
        return self._draw("truncated_gaussian", values, scale, half_width)

    def noisy_max(self, scores: Any, scale: float, *, kind: str) -> int:
        return int(self._draw("noisy_max", scores, scale, kind=kind))

    def replay(self, leak: bool = False) -> Replay:
        """The source of a second run. ``leak`` : its answers move as the values do, as if nothing were noised."""
        return Replay(self.seed, draws=self.draws, leak=leak)

    def beyond(self, charged: Cost) -> str:
        """In which currency the two runs lose more than the event that was charged says; "" where in none."""
        if charged.leak:  # what leaks is no sum over draws: `lost` compares it
            return ""
        events = [draw.event for draw in self.drawn]
        if None in events:
            return "a truncated draw"
        total = reduce(add, events, Cost.pure(0.0))
        for name in ("rho", "mu") if charged.law in ("Gaussian", "zCDP", "composed") else ("epsilon", "rho"):
            claimed = getattr(charged, name)
            if claimed < math.inf and getattr(total, name) > claimed * (1 + 1e-9) + 1e-12:
                return f"{name} {getattr(total, name):.6g} where {claimed:.6g} was charged ({charged.law})"
        return ""

    @property
    def drawn(self) -> list[Draw]:
        """The draws that both runs made."""
        return [draw for draw in self.draws if len(draw.values) == 2]

    def lost(self, epsilon: float, delta: float, factor: float = 1.0) -> float:
        """Share of (epsilon, delta) that the two runs lose together: at most 1 if the claim holds for them.

        The least that basic composition, zCDP, and the exact distribution of all Gaussian draws beside the pure ones
        prove. ``factor`` : with so many times the noise that was drawn.
        """
        drawn = self.drawn
        losses = [draw.loss(epsilon, delta, factor) for draw in drawn]
        shares, left = [math.inf], delta - sum(loss[2] for loss in losses)
        if left >= 0:
            shares.append(sum(loss[0] for loss in losses) / epsilon)
        if left > 0:
            rho = sum(loss[1] for loss in losses)
            shares.append(zcdp_epsilon(rho, left) / epsilon if rho else 0.0)
        pure = sum(loss[0] for loss in losses if math.isfinite(loss[0]))
        # Gaussians are truncated by themselves and have what the pure draws leave of epsilon.
        left = delta - sum(draw.loss(epsilon - pure, delta, factor)[2] for draw in drawn)
        if pure < epsilon and left > 0:
            normal = math.sqrt(2 * sum(loss[1] for loss in losses if math.isinf(loss[0])))
            shares.append(max(pure / epsilon, normal / gaussian_mu(epsilon - pure, left)))
        return min(shares)


@dataclass
class Replay(Transcript):
    """Hands out the answers of the first run. ``astray`` : where the second one asked something else.

    ``leak`` : answers move as the values do.
    """

    astray: list[str] = field(default_factory=list)
    leak: bool = False
    _next: int = 0

    def _draw(self, distribution: str, values: Any, *arguments: Any, **named: Any) -> Any:
        self.events.append("draw")
        exact = np.array(values, dtype=float)
        if self._next >= len(self.draws):
            self.astray.append(f"{distribution}: one draw more than the first run")
            raise AssertionError(self.astray[-1])
        draw = self.draws[self._next]
        requested = distribution, (*arguments, *named.values()), exact.shape
        expected = draw.distribution, draw.arguments, draw.values[0].shape
        if requested != expected:
            self.astray.append(f"draw {self._next}: {requested} where the first run has {expected}")
            raise AssertionError(self.astray[-1])
        self._next += 1
        draw.values.append(exact)
        if self.leak:
            return _moved(draw)
        return draw.answer

    @property
    def complete(self) -> bool:
        """Whether the second run drew as often as the first."""
        return self._next == len(self.draws)

    def forget(self) -> None:
        """Take the values of this run off the tape, for another second run."""
        for draw in self.draws:
            del draw.values[1:]


def _moved(draw: Draw) -> Any:
    if draw.distribution == "noisy_max":
        return int(np.argmax(draw.values[1]))
    moved = draw.answer + (draw.values[1] - draw.values[0])
    return np.rint(moved).astype(np.int64) if draw.distribution.startswith("discrete") else moved
