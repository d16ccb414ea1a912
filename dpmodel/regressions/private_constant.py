"""The best constant prediction: a noisy mean of the labels, or a point of a public grid by its rank."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from dpmodel._types import Floats, PrivateArray
from dpmodel.contract import YES, Mechanism, Options, Outcome, Progress, Serves, Verdict, no_progress
from dpmodel.forecast import Forecast
from dpmodel.memo import cached
from dpmodel.privacy import Cost, NoiseSource, permute_and_flip, permute_and_flip_error, public_generator
from dpmodel.regressions.excess import excess_forecast
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.rows import Rows
from dpmodel.regressions.synthetic import populations_of

# Points of the grid: about one for each rank that the noise can tell from the next.
_FEWEST, _MOST = 1_000, 100_000
_DRAWS = 16  # of the noise, in a forecast
# Share of tables whose columns explain nothing: there a constant is the best there is, and costs its noise alone. The
# hinge loss has more of them: all in which one class is the likelier one in every row.
_NOTHING, _ONE_SIDED = 0.15, 0.6


@dataclass(frozen=True)
class PrivateConstant(Mechanism[PrivateRegression]):
    """Coefficients that predict one number t for all records: all are 0 but that of a constant column.

    Where the model is one number it is the answer; elsewhere the best that a small budget buys.

    Source
        Dwork, McSherry, Nissim and Smith 2006 (a noisy sum); Smith 2011 (quantiles by the exponential mechanism);
        McKenna and Sheldon 2020 (permute-and-flip).
    Privacy
        Unit: the sum, objective / scale; omega_i are the public weights, o_i the public offsets. All but what follows
        is a function of public facts, and of what was released: t, its point ``t e_j / c`` (column j is c in every
        row), and the projection of that point onto the set. Both releases are (epsilon, 0)-DP.

        (1) *Squared, logistic and hinge losses: the mean label.* ``sum_i omega_i (y_i - o_i)`` gets Laplace noise.
        Another record moves one term, by ``max omega (high - low)`` at most where labels lie in [low, high]. An absent
        record has label 0: ``max omega max(|low|, |high|)``. Of K classes y_i >= 0 is a row with a sum of at most 1:
        the 1-norm moves by 2 max omega, or by max omega where the other record is absent. The scale also covers the
        rounding of two sums of n products, each off by at most ``(n + 4) 2^-53`` of the sum of sizes, twice.
        (2) *Absolute, quantile and Huber losses, and the squared one with derivatives cut: the rank.* A loss of the
        residual has slopes between l and r. Let ``k_i = y_i - o_i`` and ``f(t) = sum_i omega_i loss(t, k_i) +
        public(t)``, with derivatives ``L(t)`` from the left and ``R(t)`` from the right: where the loss has one kink,
        ``L(t) = sum_i omega_i (l + (r - l) [k_i < t]) + public'(t)``, and R(t) the same with ``k_i <= t``. Where it is
        smooth k_i is first moved to the nearest of a thousand public points, a function of record i alone.
        Record i enters one term of each, between omega_i l and omega_i r whatever it holds (an absent record has label
        0): another record in its place moves L(t) and R(t) by at most ``Delta = max omega (r - l)``. So does it the
        score ``-max(0, L(t - h), -R(t + h))`` of a grid with steps h: maxima move by no more than their arguments. The
        range of the moves is at most 2 Delta, with an allowance for the rounding of sums of weights, and
        permute-and-flip is epsilon-DP with that range.
    Utility
        (1) t minimises the loss of labels at the two ends of their range with the noisy mean, which is clipped to it;
        a share of two classes stays as far from 0 and 1 as the noise's scale, for no noisy share is surer.
        (2) A minimiser t* lies between two points of the grid, and both have score 0. With probability 1 - beta the
        score of the point chosen is at least ``-s``, ``s = 2 Delta / epsilon ln(points / beta)``: a step nearer to t* f
        is, by convexity, at most s times the grid's length above its least value, and one step costs at most h times
        the steepest slope of f; moving the k_i costs as much again, twice. The scores are counts of records, so the
        range of the values matters by the length of the grid alone. Proved for a model of one number only.
        Predicted: the mean excess on the synthetic populations, where (2) goes by the exponential mechanism, which is
        never better. A share of 15 % (hinge: 60 %) of them stands for tables whose columns explain nothing, where only
        the noise counts. So a constant is taken where noise is predicted to cost a fit nearly what the columns explain.
    Cost
        One pass: a sum, or a sort of the k_i into the grid.
    Errors
        Refuses by ``eligible``: models without a constant column, labels without bounds or without a range, offsets
        where losses are not of the residual, l1 terms of this coefficient, and a minimiser that nothing bounds.
    """

    serves: ClassVar[Serves] = Serves(PrivateRegression, reads_blocks=True, classes=True)
    name: str = "private-constant"
    source: str = "Dwork et al. 2006; Smith 2011; McKenna and Sheldon 2020"

    def eligible(self, model: PrivateRegression, options: Options) -> Verdict:
        penalty, (low, high) = model.penalty, model.row.label
        if not _anchors(model).size:
            return Verdict(False, "no column is the same number in all records, so that no point predicts one")
        if not 0 < high - low < math.inf:
            return Verdict(False, "labels have no bounds" if high - low > 0 else "labels are public: all are the same")
        if model.offset_bound and model.loss.labels != "number":
            return Verdict(False, "with offsets the mean label does not tell the best constant")
        if penalty.l1[_columns(model)].any() or (model.size == 1 and not penalty.smooth):
            return Verdict(False, "the penalty of the constant has terms that are neither ridge nor linear")
        if by_rank(model) and not np.isfinite(ends(model)).all():
            return Verdict(False, "a linear term draws the number beyond all bounds")
        return YES

    def forecast(self, model: PrivateRegression, options: Options) -> Forecast:
        options = replace(options, delta=0.0)
        if not by_rank(model):
            scale = mean_sensitivity(model) / options.epsilon
            return excess_forecast(
                model,
                options,
                predicted=predicted_of_mean(model, scale),
                work="one pass over the rows",
                noise={"kind": "laplace", "scale": scale},
                caveats=_caveats(model),
                event=Cost.laplace(options.epsilon),
            )
        grid, scale = grid_of(model, options.epsilon), range_of(model) / options.epsilon
        step = float(grid[1] - grid[0]) if grid.size > 1 else 0.0
        steepest = model.total * np.abs(slopes(model)).max() + np.abs(public_slopes(model, grid)).max()
        nearest = float(steepest) * (step + _centres(model)[1])
        rank = permute_and_flip_error(grid.size, range_of(model), options.epsilon, options.beta)
        return excess_forecast(
            model,
            options,
            predicted=predicted_of_rank(model, scale) + model.scale * nearest,
            at_most=model.scale * (rank * float(grid[-1] - grid[0]) + nearest) if model.size == 1 else None,
            work=f"one pass over the rows and a choice among {grid.size:,} points",
            noise={"kind": "selection", "candidates": grid.size, "range": range_of(model)},
            caveats=_caveats(model),
        )

    def run(
        self, model: PrivateRegression, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Outcome:
        progress("reading the labels", 0.0)
        if by_rank(model):
            grid = grid_of(model, options.epsilon)
            chosen = permute_and_flip(scores_of(model, grid), range_of(model), epsilon=options.epsilon, source=noise)
            constants = grid[[chosen], None]
        else:
            scale = mean_sensitivity(model) / options.epsilon
            noisy = noise.laplace(model.read_table().map_reduce(label_sums), scale)
            constants = constants_of(model, np.atleast_2d(noisy) / model.total, scale)
        progress("reading the labels", 1.0)
        return Outcome("optimal", model.domain.project(points_of(model, constants)[0]), None, None)


# ------------------------------------------------------------------ constants and their points
def by_rank(model: PrivateRegression) -> bool:
    """Whether the mean label does not tell the best constant: derivatives do, which are bounded."""
    name, clip = model.loss.name, model.loss.clip
    return name in ("absolute", "quantile", "huber") or (name == "squared" and math.isfinite(clip))


def _anchors(model: PrivateRegression) -> np.ndarray:
    """Columns that are the same number, not 0, in all records."""
    return np.flatnonzero(model.row.constant & (model.row.lower != 0))


def _columns(model: PrivateRegression) -> np.ndarray:
    """(K,) the coefficients of the first of them."""
    return np.asarray(_anchors(model)[0] + model.row.size * np.arange(model.scores))


def _caveats(model: PrivateRegression) -> tuple[str, ...]:
    one = model.size == model.scores
    return () if one else ("one prediction for all records: the columns' coefficients are 0, noise would hide them",)


def points_of(model: PrivateRegression, constants: Floats) -> Floats:
    """(B, p) coefficients that predict the constants (B, K), not projected."""
    out = np.zeros((len(constants), model.size))
    out[:, _columns(model)] = constants / model.row.lower[_anchors(model)[0]]
    return out


def public_slopes(model: PrivateRegression, constants: Floats) -> Floats:
    """Derivatives of the smooth penalty by the prediction, in the unit of the sum; of one score."""
    j = _anchors(model)[0]
    c, penalty = float(model.row.lower[j]), model.penalty
    return np.asarray((2 * penalty.ridge[j] * constants / c + penalty.linear[j]) / (c * model.scale))


# ------------------------------------------------------------------ (1) the mean label
def mean_sensitivity(model: PrivateRegression) -> float:
    """How far one record moves the sum of the labels (of K classes: in the 1-norm), with the rounding of two sums."""
    row, (low, high) = model.row, model.row.label
    moved = row.label_bound if row.absent else high - low
    if model.scores > 1:
        moved = 1.0 if row.absent else 2.0
    rounding = 4 * (model.count + 4) * 2.0**-53 * model.total * (row.label_bound + model.offset_bound)
    return model.largest_weight * moved * (1 + 1e-12) + rounding * model.scores


def label_sums(part: Rows) -> PrivateArray:
    """(K,) weighted sums of labels, less the offsets."""
    labels = part.labels if part.offset is None else part.labels - part.offset
    return PrivateArray(np.atleast_1d(labels.sum(axis=0) if part.weights is None else part.weights @ labels))


def constants_of(model: PrivateRegression, means: Floats, scale: float) -> Floats:
    """(B, K) the best constants for mean labels (B, K) with noise of scale ``scale / total``."""
    least = scale / model.total
    if model.scores > 1:
        logs = np.log(np.maximum(means, min(least, 1 / model.scores)))
        return np.asarray(logs - logs.mean(axis=1, keepdims=True))
    (low, high), (smallest, largest) = model.row.label, model.offset_range
    if model.loss.labels == "number":
        low, high = low - largest, high - smallest
        left, right = min(low, 0.0), max(high, 0.0)  # a ridge draws towards 0
    least = min(least / (high - low), 0.5) if "logistic" in model.loss.name else 0.0
    share = np.clip((means - low) / (high - low), least, 1 - least)
    if model.loss.labels != "number":
        right = (1.0 if least == 0 else math.log(1 / least - 1)) / model.row.label_bound
        left = -right
    loss = replace(model.loss, clip=math.inf)
    below, above = np.full(share.shape, left), np.full(share.shape, right)
    for _ in range(50):
        t = (below + above) / 2
        slope = share * loss.derivative(t, np.full_like(t, high)) + (1 - share) * loss.derivative(
            t, np.full_like(t, low)
        )
        falls = model.total * slope + public_slopes(model, t) < 0
        below, above = np.where(falls, t, below), np.where(falls, above, t)
    return np.asarray((below + above) / 2)


@cached
def predicted_of_mean(model: PrivateRegression, scale: float) -> float:
    """Mean excess risk on the synthetic populations with Laplace noise of this scale on the sums."""
    people, generator = populations_of(model), public_generator(3)
    quantiles = (np.arange(_DRAWS) + 0.5) / _DRAWS
    laplace = np.sign(quantiles - 0.5) * -np.log1p(-np.abs(2 * quantiles - 1))
    drawn = np.column_stack([laplace[generator.permutation(_DRAWS)] for _ in range(model.scores)])
    drawn = np.concatenate([np.zeros((1, model.scores)), drawn])
    means = people.mean_labels[None] + drawn[:, None] * (scale / model.total)
    constants = constants_of(model, means.reshape(-1, model.scores), scale)
    w = model.domain.projected(points_of(model, constants))
    excess = people.at(np.tile(np.arange(people.count), len(drawn))).excess(w).reshape(len(drawn), -1).mean(axis=1)
    nothing = _ONE_SIDED if model.loss.name == "hinge" else _NOTHING
    return float(excess[1:].mean()) - nothing * max(float(excess[0]), 0.0)


# ------------------------------------------------------------------ (2) the rank
def slopes(model: PrivateRegression) -> Floats:
    """(2,) least and largest slope of one loss."""
    return model.loss.derivative(np.array([-math.inf, math.inf]), np.zeros(2))


def _centres(model: PrivateRegression) -> tuple[Floats, float]:
    """Public points that kinks are moved to where losses are smooth, and how far these lie from each other."""
    if model.loss.name in ("absolute", "quantile"):
        return np.zeros(0), 0.0
    (low, high), (least, most) = model.row.label, model.offset_range
    centres = np.linspace(low - most, high - least, _FEWEST + 1)
    return centres, float(centres[1] - centres[0])


def range_of(model: PrivateRegression) -> float:
    """2 Delta, with the rounding of two sums of n weights and public slopes."""
    left, right = slopes(model)
    public = float(np.abs(public_slopes(model, ends(model))).max())  # linear in between
    rounding = 2.0**-51 * ((model.count + 2 * _FEWEST) * model.total * (right - left) + public)
    return float(2 * (right - left) * model.largest_weight + 2 * rounding)


@cached
def ends(model: PrivateRegression) -> Floats:
    """(2,) the least and largest prediction that the set allows and a minimiser can have; infinite where nothing does.

    Without a penalty it lies among the kinks, with a ridge between these and 0, unless a linear term is steeper than
    all losses together.
    """
    j = _anchors(model)[0]
    c, linear = float(model.row.lower[j]), float(public_slopes(model, np.zeros(1))[0])
    (low, high), (least, most), (left, right) = model.row.label, model.offset_range, slopes(model) * model.total
    low, high = low - most, high - least
    if model.penalty.ridge[j]:
        low, high = min(low, 0.0), max(high, 0.0)
    if not left <= -linear <= right:
        limit = model.domain.norm(math.inf) * abs(c)
        if math.isinf(limit):
            return np.array([-limit, limit])
        low, high = -limit, limit
    allowed = model.domain.projected(points_of(model, np.array([[low], [high]])))
    found: Floats = np.sort(allowed[:, j] * c)
    return found


@cached
def grid_of(model: PrivateRegression, epsilon: float) -> Floats:
    """(points,) from one of the ``ends`` to the other."""
    most = _FEWEST if _centres(model)[1] else _MOST
    points = int(min(max(model.total / model.largest_weight * epsilon, _FEWEST), most))
    low, high = ends(model)
    return np.unique(np.linspace(low, high, points + 1))


def scores_of(model: PrivateRegression, grid: Floats) -> PrivateArray:
    """(points,) the scores, of all rows."""
    (left, right), public, table = slopes(model), public_slopes(model, grid), model.read_table()
    centres, step = _centres(model)
    if step:
        counts = table.map_reduce(partial(kinks_near, centres=centres))
        below = at_most = public + model.loss.derivative(grid[:, None], centres[None, :]) @ counts
    else:
        counts = table.map_reduce(partial(kinks_below, grid=grid))
        below, at_most = public + left * model.total + (right - left) * np.cumsum(counts, axis=1)[:, :-1]
    falling, rising = np.zeros(grid.size), np.zeros(grid.size)
    rising[1:], falling[:-1] = below[:-1], -at_most[1:]
    return PrivateArray(-np.maximum(np.maximum(rising, falling), 0.0))


def _kinks(part: Rows) -> PrivateArray:
    return part.labels if part.offset is None else PrivateArray(part.labels - part.offset)


def kinks_below(part: Rows, grid: Floats) -> PrivateArray:
    """(2, points + 1) weights of the rows whose kinks lie below each point but not below the one before it; the same
    with kinks at the point counted too."""
    places = (np.searchsorted(grid, _kinks(part), side=side) for side in ("right", "left"))
    return PrivateArray(np.stack([np.bincount(at, part.weights, grid.size + 1).astype(float) for at in places]))


def kinks_near(part: Rows, centres: Floats) -> PrivateArray:
    """(centres,) weights of the rows whose kinks are nearest to each."""
    at = np.rint((_kinks(part) - centres[0]) / (centres[1] - centres[0])).clip(0, centres.size - 1).astype(np.intp)
    return PrivateArray(np.bincount(at, part.weights, centres.size).astype(float))


@cached
def predicted_of_rank(model: PrivateRegression, scale: float) -> float:
    """Mean excess risk of the exponential mechanism on the synthetic populations, with scores over ``scale``."""
    low, high = ends(model)
    grid = np.linspace(low, high, 257)
    people = populations_of(model)
    values = people.constant_values(grid) + model.penalty.values(
        model.domain.projected(points_of(model, grid[:, None]))
    )
    if grid[0] == grid[-1]:
        return 0.0 if model.size == 1 else float((values[:, 0] - people.best).mean())
    steep = np.diff(values, axis=1) / (grid[1] - grid[0]) / model.scale
    middle = (values[:, :-1] + values[:, 1:]) / 2
    # Between two points f is nearly a line: the score of a stretch is minus its slope where no minimiser lies in it.
    scores = -np.abs(steep)
    scores[np.arange(people.count), np.argmin(middle, axis=1)] = 0.0
    weights = np.exp(scores / scale)
    constant = middle.min(axis=1)
    lost = (weights * (middle - constant[:, None])).sum(axis=1) / weights.sum(axis=1)
    explained = 0.0 if model.size == 1 else np.maximum(constant - people.best, 0.0)
    return float((lost + (1 - _NOTHING) * explained).mean())


PRIVATE_CONSTANT = PrivateConstant()
__all__ = ["PRIVATE_CONSTANT", "PrivateConstant"]
