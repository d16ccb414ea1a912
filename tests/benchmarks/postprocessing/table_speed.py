"""Time to the maximum-likelihood table of 2^16 cells with all two-way margins public: our ADMM and general solvers.

``--columns`` binary columns; people drawn from a mixture of eight independent models; Laplace noise of scale 1/epsilon
on every cell; cells non-negative. Ours gets the margins as people write them, every cell of every margin (480 rows for
16 columns, recognised within the time); general solvers get independent rows (the total, every column's second
category, every pair's: 137), which is the kindest form. Rules of the comparison as in ``tree_speed.py``, with our
objective, whose relative duality gap is below 1e-5, in the exact one's place; simplex and interior point check it.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dpmodel.released.form import LikelihoodForm
from tests.benchmarks.measuring import Expectations, Table, header, parser, quartiles, short, spread
from tests.benchmarks.postprocessing.baselines import margin_matrix
from tests.benchmarks.postprocessing.solvers import GENERAL, admm_table, laddered, timed

Floats = npt.NDArray[np.float64]
SHARP = ("HiGHS", "HiGHS interior")


def people(columns: int, count: int, rng: np.random.Generator) -> Floats:
    """(2^columns,) counts."""
    kinds = rng.dirichlet(np.ones(8))
    chance = rng.beta(0.5, 0.5, size=(8, columns))
    of = rng.choice(8, size=count, p=kinds)
    bits = rng.random((count, columns)) < chance[of]
    return np.bincount(bits @ (1 << np.arange(columns)[::-1]), minlength=1 << columns).astype(float)


def margins(columns: int, order: int) -> sp.csr_array:
    """(rows, cells) 0/1: for every set of at most ``order`` columns, the cells where all are in the second category."""
    bits = (np.arange(1 << columns)[:, None] >> np.arange(columns)[::-1]) & 1
    rows = []
    for size in range(order + 1):
        for chosen in itertools.combinations(range(columns), size):
            cells = np.flatnonzero(bits[:, list(chosen)].all(axis=1))
            rows.append(
                sp.csr_array((np.ones(cells.size), (np.zeros(cells.size, int), cells)), shape=(1, 1 << columns))
            )
    return sp.csr_array(sp.vstack(rows))


def small() -> LikelihoodForm:
    A = margin_matrix((2, 2), 1)
    return LikelihoodForm.of(
        sp.eye_array(4), np.ones(4), absolute=1.0, equality=A, equality_value=np.full(4, 2.0), lower=0.0
    )


def main() -> int:
    reading = parser(__doc__, columns=16, people=20_000, epsilon=1.0, repetitions=3)
    reading.add_argument("--solvers", nargs="*", default=list(GENERAL), choices=list(GENERAL))
    reading.add_argument("--cap", type=float, default=300.0, help="seconds for one solve of a general solver")
    options = reading.parse_args()
    header(("dpmodel", "numpy", "scipy", "highspy", "osqp", "clarabel", "scs"))
    rng = np.random.default_rng(0)
    x = people(options.columns, options.people, rng)
    A = margins(options.columns, 2)
    noisy = x + rng.laplace(scale=1 / options.epsilon, size=x.size)
    eye = sp.eye_array(x.size)
    known = {"equality": A, "equality_value": A @ x, "lower": 0.0}
    form = LikelihoodForm.of(eye, noisy, absolute=options.epsilon, **known)
    print(f"{x.size} cells, {np.mean(x == 0):.1%} empty, {A.shape[0]} rows of margins with {A.nnz} entries", end="; ")
    print(f"load at the start: {os.getloadavg()[0]:.2f}\n")
    expected = Expectations()
    shape = (2,) * options.columns
    complete = margin_matrix(shape, 2)
    written = replace(form, equality=complete, equality_value=complete @ x)
    admm_table(small(), (2, 2))  # imports are not what is timed
    seconds, found = timed(lambda: admm_table(written, shape), options.repetitions)
    ours, best = quartiles(seconds)[0], form.objective(found)
    columns = (
        ("wall s", 26),
        ("own s", 9),
        ("objective - ours", 16),
        ("violation", 9),
        ("x ours", 8),
        ("tolerance", 24),
    )
    table = Table(("solver", 15), *columns)
    table.row("ADMM tables", spread(seconds), "", "0", f"{form.violation(found):.0e}", "1", "")
    fastest, away = math.inf, 0.0
    for name in options.solvers:
        result = laddered(name, form, best, options.cap)
        ended = math.isfinite(result.objective)
        apart = f"{result.objective / best - 1:.1e}" if ended else "-"
        violation = f"{result.violation:.0e}" if ended else "-"
        if ended and not result.note.startswith("not"):
            fastest = min(fastest, result.wall)
        if ended and name in SHARP:
            away = max(away, abs(best / result.objective - 1))
            expected.expect(away <= 1e-4, f"ADMM's objective is that of {name} to 1e-4: off by {away:.1e}")
        table.row(name, short(result.wall), short(result.own), apart, violation, short(result.wall / ours), result.note)
    print(f"load at the end: {os.getloadavg()[0]:.2f}")
    if math.isfinite(fastest):
        print(f"best general solver over ADMM: {fastest / ours:.3g}")
    return expected.close()


if __name__ == "__main__":
    sys.exit(main())
