"""100,000,000 draws of every kind of exact noise: chi-square, mean size, tails; what is off by a thousandth is seen.

A true distribution fails a test with probability below 1e-6: 2e-7 for each of three checks. The twins: a scale off by a
thousandth moves the mean of |z| (of z^2) by 10 (14) standard errors, of which the limit takes 5.2; one digit biased by
a thousandth adds 400 to a chi-square of 255 degrees, whose limit is 385 and whose standard deviation then is 46.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from auditing import clopper_pearson, fits_frequencies
from scipy.stats import laplace, norm

from dpmodel.privacy import ExactSource
from dpmodel.privacy.sampling import Scale, discrete_gaussian, discrete_laplace

pytestmark = pytest.mark.slow

DRAWS, BATCH = 10**8, 10**6
FALSE_ALARM = 2e-7
LIMIT = float(norm.isf(FALSE_ALARM / 2))
DRAW = {"laplace": discrete_laplace, "gaussian": discrete_gaussian}


def weights(kind, scale, k):
    weight = np.exp(-np.abs(k) / scale) if kind == "laplace" else np.exp(-(k**2) / (2 * scale**2))
    return weight / weight.sum()


class Tally:
    """Counts of integers in cells, their mean size, and how many are in the far tail, against stated probabilities."""

    def __init__(self, kind: str, scale: float) -> None:
        k = np.arange(-400.0, 401.0)
        self.p, self.power = weights(kind, scale, k), 1 if kind == "laplace" else 2
        self.edge, self.tail = 4, next(t for t in range(400) if self.p[np.abs(k) >= t].sum() < 1e-4)
        self.cells = np.array(
            [self.p[np.clip(k, -self.edge, self.edge) == c].sum() for c in range(-self.edge, self.edge + 1)]
        )
        self.beyond = self.p[np.abs(k) >= self.tail].sum()
        self.mean = float(self.p @ np.abs(k) ** self.power)
        self.deviation = math.sqrt(float(self.p @ np.abs(k) ** (2 * self.power)) - self.mean**2)
        self.counts, self.total, self.far, self.n = np.zeros(2 * self.edge + 1), 0.0, 0, 0

    def add(self, z: np.ndarray) -> None:
        self.counts += np.bincount(np.clip(z, -self.edge, self.edge) + self.edge, minlength=2 * self.edge + 1)
        self.total += float((np.abs(z) ** self.power).sum())
        self.far += int((np.abs(z) >= self.tail).sum())
        self.n += z.size

    def fits(self) -> bool:
        low, high = clopper_pearson(np.array([self.far]), self.n, FALSE_ALARM / 2)
        error = (self.total / self.n - self.mean) / self.deviation * math.sqrt(self.n)
        cells = fits_frequencies(self.counts, self.cells, FALSE_ALARM)
        return cells and abs(error) < LIMIT and bool(low[0] <= self.beyond <= high[0])


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_integers_follow_the_stated_distribution_to_a_thousandth(kind):
    true, twin = Tally(kind, 3.3), Tally(kind, 3.3)
    for _ in range(DRAWS // BATCH):
        true.add(DRAW[kind](Scale.of(3.3), BATCH)[0])
        twin.add(DRAW[kind](Scale.of(3.3 * 1.001), BATCH)[0])
    assert true.fits()
    assert not twin.fits()


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_real_numbers_follow_the_stated_distribution(kind):
    """64 cells of equal probability and the tails beyond 1e-5, of the noise around a value; another scale is seen."""
    distribution, source = (laplace if kind == "laplace" else norm), ExactSource()
    ends = distribution.ppf(np.arange(1, 64) / 64)
    far = distribution.isf(1e-5)
    counts, tails = np.zeros((2, 64)), np.zeros(2)
    values = np.full(BATCH, 2.0**20 + 1.0)
    for _ in range(DRAWS // BATCH):
        z = getattr(source, kind)(values, 1.0) - values
        for row, scaled in enumerate((z, z * 1.003)):
            counts[row] += np.bincount(np.searchsorted(ends, scaled), minlength=64)
            tails[row] += (np.abs(scaled) > far).sum()
    low, high = clopper_pearson(tails[:1], DRAWS, FALSE_ALARM / 2)
    assert fits_frequencies(counts[0], np.full(64, 1 / 64), FALSE_ALARM) and low[0] <= 2e-5 <= high[0]
    assert not fits_frequencies(counts[1], np.full(64, 1 / 64), FALSE_ALARM)
