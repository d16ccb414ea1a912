"""What privacy costs in time: a whole private solve against plain CVXPY on the same program with the same solver.

Both start from the arrays and a fresh problem: construction, compilation and solution; the private one also
classifies, plans, and draws its noise (rng=None). Runs are interleaved (plain, b private, plain, c private,
plain, ...), so that load on the machine hits all alike. The first private solve of a process is timed apart and left
out. One record moves one private entry by ``--linf`` times the part's median non-zero.

The breakdown's phases: construct (the CVXPY objects and the sealing of the private values), compile (lowering,
footprint, classification, standard form), plan (forecasts of all mechanisms), noise, solve (the released program,
from its CVXPY objects to the solution), rest (writing back, the release). ``solves`` counts the programs solved,
``solver`` is the time inside HiGHS of all of them, beside that of the plain solve.

    python -m tests.benchmarks.programs.overhead DATA/03_lp_kennington_mcf DATA/03_lp_netlib --largest 4
"""

from __future__ import annotations

import gc
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import cvxpy as cp

from dpmodel.mechanisms.lp.noise_once import mechanism as noise_once
from dpmodel.numerics import cone_program
from tests.benchmarks.measuring import Expectations, Table, data_path, header, parser, quartiles, short, spread
from tests.benchmarks.programs.lp_files import LP, read_lp
from tests.benchmarks.programs.private_lps import files, plain, quiet, with_private


class Clock:
    """Seconds per phase, taken by wrapping functions for the time of one solve."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
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


def solve_private(lp: LP, part: str, given, mechanism: str = "auto") -> tuple[float, str]:
    gc.collect()
    start = time.perf_counter()
    made = with_private(lp, part, given.linf)
    made.problem.solve(epsilon=given.epsilon, delta=given.delta, solver=cp.HIGHS, mechanism=mechanism)
    return time.perf_counter() - start, f"{made.problem.release.mechanism}, {made.problem.release.status}"


def breakdown(lp: LP, part: str, given) -> dict[str, float]:
    """Seconds per phase of one private solve."""
    clock = Clock()
    undo = [
        clock.wrap(noise_once, "released_parts", "noise"),
    ]
    solver_seconds: list[float] = []
    inner = cone_program.cp.Problem.solve

    def cached(self, *args, **kwargs):
        value = inner(self, *args, **kwargs)
        if type(self) is cp.Problem and self.solver_stats is not None and self.size_metrics.num_scalar_variables > 10:
            solver_seconds.append(float(self.solver_stats.solve_time or 0.0))
        return value

    cone_program.cp.Problem.solve = cached
    try:
        gc.collect()
        start = time.perf_counter()
        made = with_private(lp, part, given.linf)
        constructed = time.perf_counter()
        made.problem.solve(epsilon=given.epsilon, delta=given.delta, solver=cp.HIGHS)
        end = time.perf_counter()
    finally:
        cone_program.cp.Problem.solve = inner
        for owner, attribute, function in reversed(undo):
            setattr(owner, attribute, function)
    timings = made.problem.release.timings
    out = {
        "construct": constructed - start,
        "compile": timings["compile"],
        "plan": timings["plan"],
        "noise": clock.seconds["noise"],
        "solve": timings["solve"],
    }
    out["rest"] = end - start - sum(out.values())
    out["total"] = end - start
    out["solves"] = len(solver_seconds)
    out["solver"] = sum(solver_seconds)
    return out


def choose(given) -> list[LP]:
    """The largest programs of each given folder."""
    chosen: list[LP] = []
    for folder in given.folders:
        found = [read_lp(path) for path in files([folder])]
        found = [lp for lp in found if not lp.name.startswith("infeasible")]
        found.sort(key=lambda lp: -(lp.A_ub.nnz + lp.A_eq.nnz))
        chosen += found[: given.largest]
    return chosen


def main() -> int:
    cli = parser(__doc__, repetitions=11, epsilon=1.0, delta=1e-6, linf=1e-3)
    cli.add_argument("folders", nargs="+", type=data_path("*.npz", "*.mps", "*.mps.gz"), help="folders or files")
    cli.add_argument("--largest", type=int, default=4, help="so many per folder, by non-zeros")
    cli.add_argument("--parts", nargs="+", choices=("b", "c"), default=["b", "c"])
    cli.add_argument("--expected", type=float, default=1.5, help="largest ratio of medians expected")
    given = cli.parse_args()
    header()
    quiet()
    programs = choose(given)
    smallest = min(programs, key=lambda lp: lp.c.size)
    solve_plain(smallest)
    first, _ = solve_private(smallest, "b", given)
    print(f"first private solve of the process ({smallest.name}), left out below: {first:.3f} s\n")

    expected = Expectations()
    phases: list[tuple[str, str, dict[str, list[float]], list[float]]] = []
    table = Table(
        ("program", 10),
        ("variables", 9),
        ("rows", 6),
        ("nnz", 6),
        ("private", 7),
        ("plain ms", 16),
        ("private ms", 16),
        ("ratio of medians", 16),
        ("quartiles of paired ratios", 26),
        ("mechanism", 22),
    )
    for lp in programs:
        seconds: dict[str, list[float]] = defaultdict(list)
        solver: list[float] = []
        used: dict[str, str] = {}
        split: dict[str, dict[str, list[float]]] = {part: defaultdict(list) for part in given.parts}
        solve_plain(lp)
        for part in given.parts:
            solve_private(lp, part, given)
        for _ in range(given.repetitions):
            for part in given.parts:
                total, alone = solve_plain(lp)
                seconds[f"plain {part}"].append(total)
                solver.append(alone)
                taken, used[part] = solve_private(lp, part, given)
                seconds[part].append(taken)
        for part in given.parts:
            for _ in range(max(3, given.repetitions // 2)):
                for phase, value in breakdown(lp, part, given).items():
                    split[part][phase].append(value)
        for part in given.parts:
            base, ours = seconds[f"plain {part}"], seconds[part]
            ratio = quartiles(ours)[0] / quartiles(base)[0]
            table.row(
                lp.name,
                lp.c.size,
                lp.b_ub.size + lp.b_eq.size,
                lp.A_ub.nnz + lp.A_eq.nnz,
                part,
                spread([1e3 * s for s in base]),
                spread([1e3 * s for s in ours]),
                f"{ratio:.2f}",
                spread([a / b for a, b in zip(ours, base, strict=True)]),
                used[part],
            )
            expected.expect(ratio <= given.expected, f"{lp.name}, {part} private: {ratio:.2f} times plain CVXPY "
                            f"(at most {given.expected:g})")  # fmt: skip
            phases.append((lp.name, part, split[part], solver))

    print("\nwhere a private solve's time goes, medians in ms")
    names = ("construct", "compile", "plan", "noise", "solve", "rest", "total")
    table = Table(
        ("program", 10),
        ("private", 7),
        *((name, 9) for name in names),
        ("solves", 6),
        ("solver", 9),
        ("solver in plain", 15),
    )
    for name, part, found, solver in phases:
        cells = [short(1e3 * quartiles(found[phase])[0]) for phase in names]
        solves = f"{quartiles(found['solves'])[0]:.0f}"
        table.row(
            name, part, *cells, solves, short(1e3 * quartiles(found["solver"])[0]), short(1e3 * quartiles(solver)[0])
        )
    return expected.close()


if __name__ == "__main__":
    sys.exit(main())
