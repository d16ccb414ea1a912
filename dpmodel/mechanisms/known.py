"""What is known without data, and the one place where a statement is held against it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dpmodel.mechanisms.forecast import ExcessRisk, Forecast, RowsMissed, Seconds, Violation, says_nothing

# Bounds from solvers are widened by one part in a million, so equal within two is equal.
_EQUAL = 2e-6
# What a few simulated populations cannot tell from luck: a smaller gain is none, at any budget. Near break-even a
# prediction moves by 3.6 % (median) when populations are drawn anew: squared, absolute and logistic loss, six budgets
# each, five draws. Of 13 plans predicted to gain 1 to 5 %, 4 gained nothing by the other draws, all of them 1.7 % on
# average, for the whole budget; test_public_only.py draws anew.
_LUCK = 0.05


@dataclass(frozen=True)
class Known:
    """What every database that the declarations allow leaves true of points that read none of it. All public.

    ``objective`` : no public point loses more than this; ``violation`` : nor violates a private constraint by more.
    ``points`` : (loss, violation) that single public points keep. ``tightening`` : how far right-hand sides lie apart
    between the best and the worst data. ``predicted`` : regressions: mean excess risk of the best public point on the
    simulated populations. ``missed`` : exact systems: rows that an answer found without data misses; ``records`` : how
    many there are, where statements hold from some number on. inf (``records``: nan) where nothing is known.
    """

    objective: float = math.inf
    violation: float = math.inf
    points: tuple[tuple[float, float], ...] = ()
    tightening: float = math.inf
    predicted: float = math.inf
    missed: float = math.inf
    records: float = math.nan


def capped(forecast: Forecast, known: Known) -> Forecast:
    """``forecast`` with its bounds cut to what is ``known``, and ``vacuous`` where it says no more than that."""
    error, vacuous = _held_against(forecast, known)
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


def missing_something(forecast: Forecast) -> Forecast:
    """``forecast``, of a point that reads no data, as one of a point that loses or violates something."""
    return replace(forecast, vacuous=True)


def _held_against(forecast: Forecast, known: Known) -> tuple[Violation | ExcessRisk | RowsMissed | Seconds, bool]:
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


def stated(error: Violation, largest: float) -> tuple[float, float, float]:
    """What a statement leaves open: loss, violation with the rows that are left out, and the ``largest`` violation that
    is known or stated."""
    width = largest if math.isnan(error.width) else min(error.width, largest)
    left_out = error.slack_rows / max(error.private_rows, 1)
    allowed = error.violation if math.isnan(error.alone) else error.alone
    allowed = 0.0 if math.isnan(allowed) else allowed
    allowed += width * left_out if left_out and (math.isfinite(width) or left_out >= 1) else 0.0
    return 0.0 if math.isnan(error.objective) else error.objective, allowed, width


def _violation(error: Violation, known: Known) -> tuple[Violation, bool]:
    """A statement says nothing if some public point keeps all of it. What is left out of ``alpha`` counts with the
    largest violation there can be, where that is known: where it is not, a public point keeps the statement only if it
    keeps ``alpha`` in every row, unless all rows are left out. A loss that is not stated counts as none ("at least as
    good as the optimum"), but for tightened constraints, whose statement is how far right-hand sides move.
    """
    loss, allowed, width = stated(error, known.violation)
    if not math.isnan(error.tightening):
        lost = math.isnan(error.objective) or _reached(known.objective, loss)
        vacuous = _reached(known.tightening, error.tightening) and lost
    else:
        points = ((known.objective, width), *((a, min(v, width)) for a, v in known.points))
        vacuous = any(_reached(a, loss) and _reached(v, allowed) for a, v in points)
    if error.objective > known.objective or error.violation > width:
        error = replace(
            error,
            objective=min(error.objective, known.objective),  # nan stays nan
            violation=min(error.violation, width),
        )
    return error, vacuous


def _reached(known: float, stated: float) -> bool:
    """Whether what is ``known`` is at most what is ``stated``."""
    return known <= stated + _EQUAL * abs(stated)
