"""General solvers on a likelihood form, called directly (no modelling layer), each in its own process with a time cap.

Variables (x, p, q) with M x - p + q = value, p, q >= 0: a linear program, or a quadratic one where squares are there.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dpmodel.privacy import ExactSource
from dpmodel.released.admm import Admm, prepare_tables, prepare_tree
from dpmodel.released.exact_tree import Ties, solve_exact_tree
from dpmodel.released.form import LikelihoodForm
from dpmodel.released.model import FREE, Postprocessing
from dpmodel.released.trees import TreeProblem

Floats = npt.NDArray[np.float64]
INFEASIBLE = 1e-2  # largest violation accepted, in units of the smallest noise scale


@dataclass(frozen=True, eq=False)
class Split:
    """min c'z + z'Pz/2 subject to low <= A z <= high, lower <= z <= upper with z = (x, p, q)."""

    c: Floats
    P: sp.csc_array
    A: sp.csc_array
    low: Floats
    high: Floats
    lower: Floats
    upper: Floats

    @staticmethod
    def of(form: LikelihoodForm) -> Split:
        k, n = form.matrix.shape
        eye, none = sp.eye_array(k), np.zeros(k)
        rows: list[list[Any]] = [[form.matrix, -eye, eye]]
        low, high = [form.value], [form.value]
        if form.equality.shape[0]:
            p = form.equality.shape[0]
            rows.append([form.equality, sp.csr_array((p, k)), sp.csr_array((p, k))])
            low.append(form.equality_value)
            high.append(form.equality_value)
        if form.inequality.shape[0]:
            g = form.inequality.shape[0]
            rows.append([form.inequality, sp.csr_array((g, k)), sp.csr_array((g, k))])
            low.append(np.full(g, -np.inf))
            high.append(form.inequality_value)
        curve = np.concatenate([np.zeros(n), 2 * form.square, 2 * form.square])
        return Split(
            np.concatenate([form.linear, form.absolute, form.absolute]),
            sp.csc_array(sp.diags_array(curve)) if curve.any() else sp.csc_array((n + 2 * k, n + 2 * k)),
            sp.csc_array(sp.block_array(rows)),
            np.concatenate(low),
            np.concatenate(high),
            np.concatenate([form.lower, none, none]),
            np.concatenate([form.upper, none + np.inf, none + np.inf]),
        )


def highs(form: LikelihoodForm, tolerance: float, cap: float, method: str = "choose") -> tuple[Floats, float]:
    """(x, own seconds). Simplex and interior point stop at their own 1e-7 whatever ``tolerance``."""
    import highspy

    s = Split.of(form)
    if s.P.nnz:
        raise ValueError("HiGHS is used for linear programs here")
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = s.c.size, s.low.size
    program.col_cost_, program.col_lower_, program.col_upper_ = s.c, s.lower, s.upper
    program.row_lower_, program.row_upper_ = s.low, s.high
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_, program.a_matrix_.index_ = s.A.indptr, s.A.indices
    program.a_matrix_.value_ = s.A.data
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("solver", method)
    solver.setOptionValue("time_limit", float(cap))
    solver.passModel(program)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise TimeoutError(solver.modelStatusToString(solver.getModelStatus()))
    return np.array(solver.getSolution().col_value)[: form.size], float(solver.getRunTime())


def highs_interior(form: LikelihoodForm, tolerance: float, cap: float) -> tuple[Floats, float]:
    return highs(form, tolerance, cap, "ipm")


def bounded_rows(s: Split) -> tuple[sp.csc_array, Floats, Floats]:
    """Rows of A and one row per bound."""
    bound = np.isfinite(s.lower) | np.isfinite(s.upper)
    eye = sp.csr_array(sp.eye_array(s.c.size))[bound]
    A = sp.csc_array(sp.vstack([s.A, eye]))
    return A, np.concatenate([s.low, s.lower[bound]]), np.concatenate([s.high, s.upper[bound]])


def osqp(form: LikelihoodForm, tolerance: float, cap: float) -> tuple[Floats, float]:
    import osqp as package

    s = Split.of(form)
    A, low, high = bounded_rows(s)
    solver = package.OSQP()
    solver.setup(
        sp.csc_matrix(s.P),
        s.c,
        sp.csc_matrix(A),
        low,
        high,
        verbose=False,
        eps_abs=tolerance,
        eps_rel=tolerance,
        max_iter=1_000_000,
        time_limit=cap,
    )
    found = solver.solve()
    if found.info.status not in ("solved", "solved inaccurate"):
        raise TimeoutError(found.info.status)
    return np.array(found.x)[: form.size], float(found.info.run_time)


def cone_rows(s: Split) -> tuple[sp.csc_array, Floats, int, int]:
    """(A, b, equalities, inequalities) for b - A z in zeros x non-negatives."""
    A, low, high = bounded_rows(s)
    rows = sp.csr_array(A)
    same = low == high
    above, below = np.isfinite(high) & ~same, np.isfinite(low) & ~same
    stacked = sp.csc_array(sp.vstack([rows[same], rows[above], -rows[below]]))
    b = np.concatenate([high[same], high[above], -low[below]])
    return stacked, b, int(same.sum()), int(above.sum() + below.sum())


def clarabel(form: LikelihoodForm, tolerance: float, cap: float) -> tuple[Floats, float]:
    import clarabel as package

    s = Split.of(form)
    A, b, equalities, inequalities = cone_rows(s)
    settings = package.DefaultSettings()
    settings.verbose, settings.time_limit = False, float(cap)
    settings.tol_gap_rel = settings.tol_gap_abs = settings.tol_feas = tolerance
    cones = [package.ZeroConeT(equalities), package.NonnegativeConeT(inequalities)]
    found = package.DefaultSolver(sp.csc_matrix(s.P), s.c, sp.csc_matrix(A), b, cones, settings).solve()
    if "Solved" not in str(found.status):
        raise TimeoutError(str(found.status))
    return np.array(found.x)[: form.size], float(found.solve_time)


def scs(form: LikelihoodForm, tolerance: float, cap: float) -> tuple[Floats, float]:
    import scs as package

    s = Split.of(form)
    A, b, equalities, inequalities = cone_rows(s)
    data = {"P": sp.csc_matrix(s.P), "A": sp.csc_matrix(A), "b": b, "c": s.c}
    solver = package.SCS(
        data,
        {"z": equalities, "l": inequalities},
        verbose=False,
        eps_abs=tolerance,
        eps_rel=tolerance,
        max_iters=10_000_000,
        time_limit_secs=cap,
    )
    found = solver.solve()
    if found["info"]["status"] != "solved":
        raise TimeoutError(found["info"]["status"])
    return found["x"][: form.size], (found["info"]["setup_time"] + found["info"]["solve_time"]) / 1000


Solver = Callable[[LikelihoodForm, float, float], tuple[Floats, float]]
GENERAL: dict[str, Solver] = {
    "HiGHS": highs,
    "HiGHS interior": highs_interior,
    "OSQP": osqp,
    "Clarabel": clarabel,
    "SCS": scs,
}
# Loosest first: a solver is charged for the first tolerance at which its objective is right.
LADDER: dict[str, tuple[float, ...]] = {
    "HiGHS": (1e-7,),
    "HiGHS interior": (1e-7,),
    "OSQP": (1e-3, 1e-4, 1e-5, 1e-6),
    "Clarabel": (1e-4, 1e-6, 1e-8),
    "SCS": (1e-3, 1e-4, 1e-5, 1e-6),
}


@dataclass(frozen=True)
class Timed:
    """``own``: seconds by the solver's clock; ``wall``: by ours, model arrays included; ``note``: why there is no
    result, or the tolerance used."""

    own: float = float("nan")
    wall: float = float("nan")
    objective: float = float("nan")
    violation: float = float("nan")
    note: str = ""


def _child(solver: Solver, form: LikelihoodForm, tolerance: float, cap: float, pipe: Any) -> None:
    try:
        start = time.perf_counter()
        x, own = solver(form, tolerance, cap)
        wall = time.perf_counter() - start
        pipe.send(Timed(own, wall, form.objective(x), form.violation(x), f"{tolerance:g}"))
    except Exception as error:  # a solver's failure is a result here
        pipe.send(Timed(note=f"{type(error).__name__}: {error}"))


def capped(solver: Solver, form: LikelihoodForm, tolerance: float, cap: float) -> Timed:
    """One solve in a process of its own, ended after ``cap`` seconds."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    start = time.perf_counter()
    child = context.Process(target=_child, args=(solver, form, tolerance, cap, there))
    child.start()
    there.close()
    try:
        found = here.recv() if here.poll(1.1 * cap + 5) else Timed(note=f"over {cap:g} s")
    except EOFError:
        found = Timed(note="died (memory?)")
    if child.is_alive():
        child.kill()
    child.join()
    if "TimeoutError" in found.note and time.perf_counter() - start >= 0.9 * cap:
        return Timed(note=f"over {cap:g} s")
    return found


def laddered(name: str, form: LikelihoodForm, best: float, cap: float, relative: float = 1e-4) -> Timed:
    """The loosest tolerance whose point has the objective ``best`` to ``relative`` and keeps the constraints."""
    scale = 1 / float(form.absolute.max()) if form.absolute.any() else 1.0
    last = Timed(note="nothing tried")
    for tolerance in LADDER[name]:
        last = capped(GENERAL[name], form, tolerance, cap)
        if not np.isfinite(last.objective):
            return last
        if abs(last.objective - best) <= relative * abs(best) and last.violation <= INFEASIBLE * scale:
            return last
    return Timed(last.own, last.wall, last.objective, last.violation, f"not to {relative:g} at {LADDER[name][-1]:g}")


def solve(form: LikelihoodForm) -> Floats:
    """What the package's Admm() returns, its objective right to 1e-4 or better (tolerance 1e-5)."""
    outcome = Admm().run(Postprocessing(form, ()), FREE, ExactSource())
    gap = float(outcome.notes[0].rsplit(" ", 1)[1])
    if outcome.x is None or not gap <= 1e-4:
        raise RuntimeError(f"ADMM ended {outcome.status}: {outcome.notes[0]}")
    return outcome.x


TIES: tuple[Ties, ...] = get_args(Ties)


def exact_tree(problem: TreeProblem, ties: Ties | None = None) -> Floats:
    """All nodes by the exact solver; ``ties`` None: its default."""
    return solve_exact_tree(problem) if ties is None else solve_exact_tree(problem, ties)


def admm_tree(problem: TreeProblem) -> Floats:
    """All nodes by ADMM with the tree's projection: any mixture of absolute errors and squares."""
    return prepare_tree(problem).solve().x


def admm_table(form: LikelihoodForm, shape: tuple[int, ...]) -> Floats:
    """By ADMM with the projection onto complete margins of a table of ``shape``."""
    return prepare_tables(form, shape).solve().x


def timed(solver: Callable[[], Floats], runs: int) -> tuple[list[float], Floats]:
    """(seconds of every run, the last answer)."""
    seconds, x = [], np.zeros(0)
    for _ in range(runs):
        start = time.perf_counter()
        x = solver()
        seconds.append(time.perf_counter() - start)
    return seconds, x
