"""One guarantee read in another currency: (epsilon, delta), zCDP rho, Gaussian mu.

All answers are rounded to the safe side by a relative 1e-9, which is far above the rounding errors of
these formulas and far below anything that matters for accuracy. Results are cached.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr

from dpmodel.errors import SpecificationError
from dpmodel.privacy._checks import FloatArray, fraction, non_negative, positive

__all__ = [
    "PrivacyLoss",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "laplace_rho",
    "pure_rho",
    "truncated_laplace_half_width",
    "validate_privacy",
    "zcdp_epsilon",
    "zcdp_rho",
]

_MARGIN = 1e-9
_LEAST_DELTA = 1e-200
_ALPHA_MINUS_ONE = np.logspace(-4, 9, 1301)  # Renyi orders tried first; any order > 1 is valid


class PrivacyLoss(NamedTuple):
    """An (epsilon, delta) pair."""

    epsilon: float
    delta: float


def validate_privacy(epsilon: object, delta: object = 0.0) -> PrivacyLoss:
    """Return (epsilon, delta) as floats with 0 < epsilon < inf and 0 <= delta < 1.

    Raises
    ------
    SpecificationError
        For anything else: negative, zero, infinite or NaN epsilon, delta outside [0, 1), a bool, a
        string, an array; also for 0 < delta < 1e-200, below which floats underflow.
    """
    loss = PrivacyLoss(positive(epsilon, "epsilon"), fraction(delta, "delta", zero=True))
    if 0.0 < loss.delta < _LEAST_DELTA:
        raise SpecificationError(
            f"delta = {loss.delta} is below {_LEAST_DELTA}",
            why="the conversions would underflow",
            remedy="pass delta=0 for a pure guarantee",
        )
    return loss


def _positive_delta(epsilon: object, delta: object, what: str) -> PrivacyLoss:
    loss = validate_privacy(epsilon, delta)
    if loss.delta == 0.0:
        raise SpecificationError(
            f"{what} needs delta > 0",
            why="it has no pure guarantee",
            remedy="allow a delta, for example 1e-6, or use Laplace noise and pure composition",
        )
    return loss


def _largest(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Largest x in [low, high] with holds(x), to relative 1e-14, for holds true up to a point from low on."""
    if holds(high):
        return high
    while high - low > 1e-14 * high:
        middle = math.sqrt(low * high) if low > 0.0 and high > 2.0 * low else 0.5 * (low + high)
        if not low < middle < high:
            break
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


# --- zero-concentrated differential privacy ---------------------------------------------------------


def pure_rho(epsilon: float) -> float:
    """Cost in rho of any epsilon-DP mechanism: min(epsilon^2/2, epsilon).

    The first is Bun and Steinke 2016, proposition 3.3; the second holds because every Renyi divergence of
    order alpha > 1 is at most epsilon <= epsilon alpha.
    """
    epsilon = non_negative(epsilon, "epsilon")
    return min(0.5 * epsilon * epsilon, epsilon)


def laplace_rho(epsilon: float) -> float:
    """Cost in rho of Laplace noise of scale D1/epsilon: epsilon + exp(-epsilon) - 1.

    The Renyi divergence of order alpha divided by alpha is largest as alpha -> 1, where it is the
    Kullback-Leibler divergence. For a vector, entries moving by D_i cost the sum of this function at
    D_i/scale, which is at most its value at D1/scale, as it is convex and 0 at 0.
    """
    epsilon = non_negative(epsilon, "epsilon")
    if epsilon < 1e-2:  # cancellation; an alternating series cut after a positive term is an upper bound
        return 0.5 * epsilon**2 * (1.0 - epsilon / 3.0 + epsilon**2 / 12.0)
    return min(epsilon + math.expm1(-epsilon), pure_rho(epsilon))


def _refined(objective: Callable[[FloatArray], FloatArray]) -> float:
    """Minimum of a function of the Renyi order (given as alpha - 1), by two grids; any point is valid."""
    grid = _ALPHA_MINUS_ONE
    for _ in range(3):
        values = objective(grid)
        best = int(np.argmin(values))
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)]
        grid = np.linspace(low, high, 201)
    return float(objective(grid).min())


@lru_cache(maxsize=4096)
def zcdp_rho(epsilon: float, delta: float) -> float:
    """Largest rho such that every rho-zCDP mechanism is (epsilon, delta)-DP by the tight conversion.

    Source: Canonne, Kamath and Steinke 2020, proposition 12: delta = exp((alpha-1)(alpha rho - epsilon))
    (1 - 1/alpha)^alpha / (alpha - 1) for every order alpha > 1. Solved for rho at each alpha; the best
    alpha is found on two grids (each alpha gives a valid rho, so a grid is never optimistic). rho =
    -ln(1 - delta^2) is valid as well, for epsilon = 0 even, as delta <= sqrt(1 - exp(-KL)).

    Parameters
    ----------
    epsilon : > 0.
    delta : in (0, 1).
    """
    epsilon, delta = _positive_delta(epsilon, delta, "a conversion to zCDP")

    def negative_rho(a: FloatArray) -> FloatArray:
        alpha = 1.0 + a
        log_one_minus = np.log(a) - np.log1p(a)  # ln(1 - 1/alpha)
        rho: FloatArray = -(epsilon - log_one_minus + (math.log(delta) + np.log1p(a)) / a) / alpha
        return rho

    # Four margins, so that zcdp_epsilon(zcdp_rho(e, d), d) <= e in spite of its own margin (tested).
    return max(-_refined(negative_rho), -math.log1p(-delta * delta)) * (1.0 - 4.0 * _MARGIN)


@lru_cache(maxsize=4096)
def zcdp_epsilon(rho: float, delta: float) -> float:
    """Smallest epsilon such that every rho-zCDP mechanism is (epsilon, delta)-DP by the tight conversion.

    The inverse of `zcdp_rho`; 0 for rho = 0.
    """
    rho = non_negative(rho, "rho")
    _, delta = _positive_delta(1.0, delta, "a conversion from zCDP")
    if rho <= -math.log1p(-delta * delta):
        return 0.0

    def epsilon_at(a: FloatArray) -> FloatArray:
        alpha = 1.0 + a
        epsilon: FloatArray = rho * alpha + np.log(a) - np.log1p(a) - (math.log(delta) + np.log1p(a)) / a
        return epsilon

    return max(_refined(epsilon_at), 0.0) * (1.0 + _MARGIN)


# --- Gaussian differential privacy ------------------------------------------------------------------

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


def _mills(x: float | FloatArray) -> FloatArray:
    """(1 - Phi(x)) / phi(x), stable for large x; finite for x > -37."""
    ratio: FloatArray = math.sqrt(math.pi / 2.0) * erfcx(np.asarray(x) / math.sqrt(2.0))
    return ratio


@lru_cache(maxsize=4096)
def gaussian_delta(mu: float, epsilon: float) -> float:
    """Smallest delta such that Gaussian noise of standard deviation D2/mu is (epsilon, delta)-DP.

    Source: Balle and Wang 2018, theorem 8: delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 -
    epsilon/mu). With t = epsilon/mu - mu/2 and the Mills ratio M it equals phi(t) (M(t) - M(t + mu)),
    which neither overflows nor cancels; for small mu the difference is the integral of 1 - x M(x).

    Parameters
    ----------
    mu : >= 0, sensitivity over standard deviation. Several releases mu_i compose, adaptively too, to
        sqrt(sum mu_i^2) exactly (Dong, Roth and Su 2022, corollary 3.3).
    epsilon : >= 0.
    """
    mu, epsilon = non_negative(mu, "mu"), non_negative(epsilon, "epsilon")
    if mu == 0.0:
        return 0.0
    t = epsilon / mu - 0.5 * mu
    if t > 40.0:
        return 0.0  # below 1e-340
    if t < -5.0:
        delta = float(ndtr(-t)) - math.exp(epsilon + float(log_ndtr(-t - mu)))
    else:
        if mu < 0.5:
            x = t + 0.5 * mu * (1.0 + _NODES)
            difference = 0.5 * mu * float(_WEIGHTS @ (1.0 - x * _mills(x)))
        else:
            difference = float(_mills(t) - _mills(t + mu))
        delta = math.exp(-0.5 * t * t) / math.sqrt(2.0 * math.pi) * difference
    return min(delta * (1.0 + _MARGIN), 1.0)


@lru_cache(maxsize=4096)
def gaussian_mu(epsilon: float, delta: float) -> float:
    """Largest mu = D2/sigma such that Gaussian noise is (epsilon, delta)-DP, by `gaussian_delta`.

    Rounded down, so that gaussian_delta(mu, epsilon) <= delta. mu^2/2 is the zCDP cost, but the
    conversion of that cost would give a larger delta: with Gaussian noise alone, count in mu.
    """
    epsilon, delta = _positive_delta(epsilon, delta, "Gaussian noise")
    high = 1.0
    while gaussian_delta(high, epsilon) <= delta:
        high *= 2.0
    return _largest(lambda mu: gaussian_delta(mu, epsilon) <= delta, 0.0, high) * (1.0 - _MARGIN)


@lru_cache(maxsize=4096)
def gaussian_epsilon(mu: float, delta: float) -> float:
    """Smallest epsilon such that Gaussian noise of standard deviation D2/mu is (epsilon, delta)-DP."""
    mu = non_negative(mu, "mu")
    _, delta = _positive_delta(1.0, delta, "Gaussian noise")
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    high = 1.0
    while gaussian_delta(mu, high) > delta:
        high *= 2.0
    return _largest(lambda epsilon: gaussian_delta(mu, epsilon) > delta, 0.0, high) * (1.0 + _MARGIN)


# --- truncated Laplace ------------------------------------------------------------------------------


def truncated_laplace_half_width(scale: float, epsilon: float, delta: float) -> float:
    """Half width s of `TruncatedLaplace` noise that makes a vector of l1 sensitivity D1 (epsilon, delta)-DP.

    scale = D1/epsilon and s = scale ln(1 + (e^epsilon - 1)/(2 delta)), rounded up. Source: Geng, Ding,
    Guo and Kumar 2020 for a number; for a vector:

    Let entry i move by D_i, sum D_i <= D1. Where both densities are positive their ratio is at most
    exp(sum D_i/scale) <= e^epsilon, since all entries share one normalising constant. Outputs that only
    one of the two inputs can produce have some noise z_i within D_i of an end of [-s, s], of mass at most
    (e^(D_i/scale) - 1) e^(-s/scale) / (2 (1 - e^(-s/scale))) each. Since e^x - 1 is superadditive, their
    sum is at most (e^epsilon - 1) / (2 (e^(s/scale) - 1)) = delta, whatever the number of entries.

    Parameters
    ----------
    scale : D1/epsilon > 0, in the unit of the values.
    epsilon : > 0, the same epsilon as in the scale.
    delta : in (0, 1).
    """
    scale = positive(scale, "scale")
    epsilon, delta = _positive_delta(epsilon, delta, "truncated Laplace noise")
    if epsilon > 500.0:  # e^epsilon would overflow; ln(1 + y) <= ln(y) + 1/y and y is astronomically large
        width = epsilon - math.log(2.0 * delta)
    else:
        width = math.log1p(math.expm1(epsilon) / (2.0 * delta))
    return scale * width * (1.0 + _MARGIN)
