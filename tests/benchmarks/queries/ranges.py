"""Ranges of ordered columns: plain pairs against pairs with a column of blocks, as docs/guide/query-release.md has it.

    python -m tests.benchmarks.queries.ranges FOLDER [--table adult] [--columns age sex race "income>50K"]
        [--ordered age] [--epsilons .1 1 10] [--runs 5]

FOLDER as in ``query_release``, tables as .npz. Add-remove, delta 1e-6, the number of records private, all pairs of the
columns. An ordered column of n values becomes its block of about sqrt(n) values and its place in the block; every pair
is measured with the blocks alone, and with blocks and places. The errors are mean absolute ones: of a cell, and of a
range of each ordered column in a pair, between two ends drawn evenly (every value of the others), and the largest.
"""

from __future__ import annotations

import itertools
import math
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from dpmodel.errors import NotPrivateWarning
from dpmodel.released import query_release
from tests.benchmarks.measuring import Table, data_path, header, parser, short

ENDS = 400  # ranges of a pair


def load(folder: Path, name: str, columns: list[str]) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    with np.load(next(iter(sorted(folder.rglob(f"{name}.npz"))))) as file:
        at = [list(file["columns"]).index(c) for c in columns]
        data, sizes = file["data"][:, at].astype(int), file["domain"][at]
    return dict(zip(columns, data.T, strict=True)), dict(zip(columns, map(int, sizes), strict=True))


def released(
    data: dict[str, np.ndarray], sizes: dict[str, int], blocks: dict[str, int], epsilon: float, loss: Any, seed: int
) -> dict[tuple[str, ...], np.ndarray]:
    """Tables of all pairs; ``blocks`` : values of a block."""
    codes, domain, prefixes = {}, {}, {}
    for c, n in sizes.items():
        codes[c], domain[c], prefixes[c] = data[c], n, [(c,)]
        if c in blocks:
            place = f"{c}, place"
            codes[c], codes[place] = np.divmod(data[c], blocks[c])
            domain[c], domain[place], prefixes[c] = -(-n // blocks[c]), blocks[c], [(c,), (c, place)]
    pairs = list(itertools.combinations(sizes, 2))
    work = [a + b for first, second in pairs for a in prefixes[first] for b in prefixes[second]]
    query = query_release(codes, work, domain=domain, neighbors="add-remove", loss=loss)
    release, out = query.solve(epsilon, 1e-6, rng=seed), {}
    for pair in pairs:
        table = release.answers(prefixes[pair[0]][-1] + prefixes[pair[1]][-1]).values
        full = table.reshape([domain[c] * blocks.get(c, 1) for c in pair])
        out[pair] = full[tuple(slice(sizes[c]) for c in pair)]  # a last block has places that no value has
    return out


def errors(found: dict[Any, np.ndarray], truth: dict[Any, np.ndarray], ordered: list[str]) -> list[float]:
    """Mean of a cell, mean and largest of a range."""
    rng, ranges = np.random.default_rng(5), []
    cells = np.concatenate([np.abs(found[pair] - truth[pair]).ravel() for pair in truth])
    for pair in truth:
        gap = found[pair] - truth[pair]
        for axis in (k for k, c in enumerate(pair) if c in ordered):
            sums = np.cumsum(np.insert(gap, 0, 0.0, axis=axis), axis=axis)
            low, high = np.sort([rng.choice(sums.shape[axis], 2, replace=False) for _ in range(ENDS)], axis=1).T
            gap = sums.take(high, axis) - sums.take(low, axis)
        if set(pair) & set(ordered):
            ranges.append(np.abs(gap).ravel())
    return [cells.mean(), float(np.mean([r.mean() for r in ranges])), max(r.max() for r in ranges)]


def main() -> int:
    columns = ["age", "sex", "race", "income>50K"]
    options = parser(__doc__, table="adult", columns=columns, ordered=["age"], epsilons=[0.1, 1.0, 10.0], runs=5)
    options.add_argument("folder", type=data_path("*.npz"))
    given = options.parse_args()
    warnings.simplefilter("ignore", NotPrivateWarning)
    header()
    data, sizes = load(given.folder, given.table, given.columns)
    nothing: dict[str, int] = {}
    truth = {
        (a, b): np.histogram2d(data[a], data[b], bins=[np.arange(sizes[a] + 1), np.arange(sizes[b] + 1)])[0]
        for a, b in itertools.combinations(sizes, 2)
    }
    blocks = {c: math.isqrt(sizes[c] - 1) + 1 for c in given.ordered}
    table = Table(("epsilon", 7), ("method", 11), ("cell", 8), ("range", 8), ("largest range", 13))
    ways = {"plain, max": (nothing, "max"), "plain, mean": (nothing, "mean"), "blocks, max": (blocks, "max")}
    for epsilon in given.epsilons:
        for way, (of, loss) in ways.items():
            each = [
                errors(released(data, sizes, of, epsilon, loss, seed), truth, given.ordered)
                for seed in range(given.runs)
            ]
            table.row(f"{epsilon:g}", way, *map(short, np.mean(each, axis=0)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
