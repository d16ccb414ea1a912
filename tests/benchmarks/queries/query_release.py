"""Marginals of discrete tables: mean and largest error of a cell against simpler and published methods.

    python -m tests.benchmarks.queries.query_release FOLDER [--tables titanic adult] [--columns 7 9 14]
        [--epsilons 0.1 1 10] [--delta 1e-6] [--runs 20] [--peer-python PATH --peers MST AIM]

Somewhere below FOLDER are the tables: NAME.npz with data (n, d) codes, columns (d,), domain (d,), or NAME.csv (or
.csv.gz), whose numbers of more than forty values are cut into twenty classes of equally many records. (Benchmarks may
read a domain off the data.) The workload is all pairs of the ``columns`` columns of fewest values (0: all of them).
Add-remove, the number of records private. Every method sees the same seeds.

* ours: ``query_release`` with loss="mean", judged by the mean absolute error of a cell, and with loss="max", judged by
  the largest;
* cells: Gaussian noise on every cell and on the number of records once, each table then onto non-negative tables of
  that number;
* residuals: ResidualPlanner, with the variances that are best for the judged loss, each table then likewise;
* at delta 0 instead: Laplace noise on every cell, each table then likewise, and "least squares", which makes these
  noisy tables agree first;
* MST and AIM, with delta > 0, by OpenDP in the interpreter ``--peer-python`` (which has ``opendp[mbi]``).

Expectation: ours is at most 1.02 times the best of the others, by the mean over the runs, or the difference is within
two standard errors of the paired differences.
"""

from __future__ import annotations

import functools
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
import pandas as pd

from dpmodel.errors import NotPrivateWarning
from dpmodel.privacy import gaussian_mu, zcdp_rho
from dpmodel.released import query_release
from dpmodel.released.pinned_fit import onto_simplex
from dpmodel.released.residuals import Residuals, best_variances, from_tables
from tests.benchmarks.measuring import Expectations, Table, data_path, header, parser, short, spread

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

    def spread(self, parts: np.ndarray) -> np.ndarray:
        """The tables that have these residuals."""
        residuals, which = self.residuals, self.residuals.parts.which
        summed = residuals.sums.T @ (parts * residuals.parts.cells[which])
        return summed / residuals.tables.cells[residuals.tables.which]

    def onto_simplexes(self, noisy: np.ndarray, total: float) -> np.ndarray:
        start = self.residuals.tables.start
        return np.concatenate([onto_simplex(noisy[a:b], total) for a, b in itertools.pairwise(start)])


def coded(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """(records, columns) codes, and the number of values of each column."""
    path = next(found for end in (".npz", ".csv", ".csv.gz") for found in sorted(folder.rglob(name + end)))
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            return file["data"].astype(np.int64), file["domain"].astype(int)
    columns = []
    for _, column in pd.read_csv(path).items():
        if column.dtype.kind in "if" and column.nunique() > 40:
            column = pd.qcut(column.rank(method="first"), 20, labels=False)
        columns.append(pd.factorize(column, sort=True, use_na_sentinel=False)[0])
    codes = np.stack(columns, axis=1)
    return codes, codes.max(axis=0) + 1


def load(folder: Path, name: str, columns: int) -> Data:
    codes, sizes = coded(folder, name)
    taken = np.sort(np.argsort(sizes, kind="stable")[: columns or sizes.size])
    codes, sizes = codes[:, taken], sizes[taken]
    residuals = Residuals.of(itertools.combinations(range(sizes.size), 2), sizes.tolist())
    tables = residuals.tables
    flat = [np.ravel_multi_index(tuple(codes[:, list(m)].T), tables.shape(m)) for m in tables.sets]
    truth = [np.bincount(f, minlength=c) for f, c in zip(flat, tables.cells, strict=True)]
    return Data(f"{name}, {sizes.size} columns", codes, residuals, np.concatenate(truth).astype(float))


# ------------------------------------------------------------------ methods: (data, epsilon, delta, seed) -> answers
def ours(data: Data, epsilon: float, delta: float, seed: int, loss: Any) -> np.ndarray:
    names = [f"c{i}" for i in range(len(data.sizes))]
    domain = dict(zip(names, data.sizes, strict=True))
    pairs = [tuple(names[i] for i in m) for m in data.residuals.tables.sets]
    query = query_release(data.codes, pairs, domain=domain, neighbors="add-remove", loss=loss)
    release = query.solve(epsilon, delta, rng=seed)
    return np.concatenate([release.variables[" x ".join(m)].ravel() for m in pairs])


def cells(data: Data, epsilon: float, delta: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    sigma = math.sqrt(len(data.residuals.tables.sets) + 1) / gaussian_mu(epsilon, delta)
    total = max(1.0, len(data.codes) + sigma * rng.normal())
    return data.onto_simplexes(data.truth + sigma * rng.normal(size=data.truth.size), total)


def residual_planner(data: Data, epsilon: float, delta: float, seed: int, loss: Any) -> np.ndarray:
    rng, residuals = np.random.default_rng(seed), data.residuals
    tables, parts = residuals.tables, residuals.parts
    importance, every = np.ones(len(tables.sets)), np.ones(len(parts.sets), dtype=bool)
    deviation = np.sqrt(best_variances(residuals, importance, loss, every)) / gaussian_mu(epsilon, delta)
    noise = parts.centred(rng.normal(size=parts.which.size) * deviation[parts.which])
    noisy = data.truth + data.spread(noise)
    return data.onto_simplexes(noisy, max(1.0, noisy[: tables.cells[0]].sum()))


def laplace(data: Data, epsilon: float, delta: float, seed: int, agree: bool) -> np.ndarray:
    tables = data.residuals.tables
    noisy = data.truth + np.random.default_rng(seed).laplace(size=data.truth.size) * len(tables.sets) / epsilon
    parts, _ = from_tables(data.residuals, noisy, np.ones(len(tables.sets)))
    return data.onto_simplexes(data.spread(parts) if agree else noisy, max(1.0, parts[0]))


def by_peer(data: Data, epsilon: float, delta: float, runs: int, python: str, algorithm: str) -> list[np.ndarray]:
    with tempfile.TemporaryDirectory() as folder:
        given, written = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(
            given,
            data=data.codes,
            domain=np.array(data.sizes),
            marginals=json.dumps([list(m) for m in data.residuals.tables.sets]),
            algorithm=algorithm,
            rho=zcdp_rho(epsilon, delta),
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
        delta=1e-6,
        runs=20,
        seed=0,
        peers=["MST", "AIM"],
        peer_runs=3,
    )
    options.add_argument("folder", type=data_path("*.npz", "*.csv*"))
    options.add_argument("--peer-python", help="an interpreter with opendp[mbi]")
    given = options.parse_args()
    warnings.simplefilter("ignore", NotPrivateWarning)
    header()
    expected = Expectations()
    for name, columns in itertools.product(given.tables, given.columns):
        data = load(given.folder, name, columns)
        if len(data.sizes) < columns:
            continue
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
    delta = given.delta
    methods: dict[str, Callable[..., np.ndarray]] = {
        f"ours {loss}": functools.partial(ours, loss=loss) for loss in LOSSES
    }
    if delta:
        methods["cells"] = cells
        methods |= {f"residuals {loss}": functools.partial(residual_planner, loss=loss) for loss in LOSSES}
    else:
        methods["cells"] = functools.partial(laplace, agree=False)
        methods["least squares"] = functools.partial(laplace, agree=True)
    found = {}
    for method, answer in methods.items():
        started = time.perf_counter()
        found[method] = [data.errors(answer(data, epsilon, delta, given.seed + run)) for run in range(given.runs)]
        _row(table, epsilon, method, found[method], (time.perf_counter() - started) / given.runs)
    for algorithm in given.peers if given.peer_python and delta else ():
        started = time.perf_counter()
        answers = by_peer(data, epsilon, delta, given.peer_runs, given.peer_python, algorithm)
        if answers:
            found[algorithm] = [data.errors(each) for each in answers]
            _row(table, epsilon, algorithm, found[algorithm], (time.perf_counter() - started) / given.peer_runs)
    return found


def _row(table: Table, epsilon: float, method: str, errors: list[dict[str, float]], seconds: float) -> None:
    texts = [spread([each[loss] for each in errors]) for loss in LOSSES]
    table.row(f"{epsilon:g}", method, *texts, f"{seconds:.1f}")


if __name__ == "__main__":
    sys.exit(main())
