"""``satisfy="exact"``: private inequalities that are to hold exactly, all but a few, from a model to an outcome."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

from dpmodel._text import number
from dpmodel.classify.private_lp import PrivateLP
from dpmodel.compile.affine_map import Floats
from dpmodel.errors import InfeasibleError, SpecificationError, UnsupportedModelError
from dpmodel.mechanisms.linalg.protocol import Found
from dpmodel.mechanisms.linalg.systems import PrivateInequalities
from dpmodel.mechanisms.lp.exact_rows import exact_inequalities, public_body, why_not_inequalities
from dpmodel.mechanisms.mechanism import NOTHING_FOUND, Outcome, Request
from dpmodel.plan.asked import Asked

# Exact answers are also told as fractions in a note, up to this many variables.
_MOST_TOLD = 20


def wants_exact(satisfy: Any, margin: Any) -> bool:
    """Whether exact satisfaction was asked for; SpecificationError for anything else than the two words."""
    if satisfy not in ("nearly", "exact"):
        shown = repr(satisfy) if isinstance(satisfy, str) else type(satisfy).__name__
        raise SpecificationError(
            f"satisfy={shown}",
            why="private constraints are satisfied nearly (to within alpha), or exactly and all but a few",
            remedy="satisfy='nearly' or satisfy='exact'",
        )
    if margin is not None and satisfy != "exact":
        raise SpecificationError(
            f"margin={margin if isinstance(margin, int | float) else type(margin).__name__} without satisfy='exact'",
            why="a margin is a promise for mechanisms that satisfy inequalities exactly",
            remedy="satisfy='exact', or leave it out",
        )
    return bool(satisfy == "exact")


def has_private_inequalities(model: PrivateLP) -> bool:
    """Whether some private row is no equality."""
    return bool((model.form.private_rows & ~model.affine.equalities()).any())


def exact_system(model: PrivateLP, request: Request, margin: Any, asked: Asked) -> PrivateInequalities:
    """The private inequalities beside the public constraints (and the target, if one is given).

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
            "satisfy='exact' cannot serve this problem",
            why=verdict.reason,
            remedy="one inequality per record, or satisfy='nearly'",
        )
    _refuse_trades(request, asked)
    if margin is not None:
        margin = checked_margin(margin)
    body = public_body(model)
    if request.target is not None:
        if model.form.offset.nnz:
            raise SpecificationError(
                "a target for an objective with a private constant term",
                why="it cannot become a public constraint",
                remedy="leave the constant out of the objective and the target",
            )
        body = body.with_row(model.form.c0, request.target - model.form.d0)
    elif np.any(model.form.c0):
        raise SpecificationError(
            "satisfy='exact' with an objective",
            why="its mechanisms find a point that satisfies nearly all rows; they do not optimise",
            remedy="target=the value to reach, which becomes a public constraint, or Minimize(0)",
        )
    if body.empty:
        raise InfeasibleError(
            "no public point satisfies the public constraints",
            why="found without the private rows; nothing was read or spent",
            remedy="fewer or wider public constraints, or another target",
        )
    return exact_inequalities(model, body, margin)


def checked_margin(margin: Any, where: str = "", remedy: str = "margin=0.05, a public number in (0, 1]") -> float:
    """A margin in (0, 1], or SpecificationError; ``where`` stands before its words."""
    good = isinstance(margin, numbers.Real) and not isinstance(margin, bool)
    if not good or not 0 < margin <= 1:
        raise SpecificationError(
            f"{where}margin is not a number in (0, 1]",
            why="the margin is a cosine: by how much some unit vector satisfies all rows, scaled to unit norm",
            remedy=remedy,
        )
    return float(margin)


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


def _refuse_trades(request: Request, asked: Asked) -> None:
    given = [name for name in ("slack_rows", "alpha", "penalty") if getattr(asked, name) is not None]
    given += ["goal"] if asked.goal not in ("auto", "target") else []
    given += ["vertices"] if request.vertices is not None else []
    given += ["feasibility"] if request.feasibility != "relaxed" else []
    if given:
        raise SpecificationError(
            f"{given[0]} given with satisfy='exact'",
            why="it is for mechanisms that satisfy constraints nearly",
            remedy="leave it out, or satisfy='nearly'",
        )
