"""Projected gradient descent with Gaussian (pure budgets: Laplace) noise on sums of derivatives over the rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from dpmodel._types import Floats, PrivateArray
from dpmodel.contract import Options, Outcome, Progress, Serves, Verdict, counted
from dpmodel.errors import SpecificationError
from dpmodel.forecast import Forecast
from dpmodel.memo import cached
from dpmodel.privacy import LEAST_DELTA, NoiseSource, PoissonCoins, poisson_coins, subsampled_multiplier
from dpmodel.privacy.accounting import Spend
from dpmodel.regressions.excess import PureToo, clip_note, excess_forecast
from dpmodel.regressions.losses import Loss
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
    part_gradient,
    private_gradient,
    projects_exactly,
)
from dpmodel.regressions.populations import Populations, Trials
from dpmodel.regressions.rows import WHOLE, Rows, Table
from dpmodel.regressions.search import (
    NEGLIGIBLE,
    NOISY_NUMBERS,
    SIDE_BY_SIDE,
    Compared,
    clipped,
    clips,
    judge_descent,
    moved,
    simulated,
)
from dpmodel.regressions.synthetic import choosers, populations_of

_MOST_STEPS, _FIRST_STEPS, _LEAST_STEPS = 128, 32, 16
# A setting that costs less work is taken where its risk is no more than this share larger.
_TIE = 0.02
# Trials begin at these multiples of the time that steps without momentum take, and move by factors of 4.
_TIMES = (4.0**-4, 4.0**-2, 1.0, 4.0**2)
_LONGER = (0.5, 1.0, 2.0, 4.0, 8.0)  # and then, with more steps, these of the best so far
_HOPELESS = -0.03  # the logarithm of an excess that is no less than that of knowing nothing: no details are searched
# With so little of it left steps of losses with kinks may be shorter: where many labels are alike long ones do not come
# to rest, which no population shows. Not with delta 0, whose noise makes few steps, which have to be long.
_LEARNT = math.log(0.1)
_DRAWS = 64  # of the noise for each population, shared among the columns; two at most
# Weight of labels that hardly depend on the columns: beside flat and falling spectra and columns that move together,
# one of four kinds.
_WEAK = 1 / 4


@dataclass(frozen=True)
class NoisyDescent(PureToo):
    """Minimise the empirical risk by gradient steps on noisy sums of derivatives.

    Source
        Bassily, Smith and Thakurta 2014, section 2 (full-batch steps: Song, Chaudhuri and Sarwate 2013); AMU20 for
        losses without smoothness; exact Gaussian composition: Dong, Roth and Su 2022, corollary 3.3. Samples: Abadi et
        al. 2016 (without clipping of whole gradients: derivatives are bounded); their accounting by privacy-loss
        distributions: Koskela et al. 2020. Several classes: McCullagh and Nelder 1989, chapter 5 (the loss).
    Privacy
        Private rows enter only through ``M sum_i omega_i s_i a_i`` (M public: ``Metric``). Each step noises these p
        sums, scaled to how far one record moves them at the released point, so that every step costs the same mu
        (``StepNoise``): T steps and the one measurement of the middles compose to the mu of (epsilon, delta) (Balle
        and Wang 2018). delta = 0: Laplace noise scaled to the 1-norm, epsilon / T a step. With middles, derivative =
        m(y) + rest (``Loss.middle``): ``M sum_i omega_i m(y_i) a_i`` is released once with a share of the budget, and
        steps release sums of the rest, half as large. T, step, momentum, share, averaging and clip are
        functions of public facts (``Search``); penalty, projection and averaging act on released numbers.

        *Several classes.* What is noised is the matrix ``sum_i omega_i s_i (M a_i)'`` with s_i = p_i - y_i (K,), p_i =
        softmax(W a_i), its K p entries together. ``|s (M a)'| = |s| |M a|`` in the Frobenius norm, and in the sum of
        all entries with 1-norms, so that ``Metric.sensitivity`` holds with |s_i| in place of the size of a number.
        ``|p - y|_2 < sqrt(2)`` whatever W is, so one record moves the sum by less than ``2 sqrt(2) |M a|``
        (replace-one). Over all W no less will do: with two columns or more (the intercept is one) some W sets the
        scores of two rows as far apart as one likes, however near they are to each other, and then s is nearly e_j -
        e_k for the one and e_k - e_j for the other. At a released W it is less: ``Softmax.derivative_bound`` of the
        largest difference of two scores (``sqrt(1 - 1/K)`` at W = 0). With the middles 1/K - y measured once, steps
        noise p - 1/K, which is at most ``sqrt(1 - 1/K)`` long.

        *Samples* (``rate`` q). Every step draws every record with probability q, by coins that stay secret, and
        releases the sum over the drawn records with Gaussian noise of standard deviation ``multiplier`` times the
        largest norm of one record's vector at the released point. So each step is dominated by one and the same pair
        of mixtures, and T steps cost what ``subsampled_multiplier`` was solved for (replace-one: the pair of opposite
        records; absent records without constant columns: one record against none). q is public.
    Utility
        Forecast: mean excess risk on simulated populations, with this noise and these settings. Where the set is
        bounded and plain averaging was asked for (momentum=False, averaging="all", no l1 or other penalty),
        ``averaged_excess`` proves a bound that holds with probability 1 - beta. Samples save work, not noise: for the
        same time of descent steps on all records have no more noise.
    Cost
        T passes over the features and T p noisy numbers, T <= 128, fewer for p > 1,200; a projection a step. With
        samples q T passes and T n coins.

    Parameters
    ----------
    steps, momentum, averaging, middle : force T, forbid momentum, force what is averaged, forbid the middles.
    rate : share of the records in a step, in (0, 1]; None: all, without coins.
    """

    serves: ClassVar[Serves] = Serves(PrivateRegression, reads_blocks=True, weights=True, classes=True)
    steps: int | None = None
    momentum: bool = True
    averaging: Averaging | None = None
    middle: bool = True
    rate: float | None = None
    name: str = "noisy-descent"
    source: str = "Bassily, Smith and Thakurta 2014; Dong, Roth and Su 2022 (exact Gaussian composition)"

    def __post_init__(self) -> None:
        if self.rate is None:
            return
        if isinstance(self.rate, bool) or not isinstance(self.rate, Real) or not 0 < self.rate <= 1:
            raise SpecificationError(
                f"rate={self.rate!r}",
                why="it is the share of the records in a step",
                remedy="rate=0.1, or None for all",
            )
        # Who is in a sample is secret: draws do not add up to the charge.
        object.__setattr__(self, "serves", replace(type(self).serves, adds_up=False))

    @property
    def mu_gdp(self) -> bool:
        """Not with samples: their price is that of (epsilon, delta) at one point, not of a mu."""
        return self.rate is None

    def eligible(self, model: PrivateRegression, options: Options) -> Verdict:
        if self.rate is not None and options.delta < LEAST_DELTA:
            return Verdict(False, f"samples are accounted for delta of at least {LEAST_DELTA:g}")
        return judge_descent(model, 1.0 if options.delta == 0 else 2.0)

    def plan(self, model: PrivateRegression, options: Options) -> tuple[Settings, float]:
        """Settings and their prediction, from public facts."""
        return _plan(model, self, options.epsilon, options.delta)

    def noise(self, model: PrivateRegression, options: Options, settings: Settings) -> StepNoise:
        """What steps with these settings need."""
        return _noise(self.rate, model, options.epsilon, options.delta, settings)

    def forecast_as_given(self, model: PrivateRegression, options: Options) -> Forecast:
        settings, predicted = self.plan(model, options)
        noise = self.noise(model, options, settings)
        passes = f"{settings.steps} passes over the data"
        details: dict[str, Any] = {
            "share of the middles": settings.share,
            "scale of the middles": noise.middle_scale,
            "coordinates": "centred" if noise.metric.exchange is not None else "scaled columns",
        }
        if isinstance(noise, SampledNoise):
            passes = f"{settings.steps * noise.rate:.3g} passes over the data in {settings.steps} steps"
            details = {"sampling rate": noise.rate, "noise multiplier": noise.multiplier}
        return excess_forecast(
            model,
            options,
            predicted=predicted,
            at_most=averaged_excess(noise, settings, options.beta),
            work=f"{passes}, noise on {model.size} sums in each",
            noise={**noise.described(settings), **details},
            caveats=clip_note(model, settings.clip),
            event=self.event(options),
        )

    def run_as_given(
        self, model: PrivateRegression, options: Options, noise: NoiseSource, progress: Progress
    ) -> Outcome:
        settings = self.plan(model, options)[0]
        steps, rows = self.noise(model, options, settings), model.read_table()
        if isinstance(steps, SampledNoise):
            gradient = sampled_gradient(steps, rows, noise)
        else:
            gradient = private_gradient(steps, rows, noise)
        step = counted(f"gradient descent, {settings.steps} steps", settings.steps, progress)

        def counting(w: Floats) -> Floats:
            step()
            return gradient(w)

        points = descend(steps.model, steps.metric, settings, counting)
        return Outcome("optimal", points[settings.averaging], None, None, notes=clip_note(model, settings.clip))


def _noise(rate: float | None, model: PrivateRegression, epsilon: float, delta: float, settings: Settings) -> StepNoise:
    seen, metric = clipped(model, settings.clip), descent_metric(model)
    if rate is None:
        spend = Spend.of(epsilon, delta, gaussian_only=True)
        return StepNoise(seen, metric, spend, settings.steps, settings.share)
    multiplier = _multiplier(model, epsilon, delta, rate, settings.steps)
    return SampledNoise(seen, metric, Spend(1.0, 1.0), settings.steps, 0.0, rate, multiplier)


@cached
def _plan(model: PrivateRegression, mechanism: NoisyDescent, epsilon: float, delta: float) -> tuple[Settings, float]:
    noise = partial(_noise, mechanism.rate, model, epsilon, delta)
    if mechanism.rate is not None:
        full = replace(mechanism, rate=None, steps=None).plan(model, Options(epsilon, delta))
        return Search(model, noise, pure=False, steps=mechanism.steps or 64).near(full[0])
    return Search(
        model,
        noise,
        pure=delta == 0,
        steps=mechanism.steps,
        momentum=mechanism.momentum,
        averaging=mechanism.averaging,
        middle=mechanism.middle,
    ).best()


# ------------------------------------------------------------------------------------------------- the search
# What matters is the time ``tau = step * steps / (1 - momentum)``. Directions of curvature c are learnt once c tau > 1,
# and under a fixed budget the noise gathered in a flat direction is proportional to tau whatever the number of steps:
# so tau is searched, and the number of steps only has to be large enough for tau with steps no longer
# than one over the curvature that the public bounds allow.


@dataclass(frozen=True)
class Point:
    """What is searched: ``steps``, ``time`` tau, ``share`` of the middles, ``clip``, ``length`` of a step (1: the
    longest that curvature allows)."""

    steps: int
    time: float
    share: float = 0.0
    clip: float = math.inf
    length: float = 1.0


Risk = tuple[float, float, Settings]  # see ``Search._scores``; with the best averaging


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
        # The longest step that the public bounds allow.
        self.longest = 1 / max(curvature(model, descent_metric(model)), 1e-300)
        self.choosers = choosers(model)
        self.compared = Compared(self._risks, max(1, SIDE_BY_SIDE // (self.choosers.count * max(model.size, 256))))

    def best(self) -> tuple[Settings, float]:
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
            return found[0], max(found[1], float(populations_of(self.model).nothing.mean()))
        # Times that few steps hardly come to are not judged by these: there has to be room for much longer ones.
        while self.steps is None and 2 * steps <= self._most_steps():
            if best.time <= self.longest * steps * (steps / 3 if self.momentum else 1) / 16:
                break
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
        if math.isinf(self.model.loss.smoothness) and not self.pure and self.risk(best)[1] < _LEARNT:
            best = self._last([replace(best, length=length) for length in (1.0, 0.5, 0.25, 0.125, 0.0625)])
        if self.steps is None:
            best = self._last([replace(best, steps=best.steps >> k) for k in range(best.steps.bit_length())])
        return self.predicted(best)

    def _moved(self, best: Point, factor: float, moves: int = 8, *, harmless: bool = True) -> Point:
        """The best by moves of the time by this factor."""
        return moved(
            best,
            lambda best: [replace(best, time=best.time * by) for by in (1 / factor, factor)],
            partial(self._least, harmless=harmless),
            moves,
        )

    def near(self, found: Settings) -> tuple[Settings, float]:
        """The best at times near those of settings that did well under other noise."""
        assert self.steps is not None
        time = found.step * found.steps / (1 - found.momentum)
        return self.predicted(self._least([Point(self.steps, time * by, 0.0, found.clip) for by in (0.25, 0.5, 1.0)]))

    def predicted(self, point: Point) -> tuple[Settings, float]:
        """With its prediction, on populations and noise that did not choose."""
        settings = self.risk(point)[-1]
        found = self._simulated([settings], populations_of(self.model), range(10, 10 + self._draws()))
        return settings, float(np.mean(found[settings.averaging]))

    def risk(self, point: Point) -> Risk:
        return self.compared.risk(self.settings(point))

    def _least(self, points: Sequence[Point], *, harmless: bool = True) -> Point:
        """The point of least risk, the first among equals; all have the same number of steps. ``harmless`` : harm
        counts. Times beyond what the steps come to have the same settings."""
        wanted = [self.settings(point) for point in points]
        return points[wanted.index(self.compared.least(wanted, lambda risk: risk[0] if harmless else risk[1]))]

    def _risks(self, settings: Sequence[Settings]) -> list[Risk]:
        found = self._simulated(settings, self.choosers, range(self._draws()))
        risks = list[Risk]()
        for k, each in enumerate(settings):
            scores = {kind: self._scores(found[kind][k]) for kind in self.averagings}
            best = min(scores, key=lambda kind: scores[kind])
            risks.append((*scores[best], replace(each, averaging=best)))
        return risks

    def _scores(self, found: Floats) -> tuple[float, float]:
        """What settings are chosen by, and its part that tells whether anything is learnt.

        That is the mean logarithm of the excess in the choosing populations (over that of knowing nothing), so that
        those in which nothing can be learnt with this budget do not decide for those in which something can. Where
        labels hardly depend on the columns, noise is only asked to do no harm: being worse than the public point
        counts.
        """
        with np.errstate(divide="ignore", over="ignore"):
            shares = np.maximum(found, 0.0) / np.maximum(self.choosers.nothing, 1e-300)
        weak = self.model.loss.labels == "number"
        gain = float(np.log(NEGLIGIBLE + shares[:-1] if weak else NEGLIGIBLE + shares).mean())
        return ((1 - _WEAK) * gain + _WEAK * math.log(max(shares[-1], 1.0)) if weak else gain), gain

    def _draws(self) -> int:
        return min(max(_DRAWS // self.model.size, 1), 2) if projects_exactly(self.model.domain) else 1

    def settings(self, point: Point) -> Settings:
        """Steps no longer than the curvature allows; what is missing to tau by momentum."""
        steps, tau, longest = point.steps, point.time, self.longest * point.length
        momentum = min(max(0.0, 1 - longest * steps / tau), 1 - 3 / max(steps, 3)) if self.momentum else 0.0
        step = min(longest, tau * (1 - momentum) / steps)
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
        most = max(NOISY_NUMBERS // max(self.model.size, 1), _LEAST_STEPS)
        # Elsewhere a projection is a solve of its own.
        return min(most, _MOST_STEPS if projects_exactly(self.model.domain) else 16)

    def _last(self, points: Sequence[Point]) -> Point:
        """The last of them before one that costs more than (nearly) nothing beside the first."""
        most = self.risk(points[0])[0] + _TIE
        return list(takewhile(lambda point: self.risk(point)[0] <= most, points))[-1]


# ----------------------------------------------------------------------------------------------------- samples
@cached
def _multiplier(model: PrivateRegression, epsilon: float, delta: float, rate: float, steps: int) -> float:
    # Neighbours differ in two vectors; an absent record without constant columns has none.
    replaced = not model.row.absent or model.row.fixed(2.0) > 0
    return subsampled_multiplier(epsilon, delta, rate, steps, replace=replaced)


@dataclass(frozen=True)
class SampledNoise(StepNoise):
    """Noise on sums over samples of rate ``rate``, divided by the rate; ``multiplier`` as in ``privacy.subsampling``.

    One record's vector ``omega_i s_i M a_i`` has norm at most ``size(clip)``, rounding included; where its coin is
    False, both databases add up the same rows in the same order.
    """

    rate: float = 1.0
    multiplier: float = 1.0

    def size(self, clip: float) -> float:
        model, norm = self.model, self.metric.row.norm(2.0)
        rounding = 8 * (model.count + 8) * 2.0**-53 * model.total * clip * self.metric.uncentred[2.0]
        return model.largest_weight * clip * norm * (1 + 1e-12) + rounding

    def scale(self, clip: float) -> float:
        """Standard deviation of the noise on each sum over the sample."""
        return self.multiplier * self.size(clip)

    @property
    def simulated_scale(self) -> float:
        """What privacy and sampling add to the sums over all rows, the latter for derivatives of half their clip."""
        model = self.model
        sampled = model.total * model.largest_weight * (1 - self.rate) / self.rate
        drawn = sampled * (self.metric.row.norm(2.0) / 2) ** 2 / model.size
        return math.hypot(self.scale(1.0) / self.rate, math.sqrt(drawn))


def sampled_gradient(noise: SampledNoise, rows: Table, source: NoiseSource) -> Gradient:
    """w -> noisy gradient of the data part from one sample, in the metric's coordinates."""
    model, metric, loss = noise.model, noise.metric, noise.model.loss

    def gradient(w: Floats) -> Floats:
        clip = noise.bound(w)
        coins = poisson_coins(source, noise.rate)
        drawn = rows.map_reduce(partial(part_sampled, coins=coins, loss=loss, w=w, clip=clip), step=WHOLE)
        sums = PrivateArray(metric.sums(drawn))
        return model.scale / noise.rate * noise.draw(source, sums, noise.scale(clip))

    return gradient


def part_sampled(part: Rows, coins: PoissonCoins, loss: Loss, w: Floats, clip: float) -> PrivateArray:
    """(p,) ``part_gradient`` of the rows whose coins are True."""
    return part_gradient(part.part(np.flatnonzero(coins.of(part.first, part.count))), loss, w, clip)


# ----------------------------------------------------------------------------------------------------- theorem
def averaged_excess(noise: StepNoise, settings: Settings, beta: float) -> float | None:
    """Proved bound, or None where the theorem does not speak (momentum, other averages, Laplace noise, unbounded sets,
    penalties that are not quadratic, several scores).

    Theorem. Points u_t of a convex set U, ``u_{t+1} = P_U(u_t - h (g_t + x_t))``, g_t a subgradient of f at u_t with
    ``|g_t| <= G``, x_t given the past N(0, s_t^2 I) with s_t <= s, plus a fixed N(0, r^2 I) vector x. The mean of the
    T points has, with probability 1 - beta, ``f(mean) - f(u*) <= R^2 / (2 h T) + (h / 2)(G + N)^2 + D s sqrt(2 l / T) +
    D Q`` with R = max |u_0 - u|, D the diameter, l = ln(3 / beta), ``N = s (sqrt(p) + sqrt(2 l / T)) + Q`` and
    ``Q = r (sqrt(p) + sqrt(2 l))``.

    Proof. Projection does not increase distances: ``<g_t + e_t, u_t - u*> <= (|u_t - u*|^2 - |u_{t+1} - u*|^2) / 2h +
    (h/2) |g_t + e_t|^2``, e_t all noise of step t. Sum over t; convexity turns ``<g_t, u_t - u*>`` into excess. Given
    the past ``<x_t, u* - u_t>`` is normal with variance at most s^2 D^2, so their sum has the tail of a normal of
    variance T s^2 D^2 (supermartingale exp): the third term, except w.p. beta/3. ``|x| <= Q`` except w.p. beta/3
    (Gaussian concentration of the norm), likewise ``sqrt(sum |x_t|^2) <= s (sqrt(T p) + sqrt(2 l))``, where scaling x_t
    up to s only increases it. Minkowski in t bounds the root mean square of |g_t + e_t| by G + N.
    """
    model, metric, penalty = noise.model, noise.metric, noise.model.penalty
    if (
        isinstance(noise, SampledNoise)
        or settings.clip < math.inf
        or settings.momentum
        or settings.averaging != "all"
        or noise.order != 2
        or not penalty.smooth
        or model.scores > 1
    ):
        return None
    if not math.isfinite(model.prediction_bound) or not model.domain.bounded or not metric.diagonal:
        return None
    stretch = float((1 / metric.scale).max())  # |v| <= |w| max 1 / scale
    diameter, far = stretch * model.domain.diameter(2.0), stretch * model.domain.norm(2.0)
    center = float(np.linalg.norm(metric.coordinates(public_point(model))))
    radius = min(diameter, far + center)
    z, y = model.prediction_bound, model.row.label_bound
    bound = model.loss.rest_bound(z, y) if settings.share > 0 else model.loss.derivative_bound(z, y)
    p, steps, log = model.size, settings.steps, math.log(3 / beta)
    wide, once = model.scale * noise.scale(bound), model.scale * noise.middle_scale
    linear = float(np.linalg.norm(metric.sums(penalty.linear)))
    public = float((2 * metric.scale * penalty.ridge).max(initial=0.0)) * model.domain.norm(2.0) + linear
    derivative = model.weight * model.derivative_bound * metric.row.norm(2) + public
    fixed = once * (math.sqrt(p) + math.sqrt(2 * log))
    square = derivative + wide * (math.sqrt(p) + math.sqrt(2 * log / steps)) + fixed
    bound = radius**2 / (2 * settings.step * steps) + settings.step / 2 * square * square
    return bound + diameter * (wide * math.sqrt(2 * log / steps) + fixed)


NOISY_DESCENT = NoisyDescent()
__all__ = ["NOISY_DESCENT", "NoisyDescent"]
