"""Private Frank-Wolfe over listed vertices: TTZ15's Algorithm 2, tightened."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from dpmodel._types import Floats, Integers, PrivateArray
from dpmodel.contract import YES, Mechanism, Options, Outcome, Progress, Serves, Verdict, no_progress
from dpmodel.forecast import Forecast
from dpmodel.memo import cached
from dpmodel.privacy import NoiseSource, exponential_mechanism, per_step, permute_and_flip, public_generator
from dpmodel.regressions.excess import clip_note, excess_forecast
from dpmodel.regressions.model import PrivateRegression, public_point
from dpmodel.regressions.populations import Trials, simulated_reaches
from dpmodel.regressions.sets import L1Ball
from dpmodel.regressions.walk import (
    Pick,
    Steps,
    chosen_steps,
    excess_bound,
    fixed_reach,
    path_of,
    predicted,
    predictions,
    reach_at,
    reach_of,
    walk,
)

_MOST_VERTICES = 2_000_000
_SHORT = 500  # weights in a row that are added up one by one
_MANY = 20_000  # coordinates of an l1 ball from which signs are drawn apart


@dataclass(frozen=True)
class FrankWolfe(Mechanism[PrivateRegression]):
    """Walk towards one privately chosen vertex of the set at a time.

    Source
        Talwar, Thakurta and Zhang 2015 (TTZ15), Algorithm 2 and Theorem 2.5; exact ranges and zCDP (Cesar and Rogers
        2021) in place of their composition; numbers of steps, sizes, averaging and clipping from simulation.
    Privacy
        Step t at the released point w scores vertex v by ``-<v, scale sum_i omega_i s_i a_i + grad penalty(w)>`` with
        derivatives ``|s_i| <= r_t``; s_i depends on record i and on released points only and r_t = min(clip, the loss's
        derivative bound over |prediction| <= row.reach(w)) on released points and bounds only. One record moves the sum
        by d with ``||d||_inf <= sensitivity(r_t)`` (``RowBounds.change``: replace-one, twice r_t times the largest
        entry), so scores move apart by at most ``R_t = scale * max_d (max_v <v, d> - min_v <v, d>)``
        (``Domain.score_range``: 2 C scale change for the l1 ball of radius C), enlarged for rounding. The penalty is
        public. The vertex is drawn by the exponential mechanism of scale R_t / epsilon_t: a bounded range of epsilon_t,
        which costs ``epsilon_t^2 / 8`` in zCDP whatever was released before; T of them cost the budget (or epsilon_t is
        the largest that the exact composition of T pure steps allows, if that is more). With delta = 0:
        permute-and-flip with epsilon / T each. The released point is a function of the chosen vertices. T, sizes,
        averaging and clip are public facts: they come from data made up from the public bounds.
    Utility
        ``predicted``: mean excess on the synthetic data. Unless derivatives are clipped below their bound, a theorem
        (``excess_bound``): 2 Gamma / (T + 2)-like convergence plus R (ln k + small) / epsilon_t, with probability 1 -
        beta. Where derivatives are clipped the point is drawn to the minimum of the loss with these derivatives (for
        the squared loss, Huber's), which is the same point if what features do not explain is symmetric, and less noise
        is needed in proportion.
    Cost
        Per step one product X'g, one column (dense) or one product X v (CSR), and one selection among k vertices.

    ``steps``, ``rate``, ``average``, ``clip`` : ``Steps``; None lets the simulation choose.
    """

    serves: ClassVar[Serves] = Serves(PrivateRegression, reads_blocks=True)
    name: str = "frank-wolfe"
    source: str = "TTZ15, Algorithm 2 and Theorem 2.5; tightened"
    steps: int | None = None
    rate: float | None = None
    average: float = 0.5
    clip: float | None = None

    def eligible(self, model: PrivateRegression, options: Options) -> Verdict:
        vertices = model.domain.vertices
        if vertices is None:
            return Verdict(False, f"the vertices of the set ({model.domain.kind}) cannot be listed")
        if vertices > _MOST_VERTICES:
            return Verdict(False, f"the set has more than {_MOST_VERTICES} vertices")
        if not model.penalty.smooth:
            return Verdict(False, "the penalty is not quadratic: its gradient does not exist everywhere")
        if not math.isfinite(model.row.norm(math.inf)):
            return Verdict(False, "nothing bounds the entries of a row: declare bounds on the features")
        if not math.isfinite(min(model.derivative_bound, math.inf if self.clip is None else self.clip)):
            return Verdict(False, "nothing bounds the derivatives of the loss: declare bounds on the labels, or a clip")
        return YES

    def settings(self, model: PrivateRegression, options: Options) -> Steps:
        """Public facts."""
        return _chosen(model, self, options.epsilon, options.delta)

    def selection_epsilon(self, options: Options, steps: int) -> float:
        """Epsilon of each of ``steps`` exponential mechanisms within the budget."""
        return selection_epsilon(options, steps)

    def forecast(self, model: PrivateRegression, options: Options) -> Forecast:
        steps = self.settings(model, options)
        epsilon, vertices = self.selection_epsilon(options, steps.count), model.domain.vertices or 0
        apart = score_range(model, public_point(model), min(model.derivative_bound, steps.clip))
        proved = steps.clip >= model.derivative_bound and math.isfinite(model.loss.smoothness)
        return excess_forecast(
            model,
            options,
            predicted=_predicted(model, steps, epsilon),
            at_most=excess_bound(model, steps, apart / epsilon, vertices, options.beta) if proved else None,
            work=f"{steps.count} steps of one pass over the rows",
            noise={**steps.to_dict(), "range": apart, "selection_epsilon": epsilon, "candidates": vertices},
            caveats=clip_note(model, steps.clip),
        )

    def run(
        self, model: PrivateRegression, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Outcome:
        steps = self.settings(model, options)
        w = private_walk(
            model, steps, self.selection_epsilon(options, steps.count), options.delta == 0, noise, progress
        )
        return Outcome("optimal", w, None, None, notes=clip_note(model, steps.clip))


def private_walk(
    model: PrivateRegression,
    steps: Steps,
    epsilon: float,
    pure: bool,
    source: NoiseSource,
    progress: Progress = no_progress,
) -> Floats:
    """(p,) the released point; reads the rows."""
    start, domain = public_point(model), model.domain
    path = path_of(model.read_table(), start)

    def toward(w: Floats) -> Floats:
        reach = reach_of(model, w, steps.clip)
        derivative = PrivateArray(model.scale * path.sums(model.loss, reach) + model.penalty.derivative(w))
        apart = score_range(model, w, reach)
        if isinstance(domain, L1Ball) and model.size >= _MANY and not pure and apart > 0:
            return domain.vertex(select_signed(PrivateArray(domain.radius * derivative), apart, epsilon, source))
        return domain.vertex(_select(PrivateArray(-domain.scores(derivative)), apart, epsilon, pure, source))

    return walk(steps.sizes, steps.shares, start, toward, path.move, progress)


def _select(scores: PrivateArray, apart: float, epsilon: float, pure: bool, source: NoiseSource) -> int:
    if apart == 0:  # no record can move any score
        return int(np.argmax(scores))
    select = permute_and_flip if pure else exponential_mechanism
    return select(scores, apart, epsilon=epsilon, source=source)


def select_signed(derivatives: PrivateArray, apart: float, epsilon: float, source: NoiseSource) -> int:
    """The exponential mechanism over the scores -g_j (index j) and g_j (index p + j), in half the time.

    Privacy. First j is drawn with weights ``e^(-g_j / s) + e^(g_j / s)``, s = apart / epsilon, then one of its two
    signs with these weights: the pair has the distribution of one exponential mechanism over all 2 p scores, and costs
    as much. ``s ln(2 cosh(g / s)) = |g| + s ln(1 + e^(-2 |g| / s))`` is computed with a few roundings of its size,
    which the allowance in ``score_range`` (p + 6 of them) covers.
    """
    scale, sizes = apart / epsilon, np.abs(derivatives)
    j = exponential_mechanism(
        sizes + scale * np.log1p(np.exp(-2 / scale * sizes)), apart, epsilon=epsilon, source=source
    )
    pair = np.array([-derivatives[j], derivatives[j]])
    return j + derivatives.size * exponential_mechanism(pair, apart, epsilon=epsilon, source=source)


def score_range(model: PrivateRegression, w: Floats, reach: float) -> float:
    """R: how far one record can move the scores at w apart, derivatives being at most ``reach``.

    Rounding. The sums over rows are covered by ``gradient_sensitivity``; a score is the sum of at most p products of a
    vertex with the gradient, p + 6 roundings of its size.
    """
    exact = model.scale * model.domain.score_range(model.gradient_sensitivity(math.inf, reach))
    size = model.weight * reach * model.row.norm(math.inf) + float(np.abs(model.penalty.derivative(w)).max(initial=0.0))
    return exact * (1 + 1e-12) + 4 * (model.size + 6) * 2.0**-53 * model.domain.norm(1.0) * size


def selection_epsilon(options: Options, steps: int) -> float:
    """Epsilon of each of ``steps`` exponential mechanisms within the budget."""
    return per_step(options.epsilon, options.delta, steps, "exponential").value


# ----------------------------------------------------------------------------------------- settings and forecasts
@cached
def _chosen(model: PrivateRegression, mechanism: FrankWolfe, epsilon: float, delta: float) -> Steps:
    given = {"steps": mechanism.steps, "rate": mechanism.rate, "average": mechanism.average, "clip": mechanism.clip}
    options, fixed = Options(epsilon, delta), {key: float(each) for key, each in given.items() if each is not None}

    def maker(settings: Sequence[Steps], trials: Trials, first: int) -> Pick:
        return simulated_pick(model, selection_epsilon(options, settings[0].count), settings, trials, first)

    return chosen_steps(model, maker, fixed)


def simulated_pick(
    model: PrivateRegression, epsilon: float, settings: Sequence[Steps], trials: Trials, first: int
) -> Pick:
    """The choices of vertices on synthetic gradients, by the distribution that ``walk`` uses (the exponential
    mechanism's, which permute-and-flip never loses to)."""
    generators, domain = [public_generator(first + run) for run in range(trials.runs)], model.domain
    unit = model.scale * domain.score_range(model.gradient_sensitivity(math.inf, 1.0))
    reaches = simulated_reaches(
        [fixed_reach(model, steps.clip) for steps in settings],
        [partial(reach_at, model, clip=steps.clip) for steps in settings],
        model.row.label_bound,
        partial(predictions, model),
    )

    absent = model.penalty.absent
    draws = iter(
        np.stack([g.uniform(size=(settings[0].count, trials.populations.count, 1)) for g in generators], axis=1)
    )

    def pick(gradients: Floats, w: Floats) -> Floats:
        scores = domain.scores(-gradients if absent else -gradients - model.penalty.derivative(w))
        scores -= scores.max(axis=1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            scores *= epsilon / (unit * reaches(w))
        scores[np.isnan(scores)] = 0.0  # 0 times infinity: the largest, where nothing can move scores
        return domain.vertex_rows(places_of(np.exp(scores, out=scores), trials.spread(next(draws))))

    return pick


def places_of(weights: Floats, drawn: Floats) -> Integers:
    """(B,) the place in each row of weights (B, k) where their sum from the left comes to a share ``drawn`` (B, 1) of
    it: first among stretches of a row, then within one, which leaves most partial sums out."""
    count, size = weights.shape
    if size <= _SHORT:
        total = np.cumsum(weights, axis=1)
        return np.asarray((total < drawn * total[:, -1:]).sum(axis=1))
    length = math.isqrt(size)
    sums = np.cumsum(np.add.reduceat(weights, np.arange(0, size, length), axis=1), axis=1)
    aim = drawn * sums[:, -1:]
    stretch = np.minimum((sums < aim).sum(axis=1), sums.shape[1] - 1)
    rows = np.arange(count)
    before = np.where(stretch > 0, sums[rows, stretch - 1], 0.0)
    within = np.minimum(stretch[:, None] * length + np.arange(length), size - 1)
    total = before[:, None] + np.cumsum(weights[rows[:, None], within], axis=1)
    place = stretch * length + (total < aim).sum(axis=1)
    return np.asarray(np.minimum(place, np.minimum((stretch + 1) * length, size) - 1))


@cached
def _predicted(model: PrivateRegression, steps: Steps, epsilon: float) -> float:
    return predicted(model, steps, lambda settings, *rest: simulated_pick(model, epsilon, settings, *rest))


FRANK_WOLFE = FrankWolfe()
__all__ = ["FRANK_WOLFE", "FrankWolfe", "private_walk", "score_range", "selection_epsilon"]
