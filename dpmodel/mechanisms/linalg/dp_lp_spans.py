"""Sanitised equations for dp-lp: all levels of the stable partition that are well supported, for the price of one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dpmodel.annotate.records import Neighbors
from dpmodel.mechanisms.linalg.integer_rows import IntegerRows
from dpmodel.mechanisms.linalg.partition import stable_partition
from dpmodel.mechanisms.linalg.rational import QQ
from dpmodel.privacy import DiscreteNoiseSource


@dataclass(frozen=True)
class Threshold:
    """``scale`` of the discrete Laplace noise on each count and ``sets``: a level passes with so many, noisily."""

    scale: float
    sets: int


@lru_cache(maxsize=256)
def threshold(epsilon: float, delta: float, neighbors: Neighbors) -> Threshold:
    """The least threshold for which ``supported_levels`` is (epsilon, delta)-DP.

    Under replace-one a record leaves and another comes: two changes of one record at (e, t) with ``2 e = epsilon`` and
    ``t + exp(e) t = delta`` (group privacy).
    """
    if neighbors != "add-remove":
        epsilon = epsilon / 2
        delta = delta / (1 + math.exp(epsilon))
    sets = 2
    while (difference_tail(epsilon, sets - 1) + difference_tail(epsilon, sets)) * (1 + 1e-9) > delta:
        sets += 1
    return Threshold(1 / epsilon, sets)


def difference_tail(epsilon: float, k: int) -> float:
    """P[X - Y >= k], k >= 0, for independent discrete Laplace X, Y of scale 1/epsilon.

    With a = exp(-epsilon), P[X - Y = j] = c^2 a^|j| (|j| + 1 + 2 a^2 / (1 - a^2)), c = (1 - a)/(1 + a); summed.
    """
    a = math.exp(-epsilon)
    one = -math.expm1(-epsilon)
    c = one / (1 + a)
    beta = 2 * a * a / -math.expm1(-2 * epsilon)
    return c * c * a**k * ((k + 1 + beta) / one + a / one**2)


def supported_levels(
    vectors: IntegerRows, epsilon: float, delta: float, neighbors: Neighbors, source: DiscreteNoiseSource
) -> list[npt.NDArray[Any]]:
    """Canonical bases (k, D) of the spans of all well-supported levels of the stable partition, largest first.

    Source
        KMMST24, Algorithms 1 and 2, with one noise draw per level for all comparisons and every level that passes
        released, not the largest alone.
    Privacy
        Let S' be S with one vector more, the order of the others kept, and m(j) the number of sets of dimension j. By
        Proposition 2 and its proof one set of S' has one dimension more than in S (k instead of k - 1, where k - 1 = 0 is
        no set), and the others have their spans. So M(j), the number of sets of dimension at least j, differs at j = k
        alone, by 1, and the noisy M are epsilon-DP (D1 = 1). The span of level j is the same in S and S' wherever both
        have a set of that dimension; so what is released, given the noisy counts, differs only if a level passes that has
        one set in one of S, S' and none in the other. In either of them there are at most two such levels, k - 1 and k,
        one with one set and one with none. A level passes if the difference of its two noisy counts is at least
        ``sets``. Their probabilities, P[1 + X - Y >= sets] and P[X - Y >= sets] at most (the top level has one noise
        alone, which is less), add up to delta at most: that is ``threshold``. For events E and that bad event B:
        P(E) <= P(E, not B) + P(B) <= e^epsilon P'(E) + delta.
    Utility
        A level with more than ``sets`` sets and twice the noise's quantile passes.
    Cost
        The partition; one draw per dimension.
    """
    D = vectors.shape[1]
    rule = threshold(epsilon, delta, neighbors)
    partition = stable_partition(QQ, vectors)
    at_least = np.cumsum(partition.counts[::-1])[::-1][1:]
    noisy = source.discrete_laplace(at_least, rule.scale)
    passing = np.append(noisy[:-1] - noisy[1:], noisy[-1:]) >= rule.sets
    return [
        np.asarray(partition.basis(k).rows, dtype=object)
        for k in range(D, 0, -1)
        if passing[k - 1] and partition.counts[k] > 0
    ]
