"""Mirror maps on l1 balls and simplices: from the sum of gradients to a point of the set."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import brentq

from dpmodel._types import Floats
from dpmodel.compile.regression.domain import Domain, Simplex

_ROUNDS = 8  # of false position where points are simulated
Shape = Literal["ball", "simplex", "solid"]


@dataclass(frozen=True)
class MirrorMap(ABC):
    """A function psi, ``strength``-strongly convex in some norm on a set of ``size`` coefficients:
    ``||w||_1 <= radius`` ("ball"), or w >= 0 with ``sum w = radius`` ("simplex") or ``sum w <= radius`` ("solid").

    ``spread`` : max psi - min psi over the set. ``dual`` : order q of the dual norm, in which gradients are measured.
    """

    size: int
    radius: float
    shape: Shape

    @property
    @abstractmethod
    def strength(self) -> float: ...

    @property
    @abstractmethod
    def spread(self) -> float: ...

    @property
    @abstractmethod
    def dual(self) -> float: ...

    @abstractmethod
    def point(self, g: Floats) -> Floats:
        """(p,) the point of the set where ``<g, w> + psi(w)`` is least."""

    @abstractmethod
    def simulated(self, g: Floats) -> Floats:
        """(B, p) the same for every row of g, to the accuracy that a simulation needs."""

    def noise_norm(self, beta: float) -> float:
        """Size that the dual norm of p standard normals exceeds with probability at most ``beta``.

        Mean: ``(sum E|x_j|^q)^(1/q)`` (Jensen), ``sqrt(2 ln 2p)`` for q = inf; the norm moves by at most the 2-norm of
        the change (q >= 2), hence the tail ``sqrt(2 ln 1/beta)`` above its mean.
        """
        q, p = self.dual, self.size
        if math.isinf(q):
            mean = math.sqrt(2 * math.log(2 * p))
        else:
            moment = q / 2 * math.log(2) + math.lgamma((q + 1) / 2) - math.lgamma(0.5)  # ln E|x|^q
            mean = math.exp((math.log(p) + moment) / q)
        return mean + math.sqrt(2 * math.log(1 / beta))


@dataclass(frozen=True)
class Entropic(MirrorMap):
    """psi(w) = radius^2 sum_k x_k ln x_k, the set being the hull of ``radius`` times (plus and minus) unit vectors (and
    0) and x the weights of these corners: 1-strongly convex in the 1-norm (Pinsker; ``||w||_1 <= radius ||x||_1``).
    """

    @property
    def strength(self) -> float:
        return 1.0

    @property
    def spread(self) -> float:
        corners = {"ball": 2 * self.size, "simplex": self.size, "solid": self.size + 1}[self.shape]
        return self.radius**2 * math.log(max(corners, 2))

    @property
    def dual(self) -> float:
        return math.inf

    def point(self, g: Floats) -> Floats:
        return np.asarray(self.simulated(g[None])[0])

    def simulated(self, g: Floats) -> Floats:
        scores = np.concatenate([g, -g], axis=1) if self.shape == "ball" else g
        if self.shape == "solid":
            scores = np.hstack([scores, np.zeros((g.shape[0], 1))])
        weights = np.exp((scores.min(axis=1, keepdims=True) - scores) / self.radius)
        weights *= self.radius / weights.sum(axis=1, keepdims=True)
        first: Floats = weights[:, : self.size]
        return first - weights[:, self.size :] if self.shape == "ball" else first


@dataclass(frozen=True)
class PNorm(MirrorMap):
    """psi(w) = ||w||_r^2 / 2 for 1 < r <= 2: (r - 1)-strongly convex in the r-norm."""

    r: float

    @property
    def strength(self) -> float:
        return self.r - 1

    @property
    def spread(self) -> float:
        # ||w||_r <= ||w||_1; on a simplex the least r-norm is at equal weights.
        least = self.radius * self.size ** (1 / self.r - 1) if self.shape == "simplex" else 0.0
        return (self.radius**2 - least**2) / 2

    @property
    def dual(self) -> float:
        return self.r / (self.r - 1)

    def point(self, g: Floats) -> Floats:
        """Stationarity: w is the gradient of the conjugate ``||s||_q^2 / 2`` at ``s = soft(-g, t)`` (ball) or
        ``s = (-g - t)_+`` (simplices), t >= 0 unless the sum is fixed; its 1-norm falls in t, which Brent's method
        sets to the radius. Sizes and t are measured from the largest size, so that large gradients round nothing away.
        """
        u = np.asarray(-g, dtype=np.float64)
        signs, sizes = (np.sign(u), np.abs(u)) if self.shape == "ball" else (1.0, u)
        top = float(sizes.max())
        # At t = -radius the largest entry of s is the radius, and sum |w| >= ||s||_q >= radius; a little more, so that
        # rounding does not undercut it.
        low = -self.radius * (1 + 1e-9)
        if self.shape != "simplex":
            w = self._conjugate_derivative(np.maximum(sizes, 0.0))
            if float(w.sum()) <= self.radius:
                return np.asarray(signs * w)
            low = max(low, -top)
        down = sizes - top

        def spare(t: float) -> float:
            return float(self._cut(down, t).sum()) - self.radius

        t = brentq(spare, low, 0.0, xtol=1e-300, rtol=1e-14) if spare(low) > 0 else low
        w = self._cut(down, t)
        return np.asarray(signs * w * (self.radius / float(w.sum())))

    def simulated(self, g: Floats) -> Floats:
        """By false position (the Illinois rule), a few times for all rows at once."""
        u = np.asarray(-g, dtype=np.float64)
        signs, sizes = (np.sign(u), np.abs(u)) if self.shape == "ball" else (1.0, u)
        top = sizes.max(axis=1, keepdims=True)
        down, low = sizes - top, np.full_like(top, -self.radius * (1 + 1e-9))
        if self.shape != "simplex":
            low = np.maximum(low, -top)
        high = np.zeros_like(low)

        def at(t: Floats) -> tuple[Floats, Floats]:
            w = self._conjugates(np.maximum(down - t, 0.0))
            return w, w.sum(axis=1, keepdims=True) - self.radius

        w, over = at(low)
        inside = over <= 0  # the sum may be less than the radius there, but on a simplex
        under, before = np.full_like(over, -self.radius), np.zeros_like(over)
        for _ in range(_ROUNDS):
            t = low + (high - low) * over / np.maximum(over - under, 1e-300)
            t = np.where(inside, low, np.clip(t, low, high))
            w, rest = at(t)
            up = rest > 0
            low, high = np.where(up, t, low), np.where(up, high, t)
            # An end that stays twice counts half.
            over = np.where(up, rest, np.where(before == -1, over / 2, over))
            under = np.where(up, np.where(before == 1, under / 2, under), rest)
            before = np.where(up, 1, -1)
        total = w.sum(axis=1, keepdims=True)
        share = np.divide(self.radius, total, out=np.ones_like(total), where=total > 0)
        return np.asarray(signs * w * (share if self.shape == "simplex" else np.where(inside, 1.0, share)))

    def _conjugates(self, s: Floats) -> Floats:
        """``_conjugate_derivative`` of every row of s."""
        top = s.max(axis=1, keepdims=True)
        scaled, q = s / np.where(top > 0, top, 1.0), self.dual
        power = scaled ** (q - 1)
        norm = (power * scaled).sum(axis=1, keepdims=True) ** (1 / q)
        return np.asarray(top * np.where(norm > 0, norm, 1.0) ** (2 - q) * power)

    def _cut(self, sizes: Floats, t: float) -> Floats:
        return self._conjugate_derivative(np.maximum(sizes - t, 0.0))

    def _conjugate_derivative(self, s: Floats) -> Floats:
        """(p,) ``||s||_q^(2-q) s^(q-1)`` for s >= 0."""
        top = float(s.max(initial=0.0))
        if top == 0:
            return np.zeros_like(s)
        scaled, q = s / top, self.dual
        norm = float((scaled**q).sum()) ** (1 / q)
        return np.asarray(top * norm ** (2 - q) * scaled ** (q - 1))


def mirror_maps(domain: Domain) -> dict[str, MirrorMap]:
    """The maps that serve this set, by name; empty where none does."""
    if domain.kind not in ("l1", "simplex"):
        return {}
    radius, p = domain.norm(1.0), domain.size
    solid = isinstance(domain, Simplex) and domain.solid
    shape: Shape = "ball" if domain.kind == "l1" else "solid" if solid else "simplex"
    if not 0 < radius < math.inf:
        return {}
    sharp = 1 + 1 / max(math.log(max(p, 2)), 1.0)
    return {
        "entropic": Entropic(p, radius, shape),
        "p-norm": PNorm(p, radius, shape, sharp),
        "p-norm 1.5": PNorm(p, radius, shape, 1.5),
    }
