"""A point in the hull by one private choice: every grid point is a candidate, its half-space depth the score."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from scipy.stats import binom

from dpmodel.mechanisms.contract import YES, Mechanism, Progress, Request, Serves, Verdict, no_progress
from dpmodel.mechanisms.forecast import Forecast, RowsMissed
from dpmodel.mechanisms.known import capped
from dpmodel.mechanisms.linalg.found import Found
from dpmodel.mechanisms.linalg.stable_span.tails import least
from dpmodel.mechanisms.linalg.systems import PrivatePoints, known_of
from dpmodel.mechanisms.linalg.tukey_depth.scores import cut_depths
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
        ``tukey_scores.cut_depths``: a sort for d = 1; pairs of outer points for d = 2, sets of d points for d > 2; then
        a number for each candidate. Time depends on the data, and grows fast where ``expected`` is far too low.
    """

    serves: ClassVar[Serves] = Serves(PrivatePoints)
    name: str = "tukey-depth"
    source: str = "Beimel et al. 2019; grid points of depth n/2^d by Doignon 1973"

    def eligible(self, model: PrivatePoints, request: Request) -> Verdict:
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
        plan = depth_plan(model, request)
        taken = max(plan.kept, math.ceil(plan.rate * model.expected))
        if len(axes) > 2 and min(taken, candidates) > 2 * MOST_POINTS[len(axes)]:
            return Verdict(
                False,
                f"in {len(axes)} dimensions too slow for the {taken} points that this budget and expected call for",
            )
        return YES

    def forecast(self, model: PrivatePoints, request: Request) -> Forecast:
        plan = depth_plan(model, request)
        caveats = () if plan.rate == 1 else (f"each point is taken with probability {number(plan.rate)}, to save time",)
        forecast = Forecast(
            statement=f"with at least {plan.needed} points, the released point of the grid lies in their convex hull "
            f"with probability {number(1 - request.beta)}",
            epsilon=request.epsilon,
            delta=0.0,
            beta=request.beta,
            work=f"one choice among the {plan.candidates:,} points of the grid",
            noise={
                "candidates": plan.candidates,
                "rate": plan.rate,
                "epsilon of the choice": plan.per_row,
                "depths cut at": plan.cap,
            },
            caveats=caveats,
            error=RowsMissed(needed=float(plan.needed)),
        )
        return capped(forecast, known_of(model))

    def run(
        self, model: PrivatePoints, request: Request, noise: NoiseSource, progress: Progress = no_progress
    ) -> Found:
        plan = depth_plan(model, request)
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


def depth_plan(model: PrivatePoints, request: Request) -> DepthPlan:
    """Rate, scale and cap, and the number of points needed, from public facts."""

    def build() -> DepthPlan:
        axes, candidates = model.free_axes, math.prod(model.levels)
        rate = 1.0
        most = MOST_POINTS.get(len(axes), math.inf)
        if min(model.expected, candidates) > most:
            rate = max(most / model.expected, _LEAST_RATE)
        beta = request.beta if rate == 1 else request.beta / 2
        per_row = row_epsilon(request.epsilon, rate, replace=model.neighbors == "replace-one")
        cap = 1 + math.floor(permute_and_flip_error(candidates, 1.0, per_row, beta))
        kept = 2 ** len(axes) * (cap - 1) + 1
        return DepthPlan(axes, candidates, rate, per_row, cap, kept, _points_for(kept, rate, beta))

    return model.cached(("tukey-depth", request.epsilon, request.beta), build)


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
