"""What privacy costs in time: a whole private solve against plain CVXPY on the same program with the same solver.

Both start from the arrays and a fresh problem: construction, compilation and solution; the private one also classifies,
plans, and draws secure noise (rng=None). Runs are interleaved (plain, private, plain, ...), and the least of several
counts, because other load on the machine only adds. The first solve of a process is left out. One record moves one
private entry by ``--linf`` times the part's median non-zero.

Where c or A is private, infinite bounds on x are ``--box`` times the largest entry of the true solution, in the plain
program too: without them some objectives have no bound once they are noised, and A is refused.

The phases: construct (the CVXPY objects and the sealing of the private values), compile (lowering, footprint,
classification, standard form), plan (forecasts, and public checks before the charge), noise, solve (the released
program), rest (writing back, the release).

    python -m tests.benchmarks.programs.overhead DATA/03_lp_kennington_mcf DATA/03_lp_netlib
    python -m tests.benchmarks.programs.overhead DATA/03_lp_netlib --largest 6 --phases --mechanism laplace-once
"""

from __future__ import annotations

import gc
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import cvxpy as cp
import numpy as np

import dpmodel as dpm
from dpmodel.numerics import cone_program
from dpmodel.programs import noise_once
from tests.benchmarks.measuring import Table, data_path, header, parser, short
from tests.benchmarks.programs.lp_files import LP, read_lp
from tests.benchmarks.programs.private_lps import boxed, files, plain, quiet, with_private

# The share of ratios within this is told, and again for programs whose plain solve takes so many seconds.
_WITHIN, _LONG = 1.5, 0.05


class Clock:
    """Seconds per phase, taken by wrapping functions for the time of one solve."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        self.calls[name] += 1
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - start

    def wrap(self, owner, attribute: str, name: str):
        inner = getattr(owner, attribute)

        def timed(*args, **kwargs):
            with self.phase(name):
                return inner(*args, **kwargs)

        setattr(owner, attribute, timed)
        return owner, attribute, inner


def solve_plain(lp: LP) -> tuple[float, float]:
    """Seconds of construction and solution, and of the solver alone."""
    gc.collect()
    start = time.perf_counter()
    problem, _ = plain(lp)
    problem.solve(solver=cp.HIGHS)
    return time.perf_counter() - start, float(problem.solver_stats.solve_time or 0.0)


def solve_private(lp: LP, part: str, given) -> tuple[float, str]:
    gc.collect()
    start = time.perf_counter()
    made = with_private(lp, part, given.linf)
    made.problem.solve(epsilon=given.epsilon, delta=given.delta, solver=cp.HIGHS, mechanism=given.mechanism)
    return time.perf_counter() - start, f"{made.problem.release.mechanism}, {made.problem.release.status}"


def breakdown(lp: LP, part: str, given) -> dict[str, float]:
    """Seconds per phase of one private solve."""
    clock = Clock()
    undo = [clock.wrap(noise_once, "released_parts", "noise"), clock.wrap(cone_program, "ask", "solver")]
    try:
        gc.collect()
        start = time.perf_counter()
        made = with_private(lp, part, given.linf)
        constructed = time.perf_counter()
        made.problem.solve(epsilon=given.epsilon, delta=given.delta, solver=cp.HIGHS, mechanism=given.mechanism)
        end = time.perf_counter()
    finally:
        for owner, attribute, function in reversed(undo):
            setattr(owner, attribute, function)
    timings = made.problem.release.timings
    out = {
        "construct": constructed - start,
        "compile": timings["compile"],
        "plan": timings["plan"],
        "noise": clock.seconds["noise"],
        "solve": timings.get("solve", 0.0),
    }
    out["rest"] = end - start - sum(out.values())
    out["total"] = end - start
    out["solves"] = clock.calls["solver"]
    out["solver"] = clock.seconds["solver"]
    return out


def choose(given) -> list[LP]:
    """The programs of each given folder that have an optimum, the largest first."""
    chosen: list[LP] = []
    for folder in given.folders:
        found = [lp for lp in map(read_lp, files([folder])) if not lp.name.startswith("infeasible")]
        found.sort(key=lambda lp: -(lp.A_ub.nnz + lp.A_eq.nnz))
        chosen += found[: given.largest]
    return chosen


def bounded(lp: LP, part: str, given) -> LP:
    """Noise on c or A is multiplied by x: what a modeller knows about it stands in as bounds."""
    if part == "b":
        return lp
    problem, x = plain(lp)
    problem.solve(solver=cp.HIGHS)
    return boxed(lp, np.asarray(x.value), given.box)


def main() -> int:
    cli = parser(__doc__, repetitions=5, epsilon=1.0, delta=1e-6, linf=1e-3)
    cli.add_argument("folders", nargs="+", type=data_path("*.npz", "*.mps", "*.mps.gz"), help="folders or files")
    cli.add_argument("--largest", type=int, default=None, help="so many per folder, by non-zeros")
    cli.add_argument("--parts", nargs="+", choices=("b", "c", "A"), default=["b", "c", "A"])
    cli.add_argument("--box", type=float, default=2.0, help="c, A: public bounds on x, relative to the true solution")
    cli.add_argument("--mechanism", default="auto", help="or one mechanism, without the choice among them")
    cli.add_argument("--phases", action="store_true", help="where a private solve's time goes")
    given = cli.parse_args()
    header()
    quiet()
    programs = choose(given)
    smallest = min(programs, key=lambda lp: lp.c.size)
    solve_plain(smallest)
    first, _ = solve_private(smallest, "b", given)
    print(f"first private solve of the process ({smallest.name}), left out below: {first:.3f} s\n")

    ratios: dict[str, list[tuple[float, float]]] = defaultdict(list)
    table = Table(
        *(("program", 10), ("variables", 9), ("rows", 6), ("nnz", 6), ("private", 7), ("plain ms", 9)),
        *(("private ms", 10), ("ratio", 6), ("mechanism", 30)),
    )
    phases = []
    for lp in programs:
        for part in given.parts:
            try:
                ready = bounded(lp, part, given)
                solve_private(ready, part, given)
            except (dpm.DPModelError, cp.SolverError, ValueError) as error:
                table.row(lp.name, *["-"] * 3, part, *["-"] * 3, f"skipped: {str(error).splitlines()[0][:60]}")
                continue
            pairs = [(solve_plain(ready), solve_private(ready, part, given)) for _ in range(given.repetitions)]
            base, ours = (min(each[side][0] for each in pairs) for side in (0, 1))
            ratios[part].append((base, ours / base))
            sizes = lp.c.size, lp.b_ub.size + lp.b_eq.size, lp.A_ub.nnz + lp.A_eq.nnz
            table.row(
                lp.name, *sizes, part, short(1e3 * base), short(1e3 * ours), f"{ours / base:.2f}", pairs[-1][1][1]
            )
            if given.phases:
                runs = [breakdown(ready, part, given) for _ in range(given.repetitions)]
                phases.append((lp.name, part, min(runs, key=lambda run: run["total"])))

    print(f"\nprivate over plain, least of {given.repetitions} runs each:")
    for part, found in ratios.items():
        every, long = [ratio for _, ratio in found], [ratio for base, ratio in found if base >= _LONG]
        words = f"{part} private: median {np.median(every):.2f} of {len(every)}, worst {max(every):.1f}"
        for name, some in (("", every), (f", from {1e3 * _LONG:.0f} ms of plain solve on", long)):
            within = sum(ratio <= _WITHIN for ratio in some)
            words += f"; within {_WITHIN:g}{name}: {within} of {len(some)}"
        print(words)
    if given.phases:
        show(phases)
    return 0


def show(phases: list[tuple[str, str, dict[str, float]]]) -> None:
    print("\nwhere a private solve's time goes, ms of the quickest run; solver: inside them, of all programs solved")
    names = ("construct", "compile", "plan", "noise", "solve", "rest", "total", "solver")
    table = Table(("program", 10), ("private", 7), *((name, 9) for name in names), ("solves", 6))
    for name, part, found in phases:
        table.row(name, part, *(short(1e3 * found[phase]) for phase in names), f"{found['solves']:.0f}")


if __name__ == "__main__":
    sys.exit(main())
