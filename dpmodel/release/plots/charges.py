"""What a budget was spent on, charge after charge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpmodel.release.plots.canvas import COLOURS, canvas
from dpmodel.text import number, shortened

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
        axes.set(xlim=(0, total * 1.03), xlabel=f"{unit}, added up (line: the total, {number(total)})")
        axes.set_yticks(range(len(names)), names if k == 0 else [""] * len(names))
        axes.invert_yaxis()
    spent = [sum(entry[1:][k] for entry in entries) for k in (0, 1)]
    caption = (
        f"{len(entries)} charge{'s' * (len(entries) != 1)}, oldest on top; each bar starts where the one before ended. "
        f"Spent: epsilon {number(spent[0])}, delta {number(spent[1])}; left: epsilon {number(left[0])}, "
        f"delta {number(left[1])}."
    )
    return drawn.told("Privacy budget", caption)
