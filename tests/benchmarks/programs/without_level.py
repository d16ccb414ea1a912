"""Priced by themselves or as released, without a price and a public level: which of the two costs less?

Models: those of the zoo whose private rows can have a price, with noise once. True prices, which nobody is told: k
times the multiplier of each row at the true numbers (the median where it does not bind), times a lognormal factor of
deviation 0.4; a surplus of an equality costs a third. Printed for each k is the mean cost of priced rows over that of
rows as released, with the same noise: geometric mean, 10 and 90 per cent and worst, and the models above 1.03.

    python -m tests.benchmarks.programs.without_level [--size small] [--runs 3] [--budgets 0.5 1 2] [--factors 3 10 30]
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from dpmodel._types import Floats, PrivateArray
from dpmodel.contract import Options
from dpmodel.errors import DPModelError
from dpmodel.privacy import SeededSource
from dpmodel.programs.model import Program
from dpmodel.programs.noise_once import GAUSSIAN_ONCE, LAPLACE_ONCE
from dpmodel.programs.optimum import cost_at, value_at
from dpmodel.programs.priced import can_price
from dpmodel.programs.prices import multipliers, priced_rows
from dpmodel.programs.public import level
from dpmodel.requests import Prices
from tests.benchmarks.measuring import Table, header, parser
from tests.zoo.test_zoo import MODELS, SIZES

ONCE = {each.name: each for each in (LAPLACE_ONCE, GAUSSIAN_ONCE)}
Numbers = tuple[Floats, Floats, Floats | None]
# Name of a model, kind of its private rows and whether it has a public level; factor, budget, ratio.
Line = tuple[str, str, float, float, float]


def true_numbers(model: Program) -> Numbers:
    theta, form = PrivateArray(model.read_private()), model.form
    c, b, A = (each.apply(theta) for each in (form.objective, form.scalar, form.matrix.compact()))
    return c, b, A if form.matrix.nnz else None


def true_prices(model: Program, numbers: Numbers, factor: float) -> Prices | None:
    """None where no private row binds."""
    dual, rows, equal = multipliers(model, Options(1.0), numbers).dual, priced_rows(model), model.affine.equalities()
    size = np.where(rows, 0.0 if dual is None else np.abs(dual), 0.0)
    if dual is None or not size.any():
        return None
    binds = size > 1e-9 * size.max()
    factors = factor * np.exp(0.4 * np.random.default_rng(5).standard_normal(rows.size))
    short = factors * np.where(rows & ~binds, np.median(size[binds]), size)
    above = ~equal | (dual > 0)
    return Prices(np.where(above, short, short / 3), np.where(rows & equal, np.where(above, short / 3, short), 0.0))


def compared(name: str, size: str, budgets: Sequence[float], factors: Sequence[float], runs: int) -> Iterator[Line]:
    problem = next(each for each in MODELS if each.name == name).case(size).problem
    try:
        model = problem._model(None)
    except DPModelError:
        return
    if type(model) is not Program or not model.affine.is_linear() or not can_price(model).eligible:
        return
    numbers, equal = true_numbers(model), model.affine.equalities()[model.form.private_rows].any()
    kind = ("equalities" if equal else "inequalities") + ("" if level(model) is None else ", a level")
    for factor in factors:
        prices = true_prices(model, numbers, factor)
        if prices is None:
            return
        best = value_at(model, Options(1.0), numbers, prices)
        for epsilon in budgets:
            plan = problem.plan(epsilon, 1e-6)
            algorithm, costs = ONCE.get(plan.chosen.mechanism), []
            for treatment in ("centred", "priced"):
                options = replace(plan.options, feasibility=treatment)
                if algorithm is not None and algorithm.eligible(model, options).eligible:
                    points = (algorithm.run(model, options, SeededSource(seed)).x for seed in range(runs))
                    costs.append([np.nan if x is None else cost_at(model, numbers, prices, x) - best for x in points])
            if len(costs) == 2 and np.isfinite(costs).all():
                centred, priced = np.mean(costs, axis=1)
                yield name, kind, factor, epsilon, float((abs(best) + priced) / (abs(best) + centred))


def main() -> int:
    cli = parser(__doc__, size="small", runs=3, budgets=[0.5, 1.0, 2.0], factors=[3.0, 10.0, 30.0])
    given = cli.parse_args()
    warnings.simplefilter("ignore")
    header()
    lines: list[Line] = []
    for each in (model for model in MODELS if SIZES.index(given.size) < len(model.sizes)):
        lines += compared(each.name, given.size, given.budgets, given.factors, given.runs)
    table = Table(("private rows", 24), ("k", 4), ("cells", 5), ("mean", 6), ("10 %", 6), ("90 %", 6), ("worst", 6))
    for kind in sorted({line[1] for line in lines}):
        for factor in given.factors:
            mine = [line for line in lines if line[1:3] == (kind, factor)]
            ratios = np.array([line[-1] for line in mine])
            told = np.exp(np.log(ratios).mean()), *np.quantile(ratios, [0.1, 0.9]), ratios.max()
            beyond = dict.fromkeys(line[0] for line in mine if line[-1] > 1.03)
            table.row(kind, f"{factor:g}", ratios.size, *(f"{each:.3f}" for each in told), ", ".join(beyond))
    return 0


if __name__ == "__main__":
    sys.exit(main())
