"""Query release on discrete tables: largest and mean error of marginals against simpler and known methods.

    python -m tests.benchmarks.queries.query_release FOLDER [--tables titanic adult] [--epsilons 0.1 1 10] [--runs 5]
        [--three 50] [--most-cells 100000] [--columns ...] [--peer-python PATH] [--mwem]

FOLDER holds npz files with data (n, d) codes, columns (d,), domain (d,). The workload is all 2-way marginals and
``--three`` random 3-way ones of at most ``--most-cells`` cells (seed 0). Add/remove, the number of records private,
delta 1e-6. Errors are in counts divided by n: the largest over all cells and the mean over all cells, median
[quartiles] over the runs.

* ours: ``query_release`` with automatic weights, by the planner's choice;
* equal: the same with weights="equal";
* noise: the simple alternative: Gaussian noise on every cell of the workload and on the number of records once, each
  marginal then projected to non-negative tables of that number;
* MWEM (``--mwem``): multiplicative weights with a marginal chosen per round by the exponential mechanism and measured
  with Gaussian noise, on the whole domain where it has at most 1e6 cells (``--columns``), the best number of rounds
  of 5, 10, 20 in its favour;
* MST, by OpenDP in the interpreter ``--peer-python`` (which has ``opendp[mbi]``).

Expectation: ours is at least as good as the best of the others in every column (medians; noise-free ties allowed).
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
from dpmodel.marks.domain import Domain
from dpmodel.privacy import gaussian_mu, zcdp_rho
from dpmodel.released import query_release
from dpmodel.released.faces.workload import counts, sums
from tests.benchmarks.measuring import Expectations, Table, data_path, header, parser, short, spread

DELTA = 1e-6
PEER = Path(__file__).with_name("query_release_peer.py")
_MOST_DOMAIN = 1_000_000


@dataclass(frozen=True)
class Data:
    """A table of codes, its domain, and a workload with its true answers."""

    name: str
    codes: np.ndarray
    domain: Domain
    marginals: tuple[tuple[str, ...], ...]
    truth: tuple[np.ndarray, ...]

    @property
    def n(self) -> int:
        return int(self.codes.shape[0])

    def errors(self, answers: list[np.ndarray]) -> dict[tuple[int, str], float]:
        out = {}
        for order in (2, 3):
            gaps = [
                np.abs(a - t) for a, t, m in zip(answers, self.truth, self.marginals, strict=True) if len(m) == order
            ]
            if gaps:
                every = np.concatenate(gaps) / self.n
                out[order, "max"], out[order, "mean"] = float(every.max()), float(every.mean())
        return out


def load(path: Path, three: int, most: int, columns: list[str] | None) -> Data:
    with np.load(path, allow_pickle=False) as file:
        names, sizes, codes = [str(c) for c in file["columns"]], file["domain"], file["data"].astype(np.int64)
    kept = [names.index(c) for c in columns] if columns else list(range(len(names)))
    domain = Domain.of({names[j]: int(sizes[j]) for j in kept})
    codes = codes[:, kept]
    pairs = list(itertools.combinations(domain.columns, 2))
    triples = [m for m in itertools.combinations(domain.columns, 3) if domain.size(m) <= most]
    rng = np.random.default_rng(0)
    chosen = sorted(rng.choice(len(triples), size=min(three, len(triples)), replace=False))
    marginals = (*pairs, *(triples[i] for i in chosen))
    truth = tuple(counts(domain, codes, domain.columns, m) for m in marginals)
    return Data(path.stem, codes, domain, marginals, truth)


# ------------------------------------------------------------------ the methods: (data, epsilon, seed) -> answers
def ours(data: Data, epsilon: float, seed: int, weights: Any = "auto", mechanism: str = "auto") -> list[np.ndarray]:
    release = query_release(data.codes, data.marginals, domain=data.domain, weights=weights, neighbors="add-remove")
    release.solve(epsilon, DELTA, rng=seed, mechanism=mechanism)
    return [release.answers(m).values.ravel() for m in data.marginals]


def noise_once(data: Data, epsilon: float, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    sigma = math.sqrt(len(data.marginals) + 1) / gaussian_mu(epsilon, DELTA)
    total = max(1.0, data.n + sigma * rng.normal())
    return [onto_simplex(t + sigma * rng.normal(size=t.size), total) for t in data.truth]


def onto_simplex(v: np.ndarray, total: float) -> np.ndarray:
    """Nearest non-negative vector with this sum."""
    down = np.sort(v)[::-1]
    shift = (np.cumsum(down) - total) / np.arange(1, v.size + 1)
    return np.maximum(v - shift[np.flatnonzero(down > shift)[-1]], 0.0)


def mwem(data: Data, epsilon: float, seed: int, rounds: int) -> list[np.ndarray]:
    """Hardt, Ligett and McSherry 2012 with whole marginals per round; a tenth of the budget goes to the total."""
    rng = np.random.default_rng(seed)
    rho = zcdp_rho(epsilon, DELTA)
    total = max(1.0, data.n + rng.normal() / math.sqrt(2 * 0.1 * rho))
    step = 0.9 * rho / rounds
    pick, sigma = math.sqrt(8 * step / 2), 1 / math.sqrt(2 * step / 2)
    cells = [sums(data.domain, data.domain.columns, m) for m in data.marginals]
    x = np.full(data.domain.cells, total / data.domain.cells)
    seen: list[tuple[int, np.ndarray]] = []
    for _ in range(rounds):
        # One record moves a marginal's 1-norm gap by one; large marginals are handicapped by their expected noise.
        gaps = [np.abs(np.bincount(c, x, t.size) - t).sum() for c, t in zip(cells, data.truth, strict=True)]
        handicap = sigma * math.sqrt(2 / math.pi) * np.array([t.size for t in data.truth])
        scores = np.array(gaps) - handicap
        chosen = int(np.argmax(pick * scores / 2 + rng.gumbel(size=scores.size)))
        seen.append((chosen, data.truth[chosen] + sigma * rng.normal(size=data.truth[chosen].size)))
        for _ in range(20):
            for i, y in seen:
                now = np.bincount(cells[i], x, y.size)
                x = x * np.exp((y - now)[cells[i]] / (2 * total))
                x *= total / x.sum()
    return [np.bincount(c, x, t.size) for c, t in zip(cells, data.truth, strict=True)]


def by_peer(data: Data, epsilon: float, runs: int, python: str) -> list[list[np.ndarray]]:
    with tempfile.TemporaryDirectory() as folder:
        asked, written = Path(folder) / "in.npz", Path(folder) / "out.npz"
        numbers = [[data.domain.columns.index(c) for c in m] for m in data.marginals]
        np.savez(
            asked,
            data=data.codes,
            domain=np.array(data.domain.sizes),
            marginals=json.dumps(numbers),
            algorithm="MST",
            rho=zcdp_rho(epsilon, DELTA),
            runs=runs,
        )
        done = subprocess.run([python, str(PEER), str(asked), str(written)], capture_output=True, text=True)
        if done.returncode:
            print(f"  the peer failed: {done.stderr.strip().splitlines()[-1:]}")
            return []
        answers = np.load(written)["answers"]
    cuts = np.cumsum([t.size for t in data.truth])[:-1]
    return [np.split(one.astype(float), cuts) for one in answers]


def main() -> int:
    options = parser(
        __doc__,
        tables=["titanic", "adult"],
        epsilons=[0.1, 1.0, 10.0],
        runs=5,
        seed=0,
        three=50,
        most_cells=100_000,
        peer_runs=3,
        mwem=False,
    )
    options.add_argument("folder", type=data_path("*.npz"))
    options.add_argument("--columns", nargs="+", help="use these columns only")
    options.add_argument("--mechanism", default="auto", help="for ours: a mechanism's name")
    options.add_argument("--peer-python", help="an interpreter with opendp[mbi]")
    given = options.parse_args()
    warnings.simplefilter("ignore", NotPrivateWarning)
    header()
    expected = Expectations()
    for name in given.tables:
        data = load(given.folder / f"{name}.npz", given.three, given.most_cells, given.columns)
        cells = sum(t.size for t in data.truth)
        print(
            f"\n{name}: {data.n} records, {data.domain.cells:.3g} cells; {len(data.marginals)} marginals, {cells} cells"
        )
        table = Table(
            ("epsilon", 7), ("method", 8), ("2-way max", 22), ("mean", 28), ("3-way max", 22), ("mean", 28), ("s", 6)
        )
        for epsilon in given.epsilons:
            best = compare(data, epsilon, given, table)
            for column in best["ours"]:
                rivals = {m: v[column] for m, v in best.items() if m not in ("ours", "equal")}
                rival = min(rivals, key=lambda m: rivals[m])
                what = (
                    f"{name}, epsilon {epsilon:g}, {column[0]}-way {column[1]}: {short(best['ours'][column])} against"
                )
                met = best["ours"][column] <= rivals[rival]
                expected.expect(met, f"{what} {short(rivals[rival])} ({rival})")
    return expected.close()


def compare(data: Data, epsilon: float, given: Any, table: Table) -> dict[str, dict[tuple[int, str], float]]:
    methods: dict[str, Callable[[int], list[np.ndarray]]] = {
        "ours": lambda seed: ours(data, epsilon, seed, mechanism=given.mechanism),
        "equal": lambda seed: ours(data, epsilon, seed, "equal", given.mechanism),
        "noise": lambda seed: noise_once(data, epsilon, seed),
    }
    if given.mwem and data.domain.cells <= _MOST_DOMAIN:
        for rounds in (5, 10, 20):
            methods[f"MWEM {rounds}"] = lambda seed, rounds=rounds: mwem(data, epsilon, seed, rounds)
    found: dict[str, dict[tuple[int, str], float]] = {}
    for method, answer in methods.items():
        started = time.perf_counter()
        errors = [data.errors(answer(given.seed + run)) for run in range(given.runs)]
        found[method] = _row(table, epsilon, method, errors, (time.perf_counter() - started) / given.runs)
    if given.peer_python:
        started = time.perf_counter()
        answers = by_peer(data, epsilon, given.peer_runs, given.peer_python)
        if answers:
            errors = [data.errors(a) for a in answers]
            found["MST"] = _row(table, epsilon, "MST", errors, (time.perf_counter() - started) / given.peer_runs)
    return found


def _row(table: Table, epsilon: float, method: str, errors: list[Any], seconds: float) -> dict[tuple[int, str], float]:
    columns = {key: [e[key] for e in errors] for key in errors[0]}
    texts = [spread(columns[key]) if key in columns else "-" for key in itertools.product((2, 3), ("max", "mean"))]
    table.row(f"{epsilon:g}", method, *texts, f"{seconds:.1f}")
    return {key: float(np.median(values)) for key, values in columns.items()}


if __name__ == "__main__":
    sys.exit(main())
