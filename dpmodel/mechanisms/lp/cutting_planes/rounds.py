"""The public side of private cutting planes: the rows, how far one record moves them apart, how many rounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import takewhile

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.classify.private_lp import PrivateLP
from dpmodel.compile.affine_map import LinearMap
from dpmodel.compile.footprint import entry_sensitivities, sensitivity_of
from dpmodel.contract import Options
from dpmodel.mechanisms.lp.noise_once.measurement import ROUNDING, Measurement, measurements
from dpmodel.mechanisms.lp.private_rows import public_polyhedron
from dpmodel.numerics.cut_program import CutProgram
from dpmodel.numerics.polyhedron import Polyhedron
from dpmodel.numerics.public_facts import cached
from dpmodel.privacy import Gaussian, Laplace, gaussian_mu, zcdp_rho

# More rounds are not planned: each solves a linear program.
_MOST_ROUNDS = 150
# Synthetic right-hand sides: slack as a share of what the public set allows.
_REHEARSALS = (1.0, 0.25, 0.05, 0.01, 0.001)
_SHARES = np.linspace(0.05, 0.95, 19)


@dataclass(frozen=True)
class Cuts:
    """The private inequalities ``A x <= side + gain * z[number]`` with private numbers z; public facts.

    ``A`` (k x n) CSR; ``side, gain`` (k,), ``number`` (k,) which private number; an equality is two of them.
    ``measurement`` : the numbers z; one record moves each by at most ``step``, and the right-hand sides apart by at
    most ``reach``. ``rows`` (k,) their rows in the standard form.
    """

    A: sp.csr_array
    side: Floats
    gain: Floats
    number: Integers
    rows: Integers
    measurement: Measurement
    step: float
    reach: float

    @property
    def largest_gain(self) -> float:
        return float(np.abs(self.gain).max())


@dataclass(frozen=True)
class Rounds:
    """The public plan.

    ``count`` : rounds, each with a selection of ``selection_epsilon``; 0: measuring all once is better.
    ``distribution`` : noise of a number. ``quantile`` : what no noise of the run exceeds, and ``miss`` : by how much no
    selection misses the most violated row, with probability 1 - beta together. ``left`` : violation left by as many
    exact rounds on synthetic right-hand sides. ``pure`` : epsilon counts, not rho. ``once`` : alpha of measuring
    everything.
    """

    count: int
    distribution: Laplace | Gaussian
    quantile: float
    selection_epsilon: float
    miss: float
    left: float
    pure: bool
    once: float

    def alpha(self, cuts: Cuts) -> float:
        return 2 * self.quantile * cuts.largest_gain + self.miss + self.left


@cached
def cuts_of(model: PrivateLP) -> Cuts:
    """The private inequalities of a model with private right-hand sides only; computed once per problem."""
    form, affine = model.form, model.affine
    m = measurements(model, "scalar")[0]  # one number per row, up to a factor
    rows, gain, which = m.positions, m.recover.data, m.recover.indices
    zero = affine.equalities()
    twice = np.flatnonzero(zero[rows])
    index = np.concatenate([np.arange(rows.size), twice])
    sign = np.concatenate([np.ones(rows.size), -np.ones(twice.size)])
    A = sp.csr_array(sp.diags_array(sign) @ sp.csr_array(form.A0)[rows[index]])
    gain, which = sign * gain[index], which[index].astype(np.int64)
    step = max((sensitivity.linf for sensitivity in m.sensitivity.values()), default=0.0)
    return Cuts(A, sign * form.b0[rows[index]], gain, which, rows[index], m, step, _reach(model, m, gain, which))


def _reach(model: PrivateLP, m: Measurement, gain: Floats, which: Integers) -> float:
    """How far one record moves right-hand sides apart (the mechanism's docstring), rounding included."""
    affine = model.affine
    queries = m.queries.tocsr(affine.theta_size)
    moved = sp.coo_array(sp.diags_array(gain) @ queries[which])
    sides = LinearMap.of(moved.coords[0], moved.coords[1], moved.data, gain.size)
    sensitivities = sensitivity_of(affine, sides).values()
    largest = np.sort(entry_sensitivities(affine, sides))[::-1]
    apart = min(float(largest[:2].sum()), max((sensitivity.l1 for sensitivity in sensitivities), default=0.0))
    if _one_sign(model, sides):
        apart = min(apart, float(largest[0]))
    return apart * (1 + 4 * ROUNDING)


def width_of(model: PrivateLP, cuts: Cuts) -> float:
    """How far any row can be violated in the public set, for any private numbers in their range (nan: no bound)."""
    low, high = public_polyhedron(model).box
    with np.errstate(invalid="ignore"):
        above = cuts.A.maximum(0) @ high - (-cuts.A).maximum(0) @ low
        m = cuts.measurement
        side = cuts.side + np.minimum(cuts.gain * m.lower[cuts.number], cuts.gain * m.upper[cuts.number])
        width = float(np.max(above - side))
    return max(width, 0.0) if math.isfinite(width) else math.nan


def _one_sign(model: PrivateLP, sides: LinearMap) -> bool:
    """Whether one record moves all right-hand sides the same way: by leaving, or because it moves one number only."""
    involved = []
    for block in model.affine.private_blocks:
        columns = (sides.column >= block.offset) & (sides.column < block.offset + block.size)
        if columns.any():
            involved.append((block.parameter, np.unique(sides.column[columns]) - block.offset))
    leaves = all(p.vanishes and (p.entry_range[0][used] >= 0).all() for p, used in involved)
    moves_one = len(involved) == 1 and involved[0][0].unit != "all" and involved[0][0].layout.unit_size == 1
    return (leaves or moves_one) and bool((sides.coefficient > 0).all() or (sides.coefficient < 0).all())


@cached
def plan_of(model: PrivateLP, options: Options) -> Rounds:
    """The number of rounds and the split of the budget, from public facts; computed once per budget."""
    cuts = cuts_of(model)
    m, beta, pure = cuts.measurement, options.beta, options.delta == 0
    gain = cuts.largest_gain
    distribution: Laplace | Gaussian
    if pure:
        distribution = Laplace(m.l1 / options.epsilon)
    else:
        distribution = Gaussian(m.l2 / gaussian_mu(options.epsilon, options.delta))
    quantile = distribution.max_abs_quantile(m.count, beta)
    once = 2 * quantile * gain
    at_once = Rounds(0, distribution, quantile, 0.0, 0.0, 0.0, pure, once)
    most = min(m.count, _MOST_ROUNDS)
    # More rounds cost more: beyond the first that cost too much, none can do better than measuring all.
    splits = (best_split(cuts, options, t, once) for t in range(1, most + 1))
    plans = list(takewhile(lambda plan: plan.alpha(cuts) < once, splits))
    if not plans:
        return at_once
    alone = np.array([plan.alpha(cuts) for plan in plans])
    for left in rehearse(model, cuts, len(plans)):  # nothing is won back in the next
        if not (alone + left < once).any():
            return at_once
    best = int(np.argmin(alone + left))
    return replace(plans[best], left=float(left[best]))


def best_split(cuts: Cuts, options: Options, rounds: int, once: float) -> Rounds:
    """The shares of selections and measurements with the least ``2 q + e``, beta half and half."""
    m, T, beta = cuts.measurement, rounds, options.beta / 2
    pure = options.delta == 0
    if pure:
        selection = (1 - _SHARES) * options.epsilon / T
        scales = min(T * cuts.step, m.l1) / (_SHARES * options.epsilon)
        unit = Laplace(1.0).max_abs_quantile(T, beta)
    else:
        rho = zcdp_rho(options.epsilon, options.delta)
        selection = np.sqrt(8 * (1 - _SHARES) * rho / T)
        scales = min(math.sqrt(T) * cuts.step, m.l2) / np.sqrt(2 * _SHARES * rho)
        unit = Gaussian(1.0).max_abs_quantile(T, beta)
    misses = cuts.reach / selection * math.log(cuts.gain.size * T / beta)
    best = int(np.argmin(2 * scales * unit * cuts.largest_gain + misses))
    scale = float(scales[best])
    distribution: Laplace | Gaussian = Laplace(scale) if pure else Gaussian(scale)
    # A share never spends more by rounding.
    each = float(selection[best]) * (1 - 1e-12)
    return Rounds(T, distribution, scale * unit, each, float(misses[best]) * (1 + 1e-9), 0.0, pure, once)


def rehearse(model: PrivateLP, cuts: Cuts, rounds: int) -> Iterator[Floats]:
    """(rounds,) the least violation left within 1, 2, ... rounds without noise on synthetic right-hand sides: the
    worst, after each of them.

    They are feasible at a public point of the public set; the slack of row i is a share of what the box allows there,
    a fixed sequence spread evenly over (0, 1] times each of ``_REHEARSALS``.
    """
    polytope = public_polyhedron(model)
    centre = _centre(polytope, model.form.c0)
    low, high = polytope.box
    A = sp.csr_array(cuts.A)
    up, down = A.maximum(0), (-A).maximum(0)
    # Columns without bounds say nothing about how large slack could be; there the scale of the noise is taken.
    with np.errstate(invalid="ignore", over="ignore"):
        above, below = np.where(np.isfinite(high), high - centre, 0.0), np.where(np.isfinite(low), centre - low, 0.0)
        room = up @ above + down @ below
    room = np.maximum(np.asarray(room, dtype=np.float64), cuts.step * np.abs(cuts.gain))
    m = cuts.measurement
    spread = np.modf((1 + np.arange(cuts.gain.size)) * 0.6180339887498949)[0]
    paired = np.isin(cuts.rows, cuts.rows[np.bincount(cuts.rows)[cuts.rows] > 1])  # equalities have no slack
    worst = np.zeros(rounds)
    for share in _REHEARSALS:
        side = A @ centre + np.where(paired, 0.0, share * spread * room)
        # One number may stand behind several rows: the largest that it needs, inside its public range.
        needed = (side - cuts.side) / cuts.gain
        z = np.full(m.count, -np.inf)
        flipped = np.where(cuts.gain > 0, needed, -np.inf)
        np.maximum.at(z, cuts.number, flipped)
        only_negative = np.full(m.count, np.inf)
        np.minimum.at(only_negative, cuts.number, np.where(cuts.gain < 0, needed, np.inf))
        z = np.where(np.isfinite(z), z, only_negative).clip(m.lower, m.upper)
        worst = np.maximum(worst, _exact_rounds(model, cuts, cuts.side + cuts.gain * z[cuts.number], rounds))
        yield worst


def _centre(polytope: Polyhedron, cost: Floats) -> Floats:
    """(n,) a point of the public set: the mean of the cheapest vertex, the dearest and one for no cost, where they
    exist."""
    points = [polytope.minimise(direction) for direction in (cost, -cost, np.zeros(polytope.size))]
    return np.asarray(np.mean([x for x in points if x is not None], axis=0))


def _exact_rounds(model: PrivateLP, cuts: Cuts, side: Floats, rounds: int) -> Floats:
    """(rounds,) the least violation seen within 1, 2, ... rounds without noise on public right-hand sides."""
    program = CutProgram(public_polyhedron(model), model.form.c0)
    measured = np.zeros(cuts.measurement.count, dtype=bool)
    least = np.zeros(rounds)
    lowest = math.inf
    for t in range(rounds):
        x = program.solve()
        left = np.where(measured[cuts.number], -np.inf, cuts.A @ x - side)
        row = int(np.argmax(left))
        lowest = min(lowest, max(float(left[row]), program.give, 0.0))
        least[t:] = lowest
        if lowest <= 1e-9 * (1 + abs(float(side[row]))):
            break
        measured[cuts.number[row]] = True
        twins = np.flatnonzero(cuts.number == cuts.number[row])
        add_cuts(program, cuts, twins, side[twins])
    return least


def add_cuts(program: CutProgram, cuts: Cuts, rows: Integers, sides: Floats) -> None:
    """Add the cuts ``rows`` (k,) with right-hand sides ``sides`` (k,)."""
    for i, b in zip(rows, sides, strict=True):
        span = slice(cuts.A.indptr[i], cuts.A.indptr[i + 1])
        program.cut(cuts.A.indices[span], cuts.A.data[span], float(b))
