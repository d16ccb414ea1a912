"""Several outputs: an objective and constraints that separate by the columns of the variables, one problem for each.

``cp.sum_squares(X @ W - Y)`` is the sum over j of ``cp.sum_squares(X @ w_j - Y[:, j])``. The tree is taken apart
without a change of its value: sums over entries become sums over columns, and atoms that act entry by entry, products
from the left and sums over axis 0 are taken column by column, down to fresh variables w_j, the columns of W.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import cvxpy as cp
import numpy as np

from dpmodel._types import Floats
from dpmodel.compile.atoms import exponent, is_number, is_private, kind, rebuilt
from dpmodel.compile.refusals import constraint_label, short
from dpmodel.errors import UnsupportedModelError
from dpmodel.marks.private import Private
from dpmodel.regressions.expressions import summands
from dpmodel.regressions.points import Point, at_a_random_point
from dpmodel.regressions.public import PublicPart

_ENTRYWISE = ("abs", "power", "huber", "logistic", "maximum", "minimum")
# Attributes of variables that speak of each entry by itself.
_OWN = ("nonneg", "nonpos", "pos", "neg", "bounds")
_REMEDY = (
    "penalties and constraints of each column by itself: cp.sum_squares(W), cp.norm1(W), cp.norm(W[:, 0]), W >= 0, "
    "cp.norm1(W, axis=0) <= 1; or one problem for each output with a share of the budget"
)
_AGREE = 1e-9


class _Tied(Exception):
    """The expression does not separate by columns."""


@dataclass(frozen=True)
class Split:
    """``problems`` : one for each output, over variables of its own. ``columns`` : (user's variable, by output the
    fresh variable that stands for its column, or its entry if it is a vector)."""

    problems: tuple[cp.Problem, ...]
    columns: tuple[tuple[cp.Variable, tuple[cp.Variable, ...]], ...]


def split(problem: cp.Problem) -> Split | None:
    """The problems of the single outputs; None where the private losses do not separate by the columns of a variable.

    Raises
    ------
    UnsupportedModelError
        Where they do, and a penalty or a constraint does not.
    """
    objective = problem.objective.args[0]
    widths = {v.shape[1] for v in problem.variables() if v.ndim == 2 and v.shape[1] > 1}
    if len(widths) != 1:
        return None
    splitter = _Splitter(widths.pop())
    try:
        for factor, term in summands(objective):
            splitter.add(term, factor)
    except _Tied:
        return None
    if not all(splitter.terms):
        return None
    for number, constraint in enumerate(problem.constraints):
        splitter.constrain(constraint, constraint_label(constraint, number))
    sense = type(problem.objective)
    parts = [sum(terms[1:], terms[0]) for terms in splitter.terms]
    found = Split(
        tuple(cp.Problem(sense(e), c) for e, c in zip(parts, splitter.constraints, strict=True)),
        tuple(splitter.fresh.values()),
    )
    return found if _agrees(objective, parts, found) else None


class _Splitter:
    """Collects what belongs to each of ``count`` outputs."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.terms: list[list[Any]] = [[] for _ in range(count)]
        self.constraints: list[list[Any]] = [[] for _ in range(count)]
        self.fresh: dict[int, tuple[cp.Variable, tuple[cp.Variable, ...]]] = {}

    # ------------------------------------------------------------------ scalars
    def add(self, expression: Any, factor: float) -> None:
        """Give each output its part of ``factor * expression``, a scalar."""
        if is_number(expression):
            self._give(0, expression, factor)
            return
        if (owner := self._owner([expression])) is not None:
            self._give(owner[0], expression.tree_copy(owner[1]), factor)
            return
        try:
            parts = self._parts(expression)
        except _Tied:
            if is_private(expression):
                raise
            raise UnsupportedModelError(
                f"the objective: {short(expression)} ties several outputs to each other",
                why="each output is a private regression of its own, solved with a share of the budget",
                remedy=_REMEDY,
            ) from None
        for j, part in enumerate(parts):
            self._give(j, part, factor)

    def _give(self, output: int, part: Any, factor: float) -> None:
        self.terms[output].append(part if factor == 1 else factor * part)

    def _parts(self, expression: Any) -> list[Any]:
        """By output, the terms that a sum over all entries has."""
        args = expression.args
        match kind(expression):
            case "sum" if (inner := kind(args[0])) in ("sum", "norm1", "quad_over_lin"):
                return self._parts(getattr(cp, inner)(*args[0].args))
            case "sum":
                return [cp.sum(part) for part in self._columns(_flat(args[0]))]
            case "norm1":
                return [cp.norm1(part) for part in self._columns(_flat(args[0]))]
            case "quad_over_lin" if is_number(args[1]):
                return [cp.quad_over_lin(part, args[1]) for part in self._columns(_flat(args[0]))]
            case "power" if exponent(expression) == 2 and kind(args[0]) == "pnorm" and args[0].p == 2:
                return [cp.sum_squares(part) for part in self._columns(_flat(args[0].args[0]))]
            case "matmul" if any(map(is_number, args)):
                weights, rest = args if is_number(args[0]) else args[::-1]
                if kind(rest) == "sum" and rest.axis == 1:  # weights of the records
                    return [weights @ part for part in self._columns(rest.args[0])]
                return [weights[j] * part for j, part in enumerate(self._columns(rest))]
        raise _Tied

    # ------------------------------------------------------------------ columns
    def _columns(self, expression: Any) -> list[Any]:
        return [self.column(expression, j) for j in range(self.count)]

    def column(self, expression: Any, j: int) -> Any:
        """``expression[:, j]`` for a matrix with a column for each output, ``expression[j]`` for a vector."""
        if expression.ndim not in (1, 2) or expression.shape[-1] != self.count:
            raise _Tied
        args = expression.args
        if not expression.variables():
            return expression[j] if expression.ndim == 1 else expression[:, j]
        if isinstance(expression, cp.Variable):
            return self._variable(expression)[j]
        name = kind(expression)
        if name in ("add", "multiply", "divide", *_ENTRYWISE):
            return rebuilt(expression, [self._entries(arg, expression, j) for arg in args])
        match name:
            case "negate":
                return -self.column(args[0], j)
            case "matmul" if not args[0].variables() and args[1].ndim == 2:
                return args[0] @ self.column(args[1], j)
            case "broadcast" if args[0].ndim == 1 or args[0].shape == (1, self.count):
                return _scalar(self.column(args[0], j))
            case "vstack":
                return cp.hstack([self.column(arg, j) for arg in args])
            case "index":
                return self._picked(expression, j)
            case "sum" | "norm1" | "max" | "min" | "pnorm" | "quad_over_lin" if expression.axis == 0:
                inner = self.column(args[0], j)
                if name == "pnorm":
                    return cp.pnorm(inner, expression.p)
                return getattr(cp, name)(inner, *args[1:])
        raise _Tied

    def _entries(self, arg: Any, whole: Any, j: int) -> Any:
        """Column j of an argument of an atom that acts entry by entry; a number for all entries stays one."""
        while kind(arg) in ("promote", "broadcast") and arg.args[0].size == 1:
            arg = arg.args[0]
        if arg.size == 1 and whole.size > 1:
            if arg.variables():
                raise _Tied  # one variable that all outputs share
            return _scalar(arg)
        if arg.shape != whole.shape:
            raise _Tied
        return self.column(arg, j)

    def _picked(self, expression: Any, j: int) -> Any:
        """Entries of one column of a variable: ``W[1:]`` and ``W[-1]``."""
        place = _places(expression)
        if place is None:
            raise _Tied
        owner, row = place
        if (owner[..., j] != j).any():
            raise _Tied
        return _entries_of(self._variable(expression.args[0])[j], row[..., j])

    def _variable(self, variable: Any) -> tuple[cp.Variable, ...]:
        """Its columns (entries, for a vector) as variables of their own, with its attributes."""
        known = self.fresh.get(id(variable))
        if known is not None:
            return known[1]
        if variable.shape[-1:] != (self.count,) or variable.ndim > 2:
            raise _Tied
        given = {key: value for key, value in variable.attributes.items() if value is not None and value is not False}
        if any(key not in _OWN for key in given):
            raise _Tied
        columns = []
        for j in range(self.count):
            own = dict(given)
            if "bounds" in own:
                own["bounds"] = [_side(side, j) for side in own["bounds"]]
            name = f"{variable.name()}[:, {j}]" if variable.ndim == 2 else f"{variable.name()}[{j}]"
            columns.append(cp.Variable(variable.shape[:-1], name=name, **own))
        self.fresh[id(variable)] = variable, tuple(columns)
        return tuple(columns)

    # ------------------------------------------------------------------ what belongs to one output
    def _owner(self, expressions: list[Any]) -> tuple[int, dict[int, Any]] | None:
        """The one output whose columns stand in ``expressions`` (as ``W[:, 2]``), and what stands for them."""
        swap: dict[int, Any] = {}
        owners: set[int] = set()
        stack = list(expressions)
        while stack:
            node = stack.pop()
            if isinstance(node, cp.Variable):
                return None
            place = _places(node) if kind(node) == "index" else None
            if place is None:
                stack.extend(node.args)
                continue
            owner, row = place
            owners.update(np.unique(owner).tolist())
            if len(owners) != 1:
                return None
            try:
                swap[id(node)] = _entries_of(self._variable(node.args[0])[min(owners)], row)
            except _Tied:
                return None
        return (owners.pop(), swap) if len(owners) == 1 else None

    def constrain(self, constraint: Any, label: str) -> None:
        """Give each output its part of a constraint.

        Raises
        ------
        UnsupportedModelError
            When it is about several outputs at once.
        """
        owner = self._owner(constraint.args)
        if owner is not None or not constraint.variables():
            j, swap = owner if owner is not None else (0, {})
            self.constraints[j].append(constraint.tree_copy(swap).set_label(label))
            return
        sides = constraint.args
        try:
            if not isinstance(constraint, _ENTRYWISE_CONSTRAINTS):
                raise _Tied
            whole = max(sides, key=lambda side: int(side.size))
            for j in range(self.count):
                mine = [self._entries(side, whole, j) for side in sides]
                self.constraints[j].append(constraint.copy(mine).set_label(label))
        except _Tied:
            raise UnsupportedModelError(
                f"{label}: it ties several outputs to each other",
                why="each output is a private regression of its own, solved with a share of the budget",
                remedy=_REMEDY,
            ) from None


_ENTRYWISE_CONSTRAINTS = (type(cp.Variable() <= 0), type(cp.Variable() == 0), cp.Zero, cp.NonNeg, cp.NonPos)


def _flat(expression: Any) -> Any:
    """What is summed over all entries, before it was made a vector or turned."""
    while kind(expression) in ("reshape", "transpose"):
        expression = expression.args[0]
    return expression


def _scalar(expression: Any) -> Any:
    return expression if expression.ndim == 0 else cp.reshape(expression, (), order="F")


def _side(side: Any, j: int) -> Any:
    """Column j of one side of a variable's bounds."""
    if isinstance(side, cp.Expression):
        raise _Tied
    side = np.asarray(side, dtype=np.float64)
    return side[..., j] if side.ndim else side


def _places(node: Any) -> tuple[Any, Any] | None:
    """For entries picked from a variable: the output (the column, or the entry of a vector) and the row of each."""
    variable = node.args[0]
    if not isinstance(variable, cp.Variable) or variable.ndim not in (1, 2):
        return None
    place = np.arange(variable.size).reshape(variable.shape, order="F")[getattr(node, "_orig_key", node.key)]
    if place.shape != node.shape or not place.size:
        return None
    rows = variable.shape[0] if variable.ndim == 2 else 1
    return place // rows, place % rows


def _entries_of(column: Any, rows: Any) -> Any:
    if column.ndim == 0:
        return column if rows.ndim == 0 else cp.reshape(column, rows.shape, order="F")
    if rows.shape == column.shape and (rows == np.arange(column.size)).all():
        return column
    flat = column[rows.ravel(order="F")]
    return flat if rows.ndim == 1 else cp.reshape(flat, rows.shape, order="F")


def _agrees(objective: Any, parts: list[Any], found: Split) -> bool:
    """Whether the parts add up to the objective at a random point."""
    theirs, *mine = at_a_random_point(partial(_values, objective, parts, found))
    return bool(abs(theirs - sum(mine)) <= _AGREE * (abs(theirs) + float(np.abs(mine).sum())))


def _values(objective: Any, parts: list[Any], found: Split, dense: bool, size: float) -> Floats:
    variables = {v.id: v for v in objective.variables()}.values()
    private = [p for p in objective.parameters() if isinstance(p, Private)]
    point = Point(variables, private, 31, dense=dense, size=size)
    for variable, columns in found.columns:
        if id(variable) in point.swap:
            value = point.swap[id(variable)].value
            point.swap.update({id(column): cp.Constant(value[..., j]) for j, column in enumerate(columns)})
    return np.array([point.scalar(each) for each in (objective, *parts)])


@dataclass(frozen=True, eq=False)
class PublicColumns:
    """The public constraints and penalties of all outputs, and the way back to the user's variables."""

    parts: tuple[PublicPart, ...]
    columns: tuple[tuple[cp.Variable, tuple[cp.Variable, ...]], ...]

    def require_feasible(self) -> None:
        """Raise InfeasibleError if the constraints of an output have no common point."""
        for part in self.parts:
            part.require_feasible()

    def complete(self, w: Floats) -> dict[cp.Variable, Any]:
        """Values of the user's variables, from the coefficients of all outputs one after the other."""
        known: dict[int, Any] = {}
        start = 0
        for part in self.parts:
            known |= {v.id: value for v, value in part.complete(w[start : start + part.size]).items()}
            start += part.size
        return {
            variable: np.stack([known[column.id] for column in columns], axis=-1)
            for variable, columns in self.columns
            if all(column.id in known for column in columns)
        }

    def forget(self) -> None:
        """Drop what earlier solves left behind."""
        for part in self.parts:
            part.forget()
