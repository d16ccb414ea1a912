"""Gradient descent on Poisson samples of the rows: fewer passes over many records, accounted exactly."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from dpmodel._types import Floats, PrivateArray
from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.compile.regression.losses import Loss
from dpmodel.compile.regression.rows import WHOLE, Rows, Table
from dpmodel.mechanisms.contract import Mechanism, Outcome, Progress, Request, Serves, Verdict, counted, no_progress
from dpmodel.mechanisms.forecast import Bound, ExcessRisk, Forecast
from dpmodel.mechanisms.regression.descent.full_batch import NOISY_DESCENT
from dpmodel.mechanisms.regression.descent.full_batch import step_noise as full_step_noise
from dpmodel.mechanisms.regression.descent.metric import descent_metric
from dpmodel.mechanisms.regression.descent.plan import DescentPlan, Search, judge_descent
from dpmodel.mechanisms.regression.descent.search import clipped
from dpmodel.mechanisms.regression.descent.steps import Gradient, Settings, StepNoise, descend, part_gradient
from dpmodel.mechanisms.regression.excess import clip_note, excess_forecast
from dpmodel.mechanisms.spend import Spend
from dpmodel.numerics.public_facts import cached
from dpmodel.privacy import LEAST_DELTA, NoiseSource, PoissonCoins, poisson_coins, subsampled_multiplier

_STEPS = 64
_PASSES = (2, 8)
_LEAST_BATCH = 200  # expected records a step
# More passes are taken where they forecast an excess smaller by this factor.
_WORTH = 0.9
# Settings of steps on all records that are found predict no more than this share's inverse of what others would.
_MISSED = 0.8


@dataclass(frozen=True)
class SampledNoise(StepNoise):
    """Noise on sums over samples of rate ``rate``, divided by the rate; ``multiplier`` as in ``privacy.subsampling``.

    One record's vector ``omega_i s_i M a_i`` has norm at most ``size(reach)``, rounding included; where its coin is
    False, both databases add up the same rows in the same order.
    """

    rate: float = 1.0
    multiplier: float = 1.0

    def size(self, reach: float) -> float:
        model, norm = self.model, self.metric.row.norm(2.0)
        rounding = 8 * (model.count + 8) * 2.0**-53 * model.total * reach * self.metric.uncentred[2.0]
        return model.largest_weight * reach * norm * (1 + 1e-12) + rounding

    def scale(self, reach: float) -> float:
        """Standard deviation of the noise on each sum over the sample."""
        return self.multiplier * self.size(reach)

    @property
    def simulated_scale(self) -> float:
        """What privacy and sampling add to the sums over all rows, the latter for derivatives of half their reach."""
        model = self.model
        sampled = model.total * model.largest_weight * (1 - self.rate) / self.rate
        drawn = sampled * (self.metric.row.norm(2.0) / 2) ** 2 / model.size
        return math.hypot(self.scale(1.0) / self.rate, math.sqrt(drawn))


@dataclass(frozen=True)
class SampledPlan:
    """A plan of descent, with the sampling rate and the noise multiplier."""

    descent: DescentPlan
    rate: float
    multiplier: float


@dataclass(frozen=True)
class SubsampledDescent(Mechanism[PrivateRegression]):
    """Gradient steps on Poisson samples of the rows.

    Source
        Song, Chaudhuri and Sarwate 2013; Bassily, Smith and Thakurta 2014; Abadi et al. 2016 (without clipping of
        whole gradients: derivatives are bounded); accounting by privacy-loss distributions: Koskela et al. 2020.
    Privacy
        Every step draws every record with probability q, by coins that stay secret, and releases ``M sum omega_i s_i
        a_i`` over the drawn records with Gaussian noise of standard deviation ``multiplier`` times the largest norm of
        one record's vector at the released point, so each step is dominated by one and the same pair of mixtures, and T
        steps cost what ``subsampled_multiplier`` was solved for (replace-one: the pair of opposite records; absent
        records without constant columns: one record against none). q, T and all settings are public facts.
    Utility
        Forecast by simulation, with the variance that sampling adds for derivatives of half their reach. Sampling saves
        work, not noise: for the same time of descent full-batch steps have no more noise.
    Cost
        q T passes over the features (2 or 8), T p noisy numbers and T n coins.

    Parameters
    ----------
    steps, rate : force T and the sampling rate.
    """

    serves: ClassVar[Serves] = Serves(PrivateRegression)
    reads_blocks: ClassVar[bool] = True
    steps: int | None = None
    rate: float | None = None
    name: str = "subsampled-descent"
    source: str = "Bassily, Smith and Thakurta 2014; Abadi et al. 2016 (privacy-loss distributions)"

    def eligible(self, model: PrivateRegression, request: Request) -> Verdict:
        if request.delta < LEAST_DELTA:
            return Verdict(False, f"subsampling is accounted for delta of at least {LEAST_DELTA:g}")
        verdict = judge_descent(model, 2.0)
        if verdict.eligible and self.rate is None and model.count * _PASSES[0] < _LEAST_BATCH * (self.steps or _STEPS):
            return Verdict(False, f"samples of {model.count} rows would be too small to save work")
        return verdict

    def plan(self, model: PrivateRegression, request: Request) -> SampledPlan:
        """Settings and their prediction, from public facts."""
        return _plan(model, self, request.epsilon, request.delta)

    def at_least(self, model: PrivateRegression, request: Request) -> Iterator[Bound]:
        """Where losses are smooth and samples bring no less noise than as many steps on all records, such steps could
        take any settings that are found here: the search for theirs may miss these by a little, no more."""
        if self.steps is not None or self.rate is not None or not math.isfinite(model.loss.smoothness):
            return
        full = NOISY_DESCENT.plan(model, request)
        settings = replace(full.settings, steps=_STEPS, share=0.0)
        least = full_step_noise(model, Spend.of(request.epsilon, request.delta, gaussian_only=True), settings)
        sampled = [
            step_noise(model, settings, rate, _multiplier(model, request.epsilon, request.delta, rate, _STEPS))
            for rate in _rates(_STEPS)
        ]
        if all(each.simulated_scale >= least.simulated_scale for each in sampled):
            yield Bound(ExcessRisk(_MISSED * full.predicted))

    def forecast(self, model: PrivateRegression, request: Request) -> Forecast:
        plan = self.plan(model, request)
        settings = plan.descent.settings
        noise = step_noise(model, settings, plan.rate, plan.multiplier)
        return excess_forecast(
            model,
            request,
            predicted=plan.descent.predicted,
            work=f"{settings.steps * plan.rate:.3g} passes over the data in {settings.steps} steps, "
            f"noise on {model.size} sums in each",
            noise={
                **noise.told(settings),
                "sampling rate": plan.rate,
                "noise multiplier": plan.multiplier,
            },
            caveats=clip_note(model, settings.clip),
        )

    def run(
        self, model: PrivateRegression, request: Request, noise: NoiseSource, progress: Progress = no_progress
    ) -> Outcome:
        plan = self.plan(model, request)
        settings = plan.descent.settings
        steps = step_noise(model, settings, plan.rate, plan.multiplier)
        step = counted(f"gradient descent on samples, {settings.steps} steps", settings.steps, progress)
        gradient = sampled_gradient(steps, model.read_table(), noise)

        def told(w: Floats) -> Floats:
            step()
            return gradient(w)

        points = descend(steps.model, steps.metric, settings, told)
        return Outcome("optimal", points[settings.averaging], None, None, notes=clip_note(model, settings.clip))


def sampled_gradient(noise: SampledNoise, rows: Table, source: NoiseSource) -> Gradient:
    """w -> noisy gradient of the data part from one sample, in the metric's coordinates."""
    model, metric, loss = noise.model, noise.metric, noise.model.loss

    def gradient(w: Floats) -> Floats:
        reach = noise.reach(w)
        coins = poisson_coins(source, noise.rate)
        drawn = rows.map_reduce(partial(part_sampled, coins=coins, loss=loss, w=w, reach=reach), step=WHOLE)
        sums = PrivateArray(metric.sums(drawn))
        return model.scale / noise.rate * noise.draw(source, sums, noise.scale(reach))

    return gradient


def part_sampled(part: Rows, coins: PoissonCoins, loss: Loss, w: Floats, reach: float) -> PrivateArray:
    """(p,) ``part_gradient`` of the rows whose coins are True."""
    return part_gradient(part.part(np.flatnonzero(coins.of(part.first, part.count))), loss, w, reach)


def step_noise(model: PrivateRegression, settings: Settings, rate: float, multiplier: float) -> SampledNoise:
    """The noise of these settings; its ``spend`` is not used: the multiplier says it all."""
    seen = clipped(model, settings.clip)
    return SampledNoise(seen, descent_metric(model), Spend(1.0, 1.0), settings.steps, 0.0, rate, multiplier)


def _rates(steps: int) -> list[float]:
    return [min(passes / steps, 1.0) for passes in _PASSES]


def _multiplier(model: PrivateRegression, epsilon: float, delta: float, rate: float, steps: int) -> float:
    # Neighbours differ in two vectors; an absent record without constant columns has none.
    replaced = not model.row.absent or model.row.fixed(2.0) > 0
    return subsampled_multiplier(epsilon, delta, rate, steps, replace=replaced)


@cached
def _plan(model: PrivateRegression, requested: SubsampledDescent, epsilon: float, delta: float) -> SampledPlan:
    steps, found = requested.steps or _STEPS, NOISY_DESCENT.plan(model, Request(epsilon, delta)).settings
    best = None
    for rate in _rates(steps) if requested.rate is None else [requested.rate]:
        multiplier = _multiplier(model, epsilon, delta, rate, steps)
        noise = partial(step_noise, model, rate=rate, multiplier=multiplier)
        plan = SampledPlan(Search(model, noise, pure=False, steps=steps).near(found), rate, multiplier)
        if best is None or plan.descent.predicted < _WORTH * best.descent.predicted:
            best = plan
    assert best is not None
    return best


SUBSAMPLED_DESCENT = SubsampledDescent()
__all__ = ["SUBSAMPLED_DESCENT", "SubsampledDescent"]
