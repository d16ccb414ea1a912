"""Exact private linear algebra (KMMST24): spans, equations, inequalities, points in convex hulls.

Each vector, equation, inequality or point is one record. An answer satisfies a record exactly or misses it; nearly
all are satisfied, and ``plan`` says beforehand how many may be missed or how many records are needed.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from dpmodel.contract import Options
from dpmodel.errors import SpecificationError, users_line
from dpmodel.exact.arguments import EXPECTED, each_of, field_of, is_integer, require_levels, require_neighbors
from dpmodel.exact.fields import GF, QQ, Field
from dpmodel.exact.inputs import (
    equation_rows,
    inequalities_input,
    margin_of,
    points_model,
    public_inequalities,
    sealed,
    vectors_model,
)
from dpmodel.exact.model import Found, PrivatePoints, PrivateSystem, VectorTask
from dpmodel.exact.results import AffineSubspace, Equations, FeasiblePoint, PointInHull, Subspace, System, frozen
from dpmodel.exact.stable_span import CONSISTENT_PART
from dpmodel.exact.subspaces import ExactRows, solve
from dpmodel.forecast import RowsMissed
from dpmodel.marks.records import Neighbors
from dpmodel.options import basic_options
from dpmodel.privacy import Budget
from dpmodel.release import Accuracy, Guarantee
from dpmodel.solve.execute import execute
from dpmodel.solve.plan import Plan
from dpmodel.solve.planner import Compared, make_plan

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

ProgressArgument = Callable[[str, float], None] | bool | None


@dataclass(frozen=True)
class Request:
    """What every function is given beside its records: the budget, the relation, and how to run.

    ``where`` : the function's name, in errors; ``room`` : with it, the label of the charge. The others are the
    arguments as they were given.
    """

    where: str
    epsilon: Any
    delta: Any
    neighbors: Any
    budget: Any
    expected: Any
    beta: Any
    mechanism: Any
    rng: Any
    progress: ProgressArgument
    room: str = "linalg"

    @cached_property
    def options(self) -> Options:
        """The budget and beta, checked."""
        return basic_options(self.epsilon, self.delta, self.beta)

    def solve(self, model: PrivateSystem, record: str) -> tuple[Found, dict[str, Any]]:
        """Plan, charge the budget, run: what was found, and the fields that all results have (``results.Result``).

        ``record`` : what a record is, for the guarantee.
        Errors: SpecificationError, UnsupportedModelError, BudgetExceededError, before anything is read or spent.
        UnsupportedModelError also where the number of records is public and too small for any statement, with the
        number needed (a forced ``mechanism`` runs all the same).
        """
        done = execute(
            model, self.options, self.mechanism, label=f"{self.room}.{self.where}", budget=self.budget, rng=self.rng,
            progress=self.progress,
        )  # fmt: skip
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
        missed = 0.0 if math.isnan(forecast.error.missed) else forecast.error.missed  # a hull leaves no point out
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
            "plan": done.plan.without_model(),
            "notes": (*found.notes, *forecast.caveats),
            "missed": found.missed,
            "estimate": found.estimate,
            "sigma": found.sigma,
        }

    def subspace(
        self,
        task: VectorTask,
        field: Field,
        rows: ExactRows,
        rank: Any,
        corrupted: Any,
        grid: Any,
        record: str,
        blocks: Any = None,
    ) -> tuple[Found, dict[str, Any]]:
        """The same of vectors, with the fields that results about subspaces share."""
        model = vectors_model(
            field, rows.shape, sealed(rows), task=task, neighbors=self.neighbors, rank=rank, corrupted=corrupted,
            expected=self.expected, where=self.where, blocks=blocks,
        )  # fmt: skip
        found, shared = self.solve(model, f"a record is {record}")
        return found, {**shared, "_grid": grid}


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
    blocks: Any = None,
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
    blocks : of one-hot columns: public sets of column numbers, one for each category that was encoded, such as
        ``[range(0, 9), [9, 10]]``; other columns in none. Rare values then cost directions of their own only.
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
    request = Request("span", epsilon, delta, neighbors, budget, expected, beta, mechanism, rng, progress)
    numbers = field_of(field, "span")
    rows = numbers.exact_rows(vectors, grid=grid)
    found, shared = request.subspace("span", numbers, rows, rank, corrupted, grid, "one vector", blocks)
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
    blocks: Any = None,
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
    request = Request("affine_span", epsilon, delta, neighbors, budget, expected, beta, mechanism, rng, progress)
    numbers = field_of(field, "affine_span")
    rows = numbers.exact_rows(points, grid=grid, what="points", ones=True)
    found, shared = request.subspace("affine span", numbers, rows, rank, corrupted, grid, "one point", blocks)
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
    request = Request("solve_equations", epsilon, delta, neighbors, budget, expected, beta, mechanism, rng, progress)
    numbers = field_of(field, "solve_equations")
    rows = equation_rows(A, b, numbers, grid, "solve_equations")
    record = "one row of A with its entry of b"
    found, shared = request.subspace("equations", numbers, rows, rank, corrupted, grid, record)
    C, last = found.answer.rows[:, :-1], found.answer.rows[:, -1]
    d = numbers.subtract(np.zeros_like(last), last)
    x = solve(numbers, C, d)
    if shared["found"] and x is None:
        shared["notes"] = ("the equations that stand out contradict each other: no x solves them", *shared["notes"])
    if CONSISTENT_PART in found.notes:
        words = "no bound: the equations that stand out contradict each other, and a consistent part was released"
        shared["accuracy"] = Accuracy(None, None, None, False, words)
    return Equations(
        equations=System(frozen(C), frozen(d)),
        consistent=x is not None,
        x=frozen(x) if x is not None and shared["found"] else None,
        null_space=numbers.echelon(numbers.integral(C)).null_space(),
        **shared,
    )


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
    margin : a public promise that the system has room, in one of two forms. A number rho0 in (0, 1]: with rows
        ``(b_i, -a_i)`` (``-a_i`` without b) scaled to unit norm, some unit vector z, which satisfies the public
        constraints, has ``row_i z >= rho0`` for all i. Or ``dict(radius=r, within=R)``: all points within r of some
        point c satisfy the private rows, c satisfies the public ones, and its norm is at most R; that promises
        rho0 = r / (r + 2 R) (``margin_of``; r / R without b), and the units of x are chosen for it. Where the promise
        is broken (say, by a few bad rows) more rows may be missed than stated; privacy does not depend on it. Rows of
        zeros always hold and need no room.
    public : (G, h), rows ``G x <= h`` that x must satisfy; h may be None for zeros.
    nonneg : whether x >= 0 (standard form).
    bound : U, where all private numbers are integers and at most U in size, which is public, and checked. Such systems
        need no margin (``dp-lp``): equations may hide in them.

    The other arguments are those of ``span``.

    Returns
    -------
    FeasiblePoint

    Raises
    ------
    SpecificationError
        Before anything is spent: NaN, wrong shapes, an empty system, neither margin nor bound, a margin outside
        (0, 1], numbers beyond the bound, and for what ``span`` refuses.
    InfeasibleError
        Before anything is spent: the public constraints have no solution.
    UnsupportedModelError, BudgetExceededError
        As ``Problem.solve``.

    Notes
    -----
    A row ``0'x <= b`` with b < 0 never holds and is one of the missed. KMMST24, Theorem 1 (perceptron) and Theorem D
    (integers).
    """
    request = Request("feasible_point", epsilon, delta, neighbors, budget, expected, beta, mechanism, rng, progress)
    given = inequalities_input(
        A, b, margin=margin, public=public, nonneg=nonneg, bound=bound, neighbors=neighbors, expected=expected
    )
    sides = "" if given.model.homogeneous else " with its entry of b"
    found, shared = request.solve(given.model, f"a record is one row of A{sides}")
    x, exact = None, None
    if shared["found"]:
        answer = np.asarray(found.answer)
        if answer.dtype.kind == "O":
            exact = tuple(Fraction(value) * Fraction(given.scale) for value in answer)
            x = np.array([float(value) for value in exact])
        else:
            x = answer.astype(np.float64) * given.scale
        x.setflags(write=False)
    return FeasiblePoint(x=x, exact=exact, expected=given.model.expected, **shared)


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

    The other arguments are those of ``span``.

    Returns
    -------
    PointInHull

    Raises
    ------
    SpecificationError
        Before anything is spent: no points, NaN, wrong shapes, upper < lower, step <= 0, and for what ``span`` refuses.
    UnsupportedModelError, BudgetExceededError
        As ``Problem.solve``: more than 5 coordinates, for one, or a public number of points that is too small for any
        statement, with the number needed.

    Notes
    -----
    ``tukey-depth`` (up to four coordinates, a grid of up to two million points) is proved and spends no delta;
    ``pin-hull`` (KMMST24, Algorithm 7) serves larger grids with far more points, by prediction.
    """
    request = Request("point_in_hull", epsilon, delta, neighbors, budget, expected, beta, mechanism, rng, progress)
    model = points_model(points, lower=lower, upper=upper, step=step, neighbors=neighbors, expected=expected)
    found, shared = request.solve(model, "a record is one point")
    point = model.coordinates(found.answer) if shared["found"] else None
    return PointInHull(point=point, levels=model.levels, expected=model.expected, **shared)


Task = Literal["span", "affine span", "equations", "inequalities", "hull"]
# What a task may be told of its records, beside how many there are; as the arguments of its function.
_FACTS: dict[Task, tuple[str, ...]] = {
    "span": ("field", "rank", "corrupted", "blocks"),
    "affine span": ("field", "rank", "corrupted", "blocks"),
    "equations": ("field", "rank", "corrupted"),
    "inequalities": ("margin", "public", "bound", "nonneg", "homogeneous"),
    "hull": ("levels",),
}


def plan(
    task: Task,
    *,
    dimension: int,
    epsilon: float,
    delta: float = 0.0,
    records: int | None = None,
    neighbors: Neighbors = "replace-one",
    beta: float = 0.05,
    mechanism: Any = "auto",
    compare: Compared = "needed",
    as_printed: bool = False,
    **facts: Any,
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
    mechanism : "auto", the name of one, or an object. ``compare`` : as in ``Problem.plan``.
    as_printed : compare the papers' own constants too.
    facts : what is public of the records, as in the function of the task. Of vectors ``field`` (default QQ), ``rank``,
        ``corrupted``, ``blocks``. Of inequalities ``margin``, ``public``, ``bound``, ``nonneg``, and
        ``homogeneous=True`` where there is no b. Of points ``levels``: values of the public grid, one number for all
        coordinates or one each (default 101).

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
    if task not in get_args(Task):
        raise SpecificationError(
            f"task={task!r}" if isinstance(task, str) else f"task={type(task).__name__}",
            why="no such task",
            remedy=", ".join(map(repr, get_args(Task))),
        )
    foreign = [name for name in facts if name not in _FACTS[task]]
    if foreign:
        raise SpecificationError(
            f"plan: {task} has no {foreign[0]}", why="it is no fact about such records", remedy=", ".join(_FACTS[task])
        )
    size = _counting("dimension", dimension)
    given = None if records is None else _counting("records", records)
    expected = given or EXPECTED
    public = expected if neighbors == "replace-one" else None
    options = basic_options(epsilon, delta, beta)
    model: PrivateSystem
    if task == "hull":
        require_neighbors(neighbors, "plan")
        levels = each_of(facts.get("levels", 101), size, "plan: levels")
        counts = tuple(_counting("levels", level) for level in levels)
        require_levels(counts, "plan")
        model = PrivatePoints((Fraction(0),) * size, Fraction(1), counts, neighbors, public, expected, _no_data)
    elif task == "inequalities":
        about = {"margin": None, "public": None, "bound": None, "nonneg": False, "homogeneous": False, **facts}
        sided = not about.pop("homogeneous")
        model = public_inequalities(
            size, sided, public, _no_data, neighbors=neighbors, expected=given, where="plan", **about
        ).model
    else:
        about = {"rank": None, "corrupted": None, **facts}
        field = field_of(about.pop("field", QQ), "plan")
        shape = expected, size + (task != "span")
        model = vectors_model(
            field, shape, _no_data, task=task, neighbors=neighbors, expected=given, where="plan", **about
        )
    return make_plan(model, options, mechanism, compare=compare, as_printed=as_printed)


def _no_data(*_: Any) -> Any:
    raise AssertionError("a plan reads no data")


def _counting(name: str, value: Any) -> int:
    if not is_integer(value, 1):
        raise SpecificationError(f"plan: {name} is no positive integer", why="it counts things", remedy=f"{name}=10")
    return int(value)
