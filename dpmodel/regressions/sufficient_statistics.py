"""Least squares from sufficient statistics: one noisy release, and the least point of the released quadratic."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import scipy.linalg

from dpmodel._types import Floats, PrivateArray
from dpmodel.contract import YES, Options, Outcome, Progress, Serves, Verdict
from dpmodel.forecast import Forecast
from dpmodel.marks.measured import Moments
from dpmodel.numerics.nearest_point import accelerated
from dpmodel.privacy import Cost, NoiseSource, public_generator
from dpmodel.privacy.accounting import Spend
from dpmodel.regressions.excess import PureToo, excess_forecast, predicted_by
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.moments import (
    Layout,
    Spread,
    Statistics,
    from_vector,
    layout_of,
    quadratic,
    shrunk,
    summed,
    to_vector,
)
from dpmodel.regressions.penalties import Penalty
from dpmodel.regressions.populations import Populations
from dpmodel.regressions.sets import Domain, FreeSpace, L1Ball, L2Ball, Simplex
from dpmodel.regressions.synthetic import each_population

# Sets whose projection is a formula.
SIMPLE = ("free", "l1", "l2", "linf", "box", "simplex", "product")
# Most steps, and the relative change that ends them, in a release and in forecasts.
_FINE, ROUGH = (5000, 1e-9), (300, 1e-4)


def solvable(model: PrivateRegression) -> bool:
    """Whether ``minimise`` serves this set and penalty."""
    return model.public is not None or _steps_serve(model.domain, model.penalty)


def _steps_serve(domain: Domain, penalty: Penalty) -> bool:
    return penalty.other is None and (domain.kind == "free" or not penalty.l1.any())


def minimise(model: PrivateRegression, P: Floats, q: Floats, accuracy: tuple[int, float] = _FINE) -> Floats:
    """(p,) the coefficients where ``w'Pw - 2 q'w + penalty(w)`` is least over the set; P positive semidefinite.
    ``accuracy`` : for steps, where projections are formulas; elsewhere a solver has its own."""
    domain, penalty = model.domain, model.penalty
    if domain.kind == "free" and penalty.smooth:
        return solve_normal(P + np.diag(penalty.ridge), q - penalty.linear / 2)
    if model.public is not None and not (_steps_serve(domain, penalty) and domain.kind in SIMPLE):
        return model.public.minimise_quadratic(P, q)
    return by_steps(domain, penalty, P, q, accuracy)


def solve_normal(P: Floats, q: Floats) -> Floats:
    """(p,) solution of ``P w = q``, of least norm in scaled columns where P is singular."""
    scale = 1 / np.sqrt(np.maximum(np.diag(P), 1e-300 + 1e-14 * float(np.diag(P).max(initial=0.0))))
    H, h = P * np.outer(scale, scale), q * scale
    try:
        factor = scipy.linalg.cho_factor(H)
        if float(np.abs(np.diag(factor[0])).min(initial=math.inf)) > 1e-7:
            return np.asarray(scale * scipy.linalg.cho_solve(factor, h))
    except np.linalg.LinAlgError:
        pass
    return scale * (np.linalg.pinv(H, rcond=1e-12, hermitian=True) @ h)


def by_steps(domain: Domain, penalty: Penalty, P: Floats, q: Floats, accuracy: tuple[int, float] = _FINE) -> Floats:
    """(p,) where ``w'Pw - 2 q'w + penalty(w)`` is least over the set, by accelerated proximal steps."""
    ridge = penalty.ridge
    step = 0.5 / max(float(np.linalg.eigvalsh(P + np.diag(ridge)).max(initial=0.0)) * (1 + 1e-9), 1e-300)

    def proximal(w: Floats) -> Floats:
        moved = w - step * (2 * (P @ w + ridge * w - q) + penalty.linear)
        return domain.project(penalty.shrink(moved, step) if domain.kind == "free" else moved)

    w = domain.project(domain.center())
    for k, new in enumerate(islice(accelerated(w, proximal), accuracy[0])):
        change, w = float(np.linalg.norm(new - w)), new
        if k > 2 and change <= accuracy[1] * (float(np.linalg.norm(w)) + 1e-300):
            break
    return w


# -------------------------------------------------------------------------------- forecast and proof


# Most columns of a simulated matrix.
MOST_SIMULATED = 512

Normals = Callable[..., Any]  # standard normal draws of a shape, for simulations


@dataclass(frozen=True)
class Population:
    """Expected sums of one synthetic population: ``gram`` (p, p), ``cross`` (p,) and ``labels`` of all rows
    together."""

    model: PrivateRegression
    risk: Populations
    gram: Floats
    cross: Floats
    labels: float


def mean_excess(model: PrivateRegression, solve: Callable[[Population, np.ndarray, float, Normals], Floats]) -> float:
    """Mean excess risk of ``solve(population, columns, noise factor, normal draws)`` over the populations.

    Beyond ``MOST_SIMULATED`` columns a share of them is simulated, with the noise of every entry larger by the root of
    what is left out: spectrum and edge of the noise matrix, the noise's 2-norm and the signal's stay what they were.
    For sets such as the l1 ball, where the noise per coordinate matters, this is too pessimistic.
    """
    moving = np.flatnonzero(~model.row.constant)
    draws = 6 if moving.size <= 32 else 3 if moving.size <= 128 else 1
    draws = draws if model.domain.kind in SIMPLE else 1  # others take a solver for every projection
    normal: Normals = public_generator(11).standard_normal
    found = []
    for risk in each_population(model):
        columns, factor = _columns_to_simulate(model, risk, moving)
        small, reduced = (model, risk) if factor == 1 else _on_columns(model, risk, columns, factor)
        mean, total = reduced.mean[0], small.total
        cross = reduced.gradients(np.zeros((1, small.size)))[0] / (-2 * small.scale)
        fixed = np.flatnonzero(small.row.constant & (small.row.lower != 0))
        labels = (
            float(cross[fixed[0]] / small.row.lower[fixed[0]]) if fixed.size else total * float(mean @ reduced.truth[0])
        )
        second = np.diag(reduced.variance[0]) + np.outer(reduced.common[0], reduced.common[0]) + np.outer(mean, mean)
        population = Population(small, reduced, total * second, cross, labels)
        found += [reduced.excess(solve(population, columns, factor, normal)[None])[0] for _ in range(draws)]
    return max(float(np.mean(found)), 0.0)


def _columns_to_simulate(model: PrivateRegression, risk: Populations, moving: np.ndarray) -> tuple[np.ndarray, float]:
    """(p',) columns to simulate and the factor on the noise: all, or the support and further ones, evenly spread."""
    if moving.size <= MOST_SIMULATED:
        return np.arange(model.size), 1.0
    support = moving[np.flatnonzero(risk.truth[0, moving])]
    support = support if support.size <= MOST_SIMULATED // 2 else support[:0]
    others = np.setdiff1d(moving, support)
    spread = others[np.linspace(0, others.size - 1, MOST_SIMULATED - support.size).astype(int)]
    columns = np.union1d(np.union1d(support, spread), np.flatnonzero(model.row.constant))
    return columns, math.sqrt(moving.size / MOST_SIMULATED)


def _on_columns(
    model: PrivateRegression, risk: Populations, columns: np.ndarray, factor: float
) -> tuple[PrivateRegression, Populations]:
    row, penalty = model.row, model.penalty
    small = replace(
        model,
        row=replace(row, lower=row.lower[columns], upper=row.upper[columns], constant=row.constant[columns]),
        penalty=Penalty(penalty.ridge[columns], penalty.l1[columns], penalty.linear[columns], penalty.constant),
        domain=_of_size(model.domain, columns.size),
        public=None,
        _memo={},
    )
    part = replace(
        risk,
        model=small,
        **{name: getattr(risk, name)[:, columns] for name in ("mean", "variance", "common", "truth")},
    )
    signal, left = (float((each.truth * each.covariance(each.truth)).sum()) for each in (risk, part))
    return small, replace(part, truth=part.truth * math.sqrt(signal / left)) if left > 0 else part


def _of_size(domain: Domain, size: int) -> Domain:
    if isinstance(domain, L1Ball | L2Ball | Simplex):
        return replace(domain, size=size)
    return FreeSpace(size)


def in_units(layout: Layout, population: Population) -> Statistics:
    """The population's sums in the units of a layout."""
    m, width, y, unit = layout.middle, layout.width, layout.label_middle, layout.label_width
    total = population.model.total
    mean = population.risk.mean[0, layout.moving]
    gram = population.gram[np.ix_(layout.moving, layout.moving)]
    centre = (mean - m) / width
    # sum (x - m)(x - m)' from the uncentred sums
    gram = gram - total * (np.outer(mean, mean) - np.outer(mean - m, mean - m))
    cross = population.cross[layout.moving] - m * population.labels - y * total * (mean - m)
    labels = (population.labels - y * total) / unit
    return Statistics(gram / np.outer(width, width), total * centre, cross / (width * unit), labels, total)


def standard_noise(layout: Layout, normal: Normals) -> Floats:
    """(entries,) simulated noise of deviation 1; normal also where the release is Laplace."""
    k = layout.count
    triangle, first, label, cross = np.tril(normal((k, k))).T, normal(k), normal(), normal(k)
    parts = [triangle[np.triu_indices(k)], cross, *([first, np.array([label])] if layout.shifted else [])]
    return np.concatenate([*parts, [0.0]])  # no forecast depends on the squares of labels


@dataclass(frozen=True)
class Sizes:
    """Bounds on (v0, v) over the set, in a layout's units: 1-norm and 2-norm of v, size of v0."""

    one: float
    two: float
    base: float


def sizes_of(model: PrivateRegression, layout: Layout) -> Sizes:
    unit = layout.label_width
    width = float(layout.width.max(initial=0.0)) / unit
    base = np.concatenate([layout.middle, layout.constant])
    pairs = ((math.inf, 1.0), (2.0, 2.0), (1.0, math.inf))
    products = [
        _product(float(np.linalg.norm(base, ord=dual)) if base.size else 0.0, model.domain.norm(order))
        for dual, order in pairs
    ]
    return Sizes(
        _product(width, model.domain.norm(1.0)),
        _product(width, model.domain.norm(2.0)),
        (min(products) + abs(layout.label_middle)) / unit,
    )


def shrink_cap(model: PrivateRegression, layout: Layout, spread: Spread) -> float:
    """The most by which eigenvalues are lifted over a bounded set: ten times the noise to balance."""
    two = sizes_of(model, layout).two
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
    r = sizes_of(model, layout)
    if not (math.isfinite(r.two) and math.isfinite(r.base)):
        return math.inf
    error, off = noise_bounds(model, layout, spread, beta)
    lift = shrink_cap(model, layout, spread) + math.sqrt(2) * spread.pair + off
    return model.scale * layout.label_width**2 * (2 * error + (lift * r.two * r.two if r.two > 0 else 0.0))


def noise_bounds(model: PrivateRegression, layout: Layout, spread: Spread, beta: float) -> tuple[float, float]:
    """Bounds on sup |E| over a bounded set and on the 2-norm of the noise in S, as ``proved_loss`` says."""
    r = sizes_of(model, layout)
    k = max(layout.count, 1)
    t = math.sqrt(2 * math.log(10 / beta))
    if layout.pure:
        largest = math.log(2 * (layout.entries - 1) / beta) / math.sqrt(2)  # deviations, of all but the squares
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


# -------------------------------------------------------------------------------- the mechanism


# Beyond this the matrices (128 MB each), their eigenvectors (a minute) and 8 million draws (minutes) are too much for
# one machine.
MOST_COLUMNS = 4000


def judge_statistics(model: PrivateRegression, options: Options) -> Verdict:
    """Whether statistics of bounded size determine the objective, or why not."""
    if model.loss.name != "squared":
        return Verdict(False, f"the {model.loss.name} loss has no sufficient statistics of bounded size")
    if math.isfinite(model.loss.clip) or options.clip is not None:
        return Verdict(False, "clipped residuals asked for: sums of squares and products cannot clip them")
    if model.size > MOST_COLUMNS:
        return Verdict(False, f"{model.size} coefficients: more than {MOST_COLUMNS}, whose matrix would not fit")
    if not math.isfinite(model.row.label_bound):
        return Verdict(False, "labels without a bound")
    if not math.isfinite(model.offset_bound):
        return Verdict(False, "offsets without a bound")
    if not math.isfinite(model.row.l2):
        return Verdict(False, "rows without a bound")
    if not solvable(model):
        return Verdict(False, "no solver for this set together with this penalty")
    return YES if model.total > 0 else Verdict(False, "weights that sum to zero")


@dataclass(frozen=True)
class SufficientStatistics(PureToo):
    """Sum a a' and sum a (y - o) are measured once with noise; everything else is post-processing.

    Source
        Vu and Slavkovic 2009; Dwork, Talwar, Thakurta and Zhang 2014; Wang, Revisiting differentially private
        linear regression (UAI 2018), whose adaptive ridge is replaced by ``moments.shrunk``.
    Privacy
        One release of one vector, ``(G, alpha g, beta t, gamma h, kappa s)`` of ``moments``, with Gaussian noise of
        standard deviation ``D_2 / mu`` (mu-GDP with the largest mu that is (epsilon, delta)-DP, Balle and Wang 2018)
        or Laplace noise of scale ``D_1 / epsilon``. ``D`` is the exact largest move of the joint vector by one record
        over the ball (proof in ``sensitivity_l2`` and ``square_weight``; ``sensitivity_l1`` bounds it), with the
        largest weight and an allowance for rounding. The number of rows and their weights are public. No budget is
        spent on the least eigenvalue.
    Utility
        For bounded sets a bound on the loss in objective for any data (proof in ``proved_loss``); the prediction by
        which plans choose is the mean excess risk over synthetic populations.
    Cost
        One pass over X that forms its Gram matrix (sparse X stays sparse where its columns need little centring),
        p^2 / 2 draws, one eigendecomposition, one convex program of p variables.
    """

    serves: ClassVar[Serves] = Serves(PrivateRegression, reads_blocks=True)
    name: str = "sufficient-statistics"
    source: str = "Vu and Slavkovic 2009; Wang 2018 (AdaSSP), tightened"

    def eligible(self, model: PrivateRegression, options: Options) -> Verdict:
        return judge_statistics(model, options)

    def forecast(self, model: PrivateRegression, options: Options) -> Forecast | Verdict:
        found = self.forecast_as_given(model, self.spent(model, options))
        if math.isfinite(predicted_by(found)):
            return found
        return Verdict(False, "its program leaves double precision; give columns, labels and the set like sizes")

    def forecast_as_given(self, model: PrivateRegression, options: Options) -> Forecast:
        key = (self, options.epsilon, options.delta, options.beta)
        return model.cached(key, lambda: self._simulate(model, options))

    def _simulate(self, model: PrivateRegression, options: Options) -> Forecast:
        layout, sigma = self.noise(model, options)

        def simulate(population: Population, columns: Floats, factor: float, normal: Normals) -> Floats:
            small = layout if factor == 1 else _layout_on(layout, columns)
            exact, own = to_vector(small, in_units(small, population)), sigma * factor
            released = exact + spread_of(small, own).own * standard_noise(small, normal)
            return _solve(population.model, small, released, own, ROUGH)

        predicted = mean_excess(model, simulate)
        bound = proved_loss(model, layout, spread_of(layout, sigma), options.beta)
        if model.penalty.absent and math.isfinite(model.prediction_bound):
            bound = min(bound, model.weight * (model.prediction_bound + model.row.label_bound) ** 2)
        return excess_forecast(
            model,
            options,
            predicted=predicted,
            at_most=bound,
            work=f"one pass over X, {layout.entries} numbers measured once, one program of {model.size} coefficients",
            noise={
                "distribution": "laplace" if layout.pure else "gaussian",
                "scale": sigma,
                "sensitivity": layout.sensitivity,
                "entries": layout.entries,
                "weights": {"cross": layout.beta, "first": layout.alpha, "labels": layout.gamma},
            },
            event=Cost.laplace(options.epsilon) if layout.pure else self.event(options),
        )

    def noise(self, model: PrivateRegression, options: Options) -> tuple[Layout, float]:
        """The layout, and the scale of the noise on each measured number: public facts."""
        layout = layout_of(model, options.delta == 0)
        assert layout is not None  # eligible() asks for bounds
        spend = Spend.of(options.epsilon, options.delta, gaussian_only=True)
        scale = spend.laplace_scale(layout.sensitivity) if layout.pure else spend.gaussian_sigma(layout.sensitivity)
        return layout, scale

    def run_as_given(
        self, model: PrivateRegression, options: Options, noise: NoiseSource, progress: Progress
    ) -> Outcome:
        layout, scale = self.noise(model, options)
        progress("summing", 0.1)
        exact = PrivateArray(to_vector(layout, summed(layout, model.read_table())))
        progress("measuring", 0.4)
        released = noise.laplace(exact, scale) if layout.pure else noise.gaussian(exact, scale)
        progress("solving the released program", 0.7)
        start = time.perf_counter()
        w = _solve(model, layout, released, scale, _FINE)
        measured = (noisy_moments(model, layout, released, scale, options),)
        return Outcome("optimal", w, None, None, seconds=time.perf_counter() - start, measured=measured)


def spread_of(layout: Layout, scale: float) -> Spread:
    """Deviations of the released statistics for this scale of the noise; Laplace noise deviates by sqrt 2 scales."""
    return Spread.of(layout, scale * math.sqrt(2) if layout.pure else scale)


# Beyond this the statistics (a megabyte) are not part of the release, and it has no intervals.
MOST_WITH_INTERVALS = 500


def noisy_moments(
    model: PrivateRegression, layout: Layout, released: Floats, scale: float, options: Options
) -> Moments:
    """What ``Release.intervals`` needs of released numbers, and whether a law of the coefficients follows from them."""
    penalty, places = model.penalty, () if model.public is None else model.public.twin.places
    order = np.concatenate([layout.moving, layout.fixed])
    variable, place, times = np.full(model.size, "", dtype=object), np.zeros(model.size, dtype=int), np.ones(model.size)
    names = {copy.id: user.name() for user, copy in model.public.twin.pairs} if model.public is not None else {}
    for each in places:
        stands = np.flatnonzero(each.index >= 0)
        at = each.index[stands]
        variable[at], place[at], times[at] = names[each.variable.id], stands, each.scale[stands]
    width, inverse = layout.width, layout.label_width / layout.width
    unit = model.scale * layout.label_width**2
    refused = ""
    if layout.count > MOST_WITH_INTERVALS:
        refused = f"{layout.count} columns, and up to {MOST_WITH_INTERVALS} are served"
    elif np.count_nonzero(layout.constant) != layout.fixed.size or layout.fixed.size > 1:
        refused = "several constant columns, whose coefficients cannot be told from each other"
    elif model.public is not None and not places:
        refused = "coefficients that are not entries of variables"
    elif penalty.other is not None or penalty.l1.any():
        refused = "a penalty with a kink, where released coefficients have no law that is served"
    elif penalty.ridge[layout.fixed].any() or penalty.linear[layout.fixed].any():
        refused = "a penalty on the intercept"
    elif _binds(model, layout, released, scale):
        refused = "a constraint binds at the released coefficients, where they have no law that is served"
    return Moments(
        values=released if layout.count <= MOST_WITH_INTERVALS else np.zeros(0),
        law="laplace" if layout.pure else "gaussian",
        scale=scale,
        parameters=(),
        row=(),
        parameter=(),
        entry=(),
        coefficient=np.zeros(0),
        epsilon=options.epsilon,
        delta=options.delta,
        weights=(layout.alpha, layout.beta, layout.gamma, layout.kappa, layout.less),
        total=model.total,
        count=model.count,
        middle=layout.middle * times[layout.moving],
        width=width * times[layout.moving],
        constant=float(layout.constant[0] * times[layout.fixed[0]]) if layout.constant.any() else 0.0,
        label_middle=layout.label_middle,
        label_width=layout.label_width,
        ridge=penalty.ridge[layout.moving] * inverse**2 / unit,
        linear=penalty.linear[layout.moving] * inverse / unit,
        variable=tuple(variable[order].tolist()),
        place=place[order],
        refused=refused,
    )


def _binds(model: PrivateRegression, layout: Layout, released: Floats, scale: float) -> bool:
    """Whether the set moves the solution of the released program."""
    if model.domain.kind == "free":
        return False
    open_to_all = replace(model, domain=FreeSpace(model.size), public=None, _memo={})
    w, inside = (_solve(each, layout, released, scale, _FINE) for each in (open_to_all, model))
    return not np.allclose(w, inside, rtol=1e-5, atol=1e-7 * max(float(np.abs(w).max(initial=0.0)), 1e-300))


def _solve(
    model: PrivateRegression, layout: Layout, released: Floats, scale: float, accuracy: tuple[int, float]
) -> Floats:
    """(p,) the solution of the public program for numbers released with noise of this scale: post-processing."""
    s, spread = from_vector(layout, released, model.total), spread_of(layout, scale)
    inverse = layout.label_width / layout.width
    ridge = model.penalty.ridge[layout.moving] * inverse**2 / (model.scale * layout.label_width**2)
    P, q = quadratic(layout, s, shrunk(layout, s, spread, ridge, shrink_cap(model, layout, spread)))
    return minimise(model, model.scale * P, model.scale * q, accuracy)


def _layout_on(layout: Layout, columns: Floats) -> Layout:
    """The layout of a share of the columns, in the same units."""
    moving = np.isin(layout.moving, columns)
    place = np.searchsorted(columns, layout.moving[moving])
    fixed = np.isin(layout.fixed, columns)
    return replace(
        layout,
        size=int(columns.size),
        moving=place,
        fixed=np.searchsorted(columns, layout.fixed[fixed]),
        middle=layout.middle[moving],
        width=layout.width[moving],
        constant=layout.constant[fixed],
    )


SUFFICIENT_STATISTICS = SufficientStatistics()
