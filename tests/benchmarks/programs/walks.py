"""How many files a reader walks through: files of the package touched by a solve, and crossings from one to another.

    python -m tests.benchmarks.programs.walks

Each solve is made once before it is counted, so that imports and caches of the process do not count.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import cvxpy as cp
import numpy as np

import dpmodel as dpm

ROOT = str(Path(dpm.__file__).parent)


def laplace_once() -> None:
    b = dpm.Private(np.arange(1.0, 11.0), name="b", unit="entry", linf=1)
    x = cp.Variable(10, bounds=[0, 100])
    dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b]).solve(epsilon=1, mechanism="laplace-once", rng=0)


def frank_wolfe() -> None:
    rng = np.random.default_rng(0)
    X = dpm.Private(
        rng.uniform(-1, 1, (500, 20)), name="X", unit="row", bounds=[-1, 1], records=(rows := dpm.Records())
    )
    y = dpm.Private(rng.uniform(-1, 1, 500), name="y", unit="entry", bounds=[-1, 1], records=rows)
    w = cp.Variable(20)
    problem = dpm.Problem(cp.Minimize(cp.sum_squares(X @ w - y) / 500), [cp.norm1(w) <= 1])
    problem.solve(epsilon=1, delta=1e-6, mechanism="frank-wolfe", rng=0)


def exact_tree() -> None:
    counts = np.arange(8.0)
    nodes = np.r_[counts, counts.reshape(4, 2).sum(1), counts.sum()]
    noisy = dpm.Noisy(nodes + 0.5, dpm.noise.Laplace(2.0))
    x = cp.Variable(8, nonneg=True)
    nested = cp.hstack([x, cp.sum(cp.reshape(x, (4, 2), order="C"), axis=1), cp.sum(x)])
    dpm.Problem(cp.Minimize(dpm.released.neg_log_likelihood(nested, noisy))).solve()


def span() -> None:
    rows = np.random.default_rng(0).integers(0, 7, (2000, 3))
    dpm.linalg.span(rows, field=dpm.linalg.GF(7), epsilon=1, delta=1e-6, rng=0, expected=2000)


def walk(solve: Callable[[], None]) -> tuple[int, int, int]:
    """Files touched, crossings between files, and how often ``problem.py`` is entered from another."""
    files: Counter[str] = Counter()
    crossings = entered = 0

    def watch(frame: object, event: str, _: object) -> None:
        nonlocal crossings, entered
        here = frame.f_code.co_filename  # type: ignore[attr-defined]
        if event != "call" or not here.startswith(ROOT):
            return
        back = frame.f_back  # type: ignore[attr-defined]
        while back is not None and not back.f_code.co_filename.startswith(ROOT):
            back = back.f_back
        files[here] += 1
        if back is None or back.f_code.co_filename != here:
            crossings += 1
            entered += here.endswith("problem.py")

    sys.setprofile(watch)
    try:
        solve()
    finally:
        sys.setprofile(None)
    return len(files), crossings, entered


if __name__ == "__main__":
    for solve in (laplace_once, frank_wolfe, exact_tree, span):
        solve()
        touched, crossings, entered = walk(solve)
        print(f"{solve.__name__}: {touched} files, {crossings:,} crossings, problem.py entered {entered} times")
