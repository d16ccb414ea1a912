"""Private Frank-Wolfe with noise on the whole gradient, for any bounded set: TTZ15's Theorem 2.6."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from dpmodel._types import Floats
from dpmodel.contract import YES, Options, Outcome, Progress, Serves, Verdict
from dpmodel.forecast import Forecast
from dpmodel.memo import cached
from dpmodel.privacy import NoiseSource
from dpmodel.privacy.accounting import Spend
from dpmodel.regressions.excess import PureToo, clip_note, excess_forecast
from dpmodel.regressions.model import PrivateRegression, public_point
from dpmodel.regressions.noisy_gradient import Averaging, Gradient, StepNoise, plain_metric, private_gradient
from dpmodel.regressions.populations import Populations, Trials
from dpmodel.regressions.search import NOISY_NUMBERS, clipped, simulated
from dpmodel.regressions.walk import (
    MOST_STEPS,
    Steps,
    chosen_steps,
    curvature,
    plain_bound,
    predicted,
    settings_losses,
    trial_walks,
    walk,
)

# Sets over which a linear function is least in closed form: simulation costs next to nothing there.
_CHEAP = ("l1", "l2", "linf", "box", "simplex", "product", "polyhedron")
_MEMORIES = (1.0, 0.2)


@dataclass(frozen=True)
class GaussianSteps:
    """``steps``; ``memory`` : share of the new noisy gradient in the average that is followed (1: no average);
    ``middle`` : whether ``sum_i omega_i m(y_i) a_i`` is measured once, with half of the budget, and the steps measure
    the rest; ``as_printed`` : noise of the printed size where that is more. All public."""

    steps: Steps
    memory: float = 1.0
    middle: bool = False
    as_printed: bool = False

    def noise(self, model: PrivateRegression, options: Options) -> StepNoise:
        spend, share = (
            Spend.of(options.epsilon, options.delta, gaussian_only=True),
            0.5 if self.middle else 0.0,
        )
        given = clipped(model, self.steps.clip), plain_metric(model), spend, self.steps.count, share
        return PrintedNoise(*given, options.delta) if self.as_printed else StepNoise(*given)


@dataclass(frozen=True)
class PrintedNoise(StepNoise):
    """Of the printed standard deviation, the same in every step, where that is more than (epsilon, delta) takes."""

    delta: float

    @cached_property
    def fixed_bound(self) -> float | None:
        return self.model.derivative_bound

    def scale(self, clip: float) -> float:
        model = self.model
        size = model.largest_weight * model.derivative_bound * model.row.norm(2.0)
        printed = size * math.sqrt(32 * self.steps) * math.log(model.count / self.delta) / self.spend.epsilon
        return max(super().scale(clip), printed)

    @property
    def simulated_scale(self) -> float:
        bound = self.model.derivative_bound
        return self.scale(bound) / bound if bound > 0 else 0.0


@dataclass(frozen=True)
class GaussianFrankWolfe(PureToo):
    """Walk towards the point of the set where a noisy gradient is least.

    Source
        TTZ15, Theorem 2.6 (stated there; the algorithm is in its full version). ``as_printed=True``: ``T = (Gamma
        epsilon / (scale L_2 G_C))^(2/3)`` with the Gaussian width G_C bounded by the set's norms, sizes 2 / (t + 2),
        the last iterate, and noise of standard deviation ``scale L_2 sqrt(32 T) ln(n / delta) / epsilon``, as the full
        version is recalled to have it; should that be too little for (epsilon, delta), the exact standard deviation is
        taken. Default: exact Gaussian accounting, settings by simulation.
    Privacy
        Step t releases ``sum_i omega_i s_i a_i`` at the released point w with noise; derivatives ``|s_i| <= r_t``
        depend on record i and on released numbers. One record moves the sum by at most ``RowBounds.change(r_t, 2)`` in
        the 2-norm, with an allowance for rounding. Gaussian noise of standard deviation change sqrt(T) / mu costs mu /
        sqrt(T) of Gaussian privacy whatever was released before, T of them mu, which is (epsilon, delta)-DP by the
        exact distribution (Balle and Wang 2018). With ``middle`` (no clip): derivative = m(y_i) + rest, ``|rest| <=
        rest_bound`` (``Loss.middle``); ``sum_i omega_i m(y_i) a_i`` is measured once with mu^2 / 2 and the T sums of
        the rest with mu^2 / 2 together. With delta = 0: Laplace noise and the 1-norm, epsilon split evenly. The rest is
        a function of released numbers; the penalty is public.
    Utility
        ``predicted``: mean excess on the synthetic data. For ``memory`` 1 and derivatives not clipped below their
        bound, with probability 1 - beta (proved): with noise vectors b_t, v_t misses the least <v, gradient> by at most
        <b_t, v_t - v*>, at most ``min(diameter_1 ||b_t||_inf, diameter_2 ||b_t||_2)``; for standard deviation s,
        ||b||_inf <= s sqrt(2 ln(2 p / g)) and ||b||_2 <= s (sqrt(p) + sqrt(2 ln(1 / g))) but for probability g each, g
        = beta / (2 (T + 1)); these misses enter the recursion of ``excess_bound`` with the weights ``pulls``.
    Cost
        Per step two products with X, p draws of noise, one linear problem over the set. For sets without a closed form
        the settings are those of the printed theorem and the prediction is the proved bound.

    ``steps``, ``rate``, ``average``, ``clip``, ``memory``, ``middle`` : None lets the simulation choose.
    """

    serves: ClassVar[Serves] = Serves(PrivateRegression, reads_blocks=True, weights=True)
    name: str = "gaussian-frank-wolfe"
    source: str = "TTZ15, Theorem 2.6"
    steps: int | None = None
    rate: float | None = None
    average: float = 0.5
    clip: float | None = None
    memory: float | None = None
    middle: bool | None = None
    as_printed: bool = False

    def eligible(self, model: PrivateRegression, options: Options) -> Verdict:
        if not model.domain.bounded:
            return Verdict(False, "the set of coefficients is not bounded")
        if not model.penalty.smooth:
            return Verdict(False, "the penalty is not quadratic: its gradient does not exist everywhere")
        if not math.isfinite(model.row.norm(2.0)):
            return Verdict(False, "nothing bounds the norm of a row: declare bounds on the features")
        if not math.isfinite(min(model.derivative_bound, math.inf if self.clip is None else self.clip)):
            return Verdict(False, "nothing bounds the derivatives of the loss: declare bounds on the labels, or a clip")
        if self.as_printed and options.delta == 0:
            return Verdict(False, "its Gaussian noise needs delta > 0")
        if (self.as_printed or model.domain.kind not in _CHEAP) and not math.isfinite(model.loss.smoothness):
            return Verdict(False, "the derivative of the loss jumps: its curvature constant is infinite")
        return YES

    def forecast_as_given(self, model: PrivateRegression, options: Options) -> Forecast:
        plan = self._plan(model, options)
        steps, noise = plan.steps, plan.noise(model, options)
        proved = plan.memory == 1 and steps.clip >= model.derivative_bound and math.isfinite(model.loss.smoothness)
        alpha = _bound(noise, steps, options.beta) if proved else math.nan
        if model.domain.kind in _CHEAP:
            mean = _predicted(model, plan, options.epsilon, options.delta)
        else:
            mean = alpha
        return excess_forecast(
            model,
            options,
            predicted=mean,
            at_most=alpha if proved else None,
            work=f"{steps.count} steps of one pass over the rows",
            noise={
                **steps.to_dict(),
                "memory": plan.memory,
                "middle": plan.middle,
                "scale": noise.scale(noise.bound_at(model.prediction_bound)),
            },
            caveats=clip_note(model, steps.clip),
            event=self.event(options),
        )

    def run_as_given(
        self, model: PrivateRegression, options: Options, noise: NoiseSource, progress: Progress
    ) -> Outcome:
        plan, penalty = self._plan(model, options), model.penalty
        steps, follow = plan.steps, _follow(model.domain.minimise, plan.memory)
        gradient = private_gradient(plan.noise(model, options), model.read_table(), noise)

        def toward(w: Floats) -> Floats:
            return follow(gradient(w) + penalty.derivative(w))

        released = walk(steps.sizes, steps.shares, public_point(model), toward, progress)
        return Outcome("optimal", released, None, None, notes=clip_note(model, steps.clip))

    def _plan(self, model: PrivateRegression, options: Options) -> GaussianSteps:
        return _chosen(model, self, options.epsilon, options.delta)


@cached
def _chosen(model: PrivateRegression, mechanism: GaussianFrankWolfe, epsilon: float, delta: float) -> GaussianSteps:
    options = Options(epsilon, delta)
    if mechanism.as_printed or model.domain.kind not in _CHEAP:
        count = mechanism.steps or _printed_count(model, options)
        average = 0.0 if mechanism.as_printed else mechanism.average
        clip = math.inf if mechanism.as_printed or mechanism.clip is None else mechanism.clip
        return GaussianSteps(Steps(count, mechanism.rate or 0.0, average, clip), as_printed=mechanism.as_printed)
    memory = _MEMORIES[-1] if mechanism.memory is None else mechanism.memory
    given = {"steps": mechanism.steps, "rate": mechanism.rate, "average": mechanism.average, "clip": mechanism.clip}
    fixed = {key: float(value) for key, value in given.items() if value is not None}
    if mechanism.middle:
        fixed["clip"] = math.inf

    def excess(settings: Sequence[Steps], among: Populations, seeds: Sequence[int]) -> Floats:
        plans = [GaussianSteps(steps, memory, bool(mechanism.middle)) for steps in settings]
        return _simulated(model, options, plans, among, seeds)

    steps = chosen_steps(model, excess, fixed, min(MOST_STEPS, max(2 * NOISY_NUMBERS // model.size, 16)))
    plans = [GaussianSteps(steps, memory, bool(mechanism.middle))]
    if mechanism.memory is None:
        plans += [GaussianSteps(steps, other, bool(mechanism.middle)) for other in _MEMORIES[:-1]]
    if mechanism.middle is None and mechanism.clip is None and model.loss.middle_bound(model.row.label_bound) > 0:
        whole = Steps(steps.count, steps.rate, steps.average)
        plans += [GaussianSteps(whole, plan.memory, True) for plan in tuple(plans)]
    if len(plans) == 1:
        return plans[0]

    def of_plans(_: Sequence[Steps], among: Populations, seeds: Sequence[int]) -> Floats:
        return _simulated(model, options, plans, among, seeds)

    return plans[int(np.argmin(settings_losses(model, [plan.steps for plan in plans], of_plans)))]


@cached
def _predicted(model: PrivateRegression, plan: GaussianSteps, epsilon: float, delta: float) -> float:
    options = Options(epsilon, delta)
    return predicted(model, plan.steps, lambda _, *rest: _simulated(model, options, [plan], *rest))


def _simulated(
    model: PrivateRegression,
    options: Options,
    plans: Sequence[GaussianSteps],
    among: Populations,
    seeds: Sequence[int],
) -> Floats:
    """(plans, populations) mean excess risk on synthetic gradients."""

    def run(trials: Trials, gradient: Gradient) -> dict[Averaging, Floats]:
        follow = _follow(model.domain.minimised, trials.each([plan.memory for plan in plans]))
        settings = [plan.steps for plan in plans]
        return {"last": trial_walks(settings, trials, lambda w: follow(gradient(w) + model.penalty.derivative(w)))}

    return simulated([plan.noise(model, options) for plan in plans], among, seeds, run)["last"]


def _follow(minimise: Callable[[Floats], Floats], memory: float | Floats) -> Callable[[Floats], Floats]:
    """A noisy gradient -> the point of the set where the average of it and those before is least."""
    followed: Floats | None = None

    def follow(fresh: Floats) -> Floats:
        nonlocal followed
        followed = fresh if followed is None else (1 - memory) * followed + memory * fresh
        return minimise(followed)

    return follow


def _printed_count(model: PrivateRegression, options: Options) -> int:
    width = min(
        model.domain.norm(2.0) * math.sqrt(model.size), model.domain.norm(1.0) * math.sqrt(2 * math.log(2 * model.size))
    )
    move = model.scale * model.largest_weight * model.derivative_bound * model.row.norm(2.0) * width
    best = (curvature(model) * options.epsilon / move) ** (2 / 3) if move > 0 else 1.0
    return min(max(round(best), 1), 4 * MOST_STEPS)


def _bound(noise: StepNoise, steps: Steps, beta: float) -> float:
    """The proved excess (see the class)."""
    model, failure = noise.model, beta / (2 * (steps.count + 1))
    prediction, label = model.prediction_bound, model.row.label_bound
    bound = model.loss.rest_bound(prediction, label) if noise.share > 0 else model.derivative_bound
    total = noise.scale(bound) + noise.middle_scale
    p, log = model.size, math.log(1 / failure)
    if noise.order == 1:
        width = model.domain.diameter(1.0) * (math.log(p) + log)
    else:
        width = min(
            model.domain.diameter(1.0) * math.sqrt(2 * (math.log(2 * p) + log)),
            model.domain.diameter(2.0) * (math.sqrt(p) + math.sqrt(2 * log)),
        )
    return plain_bound(model, steps) + float(steps.pulls.sum()) * model.scale * total * width


GAUSSIAN_FRANK_WOLFE = GaussianFrankWolfe()
__all__ = ["GAUSSIAN_FRANK_WOLFE", "GaussianFrankWolfe", "GaussianSteps"]
