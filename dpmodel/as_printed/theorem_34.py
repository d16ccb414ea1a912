"""Theorem 34 of HRRU14 as printed: the yardstick for private objectives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpmodel.contract import YES, Mechanism, Options, Outcome, Progress, Serves, Verdict, no_progress
from dpmodel.forecast import Forecast, Violation
from dpmodel.privacy import Laplace, NoiseSource
from dpmodel.programs.feasibility import relaxed_program, solve_released
from dpmodel.programs.model import Program, refuse_high
from dpmodel.programs.noise_design import Measurement, NoiseDesign, NoisyPart, measurements
from dpmodel.programs.noise_once import noise_against_ignorance, objective_loss, released_parts
from dpmodel.text import number


@dataclass(frozen=True)
class Theorem34(Mechanism[Program]):
    """Laplace noise of scale ``Delta_1 sqrt(8 d ln(1/delta)) / epsilon`` on every objective coefficient.

    Source
        HRRU14, Theorem 34, with its noise as printed and its accuracy corrected.
    Privacy
        The scale is ``D_1 sqrt(8 d ln(1/delta)) / epsilon``, with d the number of private coefficients and D_1
        their 1-norm sensitivity by one record (from the footprint, rounding included). The Laplace mechanism makes
        this ``epsilon / sqrt(8 d ln(1/delta))``-DP; the square root is at least 1 for d >= 1 and
        ``delta <= e^(-1/8)``, which ``eligible`` demands, so the release is epsilon-DP and a fortiori
        (epsilon, delta)-DP. (The paper derives the weaker claim from composition over d releases, which a
        1-norm bound does not need.)
    Utility
        With probability 1 - beta every draw is below ``q = scale ln(d / beta)`` and the loss is at most ``2 q L``,
        where L bounds the 1-norm of x over the public constraints (the theorem has L = 1). The printed ``4 Delta_1
        sqrt(8 d log(d/delta)) / epsilon`` puts the tail of the Laplace distribution inside the square root, which its
        proof does not support; it is reported beside the corrected bound (noise data).
    Cost
        d noise draws, one solve.
    """

    serves: ClassVar[Serves] = Serves(Program, ("objective low",), as_printed=True, over_all=True)
    name: str = "theorem-34"
    source: str = "HRRU14, Theorem 34"

    def eligible(self, model: Program, options: Options) -> Verdict:
        if model.private_parts() != ("objective",):
            return Verdict(False, "serves problems in which only the objective is private")
        if not model.affine.is_linear():
            return Verdict(False, "the theorem is about linear programs")
        high = refuse_high(model)
        if high is not None:
            return high
        if not 0 < options.delta <= math.exp(-1 / 8):
            return Verdict(False, "the theorem's noise needs 0 < delta <= e^(-1/8)")
        return YES

    def _measured(self, model: Program) -> Measurement:
        # The paper noises the coefficients themselves.
        return measurements(model, "objective")[0]

    def _design(self, model: Program, options: Options) -> NoiseDesign:
        measured = self._measured(model)
        distribution = None
        reach = np.zeros(measured.recover.shape[0])
        if measured.l1 > 0:
            scale = measured.l1 * math.sqrt(8 * measured.count * math.log(1 / options.delta)) / options.epsilon
            distribution = Laplace(scale)
            reach = measured.gain(1) * scale * math.log(max(measured.count, 1) / options.beta)
        return NoiseDesign(
            {"objective": NoisyPart(measured, distribution, 1.0, options.beta, reach)}, options.epsilon, options.delta
        )

    def forecast(self, model: Program, options: Options) -> Forecast:
        noise = self._design(model, options)
        loss = objective_loss(model, noise)
        measured = noise.parts["objective"].measurement
        d = measured.count
        printed = 4 * measured.l1 * math.sqrt(8 * d * math.log(d / options.delta)) / options.epsilon
        bound = number(loss) if math.isfinite(loss) else "an amount without a public bound (x is not bounded)"
        return Forecast(
            statement=f"with probability {number(1 - options.beta)}, the objective is within {bound} "
            "of the true optimum and all constraints hold exactly",
            epsilon=options.epsilon,
            delta=options.delta,
            beta=options.beta,
            error=Violation(objective=loss, against_public=noise_against_ignorance(model, noise)),
            work=noise.work,
            noise={**noise.to_dict(), "printed_alpha_for_unit_norm": printed},
        )

    def run(self, model: Program, options: Options, noise: NoiseSource, progress: Progress = no_progress) -> Outcome:
        c, _, _ = released_parts(model, self._design(model, options), noise, progress)
        progress("solving the noised program", 0.5)
        return solve_released(model, options, relaxed_program(model, c, None, None, np.zeros(model.affine.rows)))


THEOREM_34 = Theorem34()
