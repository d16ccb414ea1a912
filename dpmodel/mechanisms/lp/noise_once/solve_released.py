"""From released numbers to a solution: relax, solve. All of it is post-processing."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from dpmodel._types import Floats
from dpmodel.classify.private_lp import PrivateLP
from dpmodel.compile.standard_form.public_set import base_program
from dpmodel.mechanisms.contract import Outcome, Request
from dpmodel.mechanisms.lp.noise_once.give_way import least_each
from dpmodel.mechanisms.lp.noise_once.margins import giving_way, interior_direction
from dpmodel.numerics.cone_program import ConeProgram, ConeSolution, solve_cone_program
from dpmodel.numerics.solvers import SOLVER_ERROR

# A solver's own tolerance: the least violation is kept to this when the objective is minimised after it.
_TOLERANCE = 1e-6

LEAST_VIOLATION = "least_violation"
_GIVES_WAY = (
    "the relaxed program is infeasible on the released data; this point gives way by the least further amount",
)


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


def solve_released(
    model: PrivateLP,
    request: Request,
    c: Floats | None,
    b: Floats | None,
    entries: Floats | None,
    *,
    relax: Floats,
    weights: Any = None,
    may_give_way: bool = True,
) -> Outcome:
    """Solve the relaxed program; if it is infeasible (or no solver has an answer) and ``may_give_way``, find the point
    of least violation: no row gives way by more than the least such number, and of linear rows each by as little as
    their sum allows."""
    program = relaxed_program(model, c, b, entries, relax)
    solve = partial(solve_cone_program, program, solver=request.solver, options=request.options, weights=weights)
    solution = solve(start=None if model.form.private_rows.any() else model.public.start)
    stays = not (may_give_way and model.form.private_rows.any())
    without_point = "infeasible" in solution.status or solution.status == SOLVER_ERROR
    if solution.solved or not without_point or stays:
        return _outcome(solution, solution.status)
    direction = giving_way(model.affine, model.form.private_rows)
    first = solve(direction=direction, minimise_slack=True)
    if not first.solved:
        return _outcome(first, first.status)
    limit = first.slack * (1 + _TOLERANCE) + _TOLERANCE
    each = least_each(
        program, direction, limit, weights=weights, solver=request.solver, options=request.options
    )  # fmt: skip
    if each is not None:
        eased = each + np.where(each > 0, _TOLERANCE * (1 + each), 0.0)
        equality = model.affine.equalities()
        by_row = solve_cone_program(
            program.with_(
                b=np.minimum(program.b + np.where(equality, 0.0, eased), model.public.ceiling),
                band=program.band + np.where(equality, eased, 0.0),
            ),
            solver=request.solver, options=request.options, weights=weights,
        )  # fmt: skip
        if by_row.solved:
            return _outcome(by_row, LEAST_VIOLATION, extra=limit, notes=_GIVES_WAY, seconds=solution.seconds)
    second = solve(direction=direction, slack_limit=limit)
    if not second.solved and "unbounded" in solution.status and first.slack <= _TOLERANCE:
        return _outcome(second, "unbounded")  # the solver could not tell the two apart at first
    best = second if second.solved else first
    earlier = solution.seconds + (first.seconds if best is second else 0.0)
    return _outcome(best, LEAST_VIOLATION, extra=limit, notes=_GIVES_WAY, seconds=earlier)


def solve_most_inside(
    model: PrivateLP, request: Request, b: Floats | None, entries: Floats | None, *, relax: Floats
) -> Outcome:
    """For linear programs without an objective: the point that meets the released rows best.

    Rows start tightened by ``relax`` and give way by ``t relax`` (bands of equalities grow from nothing by
    ``t relax / 2``) with the least t >= 0. At t = 2 this is the relaxed program, so its statement holds up to there.
    """
    program = relaxed_program(model, None, b, entries, -relax)
    direction = np.where(model.affine.equalities(), relax / 2, relax)
    moves = np.where(direction > 0, direction, 0.0)
    if not moves.any():
        return solve_released(model, request, None, b, entries, relax=relax)
    solution = solve_cone_program(
        program, direction=moves, minimise_slack=True, solver=request.solver, options=request.options
    )
    beyond = max(solution.slack - 2.0, 0.0) * float(relax.max()) if solution.solved else 0.0
    value = program.d if solution.solved else None
    status = LEAST_VIOLATION if beyond > _TOLERANCE * float(relax.max()) else solution.status
    notes = _GIVES_WAY if status == LEAST_VIOLATION else ()
    extra = beyond if status == LEAST_VIOLATION else 0.0
    return Outcome(status, solution.x, solution.dual, value, solution.seconds, extra, (*notes, *solution.notes))


def _outcome(
    solution: ConeSolution, status: str, *, extra: float = 0.0, notes: tuple[str, ...] = (), seconds: float = 0.0
) -> Outcome:
    seconds += solution.seconds
    return Outcome(status, solution.x, solution.dual, solution.value, seconds, extra, (*notes, *solution.notes))
