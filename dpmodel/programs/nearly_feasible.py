"""Algorithms that find nearly feasible points: what they owe, how they are run, and with which settings.

Such an algorithm (dense multiplicative weights, hinge descent, ...) gets private rows ``G x <= h`` and a public
polyhedron K. Let V(x) >= 0 be its measure of violation (mean hinge, mean over the s worst rows, largest, ...). For a
``tilt`` w (public or released, zero unless the objective is an exact penalty) it returns a point x of K with

    w'x + V(x) <= w'x* + error    for every x* in K that satisfies all private rows,

with probability 1 - beta, and ``V(x) <= v`` means that all but ``slack_rows`` rows are violated by at most
``gain * v``. The objective is treated by target, search or penalty (``goals.py``).

*Settings*, where no statement was asked for: those that do best on synthetic databases. A proof is about the worst
data, and the settings that it likes best may be worse than others in practice: as the budget grows, a choice by proofs
alone moves from good settings without a proof to worse ones with one. So ``alpha`` or ``slack_rows`` asks for the best
statement; without them the settings with the least simulated error are run, and the plan states what is proved of
those. Settings that are the same at every budget can only gain from more of it, and so does the best of them. Public
facts only: databases are drawn from the declarations.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

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
from dpmodel.forecast import Forecast, Violation
from dpmodel.memo import cached
from dpmodel.privacy import Cost, NoiseSource, SeededSource
from dpmodel.privacy.accounting import Spend
from dpmodel.programs.fewer_records import as_noisy, fewer_records
from dpmodel.programs.goals import (
    ONE_CANDIDATE,
    Point,
    Promise,
    Route,
    Task,
    best_route,
    noise_of_tests,
    objective_design,
    task_of,
    why_none,
    with_promise,
)
from dpmodel.programs.model import PrivateNumbers, Program, RecordsProgram
from dpmodel.programs.noise_once import objective_loss, objective_noise, release
from dpmodel.programs.public import largest_violation, objective_ceiling, objective_span, private_objective
from dpmodel.programs.rows import RowPart, plain_linear, private_rows, public_polyhedron
from dpmodel.programs.simulation import DATABASES, databases
from dpmodel.text import number


class NearlyFeasible(Mechanism[Program]):
    """An algorithm that finds a nearly feasible point, with the objective as target, by search or as a penalty.

    Source
        The algorithm's own; HRRU14, section 3 and footnote 2, for the treatment of the objective.
    Privacy
        Private values are read in three places, each paid from its own part of the budget, which add up to the
        whole (sequential composition: zCDP costs or pure epsilons add, and a private objective with
        its own (epsilon / 2, delta / 2) by basic composition):
        1. a private objective is measured once like ``laplace-once`` or ``gaussian-once``; from then on it is a
           released vector;
        2. the algorithm (its own docstring), once, or up to k times with 1/k of its part each in a search;
        3. each of the k - 1 tests of a search adds noise (Gaussian, Laplace for a pure budget) to
           ``excess``, calibrated to ``sensitivity``, the most by which one record moves it; the bisection reads only
           the noisy answers.
        Which way is taken, k, weights and limits follow from public facts.
    Utility (with probability 1 - beta, if some public point satisfies all private constraints)
        target: the algorithm's promise, with ``c'x <= target``, if a feasible point reaches the target. A private c
        measured as c^ with ``|(c^ - c)'x| <= m`` over the public set: the set is cut at ``c^'x <= target + m``, which
        such a point satisfies, and then ``c'x <= target + 2 m``.
        penalty with weight t: ``c'x <= c'x* + t error`` and ``V(x) <= error + span / t``, where span bounds
        ``c'x* - min c'x`` over the public set: divide ``c'x / t + V(x) <= c'x* / t + error`` (the contract above,
        V >= 0 and V(x*) = 0) accordingly.
        search: the algorithm meets every target that a feasible point reaches, and then passes its test, so the
        last accepted target is within ``span / 2^(k-1)`` of the optimum; an accepted point's excess is at most
        the promised limit plus twice the margin of a test. The first run takes no target and needs no test.
        A private objective adds the bound of its measurement to the loss. Runs on parts of the public set that are
        known only then (released objectives, targets of a search) are planned anew, for the rows left out as
        promised; should one promise less than was planned for all of them, the release says by how much.
    Cost
        The algorithm's, up to k times in a search.
    """

    name: str
    source: str
    serves: ClassVar[Serves]
    # Whether every release is Gaussian noise when delta > 0 (then the exact composition is used).
    gaussian_only: bool = False
    # Whether it can serve an exact penalty; else ``task.tilt`` is always zero.
    takes_tilt: bool = True
    # Most steps worth planning in a paid search for the objective's value; 0 when a search makes no sense.
    search_steps: int = 6
    # Whether it keeps to (task.epsilon, task.delta) by composition of its own instead of to ``task.spend``.
    own_composition: bool = False

    def suits(self, model: Program, options: Options) -> Verdict:
        """Yes, or why not; public facts only. The objective (private or not) is not its business."""
        raise NotImplementedError

    def plain(self, model: Program) -> Verdict | None:
        """No, unless its points can be searched for in the public set."""
        return plain_linear(model)

    def formed(self, model: Program) -> Verdict:
        """Yes, or why not, where it takes work to see: asked before anything is promised."""
        return YES

    def promise(self, task: Task) -> Promise:
        """Public facts only."""
        raise NotImplementedError

    def least(self, task: Task) -> float:
        """What ``promise`` cannot say less than, see ``Mechanism.bound``. ``task`` has the whole budget, no tilt."""
        promise = self.promise(task)
        missed = promise.alpha + promise.width * (promise.slack_rows / promise.rows if promise.slack_rows else 0.0)
        return missed if promise.proved else 0.0

    def point(self, task: Task, promise: Promise, theta: Any, source: NoiseSource, progress: Progress) -> Point:
        """Spend ``task.spend`` on private data. ``theta`` (P,) holds the private values, or says where rows lie; those
        that read blocks also take the table of the rows."""
        raise NotImplementedError

    def excess(self, task: Task, promise: Promise, x: Floats, theta: Any) -> float:
        """Private: how badly x misses the promise, for the paid test of a search: the number of rows violated by
        more than alpha, or the largest violation."""
        raise NotImplementedError

    def excess_sensitivity(self, task: Task) -> float:
        """How far one record moves ``excess`` (the larger direction)."""
        raise NotImplementedError

    def event(self, task: Task) -> Cost:
        """What all runs and tests on ``task`` cost together; by ``gaussian_only`` and ``own_composition``."""
        if self.own_composition:
            return Cost.approximate(task.epsilon, task.delta)
        return (Cost.all_gaussian if self.gaussian_only else Cost.all_zcdp)(task.epsilon, task.delta)

    def excess_limit(self, promise: Promise) -> float:
        """Value of ``excess`` that the promise allows."""
        return promise.error

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
        verdict = self.plain(model)
        if verdict is None and public_polyhedron(model).empty:
            verdict = Verdict(False, "the public constraints have no common point")
        if verdict is None and self.serves.leaves_out:
            verdict = _most_rows_stay(model)
        verdict = verdict or self.suits(model, options)
        if not verdict.eligible:
            return verdict
        if model.form.offset.nnz and options.goal in ("target", "search"):
            return Verdict(False, "a target for an objective whose constant term is private says nothing")
        return YES

    def bound(self, model: Program, options: Options) -> float:
        """What one run with all of the budget promises on the whole public set without regard to the objective: every
        way to treat an objective adds to that. Nothing is known where a target leaves a part of the set."""
        if options.target is not None:
            return 0.0
        return min(self.least(task_of(model, self, options)), largest_violation(model))

    def forecast(self, model: Program, options: Options) -> Forecast | Verdict:
        formed = self.formed(model)
        if not formed.eligible:
            return formed
        route = best_route(model, self, options)
        if route is None:
            return Verdict(False, why_none(model, options))
        if route.steps == 1 and route.promise.noise.get("candidates") == 1:
            return ONE_CANDIDATE
        route = settle(model, self, options)
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
        event = self.event(route.task if route.steps == 1 else replace(route.whole, whole=False))
        if measured is not None:
            event += measured.event or Cost.approximate(measured.epsilon, measured.delta)
        return Forecast(
            statement=_statement(model, options, route, stated, violation, self._relative(model)),
            epsilon=options.epsilon,
            delta=options.delta,
            event=event,
            beta=options.beta,
            proved=promise.proved,
            work=promise.work if route.steps == 1 else f"{route.steps} runs of {promise.work}",
            noise=noise,
            caveats=(*promise.caveats, *((RELATIVE,) if self._relative(model) else ())),
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
        route = settle(model, self, options)
        theta = model.read_rows() if isinstance(model, RecordsProgram) else model.read_private()
        cost = _released_cost(model, options, theta, noise)
        if route.goal == "search":
            point = self._search(route, cost, theta, noise, progress)
        else:
            # A fresh copy of the public set: where its solver ended, which released numbers decide, ends with this run.
            task = replace(route.task, polytope=route.task.polytope.copy())
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
                point = self._run_below(self._for_this_solve(route, task), route, cost, cut, theta, noise, progress)[1]
            else:
                point = self.point(task, route.promise, theta, noise, progress)
        x = point.x
        return Outcome(
            "optimal", x, None, float(cost @ x) + model.form.d0,
            extra_violation=point.extra_violation, notes=point.notes,
        )  # fmt: skip

    def _search(self, route: Route, cost: Floats, theta: Any, source: NoiseSource, progress: Progress) -> Point:
        """Bisection on the objective's value; see the class."""
        # A fresh copy of the public set: what it keeps of released numbers ends with this solve.
        whole = self._for_this_solve(route, route.task)
        if self.serves.reads_blocks:
            theta = private_rows(whole.model).table(theta)  # for all runs and tests
        low, high = -whole.polytope.support(-cost), whole.polytope.support(cost)
        best, accepted = None, 0
        distribution = noise_of_tests(self, route.whole, route.steps)
        for step in range(1, route.steps):
            progress(f"search for the objective, {route.steps} runs", step / route.steps)
            middle = (low + high) / 2
            promise, point = self._run_below(whole, route, cost, middle, theta, source)
            excess = self.excess(whole, promise, point.x, theta)
            noisy = float(distribution.add_to(np.array([excess]), source)[0])
            if noisy <= self.excess_limit(promise) + route.margin:
                best, high, accepted = point, middle, accepted + 1
            else:
                low = middle
        if best is None:  # a target of ``high`` cuts nothing off, and needs no test
            best = self._run_on(whole, route, theta, source)[1]
        notes = (*best.notes, f"search: {accepted} of {route.steps - 1} targets passed; the objective is at most "
                 f"{number(high)} in minimisation form")  # fmt: skip
        return replace(best, notes=notes)

    def _relative(self, model: Program) -> bool:
        """Whether violations are shares of each row's own width: of rows without bounds, where some are left out."""
        return self.serves.leaves_out and private_rows(model).relative

    def _for_this_solve(self, route: Route, task: Task) -> Task:
        """``task`` on the whole public set, a fresh copy: what it keeps of released numbers ends with this solve.
        Runs on parts of it keep to the rows that were planned."""
        slack = route.promise.slack_rows if self.serves.leaves_out else task.slack_rows
        return replace(task, polytope=public_polyhedron(task.model).copy(), slack_rows=slack)

    def _run_below(
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
        return self._run_on(part, route, theta, source, progress)

    def _run_on(
        self, task: Task, route: Route, theta: Any, source: NoiseSource, progress: Progress = no_progress
    ) -> tuple[Promise, Point]:
        """One run, planned for the polytope it runs on."""
        promise = self.promise(task)
        point = self.point(task, promise, theta, source, progress)
        over = max(promise.alpha - route.promise.alpha, 0.0)
        return promise, replace(point, extra_violation=point.extra_violation + over)


class LeavesRowsOut(NearlyFeasible):
    """An algorithm that leaves rows out. The test of a search: how many rows are violated by more than alpha."""

    def excess(self, task: Task, promise: Promise, x: Floats, theta: Any) -> float:
        table = private_rows(task.model).table(theta)
        return float(table.map_reduce(partial(_missed, x, promise.alpha)))

    def excess_sensitivity(self, task: Task) -> float:
        return float(private_rows(task.model).per_record)

    def excess_limit(self, promise: Promise) -> float:
        return float(promise.slack_rows)


def _most_rows_stay(model: Program) -> Verdict | None:
    """No, where one record reaches most of the private rows: leaving a few of them out hides nobody."""
    rows = private_rows(model)
    if 2 * rows.per_record <= rows.count:
        return None
    reach = f"one record reaches {rows.per_record} of the {rows.count} private rows (equalities count twice)"
    return Verdict(False, f"{reach}: leaving a few out would hide nobody")


def _missed(x: Floats, alpha: float, part: RowPart) -> int:
    """Rows violated by more than ``alpha``."""
    return int(np.count_nonzero(part.residual(x) > alpha))


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


RELATIVE = (
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
def settle(model: Program, algorithm: NearlyFeasible, options: Options) -> Route:
    """The best route with the settings of least simulated error; as it is where a statement was asked for."""
    route = best_route(model, algorithm, options)
    assert route is not None  # eligible() came first
    requested = options.by_proof or (options.violation, options.slack_rows) != (None, None)
    replanned = route.goal == "target" and private_objective(model)
    if requested or replanned or route.goal == "search" or not route.promise.width > 0 or not route.promise.others():
        return route
    tries = _tried(model, algorithm, options, route)
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
    model: Program, algorithm: NearlyFeasible, options: Options, route: Route
) -> list[tuple[Promise, Callable[[int], float], float]]:
    """The settings that can be simulated, how, and the numbers that a run reads. Large problems with fewer records: the
    same settings in the same order, planned for those."""
    few, same = fewer_records(model), route
    if few is not None:
        asked = as_noisy(replace(options, goal=route.goal or "auto", penalty=options.penalty), few.share)
        found = best_route(few, algorithm, asked)
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
            out.append((promise, partial(_simulated, algorithm, drawn, same, twin), work))
    return out


def _work(route: Route, promise: Promise) -> float:
    form, polytope = route.task.model.form, route.task.polytope
    projection = _PROJECTION if polytope.A_ub.shape[0] + polytope.A_eq.shape[0] > 1 else 0.0
    return float(promise.plan.steps * (form.matrix.nnz + form.A0.nnz + projection))


def _simulated(algorithm: NearlyFeasible, model: Program, route: Route, promise: Promise, count: int) -> float:
    """What the algorithm minimises, tilt and mean violation, on ``count`` synthetic databases."""
    total, rows = 0.0, private_rows(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        for number, theta in enumerate(databases(model, count)):
            task = route.task
            if route.goal == "penalty":
                task = replace(task, tilt=(model.form.c0 + model.form.objective.apply(theta)) / route.weight)
            x = algorithm.point(task, promise, theta, SeededSource(number), no_progress).x
            G, h = rows.values(theta)
            total += float(task.tilt @ x) + float(np.maximum(G @ x - h, 0.0).mean())
    return total
