"""What pricing the noise costs beyond the optimum, beside centred rows, wrong prices, default prices and no prior.

Models of ``tests/benchmarks/regret``, whose prices are charged. ``price / 3`` and ``3 price`` : the program is told a
wrong one. ``service`` : it is told none, and makes its own for .9 of the multipliers of the released numbers.
``flat`` : no prior is learnt; with ``--prior``, on models with single numbers in rows, the two alone. Mean excess of
the true penalised cost over its optimum, in per cent of it, and what the prior changes in standard errors.

    python -m tests.benchmarks.programs.priced_rows [--size medium] [--runs 8] [--models transport flow] [--prior]
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from dpmodel.contract import Options
from dpmodel.numerics.cone_program import ConeProgram
from dpmodel.privacy import SeededSource
from dpmodel.programs import prices as pricing
from dpmodel.programs.feasibility import relaxed_program, solve_released
from dpmodel.programs.model import Program
from dpmodel.programs.noise_design import design_noise
from dpmodel.programs.noise_once import measure, rebuilt
from dpmodel.programs.options import _prices
from dpmodel.programs.priced import solve_priced
from dpmodel.requests import Prices
from tests.benchmarks.measuring import header, parser
from tests.benchmarks.regret.models import MODELS, Case

BUDGETS, DELTA = (0.5, 1.0, 2.0), 1e-6
TOLD = (
    *("transport", "transport_tight", "flow", "storage", "inventory", "reservoir", "beds", "facility", "staffing"),
    *("diet", "packing", "outreach"),
)
SPREAD = ("transport", "newsvendor", "zones", "beds", "facility", "capped_rows")


def answers(case: Case, model: Program, prices: Prices, epsilon: float, seed: int, prior: bool) -> Iterator[Any]:
    """Names and answers, all from one release."""
    options = Options(epsilon, DELTA)
    design = design_noise(model, options, dict.fromkeys(model.private_parts(), "laplace"))
    numbers = measure(model, design, SeededSource(seed))
    raw = rebuilt(model, design, numbers, raw=True)

    def at(told: Prices | None) -> Any:
        return solve_priced(model, replace(options, feasibility="priced", prices=told), design, *raw).x

    yield "priced", at(prices)
    with mock.patch.object(pricing, "_fitted", lambda *given: None):
        yield "flat", at(prices)
    if prior:
        return
    centred: ConeProgram = relaxed_program(model, *rebuilt(model, design, numbers), np.zeros(model.affine.rows))
    yield "centred", solve_released(model, options, centred).x
    yield "price / 3", at(Prices(prices.above / 3, prices.below / 3))
    yield "3 price", at(Prices(prices.above * 3, prices.below * 3))
    yield "service", at(None)


def excess(case: Case, epsilon: float, runs: int, prior: bool) -> dict[str, np.ndarray]:
    """(runs,) for each answer, in per cent."""
    model = Program.of(case.problem)
    prices = _prices(case.problem, model, dict(case.prices))
    theta, form = np.asarray(model.read_private()), model.form
    parts = (part.apply(theta) for part in (form.objective, form.scalar, form.matrix.compact()))
    c, b, A = form.with_noise(*(part if part.size else None for part in parts))
    found: dict[str, list[float]] = {}
    for seed in range(runs):
        for name, x in answers(case, model, prices, epsilon, seed, prior):
            gap = A @ x - b
            cost = c @ x + form.d0 + prices.above @ np.maximum(gap, 0) + prices.below @ np.maximum(-gap, 0)
            found.setdefault(name, []).append(100 * (cost - case.best) / abs(case.best))
    return {name: np.array(each) for name, each in found.items()}


def main() -> int:
    given = parser(__doc__, models=[""], size="medium", runs=8, prior=False).parse_args()
    warnings.simplefilter("ignore")
    header()
    names = list(filter(None, given.models))
    for name in names or (SPREAD if given.prior else TOLD):
        for epsilon in BUDGETS:
            found = excess(MODELS[name](0, given.size), epsilon, given.runs, given.prior)
            told = [f"{each} {costs.mean():7.2f}" for each, costs in found.items()]
            gain = found["priced"] - found["flat"]
            error = float(gain.std(ddof=1)) / np.sqrt(gain.size)
            told.append(f"learnt / flat {found['priced'].mean() / found['flat'].mean():.3f}")
            told.append(f"({gain.mean() / error if error > 0 else 0.0:+.1f} standard errors)")
            print(f"{name:16} {epsilon:4g}  {'  '.join(told)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
