"""What no public point can keep, seen by arithmetic or one program: the quick answer to most questions about them.

Public facts only. "No" means that nothing was seen here: then the points are looked for (``points.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from cvxpy import INFEASIBLE, OPTIMAL

from dpmodel._types import Floats, Integers
from dpmodel.classify.private_lp import PrivateLP
from dpmodel.marks.layout import same_for_all
from dpmodel.mechanisms.lp.engines.routes import cost_range, objective_span, private_objective
from dpmodel.mechanisms.lp.public.points import (
    MOST_ENTRIES,
    costs_are_open,
    declared_range,
    half_ranges,
    middle_program,
    unkept,
    worst_violation,
    worst_violations,
)
from dpmodel.numerics.cone_program import SolverFailure, solve_cone_program
from dpmodel.numerics.polyhedron import Polyhedron
from dpmodel.numerics.public_facts import cached

# Points of a solver miss rows by 1e-6 (``points._SOLVER``) and optima by as much; this is well beyond.
_SAFE = 1e-5


def out_of_reach(model: PrivateLP, loss: float, violation: float) -> bool:
    """Whether on some allowed database every public point either loses more than ``loss`` against the best public one,
    or violates a private constraint by more than ``violation``. False where that is not seen.

    Three proofs. A private right-hand side that may lie anywhere in a range misses every point by half of it, where the
    row is an equality. Under a public objective the corner of the box at which it is least is the best point, if it is
    public; where it violates a row by w, every other point pays for mending that: columns without a cost take w_i of
    it at most, within their bounds, and the rest costs at least ``(w - w_i - violation) / max_j (a_ij / |c_j|)``; and
    where a_ij may grow without end, x_j has to be 0; where that tells nothing, or the corner is not public, programs
    do (``_robust_optimum``). The third is ``_lost_between``.

    What is lost is counted from the best point of the relaxation. Where variables are whole, every public point may
    cost more than that: there only what is violated tells something.
    """
    if model.affine.boolean.size + model.affine.integer.size:
        loss = math.inf
    if _least_violation(model) > violation * (1 + _SAFE) + _SAFE:
        return True
    if private_objective(model) and _more_is_lost(model, loss * (1 + _SAFE)):
        return True
    if private_objective(model) or math.isinf(violation):
        return False
    corner = _corner(model)
    if corner is None:
        return _robust_optimum(model, loss, violation)
    missed, free, price, zeroing, tolerance = corner
    if zeroing > loss * (1 + _SAFE) + tolerance:
        return True
    left = missed * (1 - _SAFE) - violation * (1 + _SAFE) - _SAFE
    if not (left > 0).any():
        return False
    left -= free * (1 + _SAFE)
    over = left > 0
    with np.errstate(invalid="ignore"):
        cost = float(np.fmax.reduce(left[over] * price[over], initial=0.0))  # inf times 0 tells nothing
    return cost > loss * (1 + _SAFE) + tolerance or _robust_optimum(model, loss, violation)


def _robust_optimum(model: PrivateLP, loss: float, violation: float) -> bool:
    """The same by programs: the least objective among points that violate no private constraint by more than
    ``violation``, whatever the data are. What one tells of other violations is asked first."""
    affine, form = model.affine, model.form
    curved = any(block.kind not in ("zero", "nonneg") and form.private_rows[block.rows].any() for block in affine.cones)
    if curved or form.matrix.nnz > MOST_ENTRIES or not np.isfinite(half_ranges(model)[0]).all():
        return False
    more, missed = loss * (1 + _SAFE), violation * (1 + _SAFE) + _SAFE
    told: list[_Tangent] = model.cached("robust optima", list)

    def beyond(best: float) -> bool:
        return any(each.exceeds(best + more, missed) for each in told)

    if not affine.is_linear():  # of linear sets, a point beside a robust optimum may do
        least = -model.public.support(-form.c0)
        loosest, reached = _from_the_loosest(model)
        if reached <= violation or loosest.exceeds(least + more, missed):
            return reached > violation
    if not told:
        told.append(_tangent(model, missed))
    if beyond(min(each.near for each in told)):
        return True
    least = -model.public.support(-form.c0)
    if not math.isfinite(least):
        return False
    if not (beyond(least) or any(each.reaches(least + more, missed) for each in told)):
        told.append(_tangent(model, missed))
    return beyond(least)


@dataclass(frozen=True)
class _Tangent:
    """The least objective where private constraints are violated by ``at`` at most, and how fast it falls with that, by
    the multipliers: it is convex, so it lies above this line. inf where there is no such point, nan where no solver
    told. ``near`` : the objective at a public point beside."""

    at: float
    value: float
    falls: float = 0.0
    near: float = math.inf

    def exceeds(self, limit: float, violation: float) -> bool:
        """Whether it is more than ``limit`` at ``violation`` for certain."""
        if math.isinf(self.value):
            return violation <= self.at
        left = self.falls * (violation - self.at) if violation > self.at else 0.0
        return self.value - left > limit + _SAFE * (1 + abs(limit) + abs(self.value) + abs(left))

    def reaches(self, limit: float, violation: float) -> bool:
        """Whether a point is known that makes it pointless to ask for ``violation``."""
        return math.isnan(self.value) or (violation >= self.at and not self.exceeds(limit, self.at))


def _tangent(model: PrivateLP, violation: float) -> _Tangent:
    affine, form = model.affine, model.form
    (half, weights), program = half_ranges(model), middle_program(model)
    if program is None:
        return _Tangent(violation, math.nan)
    zero = affine.equalities() & form.private_rows
    if weights is not None and weights[np.flatnonzero(zero)].nnz:
        return _Tangent(violation, math.nan)  # |x| in equalities is not convex
    none = np.zeros(0, dtype=np.int64)
    room = np.where(form.private_rows, violation - half, 0.0)
    b, band = program.b + np.where(zero, 0.0, room), np.where(zero, room, 0.0)
    robust = program.with_(d=0.0, b=b, band=band, boolean=none, integer=none)
    solver = None if affine.is_linear() else model.public.solver
    solution = solve_cone_program(robust, weights=weights, solver=solver)
    if solution.status == INFEASIBLE:
        unkept(model).append(violation)
        return _Tangent(violation, math.inf)
    if solution.value is None or solution.status != OPTIMAL:
        return _Tangent(violation, math.nan)
    falls = math.inf if solution.dual is None else float(np.abs(solution.dual[form.private_rows]).sum())
    near = None if solution.x is None else model.public.beside(solution.x, form.c0)
    return _Tangent(violation, solution.value, falls, math.inf if near is None else float(form.c0 @ near))


@cached
def _from_the_loosest(model: PrivateLP) -> tuple[_Tangent, float]:
    """A line below the same function, and what a best public point violates, from one program: the public one, in which
    inequalities with private right-hand sides have the largest that are allowed.

    The least value of a convex program is convex in the right-hand sides: where they fall, it rises by no less than
    what they fall by, times the multipliers. No point is known that keeps a violation: ``reaches`` tells nothing.
    """
    solution, form = model.public.solution(model.form.c0), model.form
    if solution is None or solution.status != OPTIMAL or solution.x is None or solution.dual is None:
        return _Tangent(0.0, math.nan), math.inf
    price = np.where(form.private_rows, np.maximum(solution.dual, 0.0), 0.0)
    # The line is long: what multipliers are off by counts as often as ranges are wide.
    value = float(form.c0 @ solution.x + (1 - _SAFE) * 2 * price @ half_ranges(model)[0])
    return _Tangent(0.0, value, float(price.sum())), worst_violation(model, solution.x)


@cached
def some_point_is_best(model: PrivateLP) -> bool:
    """Whether some public point is seen to lose nothing, whatever the data are: the best one under a public
    objective."""
    affine, whole = model.affine, model.affine.boolean.size + model.affine.integer.size
    if private_objective(model) or whole or not affine.is_linear() or not model.public.feasible:
        return False
    c, (lower, upper) = model.form.c0, model.public.polyhedron.box
    # A linear program that is bounded has an optimum.
    return bool(np.isfinite(np.where(c > 0, lower, upper)[c != 0]).all()) or math.isfinite(model.public.support(-c))


@cached
def _least_violation(model: PrivateLP) -> float:
    """What every point violates some equality with a private right-hand side by, on its worst data."""
    form, affine = model.form, model.affine
    rows = affine.equalities() & form.private_rows
    if form.matrix.nnz:
        rows[form.matrix_coordinates()[0]] = False
    low, high = form.side_range
    return float((high - low)[rows].max(initial=0.0)) / 2


def _more_is_lost(model: PrivateLP, loss: float) -> bool:
    """Whether every public point is seen to lose more than ``loss`` on some allowed objective: from points that are
    known, else from one that is looked for."""
    if costs_are_open(model) or not model.affine.is_linear() or 2 * loss >= objective_span(model):
        return False
    y = _best_in_the_middle(model)
    return y is not None and any(_lost_between(model, y, z) > loss for z in _far_points(model, y))


@cached
def _best_in_the_middle(model: PrivateLP) -> Floats | None:
    """(n,) a public point of least cost in the middle of the objective's range; None where there is none."""
    low, high = cost_range(model)
    middle, polytope = (low + high) / 2, model.public.polyhedron
    known = polytope.furthest_in(-middle)
    return _minimiser(polytope, middle) if known is None else known


def _lost_between(model: PrivateLP, y: Floats, z: Floats) -> float:
    """What every public point loses on some allowed objective at least, seen from two of them.

    Let m be the middle of the objective's range and h half its width, y a public point where m is least, z any other.
    A point x loses ``m'(x - z) + h'|x - z|`` against z on its worst objective, and the same against y; their mean is at
    least ``(m'(y - z) + h'|y - z|) / 2``, because ``m'x >= m'y``.
    """
    low, high = cost_range(model)
    middle, half = (low + high) / 2, (high - low) / 2
    size = float(np.abs(middle) @ (np.abs(y) + np.abs(z)) + half @ np.abs(y - z))
    return (float(middle @ (y - z) + half @ np.abs(y - z)) - _SAFE * (1 + size)) / 2


def _far_points(model: PrivateLP, y: Floats) -> Iterator[Floats]:
    """(n,) public points: those that are known, then some that are far from y by what they cost."""
    polytope = model.public.polyhedron
    yield from polytope.furthest.values()
    (low, high), (lower, upper) = cost_range(model), polytope.box
    far = np.where(y - lower > upper - y, high, low)
    beside = model.public.beside(np.clip(0.0, lower, upper), far) if polytope.one_row_each is None else None
    if beside is not None:
        yield beside
    # A solver that begins anew is quicker than one that sets out from y.
    z = model.cached("far from the best", lambda: _minimiser(polytope.copy(), far))
    if z is not None:
        yield z


def _minimiser(polytope: Polyhedron, cost: Floats) -> Floats | None:
    try:
        return polytope.minimise(cost)
    except SolverFailure:
        return None


@cached
def _corner(model: PrivateLP) -> tuple[Floats, Floats, Floats, float, float] | None:
    """(m,) what the best corner of the box violates, (m,) how much of it columns without a cost can take back, (m,) the
    least price of a unit less by the others, the price of the zeros that coefficients without bounds ask for, and the
    tolerance of a loss. None where the objective is private, or the corner no public point."""
    form, c = model.form, model.form.c0
    if form.objective.nnz or not c.any() or not model.affine.is_linear():
        return None
    lower, upper = model.public.box
    x = np.where(c > 0, lower, np.where(c < 0, upper, np.clip(0.0, lower, upper)))
    if not np.isfinite(x).all() or not model.public.holds(x):
        return None
    missed = worst_violations(model, x)
    most, free = np.zeros((2, model.affine.rows))
    equal, zeroing, idle = model.affine.equalities(), 0.0, c == 0
    far = np.where(idle, np.maximum(x - lower, upper - x), 0.0)
    for row, column, low, high in _entries(model):
        alike = same_for_all(low) and same_for_all(high)
        if np.isinf(low[:1] - high[:1] if alike else low - high).any():
            grows = np.where(equal[row], np.isinf(low - high), np.where(x[column] > 0, np.isinf(high), np.isinf(low)))
            zeroing = max(zeroing, float(np.abs(c * x)[column[grows]].max(initial=0.0)))
        if alike and not equal[row].any():  # one number stands for a column
            falls = _falls(low[:1], high[:1], np.sign(c), np.zeros(c.size, dtype=bool), np.abs(c))[column]
        else:
            falls = _falls(low, high, np.sign(c)[column], equal[row], np.abs(c)[column])
        np.maximum.at(most, row, np.where(idle[column], 0.0, falls))
        moves = np.flatnonzero(far[column] > 0)
        size = np.maximum(np.abs(low), np.abs(high))[moves]
        with np.errstate(invalid="ignore"):
            free += np.bincount(row[moves], size * far[column[moves]], free.size)
    with np.errstate(divide="ignore"):
        price = 1.0 / most
    return missed, free, price, zeroing, _SAFE * (1 + abs(float(c @ x)) + float(np.abs(c).sum()))


def _entries(model: PrivateLP) -> Iterator[tuple[Integers, Integers, Floats, Floats]]:
    """Row, column and least and largest value of the entries of private rows of A: the public ones, then those with
    private numbers."""
    form = model.form
    row = np.repeat(np.arange(form.affine.rows), np.diff(form.A0.indptr))
    own = np.flatnonzero(form.private_rows[row])
    if own.size:
        yield row[own], form.A0.indices[own], form.A0.data[own], form.A0.data[own]
    if form.matrix.nnz:
        row, column = form.matrix_positions()
        below, above = declared_range(model, "matrix")
        if np.diff(form.A0.indptr)[row].any():
            shared = np.asarray(form.A0[row, column]).ravel()
            below, above = shared + below, shared + above
        yield row, column, below, above


def _falls(low: Floats, high: Floats, away: Floats, equal: np.ndarray, cost: Floats) -> Floats:
    """How fast the residual of a row can fall per ``cost`` as a column moves ``away``: 1 up, -1 down, 0 either way,
    whatever the data are. Equalities fall on both sides. All (k,)."""
    both = np.maximum(np.abs(low), np.abs(high))
    one = np.where(away > 0, -low, np.where(away < 0, high, both))
    falls = np.maximum(np.where(equal, both, one), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(falls > 0, falls / cost, 0.0)
