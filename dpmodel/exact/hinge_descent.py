"""Noisy descent on the hinge of private inequalities: a point that satisfies nearly all of them, exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.stats import chi2, norm

from dpmodel._types import Floats
from dpmodel.contract import YES, Mechanism, Options, Progress, Serves, Verdict, no_progress
from dpmodel.exact import cones
from dpmodel.exact.cones import (
    COUNT_SHARE,
    POINT_GRID,
    Chosen,
    CountNoise,
    Draw,
    GridRows,
    allowance,
    forecast_missed,
    grid_point,
    into_ball,
    lift,
    projector,
    public_noise,
    row_norm,
)
from dpmodel.exact.model import Found, PrivateInequalities
from dpmodel.forecast import Forecast
from dpmodel.privacy import NoiseSource
from dpmodel.privacy.accounting import Spend

# Steps of a simulated run: with fewer steps than planned it is worse, so the forecast errs to the safe side.
_SIMULATED_STEPS, _FEW_SEEDS, _MANY_SEEDS = 1600, 11, 21


@dataclass(frozen=True)
class HingeDescent(Mechanism[PrivateInequalities]):
    """Minimise ``f(y) = sum_i (tau - <a_i, y>)_+`` over the public cone's part in the unit ball by noisy subgradients.

    Source
        Noisy gradient descent (Bassily, Smith and Thakurta 2014) with AdaGrad-norm rates (Streeter and McMahan 2010) on
        the homogeneous form of KMMST24, section 6; constants proved beside ``plan_hinge``.
    Privacy
        Private values enter through the D sums ``sum of a_i over <a_i, y_t> < tau`` of each step and k = 3 counts at
        the end. Given the released numbers, which fix y_t, whether row i takes part depends on row i alone, and exactly
        so: rows and points are on grids (``grid_rows``). So the sums move by one row, of 2-norm at most ``1 + 1e-11 +
        sqrt(D) 2^-25``, under add-remove, and by twice that under replace-one (``sum_sensitivity``); the counts by
        sqrt(3) (``CountNoise``). All noise is Gaussian: T steps with 0.9 of rho and the counts with 0.1, adaptively
        composed to mu-GDP exactly (``Spend``). For delta = 0: Laplace noise by 1-norms, epsilon split evenly in the
        same shares. T, tau, the lower bound of the rates and the shares are public facts; rates, projections, averages
        and the choice are functions of released numbers. The number of rows enters nothing else.
    Utility
        If the promised margin holds, the missed rows are at most ``proved_missed`` with probability 1 - beta: a noise
        part ``(3 sqrt(D) + 2 q) D2 / (tau sqrt(2 rho))`` whatever n, plus ``9 n / (4 gamma tau T)``. Simulations on
        planted systems (``synthetic``) are mostly far below; the forecast is the smaller of the two.
    Cost
        T <= 3200 products with the rows and their transpose, T D noisy numbers (at most 100,000).
    """

    serves: ClassVar[Serves] = Serves(PrivateInequalities)
    name: str = "hinge-descent"
    source: str = "Bassily, Smith and Thakurta 2014, on the homogeneous form of KMMST24, section 6"

    def eligible(self, model: PrivateInequalities, options: Options) -> Verdict:
        return cones.cone_eligible(model) or YES

    def forecast(self, model: PrivateInequalities, options: Options) -> Forecast:
        plan = plan_hinge(model, options)
        proved, steps = proved_missed(model, options, plan), min(plan.steps, _SIMULATED_STEPS)
        median, high = forecast_missed(
            model, options, self.name, lambda rows, weight, seed: _simulate(model, plan, rows, weight, seed),
            steps=steps, seeds=_MANY_SEEDS if plan.steps <= _SIMULATED_STEPS // 4 else _FEW_SEEDS,
        )  # fmt: skip
        return cones.cone_forecast(
            model, options, proved, median, high,
            noise={
                "kind": plan.kind, "scale of each sum": plan.scale, "sums": model.cone_dimension, "steps": plan.steps,
                "change by one record": plan.sensitivity, "scale of each count": plan.counts.scale,
                "counts": len(cones.NAMES), "tau": plan.level,
            },
            work=f"{plan.steps} steps: two products with the private rows and noise on {model.cone_dimension} sums",
        )  # fmt: skip

    def run(
        self, model: PrivateInequalities, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Found:
        plan = plan_hinge(model, options)
        rows = GridRows.of(model.lifted(*model.read_rows()))
        draw = noise.laplace if plan.kind == "laplace" else noise.gaussian
        return cones.answer(model, _search(rows, model, plan, draw, progress))


def descend(
    rows: GridRows, model: PrivateInequalities, plan: HingePlan, draw: Draw, progress: Progress
) -> tuple[Floats, ...]:
    """The candidates of T steps, each in the cone; of the rows only what ``draw`` returns is used."""
    onto, y, squares = projector(model.cone), np.zeros(rows.size), 0.0
    iterates = np.empty((plan.steps, rows.size))
    for step in range(plan.steps):
        if step % 64 == 0:
            progress(f"hinge descent, {plan.steps} steps", step / plan.steps)
        iterates[step] = y
        released = draw(rows.sum(rows.below(y, plan.level)), plan.scale)
        squares += float(released @ released)
        y = grid_point(into_ball(onto(y + RATE / max(math.sqrt(squares), plan.least_norm) * released)))
    return cones.candidates(iterates)


def _search(rows: GridRows, model: PrivateInequalities, plan: HingePlan, draw: Draw, progress: Progress) -> Chosen:
    """Steps and choice, on real rows and synthetic ones alike."""
    points = list(map(cones.finisher(model), descend(rows, model, plan, draw, progress)))
    return plan.counts.choose(points, draw(cones.missed_counts(rows, points), plan.counts.scale))


def _simulate(model: PrivateInequalities, plan: HingePlan, rows: Floats, weight: float, seed: int) -> Floats:
    """(D,) the answer on synthetic rows, with synthetic noise: the same budget over fewer steps."""
    steps = min(plan.steps, _SIMULATED_STEPS)
    shrink = steps / plan.steps if plan.kind == "laplace" else math.sqrt(steps / plan.steps)
    shorter = replace(
        plan,
        steps=steps,
        scale=plan.scale * shrink,
        least_norm=plan.least_norm * shrink * math.sqrt(steps / plan.steps),
    )
    draw = public_noise(plan.kind, 1_000_003 + seed)
    return _search(GridRows.of(rows, weight), model, shorter, draw, no_progress).y


HINGE_DESCENT = HingeDescent()


# ------------------------------------------------------------------
# The plan of noisy hinge descent and its proved number of missed rows, from public facts.
#
# Setting. Rows a (on the grid, not zero), norm at most r = ``row_norm``; z a unit vector of the cone with ``<a, z> >=
# rho`` for all n rows, ``rho = rho0 - sqrt(D) 2^-25``. ``f(y) = sum (tau - <a, y>)_+``, tau <= rho. Step t asks at y_t
# (y_1 = 0): m_t rows are active (``<a, y_t> < tau``), g_t is their sum, ``u_t = g_t + n_t`` is released, n_t Gaussian
# of standard deviation s in each of D entries, and y_{t+1} is the projection of ``y_t + c u_t / N_t`` onto the cone's
# part K in the unit ball, rounded to the grid, with ``N_t = max(sqrt(Q_t), F)``, ``Q_t = ||u_1||^2 + .. + ||u_t||^2``,
# F = s sqrt(T D).
#
# 1. *Margin.* Active rows have ``<a, z - y_t> >= rho - <a, y_t> = gamma + (tau - <a, y_t>)``, gamma = rho - tau. So
# ``<g_t, z - y_t> >= gamma m_t + f(y_t)``. 2. *Regret.* Projections onto K do not take points away from z, and ``||y_t
# - z|| <= 2``. With the non-increasing rates ``c / N_t``: ``sum <u_t, z - y_t> <= N_T (4 + 4 T e) / (2 c) + (c / 2) sum
# ||u_t||^2 / N_t`` (e <= sqrt(D) 2^-28 for rounding to the grid), and ``sum ||u_t||^2 / N_t <= sum ||u_t||^2 /
# sqrt(Q_t) <= 2 sqrt(Q_T)``. Together at most ``C N_T`` with ``C = (2 / c) (1 + T e) + c``. 3. *Size.* ``sqrt(Q_T) <=
# sqrt(sum ||g_t||^2) + sqrt(sum ||n_t||^2)`` and ``||g_t|| <= r m_t <= r n``. So ``N_T <= r sqrt(n S) + max(sqrt(sum
# ||n_t||^2), F)`` with ``S = sum m_t``, where ``sum ||n_t||^2 / s^2`` is chi-square with T D degrees of freedom. 4.
# *Direction.* ``sum <n_t, y_t - z>``: given the past, each term is Gaussian with standard deviation 2 s at most. Its
# moment generating function gives ``P(sum > q 2 s sqrt(T)) <= exp(-q^2 / 2)``; filling every step up to variance (2
# s)^2 with independent symmetric noise gives ``<= 2 (1 - Phi(q))``. The smaller q is taken. 5. Together ``sum f(y_t) <=
# C r sqrt(n S) - gamma S + C max(..) + q 2 s sqrt(T)``, and ``C r sqrt(n S) - gamma S`` is at most ``C^2 r^2 n / (4
# gamma)`` and, as S <= n T, at most ``C r n sqrt(T)``. 6. f is convex, so the average has f at most the mean, the T-th
# part of this. A row that the average misses has hinge tau at least; one that its finished version (unit norm, moved by
# ``by`` towards y0 > 0, on the grid) misses by the count of ``missed_counts`` has at least ``tau - by - 3 allowance``
# (the norm of the average is 1 at most). Dividing gives the missed rows of the average; the choice by noisy counts adds
# ``CountNoise.lost``.
#
# The noise's part of the mean is ``C s sqrt(D / T) + 2 q s / sqrt(T)``: with ``s = D2 sqrt(T / (2 rho_z))`` it does not
# depend on T (nor on n), and the rest falls as 1 / T. So many steps are best, as far as run time allows: in practice
# about 2 / rho0^2 suffice, and up to the number at which both parts are equal are taken where they are cheap. c = 1 and
# tau = rho0 / 2 are set for practice (C is least, 2.83, at sqrt(2)).


# Steps at most and at least; numbers noised in all; matrix entries read in all: they bound the run time.
_MOST_STEPS, _FEWEST_STEPS, _MOST_NOISE, _MOST_READS = 3200, 25, 100_000, 2e10
# T in units of 1 / rho0^2 (what the perceptron needs), and of 1 / rho0 for pure budgets, whose noise grows with T.
_STEPS, _PURE_STEPS, _MOST_PURE = 2.0, 2.0, 100
RATE = 1.0


@dataclass(frozen=True)
class HingePlan:
    """``steps`` T; ``level`` tau; ``kind`` and ``scale`` of the noise on each of D sums; ``least_norm`` F; ``counts``
    : noise of the choice; ``sensitivity`` : what one record does to the sums, in the norm that fits the noise."""

    steps: int
    level: float
    kind: str
    scale: float
    least_norm: float
    counts: CountNoise
    sensitivity: float


def plan_hinge(model: PrivateInequalities, options: Options) -> HingePlan:
    """From public facts alone."""
    size, margin = model.cone_dimension, model.margin or 0.0
    spend = Spend.of(options.epsilon, options.delta, gaussian_only=True)
    descent, counts = spend.part(1 - COUNT_SHARE), CountNoise.of(spend.part(COUNT_SHARE))
    pure = spend.rho is None
    sensitivity = sum_sensitivity(model, 1 if pure else 2)
    affordable = min(_MOST_NOISE / size, _MOST_READS / (size * max(model.expected, 1)))
    if descent.rho is None:
        steps = int(min(max(_PURE_STEPS / margin, _FEWEST_STEPS), _MOST_PURE, max(affordable, _FEWEST_STEPS)))
    else:
        C = 2 / RATE + RATE
        noise_part = C * descent.gaussian_sigma(sensitivity) * math.sqrt(size)
        # Steps that only the theorem asks for take a fifth of what is affordable.
        balanced = min(C**2 * model.expected / (2 * margin) / noise_part, 0.2 * affordable)
        wanted = max(min(_STEPS / margin**2, affordable), balanced, _FEWEST_STEPS)
        steps = int(min(wanted, _MOST_STEPS))
    scale = descent.laplace_scale(sensitivity, steps) if pure else descent.gaussian_sigma(sensitivity, steps)
    sigma = scale * math.sqrt(2) if pure else scale
    return HingePlan(
        steps,
        margin / 2,
        "laplace" if pure else "gaussian",
        scale,
        sigma * math.sqrt(steps * size),
        counts,
        sensitivity,
    )


def sum_sensitivity(model: PrivateInequalities, order: int) -> float:
    """Largest 1- or 2-norm sensitivity, by one record, of a sum of the rows that a rule selects row by row.

    One row more or less: the norm of one row on the grid, or zero. One replaced: each of the two rows may be selected
    or not, so the change is a row, minus a row, a difference of two rows, or nothing: twice that norm, reached by
    opposite rows. The 1-norm is at most sqrt(D) times the 2-norm.
    """
    one = row_norm(model.cone_dimension) * (2 if model.neighbors == "replace-one" else 1)
    return one * math.sqrt(model.cone_dimension) if order == 1 else one


def proved_missed(model: PrivateInequalities, options: Options, plan: HingePlan) -> float:
    """Rows that the answer misses at most, except with probability ``beta``, for ``model.expected`` rows; inf for pure
    budgets, for which nothing is proved."""
    if plan.kind == "laplace":
        return math.inf
    size, steps, n = model.cone_dimension, plan.steps, model.expected
    share, rounding, r = options.beta / 3, allowance(size), row_norm(size)
    gamma = (model.margin or 0.0) - math.sqrt(size) * 2.0**-25 - plan.level
    C = (2 / RATE) * (1 + steps * math.sqrt(size) / POINT_GRID) + RATE
    signal = min(C * r * n * math.sqrt(steps), C**2 * r**2 * n / (4 * gamma) if gamma > 0 else math.inf)
    size_part = C * max(plan.scale * math.sqrt(chi2.isf(share, steps * size)), plan.least_norm)
    q = min(math.sqrt(2 * math.log(1 / share)), float(norm.isf(share / 2)))
    mean = (signal + size_part + q * 2 * plan.scale * math.sqrt(steps)) / steps
    found = lift(model)
    by = found[1] if found is not None else math.inf
    level = plan.level - by - 3 * rounding
    return mean / level + plan.counts.lost(share) if level > 0 else math.inf
