"""One number that minimises a sum of absolute or quantile losses: a point of a public grid, by its rank."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from dpmodel._types import Floats, PrivateArray
from dpmodel.contract import YES, Mechanism, Options, Outcome, Progress, Serves, Verdict, no_progress
from dpmodel.forecast import Forecast
from dpmodel.memo import cached
from dpmodel.privacy import NoiseSource, permute_and_flip, permute_and_flip_error
from dpmodel.regressions.excess import excess_forecast
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.rows import Rows
from dpmodel.regressions.synthetic import populations_of

# Points of the grid: about one for each rank that the noise can tell from the next.
_FEWEST, _MOST = 1_000, 100_000


@dataclass(frozen=True)
class QuantileExponential(Mechanism[PrivateRegression]):
    """The point of a public grid whose derivative is nearest to 0, by permute-and-flip.

    Source
        Smith 2011 (quantiles by the exponential mechanism); McKenna and Sheldon 2020 (permute-and-flip).
    Privacy
        Unit: the sum, objective / scale. The prediction is one number t, ``f(t) = sum_i omega_i loss(t + o_i, y_i) +
        public(t)``, a loss with slope l left of its kink ``k_i = y_i - o_i`` and r right of it. The derivatives of f
        from the left and the right are ``L(t) = sum_i omega_i (l + (r - l) [k_i < t]) + public'(t)`` and ``R(t)``, the
        same with ``k_i <= t``.
        Record i enters one term of each, between omega_i l and omega_i r whatever it holds (an absent record has label
        0): another record in its place moves L(t) and R(t) by at most ``Delta = max omega (r - l)``. So does it the
        score ``-max(0, L(t - h), -R(t + h))`` of a grid with steps h: maxima move by no more than their arguments. The
        range of the moves is at most 2 Delta, with an allowance for the rounding of sums of weights, and
        permute-and-flip is epsilon-DP with that range.
    Utility
        A minimiser t* lies between two points of the grid, and both have score 0. With probability 1 - beta the score
        of the point chosen is at least ``-s``, ``s = 2 Delta / epsilon ln(points / beta)``: a step nearer to t* f is,
        by convexity, at most s times the grid's length above its least value, and one step costs at most h times the
        steepest slope of f. The scores are counts of records, so the range of the values matters by the length of the
        grid alone.
        Predicted: the mean of the exponential mechanism, which is never better, on the synthetic populations.
    Cost
        One pass: a sort of the kinks into the grid.
    Errors
        Refuses by ``eligible``: more than one coefficient, rows that vary, other losses, penalties with kinks, and a
        minimiser that nothing bounds.
    """

    serves: ClassVar[Serves] = Serves(PrivateRegression, reads_blocks=True)
    name: str = "quantile-exponential"
    source: str = "Smith 2011; McKenna and Sheldon 2020"

    def eligible(self, model: PrivateRegression, options: Options) -> Verdict:
        if model.size != 1 or not model.row.constant.all() or not model.row.lower.all():
            return Verdict(False, "it is for one number, the same for all records")
        if model.loss.name not in ("absolute", "quantile"):
            return Verdict(False, f"the {model.loss.name} loss has no ranks: it is for absolute and quantile losses")
        if not model.penalty.smooth:
            return Verdict(False, "the penalty has terms that are neither ridge nor linear")
        if not np.isfinite(ends(model)).all():
            return Verdict(False, "a linear term draws the number beyond all bounds")
        return YES

    def forecast(self, model: PrivateRegression, options: Options) -> Forecast:
        grid, scale = grid_of(model, options.epsilon), range_of(model) / options.epsilon
        step = grid[1] - grid[0] if grid.size > 1 else 0.0
        steepest = model.total * np.abs(slopes(model)).max() + np.abs(public_slopes(model, grid)).max()
        nearest = float(steepest) * step
        rank = permute_and_flip_error(grid.size, range_of(model), options.epsilon, options.beta)
        return excess_forecast(
            model,
            options,
            predicted=predicted_excess(model, scale) + model.scale * nearest,
            at_most=model.scale * (rank * float(grid[-1] - grid[0]) + nearest),
            work=f"one pass over the rows and a choice among {grid.size:,} points",
            noise={"kind": "selection", "candidates": grid.size, "range": range_of(model)},
        )

    def run(
        self, model: PrivateRegression, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Outcome:
        grid = grid_of(model, options.epsilon)
        progress("choosing a point of the grid", 0.0)
        scores = scores_of(model, grid)
        chosen = permute_and_flip(scores, range_of(model), epsilon=options.epsilon, source=noise)
        progress("choosing a point of the grid", 1.0)
        return Outcome("optimal", model.domain.project(grid[chosen] / model.row.lower), None, None)


def slopes(model: PrivateRegression) -> Floats:
    """(2,) slopes of one loss left and right of its kink."""
    return model.loss.derivative(np.array([-1.0, 1.0]), np.zeros(2))


def range_of(model: PrivateRegression) -> float:
    """2 Delta, with the rounding of two sums of n weights and public slopes."""
    left, right = slopes(model)
    public = float(np.abs(public_slopes(model, ends(model))).max())  # linear in between
    rounding = 2.0**-51 * ((model.count + 8) * model.total * (right - left) + public)
    return float(2 * (right - left) * model.largest_weight + 2 * rounding)


def public_slopes(model: PrivateRegression, grid: Floats) -> Floats:
    """(points,) derivatives of the penalty by the prediction, in the unit of the sum."""
    c = model.row.lower[0]
    return np.asarray(model.penalty.derivative(grid[:, None] / c)[:, 0] / (c * model.scale))


@cached
def ends(model: PrivateRegression) -> Floats:
    """(2,) the least and largest prediction that the set allows and a minimiser can have; infinite where none is known.

    Without a penalty it lies among the kinks, with a ridge between these and 0, unless a linear term is steeper than
    all losses together.
    """
    c, linear = model.row.lower, float(model.penalty.linear[0]) / model.row.lower[0] / model.scale
    (low, high), (least, most), (left, right) = model.row.label, model.offset_range, slopes(model) * model.total
    low, high = low - most, high - least
    if model.penalty.ridge.any():
        low, high = min(low, 0.0), max(high, 0.0)
    if not left <= -linear <= right:
        limit = model.domain.norm(math.inf) * abs(c[0])
        if math.isinf(limit):
            return np.array([-limit, limit])
        low, high = -limit, limit
    found: Floats = np.sort((model.domain.projected(np.array([[low], [high]]) / c) * c).ravel())
    return found


@cached
def grid_of(model: PrivateRegression, epsilon: float) -> Floats:
    """(points,) from one of the ``ends`` to the other."""
    points = int(min(max(model.total / model.largest_weight * epsilon, _FEWEST), _MOST))
    low, high = ends(model)
    return np.unique(np.linspace(low, high, points + 1))


def scores_of(model: PrivateRegression, grid: Floats) -> PrivateArray:
    """(points,) the scores, of all rows."""
    (left, right), total = slopes(model), model.total
    counts = model.read_table().map_reduce(partial(kinks_below, grid=grid))
    public = public_slopes(model, grid) + left * total
    below, at_most = public + (right - left) * np.cumsum(counts, axis=1)[:, :-1]
    falling, rising = np.zeros(grid.size), np.zeros(grid.size)
    rising[1:], falling[:-1] = below[:-1], -at_most[1:]
    return PrivateArray(-np.maximum(np.maximum(rising, falling), 0.0))


def kinks_below(part: Rows, grid: Floats) -> PrivateArray:
    """(2, points + 1) weights of the rows whose kinks lie below each point but not below the one before it; the same
    with kinks at the point counted too."""
    kinks = part.labels if part.offset is None else part.labels - part.offset
    places = (np.searchsorted(grid, kinks, side=side) for side in ("right", "left"))
    return PrivateArray(np.stack([np.bincount(at, part.weights, grid.size + 1).astype(float) for at in places]))


@cached
def predicted_excess(model: PrivateRegression, scale: float) -> float:
    """Mean excess risk of the exponential mechanism on the synthetic populations, with scores over ``scale``."""
    grid = grid_of(model, 0.0)
    if grid.size == 1:
        return 0.0
    grid = np.linspace(grid[0], grid[-1], 257)
    people = populations_of(model)
    rows = people.at(np.repeat(np.arange(people.count), grid.size))
    values = rows.values(np.tile(grid / model.row.lower[0], people.count)[:, None]).reshape(people.count, -1)
    steep = np.diff(values, axis=1) / (grid[1] - grid[0]) / model.scale
    middle = (values[:, :-1] + values[:, 1:]) / 2
    # Between two points f is nearly a line: the score of a stretch is minus its slope where no minimiser lies in it.
    scores = -np.abs(steep)
    scores[np.arange(people.count), np.argmin(middle, axis=1)] = 0.0
    weights = np.exp(scores / scale)
    excess = middle - middle.min(axis=1, keepdims=True)
    return float(((weights * excess).sum(axis=1) / weights.sum(axis=1)).mean())


QUANTILE_EXPONENTIAL = QuantileExponential()
__all__ = ["QUANTILE_EXPONENTIAL", "QuantileExponential"]
