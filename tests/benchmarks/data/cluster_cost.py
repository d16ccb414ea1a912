"""What a regression over --rows records on --workers workers moves: passes over the rows, and bytes of each.

No record is read. The plan speaks of --rows: the mechanism that it chooses, and what each would do. Bytes are those of
one small run of the same model over as many blocks as there are workers, of 300 made-up rows each: sent is what every
worker is handed for a pass (cloudpickle), back the sum of one block. Times the workers they are the bytes of a pass; a
tree of sums moves as many, from worker to worker.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import cloudpickle
import cvxpy as cp
import numpy as np

import dpmodel as dpm
from dpmodel.marks.row_sources import MemoryBlocks
from dpmodel.marks.rows import RowSource, SourceRows
from tests.benchmarks.measuring import Table, header, parser, short

MECHANISMS = ("sufficient-statistics", "noisy-descent", "frank-wolfe", "objective-perturbation")


class Watched(RowSource):
    """Blocks in memory that stand for larger ones; counts passes and the bytes that a cluster would move."""

    def __init__(self, blocks: MemoryBlocks) -> None:
        self.blocks, self.passes, self.sent, self.back = blocks, 0, 0, 0

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.blocks.sizes

    def map_reduce(self, function: Callable[[Any, int], Any], combine: Callable[[Any, Any], Any]) -> Any:
        self.passes += 1
        self.sent += len(cloudpickle.dumps(function))

        def watched(block: Any, number: int) -> Any:
            found = function(block, number)
            self.back += len(cloudpickle.dumps(found)) if number == 0 else 0
            return found

        return self.blocks.map_reduce(watched, combine)


def features(block: Any) -> Any:
    return block[:, :-1]


def labels(block: Any) -> Any:
    return block[:, -1]


def model(source: RowSource, width: int, logistic: bool) -> dpm.Problem:
    people = dpm.Records("people")
    X = dpm.Private(SourceRows(source, features, width), name="X", unit="row", bounds=(-1, 1), records=people)
    y = dpm.Private(SourceRows(source, labels, None), name="y", unit="entry", bounds=(-1, 1), records=people)
    w = cp.Variable(width, name="w")
    losses = cp.logistic(-cp.multiply(y, X @ w)) if logistic else cp.square(X @ w - y)
    return dpm.Problem(cp.Minimize(cp.sum(losses) / source.count), [cp.norm1(w) <= 5])


class Pretended(RowSource):
    """Sizes alone."""

    def __init__(self, rows: int, workers: int) -> None:
        self._sizes = (rows // workers,) * workers

    @property
    def sizes(self) -> tuple[int, ...]:
        return self._sizes

    def map_reduce(self, function: Any, combine: Any) -> Any:
        raise RuntimeError("there are no rows")


def main() -> int:
    options = parser(__doc__, rows=10_000_000_000, workers=100, columns=20).parse_args()
    header(("dpmodel", "cloudpickle"))
    rng = np.random.default_rng(0)
    columns = (
        ("loss", 9),
        ("mechanism", 23),
        ("", 7),
        ("sent", 6),
        ("back", 6),
        ("MB a pass", 9),
        ("work planned", 60),
    )
    table = Table(*columns)
    for logistic in (False, True):
        planned = model(Pretended(options.rows, options.workers), options.columns, logistic)
        chosen = planned.plan(1.0, 1e-9).chosen.mechanism
        for name in MECHANISMS:
            small = MemoryBlocks([rng.uniform(-1, 1, (300, options.columns + 1)) for _ in range(options.workers)])
            watched = Watched(small)
            try:
                work = planned.plan(1.0, 1e-9, mechanism=name).chosen.forecast
                model(watched, options.columns, logistic).solve(1.0, 1e-9, mechanism=name, rng=0)
            except dpm.errors.UnsupportedModelError:
                continue
            sent, back = watched.sent / watched.passes, watched.back / watched.passes
            moved = short(options.workers * (sent + back) / 1e6)
            loss, mark = "logistic" if logistic else "squared", "chosen" if name == chosen else ""
            table.row(loss, name, mark, round(sent), round(back), moved, "" if work is None else work.work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
