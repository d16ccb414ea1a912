"""Shares of truths that the intervals of a noisy tree cover, by method: the table in the docstring of ``intervals``.

A binary tree over 32 bins, Laplace noise of scale 6 on every node, non-negative maximum-likelihood fits.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np

import dpmodel as dpm
from dpmodel.text import TextTable
from tests.benchmarks.measuring import header, parser

HISTOGRAMS = {"2 full bins among 30 empty": {3: 40.0, 17: 200.0}, "32 full bins": dict.fromkeys(range(32), 60.0)}
METHODS = ("noise", "basic", "percentile")


def shares(histogram: np.ndarray, level: float, trials: int, refits: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Method -> (shares covered, mean widths) of the 32 bins and the total."""
    tree = dpm.released.tree_query(32)
    truth, exact = np.r_[histogram, histogram.sum()], tree.answers(histogram)
    found: dict[str, tuple[list[np.ndarray], list[np.ndarray]]] = {method: ([], []) for method in METHODS}
    for trial in range(trials):
        noise = np.random.default_rng(trial).laplace(scale=6.0, size=tree.size)
        fit = tree.fit(dpm.Noisy(exact + noise, noise=dpm.noise.Laplace(6.0)))
        fit.solve()
        rows = fit.ranges_matrix([*range(32), 0], [*range(1, 33), 32])
        for method, (inside, widths) in found.items():
            low, high = dpm.released.intervals(fit, rows, level, method=method, repetitions=refits, rng=trial)
            inside.append((low <= truth + 1e-9) & (truth <= high + 1e-9))
            widths.append(high - low)
    return {method: (np.mean(inside, axis=0), np.mean(widths, axis=0)) for method, (inside, widths) in found.items()}


def main() -> int:
    reading = parser(__doc__, level=0.9, trials=80, refits=100)
    asked = reading.parse_args()
    header()
    rows = []
    for name, full in HISTOGRAMS.items():
        histogram = np.zeros(32)
        histogram[list(full)] = list(full.values())
        found = shares(histogram, asked.level, asked.trials, asked.refits)
        groups = {"the full bins": np.flatnonzero(histogram), "the empty bins": np.flatnonzero(histogram == 0)}
        for what, bins in {**groups, "the total": np.array([32])}.items():
            if bins.size:
                rows.append((name, what, "covered", *(f"{found[m][0][bins].mean():.2f}" for m in METHODS)))
                rows.append((name, what, "mean width", *(f"{found[m][1][bins].mean():.1f}" for m in METHODS)))
    print(str(TextTable(("histogram", "of", "", *METHODS), rows)))
    return 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main())
