"""Recognising a regression on the user's tree, before anything is lowered: its loss, rows, labels and penalty.

Several outputs are read from the entries of one objective (``outputs``). So are the scores of a multinomial regression,
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
from functools import partial
from typing import Any, TypeVar

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.compile.atoms import is_private, kind
from dpmodel.compile.refusals import refuse_blocks, short
from dpmodel.compile.rows import CutRows, rows_of_one_source
from dpmodel.errors import UnsupportedModelError
from dpmodel.marks.private import Private
from dpmodel.regressions.features import Features, Label, tidy
from dpmodel.regressions.losses import Loss, Softmax
from dpmodel.regressions.match import match
from dpmodel.regressions.monomials import NotPerRecord, unfit
from dpmodel.regressions.outputs import Columns, split
from dpmodel.regressions.penalties import Penalty, read_penalty, whole_penalty
from dpmodel.regressions.points import Point, at_a_random_point
from dpmodel.regressions.predictions import Prediction, close, read_predictions
from dpmodel.regressions.public import PublicPart
from dpmodel.regressions.terms import Objective, is_row_wise, take_apart

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
    (n, k), dense or CSR. ``label`` : private, public (n,), or None (all 1). ``offset`` : (n,) public, or None.
    ``weights`` : (n,) public of mean 1, private ones in [0, 1], or None (all 1). ``up_to_constant`` : a number
    that depends on the private data alone was left out.
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
    weights: Label | Floats | None
    coefficients: cp.Expression
    constant: np.ndarray
    penalty: Penalty
    penalty_expression: cp.Expression | None
    constraints: tuple[Any, ...]
    public: PublicPart
    where: str
    up_to_constant: bool = False

    @property
    def parts(self) -> tuple[Recognised, ...]:
        """One for each output."""
        return (self,)

    @property
    def columns(self) -> Columns:
        """Those of ``Outputs``: its coefficients are the user's."""
        return ()

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
        """The private blocks, and what the label and the weights are made of."""
        found = [features for features, _ in self.blocks if isinstance(features, Features)]
        return (*found, *(each.features for each in (self.label, self.weights) if isinstance(each, Label)))


@dataclass(frozen=True, eq=False)
class Outputs:
    """Regressions over the same records whose objectives add up, one for each column of the predictions.

    ``columns`` : (user's variable, ((own variable of an output, entries that it stands for), ...)).
    """

    parts: tuple[Recognised, ...]
    columns: Columns

    @property
    def private(self) -> tuple[Private, ...]:
        """The private parameters, each once."""
        return tuple({id(p): p for part in self.parts for p in part.private}.values())


def recognise(problem: cp.Problem) -> Recognised | Outputs | None:
    """The regression that ``problem`` is, or several with one objective; None when it is no candidate for one.

    With private weights, ``cp.multiply(weights, losses)`` or ``weights @ losses``, it is what it is with weights 1, and
    the user's own objective is compared with that of the weights.

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
    Errors: UnsupportedModelError, for a candidate that does not fit, naming the term; MissingValueError, for public
    parameters without a value: weights, thresholds and penalties are public numbers.
    """
    if any(isinstance(each, Private) and each.in_blocks for each in problem.parameters()):
        return recognise_blocks(problem)
    weights = _private_weights(problem.objective.args[0])
    if weights is None:
        return _recognise(problem)
    try:
        return _recognise(problem)  # y * cp.logistic(-z) + (1 - y) * cp.logistic(z), say
    except UnsupportedModelError as refusal:
        refused = refusal
    try:
        found = _weighed(problem, weights)
    except UnsupportedModelError:
        found = None
    if found is None:
        raise refused
    return found


def _private_weights(objective: Any) -> Private | None:
    """The one private vector that multiplies private losses and is not negative; None without or with several."""
    found: dict[int, Private] = {}
    for node in _walk(objective):
        pair = tuple(node.args) if kind(node) in ("multiply", "matmul") and len(node.args) == 2 else ()
        for each, other in (pair, pair[::-1]) if pair else ():
            if isinstance(each, Private) and _is_entries(each) and is_private(other) and not other.is_affine():
                found[id(each)] = each
    each = next(iter(found.values())) if len(found) == 1 else None
    low, high = (
        (0.0, 0.0) if each is None else (float(end) for end in Label(Features(each), np.ones(()), np.zeros(())).range)
    )
    return each if 0 <= low < high < np.inf else None


def _weighed(problem: cp.Problem, weights: Private) -> Recognised | Outputs | None:
    """The regression of ``problem`` with weights 1, and with these."""
    ones = cp.Constant(np.ones(weights.shape))
    loss = problem.objective.args[0].tree_copy({id(weights): ones})
    found = _recognise(cp.Problem(type(problem.objective)(loss), problem.constraints))
    if found is None or any(part.weights is not None for part in found.parts):
        return None
    largest = Label(Features(weights), np.ones(()), np.zeros(())).range[1]
    share = Label(Features(weights), np.asarray(1 / largest), np.zeros(()), limits=(0.0, 1.0))
    parts = tuple(replace(part, scale=part.scale * largest, weights=share) for part in found.parts)
    if isinstance(found, Outputs):
        return _certified(problem, Outputs(parts, found.columns))
    return _certified(problem, parts[0])


def _recognise(problem: cp.Problem) -> Recognised | Outputs | None:
    """As ``recognise``, without private weights."""
    objective = problem.objective.args[0]
    rows = _of_rows(objective)
    if rows is not None and _has_rows(objective):  # else it is a program with exponential cones
        return _multinomial(problem, rows)
    private = _in_losses(objective)
    turned = _turned(objective) if any(p.unit == "column" for p in private) else set()
    candidates = [p for p in private if _is_rows(p) or _is_entries(p) or (id(p) in turned and _sized(p))]
    if not candidates:
        return None
    features = [p for p in candidates if not _is_entries(p)]
    first = (features or candidates)[0]
    found: Objective | None = None
    try:
        refuse_hidden(problem)
        found = _taken_apart(problem, int(first.shape[1 if id(first) in turned else 0]))
        found.require_one_output()
        return _certified(problem, _read(found, tuple(problem.constraints)))
    except NotPerRecord:
        if problem.is_dpp():
            return None
        raise
    except UnsupportedModelError as refusal:
        if not features and problem.is_dpp():
            return None
        refused = refusal
    try:
        several = None if found is None else split(problem, found)
        if several is None:
            raise refused
        outputs, columns = several
        parts = tuple(_read(output.found, output.constraints, output.swap) for output in outputs)
        return _certified(problem, Outputs(parts, columns))
    except UnsupportedModelError:
        if problem.is_dpp() and not _has_private_products(objective):
            return None
        raise


def _has_rows(objective: Any) -> bool:
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


def _taken_apart(problem: cp.Problem, count: int, classes: bool = False) -> Objective:
    sign = -1.0 if isinstance(problem.objective, cp.Maximize) else 1.0
    return take_apart(problem.objective.args[0], count, sign, classes)


def _read(found: Objective, constraints: tuple[Any, ...], swap: dict[int, Any] | None = None) -> Recognised:
    """The regression of one prediction; ``swap`` : what stands for the variables of its coefficients."""
    reads, prediction, label = read_predictions(found)
    matched = match(reads, label)
    blocks, coefficients, constant = _stack(prediction, matched.factor, found.count)
    coefficients = coefficients.tree_copy(swap) if swap else coefficients
    scale = float(matched.weight.mean())
    weights = matched.weight / scale
    penalty = whole_penalty(found.public)
    public = PublicPart(coefficients, constraints, penalty)
    public.require_values()
    return Recognised(
        loss=matched.loss,
        count=found.count,
        scale=scale,
        blocks=blocks,
        label=matched.label,
        offset=matched.offset,
        weights=None if close(weights, 1.0) else weights,
        coefficients=coefficients,
        constant=constant,
        penalty=read_penalty(found.public, public),
        penalty_expression=penalty,
        constraints=constraints,
        public=public,
        where=short(found.terms[0].expression),
        up_to_constant=matched.up_to_constant,
    )


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
F = TypeVar("F", Recognised, Outputs)


def _certified(problem: cp.Problem, claimed: F) -> F:
    """``claimed``, if the user's objective has its values at random points.
    Errors: UnsupportedModelError, when they differ: the model is then not what it was taken for."""
    objective = problem.objective.args[0]
    missing = {id(p) for p in objective.parameters() if isinstance(p, Private)} - {id(p) for p in claimed.private}
    if missing:
        name = next(p.name() for p in objective.parameters() if id(p) in missing)
        unfit(objective, f"{name} has no part in the loss that was recognised", "terms without it")
    shared: dict[bool, dict[int, Any]] = {}
    for first in range(100, 100 + _POINTS):
        shared = shared if claimed.parts[0].count >= _MANY else {}
        found = at_a_random_point(partial(_values, problem, claimed, first, shared))
        rounding = 1e-13 * np.abs(found[:, 1:]).max()
        losses, public, theirs = found[0] if len(found) == 1 else found[0] - found[1]
        if not abs(losses + public - theirs) <= _AGREE * abs(losses) + rounding:
            name = claimed.parts[0].loss.name.replace("_", " ")
            unfit(
                objective,
                f"it was read as a sum of {name} losses, which has other values",
                "one of the spellings of the documentation",
            )
    return claimed


def _values(
    problem: cp.Problem, claimed: Recognised | Outputs, first: int, shared: Any, dense: bool, size: float
) -> Floats:
    """(points, 3) claimed losses, public terms and the user's objective, at random points that share private numbers:
    two where a constant was left out, of which differences are compared, otherwise one. ``shared`` : these numbers,
    sparse and dense, where known."""
    out, objective = [], problem.objective.args[0]
    expression = -objective if isinstance(problem.objective, cp.Maximize) else objective
    for number in (first, first + 100)[: 1 + any(part.up_to_constant for part in claimed.parts)]:
        point = Point(problem.variables(), claimed.private, number, dense=dense, size=size, numbers=shared.get(dense))
        shared[dense] = point.numbers
        for variable, shares in claimed.columns:
            given = point.swap[id(variable)].value.ravel(order="F")
            own = [(each, entries) for each, entries in shares if each is not variable]
            point.swap |= {id(each): cp.Constant(given[entries]) for each, entries in own}
        losses, public = zip(*(_values_at(point, part) for part in claimed.parts), strict=True)
        out.append((sum(losses), sum(public), point.scalar(expression)))
    return np.asarray(out)


def _values_at(point: Point, claimed: Recognised) -> tuple[float, float]:
    """Claimed losses and public terms."""
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
    losses, weights = claimed.loss.value(z, label), claimed.weights
    weights = weights.of(point.numbers[id(weights.parameter)]) if isinstance(weights, Label) else weights
    mine = claimed.scale * float(losses.sum() if weights is None else weights @ losses)
    return mine, 0.0 if claimed.penalty_expression is None else point.scalar(claimed.penalty_expression)


# ------------------------------------------------------------------ several classes
_SOFTMAX = (
    "cp.sum(cp.log_sum_exp(X @ W + b, axis=1)) - cp.sum(cp.multiply(Y, X @ W + b)) with one-hot rows Y, W of a column "
    "and b of an entry for each class, and public terms"
)


def _of_rows(objective: Any) -> Any:
    """The first private ``cp.log_sum_exp`` of the rows of a matrix; None where there is none."""
    return next((node for node in _walk(objective) if is_row_wise(node) and is_private(node)), None)


def _multinomial(problem: cp.Problem, rows: Any) -> Recognised:
    """The regression, of which ``rows`` are the logarithms of sums of the exponentials of each record's scores.
    Errors: UnsupportedModelError, for any other objective with ``rows``."""
    refuse_hidden(problem)
    count, classes = (int(size) for size in rows.args[0].shape)
    if classes < 2:
        unfit(rows, "it has one score for each record, and classes need two or more", _SOFTMAX)
    parts: list[Recognised] = []
    with contextlib.suppress(UnsupportedModelError):
        found = _taken_apart(problem, count, classes=True)
        scores = split(cp.Problem(problem.objective), replace(found, public=[]))
        parts = [] if scores is None else [_read(score.found, ()) for score in scores[0]]
    if len(parts) != classes or not all(_follows(part, parts[0]) for part in parts):
        unfit(rows, "beside it only the labels times the same scores are subtracted, and public terms added", _SOFTMAX)
    penalty, constraints = whole_penalty(found.public), tuple(problem.constraints)
    coefficients = cp.hstack([part.coefficients for part in parts])
    public, first = PublicPart(coefficients, constraints, penalty), parts[0]
    public.require_values()
    return _certified(
        problem,
        replace(
            first,
            loss=Softmax(classes=classes),
            label=_labels(rows, parts),
            coefficients=coefficients,
            penalty=read_penalty(found.public, public),
            penalty_expression=penalty,
            constraints=constraints,
            public=public,
            where=short(rows),
        ),
    )


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


def _labels(rows: Any, parts: list[Recognised]) -> Label | Floats:
    """(n, K) labels, private or public.
    Errors: UnsupportedModelError, for labels of several parameters, or public ones for some classes only."""
    labels = [part.label for part in parts]
    if not any(isinstance(label, Label) for label in labels):
        return np.column_stack(labels)  # type: ignore[arg-type]
    features = [label.features for label in labels if isinstance(label, Label)]
    if len(features) < len(labels) or len({each.source for each in features}) > 1:
        unfit(rows, "the labels of its classes are not columns of one Private", _SOFTMAX)
    first = features[0]
    maps = [sp.eye_array(each.owned) if each.map is None else each.map for each in features]
    joined = Features(first.parameter, tidy(sp.hstack(maps, format="csr")), first.turned)
    return Label(joined, np.ones(()), np.zeros(()))


# ------------------------------------------------------------------ rows in blocks


def recognise_blocks(problem: cp.Problem) -> Recognised | Outputs | None:
    """As ``recognise``, for a problem with private parameters ``in_blocks``; None where private parameters stand in
    constraints, which no regression has.
    Errors: UnsupportedModelError, SpecificationError, for an objective that is no regression over the rows of one
    source; before any budget is spent."""
    private = [p for p in problem.parameters() if isinstance(p, Private)]
    count = rows_of_one_source(private)
    if any(isinstance(p, Private) for c in problem.constraints for p in c.parameters()):
        return None
    objective = problem.objective
    roots = [objective.args[0], *(each for constraint in problem.constraints for each in constraint.args)]
    small = _Small(CutRows(roots, private, count), objective.args[0])
    found = recognise(cp.Problem(type(objective)(small.rows.cut(small.loss)), problem.constraints))
    if found is None:
        refuse_blocks(private)
    assert found is not None
    parts = tuple(small.enlarged(part) for part in found.parts)
    return Outputs(parts, found.columns) if len(parts) > 1 else parts[0]


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
