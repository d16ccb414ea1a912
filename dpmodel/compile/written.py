"""A CVXPY model in the notation of mathematics: as text for messages and terminals, as LaTeX for notebooks and papers,
as HTML for screens; private parameters are underlined.

An atom without a rule of its own is written as a function with its name; its arguments are written as all others are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Notation:
    """How pieces are put together. ``named`` : formats of atoms by class name, ``{}`` for all arguments or ``{0}`` for
    one, with how tightly the result binds; ``symbol`` : a name, and whether it is private."""

    named: Mapping[str, tuple[str, int]]
    symbol: Callable[[str, bool], str]
    numbers: Callable[[tuple[int, ...]], str]  # a table of public numbers, told by its shape
    function: Callable[[str], str]
    dots: str
    times: str
    matrix_times: str
    minus: str
    relations: Mapping[str, str]
    brackets: tuple[str, str]


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
_SIGNS = {"<=": r"\le", "==": "=", ">=": r"\ge", ">>": r"\succeq"}
_TEXT_ATOMS = {
    "transpose": ("{0}.T", _POWER),
    "QuadForm": ("quad_form({})", _WHOLE),
    "norm1": ("norm1({0})", _WHOLE),
    "norm_inf": ("norm_inf({0})", _WHOLE),
}
_LATEX_ATOMS = {
    "transpose": (r"{0}^{{\top}}", _POWER),
    "QuadForm": (r"\operatorname{{quad\_form}}\left({}\right)", _WHOLE),
    "norm1": (r"\left\lVert {0} \right\rVert_1", _WHOLE),
    "norm_inf": (r"\left\lVert {0} \right\rVert_\infty", _WHOLE),
    "abs": (r"\left\lvert {0} \right\rvert", _WHOLE),
    "exp": (r"\exp\left({0}\right)", _WHOLE),
    "log": (r"\log\left({0}\right)", _WHOLE),
    "pos": (r"\left({0}\right)_{{+}}", _WHOLE),
    "neg": (r"\left({0}\right)_{{-}}", _WHOLE),
    "Trace": (r"\operatorname{{tr}}\left({0}\right)", _WHOLE),
    "log_det": (r"\log\det\left({0}\right)", _WHOLE),
    "maximum": (r"\max\left({}\right)", _WHOLE),
    "minimum": (r"\min\left({}\right)", _WHOLE),
    "max": (r"\max\left({}\right)", _WHOLE),
    "min": (r"\min\left({}\right)", _WHOLE),
}


def latex_words(text: str) -> str:
    r"""Words in mathematics: ``\text{}``, and between two of them what commands are made of (renderers differ in what
    they read inside ``\text{}``), what old fonts show as other signs there, and what HTML takes for a tag."""
    pieces = re.split(r"([\\{}$&#%_^~<>|])", cell_text(text).replace("\n", " "))
    return "".join(_SIGN.get(p, rf"\text{{{p}}}") for p in pieces if p)


_SIGN = {c: f"\\{c}" for c in "{}$&#%_"} | {"\\": r"\backslash ", "^": r"\wedge ", "~": r"\sim "}
_SIGN |= {"<": " < ", ">": " > ", "|": r"\vert "}


def _latex_symbol(name: str, private: bool) -> str:
    plain = name if len(name) == 1 and name.isascii() and name.isalpha() else latex_words(name)
    if not re.fullmatch(r"\w|\\text\{[^}]*\}", plain):
        plain = f"{{{plain}}}"  # one piece, or an index would be of its last one alone
    return rf"\underline{{{plain}}}" if private else plain


def _shape(shape: tuple[int, ...], times: str) -> str:
    return times.join(map(str, shape)) or "1"


def _in_latex(relation: str) -> str:
    relation = relation.replace("norm2({1})", r"\left\lVert {1} \right\rVert_2")
    return re.sub("<=|>=|==|>>", lambda found: _SIGNS[found[0]], relation)


TEXT = Notation(
    _TEXT_ATOMS, lambda name, _: name, lambda _: "[...]", str, "...", " * ", " @ ", "-",
    _RELATIONS, ("(", ")"),
)  # fmt: skip
LATEX = Notation(
    _LATEX_ATOMS,
    _latex_symbol,
    lambda shape: rf"\left[{_shape(shape, chr(92) + 'times ')}\right]",
    latex_words,
    r"\dots",
    r" \circ ",
    r"\, ",
    "-",
    {kind: _in_latex(text) for kind, text in _RELATIONS.items()},
    (r"\left(", r"\right)"),
)  # fmt: skip


def written(node: Any, notation: Notation = TEXT) -> str:
    """An expression or constraint; tables of public numbers are told by their shape (text: ``[...]``)."""
    if isinstance(node, cp.Constraint):
        return _constraint(node, notation)
    return _piece(node, notation, 0)[0]


def passed_over(node: Any) -> bool:
    """Whether an atom is written as its argument is: it changes the shape alone."""
    return type(node).__name__ in _SAME


def _constraint(node: Any, notation: Notation) -> str:
    args = [_piece(argument, notation, 0)[0] for argument in node.args]
    pattern = notation.relations.get(type(node).__name__)
    if pattern is None or pattern.count("{") // 2 > len(args) > 1:
        return _call(type(node).__name__, args, notation)
    return pattern.format(*args)


def _piece(node: Any, notation: Notation, depth: int) -> _Piece:
    kind = type(node).__name__.removesuffix("Approx")
    if isinstance(node, cp.Constant):
        return _constant(node, notation)
    if not node.args:
        name = str(node.name()) if hasattr(node, "name") else kind
        return notation.symbol(" ".join(cell_text(name).split()), isinstance(node, Private)), _WHOLE
    if depth > _DEEPEST:
        return notation.dots, _WHOLE
    rule = _RULES.get(kind)
    if passed_over(node):
        return _piece(node.args[0], notation, depth + 1)
    if rule is not None:
        return rule(node, notation, depth + 1)
    if kind == "index" or kind == "special_index":
        inner = _tight(node.args[0], _WHOLE, notation, depth + 1)
        return _indexed(inner, node, notation), _WHOLE
    args = [_piece(argument, notation, depth + 1)[0] for argument in node.args]
    if kind in notation.named:
        pattern, binds = notation.named[kind]
        if pattern.startswith("{0}"):
            args[0] = _tight(node.args[0], binds, notation, depth + 1)
        return pattern.format(*([_listed(args, notation)] if "{}" in pattern else args)), binds
    return _call(kind, args, notation), _WHOLE


def _listed(args: Sequence[str], notation: Notation) -> str:
    """Separated by commas; of many, the first and the last."""
    return ", ".join(_few(args, notation))


def _few(args: Sequence[str], notation: Notation) -> list[str]:
    return list(args) if len(args) <= _TERMS else [*args[: _TERMS - 2], notation.dots, args[-1]]


def _call(kind: str, args: Sequence[str], notation: Notation) -> str:
    left, right = notation.brackets
    return f"{notation.function(kind[0].lower() + kind[1:])}{left}{_listed(args, notation)}{right}"


def latex_number(text: str) -> str:
    """A number as it prints, its power of ten as one."""
    return re.sub(r"e(-?\d+)", r" \\cdot 10^{\1}", text)


def _constant(node: Any, notation: Notation) -> _Piece:
    if getattr(node, "_name", None):
        return notation.symbol(str(node._name), False), _WHOLE
    if node.size != 1:
        return notation.numbers(node.shape), _WHOLE  # its numbers say little, and may be somebody's data by mistake
    value = node.value.item() if not hasattr(node.value, "toarray") else node.value.toarray().item()
    text = number(value) if isinstance(value, int | float) else str(value)
    text = latex_number(text) if notation is LATEX else text
    return text, _SUM if text.startswith("-") else _PRODUCT if "cdot" in text else _WHOLE


def _tight(node: Any, binds: int, notation: Notation, depth: int) -> str:
    """In brackets where it binds less tightly than ``binds``."""
    text, own = _piece(node, notation, depth)
    left, right = notation.brackets
    return text if own >= binds else f"{left}{text}{right}"


def _sum(node: Any, notation: Notation, depth: int) -> _Piece:
    kept = [term for term in node.args if not (term.is_constant() and term.is_zero())] or node.args[:1]
    terms = kept if len(kept) <= _TERMS else [*kept[: _TERMS - 2], kept[-1]]
    out = ""
    for place, term in enumerate(terms):
        if len(terms) < len(kept) and place == len(terms) - 1:
            out += f" + {notation.dots}"
        text, _ = _piece(term, notation, depth)
        negative = text.startswith("-")
        out += (f" - {text[1:]}" if negative else f" + {text}") if out else text
    return out, _SUM


def _negated(node: Any, notation: Notation, depth: int) -> _Piece:
    return f"{notation.minus}{_tight(node.args[0], _PRODUCT, notation, depth)}", _SUM


def _product(sign: Callable[[Notation], str]) -> Callable[[Any, Notation, int], _Piece]:
    def rule(node: Any, notation: Notation, depth: int) -> _Piece:
        factors = [_tight(argument, _PRODUCT, notation, depth) for argument in node.args]
        times = sign(notation)
        if notation is LATEX and any(_number(argument) for argument in node.args):
            times = r"\, "
        return times.join(factors), _PRODUCT

    return rule


def _number(node: Any) -> bool:
    """A single number, or one that stands for many."""
    while passed_over(node):
        node = node.args[0]
    return bool(node.size == 1)


def _quotient(node: Any, notation: Notation, depth: int) -> _Piece:
    if notation is LATEX:
        above, below = (_piece(argument, notation, depth)[0] for argument in node.args)
        return rf"\frac{{{above}}}{{{below}}}", _PRODUCT
    return (
        f"{_tight(node.args[0], _PRODUCT, notation, depth)} / {_tight(node.args[1], _POWER, notation, depth)}",
        _PRODUCT,
    )


def _added_up(node: Any, notation: Notation, depth: int) -> _Piece:
    axis = node.axis
    if notation is LATEX:
        under = "" if axis is None else rf"_{{\text{{axis {axis}}}}}"
        return rf"\sum{under} {_tight(node.args[0], _PRODUCT, notation, depth)}", _PRODUCT
    inner = _piece(node.args[0], notation, depth)[0]
    return f"sum({inner}{'' if axis is None else f', axis={axis}'})", _WHOLE


def _powered(node: Any, notation: Notation, depth: int) -> _Piece:
    power = node.p.value if hasattr(node.p, "value") else node.p
    inner = _tight(node.args[0], _WHOLE, notation, depth)
    told = number(float(power)) if power is not None else "p"
    return (f"{inner}^{{{told}}}" if notation is LATEX else f"{inner}**{told}"), _POWER


def _sum_of_squares(node: Any, notation: Notation, depth: int) -> _Piece:
    """``sum_squares(x)`` is ``quad_over_lin(x, 1)``."""
    above, below = node.args[0], node.args[1]
    one = isinstance(below, cp.Constant) and below.size == 1 and below.value.item() == 1
    axis = getattr(node, "axis", None)
    inner = _piece(above, notation, depth)[0] + ("" if axis is None or notation is LATEX else f", axis={axis}")
    if one:
        return (
            (rf"\left\lVert {inner} \right\rVert_2^2", _POWER)
            if notation is LATEX
            else (f"sum_squares({inner})", _WHOLE)
        )
    under = _piece(below, notation, depth)[0]
    if notation is LATEX:
        return rf"\frac{{\left\lVert {inner} \right\rVert_2^2}}{{{under}}}", _PRODUCT
    return f"quad_over_lin({inner}, {under})", _WHOLE


def _norm(node: Any, notation: Notation, depth: int) -> _Piece:
    inner, order = _piece(node.args[0], notation, depth)[0], number(float(node.p))
    if notation is LATEX:
        return rf"\left\lVert {inner} \right\rVert_{{{order}}}", _WHOLE
    return f"norm{order}({inner})", _WHOLE


def _stacked(node: Any, notation: Notation, depth: int) -> _Piece:
    args = [_piece(argument, notation, depth)[0] for argument in node.args]
    if notation is LATEX:
        return rf"\left[{_listed(args, notation)}\right]", _WHOLE
    return f"{type(node).__name__.lower()}({_listed(args, notation)})", _WHOLE


def _indexed(inner: str, node: Any, notation: Notation) -> str:
    key = getattr(node, "key", ())
    if type(node).__name__ == "special_index" or not isinstance(key, tuple):
        told = notation.dots
    else:
        told = ", ".join(_slice(piece, size) for piece, size in zip(key, node.args[0].shape, strict=False))
    return f"{inner}_{{{told}}}" if notation is LATEX else f"{inner}[{told}]"


def _slice(piece: Any, size: int) -> str:
    if not isinstance(piece, slice):
        return str(piece)
    start, stop, step = piece.start or 0, size if piece.stop is None else piece.stop, piece.step or 1
    if step == 1 and stop == start + 1:
        return str(start)
    ends = f"{start or ''}:{'' if stop >= size else stop}"
    return ends if step == 1 else f"{ends}:{step}"


_RULES: dict[str, Callable[[Any, Notation, int], _Piece]] = {
    "AddExpression": _sum,
    "NegExpression": _negated,
    "MulExpression": _product(lambda notation: notation.matrix_times),
    "multiply": _product(lambda notation: notation.times),
    "DivExpression": _quotient,
    "Sum": _added_up,
    "power": _powered,
    "Power": _powered,
    "quad_over_lin": _sum_of_squares,
    "Pnorm": _norm,
    "Hstack": _stacked,
    "Vstack": _stacked,
    "Concatenate": _stacked,
}


# ---------------------------------------------------------------- a whole model
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


def model_line(problem: Any) -> str:
    """A line on the problem."""
    private = ", ".join(p.name() for p in problem.parameters() if isinstance(p, Private))
    aim = "minimises" if isinstance(problem.objective, cp.Minimize) else "maximises"
    rows = f"{len(problem.constraints)} constraint{'s' * (len(problem.constraints) != 1)}"
    return f"<Problem: {aim} under {rows}; private: {shortened(private) or 'nothing'}>"


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
