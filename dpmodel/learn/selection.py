"""Choosing one of k candidates within one budget: the private core of ``PrivateSearchCV``.

The rows are cut by position, by public numbers alone, into rows T that candidates are fitted on and rows V that are
held out. A record is one row, so one record is in T or in V and never in both.

Scores. A held-out row gives a candidate a whole number in {0, ..., GRID}, by itself: one row moves the sum of a
candidate's scores by at most GRID, and the differences between two candidates by at most 2 GRID. Sums of whole numbers
are exact, so that no rounding is left to allow for.

Every candidate once (``every``)
    Privacy. The k fits read T alone and compose to (epsilon, delta) (``share_of_each``). Given the fitted models,
    ``permute_and_flip`` over the sums of scores reads V alone and is epsilon-DP, with the range bound 2 GRID. Neighbors
    that differ in T: the selection is post-processing of the models for this fixed V, (epsilon, delta). Neighbors that
    differ in V: the models are the same random variables, and whatever they are the selection is epsilon-DP. Both
    together are (epsilon, delta)-DP (parallel composition), and all k models may be released.
Random stopping (``stopped``)
    Source. Liu and Talwar 2019, "Private Selection from Private Candidates"; Papernot and Steinke 2022,
    "Hyperparameter Tuning with Renyi Differential Privacy", whose number of runs is a truncated negative binomial:
    (2 + eta) epsilon, the geometric one with eta = 1. What is used is proved here.
    Claim. Let Q be e-DP with outcomes y that have a public order of scores, and run Q independently K times, K
    geometric on 1, 2, ... with stopping probability g whatever the data are. The outcome with the best score, the first
    of them where several are best, is 3e-DP.
    Proof. Let b be the probability under Q of a score below that of y, c of one not above it. The best score of k runs
    is that of y with probability c^k - b^k, and by symmetry the first run with it shows y with probability Q(y)/(c - b)
    of that. Summed over k with weights g (1 - g)^(k - 1), with f(s) = g s / (1 - (1 - g) s),

        P(y) = Q(y) / (c - b) * (f(c) - f(b)) = g Q(y) / ((1 - (1 - g) c) (1 - (1 - g) b)).

    The factors of the denominator are g + (1 - g)(1 - c) and g + (1 - g)(1 - b): a constant plus a multiple of the
    probability of an event under Q, so that each shrinks by a factor of at most exp(e) between neighbors, and Q(y)
    grows by at most exp(e). (Where outcomes have a density, the same holds of it.)
    Here one run draws a candidate uniformly, fits it on T at e, and adds discrete Laplace noise of scale GRID / e to
    its sum of scores over V: e-DP by parallel composition. The cost does not depend on k or on g.
    K is not released, and neither is anything of the other runs: with K known, K runs cost K e. Whoever can time the
    search can guess K.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from dpmodel._types import Integers
from dpmodel.privacy import Cost, compose, permute_and_flip

GRID = 1 << 20  # of a held-out row's score
_DOWN = 1 - 1e-9  # shares are rounded down
M = TypeVar("M")


def every(sums: Sequence[int], epsilon: float, source: Any) -> int:
    """The place of a candidate with a large sum of scores, epsilon-DP about the held-out rows."""
    return permute_and_flip(np.array(sums, dtype=np.float64), 2.0 * GRID, epsilon=epsilon, source=source)


def stopped(
    run: Callable[[int], tuple[M, int]], count: int, runs: int, epsilon: float, source: Any
) -> tuple[int, M, int]:
    """The candidate with the best noisy sum of scores among a geometric number of runs, 3 epsilon-DP.

    Parameters
    ----------
    run : fits candidate j at ``epsilon`` and hands back the model and its exact sum of scores.
    count : of candidates. ``runs`` : their mean number. ``epsilon`` : of one run.

    Returns
    -------
    place, model, score : of the best run; ``score`` is the noisy sum.
    """
    best: tuple[int, M, int] | None = None
    while True:
        place = _uniform(count, source)
        model, total = run(place)
        noisy = int(source.discrete_laplace(np.array([total]), GRID / epsilon)[0])
        if best is None or noisy > best[2]:
            best = place, model, noisy
        if _uniform(runs, source) == 0:
            return best


def _uniform(count: int, source: Any) -> int:
    """A number below ``count``, each as likely."""
    return int(source.noisy_max(np.zeros(count), 1.0, kind="exponential"))


def share_of_each(count: int, epsilon: float, delta: float) -> tuple[float, float]:
    """The (epsilon, delta) of each of ``count`` fits that compose to at most (epsilon, delta).

    Basic composition; or, with delta > 0, half of delta for the fits and half for the composition by the best rule of
    ``accounting.compose`` (zCDP, or optimal composition), where that gives each fit more epsilon than the other half of
    delta is worth.
    """
    if count == 1:
        return epsilon, delta
    basic = epsilon / count * _DOWN, delta / count * _DOWN
    if delta == 0:
        return basic
    own = delta / (2 * count) * _DOWN

    def holds(each: float) -> bool:
        return compose([Cost.approximate(each, own)] * count, delta).epsilon <= epsilon

    low, high = basic[0], epsilon
    while high - low > 1e-6 * high:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return (low, own) if holds(low) and low > 1.1 * basic[0] else basic


def sum_of_scores(scores: Any) -> int:
    """Of numbers in [0, 1], one for each held-out row, each rounded to the grid by itself; no number counts nothing."""
    inside = np.clip(np.nan_to_num(np.asarray(scores, dtype=np.float64), nan=0.0), 0.0, 1.0)
    whole: Integers = np.rint(inside * GRID).astype(np.int64)
    return int(whole.sum())
