"""Quantiles of a column, many in one release, and limits for a column that nobody knows.

Two mechanisms: a draw of points by their ranks, and, for many quantiles on a grid of few points, a noisy histogram.

Ranks. A column is clipped to public bounds and rounded to a public grid, value by value: to multiples of a power of
ten, so that a price, a wage or an age that many rows share is itself a point, and is released as it is. For a point t
let L(t) be the number of rows below t, R(t) of those at or below it, N of all. Ranks from L(t) to R(t) are those of t:
a value that many rows share has them all. Two points are added: one below all values with the ranks up to 0, one above
all with those from N on, so that every number is a rank of some point. A quantile q has the wanted rank r = q N + o,
with a public offset o, and a point is off by ``d(t) = max(0, L(t) - r, r - R(t))``. All this is of the rounded column:
a value with more digits than the grid's, which many rows share, is released as the point it is rounded to.

Mechanism. For m wanted ranks the points (t_1, ..., t_m) are drawn with probabilities proportional to
``exp(-max_j d_j(t_j) / scale)``: the exponential mechanism (McSherry and Talwar 2007) whose score is the worst of the
ranks. No order is asked of the points: sorting them afterwards makes no rank worse. The worst rank moves by as much as
one rank does, however many there are, where m selections would have epsilon / m each.

Sensitivity. A row at y adds [y < t] - q to L(t) - r and q - [y <= t] to r - R(t). So a row that comes or goes moves
every d by at most c = max(q, 1 - q), k rows by k c. Where k rows are replaced by at most k others, the former move
L(t) - r by between -k (1 - q) and k q, the latter by between -k q and k (1 - q): by at most k together. Maxima move by
no more than their arguments. The score of a draw moves by at most D either way, so range 2 D: k max_j c_j under
add-remove, k under replace-one. (Test: all neighbors of small tables; the laws are compared exactly.)

Groups are drawn independently. The rows of one person that are in a group move the ranks of that group alone, each by
at most c, whether they come or go: together 2 k c under add-remove, and 4 k c under replace-one, where k rows may leave
some groups and k enter others. So the loss of all draws together lies in an interval of length epsilon, as that of one
selection does: rho = epsilon^2 / 8 under composition.

Drawing. The weight of a draw is the integral of ``exp(-x / scale) / scale`` over x >= max_j d_j. Between two
neighbouring values x_l < x_(l+1) of the d's the draws that are allowed are the same: those of the product of the sets
``{t: d_j(t) <= x_l}``. So: choose l with probability proportional to the product of the sizes of the sets times
``exp(-x_l / scale) - exp(-x_(l+1) / scale)``, and then each point uniformly from its set. The choices are exact ones
(``noisy_max``); the d's and the logarithms of the weights are computed in floating point. For up to 2^33 rows the
former are off by less than 2^-18, the latter by less than 2^-18 / scale + 1e-10: the scale has a relative allowance of
2^-16 for both, which is more for every epsilon above 1e-5.

The time of a draw grows with the number of different ranks, which is private: no guarantee covers what a clock tells.

Utility. Every wanted rank is one of some point, so the best score is 0, and all draws worse than s together have at
most the weight ``G^m exp(-s / scale)``, G points: with probability 1 - beta no rank is off by more than
``s = scale (m ln G + ln(1 / beta))``, for all data. On average it is far less (about m scale).

Intervals of quantiles that are drawn: of one, or of groups. With a level the ranks q N - s and q N + s are drawn too,
with the s of 3 m ranks. Where no rank is off by more than s, at most q N rows are below the first point and at most
(1 - q) N above the last: between them lies a q-quantile of the table, or of the group.

Histogram. Counts of all points in all groups get discrete Laplace noise of scale ``b = D / epsilon``: k rows of a
person move them by D = k under add-remove and 2 k under replace-one in the 1-norm (``declared.of_counts``). All
quantiles are read off the running sums F of a group, made monotone (isotonic regression, which in the largest deviation
is no farther from the true ones): the first point with F >= q F_G. With probability 1 - beta no sum is off by more than
e, ``e = min over t of (ln(4 / beta) + G ln M(t)) / t``, M the moment generating function of the noise (Chernoff for the
last sum, twice that for the largest: Levy's inequality). Then no rank is off by more than 2 e, and the points where F
passes q F_G - 2 e and q F_G + 2 e hold a quantile between them.
The mean error of a rank is about .46 b sqrt(G) here, however many quantiles, and m scale / 2 at most for a draw of m:
the less is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import narwhals as nw
import numpy as np
from scipy.optimize import isotonic_regression

from dpmodel._types import Floats, Integers, Labels
from dpmodel.contract import no_progress
from dpmodel.errors import SpecificationError
from dpmodel.marks.dataset import aggregates
from dpmodel.marks.dataset.declared import names_in, refuse_unknown
from dpmodel.marks.dataset.estimates import Estimates, check_level
from dpmodel.marks.dataset.table import People
from dpmodel.privacy import Budget, Cost, DiscreteNoiseSource, NoiseSource, noise_source, validate_privacy
from dpmodel.solve.wall import charge_then_run, check_budget
from dpmodel.text import number

# Limits of columns that nobody knows: 0 and 2^k of either sign, k up to this in size.
_OCTAVES = 64
_ALLOWANCE = 1 + 2.0**-16


@dataclass(frozen=True)
class Decimals:
    """``size`` points from ``first`` on in multiples of 10^-``digits``.

    Points are the doubles nearest to these decimals, as which text and files are read too: a value with no more digits
    is a point. Digits are the most that leave at most 10^5 steps (of more than ten groups 10^4, for memory and time)
    and multiples below 10^15, which doubles hold; none for integers. A step ten times finer adds ln 10 for each rank to
    what the proof says, and hardly to what is drawn.
    """

    digits: int
    first: int
    size: int

    @staticmethod
    def of(low: float, high: float, groups: int, *, integers: bool) -> Decimals:
        steps = 5 if groups <= 10 else 4
        room = (steps - math.log10(high - low), 15 - math.log10(max(abs(low), abs(high))), 300.0)
        digits = min(math.floor(min(room)), 0 if integers else 300)
        grid = Decimals(digits, 0, 0)
        first, last = (math.floor(grid.multiple(end) + 0.5) for end in (low, high))
        return replace(grid, first=first, size=last - first + 1)

    @property
    def step(self) -> str:
        return number(float(self.scaled(1, -self.digits)))

    def multiple(self, value: Any) -> Any:
        return self.scaled(value, self.digits)

    def value(self, places: Integers) -> Floats:
        """Of points by number; one beyond an end is the point beyond it."""
        return np.asarray(self.scaled(self.first + places, -self.digits), dtype=np.float64)

    @staticmethod
    def scaled(value: Any, digits: int) -> Any:
        """By powers of ten that are doubles up to 10^22: a division rounds once."""
        return value * 10.0**digits if digits >= 0 else value / 10.0**-digits


@dataclass(frozen=True)
class Ranks:
    """The wanted ranks ``shares * N + offsets``, (m,) each, of ``points`` points of a grid, and the noise for them.

    ``rows`` : of a person that count. ``groups`` : number of groups.
    """

    shares: Floats
    offsets: Floats
    points: int
    rows: int
    groups: int
    neighbors: str
    epsilon: float

    @property
    def range(self) -> float:
        """How far scores move against each other: 2 D of the file's docstring."""
        one = float(np.maximum(self.shares, 1 - self.shares).max())
        if self.neighbors == "add-remove":
            return 2 * self.rows * one
        return 2 * self.rows if self.groups == 1 else 4 * self.rows * one

    @property
    def scale(self) -> float:
        return _ALLOWANCE * self.range / self.epsilon

    def error(self, beta: float) -> float:
        """What no rank is off by more than, with probability 1 - beta."""
        return self.scale * (self.shares.size * math.log(self.points + 2) - math.log(beta))

    def off(self, counts: Integers) -> Floats:
        """(m, points + 2) how far each point is off each wanted rank. ``counts`` : (points,) rows at each point."""
        upto = np.cumsum(counts)
        total = float(upto[-1])
        below = np.concatenate([[-np.inf], upto - counts, [total]])
        upto = np.concatenate([[0.0], upto, [np.inf]])
        wanted = (self.shares * total + self.offsets)[:, None]
        found: Floats = np.maximum(np.maximum(below - wanted, wanted - upto), 0.0)
        return found

    def weights(self, off: Floats) -> tuple[Floats, Floats]:
        """(levels,) the different values of ``off``, and the logarithms of the weights with which they are chosen."""
        levels = np.unique(off)
        sizes = np.stack([np.searchsorted(np.sort(row), levels, side="right") for row in off])
        lengths = np.append(np.diff(levels), np.inf) / self.scale
        with np.errstate(divide="ignore"):
            logs = np.log(sizes).sum(axis=0) - levels / self.scale + np.log(-np.expm1(-lengths))
        return levels[np.isfinite(logs)], logs[np.isfinite(logs)]

    def run(self, counts: Integers, noise: NoiseSource) -> Integers:
        """(ranks,) drawn points; -1 and ``points`` are the two beyond the grid.

        With ends the wanted ranks are three rows of one rank per share, which grow along rows and columns whatever N
        is. Points are sorted along rows, then along columns: rows stay sorted, and the worst rank gets no worse.
        """
        off = self.off(counts)
        levels, logs = self.weights(off)
        most = levels[noise.noisy_max(logs, 1.0, kind="exponential")]
        sets = [np.flatnonzero(row <= most) for row in off]
        drawn = [each[noise.noisy_max(np.zeros(each.size), 1.0, kind="exponential")] for each in sets]
        rows = np.array(drawn, dtype=np.int64).reshape(-1, np.unique(self.shares).size)
        return np.sort(np.sort(rows, axis=1), axis=0).ravel() - 1

    def drawn(self, counts: Integers, source: NoiseSource) -> Integers:
        """(groups, m) of (groups, points)."""
        return np.stack([self.run(each, source) for each in counts])


@dataclass(frozen=True)
class Histogram:
    """Counts of ``points`` points in all groups, with noise of this ``scale``."""

    points: int
    scale: float

    @staticmethod
    def of(ranks: Ranks) -> Histogram:
        moved = ranks.rows if ranks.neighbors == "add-remove" else 2 * ranks.rows
        return Histogram(ranks.points, moved / ranks.epsilon)

    def closer(self, ranks: Ranks) -> bool:
        """Whether ranks are expected to be less off than in a draw, or hardly more: it has intervals too."""
        return 0.44 * self.scale * math.sqrt(self.points) < ranks.shares.size * ranks.scale / 2

    def run(self, counts: Integers, noise: DiscreteNoiseSource) -> Floats:
        """(groups, points) running sums of noisy counts, made monotone."""
        sums = np.cumsum(noise.discrete_laplace(counts, self.scale), axis=1).astype(np.float64)
        return np.stack([isotonic_regression(row).x for row in sums])

    def error(self, beta: float) -> float:
        """What no running sum of a group is off by more than, with probability 1 - beta."""
        one = 1 / self.scale
        t = one * np.linspace(0.001, 0.999, 999)
        # E exp(t Z) = (1 - r)^2 / ((1 - r e^t) (1 - r e^-t)) for r = exp(-1 / scale).
        logs = 2 * np.log(-np.expm1(-one)) - np.log(-np.expm1(t - one)) - np.log(-np.expm1(-t - one))
        return float(((math.log(4 / beta) + self.points * logs) / t).min())


def at_shares(sums: Floats, shares: Floats, off: float) -> Integers:
    """(groups, m) the first points where running sums (groups, points) pass shares of the last ones, and ``off``."""
    places = [np.searchsorted(row, shares * row[-1] + off) for row in sums]
    found: Integers = np.minimum(np.stack(places), sums.shape[1] - 1)
    return found


def quantiles(
    people: People,
    column: str,
    q: Any,
    epsilon: Any,
    by: Any,
    level: Any,
    budget: Budget | None,
    rng: Any,
    name: str | None = None,
) -> Estimates:
    """``Dataset.quantile`` (of one number q), ``quantiles`` (of several) and ``median``."""
    single = not isinstance(q, Iterable) or isinstance(q, str)
    method = "quantile" if single else "quantiles"
    low, high = _range(people, column, method)
    shares = _shares([q] if single else list(q), method)
    beta = 0.05 if level is None else 1 - check_level(level, f"Dataset.{method}", 0.5)
    names = names_in(by)
    shape, labels, groups = aggregates._cells(people, names)
    grid, most = Decimals.of(low, high, groups, integers=column in people.declared.integers), people.most(method)
    loss, source = validate_privacy(epsilon), noise_source(rng)
    ranks = Ranks(shares, np.zeros(shares.size), grid.size, most, groups, people.records.neighbors, loss.epsilon)
    # Ranks of groups, whose sizes are private, say nothing of the values: they need ends too.
    inside = level is not None and (single or bool(names))
    if inside:
        ranks = replace(ranks, shares=np.tile(shares, 3), offsets=np.zeros(3 * shares.size))
        ranks = replace(ranks, offsets=np.repeat([-1.0, 0.0, 1.0], shares.size) * ranks.error(beta))
    histogram = Histogram.of(ranks)
    value = aggregates._clipped(people, column, low, high)
    place = (grid.multiple(value) + 0.5).floor().cast(nw.Int64) - grid.first
    called = name or aggregates._called(f"{_word(shares)} of {column}", names)
    columns, nothing = [*names, column], np.full((groups, shares.size), np.inf)
    if isinstance(source, DiscreteNoiseSource) and histogram.closer(ranks):
        read = partial(histogram.run, noise=source)
        sums, off = (
            _released(people, columns, names, place, ranks, called, budget, read, Cost.pure),
            2 * histogram.error(beta),
        )
        drawn = [at_shares(sums, shares, each) for each in (0.0, -off, off)]
        arrays = [np.clip(grid.value(each), low, high) for each in drawn]
        arrays = arrays if level is not None else [arrays[0], -nothing, nothing]
    else:
        run = partial(ranks.drawn, source=source)
        found, off = (
            _released(people, columns, names, place, ranks, called, budget, run, Cost.exponential),
            ranks.error(beta),
        )
        found = np.clip(grid.value(found), low, high)
        below, at, above = np.split(found, 3, axis=1) if inside else (-nothing, found, nothing)
        arrays = [at, below, above]
    statement = (
        f"{'in each group ' * bool(names)}with probability {number(1 - beta)} no rank is off by more than "
        f"{number(math.ceil(off))} rows (proved; usually by far less); values are clipped to {number(low)} to "
        f"{number(high)} and rounded to multiples of {grid.step}"
    )
    if not single:
        shape, labels = (*shape, shares.size), (*labels, ("quantile", tuple(shares.tolist())))
    arrays = [np.reshape(array, shape) for array in arrays]
    return estimates(people, called, arrays, 1 - beta, statement, loss.epsilon, 0.0, labels, rng=rng)


def limits(people: People, column: str, epsilon: Any, level: Any, budget: Budget | None, rng: Any) -> Estimates:
    """``Dataset.bounds``.

    The grid is 0 and 2^k of either sign, k from -64 to 64, to which values are rounded away from 0. With the error s at
    this level, the wanted ranks are s + 1 from below and from above. Where no rank is off by more than s, at most 2 s +
    1 rounded rows are below the point t that is drawn for the lower limit, and one is at or below it, if there are as
    many rows. The limit is t, or t / 2 where t > 0, because rows in (t / 2, t] were rounded to t: so no more rows are
    below it, and it is at most a factor 2 beyond the least row. The upper limit likewise. The offsets are public, and q
    is 0 and 1: a row moves a rank by at most 1.
    """
    refuse_unknown(column, people.declared.columns)
    if people.declared.listed(column):
        raise SpecificationError(
            f"Dataset.bounds: {column!r} is a column of categories",
            why="limits are of numbers",
            remedy="a column of numbers, which need not be declared",
        )
    beta, loss = 1 - check_level(level, "Dataset.bounds", 0.5), validate_privacy(epsilon)
    declared = replace(people.declared, bounds={**people.declared.bounds, column: (-1e100, 1e100)})
    people = replace(people, declared=declared)
    most = people.most("bounds")
    edges = np.ldexp(1.0, np.arange(-_OCTAVES, _OCTAVES + 1))
    points = np.concatenate([-edges[::-1], [0.0], edges])
    ranks = Ranks(np.array([0.0, 1.0]), np.zeros(2), points.size, most, 1, people.records.neighbors, loss.epsilon)
    error = ranks.error(beta)
    ranks = replace(ranks, offsets=np.array([error + 1, -error - 1]))
    value = people.declared.value(column)
    size = nw.lit(0)
    for edge in edges[:-1].tolist():
        size = size + ((value > edge) | (value < -edge)).cast(nw.Int64)
    sign = (value > 0).cast(nw.Int64) - (value < 0).cast(nw.Int64)
    place = sign * (size + 1) + edges.size
    run = partial(ranks.drawn, source=noise_source(rng))
    drawn = _released(people, [column], (), place, ranks, f"limits of {column}", budget, run, Cost.exponential)[0]
    found = points[np.clip(drawn, 0, points.size - 1)]
    within = np.array([found[0] > 0, found[1] < 0])
    found = np.where(within, np.where(np.abs(found) > edges[0], found / 2, 0.0), found)
    beyond = number(math.ceil(2 * error + 1))
    statement = (
        f"with probability {number(1 - beta)} at most {beyond} rows are beyond each limit, and in a table with more "
        "rows than that each limit is at most a factor 2 farther out than all rows are (proved; beyond 2^64 counts as "
        "2^64)"
    )
    arrays = [found, np.full(2, -np.inf), np.full(2, np.inf)]
    labels: Labels = (("limit", ("lower", "upper")),)
    called = f"limits of {column}"
    notes = (
        f"bounds={{{column!r}: tuple(...)}} of this for a new Dataset; what it cost comes on top of what that costs",
    )
    return estimates(people, called, arrays, 1 - beta, statement, loss.epsilon, 0.0, labels, notes, rng=rng)


def _released(
    people: People,
    used: Sequence[str],
    by: Sequence[str],
    place: nw.Expr,
    ranks: Ranks,
    called: str,
    budget: Budget | None,
    run: Callable[[Integers], Any],
    cost: Callable[[float], Cost],
) -> Any:
    """``run`` of the (groups, points) counts. Rows outside the declarations are refused before anything is charged."""
    affordable(budget, cost(ranks.epsilon))
    cell = {**aggregates._places(people, by), aggregates._CELL: place}
    used = list(dict.fromkeys(used))
    groups = people.summed(people.bounded(people.used(used), ranks.rows), cell, {}, used)
    sizes = [len(people.declared.categories(c)) for c in by]
    counts = aggregates._at(groups, [*sizes, ranks.points])[0].reshape(ranks.groups, ranks.points)
    released, failure = charge_then_run(
        lambda report: run(counts),
        name=called,
        budget=budget,
        cost=cost(ranks.epsilon),
        label=called,
        report=no_progress,
        remedy="rng=None",
    )
    if released is None:
        assert failure is not None
        raise failure
    return released


# ---- What all releases of a Dataset have in common


def affordable(budget: Budget | None, cost: Cost) -> None:
    """Refuse before any row is read what the budget would refuse to charge."""
    check_budget(budget)
    if budget is not None:
        budget.require(cost)


def estimates(
    people: People,
    name: str,
    arrays: Sequence[Floats],
    level: float,
    statement: str,
    epsilon: float,
    delta: float,
    labels: Labels,
    notes: tuple[str, ...] = (),
    *,
    rng: Any,
) -> Estimates:
    """The released numbers with their cost in words. ``arrays`` : values, lower and upper ends."""
    whose = f" of {people.records.name}" if people.records.name else ""
    record = f"a record{whose} is a row"
    if people.person is not None:
        record = f"a record{whose} is all rows of one {people.person}"
        notes = (*notes, *([f"the first {people.max_rows} rows of each count"] if people.max_rows else []))
    if not noise_source(rng).is_private if rng is not None else False:
        record = f"NOT PRIVATE (seeded noise for tests); {record}"
    value, lower, upper = arrays
    return Estimates(
        name,
        value,
        lower,
        upper,
        level=level,
        statement=statement,
        epsilon=epsilon,
        delta=delta,
        neighbors=people.records.neighbors,
        record=record,
        labels=labels,
        notes=notes,
    )


def _range(people: People, column: str, method: str) -> tuple[float, float]:
    refuse_unknown(column, people.declared.columns)
    if column not in people.declared.bounds and not people.declared.listed(column):
        raise SpecificationError(
            f"Dataset.{method}: {column!r} has no bounds",
            why="points are chosen from a public grid between them",
            remedy=f"Dataset(..., bounds={{{column!r}: (lo, hi)}}), or .bounds({column!r}, epsilon) where nobody knows "
            "them",
        )
    return people.declared.range(column, "points are chosen from a public grid between them")


def _shares(given: Sequence[Any], method: str) -> Floats:
    good = all(isinstance(q, int | float | np.number) and not isinstance(q, bool) and 0 < q < 1 for q in given)
    found = np.array([float(q) for q in given] if good else [], dtype=np.float64)
    if not found.size or not (np.diff(found) > 0).all():
        raise SpecificationError(
            f"Dataset.{method}: q is not between 0 and 1, or several do not increase",
            why="the least and the largest row are one person's secret; a share of the rows lies below a quantile",
            remedy="q=0.5; q=[0.25, 0.5, 0.75] for quantiles; q=0.99 for a large value (not 99)",
        )
    return found


def _word(shares: Floats) -> str:
    if shares.size > 1:
        return "quantiles"
    return "median" if shares[0] == 0.5 else f"{number(shares[0])} quantile"
