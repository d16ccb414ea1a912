"""The cheapest public point that violates few private rows, by the sparse vector technique: no target, no search."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from dpmodel._types import PrivateArray
from dpmodel.classify.private_lp import PrivateLP
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
from dpmodel.forecast import Forecast, Violation
from dpmodel.mechanisms.lp.engines.contract import ONE_CANDIDATE
from dpmodel.mechanisms.lp.engines.routes import objective_span
from dpmodel.mechanisms.lp.point_exponential.mechanism import PointExponential, net_for, points_inside, violated
from dpmodel.mechanisms.lp.private_rows import (
    PrivateRows,
    most_rows_stay,
    plain_linear,
    private_rows,
    public_polyhedron,
)
from dpmodel.numerics.nets import Choices, RowBounds, level_for
from dpmodel.numerics.public_facts import cached
from dpmodel.privacy import AboveThreshold, NoiseSource, above_threshold_error
from dpmodel.text import number

# Points are asked in blocks of this many, and only until one passes.
_BLOCK = 4096


@dataclass(frozen=True, kw_only=True)
class Ask(Choices):
    """The public plan: ``count`` points. ``allowed`` : rows that a point may violate to pass (without noise). ``slack``
    : rows that the chosen one violates at most; ``loss`` : by how much it is dearer than the optimum at most."""

    count: int
    allowed: float
    slack: int
    loss: float


@dataclass(frozen=True)
class CheapestPoint(Mechanism[PrivateLP]):
    """Go through public points in the order of their public cost and take the first that violates few private rows.

    Source
        Sparse vector technique (Lyu, Su and Li 2017, algorithm 7) over a net, or over given points.
    Privacy
        The order is public. Query i is minus the number of rows with ``G_i p - h_i > a`` at the i-th point. One record
        reaches at most q = ``per_record`` rows, so each query moves by at most q; two queries move apart by at most
        2 q (replace-one), or q where absent rows read 0 <= 0 and so all queries move the same way. Counts are exact
        integers. ``AboveThreshold`` with one positive answer is epsilon-DP for any number of queries; which query
        passes first is all that is released. Pure epsilon is (epsilon, delta)-DP for every delta.
    Utility
        Scales r (threshold) and v (queries). With probability 1 - beta / 2 the point p* next to the optimum x*, which
        violates no row by more than a (drift of the net), passes unless an earlier one does: one draw of either noise
        is at most ``allowed = (r + v) ln(2 / beta)`` (each fails one-sidedly with probability beta / 4). With
        probability 1 - beta / 2 every point that passes violates at most ``allowed + r ln(2 / beta) + v ln(2 k /
        beta)`` rows by more than a. What passes first is no dearer than p*, whose cost is within the net's drift for
        the cost of that of x*. Over given points both statements are about the best of them that satisfies all rows up
        to a. If no point passes (probability below beta / 2 when there is a feasible one), the dearest is returned and
        a note says so. The level of the net is chosen as in ``point-exponential``.
    Cost
        At most k m dot products, in blocks until the first point passes.
    """

    serves: ClassVar[Serves] = Serves(PrivateLP, ("scalar low", "row low", "row high"), leaves_out=True)
    name: str = "cheapest-point"
    source: str = "Lyu, Su and Li 2017, algorithm 7"
    vertices: Any = field(default=None, compare=False, repr=False)

    def eligible(self, model: PrivateLP, options: Options) -> Verdict:
        if not {"scalar", "matrix"} & set(model.private_parts()):
            return Verdict(False, "serves problems with private constraints")
        if "objective" in model.private_parts():
            return Verdict(False, "serves public objectives")
        if not model.form.c0.any():
            return Verdict(False, "there is no objective: choosing the point that violates least serves better")
        other = refuse_feasibility(options, "centred", "relaxed")
        if other is not None:
            return other
        if options.goal != "auto" or options.target is not None:
            return Verdict(False, "it needs no target, search or penalty")
        if plain_linear(model) is None and public_polyhedron(model).empty:
            return Verdict(False, "the public constraints have no common point")
        served = PointExponential().eligible(model, options)
        refused = most_rows_stay(model) if served.eligible else served
        if refused is not None:
            return refused
        return ONE_CANDIDATE if _plan(model, options).count <= 1 else YES

    def forecast(self, model: PrivateLP, options: Options) -> Forecast:
        rows, plan = private_rows(model), _plan(model, options)
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
            caveats=_caveats(rows, listed),
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

    def run(self, model: PrivateLP, options: Options, noise: NoiseSource, progress: Progress = no_progress) -> Outcome:
        rows, plan = private_rows(model), _plan(model, options)
        points, threshold = plan.listed()
        points = points[np.argsort(points @ model.form.c0, kind="stable")]
        G, h = rows.values(PrivateArray(model.read_private()))
        test = AboveThreshold(
            -plan.allowed,
            sensitivity=rows.per_record,
            epsilon=options.epsilon,
            range_bound=_range(rows),
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


def _range(rows: PrivateRows) -> float:
    return float(rows.per_record * (1 if rows.absent else 2))


def _caveats(rows: PrivateRows, listed: bool) -> tuple[str, ...]:
    out = []
    if listed:
        out.append("the statement is about given points: it is proved relative to the best of them")
    if rows.relative:
        out.append(
            "the private rows have no declared magnitude: each is divided by its own width (the largest violation it "
            "can have), and alpha is a share of that"
        )
    return tuple(out)


@cached
def _plan(model: PrivateLP, options: Options) -> Ask:
    rows, polytope, cost = private_rows(model), public_polyhedron(model), model.form.c0

    def errors(count: int) -> tuple[float, int]:
        """What may pass, and what the point that passes violates at most."""
        q, reach = float(rows.per_record), _range(rows)
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


CHEAPEST_POINT = CheapestPoint()
