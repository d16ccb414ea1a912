"""A plan in some lines, and one mechanism of it in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpmodel.contract import Candidate
from dpmodel.errors import SpecificationError
from dpmodel.forecast import Forecast, Violation
from dpmodel.text import number, wrapped

if TYPE_CHECKING:
    from dpmodel.plan.comparison import Plan

# Lines of a printed plan, and how many of them may go to remarks on the chosen mechanism.
MOST_LINES = 16


def short_text(plan: Plan) -> str:
    """The answer first: the choice, what it says, what it does to the constraints; then what else there is."""
    chosen = plan.chosen
    assert chosen.forecast is not None
    head = [wrapped(plan.answer)] if plan.answer else []
    head.append(wrapped(f"{plan.title}: {chosen.mechanism}"))
    head += [wrapped(line, "  ") for line in (*chosen.forecast.rows, *plan.cells[:2])]
    head.append(wrapped(chosen.forecast.statement, "  "))
    head.append(wrapped(f"{_spends(chosen.forecast)}; {chosen.forecast.work}", "  "))
    if plan.protects and chosen.reads:
        head.append(wrapped(f"protects: {plan.protects}", "  "))
    tail, second = [], _candidate(plan, plan.runner_up)
    if second is not None and second.forecast is not None:
        told = "says nothing here" if second.forecast.vacuous else error_words(second.forecast)
        tail.append(wrapped(f"runner-up: {second.mechanism}, {told}"))
    tail += [wrapped(f"better: {plan.better}")] if plan.better else []
    tail += [wrapped(f"{c.mechanism} {c.reason}") for c in plan.candidates if c.code == "failed"]
    others = [c for c in plan.candidates if c not in (chosen, second)]
    count = f"{len(others)} other{'s' * (len(others) > 1)}"
    more = f"{count}: print(plan.table())" if others else "print(plan.table()) has all"
    if others:
        more += f", plan.why({others[0].mechanism!r})"
    tail.append(wrapped(more))
    remarks: list[str] = []
    for line in (*plan.split(), *chosen.forecast.caveats):
        told = wrapped(line, "  ")
        if _lines([*head, *remarks, told, *tail]) > MOST_LINES:
            break
        remarks.append(told)
    return "\n".join([*head, *remarks, *tail])


def why_text(plan: Plan, mechanism: str) -> str:
    """``Plan.why``."""
    candidate = _candidate(plan, mechanism)
    if candidate is None:
        names = ", ".join(c.mechanism for c in plan.candidates)
        raise SpecificationError(f"the plan has no mechanism {mechanism!r}", remedy=f"one of {names}")
    forecast, winner = candidate.forecast, plan.chosen.forecast
    assert winner is not None
    lines = [f"{candidate.mechanism} ({candidate.source}): {'chosen' if candidate is plan.chosen else 'not chosen'}"]
    if forecast is None:
        lines.append(candidate.reason)
    else:
        lines += [forecast.statement, f"{_spends(forecast)}; {forecast.work}", *forecast.rows, *forecast.caveats]
        if candidate is not plan.chosen:
            words, others = error_words(forecast, average=True), error_words(winner, average=True)
            lines.append(f"{words}; {plan.chosen.mechanism}: {others}")
    first, *rest = lines
    return "\n".join([wrapped(first), *(wrapped(line, "  ") for line in rest)])


def error_words(forecast: Forecast, average: bool = False) -> str:
    """Its error in the columns of its kind, what plans compare besides, and how many constraints are left out. As in
    the statement, in brackets: the violation where only the true numbers leave a point."""
    error = forecast.error
    told = zip(error.columns, error.cells(forecast.proved), strict=True)
    parts = [f"{name} {value}" for name, value in told if value != "-"]
    if isinstance(error, Violation):
        if error.alone < error.violation:
            parts[-1] = f"{error.columns[-1]} {number(error.alone)} ({number(error.violation)})"
        # Plans compare by the average, which may be the smaller one where the bound is the larger one.
        parts += [f"{number(error.expected)} on average"] if average and error.expected > 0 else []
        parts += [f"tightened by {number(error.tightening)}"] if error.tightening > 0 else []
        parts += [f"{error.slack_rows} constraints left out"] if error.slack_rows else []
    words = ", ".join(parts)
    return f"says nothing here ({words})" if forecast.vacuous else words


def _spends(forecast: Forecast) -> str:
    if forecast.spends_nothing:
        return "spends nothing"
    return f"spends epsilon {number(forecast.epsilon)}, delta {number(forecast.delta)}"


def _candidate(plan: Plan, mechanism: str) -> Candidate | None:
    return next((each for each in plan.candidates if each.mechanism == mechanism), None)


def _lines(parts: list[str]) -> int:
    return sum(part.count("\n") + 1 for part in parts)
