"""Mechanisms made of engines: how the objective is treated when an engine only finds nearly feasible points.

HRRU14 solves feasibility problems and takes the optimal value as known (its footnote 2). Three ways around that:

* *target*: the user names a public value; the public constraint ``c'x <= target`` is added.
* *search*: the value is found by bisection of the public range of the objective. The engine runs k times, each time
  on a part of the budget, and k - 1 points are tested by a noisy count (or size) of what they violate.
* *penalty*: the objective is added to the violation, ``c'x / weight + V(x)`` is minimised, in one run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from dpmodel._text import number
from dpmodel.classify.private_lp import PrivateLP
from dpmodel.compile.affine_map import Floats
from dpmodel.compile.polyhedron import Polyhedron
from dpmodel.compile.standard_form import value_range
from dpmodel.mechanisms.lp.feasibility import Engine, Point, Promise, Task
from dpmodel.mechanisms.lp.noise_design import NoiseDesign, design
from dpmodel.mechanisms.lp.noise_once import objective_loss
from dpmodel.mechanisms.lp.private_rows import most_rows_stay, plain_linear, private_rows, public_polyhedron
from dpmodel.mechanisms.lp.spend import Spend
from dpmodel.mechanisms.mechanism import (
    YES,
    Forecast,
    Goal,
    Outcome,
    Progress,
    Request,
    Verdict,
    no_progress,
    says_nothing,
)
from dpmodel.privacy import Gaussian, Laplace, NoiseSource

# Shares of the budget: of a private objective, and of the tests of a search in what is left.
_OBJECTIVE_SHARE = 0.5
_TEST_SHARE = 0.1


@dataclass(frozen=True)
class Route:
    """One way to treat the objective: what it promises and how it will be run.

    ``objective_alpha`` : loss against the true optimum (nan: a target, or no objective). ``weight`` : of the penalty.
    ``steps`` : engine runs of a search; ``margin`` : of its tests. ``slack_rows``, ``violation`` : of the result.
    """

    goal: Goal | None
    task: Task
    promise: Promise
    objective_alpha: float
    violation: float
    slack_rows: int
    weight: float = math.nan
    steps: int = 1
    margin: float = 0.0


@dataclass(frozen=True)
class EngineMechanism:
    """A nearly feasible point by an engine, with the objective as target, by search or as a penalty.

    Source
        The engine's; HRRU14, section 3 and footnote 2, for the treatment of the objective.
    Privacy
        Private values are read in three places, each paid from its own part of the budget, which add up to the
        whole (sequential composition: zCDP costs or pure epsilons add, and a private objective with
        its own (epsilon / 2, delta / 2) by basic composition):
        1. a private objective is measured once like ``laplace-once`` or ``gaussian-once``; from then on it is a
           released vector;
        2. the engine (its docstring), once, or k times with 1/k of its part each in a search;
        3. each of the k - 1 tests of a search adds noise (Gaussian, Laplace for a pure budget) to the engine's
           ``excess``, calibrated to ``change``, the most by which one record moves it; the bisection reads only the
           noisy answers.
        Which way is taken, k, weights and limits follow from public facts.
    Utility (with probability 1 - beta, if some public point satisfies all private constraints)
        target: the engine's promise, with ``c'x <= target``, if a feasible point reaches the target.
        penalty with weight t: ``c'x <= c'x* + t error`` and ``V(x) <= error + span / t``, where span bounds
        ``c'x* - min c'x`` over the public set: divide ``c'x / t + V(x) <= c'x* / t + error`` (the engine's contract,
        V >= 0 and V(x*) = 0) accordingly.
        search: the engine meets every target that a feasible point reaches, and then passes its test, so the
        last accepted target is within ``span / 2^(k-1)`` of the optimum; an accepted point's excess is at most
        the promised limit plus twice the margin of a test. The first run takes no target and needs no test.
        A private objective adds the bound of its measurement to the loss.
    Cost
        The engine's, k times in a search.
    """

    engine: Engine

    @property
    def name(self) -> str:
        return self.engine.name

    @property
    def source(self) -> str:
        return self.engine.source

    def eligible(self, model: PrivateLP, request: Request) -> Verdict:
        if not {"scalar", "matrix"} & set(model.private_parts()):
            return Verdict(False, "serves problems with private constraints")
        if request.feasibility == "strict":
            return Verdict(False, 'feasibility="strict" asked for: private constraints are met nearly, not always')
        if any(cell.part == "objective" and cell.level == "high" for cell in model.classification.cells):
            return Verdict(False, "the objective may change arbitrarily: no noise can hide it")
        verdict = plain_linear(model)
        if verdict is None and public_polyhedron(model).empty:
            verdict = Verdict(False, "the public constraints have no common point")
        if verdict is None and self.engine.counts_rows:
            verdict = most_rows_stay(model)
        verdict = verdict or self.engine.eligible(model, request)
        if not verdict.eligible:
            return verdict
        if model.form.offset.nnz and request.goal in ("target", "search"):
            return Verdict(False, "a target for an objective whose constant term is private says nothing")
        return YES if self._route(model, request) is not None else Verdict(False, self._no_route(model, request))

    def forecast(self, model: PrivateLP, request: Request) -> Forecast:
        route = self._route(model, request)
        assert route is not None  # eligible() came first
        promise = route.promise
        measured = _objective_design(model, request)
        loss = route.objective_alpha + (objective_loss(model, measured) if measured else 0.0)
        vacuous = route.slack_rows >= promise.rows or route.violation >= promise.width
        noise = dict(promise.noise)
        if measured is not None:
            noise["objective"] = measured.parts["objective"].to_dict()
        if route.goal is not None:
            noise["objective treated by"] = _plain(route)
        return Forecast(
            statement=_statement(model, request, route, loss, vacuous, self._relative(model)),
            epsilon=request.epsilon,
            delta=request.delta,
            beta=request.beta,
            objective_alpha=loss,
            violation_alpha=route.violation,
            proved=promise.proved,
            slack_rows=min(route.slack_rows, promise.rows),
            private_rows=promise.rows,
            width=promise.width,
            span=_span(model) if not math.isnan(loss) else math.nan,
            vacuous=vacuous,
            work=promise.work if route.steps == 1 else f"{route.steps} times: {promise.work}",
            noise=noise,
            caveats=(*promise.caveats, *((_RELATIVE,) if self._relative(model) else ())),
        )

    def run(self, model: PrivateLP, request: Request, noise: NoiseSource, progress: Progress = no_progress) -> Outcome:
        route = self._route(model, request)
        assert route is not None
        theta = model.read_private()
        cost = _released_cost(model, request, theta, noise)
        if route.goal == "search":
            point = self._search(route, cost, theta, noise, progress)
        else:
            task = route.task
            if route.goal == "penalty":
                task = replace(task, tilt=cost / route.weight)
            elif route.goal == "target" and _private_objective(model):
                assert request.target is not None
                body = task.body.with_row(cost, request.target - model.form.d0)
                if body.empty:
                    notes = ("no public point reaches the target under the released objective",)
                    return Outcome("infeasible", None, None, None, notes=notes)
                task = replace(task, body=body)
            point = self.engine.point(task, route.promise, theta, noise, progress)
        x = point.x
        return Outcome(
            "optimal", x, None, float(cost @ x) + model.form.d0,
            extra_violation=point.extra_violation, notes=point.notes,
        )  # fmt: skip

    def _search(self, route: Route, cost: Floats, theta: Floats, source: NoiseSource, progress: Progress) -> Point:
        """Bisection on the objective's value; see the class."""
        whole, engine = route.task, self.engine
        low, high = -whole.body.support(-cost), whole.body.support(cost)
        if engine.counts_rows:  # the runs keep to the rows and the violation that were planned
            whole = replace(whole, slack_rows=route.promise.slack_rows)
        best, accepted = self._reach(whole, cost, high, theta, source), 0
        test = _whole(whole, route.steps).part(_TEST_SHARE / max(route.steps - 1, 1))
        law = _test_noise(test, engine.excess_change(whole))
        for step in range(1, route.steps):
            progress(f"search for the objective, run {step + 1} of {route.steps}", step / route.steps)
            middle = (low + high) / 2
            point = self._reach(whole, cost, middle, theta, source)
            excess = engine.excess(whole, route.promise, point.x, theta)
            noisy = float(law.sample(np.array([excess]), source)[0])
            if noisy <= engine.excess_limit(route.promise) + route.margin:
                best, high, accepted = point, middle, accepted + 1
            else:
                low = middle
        notes = (*best.notes, f"search: {accepted} of {route.steps - 1} targets passed; the objective is at most "
                 f"{number(high)} in minimisation form")  # fmt: skip
        return replace(best, notes=notes)

    def _relative(self, model: PrivateLP) -> bool:
        """Whether violations are shares of each row's own width: engines that count rows scale those without bounds."""
        return self.engine.counts_rows and private_rows(model).relative

    def _reach(self, task: Task, cost: Floats, target: float, theta: Floats, source: NoiseSource) -> Point:
        """One run with the objective at most ``target``, planned for the body it runs on."""
        task = replace(task, body=task.body.with_row(cost, target))
        return self.engine.point(task, self.engine.promise(task), theta, source, no_progress)

    # ------------------------------------------------------------------ planning
    def _route(self, model: PrivateLP, request: Request) -> Route | None:
        """The best way to treat the objective that was not ruled out; None when there is none."""
        key = ("route", self.name, request.epsilon, request.delta, request.beta, request.slack_rows, request.violation,
               request.goal, request.target, request.penalty,
               None if request.vertices is None else request.vertices.tobytes())  # fmt: skip

        def build() -> Route | None:
            return min(self._routes(model, request), key=_worst(model), default=None)

        return model.remember(key, build)

    def _routes(self, model: PrivateLP, request: Request) -> Iterator[Route]:
        task = self._task(model, request)
        if not model.form.c0.any() and not _private_objective(model):
            yield self._single(None, task)
            return
        goals = (request.goal,) if request.goal != "auto" else ("target",) if request.target is not None else ()
        if (goals or ("target",)) == ("target",) and request.target is not None:
            body = task.body
            if not _private_objective(model):
                body = body.with_row(model.form.c0, request.target - model.form.d0)
            yield self._single("target", replace(task, body=body))
        span = _span(model)
        if not math.isfinite(span) or span == 0:
            return
        if self.engine.takes_tilt and (not goals or "penalty" in goals):
            yield self._penalty(task, span, request.penalty)
        if not goals or "search" in goals:
            for steps in range(2, self.engine.search_steps + 1):
                yield from self._searching(task, span, steps)

    def _task(self, model: PrivateLP, request: Request) -> Task:
        epsilon, delta = request.epsilon, request.delta
        if _private_objective(model):
            epsilon, delta = epsilon * (1 - _OBJECTIVE_SHARE), delta * (1 - _OBJECTIVE_SHARE)
        spend = Spend.of(epsilon, delta, gaussian_only=self.engine.gaussian_only)
        beta = request.beta / (2 if _private_objective(model) else 1)
        return Task(
            model, public_polyhedron(model), np.zeros(model.affine.variables), spend, epsilon, delta, beta,
            request.slack_rows, request.violation, request.vertices,
        )  # fmt: skip

    def _single(self, goal: Goal | None, task: Task) -> Route:
        promise = self.engine.promise(task)
        return Route(goal, task, promise, math.nan, promise.alpha, promise.slack_rows)

    def _penalty(self, task: Task, span: float, weight: float | None) -> Route:
        """Weight t: loss ``t error``, violation ``gain (error + span / t)``."""
        if weight is None:
            promise = self.engine.promise(task)
            # The same share of the span is lost as of the width is violated: t error / span = gain (span / t) / width.
            weight = span * math.sqrt(promise.gain / (max(promise.error, 1e-300) * max(promise.width, 1e-300)))
        low, high = _cost_range(task.model)
        promise = self.engine.promise(replace(task, tilt=np.maximum(np.abs(low), np.abs(high)) / weight))
        violation = promise.gain * (promise.error + span / weight)
        return Route("penalty", task, promise, weight * promise.error, violation, promise.slack_rows, weight)

    def _searching(self, task: Task, span: float, steps: int) -> Iterator[Route]:
        """``steps`` runs; nothing when what was asked for leaves no room for the margin of the tests."""
        law = _test_noise(task.spend.part(_TEST_SHARE / (steps - 1)), self.engine.excess_change(task))
        margin = law.max_abs_quantile(steps - 1, task.beta / 2)
        room = math.ceil(2 * margin) if self.engine.counts_rows else 0
        each = _each(task, steps)
        if task.slack_rows is not None and room:
            if task.slack_rows <= room:
                return
            each = replace(each, slack_rows=task.slack_rows - room)
        high = _cost_range(task.model)[1]
        # The body that every run has: the public set and one more row.
        promise = self.engine.promise(replace(each, body=task.body.with_row(high, task.body.support(high))))
        violation = promise.alpha if self.engine.counts_rows else promise.alpha + 2 * margin
        loss = span * 2.0 ** (1 - steps)
        rows = promise.slack_rows + room
        yield Route("search", each, promise, loss, violation, rows, steps=steps, margin=margin)

    def _no_route(self, model: PrivateLP, request: Request) -> str:
        if request.goal == "target":
            return 'goal="target" needs target=...'
        if not math.isfinite(_span(model)):
            return "the public constraints do not bound the objective: give target=..., or bounds"
        if request.goal == "penalty":
            return "it does not take a penalty: give target=... or goal='search'"
        return "it only finds nearly feasible points: give target=... (the objective's value to reach)"


# ---------------------------------------------------------------------- budget
def _each(task: Task, steps: int) -> Task:
    """One of ``steps`` engine runs of a search: its share of the budget and of beta."""
    share = (1 - _TEST_SHARE) / steps
    return replace(
        task, spend=task.spend.part(share), epsilon=task.epsilon * share, delta=task.delta * share,
        beta=task.beta / (2 * steps),
    )  # fmt: skip


def _whole(each: Task, steps: int) -> Spend:
    """The budget that ``_each`` divided."""
    return each.spend.part(steps / (1 - _TEST_SHARE))


def _private_objective(model: PrivateLP) -> bool:
    return "objective" in model.private_parts()


def _objective_design(model: PrivateLP, request: Request) -> NoiseDesign | None:
    """Noise for a private objective, with its share of the budget; None for a public one."""
    if not _private_objective(model):
        return None
    part = replace(
        request,
        epsilon=request.epsilon * _OBJECTIVE_SHARE,
        delta=request.delta * _OBJECTIVE_SHARE,
        beta=request.beta / 2,
    )
    kinds = ("laplace",) if request.delta == 0 else ("laplace", "gaussian")
    designs = [design(model, part, {"objective": kind}) for kind in kinds]  # type: ignore[dict-item]
    return min(designs, key=lambda noise: float(noise.parts["objective"].reach.max(initial=0.0)))


def _released_cost(model: PrivateLP, request: Request, theta: Floats, source: NoiseSource) -> Floats:
    """(n,) the public objective, or the private one measured with its share of the budget."""
    measured = _objective_design(model, request)
    if measured is None:
        return model.form.c0
    part = measured.parts["objective"]
    exact = part.measurement.values(theta)
    released = part.law.sample(exact, source) if part.law is not None else exact
    cost = model.form.c0.copy()
    cost[part.measurement.positions] += part.measurement.rebuild(released, clip=part.clip)
    return cost


# ---------------------------------------------------------------------- public facts and words
def _span(model: PrivateLP) -> float:
    """Public bound on ``max c'x - min c'x`` over the public set (inf when there is none)."""

    def build() -> float:
        body: Polyhedron = public_polyhedron(model)
        low, high = _cost_range(model)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            return math.inf
        bottom, top = body.box
        if np.array_equal(low, high) or (bottom >= 0).all():
            return max(body.support(high) + body.support(-low), 0.0)
        return float(np.maximum(np.abs(low), np.abs(high)) @ (top - bottom))

    return model.remember("objective span", build)


def _cost_range(model: PrivateLP) -> tuple[Floats, Floats]:
    """(n,), (n,): public bounds of the objective's coefficients."""
    if not _private_objective(model):
        return model.form.c0, model.form.c0
    below, above = value_range(model.affine, model.form.objective)
    return model.form.c0 + below, model.form.c0 + above


def _test_noise(spend: Spend, change: float) -> Gaussian | Laplace:
    """Noise of one test of a search."""
    return Laplace(spend.laplace_scale(change)) if spend.rho is None else Gaussian(spend.gaussian_deviation(change))


def _worst(model: PrivateLP) -> Callable[[Route], float]:
    """Key to compare routes: the larger share, of the span lost or of the width violated (rows left out included)."""
    span = _span(model)

    def key(route: Route) -> float:
        width = max(route.promise.width, 1e-300)
        violated = route.violation / width + route.slack_rows / max(route.promise.rows, 1)
        lost = 0.0 if math.isnan(route.objective_alpha) else route.objective_alpha / span
        return max(violated, lost)

    return key


def _plain(route: Route) -> dict[str, object]:
    out: dict[str, object] = {"way": route.goal}
    if route.goal == "penalty":
        out["weight"] = route.weight
    if route.goal == "search":
        out |= {"runs": route.steps, "margin of a test": route.margin}
    return out


_RELATIVE = (
    "the private rows have no declared magnitude: each is divided by its own width (the largest violation it can have), "
    "and alpha is a share of that"
)


def _statement(model: PrivateLP, request: Request, route: Route, loss: float, vacuous: bool, relative: bool) -> str:
    rows, left = route.promise.rows, min(route.slack_rows, route.promise.rows)
    unit = " times its own width" if relative else ""
    which = f"all but {left} of the {rows} private constraints are" if left else "no private constraint is"
    what = f"{which} violated by more than {number(route.violation)}{unit}"
    if left:
        what = f"{which} violated by at most {number(route.violation)}{unit}"
    if route.goal == "target":
        assert request.target is not None
        target = -request.target if model.affine.maximize else request.target
        side = "at least" if model.affine.maximize else "at most"
        what += f", and the objective is {side} the target {number(target)} (if a feasible point reaches it)"
    elif route.goal is not None:
        what += f", and the objective is within {number(loss)} of the true optimum"
    text = f"with probability {number(1 - request.beta)}, {what}"
    return says_nothing(text) if vacuous else text
