"""A public polyhedron: linear minimisation, Euclidean projection, and its shape (a product of simplices and boxes)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

import highspy
import numpy as np
import scipy.sparse as sp
from cvxpy import CLARABEL, OPTIMAL

from dpmodel._types import Floats, Integers
from dpmodel.numerics.array_program import ArrayProgram, rows_of
from dpmodel.numerics.cone_program import ConeProgram, SolverFailure
from dpmodel.numerics.implied_bounds import tighten
from dpmodel.numerics.nearest_point import Projector, onto_row
from dpmodel.numerics.solvers import (
    AT_ONCE,
    CONTINUOUS,
    DUAL,
    FROM_VERTEX,
    ask,
    from_bounds,
    pass_to_highs,
    patience,
    set_options,
    silent_highs,
)

# ------------------------------------------------------------------
# Linear minimisation over one polyhedron, again and again


def sides(polytope: Polyhedron) -> tuple[Floats, Floats]:
    """(m,), (m,) what ``polytope.rows`` lie between."""
    low = np.concatenate([np.full(polytope.b_ub.size, -np.inf), polytope.b_eq])
    return low, np.concatenate([polytope.b_ub, polytope.b_eq])


def highs(polytope: Polyhedron, cost: Floats, lower: Floats, upper: Floats) -> highspy.Highs:
    """HiGHS with the rows of ``polytope``; columns beyond those of the polytope stand in no row."""
    A, solver = polytope.rows, silent_highs()
    wide = A if A.shape[1] == cost.size else sp.csr_array((A.data, A.indices, A.indptr), shape=(A.shape[0], cost.size))
    set_options(solver, CONTINUOUS | AT_ONCE)
    pass_to_highs(solver, cost, wide, sides(polytope), (lower, upper))
    return solver


class LinearMinimiser:
    """HiGHS keeps its basis between calls: the last vertex is one for every cost, and the primal simplex method takes a
    few steps from it first, until they once were not enough."""

    def __init__(self, polytope: Polyhedron) -> None:
        self._polytope = polytope
        self._columns = np.arange(polytope.size, dtype=np.int32)
        self._bounds = polytope.lower, polytope.upper
        self._highs = highs(polytope, np.zeros(polytope.size), *self._bounds)
        self._from_bounds, self._patience = from_bounds(polytope.rows), patience(polytope.rows)
        self._at_vertex, self._near, self._slow = False, True, False

    def minimise(self, cost: Floats) -> Floats | None:
        cost = np.asarray(cost, dtype=np.float64)
        # HiGHS' tolerances are absolute: a cost of unit size keeps them meaningful.
        size = float(np.abs(cost).max(initial=0.0))
        c = cost / size if size > 0 else cost
        self._highs.changeColsCost(self._columns.size, self._columns, c)
        x = self._in_time(c)
        if x is not None:
            return np.clip(x, *self._bounds)
        if self._highs.getModelStatus() == highspy.HighsModelStatus.kUnknown:  # from a basis that lost its way
            self._highs.clearSolver()
            self._as_long_as_it_takes()
        status = self._highs.getModelStatus()
        if status == highspy.HighsModelStatus.kOptimal:
            return np.clip(np.asarray(self._highs.getSolution().col_value, dtype=np.float64), *self._bounds)
        if status in (highspy.HighsModelStatus.kUnbounded, highspy.HighsModelStatus.kUnboundedOrInfeasible) and size:
            self._highs.changeColsCost(self._columns.size, self._columns, np.zeros(cost.size))
            self._as_long_as_it_takes()
            if self._highs.getModelStatus() == highspy.HighsModelStatus.kOptimal:
                return None
        words = self._highs.modelStatusToString(status)
        raise SolverFailure("HiGHS found no point of the public set", why=str(words), remedy="check the constraints")

    def _in_time(self, c: Floats) -> Floats | None:
        """Run HiGHS; (n,) another solver's optimum where that takes many steps, if it has one."""
        near = FROM_VERTEX if self._at_vertex else self._from_bounds
        if near and self._near:
            begun = self._highs.getBasis()
            status = self._run(near)
            if status == highspy.HighsModelStatus.kOptimal:
                self._at_vertex = True
                return None
            if status == highspy.HighsModelStatus.kIterationLimit:
                self._highs.setBasis(begun)
                self._near = False
        if not self._slow:
            status = self._run(DUAL | self._patience)
            self._at_vertex = status == highspy.HighsModelStatus.kOptimal
            if status != highspy.HighsModelStatus.kIterationLimit:
                return None
        none, no_cones = np.zeros(0, dtype=np.int64), (sp.csr_array((0, c.size)), np.zeros(0))
        rows = self._polytope.rows, *sides(self._polytope)
        answer = ask(ArrayProgram(c, *rows, *self._bounds, none, none, *no_cones), CLARABEL, {})
        if answer.status == OPTIMAL:
            self._slow = True
            return answer.x
        self._as_long_as_it_takes()
        return None

    def _as_long_as_it_takes(self) -> None:
        """Run HiGHS; from now on there is no limit, for a set is called empty where it stops early."""
        self._patience, self._slow = dict.fromkeys(self._patience, highspy.kHighsIInf), False
        self._at_vertex = self._run(DUAL | self._patience) == highspy.HighsModelStatus.kOptimal

    def _run(self, options: Mapping[str, Any]) -> highspy.HighsModelStatus:
        set_options(self._highs, options)
        self._highs.run()
        status: highspy.HighsModelStatus = self._highs.getModelStatus()
        return status


# ------------------------------------------------------------------
# A public polyhedron: linear minimisation, Euclidean projection, and its shape (a product of simplices and boxes)


T = TypeVar("T")

# Properties without a solver in them.
_KNOWN = ("empty", "box", "l1", "linf", "diameter", "product", "_only_row")


@dataclass(frozen=True)
class Product:
    """A product of simplices and boxes, as choices: in every block at most one column is taken.

    ``base`` : (n,) the point at which nothing is taken. ``step`` : (n,) how far column j moves when taken, > 0 or
    < 0. ``block`` : (n,) number of the block of column j, -1 for fixed columns. ``optional`` : (blocks,) whether a
    block may take none. Vertices are base + step_j e_j over one choice per block.
    """

    base: Floats
    step: Floats
    block: Integers
    optional: Any

    @cached_property
    def by_block(self) -> tuple[Integers, Integers]:
        """The columns that are not fixed, block by block, and (blocks,) how many there are of each."""
        order = np.argsort(self.block, kind="stable")
        order = order[self.block[order] >= 0]
        return order, np.bincount(self.block[order], minlength=self.optional.size)

    @cached_property
    def columns(self) -> list[Integers]:
        """The columns of each block."""
        order, sizes = self.by_block
        return [order[start:end] for start, end in pairwise([0, *np.cumsum(sizes).tolist()])]

    @property
    def choices(self) -> Integers:
        """(blocks,) how many each has, none included where that is one."""
        return np.asarray(self.by_block[1] + self.optional, dtype=np.int64)


@dataclass(frozen=True)
class Polyhedron:
    """``{x : A_ub x <= b_ub, A_eq x = b_eq, lower <= x <= upper}``; every number public or released.

    ``A_ub`` (p x n), ``A_eq`` (q x n) CSR without rows of a single entry (those are bounds); ``lower, upper`` (n,).
    """

    A_ub: sp.csr_array
    b_ub: Floats
    A_eq: sp.csr_array
    b_eq: Floats
    lower: Floats
    upper: Floats

    @property
    def size(self) -> int:
        return int(self.lower.size)

    @staticmethod
    def of(program: ConeProgram) -> Polyhedron:
        """The kept rows of a linear program (zero and nonneg cones only); single-entry inequalities become bounds."""
        A, keep = sp.csr_array(program.A), np.asarray(program.keep, dtype=bool)
        ub, eq = np.zeros_like(keep), np.zeros_like(keep)
        for block in program.cones:
            if block.kind in ("nonneg", "zero"):
                (ub if block.kind == "nonneg" else eq)[block.rows] = keep[block.rows]
        ub, eq = np.flatnonzero(ub), np.flatnonzero(eq)
        rows = rows_of(A, ub), program.b[ub], rows_of(A, eq), program.b[eq]
        return _fold(Polyhedron(*rows, program.lower, program.upper))

    def with_row(self, a: Floats, b: float) -> Polyhedron:
        """The part where ``a'x <= b``."""
        row = sp.csr_array(np.asarray(a, dtype=np.float64)[None, :])
        row.eliminate_zeros()
        again = _same_rows(self.A_ub, row)
        if again:  # a budget and a target of one cost, say
            b_ub = self.b_ub.copy()
            b_ub[again] = np.minimum(b_ub[again], b)
            return replace(self, b_ub=b_ub)
        longer = replace(self, A_ub=sp.csr_array(sp.vstack([self.A_ub, row])), b_ub=np.append(self.b_ub, b))
        return longer if row.nnz > 1 else _fold(longer)

    def violation(self, x: Floats) -> float:
        """Largest amount by which x misses a constraint."""
        parts = [self.lower - x, x - self.upper, self.A_ub @ x - self.b_ub, np.abs(self.A_eq @ x - self.b_eq)]
        return max(0.0, *(float(part.max(initial=0.0)) for part in parts))

    @cached_property
    def rows(self) -> sp.csr_array:
        """(p + q, n) those of ``A_ub``, then those of ``A_eq``."""
        some = [A for A in (self.A_ub, self.A_eq) if A.shape[0]]
        return sp.csr_array(sp.vstack(some)) if len(some) > 1 else some[0] if some else self.A_ub

    # ------------------------------------------------------------------ linear programs
    @cached_property
    def _simplex_method(self) -> LinearMinimiser:
        return LinearMinimiser(self)

    def minimise(self, cost: Floats) -> Floats | None:
        """(n,) a point of least ``cost'x``, warm-started between calls; None when unbounded.
        Errors: SolverFailure, when the polyhedron is empty or HiGHS stops early."""
        return self._simplex_method.minimise(np.asarray(cost, dtype=np.float64))

    @cached_property
    def _memo(self) -> dict[Hashable, Any]:
        return {}

    def cached(self, key: Hashable, build: Callable[[], T]) -> T:
        """``build()``, called once for each ``key``; copies start anew."""
        if key not in self._memo:
            self._memo[key] = build()
        value: T = self._memo[key]
        return value

    def copy(self) -> Polyhedron:
        """The same set, with what is known of it; what its solvers keep from one question to the next is not shared."""
        twin = replace(self)
        vars(twin).update({name: vars(self)[name] for name in _KNOWN if name in vars(self)})
        vars(twin)["_supports"] = dict(self._supports)
        return twin

    @cached_property
    def _supports(self) -> dict[bytes, float]:
        return {}

    def support(self, direction: Floats) -> float:
        """Upper bound on ``max direction'x`` (inf when unbounded); solved once per direction, whatever its length."""
        key, size = _unit(direction)
        if key not in self._supports:
            x = None if direction.any() else next(iter(self.furthest.values()), None)  # any point will do
            if x is None:
                x = self.minimise(-np.asarray(direction, dtype=np.float64))
            self._supports[key] = np.inf
            if x is not None:
                self.learn(direction, x)
        value = size * self._supports[key]
        # HiGHS stops within 1e-7 of feasibility and optimality; bounds on maxima are widened to stay bounds.
        return value + 1e-6 * (1 + abs(value)) if np.isfinite(value) else value

    def learn(self, direction: Floats, x: Floats) -> None:
        """Told where ``support(direction)`` is attained."""
        key, size = _unit(direction)
        self._supports[key] = float(direction @ x) / size
        if len(self.furthest) < 8:
            self.furthest[key] = x

    @cached_property
    def furthest(self) -> dict[bytes, Floats]:
        """Points at which ``support`` was attained, by direction."""
        return {}

    def reaches(self, direction: Floats, value: float) -> bool:
        """Whether ``direction'x`` is seen to be at least ``value`` somewhere: a quick look at ``support``."""
        return any(float(direction @ x) >= value for x in self.furthest.values())

    @cached_property
    def empty(self) -> bool:
        if (self.lower > self.upper + 1e-9 * (1 + np.abs(self.lower))).any():
            return True
        if self.furthest or self.violation(np.clip(0.0, self.lower, self.upper)) <= 0:
            return False
        try:
            self.minimise(np.zeros(self.size))
        except SolverFailure:
            return True
        return False

    @cached_property
    def box(self) -> tuple[Floats, Floats]:
        """(n,), (n,) bounds on every column: the declared ones, tightened by rows with one sign (nothing solved)."""
        lower, upper = self.lower.copy(), self.upper.copy()
        inner, size = absolute_values(self)
        lower[size] = np.maximum(lower[size], 0.0)
        if self.b_ub.size:
            tighten(sp.csr_array(self.A_ub), self.b_ub, lower, upper)
        if self.b_eq.size:
            equal = sp.csr_array(self.A_eq)
            tighten(equal, self.b_eq, lower, upper)
            tighten(-equal, -self.b_eq, lower, upper)
        lower[inner], upper[inner] = np.maximum(lower[inner], -upper[size]), np.minimum(upper[inner], upper[size])
        return lower, upper

    @cached_property
    def l1(self) -> float:
        """Upper bound on the 1-norm of x: one linear program where signs are known (or ``|x_p| <= x_q``, as CVXPY
        writes a 1-norm: then x_q counts for both), else from the box."""
        lower, upper = self.box
        # Proving that a set is unbounded takes a linear program long: of many columns, only single rows are looked at.
        if self.size > 20_000 and not (np.isfinite(lower).all() and np.isfinite(upper).all()):
            return np.inf
        sign = np.where(lower >= 0, 1.0, np.where(upper <= 0, -1.0, 0.0))
        inner, size = absolute_values(self)
        if (np.delete(sign, inner) != 0).all() and inner.size:
            weight = sign.copy()
            weight[inner], weight[size] = 0.0, 2.0
            by_pairs = self.support(weight)
            return min(by_pairs, float(np.maximum(np.abs(lower), np.abs(upper)).sum()))
        by_box = float(np.maximum(np.abs(lower), np.abs(upper)).sum())
        return min(by_box, self.support(sign)) if (sign != 0).all() else by_box

    @cached_property
    def linf(self) -> float:
        lower, upper = self.box
        return min(float(np.maximum(np.abs(lower), np.abs(upper)).max(initial=0.0)), self.l1)

    @cached_property
    def diameter(self) -> float:
        """Upper bound on the 2-norm distance of two points."""
        lower, upper = self.box
        by_box = float(np.linalg.norm(upper - lower))
        if not np.isfinite(by_box) or not (lower >= 0).all():
            return by_box
        # ||x - y||^2 <= ||x||^2 + ||y||^2 for x, y >= 0, and ||x||^2 <= ||x||_1 ||x||_inf.
        return min(by_box, float(np.sqrt(2 * self.l1 * self.linf)))

    # ------------------------------------------------------------------ projection
    @cached_property
    def _projector(self) -> Projector:
        return Projector(self.A_ub, self.b_ub, self.A_eq, self.b_eq, self.lower, self.upper)

    @cached_property
    def _only_row(self) -> tuple[Floats, float]:
        """(n,) and right-hand side of the one row, where there is one."""
        A, b = (self.A_eq, self.b_eq) if self.A_eq.shape[0] else (self.A_ub, self.b_ub)
        return np.asarray(A[[0]].todense(), dtype=np.float64).ravel(), float(b[0])

    def project(self, x: Floats) -> Floats:
        """(n,) the nearest point in the 2-norm: exact for a box with at most one more row, else a solver's."""
        if not self.A_ub.shape[0] and not self.A_eq.shape[0]:
            return np.clip(x, self.lower, self.upper)
        if self.A_ub.shape[0] + self.A_eq.shape[0] == 1:
            a, b = self._only_row
            return onto_row(x, a, b, self.lower, self.upper, equality=self.A_eq.shape[0] == 1)
        return self._projector.project(x)

    def nearest(self, x: Floats) -> Floats:
        """(n,) a point of the polyhedron near x, feasible to 1e-9 or as well as HiGHS can (least 1-norm distance).

        Within the bounds, the point of them next to x is as far from every point as x is, but for what x misses. From
        there the point moves up and down by parts of what is missed, which may be less than solvers tell from nothing.
        """
        inside, missed = np.clip(x, self.lower, self.upper), self.violation(x)
        if missed <= 1e-9 * (1 + float(np.abs(x).max(initial=0.0))):
            return inside
        unit, n = max(missed, 1e-6), self.size
        moves = Polyhedron(
            sp.csr_array(sp.hstack([self.A_ub, -self.A_ub])),
            (self.b_ub - self.A_ub @ inside) / unit,
            sp.csr_array(sp.hstack([self.A_eq, -self.A_eq])),
            (self.b_eq - self.A_eq @ inside) / unit,
            np.zeros(2 * n),
            np.concatenate([self.upper - inside, inside - self.lower]) / unit,
        )
        found = moves.minimise(np.ones(2 * n))
        assert found is not None  # the cost is bounded below by zero
        return np.clip(inside + unit * (found[:n] - found[n:]), self.lower, self.upper)

    # ------------------------------------------------------------------ shape
    @cached_property
    def product(self) -> Product | None:
        """The polyhedron as a product of scaled simplices and boxes, or None when it is not one."""
        lower, upper = self.lower, self.upper
        if not np.isfinite(lower).all() or (lower > upper).any():
            return None
        A = self.rows
        b = np.concatenate([self.b_ub, self.b_eq])
        equality = np.r_[np.zeros(self.A_ub.shape[0], bool), np.ones(self.A_eq.shape[0], bool)]
        rows, columns, values = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr)), A.indices, A.data
        if np.bincount(columns, minlength=1).max() > 1 or np.count_nonzero(np.bincount(rows)) != A.shape[0]:
            return None
        sign = np.ones(A.shape[0])
        negative = np.bincount(rows, weights=values < 0, minlength=A.shape[0]) > 0
        sign[negative & equality] = -1.0
        values = values * sign[rows]
        left = sign * b - np.bincount(rows, weights=values * lower[columns], minlength=A.shape[0])
        if (values <= 0).any() or (left <= 0).any():
            return None
        reach = left[rows] / values
        if (upper[columns] - lower[columns] < reach * (1 - 1e-12)).any():
            return None
        step, block = upper - lower, np.full(self.size, -1, dtype=np.int64)
        step[columns], block[columns] = reach, rows
        loose = (block < 0) & (step > 0)
        if not np.isfinite(step[loose]).all():
            return None
        block[loose] = A.shape[0] + np.arange(int(loose.sum()))
        return Product(lower, step, block, np.r_[~equality, np.ones(int(loose.sum()), bool)])


def _unit(direction: Floats) -> tuple[bytes, float]:
    """A direction of largest entry 1, and its size."""
    direction = np.asarray(direction, dtype=np.float64)
    size = float(np.abs(direction).max(initial=0.0)) or 1.0
    return (direction / size + 0.0).tobytes(), size  # without the sign of zeros


def _same_rows(A: sp.csr_array, row: sp.csr_array) -> list[int]:
    """The rows of A that equal ``row``."""
    first = A.indptr[:-1][np.diff(A.indptr) == row.nnz]
    if not row.nnz or not first.size:
        return []
    first = first[(A.indices[first] == row.indices[0]) & (A.data[first] == row.data[0])]
    parts = [slice(begin, begin + row.nnz) for begin in first]
    same = [np.array_equal(A.indices[p], row.indices) and np.array_equal(A.data[p], row.data) for p in parts]
    return [int(each) for each in np.searchsorted(A.indptr, first[same], side="right") - 1]


def absolute_values(polytope: Polyhedron) -> tuple[Integers, Integers]:
    """(k,), (k,) columns p and q with the rows ``x_p - x_q <= 0`` and ``-x_p - x_q <= 0``, no column in two pairs."""
    A = polytope.A_ub
    rows = np.flatnonzero((np.diff(A.indptr) == 2) & (polytope.b_ub == 0))
    none = np.zeros(0, dtype=np.int64)
    if not rows.size:
        return none, none
    place = A.indptr[rows][:, None] + np.arange(2)
    column, value = A.indices[place].astype(np.int64), A.data[place]
    even = np.abs(value[:, 0]) == np.abs(value[:, 1])
    key = column.min(axis=1) * np.int64(polytope.size) + column.max(axis=1)
    mixed = even & (value.prod(axis=1) < 0)
    below = key[even & (value < 0).all(axis=1)]
    found = np.flatnonzero(mixed & np.isin(key, below))
    positive = value[found] > 0
    p, q = column[found][positive], column[found][~positive]
    alone = (np.bincount(p, minlength=polytope.size) + np.bincount(q, minlength=polytope.size)) == 1
    keep = alone[p] & alone[q]
    return p[keep], q[keep]


def _fold(polytope: Polyhedron) -> Polyhedron:
    """Rows with one entry become bounds; rows without entries go."""
    lower, upper = polytope.lower.copy(), polytope.upper.copy()
    parts = []
    for A, b, equality in ((polytope.A_ub, polytope.b_ub, False), (polytope.A_eq, polytope.b_eq, True)):
        if not A.data.all():
            A = A.copy()
            A.eliminate_zeros()
        count = np.diff(A.indptr)
        # An empty row that cannot hold (0 <= -1) stays, so that the solver finds the set empty.
        held = (count == 0) & ((b == 0) if equality else (b >= 0))
        single = np.flatnonzero(count == 1)
        column, coefficient = A.indices[A.indptr[single]], A.data[A.indptr[single]]
        value = b[single] / coefficient
        up, down = (coefficient > 0) | equality, (coefficient < 0) | equality
        np.minimum.at(upper, column[up], value[up])
        np.maximum.at(lower, column[down], value[down])
        keep = (count != 1) & ~held
        parts += [rows_of(A, np.flatnonzero(keep)), b[keep]]
    # Two rows that say the same of a column may differ by the rounding of their quotients.
    crossed = (lower > upper) & (lower - upper <= 1e-14 * np.abs(lower))
    upper[crossed] = lower[crossed]
    return Polyhedron(parts[0], parts[1], parts[2], parts[3], lower, upper)
