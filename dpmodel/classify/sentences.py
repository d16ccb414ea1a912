"""Cell and theorem in one sentence of plain words, with the numbers of this problem in it."""

from __future__ import annotations

import math

from dpmodel.classify.classifier import Cell, Classification
from dpmodel.text import number


def sentences(classification: Classification) -> tuple[str, ...]:
    """One for each parameter and cell; parameters of which the same is to be said share one."""
    return tuple(sentence(cell, names) for names, cell in classification.kinds())


def sentence(cell: Cell, name: str) -> str:
    """What the cell of the parameters ``name`` means for this problem."""
    moves, all_moves = (number(cell.sensitivity.get(norm)) for norm in ("linf", "l1"))
    if cell.part == "objective" and cell.theorem != cell.taxonomy.theorem:  # a regression
        return (
            f"{name}: a record is one term of the objective and moves its gradient by at most {moves} in a coordinate, "
            f"per unit of the loss's derivative; more records make that less, and noise of this size hides any one of "
            f"them ({cell.theorem})."
        )
    if cell.level == "high":
        return f"{name}: {_HIGH[cell.part if cell.relaxed or cell.part != 'row' else 'matrix']} ({cell.theorem})."
    size = f" (in a declared range of {number(cell.size)})" if math.isfinite(cell.size) else ""
    by = f"one record moves {_WHAT[cell.part]} by at most {moves} each{size} and {all_moves} in all"
    if cell.part in ("column", "row", "matrix"):
        by += f", and by {number(cell.sensitivity.get('row_l1'))} within one constraint"
    end = ". At epsilon 1 that noise is as large as the numbers: the answer drowns" if cell.drowns else ""
    return f"{name}: {by}; {_LOW[cell.part]} ({cell.theorem}){end}."


_WHAT = {
    "objective": "costs",
    "scalar": "right-hand sides",
    "row": "coefficients",
    "matrix": "coefficients",
    "column": "coefficients",
}
_LOW = {
    "objective": "noise of this size on the costs hides it and all constraints hold exactly, so what is lost is value, "
    "about that noise times the size of the solution",
    "scalar": "noise of this size on the right-hand sides hides it, so what is lost is that constraints are missed, or "
    "made harder, by about that noise",
    "row": "noise on coefficients is multiplied by the solution, so the smaller the variables are bound to be the "
    "less constraints are missed by",
    "column": "noise on coefficients is multiplied by the solution, and only the columns that a record reaches need it",
}
_LOW["matrix"] = _LOW["row"]
_HIGH = {
    "objective": "one record may put any number into the costs, so a good solution would show what it put there: no "
    "private algorithm finds one",
    "scalar": "one record may put a right-hand side anywhere, so a solution that nearly meets it would show where: no "
    "private algorithm finds one",
    "column": "one record may put any numbers into its column, so a solution that nearly meets the constraints would "
    "show many records: no private algorithm finds one, even if some constraints may be left out",
    "row": "one record owns a constraint and may put any numbers into it, so not all constraints can hold, but all but "
    "a few can",
}
_HIGH["matrix"] = (
    "one record may put any numbers into constraints that cannot all be left out, so a solution that nearly meets them "
    "would show what it put there: no private algorithm finds one"
)
