"""LASSO by private Frank-Wolfe: the excess empirical risk against n and p. At most about 2 GB.

Rows of +-1, ten true coefficients of .1 (with p = 10: all of them), noise of standard deviation .1, l1 ball of radius
1, replace-one, epsilon 1, delta 1e-6; labels declared (and clipped) to +-``--label``. Medians, least and largest over
seeds. Errors of new rows, beside all other mechanisms: ``regression_planner lasso``.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np

from dpmodel.as_printed.frank_wolfe import FRANK_WOLFE_AS_PRINTED
from dpmodel.contract import Options
from dpmodel.privacy import SeededSource
from dpmodel.regressions.frank_wolfe import FRANK_WOLFE, FrankWolfe
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.sets import L1Ball
from tests.benchmarks.measuring import parser
from tests.support.regressions import objective, regression

OPTIONS = Options(1.0, 1e-6)
MOST = 1.2e8  # entries of X
MOST_WORK = 1e10  # entries read by one fit


def rows_of(n: int, p: int, truth: np.ndarray, noise: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(n, p) rows of +-1 and (n,) labels ``X truth`` plus noise."""
    rng = np.random.default_rng(seed)
    X = np.empty((n, p))
    for start in range(0, n, 10_000):
        X[start : start + 10_000] = 2.0 * rng.integers(0, 2, size=X[start : start + 10_000].shape) - 1
    used = np.flatnonzero(truth)
    return X, X[:, used] @ truth[used] + noise * rng.normal(size=n)


def trial(n: int, p: int, label: float, seed: int = 0) -> tuple[PrivateRegression, np.ndarray]:
    truth = np.zeros(p)
    truth[:10] = 0.1
    X, y = rows_of(n, p, truth, 0.1, seed)
    bounds = {"domain": L1Ball(p, 1.0), "lower": -1, "upper": 1, "label": (-label, label)}
    return regression(X, np.clip(y, -label, label), **bounds), truth


def spread(values: list[float], digits: int = 4) -> str:
    return f"{np.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def least(model: PrivateRegression, rounds: int = 300) -> float:
    """Least empirical objective over the ball: accelerated projected gradient, on the Gram matrix where it is small."""
    rows = model.read_rows()
    X, y = rows.blocks[0][0], rows.labels
    n, p = X.shape
    gram = X.T @ X / n if p <= 2000 else None
    moment, square = X.T @ y / n, float(y @ y) / n

    def pull(w: np.ndarray) -> np.ndarray:
        return gram @ w if gram is not None else X.T @ (X @ w) / n

    probe = np.random.default_rng(0).normal(size=p)
    for _ in range(20):
        probe = pull(probe / np.linalg.norm(probe))
    step = 1 / (2.1 * float(np.linalg.norm(probe)))
    w = v = np.zeros(p)
    t, best = 1.0, square
    for _ in range(rounds if gram is not None else 60):
        new = model.domain.project(v - 2 * step * (pull(v) - moment))
        t, last = (1 + math.sqrt(1 + 4 * t * t)) / 2, t
        v, w = new + (last - 1) / t * (new - w), new
        best = min(best, float(w @ pull(w) - 2 * w @ moment) + square)
    return best


def rates(label: float, seeds: int, sizes: list[int], columns: list[int]) -> None:
    mechanisms = {
        "tightened": FRANK_WOLFE,
        "tightened, not clipped": FrankWolfe(clip=math.inf),
        "published": FRANK_WOLFE_AS_PRINTED,
        "Frank-Wolfe without noise, 256 steps": None,
    }
    found: dict[str, dict[tuple[int, int], float]] = {name: {} for name in mechanisms}
    for p in columns:
        for n in sizes:
            if n * p > MOST:
                continue
            model, _ = trial(n, p, label)
            lower_bound = least(model)
            for name, mechanism in mechanisms.items():
                options = OPTIONS
                if mechanism is None:
                    mechanism = FrankWolfe(steps=256, rate=0.0, average=0.0, clip=math.inf)
                    options = replace(options, epsilon=1e6)
                steps = float(mechanism.forecast(model, options).noise["steps"])
                if steps * n * p > MOST_WORK:
                    continue
                excess = [
                    objective(model, mechanism.run(model, options, SeededSource(s)).x) - lower_bound
                    for s in range(seeds)
                ]
                found[name][n, p] = float(np.median(excess))
                print(f"n={n} p={p} {name}: excess {spread(excess, 5)}, {int(steps)} steps", flush=True)
    for name, values in found.items():
        for p in columns:
            ns = [n for n in sizes if (n, p) in values]
            if len(ns) > 1:
                exponent = np.polyfit(np.log(ns), np.log([max(values[n, p], 1e-9) for n in ns]), 1)[0]
                print(f"{name}, p={p}: exponent in n {exponent:.2f} over n = {ns}")
        for n in sizes:
            ps = [p for p in columns if (n, p) in values]
            if len(ps) > 2:
                growth = [round(values[n, p] / values[n, ps[0]], 2) for p in ps]
                print(f"{name}, n={n}: excess over that at p={ps[0]}: {growth} at p = {ps}")


def main() -> None:
    options = parser(__doc__, label=1.5, seeds=3, sizes=[1000, 10000, 100000, 1000000], columns=[10, 100, 1000, 10000])
    given = options.parse_args()
    warnings.simplefilter("ignore")
    rates(given.label, given.seeds, given.sizes, given.columns)


if __name__ == "__main__":
    main()
