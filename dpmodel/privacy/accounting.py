"""Accounting inside one release: what each of its steps may cost, so that all together keep to (epsilon, delta).

Conversions between currencies (`zcdp_rho`, `gaussian_mu`, ...) live in `conversions`, what several releases cost in
`events`. The number of steps and their parameters are fixed by public facts before the first; the mechanisms and
queries themselves may be chosen adaptively.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import betainc, expit

from dpmodel.errors import SpecificationError
from dpmodel.privacy._checks import count_of, non_negative, positive
from dpmodel.privacy.conversions import gaussian_mu, laplace_rho, validate_privacy, zcdp_rho
from dpmodel.privacy.noise import NoiseSource

StepKind = Literal["laplace", "exponential", "gaussian"]

BASIC = "basic composition"
OPTIMAL = "optimal composition of pure steps (Kairouz, Oh and Viswanath 2015)"
ZCDP = "zCDP (Bun and Steinke 2016; Canonne, Kamath and Steinke 2020)"
GAUSSIAN = "exact Gaussian (Balle and Wang 2018; Dong, Roth and Su 2022)"


@dataclass(frozen=True, slots=True)
class PerStep:
    """Largest parameter that one of ``steps`` releases may have: epsilon, or mu for kind "gaussian"."""

    value: float
    rule: str
    kind: StepKind
    steps: int


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


@lru_cache(maxsize=4096)
def pure_composition_delta(step_epsilon: float, steps: int, epsilon: float) -> float:
    """Smallest delta such that any ``steps`` adaptive step_epsilon-DP releases are (epsilon, delta)-DP.

    Source: Kairouz, Oh and Viswanath 2015, theorem 3.3, written with binomial tails: randomised response
    is the worst mechanism, and its privacy loss after k steps is (2X - k) step_epsilon with X binomial.
    delta = P[X >= m] - e^epsilon P'[X >= m], where X has success probability e^s/(1 + e^s) under P and
    1/(1 + e^s) under P', and m is the first count whose loss exceeds epsilon. Rounded up.

    The library has the same mechanism (dp_accounting's PLD `from_privacy_parameters` with the step as its
    grid) but composes it by a Fourier transform, whose rounding is not on the safe side: at epsilon = 1 and
    delta = 1e-12 its delta is 4 % too small for 1e4 steps and negative for 1e5 (its epsilon 2 % too small),
    and for 1e6 steps it takes 90 ms and its epsilon is 24 times too large. This decided for the formula
    (0.1 ms at most; never below the truth, and never below 1e-14, where the tails are rounding). The tests
    hold the two together where the library is accurate.
    """
    step, steps = non_negative(step_epsilon, "step_epsilon"), count_of(steps, "steps")
    epsilon = non_negative(epsilon, "epsilon")
    if epsilon >= steps * step:
        return 0.0
    first = min(max(math.floor(0.5 * (epsilon / step + steps)) + 1, 1), steps)
    likely = float(betainc(first, steps - first + 1, expit(step)))
    unlikely = float(betainc(first, steps - first + 1, expit(-step))) if epsilon < 700.0 else 0.0
    # betainc is good to about 1e-12; the difference loses digits, so each side takes the safe end.
    delta = likely * (1.0 + 1e-9) - (math.exp(min(epsilon, 700.0)) * unlikely) * (1.0 - 1e-9)
    # Below this the tails themselves are rounding (or underflow to 0), so nothing smaller is claimed.
    return min(max(delta, 1e-14), 1.0)


@lru_cache(maxsize=1024)
def per_step(epsilon: float, delta: float, steps: int, kind: StepKind = "laplace") -> PerStep:
    """Largest parameter for each of ``steps`` releases of one kind within (epsilon, delta), by the best rule.

    ``epsilon, delta`` : the total; delta = 0 leaves basic composition only.
    ``steps`` : number of releases >= 1, fixed beforehand.
    ``kind`` : "laplace" or "exponential" (value is the epsilon of one step), or "gaussian" (value is mu =
        D2/sigma of one step; needs delta > 0).
    """
    epsilon, delta = validate_privacy(epsilon, delta)
    steps = count_of(steps, "steps")
    if kind not in ("laplace", "exponential", "gaussian"):
        raise SpecificationError(
            f"unknown kind of step {kind!r}",
            why="the cost of a step depends on its mechanism",
            remedy="pass kind='laplace', 'exponential' or 'gaussian'",
        )
    if kind == "gaussian":
        return PerStep(gaussian_mu(epsilon, delta) / math.sqrt(steps) * (1.0 - 1e-15), GAUSSIAN, kind, steps)
    candidates = [(epsilon / steps, BASIC)]
    if delta > 0.0:
        rho = zcdp_rho(epsilon, delta) / steps
        candidates.append((_invert_rho(rho, kind), ZCDP))
        high = 2.0 * epsilon / steps
        while pure_composition_delta(high, steps, epsilon) <= delta:
            high *= 2.0
        best = _largest(lambda s: pure_composition_delta(s, steps, epsilon) <= delta, epsilon / steps, high)
        candidates.append((best * (1.0 - 4e-9), OPTIMAL))  # so that composing the steps gives <= epsilon
    value, rule = max(candidates, key=lambda candidate: candidate[0])
    return PerStep(value, rule, kind, steps)


def _invert_rho(rho: float, kind: str) -> float:
    """Epsilon of one step that costs ``rho``."""
    positive(rho, "rho")
    if kind == "exponential":
        return max(math.sqrt(8.0 * rho), rho)
    return _largest(lambda e: laplace_rho(e) <= rho, 0.0, math.sqrt(8.0 * rho) + 2.0 * rho + 2.0)


# ---- Poisson subsampling: coins for every record, and what Gaussian noise on sums over the sampled records costs
#
# A step draws every record with probability ``rate`` and releases the sum of the drawn records' vectors, each of norm
# at most 1, with N(0, multiplier^2 I) noise; ``steps`` of them are composed, adaptively, and the samples stay secret.
#
# Privacy. Fix the other records' coins (divergences of mixtures are at most the mixture of divergences); what remains
# is ``(1 - q) N(0) + q N(x)`` against ``(1 - q) N(0) + q N(x')``, where x and x' are the record and its replacement, of
# norm at most 1, or x' = 0 if a record is absent. For the absent record the mixture in one dimension with |x| = 1 and
# its mirror dominate (Zhu, Dong and Wang 2022). For replace-one so does the pair x = 1, x' = -1 in one dimension: let
# an event E have probability a under N(0). Then by Neyman and Pearson ``N(x)(E) <= Phi(Phi^-1(a) + 1/s)`` and
# ``N(x')(E) >= Phi(Phi^-1(a) - 1/s)``, s the multiplier, so for every k >= 0
#
# P(E) - k Q(E) <= (1 - q)(1 - k) a + q [Phi(Phi^-1(a) + 1/s) - k Phi(Phi^-1(a) - 1/s)],
#
# and half lines attain equality in both bounds at once for the pair of 1 and -1: its hockey-stick divergence is the
# largest for every k. Dominating pairs compose (Zhu, Dong and Wang 2022, theorem 10). dp_accounting has both pairs
# (its REPLACE_ONE is that of 1 and -1: the multiplier is noise over the norm of *one* record's vector, not over the
# change of the sum). Its discretisation rounds against us; ``_MARGIN`` and ``_ROUNDING`` are left for its Fourier
# transforms.


LEAST_DELTA = 1e-10  # below, rounding of the transforms could matter
_MARGIN, _ROUNDING = 1e-3, 1e-12
_GRID = 1e-3  # of privacy losses, for epsilon about 1
_LEAST_RATE = 2.0**-16
_LEAST_MULTIPLIER = 0.4
_STRETCH = 1 << 14  # coins that are drawn together


@dataclass(frozen=True)
class PoissonCoins:
    """A coin for every number, each True with probability ``rate`` (rounded down to a multiple of 2^-32).

    Coin i has 32 bits of the output of SHAKE-256 on ``key``, 32 secret bytes, and the number of its stretch of coins.
    To who does not know the key they are as independent as bits of the operating system's generator, which rest on a
    stream cipher in the same way. So whoever holds rows i .. j draws the coins of these rows, again if need be, and
    nobody has a list of all. Key and coins are as secret as the rows: they must not be released.
    """

    key: bytes
    rate: float

    def of(self, first: int, count: int) -> npt.NDArray[np.bool_]:
        """(count,) coins of the numbers from ``first`` on."""
        if self.rate == 1.0:
            return np.ones(count, dtype=bool)
        stretches = range(first // _STRETCH, -(-(first + count) // _STRETCH))
        drawn = (hashlib.shake_256(self.key + at.to_bytes(8, "little")).digest(4 * _STRETCH) for at in stretches)
        bits = np.frombuffer(b"".join(drawn), dtype="<u4")
        skipped = first - stretches.start * _STRETCH
        return np.asarray(bits[skipped : skipped + count] < np.uint32(math.floor(self.rate * 2.0**32)))


def poisson_coins(source: NoiseSource, rate: float) -> PoissonCoins:
    """New coins. The key comes from the operating system for private sources; from others' own noise, so that a seed
    repeats it."""
    if source.is_private:
        return PoissonCoins(secrets.token_bytes(32), _rate(rate))
    return PoissonCoins(source.laplace(np.zeros(4), 1.0).tobytes(), _rate(rate))


def poisson_sample(source: NoiseSource, count: int, rate: float) -> npt.NDArray[np.bool_]:
    """(count,) new ``poisson_coins``."""
    return poisson_coins(source, rate).of(0, count_of(count, "count", least=0))


def subsampled_epsilon(multiplier: float, rate: float, steps: int, delta: float, *, replace: bool) -> float:
    """Upper bound on epsilon of ``steps`` subsampled releases with this noise multiplier (inf where none is found).

    ``multiplier`` : standard deviation of the noise over the largest norm of one record's vector; ``replace`` : one
    record is replaced by another, otherwise it is absent (then its vector is 0).
    """
    multiplier, steps = positive(multiplier, "multiplier"), count_of(steps, "steps")
    return _epsilon(multiplier, _rate(rate), steps, _delta(delta), replace, 1.0)


@lru_cache(maxsize=256)
def subsampled_multiplier(epsilon: float, delta: float, rate: float, steps: int, *, replace: bool) -> float:
    """Least noise multiplier (to 1 %, rounded up) with which ``steps`` subsampled releases are (epsilon, delta)-DP.
    Errors: SpecificationError, for delta below ``LEAST_DELTA``."""
    epsilon, delta = validate_privacy(epsilon, delta).epsilon, _delta(delta)
    rate, steps = _rate(rate), count_of(steps, "steps")

    def holds(multiplier: float) -> bool:
        return _epsilon(multiplier, rate, steps, delta, replace, epsilon) <= epsilon

    # Many small steps behave like one Gaussian release of rate sqrt(steps) times the change.
    sensitivity = 2.0 if replace else 1.0
    guess = sensitivity * rate * math.sqrt(steps) / gaussian_mu(epsilon, delta)
    high = max(guess, 2 * _LEAST_MULTIPLIER)
    while not holds(high):
        high *= 1.5
    low = high / 1.5
    while low > _LEAST_MULTIPLIER and holds(low):
        low, high = low / 1.5, low
    low = max(low, _LEAST_MULTIPLIER)
    if holds(low):
        return low
    while high > low * 1.01:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _epsilon(multiplier: float, rate: float, steps: int, delta: float, replace: bool, about: float) -> float:
    from dp_accounting.pld import privacy_loss_distribution as pld  # slow to import
    from dp_accounting.privacy_accountant import NeighboringRelation

    relation = NeighboringRelation.REPLACE_ONE if replace else NeighboringRelation.ADD_OR_REMOVE_ONE
    one = pld.from_gaussian_mechanism(
        multiplier,
        sampling_prob=rate,
        value_discretization_interval=_GRID * min(max(about, 0.02), 1.0),
        neighboring_relation=relation,
    )
    return float(one.self_compose(steps).get_epsilon_for_delta(delta * (1 - _MARGIN) - _ROUNDING))


def _rate(rate: object) -> float:
    value = positive(rate, "rate")
    if not _LEAST_RATE <= value <= 1:
        raise SpecificationError(
            f"a sampling rate of {value:g}",
            why="it is the probability with which a record is drawn, and coins have 32 bits",
            remedy="pass a rate between 2^-16 and 1",
        )
    return value


def _delta(delta: float) -> float:
    value = validate_privacy(1.0, delta).delta
    if value < LEAST_DELTA:
        raise SpecificationError(
            f"delta {value:g} with subsampling",
            why=f"its numerical accounting is exact to about {_ROUNDING:g} only",
            remedy=f"pass delta of at least {LEAST_DELTA:g}, or a mechanism without subsampling",
        )
    return value


# ------------------------------ The budget of one solve and how steps share it: noise scales for composed releases


@dataclass(frozen=True)
class Spend:
    """A pure budget (``rho`` is None) or a zCDP budget ``rho``; parts of it add up.

    Pure releases of ``epsilon_t`` add up to ``epsilon``; zCDP costs add up to ``rho``, which is (epsilon, delta)-DP by
    ``zcdp_rho``. With Gaussian releases only, ``rho = mu^2 / 2`` for the exact Gaussian ``mu``: costs
    ``D_2^2 / (2 sigma^2)`` that add up to it compose to mu-GDP, which is (epsilon, delta)-DP (Balle and Wang 2018).
    """

    epsilon: float
    rho: float | None

    @staticmethod
    def of(epsilon: float, delta: float, *, gaussian_only: bool = False) -> Spend:
        """The whole budget. ``gaussian_only``: every release will be Gaussian noise."""
        if delta == 0:
            return Spend(epsilon, None)
        return Spend(epsilon, gaussian_mu(epsilon, delta) ** 2 / 2 if gaussian_only else zcdp_rho(epsilon, delta))

    def part(self, share: float) -> Spend:
        """A share in (0, 1] of this budget."""
        return Spend(self.epsilon * share, None if self.rho is None else self.rho * share)

    def selection_epsilon(self, steps: int = 1) -> float:
        """Epsilon of each of ``steps`` exponential mechanisms (rho = epsilon^2 / 8 each)."""
        return self.epsilon / steps if self.rho is None else math.sqrt(8 * self.rho / steps)

    def gaussian_sigma(self, sensitivity_l2: float, steps: int = 1) -> float:
        """Standard deviation of the noise in each of ``steps`` Gaussian releases of 2-norm sensitivity
        ``sensitivity_l2``."""
        assert self.rho is not None  # callers choose Laplace noise for pure budgets
        return sensitivity_l2 * math.sqrt(steps / (2 * self.rho))

    def laplace_scale(self, sensitivity_l1: float, steps: int = 1) -> float:
        """Scale of the noise in each of ``steps`` Laplace releases of 1-norm sensitivity ``sensitivity_l1``.

        Under zCDP a Laplace release of epsilon_t costs at most ``epsilon_t^2 / 2``.
        """
        each = self.epsilon / steps if self.rho is None else math.sqrt(2 * self.rho / steps)
        return sensitivity_l1 / each


def valid_step(printed: float, releases: int, epsilon: float, delta: float) -> float:
    """Epsilon of each of many pure releases: the printed one if all are (epsilon, delta)-DP together, else a smaller.

    Releases may be Laplace noise, exponential mechanisms or both. The smaller of the two values of ``per_step`` is
    valid for every mixture. Up to what composition of any pure steps allows, that covers them. Beyond it both values
    come from zCDP, and releases of either kind cost at most rho / releases.
    """
    if pure_composition_delta(printed, releases, epsilon) <= delta:
        return printed
    noise, choice = per_step(epsilon, delta, releases, "laplace"), per_step(epsilon, delta, releases, "exponential")
    return min(printed, noise.value, choice.value)
