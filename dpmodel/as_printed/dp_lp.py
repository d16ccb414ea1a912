"""KMMST24's Algorithm 5 as printed: what its constants take, and why nothing is run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from dpmodel.contract import Mechanism, Options, Progress, Serves, Verdict, no_progress
from dpmodel.errors import UnsupportedModelError
from dpmodel.exact.dp_lp import DP_LP
from dpmodel.exact.model import Found, PrivateInequalities
from dpmodel.forecast import Forecast, RowsMissed
from dpmodel.privacy import NoiseSource
from dpmodel.text import number


@dataclass(frozen=True)
class Printed:
    """The printed constants: perturbation and margin as exact rationals.

    ``eta`` : perturbation of Lemma 7. ``roundness`` : eta / (d U), margin of the perturbed system. ``rescalings`` and
    ``missed`` : T and Gamma of Theorem 1 with every hidden constant set to 1.
    """

    eta: Fraction
    roundness: Fraction
    rescalings: float
    missed: float


def printed(variables: int, largest: int, epsilon: float, delta: float, beta: float) -> Printed:
    """The constants of Lemma 7 and Theorem 1 in the paper's d; ln(d) counts as 1 below d = 3. With L = ln(1/rho):

    eta = 1 / (2 (d + 1) ((d + 1) U)^(d + 1)), rho = eta / (d U), T = d L + ln(1/beta),
    Gamma = (d^5 / epsilon) ln(d)^1.5 ln(d L / beta)^2 L^1.5 ln(d L / (beta delta)) sqrt(ln(1/delta)).
    """
    d, U = variables, max(largest, 1)
    eta = Fraction(1, 2 * (d + 1) * ((d + 1) * U) ** (d + 1))
    rho = eta / (d * U)
    L = log_inverse(rho)
    logs = math.log(d * L / beta) ** 2 * math.log(d * L / (beta * delta)) * math.sqrt(math.log(1 / delta))
    missed = d**5 / epsilon * max(math.log(d), 1.0) ** 1.5 * L**1.5 * logs
    return Printed(eta, rho, d * L + math.log(1 / beta), missed)


def log_inverse(value: Fraction) -> float:
    """ln(1/value), also of values below the range of doubles."""
    return math.log(value.denominator) - math.log(value.numerator)


@dataclass(frozen=True)
class DPLinearProgramAsPrinted(Mechanism[PrivateInequalities]):
    """DP-LP with the printed perturbation and margin: a yardstick that is never run.

    Source
        KMMST24, Algorithm 5 with Lemma 7 and Theorem 1 (``printed``).
    Privacy
        Nothing private is read: the constants rule out every run, and the verdict says by how much.
    Utility
        ``Printed.missed`` rows, hidden constants set to 1.
    Cost
        ``Printed.rescalings`` of the system in each solve.
    """

    serves: ClassVar[Serves] = Serves(PrivateInequalities, as_printed=True)
    name: str = "dp-lp-as-printed"
    source: str = "KMMST24, Algorithm 5"

    def eligible(self, model: PrivateInequalities, options: Options) -> Verdict:
        verdict = DP_LP.eligible(model, options)
        if not verdict.eligible:
            return verdict
        facts = self.facts(model, options)
        eta, margin = (f"10^{-log_inverse(each) / math.log(10):.1f}" for each in (facts.eta, facts.roundness))
        return Verdict(
            False,
            f"the printed constants cannot be run: eta = {eta}, margin eta / (d U) = {margin}, "
            f"{number(facts.rescalings)} rescalings per solve and, hidden constants set to 1, up to Gamma = "
            f"{number(facts.missed)} rows missed of {model.expected}",
        )

    @staticmethod
    def facts(model: PrivateInequalities, options: Options) -> Printed:
        return printed(model.variables, model.largest or 1, options.epsilon, options.delta, options.beta)

    def forecast(self, model: PrivateInequalities, options: Options) -> Forecast:
        facts = self.facts(model, options)
        return model.forecast(
            options,
            f"all but {number(facts.missed)} rows hold, hidden constants set to 1",
            RowsMissed(missed=facts.missed, needed=facts.missed),
            proved=False,
            noise={"eta": str(facts.eta), "roundness": str(facts.roundness), "rescalings": facts.rescalings},
        )

    def run(
        self, model: PrivateInequalities, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Found:
        raise UnsupportedModelError(
            "the printed constants cannot be run",
            why=self.eligible(model, options).reason,
            remedy="dp-lp, with practical constants",
        )


DP_LP_AS_PRINTED = DPLinearProgramAsPrinted()
