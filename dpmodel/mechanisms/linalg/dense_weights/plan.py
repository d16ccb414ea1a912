"""Plans of dense multiplicative weights over a cone in the unit ball, and the proved number of missed rows.

Setting. n rows a of norm at most r (on the grid, not zero), z a unit vector of the cone with ``<a, z> >= rho`` for all
of them, ``rho = rho0 - sqrt(D) 2^-25``. Violations ``v_i(y) = rho - <a_i, y>`` have a range of 2 r; s
idle rows have violation zero. w_t is the 1/s-dense projection of the lazy measure with log-weights ``(eta / 2 r) sum
v(y_t')`` over n + s rows, ``u_t = sum w_ti a_i``, and y_t maximises ``<u_t + n_t, y>`` over the cone K in the unit
ball.

1. *Oracle.* ``sum w_ti v_i(y_t) = rho w(real rows) - <u_t, y_t>`` and ``<u_t, z> >= rho w(real rows)``. As y_t is best
   for the noisy sum, ``<u_t, z - y_t> <= <n_t, y_t - z> <= max over K of <n_t, y - z>``: a function of n_t with
   Lipschitz constant 2 and mean at most ``E ||n_t|| <= sd sqrt(D)``. The n_t are independent, so the mean over T steps
   is at most ``sd (sqrt(D) + 2 q / sqrt(T))`` with probability ``Phi(q)`` at least (Gaussian concentration).
2. *Regret.* w_t maximises ``eta sum of gains - KL(w, uniform)`` over the 1/s-dense distributions. For w* uniform on any
   s real rows the entropy is ``ln((n + s) / s)``, so the mean over w* of the mean violation is at most that of step 1
   plus ``2 r (ln((n + s) / s) / (eta T) + eta / 8)`` (``mechanisms/lp/dense_weights/mechanism.py``), for every n.
3. The average y has ``mean over w* of v(y)`` at most this error E, for every s rows. If s rows had ``<a, y> < c``,
   some w* would have more than ``rho - c``. So while ``E <= rho - c``, fewer than s rows are missed. c allows for grids
   and the lift (as in ``hinge_bounds``, step 6), and the choice by noisy counts adds ``CountNoise.lost``.

The noise is ``sd = (2 r / s) sqrt(T / (2 rho_z))``: s falls with 1 / rho0 and with sqrt(T), and T grows with 1 /
rho0^2. So the theorem needs about ``sqrt(D ln(n / s)) / rho0^2`` times ``4 / sqrt(rho_z)`` rows. Simulations do with
far fewer, at rates above the theorem's; candidates of both kinds are simulated, and the best is taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from dpmodel.contract import Options
from dpmodel.exact.cones import COUNT_SHARE, POINT_GRID, CountNoise, allowance, lift, row_norm
from dpmodel.exact.model import PrivateInequalities
from dpmodel.mechanisms.lp.noise_once.measurement import ROUNDING
from dpmodel.mechanisms.spend import Spend

# Rows times density, at most, and density at most: rounding of the weights and of their sums stays in ROUNDING.
MOST_TERMS, MOST_DENSITY, MOST_ROWS = 2**39, 2**24, 2**32
# Steps at most; numbers noised, matrix entries read and weights computed in all: they bound the run time.
_MOST_STEPS, _FEWEST_STEPS, _MOST_NOISE, _MOST_READS, _MOST_WEIGHTS = 2000, 25, 100_000, 2e10, 1e9
# What is tried by simulation: shares of the expected rows as densities, rates in units of the theorem's, steps.
_SHARES, _RATES, _STEPS, _PURE_STEPS = (0.05, 0.2, 0.4), (3.0, 10.0), (400,), (25,)


@dataclass(frozen=True)
class DensePlan:
    """``density`` s; ``steps`` T; ``rate`` per unit of violation; ``level`` rho; ``kind`` and ``scale`` of the noise on
    each of D sums; ``counts`` : noise of the choice; ``rows`` : how many rows are read at most, a public policy."""

    density: int
    steps: int
    rate: float
    level: float
    kind: str
    scale: float
    counts: CountNoise
    rows: int


def dense_plan(model: PrivateInequalities, options: Options, density: int, steps: int, rate: float) -> DensePlan:
    """``rate`` in units of the theorem's best one for the expected number of rows."""
    spend = Spend.of(options.epsilon, options.delta, gaussian_only=True)
    part, counts = spend.part(1 - COUNT_SHARE), CountNoise.of(spend.part(COUNT_SHARE))
    size, pure = model.cone_dimension, spend.rho is None
    sensitivity = sum_sensitivity(model, density, 1 if pure else 2)
    scale = part.laplace_scale(sensitivity, steps) if pure else part.gaussian_sigma(sensitivity, steps)
    eta = rate * math.sqrt(8 * _entropy(model, density) / steps)
    margin = (model.margin or 0.0) - math.sqrt(size) * 2.0**-25
    return DensePlan(
        density, steps, eta / (2 * row_norm(size)), margin, "laplace" if pure else "gaussian", scale, counts,
        MOST_TERMS // density,
    )  # fmt: skip


def sum_sensitivity(model: PrivateInequalities, density: int, order: int) -> float:
    """Largest 1- or 2-norm sensitivity, by one record, of the weighted sum of rows: see ``dense_weights``."""
    two = 2 * row_norm(model.cone_dimension) / density * (1 + ROUNDING)
    return two * math.sqrt(model.cone_dimension) if order == 1 else two


def most_steps(model: PrivateInequalities) -> int:
    """What run time allows."""
    n, size = max(model.expected, 1), model.cone_dimension
    allowed = min(_MOST_NOISE / size, _MOST_READS / (n * size), _MOST_WEIGHTS / n, _MOST_STEPS)
    return int(max(allowed, _FEWEST_STEPS))


def proved_missed(model: PrivateInequalities, options: Options, plan: DensePlan) -> float:
    """Rows that the answer misses at most, except with probability ``beta``; inf where nothing is proved."""
    error = _error(model, options, plan)
    found = lift(model)
    slack = 3 * allowance(model.cone_dimension) + (found[1] if found is not None else math.inf)
    if plan.kind == "laplace" or not error <= plan.level - slack:
        return math.inf
    return plan.density - 1 + plan.counts.lost(options.beta / 2)


def _error(model: PrivateInequalities, options: Options, plan: DensePlan) -> float:
    """E of the module's docstring."""
    size, steps, width = model.cone_dimension, plan.steps, 2 * row_norm(model.cone_dimension)
    eta = plan.rate * width
    regret = width * (_entropy(model, plan.density) / (eta * steps) + eta / 8)
    concentration = min(math.sqrt(2 * math.log(2 / options.beta)), float(norm.isf(options.beta / 2)))
    oracle = plan.scale * (math.sqrt(size) + 2 * concentration / math.sqrt(steps))
    return regret + oracle + math.sqrt(size) / POINT_GRID


def candidates(model: PrivateInequalities, options: Options) -> list[DensePlan]:
    """Plans worth simulating: a few for practice, and the one with the least proved density where there is one."""
    most = most_steps(model)
    steps = sorted({min(t, most) for t in (_PURE_STEPS if options.delta == 0 else _STEPS)})
    plans = [
        dense_plan(model, options, _density(model, share), t, rate)
        for t in steps
        for share in _SHARES
        for rate in _RATES
    ]
    proved = _least_proved(model, options, most) if options.delta > 0 else None
    return plans if proved is None else [*plans, proved]


def _least_proved(model: PrivateInequalities, options: Options, most: int) -> DensePlan | None:
    times = np.unique(np.geomspace(_FEWEST_STEPS, most, 30).astype(int))
    for density in np.unique(np.geomspace(1, max(min(model.expected, _most_density(model)), 1), 60).astype(int)):
        plans = [dense_plan(model, options, int(density), int(t), 1.0) for t in times]
        best = min(plans, key=lambda plan: _error(model, options, plan))
        if proved_missed(model, options, best) < math.inf:
            return best
    return None


def _density(model: PrivateInequalities, share: float) -> int:
    return int(min(max(round(share * model.expected), 1), _most_density(model)))


def _most_density(model: PrivateInequalities) -> int:
    """So that four times as many rows as expected are read."""
    return int(min(MOST_DENSITY, max(MOST_TERMS // (4 * max(model.expected, 1)), 1)))


def _entropy(model: PrivateInequalities, density: int) -> float:
    return math.log((max(model.expected, 1) + density) / density)
