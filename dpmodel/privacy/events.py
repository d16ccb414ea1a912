"""Privacy events: what one charge of a budget loses, and how many of them a budget holds.

A charge may be chosen after all earlier answers were seen: its law, its size, and whether there is one. A *filter* has
a limit that is fixed before the first charge, adds up one currency of the charges, and refuses the charge that would
pass the limit. A budget goes on while one of its filters holds. Claim: where the deltas of its filters, those that a
filter keeps for its conversion and those that it lets charges have, add up to at most delta, all charges together are
(epsilon, delta)-DP.

**Either of several filters.** Let P and Q be the laws of the transcript on two neighbors, ``d_f`` the deltas of filter
f, T a set of transcripts, and ``E_f`` the transcripts whose charges keep to f, and to no filter before f in the list.
Sums only grow, so a transcript in ``E_f`` kept to f at every time: there the run is the run that f alone would have
stopped. That one is ``(epsilon, d_f)``-DP (below), so ``P(T and E_f) <= e^epsilon Q(T and E_f) + d_f``. The ``E_f`` are
disjoint: add. Which filter holds at the end may depend on the answers; without its own ``d_f`` the sum would not stand.

**Charges with a delta.** A pair of laws whose trade-off function lies above that of another pair is made of it by
randomisation (Blackwell; Dong, Roth and Su 2022, theorem 2.10). So an (epsilon_i, delta_i)-DP step is made of
randomised response of epsilon_i which, with probability delta_i, tells the record instead (Kairouz, Oh and Viswanath
2015), and a mu-GDP step of N(0, 1) against N(mu, 1). The history fixes delta_i, so that no step tells has probability
``w = prod (1 - delta_i)`` given the transcript, and that one does has at most the largest ``sum delta_i``. Let P' and
Q' be the run in which none tells. If it is (epsilon, d)-DP, then, as w is in [0, 1] and the same under both,

    ``P(T) <= P(one tells) + integral of w over T in P' <= sum delta_i + e^epsilon Q(T) + d``.

**Each filter**, for steps that do not tell.

- *Sums*: the ratio of densities is at most ``exp(sum epsilon_i) <= e^epsilon`` on each transcript; d = 0.
- *zCDP* (as Feldman and Zrnic 2021): given the history, ``E_Q' [(p_i / q_i)^a] <= exp(a (a - 1) rho_i)`` for each
  a > 1, so the mean of ``prod (p_i / q_i)^a exp(-a (a - 1) rho_i)`` is at most 1; with ``sum rho_i <= rho`` on each
  transcript the run is rho-zCDP, and (epsilon, d)-DP by ``conversions.zcdp_rho``.
- *Gaussian DP* (as Smith and Thakurta 2022): let steps be N(0, 1) against N(m_i, 1), m_i <= mu_i fixed by the history,
  and let one more have ``m^2 = mu^2 - sum m_i^2``. Then ``E exp(t M - t^2 mu^2 / 2) = 1`` for ``M = sum m_i Z_i`` and
  every t, so M is N(0, mu^2), and the privacy loss ``M + mu^2 / 2`` is exactly that of N(0, 1) against N(mu, 1). The
  run is what is left of it without the last step: (epsilon, d)-DP by ``conversions.gaussian_mu``.

The composition of privacy loss distributions is no filter: charges chosen by the answers can pass what it gives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from dpmodel.errors import SpecificationError
from dpmodel.privacy._checks import fraction, non_negative
from dpmodel.privacy.conversions import (
    PrivacyLoss,
    gaussian_epsilon,
    gaussian_mu,
    laplace_rho,
    pure_mu,
    pure_rho,
    zcdp_epsilon,
    zcdp_rho,
)
from dpmodel.text import number, plain_fields

Law = Literal["Gaussian", "Laplace", "exponential", "pure", "zCDP", "black box", "composed"]
LAWS: dict[str, str] = {
    "Gaussian": "Gaussian noise",
    "Laplace": "Laplace noise",
    "exponential": "exponential mechanisms",
    "pure": "pure",
    "zCDP": "zCDP",
    "black box": "counted by epsilon and delta alone",
    "composed": "several laws composed",
}
Composition = Literal["auto", "sums", "gaussian"]
COMPOSITIONS: tuple[Composition, ...] = ("auto", "sums", "gaussian")

# Ten charges of 0.1 add up to 1.0000000000000002 in some orders. A relative 1e-12 forgives that; it is the most by
# which a limit can be exceeded.
SLACK = 1e-12


@dataclass(frozen=True, slots=True)
class Cost:
    """What one release loses, in every currency that applies to it; inf where one does not.

    Use the constructors: each knows which currencies follow from its argument. Costs add up (``+``).

    Parameters
    ----------
    epsilon, delta : the release is (epsilon, delta)-DP.
    rho : and rho-zCDP, with probability 1 - ``leak``; left out, nothing is claimed (inf).
    mu : and mu-GDP, with probability 1 - ``leak``; likewise.
    leak : what may be told outright beside rho and mu (delta of a black box, 0 for Gaussian noise).
    law : by which a release of another size is charged.
    """

    epsilon: float = math.inf
    delta: float = 0.0
    rho: float = math.inf
    mu: float = math.inf
    leak: float = 0.0
    law: Law = "black box"

    def __post_init__(self) -> None:
        if min(self.epsilon, self.rho, self.mu) == math.inf:
            raise SpecificationError(
                "a Cost without epsilon, rho and mu",
                why="a release that costs nothing in any currency is not covered by any theorem",
                remedy="use Cost.pure, Cost.approximate, Cost.zcdp or Cost.gaussian",
            )
        for name in ("epsilon", "delta", "rho", "mu", "leak"):
            if getattr(self, name) != math.inf:
                object.__setattr__(self, name, non_negative(getattr(self, name), name))

    @classmethod
    def pure(cls, epsilon: float) -> Cost:
        """Any epsilon-DP release, noise on a lattice whose steps count among them: ``pure_rho`` and ``pure_mu``."""
        return cls(epsilon, rho=pure_rho(epsilon), mu=pure_mu(epsilon), law="pure")

    @classmethod
    def approximate(cls, epsilon: float, delta: float) -> Cost:
        """A black box: any (epsilon, delta)-DP release. Pure where delta is 0."""
        delta = fraction(delta, "delta", zero=True)
        return cls.pure(epsilon) if delta == 0 else replace(cls.pure(epsilon), delta=delta, leak=delta, law="black box")

    @classmethod
    def zcdp(cls, rho: float) -> Cost:
        """A rho-zCDP release: discrete Gaussian noise of scale D2 / sqrt(2 rho), or several laws together."""
        return cls(rho=non_negative(rho, "rho"), law="zCDP")

    @classmethod
    def gaussian(cls, mu: float) -> Cost:
        """Gaussian noise of standard deviation D2 / mu, drawn as a real number."""
        mu = non_negative(mu, "mu")
        return cls(rho=0.5 * mu * mu, mu=mu, law="Gaussian")

    @classmethod
    def laplace(cls, epsilon: float) -> Cost:
        """Laplace noise of scale D1 / epsilon on every entry of a vector, drawn as a real number. Noise of the same
        scale on integers that move by 1 loses more: `pure`."""
        return replace(cls.pure(epsilon), rho=laplace_rho(epsilon), law="Laplace")

    @classmethod
    def exponential(cls, epsilon: float) -> Cost:
        """The exponential mechanism with scale R / epsilon: rho = epsilon^2 / 8 (Cesar and Rogers 2021)."""
        pure = cls.pure(epsilon)
        return replace(pure, rho=min(epsilon * epsilon / 8.0, pure.rho), law="exponential")

    @classmethod
    def all_gaussian(cls, epsilon: float, delta: float) -> Cost:
        """What releases Gaussian noise alone, calibrated to ``gaussian_mu(epsilon, delta)``; pure for delta = 0."""
        return cls.gaussian(gaussian_mu(epsilon, delta)).within(epsilon, delta) if delta else cls.pure(epsilon)

    @classmethod
    def all_zcdp(cls, epsilon: float, delta: float) -> Cost:
        """Releases that share ``zcdp_rho(epsilon, delta)``; pure for delta = 0."""
        return cls.zcdp(zcdp_rho(epsilon, delta)).within(epsilon, delta) if delta else cls.pure(epsilon)

    def within(self, epsilon: float, delta: float) -> Cost:
        """The same release, which is (epsilon, delta)-DP as a whole."""
        return replace(self, epsilon=epsilon, delta=delta)

    def __add__(self, other: Cost) -> Cost:
        """Both, whichever is first, the second chosen by the first's answers or not."""
        return Cost(
            self.epsilon + other.epsilon,
            self.delta + other.delta,
            self.rho + other.rho,
            math.hypot(self.mu, other.mu),
            self.leak + other.leak,
            self.law if self.law == other.law == "Gaussian" else "composed",
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data; "inf" for inf."""
        return plain_fields(self)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Cost:
        """What `to_dict` wrote."""
        numbers: Any = {name: value if name == "law" else float(value) for name, value in plain.items()}
        return cls(**numbers)


@dataclass(frozen=True)
class Filter:
    """``rule`` : "sums", "zCDP" or "Gaussian DP". ``limit`` : of the sum of epsilon, rho or mu^2. ``deltas`` : of the
    sum of the charges' own deltas under this rule. ``reserved`` : delta of the conversion."""

    rule: Literal["sums", "zCDP", "Gaussian DP"]
    limit: float
    deltas: float
    reserved: float = 0.0

    def of(self, cost: Cost) -> tuple[float, float]:
        """What a charge takes of ``limit`` and ``deltas``."""
        if self.rule == "sums":
            return cost.epsilon, cost.delta
        return (cost.rho if self.rule == "zCDP" else cost.mu * cost.mu), cost.leak

    def used(self, costs: Sequence[Cost]) -> tuple[float, float]:
        """By all charges; each sum is rounded once."""
        taken = [self.of(cost) for cost in costs]
        amounts = [amount for amount, _ in taken]
        return (math.inf if math.inf in amounts else math.fsum(amounts)), math.fsum(delta for _, delta in taken)

    def left(self, costs: Sequence[Cost]) -> tuple[float, float]:
        """Of ``limit`` and ``deltas``; below 0 where the filter has refused. A residue of rounding is nothing."""
        return tuple(  # type: ignore[return-value]
            0.0 if abs(limit - used) <= limit * SLACK else limit - used
            for limit, used in zip((self.limit, self.deltas), self.used(costs), strict=True)
        )

    def holds(self, costs: Sequence[Cost]) -> bool:
        """Whether all of these charges are within the limits."""
        amount, deltas = self.used(costs)
        return amount <= self.limit * (1 + SLACK) and deltas <= self.deltas * (1 + SLACK)

    def words(self) -> str:
        """The rule, and its share of delta, for messages."""
        delta = self.deltas + self.reserved
        return f"{self.rule} (delta {number(delta)})" if delta else self.rule

    def more(self, costs: Sequence[Cost], like: Cost) -> float:
        """How many charges like this one still fit, not rounded down; inf for one that costs nothing."""
        fit = math.inf
        for left, each in zip(self.left(costs), self.of(like), strict=True):
            if each > 0:
                fit = min(fit, left / each) if each < math.inf else 0.0
            elif left < 0:
                fit = 0.0
        return max(fit * (1 + 1e-9), 0.0)

    def loss(self, costs: Sequence[Cost]) -> PrivacyLoss:
        """What the charges would lose together by this rule, had they been fixed beforehand."""
        amount, deltas = self.used(costs)
        if self.rule == "sums":
            return PrivacyLoss(amount, deltas)
        if not amount < math.inf:
            return PrivacyLoss(math.inf, deltas + self.reserved)
        convert = zcdp_epsilon if self.rule == "zCDP" else gaussian_epsilon
        return PrivacyLoss(convert(amount if self.rule == "zCDP" else math.sqrt(amount), self.reserved),
                           deltas + self.reserved)  # fmt: skip

    def one_more(self, costs: Sequence[Cost], like: Cost, most: float) -> float:
        """The largest epsilon, ``most`` or less, of one more charge of this law and delta; 0 for none. Of several laws
        composed about: of all laws the amounts are nearly squares of epsilon."""
        (amount, deltas), (taken, leak) = self.left(costs), self.of(like)
        if amount <= 0 or leak > deltas * (1 + SLACK) or taken == math.inf:
            return 0.0
        if self.rule == "sums":
            return min(amount, most)
        if like.law == "Gaussian":
            epsilon = gaussian_epsilon(math.sqrt(amount if self.rule == "Gaussian DP" else 2 * amount), like.delta)
        elif like.law == "zCDP":
            epsilon = zcdp_epsilon(amount, like.delta)
        elif like.law == "composed":
            epsilon = like.epsilon * math.sqrt(amount / taken) if taken > 0 else math.inf
        else:
            made = {"Laplace": Cost.laplace, "exponential": Cost.exponential}.get(like.law, Cost.pure)
            epsilon, high = 0.0, most
            for _ in range(60):
                middle = 0.5 * (epsilon + high)
                epsilon, high = (middle, high) if self.of(made(middle))[0] <= amount else (epsilon, middle)
        return min(epsilon * (1 - 1e-8), most)


@lru_cache(maxsize=256)
def filters(total: PrivacyLoss, composition: Composition, first: Cost | None) -> tuple[Filter, ...]:
    """The filters of a budget: fixed by its total and its first charge, which no answer can have moved.

    "sums" has all of delta for the deltas of charges. "gaussian" has all of it for the conversion of Gaussian DP (no
    charge may have a leak), and sums of pure charges, which need none. "auto" is one of three, by the first charge:
    sums, or half of delta for sums and half for Gaussian DP, or half for sums, a quarter for zCDP and a quarter for
    leaks beside it: the one that holds the most charges like it, and sums where no other holds twice as many.
    """
    epsilon, delta = total
    sums = (Filter("sums", epsilon, delta),)
    if delta < 1e-190 or composition == "sums":
        return sums
    if composition == "gaussian":
        return Filter("sums", epsilon, 0.0), Filter("Gaussian DP", gaussian_mu(epsilon, delta) ** 2, 0.0, delta)
    if first is None:
        return sums
    half = Filter("sums", epsilon, delta / 2)
    choices = [
        (half, Filter("Gaussian DP", gaussian_mu(epsilon, delta / 2) ** 2, 0.0, delta / 2)),
        (half, Filter("zCDP", zcdp_rho(epsilon, delta / 4), delta / 4, delta / 4)),
    ]
    best = max(choices, key=lambda each: how_many(each, (), first))
    return best if how_many(best, (), first) >= 2 * how_many(sums, (), first) else sums


def how_many(kept: Sequence[Filter], costs: Sequence[Cost], like: Cost) -> float:
    """How many more charges like this one some filter holds; inf for one that costs nothing."""
    most = max(each.more(costs, like) for each in kept)
    return most if math.isinf(most) else float(math.floor(most))
