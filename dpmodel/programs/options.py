"""What is asked of a program with private constraints or a private objective, checked before anything is planned:
budget and statement, public candidate points (``VertexExponential(vertices=...)``), and ``feasibility=Exact(...)``."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import cvxpy as cp
import numpy as np

from dpmodel._types import Floats, Integers
from dpmodel.collect import named_constraints, private_parameters
from dpmodel.compile.form import require_private_values
from dpmodel.contract import NOTHING_FOUND, Candidate, Options, Outcome, Ran, Serves
from dpmodel.errors import InfeasibleError, SpecificationError, UnsupportedModelError
from dpmodel.exact.inputs import checked_margin
from dpmodel.exact.model import Found, PrivateInequalities
from dpmodel.numerics.array_program import ConeBlock
from dpmodel.options import basic_options, finite_number, listed, unknown_goal
from dpmodel.programs.equations import exact_inequalities, why_not_inequalities
from dpmodel.programs.model import Program
from dpmodel.programs.prices import priced_rows, short_below, unserved
from dpmodel.programs.public import level
from dpmodel.programs.rows import plain_linear, private_rows, public_polyhedron
from dpmodel.release import Release
from dpmodel.requests import AllBut, Exact, Feasibility, Penalty, Priced, Prices, Search, Target
from dpmodel.text import number


def program_options(problem: cp.Problem, model: Program, given: Options) -> Options:
    """A checked request.
    Errors: SpecificationError, as ``basic_options``; for listed points that are not public feasible points of the right
    shape; for rows without private constraints or outside 1 .. their count, alpha not positive or beyond the width, a
    goal that is none, a penalty that is not positive; InfeasibleError, when no public point reaches the target."""
    feasibility: Any = given.feasibility
    points = listed(given.mechanism)
    options = basic_options(
        given.epsilon,
        given.delta,
        given.beta,
        "centred" if isinstance(feasibility, AllBut | Exact | Priced) else feasibility,
        given.solver,
        given.solver_options,
    )
    named = not (isinstance(given.mechanism, str) and given.mechanism == "auto") or given.goal != "auto"
    options = replace(options, leaves_out=named or not isinstance(feasibility, str) or _one_each(model))
    if points is not None:
        options = replace(options, vertices=listed_points(problem, model, points))
    if isinstance(feasibility, Exact):
        options = replace(options, satisfy="exact")
    if isinstance(feasibility, AllBut):
        options = _all_but(options, model, feasibility)
    if isinstance(feasibility, Priced):
        options = _priced(options, problem, model, feasibility)
    return _with_goal(options, model, given.goal)


def _one_each(model: Program) -> bool:
    """Whether a record owns one constraint: a row of A, and not an entry of one that many records make up."""
    return any(cell.part == "row" and (cell.relaxed or not cell.single_entry) for cell in model.classification.cells)


def _all_but(options: Options, model: Program, requested: AllBut) -> Options:
    alpha = finite_number("alpha", requested.alpha)
    if alpha is not None and alpha <= 0:
        raise SpecificationError(f"alpha={number(alpha)}", why="alpha is positive", remedy="alpha=0.1, say")
    if alpha is None and requested.rows is None:
        raise SpecificationError(
            "AllBut() without rows and alpha",
            why="it says how many private constraints may be left out, or how far the others may be violated",
            remedy="dpm.AllBut(rows=10), dpm.AllBut(alpha=0.1), or both",
        )
    return replace(options, slack_rows=_checked_rows(requested.rows, model, alpha), violation=alpha)


def _priced(options: Options, problem: cp.Problem, model: Program, requested: Priced) -> Options:
    """The prices by row of the standard form, or the service level that makes them."""
    if not priced_rows(model).any():
        raise SpecificationError(
            "Priced() without a private constraint that can have a price",
            why="a price is for a unit by which a linear private constraint is missed; cones have none, nor have the "
            "rows into which CVXPY splits expressions",
            remedy="leave it out: the other treatments apply",
        )
    if requested.prices is None:
        service = finite_number("service", requested.service)
        service = options.service if service is None else service
        if not 0 < service < 1:
            why = "it is the share of cases in which a row is not short"
            raise SpecificationError(f"service={number(service)}", why=why, remedy="service=0.9, say")
        return replace(options, feasibility=_at(model), service=service)
    if requested.service is not None:
        why = "a service level makes the prices: row by row the multiplier over 1 - service"
        raise SpecificationError("Priced(prices, service=)", why=why, remedy="one of the two")
    prices = _prices(problem, model, requested.prices)
    _refuse_unserved(model, prices)
    return replace(options, feasibility=_at(model, prices), prices=prices)


def _at(model: Program, prices: Prices | None = None) -> Feasibility:
    """Priced; but where one person owns one constraint, nothing else costs and all have one price, the least cost is
    the least shortage in all, which every mechanism that leaves constraints out looks for."""
    rows = model.form.private_rows
    free = not (model.form.c0.any() or "objective" in model.private_parts())
    alike = prices is None or np.ptp(prices.above[rows]) == 0
    return "centred" if free and alike and model.affine.inequalities()[rows].all() and _one_each(model) else "priced"


def _refuse_unserved(model: Program, prices: Prices) -> None:
    """At a price at or below its multiplier a row is not served at all."""
    at = level(model)
    if at is None:
        return
    rows = np.flatnonzero(prices.rows & unserved(prices, at.dual))
    if rows.size:
        row = int(rows[0])
        label = next(block.label for block in model.affine.cones if block.start <= row < block.start + block.size)
        price, cost = max(prices.above[row], prices.below[row]), abs(float(at.dual[row]))
        raise SpecificationError(
            f"{label}: a price of {number(price)} for a unit short",
            why=f"at the public level of the private numbers a unit costs {number(cost)} to serve, so that "
            f"{len(rows)} row{'s' * (len(rows) > 1)} would not be served at all",
            remedy=f"a price above that, {number(10 * cost)}, say; or drop the constraint",
        )


def _prices(problem: cp.Problem, model: Program, given: Any) -> Prices:
    above, below = np.zeros(model.affine.rows), np.zeros(model.affine.rows)
    priced = priced_rows(model)
    blocks = [(block, block.start + np.flatnonzero(priced[block.rows])) for block in model.affine.cones]
    blocks = [(block, rows) for block, rows in blocks if rows.size]
    if isinstance(given, Mapping) and not given:
        raise SpecificationError(
            "Priced({}) without a price",
            why="without one nothing is weighed against the cost, and rows stand as released",
            remedy="dpm.Priced({constraint: 120.0}), say; dpm.Priced(service=0.9); or feasibility='centred'",
        )
    if not isinstance(given, Mapping):
        given = {block.label: given for block, _ in blocks}
    found: dict[int, list[tuple[ConeBlock, Integers]]] = {}
    names = dict(zip(named_constraints(problem), problem.constraints, strict=True))
    for block, rows in blocks:
        found.setdefault(block.constraint, []).append((block, rows))
    places = {id(constraint): place for place, constraint in enumerate(problem.constraints)}
    for key, price in given.items():
        constraint = names.get(key) if isinstance(key, str) else key
        label = key if isinstance(key, str) else next((n for n, c in names.items() if c is key), type(key).__name__)
        place = places.get(
            id(constraint), next((b.constraint for b, _ in blocks if isinstance(key, str) and b.label == key), -1)
        )
        if place not in found:
            known = place >= 0 or id(constraint) in places
            raise SpecificationError(
                f"a price for {label}",
                why="no private number enters it linearly" if known else "no constraint of this problem",
                remedy=f"prices for {', '.join(dict.fromkeys(b.label for b, _ in blocks))}",
            )
        for block, rows in found[place]:
            if block.kind == "nonneg":
                above[rows] = _price(price, block, rows, label)
                continue
            short, surplus = price if isinstance(price, tuple) and len(price) == 2 else (price, price)
            short, surplus = (_price(each, block, rows, label) for each in (short, surplus))
            more = short_below(model)[rows]
            below[rows], above[rows] = np.where(more, short, surplus), np.where(more, surplus, short)
    return Prices(above, below)


def _price(price: Any, block: ConeBlock, rows: Integers, label: str) -> Floats:
    """(k,) the price of these rows of a block."""
    array = None
    try:
        array = np.asarray(price, dtype=np.float64)
        shape = block.shape if int(np.prod(block.shape)) == block.size else (block.size,)
        prices = np.broadcast_to(array, shape).ravel(order="F")[rows - block.start]
    except (TypeError, ValueError):
        form = f"type {type(price).__name__}" if array is None else f"shape {array.shape}"
        raise SpecificationError(
            f"a price for {label} of {form}",
            why=f"a price is a number, an array of shape {block.shape}, or for equalities a pair (short, surplus)",
            remedy="dpm.Priced({constraint: 120.0}), say",
        ) from None
    if not (np.isfinite(prices) & (prices >= 0)).all() or (block.kind == "nonneg" and not prices.all()):
        why = "a price is what a unit short costs, in units of the objective; at a price of 0 no row is served"
        what = f"a price for {label} that is zero, negative or not finite"
        raise SpecificationError(what, why=why, remedy="120.0, say; or drop the constraint")
    return prices


def _with_goal(options: Options, model: Program, goal: Any) -> Options:
    if isinstance(goal, type) and issubclass(goal, Target | Search | Penalty):
        raise SpecificationError(f"goal={goal.__name__}", why="it is a class", remedy=f"goal=dpm.{goal.__name__}(...)")
    if isinstance(goal, Search):
        return replace(options, goal="search")
    if isinstance(goal, Penalty):
        weight = finite_number("weight", goal.weight)
        if weight is not None and weight <= 0:
            raise SpecificationError(f"weight={number(weight)}", why="weight is positive", remedy="weight=0.1, say")
        return replace(options, goal="penalty", penalty=weight)
    if isinstance(goal, Target):
        target = finite_number("value", goal.value)
        if target is None:
            raise SpecificationError("Target(None)", remedy="dpm.Target(the objective's value to reach)")
        minimised = -target if model.affine.maximize else target
        _require_reachable(model, minimised)
        return replace(options, goal="target", target=minimised)
    if not isinstance(goal, str) or goal != "auto":
        raise unknown_goal(goal)
    return options


def _checked_rows(slack: Any, model: Program, alpha: float | None) -> int | None:
    if slack is None and alpha is None:
        return None
    if not {"scalar", "matrix"} & set(model.private_parts()):
        what = "rows" if slack is not None else "alpha"
        raise SpecificationError(
            f"{what} given, but no constraint is private",
            why="public constraints always hold",
            remedy="leave it out",
        )
    fits = plain_linear(model) is None and not public_polyhedron(model).empty
    rows = private_rows(model) if fits else None
    if slack is not None:
        if isinstance(slack, bool) or not isinstance(slack, numbers.Integral):
            raise SpecificationError(
                f"rows={slack!r}" if isinstance(slack, str | float) else f"rows={type(slack).__name__}",
                why="it counts private constraints that may be left out",
                remedy="an integer",
            )
        count = rows.count if rows is not None else int(model.form.private_rows.sum())
        if not 1 <= int(slack) <= count:
            raise SpecificationError(
                f"rows={int(slack)}",
                why=f"there are {count} private constraints, and at least one of them must be allowed to fail",
                remedy=f"1 <= rows <= {count}",
            )
    if alpha is not None and rows is not None:
        width = rows.residual_range(public_polyhedron(model))[1]
        if alpha >= width * (1 - 1e-5):  # widths from solvers are widened by 1e-6
            raise SpecificationError(
                f"alpha={number(alpha)} is beyond the width {number(width)}",
                why="no public point violates a private constraint by more than the width: it asks for nothing",
                remedy=f"0 < alpha < {number(width)}",
            )
    return None if slack is None else int(slack)


def _require_reachable(model: Program, target: float) -> None:
    """``target`` : in minimisation form. Nothing to check when the objective is private or the set is not linear."""
    if "objective" in model.private_parts() or plain_linear(model) is not None:
        return
    polytope = public_polyhedron(model)
    if polytope.empty:
        return  # has its own error
    cheapest = polytope.minimise(model.form.c0)
    if cheapest is None:
        return
    best = float(model.form.c0 @ cheapest) + model.form.d0
    # Missed by no more than solvers miss constraints by, it is reached.
    if target < best - 1e-7 * (1 + abs(best)):
        sign = -1.0 if model.affine.maximize else 1.0
        raise InfeasibleError(
            f"target={number(sign * target)}: no public point reaches it",
            why=f"the public constraints alone allow an objective of {number(sign * best)} at best",
            remedy=f"a target {'of at most' if model.affine.maximize else 'of at least'} {number(sign * best)}",
        )


_FEASIBLE = 1e-6


def listed_points(problem: cp.Problem, model: Program, vertices: Any) -> Floats:
    """(k, n) public points in standard-form columns, from (k, N) rows of stacked variables or dicts.
    Errors: SpecificationError, for points of another shape, with fractions in integer variables, or that violate a
    public constraint."""
    affine = model.affine
    variables = problem.variables()
    total = sum(variable.size for variable in variables)
    if affine.variables != total or len(affine.variable_columns) != len(variables):
        raise SpecificationError(
            "vertices given for a problem with auxiliary variables",
            why="points must fix every variable of the standard form",
            remedy="a linear objective and linear constraints in the listed variables",
        )
    rows = []
    if not isinstance(vertices, Iterable) or isinstance(vertices, Iterator):
        raise SpecificationError(f"vertices={type(vertices).__name__}", remedy="a list of points, or an array")
    for place, point in enumerate(vertices):
        try:
            if isinstance(point, Mapping):
                missing = [variable.name() for variable in variables if variable not in point]
                if missing:
                    what = f"vertices[{place}] has no value for {missing[0]}"
                    raise SpecificationError(what, remedy="a value for every variable")
                parts = [np.asarray(point[variable], dtype=float).ravel(order="F") for variable in variables]
                rows.append(np.concatenate(parts))
            else:
                rows.append(np.asarray(point, dtype=float).ravel(order="F"))
        except (TypeError, ValueError) as error:
            if isinstance(error, SpecificationError):
                raise
            raise SpecificationError(
                f"vertices[{place}] is not an array of numbers", remedy="points, or {variable: value}"
            ) from None
    sizes = {row.size for row in rows}
    if sizes != {total}:
        raise SpecificationError(
            f"vertices: {len(rows)} points of sizes {sorted(sizes)}",
            why=f"each point is a value of all {total} variable entries, variables in order, columns first",
            remedy=f"an array of shape (k, {total}), or a list of {{variable: value}}",
        )
    given = np.vstack(rows)
    if not np.isfinite(given).all():
        raise SpecificationError("vertices have NaN or infinite entries", remedy="finite points")
    out = np.empty_like(given)
    start = 0
    for variable in variables:
        first = affine.variable_columns[variable.id]
        out[:, first : first + variable.size] = given[:, start : start + variable.size]
        start += variable.size
    _refuse_wrong_kind(model, out)
    _refuse_infeasible(model, out)
    return out


def _refuse_wrong_kind(model: Program, points: Floats) -> None:
    affine = model.affine
    if not affine.is_linear():
        raise SpecificationError(
            "vertices given for a problem with second-order, exponential, power or semidefinite constraints",
            why="points are checked against linear constraints only",
            remedy="linear constraints, or no vertices",
        )
    whole = np.concatenate([affine.boolean, affine.integer])
    if whole.size and np.abs(points[:, whole] - np.round(points[:, whole])).max(initial=0.0) > _FEASIBLE:
        raise SpecificationError("vertices have fractions in integer variables", remedy="integer points")


def _refuse_infeasible(model: Program, points: Floats) -> None:
    program = model.public.program
    gap = program.A @ points.T - program.b[:, None]
    gap = np.where(model.affine.equalities()[:, None], np.abs(gap), gap)
    bad = (gap > _FEASIBLE * (1 + np.abs(program.b))[:, None])[program.keep].any(axis=0)
    low, high = program.lower - _FEASIBLE, program.upper + _FEASIBLE
    bad |= ((points < low) | (points > high)).any(axis=1)
    if bad.any():
        raise SpecificationError(
            f"vertices[{int(np.flatnonzero(bad)[0])}] violates a public constraint",
            why="every listed point must be feasible",
            remedy="list feasible points only",
        )


@dataclass(frozen=True, eq=False)
class ExactRows(PrivateInequalities):
    """The private rows of a ``program``, to be satisfied exactly, all but a few."""

    program: Program = field(kw_only=True, repr=False)

    @property
    def kind(self) -> type:
        return PrivateInequalities

    def refuse(self, options: Options) -> None:
        self.program.refuse(options)

    def ready(self, chosen: Candidate, serves: Serves) -> None:
        self.program.public.require_feasible()
        require_private_values(private_parameters(self.program.problem))

    def checked(self, outcome: Any) -> Any:
        return outcome_of(self.program, super().checked(outcome))

    def stopped(self, status: str, note: str) -> Outcome:
        return self.program.stopped(status, note)

    def finish(self, ran: Ran) -> Release:
        return self.program.finish(ran)


# Exact answers are also told as fractions in a note, up to this many variables.
_MOST_TOLD = 20


def exact_rows(model: Program, options: Options, given: Options) -> ExactRows | None:
    """What ``feasibility=Exact(...)`` makes of a program; None where all private rows are equalities, which its own
    mechanisms satisfy exactly.
    Errors: SpecificationError, for a problem without private constraints, a margin for equalities, and as
    ``_exact_system``."""
    if not model.form.private_rows.any():
        raise SpecificationError(
            "feasibility=Exact() for a problem without private constraints",
            why="public constraints always hold, and nothing else is to be satisfied",
            remedy="leave it out",
        )
    margin = _margin(given)
    if (model.form.private_rows & ~model.affine.equalities()).any():
        return ExactRows(**vars(_exact_system(model, options, given)), program=model)
    if margin is not None:
        raise SpecificationError(
            "Exact(margin=) for private equalities",
            why="a margin is room beside inequalities; equalities have none and need none",
            remedy="leave it out",
        )
    return None


def _exact_system(model: Program, options: Options, given: Options) -> PrivateInequalities:
    """The private inequalities beside the public constraints (and the target, if there is one).
    Errors: SpecificationError, for a margin outside (0, 1], an objective without a target, and arguments that trade
    violations; UnsupportedModelError, for rows that cannot be satisfied one by one; InfeasibleError, when the public
    constraints and the target contradict each other."""
    verdict = why_not_inequalities(model)
    if not verdict.eligible:
        raise UnsupportedModelError(
            "feasibility=Exact() cannot serve this problem",
            why=verdict.reason,
            remedy="one inequality per record, or feasibility=dpm.AllBut(alpha=...)",
        )
    _refuse_trades(options, given)
    margin = _margin(given)
    if margin is not None:
        margin = checked_margin(margin)
    polytope = public_polyhedron(model)
    if options.target is not None:
        if model.form.offset.nnz:
            raise SpecificationError(
                "a target for an objective with a private constant term",
                why="it cannot become a public constraint",
                remedy="leave the constant out of the objective and the target",
            )
        polytope = polytope.with_row(model.form.c0, options.target - model.form.d0)
    elif np.any(model.form.c0):
        raise SpecificationError(
            "feasibility=Exact() with an objective",
            why="its mechanisms find a point that satisfies nearly all rows; they do not optimise",
            remedy="goal=dpm.Target(the value to reach), which becomes a public constraint, or Minimize(0)",
        )
    if polytope.empty:
        raise InfeasibleError(
            "no public point satisfies the public constraints",
            why="found without the private rows; nothing was read or spent",
            remedy="fewer or wider public constraints, or another target",
        )
    return exact_inequalities(model, polytope, margin)


def outcome_of(model: Program, found: Found) -> Outcome:
    """The released point as an outcome; an exact one is also told in a note."""
    if found.status != "found":
        return Outcome(NOTHING_FOUND, None, None, None, notes=(*found.notes, "no point was found within the budget"))
    x: Floats = np.array([float(entry) for entry in found.answer], dtype=np.float64)
    notes = list(found.notes)
    if not isinstance(found.answer, np.ndarray) or found.answer.dtype == object:
        shown = ", ".join(str(entry) for entry in list(found.answer)[:_MOST_TOLD])
        more = ", ..." if len(found.answer) > _MOST_TOLD else ""
        notes.append(f"the exact point, of which the values are roundings: ({shown}{more})")
    if found.missed is not None and math.isfinite(found.missed):
        notes.append(f"a noisy count of the private rows that it misses: {number(max(found.missed, 0.0))}")
    return Outcome("optimal", x, None, float(model.form.c0 @ x + model.form.d0), notes=tuple(notes))


def _margin(given: Options) -> Any:
    feasibility: Any = given.feasibility
    return feasibility.margin


def _refuse_trades(options: Options, given: Options) -> None:
    names = [] if options.goal in ("auto", "target") else [f"goal={type(given.goal).__name__}"]
    names += ["vertices"] if options.vertices is not None else []
    if names:
        raise SpecificationError(
            f"{names[0]} given with feasibility=Exact()",
            why="it is for mechanisms that satisfy constraints nearly",
            remedy="leave it out, or another feasibility",
        )
