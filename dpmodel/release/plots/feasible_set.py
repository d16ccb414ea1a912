"""The feasible set of a linear problem in two variables, with bands as wide as the noise on its private rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpmodel._types import Floats
from dpmodel.release.plots.canvas import COLOURS, canvas

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
