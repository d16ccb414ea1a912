"""How far "safe" moves rows inwards to cover the noise on right-hand sides, with probability 1 - beta for all at once.

Row i holds at every point of the released program where ``e_i <= t_i``. Only one side matters, because noise that makes
a row harder than it is violates nothing. ``e = R N`` with the public matrix R and independent symmetric draws N.

By a union bound. One draw that reaches rows with one sign is one event ``{draw > z}``; where rows combine Gaussian
draws, each row is one. Event k gets risk ``beta s_k`` with shares s_k that add up to one, and the quantile z_k at that
risk, times the row's gain g_i, is t_i.

The shares. Half is equal. Half goes by ``y_i g_i``, the multipliers of the program with all private numbers at the
middle of their declared ranges: at ``risk_k`` in proportion to that the first-order cost ``sum y_i t_i`` is least
(``t_i`` falls as ``g_i ln(1 / risk_k)``). They are public, so the bound holds as it stands. Shares chosen after the
noise, from what rows cost in the released program, would not do: whichever row is given the whole risk can be the one
whose draw is large, and a bound that holds for all choices at once is the equal split with k-fold risk.

Rows that combine the same draws (running sums, totals of totals) miss together, and a union bound counts that as often
as there are rows. There ``t_i = q u_i`` for a public shape u, the union bound's t, with q a bound on the
(1 - beta)-quantile of ``Q = max_i e_i / u_i`` under the law of the noise, which is public. It is simulated: of M
draws of Q, q is the one in place k (counted from the least), with k the least whole number for which
``P(Bin(M, 1 - beta') >= k) <= gamma``, gamma = beta / 1000 and beta' = beta - gamma. Let q* be the least number with
``P(Q <= q*) >= 1 - beta'``. If q < q*, then k of the M draws at least lie below q*, each of which does so with
probability at most 1 - beta'; so this happens with probability gamma at most. Else ``P(Q > q) <= beta'``. Together,
over the simulation and the noise, some row is not covered with probability at most ``gamma + beta' = beta``. That holds
for any law of N and any shape, so also for sums of Laplace draws, whose union bound is their sum's largest value.
Where released numbers are clipped into a declared range, errors have a mean, and nothing is simulated.

The one of the two that costs less is taken, ``sum y_i t_i`` (or the sum of ``t_i / g_i``, where y is not known).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.numerics.cone_program import solve_cone_program
from dpmodel.privacy import Gaussian, Truncated, public_generator
from dpmodel.programs.margins import contents, place_of
from dpmodel.programs.model import Program
from dpmodel.programs.noise_design import Distribution, NoisyPart
from dpmodel.programs.public import middle_cost, middle_program

# Draws beyond the quantile that a simulation looks for, and multiplications that it may take; with fewer than the
# least, the margin would cost more than the simulation wins.
_BEYOND, _LEAST_BEYOND, _WORK, _BLOCK = 1000, 100, 2e8, 2_000_000


def inwards(model: Program, part: NoisyPart) -> Floats:
    """(h,) t of the module's docstring for the entries of b; the two-sided ``reach`` where rows lie in other cones than
    inequalities, or the program may have been chosen after the noise."""
    law, m = part.distribution, part.measurement
    if law is None or part.draws or not model.affine.inequalities()[m.positions].all():
        return part.reach
    gain, event = m.gain(2), np.arange(m.recover.shape[0])
    if m.one_each:
        event = np.unique(2 * m.recover.indices + (m.recover.data > 0), return_inverse=True)[1]
    risks = part.beta * _shares(model, m.positions, event, gain)
    alone = m.one_each or isinstance(law, Gaussian)
    more = {"half_width": law.half_width / law.scale} if isinstance(law, Truncated) else {}
    plain: Distribution = replace(law, scale=1.0, **more)
    shape = plain if alone else Gaussian(1.0)  # sums of Laplace draws get the shape of Gaussian ones
    # Symmetric noise passes one end with half the probability of passing either; beyond one half that end is 0.
    ends = np.array([shape.max_abs_quantile(1, 2 * risk) if 2 * risk < 1 else 0.0 for risk in risks])
    units = gain * ends[event]
    union: Floats = units * law.scale if alone else part.reach
    moved = part.clip and bool((np.isfinite(m.lower) | np.isfinite(m.upper)).any())
    if m.one_each or moved or not units.all():
        return union
    key = "joint quantile", repr(plain), part.beta, contents(m.recover), units.tobytes()
    joint = law.scale * units * model.cached(key, lambda: joint_quantile(m.recover, units, plain, part.beta))
    prices = _prices(model, m.positions)
    prices = prices if prices.any() else 1 / gain
    return joint if prices @ joint < prices @ union else union


def joint_quantile(recover: sp.csr_array, units: Floats, law: Distribution, beta: float) -> float:
    """q with ``recover @ N <= q units`` in all rows, except with probability beta (proof: the module's docstring).

    ``recover`` : (h, k); ``units`` : (h,) > 0; N : (k,) independent draws of ``law``. inf where a simulation would be
    too much work.
    """
    draws = int(min(_BEYOND / beta, _WORK / max(recover.nnz, 1)))
    place = place_of(draws, beta)
    if draws * beta < _LEAST_BEYOND or place >= draws:
        return math.inf
    rows = sp.csr_array(sp.diags_array(1 / units) @ recover)
    matrix = rows.toarray() if rows.nnz > rows.shape[0] * rows.shape[1] / 10 else rows
    generator, found = public_generator(0), []
    step = max(_BLOCK // max(rows.shape), 1)
    for start in range(0, draws, step):
        noise = law.sample((rows.shape[1], min(step, draws - start)), generator)
        found.append((matrix @ noise).max(axis=0))
    return float(np.partition(np.concatenate(found), place)[place])


def _shares(model: Program, positions: Integers, event: Integers, gain: Floats) -> Floats:
    """(k,) shares of the risk of the events, which add up to one; public."""
    count = int(event.max(initial=-1)) + 1
    equal = np.full(count, 1 / max(count, 1))
    cost = np.bincount(event, weights=_prices(model, positions) * gain, minlength=count)
    return equal if cost.sum() <= 0 else (equal + cost / cost.sum()) / 2


def _prices(model: Program, positions: Integers) -> Floats:
    """(h,) multipliers of these rows in the program with c and b at the middle of their declared ranges; 0 where one is
    not declared."""
    multipliers = model.cached("multipliers in the middle", lambda: _multipliers(model))
    return np.zeros(positions.size) if multipliers is None else np.abs(multipliers[positions])


def _multipliers(model: Program) -> Floats | None:
    program, c = middle_program(model), middle_cost(model)
    if model.form.matrix.nnz or program is None or c is None:
        return None
    return solve_cone_program(program.with_(c=c), solver=model.public.solver).dual
