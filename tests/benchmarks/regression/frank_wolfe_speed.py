"""What a step of private Frank-Wolfe costs, in passes over the rows.

``python -m tests.benchmarks.regression.frank_wolfe_speed``, about 1 GB.

One pass is one evaluation of the gradient from scratch, ``X'(derivative(Xw, y))``: one product with X and one with its
transpose, w dense. Shown beside it: a product ``X @ w`` alone. A step's time is the difference of two fits of different
lengths over the difference of their lengths, noise and selection included; with seeded noise, exact and OpenDP's.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel.contract import Options
from dpmodel.privacy import ExactSource, SeededSource
from dpmodel.privacy.opendp_source import OpenDPSource
from dpmodel.regressions.frank_wolfe import FrankWolfe
from dpmodel.regressions.sets import L1Ball
from tests.support.regressions import regression


def timed(work: Callable[[], object], repeats: int) -> float:
    """Median seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def one(name: str, X: Any, repeats: int, steps: int) -> None:
    n, p = X.shape
    rng = np.random.default_rng(1)
    y = rng.choice([-1.0, 1.0], size=n)
    model = regression(X, y, domain=L1Ball(p, 1.0), lower=-1, upper=1)
    rows, w = model.read_rows(), rng.normal(size=p) / p
    single = timed(lambda: rows.predict(w), 5)
    print(f"{name}: X w {1e3 * single:.1f} ms", flush=True)
    for source in (SeededSource(0), ExactSource(), OpenDPSource()):
        found = []
        for _ in range(repeats):  # passes and steps by turns: other work on the machine hits both
            spent, passes = [], []
            for count in (1, 1 + steps):
                mechanism = FrankWolfe(steps=count, rate=0.0, clip=1.0)
                start = time.perf_counter()
                mechanism.run(model, Options(1.0, 1e-6), source)
                spent.append(time.perf_counter() - start)
                passes.append(timed(lambda: rows.combine(model.loss.derivative(rows.predict(w), y)), 5))
            found.append(((spent[1] - spent[0]) / steps, float(np.mean(passes))))
        step, one_pass = np.median(found, axis=0)
        ratios = [a / b for a, b in found]
        print(
            f"  {type(source).__name__}: step {1e3 * step:.1f} ms, pass {1e3 * one_pass:.1f} ms; "
            f"{np.median(ratios):.2f} passes a step ({min(ratios):.2f} to {max(ratios):.2f})",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    one("dense 100,000 x 1,000", rng.choice([-1.0, 1.0], size=(100_000, 1000)), arguments.repeats, arguments.steps)
    sparse = sp.random_array((10_000, 100_000), density=0.002, format="csr", rng=rng)
    sparse.data = np.where(sparse.data < 0.5, -1.0, 1.0)
    one("CSR 10,000 x 100,000, 0.2 % non-zeros", sparse, arguments.repeats, arguments.steps)


if __name__ == "__main__":
    main()
