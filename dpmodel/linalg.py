"""Exact private linear algebra (KMMST24): spans, equations, inequalities, points in convex hulls.

Each vector, equation, inequality or point is one record. An answer satisfies a record exactly or misses it; nearly
all are satisfied, and ``plan`` says beforehand how many may be missed or how many records are needed.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.contract import Options, basic_options
from dpmodel.errors import SpecificationError
from dpmodel.exact.entries import integers, matrix, rational, refuse_other_fields
from dpmodel.exact.fields import GF, QQ, Field
from dpmodel.exact.inputs import (
    EXPECTED,
    each_of,
    expected_of,
    field_of,
    inequalities_input,
    is_integer,
    margin_of,
    not_finite,
    public_inequalities,
    rank_of,
    require_neighbors,
    share_of,
)
from dpmodel.exact.model import Found, PrivatePoints, PrivateSystem, PrivateVectors, VectorTask
from dpmodel.exact.results import AffineSubspace, Equations, Result, Subspace, frozen, shown
from dpmodel.exact.stable_span import CONSISTENT_PART
from dpmodel.exact.subspaces import ExactRows, solve
from dpmodel.forecast import RowsMissed
from dpmodel.marks.domain import array_of
from dpmodel.marks.records import Neighbors
from dpmodel.models.systems import system
from dpmodel.privacy import Budget
from dpmodel.release import Accuracy, Guarantee
from dpmodel.solve.execute import execute
from dpmodel.solve.plan import Plan
from dpmodel.solve.planner import Compared, make_plan
from dpmodel.text import array_text, number
from dpmodel.users_line import users_line

__all__ = [
    "GF",
    "QQ",
    "AffineSubspace",
    "Equations",
    "FeasiblePoint",
    "Field",
    "PointInHull",
    "Subspace",
    "affine_span",
    "feasible_point",
    "margin_of",
    "plan",
    "point_in_hull",
    "solve_equations",
    "span",
]


# ------------------------------------------------------------------
# One private solve of exact linear algebra, from a system to what was found: plan, charge, run


ProgressArgument = Callable[[str, float], None] | bool | None


def solve_system(
    model: PrivateSystem,
    options: Options,
    *,
    mechanism: Any,
    budget: Any,
    rng: Any,
    progress: ProgressArgument = None,
    label: str,
    record: str,
) -> tuple[Found, dict[str, Any]]:
    """Plan, charge the budget, run: what was found, and the fields that all results have (``results.Result``).

    ``label`` : of the charge, such as "linalg.span". ``record`` : what a record is, for the guarantee.

    Raises
    ------
    SpecificationError, UnsupportedModelError, BudgetExceededError
        Before anything is read or spent. UnsupportedModelError also where the number of records is public and too small
        for any statement, with the number needed (a forced ``mechanism`` runs all the same).
    """
    done = execute(system(model), options, mechanism, label=label, budget=budget, rng=rng, progress=progress)
    if done.failure is not None:
        raise done.failure
    try:
        done.report("done", 1.0)
    except Exception as error:  # the caller's own; what was paid for is worth more
        words = f"progress stopped with {type(error).__name__} at the end; the result is kept"
        warnings.warn(words, stacklevel=users_line())
    if not done.private:
        record = f"NOT PRIVATE (seeded noise for tests); {record}"
    forecast, found = done.forecast, done.outcome
    assert isinstance(forecast.error, RowsMissed)
    missed = 0.0 if isinstance(model, PrivatePoints) else forecast.error.missed  # a hull leaves no point out
    bounded = math.isfinite(missed) and not forecast.vacuous
    accuracy = Accuracy(
        alpha=0.0 if bounded else None,
        beta=forecast.beta,
        slack_rows=math.ceil(missed) if bounded else None,
        proved=forecast.proved,
        statement=forecast.statement,
        vacuous=forecast.vacuous,
    )
    return found, {
        "found": found.status == "found",
        "mechanism": done.plan.chosen.mechanism,
        "guarantee": Guarantee(forecast.epsilon, forecast.delta, model.neighbors, record),
        "accuracy": accuracy,
        "plan": done.plan.alone(),
        "notes": (*found.notes, *forecast.caveats),
    }


# ------------------------------------------------------------------
# ``span``, ``affine_span`` and ``solve_equations``: a subspace of nearly all of many vectors, points or equations
#
# Each of them is one person's record. What is given becomes ``PrivateVectors``: exact rows, checked before any budget
# is spent, and sealed. No message shows an entry.


def span(
    vectors: Any,
    *,
    field: Any,
    epsilon: float,
    delta: float,
    neighbors: Neighbors = "replace-one",
    budget: Budget | None = None,
    grid: Any = None,
    rank: int | None = None,
    corrupted: float | None = None,
    expected: int | None = None,
    beta: float = 0.05,
    mechanism: Any = "auto",
    rng: Any = None,
    progress: ProgressArgument = None,
) -> Subspace:
    """Find a subspace of the span of the vectors that contains nearly all of them, exactly (KMMST24, Theorem A).

    Parameters
    ----------
    vectors : (n, d) matrix, one row per record: integers, Fractions, Decimals, text such as "1/3" (QQ), integers (GF).
        Lists, NumPy, SciPy sparse, pandas. Copied on entry.
    field : ``QQ`` or ``GF(q)``.
    epsilon, delta : the budget; delta > 0.
    neighbors : "add-remove" (one row more or less, the order of the others kept; their number is private) or
        "replace-one" (their number is public; costs double).
    budget : a ``Budget`` to charge.
    grid : exact step such as "0.01", to whose multiples floats are rounded; without it floats are refused.
    rank : public bound on the dimension of the span (default d). Privacy does not rest on it, accuracy does.
    corrupted : public guess of the share of vectors outside the subspace that is wanted. Without it the subspace is as
        large as privacy allows; with it, as small as leaves out about that share.
    expected : public guess of n for the forecast under "add-remove"; never taken from the data.
    beta : probability with which the accuracy statement may fail.
    mechanism : "auto" for the plan's choice, a mechanism's name, or an object with settings of its own.
    rng : a seed, for tests only and not private. ``progress`` : True, or a function (stage, share done).

    Returns
    -------
    Subspace

    Raises
    ------
    SpecificationError
        Before anything is spent: floats without a grid, entries of another field, an empty or ragged matrix, no field,
        a bad epsilon, delta, beta, rank, corrupted, expected, budget or neighbor relation.
    UnsupportedModelError
        Before anything is spent: delta = 0; too few records for any statement, where their number is public, with how
        many are needed.
    BudgetExceededError

    Notes
    -----
    Vectors of zeros lie in every subspace. They are left out of the counts, without any error: whether a record is zero
    changes what it counts for, and the proof covers that like any other change.
    """
    numbers = field_of(field, "span")
    requested = epsilon, delta, beta, neighbors, rank, corrupted, expected, budget, mechanism, rng, progress
    found, shared = _solved("span", numbers, numbers.exact_rows(vectors, grid=grid), grid, "one vector", requested)
    return Subspace(basis=found.answer, **shared)


def affine_span(
    points: Any,
    *,
    field: Any,
    epsilon: float,
    delta: float,
    neighbors: Neighbors = "replace-one",
    budget: Budget | None = None,
    grid: Any = None,
    rank: int | None = None,
    corrupted: float | None = None,
    expected: int | None = None,
    beta: float = 0.05,
    mechanism: Any = "auto",
    rng: Any = None,
    progress: ProgressArgument = None,
) -> AffineSubspace:
    """Find an affine subspace of the affine span of the points that contains nearly all of them, exactly.

    KMMST24, Algorithm 3 and Theorem B: the span of the vectors (u, 1). The empty set where nothing is found.

    Parameters
    ----------
    points : (n, d) matrix, one row per record, with entries as in ``span``.
    rank : public bound on the dimension of the affine span, 0 .. d (default d).

    The other arguments, the errors and the notes are those of ``span``; a point at the origin is a point like any
    other.

    Returns
    -------
    AffineSubspace
    """
    numbers = field_of(field, "affine_span")
    requested = epsilon, delta, beta, neighbors, rank, corrupted, expected, budget, mechanism, rng, progress
    rows = numbers.exact_rows(points, grid=grid, what="points", ones=True)
    found, shared = _solved("affine span", numbers, rows, grid, "one point", requested)
    return AffineSubspace(homogeneous=found.answer, **shared)


def solve_equations(
    A: Any,
    b: Any,
    *,
    field: Any,
    epsilon: float,
    delta: float,
    neighbors: Neighbors = "replace-one",
    budget: Budget | None = None,
    grid: Any = None,
    rank: int | None = None,
    corrupted: float | None = None,
    expected: int | None = None,
    beta: float = 0.05,
    mechanism: Any = "auto",
    rng: Any = None,
    progress: ProgressArgument = None,
) -> Equations:
    """Find x that solves nearly all of the equations ``a_i'x = b_i``, exactly; row i of A and b_i are one record.

    KMMST24, Algorithm 4 and Theorem C: a canonical system ``C x = d`` is released whose equations follow from the
    private ones and from which nearly all private ones follow; x is one of its solutions. Every solution of all the
    private equations solves it.

    Parameters
    ----------
    A : (n, d) matrix, one row per record, with entries as in ``span``.
    b : (n,) right-hand sides.
    rank : public bound on the rank of the matrix (A b), at most d + 1 (default).
    corrupted : public guess of the share of wrong equations. Without it the system is as large as privacy allows and
        has a solution, if there is one such.

    The other arguments and the errors are those of ``span``.

    Returns
    -------
    Equations
        How many private equations x solves is not told, since that would be a private number: ``accuracy`` says how
        many it may miss, ``missed`` is a noisy count.

    Notes
    -----
    An equation ``0'x = b`` with b not zero can be solved by no x. It is a vector like any other; if enough of them
    stand out, the released system is inconsistent and says so. Equations ``0'x = 0`` always hold and count for nothing.
    """
    numbers = field_of(field, "solve_equations")
    requested = epsilon, delta, beta, neighbors, rank, corrupted, expected, budget, mechanism, rng, progress
    rows = equation_rows(A, b, numbers, grid, "solve_equations")
    found, shared = _solved("equations", numbers, rows, grid, "one row of A with its entry of b", requested)
    C, last = found.answer.rows[:, :-1], found.answer.rows[:, -1]
    d = numbers.subtract(np.zeros_like(last), last)
    x = solve(numbers, C, d)
    if shared["found"] and x is None:
        shared["notes"] = ("the equations that stand out contradict each other: no x solves them", *shared["notes"])
    if CONSISTENT_PART in found.notes:
        words = "no bound: the equations that stand out contradict each other, and a consistent part was released"
        shared["accuracy"] = Accuracy(None, None, None, False, words)
    return Equations(
        equations=(frozen(C), frozen(d)),
        consistent=x is not None,
        x=frozen(x) if x is not None and shared["found"] else None,
        null_space=numbers.echelon(numbers.integral(C)).null_space(),
        **shared,
    )


_FUNCTIONS: dict[VectorTask, str] = {"span": "span", "affine span": "affine_span", "equations": "solve_equations"}


def _solved(
    task: VectorTask, field: Field, rows: ExactRows, grid: Any, record: str, requested: tuple[Any, ...]
) -> tuple[Found, dict[str, Any]]:
    """What was found, and the fields that the three results share."""
    epsilon, delta, beta, neighbors, rank, corrupted, expected, budget, mechanism, rng, progress = requested
    where = _FUNCTIONS[task]
    facts = {"neighbors": neighbors, "rank": rank, "corrupted": corrupted, "expected": expected}
    model = vectors_model(field, rows.shape, sealed(rows), task=task, where=where, **facts)
    options, how = basic_options(epsilon, delta, beta), {"budget": budget, "mechanism": mechanism, "rng": rng}
    found, shared = solve_system(
        model, options, **how, progress=progress, label=f"linalg.{where}", record=f"a record is {record}"
    )
    return found, {**shared, **counts_of(found), "_grid": grid}


def counts_of(found: Found) -> dict[str, Any]:
    """The released counts of records that the answer misses, as results have them."""
    return {"missed": found.missed, "estimate": found.estimate, "sigma": found.sigma}


def sealed(rows: ExactRows) -> Callable[[], ExactRows]:
    """The one way to the rows, which nobody else holds or changes."""
    kept = np.ascontiguousarray(rows)
    kept.setflags(write=False)
    return lambda: kept


def vectors_model(
    field: Field,
    shape: tuple[int, ...],
    read: Callable[[], ExactRows],
    *,
    task: VectorTask,
    neighbors: Any,
    rank: Any,
    corrupted: Any,
    expected: Any,
    where: str,
) -> PrivateVectors:
    """The model of (n, d) exact rows from public facts (and n, where it is public); errors as ``span``.

    ``rank`` : bound on the dimension of their span, of which points have one more than their affine span.
    """
    require_neighbors(neighbors, where)
    share, public = share_of(corrupted, where), neighbors == "replace-one"
    model = PrivateVectors(
        field=field,
        dimension=shape[1],
        task=task,
        neighbors=neighbors,
        rank=rank_of(rank, shape[1], int(task == "affine span"), where),
        records=shape[0] if public else None,
        expected=expected_of(expected, shape[0] if public else None, where, default=0 if share is None else EXPECTED),
        _rows=read,
        corrupted=share,
    )
    if public and not shape[0]:
        raise SpecificationError(
            f"{where}: an empty system, without any record",
            why="their number is public under replace-one, and there is nothing to replace",
            remedy="one row per record",
        )
    return model


def equation_rows(A: Any, b: Any, field: Field, grid: Any, where: str) -> ExactRows:
    """(n, d + 1) exact rows (a, -b)."""
    left = matrix(A, f"{where}: A", field)
    refuse_other_fields(b, f"{where}: b", field)
    b = b.toarray() if sp.issparse(b) else b
    if not hasattr(b, "__len__") or isinstance(b, str | bytes):
        raise SpecificationError(f"{where}: b is not a list of numbers", remedy="one right-hand side for each row of A")
    try:
        side = array_of(b)
    except (ValueError, TypeError):
        side = np.asarray(None)  # ragged: refused with the other shapes
    side = side.reshape(-1) if side.ndim == 2 and 1 in side.shape else side
    if side.ndim != 1 or side.size != left.shape[0]:
        raise SpecificationError(  # without their numbers: how many records there are may be private
            f"{where}: b does not fit the rows of A",
            why="row i of A and entry i of b are one record's equation",
            remedy="a vector with one entry for each row of A",
        )
    if left.dtype.kind != side.dtype.kind or left.dtype.kind in "OUS":
        left, side = left.astype(object), side.astype(object)  # each entry keeps its own type
    rows = field.exact_rows(np.hstack([left, side[:, None]]), grid=grid, what=f"{where}: A and b")
    last = rows[:, -1:]
    return np.hstack([rows[:, :-1], -last if field.order is None else field.subtract(np.zeros_like(last), last)])


# ------------------------------------------------------------------
# A point that satisfies nearly all of many inequalities exactly, when each inequality is one person's record


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FeasiblePoint(Result):
    """What ``feasible_point`` released.

    ``x`` (d,) : the point in floats, read-only, or None. ``exact`` : the same as a tuple of Fractions where the
    mechanism computes in rationals, else None. ``missed`` : a noisy count of the rows that x misses, where the
    mechanism paid for one, else None. ``expected`` : the public number of rows, or guess of it, that forecasts speak of
    (predictions are from synthetic rows).
    """

    x: Floats | None
    exact: tuple[Fraction, ...] | None
    missed: float | None
    expected: int
    _title = "Feasible point"

    def _rows(self) -> list[tuple[str, object]]:
        rows: list[tuple[str, object]] = [("x", "-" if self.x is None else array_text(self.x))]
        if self.exact is not None:
            rows.append(("exactly", shown(QQ, np.array(self.exact, dtype=object))))
        if self.missed is not None:
            rows.append(("rows missed, noisy count", number(self.missed)))
        return rows

    def _plain(self) -> dict[str, Any]:
        exact = None if self.exact is None else [str(value) for value in self.exact]
        x = None if self.x is None else self.x.tolist()
        return {"x": x, "exact": exact, "missed": self.missed, "expected": self.expected}


def feasible_point(
    A: Any,
    b: Any = None,
    *,
    epsilon: float,
    delta: float = 0.0,
    margin: Any = None,
    public: Any = None,
    nonneg: bool = False,
    bound: int | None = None,
    neighbors: Neighbors = "replace-one",
    budget: Budget | None = None,
    expected: int | None = None,
    beta: float = 0.05,
    mechanism: Any = "auto",
    rng: Any = None,
    progress: ProgressArgument = None,
) -> FeasiblePoint:
    """Find x with ``a_i'x <= b_i`` for nearly all rows, exactly; row i of A and entry i of b are one record.

    No private algorithm can satisfy all rows: about (1/epsilon) ln(1/delta) are at risk, more in many dimensions. The
    plan says beforehand how many may be missed. All others hold exactly, not up to a tolerance.

    Parameters
    ----------
    A : (n, d) array or scipy sparse matrix; integers, Fractions and Decimals are kept exactly, floats are taken
        for the binary fractions they are.
    b : (n,) or one number for all rows. None: zeros, and x is a direction: x = 0 is no answer (unless a public
        right-hand side is not zero).
    epsilon, delta : the budget.
    margin : a public promise that the system has room, in one of two forms. A number rho0 in (0, 1]: with rows
        ``(b_i, -a_i)`` (``-a_i`` without b) scaled to unit norm, some unit vector z, which satisfies the public
        constraints, has ``row_i z >= rho0`` for all i. Or ``dict(radius=r, within=R)``: all points within r of some
        point c satisfy the private rows, c satisfies the public ones, and its norm is at most R; that promises
        rho0 = r / (r + 2 R) (``margin_of``; r / R without b), and the units of x are chosen for it. Where the promise
        is broken (say, by a few bad rows) more rows may be missed than stated; privacy does not depend on it. Rows of
        zeros always hold and need no room.
    public : (G, h), rows ``G x <= h`` that x must satisfy; h may be None for zeros.
    nonneg : whether x >= 0 (standard form).
    bound : U, where all private numbers are whole and at most U in size, which is public, and checked. Such systems
        need no margin (``dp-lp``): equations may hide in them.
    neighbors : "replace-one" (their number is public) or "add-remove" (one row more or less; their number is private).
    budget : a ``Budget`` to charge.
    expected : a public guess of the number of rows, for forecasts under "add-remove"; never taken from A.
    beta : probability with which the accuracy statement may fail.
    mechanism : "auto" for the plan's choice, a mechanism's name, or an object with settings of its own.
    rng : a seed, for tests only and not private. ``progress`` : True, or a function (stage, share done).

    Returns
    -------
    FeasiblePoint

    Raises
    ------
    SpecificationError
        Before anything is spent: NaN, wrong shapes, an empty system, neither margin nor bound, a margin outside
        (0, 1], numbers beyond the bound, a bad epsilon, delta, beta, budget or neighbor relation.
    InfeasibleError
        Before anything is spent: the public constraints have no solution.
    UnsupportedModelError, BudgetExceededError
        As ``Problem.solve``.

    Notes
    -----
    A row ``0'x <= b`` with b < 0 never holds and is one of the missed. KMMST24, Theorem 1 (perceptron) and Theorem D
    (integers).
    """
    options = basic_options(epsilon, delta, beta)
    given = inequalities_input(
        A, b, margin=margin, public=public, nonneg=nonneg, bound=bound, neighbors=neighbors, expected=expected
    )
    sides = "" if given.model.homogeneous else " with its entry of b"
    found, shared = solve_system(
        given.model, options, mechanism=mechanism, budget=budget, rng=rng, progress=progress,
        label="linalg.feasible_point", record=f"a record is one row of A{sides}",
    )  # fmt: skip
    x, exact = None, None
    if shared["found"]:
        answer = np.asarray(found.answer)
        if answer.dtype.kind == "O":
            exact = tuple(Fraction(value) * Fraction(given.scale) for value in answer)
            x = np.array([float(value) for value in exact])
        else:
            x = answer.astype(np.float64) * given.scale
        x.setflags(write=False)
    return FeasiblePoint(x=x, exact=exact, missed=found.missed, expected=given.model.expected, **shared)


# ------------------------------------------------------------------
# A point in the convex hull of private points of a public grid


_WHERE = "point_in_hull"
# Positions are kept in 64 bits.
_MOST_LEVELS = 2**40


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PointInHull(Result):
    """What ``point_in_hull`` released.

    ``point`` (d,) : exact coordinates, or None. ``accuracy`` : how many points its statement needs. ``levels`` : of the
    public grid, per coordinate. ``expected`` : the public number of points, or guess of it.
    """

    point: tuple[Fraction, ...] | None
    levels: tuple[int, ...]
    expected: int
    _title = "Point in the convex hull"

    def _rows(self) -> list[tuple[str, object]]:
        return [("point", "-" if self.point is None else f"({', '.join(map(str, self.point))})")]

    def _plain(self) -> dict[str, Any]:
        point = None if self.point is None else [str(entry) for entry in self.point]
        return {"point": point, "levels": list(self.levels), "expected": self.expected}


def point_in_hull(
    points: Any,
    *,
    lower: Any,
    upper: Any,
    step: Any,
    epsilon: float,
    delta: float = 0.0,
    neighbors: Neighbors = "replace-one",
    budget: Budget | None = None,
    expected: int | None = None,
    beta: float = 0.05,
    mechanism: Any = "auto",
    rng: Any = None,
    progress: ProgressArgument = None,
) -> PointInHull:
    """Find a point in the convex hull of the points; each is one person's record.

    The plan says beforehand how many points are needed, from the grid and the budget. No private algorithm does without
    a grid (the number needed grows, if slowly, with its size).

    Parameters
    ----------
    points : (n, d) numbers, one row per record: integers, floats, Fractions, Decimals or text.
    lower, upper : public box, one number for all coordinates or one each.
    step : > 0, public: the grid has the points ``lower + step * i`` up to ``upper``. Write "0.1", ``Decimal`` or
        ``Fraction``: as a float 0.1 is not a tenth. The points are moved to the nearest grid point of the box (public
        policy), and the hull is that of the moved points.
    epsilon, delta : the budget. ``tukey-depth`` spends no delta.
    neighbors : "replace-one" (their number is public) or "add-remove" (one point more or less; it is private).
    budget : a ``Budget`` to charge.
    expected : a public guess of the number of points, for forecasts under "add-remove"; never taken from the points.
    beta : probability with which the accuracy statement may fail.
    mechanism : "auto" for the plan's choice, "tukey-depth", "pin-hull", or an object with settings of its own.
    rng : a seed, for tests only and not private. ``progress`` : True, or a function (stage, share done).

    Returns
    -------
    PointInHull

    Raises
    ------
    SpecificationError
        Before anything is spent: no points, NaN, wrong shapes, upper < lower, step <= 0, a bad epsilon, delta, beta,
        budget or neighbor relation.
    UnsupportedModelError, BudgetExceededError
        As ``Problem.solve``: more than 5 coordinates, for one, or a public number of points that is too small for any
        statement, with the number needed.

    Notes
    -----
    ``tukey-depth`` (up to four coordinates, a grid of up to two million points) is proved; ``pin-hull`` (KMMST24,
    Algorithm 7) serves larger grids with far more points, by prediction.
    """
    options = basic_options(epsilon, delta, beta)
    require_neighbors(neighbors, _WHERE)
    given = matrix(points, "points")
    n, d = given.shape
    if given.dtype.kind in "US":
        raise SpecificationError(
            f"{_WHERE}: points is an array of text",
            why="the array may have turned floats into text, which stands for other numbers",
            remedy="lists, or an array of objects, in which every entry keeps its own type",
        )
    if n == 0 and neighbors == "replace-one":
        raise SpecificationError(f"{_WHERE}: no points", why="there is no hull", remedy="one row per record")
    low, high = (
        tuple(_exact(entry, name) for entry in each_of(value, d, f"{_WHERE}: {name}"))
        for name, value in (("lower", lower), ("upper", upper))
    )
    width = _exact(step, "step")
    if width <= 0:
        raise SpecificationError(f"{_WHERE}: step is not positive", why="it is the grid's", remedy='step="0.1"')
    if any(b < a for a, b in zip(low, high, strict=True)):
        raise SpecificationError(
            f"{_WHERE}: upper is below lower", why="the box is empty", remedy="lower <= upper in every coordinate"
        )
    levels = tuple(math.floor((b - a) / width) + 1 for a, b in zip(low, high, strict=True))
    require_levels(levels, _WHERE)
    positions = _positions(given, low, width, levels)
    records = n if neighbors == "replace-one" else None
    guess = expected_of(expected, records, _WHERE)
    model = PrivatePoints(low, width, levels, neighbors, records, guess, lambda: positions)
    found, shared = solve_system(
        model, options, mechanism=mechanism, budget=budget, rng=rng, progress=progress, label=f"linalg.{_WHERE}",
        record="a record is one point",
    )  # fmt: skip
    point = model.coordinates(found.answer) if shared["found"] else None
    return PointInHull(point=point, levels=levels, expected=model.expected, **shared)


def require_levels(levels: Sequence[int], where: str) -> None:
    """SpecificationError for a grid that positions in 64 bits cannot number."""
    if max(levels) > _MOST_LEVELS:
        raise SpecificationError(
            f"{where}: more than {_MOST_LEVELS:,} grid points along a coordinate",
            why="positions are machine integers",
            remedy="a larger step",
        )


def _exact(value: Any, name: str) -> Fraction:
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return Fraction(int(value))
    try:
        return rational(value, name)
    except SpecificationError as error:
        raise SpecificationError(
            f"{_WHERE}: {name} is not an exact number",
            why="as a float, 0.1 is not a tenth, and NaN is no number" if isinstance(value, float) else error.why,
            remedy=f'{name}="0.1", Fraction(1, 10), Decimal("0.1") or an integer',
        ) from None


def _positions(
    given: npt.NDArray[Any], low: tuple[Fraction, ...], step: Fraction, levels: tuple[int, ...]
) -> npt.NDArray[np.int64]:
    """(n, d) nearest positions in the box, exactly: a function of the value of each entry alone, however the others are
    written (one record with a fraction in it turns a list of integers into floats, or floats into Fractions)."""
    most = np.array(levels, dtype=np.int64) - 1
    if given.dtype.kind == "f" or (given.dtype.kind == "O" and all(type(v) is float for v in given.flat)):
        wide = given.astype(np.float64)
        if not np.isfinite(wide).all():
            raise not_finite(f"{_WHERE}: points")
        corner = np.array([float(a) for a in low])
        with np.errstate(over="ignore", invalid="ignore"):
            at = (wide - corner) / float(step) + 0.5
            unsure = np.abs(at - np.rint(at)) <= 2.0**-50 * (np.abs(wide) + np.abs(corner) + float(step)) / float(step)
        nearest: npt.NDArray[np.int64] = np.clip(np.floor(at), 0, most).astype(np.int64)
        for i, j in np.argwhere(unsure & (at > -1.0) & (at < most + 2.0)):
            nearest[i, j] = _nearest(Fraction(float(wide[i, j])), low[j], step, int(most[j]))
        return nearest
    if given.dtype.kind in "biu":
        exact = integers(given).astype(object)
    else:
        exact = np.empty(given.size, dtype=object)
        exact[:] = [_entry(value) for value in given.flat]
        exact = exact.reshape(given.shape)
    # floor((x - a) / s + 1/2), in integers where x is whole.
    columns = [
        np.array([_nearest(x, a, step, k - 1) for x in exact[:, j]], dtype=np.int64)
        for j, (a, k) in enumerate(zip(low, levels, strict=True))
    ]
    return np.column_stack(columns)


def _nearest(x: Fraction | int, low: Fraction, step: Fraction, most: int) -> int:
    return min(max(math.floor((x - low) / step + Fraction(1, 2)), 0), most)


def _entry(value: Any) -> Fraction:
    if not isinstance(value, float | np.floating):
        return rational(value, "points")
    if not math.isfinite(value):
        raise not_finite(f"{_WHERE}: points")
    return Fraction(float(value))


# ------------------------------------------------------------------
# Plans without data: which mechanism, how many records, how many rows missed


_PLAN = "plan"
Task = Literal["span", "affine span", "equations", "inequalities", "hull"]
TASKS: tuple[Task, ...] = get_args(Task)


def plan(
    task: Task,
    *,
    dimension: int,
    epsilon: float,
    delta: float = 0.0,
    records: int | None = None,
    neighbors: Neighbors = "replace-one",
    field: Field = QQ,
    rank: int | None = None,
    corrupted: float | None = None,
    margin: Any = None,
    public: Any = None,
    bound: int | None = None,
    nonneg: bool = False,
    homogeneous: bool = False,
    levels: int | Sequence[int] = 101,
    beta: float = 0.05,
    mechanism: Any = "auto",
    compare: Compared = "needed",
    as_printed: bool = False,
) -> Plan:
    """Compare the mechanisms for a task before there are data: rows missed, records needed. Spends nothing.

    Parameters
    ----------
    task : "span", "affine span", "equations", "inequalities" or "hull" (a point in a convex hull).
    dimension : of the vectors or points, or the number of variables.
    epsilon, delta : the budget; ``beta``: probability with which a statement may fail.
    records : how many records there are, or about how many: ``expected`` of the functions. None: 10,000 where some
        number is needed (under "add-remove", plans of spans and equations then do without).
    neighbors : "replace-one" or "add-remove".
    field, rank, corrupted : of vectors, as in the function.
    margin, public, bound, nonneg : of inequalities, as in ``feasible_point``; ``homogeneous``: there is no b.
    levels : of points: values of the public grid, one number for all coordinates or one each.
    mechanism : "auto", the name of one, or an object. ``compare`` : as in ``Problem.plan``.
    as_printed : compare the papers' own constants too.

    Returns
    -------
    Plan
        Prints as a table, with what no mechanism can beat below it.

    Raises
    ------
    SpecificationError, UnsupportedModelError
        For wrong arguments; where no mechanism applies; and under "replace-one" where the records are too few for any
        statement, with the number needed.
    """
    if task not in TASKS:
        raise SpecificationError(
            f"task={task!r}" if isinstance(task, str) else f"task={type(task).__name__}",
            why="no such task",
            remedy=", ".join(map(repr, TASKS)),
        )
    size = _integer_of("dimension", dimension)
    given = None if records is None else _integer_of("records", records)
    public_records = (given or EXPECTED) if neighbors == "replace-one" else None
    options = basic_options(epsilon, delta, beta)
    data: PrivateSystem
    if task == "hull":
        require_neighbors(neighbors, _PLAN)
        counts = tuple(_integer_of("levels", level) for level in each_of(levels, size, f"{_PLAN}: levels"))
        require_levels(counts, _PLAN)
        data = PrivatePoints(
            (Fraction(0),) * size, Fraction(1), counts, neighbors, public_records, given or EXPECTED, _no_data
        )
    elif task == "inequalities":
        facts = {"margin": margin, "public": public, "nonneg": nonneg, "bound": bound, "expected": given}
        data = public_inequalities(
            size, not homogeneous, public_records, _no_data, neighbors=neighbors, where=_PLAN, **facts
        ).model
    else:
        shape, numbers = (given or EXPECTED, size + (task != "span")), field_of(field, _PLAN)
        facts = {"neighbors": neighbors, "rank": rank, "corrupted": corrupted, "expected": given}
        data = vectors_model(numbers, shape, _no_data, task=task, where=_PLAN, **facts)
    return make_plan(system(data), options, mechanism, compare=compare, as_printed=as_printed)


def _no_data(*_: Any) -> Any:
    raise AssertionError("a plan reads no data")


def _integer_of(name: str, value: Any) -> int:
    if not is_integer(value, 1):
        raise SpecificationError(
            f"{_PLAN}: {name} is no positive integer", why="it counts things", remedy=f"{name}=10, say"
        )
    return int(value)
