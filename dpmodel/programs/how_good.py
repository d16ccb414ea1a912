"""How good an answer was, from released numbers alone: an interval for the true optimum (proof: ``optimum.py``), and
the bootstrap's estimate of what the answer costs above it. Post-processing: nothing more is spent."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dpmodel._types import Floats
from dpmodel.contract import Options
from dpmodel.errors import SpecificationError, UnsupportedModelError
from dpmodel.marks.measured import Measured
from dpmodel.privacy import PublicGenerator, public_generator
from dpmodel.programs.answer import design_of
from dpmodel.programs.model import Program
from dpmodel.programs.noise_design import NoiseDesign
from dpmodel.programs.noise_once import LAPLACE_ONCE, rebuilt
from dpmodel.programs.optimum import cost_at, optimum, value_at
from dpmodel.programs.priced import can_price, shortage
from dpmodel.programs.prices import usual_prices
from dpmodel.programs.public import level
from dpmodel.release import Interval
from dpmodel.requests import Priced, Prices

# Seed of the draws: any constant but those that tests use for noise on private numbers.
_SEED = 31_000
# Draws, as many as entries and numbers of the program allow; values that stand for a stratum of the law.
_FEWEST, _MOST, _WORK, _IN_STRATUM = 4, 16, 2000, 500


def interval_of(
    model: Program,
    options: Options,
    measured: tuple[Measured, ...],
    coins: PublicGenerator | None = None,
    looked: bool = False,
) -> Interval:
    """The interval for the true optimum of ``model`` under the numbers that a release ``measured``.

    Prices are ``options.prices``; else those of the service level at the public level of the private parameters; else
    those at the released numbers. These depend on the noise, as given ones may where somebody ``looked`` at the numbers
    before, and a program other than the one that the numbers were measured for: so only box is left of the forms. Its
    event is about the noise alone, and holds for all prices at once.
    Errors: SpecificationError, where a private number of ``model`` was not measured.
    """
    design, numbers = design_of(model, options, measured)
    released, at = rebuilt(model, design, numbers, raw=True), level(model)
    prices = usual_prices(model, options, *released)
    looked = looked or any(part.draws for part in design.parts.values())
    public, numbers_at = options.prices is not None or at is not None, None if at is None else at.numbers
    box_only = looked or not public
    return optimum(model, design, options, *released, prices, level=numbers_at, coins=coins, box_only=box_only)


def compared(
    model: Program, measured: tuple[Measured, ...], beta: float, prices: Prices | None
) -> dict[str, dict[str, Any]]:
    """The rows of ``Release.compare``; see there. In the sense of the user's objective, but for the regret."""
    sign, expected = (-1.0, "expected value") if model.affine.maximize else (1.0, "expected cost")
    found: dict[str, dict[str, Any]] = {}
    words: tuple[Any, ...] = ("centred", Priced(), "safe", "relaxed")
    for word in words if model.form.private_rows.any() else words[:1]:  # all the same where no row is private
        with contextlib.suppress(SpecificationError, UnsupportedModelError):
            _, options = model.check(Options(measured[0].epsilon, measured[0].delta, beta, word))
            options = replace(options, prices=prices)
            design, numbers = design_of(model, options, measured)
            released, outcome = rebuilt(model, design, numbers, raw=True), model.answer(measured, options)[1]
            row: dict[str, Any] = dict.fromkeys((expected, "objective", "rows short", "of", "short in all", "regret"))
            if outcome.x is not None and outcome.value is not None:
                value, told = outcome.value + (outcome.constant or 0.0), outcome.expected
                missed = 0.0
                if can_price(model).eligible:
                    at = usual_prices(model, options, *released)
                    missed = shortage(model, design, at, outcome.x, *released[1:]).cost(at)
                again = bootstrap_of(model, options, measured)
                facts = (sign * (value + missed + again.rosy), sign * value)
                row = dict(
                    zip(row, (*facts, *(told.get(n) for n in ("short", "rows", "shortage")), again.regret), strict=True)
                )
            found[options.feasibility] = {**row, "status": outcome.status}
    return found


class Bootstrap(NamedTuple):
    """Estimates, no bounds: ``regret``, of ``E J(x) - V``, what an answer costs above the optimum at the prices; and
    ``rosy``, by how much it costs more than the released costs say, 0 where costs are public."""

    regret: float
    rosy: float


def bootstrap_of(model: Program, options: Options, measured: tuple[Measured, ...]) -> Bootstrap:
    """The bootstrap of the answer that ``options`` ask for. As many draws as small programs allow, by public sizes."""
    design, numbers = design_of(model, options, measured)
    prices = usual_prices(model, options, *rebuilt(model, design, numbers, raw=True))
    treated = model.treated(options, LAPLACE_ONCE.forecast_of(model, options, design))
    form = model.form
    size = form.A0.nnz + form.matrix.nnz + form.b0.size + form.c0.size
    draws = int(np.clip(_WORK // max(size, 1), _FEWEST, _MOST))

    def solve(again: Mapping[str, Floats]) -> Floats | None:
        return LAPLACE_ONCE.answer(model, treated, design, again).x

    return bootstrap(model, design, options, numbers, prices, solve, draws)


def bootstrap(
    model: Program,
    design: NoiseDesign,
    options: Options,
    numbers: Mapping[str, Floats],
    prices: Prices | None,
    solve: Callable[[Mapping[str, Floats]], Floats | None],
    draws: int,
) -> Bootstrap:
    """The released ``numbers`` (part -> (k,)) are taken for the true ones, and noise of the same law is added to them
    again: it is public and seeded, for nothing here is private. ``solve`` answers from the sums (None: no answer).

    The regret is the mean of ``J(x) - V`` over ``draws`` of it: J(x) is the cost of x with shortages at their prices, V
    the least J. nan where there is no answer, inf where rows without a price leave no point. ``rosy`` is the mean of
    ``(c - c~)'x``: x is optimal for the noised costs c~, so it leans on those that noise made low. Released costs lie
    further apart than the true ones, so where noise is as large as what tells costs apart, both are somewhat too small.

    The draws are a Latin hypercube, so that few of them tell the mean of what adds up over the numbers: in each draw
    every number has a value of another of ``draws`` equally likely strata of the law, independently of other numbers,
    and the places in their strata are spread evenly over the numbers.
    """
    released, regrets, rosy = rebuilt(model, design, numbers, raw=True), [], []
    costs = rebuilt(model, design, numbers)[0]
    best, generator = value_at(model, options, released, prices), public_generator(_SEED)
    noise: dict[str, Floats] = {}
    for group in design.numbers:
        distribution, count = design.parts[group[0]].distribution, numbers[group[0]].size
        if distribution is not None:
            strata = np.sort(distribution.sample((draws * _IN_STRATUM,), generator)).reshape(draws, _IN_STRATUM)
            order = generator.permuted(np.tile(np.arange(draws)[:, None], count), axis=0)
            place = (generator.permutation(count) + 0.5) * _IN_STRATUM / max(count, 1)
            noise |= dict.fromkeys(group, strata[order, place.astype(np.int64)])
    for draw in range(draws):
        again = {name: values + noise[name][draw] if name in noise else values for name, values in numbers.items()}
        x = solve(again)
        if x is not None:
            regrets.append(cost_at(model, released, prices, x) - best)
            noised = rebuilt(model, design, again)[0]
            rosy.append(0.0 if costs is None or noised is None else float((costs - noised) @ x))
    if not regrets:
        return Bootstrap(math.nan, 0.0 if costs is None else math.nan)
    return Bootstrap(float(np.mean(regrets)), float(np.mean(rosy)))
