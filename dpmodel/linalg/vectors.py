"""``span``, ``affine_span`` and ``solve_equations``: a subspace of nearly all of many vectors, points or equations.

Each of them is one person's record.
What is given becomes ``PrivateVectors``: exact rows, checked before any budget is spent, and sealed. No message shows
an entry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel.errors import SpecificationError
from dpmodel.linalg.public_facts import EXPECTED, expected_of, field_of, rank_of, require_neighbors, share_of
from dpmodel.linalg.results import AffineSubspace, Equations, Subspace, frozen
from dpmodel.linalg.solve import ProgressArgument, solve_system
from dpmodel.marks.domain import array_of
from dpmodel.marks.records import Neighbors
from dpmodel.mechanisms.linalg.found import Found
from dpmodel.mechanisms.linalg.stable_span.mechanism import CONSISTENT_PART
from dpmodel.mechanisms.linalg.systems import PrivateVectors, VectorTask
from dpmodel.models.request import basic_request
from dpmodel.numerics.fields.echelon import ExactRows, Field, solve
from dpmodel.numerics.fields.entries import matrix, refuse_other_fields
from dpmodel.privacy import Budget
from dpmodel.release.release import Accuracy


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
    request, how = basic_request(epsilon, delta, beta), {"budget": budget, "mechanism": mechanism, "rng": rng}
    found, shared = solve_system(
        model, request, **how, progress=progress, label=f"linalg.{where}", record=f"a record is {record}"
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
