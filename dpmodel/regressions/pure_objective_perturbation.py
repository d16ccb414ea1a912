"""Objective perturbation for delta = 0: logistic losses with a random linear term of independent Laplace numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpmodel.contract import Options, Serves
from dpmodel.memo import cached
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.objective_perturbation import (
    MOST_STEPS,
    Design,
    PerturbedMinimiser,
    _levers,
    _penalty_size,
    facts_of,
)
from dpmodel.regressions.perturbed_objective import Facts

_OUTPUT = 0.01  # part of epsilon that the noise on the output takes
_FACTORS = (0.25, 1.0, 4.0)  # of the ridge by rule: those that the simulation compares
_ROUNDED = 1 - 1e-12  # of a share of epsilon: what rounding of these formulas and the noise's grid may add


@dataclass(frozen=True)
class PureDesign(Design):
    """As ``Design``, with Laplace noise. ``linear`` : a length of the random term that is hardly ever exceeded."""

    scale: float = 0.0
    output_scale: float = 0.0

    @property
    def scales(self) -> tuple[float, float]:
        return self.scale, self.output_scale


@dataclass(frozen=True)
class PureObjectivePerturbation(PerturbedMinimiser):
    """Release ``argmin_w Phi(w) + <b, w>``, Phi the logistic objective with a ridge, b of Laplace numbers.

    Source
        Chaudhuri, Monteleoni and Sarwate 2011 (noise of the 2-norm, 2 ln(1 + ...) for the determinant); Iyengar et al.
        2019 (approximate minima). The statement used is proved here.
    Privacy
        Unit: the sum, objective / scale. ``Phi_D(w) = sum_i omega_i f(a_i'w + o_i, y_i) + (lambda, a ridge) + linear``,
        f logistic: a record's gradient is ``omega s x`` and its Hessian at most ``omega |s| (1 - |s|) x x'`` with |s|
        in [0, 1] where labels are 0 and 1 (or -1 and 1). Labels between make both smaller in the sum below: there, for
        a given prediction, s is linear in the label and the curvature does not grow with it.

        (1) *The minimiser.* ``w -> b_D(w) = -grad Phi_D(w)`` is smooth, and a bijection of R^p: grad Phi_D is strongly
        monotone. So w* has the density ``exp(-||b_D(w)||_1 / beta) det(J_D(w))`` up to a constant, beta the scale of
        the noise and ``J_D = H + k x x'`` with the part ``H >= lambda + ridges`` common to D and D', ``k = omega |s| (1
        - |s|)``; J_D' has k', x' and s'. Rank one: ``det J_D / det J_D' = (1 + k x'H^-1 x) / (1 + k' x''H^-1 x') <= 1 +
        kappa |s| (1 - |s|)``, ``kappa = max omega x'(lambda + ridges)^-1 x``. And ``b_D' - b_D = omega (s x - s'
        x')``. With
        ``g = max omega ||x||_1`` the log of the ratio of densities at w is at most

            ``g (|s| + |s'|) / beta + ln(1 + kappa |s| (1 - |s|))``.

        The last two terms in s are a line and the logarithm of a concave function: concave, and at s = 1 their
        derivative is ``g / beta - kappa``. So as long as ``g / beta >= kappa`` their maximum is ``g / beta`` at s = 1,
        where the curvature is 0: replace-one costs ``2 g / beta``, and nothing for the determinant. Below that the
        maximum is where a quadratic in s vanishes (``_most``). (Curvature and gradient of other losses are large
        together; there this rule would be wrong.)
        An absent record is one with label 0 and x' the constant columns alone: then ``||omega (s x - s' x')||_1 <= m
        |s| + c (|s| + |s'|)``, m and c the parts of g that move and that are constant. With s on the side whose
        determinant is in the numerator the ratio is at most the larger of ``c/beta + max_s ((m + c) s / beta + ln(1 +
        kappa s (1 - s)))`` and ``(m + c)/beta + max_s (c s / beta + ln(1 + kappa_c s (1 - s)))``: ``(m + 2 c) / beta``,
        where kappa and kappa_c (of the constants alone) are small.
        (2) *What is computed.* Pi projects onto the ball of radius ``ball``, a public number: post-processing of w*.
        The solver's point v satisfies ``||Pi(v) - Pi(w*)||_2 <= radius`` for every draw (``certify``; rounding
        included). Given w*, v is a function of D and b_D(w*), so Pi(v) and the neighbour's lie ``2 radius`` apart,
        ``2 sqrt(p) radius`` in the 1-norm: Laplace noise of ``output_scale`` hides that at the price of ``_OUTPUT
        epsilon``, and adds up with (1).
        (3) *Every draw.* How many steps the solver makes before it gives up follows from the length of the b that was
        drawn (``Facts.steps``, enough in exact arithmetic); nothing depends on a rare event. The radius is twice
        the rounding error of a certificate where ``||w|| = ball``: with ``||b|| <= h ||w|| + total row``, the error is
        at most linear in ||w||, and beyond the ball it counts only by ball / ||w||.
        (4) *Grid.* The source draws discrete Laplace noise on a grid, 2^-80 of the scale or finer. A continuous number
        rounded to that grid has probabilities within a factor of ``1 + grid / scale`` of these: ``_ROUNDED`` pays for
        it, and the radius covers the move to the nearest point of the grid.
    Utility
        lambda is by rule the standard deviation of an entry of b, which balances the noise's error and the ridge's
        bias, and then mostly satisfies kappa <= g / beta; a simulation on synthetic populations holds it against 1/4
        and 4 times that and against the least with no charge, and is the prediction.
    Cost
        As objective-perturbation.
    Errors
        Refuses by ``eligible``: other losses, clips, sets, penalties with kinks, rows without a bound on the 1-norm.
    """

    pure: ClassVar[bool] = True
    serves: ClassVar[Serves] = Serves(PrivateRegression, reads_blocks=True, weights=True, adds_up=False)
    name: str = "pure-objective-perturbation"
    source: str = "Chaudhuri, Monteleoni and Sarwate 2011; Iyengar et al. 2019"

    def refusal(self, model: PrivateRegression, options: Options) -> str:
        if model.loss.name not in ("logistic", "binary_logistic") or model.row.label_bound > 1:
            return "its argument is for logistic losses of two classes, whose steepest losses are flat"
        if math.isfinite(model.loss.clip):
            return "where derivatives are cut, the steepest losses are not flat"
        if model.domain.kind != "free" or not model.penalty.smooth:
            return "sets and penalties with kinks: the minimiser has no density"
        if not math.isfinite(model.row.norm(1.0)) or model.row.norm(1.0) == 0:
            return "the 1-norm of a row is not bounded"
        return ""

    def designs(self, model: PrivateRegression, options: Options) -> list[PureDesign]:
        return _designs(model, options.epsilon)

    def for_length(self, model: PrivateRegression, plan: PureDesign, length: float) -> PureDesign:
        """More steps for a long one, see (3)."""
        return plan if length <= plan.linear else replace(plan, linear=length, facts=_facts(model, plan.ridge, length))


# ---------------------------------------------------------------------- from public facts to noise
def charge(model: PrivateRegression, ridge: float, beta: float) -> float:
    """Epsilon of the exact minimiser with noise of scale ``beta``, see (1)."""
    heavy, row = model.largest_weight, model.row
    parts = [square / (ridge + own) if ridge + own > 0 else math.inf for square, own in _levers(model)]
    kappa, whole, constant = heavy * sum(parts), heavy * row.norm(1.0) / beta, heavy * row.fixed(1.0) / beta
    if not row.absent:
        return _most(whole, kappa) + whole
    fixed = heavy * row.fixed(2.0) ** 2 / (ridge + float(_own(model)[row.constant].min())) if constant > 0 else 0.0
    return max(_most(whole, kappa) + constant, _most(constant, fixed) + whole)


def _most(line: float, kappa: float) -> float:
    """max over s in [0, 1] of ``line s + ln(1 + kappa s (1 - s))``, which is concave."""
    if kappa <= line:
        return line
    # line (1 + kappa s (1 - s)) + kappa (1 - 2 s) = 0, between 1/2 and 1
    low, high = 0.5, 1.0
    for _ in range(60):
        s = (low + high) / 2
        low, high = (s, high) if line * (1 + kappa * s * (1 - s)) + kappa * (1 - 2 * s) > 0 else (low, s)
    # The value at the upper end with the largest curvature of the interval: never too small.
    return line * high + math.log1p(kappa * low * (1 - low))


def _own(model: PrivateRegression) -> np.ndarray:
    """(p,) the user's ridge in the unit of the sum."""
    out: np.ndarray = 2 * model.penalty.ridge / model.scale
    return out


def noise_scale(model: PrivateRegression, ridge: float, epsilon: float) -> float:
    """The least beta whose charge is at most ``epsilon``; inf where none is."""
    least = model.largest_weight * model.row.sensitivity(1.0, 1.0) / epsilon
    if charge(model, ridge, least) <= epsilon * (1 + 1e-13):
        return least
    high = least
    for _ in range(60):
        high *= 2
        if charge(model, ridge, high) <= epsilon:
            break
    else:
        return math.inf
    low = high / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if charge(model, ridge, middle) <= epsilon else (middle, high)
    return high


def design(model: PrivateRegression, epsilon: float, ridge: float) -> PureDesign | None:
    """The noise for this budget and ridge; None where curvature takes all of epsilon, or double precision does not hold
    what follows."""
    try:
        scale = noise_scale(model, ridge, epsilon * (1 - _OUTPUT) * _ROUNDED)
        linear = scale * (4 * math.sqrt(model.size) + 40)
        facts = _facts(model, ridge, linear)
        ball = facts.size
        error = facts.rounding(ball, facts.ridge * ball + facts.total * facts.row + _penalty_size(model))
        radius = 2.5 * error / facts.strong + 2.0**-60 * math.sqrt(model.size) * scale / facts.strong
        output = 2 * math.sqrt(model.size) * radius / (epsilon * _OUTPUT * _ROUNDED)
        steps = facts.steps(radius * facts.strong / 2, linear + _penalty_size(model))
        numbers = (scale, ball, radius, output, facts.smooth)
    except (ArithmeticError, ValueError):
        return None
    holds = all(0 < number < math.inf for number in numbers) and radius < 1e-3 * ball and steps <= MOST_STEPS
    root = math.sqrt(2)
    found = PureDesign(ridge, 0.0, 0.0, root * scale, linear, radius, root * output, facts, ball, scale, output)
    return found if holds else None


def _facts(model: PrivateRegression, ridge: float, length: float) -> Facts:
    return facts_of(model, ridge, ridge + float(_own(model).min()), length)


@cached
def _designs(model: PrivateRegression, epsilon: float) -> list[PureDesign]:
    moved = model.largest_weight * model.row.sensitivity(1.0, 1.0) / epsilon
    rule, own = math.sqrt(2) * moved, float(_own(model).min())
    # g / beta >= kappa, for the least beta
    free = model.row.norm(2.0) ** 2 * moved / model.row.norm(1.0) * (1 + 1e-6)
    wanted = [*(factor * rule for factor in _FACTORS), *([free] if 0.1 < free / rule < 100 else [])]
    ridges = dict.fromkeys(max(ridge - own, 0.0) for ridge in wanted)
    found = [design(model, epsilon, ridge) for ridge in ridges if ridge + own > 0]
    return [each for each in found if each is not None]


PURE_OBJECTIVE_PERTURBATION = PureObjectivePerturbation()
__all__ = ["PURE_OBJECTIVE_PERTURBATION", "PureObjectivePerturbation"]
