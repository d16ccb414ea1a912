"""A point in the hull by the ellipsoid method: private cuts through the centre until one cuts off too many points."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpmodel._types import Floats, Integers, Mask, PrivateArray
from dpmodel.contract import YES, Mechanism, Options, Progress, Serves, Verdict, no_progress
from dpmodel.exact.fields import QQ
from dpmodel.exact.flats import Flat, flat_through
from dpmodel.exact.model import Found, PrivatePoints, PrivateVectors
from dpmodel.exact.stable_span import STABLE_SPAN
from dpmodel.forecast import Forecast, RowsMissed
from dpmodel.privacy import (
    AboveThreshold,
    NoiseSource,
    above_threshold_error,
    exponential_mechanism,
    exponential_mechanism_error,
    per_step,
    public_generator,
)
from dpmodel.text import number

# Bits of a direction beyond those that the ellipsoid's flatness takes, the fewest, and the most of a centre.
_FINE, _LEAST_BITS = 12, 14
MOST_BITS = 28
MOST_LEVELS = 2**20


@dataclass(frozen=True)
class PinHull(Mechanism[PrivatePoints]):
    """Cut an ellipsoid around the grid by private half-spaces through its centre.

    Algorithm. (1) The affine span of nearly all points is released and the others are deleted; points are written in
    coordinates of their own there (Aff2Lin, dimension q). (2) An ellipsoid around the box of these coordinates is kept.
    Each round takes a half-space through its centre c, chosen privately among ``directions``, that has nearly all
    points; a sparse-vector test asks whether more than a threshold of points lie beyond it. If so, c is the
    answer. If not, these points are deleted and the ellipsoid becomes the least one around its half. (3) After rounds
    enough for its volume to be below 1/q!, the points left lie in a hyperplane: back to (1), in fewer dimensions. In
    dimension 0 the one point left is the answer.

    Source
        KMMST24, Algorithms 6 and 7. Changed: constants (rounds by the exact factor of a central cut and the volume
        1/q! of Lemma 12, not T = Theta(d^2 ln dX) with centres on a grid of about (2T)^(dT) steps); a choice among
        thousands of directions in place of the private LP of Theorem 1, better in so few dimensions (ln m / epsilon
        points against a power of d over the margin); one sparse-vector test for all rounds; the span also first.
    Privacy
        Private rows are read by three kinds of steps; all else (ellipsoid, centres, maps) is a function of released
        things. Points are deleted by rules that look at one point and released things, exactly (integers), so
        neighbours stay neighbours: one point more, one less, or none at all.
        *Searches*: the score of a direction is the number of points not beyond it, up to the number of all points,
        which is the same for every direction; one point more changes the scores by numbers in [-1, 0], so R = 1
        (replace-one: R = 2), and each is one exponential mechanism. Their number is public; together they cost
        (0.45 epsilon, delta / 2) by the best composition theorem. *Spans*: d + 1 calls of the stable span at
        (0.3 epsilon, delta / 2) / (d + 1). *Tests*: one ``AboveThreshold`` for all rounds, which stops at its one
        positive answer; its queries are numbers of points, which move by at most 1, under add-remove all the same
        way: 0.25 epsilon. Its answers alternate with the other steps. For a fixed transcript the probability is that of
        the other steps' outputs, each given the transcript before it, times that of the test's answers given its
        queries. Between neighbours the second factor changes by at most e^(0.25 epsilon); replaced by that of the
        neighbour it is an adaptive choice without private data, under which the other steps compose as stated. So
        the sum is (epsilon, delta).
    Utility
        Not proved. If a round's search loses at most ``behind`` points and the test errs by at most ``off`` (together
        except with probability 2/3 beta), a centre is answered only if more than ``2 behind`` points lie beyond the
        chosen direction, so more than ``behind`` beyond every one of the directions. It is then in the hull unless it
        is outside and every direction of the list cuts off so many points: the list is fine but not complete (points
        crowded in a few places and a centre just outside their hull). Each round deletes at most threshold + off
        points, each span at most what its theorem says; ``needed`` is the sum of all these and one. Points deep at the
        first centres make do with far fewer.
    Cost
        n m q per round for m directions, distinct points counted once.
    """

    serves: ClassVar[Serves] = Serves(PrivatePoints)
    name: str = "pin-hull"
    source: str = "KMMST24, Algorithms 6 and 7"

    def eligible(self, model: PrivatePoints, options: Options) -> Verdict:
        if options.delta <= 0:
            return Verdict(False, "the affine spans of degenerate points need delta > 0")
        axes = len(model.free_axes)
        if axes > MOST_AXES:
            return Verdict(False, f"directions are listed in up to {MOST_AXES} dimensions, these points have {axes}")
        if max(model.levels) > MOST_LEVELS:
            return Verdict(False, f"exact tests keep within 62 bits with at most {MOST_LEVELS:,} levels per axis")
        return YES

    def forecast(self, model: PrivatePoints, options: Options) -> Forecast:
        plan = pin_hull_plan(model, options)
        words = (
            f"with at least {number(plan.needed)} points, the search ends with probability {number(1 - options.beta)}, "
            "and its answer is predicted to lie in their convex hull"
        )
        if math.isinf(plan.needed):
            words = "delta is too large beside beta"
        return model.forecast(
            options,
            words,
            RowsMissed(needed=plan.needed),
            proved=False,
            work=f"at most {plan.rounds} rounds and {plan.spans} affine spans",
            noise={
                "rounds": plan.rounds,
                "epsilon of a search": plan.search,
                "points lost by a search": plan.behind,
                "epsilon of the tests": plan.test,
                "threshold": plan.threshold,
                "epsilon of a span": plan.span_options.epsilon,
            },
            caveats=("a centre just outside the hull may be answered where points lie in few places",),
        )

    def run(
        self, model: PrivatePoints, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Found:
        plan = pin_hull_plan(model, options)
        levels = tuple(model.levels[axis] for axis in plan.axes)
        left = Left.of(model.read_rows()[:, list(plan.axes)])
        test = AboveThreshold(
            plan.threshold, sensitivity=1.0, epsilon=plan.test, range_bound=plan.range_bound, source=noise
        )
        way: list[Flat] = []
        for turn in range(plan.spans):
            progress("affine span of the points", turn / plan.spans)
            found = STABLE_SPAN.run(span_model(model, left.one_by_one()), plan.span_options, noise)
            down = flat_through(found.answer)
            if down is None:
                return Found("nothing", None, notes=("by the noisy counts, too few points are left to go on",))
            # After the rounds of dimension q, at most q of these rows are independent, unless floats failed.
            if way and down.dimension >= len(levels):
                break
            left = left.moved(down)
            levels = tuple(levels[column - 1] for column in down.free)
            way.append(down)
            if not levels:
                return Found("found", _position(model, plan.axes, way, ()))
            progress(f"cuts in dimension {len(levels)}", (turn + 0.5) / plan.spans)
            centre, left = _search(left, levels, plan, test, noise)
            if centre is not None:
                return Found("found", _position(model, plan.axes, way, centre))
        return Found("nothing", None, notes=("no centre was deep enough in any round",))


@dataclass(frozen=True, eq=False)
class Left:
    """Distinct points (k, q), sorted, and how many of each (k,) are left; private.

    Sorted points of neighbours differ by one insertion, so the order is as good as that of the records.
    """

    points: Integers
    counts: Integers

    @classmethod
    def of(cls, points: Integers) -> Left:
        if not points.shape[1]:
            return cls(points[:1], np.full(min(len(points), 1), len(points), dtype=np.int64))
        distinct, counts = np.unique(points, axis=0, return_counts=True)
        return cls(distinct, counts.astype(np.int64))

    def one_by_one(self) -> Integers:
        return np.repeat(self.points, self.counts, axis=0)

    def kept(self, mask: Mask) -> Left:
        return Left(self.points[mask], self.counts[mask])

    def moved(self, down: Flat) -> Left:
        """Those in the subspace, in its coordinates (different points stay different)."""
        inside = self.kept(down.holds(self.points))
        points = down.project(inside.points)
        order = np.lexsort(points.T[::-1]) if points.shape[1] else np.arange(len(points))
        return Left(points[order], inside.counts[order])


def _position(
    model: PrivatePoints, axes: tuple[int, ...], way: list[Flat], centre: tuple[Fraction, ...]
) -> tuple[Fraction, ...]:
    for down in reversed(way):
        centre = down.point(centre)
    position = [Fraction(0)] * model.dimension
    for axis, entry in zip(axes, centre, strict=True):
        position[axis] = entry
    return tuple(position)


def _search(
    left: Left, levels: tuple[int, ...], plan: PinHullPlan, test: AboveThreshold, noise: NoiseSource
) -> tuple[tuple[Fraction, ...] | None, Left]:
    """The rounds of one dimension: a centre that passed the test, or None; and the points that are left."""
    q = len(levels)
    net, ellipsoid = directions(q), around_box(levels)
    for _ in range(rounds_needed(levels, INFLATION)):
        if ellipsoid.log_volume < log_least_simplex(q):
            break
        cuts = Cuts.of(net, ellipsoid, levels)
        beyond = cuts.beyond(left)
        chosen = exponential_mechanism(-beyond, plan.range_bound, epsilon=plan.search, source=noise)
        if test.test(float(beyond[chosen])):
            return ellipsoid.centre, left
        left = left.kept(cuts.within(left, chosen))
        ellipsoid = ellipsoid.cut(cuts.normals[chosen].astype(np.float64), MOST_BITS, INFLATION)
    return None, left


@dataclass(frozen=True, eq=False)
class Cuts:
    """Half-spaces ``<u, z - c> >= 0`` in integers, so that each point is judged exactly and by itself.

    ``normals`` (m, q) : u, as fine as the flatness of the ellipsoid asks for. ``numerators``, ``bits`` : the centre c =
    numerators / 2^bits. ``kind`` : float64 where all sums are below 2^53 and therefore exact, else int64.
    """

    normals: Integers
    numerators: Integers
    bits: int
    kind: Any

    @classmethod
    def of(cls, net: Floats, ellipsoid: Ellipsoid, levels: tuple[int, ...]) -> Cuts:
        """The directions ``net`` in coordinates in which the ellipsoid is a ball."""
        derivatives = np.linalg.solve(ellipsoid.shape.T, net.T).T
        derivatives /= np.abs(derivatives).max(axis=1, keepdims=True)
        radii = np.linalg.svd(ellipsoid.shape, compute_uv=False)
        pairs = zip(ellipsoid.numerators, levels, strict=True)
        ends = [max(abs(w), abs((k - 1) * 2**ellipsoid.bits - w)) for w, k in pairs]
        length = sum(ends).bit_length()
        kind: Any = np.float64 if length + _LEAST_BITS <= 52 else np.int64
        bits = min(_FINE + math.ceil(math.log2(radii[0] / radii[-1])), (52 if kind is np.float64 else 62) - length)
        normals = np.rint(derivatives * 2.0**bits).astype(np.int64)
        return cls(normals, np.array(ellipsoid.numerators, dtype=np.int64), ellipsoid.bits, kind)

    def beyond(self, left: Left) -> PrivateArray:
        """(m,) how many points have ``<u, z - c> < 0``, integers."""
        total = np.zeros(len(self.normals))
        chunk = max(1, 8_000_000 // len(self.normals))
        right, counts = self.normals.T.astype(self.kind), left.counts.astype(np.float64)
        for start in range(0, len(counts), chunk):
            part = slice(start, start + chunk)
            total += counts[part] @ (self._offsets(left.points[part]) @ right < 0)
        return PrivateArray(total)

    def within(self, left: Left, chosen: int) -> Mask:
        """(k,) which points have ``<u, z - c> >= 0``."""
        return np.asarray(self._offsets(left.points) @ self.normals[chosen].astype(self.kind) >= 0, dtype=bool)

    def _offsets(self, points: Integers) -> npt.NDArray[Any]:
        offsets: npt.NDArray[Any] = (points * 2**self.bits - self.numerators).astype(self.kind)
        return offsets


PIN_HULL = PinHull()


# ------------------------------------------------------------------
# Ellipsoids cut through the centre: KMMST24, Algorithm 7, steps 4, 5d and 5e, on a public ellipsoid.


# Room for the rounding of floats, as a share of the radii.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Ellipsoid:
    """``{c + B w : ||w|| <= 1}``.

    ``numerators`` (q,), ``bits`` : the centre c = numerators / 2^bits, exact. ``shape`` (q, q) : B.
    """

    numerators: tuple[int, ...]
    bits: int
    shape: Floats

    @property
    def centre(self) -> tuple[Fraction, ...]:
        return tuple(Fraction(entry, 2**self.bits) for entry in self.numerators)

    @property
    def log_volume(self) -> float:
        return log_ball(len(self.numerators)) + float(np.linalg.slogdet(self.shape)[1])

    def cut(self, u: Floats, most_bits: int, inflation: float) -> Ellipsoid:
        """The least ellipsoid around the half ``<u, z - c> >= 0``, its centre rounded, widened to make up for that.

        Closed form (Groetschel, Lovasz, Schrijver 1988, section 3.1): with g = B'u / ||B'u|| the centre moves by
        ``B g / (q + 1)``, the radius along g shrinks by q / (q + 1), the others grow by q / sqrt(q^2 - 1); q = 1: the
        interval is halved. *Rounding.* If the centre moves by eta, a point ``c + B w`` with ||w|| <= 1 is
        ``c' + B (w - B^-1 eta)``, so radii ``1 + ||B^-1 eta||`` times as large hold it. The centre goes to multiples of
        2^-bits, bits being as small as keeps that factor below ``1 + inflation``, and at most ``most_bits``.
        """
        q = len(self.numerators)
        g = self.shape.T @ u
        g /= np.linalg.norm(g)
        along, across = q / (q + 1), q / math.sqrt(q * q - 1) if q > 1 else 1.0
        shape = self.shape @ (across * np.eye(q) + (along - across) * np.outer(g, g))
        least = float(np.linalg.svd(shape, compute_uv=False)[-1])
        bits = math.ceil(math.log2(math.sqrt(q) / (inflation * least)))
        bits = min(max(bits, 0), most_bits)
        step = self.shape @ g / (q + 1)
        exact = [c + Fraction(float(s)) for c, s in zip(self.centre, step, strict=True)]
        numerators = tuple(round(c * 2**bits) for c in exact)
        moved = np.array([float(Fraction(w, 2**bits) - c) for w, c in zip(numerators, exact, strict=True)])
        factor = 1 + float(np.linalg.norm(np.linalg.solve(shape, moved))) + _ROUNDING
        return Ellipsoid(numerators, bits, factor * shape)


def around_box(levels: tuple[int, ...]) -> Ellipsoid:
    """The least ellipsoid with axes along the coordinates around the box ``0 .. levels[j] - 1``, widened to radius 1/2
    along axes of one level."""
    q = len(levels)
    radii = np.array([max((level - 1) / 2 * math.sqrt(q), 0.5) for level in levels])
    return Ellipsoid(tuple(level - 1 for level in levels), 1, np.diag(radii) * (1 + _ROUNDING))


def log_ball(q: int) -> float:
    """ln of the volume of the unit ball in q dimensions."""
    return q / 2 * math.log(math.pi) - math.lgamma(q / 2 + 1)


def log_least_simplex(q: int) -> float:
    """ln(1 / q!): the least volume of a simplex with integer corners (KMMST24, Lemma 12, in grid steps)."""
    return -math.lgamma(q + 1)


def log_cut(q: int) -> float:
    """ln of the factor by which one cut changes the volume, without widening: below -1 / (2 (q + 1))."""
    across = math.log(q / math.sqrt(q * q - 1)) if q > 1 else 0.0
    return math.log(q / (q + 1)) + (q - 1) * across


def rounds_needed(levels: tuple[int, ...], inflation: float) -> int:
    """Cuts after which points of a box that lie in the ellipsoid are in one hyperplane: its volume is below 1 / q!."""
    q = len(levels)
    drop = -log_cut(q) - q * math.log1p(inflation + _ROUNDING)
    excess = around_box(levels).log_volume - log_least_simplex(q)
    return max(1, math.floor(excess / drop) + 1)


# ------------------------------------------------------------------
# Public numbers of PinHull: rounds by the volume argument, directions, the split of the budget, the threshold


# Radii may grow by this share when a centre is rounded.
INFLATION = 2.0**-9
# Shares of epsilon: the test that ends the search, the spans, the searches.
TEST, SPANS, SEARCH = 0.25, 0.3, 0.45
# Directions tried in each round, by dimension: their logarithm is paid in points, their number in time.
DIRECTIONS = {1: 2, 2: 4096, 3: 8192, 4: 8192, 5: 8192}
MOST_AXES = 5


@dataclass(frozen=True)
class PinHullPlan:
    """``axes``: those with more than one level. ``rounds``: in all dimensions together. ``spans``: how many affine
    spans, each with ``span_options``. ``search``: epsilon of one search, ``behind``: points that it loses against the
    best direction. ``test``: epsilon of the tests. ``threshold``: a centre is the answer if the cut through it that was
    chosen has more points beyond it, but for ``off`` points of noise. ``range_bound``: 1, or 2 for replace-one.
    ``needed``: points."""

    axes: tuple[int, ...]
    rounds: int
    spans: int
    search: float
    behind: float
    test: float
    threshold: float
    off: float
    range_bound: float
    span_options: Options
    needed: float


def pin_hull_plan(model: PrivatePoints, options: Options) -> PinHullPlan:
    """From public facts alone; delta > 0."""

    def build() -> PinHullPlan:
        axes = model.free_axes
        widest = sorted((model.levels[axis] for axis in axes), reverse=True)
        rounds = sum(rounds_needed(tuple(widest[:q]), INFLATION) for q in range(1, len(axes) + 1))
        spans = len(axes) + 1
        range_bound = 1.0 if model.neighbors == "add-remove" else 2.0
        search = per_step(SEARCH * options.epsilon, options.delta / 2, max(rounds, 1), "exponential").value
        test = TEST * options.epsilon
        beta = options.beta / 3
        most = DIRECTIONS[max(len(axes), 1)]
        behind = exponential_mechanism_error(most, range_bound, search, beta / max(rounds, 1))
        off = above_threshold_error(max(rounds, 1), 1.0, test, beta, range_bound=range_bound)
        # Twice what the search loses: as many points may lie beyond the best direction when a centre is outside.
        threshold = off + 2 * behind
        span_options = replace(
            options, epsilon=SPANS * options.epsilon / spans, delta=options.delta / 2 / spans, beta=beta / spans
        )
        lost = rounds * (threshold + off)
        for q in range(len(axes) + 1):
            error = STABLE_SPAN.forecast(span_model(model, np.zeros((0, q), dtype=np.int64)), span_options).error
            assert isinstance(error, RowsMissed)
            lost += max(error.missed, error.needed) if math.isfinite(error.needed) else math.inf
        needed = float(math.ceil(lost)) + 1 if math.isfinite(lost) else math.inf
        return PinHullPlan(axes, rounds, spans, search, behind, test, threshold, off, range_bound, span_options, needed)

    return model.cached(("pin-hull", options.epsilon, options.delta, options.beta), build)


def span_model(model: PrivatePoints, points: npt.NDArray[np.int64]) -> PrivateVectors:
    """The vectors (z, 1) of the points that are left; those deleted stand for zero vectors, which are skipped."""
    q = points.shape[1]

    def read() -> npt.NDArray[np.int64]:
        return np.column_stack([points, np.ones(len(points), dtype=np.int64)])

    return PrivateVectors(QQ, q + 1, "affine span", model.neighbors, q + 1, model.records, 0, read)


def directions(q: int) -> npt.NDArray[np.float64]:
    """(m, q) public unit vectors, m = ``DIRECTIONS[q]``: evenly spread for q = 2, drawn from a fixed seed for q > 2."""
    m = DIRECTIONS[q]
    if q == 1:
        return np.array([[1.0], [-1.0]])
    if q == 2:
        angle = 2 * np.pi * (np.arange(m) + 0.5) / m
        return np.column_stack([np.cos(angle), np.sin(angle)])
    drawn = public_generator(q).normal(size=(m // 2, q))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return np.vstack([drawn, -drawn])
