"""Figures: matplotlib where it is installed, a figure without a window, a caption, inline SVG; and what is drawn so."""

from __future__ import annotations

import importlib
import io
import itertools
import math
import os
import re
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpmodel._types import Floats, Labels
from dpmodel.errors import MissingExtraError, SpecificationError, install
from dpmodel.text import TextTable, escaped, number, shortened

# Colours that differ in lightness too (Okabe and Ito 2008).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5B5B00", "#000000")
MARKERS = "osv^Dx*P"
_CHARACTERS = 15  # of a caption, in an inch


def require_matplotlib(instead: str = "") -> None:
    """Raise `MissingExtraError` unless matplotlib can be imported; ``instead`` : what has the same numbers as text."""
    try:
        importlib.import_module("matplotlib.figure")
        return
    except ImportError:
        pass
    raise MissingExtraError(
        "figures need matplotlib, which is not installed",
        why="it is an optional extra",
        remedy=install("plot", instead),
    )


@dataclass(frozen=True)
class Canvas:
    """``figure`` with its ``axes``; ``own`` : whether it was made here, or the axes are somebody else's."""

    figure: Any
    axes: Sequence[Any]
    own: bool

    def told(self, title: str, caption: str) -> Any:
        """Write title and caption; returns the figure."""
        width = self.figure.get_size_inches()[0]
        if self.own:
            self.figure.suptitle(title)
            text = _filled(caption, int(width * _CHARACTERS))
            self.figure.supxlabel(text, x=0.02, ha="left", fontsize="small")
        else:
            axes = self.axes[0]
            share = axes.get_position().width
            text = _filled(caption, max(int(width * share * _CHARACTERS), 30))
            axes.set_title(title)
            axes.annotate(text, (0, 0), (0, -40), "axes fraction", "offset points", va="top", fontsize="small")
        return self.figure


def _filled(text: str, width: int) -> str:
    return textwrap.fill(text, width, break_on_hyphens=False)  # names of mechanisms have some


def canvas(ax: Any = None, *, panels: int = 1, size: tuple[float, float] = (7.0, 4.6), instead: str = "") -> Canvas:
    """A figure with ``panels`` axes side by side, or ``ax`` and its figure.
    Errors: MissingExtraError, SpecificationError, without matplotlib; for an ``ax`` that is none."""
    require_matplotlib(instead)
    if ax is None:
        figure = _picture()(figsize=(size[0] * (1 + 0.7 * (panels - 1)), size[1]), layout="constrained")
        return Canvas(figure, figure.subplots(1, panels, squeeze=False)[0].tolist(), own=True)
    if not hasattr(ax, "plot") or not hasattr(ax, "figure"):
        raise SpecificationError(f"ax of type {type(ax).__name__}", remedy="one matplotlib Axes, or leave it out")
    return Canvas(ax.figure, [ax], own=False)


@cache
def _picture() -> Any:
    """Figures that notebooks show without a backend; no state and no window."""

    def _repr_svg_(self: Any) -> str:
        return svg(self)

    return type("Picture", (importlib.import_module("matplotlib.figure").Figure,), {"_repr_svg_": _repr_svg_})


def is_figure(item: Any) -> bool:
    """Whether ``item`` is a figure or axes of matplotlib."""
    return hasattr(getattr(item, "figure", None) or item, "savefig")


def svg(figure: Any, prefix: str = "") -> str:
    """``figure`` as an ``<svg>`` element for a page: text stays text, nothing is loaded, the same figure gives the same
    text, and a screen reader says its title. ``prefix`` : before its ids, so that several fit one page."""
    figure = getattr(figure, "figure", None) or figure
    with importlib.import_module("matplotlib").rc_context({"svg.fonttype": "none", "svg.hashsalt": "dpmodel"}):
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    if prefix:
        text = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{prefix}-", text)
    told = (figure.get_suptitle() if hasattr(figure, "get_suptitle") else "") or "figure"
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(told, quote=True)}"', 1)


# ----------------------------------------------------------------------------------------------- charges of a budget
_MOST = 20  # bars; the oldest charges share one


def charges(
    entries: Sequence[tuple[str, float, float]], epsilon: float, delta: float, left: tuple[float, float], ax: Any = None
) -> Any:
    """``entries`` : (label, epsilon, delta), oldest first. ``epsilon``, ``delta`` : the total; ``left`` : of each."""
    shown = list(entries)
    if len(shown) > _MOST:
        old = shown[: len(shown) - _MOST + 1]
        lump = (f"{len(old)} earlier charges", sum(e for _, e, _ in old), sum(d for _, _, d in old))
        shown = [lump, *shown[len(old) :]]
    totals = [("epsilon", epsilon), ("delta", delta)] if delta > 0 else [("epsilon", epsilon)]
    drawn = canvas(ax, panels=len(totals), size=(7.0, max(2.6, 1.6 + 0.32 * (len(shown) + 1))), instead="print it")
    names = [*(shortened(label or "no label") for label, *_ in shown), "left"]
    for k, (axes, (unit, total)) in enumerate(zip(drawn.axes, totals, strict=False)):
        amounts = [entry[1:][k] for entry in shown]
        starts = [sum(amounts[:i]) for i in range(len(amounts) + 1)]
        for place, (start, amount) in enumerate(zip(starts, [*amounts, left[k]], strict=True)):
            last = place == len(amounts)
            axes.barh(place, amount, left=start, color="0.85" if last else COLOURS[k], height=0.7)
            # Inside a bar that is wide enough, else beside it, where there is room.
            wide, right = amount > 0.2 * total, start + amount > 0.6 * total
            where = start + amount / 2 if wide else start if right else start + amount
            away = 0 if wide else -4 if right else 4
            side = "center" if wide else "right" if right else "left"
            axes.annotate(
                number(amount), (where, place), (away, 0), textcoords="offset points", ha=side, va="center",
                fontsize="small", color="white" if wide and not last else "black",
            )  # fmt: skip
        axes.axvline(total, color="black", lw=1.5)
        axes.set(xlim=(0, total * 1.03), xlabel=f"{unit}, together (line: the total, {number(total)})")
        axes.set_yticks(range(len(names)), names if k == 0 else [""] * len(names))
        axes.invert_yaxis()
    spent = [sum(entry[1:][k] for entry in entries) for k in (0, 1)]
    caption = (
        f"{len(entries)} charge{'s' * (len(entries) != 1)}, oldest on top; each bar starts where the one before ended. "
        f"Spent: epsilon {number(spent[0])}, delta {number(spent[1])}; left: epsilon {number(left[0])}, "
        f"delta {number(left[1])}."
    )
    return drawn.told("Privacy budget", caption)


# ------------------------------------------------------------------------ errors against epsilon, a line a mechanism
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


# ------------------------------------------------------------------------------------ how far constraints were moved
def moved_constraints(
    moved: Mapping[str, tuple[float, float]],
    others: int,
    missed: float | None,
    binding: Collection[str],
    statement: str,
    ax: Any = None,
) -> Any:
    """``moved`` : label -> least and largest amount by which its rows were made easier (harder: below 0). ``others`` :
    constraints left out of it. ``missed`` : what the release states. ``binding`` : labels with a multiplier."""
    drawn = canvas(ax, size=(7.0, max(2.8, 2.0 + 0.36 * len(moved))), instead="print it")
    axes = drawn.axes[0]
    for place, (label, (least, most)) in enumerate(moved.items()):
        furthest = most if abs(most) >= abs(least) else least
        easier = furthest >= 0
        axes.barh(place, furthest, height=0.5, color=COLOURS[0 if easier else 1], gid=f"moved:{label}")
        if least != most:
            axes.plot([least, most], [place, place], "|-", color="black", lw=1.2)
        words = "as released" if furthest == 0 else f"{'easier' if easier else 'harder'} by {_range(least, most)}"
        axes.annotate(
            words,
            (max(furthest, most, 0.0), place),
            (5, 0),
            textcoords="offset points",
            va="center",
            fontsize="small",
            bbox={"facecolor": "white", "alpha": 0.75, "lw": 0, "pad": 1},
            zorder=5,
        )
    axes.axvline(0, color="black", lw=1.2)
    told = "0: the released numbers as they are."
    ends = [0.0, *(end for pair in moved.values() for end in pair)]
    if missed == 0:
        told += " No true constraint is missed (as the statement says)."
    elif missed is not None and math.isfinite(missed):
        axes.axvline(missed, color="0.35", ls="--", lw=1.2)
        told += f" Dashed: a true constraint is missed by at most this, {number(missed)} (as the statement says)."
        ends.append(missed)
    span = max(ends) - min(ends) or 1.0
    axes.set_xlim(min(ends) - 0.06 * span, max(ends) + 0.34 * span)
    names = [shortened(label) + (" *" if label in binding else "") for label in moved]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel("moved by, in the units of the constraint")
    if any(label in moved for label in binding):
        told += " *: binds at the released optimum."
    if others:
        told += f" {others} more constraint{'s' * (others != 1)} moved less, not drawn."
    return drawn.told("Private constraints, as released", f"{told} {statement}".strip())


def _range(least: float, most: float) -> str:
    low, high = sorted((abs(least), abs(most)))
    return number(high) if low == high else f"{number(low)} to {number(high)}"


# --------------------------------------------------------------------------------------------------- released values
_MOST_VALUES = 60  # numbers one by one
_NAMED = 24  # numbers with their names


def entry_names(numbers: Floats, labels: Labels) -> list[str]:
    """A name for each entry, from the categories of its axes (their places where an axis has none); empty for none."""
    shape = np.shape(numbers)
    if len(labels) != len(shape) or not any(categories for _, categories in labels):
        return []
    axes = [
        [str(c) for c in categories] or list(map(str, range(n)))
        for (_, categories), n in zip(labels, shape, strict=True)
    ]
    return [", ".join(name) for name in itertools.product(*axes)]


def released_values(
    numbers: Floats,
    names: Sequence[str],
    title: str,
    caption: str,
    intervals: tuple[Floats, Floats] | None = None,
    ax: Any = None,
) -> Any:
    """Draw ``numbers`` (any shape) as points; ``names`` : of all of them, or empty.
    Errors: SpecificationError, for intervals of another shape."""
    flat, count = np.asarray(numbers, dtype=float).ravel(), int(np.size(numbers))
    drawn = canvas(ax, size=(7.0, max(2.8, 1.8 + 0.26 * min(count, _NAMED)) if count <= _NAMED else 4.6))
    axes = drawn.axes[0]
    places = np.arange(count)
    # Few numbers lie beside their names; many stand in a row.
    beside = count <= _NAMED
    if intervals is not None:
        low, high = (np.asarray(end, dtype=float).ravel() for end in intervals)
        if not low.size == high.size == count:
            what = f"intervals for {low.size} numbers, and there are {count}"
            raise SpecificationError(what, remedy="(low, high), two arrays with an end for every number")
        draw = axes.hlines if beside else axes.vlines
        sides = [np.where(np.isfinite(end), end, np.nan) for end in (low, high)]
        draw(places, *sides, color=COLOURS[1], lw=3 if beside else 1, alpha=0.7)
        unbounded = int((~np.isfinite(low) | ~np.isfinite(high)).sum())
        caption += f" Bars: intervals{f' ({unbounded} unbounded, not drawn)' if unbounded else ''}."
    if beside:
        axes.plot(flat, places, "o", color=COLOURS[0])
        axes.axvline(0, color="0.8", lw=1, zorder=0)
        told = [shortened(name, 24) for name in names]
        axes.set_yticks(places, told or [f"[{k}]" for k in places])
        axes.set_ylim(count - 0.4, -0.6)
        axes.set_xlabel("released value")
    else:
        axes.plot(places, flat, "." if count > _MOST_VALUES else "o", color=COLOURS[0], ms=4)
        axes.axhline(0, color="0.8", lw=1, zorder=0)
        axes.set(xlabel="entry, in the order of the array", ylabel="released value")
    return drawn.told(title, caption)


# ------------------------------------------------------------------------------------------------------ private rows
def private_rows(
    names: Sequence[str],
    released: Floats,
    provided: Floats,
    band: tuple[Floats, Floats],
    title: str,
    caption: str,
    ax: Any = None,
) -> Any:
    """Each private row: the ``released`` number (m,), what the answer has there (``provided``), and where the true
    number lies (``band`` : low and high) by the law of the noise. ``names`` : of the rows."""
    count, low, high = released.size, *band
    beside = count <= _NAMED
    drawn = canvas(ax, size=(7.0, max(2.8, 1.8 + 0.26 * count) if beside else 4.6), instead="print it")
    axes, places = drawn.axes[0], np.arange(count)
    # Many rows stand in the order of their numbers, so that the bands are one.
    order = places if beside else np.argsort(released, kind="stable")
    (axes.hlines if beside else axes.vlines)(places, low[order], high[order], color="0.8", lw=6 if beside else 2)
    for values, marker, colour, label in (
        (released, "o", COLOURS[0], "released number"),
        (provided, "D", COLOURS[1], "what the answer has"),
    ):
        x, y = (values[order], places) if beside else (places, values[order])
        axes.plot(x, y, marker, color=colour, ms=5 if beside else 3, label=label, mfc="none" if marker == "D" else None)
    if beside:
        axes.set_yticks(places, [shortened(name, 24) for name in names])
        axes.set_ylim(count - 0.4, -0.6)
    else:
        axes.set(xlabel="private rows, in the order of their released numbers")
    axes.legend(fontsize="small")
    return drawn.told(title, caption)


# ------------------------------------------------------------------------------------------------- Table 1 as a grid
_FILL = {"yes": "#9ED5B5", "yes*": "#F3D98B", "no": "#EBA28C", "joint": "#9ED5B5"}
_MEANS = {
    "yes": "solvable",
    "yes*": "solvable, all but a few rows",
    "no": "impossible",
    "joint": "solvable jointly",
}
# Of a square, in characters of the small text.
_WIDE, _NAMES = 34, 3


class Square(NamedTuple):
    """One cell: its place, verdict ("yes", "yes*", "no" or "joint") and theorem."""

    part: str
    level: str
    verdict: str
    theorem: str


def taxonomy_grid(squares: Sequence[Square], lit: Mapping[tuple[str, str], Sequence[str]], ax: Any = None) -> Any:
    """``lit`` : (part, level) -> names of the private parameters in that cell; empty for the table itself."""
    drawn = canvas(ax, size=(7.0, 5.6), instead="print it")
    axes = drawn.axes[0]
    parts = list(dict.fromkeys(square.part for square in squares))
    levels = sorted({square.level for square in squares}, key=("low", "high").index)
    for square in squares:
        here = (square.part, square.level)
        x, y = levels.index(square.level), len(parts) - 1 - parts.index(square.part)
        names = list(lit.get(here, ()))
        strong = bool(names) or not lit
        edge = {"edgecolor": "black", "lw": 3, "zorder": 3} if names else {"edgecolor": "white", "lw": 2, "zorder": 2}
        axes.bar(
            x,
            0.94,
            0.96,
            y - 0.47,
            color=_FILL[square.verdict],
            alpha=1.0 if strong else 0.35,
            gid=":".join(here),
            **edge,
        )
        shade = "black" if strong else "0.35"
        axes.text(x, y + 0.26, _MEANS[square.verdict], ha="center", va="center", weight="bold", color=shade, zorder=4)
        axes.text(x, y + 0.03, square.theorem, ha="center", va="center", fontsize="small", color=shade, zorder=4)
        if names:
            told = ", ".join(names[:_NAMES]) + (f" and {len(names) - _NAMES} more" if len(names) > _NAMES else "")
            axes.text(
                x, y - 0.26, textwrap.fill(f"here: {told}", _WIDE), ha="center", va="center", fontsize="small", zorder=4
            )
    axes.set(xlim=(-0.5, len(levels) - 0.5), ylim=(-0.5, len(parts) - 0.5))
    axes.set_xticks(range(len(levels)), [f"{level} sensitivity" for level in levels])
    axes.set_yticks(range(len(parts)), parts[::-1])
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    caption = "Down: the part of the program that is private; across: whether one record moves it by a bounded amount."
    if lit:
        caption += " Framed: where this model stands, with its private parameters."
    return drawn.told("Private linear programs (HRRU14, Table 1)", caption)


# ------------------------------------------------------------------------------------------------------------ reports


_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;color:#1a1a1a;background:#fff;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2rem;border-bottom:1px solid #ccc}
.told{font-size:1.1rem;border-left:4px solid #0072B2;padding:.3rem 1rem;background:#f3f8fb}
section{overflow-x:auto}svg{max-width:100%;height:auto}caption{text-align:left}
"""


def report(release: Any, file: str | os.PathLike[str], more: Sequence[Any]) -> Path:
    """Write the page; ``more`` : objects with an HTML form, and figures, each with a part of its own.
    Errors: SpecificationError, for something in ``more`` that has no HTML form."""
    added = [_added(item, place) for place, item in enumerate(more)]
    title = escaped(release.title)
    parts = [
        f"<h1>{title}</h1>",
        f'<p class="told">{escaped(release.accuracy)}</p><p>{escaped(release.guarantee)}</p>',
        _part("Release", release._repr_html_()),
        _figures(release),
        _plan(release.plan),
        *added,
    ]
    page = (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><title>{title}</title>'
        f"<style>{_STYLE}</style></head>\n<body><main>\n{chr(10).join(parts)}\n</main></body></html>\n"
    )
    path = Path(file)
    path.write_text(page, encoding="utf-8")
    return path


def _part(title: str, content: str) -> str:
    return f"<section><h2>{escaped(title)}</h2>{content}</section>" if content else ""


def _figures(release: Any) -> str:
    """The figures of what the release holds, or what to install for them."""
    try:
        require_matplotlib()
    except MissingExtraError as error:
        return _part("Figures", f"<p>{escaped(f'{error.what}: {error.remedy}')}</p>")
    drawn = [release.plot_constraints()] if release.moved else []
    drawn += [release.plot_values(name) for name, array in release.variables.items() if array.size]
    return _part("Figures", "".join(svg(figure, f"f{place}") for place, figure in enumerate(drawn)))


def _plan(plan: Mapping[str, Any]) -> str:
    """The comparison, from the plain data that a release keeps of its plan."""
    candidates = plan.get("candidates", ())
    if not candidates:
        return ""
    rows = []
    for each in candidates:
        forecast = each["forecast"]
        chosen = "chosen" if each["mechanism"] == plan["chosen"] else ""
        words = each["reason"] if forecast is None else forecast["statement"]
        spends = (
            "-" if forecast is None else f"epsilon {number(forecast['epsilon'])}, delta {number(forecast['delta'])}"
        )
        rows.append((chosen, each["mechanism"], spends, words))
    table = TextTable(
        ("", "mechanism", "spends", "statement, or why not"), rows, footer=plan.get("lower_bounds", ())
    )._repr_html_()
    return _part("Mechanisms compared", table)


def _added(item: Any, place: int) -> str:
    if is_figure(item):
        return _part("Figure", svg(item, f"m{place}"))
    if not hasattr(item, "_repr_html_"):
        raise SpecificationError(
            f"report: {type(item).__name__} has no HTML form",
            remedy="figures, and objects that notebooks show: a plan, a classification, a budget",
        )
    return _part(type(item).__name__, item._repr_html_())
