"""The span of nearly all vectors: noisy counts of the sets of a stable partition, and the subspaces that stand out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from dpmodel._types import Floats, Integers, Mask
from dpmodel.contract import YES, Mechanism, Options, Progress, Serves, Verdict, no_progress
from dpmodel.errors import SpecificationError
from dpmodel.exact.fields import Field
from dpmodel.exact.model import Found, PrivateVectors
from dpmodel.exact.partition import Partition, stable_partition
from dpmodel.exact.subspaces import Basis
from dpmodel.forecast import Forecast, RowsMissed
from dpmodel.marks.records import Neighbors
from dpmodel.privacy import DiscreteNoiseSource, NoiseSource
from dpmodel.privacy.sampling import LARGEST_SCALE
from dpmodel.text import number


@dataclass(frozen=True)
class StableSpan(Mechanism[PrivateVectors]):
    """Count the sets of each dimension in a stable partition, with noise, and tell the span of one that has many.

    Algorithm. KMMST24, Algorithm 1 splits the non-zero vectors, in the order of the records, into independent sets;
    sets of equal size span the same subspace, and these are nested: V_1 < V_2 < ... . M(k) is the number of sets of
    at least k vectors. Released are ``N(k) = M(k) + Z_k`` for k = 1 .. r and r + 1 (r = ``rank``; M(d + 1) = 0 needs no
    noise), Z_k discrete Laplace. Level k *passes* if ``N(k) - N(k + 1) >= gap`` (``top`` for k = d). One of the levels
    up to r that pass is chosen, and the canonical basis of V_k is released, or {0} where no set has k vectors. The
    choice: the largest; with ``corrupted`` = c the least k with ``N(k + 1) <= c sum_j N(j) + allowance``, since at
    least M(k + 1) vectors lie outside V_k; for equations, of the levels from there on downwards the largest that exists
    and is consistent, and if there is none the first that exists.

    Source
        KMMST24, Algorithms 1 and 2 and Theorem A, with other noise and another threshold.
    Privacy
        Let D' be D with one vector v more, the order of the others kept. If v = 0 nothing changes: zero vectors are
        left out. Otherwise, by the proof of Proposition 2, the partition of D' has the same sets but for one, which has
        k vectors instead of k - 1 (k - 1 = 0: it is new), up to exchanges that change no span; so

        (1) M changes at k alone, by 1: all N together are epsilon-DP with noise of scale 1/epsilon.
        (2) m(k), the number of sets of size k, rises by 1, m(k - 1) falls by 1. V_j is the same in D and D' wherever
            both have a set of size j: the counts of subspaces differ in two subspaces only, one of each of these
            dimensions, and sets of one size share their span. So V_j exists on one side only (and is released as "none"
            on the other) for j = k if m(k) is 0 in D and 1 in D', and for j = k - 1 if m(k - 1) is 1 in D and 0 in
            D'. Let B be the set of these j, at most {k, k - 1}.

        Consider the release of all of N with all V_j that pass and exist, of which the algorithm is a function.
        Outside the event P that some j in B passes, it is the same function of N on D and D', and P is an event of N.
        So, for any set S of outputs,
        ``Pr_D'[S] <= Pr_D'[S and not P] + Pr_D'[P] <= e^epsilon Pr_D[S] + Pr_D'[P]``, and the same with D and D'
        exchanged. On either side one level of B has one set and the other none, and level j passes with probability
        ``T(gap - m(j))``, T the tail of the difference of two noises (``top`` and the tail of one for j = d). So
        ``delta = T(gap - 1) + T(gap)``, with the larger of the two tails at each place; ``thresholds`` takes the least
        integers for which this is at most delta. T has a closed form (``log_tail_two``); the bound is attained
        up to the probability that both pass, by files of one vector and of two that are independent.

        Replace-one: D and D' are D0 with one vector more each (none, if it is zero: then the case above applies). M
        differs from that of D0 at k in D and at l in D', so noise of scale 2/epsilon makes N epsilon-DP. Levels where
        V_j is not the same: if k = l, level k alone, where D and D' have one set each: T(gap - 1). If
        ``|k - l| >= 2``: k and l - 1 with one set in D, k - 1 and l with none, and the reverse in D':
        2 T(gap - 1) + 2 T(gap). If l = k - 1: level k - 1 has one set more than in D0 in D' and one less in D, so it
        differs if D0 has exactly one: then D' has two and D none; levels k and k - 2 have one set in D and none in D':
        at most max(2 T(gap - 1) + T(gap), T(gap - 2) + 2 T(gap)). So
        ``delta = 2 T(gap) + max(2 T(gap - 1), T(gap - 2))``, no more than two steps of add-remove in a row need.

        ``rank``, ``corrupted`` and ``expected`` are public, and privacy does not rest on the first being right: a set
        of more than r + 1 vectors counts in every M(k) read and its change in none of them.
    Utility
        Vectors outside V_K lie in sets of more than K vectors, so there are at most
        ``K M(K + 1) + sum_(k > K) M(k)`` (Abel). If all levels k > K fail, N telescopes:
        ``N(k) <= sum_(j = k .. r) (gap_j - 1) + N(r + 1)``. Together: at most
        ``sum_(k > K) k (gap_k - 1) - (K + 1) Z_(K+1) - sum_(K + 1 < k <= r) Z_k + r Z_(r+1)``, with M(r + 1) = 0 and
        the last term absent for r = d. Chernoff bounds for the sums of noise, over all K at once, and the chance that a
        level without sets passes make the forecast, a theorem; K = 0 gives the records needed for an answer other than
        {0}. With ``corrupted`` the forecast is a prediction, for vectors in general position.
    Cost
        The partition, and one draw of noise per dimension.
    """

    serves: ClassVar[Serves] = Serves(PrivateVectors)
    name: str = "stable-span"
    source: str = "KMMST24, Algorithms 1 and 2, tightened"

    def eligible(self, model: PrivateVectors, options: Options) -> Verdict:
        return eligible(model, options)

    def forecast(self, model: PrivateVectors, options: Options) -> Forecast:
        rule = thresholds(options.epsilon, options.delta, model.neighbors)
        if model.corrupted is None:
            key = (self.name, options.epsilon, options.delta, options.beta)
            bound = model.cached(key, lambda: _bound(model, options, rule))
            words = statement(model, options, bound)
        else:
            bound = _predicted(model, options, rule, model.corrupted)
            words = predicted_statement(bound)
        return model.forecast(
            options,
            words,
            RowsMissed(missed=bound.missed, needed=bound.needed),
            proved=model.corrupted is None,
            work=f"one partition in dimension {model.dimension}",
            noise={"scale": rule.scale, "threshold": rule.gap, "threshold_full_dimension": rule.top},
            caveats=_caveats(model),
        )

    def run(
        self, model: PrivateVectors, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Found:
        partition, counts, rule = _released(model, options, noise, progress)
        order = preferred(counts, model, rule, options.beta)
        chosen = _chosen(partition, order, model)
        if chosen is None:
            sets = f"{number(rule.gap)} sets more than the next"
            words = f"no dimension has {sets} by the noisy counts: only {{0}} is released"
            return Found("nothing", no_subspace(model), notes=(words,))
        level, basis = chosen
        low, high = outside(counts, level, model, rule.scale, options.beta)
        # The variance of one discrete Laplace draw of scale s is 2 q / (1 - q)^2 with q = e^(-1/s).
        variance = 2 * math.exp(-1 / rule.scale) / math.expm1(-1 / rule.scale) ** 2
        sigma = math.sqrt(variance * (min(model.rank, counts.size) - level))
        notes = (CONSISTENT_PART,) if level != order[0] else ()
        return Found("found", basis, float(high), notes, float(low), sigma)


STABLE_SPAN = StableSpan()
# Partitions and forecasts take seconds there.
MOST_DIMENSIONS = 10_000


def _released(
    model: PrivateVectors, options: Options, noise: NoiseSource, progress: Progress
) -> tuple[Partition, Integers, Thresholds]:
    """The partition (private), the noisy counts N(1), N(2), ... and the rule by which levels pass."""
    source = discrete(noise)
    rule = thresholds(options.epsilon, options.delta, model.neighbors)
    progress("splitting the vectors into independent sets", 0.1)
    partition = stable_partition(model.field, model.read_rows())
    counts = source.discrete_laplace(sets_of_at_least(partition.counts)[1 : _counted(model) + 1], rule.scale)
    progress("releasing the subspace", 0.9)
    return partition, counts, rule


# A note of released answers to which the forecast does not apply.
CONSISTENT_PART = (
    "the equations that stand out contradict each other; this is the largest consistent part that stands out by itself"
)


def eligible(model: PrivateVectors, options: Options) -> Verdict:
    """Whether a stable span may be released at all."""
    if options.delta <= 0:
        return Verdict(
            False, "an exact subspace cannot be hidden at delta = 0: without the record that it needs it never appears"
        )
    if 8 / options.epsilon > LARGEST_SCALE:
        return Verdict(False, "epsilon is too small: the noise would leave the integers of 64 bits")
    if model.rank > MOST_DIMENSIONS:
        return Verdict(
            False, f"serves spans of up to {MOST_DIMENSIONS:,} dimensions; a smaller public rank= counts instead"
        )
    return YES


def discrete(noise: NoiseSource) -> DiscreteNoiseSource:
    """The source, if it has integer noise."""
    if not isinstance(noise, DiscreteNoiseSource):
        raise SpecificationError(
            "this source has no integer noise",
            why="counts of sets are integers, and so must be their noise",
            remedy="rng=None, a seed, or a source with discrete_laplace",
        )
    return noise


def no_subspace(model: PrivateVectors) -> Basis:
    """The basis of {0}."""
    field: Field = model.field
    return field.echelon(np.zeros((0, model.dimension), dtype=np.int64))


def sets_of_at_least(counts: Integers) -> Integers:
    """(d + 1,) M(k), from (d + 1,) numbers of sets of k vectors."""
    return np.asarray(np.cumsum(counts[::-1])[::-1], dtype=np.int64)


def passing(noisy: Integers, model: PrivateVectors, rule: Thresholds) -> Mask:
    """(..., r) which levels 1 .. r pass, from (..., r or r + 1) noisy M(1), M(2), ... ."""
    full = model.rank == model.dimension
    above = np.zeros_like(noisy[..., :1]) if full else noisy[..., -1:]
    levels = noisy[..., : model.rank]
    mask = levels - np.concatenate([levels[..., 1:], above], axis=-1) >= rule.gap
    if full:
        mask[..., -1] = levels[..., -1] >= rule.top
    return np.asarray(mask)


def preferred(noisy: Integers, model: PrivateVectors, rule: Thresholds, beta: float) -> list[int]:
    """Levels that pass in the order in which they are wanted, from noisy counts alone."""
    levels = [int(k) + 1 for k in np.flatnonzero(passing(noisy, model, rule))[::-1]]
    if model.corrupted is None:
        return levels
    # At least M(k + 1) vectors lie outside V_k: each set of more than k vectors has one.
    beyond = np.append(noisy[1 : model.rank], 0)
    most = model.corrupted * max(int(noisy[: model.rank].sum()), 0) + _allowance(rule, beta)
    few = [k for k in levels if beyond[k - 1] <= most]
    first = few[-1] if few else (levels[0] if levels else 0)
    return [k for k in levels if k <= first]


def outside(noisy: Integers, level: int, model: PrivateVectors, scale: float, beta: float) -> tuple[int, int]:
    """Fewest vectors outside V_level, by the noisy counts as they are, and most, except with probability beta.

    A set of j > level vectors has at least j - level and at most j of them outside, so with M(j) sets of j vectors or
    more they are between ``sum_{j > level} M(j)`` and that plus ``level M(level + 1)``. The noise of these counts is
    symmetric, with weights level + 1, 1, 1, ...; the level is chosen by noisy counts, so each of the ``rank`` levels
    gets beta / rank.
    """
    above = noisy[level : model.rank]
    if not above.size:
        return 0, 0
    low, most = int(above.sum()), int(above.sum()) + level * int(above[0])
    weights: Noises = [(level + 1.0, scale, 1), *([(1.0, scale, above.size - 1)] if above.size > 1 else [])]
    margin = union_bound(np.zeros(1), [weights], beta / model.rank)
    return max(low, 0), max(math.ceil(most + margin), low, 0)


def _chosen(partition: Partition, order: list[int], model: PrivateVectors) -> tuple[int, Basis] | None:
    """The level told, with its basis: a function of the subspaces that pass and exist."""
    if model.task != "equations":
        level = order[0] if order else 0
        return (level, partition.basis(level)) if level and partition.counts[level] else None
    first: tuple[int, Basis] | None = None
    for level in order:
        if partition.counts[level]:
            basis = partition.basis(level)
            if consistent(basis):
                return level, basis
            first = first or (level, basis)
    return first


def consistent(basis: Basis) -> bool:
    """Whether equations (a, -b) that span this subspace have a solution: (0, 1) is not among them."""
    return not basis.pivots or basis.pivots[-1] != basis.ambient - 1


def _counted(model: PrivateVectors) -> int:
    """How many of M(1), M(2), ... get noise and are read."""
    return min(model.rank + 1, model.dimension)


def _allowance(rule: Thresholds, beta: float) -> float:
    return rule.scale * math.log(4 / beta)


def needed_at_least(model: PrivateVectors, options: Options) -> float:
    """Vectors that any statement needs, without what the noise adds: little work, also in many dimensions."""
    rule = thresholds(options.epsilon, options.delta, model.neighbors)
    return float(level_sums(_gaps(model, rule) - 1)[0]) + 1


def _gaps(model: PrivateVectors, rule: Thresholds) -> Floats:
    """(r,) the threshold of every level."""
    gaps = np.full(model.rank, float(rule.gap))
    if model.rank == model.dimension:
        gaps[-1] = rule.top
    return gaps


def _bound(model: PrivateVectors, options: Options, rule: Thresholds) -> SpanBound:
    r, full = model.rank, model.rank == model.dimension
    gaps = _gaps(model, rule)
    false = (r - 1) * math.exp(log_tail_two(rule.scale, rule.gap))
    false += math.exp(log_tail_one(rule.scale, rule.top) if full else log_tail_two(rule.scale, rule.gap))
    above: Noises = [] if full else [(float(r), rule.scale, 1)]
    sums: Sums = [
        [(K + 1.0, rule.scale, 1), *([(1.0, rule.scale, r - K - 1)] if r - K > 1 else []), *above] for K in range(r)
    ]
    return span_bound(level_sums(gaps - 1), sums, options.beta - false)


def _predicted(model: PrivateVectors, options: Options, rule: Thresholds, share: float) -> SpanBound:
    """With a share c outside a subspace of s dimensions, each set of s + 1 vectors uses one of them up (general
    position), so (1 - c (s + 1)) n / s sets of s are left."""
    s = min(model.rank, model.dimension - 1) if model.task == "equations" else model.rank
    left = (1 - share * (s + 1)) / s if s else 0.0
    if left <= 0:
        return NOTHING
    needed = math.ceil((rule.gap + 2 * _allowance(rule, options.beta)) / left)
    return SpanBound(float(needed), float(math.ceil(share * max(model.expected, needed))))


def _caveats(model: PrivateVectors) -> tuple[str, ...]:
    found = []
    if model.rank < model.dimension:
        found.append(
            f"if the vectors span more than {model.rank} dimensions (rank), privacy holds and the bound does not"
        )
    if model.task == "equations":
        found.append(
            "if the equations that stand out contradict each other, the largest part of them that stands out and is "
            "consistent is released instead, which may miss more"
        )
    if model.corrupted is not None:
        found.append("corrupted= is a guess: the vectors outside are assumed to be in general position")
    return tuple(found)


def release_flag(
    model: PrivateVectors, options: Options, noise: NoiseSource, progress: Progress = no_progress
) -> list[Basis]:
    """All subspaces that pass and exist, in the order in which they are wanted; the privacy argument is
    ``StableSpan``'s, which covers all of them together."""
    partition, counts, rule = _released(model, options, noise, progress)
    order = preferred(counts, model, rule, options.beta)
    return [partition.basis(level) for level in order if partition.counts[level]]


# ------------------------------------------------------------------
# Tails of integer noise behind the stable span: exact thresholds and bounds on weighted sums.
#
# A count Z has P(Z = k) ~ exp(-|k| / scale), q = exp(-1 / scale). Everything is computed in logarithms, where tails of
# any size are safe.


# Weighted sums of independent noises: weight or weights, scale, how many with each weight.
Noises = list[tuple[float | Floats, float, int]]
Sums = list[Noises]


def log_tail_one(scale: float, k: int) -> float:
    """``ln P[Z >= k]``, k >= 0: the tail is ``q^k / (1 + q)``."""
    return -k / scale - math.log1p(math.exp(-1 / scale))


def log_tail_two(scale: float, k: int) -> float:
    """``ln P[Z - Z' >= k]``, k >= 0, for independent Z, Z' of one scale.

    ``P[Z - Z' = j] = ((1 - q) / (1 + q))^2 q^|j| (|j| + (1 + q^2) / (1 - q^2))`` (j + 1 terms of the convolution are
    q^j, the others two geometric series), and the sum over j >= k is
    ``q^k / (1 + q)^2 ((1 - q) k + (1 + q + 2 q^2) / (1 + q))``, positive terms only.
    """
    q = math.exp(-1 / scale)
    return -k / scale - 2 * math.log1p(q) + math.log(-math.expm1(-1 / scale) * k + (1 + q + 2 * q * q) / (1 + q))


def log_tail_unequal(first: float, second: float, k: int) -> float:
    """``ln P[Z - Z' >= k]``, k >= 0, for scales ``first`` != ``second``.

    With p and q their exponentials, ``P[Z - Z' = j]`` is ``c (A p^j + B q^j)`` for j >= 0, where
    ``c = (1 - p)(1 - q) / ((1 + p)(1 + q))``, ``A = 1 / (1 - p q) + (q / p) / (1 - q / p)`` and B the same with p, q
    exchanged; one of A, B is negative, and the sum is taken where it loses no digits.
    """
    if first < second:
        first, second = second, first  # Z - Z' is symmetric
    p, q = math.exp(-1 / first), math.exp(-1 / second)
    ratio = math.exp(1 / first - 1 / second)  # q / p < 1
    joint = math.exp(-1 / first - 1 / second)
    slow = 1 / (1 - joint) + ratio / (1 - ratio)  # A
    fast = 1 / (1 - joint) - 1 / (1 - ratio)  # B < 0
    front = math.log((1 - p) * (1 - q) / ((1 + p) * (1 + q)))
    rest = fast / slow * (1 - p) / (1 - q) * math.exp(k * (1 / first - 1 / second))
    return front - k / first + math.log(slow / (1 - p)) + math.log1p(rest)


@dataclass(frozen=True)
class Thresholds:
    """``scale`` of the noise on every count; a level passes if its noisy number of sets reaches ``gap``, the level of
    full dimension (where one noise enters instead of two) if it reaches ``top``."""

    scale: float
    gap: int
    top: int


@lru_cache(maxsize=512)
def thresholds(epsilon: float, delta: float, neighbors: Neighbors) -> Thresholds:
    """Least thresholds with which ``StableSpan`` is (epsilon, delta)-DP: see the proof there."""
    # One record changes one count by one, a replaced record two of them. The scale is rounded up.
    scale = (1 if neighbors == "add-remove" else 2) / epsilon * (1 + 2.0**-50)

    def holds(gap: int, top: int) -> bool:
        return (
            log_loss(Thresholds(scale, gap, top), neighbors) <= math.log(delta) - 1e-9
        )  # logarithms here are good to about 1e-12

    gap = least(lambda t: holds(t, t), 2)
    return Thresholds(scale, gap, least(lambda t: holds(gap, t), 2))


def log_loss(rule: Thresholds, neighbors: Neighbors) -> float:
    """``ln delta`` that the thresholds attain: the probability that a level passes which neighbours do not share."""

    def tail(sets: int) -> float:
        """Probability that a level with so many sets passes."""
        return max(log_tail_two(rule.scale, rule.gap - sets), log_tail_one(rule.scale, rule.top - sets))

    none, one, two = tail(0), tail(1), tail(2)
    if neighbors == "add-remove":
        return float(np.logaddexp(one, none))
    return float(np.logaddexp(math.log(2.0) + none, max(math.log(2.0) + one, two)))


def least(holds: Callable[[int], bool], low: int) -> int:
    """Least integer >= ``low`` that holds, for what holds from some integer on."""
    if holds(low):
        return low
    high = 2 * low
    while not holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def log_mgf(weight: Floats, scale: float) -> Floats:
    """``ln E exp(weight Z)`` for 0 <= weight < 1 / scale, entrywise:
    ``(1 - q)^2 / ((1 - q e^w)(1 - q e^-w))``."""
    below: Floats = np.log(-np.expm1(weight - 1 / scale)) + np.log(-np.expm1(-weight - 1 / scale))
    return 2 * math.log(-math.expm1(-1 / scale)) - below


def total_weights(sums: Sums) -> tuple[Floats, Floats]:
    """Exponents of Chernoff's bound on S_i = sum of weighted noises.

    ``sums`` : for each i a list of (weight > 0 or several, scale, how many noises with each weight).

    Returns rates, logs : (len(sums), g): ``P[S_i >= t] <= exp(logs[i, j] - rates[i, j] t)`` for every j.
    """
    grid = 1 - np.logspace(0, -2.5, 48)[1:]  # shares of the largest rate; every one gives a valid bound
    rates = np.empty((len(sums), grid.size))
    logs = np.zeros_like(rates)
    for i, parts in enumerate(sums):
        limit = min((float(np.min(1 / (np.asarray(weight) * scale))) for weight, scale, _ in parts), default=1.0)
        rates[i] = limit * grid
        for weight, scale, count in parts:
            logs[i] += count * log_mgf(np.multiply.outer(np.atleast_1d(weight), rates[i]), scale).sum(axis=0)
    return rates, logs


def union_bound(base: Floats, sums: Sums, beta: float) -> float:
    """A t >= max(base), nearly least, with ``sum_i P[base_i + S_i > t] <= beta`` by Chernoff's bounds."""
    if not len(base):
        return 0.0
    rates, logs = total_weights(sums)

    def failure(t: float) -> float:
        exponents: Floats = (logs - rates * (t - base)[:, None]).min(axis=1)
        return float(np.exp(np.minimum(exponents, 0.0)).sum())

    low = float(base.max())
    step = 1.0
    while failure(low + step) > beta:
        step *= 2
    left, right = low, low + step
    while right - left > 1e-3 + 1e-6 * right:
        middle = (left + right) / 2
        left, right = (left, middle) if failure(middle) <= beta else (middle, right)
    return right


# ------------------------------------------------------------------
# How many vectors a stable span may miss, from public facts: bounds by telescoping and Chernoff


@dataclass(frozen=True)
class SpanBound:
    """Except with the probability allowed: with ``needed`` non-zero vectors or more the subspace is not {0}, and
    then it misses at most ``missed``, which is fewer."""

    needed: float
    missed: float


NOTHING = SpanBound(math.inf, math.inf)


def span_bound(allowed: Floats, sums: Sums, beta: float) -> SpanBound:
    """From bounds for every level K at which the choice may stop.

    ``allowed`` (r,), ``sums`` (r) : if level K = 0 .. r - 1 is chosen, at most ``allowed[K]`` plus the sum of the
    weighted noises ``sums[K]`` vectors lie outside. ``beta`` : failure probability of all together; none left: no
    bound.
    """
    if beta <= 0:
        return NOTHING
    nothing = math.floor(union_bound(allowed[:1], sums[:1], beta / 2))
    rest = math.floor(union_bound(allowed[1:], sums[1:], beta / 2))
    return SpanBound(max(nothing, rest) + 1.0, float(rest))


def level_sums(values: Floats) -> Floats:
    """(r,) for K = 0 .. r - 1: ``sum over k > K of k values[k - 1]``: vectors in sets of more than K, if there are
    ``values[k - 1]`` sets of k."""
    levels = np.arange(1, values.size + 1)
    return np.cumsum((levels * values)[::-1])[::-1]


def statement(model: PrivateVectors, options: Options, bound: SpanBound) -> str:
    """The bound in words."""
    if math.isinf(bound.needed):
        return "delta is too large beside beta"
    what = {"span": "vectors", "affine span": "points", "equations": "equations"}[model.task]
    return (
        f"with probability {number(1 - options.beta)}, at most {number(bound.missed)} {what} are missed, if "
        f"{number(bound.needed)} or more are not zero"
    )


def predicted_statement(bound: SpanBound) -> str:
    """The same where a share of the vectors is guessed to be corrupted."""
    if math.isinf(bound.needed):
        return "so many corrupted vectors that every independent set holds one"
    return (
        f"predicted to miss the corrupted vectors only, about {number(bound.missed)}, if {number(bound.needed)} or "
        "more vectors are not zero"
    )
