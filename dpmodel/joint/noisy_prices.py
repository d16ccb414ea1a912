"""Prices from noisy demands: people who own their variables get shares that depend on others through prices alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from dpmodel._types import Floats, PrivateArray
from dpmodel.contract import YES, Mechanism, Options, Progress, Serves, Verdict, counted, no_progress
from dpmodel.forecast import Forecast, ShareOfOptimum
from dpmodel.joint.bounds import planned_margin, statement_of, value_lost
from dpmodel.joint.descent import Path, descend, look, looks_share, margin
from dpmodel.joint.form import Form, People
from dpmodel.joint.model import CELLS, JointModel
from dpmodel.joint.outcome import Prices
from dpmodel.joint.respond import respond
from dpmodel.joint.simulation import Settings, radius_after, scales_of, settings_of
from dpmodel.privacy import Cost, NoiseSource, gaussian_mu, public_coins

# Share of the squared budget that private capacities get, and of beta.
_CAPACITY = 0.1


@dataclass(frozen=True)
class NoisyPrices(Mechanism[JointModel]):
    """Each person's best answers to public prices, averaged; prices follow noisy demands.

    Source
        Hsu, Huang, Roth and Wu 2016 (jointly private convex programming by noisy dual descent); Chen and Chua 2024;
        Nesterov 2009 (dual averaging). Weights, limits and statements: here.
    Privacy
        Unit: one person's row of data. At prices p person i answers with the x_i that is best for them within their own
        limits and ``||A_i x_i||_2 <= G`` (``respond``): a function of p, G and the person's row. What is released are
        the demands ``d_t = sum_i A_i x_i^t`` (m,), with Gaussian noise; G, the prices, all weights and all scales are
        functions of the demands released before and of public facts, and so is Delta, by which noise is scaled.
        *Sensitivity.* Fix the prices. Another row for one person changes one term of the sum, from u to u', both >= 0
        with 2-norms of at most G: ``||u - u'||^2 <= ||u||^2 + ||u'||^2 <= 2 G^2``, since ``u'u' >= 0`` for the inner
        product. Where a record may be absent, and then uses nothing, it is G. Sums of n terms in floating point are
        each off by at most ``(n + 4) 2^-53`` times the sum of sizes, n G; twice that, in the 2-norm, is added.
        *Composition.* Demand t has noise of the standard deviation ``Delta / (mu sqrt(q_t))``, with public q_t that add
        up to 1: it is ``mu sqrt(q_t)``-GDP, and all of them, adaptively, mu-GDP (Dong, Roth and Su 2022). mu is the
        largest with (epsilon, delta). Private capacities b get a q of their own: a Gaussian release of b, whose
        sensitivity is read off the model.
        *Joint privacy.* Fix person i and all other rows. The shares of all others are a function of their rows and the
        prices, so as far as person i is concerned they are post-processing of an (epsilon, delta)-DP release: what all
        others learn together, whoever they are, is (epsilon, delta)-DP in person i's row (the billboard lemma of Hsu,
        Huang, Roth, Roughgarden and Wu 2014). The share of person i may show that row, to whoever sees that share.
    Utility
        *No resource over its capacity, with probability 1 - beta, for all data.* The noise of the weighted mean of the
        demands is ``sum_t w_t Delta / (mu sqrt(q_t)) z_t`` with ``q_t = w_t (1 - q_0)``: independent, fixed before
        anything is drawn, so exactly Gaussian with standard deviation ``s = Delta / (mu sqrt(1 - q_0))``. With z the
        quantile at beta / m, ``U = sum_t w_t d~_t + z s`` is at least what the mean answers use, in all m resources.
        Shares are multiplied by ``min(1, b_j / U_j)``, an entry by the least of the resources that it may use; they
        stay within a person's limits, which x = 0 satisfies. (Private b: less its own quantile, beta / 2 each. Whole
        shares: half of that for the noise and half for the coins, ``integral``.)
        *Value.* Best answers give ``v(mean) >= OPT_G - sum_t w_t p_t'(b - d_t)``, where OPT_G is the best of what the
        limits G allow: v(x_t) - p_t'd_t is at least v(x) - p_t'b for every feasible x, and v is concave. d_t is
        released with noise; ``M = sum_t w_t p_t' (noise of d_t)`` is a martingale with the predictable variance
        ``V = s^2 sum_t w_t ||p_t||^2``. With rho fixed before, ``M^2 <= (V + rho) ln((V + rho) / (rho beta^2))`` with
        probability 1 - beta (mixture of ``exp(l M - l^2 V / 2)`` over l normal). So the loss is bounded by public
        numbers, in the unit of the objective, before the shares are scaled (``bounds.value_lost``). Where the ball
        binds and entries share resources, where a solver answers, and where answers are rounded, they may not be the
        best inside: nothing is said of their value.
        *Expected.* The mean share of the optimum on synthetic people drawn from declarations. G is the one with which
        they get most of what the margin leaves.
    Cost
        One pass over the people for each of 60 steps, or 120 where there is little noise, and 6 to 8 for the level.
    Errors
        Refuses by ``eligible``: delta = 0; whole shares of people whose use nothing limits.

    ``largest_use`` : G; None: what does best on synthetic people. ``steps`` : T; None: 60 or 120.
    """

    serves: ClassVar[Serves] = Serves(JointModel, cells=CELLS, reads_blocks=True)
    largest_use: float | None = None
    steps: int | None = None
    name: str = "noisy-prices"
    source: str = "Hsu, Huang, Roth and Wu 2016; Chen and Chua 2024"

    def eligible(self, model: JointModel, options: Options) -> Verdict:
        if options.delta == 0:
            return Verdict(False, "Gaussian noise needs delta > 0, such as 1e-6")
        if model.form.integral and not math.isfinite(model.largest_use):
            return Verdict(False, "shares are whole, and nothing that was declared (bounds=) limits one person's use")
        return YES

    def forecast(self, model: JointModel, options: Options) -> Forecast:
        settings, mu = self.settings(model, options), gaussian_mu(options.epsilon, options.delta)
        parts = Parts.of(model, options)
        noise = model.sensitivity(settings.radius) / parts.mu
        free = margin(noise, parts.beta, model.capacity.size) + float(np.median(parts.taken))
        unused = free / max(float(np.median(model.planned_capacity)), 1e-300)
        return Forecast(
            statement=planned_margin(free, unused, options.beta),
            epsilon=options.epsilon,
            delta=options.delta,
            beta=options.beta,
            error=ShareOfOptimum(settings.share, min(unused, 1.0)),
            work=f"{settings.steps + settings.search.looks + 1} passes over the people",
            noise={
                "demand": {"kind": "gaussian", "scale": noise, "largest_noise": noise},
                "largest_use": settings.radius,
                "steps": settings.steps,
            },
            caveats=_caveats(model, settings),
            remark=model.told(settings.share, settings.needed),
            event=Cost.gaussian(mu),
        )

    def settings(self, model: JointModel, options: Options) -> Settings:
        """G, T and the rest, from public facts."""
        key = "noisy-prices", options.epsilon, options.delta, options.beta, self.largest_use, self.steps
        parts = Parts.of(model, options)
        return model.cached(
            key, lambda: settings_of(model, 1 / parts.mu, parts.beta, parts.taken, self.largest_use, self.steps)
        )

    def run(self, model: JointModel, options: Options, noise: NoiseSource, progress: Progress = no_progress) -> Prices:
        settings, parts = self.settings(model, options), Parts.of(model, options)
        capacity, mu, beta = model.capacity, parts.mu, parts.beta
        if model.capacity_sensitivity:
            private = ~np.isfinite(capacity)
            noisy = np.asarray(noise.gaussian(model.read_capacity()[private], parts.spread))
            capacity = capacity.copy()
            capacity[private] = np.maximum(noisy - parts.taken[private], 0.0)
        table, step = model.read_table(), counted("prices", settings.steps + settings.search.looks + 1, progress)

        def measure(prices: Floats, scale: float, radius: float) -> Floats:
            step()
            demand = table.map_reduce(partial(demand_of, model.form, prices, radius=radius))
            return np.asarray(noise.gaussian(demand, scale))

        radius, size = settings.radius, capacity.size
        share = looks_share(model.sensitivity(radius) / mu, capacity)
        error = model.sensitivity(radius) / (mu * math.sqrt(share))
        level, total = look(partial(measure, radius=radius), size, error, settings.search)
        mu *= math.sqrt(1 - (settings.search.looks + 1) * share)
        if self.largest_use is None and model.form.single:
            radius = radius_after(model, settings, 1 / mu, beta, parts.taken, total, error * math.sqrt(size))
        spread = model.sensitivity(radius) / mu
        path = descend(partial(measure, radius=radius), capacity, level, spread, beta, settings.steps, settings.pace)
        return priced(model, path, capacity, radius, options.beta, beta)


@dataclass(frozen=True)
class Parts:
    """What demands get of the budget and of beta, ``mu`` and ``beta``; the deviation of the noise on private
    capacities, ``spread``, and how much lower these are ``taken`` (m,) than released."""

    mu: float
    beta: float
    spread: float
    taken: Floats

    @classmethod
    def of(cls, model: JointModel, options: Options) -> Parts:
        mu, beta, taken = gaussian_mu(options.epsilon, options.delta), options.beta, np.zeros(model.capacity.size)
        if not model.capacity_sensitivity:
            return cls(mu, beta, 0.0, taken)
        spread, private = model.capacity_sensitivity / (mu * math.sqrt(_CAPACITY)), ~np.isfinite(model.capacity)
        taken[private] = margin(spread, beta / 2, int(private.sum()))
        return cls(mu * math.sqrt(1 - _CAPACITY), beta / 2, spread, taken)


def demand_of(form: Form, prices: Floats, people: People, first: int, *, radius: float) -> PrivateArray:
    """(m,) what these people use at these prices. ``first`` : the number of the first of them."""
    return PrivateArray(respond(form, people, prices, radius)[1].sum(axis=0))


def priced(model: JointModel, path: Path, capacity: Floats, radius: float, beta: float, part: float) -> Prices:
    """What is released of a path. ``part`` : of beta, for the noise of the demands, and for coins."""
    whole = model.form.integral
    most = path.mean_demand + margin(path.noise, part, capacity.size)
    scales = scales_of(path, capacity, part, model.largest_use if whole else None)
    lost = value_lost(path, capacity, part) if _exact(model, radius) else math.nan
    return Prices(
        status="optimal",
        prices=path.prices,
        weights=path.weights,
        scales=scales,
        radius=radius,
        demand=path.demand,
        at_most=capacity if whole else np.minimum(most, capacity),
        beta=beta,
        lost=lost,
        statement=statement_of(scales, lost, beta, model.capacity_sensitivity > 0),
        seed=int(public_coins().integers(2**62)) if whole else None,
    )


def _exact(model: JointModel, radius: float) -> bool:
    """Whether answers are the best inside the limit of one person's use, as the value's statement needs: where they are
    found there, or where the limit keeps out nothing that is declared. Whole answers are rounded."""
    inside = model.form.separate or radius >= model.largest_use * (1 - 1e-12)
    return not model.form.integral and model.form.single and inside


def _caveats(model: JointModel, settings: Settings) -> tuple[str, ...]:
    own = f"one person's use is limited to {settings.radius:.3g} (2-norm)"
    if not math.isfinite(model.largest_use):
        return (f"{own}: nothing that was declared limits it",)
    return (own,) if settings.radius < model.largest_use * (1 - 1e-9) else ()


NOISY_PRICES = NoisyPrices()
