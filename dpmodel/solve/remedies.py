"""Statements that say no more than is known without data: what a plan says of them, and the warning before a solve."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpmodel.contract import Candidate, Model, Options
from dpmodel.errors import DPModelError, NoGuaranteeWarning
from dpmodel.forecast import Forecast
from dpmodel.text import number
from dpmodel.users_line import users_line

if TYPE_CHECKING:
    from dpmodel.solve.plan import Plan

_LOG = logging.getLogger("dpmodel")

# Epsilons are tried up to this many times the one asked for; then the least is found to a few percent.
_FACTOR, _STEPS, _HALVINGS = 4.0, 6, 4
_NO_EPSILON = "no epsilon up to"


def silent(model: Model, chosen: Candidate) -> bool:
    """Whether the statement of ``chosen`` says no more than is known without data."""
    return model.reads and chosen.forecast is not None and chosen.forecast.vacuous


def first_words(model: Model, options: Options, chosen: Candidate) -> str:
    """What to know first: nothing where the chosen statement says something, else that it does not."""
    assert chosen.forecast is not None
    if not silent(model, chosen):
        return model.unmet(options, chosen.forecast)
    if chosen.forecast.spends_nothing:
        return f"No guarantee beyond what is known without data: {chosen.mechanism} reads none and spends nothing"
    return f"No guarantee: {chosen.mechanism} promises no more than is known without data"


def warn_of_no_guarantee(plan: Plan) -> None:
    """Warn where ``plan`` has an answer (no guarantee, or not the one asked for); call it before charging. What would
    help takes more plans, so it is left to those who ask."""
    if plan.first:
        more = "; plan(...) with the same arguments tells what would help" if plan.helped else ""
        warnings.warn(plan.first + more, NoGuaranteeWarning, stacklevel=users_line())


def what_helps(
    model: Model,
    options: Options,
    asked: Sequence[tuple[str, Forecast | None, Callable[[float], Forecast | None]]],
) -> str:
    """What would make the statement say something, for the first of ``asked`` that anything helps, else for the first.

    ``asked`` : name of a mechanism, its forecast, and what forecasts it at another epsilon.
    """

    def one(name: str, now: Forecast | None, again: Callable[[float], Forecast | None]) -> str:
        now = again(options.epsilon) if now is None else now
        if now is None or now.spends_nothing:
            return _NO_EPSILON
        helps = what_would_help(name, now, options.epsilon, again, model.halvings)
        return f"{now.error.condition(options) if 'says something' in helps else ''}{helps}"

    texts = (one(*each) for each in asked)
    first = next(texts)
    found = first if _NO_EPSILON not in first else next((text for text in texts if _NO_EPSILON not in text), first)
    return f"; {found}"


def what_would_help(
    name: str, now: Forecast, epsilon: float, again: Callable[[float], Forecast | None], halvings: int = _HALVINGS
) -> str:
    """From which epsilon on the statement of mechanism ``name`` says something, found by forecasting it again.

    ``now`` : its forecast at ``epsilon``; ``again`` : its forecast at another one, None where it is not eligible;
    ``halvings`` : how often the interval in which the least epsilon lies is halved (0 where forecasts take long).
    """
    if not now.error.bounded:
        return "a public bound on the variables (bounds=, constraints) would help: without one nothing can be stated"
    records = now.error.records_needed()
    enough, found = _least(epsilon, again, halvings)
    if found is None:
        if records:
            return f"{records} would help"
        return f"{_NO_EPSILON} {number(epsilon * _FACTOR**_STEPS)} changes that"
    out = f"from epsilon {number(enough)} on {name} says something"
    if records:
        return f"{out}; at this one with {records}"
    ratio = _noise_ratio(now, found)
    if math.isfinite(ratio) and ratio > 1:
        times = number(float(f"{ratio:.2g}"))
        out += f"; at epsilon {number(epsilon)} it would if one record moved the private numbers {times} times less "
        out += f"(as in means over {times} times more records)"
    return out


def _least(epsilon: float, again: Callable[[float], Forecast | None], halvings: int) -> tuple[float, Forecast | None]:
    """The least epsilon (to a few percent, upper end) at which the statement says something, and the forecast there."""

    def telling(at: float) -> Forecast | None:
        try:
            forecast = again(at)
        except (DPModelError, ArithmeticError) as error:
            _LOG.debug("no forecast at epsilon %g: %s", at, type(error).__name__)
            return None
        return forecast if forecast is not None and not forecast.vacuous else None

    low, high, found = epsilon, epsilon, None
    for _ in range(_STEPS):
        low, high = high, high * _FACTOR
        found = telling(high)
        if found is not None:
            break
    if found is None:
        return math.inf, None
    for _ in range(halvings):
        middle = float(f"{math.sqrt(low * high):.2g}")
        if not low < middle < high:
            break
        better = telling(middle)
        low, high, found = (low, middle, better) if better is not None else (middle, high, found)
    rounded = math.ceil(high * 10 ** (1 - math.floor(math.log10(high)))) / 10 ** (1 - math.floor(math.log10(high)))
    return rounded, found


def _noise_ratio(now: Forecast, then: Forecast) -> float:
    """How many times smaller the noise is in ``then``: as much less may one record move the numbers instead."""
    before, after = (_noises(forecast.noise) for forecast in (now, then))
    ratios = [before[name] / after[name] for name in before if after.get(name, 0.0) > 0]
    return max(ratios, default=math.nan)


def _noises(noise: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: float(part["largest_noise"])
        for name, part in noise.items()
        if isinstance(part, Mapping) and "largest_noise" in part
    }
