"""The figure of a linear problem in two variables: public facts and the release, never a private value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dpmodel._types import Floats
from dpmodel.classify.private_lp import PrivateLP
from dpmodel.contract import Candidate, Options
from dpmodel.errors import SpecificationError
from dpmodel.models.released import named_constraints
from dpmodel.numerics.array_program import ConeBlock
from dpmodel.programs.feasibility import treat
from dpmodel.programs.noise_design import Kind, design
from dpmodel.programs.public import declared_range, middle_cost
from dpmodel.release.plots.canvas import require_matplotlib
from dpmodel.release.plots.feasible_set import HalfPlane, feasible_set
from dpmodel.release.release import Release
from dpmodel.text import number

if TYPE_CHECKING:
    from dpmodel.models.program import Program

# Mechanisms whose noise is told row by row; of others the largest is.
_BY_ROW: dict[str, Kind] = {"laplace-once": "laplace", "gaussian-once": "gaussian"}
_MOST_ROWS = 60
# Multipliers that solvers leave at constraints that do not bind are smaller.
_BINDS = 1e-6


def feasible_picture(
    program: Program, chosen: Candidate | None, options: Options | None, release: Release | None, ax: Any = None
) -> Any:
    """Draw the rows of ``program``; private ones where the release put them, if they bind in it, or else at the middle
    of their declared ranges, with a band as wide as the noise of ``chosen`` at ``options``, and the released optimum.

    Raises
    ------
    MissingExtraError, SpecificationError
        Without matplotlib; for a problem that has not two variables and linear rows.
    """
    require_matplotlib()
    model = program.data
    affine, form = model.affine, model.form
    if affine.variables != 2 or not affine.is_linear() or affine.rows > _MOST_ROWS:
        raise SpecificationError(
            f"plot: {affine.variables} variables and {affine.rows} rows in the standard form",
            why=f"it draws linear problems in two variables with at most {_MOST_ROWS} rows",
            remedy="release.plot_values() and release.plot_constraints() draw what was released of any size",
        )
    b, A, known = _middle(model)
    noise, on_x, words = _noise(model, chosen, options)
    optimum = _optimum(model, release)
    placed = _released_sides(program, chosen, options, release, optimum)
    b[list(placed)], known[list(placed)] = list(placed.values()), True
    rows, without = [], []
    equalities = affine.equalities()
    for block in affine.cones:
        for row in _rows(block):
            private = bool(form.private_rows[row])
            if private and not known[row]:
                without.append(block.label)
                continue
            a = (float(A[row, 0]), float(A[row, 1]))
            band = None if noise is None or not private else float(noise[row])
            reach = (float(on_x[row, 0]), float(on_x[row, 1]))
            rows.append(HalfPlane(a, float(b[row]), block.label, bool(equalities[row]), private, band, reach))
    told = [words] if form.private_rows.any() else ["No constraint is private."]
    if without:
        labels = ", ".join(dict.fromkeys(without))
        told.append(f"Not drawn, because neither bounds= nor a release say where they are: {labels}.")
    cost = middle_cost(model)
    told.append(_cost_words(model, cost))
    if affine.boolean.size or affine.integer.size:
        told.append("Of the areas only points with integers count.")
    if placed:
        labels = ", ".join(dict.fromkeys(block.label for block in affine.cones if placed.keys() & _rows(block)))
        told.append(f"As released, because they bind in it: {labels}; as likely, the true row lies in the band around.")
    if release is not None:
        told.append("Star: the released optimum." if optimum else "The release has no point.")
    names = _names(model)
    downhill = None if cost is None else (-float(cost[0]), -float(cost[1]))
    return feasible_set(rows, names, downhill, optimum, " ".join(told), ax)


def _middle(model: PrivateLP) -> tuple[Floats, Any, Any]:
    """b and dense A with private numbers at the middle of their declared ranges, and (m,) which rows these place."""
    form = model.form
    low, high = form.side_range
    known = np.isfinite(low) & np.isfinite(high)
    b = form.b0 + np.where(known, (low + np.where(known, high, low)) / 2, 0.0)
    A = form.A0.toarray()
    if form.matrix.nnz:
        below, above = declared_range(model, "matrix")
        rows, columns = form.matrix_positions()
        placed = np.isfinite(below) & np.isfinite(above)
        known[rows[~placed]] = False
        A[rows[placed], columns[placed]] += (below[placed] + above[placed]) / 2
    return b, A, known


def _rows(block: ConeBlock) -> range:
    return range(block.start, block.start + block.size)


def _released_sides(
    program: Program,
    chosen: Candidate | None,
    options: Options | None,
    release: Release | None,
    optimum: tuple[float, float] | None,
) -> dict[int, float]:
    """Row -> right-hand side with its noise, of private inequalities that bind in the release: such a row was moved by
    a public amount and then passes through the released optimum, so this is read off what was released."""
    model = program.data
    if chosen is None or options is None or release is None or optimum is None or release.status != "optimal":
        return {}
    if release.mechanism != chosen.mechanism or chosen.mechanism not in _BY_ROW or model.form.matrix.nnz:
        return {}
    done = treat(
        model, options, design(model, options, dict.fromkeys(model.private_parts(), _BY_ROW[chosen.mechanism]))
    )
    labels, A = list(named_constraints(program.problem)), model.form.A0.toarray()
    found = {}
    for block in model.affine.cones:
        if block.kind != "nonneg" or block.constraint < 0:
            continue
        dual = np.asarray(release.duals.get(labels[block.constraint], ())).ravel(order="F")
        for k, row in enumerate(_rows(block)):
            if dual.size == block.size and abs(dual[k]) > _BINDS and model.form.private_rows[row]:
                found[row] = float(A[row] @ optimum - done.relax[row])
    return found


def _noise(model: PrivateLP, chosen: Candidate | None, options: Options | None) -> tuple[Floats | None, Floats, str]:
    """(m,) how far noise may move right-hand sides and (m, 2) coefficients, None for no known amount, and words."""
    on_x = np.zeros((model.affine.rows, 2))
    place = "Private rows are drawn at the middle of their declared ranges"
    if chosen is None or chosen.forecast is None or options is None:
        return None, on_x, f"{place}; plot(epsilon) or a solve adds bands as wide as the noise."
    name, told = chosen.mechanism, chosen.forecast.noise
    on_b = np.zeros(model.affine.rows)
    parts = [part for part in ("scalar", "matrix") if part in model.private_parts()]
    if not all(isinstance(told.get(part), Mapping) and "largest_noise" in told[part] for part in parts):
        return None, on_x, f"{place}; {name} adds no noise to single rows, so there are no bands."
    exact = design(model, options, dict.fromkeys(model.private_parts(), _BY_ROW[name])) if name in _BY_ROW else None
    if "scalar" in parts:
        positions = model.form.scalar.positions
        on_b[positions] = told["scalar"]["largest_noise"]
        if exact is not None:
            part = exact.parts["scalar"]
            on_b[part.measurement.positions] = part.reach
    if "matrix" in parts:
        on_x[model.form.matrix_positions()] = (
            told["matrix"]["largest_noise"] if exact is None else exact.parts["matrix"].reach
        )
    sure = "always" if options.feasibility == "strict" else f"with probability {number(1 - options.beta)}"
    return on_b, on_x, (
        f"{place}, if nothing else is said, each with a band as far as the noise of {name} at epsilon "
        f"{number(options.epsilon)} moves it ({sure} no further)."
    )  # fmt: skip


def _cost_words(model: PrivateLP, cost: Floats | None) -> str:
    if cost is None:
        return "No arrow: the objective is private and has no declared range."
    middle = " in the middle of its declared range" if model.form.objective.nnz else ""
    return f"Arrow: where the objective{middle} gets better." if cost.any() else "There is no objective."


def _optimum(model: PrivateLP, release: Release | None) -> tuple[float, float] | None:
    """The released point in the order of the standard form's columns."""
    if release is None or not release.variables:
        return None
    names = list(dict.fromkeys(model.affine.column_names))
    flat = [np.asarray(release.variables[name], dtype=float).ravel() for name in names if name in release.variables]
    point = np.concatenate(flat) if flat else np.zeros(0)
    return (float(point[0]), float(point[1])) if point.size == 2 and math.isfinite(point.sum()) else None


def _names(model: PrivateLP) -> tuple[str, str]:
    first, second = model.affine.column_names
    return (f"{first}[0]", f"{second}[1]") if first == second else (first, second)
