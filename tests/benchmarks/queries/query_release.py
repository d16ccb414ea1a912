"""Marginals of discrete tables: mean and largest error of a cell against simpler and published methods.

    python -m tests.benchmarks.queries.query_release FOLDER [--tables titanic adult] [--columns 7 9 14]
        [--epsilons 0.1 1 10] [--runs 20] [--peer-python PATH --peers MST AIM]

FOLDER holds npz files with data (n, d) codes, columns (d,), domain (d,). The workload is all pairs of the ``columns``
columns of fewest values (0: all of them). Add-remove, the number of records
private, delta 1e-6. Every method sees the same seeds.

* ours: ``query_release`` with loss="mean", judged by the mean absolute error of a cell, and with loss="max", judged by
  the largest;
* cells: Gaussian noise on every cell and on the number of records once, each table then onto non-negative tables of
  that number;
* residuals: ResidualPlanner, with the variances that are best for the judged loss, each table then likewise;
* MST and AIM, by OpenDP in the interpreter ``--peer-python`` (which has ``opendp[mbi]``).

Expectation: ours is at most 1.02 times the best of the others, by the mean over the runs, or the difference is within
two standard errors of the paired differences.
"""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpmodel.errors import NotPrivateWarning
from dpmodel.privacy import gaussian_mu, zcdp_rho
from dpmodel.released import query_release
from dpmodel.released.pinned_fit import onto_simplex
from dpmodel.released.residuals import Residuals, best_variances
from tests.benchmarks.measuring import Expectations, Table, data_path, header, parser, short, spread

DELTA = 1e-6
PEER = Path(__file__).with_name("query_release_peer.py")
LOSSES = ("mean", "max")


@dataclass(frozen=True)
class Data:
    """A table of codes and the true tables of all its pairs, in the order of ``residuals.tables``."""

    name: str
    codes: np.ndarray
    residuals: Residuals
    truth: np.ndarray

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.residuals.tables.sizes

    def errors(self, answers: np.ndarray) -> dict[str, float]:
        gaps = np.abs(answers - self.truth)
        return {"mean": float(gaps.mean()), "max": float(gaps.max())}

    def onto_simplexes(self, noisy: np.ndarray, total: float) -> np.ndarray:
        start = self.residuals.tables.start
        return np.concatenate([onto_simplex(noisy[a:b], total) for a, b in itertools.pairwise(start)])


def load(path: Path, columns: int) -> Data:
    with np.load(path, allow_pickle=False) as file:
        sizes, codes = file["domain"].astype(int), file["data"].astype(np.int64)
    taken = np.sort(np.argsort(sizes, kind="stable")[: columns or sizes.size])
    codes, sizes = codes[:, taken], sizes[taken]
    residuals = Residuals.of(itertools.combinations(range(sizes.size), 2), sizes.tolist())
    tables = residuals.tables
    flat = [np.ravel_multi_index(tuple(codes[:, list(m)].T), tables.shape(m)) for m in tables.sets]
    truth = [np.bincount(f, minlength=c) for f, c in zip(flat, tables.cells, strict=True)]
    return Data(f"{path.stem}, {sizes.size} columns", codes, residuals, np.concatenate(truth).astype(float))


# ------------------------------------------------------------------ the methods: (data, epsilon, seed) -> answers
def ours(data: Data, epsilon: float, seed: int, loss: Any) -> np.ndarray:
    names = [f"c{i}" for i in range(len(data.sizes))]
    domain = dict(zip(names, data.sizes, strict=True))
    pairs = [tuple(names[i] for i in m) for m in data.residuals.tables.sets]
    query = query_release(data.codes, pairs, domain=domain, neighbors="add-remove", loss=loss)
    release = query.solve(epsilon, DELTA, rng=seed)
    return np.concatenate([release.variables[" x ".join(m)].ravel() for m in pairs])


def cells(data: Data, epsilon: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    sigma = math.sqrt(len(data.residuals.tables.sets) + 1) / gaussian_mu(epsilon, DELTA)
    total = max(1.0, len(data.codes) + sigma * rng.normal())
    return data.onto_simplexes(data.truth + sigma * rng.normal(size=data.truth.size), total)


def residual_planner(data: Data, epsilon: float, seed: int, loss: Any) -> np.ndarray:
    rng, residuals = np.random.default_rng(seed), data.residuals
    tables, parts = residuals.tables, residuals.parts
    importance, every = np.ones(len(tables.sets)), np.ones(len(parts.sets), dtype=bool)
    deviation = np.sqrt(best_variances(residuals, importance, loss, every)) / gaussian_mu(epsilon, DELTA)
    noise = parts.centred(rng.normal(size=parts.which.size) * deviation[parts.which])
    noisy = data.truth + residuals.sums.T @ (noise * parts.cells[parts.which]) / tables.cells[tables.which]
    return data.onto_simplexes(noisy, max(1.0, noisy[: tables.cells[0]].sum()))


def by_peer(data: Data, epsilon: float, runs: int, python: str, algorithm: str) -> list[np.ndarray]:
    with tempfile.TemporaryDirectory() as folder:
        given, written = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(
            given,
            data=data.codes,
            domain=np.array(data.sizes),
            marginals=json.dumps([list(m) for m in data.residuals.tables.sets]),
            algorithm=algorithm,
            rho=zcdp_rho(epsilon, DELTA),
            runs=runs,
        )
        done = subprocess.run([python, str(PEER), str(given), str(written)], capture_output=True, text=True)
        if done.returncode:
            print(f"  {algorithm} failed: {done.stderr.strip().splitlines()[-1:]}")
            return []
        return list(np.load(written)["answers"].astype(float))


def main() -> int:
    options = parser(
        __doc__,
        tables=["titanic", "adult"],
        columns=[7, 9, 14],
        epsilons=[0.1, 1.0, 10.0],
        runs=20,
        seed=0,
        peers=["MST", "AIM"],
        peer_runs=3,
    )
    options.add_argument("folder", type=data_path("*.npz"))
    options.add_argument("--peer-python", help="an interpreter with opendp[mbi]")
    given = options.parse_args()
    warnings.simplefilter("ignore", NotPrivateWarning)
    header()
    expected = Expectations()
    for name, columns in itertools.product(given.tables, given.columns):
        with np.load(given.folder / f"{name}.npz", allow_pickle=False) as file:
            if columns > file["domain"].size:
                continue
        data = load(given.folder / f"{name}.npz", columns)
        pairs = len(data.residuals.tables.sets)
        print(f"\n{data.name}: {len(data.codes)} records, {pairs} pairs, {data.truth.size} cells")
        table = Table(("epsilon", 7), ("method", 14), ("mean error of a cell", 28), ("largest", 22), ("s", 6))
        for epsilon in given.epsilons:
            found = compare(data, epsilon, given, table)
            for loss in LOSSES:
                mine = found.pop(f"ours {loss}")
                own = np.array([each[loss] for each in mine])
                rivals = {
                    m: np.array([each[loss] for each in e])
                    for m, e in found.items()
                    if m.split()[-1] not in LOSSES or m.endswith(loss)
                }
                rival = min(rivals, key=lambda m: rivals[m].mean())
                theirs = rivals[rival]
                ratio = own.mean() / theirs.mean()
                paired = theirs.size == own.size
                gap = own - 1.02 * theirs if paired else own.mean() - 1.02 * theirs
                error = gap.std(ddof=1) / math.sqrt(gap.size)
                what = f"{data.name}, epsilon {epsilon:g}, {loss}: {short(own.mean())} against {short(theirs.mean())}"
                expected.expect(gap.mean() <= 2 * error, f"{what} ({rival}), {ratio:.3f}")
    return expected.close()


def compare(data: Data, epsilon: float, given: Any, table: Table) -> dict[str, list[dict[str, float]]]:
    methods: dict[str, Callable[[int], np.ndarray]] = {"cells": lambda seed: cells(data, epsilon, seed)}
    for loss in LOSSES:
        methods[f"residuals {loss}"] = lambda seed, loss=loss: residual_planner(data, epsilon, seed, loss)
        methods[f"ours {loss}"] = lambda seed, loss=loss: ours(data, epsilon, seed, loss)
    found = {}
    for method, answer in methods.items():
        started = time.perf_counter()
        found[method] = [data.errors(answer(given.seed + run)) for run in range(given.runs)]
        _row(table, epsilon, method, found[method], (time.perf_counter() - started) / given.runs)
    for algorithm in given.peers if given.peer_python else ():
        started = time.perf_counter()
        answers = by_peer(data, epsilon, given.peer_runs, given.peer_python, algorithm)
        if answers:
            found[algorithm] = [data.errors(each) for each in answers]
            _row(table, epsilon, algorithm, found[algorithm], (time.perf_counter() - started) / given.peer_runs)
    return found


def _row(table: Table, epsilon: float, method: str, errors: list[dict[str, float]], seconds: float) -> None:
    texts = [spread([each[loss] for each in errors]) for loss in LOSSES]
    table.row(f"{epsilon:g}", method, *texts, f"{seconds:.1f}")


if __name__ == "__main__":
    sys.exit(main())
