"""What is known without data, and the one place where a statement is held against it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain

from dpmodel.forecast import AnyError, ExcessRisk, Forecast, RowsMissed, Violation


def says_nothing(statement: str) -> str:
    """``statement``, marked as vacuous."""
    return f"no guarantee at this size and budget ({statement}, which says nothing)"


# Bounds from solvers are widened by one part in a million each, so values within two parts are equal.
_EQUAL = 2e-6
# A smaller predicted gain counts as none: a few simulated populations cannot tell it from luck. Near break-even a
# prediction moves by 3.6 % (median) when populations are drawn anew: squared, absolute and logistic loss, six budgets
# each, five draws. Of 13 plans predicted to gain 1 to 5 %, 4 gained nothing by the other draws, all of them 1.7 % on
# average, for the whole budget; test_public_only.py draws anew.
_LUCK = 0.05


@dataclass(frozen=True)
class Known:
    """What points chosen without data achieve on every database that the declarations allow. All public.

    ``objective``, ``violation`` : no public point loses more, nor violates a private constraint by more. ``points`` :
    bounds (loss, violation) of single public points, found one by one. ``tightening`` : how far right-hand sides differ
    between the best and the worst data. ``predicted`` : regressions: mean excess risk of the best
    public point on the simulated populations. ``missed`` : exact systems: rows that an answer found without data
    misses; ``records`` : how many there are, where statements hold from some number on. inf (``records``: nan) where
    there is no bound.
    """

    objective: float = math.inf
    violation: float = math.inf
    points: Iterable[tuple[float, float]] = ()
    tightening: float = math.inf
    predicted: float = math.inf
    missed: float = math.inf
    records: float = math.nan


def capped(forecast: Forecast, known: Known) -> Forecast:
    """``forecast`` with its bounds cut to what is ``known``, and ``vacuous`` where it is no better than that."""
    error, vacuous = _compared(forecast, known)
    if forecast.spends_nothing:
        vacuous = forecast.error.alpha > 0 or not forecast.proved
    newly = vacuous and not forecast.vacuous and not forecast.spends_nothing
    if error is forecast.error and (forecast.vacuous or not vacuous):
        return forecast
    return replace(
        forecast,
        error=error,
        vacuous=vacuous or forecast.vacuous,
        statement=says_nothing(forecast.statement) if newly else forecast.statement,
    )


def _compared(forecast: Forecast, known: Known) -> tuple[AnyError, bool]:
    error = forecast.error
    if isinstance(error, ExcessRisk):
        bounds = math.isfinite(error.at_most) or not math.isfinite(error.predicted)
        cut = replace(error, at_most=min(error.at_most, known.objective)) if bounds else error
        return cut, not error.predicted < (1 - _LUCK) * known.predicted
    if isinstance(error, RowsMissed):
        return error, error.missed >= known.missed or error.needed >= known.records + 1
    if isinstance(error, Violation):
        return _violation(error, known)
    return error, False


def _allowances(error: Violation, largest: float) -> tuple[float, float, float]:
    """What a statement allows: the loss, the mean violation with rows left out, and the largest one of these rows."""
    width = largest if math.isnan(error.width) else min(error.width, largest)
    left_out = error.slack_rows / max(error.private_rows, 1)
    allowed = error.violation if math.isnan(error.alone) else error.alone
    allowed = 0.0 if math.isnan(allowed) else allowed
    allowed += width * left_out if left_out and (math.isfinite(width) or left_out >= 1) else 0.0
    return 0.0 if math.isnan(error.objective) else error.objective, allowed, width


def _violation(error: Violation, known: Known) -> tuple[Violation, bool]:
    """The capped error, and whether a public point satisfies all of its statement, so that it is vacuous.

    Rows left out count with the largest possible violation. Without a bound on that they count as satisfied, unless all
    rows are left out. A loss without a bound counts as none, except where constraints are tightened: there the
    statement is how far right-hand sides move.
    """
    loss, allowed, width = _allowances(error, known.violation)
    if not math.isnan(error.tightening):
        lost = math.isnan(error.objective) or _at_most(known.objective, loss)
        vacuous = _at_most(known.tightening, error.tightening) and lost
    else:
        points = chain([(known.objective, width)], ((a, min(v, width)) for a, v in known.points))
        vacuous = any(_at_most(a, loss) and _at_most(v, allowed) for a, v in points)
    if error.objective > known.objective or error.violation > width:
        error = replace(
            error,
            objective=min(error.objective, known.objective),  # nan stays nan
            violation=min(error.violation, width),
        )
    return error, vacuous


def _at_most(value: float, bound: float) -> bool:
    """Whether ``value <= bound``, up to the solvers' tolerance."""
    return value <= bound + _EQUAL * abs(bound)
