"""The span of nearly all of many vectors, when each vector is one person's record."""

from __future__ import annotations

from typing import Any

from dpmodel.annotate.records import Neighbors
from dpmodel.linalg.conduct import ProgressArgument, conduct
from dpmodel.linalg.public_facts import field_of, vectors_request
from dpmodel.linalg.subspace_result import Subspace, common
from dpmodel.linalg.vectors_input import vectors_model
from dpmodel.privacy import Budget

__all__ = ["Subspace", "span"]


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
    rank : public bound on the dimension of the span (default d). If it does not hold, privacy does.
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
        Before anything is spent: too few records for any statement, where their number is public; it says how many.
    BudgetExceededError

    Notes
    -----
    Vectors of zeros lie in every subspace. They are left out of the counts, without any error: whether a record is zero
    changes what it counts for, and the proof covers that like any other change.
    """
    request = vectors_request(epsilon, delta, beta)
    numbers = field_of(field, "span")
    model = vectors_model(
        numbers.exact_rows(vectors, grid=grid),
        numbers,
        task="span",
        neighbors=neighbors,
        rank=rank,
        corrupted=corrupted,
        expected=expected,
        where="span",
    )
    conducted = conduct(
        model,
        request,
        mechanism=mechanism,
        budget=budget,
        rng=rng,
        progress=progress,
        label="linalg.span",
        record="a record is one vector",
    )
    return Subspace(basis=conducted.found.answer, **common(conducted, grid))
