"""The plan of noisy hinge descent and its proved number of missed rows, from public facts.

Setting. Rows a (on the grid, not zero), norm at most r = ``row_norm``; z a unit vector of the cone with ``<a, z> >=
rho`` for all n rows, ``rho = rho0 - sqrt(D) 2^-25``. ``f(y) = sum (tau - <a, y>)_+``, tau <= rho. Step t asks at y_t
(y_1 = 0): m_t rows are active (``<a, y_t> < tau``), g_t is their sum, ``u_t = g_t + n_t`` is released, n_t Gaussian of
standard deviation s in each of D entries, and y_{t+1} is the projection of ``y_t + c u_t / N_t`` onto the cone's part K
in the unit ball, rounded to the grid, with ``N_t = max(sqrt(Q_t), F)``, ``Q_t = ||u_1||^2 + .. + ||u_t||^2``, F = s
sqrt(T D).

1. *Margin.* Active rows have ``<a, z - y_t> >= rho - <a, y_t> = gamma + (tau - <a, y_t>)``, gamma = rho - tau. So
   ``<g_t, z - y_t> >= gamma m_t + f(y_t)``.
2. *Regret.* Projections onto K do not take points away from z, and ``||y_t - z|| <= 2``. With the non-increasing rates
   ``c / N_t``: ``sum <u_t, z - y_t> <= N_T (4 + 4 T e) / (2 c) + (c / 2) sum ||u_t||^2 / N_t`` (e <= sqrt(D) 2^-28 for
   rounding to the grid), and ``sum ||u_t||^2 / N_t <= sum ||u_t||^2 / sqrt(Q_t) <= 2 sqrt(Q_T)``. Together at most
   ``C N_T`` with ``C = (2 / c) (1 + T e) + c``.
3. *Size.* ``sqrt(Q_T) <= sqrt(sum ||g_t||^2) + sqrt(sum ||n_t||^2)`` and ``||g_t|| <= r m_t <= r n``. So ``N_T <= r
   sqrt(n S) + max(sqrt(sum ||n_t||^2), F)`` with ``S = sum m_t``, where ``sum ||n_t||^2 / s^2`` is chi-square with T D
   degrees of freedom.
4. *Direction.* ``sum <n_t, y_t - z>``: given the past, each term is Gaussian with standard deviation 2 s at most. Its
   moment generating function gives ``P(sum > q 2 s sqrt(T)) <= exp(-q^2 / 2)``; filling every step up to variance (2
   s)^2 with independent symmetric noise gives ``<= 2 (1 - Phi(q))``. The smaller q is taken.
5. Together ``sum f(y_t) <= C r sqrt(n S) - gamma S + C max(..) + q 2 s sqrt(T)``, and ``C r sqrt(n S) - gamma S`` is at
   most ``C^2 r^2 n / (4 gamma)`` and, as S <= n T, at most ``C r n sqrt(T)``.
6. f is convex, so the average has f at most the mean, the T-th part of this. A row that the average misses has hinge
   tau at least; one that its finished version (unit norm, moved by ``by`` towards y0 > 0, on the grid) misses by the
   count of ``missed_counts`` has at least ``tau - by - 3 allowance`` (the norm of the average is 1 at most). Dividing
   gives the missed rows of the average; the choice by noisy counts adds ``CountNoise.lost``.

The noise's part of the mean is ``C s sqrt(D / T) + 2 q s / sqrt(T)``: with ``s = D2 sqrt(T / (2 rho_z))`` it does not
depend on T (nor on n), and the rest falls as 1 / T. So many steps are best, as far as run time allows: in practice
about 2 / rho0^2 suffice, and up to the number at which both parts are equal are taken where they are cheap. c = 1 and
tau = rho0 / 2 are set for practice (C is least, 2.83, at sqrt(2)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.stats import chi2, norm

from dpmodel.mechanisms.contract import Request
from dpmodel.mechanisms.linalg.cones import COUNT_SHARE, CountNoise, lift
from dpmodel.mechanisms.linalg.grid_rows import POINT_GRID, allowance, row_norm
from dpmodel.mechanisms.linalg.systems import PrivateInequalities
from dpmodel.mechanisms.spend import Spend

# Steps at most and at least; numbers noised in all; matrix entries read in all: they bound the run time.
_MOST_STEPS, _FEWEST_STEPS, _MOST_NOISE, _MOST_READS = 3200, 25, 100_000, 2e10
# Share of the last two that steps may take which only the theorem asks for.
_CHEAP = 0.2
# T in units of 1 / rho0^2 (what the perceptron needs), and of 1 / rho0 for pure budgets, whose noise grows with T.
_STEPS, _PURE_STEPS, _MOST_PURE = 2.0, 2.0, 100
RATE = 1.0


@dataclass(frozen=True)
class HingePlan:
    """``steps`` T; ``level`` tau; ``kind`` and ``scale`` of the noise on each of D sums; ``lower_bound`` F; ``counts``
    : noise of the choice; ``sensitivity`` : what one record does to the sums, in the norm that fits the noise."""

    steps: int
    level: float
    kind: str
    scale: float
    lower_bound: float
    counts: CountNoise
    sensitivity: float


def plan_hinge(model: PrivateInequalities, request: Request) -> HingePlan:
    """From public facts alone."""
    size, margin = model.cone_dimension, model.margin or 0.0
    spend = Spend.of(request.epsilon, request.delta, gaussian_only=True)
    descent, counts = spend.part(1 - COUNT_SHARE), CountNoise.of(spend.part(COUNT_SHARE))
    pure = spend.rho is None
    sensitivity = sum_sensitivity(model, 1 if pure else 2)
    affordable = min(_MOST_NOISE / size, _MOST_READS / (size * max(model.expected, 1)))
    if descent.rho is None:
        steps = int(min(max(_PURE_STEPS / margin, _FEWEST_STEPS), _MOST_PURE, max(affordable, _FEWEST_STEPS)))
    else:
        C = 2 / RATE + RATE
        noise_part = C * descent.gaussian_sigma(sensitivity) * math.sqrt(size)
        balanced = min(C**2 * model.expected / (2 * margin) / noise_part, _CHEAP * affordable)
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


def proved_missed(model: PrivateInequalities, request: Request, plan: HingePlan) -> float:
    """Rows that the answer misses at most, except with probability ``beta``, for ``model.expected`` rows; inf for pure
    budgets, for which nothing is proved."""
    if plan.kind == "laplace":
        return math.inf
    size, steps, n = model.cone_dimension, plan.steps, model.expected
    share, reach, r = request.beta / 3, allowance(size), row_norm(size)
    gamma = (model.margin or 0.0) - math.sqrt(size) * 2.0**-25 - plan.level
    C = (2 / RATE) * (1 + steps * math.sqrt(size) / POINT_GRID) + RATE
    signal = min(C * r * n * math.sqrt(steps), C**2 * r**2 * n / (4 * gamma) if gamma > 0 else math.inf)
    size_part = C * max(plan.scale * math.sqrt(chi2.isf(share, steps * size)), plan.lower_bound)
    q = min(math.sqrt(2 * math.log(1 / share)), float(norm.isf(share / 2)))
    mean = (signal + size_part + q * 2 * plan.scale * math.sqrt(steps)) / steps
    found = lift(model)
    by = found[1] if found is not None else math.inf
    level = plan.level - by - 3 * reach
    return mean / level + plan.counts.lost(share) if level > 0 else math.inf
