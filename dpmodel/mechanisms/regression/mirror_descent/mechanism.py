"""Noisy mirror descent over l1 balls and simplices, with the entropic and p-norm maps."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpmodel._types import Floats
from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.mechanisms.contract import YES, Outcome, Progress, Request, Verdict
from dpmodel.mechanisms.forecast import Forecast
from dpmodel.mechanisms.regression.descent.metric import plain_metric
from dpmodel.mechanisms.regression.descent.search import choosing_risks, clipped, clips, extreme_risks, line_search
from dpmodel.mechanisms.regression.descent.steps import (
    AVERAGINGS,
    Averaging,
    Gradient,
    Settings,
    StepNoise,
    imagined_gradient,
    private_gradient,
)
from dpmodel.mechanisms.regression.excess import clip_note, excess_forecast
from dpmodel.mechanisms.regression.mirror_descent.maps import MirrorMap, mirror_maps
from dpmodel.mechanisms.regression.pure_too import PureToo
from dpmodel.mechanisms.regression.synthetic import SimulatedRisk, simulated_risks
from dpmodel.mechanisms.spend import Spend
from dpmodel.privacy import NoiseSource, public_generator

_STEPS, _PURE_STEPS = 64, 8
_NOISY_NUMBERS = 150_000


@dataclass(frozen=True)
class MirrorPlan:
    """Settings (``momentum`` 0, ``step`` the weight of gradients), the map's name, and what simulation predicts."""

    settings: Settings
    map: str
    predicted: float
    nothing: float


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
        deviation s a step on the objective's gradient (whose dual norm is at most G), the mean of T points has excess
        at most ``spread / (h T) + h (G + s Q)^2 / (2 strength) + D s sqrt(2 ln(2/beta) / T)`` with probability
        1 - beta, where D is the set's 2-diameter and Q = ``noise_norm(beta / (2 T))``. Proof:
        ``F(g) = max_w -<g, w> - psi(w) / h`` is smooth with constant h / strength in the dual norm and has slope -w_t
        at the sum of gradients so far, hence ``F_{t+1} <= F_t - <e_t, w_t> + h |e_t|^2 / (2 strength)``; sum, with
        ``F_0 = -min psi / h`` and ``F_T >= -<sum e, u> - psi(u) / h``. Convexity, and the supermartingale of
        ``averaged_excess`` for the noise along w_t - u. Where the last point, the last half or clipped slopes are
        predicted to be better, they are used and only predicted.
    Cost
        T <= 64 passes over the features and T p noisy numbers; maps cost O(p) (p-norm: ten or so evaluations).

    Parameters
    ----------
    steps, map, averaging : force T, the map ("entropic", "p-norm", "p-norm 1.5"), what is released.
    """

    steps: int | None = None
    map: str | None = None
    averaging: Averaging | None = None
    name: str = "mirror-descent"
    source: str = "Nemirovski and Yudin 1983; Talwar, Thakurta and Zhang 2014 (noisy mirror descent)"

    def eligible(self, model: PrivateRegression, request: Request) -> Verdict:
        if not mirror_maps(model.domain):
            return Verdict(False, "mirror maps are for l1 balls and simplices")
        order = 1.0 if request.delta == 0 else 2.0
        if not math.isfinite(model.row.norm(order)):
            return Verdict(False, f"rows have no bound on their {order:g}-norm, so no noise hides one of them")
        if not math.isfinite(model.slope_bound):
            return Verdict(False, "slopes have no bound: labels need one, or slopes a clip")
        return YES

    def plan(self, model: PrivateRegression, request: Request) -> MirrorPlan:
        """Settings and their prediction, from public facts."""
        key = ("mirror plan", request.epsilon, request.delta, self.steps, self.map, self.averaging)
        spend = Spend.of(request.epsilon, request.delta, gaussian_only=True)
        return model.remember(key, lambda: self._choose(model, spend))

    def forecast_as_asked(self, model: PrivateRegression, request: Request) -> Forecast:
        plan = self.plan(model, request)
        noise = _noise(model, request, plan.settings)
        proved = _proved(noise, mirror_maps(model.domain)[plan.map], plan.settings, request.beta)
        return excess_forecast(
            model,
            request,
            predicted=plan.predicted,
            at_most=proved,
            work=f"{plan.settings.steps} passes over the data, noise on {model.size} sums each",
            noise={
                "kind": "laplace" if noise.order == 1 else "gaussian",
                "map": plan.map,
                "steps": plan.settings.steps,
                "step": plan.settings.step,
                "released": plan.settings.averaging,
                "slopes clipped to": plan.settings.clip,
                "scale of each sum in the first step": noise.scale(noise.reach(model.domain.center())),
            },
            caveats=clip_note(model, plan.settings.clip),
        )

    def run_as_asked(
        self, model: PrivateRegression, request: Request, noise: NoiseSource, progress: Progress
    ) -> Outcome:
        plan = self.plan(model, request)
        steps = _noise(model, request, plan.settings)
        gradient = private_gradient(steps, model.read_rows(), noise)
        progress(f"mirror descent, {plan.settings.steps} steps", 0.0)
        points = mirror_descend(model, mirror_maps(model.domain)[plan.map], plan.settings, gradient)
        return Outcome(
            "optimal", points[plan.settings.averaging], None, None, notes=clip_note(model, plan.settings.clip)
        )

    def _choose(self, model: PrivateRegression, spend: Spend) -> MirrorPlan:
        maps = mirror_maps(model.domain)
        names = [self.map] if self.map in maps else list(maps)
        most = max(_NOISY_NUMBERS // max(model.size, 1), 16)
        steps = self.steps or min(most, _PURE_STEPS if spend.rho is None else _STEPS)
        risks = simulated_risks(model)
        kinds = AVERAGINGS if self.averaging is None else (self.averaging,)
        best: tuple[float, Settings, str] | None = None
        for name in names:
            chosen = maps[name]
            start = chosen.strength / max(_slope(model, chosen), 1e-300) * chosen.radius
            value, settings = _search(model, spend, chosen, Settings(steps, start, 0.0, 0.0, "all"), kinds)
            if best is None or value < best[0]:
                best = value, settings, name
        assert best is not None
        for cut in clips(model):
            _, settings, name = best
            value, settings = _search(model, spend, maps[name], replace(settings, clip=cut), kinds, 2)
            if value < best[0]:
                best = value, settings, name
        _, settings, name = best
        final = [_excess(model, spend, maps[name], settings, risk, 1)[settings.averaging] for risk in risks]
        return MirrorPlan(settings, name, float(np.mean(final)), float(np.mean([risk.nothing for risk in risks])))


def _search(
    model: PrivateRegression,
    spend: Spend,
    chosen: MirrorMap,
    start: Settings,
    kinds: tuple[Averaging, ...],
    moves: int = 8,
) -> tuple[float, Settings]:
    """Mean excess on the choosing populations of the best step from ``start.step`` on, and its settings."""
    seen: dict[float, tuple[float, Settings]] = {}

    def risk(step: float) -> float:
        settings = replace(start, step=step)
        found = [
            _excess(model, spend, chosen, settings, one, 0) for one in (*choosing_risks(model), *extreme_risks(model))
        ]
        means = {kind: float(np.mean([one[kind] for one in found])) for kind in kinds}
        kind = min(means, key=lambda k: means[k])
        seen[step] = means[kind], replace(settings, averaging=kind)
        return means[kind]

    return seen[line_search(risk, start.step, moves)]


def _slope(model: PrivateRegression, chosen: MirrorMap) -> float:
    """Bound on the dual norm of the objective's data gradient (the inf-norm's for q > 2, up to p^(1/q) <= e)."""
    return model.weight * model.slope_bound * model.row.norm(math.inf if chosen.dual > 2 else 2.0)


def _excess(
    model: PrivateRegression, spend: Spend, chosen: MirrorMap, settings: Settings, risk: SimulatedRisk, seed: int
) -> dict[Averaging, float]:
    cut = clipped(model, settings.clip)
    noise = StepNoise(cut, plain_metric(model), spend, settings.steps, 0.0)
    seen = risk if cut is model else replace(risk, model=cut)
    points = mirror_descend(model, chosen, settings, imagined_gradient(noise, seen.gradient, public_generator(seed)))
    return {kind: risk.excess(points[kind]) for kind in AVERAGINGS}


def mirror_descend(
    model: PrivateRegression, chosen: MirrorMap, settings: Settings, gradient: Gradient
) -> dict[Averaging, Floats]:
    """Lazy mirror descent: coefficients for every way of averaging. Penalties by subgradient."""
    total = np.zeros(model.size)
    asked, later, half = np.zeros(model.size), np.zeros(model.size), settings.steps // 2
    w = chosen.point(total)
    for number in range(settings.steps):
        asked += w
        total += gradient(w) + model.penalty.subgradient(w)
        w = chosen.point(settings.step * total)
        if number >= half:
            later += w
    return {"last": w, "half": later / max(settings.steps - half, 1), "all": asked / settings.steps}


def _noise(model: PrivateRegression, request: Request, settings: Settings) -> StepNoise:
    spend = Spend.of(request.epsilon, request.delta, gaussian_only=True)
    seen = clipped(model, settings.clip)
    return StepNoise(seen, plain_metric(model), spend, settings.steps, settings.share)


def _proved(noise: StepNoise, chosen: MirrorMap, settings: Settings, beta: float) -> float | None:
    """The theorem's bound; None where the last points are released, for Laplace noise or other penalties."""
    model, penalty = noise.model, noise.model.penalty
    if settings.clip < math.inf or settings.averaging != "all" or noise.order != 2 or penalty.other is not None:
        return None
    wide = model.scale * noise.scale(model.slope_bound)
    # Dual norms of order q >= 2 are at most the 2-norm; of rows the better of that and p^(1/q) times the inf-norm.
    stretch = 1.0 if math.isinf(chosen.dual) else model.size ** (1 / chosen.dual)
    row = min(model.row.norm(2.0), stretch * model.row.norm(math.inf))
    radius = chosen.radius
    public = stretch * float((2 * penalty.ridge * radius + penalty.l1 + np.abs(penalty.linear)).max(initial=0.0))
    slope = model.weight * model.slope_bound * row + public
    square = slope + wide * chosen.noise_norm(beta / (2 * settings.steps))
    bound = chosen.spread / (settings.step * settings.steps) + settings.step * square**2 / (2 * chosen.strength)
    diameter = model.domain.diameter(2.0)
    return bound + diameter * wide * math.sqrt(2 * math.log(2 / beta) / settings.steps)


MIRROR_DESCENT = MirrorDescent()
__all__ = ["MIRROR_DESCENT", "MirrorDescent", "MirrorPlan"]
