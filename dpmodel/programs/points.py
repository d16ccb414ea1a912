"""Choosing among public points, a net over a small polyhedron or given ones: by the exponential mechanism that which
violates fewest private rows, or (``cheapest``) by the sparse vector technique the cheapest that violates few."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, PrivateArray
from dpmodel.contract import (
    YES,
    Options,
    Outcome,
    Progress,
    Serves,
    Verdict,
    no_progress,
)
from dpmodel.forecast import Forecast, Violation
from dpmodel.memo import cached
from dpmodel.numerics.nets import MOST_DIMENSIONS, MOST_POINTS, Choices, Net, RowBounds, level_for, net_of
from dpmodel.numerics.polyhedron import Polyhedron
from dpmodel.privacy import (
    AboveThreshold,
    Cost,
    NoiseSource,
    above_threshold_error,
    exponential_mechanism,
    permute_and_flip,
)
from dpmodel.programs.goals import ONE_CANDIDATE, Point, Promise, Task
from dpmodel.programs.model import PrivateNumbers, Program
from dpmodel.programs.nearly_feasible import RELATIVE, LeavesRowsOut
from dpmodel.programs.public import objective_span, private_objective
from dpmodel.programs.rows import PrivateRows, plain_linear, private_rows, public_polyhedron
from dpmodel.text import number

# Points times rows, for the run time; and how many of these are held at once.
_MOST_PRODUCTS = 4e9
_AT_ONCE = 4_000_000


@dataclass(frozen=True, kw_only=True)
class Choice(Choices):
    """The plan: ``epsilon`` of the selection, and whether it is pure."""

    epsilon: float
    pure: bool


# Points are asked in blocks of this many, and only until one passes.
_BLOCK = 4096
_LISTED = "the statement is about given points: it is proved relative to the best of them"


@dataclass(frozen=True, kw_only=True)
class Ask(Choices):
    """The public plan: ``count`` points. ``allowed`` : rows that a point may violate to pass (without noise). ``slack``
    : rows that the chosen one violates at most; ``loss`` : by how much it is dearer than the optimum at most."""

    count: int
    allowed: float
    slack: int
    loss: float


@dataclass(frozen=True)
class PointExponential(LeavesRowsOut):
    """Choose a public point: one that violates few private rows by more than a, or the cheapest of them.

    ``vertices`` : (k, n) the points to choose from. ``cheapest`` : go through them in the order of their public cost
    and take the first that violates few rows; no target, search or penalty is needed.

    Source
        Exponential mechanism (McSherry and Talwar 2007); permute-and-flip (McKenna and Sheldon 2020) for pure epsilon.
        Cheapest: sparse vector technique (Lyu, Su and Li 2017, algorithm 7).
    Privacy
        Score of a point p: minus the number of rows with ``G_i p - h_i > a``. Whether row i counts depends on the data
        of row i alone (its dot product is computed from nothing else, relative rows are divided by their own width),
        so scores are exact integers without rounding between neighbours. One record reaches at most q = ``per_record``
        rows. Under replace-one a score moves by at most q either way: range 2 q. Where absent rows read 0 <= 0 they
        never count, and taking a record away only lowers the number: range q. One selection is all that is released:
        permute-and-flip of epsilon where the task's zCDP budget is that of a whole (epsilon, delta) (pure epsilon is
        (epsilon, delta)-DP for every delta); the exponential mechanism with the rho given where it is a part of one,
        because the other parts add up in rho.
        Cheapest: the order is public, and query i is the score of the i-th point. Each moves by at most q; two move
        apart by at most 2 q (replace-one), or q where absent rows read 0 <= 0 and so all queries move the same way.
        ``AboveThreshold`` with one positive answer is epsilon-DP for any number of queries; which query passes first is
        all that is released. Pure epsilon is (epsilon, delta)-DP for every delta.
    Utility
        A point that is worse than the best by t rows is chosen with probability at most exp(-t / scale), scale = range
        / epsilon, and there are k - 1 others; scores are integers, so the chosen one is worse by s + 1 = ceil(scale
        ln((k - 1) / beta)) or more with probability at most beta. Over a net of drift at most a, the point next to any
        x* that satisfies all rows violates none by more than a: its score is 0. So all but s rows are violated by at
        most a (proved). V(x) is the violation of the (s + 1)-st worst row. Over given points the statement is
        relative: at most s more rows than the best of them leaves out.
        The net is the finest whose s is within ``slack_rows``, the coarsest whose drift is within ``violation``, or
        (asked for neither) the one with the least a + width s / rows.
        Cheapest: scales r (threshold) and v (queries). With probability 1 - beta / 2 the point p* next to the optimum
        x*, which violates no row by more than a (drift of the net), passes unless an earlier one does: one draw of
        either noise is at most ``allowed = (r + v) ln(2 / beta)`` (each fails one-sidedly with probability beta / 4).
        With probability 1 - beta / 2 every point that passes violates at most ``allowed + r ln(2 / beta) + v ln(2 k /
        beta)`` rows by more than a. What passes first is no dearer than p*, whose cost is within the net's drift for
        the cost of that of x*. Over given points both statements are about the best of them that satisfies all rows up
        to a. If no point passes (probability below beta / 2 when there is a feasible one), the dearest is returned and
        a note says so.
    Cost
        k m dot products, in blocks; at most 4e9, and 200,000 points. Cheapest: until the first point passes.
    """

    serves: ClassVar[Serves] = Serves(Program, ("scalar low", "row low", "row high"), leaves_out=True)
    name = "point-exponential"
    source = "McSherry and Talwar 2007; McKenna and Sheldon 2020"
    takes_tilt = False
    vertices: Any = field(default=None, compare=False, repr=False)
    cheapest: bool = False

    def __post_init__(self) -> None:
        if self.cheapest:  # what the noisy threshold pays for is no sum over draws
            object.__setattr__(self, "serves", replace(type(self).serves, adds_up=False))
            object.__setattr__(self, "name", "cheapest-point")
            object.__setattr__(self, "source", "Lyu, Su and Li 2017, algorithm 7")

    def suits(self, model: Program, options: Options) -> Verdict:
        refused = plain_linear(model)
        if refused is not None:
            return refused
        rows = private_rows(model)
        if not rows.count:
            return Verdict(False, "no constraint is private")
        net = _public_net(model) if options.vertices is None else None
        # In many dimensions the finest net that can be listed is hardly better than the coarsest.
        fine = net is not None and net.levels[-1][1] <= net.levels[0][1] / 2
        if fine or options.vertices is not None:
            return YES
        return Verdict(
            False,
            f"the public set has more than {MOST_DIMENSIONS} dimensions (or is flat): no net of it is small and fine; "
            "give candidate points: mechanisms.PointExponential(vertices=[...])",
        )

    def eligible(self, model: Program, options: Options) -> Verdict:
        verdict = super().eligible(model, options)
        if not self.cheapest or not verdict.eligible:
            return verdict
        if private_objective(model):
            return Verdict(False, "serves public objectives")
        if not model.form.c0.any():
            return Verdict(False, "there is no objective: choosing the point that violates least serves better")
        if options.goal != "auto" or options.target is not None:
            return Verdict(False, "it needs no target, search or penalty")
        return ONE_CANDIDATE if _sparse_vector(model, options).count <= 1 else YES

    def bound(self, model: Program, options: Options) -> float:
        return 0.0 if self.cheapest else super().bound(model, options)

    def forecast(self, model: Program, options: Options) -> Forecast | Verdict:
        return self._forecast_cheapest(model, options) if self.cheapest else super().forecast(model, options)

    def run(self, model: Program, options: Options, noise: NoiseSource, progress: Progress = no_progress) -> Outcome:
        run = self._run_cheapest if self.cheapest else super().run
        return run(model, options, noise, progress)

    def promise(self, task: Task) -> Promise:
        rows = private_rows(task.model)
        width = rows.residual_range(task.polytope)[1]
        epsilon, pure = _epsilon(task)
        scale = _range(rows) / epsilon
        caveats: tuple[str, ...] = ()
        if task.vertices is not None:
            points = points_inside(task.polytope, task.vertices)
            count = points.shape[0]
            plan = Choice(threshold=task.violation or 0.0, epsilon=epsilon, pure=pure, points=points)
            slack = _slack(count, scale, task.beta)
            caveats = (
                f"the proved statement is about the {count} given points that satisfy the public "
                f"constraints: at most {slack} more private constraints are left out than by the best of them",
            )
            words, proved = f"{count} given points", False
        else:
            net = net_for(task.model, task.polytope, cubes=task.cut)
            if net is None:  # cut by a target, until it is flat or no product any more
                count, drift = 1, min(_apart(rows, task.polytope), width)
                points = task.polytope.nearest(np.zeros(task.polytope.size))[None, :]
                plan = Choice(threshold=0.0, epsilon=epsilon, pure=pure, points=points)
            else:
                slacks = np.array([_slack(size, scale, task.beta) for size, _ in net.levels])
                level = level_for(net, slacks, width / rows.count, task.violation, task.slack_rows)
                count, drift = net.levels[level]
                plan = Choice(threshold=0.0, epsilon=epsilon, pure=pure, net=net, level=level)
            plan = replace(plan, threshold=max(task.violation or 0.0, drift))
            slack = _slack(count, scale, task.beta)
            words, proved = f"a net of at most {count} points", True
        return Promise(
            error=plan.threshold,
            gain=1.0,
            slack_rows=min(slack, rows.count),
            rows=rows.count,
            width=width,
            work=f"one choice among {words}",
            proved=proved,
            noise={"candidates": count, "range": _range(rows), "selection_epsilon": epsilon},
            caveats=caveats,
            plan=plan,
        )

    def point(
        self, task: Task, promise: Promise, theta: PrivateNumbers, source: NoiseSource, progress: Progress
    ) -> Point:
        rows, plan = private_rows(task.model), promise.plan
        progress(promise.work, 0.1)
        G, h = rows.values(theta)
        points, threshold = plan.listed()
        counts = violated(G, h, points, threshold)
        reach = float(_range(rows))
        if plan.pure:
            chosen = permute_and_flip(-counts, reach, epsilon=plan.epsilon, source=source)
        else:
            chosen = exponential_mechanism(-counts, reach, rho=task.spend.rho, source=source)
        return Point(np.array(points[chosen]), extra_violation=threshold - plan.threshold)

    def excess(self, task: Task, promise: Promise, x: Floats, theta: PrivateNumbers) -> float:
        G, h = private_rows(task.model).values(theta)
        return float(violated(G, h, x[None, :], promise.alpha)[0])

    def _forecast_cheapest(self, model: Program, options: Options) -> Forecast:
        rows, plan = private_rows(model), _sparse_vector(model, options)
        slack, width = min(plan.slack, rows.count), rows.residual_range(public_polyhedron(model))[1]
        listed = plan.points is not None
        unit = " times its own width" if rows.relative else ""
        violation, lost = min(plan.threshold, width), min(plan.loss, objective_span(model))
        loss = f"at most {number(lost)} worse than" if lost else "at least as good as"
        best = "the best of the given points that satisfies them" if listed else "the true optimum"
        return Forecast(
            statement=f"with probability {number(1 - options.beta)}, all but {slack} of the {rows.count} private "
            f"constraints are violated by at most {number(violation)}{unit}, and the objective is {loss} {best}",
            epsilon=options.epsilon,
            delta=0.0,
            beta=options.beta,
            proved=not listed,
            work=f"at most {plan.count} points, cheapest first",
            noise={"candidates": plan.count, "rows allowed to pass": plan.allowed, "sensitivity": rows.per_record},
            caveats=(*((_LISTED,) if listed else ()), *((RELATIVE,) if rows.relative else ())),
            error=Violation(
                objective=lost,
                violation=violation,
                slack_rows=slack,
                private_rows=rows.count,
                width=width,
                span=objective_span(model),
                relative=rows.relative,
            ),
        )

    def event(self, task: Task) -> Cost:
        epsilon, pure = _epsilon(task)
        return Cost.pure(epsilon) if pure else super().event(task)

    def _run_cheapest(self, model: Program, options: Options, noise: NoiseSource, progress: Progress) -> Outcome:
        rows, plan = private_rows(model), _sparse_vector(model, options)
        points, threshold = plan.listed()
        points = points[np.argsort(points @ model.form.c0, kind="stable")]
        G, h = rows.values(PrivateArray(model.read_private()))
        test = AboveThreshold(
            -plan.allowed,
            sensitivity=rows.per_record,
            epsilon=options.epsilon,
            range_bound=float(_range(rows)),
            source=noise,
        )
        chosen = None
        for start in range(0, points.shape[0], _BLOCK):
            progress("asking points, cheapest first", start / points.shape[0])
            passed = test.first_above(-violated(G, h, points[start : start + _BLOCK], threshold))
            if passed is not None:
                chosen = start + passed
                break
        notes = () if chosen is not None else ("no point passed: this is the dearest one, and it may violate any row",)
        x = np.array(points[-1 if chosen is None else chosen])
        value = float(model.form.c0 @ x) + model.form.d0
        return Outcome("optimal", x, None, value, extra_violation=threshold - plan.threshold, notes=notes)


def violated(G: sp.csr_array, h: PrivateArray, points: Floats, threshold: float) -> PrivateArray:
    """(k,) how many rows each point violates by more than the threshold; private."""
    counts = np.zeros(points.shape[0])
    step = max(1, _AT_ONCE // max(G.shape[0], 1))
    # Few columns: a dense product is faster, and its sums over one row never mix with another row's data.
    left: Any = G.toarray() if G.shape[1] <= 16 else G
    limit = (h + threshold)[:, None]
    for start in range(0, points.shape[0], step):
        block = slice(start, start + step)
        counts[block] = (left @ points[block].T > limit).sum(axis=0)
    return PrivateArray(counts)


def _range(rows: PrivateRows) -> int:
    return rows.per_record * (1 if rows.absent else 2)


def _slack(candidates: int, scale: float, beta: float) -> int:
    """By how many rows the chosen point may be worse than the best, with probability 1 - beta."""
    if candidates <= 1:
        return 0
    return max(math.ceil(scale * math.log((candidates - 1) / beta)) - 1, 0)


def _epsilon(task: Task) -> tuple[float, bool]:
    """Epsilon of the selection, and whether it is pure: pure where the budget is a whole (epsilon, delta)."""
    rho = task.spend.rho
    if rho is None:
        return task.spend.epsilon, True
    if task.whole:
        return task.epsilon, True
    return task.spend.selection_epsilon(), False


@cached
def _public_net(model: Program) -> Net | None:
    return net_for(model, public_polyhedron(model))


def net_for(model: Program, polytope: Polyhedron, *, cubes: bool = False) -> Net | None:
    """``cubes`` : of the kind that promises no less for any part of the polytope."""
    rows = private_rows(model)
    bounds = RowBounds(rows.lower, rows.upper, rows.norm1, rows.norm2)
    return net_of(polytope, bounds, int(min(MOST_POINTS, max(_MOST_PRODUCTS / max(rows.count, 1), 1))), cubes=cubes)


def _apart(rows: PrivateRows, polytope: Polyhedron) -> float:
    """Drift of a single point."""
    low, high = polytope.box
    size = np.maximum(np.abs(rows.lower), np.abs(rows.upper))
    return min(float(size @ (high - low)), rows.norm2 * float(np.linalg.norm(high - low)))


def points_inside(polytope: Polyhedron, vertices: Floats) -> Floats:
    """(k, n) the given points that satisfy the public constraints, each once; some point of the polytope if none
    does."""
    vertices = vertices[np.sort(np.unique(vertices, axis=0, return_index=True)[1])]
    size = 1e-9 * (1 + np.abs(vertices).max(axis=1))
    miss = np.maximum((polytope.lower - vertices).max(axis=1), (vertices - polytope.upper).max(axis=1))
    for left, right, equality in ((polytope.A_ub, polytope.b_ub, False), (polytope.A_eq, polytope.b_eq, True)):
        if right.size:
            gap = np.asarray(left @ vertices.T).T - right
            miss = np.maximum(miss, (np.abs(gap) if equality else gap).max(axis=1))
    kept: Integers = np.flatnonzero(miss <= size)
    return vertices[kept] if kept.size else polytope.nearest(vertices[0])[None, :]


@cached
def _sparse_vector(model: Program, options: Options) -> Ask:
    """The public plan of the sparse vector technique."""
    rows, polytope, cost = private_rows(model), public_polyhedron(model), model.form.c0

    def errors(count: int) -> tuple[float, int]:
        """What may pass, and what the point that passes violates at most."""
        q, reach = float(rows.per_record), float(_range(rows))
        allowed = above_threshold_error(1, q, options.epsilon, options.beta, range_bound=reach)
        beyond = above_threshold_error(count, q, options.epsilon, options.beta, range_bound=reach)
        return allowed, math.floor(allowed + beyond)

    if options.vertices is not None:
        points = points_inside(polytope, options.vertices)
        allowed, slack = errors(points.shape[0])
        return Ask(
            threshold=options.violation or 0.0,
            points=points,
            count=points.shape[0],
            allowed=allowed,
            slack=slack,
            loss=0.0,
        )
    net = net_for(model, polytope)
    assert net is not None  # eligible() came first
    slacks = np.array([errors(size)[1] for size, _ in net.levels])
    weight = rows.residual_range(polytope)[1] / rows.count
    level = level_for(net, slacks, weight, options.violation, options.slack_rows)
    count, drift = net.levels[level]
    allowed, slack = errors(count)
    norms = float(np.abs(cost).sum()), float(np.linalg.norm(cost))
    loss = net.drift_for(level, RowBounds(np.minimum(cost, 0), np.maximum(cost, 0), *norms))
    threshold = max(options.violation or 0.0, drift)
    return Ask(threshold=threshold, net=net, level=level, count=count, allowed=allowed, slack=slack, loss=loss)


POINT_EXPONENTIAL = PointExponential()
CHEAPEST_POINT = PointExponential(cheapest=True)
