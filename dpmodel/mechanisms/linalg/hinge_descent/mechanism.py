"""Noisy descent on the hinge of private inequalities: a point that satisfies nearly all of them, exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpmodel._types import Floats
from dpmodel.mechanisms.contract import YES, Mechanism, Progress, Request, Serves, Verdict, no_progress
from dpmodel.mechanisms.forecast import Bound, Forecast
from dpmodel.mechanisms.linalg import cones
from dpmodel.mechanisms.linalg.cones import Chosen, Draw
from dpmodel.mechanisms.linalg.found import Found
from dpmodel.mechanisms.linalg.grid_rows import GridRows, grid_point
from dpmodel.mechanisms.linalg.hinge_descent.bounds import RATE, HingePlan, plan_hinge, proved_missed
from dpmodel.mechanisms.linalg.synthetic import forecast_missed, least_seen, public_noise
from dpmodel.mechanisms.linalg.systems import PrivateInequalities
from dpmodel.numerics.polytopes.cone_projection import into_ball, projector
from dpmodel.privacy import NoiseSource

# Steps of a simulated run: with fewer steps than planned it is worse, so the forecast errs to the safe side.
_SIMULATED_STEPS, _FEW_SEEDS, _MANY_SEEDS = 1600, 11, 21


@dataclass(frozen=True)
class HingeDescent(Mechanism[PrivateInequalities]):
    """Minimise ``f(y) = sum_i (tau - <a_i, y>)_+`` over the public cone's part in the unit ball by noisy subgradients.

    Source
        Noisy gradient descent (Bassily, Smith and Thakurta 2014) with AdaGrad-norm rates (Streeter and McMahan 2010) on
        the homogeneous form of KMMST24, section 6; constants proved in ``hinge_bounds``.
    Privacy
        Private values enter through the D sums ``sum of a_i over <a_i, y_t> < tau`` of each step and k = 3 counts at
        the end. Given the released numbers, which fix y_t, whether row i takes part depends on row i alone, and exactly
        so: rows and points are on grids (``grid_rows``). So the sums move by one row, of 2-norm at most ``1 + 1e-11 +
        sqrt(D) 2^-25``, under add-remove, and by twice that under replace-one (``sum_sensitivity``); the counts by
        sqrt(3) (``CountNoise``). All noise is Gaussian: T steps with 0.9 of rho and the counts with 0.1, adaptively
        composed to mu-GDP exactly (``Spend``). For delta = 0: Laplace noise by 1-norms, epsilon split evenly in the
        same shares. T, tau, the lower bound of the rates and the shares are public facts; rates, projections, averages
        and the choice are functions of released numbers. The number of rows enters nothing else.
    Utility
        If the promised margin holds, the missed rows are at most ``proved_missed`` with probability 1 - beta: a noise
        part ``(3 sqrt(D) + 2 q) D2 / (tau sqrt(2 rho))`` whatever n, plus ``9 n / (4 gamma tau T)``. Simulations on
        planted systems (``synthetic``) are mostly far below; the forecast is the smaller of the two.
    Cost
        T <= 3200 products with the rows and their transpose, T D noisy numbers (at most 100,000).
    """

    serves: ClassVar[Serves] = Serves(PrivateInequalities)
    name: str = "hinge-descent"
    source: str = "Bassily, Smith and Thakurta 2014, on the homogeneous form of KMMST24, section 6"

    def eligible(self, model: PrivateInequalities, request: Request) -> Verdict:
        return cones.cone_eligible(model) or YES

    def at_least(self, model: PrivateInequalities, request: Request) -> tuple[Bound, ...]:
        """The forecast is the smaller of what is proved and of what simulations count, at least ``least_seen``."""
        plan = plan_hinge(model, request)
        steps, seeds = _simulations(plan)
        least = min(proved_missed(model, request, plan), least_seen(model, steps=steps, seeds=seeds))
        return cones.hoped(model, least)

    def forecast(self, model: PrivateInequalities, request: Request) -> Forecast:
        plan = plan_hinge(model, request)
        proved, (steps, seeds) = proved_missed(model, request, plan), _simulations(plan)
        median, high = forecast_missed(
            model, request, self.name, lambda rows, weight, seed: _simulate(model, plan, rows, weight, seed),
            steps=steps, seeds=seeds, nothing=cones.nothing(model, proved),
        )  # fmt: skip
        return cones.cone_forecast(
            model, request, proved, median, high,
            noise={
                "kind": plan.kind, "scale of each sum": plan.scale, "sums": model.cone_dimension, "steps": plan.steps,
                "change by one record": plan.sensitivity, "scale of each count": plan.counts.scale,
                "counts": len(cones.NAMES), "tau": plan.level,
            },
            work=f"{plan.steps} steps: two products with the private rows and noise on {model.cone_dimension} sums",
        )  # fmt: skip

    def run(
        self, model: PrivateInequalities, request: Request, noise: NoiseSource, progress: Progress = no_progress
    ) -> Found:
        plan = plan_hinge(model, request)
        rows = GridRows.of(model.lifted(*model.read_rows()))
        draw = noise.laplace if plan.kind == "laplace" else noise.gaussian
        return cones.answer(model, _search(rows, model, plan, draw, progress))


def descend(
    rows: GridRows, model: PrivateInequalities, plan: HingePlan, draw: Draw, progress: Progress
) -> tuple[Floats, ...]:
    """The candidates of T steps, each in the cone; of the rows only what ``draw`` returns is used."""
    onto, y, squares = projector(model.cone), np.zeros(rows.size), 0.0
    requested = np.empty((plan.steps, rows.size))
    for step in range(plan.steps):
        if step % 64 == 0:
            progress(f"hinge descent, {plan.steps} steps", step / plan.steps)
        requested[step] = y
        released = draw(rows.sum(rows.below(y, plan.level)), plan.scale)
        squares += float(released @ released)
        y = grid_point(into_ball(onto(y + RATE / max(math.sqrt(squares), plan.lower_bound) * released)))
    return cones.candidates(requested)


def _search(rows: GridRows, model: PrivateInequalities, plan: HingePlan, draw: Draw, progress: Progress) -> Chosen:
    """Steps and choice, on real rows and synthetic ones alike."""
    points = list(map(cones.finisher(model), descend(rows, model, plan, draw, progress)))
    return plan.counts.choose(points, draw(cones.missed_counts(rows, points), plan.counts.scale))


def _simulations(plan: HingePlan) -> tuple[int, int]:
    """Steps of a simulated run, and how many runs there are."""
    return min(plan.steps, _SIMULATED_STEPS), _MANY_SEEDS if plan.steps <= _SIMULATED_STEPS // 4 else _FEW_SEEDS


def _simulate(model: PrivateInequalities, plan: HingePlan, rows: Floats, weight: float, seed: int) -> Floats:
    """(D,) the answer on synthetic rows, with synthetic noise: the same budget over fewer steps."""
    steps = min(plan.steps, _SIMULATED_STEPS)
    shrink = steps / plan.steps if plan.kind == "laplace" else math.sqrt(steps / plan.steps)
    shorter = replace(
        plan,
        steps=steps,
        scale=plan.scale * shrink,
        lower_bound=plan.lower_bound * shrink * math.sqrt(steps / plan.steps),
    )
    draw = public_noise(plan.kind, 1_000_003 + seed)
    return _search(GridRows.of(rows, weight), model, shorter, draw, no_progress).y


HINGE_DESCENT = HingeDescent()
