"""The figure of a release's private rows: released numbers, what the answer has there, and the band of the noise."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from dpmodel._types import Floats, Integers, Mask
from dpmodel.contract import Options
from dpmodel.errors import SpecificationError
from dpmodel.figures import private_rows, require_matplotlib
from dpmodel.programs.answer import design_of
from dpmodel.programs.feasibility import short_rows
from dpmodel.programs.margins import reach_at
from dpmodel.programs.model import Program
from dpmodel.programs.noise_once import rebuilt
from dpmodel.release import Release
from dpmodel.text import number

_NAMED = 24  # rows with their names
_MOST = 1000  # columns that are not the user's, and are looked for


def picture(model: Any, release: Release, beta: float, ax: Any) -> Any:
    """``Release.plot``; ``model`` : of its problem. From released numbers and public facts alone."""
    require_matplotlib("print it")
    private = model.form.private_rows if isinstance(model, Program) else np.zeros(0, dtype=bool)
    if not private.any():
        raise SpecificationError(
            "plot: no constraint is private",
            why="it draws private rows beside the numbers that were released for them",
            remedy="release.plot_values()",
        )
    options = Options(release.measured[0].epsilon, release.measured[0].delta, beta)
    design, numbers = design_of(model, options, release.measured)
    _, b, entries = rebuilt(model, design, numbers)
    _, side, A = model.form.with_noise(None, b, entries)
    x, unknown = _point(model, release)
    rows = np.flatnonzero(private & _linear(model) & (abs(A) @ unknown == 0))
    if not rows.size:
        raise SpecificationError(
            "plot: no private row is linear in what was released",
            why="split expressions and other cones have no number to stand beside",
            remedy="release.plot_values()",
        )
    # As the user wrote it: a number that bounds from below has the other sign in the standard form.
    scalar = model.form.scalar
    weight = np.bincount(scalar.row, weights=scalar.coefficient, minlength=model.affine.rows)[rows]
    equal = model.affine.equalities()[rows]
    below = (np.where(weight == 0, side[rows], weight) < 0) & ~equal
    sign = np.where(below, -1.0, 1.0)
    has, side, reach = sign * (A @ x)[rows], sign * side[rows], reach_at(model, design, x)[rows]
    kinds = [words for words, some in (("less", below), ("more (upper limits)", ~below & ~equal)) if some.any()]
    caption = (
        f"Grey: with probability {number(1 - beta)} every true number lies in its band."
        + f" Where the answer has {' or '.join(kinds)} than the true number, the row is short." * bool(kinds)
    )
    names = _names(model, rows) if rows.size <= _NAMED else []
    title = f"Private rows, as released by {release.mechanism}"
    return private_rows(names, side, has, (side - reach, side + reach), title, caption, ax)


def _linear(model: Program) -> Mask:
    linear = np.zeros(model.affine.rows, dtype=bool)
    for block in model.affine.cones:
        linear[block.rows] = block.kind in ("zero", "nonneg")
    return linear


def _point(model: Program, release: Release) -> tuple[Floats, Mask]:
    """(n,) the released point, and of which columns it is not known. CVXPY writes sums and the like with columns of its
    own: public equalities tell them."""
    x, unknown = np.zeros(model.affine.variables), np.ones(model.affine.variables, dtype=bool)
    for variable in model.problem.variables():
        first = model.affine.variable_columns.get(variable.id)
        if first is not None and variable.name() in release.variables:
            place = slice(first, first + variable.size)
            x[place], unknown[place] = release.variables[variable.name()].ravel(order="F"), False
    program = model.public.program
    rows = np.flatnonzero(program.keep & model.affine.equalities())
    own = np.flatnonzero(unknown)
    if rows.size and 0 < own.size <= _MOST:
        public = program.A.tocsr()[rows]
        inverse = np.linalg.pinv(public[:, own].toarray())
        x[own] = inverse @ (program.b[rows] - public @ x)
        unknown[own] = np.abs(np.diag(inverse @ public[:, own]) - 1) > 1e-9
    return x, unknown


def _names(model: Program, rows: Integers) -> list[str]:
    """Of the rows, in their order; without the text of constraints that have no label."""
    turn = np.zeros(model.affine.rows)
    turn[rows] = np.arange(rows.size, 0, -1)
    return [re.sub(r"^(constraint \d+) \(.*\)", r"\1", name) for name, _ in short_rows(model.affine, turn)]
