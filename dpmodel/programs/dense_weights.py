"""Dense multiplicative weights for private rows: nearly feasible points that leave fewer than s rows out.

The measure. A lazy measure over constraints and its exact Bregman projection onto the 1/s-dense distributions.
Source: HRRU14, Algorithm 1 and Definition 8; Herbster and Warmuth 2001. *Lazy* means that updates go to the measure
that was never projected: only then does the weight of a row depend on this row (and on released points) alone.

The weighted average of private rows, under the lazy measure of dense multiplicative weights.

``HeldWeights`` keeps a number for every row. ``RecomputedWeights`` keeps none: after the points x_1 .. x_t the
log-weight of row i is ``sum_k rate (g_i'x_k - h_i) = rate t (g_i'x - h_i)`` at their mean x, a function of this row
and of what was released. What the projection needs of all rows together, the threshold where weights are capped, is
found from sums over blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, ClassVar, Protocol

import numpy as np

from dpmodel._types import Floats, Integers, PrivateArray
from dpmodel.contract import YES, Options, Progress, Serves, Verdict, counted
from dpmodel.numerics.polyhedron import Polyhedron
from dpmodel.privacy import NoiseSource
from dpmodel.programs.dense_oracles import MOST_TERMS, ListedSelection, NoisyMinimisation, Oracle, Selection, oracles
from dpmodel.programs.goals import Point, Promise, Task
from dpmodel.programs.model import PrivateNumbers, Program
from dpmodel.programs.nearly_feasible import LeavesRowsOut
from dpmodel.programs.rows import PrivateRows, RowPart, RowTable, private_rows

# Logarithms of thresholds that differ by less are compared with exact sums.
_NEAR = 1e-9


def project_dense(log_weights: Floats, density: int, idle: int = 0) -> Floats:
    """(m,) the 1/s-dense distribution nearest to the measure ``A = exp(log_weights)`` in relative entropy.

    That is ``y_i = min(1, A_i / t) / s`` with t such that all ``y`` add up to one: the Karush-Kuhn-Tucker conditions of
    ``min sum y ln(y / A)`` over ``sum y = 1, 0 <= y <= 1/s`` say so. When the k largest weights are capped, t is the
    sum of the others divided by ``s - k``, and k is the least number for which none of the others exceeds that. Sums
    over the sorted weights find k, but for ties that their rounding hides; from there, capping what reaches t is
    Newton's method on the concave, piecewise linear function ``sum min(1, A / t)`` of 1/t: t falls, the capped set
    grows, and t is exact as soon as the set stays the same. Weights are taken relative to the largest uncapped one.

    ``log_weights`` : (m,) finite.
    ``density`` : s, 1 <= s <= m.
    ``idle`` : number of further weights ``exp(0)`` that take part and are not returned.
    Returns y (m,), sums to 1 (with the idle ones) up to a relative 2^-45; entries at most 1/s.
    """
    if density == log_weights.size and not idle:
        return np.full(density, 1.0 / density)
    every = np.append(log_weights, np.zeros(idle)) if idle else log_weights.copy()
    every.partition(every.size - density)
    rest, top = every[: every.size - density + 1], np.sort(every[every.size - density + 1 :])
    largest = float(rest[-1])  # of those that are never capped
    weight = float(np.exp(rest - largest).sum())
    sums = np.logaddexp.accumulate(np.append(largest + math.log(weight), top))  # but the k largest, k = s - 1 .. 0
    near = np.append(largest, top) <= sums - np.log(np.arange(1, density + 1)) + _NEAR
    capped = density - 1 - int(np.flatnonzero(near)[-1])
    while True:
        others = top[: density - 1 - capped]
        shift = float(others[-1]) if others.size else largest
        threshold = (weight * math.exp(largest - shift) + float(np.exp(others - shift).sum())) / (density - capped)
        highest = math.log(threshold)
        reach = int(np.count_nonzero(top - shift >= highest)) + (largest - shift >= highest)
        # At s capped weights, what the others weigh is lost in the rounding of one of them.
        if reach <= capped or reach >= density:
            break
        capped = reach
    out: Floats = np.subtract(log_weights, shift, out=every[: log_weights.size])
    np.exp(np.minimum(out, highest, out=out), out=out)
    out /= threshold * density
    return out


class DenseMeasure:
    """The lazy measure of dense multiplicative weights over m rows, uniform at first.

    ``idle`` : so many more rows that never change (they read ``0 <= 0``); only their number is kept.
    """

    def __init__(self, rows: int, density: int, idle: int = 0) -> None:
        self._log: Floats = np.zeros(rows)
        self._density, self._idle = density, idle

    def projected(self) -> PrivateArray:
        """(m,) the 1/s-dense distribution to weigh the rows with."""
        return PrivateArray(project_dense(self._log, self._density, self._idle))

    def add(self, gain: Floats, start: int = 0) -> None:
        """Multiply the weights from ``start`` on by ``exp(gain)``: violated rows gain."""
        self._log[start : start + gain.size] += gain


_BINS = 1024
# Relative width of thresholds that are taken as one: far below the 2^-40 that sums of weights may be off by.
_ALIKE = 2.0**-46


class RowWeights(Protocol):
    """The weights of all rows."""

    def average(self) -> PrivateArray:
        """(n,) ``sum_i y_i g_i``, y the 1/s-dense projection of the measure."""
        ...

    def learn(self, x: Floats) -> None:
        """Multiply the weights by ``exp(rate (G x - h))``: violated rows gain."""
        ...


class HeldWeights:
    """Of rows in memory. Memory: three vectors of m numbers."""

    def __init__(self, parts: tuple[RowPart, ...], rate: float, density: int, idle: int) -> None:
        self._parts, self._rate = tuple(replace(part, h=PrivateArray(rate * part.h)) for part in parts), rate
        self._starts = np.concatenate([[0], np.cumsum([part.count for part in parts])])
        self._measure = DenseMeasure(int(self._starts[-1]), density, idle)

    def average(self) -> PrivateArray:
        y, ends = self._measure.projected(), self._starts[1:]
        pulled = [part.pull(y[start:end]) for part, start, end in zip(self._parts, self._starts, ends, strict=False)]
        return PrivateArray(np.sum(pulled, axis=0)) if len(pulled) > 1 else pulled[0]

    def learn(self, x: Floats) -> None:
        for part, start in zip(self._parts, self._starts, strict=False):
            self._measure.add(part.residual(self._rate * x), int(start))


class RecomputedWeights:
    """Of rows in blocks: some four passes over them for an average, of which one has two products.

    With t the threshold and L the log-weights (zero for the ``idle`` rows), ``sum_i min(exp(L_i - ln t), 1) = s``. The
    left side falls in t. A pass counts rows and adds weights between the edges of a grid, which says between which two
    edges ln t lies; the next pass has its grid there. Once no row lies between the two, the capped rows are known, and
    t is what the others weigh, divided by s minus the number of the capped ones: as in ``measure.project_dense``. From
    one step to the next ln t moves by no more than the least and the largest gain of a row, which is where the first
    grid lies (where rounding has it beside the grid, the grid moves on).

    ``count`` : m. ``gains`` : public bounds of ``g_i'x - h_i``.
    """

    def __init__(
        self, table: RowTable, count: int, rate: float, density: int, idle: int, gains: tuple[float, float]
    ) -> None:
        self._table, self._rate, self._density, self._idle = table, rate, density, idle
        self._gains = gains[0] * rate, gains[1] * rate
        self._all = density == count and not idle
        self._threshold = math.log((count + idle) / density)
        self._sum: Floats = np.zeros(0)
        self._steps = 0

    def average(self) -> PrivateArray:
        if self._steps == 0:
            return self._table.map_reduce(partial(_pulled, None, 0.0, self._threshold, self._density))
        point, scale = self._sum / self._steps, self._rate * self._steps
        if self._all:  # every weight is 1/s
            return self._table.map_reduce(partial(_pulled, None, 0.0, 0.0, self._density))
        self._threshold = self._find(point, scale)
        return self._table.map_reduce(partial(_pulled, point, scale, self._threshold, self._density))

    def learn(self, x: Floats) -> None:
        self._sum = self._sum + x if self._steps else x.copy()
        self._steps += 1

    def _find(self, point: Floats, scale: float) -> float:
        """ln t."""
        low, high = self._threshold + self._gains[0], self._threshold + self._gains[1]
        span = max(high - low, _ALIKE)
        while True:
            edges = np.linspace(low, high, _BINS + 1)
            counts, sums = self._table.map_reduce(partial(_binned, point, scale, edges))
            if self._idle:
                idle = _split(np.zeros(1), edges)
                counts = PrivateArray(counts + self._idle * idle[0])
                sums = PrivateArray(sums + self._idle * idle[1])
            # At every edge: rows above it, and the weight of the others relative to it.
            above, below = counts[::-1].cumsum()[::-1][1:], _carried(sums[:-1], edges)
            reached = np.flatnonzero(above + below >= self._density)
            if reached.size == 0:  # beside the grid
                low, high = low - span, low
            elif reached[-1] == _BINS:
                low, high = high, high + span
            else:
                at = int(reached[-1])
                low, high = float(edges[at]), float(edges[at + 1])
                if counts[at + 1] == 0 or high - low <= max(_ALIKE, 2 * np.spacing(abs(low))):
                    return high + math.log(float(below[at + 1]) / (self._density - float(above[at + 1])))
                continue
            span *= 2


def _log_weights(point: Floats, scale: float, part: RowPart) -> PrivateArray:
    out = part.residual(point)
    out *= scale
    return out


def _pulled(point: Floats | None, scale: float, threshold: float, density: int, part: RowPart) -> PrivateArray:
    """``sum_i min(exp(L_i - threshold), 1) g_i / s`` over a part; without a point all log-weights are zero."""
    logs = np.zeros(part.count) if point is None else _log_weights(point, scale, part)
    weights = np.exp(np.minimum(logs - threshold, 0.0))
    weights /= density
    return part.pull(weights)


def _binned(point: Floats, scale: float, edges: Floats, part: RowPart) -> tuple[PrivateArray, PrivateArray]:
    return _split(_log_weights(point, scale, part), edges)


def _split(logs: Floats, edges: Floats) -> tuple[PrivateArray, PrivateArray]:
    """(bins + 2,), (bins + 2,): how many log-weights lie below all edges, between each two, and above all; and the
    weights of each relative to its upper edge (of the last: nothing)."""
    last = edges.size - 1
    width = (edges[-1] - edges[0]) / last
    place = np.clip(np.ceil((logs - edges[0]) / width), 0, last + 1).astype(np.int64)
    weights = np.exp(np.minimum(logs - edges[np.minimum(place, last)], 0.0))
    counts = np.asarray(np.bincount(place, minlength=last + 2), dtype=np.float64)
    sums = np.asarray(np.bincount(place, weights=weights, minlength=last + 2), dtype=np.float64)
    return PrivateArray(counts), PrivateArray(sums)


def _carried(sums: Floats, edges: Floats) -> Floats:
    """(k,) at every edge, relative to it, the sum of all weights up to it; ``sums`` (k,) relative to upper edges."""
    fall, out = np.exp(-np.diff(edges)), sums.copy()
    for k, factor in enumerate(fall, start=1):
        out[k] += out[k - 1] * factor
    return out


# Steps beyond these are not planned, so that a run ends in reasonable time.
MOST_STEPS = 10_000


@dataclass(frozen=True)
class Plan:
    """How to run: ``density`` s, ``steps`` T, ``rate`` eta per unit of violation, ``idle`` rows ``0 <= 0`` beside the
    private ones, ``oracle`` by name. ``range_bound``, ``step_epsilon`` : of each selection (Algorithm 2 alone)."""

    density: int
    steps: int
    rate: float
    idle: int
    oracle: str
    range_bound: float = math.nan
    step_epsilon: float = math.nan


def descend(
    rows: PrivateRows,
    polytope: Polyhedron,
    plan: Plan,
    minimise: Callable[[PrivateArray], Floats],
    theta: PrivateNumbers | RowTable,
    progress: Progress,
) -> Point:
    """The loop of HRRU14, Algorithm 2, with the lazy Algorithm 1: (n,) the average of the T points chosen.

    ``minimise`` : the private linear minimiser with its budget, from the (n,) private average of rows to a point.
    """
    table, gains = rows.table(theta), rows.residual_range(polytope)
    weights: RowWeights
    if table.in_memory is None:
        weights = RecomputedWeights(table, rows.count, plan.rate, plan.density, plan.idle, gains)
    else:
        weights = HeldWeights(table.in_memory, plan.rate, plan.density, plan.idle)
    total = np.zeros(polytope.size)
    tick = counted(f"dense multiplicative weights, {plan.steps} steps", plan.steps, progress)
    for step in range(1, plan.steps + 1):
        tick()
        x = minimise(weights.average())
        total += x
        if step < plan.steps:
            weights.learn(x)
    return Point(polytope.nearest(total / plan.steps))


@dataclass(frozen=True)
class DenseMultiplicativeWeights(LeavesRowsOut):
    """Weights over the private rows, never more than 1/s on one, against points that are best for the weighted row.

    Source
        HRRU14, Algorithms 1 and 2 with exact sensitivities, zCDP and the analysis' best step; regret of
        follow-the-regularised-leader (Shalev-Shwartz 2012, Theorem 2.21 in its Hoeffding form).
    Privacy
        Rows ``G x <= h``, m of them (public; an absent row reads ``0 <= 0`` and keeps its weight, which makes
        add-remove a replacement by the zero row, and zero rows are inside all bounds). Step t releases x_t from
        ``u = sum_i y_i g_i`` alone, y the 1/s-dense projection of the measure with log-weights
        ``sum_{t' < t} rate (g_i'x_t' - h_i)``. Given the released x_1 .. x_{t-1}, the log-weight of a row depends on
        this row alone (the measure is lazy).
        *One row.* Let row i change from g to g' and its weight before the projection from A to A' >= A (else exchange
        the two). ``sum_j min(1, c A_j) = s`` then holds for c' <= c, so all other weights fall, together by
        ``tau = y'_i - y_i``, and ``y_i + tau = y'_i <= 1/s``. Hence ``u' - u = y'_i g' - y_i g - tau g_bar``, with
        g_bar an average of other rows, is ``y'_i`` times the difference of g' and an average of rows: at most ``1/s``
        times the difference of two rows that the bounds allow, in every norm, and in the range of ``u'v`` over v.
        *r rows of one record.* Change them one by one: every database on the way has rows within the bounds and
        weights that are functions of their rows, which is all that was used. By the triangle inequality r/s replaces
        1/s; as both u are averages of rows, ``share = min(r/s, 1)`` does.
        What a difference of rows can do, the noise for it and rounding: ``dense_oracles.py``. T steps, fixed
        beforehand, of rho/T each (epsilon/T for a pure budget) compose adaptively to the budget. The average of the
        x_t is post-processing. T, s, the rate and the oracle follow from public facts.
    Utility
        V(x) is the mean over the s worst rows of the positive parts of ``g_i'x - h_i``, so all but s - 1 rows are
        within V(x), and V >= 0 with equality at feasible points. With y_t the projected weights, W the length of the
        public range of residuals, and losses ``-(residual) / W``, whose range is one: y_t maximises
        ``eta sum of gains - KL(y, uniform)`` over the 1/s-dense distributions (the projection of a lazy measure), whose
        conjugate is 1-smooth in the maximum norm, and losses may be centred to 1/2 in size, so for the uniform
        distribution y* on any s rows

            ``sum_t (y* - y_t)'(G x_t - h) <= W (ln(m/s)/eta + eta T/8) = W sqrt(T ln(m/s) / 2)``

        for ``eta = sqrt(8 ln(m/s) / T)``. The oracle has ``tilt'x_t + y_t'(G x_t - h) <= tilt'x* + e_t`` for a feasible
        x*, so for the average point: ``tilt'x + max_y* y*'(G x - h) <= tilt'x* + mean e_t + W sqrt(ln(m/s) / (2T))``.
        Without a tilt this bounds V (the errors are non-negative). With one, s idle rows ``0 <= 0`` are added: the s
        worst of the m + s rows then have mean V exactly, and m + s replaces m. The mean of the e_t is bounded by the
        oracle (with probability 1 - beta for one x* fixed beforehand, the best one; then for all).
        T minimises the sum. s is ``slack_rows + 1`` if that was asked for, the least s that promises ``violation`` if
        that was, else the s <= m/2 with the least ``alpha + width (s - 1) / m``.
    Cost
        T steps: a product with G and one with its transpose, a projection in O(m), a selection or one linear program
        over the public set. Three vectors of m numbers beside G and h. Of rows in blocks nothing is kept: some five
        products, in four passes (``RecomputedWeights``).
    """

    serves: ClassVar[Serves] = Serves(
        Program, ("scalar low", "row low", "row high"), reads_blocks=True, leaves_out=True
    )
    name = "dense-multiplicative-weights"
    source = "HRRU14, Algorithms 1 and 2, tightened"
    search_steps = 8
    vertices: Any = field(default=None, compare=False, repr=False)

    def suits(self, model: Program, options: Options) -> Verdict:
        return covered(model)

    def least(self, task: Task) -> float:
        """It leaves rows out."""
        rows = private_rows(task.model)
        return rows.residual_range(task.polytope)[1] * (_fewest(rows) - 1) / max(rows.count, 1)

    def promise(self, task: Task) -> Promise:
        rows = private_rows(task.model)
        low, high = rows.residual_range(task.polytope)
        candidates = oracles(rows, task.polytope, task.vertices)
        if task.cut:  # only noise serves every part of the set, no worse than all of it
            candidates = tuple(each for each in candidates if isinstance(each, NoisyMinimisation)) or (
                NoisyMinimisation.of(rows, task.polytope),
            )
        steps, tilted = _grid(MOST_STEPS), task.tilted
        errors = [oracle.error(task.spend, steps, task.beta) for oracle in candidates]

        def tables(densities: Integers) -> Floats:
            """(oracles, k, steps) errors for each s (k,)."""
            size = np.log((rows.count + (densities if tilted else 0)) / densities)
            regret = (high - low) * np.sqrt(size[:, None] / (2 * steps))
            share = np.minimum(rows.per_record / densities, 1.0)[:, None]
            return np.stack([share * each + regret for each in errors])

        def least(densities: Integers) -> Floats:
            """(k,) the least of them."""
            return np.asarray(tables(densities).min(axis=(0, 2)), dtype=np.float64)

        most = most_density(rows, task)
        if task.slack_rows is not None:
            density = min(task.slack_rows + 1, most)
        elif task.violation is not None:
            limit = task.violation
            density = _least(lambda s: float(least(np.array([s]))[0]) <= limit, _fewest(rows), most)
        else:
            fewest = _fewest(rows)
            choices = np.unique(np.geomspace(fewest, max(fewest, min(most, rows.count // 2)), 120).astype(np.int64))
            density = int(choices[int(np.argmin(least(choices) + high * (choices - 1) / rows.count))])
        table = tables(np.array([density]))[:, 0]
        chosen = int(table.min(axis=1).argmin())
        place = int(table[chosen].argmin())
        error, number, oracle = float(table[chosen, place]), int(steps[place]), candidates[chosen]
        idle = density if tilted else 0
        eta = math.sqrt(8 * math.log((rows.count + idle) / density) / number)
        plan = Plan(density, number, eta / (high - low) if high > low else 0.0, idle, oracle.name)
        share = min(rows.per_record / density, 1.0)
        return Promise(
            error=error if tilted else min(error, high),
            gain=1.0,
            slack_rows=density - 1,
            rows=rows.count,
            width=high,
            work=work(number, oracle),
            noise={"steps": number, "density": density, "rate": eta, **oracle.noise(share, task.spend, number)},
            caveats=caveats(oracle),
            plan=plan,
        )

    def point(
        self, task: Task, promise: Promise, theta: PrivateNumbers | RowTable, source: NoiseSource, progress: Progress
    ) -> Point:
        rows, plan = private_rows(task.model), promise.plan
        candidates = oracles(rows, task.polytope, task.vertices)
        oracle = next((o for o in candidates if o.name == plan.oracle), candidates[-1])
        share = min(rows.per_record / plan.density, 1.0)
        minimise = partial(
            oracle.minimise, tilt=task.tilt, share=share, spend=task.spend, steps=plan.steps, source=source
        )
        return descend(rows, task.polytope, plan, minimise, theta, progress)


# ---------------------------------------------------------------------- public facts
def covered(model: Program) -> Verdict:
    rows = private_rows(model)
    if rows.count + 2 * model.affine.variables > MOST_TERMS / 2:
        return Verdict(False, "the problem is so large that rounding of its sums is not covered")
    return YES


def most_density(rows: PrivateRows, task: Task) -> int:
    """s at most m, and so small that rounding is covered."""
    return max(1, min(rows.count, int(MOST_TERMS // (rows.count + 2 * task.polytope.size))))


def _fewest(rows: PrivateRows) -> int:
    """Least s that is planned when no number of rows was asked for: with one row left out, searches can count rows."""
    return min(2, rows.count)


@cache
def _grid(most: int) -> Floats:
    """Numbers of steps worth comparing: all up to 100, then 5 % apart."""
    wide = np.geomspace(100, most, math.ceil(math.log(most / 100) / 0.05))
    return np.unique(np.concatenate([np.arange(1.0, 100.0), np.floor(wide)]))


def _least(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Least integer in [low, high] with ``holds``, which stays true once it is; ``high`` when there is none."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return high


def work(steps: int, oracle: Oracle | Selection) -> str:
    how = "one choice among vertices" if isinstance(oracle, Selection) else "one linear program over the public set"
    each = f"two products with the private rows, one projection of weights and {how}"
    return f"{steps} steps, each with {each}" if steps > 1 else f"one step: {each}"


def caveats(oracle: Oracle | Selection) -> tuple[str, ...]:
    if isinstance(oracle, ListedSelection):
        return ("the statement compares with feasible points among the averages of the given points",)
    return ()


DENSE_MULTIPLICATIVE_WEIGHTS = DenseMultiplicativeWeights()
