"""Objective perturbation: minimise the objective plus a random linear term, and release the minimiser."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import Any, ClassVar

import numpy as np

from dpmodel._types import Floats, PrivateArray
from dpmodel.contract import YES, Mechanism, Options, Outcome, Progress, Serves, Verdict, no_progress
from dpmodel.forecast import Forecast
from dpmodel.memo import cached
from dpmodel.numerics.nearest_point import accelerated
from dpmodel.privacy import NoiseSource, gaussian_delta, gaussian_mu, public_generator
from dpmodel.regressions.excess import excess_forecast
from dpmodel.regressions.model import PrivateRegression, public_point
from dpmodel.regressions.noisy_gradient import projects_exactly
from dpmodel.regressions.perturbed_objective import DENSE, SOFTER, Facts, PerturbedObjective
from dpmodel.regressions.populations import Populations, Trials, side_by_side
from dpmodel.regressions.search import MANY, NEGLIGIBLE
from dpmodel.regressions.synthetic import coarsened, each_population, populations_of

# Shares of epsilon that the curvature term ln(1 + ...) may take: the smaller, the stronger the added ridge.
_SHARES = (0.5, 0.3, 0.15, 0.08, 0.04, 0.02, 0.01, 0.003, 0.001, 0.0003)
_OUTPUT = 0.01  # part of mu^2 that the noise on the output takes
_FAILURE = 1e-3  # part of delta for a random term longer than the number of steps was computed for
_SIMULATED_STEPS, _FIRST_STEPS = 20, 12  # of the design that was chosen, and of those compared
MOST_STEPS = 10_000_000  # of the solver, on the worst data
_DRAWS, _SHARED = 4, 500  # draws of the noise per population for the chosen design; times columns, so many
# Of the most that a smooth loss can cost (its slope over its sharpness), what it does where labels are not symmetric,
# as simulated ones are: .8 to 1.1 % on tables for development.
_SKEW = 0.01
_SIDE_BY_SIDE = 200_000  # numbers in the largest arrays of designs side by side


@dataclass(frozen=True)
class Design:
    """The noise for one budget. In the unit of the sum of losses.

    ``ridge`` : added ``ridge ||w - center||^2 / 2``; ``curvature`` : the part of epsilon for determinants; ``mu`` :
    sensitivity over standard deviation of both noises together; ``sigma`` : of the random term's entries; ``linear`` :
    what its 2-norm exceeds with probability ``_FAILURE delta / (1 + e^epsilon)`` at most; ``radius`` : the released
    point's centre is certified to lie so near the minimiser; ``output`` : standard deviation of the noise on it;
    ``facts`` : see there; ``ball`` : the radius of the ball that the minimiser is projected onto;
    ``sharpness`` : of the loss that is minimised, see ``Loss``.
    """

    ridge: float
    curvature: float
    mu: float
    sigma: Any
    linear: float
    radius: float
    output: float
    facts: Facts
    ball: float = math.inf
    sharpness: float = math.inf

    @property
    def output_scale(self) -> float:
        """What the sampler of the output's noise is given."""
        return self.output


class PerturbedMinimiser(Mechanism[PrivateRegression], ABC):
    """Release the minimiser of the objective plus a random linear term, with a little noise on it: what is the same for
    both distributions of the noise."""

    pure: ClassVar[bool] = False
    serves: ClassVar[Serves] = Serves(PrivateRegression, reads_blocks=True, adds_up=False)

    @abstractmethod
    def refusal(self, model: PrivateRegression, options: Options) -> str:
        """Why the proof does not cover this model; "" where it does."""

    @abstractmethod
    def designs(self, model: PrivateRegression, options: Options) -> list[Any]:
        """The designs that simulations compare."""

    def inside(self, model: PrivateRegression) -> tuple[PrivateRegression, Floats | float]:
        """The model that is solved, and what its coefficients are divided by to be the given one's."""
        return model, 1.0

    def drawn(self, plan: Any, size: int, noise: NoiseSource) -> Floats:
        """(size,) the random term."""
        return noise.gaussian(np.zeros(size), plan.sigma)

    def eligible(self, model: PrivateRegression, options: Options) -> Verdict:
        why = self.refusal(model, options)
        if not why and model.in_blocks and model.size > DENSE:
            why = f"more than {DENSE} coefficients take many passes, and rows in blocks cost one each"
        if not why and model.weight <= 0:
            why = "the losses have no weight"
        if not why and not self.designs(self.inside(model)[0], options):
            why = "double precision does not hold the noise: a larger epsilon, or rows, labels and clip= nearer 1"
        return Verdict(False, why) if why else YES

    def chosen(self, model: PrivateRegression, options: Options) -> tuple[Any, float]:
        """The design, and its mean excess risk on the synthetic populations."""
        key, (solved, _) = (self, options.epsilon, options.delta), self.inside(model)
        return solved.cached(key, lambda: _best(solved, self.designs(solved, options)))

    def forecast(self, model: PrivateRegression, options: Options) -> Forecast:
        (plan, predicted), proved = self.chosen(model, options), math.inf
        solved = self.inside(model)[0]
        if not self.pure:
            proved = proved_excess(model, plan, options.beta)
        scale = "scale" if self.pure else "standard deviation"
        usual, most = plan.facts.passes(plan.radius * plan.facts.strong / 2, plan.linear + _penalty_size(solved))
        caveats = ("coefficients are not bounded: no proved bound, a prediction only",)
        return excess_forecast(
            model,
            replace(options, delta=0.0) if self.pure else options,
            predicted=predicted,
            at_most=proved,
            work=f"about {usual} products with the rows, at most {most:,} on unusual data",
            noise={
                "kind": "laplace" if self.pure else "gaussian",
                "standard deviation of the random linear term": float(np.sqrt(np.mean(np.square(plan.sigma)))),
                f"{scale} on the output": plan.output_scale,
                "ridge added": plan.ridge * model.scale / 2,
                "epsilon for curvature": plan.curvature,
                "distance certified": plan.radius,
            },
            caveats=() if math.isfinite(proved) else caveats,
        )

    def run(
        self, model: PrivateRegression, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Outcome:
        plan, (solved, units) = self.chosen(model, options)[0], self.inside(model)
        center, add = public_point(solved), noise.laplace if self.pure else noise.gaussian
        progress("minimising the perturbed objective", 0.0)
        b = self.drawn(plan, solved.size, noise)
        plan = self.for_length(solved, plan, float(np.linalg.norm(b)))
        objective = perturbed(solved, plan, b)
        point, certified = objective.minimise(center, plan.radius, plan.linear + _penalty_size(solved))
        if not certified:
            point = center
        progress("minimising the perturbed objective", 1.0)
        point = point * min(1.0, plan.ball / max(float(np.linalg.norm(point)), 1e-300))
        w = solved.domain.project(add(PrivateArray(point), plan.output_scale))
        return Outcome("optimal", w / units, None, None)

    def for_length(self, model: PrivateRegression, plan: Any, length: float) -> Any:
        """The design once the length of the random term is drawn."""
        return plan


@dataclass(frozen=True)
class ObjectivePerturbation(PerturbedMinimiser):
    """Release ``argmin_W Phi(w) + <b, w>`` plus a little noise, Phi the objective with a ridge added, b Gaussian.

    Source
        Chaudhuri, Monteleoni and Sarwate 2011; Kifer, Smith and Thakurta 2012 (Gaussian b, constraints); Iyengar et al.
        2019 (approximate minima); Redberg, Koskela and Wang 2023 (hockey-stick analysis for generalised linear
        models). The statement used is proved here, for replace-one and absent records and for several classes.
    Privacy
        Unit: the sum, objective / scale. ``Phi_D(w) = sum_i omega_i f(a_i'w + o_i, y_i) + penalty(w)/scale + Lambda ||w
        - c||^2 / 2``, f convex with ``|f'| <= r`` and ``0 <= f'' <= B`` for *every* prediction: r is the derivative
        bound over the set, and beyond it derivatives are cut to [-r, r], which keeps f convex and the constrained
        minimiser what it was. D and D' differ in record i: (x, y) against (x', y').

        (1) *Exact minimiser, no set.* grad Phi_D is strongly monotone and Lipschitz, so ``w -> b_D(w) = -grad
        Phi_D(w)`` is a bi-Lipschitz bijection, and the minimiser has the density ``phi(b_D(w)) |det J_D(w)|``, phi
        that of N(0, sigma^2 I) (kinks of f' and of the penalty: null sets on both sides). With the part H common to
        both, ``J_D = H + k x x'`` and ``J_D' = H + k' x' x''`` with 0 <= k, k' <= omega B and ``H >= Lambda +
        ridges``, so that ``det J_D / det J_D' = (1 + k x'H^-1 x) / (1 + k' x''H^-1 x') <= e^C``, ``C = ln(1 + omega B
        max_x x'(Lambda + ridges)^-1 x)``. And ``b_D' = b_D + Delta`` with ``Delta = omega (s x - s' x')``, |s|, |s'|
        <= r: ``ln(p/q) <= C + u(s, s')``, ``u = (<b, Delta> + ||Delta||^2 / 2) / sigma^2``. s and s' depend on b
        through w, but u is convex in them, hence at most its largest value over the four corners ``s, s' = +-r``, and
        there Delta does not depend on b: u is the privacy loss of a Gaussian mechanism, N(a^2/2, a^2) with a =
        ||Delta|| / sigma. (The rank-one structure is what frees this from the dimension.)
        (2) *Output noise.* The solver's point v satisfies ``||v - w*|| <= radius`` (certificate below), and v is a
        function of D and b, hence of D and w*. Release v + N(0, tau^2 I): given w*, that is a Gaussian
        mechanism of sensitivity 2 radius, a_o = 2 radius / tau. Losses add up: the pair (w*, release) has
        ``delta(epsilon) = E(1 - e^(epsilon - loss))_+ <= E max_corners (1 - e^(epsilon - C - u - u_o))_+ <= sum_corners
        h(a_corner^2 + a_o^2)``, ``h(v) = delta_Gauss(mu = sqrt v; epsilon - C)``.
        (3) *Corners.* Corners come in pairs, Delta = +-omega r (x + x') and +-omega r (x - x'). Replace-one: ``a_1^2 +
        a_2^2 <= 4 r^2 omega^2 R^2 / sigma^2 = A^2``, R the largest norm of a row, and h is convex up to ``2 (sqrt(1 +
        e^2) - 1)``, e = epsilon - C (its derivative is ``phi(e/mu - mu/2) / (2 mu)``; mu is capped there), so the sum
        of the pairs is at most ``2 h(A^2 + a_o^2) + 2 h(a_o^2)``. An absent record is (0, constants): ``a_1^2 <= r^2
        omega^2 (R_moving^2 + 4 R_constant^2) / sigma^2`` and ``a_2^2 <= r^2 omega^2 R_moving^2 / sigma^2``; without
        constants the four corners are two. ``gradient_sensitivity(2)`` is sigma a_1 in both cases.
        (4) *Sets and l1 terms.* Replace the indicator of W by ``K dist(., W)^2`` (an l1 term by its Moreau envelope):
        convex with Lipschitz gradient, so (1) holds for its minimiser w_K. ``||v - w_K|| <= radius + ||w* - w_K||``,
        and w_K -> w* for every b, so outside an event whose probability vanishes as K grows (2) holds with any larger
        radius. The release does not depend on K; delta is continuous in the radius: the bound is the same.
        (5) *Whatever the solver does.* v is released only with its certificate; without it the public centre is put in
        its place (same noise). The solver ends with accelerated gradient steps whose number is proved to be enough for
        the certificate, from public constants, unless ||b|| exceeds ``linear``. That has a probability pi for D and D'
        alike; the mechanism that would release w* then instead is within pi of this one, which costs ``(1 + e^epsilon)
        pi <= _FAILURE delta``. The certificate counts the rounding of gradients and that of b (within 2^-52 of its
        norm). Time: the number of steps depends on b and the data, as do all running times here.
        delta = ``2 h(mu^2) + 2 h(second pair) + (1 + e^epsilon) pi``; projecting onto W is post-processing.

        *Several classes*, W (K, p) and ``Phi_D(W) = sum_i omega_i l(W a_i, y_i) + penalty(W)/scale + Lambda ||W -
        c||^2 / 2``. l is smooth, convex, and its derivative s = p - y lies in the convex hull of the K points ``e_k -
        y``, whatever W is: no derivative is cut, with a set or without. A common shift of all scores leaves l as it
        is, but Lambda > 0 holds every coefficient, so that Phi_D is strongly convex.

        (1') *Determinants.* As in (1) W -> b_D(W) is a bijection, and the minimiser has the density ``phi(b_D(W)) |det
        J_D(W)|``. The record's part of J_D is omega times the Kronecker product of ``M = diag(p) - p p'`` and the row's
        outer product. It is positive semidefinite, so with the part H common to both ``det J_D' >= det H`` and ``det
        J_D / det H = det(I + omega V'H^-1 V)``, V the Kronecker product of M^(1/2) and the row. H is at least the
        diagonal of Lambda and ridges, hence ``V'H^-1 V <= L M``, L the leverage with the least ridge over the classes.
        M takes the vector of ones to 0: of its eigenvalues K - 1 are left, of sum ``1 - sum p_k^2 <= (K-1)/K``, and by
        the inequality of the means ``det <= prod (1 + omega L lambda_j) <= (1 + omega L / K)^(K-1) = e^C``, attained
        for p = 1/K as H nears its bound.
        (2') *Shift and output.* ``b_D' = b_D + Delta``, Delta = omega times the outer product of s and x less that of
        s' and x'. y and y' do not depend on b; s and s' do, and u is convex in them, so it is at most its largest value
        over the K^2 corners ``s = e_k - y, s' = e_l - y'``, where Delta does not depend on b. As in (2): delta <= the
        sum over corners of ``h(a_corner^2 + a_o^2)``, ``a = |Delta| / sigma``.
        (3') *Corners.* h is convex and grows where it is used; a^2 is convex in (y, y') and in (x, x') and linear in
        ``<x, x'>``. So the sum is largest for labels 0 or e_j, rows of the largest norm R, and x' = x or -x. Of all
        these y = y' = e_j, x' = -x is the dearest: ``|Delta|^2 = omega^2 R^2 |s + s'|^2``, which is 8 for k = l, 6 for
        k and l apart, 2 for one of them j, 0 for both: at K - 1, (K-1)(K-2), 2 (K-1) corners and 1. In any other case
        the j largest values sum to no more than the j largest of these, for every j, and then so do their h
        (majorisation). An absent record is (0, constants) with y' = 0, ``|Delta|^2 = omega^2 (|s|^2 R_moving^2 + |s -
        s'|^2 R_constant^2)``: by the same reasons y = e_j is the dearest, with ``|s|^2 = 2`` and ``|s - s'|^2`` 5 for l
        = j, 3 for k and l apart, 1 for k = l, or, with s = 0, 1: at K - 1, (K-1)(K-2), K - 1 and K corners (without
        constants at K - 1, and at 1). ``gradient_sensitivity(2)`` for derivatives of sqrt(2) is at least sigma a.
        (4), (5) as above, with the smoothness 1/2 of l and ``|s| <= sqrt(2)``; softmax adds K ulp to the rounding of
        derivatives. The minimiser's public bound counts that l has no lower bound where y sums to less than 1.
    Utility
        F the objective, w^ its minimiser over a bounded W, rho = max ||w - c||: optimality of w* for F + scale (Lambda
        ||. - c||^2/2 + <b, .>) gives ``F(w*) - F(w^) <= scale (Lambda rho^2/2 + min(||b||^2 / (2 Lambda), 2 rho
        ||b||))``: strong convexity takes ``Lambda d^2 / 2`` off ``<b, w^ - w*> <= ||b|| d``, d = ||w^ - w*||. Moving
        from w* to the release costs the Lipschitz constant times its length. Lambda is the one that does best on
        synthetic populations; ``predicted`` is their mean.
    Cost
        Newton's method on a sample of 5,000 rows (10 p above 500 columns), then on all rows about five gradients of two
        products (eight at most), one with n p^2 / 2 more for the Hessian, and the certificate (two; four with a set):
        12 or 14 products, two of which read the rows once. Up to twice the sample's rows, and in blocks: at most ten
        steps and Hessians. Where the certificate fails, pairs of further steps. Above 1,200 columns conjugate gradients
        (up to 200 products a step), with a set accelerated steps instead.
        ``work`` tells the largest number. Of K classes each product is of K p coefficients, and a Hessian takes K (K-1)
        / 2 matrices (p, p).
    Errors
        Refuses by ``eligible``: delta = 0, losses that are not smooth, unbounded derivatives, sets without exact
        projection.

    ``ridge`` : Lambda in the unit of the sum; None lets the simulation choose.
    """

    serves: ClassVar[Serves] = Serves(PrivateRegression, reads_blocks=True, classes=True, weights=True, adds_up=False)
    name: str = "objective-perturbation"
    source: str = "Chaudhuri, Monteleoni and Sarwate 2011; Kifer, Smith and Thakurta 2012; Iyengar et al. 2019"
    ridge: float | None = None

    def refusal(self, model: PrivateRegression, options: Options) -> str:
        if options.delta <= 0:
            return "its Gaussian random term needs delta > 0"
        if not math.isfinite(model.loss.smoothness):
            return f"the {model.loss.name} loss has kinks: its minimiser moves by jumps"
        if not math.isfinite(model.derivative_bound):
            return "derivatives of the loss are not bounded: bound the coefficients, or clip residuals"
        if not math.isfinite(model.row.norm(2.0)):
            return "the 2-norm of a row is not bounded"
        if model.penalty.other is not None:
            return "the penalty has terms that are neither ridge nor l1 nor linear"
        if not projects_exactly(model.domain):
            return "the set's projection is not exact, so that no minimiser can be certified"
        if model.penalty.l1.any() and model.domain.kind != "free":
            return "an l1 penalty and a set together: no exact proximal step"
        if self.ridge is not None and self.ridge + 2 * model.penalty.ridge.min() / model.scale <= 0:
            return "ridge=0 and coefficients without a ridge: the objective is not strongly convex"
        if self.ridge is not None and _bent(model, self.ridge) >= options.epsilon:
            return f"the curvature of the loss takes all of epsilon with ridge={self.ridge:g}: a larger one, or none"
        return ""

    def designs(self, model: PrivateRegression, options: Options) -> list[Design]:
        return _designs(model, self.ridge, options.epsilon, options.delta)


def _best(model: PrivateRegression, found: Sequence[Any]) -> tuple[Any, float]:
    few = coarsened(side_by_side(each_population(model)[:: 1 if model.size <= MANY else 2]))
    most = max(1, _SIDE_BY_SIDE // (few.count * max(model.size, few.points)))
    alike = (list(plans) for _, plans in groupby(found, lambda plan: plan.sharpness))
    parts = [plans[at : at + most] for plans in alike for at in range(0, len(plans), most)]
    errors = np.concatenate([predicted_excesses(model, part, few, steps=_FIRST_STEPS) for part in parts])
    if model.scores > 1:  # as settings of descents are chosen: hard populations do not decide for easy ones
        errors = np.log(NEGLIGIBLE + np.clip(errors / np.maximum(few.nothing, 1e-300), 0.0, 1.0))
    best = found[int(np.argmin(errors.mean(axis=1)))]
    draws = max(1, min(_DRAWS, _SHARED // model.size))
    return best, float(predicted_excesses(model, [best], populations_of(model), draws).mean())


# ---------------------------------------------------------------------- from public facts to noise
def smoothness(model: PrivateRegression) -> float:
    """B: largest second derivative of one loss, labels of any declared size."""
    labels = max(1.0, model.row.label_bound) if model.loss.labels == "sign" else 1.0
    return model.loss.smoothness * labels**2


def smoothed(model: PrivateRegression, sharpness: float) -> PrivateRegression:
    """The model with a loss of this sharpness."""
    if sharpness == model.loss.sharpness:
        return model
    memo = model.cached(("smoothed", sharpness), dict[Any, Any])
    return replace(model, loss=replace(model.loss, sharpness=sharpness), _memo=memo)


def leverage(model: PrivateRegression, ridge: float) -> float:
    """Largest ``x' (ridge + user's ridges)^-1 x`` over the rows allowed; inf where a coefficient has no ridge."""
    out = 0.0
    for square, own in _levers(model):
        least = ridge + own
        out += square / least if least > 0 else math.inf
    return out


def determinants(model: PrivateRegression) -> tuple[int, float]:
    """(k, B): one record changes determinants by a factor of ``(1 + omega B leverage)^k`` at most."""
    return (1, smoothness(model)) if model.scores == 1 else (model.scores - 1, 1 / model.scores)


def steepness(model: PrivateRegression) -> float:
    """r: largest norm of the derivative, over the set. That of several scores is not cut beyond the set, where what is
    cut would be no gradient: its bound holds for all scores (and labels that sum to 1 as it is checked, to 1e-9)."""
    return model.derivative_bound if model.scores == 1 else model.loss.derivative_bound(math.inf, 1.0) * (1 + 1e-9)


@cached
def _levers(model: PrivateRegression) -> list[tuple[float, float]]:
    """Largest squared norm of the columns that move and of those that do not, and the user's least ridge on them."""
    own, fixed = (2 * model.penalty.ridge / model.scale).reshape(model.scores, -1).min(axis=0), model.row.constant
    parts = ((~fixed, model.row.moving(2.0)), (fixed, model.row.fixed(2.0)))
    return [(size**2, float(own[columns].min())) for columns, size in parts if columns.any() and size > 0]


def _bent(model: PrivateRegression, ridge: float) -> float:
    """The part of epsilon that determinants take."""
    power, bend = determinants(model)
    return power * math.log1p(model.largest_weight * bend * leverage(model, ridge)) * (1 + 1e-12)


def ridge_for(model: PrivateRegression, curvature: float) -> float:
    """Least ridge to add that leaves ``k ln(1 + omega B leverage) <= curvature``; 0 where the user's ridge does."""
    power, bend = determinants(model)
    # Beyond e^500 a share less of epsilon: a larger ridge than asked for is as good.
    wanted = math.expm1(min(curvature / power, 500.0)) / (model.largest_weight * bend)
    # Without the user's ridge: R^2 / ridge. With it less is needed: bisection between the two.
    high = model.row.norm(2.0) ** 2 / wanted * (1 + 1e-9)
    if leverage(model, 0.0) <= wanted and model.penalty.ridge.min() > 0:
        return 0.0
    low = 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if leverage(model, middle) <= wanted else (middle, high)
    return high


@cached
def _designs(model: PrivateRegression, ridge: float | None, epsilon: float, delta: float) -> list[Design]:
    shares = _SHARES if model.size <= MANY else _SHARES[1::2]
    try:
        ridges = [ridge_for(model, share * epsilon) for share in shares] if ridge is None else [ridge]
    except ArithmeticError:  # losses whose curvature, or an epsilon, is not told from 0
        return []
    found = (design(model, epsilon, delta, each) for each in dict.fromkeys(ridges))
    return [each for each in found if each is not None]


def design(model: PrivateRegression, epsilon: float, delta: float, ridge: float) -> Design | None:
    """The noise for this budget and ridge; None where curvature takes all of epsilon, or where public numbers are so
    large or small that double precision does not hold what follows from them, or the solver might never end."""
    try:
        found = _design(model, epsilon, delta, ridge)
        if found is None:
            return None
        numbers = (found.mu, found.sigma, found.linear, found.radius, found.output, found.facts.smooth)
        holds = all(0 < number < math.inf for number in numbers) and found.radius**2 > 0
        steps = found.facts.steps(found.radius * found.facts.strong / 2, found.linear + _penalty_size(model))
    except (ArithmeticError, ValueError):
        return None
    return found if holds and steps <= MOST_STEPS else None


def _design(model: PrivateRegression, epsilon: float, delta: float, ridge: float) -> Design | None:
    own = 2 * model.penalty.ridge / model.scale
    strong = ridge + float(own.min())
    if strong <= 0:
        return None
    curvature = _bent(model, ridge)
    left = epsilon - curvature
    if left <= 0:
        return None
    moved = model.gradient_sensitivity(2.0, steepness(model))
    mu = noise_level(left, delta * (1 - _FAILURE), corners(model))
    sigma = moved / (mu * math.sqrt(1 - _OUTPUT))
    rare = math.log(1 / _FAILURE) - math.log(delta) + float(np.logaddexp(0.0, epsilon))
    length = sigma * (math.sqrt(model.size) + math.sqrt(2 * rare))
    facts = facts_of(model, ridge, strong, length)
    tolerance = 2.5e-4 * moved * strong / facts.smooth
    tolerance = max(tolerance, 2 * facts.rounding(facts.size, length + _penalty_size(model)))
    radius = tolerance / strong
    output = 2 * radius / (mu * math.sqrt(_OUTPUT))
    return Design(ridge, curvature, mu, sigma, length, radius, output, facts)


def corners(model: PrivateRegression) -> list[tuple[int, float]]:
    """(number, share): at so many corners ``a^2`` is at most this share of mu^2, the first the largest, see (3); both
    noises."""
    row, others = model.row, model.scores - 1
    largest = row.sensitivity(1.0, 2.0)
    constants = row.absent and row.fixed(2.0) > 0
    m, c = ((size / largest) ** 2 if constants else 0.0 for size in (row.moving(2.0), row.fixed(2.0)))
    if others == 0:
        found = [(2, 1.0), (2, m)]
    elif constants:
        found = [(others, m + 2.5 * c), (others * (others - 1), m + 1.5 * c), (others, m + 0.5 * c)]
        found += [(others + 1, 0.5 * c)]
    elif row.absent:
        found = [(others, 1.0), (1, 0.0)]
    else:
        found = [(others, 1.0), (others * (others - 1), 0.75), (2 * others, 0.25), (1, 0.0)]
    return [(number, share * (1 - _OUTPUT) + _OUTPUT) for number, share in found]


def noise_level(epsilon: float, delta: float, shares: Sequence[tuple[int, float]]) -> float:
    """mu with ``sum number h(share mu^2) <= delta``, inside the range where h is convex."""
    limit = math.sqrt(2 * (math.hypot(1.0, epsilon) - 1)) * (1 - 1e-9)
    parts = 1.0005 * shares[0][0]
    while True:  # the first share is the largest: with as many parts as corners it is enough
        mu = min(gaussian_mu(epsilon, delta / parts) / math.sqrt(shares[0][1]), limit)
        spent = sum(number * gaussian_delta(math.sqrt(share) * mu, epsilon) for number, share in shares)
        if spent <= delta:
            return mu
        parts *= 1.0005 * spent / delta


def facts_of(model: PrivateRegression, ridge: float, strong: float, length: float, drawn: float = 0.0) -> Facts:
    """Public constants of the perturbed objective; ``length`` bounds the 2-norm of the random term."""
    own, center = 2 * model.penalty.ridge / model.scale, public_point(model)
    steep, count = steepness(model), model.scores
    middle = float(np.linalg.norm(model.row.largest_predictions(center.reshape(count, -1)))) + model.offset_bound
    # At the centre a loss is at most r |z| above its value at z = 0, which is at most r |y| (numbers) or 1 (ln 2; 1)
    # above its least one, and strong/2 d^2 <= A + B d implies d <= sqrt(2 A / strong) + 2 B / strong. Of K scores it is
    # ln K at 0 and, with t = 1 - sum y in [0, 1], at least t times the mean score, |z| / sqrt(K) at most.
    at_zero = steep * model.row.label_bound if model.loss.labels == "number" else max(1.0, math.log(count))
    mean = 1 / math.sqrt(count) if count > 1 else 0.0
    above = model.total * ((steep + mean) * middle + at_zero)
    above += float(own @ center**2) / 2 + float(model.penalty.l1 @ np.abs(center)) / model.scale
    pull = length + float(np.linalg.norm(model.penalty.linear)) / model.scale + mean * model.total * model.row.norm(2.0)
    size = float(np.linalg.norm(center)) + math.sqrt(2 * above / strong) + 2 * pull / strong
    return Facts(
        curvature=smoothness(model),
        clip=steep,
        row=model.row.norm(2.0),
        total=model.total,
        offset=model.offset_bound,
        count=model.count,
        columns=model.size,
        scores=count,
        strong=strong,
        ridge=ridge + float(own.max()),
        size=min(size, model.domain.norm(2.0)),
        exact=model.domain.kind == "free" and not model.penalty.l1.any(),
        drawn=drawn,
        public=float(np.linalg.norm(model.penalty.linear)) / model.scale + ridge * float(np.linalg.norm(center)),
        starts=len(SOFTER) if math.isfinite(model.loss.sharpness) else 1,
    )


def _penalty_size(model: PrivateRegression) -> float:
    return float(np.linalg.norm(np.abs(model.penalty.linear) + model.penalty.l1)) / model.scale


def perturbed(model: PrivateRegression, plan: Any, b: Floats) -> PerturbedObjective:
    """The objective that ``run`` minimises. Reads the rows."""
    h = plan.ridge + 2 * model.penalty.ridge / model.scale
    linear = b + model.penalty.linear / model.scale - plan.ridge * public_point(model)
    loss = replace(model.loss, sharpness=plan.sharpness)
    given = model.read_table(), loss, plan.facts, model.domain, model.penalty, model.scale, h, linear
    return PerturbedObjective(*given, plan.ball)


# ---------------------------------------------------------------------- forecasts
def proved_excess(model: PrivateRegression, plan: Design, beta: float) -> float:
    """Excess empirical risk that is exceeded with probability beta at most; inf where the set is unbounded."""
    if not model.domain.bounded:
        return math.inf
    p = model.size
    rho = min(model.domain.diameter(2.0), model.domain.norm(2.0) + float(np.linalg.norm(public_point(model))))
    tail = math.sqrt(p) + math.sqrt(2 * math.log(2.01 / beta))  # and the rare event of (5)
    b, out = plan.sigma * tail, plan.radius + plan.output * tail
    bias = plan.ridge * rho**2 / 2 + min(b * b / (2 * plan.facts.strong), 2 * rho * b)
    steep = model.total * model.derivative_bound * model.row.norm(2.0) + _penalty_size(model)
    steep += 2 * float(model.penalty.ridge.max()) / model.scale * model.domain.norm(2.0)
    return float(model.scale * (bias + steep * out))


def predicted_excesses(
    model: PrivateRegression,
    plans: Sequence[Any],
    populations: Populations,
    draws: int = 1,
    steps: int = _SIMULATED_STEPS,
) -> Floats:
    """(plans, populations) mean excess risk of the released point over so many draws of the noise, the same for all
    plans. All are minimised side by side, and are of one sharpness; the risk is that of the loss with its kink. A plan
    has ``ridge``, ``facts`` and two standard deviations, ``sigma`` and ``output``: those of Gaussian noise stand for
    any."""
    generator, trials = public_generator(1), Trials(populations, len(plans), draws)
    drawn = (generator.standard_normal((draws, populations.count, model.size)) for _ in range(2))
    b, e = map(trials.spread, drawn)
    sigma, output, ridge = (
        trials.each([getattr(plan, name) for plan in plans]) for name in ("sigma", "output", "ridge")
    )
    rows, smooth = copy(trials.rows), smoothed(model, plans[0].sharpness)
    rows.__dict__["model"] = smooth
    steps *= 1 if smooth is model else 3  # curvature bounds say less where kinks were
    w = _minimise_simulated(smooth, rows, ridge, sigma * b, plans[0].facts.exact, steps)
    found = trials.excess(model.domain.projected(w + output * e)).mean(axis=1)
    return np.asarray(found + _SKEW * model.weight * steepness(smooth) / plans[0].sharpness)


def _minimise_simulated(
    model: PrivateRegression, rows: Populations, ridge: Floats, b: Floats, exact: bool, steps: int
) -> Floats:
    """(B, p) near the minimisers on synthetic populations: accelerated steps in the metric of their curvature, without
    the set; then, where there is a set or l1 term, from the proximal point, steps that keep to it. ``ridge`` : (B, 1)
    that is added; ``b`` : (B, p) the random terms; ``exact`` : neither set nor l1 term."""
    penalty, scale, center, curved = model.penalty, model.scale, public_point(model), smoothness(model)
    h = 2 * penalty.ridge + scale * ridge
    diagonal, solve = rows.curved(curved, h)

    def derivative(ahead: Floats) -> Floats:
        return rows.gradients(ahead) + penalty.derivative(ahead) + scale * (ridge * (ahead - center) + b)

    def proximal(v: Floats, weights: Floats) -> Floats:
        return penalty.shrink(v, 1 / weights) if penalty.l1.any() else model.domain.projected(v)

    v = _after(rows.start, lambda ahead: ahead - solve(derivative(ahead)), diagonal, steps)
    if exact:
        return v
    flat = rows.variance.max(axis=1) + (rows.mean**2).sum(axis=1) + (rows.common**2).sum(axis=1)
    flat = curved * model.weight * flat[:, None] + h.max(axis=1, keepdims=True)
    return _after(proximal(v, diagonal), lambda ahead: proximal(ahead - derivative(ahead) / flat, flat), flat, steps)


def _after(v: Floats, step: Callable[[Floats], Floats], weights: Floats, steps: int) -> Floats:
    return next(islice(accelerated(v, step, weights), steps - 1, None))


OBJECTIVE_PERTURBATION = ObjectivePerturbation()
__all__ = ["OBJECTIVE_PERTURBATION", "ObjectivePerturbation"]
