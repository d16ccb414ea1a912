"""Running sums of a private demand: what entries, inputs and the factor that plans take cost, by treatment.

    python -m tests.benchmarks.programs.strategies [seeds]

Per cent by which the true cost, with a price for every unit that is short at the end of a period, exceeds the best that
it can be. Gaussian noise, epsilon 1, delta 1e-6; the mean over seeds. Demands and costs are drawn; nothing is tuned.
"""

from __future__ import annotations

import sys
from unittest.mock import patch

import cvxpy as cp
import numpy as np

import dpmodel as dpm
from dpmodel.programs import noise_design

EPSILON, DELTA, PRICE, HOLDING = 1.0, 1e-6, 30.0, 0.5
TREATMENTS = ("centred", "relaxed", "safe")


def inventory(periods: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Costs of a unit in each period, the most that can be made, and demands."""
    rng = np.random.default_rng(seed)
    demand = np.round(300 * (1 + 0.4 * np.sin(2 * np.pi * np.arange(periods) / 52)) * rng.uniform(0.8, 1.2, periods))
    return rng.uniform(8, 12, periods), np.full(periods, 450.0), demand


def cost(make: cp.Expression, unit: np.ndarray, demand: np.ndarray) -> cp.Expression:
    """With every unit that is left or short at the end of a period."""
    left = cp.cumsum(make) - np.cumsum(demand)
    return unit @ make + HOLDING * cp.sum(cp.cumsum(make)) + PRICE * cp.sum(cp.pos(-left))


def excess(periods: int, strategy: str, treatment: str, seed: int) -> float:
    """Per cent of the least cost."""
    unit, most, true = inventory(periods, seed)
    best = cp.Variable(periods, nonneg=True)
    least = cp.Problem(cp.Minimize(cost(best, unit, true)), [best <= most]).solve(solver=cp.HIGHS)
    make = cp.Variable(periods, nonneg=True)
    demand = dpm.Private(true, name="demand", unit="entry", linf=1.0)
    rows = [make <= most, cp.cumsum(make) >= cp.cumsum(demand)]
    problem = dpm.Problem(cp.Minimize(unit @ make + HOLDING * cp.sum(cp.cumsum(make))), rows)
    real = noise_design.choices

    def one(*given: object) -> object:
        return tuple(each for each in real(*given) if each["scalar"].strategy == strategy)  # type: ignore[arg-type]

    with patch.object(noise_design, "choices", one):
        problem.solve(EPSILON, DELTA, mechanism="gaussian-once", feasibility=treatment, rng=seed)
    return 100 * (float(cost(cp.Constant(make.value), unit, true).value) / least - 1)


def main(seeds: int = 4) -> None:
    print(f"{'periods':>8} {'strategy':>9}" + "".join(f"{each:>10}" for each in TREATMENTS))
    for periods in (52, 208):
        for strategy in ("entries", "inputs", "factor"):
            means = [np.mean([excess(periods, strategy, each, s) for s in range(seeds)]) for each in TREATMENTS]
            print(f"{periods:8} {strategy:>9}" + "".join(f"{mean:10.2f}" for mean in means), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
