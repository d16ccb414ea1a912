"""Checking what a caller asks of mechanisms that leave constraints out or take the objective as a target."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, replace
from typing import Any

from dpmodel._text import number
from dpmodel.classify.private_lp import PrivateLP
from dpmodel.errors import InfeasibleError, SpecificationError
from dpmodel.mechanisms.lp.private_rows import plain_linear, private_rows, public_polyhedron
from dpmodel.mechanisms.mechanism import Goal, Request

_GOALS = ("auto", "target", "search", "penalty")
# A target is reached if it is missed by no more than solvers miss constraints by.
_REACHED = 1e-7


@dataclass(frozen=True)
class Asked:
    """What ``solve`` was given under these names; ``target`` as the user sees it."""

    slack_rows: Any = None
    alpha: Any = None
    goal: Any = "auto"
    target: Any = None
    penalty: Any = None

    def add_to(self, request: Request, model: PrivateLP) -> Request:
        """``request`` with what was asked, checked.

        Raises
        ------
        SpecificationError
            For numbers that are none, slack rows without private constraints or outside 1 .. their count, alpha not
            positive or beyond the width, a goal that is unknown or lacks its target, a penalty that is not positive.
        InfeasibleError
            When no public point reaches the target.
        """
        if self.goal not in _GOALS:
            raise SpecificationError(
                f"goal={self.goal!r}" if isinstance(self.goal, str) else f"goal={type(self.goal).__name__}",
                why="it says how mechanisms that find nearly feasible points treat the objective",
                remedy=", ".join(repr(goal) for goal in _GOALS),
            )
        goal: Goal = self.goal
        alpha, target = _number("alpha", self.alpha), _number("target", self.target)
        penalty = _number("penalty", self.penalty)
        for name, value in (("alpha", alpha), ("penalty", penalty)):
            if value is not None and value <= 0:
                raise SpecificationError(
                    f"{name}={number(value)}", why=f"{name} is positive", remedy=f"{name}=0.1, say"
                )
        if goal == "target" and target is None:
            raise SpecificationError('goal="target" without target', remedy="target=the objective's value to reach")
        if target is not None and goal not in ("auto", "target"):
            raise SpecificationError(
                f"goal={goal!r} with target={number(target)}",
                why="a search or a penalty finds the objective's value itself",
                remedy="one of the two",
            )
        if penalty is not None and goal not in ("auto", "penalty"):
            raise SpecificationError(f"goal={goal!r} with penalty={number(penalty)}", remedy='goal="penalty"')
        if penalty is not None:
            goal = "penalty"
        slack = self._checked_slack(model, alpha)
        minimised = target if target is None or not model.affine.maximize else -target
        if minimised is not None:
            _require_reachable(model, minimised)
        return replace(request, slack_rows=slack, violation=alpha, goal=goal, target=minimised, penalty=penalty)

    def _checked_slack(self, model: PrivateLP, alpha: float | None) -> int | None:
        slack = self.slack_rows
        if slack is None and alpha is None:
            return None
        if not {"scalar", "matrix"} & set(model.private_parts()):
            what = "slack_rows" if slack is not None else "alpha"
            raise SpecificationError(
                f"{what} given, but no constraint is private",
                why="public constraints always hold",
                remedy="leave it out",
            )
        fits = plain_linear(model) is None and not public_polyhedron(model).empty
        rows = private_rows(model) if fits else None
        if slack is not None:
            if isinstance(slack, bool) or not isinstance(slack, numbers.Integral):
                raise SpecificationError(
                    f"slack_rows={slack!r}" if isinstance(slack, str | float) else f"slack_rows={type(slack).__name__}",
                    why="it counts private constraints that may be left out",
                    remedy="a whole number",
                )
            count = rows.count if rows is not None else int(model.form.private_rows.sum())
            if not 1 <= int(slack) <= count:
                raise SpecificationError(
                    f"slack_rows={int(slack)}",
                    why=f"there are {count} private constraints, and at least one of them must be allowed to fail",
                    remedy=f"1 <= slack_rows <= {count}",
                )
        if alpha is not None and rows is not None:
            width = rows.residual_range(public_polyhedron(model))[1]
            if alpha >= width * (1 - 1e-5):  # widths from solvers are widened by 1e-6
                raise SpecificationError(
                    f"alpha={number(alpha)} is beyond the width {number(width)}",
                    why="no public point violates a private constraint by more than the width: it asks for nothing",
                    remedy=f"0 < alpha < {number(width)}",
                )
        return None if slack is None else int(slack)


_LEAST_CLIP, _MOST_CLIP = 1e-100, 1e100


def _number(name: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        if not isinstance(value, bool) and isinstance(value, numbers.Real) and math.isfinite(float(value)):
            return float(value)
    except OverflowError:  # whole numbers beyond 1e308
        pass
    shown = repr(value) if isinstance(value, str | float | bool) else type(value).__name__
    raise SpecificationError(f"{name}={shown}", why=f"{name} is a finite number", remedy=f"{name}=0.1, say")


def _require_reachable(model: PrivateLP, target: float) -> None:
    """``target`` : in minimisation form. Nothing to check when the objective is private or the set is not linear."""
    if "objective" in model.private_parts() or plain_linear(model) is not None:
        return
    body = public_polyhedron(model)
    if body.empty:
        return  # has its own error
    cheapest = body.minimise(model.form.c0)
    if cheapest is None:
        return
    best = float(model.form.c0 @ cheapest) + model.form.d0
    if target < best - _REACHED * (1 + abs(best)):
        sign = -1.0 if model.affine.maximize else 1.0
        raise InfeasibleError(
            f"target={number(sign * target)}: no public point reaches it",
            why=f"the public constraints alone allow an objective of {number(sign * best)} at best",
            remedy=f"a target {'of at most' if model.affine.maximize else 'of at least'} {number(sign * best)}",
        )


def checked_clip(clip: Any) -> float:
    """``clip`` as a positive number, inf for None.

    Raises
    ------
    SpecificationError
        For anything that is not a positive number between 1e-100 and 1e100: noise to hide others cannot be drawn.
    """
    value = _number("clip", clip)
    if value is not None and not _LEAST_CLIP <= value <= _MOST_CLIP:
        why = f"slopes are cut to [-clip, clip], and noise is drawn for sizes from {_LEAST_CLIP:g} to {_MOST_CLIP:g}"
        raise SpecificationError(f"clip={number(value)}", why=why, remedy="clip=1.0, say")
    return math.inf if value is None else value
