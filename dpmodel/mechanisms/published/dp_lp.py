"""The constants of KMMST24, Algorithm 5, as published: exact rationals, and what they ask for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpmodel.text import number


@dataclass(frozen=True)
class Published:
    """``eta`` : perturbation of Lemma 7. ``roundness`` : eta / (d U), margin of the perturbed system.

    ``rescalings`` : T of Theorem 1. ``missed`` : Gamma of Theorem 1. Both with every hidden constant set to 1, so lower
    ends of what the theorem says.
    """

    eta: Fraction
    roundness: Fraction
    rescalings: float
    missed: float

    def words(self) -> str:
        return (
            f"eta = 10^{_exponent(self.eta)}, margin eta / (d U) = 10^{_exponent(self.roundness)}, "
            f"{number(self.rescalings)} rescalings per solve and, hidden constants set to 1, up to Gamma = "
            f"{number(self.missed)} rows missed"
        )


def published(variables: int, largest: int, epsilon: float, delta: float, beta: float) -> Published:
    """eta = 1 / (2 (d + 1) ((d + 1) U)^(d + 1)), rho = eta / (d U), T = d ln(1/rho) + ln(1/beta) and

    Gamma = (d^5 / epsilon) ln(d)^1.5 ln(d L / beta)^2 L^1.5 ln(d L / (beta delta)) sqrt(ln(1/delta)), L = ln(1/rho):
    Theorem 1 of KMMST24 in the paper's d. ln(d) counts as 1 below d = 3.
    """
    d, U = variables, max(largest, 1)
    eta = Fraction(1, 2 * (d + 1) * ((d + 1) * U) ** (d + 1))
    rho = eta / (d * U)
    L = log_inverse(rho)
    missed = (
        d**5
        / epsilon
        * max(math.log(d), 1.0) ** 1.5
        * math.log(d * L / beta) ** 2
        * L**1.5
        * math.log(d * L / (beta * delta))
        * math.sqrt(math.log(1 / delta))
    )
    return Published(eta, rho, d * L + math.log(1 / beta), missed)


def log_inverse(value: Fraction) -> float:
    """ln(1/value), also where value underflows doubles."""
    return math.log(value.denominator) - math.log(value.numerator)


def _exponent(value: Fraction) -> str:
    return f"{-log_inverse(value) / math.log(10):.1f}"
