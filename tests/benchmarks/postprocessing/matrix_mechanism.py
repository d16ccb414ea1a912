"""The matrix mechanism: published per-query errors attained by least squares, and what other likelihoods change.

``--published``: CSV of HDMM's one-dimensional workloads, columns domain, workload, Identity, H2, Wavelet, HB: per-query
root mean square error at unit noise under L2 sensitivity, ||A||_(1->2) ||W A^+||_F / sqrt(m). Shown beside it: the same
formula from our matrices, and the error of the package's post-processing on simulated Gaussian noise (no sign
constraint), whose own standard error is given.

``--data``: FOLDER with ``01_hist_dpbench``; Lee, Wang and Kifer 2015, figure 5.3: histograms of 4,096 bins summed to
1,024, Laplace noise for epsilon .1 under L1 sensitivity, workloads identity, 512 random 0/1 predicates and all ranges;
negative answers become 0. MM(2): least squares. MM(2)+: least squares with cells >= 0. MM(1): maximum likelihood with
cells >= 0 by ADMM (Algorithm 4), which ends at one of many optima; ``exact``: the optimum that the exact tree solver
chooses, where the strategy is a tree. Their strategy came from a semidefinite program's approximation; here it is H2,
Wavelet, HB and identity.

Strategies: H2 a binary tree with its root; HB the tree without root whose branching minimises Qardaji, Yang and Li's
(b - 1) h^3 - 2 (b + 1) h^2 / 3, h = ceil(log_b n), blocks as even as they can be; Wavelet the (+1, -1) Haar sums.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dpmodel.released.form import LikelihoodForm
from dpmodel.released.model import Postprocessing
from tests.benchmarks.measuring import Expectations, Table, data_path, header, parser, spread
from tests.benchmarks.postprocessing.baselines import haar
from tests.benchmarks.postprocessing.solvers import exact_tree, solve

Floats = npt.NDArray[np.float64]
STRATEGIES = ("Identity", "H2", "Wavelet", "HB")
SETS = ("ADULTFRANK_n4096", "MEDCOST_n4096", "HEPTH_n4096")


def block_rows(edges: Floats, n: int) -> sp.csr_array:
    """One row per block edges[i]:edges[i + 1]."""
    return sp.csr_array((np.ones(n), (np.searchsorted(edges, np.arange(n), side="right") - 1, np.arange(n))))


def even_tree(n: int, branching: int, root: bool) -> sp.csr_array:
    """Blocks split into ``branching`` parts of sizes ceil(size (i + 1) / b), level by level, down to single cells."""
    edges, levels = np.array([0, n]), []
    while True:
        if root or edges.size > 2:
            levels.append(block_rows(edges, n))
        if edges.size == n + 1:
            return sp.csr_array(sp.vstack(levels))
        width = np.diff(edges)[:, None]
        parts = edges[:-1, None] + np.ceil(width * np.arange(1, branching + 1) / branching)
        edges = np.unique(np.concatenate([[0], parts.astype(int).ravel()]))


def best_branching(n: int) -> int:
    def cost(b: int) -> float:
        h = math.ceil(math.log(n, b))
        return (b - 1) * h**3 - 2 * (b + 1) * h**2 / 3

    return min(range(2, n + 1), key=cost)


def strategy(name: str, n: int) -> sp.csr_array:
    if name == "Identity":
        return sp.csr_array(sp.eye_array(n))
    if name == "Wavelet":
        return sp.csr_array(haar(np.eye(n)).T)
    return even_tree(n, 2, True) if name == "H2" else even_tree(n, best_branching(n), False)


def workload(name: str, n: int) -> tuple[Floats, int]:
    """(Gram matrix, number of queries)."""
    i = np.arange(n)
    if name == "identity":
        return np.eye(n), n
    if name == "all-range":
        return (np.minimum.outer(i, i) + 1.0) * (n - np.maximum.outer(i, i)), n * (n + 1) // 2
    if name == "prefix":
        return n - np.maximum.outer(i, i) * 1.0, n
    width = int(name.removeprefix("width"))
    lowest, highest = np.maximum(np.maximum.outer(i, i) - width + 1, 0), np.minimum(np.minimum.outer(i, i), n - width)
    return np.maximum(highest - lowest + 1.0, 0.0), n - width + 1


def closed_form(A: sp.csr_array, gram: Floats, queries: int) -> float:
    inner = (A.T @ A).toarray()
    return math.sqrt(np.trace(np.linalg.solve(inner, gram)) * inner.diagonal().max() / queries)


def simulated(
    A: sp.csr_array, grams: dict[str, tuple[Floats, int]], runs: int
) -> tuple[dict[str, tuple[float, float]], float]:
    """(root mean square error, its standard error) by workload, over Gaussian noise through the package's solver; and
    the largest distance from a direct dense least-squares solution, in units of its error."""
    rng = np.random.default_rng(A.shape)
    inner = (A.T @ A).toarray()
    sigma, inverse = math.sqrt(inner.diagonal().max()), np.linalg.inv(inner)
    squares: dict[str, list[float]] = {name: [] for name in grams}
    x = rng.integers(0, 50, A.shape[1]).astype(float)
    apart = 0.0
    for _ in range(runs):
        noisy = A @ x + rng.normal(scale=sigma, size=A.shape[0])
        found, direct = solve(LikelihoodForm.of(A, noisy, square=0.5 / sigma**2)), inverse @ (A.T @ noisy)
        error = found - x
        apart = max(apart, float(np.linalg.norm(found - direct) / np.linalg.norm(direct - x)))
        for name, (gram, queries) in grams.items():
            squares[name].append(float(error @ gram @ error) / queries)
    out = {}
    for name, held in squares.items():
        root, (gram, queries) = math.sqrt(np.mean(held)), grams[name]
        product = inverse @ gram * (sigma**2 / queries)
        out[name] = root, math.sqrt(2 * np.sum(product * product.T) / runs) / (2 * root)
    return out, apart


def published(path: Path, largest: int, runs: int, expected: Expectations) -> None:
    print("per-query error at unit noise: published / formula / simulated through the package (standard error)")
    table = Table(("domain", 6), ("workload", 10), *((name, 34) for name in STRATEGIES))
    with path.open() as lines:
        rows = [row for row in csv.DictReader(lines) if int(row["domain"]) <= largest]
    worst, far, apart = 0.0, 0.0, 0.0
    for n in sorted({int(row["domain"]) for row in rows}):
        mine = {row["workload"]: row for row in rows if int(row["domain"]) == n}
        grams = {name: workload(name, n) for name in mine}
        matrices = {name: strategy(name, n) for name in STRATEGIES}
        sampled = {}
        for method, A in matrices.items():
            sampled[method], off = simulated(A, grams, runs)
            apart = max(apart, off)
        for name, row in mine.items():
            cells = []
            for method, A in matrices.items():
                paper, formula = float(row[method]), closed_form(A, *grams[name])
                drawn, error = sampled[method][name]
                worst = max(worst, abs(formula / paper - 1))
                far = max(far, abs(drawn - paper) / error)
                cells.append(f"{paper:.6g} / {formula:.6g} / {drawn:.4g} ({error:.2g})")
            table.row(n, name, *cells)
    print()
    expected.expect(worst < 1e-6, f"the formula gives the published figures, off by {worst:.1e} relative at most")
    expected.expect(
        apart < 1e-4, f"the package's solution is the least-squares one, {apart:.1e} of its error off at most"
    )
    expected.expect(far < 4.5, f"post-processing attains them, {far:.1f} standard errors off at most")


def range_answers(x: Floats) -> Floats:
    running = np.concatenate([[0.0], np.cumsum(x)])
    low, high = np.triu_indices(x.size + 1, 1)
    return np.asarray(running[high] - running[low])


METHODS = ("MM(2)", "MM(2)+", "MM(1)", "MM(1) exact")


def estimates(A: sp.csr_array, noisy: Floats, scale: float) -> dict[str, Floats]:
    likelihood = LikelihoodForm.of(A, noisy, absolute=1 / scale, lower=0.0)
    found = {
        "MM(2)": solve(LikelihoodForm.of(A, noisy, square=scale**-2)),
        "MM(2)+": solve(LikelihoodForm.of(A, noisy, square=scale**-2, lower=0.0)),
        "MM(1)": solve(likelihood),
    }
    tree = Postprocessing(likelihood, ()).tree_problem()
    return found if tree is None else found | {"MM(1) exact": exact_tree(tree)[tree.select]}


def likelihoods(folder: Path, sets: list[str], runs: int, epsilon: float) -> None:
    widths = ((name, 30) for name in METHODS)
    table = Table(("data", 18), ("strategy", 8), ("workload", 9), *widths, ("MM(1)/MM(2)", 11), ("/MM(2)+", 8))
    least = dict.fromkeys(METHODS, 0)
    for data in sets:
        with np.load(folder / "01_hist_dpbench" / f"{data}.npz") as held:
            x = held["x"].astype(float).reshape(1024, -1).sum(axis=1)
        rng = np.random.default_rng(1)
        predicates = rng.integers(0, 2, (512, x.size)).astype(float)
        answer: dict[str, Callable[[Floats], Floats]] = {
            "identity": np.asarray,
            "predicate": predicates.__matmul__,
            "all-range": range_answers,
        }
        truth = {name: ask(x) for name, ask in answer.items()}
        print(f"{data}: N = {x.sum():g}, {np.mean(x == 0):.1%} of 1,024 bins empty, epsilon {epsilon:g}")
        for name in STRATEGIES:
            A = strategy(name, x.size)
            scale = float(np.abs(A).sum(axis=0).max()) / epsilon
            found: dict[tuple[str, str], list[float]] = {}
            for _ in range(runs):
                noisy = A @ x + rng.laplace(scale=scale, size=A.shape[0])
                for method, estimate in estimates(A, noisy, scale).items():
                    for query, ask in answer.items():
                        error = np.maximum(ask(estimate), 0.0) - truth[query]
                        found.setdefault((query, method), []).append(float(np.mean(np.square(error))))
            for query in answer:
                medians = {
                    method: float(np.median(found[query, method])) for method in METHODS if (query, method) in found
                }
                if name != "Identity":
                    least[min(medians, key=medians.__getitem__)] += 1
                cells = [spread(found.get((query, method), [])) for method in METHODS]
                one = medians.get("MM(1) exact", medians["MM(1)"])
                table.row(data, name, query, *cells, *(f"{one / medians[rival]:.2f}" for rival in METHODS[:2]))
    print(
        "least MSE, identity strategy aside: " + ", ".join(f"{method} {count} times" for method, count in least.items())
    )


def main() -> int:
    reading = parser(__doc__, sets=list(SETS), epsilon=0.1, repetitions=20)
    reading.add_argument("--published", type=data_path("*.csv"), metavar="CSV")
    reading.add_argument("--data", type=data_path("*.npz"), metavar="FOLDER")
    reading.add_argument("--largest", type=int, default=1024, help="largest published domain")
    options = reading.parse_args()
    header(("dpmodel", "numpy", "scipy"))
    expected = Expectations()
    if options.published is not None:
        published(options.published, options.largest, options.repetitions, expected)
    if options.data is not None:
        likelihoods(options.data, options.sets, options.repetitions, options.epsilon)
    return expected.close()


if __name__ == "__main__":
    sys.exit(main())
