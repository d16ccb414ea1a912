"""Statements that say no more than is known without data: what would make them say something."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dpmodel.contract import Candidate
from dpmodel.errors import DPModelError
from dpmodel.forecast import Forecast
from dpmodel.text import number

if TYPE_CHECKING:
    from dpmodel.solve.planner import Forecaster

_LOG = logging.getLogger("dpmodel")

# Epsilons are tried up to this many times the one asked for; then the least is found to a few percent.
_FACTOR, _STEPS, _HALVINGS = 4.0, 6, 4
_NO_EPSILON = "no epsilon up to"


def what_helps(forecaster: Forecaster, asked: Sequence[Candidate]) -> str:
    """What would make the statement say something, for the first of ``asked`` that anything helps, else for the
    first."""

    def one(each: Candidate) -> str:
        again = partial(forecaster.best_statement, each.mechanism)
        options = forecaster.options
        now = again(options.epsilon) if each.forecast is None else each.forecast
        if now is None or now.spends_nothing:
            return _NO_EPSILON
        helps = what_would_help(each.mechanism, now, options.epsilon, again, forecaster.model.halvings)
        return f"{now.error.condition(options) if 'says something' in helps else ''}{helps}"

    texts = map(one, asked)
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
