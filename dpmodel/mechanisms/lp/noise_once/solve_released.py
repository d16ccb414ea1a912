"""From released numbers to a solution: relax, solve. All of it is post-processing."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dpmodel._types import Floats
from dpmodel.classify.private_lp import PrivateLP
from dpmodel.compile.public_set import base_program
from dpmodel.contract import Options, Outcome
from dpmodel.mechanisms.direct_measurement import declared_integer
from dpmodel.mechanisms.lp.noise_once.give_way import least_each, shortfall
from dpmodel.mechanisms.lp.noise_once.margins import giving_way, interior_direction
from dpmodel.numerics.cone_program import ConeProgram, ConeSolution, solve_cone_program
from dpmodel.numerics.solvers import SOLVER_ERROR

# A solver's own tolerance: the least violation is kept to this when the objective is minimised after it.
_TOLERANCE = 1e-6

LEAST_VIOLATION = "least_violation"
_GIVES_WAY = ("the released program has no point; in this one private rows give way by the least further amount",)


def relaxed_program(
    model: PrivateLP, c: Floats | None, b: Floats | None, entries: Floats | None, relax: Floats
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
    moved = np.maximum(np.minimum(moved, model.public.ceiling), model.public.lower_bound)
    band = np.where(equality, np.maximum(relax, 0.0), 0.0)
    return base_program(model.form).with_(c=total_c, b=moved, A=A, band=band, ceiling=model.public.ceiling)


def whole_sides(model: PrivateLP, program: ConeProgram, relax: Floats) -> ConeProgram:
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


def _integer_rows(model: PrivateLP) -> npt.NDArray[np.bool_]:
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
    model: PrivateLP,
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
    model: PrivateLP, options: Options, b: Floats | None, entries: Floats | None, *, relax: Floats, inside: float
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
