"""Intervals for the variables at the optimum of the true program, from released numbers alone.

The program. Let u be the true private numbers, u + N the released ones, and x(u) an optimum of the program as it is
written, every row hard; rows that the caller gave prices are short at these (``optimum.py``). Both are about the true
program: an answer that is "relaxed", "safe" or at usual prices lies elsewhere on purpose. Risk 1 - level is split in
half. With r of it, u lies in a region R around the released numbers: no draw of the noise on right-hand sides is beyond
t, the quantile of the largest of all, and no cost is beyond its ``reach`` (the parts share r).

*The same rows bind on all of R.* Where A and the prices are no functions of the noise. Take the optimum at the released
numbers, Q its rows that bind (equalities, and inequalities with a multiplier y > 0), F the columns that are not at a
bound with a reduced cost. Where ``A_QF`` is square and regular, x_F is ``A_QF^-1`` times right-hand sides: affine in
the numbers behind these, with slope L. Checked is that at every point of R all other rows and bounds hold, and that y
and reduced costs keep their sign (all are affine, so the 1-norm of their slope times t bounds them). Then x_F is the
optimum at each point of R, and the only one: y'(A z - b) = 0 for any other optimum z, so Q binds there too.

Claim: that this is found and ``x_j +- q`` misses x_j(u), q the (1 - r)-quantile of |L_j N|, has probability at most
2 r = 1 - level. Proof. L depends on the noise, so its quantile alone would prove nothing. But where u is in R, and so
inside of it almost surely, x(.) is affine with slope L around u: L is the derivative of x(.) at u, the same for all
draws that get here, L* say. So the interval misses only if u is outside of R, or ``|L*_j N| > q*``: each has
probability r. Columns at a bound are there with probability 1 - r.

*Otherwise* the range of x_j over a set that has x(u) for every u in R: all rows easier by what R leaves open, costs c
and coefficients A at the end of their box that is better for x (``Elastic``), and a cost of no more than the optimum
where all are harder, which is an upper bound for every u in R. Two linear programs a variable. It is wider: rows that
noise moves one way and another are all eased at once, and it holds for all variables together.

Which of the two is taken depends on the draw, and both miss only in these events: together at most 2 r. An integer
jumps, and its range takes an integer program for each end; cones are not done.

Quantiles of sums of Laplace draws are order statistics of simulated ones (as in ``optimum.py``).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu
from scipy.special import ndtri

from dpmodel._types import Floats, Integers
from dpmodel.contract import Options
from dpmodel.errors import SpecificationError
from dpmodel.intervals import IntervalTable, place_names
from dpmodel.numerics.array_program import ConeBlock
from dpmodel.numerics.cone_program import ConeProgram, solve_cone_program
from dpmodel.numerics.solvers import SameRows
from dpmodel.privacy import Gaussian, public_generator
from dpmodel.programs.answer import design_of
from dpmodel.programs.elastic import TOLERANCE, Elastic, Released
from dpmodel.programs.feasibility import has_integers
from dpmodel.programs.model import Program
from dpmodel.programs.noise_once import rebuilt
from dpmodel.programs.optimum import order_place
from dpmodel.release import Release

# Multipliers and reduced costs of this share of the largest cost are none; solvers meet rows to this.
_NONE, _MET = 1e-7, 1e-9
# Up to this many entries of slopes, columns, sums that are simulated, and numbers drawn for them.
_SLOPES, _COLUMNS, _SUMS, _DRAWN = 20_000_000, 3000, 20_000, 4_000_000


def variable_intervals(model: Program, release: Release, options: Options, level: float) -> IntervalTable:
    """Intervals for the entries of the variables of ``release`` (proof: the module's docstring).
    Errors: SpecificationError, for integers, cones, too many columns, and where the noise leaves the program no
    point."""
    if has_integers(model):
        raise _refused("an integer jumps where a number passes a threshold: its range takes an integer program an end")
    if not model.affine.is_linear():
        raise _refused("beyond linear programs no rows that bind give the optimum a law; a range takes a cone program")
    owners, places, columns = _entries(model, release)
    options = replace(options, beta=(1 - level) / 2)
    design, numbers = design_of(model, options, release.measured)
    released = rebuilt(model, design, numbers, raw=True)
    programs = Elastic.of(model, design, options, options.prices)
    # Prices of an answer to numbers that were released before, and other programs, may be chosen after them.
    seen = release.spent == (0.0, 0.0) and options.prices is not None
    seen |= any(part.draws for part in design.parts.values())
    same = None if seen or "matrix" in design.parts else _same_rows(programs, released)
    if same is None:
        ends, notes = _ranges(programs, released, columns), [_WIDE]
    else:
        ends = np.array([same.x, same.error, same.x - same.off, same.x + same.off])[:, columns] + 0.0
        notes = ["The same rows bind wherever the noise leaves the numbers: ends follow its law."]
    treatment = release.plan.get("feasibility", "centred")
    if treatment != "centred" and model.form.private_rows.any():
        notes.append(f'The released values are feasibility="{treatment}": they lie elsewhere on purpose.')
    if np.isinf(ends[2:]).any():
        notes.append("inf: no row or bound holds the variable there. bounds= on it, or more epsilon.")
    priced = "" if options.prices is None else ", rows short at the given prices"
    of = f"the program's optimum at the true numbers, as it is written{priced}, if it has a point there"
    names = tuple(place_names(owners, places, release.variables, release.labels))
    flat = {name: np.ravel(value, order="F") for name, value in release.variables.items()}
    found = np.array([flat[name][place] for name, place in zip(owners, places, strict=True)])
    estimate, error, low, high = ends
    nothing = np.full(columns.size, np.nan)
    return IntervalTable(names, found, estimate, error, low, high, nothing, level, of, tuple(notes))


_WIDE = "Which rows bind is open: ends are those of all optima that the noise leaves, for all variables together."


def _refused(why: str) -> SpecificationError:
    remedy = "release.optimum, an interval for its value; release.measured[0].noisy.intervals() for its private numbers"
    return SpecificationError("intervals: none for this program's variables", why=why, remedy=remedy)


def _entries(model: Program, release: Release) -> tuple[list[str], list[int], Integers]:
    """Of every entry of a variable that is a column: its variable's name, its place, its column."""
    owners: list[str] = []
    places: list[int] = []
    columns: list[int] = []
    for name, variable in zip(release.variables, model.problem.variables(), strict=False):
        first = model.affine.variable_columns.get(variable.id)
        if first is not None:
            rowwise = np.arange(variable.size).reshape(variable.shape, order="F").ravel()
            owners += [name] * variable.size
            places += rowwise.tolist()
            columns += (first + rowwise).tolist()
    if not 0 < len(columns) <= _COLUMNS:
        raise _refused(f"{len(columns)} of its columns are entries of variables, and 1 to {_COLUMNS} are done")
    return owners, places, np.array(columns, dtype=np.int64)


# ------------------------------------------------------------------ the same rows bind
class _Same(NamedTuple):
    """(n,) the optimum at the released numbers, the deviation of its noise, and q."""

    x: Floats
    error: Floats
    off: Floats


def _same_rows(programs: Elastic, released: Released) -> _Same | None:
    """Where the same rows bind on all of R; None where that is not so, or not found."""
    wide = programs.written(released, 0.0, 0, None)
    found = None if wide is None else solve_cone_program(wide, solver=programs.options.solver)
    if wide is None or found is None or found.x is None or found.dual is None or found.status != "optimal":
        return None
    x, y, A, size = found.x, found.dual.copy(), sp.csr_array(wide.A), _NONE * (1 + np.abs(wide.c).max(initial=0.0))
    equal, other = _kinds(programs, wide, y)
    rate = wide.c + A[equal].T @ y[equal] + A[other].T @ y[other]
    near = np.where(rate > 0, wide.lower, wide.upper)
    with np.errstate(invalid="ignore"):
        still = (np.abs(rate) > size) & (np.abs(x - near) <= TOLERANCE * (1 + np.abs(x)))
    still |= wide.lower == wide.upper
    binds = y[other] > size
    Q, rest, F, B = np.concatenate([equal, other[binds]]), other[~binds], np.flatnonzero(~still), np.flatnonzero(still)
    S = _spread(programs, wide)
    if Q.size != F.size or max(F.size, rest.size) * S.shape[1] > _SLOPES:
        return None
    # x_F = A_QF^-1 (h_Q - A_QB x_B), with slope L in the numbers behind h
    left, x = sp.csc_array(A[Q][:, F]), np.where(still, near, x)
    try:
        factor = splu(left) if F.size else None
    except RuntimeError:  # singular
        return None
    L = np.zeros((x.size, S.shape[1]))
    if factor is not None:
        solution = factor.solve(wide.b[Q] - A[Q][:, B] @ x[B])
        if not np.allclose(solution, x[F], rtol=TOLERANCE, atol=TOLERANCE * (1 + np.abs(x).max())):
            return None
        x[F], L[F] = solution, factor.solve(S[Q].toarray())
    # every other row and bound, at every point of R
    law, gap = None if programs.part is None else programs.part.distribution, wide.b[rest] - A[rest] @ x
    most = 0.0 if law is None else law.max_abs_quantile(S.shape[1], programs.beta)
    ends = ((gap, S[rest].toarray() - A[rest] @ L), (x - wide.lower, L), (wide.upper - x, L))
    if any((room < most * np.abs(slope).sum(axis=1) - _MET * (1 + np.abs(x).max())).any() for room, slope in ends):
        return None
    B = B[wide.lower[B] < wide.upper[B]]
    if not _same_signs(programs, wide.c, A[Q], F, B, factor, np.where(near == wide.lower, 1.0, -1.0)[B], equal.size):
        return None
    return _Same(x, *_law(programs, L))


def _kinds(programs: Elastic, wide: ConeProgram, y: Floats) -> tuple[Integers, Integers]:
    """Rows that are equalities, and inequalities. The two sides of a private equality become the first of them, with
    the multipliers of both in ``y``."""
    affine, sides = programs.model.affine, programs.sides
    m, pair = affine.rows, np.isinf(sides.price) & affine.equalities()[sides.row]
    first, second = (m + np.flatnonzero(pair & (sides.sign == sign)) for sign in (1.0, -1.0))
    y[first] -= y[second]
    keep = np.asarray(wide.keep, dtype=bool)[:m]
    equal = np.concatenate([np.flatnonzero(affine.equalities() & keep), first])
    other = np.concatenate([np.flatnonzero(affine.inequalities() & keep), m + np.flatnonzero(~pair)])
    return equal, other


def _spread(programs: Elastic, wide: ConeProgram) -> sp.csr_array:
    """(rows, k) from the noise on the k numbers behind b to that on right-hand sides."""
    m, sides, part = programs.model.affine.rows, programs.sides, programs.part
    if part is None:
        return sp.csr_array((wide.b.size, 0))
    after = sp.csr_array((wide.b.size - m - sides.row.size, sides.spread.shape[1]))
    return sp.csr_array(sp.vstack([sp.csr_array((m, sides.spread.shape[1])), sides.spread, after]))


def _same_signs(
    programs: Elastic, c: Floats, A: sp.csr_array, F: Integers, B: Integers, factor: Any, sign: Floats, equal: int
) -> bool:
    """Whether for all costs in R multipliers of the rows ``A`` that bind are above 0 after the first ``equal``, and
    reduced costs of B have their ``sign``: with costs c_F the multipliers are ``-A_F^-T c_F``."""
    part, off, least = programs.design.parts.get("objective"), np.zeros(c.size), _NONE * (1 + np.abs(c).max())
    if part is not None and part.distribution is not None:
        off[part.measurement.positions] = part.reach
    some = np.flatnonzero(off[F])
    if F.size * some.size > _SLOPES:
        return False
    y, slope = np.zeros(F.size), np.zeros((F.size, some.size))
    if factor is not None:
        y = factor.solve(-c[F], trans="T")
        slope = factor.solve(np.eye(F.size)[:, some], trans="T") if some.size else slope
    across, change = A[:, B].T, off[F[some]]
    rate = sign * (c[B] + across @ y)
    rates = off[B] + np.abs(across @ slope) @ change
    return bool((y > np.abs(slope) @ change + least)[equal:].all() and (rate > rates + least).all())


def _law(programs: Elastic, L: Floats) -> tuple[Floats, Floats]:
    """(n,) deviation and (1 - r)-quantile of |L_j N|."""
    part, risk = programs.part, programs.options.beta
    length = np.sqrt((L * L).sum(axis=1))
    if part is None or part.distribution is None:
        return length, length
    law = part.distribution
    off = length * (-float(ndtri(risk / 2)) * law.scale if isinstance(law, Gaussian) else law.max_abs_quantile(1, risk))
    several = np.flatnonzero((L != 0).sum(axis=1) > 1)
    if several.size and not isinstance(law, Gaussian):
        count = max(min(_SUMS, _DRAWN // L.shape[1]), math.ceil(40 / risk))
        draws, place = law.sample((count, L.shape[1]), public_generator(0)), order_place(count, risk)
        for rows in np.array_split(several, math.ceil(several.size / 100)):
            off[rows] = np.inf if place is None else np.sort(np.abs(draws @ L[rows].T), axis=0)[place]
    return length * law.standard_deviation, off


# ------------------------------------------------------------------ other rows may bind
def _ranges(programs: Elastic, released: Released, columns: Integers) -> Floats:
    """(4, columns) nan, nan, and the ends of each column's range over a set that has the optima on all of R."""
    box = programs.box(programs.beta)
    dearest = programs.solve(released, box, 1, programs.cut).value
    wide = programs.written(released, box, -1, programs.cut)
    if wide is None:
        raise _refused("noise on costs or coefficients is multiplied by a variable of either sign without bounds")
    if math.isfinite(dearest):
        block = ConeBlock("nonneg", wide.b.size, 1, (), (), -1, -1, "")
        wide = wide.with_(
            A=sp.csr_array(sp.vstack([wide.A, wide.c[None, :]])),
            b=np.append(wide.b, dearest - wide.d),
            cones=(*wide.cones, block),
            band=np.append(wide.band, 0.0),
            keep=np.append(wide.keep, True),
        )
    none, same_rows = np.zeros(wide.c.size), SameRows()
    if solve_cone_program(wide.with_(c=none, d=0.0), solver=programs.options.solver, same_rows=same_rows).x is None:
        raise _refused("the noise leaves it no point: with the level's probability there is none at the true numbers")
    out = np.full((4, columns.size), np.nan)
    for k, column in enumerate(columns):
        for row, sign in ((2, 1.0), (3, -1.0)):
            c = none.copy()
            c[column] = sign
            found = solve_cone_program(wide.with_(c=c, d=0.0), solver=programs.options.solver, same_rows=same_rows)
            low = -math.inf
            if found.status == "optimal" and found.value is not None:
                low = found.value - TOLERANCE * (1 + abs(found.value))
            out[row, k] = sign * low
    out[2:] = np.clip(out[2:], wide.lower[columns], wide.upper[columns]) + 0.0
    return out
