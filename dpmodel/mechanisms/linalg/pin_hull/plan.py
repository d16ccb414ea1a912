"""Public numbers of PinHull: rounds by the volume argument, directions, the split of the budget, the threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dpmodel.mechanisms.contract import Request
from dpmodel.mechanisms.forecast import RowsMissed
from dpmodel.mechanisms.linalg.stable_span.mechanism import STABLE_SPAN
from dpmodel.mechanisms.linalg.systems import PrivatePoints, PrivateVectors
from dpmodel.numerics.fields.field import QQ
from dpmodel.numerics.polytopes.ellipsoid import rounds_needed
from dpmodel.privacy import above_threshold_error, exponential_mechanism_error, per_step, public_generator

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
    spans, each with ``span_request``. ``search``: epsilon of one search, ``behind``: points that it loses against the
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
    span_request: Request
    needed: float


def pin_hull_plan(model: PrivatePoints, request: Request) -> PinHullPlan:
    """From public facts alone; delta > 0."""

    def build() -> PinHullPlan:
        axes = model.free_axes
        widest = sorted((model.levels[axis] for axis in axes), reverse=True)
        rounds = sum(rounds_needed(tuple(widest[:q]), INFLATION) for q in range(1, len(axes) + 1))
        spans = len(axes) + 1
        reach = 1.0 if model.neighbors == "add-remove" else 2.0
        search = per_step(SEARCH * request.epsilon, request.delta / 2, max(rounds, 1), "exponential").value
        test = TEST * request.epsilon
        beta = request.beta / 3
        most = DIRECTIONS[max(len(axes), 1)]
        behind = exponential_mechanism_error(most, reach, search, beta / max(rounds, 1))
        off = above_threshold_error(max(rounds, 1), 1.0, test, beta, range_bound=reach)
        # Twice what the search loses: as many points may lie beyond the best direction when a centre is outside.
        threshold = off + 2 * behind
        span_request = replace(
            request, epsilon=SPANS * request.epsilon / spans, delta=request.delta / 2 / spans, beta=beta / spans
        )
        lost = rounds * (threshold + off)
        for q in range(len(axes) + 1):
            error = STABLE_SPAN.forecast(span_model(model, np.zeros((0, q), dtype=np.int64)), span_request).error
            assert isinstance(error, RowsMissed)
            lost += max(error.missed, error.needed) if math.isfinite(error.needed) else math.inf
        needed = float(math.ceil(lost)) + 1 if math.isfinite(lost) else math.inf
        return PinHullPlan(axes, rounds, spans, search, behind, test, threshold, off, reach, span_request, needed)

    return model.cached(("pin-hull", request.epsilon, request.delta, request.beta), build)


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
