"""Voters left short on approval ballots: the plan's choice against counting votes, whole or split, and its rivals.

Instances
    .npz files (or folders of them): ``indptr, indices, shape`` (CSR without values; rows = voters, columns = projects)
    and ``cost`` (ones where a file has none). The largest ballot counts as the public rule of the vote.
Program
    ``A x >= 1``, ``0 <= x <= 1``, ``cost'x <= .8`` of what a full fractional cover costs without privacy; one row of A
    a voter.
Measured
    Per cent of voters short by more than 0.1, means over the runs (seeds 0, 1, ...; delta 1e-6): the plan's choice;
    every other mechanism that leaves rows out; split votes in one round and in two; *counts*, the two lines of NumPy:
    ``A.sum(axis=0)`` with Laplace noise of sensitivity min(2 L, d), bought in the order of votes per money.
Expectations
    Where voters times epsilon are 500 and more, the plan's choice is at most .5 points behind the best of all others in
    hindsight; below that at most 3.
    Settings were chosen on Dieppe, Ujbuda, Amsterdam and on synthetic ballots. The others are kept for the report.

    python -m tests.benchmarks.programs.ballots FOLDER... [--only Toulouse] [--runs 20]
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

import dpmodel as dpm
from dpmodel.mechanisms import SplitVotes
from tests.benchmarks.measuring import Expectations, Table, data_path, header, parser

RIVALS = ("dense-multiplicative-weights", "noisy-hinge-descent")
SPLIT = {"split, 1": SplitVotes(rounds=1), "split, 2": SplitVotes(rounds=2)}
DELTA = 1e-6


def read(path: Path, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """(n, d) ballots, and (d,) costs in units of a full fractional cover's."""
    with np.load(path, allow_pickle=False) as file:
        A = sp.csr_array((np.ones(file["indices"].size), file["indices"], file["indptr"]), shape=tuple(file["shape"]))
        cost = file["cost"].astype(float) if "cost" in file.files else np.ones(A.shape[1])
    A = A[:rows]
    full = linprog(cost, A_ub=-A, b_ub=-np.ones(A.shape[0]), bounds=(0, 1), method="highs").fun
    return A.toarray(), cost / full


def counts(A: np.ndarray, cost: np.ndarray, budget: float, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    sensitivity = min(2 * A.sum(axis=1).max(), A.shape[1])
    order = np.argsort(-(A.sum(axis=0) + rng.laplace(scale=sensitivity / epsilon, size=cost.size)) / cost)
    spent = np.cumsum(cost[order])
    x = np.zeros(cost.size)
    x[order] = np.clip((budget - spent + cost[order]) / cost[order], 0, 1)
    return x


def main() -> int:
    options = parser(__doc__, epsilons=[0.5, 1.0, 2.0])
    options.add_argument("folders", nargs="+", type=data_path("*.npz"))
    options.add_argument("--runs", type=int, default=20)
    options.add_argument("--budget", type=float, default=0.8)
    options.add_argument("--rows", type=int, default=6000, help="at most so many voters of a file")
    options.add_argument("--only", nargs="+", default=[""], help="parts of file names")
    given = options.parse_args()
    warnings.simplefilter("ignore")
    header()
    expectations = Expectations()
    names = ("plan", *SPLIT, "counts", *RIVALS)
    table = Table(
        ("ballots", 44), ("n", 5), ("d", 4), ("eps", 4), ("chosen", 12), ("behind", 6), *((n[:14], 14) for n in names)
    )
    for path in sorted(path for folder in given.folders for path in folder.glob("*.npz")):
        if any(part in path.stem for part in given.only):
            A, cost = read(path, given.rows)
            for epsilon in given.epsilons:
                _report(path.stem, A, cost, epsilon, given, table, expectations)
    return expectations.close()


def _report(
    name: str, A: np.ndarray, cost: np.ndarray, epsilon: float, given: Any, table: Table, expectations: Expectations
) -> None:
    ballots = dpm.Private(A, name="ballots", unit="row", bounds=[0, 1], max_l1=int(A.sum(axis=1).max()))
    x = cp.Variable(A.shape[1], bounds=[0, 1])
    problem = dpm.Problem(cp.Minimize(0), [ballots @ x >= 1, cost @ x <= given.budget])

    def short(mechanism: Any) -> float:
        found = []
        for seed in range(given.runs):
            problem.solve(epsilon=epsilon, delta=DELTA, mechanism=mechanism, rng=seed)
            found.append(100 * float((A @ x.value < 0.9 - 1e-9).mean()))
        return float(np.mean(found))

    chosen = problem.plan(epsilon=epsilon, delta=DELTA).chosen.mechanism
    found = {"plan": short("auto")} | {key: short(each) for key, each in SPLIT.items()}
    drawn = (counts(A, cost, given.budget, epsilon, np.random.default_rng(seed)) for seed in range(given.runs))
    found["counts"] = 100 * float(np.mean([(A @ y < 0.9 - 1e-9).mean() for y in drawn]))
    found |= {each: short(each) for each in RIVALS}
    behind = found["plan"] - min(found.values())
    cells = (f"{each:.1f}" for each in found.values())
    table.row(name[:44], *A.shape, f"{epsilon:g}", chosen[:12], f"{behind:.2f}", *cells)
    limit = 0.5 if A.shape[0] * epsilon >= 500 else 3.0
    expectations.expect(behind <= limit, f"{name}, epsilon {epsilon:g}: at most {limit:g} points behind ({behind:.2f})")


if __name__ == "__main__":
    sys.exit(main())
