"""Full-batch projected gradient descent with Gaussian (pure budgets: Laplace) noise on every gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.mechanisms.contract import Outcome, Progress, Request, Verdict, counted
from dpmodel.mechanisms.forecast import Forecast
from dpmodel.mechanisms.regression.descent.metric import descent_metric
from dpmodel.mechanisms.regression.descent.plan import DescentPlan, Search, judge_descent
from dpmodel.mechanisms.regression.descent.search import clipped
from dpmodel.mechanisms.regression.descent.steps import Averaging, Settings, StepNoise, descend, private_gradient
from dpmodel.mechanisms.regression.descent.theorem import averaged_excess
from dpmodel.mechanisms.regression.excess import clip_note, excess_forecast
from dpmodel.mechanisms.regression.pure_too import PureToo
from dpmodel.mechanisms.spend import Spend
from dpmodel.numerics.public_facts import cached
from dpmodel.privacy import NoiseSource


@dataclass(frozen=True)
class NoisyDescent(PureToo):
    """Minimise the empirical risk by gradient steps on noisy sums of derivatives.

    Source
        Bassily, Smith and Thakurta 2014, section 2 (full-batch steps: Song, Chaudhuri and Sarwate 2013); AMU20 for
        losses without smoothness; exact Gaussian composition: Dong, Roth and Su 2022, corollary 3.3.
    Privacy
        Private rows enter only through ``M sum_i omega_i s_i a_i`` (M public: ``Metric``). Each step noises these p
        sums, scaled to how far one record moves them at the released point, so that every step costs the same mu
        (``StepNoise``): T steps and the one measurement of the middles compose to the mu of (epsilon, delta) (Balle
        and Wang 2018). delta = 0: Laplace noise scaled to the 1-norm, epsilon / T a step. With middles, derivative =
        m(y) + rest (``Loss.middle``): ``M sum_i omega_i m(y_i) a_i`` is released once with a share of the budget, and
        steps release sums of the rest, which reaches half as far. T, step, momentum, share, averaging and clip are
        functions of public facts (``Search``); penalty, projection and averaging act on released numbers.
    Utility
        Forecast: mean excess risk on simulated populations, with this noise and these settings. Where the set is
        bounded and plain averaging was asked for (momentum=False, averaging="all", no l1 or other penalty),
        ``averaged_excess`` proves a bound that holds with probability 1 - beta.
    Cost
        T passes over the features and T p noisy numbers, T <= 128, fewer for p > 1,200; a projection a step.

    Parameters
    ----------
    steps, momentum, averaging, middle : force T, forbid momentum, force what is averaged, forbid the middles.
    """

    steps: int | None = None
    momentum: bool = True
    averaging: Averaging | None = None
    middle: bool = True
    reads_blocks: ClassVar[bool] = True
    name: str = "noisy-descent"
    source: str = "Bassily, Smith and Thakurta 2014; Dong, Roth and Su 2022 (exact Gaussian composition)"

    def eligible(self, model: PrivateRegression, request: Request) -> Verdict:
        return judge_descent(model, 1.0 if request.delta == 0 else 2.0)

    def plan(self, model: PrivateRegression, request: Request) -> DescentPlan:
        """Settings and their prediction, from public facts."""
        return _plan(model, self, request.epsilon, request.delta)

    def forecast_as_requested(self, model: PrivateRegression, request: Request) -> Forecast:
        plan = self.plan(model, request)
        settings, noise = plan.settings, step_noise(model, _spend(request.epsilon, request.delta), plan.settings)
        return excess_forecast(
            model,
            request,
            predicted=plan.predicted,
            at_most=averaged_excess(noise, settings, request.beta),
            work=f"{settings.steps} passes over the data, noise on {model.size} sums in each",
            noise={
                **noise.told(settings),
                "share of the middles": settings.share,
                "scale of the middles": noise.middle_scale,
                "coordinates": "centred" if noise.metric.exchange is not None else "scaled columns",
            },
            caveats=clip_note(model, settings.clip),
        )

    def run_as_requested(
        self, model: PrivateRegression, request: Request, noise: NoiseSource, progress: Progress
    ) -> Outcome:
        settings = self.plan(model, request).settings
        steps = step_noise(model, _spend(request.epsilon, request.delta), settings)
        gradient = private_gradient(steps, model.read_table(), noise)
        step = counted(f"gradient descent, {settings.steps} steps", settings.steps, progress)

        def told(w: np.ndarray) -> np.ndarray:
            step()
            return gradient(w)

        points = descend(steps.model, steps.metric, settings, told)
        return Outcome("optimal", points[settings.averaging], None, None, notes=clip_note(model, settings.clip))


def step_noise(model: PrivateRegression, spend: Spend, settings: Settings) -> StepNoise:
    """The noise of these settings."""
    seen = clipped(model, settings.clip)
    return StepNoise(seen, descent_metric(model), spend, settings.steps, settings.share)


def _spend(epsilon: float, delta: float) -> Spend:
    return Spend.of(epsilon, delta, gaussian_only=True)


@cached
def _plan(model: PrivateRegression, requested: NoisyDescent, epsilon: float, delta: float) -> DescentPlan:
    spend = _spend(epsilon, delta)
    return Search(
        model,
        lambda settings: step_noise(model, spend, settings),
        pure=delta == 0,
        steps=requested.steps,
        momentum=requested.momentum,
        averaging=requested.averaging,
        middle=requested.middle,
    ).best()


NOISY_DESCENT = NoisyDescent()
__all__ = ["NOISY_DESCENT", "NoisyDescent"]
