"""Noisy descent on the hinge of private inequalities: a point that satisfies nearly all of them, exactly."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpmodel._types import Floats
from dpmodel.mechanisms.contract import YES, Mechanism, Progress, Request, Serves, Verdict, no_progress
from dpmodel.mechanisms.forecast import Forecast, RowsMissed
from dpmodel.mechanisms.known import capped
from dpmodel.mechanisms.linalg.found import Found
from dpmodel.mechanisms.linalg.hinge_descent.bounds import RATE, HingePlan, plan_hinge, proved_missed
from dpmodel.mechanisms.linalg.hinge_descent.choice import NAMES, Iterates, choose, choose_public
from dpmodel.mechanisms.linalg.hinge_descent.rows import GridRows, answer_of, cone_eligible, finisher, grid_point
from dpmodel.mechanisms.linalg.synthetic import forecast_missed
from dpmodel.mechanisms.linalg.systems import PrivateInequalities, known_of
from dpmodel.mechanisms.spend import Spend
from dpmodel.numerics.polytopes.cone_projection import Projector, into_ball, projector
from dpmodel.privacy import NoiseSource, public_generator

# Steps of a simulated run: with fewer steps than planned it is worse, so the forecast errs to the safe side.
_SIMULATED_STEPS, _FEW_SEEDS, _MANY_SEEDS = 1600, 11, 21


def descend(
    noisy_sum: Callable[[Floats], Floats], onto: Projector, size: int, plan: HingePlan, progress: Progress
) -> tuple[Floats, ...]:
    """The candidates of T steps, in the order of ``hinge_choice.NAMES``, each in the cone.

    ``noisy_sum`` : from the grid point asked at to the (D,) released sum of the active rows.
    """
    y, squares = np.zeros(size), 0.0
    iterates = Iterates(size, plan.steps)
    for step in range(plan.steps):
        if step % 64 == 0:
            progress(f"hinge descent, {plan.steps} steps", step / plan.steps)
        iterates.add(y)
        released = noisy_sum(y)
        squares += float(released @ released)
        y = grid_point(into_ball(onto(y + RATE / max(math.sqrt(squares), plan.floor) * released)))
    return iterates.candidates()


@dataclass(frozen=True)
class HingeDescent(Mechanism[PrivateInequalities]):
    """Minimise ``f(y) = sum_i (tau - <a_i, y>)_+`` over the public cone's part in the unit ball by noisy subgradients.

    Source
        Noisy gradient descent (Bassily, Smith and Thakurta 2014) with AdaGrad-norm rates (Streeter and McMahan 2010) on
        the homogeneous form of KMMST24, section 6; constants proved in ``hinge_bounds``.
    Privacy
        Private values enter through the D sums ``sum of a_i over <a_i, y_t> < tau`` of each step and k = 3 counts at
        the end. Given the released numbers, which fix y_t, whether row i takes part depends on row i alone, and exactly
        so: rows and points are on grids (``hinge_rows``). So the sums move by one row, of 2-norm at most
        ``1 + 1e-11 + sqrt(D) 2^-25``, under add-remove, and by twice that under replace-one (``sum_change``); the
        counts by sqrt(3) (``CountNoise``). All noise is Gaussian: T steps with 0.9 of rho and the counts with 0.1,
        adaptively composed to mu-GDP exactly (``Spend``). For delta = 0: Laplace noise by 1-norms, epsilon split evenly
        in the same shares. T, tau, the floor of the rates and the shares are public facts; rates, projections, averages
        and the choice are functions of released numbers. The number of rows enters nothing else.
    Utility
        If the promised margin holds, the missed rows are at most ``proved_missed`` with probability 1 - beta: a noise
        part ``(3 sqrt(D) + 2 q) D2 / (tau sqrt(2 rho))`` whatever n, plus ``9 n / (4 gamma tau T)``. Simulations on
        planted systems (``planted``) are mostly far below; the forecast is the smaller of the two.
    Cost
        T <= 3200 products with the rows and their transpose, T D noisy numbers (at most 100,000).
    """

    serves: ClassVar[Serves] = Serves(PrivateInequalities)
    name: str = "hinge-descent"
    source: str = "Bassily, Smith and Thakurta 2014, on the homogeneous form of KMMST24, section 6"

    def eligible(self, model: PrivateInequalities, request: Request) -> Verdict:
        return cone_eligible(model) or YES

    def forecast(self, model: PrivateInequalities, request: Request) -> Forecast:
        plan = plan_hinge(model, request)
        proved = proved_missed(model, request, plan)
        median, high = forecast_missed(
            model, request, self.name, lambda rows, weight, seed: _simulate(model, plan, rows, weight, seed),
            steps=min(plan.steps, _SIMULATED_STEPS),
            seeds=_MANY_SEEDS if plan.steps <= _SIMULATED_STEPS // 4 else _FEW_SEEDS,
        )  # fmt: skip
        return cone_forecast(
            model, request, proved, median, high,
            noise={
                "kind": plan.kind, "scale of each sum": plan.scale, "sums": model.cone_dimension, "steps": plan.steps,
                "change by one record": plan.change, "scale of each count": plan.counts.scale, "counts": len(NAMES),
                "tau": plan.level,
            },
            work=f"{plan.steps} steps: two products with the private rows and noise on {model.cone_dimension} sums",
        )  # fmt: skip

    def run(
        self, model: PrivateInequalities, request: Request, noise: NoiseSource, progress: Progress = no_progress
    ) -> Found:
        plan = plan_hinge(model, request)
        rows = GridRows.of(model.lifted(*model.read_rows()))
        draw = noise.laplace if plan.kind == "laplace" else noise.gaussian

        def noisy_sum(y: Floats) -> Floats:
            return draw(rows.sum(rows.below(y, plan.level)), plan.scale)

        found = descend(noisy_sum, projector(model.cone), model.cone_dimension, plan, progress)
        finish = finisher(model)
        points = [finish(point) for point in found]
        best, missed = choose(rows, points, plan.counts, noise)
        return finished(model, points[best], missed, f"of three candidates by noisy counts: {NAMES[best]}")


def finished(model: PrivateInequalities, y: Floats, missed: float, note: str) -> Found:
    """What a cone mechanism hands back for the released grid point y."""
    if not np.any(y):
        return Found("nothing", None, missed, (note, "every direction found was outside the public cone"))
    return Found("found", answer_of(model, y), missed, (note,))


def cone_forecast(
    model: PrivateInequalities,
    request: Request,
    proved: float,
    median: float,
    high: float,
    noise: dict[str, object],
    work: str,
) -> Forecast:
    """The forecast from a proved and a simulated number of missed rows."""
    missed, theorem = min(proved, high), proved <= high and proved < model.expected
    enough = 2.0 * math.floor(missed) + 1
    # Twice the square root of D / (2 rho), over the margin: the noise that descent in D dimensions cannot average away.
    least = 2 * _noise_floor(request) * math.sqrt(model.cone_dimension) / float(model.margin or math.nan)
    said = "nothing proved at this size"
    if proved < model.expected:
        words = f"at most {proved:.0f} of up to {model.expected} rows violated"
        said = f"{words} with probability {1 - request.beta:g} (proved)"
    statement = (
        f"{said}; in simulations on made-up rows with the promised margin {median:.0f} in the median, {high:.0f} "
        f"at quantile {1 - request.beta:g}, of about {model.expected} rows"
    )
    forecast = Forecast(
        statement,
        request.epsilon,
        request.delta,
        request.beta,
        proved=theorem,
        error=RowsMissed(missed, enough if enough <= model.expected else max(enough, least)),
        work=work,
        noise={**noise, "missed, proved": proved, "missed, simulated": high},
        caveats=(
            "all of it rests on the promised margin; without it privacy holds and utility may fail",
            *(() if theorem else ("simulated on made-up rows: real ones may be missed more often",)),
        ),
    )
    return capped(forecast, known_of(model))


def _noise_floor(request: Request) -> float:
    spend = Spend.of(request.epsilon, request.delta, gaussian_only=True)
    return 1 / math.sqrt(2 * spend.rho) if spend.rho is not None else 1 / spend.epsilon


def _simulate(model: PrivateInequalities, plan: HingePlan, rows: Floats, weight: float, seed: int) -> Floats:
    """(D,) the answer on made-up rows, with made-up noise."""
    steps = min(plan.steps, _SIMULATED_STEPS)
    # The same budget over fewer steps.
    shrink = steps / plan.steps if plan.kind == "laplace" else math.sqrt(steps / plan.steps)
    scale, size = plan.scale * shrink, model.cone_dimension
    shorter = replace(plan, steps=steps, scale=scale, floor=plan.floor * shrink * math.sqrt(steps / plan.steps))
    generator = public_generator(1_000_003 + seed)

    def draw(kind: str, scale: float, count: int) -> Floats:
        return generator.laplace(0.0, scale, count) if kind == "laplace" else generator.normal(0.0, scale, count)

    def noisy_sum(y: Floats) -> Floats:
        return weight * (rows.T @ (rows @ y < plan.level)) + draw(plan.kind, scale, size)

    finish = finisher(model)
    points = [finish(p) for p in descend(noisy_sum, projector(model.cone), size, shorter, no_progress)]
    return points[choose_public(rows, weight, points, plan.counts, draw)]


HINGE_DESCENT = HingeDescent()
__all__ = ["HINGE_DESCENT", "HingeDescent", "cone_forecast", "descend", "finished"]
