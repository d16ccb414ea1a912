"""Choosing how long and how fast to descend, by simulation on populations drawn from the public bounds.

What matters is the time ``tau = step * steps / (1 - momentum)``. Directions of curvature c are learnt once c tau > 1,
and under a fixed budget the noise gathered in a flat direction is proportional to tau whatever the number of steps:
so tau is searched, and the number of steps only has to be large enough for tau to be reached with steps no longer
than one over the curvature that the public bounds allow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dpmodel._types import Floats
from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.mechanisms.contract import YES, Verdict
from dpmodel.mechanisms.regression.descent.metric import descent_metric, projects_exactly
from dpmodel.mechanisms.regression.descent.search import choosing_risks, clips, line_search, simulated_excess
from dpmodel.mechanisms.regression.descent.steps import (
    AVERAGINGS,
    Averaging,
    Gradient,
    Settings,
    StepNoise,
    curvature,
    descend,
)
from dpmodel.mechanisms.regression.public_point import public_point
from dpmodel.mechanisms.regression.synthetic import SimulatedRisk, simulated_risks
from dpmodel.numerics.public_facts import cached

_MOST_STEPS, _FIRST_STEPS, _LEAST_STEPS = 128, 32, 16
_NOISY_NUMBERS = 150_000  # noise drawn in one run: the safe sampler takes 6 s for so many
_SOLVED_STEPS = 16  # where a projection is a solve of its own
# A setting that costs less work is taken where its risk is no more than this share larger.
_TIE = 0.02
_LONG = 128  # steps of descent without noise
_DRAWS = 2  # of the noise, for each population and trial
_LOWER_BOUND = 0.003  # of the excess of knowing nothing: less is as good as none


@dataclass(frozen=True)
class DescentPlan:
    """Settings and their predicted excess risk."""

    settings: Settings
    predicted: float


def judge_descent(model: PrivateRegression, order: float) -> Verdict:
    """Whether noise can hide a record: rows bounded in the norm of this order, derivatives where descent starts."""
    if not math.isfinite(model.row.norm(order)):
        return Verdict(False, f"rows have no bound on their {order:g}-norm, so no noise hides one of them")
    start = model.row.reach(public_point(model)) + model.offset_bound
    if not math.isfinite(model.loss.derivative_bound(start, model.row.label_bound)):
        return Verdict(False, "derivatives have no bound: labels need one, or derivatives a clip")
    return YES


class Search:
    """Search for settings; every trial runs the algorithm on the choosing populations.

    ``noise`` : that of these settings. ``pure`` : for delta = 0. ``steps``, ``averaging`` : forced, or None;
    ``momentum``, ``middle`` : whether they are allowed.
    """

    def __init__(
        self,
        model: PrivateRegression,
        noise: Callable[[Settings], StepNoise],
        *,
        pure: bool,
        steps: int | None,
        momentum: bool = True,
        averaging: Averaging | None = None,
        middle: bool = False,
    ) -> None:
        self.model, self.noise, self.pure, self.steps = model, noise, pure, steps
        self.momentum, self.middle = momentum, middle
        self.averagings = AVERAGINGS if averaging is None else (averaging,)
        self.longest = _longest(model)
        self._seen: dict[tuple[int, float, float, float], tuple[float, Settings]] = {}

    def best(self) -> DescentPlan:
        # Pure budgets compose badly: noise grows with the square root of the number of steps.
        steps = self.steps or min(self._most_steps(), _LEAST_STEPS if self.pure else _FIRST_STEPS)
        tau = self._time(steps, self.longest * steps, 8)
        while self.steps is None and tau > self._reached(steps) / 4 and 2 * steps <= self._most_steps():
            steps *= 2
            tau = self._time(steps, tau, 2)
        share, clip = 0.0, math.inf
        if (other := self._share()) > 0 and self.risk(steps, tau, other, clip)[0] < self.risk(steps, tau, 0.0, clip)[0]:
            share = other
        for cut in clips(self.model):
            # Less noise leaves room for more time.
            value, longer = min((self.risk(steps, t, 0.0, cut)[0], t) for t in (tau, 2 * tau))
            if value < self.risk(steps, tau, share, clip)[0]:
                share, clip, tau = 0.0, cut, longer
        if self.steps is None and self.pure:
            steps = self._fewer(steps, tau, share, clip)
        _, settings = self.risk(steps, tau, share, clip)
        found = [self._excess(settings, risk, 1)[settings.averaging] for risk in simulated_risks(self.model)]
        return DescentPlan(settings, float(np.mean(found)))

    def _time(self, steps: int, start: float, moves: int) -> float:
        return line_search(lambda tau: self.risk(steps, tau, 0.0, math.inf)[0], start, moves)

    def risk(self, steps: int, tau: float, share: float, clip: float) -> tuple[float, Settings]:
        """Mean logarithm of the excess over that of knowing nothing, for the best averaging, and the settings.

        Logarithms, so that populations in which nothing can be learnt with this budget do not decide for those in
        which something can.
        """
        key = (steps, round(math.log2(max(tau, 1e-300)), 6), share, clip)
        if key not in self._seen:
            settings = replace(self.settings(steps, tau, share), clip=clip)
            logs: dict[Averaging, list[float]] = {kind: [] for kind in self.averagings}
            for risk, lower_bound in zip(choosing_risks(self.model), _lower_bounds(self.model), strict=True):
                nothing = max(risk.nothing - lower_bound, 1e-300)
                for seed in range(_DRAWS if steps <= _FIRST_STEPS and projects_exactly(self.model.domain) else 1):
                    found = self._excess(settings, risk, seed)
                    for kind in logs:
                        logs[kind].append(math.log(_LOWER_BOUND + max(found[kind] - lower_bound, 0.0) / nothing))
            means = {kind: float(np.mean(values)) for kind, values in logs.items()}
            kind = min(means, key=lambda k: means[k])
            self._seen[key] = means[kind], replace(settings, averaging=kind)
        return self._seen[key]

    def settings(self, steps: int, tau: float, share: float) -> Settings:
        """Steps no longer than the curvature allows; what is missing to tau by momentum."""
        momentum = min(max(0.0, 1 - self.longest * steps / tau), 1 - 3 / max(steps, 3)) if self.momentum else 0.0
        step = min(self.longest, tau * (1 - momentum) / steps)
        return Settings(steps, step, momentum, share, self.averagings[0])

    def _excess(self, settings: Settings, risk: SimulatedRisk, seed: int) -> dict[Averaging, float]:
        def run(settings: Settings, gradient: Gradient) -> dict[Averaging, Floats]:
            return descend(self.model, descent_metric(self.model), settings, gradient)

        return simulated_excess(self.noise(settings), settings, risk, seed, run)

    def _share(self) -> float:
        """Share of the middles that suits noise gathered in one direction: budgets in proportion to the changes."""
        model = self.model
        label = model.row.label_bound
        middle = model.loss.middle_bound(label)
        if not self.middle or not 0 < middle < math.inf:
            return 0.0
        typical = label if model.loss.labels == "number" else 4.0
        rest = model.loss.rest_bound(min(model.prediction_bound, typical), label)
        share = middle / (middle + rest)
        return share if share < 1 - 1e-9 else 0.0  # nothing would be left for the rest

    def _most_steps(self) -> int:
        most = max(_NOISY_NUMBERS // max(self.model.size, 1), _LEAST_STEPS)
        return min(most, _MOST_STEPS if projects_exactly(self.model.domain) else _SOLVED_STEPS)

    def _reached(self, steps: int) -> float:
        """The largest tau that so many steps reach."""
        return self.longest * steps * (max(steps, 3) / 3 if self.momentum else 1)

    def _fewer(self, steps: int, tau: float, share: float, clip: float) -> int:
        """A quarter of the steps as long as that costs (nearly) nothing."""
        value = self.risk(steps, tau, share, clip)[0]
        while steps >= 4:
            other = self.risk(steps // 4, tau, share, clip)[0]
            if not other <= value + _TIE:
                break
            steps, value = steps // 4, other
        return steps


def _longest(model: PrivateRegression) -> float:
    """The longest step that the public bounds allow."""
    return 1 / max(curvature(model, descent_metric(model)), 1e-300)


@cached
def _lower_bounds(model: PrivateRegression) -> tuple[float, ...]:
    """Least excess on each choosing population: that of descent without noise, where it is below the coefficients that
    labels were made from (which quantile and hinge losses do not ask for)."""
    risks, metric = choosing_risks(model), descent_metric(model)
    if model.loss.name in ("logistic", "binary_logistic"):
        return (0.0,) * len(risks)  # labels are drawn from this very loss
    settings, out = Settings(_LONG, _longest(model), 1 - 6 / _LONG, 0.0, "last"), []
    for risk in risks:

        def exact(w: Floats, risk: SimulatedRisk = risk) -> Floats:
            return metric.sums(risk.gradient(w))

        out.append(min(0.0, *(risk.excess(w) for w in descend(model, metric, settings, exact).values())))
    return tuple(out)
