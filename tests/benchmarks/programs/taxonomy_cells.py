"""Which mechanism wins where in the low-sensitivity cells, and what the planner's choice costs against the best.

Synthetic programs: x a distribution over d = 100 columns, m rows with coefficients in [-1, 1] that a planted point
meets exactly, data that are means over n records:

* scalar: b = mean of n vectors in [0, 1]^m; one record moves every entry by at most 1/n;
* row: one row of A is a mean of n vectors in [-1, 1]^d (2/n each entry);
* matrix: all of A is (2/n each entry);
* column: a record moves one column of A by at most 1/n in each entry.

With LP files (npz or MPS, netlib's for example) their right-hand sides (b) or coefficients (A) are private, one record
moving one entry by a share of the median entry, and the public box is finite. The error of a solve is the largest
violation; with an objective (``--objective``: a random cost on the synthetic programs) it is the larger of the
violation as a share of the width (how far a public point can violate a row) and the loss in objective as a share of
its span over the public set, the same for all mechanisms of a problem. Regret: median
error of the planner's choice divided by that of the best eligible mechanism. Mechanisms whose forecast says nothing
are left out, unless ``--all`` is given or the planner chose one; where every forecast says nothing, all are run. Those
that take longer than ``--patience`` are not run again and left out for more records.

    python -m tests.benchmarks.programs.taxonomy_cells --rows 30 300 3000 --runs 3 [--objective]
    python -m tests.benchmarks.programs.taxonomy_cells --files FOLDER --largest 60
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
from scipy.optimize import linprog

import dpmodel as dpm
from tests.benchmarks import measuring
from tests.benchmarks.programs.lp_files import read_lp
from tests.benchmarks.programs.private_lps import boxed, files, plain, quiet, violation, with_private

EPSILON, DELTA = 1.0, 1e-6
COLUMNS = 100
TOLERANCE = 1e-6  # errors at the level of solver tolerances are equal


@dataclass(frozen=True)
class Synthetic:
    """``problem`` of a cell with variable ``x``; ``error`` : of a point."""

    problem: dpm.Problem
    x: cp.Variable
    error: Callable[[np.ndarray], float]


def synthetic(cell: str, m: int, n: int, seed: int, with_objective: bool) -> Synthetic:
    rng = np.random.default_rng([seed, m])
    A = rng.uniform(-1, 1, (m, COLUMNS))
    planted = rng.dirichlet(np.full(COLUMNS, 0.1))
    b = A @ planted
    x = cp.Variable(COLUMNS, nonneg=True, name="x")
    simplex = cp.sum(x) == 1
    public_b = cp.Constant(b, name="b")
    if cell == "scalar":
        data = dpm.Private(b, name="b", linf=1 / n)
        rows = [cp.Constant(A, name="A") @ x <= data]
    elif cell == "row":
        data = dpm.Private(A[0], name="row", linf=2 / n, bounds=[-1, 1])
        rows = [data @ x <= b[0], cp.Constant(A[1:], name="A") @ x <= cp.Constant(b[1:], name="b")]
    elif cell == "matrix":
        data = dpm.Private(A, name="A", linf=2 / n, bounds=[-1, 1])
        rows = [data @ x <= public_b]
    else:
        data = dpm.Private(A, name="A", unit="column", linf=1 / n, bounds=[-1, 1])
        rows = [data @ x <= public_b]
    if not with_objective:
        return Synthetic(dpm.Problem(cp.Minimize(0), [simplex, *rows]), x, lambda v: _over(A, b, v))
    cost = rng.uniform(-1, 1, COLUMNS)
    true = linprog(cost, A_ub=A, b_ub=b, A_eq=np.ones((1, COLUMNS)), b_eq=[1.0], bounds=(0, None), method="highs")
    span = float(np.ptp(cost))
    width = float((A.max(axis=1) - b).max())  # over the simplex

    def error(v: np.ndarray) -> float:
        return max(_over(A, b, v) / width, (float(cost @ v) - true.fun) / span)

    return Synthetic(dpm.Problem(cp.Minimize(cp.Constant(cost, name="cost") @ x), [simplex, *rows]), x, error)


def _over(A: np.ndarray, b: np.ndarray, v: np.ndarray) -> float:
    return float((A @ v - b).max(initial=0.0))


def scales(problem: dpm.Problem, optimum: float) -> tuple[float, float]:
    """The width and the span that the forecasts state, else 1 and the optimum's size."""
    forecasts = [c.forecast for c in problem.plan(EPSILON, DELTA).candidates if c.eligible]
    width = min((f.error.width for f in forecasts if f.error.width > 0), default=1.0)
    span = min((f.error.span for f in forecasts if f.error.span > 0), default=max(abs(optimum), 1.0))
    return width, span


def compare(
    problem: dpm.Problem, x: cp.Variable, error: Callable[[np.ndarray], float], options: Any, slow: set[str]
) -> dict[str, Any]:
    """Median error per mechanism that says something, the planner's choice and its regret.

    ``slow`` : mechanisms to leave out, unless chosen; those that turn out to be slow are added.
    """
    plan = problem.plan(EPSILON, DELTA, as_printed=True)
    medians, details, seconds = {}, {}, {}
    everything = options.all or plan.chosen.forecast.vacuous
    for candidate in plan.candidates:
        if not candidate.eligible or (candidate.forecast.vacuous and not everything):
            continue
        if candidate.mechanism in {*slow, *options.without} and candidate is not plan.chosen:
            details[candidate.mechanism] = "left out"
            continue
        errors = []
        started = time.perf_counter()
        for seed in range(options.runs):
            problem.solve(EPSILON, DELTA, mechanism=candidate.mechanism, rng=seed)
            errors.append(math.inf if x.value is None else error(np.asarray(x.value)))
            if time.perf_counter() - started > options.patience:
                slow.add(candidate.mechanism)
                break
        seconds[candidate.mechanism] = (time.perf_counter() - started) / len(errors)
        medians[candidate.mechanism] = float(np.median(errors))
        details[candidate.mechanism] = measuring.spread(errors)
    best = min(medians, key=lambda name: medians[name])
    chosen = plan.chosen.mechanism
    regret = max(medians[chosen], TOLERANCE) / max(medians[best], TOLERANCE)
    return {"chosen": chosen, "best": best, "regret": regret, "details": details, "plan": plan, "seconds": seconds}


def show(table: measuring.Table, label: str, found: dict[str, Any]) -> None:
    for name, text in found["details"].items():
        forecast = next(c.forecast for c in found["plan"].candidates if c.mechanism == name)
        marks = " ".join(w for w, on in (("chosen", name == found["chosen"]), ("best", name == found["best"])) if on)
        alpha = measuring.short(forecast.alpha) + (" (says nothing)" if forecast.vacuous else "")
        table.row(label, name, text, alpha, measuring.short(found["seconds"].get(name)), marks)
        label = ""


def main() -> int:
    parser = measuring.parser(
        __doc__,
        cells=["scalar", "row", "matrix", "column"],
        rows=[30, 300, 3000],
        records=[10000.0, 100000.0, 1000000.0],
        runs=3,
        parts=["b", "A"],
        relative=1e-3,
    )
    parser.add_argument("--objective", action="store_true", help="a random cost on the synthetic programs")
    parser.add_argument("--all", action="store_true", help="also mechanisms whose forecast says nothing")
    parser.add_argument("--files", nargs="*", type=measuring.data_path("*.npz", "*.mps", "*.mps.gz"), default=[])
    parser.add_argument("--without", nargs="*", default=[], help="mechanisms to leave out")
    parser.add_argument("--patience", type=float, default=10.0, help="seconds for all runs of a mechanism")
    parser.add_argument("--largest", type=int, default=300, help="most rows or columns of a file")
    options = parser.parse_args()
    quiet()
    measuring.header()
    regrets: dict[str, list[float]] = {}
    table = measuring.Table(("problem", 26), ("mechanism", 30), ("error, median [quartiles]", 26), ("forecast", 24),
                            ("s a solve", 9), ("", 12))  # fmt: skip
    for cell in options.cells if not options.files else []:
        for m in options.rows:
            slow: set[str] = set()
            for n in options.records:
                made = synthetic(cell, m, int(n), 7, options.objective)
                found = compare(made.problem, made.x, made.error, options, slow)
                show(table, f"{cell} m={m} n={n:.0e}", found)
                regrets.setdefault(cell, []).append(found["regret"])
    for path in files(options.files):
        lp = read_lp(path)
        if max(lp.c.size, lp.b_ub.size + lp.b_eq.size) > options.largest:
            continue
        true, variable = plain(lp)
        true.solve(solver=cp.HIGHS)
        if true.status != "optimal":
            continue
        lp = boxed(lp, np.asarray(variable.value), 3.0)
        for part in options.parts:
            try:
                made = with_private(lp, part, options.relative, nonzero_only=True)
            except ValueError:  # no entry to mark
                continue
            optimum = float(true.value)
            width, span = scales(made.problem, optimum)

            def error(v: np.ndarray, lp: Any = lp, of: tuple[float, ...] = (optimum, width, span)) -> float:
                return max(violation(lp, v) / of[1], (float(lp.c @ v) - of[0]) / of[2])

            found = compare(made.problem, made.x, error, options, set())
            show(table, f"{lp.name} {part}", found)
            regrets.setdefault(part, []).append(found["regret"])
    expectations = measuring.Expectations()
    print()
    for cell, values in regrets.items():
        print(f"regret of the planner, {cell}: {measuring.spread(values)}, largest {max(values):.3g}")
        expectations.expect(float(np.median(values)) <= 1.3, f"{cell}: median regret at most 1.3")
    return expectations.close()


if __name__ == "__main__":
    raise SystemExit(main())
