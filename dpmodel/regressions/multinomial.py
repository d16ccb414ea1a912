"""Multinomial regressions, and regressions over rows in blocks.

``cp.sum(cp.log_sum_exp(X @ W, axis=1)) - cp.sum(cp.multiply(Y, X @ W))``: with ``cp.logistic`` of every score in place
of ``cp.log_sum_exp`` of a row it is a sum of logistic regressions, one for each column of W. As such it is read: what
the features, the labels, the weights and the coefficients of a score are. Then the user's own objective and the
multinomial one of these parts are compared at random points.

A regression over rows in blocks is recognised on a few rows: nothing as long as the data is ever made. What is
recognised of the small model (loss, scale, coefficients, penalty) is that of the large one, whose parameters are put
back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.compile.atoms import is_number, is_private, kind
from dpmodel.compile.refusals import refuse_blocks, short
from dpmodel.compile.rows import CutRows, rows_of_one_source
from dpmodel.errors import UnsupportedModelError
from dpmodel.marks.private import Private
from dpmodel.regressions.expressions import summands, unfit, vector_of
from dpmodel.regressions.features import Features, Label, tidy
from dpmodel.regressions.losses import Softmax
from dpmodel.regressions.outputs import Split, split
from dpmodel.regressions.penalties import read_penalty, whole_penalty
from dpmodel.regressions.predictions import close
from dpmodel.regressions.public import PublicPart
from dpmodel.regressions.read import Outputs, Recognised, certify, has_rows, recognise, refuse_hidden

_REMEDY = (
    "cp.sum(cp.log_sum_exp(X @ W + b, axis=1)) - cp.sum(cp.multiply(Y, X @ W + b)) with one-hot rows Y, W of a column "
    "and b of an entry for each class, and public terms"
)


def recognise_regression(problem: cp.Problem) -> Recognised | Outputs | None:
    """``recognise``, and multinomial regressions."""
    objective = problem.objective.args[0]
    rows = _of_rows(objective)
    # Where no record owns a row it is a program with exponential cones.
    return recognise(problem) if rows is None or not has_rows(objective) else _multinomial(problem, rows)


def _of_rows(objective: Any) -> Any:
    """The first private ``cp.log_sum_exp`` of the rows of a matrix; None where there is none."""
    stack = [objective]
    while stack:
        node = stack.pop()
        if _is_row_wise(node) and is_private(node):
            return node
        stack.extend(node.args)
    return None


def _is_row_wise(node: Any) -> bool:
    return kind(node) == "log_sum_exp" and node.args[0].ndim == 2 and node.axis in (1, -1)


def _multinomial(problem: cp.Problem, rows: Any) -> Recognised:
    """The regression, of which ``rows`` are the logarithms of sums of the exponentials of each record's scores.

    Raises
    ------
    UnsupportedModelError
        For any other objective with ``rows``.
    """
    refuse_hidden(problem)  # of the whole: twins in two scores would not meet
    count, classes = (int(size) for size in rows.args[0].shape)
    if classes < 2:
        unfit(rows, "it has one score for each record, and classes need two or more", _REMEDY)
    sense = type(problem.objective)
    terms = list(_terms(problem.objective.args[0], -1.0 if sense is cp.Maximize else 1.0))
    public = [(factor, term) for factor, term in terms if not is_private(term)]
    private = [factor * _with_logistics(term) for factor, term in terms if is_private(term)]
    found: Split | None = None
    read: list[Recognised | Outputs | None] = []
    with contextlib.suppress(UnsupportedModelError):
        found = split(cp.Problem(cp.Minimize(sum(private[1:], private[0]))))
        read = [] if found is None else [recognise(each) for each in found.problems]
    parts = [each.parts[0] for each in read if each is not None and len(each.parts) == 1]
    if found is None or len(parts) != classes or not all(_follows(part, parts[0]) for part in parts):
        unfit(rows, "beside it only the labels times the same scores are subtracted, and public terms added", _REMEDY)
    coefficients = cp.hstack([_users(part.coefficients, found, j) for j, part in enumerate(parts)])
    penalty, constraints = whole_penalty(public), tuple(problem.constraints)
    whole, first = PublicPart(coefficients, constraints, penalty), parts[0]
    whole.require_values()
    out = Recognised(
        loss=Softmax(classes=classes),
        count=count,
        scale=first.scale,
        blocks=first.blocks,
        label=_labels(rows, parts),
        offset=None,
        weights=first.weights,
        coefficients=coefficients,
        constant=first.constant,
        penalty=read_penalty(public, whole),
        penalty_expression=penalty,
        constraints=constraints,
        variables=tuple(problem.variables()),
        public=whole,
        where=short(rows),
    )
    certify(problem, out)
    return out


def _terms(expression: Any, factor: float) -> Iterator[tuple[float, Any]]:
    """(factor, term) of a scalar; sums over the records of sums are taken apart, as ``split`` wants them."""
    for times, term in summands(expression, factor, lambda e: not is_private(e)):
        inner = _per_record(term)
        if inner is not None and kind(term) == "sum" and kind(inner) == "multiply" and any(map(_weights, inner.args)):
            weights, rest = inner.args if _weights(inner.args[0]) else inner.args[::-1]
            yield from _terms(weights @ rest, times)
            continue
        pieces = [] if inner is None else list(_pieces(inner))
        if inner is None or (len(pieces) == 1 and pieces[0][1] is inner):
            yield times, term
        else:
            for by, piece in pieces:
                yield from _terms(cp.sum(piece) if kind(term) == "sum" else term.args[0] @ piece, times * by)


def _per_record(term: Any) -> Any:
    """The vector with an entry for each record that ``term`` sums up, with weights or without."""
    if kind(term) == "sum" and term.args[0].ndim == 1:
        return term.args[0]
    if kind(term) == "matmul" and is_number(term.args[0]) and term.args[1].ndim == 1:
        return term.args[1]
    return None


def _pieces(vector: Any) -> Iterator[tuple[float, Any]]:
    """(factor, vector) of a sum of vectors."""
    args = vector.args
    match kind(vector):
        case "add":
            for arg in args:
                yield from _pieces(arg)
        case "negate":
            yield from ((-by, piece) for by, piece in _pieces(args[0]))
        case "divide" if _one(args[1]):
            yield from ((by / _value(args[1]), piece) for by, piece in _pieces(args[0]))
        case "multiply" if any(map(_one, args)):
            number, rest = args if _one(args[0]) else args[::-1]
            yield from ((_value(number) * by, piece) for by, piece in _pieces(rest))
        case _:
            yield 1.0, vector


def _weights(number: Any) -> bool:
    """Whether it holds a public number for each record."""
    return number.size > 1 and is_number(number) and not _one(number)


def _one(number: Any) -> bool:
    """Whether it is one public number, for all records perhaps."""
    alone = number.size == 1 or (kind(number) in ("promote", "broadcast") and number.args[0].size == 1)
    return alone and is_number(number)


def _value(number: Any) -> float:
    return float(vector_of(number if number.size == 1 else number.args[0], 1))


def _with_logistics(term: Any) -> Any:
    """``term`` with a sum of logistic losses for each logarithm of a row's sum of exponentials."""
    if not is_private(term):
        return term
    if _is_row_wise(term):
        return cp.sum(cp.logistic(term.args[0]), axis=1, keepdims=term.keepdims)
    return term.copy([_with_logistics(arg) for arg in term.args]) if term.args else term


def _follows(part: Recognised, first: Recognised) -> bool:
    """Whether a score has the rows, the weights and the form of the first."""
    if part.loss.name != "binary_logistic" or part.offset is not None or part.label is None or part.up_to_constant:
        return False
    if isinstance(part.label, Label) and not part.label.plain:
        return False
    if not close(part.scale, first.scale) or len(part.blocks) != len(first.blocks):
        return False
    mine, theirs = (np.ones(1) if each.weights is None else each.weights for each in (part, first))
    return close(mine, theirs) and all(map(_same_block, part.blocks, first.blocks))


def _same_block(one: tuple[Any, int], two: tuple[Any, int]) -> bool:
    (a, start), (b, other) = one, two
    if start != other or isinstance(a, Features) != isinstance(b, Features) or sp.issparse(a) != sp.issparse(b):
        return False
    if isinstance(a, Features):
        return a.same(b)
    if a.shape != b.shape:
        return False
    return bool((a != b).nnz == 0) if sp.issparse(a) else np.array_equal(a, b)


def _users(expression: Any, found: Split, j: int) -> cp.Expression:
    """An expression of the variables that stand for columns, of the user's own."""
    swap = {id(columns[j]): v[:, j] if v.ndim == 2 else v[j] for v, columns in found.columns}
    return expression.tree_copy(swap)


def _labels(rows: Any, parts: list[Recognised]) -> Label | Floats:
    """(n, K) labels, private or public.

    Raises
    ------
    UnsupportedModelError
        For labels of several parameters, or public ones for some classes only.
    """
    labels = [part.label for part in parts]
    if not any(isinstance(label, Label) for label in labels):
        return np.column_stack(labels)  # type: ignore[arg-type]
    features = [label.features for label in labels if isinstance(label, Label)]
    if len(features) < len(labels) or len({each.source for each in features}) > 1:
        unfit(rows, "the labels of its classes are not columns of one Private", _REMEDY)
    first = features[0]
    maps = [sp.eye_array(each.owned) if each.map is None else each.map for each in features]
    joined = Features(first.parameter, tidy(sp.hstack(maps, format="csr")), first.turned)
    return Label(joined, np.ones(()), np.zeros(()))


# ------------------------------------------------------------------ rows in blocks


def recognise_blocks(problem: cp.Problem) -> Recognised | Outputs | None:
    """As ``recognise``, for a problem with private parameters ``in_blocks``; None where private parameters stand in
    constraints, which no regression has.

    Raises
    ------
    UnsupportedModelError, SpecificationError
        For an objective that is no regression over the rows of one source; before any budget is spent.
    """
    private = [p for p in problem.parameters() if isinstance(p, Private)]
    count = rows_of_one_source(private)
    if any(isinstance(p, Private) for c in problem.constraints for p in c.parameters()):
        return None
    objective = problem.objective
    roots = [objective.args[0], *(each for constraint in problem.constraints for each in constraint.args)]
    small = _Small(CutRows(roots, private, count), objective.args[0])
    found = recognise_regression(cp.Problem(type(objective)(small.rows.cut(small.loss)), problem.constraints))
    if found is None:
        refuse_blocks(private)
    assert found is not None
    parts = tuple(small.enlarged(part) for part in found.parts)
    several: Any = found
    return replace(several, parts=parts) if len(parts) > 1 else parts[0]


@dataclass(frozen=True)
class _Small:
    """``loss`` of all rows, and what cuts them."""

    rows: CutRows
    loss: Any

    def enlarged(self, found: Recognised) -> Recognised:
        """What was recognised, of the user's parameters. Public tables keep their few rows, which are all alike."""
        label = found.label
        ends = [label.scale, label.shift] if isinstance(label, Label) else [label]
        tables = [found.offset, *ends, *(f for f, _ in found.blocks if not isinstance(f, Features))]
        if found.weights is not None or not all(map(_alike, tables)):  # such as a running sum of ones
            self.rows.refuse(self.loss, "public numbers in it differ from row to row")
        if isinstance(label, Label):
            scale, shift = (np.asarray(np.ravel(end)[0]) for end in (label.scale, label.shift))
            label = replace(label, features=self._features(label.features), scale=scale, shift=shift)
        return replace(
            found,
            count=self.rows.count,
            blocks=tuple((self._features(f) if isinstance(f, Features) else f, start) for f, start in found.blocks),
            label=label,
        )

    def _features(self, features: Features) -> Features:
        return replace(features, parameter=self.rows.original(features.parameter))


def _alike(table: Any) -> bool:
    """Whether all rows of a public table are the same; of None and of one number for all rows, too."""
    rows = np.atleast_1d(0.0 if table is None else table.toarray() if sp.issparse(table) else table)
    return np.allclose(rows, rows[:1], rtol=1e-12, atol=0)
