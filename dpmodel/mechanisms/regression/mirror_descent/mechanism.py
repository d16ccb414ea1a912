"""Noisy mirror descent over l1 balls and simplices, with the entropic and p-norm maps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpmodel._types import Floats
from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.mechanisms.contract import Outcome, Progress, Request, Verdict, counted
from dpmodel.mechanisms.forecast import Forecast
from dpmodel.mechanisms.regression.descent.metric import plain_metric
from dpmodel.mechanisms.regression.descent.plan import DescentPlan, judge_descent
from dpmodel.mechanisms.regression.descent.search import (
    Trial,
    choosing_risks,
    clipped,
    clips,
    extreme_risks,
    simulated,
)
from dpmodel.mechanisms.regression.descent.steps import (
    AVERAGINGS,
    Averaging,
    Gradient,
    Settings,
    StepNoise,
    averages,
    private_gradient,
)
from dpmodel.mechanisms.regression.excess import clip_note, excess_forecast
from dpmodel.mechanisms.regression.mirror_descent.maps import MirrorMap, mirror_maps
from dpmodel.mechanisms.regression.populations import Populations
from dpmodel.mechanisms.regression.pure_too import PureToo
from dpmodel.mechanisms.regression.synthetic import populations_of, side_by_side
from dpmodel.mechanisms.spend import Spend
from dpmodel.numerics.public_facts import cached
from dpmodel.privacy import NoiseSource

_STEPS, _PURE_STEPS = 64, 8
_NOISY_NUMBERS = 150_000
_FACTORS = (1 / 16, 1.0, 16.0)  # steps that are tried first, times the one that the theorem has without noise
_MOVES = 4  # by factors of 4
_SIDE_BY_SIDE = 4
_HOPELESS = 0.97  # of the excess of knowing nothing: then no details are searched
_FEW_COLUMNS = 64  # up to which noise is drawn twice
_MANY_COLUMNS = 1000  # beyond so many the entropic map alone is simulated, whose points cost the least


@dataclass(frozen=True)
class MirrorPlan(DescentPlan):
    """Settings (``momentum`` 0, ``step`` the weight of gradients), what simulation predicts, and the map's name."""

    map: str


@dataclass(frozen=True)
class MirrorDescent(PureToo):
    """Minimise the empirical risk over an l1 ball or a simplex by lazy mirror descent on noisy gradients.

    Source
        Nemirovski and Yudin 1983; lazy form (dual averaging): Nesterov 2009; private: Talwar, Thakurta and Zhang 2014,
        and TTZ15, section 1; AMU20 for losses without smoothness.
    Privacy
        As ``NoisyDescent``, in the user's coordinates: each step releases ``sum_i omega_i s_i a_i`` with Gaussian noise
        scaled to how far one record moves it in the 2-norm (Laplace and 1-norm for delta = 0) at the released point
        (``StepNoise``), T steps with a public T in exact Gaussian composition. Maps and averages act on released sums.
    Utility
        ``w_t = argmin <h sum_{s<t} e_s, w> + psi(w)``, e_s the noisy gradients. Theorem: with Gaussian noise of
        standard deviation s a step on the objective's gradient (whose dual norm is at most G), the mean of T points has
        excess at most ``spread / (h T) + h (G + s Q)^2 / (2 strength) + D s sqrt(2 ln(2/beta) / T)`` with probability 1
        - beta, where D is the set's 2-diameter and Q = ``noise_norm(beta / (2 T))``. Proof: ``F(g) = max_w -<g, w> -
        psi(w) / h`` is smooth with constant h / strength in the dual norm and has derivative -w_t at the sum of
        gradients so far, hence ``F_{t+1} <= F_t - <e_t, w_t> + h |e_t|^2 / (2 strength)``; sum, with ``F_0 = -min psi /
        h`` and ``F_T >= -<sum e, u> - psi(u) / h``. Convexity, and the supermartingale of ``averaged_excess`` for the
        noise along w_t - u. Where the last point, the last half or clipped derivatives are predicted to be better, they
        are used and only predicted.
    Cost
        T <= 64 passes over the features and T p noisy numbers; maps cost O(p) (p-norm: ten or so evaluations).

    Parameters
    ----------
    steps, map, averaging : force T, the map ("entropic", "p-norm", "p-norm 1.5"), what is released.
    """

    steps: int | None = None
    map: str | None = None
    averaging: Averaging | None = None
    reads_blocks: ClassVar[bool] = True
    name: str = "mirror-descent"
    source: str = "Nemirovski and Yudin 1983; Talwar, Thakurta and Zhang 2014 (noisy mirror descent)"

    def eligible(self, model: PrivateRegression, request: Request) -> Verdict:
        if not mirror_maps(model.domain):
            return Verdict(False, "mirror maps are for l1 balls and simplices")
        return judge_descent(model, 1.0 if request.delta == 0 else 2.0)

    def plan(self, model: PrivateRegression, request: Request) -> MirrorPlan:
        """Settings and their prediction, from public facts."""
        return _plan(model, self, request.epsilon, request.delta)

    def forecast_as_requested(self, model: PrivateRegression, request: Request) -> Forecast:
        plan = self.plan(model, request)
        noise = step_noise(model, _spend(request.epsilon, request.delta), plan.settings)
        proved = _proved(noise, mirror_maps(model.domain)[plan.map], plan.settings, request.beta)
        return excess_forecast(
            model,
            request,
            predicted=plan.predicted,
            at_most=proved,
            work=f"{plan.settings.steps} passes over the data, noise on {model.size} sums in each",
            noise={
                **noise.told(plan.settings),
                "map": plan.map,
            },
            caveats=clip_note(model, plan.settings.clip),
        )

    def run_as_requested(
        self, model: PrivateRegression, request: Request, noise: NoiseSource, progress: Progress
    ) -> Outcome:
        plan = self.plan(model, request)
        settings = plan.settings
        steps = step_noise(model, _spend(request.epsilon, request.delta), settings)
        gradient = private_gradient(steps, model.read_table(), noise)
        step = counted(f"mirror descent, {settings.steps} steps", settings.steps, progress)

        def told(w: Floats) -> Floats:
            step()
            return gradient(w)

        points = mirror_descend(model, mirror_maps(model.domain)[plan.map], settings, told)
        return Outcome("optimal", points[settings.averaging], None, None, notes=clip_note(model, settings.clip))


def step_noise(model: PrivateRegression, spend: Spend, settings: Settings) -> StepNoise:
    """The noise of these settings, in the user's coordinates."""
    return StepNoise(clipped(model, settings.clip), plain_metric(model), spend, settings.steps, settings.share)


def _spend(epsilon: float, delta: float) -> Spend:
    return Spend.of(epsilon, delta, gaussian_only=True)


@cached
def _plan(model: PrivateRegression, requested: MirrorDescent, epsilon: float, delta: float) -> MirrorPlan:
    """The map, step and clip of least mean excess on the choosing populations."""
    maps, spend = mirror_maps(model.domain), _spend(epsilon, delta)
    most = max(_NOISY_NUMBERS // max(model.size, 1), 16)
    steps = requested.steps or min(most, _PURE_STEPS if delta == 0 else _STEPS)
    kinds = AVERAGINGS if requested.averaging is None else (requested.averaging,)
    populations = side_by_side([*choosing_risks(model), *extreme_risks(model)])
    draws = 2 if model.size <= _FEW_COLUMNS else 1
    seen: dict[tuple[str, Settings], tuple[float, Settings]] = {}

    def excess(
        name: str, settings: Sequence[Settings], among: Populations, seeds: Sequence[int]
    ) -> dict[Averaging, Floats]:
        """(settings, populations)"""
        each = np.repeat([one.step for one in settings], len(seeds) * among.count)[:, None]

        def run(rows: Populations, gradient: Gradient) -> dict[Averaging, Floats]:
            return mirrored(model, maps[name].simulated, steps, each, gradient, np.zeros_like(rows.mean))

        trials = [Trial(step_noise(model, spend, one), one) for one in settings]
        return simulated(trials, among, seeds, run)

    def least(name: str, settings: Sequence[Settings]) -> tuple[float, Settings, str]:
        """The mean excess of the best of these, which it is, and with which map."""
        new = [one for one in settings if (name, one) not in seen]
        for at in range(0, len(new), _SIDE_BY_SIDE):
            part = new[at : at + _SIDE_BY_SIDE]
            found = excess(name, part, populations, range(draws))
            for k, one in enumerate(part):
                means = {kind: float(found[kind][k].mean()) for kind in kinds}
                kind = min(means, key=lambda each: means[each])
                seen[name, one] = means[kind], replace(one, averaging=kind)
        return min((*seen[name, one], name) for one in settings)

    def moved(best: tuple[float, Settings, str], factors: Sequence[float]) -> tuple[float, Settings, str]:
        start = replace(best[1], averaging="all")
        return least(best[2], [start, *(replace(start, step=start.step * by) for by in factors)])

    def first(name: str) -> tuple[float, Settings, str]:
        step = maps[name].strength / max(_derivative(model, maps[name]), 1e-300) * maps[name].radius
        return least(name, [Settings(steps, step * by, 0.0, 0.0, "all") for by in _FACTORS])

    given = [requested.map] if requested.map in maps else list(maps)
    chosen = first(given[0])
    nothing = float(populations.nothing.mean())
    if chosen[0] < _HOPELESS * nothing and model.size <= _MANY_COLUMNS:
        chosen = min([chosen, *map(first, given[1:])], key=lambda one: one[0])
    for _ in range(_MOVES):
        before, chosen = chosen, moved(chosen, (0.25, 4.0))
        if chosen == before:
            break
    cuts = clips(model) if chosen[0] < _HOPELESS * nothing else clips(model)[-1:]
    settings = [
        replace(chosen[1], averaging="all", clip=cut, step=chosen[1].step * by) for cut in cuts for by in (1, 4)
    ]
    if settings:
        chosen = min(chosen, least(chosen[2], settings), key=lambda one: one[0])
    learns = chosen[0] < _HOPELESS * nothing
    _, best, name = moved(chosen, (0.5, 2.0)) if learns else chosen
    predicted = float(np.mean(excess(name, [best], populations_of(model), range(10, 10 + draws))[best.averaging]))
    # What little is gained may be the luck of the noise that was drawn: no more is predicted than without data.
    return MirrorPlan(best, predicted if learns else max(predicted, float(populations_of(model).nothing.mean())), name)


def _derivative(model: PrivateRegression, chosen: MirrorMap) -> float:
    """Bound on the dual norm of the objective's data gradient (the inf-norm's for q > 2, up to p^(1/q) <= e)."""
    return model.weight * model.derivative_bound * model.row.norm(math.inf if chosen.dual > 2 else 2.0)


def mirror_descend(
    model: PrivateRegression, chosen: MirrorMap, settings: Settings, gradient: Gradient
) -> dict[Averaging, Floats]:
    """``mirrored`` with these settings."""
    return mirrored(model, chosen.point, settings.steps, settings.step, gradient, np.zeros(model.size))


def mirrored(
    model: PrivateRegression,
    point: Callable[[Floats], Floats],
    steps: int,
    step: float | Floats,
    gradient: Gradient,
    total: Floats,
) -> dict[Averaging, Floats]:
    """Lazy mirror descent: coefficients for every way of averaging. Penalties by subgradient. ``total`` : (p,) zeros,
    or (B, p) with ``step`` (B, 1) for B descents side by side."""
    requested, reached = list[Floats](), list[Floats]()
    w = point(total)
    for _ in range(steps):
        requested.append(w)
        total = total + gradient(w) + model.penalty.subgradient(w)
        w = point(step * total)
        reached.append(w)
    return averages(requested, reached)


def _proved(noise: StepNoise, chosen: MirrorMap, settings: Settings, beta: float) -> float | None:
    """The theorem's bound; None where the last points are released, for Laplace noise or other penalties."""
    model, penalty = noise.model, noise.model.penalty
    if settings.clip < math.inf or settings.averaging != "all" or noise.order != 2 or penalty.other is not None:
        return None
    wide = model.scale * noise.scale(model.derivative_bound)
    # Dual norms of order q >= 2 are at most the 2-norm; of rows the better of that and p^(1/q) times the inf-norm.
    stretch = 1.0 if math.isinf(chosen.dual) else model.size ** (1 / chosen.dual)
    row = min(model.row.norm(2.0), stretch * model.row.norm(math.inf))
    radius = chosen.radius
    public = stretch * float((2 * penalty.ridge * radius + penalty.l1 + np.abs(penalty.linear)).max(initial=0.0))
    derivative = model.weight * model.derivative_bound * row + public
    square = derivative + wide * chosen.noise_norm(beta / (2 * settings.steps))
    bound = chosen.spread / (settings.step * settings.steps) + settings.step * square**2 / (2 * chosen.strength)
    diameter = model.domain.diameter(2.0)
    return bound + diameter * wide * math.sqrt(2 * math.log(2 / beta) / settings.steps)


MIRROR_DESCENT = MirrorDescent()
__all__ = ["MIRROR_DESCENT", "MirrorDescent", "MirrorPlan"]
