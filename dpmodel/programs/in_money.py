"""Mechanisms compared in one unit, money: what their answers cost at prices, on public guesses of the private numbers.

Noise once has a closed form of its expected cost (``priced.expected_cost``). Others have statements in other units, so
they run on databases that are drawn around the public level, with the same draws for all. Nothing private is read.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpmodel._types import Floats, PrivateArray
from dpmodel.contract import Candidate, Options
from dpmodel.forecast import Violation
from dpmodel.memo import cached
from dpmodel.privacy import public_generator
from dpmodel.programs.model import Program
from dpmodel.programs.optimum import cost_at, value_at
from dpmodel.programs.prices import usual_prices
from dpmodel.programs.public import level
from dpmodel.programs.simulation import drawn_databases, synthetic_over, work_of
from dpmodel.requests import Prices
from dpmodel.simulate import runs_on
from dpmodel.text import number

_LOG = logging.getLogger("dpmodel")
# Databases: with two, unlike draws of the noise decided which treatment came first.
_GUESSES = 6
# How far a guess of the level is off, and its entries among each other, as shares of it.
_LEVEL, _SHAPE = 0.15, 0.3
# Numbers read in all runs of one mechanism.
_MOST = 1e9


def compared_in_money(
    model: Program, options: Options, compared: Sequence[Any], candidates: Sequence[Candidate], best: Candidate | None
) -> list[Candidate]:
    """``candidates``, with the simulated cost of the choice by statements and of the best that has a closed form, where
    both are of different kinds and a public level is known."""
    first = best.forecast if best is not None else None
    requested = (options.violation, options.slack_rows) != (None, None) or options.by_proof or options.goal != "auto"
    if best is None or first is None or requested or first.spends_nothing or not model.affine.is_linear():
        return list(candidates)
    error, costs = first.error, _costs(candidates)
    if not isinstance(error, Violation) or error.exact or math.isfinite(error.cost) or not costs:
        return list(candidates)
    at = level(model)
    if at is None or work_of(model, first) * _GUESSES > _MOST:
        return list(candidates)
    prices = usual_prices(model, options, *at.numbers)
    algorithms = {each.name: each for each in compared}
    found: dict[str, float] = {}
    for name in (best.mechanism, min(costs, key=lambda each: costs[each])):
        try:
            found[name] = _cost(model, options, algorithms[name], prices)
        except Exception as problem:  # its statement stands
            _LOG.warning("%s failed on synthetic databases", name, exc_info=problem)
            return list(candidates)
    words = f"compared by what answers cost, on {_GUESSES} databases drawn around the public level: " + ", ".join(
        f"{name} {number(float(f'{cost:.3g}'))} above the optimum" for name, cost in found.items()
    )

    def told(candidate: Candidate) -> Candidate:
        forecast, cost = candidate.forecast, found.get(candidate.mechanism)
        if cost is None or forecast is None or not isinstance(forecast.error, Violation):
            return candidate
        priced = replace(forecast, error=replace(forecast.error, cost=cost), caveats=(*forecast.caveats, words))
        return replace(candidate, forecast=priced)

    return [told(candidate) for candidate in candidates]


def _cost(model: Program, options: Options, algorithm: Any, prices: Prices) -> float:
    """Mean over the guesses of what the answer costs above the optimum at these prices; inf without answers."""
    made = [synthetic_over(model, theta) for theta in guesses(model)]
    excess = []
    for theta, (_, outcome) in zip(guesses(model), runs_on(algorithm, made, options), strict=True):
        if outcome.x is not None:
            numbers = _numbers(model, theta)
            excess.append(cost_at(model, numbers, prices, outcome.x) - value_at(model, options, numbers, prices))
    return float(np.mean(excess)) if excess else math.inf


def _costs(candidates: Sequence[Candidate]) -> dict[str, float]:
    pairs = ((each.mechanism, each.forecast.error) for each in candidates if each.forecast is not None)
    return {n: e.cost for n, e in pairs if isinstance(e, Violation) and math.isfinite(e.cost)}


def _numbers(model: Program, theta: Floats) -> tuple[Floats, Floats, Floats | None]:
    form = model.form
    c, b, entries = (each.apply(theta) for each in (form.objective, form.scalar, form.matrix.compact()))
    return c, b, entries if form.matrix.nnz else None


@cached
def guesses(model: Program) -> list[PrivateArray]:
    """(P,) private numbers of each of ``_GUESSES`` databases: around ``Private(typical=)`` where it was given, else as
    drawn from declared ranges."""
    rng, out = public_generator(1), drawn_databases(model, _GUESSES)
    for theta in out:
        for block in model.affine.private_blocks:
            typical = block.parameter.typical
            if typical is not None:
                off = math.exp(_LEVEL * rng.standard_normal()) * rng.uniform(1 - _SHAPE, 1 + _SHAPE, block.size)
                theta[block.columns] = np.clip(typical * off, *block.parameter.entry_range)
    return out
