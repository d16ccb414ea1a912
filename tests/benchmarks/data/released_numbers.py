"""Errors of what ``Dataset`` releases itself, beside simple alternatives, on columns of a ``folder`` of data.

Quantiles, mean error in rank over the quantiles (rows; tie-aware: a value that many rows share has all their ranks):
- ``Dataset.quantiles`` as it is;
- one selection for each quantile with its part of epsilon, on the same public grid and tie-aware;
- Smith 2011: a value drawn from the intervals between the data, for each quantile with its part of epsilon, without
  regard to ties (rounded to the grid afterwards);
- two lines of NumPy: a noisy histogram of the grid, and where its running sum passes the rank.
The columns are working hours (99 values), ages (74), incomes (12,500 points); replace-one; n rows drawn anew.

Standard deviations: error in percent, beside Laplace noise on the variance itself (its sensitivity is width^2 / n), and
beside diffprivlib and OpenDP (its variance) where they are installed, as the medians are. The one setting was chosen on
hours, ages and years of schooling of Adult; the columns are others, with bounds that do not look at them.
Evaluation: half the width of the interval and what it covers (accuracy, log loss, area under the curve of a logistic
regression of Adult's incomes), beside Laplace noise with a third of epsilon on accuracy and log loss alone.
Coverage of intervals over all runs. The mechanism of quantiles was chosen on the same columns with other seeds.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import dpmodel as dpm
from dpmodel.privacy import permute_and_flip
from dpmodel.privacy.noise import SeededSource
from dpmodel.released.faces.quantiles import Histogram, Ranks, at_shares
from dpmodel.text import TextTable, number
from tests.benchmarks.measuring import Expectations, data_path, header, parser

QUANTILES = {
    "median": [0.5],
    "3": [0.05, 0.5, 0.95],
    "9": [k / 10 for k in range(1, 10)],
    "19": [k / 20 for k in range(1, 20)],
}


def columns(folder: Path) -> Iterator[tuple[str, np.ndarray, tuple[float, float, float]]]:
    """Name, values, and the public grid (lo, hi, step)."""
    import pandas as pd

    adult = pd.read_csv(next(folder.rglob("adult_fairml.csv.gz")))
    yield "hours", adult["hours_per_week"].to_numpy(float), (1, 99, 1)
    yield "age", adult["age"].to_numpy(float), (17, 90, 1)
    income = pd.read_csv(next(folder.rglob("PUMS_california_1000.csv")))["income"]
    yield "income", income.to_numpy(float), (0, 400_000, 32)


def ours(counts: np.ndarray, q: np.ndarray, epsilon: float, source: Any) -> np.ndarray:
    ranks = Ranks(q, np.zeros(q.size), counts.size, 1, 1, "replace-one", epsilon)
    histogram = Histogram.of(ranks)
    if histogram.closer(ranks):
        return at_shares(histogram.run(counts[None], source), q, 0.0)[0]
    return np.clip(ranks.run(counts, source), 0, counts.size - 1)


def one_by_one(counts: np.ndarray, q: np.ndarray, epsilon: float, source: Any) -> np.ndarray:
    ranks = Ranks(q, np.zeros(q.size), counts.size, 1, 1, "replace-one", epsilon / q.size)
    off = ranks.off(counts)
    return np.clip(
        [permute_and_flip(-row, 2.0, epsilon=epsilon / q.size, source=source) - 1 for row in off], 0, counts.size - 1
    )


def smith(counts: np.ndarray, q: np.ndarray, epsilon: float, source: Any) -> np.ndarray:
    draw, data = source._rng, np.repeat(np.arange(counts.size), counts)
    ends = np.r_[0, data, counts.size - 1].astype(float)
    found = []
    with np.errstate(divide="ignore"):
        for each in q:
            logs = np.log(np.diff(ends)) - np.abs(np.arange(data.size + 1) - each * data.size) * epsilon / q.size / 2
            i = int(np.argmax(logs + draw.gumbel(size=logs.size)))
            found.append(round(draw.uniform(ends[i], ends[i + 1])))
    return np.array(found)


def running_sum(counts: np.ndarray, q: np.ndarray, epsilon: float, source: Any) -> np.ndarray:
    noisy = np.cumsum(counts + source._rng.laplace(scale=2 / epsilon, size=counts.size))
    return np.minimum(np.searchsorted(np.maximum.accumulate(noisy), q * counts.sum()), counts.size - 1)


def rank_error(counts: np.ndarray, q: np.ndarray, at: np.ndarray) -> float:
    upto = np.cumsum(counts)
    wanted = q * counts.sum()
    return float(np.maximum(np.maximum(upto[at] - counts[at] - wanted, wanted - upto[at]), 0).mean())


def quantile_table(folder: Path, runs: int, expected: Expectations) -> TextTable:
    rows = []
    methods = {"ours": ours, "one by one": one_by_one, "Smith": smith, "running sum": running_sum}
    for name, values, (low, high, step) in columns(folder):
        for n in (1_000, 10_000):
            at = np.random.default_rng(n).choice(values.size, n)
            counts = np.bincount(np.rint((np.clip(values[at], low, high) - low) / step).astype(int),
                                 minlength=round((high - low) / step) + 1)  # fmt: skip
            for what, shares in QUANTILES.items():
                q = np.array(shares)
                for epsilon in (0.1, 1.0):
                    sources = [SeededSource(seed) for seed in range(runs)]
                    means = {m: float(np.mean([rank_error(counts, q, f(counts, q, epsilon, s)) for s in sources]))
                             for m, f in methods.items()}  # fmt: skip
                    rows.append((name, n, what, epsilon, *(number(round(v, 1)) for v in means.values())))
                    least = min(mean for method, mean in means.items() if method != "ours")
                    expected.expect(means["ours"] <= 1.2 * least + 3 / epsilon, f"{rows[-1][:4]}: as close as the best")
    return TextTable(("column", "n", "quantiles", "epsilon", *methods), rows, title="mean error in rank, rows")


OTHERS = {  # file, column, bounds
    "income": ("PUMS_california_1000.csv", "income", (0, 400_000)),
    "wage": ("ISLR_Wage.csv.gz", "wage", (0, 400)),
    "hourly": ("AER_CPS1985.csv", "wage", (0, 50)),
    "experience": ("AER_CPS1985.csv", "experience", (0, 60)),
    "rating": ("ISLR_Credit.csv", "Rating", (0, 1_000)),
    "enrolled": ("ISLR_College.csv.gz", "Enroll", (0, 7_000)),
}


def peers(sample: np.ndarray, low: float, high: float, epsilon: float, runs: int) -> dict[str, Any]:
    """Standard deviations and medians of diffprivlib, and variances and medians on a grid of 100 points of OpenDP."""
    sys.modules.setdefault("diffprivlib.models", ModuleType("diffprivlib.models"))  # wants an older scikit-learn
    try:
        import diffprivlib.tools as ibm
        import opendp.prelude as dp
    except ImportError:
        return {}
    dp.enable_features("contrib", "floating-point", "honest-but-curious")
    bounded = dp.atom_domain(bounds=(float(low), float(high)), nan=False)
    vectors, points = dp.vector_domain(bounded, size=sample.size), np.linspace(low, high, 101).tolist()
    varied = (vectors, dp.symmetric_distance()) >> dp.t.then_variance()
    ranked = (dp.vector_domain(dp.atom_domain(T=float, nan=False), size=sample.size), dp.symmetric_distance()) >> (
        dp.t.then_quantile_score_candidates(points, 0.5)
    )
    noisy = dp.binary_search_chain(lambda scale: varied >> dp.m.then_laplace(scale), d_in=2, d_out=epsilon)
    least = dp.binary_search_chain(
        lambda scale: ranked >> dp.m.then_noisy_max(dp.max_divergence(), scale, "min"), d_in=2, d_out=epsilon
    )
    given, limits = sample.tolist(), {"epsilon": epsilon, "bounds": (low, high)}
    return {
        "diffprivlib": [ibm.std(sample, **limits) for _ in range(runs)],
        "OpenDP": [max(noisy(given), 0.0) ** 0.5 for _ in range(runs)],
        "diffprivlib, median": [ibm.quantile(sample, 0.5, **limits) for _ in range(runs)],
        "OpenDP, median": [points[least(given)] for _ in range(runs)],
    }


def spread_tables(folder: Path, runs: int, expected: Expectations) -> Iterator[TextTable]:
    import pandas as pd

    rows, medians = [], []
    for name, (file, column, (low, high)) in OTHERS.items():
        values = pd.read_csv(next(folder.rglob(file)))[column].to_numpy(float)
        for n, epsilon in ((1_000, 0.1), (1_000, 1.0), (10_000, 0.1), (10_000, 1.0)):
            sample = np.clip(values[np.random.default_rng(n).choice(values.size, n)], low, high)
            people = dpm.Dataset(pd.DataFrame({name: sample}), bounds={name: (low, high)})
            found = [people.std(name, epsilon, rng=seed) for seed in range(runs)]
            noise = np.random.default_rng(0).laplace(scale=(high - low) ** 2 / n / epsilon, size=runs)
            true, other = float(np.std(sample)), peers(sample, low, high, epsilon, runs)
            simple = np.sqrt(np.maximum(true**2 + noise, 0))
            errors = [
                100 * float(np.mean(np.abs(np.array([*map(float, each)]) - true))) / true if len(each) else math.nan
                for each in (found, simple, other.get("diffprivlib", ()), other.get("OpenDP", ()))
            ]
            inside = np.mean([f.lower <= true <= f.upper for f in found])
            rows.append((name, n, epsilon, *(f"{e:.3g} %" for e in errors), f"{inside:.2f}"))
            expected.expect(errors[0] <= 1.25 * errors[1], f"{rows[-1][:3]}: as close as noise on the variance")
            drawn = [people.median(name, epsilon, level=None, rng=seed) for seed in range(runs)]
            ranks = np.sort(sample)
            off = [
                np.mean([max(np.searchsorted(ranks, m) - n / 2, n / 2 - np.searchsorted(ranks, m, "right"), 0)
                         for m in map(float, each)]) if len(each) else math.nan
                for each in (drawn, other.get("diffprivlib, median", ()), other.get("OpenDP, median", ()))
            ]  # fmt: skip
            medians.append((name, n, epsilon, *(number(round(float(each), 1)) for each in off)))
    headings = ("column", "n", "epsilon", "ours", "noise on the variance", "diffprivlib", "OpenDP", "covered")
    yield TextTable(headings, rows, title="error of the standard deviation")
    headings = ("column", "n", "epsilon", "ours", "diffprivlib", "OpenDP")
    yield TextTable(headings, medians, title="error in rank of the median without an interval, rows")


def evaluation_table(folder: Path, runs: int) -> TextTable:
    import pandas as pd
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    adult = pd.read_csv(next(folder.rglob("adult_fairml.csv.gz"))).sample(frac=1.0, random_state=1, ignore_index=True)
    names = ["age", "education_num", "hours_per_week"]
    model = LogisticRegression(max_iter=1000).fit(adult[names][:15_000], adult["income"][:15_000])
    rows = []
    for n, epsilon in ((1_000, 1.0), (10_000, 0.1), (10_000, 1.0)):
        test = adult[15_000 : 15_000 + n]
        chance, y = model.predict_proba(test[names])[:, 1], test["income"].to_numpy() == model.classes_[1]
        loss = -np.log(np.clip(np.where(y, chance, 1 - chance), 0.001, 1))
        truths = {"accuracy": ((chance > 0.5) == y).mean(), "log loss": loss.mean(), "auc": roc_auc_score(y, chance)}
        people = dpm.Dataset(test, bounds={"age": (17, 90), "education_num": (1, 16), "hours_per_week": (1, 99)},
                             domain={"income": model.classes_.tolist()})  # fmt: skip
        found = [people.evaluate(model, "income", epsilon, rng=seed) for seed in range(runs)]
        alone = {"accuracy": 1.0, "log loss": -np.log(0.001)}
        for i, (what, true) in enumerate(truths.items()):
            error = np.mean([abs(f[what] - true) for f in found])
            simple = f"{3 * alone[what] / (n * epsilon):.4f}" if what in alone else "-"
            width = np.mean([f.upper[i] - f.lower[i] for f in found]) / 2
            covered = np.mean([f.lower[i] <= true <= f.upper[i] for f in found])
            rows.append((what, n, epsilon, f"{true:.4f}", f"{error:.4f}", simple, f"{width:.4f}", f"{covered:.2f}"))
    headings = ("measure", "n", "epsilon", "true", "mean error", "a third alone", "half width", "covered")
    return TextTable(headings, rows, title="evaluation of a logistic regression, all numbers in one release")


def main() -> int:
    arguments = parser(__doc__, runs=40)
    arguments.add_argument("folder", type=data_path("adult_fairml.csv.gz"))
    options = arguments.parse_args()
    header(("dpmodel", "numpy", "scikit-learn"))
    expected = Expectations()
    print(quantile_table(options.folder, options.runs, expected), "\n")
    for table in spread_tables(options.folder, options.runs, expected):
        print(table, "\n")
    print(evaluation_table(options.folder, options.runs))
    return expected.close()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main())
