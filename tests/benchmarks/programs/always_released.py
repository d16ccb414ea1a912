"""Linear programs from files, feasible or not: after a charge there is a release, and nothing is spent on a refusal.

Private part and change bound
    As in ``netlib.py``: b, then c; one record moves one entry by ``--linf`` times the median size of the non-zero ones.
Run
    A fresh problem and a fresh account for every LP, part, epsilon and feasibility, with seeded noise (repeatable, not
    private). Every exception is caught, of whatever kind, and counted.
Expected
    An exception is a ``DPModelError``. What was spent is released: a ``Release`` that names the same budget, with a
    point or with a statement that there is none. What was refused is free. ``InfeasibleError`` is free too: public
    constraints that cannot hold are found before the charge.

    python -m tests.benchmarks.programs.always_released DATA/03_lp_netlib DATA/03_lp_kennington_mcf
    python -m tests.benchmarks.programs.always_released DATA/03_lp_netlib --range 8 --feasibility relaxed strict
"""

from __future__ import annotations

import sys
import time
from collections import Counter

import dpmodel as dpm
from tests.benchmarks.measuring import Expectations, Table, data_path, header, parser, short
from tests.benchmarks.programs.lp_files import LP, read_lp
from tests.benchmarks.programs.private_lps import files, quiet, with_private


def main() -> int:
    cli = parser(__doc__, epsilons=[1.0], seed=0)
    cli.add_argument("folders", nargs="+", type=data_path("*.npz", "*.mps", "*.mps.gz"), help="folders or files")
    cli.add_argument("--feasibility", nargs="*", default=["centred"], choices=("relaxed", "centred", "safe", "strict"))
    cli.add_argument("--linf", type=float, default=1e-3, help="change bound relative to the part's scale")
    cli.add_argument(
        "--range", type=float, default=None, help="public bounds, so many changes around each private entry"
    )
    cli.add_argument("--largest", type=int, default=20_000, help="skip programs with more non-zeros")
    cli.add_argument("--least", type=int, default=100, help="expect at least this many runs")
    given = cli.parse_args()
    header()
    quiet()
    table = Table(("program", 20), ("private", 7), ("epsilon", 7), ("asked", 8), ("spent", 7), ("end", 60), ("s", 5))
    ends: dict[str, Counter[str]] = {"b": Counter(), "c": Counter()}
    raw, lost, dear = [], [], []
    for path in files(given.folders):
        lp = read_lp(path)
        if lp.A_ub.nnz + lp.A_eq.nnz > given.largest:
            table.row(lp.name, "-", "-", "-", "-", "skipped: more non-zeros than --largest")
            continue
        for part in ends:
            for epsilon in given.epsilons:
                for feasibility in given.feasibility:
                    started = time.perf_counter()
                    end, spent, released, ours = one(given, lp, part, epsilon, feasibility)
                    seconds = short(time.perf_counter() - started, 2)
                    table.row(lp.name, part, f"{epsilon:g}", feasibility, f"{spent:g}", end, seconds)
                    ends[part][end.split(":")[0]] += 1
                    where = f"{lp.name} {part} {epsilon:g} {feasibility}"
                    raw += [] if ours else [where]
                    lost += [where] if spent > 0 and released != spent else []
                    dear += [where] if spent > 0 and end.startswith("refused") else []
    print()
    for part, counted in ends.items():
        print(f"{part} private: " + ", ".join(f"{end} {count}" for end, count in sorted(counted.items())))
    expected, runs = Expectations(), sum(sum(counted.values()) for counted in ends.values())
    expected.expect(runs >= given.least, f"{runs} runs (at least {given.least})")
    expected.expect(not raw, f"exceptions that are no DPModelError: {raw or 'none'}")
    expected.expect(not lost, f"charged without a release of that budget: {lost or 'none'}")
    expected.expect(not dear, f"refused and charged: {dear or 'none'}")
    return expected.close()


def one(given, lp: LP, part, epsilon: float, feasibility: str) -> tuple[str, float, float, bool]:
    """(how it ended, epsilon spent, epsilon of the release, whether any error was the package's own)."""
    made = with_private(lp, part, given.linf, half_range=given.range)
    account = dpm.Budget(epsilon, 1e-6)
    ours, end = True, ""
    try:
        made.problem.solve(epsilon, 1e-6, feasibility=feasibility, budget=account, rng=given.seed)
    except Exception as error:
        ours = isinstance(error, dpm.DPModelError)
        words = " ".join(str(error).split())[:70]
        end = f"refused, {type(error).__name__}: {words}"
    spent, release = account.spent.epsilon, made.problem.release
    if not end and release is not None:
        end = f"{release.mechanism}, {release.status}"
    return end, spent, 0.0 if release is None else release.guarantee.epsilon, ours


if __name__ == "__main__":
    sys.exit(main())
