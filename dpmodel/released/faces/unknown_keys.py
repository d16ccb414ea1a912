"""Counts of a column whose values nobody can list: a stability histogram (Korolova and others 2009, in integers).

Every key that some row has gets discrete Laplace noise of scale ``s = D / epsilon``; its count is released where it is
at least a public threshold T. Of a person k rows count (or, with ``distinct``, k keys once each). D is what a person
moves the counts of all keys by in the 1-norm: k under add-remove, 2 k under replace-one.

Privacy: (epsilon, delta). Let neighbors have the rows X and X', and let A be the keys that X alone has, A' those that
X' alone has, the rest common. A person had all rows of A, c <= k of them, and of A' likewise c' <= k; the common counts
move by at most D - c - c'.
(1) The probability that a key of A is released from X. The tail ``P(Z >= m) = r^m / (1 + r)``, m >= 0, r = exp(-1/s),
is exponential in c_i for the parts c_i of c: sums of it over parts are largest for one part or for parts of 1 (it is
convex: of j parts, all but one are 1; then it is convex in j). So it is at most p(T), the larger of ``P(Z >= T - k)``
and ``k P(Z >= T - 1)``; with ``distinct`` the latter. T is the least integer with p(T) <= delta.
(2) A release without keys of A: X gives it with the probability that the common keys have it, times that of no key of
A; X' with the probability that the common keys have it, at least ``exp(-(D - c - c') / s)`` of the other, times that of
no key of A', at least 1 - p(T) where A' is not empty. As c' >= 1 there, ``1 / (1 - delta) <= exp(1 / s)`` makes up for
it: a delta above ``1 - exp(-1 / s)`` is refused.
Together: P(X gives a set of releases) <= exp(epsilon) P(X' does) + delta. (Test: exactly, over all neighbors of small
tables, a threshold lower by one among them.)

The time of a run grows with the number of keys, which is private: no guarantee covers what a clock tells.

Intervals hold given that a key is released, for whichever count c it has: ends are the c at which the noisy count would
have been as large, or as small, with probability (1 - level) / 2, among noisy counts of at least T. Without that
condition rare keys, which are seen only where noise is large, would be missed. A key that is released has a row.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np

from dpmodel._types import Floats, Integers, Labels
from dpmodel.contract import no_progress
from dpmodel.errors import SpecificationError
from dpmodel.marks.dataset import aggregates
from dpmodel.marks.dataset.declared import names_in, refuse_unknown
from dpmodel.marks.dataset.estimates import Estimates, check_level
from dpmodel.marks.dataset.reading import WHO, sorted_by
from dpmodel.marks.dataset.table import People
from dpmodel.privacy import Budget, Cost, DiscreteNoiseSource, noise_source, validate_privacy
from dpmodel.released.faces.quantiles import affordable, estimates
from dpmodel.solve.wall import charge_then_run
from dpmodel.text import number

# What a missing cell is read to, and what is neither number, text nor time (``reading.Order``).
_NOTHING = (math.inf, "\U0010ffff")
_BAD = "outside"


def counts(
    people: People,
    by: Any,
    distinct: bool,
    name: str | None,
    epsilon: Any,
    delta: Any,
    level: Any,
    budget: Budget | None,
    rng: Any,
) -> Estimates:
    """``Dataset.count(by, keys="private")``."""
    names = names_in(by)
    for column in names:
        refuse_unknown(column, people.declared.columns)
    if not names or any(column in people.declared.bounds for column in names):
        raise SpecificationError(
            "Dataset.count: private keys of " + ("no column" if not names else "a column with bounds"),
            why="keys are found in columns that nobody can list; numbers with bounds have public bins",
            remedy="by='diagnosis', a column without bounds; or histogram(column, edges)",
        )
    if distinct and people.person is None:
        raise SpecificationError("Dataset.count: distinct without privacy_id", remedy="privacy_id='person'")
    if epsilon is None:
        raise SpecificationError(
            "Dataset.count: private keys without epsilon",
            why="they are released at once, with the counts",
            remedy="count(by, keys='private', epsilon=1, delta=1e-6)",
        )
    beta, loss = 1 - check_level(level, "Dataset.count", 0.5), validate_privacy(epsilon, delta)
    most = people.most("count")
    scale = most * (1 if people.records.neighbors == "add-remove" else 2) / loss.epsilon
    if not 0 < loss.delta <= -math.expm1(-1 / scale):
        raise SpecificationError(
            f"Dataset.count: private keys at delta={number(loss.delta)}",
            why="a key that one person alone has must not be seen but with probability delta"
            + (", so that nothing could be released at 0" if not loss.delta else ", which is small beside epsilon"),
            remedy="delta=1e-6; or, at delta 0, the public list: domain={column: [...]}",
        )
    source = noise_source(rng)
    if not isinstance(source, DiscreteNoiseSource):
        raise SpecificationError("Dataset.count: this source has no discrete noise", remedy="rng=None")
    cost = Cost.approximate(*loss)
    affordable(budget, cost)
    found = _found(people, names, distinct, most)
    least, called = threshold(scale, most, loss.delta, distinct), name or aggregates._called("count", names)
    released, failure = charge_then_run(
        lambda report: run(np.array([*found.values()], dtype=np.int64), scale, least, source),
        name=called,
        budget=budget,
        cost=cost,
        label=called,
        report=no_progress,
        remedy="rng=None",
    )
    if released is None:
        assert failure is not None
        raise failure
    seen = np.argsort(-released, kind="stable")  # keys of one count stay in their own order
    seen = seen[released[seen] >= least]
    values, all_keys = released[seen], list(found)
    keys = [all_keys[i] for i in seen.tolist()]
    sure = least + math.ceil(scale * math.log(1 / beta))
    statement = (
        f"a key is here if its noisy count is at least {least}: of {sure} rows or more, with probability "
        f"{number(1 - beta)}. Intervals hold with that probability for every key that is here (proved)"
    )
    labels: Labels = ((names[0] if len(names) == 1 else names, tuple(keys)),)
    arrays = [values.astype(float), *interval(values, scale, least, beta)]
    return estimates(people, called, arrays, 1 - beta, statement, *loss, labels, rng=rng)


def run(found: Integers, scale: float, least: int, noise: DiscreteNoiseSource) -> Integers:
    """(keys,) noisy counts; what is below ``least`` is replaced by 0."""
    noisy = noise.discrete_laplace(found, scale)
    return np.where(noisy >= least, noisy, 0)


def _found(people: People, names: tuple[str, ...], distinct: bool, most: int) -> dict[Any, int]:
    """Key -> its count, sorted by key. Values of several columns are tuples.

    Every cell is read by itself, a key that is written like a number as that number, whatever type a column took.
    """
    declared = people.declared
    people = replace(people, order=(*people.order, *(c for c in names if not declared.listed(c))))
    parts = [(declared.place(c),) if declared.listed(c) else sorted_by(declared.place(c)) for c in names]
    by = [column for part in parts for column in part]
    table = people.used([column for column in names if declared.listed(column)])
    if distinct:
        table = table.distinct([WHO, *by])
    table = people.bounded(table, most, [nw.col(column) for column in by] if distinct else None)
    missing = nw.col(WHO).is_null() if people.person is not None else nw.lit(False)
    columns = {_BAD: nw.when(missing).then(1).otherwise(0)}
    # -0 is 0, in engines that tell them too.
    columns |= {part[0]: nw.col(part[0]) + 0.0 for part in parts if len(part) == 2}
    out: dict[Any, int] = {}
    for group, (rows, bad) in table.summed(columns, by, [_BAD]).items():
        key, inside, at = [], not bad, 0
        for column, part in zip(names, parts, strict=True):
            cell, at = group[at : at + len(part)], at + len(part)
            if len(part) == 1:
                inside &= cell[0] >= 0
                key.append(declared.categories(column)[cell[0]] if cell[0] >= 0 else None)
            else:
                inside &= cell != _NOTHING
                key.append(cell[0] if math.isfinite(cell[0]) else cell[1])
        if inside:
            out[key[0] if len(key) == 1 else tuple(key)] = rows
        elif people.outside == "error":
            raise people._outside_error(names)
    return {key: out[key] for key in sorted(out, key=_sorting)}


def _sorting(key: Any) -> Any:
    """Numbers first, then text and whatever else was declared."""
    if isinstance(key, tuple):
        return tuple(map(_sorting, key))
    number = isinstance(key, int | float)
    return not number, key if number else str(key)


def tail(scale: float, least: Any) -> Floats:
    """P(Z >= least), Z discrete Laplace noise, for integers of either sign."""
    least = np.asarray(least, dtype=np.float64)
    above = np.exp(-np.abs(np.where(least > 0, least, 1 - least)) / scale) / (1 + math.exp(-1 / scale))
    share: Floats = np.where(least > 0, above, 1 - above)
    return share


def threshold(scale: float, rows: int, delta: float, distinct: bool) -> int:
    """The least T with ``k P(Z >= T - 1) <= delta`` and, if not ``distinct``, ``P(Z >= T - k) <= delta``."""
    log = -math.log(delta) - math.log1p(math.exp(-1 / scale))
    least = 1 + scale * (log + math.log(rows))
    if not distinct:
        least = max(least, rows + scale * log)
    return math.ceil(least * (1 + 1e-12))  # beyond the rounding of logarithms


def interval(noisy: Integers, scale: float, least: int, beta: float) -> tuple[Floats, Floats]:
    """(keys,) ends for counts given that ``noisy`` >= ``least``: bisection, as both probabilities are monotone."""

    def as_large(count: Floats, than: Any) -> Floats:  # P(noisy >= than | noisy >= least)
        share: Floats = tail(scale, than - count) / tail(scale, least - count)
        return share

    far = math.ceil(scale * (2 - math.log(beta))) + 1
    ends = []
    for above in (True, False):
        low, high = np.zeros(noisy.size), noisy + float(far)
        for _ in range(64):
            middle = np.floor((low + high) / 2)
            # Lower end: the least count that is not too small. Upper end: the least that is too large, less 1.
            passed = as_large(middle, noisy) > beta / 2 if above else 1 - as_large(middle, noisy + 1) <= beta / 2
            low, high = np.where(passed, low, middle), np.where(passed, middle, high)
        ends.append(np.maximum(high if above else high - 1, 1.0))
    return ends[0], ends[1]
