"""Many synthetic populations walked at once: how the private Frank-Wolfe mechanisms choose settings and forecast."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import log_ndtr, ndtr

from dpmodel._types import Floats
from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.mechanisms.regression.descent.search import coarsened, moved
from dpmodel.mechanisms.regression.frank_wolfe.steps import Steps
from dpmodel.mechanisms.regression.populations import Populations
from dpmodel.mechanisms.regression.synthetic import SimulatedRisk, populations_of, side_by_side, simulated_risks
from dpmodel.numerics.public_facts import cached

# What one step of simulated walks does: (gradients of the data part (rows, p), w (rows, p)) -> v (rows, p).
Pick = Callable[[Floats, Floats], Floats]
# A fresh one for these settings, side by side as said; the number is that of the first run, which tells their noise.
Maker = Callable[[Sequence[Steps], "Shape", int], Pick]

MOST_STEPS = 256
_FIRST_STEPS = 16
_SHORT = 64  # walks of fewer steps are simulated several times over, up to so many steps, and try all rates
_NUMBERS = 10_000  # runs times columns: with many columns the noise averages out
_RATES = (0.0, 0.3, 1.0, 3.0)  # 0 stands for sizes 2 / (t + 2)
_CLIPS = (1.0, 1 / 4, 1 / 16, 1 / 64)  # shares of the derivatives' bound
_LOWER_BOUND = 0.1
_HOPELESS = math.log(0.97 + _LOWER_BOUND)
_TIE = 0.01  # settings stay unless others are better by more: less may be luck
_SIDE_BY_SIDE = 500_000  # numbers in the largest arrays of walks side by side
_MATTERS = 0.05  # populations with less to be gained than this share of another's do not choose
# (variance of the columns in that of uniform ones, noise in standard deviations of the signal, its distribution): one
# of two values at the ends of the bounds has 3 times the variance of a uniform one. One tuple for each of two
# populations.
_VARIANTS = (((3.0, 0.3, "normal"), (1.0, 1.0, "skewed")), ((3.0, 1.0, "normal"), (1.0, 0.3, "skewed")))
# Labels at the ends of their bounds, a quarter of them high, where columns have means: clipped derivatives miss those.
_TWO_VALUED = (3.0, 1.0, "ends")


@dataclass(frozen=True)
class Shape:
    """How walks lie side by side: ``settings``, of each so many ``runs`` (by noise), of each all ``populations``."""

    settings: int
    runs: int
    populations: int

    @property
    def rows(self) -> int:
        return self.settings * self.runs * self.populations

    def each(self, values: Sequence[float]) -> Floats:
        """(rows, 1) numbers that differ by settings."""
        return np.repeat(np.array(values, dtype=np.float64), self.runs * self.populations)[:, None]

    def spread(self, drawn: Floats) -> Floats:
        """(rows, k) from (runs, k) or (runs, populations, k): the same for all settings."""
        drawn = drawn if drawn.ndim == 3 else drawn[:, None]
        whole = np.broadcast_to(drawn, (self.settings, self.runs, self.populations, drawn.shape[-1]))
        return whole.reshape(self.rows, -1)


def walked(populations: Populations, settings: Sequence[Steps], maker: Maker, runs: int, first: int = 0) -> Floats:
    """(settings, runs, populations) excess risk of walks of the same number of steps."""
    shape = Shape(len(settings), runs, populations.count)
    rows = populations.at(np.tile(np.arange(populations.count), shape.settings * runs))
    clip, pick = shape.each([steps.clip for steps in settings]), maker(settings, shape, first)
    sizes, shares = (
        np.repeat([getattr(steps, name) for steps in settings], runs * shape.populations, axis=0)[..., None]
        for name in ("sizes", "shares")
    )
    w, out = rows.start, np.zeros_like(rows.mean)
    for t in range(settings[0].count):
        move = pick(rows.gradients(w, clip), w)
        move -= w
        move *= sizes[:, t]
        w = move + w
        if shares[:, t].any():
            out += shares[:, t] * w
    return rows.excess(out).reshape(shape.settings, runs, populations.count)


def predicted(model: PrivateRegression, steps: Steps, maker: Maker) -> float:
    """Mean excess risk over the populations of forecasts.

    Walks of more than ``MOST_STEPS`` steps are cut there; ``maker`` is asked with the settings given, so that the noise
    is that of all of them.
    """
    few, runs = (
        replace(steps, count=min(steps.count, MOST_STEPS)),
        max(1, min(4, MOST_STEPS // steps.count, _NUMBERS // model.size)),
    )
    return float(np.mean(walked(populations_of(model), [few], lambda _, *rest: maker([steps], *rest), runs, 1000)))


def settings_losses(
    model: PrivateRegression, settings: Sequence[Steps], maker: Maker, together: bool = False
) -> Floats:
    """(settings,) how settings with the same number of steps are compared: the excess in shares of what knowing nothing
    costs in the population with most to be gained (at the same strength of signal); of these (plus 0.1) the geometric
    mean over the populations that choose, because a share of 0.03 in place of 0.3 is worth more than 1 in place of 1.2.
    ``together`` : all side by side, whatever memory that takes.
    """
    populations, unit = _choosers(model)
    runs = max(1, min(_SHORT // settings[0].count, 4, _NUMBERS // model.size))
    most = max(1, _SIDE_BY_SIDE // (runs * populations.count * max(model.size, populations.along.size)))
    most = len(settings) if together else most
    parts = [settings[at : at + most] for at in range(0, len(settings), most)]
    shares = np.concatenate([walked(populations, part, maker, runs).mean(axis=1) / unit for part in parts])
    return np.asarray(np.log(np.maximum(shares, 0.0) + _LOWER_BOUND).mean(axis=1))


def chosen_steps(model: PrivateRegression, maker: Maker, kept: dict[str, float], most: int = MOST_STEPS) -> Steps:
    """The settings with the least ``settings_losses``; ``kept`` ones are given.

    One setting moves at a time: T by factors 2, the clip, the rate, and T again. Where nothing is learnt in few steps,
    neither with the least noise nor with short steps, the rest is not searched.
    """
    bound = model.derivative_bound
    seen: dict[Steps, float] = {}

    def least(settings: Sequence[Steps]) -> Steps:
        new = [steps for steps in dict.fromkeys(settings) if steps not in seen]
        if new:
            seen.update(zip(new, settings_losses(model, new, maker).tolist(), strict=True))
        enough = min(seen[steps] for steps in settings) + _TIE
        return next(steps for steps in settings if seen[steps] <= enough)

    clips = [share * bound if share < 1 else math.inf for share in _CLIPS] if math.isfinite(bound) else [math.inf]
    clip = kept.get("clip", clips[min(2, len(clips) - 1)])
    clips = [clip] if "clip" in kept else clips
    start = Steps(int(kept.get("steps", _FIRST_STEPS)), kept.get("rate", 0.0), kept.get("average", 0.5), clip)
    rates = [start.rate] if "rate" in kept else list(_RATES)
    cautious = [
        replace(start, rate=rate, clip=cut)
        for cut in dict.fromkeys((clip, clips[-1]))
        for rate in dict.fromkeys((start.rate, *rates[1:2]))
    ]
    best = least([start, *cautious])
    if seen[best] > _HOPELESS:
        return best
    best, moves = start, "steps" not in kept
    # What clips and rates are good for shows in walks of medium length.
    best = _doubling(best, least, min(most, _SHORT)) if moves else best
    best = least([best, *(replace(best, clip=cut) for cut in clips)])
    best = least([best, *(replace(best, rate=rate) for rate in rates)])
    if not moves:
        return best
    # Long walks have other rates.
    long = [
        replace(best, count=min(2 * _SHORT, most), rate=rate)
        for rate in dict.fromkeys((best.rate, rates[0], rates[-1]))
    ]
    least(long)
    return _doubling(least([best, *long]), least, most)


def _doubling(start: Steps, least: Callable[[Sequence[Steps]], Steps], most: int) -> Steps:
    """Double or halve T while it helps; a walk four times as long may do better where one twice as long does not."""
    best = start
    for factors in ((2.0, 4.0), (0.5,)):
        tried = list(factors)
        while tried:
            other = replace(best, count=min(max(round(best.count * tried.pop(0)), 1), most))
            least([best]), least([other])
            if other != best and least([best, other]) == other:
                best, tried = other, list(factors)
        if best != start:
            break
    return best


@cached
def _choosers(model: PrivateRegression) -> tuple[Populations, Floats]:
    """The populations that choose, those of the forecast with most to be gained at several strengths of the signal, and
    the units (B,) in which their excesses are added up."""
    weakest: dict[bytes, SimulatedRisk] = {}  # of those with the same coefficients: variants make stronger ones
    for risk in simulated_risks(model):
        weak = weakest.setdefault(risk.truth.tobytes(), risk)
        if _size(risk) < _size(weak):
            weakest[risk.truth.tobytes()] = risk
    # Rounding must not decide between those that are alike.
    risks = sorted(weakest.values(), key=lambda risk: -float(f"{risk.nothing:.6g}"))
    most = max(risks[0].nothing, 1e-300)
    members, labels, shares = list[SimulatedRisk](), list[Floats](), list[float]()
    for number, (risk, variants) in enumerate(zip(risks, _VARIANTS, strict=False)):
        if number and risk.nothing < _MATTERS * most:
            continue
        levels = number == 0 and bool(risk.mean.any()) and np.isfinite(model.row.label).all()
        for variance, noise, distribution in (*variants, _TWO_VALUED) if levels else variants:
            if model.loss.labels != "number":
                other = _variant(risk, variance, noise, 0.0)
                known = other.labelled[1]
            else:
                low, high = model.row.label
                part = {"ends": 0.25}.get(distribution, 0.5)
                level = low + part * (high - low) if math.isfinite(high - low) else 0.0
                other = _variant(risk, variance, noise, level)
                known = _labels(other, distribution)
            members.append(other)
            labels.append(known)
            shares.append(risk.nothing / most if number else 1.0)
    found = side_by_side(members, labels)
    return found, np.maximum(found.nothing, 1e-300) / np.array(shares)


def _variant(risk: SimulatedRisk, variance: float, noise: float, level: float) -> SimulatedRisk:
    """The population on a coarser grid, with other columns and noise, and the mean prediction ``level`` if an intercept
    can give it."""
    used, row = _size(risk), risk.model.row
    variance *= risk.room / 3  # from a share of the most that a column can have to one of what it has
    means = risk.mean[~row.constant]
    if math.isfinite(row.l2) and 1.01 * (used + float(means @ means)) >= row.l2**2:
        variance = 1.0  # rows are as long as they may be
    truth = moved(risk.model, risk.truth, level - float(risk.mean @ risk.truth))
    sigma = math.sqrt(variance) * noise * math.sqrt(float(truth @ risk.covariance(truth)))
    return replace(
        coarsened(risk),
        variance=variance * risk.variance,
        common=math.sqrt(variance) * risk.common,
        truth=truth,
        noise=sigma,
    )


def _size(risk: SimulatedRisk) -> float:
    """Sum of the variances of the columns."""
    return float((risk.variance + risk.common**2).sum())


def _labels(risk: SimulatedRisk, distribution: str) -> Floats:
    """(k,) labels whose noise has no correlation with the plane on this grid, so that least squares find the truth."""
    low, high = risk.model.row.label
    star = risk.labelled[0]
    if distribution == "ends":
        noise = np.where(ndtr(risk.coins) * (high - low) < star - low, high, low) - star
    elif distribution == "skewed":
        noise = -log_ndtr(-risk.coins) * risk.noise  # the same quantiles of an exponential distribution
    else:
        noise = risk.coins * risk.noise
    plane = np.column_stack([np.ones(star.size), risk.points])
    noise = noise - plane @ np.linalg.lstsq(plane, noise, rcond=None)[0]
    return np.asarray(star + noise)
