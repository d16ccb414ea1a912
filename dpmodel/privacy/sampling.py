"""Random bits of the operating system, and uniform real numbers of which only the first bits were drawn.

Nothing is buffered: every word is asked of the system when it is used, so neither a fork nor a thread nor a pickle
can see the same bits twice.

A uniform real number U in [0, 1) stands for the sequence of all its binary digits, fair and independent. After n of
them, as the integer ``first``, U lies in [first, first + 1] 2^-n. An event of U is decided as soon as that interval
decides it; otherwise more digits are drawn. What is decided is what the whole sequence would have decided, so the
event has its exact probability, whatever the arithmetic, as long as the arithmetic gives enclosures. The events asked
about here have boundaries of probability 0, so an answer comes with probability 1, in the time of a few draws.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from dpmodel.errors import SpecificationError
from dpmodel.privacy._checks import FloatArray, check_scale, finite_array

Words = npt.NDArray[np.uint64]
Ball = Any  # flint.arb: an interval that holds the number it stands for

# Digits that a double holds, with one more number beside them exactly: first and first + 1 are both exact.
FIRST_BITS = 53
# How far numpy's log and exp may be off, relatively: sixteen units in the last place. They claim four at most, and a
# test compares them with ball arithmetic. It is all that enclosures in doubles take on trust.
LIBRARY_ERROR = 2.0**-48

_Answer = TypeVar("_Answer")


def random_words(count: int) -> Words:
    """(count,) independent uniform 64-bit words from the system's generator."""
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def uniform_ball(first: int, bits: int) -> Ball:
    """The interval [first, first + 1] 2^-bits."""
    import flint  # the first draws that need more digits are rare

    return flint.arb(mid=(2 * first + 1, -bits - 1), rad=(1, -bits - 1))


def settle(first: int, bits: int, question: Callable[[Ball], _Answer | None]) -> _Answer:
    """The answer of ``question`` about the uniform U whose first ``bits`` digits are ``first``.

    ``question`` sees an interval that holds U, at a working precision that grows with it, and answers None as long as
    the interval leaves it open.
    """
    import flint

    while True:
        with flint.ctx.workprec(bits + 64):
            answer = question(uniform_ball(first, bits))
        if answer is not None:
            return answer
        first, bits = first << 64 | int(random_words(1)[0]), bits + 64


def below(uniform: Ball, threshold: Ball) -> bool | None:
    """Whether U < threshold, or None where the enclosures overlap."""
    if uniform < threshold:
        return True
    return False if uniform > threshold else None


# ---- Integer noise, drawn exactly: discrete Laplace and discrete Gaussian of any scale, many at a time
#
# An integer is a pair of 64-bit integers, ``high 2^bits + low`` with |low| < 2^bits, in arrays (2, count). A `Scale` s
# is ``ratio 2^bits`` with a float ``ratio``, exactly: bits = 0 and ratio = s below 2^20, otherwise 2^19 <= ratio <
# 2^20.
#
# Geometric: G >= 0 with P(G = g) ~ exp(-g / s). Write G = Q 2^bits + R with 0 <= R < 2^bits. The weight of g is exp(-q
# / ratio) exp(-r / s), so Q and R are independent, with weights exp(-q / ratio) and exp(-r / s).
#
# - Q = floor(-ratio ln U), U uniform: P(Q >= q) = P(U <= exp(-q / ratio)). Decided on 53 digits of U where both ends of
# an interval around -ratio ln U have the same floor, and on more digits for the others, 2^-24 of them or fewer.
# - R is a uniform integer of ``bits`` digits, rejected with probability 1 - exp(-R / s) < 1 / ratio <= 2^-19: if
# another uniform number W is below that. 11 digits of W are drawn, and more only where all of these are 0.
#
# Discrete Laplace, P(z) ~ exp(-|z| / s): a fair sign and G. "Minus zero" is rejected, so that 0 counts once.
#
# Discrete Gaussian, P(z) ~ exp(-z^2 / (2 s^2)): a discrete Laplace draw of the same scale, kept with probability
# exp(-(|z| / s - 1)^2 / 2), since |z| / s + (|z| / s - 1)^2 / 2 = z^2 / (2 s^2) + 1/2 (Canonne, Kamath and Steinke
# 2020, Algorithm 3, with t = s). It keeps 60 to 76 in a hundred: those with another uniform number below that
# probability, decided on 53 digits and a float enclosure of it, on more digits for 2^-39 of them.
#
# What is rejected is replaced by further draws. The kept ones of an independent sequence are independent, with the
# distribution of one draw given that it is kept.
#
# So these are the stated distributions, not nearly, and nothing is to be added to epsilon or delta, with one exception:
# a Q of 2^36 or more would leave the 64-bit integers and raises an error, with probability below exp(-2^16) <
# 10^-28000, which is to be added to delta. No value is seen here: running time, branches and errors depend on random
# bits and the public scale only.


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


def truncated(draw: Callable[[Scale, int], IntArray], scale: Scale, count: int, most: int) -> IntArray:
    """(2, count) independent draws of ``draw`` on |z| <= ``most``."""
    high, low = divmod(most, 2**scale.bits)
    high = min(high, _LARGEST_QUOTIENT)  # beyond all draws

    def candidates(size: int) -> IntArray:
        noise = draw(scale, size)
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


# ---- Integer noise: checks, and exact simulation from a numpy generator (never for a release)
#
# Discrete Laplace with parameter ``scale``: P(k) ~ exp(-|k| / scale). Discrete Gaussian: P(k) ~
# exp(-k^2 / (2 scale^2)), whose standard deviation is ``scale`` or a little less (Canonne, Kamath and Steinke 2020).


IntArray = npt.NDArray[np.int64]

# Beyond these, integers leave the floats that hold them exactly, or 64 bits.
_LARGEST_VALUE = 2.0**53
LARGEST_SCALE = 2.0**45


def check_discrete_scale(value: object) -> float:
    """Return a scale in (0, 2^45], or raise SpecificationError."""
    number = check_scale(value)
    if number > LARGEST_SCALE:
        raise SpecificationError(
            f"scale = {number} is too large for discrete noise",
            why=f"above {LARGEST_SCALE:g} its draws leave the 64-bit integers",
            remedy="the continuous distribution, which hardly differs at that scale",
        )
    return number


def integer_array(values: object) -> IntArray:
    """Return ``values`` as int64, or raise SpecificationError unless all are integers of at most 2^53 in size."""
    array = finite_array(values, "values")
    if (array != np.rint(array)).any() or (np.abs(array) > _LARGEST_VALUE).any():
        raise SpecificationError(
            "values has an entry that is no integer of at most 2^53 in size",
            why="discrete noise keeps integers; rounding them here could enlarge a record's change",
            remedy="continuous noise, or integers",
        )
    return np.asarray(values if np.asarray(values).dtype.kind in "iu" else array).astype(np.int64)


def two_sided_geometric(scale: Any, shape: tuple[int, ...], generator: np.random.Generator) -> IntArray:
    """Draws of P(k) ~ exp(-|k| / scale): the difference of two geometric ones. ``scale`` : number or array."""
    success = -np.expm1(-1.0 / np.asarray(scale, dtype=np.float64))
    one = generator.geometric(success, size=shape)
    return np.asarray(one - generator.geometric(success, size=shape), dtype=np.int64)


def discrete_normal(scale: Any, shape: tuple[int, ...], generator: np.random.Generator) -> IntArray:
    """Draws of P(k) ~ exp(-k^2 / (2 scale^2)), by rejection from discrete Laplace noise of scale floor(scale) + 1.

    With t that scale, exp(-k^2 / (2 s^2)) / exp(-|k| / t) = exp(-(|k| - s^2/t)^2 / (2 s^2)) exp(s^2 / (2 t^2)): the
    first factor is the probability of acceptance (Canonne, Kamath and Steinke 2020, Algorithm 3), about a half.
    """
    spread: FloatArray = np.broadcast_to(np.asarray(scale, dtype=np.float64), shape).ravel()
    out = np.zeros(spread.size, dtype=np.int64)
    left = np.arange(spread.size)
    while left.size:
        s = spread[left]
        t = np.floor(s) + 1.0
        k = two_sided_geometric(t, (left.size,), generator)
        accepted = generator.random(left.size) < np.exp(-(((np.abs(k) - s * s / t) / s) ** 2) / 2.0)
        out[left[accepted]] = k[accepted]
        left = left[~accepted]
    return out.reshape(shape)


# ---- Selection, drawn exactly: the index of the largest of score / scale + noise, over many candidates at once
#
# The noise of a candidate is made of an exponential variable E = -ln U, U uniform:
#
# - -ln E (Gumbel): the largest is candidate r with probability ~ exp(score_r / scale), the exponential mechanism;
# - E: the permute-and-flip mechanism (Ding et al. 2021).
#
# A common shift changes no choice, so the best score is subtracted first.
#
# 53 digits of every U give an interval for every candidate. Candidates whose interval ends below where another one
# begins are out; usually one is left. Otherwise those left, and no others, get 64 more digits each and ball arithmetic,
# until one is left. So the choice is what the real numbers U decide, with the exact probabilities (two candidates are
# equal with probability 0). Intervals overlap with a probability of 2^-30 or less up to a million candidates: the
# running time hardly knows the scores.
#
# Enclosure in doubles. The end of an interval is the sum of gap = (score - best) / scale <= 0, computed to a relative
# 2^-52, and noise. LIBRARY_ERROR bounds the relative error of E, which is an absolute one of ln E, and that of the
# logarithm of E. So (|gap| + |noise| + 1) 4 LIBRARY_ERROR covers them and all roundings. An upper end may take a gap
# for smaller than it is: those beyond 2^40 count as 2^40, so that nothing overflows.


_FARTHEST = -(2.0**40)


def window_noise(
    scale: float, half_width: float, gaussian: bool, shape: tuple[int, ...], generator: np.random.Generator
) -> FloatArray:
    """Laplace or Gaussian noise within ``half_width``, from a numpy generator; not for releases."""
    if gaussian:
        tail = ndtr(-half_width / scale)
        z = scale * ndtri(tail + generator.random(shape) * (1 - 2 * tail))
        return np.asarray(np.clip(z, -half_width, half_width))
    inside = -math.expm1(-half_width / scale)  # mass of the window before truncation
    size = np.minimum(-scale * np.log1p(-generator.random(shape) * inside), half_width)
    return np.where(generator.random(shape) < 0.5, -size, size)


def exact_choice(scores: FloatArray, scale: float, exponential: bool) -> int:
    """The index of the largest of scores / scale + noise. ``scores`` : (count,) finite, count >= 1."""
    first = random_words(scores.size) >> np.uint64(64 - FIRST_BITS)
    with np.errstate(all="ignore"):  # infinite ends are ends
        gaps = (scores - scores.max()) / scale
        high = _end(np.maximum(gaps, _FARTHEST), first, exponential, 1)
        leader = int(np.argmax(high))
        left = np.flatnonzero(high >= _end(gaps[leader], first[leader], exponential, -1))
    candidates = {int(i): int(first[i]) for i in left}
    return leader if left.size == 1 else _settled(scores, scale, exponential, candidates)


def _end(gaps: Any, first: Words, exponential: bool, side: int) -> FloatArray:
    """The upper (side 1) or lower (-1) ends of gap + noise. U is at most 2^-53 above its first digits."""
    # Gumbel noise grows with U, exponential noise falls.
    uniform = (first + np.uint64((side > 0) == exponential)) * 2.0**-FIRST_BITS
    noise = -np.log(uniform)
    if exponential:
        noise = -np.log(noise)
    ends: FloatArray = gaps + noise + side * _MARGIN * (np.abs(gaps) + np.abs(noise) + 1)
    return ends


def _settled(scores: FloatArray, scale: float, exponential: bool, candidates: dict[int, int]) -> int:
    """The choice among ``candidates``, index -> the first digits of its U, with all the digits it takes."""
    import flint

    best, bits = flint.arb(float(scores.max())), FIRST_BITS

    def total(i: int, first: int) -> Ball:
        e = -uniform_ball(first, bits).log()
        return (flint.arb(float(scores[i])) - best) / scale + (-e.log() if exponential else e)

    while len(candidates) > 1:
        more = random_words(len(candidates)).tolist()
        candidates = {i: first << 64 | word for (i, first), word in zip(candidates.items(), more, strict=True)}
        bits += 64
        with flint.ctx.workprec(bits + 64):
            totals = {i: total(i, first) for i, first in candidates.items()}
            bar = max((each.lower() for each in totals.values() if each.is_finite()), default=None)
            # What is not finite stays: its digits do not tell yet.
            candidates = {i: first for i, first in candidates.items() if bar is None or not totals[i] < bar}
    return next(iter(candidates))
