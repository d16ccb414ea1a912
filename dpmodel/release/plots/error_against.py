"""Forecast errors against epsilon (or another quantity), one line for each mechanism that says something."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpmodel.release.plots.canvas import COLOURS, MARKERS, canvas
from dpmodel.text import number

_TICKS = 9  # values with a tick each


@dataclass(frozen=True)
class Line:
    """The errors of one mechanism at the values of a figure, nan where it says nothing; ``proved`` alike."""

    name: str
    values: tuple[float, ...]
    proved: bool
    chosen: bool = False


@dataclass(frozen=True)
class Panel:
    """``label`` : of the error, with its unit. ``without_data`` : what a public point promises, nan for nothing.
    ``lower_bound`` : (epsilon, error) where a theorem says something. ``points`` : of a mechanism, measured errors as
    (epsilon, error)."""

    label: str
    lines: Sequence[Line]
    without_data: float = math.nan
    lower_bound: Sequence[tuple[float, float]] = ()
    points: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)


def error_against(
    values: Sequence[float],
    panels: Sequence[Panel],
    here: float,
    title: str,
    caption: str,
    ax: Any = None,
    along: str = "epsilon (vertical line: this plan)",
) -> Any:
    """Draw the panels (only the first on a given ``ax``); ``here`` : where the plan stands; ``along`` : the axis."""
    drawn = canvas(ax, panels=len(panels), instead="plan.table()")
    names = list(dict.fromkeys(line.name for panel in panels for line in panel.lines))
    for axes, panel in zip(drawn.axes, panels, strict=False):
        for line in sorted(panel.lines, key=lambda each: each.chosen):
            look = _look(names.index(line.name))
            label = f"{line.name} (chosen)" if line.chosen else line.name
            style = "-" if line.proved else "--"
            width, size = (2.6, 6) if line.chosen else (1.2, 4)
            axes.plot(values, line.values, style, label=label, lw=width, ms=size, **look)
        for name, measured in panel.points.items():
            look = {"color": _look(names.index(name))["color"] if name in names else "0.4"}
            x, y = ([pair[k] if pair[1] > 0 else math.nan for pair in measured] for k in (0, 1))
            axes.plot(x, y, "+", alpha=0.7, label=f"{name}, measured", **look)
        if math.isfinite(panel.without_data):
            axes.axhline(panel.without_data, color="0.45", ls=":", label="known without data")
        if panel.lower_bound:
            axes.plot(*zip(*panel.lower_bound, strict=True), color="black", lw=1.5, label="lower bound (worst program)")
        axes.axvline(here, color="0.8", lw=1, zorder=0)
        axes.set(xscale="log", yscale="log", xlabel=along, ylabel=panel.label)
        axes.set_xlim(min(values) / 1.2, max(values) * 1.2)
        if len(values) <= _TICKS:
            axes.set_xticks(values, [number(value) for value in values])
        else:
            _plain(axes.xaxis)
        axes.minorticks_off()
        _plain(axes.yaxis)
        axes.grid(alpha=0.2)
        axes.legend(fontsize="small")
    return drawn.told(title, caption)


def _plain(axis: Any) -> None:
    """Ticks at 1, 2 and 5, written as people write them."""
    ticker = importlib.import_module("matplotlib.ticker")
    axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: number(value)))


def _look(place: int) -> dict[str, str]:
    return {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[place % len(MARKERS)]}
