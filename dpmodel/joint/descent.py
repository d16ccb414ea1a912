"""Dual averaging on prices from noisy demands: what becomes of them is public, so this reads released numbers only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from dpmodel._types import Floats

# ``measure(prices, scale)``: the demand (m,) at these prices (m,), with Gaussian noise of this standard deviation.
Measure = Callable[[Floats, float], Floats]

# Each look for the level of prices takes at most this share of the squared budget, and less where its noise in the
# total demand is below this share of the total capacity.
_LOOK, _PRECISION = 0.01, 0.1
_START = 0.5  # first price, as a share of the level
# What is left free for the noise, as a share of the margin, and what is planned with at least, as one of a capacity:
# where the noise asks for more, shares are scaled down afterwards.
_FREE, _LEAST = 0.8, 0.05


@dataclass(frozen=True)
class Search:
    """Where the level of prices is looked for: ``2 ** (centre - width)`` to ``2 ** (centre + width)``, which each of
    ``looks`` halves. The first look beside these is at no price at all."""

    centre: float
    width: float
    looks: int


@dataclass(frozen=True)
class Path:
    """What was released: ``prices`` (T, m), ``demand`` (T, m) with noise, the ``weights`` (T,) of the steps, and
    ``noise``, the standard deviation of the weighted mean of the demands, in which the errors are independent."""

    prices: Floats
    demand: Floats
    weights: Floats
    noise: float

    @property
    def mean_demand(self) -> Floats:
        """(m,) the weighted mean, unbiased for what the weighted mean of the answers uses."""
        return np.asarray(self.weights @ self.demand)


def margin(noise: float, beta: float, resources: int) -> float:
    """What the weighted mean of m demands is off by, upwards, in any of them with probability ``beta`` at most."""
    return float(-noise * ndtri(beta / resources))


def looks_share(noise: float, capacity: Floats) -> float:
    """The share of the squared budget that one look takes. ``noise`` : of a demand that gets all of it."""
    total = float(capacity.sum())
    relative = math.sqrt(capacity.size) * noise / (_PRECISION * total) if total > 0 else math.inf
    return max(min(_LOOK, relative**2), 1e-12)


def look(measure: Measure, resources: int, scale: float, search: Search) -> tuple[float, float]:
    """The price, the same for all resources, at which the total demand is half of that at no price, within 2^(1/2);
    and the total demand at no price, with the noise of ``resources`` numbers. ``scale`` : of the noise of each."""
    total = float(measure(np.zeros(resources), scale).sum())
    low, high = search.centre - search.width, search.centre + search.width
    for _ in range(search.looks):
        middle = (low + high) / 2
        more = measure(np.full(resources, 2.0**middle), scale).sum() > total / 2
        low, high = (middle, high) if more else (low, middle)
    return float(2.0 ** ((low + high) / 2)), total


def descend(
    measure: Measure, capacity: Floats, level: float, noise: float, beta: float, steps: int, pace: float
) -> Path:
    """Prices at which people ask for no more than ``capacity`` (m,) less a margin, on average over ``steps``.

    Dual averaging (Nesterov 2009; lazy): ``y <- y + pace / steps * level / capacity * (demand - planned)``, prices
    max(y, 0), from half of the ``level`` on, which gives the unit of the step (``look``): nothing need be known of how
    much people value what. ``noise`` : the standard deviation that one demand would get with all of the budget that is
    left; one with the share q of it, squared, gets ``noise / sqrt(q)``. Step t of T has the weight
    ``2 t / (T (T + 1))`` in the answer and in the budget alike, so that the noise of the weighted mean is ``noise``,
    the least there is. y itself is not cut at 0: where prices are low, cutting at every step would keep what the noise
    adds and drop what it takes.
    """
    planned = np.maximum(capacity - _FREE * margin(noise, beta, capacity.size), _LEAST * capacity)
    weights = 2 * np.arange(1, steps + 1) / (steps * (steps + 1))
    # A capacity of nothing counts as little: its price rises to where nobody pays it, and no further.
    step = pace / steps * level / np.maximum(capacity, 1e-3 * capacity.mean() or 1.0)
    y = np.full(capacity.size, _START * level)
    prices, demand = np.empty((steps, capacity.size)), np.empty((steps, capacity.size))
    for t, weight in enumerate(weights):
        prices[t] = np.maximum(y, 0.0)
        demand[t] = measure(prices[t], noise / math.sqrt(weight))
        y = y + step * (demand[t] - planned)
    return Path(prices, demand, weights, noise)
