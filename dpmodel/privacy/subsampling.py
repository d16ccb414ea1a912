"""Poisson subsampling: coins for every record, and what Gaussian noise on sums over the sampled records costs.

A step draws every record with probability ``rate`` and releases the sum of the drawn records' vectors, each of norm
at most 1, with N(0, multiplier^2 I) noise; ``steps`` of them are composed, adaptively, and the samples stay secret.

Privacy. Fix the other records' coins (divergences of mixtures are at most the mixture of divergences); what remains
is ``(1 - q) N(0) + q N(x)`` against ``(1 - q) N(0) + q N(x')``, where x and x' are the record and its replacement, of
norm at most 1, or x' = 0 if a record is absent. For the absent record the mixture in one dimension with |x| = 1 and
its mirror dominate (Zhu, Dong and Wang 2022). For replace-one so does the pair x = 1, x' = -1 in one dimension: let
an event E have probability a under N(0). Then by Neyman and Pearson ``N(x)(E) <= Phi(Phi^-1(a) + 1/s)`` and
``N(x')(E) >= Phi(Phi^-1(a) - 1/s)``, s the multiplier, so for every k >= 0

    P(E) - k Q(E) <= (1 - q)(1 - k) a + q [Phi(Phi^-1(a) + 1/s) - k Phi(Phi^-1(a) - 1/s)],

and half lines attain equality in both bounds at once for the pair of 1 and -1: its hockey-stick divergence is the
largest for every k. Dominating pairs compose (Zhu, Dong and Wang 2022, theorem 10). dp_accounting has both pairs
(its REPLACE_ONE is that of 1 and -1: the multiplier is noise over the norm of *one* record's vector, not over the
change of the sum). Its discretisation rounds against us; ``_MARGIN`` and ``_ROUNDING`` are left for its Fourier
transforms.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dpmodel.errors import SpecificationError
from dpmodel.privacy._checks import count_of, positive
from dpmodel.privacy.conversions import gaussian_mu, validate_privacy
from dpmodel.privacy.noise import NoiseSource

LEAST_DELTA = 1e-10  # below, rounding of the transforms could matter
_MARGIN, _ROUNDING = 1e-3, 1e-12
_GRID = 1e-3  # of privacy losses, for epsilon about 1
_LEAST_RATE = 2.0**-16
_LEAST_MULTIPLIER = 0.4
_STRETCH = 1 << 14  # coins that are drawn together


@dataclass(frozen=True)
class PoissonCoins:
    """A coin for every number, each True with probability ``rate`` (rounded down to a multiple of 2^-32).

    Coin i has 32 bits of the output of SHAKE-256 on ``key``, 32 secret bytes, and the number of its stretch of coins.
    To who does not know the key they are as independent as bits of the operating system's generator, which rest on a
    stream cipher in the same way. So whoever holds rows i .. j draws the coins of these rows, again if need be, and
    nobody has a list of all. Key and coins are as secret as the rows: they must not be released.
    """

    key: bytes
    rate: float

    def of(self, first: int, count: int) -> npt.NDArray[np.bool_]:
        """(count,) coins of the numbers from ``first`` on."""
        if self.rate == 1.0:
            return np.ones(count, dtype=bool)
        stretches = range(first // _STRETCH, -(-(first + count) // _STRETCH))
        drawn = (hashlib.shake_256(self.key + at.to_bytes(8, "little")).digest(4 * _STRETCH) for at in stretches)
        bits = np.frombuffer(b"".join(drawn), dtype="<u4")
        skipped = first - stretches.start * _STRETCH
        return np.asarray(bits[skipped : skipped + count] < np.uint32(math.floor(self.rate * 2.0**32)))


def poisson_coins(source: NoiseSource, rate: float) -> PoissonCoins:
    """New coins. The key comes from the operating system for private sources; from others' own noise, so that a seed
    repeats it."""
    if source.is_private:
        return PoissonCoins(secrets.token_bytes(32), _rate(rate))
    return PoissonCoins(source.laplace(np.zeros(4), 1.0).tobytes(), _rate(rate))


def poisson_sample(source: NoiseSource, count: int, rate: float) -> npt.NDArray[np.bool_]:
    """(count,) new ``poisson_coins``."""
    return poisson_coins(source, rate).of(0, count_of(count, "count", least=0))


def random_labels(source: NoiseSource, count: int, labels: int) -> npt.NDArray[np.int64]:
    """(count,) independent labels 0 .. ``labels`` - 1, uniform to within 2^-40. As secret as ``poisson_sample``."""
    count, labels = count_of(count, "count", least=0), count_of(labels, "labels")
    if source.is_private:
        bits = np.frombuffer(secrets.token_bytes(8 * count), dtype=np.uint64)
        return np.asarray(bits % np.uint64(labels), dtype=np.int64)
    draws = source.laplace(np.zeros(count), 1.0)
    uniform = np.where(draws < 0, np.exp(np.minimum(draws, 0.0)) / 2, 1 - np.exp(-np.maximum(draws, 0.0)) / 2)
    return np.minimum((uniform * labels).astype(np.int64), labels - 1)


def subsampled_epsilon(multiplier: float, rate: float, steps: int, delta: float, *, replace: bool) -> float:
    """Upper bound on epsilon of ``steps`` subsampled releases with this noise multiplier (inf where none is found).

    ``multiplier`` : standard deviation of the noise over the largest norm of one record's vector; ``replace`` : one
    record is replaced by another, otherwise it is absent (then its vector is 0).
    """
    multiplier, steps = positive(multiplier, "multiplier"), count_of(steps, "steps")
    return _epsilon(multiplier, _rate(rate), steps, _delta(delta), replace, 1.0)


@lru_cache(maxsize=256)
def subsampled_multiplier(epsilon: float, delta: float, rate: float, steps: int, *, replace: bool) -> float:
    """Least noise multiplier (to 1 %, rounded up) with which ``steps`` subsampled releases are (epsilon, delta)-DP.

    Raises
    ------
    SpecificationError
        For delta below ``LEAST_DELTA``.
    """
    epsilon, delta = validate_privacy(epsilon, delta).epsilon, _delta(delta)
    rate, steps = _rate(rate), count_of(steps, "steps")

    def holds(multiplier: float) -> bool:
        return _epsilon(multiplier, rate, steps, delta, replace, epsilon) <= epsilon

    # Many small steps behave like one Gaussian release of rate sqrt(steps) times the change.
    sensitivity = 2.0 if replace else 1.0
    guess = sensitivity * rate * math.sqrt(steps) / gaussian_mu(epsilon, delta)
    high = max(guess, 2 * _LEAST_MULTIPLIER)
    while not holds(high):
        high *= 1.5
    low = high / 1.5
    while low > _LEAST_MULTIPLIER and holds(low):
        low, high = low / 1.5, low
    low = max(low, _LEAST_MULTIPLIER)
    if holds(low):
        return low
    while high > low * 1.01:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _epsilon(multiplier: float, rate: float, steps: int, delta: float, replace: bool, about: float) -> float:
    from dp_accounting.pld import privacy_loss_distribution as pld  # slow to import
    from dp_accounting.privacy_accountant import NeighboringRelation

    relation = NeighboringRelation.REPLACE_ONE if replace else NeighboringRelation.ADD_OR_REMOVE_ONE
    one = pld.from_gaussian_mechanism(
        multiplier,
        sampling_prob=rate,
        value_discretization_interval=_GRID * min(max(about, 0.02), 1.0),
        neighboring_relation=relation,
    )
    return float(one.self_compose(steps).get_epsilon_for_delta(delta * (1 - _MARGIN) - _ROUNDING))


def _rate(rate: object) -> float:
    value = positive(rate, "rate")
    if not _LEAST_RATE <= value <= 1:
        raise SpecificationError(
            f"a sampling rate of {value:g}",
            why="it is the probability with which a record is drawn, and coins have 32 bits",
            remedy="pass a rate between 2^-16 and 1",
        )
    return value


def _delta(delta: float) -> float:
    value = validate_privacy(1.0, delta).delta
    if value < LEAST_DELTA:
        raise SpecificationError(
            f"delta {value:g} with subsampling",
            why=f"its numerical accounting is exact to about {_ROUNDING:g} only",
            remedy=f"pass delta of at least {LEAST_DELTA:g}, or a mechanism without subsampling",
        )
    return value
