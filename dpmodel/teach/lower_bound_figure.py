"""The lower bounds against epsilon: as a table with bars, and as a figure where matplotlib is installed."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpmodel.errors import SpecificationError
from dpmodel.figures import canvas, require_matplotlib
from dpmodel.programs.theorems import lower_bound
from dpmodel.teach.demonstration import Demonstration, Row
from dpmodel.text import TextTable, number

EPSILONS = (0.01, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0)
_SCALAR = "Theorem 36 (scalar)"
_SHARP = "Theorem 37 (objective), sharper"
_PRINTED = "Theorems 37, 38 (objective, column)"
_MARKERS = "osv^Dx*P"
_BAR = 24  # characters for the largest lower bound of a column


@dataclass(frozen=True)
class LowerBoundTable:
    """``columns`` : name of a bound -> its lower bounds at ``epsilons``, for changes of 1; see `Gadget.lower_bound`."""

    epsilons: tuple[float, ...]
    columns: dict[str, tuple[float, ...]]
    delta: float
    beta: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        columns = {name: list(values) for name, values in self.columns.items()}
        return {"epsilons": list(self.epsilons), "delta": self.delta, "beta": self.beta, "lower_bounds": columns}

    def _shown(self) -> dict[str, Any]:
        """Arguments of `table` and `html_table`."""
        largest = max(self.columns[_SHARP]) or 1.0
        bars = ["#" * math.ceil(_BAR * value / largest) for value in self.columns[_SHARP]]
        title = f"Least error of any private mechanism, delta {number(self.delta)}, beta {number(self.beta)}"
        heads = ("epsilon", *self.columns, "sharper, as bars")
        return {"columns": heads, "rows": zip(self.epsilons, *self.columns.values(), bars, strict=True), "title": title}

    def __str__(self) -> str:
        return str(TextTable(**self._shown()))

    def _repr_html_(self) -> str:
        return TextTable(**self._shown())._repr_html_()


def lower_bounds(epsilons: Iterable[float] = EPSILONS, delta: float = 0.0, beta: float = 0.05) -> LowerBoundTable:
    """The lower bounds of the gadgets at each epsilon, for changes of 1 (a change by B multiplies them by B).

    Theorem 36: violation of one constraint. Theorems 37 and 38: loss or violation divided by n; as printed, and in the
    sharper form of 37 (`Gadget.lower_bound`). 0 where nothing is proved.
    """
    wanted = tuple(float(epsilon) for epsilon in epsilons)
    if not wanted:
        raise SpecificationError("no epsilon", remedy="at least one number >= 0")
    objective = [lower_bound("objective", epsilon, delta, beta) for epsilon in wanted]
    columns = {
        _SCALAR: tuple(lower_bound("scalar", epsilon, delta, beta).value for epsilon in wanted),
        _SHARP: tuple(each.value for each in objective),
        _PRINTED: tuple(each.as_printed for each in objective),
    }
    return LowerBoundTable(wanted, columns, float(delta), float(beta))


def figure(
    demonstration: Demonstration | None = None,
    *,
    epsilons: Iterable[float] | None = None,
    delta: float | None = None,
    beta: float | None = None,
    file: str | os.PathLike[str] | None = None,
) -> Any:
    """Draw the lower bound against epsilon, one panel per theorem, with the errors of a demonstration as points.

    Parameters
    ----------
    demonstration : of `demonstrate`; gives delta and beta.
    epsilons : where to draw the lower bounds, > 0; by default 200 values from 0.01 to 10.
    delta, beta : without a demonstration; by default 0 and .05.
    file : save the figure here; the suffix gives the format.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    MissingExtraError
        Without matplotlib; ``lower_bounds`` prints the same numbers.
    SpecificationError
        For values out of range, or delta or beta that contradict the demonstration.
    """
    instead = "gadgets.lower_bounds(), which prints the same numbers"
    require_matplotlib(instead)
    if demonstration is not None:
        for name, mine, its in (("delta", delta, demonstration.delta), ("beta", beta, demonstration.beta)):
            if mine is not None and mine != its:
                raise SpecificationError(f"{name}={mine}, and {its} in the demonstration", remedy=f"leave {name} out")
        delta, beta = demonstration.delta, demonstration.beta
    delta, beta = 0.0 if delta is None else delta, 0.05 if beta is None else beta
    lines = lower_bounds(np.geomspace(0.01, 10.0, 200) if epsilons is None else epsilons, delta, beta)
    if min(lines.epsilons) <= 0:
        raise SpecificationError("an epsilon that is not above 0", why="its axis is logarithmic", remedy="epsilon > 0")
    made = canvas(panels=3, size=(5.0, 5.0), instead=instead)
    drawn = made.figure
    for axes, (part, title) in zip(made.axes, _PANELS.items(), strict=True):
        rows = [] if demonstration is None else [row for row in demonstration.rows if row.part == part]
        _lower_bound_lines(axes, part, lines, sharp=not rows or rows[0].sharp)
        highest = 0.5 if part == "scalar" else 0.25
        highest = max(highest, _points(axes, rows))
        axes.set(xscale="log", xlabel="epsilon", title=title, ylabel=_UNITS[part])
        axes.set_xlim(min(lines.epsilons), max(lines.epsilons) * 1.001)  # one epsilon alone is a range too
        axes.set_ylim(0, 1.1 * highest)
        axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)
    drawn.suptitle(
        f"No private mechanism has the {number(100 * (1 - beta))}% quantile of its error in the grey area "
        f"(delta {number(delta)}, changes of 1)"
    )
    if file is not None:
        drawn.savefig(file, dpi=150)
    return drawn


_PANELS = {
    "scalar": "Theorem 36: right-hand sides",
    "objective": "Theorem 37: objective",
    "column": "Theorem 38: columns",
}
_UNITS = {"scalar": "violation of one constraint", "objective": "loss / n", "column": "violation / n"}


def _lower_bound_lines(axes: Any, part: str, lines: LowerBoundTable, *, sharp: bool) -> None:
    main = {"scalar": _SCALAR, "objective": _SHARP, "column": _PRINTED}[part]
    name = "lower bound, sharper form" if part == "objective" else "lower bound"
    grey = main if sharp or part != "objective" else _PRINTED  # the lower bound of the gadget that was attacked
    axes.fill_between(lines.epsilons, _alive(lines.columns[grey]), color="0.88")
    axes.plot(lines.epsilons, _alive(lines.columns[main]), color="black", label=name)
    if part == "objective":
        axes.plot(
            lines.epsilons, _alive(lines.columns[_PRINTED]), color="black", ls="--", label="lower bound, as printed"
        )
        answers = [0.5 / (1 + math.exp(min(epsilon, 700.0))) for epsilon in lines.epsilons]
        axes.plot(lines.epsilons, answers, color="black", ls=":", label="randomised response, n large")


def _alive(values: tuple[float, ...]) -> list[float]:
    """NaN, which draws nothing, for a lower bound of 0, which says nothing."""
    return [value if value > 0 else math.nan for value in values]


def _points(axes: Any, rows: Sequence[Row]) -> float:
    """Draw the errors of private mechanisms; returns the largest."""
    private = [row for row in rows if row.epsilon is not None]
    for place, who in enumerate(dict.fromkeys(row.who for row in private)):
        mine = [row for row in private if row.who == who]
        where = [row.epsilon for row in mine], [row.error for row in mine]
        axes.plot(*where, ls="", marker=_MARKERS[place % len(_MARKERS)], fillstyle="none", label=who)
    return max((row.error for row in private), default=0.0)
