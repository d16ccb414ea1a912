"""Synthetic rows of released pairs: mean share of rows in wrong cells of a pair, against the release and simpler rows.

    python -m tests.benchmarks.queries.synthetic_rows FOLDER [--tables titanic adult] [--columns 7 9 14]
        [--epsilons 0.1 1 10] [--runs 5]

How fast moves slow down was chosen on 7 columns of both tables.

FOLDER and workload as for ``query_release``. "release": the fitted tables themselves; "rows": ``release.sample()``;
"tree": rows drawn along the tree of pairs alone; "independent": the products of the released columns.

Expectation: rows are off no more than the tree, and at most 5 % more than independent columns (which are as good where
noise drowns the pairs).
"""

from __future__ import annotations

import itertools
import sys
import time
import warnings

import numpy as np

from dpmodel.errors import NotPrivateWarning
from dpmodel.privacy import public_generator
from dpmodel.released import query_release
from dpmodel.released.sampled_rows import drawn
from tests.benchmarks.measuring import Expectations, Table, data_path, header, parser, short, spread
from tests.benchmarks.queries.query_release import Data, load

METHODS = ("release", "rows", "tree", "independent")


def errors(data: Data, epsilon: float, seed: int) -> tuple[dict[str, float], float]:
    """Percent of rows in wrong cells by method, in the mean over the pairs, and the seconds that ``sample`` took."""
    names, sets, start = (
        [f"c{i}" for i in range(len(data.sizes))],
        data.residuals.tables.sets,
        data.residuals.tables.start,
    )
    pairs = [(names[a], names[b]) for a, b in sets]
    domain = dict(zip(names, data.sizes, strict=True))
    query = query_release(data.codes, pairs, domain=domain, neighbors="add-remove", loss="mean")
    release = query.solve(epsilon, 1e-6, rng=seed)
    values = {each: release.answers(pair).values for each, pair in zip(sets, pairs, strict=True)}
    singles = [release.answers(name).values for name in names]
    total = float(singles[0].sum())
    begun = time.perf_counter()
    rows = release.sample(seed=seed).to_numpy()
    seconds = time.perf_counter() - begun
    tree = drawn(values, singles, round(total), public_generator(seed))
    found = {
        "release": list(values.values()),
        "rows": [_counts(data, rows, each) for each in sets],
        "tree": [_counts(data, tree, each) for each in sets],
        "independent": [np.outer(singles[a], singles[b]) / total for a, b in sets],
    }
    truth = [data.truth[a:b] for a, b in itertools.pairwise(start)]
    n = len(data.codes)
    return {
        method: float(np.mean([np.abs(np.ravel(m) - t).sum() / (2 * n) for m, t in zip(each, truth, strict=True)]))
        * 100
        for method, each in found.items()
    }, seconds


def _counts(data: Data, rows: np.ndarray, pair: tuple[int, ...]) -> np.ndarray:
    shape = data.residuals.tables.shape(pair)
    flat = np.ravel_multi_index(tuple(rows[:, list(pair)].astype(int).T), shape)
    return np.bincount(flat, minlength=int(np.prod(shape)))


def main() -> int:
    options = parser(
        __doc__, tables=["titanic", "adult"], columns=[7, 9, 14], epsilons=[0.1, 1.0, 10.0], runs=5, seed=0
    )
    options.add_argument("folder", type=data_path("*.npz", "*.csv*"))
    given = options.parse_args()
    warnings.simplefilter("ignore", NotPrivateWarning)
    header()
    expected = Expectations()
    table = Table(("data", 20), ("epsilon", 7), *((method, 22) for method in METHODS), ("s", 6))
    for name, columns in itertools.product(given.tables, given.columns):
        data = load(given.folder, name, columns)
        if len(data.sizes) < columns:
            continue
        for epsilon in given.epsilons:
            found, seconds = zip(*(errors(data, epsilon, given.seed + run) for run in range(given.runs)), strict=True)
            table.row(
                data.name, f"{epsilon:g}", *(spread([e[m] for e in found]) for m in METHODS), f"{np.mean(seconds):.1f}"
            )
            mean = {method: float(np.mean([each[method] for each in found])) for method in METHODS}
            rows = mean["rows"]
            good = rows <= min(mean["tree"], 1.05 * mean["independent"])
            expected.expect(good, f"{data.name}, epsilon {epsilon:g}: {short(rows)}, tree {short(mean['tree'])}")
    return expected.close()


if __name__ == "__main__":
    sys.exit(main())
