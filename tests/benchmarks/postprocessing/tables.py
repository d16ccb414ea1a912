"""Contingency tables made consistent with public margins: the experiment of Lee, Wang and Kifer 2015, figure 5.1.1.

FOLDER holds ``02_ctab_lee2015`` and ``02_ctab_more``: CSV, one row per cell, the count in the last column. Neighbours
differ by one person present or absent, so every cell has Laplace noise of scale 1/epsilon. M0, M1, M2 (total, all
one-way, all two-way margins) are taken as public knowledge, as the paper does; were they not, they would have to be
measured too. The error is the mean square over cells; negative cells of methods without a sign constraint become 0.

L1: maximum likelihood. The linear program has many optima: beside the one that the package returns stand the vertex
that HiGHS returns and the point amid all optima that an interior-point method (Clarabel) ends at. Elastic: .9 |r| +
.1 r^2 with r in noise scales, as in the package; ``counts``: r in counts, as in the paper, where the square outweighs
the rest from r = 9 on. L2: least squares with the same constraints.
Privlet and MWEM know no margins (MWEM: the total). MWEM's rounds are the best of a public grid for each error shown,
which favours it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy.sparse as sp

from dpmodel.released.form import LikelihoodForm
from tests.benchmarks.measuring import Expectations, Table, data_path, header, parser, spread
from tests.benchmarks.postprocessing.baselines import Privlet, margin_matrix, mwem
from tests.benchmarks.postprocessing.solvers import admm_table, clarabel, highs

Floats = npt.NDArray[np.float64]
FILES = {
    "Edwards": "02_ctab_lee2015/edwards_mildew.csv",
    "Czech": "02_ctab_lee2015/czech_reinis.csv",
    "Alligator": "02_ctab_more/vcdExtra_Alligator.csv",
    "Titanic": "02_ctab_more/datasets_Titanic.csv",
}
ROUNDS = (4, 8, 16)
SOLVED = ("L1", "L1 centre", "L1 vertex", "elastic", "elastic counts", "L2")
NAMES = ("LM", *SOLVED, "Privlet", "Privlet flat", "MWEM")


def table_of(path: Path) -> Floats:
    """Counts with one axis per column, categories as they appear."""
    rows = pd.read_csv(path)
    codes = [pd.factorize(rows[name])[0] for name in rows.columns[:-1]]
    counts = np.zeros([code.max() + 1 for code in codes])
    counts[tuple(codes)] = rows.iloc[:, -1]
    return counts


def errors(estimate: Floats, truth: Floats) -> Floats:
    """(repetitions,) mean squared error over cells after clipping at 0."""
    return np.asarray(np.square(np.maximum(estimate, 0.0) - truth).mean(axis=-1))


def free_of_margins(x: Floats, shape: tuple[int, ...], epsilon: float, runs: int) -> dict[str, Floats]:
    rng = np.random.default_rng([round(1000 * epsilon), 1])
    repeated = np.broadcast_to(x, (runs, x.size))
    queries = np.vstack([margin_matrix(shape, order).toarray() for order in (1, 2, 3)])
    along = Privlet(shape).release(repeated.reshape(runs, *shape), epsilon, rng).reshape(runs, -1)
    found = {
        "Privlet": errors(along, x),
        "Privlet flat": errors(Privlet((x.size,)).release(repeated, epsilon, rng), x),
    }
    tried = [errors(mwem(x, queries, epsilon, rounds, runs, rng), x) for rounds in ROUNDS]
    found["MWEM"] = min(tried, key=lambda error: float(np.median(error)))
    return found


def with_margins(x: Floats, shape: tuple[int, ...], order: int, epsilon: float, runs: int) -> dict[str, Floats]:
    rng = np.random.default_rng([round(1000 * epsilon), 0])  # the same noise for every order of margins
    A, eye = margin_matrix(shape, order), sp.eye_array(x.size)
    found: dict[str, list[Floats]] = {name: [] for name in ("LM", *SOLVED)}
    for _ in range(runs):
        noisy = x + rng.laplace(scale=1 / epsilon, size=x.size)
        known = {"equality": A, "equality_value": A @ x, "lower": 0.0}
        likelihood = LikelihoodForm.of(eye, noisy, absolute=epsilon, **known)
        found["LM"].append(noisy)
        found["L1"].append(admm_table(likelihood, shape))
        found["L1 vertex"].append(highs(likelihood, 1e-7, 60.0)[0])
        found["L1 centre"].append(clarabel(likelihood, 1e-9, 60.0)[0])
        scaled = LikelihoodForm.of(eye, noisy, absolute=0.9 * epsilon, square=0.1 * epsilon**2, **known)
        found["elastic"].append(admm_table(scaled, shape))
        found["elastic counts"].append(
            admm_table(LikelihoodForm.of(eye, noisy, absolute=0.9, square=0.1, **known), shape)
        )
        found["L2"].append(admm_table(LikelihoodForm.of(eye, noisy, square=1.0, **known), shape))
    return {name: errors(np.array(held), x) for name, held in found.items()}


def main() -> int:
    reading = parser(__doc__, orders=[0, 1, 2], repetitions=20)
    reading.add_argument("--data", type=data_path("*.csv*", "*.npz"), required=True, metavar="FOLDER")
    reading.add_argument("--sets", nargs="+", default=list(FILES), choices=list(FILES))
    reading.add_argument("--epsilons", type=float, nargs="+", default=[round(0.1 * k, 1) for k in range(1, 11)])
    options = reading.parse_args()
    header(("dpmodel", "numpy", "scipy", "highspy"))
    expected = Expectations()
    for name in options.sets:
        counts = table_of(options.data / FILES[name])
        x, shape = counts.ravel(), counts.shape
        empty = float(np.mean(x == 0))
        print(f"{name}: {' x '.join(map(str, shape))}, N = {x.sum():g}, {empty:.1%} empty cells")
        others = {epsilon: free_of_margins(x, shape, epsilon, options.repetitions) for epsilon in options.epsilons}
        for order in options.orders:
            print(f"M{order} public; MSE per cell, median [quartiles] of {options.repetitions} repetitions")
            table = Table(("epsilon", 7), *((method, 20) for method in NAMES), ("L1 < L2", 8))
            ratios: list[float] = []
            beaten = 0
            for epsilon in options.epsilons:
                found = with_margins(x, shape, order, epsilon, options.repetitions) | others[epsilon]
                below = float(np.mean(found["L1"] < found["L2"]))
                table.row(epsilon, *(spread(list(found[method])) for method in NAMES), f"{below:.0%}")
                medians = {method: float(np.median(found[method])) for method in NAMES}
                ratios.append(medians["L1"] / medians["L2"])
                beaten += medians["L1"] <= min(medians[method] for method in ("LM", "Privlet", "Privlet flat", "MWEM"))
            low, middle, high = np.quantile(ratios, [0, 0.5, 1])
            total = len(options.epsilons)
            print(f"L1/L2 in MSE: median {middle:.2f}, from {low:.2f} to {high:.2f}; ", end="")
            print(f"L1 below LM, Privlet and MWEM at {beaten} of {total} budgets\n", flush=True)
            if empty > 0.5:
                expected.expect(middle < 1, f"{name}, M{order}: L1 below L2 on a sparse table, ratio {middle:.2f}")
    return expected.close()


if __name__ == "__main__":
    sys.exit(main())
