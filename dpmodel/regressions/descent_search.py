"""What descents search their settings with: simulations of many side by side, and the populations they run on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpmodel._types import Floats
from dpmodel.contract import YES, Verdict
from dpmodel.privacy import public_generator
from dpmodel.regressions.model import PrivateRegression, public_point
from dpmodel.regressions.noisy_gradient import (
    AVERAGINGS,
    Averaging,
    Gradient,
    Settings,
    StepNoise,
    curvature,
    descend,
    descent_metric,
    projects_exactly,
)
from dpmodel.regressions.populations import Populations, Trials, simulated_reaches
from dpmodel.regressions.synthetic import choosers, populations_of

# (B, p) coefficients for every way of averaging, from trials side by side and a noisy gradient.
Run = Callable[[Trials, Gradient], Mapping[Averaging, Floats]]

# Derivatives without a bound of their own are tried clipped at these shares of their bound at the labels' size.
_CLIPPED_LOSSES = ("squared", "huber", "squared_hinge")
_CLIPS = (1 / 2, 1 / 4, 1 / 8)


def clips(model: PrivateRegression) -> list[float]:
    """Sizes to try cutting derivatives to."""
    label = model.row.label_bound
    if model.loss.name not in _CLIPPED_LOSSES or not 0 < label < math.inf:
        return []
    bound = model.loss.derivative_bound(min(model.prediction_bound, label), label)
    return [share * bound for share in _CLIPS]


def clipped(model: PrivateRegression, clip: float) -> PrivateRegression:
    """The same model under the loss with derivatives cut to ``clip``."""
    if clip >= model.loss.clip:
        return model
    return replace(model, loss=replace(model.loss, clip=clip), _memo={})


def simulated(
    noises: Sequence[StepNoise], populations: Populations, seeds: Sequence[int], run: Run
) -> dict[Averaging, Floats]:
    """(settings, populations) mean excess risk over the seeds of what ``run`` finds, for every way of averaging.
    ``noises`` : those of settings with the same number of steps."""
    trials, model, metric = Trials(populations, len(noises), len(seeds)), populations.model, noises[0].metric
    laplace = noises[0].order == 1
    sources = [(g.laplace if laplace else g.standard_normal) for g in map(public_generator, seeds)]

    def noise(scale: Floats) -> Floats:
        """(rows, p) noise of these scales (rows, 1)."""
        return scale * trials.spread(np.array([source(size=model.size) for source in sources]))

    clip = trials.each([each.model.loss.clip for each in noises])
    scale = model.scale * trials.each([each.simulated_scale for each in noises])
    middle = model.scale * trials.each([each.middle_scale for each in noises])
    fixed: Floats | float = noise(middle) if middle.any() else 0.0
    kinds: dict[tuple[float, bool], Callable[[float], float]] = {}  # of the same one the same table
    reaches = simulated_reaches(
        [each.fixed_reach for each in noises],
        [kinds.setdefault((each.model.loss.clip, each.share > 0), each.reach_at) for each in noises],
        max(model.row.label_bound, 1.0),
        noises[0].predictions,
    )

    def gradient(w: Floats) -> Floats:
        return metric.sums(trials.rows.gradients(w, clip)) + (fixed + noise(scale * reaches(w)))

    with np.errstate(over="ignore", invalid="ignore"):
        means = {kind: trials.excess(point).mean(axis=1) for kind, point in run(trials, gradient).items()}
    return {kind: np.where(np.isfinite(value), value, math.inf) for kind, value in means.items()}


# -------------------------------------------------------------------------------- the search
# What matters is the time ``tau = step * steps / (1 - momentum)``. Directions of curvature c are learnt once c tau > 1,
# and under a fixed budget the noise gathered in a flat direction is proportional to tau whatever the number of steps:
# so tau is searched, and the number of steps only has to be large enough for tau to be reached with steps no longer
# than one over the curvature that the public bounds allow.


_MOST_STEPS, _FIRST_STEPS, _LEAST_STEPS = 128, 32, 16
_NOISY_NUMBERS = 150_000  # noise drawn in one run: the safe sampler takes 6 s for so many
_SOLVED_STEPS = 16  # where a projection is a solve of its own
# A setting that costs less work is taken where its risk is no more than this share larger.
_TIE = 0.02
# Trials begin at these multiples of the time that steps without momentum take, and move by factors of 4.
_TIMES = (4.0**-4, 4.0**-2, 1.0, 4.0**2)
_LONGER = (0.5, 1.0, 2.0, 4.0, 8.0)  # and then, with more steps, these of the best so far
_NEAR = (0.25, 0.5, 1.0)
_ROOM = 16.0
_HOPELESS = -0.03  # the logarithm of an excess that is no less than that of knowing nothing: no details are searched
_DRAWS = 64  # of the noise for each population, shared among the columns; two at most
_SIDE_BY_SIDE = 500_000  # numbers in the largest arrays of trials side by side
# Weight of labels that hardly depend on the columns: beside flat and falling spectra and columns that move together,
# one of four kinds.
_WEAK = 1 / 4
NEGLIGIBLE = 0.003  # of the excess of knowing nothing: less is as good as none


@dataclass(frozen=True)
class DescentPlan:
    """Settings and their predicted excess risk."""

    settings: Settings
    predicted: float


def judge_descent(model: PrivateRegression, order: float) -> Verdict:
    """Whether noise can hide a record: rows bounded in the norm of this order, derivatives where descent starts."""
    if not math.isfinite(model.row.norm(order)):
        return Verdict(False, f"rows have no bound on their {order:g}-norm, so no noise hides one of them")
    start = float(model.reaches(public_point(model)[None])[0]) + model.offset_bound
    if not math.isfinite(model.loss.derivative_bound(start, model.row.label_bound)):
        return Verdict(False, "derivatives have no bound: labels need one, or derivatives a clip")
    return YES


@dataclass(frozen=True)
class Point:
    """What is searched: ``steps``, ``time`` tau, ``share`` of the middles, ``clip``."""

    steps: int
    time: float
    share: float = 0.0
    clip: float = math.inf


class Search:
    """Search for settings; trials run the algorithm on the choosing populations, side by side.

    ``noise`` : that of these settings. ``pure`` : for delta = 0. ``steps``, ``averaging`` : forced, or None;
    ``momentum``, ``middle`` : whether these are allowed.
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
        # By settings: times beyond what the steps reach have the same ones.
        self._seen: dict[Settings, tuple[float, float, Settings]] = {}

    def best(self) -> DescentPlan:
        """With few steps the time, then what is noised of derivatives; with as many as that takes, both again."""
        # Pure budgets compose badly: noise grows with the square root of the number of steps.
        steps = self.steps or min(self._most_steps(), _LEAST_STEPS if self.pure else _FIRST_STEPS)
        # What can be learnt is found out first, and then what of that does no harm.
        first = [Point(steps, self.longest * steps * factor) for factor in _TIMES]
        best = self._moved(self._least(first, harmless=False), 4.0, harmless=False)
        cuts, share = clips(self.model), self._share()
        hopeless = self.risk(best)[1] > _HOPELESS
        # Less noise leaves room for more time.
        cut = [replace(best, time=best.time * by, clip=c) for c in (cuts[-1:] if hopeless else cuts) for by in (1, 4)]
        middles = [replace(best, share=share)] if share > 0 and not hopeless else []
        best = self._least([best, *cut, *middles], harmless=False)
        if self.risk(best)[1] > _HOPELESS:
            found = self.predicted(best)
            # What little it gains may be the luck of the noise that was drawn: no more is predicted than without data.
            return replace(found, predicted=max(found.predicted, float(populations_of(self.model).nothing.mean())))
        # Times that few steps hardly reach are not judged by these: there has to be room for much longer ones.
        while self.steps is None and best.time > self._reached(steps) / _ROOM and 2 * steps <= self._most_steps():
            steps *= 2
        others = [(0.0, c) for c in (math.inf, *cuts)] + ([(share, math.inf)] if share > 0 else [])
        points = [replace(best, steps=steps, time=best.time * by) for by in _LONGER]
        points += [
            replace(best, steps=steps, time=best.time * by, share=part, clip=c)
            for part, c in others
            if (part, c) != (best.share, best.clip)
            for by in (1.0, 4.0)
        ]
        best = self._moved(self._least(points), 2.0, 4)
        return self.predicted(best if self.steps is not None else self._fewer(best))

    def _moved(self, best: Point, factor: float, moves: int = 8, *, harmless: bool = True) -> Point:
        """The best by moves of the time by this factor."""
        for _ in range(moves):
            around = [best, *(replace(best, time=best.time * by) for by in (1 / factor, factor))]
            before, best = best, self._least(around, harmless=harmless)
            if best == before:
                break
        return best

    def near(self, found: Settings) -> DescentPlan:
        """The best at times near those of settings that did well under other noise."""
        assert self.steps is not None
        time = found.step * found.steps / (1 - found.momentum)
        return self.predicted(self._least([Point(self.steps, time * by, 0.0, found.clip) for by in _NEAR]))

    def predicted(self, point: Point) -> DescentPlan:
        """With its prediction, on populations and noise that did not choose."""
        settings = self.risk(point)[-1]
        found = self._simulated([settings], populations_of(self.model), range(10, 10 + self._draws()))[
            settings.averaging
        ]
        return DescentPlan(settings, float(np.mean(found)))

    def risk(self, point: Point) -> tuple[float, float, Settings]:
        """``_scores`` for the best averaging, and the settings."""
        self._least([point])
        return self._seen[self.settings(point)]

    def _least(self, points: Sequence[Point], *, harmless: bool = True) -> Point:
        """The point of least risk, the first among equals; all have the same number of steps. ``harmless`` : harm
        counts."""
        wanted = [self.settings(point) for point in points]
        new = [each for each in dict.fromkeys(wanted) if each not in self._seen]
        populations = choosers(self.model)
        seeds = range(self._draws())
        for at in range(0, len(new), most := max(1, _SIDE_BY_SIDE // (populations.count * max(self.model.size, 256)))):
            settings = new[at : at + most]
            found = self._simulated(settings, populations, seeds)
            for k, each in enumerate(settings):
                scores = {kind: self._scores(found[kind][k]) for kind in self.averagings}
                best = min(scores, key=lambda kind: scores[kind])
                self._seen[each] = *scores[best], replace(each, averaging=best)
        return min(zip(points, wanted, strict=True), key=lambda pair: self._seen[pair[1]][:2][0 if harmless else 1])[0]

    def _scores(self, found: Floats) -> tuple[float, float]:
        """What settings are chosen by, and its part that tells whether anything is learnt.

        That is the mean logarithm of the excess in the choosing populations (over that of knowing nothing), so that
        those in which nothing can be learnt with this budget do not decide for those in which something can. Where
        labels hardly depend on the columns, noise is only asked to do no harm: being worse than the public point
        counts.
        """
        with np.errstate(divide="ignore", over="ignore"):
            shares = np.maximum(found, 0.0) / np.maximum(choosers(self.model).nothing, 1e-300)
        weak = self.model.loss.labels == "number"
        gain = float(np.log(NEGLIGIBLE + shares[:-1] if weak else NEGLIGIBLE + shares).mean())
        return ((1 - _WEAK) * gain + _WEAK * math.log(max(shares[-1], 1.0)) if weak else gain), gain

    def _draws(self) -> int:
        return min(max(_DRAWS // self.model.size, 1), 2) if projects_exactly(self.model.domain) else 1

    def settings(self, point: Point) -> Settings:
        """Steps no longer than the curvature allows; what is missing to tau by momentum."""
        steps, tau = point.steps, point.time
        momentum = min(max(0.0, 1 - self.longest * steps / tau), 1 - 3 / max(steps, 3)) if self.momentum else 0.0
        step = min(self.longest, tau * (1 - momentum) / steps)
        return Settings(steps, step, momentum, point.share, self.averagings[0], point.clip)

    def _simulated(
        self, settings: Sequence[Settings], populations: Populations, seeds: Sequence[int]
    ) -> dict[Averaging, Floats]:
        def run(trials: Trials, gradient: Gradient) -> dict[Averaging, Floats]:
            step, momentum = (trials.each([getattr(one, name) for one in settings]) for name in ("step", "momentum"))
            start, metric = trials.rows.start, descent_metric(self.model)
            return descend(self.model, metric, settings[0], gradient, start, step, momentum)

        return simulated([self.noise(one) for one in settings], populations, seeds, run)

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

    def _fewer(self, best: Point) -> Point:
        """Half the steps as long as that costs (nearly) nothing."""
        least = self.risk(best)[0]
        while best.steps >= 2 and self.risk(fewer := replace(best, steps=best.steps // 2))[0] <= least + _TIE:
            best = fewer
        return best


def _longest(model: PrivateRegression) -> float:
    """The longest step that the public bounds allow."""
    return 1 / max(curvature(model, descent_metric(model)), 1e-300)
