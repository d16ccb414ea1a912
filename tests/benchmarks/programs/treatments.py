"""What the private rows of ordinary models are short by under each treatment, and what making up for it costs.

Models
    transport: 20 plants, 100 markets, cases ordered by market. cells: demand in 50 cells, met at least cost in all.
    sinks: a grid of 10 by 10 with 40 sinks, flow into each equal to its orders. battery: of the zoo, 96 periods. rows:
    40,000 numbers, each to be reached by its own variable under one budget. One record moves one number by 1 (battery:
    ten by 6).
Measured
    Mean shortage of the true rows as a share of what they ask for, the share of rows that are short, and the cost, true
    shortage made up for at ``PRICE`` times the dearest unit, over the optimum without privacy. Means over seeds 0 to
    ``--runs``; data are drawn from seed 0.

    python -m tests.benchmarks.programs.treatments [--runs 5] [--epsilon 1]
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np

import dpmodel as dpm
from tests.benchmarks.measuring import header
from tests.zoo.flows import grid_network
from tests.zoo.production import battery

PRICE = 3.0
DELTA = 1e-6
TREATMENTS = ("centred", "relaxed")


@dataclass(frozen=True)
class Model:
    """``build(private)`` : objective and constraints over a parameter, and what finds the left side of the private rows
    at the values of the variables; ``numbers`` : their true right-hand sides; ``dearest`` : cost of a unit."""

    build: Callable[[Any], tuple[Any, list[Any], Callable[[], np.ndarray]]]
    numbers: np.ndarray
    dearest: float
    declared: dict[str, Any]


def transport(plants: int = 20, markets: int = 100) -> Model:
    rng = np.random.default_rng(0)
    cost, orders = rng.uniform(5, 40, (plants, markets)), np.round(rng.uniform(10, 60, markets))
    supply = np.full(plants, 1.3 * orders.sum() / plants)

    def build(demand: Any) -> Any:
        x = cp.Variable((plants, markets), nonneg=True, name="shipped")
        rows = [cp.sum(x, axis=1) <= supply, (cp.sum(x, axis=0) >= demand).set_label("served")]
        return cp.Minimize(cp.sum(cp.multiply(cost, x))), rows, lambda: x.value.sum(axis=0)

    return Model(build, orders, float(cost.max()), {"unit": "entry", "linf": 1})


def cells(count: int = 50) -> Model:
    rng = np.random.default_rng(0)
    price, need = rng.uniform(1, 3, count), np.round(rng.uniform(5, 50, count))

    def build(demand: Any) -> Any:
        x = cp.Variable(count, nonneg=True, name="stock")
        return cp.Minimize(price @ x), [x >= demand, cp.sum(x) <= 2 * need.sum()], lambda: x.value

    return Model(build, need, float(price.max()), {"unit": "entry", "linf": 1})


def sinks(side: int = 10, count: int = 40) -> Model:
    rng = np.random.default_rng(0)
    network = grid_network(side)[0]
    nodes, arcs = network.shape
    where = rng.choice(np.arange(1, nodes), count, replace=False)
    orders, cost = np.round(rng.uniform(10, 60, count)), rng.uniform(1, 5, arcs)
    others = np.setdiff1d(np.arange(1, nodes), where)

    def build(demand: Any) -> Any:
        flow = cp.Variable(arcs, nonneg=True, name="flow")
        into = -network @ flow
        return (
            cp.Minimize(cost @ flow),
            [into[where] == demand, into[others] == 0],
            lambda: (-network @ flow.value)[where],
        )

    return Model(build, orders, float(cost.max()) * 10, {"unit": "entry", "linf": 1})


def street(periods: int = 96) -> Model:
    seen: list[np.ndarray] = []
    battery.write(periods, np.random.default_rng(0), lambda values, **how: seen.append(values) or cp.Constant(values))

    def build(demand: Any) -> Any:
        objective, rows = battery.write(periods, np.random.default_rng(0), lambda values, **how: demand)
        by_name = {v.name(): v for v in cp.Problem(objective, rows).variables()}
        return objective, rows, lambda: by_name["buy"].value - by_name["charge"].value

    return Model(build, seen[0], 0.3, {"unit": "all", "linf": 6, "l1": 60, "bounds": [0, 500]})


def many_rows(budget: float, count: int = 40_000) -> Model:
    need = np.random.default_rng(0).integers(0, 50, count).astype(float)

    def build(demand: Any) -> Any:
        x = cp.Variable(count, nonneg=True, name="x")
        return cp.Minimize(cp.sum(x)), [x >= demand, cp.sum(x) <= budget], lambda: x.value

    return Model(build, need, 1.0, {"unit": "entry", "linf": 1})


MODELS = {
    "transport": transport, "cells": cells, "sinks": sinks, "battery": street,
    "rows, 2e6": lambda: many_rows(2e6), "rows, 1e8": lambda: many_rows(1e8),
}  # fmt: skip


def measured(model: Model, seeds: range, epsilon: float = 1.0, **how: Any) -> tuple[str, float, float, float]:
    """Mechanism, mean shortage over mean number, share of rows short, cost over the optimum (shortage made up for)."""
    objective, rows, _ = model.build(cp.Constant(model.numbers))
    best = float(cp.Problem(objective, rows).solve())
    found, name = [], ""
    for seed in seeds:
        private = dpm.Private(model.numbers, name="demand", **model.declared)
        objective, rows, served = model.build(private)
        problem = dpm.Problem(objective, rows)
        problem.solve(epsilon, DELTA, rng=seed, **how)
        short = np.maximum(model.numbers - served(), 0.0)
        cost = float(objective.value) + PRICE * model.dearest * float(short.sum())
        found.append((short.mean() / model.numbers.mean(), (short > 1e-6).mean(), cost / best - 1))
        name = problem.release.mechanism  # type: ignore[union-attr]
    return (name, *np.mean(found, axis=0).tolist())


def main() -> int:
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("--runs", type=int, default=5)
    cli.add_argument("--epsilon", type=float, default=1.0)
    given = cli.parse_args()
    warnings.simplefilter("ignore")
    header()
    for treatment in TREATMENTS:
        for name, build in MODELS.items():
            told = measured(build(), range(given.runs), given.epsilon, feasibility=treatment)
            short = f"short {told[1]:7.2%} of it, {told[2]:4.0%} of rows, cost {told[3]:+8.1%}"
            print(f"{name:10} {treatment:8} {told[0]:24} {short}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
