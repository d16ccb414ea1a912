"""What to change to do better, computed: the chosen mechanism's forecast with more budget, less sensitivity, more
records, parts public, or more constraints left out. Public facts only; nothing is spent."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dpmodel.contract import Candidate
from dpmodel.errors import DPModelError
from dpmodel.forecast import Forecast, Violation
from dpmodel.plan.shown import error_words
from dpmodel.text import number

if TYPE_CHECKING:
    from dpmodel.plan.comparison import Plan

_LOG = logging.getLogger("dpmodel")


def changes(plan: Plan) -> tuple[dict[str, Any], ...]:
    """``change`` in words and the ``error`` that the chosen mechanism forecasts then; changes that bring nothing, or of
    which nothing is known, are left out."""
    now = plan.chosen.forecast
    if plan.anew is None or now is None or not plan.chosen.reads:
        return ()
    before = error_words(now)
    out = []
    for change, then in _tried(plan):
        told = "" if then is None or then.vacuous else error_words(replace(then, error=_without_traces(then, now)))
        if told not in ("", before):
            out.append({"change": change, "error": told})
    return tuple(out)


def _without_traces(then: Forecast, now: Forecast) -> Any:
    """Its error with 0 for what is as good as gone."""
    if not isinstance(then.error, Violation) or not isinstance(now.error, Violation):
        return then.error
    objective, violation = (
        0.0 if new < _TRACE * old else new
        for new, old in ((then.error.objective, now.error.objective), (then.error.violation, now.error.violation))
    )
    return replace(then.error, objective=objective, violation=violation)


def _tried(plan: Plan) -> Iterator[tuple[str, Forecast | None]]:
    anew, name, epsilon = plan.anew, plan.chosen.mechanism, plan.options.epsilon
    assert anew is not None
    yield f"twice the epsilon, {number(2 * epsilon)}", _forecast(lambda: anew.of(name, 2 * epsilon))
    if "records" in anew.varies:
        yield "twice the records", _forecast(lambda: anew.varied("records", 2.0, name))
    if "sensitivity" in anew.varies:
        half = "half the sensitivity (as of means over twice the records)"
        yield half, _forecast(lambda: anew.varied("sensitivity", 0.5, name))
        if len(anew.private) > 1:
            for part in anew.private:
                yield f"{part} public", _forecast(lambda part=part: anew.varied("sensitivity", _GONE, name, part))
    rows = _rows_that_halve(plan)
    if rows is not None:
        yield rows


_GONE = 1e-12  # of the declared sensitivity: as good as none
_TRACE = 1e-6  # of an error


def _rows_that_halve(plan: Plan) -> tuple[str, Forecast] | None:
    """How many constraints have to be left out for the others to be violated by half as much."""
    now = plan.chosen.forecast
    assert now is not None and plan.anew is not None
    if not isinstance(now.error, Violation) or not now.error.slack_rows > 0 or not now.error.violation > 0:
        return None
    rows = now.error.slack_rows
    while rows < now.error.private_rows:
        rows = min(2 * rows, now.error.private_rows)
        options = replace(plan.options, slack_rows=rows, violation=None)
        then = _forecast(lambda options=options: plan.anew.at_options(options, plan.chosen.mechanism))
        if then is not None and isinstance(then.error, Violation) and then.error.violation <= now.error.violation / 2:
            return f"{then.error.slack_rows} constraints left out instead of {now.error.slack_rows}", then
    return None


def _forecast(found: Any) -> Forecast | None:
    try:
        candidate: Candidate = found()
    except (DPModelError, ArithmeticError) as error:
        _LOG.debug("no forecast of a change: %s", type(error).__name__)
        return None
    return candidate.forecast
