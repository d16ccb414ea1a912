"""How settings are searched: each is simulated once on the populations that choose, some side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

import numpy as np

from dpmodel._types import Floats
from dpmodel.contract import YES, Verdict
from dpmodel.privacy import public_generator
from dpmodel.regressions.model import PrivateRegression, public_point
from dpmodel.regressions.noisy_gradient import Averaging, Gradient, StepNoise
from dpmodel.regressions.populations import Populations, Trials

S = TypeVar("S")
R = TypeVar("R")

# (B, p) coefficients for every way of averaging, from trials side by side and a noisy gradient.
Run = Callable[[Trials, Gradient], Mapping[Averaging, Floats]]

_TABLE = np.concatenate([[0.0], np.geomspace(1e-3, 1e4, 99)])  # predictions, in units of the labels
# Derivatives without a bound of their own are tried clipped at these shares of their bound at the labels' size.
_CLIPPED_LOSSES = ("squared", "huber", "squared_hinge")
_CLIPS = (1 / 2, 1 / 4, 1 / 8)
MANY = 1000  # columns beyond which less is tried
NOISY_NUMBERS = 150_000  # drawn in one run of a descent: with safe samplers these are seconds
SIDE_BY_SIDE = 500_000  # numbers in the largest arrays of trials side by side
NEGLIGIBLE = 0.003  # of the excess of knowing nothing: less is as good as none


class Compared(Generic[S, R]):
    """Settings by their risk. ``risks`` : of settings that are simulated side by side, at most ``most`` of them."""

    def __init__(self, risks: Callable[[Sequence[S]], Sequence[R]], most: int = 1 << 30) -> None:
        self.risks, self.most, self.seen = risks, most, dict[S, R]()

    def risk(self, one: S) -> R:
        self._simulate([one])
        return self.seen[one]

    def least(self, settings: Sequence[S], rank: Callable[[R], float], tie: float = 0.0) -> S:
        """The first whose rank is within ``tie`` of the least."""
        self._simulate(settings)
        enough = min(rank(self.seen[one]) for one in settings) + tie
        return next(one for one in settings if rank(self.seen[one]) <= enough)

    def _simulate(self, settings: Sequence[S]) -> None:
        new = [one for one in dict.fromkeys(settings) if one not in self.seen]
        for at in range(0, len(new), self.most):
            part = new[at : at + self.most]
            self.seen.update(zip(part, self.risks(part), strict=True))


def moved(best: S, around: Callable[[S], Sequence[S]], least: Callable[[Sequence[S]], S], moves: int) -> S:
    """The least of what is ``around`` the best so far, again and again."""
    for _ in range(moves):
        before, best = best, least([best, *around(best)])
        if best == before:
            break
    return best


def clips(model: PrivateRegression) -> list[float]:
    """Sizes to try cutting derivatives to."""
    label = model.row.label_bound
    if model.loss.name not in _CLIPPED_LOSSES or not 0 < label < math.inf:
        return []
    bound = model.loss.derivative_bound(min(model.prediction_bound, label), label)
    return [share * bound for share in _CLIPS]


def clipped(model: PrivateRegression, clip: float) -> PrivateRegression:
    """The same model under the loss with derivatives cut to ``clip``."""
    if clip >= model.loss.clip:
        return model
    return replace(model, loss=replace(model.loss, clip=clip), _memo={})


def simulated_bounds(noises: Sequence[StepNoise]) -> Callable[[Floats], Floats]:
    """w (rows, p) -> (rows, 1) ``StepNoise.bound``, rows being in equal parts of settings; from a table: as precise as
    simulations are, and fast."""
    label = noises[0].model.row.label_bound
    grid = _TABLE * (max(label, 1.0) if math.isfinite(label) else 1.0)
    fixed = np.array([[math.nan if each.fixed_bound is None else each.fixed_bound] for each in noises])
    kinds: dict[tuple[float, bool], list[int]] = {}  # of the same one the same table
    for k, each in enumerate(noises):
        if each.fixed_bound is None:
            kinds.setdefault((each.model.loss.clip, each.share > 0), []).append(k)
    tables = [(np.array([noises[which[0]].bound_at(z) for z in grid.tolist()]), which) for which in kinds.values()]

    def bounds(w: Floats) -> Floats:
        out = np.repeat(fixed, w.shape[0] // len(noises), axis=1)
        if tables:
            z = noises[0].predictions(w).reshape(out.shape)
            for table, which in tables:
                out[which] = np.interp(z[which], grid, table)
        return out.reshape(-1, 1)

    return bounds


def simulated(
    noises: Sequence[StepNoise], populations: Populations, seeds: Sequence[int], run: Run
) -> dict[Averaging, Floats]:
    """(settings, populations) mean excess risk over the seeds of what ``run`` finds, for every way of averaging.
    ``noises`` : those of settings with the same number of steps."""
    trials, model, metric = Trials(populations, len(noises), len(seeds)), populations.model, noises[0].metric
    laplace = noises[0].order == 1
    sources = [(g.laplace if laplace else g.standard_normal) for g in map(public_generator, seeds)]

    def noise(scale: Floats) -> Floats:
        """(rows, p) noise of these scales (rows, 1)."""
        return scale * trials.spread(np.array([source(size=model.size) for source in sources]))

    clip = trials.each([each.model.loss.clip for each in noises])
    scale = model.scale * trials.each([each.simulated_scale for each in noises])
    middle = model.scale * trials.each([each.middle_scale for each in noises])
    fixed: Floats | float = noise(middle) if middle.any() else 0.0
    bounds = simulated_bounds(noises)

    def gradient(w: Floats) -> Floats:
        return metric.sums(trials.rows.gradients(w, clip)) + (fixed + noise(scale * bounds(w)))

    with np.errstate(over="ignore", invalid="ignore"):
        means = {kind: trials.excess(point).mean(axis=1) for kind, point in run(trials, gradient).items()}
    return {kind: np.where(np.isfinite(value), value, math.inf) for kind, value in means.items()}


def judge_descent(model: PrivateRegression, order: float) -> Verdict:
    """Whether noise can hide a record: rows bounded in the norm of this order, derivatives where descent starts."""
    if not math.isfinite(model.row.norm(order)):
        return Verdict(False, f"rows have no bound on their {order:g}-norm, so no noise hides one of them")
    start = float(model.largest_predictions(public_point(model)[None])[0]) + model.offset_bound
    if not math.isfinite(model.loss.derivative_bound(start, model.row.label_bound)):
        return Verdict(False, "derivatives have no bound: labels need one, or derivatives a clip")
    return YES
