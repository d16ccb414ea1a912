"""Mechanisms made of engines: how the objective is treated when an engine only finds nearly feasible points.

HRRU14 solves feasibility problems and takes the optimal value as known (its footnote 2). Three ways around that:

* *target*: the user names a public value; the public constraint ``c'x <= target`` is added.
* *search*: the value is found by bisection of the public range of the objective. The engine runs k times, each time
  on a part of the budget, and k - 1 points are tested by a noisy count (or size) of what they violate.
* *penalty*: the objective is added to the violation, ``c'x / weight + V(x)`` is minimised, in one run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpmodel._text import number
from dpmodel.classify.private_lp import PrivateLP
from dpmodel.compile.affine_map import Floats
from dpmodel.mechanisms.lp.feasibility import Engine, Point, Task
from dpmodel.mechanisms.lp.noise_once import objective_loss
from dpmodel.mechanisms.lp.private_rows import most_rows_stay, plain_linear, private_rows, public_polyhedron
from dpmodel.mechanisms.lp.routes import (
    Route,
    best_route,
    noise_of_tests,
    objective_design,
    private_objective,
    span_of,
    why_none,
)
from dpmodel.mechanisms.mechanism import (
    YES,
    Forecast,
    Outcome,
    Progress,
    Request,
    Verdict,
    no_progress,
    says_nothing,
)
from dpmodel.privacy import NoiseSource


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
        return YES if best_route(self.engine, model, request) is not None else Verdict(False, why_none(model, request))

    def forecast(self, model: PrivateLP, request: Request) -> Forecast:
        route = best_route(self.engine, model, request)
        assert route is not None  # eligible() came first
        promise = route.promise
        measured = objective_design(model, request)
        loss = route.objective_alpha + (objective_loss(model, measured) if measured else 0.0)
        allowed = route.violation + promise.width * route.slack_rows / max(promise.rows, 1)
        # The mean violation that the statement allows is then no less than the largest there can be.
        vacuous = allowed >= promise.width
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
            span=span_of(model) if not math.isnan(loss) else math.nan,
            vacuous=vacuous,
            work=promise.work if route.steps == 1 else f"{route.steps} times: {promise.work}",
            noise=noise,
            caveats=(*promise.caveats, *((_RELATIVE,) if self._relative(model) else ())),
        )

    def run(self, model: PrivateLP, request: Request, noise: NoiseSource, progress: Progress = no_progress) -> Outcome:
        route = best_route(self.engine, model, request)
        assert route is not None
        theta = model.read_private()
        cost = _released_cost(model, request, theta, noise)
        if route.goal == "search":
            point = self._search(route, cost, theta, noise, progress)
        else:
            task = route.task
            if route.goal == "penalty":
                task = replace(task, tilt=cost / route.weight)
            elif route.goal == "target" and private_objective(model):
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
        # A fresh copy of the public set: what it remembers of released numbers ends with this solve.
        whole, engine = replace(route.task, body=replace(route.task.body)), self.engine
        low, high = -whole.body.support(-cost), whole.body.support(cost)
        if engine.counts_rows:  # the runs keep to the rows and the violation that were planned
            whole = replace(whole, slack_rows=route.promise.slack_rows)
        best, accepted = self._reach(whole, cost, high, theta, source), 0
        law = noise_of_tests(engine, route.whole, route.steps)
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


def _released_cost(model: PrivateLP, request: Request, theta: Floats, source: NoiseSource) -> Floats:
    """(n,) the public objective, or the private one measured with its share of the budget."""
    measured = objective_design(model, request)
    if measured is None:
        return model.form.c0
    part = measured.parts["objective"]
    exact = part.measurement.values(theta)
    released = part.law.sample(exact, source) if part.law is not None else exact
    cost = model.form.c0.copy()
    cost[part.measurement.positions] += part.measurement.rebuild(released, clip=part.clip)
    return cost


def _plain(route: Route) -> dict[str, object]:
    out: dict[str, object] = {"way": route.goal}
    if route.goal == "penalty":
        out["weight"] = route.weight
    if route.goal == "search":
        out |= {"runs": route.steps, "margin of a test": route.margin}
    return out


_RELATIVE = (
    "the private rows have no declared magnitude: each is divided by its own width (the largest violation it can "
    "have), and alpha is a share of that"
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
