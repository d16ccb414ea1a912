"""How time and memory of a private program grow with its private numbers, beside those of plain CVXPY on the same one.

Programs (``--cases``), with about as many stored private entries as ``--sizes`` say
    rows: minimise c'x subject to A x >= b over the simplex, 100 columns, A private and signed, 10 entries a row in
    [-1, 1] at public positions, one record owning one row.
    cover: cover every row, A x >= 1, over the box 0 <= x <= 1 with a public budget; A of zeros and ones, 10 entries a
    row, 100 columns, one record owning one row.
    dense: rows with all 100 entries of a row stored in a dense array.
    dense cover: cover with dense rows of 1,000 columns, 1 in 20 of them one.
    transport: a transportation problem of 20 plants, one record moving one unit of demand; the size is the number of
    variables, of which every 20th has a private right-hand side.
Measured
    Processor seconds of construction (CVXPY objects and the sealing of values), classification, plan and solution
    (epsilon 1, delta 1e-6), each case in a process of its own, and its peak resident set less that of a process which
    solves a small one (that loads what there is to load) and makes the data. Plain CVXPY, in another process:
    construction and compilation for HiGHS, and the whole solution, for up to ``--plain`` entries. The exponent is that
    of a power of the size, fitted to all sizes but the smallest, where the fixed costs of a call would hide it.
Expectations
    Exponents at most 1.05; at 1e7 entries (a million people) of rows and cover, plan and classification within 2 s
    each and 1.5 GB.

    python -m tests.benchmarks.programs.growth [--sizes 1e4 1e5 1e6 1e7]
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

import dpmodel as dpm
from tests.benchmarks.measuring import Expectations, Table, header, parser, short
from tests.benchmarks.programs.compile_cost import peak_of_this_process

COLUMNS, A_ROW, PLANTS = 100, 10, 20
PHASES = ("construct", "classify", "plan", "solve")


def sparse_rows(rows: int, low: float) -> sp.coo_array:
    """(rows x 100) 10 entries a row, uniform in [low, 1] or all one."""
    rng = np.random.default_rng(0)
    # One column of every tenth, so that no two entries of a row fall on the same place.
    columns = rng.integers(0, A_ROW, (rows, A_ROW)) + np.arange(0, COLUMNS, COLUMNS // A_ROW)
    entries = rng.uniform(low, 1, columns.size) if low < 0 else np.ones(columns.size)
    return sp.coo_array((entries, (np.repeat(np.arange(rows), A_ROW), columns.ravel())), shape=(rows, COLUMNS))


def rows_data(size: int) -> Any:
    return sparse_rows(size // A_ROW, -1.0)


def cover_data(size: int) -> Any:
    return sparse_rows(size // A_ROW, 0.0)


def dense_data(size: int) -> Any:
    return np.random.default_rng(0).uniform(-1, 1, (size // COLUMNS, COLUMNS))


def dense_cover_data(size: int) -> Any:
    return (np.random.default_rng(0).random((max(size // 1000, 10), 1000)) < 0.05).astype(float)


def transport_data(size: int) -> Any:
    rng = np.random.default_rng(0)
    return rng.integers(20, 100, size // PLANTS).astype(float), rng.random((PLANTS, size // PLANTS))


def matrix(data: Any, private: bool, **declared: Any) -> Any:
    if not private:
        return sp.csr_array(data) if sp.issparse(data) else data
    public = {"sparsity": data.coords} if sp.issparse(data) else {}
    return dpm.Private(data, name="A", unit="row", **declared, **public)


def rows_problem(data: Any, private: bool, kind: type[cp.Problem]) -> cp.Problem:
    x = cp.Variable(data.shape[1], nonneg=True, name="x")
    A = matrix(data, private, bounds=[-1, 1])
    cost = np.linspace(1, 2, data.shape[1])
    return kind(cp.Minimize(cost @ x), [cp.sum(x) == 1, A @ x >= -0.5])


def cover_problem(data: Any, private: bool, kind: type[cp.Problem]) -> cp.Problem:
    x = cp.Variable(data.shape[1], bounds=[0, 1], name="x")
    most = A_ROW if sp.issparse(data) else int(data.sum(axis=1).max())
    A = matrix(data, private, bounds=[0, 1], max_l1=most)
    cost = np.linspace(1, 2, data.shape[1])
    return kind(cp.Minimize(cost @ x), [cost @ x <= 0.6 * cost.sum(), A @ x >= 1])


def transport_problem(data: Any, private: bool, kind: type[cp.Problem]) -> cp.Problem:
    need, cost = data
    x = cp.Variable(cost.shape, nonneg=True, name="x")
    right = dpm.Private(need, name="demand", unit="entry", linf=1, bounds=[0, 100]) if private else need
    supply = np.full(PLANTS, 110.0 * need.size / PLANTS)
    return kind(cp.Minimize(cp.sum(cp.multiply(cost, x))), [cp.sum(x, axis=1) <= supply, cp.sum(x, axis=0) >= right])


Case = tuple[Callable[[int], Any], Callable[[Any, bool, type[cp.Problem]], cp.Problem]]
CASES: dict[str, Case] = {
    "rows": (rows_data, rows_problem),
    "cover": (cover_data, cover_problem),
    "dense": (dense_data, rows_problem),
    "dense cover": (dense_cover_data, cover_problem),
    "transport": (transport_data, transport_problem),
}


def ours(case: str, size: int) -> dict[str, Any]:
    make, model = CASES[case]
    data, out = make(size), {}
    marks = [time.process_time()]
    problem = model(data, True, dpm.Problem)
    marks.append(time.process_time())
    problem.classify()
    marks.append(time.process_time())
    plan = problem.plan(epsilon=1.0, delta=1e-6)
    marks.append(time.process_time())
    problem.solve(epsilon=1.0, delta=1e-6)
    marks.append(time.process_time())
    out = dict(zip(PHASES, np.diff(marks).tolist(), strict=True))
    return {**out, "mechanism": plan.chosen.mechanism if plan.chosen else "none"}


def theirs(case: str, size: int) -> dict[str, Any]:
    make, model = CASES[case]
    data = make(size)
    start = time.process_time()
    problem = model(data, False, cp.Problem)
    problem.get_problem_data(cp.HIGHS)
    compiled = time.process_time()
    problem.solve(solver=cp.HIGHS)
    return {"compile": compiled - start, "solve": time.process_time() - compiled}


def child(what: str, case: str, size: int) -> None:
    """In a fresh process: print the seconds and the peak resident set as JSON; of "... data" the peak alone."""
    run, found = theirs if what.startswith("plain") else ours, {}
    run(case, 1000)  # imports and caches of a first call
    if what.endswith("data"):
        data = CASES[case][0](size)
        del data
    else:
        found = run(case, size)
    print(json.dumps({**found, "peak": peak_of_this_process()}))


def measured(what: str, case: str, size: int, limit: float) -> dict[str, Any] | None:
    """What a process of its own prints; None past ``limit`` seconds or where it dies."""
    arguments = [sys.executable, "-m", "tests.benchmarks.programs.growth", "--child", what]
    arguments += ["--cases", case, "--sizes", str(size)]
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=limit, cwd=Path.cwd())
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        print(done.stderr[-2000:])
        return None
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def exponent(sizes: list[int], values: list[float]) -> float:
    """Least-squares slope of log value against log size, without the smallest size if there are three."""
    first = 1 if len(sizes) > 2 else 0
    if len(sizes) - first < 2:
        return float("nan")
    return float(np.polyfit(np.log(sizes[first:]), np.log(values[first:]), 1)[0])


def main() -> int:
    cli = parser(__doc__, sizes=[1e4, 1e5, 1e6], plain=1e6, limit=600.0)
    cli.add_argument("--cases", nargs="+", choices=tuple(CASES), default=list(CASES))
    cli.add_argument(
        "--child", choices=("ours", "plain", "ours data", "plain data"), help="(internal) measure in this process"
    )
    given = cli.parse_args()
    warnings.simplefilter("ignore", dpm.errors.PossibleLeakWarning)
    sizes = [int(size) for size in given.sizes]
    if given.child:
        child(given.child, given.cases[0], sizes[0])
        return 0
    header()
    expected = Expectations()
    table = Table(
        ("case", 11), ("size", 8), *((f"{name} s", 11) for name in PHASES), ("MB", 6), ("mechanism", 28),
        ("CVXPY compile s", 15), ("solve s", 8), ("MB", 6),
    )  # fmt: skip
    for case in given.cases:
        done: list[tuple[int, float, float]] = []
        for size in sizes:
            found, base = (measured(what, case, size, given.limit) for what in ("ours", "ours data"))
            plain = least = None
            if size <= given.plain:
                plain, least = (measured(what, case, size, given.limit) for what in ("plain", "plain data"))
            cells = ["-"] * 6
            if base and found:
                memory = found["peak"] - base["peak"]
                done.append((size, sum(found[name] for name in PHASES), memory))
                cells = [*(short(found[name]) for name in PHASES), f"{memory / 1e6:.0f}", found["mechanism"]]
                if size >= 1e7 and case in ("rows", "cover"):
                    for name in ("classify", "plan"):
                        expected.expect(found[name] <= 2, f"{case}, {size}: {name} {short(found[name])} s (2 s)")
                    expected.expect(memory <= 1.5e9, f"{case}, {size}: {memory / 1e6:.0f} MB (1500 MB)")
            other = ["-"] * 3
            if plain and least:
                other = [short(plain["compile"]), short(plain["solve"]), f"{(plain['peak'] - least['peak']) / 1e6:.0f}"]
            table.row(case, f"{size:.0e}", *cells, *other)
        if len(done) > 1:
            reached = [size for size, _, _ in done]
            for position, name in ((1, "seconds"), (2, "bytes")):
                power = exponent(reached, [line[position] for line in done])
                expected.expect(power <= 1.05, f"{case}: {name} grow with exponent {power:.2f} (at most 1.05)")
    return expected.close()


if __name__ == "__main__":
    sys.exit(main())
