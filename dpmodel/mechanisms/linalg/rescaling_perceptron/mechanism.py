"""The rescaling perceptron on a budget: a point of a public cone that satisfies nearly all private inequalities."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from dpmodel.mechanisms.contract import YES, Mechanism, Progress, Request, Serves, Verdict, no_progress
from dpmodel.mechanisms.forecast import Forecast, RowsMissed
from dpmodel.mechanisms.known import capped
from dpmodel.mechanisms.linalg.found import Found
from dpmodel.mechanisms.linalg.rescaling_perceptron.plan import SearchPlan, plan_search
from dpmodel.mechanisms.linalg.rescaling_perceptron.rows import GridRows, coarsest
from dpmodel.mechanisms.linalg.rescaling_perceptron.search import Draw, search
from dpmodel.mechanisms.linalg.synthetic import KINDS, instance
from dpmodel.mechanisms.linalg.systems import PrivateInequalities, known_of
from dpmodel.mechanisms.spend import Spend
from dpmodel.privacy import NoiseSource, public_generator

_SEEDS = 15  # the quantile 1 - beta of so many is their largest for beta below 1/14
# Runs on real one-hot rows (UCI Mushroom, the only such set looked at) missed up to four times what made-up rows say.
_CAUTION = 4.0
Rescaling = Literal["auto", "always", "never"]


@dataclass(frozen=True)
class RescalingPerceptron(Mechanism[PrivateInequalities]):
    """Perceptron steps on noisy sums of violated rows, in coordinates rescaled by noisy second moments.

    Source
        KMMST24, Algorithms 9 and 10 (after Dunagan and Vempala 2008): noisy averages of violated rows, rescaling,
        stopping on noisy counts. The constants there ask for millions of steps (``algorithm-10``). Here a round
        releases the sum and the number of the violated rows under one Gaussian noise, with more precision in later
        rounds; many small stretches along directions that no row opposes are replaced by one stretch by the inverse
        square root of the second moments (a normalisation that Blum, Frieze, Kannan and Vempala 1997 give perceptrons);
        candidates are averages of iterates, which in simulations miss far fewer rows than iterates.
    Privacy
        Private rows enter through three kinds of release, all Gaussian. (1) The second moments, if the plan rescales:
        one record moves them by at most ``moments_change`` in Frobenius norm. (2) Each round, (sum, k count) of the
        rows, rescaled and of unit norm, with ``<a, u> < asked``. Given the released numbers, which fix W and u, this is
        a map and a filter row by row, so one record moves it by at most ``release_change``. (3) At the marks, a count:
        one record moves it by at most 1. The schedule follows from public facts; costs ``change^2 / (2 deviation^2)``
        add up to ``mu^2 / 2`` with the exact Gaussian mu of (epsilon, delta) (``Spend``), whatever is asked in between
        (adaptive composition). The number of rounds used and the choice among candidates follow from released counts;
        ending early saves no budget. No sum is rounded (``rescaling_rows``).
    Utility
        Nothing is proved. ``missed`` is four times a quantile of simulated runs on made-up systems that keep the
        promised margin (``planted``), for the worst kind of them: those rows are dense, and on real one-hot rows up to
        half of the runs missed more than the quantile itself (docs/measurements.md, Half-spaces). Rows count as
        violated below a positive threshold, so answers satisfy the others strictly. From margins of ``1 / sqrt(D)`` on
        the plan does not rescale. Public constraints hold up to ``1e-12 ||y||``; where no candidate has ``x0 > 0`` the
        status is "nothing".
    Cost
        40 to 300 rounds, each two products with the rows and a projection; a rescaling, two products of the rows with
        a (D, D) matrix and the eigenvalues of one.
    """

    serves: ClassVar[Serves] = Serves(PrivateInequalities)
    name: str = "rescaling-perceptron"
    source: str = "KMMST24, Algorithms 9 and 10, with a public schedule"
    rescaling: Rescaling = "auto"

    def eligible(self, model: PrivateInequalities, request: Request) -> Verdict:
        if request.delta == 0:
            return Verdict(False, "every round releases Gaussian noise, which needs delta > 0")
        if model.margin is None:
            return Verdict(False, "a public margin is needed: it sets the rounds and what is asked of rows")
        if not 0 < model.margin <= 1:
            return Verdict(False, "the margin of unit rows lies in (0, 1]")
        least = 200 * coarsest(model.cone_dimension)
        if model.margin < least:
            return Verdict(False, f"rows in double precision resolve margins of {least:.2g} and more here")
        return YES

    def forecast(self, model: PrivateInequalities, request: Request) -> Forecast:
        plan = plan_search(model, request, self.rescaling)
        median, high = model.remember(
            ("missed", self.name, self.rescaling, request.epsilon, request.delta, request.beta),
            lambda: _simulate(model, plan, request.beta),
        )
        rho = Spend.of(request.epsilon, request.delta, gaussian_only=True).rho or math.nan
        needed = 2 * math.sqrt(model.cone_dimension / (2 * rho)) / float(model.margin or math.nan)
        missed = _CAUTION * high
        statement = (
            f"predicted to miss at most about {missed:,.0f} rows: {_CAUTION:g} times quantile {1 - request.beta:g} of "
            f"simulations on made-up rows (median {median:,.0f})"
        )
        forecast = Forecast(
            statement=statement,
            epsilon=request.epsilon,
            delta=request.delta,
            beta=request.beta,
            proved=False,
            error=RowsMissed(missed, needed),
            work=f"{plan.rounds} rounds of two products with the rows and a projection",
            noise=_noise(plan),
            caveats=(
                "simulated on made-up dense rows that keep the promised margin, not proved; the factor "
                f"{_CAUTION:g} comes from one set of real one-hot rows",
            ),
        )
        return capped(forecast, known_of(model))

    def run(
        self, model: PrivateInequalities, request: Request, noise: NoiseSource, progress: Progress = no_progress
    ) -> Found:
        plan = plan_search(model, request, self.rescaling)
        rows = GridRows.of(model.lifted(*model.read_rows()))
        found = search(rows, plan, model.cone, model.homogeneous, noise.gaussian, progress)
        notes = (f"{found.rounds} of {plan.rounds} rounds", *(() if plan.rescaling is None else ("rescaled once",)))
        if found.point is None:
            return Found("nothing", None, None, (*notes, "no candidate stands for a point"))
        return Found("found", model.lowered(found.point), found.missed, notes)


def _simulate(model: PrivateInequalities, plan: SearchPlan, beta: float) -> tuple[float, float]:
    """Rows missed in simulated runs: the median and the quantile 1 - beta, each for the worst kind of instance.

    Rows are simulated in a number that costs about a second in all, and at least 20 for every dimension as far as that
    allows: fewer are fitted too easily (in trials, 20 came within a factor 2 of the full number). Each stands for
    ``expected / simulated`` equal ones, which keeps the ratio of signal and noise; one such group is added to the
    quantile, as less is not seen.
    """
    size = model.cone_dimension
    seeds = _SEEDS if size <= 100 else _SEEDS // 3
    count = max(1, min(model.expected, 20 * min(max(size, 100), 200)))
    weight = max(model.expected, 1) / count
    median = high = 0.0
    for kind in KINDS if size <= 200 else (KINDS[-1],):
        missed = np.empty(seeds)
        for seed in range(seeds):
            rows = instance(model, seed, count, kind)
            made_up = GridRows.of(rows, weight, public=True)
            found = search(made_up, plan, model.cone, model.homogeneous, _public_noise(1_000_003 + seed))
            missed[seed] = weight * (count if found.point is None else np.count_nonzero(rows @ found.point < 0))
        median = max(median, float(np.median(missed)))
        high = max(high, float(np.quantile(missed, 1 - beta, method="higher")))
    return median, high + (weight if weight > 1 else 0.0)


def _public_noise(seed: int) -> Draw:
    draw = public_generator(seed)
    return lambda values, deviation: values + deviation * draw.standard_normal(values.shape)


def _noise(plan: SearchPlan) -> dict[str, object]:
    return {
        "rounds": plan.rounds,
        "deviation of the sums in the first and last round": (float(plan.deviations[0]), float(plan.deviations[-1])),
        "count weight": plan.count_weight,
        "violated below": plan.asked,
        "deviation of the second moments": plan.rescaling,
        "counted after rounds": plan.marks,
        "deviation of those counts": plan.mark_deviation,
    }


RESCALING_PERCEPTRON = RescalingPerceptron()
__all__ = ["RESCALING_PERCEPTRON", "RescalingPerceptron"]
