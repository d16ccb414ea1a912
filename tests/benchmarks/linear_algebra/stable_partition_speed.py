"""Processor seconds of the stable partition (KMMST24, Algorithm 1) over several fields.

    python -m tests.benchmarks.linear_algebra.stable_partition_speed                 # random and planted vectors
    python -m tests.benchmarks.linear_algebra.stable_partition_speed --adult FOLDER  # one-hot rows of Adult over QQ

FOLDER holds adult_pgm.csv.gz (integer codes) and adult-domain.json (levels per column); columns of more than
``--levels`` levels are left out. Set OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from dpmodel.exact.fields import GF, QQ
from dpmodel.exact.partition import stable_partition
from tests.benchmarks.measuring import data_path


def measure(label: str, field: Any, rows: Any) -> None:
    exact = field.exact_rows(rows)
    start = time.process_time()
    partition = stable_partition(field, exact)
    seconds = time.process_time() - start
    n, d = exact.shape
    sets, rank = int(partition.counts.sum()), int(np.flatnonzero(partition.counts).max(initial=0))
    print(f"{label:<34} {field.name:<15} {n:>7} x {d:<4} rank {rank:<4} {sets:>5} sets  {seconds:8.2f} s", flush=True)


def random_rows(rng: np.random.Generator, q: int, n: int, d: int) -> Any:
    return rng.integers(0, q, (n, d))


def planted(rng: np.random.Generator, n: int, d: int, rank: int) -> Any:
    """Nine tenths of the rows in a subspace of that dimension, the others anywhere; small integers."""
    rows = rng.integers(-9, 10, (n, d))
    inside = rng.random(n) < 0.9
    rows[inside] = rng.integers(-3, 4, (int(inside.sum()), rank)) @ rng.integers(-3, 4, (rank, d))
    return rows


def one_hot(folder: Path, levels: int) -> Any:
    import pandas as pd

    domain = json.loads((folder / "adult-domain.json").read_text())
    table = pd.read_csv(folder / "adult_pgm.csv.gz")
    kept = [name for name in domain if domain[name] <= levels]
    return np.hstack([np.eye(domain[name], dtype=np.int64)[table[name].to_numpy()] for name in kept])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--d", type=int, default=100)
    parser.add_argument("--adult", type=data_path("adult_pgm.csv.gz"), default=None)
    parser.add_argument("--levels", type=int, default=85)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    if args.adult is not None:
        rows = one_hot(args.adult, args.levels)
        measure("Adult, one-hot", QQ, rows)
        measure("Adult, one-hot", GF(2**31 - 1), rows)
        return
    for q in (2, 7, 2**31 - 1, 256):
        measure("uniform", GF(q), random_rows(rng, q, args.n, args.d))
    measure("integers in -9 .. 9", QQ, rng.integers(-9, 10, (args.n // 10, args.d)))
    measure("planted, dimension d / 5", QQ, planted(rng, args.n // 10, args.d, max(args.d // 5, 1)))
    measure("bits", QQ, rng.integers(0, 2, (args.n // 10, args.d)))


if __name__ == "__main__":
    main()
