"""What statistics measured once predict: the error on synthetic populations, and a bound that holds for all data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpmodel._types import Floats
from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.compile.regression.domain import Domain, FreeSpace, L1Ball, L2Ball, Simplex
from dpmodel.compile.regression.penalty import Penalty
from dpmodel.mechanisms.regression.sufficient_statistics.layout import Layout
from dpmodel.mechanisms.regression.sufficient_statistics.measure import Spread, Statistics
from dpmodel.mechanisms.regression.sufficient_statistics.solve import SIMPLE, accelerated, solve_normal
from dpmodel.mechanisms.regression.synthetic import SimulatedRisk, simulated_risks
from dpmodel.privacy import public_generator

# Columns of the largest matrices that forecasts make up.
MOST_SIMULATED = 512
_STEPS = 300

Normals = Callable[..., Any]  # standard normal draws of a shape, for simulations


@dataclass(frozen=True)
class Population:
    """Expected sums of one synthetic population: ``gram`` (p, p), ``cross`` (p,) and ``labels`` of all rows
    together."""

    model: PrivateRegression
    risk: SimulatedRisk
    gram: Floats
    cross: Floats
    labels: float


def mean_excess(model: PrivateRegression, solve: Callable[[Population, np.ndarray, float, Normals], Floats]) -> float:
    """Mean excess risk of ``solve(population, columns, noise factor, normal draws)`` over the populations.

    Beyond ``MOST_SIMULATED`` columns a share of them is simulated, with the noise of every entry larger by the root of
    what is left out: spectrum and edge of the noise matrix, the noise's 2-norm and the signal's stay what they were.
    For sets such as the l1 ball, where the noise per coordinate matters, this says too much.
    """
    moving = np.flatnonzero(~model.row.constant)
    draws = 6 if moving.size <= 32 else 3 if moving.size <= 128 else 1
    draws = draws if model.domain.kind in SIMPLE else 1  # others ask a solver for every projection
    normal: Normals = public_generator(11).standard_normal
    found = []
    for risk in simulated_risks(model):
        columns, factor = _chosen(model, risk, moving)
        small, reduced = (model, risk) if factor == 1 else _reduced(model, risk, columns, factor)
        mean, total = reduced.mean, small.total
        cross = reduced.gradient(np.zeros(small.size)) / (-2 * small.scale)
        fixed = np.flatnonzero(small.row.constant & (small.row.lower != 0))
        labels = (
            float(cross[fixed[0]] / small.row.lower[fixed[0]]) if fixed.size else total * float(mean @ reduced.truth)
        )
        population = Population(
            small, reduced, total * (reduced.covariance_matrix() + np.outer(mean, mean)), cross, labels
        )
        found += [reduced.excess(solve(population, columns, factor, normal)) for _ in range(draws)]
    return max(float(np.mean(found)), 0.0)


def _chosen(model: PrivateRegression, risk: SimulatedRisk, moving: np.ndarray) -> tuple[np.ndarray, float]:
    """(p',) columns to simulate and the factor on the noise: all, or the support and others spread evenly."""
    if moving.size <= MOST_SIMULATED:
        return np.arange(model.size), 1.0
    support = moving[np.flatnonzero(risk.truth[moving])]
    kept = support if support.size <= MOST_SIMULATED // 2 else support[:0]
    others = np.setdiff1d(moving, kept)
    spread = others[np.linspace(0, others.size - 1, MOST_SIMULATED - kept.size).astype(int)]
    columns = np.union1d(np.union1d(kept, spread), np.flatnonzero(model.row.constant))
    return columns, math.sqrt(moving.size / MOST_SIMULATED)


def _reduced(
    model: PrivateRegression, risk: SimulatedRisk, columns: np.ndarray, factor: float
) -> tuple[PrivateRegression, SimulatedRisk]:
    row, penalty = model.row, model.penalty
    small = replace(
        model,
        row=replace(row, lower=row.lower[columns], upper=row.upper[columns], constant=row.constant[columns]),
        penalty=Penalty(penalty.ridge[columns], penalty.l1[columns], penalty.linear[columns], penalty.constant),
        domain=_resized(model.domain, columns.size),
        public=None,
        _memo={},
    )
    part = replace(
        risk,
        model=small,
        mean=risk.mean[columns],
        variance=risk.variance[columns],
        common=risk.common[columns],
        truth=risk.truth[columns],
    )
    signal, left = (float(each.truth @ each.covariance(each.truth)) for each in (risk, part))
    return small, replace(part, truth=part.truth * math.sqrt(signal / left)) if left > 0 else part


def _resized(domain: Domain, size: int) -> Domain:
    if isinstance(domain, L1Ball | L2Ball | Simplex):
        return replace(domain, size=size)
    return FreeSpace(size)


def quick_minimise(model: PrivateRegression, P: Floats, q: Floats) -> Floats:
    """As ``minimise``, to the accuracy that a forecast needs; sets without a projection formula are
    met by one projection of the free solution."""
    domain, penalty = model.domain, model.penalty
    smooth = penalty.smooth or penalty.other is not None
    if domain.kind == "free" and not smooth:
        return accelerated(domain, penalty, P, q, _STEPS, 1e-4)
    free = solve_normal(P + np.diag(penalty.ridge), q - penalty.linear / 2)
    if domain.kind == "free":
        return free
    if domain.kind not in SIMPLE:
        return domain.project(free)
    return accelerated(domain, replace(penalty, l1=np.zeros_like(penalty.l1)), P, q, _STEPS, 1e-4)


def in_units(layout: Layout, population: Population) -> Statistics:
    """The population's sums in the units of a layout."""
    m, width, y, unit = layout.middle, layout.width, layout.label_middle, layout.label_width
    total = population.model.total
    mean = population.risk.mean[layout.moving]
    gram = population.gram[np.ix_(layout.moving, layout.moving)]
    centre = (mean - m) / width
    # sum (x - m)(x - m)' from the uncentred sums
    gram = gram - total * (np.outer(mean, mean) - np.outer(mean - m, mean - m))
    cross = population.cross[layout.moving] - m * population.labels - y * total * (mean - m)
    labels = (population.labels - y * total) / unit
    return Statistics(gram / np.outer(width, width), total * centre, cross / (width * unit), labels, total)


def noised(layout: Layout, s: Statistics, spread: Spread, factor: float, normal: Normals) -> Statistics:
    """Sums with simulated noise; normal also where the release is Laplace, of the same standard deviations."""
    k = layout.count
    draw = normal((k, k))
    noise = np.tril(draw, -1) * spread.pair
    noise = noise + noise.T + np.diag(np.diag(draw)) * spread.own
    first = s.first + factor * spread.first * normal(k)
    first = first * min(1.0, s.total / max(float(np.linalg.norm(first)), 1e-300))
    labels = min(max(s.labels + spread.labels * normal(), -s.total), s.total)
    cross = s.cross + factor * spread.cross * normal(k)
    return Statistics(s.gram + factor * noise, first, cross, labels, s.total)


@dataclass(frozen=True)
class Reach:
    """How large (v0, v) can be over the set, in a layout's units: 1-norm and 2-norm of v, size of v0."""

    one: float
    two: float
    base: float


def reach_of(model: PrivateRegression, layout: Layout) -> Reach:
    unit = layout.label_width
    width = float(layout.width.max(initial=0.0)) / unit
    base = np.concatenate([layout.middle, layout.constant])
    pairs = ((math.inf, 1.0), (2.0, 2.0), (1.0, math.inf))
    products = [
        _product(float(np.linalg.norm(base, ord=dual)) if base.size else 0.0, model.domain.norm(order))
        for dual, order in pairs
    ]
    return Reach(
        _product(width, model.domain.norm(1.0)),
        _product(width, model.domain.norm(2.0)),
        (min(products) + abs(layout.label_middle)) / unit,
    )


def shrink_cap(model: PrivateRegression, layout: Layout, spread: Spread) -> float:
    """Most that directions of a bounded set are lifted: ten times the noise there is to balance."""
    two = reach_of(model, layout).two
    if not math.isfinite(two) or two == 0:
        return math.inf
    root = math.sqrt(max(layout.count, 1))
    return 10 * (2 * spread.pair * root + (spread.cross + spread.first) * root / two)


def proved_loss(model: PrivateRegression, layout: Layout, spread: Spread, beta: float) -> float:
    """A bound on the loss in objective that fails with probability at most ``beta``, on any data; inf where unbounded.

    Proof. The program solved differs from the true one at (v0, v) by ``scale label_width^2`` times ``E(v) + v'Bv``,
    E(v) = v'Nv + 2 v0 n1'v - 2 nt'v - 2 n0 v0 with the noise of the four parts and 0 <= B. So the loss is at most twice
    sup |E| plus sup v'Bv. B lifts an eigenvalue of the released matrix by at most the cap plus what brings it to the
    lower bound, and no eigenvalue is further below zero than the 2-norm of the noise in that matrix (Weyl; the true one
    is positive semidefinite): ||N|| + 2 |n1| max(1, |middle / width|) + |n1|^2 / total. For Gaussian noise ||N|| <=
    pair (2 sqrt k + sqrt(2) t), and |n| <= standard deviation (sqrt k + t) for the vectors, each but with probability
    e^(-t^2/2) (Gordon; concentration of Lipschitz functions, the 2-norm being one in Frobenius units); the five events
    share beta. Laplace and entrywise bounds follow from the largest of all draws.
    """
    r = reach_of(model, layout)
    if not (math.isfinite(r.two) and math.isfinite(r.base)):
        return math.inf
    error, off = noise_bounds(model, layout, spread, beta)
    lift = shrink_cap(model, layout, spread) + math.sqrt(2) * spread.pair + off
    return model.scale * layout.label_width**2 * (2 * error + (lift * r.two * r.two if r.two > 0 else 0.0))


def noise_bounds(model: PrivateRegression, layout: Layout, spread: Spread, beta: float) -> tuple[float, float]:
    """Bounds on sup |E| over a bounded set and on the 2-norm of the noise in S, as ``proved_loss`` says."""
    r = reach_of(model, layout)
    k = max(layout.count, 1)
    t = math.sqrt(2 * math.log(10 / beta))
    if layout.pure:
        largest = math.log(2 * layout.entries / beta) / math.sqrt(2)  # in standard deviations
        entry, matrix = spread.own * largest, spread.own * largest * k
        vector = largest * math.sqrt(k)
        single = largest
    else:
        entry = spread.own * math.sqrt(2 * math.log(10 * k * (k + 1) / beta))
        matrix = spread.pair * (2 * math.sqrt(k) + math.sqrt(2) * t)
        vector, single = math.sqrt(k) + t, t
    many = single if layout.pure else math.sqrt(2 * math.log(10 * k / beta))
    first, cross = spread.first * vector, min(spread.cross * vector * r.two, spread.cross * many * r.one)
    quadratic = min(matrix * r.two * r.two, entry * r.one * r.one)
    error = quadratic + 2 * r.base * first * r.two + 2 * cross + 2 * spread.labels * single * r.base
    shift = max(1.0, float(np.linalg.norm(layout.middle / layout.width)) if layout.shifted and layout.count else 1.0)
    return error, matrix + 2 * first * shift + first * first / model.total


def _product(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b
