"""How far a release moved each private constraint, and by how much a true one may be missed."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from dpmodel.release.plots.canvas import COLOURS, canvas
from dpmodel.text import number, shortened


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
