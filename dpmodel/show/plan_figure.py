"""The figure of a plan: its forecasts against epsilon, the number of records, or the sensitivity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpmodel.contract import Candidate
from dpmodel.errors import SpecificationError
from dpmodel.figures import Line, Panel, error_against, require_matplotlib
from dpmodel.forecast import Expected, Forecast
from dpmodel.solve.plan import Simulated, checked_epsilons
from dpmodel.text import number

if TYPE_CHECKING:
    from dpmodel.solve.plan import Plan


# What the columns of forecasts are, in words for an axis; others are told by their own names.
_MOST = 4  # constraints that a caption names
_FINE = 100  # epsilons of a lower bound's line
_MISSED, _EXPECTED = "private constraint missed by, at most", "expected cost beyond the best"
_UNITS = {
    "objective within": "objective lost, at most",
    "violation within": _MISSED,
    "tightened by": "right-hand sides tightened by, at most",
    "excess risk": "objective lost, predicted mean",
    "at most": "objective lost, proved at most",
}

AGAINST = ("epsilon", "records", "sensitivity")
_AXES = {
    "epsilon": "epsilon (vertical line: this plan)",
    "records": "number of records (vertical line: this plan)",
    "sensitivity": "sensitivity, as a multiple of the declared one (vertical line)",
}
_NAMES = {"epsilon": "epsilons", "records": "numbers of records", "sensitivity": "multiples of the sensitivity"}


def picture(plan: Plan, values: Any, against: str, simulated: Simulated | None, ax: Any) -> Any:
    """``Plan.plot``."""
    require_matplotlib("plan.table()")
    _check(plan, against, simulated)
    if not plan.options.epsilon > 0:
        raise SpecificationError("plot: this plan costs no privacy", why="nothing in it depends on epsilon")
    if plan._forecaster is None:
        if values is not None or against != "epsilon":
            raise SpecificationError(
                "plot: forecasts at other epsilons need the problem",
                why="this plan was copied or read back, and holds no model",
                remedy="problem.plan(...).plot(epsilons), or plot() for its own epsilon",
            )
        here = plan.options.epsilon
        at: dict[float, Sequence[Candidate]] = {here: plan.candidates}
        least: dict[float, Mapping[str, float]] = {}
    else:
        here = plan._forecaster.here(against)
        chosen = checked_epsilons(values, here, _NAMES[against])
        at = {each: plan._forecaster.at(against, each).candidates() for each in chosen}
        fine = np.geomspace(min(at), max(at), _FINE).tolist() if against == "epsilon" else chosen
        elsewhere = {each: plan._forecaster.at(against, each) for each in fine}
        least = {each: there.model.least(there.options) for each, there in elsewhere.items()}
    assert plan.chosen.forecast is not None
    panels = [
        panel
        for column in plan.chosen.forecast.error.drawn(True)
        if (panel := _panel(plan, at, least, column, simulated)) is not None
    ]
    panels = _of_treatments(plan, at, against, panels)
    if not panels:
        raise SpecificationError(
            f"plot: no forecast at these {_NAMES[against]} says more than is known without data",
            why=plan.answer or "; ".join(plan._expected) or "every error that is stated is 0",
            remedy="larger epsilons; print(plan) says what would help",
        )
    left = [panel.label for panel in panels[1:]] if ax is not None else []
    title = f"{plan._title}: forecasts"
    return error_against(list(at), panels, here, title, _caption(plan, at, panels, left), ax, _AXES[against])


def _check(plan: Plan, against: str, simulated: Simulated | None) -> None:
    if against not in AGAINST:
        raise SpecificationError(f"plot: against={against!r}", remedy=" or ".join(map(repr, AGAINST)))
    if against == "epsilon":
        return
    if plan._forecaster is not None and against not in plan._forecaster.model.varies:
        others = " or ".join(repr(each) for each in ("epsilon", *plan._forecaster.model.varies))
        raise SpecificationError(
            f"plot: this plan has no forecasts at other {_NAMES[against]}",
            why=_WHY[against],
            remedy=f"against={others}",
        )
    if simulated is not None:
        raise SpecificationError("plot: simulated runs are drawn against epsilon", remedy="leave simulated= out")


_WHY = {
    "records": "how private numbers of a program come of its records is not known, and exact systems and several "
    "outputs are planned for the records they have",
    "sensitivity": "in a regression it follows from the bounds and the number of records, and where a record may move "
    "numbers arbitrarily far there is none to scale",
}


def _of_treatments(
    plan: Plan, at: Mapping[float, Sequence[Candidate]], against: str, panels: Sequence[Panel]
) -> list[Panel]:
    """The panels, what is missed first, with what the chosen mechanism is expected to cost under each treatment, where
    a public level tells, and beside its own proved violation that under the others. First is what the choice says."""
    panels = sorted(panels, key=lambda panel: panel.label != _MISSED)
    name, own = plan.chosen.mechanism, plan.options.feasibility
    found = [next((c.forecast for c in candidates if c.mechanism == name), None) for candidates in at.values()]
    expected = [{} if each is None else each.expected for each in found]
    modes: list[Any] = list(dict.fromkeys(mode for each in expected for mode in each))
    if not modes:
        return list(panels)
    nothing = Expected(math.nan, math.nan, math.nan, math.nan)
    lines = [Line(m, tuple(each.get(m, nothing).cost for each in expected), False, m == own) for m in modes]
    lines = [line for line in lines if any(value > 0 for value in line.values)]
    others, forecaster = [], plan._forecaster
    for mode in modes:
        if forecaster is None or mode == own:
            continue
        there = [forecaster.at(against, value) for value in at]
        said = [
            replace(each, options=replace(each.options, feasibility=mode)).candidate(name).forecast for each in there
        ]
        missed = tuple(_error(forecast, "violation within") for forecast in said)
        others += [Line(mode, missed, True)] if any(value == value for value in missed) else []
    if others and panels and panels[0].label == _MISSED:
        panels[0] = replace(panels[0], lines=[*panels[0].lines, *others])
    elif others:
        panels = [Panel(_MISSED, others), *panels]
    if not lines:
        return list(panels)
    told = Panel(_EXPECTED, lines)
    return [*panels, told] if any(line.chosen for panel in panels for line in panel.lines) else [told, *panels]


def _panel(
    plan: Plan,
    at: Mapping[float, Sequence[Candidate]],
    least: Mapping[float, Mapping[str, float]],
    column: str,
    simulated: Simulated | None,
) -> Panel | None:
    """The figure of one column; None where no mechanism says anything in it."""
    lines, without = [], math.nan
    for name in dict.fromkeys(each.mechanism for candidates in at.values() for each in candidates):
        found = [next((c.forecast for c in candidates if c.mechanism == name), None) for candidates in at.values()]
        said = tuple(_error(forecast, column) for forecast in found)
        told = [forecast for forecast in found if forecast is not None]
        if told and told[0].spends_nothing:
            value = told[0].error.drawn(told[0].proved)[column]
            without = value if math.isfinite(value) and value > 0 else without
        elif any(value == value for value in said):
            proved = all(f is None or f.proved for f, value in zip(found, said, strict=True) if value == value)
            proved = proved and column not in told[0].error.predictions
            lines.append(Line(name, said, proved, name == plan.chosen.mechanism))
    if not lines:
        return None
    bounds = [(epsilon, found[column]) for epsilon, found in least.items() if column in found]
    points = {} if simulated is None else simulated.points(column)
    return Panel(_UNITS.get(column, column), lines, without, bounds, points)


def _error(forecast: Forecast | None, column: str) -> float:
    """What can be drawn of a forecast on a logarithmic axis: nan where it says nothing."""
    if forecast is None or forecast.vacuous or forecast.spends_nothing:
        return math.nan
    value = forecast.error.drawn(forecast.proved)[column]
    return value if math.isfinite(value) and value > 0 else math.nan


def _caption(plan: Plan, at: Mapping[float, Sequence[Candidate]], panels: Sequence[Panel], left: Sequence[str]) -> str:
    drawn = {line.name for panel in panels for line in panel.lines}
    told = []
    if any(panel.label == _EXPECTED for panel in panels):
        drawn.add(plan.chosen.mechanism)
        told.append(
            f"Centred, safe, relaxed, priced: {plan.chosen.mechanism} under each treatment. Expected cost: shortages "
            "at their prices, in the objective's units, an estimate at the public level of the private numbers."
        )
    told += [
        "What each mechanism says of its error, where that is more than is known without data. Solid: proved, except "
        f"with probability {number(plan.options.beta)}; dashed: predicted."
    ]
    cells = () if plan._forecaster is None else plan._forecaster.cells
    labels = list(dict.fromkeys(label for cell in cells if cell.part != "objective" for label in cell.where))
    where = [*labels[:_MOST], *(["..."] if len(labels) > _MOST else [])]
    told += [f"Private constraints, each in its own unit: {', '.join(where)}."] if where else []
    if any(panel.lower_bound for panel in panels):
        told.append(
            "Black: no private mechanism errs less on the worst program of this cell, which need not be this one."
        )
    elif plan.lower_bounds and plan._forecaster is not None:
        told.append("Lower bounds are in plan.table(): rates without constants, or in another unit than the axes.")
    if any(panel.points for panel in panels):
        told.append("Crosses: runs on synthetic databases drawn from the declared ranges.")
        hidden = sum(value <= 0 for panel in panels for pairs in panel.points.values() for _, value in pairs)
        told += [f"{hidden} runs without any error are below the axis."] if hidden else []
    everything = [c for candidates in at.values() for c in candidates]
    none = sorted({c.mechanism for c in everything if _exact(c)})
    told += [f"An error of 0 is below the axis: {', '.join(none)}."] if none else []
    silent = sorted({c.mechanism for c in everything if c.eligible and not _free(c)} - drawn - set(none))
    why = "they say nothing here" if plan._forecaster is not None else "they say nothing here, or were not forecast"
    told += [f"Not drawn, because {why}: {', '.join(silent)}."] if silent else []
    if plan._forecaster is None:
        told.append("Other epsilons need the problem, which this copy of its plan does not hold.")
    told += [f"Not on this axes: {', '.join(left)}."] if left else []
    return " ".join(told)


def _exact(candidate: Candidate) -> bool:
    """Whether it says of some error that it is 0."""
    forecast = candidate.forecast
    if forecast is None or forecast.vacuous or forecast.spends_nothing:
        return False
    return 0.0 in forecast.error.drawn(forecast.proved).values()


def _free(candidate: Candidate) -> bool:
    return candidate.forecast is not None and candidate.forecast.spends_nothing
