"""Shares of the cells of all pairs that the intervals of released marginals cover, after the fit and before it.

    python -m tests.benchmarks.queries.marginal_coverage FOLDER [--tables titanic adult] [--columns 7] [--runs 5]

FOLDER as in ``query_release``. Add-remove, delta 1e-6 and 0, the number of records private.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from typing import Any

import numpy as np

from dpmodel.errors import NotPrivateWarning
from dpmodel.released import query_release
from tests.benchmarks.measuring import Table, data_path, header, parser
from tests.benchmarks.queries.query_release import Data, load


def shares(data: Data, epsilon: float, delta: float, loss: Any, level: float, runs: int) -> tuple[str, ...]:
    """Covered after the fit, of cells with a record, half width; covered before it, half width."""
    names = [f"c{i}" for i in range(len(data.sizes))]
    pairs = [tuple(names[i] for i in m) for m in data.residuals.tables.sets]
    domain = dict(zip(names, data.sizes, strict=True))
    query = query_release(data.codes, pairs, domain=domain, neighbors="add-remove", loss=loss)
    found, full = [], data.truth > 0
    for seed in range(runs):
        release, row = query.solve(epsilon, delta, rng=seed), []
        for fitted in (True, False):
            tables = release.intervals(level, fitted=fitted)
            every = [tables[m] for m in pairs]
            low, high = (np.concatenate([getattr(t, end).ravel() for t in every]) for end in ("lower", "upper"))
            inside = (low <= data.truth) & (data.truth <= high)
            half = np.concatenate([(t.upper - t.value).ravel() for t in every])
            row += [inside.mean(), inside[full].mean(), half.mean()]
        found.append(row)
    mean = np.mean(found, axis=0)
    return tuple(f"{x:.3f}" if k % 3 < 2 else f"{x:.2f}" for k, x in enumerate(mean))


def main() -> int:
    options = parser(__doc__, tables=["titanic", "adult"], columns=[7], epsilons=[0.1, 1.0, 10.0], level=0.95, runs=5)
    options.add_argument("folder", type=data_path("*.npz"))
    given = options.parse_args()
    warnings.simplefilter("ignore", NotPrivateWarning)
    header()
    heads = ("table", "delta", "loss", "epsilon", *("covered", "full cells", "half width") * 2)
    print(f"{'':43}after the fit{'':20}before it")
    shown = Table(*zip(heads, (19, 5, 4, 7, 8, 10, 10, 8, 10, 10), strict=True))
    for name, columns in itertools.product(given.tables, given.columns):
        data = load(given.folder, name, columns)
        for delta, loss, epsilon in itertools.product((1e-6, 0.0), ("mean", "max"), given.epsilons):
            row = shares(data, epsilon, delta, loss, given.level, given.runs)
            shown.row(data.name, f"{delta:g}", loss, f"{epsilon:g}", *row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
