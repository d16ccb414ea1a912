"""A whole model as mathematics: LaTeX for notebooks and papers, HTML for screens; private parameters are underlined."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import cvxpy as cp
import numpy as np

from dpmodel.compile.written import LATEX, TEXT, Notation, latex_words, written
from dpmodel.marks.private import Private
from dpmodel.text import escaped, wrapped

_MOST = 24  # constraints that are written out
_LONGEST = 1200  # characters of one line of LaTeX
_SETS = {
    "nonneg": r"\ge 0", "nonpos": r"\le 0", "pos": r"> 0", "neg": r"< 0", "PSD": r"\succeq 0", "NSD": r"\preceq 0",
    "boolean": r"\in \{0, 1\}", "integer": r"\in \mathbb{Z}",
}  # fmt: skip
_IN_WORDS = {
    "nonneg": ">= 0", "nonpos": "<= 0", "pos": "> 0", "neg": "< 0", "PSD": ">> 0", "NSD": "<< 0",
    "boolean": "in {0, 1}", "integer": "is integer",
}  # fmt: skip


def model_latex(problem: cp.Problem) -> str:
    """The objective, then one line per constraint with its label, then what variables are declared to be."""
    aim = r"\text{minimise}" if isinstance(problem.objective, cp.Minimize) else r"\text{maximise}"
    lines = [rf"{aim} \quad & {_within(written(problem.objective.expr, LATEX))} & &"]
    for place, (label, constraint) in enumerate(_labelled(problem)):
        start = "" if place else r"\text{subject to} \quad"
        lines.append(rf"{start} & {_within(written(constraint, LATEX))} & & {latex_words(label)}")
    left = len(problem.constraints) - _MOST
    lines += [rf"& \dots & & \text{{{left} more}}"] if left > 0 else []
    lines += [rf"& {told} & &" for told in _declared(problem, _SETS, LATEX)]
    body = " \\\\\n".join(lines)
    return f"$$\\begin{{aligned}}\n{body}\n\\end{{aligned}}$$"


def model_text(problem: cp.Problem) -> str:
    """The same for a terminal."""
    lines = []
    for start, text, label in _rows(problem):
        told = f"{text}   [{label}]" if label else text
        lines.append(f"{start:11}{wrapped(told, ' ' * 11)[11:]}")
    return "\n".join(lines)


def model_html(problem: cp.Problem) -> str:
    """The same as a table of plain text, which needs no script to be read."""
    private = {p.name() for p in problem.parameters() if isinstance(p, Private)}
    cell = '<td style="text-align:left;padding:1px 10px">'
    told = (
        f"{cell}{escaped(start)}</td>{cell}<code>{_marked(text, private)}</code></td>{cell}{escaped(label)}</td>"
        for start, text, label in _rows(problem)
    )
    return f"<table><tbody>{''.join(f'<tr>{row}</tr>' for row in told)}</tbody></table>"


def _rows(problem: cp.Problem) -> list[tuple[str, str, str]]:
    """What a line is, its mathematics in plain characters, its label."""
    aim = "minimise" if isinstance(problem.objective, cp.Minimize) else "maximise"
    rows = [(aim, written(problem.objective.expr), "")]
    for place, (label, constraint) in enumerate(_labelled(problem)):
        rows.append(("" if place else "subject to", written(constraint), label))
    left = len(problem.constraints) - _MOST
    rows += [("", "...", f"{left} more")] if left > 0 else []
    return rows + [("", told, "") for told in _declared(problem, _IN_WORDS, TEXT)]


def _labelled(problem: cp.Problem) -> list[tuple[str, Any]]:
    shown = problem.constraints[:_MOST]
    return [(str(c.label) if getattr(c, "label", None) else f"constraint {k}", c) for k, c in enumerate(shown)]


def _declared(problem: cp.Problem, words: dict[str, str], notation: Notation) -> Iterator[str]:
    """What variables are declared to be: signs, integers, bounds."""
    for variable in problem.variables()[:_MOST]:
        name = written(variable, notation)
        yield from (f"{name} {sign}" for attribute, sign in words.items() if variable.attributes.get(attribute))
        ends = [_end(end, notation) for end in variable.attributes.get("bounds") or ()]
        if any(ends):
            below = r" \le " if notation is LATEX else " <= "
            yield below.join(piece for piece in (ends[0], name, ends[1]) if piece)


def _end(end: Any, notation: Notation) -> str:
    """One end of declared bounds: a number where it is the same for all entries, "" for none."""
    if isinstance(end, cp.Expression):
        return written(end, notation)
    numbers = np.unique(np.asarray(end, dtype=float))
    if not np.isfinite(numbers).any():
        return ""
    return written(cp.Constant(numbers[0]) if numbers.size == 1 else cp.Constant(numbers), notation)


def _within(line: str) -> str:
    return line if len(line) <= _LONGEST else r"\text{(too long to show)}"


def _marked(text: str, private: set[str]) -> str:
    """``text`` as HTML with private names underlined."""
    if not private:
        return escaped(text)
    names = "|".join(re.escape(name) for name in sorted(private, key=len, reverse=True))
    pieces = re.split(rf"(?<![\w.])({names})(?!\w)", text)
    return "".join(f"<u><b>{escaped(p)}</b></u>" if k % 2 else escaped(p) for k, p in enumerate(pieces))
