"""Table 1 as a grid: parts down, levels across, the cells of a model lit."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dpmodel.release.plots.canvas import canvas

_FILL = {"yes": "#9ED5B5", "yes*": "#F3D98B", "no": "#EBA28C"}
_MEANS = {"yes": "solvable", "yes*": "solvable, all but a few rows", "no": "impossible"}
# Of a square, in characters of the small text.
_WIDE, _NAMES = 34, 3


class Square(NamedTuple):
    """One cell: its place, verdict ("yes", "yes*" or "no") and theorem."""

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
