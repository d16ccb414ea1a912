"""Mechanisms made of engines: how the objective is treated when an engine only finds nearly feasible points.

HRRU14 solves feasibility problems and takes the optimal value as known (its footnote 2). Three ways around that:

* *target*: the user names a public value; the public constraint ``c'x <= target`` is added.
* *search*: the value is found by bisection of the public range of the objective. The engine runs k times, each time
  on a part of the budget, and k - 1 points are tested by a noisy count (or size) of what they violate.
* *penalty*: the objective is added to the violation, ``c'x / weight + V(x)`` is minimised, in one run.

Which settings an engine runs with, where it is asked for no statement: those that do best on synthetic databases.

A proof of little error says how an engine does on the worst data, and the settings that it likes best may be worse than
others in practice: as the budget grows, a choice by proofs alone moves from good settings without a proof to worse ones
with one. So ``alpha`` or ``slack_rows`` asks for the best statement; without them the settings with the least simulated
error are run, and the plan states what is proved of those. Settings that are the same at every budget can only gain
from more of it, and so does the best of them. Public facts only: databases are drawn from the declarations.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dpmodel._types import Floats
from dpmodel.contract import (
    YES,
    Mechanism,
    Options,
    Outcome,
    Progress,
    Serves,
    Verdict,
    no_progress,
    refuse_feasibility,
)
from dpmodel.errors import NotPrivateWarning
from dpmodel.forecast import Bound, Forecast, Violation
from dpmodel.memo import cached
from dpmodel.privacy import NoiseSource, SeededSource
from dpmodel.privacy.spend import Spend
from dpmodel.programs.fewer_records import as_noisy, fewer_records
from dpmodel.programs.model import PrivateNumbers, Program, RecordsProgram
from dpmodel.programs.noise_once import objective_loss, objective_noise, release
from dpmodel.programs.objective import objective_ceiling, objective_span, private_objective
from dpmodel.programs.point_finder import (
    ONE_CANDIDATE,
    Engine,
    Point,
    Promise,
    Route,
    Task,
    best_route,
    noise_of_tests,
    objective_design,
    whole_task,
    why_none,
    with_promise,
)
from dpmodel.programs.public import largest_violation
from dpmodel.programs.rows import most_rows_stay, plain_linear, private_rows, public_polyhedron
from dpmodel.programs.simulation import DATABASES, databases
from dpmodel.text import number

# ---------------------------------------------------------------------- budget


# ---------------------------------------------------------------------- public facts and words


@dataclass(frozen=True)
class EngineMechanism(Mechanism[Program]):
    """A nearly feasible point by an engine, with the objective as target, by search or as a penalty.

    Source
        The engine's; HRRU14, section 3 and footnote 2, for the treatment of the objective.
    Privacy
        Private values are read in three places, each paid from its own part of the budget, which add up to the
        whole (sequential composition: zCDP costs or pure epsilons add, and a private objective with
        its own (epsilon / 2, delta / 2) by basic composition):
        1. a private objective is measured once like ``laplace-once`` or ``gaussian-once``; from then on it is a
           released vector;
        2. the engine (its docstring), once, or up to k times with 1/k of its part each in a search;
        3. each of the k - 1 tests of a search adds noise (Gaussian, Laplace for a pure budget) to the engine's
           ``excess``, calibrated to ``sensitivity``, the most by which one record moves it; the bisection reads only
           the noisy answers.
        Which way is taken, k, weights and limits follow from public facts.
    Utility (with probability 1 - beta, if some public point satisfies all private constraints)
        target: the engine's promise, with ``c'x <= target``, if a feasible point reaches the target. A private c
        measured as c^ with ``|(c^ - c)'x| <= m`` over the public set: the set is cut at ``c^'x <= target + m``, which
        such a point satisfies, and then ``c'x <= target + 2 m``.
        penalty with weight t: ``c'x <= c'x* + t error`` and ``V(x) <= error + span / t``, where span bounds
        ``c'x* - min c'x`` over the public set: divide ``c'x / t + V(x) <= c'x* / t + error`` (the engine's contract,
        V >= 0 and V(x*) = 0) accordingly.
        search: the engine meets every target that a feasible point reaches, and then passes its test, so the
        last accepted target is within ``span / 2^(k-1)`` of the optimum; an accepted point's excess is at most
        the promised limit plus twice the margin of a test. The first run takes no target and needs no test.
        A private objective adds the bound of its measurement to the loss. Runs on parts of the public set that are
        known only then (released objectives, targets of a search) are planned anew, for the rows left out as
        promised; should one promise less than was planned for all of them, the release says by how much.
    Cost
        The engine's, up to k times in a search.
    """

    engine: Engine

    @property
    def serves(self) -> Serves:
        engine = self.engine
        return Serves(
            Program,
            engine.cells,
            as_printed=engine.as_printed,
            reads_blocks=engine.reads_blocks,
            leaves_out=engine.counts_rows,
        )

    @property
    def name(self) -> str:
        return self.engine.name

    @property
    def vertices(self) -> Any:
        """The points that the engine was told to look at, or None."""
        return getattr(self.engine, "vertices", None)

    @property
    def source(self) -> str:
        return self.engine.source

    def eligible(self, model: Program, options: Options) -> Verdict:
        if not {"scalar", "matrix"} & set(model.private_parts()):
            return Verdict(False, "serves problems with private constraints")
        if Spend.of(options.epsilon, options.delta).rho == 0:
            return Verdict(False, "the budget is below what floating point tells from none")
        other = refuse_feasibility(options, "centred", "relaxed")
        if other is not None:
            return other
        if any(cell.part == "objective" and cell.level == "high" for cell in model.classification.cells):
            return Verdict(False, "the objective may change arbitrarily: no noise can hide it")
        verdict = plain_linear(model)
        if verdict is None and public_polyhedron(model).empty:
            verdict = Verdict(False, "the public constraints have no common point")
        if verdict is None and self.engine.counts_rows:
            verdict = most_rows_stay(model)
        verdict = verdict or self.engine.eligible(model, options)
        if not verdict.eligible:
            return verdict
        if model.form.offset.nnz and options.goal in ("target", "search"):
            return Verdict(False, "a target for an objective whose constant term is private says nothing")
        return YES

    def at_least(self, model: Program, options: Options) -> Iterator[Bound]:
        """What one run with all of the budget promises on the whole public set without regard to the objective: every
        way to treat an objective adds to that."""
        return self.engine.least(whole_task(model, self.engine, options))

    def forecast(self, model: Program, options: Options) -> Forecast | Verdict:
        formed = self.engine.formed(model)
        if not formed.eligible:
            return formed
        route = best_route(model, self.engine, options)
        if route is None:
            return Verdict(False, why_none(model, options))
        if route.steps == 1 and route.promise.noise.get("candidates") == 1:
            return ONE_CANDIDATE
        route = settle(model, self.engine, options)
        promise = route.promise
        measured = objective_design(model, options)
        slip = objective_loss(model, measured) if measured else 0.0
        # No number is beyond what is known without data.
        loss = min(route.objective_alpha + slip, objective_span(model))
        loss = math.nan if math.isnan(route.objective_alpha) else loss
        stated = min(slip, objective_ceiling(model) - (options.target or 0.0)) if route.goal == "target" else loss
        violation = min(route.violation, promise.width)
        if not self._relative(model):
            violation = min(violation, largest_violation(model))
        noise = dict(promise.noise)
        if measured is not None:
            noise["objective"] = measured.parts["objective"].to_dict()
        if route.goal is not None:
            noise["objective treated by"] = _plain(route, slip)
        return Forecast(
            statement=_statement(model, options, route, stated, violation, self._relative(model)),
            epsilon=options.epsilon,
            delta=options.delta,
            beta=options.beta,
            proved=promise.proved,
            work=promise.work if route.steps == 1 else f"{route.steps} runs of {promise.work}",
            noise=noise,
            caveats=(*promise.caveats, *((_RELATIVE,) if self._relative(model) else ())),
            error=Violation(
                objective=loss,
                violation=violation,
                slack_rows=min(route.slack_rows, promise.rows),
                private_rows=promise.rows,
                width=promise.width,
                span=objective_span(model) if not math.isnan(loss) else math.nan,
                relative=self._relative(model),
            ),
        )

    def run(self, model: Program, options: Options, noise: NoiseSource, progress: Progress = no_progress) -> Outcome:
        route = settle(model, self.engine, options)
        theta = model.read_rows() if isinstance(model, RecordsProgram) else model.read_private()
        cost = _released_cost(model, options, theta, noise)
        if route.goal == "search":
            point = self._search(route, cost, theta, noise, progress)
        else:
            task = route.task
            if route.goal == "penalty":
                task = replace(task, tilt=cost / route.weight)
            if route.goal == "target" and private_objective(model):
                assert options.target is not None
                measured = objective_design(model, options)
                assert measured is not None
                cut = options.target - model.form.d0 + objective_noise(model, measured) / 2
                if public_polyhedron(model).with_row(cost, cut).empty:
                    notes = ("no public point reaches the target under the released objective",)
                    return Outcome("infeasible", None, None, None, notes=notes)
                point = self._reach(self._kept(route, task), route, cost, cut, theta, noise, progress)[1]
            else:
                point = self.engine.point(task, route.promise, theta, noise, progress)
        x = point.x
        return Outcome(
            "optimal", x, None, float(cost @ x) + model.form.d0,
            extra_violation=point.extra_violation, notes=point.notes,
        )  # fmt: skip

    def _search(self, route: Route, cost: Floats, theta: Any, source: NoiseSource, progress: Progress) -> Point:
        """Bisection on the objective's value; see the class."""
        # A fresh copy of the public set: what it keeps of released numbers ends with this solve.
        whole, engine = self._kept(route, route.task), self.engine
        if engine.reads_blocks:
            theta = private_rows(whole.model).table(theta)  # for all runs and tests
        low, high = -whole.polytope.support(-cost), whole.polytope.support(cost)
        best, accepted = None, 0
        distribution = noise_of_tests(engine, route.whole, route.steps)
        for step in range(1, route.steps):
            progress(f"search for the objective, {route.steps} runs", step / route.steps)
            middle = (low + high) / 2
            promise, point = self._reach(whole, route, cost, middle, theta, source)
            excess = engine.excess(whole, promise, point.x, theta)
            noisy = float(distribution.add_to(np.array([excess]), source)[0])
            if noisy <= engine.excess_limit(promise) + route.margin:
                best, high, accepted = point, middle, accepted + 1
            else:
                low = middle
        if best is None:  # a target of ``high`` cuts nothing off, and needs no test
            best = self._within(whole, route, theta, source)[1]
        notes = (*best.notes, f"search: {accepted} of {route.steps - 1} targets passed; the objective is at most "
                 f"{number(high)} in minimisation form")  # fmt: skip
        return replace(best, notes=notes)

    def _relative(self, model: Program) -> bool:
        """Whether violations are shares of each row's own width: engines that count rows scale those without bounds."""
        return self.engine.counts_rows and private_rows(model).relative

    def _kept(self, route: Route, task: Task) -> Task:
        """``task`` on the whole public set, a fresh copy: what it keeps of released numbers ends with this solve.
        Runs on parts of it keep to the rows that were planned."""
        slack = route.promise.slack_rows if self.engine.counts_rows else task.slack_rows
        return replace(task, polytope=public_polyhedron(task.model).copy(), slack_rows=slack)

    def _reach(
        self,
        task: Task,
        route: Route,
        cost: Floats,
        target: float,
        theta: Any,
        source: NoiseSource,
        progress: Progress = no_progress,
    ) -> tuple[Promise, Point]:
        """One run with the objective at most ``target``."""
        part = replace(task, polytope=task.polytope.with_row(cost, target))
        return self._within(part, route, theta, source, progress)

    def _within(
        self, task: Task, route: Route, theta: Any, source: NoiseSource, progress: Progress = no_progress
    ) -> tuple[Promise, Point]:
        """One run, planned for the polytope it runs on."""
        promise = self.engine.promise(task)
        point = self.engine.point(task, promise, theta, source, progress)
        over = max(promise.alpha - route.promise.alpha, 0.0)
        return promise, replace(point, extra_violation=point.extra_violation + over)


def _released_cost(model: Program, options: Options, theta: PrivateNumbers, source: NoiseSource) -> Floats:
    """(n,) the public objective, or the private one measured with its share of the budget."""
    measured = objective_design(model, options)
    if measured is None:
        return model.form.c0
    part = measured.parts["objective"]
    assert isinstance(theta, np.ndarray)  # where rows lie in blocks, the objective is public
    cost = model.form.c0.copy()
    cost[part.measurement.positions] += release(part, theta, source)
    return cost


def _plain(route: Route, slip: float) -> dict[str, object]:
    out: dict[str, object] = {"way": route.goal}
    if route.goal == "target":
        out["target missed by"] = slip
    if route.goal == "penalty":
        out["weight"] = route.weight
    if route.goal == "search":
        out |= {"runs": route.steps, "margin of a test": route.margin}
    return out


_RELATIVE = (
    "the private rows have no declared magnitude: each is divided by its own width (the largest violation it can "
    "have), and alpha is a share of that"
)


def _statement(model: Program, options: Options, route: Route, loss: float, violation: float, relative: bool) -> str:
    rows, left = route.promise.rows, min(route.slack_rows, route.promise.rows)
    unit = " times its own width" if relative else ""
    which = f"all but {left} of the {rows} private constraints are" if left else "no private constraint is"
    what = f"{which} violated by more than {number(violation)}{unit}"
    if left:
        what = f"{which} violated by at most {number(violation)}{unit}"
    if route.goal == "target":
        assert options.target is not None
        target = -options.target if model.affine.maximize else options.target
        side = "at least" if model.affine.maximize else "at most"
        missed = f", missed by at most {number(loss)}" if loss > 0 else ""
        what += f", and the objective is {side} the target {number(target)}{missed} (if a feasible point reaches it)"
    elif route.goal is not None:
        what += f", and the objective is at most {number(loss)} worse than the true optimum"
    return f"with probability {number(1 - options.beta)}, {what}"


# Numbers read in the runs with one of the settings: beyond the first one database has to do, beyond the second none.
# A projection onto a set with several public rows takes about as long as reading so many.
_FEW, _MOST, _PROJECTION = 3e7, 3e8, 3e5


@cached
def settle(model: Program, engine: Engine, options: Options) -> Route:
    """The best route with the settings of least simulated error; as it is where a statement was asked for."""
    route = best_route(model, engine, options)
    assert route is not None  # eligible() came first
    requested = options.by_proof or (options.violation, options.slack_rows) != (None, None)
    replanned = route.goal == "target" and private_objective(model)
    if requested or replanned or route.goal == "search" or not route.promise.width > 0 or not route.promise.others():
        return route
    tries = _tried(model, engine, options, route)
    if not tries:
        return route
    whole = fewer_records(model) is None  # of many records, one database tells
    count = DATABASES if whole and max(work for _, _, work in tries) <= _FEW else 1
    best, least, worse = route.promise, math.inf, False
    for promise, run, _ in tries:
        if worse and promise is not route.promise:
            continue  # they come in the order of the budgets they are for
        found = run(count)
        best, least, worse = (promise, found, False) if found < least else (best, least, True)
    return route if best is route.promise else with_promise(route, best)


def _tried(
    model: Program, engine: Engine, options: Options, route: Route
) -> list[tuple[Promise, Callable[[int], float], float]]:
    """The settings that can be simulated, how, and the numbers that a run reads. Large problems with fewer records: the
    same settings in the same order, planned for those."""
    few, same = fewer_records(model), route
    if few is not None:
        asked = as_noisy(replace(options, goal=route.goal or "auto", penalty=options.penalty), few.share)
        found = best_route(few, engine, asked)
        if found is None or found.goal != route.goal or len(found.promise.others()) != len(route.promise.others()):
            return []
        same = found
    drawn = few or model
    out: list[tuple[Promise, Callable[[int], float], float]] = []
    own = [*zip(route.promise.others(), same.promise.others(), strict=True)]
    if route.promise.plan.accelerated and same.promise.plan.accelerated:
        own.append((route.promise, same.promise))
    for promise, twin in own:
        if (work := _work(same, twin)) <= _MOST:
            out.append((promise, partial(_simulated, engine, drawn, same, twin), work))
    return out


def _work(route: Route, promise: Promise) -> float:
    form, polytope = route.task.model.form, route.task.polytope
    projection = _PROJECTION if polytope.A_ub.shape[0] + polytope.A_eq.shape[0] > 1 else 0.0
    return float(promise.plan.steps * (form.matrix.nnz + form.A0.nnz + projection))


def _simulated(engine: Engine, model: Program, route: Route, promise: Promise, count: int) -> float:
    """What the engine minimises, tilt and mean violation, on ``count`` synthetic databases."""
    total, rows = 0.0, private_rows(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        for number, theta in enumerate(databases(model, count)):
            task = route.task
            if route.goal == "penalty":
                task = replace(task, tilt=(model.form.c0 + model.form.objective.apply(theta)) / route.weight)
            x = engine.point(task, promise, theta, SeededSource(number), no_progress).x
            G, h = rows.values(theta)
            total += float(task.tilt @ x) + float(np.maximum(G @ x - h, 0.0).mean())
    return total
