"""Objective perturbation for delta = 0: a random linear term whose norm is made for the rows, and its exact charge."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dpmodel._types import Floats
from dpmodel.contract import Options, Serves
from dpmodel.memo import cached
from dpmodel.privacy import NoiseSource
from dpmodel.regressions.features import RowBounds
from dpmodel.regressions.gauge_noise import Gauge, gauge_of
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.objective_perturbation import (
    MOST_STEPS,
    Design,
    PerturbedMinimiser,
    _levers,
    _penalty_size,
    facts_of,
    leverage,
    ridge_for,
    smoothed,
    smoothness,
    steepness,
)
from dpmodel.regressions.perturbed_objective import Facts
from dpmodel.regressions.rows import Reader, Table, divided

_OUTPUT = 0.01  # part of epsilon that the noise on the output takes
_FACTORS = (0.003, 0.03, 0.3, 1.0, 3.0)  # of the ridge by rule: those that the simulation compares
# The same of losses that are made smooth, and multiples of the sharpness that is free with it.
_SMOOTH_FACTORS, _SHARPER = (0.3, 1.0, 3.0, 10.0), (1.0, 4.0, 12.0)
_ROUNDED = 1 - 1e-9  # of a share of epsilon: what rounding of these formulas and the noise's grid may add


@dataclass(frozen=True)
class PureDesign(Design):
    """As ``Design``, with the noise of a gauge; ``sigma`` is (p,). ``linear`` : a length of the random term that is
    hardly ever exceeded. ``scale`` : beta, the density of the random term being ``exp(-N(b) / beta)``."""

    scale: float = 0.0
    output_scale: float = 0.0
    gauge: Any = None


@dataclass(frozen=True)
class PureObjectivePerturbation(PerturbedMinimiser):
    """Release ``argmin_w Phi(w) + <b, w>``, Phi the objective with a ridge, b of density ``exp(-N(b) / beta)``.

    Source
        Chaudhuri, Monteleoni and Sarwate 2011 (noise of the 2-norm, 2 ln(1 + ...) for the determinant); Hardt and
        Talwar 2010 (noise of any norm); Iyengar et al. 2019 (approximate minima). The statement is proved here.
    Privacy
        Unit: the sum, objective / scale, columns divided by their largest sizes, which are public (``inside``): the
        answer does not depend on the units of columns. ``Phi_D(w) = sum_i omega_i f(a_i'w + o_i, y_i) + (lambda, a
        ridge) + linear``. N is a norm with ``N(x) <= 1`` for all rows allowed (``Gauge``).

        (1) *The minimiser.* ``w -> b_D(w) = -grad Phi_D(w)`` is Lipschitz, and a bijection of R^p: grad Phi_D is
        strongly monotone (kinks of f': null sets on both sides). So w* has the density ``exp(-N(b_D(w)) / beta)
        det(J_D(w))`` up to a constant. A record's gradient is ``omega s x``, |s| <= r, and ``J_D = H + k x x'``, with
        the part ``H >= lambda + ridges`` common to D and D' and ``0 <= k <= omega B``; J_D' has k', x' and s'. Rank
        one: ``det J_D / det J_D' = (1 + k x'H^-1 x) / (1 + k' x''H^-1 x') <= 1 + k L``, ``L = max x'(lambda +
        ridges)^-1 x``. And ``b_D' - b_D = omega (s x - s' x')``. With a = omega r / beta, t = |s| / r and t' the log of
        the ratio of densities at w is, by the triangle inequality, at most ``a (t + t') + ln(1 + k L)``. All that
        follows grows with omega: the largest weight stands for those of both records, public or private.

        *Any smooth loss with bounded derivatives*: ``k <= omega B``, so ``2 a + ln(1 + omega B L)``. (Huber's curvature
        is largest where its derivative is: no less will do. Where derivatives are cut the loss is the one whose
        derivative that is.)
        *Logistic*: r = 1 and ``k <= omega t (1 - t)``, with equality where labels are 0 and 1 (or -1 and 1). Labels
        between 0 and 1: at a given prediction t is at most the larger of those of labels 0 and 1, and the curvature,
        which is theirs, is ``t (1 - t)`` there. Of signs: ``k = omega t (|y| - t) <= omega t (1 - t)``, each label
        with its own t. So ``a + max_t (a t + D(t))``,
        ``D(t) = ln(1 + omega L t (1 - t))``: concave, with slope ``a - omega L`` at t = 1. As long as ``a >= omega L``
        the maximum is a, at t = 1, where the curvature is 0: nothing for the determinant.
        *Kinks* (absolute, quantile and hinge losses): what is minimised has a sharpness beta (``Loss``), with the
        derivative ``s = s0 (1 - e^(-beta d))``, s0 that of the loss with its kink, d the distance from it. Its
        curvature ``beta |s0| e^(-beta d) = beta (|s0| - |s|)`` (for hinge |y| = |s0| times that) is at most ``B (1 -
        t)``, B = beta r (beta r^2), as |s0| <= r. So ``a + max_t (a t + D(t))`` with ``D(t) = ln(1 + omega L B (1 -
        t))``, concave, of slope ``-omega L B`` at t = 1: as long as ``a >= omega L B`` nothing for the determinant.
        *K classes*: the derivative is s = p - y, and with ``t = 1 - p_y`` it has ``|s|_1 = 2 t``, ``|s|_2 <= sqrt(2)
        t``: N of the outer product of s and x is at most t (``Gauge``). The record's part of J_D is omega times the
        Kronecker product of ``M = diag(p) - p p'`` and x x', and ``det J_D / det J_D' <= det(I + omega L M)``
        (``objective_perturbation``, (1')). M is concave in p, in the order of matrices, and ln det is monotone and
        concave: so is ln det(I + omega L M), and symmetric in the classes but y: largest for a given t where these
        are alike, p_k = t / (K-1). There M has K - 2 times the eigenvalue t / (K-1), once K t (1 - t) / (K-1), and
        0: ``D(t) = (K-2) ln(1 + omega L t / (K-1)) + ln(1 + omega L K t (1 - t) / (K-1))``, concave, and again
        ``a + max_t (a t + D(t))``. Labels y in the hull of 0 and the e_k: N is convex in y, p and M do not depend on
        it. y = 0 gives N at most 1/2, or |p|_2 / sqrt(2) <= sqrt((1-q)/2) <= 1 - q, q the least p_k, which is t for
        that class: no more than the e_k give.

        *An absent record* has x' of the constant columns alone and the label 0; ``c = N(x')``. Of signs: the loss is
        then ln 2, its derivative 0: ``max_t (a t + D(t))`` and no more. Of 0 and 1: ``t' <= 1``, and the ratio is at
        most the larger of ``c a + max_t (a t + D(t))`` and ``a + max_t (c a t + D_c(t))``, D_c of the constants'
        leverage; numbers with kinks alike; of hinge the derivative is 0 too. Other numbers: ``a + c a + ln(1 + omega B
        L)``. K classes: N is at most c/2, and the larger of ``c a / 2 +
        max_t (a t + D(t))`` and ``a + c a / 2 + (K-1) ln(1 + omega L_c / K)``, the largest D_c.
        (2) *What is computed.* Pi projects onto the ball of radius ``ball``, a public number: post-processing of w*.
        The solver's point v satisfies ``||Pi(v) - Pi(w*)||_2 <= radius`` for every draw (``certify``; rounding
        included). Given w*, v is a function of D, of b_D(w*) and of coins that depend on it alone, so Pi(v) and
        the neighbour's lie ``2 radius`` apart, ``2 sqrt(p) radius`` in the 1-norm: Laplace noise of ``output_scale``
        hides that at the price of ``_OUTPUT epsilon``, and adds up with (1).
        (3) *Every draw.* How many steps the solver makes before it gives up follows from the length of the b that was
        drawn (``Facts.steps``, enough in exact arithmetic); nothing depends on a rare event. The radius is twice
        the rounding error of a certificate where ``||w|| = ball``: with ``||b|| <= h ||w|| + total row r``, the error
        is at most linear in ||w||, and beyond the ball it counts only by ball / ||w||.
        (4) *Grid.* What is drawn is off by a share of its length (``Gauge.draw``), which the certificate counts, and
        its probabilities by a factor, for which ``_ROUNDED`` pays, as for norms of rows that rounding left above 1.
    Utility
        lambda is by rule the standard deviation of an entry of b, which balances the noise's error and the ridge's
        bias; a simulation on synthetic populations holds it against multiples of it and the least that pays nothing for
        curvature, and is the prediction. Where the loss has kinks it chooses the sharpness too, by the risk of the loss
        with its kink.
    Cost
        As objective-perturbation.
    Errors
        Refuses by ``eligible``: losses with unbounded derivatives, sets, penalties with kinks, rows or labels without
        a bound, losses with kinks where no column moves.
    """

    pure: ClassVar[bool] = True
    serves: ClassVar[Serves] = Serves(PrivateRegression, reads_blocks=True, classes=True, weights=True, adds_up=False)
    name: str = "pure-objective-perturbation"
    source: str = "Chaudhuri, Monteleoni and Sarwate 2011; Hardt and Talwar 2010; Iyengar et al. 2019"

    def refusal(self, model: PrivateRegression, options: Options) -> str:
        if not math.isfinite(steepness(model)):
            return "derivatives of the loss are not bounded, whatever its coefficients: Problem(..., clip=) cuts them"
        if model.domain.kind != "free" or not model.penalty.smooth:
            return "sets and penalties with kinks: the minimiser has no density"
        if not math.isfinite(model.row.norm(2.0)) or model.row.norm(2.0) == 0:
            return "rows are not bounded, or always 0"
        if not math.isfinite(model.row.label_bound):
            return "labels are not bounded"
        if math.isinf(model.loss.smoothness) and model.row.constant.all():
            return "a loss with a kink and one number: private-constant draws it with the kink"
        return ""

    def inside(self, model: PrivateRegression) -> tuple[PrivateRegression, Floats | float]:
        return _in_units(model)

    def drawn(self, plan: PureDesign, size: int, noise: NoiseSource) -> Floats:
        drawn: Floats = plan.gauge.draw(noise, plan.scale)
        return drawn

    def designs(self, model: PrivateRegression, options: Options) -> list[PureDesign]:
        return _designs(model, options.epsilon)

    def for_length(self, model: PrivateRegression, plan: PureDesign, length: float) -> PureDesign:
        """More steps for a long one, see (3)."""
        if length <= plan.linear:
            return plan
        facts = _facts(smoothed(model, plan.sharpness), plan.gauge, plan.ridge, length)
        return replace(plan, linear=length, facts=facts)


# ---------------------------------------------------------------------- the units of columns
def _in_units(model: PrivateRegression) -> tuple[PrivateRegression, Floats | float]:
    """The model in the units of ``_units``, and these, of all coefficients. It reads what this model reads: models of
    equal public facts share what is kept of these, and have rows of their own."""
    found = _units(model)
    if found is None:
        return model, 1.0
    units, row, memo = found
    every = np.tile(units, model.scores)
    penalty = replace(model.penalty, ridge=model.penalty.ridge / every**2, linear=model.penalty.linear / every)
    return replace(model, row=row, penalty=penalty, read=partial(_read_in_units, model.read, units), _memo=memo), every


def _read_in_units(read: Reader, units: Floats) -> Table:
    return divided(read(), units)


@cached
def _units(model: PrivateRegression) -> tuple[Floats, RowBounds, dict[Any, Any]] | None:
    """(p,) largest size of every column (of a list, its largest; of all, where norms of rows say more than columns and
    lists do), the bounds on rows divided by them, and where facts about these are kept; None where all sizes are 1."""
    row, sizes = model.row, model.row.magnitudes
    if not (np.isfinite(sizes).all() and sizes.any()):
        return None
    plain = RowBounds.of(row.lower, row.upper, row.constant, lists=row.lists)
    norms = row.l1 < plain.l1 * (1 - 1e-9) or row.l2 < plain.l2 * (1 - 1e-9)
    units = np.where(sizes > 0, sizes, 1.0)
    for first, end, _ in row.lists:
        units[first:end] = max(float(sizes[first:end].max()), 1e-300)
    if norms:
        units[~row.constant] = sizes[~row.constant].max()
    if (units == 1).all():
        return None
    lists = tuple((first, end, size / float(units[first])) for first, end, size in row.lists)
    most = float(units[~row.constant].max()) if norms else 0.0
    l1, l2 = (row.l1 / most, row.l2 / most) if norms else (math.inf, math.inf)
    scaled = RowBounds.of(row.lower / units, row.upper / units, row.constant, l1=l1, l2=l2, lists=lists)
    return units, replace(scaled, label=row.label, absent=row.absent, mixed=row.mixed), {}


# ---------------------------------------------------------------------- from public facts to noise
Height = Callable[[float], tuple[float, float]]  # t -> D(t), D'(t)


def _is_flat(model: PrivateRegression) -> bool:
    """Whether the steepest losses are flat."""
    two = model.loss.name in ("logistic", "binary_logistic") and model.row.label_bound <= 1
    return (two or math.isfinite(model.loss.sharpness)) and math.isinf(model.loss.clip)


def _steep(model: PrivateRegression) -> float:
    """r: the largest N of a derivative and a row."""
    flat = model.scores > 1 or (_is_flat(model) and math.isinf(model.loss.sharpness))
    return 1.0 if flat else steepness(model)


def _height(model: PrivateRegression, lever: float) -> Height:
    """What determinants may add where the derivative is t of its largest, for omega L."""
    others = model.scores - 1
    if others:
        small, large = lever / others, lever * (others + 1) / others

        def classes(t: float) -> tuple[float, float]:
            value = (others - 1) * math.log1p(small * t) + math.log1p(large * t * (1 - t))
            slope = (others - 1) * small / (1 + small * t) + large * (1 - 2 * t) / (1 + large * t * (1 - t))
            return value, slope

        return classes
    if _is_flat(model) and math.isfinite(model.loss.sharpness):
        bend = smoothness(model) * lever
        return lambda t: (math.log1p(bend * (1 - t)), -bend / (1 + bend * (1 - t)))
    if _is_flat(model):
        return lambda t: (math.log1p(lever * t * (1 - t)), lever * (1 - 2 * t) / (1 + lever * t * (1 - t)))
    most = math.log1p(smoothness(model) * lever)
    return lambda t: (most, 0.0)


def _most(line: float, height: Height) -> float:
    """At least max over t in [0, 1] of ``line t + D(t)``, which is concave: it lies below its tangents."""
    value, slope = height(1.0)
    if line + slope >= 0:
        return line + value
    low, high = 0.0, 1.0
    for _ in range(60):
        t = (low + high) / 2
        low, high = (t, high) if line + height(t)[1] > 0 else (low, t)
    value, slope = height(low)
    return line * low + value + max(line + slope, 0.0) * (high - low)


def charge(model: PrivateRegression, ridge: float, beta: float, gauge: Gauge) -> float:
    """Epsilon of the exact minimiser with noise of scale ``beta``, see (1)."""
    heavy, row = model.largest_weight, model.row
    flat = model.scores > 1 or _is_flat(model)
    line = heavy * _steep(model) / beta
    one = _most(line, _height(model, heavy * leverage(model, ridge)))
    if not row.absent:
        return one + line
    if flat and model.loss.labels == "sign":
        return one
    fixed = gauge.constant * line
    levers = _levers(model)
    constant = heavy * sum(s / (ridge + own) for (s, own), c in zip(levers, _of_constants(model), strict=True) if c)
    if model.scores > 1:
        most = (model.scores - 1) * math.log1p(constant / model.scores)
        return max(one, line + most) + fixed / 2
    if not flat:
        return one + fixed
    return max(one + fixed, _most(fixed, _height(model, constant)) + line)


def _of_constants(model: PrivateRegression) -> list[bool]:
    """Which of ``_levers`` are of the constant columns."""
    fixed, row = model.row.constant, model.row
    parts = ((False, ~fixed, row.moving(2.0)), (True, fixed, row.fixed(2.0)))
    return [which for which, columns, size in parts if columns.any() and size > 0]


def noise_scale(model: PrivateRegression, ridge: float, epsilon: float, gauge: Gauge) -> float:
    """The least beta whose charge is at most ``epsilon``; inf where none is."""
    least = _least_scale(model, epsilon, gauge)
    if charge(model, ridge, least, gauge) <= epsilon * (1 + 1e-13):
        return least
    high = least
    for _ in range(60):
        high *= 2
        if charge(model, ridge, high, gauge) <= epsilon:
            break
    else:
        return math.inf
    low = high / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if charge(model, ridge, middle, gauge) <= epsilon else (middle, high)
    return high


def _least_scale(model: PrivateRegression, epsilon: float, gauge: Gauge) -> float:
    """Beta where nothing is charged for determinants."""
    flat = model.scores > 1 or _is_flat(model)
    times = 2.0
    if model.row.absent:
        sign = flat and model.loss.labels == "sign"
        times = 1.0 if sign else 1.0 + gauge.constant * (0.5 if model.scores > 1 else 1.0)
    return model.largest_weight * _steep(model) * times / epsilon


def _own(model: PrivateRegression) -> Floats:
    """(p,) the user's ridge in the unit of the sum."""
    out: Floats = 2 * model.penalty.ridge / model.scale
    return out


def design(model: PrivateRegression, epsilon: float, ridge: float, gauge: Gauge) -> PureDesign | None:
    """The noise for this budget and ridge; None where curvature takes all of epsilon, or double precision does not hold
    what follows."""
    try:
        scale = noise_scale(model, ridge, epsilon * (1 - _OUTPUT) * _ROUNDED, gauge)
        sigma = scale * gauge.deviations
        linear = 4 * float(np.linalg.norm(sigma)) + 40 * float(sigma.max())
        facts = _facts(model, gauge, ridge, linear)
        ball = facts.size
        pull = facts.total * facts.row * facts.clip
        error = facts.rounding(ball, facts.ridge * ball + pull + _penalty_size(model))
        radius = 2.5 * error / facts.strong + 2.0**-60 * math.sqrt(model.size) * scale / facts.strong
        output = 2 * math.sqrt(model.size) * radius / (epsilon * _OUTPUT * _ROUNDED)
        steps = facts.steps(radius * facts.strong / 2, linear + _penalty_size(model))
        numbers = (scale, ball, radius, output, facts.smooth)
        paid = (1 - _ROUNDED) * epsilon > model.size * 2.0**-48
    except (ArithmeticError, ValueError):
        return None
    holds = all(0 < number < math.inf for number in numbers) and radius < 1e-3 * ball and steps <= MOST_STEPS
    spent = charge(model, ridge, scale, gauge) - epsilon * _least_scale(model, epsilon, gauge) / scale if holds else 0.0
    deviation = math.sqrt(2) * output
    told = ridge, max(spent, 0.0), 0.0, sigma, linear, radius, deviation, facts, ball, model.loss.sharpness
    return PureDesign(*told, scale, output, gauge) if holds and paid else None


def _facts(model: PrivateRegression, gauge: Gauge, ridge: float, length: float) -> Facts:
    return facts_of(model, ridge, ridge + float(_own(model).min()), length, gauge.rounding)


@cached
def _designs(model: PrivateRegression, epsilon: float) -> list[PureDesign]:
    gauge, kinks = gauge_of(model.row, model.scores), not math.isfinite(model.loss.smoothness)
    model = smoothed(model, 1.0) if kinks else model
    least, own = _least_scale(model, epsilon, gauge), float(_own(model).min())
    rule = least * float(np.sqrt(np.mean(gauge.deviations**2)))
    if kinks:
        return _smooth_designs(model, epsilon, rule, least, gauge)
    # a >= omega L, for the least beta: nothing for determinants
    free = model.row.norm(2.0) ** 2 * least * (1 + 1e-6)
    free = free if _is_flat(model) and 0.1 < free / rule < 100 else rule
    ridges = dict.fromkeys(max(ridge - own, 0.0) for ridge in (*(factor * rule for factor in _FACTORS), free))
    found = [design(model, epsilon, ridge, gauge) for ridge in ridges if ridge + own > 0]
    if not any(found):  # derivatives cut so short that curvature takes all of epsilon
        found = [design(model, epsilon, ridge_for(model, epsilon / 2), gauge)]
    return [each for each in found if each is not None]


def _smooth_designs(
    model: PrivateRegression, epsilon: float, rule: float, least: float, gauge: Gauge
) -> list[PureDesign]:
    """Of a loss with kinks, given with sharpness 1: multiples of the ridge by rule, in the unit of labels, and of the
    sharpness that is free with it (a = omega L B)."""
    own, (low, high) = float(_own(model).min()), model.row.label
    unit = (high - low) / 2 if model.loss.labels == "number" and high > low else 1.0
    ridges, found = dict.fromkeys(max(factor * rule / unit - own, 0.0) for factor in _SMOOTH_FACTORS), []
    for ridge in (each for each in ridges if each + own > 0):
        free = _steep(model) / (least * leverage(model, ridge) * smoothness(model))
        found += [design(smoothed(model, factor * free), epsilon, ridge, gauge) for factor in _SHARPER]
    return [each for each in found if each is not None]


PURE_OBJECTIVE_PERTURBATION = PureObjectivePerturbation()
__all__ = ["PURE_OBJECTIVE_PERTURBATION", "PureObjectivePerturbation"]
