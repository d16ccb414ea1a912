"""Recognising a regression on the user's tree, before anything is lowered: its loss, rows, labels and penalty."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.compile.atoms import is_private, kind
from dpmodel.compile.refusals import short
from dpmodel.errors import UnsupportedModelError
from dpmodel.marks.private import Private
from dpmodel.regressions.expressions import NotPerRecord, unfit
from dpmodel.regressions.features import Features, Label
from dpmodel.regressions.losses import Loss
from dpmodel.regressions.match import match
from dpmodel.regressions.outputs import split
from dpmodel.regressions.penalties import Penalty, read_penalty, whole_penalty
from dpmodel.regressions.points import Point, at_a_random_point
from dpmodel.regressions.predictions import Prediction, close, read_predictions
from dpmodel.regressions.public import PublicPart
from dpmodel.regressions.terms import take_apart

# The claimed normal form and the user's objective are compared at this many random points, to this accuracy.
_POINTS = 3
_AGREE = 1e-8
# CVXPY's entrywise product and quotient are kinds of the first.
_PRODUCTS = (
    cp.atoms.affine.binary_operators.MulExpression,
    cp.atoms.affine.kron.kron,
    cp.convolve,
    cp.conv,
    cp.QuadForm,
)
_MANY = 1000  # records that are random points themselves, so that their numbers serve all of these


@dataclass(frozen=True, eq=False)
class Recognised:
    """minimise ``scale * sum_i weights_i loss(a_i' c + offset_i, y_i) + penalty(c)`` over the public constraints.

    ``count`` : n. ``blocks`` : (features, start): the columns start .. of a_i, private ``Features`` or a public array
    (n, k), dense or CSR. ``label`` : private, public (n,), or None (all 1). ``offset``, ``weights`` : (n,) public, or
    None (weights of mean 1). ``up_to_constant`` : a number that depends on the private data alone was left out.
    ``coefficients`` : c, a public expression (p,) affine in the variables; intercepts last. ``constant`` : (p,) bool,
    columns that are the same public number for all records. Of K scores, c is (K p,), those of each after the other.
    ``penalty_expression`` : as written, or None.
    ``public`` : coefficients, constraints and penalty together. ``where`` : text of the loss, for messages.
    """

    loss: Loss
    count: int
    scale: float
    blocks: tuple[tuple[Any, int], ...]
    label: Label | Floats | None
    offset: Floats | None
    weights: Floats | None
    coefficients: cp.Expression
    constant: np.ndarray
    penalty: Penalty
    penalty_expression: cp.Expression | None
    constraints: tuple[Any, ...]
    variables: tuple[Any, ...]
    public: PublicPart
    where: str
    up_to_constant: bool = False

    @property
    def parts(self) -> tuple[Recognised, ...]:
        """One for each output."""
        return (self,)

    @property
    def size(self) -> int:
        """p, intercepts included."""
        return int(self.constant.size)

    @property
    def private(self) -> tuple[Private, ...]:
        """The private parameters, each once: those of the features, then the label's."""
        return tuple({id(f.parameter): f.parameter for f in self.private_features}.values())

    @property
    def private_features(self) -> tuple[Features, ...]:
        """The private blocks, and what the label is made of."""
        found = [features for features, _ in self.blocks if isinstance(features, Features)]
        return (*found, *([self.label.features] if isinstance(self.label, Label) else []))


@dataclass(frozen=True, eq=False)
class Outputs:
    """Regressions over the same records whose objectives add up, one for each column of the predictions.

    ``columns`` : (user's variable, by output the variable that stands for its column).
    """

    parts: tuple[Recognised, ...]
    columns: tuple[tuple[cp.Variable, tuple[cp.Variable, ...]], ...]


def recognise(problem: cp.Problem) -> Recognised | Outputs | None:
    """The regression that ``problem`` is, or several with one objective; None when it is no candidate for one.

    A candidate has, in a term of the objective that is not affine, a private matrix of unit "row" or a private vector
    of unit "entry" or "row" (or a matrix of unit "column" whose columns become rows) whose size is declared (bounds=,
    max_l1=, max_l2=, max_linf=) or not bounded at all.
    What is declared by its *change* alone (l1=, l2=, linf=) is no row of a record, and such models are served as
    standard forms. So are objectives that are affine in the private parameters, losses ``c_i' w`` included: they are
    the cell "objective", where the sum of the c_i is measured once. Models that are affine in the private parameters
    after lowering (DPP) and either have no private matrix of unit "row", or multiply none with variables, or take no
    sum over records (a largest residual, say) are left to the standard form too.

    Parameters are compared by what they multiply, so spellings do not matter; then the user's own objective and the
    claimed one are evaluated at random points and must agree.

    Raises
    ------
    UnsupportedModelError
        For a candidate that does not fit, naming the term.
    MissingValueError
        For public parameters without a value: weights, thresholds and penalties are public numbers.
    """
    objective = problem.objective.args[0]
    private = _in_losses(objective)
    turned = _turned(objective) if any(p.unit == "column" for p in private) else set()
    candidates = [p for p in private if _is_rows(p) or _is_entries(p) or (id(p) in turned and _sized(p))]
    if not candidates:
        return None
    features = [p for p in candidates if not _is_entries(p)]
    first = (features or candidates)[0]
    count = int(first.shape[1 if id(first) in turned else 0])
    try:
        return _recognise(problem, count)
    except NotPerRecord:
        if problem.is_dpp():
            return None
        raise
    except UnsupportedModelError as refusal:
        if not features and problem.is_dpp():
            return None
        refused = refusal
    try:
        refuse_hidden(problem)  # of the whole: twins in two outputs would not meet
        outputs = split(problem)
        if outputs is None:
            raise refused
        return Outputs(tuple(_recognise(each, count) for each in outputs.problems), outputs.columns)
    except UnsupportedModelError:
        if problem.is_dpp() and not _has_private_products(objective):
            return None
        raise


def has_rows(objective: Any) -> bool:
    """Whether a record owns a row of a private matrix in a term that is not affine, or a column that becomes a row."""
    turned = _turned(objective)
    return any(_is_rows(p) or (id(p) in turned and _sized(p)) for p in _in_losses(objective))


def _has_private_products(objective: Any) -> bool:
    """Whether private numbers are coefficients of variables somewhere, and not right-hand sides alone."""
    return any(
        isinstance(node, _PRODUCTS)
        and any(is_private(arg) and not arg.variables() for arg in node.args)
        and any(arg.variables() for arg in node.args)
        for node in _walk(objective)
    )


def _in_losses(expression: Any) -> list[Private]:
    """Private parameters in terms of the objective that are not affine."""
    if not is_private(expression) or expression.is_affine():
        return []
    if kind(expression) in ("add", "negate", "multiply", "divide"):
        found = [p for arg in expression.args for p in _in_losses(arg)]
        if found or kind(expression) == "add":
            return list({id(p): p for p in found}.values())
    return [p for p in expression.parameters() if isinstance(p, Private)]


def _sized(parameter: Private) -> bool:
    """Whether a magnitude was declared, or nothing was that says how far a record moves it."""
    lower, upper = parameter.column_range
    declared = bool(np.isfinite(lower).any() or np.isfinite(upper).any())
    return declared or any(map(np.isfinite, parameter.magnitude.values())) or not parameter.sensitivity.finite


def _is_rows(parameter: Private) -> bool:
    return parameter.ndim == 2 and parameter.shape[1] > 1 and parameter.unit == "row" and _sized(parameter)


def _turned(objective: Any) -> set[int]:
    """Ids of private matrices of which a record owns a column, where columns become records: ``XT.T``, ``w @ XT`` or
    ``XT[:, i]``."""
    found = set()
    for node in _walk(objective):
        inner = node.args[-1] if kind(node) in ("transpose", "matmul", "index") and node.args else None
        if isinstance(inner, Private) and inner.ndim == 2 and inner.unit == "column":
            found.add(id(inner))
    return found


def _is_entries(parameter: Private) -> bool:
    vector = parameter.ndim == 1 or (parameter.ndim == 2 and parameter.shape[1] == 1)
    return vector and parameter.unit in ("entry", "row") and _sized(parameter)


def _recognise(problem: cp.Problem, count: int) -> Recognised:
    refuse_hidden(problem)
    maximize = isinstance(problem.objective, cp.Maximize)
    objective = problem.objective.args[0]
    found = take_apart(objective, count, -1.0 if maximize else 1.0)
    reads, prediction, label = read_predictions(found)
    matched = match(reads, label)
    blocks, coefficients, constant = _stack(prediction, matched.factor, count)
    penalty_expression = whole_penalty(found.public)
    constraints, variables = tuple(problem.constraints), tuple(problem.variables())
    public = PublicPart(coefficients, constraints, penalty_expression)
    public.require_values()
    scale = float(matched.weight.mean())
    weights = matched.weight / scale
    out = Recognised(
        loss=matched.loss,
        count=count,
        scale=scale,
        blocks=blocks,
        label=matched.label,
        offset=matched.offset,
        weights=None if close(weights, 1.0) else weights,
        coefficients=coefficients,
        constant=constant,
        penalty=read_penalty(found.public, public),
        penalty_expression=penalty_expression,
        constraints=constraints,
        variables=variables,
        public=public,
        where=short(found.terms[0].expression),
        up_to_constant=matched.up_to_constant,
    )
    missing = {id(p) for p in objective.parameters() if isinstance(p, Private)} - {id(p) for p in out.private}
    if missing:
        name = next(p.name() for p in objective.parameters() if id(p) in missing)
        unfit(objective, f"{name} has no part in the loss that was recognised", "terms without it")
    certify(problem, out)
    return out


def _stack(prediction: Prediction, factor: float, count: int) -> tuple[Any, cp.Expression, np.ndarray]:
    """Blocks with their first columns, the stacked coefficients, and which columns are constant."""
    blocks: list[tuple[Any, int]] = []
    parts: list[Any] = []
    constant: list[np.ndarray] = []
    start = 0
    for features, expression in prediction.blocks:
        size = max(int(expression.size), 1)
        blocks.append((features, start))
        parts.append(expression)
        constant.append(np.zeros(size, dtype=bool) if isinstance(features, Features) else _constant_columns(features))
        start += size
    if prediction.intercept is not None:
        blocks.append((np.ones((count, 1)), start))
        parts.append(prediction.intercept)
        constant.append(np.ones(1, dtype=bool))
    stacked = parts[0] if len(parts) == 1 and parts[0].ndim == 1 else cp.hstack(parts)
    return tuple(blocks), stacked if factor == 1 else factor * stacked, np.concatenate(constant)


def _constant_columns(features: Any) -> np.ndarray:
    if sp.issparse(features):
        lowest, highest = features.min(axis=0).toarray().ravel(), features.max(axis=0).toarray().ravel()
        return np.asarray(lowest == highest)
    return np.asarray(features.min(axis=0) == features.max(axis=0))


# ------------------------------------------------------------------ what must not be there
def refuse_hidden(problem: cp.Problem) -> None:
    """Private parameters must be where the walk sees them, each once, and not in attributes of variables."""
    for variable in problem.variables():
        for bound in variable.attributes["bounds"] or ():
            if isinstance(bound, cp.Expression) and is_private(bound):
                unfit(bound, f"it bounds variable {variable.name()}", "public bounds on coefficients")
    seen: dict[int, Any] = {}
    for node in _walk(problem.objective.args[0]):
        if isinstance(node, (cp.Parameter, cp.Variable)):
            twin = seen.setdefault(node.id, node)
            if twin is not node:
                unfit(node, f"{twin.name()} has the same CVXPY id", "a parameter made anew, or copy.deepcopy")
    for parameter in problem.objective.parameters():
        if isinstance(parameter, Private) and parameter.id not in seen:
            holder = _innermost_with(problem.objective.args[0], parameter)
            unfit(
                holder,
                f"{parameter.name()} stands where it changes the loss itself (a threshold or an exponent)",
                "a public number there",
            )


def _walk(expression: Any) -> Iterator[Any]:
    stack = [expression]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(node.args)


def _innermost_with(expression: Any, parameter: Any) -> Any:
    while True:
        inner = [arg for arg in expression.args if any(p is parameter for p in arg.parameters())]
        if not inner:
            return expression
        expression = inner[0]


# ------------------------------------------------------------------ the certificate
def certify(problem: cp.Problem, claimed: Recognised) -> None:
    """Compare the user's objective with the claimed normal form at random points.

    Raises
    ------
    UnsupportedModelError
        When they differ: the model is then not what it was taken for.
    """
    maximize = isinstance(problem.objective, cp.Maximize)
    expression = -problem.objective.args[0] if maximize else problem.objective.args[0]
    shared: dict[bool, dict[int, Any]] = {}
    for seed in range(_POINTS):
        shared = shared if claimed.count >= _MANY else {}
        values = at_a_random_point(partial(_values, expression, claimed, seed, shared))
        rounding = 1e-13 * np.abs(values[:, 1:]).max()
        # Where a constant was left out, differences between two points are compared.
        losses, public, theirs = values[0] - values[1] if claimed.up_to_constant else values[0]
        if not abs(losses + public - theirs) <= _AGREE * abs(losses) + rounding:
            unfit(
                problem.objective.args[0],
                f"it was read as a sum of {claimed.loss.name.replace('_', ' ')} losses, which has other values",
                "one of the spellings of the documentation",
            )


def _values(
    expression: Any, claimed: Recognised, seed: int, shared: dict[bool, dict[int, Any]], dense: bool, size: float
) -> Floats:
    """(points, 3) claimed losses, public terms and the user's objective, at random points that share private numbers:
    two where a constant was left out, otherwise one. ``shared`` : these numbers, sparse and dense, where known."""
    point = Point(claimed.variables, claimed.private, 100 + seed, dense=dense, size=size, numbers=shared.get(dense))
    shared[dense] = point.numbers
    out = [_values_at(point, expression, claimed)]
    if claimed.up_to_constant:
        other = Point(claimed.variables, claimed.private, 200 + seed, size=size, numbers=point.numbers)
        out.append(_values_at(other, expression, claimed))
    return np.asarray(out)


def _values_at(point: Point, expression: Any, claimed: Recognised) -> tuple[float, float, float]:
    c = point.vector(claimed.coefficients)
    c = c if claimed.loss.scores == 1 else c.reshape(claimed.loss.scores, -1).T
    z = np.zeros((claimed.count, *c.shape[1:])) if claimed.offset is None else claimed.offset.copy()
    for features, start in claimed.blocks:
        if isinstance(features, Features):
            z += features.predict(point.numbers[id(features.parameter)], c[start : start + features.size])
        else:
            z += features @ c[start : start + features.shape[1]]
    label: Any = np.ones(claimed.count) if claimed.label is None else claimed.label
    if isinstance(label, Label):
        label = label.of(point.numbers[id(label.parameter)])
    losses = claimed.loss.value(z, label)
    mine = claimed.scale * float(losses.sum() if claimed.weights is None else claimed.weights @ losses)
    public = 0.0 if claimed.penalty_expression is None else point.scalar(claimed.penalty_expression)
    return mine, public, point.scalar(expression)
