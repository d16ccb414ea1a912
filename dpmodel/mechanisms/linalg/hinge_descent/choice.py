"""Which iterate to release: the average, the average of the second half or the last, by noisy counts of missed rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from dpmodel._types import Floats
from dpmodel.mechanisms.linalg.hinge_descent.rows import GridRows, allowance
from dpmodel.mechanisms.spend import Spend
from dpmodel.privacy import NoiseSource

NAMES = ("average", "average of the second half", "last")
# The candidate that is taken unless another's noisy count is lower by more than the deviation of their difference: on
# planted systems it misses nothing most often, and noise is not to decide between equals.
_USUAL, _AHEAD = 1, 2**0.5
# Share of the budget for the counts.
COUNT_SHARE = 0.1


class Iterates:
    """Collects the points asked at in T steps."""

    def __init__(self, size: int, steps: int) -> None:
        self._all, self._late, self._last = np.zeros(size), np.zeros(size), np.zeros(size)
        self._from, self._step = steps // 2, 0

    def add(self, point: Floats) -> None:
        self._all += point
        if self._step >= self._from:
            self._late += point
        self._last = point
        self._step += 1

    def candidates(self) -> tuple[Floats, Floats, Floats]:
        """The points of ``NAMES``, up to positive factors: answers are rays."""
        return self._all, self._late, self._last


@dataclass(frozen=True)
class CountNoise:
    """Noise on the counts of the candidates.

    One row more or less moves each count by 1 at most, all in the same direction; a row replaced moves each by 1 at
    most. So k counts move by ``sqrt(k)`` in the 2-norm and k in the 1-norm under both relations.
    """

    kind: str
    scale: float

    @staticmethod
    def of(spend: Spend) -> CountNoise:
        k = len(NAMES)
        if spend.rho is None:
            return CountNoise("laplace", spend.laplace_scale(float(k)))
        return CountNoise("gaussian", spend.gaussian_deviation(k**0.5))

    def lost(self, beta: float) -> float:
        """Except with probability ``beta`` the choice misses at most so many rows more than the first candidate.

        Its noisy count is at most the first one's plus the head start, so it is worse by at most that and
        ``max_j (N_1 - N_j)``, a maximum of k - 1 Gaussians of deviation sqrt(2) scale. For Laplace noise: twice the
        largest of k.
        """
        k = len(NAMES)
        if self.kind == "gaussian":
            return float(self.scale * (_AHEAD + 2**0.5 * norm.isf(beta / (k - 1))))
        return float(self.scale * (_AHEAD + 2 * np.log(k / beta)))

    def best(self, noisy: Floats) -> int:
        """The choice, from the noisy counts."""
        started = noisy.copy()
        started[_USUAL] -= _AHEAD * self.scale
        return int(np.argmin(started))


def choose(rows: GridRows, points: list[Floats], noise: CountNoise, source: NoiseSource) -> tuple[int, float]:
    """The candidate with the least noisy count (``CountNoise.best``), and that count, released.

    ``points`` : unit grid points, or zero. A row counts as missed where ``<a, y>`` is below the rounding
    allowance, so all rows that ``y`` truly misses count.
    """
    level = allowance(rows.rows.shape[1])
    counts = np.array([float(np.count_nonzero(rows.below(y, level))) for y in points])
    noisy = source.gaussian(counts, noise.scale) if noise.kind == "gaussian" else source.laplace(counts, noise.scale)
    best = noise.best(noisy)
    return best, max(float(noisy[best]), 0.0)


def choose_public(
    rows: Floats, weight: float, points: list[Floats], noise: CountNoise, draw: Callable[[str, float, int], Floats]
) -> int:
    """``choose`` on made-up rows, each of which stands for ``weight``."""
    counts = np.array([weight * np.count_nonzero(rows @ y <= 0) for y in points])
    return noise.best(counts + draw(noise.kind, noise.scale, len(points)))


__all__ = ["COUNT_SHARE", "NAMES", "CountNoise", "Iterates", "choose", "choose_public"]
