"""The solvers that take a program in arrays: straight (HiGHS, Clarabel) or through CVXPY (all others).

What comes out is the same by either way: CVXPY's words for the status, and multipliers with its signs. The straight
way leaves out CVXPY's compiling, which takes longer than HiGHS does on most linear programs. Options that are CVXPY's
own (``verbose``, ``warm_start``) or that a table here does not know, and other solvers, go through CVXPY. Clarabel is
given sums of squares as such (``array_program.squares``).

Every number here is public or released, so all of it is post-processing.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import cvxpy as cp
import highspy
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from highspy._core import _Highs

from dpmodel._types import Floats, Integers
from dpmodel.numerics.array_program import Answer, ArrayProgram, squares

# CVXPY's word for it, in solutions and releases: no solver that was tried had an answer.
SOLVER_ERROR = str(cp.SOLVER_ERROR)
# What solvers may say. Anything else (HiGHS has an "unknown") is no answer, and another solver is asked.
ANSWERS = frozenset(
    (
        *(cp.OPTIMAL, cp.INFEASIBLE, cp.UNBOUNDED),
        *(cp.OPTIMAL_INACCURATE, cp.INFEASIBLE_INACCURATE, cp.UNBOUNDED_INACCURATE),
        *("infeasible_or_unbounded", cp.USER_LIMIT),
    )
)
_WITH_POINT = frozenset((cp.OPTIMAL, cp.OPTIMAL_INACCURATE, cp.USER_LIMIT))


def ask(program: ArrayProgram, solver: str | None, options: Mapping[str, Any]) -> Answer:
    """One attempt. Exceptions, and statuses and points that say nothing, come out as ``SOLVER_ERROR``."""
    way = _straight(program, solver, options) or _by_cvxpy
    try:
        answer = way(program, solver, options)
    except Exception:  # the interfaces of solvers raise more than cp.SolverError
        return Answer(SOLVER_ERROR)
    if answer.status not in ANSWERS:
        return Answer(SOLVER_ERROR)
    if answer.status not in _WITH_POINT or answer.x is None:
        return Answer(answer.status)
    return answer if np.isfinite(answer.x).all() else Answer(SOLVER_ERROR)


Way = Callable[[ArrayProgram, "str | None", Mapping[str, Any]], Answer]


def _straight(program: ArrayProgram, solver: str | None, options: Mapping[str, Any]) -> Way | None:
    """The direct interface of a solver that takes such programs and knows these options, else None."""
    name = solver.upper() if isinstance(solver, str) else ""
    if name == cp.HIGHS and program.linear and all(map(_highs_has, options)):
        return _by_highs
    constrained = program.R.shape[0] or program.h.size
    if name == cp.CLARABEL and program.continuous and constrained and _clarabel_knows(options):
        return _by_clarabel
    return None


# ---------------------------------------------------------------------- HiGHS
_HIGHS_SAYS = {
    "kOptimal": cp.OPTIMAL,
    "kInfeasible": cp.INFEASIBLE,
    "kUnboundedOrInfeasible": "infeasible_or_unbounded",
    "kUnbounded": cp.UNBOUNDED,
    **dict.fromkeys(
        ("kObjectiveBound", "kObjectiveTarget", "kTimeLimit", "kIterationLimit", "kSolutionLimit"), cp.USER_LIMIT
    ),
}


AT_ONCE = {"presolve": "off"}
# HiGHS compares columns with the same entries pair by pair: seconds for 10,000 private numbers in one declared range.
CONTINUOUS = {"presolve_rule_off": 1 << 13}
# Steps of the simplex method after which another solver is asked: these and one for four rows and columns, and fewer
# where rows, columns and entries are many, for a step takes longer there, with their square about: some hundredths of a
# second in all (docs/measurements/speed.md).
_FIRST_STEPS, _PATIENCE, _STEPS_LIMIT = 700, 17_000_000_000_000, "simplex_iteration_limit"


def patience(rows: Any) -> dict[str, Any]:
    """Options for HiGHS on a linear program with these (m x n), so that it gives up where an interior-point method may
    be quicker."""
    lines = sum(rows.shape)
    return {_STEPS_LIMIT: min(_FIRST_STEPS + lines // 4, _PATIENCE // max(rows.nnz + lines, 1) ** 2)}


# The primal and the dual simplex method, by HiGHS' numbers for them.
_PRIMAL, DUAL = {"simplex_strategy": 4}, {"simplex_strategy": 1}
# The dual one looks at all columns in every step. Where they are so many times more than rows, the primal one often
# ends a few steps from the bounds: these and one for a row.
_WIDE, _FROM_BOUNDS = 50, 20


def from_bounds(rows: Any) -> dict[str, Any]:
    """Options for HiGHS on a linear program with these (m x n), for a few steps that often do; {} where they do not."""
    m, n = rows.shape
    return _PRIMAL | {_STEPS_LIMIT: m + _FROM_BOUNDS} if n >= _WIDE * m else {}


# From the vertex at which another cost was least, this many.
FROM_VERTEX = _PRIMAL | {_STEPS_LIMIT: 200}


def silent_highs() -> highspy.Highs:
    solver = _Highs()  # without callbacks, which take as long to make and keep it until garbage is collected
    set_options(solver, {"output_flag": False})
    return solver


def set_options(solver: highspy.Highs, options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        if solver.setOptionValue(name, value) == highspy.HighsStatus.kError:
            raise ValueError(name)


def pass_to_highs(
    solver: highspy.Highs,
    c: Floats,
    matrix: Any,
    rows: tuple[Floats, Floats],
    bounds: tuple[Floats, Floats],
    whole: npt.NDArray[np.bool_] | None = None,
) -> None:
    """Give ``solver`` the program with cost c (n,), ``matrix`` (m x n) between ``rows`` (two of (m,)), columns between
    ``bounds`` (two of (n,)) and, where ``whole`` (n,) says so, integers."""
    A = matrix if matrix.format in ("csr", "csc") else sp.csc_array(matrix)
    layout = highspy.MatrixFormat.kRowwise if A.format == "csr" else highspy.MatrixFormat.kColwise
    arrays = (c, *bounds, *rows)
    # HiGHS takes arrays in its own types only; numpy hands over what is already of them without a copy.
    solver.passModel(
        *(A.shape[1], A.shape[0], A.nnz, int(layout), int(highspy.ObjSense.kMinimize), 0.0),
        *(np.ascontiguousarray(each, dtype=np.float64) for each in arrays),
        *(A.indptr.astype(np.int32), A.indices.astype(np.int32), A.data.astype(np.float64)),
        np.zeros(c.size, dtype=np.int32) if whole is None else whole.astype(np.int32),
    )


@cache
def _highs_has(name: str) -> bool:
    return bool(silent_highs().getOptionType(name)[0] == highspy.HighsStatus.kOk)


def _by_highs(program: ArrayProgram, solver: str | None, options: Mapping[str, Any]) -> Answer:
    # Small programs: presolve costs more than it saves; with integers that holds for knapsacks, which have
    # one row (docs/measurements/speed.md).
    few = program.R.shape[0] <= (300 if program.continuous else 1)
    at_once = AT_ONCE if few and options.keys() <= {_STEPS_LIMIT} else {}
    if at_once and program.continuous and (near := from_bounds(program.R)):
        highs, status = _run_highs(program, {**at_once, **near})
        if status == cp.OPTIMAL:
            return _told(program, highs, status)
    return _told(program, *_run_highs(program, {**at_once, **options}))


def _run_highs(program: ArrayProgram, options: Mapping[str, Any]) -> tuple[highspy.Highs, str]:
    highs = _passed(program)
    set_options(highs, {**(CONTINUOUS if program.continuous else {}), **options})
    highs.run()
    return highs, _HIGHS_SAYS.get(highs.getModelStatus().name, SOLVER_ERROR)


class SameRows:
    """Linear programs one after another: where the next one has the rows of the last, with other sides, costs or
    bounds, HiGHS starts from its basis, which is a few steps away as a rule."""

    def __init__(self) -> None:
        self._rows: Any = None
        self._highs: Any = None

    def ask(self, program: ArrayProgram) -> Answer:
        """As `ask` of HiGHS for some steps, four times as many as for one program."""
        R, before = program.R, self._rows
        if before is not None and R.nnz == before.nnz and R.shape == before.shape:
            pairs = ((R.indptr, before.indptr), (R.indices, before.indices), (R.data, before.data))
            if all(np.array_equal(*pair) for pair in pairs):
                (m, n), highs = R.shape, self._highs
                rows, columns = np.arange(m, dtype=np.int32), np.arange(n, dtype=np.int32)
                highs.changeColsCost(n, columns, program.c)
                highs.changeColsBounds(n, columns, program.lower, program.upper)
                highs.changeRowsBounds(m, rows, program.low, program.high)
                highs.run()
                if highs.getModelStatus() == highspy.HighsModelStatus.kOptimal:
                    return _told(program, highs, cp.OPTIMAL)
        self._rows = None
        try:
            self._highs, status = _run_highs(program, {_STEPS_LIMIT: 4 * patience(R)[_STEPS_LIMIT]})
        except Exception:  # as in `ask`
            return Answer(SOLVER_ERROR)
        if status == cp.OPTIMAL:
            self._rows = R
        return _told(program, self._highs, status)


def _passed(program: ArrayProgram) -> highspy.Highs:
    highs, lower, upper, whole = silent_highs(), program.lower, program.upper, None
    if not program.continuous:
        whole = np.zeros(program.size, dtype=bool)
        whole[program.integer] = whole[program.boolean] = True
        lower, upper = lower.copy(), upper.copy()
        lower[program.boolean] = np.maximum(lower[program.boolean], 0.0)
        upper[program.boolean] = np.minimum(upper[program.boolean], 1.0)
    pass_to_highs(highs, program.c, program.R, (program.low, program.high), (lower, upper), whole)
    return highs


def _told(program: ArrayProgram, highs: highspy.Highs, status: str) -> Answer:
    if status not in _WITH_POINT:
        return Answer(status)
    found = highs.getSolution()
    x = np.array(found.col_value, dtype=np.float64)
    if x.size != program.size:
        return Answer(SOLVER_ERROR)
    rows = -np.array(found.row_dual, dtype=np.float64) if program.continuous and found.dual_valid else None
    return Answer(status, x, rows, np.zeros(0))


# ---------------------------------------------------------------------- Clarabel
@dataclass(frozen=True)
class _ConeRows:
    """The same program as ``b - A x`` in cones: row k is ``sign`` times row ``picked`` of ``[R; I]``; then those of G,
    by way of ``triangles`` where matrices are semidefinite. ``zero``, ``nonneg`` : rows of these kinds, which come
    first."""

    picked: Integers
    sign: Floats
    triangles: sp.csr_array | None
    A: sp.csc_array
    b: Floats
    zero: int
    nonneg: int

    def answer(self, program: ArrayProgram, status: str, x: Any, multipliers: Any) -> Answer:
        """The multipliers of the original rows: those of ``sign`` times a row belong to the row, times ``sign``."""
        given = np.asarray(multipliers, dtype=np.float64)
        straight, curved = given[: self.picked.size], given[self.picked.size :]
        size = program.R.shape[0] + program.size
        of_rows = np.bincount(self.picked, self.sign * straight, size).astype(np.float64, copy=False)
        of_cones = curved.copy() if self.triangles is None else self.triangles.T @ curved
        return Answer(status, np.array(x, dtype=np.float64), of_rows[: program.R.shape[0]], of_cones)


def _cone_rows(program: ArrayProgram) -> _ConeRows:
    """Equalities, then upper and lower sides of rows and columns, then cones; of a semidefinite one the upper
    triangle, column by column, with entries beside the diagonal times the root of 2."""
    low = np.concatenate([program.low, program.lower])
    high = np.concatenate([program.high, program.upper])
    equal = np.concatenate([program.equal, np.zeros(program.size, dtype=bool)])
    zero = np.flatnonzero(equal)
    above, below = np.flatnonzero(~equal & np.isfinite(high)), np.flatnonzero(~equal & np.isfinite(low))
    picked = np.concatenate([zero, above, below])
    sign = np.concatenate([np.ones(zero.size + above.size), -np.ones(below.size)])
    triangles = _triangles(program) if program.semidefinite else None
    G, h = (program.G, program.h) if triangles is None else (triangles @ program.G, triangles @ program.h)
    # One matrix from the entries of R, I and G, which takes a fraction of stacking them.
    size, column = picked.size, np.arange(program.size)
    begin = np.concatenate([program.R.indptr[:-1], program.R.nnz + column])
    count = np.concatenate([np.diff(program.R.indptr), np.ones_like(column)])[picked]
    ends = np.cumsum(count)
    place = np.repeat(begin[picked] - ends + count, count) + np.arange(count.sum())
    entry = np.concatenate([program.R.data, np.ones(program.size)])[place] * np.repeat(sign, count)
    columns = np.concatenate([program.R.indices, column])[place]
    starts = np.concatenate([ends - count, count.sum() + G.indptr])
    arrays = np.append(entry, G.data), np.append(columns, G.indices), starts
    A = sp.csr_array(arrays, shape=(size + h.size, program.size)).tocsc()
    A.sum_duplicates()
    b = np.concatenate([high[zero], high[above], -low[below], h])
    return _ConeRows(picked, sign, triangles, A, b, zero.size, above.size + below.size)


def _triangles(program: ArrayProgram) -> sp.csr_array:
    """(rows that the solver wants x q) from the rows of G."""
    before, after = sum(program.second_order), 3 * (program.exponential + len(program.power))
    parts = [sp.eye_array(before), *(_triangle(side) for side in program.semidefinite), sp.eye_array(after)]
    return sp.csr_array(sp.block_diag(parts, format="csr"))


def _triangle(side: int) -> sp.csr_array:
    j, i = np.tril_indices(side)  # the lower triangle row by row is the upper one column by column
    weight = np.where(i == j, 0.5, math.sqrt(0.5))
    number = np.arange(i.size)
    entries = np.r_[weight, weight], (np.r_[number, number], np.r_[i + side * j, j + side * i])
    return sp.csr_array(entries, shape=(i.size, side * side))


_CLARABEL_SAYS = {
    "Solved": cp.OPTIMAL,
    "PrimalInfeasible": cp.INFEASIBLE,
    "DualInfeasible": cp.UNBOUNDED,
    "AlmostSolved": cp.OPTIMAL_INACCURATE,
    "AlmostPrimalInfeasible": cp.INFEASIBLE_INACCURATE,
    "AlmostDualInfeasible": cp.UNBOUNDED_INACCURATE,
    "MaxIterations": cp.USER_LIMIT,
    "MaxTime": cp.USER_LIMIT,
}


def _clarabel_knows(options: Mapping[str, Any]) -> bool:
    import clarabel

    return "verbose" not in options and all(hasattr(clarabel.DefaultSettings, name) for name in options)


def _by_clarabel(program: ArrayProgram, solver: str | None, options: Mapping[str, Any]) -> Answer:
    import clarabel

    settings = clarabel.DefaultSettings()
    settings.verbose = False
    for name, value in options.items():
        setattr(settings, name, value)
    whole = squares(program)
    program, P = (program, sp.csc_array((program.size,) * 2)) if whole is None else (whole.program, whole.P)
    rows = _cone_rows(program)
    straight = (clarabel.ZeroConeT, rows.zero), (clarabel.NonnegativeConeT, rows.nonneg)
    cones = [kind(count) for kind, count in straight if count]
    cones += [clarabel.SecondOrderConeT(size) for size in program.second_order]
    cones += [clarabel.PSDTriangleConeT(side) for side in program.semidefinite]
    cones += [clarabel.ExponentialConeT() for _ in range(program.exponential)]
    cones += [clarabel.PowerConeT(alpha) for alpha in program.power]
    found = clarabel.DefaultSolver(P, program.c, rows.A, rows.b, cones, settings).solve()
    answer = rows.answer(program, _CLARABEL_SAYS.get(str(found.status), SOLVER_ERROR), found.x, found.z)
    return answer if whole is None else whole.answer(answer)


# ---------------------------------------------------------------------- CVXPY
def _by_cvxpy(program: ArrayProgram, solver: str | None, options: Mapping[str, Any]) -> Answer:
    whole: dict[str, Any] = {}
    if program.boolean.size:
        whole["boolean"] = (program.boolean,)
    if program.integer.size:
        whole["integer"] = (program.integer,)
    bounded = np.isfinite(program.lower).any() or np.isfinite(program.upper).any()
    x = cp.Variable(program.size, bounds=[program.lower, program.upper] if bounded else None, **whole)
    written = [*_written_rows(program, x), *_written_cones(program, x)]
    problem = cp.Problem(cp.Minimize(program.c @ x), [constraint for constraint, _, _ in written])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # inaccuracy is reported by the status
        problem.solve(solver=solver, **dict(options))
    if x.value is None:
        return Answer(str(problem.status))
    point = np.asarray(x.value, dtype=np.float64).ravel()
    multipliers = {"rows": np.zeros(program.low.size), "cones": np.zeros(program.h.size)}
    for constraint, index, where in written:
        value = constraint.dual_value
        if value is None:  # integers
            return Answer(str(problem.status), point)
        multipliers[where][index] = _flat(constraint, value)
    return Answer(str(problem.status), point, **multipliers)


# A constraint, the numbers of its rows, and whether they are rows of R or of G.
_Written = tuple[Any, Integers, str]


def _written_rows(program: ArrayProgram, x: Any) -> list[_Written]:
    """Equalities, inequalities, and rows with two sides, which get a variable between them: solvers handle that better
    than two inequalities."""
    bounded_below = np.isfinite(program.low) & ~program.equal
    hard, two = np.flatnonzero(program.equal), np.flatnonzero(bounded_below)
    one = np.flatnonzero(~program.equal & ~bounded_below & np.isfinite(program.high))
    found: list[_Written] = []
    if hard.size:
        found.append((program.R[hard] @ x == program.high[hard], hard, "rows"))
    if two.size:
        between = cp.Variable(two.size, bounds=[program.low[two], program.high[two]])
        found.append((program.R[two] @ x - between == 0, two, "rows"))
    if one.size:
        found.append((program.R[one] @ x <= program.high[one], one, "rows"))
    return found


def _written_cones(program: ArrayProgram, x: Any) -> list[_Written]:
    found: list[_Written] = []
    if program.linear:
        return found
    gap = program.h - program.G @ x
    sizes = np.asarray(program.second_order, dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    for size in np.unique(sizes):  # cones of equal size become one constraint
        index = starts[sizes == size][:, None] + np.arange(size)
        if size == 1:
            found.append((gap[index[:, 0]] >= 0, index[:, 0], "cones"))
            continue
        tails = cp.reshape(gap[index[:, 1:].ravel()], (index.shape[0], int(size) - 1), order="C")
        found.append((cp.SOC(gap[index[:, 0]], tails, axis=1), index, "cones"))
    place = int(sizes.sum())
    for side in program.semidefinite:
        index = np.arange(place, place + side * side)
        square = cp.reshape(gap[index], (side, side), order="F")
        found.append(((square + square.T) / 2 >> 0, index, "cones"))
        place += side * side
    for kind, count in (("exp", program.exponential), ("pow3d", len(program.power))):
        index = np.arange(place, place + 3 * count).reshape(count, 3)
        if count:
            x1, x2, x3 = (gap[column] for column in index.T)
            triple = cp.ExpCone(x1, x2, x3) if kind == "exp" else cp.PowCone3D(x1, x2, x3, np.array(program.power))
            found.append((triple, index, "cones"))
        place += 3 * count
    return found


def _flat(constraint: Any, value: Any) -> Floats:
    """Multipliers in the shape of the constraint's rows."""
    if isinstance(constraint, cp.SOC):
        head = np.ravel(value[0])
        return np.concatenate([head[:, None], np.reshape(value[1], (head.size, -1))], axis=1)
    if isinstance(constraint, cp.ExpCone | cp.PowCone3D):
        return np.stack([np.ravel(part) for part in value], axis=1)
    return np.ravel(np.asarray(value), order="F")
