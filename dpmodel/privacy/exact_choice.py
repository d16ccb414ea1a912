"""Selection, drawn exactly: the index of the largest of score / scale + noise, over many candidates at once.

The noise of a candidate is made of an exponential variable E = -ln U, U uniform:

- -ln E (Gumbel): the largest is candidate r with probability ~ exp(score_r / scale), the exponential mechanism;
- E: the permute-and-flip mechanism (Ding et al. 2021).

A common shift changes no choice, so the best score is subtracted first.

53 digits of every U give an interval for every candidate. Candidates whose interval ends below where another one
begins are out; usually one is left. Otherwise those left, and no others, get 64 more digits each and ball arithmetic,
until one is left. So the choice is what the real numbers U decide, with the exact probabilities (two candidates are
equal with probability 0). Intervals overlap with a probability of 2^-30 or less up to a million candidates: the
running time hardly knows the scores.

Enclosure in doubles. The end of an interval is the sum of gap = (score - best) / scale <= 0, computed to a relative
2^-52, and noise. LIBRARY_ERROR bounds the relative error of E, which is an absolute one of ln E, and that of the
logarithm of E. So (|gap| + |noise| + 1) 4 LIBRARY_ERROR covers them and all roundings. An upper end may take a gap
for smaller than it is: those beyond 2^40 count as 2^40, so that nothing overflows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpmodel.privacy._checks import FloatArray
from dpmodel.privacy.random_bits import FIRST_BITS, LIBRARY_ERROR, Ball, Words, random_words, uniform_ball

_MARGIN = 4 * LIBRARY_ERROR
_FARTHEST = -(2.0**40)


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
