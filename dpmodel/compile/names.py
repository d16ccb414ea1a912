"""Names of rows and columns, carried from labelled parameters to the variables and constraints that they meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cvxpy as cp

from dpmodel._types import Axis, Labels
from dpmodel.marks.private import Private

# Per axis; None where nothing is known.
_Axes = list[Axis | None]
_affine = cp.atoms.affine
_Product, _Sum, _Transpose = _affine.binary_operators.MulExpression, _affine.sum.Sum, _affine.transpose.transpose
_ENTRYWISE = (
    _affine.add_expr.AddExpression,
    _affine.binary_operators.multiply,
    _affine.binary_operators.DivExpression,
    _affine.unary_operators.NegExpression,
    cp.atoms.elementwise.elementwise.Elementwise,
)


@dataclass(frozen=True)
class Names:
    """``variables``, ``constraints`` : labels by the identity of the CVXPY object, where an axis has any."""

    variables: Mapping[int, Labels]
    constraints: Mapping[int, Labels]


def names_of(problem: cp.Problem) -> Names:
    """Labels of what a problem's labelled parameters meet: the columns of ``X`` name the entries of ``w`` in ``X @ w``,
    and demands by market name the columns of x in ``cp.sum(x, axis=0) >= demand``."""
    parameters = [p for p in problem.parameters() if isinstance(p, Private) and p.labels]
    if not parameters:
        return Names({}, {})
    known: dict[int, _Axes] = {}
    roots = [*problem.objective.args, *(c for c in problem.constraints)]
    for _ in range(2):  # what a later constraint names is seen by the earlier ones
        for root in roots:
            _visit(root, known)
    variables = {id(v): _told(known.get(id(v), [])) for v in problem.variables()}
    constraints = {id(c): _told(_merged([_up(a, known) for a in _alike(c)])) for c in problem.constraints}
    return Names({k: v for k, v in variables.items() if v}, {k: v for k, v in constraints.items() if v})


def labels_of_expression(expression: Any) -> Labels:
    """Labels of an expression's own axes."""
    return _told(_up(expression, {}))


def _visit(node: Any, known: dict[int, _Axes]) -> None:
    if not getattr(node, "args", None):
        return
    for child in node.args:
        _visit(child, known)
    if isinstance(node, _Product) and not isinstance(node, cp.multiply):
        left, right = node.args
        if left.ndim and right.ndim:
            _down(right, [*_up(left, known)[-1:], *[None] * (right.ndim - 1)], known)
            _down(left, [*[None] * (left.ndim - 1), *_up(right, known)[:1]], known)
    elif isinstance(node, cp.Constraint):
        axes = _merged([_up(argument, known) for argument in _alike(node)])
        for argument in _alike(node):
            _down(argument, axes, known)
    else:
        _down(node, _up(node, known), known)


def _up(node: Any, known: Mapping[int, _Axes]) -> _Axes:
    """What the arguments of an expression say of its axes."""
    free: _Axes = [None] * node.ndim
    if isinstance(node, Private):
        return [axis if axis[1] else None for axis in node.labels] or free
    if isinstance(node, cp.Variable):
        return known.get(id(node), free)
    if isinstance(node, _ENTRYWISE):
        return _merged([_up(argument, known) for argument in _alike(node)]) or free
    if isinstance(node, _Product):
        left, right = (_up(argument, known) for argument in node.args)
        found = [*left[:-1], *right[1:]]
        return found if len(found) == node.ndim else free
    if isinstance(node, _Sum) and isinstance(node.axis, int) and not node.keepdims:
        inner = _up(node.args[0], known)
        return [axis for k, axis in enumerate(inner) if k != node.axis % len(inner)]
    if isinstance(node, _Transpose) and node.ndim == 2:
        return _up(node.args[0], known)[::-1]
    return free


def _down(node: Any, axes: _Axes, known: dict[int, _Axes]) -> None:
    """Hand the names of an expression's axes on to the variables in it."""
    if not any(axes) or len(axes) != node.ndim:
        return
    if isinstance(node, cp.Variable):
        known[id(node)] = _merged([known.get(id(node), [None] * node.ndim), axes])
    elif isinstance(node, _ENTRYWISE):
        for argument in _alike(node):
            _down(argument, axes, known)
    elif isinstance(node, _Product):
        left, right = node.args
        if left.ndim == 2:
            _down(left, [axes[0], None], known)
        if right.ndim == 2:
            _down(right, [None, axes[-1]], known)
    elif isinstance(node, _Sum) and isinstance(node.axis, int) and not node.keepdims:
        inner, rest = node.args[0], iter(axes)
        _down(inner, [None if k == node.axis % inner.ndim else next(rest) for k in range(inner.ndim)], known)
    elif isinstance(node, _Transpose) and node.ndim == 2:
        _down(node.args[0], axes[::-1], known)


def _alike(node: Any) -> list[Any]:
    """The arguments of the shape of the whole."""
    return [argument for argument in node.args if argument.shape == node.shape]


def _merged(found: Sequence[_Axes]) -> _Axes:
    """For every axis the first that is known."""
    return [next((axis for axis in each if axis is not None), None) for each in zip(*found, strict=True)]


def _told(axes: _Axes) -> Labels:
    return tuple(axis if axis is not None else (None, ()) for axis in axes) if any(axes) else ()
