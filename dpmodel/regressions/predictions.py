"""The one prediction of all terms: every form as ``plain z + signed y z + label y + constant``, record by record.

Forms are compared at random points: on copies of the tree, with synthetic numbers for private parameters. Neither the
user's variables nor any private value is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.marks.private import Private
from dpmodel.privacy import public_generator
from dpmodel.regressions.features import Features, tidy
from dpmodel.regressions.forms import Form, Monomial, unfit
from dpmodel.regressions.terms import Term

# Private parameters with more entries are stood for by sparse ones, of about so many entries, at least so many a row:
# what mixes the entries of a row shows in two of them.
_DENSE, _STORED, _EACH = 1_000_000, 200_000, 2


class Point:
    """Numbers for variables and private parameters, by which public leaves keep their values.

    ``dense`` : large private matrices too are stood for by dense arrays. ``size`` : if positive, all variables are
    positive and below it. ``numbers`` : those of another point, for the private parameters.
    """

    def __init__(
        self,
        variables: Iterable[Any],
        private: Iterable[Private],
        seed: int,
        dense: bool = False,
        size: float = 0.0,
        numbers: dict[int, Any] | None = None,
    ) -> None:
        rng = public_generator(seed)
        self.swap: dict[int, Any] = {}
        self.numbers: dict[int, Any] = {}
        for variable in variables:
            copy = cp.Variable(variable.shape)
            copy.save_value(_inside(variable, rng.uniform(0.1, 1.0, size=variable.shape), rng, size))
            self.swap[id(variable)] = copy
        for parameter in private:
            number = _stand_in(parameter, rng, dense) if numbers is None else numbers[id(parameter)]
            self.numbers[id(parameter)] = number
            self.swap[id(parameter)] = cp.Constant(number)

    def value(self, expression: Any) -> Any:
        """Value of an expression here; None where CVXPY has none."""
        return expression.tree_copy(self.swap).value

    def scalar(self, expression: Any) -> float:
        """Value of a scalar; nan where CVXPY has none."""
        with np.errstate(all="ignore"):
            value = self.value(expression)
        return float("nan") if value is None else float(np.asarray(value).reshape(()))

    def vector(self, expression: Any) -> Floats:
        """The same, flat."""
        value = self.value(expression)
        value = value.toarray() if sp.issparse(value) else value
        return np.asarray(value, dtype=np.float64).ravel(order="F")


def at_a_random_point(evaluate: Callable[[bool, float], Floats]) -> Floats:
    """Numbers that ``evaluate(dense, size)`` finds with a ``Point``: near 0 where they are not finite elsewhere
    (logarithms and the like), on dense stand-ins where some atom takes no sparse ones."""
    for size in (0.0, 0.01):
        try:
            found = evaluate(False, size)
        except (TypeError, ValueError, AttributeError):
            found = evaluate(True, size)
        if np.isfinite(found).all():
            break
    return found


def _inside(variable: Any, value: Any, rng: Any, size: float) -> Any:
    """Random values that respect the variable's attributes."""
    attributes = variable.attributes
    if size:
        value = value * size
    elif not any(attributes[key] for key in ("nonneg", "pos")):
        value = value * rng.choice([-1.0, 1.0], size=variable.shape)
    if any(attributes[key] for key in ("symmetric", "PSD", "NSD", "diag", "nonpos", "neg")) or (
        variable.sparse_idx is not None
    ):
        value = variable.project(value)
    return np.asarray(value.toarray() if sp.issparse(value) else value)


def _stand_in(parameter: Private, rng: Any, dense: bool) -> Any:
    """Random numbers of the parameter's shape, structure and sign."""
    attributes = parameter.attributes

    def draw(size: Any) -> Any:
        out = rng.uniform(-1, 1, size=size)
        out = np.abs(out) if attributes["nonneg"] or attributes["pos"] else out
        return -np.abs(out) if attributes["nonpos"] or attributes["neg"] else out

    shape = parameter.shape
    if parameter.sparse_idx is not None and shape:
        index = parameter.sparse_idx
        if len(shape) == 2:
            return sp.csc_array((draw(len(index[0])), tuple(index)), shape=shape)
        out = np.zeros(shape)
        out[index] = draw(len(index[0]))
        return out
    if len(shape) == 2 and parameter.size > _DENSE and not dense:
        rows, columns = shape
        each = max(_EACH, _STORED // rows)
        place = np.repeat(np.arange(rows), each), rng.integers(columns, size=rows * each)
        return sp.csc_array((draw(rows * each), place), shape=shape)
    value = draw(shape)
    if any(attributes[key] for key in ("symmetric", "PSD", "NSD")):
        value = (value + value.T) / 2
    return np.diag(np.diag(value)) if attributes["diag"] else value


# ------------------------------------------------------------------ one prediction


# Numbers that should agree do so to this relative accuracy.
CLOSE = 1e-9


@dataclass(frozen=True)
class Affine:
    """(n,) each: the coefficients of the prediction z, of label times prediction, of the label, and the rest."""

    plain: Floats
    signed: Floats
    label: Floats
    constant: Floats

    @property
    def is_zero(self) -> bool:
        return not (self.plain.any() or self.signed.any() or self.label.any() or self.constant.any())


@dataclass(frozen=True)
class Prediction:
    """z: ``blocks`` of (private features or public matrix (n, k); public expression (k,) or scalar) and ``intercept``,
    a scalar expression or None."""

    blocks: tuple[tuple[Any, cp.Expression], ...]
    intercept: cp.Expression | None


@dataclass(frozen=True)
class Read:
    """A term whose forms were read: ``coefficient`` (n,), ``times_label`` whether the label multiplies the atom."""

    term: Term
    coefficient: Floats
    times_label: bool
    parts: tuple[Affine, ...]


def close(a: Any, b: Any, size: float = 0.0) -> bool:
    """Whether two public arrays agree up to rounding (relative to their largest entry and ``size``)."""
    a, b = np.asarray(a), np.asarray(b)
    scale = max(float(np.abs(a).max(initial=0.0)), float(np.abs(b).max(initial=0.0)), size)
    return float(np.abs(a - b).max(initial=0.0)) <= CLOSE * scale


def read_predictions(terms: Sequence[Term], count: int) -> tuple[list[Read], Prediction, Features | None]:
    """Read all forms of ``terms`` as functions of one prediction and at most one private label.

    Raises
    ------
    UnsupportedModelError
        When there are two labels, two predictions, or no prediction.
    """
    label = _label(terms)
    variables = {
        v for t in terms for f in t.forms for m in f if m.expression is not None for v in m.expression.variables()
    }
    points = [Point(sorted(variables, key=lambda v: int(v.id)), (), seed) for seed in (11, 12)]
    splits = [[_Split.of(form, label, term) for form in term.forms] for term in terms]
    reference = _reference(splits)
    if reference is None:
        unfit(terms[0].expression, "no variable stands in a prediction", "X @ w with w a variable")
    term, monomials = reference
    target = _Linear.of(monomials, points, count, term)
    reads = []
    for t, parts in zip(terms, splits, strict=True):
        affines = tuple(
            Affine(
                plain=_multiple(part.plain, target, points, count, t),
                signed=_multiple(part.signed, target, points, count, t),
                label=np.broadcast_to(part.label, (count,)),
                constant=np.broadcast_to(part.constant, (count,)),
            )
            for part in parts
        )
        reads.append(Read(t, np.broadcast_to(t.coefficient, (count,)), bool(t.vectors), affines))
    return reads, target.prediction(count), label


def _label(terms: Sequence[Term]) -> Features | None:
    """The private vector that is not a feature: it stands alone, or multiplies a matrix or a loss."""
    forms = [form for term in terms for form in term.forms]
    found: dict[Any, tuple[Features, Any]] = {}
    for term in terms:
        for vector in term.vectors:
            found[vector.key] = (vector, term.expression)
        for form in term.forms:
            for m in form:
                if len(m.vectors) == 1 and (m.expression is None or m.matrix is not None):
                    found[m.vectors[0].key] = (m.vectors[0], term.expression)
                elif len(m.vectors) == 2 and m.matrix is not None:
                    unfit(term.expression, _two(m.vectors), "one Private that holds the product")
    if not found:  # y * x * w: which of the two is the label is a matter of names; the one that may be a sign
        pairs = [m.vectors for form in forms for m in form if len(m.vectors) == 2]
        if not pairs:
            return None
        signs = [v for v in pairs[0] if max(abs(v.column_range[0].min()), abs(v.column_range[1].max())) <= 1]
        return (signs or pairs[0])[0]
    if len(found) > 1:
        names = " and ".join(v.name() for v, _ in found.values())
        unfit(
            list(found.values())[1][1],
            f"{names} both stand where a label does",
            "one private label; a private feature column multiplies its own variable; several outputs are columns "
            "of one variable, X @ W[:, 0] - Y[:, 0]",
        )
    return next(iter(found.values()))[0]


def _two(vectors: tuple[Features, ...]) -> str:
    return f"{vectors[0].name()} and {vectors[1].name()} both multiply the features"


@dataclass(frozen=True)
class _Split:
    """The monomials of a form by the label: with variables (plain, times label), and without."""

    plain: list[Monomial]
    signed: list[Monomial]
    label: Floats
    constant: Floats

    @staticmethod
    def of(form: Form, label: Features | None, term: Term) -> _Split:
        plain: list[Monomial] = []
        signed: list[Monomial] = []
        with_label, constant = np.zeros(()), np.zeros(())
        for m in form:
            others = tuple(v for v in m.vectors if not v.same(label))
            has_label = len(others) < len(m.vectors)
            if len(others) > 1 or (others and (m.matrix is not None or m.expression is None)):
                unfit(term.expression, f"{others[0].name()} is neither the label nor a feature column", "one label")
            rest = Monomial(m.coefficient, others, m.matrix, m.expression)
            if m.expression is not None:
                (signed if has_label else plain).append(rest)
            elif has_label:
                with_label = with_label + m.coefficient
            else:
                constant = constant + m.coefficient
        return _Split(plain, signed, with_label, constant)


def _reference(splits: list[list[_Split]]) -> tuple[None, list[Monomial]] | None:
    """The first prediction that stands anywhere; one with private features before others."""
    found = [part for split in splits for each in split for part in (each.plain, each.signed) if part]
    private = [part for part in found if any(_source(m) is not None for m in part)]
    chosen = (private or found)[:1]
    return (None, chosen[0]) if chosen else None


def _source(m: Monomial) -> Features | None:
    """The private features that the variables multiply."""
    if isinstance(m.matrix, Features):
        return m.matrix
    return m.vectors[0] if m.vectors else None


def _lead(monomials: list[Monomial]) -> Monomial:
    """The monomial whose coefficient is taken as the factor of the whole."""

    def rank(m: Monomial) -> int:
        return 0 if isinstance(m.matrix, Features) else 1 if m.vectors else 2 if m.matrix is not None else 3

    return min(monomials, key=rank)


def _ratio(coefficient: Floats, factor: Floats) -> Floats:
    """() or (n,) ``coefficient / factor``: a scalar where it is the same for all; nan where it cannot be."""
    if coefficient.ndim == 0 and factor.ndim == 0:
        return np.asarray(coefficient / factor) if factor != 0 else np.asarray(0.0 if coefficient == 0 else np.nan)
    top, bottom = np.broadcast_arrays(coefficient, factor)
    used = bottom != 0
    if top[~used].any():
        return np.asarray(np.nan)
    if not used.any():
        return np.asarray(0.0)
    values = top[used] / bottom[used]
    if close(values, values[0]):
        return np.asarray(values[0])
    out = np.zeros(top.shape)
    out[used] = values
    return out


@dataclass(frozen=True)
class _Linear:
    """``factor_i * (private blocks @ expressions + public part)``, with values at the random points.

    ``private`` : owned numbers -> (points, p) their coefficients; ``public`` : (points, n) or None, already divided by
    ``factor``.
    """

    monomials: list[Monomial]
    factor: Floats
    private: dict[Any, Floats]
    public: Floats

    @staticmethod
    def of(monomials: list[Monomial], points: list[Point], count: int, term: Term | None) -> _Linear:
        factor = _lead(monomials).coefficient
        private: dict[Any, Any] = {}
        public: Floats = np.zeros((len(points), 1))
        for m in monomials:
            assert m.expression is not None
            values = np.stack([point.vector(m.expression) for point in points])
            ratio = _ratio(m.coefficient, factor)
            if (source := _source(m)) is not None:
                if ratio.ndim or np.isnan(ratio):
                    unfit(
                        term.expression if term is not None else m.expression,
                        f"{source.name()} is weighted unlike the other features of the record",
                        "the same public weights on the whole prediction",
                    )
                owned = values if source.map is None else values @ source.map.T
                private[source.source] = private.get(source.source, 0.0) + ratio * owned
            elif m.matrix is not None:
                product = values @ m.matrix.T if sp.issparse(m.matrix) else values @ np.asarray(m.matrix).T
                public = public + ratio * product
            else:
                public = public + ratio * values
        return _Linear(monomials, factor, private, public)

    def prediction(self, count: int) -> Prediction:
        """The same as blocks: features of one private matrix are joined, constant columns are one intercept."""
        joined: dict[Any, list[tuple[Features, Any]]] = {}
        public: list[tuple[Any, cp.Expression]] = []
        intercept: Any = None
        for m in self.monomials:
            ratio = _ratio(m.coefficient, self.factor)
            if (source := _source(m)) is not None:
                joined.setdefault(source.source, []).append((source, _times(m.expression, float(ratio))))
            elif m.matrix is not None:
                public.append((_scaled_rows(m.matrix, ratio), m.expression))
            elif ratio.ndim == 0:
                part = _times(m.expression, float(ratio))
                intercept = part if intercept is None else intercept + part
            else:
                public.append((np.asarray(ratio)[:, None], m.expression))
        # Public columns that say the same of every record are intercepts, and are told so by their numbers later.
        return Prediction((*map(_joined, joined.values()), *public), intercept)


def _joined(parts: list[tuple[Features, Any]]) -> tuple[Features, Any]:
    """One block of all features that are made of the same owned numbers: no record's numbers count twice.

    The rows are the mixed columns where these are no more than the owned numbers, else the owned numbers themselves,
    with the mixing on the side of the coefficients.
    """
    same: dict[Any, tuple[Features, Any]] = {}
    for features, expression in parts:
        known = same.get(features.key)
        same[features.key] = (features, expression if known is None else known[1] + expression)
    found = list(same.values())
    first, owned = found[0][0], found[0][0].owned
    if len(found) == 1 and first.size <= owned:
        return found[0]
    mixed = sp.hstack([sp.eye_array(owned) if f.map is None else f.map for f, _ in found], format="csr")
    stacked = cp.hstack([expression for _, expression in found])
    if mixed.shape[1] <= owned:
        return Features(first.parameter, tidy(mixed), first.turned), stacked
    return Features(first.parameter, None, first.turned), cp.Constant(mixed) @ stacked


def _times(expression: Any, factor: float) -> Any:
    return expression if factor == 1 else factor * expression


def _scaled_rows(matrix: Any, ratio: Floats) -> Any:
    if ratio.ndim == 0:
        return matrix if ratio == 1 else matrix * float(ratio)
    return sp.diags_array(ratio) @ matrix if sp.issparse(matrix) else matrix * ratio[:, None]


def _multiple(monomials: list[Monomial], target: _Linear, points: list[Point], count: int, term: Term) -> Floats:
    """(n,) the number that this part is of the target, record by record; 0 for none."""
    if not monomials:
        return np.zeros(count)
    mine = _Linear.of(monomials, points, count, term)
    if not np.any(mine.factor):
        return np.zeros(count)
    why = "it uses another prediction than the rest of the objective"
    remedy = "one prediction X @ w + b in all terms that hold private parameters"
    if set(mine.private) != set(target.private):
        unfit(term.expression, why, remedy)
    if target.private:
        a = np.concatenate([mine.private[key].ravel() for key in target.private])
        b = np.concatenate([target.private[key].ravel() for key in target.private])
    else:
        a, b, used = np.broadcast_arrays(mine.public, target.public, mine.factor != 0)
        a, b = a[used], b[used]
    multiple = float(a @ b / (b @ b)) if b.any() else 0.0
    factors = np.broadcast_to(mine.factor * multiple, (count,))
    shown = np.where(factors != 0, 1.0, 0.0)
    fits = close(a, multiple * b) and close(
        mine.public * shown, multiple * target.public * shown, float(np.abs(b).max())
    )
    if not fits:
        unfit(term.expression, why, remedy)
    return factors
