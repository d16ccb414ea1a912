"""What privacy costs in time on the zoo: a whole private solve against plain CVXPY on the same model and solver.

Both start from a fresh problem. ``first``: nothing is known of the model; ``again``: a problem like it was solved
before in this process; ``same``: the second solve of one problem. Medians of runs that alternate with plain ones;
``plan`` is the plan's share of the first solve. The first solves of the process are left out. Regressions are in
``regression.fit_speed``. ``--variables`` : the models at about so many instead, grown on as from medium to large.

    python -m tests.benchmarks.programs.zoo_speed --sizes medium large
    python -m tests.benchmarks.programs.zoo_speed --variables 10000 --besides max_cut
"""

from __future__ import annotations

import gc
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import cvxpy as cp
import numpy as np

import dpmodel as dpm
from tests.benchmarks.measuring import Expectations, Table, header, parser, quartiles
from tests.zoo import cones, finance, flows, health, places, production, systems, tables  # noqa: F401
from tests.zoo.registry import MODELS, SIZES, Case, Model


def seconds(act: Callable[[], Any]) -> float:
    gc.collect()
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def solver_of(problem: cp.Problem) -> str:
    """HiGHS for linear models, Clarabel for cones: the ones that both sides would take."""
    problem.solve()
    name = problem.solver_stats.solver_name
    return {"OSQP": cp.CLARABEL, "SCS": cp.CLARABEL}.get(name, name)


def grown(model: Model, variables: int) -> Model:
    """``model`` with one size, at which it has about so many variables."""
    medium, large = (Case(model, size).variables() for size in SIZES[1:])
    n = model.sizes[1:]
    power = max(np.log(large / medium) / np.log(n[1] / n[0]), 0.5)
    return replace(model, sizes=(round(n[1] * (variables / large) ** (1 / power)),))


def measured(model: Model, size: str, given: Any) -> dict[str, float] | str:
    def made() -> tuple[dpm.Problem, cp.Problem]:
        case = Case(model, size)
        return case.problem, case.truth

    solver = solver_of(made()[1])
    asked = {"epsilon": given.epsilon, "delta": given.delta, "solver": solver, **model.asked}
    times: dict[str, list[float]] = {name: [] for name in ("plain", "first", "again", "same", "plan")}
    for _ in range(given.repetitions):
        (one, truth), (other, _) = made(), made()  # data are drawn outside the clock; all is compiled inside
        times["plain"].append(seconds(partial(truth.solve, solver=solver)))
        try:
            times["first"].append(seconds(partial(one.solve, **asked)))
        except dpm.DPModelError as error:
            return type(error).__name__
        assert one.release is not None
        times["plan"].append(one.release.timings["plan"])
        times["again"].append(seconds(partial(other.solve, **asked)))
        times["same"].append(seconds(partial(one.solve, **asked)))
    return {name: quartiles(values)[0] for name, values in times.items()}


def main() -> int:
    cli = parser(__doc__, repetitions=5, epsilon=1.0, delta=1e-6)
    cli.add_argument("--sizes", nargs="+", default=["medium", "large"], choices=SIZES)
    cli.add_argument("--variables", type=int, help="about so many, in place of --sizes")
    cli.add_argument("--only", nargs="+", default=[], help="names of models")
    cli.add_argument("--besides", nargs="+", default=[], help="names of models to leave out")
    given = cli.parse_args()
    header()
    warnings.simplefilter("ignore")
    table = Table(
        ("model", 38), ("size", 7), ("variables", 9), ("plain ms", 9),
        ("first", 6), ("again", 6), ("same", 6), ("plan's share", 12),
    )  # fmt: skip
    ratios: dict[str, list[float]] = {name: [] for name in ("first", "again", "same")}
    worst: dict[str, tuple[float, str]] = {}
    measured(MODELS[0], SIZES[0], given)  # imports
    for model in MODELS:
        left_out = given.only and model.name not in given.only
        if model.family == "pipelines" or left_out or model.name in given.besides:
            continue
        if given.variables:
            if len(model.sizes) < len(SIZES):
                continue
            model = grown(model, given.variables)
        for size in (SIZES[0],) if given.variables else given.sizes:
            if SIZES.index(size) >= len(model.sizes):
                continue
            count, name = Case(model, size).variables(), "grown" if given.variables else size
            found = measured(model, size, given)
            if isinstance(found, str):
                table.row(model.name, name, count, found, "-", "-", "-", "-")
                continue
            against = {kind: found[kind] / found["plain"] for kind in ratios}
            for kind, ratio in against.items():
                ratios[kind].append(ratio)
                worst[kind] = max(worst.get(kind, (0.0, "")), (ratio, f"{model.name}, {name}"))
            share = found["plan"] / found["first"]
            table.row(
                model.name, name, count, f"{1e3 * found['plain']:.1f}",
                *(f"{against[kind]:.2f}" for kind in ratios), f"{share:.2f}",
            )  # fmt: skip
    expected = Expectations()
    for name, values in ratios.items():
        if values:
            middle, (most, where) = float(np.median(values)), worst[name]
            print(f"{name}: median {middle:.2f}, worst {most:.1f} ({where}), of {len(values)}")
            expected.expect(middle <= 1.5 and most <= 5, f"{name}: median at most 1.5, worst at most 5")
    return expected.close()


if __name__ == "__main__":
    sys.exit(main())
