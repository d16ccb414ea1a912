"""What an answer is expected to cost above the optimum: the bootstrap's estimate, from released numbers alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dpmodel._types import Floats
from dpmodel.contract import Options
from dpmodel.privacy import public_generator
from dpmodel.programs.model import Program
from dpmodel.programs.noise_design import NoiseDesign
from dpmodel.programs.optimum import Released, cost_at, value_at
from dpmodel.requests import Prices

# Seeds of the draws: any constant but those that tests use for noise on private numbers.
_SEED = 31_000


def bootstrap_regret(
    model: Program,
    design: NoiseDesign,
    options: Options,
    released: Released,
    prices: Prices | None,
    solve: Callable[[Released], Floats | None],
    draws: int = 4,
) -> float:
    """An estimate, no bound, of ``E J(x) - V``: what an answer costs above the optimum at the prices.

    The released numbers are taken for the true ones, and noise of the same law is added to them again: it is public and
    seeded, for nothing here is private. ``solve`` answers from the sums (None: no answer), and the mean of ``J(x) - V``
    over ``draws`` of it is the estimate. J(x) is the cost of x with shortages at their prices, V the least J. nan where
    there is no answer, inf where rows without a price leave no point.
    """
    best, found = value_at(model, options, released, prices), []
    for draw in range(draws):
        x = solve(_noised(design, released, draw))
        if x is not None:
            found.append(cost_at(model, released, prices, x) - best)
    return float(np.mean(found)) if found else math.nan


def _noised(design: NoiseDesign, released: Released, draw: int) -> Released:
    """``released`` with noise of the design's law on every part."""
    generator = public_generator(_SEED + draw)
    parts = dict(zip(("objective", "scalar", "matrix"), released, strict=True))
    out: dict[str, Any] = dict(parts)
    for group in design.numbers:
        lead = design.parts[group[0]]
        if lead.distribution is None:
            continue
        noise = lead.distribution.sample((lead.measurement.count,), generator)
        for name in group:
            numbers, m = parts[name], design.parts[name].measurement
            if numbers is not None:
                place: Any = slice(None) if name == "matrix" else m.positions
                out[name] = numbers.copy()
                out[name][place] += m.recover @ noise
    return out["objective"], out["scalar"], out["matrix"]
