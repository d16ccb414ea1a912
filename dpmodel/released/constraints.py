"""The constraints of a post-processing problem as bounds and sparse rows, and their contradictions by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from dpmodel._types import Floats, Integers
from dpmodel.compile.affine_reader import Affine, AffineReader, NotAffine, flat
from dpmodel.compile.refusals import constraint_label
from dpmodel.errors import InfeasibleError, SpecificationError
from dpmodel.privacy import public_generator
from dpmodel.released.form import LikelihoodForm, bounds_cross

if TYPE_CHECKING:
    from dpmodel.released.model import Postprocessing

_SERVED = ("nonneg", "nonpos", "pos", "neg", "bounds", "boolean", "integer")


class Outside(NotAffine):
    """The problem does not fit the form: only a general solver serves it."""


@dataclass(frozen=True, eq=False)
class Origins:
    """Where the rows of a form came from. ``labels`` : one per constraint. ``equality, inequality`` : (p,), (q,) number
    of the constraint behind each row. ``lower, upper`` : (n,) number of the constraint behind each bound, -1 for the
    variable's own. ``broken`` : numbers of the constraints that no variable enters and that do not hold. ``names`` :
    (name, first column) of the variables."""

    labels: tuple[str, ...]
    equality: Integers
    inequality: Integers
    lower: Integers
    upper: Integers
    broken: tuple[int, ...] = ()
    names: tuple[tuple[str, int], ...] = ()

    def column(self, j: int) -> str:
        """The name of column j's variable, with the entry where it has several."""
        name, start, size = "x", 0, self.lower.size
        for k, (each, first) in enumerate(self.names):
            if first <= j:
                name, start = each, first
                size = (self.names[k + 1][1] if k + 1 < len(self.names) else self.lower.size) - first
        return name if size == 1 else f"{name}, entry {j - start}"


@dataclass(eq=False)
class Constraints:
    """Read so far: bounds (n,) with their constraints' numbers, blocks of rows, and every expression with its rows."""

    reader: AffineReader
    size: int
    lower: Floats = field(init=False)
    upper: Floats = field(init=False)
    integer: Any = field(init=False)
    lower_from: Integers = field(init=False)
    upper_from: Integers = field(init=False)
    equality: list[tuple[sp.csr_array, Floats, int]] = field(default_factory=list)
    inequality: list[tuple[sp.csr_array, Floats, int]] = field(default_factory=list)
    broken: list[int] = field(default_factory=list)
    seen: list[tuple[Any, Affine]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lower, self.upper = np.full(self.size, -np.inf), np.full(self.size, np.inf)
        self.integer = np.zeros(self.size, dtype=bool)
        self.lower_from, self.upper_from = (np.full(self.size, -1, dtype=np.int64) for _ in range(2))

    def add_variable(self, variable: Any) -> None:
        """The attributes of a variable.
        Errors: Outside, for attributes that tie entries to each other."""
        attributes = variable.attributes
        if any(value for name, value in attributes.items() if name not in _SERVED):
            raise Outside(f"an attribute of {variable.name()}")
        first = self.reader.start[variable.id]
        mine = slice(first, first + variable.size)
        if attributes["nonneg"] or attributes["pos"]:
            self.lower[mine] = np.maximum(self.lower[mine], 0.0)
        if attributes["nonpos"] or attributes["neg"]:
            self.upper[mine] = np.minimum(self.upper[mine], 0.0)
        if attributes["bounds"] is not None:
            low, high = (self._side(each, tuple(variable.shape)) for each in attributes["bounds"])
            self.lower[mine] = np.maximum(self.lower[mine], low)
            self.upper[mine] = np.minimum(self.upper[mine], high)
        for index, boolean in ((variable.boolean_idx, True), (variable.integer_idx, False)):
            if len(index):
                shape = tuple(variable.shape) or (1,)
                try:
                    at = first + np.ravel_multi_index(tuple(np.asarray(i) for i in index), shape, order="F")
                except ValueError:
                    raise SpecificationError(
                        f"the {'boolean' if boolean else 'integer'} indices of {variable.name()} do not fit its shape",
                        why="CVXPY wants one list of positions per axis, as numpy.nonzero gives them",
                        remedy="integer=numpy.nonzero(mask)",
                    ) from None
                self.integer[at] = True
                if boolean:
                    self.lower[at] = np.maximum(self.lower[at], 0.0)
                    self.upper[at] = np.minimum(self.upper[at], 1.0)

    def _side(self, bound: Any, shape: tuple[int, ...]) -> Floats:
        value = bound.value if isinstance(bound, cp.Expression) else bound
        if value is None:
            raise Outside("a bound without a value")
        value = value.toarray() if sp.issparse(value) else value
        return flat(np.broadcast_to(np.asarray(value, dtype=np.float64), shape))

    def add(self, constraint: Any, number: int) -> None:
        """One constraint.
        Errors: Outside, unless it is linear."""
        expression, equality = _normal(constraint)
        if expression is None or not expression.is_affine():
            raise Outside(f"a {type(constraint).__name__} constraint that is not linear")
        rows = self.reader.read(expression)
        self.seen.append((expression, rows))
        matrix, right = rows.csr(self.size), -rows.offset
        if np.isnan(right).any() or (equality and np.isinf(right).any()) or not np.isfinite(matrix.data).all():
            raise SpecificationError(
                f"{constraint_label(constraint, number)} has NaN or infinite entries",
                remedy="finite numbers (infinite bounds can be left out)",
            )
        count = np.diff(matrix.indptr)
        void = np.isposinf(right)
        empty = (count == 0) & ~void
        if empty.any():
            slack = 1e-9 * max(1.0, float(np.abs(right[empty]).max()))
            if (np.abs(right[empty]) > 1e-9).any() if equality else (right[empty] < -slack).any():
                self.broken.append(number)
        if np.isneginf(right).any():
            self.broken.append(number)
            void |= np.isneginf(right)
        single = np.flatnonzero((count == 1) & ~void)
        if single.size:
            self._bound(matrix, right, single, equality, number)
        many = np.flatnonzero((count > 1) & ~void)
        if many.size:
            block = (matrix, right) if many.size == count.size else (sp.csr_array(matrix[many]), right[many])
            (self.equality if equality else self.inequality).append((*block, number))

    def _bound(self, matrix: sp.csr_array, right: Floats, single: Integers, equality: bool, number: int) -> None:
        at = matrix.indptr[single]
        where, derivative = matrix.indices[at].astype(np.int64), matrix.data[at]
        value = right[single] / derivative
        below, above = (derivative < 0) | equality, (derivative > 0) | equality
        for mask, bound, source, better in (
            (below, self.lower, self.lower_from, np.maximum),
            (above, self.upper, self.upper_from, np.minimum),
        ):
            before = bound[where[mask]]
            better.at(bound, where[mask], value[mask])
            source[where[mask][bound[where[mask]] != before]] = number

    def settle(self) -> None:
        """Bounds of integers become whole, and those that cross by no more than rounding meet."""
        whole = self.integer
        self.lower[whole] = np.ceil(self.lower[whole] - 1e-9)
        self.upper[whole] = np.floor(self.upper[whole] + 1e-9)
        j = np.flatnonzero(self.lower > self.upper)
        j = j[~bounds_cross(self.lower[j], self.upper[j])]
        self.lower[j] = self.upper[j] = (self.lower[j] + self.upper[j]) / 2

    def stacked(self, equality: bool) -> tuple[Any, Floats, Integers]:
        """All rows of a kind: matrix (or None), right sides, constraint numbers."""
        blocks = self.equality if equality else self.inequality
        if not blocks:
            return None, np.zeros(0), np.zeros(0, dtype=np.int64)
        matrix = blocks[0][0] if len(blocks) == 1 else sp.csr_array(sp.vstack([block[0] for block in blocks]))
        numbers = np.repeat([block[2] for block in blocks], [block[1].size for block in blocks])
        return matrix, np.concatenate([block[1] for block in blocks]), numbers.astype(np.int64)


def _normal(constraint: Any) -> tuple[Any, bool]:
    """(f, True) for f = 0, (f, False) for f <= 0, (None, False) for others."""
    args = constraint.args
    if isinstance(constraint, cp.constraints.Equality):
        return args[0] - args[1], True
    if isinstance(constraint, cp.constraints.Inequality):
        return args[0] - args[1], False
    if isinstance(constraint, cp.constraints.Zero):
        return args[0], True
    if isinstance(constraint, cp.constraints.NonNeg):
        return -args[0], False
    if isinstance(constraint, cp.constraints.NonPos):
        return args[0], False
    return None, False


# ------------------------------------------------------------------ contradictions, by name


_SLACK = 1e-8


def require_consistent(model: Postprocessing) -> None:
    """Raise InfeasibleError, naming the constraints, where one pass over the rows shows a contradiction.

    Seen are constraints without variables that do not hold, bounds that cross, rows that the bounds keep from their
    right side (a total too large or too small), and proportional equalities with different right sides. Contradictions
    that take several constraints together are left to the solver; ``contradiction`` then names them. One pass: linear
    in the entries of the matrices.
    """
    form = model.form
    if form is not None:
        model.cached("consistent", lambda: _check(form, origins_of(model)))


def contradiction(model: Postprocessing) -> InfeasibleError:
    """The error for a problem that a solver found infeasible: names the constraints that must give way for the least
    total violation (HiGHS, phase 1; integers left aside)."""
    form = model.form
    words = "the public constraints contradict each other"
    if form is None:
        return InfeasibleError(words, why="the solver found no point that meets them all", remedy="relax one of them")
    try:
        require_consistent(model)
    except InfeasibleError as error:
        return error
    origins = origins_of(model)
    p, q, n = form.equality.shape[0], form.inequality.shape[0], form.size
    cost = np.concatenate([np.zeros(n), np.ones(2 * p + q)])
    slacks = np.zeros(2 * p + q)
    low, high = np.concatenate([form.lower, slacks]), np.concatenate([form.upper, slacks + np.inf])
    result = linprog(
        cost,
        A_eq=sp.hstack([form.equality, sp.eye_array(p), -sp.eye_array(p), sp.csr_array((p, q))]) if p else None,
        b_eq=form.equality_value if p else None,
        A_ub=sp.hstack([form.inequality, sp.csr_array((q, 2 * p)), -sp.eye_array(q)]) if q else None,
        b_ub=form.inequality_value if q else None,
        bounds=np.column_stack([low, high]),
        method="highs",
    )
    if result.x is None:
        return InfeasibleError(words, why="the solver found no point that meets them all", remedy="relax one of them")
    least = float(result.fun)
    sizes = np.abs(np.concatenate([form.equality_value, form.inequality_value]))
    scale = max(1.0, float(sizes.max(initial=0.0)))
    if least <= 1e-7 * scale:
        if form.integer.any():
            return InfeasibleError(
                "no integers meet the public constraints",
                why="without integer=True there are points that do",
                remedy="relax a constraint, or leave integer out and round",
            )
        return InfeasibleError(words, why="by less than a solver can tell", remedy="relax one of them by a little")
    slack = result.x[n:]
    missed = np.zeros(len(origins.labels))
    np.add.at(missed, origins.equality, slack[:p] + slack[p : 2 * p])
    np.add.at(missed, origins.inequality, slack[2 * p :])
    named = [f"{origins.labels[k]} (by {missed[k]:.4g})" for k in np.argsort(-missed)[:3] if missed[k] > 1e-9 * scale]
    return InfeasibleError(
        f"{words}: at best {', '.join(named)} is missed",
        why=f"no point meets them all; the least total violation is {least:.4g}",
        remedy="correct that number, or one of the constraints over the same entries",
    )


def origins_of(model: Postprocessing) -> Origins:
    """Where the rows came from; for forms that no CVXPY problem stands behind, synthetic labels."""

    def plain() -> Origins:
        form = model.form
        assert form is not None
        none = np.full(form.size, -1, dtype=np.int64)
        p, q = form.equality.shape[0], form.inequality.shape[0]
        labels = ("the equalities", "the inequalities")
        return Origins(labels, np.zeros(p, dtype=np.int64), np.ones(q, dtype=np.int64), none, none)

    return model.cached("origins", plain)


# ------------------------------------------------------------------ one pass
def _check(form: LikelihoodForm, origins: Origins) -> bool:
    if origins.broken:
        raise InfeasibleError(
            f"{origins.labels[origins.broken[0]]} does not hold",
            why="no variable has a say in it",
            remedy="correct its numbers",
        )
    _bounds(form, origins)
    _rows(form, origins, form.equality, form.equality_value, origins.equality, equality=True)
    _rows(form, origins, form.inequality, form.inequality_value, origins.inequality, equality=False)
    _proportional(form, origins)
    return True


def _bounds(form: LikelihoodForm, origins: Origins) -> None:
    crossed = np.flatnonzero(bounds_cross(form.lower, form.upper))
    if crossed.size:
        j = int(crossed[0])
        sides = [origins.labels[k] for k in dict.fromkeys((int(origins.lower[j]), int(origins.upper[j]))) if k >= 0]
        sides = sides or ["the bounds of the variable"]
        least, most = float(form.lower[j]), float(form.upper[j])
        raise InfeasibleError(
            f"{' and '.join(sides)}: {origins.column(j)} must be at least {least:.10g} and at most {most:.10g}",
            why="integers between the bounds do not exist" if form.integer[j] else "the bounds cross",
            remedy="correct one of the two",
        )


def _rows(
    form: LikelihoodForm, origins: Origins, matrix: sp.csr_array, right: Floats, numbers: Integers, *, equality: bool
) -> None:
    """A row's left side reaches an interval under the bounds, exactly; its right side must lie in it."""
    if not right.size:
        return
    coo = matrix.tocoo()
    for sign, side in ((1.0, "at least"), (-1.0, "at most")) if equality else ((1.0, "at least"),):
        least = coo.data * np.where(coo.data * sign > 0, form.lower[coo.col], form.upper[coo.col])
        extreme = np.bincount(coo.row, weights=least, minlength=right.size)
        size = np.bincount(coo.row, weights=_finite(least), minlength=right.size)
        bad = np.flatnonzero(sign * (extreme - right) > _SLACK * (np.abs(right) + size + 1e-12))
        if bad.size:
            _raise_row(origins, numbers, int(bad[0]), side, float(extreme[bad[0]]), float(right[bad[0]]), equality)


def _finite(terms: Floats) -> Floats:
    return np.where(np.isfinite(terms), np.abs(terms), 0.0)


def _raise_row(
    origins: Origins, numbers: Integers, row: int, side: str, extreme: float, right: float, equality: bool
) -> None:
    first = int(np.searchsorted(numbers, numbers[row]))
    entry = f", row {row - first}," if (numbers == numbers[row]).sum() > 1 else ""
    wanted = "be" if equality else "be at most"
    raise InfeasibleError(
        f"{origins.labels[int(numbers[row])]}{entry} cannot be met under the bounds of its variables",
        why=f"with the constants on the right, its left side is {side} {extreme:.10g} and must {wanted} {right:.10g}",
        remedy="correct the total, or the bounds",
    )


def _proportional(form: LikelihoodForm, origins: Origins) -> None:
    """Equalities with the same left side up to a factor: found by their values at one synthetic point."""
    matrix, right = form.equality, form.equality_value
    if right.size < 2:
        return
    count = np.diff(matrix.indptr)
    full = np.flatnonzero(count)
    lead = np.ones(right.size)
    lead[full] = matrix.data[matrix.indptr[full]]
    key = (matrix @ public_generator(6).standard_normal(form.size)) / lead
    order = np.argsort(key, kind="stable")
    near = np.flatnonzero(np.abs(np.diff(key[order])) <= 1e-11 * np.abs(key[order][1:]))
    for k in near[:1000]:
        a, b = int(order[k]), int(order[k + 1])
        gap = matrix[[a]] / lead[a] - matrix[[b]] / lead[b]
        left, other = right[a] / lead[a], right[b] / lead[b]
        same = not gap.nnz or float(np.abs(gap.data).max()) <= 1e-12
        if same and abs(left - other) > _SLACK * max(abs(left), abs(other)):
            labels = dict.fromkeys([origins.labels[int(origins.equality[a])], origins.labels[int(origins.equality[b])]])
            raise InfeasibleError(
                f"{' and '.join(labels)} contradict each other",
                why=f"the same sum must be {left:.10g} and {other:.10g}",
                remedy="correct one of the two",
            )
