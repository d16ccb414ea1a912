"""One step of dense multiplicative weights against its sparse product with the private rows, in time and memory.

A step is ``G'y`` with the projected weights, ``G x`` with the point chosen, the update and the projection; the
selection (d scores) is left out. Time: medians over the steps of a run, whose weights spread as in a real one: some
rows are violated by every point. Memory: the peak of a run beside G and h (tracemalloc), in vectors of m numbers.

    python -m tests.benchmarks.programs.dense_weights_speed --rows 1000000 --columns 100 --per-row 10
    python -m tests.benchmarks.programs.dense_weights_speed --rows 1000000 --columns 100 --per-row 100
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from types import SimpleNamespace

import numpy as np
import scipy.sparse as sp

from dpmodel.programs.dense_weights import DenseMeasure, Plan, descend
from tests.benchmarks.measuring import Expectations, Table, header, parser, short


def private_matrix(m: int, d: int, per_row: int, rng: np.random.Generator) -> sp.csr_array:
    """(m x d) rows with ``per_row`` entries in [-1, 0] (coverage, written as <=)."""
    if per_row >= d:
        columns = np.tile(np.arange(d, dtype=np.int32), m)
        per_row = d
    else:
        columns = (rng.integers(0, d, (m, 1)) + np.sort(rng.choice(d, (1, per_row), replace=False))) % d
        columns = np.sort(columns, axis=1).astype(np.int32).ravel()
    return sp.csr_array((-rng.random(m * per_row), columns, np.arange(0, m * per_row + 1, per_row)), shape=(m, d))


def median(seconds: list[float]) -> float:
    return float(np.median(seconds))


def step_seconds(G: sp.csr_array, h: np.ndarray, density: int, steps: int, rate: float) -> dict[str, float]:
    """Medians of the parts of a step, and of the whole."""
    m, d = G.shape
    measure, points, h = DenseMeasure(m, density), np.eye(d) * 4, h * rate
    parts: dict[str, list[float]] = {name: [] for name in ("G'y", "G x", "projection", "update", "step")}
    for _ in range(steps):
        clock = [time.perf_counter()]
        y = measure.projected()
        clock.append(time.perf_counter())
        average = G.T @ y
        clock.append(time.perf_counter())
        x = points[int(np.argmin(average))]
        gain = G @ (rate * x)
        clock.append(time.perf_counter())
        gain -= h
        measure.add(gain)
        del gain
        clock.append(time.perf_counter())
        for name, taken in zip(("projection", "G'y", "G x", "update"), np.diff(clock), strict=True):
            parts[name].append(float(taken))
        parts["step"].append(clock[-1] - clock[0])
    return {name: median(taken) for name, taken in parts.items()}


def peak_vectors(G: sp.csr_array, h: np.ndarray, density: int, rate: float) -> float:
    """Peak memory of a run of four steps beside G and h, in vectors of m numbers."""
    m, d = G.shape
    rows = SimpleNamespace(count=m, values=lambda theta: (G, h))
    polytope = SimpleNamespace(size=d, nearest=lambda x: x)
    plan = Plan(density, 4, rate, 0, "best vertex")
    tracemalloc.start()
    descend(rows, polytope, plan, lambda u: np.eye(d)[int(np.argmin(u))] * 4, np.zeros(0), lambda *_: None)  # type: ignore[arg-type]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / (8 * m)


def main() -> int:
    cli = parser(__doc__, rows=1_000_000, columns=100, steps=31, densities=[1000, 10000, 100000, 300000])
    cli.add_argument("--per-row", type=int, default=10, help="non-zeros of a row")
    cli.add_argument("--times", type=float, default=3.0, help="largest ratio expected")
    given = cli.parse_args()
    header()
    G = private_matrix(given.rows, given.columns, given.per_row, np.random.default_rng(0))
    h = np.full(given.rows, -1.0)
    print(f"G: {given.rows} x {given.columns}, {G.nnz} non-zeros; milliseconds\n")
    expected = Expectations()
    names = ("projection", "G'y", "G x", "update", "step")
    table = Table(("s", 8), *((name, 10) for name in names), ("step / mean product", 20), ("vectors", 8))
    for density in given.densities:
        rate = np.sqrt(8 * np.log(given.rows / density) / 200) / 4
        found = step_seconds(G, h, density, given.steps, rate)
        ratio = found["step"] / ((found["G'y"] + found["G x"]) / 2)
        vectors = peak_vectors(G, h, density, rate)
        table.row(density, *(short(1e3 * found[name]) for name in names), short(ratio), short(vectors))
        expected.expect(ratio <= given.times, f"s = {density}: a step costs {ratio:.2f} products (at most 3)")
        expected.expect(vectors <= 3.05, f"s = {density}: {vectors:.2f} vectors beside G and h (at most 3)")
    return expected.close()


if __name__ == "__main__":
    sys.exit(main())
