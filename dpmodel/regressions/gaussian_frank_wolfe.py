"""Private Frank-Wolfe with noise on the whole gradient, for any bounded set: TTZ15's Theorem 2.6."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from dpmodel._types import Floats, PrivateArray
from dpmodel.contract import YES, Options, Outcome, Progress, Verdict
from dpmodel.forecast import Forecast
from dpmodel.memo import cached
from dpmodel.privacy import NoiseSource, public_generator
from dpmodel.privacy.spend import Spend
from dpmodel.regressions.excess import PureToo, clip_note, excess_forecast
from dpmodel.regressions.model import PrivateRegression, public_point
from dpmodel.regressions.noisy_gradient import part_middles
from dpmodel.regressions.populations import Trials, simulated_reaches
from dpmodel.regressions.walk import (
    MOST_STEPS,
    Pick,
    Steps,
    chosen_steps,
    curvature,
    fixed_reach,
    path_of,
    plain_bound,
    predicted,
    predictions,
    reach_at,
    settings_losses,
    walk,
)

# Sets over which a linear function is least in closed form: simulation costs next to nothing there.
_CHEAP = ("l1", "l2", "linf", "box", "simplex", "product", "polyhedron")
_MEMORIES = (1.0, 0.2)
_NOISY_NUMBERS = 300_000  # drawn in one run, at most
_MIDDLE_SHARE = 0.5


@dataclass(frozen=True)
class GaussianSteps:
    """``steps``; ``memory`` : share of the new noisy gradient in the average that is followed (1: no average);
    ``middle`` : whether ``sum_i omega_i m(y_i) a_i`` is measured once, with half of the budget, and the steps measure
    the rest; ``as_printed`` : noise of the printed size where that is more. All public."""

    steps: Steps
    memory: float = 1.0
    middle: bool = False
    as_printed: bool = False


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
        steps = plan.steps
        proved = plan.memory == 1 and steps.clip >= model.derivative_bound and math.isfinite(model.loss.smoothness)
        alpha = _bound(model, options, plan) if proved else math.nan
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
                "scale": _scale(model, options, plan, min(model.derivative_bound, steps.clip)),
            },
            caveats=clip_note(model, steps.clip),
        )

    def run_as_given(
        self, model: PrivateRegression, options: Options, noise: NoiseSource, progress: Progress
    ) -> Outcome:
        plan = self._plan(model, options)
        rows, steps = model.read_table(), plan.steps
        add = noise.laplace if options.delta == 0 else noise.gaussian
        start, bound, once = public_point(model), None, np.zeros(model.size)
        path, follow = path_of(rows, start), _follow(model, plan.memory)
        if plan.middle:
            bound = model.loss.middle_bound(model.row.label_bound)
            exact = rows.map_reduce(partial(part_middles, loss=model.loss, bound=bound))
            once = _noisy(add, exact, _middle_scale(model, options))

        def toward(w: Floats) -> Floats:
            reach = _reach(model, plan, w)
            fresh = _noisy(add, path.sums(model.loss, reach, bound), _scale(model, options, plan, reach)) + once
            return follow(model.scale * fresh + model.penalty.derivative(w))

        released = walk(steps.sizes, steps.shares, start, toward, path.move, progress)
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

    def maker(settings: Sequence[Steps], trials: Trials, first: int) -> Pick:
        plans = [GaussianSteps(steps, memory, bool(mechanism.middle)) for steps in settings]
        return _simulated_pick(model, options, plans, trials, first)

    steps = chosen_steps(model, maker, fixed, min(MOST_STEPS, max(_NOISY_NUMBERS // model.size, 16)))
    plans = [GaussianSteps(steps, memory, bool(mechanism.middle))]
    if mechanism.memory is None:
        plans += [GaussianSteps(steps, other, bool(mechanism.middle)) for other in _MEMORIES[:-1]]
    if mechanism.middle is None and mechanism.clip is None and model.loss.middle_bound(model.row.label_bound) > 0:
        whole = Steps(steps.count, steps.rate, steps.average)
        plans += [GaussianSteps(whole, plan.memory, True) for plan in tuple(plans)]
    if len(plans) == 1:
        return plans[0]

    def of_plans(_: Sequence[Steps], trials: Trials, first: int) -> Pick:
        return _simulated_pick(model, options, plans, trials, first)

    losses = settings_losses(model, [plan.steps for plan in plans], of_plans, together=True)
    return plans[int(np.argmin(losses))]


@cached
def _predicted(model: PrivateRegression, plan: GaussianSteps, epsilon: float, delta: float) -> float:
    options = Options(epsilon, delta)
    return predicted(model, plan.steps, lambda _, *rest: _simulated_pick(model, options, [plan], *rest))


def _follow(model: PrivateRegression, memory: float) -> Callable[[Floats], Floats]:
    """A noisy gradient -> the point of the set where the average of it and those before is least."""
    followed: Floats | None = None

    def follow(fresh: Floats) -> Floats:
        nonlocal followed
        followed = fresh if followed is None else (1 - memory) * followed + memory * fresh
        return model.domain.minimise(followed)

    return follow


# ----------------------------------------------------------------------------------------------------- scales of noise
def _reach(model: PrivateRegression, plan: GaussianSteps, w: Floats) -> float:
    """Largest size of what a step sums at the released point w."""
    fixed = _fixed_reach(model, plan)
    return _reach_at(model, plan, float(predictions(model, w[None])[0])) if fixed is None else fixed


def _fixed_reach(model: PrivateRegression, plan: GaussianSteps) -> float | None:
    """That size where it is the same for all w."""
    return None if plan.middle else fixed_reach(model, plan.steps.clip)


def _reach_at(model: PrivateRegression, plan: GaussianSteps, prediction: float) -> float:
    """The same where predictions are at most that large."""
    if not plan.middle:
        return reach_at(model, prediction, plan.steps.clip)
    return model.loss.rest_bound(prediction, model.row.label_bound)


def _spend(options: Options) -> Spend:
    return Spend.of(options.epsilon, options.delta, gaussian_only=True)


def _scale(model: PrivateRegression, options: Options, plan: GaussianSteps, reach: float) -> float:
    """Standard deviation (delta = 0: scale) of the noise of one step on the sum over records; 0 where it cannot
    change."""
    spend = _spend(options).part(1 - _MIDDLE_SHARE if plan.middle else 1.0)
    count = plan.steps.count
    if spend.rho is None:
        return spend.laplace_scale(model.gradient_sensitivity(1.0, reach), count)
    exact = spend.gaussian_sigma(model.gradient_sensitivity(2.0, reach), count)
    if not plan.as_printed:
        return exact
    size = model.largest_weight * model.derivative_bound * model.row.norm(2.0)
    return max(exact, size * math.sqrt(32 * count) * math.log(model.count / options.delta) / options.epsilon)


def _middle_scale(model: PrivateRegression, options: Options) -> float:
    spend, bound = _spend(options).part(_MIDDLE_SHARE), model.loss.middle_bound(model.row.label_bound)
    if spend.rho is None:
        return spend.laplace_scale(model.gradient_sensitivity(1.0, bound))
    return spend.gaussian_sigma(model.gradient_sensitivity(2.0, bound))


def _noisy(add: Callable[[PrivateArray, float], Floats], values: PrivateArray, scale: float) -> Floats:
    # 0: the sums are 0 for all rows, or too small for the scale to be a number.
    return add(values, scale) if scale > 0 else np.zeros_like(values)


def _printed_count(model: PrivateRegression, options: Options) -> int:
    width = min(
        model.domain.norm(2.0) * math.sqrt(model.size), model.domain.norm(1.0) * math.sqrt(2 * math.log(2 * model.size))
    )
    move = model.scale * model.largest_weight * model.derivative_bound * model.row.norm(2.0) * width
    best = (curvature(model) * options.epsilon / move) ** (2 / 3) if move > 0 else 1.0
    return min(max(round(best), 1), 4 * MOST_STEPS)


# ----------------------------------------------------------------------------------------------------- forecasts
def _simulated_pick(
    model: PrivateRegression, options: Options, plans: Sequence[GaussianSteps], trials: Trials, first: int
) -> Pick:
    """Steps on synthetic gradients."""
    generators = [public_generator(first + run) for run in range(trials.runs)]
    memory = trials.each([plan.memory for plan in plans])
    followed: Floats | None = None

    kinds = [(g.laplace if options.delta == 0 else g.standard_normal) for g in generators]

    def draw() -> Floats:
        """(rows, p) noise of scale 1; the same for all settings and populations."""
        return trials.spread(np.stack([kind(size=model.size) for kind in kinds]))

    middle = trials.each([_middle_scale(model, options) if plan.middle else 0.0 for plan in plans])
    fixed: Floats | float = middle * draw() if middle.any() else 0.0
    # Scales are linear in the reach, but for the printed noise, which does not depend on it.
    bound = model.derivative_bound
    unit = trials.each([_scale(model, options, plan, bound if plan.as_printed else 1.0) for plan in plans])
    reaches = simulated_reaches(
        [1.0 if plan.as_printed else _fixed_reach(model, plan) for plan in plans],
        [partial(_reach_at, model, plan) for plan in plans],
        model.row.label_bound,
        partial(predictions, model),
    )

    def pick(gradients: Floats, w: Floats) -> Floats:
        nonlocal followed
        noise = fixed + unit * reaches(w) * draw()
        fresh = gradients + model.scale * noise + model.penalty.derivative(w)
        followed = fresh if followed is None else (1 - memory) * followed + memory * fresh
        return model.domain.minimised(followed)

    return pick


def _bound(model: PrivateRegression, options: Options, plan: GaussianSteps) -> float:
    """The proved excess (see the class)."""
    steps = plan.steps
    failure = options.beta / (2 * (steps.count + 1))
    prediction = model.prediction_bound
    reach = model.loss.rest_bound(prediction, model.row.label_bound) if plan.middle else model.derivative_bound
    total = _scale(model, options, plan, reach) + (_middle_scale(model, options) if plan.middle else 0.0)
    p, log = model.size, math.log(1 / failure)
    if options.delta == 0:
        width = model.domain.diameter(1.0) * (math.log(p) + log)
    else:
        width = min(
            model.domain.diameter(1.0) * math.sqrt(2 * (math.log(2 * p) + log)),
            model.domain.diameter(2.0) * (math.sqrt(p) + math.sqrt(2 * log)),
        )
    return plain_bound(model, steps) + float(steps.pulls.sum()) * model.scale * total * width


GAUSSIAN_FRANK_WOLFE = GaussianFrankWolfe()
__all__ = ["GAUSSIAN_FRANK_WOLFE", "GaussianFrankWolfe", "GaussianSteps"]
