"""Many synthetic populations walked at once: how the private Frank-Wolfe mechanisms choose settings and forecast."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import log_ndtr, ndtr

from dpmodel._types import Floats
from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.mechanisms.regression.descent.search import coarsened, moved
from dpmodel.mechanisms.regression.frank_wolfe.steps import Steps, reach_of, walk
from dpmodel.mechanisms.regression.public_point import public_point
from dpmodel.mechanisms.regression.synthetic import SimulatedRisk, simulated_risks
from dpmodel.numerics.public_facts import cached

# What one step of a simulated walk does: (gradient of the data part (p,), w (p,), reach of derivatives) -> v (p,).
Pick = Callable[[Floats, Floats, float], Floats]
# A fresh one for these settings; the number tells runs (and their noise) apart.
Maker = Callable[[Steps, int], Pick]

MOST_STEPS = 256
_FIRST_STEPS = 16
_SHORT = 64  # walks of fewer steps are simulated several times over, up to so many steps, and try all rates
_RATES = (0.0, 0.3, 1.0, 3.0)  # 0 stands for sizes 2 / (t + 2)
_CLIPS = (1.0, 1 / 4, 1 / 16, 1 / 64)  # shares of the derivatives' bound
_LOWER_BOUND = 0.1
_MATTERS = 0.05  # populations with less to be gained than this share of another's do not choose
# (variance of the columns in that of uniform ones, noise in standard deviations of the signal, its distribution): one
# of two values at the ends of the bounds has 3 times the variance of a uniform one. One tuple for each of two
# populations.
_VARIANTS = (((3.0, 0.3, "normal"), (1.0, 1.0, "skewed")), ((3.0, 1.0, "normal"), (1.0, 0.3, "skewed")))
# Labels at the ends of their bounds, a quarter of them high, where columns have means: clipped derivatives miss those.
_TWO_VALUED = (3.0, 1.0, "ends")


@dataclass(frozen=True)
class Populations:
    """Populations side by side. ``risks`` : B of them, of one model; ``across`` : (B, k) the second coordinate of the
    plane's points, the first being ``along``; ``labels`` : (B, k); ``mean``, ``variance``, ``common``, ``truth`` : (B,
    p), as in ``SimulatedRisk``; ``distribution`` : (B, 2) mean and standard deviation of the true coefficients'
    predictions."""

    model: PrivateRegression
    mean: Floats
    variance: Floats
    common: Floats
    truth: Floats
    along: Floats
    across: Floats
    labels: Floats
    distribution: Floats

    @staticmethod
    def of(risks: Sequence[SimulatedRisk], labels: Sequence[Floats] | None = None) -> Populations:
        names = ("mean", "variance", "common", "truth")
        mean, variance, common, truth = (np.stack([getattr(risk, name) for risk in risks]) for name in names)
        own = np.array([risk.truth @ risk.covariance(risk.truth) for risk in risks])
        distribution = np.stack([(mean * truth).sum(axis=1), np.sqrt(np.maximum(own, 1e-300))], axis=1)
        points = np.stack([risk.points for risk in risks])
        given = np.stack([risk.labelled[1] for risk in risks] if labels is None else labels)
        return Populations(
            risks[0].model, mean, variance, common, truth, points[:, :, 0], points[:, :, 1], given, distribution
        )

    def _covariance(self, w: Floats) -> Floats:
        """(B, p) covariance of the columns with the predictions of w (B, p)."""
        out: Floats = self.variance * w + self.common * (self.common * w).sum(axis=1, keepdims=True)
        return out

    def predictions(self, w: Floats) -> tuple[Floats, Floats, Floats]:
        """(B, k) predictions of w (B, p) on the points, and their covariance with each coordinate, (B, 1) twice."""
        moved = self._covariance(w)
        along = (moved * self.truth).sum(axis=1) / self.distribution[:, 1]
        own = (moved * w).sum(axis=1)
        across = np.sqrt(np.maximum(own - along * along, 0.0))
        z = (self.mean * w).sum(axis=1)[:, None] + along[:, None] * self.along + across[:, None] * self.across
        return z, along[:, None], across[:, None]

    def gradients(self, w: Floats, clip: float) -> Floats:
        """(B, p) gradients of the data part, derivatives clipped.

        A row is ``m + S^(1/2) x``, x standard normal. With the plane's orthonormal coordinates ``u = <S^(1/2) v, x> /
        |S^(1/2) v|`` (v the truth) and t, that of ``S^(1/2) (w - (c / d) v)`` (c, d as ``along`` and ``distribution``),
        ``E[s a] = m E[s] + S v E[s u] / d + S (w - (c / d) v) E[s t] / across``: s depends on u and t alone.
        """
        z, along, across = self.predictions(w)
        derivatives = np.clip(self.model.loss.derivative(z, self.labels), -clip, clip)
        level = derivatives.mean(axis=1, keepdims=True)
        first = (derivatives * self.along).mean(axis=1, keepdims=True) / self.distribution[:, 1:]
        second = (derivatives * self.across).mean(axis=1, keepdims=True)
        second = np.divide(second, across, out=np.zeros_like(second), where=across > 1e-9 * np.abs(along) + 1e-12)
        rest = w - (along / self.distribution[:, 1:]) * self.truth
        out: Floats = self.model.weight * (self.mean * level + self._covariance(first * self.truth + second * rest))
        return out

    def values(self, w: Floats) -> Floats:
        """(B,) objective values of w (B, p)."""
        loss = self.model.loss.value(self.predictions(w)[0], self.labels).mean(axis=1)
        out: Floats = self.model.weight * loss + np.array([self.model.penalty.value(row) for row in w])
        return out

    def excess(self, w: Floats) -> Floats:
        """(B,) values above the least along the ray of the true coefficients."""
        return self.values(w) - self._best

    @cached_property
    def _best(self) -> Floats:
        project = self.model.domain.project
        ray = (np.stack([project(t * v) for v in self.truth]) for t in (1.0, *np.geomspace(0.01, 10, 41)))
        return np.asarray(np.min([self.values(w) for w in ray], axis=0))

    @property
    def nothing(self) -> Floats:
        """(B,) what the best point that needs no data lacks."""
        return self.excess(self._start)

    def walk(self, steps: Steps, picks: Sequence[Pick]) -> Floats:
        """(B, p) the points released."""

        def toward(w: Floats) -> Floats:
            each = zip(w, self.gradients(w, steps.clip), picks, strict=True)
            return np.array(
                [pick(derivative, row, reach_of(self.model, row, steps.clip)) for row, derivative, pick in each]
            )

        return walk(steps, self._start, toward)

    @property
    def _start(self) -> Floats:
        return np.tile(public_point(self.model), (self.mean.shape[0], 1))


def predicted(model: PrivateRegression, steps: Steps, maker: Maker, runs: int = 2) -> float:
    """Mean excess risk over the populations of forecasts.

    Walks of more than ``MOST_STEPS`` steps are cut there; ``maker`` is asked with the settings given, so that the noise
    is that of all of them.
    """
    risks = simulated_risks(model)
    populations, found, walked = Populations.of(risks), [], replace(steps, count=min(steps.count, MOST_STEPS))
    for run in range(runs):
        w = populations.walk(walked, [maker(steps, 1000 * (run + 1) + number) for number in range(len(risks))])
        found.append([risk.excess(row) for risk, row in zip(risks, w, strict=True)])
    return float(np.mean(found))


def settings_loss(model: PrivateRegression, steps: Steps, maker: Maker) -> float:
    """How settings are compared: the excess in shares of what knowing nothing costs in the population with most to be
    gained (at the same strength of signal); of these (plus 0.1) the geometric mean over the populations that choose,
    because a share of 0.03 in place of 0.3 is worth more than 1 in place of 1.2."""
    populations, unit = _choosers(model)
    runs = max(1, min(_SHORT // steps.count, 4))
    numbers = np.arange(runs * unit.size).reshape(runs, -1)
    walks = [populations.walk(steps, [maker(steps, int(number)) for number in row]) for row in numbers]
    shares = np.mean([populations.excess(w) / unit for w in walks], axis=0)
    return float(np.log(np.maximum(shares, 0.0) + _LOWER_BOUND).mean())


def chosen_steps(model: PrivateRegression, maker: Maker, kept: dict[str, float]) -> Steps:
    """The settings with the least ``settings_loss``; ``kept`` ones are given.

    One setting moves at a time: T by factors 2, the clip by factors 4, the rate, and T again.
    """
    bound = model.derivative_bound
    seen: dict[Steps, float] = {}

    def loss(steps: Steps) -> float:
        if steps not in seen:
            seen[steps] = settings_loss(model, steps, maker)
        return seen[steps]

    clips = [share * bound if share < 1 else math.inf for share in _CLIPS]
    clip = kept.get("clip", clips[2] if math.isfinite(bound) else math.inf)
    count = int(kept.get("steps", _FIRST_STEPS))
    best = Steps(count, kept.get("rate", 0.0), kept.get("average", 0.5), clip)
    moves = "steps" not in kept
    best = _doubling(best, loss) if moves else best
    if "clip" not in kept and math.isfinite(bound):
        best = _neighbour(best, clips, loss)
    if "rate" not in kept:
        rates = _RATES if best.count <= _SHORT else (_RATES[0], _RATES[-1])
        best = min((replace(best, rate=rate) for rate in rates), key=loss)
    return _doubling(best, loss) if moves else best


def _doubling(start: Steps, loss: Callable[[Steps], float]) -> Steps:
    """Double or halve T while it helps."""
    best = start
    for factor in (2.0, 0.5):
        while True:
            other = replace(best, count=min(max(round(best.count * factor), 1), MOST_STEPS))
            if other == best or loss(other) >= loss(best):
                break
            best = other
        if best != start:
            break
    return best


def _neighbour(start: Steps, clips: list[float], loss: Callable[[Steps], float]) -> Steps:
    """Move the clip along the list while it helps."""
    best, at = start, clips.index(start.clip)
    for way in (-1, 1):
        while 0 <= at + way < len(clips) and loss(replace(best, clip=clips[at + way])) < loss(best):
            at += way
            best = replace(best, clip=clips[at])
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
    risks = sorted(weakest.values(), key=lambda risk: -risk.nothing)
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
    found = Populations.of(members, labels)
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
