"""A cone program with known numbers, and its solution.

Everything here is public or released: mechanisms build one from noised data (post-processing), the
planner from the public constraints. Rows may be relaxed along their cone's interior direction,
equalities become bands.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.errors import DPModelError, SpecificationError
from dpmodel.numerics.array_program import Answer, ArrayProgram, ConeBlock, ConeKind, rows_of
from dpmodel.numerics.solvers import SOLVER_ERROR, SameRows, ask, patience


@cache
def installed_solvers() -> tuple[str, ...]:
    """Names of the solvers that CVXPY finds, looked up once: it imports each of them to know."""
    return tuple(cp.installed_solvers())


class SolverFailure(DPModelError):
    """A solver stopped without an answer."""


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


def solve_cone_program(
    program: ConeProgram,
    *,
    direction: Floats | None = None,
    slack_limit: float | None = None,
    minimise_slack: bool = False,
    weights: Any = None,
    solver: str | None = None,
    options: Mapping[str, Any] | None = None,
    same_rows: SameRows | None = None,
) -> ConeSolution:
    """Solve a cone program. Every answer of a solver is handled, and none raises: after one that has no answer (or an
    exception) the next of ``_solvers`` is asked, and at the end the status is ``SOLVER_ERROR``.

    ``direction`` : (m,) interior direction e of the rows that may be relaxed further; a slack ``t >= 0``
        is added as ``b + t e`` (bands grow by ``t e``).
    ``minimise_slack`` : minimise t instead of the objective; else t is at most ``slack_limit``.
    ``weights`` : (m x n) sparse W; adds ``W @ |x|`` to the left side of the rows (robust rows).
    ``solver, options`` : as CVXPY's; by default HiGHS for linear programs, else what CVXPY chooses: SCS where matrices
        are semidefinite, Clarabel for other cones.
    ``same_rows`` : of linear programs that differ in sides, costs and bounds, and are solved one after another.
    """
    lower, upper = program.lower, program.upper
    if (lower > upper + 1e-9 * (1 + np.abs(lower))).any():
        return ConeSolution(str(cp.INFEASIBLE), None, None, None, 0.0)  # solvers take no crossed bounds
    started = time.perf_counter()
    arrays = _in_arrays(program, direction, slack_limit, minimise_slack, weights)
    mute: list[str] = []
    attempts: list[tuple[str | None, dict[str, Any]]] = [(each, {}) for each in _solvers(program, solver)]
    attempts[0] = attempts[0][0], dict(options or {})
    quick = None
    if attempts[0] == (cp.HIGHS, {}) and solver is None and arrays.program.continuous:
        quick = _quick(arrays.program, same_rows)
    for each, own in attempts:
        answer, quick = quick or ask(arrays.program, each, own), None
        # A limit that the user set is kept; a solver's own is a reason to ask another.
        mine = answer.status == cp.USER_LIMIT and answer.x is None and not own
        if answer.status != SOLVER_ERROR and not mine:
            break
        mute.append(each or "the solver that CVXPY chose")
    else:
        answer = Answer(SOLVER_ERROR)
    seconds = time.perf_counter() - started
    notes = (f"{', '.join(mute)} had no answer for the released program",) if mute else ()
    if answer.x is None:
        return ConeSolution(answer.status, None, None, None, seconds, notes=notes)
    point = answer.x[: program.c.size]
    used = float(answer.x[program.c.size]) if direction is not None else 0.0
    value = float(program.c @ point + program.d)
    return ConeSolution(answer.status, value, point, arrays.dual(answer), seconds, used, notes)


def _quick(program: ArrayProgram, same_rows: SameRows | None = None) -> Answer | None:
    """What HiGHS says of a linear program within some steps, else the optimum from another solver. Nothing but that is
    taken from it: it calls empty sets with a ray unbounded, and programs of numbers of many sizes empty."""
    answer = ask(program, cp.HIGHS, patience(program.R)) if same_rows is None else same_rows.ask(program)
    if answer.status != cp.USER_LIMIT or answer.x is None:
        return answer
    answer = ask(program, cp.CLARABEL, {})
    return answer if answer.status == cp.OPTIMAL else None


def _solvers(program: ConeProgram, solver: str | None) -> tuple[str | None, ...]:
    """Whom to ask, in this order: the user's, the usual one, and others in case that has no answer."""
    linear = all(block.kind in ("zero", "nonneg") for block in program.cones)
    others: tuple[str | None, ...]
    if program.boolean.size or program.integer.size:
        others = (cp.HIGHS, cp.SCIPY) if linear else (None,)
    else:
        # CVXPY's own choices beyond linear programs.
        psd = any(block.kind == "psd" for block in program.cones)
        others = (cp.HIGHS, cp.CLARABEL, cp.SCS) if linear else (cp.SCS, cp.CLARABEL) if psd else (cp.CLARABEL, cp.SCS)
    first = () if solver is None else (solver,)
    return (*first, *(each for each in others if each != solver))


# Kinds of programs that a solver with given options has handled in this process.
_probed: set[tuple[frozenset[str], bool, str | None, str]] = set()


def probe_solver(kinds: frozenset[ConeKind], integer: bool, solver: str | None, options: Mapping[str, Any]) -> None:
    """Solve a tiny program with the same kinds of cones, so that a wrong solver or option shows before any spend.
    Errors: SpecificationError, when the solver cannot handle these cones or does not know an option."""
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


# Kinds of rows: not a constraint, equality, inequality, in a cone of another kind.
_NONE, _ZERO, _NONNEG, _CONE = range(4)


@dataclass(frozen=True)
class _Arrays:
    """A cone program in arrays: columns are x, then the slack if there is one, then sizes of entries of x.

    ``source`` : for each row of R the row of the cone program whose multiplier it has a share in, or -1; ``sign`` : 1,
    or -1 for the lower side of a band that grows. ``in_cones`` : the same for the rows of G. ``rows`` : m.
    """

    program: ArrayProgram
    rows: int
    source: Integers
    sign: Floats
    in_cones: Integers

    def dual(self, answer: Answer) -> Floats | None:
        """(m,) multipliers in the order and sign of the cone program's rows; None when the solver gives none."""
        if answer.rows is None or answer.cones is None:
            return None
        told = np.flatnonzero(self.source >= 0)
        dual = np.bincount(self.source[told], self.sign[told] * answer.rows[told], self.rows).astype(np.float64)
        dual[self.in_cones] = answer.cones
        return dual


def _in_arrays(
    program: ConeProgram, direction: Floats | None, slack_limit: float | None, minimise_slack: bool, weights: Any
) -> _Arrays:
    n, m = program.c.size, program.b.size
    kinds, blocks = _row_kinds(program)
    slack = direction is not None
    moves = np.zeros(m) if direction is None else direction
    left, free = _left_side(program, weights, n + slack)
    # Equalities with a band have two sides; where it grows with the slack, they are two inequalities.
    zero = kinds == _ZERO
    grows = zero & (moves > 0)
    plain, growing = np.flatnonzero((zero & ~grows) | (kinds == _NONNEG)), np.flatnonzero(grows)
    capped = _NO_ROWS
    if slack and program.ceiling is not None:
        capped = np.flatnonzero((kinds == _NONNEG) & np.isfinite(program.ceiling))
    equal = zero[plain]
    band = np.where(equal, program.band[plain], 0.0)
    index, sign, high = plain, np.ones(plain.size), program.b[plain] + band
    if growing.size or capped.size:
        index = np.concatenate([plain, growing, growing, capped])
        sign = np.repeat([1.0, -1.0, 1.0], [plain.size + growing.size, growing.size, capped.size])
        both = (program.b + program.band)[growing], (program.band - program.b)[growing]
        high = np.concatenate([high, *both, program.ceiling[capped] if program.ceiling is not None else _NO_ROWS])
    R = rows_of(left, index)
    if growing.size:
        R = sp.csr_array(sp.diags_array(sign) @ R)
    low = np.full(index.size, -np.inf)
    low[: plain.size][equal] = (program.b[plain] - band)[equal]
    in_cones = np.concatenate([np.arange(block.start, block.start + block.size) for block in blocks] or [_NO_ROWS])
    G = rows_of(left, in_cones) if in_cones.size else sp.csr_array((0, left.shape[1]))
    c, lower, upper = program.c, program.lower, np.maximum(program.lower, program.upper)
    if slack:
        gives = np.concatenate([np.where(equal, 0.0, moves[plain]), moves[index[plain.size :]]])
        gives[index.size - capped.size :] = 0.0
        R, G = R + _column(-gives, n, R.shape), G + _column(-moves[in_cones], n, G.shape)
        c = np.append(np.zeros(n) if minimise_slack else c, float(minimise_slack))
        lower, upper = np.append(lower, 0.0), np.append(upper, np.inf if slack_limit is None else slack_limit)
    source = np.where(np.arange(index.size) < index.size - capped.size, index, -1)
    if free.size:  # sizes are at least x and -x
        size, place = np.arange(free.size), np.ones(free.size)
        ends = sp.csr_array((place, (size, free)), shape=(free.size, left.shape[1]))
        sizes = sp.csr_array((place, (size, n + slack + size)), shape=ends.shape)
        R = sp.csr_array(sp.vstack([R, ends - sizes, -ends - sizes]))
        low, high = np.append(low, np.full(2 * free.size, -np.inf)), np.append(high, np.zeros(2 * free.size))
        source, sign = np.append(source, np.full(2 * free.size, -1)), np.append(sign, np.ones(2 * free.size))
        c, lower, upper = (
            np.append(part, np.full(free.size, value)) for part, value in ((c, 0.0), (lower, -np.inf), (upper, np.inf))
        )
    by_kind = {kind: [size for b in blocks if b.kind == kind for size in b.sizes] for kind in _ORDER}
    arrays = ArrayProgram(
        *(c, R, low, high, lower, upper, program.boolean, program.integer, G, program.b[in_cones]),
        second_order=tuple(by_kind["soc"]),
        semidefinite=tuple(math.isqrt(size) for size in by_kind["psd"]),
        exponential=len(by_kind["exp"]),
        power=tuple(alpha for b in blocks if b.kind == "pow3d" for alpha in b.alphas),
    )
    return _Arrays(arrays, m, source, sign, in_cones)


_NO_ROWS = np.zeros(0, dtype=np.int64)
_ORDER: tuple[ConeKind, ...] = ("soc", "psd", "exp", "pow3d")


def _row_kinds(program: ConeProgram) -> tuple[Integers, list[ConeBlock]]:
    """(m,) the kind of every row, and the blocks of cones that are kept, in the order of ``ArrayProgram``."""
    kinds = np.full(program.b.size, _NONE)
    for block in program.cones:
        kinds[block.rows] = _KIND_OF.get(block.kind, _CONE)
    kinds[~np.asarray(program.keep, dtype=bool)] = _NONE
    blocks = []
    for block in program.cones:
        if block.kind not in _KIND_OF and (kinds[block.rows] == _CONE).all():
            blocks.append(block)
    return kinds, sorted(blocks, key=lambda block: _ORDER.index(block.kind))


_KIND_OF = {"zero": _ZERO, "nonneg": _NONNEG}


def _left_side(program: ConeProgram, robust: Any, first: int) -> tuple[sp.csr_array, Integers]:
    """``A x`` (plus ``weights |x|``) as a matrix, and the columns whose size has a column of its own, from ``first``
    on. ``|x|`` is linear where bounds fix the sign."""
    A = sp.csr_array(program.A)
    m, n = A.shape
    free = _NO_ROWS
    if robust is not None:
        weights = sp.csr_array(robust)
        sign = np.where(program.lower >= 0, 1.0, np.where(program.upper <= 0, -1.0, 0.0))
        open_ = sign == 0
        open_[np.bincount(weights.indices, minlength=n) == 0] = False
        free = np.flatnonzero(open_)
        A = A + sp.csr_array((weights.data * sign[weights.indices], weights.indices, weights.indptr), shape=(m, n))
    if not free.size:
        return (A if first == n else sp.csr_array((A.data, A.indices, A.indptr), shape=(m, first))), free
    return sp.csr_array(sp.hstack([A, sp.csr_array((m, first - n)), weights[:, free]])), free


def _column(values: Floats, place: int, shape: tuple[int, int]) -> sp.csr_array:
    rows = np.flatnonzero(values)
    return sp.csr_array((values[rows], (rows, np.full(rows.size, place))), shape=shape)
