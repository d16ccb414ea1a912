"""Regressions over parquet on disk: memory and time of a pass, beside a plain sum over the same blocks.

``python -m tests.benchmarks.data.blocks --rows 1000000 10000000``; a table of 1e7 x 21 takes 1.9 GB of disk, written
as pyarrow does it unless told otherwise.

First table: each size in a process of its own, 20 columns and a label. ``sum``: every block read by pyarrow, every
column added up. ``gradient``: one pass of noisy descent over the same blocks (numbers checked and clipped,
predictions, derivatives, their sum); ``gram``: one of sufficient statistics. Seconds of the processor, the least of
``--repeats`` interleaved; ratios to ``sum``. ``solve``: all of a least-squares regression, plan included, seconds of
the clock. ``peak``: the process's largest memory, and what of it was there before the first pass. ``growth``: exponents
against the size before.

Second table: one ``gram`` pass over pandas frames in memory (``--dask-rows``), seconds of the clock, so that other work
on the machine counts: in one process, and persisted on two Dask workers of one thread each, in partitions of 88 MB
(Dask advises 100 MB).
"""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dpmodel as dpm
from dpmodel.marks.row_sources import DaskBlocks, MemoryBlocks, ParquetBlocks
from dpmodel.marks.rows import RowSource, SourceRows
from dpmodel.regressions.losses import Loss
from dpmodel.regressions.moments import layout_of, summed
from dpmodel.regressions.noisy_gradient import part_gradient
from tests.benchmarks.measuring import PACKAGES, Expectations, Table, header, parser

P = 20
NAMES = [*(f"x{j}" for j in range(P)), "label"]
GROUP = 1 << 18  # rows of a row group, and of a block


def write(path: Path, rows: int) -> None:
    """Features in [-1, 1], labels near a linear function of them."""
    rng = np.random.default_rng(0)
    w = np.linspace(-1, 1, P)
    schema = pa.schema([(name, pa.float64()) for name in NAMES])
    with pq.ParquetWriter(path, schema) as file:
        for start in range(0, rows, GROUP):
            X = rng.uniform(-1, 1, size=(min(GROUP, rows - start), P))
            y = X @ w / 4 + rng.normal(size=len(X)) / 4
            file.write_table(pa.table([*X.T, y], schema=schema), row_group_size=GROUP)


def features_of(block: Any) -> tuple[Any, ...]:
    return tuple(_column(block, name) for name in NAMES[:-1])


def labels_of(block: Any) -> np.ndarray:
    return np.asarray(_column(block, "label"))


def _column(block: Any, name: str) -> Any:
    return block[name].to_numpy()


def plain(block: Any, number: int) -> np.ndarray:
    return np.array([_column(block, name).sum() for name in NAMES])


def problem(source: RowSource) -> dpm.Problem:
    people = dpm.Records("people")
    X = dpm.Private(SourceRows(source, features_of, P), name="X", unit="row", bounds=(-1, 1), records=people)
    y = dpm.Private(SourceRows(source, labels_of, None), name="y", unit="entry", bounds=(-2, 2), records=people)
    w = cp.Variable(P, name="w")
    return dpm.Problem(cp.Minimize(cp.sum_squares(X @ w - y) / source.count), [cp.norm(w) <= 3])


def least(work: dict[str, Callable[[], Any]], repeats: int, clock: Callable[[], float]) -> dict[str, float]:
    """Seconds of each, the least of so many."""
    out = dict.fromkeys(work, math.inf)
    for _ in range(repeats):
        for name, each in work.items():
            start = clock()
            each()
            out[name] = min(out[name], clock() - start)
    return out


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def gradient(table: Any) -> Any:
    return table.map_reduce(partial(part_gradient, loss=Loss("squared"), w=np.full(P, 0.1), reach=4.0))


def measured(path: str, repeats: int) -> dict[str, float]:
    """Of one file, in this process."""
    warnings.simplefilter("ignore")
    source = ParquetBlocks(path, rows=GROUP)
    asked = problem(source)
    asked.plan(epsilon=1, delta=1e-6)
    model: Any = asked._model(None)
    layout, table, before = layout_of(model, False), model.read_table(), peak()
    assert layout is not None
    work = {
        "sum": lambda: source.map_reduce(plain, np.add),
        "gradient": lambda: gradient(table),
        "gram": lambda: summed(layout, table),
    }
    seconds = least(work, repeats, time.process_time)
    start = time.perf_counter()
    problem(source).solve(epsilon=1, delta=1e-6, mechanism="sufficient-statistics")
    return {**seconds, "solve": time.perf_counter() - start, "before": before, "peak": peak()}


def passes(folder: Path, options: Any, expected: Expectations) -> None:
    columns = (("rows", 9), ("sum, s", 7), ("gradient", 8), ("gram", 6), ("solve, s", 8), ("before, MB", 10))
    table = Table(*columns, ("peak, MB", 8), ("growth of sum, gradient, gram", 29))
    last: tuple[int, dict[str, float]] | None = None
    for rows in options.rows:
        path = folder / f"{rows}.parquet"
        write(path, rows)
        ask = [sys.executable, "-m", "tests.benchmarks.data.blocks", "--of", str(path), "--repeats", options.repeats]
        found = json.loads(subprocess.run(list(map(str, ask)), check=True, capture_output=True, text=True).stdout)
        kinds, growth = ("sum", "gradient", "gram"), "-"
        if last is not None:
            ratio = math.log(rows / last[0])
            exponents = [math.log(found[kind] / last[1][kind]) / ratio for kind in kinds]
            growth = ", ".join(f"{each:.2f}" for each in exponents)
            expected.expect(max(exponents[1:]) <= 1.05, f"growth up to {rows:,} rows: {growth}; 1.05 wanted")
        ratios = [found[kind] / found["sum"] for kind in kinds[1:]]
        shown = [f"{ratio:.2f}" for ratio in ratios]
        memory = [f"{found[kind]:.0f}" for kind in ("before", "peak")]
        table.row(f"{rows:.0e}", f"{found['sum']:.2f}", *shown, f"{found['solve']:.1f}", *memory, growth)
        expected.expect(found["peak"] < 2000, f"{rows:,} rows: {found['peak']:.0f} MB; 2 GB wanted")
        expected.expect(ratios[0] <= 1.5, f"{rows:,} rows: a gradient takes {ratios[0]:.2f} plain sums; 1.5 wanted")
        last = rows, found
    print()


def workers(path: Path, repeats: int, expected: Expectations) -> None:
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    table = Table(("one process, s", 14), ("two workers, s", 14), ("times faster", 12))
    with pq.ParquetFile(path) as file:
        frames = [file.read_row_group(k).to_pandas() for k in range(file.num_row_groups)]
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster):
        there = dd.read_parquet(path, split_row_groups=2).persist()
        models: list[Any] = [problem(each)._model(None) for each in (MemoryBlocks(frames), DaskBlocks(there))]
        layout = layout_of(models[0], False)
        assert layout is not None
        one, two = (partial(summed, layout, model.read_table()) for model in models)
        np.testing.assert_allclose(one().gram, two().gram, rtol=1e-9)
        work: dict[str, Callable[[], Any]] = {"one": one, "two": two}
        seconds = least(work, repeats, time.perf_counter)
    faster = seconds["one"] / seconds["two"]
    table.row(f"{seconds['one']:.2f}", f"{seconds['two']:.2f}", f"{faster:.2f}")
    expected.expect(faster >= 1.6, f"two workers are {faster:.2f} times as fast as one process; 1.6 wanted")


def main() -> int:
    made = parser(__doc__, rows=[1_000_000, 10_000_000], repeats=3, of="", dask_rows=30_000_000)
    options = made.parse_args()
    if options.of:
        print(json.dumps(measured(options.of, options.repeats)))
        return 0
    header((*PACKAGES, "pyarrow", "dask"))
    expected = Expectations()
    with tempfile.TemporaryDirectory() as folder:
        passes(Path(folder), options, expected)
        path = Path(folder) / f"{options.dask_rows}.parquet"
        if not path.exists():
            write(path, options.dask_rows)
        workers(path, options.repeats, expected)
    return expected.close()


if __name__ == "__main__":
    sys.exit(main())
