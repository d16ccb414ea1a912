"""Integer noise, drawn exactly: discrete Laplace and discrete Gaussian of any scale, many at a time.

An integer is a pair of 64-bit integers, ``high 2^bits + low`` with |low| < 2^bits, in arrays (2, count). A `Scale` s
is ``ratio 2^bits`` with a float ``ratio``, exactly: bits = 0 and ratio = s below 2^20, otherwise 2^19 <= ratio <
2^20.

Geometric: G >= 0 with P(G = g) ~ exp(-g / s). Write G = Q 2^bits + R with 0 <= R < 2^bits. The weight of g is exp(-q
/ ratio) exp(-r / s), so Q and R are independent, with weights exp(-q / ratio) and exp(-r / s).

- Q = floor(-ratio ln U), U uniform: P(Q >= q) = P(U <= exp(-q / ratio)). Decided on 53 digits of U where both ends of
  an interval around -ratio ln U have the same floor, and on more digits for the others, 2^-24 of them or fewer.
- R is a uniform integer of ``bits`` digits, rejected with probability 1 - exp(-R / s) < 1 / ratio <= 2^-19: if
  another uniform number W is below that. 11 digits of W are drawn, and more only where all of these are 0.

Discrete Laplace, P(z) ~ exp(-|z| / s): a fair sign and G. "Minus zero" is rejected, so that 0 counts once.

Discrete Gaussian, P(z) ~ exp(-z^2 / (2 s^2)): a discrete Laplace draw of the same scale, kept with probability
exp(-(|z| / s - 1)^2 / 2), since |z| / s + (|z| / s - 1)^2 / 2 = z^2 / (2 s^2) + 1/2 (Canonne, Kamath and Steinke
2020, Algorithm 3, with t = s). It keeps 60 to 76 in a hundred: those with another uniform number below that
probability, decided on 53 digits and a float enclosure of it, on more digits for 2^-39 of them.

What is rejected is replaced by further draws. The kept ones of an independent sequence are independent, with the
distribution of one draw given that it is kept.

So these are the stated distributions, not nearly, and nothing is to be added to epsilon or delta, with one exception:
a Q of 2^36 or more would leave the 64-bit integers and raises an error, with probability below exp(-2^16) <
10^-28000, which is to be added to delta. No value is seen here: running time, branches and errors depend on random
bits and the public scale only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpmodel.privacy._checks import FloatArray
from dpmodel.privacy.discrete import IntArray
from dpmodel.privacy.random_bits import FIRST_BITS, LIBRARY_ERROR, Ball, Words, below, random_words, settle

_QUOTIENT_BITS = 19  # ratio < 2^20: few enough that 53 digits decide Q, many enough that R is hardly ever rejected
_LARGEST_QUOTIENT = 2**36
_SPARE_BITS = 64 - FIRST_BITS
_GAUSSIAN_KEPT = 0.6  # share of the discrete Laplace draws, at least
_BLOCK = 2**16  # draws at a time: they fit the cache
_MARGIN = 4 * LIBRARY_ERROR  # of an enclosure of -ratio ln U, relatively: log and three roundings of 2^-53
# Of an enclosure of exp(-y^2 / 2), y = |z| / s - 1. y is computed to (1 + |y|) 2^-50, of which the slope,
# |y| exp(-y^2 / 2), makes at most 1.4 2^-50. The rounded square adds 2^-52, exp 2^-48, the digits not yet drawn 2^-53.
_RADIUS = 2.0**-40


@dataclass(frozen=True)
class Scale:
    """The scale ``ratio 2^bits`` of integer noise, exactly."""

    ratio: float
    bits: int

    @staticmethod
    def of(scale: float, grid: int = 0) -> Scale:
        """``scale`` in units of 2^grid."""
        bits = max(0, math.frexp(scale)[1] - 1 - grid - _QUOTIENT_BITS)
        return Scale(math.ldexp(scale, -grid - bits), bits)

    def share(self, number: int) -> Ball:
        """``number`` / s, enclosed at the current precision."""
        import flint

        return flint.arb(number) / (flint.arb(self.ratio) * 2**self.bits)


def discrete_laplace(scale: Scale, count: int) -> IntArray:
    """(2, count) independent draws of P(z) ~ exp(-|z| / s)."""
    return _kept(lambda size: _laplace_candidates(scale, size), count)


def discrete_gaussian(scale: Scale, count: int) -> IntArray:
    """(2, count) independent draws of P(z) ~ exp(-z^2 / (2 s^2))."""

    def candidates(size: int) -> IntArray:
        noise = discrete_laplace(scale, size)
        return noise[:, _gaussian_kept(scale, noise)]

    return _kept(candidates, count, _GAUSSIAN_KEPT)


def truncated_laplace(scale: Scale, count: int, most: int) -> IntArray:
    """(2, count) independent draws of P(z) ~ exp(-|z| / s) on |z| <= ``most``."""
    high, low = divmod(most, 2**scale.bits)
    high = min(high, _LARGEST_QUOTIENT)  # beyond all draws

    def candidates(size: int) -> IntArray:
        noise = discrete_laplace(scale, size)
        size_high, size_low = np.abs(noise)
        return noise[:, (size_high < high) | ((size_high == high) & (size_low <= low))]

    return _kept(candidates, count)


def _kept(candidates: Callable[[int], IntArray], count: int, share: float = 1.0) -> IntArray:
    """The first ``count`` that are kept of a sequence of draws, of which ``candidates(size)`` makes ``size`` and keeps
    some, about this share. Which later ones were kept too says nothing of the first."""
    parts, missing = [np.zeros((2, 0), dtype=np.int64)], count
    while missing > 0:
        parts.append(candidates(min(math.ceil(missing / share), _BLOCK)))
        missing -= parts[-1].shape[1]
    return np.concatenate(parts, axis=1)[:, :count]


def _laplace_candidates(scale: Scale, size: int) -> IntArray:
    """(2, kept) of ``size`` draws: 53 digits of U and 11 of W in one word, sign and R in another."""
    words, others = random_words(2 * size).reshape(2, size)
    high = _quotients(scale, words >> np.uint64(_SPARE_BITS))
    low = (others & np.uint64(2**scale.bits - 1)).astype(np.int64)
    negative = others >= np.uint64(2**63)
    keep = ~(negative & (high == 0) & (low == 0))
    if scale.bits:
        for i in np.flatnonzero(words & np.uint64(2**_SPARE_BITS - 1) == 0):
            keep[i] &= not _remainder_rejected(scale, int(low[i]))
    candidates: IntArray = np.where(negative, -1, 1) * np.stack([high, low])
    return candidates[:, keep]


def _quotients(scale: Scale, first: Words) -> IntArray:
    """floor(-ratio ln U) of the uniform numbers that begin with these 53 digits."""
    ends = first.astype(np.float64)
    with np.errstate(divide="ignore"):  # U below 2^-53: no end above
        highest = np.floor(np.log(ends * 2.0**-FIRST_BITS) * (-scale.ratio * (1 + _MARGIN)))
    lowest = np.floor(np.log((ends + 1) * 2.0**-FIRST_BITS) * (-scale.ratio * (1 - _MARGIN)))
    undecided = np.flatnonzero(lowest != highest)
    quotients = lowest.astype(np.int64)
    for i in undecided:
        quotients[i] = _quotient(scale, int(first[i]))
    return quotients


def _quotient(scale: Scale, first: int) -> int:
    """One of ``_quotients``, with all the digits it takes."""
    found = int(settle(first, FIRST_BITS, lambda u: (-u.log() * scale.ratio).floor().unique_fmpz()))
    if found >= _LARGEST_QUOTIENT:
        raise OverflowError("a random draw left the 64-bit integers (probability below 10^-28000)")
    return found


def _remainder_rejected(scale: Scale, low: int) -> bool:
    """Whether W < 1 - exp(-low / s), for a W whose first 11 digits are 0."""
    return settle(0, _SPARE_BITS, lambda w: below(w, -(-scale.share(low)).expm1()))


def _gaussian_kept(scale: Scale, noise: IntArray) -> npt.NDArray[np.bool_]:
    """(count,) whether uniform numbers are below exp(-(|z| / s - 1)^2 / 2)."""
    high, low = np.abs(noise)
    share: FloatArray = (high + low * 2.0**-scale.bits) / scale.ratio
    probability = np.exp(np.square(share - 1.0) * -0.5)
    first = random_words(share.size) >> np.uint64(_SPARE_BITS)
    uniform = first * 2.0**-FIRST_BITS
    keep: npt.NDArray[np.bool_] = uniform < probability
    for i in np.flatnonzero(np.abs(uniform - probability) <= _RADIUS):
        keep[i] = _one_kept(scale, int(first[i]), (int(high[i]) << scale.bits) + int(low[i]))
    return keep


def _one_kept(scale: Scale, first: int, size: int) -> bool:
    return settle(first, FIRST_BITS, lambda u: below(u, (-((scale.share(size) - 1) ** 2) / 2).exp()))
