"""What is publicly known of the objective of a program."""

from __future__ import annotations

import math

import numpy as np

from dpmodel._types import Floats, Integers
from dpmodel.memo import cached
from dpmodel.numerics.cone_program import SolverFailure
from dpmodel.programs.model import Program
from dpmodel.programs.rows import plain_linear, public_polyhedron


def private_objective(model: Program) -> bool:
    return "objective" in model.private_parts()


@cached
def objective_span(model: Program) -> float:
    """Public bound on ``max c'x - min c'x`` over the public set, so on what any public point loses (inf when there is
    none)."""
    low, high = cost_range(model)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return math.inf
    polytope = public_polyhedron(model) if plain_linear(model) is None else model.public
    bottom, top = polytope.box
    if np.array_equal(low, high) or (bottom >= 0).all():
        try:
            most = polytope.support(high)
        except SolverFailure:
            model.public.require_feasible()
            raise
        return most if math.isinf(most) else max(most + polytope.support(-low), 0.0)
    size = np.maximum(np.abs(low), np.abs(high))
    moving = size > 0
    return min(float(size[moving] @ (top - bottom)[moving]), 2 * model.public.weighted_norm(size))


@cached
def objective_ceiling(model: Program) -> float:
    """Public bound on ``c'x + d`` over the public set, in minimisation form: what no target is missed beyond (inf when
    there is none)."""
    low, high = cost_range(model)
    polytope = public_polyhedron(model) if plain_linear(model) is None else model.public
    bottom, top = polytope.box
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return math.inf
    if np.array_equal(low, high) or (bottom >= 0).all():
        return polytope.support(high) + model.form.d0
    with np.errstate(invalid="ignore"):
        corners = np.array([low * bottom, low * top, high * bottom, high * top])
    most = float(np.where(np.isnan(corners), 0.0, corners).max(axis=0).sum())  # zero times infinity: no cost
    return most + model.form.d0


def noise_hides_costs(model: Program, positions: Integers, reach: Floats) -> bool:
    """Whether noise of size ``reach`` (k,) on these coefficients is so large that twice ``reach'|x|`` comes to all that
    the objective can vary by: entry by entry it is as large as the coefficient, or half of it where no sign changes."""
    low, high = cost_range(model)
    one_sign = ((low >= 0).all() or (high <= 0).all()) and (model.public.box[0] >= 0).all()
    size = np.maximum(np.abs(low), np.abs(high)) / (2 if one_sign else 1)
    size[positions] -= reach
    return bool((size <= 0).all())


def cost_range(model: Program) -> tuple[Floats, Floats]:
    """(n,), (n,): public bounds of the objective's coefficients."""
    if not private_objective(model):
        return model.form.c0, model.form.c0
    below, above = model.form.cost_range
    return model.form.c0 + below, model.form.c0 + above
