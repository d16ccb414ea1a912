"""Sensitivity as an attribute of expressions, beside CVXPY's curvature and sign; and the tree of an expression."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np

from dpmodel.compile.bridge import lower
from dpmodel.compile.footprint import entry_sensitivities, largest, sensitivity_of
from dpmodel.compile.written import passed_over, written
from dpmodel.errors import SpecificationError
from dpmodel.marks.private import Private
from dpmodel.marks.records import record_words
from dpmodel.text import WIDTH, PlainData, TextTable, line_width, number, screenful, shortened, wrapped

_MOST_NODES = 24  # nodes that are printed
_ALL_NODES = "problem.explain(tree=True).nodes"
_WIDE = 72  # columns from which on the tree is a table
_COLUMNS = ("expression", "shape", "sign", "curvature", "one record moves it by")


@dataclass(frozen=True)
class ExpressionSensitivity(PlainData):
    """How far one record moves an expression.

    Parameters
    ----------
    l1, l2, linf : bounds on the norms of the change (inf: arbitrarily far). ``exact`` : whether some change inside the
        declared bounds attains them (else upper bounds; linf is attained all the same, unless parameters whose units
        are not paired meet in one entry).
    entry : index of the entry that one record can move by linf, () for a number.
    record : what a record is, in words. ``neighbors`` : the relation.
    """

    l1: float
    l2: float
    linf: float
    exact: bool
    entry: tuple[int, ...]
    record: str
    neighbors: str

    def __str__(self) -> str:
        kind = "attained" if self.exact else "upper bounds"
        norms = f"l1 {number(self.l1)}, l2 {number(self.l2)}, linf {number(self.linf)} ({kind})"
        where = f", linf at entry {list(self.entry)}" if self.entry else ""
        if not self.linf:
            return "0: no record moves it"
        return wrapped(f"{norms}{where}; {self.neighbors} neighbors: {self.record}")


def sensitivity(expression: Any) -> ExpressionSensitivity:
    """How far one record moves an expression of private parameters.

    The rules of this calculus: a private parameter has the sensitivity of its declaration; sums, differences, slices,
    transposes, reshapes and products with public numbers carry it on, exactly, because the map from the parameter to
    the expression is affine and the change is bounded on the map; a product of two private expressions, and any atom
    that is not affine, has none.

    Parameters
    ----------
    expression : affine in ``Private`` parameters; without variables.

    Raises
    ------
    SpecificationError
        For what is no expression, has variables, or is not affine in its private parameters; it names the innermost
        expression that breaks the rule.
    """
    if not isinstance(expression, cp.Expression):
        raise SpecificationError(
            f"sensitivity: {type(expression).__name__} is no expression",
            remedy="a Private parameter, or 2 * p + 1, say",
        )
    if expression.variables():
        raise SpecificationError(
            f"sensitivity of {_short(expression)}, which has variables",
            why="how far one record moves it depends on their values",
            remedy="an expression of parameters; problem.explain() for what one record does to c, b and A",
        )
    broken = next((node for node in _nodes(expression) if _rule(node)), None)
    if broken is not None:
        raise SpecificationError(f"sensitivity of {_short(broken)}", why=_rule(broken), remedy="an affine expression")
    if not _private(expression):
        return ExpressionSensitivity(0.0, 0.0, 0.0, True, (), "", "")
    # Row i of ``expression == t`` is entry i; one scalar variable makes as many rows as entries.
    affine = lower(cp.Problem(cp.Minimize(0), [expression == cp.Variable()])).affine
    part = affine.private_parts["scalar"]
    found = largest(sensitivity_of(affine, part).values())
    moved = entry_sensitivities(affine, part)
    at = np.unravel_index(int(np.argmax(moved)), expression.shape, order="F") if expression.shape and moved.size else ()
    return ExpressionSensitivity(
        found.l1,
        found.l2,
        found.linf,
        found.exact,
        tuple(int(k) for k in at),
        record_words(block.parameter for block in affine.private_blocks),
        " and ".join(sorted({block.parameter.records.neighbors for block in affine.private_blocks})),
    )


@dataclass(frozen=True)
class TreeNode:
    """A node of an expression's tree, ``depth`` levels below the root; ``rule`` : the one it breaks, or ""."""

    depth: int
    expression: str
    shape: tuple[int, ...]
    sign: str
    curvature: str
    sensitivity: str
    rule: str


@dataclass(frozen=True)
class ExpressionTree(PlainData):
    """What CVXPY and this package know of every node of a model; prints as a table, the first broken rule marked."""

    nodes: tuple[TreeNode, ...]

    def _shown(self) -> list[TreeNode]:
        """The first nodes, and the one that breaks a rule."""
        first = next((place for place, node in enumerate(self.nodes) if node.rule), 0)
        shown = self.nodes[:_MOST_NODES]
        return [*shown, self.nodes[first]] if first >= _MOST_NODES else list(shown)

    def _rows(self) -> list[tuple[str, ...]]:
        first = next((node for node in self.nodes if node.rule), None)
        return [
            (
                f"{'  ' * node.depth}{'-> ' if node is first else ''}{node.expression}",
                "x".join(map(str, node.shape)) or "number",
                node.sign,
                node.curvature,
                f"BROKEN: {node.rule}" if node is first else node.sensitivity,
            )
            for node in self._shown()
        ]

    def __str__(self) -> str:
        rows, left = self._rows(), len(self.nodes) - _MOST_NODES
        more = [f"... {left} more nodes: {_ALL_NODES}"] if left > 0 else []
        if line_width(WIDTH) >= _WIDE:
            return screenful(str(TextTable(_COLUMNS, rows, footer=more)), _ALL_NODES)
        lines = []
        for node, (expression, *facts) in zip(self._shown(), rows, strict=True):
            told = ", ".join(fact for fact in facts if fact not in ("", "-"))
            lines.append(wrapped(f"{expression.strip()}: {told}", "  " * node.depth))
        return screenful("\n".join([*lines, *map(wrapped, more)]), _ALL_NODES)

    def __repr__(self) -> str:
        return f"<ExpressionTree: {len(self.nodes)} nodes>"

    def _repr_html_(self) -> str:
        return TextTable(_COLUMNS, [(row[0].replace("  ", "\u2003"), *row[1:]) for row in self._rows()])._repr_html_()


def expression_tree(problem: cp.Problem, *, regression: bool = False) -> ExpressionTree:
    """The tree of the objective and of every constraint. ``regression`` : features may be multiplied by labels."""
    roots = [problem.objective.expr, *problem.constraints]
    return ExpressionTree(tuple(node for root in roots for node in _tree(root, 0, regression)))


def _tree(node: Any, depth: int, regression: bool) -> Iterator[TreeNode]:
    constraint = isinstance(node, cp.Constraint)
    if not constraint and passed_over(node) and not _rule(node):  # its argument says the same
        yield from _tree(node.args[0], depth, regression)
        return
    rule = "" if constraint or (regression and node.variables()) else _rule(node)
    yield TreeNode(
        depth,
        _short(node),
        tuple(node.shape),
        "" if constraint else str(node.sign).lower(),
        ("dcp" if node.is_dcp(dpp=True) else "not dcp") if constraint else str(node.curvature).lower(),
        "" if constraint or rule else _moved(node),
        rule,
    )
    for child in node.args:
        yield from _tree(child, depth + 1, regression)


def _moved(node: Any) -> str:
    if not _private(node):
        return "-"
    if node.variables():
        return "its coefficients: private"
    if any(_rule(inner) for inner in _nodes(node)):
        return "-"
    found = sensitivity(node)
    if math.isinf(found.linf):
        return "arbitrarily far"
    return f"{'' if found.exact else 'at most '}l1 {number(found.l1)}, l2 {number(found.l2)}, linf {number(found.linf)}"


def _rule(node: Any) -> str:
    """The rule that this node itself breaks, its arguments being as they are."""
    if not _private(node):
        return ""
    private = [argument for argument in node.args if _private(argument)]
    products = (cp.atoms.affine.binary_operators.MulExpression, cp.atoms.affine.conv.conv, cp.kron)
    divided = isinstance(node, cp.atoms.affine.binary_operators.DivExpression) and _private(node.args[1])
    if isinstance(node, products) and len(private) > 1:
        return "a product of two private expressions is not affine in the parameters"
    if divided:
        return "a private divisor: one record may move the quotient arbitrarily far"
    if not node.variables() and node.args and not isinstance(node, cp.atoms.affine.affine_atom.AffAtom):
        return f"{type(node).__name__} of a private expression is not affine in the parameters"
    return ""


def _nodes(expression: Any) -> Iterator[Any]:
    """Innermost first."""
    for child in expression.args:
        yield from _nodes(child)
    yield expression


def _private(node: Any) -> bool:
    return any(isinstance(parameter, Private) for parameter in node.parameters())


def _short(node: Any) -> str:
    if isinstance(node, cp.Constraint) and node.label:
        return str(node.label)
    return shortened(written(node), 48)
