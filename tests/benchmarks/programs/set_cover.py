"""Fractional set cover with one voter per constraint: who is left uncovered, at what cost, against what was promised.

Instances
    Folders with .npz files: ``indptr, indices, shape`` (CSR without values; rows = voters or elements, columns =
    projects or sets) and ``cost``. Ballots are rows of 0 and 1 with at most as many approvals as the largest ballot
    has (taken as the public rule of the vote). ``--copies`` repeats every row, to see larger electorates.
Program
    Cover every row, ``A x >= 1``, with ``0 <= x <= 1`` and ``cost'x <= budget``, the budget a share of what a full
    fractional cover costs without privacy. A is private, one row per person. ``--simplex`` takes HRRU14's set
    instead, ``x >= 0`` and ``cost'x = budget``, the only one algorithm-2 serves.
Measured
    The share of rows short by more than alpha (median and quartiles over the runs), the cost as a share of the full
    cover's, seconds per run. Yardstick: the point of least mean shortfall at the same budget, found without privacy.
    Promised: the plan's s (rows left out) for that alpha, and how many times smaller it is than with the constants
    of HRRU14, Theorem 15, as published: ``s = 72 sqrt(2) W^2 ln(d) sqrt(ln m) ln(T/beta) sqrt(ln 1/delta) /
    (epsilon alpha^2)``, ``W = budget / least cost``, ``T = 36 W^2 ln m / alpha^2``.
Expectations
    noisy-hinge-descent is within 5 points of the yardstick at epsilon 1 and more for 5,000 rows and more, and
    wherever a promise is not void, its s is at least 20 times smaller than as published.

    python -m tests.benchmarks.programs.set_cover FOLDER... [--copies 100] [--alpha 0.5]
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

import dpmodel as dpm
from dpmodel.programs.model import Program
from dpmodel.solve.registry import KINDS
from tests.benchmarks.measuring import Expectations, Table, data_path, header, parser, quartiles, short, spread

MECHANISMS = (
    "noisy-hinge-descent", "dense-multiplicative-weights", "point-exponential", "algorithm-2",
)  # fmt: skip
DELTA, BETA = 1e-6, 0.05


@dataclass(frozen=True)
class Instance:
    """``A`` (m x d) zeros and ones, ``cost`` (d,) in units of a full fractional cover's; ``simplex`` : HRRU14's set."""

    name: str
    A: sp.csr_array
    cost: np.ndarray
    simplex: bool

    @staticmethod
    def read(path: Path, copies: int, simplex: bool) -> Instance:
        with np.load(path, allow_pickle=False) as file:
            indices = file["indices"]
            A = sp.csr_array((np.ones(indices.size), indices, file["indptr"]), shape=tuple(file["shape"]))
            cost = file["cost"].astype(float)
        bounds = (0, None if simplex else 1)
        done = linprog(cost, A_ub=-A, b_ub=-np.ones(A.shape[0]), bounds=bounds, method="highs")
        A = sp.csr_array(sp.vstack([A] * copies))
        return Instance(path.stem, A, cost / done.fun, simplex)

    def least_shortfall(self, budget: float) -> np.ndarray:
        """(d,) the non-private point of least mean shortfall, one unknown per distinct row."""
        m, d = self.A.shape
        rows, counts = np.unique(self.A.toarray(), axis=0, return_counts=True)
        eye = sp.eye_array(counts.size)
        limits = sp.vstack([sp.hstack([-sp.csr_array(rows), -eye]), sp.csr_array(np.r_[self.cost, 0 * counts][None])])
        done = linprog(
            np.r_[np.zeros(d), counts / m], A_ub=limits, b_ub=np.r_[-np.ones(counts.size), budget],
            bounds=[(0, None if self.simplex else 1)] * d + [(0, None)] * counts.size, method="highs",
        )  # fmt: skip
        return np.asarray(done.x[:d])

    def left(self, x: np.ndarray, alpha: float) -> float:
        return float((self.A @ x < 1 - alpha - 1e-9).mean())

    def private(self, budget: float) -> tuple[dpm.Problem, cp.Variable]:
        most = int(np.diff(self.A.indptr).max())
        A = dpm.Private(self.A.toarray(), name="ballots", unit="row", bounds=[0, 1], max_l1=most)
        if self.simplex:
            x = cp.Variable(self.A.shape[1], nonneg=True)
            return dpm.Problem(cp.Minimize(0), [A @ x >= 1, self.cost @ x == budget]), x
        x = cp.Variable(self.A.shape[1], bounds=[0, 1])
        return dpm.Problem(cp.Minimize(0), [A @ x >= 1, self.cost @ x <= budget]), x

    def published(self, budget: float, epsilon: float, alpha: float) -> float:
        """s of Theorem 15."""
        m, d = self.A.shape
        width = max(budget / float(self.cost.min()), 1.0)
        steps = 36 * width**2 * np.log(m) / alpha**2
        logs = np.log(d) * np.log(steps / BETA) * np.sqrt(np.log(m) * np.log(1 / DELTA))
        return float(72 * np.sqrt(2) * width**2 * logs / (epsilon * alpha**2))


def main() -> int:
    options = parser(
        __doc__,
        epsilons=[0.5, 1.0, 2.0, 4.0],
        budget_share=[0.8, 1.0],
        alpha=0.1,
        copies=1,
        mechanisms=list(MECHANISMS),
    )
    options.add_argument("folders", nargs="+", type=data_path("*.npz"))
    options.add_argument("--runs", type=int, default=10, help="0: plan only")
    options.add_argument("--only", nargs="+", default=[""], help="parts of file names")
    options.add_argument("--simplex", action="store_true", help="HRRU14's set of covers")
    given = options.parse_args()
    warnings.simplefilter("ignore")
    header()
    known = {mechanism.name for mechanism in KINDS[Program].mechanisms}
    names = [name for name in given.mechanisms if name in known]
    expectations = Expectations()
    for path in sorted(path for folder in given.folders for path in folder.glob("*.npz")):
        if any(part in path.stem for part in given.only):
            instance = Instance.read(path, given.copies, given.simplex)
            for share in given.budget_share:
                _report(instance, share, names, given, expectations)
    return expectations.close()


def _report(instance: Instance, share: float, names: list[str], given: Any, expectations: Expectations) -> None:
    m, d = instance.A.shape
    best = instance.left(instance.least_shortfall(share), given.alpha)
    print(f"\n{instance.name}: {m} rows, {d} columns, budget {share:g} of a full cover's cost; non-private: "
          f"{best:.2%} short by more than {given.alpha:g}")  # fmt: skip
    table = Table(("epsilon", 7), ("mechanism", 28), (f"% short by > {given.alpha:g}", 24), ("cost", 5),
                  ("seconds", 7), ("promised s", 11), ("published s", 11), ("times smaller", 8))  # fmt: skip
    problem, x = instance.private(share)
    for epsilon in given.epsilons:
        plan = problem.plan(epsilon=epsilon, delta=DELTA, beta=BETA, feasibility=dpm.AllBut(alpha=given.alpha))
        print(f"epsilon {epsilon:g}, plan: {plan.chosen.mechanism}: {plan.chosen.forecast.statement}")
        said = instance.published(share, epsilon, given.alpha)
        for name in names:
            candidate = next(c for c in plan.candidates if c.mechanism == name)
            if not candidate.eligible:
                table.row(f"{epsilon:g}", name, candidate.reason[:80])
                continue
            left, costs, started = [], [], time.perf_counter()
            for seed in range(given.runs):
                problem.solve(
                    epsilon=epsilon, delta=DELTA, mechanism=name, feasibility=dpm.AllBut(alpha=given.alpha), rng=seed
                )
                left.append(100 * instance.left(np.asarray(x.value), given.alpha))
                costs.append(float(instance.cost @ x.value))
            seconds = (time.perf_counter() - started) / given.runs if given.runs else math.nan
            forecast = candidate.forecast
            void = forecast.vacuous or forecast.alpha > given.alpha * (1 + 1e-9)
            times = said / max(forecast.error.slack_rows, 1)
            table.row(f"{epsilon:g}", name, spread(left), short(quartiles(costs)[0]), short(seconds, 2),
                      "none" if void else forecast.error.slack_rows, short(said, 2),
                      "-" if void else short(times, 2))  # fmt: skip
            where = f"{instance.name}, budget {share:g}, epsilon {epsilon:g}, {name}"
            if given.runs and name == "noisy-hinge-descent" and m >= 5000 and epsilon >= 1:
                expectations.expect(np.median(left) <= 100 * best + 5, f"{where}: within 5 points of non-private")
            if not void and name != "algorithm-2":
                expectations.expect(times >= 20, f"{where}: promised s at least 20 times smaller than published")


if __name__ == "__main__":
    sys.exit(main())
