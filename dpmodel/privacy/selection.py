"""Selection: the index of a good candidate, or the queries that pass a threshold.

All of it is stated in R, the range bound: R = sup over neighbours D, D' of
``max_r - min_r of (q(r, D) - q(r, D'))``. A common shift of all scores changes no selection, so R is
what counts; R <= 2 Delta for scores that move by at most Delta each, and R <= Delta when all of them
move the same way. R must hold for the scores as computed: whoever computes them in floating point adds
a rounding allowance to R (no such allowance is added here, because only the caller knows the sums).

Scores are maximised; negate them to minimise. Errors never print scores.
"""

from __future__ import annotations

import math

import numpy as np

from dpmodel.errors import SpecificationError
from dpmodel.privacy._checks import count_of, finite_array, fraction, positive, score_vector
from dpmodel.privacy.noise import NoiseSource, SelectionKind


def _select(scores: object, range_bound: float, epsilon: float | None, source: NoiseSource, kind: SelectionKind) -> int:
    scale = positive(range_bound, "range_bound") / positive(epsilon, "epsilon")
    return source.noisy_max(score_vector(scores), scale, kind=kind)


def exponential_mechanism(
    scores: object,
    range_bound: float,
    *,
    epsilon: float | None = None,
    rho: float | None = None,
    source: NoiseSource,
) -> int:
    """Draw an index r with probability proportional to exp(scores[r] / scale), scale = R / epsilon.

    Source: McSherry and Talwar 2007; zCDP cost: Cesar and Rogers 2021 (bounded range).

    Privacy. Between neighbours the log of each weight moves by an amount in an interval of length
    R/scale = epsilon, the log of their sum by an amount in the same interval; the privacy loss therefore
    lies in an interval of length epsilon that contains 0: epsilon-DP, and rho = epsilon^2/8 zCDP by
    Hoeffding's lemma. This is the mechanism to compose.

    Utility. max(scores) - scores[r] <= scale ln(count/beta) with probability at least 1 - beta.

    ``scores`` : (count,) finite floats, larger is better.
    ``range_bound`` : R > 0, in the unit of the scores.
    ``epsilon, rho`` : exactly one; rho buys epsilon = sqrt(8 rho).
    ``source`` : where randomness comes from.
    Returns index : int in [0, count).
    """
    if (epsilon is None) == (rho is None):
        raise SpecificationError(
            "give exactly one of epsilon and rho",
            why="a selection is charged in one currency",
            remedy="epsilon=... for a pure guarantee, rho=... inside a zCDP composition",
        )
    pure = epsilon if rho is None else math.sqrt(8 * positive(rho, "rho"))
    return _select(scores, range_bound, pure, source, "exponential")


def permute_and_flip(scores: object, range_bound: float, *, epsilon: float, source: NoiseSource) -> int:
    """Visit the indices in random order and take r with probability exp((scores[r] - max) / scale).

    Source: McKenna and Sheldon 2020; equal to report-noisy-max with exponential noise (Ding et al. 2021),
    which is how it is drawn.

    Privacy. epsilon-DP with scale = R/epsilon: their theorem has scale = 2 Delta/epsilon, and because
    the distribution does not change when all scores are shifted, Delta = R/2 may be taken. Its privacy loss has
    no bounded range, so in zCDP it costs epsilon^2/2: under composition take `exponential_mechanism`.

    Utility. Never worse than the exponential mechanism with the same scale (stochastic dominance), and
    up to a factor 2 better: error <= scale ln(count/beta) with probability at least 1 - beta.

    Parameters and errors are those of `exponential_mechanism`, but for rho.
    """
    return _select(scores, range_bound, epsilon, source, "permute_and_flip")


def exponential_mechanism_error(count: int, range_bound: float, epsilon: float, beta: float) -> float:
    """Forecast: max(scores) - scores[chosen] is at most this with probability at least 1 - beta.

    A candidate that is worse by t has probability at most exp(-t/scale), and there are count - 1 of
    them: t = scale ln((count - 1)/beta) suffices, and ln(count/beta) is the familiar, rounder form.
    Inside zCDP pass epsilon = sqrt(8 rho).

    ``count`` : number of candidates, >= 1 (0 is returned for one candidate).
    ``range_bound`` : R > 0, in the unit of the scores.
    ``epsilon, beta`` : per selection.
    """
    count, beta = count_of(count, "count"), fraction(beta, "beta")
    scale = positive(range_bound, "range_bound") / positive(epsilon, "epsilon")
    return 0.0 if count == 1 else scale * math.log(count / beta)


permute_and_flip_error = exponential_mechanism_error  # never worse at the same scale


def _split(sensitivity: float, range_bound: float | None, epsilon: float) -> tuple[float, float]:
    """Scales of threshold noise and query noise, by the split that minimises the variance of their sum."""
    sensitivity, epsilon = positive(sensitivity, "sensitivity"), positive(epsilon, "epsilon")
    reach = 2.0 * sensitivity if range_bound is None else positive(range_bound, "range_bound")
    # Least (sensitivity/e1)^2 + (reach/e2)^2 on e1 + e2 = epsilon is at e1/e2 = (sensitivity/reach)^(2/3).
    share = 1.0 / (1.0 + (reach / sensitivity) ** (2.0 / 3.0))
    return sensitivity / (epsilon * share), reach / (epsilon * (1.0 - share))


class AboveThreshold:
    """Sparse vector technique: which of a stream of queries passes a threshold first, paying for that one only.

    Source: Lyu, Su and Li 2017, "Understanding the Sparse Vector Technique", algorithm 7 and its
    optimal split of the budget (their 1 : (2c)^(2/3) with c = 1, here with the range bound R in the place
    of 2 Delta). Six published variants of this algorithm are not private; this is the one that is.

    Algorithm. rho ~ Laplace(Delta/eps1) is drawn once; query i is positive if q_i + nu_i >= T + rho with
    fresh nu_i ~ Laplace(R/eps2); after the first positive it stops for good. eps1 + eps2 = epsilon. No
    noisy value is ever shown.

    Privacy: (pure) epsilon-DP, for adaptively chosen queries, however many negatives there are. Proof.
    Fix neighbours D, D', an answer vector a with one positive at most, and let the changes q_i(D') -
    q_i(D) lie in [lo, hi] with hi - lo <= R and |hi| <= Delta. Write the probability of a as an integral
    over rho of (product over negatives of P[q_i + nu < T + rho]) times P[q_i + nu >= T + rho] of the
    positive. On the side of D' substitute rho -> rho + hi. The density of rho changes by at most
    exp(eps1), since |hi| <= Delta. Every negative factor only grows: q_i(D') - hi <= q_i(D). The positive
    factor asks nu to be larger by hi - (q_i(D') - q_i(D)) <= R, which costs at most exp(R eps2/R) =
    exp(eps2). The product is at most exp(eps1 + eps2). The negatives share one rho and cost nothing,
    which is why rho must be noisy and never drawn again. R must bound the range of changes over all
    queries ever asked, not vector by vector.

    Rounding. The proof shifts noise by real numbers. The grid of the noise makes that an excess below 2^-78, but
    floats of size |q| round by |q| 2^-53 before they are compared: include that in ``sensitivity``.

    Utility: see `above_threshold_error`.

    ``threshold`` : T, public, in the unit of the queries.
    ``sensitivity`` : Delta > 0, the most that one record moves any query.
    ``epsilon`` : the whole price, due when the object is built (charge it before).
    ``range_bound`` : R, at most 2 Delta (the default); R = Delta if all queries move the same way.
    ``source`` : where randomness comes from.
    """

    def __init__(
        self,
        threshold: float,
        *,
        sensitivity: float,
        epsilon: float,
        range_bound: float | None = None,
        source: NoiseSource,
    ) -> None:
        self._source = source
        public = finite_array(threshold, "threshold")
        if public.ndim != 0:
            raise SpecificationError(
                f"threshold has shape {public.shape}",
                why="one noisy threshold serves all queries",
                remedy="subtract differing thresholds from the queries and pass threshold=0.0",
            )
        threshold_scale, self._query_scale = _split(sensitivity, range_bound, epsilon)
        self._noisy_threshold = float(source.laplace(public, threshold_scale))
        self._passed = False

    def test(self, value: float) -> bool:
        """Answer whether one query value (a finite number) passes the threshold, noisily."""
        return self.first_above([value]) is not None

    def first_above(self, values: object) -> int | None:
        """Ask the queries of a vector in order and stop at the first positive one.

        ``values`` : (k,) finite floats, k >= 1.
        Returns index : of the first positive, or None if all are negative. Later entries count as not asked.
        """
        if self._passed:
            raise SpecificationError(
                "this AboveThreshold has given its positive answer",
                why="the privacy proof pays for one and no more",
                remedy="build a new AboveThreshold, with its own budget",
            )
        vector = score_vector(values, "values")
        above = self._source.laplace(vector, self._query_scale) >= self._noisy_threshold
        if not above.any():
            return None
        self._passed = True
        return int(np.argmax(above))


def above_threshold_error(
    queries: int,
    sensitivity: float,
    epsilon: float,
    beta: float,
    *,
    range_bound: float | None = None,
) -> float:
    """Forecast: with probability at least 1 - beta no answer of `AboveThreshold` is off by more than this.

    That is, a positive query is at least T - alpha and a negative one at most T + alpha, for ``queries``
    queries: alpha = scale_rho ln(2/beta) + scale_nu ln(2 queries/beta), half of beta for each.
    """
    queries, beta = count_of(queries, "queries"), fraction(beta, "beta")
    threshold_scale, query_scale = _split(sensitivity, range_bound, epsilon)
    return threshold_scale * math.log(2.0 / beta) + query_scale * math.log(2.0 * queries / beta)
