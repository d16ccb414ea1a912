"""One guarantee read in another currency: (epsilon, delta), zCDP rho, Gaussian mu.

The conversions are those of dp_accounting, which is imported (0.5 s, once) when the first one is asked for.
It rounds to nearest, so all answers are moved to the safe side by a relative 1e-9 or more, which is above
the rounding errors measured and far below anything that matters for accuracy. Results are cached.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import erfinv, ndtri_exp

from dpmodel.errors import SpecificationError
from dpmodel.privacy._checks import fraction, non_negative, positive
from dpmodel.text import number

_MARGIN = 1e-9
_LEAST_DELTA = 1e-200
_ORDERS = np.concatenate([[1.0], 1.0 + np.logspace(-2, 9, 331)])  # Renyi orders tried first; any is valid


class PrivacyLoss(NamedTuple):
    """An (epsilon, delta) pair."""

    epsilon: float
    delta: float

    def __str__(self) -> str:
        return f"epsilon {number(self.epsilon)}, delta {number(self.delta)}"


def validate_privacy(epsilon: object, delta: object = 0.0) -> PrivacyLoss:
    """Return (epsilon, delta) as floats with 0 < epsilon < inf and 0 <= delta < 1.
    Errors: SpecificationError, for anything else: negative, zero, infinite or NaN epsilon, delta outside [0, 1), a
    bool, a string, an array; also for 0 < delta < 1e-200, below which floats underflow."""
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


# --- zero-concentrated differential privacy ---------------------------------------------------------


def pure_rho(epsilon: float) -> float:
    """Cost in rho of any epsilon-DP mechanism: epsilon tanh(epsilon / 2), that of randomised response.

    The ratio r of two densities lies in [e^-epsilon, e^epsilon] and has mean 1 under the second. ``r^a`` lies below its
    chord, so its mean is at most that of the two ends: randomised response, for which it is
    ``cosh((2 a - 1) x) / cosh(x)`` with x = epsilon / 2. ``ln cosh(u)`` is concave in u^2 (its derivative
    ``tanh(u) / (2 u)`` falls), so the logarithm of the ratio is at most ``((2 a - 1)^2 - 1) x^2 tanh(x) / (2 x) =
    a (a - 1) epsilon tanh(epsilon / 2)``. Attained as a -> 1. Noise of scale 1 / epsilon on integers that move by 1
    (discrete Laplace) is randomised response: it loses this, not `laplace_rho`.
    """
    epsilon = non_negative(epsilon, "epsilon")
    return epsilon * math.tanh(0.5 * epsilon) * (1.0 + 1e-15)


def laplace_rho(epsilon: float) -> float:
    """Cost in rho of Laplace noise of scale D1/epsilon: epsilon + exp(-epsilon) - 1.

    With b = a - 1/2, ``(a - 1)`` times the Renyi divergence of order a is ``ln F(b) - epsilon / 2`` with
    ``F(b) = cosh(b epsilon) + sinh(b epsilon) / (2 b)``, and ``a (a - 1) = b^2 - 1/4``. F is an entire function of b^2
    of order 1/2, and its zeros are real and negative: at b = i v they say ``v cos(v epsilon) + sin(v epsilon) / 2 =
    0``, the eigenvalues v^2 > 0 of ``-y'' = v^2 y`` with y(0) = 0 and y'(epsilon) + y(epsilon) / 2 = 0. So ln F is
    concave in b^2 (Hadamard's product), and the divergence at most ``a`` times its limit at a -> 1, the
    Kullback-Leibler divergence. For a vector, entries moving by D_i cost the sum of this function at D_i/scale, which
    is at most its value at D1/scale, as it is convex and 0 at 0.

    dp_accounting has this number as the divergence of order 1 of a LaplaceDpEvent, but cancels: it is 2e-4
    wrong at epsilon = 1e-6, to either side. It is the cross-check in the tests.
    """
    epsilon = non_negative(epsilon, "epsilon")
    if epsilon < 1e-2:  # cancellation; an alternating series cut after a positive term is an upper bound
        return 0.5 * epsilon**2 * (1.0 - epsilon / 3.0 + epsilon**2 / 12.0)
    return min(epsilon + math.expm1(-epsilon), pure_rho(epsilon))


def pure_mu(epsilon: float) -> float:
    """Gaussian DP parameter of any epsilon-DP mechanism: 2 z with Phi(z) = e^epsilon / (1 + e^epsilon).

    The trade-off function of an epsilon-DP mechanism is at least ``max(1 - e^epsilon a, e^-epsilon (1 - a))``, two
    lines that meet where ``a`` and its value are ``1 / (1 + e^epsilon)``. That of N(0, 1) against N(2 z, 1) passes
    through this point, through (0, 1) and (1, 0), and is convex: it lies below the chords between them, which are the
    lines.
    """
    epsilon = non_negative(epsilon, "epsilon")
    z = math.sqrt(2.0) * erfinv(math.tanh(0.5 * epsilon)) if epsilon < 1.0 else -ndtri_exp(-np.logaddexp(0.0, epsilon))
    return 2.0 * float(z) * (1.0 + _MARGIN)


def _tight_epsilon(rho: float, delta: float) -> float:
    """Epsilon of rho-zCDP by dp_accounting, at the best Renyi order of two grids; not yet rounded up."""
    from dp_accounting import ZCDpEvent
    from dp_accounting.rdp import RdpAccountant

    event = ZCDpEvent(rho)
    epsilon, order = RdpAccountant(_ORDERS).compose(event).get_epsilon_and_optimal_order(delta)
    if epsilon > 0.0:
        finer = 1.0 + (order - 1.0) * np.geomspace(0.92, 1.09, 61)
        epsilon = min(epsilon, RdpAccountant(finer).compose(event).get_epsilon(delta))
    return float(epsilon)


@lru_cache(maxsize=4096)
def zcdp_epsilon(rho: float, delta: float) -> float:
    """Smallest epsilon such that every rho-zCDP mechanism is (epsilon, delta)-DP by the tight conversion.

    Computed by dp_accounting's RdpAccountant, rounded up; 0 for rho = 0. It takes the best Renyi order of
    Canonne, Kamath and Steinke 2020, proposition 12, and epsilon = 0 where delta >= sqrt(1 - exp(-rho)).
    The orders are ours: the default ones give a 19 times larger epsilon for (0.001, 1e-12). Each order
    gives a valid epsilon, so the choice is never optimistic.
    """
    rho = non_negative(rho, "rho")
    _, delta = _positive_delta(1.0, delta, "a conversion from zCDP")
    return _tight_epsilon(rho, delta) * (1.0 + _MARGIN) if rho > 0.0 else 0.0


@lru_cache(maxsize=4096)
def zcdp_rho(epsilon: float, delta: float) -> float:
    """Largest rho such that every rho-zCDP mechanism is (epsilon, delta)-DP by the tight conversion.

    The inverse of `zcdp_epsilon`, by the bisection of dp_accounting, which returns a valid side; rounded
    down. (Its `calibrate_dp_mechanism` fails to converge where the bound on delta jumps to epsilon = 0.)

    ``epsilon`` : > 0.
    ``delta`` : in (0, 1).
    """
    epsilon, delta = _positive_delta(epsilon, delta, "a conversion to zCDP")
    from dp_accounting.pld.common import BinarySearchParameters, inverse_monotone_function

    # A start below rho but of its size (the tolerance is absolute; below one ulp the bisection never ends):
    # the classical conversion, or what the bound by the Kullback-Leibler divergence gives at epsilon = 0.
    root = math.sqrt(-math.log(delta))
    classical = (epsilon / (math.sqrt(root * root + epsilon) + root)) ** 2
    start = max(classical, -math.log1p(-delta * delta))
    search = BinarySearchParameters(0.0, math.inf, initial_guess=start, tolerance=_MARGIN * start)
    rho = inverse_monotone_function(lambda r: _tight_epsilon(r, delta), epsilon, search, increasing=True)
    # Four margins, so that zcdp_epsilon(zcdp_rho(e, d), d) <= e in spite of its own margin (tested).
    return float(rho) * (1.0 - 4.0 * _MARGIN)


# --- Gaussian differential privacy ------------------------------------------------------------------

_LEAST_MU = 1e-9  # a smaller mu is counted as this one: it costs less, and delta would be lost in rounding
_TOLERANCE = 1e-15  # of the root searches in dp_accounting; absolute


def _slack(mu: float) -> float:
    """Relative rounding allowance for delta, a difference of two tails that nearly cancel for small mu.

    Errors measured against sixty digits: 9e-11 for mu > 1e-4, 1e-8 at mu = 1e-5, 3e-6 at mu = 4e-7.
    """
    return _MARGIN + 1e-11 / max(mu, _LEAST_MU)


@lru_cache(maxsize=4096)
def gaussian_delta(mu: float, epsilon: float) -> float:
    """Smallest delta such that Gaussian noise of standard deviation D2/mu is (epsilon, delta)-DP.

    Computed by dp_accounting (Balle and Wang 2018, theorem 8), rounded up.

    ``mu`` : >= 0, sensitivity over standard deviation. Several releases mu_i compose, adaptively too, to
        sqrt(sum mu_i^2) exactly (Dong, Roth and Su 2022, corollary 3.3).
    ``epsilon`` : >= 0.
    """
    mu, epsilon = non_negative(mu, "mu"), non_negative(epsilon, "epsilon")
    if mu == 0.0:
        return 0.0
    from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss

    mu = max(mu, _LEAST_MU)
    delta = float(GaussianPrivacyLoss(1.0 / mu).get_delta_for_epsilon(epsilon))
    return min(delta * (1.0 + _slack(mu)), 1.0)


@lru_cache(maxsize=4096)
def gaussian_mu(epsilon: float, delta: float) -> float:
    """Largest mu = D2/sigma such that Gaussian noise is (epsilon, delta)-DP, by dp_accounting.

    Rounded down, so that gaussian_delta(mu, epsilon) <= delta. mu^2/2 is the zCDP cost, but the
    conversion of that cost would give a larger delta: with Gaussian noise alone, count in mu.
    (`GaussianPrivacyLoss.from_privacy_guarantee` would do too, but it stops 1e-7 from the root and takes
    14 ms instead of 2.)
    """
    epsilon, delta = _positive_delta(epsilon, delta, "Gaussian noise")
    from dp_accounting import get_sigma_gaussian

    with np.errstate(all="ignore"):  # log(0) far from the root
        rough = 1.0 / get_sigma_gaussian(epsilon, delta, tol=_TOLERANCE)
        mu = 1.0 / get_sigma_gaussian(epsilon, delta * (1.0 - 3.0 * _slack(rough)), tol=_TOLERANCE)
    return float(mu / (1.0 + 2.0 * _MARGIN + 1e-14 / mu))  # the last term: rounding, for epsilon < 1e-6


@lru_cache(maxsize=4096)
def gaussian_epsilon(mu: float, delta: float) -> float:
    """Smallest epsilon such that Gaussian noise of standard deviation D2/mu is (epsilon, delta)-DP.

    By dp_accounting, rounded up.
    """
    mu = non_negative(mu, "mu")
    _, delta = _positive_delta(1.0, delta, "Gaussian noise")
    if mu == 0.0:
        return 0.0
    from dp_accounting import get_epsilon_gaussian

    mu = max(mu, _LEAST_MU)
    with np.errstate(all="ignore"):
        epsilon = get_epsilon_gaussian(1.0 / mu, delta * (1.0 - _slack(mu)), tol=_TOLERANCE)
    return float(epsilon * (1.0 + _MARGIN))


# --- truncated Laplace ------------------------------------------------------------------------------


def truncated_laplace_half_width(scale: float, epsilon: float, delta: float) -> float:
    """Half width s of `TruncatedLaplace` noise that makes a vector of l1 sensitivity D1 (epsilon, delta)-DP.

    scale = D1/epsilon and s = scale ln(1 + (e^epsilon - 1)/(2 delta)), rounded up; dp_accounting does not
    know this noise. Source: Geng, Ding, Guo and Kumar 2020 for a number; for a vector:

    Let entry i move by D_i, sum D_i <= D1. Where both densities are positive their ratio is at most
    exp(sum D_i/scale) <= e^epsilon, since all entries share one normalising constant. Outputs that only
    one of the two inputs can produce have some noise z_i within D_i of an end of [-s, s], of mass at most
    (e^(D_i/scale) - 1) e^(-s/scale) / (2 (1 - e^(-s/scale))) each. Since e^x - 1 is superadditive, their
    sum is at most (e^epsilon - 1) / (2 (e^(s/scale) - 1)) = delta, whatever the number of entries.

    ``scale`` : D1/epsilon > 0, in the unit of the values.
    ``epsilon`` : > 0, the same epsilon as in the scale.
    ``delta`` : in (0, 1).
    """
    scale = positive(scale, "scale")
    epsilon, delta = _positive_delta(epsilon, delta, "truncated Laplace noise")
    if epsilon > 500.0:  # e^epsilon would overflow; ln(1 + y) <= ln(y) + 1/y and y is astronomically large
        width = epsilon - math.log(2.0 * delta)
    else:
        width = math.log1p(math.expm1(epsilon) / (2.0 * delta))
    return scale * width * (1.0 + _MARGIN)


# --- truncated Gaussian -----------------------------------------------------------------------------

_FOR_GAUSSIAN = (0.2, 0.4, 0.6, 0.8, 0.9, 0.95)  # shares of delta for the noise before it is truncated


@lru_cache(maxsize=4096)
def truncated_gaussian_width(epsilon: float, delta: float, count: int) -> tuple[float, float]:
    """(mu, r) such that Gaussian noise of standard deviation sigma = D2/mu on a vector, ``count`` entries of it
    conditioned on |z| <= r sigma, is (epsilon, delta)-DP; those of several shares of delta with the least r/mu.

    Let M add the noise without conditions, with mu = `gaussian_mu` (epsilon, delta_0), and let E be the event that all
    ``count`` entries of the noise lie in their windows. E speaks of the noise alone, so 1 - q = P(E) is the same for
    all data, with q <= 2 count p and p = P(N(0, 1) > r). M' is M given E. For neighbors D and D' and a set S of
    outputs, let B be the outputs that D can give under E, and B' those of D'. As P_M'(D)(S) (1 - q) is the probability
    that M(D) lies in S and B,

        P_M'(D)(S) (1 - q) <= e^epsilon P_M(D')(S and B) + delta_0
                           <= e^epsilon (P_M'(D')(S) (1 - q) + P_M(D')(B without B')) + delta_0.

    An output in B without B' has some entry within r sigma of D's number and beyond r sigma of that of D', and that is
    on the side of D's number: the entry's noise under D' passes one end of its window, and which one is fixed by D and
    D'. So P_M(D')(B without B') <= count p. Together M' is (epsilon, delta)-DP for
    ``delta = (delta_0 + e^epsilon count p) / (1 - 2 count p)``, which is solved for p.

    ``epsilon`` : > 0. ``delta`` : in (0, 1). ``count`` : >= 1.
    """
    epsilon, delta = _positive_delta(epsilon, delta, "truncated Gaussian noise")
    found = []
    for share in _FOR_GAUSSIAN:
        mu = gaussian_mu(epsilon, share * delta)
        log_p = math.log((1 - share) * delta) - math.log(count) - float(np.logaddexp(epsilon, math.log(2 * delta)))
        found.append((mu, max(-float(ndtri_exp(log_p)) * (1.0 + _MARGIN), 2.0**-10)))
    return min(found, key=lambda pair: pair[1] / pair[0])
