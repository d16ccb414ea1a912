"""Programs in which one person owns one constraint, over people x 100 items, of which a person has five.

``python -m tests.benchmarks.data.one_row_each --rows 1000000 10000000``, each size in a process of its own; 1e7 people
take 1 GB. ``A @ x >= 1`` with ``0 <= x <= 1`` and a target for ``sum x``.

First table: a sparse matrix in memory. ``plan`` : ``Problem(...).plan`` from nothing to the choice, seconds of the
processor. ``product`` : ``A @ x``. Then the time of one step, in products: of hinge descent (a product, what each row
has to say, a product with the transpose, noise, a projection), and of dense multiplicative weights (two products, a
projection of all weights, a choice). ``peak`` : the process's largest memory, and what of it was there before the plan.

Second table (``--block-rows``): the same matrix as blocks of parquet on disk. ``sum`` : every block read and added up.
Then, in such sums, a step of hinge descent (one pass), and an average of dense multiplicative weights with what it
takes to find the threshold (several passes, ``passes``).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp

import dpmodel as dpm
from dpmodel.contract import no_progress
from dpmodel.marks.row_sources import ParquetBlocks
from dpmodel.marks.rows import SourceRows
from dpmodel.privacy import SeededSource
from dpmodel.programs.dense_weights import DENSE_MULTIPLICATIVE_WEIGHTS, RecomputedWeights
from dpmodel.programs.goals import best_route
from dpmodel.programs.hinge import NOISY_HINGE_DESCENT
from dpmodel.programs.rows import private_rows
from tests.benchmarks.data.blocks import least, peak
from tests.benchmarks.measuring import PACKAGES, Expectations, Table, header, parser

ITEMS, EACH = 100, 5
STEPS = 10
GROUP = 1 << 18
ENGINES = {"hinge": NOISY_HINGE_DESCENT, "dense": DENSE_MULTIPLICATIVE_WEIGHTS}


def matrix(rows: int, seed: int = 0) -> sp.csr_array:
    """(rows, ITEMS) zeros and ones: one item in each fifth of the list."""
    rng, fifth = np.random.default_rng(seed), ITEMS // EACH
    places = rng.integers(0, fifth, size=(rows, EACH), dtype=np.int32) + fifth * np.arange(EACH, dtype=np.int32)
    starts = EACH * np.arange(rows + 1, dtype=np.int32)
    return sp.csr_array((np.ones(rows * EACH), places.ravel(), starts), shape=(rows, ITEMS))


def problem(A: Any) -> dpm.Problem:
    x = cp.Variable(ITEMS, name="x", nonneg=True)
    return dpm.Problem(cp.Minimize(cp.sum(x)), [A @ x >= 1, x <= 1])


def in_memory(rows: int, repeats: int) -> dict[str, float]:
    A = dpm.Private(matrix(rows), name="A", unit="row", positions="private", bounds=(0, 1), max_l1=EACH)
    before, start = peak(), time.process_time()
    asked = problem(A)
    asked.plan(epsilon=1, delta=1e-6)
    plan, model = time.process_time() - start, asked._model(None)
    whole: Any = model.read_rows()
    (sealed,), x = whole.owned, np.full(ITEMS, 0.2)
    work: dict[str, Callable[[], Any]] = {"product": lambda: sealed @ x}
    work |= {name: stepping(engine, asked, whole) for name, engine in ENGINES.items()}
    found = least(work, repeats, time.process_time)
    return {**found, "plan": plan, "before": before, "peak": peak()}


def stepping(engine: Any, asked: dpm.Problem, rows: Any) -> Callable[[], Any]:
    """``STEPS`` steps of an engine."""
    plan = asked.plan(1, 1e-6, mechanism=engine.name, goal=dpm.Target(30.0))
    route = best_route(asked._model(None), engine, plan.options)
    assert route is not None
    promise = replace(route.promise, plan=replace(route.promise.plan, steps=STEPS))
    return lambda: engine.point(route.task, promise, rows, SeededSource(0), no_progress)


def flags_of(block: Any) -> tuple[Any, ...]:
    return tuple(block[f"item {j}"].to_numpy() for j in range(ITEMS))


def in_blocks(path: str, repeats: int) -> dict[str, float]:
    source = ParquetBlocks(path, rows=GROUP)
    A = dpm.Private(SourceRows(source, flags_of, ITEMS), name="A", unit="row", bounds=(0, 1), max_l1=EACH)
    before, start = peak(), time.process_time()
    asked = problem(A)
    asked.plan(epsilon=1, delta=1e-6)
    plan, model = time.process_time() - start, asked._model(None)
    facts, rows = private_rows(model), model.read_rows()
    passes = [0]

    def plain(block: Any, number: int) -> Any:
        return np.array([column.sum() for column in flags_of(block)])

    def average() -> None:
        table, rng = facts.table(rows), np.random.default_rng(0)
        read = type(source).map_reduce
        passes[0] = 0

        def counted(self: Any, *given: Any) -> Any:
            passes[0] += 1
            return read(self, *given)

        weights = RecomputedWeights(
            table, facts.count, 0.3, facts.count // 10, 0, facts.residual_range(model.public.polyhedron)
        )
        for _ in range(5):
            weights.learn((rng.uniform(size=ITEMS) < 0.3).astype(float))
        weights._threshold -= 0.2  # about where a step before would have left it
        ParquetBlocks.map_reduce = counted  # type: ignore[method-assign]
        try:
            weights.average()
        finally:
            ParquetBlocks.map_reduce = read  # type: ignore[method-assign]

    hinge = stepping(NOISY_HINGE_DESCENT, asked, rows)
    work: dict[str, Callable[[], Any]] = {
        "sum": lambda: source.map_reduce(plain, np.add),
        "hinge": hinge,
        "dense": average,
    }
    found = least(work, repeats, time.process_time)
    return {**found, "plan": plan, "passes": passes[0], "before": before, "peak": peak()}


def write(path: Path, rows: int) -> None:
    schema = pa.schema([(f"item {j}", pa.int8()) for j in range(ITEMS)])
    with pq.ParquetWriter(path, schema) as file:
        for start in range(0, rows, GROUP):
            flags = matrix(min(GROUP, rows - start), seed=start).toarray().astype(np.int8)
            file.write_table(pa.table([*flags.T], schema=schema), row_group_size=GROUP)


def told(what: str, options: Any) -> dict[str, float]:
    """What a process of its own says."""
    ask = [sys.executable, "-m", "tests.benchmarks.data.one_row_each", "--of", what, "--repeats", str(options.repeats)]
    found: dict[str, float] = json.loads(subprocess.run(ask, check=True, capture_output=True, text=True).stdout)
    return found


def main() -> int:
    options = parser(__doc__, rows=[1_000_000, 10_000_000], repeats=3, of="", block_rows=[1_000_000]).parse_args()
    if options.of:
        warnings.simplefilter("ignore")
        made = (
            in_memory(int(options.of), options.repeats)
            if options.of.isdigit()
            else in_blocks(options.of, options.repeats)
        )
        print(json.dumps(made))
        return 0
    header((*PACKAGES, "pyarrow"))
    expected = Expectations()
    memory = (("before, MB", 10), ("peak, MB", 8))
    table = Table(("rows", 9), ("plan, s", 7), ("product, s", 10), ("hinge step", 10), ("dense step", 10), *memory)
    for rows in options.rows:
        found = told(str(rows), options)
        steps = [found[name] / STEPS / found["product"] for name in ENGINES]
        shown = [f"{each:.2f}" for each in steps] + [f"{found[kind]:.0f}" for kind in ("before", "peak")]
        table.row(f"{rows:.0e}", f"{found['plan']:.2f}", f"{found['product']:.4f}", *shown)
        expected.expect(found["plan"] < 1, f"{rows:,} rows: a plan takes {found['plan']:.2f} s; 1 wanted")
        expected.expect(max(steps) <= 3, f"{rows:,} rows: a step takes {max(steps):.2f} products; 3 wanted")
    print()
    table = Table(
        ("rows", 9), ("plan, s", 7), ("sum, s", 10), ("hinge step", 10), ("dense step", 10), ("passes", 6), *memory
    )
    with tempfile.TemporaryDirectory() as folder:
        for rows in options.block_rows:
            path = Path(folder) / f"{rows}.parquet"
            write(path, rows)
            found = told(str(path), options)
            steps = [found["hinge"] / STEPS / found["sum"], found["dense"] / found["sum"]]
            shown = [f"{each:.2f}" for each in steps] + [f"{found[kind]:.0f}" for kind in ("passes", "before", "peak")]
            table.row(f"{rows:.0e}", f"{found['plan']:.2f}", f"{found['sum']:.3f}", *shown)
            expected.expect(found["peak"] < 2000, f"{rows:,} rows in blocks: {found['peak']:.0f} MB; 2 GB wanted")
    return expected.close()


if __name__ == "__main__":
    sys.exit(main())
