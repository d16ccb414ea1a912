"""Tails of integer noise behind the stable span: exact thresholds and bounds on weighted sums.

A count Z has P(Z = k) ~ exp(-|k| / scale), q = exp(-1 / scale). Everything is computed in logarithms, where tails of
any size are safe.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dpmodel._types import Floats
from dpmodel.marks.records import Neighbors

# Weighted sums of independent noises: weight or weights, scale, how many with each weight.
Noises = list[tuple[float | Floats, float, int]]
Sums = list[Noises]

# Logarithms here are good to about 1e-12; thresholds keep this distance from delta.
_SAFE = 1e-9
# Points of the grid on which Chernoff's exponent is minimised: every one of them is a valid bound.
_GRID = 48


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
        return log_loss(Thresholds(scale, gap, top), neighbors) <= math.log(delta) - _SAFE

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

    Returns
    -------
    rates, logs : (len(sums), g): ``P[S_i >= t] <= exp(logs[i, j] - rates[i, j] t)`` for every j.
    """
    grid = 1 - np.logspace(0, -2.5, _GRID)[1:]  # shares of the largest rate
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
