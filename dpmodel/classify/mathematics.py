"""The cells of a problem as mathematics: the standard form with what is private underlined, and how far one record
moves it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpmodel.compile.written import latex_number, latex_words
from dpmodel.text import number

if TYPE_CHECKING:
    from dpmodel.classify.classifier import Cell

_LETTER = {"objective": "c", "scalar": "b", "row": "A", "column": "A", "matrix": "A"}
_NORM = {"l1": "1", "l2": "2", "linf": r"\infty"}
_MOST = 8  # parameters, each with a line


def cells_latex(cells: Sequence[Cell], words: str) -> str:
    """The objective is ``c'x`` in a program, ``f(x)`` in other families; ``words`` : of a problem in no cell."""
    if not cells:
        return rf"$${latex_words(words)}$$"
    program = all(cell.theorem == cell.taxonomy.theorem for cell in cells if cell.part == "objective")
    private = {_LETTER[cell.part] for cell in cells}
    # A row of the model is a row of (A, b).
    private |= {"b"} if any(cell.part == "row" and "row of A" in cell.reason for cell in cells) else set()

    def told(letter: str) -> str:
        return rf"\underline{{{letter}}}" if letter in private else letter

    objective = (
        rf"{told('c')}^{{\top}} x" if program else rf"{'f' if 'c' not in private else chr(92) + 'underline{f}'}(x)"
    )
    rows = rf"{told('A')} x \le {told('b')}"
    lines = [rf"\min_x \quad & {objective} \quad \text{{subject to}} \quad {rows}"]
    for cell in cells[:_MOST]:
        letter = _LETTER[cell.part] if program or cell.part != "objective" else r"\nabla f"
        lines.append(rf"{latex_words(cell.parameter)}: \quad & {_moves(cell, letter)}")
    lines += [rf"& \text{{and {len(cells) - _MOST} more}}"] if len(cells) > _MOST else []
    return "$$\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}$$"


def _moves(cell: Cell, letter: str) -> str:
    place = rf"\text{{{cell.part}, {cell.level}; }}"
    if cell.level == "high":
        return rf"{place} \Delta {letter} \text{{ arbitrary}}"
    norms = [
        rf"\lVert \Delta {letter} \rVert_{{{_NORM[name]}}} \le {latex_number(number(value))}"
        for name, value in cell.sensitivity.items()
        if name in _NORM and math.isfinite(value)
    ]
    return rf"{place} {', '.join(norms)}"
