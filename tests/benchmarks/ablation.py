"""What each shortcut of speed buys: first solves of the zoo with one of them switched off.

``first`` is the median, over models, of a first private solve against plain CVXPY on the same model; ``off / on`` the
median of the same solve with the shortcut against that without; ``worst`` the largest of these, and where. Seconds are
the process's own, runs alternate, and the shortest of the repetitions counts. A shortcut that buys less than .2 of
``first`` goes.

    python -m tests.benchmarks.ablation --sizes medium --repetitions 3
"""

from __future__ import annotations

import gc
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from unittest import mock

import numpy as np

import dpmodel as dpm
from tests.benchmarks.measuring import Table, header, parser
from tests.benchmarks.programs.zoo_speed import solver_of
from tests.zoo import cones, finance, flows, health, places, production, systems, tables  # noqa: F401
from tests.zoo.registry import MODELS, SIZES, Case, Model


def without(place: str, value: object) -> mock._patch[object]:
    """The switch that puts ``value``, or a function that returns it, in the place of a shortcut."""
    return mock.patch(place, value if callable(value) or isinstance(value, property) else lambda *_, **__: value)


OFF = {
    "nothing": [],
    "direct interfaces of solvers": [without("dpmodel.numerics.solvers._straight", None)],
    "no presolve of small programs": [mock.patch.dict("dpmodel.numerics.solvers.AT_ONCE", clear=True)],
    "alike columns are not compared": [mock.patch.dict("dpmodel.numerics.solvers.CONTINUOUS", clear=True)],
    "bounds in the planner": [without("dpmodel.solve.planner._behind", "")],
    "fewer records": [
        without(f"dpmodel.programs.{room}.fewer_records", None) for room in ("public", "nearly_feasible", "simulation")
    ],
}


def seconds(act: Callable[[], object]) -> float:
    """Of this process alone: other work on the machine does not count."""
    gc.collect()
    start = time.process_time()
    act()
    return time.process_time() - start


def first_solve(model: Model, size: str, name: str, asked: dict[str, object]) -> float:
    """Seconds of a first solve with ``name`` switched off; data are drawn outside the clock."""
    problem = Case(model, size).problem
    with ExitStack() as stack:
        for patch in OFF[name]:
            stack.enter_context(patch)
        return seconds(partial(problem.solve, **asked))


def main() -> int:
    cli = parser(__doc__, repetitions=3, epsilon=1.0, delta=1e-6)
    cli.add_argument("--sizes", nargs="+", default=["medium"], choices=SIZES)
    cli.add_argument("--only", nargs="+", default=[], help="names of models")
    given = cli.parse_args()
    header()
    warnings.simplefilter("ignore")
    plain: list[float] = []
    found: dict[str, list[float]] = {name: [] for name in OFF}
    where: list[str] = []
    for model in MODELS:
        if model.family == "pipelines" or (given.only and model.name not in given.only):
            continue
        for size in given.sizes:
            if SIZES.index(size) >= len(model.sizes):
                continue
            solver = solver_of(Case(model, size).truth)
            asked = {"epsilon": given.epsilon, "delta": given.delta, "solver": solver, **model.asked}
            try:
                first_solve(model, size, "nothing", asked)  # imports
                runs = [
                    [seconds(partial(Case(model, size).truth.solve, solver=solver))]
                    + [first_solve(model, size, name, asked) for name in OFF]
                    for _ in range(given.repetitions)
                ]
            except dpm.DPModelError:  # no private solve without a mechanism
                continue
            least = np.min(runs, axis=0)
            plain.append(least[0])
            where.append(f"{model.name}, {size}")
            for name, value in zip(OFF, least[1:], strict=True):
                found[name].append(value)
    table = Table(("switched off", 32), ("first", 6), ("off / on", 8), ("worst", 6), ("where", 40))
    for name, values in found.items():
        ratios = np.divide(values, found["nothing"])
        most = int(np.argmax(ratios))
        first = float(np.median(np.divide(values, plain)))
        table.row(name, f"{first:.2f}", f"{np.median(ratios):.2f}", f"{ratios[most]:.1f}", where[most])
    print(f"\n{len(plain)} models")
    return 0


if __name__ == "__main__":
    sys.exit(main())
