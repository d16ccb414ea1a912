"""How often the intervals of private least squares hold the truth, and how wide they are, beside classical intervals.

FOLDER holds ``05_reg_adult`` and ``05_reg_acs``: working hours on age, years of education, sex and marriage (Adult),
and the code of the income on age, schooling, hours and sex (ACS); rows are drawn with replacement, and the truth is the
fit to all of them. Without FOLDER: simulated rows alone. Bounds are those of the codes. Columns and labels in units of
half their bounds. Means over the coefficients but the intercept, of ``covered``; medians over runs of the width, which
is inf where more than half of the intervals are; ``classical`` is the interval without privacy, on the same rows; the
last columns are the share of infinite ones, which count as covered, and what the finite ones cover. Wanted: at most .02
less covered than classical ones.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import ndtri

from dpmodel.learn import PrivateLinearRegression
from dpmodel.text import TextTable
from tests.benchmarks.measuring import Expectations, data_path, header, parser

# Median widths at 10,000 rows, epsilon 1, delta 1e-6, add-remove, of a prototype.
WANTED = {"adult": 0.045, "acs": 0.150, "simulated": 0.030}


def tables(folder: Path | None) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Name -> rows (N, 4) and labels (N,) in [-1, 1], and the coefficients of all rows."""
    generator = np.random.default_rng(0)
    X, truth = generator.uniform(-1, 1, (200_000, 4)), np.array([0.4, -0.2, 0.1, 0.0])
    found = {"simulated": (X, X @ truth + 0.1 + 0.05 * generator.standard_normal(len(X)))}
    if folder is not None:
        adult = pd.read_csv(folder / "05_reg_adult/adult_fairml.csv.gz")
        married = adult["marital_status"].str.startswith("Married")
        columns = [
            (adult["age"], 17, 90),
            (adult["education_num"], 1, 16),
            (adult["sex"] == "Male", 0, 1),
            (married, 0, 1),
        ]
        found["adult"] = _scaled(columns), _scaled([(adult["hours_per_week"], 1, 99)])[:, 0]
        acs = pd.read_csv(folder / "05_reg_acs/ACSmobility_train.csv.gz")
        columns = [(acs["AGEP"], 0, 15), (acs["SCHL"], 0, 23), (acs["WKHP"], 0, 99), (acs["SEX"], 0, 1)]
        found["acs"] = _scaled(columns), _scaled([(acs["PINCP"], 0, 9)])[:, 0]
    return {name: (X, y, classical(X, y, 0.95)[0]) for name, (X, y) in found.items()}


def _scaled(columns: list[tuple[pd.Series, float, float]]) -> np.ndarray:
    return np.column_stack([(np.asarray(c, dtype=float) - (lo + hi) / 2) / ((hi - lo) / 2) for c, lo, hi in columns])


def classical(X: np.ndarray, y: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and half widths of their intervals, without privacy."""
    A = np.c_[X, np.ones(len(y))]
    inverse = np.linalg.pinv(A.T @ A)
    w = inverse @ A.T @ y
    variance = np.square(y - A @ w).sum() / (len(y) - A.shape[1])
    half = float(ndtri((1 + level) / 2)) * np.sqrt(variance * np.diag(inverse))
    return w[:-1], half[:-1]


def cell(
    table: tuple[np.ndarray, np.ndarray, np.ndarray], n: int, epsilon: float, delta: float, neighbors: str, runs: int
) -> tuple[float, float, float, float, float, float]:
    """Covered, covered classically, median width, the classical one, share of infinite ones, covered by finite ones."""
    X, y, truth = table
    inside, beside, widths, others = [], [], [], []
    for run in range(runs):
        rows = np.random.default_rng(run).integers(0, len(y), n)
        w, half = classical(X[rows], y[rows], 0.95)
        model = PrivateLinearRegression(
            epsilon=epsilon,
            delta=delta,
            neighbors=neighbors,  # type: ignore[arg-type]
            bounds=(-1, 1),
            label_bounds=(-1, 1),
            mechanism="sufficient-statistics",
            random_state=run,
        ).fit(X[rows], y[rows])
        low, high = model.release_.intervals(0.95)
        low, high = low[:-1], high[:-1]
        inside.append((low <= truth) & (truth <= high))
        beside.append(np.abs(w - truth) <= half)
        widths.append(high - low)
        others.append(2 * half)
    found, hits = np.array(widths), np.array(inside)
    ends = np.isfinite(found)
    finite = np.median(found.mean(axis=1)) if ends.mean() > 0.5 else np.inf
    return (
        float(hits.mean()),
        float(np.mean(beside)),
        float(finite),
        float(np.median(others)),
        float(1 - ends.mean()),
        float(hits[ends].mean()) if ends.any() else np.nan,
    )


def main() -> int:
    reading = parser(
        __doc__,
        n=[1000, 10_000],
        epsilon=[0.5, 1.0, 5.0],
        delta=[1e-6, 0.0],
        repetitions=40,
        neighbors=["replace-one", "add-remove"],
    )
    reading.add_argument("--folder", type=data_path("*.csv.gz"), default=None)
    given = reading.parse_args()
    header()
    rows, wanted = [], Expectations()
    for name, table in tables(given.folder).items():
        for n, epsilon, delta, neighbors in (
            (n, epsilon, delta, neighbors)
            for delta in given.delta
            for neighbors in given.neighbors
            for n in given.n
            for epsilon in given.epsilon
        ):
            found = cell(table, n, epsilon, delta, neighbors, given.repetitions)
            covered, classic, width, *_ = found
            told = f"{name}, n {n}, epsilon {epsilon:g}, delta {delta:g}, {neighbors}"
            rows.append((told, *(f"{each:.3f}" for each in found)))
            noise = 3 * np.sqrt(0.05 / given.repetitions)  # coefficients of one run are wrong together
            wanted.expect(covered >= classic - 0.02 - noise, f"{told}: covered {covered:.3f}, classical {classic:.3f}")
            if (n, epsilon, delta, neighbors) == (10_000, 1.0, 1e-6, "add-remove"):
                wanted.expect(width <= WANTED[name], f"{told}: width {width:.3f}, at most {WANTED[name]}")
    print(TextTable(("", "covered", "classical", "width", "classical", "infinite", "finite cover"), rows))
    return wanted.close()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main())
