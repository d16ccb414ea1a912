"""What compiling with a private matrix costs: construction, lowering and footprint, against CVXPY's own compilation.

Programs
    sparse: maximise sum x subject to A x <= 1, x >= 0, A of 100,000 x 1,000 with a million private non-zeros at
    public positions, one record owning one row.
    dense: minimise the largest entry of A x - b, A of 5,000 x 200 and b private, one record owning row i and entry i
    (a sum of their sizes would be recognised as a regression, which is never lowered).
Compared
    Private + Problem(...).classify(), which is all that is done before a plan, against CVXPY's
    get_problem_data of the same problem with constants, for CLARABEL and for HIGHS, whose compilations differ.
    Runs are interleaved; medians. Memory: peak resident set of a fresh process that does only ours, imports and the
    matrix itself included (printed beside it: the same process without the compilation).
Expectation
    At most 3 times CVXPY's median (the smaller of the two solvers) plus 1 s, and below 1 GB.

    python -m tests.benchmarks.programs.compile_cost
"""

from __future__ import annotations

import gc
import json
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

import dpmodel as dpm
from tests.benchmarks.measuring import Expectations, Table, header, parser, quartiles, short, spread

GIGABYTE = 1e9


def sparse_data(scale: float) -> sp.coo_array:
    rng = np.random.default_rng(0)
    rows, columns, entries = int(100_000 * scale), 1_000, int(1_000_000 * scale)
    flat = (
        rng.choice(rows * columns, entries, replace=False) if scale < 0.1 else _distinct(rng, rows * columns, entries)
    )
    return sp.coo_array((rng.random(flat.size), (flat // columns, flat % columns)), shape=(rows, columns))


def _distinct(rng: np.random.Generator, size: int, entries: int) -> np.ndarray:
    """Exactly ``entries`` distinct positions, sorted, without an array of all positions."""
    flat = np.unique(rng.integers(0, size, int(entries * 1.02)))
    return np.sort(rng.permutation(flat)[:entries])


def dense_data(scale: float) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(int(5_000 * scale), 200))


def sparse_problem(A, kind: type[cp.Problem], private: bool) -> cp.Problem:
    x = cp.Variable(A.shape[1], nonneg=True, name="x")
    left = dpm.Private(A, unit="row", max_l1=1, sparsity=A.coords, name="A") if private else A
    return kind(cp.Maximize(cp.sum(x)), [left @ x <= 1])


def dense_problem(A, kind: type[cp.Problem], private: bool) -> cp.Problem:
    x = cp.Variable(A.shape[1], name="x")
    left = dpm.Private(A, unit="row", max_l2=1, name="A") if private else A
    right = dpm.Private(A[:, 0], unit="entry", max_linf=1, name="b") if private else A[:, 0]
    return kind(cp.Minimize(cp.norm_inf(left @ x - right)), [])


CASES = {"sparse": (sparse_data, sparse_problem), "dense": (dense_data, dense_problem)}


def ours(case: str, data) -> float:
    gc.collect()
    start = time.perf_counter()
    parts = {cell.part for cell in CASES[case][1](data, dpm.Problem, True).classify().cells}
    seconds = time.perf_counter() - start
    if not parts & {"row", "matrix"}:
        raise SystemExit(f"{case}: classified as private {parts}: no matrix was lowered, and nothing is measured")
    return seconds


def theirs(case: str, data, solver: str) -> float:
    gc.collect()
    start = time.perf_counter()
    CASES[case][1](data, cp.Problem, False).get_problem_data(solver)
    return time.perf_counter() - start


def child(case: str, scale: float, compile_it: bool) -> None:
    """Run in a fresh process: build the data, compile ours, print the peak resident set in bytes."""
    data = CASES[case][0](scale)
    if compile_it:
        ours(case, data)
    print(json.dumps(peak_of_this_process()))


def peak_of_this_process() -> float:
    """Bytes. Linux's ru_maxrss survives exec and so may be the parent's; VmHWM is this program's own."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return 1024.0 * int(line.split()[1])
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (1 if sys.platform == "darwin" else 1024)


def peak(case: str, scale: float, compile_it: bool) -> float:
    arguments = [sys.executable, str(Path(__file__).resolve()), "--child", case, "--scale", str(scale)]
    done = subprocess.run(
        arguments + ([] if compile_it else ["--data-only"]), capture_output=True, text=True, check=True
    )
    return float(json.loads(done.stdout.strip().splitlines()[-1]))


def main() -> int:
    cli = parser(__doc__)
    cli.add_argument("--repetitions", type=int, default=5)
    cli.add_argument("--scale", type=float, default=1.0, help="number of rows relative to the stated sizes")
    cli.add_argument("--cases", nargs="+", choices=tuple(CASES), default=list(CASES))
    cli.add_argument("--child", choices=tuple(CASES), help="(internal) measure memory in this process")
    cli.add_argument("--data-only", action="store_true", help="(internal)")
    given = cli.parse_args()
    warnings.simplefilter("ignore", dpm.errors.PossibleLeakWarning)
    if given.child:
        child(given.child, given.scale, not given.data_only)
        return 0
    header()
    expected = Expectations()
    table = Table(
        ("case", 7),
        ("rows x columns, non-zeros", 26),
        ("ours s", 19),
        ("CVXPY CLARABEL s", 19),
        ("CVXPY HIGHS s", 19),
        ("ours/CLARABEL", 13),
        ("ours/HIGHS", 10),
        ("peak MB", 8),
        ("data only MB", 12),
    )
    for case in given.cases:
        data = CASES[case][0](given.scale)
        small = CASES[case][0](given.scale / 100)  # imports and caches
        ours(case, small), theirs(case, small, cp.CLARABEL), theirs(case, small, cp.HIGHS)
        seconds: dict[str, list[float]] = {"ours": [], "CLARABEL": [], "HIGHS": []}
        for _ in range(given.repetitions):
            seconds["ours"].append(ours(case, data))
            for solver in ("CLARABEL", "HIGHS"):
                seconds[solver].append(theirs(case, data, solver))
        memory, base = peak(case, given.scale, True), peak(case, given.scale, False)
        median = {name: quartiles(values)[0] for name, values in seconds.items()}
        entries = data.nnz if sp.issparse(data) else data.size
        table.row(
            case,
            f"{data.shape[0]} x {data.shape[1]}, {entries}",
            *(spread(values) for values in seconds.values()),
            f"{median['ours'] / median['CLARABEL']:.2f}",
            f"{median['ours'] / median['HIGHS']:.2f}",
            f"{memory / 1e6:.0f}",
            f"{base / 1e6:.0f}",
        )
        limit = 3 * min(median["CLARABEL"], median["HIGHS"]) + 1
        expected.expect(median["ours"] <= limit, f"{case}: {short(median['ours'])} s (at most {short(limit)} s)")
        expected.expect(memory < GIGABYTE, f"{case}: peak resident set {memory / 1e6:.0f} MB (below 1000 MB)")
    return expected.close()


if __name__ == "__main__":
    sys.exit(main())
