"""Choosing among public points by the exponential mechanism: a net over a small polyhedron, or given points."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, PrivateArray
from dpmodel.classify.private_lp import PrivateLP, PrivateNumbers
from dpmodel.contract import YES, Options, Progress, Verdict
from dpmodel.mechanisms.lp.engines.contract import CountingEngine, Point, Promise, Task
from dpmodel.mechanisms.lp.private_rows import PrivateRows, plain_linear, private_rows, public_polyhedron
from dpmodel.numerics.nets import MOST_DIMENSIONS, MOST_POINTS, Choices, Net, RowBounds, level_for, net_of
from dpmodel.numerics.polyhedron import Polyhedron
from dpmodel.numerics.public_facts import cached
from dpmodel.privacy import NoiseSource, exponential_mechanism, permute_and_flip

# Points times rows, for the run time; and how many of these are held at once.
_MOST_PRODUCTS = 4e9
_AT_ONCE = 4_000_000


@dataclass(frozen=True, kw_only=True)
class Choice(Choices):
    """The plan: ``epsilon`` of the selection, and whether it is pure."""

    epsilon: float
    pure: bool


@dataclass(frozen=True)
class PointExponential(CountingEngine):
    """Choose a public point that violates few private rows by more than a.

    Source
        Exponential mechanism (McSherry and Talwar 2007); permute-and-flip (McKenna and Sheldon 2020) for pure epsilon.
    Privacy
        Score of a point p: minus the number of rows with ``G_i p - h_i > a``. Whether row i counts depends on the data
        of row i alone (its dot product is computed from nothing else, relative rows are divided by their own width),
        so scores are exact integers without rounding between neighbours. One record reaches at most q = ``per_record``
        rows. Under replace-one a score moves by at most q either way: range 2 q. Where absent rows read 0 <= 0 they
        never count, and taking a record away only lowers the number: range q. One selection is all that is released:
        permute-and-flip of epsilon where the task's zCDP budget is that of a whole (epsilon, delta) (pure epsilon is
        (epsilon, delta)-DP for every delta); the exponential mechanism with the rho given where it is a part of one,
        because the other parts add up in rho.
    Utility
        A point that is worse than the best by t rows is chosen with probability at most exp(-t / scale), scale = range
        / epsilon, and there are k - 1 others; scores are integers, so the chosen one is worse by s + 1 = ceil(scale
        ln((k - 1) / beta)) or more with probability at most beta. Over a net of drift at most a, the point next to any
        x* that satisfies all rows violates none by more than a: its score is 0. So all but s rows are violated by at
        most a (proved). V(x) is the violation of the (s + 1)-st worst row. Over given points the statement is
        relative: at most s more rows than the best of them leaves out.
        The net is the finest whose s is within ``slack_rows``, the coarsest whose drift is within ``violation``, or
        (asked for neither) the one with the least a + width s / rows.
    Cost
        k m dot products, in blocks; at most 4e9, and 200,000 points.
    """

    cells: ClassVar[tuple[str, ...]] = ("scalar low", "row low", "row high")
    name = "point-exponential"
    source = "McSherry and Talwar 2007; McKenna and Sheldon 2020"
    takes_tilt = False
    vertices: Any = field(default=None, compare=False, repr=False)

    def eligible(self, model: PrivateLP, options: Options) -> Verdict:
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
def _public_net(model: PrivateLP) -> Net | None:
    return net_for(model, public_polyhedron(model))


def net_for(model: PrivateLP, polytope: Polyhedron, *, cubes: bool = False) -> Net | None:
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


POINT_EXPONENTIAL = PointExponential()
