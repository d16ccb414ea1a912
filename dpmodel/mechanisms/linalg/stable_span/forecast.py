"""How many vectors a stable span may miss, from public facts: bounds by telescoping and Chernoff."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpmodel._types import Floats
from dpmodel.mechanisms.contract import Request
from dpmodel.mechanisms.linalg.stable_span.tails import Sums, union_bound
from dpmodel.mechanisms.linalg.systems import PrivateVectors
from dpmodel.text import number


@dataclass(frozen=True)
class SpanBound:
    """Except with the probability allowed: with ``needed`` non-zero vectors or more the subspace is not {0}, and
    then it misses at most ``missed``, which is fewer."""

    needed: float
    missed: float


NOTHING = SpanBound(math.inf, math.inf)


def span_bound(allowed: Floats, sums: Sums, beta: float) -> SpanBound:
    """From bounds for every level K at which the choice may stop.

    ``allowed`` (r,), ``sums`` (r) : if level K = 0 .. r - 1 is chosen, at most ``allowed[K]`` plus the sum of the
    weighted noises ``sums[K]`` vectors lie outside. ``beta`` : failure probability of all together; none left: no
    bound.
    """
    if beta <= 0:
        return NOTHING
    whole = math.floor(union_bound(allowed[:1], sums[:1], beta / 2))
    rest = math.floor(union_bound(allowed[1:], sums[1:], beta / 2))
    return SpanBound(max(whole, rest) + 1.0, float(rest))


def level_sums(values: Floats) -> Floats:
    """(r,) for K = 0 .. r - 1: ``sum over k > K of k values[k - 1]``: vectors in sets of more than K, if there are
    ``values[k - 1]`` sets of k."""
    levels = np.arange(1, values.size + 1)
    return np.cumsum((levels * values)[::-1])[::-1]


def statement(model: PrivateVectors, request: Request, bound: SpanBound) -> str:
    """The bound in words."""
    if math.isinf(bound.needed):
        return "delta is too large beside beta"
    what = {"span": "vectors", "affine span": "points", "equations": "equations"}[model.task]
    return (
        f"with probability {number(1 - request.beta)}, at most {number(bound.missed)} {what} are missed, if "
        f"{number(bound.needed)} or more are not zero"
    )


def predicted_statement(bound: SpanBound) -> str:
    """The same where a share of the vectors is guessed to be corrupted."""
    if math.isinf(bound.needed):
        return "so many corrupted vectors that every independent set holds one"
    return (
        f"predicted to miss the corrupted vectors only, about {number(bound.missed)}, if {number(bound.needed)} or "
        "more vectors are not zero"
    )
