"""Spans of one-hot tables whose blocks are public: category-span, the stable span alone, and noisy counts.

    python -m tests.benchmarks.linear_algebra.one_hot FOLDER [--repeats 3] [--sets mushrooms]

FOLDER as for ``spans``. Add-remove (``--neighbors``), delta 1e-6, in the order of the file. "Counts": every category's
count with noise for all of epsilon (Laplace; Gaussian), and those categories taken of which an empty one would be with
probability .05 in all; the dimension is theirs less one for each block but the first, which no release has shown to be
in the span. Missed: records outside, exactly. Expectation: the median dimension is at least that of the counts with
Laplace noise and of the stable span. The share of epsilon for counts was chosen on Adult.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.stats import norm

from dpmodel.contract import Options
from dpmodel.errors import NotPrivateWarning
from dpmodel.exact.category_span import CATEGORY_SPAN
from dpmodel.exact.fields import QQ
from dpmodel.exact.stable_span import STABLE_SPAN
from dpmodel.privacy import SeededSource, gaussian_mu
from tests.benchmarks.linear_algebra.data import encoded, partitioned_once, vectors
from tests.benchmarks.linear_algebra.spans import LOADERS, load
from tests.benchmarks.measuring import Expectations, Table, data_path, header, parser, spread


def counted(rows: np.ndarray, blocks: Any, settings: Any, epsilon: float, law: str) -> list[tuple[int, int]]:
    """(dimension, missed) of each repeat."""
    m, moved = rows.shape[1], len(blocks) * (1 if settings.neighbors == "add-remove" else 2)
    found = []
    for seed in range(settings.repeats):
        rng = np.random.default_rng(seed)
        if law == "laplace":
            scale = moved / epsilon
            noise, least = rng.laplace(scale=scale, size=m), scale * math.log(m / 0.1)
        else:
            scale = math.sqrt(moved) / gaussian_mu(epsilon, settings.delta)
            noise, least = rng.normal(scale=scale, size=m), scale * float(norm.isf(0.05 / m))
        rare = rows.sum(axis=0) + noise < least
        found.append((int((~rare).sum()) - len(blocks) + 1, int(rows[:, rare].any(axis=1).sum())))
    return found


def main() -> int:
    arguments = parser(__doc__, repeats=3, epsilons=[0.5, 1.0, 2.0], delta=1e-6, beta=0.05, neighbors="add-remove")
    arguments.add_argument("folder", type=data_path("adult_pgm.csv.gz", "agaricus_train.npz"))
    arguments.add_argument("--sets", nargs="+", choices=sorted(LOADERS), default=sorted(LOADERS))
    settings = arguments.parse_args()
    warnings.simplefilter("ignore", NotPrivateWarning)
    header(("dpmodel", "python-flint", "numpy"))
    expectations = Expectations()
    table = Table(("data", 9), ("epsilon", 7), ("release", 15), ("dimension", 16), ("missed", 22), ("seconds", 7))
    for name in settings.sets:
        rows = load(settings.folder, name)
        blocks, (distinct, times) = encoded(rows), np.unique(rows, axis=0, return_counts=True)
        plain = vectors(QQ, rows, neighbors=settings.neighbors)
        told = replace(plain, blocks=blocks)
        for epsilon in settings.epsilons:
            options = Options(epsilon, settings.delta, settings.beta)
            medians = {}
            for release in ("counts, laplace", "counts, gaussian", "stable-span", "category-span"):
                start = time.perf_counter()
                if release.startswith("counts"):
                    found = counted(rows, blocks, settings, epsilon, release.split()[1])
                else:
                    mechanism, model = (CATEGORY_SPAN, told) if release == "category-span" else (STABLE_SPAN, plain)
                    with partitioned_once():
                        bases = [mechanism.run(model, options, SeededSource(k)).answer for k in range(settings.repeats)]
                    found = [(b.dimension, int(times[~b.contains(distinct)].sum())) for b in bases]
                seconds = (time.perf_counter() - start) / settings.repeats
                dimensions, missed = zip(*found, strict=True)
                table.row(name, f"{epsilon:g}", release, spread(dimensions), spread(missed, 5), f"{seconds:.1f}")
                medians[release] = float(np.median(dimensions))
            for other in ("counts, laplace", "stable-span"):
                ours, theirs = medians["category-span"], medians[other]
                words = f"{name}, epsilon {epsilon:g}: dimension {ours:g}, {other} {theirs:g}"
                expectations.expect(ours >= theirs, words)
    return expectations.close()


if __name__ == "__main__":
    sys.exit(main())
