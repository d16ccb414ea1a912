"""Full-batch projected gradient descent with Gaussian (pure budgets: Laplace) noise on every gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.mechanisms.contract import YES, Outcome, Progress, Request, Verdict
from dpmodel.mechanisms.forecast import Forecast
from dpmodel.mechanisms.regression.descent.metric import descent_metric
from dpmodel.mechanisms.regression.descent.plan import DescentPlan, plan_descent
from dpmodel.mechanisms.regression.descent.search import clipped
from dpmodel.mechanisms.regression.descent.steps import Averaging, StepNoise, descend, private_gradient
from dpmodel.mechanisms.regression.descent.theorem import averaged_excess
from dpmodel.mechanisms.regression.excess import clip_note, excess_forecast
from dpmodel.mechanisms.regression.public_point import public_point
from dpmodel.mechanisms.regression.pure_too import PureToo
from dpmodel.mechanisms.spend import Spend
from dpmodel.privacy import NoiseSource


@dataclass(frozen=True)
class NoisyDescent(PureToo):
    """Minimise the empirical risk by gradient steps on noisy sums of slopes.

    Source
        Bassily, Smith and Thakurta 2014, section 2 (full-batch steps: Song, Chaudhuri and Sarwate 2013); AMU20 for
        losses without smoothness; exact Gaussian composition: Dong, Roth and Su 2022, corollary 3.3.
    Privacy
        Private rows enter only through ``M sum_i omega_i s_i a_i`` (M public: ``Metric``). Each step noises these p
        sums, scaled to how far one record moves them at the released point, so that every step costs the same mu
        (``StepNoise``): T steps and the one measurement of the middles compose to the mu of (epsilon, delta) (Balle
        and Wang 2018). delta = 0: Laplace noise scaled to the 1-norm, epsilon / T a step. With middles, slope =
        m(y) + rest (``Loss.middle``): ``M sum_i omega_i m(y_i) a_i`` is released once with a share of the budget, and
        steps release sums of the rest, which reaches half as far. T, step, momentum, share, averaging and clip are
        functions of public facts (``plan_descent``); penalty, projection and averaging act on released numbers.
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
    name: str = "noisy-descent"
    source: str = "Bassily, Smith and Thakurta 2014; Dong, Roth and Su 2022 (exact Gaussian composition)"

    def eligible(self, model: PrivateRegression, request: Request) -> Verdict:
        order = 1.0 if request.delta == 0 else 2.0
        if not math.isfinite(model.row.norm(order)):
            return Verdict(False, f"rows have no bound on their {order:g}-norm, so no noise hides one of them")
        start = model.row.reach(public_point(model)) + model.offset_bound
        if not math.isfinite(model.loss.slope_bound(start, model.row.label_bound)):
            return Verdict(False, "slopes have no bound: labels need one, or slopes a clip")
        return YES

    def plan(self, model: PrivateRegression, request: Request) -> DescentPlan:
        """Settings and their prediction, from public facts."""
        return plan_descent(
            model, request.epsilon, request.delta, (self.steps, self.momentum, self.averaging, self.middle)
        )

    def forecast_as_asked(self, model: PrivateRegression, request: Request) -> Forecast:
        plan, noise = self._noise(model, request)
        settings = plan.settings
        reach = noise.reach(public_point(model))
        return excess_forecast(
            model,
            request,
            predicted=plan.predicted,
            at_most=averaged_excess(noise, settings, request.beta),
            work=f"{settings.steps} passes over the data, noise on {model.size} sums each",
            noise={
                "kind": "laplace" if noise.order == 1 else "gaussian",
                "steps": settings.steps,
                "step": settings.step,
                "momentum": settings.momentum,
                "released": settings.averaging,
                "share of the middles": settings.share,
                "slopes clipped to": settings.clip,
                "scale of each sum in the first step": noise.scale(reach),
                "scale of the middles": noise.middle_scale,
                "coordinates": "centred" if noise.metric.exchange is not None else "scaled columns",
            },
            caveats=clip_note(model, settings.clip),
        )

    def run_as_asked(
        self, model: PrivateRegression, request: Request, noise: NoiseSource, progress: Progress
    ) -> Outcome:
        plan, steps = self._noise(model, request)
        gradient = private_gradient(steps, model.read_rows(), noise)
        count, done = plan.settings.steps, 0

        def told(w: np.ndarray) -> np.ndarray:
            nonlocal done
            if done % max(count // 20, 1) == 0:
                progress(f"gradient descent, {count} steps", done / count)
            done += 1
            return gradient(w)

        points = descend(steps.model, steps.metric, plan.settings, told)
        return Outcome(
            "optimal", points[plan.settings.averaging], None, None, notes=clip_note(model, plan.settings.clip)
        )

    def _noise(self, model: PrivateRegression, request: Request) -> tuple[DescentPlan, StepNoise]:
        plan = self.plan(model, request)
        spend = Spend.of(request.epsilon, request.delta, gaussian_only=True)
        settings = plan.settings
        seen = clipped(model, settings.clip)
        return plan, StepNoise(seen, descent_metric(model), spend, settings.steps, settings.share)


NOISY_DESCENT = NoisyDescent()
__all__ = ["NOISY_DESCENT", "NoisyDescent"]
