"""Speed and memory of one step of primal multiplicative weights, against its one product with the private rows.

Two sizes: many rows (m = 1e6, d = 100) and query release (d = 1e6 cells, thousands of rows). Each step makes one
product, one selection over all rows and one update by a sparse row. Memory is what the game allocates
beside the rows, in vectors of d (or m, whichever is longer) floats.

    python -m tests.benchmarks.programs.primal_weights_speed
"""

from __future__ import annotations

import sys
import time
import tracemalloc

import numpy as np
import scipy.sparse as sp

from dpmodel.contract import no_progress
from dpmodel.numerics.polyhedron import Polyhedron
from dpmodel.numerics.simplex_form import SimplexForm
from dpmodel.privacy import ExactSource
from dpmodel.programs.weights import PrivateRowsNow, play
from tests.benchmarks.measuring import Expectations, header, parser, short


def rows_of(m: int, d: int, per_row: int, seed: int) -> sp.csr_array:
    """(m x d) random rows with about ``per_row`` ones each."""
    rng = np.random.default_rng(seed)
    columns = rng.integers(0, d, size=(m, per_row), dtype=np.int32)
    columns.sort(axis=1)
    indptr = np.arange(0, m * per_row + 1, per_row, dtype=np.int64)
    A = sp.csr_array((np.ones(m * per_row), columns.ravel(), indptr), shape=(m, d))
    A.sum_duplicates()
    return A


def simplex(d: int) -> tuple[SimplexForm, Polyhedron]:
    """The unit simplex as a public set and in simplex form."""
    none = np.zeros(0, dtype=np.int64)
    polytope = Polyhedron(
        sp.csr_array((0, d)), np.zeros(0), sp.csr_array(np.ones((1, d))), np.ones(1), np.zeros(d), np.full(d, np.inf)
    )
    return SimplexForm(np.zeros(d), np.ones(d), none, 1.0, False), polytope


def measure(name: str, m: int, d: int, per_row: int, steps: int) -> tuple[float, float]:
    """Median step over median product, and extra memory in vectors."""
    A = rows_of(m, d, per_row, 1)
    form, polytope = simplex(d)
    x = np.full(d, 1 / d)
    h = A @ x
    A @ x
    products = []
    for _ in range(9):
        start = time.perf_counter()
        A @ x
        products.append(time.perf_counter() - start)
    twins = np.zeros(0, dtype=np.int64)
    now = PrivateRowsNow((A,), np.zeros(m), h, twins, np.inf)

    def row(i: int) -> tuple[np.ndarray, np.ndarray]:
        part = slice(A.indptr[i], A.indptr[i + 1])
        return A.indices[part], A.data[part]

    marks: list[float] = []

    def scale(x: np.ndarray) -> float:
        marks.append(time.perf_counter())
        return 0.01

    tilt = np.zeros(d)

    def run(count: int) -> None:
        play(
            form, polytope, now, row, scale,
            tilt=tilt, steps=count, rate=0.1, source=ExactSource(), progress=no_progress,
        )  # fmt: skip

    run(2)
    marks.clear()
    run(steps)
    step = float(np.median(np.diff(marks)))
    tracemalloc.start()
    run(2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    product = float(np.median(products))
    vectors = peak / 8 / max(m, d)
    print(
        f"{name:<16} m={m:<8} d={d:<8} nnz={A.nnz:<10} product {short(1e3 * product)} ms   step {short(1e3 * step)} ms"
        f"   ratio {short(step / product)}   memory {short(vectors)} vectors of {max(m, d)}"
    )
    return step / product, vectors


def main() -> int:
    options = parser(__doc__)
    options.parse_args()
    header(("dpmodel", "numpy", "scipy"))
    size, steps = 1_000_000, 15
    many, many_memory = measure("many rows", size, 100, 20, steps)
    query, query_memory = measure("query release", 4000, size, size // 200, steps)
    expected = Expectations()
    expected.expect(many <= 3, "many rows: one step costs at most 3 products")
    expected.expect(query <= 3, "query release: one step costs at most 3 products")
    # d floats for a weight vector: log weights, weights and their sum, and a temporary of the exponentials.
    expected.expect(query_memory <= 3.1, "query release: at most 3 copies of the weight vector beside A")
    expected.expect(many_memory <= 3.1, "many rows: at most 3 vectors of scores beside A")
    return expected.close()


if __name__ == "__main__":
    sys.exit(main())
