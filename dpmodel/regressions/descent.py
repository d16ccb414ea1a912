"""Projected gradient descent with Gaussian (pure budgets: Laplace) noise on sums of derivatives over the rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from dpmodel._types import Floats, PrivateArray
from dpmodel.contract import Options, Outcome, Progress, Serves, Verdict, counted
from dpmodel.errors import SpecificationError
from dpmodel.forecast import Forecast
from dpmodel.memo import cached
from dpmodel.privacy import LEAST_DELTA, NoiseSource, PoissonCoins, poisson_coins, subsampled_multiplier
from dpmodel.privacy.spend import Spend
from dpmodel.regressions.descent_search import DescentPlan, Search, clipped, judge_descent
from dpmodel.regressions.excess import PureToo, clip_note, excess_forecast
from dpmodel.regressions.losses import Loss
from dpmodel.regressions.model import PrivateRegression, public_point
from dpmodel.regressions.noisy_gradient import (
    Averaging,
    Gradient,
    Settings,
    StepNoise,
    descend,
    descent_metric,
    part_gradient,
    private_gradient,
)
from dpmodel.regressions.rows import WHOLE, Rows, Table

_SAMPLED_STEPS = 64


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
        steps release sums of the rest, which reaches half as far. T, step, momentum, share, averaging and clip are
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

    serves: ClassVar[Serves] = Serves(PrivateRegression, reads_blocks=True, classes=True)
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
    def gaussian(self) -> bool:
        """Not with samples: their price is that of (epsilon, delta) at one point, not of a mu."""
        return self.rate is None

    def eligible(self, model: PrivateRegression, options: Options) -> Verdict:
        if self.rate is not None and options.delta < LEAST_DELTA:
            return Verdict(False, f"samples are accounted for delta of at least {LEAST_DELTA:g}")
        return judge_descent(model, 1.0 if options.delta == 0 else 2.0)

    def plan(self, model: PrivateRegression, options: Options) -> DescentPlan:
        """Settings and their prediction, from public facts."""
        return _plan(model, self, options.epsilon, options.delta)

    def noise(self, model: PrivateRegression, options: Options, settings: Settings) -> StepNoise:
        """What steps with these settings need."""
        return _noise(self.rate, model, options.epsilon, options.delta, settings)

    def forecast_as_given(self, model: PrivateRegression, options: Options) -> Forecast:
        plan = self.plan(model, options)
        settings, noise = plan.settings, self.noise(model, options, plan.settings)
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
            predicted=plan.predicted,
            at_most=averaged_excess(noise, settings, options.beta),
            work=f"{passes}, noise on {model.size} sums in each",
            noise={**noise.described(settings), **details},
            caveats=clip_note(model, settings.clip),
        )

    def run_as_given(
        self, model: PrivateRegression, options: Options, noise: NoiseSource, progress: Progress
    ) -> Outcome:
        settings = self.plan(model, options).settings
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
def _plan(model: PrivateRegression, mechanism: NoisyDescent, epsilon: float, delta: float) -> DescentPlan:
    noise = partial(_noise, mechanism.rate, model, epsilon, delta)
    if mechanism.rate is not None:
        full = replace(mechanism, rate=None, steps=None).plan(model, Options(epsilon, delta))
        return Search(model, noise, pure=False, steps=mechanism.steps or _SAMPLED_STEPS).near(full.settings)
    return Search(
        model,
        noise,
        pure=delta == 0,
        steps=mechanism.steps,
        momentum=mechanism.momentum,
        averaging=mechanism.averaging,
        middle=mechanism.middle,
    ).best()


# ----------------------------------------------------------------------------------------------------- samples
@cached
def _multiplier(model: PrivateRegression, epsilon: float, delta: float, rate: float, steps: int) -> float:
    # Neighbours differ in two vectors; an absent record without constant columns has none.
    replaced = not model.row.absent or model.row.fixed(2.0) > 0
    return subsampled_multiplier(epsilon, delta, rate, steps, replace=replaced)


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
    reach = model.loss.rest_bound(z, y) if settings.share > 0 else model.loss.derivative_bound(z, y)
    p, steps, log = model.size, settings.steps, math.log(3 / beta)
    wide, once = model.scale * noise.scale(reach), model.scale * noise.middle_scale
    linear = float(np.linalg.norm(metric.sums(penalty.linear)))
    public = float((2 * metric.scale * penalty.ridge).max(initial=0.0)) * model.domain.norm(2.0) + linear
    derivative = model.weight * model.derivative_bound * metric.row.norm(2) + public
    fixed = once * (math.sqrt(p) + math.sqrt(2 * log))
    square = derivative + wide * (math.sqrt(p) + math.sqrt(2 * log / steps)) + fixed
    bound = radius**2 / (2 * settings.step * steps) + settings.step / 2 * square * square
    return bound + diameter * (wide * math.sqrt(2 * log / steps) + fixed)


NOISY_DESCENT = NoisyDescent()
__all__ = ["NOISY_DESCENT", "NoisyDescent"]
