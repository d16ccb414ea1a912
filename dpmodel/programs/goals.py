"""Ways to treat the objective (``goal=``) with an algorithm that only finds nearly feasible points; public facts only.

HRRU14 solves feasibility problems and takes the optimal value as known (its footnote 2). Three ways around that:

* *target*: the user names a public value; the public constraint ``c'x <= target`` is added.
* *search*: the value is found by bisection of the public range of the objective. The algorithm runs k times, each time
  on a part of the budget, and k - 1 points are tested by a noisy count (or size) of what they violate.
* *penalty*: the objective is added to the violation, ``c'x / weight + V(x)`` is minimised, in one run.

``nearly_feasible.py`` has the contract of the algorithms, and runs them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpmodel._types import Floats
from dpmodel.contract import Options, Verdict
from dpmodel.memo import cached
from dpmodel.numerics.polyhedron import Polyhedron
from dpmodel.privacy import Gaussian, Laplace
from dpmodel.privacy.accounting import Spend
from dpmodel.programs.model import Program
from dpmodel.programs.noise_design import NoiseDesign, design_noise
from dpmodel.programs.public import cost_range, objective_span, private_objective
from dpmodel.programs.rows import public_polyhedron
from dpmodel.requests import Goal

if TYPE_CHECKING:
    from dpmodel.programs.nearly_feasible import NearlyFeasible

ONE_CANDIDATE = Verdict(
    False, "at this budget it would select among one candidate point: data could not change it, and would be paid for"
)


@dataclass(frozen=True)
class Task:
    """One feasibility problem for an algorithm; public or released facts only.

    ``polytope`` : the public set K, cut at the target if there is one. ``tilt`` (n,) : cost added to the violation
    (all zero: none). ``spend`` : the budget; ``epsilon, delta`` : the same for algorithms with composition rules of
    their own (as printed). ``beta`` : allowed failure probability. ``slack_rows``, ``violation`` : what the
    user asked for, or None. ``vertices`` (k, n) : public candidate points, or None. ``whole`` : the budget
    is not a part of one that others share, so a pure release may take all of ``epsilon``. ``cut`` : the runs happen on
    parts of ``polytope`` that are known later, cut off by one more row: a promise for it has to hold for all of them.
    """

    model: Program
    polytope: Polyhedron
    tilt: Floats
    spend: Spend
    epsilon: float
    delta: float
    beta: float
    slack_rows: int | None = None
    violation: float | None = None
    vertices: Floats | None = None
    whole: bool = True
    cut: bool = False

    @property
    def tilted(self) -> bool:
        return bool(np.any(self.tilt))


@dataclass(frozen=True)
class Promise:
    """What an algorithm promises for a task, from public facts alone.

    ``error`` : in units of V (``nearly_feasible.py``). ``gain``, ``slack_rows`` : ``V(x) <= v`` means that all but
    ``slack_rows`` of the ``rows`` private rows are violated by at most ``gain * v``. ``width`` : how far any row can be
    violated.
    ``proved`` : a theorem, not a prediction. ``work``, ``noise``, ``caveats`` : as in ``Forecast``.
    ``plan`` : the algorithm's own numbers (steps, rates), handed back to it in ``point``. ``others()`` : what it
    promises with other settings, which say less and may do better; ``nearly_feasible.settle`` chooses.
    """

    error: float
    gain: float
    slack_rows: int
    rows: int
    width: float
    work: str
    proved: bool = True
    noise: Mapping[str, Any] = field(default_factory=dict)
    caveats: tuple[str, ...] = ()
    plan: Any = None
    others: Callable[[], tuple[Promise, ...]] = tuple

    @property
    def alpha(self) -> float:
        return self.gain * self.error


@dataclass(frozen=True)
class Point:
    """What an algorithm releases: ``x`` (n,) in the public set; ``extra_violation`` beyond the promise, known from
    released data; ``notes`` : public words."""

    x: Floats
    extra_violation: float = 0.0
    notes: tuple[str, ...] = ()


# Shares of the budget: of a private objective, and of the tests of a search in what is left.
OBJECTIVE_SHARE = 0.5
TEST_SHARE = 0.1


@dataclass(frozen=True)
class Route:
    """One way to treat the objective: what it promises and how it will be run.

    ``whole`` : the task with all of the budget for the constraints; ``task`` : one run's share of it.
    ``objective_alpha`` : loss against the true optimum (nan: a target, or no objective). ``weight`` : of the penalty.
    ``steps`` : runs of a search; ``margin`` : of its tests. ``slack_rows``, ``violation`` : of the result.
    """

    goal: Goal | None
    whole: Task
    task: Task
    promise: Promise
    objective_alpha: float
    violation: float
    slack_rows: int
    weight: float = math.nan
    steps: int = 1
    margin: float = 0.0


@cached
def best_route(model: Program, algorithm: NearlyFeasible, options: Options) -> Route | None:
    """The best way to treat the objective that was not ruled out; None when there is none."""
    return min(_routes(algorithm, model, options), key=_worst(model), default=None)


def _routes(algorithm: NearlyFeasible, model: Program, options: Options) -> Iterator[Route]:
    task = task_of(model, algorithm, options)
    if not model.form.c0.any() and not private_objective(model):
        yield _single(algorithm, None, task)
        return
    goals = (options.goal,) if options.goal != "auto" else ("target",) if options.target is not None else ()
    if (goals or ("target",)) == ("target",) and options.target is not None:
        if private_objective(model):
            task_of_target = _for_parts(task)
        else:
            task_of_target = replace(
                task, polytope=task.polytope.with_row(model.form.c0, options.target - model.form.d0)
            )
        yield _single(algorithm, "target", task_of_target)
    stray, extra = _strays(model, options)
    span = objective_span(model) + extra
    if not math.isfinite(span) or span == 0:
        return
    if algorithm.takes_tilt and (not goals or "penalty" in goals):
        yield from _penalty(algorithm, task, span, options.penalty, stray)
    if not goals or "search" in goals:
        yield from _best_search(algorithm, task, span, _worst(model))


def _best_search(
    algorithm: NearlyFeasible, task: Task, span: float, worst: Callable[[Route], float]
) -> Iterator[Route]:
    """The best number of steps: with each more the loss halves and the violation grows, so it lies where they cross."""
    routes: dict[int, Route | None] = {}

    def route(steps: int) -> Route | None:
        if steps not in routes:
            routes[steps] = next(_searching(algorithm, task, span, steps), None)
        return routes[steps]

    low, high = 2, algorithm.search_steps
    while low < high:
        middle = (low + high) // 2
        tried = route(middle)
        if tried is not None and worst(tried) <= tried.objective_alpha / objective_span(task.model):
            low = middle + 1
        else:
            high = middle
    around = (route(steps) for steps in (low - 1, low) if 2 <= steps <= algorithm.search_steps)
    yield from (each for each in around if each is not None)


def task_of(model: Program, algorithm: NearlyFeasible, options: Options) -> Task:
    """The constraints' part of the budget, and the whole public set."""
    epsilon, delta = options.epsilon, options.delta
    if private_objective(model):
        epsilon, delta = epsilon * (1 - OBJECTIVE_SHARE), delta * (1 - OBJECTIVE_SHARE)
    spend = Spend.of(epsilon, delta, gaussian_only=algorithm.gaussian_only)
    beta = options.beta / (2 if private_objective(model) else 1)
    return Task(
        model, public_polyhedron(model), np.zeros(model.affine.variables), spend, epsilon, delta, beta,
        options.slack_rows, options.violation, options.vertices,
    )  # fmt: skip


def _single(algorithm: NearlyFeasible, goal: Goal | None, task: Task) -> Route:
    promise = algorithm.promise(task)
    return Route(goal, task, task, promise, math.nan, promise.alpha, promise.slack_rows)


def _penalty(
    algorithm: NearlyFeasible, task: Task, span: float, weight: float | None, stray: Floats
) -> Iterator[Route]:
    """Weight t: loss ``t error``, violation ``gain (error + span / t)``; ``stray`` (n,) : as in ``_strays``. Nothing
    for weights so extreme that floating point loses the objective or the violation."""
    if weight is None:
        promise = algorithm.promise(task)
        width = promise.width or 1.0  # 0: no row can be violated, and any weight will do
        error = max(promise.error, 1e-9 * width)
        # The same share of the span is lost as of the width is violated: t error / span = gain (span / t) / width.
        weight = span * math.sqrt(promise.gain / error / width)
    low, high = cost_range(task.model)
    tilt = (np.maximum(np.abs(low), np.abs(high)) + stray) / max(weight, 1e-300)
    if not weight > 0 or not 1e-100 < float(np.abs(tilt).max()) < 1e100:
        return
    promise = algorithm.promise(replace(task, tilt=tilt))
    violation = promise.gain * (promise.error + span / weight)
    yield Route("penalty", task, task, promise, weight * promise.error, violation, promise.slack_rows, weight)


def _searching(algorithm: NearlyFeasible, task: Task, span: float, steps: int) -> Iterator[Route]:
    """``steps`` runs; nothing when what was asked for leaves no room for the margin of the tests."""
    distribution = noise_of_tests(algorithm, task, steps)
    margin = distribution.max_abs_quantile(steps - 1, task.beta / 2)
    room = math.ceil(2 * margin) if algorithm.serves.leaves_out else 0
    each = run_of(task, steps)
    if task.slack_rows is not None and room:
        if task.slack_rows <= room:
            return
        each = replace(each, slack_rows=task.slack_rows - room)
    each = _for_parts(each)
    promise = algorithm.promise(each)
    violation = promise.alpha if algorithm.serves.leaves_out else promise.alpha + 2 * margin
    loss = span * 2.0 ** (1 - steps)
    rows = promise.slack_rows + room
    yield Route("search", task, each, promise, loss, violation, rows, steps=steps, margin=margin)


def _for_parts(task: Task) -> Task:
    """The task of runs on the public set and one more row, for the objective."""

    def build() -> Polyhedron:
        high = cost_range(task.model)[1]
        row = high if np.isfinite(high).all() else np.ones(high.size)
        part = task.polytope.with_row(row, task.polytope.support(row))
        # The row cuts nothing off: what was solved for the whole set is not solved again.
        vars(part)["_supports"] = task.polytope._supports
        return part

    return replace(task, polytope=task.model.cached("polytope of runs", build), cut=True)


def _strays(model: Program, options: Options) -> tuple[Floats, float]:
    """How far a released objective may leave its public range: (n,) by coefficient, and how much that adds to its span.
    Nothing where released numbers are moved into their range."""
    measured, beyond = objective_design(model, options), np.zeros(model.affine.variables)
    if measured is None or measured.parts["objective"].clip:
        return beyond, 0.0
    part = measured.parts["objective"]
    beyond[part.measurement.positions] = part.reach
    return beyond, 2 * model.public.weighted_norm(beyond)


def with_promise(route: Route, promise: Promise) -> Route:
    """The same way with other settings of the algorithm: not for a search, whose runs share the budget."""
    loss, violation = route.objective_alpha, promise.alpha
    if route.goal == "penalty":
        loss = route.weight * promise.error
        # What does not come from the algorithm's error: gain span / weight.
        rest = route.violation - route.promise.alpha
        violation += rest * promise.gain / route.promise.gain
    return replace(route, promise=promise, objective_alpha=loss, violation=violation, slack_rows=promise.slack_rows)


def why_none(model: Program, options: Options) -> str:
    if options.goal == "target":
        return 'goal="target" needs target=...'
    if not math.isfinite(objective_span(model)):
        return "the public constraints do not bound the objective: give target=..., or bounds"
    if options.goal == "penalty":
        return "it does not take this penalty: give target=... or goal='search'"
    return "it only finds nearly feasible points: give target=... (the objective's value to reach)"


def run_of(task: Task, steps: int) -> Task:
    """One of ``steps`` runs of a search: its share of the budget and of beta."""
    share = (1 - TEST_SHARE) / steps
    return replace(
        task, spend=task.spend.part(share), epsilon=task.epsilon * share, delta=task.delta * share,
        beta=task.beta / (2 * steps),
        whole=False,
    )  # fmt: skip


def objective_design(model: Program, options: Options) -> NoiseDesign | None:
    """Noise for a private objective, with its share of the budget; None for a public one."""
    if not private_objective(model):
        return None
    part = replace(
        options,
        epsilon=options.epsilon * OBJECTIVE_SHARE,
        delta=options.delta * OBJECTIVE_SHARE,
        beta=options.beta / 2,
    )
    kinds = ("laplace",) if options.delta == 0 else ("laplace", "gaussian")
    designs = [design_noise(model, part, {"objective": kind}) for kind in kinds]  # type: ignore[dict-item]
    return min(designs, key=lambda noise: float(noise.parts["objective"].reach.max(initial=0.0)))


def noise_of_tests(algorithm: NearlyFeasible, whole: Task, steps: int) -> Gaussian | Laplace:
    """Noise of each of the tests of a search of ``steps`` runs; ``whole`` has the budget of all of it.

    Gaussian, whose zCDP cost adds to that of the runs. Algorithms that compose on their own are (epsilon, delta)-DP in
    every run: their runs and tests add up by basic composition, so the tests are pure.
    """
    sensitivity = algorithm.excess_sensitivity(whole)
    spend = Spend(whole.epsilon, None) if algorithm.own_composition else whole.spend
    part = spend.part(TEST_SHARE / max(steps - 1, 1))
    return Laplace(part.laplace_scale(sensitivity)) if part.rho is None else Gaussian(part.gaussian_sigma(sensitivity))


def _worst(model: Program) -> Callable[[Route], float]:
    """Key to compare routes: the larger share, of the span lost or of the width violated (rows left out included)."""
    span = max(objective_span(model), 1e-300)

    def key(route: Route) -> float:
        width = max(route.promise.width, 1e-300)
        violated = route.violation / width + route.slack_rows / max(route.promise.rows, 1)
        lost = 0.0 if math.isnan(route.objective_alpha) else route.objective_alpha / span
        return max(violated, lost)

    return key
