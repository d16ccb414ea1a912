"""The best point that reads no private data: what every other mechanism is measured against."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import numpy as np

from dpmodel.contract import YES, Mechanism, Options, Outcome, Progress, Serves, Verdict, no_progress
from dpmodel.forecast import Forecast, Violation
from dpmodel.memo import cached
from dpmodel.privacy import NoiseSource
from dpmodel.programs.model import Program
from dpmodel.programs.public import (
    MIDDLE,
    PublicPoint,
    largest_violation,
    objective_span,
    private_objective,
    public_points,
)
from dpmodel.programs.rows import plain_linear, public_polyhedron
from dpmodel.requests import Feasibility
from dpmodel.text import number


@dataclass(frozen=True)
class PublicOnly(Mechanism[Program]):
    """A point found from public facts: the robust optimum, the cheapest public point, the optimum for the middle of the
    declared ranges, or the centre of the set.

    Source
        Robust optimisation (Ben-Tal, El Ghaoui and Nemirovski 2009, chapter 1) over the declared ranges.
    Privacy
        ``run`` does not call ``read_private``: its answer is a function of public facts. (0, 0)-DP.
    Utility (for every database that the declarations allow, no probability involved)
        Loss: ``max c'x - c'y`` over public points y and allowed c, bounded by one linear program
        (``points.regret``); 0 for the cheapest point under a public objective, because the true optimum is a
        public point. Violation: the largest residual at x over allowed numbers, row by row.
        Without an objective, the centre of the public set is taken where no point violates less: equal shares on a
        simplex, the middle of a box.
    Cost
        At most four solves of the size of the model's own.
    """

    serves: ClassVar[Serves] = Serves(
        Program,
        ("objective low", "scalar low", "row low", "matrix low", "column low", "row high"),
        reads_blocks=True,
        reads_nothing=True,
    )
    name: str = "public-only"
    source: str = "Ben-Tal, El Ghaoui and Nemirovski 2009, chapter 1"

    def run(self, model: Program, options: Options, noise: NoiseSource, progress: Progress = no_progress) -> Outcome:
        point = choose(model, options.feasibility)
        assert point is not None
        value = None if private_objective(model) else float(model.form.c0 @ point.x) + model.form.d0
        notes = ("no private data was read: this point is the same for all data",)
        return Outcome("optimal", np.array(point.x), None, value, notes=notes)

    def eligible(self, model: Program, options: Options) -> Verdict:
        if not model.private_parts():
            return Verdict(False, "no private parameter changes c, b or A")
        if options.goal != "auto" or options.target is not None:
            return Verdict(False, "it needs no target, search or penalty")
        return YES

    def forecast(self, model: Program, options: Options) -> Forecast | Verdict:
        point = choose(model, options.feasibility)
        if point is None and options.feasibility in ("safe", "strict"):
            why = "the public bounds do not leave a point that is feasible for every allowed database"
            return Verdict(False, why, "infeasible")
        if point is None:
            why = "no point is found from public facts: the public constraints do not bound the objective"
            return Verdict(False, why)
        rows = bool(model.form.private_rows.any())
        parts = []
        if private_objective(model) or model.form.c0.any():
            loss = f"at most {number(point.loss)} worse than" if math.isfinite(point.loss) else "not bounded against"
            parts.append(f"the objective is {loss} the true optimum" if point.loss else "the objective is at least as "
                         "good as the true optimum")  # fmt: skip
        if rows and not point.violation:
            parts.append("every private constraint holds")
        elif rows and math.isfinite(point.violation):
            parts.append(f"no private constraint is violated by more than {number(point.violation)}")
        elif rows:
            parts.append("nothing bounds by how much a private constraint is violated")
        else:
            parts.append("all constraints hold exactly")
        return Forecast(
            statement=f"for all data, {' and '.join(parts)}; it is {point.words}",
            epsilon=0.0,
            delta=0.0,
            beta=0.0,
            error=Violation(
                point.loss if private_objective(model) or model.form.c0.any() else math.nan,
                point.violation if rows else math.nan,
                against_public=1.0,
            ),
            proved=model.split_rows == 0,
            work="public solves only",
        )


@cached
def choose(model: Program, mode: Feasibility) -> PublicPoint | None:
    """The point of a request: under "safe" and "strict" one that is feasible for every allowed database; under
    "centred" and "priced" with an objective the one for the middle of all ranges (nothing is shifted); else the
    feasible one if it exists, or the least larger share of the objective's span lost or of the width violated."""
    points, strict = list(islice(public_points(model), 2)), mode in ("safe", "strict")
    mode = "centred" if mode == "priced" else mode
    # The safest costs least on average of all that violate nothing, and so does not lose more under a public objective.
    if mode == "centred" or private_objective(model) or all(point.violation > 0 for point in points):
        points = list(public_points(model))
    perfect = any(point.violation == 0 == point.loss for point in points)
    if mode == "centred" and not perfect and (private_objective(model) or model.form.c0.any()):
        for point in points:
            if point.words == MIDDLE:
                return point
    if not (private_objective(model) and math.isfinite(objective_span(model))) and not model.form.c0.any():
        centre = _centre(model)
        points = [centre, *points] if centre is not None else points
    safe = [point for point in points if point.violation == 0]
    if safe:
        return min(safe, key=lambda point: point.loss)
    if strict or not points:
        return None
    span, width = objective_span(model), largest_violation(model)

    def share(point: PublicPoint) -> float:
        lost = point.loss / span if 0 < span < math.inf else 0.0
        return max(lost, point.violation / (width if 0 < width < math.inf else 1.0))

    return min(points, key=share)


def _centre(model: Program) -> PublicPoint | None:
    """The public point nearest to the middle of the box around the public set."""
    polytope = public_polyhedron(model) if plain_linear(model) is None else None
    if polytope is None or polytope.empty:
        return None
    lower, upper = polytope.box
    if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
        return None
    x = polytope.project((lower + upper) / 2)
    if polytope.violation(x) > 1e-6 * (1 + float(np.abs(x).max(initial=0.0))):
        return None
    return PublicPoint(model, x, "the centre of the public set", not private_objective(model))


PUBLIC_ONLY = PublicOnly()
