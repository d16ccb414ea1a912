"""Small random models to practise on: name the cell of Table 1, then see how the classifier reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np

from dpmodel.annotate import Private
from dpmodel.classify.classifier import Cell
from dpmodel.classify.taxonomy import LEVELS, PARTS
from dpmodel.errors import SpecificationError
from dpmodel.problem import Problem
from dpmodel.text import wrapped

_OWNS = {
    "objective": "the costs c; a record owns one cost",
    "scalar": "the right-hand sides b; a record owns one of them",
    "row": "the rows of A; a record owns one row",
    "column": "the columns of A; a record owns one column",
}


@dataclass(frozen=True)
class Question:
    """A model of which one parameter is private: print it, then ``answer(part, level)``. ``problem`` : the model."""

    problem: Problem
    words: str

    @property
    def cell(self) -> Cell:
        """The right answer."""
        return self.problem.classify().cells[0]

    def answer(self, part: str, level: str) -> str:
        """Whether that is the cell, and how the classifier reads the model.

        Parameters
        ----------
        part : "objective", "scalar", "row", "column" or "matrix". ``level`` : "low" or "high".

        Raises
        ------
        SpecificationError
            For other words.
        """
        if part not in PARTS or level not in LEVELS:
            raise SpecificationError(
                f"answer({part!r}, {level!r})", remedy=f"a part among {', '.join(PARTS)}, and 'low' or 'high'"
            )
        right = (part, level) == (self.cell.part, self.cell.level)
        return f"{'Right.' if right else 'Not quite.'}\n{self.problem.classify()}"

    def __str__(self) -> str:
        asked = "Which part, and which level? question.answer('scalar', 'low'), say."
        return f"{wrapped(self.words)}\n{wrapped(asked)}"


def quiz(rng: int | None = None) -> Question:
    """A random small linear program with one private parameter.

    Parameters
    ----------
    rng : a number for the same question again.

    Examples
    --------
    >>> question = quiz(rng=1)
    >>> question.answer(question.cell.part, question.cell.level).splitlines()[0]
    'Right.'
    """
    drawn = np.random.default_rng(rng)
    rows, columns = int(drawn.integers(2, 5)), int(drawn.integers(2, 5))
    part, bounded = str(drawn.choice(list(_OWNS))), bool(drawn.integers(2))
    reach = float(drawn.choice([0.1, 0.5, 1.0]))
    c, b = drawn.integers(1, 9, columns).astype(float), drawn.integers(1, 9, rows).astype(float)
    A = drawn.integers(0, 5, (rows, columns)).astype(float)
    unit: Any = part if part in ("row", "column") else "entry"
    limits: dict[str, Any] = {"linf": reach} if bounded else {}

    def given(name: str, value: Any, of: tuple[str, ...]) -> Any:
        return Private(value, name=name, unit=unit, **limits) if part in of else cp.Constant(value, name=name)

    cost, sides, matrix = given("c", c, ("objective",)), given("b", b, ("scalar",)), given("A", A, ("row", "column"))
    x = cp.Variable(columns, nonneg=True, name="x")
    problem = Problem(cp.Minimize(cost @ x), [(matrix @ x >= sides).set_label("needs"), x <= 10])
    moves = f"and moves each number of it by at most {reach:g}" if bounded else "and may change it arbitrarily"
    words = (
        f"Minimise c'x subject to A x >= b ({rows} rows), 0 <= x <= 10 ({columns} variables). "
        f"Private: {_OWNS[part]} {moves}."
    )
    return Question(problem, words)
