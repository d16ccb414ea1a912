"""A cone program with known numbers, and its solution by CVXPY's solvers.

Everything here is public or released: mechanisms build one from noised data (post-processing), the
planner from the public constraints. Rows may be relaxed along their cone's interior direction,
equalities become bands.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.errors import DPModelError, SpecificationError
from dpmodel.numerics.cones import ConeBlock, ConeKind


@cache
def installed_solvers() -> tuple[str, ...]:
    """Names of the solvers that CVXPY finds, looked up once: it imports each of them to know."""
    return tuple(cp.installed_solvers())


class SolverFailure(DPModelError):
    """A solver stopped without an answer."""


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


@dataclass(frozen=True)
class ConeProgram:
    """Minimise ``c'x + d`` subject to ``b - A x`` in K and ``lower <= x <= upper``.

    ``c`` : (n,), ``b`` : (m,), ``A`` : (m x n) sparse, ``cones`` : blocks of rows. ``band`` : (m,) half-widths by
    which zero-cone rows may miss. ``keep`` : (m,) rows that are constraints at all (all by default). ``ceiling`` :
    (m,) right-hand sides of inequalities that no slack goes beyond, inf where there is none.
    """

    c: Floats
    d: float
    b: Floats
    A: Any
    cones: tuple[ConeBlock, ...]
    boolean: Integers
    integer: Integers
    lower: Floats
    upper: Floats
    band: Floats
    keep: Any
    ceiling: Floats | None = None

    def with_(self, **fields: Any) -> ConeProgram:
        return replace(self, **fields)


@dataclass(frozen=True)
class ConeSolution:
    """``status`` : "optimal", "infeasible" or "unbounded" (CVXPY's words), or ``SOLVER_ERROR`` when no solver had an
    answer; ``x`` (n,), ``dual`` (m,) or None; ``notes`` : which solvers had none."""

    status: str
    value: float | None
    x: Floats | None
    dual: Floats | None
    seconds: float
    slack: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def solved(self) -> bool:
        return self.x is not None


@dataclass
class _Rows:
    """The CVXPY constraints, and for each how its multipliers map to rows."""

    constraints: list[Any] = field(default_factory=list)
    duals: list[tuple[Any, Any, str]] = field(default_factory=list)

    def add(self, constraint: Any, index: Any, how: str) -> None:
        self.constraints.append(constraint)
        self.duals.append((constraint, index, how))


def solve_cone_program(
    program: ConeProgram,
    *,
    direction: Floats | None = None,
    slack_limit: float | None = None,
    minimise_slack: bool = False,
    weights: Any = None,
    solver: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> ConeSolution:
    """Solve a cone program. Every answer of a solver is handled, and none raises: after one that has no answer (or an
    exception) the next of ``_solvers`` is asked, and at the end the status is ``SOLVER_ERROR``.

    Parameters
    ----------
    direction : (m,) interior direction e of the rows that may be relaxed further; a slack ``t >= 0``
        is added as ``b + t e`` (bands grow by ``t e``).
    minimise_slack : minimise t instead of the objective; else t is at most ``slack_limit``.
    weights : (m x n) sparse W; adds ``W @ |x|`` to the left side of the rows (robust rows).
    solver, options : passed to CVXPY; by default HiGHS for linear programs, else CVXPY's choice.
    """
    n = program.c.size
    lower, upper = program.lower, program.upper
    if (lower > upper + 1e-9 * (1 + np.abs(lower))).any():
        return ConeSolution(str(cp.INFEASIBLE), None, None, None, 0.0)  # CVXPY takes no crossed bounds
    lower = np.minimum(lower, upper)
    integrality: dict[str, Any] = {}
    if program.boolean.size:
        integrality["boolean"] = (program.boolean,)
    if program.integer.size:
        integrality["integer"] = (program.integer,)
    bounds = None
    if np.isfinite(lower).any() or np.isfinite(upper).any():
        bounds = [lower, upper]
    x = cp.Variable(n, bounds=bounds, **integrality)
    slack = cp.Variable(nonneg=True) if direction is not None else None
    rows = _Rows()
    if program.A.shape[0]:
        left = _left_side(program, x, weights, rows)
        _add_rows(program, left, slack, direction, rows)
    if slack is not None and slack_limit is not None:
        rows.constraints.append(slack <= slack_limit)
    objective = slack if minimise_slack and slack is not None else program.c @ x + program.d
    problem = cp.Problem(cp.Minimize(objective), rows.constraints)
    started = time.perf_counter()
    mute: list[str] = []
    point = None
    for number, each in enumerate(_solvers(program, solver)):
        own = dict(options or {}) if number == 0 else {}
        status = _answer(problem, each, own)
        # A limit that the user set is kept; a solver's own is a reason to ask another.
        if status == cp.USER_LIMIT and x.value is None and not own:
            status = SOLVER_ERROR
        point = None if status == SOLVER_ERROR or x.value is None else np.asarray(x.value, dtype=np.float64).ravel()
        if status != SOLVER_ERROR and (point is None or np.isfinite(point).all()):
            break
        mute.append(each or "the solver that CVXPY chose")
    else:
        status, point = SOLVER_ERROR, None
    seconds = time.perf_counter() - started
    notes = (f"{', '.join(mute)} had no answer for the released program",) if mute else ()
    if point is None:
        return ConeSolution(status, None, None, None, seconds, notes=notes)
    dual = _collect_duals(rows, program.b.size)
    used = float(slack.value) if slack is not None and slack.value is not None else 0.0
    value = float(program.c @ point + program.d)
    return ConeSolution(status, value, point, dual, seconds, used, notes)


def _solvers(program: ConeProgram, solver: str | None) -> tuple[str | None, ...]:
    """Whom to ask, in this order: the user's, the usual one, and others in case that has no answer."""
    linear = all(block.kind in ("zero", "nonneg") for block in program.cones)
    others: tuple[str | None, ...]
    if program.boolean.size or program.integer.size:
        others = (cp.HIGHS, cp.SCIPY) if linear else (None,)
    else:
        others = (cp.HIGHS, cp.CLARABEL, cp.SCS) if linear else (None, cp.CLARABEL, cp.SCS)
    first = () if solver is None else (solver,)
    return (*first, *(each for each in others if each != solver))


def _answer(problem: cp.Problem, solver: str | None, options: Mapping[str, Any]) -> str:
    """The status of one attempt; ``SOLVER_ERROR`` for an exception or an answer that says nothing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # inaccuracy is reported by the status
            problem.solve(solver=solver, **options)
    except Exception:  # the interfaces of solvers raise more than cp.SolverError
        return SOLVER_ERROR
    return str(problem.status) if problem.status in ANSWERS else SOLVER_ERROR


# Kinds of programs that a solver with given options has handled in this process.
_probed: set[tuple[frozenset[str], bool, str | None, str]] = set()


def probe_solver(kinds: frozenset[ConeKind], integer: bool, solver: str | None, options: Mapping[str, Any]) -> None:
    """Solve a tiny program with the same kinds of cones, so that a wrong solver or option shows before any spend.

    Raises
    ------
    SpecificationError
        When the solver cannot handle these cones or does not know an option.
    """
    if solver is None and not options and not integer and kinds <= {"zero", "nonneg"}:
        return
    key = (kinds, integer, solver, repr(sorted(options.items())))
    if key in _probed:
        return
    x = cp.Variable(3, integer=integer)
    square = cp.bmat([[x[0], 0.0], [0.0, 1.0]])
    cones = {
        "soc": lambda: cp.norm(x[1:]) <= x[0],
        "psd": lambda: square >> 0,
        "exp": lambda: cp.exp(x[1]) <= x[0],
        "pow3d": lambda: cp.PowCone3D(x[0], x[0], x[1], [0.5]),
    }
    constraints: list[Any] = [cones[kind]() for kind in sorted(kinds) if kind in cones]
    constraints += [x[2] == 1, x >= -1, x <= 3]
    if solver is None and not constraints[:-3]:
        solver = cp.HIGHS
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cp.Problem(cp.Minimize(cp.sum(x)), constraints).solve(solver=solver, **dict(options))
    except Exception as error:
        raise SpecificationError(
            f"solver={solver!r} with options {sorted(options)} cannot solve this kind of problem",
            why=f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else 'no message'}",
            remedy="solver=None for a fitting one, and options that the solver knows; nothing was spent",
        ) from None
    _probed.add(key)


# Numbers of rows -> the expression of their left sides.
Left = Callable[[Integers], Any]


def _left_side(program: ConeProgram, x: Any, robust: Any, rows: _Rows) -> Left:
    """Rows of ``A x`` (plus ``weights |x|``) as expressions. Rows are cut from the matrix, not from an expression:
    CVXPY compiles that much faster.

    ``|x|`` is linear where bounds fix the sign; elsewhere it is a variable above x and -x.
    """
    A = sp.csr_array(program.A)
    if robust is None:
        return lambda index: A[index] @ x
    weights = sp.csc_array(robust)
    columns = np.unique(sp.coo_array(weights).coords[1])
    sign = np.where(program.lower >= 0, 1.0, np.where(program.upper <= 0, -1.0, 0.0))
    total = sp.csr_array(A + weights @ sp.diags_array(sign))
    free = columns[sign[columns] == 0]
    if not free.size:
        return lambda index: total[index] @ x
    magnitude = cp.Variable(free.size)
    rows.constraints += [magnitude >= x[free], magnitude >= -x[free]]
    on_free = sp.csr_array(weights[:, free])
    return lambda index: total[index] @ x + on_free[index] @ magnitude


def _add_rows(program: ConeProgram, left: Left, slack: Any, direction: Floats | None, rows: _Rows) -> None:
    """One constraint for all linear inequalities (and one for their ceilings, where there is a slack), at most two for
    equalities, one per block of other cones."""
    index_of = {block: np.arange(block.start, block.start + block.size) for block in program.cones}
    for kind in ("zero", "nonneg"):
        parts = [index[program.keep[index]] for block, index in index_of.items() if block.kind == kind]
        index = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
        if index.size == 0:
            continue
        if kind == "zero":
            _zero_rows(program, index, left, slack, direction, rows)
        else:
            right: Any = program.b[index]
            if slack is not None and direction is not None:
                right = right + slack * direction[index]
                if program.ceiling is not None and (most := index[np.isfinite(program.ceiling[index])]).size:
                    rows.constraints.append(left(most) <= program.ceiling[most])
            rows.add(left(index) <= right, index, "plain")
    for block, index in index_of.items():
        if block.kind in ("zero", "nonneg") or not program.keep[index].all():
            continue
        gap = program.b[index] - left(index)
        if slack is not None and direction is not None:
            gap = gap + slack * direction[index]
        if block.kind == "soc":
            _second_order(block, gap, index, rows)
        elif block.kind == "psd":
            offset = 0
            for size in block.sizes:
                side = math.isqrt(size)
                square = cp.reshape(gap[offset : offset + size], (side, side), order="F")
                rows.add((square + square.T) / 2 >> 0, index[offset : offset + size], "psd")
                offset += size
        elif block.kind == "exp":
            rows.add(cp.ExpCone(gap[0::3], gap[1::3], gap[2::3]), index, "triples")
        else:
            rows.add(cp.PowCone3D(gap[0::3], gap[1::3], gap[2::3], np.array(block.alphas)), index, "triples")


def _zero_rows(
    program: ConeProgram, index: Integers, left: Left, slack: Any, direction: Floats | None, rows: _Rows
) -> None:
    """Equalities; those with a band get a variable inside it, which solvers handle better than two inequalities."""
    grows = direction[index] > 0 if direction is not None else np.zeros(index.size, dtype=bool)
    hard = index[(program.band[index] == 0) & ~grows]
    soft, growing = index[(program.band[index] > 0) & ~grows], index[grows]
    if hard.size:
        rows.add(left(hard) == program.b[hard], hard, "plain")
    if soft.size:
        miss = cp.Variable(soft.size, bounds=[-program.band[soft], program.band[soft]])
        rows.add(left(soft) - miss == program.b[soft], soft, "plain")
    if growing.size and slack is not None and direction is not None:
        width = program.band[growing] + slack * direction[growing]
        rows.add(left(growing) - program.b[growing] <= width, growing, "plain")
        rows.add(program.b[growing] - left(growing) <= width, growing, "minus")


def _second_order(block: ConeBlock, gap: Any, index: Integers, rows: _Rows) -> None:
    """Cones of equal size side by side become one vectorised constraint."""
    sizes = np.asarray(block.sizes)
    starts = np.r_[0, np.cumsum(sizes)[:-1]]
    for size in np.unique(sizes):
        heads = starts[sizes == size]
        if size == 1:
            rows.add(gap[heads] >= 0, index[heads], "plain")
            continue
        polytope = heads[:, None] + np.arange(1, size)
        tails = cp.reshape(gap[polytope.ravel()], (heads.size, int(size) - 1), order="C")
        rows.add(cp.SOC(gap[heads], tails, axis=1), np.c_[index[heads], index[polytope]], "soc")


def _collect_duals(rows: _Rows, m: int) -> Floats | None:
    """(m,) multipliers in the order and sign of the rows; None when the solver gives none (integers)."""
    dual = np.zeros(m)
    for constraint, index, how in rows.duals:
        value = constraint.dual_value
        if value is None:
            return None
        if how == "plain":
            dual[index] += np.ravel(value)
        elif how == "minus":
            dual[index] -= np.ravel(value)
        elif how == "psd":
            dual[index] = np.ravel(np.asarray(value), order="F")
        elif how == "soc":
            head, tail = value
            dual[index[:, 0]] = np.ravel(head)
            dual[index[:, 1:]] = np.reshape(tail, (index.shape[0], -1))
        else:
            dual[index] = np.stack([np.ravel(part) for part in value], axis=1).ravel()
    return dual
