"""Rows that a released point violates, for the mechanisms over private inequalities with a promised margin.

Systems are planted (``exact/cones.py``): n unit rows in D dimensions with margin rho0, of the kinds
"uniform" (easy), "margin" (all rows at the margin) and "skewed" (a tenth of the rows on the far side of the average
row). Noise is drawn from seeds here, which is fast and not private.

    python -m tests.benchmarks.linear_algebra.exact_inequalities
    python -m tests.benchmarks.linear_algebra.exact_inequalities --mechanism some.module:MECHANISM --margins 0.2
"""

from __future__ import annotations

import argparse
import importlib
import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from dpmodel.contract import Options
from dpmodel.errors import NotPrivateWarning
from dpmodel.exact.cones import KINDS, synthetic
from dpmodel.exact.model import PrivateInequalities
from dpmodel.privacy import SeededSource

MECHANISMS = {
    "hinge-descent": "dpmodel.exact.hinge_descent:HINGE_DESCENT",
}


def load(name: str) -> Any:
    module, _, attribute = MECHANISMS.get(name, name).partition(":")
    return getattr(importlib.import_module(module), attribute)


def empty(size: int, margin: float, n: int, neighbors: str, orthant: bool) -> PrivateInequalities:
    """The public facts."""
    public = -np.eye(size) if orthant else np.zeros((0, size))
    return PrivateInequalities(
        size, True, public, np.zeros(len(public)), margin, None, neighbors,  # type: ignore[arg-type]
        n if neighbors == "replace-one" else None, n, lambda: (np.zeros((0, size)), np.zeros(0)),
    )  # fmt: skip


def missed(rows: np.ndarray, y: np.ndarray) -> int:
    return int(np.count_nonzero(rows @ y < 0)) if y is not None and np.any(y) else len(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mechanism", nargs="*", default=list(MECHANISMS), help="names, or module:OBJECT")
    parser.add_argument("--dimensions", nargs="*", type=int, default=[5, 20, 50])
    parser.add_argument("--margins", nargs="*", type=float, default=[0.2, 0.05, 0.01])
    parser.add_argument("--kinds", nargs="*", default=["uniform", "skewed"], choices=KINDS)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--neighbors", default="add-remove", choices=["add-remove", "replace-one"])
    parser.add_argument("--orthant", action="store_true", help="the public constraints y >= 0")
    parser.add_argument("--runs", type=int, default=10)
    settings = parser.parse_args()
    warnings.simplefilter("ignore", NotPrivateWarning)
    options = Options(settings.epsilon, settings.delta)
    head = f"{'D':>4} {'rho0':>6} {'kind':>8} {'mechanism':>20} {'median':>7} {'max':>7} {'forecast':>9} "
    head += f"{'proved':>8} {'s/run':>6}"
    print(head)
    for size in settings.dimensions:
        for margin in settings.margins:
            for name in settings.mechanism:
                mechanism = load(name)
                known = empty(size, margin, settings.records, settings.neighbors, settings.orthant)
                verdict = mechanism.eligible(known, options)
                if not verdict.eligible:
                    print(f"{size:4d} {margin:6g} {'':>8} {name:>20} not eligible: {verdict.reason}")
                    continue
                forecast = mechanism.forecast(known, options)
                for kind in settings.kinds:
                    counts, start = [], 0.0
                    for seed in range(settings.runs):
                        rows, _ = synthetic(known, 10_000 + seed, settings.records, kind)
                        model = replace(known, _rows=lambda rows=rows: (-rows, np.zeros(len(rows))))
                        began = time.perf_counter()
                        found = mechanism.run(model, options, SeededSource(seed))
                        start += time.perf_counter() - began
                        counts.append(missed(rows, found.answer))
                    proved = float(forecast.noise.get("missed, proved", np.nan))
                    line = (
                        f"{size:4d} {margin:6g} {kind:>8} {name:>20} {np.median(counts):7.0f} {max(counts):7d} "
                        f"{forecast.error.missed:9.0f} {proved:8.0f} {start / settings.runs:6.2f}"
                    )
                    print(line, flush=True)


if __name__ == "__main__":
    main()
