"""The noisy average of those unit vectors that a public predicate picks."""

from __future__ import annotations

import math

import numpy as np

from dpmodel._types import Floats, Mask
from dpmodel.mechanisms.linalg.rescaling_perceptron.rows import GridRows
from dpmodel.mechanisms.lp.noise_once.measurement import ROUNDING
from dpmodel.privacy import NoiseSource


def noisy_average(rows: GridRows, chosen: Mask, epsilon: float, delta: float, noise: NoiseSource) -> Floats | None:
    """NoisyAVG: (D,) the average of the chosen rows with Gaussian noise, or None (the paper's bottom).

    Source
        KMMST24, Algorithm 9; Nissim, Stemmer and Vadhan 2016.
    Privacy
        (epsilon, delta)-DP for add-remove and replace-one, epsilon < 2, where ``chosen`` is decided row by row. One
        record moves the number of chosen rows by at most 1, so ``M = m + Lap(2/epsilon) - (2/epsilon) ln(2/delta)``
        costs epsilon/2 and exceeds m with probability delta/4 at most. Averages over m rows and over one more differ
        by ``||a - average|| / (m + 1) <= 2 / (m + 1)``; if one of m rows is replaced, by ``2 / m``. So given an M of at
        most the larger number, the average moves by at most 2 / M, and Gaussian noise of deviation ``(4 / (epsilon M))
        sqrt(2 ln(8/delta))`` costs epsilon/2 and ``1.25 delta / 8`` (Dwork and Roth 2014, Theorem A.1). In all
        ``delta (1/4 + 1.25 e^(epsilon/2) / 8) < delta``. The average of no rows is zero. Its rounding is covered by
        ``ROUNDING``, which widens the noise.

    Parameters
    ----------
    chosen : (n,) mask of rows.
    epsilon, delta : of this release, both positive.
    """
    total, number = rows.sum_and_count(chosen)
    guess = float(noise.laplace(np.array([number]), 2 / epsilon)[0]) - 2 / epsilon * math.log(2 / delta)
    if guess <= 0:
        return None
    return noise.gaussian(total / max(number, 1.0), average_deviation(guess, epsilon, delta))


def average_deviation(guess: float, epsilon: float, delta: float) -> float:
    """Deviation of the noise on each entry, for a noisy number ``guess`` > 0 of rows."""
    return 4 / (epsilon * guess) * math.sqrt(2 * math.log(8 / delta)) * (1 + ROUNDING)


__all__ = ["average_deviation", "noisy_average"]
