"""Private Frank-Wolfe over listed vertices: TTZ15's Algorithm 2, tightened."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from dpmodel._types import Floats, Integers, PrivateArray
from dpmodel.contract import YES, Mechanism, Options, Outcome, Progress, Serves, Verdict, no_progress
from dpmodel.forecast import Forecast
from dpmodel.memo import cached
from dpmodel.privacy import Cost, NoiseSource, exponential_mechanism, per_step, permute_and_flip, public_generator
from dpmodel.regressions.excess import clip_note, excess_forecast
from dpmodel.regressions.model import PrivateRegression, public_point
from dpmodel.regressions.noisy_gradient import part_gradient
from dpmodel.regressions.populations import Populations, Trials
from dpmodel.regressions.search import simulated_bounds
from dpmodel.regressions.walk import (
    Steps,
    bounds_on_derivatives,
    chosen_steps,
    excess_bound,
    predicted,
    trial_walks,
    walk,
)

_MOST_VERTICES = 2_000_000


@dataclass(frozen=True)
class FrankWolfe(Mechanism[PrivateRegression]):
    """Frank-Wolfe: each step moves towards a vertex of the set that the exponential mechanism chooses.

    Source
        Talwar, Thakurta and Zhang 2015 (TTZ15), Algorithm 2 and Theorem 2.5; exact ranges and zCDP (Cesar and Rogers
        2021) in place of their composition; numbers of steps, sizes and clipping chosen by simulation.
    Privacy
        Step t at the released point w scores vertex v by ``-<v, scale sum_i omega_i s_i a_i + grad penalty(w)>``, with
        a_i the row of record i, omega_i its weight and s_i the derivative of its loss. Derivatives are cut to r_t, the
        least of clip and the loss's derivative bound over the predictions that w can have, which depends on released
        points and bounds only. One record moves the sum by d with ``||d||_inf <= sensitivity(r_t)``
        (``RowBounds.change``: replace-one, twice r_t times the largest entry), so the difference of two scores by at
        most ``R_t = scale * max_d (max_v <v, d> - min_v <v, d>)`` (``Domain.score_range``: 2 C scale sensitivity for
        the l1 ball of radius C), enlarged for rounding. The penalty is public. The vertex is drawn by the exponential
        mechanism with scores divided by R_t / epsilon_t: a bounded range of epsilon_t, which costs ``epsilon_t^2 / 8``
        in zCDP whatever was released before; T of them cost the budget (or epsilon_t is the largest that the exact
        composition of T pure steps allows, if that is more). With delta = 0: permute-and-flip with epsilon / T each.
        The released point is a function of the chosen vertices. T, sizes and clip are public: they are chosen on
        synthetic data drawn from the public bounds; averaging is fixed.
    Utility
        ``predicted``: mean excess on the synthetic data. If derivatives are not clipped below their bound and the loss
        is smooth, a theorem (``excess_bound``): 2 Gamma / (T + 2)-like convergence plus R (ln k + small) / epsilon_t
        for k vertices, with probability 1 - beta. Clipping draws the point to the minimum of the loss with clipped
        derivatives (for the squared loss, Huber's), the same if residuals are symmetric, and needs less noise in
        proportion.
    Cost
        Per step one pass over the rows (two products) and one selection among k vertices.

    ``steps``, ``rate``, ``average``, ``clip`` : as in ``Steps``; None (not for ``average``): chosen by simulation.
    """

    serves: ClassVar[Serves] = Serves(PrivateRegression, reads_blocks=True, weights=True)
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
        """Those given, and the best others by simulation; from public facts only."""
        return _chosen(model, self, options.epsilon, options.delta)

    def selection_epsilon(self, options: Options, steps: int) -> float:
        """Epsilon of each of ``steps`` exponential mechanisms within the budget."""
        return selection_epsilon(options, steps)

    def forecast(self, model: PrivateRegression, options: Options) -> Forecast:
        steps = self.settings(model, options)
        epsilon, vertices = self.selection_epsilon(options, steps.count), model.domain.vertices or 0
        change = score_range(model, public_point(model), min(model.derivative_bound, steps.clip))
        proved = steps.clip >= model.derivative_bound and math.isfinite(model.loss.smoothness)
        return excess_forecast(
            model,
            options,
            predicted=_predicted(model, steps, epsilon),
            at_most=excess_bound(model, steps, change / epsilon, vertices, options.beta) if proved else None,
            work=f"{steps.count} steps of one pass over the rows",
            noise={**steps.to_dict(), "range": change, "selection_epsilon": epsilon, "candidates": vertices},
            caveats=clip_note(model, steps.clip),
            event=Cost.zcdp(steps.count * Cost.exponential(epsilon).rho) if options.delta else None,
        )

    def run(
        self, model: PrivateRegression, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Outcome:
        steps = self.settings(model, options)
        epsilon = self.selection_epsilon(options, steps.count)
        select = permute_and_flip if options.delta == 0 else exponential_mechanism
        rows, domain, bounds = model.read_table(), model.domain, bounds_on_derivatives(model, steps.clip)

        def toward(w: Floats) -> Floats:
            bound = bounds.bound(w)
            total = rows.map_reduce(partial(part_gradient, loss=model.loss, w=w, clip=bound))
            scores = PrivateArray(-domain.scores(model.scale * total + model.penalty.derivative(w)))
            change = score_range(model, w, bound)
            if change == 0:  # no record can move any score
                return domain.vertex(int(np.argmax(scores)))
            return domain.vertex(select(scores, change, epsilon=epsilon, source=noise))

        w = walk(steps.sizes, steps.shares, public_point(model), toward, progress)
        return Outcome("optimal", w, None, None, notes=clip_note(model, steps.clip))


def score_range(model: PrivateRegression, w: Floats, bound: float) -> float:
    """R: how far one record can change the difference of two scores at w, derivatives being at most ``bound``.

    Rounding. The sums over rows are covered by ``gradient_sensitivity``. A score is the sum of at most p products of a
    vertex with the gradient: p + 6 roundings of its size. R compares four scores (two vertices, two neighbors).
    """
    exact = model.scale * model.domain.score_range(model.gradient_sensitivity(math.inf, bound))
    size = model.weight * bound * model.row.norm(math.inf) + float(np.abs(model.penalty.derivative(w)).max(initial=0.0))
    return exact * (1 + 1e-12) + 4 * (model.size + 6) * 2.0**-53 * model.domain.norm(1.0) * size


def selection_epsilon(options: Options, steps: int) -> float:
    """Epsilon of each of ``steps`` exponential mechanisms within the budget."""
    return per_step(options.epsilon, options.delta, steps, "exponential").value


# ----------------------------------------------------------------------------------------- settings and forecasts
@cached
def _chosen(model: PrivateRegression, mechanism: FrankWolfe, epsilon: float, delta: float) -> Steps:
    given = {"steps": mechanism.steps, "rate": mechanism.rate, "average": mechanism.average, "clip": mechanism.clip}
    options, fixed = Options(epsilon, delta), {key: float(each) for key, each in given.items() if each is not None}
    return chosen_steps(model, partial(simulated_excess, model, partial(selection_epsilon, options)), fixed)


def simulated_excess(
    model: PrivateRegression,
    epsilon_of: Callable[[int], float],
    settings: Sequence[Steps],
    among: Populations,
    seeds: Sequence[int],
) -> Floats:
    """(settings, populations) mean excess risk of walks on synthetic data; vertices are drawn by the exponential
    mechanism, also where ``run`` uses permute-and-flip, whose expected score is never lower."""
    trials, domain, count = Trials(among, len(settings), len(seeds)), model.domain, settings[0].count
    epsilon = epsilon_of(count)
    unit = model.scale * domain.score_range(model.gradient_sensitivity(math.inf, 1.0))
    bounds = simulated_bounds([bounds_on_derivatives(model, steps.clip) for steps in settings])
    clip, absent = trials.each([steps.clip for steps in settings]), model.penalty.absent
    draws = iter(np.stack([public_generator(seed).uniform(size=(count, among.count, 1)) for seed in seeds], axis=1))

    def toward(w: Floats) -> Floats:
        gradients = trials.rows.gradients(w, clip)
        scores = domain.scores(-gradients if absent else -gradients - model.penalty.derivative(w))
        scores -= scores.max(axis=1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            scores *= epsilon / (unit * bounds(w))
        scores[np.isnan(scores)] = 0.0  # 0 times infinity: the best score, where no record can move any
        return domain.vertex_rows(places_of(np.exp(scores, out=scores), trials.spread(next(draws))))

    return np.asarray(trials.excess(trial_walks(settings, trials, toward)).mean(axis=1))


def places_of(weights: Floats, drawn: Floats) -> Integers:
    """(B,) the first place in each row of weights (B, k) where its cumulative sum is a share ``drawn`` (B, 1)."""
    total = np.cumsum(weights, axis=1)
    return np.asarray((total < drawn * total[:, -1:]).sum(axis=1))


@cached
def _predicted(model: PrivateRegression, steps: Steps, epsilon: float) -> float:
    return predicted(model, steps, partial(simulated_excess, model, lambda _: epsilon))


FRANK_WOLFE = FrankWolfe()
__all__ = ["FRANK_WOLFE", "FrankWolfe", "score_range", "selection_epsilon"]
