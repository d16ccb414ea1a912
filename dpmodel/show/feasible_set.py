"""The feasible set of a linear problem in two variables, with bands as wide as the noise on its private rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpmodel._types import Floats
from dpmodel.collect import named_constraints
from dpmodel.contract import Candidate, Options
from dpmodel.errors import SpecificationError
from dpmodel.figures import COLOURS, canvas, require_matplotlib
from dpmodel.numerics.array_program import ConeBlock
from dpmodel.programs.feasibility import treat
from dpmodel.programs.model import Program
from dpmodel.programs.noise_design import Kind, design_noise
from dpmodel.programs.noise_once import GAUSSIAN_ONCE, LAPLACE_ONCE
from dpmodel.programs.public import declared_range, middle_cost
from dpmodel.release import Release
from dpmodel.text import number

_GRID = 300  # points on each side, for bands


@dataclass(frozen=True)
class HalfPlane:
    """``a'x <= b`` (or ``=``), of the constraint ``label``. ``private`` : whether noise moves it; then ``a`` and ``b``
    are released, or the middle of what is declared, and noise moves it by up to ``noise + on_x'|x|``, None for no known
    amount."""

    a: tuple[float, float]
    b: float
    label: str
    equality: bool = False
    private: bool = False
    noise: float | None = None
    on_x: tuple[float, float] = (0.0, 0.0)

    @property
    def empty(self) -> bool:
        return self.a == (0.0, 0.0)


def feasible_set(
    rows: Sequence[HalfPlane],
    names: tuple[str, str],
    downhill: tuple[float, float] | None,
    optimum: tuple[float, float] | None,
    caption: str,
    ax: Any = None,
) -> Any:
    """``downhill`` : the direction in which the objective gets better, None for none that is known; ``optimum`` : the
    released one."""
    drawn = canvas(ax, size=(8.4, 6.0))
    axes = drawn.axes[0]
    rows = [row for row in rows if not row.empty]
    window = _window(rows, optimum)
    public = polygon([row for row in rows if not row.private], window)
    both = polygon(rows, window)
    if len(public):
        axes.fill(*public.T, color="0.92", zorder=0, label="public constraints allow", gid="public")
    if len(both) and any(row.private for row in rows):
        axes.fill(*both.T, color="#B9D7EA", zorder=1, label="and private ones, as drawn", gid="drawn")
    labels = list(dict.fromkeys(row.label for row in rows if row.private))
    told: set[str] = set()
    for row in rows:
        ends = _segment(row, window)
        if len(ends) < 2:
            continue
        colour = COLOURS[labels.index(row.label) % len(COLOURS)] if row.private else "0.4"
        label = row.label if row.private and row.label not in told else None
        told.add(row.label)
        axes.plot(*ends.T, color=colour, lw=1.8 if row.private else 1.0, label=label, zorder=3)
        if row.private and row.noise is not None:
            _band(axes, row, window, colour)
    (left, bottom), (right, top) = window[0], window[2]
    axes.set(xlim=(left, right), ylim=(bottom, top), xlabel=names[0], ylabel=names[1])
    if optimum is not None:
        axes.plot(*optimum, "*", color="black", ms=14, label="released optimum", zorder=6, ls="")
    if downhill is not None and math.hypot(*downhill) > 0:
        _arrow(axes, downhill)
    if drawn.own:  # beside the set, not on it
        drawn.figure.legend(fontsize="small", loc="outside right upper")
    else:
        axes.legend(fontsize="small")
    return drawn.told("Feasible set", caption)


def polygon(rows: Sequence[HalfPlane], window: Floats) -> Floats:
    """(k, 2) corners of what is left of ``window`` (4, 2) inside the inequalities."""
    corners = [tuple(corner) for corner in window.tolist()]
    for row in rows:
        if row.equality:
            continue
        kept: list[tuple[float, ...]] = []
        slack = [row.b - row.a[0] * x - row.a[1] * y for x, y in corners]
        for k, corner in enumerate(corners):
            before, own = slack[k - 1], slack[k]
            if (before < 0) != (own < 0):
                share = before / (before - own)
                last = corners[k - 1]
                kept.append(tuple(p + share * (q - p) for p, q in zip(last, corner, strict=True)))
            if own >= 0:
                kept.append(corner)
        corners = kept
    return np.array(corners).reshape(-1, 2)


def _window(rows: Sequence[HalfPlane], optimum: tuple[float, float] | None) -> Floats:
    """(4, 2) corners of a rectangle around what there is to see: the corners of the feasible set, or all crossings."""
    points = [np.array(optimum)] if optimum is not None else []
    crossings = []
    for i, one in enumerate(rows):
        for other in rows[:i]:
            A = np.array([one.a, other.a])
            if abs(np.linalg.det(A)) > 1e-9 * max(np.abs(A).max(), 1e-300) ** 2:
                crossings.append(np.linalg.solve(A, [one.b, other.b]))

    def inside(point: Floats, some: Sequence[HalfPlane]) -> bool:
        return all(row.equality or np.dot(row.a, point) <= row.b + 1e-7 * (1 + abs(row.b)) for row in some)

    corners = [point for point in crossings if inside(point, [row for row in rows if not row.private])]
    points += corners or crossings
    if not points:
        points = [np.zeros(2), *(np.array(row.a) * row.b / np.dot(row.a, row.a) for row in rows)]
    low, high = np.min(points, axis=0), np.max(points, axis=0)
    width = high - low
    width = np.where(width > 0, width, max(float(width.max()), 1.0))
    low, high = low - 0.15 * width, high + 0.15 * width
    return np.array([low, (high[0], low[1]), high, (low[0], high[1])])


def _segment(row: HalfPlane, window: Floats) -> Floats:
    """(2, 2) ends of the row's line inside the window, or fewer."""
    ends = []
    for one, other in zip(window, np.roll(window, -1, axis=0), strict=True):
        before, after = (row.b - np.dot(row.a, point) for point in (one, other))
        if before != after and min(before, after) <= 0 <= max(before, after):
            ends.append(one + before / (before - after) * (other - one))
    return np.array(ends[:2] if len(ends) != 3 else [ends[0], ends[2]]).reshape(-1, 2)


def _band(axes: Any, row: HalfPlane, window: Floats, colour: str) -> None:
    (left, bottom), (right, top) = window[0], window[2]
    X, Y = np.meshgrid(np.linspace(left, right, _GRID), np.linspace(bottom, top, _GRID))
    assert row.noise is not None
    reach = row.noise + row.on_x[0] * np.abs(X) + row.on_x[1] * np.abs(Y)
    beyond = np.abs(row.a[0] * X + row.a[1] * Y - row.b) - reach
    if beyond.min() < 0:
        axes.contourf(X, Y, beyond, levels=[float(beyond.min()) - 1, 0.0], colors=[colour], alpha=0.18, zorder=2)


def _arrow(axes: Any, downhill: tuple[float, float]) -> None:
    """In the lower left corner, in the direction that it has on the page."""
    shown = axes.transData.transform([(0.0, 0.0), downhill])
    way = (shown[1] - shown[0]) / np.linalg.norm(shown[1] - shown[0])
    start = np.array([0.1, 0.1])
    axes.annotate(
        "better", tuple(start + 0.12 * way), tuple(start), "axes fraction", "axes fraction", ha="center", va="center",
        fontsize="small", arrowprops={"arrowstyle": "-|>", "lw": 2, "color": "black"}, zorder=7,
    )  # fmt: skip


# -------------------------------------------------------------------------------------- of a program and its release
# Mechanisms whose noise is told row by row; of others the largest is.
_BY_ROW: dict[str, Kind] = {each.name: each.kind for each in (LAPLACE_ONCE, GAUSSIAN_ONCE)}
_MOST_ROWS = 60
# Multipliers that solvers leave at constraints that do not bind are smaller.
_BINDS = 1e-6


def feasible_picture(
    model: Program, chosen: Candidate | None, options: Options | None, release: Release | None, ax: Any = None
) -> Any:
    """Draw the rows of ``model``; private ones where the release put them, if they bind in it, or else at the middle
    of their declared ranges, with a band as wide as the noise of ``chosen`` at ``options``, and the released optimum.
    Errors: MissingExtraError, SpecificationError, without matplotlib; for a problem that has not two variables and
    linear rows."""
    require_matplotlib()
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
    placed = _released_sides(model, chosen, options, release, optimum)
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


def _middle(model: Program) -> tuple[Floats, Any, Any]:
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
    model: Program,
    chosen: Candidate | None,
    options: Options | None,
    release: Release | None,
    optimum: tuple[float, float] | None,
) -> dict[int, float]:
    """Row -> right-hand side with its noise, of private inequalities that bind in the release: such a row was moved by
    a public amount and then passes through the released optimum, so this is read off what was released."""
    if chosen is None or options is None or release is None or optimum is None or release.status != "optimal":
        return {}
    if release.mechanism != chosen.mechanism or chosen.mechanism not in _BY_ROW or model.form.matrix.nnz:
        return {}
    done = treat(
        model, options, design_noise(model, options, dict.fromkeys(model.private_parts(), _BY_ROW[chosen.mechanism]))
    )
    labels, A = list(named_constraints(model.problem)), model.form.A0.toarray()
    found = {}
    for block in model.affine.cones:
        if block.kind != "nonneg" or block.constraint < 0:
            continue
        dual = np.asarray(release.duals.get(labels[block.constraint], ())).ravel(order="F")
        for k, row in enumerate(_rows(block)):
            if dual.size == block.size and abs(dual[k]) > _BINDS and model.form.private_rows[row]:
                found[row] = float(A[row] @ optimum - done.relax[row])
    return found


def _noise(model: Program, chosen: Candidate | None, options: Options | None) -> tuple[Floats | None, Floats, str]:
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
    exact = (
        design_noise(model, options, dict.fromkeys(model.private_parts(), _BY_ROW[name])) if name in _BY_ROW else None
    )
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


def _cost_words(model: Program, cost: Floats | None) -> str:
    if cost is None:
        return "No arrow: the objective is private and has no declared range."
    middle = " in the middle of its declared range" if model.form.objective.nnz else ""
    return f"Arrow: where the objective{middle} gets better." if cost.any() else "There is no objective."


def _optimum(model: Program, release: Release | None) -> tuple[float, float] | None:
    """The released point in the order of the standard form's columns."""
    if release is None or not release.variables:
        return None
    names = list(dict.fromkeys(model.affine.column_names))
    flat = [np.asarray(release.variables[name], dtype=float).ravel() for name in names if name in release.variables]
    point = np.concatenate(flat) if flat else np.zeros(0)
    return (float(point[0]), float(point[1])) if point.size == 2 and math.isfinite(point.sum()) else None


def _names(model: Program) -> tuple[str, str]:
    first, second = model.affine.column_names
    return (f"{first}[0]", f"{second}[1]") if first == second else (first, second)
