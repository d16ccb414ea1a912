"""Auditing from outside: a lower confidence bound on epsilon from samples of a mechanism.

A mechanism run many times on two neighbouring inputs gives two samples. If it is (epsilon, delta)-DP,
every event E has P(E) <= e^epsilon Q(E) + delta and the same with P and Q exchanged. So one event whose
frequencies violate this is a proof, up to the stated confidence, that the promised epsilon is wrong.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv
from scipy.stats import chi2

FloatArray = npt.NDArray[np.float64]
_MOST_THRESHOLDS = 1000


def clopper_pearson(hits: npt.ArrayLike, trials: int, error: float) -> tuple[FloatArray, FloatArray]:
    """Lower and upper confidence bounds on probabilities, each wrong with probability at most ``error``.

    Parameters
    ----------
    hits : (m,) numbers of successes in ``trials`` independent trials.
    """
    hits = np.asarray(hits, dtype=float)
    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1), trials - hits + 1, error), 0.0)
    high = np.where(hits < trials, betaincinv(hits + 1, np.maximum(trials - hits, 1), 1 - error), 1.0)
    return low, high


def _bounds(p: FloatArray, q: FloatArray, thresholds: FloatArray, delta: float, error: float) -> FloatArray:
    """(4, m) lower bounds on epsilon: events {>= t} and {<= t}, P against Q and Q against P."""
    p, q = np.sort(p), np.sort(q)
    rows = []
    for upper in (True, False):
        if upper:
            hits_p = p.size - np.searchsorted(p, thresholds, side="left")
            hits_q = q.size - np.searchsorted(q, thresholds, side="left")
        else:
            hits_p = np.searchsorted(p, thresholds, side="right")
            hits_q = np.searchsorted(q, thresholds, side="right")
        p_low, p_high = clopper_pearson(hits_p, p.size, error)
        q_low, q_high = clopper_pearson(hits_q, q.size, error)
        with np.errstate(divide="ignore", invalid="ignore"):
            rows.append(np.log(np.maximum(p_low - delta, 0.0) / q_high))
            rows.append(np.log(np.maximum(q_low - delta, 0.0) / p_high))
    return np.array(rows)


def epsilon_lower_bound(
    sample_p: npt.ArrayLike,
    sample_q: npt.ArrayLike,
    event_or_score: Callable[[npt.NDArray[np.generic]], npt.ArrayLike] | None = None,
    delta: float = 0.0,
    confidence: float = 1 - 1e-7,
) -> float:
    """Lower confidence bound on the epsilon of a mechanism, for a given delta.

    The event is chosen on one half of the samples: a threshold on the score, either side, either
    direction. The other half tests that one event with Clopper-Pearson bounds, p_low and q_high wrong with
    probability at most (1 - confidence)/2 each; the answer is ln((p_low - delta)/q_high). So for a
    mechanism that is (epsilon, delta)-DP, the answer exceeds epsilon with probability at most
    1 - confidence, whatever the score.

    Parameters
    ----------
    sample_p, sample_q : (n, ...) and (m, ...) independent outputs on two neighbouring inputs.
    event_or_score : vectorised map from outputs to one number (or bool) each; None if they are 1-D scores.
    delta : the delta that the mechanism claims.
    confidence : one minus the false-alarm rate.

    Returns
    -------
    epsilon : >= 0; 0 where nothing is shown.
    """
    score = event_or_score or (lambda outputs: outputs)
    p = np.asarray(score(np.asarray(sample_p)), dtype=float)
    q = np.asarray(score(np.asarray(sample_q)), dtype=float)
    if p.ndim != 1 or q.ndim != 1 or min(p.size, q.size) < 4:
        raise ValueError("scores must be 1-D, with at least four samples on each side")
    error = (1.0 - confidence) / 2.0
    pooled = np.unique(np.concatenate([p[::2], q[::2]]))
    if pooled.size > _MOST_THRESHOLDS:
        # Even in rank, and the extremes one by one: the best event often lies far out in a tail.
        ranks = np.linspace(0, pooled.size - 1, _MOST_THRESHOLDS).astype(int)
        ends = np.arange(100)
        pooled = pooled[np.unique(np.concatenate([ranks, ends, pooled.size - 1 - ends]))]
    chosen = _bounds(p[::2], q[::2], pooled, delta, error)
    kind, which = np.unravel_index(int(np.argmax(chosen)), chosen.shape)
    tested = _bounds(p[1::2], q[1::2], pooled[which : which + 1], delta, error)[kind, 0]
    return float(max(tested, 0.0))


def kolmogorov_distance(sample: npt.ArrayLike, cdf: Callable[[FloatArray], FloatArray]) -> float:
    """Largest distance between the sample's distribution function and ``cdf``."""
    x = np.sort(np.asarray(sample, dtype=float).ravel())
    expected = cdf(x)
    steps = np.arange(x.size + 1) / x.size
    return float(max(np.max(steps[1:] - expected), np.max(expected - steps[:-1])))


def kolmogorov_limit(size: int, false_alarm: float) -> float:
    """Distance that a true distribution exceeds with probability at most ``false_alarm`` (DKW with Massart's 2)."""
    return float(np.sqrt(np.log(2.0 / false_alarm) / (2.0 * size)))


def fits_frequencies(counts: npt.ArrayLike, probabilities: npt.ArrayLike, false_alarm: float = 1e-7) -> bool:
    """Whether category counts fit a distribution by Pearson's chi-square test at level ``false_alarm``."""
    counts, probabilities = np.asarray(counts, dtype=float), np.asarray(probabilities, dtype=float)
    expected = counts.sum() * probabilities
    statistic = float(np.sum((counts - expected) ** 2 / expected))
    return statistic <= float(chi2.isf(false_alarm, counts.size - 1))
