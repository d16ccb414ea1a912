"""A point in the hull by one private choice: every grid point is a candidate, its half-space depth the score."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from dpmodel._types import Integers
from dpmodel.contract import YES, Mechanism, Options, Progress, Serves, Verdict, no_progress
from dpmodel.exact.model import Found, PrivatePoints
from dpmodel.exact.stable_span import least
from dpmodel.forecast import Forecast, RowsMissed
from dpmodel.privacy import NoiseSource, permute_and_flip, permute_and_flip_error
from dpmodel.privacy.accounting import poisson_sample
from dpmodel.text import number

MOST_CANDIDATES = 2_000_000
MOST_AXES = 4
# From three dimensions on the time grows like m^(d+1): of more points than these, a sample is taken.
MOST_POINTS = {3: 200, 4: 80}
# Of the coins of ``poisson_sample``.
_LEAST_RATE = 2.0**-16


@dataclass(frozen=True)
class DepthPlan:
    """Public numbers of one choice.

    ``axes`` : those with more than one level. ``rate`` : with which each point is taken. ``per_row`` : t, the epsilon
    of the choice between data sets that differ by one point more or less among those taken. ``cap`` : K, where depths
    are cut. ``kept`` : points taken from which on a candidate of depth K exists. ``needed`` : points altogether.
    """

    axes: tuple[int, ...]
    candidates: int
    rate: float
    per_row: float
    cap: int
    kept: int
    needed: int


@dataclass(frozen=True)
class TukeyDepth(Mechanism[PrivatePoints]):
    """Choose a point of the public grid by its depth in the data.

    Source
        Half-space depth as the score of an exponential mechanism: Beimel, Moran, Nissim and Stemmer 2019; Kaplan,
        Sharir and Stemmer 2020. Permute-and-flip: McKenna and Sheldon 2020. That grid points of depth n / 2^d exist:
        Doignon 1973 (below), so the data's own grid is candidate set enough, also where the data are degenerate.
    Privacy
        The score of a candidate c is ``min(depth(c), K)``, depth(c) being the least number of points in a closed
        half-space that contains c. One point more raises each of these numbers by 0 or 1, hence their minimum, cut or
        not, by 0 or 1: all scores move the same way and by at most 1, so R = 1 between data sets that differ by one
        point more or less, and permute-and-flip of scale 1/t is t-DP between them. Scores are integers computed
        exactly; candidates and K are public. Where points are sampled (three dimensions or more, many expected points),
        each is taken with probability q, independently. Let P be the distribution of the answer without the point in
        question and P_a that with point a taken; ``e^-t P <= P_a <= e^t P``. Add-remove compares P with ``(1 - q) P + q
        P_a``, whose ratios lie within ``1 - q + q e^t`` and ``1 - q + q e^-t``; the product of the two is at least 1,
        so the first decides. Replace-one compares ``(1 - q) P + q P_a`` with ``(1 - q) P + q P_b``: at most ``(1 - q +
        q e^t) / (1 - q + q e^-t)``. t is the largest for which this is at most e^epsilon; with q = 1 it is epsilon, or
        epsilon / 2 for replace-one (where a score may rise while another falls). delta is not used.
    Utility
        Let n points be taken. *Some grid point has depth at least k = ceil(n / 2^d)*, d counting the axes with more
        than one level. Proof. Consider the hulls of all sets of n - k + 1 or more of the points. Any 2^d of these sets
        leave out at most 2^d (k - 1) < n points together, so they share a data point, which is a grid point. By
        Doignon's theorem (finitely many convex sets of which any 2^d share a point of Z^d have a point of Z^d in
        common) all hulls share a grid point c; it lies in the hull of the data, hence in the grid's box. A closed
        half-space with c in it and at most k - 1 points would leave n - k + 1 points in an open half-space without c,
        and c outside their hull. (The centre point theorem gives n / (d + 1), but off the grid.) Permute-and-flip loses
        at most ``ln(candidates / beta) / t`` except with probability beta; with K = 1 + floor of that and k >= K
        the chosen depth is at least 1, which is to say the point is in the hull. So 2^d (K - 1) + 1 points taken are
        enough. With sampling, half of beta is for a sample too small, by the exact binomial tail.
    Cost
        ``cut_depths``: a sort for d = 1; pairs of outer points for d = 2, sets of d points for d > 2; then
        a number for each candidate. Time depends on the data, and grows fast where ``expected`` is far too low.
    """

    serves: ClassVar[Serves] = Serves(PrivatePoints)
    name: str = "tukey-depth"
    source: str = "Beimel et al. 2019; grid points of depth n/2^d by Doignon 1973"

    def eligible(self, model: PrivatePoints, options: Options) -> Verdict:
        axes = model.free_axes
        if len(axes) > MOST_AXES:
            return Verdict(
                False, f"exact depths are computed in up to {MOST_AXES} dimensions, these points have {len(axes)}"
            )
        candidates = math.prod(model.levels)
        if candidates > MOST_CANDIDATES:
            return Verdict(
                False, f"the grid has {candidates:,} points, more than the {MOST_CANDIDATES:,} that are compared"
            )
        plan = depth_plan(model, options)
        taken = max(plan.kept, math.ceil(plan.rate * model.expected))
        if len(axes) > 2 and min(taken, candidates) > 2 * MOST_POINTS[len(axes)]:
            return Verdict(
                False,
                f"in {len(axes)} dimensions too slow for the {taken} points that this budget and expected call for",
            )
        return YES

    def forecast(self, model: PrivatePoints, options: Options) -> Forecast:
        plan = depth_plan(model, options)
        caveats = () if plan.rate == 1 else (f"each point is taken with probability {number(plan.rate)}, to save time",)
        return model.forecast(
            options,
            f"with at least {plan.needed} points, the released point of the grid lies in their convex hull "
            f"with probability {number(1 - options.beta)}",
            RowsMissed(needed=float(plan.needed)),
            delta=0.0,
            work=f"one choice among the {plan.candidates:,} points of the grid",
            noise={
                "candidates": plan.candidates,
                "rate": plan.rate,
                "epsilon of the choice": plan.per_row,
                "depths cut at": plan.cap,
            },
            caveats=caveats,
        )

    def run(
        self, model: PrivatePoints, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Found:
        plan = depth_plan(model, options)
        rows = model.read_rows()
        coins = poisson_sample(noise, max(len(rows), 1), plan.rate)  # one at least: no points are no error
        taken = rows[coins[: len(rows)]][:, list(plan.axes)]
        position = [0] * model.dimension
        if plan.axes:
            levels = tuple(model.levels[axis] for axis in plan.axes)
            progress(f"depths of {plan.candidates:,} grid points", 0.1)
            scores = cut_depths(taken, levels, plan.cap)
            progress("choosing", 0.9)
            chosen = permute_and_flip(scores.astype(np.float64), 1.0, epsilon=plan.per_row, source=noise)
            for axis, level in zip(plan.axes, np.unravel_index(chosen, levels), strict=True):
                position[axis] = int(level)
        return Found("found", tuple(Fraction(level) for level in position))


def depth_plan(model: PrivatePoints, options: Options) -> DepthPlan:
    """Rate, scale and cap, and the number of points needed, from public facts."""

    def build() -> DepthPlan:
        axes, candidates = model.free_axes, math.prod(model.levels)
        rate = 1.0
        most = MOST_POINTS.get(len(axes), math.inf)
        if min(model.expected, candidates) > most:
            rate = max(most / model.expected, _LEAST_RATE)
        beta = options.beta if rate == 1 else options.beta / 2
        per_row = row_epsilon(options.epsilon, rate, replace=model.neighbors == "replace-one")
        cap = 1 + math.floor(permute_and_flip_error(candidates, 1.0, per_row, beta))
        kept = 2 ** len(axes) * (cap - 1) + 1
        return DepthPlan(axes, candidates, rate, per_row, cap, kept, _points_for(kept, rate, beta))

    return model.cached(("tukey-depth", options.epsilon, options.beta), build)


def row_epsilon(epsilon: float, rate: float, *, replace: bool) -> float:
    """Largest t (rounded down) that the sampling of the class docstring turns into ``epsilon``."""
    if not replace:
        t = math.log1p(math.expm1(epsilon) / rate) if epsilon < 500 else epsilon
        return max(t * (1 - 1e-12), epsilon if rate == 1 else 0.0)
    if rate == 1:
        return epsilon / 2
    low, high = 0.0, epsilon - math.log(rate)  # at the upper end the ratio is at least q e^t = e^epsilon
    for _ in range(100):
        middle = (low + high) / 2
        cost = math.log1p(rate * math.expm1(middle)) - math.log1p(rate * math.expm1(-middle))
        low, high = (middle, high) if cost <= epsilon * (1 - 1e-12) else (low, middle)
    return low


def _points_for(kept: int, rate: float, beta: float) -> int:
    """Least n of which, with probability 1 - beta, at least ``kept`` are taken."""
    return kept if rate == 1 else least(lambda n: bool(binom.cdf(kept - 1, n, rate) <= beta), kept)


TUKEY_DEPTH = TukeyDepth()


# ------------------------------------------------------------------
# Exact half-space depths of all points of a small grid, cut at a public cap.
#
# The depth of c is the least number of points in a closed half-space that contains c: ``depth(c) = min over u != 0 of
# #{z : <u, z> >= <u, c>}``. It is at least 1 exactly where c lies in the convex hull. Everything here is integers
# (products stay below 2^53), so the scores are exactly those of the definition.


_CHUNK = 4_000_000  # entries of a temporary


def cut_depths(points: Integers, levels: tuple[int, ...], cap: int) -> Integers:
    """``min(depth, cap)`` of every grid point.

    ``points`` : (n, d) grid positions, 0 <= points[:, j] < levels[j]; n may be 0.
    ``levels`` : grid points per axis.
    ``cap`` : >= 1.
    Returns (prod(levels),) in the order of ``numpy.unravel_index``.

    *Which half-spaces are enough.* Let T be a set of data points and c a point outside conv(T). Then there is a ``u``
    with ``<u, c> > max over T of <u, z>``, the maximum taken at some z1 in T, that is normal to m differences z_i - z1
    of points of T and to d - 1 - m axes, for some m, these d - 1 vectors being independent. *Proof.* Let L be the space
    of the differences of T. If c is not in the affine hull, extend a basis of L by axes to one of R^d; c - z1 has a
    component along an added axis; take u normal to all the others: u is normal to L and not to c - z1, and one of u, -u
    serves. If c is in it, some facet F of conv(T) separates c; its differences have dimension dim L - 1; take u normal
    to them and to axes that complete L to R^d.
    Now c has depth < k exactly if it lies outside conv(T) for some T of n - k + 1 or more points (those that are not in
    the half-space of the definition). So ``depth(c)`` is the least ``h(u, b) = #{z : <u, z> > b}`` over the half-spaces
    (u, b = <u, z1>) above with ``<u, c> > b``, or n if there is none; each such number is an upper bound on the depth.
    Those with ``h >= cap`` say nothing about the score and are left out. The z's can be taken among the corners of
    conv(T), so among ``possible_corners``.

    Cost: d = 1: n + levels. Otherwise m c^d for m distinct points (d = 2: those on the outermost ``cap`` layers), c of
    them possible corners, and a pass over the half-spaces for each line of the grid.
    """
    if len(levels) == 1:
        counts = np.bincount(points[:, 0], minlength=levels[0]).astype(np.int64)
        up_to = np.cumsum(counts)
        depths: Integers = np.minimum(np.minimum(up_to, len(points) - up_to + counts), cap)
        return depths
    if not len(points):
        return np.zeros(math.prod(levels), dtype=np.int64)
    distinct, weights = np.unique(points, axis=0, return_counts=True)
    if len(levels) == 2:
        outer = outer_layers(distinct, cap)
        distinct, weights = distinct[outer], weights[outer]
    spaces = _half_spaces(distinct, weights.astype(np.int64), cap)
    return _scores(spaces, levels, min(cap, len(points)))


def outer_layers(distinct: Integers, count: int) -> npt.NDArray[np.bool_]:
    """Mask of the points that are not inside ``count`` nested polygons of other points (d = 2, exact).

    Each polygon is the hull of what the earlier ones left inside. An open half-plane with a point inside a polygon in
    it or on its edge holds a corner of the polygon, which is in the mask. So a half-plane with fewer than ``count``
    points of the mask in it has none of the others, neither in it nor on its edge: half-planes of fewer points, and
    their numbers, come from the mask alone.
    """
    inside = np.arange(len(distinct))  # lexicographic order, as np.unique left it
    outer = np.zeros(len(distinct), dtype=bool)
    for _ in range(count):
        if not len(inside):
            break
        left = distinct[inside]
        corners = _corners(left)
        strictly = np.full(len(left), len(corners) >= 3)
        for p, q in zip(corners, np.roll(corners, -1, axis=0), strict=True):  # counter-clockwise
            strictly &= (q[0] - p[0]) * (left[:, 1] - p[1]) > (q[1] - p[1]) * (left[:, 0] - p[0])
        outer[inside[~strictly]] = True
        inside = inside[strictly]
    return outer


def possible_corners(distinct: Integers, weights: Integers, count: int) -> npt.NDArray[np.bool_]:
    """Mask of points that can be corners of the hull of all but fewer than ``count`` of the points.

    Left out are points with ``count`` or more points on both sides of them along an axis or a diagonal. A hyperplane
    that shows a corner, nothing else of the set being on it or beyond it, has one of these sides beyond it or both on
    it.
    """
    possible = np.ones(len(distinct), dtype=bool)
    d = distinct.shape[1]
    for direction in np.stack(np.meshgrid(*[[0, 1, -1]] * d, indexing="ij"), axis=-1).reshape(-1, d):
        nonzero = np.flatnonzero(direction)
        if not len(nonzero) or direction[nonzero[0]] < 0:
            continue
        along = distinct[:, nonzero[0]]
        line = distinct - along[:, None] * direction  # the same for the points of one line
        order = np.lexsort((along, *line.T))
        new = np.r_[True, (line[order[1:]] != line[order[:-1]]).any(axis=1)]
        mass = weights[order]
        up_to = np.cumsum(mass)
        start = (up_to - mass)[new][np.cumsum(new) - 1]
        end = np.append((up_to - mass)[new][1:], up_to[-1])[np.cumsum(new) - 1]
        possible[order] &= (up_to - mass - start < count) | (end - up_to < count)
    return possible


def _corners(points: Integers) -> Integers:
    """Corners of the hull of lexicographically sorted points, counter-clockwise (Andrew's chain on column ends)."""
    first = np.r_[True, points[1:, 0] != points[:-1, 0]]
    ends = points[first | np.r_[first[1:], True]].tolist()
    chain: list[list[int]] = []
    for order in (ends, ends[::-1]):
        half: list[list[int]] = []
        for p in order:
            while len(half) > 1 and _turn(half[-2], half[-1], p) <= 0:
                half.pop()
            half.append(p)
        chain += half[:-1]
    return np.array(chain if chain else ends[:1], dtype=np.int64)


def _turn(o: list[int], a: list[int], b: list[int]) -> int:
    return (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0])


def _half_spaces(distinct: Integers, weights: Integers, cap: int) -> Integers:
    """(k, d + 2) distinct rows (u, b, h): of the points, h < cap have ``<u, z> > b``."""
    d = distinct.shape[1]
    corners = distinct[possible_corners(distinct, weights, cap)]
    points, mass = distinct.T.astype(np.float64), weights.astype(np.float64)
    kept, pending, merged = [np.zeros((0, d + 2), dtype=np.int64)], 0, 0
    for normals, bases in _normals(corners, max(1, _CHUNK // len(distinct))):
        at = normals.astype(np.float64) @ points  # integers below 2^53: exact in any order of summation
        offsets = (normals * bases).sum(axis=1)
        for sign in (1, -1):
            above = (sign * at > (sign * offsets)[:, None]) @ mass
            few = above < cap
            kept.append(np.column_stack([sign * normals[few], sign * offsets[few], above[few].astype(np.int64)]))
            pending += len(kept[-1])
        if pending > _CHUNK // 8 + merged:
            kept = [np.unique(np.vstack(kept), axis=0)]
            pending, merged = 0, len(kept[0])
    return np.unique(np.vstack(kept), axis=0)


def _normals(corners: Integers, chunk: int) -> Iterator[tuple[Integers, Integers]]:
    """Yield (k, d) primitive normals and (k, d) points that their hyperplanes go through; see ``cut_depths``.

    Normal to d - r axes means zero there: so, for every set of r coordinates, the normals in R^r of the hyperplanes
    through r points.
    """
    m, d = corners.shape
    for r in range(1, min(d, m) + 1):
        rest = _subsets(m - 1, r - 1)
        for coordinates in combinations(range(d), r):
            part = corners[:, list(coordinates)]
            for first in range(m - r + 1):
                # The subsets of the later points, counted from the last one.
                others = m - 1 - rest[: math.comb(m - 1 - first, r - 1)]
                for start in range(0, len(others), chunk):
                    some = others[start : start + chunk]
                    normals = np.zeros((len(some), d), dtype=np.int64)
                    normals[:, coordinates] = _across(part[some] - part[first])
                    yield from _pieces(normals, np.broadcast_to(corners[first], normals.shape), chunk)


def _subsets(n: int, size: int) -> Integers:
    """(C(n, size), size) subsets of 0 .. n - 1, in order of their largest elements: those of k < n come first."""
    found = np.zeros((1, 0), dtype=np.int64)
    for r in range(1, size + 1):
        parts = [
            np.column_stack([found[: math.comb(top, r - 1)], np.full(math.comb(top, r - 1), top)]) for top in range(n)
        ]
        found = np.vstack([np.zeros((0, r), dtype=np.int64), *parts])
    return found


def _across(vectors: Integers) -> Integers:
    """(k, r) cross products of r - 1 vectors each, (k, r - 1, r): signed minors, in integers."""
    r = vectors.shape[2]
    minors = [_minor(vectors, 0, [c for c in range(r) if c != left]) * (-1) ** left for left in range(r)]
    return np.stack(minors, axis=1)


def _minor(vectors: Integers, row: int, columns: list[int]) -> Integers:
    """Determinant of the rows from ``row`` on and these columns, by its first row."""
    if not columns:
        return np.ones(len(vectors), dtype=np.int64)
    total = np.zeros(len(vectors), dtype=np.int64)
    for place, column in enumerate(columns):
        total += (-1) ** place * vectors[:, row, column] * _minor(vectors, row + 1, [c for c in columns if c != column])
    return total


def _pieces(normals: Integers, bases: Integers, chunk: int) -> Iterator[tuple[Integers, Integers]]:
    divisor = np.gcd.reduce(normals, axis=1)
    real = divisor > 0
    normals, bases = normals[real] // divisor[real, None], bases[real]
    for start in range(0, len(normals), chunk):
        yield normals[start : start + chunk], bases[start : start + chunk]


def _scores(spaces: Integers, levels: tuple[int, ...], cap: int) -> Integers:
    """Grid scores: the least h of the half-spaces that a point is in, at most ``cap``."""
    lines = np.stack(np.meshgrid(*[np.arange(k) for k in levels[:-1]], indexing="ij"), axis=-1)
    lines = lines.reshape(-1, len(levels) - 1)
    low, high = np.zeros(len(lines), dtype=np.int64), np.full(len(lines), levels[-1] - 1)
    scores = np.zeros((len(lines), levels[-1]), dtype=np.int64)
    along = np.arange(levels[-1])
    alive = np.arange(len(lines))
    for h in range(cap):
        group = spaces[spaces[:, -1] == h]
        chunk = max(1, _CHUNK // max(1, len(alive)))
        for start in range(0, len(group), chunk):
            low[alive], high[alive] = _cut(group[start : start + chunk], lines[alive], low[alive], high[alive])
        alive = alive[low[alive] <= high[alive]]
        if not len(alive):
            break
        scores[alive] += (along >= low[alive, None]) & (along <= high[alive, None])
    return scores.ravel()


def _cut(group: Integers, lines: Integers, low: Integers, high: Integers) -> tuple[Integers, Integers]:
    """Where each line of the grid (all coordinates but the last given) stays outside all the half-spaces.

    In floats, exactly: integers a, b below 2^53 with a / b not whole keep 1 / b away from integers, which is
    more than the rounding of the quotient.
    """
    rest, last = group[:, :-3].astype(np.float64), group[:, -3].astype(np.float64)
    room = group[:, -2] - lines.astype(np.float64) @ rest.T  # u_last z <= room
    rising, falling, flat = last > 0, last < 0, last == 0
    if rising.any():
        high = np.minimum(high, np.floor((room[:, rising] / last[rising]).min(axis=1)).astype(np.int64))
    if falling.any():
        low = np.maximum(low, -np.floor((room[:, falling] / -last[falling]).min(axis=1)).astype(np.int64))
    if flat.any():
        high = np.where((room[:, flat] < 0).any(axis=1), -1, high)
    return low, high
