"""Public candidate points that a caller lists: ``VertexExponential(vertices=...)`` and its like."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import cvxpy as cp
import numpy as np

from dpmodel._types import Floats
from dpmodel.classify.private_lp import PrivateLP
from dpmodel.errors import SpecificationError

_FEASIBLE = 1e-6


def listed_points(problem: cp.Problem, model: PrivateLP, vertices: Any) -> Floats:
    """(k, n) public points in standard-form columns, from (k, N) rows of stacked variables or dicts.

    Raises
    ------
    SpecificationError
        For points of another shape, with fractions in integer variables, or that violate a public constraint.
    """
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
