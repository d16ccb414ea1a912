"""A solution of nearly all of many linear equations, when each equation is one person's record."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpmodel.annotate.records import Neighbors
from dpmodel.linalg.conduct import Conducted, ProgressArgument, conduct
from dpmodel.linalg.public_facts import field_of, vectors_request
from dpmodel.linalg.subspace_result import Equations, common, frozen
from dpmodel.linalg.vectors_input import equation_rows, vectors_model
from dpmodel.mechanisms.linalg.stable_span.mechanism import CONSISTENT_PART
from dpmodel.numerics.fields.field import Field
from dpmodel.privacy import Budget
from dpmodel.release.release import Accuracy

__all__ = ["Equations", "solve_equations"]


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
    has
        a solution, if there is one such.

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
    request = vectors_request(epsilon, delta, beta)
    numbers = field_of(field, "solve_equations")
    model = vectors_model(
        equation_rows(A, b, numbers, grid, "solve_equations"),
        numbers,
        task="equations",
        neighbors=neighbors,
        rank=rank,
        corrupted=corrupted,
        expected=expected,
        where="solve_equations",
    )
    conducted = conduct(
        model,
        request,
        mechanism=mechanism,
        budget=budget,
        rng=rng,
        progress=progress,
        label="linalg.solve_equations",
        record="a record is one row of A with its entry of b",
    )
    return equations_of(conducted, numbers, grid)


def equations_of(conducted: Conducted, field: Field, grid: Any) -> Equations:
    """The released system as equations, with a solution."""
    rows = conducted.found.answer.rows
    C, last = rows[:, :-1], rows[:, -1:]
    d = field.subtract(np.zeros_like(last), last)[:, 0]
    x = field.solve(C, d)
    shared = common(conducted, grid)
    if shared["found"] and x is None:
        shared["notes"] = ("the equations that stand out contradict each other: no x solves them", *shared["notes"])
    if CONSISTENT_PART in conducted.found.notes:
        words = "no bound: the equations that stand out contradict each other, and a consistent part was released"
        shared["accuracy"] = Accuracy(None, None, None, False, words)
    return Equations(
        equations=(frozen(C), frozen(d)),
        consistent=x is not None,
        x=frozen(x) if x is not None and shared["found"] else None,
        null_space=field.echelon(field.exact_rows(C)).null_space(),
        **shared,
    )
