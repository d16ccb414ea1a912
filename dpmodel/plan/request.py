"""Checking what a caller asks for, before anything is planned."""

from __future__ import annotations

import difflib
import inspect
import numbers
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, get_args

import cvxpy as cp
import numpy as np

from dpmodel.classify.private_lp import PrivateLP
from dpmodel.compile.affine_map import Floats
from dpmodel.errors import SpecificationError
from dpmodel.mechanisms.mechanism import Feasibility, Request
from dpmodel.plan.asked import Asked
from dpmodel.plan.portfolio import KINDS
from dpmodel.privacy import validate_privacy

_FEASIBLE = 1e-6


def make_request(
    problem: cp.Problem,
    model: PrivateLP,
    epsilon: Any,
    delta: Any,
    beta: Any,
    feasibility: Any,
    vertices: Any,
    solver: str | None,
    options: Mapping[str, Any] | None,
    asked: Asked = Asked(),  # noqa: B008 (frozen)
) -> Request:
    """A checked request.

    Raises
    ------
    SpecificationError
        For a missing or invalid epsilon, delta, beta or feasibility, and for points that are not public
        feasible points of the right shape.
    """
    request = basic_request(epsilon, delta, beta, feasibility, solver, options)
    if vertices is not None:
        request = replace(request, vertices=_points(problem, model, vertices))
    return request if asked == Asked() else asked.add_to(request, model)


def basic_request(
    epsilon: Any,
    delta: Any,
    beta: Any,
    feasibility: Any = "relaxed",
    solver: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Request:
    """A checked request without what belongs to one kind of model. Errors as ``make_request``."""
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
    if feasibility not in get_args(Feasibility):
        raise SpecificationError(
            f"feasibility={feasibility!r}",
            why="private constraints are relaxed so that the true optimum stays feasible, centred (taken as released), "
            "or made harder so that all hold: safe (with probability 1 - beta) or strict (with certainty)",
            remedy="feasibility='relaxed', 'centred', 'safe' or 'strict'",
        )
    if solver is not None and solver not in _installed():
        near = f"solver={solver.upper()!r}, or " if isinstance(solver, str) and solver.upper() in _installed() else ""
        raise SpecificationError(
            f"solver={solver!r}", why="not installed", remedy=f"{near}one of {', '.join(_installed())}"
        )
    return Request(loss.epsilon, loss.delta, float(beta), feasibility, None, solver, checked_options(options))


def checked_options(options: Any) -> dict[str, Any]:
    """``solver_options`` as a dict, {} for None; SpecificationError for what is no mapping from names."""
    options = {} if options is None else options
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        raise SpecificationError(
            f"solver_options={options!r}",
            why="options are given by name",
            remedy="solver_options={'max_iter': 100}, with names that the solver knows",
        )
    return dict(options)


# What CVXPY's own solve takes besides a solver and its options; none of it has a meaning under noise.
_CVXPYS = ("gp", "qcp", "requires_grad", "enforce_dpp", "ignore_dpp", "canon_backend", "warm_start", "solver_path")
_OTHER_NAMES = {"seed": "rng", "random_state": "rng", "options": "solver_options", "eps": "epsilon", "prob": "beta"}


def refuse_misplaced(function: Callable[..., Any], positional: Mapping[str, Any], unknown: Mapping[str, Any]) -> None:
    """What CVXPY's ``solve`` takes and ``function`` does not: solvers as first argument, options as keywords.

    Raises
    ------
    SpecificationError
        With the argument that says it here.
    """
    own = [name for name in inspect.signature(function).parameters if name not in ("self", "unknown")]
    for place, value in positional.items():
        is_solver = isinstance(value, str) and value.upper() in _installed()
        if is_solver or value in _mechanisms():
            right = f"solver={value.upper()!r}" if is_solver else f"mechanism={value!r}"
            raise SpecificationError(
                f"{place}={value!r} is not a number",
                why=f"the first arguments of {function.__name__} are epsilon and delta",
                remedy=f"{function.__name__}(epsilon=1.0, {right})",
            )
    for name, value in unknown.items():
        near = [_OTHER_NAMES[name]] if name in _OTHER_NAMES else difflib.get_close_matches(name, own, 1, 0.8)
        if name in _CVXPYS:
            why, remedy = "it is an argument of CVXPY's solve that has no meaning here", "leave it out"
        elif near and near[0] in own:
            why, remedy = f"no argument of {function.__name__}", f"{near[0]}=..."
        else:
            why = f"no argument of {function.__name__}, which does not pass keywords on to a solver"
            remedy = f"solver=..., solver_options={{{name!r}: {value!r}}}"
        raise SpecificationError(f"{name}={value!r}", why=why, remedy=remedy)


def make_regression_request(
    epsilon: Any,
    delta: Any,
    beta: Any,
    feasibility: Any,
    vertices: Any,
    solver: str | None,
    options: Mapping[str, Any] | None,
    asked: Asked = Asked(),  # noqa: B008 (frozen)
    clip: float | None = None,
    what: str = "regression",
) -> Request:
    """The same for a regression, whose constraints are all public: nothing gives way, and nothing can be traded.

    Raises
    ------
    SpecificationError
        As ``make_request``, and for what makes sense with private constraints or linear objectives only.
    """
    request = basic_request(epsilon, delta, beta, feasibility, solver, options)
    given = [name for name, value in vars(asked).items() if value != getattr(Asked(), name)]
    given += ["vertices"] if vertices is not None else []
    if given:
        raise SpecificationError(
            f"{given[0]} given for a {what}",
            why="it is for programs with private constraints or a private linear objective",
            remedy=f"leave it out; the constraints of a {what} are public and always hold",
        )
    return replace(request, clip=clip)


def make_postprocess_request(
    epsilon: Any,
    delta: Any,
    beta: Any,
    feasibility: Any,
    vertices: Any,
    solver: str | None,
    options: Mapping[str, Any] | None,
    asked: Asked = Asked(),  # noqa: B008 (frozen)
) -> Request:
    """The same for a post-processing: a budget may be given, is checked, and nothing of it is spent.

    Raises
    ------
    SpecificationError
        As ``make_regression_request``.
    """
    given = 1.0 if epsilon is None else epsilon
    request = make_regression_request(
        given, delta, beta, feasibility, vertices, solver, options, asked, what="post-processing"
    )
    return replace(request, epsilon=0.0, delta=0.0)


@cache
def _installed() -> tuple[str, ...]:
    return tuple(cp.installed_solvers())


@cache
def _mechanisms() -> tuple[str, ...]:
    return tuple(mechanism.name for kind in KINDS.values() for mechanism in kind.mechanisms)


def _points(problem: cp.Problem, model: PrivateLP, vertices: Any) -> Floats:
    """(k, n) public points in standard-form columns, from (k, N) rows of stacked variables or dicts."""
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
    if not isinstance(vertices, Iterable):
        raise SpecificationError(f"vertices={type(vertices).__name__}", remedy="a list of points, or an array")
    for number, point in enumerate(vertices):
        try:
            if isinstance(point, Mapping):
                missing = [variable.name() for variable in variables if variable not in point]
                if missing:
                    what = f"vertices[{number}] has no value for {missing[0]}"
                    raise SpecificationError(what, remedy="a value for every variable")
                parts = [np.asarray(point[variable], dtype=float).ravel(order="F") for variable in variables]
                rows.append(np.concatenate(parts))
            else:
                rows.append(np.asarray(point, dtype=float).ravel(order="F"))
        except (TypeError, ValueError) as error:
            if isinstance(error, SpecificationError):
                raise
            raise SpecificationError(
                f"vertices[{number}] is not an array of numbers", remedy="points, or {variable: value}"
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


def _refuse_wrong_kind(model: PrivateLP, points: Floats) -> None:
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


def _refuse_infeasible(model: PrivateLP, points: Floats) -> None:
    program = model.public.program
    gap = program.b[:, None] - program.A @ points.T
    scale = _FEASIBLE * (1 + np.abs(program.b))[:, None]
    bad = np.zeros(points.shape[0], dtype=bool)
    for block in model.affine.cones:
        rows = np.arange(block.start, block.start + block.size)
        rows = rows[program.keep[rows]]
        if block.kind == "zero":
            bad |= (np.abs(gap[rows]) > scale[rows]).any(axis=0)
        elif block.kind == "nonneg":
            bad |= (gap[rows] < -scale[rows]).any(axis=0)
    low, high = program.lower - _FEASIBLE, program.upper + _FEASIBLE
    bad |= ((points < low) | (points > high)).any(axis=1)
    if bad.any():
        raise SpecificationError(
            f"vertices[{int(np.flatnonzero(bad)[0])}] violates a public constraint",
            why="every listed point must be feasible",
            remedy="list feasible points only",
        )
