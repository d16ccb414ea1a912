"""Synthetic regressions drawn from the public bounds, on which mechanisms forecast their error and choose their
settings.

Worst-case bounds choose far too many steps and far too small ones. Drawing data from the public bounds, running the
algorithm on it and keeping the settings that did best is lawful: n, p, bounds, set and budget are all public, so
the choice is a public fact. What it says about other data is a prediction, not a theorem.

Nothing of size n is made: rows are drawn from a distribution with mean ``m`` and covariance ``S``, diagonal or that
plus one common factor, and predictions are known by their distribution (``Populations``). A step costs O(p).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from dpmodel._types import Floats, Integers, PrivateArray
from dpmodel.errors import SpecificationError
from dpmodel.memo import cached
from dpmodel.privacy import PublicGenerator, public_generator
from dpmodel.regressions.features import length
from dpmodel.regressions.losses import sigmoid
from dpmodel.regressions.model import PrivateRegression, public_point, shift_of
from dpmodel.regressions.populations import BALANCE, SIGNAL, ClassPopulations, Populations, class_truths, side_by_side
from dpmodel.regressions.rows import Rows

_MOST_DRAWN = 1e8  # numbers in the rows of a real run
_POINTS, _DRAWN = 1024, 1024  # points of the grid; half of them are drawn, from so many
# How many coefficients carry the signal: few or all.
_SUPPORTS = (10, 10_000_000)
# Where numeric labels lie on average, as a share of their range: settings tuned to one level would miss others.
_LEVELS = (0.35, 0.6, 0.5, 0.4, 0.45)
_SHARE = 1 / 3  # standard deviation of a numeric label's signal, as a share of the label's bound
# Standard deviation of what features do not explain, in standard deviations of the signal: little where columns lie at
# the ends of their bounds with a flat spectrum, much where they are uniform and the spectrum falls like 1/k, as in real
# tables.
_LITTLE, _MUCH = 0.3, 1.0
# Correlation of columns that move together, as age and years of work or a column and its square do: what labels depend
# on is then learnt along directions in which columns hardly vary.
_TIED = 0.95
# Ranges of labels are often declared far wider than labels vary, and then columns explain little of such a range: this
# share of the way from the public point to coefficients that fill it.
_WEAK = 0.15
# Settings are compared on a coarser grid of predictions than forecasts are made on.
_COARSE = 256
# Populations in which there is less than this share of the others' to be gained do not choose.
_MATTERS = 0.05
_MANY = 1000  # columns up to which other labels are tried on
# For Frank-Wolfe, one tuple for each of two populations: (variance of the columns in that of uniform ones, noise in
# standard deviations of the signal, its distribution). One of two values at the ends of the bounds has 3 times the
# variance of a uniform one.
_VARIANTS = (((3.0, 0.3, "normal"), (1.0, 1.0, "skewed")), ((3.0, 1.0, "normal"), (1.0, 0.3, "skewed")))
# Labels at the ends of their bounds, a quarter of them high, where columns have means: clipped derivatives miss those.
_TWO_VALUED = (3.0, 1.0, "ends")


@cached
def populations_of(model: PrivateRegression) -> Populations:
    """Those that forecasts are averaged over, side by side."""
    return side_by_side(each_population(model))


@cached
def each_population(model: PrivateRegression) -> tuple[Populations, ...]:
    """The same one by one; the same at every call."""
    generator = public_generator(0)
    scores = model.scores
    half = generator.standard_normal((_DRAWN, max(3, 2 * scores)))[: _POINTS // 2]
    grid = np.concatenate([half, -half])  # odd moments vanish
    found: list[Populations] = []

    # Columns of short rows exclude each other; uniform ones have a third of their largest square on average.
    short = length(model.row.magnitudes[~model.row.constant]) > math.sqrt(3) * model.row.l2 * (1 + 1e-9)
    for decay, share, tied in ((0.0, _LITTLE, False), (1.0, _MUCH, False), (1.0, _MUCH, True)):
        mean, variance = _row_distribution(model, decay)
        room = 3.0 if decay else 1.0  # of a uniform column, up to one at the ends of its bounds
        for support in _SUPPORTS[: 1 if tied else None]:
            order, moving = generator.permutation(model.row.size), np.flatnonzero(variance > 0)
            chosen = moving[np.argsort(order[moving])[:support]]
            if tied and (chosen.size <= 1 or short):
                continue
            own, common = variance.copy(), np.zeros(variance.size)
            if tied:
                common[chosen] = np.sqrt(_TIED * variance[chosen])
                own[chosen] *= 1 - _TIED
            if scores > 1:
                directions = generator.standard_normal((scores, chosen.size))
                truth, noise = class_truths(model, mean, own, common, chosen, directions), 0.0
                plane, coins = grid[:, : 2 * scores], grid[:, 0]
            else:
                truth = _truth(model, mean, own, common, chosen, order, _LEVELS[len(found)])
                noise = share * math.sqrt(float(own @ truth**2) + float(common @ truth) ** 2)
                plane, coins = grid[:, :2], grid[:, 2]
            each = {"mean": mean, "variance": own, "common": common, "truth": truth, "coins": coins, "noise": noise}
            arrays = {name: np.asarray(value)[None] for name, value in (each | {"tied": tied, "room": room}).items()}
            found.append((Populations if scores == 1 else ClassPopulations)(model=model, grid=plane, **arrays))
    return tuple(found)


def weak_population(model: PrivateRegression) -> Populations:
    """The first of them with numbers that deviate as much and hardly depend on the columns: what noise costs there."""
    one, start = each_population(model)[0], public_point(model)
    explained = one.distribution[1][:, 0] ** 2
    noise = np.sqrt(one.noise**2 + (1 - _WEAK**2) * explained)
    return replace(one, truth=start + _WEAK * (one.truth - start), noise=noise)


# ----------------------------------------------------------------------------------- those that settings are chosen on
@cached
def choosing_populations(model: PrivateRegression) -> tuple[Populations, ...]:
    """The populations that choose, on a coarse grid. For numeric labels the first (flat spectrum, few true
    coefficients) and the last (falling, all) that matter, each also with skewed noise, which tells what clipped
    derivatives cost, and off the middle of the labels' range; where losses have kinks, also with most labels at the end
    of their range, as counts with many zeros are; and the one of columns that move together."""
    everything = each_population(model)
    nothing = populations_of(model).nothing
    matters = nothing >= _MATTERS * nothing.max() if nothing.max() > 0 else np.isfinite(nothing) | True
    useful = [one for one, does in zip(everything, matters, strict=True) if does]
    numeric, out = model.loss.labels == "number", []
    if numeric:
        plain = [one for one in useful if not one.tied[0]] or useful
        useful = [plain[0], *plain[1:][-1:], *(one for one in useful if one.tied[0] and one is not plain[0])]
    for one in useful:
        coarse = coarsened(one)
        out.append(coarse)
        if numeric and not one.tied[0] and model.size <= _MANY:
            # The same quantiles of an exponential distribution, less its mean; labels in the lower half of their range.
            skewed = -log_ndtr(-coarse.coins)
            low, high = model.row.label
            truth = _shifted(coarse, (3 * low + high) / 4)  # a quarter of the way up their range
            out.append(replace(coarse, coins=skewed - skewed.mean(), truth=truth))
            if math.isinf(model.loss.smoothness):
                out.append(_at_the_end(coarse))
    return tuple(out)


@cached
def choosers(model: PrivateRegression) -> Populations:
    """The same side by side; of numeric labels the last one hardly depends on the columns."""
    weak = [coarsened(weak_population(model))] if model.loss.labels == "number" else []
    return side_by_side([*choosing_populations(model), *weak])


def extreme_populations(model: PrivateRegression) -> tuple[Populations, ...]:
    """The first of them with columns at the ends of their bounds, three times the variance, where norms allow it:
    the largest curvature that steps may meet."""
    one = choosing_populations(model)[0]
    second = float((one.mean**2 + 3 * (one.variance + one.common**2))[0, ~model.row.constant].sum())
    wider = replace(one, variance=3 * one.variance, common=math.sqrt(3) * one.common)
    return (wider,) if second <= model.row.l2**2 * (1 + 1e-9) else ()


def coarsened(one: Populations) -> Populations:
    """The same on a coarser grid."""
    half = one.grid.shape[0] // 2
    part = np.r_[0 : _COARSE // 2, half : half + _COARSE // 2]
    return replace(one, grid=one.grid[part], coins=one.coins[:, part])


def _at_the_end(one: Populations) -> Populations:
    """Labels moved down until so many are cut to the lowest that the quantile asked for is one of them. There the loss
    is not flat at its least point, and noise in the coefficients costs much more than elsewhere."""
    model, share = one.model, one.model.loss.parameter if one.model.loss.name == "quantile" else 0.5
    spread = math.hypot(float(one.distribution[1][0, 0]), float(one.noise[0]))
    aim = model.row.label[0] - float(ndtri((1 + share) / 2)) * spread
    return replace(one, truth=_shifted(one, aim - float(one.distribution[0][0, 0])))


def _shifted(one: Populations, by: float) -> Floats:
    """(1, p) its truth with predictions moved, where an intercept can do that."""
    model = one.model
    anchors = np.flatnonzero(model.row.constant & (model.row.lower != 0))
    if not anchors.size or not math.isfinite(by):
        return one.truth
    truth = one.truth[0].copy()
    truth[anchors[0]] += by / model.row.lower[anchors[0]]
    return model.domain.project(truth)[None]


@cached
def walkers(model: PrivateRegression) -> tuple[Populations, Floats]:
    """The populations that choose for Frank-Wolfe, those of the forecast with most to be gained at several strengths of
    the signal, and the units (B,) in which their excesses are added up."""
    weakest: dict[bytes, Populations] = {}  # of those with the same coefficients: variants make stronger ones
    for one in each_population(model):
        weak = weakest.setdefault(one.truth.tobytes(), one)
        if _size(one) < _size(weak):
            weakest[one.truth.tobytes()] = one
    # Rounding must not decide between those that are alike.
    found = sorted(weakest.values(), key=lambda one: -float(f"{one.nothing[0]:.6g}"))
    most = max(float(found[0].nothing[0]), 1e-300)
    members, shares = list[Populations](), list[float]()
    for number, (one, variants) in enumerate(zip(found, _VARIANTS, strict=False)):
        if number and one.nothing[0] < _MATTERS * most:
            continue
        levels = number == 0 and bool(one.mean.any()) and np.isfinite(model.row.label).all()
        for variance, noise, distribution in (*variants, _TWO_VALUED) if levels else variants:
            members.append(_variant(one, variance, noise, distribution))
            shares.append(float(one.nothing[0]) / most if number else 1.0)
    together = side_by_side(members)
    return together, np.maximum(together.nothing, 1e-300) / np.array(shares)


def _variant(one: Populations, variance: float, noise: float, distribution: str) -> Populations:
    """The population on a coarser grid, with other columns and labels, numbers at a mean level if an intercept can give
    it."""
    used, model, numbers = _size(one), one.model, one.model.loss.labels == "number"
    row, (low, high) = model.row, model.row.label
    variance *= float(one.room[0]) / 3  # from a share of the most that a column can have to one of what it has
    means = one.mean[0, ~row.constant]
    if math.isfinite(row.l2) and 1.01 * (used + float(means @ means)) >= row.l2**2:
        variance = 1.0  # rows are as long as they may be
    part = {"ends": 0.25}.get(distribution, 0.5)
    level = low + part * (high - low) if numbers and math.isfinite(high - low) else 0.0
    truth = _shifted(one, level - float(one.distribution[0][0, 0]))
    changed = replace(coarsened(one), truth=truth)
    sigma = math.sqrt(variance) * noise * changed.distribution[1][:, 0]
    root = math.sqrt(variance)
    changed = replace(changed, variance=variance * one.variance, common=root * one.common, noise=sigma)
    return replace(changed, given=_labels(changed, distribution) if numbers else changed.drawn)


def _size(one: Populations) -> float:
    """Sum of the variances of the columns."""
    return float((one.variance + one.common**2).sum())


def _labels(one: Populations, distribution: str) -> Floats:
    """(1, k) labels whose noise has no correlation with the plane on the grid, so that least squares find the truth."""
    low, high = one.model.row.label
    star, coins = one.star[0], one.coins[0]
    if distribution == "ends":
        noise = np.where(ndtr(coins) * (high - low) < star - low, high, low) - star
    elif distribution == "skewed":
        noise = -log_ndtr(-coins) * one.noise[0]  # the same quantiles of an exponential distribution
    else:
        noise = coins * one.noise[0]
    plane = np.column_stack([np.ones(star.size), one.grid])
    noise = noise - plane @ np.linalg.lstsq(plane, noise, rcond=None)[0]
    return np.asarray(star + noise)[None]


# ------------------------------------------------------------------------------------------------- rows for real runs
def synthetic(one: Populations, generator: PublicGenerator) -> PrivateRegression:
    """``one.model`` over n rows and labels drawn from the population and cut to the bounds; public facts are shared."""
    model, row, n = one.model, one.model.row, one.model.count
    X = one.mean + (generator.uniform(size=(n, row.size)) - 0.5) * np.sqrt(12 * one.variance)
    X += one.common * generator.standard_normal((n, 1))
    X = np.clip(X, row.lower, row.upper)
    for order, limit in ((1, row.l1), (2, row.l2), (np.inf, row.linf)):
        size = np.linalg.norm(X[:, ~row.constant], ord=order, axis=1, keepdims=True)
        X[:, ~row.constant] *= np.minimum(1.0, limit / np.maximum(size, 1e-300))
    z = X @ one.truth.reshape(model.scores, -1).T
    if model.scores > 1:
        y = np.eye(model.scores)[np.argmax(z - np.log(-np.log(generator.uniform(size=z.shape))), axis=1)]
    elif model.loss.labels == "number":
        y = np.clip(z[:, 0] + one.noise * generator.standard_normal(n), *row.label)
    else:
        y = np.where(generator.uniform(size=n) < sigmoid(z[:, 0]), 1.0, -1.0 if model.loss.labels == "sign" else 0.0)
    weights = None if model.total == n else np.full(n, model.total / n)
    rows = Rows(((X, 0),), PrivateArray(y), row.size, weights=weights)
    return replace(model, read=lambda: rows)


@dataclass(frozen=True)
class SyntheticRegression(PrivateRegression):
    """A regression over rows drawn from a ``population``."""

    population: Populations | None = None

    def errors(self, outcome: Any) -> Mapping[str, float]:
        """The excess risk over the population, nan without a point."""
        assert self.population is not None
        return {"excess risk": math.nan if outcome.x is None else float(self.population.excess(outcome.x[None])[0])}


def synthetic_of(model: PrivateRegression, seed: int) -> SyntheticRegression:
    """``model`` over rows drawn from one of its populations, which take turns.
    Errors: SpecificationError, for more rows than are drawn."""
    if model.count * model.row.size > _MOST_DRAWN:
        raise SpecificationError(
            f"simulate: {model.count} rows of {model.row.size} columns",
            why=f"rows are drawn in memory, and more than {_MOST_DRAWN:g} numbers are not",
            remedy="a model of fewer records; forecasts are means over the same populations",
        )
    populations = each_population(model)
    one = populations[seed % len(populations)]
    drawn = synthetic(one, public_generator(seed))
    return SyntheticRegression(**{each.name: getattr(drawn, each.name) for each in fields(drawn)}, population=one)


# ------------------------------------------------------------------------------------------ columns and coefficients
def _row_distribution(model: PrivateRegression, decay: float) -> tuple[Floats, Floats]:
    """Mean and variance of the columns: at the ends of their bounds (no decay) or uniform between them, with a
    spectrum that falls like k^-decay; where the 2-norm does not allow that, mostly zero."""
    row = model.row
    low, high = np.where(np.isfinite(row.lower), row.lower, -1.0), np.where(np.isfinite(row.upper), row.upper, 1.0)
    mean, variance = (low + high) / 2, (high - low) ** 2 / (4 if decay == 0 else 12)
    moving = ~row.constant
    fall = np.where(moving, np.maximum(np.cumsum(moving), 1.0) ** -decay, 0.0)
    square = mean**2 + variance
    if not math.isfinite(row.l2) or float(square[moving].sum()) <= row.l2**2:
        return mean, variance * fall
    # Rows as short as that are sparse, as one-hot rows are: column k is zero except with probability f_k.
    f = np.minimum(fall * row.l2**2 / float((square * fall)[moving].sum()), 1.0)
    return np.where(moving, mean * f, mean), np.where(moving, square * f - (mean * f) ** 2, 0.0)


def _truth(
    model: PrivateRegression,
    mean: Floats,
    variance: Floats,
    common: Floats,
    chosen: Integers,
    order: Integers,
    level: float,
) -> Floats:
    """Coefficients of equal effect on the ``chosen`` columns, as large as labels (or the set) leave room for, and an
    intercept (or coefficients along the columns' means) that puts numbers at ``level`` of their range on average."""
    v = np.zeros(model.size)
    v[chosen] = np.where(order[chosen] % 2 == 0, 1.0, -1.0)
    if common.any():  # of two signs in turn, so that what they do along the factor cancels
        v[chosen] = np.resize([1.0, -1.0], chosen.size) / np.sqrt(variance[chosen])
    constant = (model.row.constant & (model.row.lower != 0)).any()
    numbers, (low, high) = model.loss.labels == "number", model.row.label
    half = (high - low) / 2 if constant else model.row.label_bound
    wanted = (_SHARE * half if math.isfinite(half) else 1.0) if numbers else SIGNAL
    # Without an intercept the mean of a numeric signal is a part of it.
    part = float(mean @ v) if numbers and not constant else 0.0
    size = math.sqrt(max(float(variance @ v**2) + float(common @ v) ** 2 + part**2, 1e-300))
    v = _inside(model, v * wanted / size)
    aim = BALANCE if not numbers else low + level * (high - low) if math.isfinite(high - low) else 0.0
    if not numbers or constant:
        v = v + shift_of(model, mean) * (aim - float(mean @ v))
    return model.domain.project(v)


def _inside(model: PrivateRegression, v: Floats) -> Floats:
    """v scaled towards 0 into the norms of the set, so that projecting does not change its direction."""
    factor = 1.0
    for order in (1.0, 2.0, math.inf):
        limit, size = model.domain.norm(order), float(np.linalg.norm(v, ord=order))
        if math.isfinite(limit) and size > limit:
            factor = min(factor, limit / size)
    return v * factor
