"""The rounds of dp-lp on private integer rows: what each costs, and what each does."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from dpmodel._types import Floats
from dpmodel.annotate.records import Neighbors
from dpmodel.mechanisms.contract import Progress, no_progress
from dpmodel.mechanisms.linalg.dp_lp.descent import Schedule, descend, on_grid, reduced_rows, scaled_rows
from dpmodel.mechanisms.linalg.dp_lp.spans import supported_levels
from dpmodel.mechanisms.linalg.stable_span.mechanism import discrete
from dpmodel.numerics.fields.integer_flat import FractionRows, Region, nearest, region_of
from dpmodel.numerics.fields.integer_rows import Fractions, IntegerRows, primitive, satisfied
from dpmodel.privacy import Cost, NoiseSource, exponential_mechanism, zcdp_rho

# Share of epsilon for the spans (of delta: half), and of the rest (in rho) for each selection and for the count.
SPANS, SELECTION, COUNT = 0.25, 0.02, 0.04
# Binary places of the coordinates of answers.
_BITS = 40


@dataclass(frozen=True)
class Spending:
    """The public split of one budget. Round r of R: solve at ``solve[r]``, sanitise at ``spans[r]`` (not in the last),
    select at ``select[r]``; at the end a count at ``count``. rho in zCDP, spans (epsilon, delta)."""

    solve: tuple[float, ...]
    spans: tuple[tuple[float, float], ...]
    select: tuple[float, ...]
    count: float

    @property
    def costs(self) -> tuple[Cost, ...]:
        """What all releases cost, in order, for ``compose``."""
        out = []
        for r, solve in enumerate(self.solve):
            out.append(Cost.zcdp(solve, "descent"))
            if r < len(self.spans):
                out.append(Cost.approximate(*self.spans[r], "sanitised equations"))
            out.append(Cost.zcdp(self.select[r], "selection"))
        return (*out, Cost.zcdp(self.count, "count"))


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


@dataclass(frozen=True, eq=False)
class Candidate:
    """A released point x of a released region, exactly on its flat and within its public rows."""

    region: Region
    x: Fractions


@dataclass(frozen=True, eq=False)
class Searched:
    """``best`` : the answer. ``missed`` : noisy count of the rows it violates. ``levels`` : flats tried per round."""

    best: Candidate
    missed: int
    levels: tuple[int, ...] = field(default=())


def search(
    rows: IntegerRows,
    first: Region,
    public: FractionRows,
    split: Spending,
    schedule: Schedule,
    window: float,
    drop: float,
    largest: int,
    neighbors: Neighbors,
    source: NoiseSource,
    progress: Progress = no_progress,
) -> Searched:
    """Rounds of solve, sanitise, select on (n, d + 1) private integer rows (b, -a). See ``DPLinearProgram``.

    ``window`` : rows within this share of the radius from x* count as tight.
    ``drop`` : descents after the first leave out rows that the best point so far violates by more than this share.
    ``largest`` : U.
    """
    whole = discrete(source)
    moved = 1.0 if neighbors == "add-remove" else 2.0  # unit vectors: one comes or goes, or one becomes another
    best: Candidate | None = None
    region = first
    tried = []
    for r, rho in enumerate(split.solve):
        progress(f"round {r + 1}", r / len(split.solve))
        if region.flat.dimension == 0:
            break
        radius, origin = region.radius, region.middle
        reduced = reduced_rows(rows, region, largest)
        scaled = scaled_rows(reduced, region, origin, radius)
        start, near = np.zeros(origin.size), scaled
        if best is not None:
            start = on_grid(_local(region, best.x), radius)
            near = scaled.only(scaled.slack(start) >= -drop * radius)
        sigma = moved * math.sqrt(schedule.steps / (2 * rho))
        w = descend(near, region.unit_rows, start, radius, schedule.later() if r else schedule, sigma, source)
        here = _candidate(region, w)
        candidates = [here] if best is None else [best, here]
        if r < len(split.spans):
            tight = np.abs(scaled.slack(w)) <= window * radius
            vectors = primitive(reduced[scaled.kept][tight])
            levels = supported_levels(vectors, *split.spans[r], neighbors, source)
            lower = [_lowered(region, basis, public, here.x) for basis in levels]
            found = [c for c in lower if c is not None]
            candidates += found
            tried.append(len(found))
        best = _selected(rows, candidates, largest, split.select[r], neighbors, source)
        region = best.region
    if best is None:  # the public constraints leave one point
        best = Candidate(first, first.flat.point(()))
    wrong = int(np.count_nonzero(~satisfied(rows, best.x, largest)))
    # One record more, less or other moves the count by 1 at most.
    missed = int(whole.discrete_gaussian(np.array([wrong]), math.sqrt(1 / (2 * split.count)))[0])
    return Searched(best, missed, tuple(tried))


def _local(region: Region, x: Fractions) -> Floats:
    """(q,) coordinates w of a point, inside the region; points off the flat are projected onto it."""
    flat = region.flat
    frame = flat.frame[1:].astype(np.float64)
    target = np.array([float(v) for v in x]) - frame[:, 0]
    z = np.linalg.lstsq(frame[:, 1:], target, rcond=None)[0]
    return nearest(region.unit_rows, region.metric @ (z - region.middle))


def _candidate(region: Region, w: Floats) -> Candidate:
    z = np.linalg.solve(region.metric, w) + region.middle
    return Candidate(region, region.flat.point(region.rounded(z, _BITS)))


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
    reach = 1.0 if neighbors == "add-remove" else 2.0
    scale = math.ceil(reach / math.sqrt(8 * rho) * 2**10) / 2**10  # so that scores are exact
    scores = [
        float(np.count_nonzero(satisfied(rows, c.x, largest)))
        - scale * (c.region.flat.variables - c.region.flat.dimension)
        for c in candidates
    ]
    return candidates[exponential_mechanism(scores, reach, rho=rho, source=source)]
