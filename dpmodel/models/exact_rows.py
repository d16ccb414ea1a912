"""``feasibility=Exact(...)``: private inequalities that are to hold exactly, all but a few."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from dpmodel._types import Floats
from dpmodel.classify.private_lp import PrivateLP
from dpmodel.compile.form import require_private_values
from dpmodel.contract import NOTHING_FOUND, Candidate, Options, Outcome, Ran, Serves
from dpmodel.errors import InfeasibleError, SpecificationError, UnsupportedModelError
from dpmodel.exact.inputs import checked_margin
from dpmodel.exact.model import Found, PrivateInequalities
from dpmodel.models.systems import Inequalities
from dpmodel.programs.equations import exact_inequalities, why_not_inequalities
from dpmodel.programs.rows import public_polyhedron
from dpmodel.release import Release, private_parameters
from dpmodel.text import number

if TYPE_CHECKING:
    from dpmodel.models.program import Program


class ExactRows(Inequalities):
    """The private rows of a ``program``, to be satisfied exactly, all but a few."""

    def __init__(self, data: PrivateInequalities, program: Program) -> None:
        super().__init__(data)
        self.program = program

    def refuse(self, options: Options) -> None:
        self.program.refuse(options)

    def ready(self, chosen: Candidate, serves: Serves) -> None:
        self.program.data.public.require_feasible()
        require_private_values(private_parameters(self.program.problem))

    def checked(self, outcome: Any) -> Any:
        return outcome_of(self.program.data, super().checked(outcome))

    def stopped(self, status: str, note: str) -> Outcome:
        return self.program.stopped(status, note)

    def finish(self, ran: Ran) -> Release:
        return self.program.finish(ran)


# Exact answers are also told as fractions in a note, up to this many variables.
_MOST_TOLD = 20


def exact_rows(model: PrivateLP, options: Options, given: Options) -> PrivateInequalities | None:
    """What ``feasibility=Exact(...)`` makes of a program; None where all private rows are equalities, which its own
    mechanisms satisfy exactly.

    Raises
    ------
    SpecificationError
        For a problem without private constraints, a margin for equalities, and as ``_exact_system``.
    """
    if not model.form.private_rows.any():
        raise SpecificationError(
            "feasibility=Exact() for a problem without private constraints",
            why="public constraints always hold, and nothing else is to be satisfied",
            remedy="leave it out",
        )
    margin = _margin(given)
    if (model.form.private_rows & ~model.affine.equalities()).any():
        return _exact_system(model, options, given)
    if margin is not None:
        raise SpecificationError(
            "Exact(margin=) for private equalities",
            why="a margin is room beside inequalities; equalities have none and need none",
            remedy="leave it out",
        )
    return None


def _exact_system(model: PrivateLP, options: Options, given: Options) -> PrivateInequalities:
    """The private inequalities beside the public constraints (and the target, if one is names).

    Raises
    ------
    SpecificationError
        For a margin outside (0, 1], an objective without a target, and arguments that trade violations.
    UnsupportedModelError
        For rows that cannot be satisfied one by one.
    InfeasibleError
        When the public constraints and the target contradict each other.
    """
    verdict = why_not_inequalities(model)
    if not verdict.eligible:
        raise UnsupportedModelError(
            "feasibility=Exact() cannot serve this problem",
            why=verdict.reason,
            remedy="one inequality per record, or feasibility=dpm.AllBut(alpha=...)",
        )
    _refuse_trades(options, given)
    margin = _margin(given)
    if margin is not None:
        margin = checked_margin(margin)
    polytope = public_polyhedron(model)
    if options.target is not None:
        if model.form.offset.nnz:
            raise SpecificationError(
                "a target for an objective with a private constant term",
                why="it cannot become a public constraint",
                remedy="leave the constant out of the objective and the target",
            )
        polytope = polytope.with_row(model.form.c0, options.target - model.form.d0)
    elif np.any(model.form.c0):
        raise SpecificationError(
            "feasibility=Exact() with an objective",
            why="its mechanisms find a point that satisfies nearly all rows; they do not optimise",
            remedy="goal=dpm.Target(the value to reach), which becomes a public constraint, or Minimize(0)",
        )
    if polytope.empty:
        raise InfeasibleError(
            "no public point satisfies the public constraints",
            why="found without the private rows; nothing was read or spent",
            remedy="fewer or wider public constraints, or another target",
        )
    return exact_inequalities(model, polytope, margin)


def outcome_of(model: PrivateLP, found: Found) -> Outcome:
    """The released point as an outcome; an exact one is also told in a note."""
    if found.status != "found":
        return Outcome(NOTHING_FOUND, None, None, None, notes=(*found.notes, "no point was found within the budget"))
    x: Floats = np.array([float(entry) for entry in found.answer], dtype=np.float64)
    notes = list(found.notes)
    if not isinstance(found.answer, np.ndarray) or found.answer.dtype == object:
        shown = ", ".join(str(entry) for entry in list(found.answer)[:_MOST_TOLD])
        more = ", ..." if len(found.answer) > _MOST_TOLD else ""
        notes.append(f"the exact point, of which the values are roundings: ({shown}{more})")
    if found.missed is not None and math.isfinite(found.missed):
        notes.append(f"a noisy count of the private rows that it misses: {number(max(found.missed, 0.0))}")
    return Outcome("optimal", x, None, float(model.form.c0 @ x + model.form.d0), notes=tuple(notes))


def _margin(given: Options) -> Any:
    feasibility: Any = given.feasibility
    return feasibility.margin


def _refuse_trades(options: Options, given: Options) -> None:
    names = [] if options.goal in ("auto", "target") else [f"goal={type(given.goal).__name__}"]
    names += ["vertices"] if options.vertices is not None else []
    if names:
        raise SpecificationError(
            f"{names[0]} given with feasibility=Exact()",
            why="it is for mechanisms that satisfy constraints nearly",
            remedy="leave it out, or another feasibility",
        )
