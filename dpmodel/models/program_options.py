"""What is asked of a program with private constraints or a private objective, checked before anything is planned."""

from __future__ import annotations

import numbers
from dataclasses import replace
from typing import Any

import cvxpy as cp

from dpmodel.classify.private_lp import PrivateLP
from dpmodel.contract import (
    AllBut,
    Exact,
    Options,
    Penalty,
    Search,
    Target,
    basic_options,
    finite_number,
    listed,
    unknown_goal,
)
from dpmodel.errors import InfeasibleError, SpecificationError
from dpmodel.models.listed_points import listed_points
from dpmodel.programs.rows import plain_linear, private_rows, public_polyhedron
from dpmodel.text import number

# A target is reached if it is missed by no more than solvers miss constraints by.
_REACHED = 1e-7


def program_options(problem: cp.Problem, model: PrivateLP, given: Options) -> Options:
    """A checked request.

    Raises
    ------
    SpecificationError
        As ``basic_options``; for listed points that are not public feasible points of the right shape; for rows without
        private constraints or outside 1 .. their count, alpha not positive or beyond the width, a goal that is none, a
        penalty that is not positive.
    InfeasibleError
        When no public point reaches the target.
    """
    feasibility: Any = given.feasibility
    points = listed(given.mechanism)
    options = basic_options(
        given.epsilon,
        given.delta,
        given.beta,
        "centred" if isinstance(feasibility, AllBut | Exact) else feasibility,
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
    return _with_goal(options, model, given.goal)


def _one_each(model: PrivateLP) -> bool:
    """Whether a record owns one constraint: a row of A, and not an entry of one that many records make up."""
    return any(cell.part == "row" and (cell.relaxed or not cell.single_entry) for cell in model.classification.cells)


def _all_but(options: Options, model: PrivateLP, requested: AllBut) -> Options:
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


def _with_goal(options: Options, model: PrivateLP, goal: Any) -> Options:
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


def _checked_rows(slack: Any, model: PrivateLP, alpha: float | None) -> int | None:
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


def _require_reachable(model: PrivateLP, target: float) -> None:
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
    if target < best - _REACHED * (1 + abs(best)):
        sign = -1.0 if model.affine.maximize else 1.0
        raise InfeasibleError(
            f"target={number(sign * target)}: no public point reaches it",
            why=f"the public constraints alone allow an objective of {number(sign * best)} at best",
            remedy=f"a target {'of at most' if model.affine.maximize else 'of at least'} {number(sign * best)}",
        )
