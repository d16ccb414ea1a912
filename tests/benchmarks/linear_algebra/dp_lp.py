"""Exact satisfaction counts of dp-lp on planted integer programs with equalities hidden in inequalities.

    python -m tests.benchmarks.linear_algebra.dp_lp [--runs 10] [--hard]

Rows: share of the private rows that the rational answer satisfies exactly (median and least of the runs), share of the
runs in which every hidden equality holds, seconds per run. U = 10, delta = 1e-6, add-remove, x >= 0 and x <= 10 public.
``--hard`` : corrupted rows, few owners, combinations instead of repeated equalities, large numbers.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np

from dpmodel.contract import Options
from dpmodel.errors import NotPrivateWarning
from dpmodel.exact.dp_lp import DP_LP
from dpmodel.exact.dp_lp_forecast import synthetic_program
from dpmodel.exact.flats import satisfied, slack_rows
from dpmodel.exact.model import PrivateInequalities
from dpmodel.privacy import SeededSource


def measure(
    runs: int,
    epsilon: float,
    records: int,
    variables: int,
    hidden: int,
    owners: int = 300,
    largest: int = 10,
    combined: bool = False,
    corrupted: float = 0.0,
    neighbors: Any = "add-remove",
) -> str:
    d, n = variables, records
    shares, whole, seconds = [], 0, []
    for seed in range(runs):
        draw = np.random.default_rng(1000 + seed)
        A, b, x0 = synthetic_program(draw, n, d, largest, hidden, owners, combined)
        equal = A @ x0 == b
        wrong = draw.choice(n, int(corrupted * n), replace=False)
        A[wrong], b[wrong] = (
            draw.integers(-largest, largest + 1, (wrong.size, d)),
            draw.integers(-largest, largest + 1, wrong.size),
        )
        equal[wrong] = False
        model = PrivateInequalities(
            variables=d,
            homogeneous=False,
            public_rows=np.vstack([-np.eye(d), np.eye(d)]),
            public_sides=np.r_[np.zeros(d), np.full(d, 10.0)],
            margin=None,
            largest=largest,
            neighbors=neighbors,
            records=n if neighbors == "replace-one" else None,
            expected=n,
            _rows=lambda A=A, b=b: (A, b),
        )
        start = time.perf_counter()
        found = DP_LP.run(model, Options(epsilon, 1e-6), SeededSource(seed))
        seconds.append(time.perf_counter() - start)
        holds = satisfied(slack_rows(A, b, largest), found.answer, largest)
        shares.append(float(holds.mean()))
        whole += bool(holds[equal].all())
    return f"{np.median(shares):.4f} {min(shares):.4f}  equalities {whole}/{runs}  {np.median(seconds):.2f} s"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--hard", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore", NotPrivateWarning)
    if options.hard:
        base: dict[str, Any] = {"runs": options.runs, "epsilon": 2.0, "records": 5000, "variables": 5, "hidden": 2}
        cases: dict[str, dict[str, Any]] = {
            "as it is": {},
            "50 owners": {"owners": 50},
            "100 owners": {"owners": 100},
            "combinations": {"combined": True},
            "U = 1e6": {"largest": 10**6},
            "replace-one": {"neighbors": "replace-one"},
            "1 % corrupted": {"corrupted": 0.01},
            "5 % corrupted": {"corrupted": 0.05},
            "d = 15": {"variables": 15},
            "n = 1000, 100 owners": {"records": 1000, "owners": 100},
            "d = 5 all hidden": {"hidden": 5},
        }
        for words, sensitivity in cases.items():
            print(f"{words:24s} {measure(**{**base, **sensitivity})}", flush=True)
        return
    for d, n in ((3, 5000), (5, 5000), (8, 5000), (5, 20000), (8, 20000)):
        for hidden in (0, 1, 2):
            for epsilon in (1.0, 2.0, 4.0):
                words = f"d={d} n={n} hidden={hidden} epsilon={epsilon:g}"
                print(f"{words:40s} {measure(options.runs, epsilon, n, d, hidden)}", flush=True)


if __name__ == "__main__":
    main()
