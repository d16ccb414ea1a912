"""Solves whose end public facts tell, refused before anything is charged: no bound on the objective, numbers too large.

Both are decided on public numbers alone (coefficients, declared bounds, sizes of noise), never on private ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from dpmodel._types import Floats
from dpmodel.compile.footprint import entry_sensitivities
from dpmodel.compile.public_set import base_program
from dpmodel.contract import Candidate
from dpmodel.errors import SpecificationError, UnsupportedModelError
from dpmodel.numerics.array_program import ConeBlock
from dpmodel.numerics.cone_program import ConeProgram, solve_cone_program
from dpmodel.programs.model import Program
from dpmodel.programs.rows import plain_linear
from dpmodel.text import number

# Solvers take larger coefficients for errors and larger sides for infinite ones (HiGHS from 1e15 and 1e20).
_LARGEST = 1e15
# Directions have size 1 at most, rows and objective are scaled to 1: what a solver leaves open is below this.
_GAIN, _MISS = 1e-6, 1e-9


def refuse_unsolvable(model: Program, chosen: Candidate, over_all: bool) -> None:
    """Nothing, or a refusal before the charge. ``over_all`` : as ``Serves``.
    Errors: SpecificationError, when public numbers or the noise are so large that solvers fail on them;
    UnsupportedModelError, when the objective is unbounded below in every program that can be released, or in some that
    the declared bounds of a private objective allow."""
    _refuse_large(model, chosen)
    if over_all:
        told = None if chosen.forecast is None else chosen.forecast.error.stated()[0]
        bounded = told is not None and math.isfinite(told)
        refused = model.cached(("unbounded", bounded), lambda: _unbounded(model, bounded))
        if refused is not None:
            raise refused


def _refuse_large(model: Program, chosen: Candidate) -> None:
    form, base = model.form, base_program(model.form)
    noise = {} if chosen.forecast is None else chosen.forecast.noise
    drawn = [part["largest_noise"] for part in noise.values() if isinstance(part, Mapping) and "largest_noise" in part]
    # A public row with one entry is a bound on a variable, where a huge number stands for none.
    sides = np.abs(form.b0)[base.keep & ((np.diff(form.A0.indptr) > 1) | form.private_rows)]
    largest = {
        "the noise that the declared sensitivity needs": max(drawn, default=0.0),
        "a public coefficient of the objective": float(np.abs(form.c0).max(initial=0.0)),
        "a public coefficient of a constraint": float(np.abs(form.A0.data).max(initial=0.0)),
        "a public right-hand side": float(sides.max(initial=0.0)),
    }
    for what, size in largest.items():
        if size >= _LARGEST:
            raise SpecificationError(
                f"{what} is about {number(size)}: solvers fail on numbers beyond {number(_LARGEST)}",
                why="the budget would be spent and nothing could be solved",
                remedy="other units (thousands, millions), or tighter bounds and sensitivities; nothing was spent",
            )


def _unbounded(model: Program, bounded: bool) -> UnsupportedModelError | None:
    """Why the objective has no bound: a direction d that every row and bound allows for ever, along which it falls.
    ``bounded`` : the loss by noise on the objective is finite, and with it every column whose cost a record can move.

    ``-A d`` lies in the cones and d in the recession cone of the bounds. d is zero in columns whose coefficients in
    rows are private, so it does not depend on them. A feasible program with such a d is unbounded, whatever b is.
    """
    form, base = model.form, base_program(model.form)
    lower, upper = _ends(model, base)
    private = np.zeros(form.affine.variables, dtype=bool)
    private[form.objective.row] = True

    def stays() -> bool:
        return not ((private & (upper > lower)).any() or _falls(form.c0, (lower, upper)))

    if bounded and form.objective.nnz and not stays():
        low, high = form.cost_range
        moved = (entry_sensitivities(form.affine, form.objective) > 0) & (low < high)
        lower[moved] = upper[moved] = 0.0
    # A bounded public set has no such direction, which plans for private rows have found out.
    if stays() or (form.private_rows.any() and plain_linear(model) is None):
        return None
    cone = _recession(base, lower, upper)
    fixed = cone.with_(lower=np.where(private, 0.0, lower), upper=np.where(private, 0.0, upper))
    names = _escapes(model, fixed, form.c0)
    if names:
        return UnsupportedModelError(
            f"the objective has no bound: {names} can grow for ever in a direction that improves it",
            why="every program that could be released would be unbounded, whatever the private numbers are",
            remedy=f"bounds on {names} (nonneg=True, bounds=[lo, hi], a constraint), or the other of Minimize and "
            "Maximize; nothing was spent",
        )
    if not (private & (upper > lower)).any():
        return None
    for objective in _objectives(model, cone, private):
        names = _escapes(model, cone, objective)
        if names:
            whose = _in_objective(model)
            return UnsupportedModelError(
                f"the declared bounds of {whose} allow an objective without a bound: {names} can grow for ever",
                why="released numbers may have any value in the declared bounds, and with some of them the objective "
                "falls without end",
                remedy=f"the sign of {whose} (nonneg=True), its bounds=[lo, hi], or bounds on {names}",
            )
    return None


def _ends(model: Program, base: ConeProgram) -> tuple[Floats, Floats]:
    """(n,), (n,): the box of directions of size 1 at most along which the bounds hold for ever."""
    lower = np.where(np.isfinite(base.lower), 0.0, -1.0)
    upper = np.where(np.isfinite(base.upper), 0.0, 1.0)
    if model.form.matrix.nnz:
        columns = model.form.matrix_positions()[1]
        lower[columns] = upper[columns] = 0.0
    return lower, upper


def _recession(base: ConeProgram, lower: Floats, upper: Floats) -> ConeProgram:
    """Those of the directions between ``lower`` and ``upper`` along which the rows hold for ever, linear rows scaled
    to 1.

    Of exponential and power cones only the faces ``x <= 0, y = 0, z >= 0`` and ``x, y >= 0, z = 0`` are used: they are
    linear, and near the rest of the boundary a solver's tolerance lets directions in that are none.
    """
    A, row = base.A.copy(), np.repeat(np.arange(base.b.size), np.diff(base.A.indptr))
    size = np.zeros(base.b.size)
    np.maximum.at(size, row, np.abs(A.data))
    for block in base.cones:
        if block.kind not in ("zero", "nonneg"):
            size[block.rows] = 1.0
        if block.kind == "exp":
            size[block.start : block.start + block.size : 3] = -1.0
    A.data = A.data / np.where(size != 0, size, 1.0)[row]
    none = np.zeros(0, dtype=np.int64)
    order, cones = np.arange(base.b.size), list[ConeBlock]()
    for block in base.cones:
        if block.kind not in _EQUATION:
            cones.append(block)
            continue
        # A face's equations lie together, behind its inequalities.
        equation = np.arange(block.size) % 3 == _EQUATION[block.kind]
        order[block.rows] = block.start + np.argsort(equation, kind="stable")
        count = block.size // 3
        cones.append(replace(block, kind="nonneg", size=2 * count, sizes=(), alphas=()))
        cones.append(replace(block, kind="zero", start=block.start + 2 * count, size=count, sizes=(), alphas=()))
    if len(cones) > len(base.cones):
        A = A[order]
    return base.with_(
        d=0.0, b=np.zeros_like(base.b), A=A, cones=tuple(cones), lower=lower, upper=upper, boolean=none, integer=none
    )


# The row of three that is zero on the face of a cone, where the others are not negative.
_EQUATION = {"exp": 1, "pow3d": 2}


def _falls(objective: Floats, box: tuple[Floats, Floats]) -> bool:
    """Whether the objective can fall from zero in a box by more than what a solver leaves open."""
    live = np.where(box[1] > box[0], objective, 0.0)
    lowest = float(np.minimum(live * box[0], live * box[1]).sum())
    return lowest < -_GAIN * float(np.abs(live).max(initial=0.0))


def _escapes(model: Program, cone: ConeProgram, objective: Floats) -> str:
    """Names of the variables that move along a direction of ``cone`` in which ``objective`` falls; "" for none."""
    live = np.where(cone.upper > cone.lower, objective, 0.0)
    size = float(np.abs(live).max(initial=0.0))
    if not _falls(live, (cone.lower, cone.upper)):
        return ""
    solution = solve_cone_program(cone.with_(c=live / size))
    linear = all(block.kind in ("zero", "nonneg") for block in cone.cones)
    # Curved cones are met to about 1e-8, which lets directions beside them in by the root of that.
    if solution.x is None or solution.value is None or solution.value > -(_GAIN if linear else 1e-2):
        return ""
    gap = -(cone.A @ solution.x)
    for block in cone.cones:
        part = gap[block.rows][np.asarray(cone.keep)[block.rows]]
        missed = np.abs(part) if block.kind == "zero" else -part
        if block.kind in ("zero", "nonneg") and missed.max(initial=0.0) > _MISS:
            return ""  # a direction only up to the solver's tolerance
    names = model.affine.column_names
    users = {names[first] for first in model.affine.variable_columns.values()}
    moved = [names[j] for j in np.flatnonzero(np.abs(solution.x) > _GAIN) if names[j] in users]
    return ", ".join(list(dict.fromkeys(moved))[:3]) or "a variable"


def _objectives(model: Program, cone: ConeProgram, private: np.ndarray) -> Iterator[Floats]:
    """Objectives at ends of their public range, at which some direction may fall: complete where signs of x are known,
    or nothing is declared; with finite ranges on free variables some are not looked at."""
    form = model.form
    low, high = form.cost_range
    low, high = form.c0 + np.where(private, low, 0.0), form.c0 + np.where(private, high, 0.0)
    up, down = cone.lower >= 0, cone.upper <= 0
    free = ~(up | down)
    open_low, open_high = private & ~np.isfinite(low), private & ~np.isfinite(high)
    ends = [np.where(~np.isfinite(end), form.c0, end) for end in (low, high)]
    yield np.where(down, ends[1], ends[0])
    yield np.where(up, ends[0], ends[1])
    # Without a bound the private coefficient outweighs all others.
    falls, rises = open_low & ~(down | (free & open_high)), open_high & ~(up | (free & open_low))
    yield np.where(rises, 1.0, 0.0) - np.where(falls, 1.0, 0.0)
    # A vector in general position is not zero on any direction that moves a free column.
    general = np.where(free & open_low & open_high, 1 + np.modf(np.arange(low.size) * (math.sqrt(5) - 1) / 2)[0], 0.0)
    yield general
    yield -general


def _in_objective(model: Program) -> str:
    """Names of the private parameters in c."""
    used = model.form.objective.column
    blocks = model.affine.private_blocks
    return ", ".join(dict.fromkeys(b.name for b in blocks if np.isin(used, np.r_[b.columns]).any()))
