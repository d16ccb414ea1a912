"""Multinomial regressions: the mechanisms for one prediction of a record, for K of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpmodel.contract import Serves
from dpmodel.regressions.descent import NoisyDescent, SubsampledDescent
from dpmodel.regressions.model import PrivateMultinomial
from dpmodel.regressions.objective_perturbation import ObjectivePerturbation
from dpmodel.regressions.public_only import PublicOnlyRegression


@dataclass(frozen=True)
class MultinomialDescent(NoisyDescent):
    """Minimise the empirical multinomial risk by gradient steps on noisy sums of each class's derivatives.

    Source
        That of ``NoisyDescent``; the loss: McCullagh and Nelder 1989, chapter 5.
    Privacy
        As ``NoisyDescent``, for the matrix ``sum_i omega_i s_i (M a_i)'`` with s_i = p_i - y_i (K,), p_i =
        softmax(W a_i), its K p entries noised together. ``|s (M a)'| = |s| |M a|`` in the Frobenius norm, and in the
        sum of all entries with 1-norms, so that ``Metric.sensitivity`` holds with |s_i| in place of the size of a
        number. ``|p - y|_2 < sqrt(2)`` whatever W is, so one record moves the sum by less than ``2 sqrt(2) |M a|``
        (replace-one). Over all W no less will do: with two columns or more (the intercept is one) some W sets the
        scores of two rows as far apart as one likes, however near they are to each other, and then s is nearly
        e_j - e_k for the one and e_k - e_j for the other. At a released W the reach is smaller,
        ``Softmax.derivative_bound`` of the largest difference of two scores (``sqrt(1 - 1/K)`` at W = 0), and with the
        middles 1/K - y measured once, steps noise p - 1/K, which is at most ``sqrt(1 - 1/K)`` long.
    Utility
        Forecast: mean excess risk on simulated populations of K classes (``ClassPopulations``).
    Cost
        T passes over the features and T K p noisy numbers.

    Parameters
    ----------
    As ``NoisyDescent``.
    """

    serves: ClassVar[Serves] = Serves(PrivateMultinomial, reads_blocks=True)


@dataclass(frozen=True)
class MultinomialSubsampled(SubsampledDescent):
    """Gradient steps for K classes on Poisson samples of the rows: ``SubsampledDescent`` with the sums and the reach of
    ``MultinomialDescent``."""

    serves: ClassVar[Serves] = Serves(PrivateMultinomial, reads_blocks=True)


@dataclass(frozen=True)
class MultinomialObjectivePerturbation(ObjectivePerturbation):
    """Release ``argmin_W Phi(W) + <b, W>`` plus a little noise, Phi the multinomial objective with a ridge added.

    Source
        That of ``ObjectivePerturbation``, whose proof is for one prediction; what K of them change is proved here.
    Privacy
        Unit and notation of ``ObjectivePerturbation``, with W (K, p) and ``Phi_D(W) = sum_i omega_i l(W a_i, y_i) +
        penalty(W)/scale + Lambda ||W - c||^2 / 2``. l is smooth, convex, and its derivative s = p - y lies in the
        convex hull of the K points ``e_k - y``, whatever W is: no derivative is cut, with a set or without. A common
        shift of all scores leaves l as it is, but Lambda > 0 holds every coefficient, so that Phi_D is strongly convex.

        (1) *Determinants.* As there W -> b_D(W) is a bijection, and the minimiser has the density ``phi(b_D(W)) |det
        J_D(W)|``. The record's part of J_D is omega times the Kronecker product of ``M = diag(p) - p p'`` and the row's
        outer product. It is positive semidefinite, so with the part H common to both ``det J_D' >= det H`` and ``det
        J_D / det H = det(I + omega V'H^-1 V)``, V the Kronecker product of M^(1/2) and the row. H is at least the
        diagonal of Lambda and ridges, hence ``V'H^-1 V <= L M``, L the leverage with the least ridge over the classes.
        M takes the vector of ones to 0: of its eigenvalues K - 1 are left, of sum ``1 - sum p_k^2 <= (K-1)/K``, and by
        the inequality of the means ``det <= prod (1 + omega L lambda_j) <= (1 + omega L / K)^(K-1) = e^C``, attained
        for p = 1/K as H nears its bound.
        (2) *Shift and output.* ``b_D' = b_D + Delta``, Delta = omega times the outer product of s and x less that of s'
        and x'. y and y' do not depend on b; s and s' do, and u is convex in them, so it is at most its largest value
        over the K^2 corners ``s = e_k - y, s' = e_l - y'``, where Delta does not depend on b. As there: delta <= the
        sum over corners of ``h(a_corner^2 + a_o^2)``, ``a = |Delta| / sigma``.
        (3) *Corners.* h is convex and grows where it is used; a^2 is convex in (y, y') and in (x, x') and linear in
        ``<x, x'>``. So the sum is largest for labels 0 or e_j, rows of the largest norm R, and x' = x or -x. Of all
        these y = y' = e_j, x' = -x is the dearest: ``|Delta|^2 = omega^2 R^2 |s + s'|^2``, which is 8 for k = l, 6 for
        k and l apart, 2 for one of them j, 0 for both: at K - 1, (K-1)(K-2), 2 (K-1) corners and 1. In any other case
        the j largest values sum to no more than the j largest of these, for every j, and then so do their h
        (majorisation). An absent record is (0, constants) with y' = 0, ``|Delta|^2 = omega^2 (|s|^2 R_moving^2 + |s -
        s'|^2 R_constant^2)``: by the same reasons y = e_j is the dearest, with ``|s|^2 = 2`` and ``|s - s'|^2`` 5 for l
        = j, 3 for k and l apart, 1 for k = l, or, with s = 0, 1: at K - 1, (K-1)(K-2), K - 1 and K corners (without
        constants at K - 1, and at 1). ``gradient_sensitivity(2)`` for derivatives of sqrt(2) is at least sigma a.
        (4), (5) as there, with the smoothness 1/2 of l and ``|s| <= sqrt(2)``; softmax adds K ulp to the rounding of
        derivatives. The minimiser's public bound counts that l has no lower bound where y sums to less than 1.
    Utility
        As ``ObjectivePerturbation``, on simulated populations of K classes (``ClassPopulations``).
    Cost
        The same number of products, each of K p coefficients; a Hessian takes K (K-1) / 2 matrices (p, p).
    """

    serves: ClassVar[Serves] = Serves(PrivateMultinomial, reads_blocks=True)


@dataclass(frozen=True)
class PublicOnlyMultinomial(PublicOnlyRegression):
    """Equal chances of all classes, or the point of the set that comes nearest to them: no private row is read."""

    serves: ClassVar[Serves] = Serves(PrivateMultinomial, reads_blocks=True)


MULTINOMIAL_DESCENT = MultinomialDescent()
MULTINOMIAL_SUBSAMPLED = MultinomialSubsampled()
MULTINOMIAL_OBJECTIVE_PERTURBATION = MultinomialObjectivePerturbation()
PUBLIC_ONLY_MULTINOMIAL = PublicOnlyMultinomial()
__all__ = [
    "MULTINOMIAL_DESCENT",
    "MULTINOMIAL_OBJECTIVE_PERTURBATION",
    "MULTINOMIAL_SUBSAMPLED",
    "PUBLIC_ONLY_MULTINOMIAL",
    "MultinomialDescent",
    "MultinomialObjectivePerturbation",
    "MultinomialSubsampled",
    "PublicOnlyMultinomial",
]
