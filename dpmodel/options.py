"""Checks of what a caller gave, before anything is planned: arguments that all families have."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable, Mapping
from typing import Any, cast, get_args

import cvxpy as cp

from dpmodel.contract import Options
from dpmodel.errors import SpecificationError
from dpmodel.numerics.cone_program import installed_solvers
from dpmodel.privacy import validate_privacy
from dpmodel.requests import Feasibility
from dpmodel.text import number

# Feasibilities that are asked for by a word; the others are objects.
_WORDS = tuple(word for word in get_args(Feasibility) if word != "priced")


def basic_options(
    epsilon: Any,
    delta: Any,
    beta: Any,
    feasibility: Any = "centred",
    solver: str | None = None,
    solver_options: Mapping[str, Any] | None = None,
) -> Options:
    """Checked options, without what belongs to one family of problems.
    Errors: SpecificationError, for a missing or invalid epsilon, delta, beta, feasibility, solver or solver_options."""
    if epsilon is None:
        raise SpecificationError(
            "without epsilon nothing private can be solved",
            why="the data are private, and privacy is bought with a budget",
            remedy="epsilon=1.0, delta=1e-6",
        )
    loss = validate_privacy(epsilon, delta)
    if isinstance(beta, bool) or not isinstance(beta, numbers.Real) or not 0 < float(beta) < 1:
        raise SpecificationError(
            f"beta={beta!r}", why="beta is the probability that the accuracy statement fails", remedy="beta=0.05"
        )
    kind = type(feasibility).__name__
    if isinstance(feasibility, type):
        raise SpecificationError(
            f"feasibility={feasibility.__name__}", why="it is a class", remedy=f"dpm.{feasibility.__name__}(...)"
        )
    if not isinstance(feasibility, str) or feasibility not in _WORDS:
        priced = feasibility if isinstance(feasibility, int | float) and not isinstance(feasibility, bool) else ""
        priced = "{constraint: price}" if isinstance(feasibility, Mapping) else str(priced)
        raise SpecificationError(
            f"feasibility={feasibility!r}" if isinstance(feasibility, str | float | int) else f"feasibility={kind}",
            why="private constraints are treated as is expected to cost least (auto), centred (taken as released), "
            "relaxed so that the true optimum stays feasible, "
            "or made harder so that all hold: safe (with probability 1 - beta, but those that the release "
            "lists) or strict (with certainty)",
            remedy=f"feasibility=dpm.Priced({priced}), if prices were meant; else "
            * bool(priced)
            + f"{nearest(feasibility, _WORDS)}'auto', 'centred', 'relaxed', 'safe', 'strict', dpm.Priced(prices), "
            "dpm.AllBut(rows=, alpha=) or dpm.Exact(margin=)",
        )
    if solver is not None and solver not in installed_solvers():
        known = installed_solvers()
        near = f"solver={solver.upper()!r}, or " if isinstance(solver, str) and solver.upper() in known else ""
        exists = isinstance(solver, str) and solver.upper() in cp.settings.SOLVERS
        why = "CVXPY knows it, and it is not installed" if exists and not near else "CVXPY knows no solver of this name"
        raise SpecificationError(f"solver={solver!r}", why=why, remedy=f"{near}one of {', '.join(known)}")
    word = "centred" if feasibility == "auto" else cast(Feasibility, feasibility)
    settings = checked_solver_options(solver_options)
    return Options(loss.epsilon, loss.delta, float(beta), word, feasibility == "auto", None, solver, settings)


def nearest(word: Any, words: Iterable[str]) -> str:
    """``'word'; one of `` for the one of ``words`` that was most likely meant, "" for none."""
    close = difflib.get_close_matches(word.lower(), words, 1, 0.6) if isinstance(word, str) else []
    return f"{close[0]!r}; one of " if close else ""


def checked_solver_options(options: Any) -> dict[str, Any]:
    """``solver_options`` as a dict, {} for None; SpecificationError for what is no mapping from names."""
    options = {} if options is None else options
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        raise SpecificationError(
            f"solver_options={options!r}",
            why="options are given by name",
            remedy="solver_options={'max_iter': 100}, with names that the solver knows",
        )
    return dict(options)


def public_options(given: Options, what: str) -> Options:
    """Checked options of a family whose constraints are all public: nothing gives way, and nothing can be traded.

    ``what`` : the family, for messages.
    Errors: SpecificationError, as ``basic_options``, and for what makes sense with private constraints or linear
    objectives only.
    """
    feasibility, goal = given.feasibility, given.goal
    names = [type(each).__name__ for each in (feasibility, goal) if not isinstance(each, str)]
    names += ["vertices"] if listed(given.mechanism) is not None else []
    if names:
        raise SpecificationError(
            f"{names[0]} given for a {what}",
            why="it is for programs with private constraints or a private linear objective",
            remedy=f"leave it out; the constraints of a {what} are public and always hold",
        )
    if goal != "auto":
        raise unknown_goal(goal)
    return basic_options(given.epsilon, given.delta, given.beta, feasibility, given.solver, given.solver_options)


def listed(mechanism: Any) -> Any:
    """The points that a mechanism's settings list, or None."""
    return getattr(mechanism, "vertices", None)


def unknown_goal(goal: Any) -> SpecificationError:
    """For anything but "auto" and the three objects."""
    return SpecificationError(
        f"goal={goal!r}" if isinstance(goal, str) else f"goal={type(goal).__name__}",
        why="it says how mechanisms that find nearly feasible points treat the objective",
        remedy="'auto', dpm.Target(value), dpm.Search() or dpm.Penalty(weight)",
    )


def finite_number(name: str, value: Any) -> float | None:
    """``value`` as a float, None for None; SpecificationError for what is no finite number."""
    if value is None:
        return None
    try:
        if not isinstance(value, bool) and isinstance(value, numbers.Real) and math.isfinite(float(value)):
            return float(value)
    except OverflowError:  # integers beyond 1e308
        pass
    shown = repr(value) if isinstance(value, str | float | bool) else type(value).__name__
    raise SpecificationError(f"{name}={shown}", why=f"{name} is a finite number", remedy=f"{name}=0.1, say")


def checked_clip(clip: Any) -> float:
    """``clip`` as a positive number, inf for None.
    Errors: SpecificationError, for anything that is not a positive number between 1e-100 and 1e100: noise to hide
    others cannot be drawn."""
    value = finite_number("clip", clip)
    if value is not None and not 1e-100 <= value <= 1e100:
        why = "derivatives are cut to [-clip, clip], and noise is drawn for sizes from 1e-100 to 1e100"
        raise SpecificationError(f"clip={number(value)}", why=why, remedy="clip=1.0, say")
    return math.inf if value is None else value
