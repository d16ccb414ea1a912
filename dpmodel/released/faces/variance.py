"""Variances and standard deviations of a column: a noisy mean, then the sum of squares about it; three sums where the
number of rows is private.

The column is clipped to its bounds, c + h [-1, 1], and rounded, value by value, to 2^17 steps of their width; integers
within integer bounds, up to 2^16 apart, are not. Squares of such integers add exactly, in any engine and in any order,
up to 2^31 rows. A sum of at most n = 2^31 is then rounded to a float, by n 2^-53 at most and so once more where it was
divided: moves are declared larger by the factor 1 + 2^-18 for that.

The number n of rows is public (replace-one, every row a record, none left out, one group): let v = (x - c) / h in
[-1, 1], with mean m. First sum v gets Laplace noise of scale b = 2 / epsilon_1: replacing a row moves it by at most 2.
A number p in [-1, 1] is made of it, the same whatever else the rows hold. Then S = sum (v - p)^2 is measured with the
rest of epsilon: each square is in [0, (1 + |p|)^2], so replacing a row moves S by at most that, attained. Both are one
release of epsilon (adaptive composition of pure mechanisms). S / n is the variance plus (p - m)^2, of second order in
b / n. So the noise is that of a mean in the middle of the bounds, 4 times less than what the variance itself needs
(4 h^2 / n), where m is there, and no more at the ends but for epsilon_1. p is the noisy mean, cut to [-1, 1] and
shrunk by 1 - 6 (b / n)^2: the share of a uniform m's variance, 1/3, beside that of the noise, to first order. epsilon_1
has the share (2 / (n epsilon))^(1/3), at most a half: noise in S of about 1 / (n epsilon), and (b / n)^2, are least
together at such a share. (The 2 was chosen on hours, ages and years of schooling of Adult.)

Otherwise, in each group, with u = (v + 1) / 2: the sums B0, B1, B2 of (1 - u)^2, 2 u (1 - u) and u^2. These are at
least 0 and add up to 1 whatever u is, so a row adds to the sums what the hull of three unit vectors has: k rows of a
person move them as k rows move a count in three cells a group (``declared.of_counts``), attained at the bounds. The
variance is ``4 h^2 (B0 B2 - B1^2 / 4) / (B0 + B1 + B2)^2``: since sum u = B1 / 2 + B2 and sum u^2 = B2.

Intervals. With probability ``level`` all noise of a group is below a public t (``max_abs_quantile``): the true sums lie
in a box around the noisy ones, and the variance between its least and its largest value there. With p, the sums are
within ranges of their own, a tenth of 1 - level for the first: the ends follow from those of S and of (p - m)^2; and a
variance is at most 1 - m^2. Of three: where it is not negative, f = (B0 B2 - B1^2 / 4)
/ N^2 falls with B1. In B0 its derivative has the sign of B2 N - 2 (B0 B2 - B1^2 / 4) = B2 (B1 + B2 - B0) + B1^2 / 2: it
rises up to B0 = B1 + B2 + B1^2 / (2 B2) and falls after; the same of B2. So the least value is at a corner with the
largest B1, and the largest has the least B1 and one of B0, B2 at an end with the other nearest to its peak (both at a
peak needs B1 = 0 and B0 = B2, which an end reaches too where their ranges meet).
Rounding moves v by some e with |e| <= 1 / 2^17. Standard deviations obey the triangle inequality, so that of v is
within the deviation of e, no more than max |e|, of that of the rounded values: ends are widened by so much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import narwhals as nw
import numpy as np

from dpmodel._types import Floats, Integers
from dpmodel.contract import no_progress
from dpmodel.marks.dataset import aggregates
from dpmodel.marks.dataset import declared as moves
from dpmodel.marks.dataset.declared import Move, names_in
from dpmodel.marks.dataset.estimates import Estimates, check_level
from dpmodel.marks.dataset.table import People
from dpmodel.marks.noisy import Noisy
from dpmodel.privacy import Budget, Cost, NoiseSource, noise_source, validate_privacy
from dpmodel.released.faces.measure import checked_kind, cost_of, measure
from dpmodel.released.faces.quantiles import affordable, estimates
from dpmodel.solve.wall import charge_then_run

_HALF = 2**16  # steps of half the width of the bounds, at most
_ROUNDED = 1 + 2.0**-18


def variance(
    people: People,
    column: str,
    epsilon: Any,
    delta: Any,
    by: Any,
    level: Any,
    budget: Budget | None,
    rng: Any,
    *,
    root: bool = False,
) -> Estimates:
    """``Dataset.variance``; of its ``root`` ``Dataset.std``."""
    method = "std" if root else "variance"
    beta = 1 - check_level(level, f"Dataset.{method}", 0.5)
    low, high = people.declared.range(column, "how far one record moves a variance follows from them")
    names = names_in(by)
    shape, labels, size = aggregates._cells(people, names)
    most, (epsilon, delta) = people.most(method), validate_privacy(epsilon, delta)
    called = aggregates._called(f"{'standard deviation' if root else 'variance'} of {column}", names)
    counted = people.outside == "error" and people.person is None and not names
    whole = column in people.declared.integers and float(low).is_integer() and float(high).is_integer()
    whole = whole and high - low <= _HALF and max(-low, high) < 2.0**50
    half = int(high - low) if whole else _HALF
    # Of how far a value is from the middle; the fraction more is for the products of floats.
    off = 0.0 if whole else 0.501 / half
    kind = checked_kind("auto", delta, budget)
    if counted and people.records.neighbors == "replace-one" and kind == "auto":
        affordable(budget, Cost.pure(epsilon))
        source = noise_source(rng)
        rows, *sums = (int(each[0]) for each in _sums(people, column, names, low, high, half, most))
        parts = _parts(rows, epsilon)
        unit = aggregates._private(people, 0.0, (), (), Move(_ROUNDED, _ROUNDED, _ROUNDED), called)
        first, second = (cost_of(unit, part, 0.0, "laplace", rng) for part in parts)
        ran, failure = charge_then_run(
            lambda _: about_a_mean(people, rows, sums, half, parts, beta, called, source),
            name=called,
            budget=budget,
            cost=replace(first + second, epsilon=epsilon),
            label=f"measure {called}",
            report=no_progress,
            remedy="rng=None",
        )
        if ran is None:
            assert failure is not None
            raise failure
        found, spent, law = ran, 0.0, "on the sum of squares about a noisy mean"
    else:
        move = moves.of_counts(most, 3 * size, people.records.neighbors)
        move = Move(move.l1 * _ROUNDED, move.l2 * _ROUNDED, move.linf * _ROUNDED)

        def private(sums: Any) -> Any:
            return aggregates._private(people, sums, np.shape(sums), (), move, called)

        affordable(budget, cost_of(private(np.zeros((3, size))), epsilon, delta, kind, rng))
        given: dict[str, Any] = {"distribution": kind, "budget": budget, "name": called, "rng": rng}
        rows, one, squares = (each.astype(object) for each in _sums(people, column, names, low, high, half, most))
        width, upper = 2 * half, one + half * rows
        squares = squares + 2 * half * one + half**2 * rows  # of v + 1
        three = np.stack([width**2 * rows - 2 * width * upper + squares, 2 * (width * upper - squares), squares])
        noisy = measure(private(three / width**2), epsilon, delta, **given)
        found = of_three(noisy.value, noisy.noise.max_abs_quantile(3, beta))
        spent, law = float(noisy.delta or 0.0), f"{noisy.noise} on the sums that it is computed from"
    value, lower, upper = found
    found = value, np.maximum(np.sqrt(lower) - off, 0) ** 2, _within((np.sqrt(upper) + off) ** 2)
    scaled = [np.reshape(each * (high - low) ** 2 / 4, shape) for each in found]
    statement = f"intervals: all that the noise may be, proved{', for each group' * bool(names)}; noise: {law}"
    arrays = [np.sqrt(each) if root else each for each in scaled]
    return estimates(people, called, arrays, 1 - beta, statement, epsilon, spent, labels, rng=rng)


def _parts(rows: int, epsilon: float) -> tuple[float, float]:
    """Of epsilon, for the mean and for the squares; public."""
    first = epsilon * min((2 / (max(rows, 1) * epsilon)) ** (1 / 3), 0.5)
    return first, epsilon - first


def about_a_mean(
    people: People,
    rows: int,
    sums: Sequence[int],
    half: int,
    parts: tuple[float, float],
    beta: float,
    called: str,
    source: NoiseSource,
) -> tuple[Floats, Floats, Floats]:
    """The release of two sums. ``sums`` : of steps from the middle, and of their squares. ``parts`` : of epsilon."""
    one, squares = sums
    count, move = max(rows, 1), Move(_ROUNDED, _ROUNDED, _ROUNDED)

    def noisy(total: int, unit: int, part: float, share: float) -> tuple[float, float]:
        """Of a sum that a row moves by ``unit``, over the rows, and how far it is off with probability 1 - share."""
        private = aggregates._private(people, total / unit, (), (), move, called)
        found = cast(Noisy, measure(private, part, distribution="laplace", rng=source))
        return float(found.value) * unit / count, float(found.noise.max_abs_quantile(1, share)) * unit / count

    first, second = parts
    mean, off = noisy(one, 2 * half, first, beta / 10)
    shrunk = max(1 - 6 * (2 / (first * count)) ** 2, 0.0) * min(max(mean / half, -1.0), 1.0)
    pivot = round(shrunk * half)
    squares = squares - 2 * pivot * one + rows * pivot**2
    about, most = noisy(squares, (half + abs(pivot)) ** 2, second, 0.9 * beta)
    return of_two(mean / half, off / half, pivot / half, about / half**2, most / half**2)


def _sums(people: People, column: str, names: Any, low: float, high: float, half: int, most: int) -> Integers:
    """(3, groups): rows, sums of steps from the middle of the bounds, ``half`` of them to an end, and of squares."""
    middle = high / 2 + low / 2
    value = aggregates._clipped(people, column, low, high) - middle
    steps = (value * (half / (high / 2 - low / 2)) + 0.5).floor().cast(nw.Int64)
    steps = nw.when(steps > half).then(half).otherwise(nw.when(steps < -half).then(-half).otherwise(steps))
    used = list(dict.fromkeys([*names, column]))
    table = people.bounded(people.used(used), most)
    values = {"one": steps, "two": steps * steps}
    groups = people.summed(table, aggregates._places(people, names), values, used)
    sizes = [len(people.declared.categories(c)) for c in names]
    return aggregates._at(groups, sizes, 2)


def of_two(mean: float, off: float, pivot: float, about: float, most: float) -> tuple[Floats, Floats, Floats]:
    """Variances of v in [-1, 1], the least and the largest, where the mean is off by at most ``off`` and the mean
    square of v - ``pivot`` by at most ``most``."""
    ends = np.clip([mean - off, mean + off], -1, 1)
    near, middle = (np.abs(np.clip(at, *ends) - at) for at in (pivot, 0.0))
    lower = _within(np.array(about - most - np.abs(ends - pivot).max() ** 2))
    upper = np.minimum(_within(np.array(about + most - near**2)), 1 - middle**2)
    return np.clip(about, lower, np.maximum(lower, upper)), lower, np.maximum(lower, upper)


def of_three(sums: Floats, most: float) -> tuple[Floats, Floats, Floats]:
    """The same of three sums (3, groups)."""
    least, largest = np.maximum(sums - most, 0.0), np.maximum(sums + most, 0.0)
    ends = [least, largest]
    low = np.min([_share(a[0], largest[1], b[2]) for a in ends for b in ends], axis=0)
    high = [_share(a[0], least[1], b[2]) for a in ends for b in ends]
    for each in ends:
        for i, other in ((0, 2), (2, 0)):
            with np.errstate(divide="ignore", invalid="ignore"):
                peak = least[1] + each[other] + np.nan_to_num(least[1] ** 2 / (2 * each[other]), nan=0.0)
            at = np.clip(peak, least[i], largest[i])
            high.append(_share(at, least[1], each[other]))
    none = (least.sum(axis=0) == 0) | (largest.sum(axis=0) == 0)  # perhaps no row at all
    value = np.where(sums.sum(axis=0) > 0, _share(*np.maximum(sums, 0.0)), 0.0)
    return (
        _within(4 * value),
        _within(np.where(none, 0.0, 4 * low)),
        _within(np.where(none, 1.0, 4 * np.max(high, axis=0))),
    )


def _share(first: Floats, second: Floats, third: Floats) -> Floats:
    total = first + second + third
    share: Floats = (first * third - second**2 / 4) / np.where(total > 0, total, 1.0) ** 2
    return share


def _within(share: Floats) -> Floats:
    return np.clip(share, 0.0, 1.0)
