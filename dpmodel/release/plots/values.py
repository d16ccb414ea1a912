"""Released numbers, with intervals where somebody knows them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpmodel._types import Floats, Labels
from dpmodel.errors import SpecificationError
from dpmodel.release.plots.canvas import COLOURS, canvas
from dpmodel.text import shortened

_MOST = 60  # numbers one by one
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

    Raises
    ------
    SpecificationError
        For intervals of another shape.
    """
    flat, count = np.asarray(numbers, dtype=float).ravel(), int(np.size(numbers))
    drawn = canvas(ax, size=(7.0, max(2.8, 1.8 + 0.26 * min(count, _NAMED)) if count <= _NAMED else 4.6))
    axes = drawn.axes[0]
    places = np.arange(count)
    # Few numbers lie beside their names; many stand in a row.
    beside = count <= _NAMED
    if intervals is not None:
        low, high = (np.asarray(end, dtype=float).ravel() for end in intervals)
        if not low.size == high.size == count:
            raise SpecificationError(f"intervals for {low.size} numbers, and there are {count}")
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
        axes.plot(places, flat, "." if count > _MOST else "o", color=COLOURS[0], ms=4)
        axes.axhline(0, color="0.8", lw=1, zorder=0)
        axes.set(xlabel="entry, in the order of the array", ylabel="released value")
    return drawn.told(title, caption)
