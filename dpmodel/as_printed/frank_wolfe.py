"""Private Frank-Wolfe over listed vertices as printed: TTZ15, Algorithm 2, with constants that keep its promise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from dpmodel.contract import Options, Serves, Verdict
from dpmodel.privacy.accounting import valid_step
from dpmodel.regressions.frank_wolfe import FrankWolfe
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.walk import Steps, curvature


@dataclass(frozen=True)
class FrankWolfeAsPrinted(FrankWolfe):
    """TTZ15's Algorithm 2 with its own number of steps, step sizes and composition, for study and as a yardstick.

    Source
        Talwar, Thakurta and Zhang 2015, Algorithm 2, Theorems 2.4 and 2.5.
        Corrected: (1) the noise printed, Laplace of scale ``L_1 ||C||_1 sqrt(8 T ln(1/delta)) / n``, lacks epsilon in
        its denominator. (2) With it, the noise is that of a sensitivity L_1 ||C||_1 / n and of one noisy
        number, but replacing a record moves a score by up to twice that, and the least of noisy scores costs another
        factor of 2: as printed it spends about 4 epsilon. Here the choice has the scale ``R sqrt(8 T ln(1/delta)) /
        epsilon`` with R the exact range (4 L_1 ||C||_1 / n for replace-one on a symmetric set). (3) L_1 is a bound on
        the derivatives times the largest entry of a row, 2 (C + max |y|) for ``(x'w - y)^2``; the curvature is that of
        ``walk.curvature``.
    Privacy
        T choices by the exponential mechanism (the paper names it beside its noisy minimum), each epsilon'-DP with
        ``epsilon' = epsilon / sqrt(8 T ln(1/delta))``; should that be too large for (epsilon, delta) under the exact
        composition of T pure steps, the largest valid value is taken. Scores and ranges: ``FrankWolfe``.
    Utility
        ``excess_bound`` of the last iterate with sizes 2 / (t + 2), with probability 1 - beta (proved), for T =
        ``(Gamma epsilon / (scale L_1 ||C||_1))^(2/3)``; at least 1 step.
    Cost
        T steps as in ``FrankWolfe``; at most 100,000.
    """

    serves: ClassVar[Serves] = Serves(PrivateRegression, as_printed=True)
    name: str = "frank-wolfe-as-printed"
    source: str = "TTZ15, Algorithm 2 and Theorem 2.5; constants corrected"
    rate: float | None = field(default=None, init=False)
    average: float = field(default=0.0, init=False)
    clip: float | None = field(default=None, init=False)

    def eligible(self, model: PrivateRegression, options: Options) -> Verdict:
        if options.delta == 0:
            return Verdict(False, "its composition of steps needs delta > 0")
        if not math.isfinite(model.loss.smoothness):
            return Verdict(False, "the derivative of the loss jumps: its curvature constant is infinite")
        return super().eligible(model, options)

    def settings(self, model: PrivateRegression, options: Options) -> Steps:
        count = self.steps
        if count is None:
            move = model.scale * model.largest_weight * model.derivative_bound * model.row.norm(math.inf)
            move *= model.domain.norm(1.0)
            best = (curvature(model) * options.epsilon / move) ** (2 / 3) if move > 0 else 1.0
            count = min(max(round(best), 1), 100_000)
        return Steps(count, average=0.0)

    def selection_epsilon(self, options: Options, steps: int) -> float:
        printed = options.epsilon / math.sqrt(8 * steps * math.log(1 / options.delta))
        return valid_step(printed, steps, options.epsilon, options.delta)


FRANK_WOLFE_AS_PRINTED = FrankWolfeAsPrinted()
__all__ = ["FRANK_WOLFE_AS_PRINTED", "FrankWolfeAsPrinted"]
