"""From released numbers to a solution: relax, solve, give way where they leave no point. All is post-processing.

How far rows must give way so that noise on b and A cannot cut off (or let in) a point.

Row i of a noised program reads ``b_i + e_i - (A_i + N_i) x``. Given public bounds ``|e_i| <= tau_b[i]`` and
``|N_i x| <= tau_A[i]``, the noise in a cone's rows lies in the box of half-widths ``tau = tau_b + tau_A``, and
``margin`` finds t with ``box + t d`` inside the cone for its interior direction d. Relaxing by ``+t d`` then keeps
every truly feasible point; tightening by ``-t d`` makes every point that satisfies the noised row satisfy the
true one. Both follow from the cone being closed under addition.

Where the released numbers leave no point: which private rows give way, by how much, and what is known of each.

Row i gives way by v_i (a cone along its interior direction, an equality to either side); its unit w_i is public, the
size of the noise in it. First the largest ``v_i / w_i`` is made as small as possible; then, none being larger, their
sum; then the cost, with these v_i. The first step alone would let one row that nobody can satisfy weaken all others;
the second alone would pile everything on few rows.

What is known of a point. Let every true row contain the row of ``program`` (safe, strict: the event E of
``feasibility.py``). If ``gap + v d`` lies in the cone for the gap of the program at x, then so does the true one, since
the cone is closed under addition: the true row is short by at most v. ``shortfall`` is the least such v. E is about the
noise alone, so this holds at once for all rows and for every x, also one that is chosen after seeing the numbers.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.optimize import brentq

from dpmodel._types import Floats
from dpmodel.compile.affine_map import AffineMap
from dpmodel.compile.public_set import base_program
from dpmodel.contract import Options, Outcome
from dpmodel.kernels.direct_measurement import declared_integer
from dpmodel.numerics.array_program import ConeBlock
from dpmodel.numerics.cone_program import ConeProgram, ConeSolution, solve_cone_program
from dpmodel.numerics.solvers import SOLVER_ERROR
from dpmodel.programs.model import Program


def interior_direction(affine: AffineMap) -> Floats:
    """(m,) a direction inside every cone: 1 for linear rows, the axis of second-order cones, the identity for
    semidefinite ones, (-1, 1, 1) for exponential and (1, 1, 0) for power cones. For zero-cone rows 1, the
    direction in which their band grows."""
    direction = np.ones(affine.rows)
    for block in affine.cones:
        if block.kind == "soc":
            direction[block.rows] = 0.0
            direction[block.start + np.r_[0, np.cumsum(block.sizes)[:-1]].astype(np.int64)] = 1.0
        elif block.kind == "psd":
            direction[block.rows] = np.concatenate([np.eye(_side(size)).ravel() for size in block.sizes])
        elif block.kind == "exp":
            direction[block.rows] = np.tile([-1.0, 1.0, 1.0], len(block.sizes))
        elif block.kind == "pow3d":
            direction[block.rows] = np.tile([1.0, 1.0, 0.0], len(block.sizes))
    return direction


def giving_way(affine: AffineMap, private: npt.NDArray[np.bool_]) -> Floats:
    """(m,) interior directions of the ``private`` rows (m,), 0 elsewhere. A cone gives way as a whole: its axis may lie
    in a row that is itself public."""
    moves = private.copy()
    for block in affine.cones:
        if block.kind not in ("zero", "nonneg") and private[block.rows].any():
            moves[block.rows] = True
    return np.where(moves, interior_direction(affine), 0.0)


def margin(affine: AffineMap, tau: Floats) -> Floats:
    """(m,) multiples t of the interior direction that cover the box of half-widths ``tau`` (m,), cone by cone.

    The same number in all rows of a cone, 0 where no row of the cone is noised.

    Second-order: ``t - tau_0 >= ||tau_rest||_2``. Semidefinite: ``t >= ||box||_F >= spectral norm``. Exponential and
    power cones: the worst corner is checked and the least t found by bisection on it.
    """
    t = np.zeros(affine.rows)
    for block in affine.cones:
        part = tau[block.rows]
        if not part.any():
            continue
        if block.kind in ("zero", "nonneg"):
            t[block.rows] = part
            continue
        starts = np.r_[0, np.cumsum(block.sizes)[:-1]].astype(np.int64)
        if block.kind == "soc":
            squares = np.add.reduceat(part**2, starts)
            heads = part[starts]
            tails = np.sqrt(np.maximum(squares - heads**2, 0.0)) * (1 + 1e-12)
            per_cone = heads + tails
        elif block.kind == "psd":
            per_cone = np.array([_spectral(part[s : s + size]) for s, size in zip(starts, block.sizes, strict=True)])
        else:
            per_cone = np.array([_triple(block, number, part[s : s + 3]) for number, s in enumerate(starts)])
        t[block.rows] = np.repeat(per_cone, block.sizes)
    return t


def shortfalls(affine: AffineMap, gap: Floats) -> Floats:
    """(m,) least t >= 0 with ``gap + t d`` in each cone, d its interior direction; the same number in all its rows. For
    zero cones the absolute gap.

    Second-order: ``||tail|| - head``. Semidefinite: minus the least eigenvalue. Exponential and power cones: bisection,
    rounded up.
    """
    t = np.zeros(affine.rows)
    for block in affine.cones:
        part = gap[block.rows]
        if block.kind in ("zero", "nonneg"):
            t[block.rows] = np.abs(part) if block.kind == "zero" else np.maximum(-part, 0.0)
            continue
        starts = np.r_[0, np.cumsum(block.sizes)[:-1]].astype(np.int64)
        if block.kind == "soc":
            tails = part.copy()
            tails[starts] = 0.0
            per_cone = np.sqrt(np.add.reduceat(tails**2, starts)) - part[starts]
        elif block.kind == "psd":
            pairs = zip(starts, block.sizes, strict=True)
            squares = [part[s : s + size].reshape(_side(size), -1) for s, size in pairs]
            per_cone = np.array([-float(np.linalg.eigvalsh((each + each.T) / 2)[0]) for each in squares])
        else:
            per_cone = _steps_inside(block, part.reshape(-1, 3))
        t[block.rows] = np.repeat(np.maximum(per_cone, 0.0), block.sizes)
    return t


def _steps_inside(block: ConeBlock, points: Floats) -> Floats:
    """(k,) least t with ``point + t d`` in each of k three-dimensional cones, by bisection, rounded up."""
    direction = np.array([-1.0, 1.0, 1.0]) if block.kind == "exp" else np.array([1.0, 1.0, 0.0])
    alphas = np.asarray(block.alphas) if block.kind == "pow3d" else np.zeros(len(points))

    def inside(t: Floats) -> npt.NDArray[np.bool_]:
        x, y, z = (points + t[:, None] * direction).T
        with np.errstate(all="ignore"):
            if block.kind == "exp":
                curved = (y > 0) & (y * np.exp(np.minimum(x / y, 700.0)) <= z)
                return np.asarray(curved | ((y == 0) & (x <= 0) & (z >= 0)))
            return np.asarray((x >= 0) & (y >= 0) & (x**alphas * y ** (1 - alphas) >= np.abs(z)))

    low, high = np.zeros(len(points)), np.abs(points).max(axis=1, initial=0.0) + 1e-12
    while not inside(high).all() and float(high.max(initial=0.0)) < 1e300:
        high = np.where(inside(high), high, 2 * high)
    high = np.where(inside(low), 0.0, high)
    for _ in range(80):
        middle = (low + high) / 2
        low, high = np.where(inside(middle), low, middle), np.where(inside(middle), middle, high)
    return high


def _side(size: int) -> int:
    return math.isqrt(size)


def _spectral(tau: Floats) -> float:
    """Largest spectral norm of a symmetric matrix with entries bounded by tau: that of the bounds themselves."""
    side = _side(tau.size)
    square = tau.reshape(side, side)
    return float(np.linalg.eigvalsh((square + square.T) / 2)[-1]) * (1 + 1e-9)


def _triple(block: ConeBlock, number: int, tau: Floats) -> float:
    """Least t such that the whole box plus t d lies in a three-dimensional cone."""
    if not tau.any():
        return 0.0
    scale = float(tau.max())
    a, b, c = tau / scale

    def slack(t: float) -> float:
        if block.kind == "exp":
            # y e^(x/y) <= z: worst at the largest x, and at the largest y when x <= 0 (it grows with y then).
            if t <= a or t <= b:
                return -1.0
            y = t + b
            return float((t - c) - y * np.exp((a - t) / y))
        alpha = block.alphas[number]
        if t <= a or t <= b:
            return -1.0
        return float((t - a) ** alpha * (t - b) ** (1 - alpha) - c)

    high = 1.0
    while slack(high) < 0:
        high *= 2
        if high > 1e6:
            return float("inf")
    low = max(a, b)
    root = high if slack(low) >= 0 else brentq(slack, low, high, xtol=1e-12)
    root = float(root) * (1 + 1e-9) + 1e-12
    # The bracket's end is on the right side even if the root is off by the tolerance.
    return scale * (root if slack(root) >= 0 else high)


# Rows that are missed by less hold as far as solvers tell: of linear ones, and of cones, relative to their numbers.
_LINEAR, _CURVED = 1e-6, 2e-5


def least_each(
    program: ConeProgram, direction: Floats, most: float, *, weights: Any = None, **how: Any
) -> Floats | None:
    """(m,) multiples of ``direction`` (m,), of least sum and none above ``most``, by which rows give way, the same in
    all rows of a cone; None where no solver has an answer.

    A variable for each row or cone (two for an equality, up and down). Released numbers only: post-processing.
    """
    m, n = program.b.size, program.c.size
    cone, equal = np.zeros(m, dtype=np.int64), np.zeros(m, dtype=bool)
    count = 0
    for block in program.cones:
        sizes = block.sizes or (1,) * block.size
        cone[block.rows] = count + np.repeat(np.arange(len(sizes)), sizes)
        equal[block.rows] = block.kind == "zero"
        count += len(sizes)
    rows = np.flatnonzero(direction)
    moving, column = np.unique(cone[rows], return_inverse=True)
    # Where there is a ceiling, the row does not give way beyond it.
    room = np.full(moving.size, float(most))
    if program.ceiling is not None:
        with np.errstate(invalid="ignore"):
            left = np.maximum(program.ceiling - program.b, 0.0)[rows] / direction[rows]
        np.minimum.at(room, column, np.where(np.isfinite(left), left, most))
    # Equalities come again, from below.
    again = np.flatnonzero(equal[rows])
    place = np.concatenate([rows, rows[again]])
    which = np.concatenate([column, moving.size + np.arange(again.size)])
    sign = np.concatenate([-direction[rows], direction[rows[again]]])
    size = moving.size + again.size
    slacks = sp.csr_array((sign, (place, which)), shape=(m, size))
    wide = program.with_(
        c=np.concatenate([np.zeros(n), np.ones(size)]),
        d=0.0,
        A=sp.hstack([sp.csr_array(program.A), slacks], format="csr"),
        lower=np.concatenate([program.lower, np.zeros(size)]),
        upper=np.concatenate([program.upper, room, np.full(again.size, float(most))]),
    )
    if weights is not None:
        weights = sp.hstack([sp.csr_array(weights), sp.csr_array((m, size))], format="csr")
    solution = solve_cone_program(wide, weights=weights, **how)
    if solution.x is None:
        return None
    out = np.zeros(m)
    np.add.at(out, place, np.maximum(solution.x[n:], 0.0)[which])
    return out


def shortfall(
    affine: AffineMap, program: ConeProgram, x: Floats, private: npt.NDArray[np.bool_], weights: Any = None
) -> Floats:
    """(m,) by how much x misses each of the ``private`` rows (m,) of ``program``, the same number in all rows of a
    cone; 0 up to a solver's tolerance."""
    left = program.A @ x
    size = np.abs(program.b) + abs(sp.csr_array(program.A)) @ np.abs(x)
    if weights is not None:
        left = left + weights @ np.abs(x)
    short = np.maximum(shortfalls(affine, np.asarray(program.b - left)) - program.band, 0.0)
    tolerance = np.zeros(affine.rows)
    for block in affine.cones:
        rows = slice(block.start, block.start + block.size)
        linear = block.kind in ("zero", "nonneg")
        tolerance[rows] = _LINEAR + 1e-9 * size[rows] if linear else _CURVED * (1 + size[rows].max(initial=0.0))
        if not linear and private[rows].any():
            continue
        short[rows] = np.where(private[rows], short[rows], 0.0)
    return np.where(short > tolerance, short, 0.0)


def short_rows(affine: AffineMap, short: Floats) -> tuple[tuple[str, float], ...]:
    """Names and amounts of the rows with a shortfall, the largest first; a cone is one row."""
    found: list[tuple[str, float]] = []
    for block in affine.cones:
        part = short[block.rows]
        if block.sizes:
            part = part[np.r_[0, np.cumsum(block.sizes)[:-1]].astype(np.int64)]
        found += [(_name(block, int(k), part.size), float(part[k])) for k in np.flatnonzero(part)]
    return tuple(sorted(found, key=lambda pair: -float(f"{pair[1]:.4g}")))


def _name(block: ConeBlock, row: int, rows: int) -> str:
    """The label and the index in the user's constraint, counted as CVXPY does: column by column."""
    if rows == 1:
        return block.label
    shape = block.shape if int(np.prod(block.shape)) == rows else (rows,)
    index = ", ".join(str(int(k)) for k in np.unravel_index(row, shape, order="F"))
    return f"{block.label}[{index}]"


# A solver's own tolerance: the least violation is kept to this when the objective is minimised after it.
_TOLERANCE = 1e-6

LEAST_VIOLATION = "least_violation"
_GIVES_WAY = ("the released program has no point; in this one private rows give way by the least further amount",)


def relaxed_program(
    model: Program, c: Floats | None, b: Floats | None, entries: Floats | None, relax: Floats
) -> ConeProgram:
    """The released program with rows moved by ``relax`` (m,) along their interior direction.

    Bands for equalities. Right-hand sides of inequalities with public coefficients are moved into the range
    that databases allow, which can only bring them nearer to the true ones; nor do they give way beyond it, so what is
    released is a public point, whatever is done to the rows.
    """
    total_c, total_b, A = model.form.with_noise(c, b, entries)
    direction = interior_direction(model.affine)
    equality = model.affine.equalities()
    moved = np.where(equality, total_b, total_b + relax * direction)
    moved = np.maximum(np.minimum(moved, model.public.largest_sides), model.public.least_sides)
    band = np.where(equality, np.maximum(relax, 0.0), 0.0)
    return base_program(model.form).with_(c=total_c, b=moved, A=A, band=band, ceiling=model.public.largest_sides)


def integer_sides(model: Program, program: ConeProgram, relax: Floats) -> ConeProgram:
    """``program`` with right-hand sides rounded in rows whose private part is an integer by public declaration.

    Row i is ``A_i x <= b_i``. Tightened (``relax_i < 0``), its side is at most b_i when the statement holds. With b_i
    an integer (plus a public number) it is so rounded up, too: up to 1 of the tightening is won back.
    Relaxed, its side is at least b_i, so it is so rounded down, too, but in rows with private coefficients, where it
    covers the noise on these as well. Whether x is integer plays no part; where it is, a side just beyond an integer
    would cost a whole step.
    """
    whole = _integer_rows(model)
    if not whole.any():
        return program
    public, tightened, relaxed = model.form.b0, whole & (relax < 0), whole & (relax > 0)
    relaxed[model.form.matrix_positions()[0]] = False
    part = program.b - public
    near = _LIKE * (1 + np.abs(part))
    b = np.where(tightened, np.ceil(part - near), np.where(relaxed, np.floor(part + near), part)) + public
    return program.with_(b=np.where(tightened | relaxed, b, program.b))


# Numbers so near to an integer, relative to their size, are one but for rounding.
_LIKE = 1e-9


def _integer_rows(model: Program) -> npt.NDArray[np.bool_]:
    """(m,) inequalities whose right-hand side is a public number and an integer combination of private integers. Not
    kept: a run writes nothing into the model."""
    scalar, mask = model.form.scalar, np.zeros(model.affine.rows, dtype=bool)
    if not scalar.nnz:
        return mask
    integer = np.zeros(model.affine.theta_size, dtype=bool)
    for block in model.affine.private_blocks:
        integer[block.columns] = declared_integer(block)
    mask[scalar.row] = True
    mask[scalar.row[~integer[scalar.column] | (scalar.coefficient != np.rint(scalar.coefficient))]] = False
    return mask & model.affine.inequalities()


def solve_released(
    model: Program,
    options: Options,
    program: ConeProgram,
    *,
    weights: Any = None,
    unit: Floats | None = None,
    may_give_way: bool = True,
) -> Outcome:
    """Solve a released program; if it is infeasible (or no solver has an answer) and ``may_give_way``, let private rows
    give way as ``give_way`` says. ``unit`` : (m,) public, in what multiples of it; equal for all by default."""
    private = model.form.private_rows
    solve = partial(solve_cone_program, solver=options.solver, options=options.solver_options, weights=weights)
    solution = solve(program, start=None if private.any() else model.public.start)
    stays = not (may_give_way and private.any())
    without_point = "infeasible" in solution.status or solution.status == SOLVER_ERROR
    if solution.solved or not without_point or stays:
        return _outcome(solution, solution.status)
    direction = giving_way(model.affine, private)
    if unit is not None and (unit[private] > 0).any():
        # Rows that no noise moves count like the one that it moves most.
        most = float(unit[private].max())
        direction = direction * np.where(unit > 0, unit, most) / most
    first = solve(program, direction=direction, minimise_slack=True)
    if not first.solved:
        return _outcome(first, first.status)
    most = first.slack * (1 + _TOLERANCE) + _TOLERANCE
    each = least_each(program, direction, most, weights=weights, solver=options.solver, options=options.solver_options)
    best = first  # every row gives way alike: only where no solver has an answer to more
    if each is not None:
        amount = each * direction
        eased = amount + np.where(each > 0, np.sign(direction) * _TOLERANCE * (1 + np.abs(amount)), 0.0)
        equality = model.affine.equalities()
        sides = program.b + np.where(equality, 0.0, eased)
        if program.ceiling is not None:
            sides = np.minimum(sides, np.maximum(program.ceiling, program.b))
        by_row = solve(program.with_(b=sides, band=program.band + np.where(equality, eased, 0.0)))
        if "unbounded" in by_row.status and first.slack <= _TOLERANCE:
            return _outcome(by_row, "unbounded")  # the solver could not tell the two apart at first
        best = by_row if by_row.solved else first
    assert best.x is not None
    short = shortfall(model.affine, program, best.x, private, weights)
    earlier = solution.seconds + (first.seconds if best is not first else 0.0)
    extra = float(short.max(initial=0.0))
    return _outcome(best, LEAST_VIOLATION, extra=extra, notes=_GIVES_WAY, seconds=earlier)


def solve_most_inside(
    model: Program, options: Options, b: Floats | None, entries: Floats | None, *, relax: Floats, inside: float
) -> Outcome:
    """For linear programs without an objective: the point that meets the released rows best.

    Rows start tightened by ``relax`` and give way by ``t relax`` (bands of equalities grow from nothing by
    ``t relax / 2``) with the least t >= 0. At t = 1 rows are as released, at t = 2 this is the relaxed program: the
    statements of the two hold up to there, which is ``inside``.
    """
    program = relaxed_program(model, None, b, entries, -relax)
    direction = np.where(model.affine.equalities(), relax / 2, relax)
    moves = np.where(direction > 0, direction, 0.0)
    if not moves.any() or not np.isfinite(moves).all():
        still = relax if inside > 1 else np.zeros(model.affine.rows)
        return solve_released(model, options, relaxed_program(model, None, b, entries, still), unit=finite(relax))
    solution = solve_cone_program(
        program, direction=moves, minimise_slack=True, solver=options.solver, options=options.solver_options
    )
    beyond = max(solution.slack - inside, 0.0) * float(relax.max()) if solution.solved else 0.0
    value = program.d if solution.solved else None
    status = LEAST_VIOLATION if beyond > _TOLERANCE * float(relax.max()) else solution.status
    notes = _GIVES_WAY if status == LEAST_VIOLATION else ()
    extra = beyond if status == LEAST_VIOLATION else 0.0
    return Outcome(status, solution.x, solution.dual, value, solution.seconds, extra, (*notes, *solution.notes))


def finite(values: Floats) -> Floats:
    """``values`` with 0 for what is not finite."""
    return np.where(np.isfinite(values), values, 0.0)


def _outcome(
    solution: ConeSolution, status: str, *, extra: float = 0.0, notes: tuple[str, ...] = (), seconds: float = 0.0
) -> Outcome:
    seconds += solution.seconds
    return Outcome(status, solution.x, solution.dual, solution.value, seconds, extra, (*notes, *solution.notes))
