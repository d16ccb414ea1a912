"""Jointly private convex programming (Hsu, Huang, Roth and Wu 2016), Algorithm 1: noisy gradient steps on prices."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from dpmodel._types import Floats
from dpmodel.contract import YES, Mechanism, Options, Progress, Serves, Verdict, counted, no_progress
from dpmodel.forecast import Forecast, ShareOfOptimum
from dpmodel.joint.descent import margin
from dpmodel.joint.model import JointModel
from dpmodel.joint.noisy_prices import demand_of
from dpmodel.joint.outcome import Prices
from dpmodel.privacy import Cost, NoiseSource, gaussian_mu

# Answers of people, over all steps, beyond which a run is refused; and prices that are kept.
_MOST_ANSWERS, _MOST_STEPS = 5_000_000_000, 1_000_000


@dataclass(frozen=True)
class Public:
    """What is public of a problem. ``capacity`` (m,), ``people`` : n, ``radius`` : of one person's use, in the 2-norm,
    ``sensitivity`` : of the demand of all, ``bound`` : of the best prices, in the norm of the algorithm."""

    capacity: Floats
    people: int
    radius: float
    sensitivity: float
    bound: float


@dataclass(frozen=True)
class Steps:
    """``count`` steps of size ``rate``, with noise of standard deviation ``noise`` on every demand."""

    count: int
    noise: float
    rate: float


@dataclass(frozen=True)
class JointlyPrivateProgramming(Mechanism[JointModel]):
    """Algorithm 1 with its own noise, step size, number of steps and plain average, as a yardstick.

    Prices start at 0; in each of T steps people answer, and ``p <- Proj(p + eta (d~ - b))`` onto p >= 0 with
    ``||p||_2 <= 2 tau``. A person's share is the plain mean of the T answers.

    Source
        Hsu, Huang, Roth and Wu, Jointly Private Convex Programming, SODA 2016 (arXiv 1411.0998), Algorithm 1. Of the
        text abstract and introduction were at hand; the algorithm and its constants are written from memory and could
        not be compared: ``T = w^2``, ``epsilon' = epsilon / sqrt(8 T ln(2 / delta))``, ``delta' = delta / (2 T)``,
        noise of variance ``2 Delta^2 ln(1.25 / delta') / epsilon'^2``, ``eta = 2 tau / (sqrt(T) (w + Delta / epsilon'
        ln(T m / beta)))``, with w the width (a bound on the 2-norm of the demand less b: ``n G``), tau a bound on the
        2-norm of the best prices, and Delta the sensitivity.
        Added, 0 as printed: ``margin``, a part of each capacity that is not planned with.
    Privacy
        A person's answer is a function of prices and their row, and uses at most G in the 2-norm, a bound that follows
        from declarations. Sensitivity of a demand as in ``NoisyPrices``: ``sqrt(2) G``, G where records may be absent.
        Each step is a Gaussian mechanism with (epsilon', delta'); advanced composition. It holds where
        ``epsilon' <= 1``; should the noise be less than (epsilon, delta) needs by exact composition, it is raised to
        that. What is charged is the exact law, which is far below the budget. Joint privacy as in ``NoisyPrices``.
    Utility
        The paper bounds the total violation and the loss by a constant times ``tau m^2 / epsilon``, up to logarithms:
        capacities are exceeded, on average over the resources. Nothing scales shares down. Bounds on what people may
        use are those of the noise alone.
    Cost
        T passes over the people; T as printed is ``(n G)^2``, which nobody waits for.
    Errors
        Refuses by ``eligible``: delta = 0, private capacities, whole shares, no bound on a person's use, no bound on
        prices (``dual_bound``, or declared bounds of values: by weak duality ``p'b`` is at most n values), and more
        steps than can be waited for.

    ``steps`` : T, ``pace`` : a factor of eta, ``margin``, and ``dual_bound`` : tau.
    """

    serves: ClassVar[Serves] = Serves(JointModel, as_printed=True, reads_blocks=True)
    steps: int | None = None
    pace: float = 1.0
    margin: float = 0.0
    dual_bound: float | None = None
    name: str = "jointly-private-programming"
    source: str = "Hsu, Huang, Roth and Wu 2016, Algorithm 1"

    # ------------------------------------------------------------------ the algorithm
    def settings(self, given: Public, options: Options) -> Steps:
        """T, noise and step size, from public facts."""
        width = given.people * given.radius
        count = self.steps or math.ceil(width**2)
        epsilon = options.epsilon / math.sqrt(8 * count * math.log(2 / options.delta))
        delta = options.delta / (2 * count)
        printed = given.sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon
        exact = given.sensitivity * math.sqrt(count) / gaussian_mu(options.epsilon, options.delta)
        tail = given.sensitivity / epsilon * math.log(count * given.capacity.size / options.beta)
        return Steps(count, max(printed, exact), self.pace * 2 * given.bound / (math.sqrt(count) * (width + tail)))

    def start(self, given: Public) -> Floats:
        """(m,) the first prices."""
        return np.zeros(given.capacity.size)

    def moved(self, prices: Floats, gradient: Floats, rate: float, given: Public) -> Floats:
        """The next prices; ``gradient`` (m,) : noisy demand less capacity."""
        return within(np.maximum(prices + rate * gradient, 0.0), 2 * given.bound)

    def walk(
        self, measure: Callable[[Floats, float], Floats], given: Public, options: Options
    ) -> tuple[Floats, Floats]:
        """(T, m) prices and demands as released; ``measure(prices, scale)`` : a demand with noise of this scale."""
        plan, planned = self.settings(given, options), (1 - self.margin) * given.capacity
        prices, demand = np.empty((2, plan.count, planned.size))
        p = self.start(given)
        for t in range(plan.count):
            prices[t], demand[t] = p, measure(p, plan.noise)
            p = self.moved(p, demand[t] - planned, plan.rate, given)
        return prices, demand

    # ------------------------------------------------------------------ as a mechanism
    def public(self, model: JointModel) -> Public:
        radius = model.largest_use
        return Public(model.planned_capacity, model.count, radius, model.sensitivity(radius), self._bound(model))

    def _bound(self, model: JointModel) -> float:
        """tau: given, or what declared bounds of values imply."""
        if self.dual_bound is not None:
            return self.dual_bound
        least = float(model.planned_capacity.min(initial=math.inf))
        return model.count * model.most_value / least if least > 0 else math.inf

    def eligible(self, model: JointModel, options: Options) -> Verdict:
        if options.delta == 0:
            return Verdict(False, "Gaussian noise needs delta > 0, such as 1e-6")
        if model.capacity_sensitivity:
            return Verdict(False, "capacities are private")
        if model.form.integral:
            return Verdict(False, "shares are whole, and it hands out averages")
        if not math.isfinite(model.largest_use):
            return Verdict(False, "nothing that is declared bounds one person's use")
        given = self.public(model)
        if not math.isfinite(given.bound):
            return Verdict(False, "it needs a bound on prices: bounds= on what things are worth, or dual_bound=")
        count = self.settings(given, options).count
        if count > _MOST_STEPS or count * model.count > _MOST_ANSWERS:
            return Verdict(False, f"it would take {count:.2g} passes over {model.count} people; steps= for fewer")
        return YES

    def forecast(self, model: JointModel, options: Options) -> Forecast:
        given = self.public(model)
        plan = self.settings(given, options)
        spread = margin(plan.noise / math.sqrt(plan.count), options.beta, given.capacity.size)
        needed = min(spread / max(float(np.median(given.capacity)), 1e-300), 1.0)
        return Forecast(
            statement="capacities may be exceeded, by amounts that are bounded up to constants",
            epsilon=options.epsilon,
            delta=options.delta,
            beta=options.beta,
            error=ShareOfOptimum(math.nan, max(needed, self.margin)),
            proved=False,
            work=f"{plan.count} passes over the people",
            noise={"demand": {"kind": "gaussian", "scale": plan.noise}, "steps": plan.count, "step size": plan.rate},
            caveats=(
                "for study: nothing keeps resources within their capacities; what is said to be left free is what "
                "its noise would need",
            ),
            event=Cost.gaussian(math.sqrt(plan.count) * given.sensitivity / plan.noise),
        )

    def run(self, model: JointModel, options: Options, noise: NoiseSource, progress: Progress = no_progress) -> Prices:
        given, table = self.public(model), model.read_table()
        plan, demand_at = self.settings(given, options), partial(demand_of, model.form, radius=given.radius)
        step = counted("prices", plan.count, progress)

        def measure(prices: Floats, scale: float) -> Floats:
            step()
            return np.asarray(noise.gaussian(table.map_reduce(partial(demand_at, prices)), scale))

        prices, demand = self.walk(measure, given, options)
        spread = margin(plan.noise / math.sqrt(plan.count), options.beta, given.capacity.size)
        return Prices(
            status="optimal",
            prices=prices,
            weights=np.full(plan.count, 1 / plan.count),
            scales=np.ones(given.capacity.size),
            radius=given.radius,
            demand=demand,
            at_most=demand.mean(axis=0) + spread,
            beta=options.beta,
            statement="capacities may be exceeded",
        )


def within(p: Floats, bound: float) -> Floats:
    """The nearest point of the ball of this 2-norm."""
    length = float(np.linalg.norm(p))
    return p * (bound / length) if length > bound else p


JOINTLY_PRIVATE_PROGRAMMING = JointlyPrivateProgramming()
__all__ = ["JOINTLY_PRIVATE_PROGRAMMING", "JointlyPrivateProgramming"]
