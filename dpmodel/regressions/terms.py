"""The objective as a sum: losses of single records, and what is public.

The user's tree is taken apart from the outside: sums, public multiples and means, weights, then the atoms of one record
(squares, absolute values, maxima, Huber, logistic) down to forms that are affine in the variables.

Losses written record by record, ``sum(cp.square(X[i] @ w - y[i]) for i in range(n))``, are gathered by kind: terms of
one kind differ in the record and in public numbers alone. Each kind is read once, as the expression of all records that
has these terms as its entries: ``cp.square(X @ w - y)``. The work is linear in the number of terms, and a kind misread
is found where the objective is compared at random points.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.compile.atoms import diagonal, exponent, is_number, is_private, kind, number_of, rebuilt
from dpmodel.marks.private import Private
from dpmodel.regressions.features import Features
from dpmodel.regressions.forms import Form, NotPerRecord, form_of, picks_rows, summands, unfit, vector_of

_EACH_ENTRY = ("add", "negate", "multiply", "divide", "maximum", "minimum", "abs", "logistic", "huber", "power")
_SHAPES = ("promote", "broadcast", "reshape", "transpose", "conjugate", "sum", "max", "min")


class _NotOfOneRecord(Exception):
    """The term reads more than one record, or is built of atoms that do not act entry by entry."""


@dataclass
class _Kind:
    """Terms alike: the first as written, and by record the factor and the public numbers within."""

    first: Any
    factors: dict[int, float] = field(default_factory=dict)
    numbers: dict[int, list[Any]] = field(default_factory=dict)


@dataclass
class Loops:
    """The terms of single records met so far."""

    count: int
    kinds: dict[Hashable, _Kind] = field(default_factory=dict)
    known: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    def add(self, expression: Any, factor: float) -> bool:
        """Take ``factor * expression`` if it is a term of one record."""
        if self.count == 1 or not picks_rows(expression):
            return False
        reading = _Reading(self)
        try:
            key = reading.key(expression)
        except _NotOfOneRecord:
            return False
        record, turn = reading.record, 0
        assert record is not None
        while record in (found := self.kinds.setdefault((key, turn), _Kind(expression))).factors:
            turn += 1  # the same record again: a kind of its own
        found.factors[record], found.numbers[record] = factor, reading.numbers
        return True

    def expressions(self) -> Iterator[tuple[Any, Floats]]:
        """(entries, factors (n,)) of every kind, records without a term with factor 0."""
        for found in self.kinds.values():
            factors = np.zeros(self.count)
            factors[list(found.factors)] = list(found.factors.values())
            some = next(iter(found.numbers.values()))
            rows = [found.numbers.get(i, some) for i in range(self.count)]
            columns = iter([np.stack(column) for column in zip(*rows, strict=True)])
            yield _lifted(found.first, columns), factors


@dataclass
class _Reading:
    """One walk through a term: its record, the public numbers in order, and a key that is equal for terms alike."""

    loops: Loops
    record: int | None = None
    numbers: list[Any] = field(default_factory=list)

    def key(self, node: Any) -> Any:
        name = kind(node)
        if name == "index" and isinstance(node.args[0], Private):
            return self._entry(node)
        if is_number(node):
            value = _number(node)
            if value is None:
                return self._public(node)
            self.numbers.append(value)
            return "numbers", value.size
        if _opaque(node):
            if not node.is_affine():
                raise _NotOfOneRecord
            return self._public(node)
        if name == "matmul" and all(is_private(arg) or _number(arg) is not None for arg in node.args):
            raise _NotOfOneRecord
        if name != "matmul" and any(arg.size != node.size for arg in node.args):
            raise _NotOfOneRecord  # one number for a whole row: with a record each, it would stand for a column
        if name == "matmul" or _entry_by_entry(node):
            data = exponent(node) if name == "power" else float(number_of(node.M)) if name == "huber" else None
            return name, data, node.size == 1, *[self.key(arg) for arg in node.args]
        raise _NotOfOneRecord

    def _entry(self, node: Any) -> Hashable:
        """A private row, or a part of it."""
        parameter, (record, rest) = node.args[0], _record_of(node)
        if self.record not in (None, record) or _records(parameter) != self.loops.count:
            raise _NotOfOneRecord
        self.record = record
        return "private", id(parameter), repr(rest)

    def _public(self, node: Any) -> Any:
        """Public expressions: equal keys for equal trees."""
        known = self.loops.known.get(id(node))
        if known is None:
            if not node.args:
                key: Any = id(node) if node.variables() else np.asarray(node.value).tobytes()
            elif any(isinstance(arg, list) for arg in node.args):
                raise _NotOfOneRecord
            else:
                key = (type(node), repr(node.get_data()), *[self._public(arg) for arg in node.args])
            known = self.loops.known[id(node)] = node, key  # the node is kept: its id must not be used again
        return known[1]


def _axis(parameter: Private) -> int:
    """Along which records are numbered."""
    return 1 if parameter.ndim == 2 and parameter.unit == "column" else 0


def _records(parameter: Private) -> int:
    return int(parameter.shape[_axis(parameter)])


def _record_of(node: Any) -> tuple[int, Any]:
    """(record, key of the rest) of ``X[i]``, ``X[i, :2]``, ``y[i]`` or ``XT[:, i]``."""
    parameter, keys = node.args[0], getattr(node, "_orig_key", None)
    if keys is None:
        raise _NotOfOneRecord
    axis = _axis(parameter)
    rows = range(parameter.shape[axis])[node.key[axis]]
    keys = keys if isinstance(keys, tuple) else (keys,)
    if len(rows) != 1 or len(keys) > parameter.ndim:
        raise _NotOfOneRecord
    return rows[0], keys[1 - axis] if len(keys) == 2 else slice(None)


def _number(node: Any) -> Any:
    """Value of a public number or vector, which may differ from term to term; None for anything else."""
    if not is_number(node) or (node.ndim > 1 and node.size > 1):
        return None
    value = number_of(node)
    value = np.asarray(value.toarray() if sp.issparse(value) else value)
    return value.reshape(()) if value.size == 1 else value


def _opaque(node: Any) -> bool:
    """Whether a part without private parameters is the same for all records, as it is written."""
    if is_private(node):
        return False
    mixes = kind(node) == "matmul" and any(_number(arg) is not None for arg in node.args)
    return node.size > 1 or not (mixes or _entry_by_entry(node))


def _entry_by_entry(node: Any) -> bool:
    """Whether the atom acts on each entry, or on the one that it has."""
    name = kind(node)
    if name in _EACH_ENTRY:
        return True
    return name in (*_SHAPES, "quad_over_lin", "norm1", "pnorm") and node.args[0].size == 1


def _product(node: Any, left: Any, right: Any) -> Any:
    """``left @ right``, one of which has a row for each record: k numbers, of which the other is a map."""
    rows, other = left, right
    if not _by_record(node.args[0]):
        rows, other = right, left.T if left.ndim == 2 else left
    if rows.ndim == 1 and other.size == 1:
        return cp.multiply(rows, cp.reshape(other, (), order="F"))
    if node.size == 1 and other.ndim == 2:
        other = cp.reshape(other, (other.size,), order="F")
    if rows.ndim != 2 or rows.shape[1] != other.shape[0]:
        unfit(node, "a row of one record is multiplied by something else than a map of its entries", "X[i] @ w")
    return rows @ other


def _by_record(node: Any) -> bool:
    """Whether it becomes one number, or row of numbers, for each record."""
    return _number(node) is not None if is_number(node) else not _opaque(node)


def _lifted(node: Any, numbers: Iterator[Any]) -> Any:
    """The expression of all records that has terms like this one as its entries."""
    name = kind(node)
    if name == "index" and isinstance(node.args[0], Private):
        parameter, rest = node.args[0], _record_of(node)[1]
        if parameter.ndim == 1:
            return parameter
        rows = parameter.T if parameter.unit == "column" else parameter
        return rows if isinstance(rest, slice) and rest == slice(None) else rows[:, rest]
    if is_number(node):
        if _number(node) is None:
            return node
        found = next(numbers)
        return cp.Constant(found[0] if found.ndim == 1 and np.ptp(found) == 0 else found)
    if _opaque(node):
        return node
    args = [_lifted(arg, numbers) for arg in node.args]
    match name:
        case "matmul":
            return _product(node, *args)
        case "quad_over_lin":
            return cp.square(args[0]) / args[1]
        case "norm1" | "pnorm":
            return cp.abs(args[0])
        case _ if name in _SHAPES:
            return args[0]
        case _:
            return rebuilt(node, args)


# ------------------------------------------------------------------ the objective taken apart


_LOSSES = (
    "squares (cp.sum_squares), absolute values (cp.norm1, cp.abs), cp.huber, maxima of two affine parts (quantile, "
    "hinge), cp.logistic, and squared hinges of X @ w, summed over the records"
)

_STACKS = ("hstack", "vstack", "concatenate")
_ENTRYWISE = ("power", "abs", "huber", "logistic")


@dataclass(frozen=True)
class Term:
    """``sum_i coefficient_i * (vectors)_i * atom(forms_i) ** power``.

    ``atom`` : "affine", "abs", "maximum", "huber" or "logistic"; ``threshold`` is Huber's.
    """

    atom: str
    coefficient: Floats
    forms: tuple[Form, ...]
    expression: Any
    vectors: tuple[Features, ...] = ()
    power: int = 1
    threshold: float = float("nan")


@dataclass
class Objective:
    """``terms`` : losses of records; ``public`` : (factor, scalar expression) without private parameters; ``loops`` :
    terms of single records, which become terms of all when the objective was read."""

    count: int
    loops: Loops
    terms: list[Term] = field(default_factory=list)
    public: list[tuple[float, cp.Expression]] = field(default_factory=list)


def take_apart(expression: Any, count: int, factor: float = 1.0) -> Objective:
    """Split ``factor * expression`` (a scalar).

    Raises
    ------
    UnsupportedModelError
        Naming the innermost term that is neither public nor a sum of losses of single records.
    """
    out = Objective(count, Loops(count))
    _scalar(expression, factor, out)
    for entries, factors in out.loops.expressions():
        _vector(entries, factors, (), out)
    return out


def _scalar(expression: Any, factor: float, out: Objective) -> None:
    """A scalar part of the objective."""
    for times, term in summands(expression, factor, lambda e: not is_private(e)):
        if not is_private(term):
            out.public.append((times, term))
        elif not out.loops.add(term, times):
            _term(term, times, out)


def _term(expression: Any, factor: float, out: Objective) -> None:
    """A private term that is no sum as it is written."""
    args = expression.args
    match kind(expression):
        case "sum" | "quad_over_lin" | "norm1" if kind(args[0]) in _STACKS:  # a sum over all that is stacked
            for piece in args[0].args:
                _scalar(expression.copy([piece, *args[1:]]), factor, out)
        case "sum" if kind(args[0]) in _ENTRYWISE and kind(args[0].args[0]) in _STACKS:
            for piece in args[0].args[0].args:
                _scalar(cp.sum(args[0].copy([piece])), factor, out)
        case "sum" if args[0].size == 1 and out.count > 1:
            _scalar(args[0], factor, out)
        case "sum":
            _vector(args[0], np.asarray(factor), (), out)
        case "matmul":
            _inner_product(expression, factor, out)
        case "quad_over_lin" if is_number(args[1]):
            by = float(vector_of(args[1], 1))
            _square(args[0], np.asarray(factor / by), out)
        case "norm1":
            _atom("abs", (args[0],), np.asarray(factor), (), expression, out)
        case "power" if exponent(expression) == 2:
            _square(args[0], np.asarray(factor), out)
        case "pnorm" if expression.p == 2:
            unfit(
                expression,
                "a norm that is not squared is no sum over the records",
                "cp.sum_squares(...) or cp.norm(...) ** 2",
                NotPerRecord,
            )
        case _ if expression.is_affine():
            unfit(
                expression,
                "this private term is no loss of single records",
                f"{_LOSSES}; or a problem whose objective is affine in the private parameters",
            )
        case "quad_form" if is_number(args[1]) and (weights := diagonal(args[1])) is not None:
            _square(args[0], factor * weights, out)
        case _ if picks_rows(expression):
            unfit(
                expression,
                "rows are picked one by one, and this is no loss of one record",
                "X[i] @ w and y[i] of one record in each term, or one expression for all: cp.sum(cp.square(X @ w - y))",
            )
        case _ if any(isinstance(p, Private) and p.ndim == 2 for p in expression.parameters()):
            unfit(expression, "it is no sum over the records", _LOSSES, NotPerRecord)
        case _:
            unfit(expression, "it is no sum over the records", _LOSSES)


def _inner_product(expression: Any, factor: float, out: Objective) -> None:
    """Public weights or private labels times one entry per record."""
    left, right = expression.args
    for vector, rest in ((left, right), (right, left)):
        if vector.size != out.count or rest.size != out.count:
            continue
        if not vector.variables():
            for monomial in form_of(vector, out.count):
                _vector(rest, factor * monomial.coefficient, monomial.vectors, out)
            return
    unfit(
        expression,
        "products over the records are of public weights or private labels with one entry per record",
        "weights @ losses, or y @ (X @ w)",
    )


def _square(inner: Any, factor: Floats, out: Objective) -> None:
    """``factor * sum(inner ** 2)``; a squared 2-norm is the sum of squares of its argument."""
    if inner.size == 1 and kind(inner) == "pnorm" and inner.p == 2:
        _square(inner.args[0], factor, out)
        return
    if kind(inner) in _STACKS and factor.ndim == 0:
        for piece in inner.args:
            _scalar(cp.sum_squares(piece), float(factor), out)
        return
    if inner.size == 1 and out.count > 1:
        unfit(
            inner,
            "the square of one number that all records share is no sum over them",
            "cp.sum_squares of a vector with one entry per record",
            NotPerRecord,
        )
    _powered(inner, factor, (), inner, out)


def _powered(inner: Any, factor: Floats, vectors: tuple[Features, ...], whole: Any, out: Objective) -> None:
    """Squares of affine forms, absolute values and maxima with 0."""
    _require_entries(inner, out.count)
    name = kind(inner)
    if name in ("reshape", "transpose", "conjugate", "negate", "abs"):
        _powered(inner.args[0], factor, vectors, whole, out)
    elif inner.is_affine():
        out.terms.append(Term("affine", factor, (form_of(inner, out.count),), whole, vectors, power=2))
    elif (found := _largest(inner)) is not None:
        # (min(u, v))^2 = (max(-u, -v))^2
        sign = np.asarray(1.0 if found[0] == "maximum" else -1.0)
        forms = tuple(tuple(m.times(sign) for m in form_of(arg, out.count)) for arg in found[1])
        out.terms.append(Term("maximum", factor, forms, whole, vectors, power=2))
    elif name == "multiply" and any(is_number(arg) for arg in inner.args):
        number, rest = inner.args if is_number(inner.args[0]) else inner.args[::-1]
        _powered(rest, factor * vector_of(number, out.count) ** 2, vectors, whole, out)
    elif name == "divide" and is_number(inner.args[1]):
        _powered(inner.args[0], factor / vector_of(inner.args[1], out.count) ** 2, vectors, whole, out)
    else:
        unfit(inner, "squares are taken of residuals and of cp.pos(1 - margin)", _LOSSES)


def _largest(expression: Any) -> tuple[str, list[Any]] | None:
    """("maximum" or "minimum", the arguments) of an entrywise maximum, also of what was stacked along another axis."""
    name = kind(expression)
    if name in ("maximum", "minimum"):
        return name, list(expression.args)
    inner = expression.args[0] if expression.args else expression
    if name not in ("max", "min") or kind(inner) not in ("vstack", "hstack") or inner.ndim != 2:
        return None
    axis = 0 if kind(inner) == "vstack" else 1
    if expression.axis not in (axis, axis - 2) or not all(p.ndim == 1 or p.shape[axis] == 1 for p in inner.args):
        return None
    return name + "imum", list(inner.args)


def _require_entries(expression: Any, count: int) -> None:
    if expression.size != count:
        if expression.ndim == 2 and expression.shape[0] == count:
            unfit(
                expression,
                f"it has shape {tuple(expression.shape)}: several outputs of {count} records, all of which one record "
                "moves at once",
                "variables with a column (or one entry) for each output, as in X @ W + b - Y; or one problem for each "
                "output with a share of the budget, cp.sum_squares(X @ w - Y[:, 0]) say",
            )
        unfit(
            expression,
            f"it has shape {tuple(expression.shape)}: not one entry for each of {count} records",
            "losses with one entry per record",
        )


def _vector(expression: Any, factor: Floats, vectors: tuple[Features, ...], out: Objective) -> None:
    """``sum_i factor_i vectors_i expression_i`` of an expression with one entry per record."""
    count = out.count
    if not is_private(expression) and not vectors:
        weights = expression.size if expression.size != 1 else count
        if factor.ndim == 0:
            scale = float(factor) * (weights if expression.size == 1 else 1)
            out.public.append((scale, cp.sum(expression)))
        else:
            flat = cp.vec(expression, order="F") if expression.size != 1 else float(factor.sum()) * expression
            out.public.append((1.0, factor @ flat if expression.size != 1 else cp.sum(flat)))
        return
    if expression.size == 1 and count > 1 and kind(expression) in ("promote", "broadcast"):
        expression = expression.args[0]
    if is_private(expression):
        _require_entries(expression, count)
    args = expression.args
    if expression.is_affine():
        out.terms.append(Term("affine", factor, (form_of(expression, count),), expression, vectors))
        return
    match kind(expression):
        case "add":
            _sum(args, factor, vectors, out)
        case "negate":
            _vector(args[0], -factor, vectors, out)
        case "reshape" | "transpose" | "conjugate" | "broadcast" | "promote" if args[0].size == expression.size:
            _vector(args[0], factor, vectors, out)
        case "divide" if is_number(args[1]):
            _vector(args[0], factor / vector_of(args[1], count), vectors, out)
        case "multiply" if any(is_number(arg) for arg in args):
            number, rest = args if is_number(args[0]) else args[::-1]
            _vector(rest, factor * vector_of(number, count), vectors, out)
        case "multiply" if any(not arg.variables() for arg in args):
            # A private vector times losses: (1 - y) * logistic(z) and the like.
            outside, rest = args if not args[0].variables() else args[::-1]
            for monomial in form_of(outside, count):
                _vector(rest, factor * monomial.coefficient, (*vectors, *monomial.vectors), out)
        case "abs" | "logistic":
            _atom(kind(expression), args, factor, vectors, expression, out)
        case "matmul" if args[0].size == count**2 > 1 and is_number(args[0]):
            weights = diagonal(args[0])
            if weights is None:
                unfit(expression, "a public matrix mixes the records", "public weights: cp.multiply(weights, losses)")
            _vector(args[1], factor * weights, vectors, out)
        case "maximum" | "minimum" | "max" | "min" if (found := _largest(expression)) is not None:
            _atom(*found, factor, vectors, expression, out)
        case "huber":
            if is_private(expression.M):
                unfit(expression, "Huber's threshold M is private", "a public number M")
            threshold = float(np.asarray(number_of(expression.M)).reshape(()))
            _atom("huber", args, factor, vectors, expression, out, threshold)
        case "power" if exponent(expression) == 2:
            _powered(args[0], factor, vectors, expression, out)
        case "power" if exponent(expression) == 1:
            _vector(args[0], factor, vectors, out)
        case _:
            unfit(expression, "it is none of the losses that are recognised", _LOSSES)


def _sum(args: list[Any], factor: Floats, vectors: tuple[Features, ...], out: Objective) -> None:
    """Affine summands stay together: CVXPY flattens sums, and a residual's intercept belongs to the residual."""
    affine = [arg for arg in args if arg.is_affine()]
    if any(map(is_private, affine)):
        form = tuple(m for arg in affine for m in form_of(arg, out.count))
        worst = next(arg for arg in affine if is_private(arg))
        out.terms.append(Term("affine", factor, (form,), worst, vectors))
        args = [arg for arg in args if not arg.is_affine()]
    for arg in args:
        _vector(arg, factor, vectors, out)


def _atom(
    name: str,
    args: tuple[Any, ...] | list[Any],
    factor: Floats,
    vectors: tuple[Features, ...],
    whole: Any,
    out: Objective,
    threshold: float = float("nan"),
) -> None:
    if whole.size != 1 or name == "abs":
        _require_entries(args[0] if len(args) == 1 else max(args, key=lambda a: a.size), out.count)
    for arg in args:
        if not arg.is_affine():
            if name == "abs" and kind(arg) in ("reshape", "transpose", "conjugate"):
                _atom(name, arg.args, factor, vectors, whole, out)
                return
            unfit(arg, "the argument of a loss must be affine in the variables", _LOSSES)
    forms = tuple(form_of(arg, out.count) for arg in args)
    if name == "minimum":
        name, factor = "maximum", -factor
        forms = tuple(tuple(m.times(np.asarray(-1.0)) for m in form) for form in forms)
    out.terms.append(Term(name, factor, forms, whole, vectors, threshold=threshold))
