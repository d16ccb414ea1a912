"""The rescaling perceptron on a budget: a point of a public cone that satisfies nearly all private inequalities."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from dpmodel._types import Floats
from dpmodel.contract import YES, Mechanism, Options, Progress, Serves, Verdict, no_progress
from dpmodel.exact.cones import (
    KINDS,
    Draw,
    GridRows,
    cone_eligible,
    forecast_missed,
    grid_direction,
    noise_lower_bound,
    projector,
    public_noise,
)
from dpmodel.exact.model import Found, PrivateInequalities
from dpmodel.forecast import Forecast, RowsMissed
from dpmodel.kernels.direct_measurement import ROUNDING
from dpmodel.privacy import Cost, NoiseSource
from dpmodel.privacy.accounting import Spend

_SEEDS = 15  # the quantile 1 - beta of so many is their largest for beta below 1/14
# Runs on real one-hot rows (UCI Mushroom, the only such set looked at) missed up to four times what synthetic rows say.
_CAUTION = 4.0
Rescaling = Literal["auto", "always", "never"]


@dataclass(frozen=True)
class RescalingPerceptron(Mechanism[PrivateInequalities]):
    """Perceptron steps on noisy sums of violated rows, in coordinates rescaled by noisy second moments.

    Source
        KMMST24, Algorithms 9 and 10 (after Dunagan and Vempala 2008): noisy averages of violated rows, rescaling,
        stopping on noisy counts. The constants there ask for millions of steps. Here a round
        releases the sum and the number of the violated rows under one Gaussian noise, with more precision in later
        rounds; many small stretches along directions that no row opposes are replaced by one stretch by the inverse
        square root of the second moments (a normalisation that Blum, Frieze, Kannan and Vempala 1997 give perceptrons);
        candidates are averages of iterates, which in simulations miss far fewer rows than iterates.
    Privacy
        Private rows enter through three kinds of release, all Gaussian. (1) The second moments, if the plan rescales:
        one record moves them by at most ``moments_sensitivity`` in Frobenius norm. (2) Each round, (sum, k count) of
        the rows, rescaled and of unit norm, with ``<a, u> < threshold``. Given the released numbers, which fix W and u,
        this is a map and a filter row by row, so one record moves it by at most ``release_sensitivity``. (3) At the
        marks, a count: one record moves it by at most 1. The schedule follows from public facts; costs ``change^2 / (2
        deviation^2)`` add up to ``mu^2 / 2`` with the exact Gaussian mu of (epsilon, delta) (``Spend``), whatever is
        asked in between (adaptive composition). The number of rounds used and the choice among candidates follow from
        released counts; ending early saves no budget. No sum is rounded (``grid_rows``), and the grid makes rows longer
        by 2^-17 at most, which ``ROUNDING`` in these changes covers.
    Utility
        Nothing is proved. ``missed`` is four times a quantile of simulated runs on synthetic systems that keep the
        promised margin (``synthetic``), for the worst kind of them: those rows are dense, and on real one-hot rows up
        to half of the runs missed more than the quantile itself (docs/measurements/linear-algebra.md, Half-spaces).
        Rows count as violated below a positive threshold, so answers satisfy the others strictly. From margins of
        ``1 / sqrt(D)`` on the plan does not rescale. Public constraints hold up to ``1e-12 ||y||``; where no candidate
        has ``x0 > 0`` the status is "nothing".
    Cost
        40 to 300 rounds, each two products with the rows and a projection; a rescaling, two products of the rows with
        a (D, D) matrix and the eigenvalues of one.
    """

    serves: ClassVar[Serves] = Serves(PrivateInequalities)
    name: str = "rescaling-perceptron"
    source: str = "KMMST24, Algorithms 9 and 10, with a public schedule"
    rescaling: Rescaling = "auto"

    def eligible(self, model: PrivateInequalities, options: Options) -> Verdict:
        if options.delta == 0:
            return Verdict(False, "every round releases Gaussian noise, which needs delta > 0")
        # What is asked of rows, a hundredth of the margin at least, stays above the rounding of rows and points.
        return cone_eligible(model, least=200.0) or YES

    def forecast(self, model: PrivateInequalities, options: Options) -> Forecast:
        plan = plan_search(model, options, self.rescaling)
        size = model.cone_dimension
        # 20 rows for every dimension as far as time allows: fewer are fitted too easily (in trials, 20 came within a
        # factor 2 of the full number).
        most = 20 * min(max(size, 100), 200)
        median, high = forecast_missed(
            model,
            options,
            f"{self.name}, {self.rescaling}",
            lambda rows, weight, seed: _simulate(model, plan, rows, weight, seed),
            seeds=_SEEDS if size <= 100 else _SEEDS // 3,
            kinds=KINDS if size <= 200 else KINDS[-1:],
            most=most,
        )
        missed = _CAUTION * (high + (model.expected > most))  # where rows stand for several, less is not seen
        statement = (
            f"predicted to miss at most about {missed:,.0f} rows: {_CAUTION:g} times quantile {1 - options.beta:g} of "
            f"simulations on synthetic rows (median {median:,.0f})"
        )
        return model.forecast(
            options,
            statement,
            RowsMissed(missed=missed, needed=noise_lower_bound(model, options)),
            proved=False,
            event=Cost.all_gaussian(options.epsilon, options.delta),
            work=f"{plan.rounds} rounds of two products with the rows and a projection",
            noise={
                "rounds": plan.rounds,
                "standard deviation of the sums in the first and last round": (
                    float(plan.sigmas[0]),
                    float(plan.sigmas[-1]),
                ),
                "count weight": plan.count_weight,
                "violated below": plan.threshold,
                "standard deviation of the second moments": plan.rescaling,
                "counted after rounds": plan.marks,
                "standard deviation of those counts": plan.mark_sigma,
            },
            caveats=(
                "simulated on synthetic dense rows that keep the promised margin, not proved; the factor "
                f"{_CAUTION:g} comes from one set of real one-hot rows",
            ),
        )

    def run(
        self, model: PrivateInequalities, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Found:
        plan = plan_search(model, options, self.rescaling)
        rows = GridRows.of(model.lifted(*model.read_rows()))
        found = search(rows, plan, model.cone, model.homogeneous, noise.gaussian, progress)
        notes = (f"{found.rounds} of {plan.rounds} rounds", *(() if plan.rescaling is None else ("rescaled once",)))
        if found.point is None:
            return Found("nothing", None, None, (*notes, "no candidate stands for a point"))
        return Found("found", model.lowered(found.point), found.missed, notes)


@dataclass(frozen=True, eq=False)
class Searched:
    """Released: ``point`` (D,) in the cone, of norm 1, or None; ``missed`` : its noisy count; ``rounds`` : used."""

    point: Floats | None
    missed: float
    rounds: int


def search(
    rows: GridRows, plan: SearchPlan, cone: Floats, homogeneous: bool, draw: Draw, progress: Progress = no_progress
) -> Searched:
    """Run the schedule on ``rows``, releasing only what ``draw`` returns.

    Round t: ``y <- P(y + s / max(c, damping))`` with s and c the noisy sum and number of the violated rows and P the
    projection onto the (rescaled) public cone C. P harms nothing: by Moreau ``w = P w + q`` with q in the polar cone of
    C and orthogonal to P w, so ``||P w|| <= ||w||``, and ``<P w, z> = <w, z> - <q, z> >= <w, z>`` for every z of C. At
    every mark t the mean of the iterates of the rounds t/2 .. t (in C, which is convex) is counted on the given rows;
    the search ends when such a noisy count is at most ``plan.enough``. The answer is the last candidate, or one with a
    surely smaller count.
    """
    size = rows.size
    W = _rescaling(rows, plan.rescaling, draw) if plan.rescaling is not None else None
    work = rows if W is None else rows.rescaled(W)
    onto = projector(cone if W is None else cone @ W)
    home = projector(cone)
    y, kept = np.zeros(size), np.zeros((plan.rounds + 1, size))
    found: list[tuple[float, Floats]] = []
    done = 0
    for t in range(plan.rounds):
        if t % max(plan.rounds // 20, 1) == 0:
            progress(f"rescaling perceptron, {plan.rounds} rounds", t / plan.rounds)
        violated, sigma = work.below(grid_direction(y), plan.threshold), float(plan.sigmas[t])
        noisy = draw(np.append(work.sum(violated), plan.count_weight * work.number(violated)), sigma)
        # Steps are the mean of the violated rows, shrunk where these are few beside three norms of the noise.
        length = max(noisy[-1] / plan.count_weight, 3.0 * sigma * math.sqrt(size))
        y = onto(y + noisy[:-1] / length)
        kept[t + 1] = kept[t] + y
        done = t + 1
        if done in plan.marks:
            mean = (kept[done] - kept[done // 2]) / (done - done // 2)
            point = home(mean if W is None else W @ mean)
            norm = float(np.linalg.norm(point))
            if not norm > 0 or not (homogeneous or point[0] > 1e-9 * norm):
                continue
            point = point / norm
            missed = rows.number(rows.below(grid_direction(point), plan.slack))
            count = float(draw(np.array([missed]), plan.mark_sigma)[0])
            found.append((count, point))
            if count <= plan.enough:
                break
    if not found:
        return Searched(None, math.nan, done)
    best, last = min(found, key=lambda pair: pair[0]), found[-1]
    # Another candidate needs a count smaller by two standard deviations of a difference.
    surely = best[0] < last[0] - 2.0 * math.sqrt(2.0) * plan.mark_sigma
    count, answer = best if surely else last
    return Searched(answer, count, done)


def _rescaling(rows: GridRows, sigma: float, draw: Draw) -> Floats:
    """(D, D) W, about the inverse square root of the second moments of the rows, of norm 1.

    ``W a`` is large where few rows point, above all along directions that are nearly orthogonal to all rows, as the
    solutions of systems with a small margin are. A rescaling changes no solution: ``<a, W u> = <W a, u>``. The upper
    triangle is released, its off-diagonal entries times sqrt 2, so that 2-norms are Frobenius norms.
    """
    size = rows.size
    upper = np.triu_indices(size)
    factor = np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0))
    noisy = np.zeros((size, size))
    noisy[upper] = draw(rows.second_moments()[upper] * factor, sigma) / factor
    noisy = noisy + np.triu(noisy, 1).T
    values, vectors = np.linalg.eigh(noisy)
    # The noise has norm about standard deviation sqrt(2 D), of which a fifth is added to the eigenvalues.
    scales = 1 / np.sqrt(np.maximum(values, 0.0) + 0.2 * sigma * math.sqrt(2.0 * size))
    W: Floats = (vectors * (scales / scales.max())) @ vectors.T
    return (W + W.T) / 2


def _simulate(model: PrivateInequalities, plan: SearchPlan, rows: Floats, weight: float, seed: int) -> Floats:
    """(D,) the answer on synthetic rows, with synthetic noise; zero for none."""
    made_up = GridRows.of(rows, weight, public=True)
    point = search(made_up, plan, model.cone, model.homogeneous, public_noise("gaussian", 1_000_003 + seed)).point
    return np.zeros(made_up.size) if point is None else point


RESCALING_PERCEPTRON = RescalingPerceptron()


# ------------------------------------------------------------------
# What a budgeted rescaling perceptron does, as a function of public facts: rounds, noise, thresholds.


# Shares of the budget; the rounds have the rest. Chosen on simulated instances.
_RESCALING, _COUNTS = 0.2, 0.1


@dataclass(frozen=True, eq=False)
class SearchPlan:
    """A public schedule.

    ``rounds`` : T. ``threshold`` : rows with ``<a, y> < threshold`` (unit y, in rescaled coordinates) count as
    violated.
    ``slack`` : the same where finished candidates are counted. ``count_weight`` : k of the release (sum, k
    count). ``sigmas`` (T,) : of its noise, round by round. ``rescaling`` : standard deviation of the noise on the
    second moments, or None without a rescaling. ``marks`` : rounds after which a candidate is counted, with noise of
    ``mark_sigma``.
    ``enough`` : the search ends at a noisy count of at most this.
    """

    rounds: int
    threshold: float
    slack: float
    count_weight: float
    sigmas: Floats
    rescaling: float | None
    marks: tuple[int, ...]
    mark_sigma: float
    enough: float


def release_sensitivity(replace_one: bool, count_weight: float) -> float:
    """Largest 2-norm by which one record moves (sum of the violated rows, k times their number).

    Which rows are violated is decided row by row, given released numbers. A row that comes or goes moves the release by
    (a, k) or 0, so by ``sqrt(1 + k^2)`` at most. A row a that is replaced by a' moves it by (a - a', 0) if both are
    violated, by (a, k) or (a', k) if one is: by at most ``max(2, sqrt(1 + k^2))``.
    """
    one = math.hypot(1.0, count_weight)
    return (max(2.0, one) if replace_one else one) * (1 + ROUNDING)


def moments_sensitivity(replace_one: bool) -> float:
    """Largest Frobenius norm by which one record moves ``sum a a'``: 1, or sqrt 2 as <aa', bb'> = <a, b>^2 >= 0."""
    return (math.sqrt(2.0) if replace_one else 1.0) * (1 + ROUNDING)


def needs_rescaling(margin: float, size: int) -> bool:
    """Whether the margin is below ``1 / sqrt(D)``, the size of inner products of random directions.

    A rescaling releases D (D + 1) / 2 numbers and takes eigenvalues: in up to 300 dimensions. Wider margins are found
    by plain steps. Below, in simulations, a rescaling was worth its share of the budget.
    """
    return 1 < size <= 300 and margin * math.sqrt(size) < 1


def plan_search(model: PrivateInequalities, options: Options, rescaling: str = "auto") -> SearchPlan:
    """The schedule for this margin, dimension, neighbor relation and budget."""
    size, margin = model.cone_dimension, float(model.margin or 0.0)
    replace_one = model.neighbors == "replace-one"
    spend = Spend.of(options.epsilon, options.delta, gaussian_only=True)
    rescales = needs_rescaling(margin, size) if rescaling == "auto" else rescaling == "always"
    rounds = math.ceil(np.clip(3 / margin, 40, 300))
    # Counts serve step lengths and need less precision than sums; where rows are replaced they cost nothing more.
    weight = math.sqrt(3.0) if replace_one else size**-0.25
    share = 1 - _COUNTS - (_RESCALING if rescales else 0.0)
    each = np.arange(1, rounds + 1, dtype=np.float64)
    each *= share / each.sum()
    marks = tuple(int(m) for m in np.unique(np.geomspace(rounds / 4, rounds, 4).astype(int)))
    mark_sigma = spend.part(_COUNTS).gaussian_sigma(1.0, len(marks))
    return SearchPlan(
        rounds=rounds,
        threshold=max(0.5 * margin, min(2 * margin, 0.25 / math.sqrt(size))),
        slack=0.01 * margin,
        count_weight=weight,
        sigmas=spend.gaussian_sigma(release_sensitivity(replace_one, weight)) / np.sqrt(each),
        rescaling=spend.part(_RESCALING).gaussian_sigma(moments_sensitivity(replace_one)) if rescales else None,
        marks=marks,
        mark_sigma=mark_sigma,
        # Ending saves time alone, so only counts that hardly any violated row is left under do it.
        enough=-mark_sigma,
    )
