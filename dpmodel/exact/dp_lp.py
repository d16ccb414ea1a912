"""Integer programs with equalities hidden in inequalities: solve, sanitise the tight rows, reduce, repeat."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from scipy.optimize import linprog

from dpmodel._types import Floats, Mask, PrivateArray
from dpmodel.contract import YES, Mechanism, Options, Progress, Serves, Verdict, no_progress
from dpmodel.errors import InfeasibleError
from dpmodel.exact.dp_lp_forecast import Setting, simulated_misses, simulated_need
from dpmodel.exact.fields import QQ
from dpmodel.exact.flats import (
    FractionRows,
    Fractions,
    IntegerRows,
    Region,
    exact_product,
    fractions,
    nearest,
    primitive,
    region_of,
    satisfied,
    slack_rows,
)
from dpmodel.exact.model import Found, PrivateInequalities, PrivateVectors
from dpmodel.exact.stable_span import discrete, release_flag, thresholds
from dpmodel.forecast import Forecast, RowsMissed
from dpmodel.marks.records import Neighbors
from dpmodel.privacy import NoiseSource, exponential_mechanism, zcdp_rho
from dpmodel.text import number

# Rows expected at most; variables (there forecasts take 3 s); size of integers that machine integers hold.
_MOST_RECORDS, _MOST_VARIABLES, _LARGEST = 2**25, 20, 2**53
# Share of epsilon for the spans (of delta: half), and of the rest (in rho) for each selection and for the count.
SPANS, SELECTION, COUNT = 0.25, 0.02, 0.04
_ROUNDS = 3
_WINDOW, _DROP = 1.5e-3, 0.01  # of the radius: rows this near count as tight; rows violated by more are left out


@dataclass(frozen=True, eq=False)
class Candidate:
    """A released point x of a released region, exactly on its flat and within its public rows."""

    region: Region
    x: Fractions


@dataclass(frozen=True)
class DPLinearProgram(Mechanism[PrivateInequalities]):
    """A rational point that satisfies nearly all rows of an integer system exactly, hidden equalities included.

    Source
        KMMST24, Algorithm 5 (DP-LP) with Lemmas 7 and 36, on the stable partition of Algorithm 1. Changed where the
        paper is not private or not usable: no branch on exact counts; a perturbation that doubles can hold; noisy
        descent for the inner solver; one selection per round.
    What it does
        In at most 3 rounds (and d, the paper's bound), in the current flat (at first the whole space, or the flat of
        public equalities):

        1. Noisy descent (``descent``) to a point x* that is deep in the rows where they allow it, and about the
           last step length from the flat of a hidden equality. The perturbation eta is 0.0015 of the radius of the
           public region, in distance, instead of 1 / (2 (d+1) ((d+1) U)^(d+1)).
        2. The rows within eta of x* are J2, tight; the paper's J2 is the half of them that x* violates.
        3. The stable partition of their equations in the coordinates of the flat; the spans of all levels that have
           noisily enough sets are released (``supported_levels``). Not in the last round.
        4. Each released span is a flat of fewer dimensions. Where it meets the public constraints, it gives a
           candidate: the nearest point to x*, rational, exactly on it. Candidates are compared by how many rows they
           satisfy exactly; the exponential mechanism chooses one of them, x* itself and the best so far, and the next
           round works in its flat. Later descents leave out rows that this point violates by more than 0.01 of the
           radius; they still count in selections.

        In the end a noisy count of the rows missed.
    Privacy
        No branch reads the data: the paper's tests of |J1| and |J2| are gone. A level that does not pass gives no
        equations, which is the test of |J2| with a margin; a flat with few rows left needs no test, since the selection
        compares it with the point before. The number of rounds and the split of the budget are public (``spending``);
        rounds end early only when the released flat is a point.

        Each row is reduced, scaled and tested for tightness by itself, given released points (a filter of rows: the
        filtered data of neighbours are neighbours), on integers or elementwise, never by a tolerance rank. Per step of
        the descent: a sum of vectors of norm at most 1, multiples of 2^-26, added up exactly, so D2 = 1 under
        add-remove and 2 under replace-one: Gaussian noise of standard deviation ``D2 sqrt(T / (2 rho))`` in each of T
        steps costs rho. Levels: (epsilon_r, delta_r), see ``supported_levels``; replace-one may change two tight rows
        into each other, one into none, or one more, all covered there. Selection: scores are counts, which move by 0 or
        1 all the same way (range 1; replace-one: 2), rho each. Count: D = 1, discrete Gaussian. Total: the (epsilon_r,
        delta_r) add up to a quarter of epsilon and half of delta; the zCDP parts to the rho that (3/4 epsilon, delta /
        2) allows; the two groups add up, interleaved as they are (Vadhan and Zhang 2023). Rows are checked to be
        integers of size at most U when they are read.
    Utility
        Predicted by simulation on synthetic programs, not proved. Lemma 36, by which tight rows may be made equations,
        needs the printed eta. With a larger one a released equation may be wrong: a row that is repeated often and is
        tight at x* without being an equality. Then the answer is the best point of that flat, or the selection keeps
        the point before. Equations of few records are not found: each direction needs about ``threshold_sets`` tight
        rows. The printed constants rule out any run.
    Cost
        rounds x steps products with the rows, exact products of the rows with each candidate, and the partition of
        the tight rows.

    Answers are looked for with |x_j| <= U where the public constraints do not bound x_j.
    """

    serves: ClassVar[Serves] = Serves(PrivateInequalities)
    name: str = "dp-lp"
    source: str = "KMMST24, Algorithm 5, without its exact branches"
    schedule: Schedule = field(default_factory=lambda: Schedule())

    def eligible(self, model: PrivateInequalities, options: Options) -> Verdict:
        if model.homogeneous:
            return Verdict(False, "serves A x <= b; a homogeneous system has no largest point to perturb")
        if model.largest is None:
            return Verdict(False, "needs integers of a declared largest size U")
        if model.largest > _LARGEST:
            return Verdict(False, f"needs integers of size at most {_LARGEST:,}")
        if options.delta <= 0:
            return Verdict(False, "needs delta > 0: spans are released except with a small probability")
        if model.variables > _MOST_VARIABLES:
            return Verdict(False, f"serves up to {_MOST_VARIABLES} variables")
        if (model.records or model.expected) > _MOST_RECORDS:
            return Verdict(False, f"serves up to {_MOST_RECORDS} records")
        return YES

    def forecast(self, model: PrivateInequalities, options: Options) -> Forecast:
        assert model.largest is not None
        d, U, n = model.variables, model.largest, model.expected
        first_region(model)  # an empty public part is an error before anything is spent
        setting = Setting(d, U, options.epsilon, options.delta, model.neighbors)
        found = simulated_misses(self, setting, n)
        rounds = min(_ROUNDS, d)
        spans = spending(options.epsilon, options.delta, rounds).spans
        rule = thresholds(*spans[0], model.neighbors) if spans else None
        words = (
            f"all but {number(found.missed)} of about {n} rows hold exactly, at worst over synthetic programs of this "
            f"size with {', '.join(str(h) for h, _ in found.by_hidden)} hidden equalities"
        )
        return model.forecast(
            options,
            words,
            RowsMissed(missed=found.missed, needed=simulated_need(self, setting)),
            proved=False,
            work=f"{rounds} rounds of {self.schedule.steps} steps",
            noise={
                "rounds": rounds,
                "steps": self.schedule.steps,
                "threshold_sets": rule.gap if rule else None,
                "missed_by_hidden": [list(pair) for pair in found.by_hidden],
            },
            caveats=(
                "a prediction on synthetic rows in a box: rows with thinner margins are missed more often",
                "equations owned by fewer records than the threshold are not found",
            ),
        )

    def run(
        self, model: PrivateInequalities, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Found:
        assert model.largest is not None
        first = first_region(model)
        A, b = model.read_rows()
        rows = slack_rows(A, b, model.largest)
        setting = Setting(model.variables, model.largest, options.epsilon, options.delta, model.neighbors)
        best, missed = self.search(rows, first, public_rows(model), setting, noise, progress)
        removed = first.flat.dimension - best.region.flat.dimension
        notes = (f"{removed} of {first.flat.dimension} dimensions removed by sanitised equations",)
        return Found("found", best.x, float(max(missed, 0)), notes)

    def search(
        self,
        rows: IntegerRows,
        first: Region,
        public: FractionRows,
        setting: Setting,
        source: NoiseSource,
        progress: Progress = no_progress,
    ) -> tuple[Candidate, int]:
        """Rounds of solve, sanitise, select on (n, d + 1) private integer rows (b, -a): the answer, and the noisy count
        of the rows it violates."""
        largest, neighbors = setting.largest, setting.neighbors
        integer_noise = discrete(source)
        split = spending(setting.epsilon, setting.delta, min(_ROUNDS, setting.variables))
        moved = 1.0 if neighbors == "add-remove" else 2.0  # unit vectors: one comes or goes, or one becomes another
        best: Candidate | None = None
        region = first
        for r, rho in enumerate(split.solve):
            progress("solving and choosing, in rounds", r / len(split.solve))
            if region.flat.dimension == 0:
                break
            radius, origin = region.radius, region.middle
            reduced = reduced_rows(rows, region, largest)
            scaled = scaled_rows(reduced, region, origin, radius)
            start, near = np.zeros(origin.size), scaled
            if best is not None:
                start = on_grid(_local(region, best.x), radius)
                near = scaled.only(scaled.slack(start) >= -_DROP * radius)
            sigma = moved * math.sqrt(self.schedule.steps / (2 * rho))

            def noisy_pull(below: Mask, near: ScaledRows = near, sigma: float = sigma) -> Floats:
                return source.gaussian(near.pull(below), sigma)

            schedule = self.schedule.later() if r else self.schedule
            w = descend(near, region.unit_rows, start, radius, schedule, sigma, noisy_pull)
            here = _candidate(region, w)
            candidates = [here] if best is None else [best, here]
            if r < len(split.spans):
                tight = np.abs(scaled.slack(w)) <= _WINDOW * radius
                vectors = primitive(reduced[scaled.kept][tight])
                levels = supported_levels(vectors, *split.spans[r], neighbors, source)
                lower = [_lowered(region, basis, public, here.x) for basis in levels]
                candidates += [c for c in lower if c is not None]
            best = _selected(rows, candidates, largest, split.select[r], neighbors, source)
            region = best.region
        if best is None:  # the public constraints leave one point
            best = Candidate(first, first.flat.point(()))
        wrong = int(np.count_nonzero(~satisfied(rows, best.x, largest)))
        # One record more, less or other moves the count by 1 at most.
        missed = int(integer_noise.discrete_gaussian(np.array([wrong]), math.sqrt(1 / (2 * split.count)))[0])
        return best, missed


@dataclass(frozen=True)
class Spending:
    """The public split of one budget. Round r of R: solve at ``solve[r]``, sanitise at ``spans[r]`` (not in the last),
    select at ``select[r]``; at the end a count at ``count``. rho in zCDP, spans (epsilon, delta)."""

    solve: tuple[float, ...]
    spans: tuple[tuple[float, float], ...]
    select: tuple[float, ...]
    count: float


def spending(epsilon: float, delta: float, rounds: int) -> Spending:
    """Split (epsilon, delta) between the rounds: 1, 1/2, 1/4 .. for the spans, the first descent twice a later one.

    The spans take SPANS of epsilon and half of delta by basic composition; the rest of epsilon, with the other half of
    delta, is converted to zCDP once, for everything else. Both groups together cost the sum (concurrent composition).
    """
    rho = zcdp_rho((1 - SPANS) * epsilon if rounds > 1 else epsilon, delta / 2 if rounds > 1 else delta)
    rest = rho * (1 - SELECTION * rounds - COUNT)
    weights = np.array([2.0, *[1.0] * (rounds - 1)])
    halves = 0.5 ** np.arange(rounds - 1)
    return Spending(
        tuple(float(v) for v in rest * weights / weights.sum()),
        tuple((float(SPANS * epsilon * h), float(delta / 2 * h)) for h in halves / max(halves.sum(), 1e-300)),
        (rho * SELECTION,) * rounds,
        rho * COUNT,
    )


def supported_levels(
    vectors: IntegerRows, epsilon: float, delta: float, neighbors: Neighbors, source: NoiseSource
) -> list[FractionRows]:
    """Canonical bases (k, D) of the spans of all well-supported levels of the stable partition, largest first.

    (epsilon, delta)-DP by the proof of ``StableSpan``, which is for the noisy counts together with the spans of all
    levels that pass and exist: every level that passes is released for the price of one, and the caller takes the
    largest that agrees with the public constraints.
    """
    D = vectors.shape[1]
    system = PrivateVectors(QQ, D, "span", neighbors, D, None, 0, lambda: vectors)
    return [np.asarray(basis.rows, dtype=object) for basis in release_flag(system, Options(epsilon, delta), source)]


def _local(region: Region, x: Fractions) -> Floats:
    """(q,) coordinates w of a point, inside the region; points off the flat are projected onto it."""
    flat = region.flat
    frame = flat.frame[1:].astype(np.float64)
    target = np.array([float(v) for v in x]) - frame[:, 0]
    z = np.linalg.lstsq(frame[:, 1:], target, rcond=None)[0]
    return nearest(region.unit_rows, region.metric @ (z - region.middle))


def _candidate(region: Region, w: Floats) -> Candidate:
    z = np.linalg.solve(region.metric, w) + region.middle
    return Candidate(region, region.flat.point(region.rounded(z, bits=40)))


def _lowered(region: Region, basis: FractionRows, public: FractionRows, x: Fractions) -> Candidate | None:
    """The point of the flat of more equations that is nearest to x, or None where they contradict the public rows."""
    equations = np.vstack([region.flat.equations, region.full(basis)])
    lower = region_of(equations, public, region.flat.variables)
    if lower is None:
        return None
    if lower.flat.dimension == 0:
        return Candidate(lower, lower.flat.point(()))
    return _candidate(lower, _local(lower, x))


def _selected(
    rows: IntegerRows, candidates: list[Candidate], largest: int, rho: float, neighbors: Neighbors, source: NoiseSource
) -> Candidate:
    """The candidate that satisfies most rows, exactly, by the exponential mechanism; fewer dimensions count against it.

    A record more or less moves all scores by 0 or 1 the same way: range 1; another record: range 2.
    """
    if len(candidates) == 1:
        return candidates[0]
    range_bound = 1.0 if neighbors == "add-remove" else 2.0
    scale = math.ceil(range_bound / math.sqrt(8 * rho) * 2**10) / 2**10  # so that scores are exact
    scores = [
        float(np.count_nonzero(satisfied(rows, c.x, largest)))
        - scale * (c.region.flat.variables - c.region.flat.dimension)
        for c in candidates
    ]
    return candidates[exponential_mechanism(scores, range_bound, rho=rho, source=source)]


def public_rows(model: PrivateInequalities) -> FractionRows:
    """(k, d + 1) Fractions (h, -g) of ``G x <= h``, and of ``|x_j| <= U`` where those do not bound x_j."""

    def build() -> FractionRows:
        d = model.variables
        G, h = (
            np.asarray(model.public_rows, dtype=np.float64).reshape(-1, d),
            np.asarray(model.public_sides, dtype=np.float64),
        )
        limit = float(model.largest or 1)
        extra = []
        for j in range(d):
            for sign in (1.0, -1.0):
                side = np.zeros(d)
                side[j] = sign
                if not _bounded(G, h, side):
                    extra.append(np.r_[limit, -side])
        rows = np.hstack([h[:, None], -G])
        return fractions(np.vstack([rows, *extra]) if extra else rows)

    return model.cached("dp-lp public rows", build)


def _bounded(G: Floats, h: Floats, side: Floats) -> bool:
    """Whether ``side'x`` is bounded above on ``G x <= h``; an empty set counts as bounded."""
    if G.shape[0] == 0:
        return False
    found = linprog(-side, A_ub=G, b_ub=h, bounds=[(None, None)] * side.size, method="highs")
    return found.status in (0, 2)


def first_region(model: PrivateInequalities) -> Region:
    """Where the search begins: the public constraints.
    Errors: InfeasibleError, if they have no common point (or one that doubles cannot find)."""

    def build() -> Region | None:
        rows = public_rows(model)
        return region_of(rows[:0], rows, model.variables)

    region = model.cached("dp-lp region", build)
    if region is None:
        raise InfeasibleError(
            "the public constraints have no common point",
            why="the answer must satisfy all of them exactly",
            remedy="check the public rows and right-hand sides; nothing was spent",
        )
    return region


# ------------------------------------------------------------------
# The inner solver of dp-lp: noisy normalised descent on violated rows, inside a flat and its public region.


# Directions of rows are multiples of 2^-26, points and offsets of the grids below: all products, and sums of up to 2^26
# rows, are exact in doubles, in whatever order they are added, so no rounding depends on other records.
_DIRECTION_BITS, _POINT_BITS = 26, 22
_BLOCK = 2**26
_FAR = 2**900


@dataclass(frozen=True)
class Schedule:
    """``steps`` T, first and last step length and first and last target depth as shares of the radius of the region."""

    steps: int = 200
    first: float = 0.1
    last: float = 3e-4
    depth: float = 0.25

    def later(self) -> Schedule:
        """The schedule of later rounds, which start at a good point."""
        return replace(self, first=self.first / 4)


@dataclass(frozen=True, eq=False)
class ScaledRows:
    """Private rows in the orthonormal coordinates w of a flat, ``slack = offset + direction'w``, one record each.

    ``directions`` (m, q) of norm at most 1, ``offsets`` (m,) distances; rows that do not move on the flat are left out:
    ``kept`` (n,) says which are in.
    """

    directions: PrivateArray
    offsets: PrivateArray
    kept: Mask

    def slack(self, w: Floats) -> PrivateArray:
        """(m,) slacks at a point of the grid: no sum is rounded."""
        return PrivateArray(self.offsets + self.directions @ w)

    def pull(self, mask: Mask) -> PrivateArray:
        """(q,) the exact sum of the directions of the mask (m,): blocks of rows are added up in integers."""
        integers = np.zeros(self.directions.shape[1], dtype=np.int64)
        for start in range(0, mask.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            part = self.directions[block].T @ mask[block].astype(np.float64)
            integers += (part * 2.0**_DIRECTION_BITS).astype(np.int64)
        return PrivateArray(integers / 2.0**_DIRECTION_BITS)

    def only(self, mask: Mask) -> ScaledRows:
        """The rows of the mask (m,)."""
        kept = self.kept.copy()
        kept[kept] = mask
        return ScaledRows(PrivateArray(self.directions[mask]), PrivateArray(self.offsets[mask]), kept)


def reduced_rows(rows: IntegerRows, region: Region, largest: int) -> IntegerRows:
    """(n, q + 1) integers r with ``r (1, z)`` = slack times the flat's common denominator, exactly, row by row."""
    return exact_product(rows, region.flat.integer_frame[0], largest)


def scaled_rows(reduced: IntegerRows, region: Region, origin: Floats, radius: float) -> ScaledRows:
    """The rows that move on the flat, in coordinates ``w = R (z - origin)``, by their distance from w.

    Every operation is elementwise along the rows, so the numbers of a row depend on that row alone, to the last bit.
    """
    moving = (reduced[:, 1:] != 0).any(axis=1)
    r = _in_doubles(reduced[moving])
    inverse = np.linalg.inv(region.metric)
    q = inverse.shape[0]
    offset = r[:, 0].copy()
    for j in range(q):
        offset += r[:, j + 1] * origin[j]
    g = np.zeros((r.shape[0], q))
    for i in range(q):
        for j in range(i + 1):  # the inverse is upper triangular
            g[:, i] += r[:, j + 1] * inverse[j, i]
    norm = np.zeros(r.shape[0])
    for i in range(q):
        norm += g[:, i] * g[:, i]
    norm = np.sqrt(norm) * (1 + 1e-12)
    unit = 2.0**_DIRECTION_BITS
    directions = np.trunc(g / norm[:, None] * unit) / unit
    step = point_grid(radius) / unit
    limit = 2.0 ** math.ceil(math.log2(4 * radius))
    offsets = np.clip(np.rint(offset / norm / step) * step, -limit, limit)
    return ScaledRows(PrivateArray(directions), PrivateArray(offsets), moving)


def _in_doubles(integers: IntegerRows) -> PrivateArray:
    """Each row over the largest of its numbers but the first: distances stay, and no norm over- or underflows."""
    largest = np.abs(integers[:, 1:]).max(axis=1, initial=0)[:, None]
    if integers.dtype != object:
        return PrivateArray(np.asarray(integers / largest.astype(np.float64)))
    # Python's division of integers rounds once. Offsets far beyond every region are as good as these.
    clipped = np.clip(integers, -largest * _FAR, largest * _FAR)
    return PrivateArray(np.asarray(clipped / largest, dtype=np.float64))


def point_grid(radius: float) -> float:
    """Grid of the points w: a power of two, 2^-22 of the radius or finer."""
    return float(2.0 ** (math.ceil(math.log2(radius)) - _POINT_BITS))


def on_grid(w: Floats, radius: float) -> Floats:
    """The nearest grid point, for points within twice the radius (as the region is); others are drawn in."""
    grid = point_grid(radius)
    near: Floats = w * min(1.0, 2 * radius / max(float(np.linalg.norm(w)), 1e-300))
    return np.asarray(np.rint(near / grid) * grid)


def descend(
    rows: ScaledRows,
    public: Floats,
    start: Floats,
    radius: float,
    schedule: Schedule,
    sigma: float,
    noisy_pull: Callable[[Mask], Floats],
) -> Floats:
    """A (q,) grid point w with few rows far below 0.

    ``public`` : (k, q + 1) rows with unit normals, ``public (1, w) >= 0``. ``start`` : (q,). ``radius`` : of the
        region.
    ``noisy_pull`` : mask of rows to the released sum of their directions, with Gaussian noise of standard deviation
    ``sigma``.

    Step t adds up the directions of all rows with slack below the target depth, plus noise, and moves along the sum
    by at most the step length, which shrinks geometrically, as the depth does: at first the point is drawn inwards, at
    the end only towards rows that are violated, so that a hidden equality holds to about the last step length.
    """
    q = start.size
    w = on_grid(start, radius)
    ratio = (schedule.last / schedule.first) ** (1 / max(schedule.steps - 1, 1))
    length = schedule.first * radius
    least_norm = sigma * math.sqrt(q)
    for _ in range(schedule.steps):
        noisy = noisy_pull(np.asarray(rows.slack(w) < schedule.depth * length))
        w = w + length * noisy / max(float(np.linalg.norm(noisy)), least_norm)
        w = on_grid(nearest(public, w), radius)
        length *= ratio
    return w


DP_LP = DPLinearProgram()
