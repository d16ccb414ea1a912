"""Small random models to practise on: read the CVXPY text, name the cell, its theorem and its verdict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpmodel.errors import SpecificationError
from dpmodel.problem import Problem
from dpmodel.programs.classifier import Cell
from dpmodel.programs.taxonomy import CELLS, LEVELS, PARTS
from dpmodel.text import wrapped

THEOREMS = tuple(dict.fromkeys(cell.theorem for cell in CELLS))
VERDICTS = ("yes", "yes*", "no")

# The private line and the program of each part, by what a record owns; ``$low`` : what is declared of one record.
_MODELS = {
    "objective": (
        'private = dpm.Private(shape={d}, name="p", unit="entry"{low})\n'
        "problem = dpm.Problem(cp.{aim}({sign}private @ x), [A @ x {way} b])\n"
    ),
    "scalar": (
        'private = dpm.Private(shape={m}, name="p", unit="entry"{low})\n'
        "problem = dpm.Problem(cp.{aim}({sign}c @ x), [A @ x {way} private])\n"
    ),
    "row": (
        'private = dpm.Private(shape=({m}, {d}), name="p", unit="row"{low})\n'
        "problem = dpm.Problem(cp.{aim}({sign}c @ x), [private @ x {way} b])\n"
    ),
    "column": (
        'private = dpm.Private(shape=({m}, {d}), name="p", unit="column"{low})\n'
        "problem = dpm.Problem(cp.{aim}({sign}c @ x), [private @ x {way} b])\n"
    ),
    "matrix": (
        'private = dpm.Private(shape=5, name="p", unit="entry"{low})\n'
        "problem = dpm.Problem(cp.{aim}({sign}c @ x), [(cp.sum(private) / 5) * (A @ x) {way} b])\n"
    ),
}
_PUBLIC = """\
import cvxpy as cp
import numpy as np
import dpmodel as dpm

A = cp.Constant(np.ones(({m}, {d})), name="A")
b = cp.Constant(np.ones({m}), name="b")
c = cp.Constant(np.ones({d}), name="c")
x = cp.Variable({d}, bounds=[0, 10], name="x")
"""


@dataclass(frozen=True)
class Question:
    """A model to read, of which one parameter is private: print it, then ``answer(part, level)``.

    ``code`` : the model as CVXPY text. ``problem`` : the same, built.
    """

    problem: Problem
    code: str

    @property
    def cell(self) -> Cell:
        """The right answer."""
        return self.problem.classify().cells[0]

    def answer(self, part: str, level: str, theorem: str = "", verdict: str = "") -> str:
        """Whether that is right, and how the classifier reads the model.

        Parameters
        ----------
        part : "objective", "scalar", "row", "column" or "matrix". ``level`` : "low" or "high".
        theorem : one of ``THEOREMS``, such as "Theorem 37". ``verdict`` : "yes", "yes*" or "no". Empty: not answered.

        Raises
        ------
        SpecificationError
            For other words.
        """
        for name, given, known in (
            ("part", part, PARTS),
            ("level", level, LEVELS),
            ("theorem", theorem, ("", *THEOREMS)),
            ("verdict", verdict, ("", *VERDICTS)),
        ):
            if given not in known:
                raise SpecificationError(f"answer({name}={given!r})", remedy=f"one of {', '.join(filter(None, known))}")
        cell = self.cell
        truth = {"part": cell.part, "level": cell.level, "theorem": cell.theorem, "verdict": cell.taxonomy.verdict}
        said = {"part": part, "level": level, "theorem": theorem, "verdict": verdict}
        wrong = [f"the {name} is {truth[name]}" for name, given in said.items() if given and given != truth[name]]
        first = f"Not quite: {', '.join(wrong)}." if wrong else "Right."
        return f"{first}\n{self.problem.classify()}"

    def __str__(self) -> str:
        asked = "Which part is private, at which level, by which theorem, and can it be solved?"
        said = "question.answer('scalar', 'low', 'Theorem 22', 'yes'), say."
        code = [wrapped(line, "    ")[4:] for line in self.code.splitlines()]
        return "\n".join([*code, "", wrapped(asked), wrapped(said)])


def quiz(rng: int | None = None) -> Question:
    """A random small linear program with one private parameter, as CVXPY text; every cell of Table 1 comes up.

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
    part, level = str(drawn.choice(PARTS)), str(drawn.choice(LEVELS))
    aim, way = [("Minimize", ">="), ("Maximize", "<=")][drawn.integers(2)]
    moves = float(drawn.choice([0.1, 0.5, 1.0]))
    facts = {"m": rows, "d": columns, "aim": aim, "way": way, "sign": ["", "2 * "][drawn.integers(2)]}
    low = f", linf={moves:g}, bounds=[0, 9]" if level == "low" else ""
    code = (_PUBLIC + _MODELS[part]).format(low=low, **facts)
    scope: dict[str, Problem] = {}
    exec(code, scope)  # the text above, and nothing else
    return Question(scope["problem"], code)
