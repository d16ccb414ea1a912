"""Settling a choice that no statement settles: mechanisms that leave rows out, tried on synthetic databases."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dpmodel.contract import Candidate, Options
from dpmodel.forecast import Forecast, Violation
from dpmodel.programs.fewer_records import fewer_records
from dpmodel.programs.model import Program
from dpmodel.programs.simulation import DATABASES, against_public, databases_that_tell
from dpmodel.text import number

# Numbers read in all runs of one mechanism: beyond the first one database has to do, beyond the second none.
_FEW, _MOST = 1e9, 2e10
# Shares that differ by less are compared to the end: six digits count as equal, and a run adds to the error.
_WORSE = 1.01
# Where one does so many times worse than the public point, noise hides the data: others, which read the same numbers on
# the same budget and take longer, are not tried. A guess: where two were compared, they lay six times apart at most.
_HOPELESS = 20.0


def settled(
    model: Program,
    options: Options,
    compared: Sequence[Any],
    candidates: Sequence[Candidate],
    best: Candidate | None,
) -> list[Candidate]:
    """``candidates`` with ``against_public`` of those that leave rows out, where statements do not settle the choice.
    Public facts only.

    Two cases. No statement of a mechanism that reads data says anything, and none of the others is predicted to beat
    the public point, which misses something. Or ``best``, the choice by statements, leaves rows out itself: what its
    proof allows (rows left out, times all that one of them can be violated by) is far more than what happens, with it
    and with the others, and who proves most is not who does best. With slack rows or alpha asked for, statements are
    what was asked for.
    """
    readers = [c.forecast for c in candidates if c.forecast is not None and not c.forecast.spends_nothing]
    silent = all(forecast.vacuous for forecast in readers)
    if silent and any(forecast.error.helps for forecast in readers):
        return list(candidates)
    if best is not None and best.forecast is not None and best.forecast.unbeatable:
        return list(candidates)
    first = None if best is None else best.forecast
    if not silent and not (first is not None and first.error.contested(first, options)):
        return list(candidates)
    most = _MOST if silent else _FEW
    public = any(c.forecast is not None and c.forecast.spends_nothing for c in candidates)
    algorithms = {each.name: each for each in compared}
    tried: list[tuple[float, Candidate, Violation]] = []
    for candidate in candidates:
        forecast = candidate.forecast
        if forecast is not None and isinstance(forecast.error, Violation) and forecast.error.slack_rows > 0:
            work = _work(model, forecast)
            if work <= most and (silent or not forecast.vacuous):
                tried.append((work, candidate, forecast.error))
    if not silent and len(tried) <= 1:
        return list(candidates)
    found: dict[str, float] = {}
    # What is worse than the public point, or than another that leaves rows out, is not chosen.
    rivals = [1.0] if silent and public else []
    hopeless: set[str] = set()
    failed: dict[str, Candidate] = {}
    for work, candidate, error in sorted(tried, key=lambda each: each[0]):
        name, algorithm = candidate.mechanism, algorithms[candidate.mechanism]
        if silent and public and found and min(found.values()) > _HOPELESS:
            hopeless.add(name)
            continue
        count = databases_that_tell(model) if work * DATABASES <= _FEW else 1
        try:
            share = against_public(algorithm, model, options, count, _WORSE * min(rivals, default=math.inf))
        except Exception as problem:
            failed[name] = Candidate.failed(algorithm, problem)
            continue
        found[name] = share
        rivals += [] if error.exact else [share]
    candidates = [failed.get(candidate.mechanism, candidate) for candidate in candidates]
    if not found:
        return list(candidates)
    shares = ", ".join(f"{name} {number(float(f'{share:.3g}'))}" for name, share in found.items())
    words = (
        "no statement decides here: mechanisms that leave constraints out were compared on synthetic databases, drawn "
        "from public facts (ranges, norms, number of rows), while they could still be best; error as a share of the "
        f"best public point's: {shares}"
    )
    if not silent and best is not None:
        words += f"; the best statement is that of {best.mechanism} (feasibility=AllBut(...) asks for statements)"

    def told(candidate: Candidate) -> Candidate:
        forecast = candidate.forecast
        if candidate.mechanism in hopeless:
            name, share = min(found.items(), key=lambda each: each[1])
            why = f"not simulated, because {name} does {number(share)} times worse than the public point"
            return replace(candidate, forecast=None, code="behind", reason=why)
        if candidate.mechanism not in found or forecast is None or not isinstance(forecast.error, Violation):
            return candidate
        error, caveats = replace(forecast.error, against_public=found[candidate.mechanism]), (*forecast.caveats, words)
        return replace(candidate, forecast=replace(forecast, error=error, caveats=caveats))

    return [told(candidate) for candidate in candidates]


def _work(model: Program, forecast: Forecast) -> float:
    """Numbers that a run reads, about."""
    noise = forecast.noise
    way = noise.get("objective treated by", {})
    runs = way.get("runs", 1) if isinstance(way, Mapping) else 1
    steps = noise.get("steps", noise.get("candidates", 1))
    few = fewer_records(model)
    form = model.form if few is None else few.form
    size = form.matrix.nnz + form.A0.nnz
    return float(runs * steps * size) if math.isfinite(steps) else math.inf
