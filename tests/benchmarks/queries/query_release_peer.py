"""Marginals by OpenDP's MST or AIM, for query_release.py; runs in an interpreter that has ``opendp[mbi]``.

    python query_release_peer.py INPUT.npz OUTPUT.npz

INPUT: data (n, d) codes, domain (d,), marginals (JSON list of column-number lists), algorithm, rho (zCDP), runs.
OUTPUT: answers (runs, all cells of all marginals in the given order) and seconds (runs,). The noise is
OpenDP's own and cannot be seeded. Add/remove, one row per person.
"""

import json
import sys
import time
import warnings

import numpy as np
import opendp.prelude as dp
import polars as pl
from opendp.extras.mbi import _mst

warnings.filterwarnings("ignore")
dp.enable_features("contrib")
# Its split of a budget takes one last digit off, too little for sums of several shares ("insufficient budget").
_mst.prior = lambda share: share * (1 - 1e-9)


def main() -> None:
    given = np.load(sys.argv[1], allow_pickle=False)
    domain, marginals = given["domain"], json.loads(str(given["marginals"]))
    names = [f"c{j}" for j in range(domain.size)]
    frame = pl.LazyFrame({name: given["data"][:, j].astype(np.int32) for j, name in enumerate(names)})
    algorithm = {"MST": dp.mbi.MST, "AIM": dp.mbi.AIM}[str(given["algorithm"])]()
    answers, seconds = [], []
    for _ in range(int(given["runs"])):
        started = time.perf_counter()
        context = dp.Context.compositor(
            data=frame, privacy_unit=dp.unit_of(contributions=1), privacy_loss=dp.loss_of(rho=float(given["rho"]))
        )
        query = context.query(rho=float(given["rho"])).select(*names)
        keys = {name: list(range(int(size))) for name, size in zip(names, domain, strict=True)}
        table = query.contingency_table(keys=keys, algorithm=algorithm).release()
        parts = []
        for marginal in marginals:
            values = np.asarray(table.project(tuple(names[j] for j in marginal)))
            # OpenDP adds a category for missing values to every column.
            parts.append(values[tuple(slice(0, int(domain[j])) for j in marginal)].ravel())
        answers.append(np.concatenate(parts).astype(np.float32))
        seconds.append(time.perf_counter() - started)
    np.savez(sys.argv[2], answers=np.array(answers), seconds=np.array(seconds))


if __name__ == "__main__":
    main()
