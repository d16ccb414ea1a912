"""Forecast against measured error on linear programs from files (netlib npz, MPS), one part marked private.

Private part and change bound
    ``--private b``: right-hand sides, ``c``: objective coefficients, ``A``: the non-zeros of the matrix (their
    positions are public). unit="entry": one record moves one entry, by at most ``--linf`` times the median absolute
    value of the part's non-zero entries (default 0.1 for c, where small noise leaves the optimal vertex in place
    and the loss at 0; 0.001 for b and A).
Measured
    c: loss in the true objective, ``c'x - optimum``. b and A: largest violation of a true row. Both against the
    forecast's statement at beta = 0.05. Noise is seeded (repeatable, not private): nothing here is timed.
    Violations below 1e-6 of the largest right-hand side and losses below 1e-7 of the optimum are the solver's.
Public bounds
    Noise on A or c is multiplied by x, so x must be bounded publicly. ``--box F`` makes infinite bounds on x equal
    F times the largest entry of the true solution: a stand-in for what a modeller would know. Without it,
    programs with private A are skipped where no public constraint bounds x, and forecasts for c are infinite there.
Strict
    ``--feasibility strict`` marks the non-zero right-hand sides of inequalities private with public bounds
    ``--range R`` changes to either side of the true value, tries half of R, and so on down to R / 16 where the
    bounds leave no feasible point, and counts runs in which a true row is violated: the expectation is none.

    python -m tests.benchmarks.programs.netlib DATA/03_lp_netlib --private b
    python -m tests.benchmarks.programs.netlib DATA/03_lp_netlib --private A --box 2
    python -m tests.benchmarks.programs.netlib DATA/03_lp_netlib --feasibility strict --runs 1000
"""

from __future__ import annotations

import sys
import time
from collections import Counter

import cvxpy as cp
import numpy as np

import dpmodel as dpm
from tests.benchmarks.measuring import Expectations, Table, data_path, header, parser, quartiles, short, spread
from tests.benchmarks.programs.lp_files import LP, read_lp
from tests.benchmarks.programs.private_lps import (
    Model,
    boxed,
    files,
    plain,
    quiet,
    violation,
    with_private,
)


def main() -> int:
    cli = parser(__doc__, repetitions=20, epsilon=1.0, delta=1e-6, seed=0)
    cli.add_argument("folders", nargs="+", type=data_path("*.npz", "*.mps", "*.mps.gz"), help="folders or files")
    cli.add_argument("--private", choices=("b", "c", "A"), default="b")
    cli.add_argument("--linf", type=float, default=None, help="change bound relative to the part's scale")
    cli.add_argument("--least", type=int, default=1, help="expect at least this many programs to be measured")
    cli.add_argument("--box", type=float, default=None, help="public bounds on x, relative to the true solution")
    cli.add_argument("--nonzero", action="store_true", help="b, c: zero entries are public")
    cli.add_argument("--feasibility", choices=("centred", "relaxed", "strict"), default="centred")
    cli.add_argument("--range", type=float, default=64.0, help="strict: half-width of the public bounds, in changes")
    cli.add_argument("--runs", type=int, default=1000, help="strict: runs per program")
    cli.add_argument("--mechanisms", nargs="*", default=None, help="only these")
    cli.add_argument("--largest", type=int, default=20_000, help="skip programs with more non-zeros")
    given = cli.parse_args()
    if given.linf is None:
        given.linf = 0.1 if given.private == "c" else 1e-3
    header()
    print(f"one record moves one private entry by {given.linf:g} times the median absolute non-zero of its part\n")
    quiet()
    return strict(given) if given.feasibility == "strict" else forecasts(given)


def true_optimum(lp: LP) -> tuple[float, np.ndarray] | str:
    """Optimal value and point, or why there is none."""
    problem, x = plain(lp)
    try:
        problem.solve(solver=cp.HIGHS)
    except cp.SolverError as error:
        return f"solver failed: {error}"
    if problem.status != "optimal":
        return f"the true program is {problem.status}"
    return float(problem.value), np.asarray(x.value)


def programs(given):
    """(LP, optimum, solution) of every readable program, and a line for each that is skipped."""
    for path in files(given.folders):
        try:
            lp = read_lp(path)
        except Exception as error:  # a file that is no LP is a reason, not an end
            yield path.name, f"not read: {type(error).__name__}: {error}"
            continue
        if lp.A_ub.nnz + lp.A_eq.nnz > given.largest:
            yield lp.name, f"{lp.A_ub.nnz + lp.A_eq.nnz} non-zeros, more than --largest"
            continue
        found = true_optimum(lp)
        if isinstance(found, str):
            yield lp.name, found
            continue
        value, x = found
        if given.box is not None:
            lp = boxed(lp, x, given.box)
        yield lp.name, (lp, value, x)


def forecasts(given) -> int:
    expected = Expectations()
    what = "loss" if given.private == "c" else "violation"
    columns = [("program", 12), ("private", 7), ("mechanism", 13), ("forecast", 9), (f"measured {what}", 26)]
    columns += [("forecast/measured", 24), ("over", 4), ("status", 20)]
    table = Table(*columns)
    done: set[str] = set()
    ratios: dict[str, list[float]] = {}
    over, runs = 0, 0
    for name, found in programs(given):
        if isinstance(found, str):
            table.row(name, "-", "-", "-", f"skipped: {found}")
            continue
        lp, optimum, _ = found
        try:
            made = with_private(lp, given.private, given.linf, nonzero_only=given.nonzero)
            plan = made.problem.plan(given.epsilon, given.delta, **how(given))
        except (dpm.DPModelError, ValueError) as error:
            table.row(name, "-", "-", "-", f"skipped: {reason(error)}")
            continue
        for candidate in plan.candidates:
            wanted = given.mechanisms is None or candidate.mechanism in given.mechanisms
            if candidate.forecast is None or not (candidate.eligible and wanted):
                continue
            alpha = candidate.forecast.alpha
            measured, statuses = measure(given, lp, optimum, made, candidate.mechanism)
            lower_bound = noise_lower_bound(lp, optimum, given.private)
            fractions = [alpha / m if m > lower_bound else np.inf for m in measured]
            exceeded = sum(m > alpha + lower_bound for m in measured)
            over += exceeded
            runs += len(measured)
            mark = "*" if candidate is plan.chosen else ""
            words = ", ".join(f"{status} {count}" for status, count in sorted(statuses.items()))
            table.row(
                name,
                made.entries,
                candidate.mechanism + mark,
                short(alpha),
                spread(measured),
                spread(fractions),
                exceeded,
                words,
            )
            done.add(name)
            if np.isfinite(alpha) and measured:
                ratios.setdefault(candidate.mechanism, []).append(quartiles(fractions)[0])
    print("\n* chosen by the planner. over: runs in which the measured error exceeded the forecast (allowed: 1 in 20)")
    print("inf: nothing measured above the solver's tolerance, or no public bound on x")
    for mechanism, values in ratios.items():
        print(f"median forecast/measured over {len(values)} programs, {mechanism}: {spread(values)}")
    expected.expect(len(done) >= given.least, f"{len(done)} programs measured (at least {given.least})")
    allowed = 0.05 * runs + 3 * np.sqrt(0.05 * 0.95 * max(runs, 1))
    expected.expect(over <= allowed, f"forecast exceeded in {over} of {runs} runs (beta = 0.05)")
    return expected.close()


def how(given) -> dict[str, str]:
    return {"feasibility": given.feasibility, "solver": cp.HIGHS}


def noise_lower_bound(lp: LP, optimum: float, part: str) -> float:
    """Errors below this are the solver's tolerance."""
    if part == "c":
        return 1e-7 * (1 + abs(optimum))
    b = np.concatenate([lp.b_ub, lp.b_eq])
    return 1e-6 * (1 + float(np.abs(b).max(initial=0.0)))


def reason(error: Exception) -> str:
    """The message in one line."""
    return " ".join(str(error).replace("\n", ";").split())[:150]


def measure(given, lp: LP, optimum: float, made: Model, mechanism: str) -> tuple[list[float], Counter[str]]:
    rng = np.random.default_rng(given.seed)
    errors: list[float] = []
    statuses: Counter[str] = Counter()
    for _ in range(given.repetitions):
        try:
            made.problem.solve(given.epsilon, given.delta, mechanism=mechanism, rng=rng, **how(given))
        except dpm.DPModelError as error:
            statuses[f"{type(error).__name__}: {reason(error)[:60]}"] += 1
            continue
        release = made.problem.release
        statuses[release.status] += 1
        if made.x.value is None:
            continue
        x = np.asarray(made.x.value)
        errors.append(max(float(lp.c @ x) - optimum, 0.0) if given.private == "c" else violation(lp, x))
    return errors, statuses


def strict(given) -> int:
    expected = Expectations()
    table = Table(
        ("program", 12),
        ("private", 7),
        ("range", 6),
        ("tightened", 10),
        ("runs", 6),
        ("violations", 10),
        ("largest violation", 17),
        ("objective above optimum, relative", 34),
        ("seconds", 7),
    )
    total = violated = 0
    solved: list[str] = []
    for name, found in programs(given):
        if isinstance(found, str):
            table.row(name, "-", "-", "-", "-", f"skipped: {found}")
            continue
        lp, optimum, _ = found
        made, width, why = strict_model(given, lp)
        if made is None:
            table.row(name, "-", "-", "-", "-", f"skipped: {why}")
            continue
        started = time.perf_counter()
        plan = made.problem.plan(given.epsilon, given.delta, feasibility="strict", solver=cp.HIGHS)
        worst, losses, count = 0.0, [], 0
        # HiGHS satisfies rows to 1e-7 absolute or relative to its scaling: below this nothing is a violation.
        tolerance = 1e-6 * (1 + np.abs(lp.b_ub))
        rng = np.random.default_rng(given.seed)
        statuses: Counter[str] = Counter()
        for _ in range(given.runs):
            made.problem.solve(epsilon=given.epsilon, delta=given.delta, feasibility="strict", rng=rng, solver=cp.HIGHS)
            statuses[made.problem.release.status] += 1
            if made.x.value is None:
                continue
            x = np.asarray(made.x.value)
            over = lp.A_ub @ x - lp.b_ub
            off = np.abs(lp.A_eq @ x - lp.b_eq) if lp.b_eq.size else np.zeros(1)
            bad = (over > tolerance).any() or off.max() > 1e-6 * (1 + np.abs(lp.b_eq).max(initial=0.0))
            count += bool(bad)
            worst = max(worst, float(over.max()), float(off.max()))
            losses.append((float(lp.c @ x) - optimum) / max(abs(optimum), 1e-9))
        runs = sum(statuses.values())
        total += runs
        violated += count
        solved.append(name)
        other = {status: number for status, number in statuses.items() if status != "optimal"}
        table.row(
            name,
            made.entries,
            short(width),
            short(plan.chosen.forecast.noise["tightening"]),
            runs,
            count,
            short(worst),
            spread(losses),
            f"{time.perf_counter() - started:.1f}",
            other or "",
        )
    print(f"\n{len(solved)} programs: {', '.join(solved)}")
    expected.expect(len(solved) >= given.least, f"{len(solved)} programs, {total} strict runs (at least {given.least})")
    expected.expect(violated == 0, f"{violated} violations of a true row in {total} strict runs")
    return expected.close()


def strict_model(given, lp: LP) -> tuple[Model | None, float, str]:
    width, why = given.range, ""
    while width >= given.range / 16:
        try:
            made = with_private(lp, "b", given.linf, nonzero_only=True, half_range=width, inequalities_only=True)
            made.problem.plan(given.epsilon, given.delta, feasibility="strict", solver=cp.HIGHS)
        except (dpm.DPModelError, ValueError) as error:
            why = reason(error)
            width /= 2
            continue
        return made, width, ""
    return None, 0.0, why


if __name__ == "__main__":
    sys.exit(main())
