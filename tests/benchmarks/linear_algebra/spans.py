"""The span of one-hot records over the rationals: what the tightened release finds and misses, and the published one.

FOLDER holds ``adult_pgm.csv.gz`` and ``agaricus_train.npz``, ``agaricus_test.npz`` (anywhere below it); the encoding is
in ``data.py``. Delta 1e-6, add-remove. ``missed`` counts the records outside the released subspace,
exactly. ``threshold``: sets of one dimension that a release needs. The stable partition of KMMST24 (Algorithm 1) takes
the records in a fixed order; ``file`` is that of the file, ``shuffled`` a random one that has nothing to do with the
data. The partition is made once per order, the noisy release ``--repeats`` times. ``best`` is the dimension that misses
the fewest among those with at least threshold sets: what a release without noise would give.

Dimensions that hold fewer sets than the threshold cannot be told by either release, whatever the noise; ``sets`` prints
those that hold five and more.

    python -m tests.benchmarks.linear_algebra.spans FOLDER [--repeats 20] [--sets mushrooms]
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from dpmodel.as_printed.stable_span import STABLE_SPAN_AS_PRINTED
from dpmodel.contract import Options
from dpmodel.errors import NotPrivateWarning
from dpmodel.exact.fields import QQ
from dpmodel.exact.partition import stable_partition
from dpmodel.exact.stable_span import STABLE_SPAN
from dpmodel.privacy import SeededSource
from tests.benchmarks.linear_algebra.data import SPAN_DIMENSIONS, adult, mushrooms, partitioned_once, vectors
from tests.benchmarks.measuring import Expectations, Table, data_path, header, parser, short, spread

LOADERS = {"adult": ("adult_pgm.csv.gz", adult), "mushrooms": ("agaricus_train.npz", lambda f: mushrooms(f)[0])}


def load(folder: Path, name: str) -> np.ndarray:
    file, loader = LOADERS[name]
    found = sorted(folder.rglob(file))
    if not found:
        raise SystemExit(f"{file} is not below {folder}")
    rows: np.ndarray = loader(found[0].parent)
    return rows


class Counted:
    """Records outside the span of each dimension, counted when first asked for."""

    def __init__(self, rows: np.ndarray) -> None:
        start = time.perf_counter()
        self.partition = stable_partition(QQ, rows)
        self.seconds = time.perf_counter() - start
        self._distinct, self._times = np.unique(rows, axis=0, return_counts=True)
        self._missed: dict[int, int] = {0: int(np.any(rows != 0, axis=1).sum())}

    def missed(self, k: int) -> int:
        if k not in self._missed:
            inside = self.partition.basis(k).contains(self._distinct)
            self._missed[k] = int(self._times[~inside].sum())
        return self._missed[k]


def measure(table: Table, name: str, order: str, rows: np.ndarray, settings: Any) -> dict[Any, tuple[float, float]]:
    """(mechanism, epsilon) -> (threshold, median of the records missed)."""
    counted, model = Counted(rows), vectors(QQ, rows)
    sets = {k: int(c) for k, c in enumerate(counted.partition.counts) if c >= 5}
    print(
        f"{name}, {order}: {len(rows)} records, {rows.shape[1]} columns, partition {counted.seconds:.1f} s, sets {sets}"
    )
    found = {}
    for epsilon in settings.epsilons:
        options = Options(epsilon, settings.delta, settings.beta)
        for mechanism in (STABLE_SPAN, STABLE_SPAN_AS_PRINTED):
            forecast = mechanism.forecast(model, options)
            threshold = float(forecast.noise["threshold"])
            bases = [mechanism.run(model, options, SeededSource(k)).answer for k in range(settings.repeats)]
            dimensions = [basis.dimension for basis in bases]
            missed = [counted.missed(k) for k in dimensions]
            reached = [k for k, c in sets.items() if c >= threshold]
            best = f"{max(reached)}: {counted.missed(max(reached))}" if reached else "0: all"
            told = f"{short(forecast.error.missed, 4)}{' vacuous' if forecast.vacuous else ''}"
            table.row(
                name, order, f"{epsilon:g}", mechanism.name, f"{threshold:g}", spread(dimensions),
                spread(missed, 5), best, told, short(forecast.error.needed, 4),
            )  # fmt: skip
            found[mechanism.name, epsilon] = threshold, float(np.median(missed))
    return found


def main() -> int:
    arguments = parser(__doc__, repeats=20, epsilons=[0.5, 1.0, 2.0], delta=1e-6, beta=0.05)
    arguments.add_argument("folder", type=data_path("adult_pgm.csv.gz", "agaricus_train.npz"))
    arguments.add_argument("--sets", nargs="+", choices=sorted(LOADERS), default=sorted(LOADERS))
    arguments.add_argument("--shuffles", type=int, default=1, help="random orders")
    settings = arguments.parse_args()
    warnings.simplefilter("ignore", NotPrivateWarning)
    header(("dpmodel", "python-flint", "numpy"))
    expectations = Expectations()
    columns = ("data", 9), ("order", 10), ("epsilon", 7), ("release", 21), ("threshold", 9), ("dimension", 14)
    table = Table(*columns, ("missed", 22), ("best", 11), ("forecast", 14), ("needed", 9))
    for name in settings.sets:
        rows = load(settings.folder, name)
        expectations.expect(rows.shape[1] == SPAN_DIMENSIONS[name][0], f"{name}: {rows.shape[1]} columns")
        true = QQ.echelon(np.unique(rows, axis=0)).dimension
        expectations.expect(true == SPAN_DIMENSIONS[name][1], f"{name}: the span has dimension {true}")
        orders = {f"shuffled {k}": np.random.default_rng(k).permutation(len(rows)) for k in range(settings.shuffles)}
        for order, places in {"file": np.arange(len(rows)), **orders}.items():
            with partitioned_once():
                found = measure(table, name, order, rows[places], settings)
            for epsilon in settings.epsilons:
                ours, published = found["stable-span", epsilon], found["stable-span-as-printed", epsilon]
                words = f"{name}, {order}, epsilon {epsilon:g}"
                ratio = published[0] / ours[0]
                expectations.expect(ratio >= 10, f"{words}: threshold {ratio:.1f} times smaller than published")
                times = published[1] / max(ours[1], 1)
                expectations.expect(times >= 10, f"{words}: {times:.1f} times fewer records missed than published")
        print()
    return expectations.close()


if __name__ == "__main__":
    sys.exit(main())
