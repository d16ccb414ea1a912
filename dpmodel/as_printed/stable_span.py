"""Algorithm 2 of KMMST24 as printed, for study and as a yardstick of ``stable-span``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpmodel._types import Integers
from dpmodel.contract import Mechanism, Options, Progress, Serves, Verdict, no_progress
from dpmodel.exact.model import Found, PrivateVectors
from dpmodel.exact.partition import stable_partition
from dpmodel.exact.stable_span import (
    SpanBound,
    Sums,
    discrete,
    eligible,
    level_sums,
    log_tail_unequal,
    no_subspace,
    span_bound,
    statement,
)
from dpmodel.forecast import Forecast, RowsMissed
from dpmodel.privacy import DiscreteNoiseSource, NoiseSource
from dpmodel.text import number


@dataclass(frozen=True)
class PrintedRule:
    """``threshold`` gets noise of scale ``threshold_scale``, counts get noise of scale ``count_scale``.

    ``epsilon``, ``delta`` : for one vector more or less."""

    epsilon: float
    delta: float
    threshold: int
    threshold_scale: float
    count_scale: float


_MOST_DIMENSIONS = 2_000


@dataclass(frozen=True)
class StableSpanAsPrinted(Mechanism[PrivateVectors]):
    """The largest dimension k whose number of sets m(k) in the stable partition passes a noisy threshold.

    Source
        KMMST24, Algorithm 2 and Theorem A: threshold (16/epsilon) ln(100 d / delta) + Lap(2/epsilon), counts
        m(k) + Lap(4/epsilon) for k = d, .., 1, the first that is larger ends the loop. If none is, the output is {0}
        (the printed loop would leave k = 1). Here the noise is discrete Laplace and the threshold rounded up.
    Privacy
        One vector more or less moves each m(k) by at most 1 (Proposition 2), so the index K of the sparse vector
        technique is epsilon-DP: in the proof the threshold shifts by 1 and the passing count by 2, both integers.
        The subspace at K is another one only for two values of K, at which m is 1 on one side (where the subspace is
        told) and 0 on the other (where {0} is). Let S be a set of outputs, G the values of K at which both sides tell
        the same that is in S, a the value with m = 1 here, and b the one with m = 0 here. If {0} is not in S,
        ``Pr[S] <= Pr[K in G] + Pr[K = a]``. If it is, b counts here and a there, so ``Pr[S] - e^epsilon Pr'[S]`` is at
        most ``Pr[K = b] + Pr[K in G or K = a] - e^epsilon Pr'[K in G or K = a] <= Pr[K = b]``.
        Both are at most the chance that one set passes, ``Pr[Z - Z' >= threshold]`` for noises Z, Z' of scales
        4/epsilon and 2/epsilon. With u = exp(-epsilon/8), ``E exp(epsilon (Z - Z') / 8)`` is
        ``(1 + u)^2 / (1 + u + u^2)`` times ``(1 - u^4)^2 / ((1 - u^3)(1 - u^5))``, below 4/3 times 16/15, so the
        chance is at most ``1.5 (delta / (100 d))^2``.
        Replace-one is one vector less and one more: run with epsilon/2 and delta / (1 + e^(epsilon/2)).
    Utility
        If levels k > K do not pass, ``m(k) <= threshold + Z - Z_k``, and at most ``sum_(k > K) k m(k)`` vectors are
        missed: bounded over all K together by Chernoff, as in ``StableSpan``. Theorem A's own constants give more:
        ``d^2 ((20/epsilon) ln(100/delta) + (4/epsilon) ln(2 d / delta))``.
    Cost
        The partition.
    """

    serves: ClassVar[Serves] = Serves(PrivateVectors, as_printed=True)
    name: str = "stable-span-as-printed"
    source: str = "KMMST24, Algorithm 2 and Theorem A"

    def eligible(self, model: PrivateVectors, options: Options) -> Verdict:
        verdict = eligible(model, options)
        if verdict.eligible and model.rank > _MOST_DIMENSIONS:
            return Verdict(False, f"its forecast takes too long beyond {_MOST_DIMENSIONS:,} dimensions")
        return verdict

    def forecast(self, model: PrivateVectors, options: Options) -> Forecast:
        rule = printed_rule(model, options)
        key = (self.name, options.epsilon, options.delta, options.beta)
        bound = model.cached(key, lambda: _bound(model, options, rule))
        return model.forecast(
            options,
            statement(model, options, bound),
            RowsMissed(bound.missed, bound.needed),
            work=f"one partition in dimension {model.dimension}",
            noise={
                "threshold": rule.threshold,
                "threshold_scale": rule.threshold_scale,
                "count_scale": rule.count_scale,
                "missed_by_theorem_a": theorem_a(model.rank, rule.epsilon, rule.delta),
            },
        )

    def run(
        self, model: PrivateVectors, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Found:
        source = discrete(noise)
        rule = printed_rule(model, options)
        progress("splitting the vectors into independent sets", 0.1)
        partition = stable_partition(model.field, model.read_rows())
        level = self.index(partition.counts[1 : model.rank + 1], rule, source)
        progress("releasing the subspace", 0.9)
        if level and partition.counts[level]:
            return Found("found", partition.basis(level))
        words = f"no dimension has {number(rule.threshold)} sets by the noisy counts: only {{0}} is released"
        return Found("nothing", no_subspace(model), notes=(words,))

    @staticmethod
    def index(counts: Integers, rule: PrintedRule, source: DiscreteNoiseSource) -> int:
        """Largest k whose noisy number of sets passes, or 0; ``counts`` (r,) m(1), .., m(r)."""
        threshold = int(source.discrete_laplace(np.array([rule.threshold]), rule.threshold_scale)[0])
        above = np.flatnonzero(source.discrete_laplace(counts, rule.count_scale) > threshold)
        return int(above[-1]) + 1 if above.size else 0


STABLE_SPAN_AS_PRINTED = StableSpanAsPrinted()


def printed_rule(model: PrivateVectors, options: Options) -> PrintedRule:
    """The published constants, d being the public rank (Remark 1)."""
    epsilon, delta = options.epsilon, options.delta
    if model.neighbors == "replace-one":
        epsilon, delta = epsilon / 2, delta / (1 + math.exp(min(epsilon / 2, 700.0)))
    threshold = math.ceil(16 / epsilon * math.log(100 * max(model.rank, 1) / delta))
    up = 1 + 2.0**-50
    return PrintedRule(epsilon, delta, threshold, 2 / epsilon * up, 4 / epsilon * up)


def theorem_a(rank: int, epsilon: float, delta: float) -> float:
    """Vectors missed by the constants in the proof of Theorem A."""
    return rank**2 * (20 / epsilon * math.log(100 / delta) + 4 / epsilon * math.log(2 * rank / delta))


def _log_false(rule: PrintedRule, sets: int) -> float:
    """``ln`` of the chance that a level with so many sets passes."""
    return log_tail_unequal(rule.count_scale, rule.threshold_scale, max(rule.threshold + 1 - sets, 0))


def _bound(model: PrivateVectors, options: Options, rule: PrintedRule) -> SpanBound:
    r = model.rank
    levels = np.arange(1.0, r + 1)
    allowed = level_sums(np.full(r, float(rule.threshold)))
    sums: Sums = [
        [(float(levels[K:].sum()), rule.threshold_scale, 1), (levels[K:], rule.count_scale, 1)] for K in range(r)
    ]
    return span_bound(allowed, sums, options.beta - r * math.exp(_log_false(rule, 0)))
