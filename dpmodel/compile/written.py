"""A CVXPY model in the notation of mathematics: as text for messages and terminals, as HTML for screens, where private
parameters are underlined.

An atom without a rule of its own is written as a function with its name; its arguments are written as all others are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import cvxpy as cp
import numpy as np

from dpmodel.marks.private import Private
from dpmodel.text import cell_text, escaped, number, shortened, wrapped

# How tightly a piece binds: sums, products, powers and transposes, single symbols.
_SUM, _PRODUCT, _POWER, _WHOLE = range(4)
_TERMS = 6  # of a sum or a list; more are cut in the middle
_DEEPEST = 10  # levels of an expression that are written out
_Piece = tuple[str, int]

_SAME = ("Promote", "broadcast_to", "reshape", "vec", "real", "conj", "squeeze", "psd_wrap", "nonneg_wrap")
_RELATIONS = {
    "Inequality": "{0} <= {1}",
    "Equality": "{0} == {1}",
    "Zero": "{0} == 0",
    "NonNeg": "{0} >= 0",
    "NonPos": "{0} <= 0",
    "PSD": "{0} >> 0",
    "SOC": "norm2({1}) <= {0}",
}
_NAMED = {"QuadForm": "quad_form", "norm1": "norm1", "norm_inf": "norm_inf"}  # atoms with other names as functions


def written(node: Any) -> str:
    """An expression or constraint; tables of public numbers are ``[...]``."""
    if not isinstance(node, cp.Constraint):
        return _piece(node, 0)[0]
    args = [_piece(argument, 0)[0] for argument in node.args]
    pattern = _RELATIONS.get(type(node).__name__)
    return _call(type(node).__name__, args) if pattern is None else pattern.format(*args)


def passed_over(node: Any) -> bool:
    """Whether an atom is written as its argument is: it changes the shape alone."""
    return type(node).__name__ in _SAME


def _piece(node: Any, depth: int) -> _Piece:
    kind = type(node).__name__.removesuffix("Approx")
    if isinstance(node, cp.Constant):
        return _constant(node)
    if not node.args:
        name = str(node.name()) if hasattr(node, "name") else kind
        return " ".join(cell_text(name).split()), _WHOLE
    if depth > _DEEPEST:
        return "...", _WHOLE
    rule = _RULES.get(kind)
    if passed_over(node):
        return _piece(node.args[0], depth + 1)
    if rule is not None:
        return rule(node, depth + 1)
    if kind == "index" or kind == "special_index":
        return _indexed(_tight(node.args[0], _WHOLE, depth + 1), node), _WHOLE
    args = [_piece(argument, depth + 1)[0] for argument in node.args]
    return _call(_NAMED.get(kind, kind), args), _WHOLE


def _few(args: Sequence[str]) -> list[str]:
    """Of many, the first and the last."""
    return list(args) if len(args) <= _TERMS else [*args[: _TERMS - 2], "...", args[-1]]


def _call(kind: str, args: Sequence[str]) -> str:
    return f"{kind[0].lower()}{kind[1:]}({', '.join(_few(args))})"


def _constant(node: Any) -> _Piece:
    if getattr(node, "_name", None):
        return str(node._name), _WHOLE
    if node.size != 1:
        return "[...]", _WHOLE  # its numbers say little, and may be somebody's data by mistake
    value = node.value.item() if not hasattr(node.value, "toarray") else node.value.toarray().item()
    text = number(value) if isinstance(value, int | float) else str(value)
    return text, _SUM if text.startswith("-") else _WHOLE


def _tight(node: Any, binds: int, depth: int) -> str:
    """In brackets where it binds less tightly than ``binds``."""
    text, own = _piece(node, depth)
    return text if own >= binds else f"({text})"


def _sum(node: Any, depth: int) -> _Piece:
    kept = [term for term in node.args if not (term.is_constant() and term.is_zero())] or node.args[:1]
    terms = kept if len(kept) <= _TERMS else [*kept[: _TERMS - 2], kept[-1]]
    out = ""
    for place, term in enumerate(terms):
        if len(terms) < len(kept) and place == len(terms) - 1:
            out += " + ..."
        text, _ = _piece(term, depth)
        out += (f" - {text[1:]}" if text.startswith("-") else f" + {text}") if out else text
    return out, _SUM


def _product(times: str) -> Callable[[Any, int], _Piece]:
    return lambda node, depth: (times.join(_tight(argument, _PRODUCT, depth) for argument in node.args), _PRODUCT)


def _quotient(node: Any, depth: int) -> _Piece:
    return f"{_tight(node.args[0], _PRODUCT, depth)} / {_tight(node.args[1], _POWER, depth)}", _PRODUCT


def _added_up(node: Any, depth: int) -> _Piece:
    return f"sum({_piece(node.args[0], depth)[0]}{'' if node.axis is None else f', axis={node.axis}'})", _WHOLE


def _powered(node: Any, depth: int) -> _Piece:
    power = node.p.value if hasattr(node.p, "value") else node.p
    return f"{_tight(node.args[0], _WHOLE, depth)}**{number(float(power)) if power is not None else 'p'}", _POWER


def _sum_of_squares(node: Any, depth: int) -> _Piece:
    """``sum_squares(x)`` is ``quad_over_lin(x, 1)``."""
    above, below = node.args[0], node.args[1]
    axis = getattr(node, "axis", None)
    inner = _piece(above, depth)[0] + ("" if axis is None else f", axis={axis}")
    if isinstance(below, cp.Constant) and below.size == 1 and below.value.item() == 1:
        return f"sum_squares({inner})", _WHOLE
    return f"quad_over_lin({inner}, {_piece(below, depth)[0]})", _WHOLE


def _norm(node: Any, depth: int) -> _Piece:
    return f"norm{number(float(node.p))}({_piece(node.args[0], depth)[0]})", _WHOLE


def _stacked(node: Any, depth: int) -> _Piece:
    return _call(type(node).__name__.lower(), [_piece(argument, depth)[0] for argument in node.args]), _WHOLE


def _indexed(inner: str, node: Any) -> str:
    key = getattr(node, "key", ())
    if type(node).__name__ == "special_index" or not isinstance(key, tuple):
        return f"{inner}[...]"
    return f"{inner}[{', '.join(_slice(piece, size) for piece, size in zip(key, node.args[0].shape, strict=False))}]"


def _slice(piece: Any, size: int) -> str:
    if not isinstance(piece, slice):
        return str(piece)
    start, stop, step = piece.start or 0, size if piece.stop is None else piece.stop, piece.step or 1
    if step == 1 and stop == start + 1:
        return str(start)
    ends = f"{start or ''}:{'' if stop >= size else stop}"
    return ends if step == 1 else f"{ends}:{step}"


_RULES: dict[str, Callable[[Any, int], _Piece]] = {
    "AddExpression": _sum,
    "NegExpression": lambda node, depth: (f"-{_tight(node.args[0], _PRODUCT, depth)}", _SUM),
    "MulExpression": _product(" @ "),
    "multiply": _product(" * "),
    "DivExpression": _quotient,
    "Sum": _added_up,
    "power": _powered,
    "Power": _powered,
    "quad_over_lin": _sum_of_squares,
    "Pnorm": _norm,
    "Hstack": _stacked,
    "Vstack": _stacked,
    "Concatenate": _stacked,
    "transpose": lambda node, depth: (f"{_tight(node.args[0], _POWER, depth)}.T", _POWER),
}


# ---------------------------------------------------------------- a whole model
_MOST = 24  # constraints that are written out
_IN_WORDS = {
    "nonneg": ">= 0", "nonpos": "<= 0", "pos": "> 0", "neg": "< 0", "PSD": ">> 0", "NSD": "<< 0",
    "boolean": "in {0, 1}", "integer": "is integer",
}  # fmt: skip


def model_line(problem: Any) -> str:
    """A line on the problem."""
    private = ", ".join(p.name() for p in problem.parameters() if isinstance(p, Private))
    aim = "minimises" if isinstance(problem.objective, cp.Minimize) else "maximises"
    rows = f"{len(problem.constraints)} constraint{'s' * (len(problem.constraints) != 1)}"
    return f"<Problem: {aim} under {rows}; private: {shortened(private) or 'nothing'}>"


def model_text(problem: cp.Problem) -> str:
    """The objective, then one line per constraint with its label, then what variables are declared to be."""
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
    return rows + [("", told, "") for told in _declared(problem)]


def _labelled(problem: cp.Problem) -> list[tuple[str, Any]]:
    shown = problem.constraints[:_MOST]
    return [(str(c.label) if getattr(c, "label", None) else f"constraint {k}", c) for k, c in enumerate(shown)]


def _declared(problem: cp.Problem) -> Iterator[str]:
    """What variables are declared to be: signs, integers, bounds."""
    for variable in problem.variables()[:_MOST]:
        name = written(variable)
        yield from (f"{name} {sign}" for attribute, sign in _IN_WORDS.items() if variable.attributes.get(attribute))
        ends = [_end(end) for end in variable.attributes.get("bounds") or ()]
        if any(ends):
            yield " <= ".join(piece for piece in (ends[0], name, ends[1]) if piece)


def _end(end: Any) -> str:
    """One end of declared bounds: a number where it is the same for all entries, "" for none."""
    if isinstance(end, cp.Expression):
        return written(end)
    numbers = np.unique(np.asarray(end, dtype=float))
    if not np.isfinite(numbers).any():
        return ""
    return written(cp.Constant(numbers[0]) if numbers.size == 1 else cp.Constant(numbers))


def _marked(text: str, private: set[str]) -> str:
    """``text`` as HTML with private names underlined."""
    if not private:
        return escaped(text)
    names = "|".join(re.escape(name) for name in sorted(private, key=len, reverse=True))
    pieces = re.split(rf"(?<![\w.])({names})(?!\w)", text)
    return "".join(f"<u><b>{escaped(p)}</b></u>" if k % 2 else escaped(p) for k, p in enumerate(pieces))
