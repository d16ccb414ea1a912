"""Multinomial regressions: the mechanisms for one prediction of a record, for K of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpmodel.classify.private_multinomial import PrivateMultinomial
from dpmodel.mechanisms.contract import Serves
from dpmodel.mechanisms.regression.descent.full_batch import NoisyDescent
from dpmodel.mechanisms.regression.descent.subsampled import SubsampledDescent
from dpmodel.mechanisms.regression.public_only import PublicOnlyRegression


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

    serves: ClassVar[Serves] = Serves(PrivateMultinomial)


@dataclass(frozen=True)
class MultinomialSubsampled(SubsampledDescent):
    """Gradient steps for K classes on Poisson samples of the rows: ``SubsampledDescent`` with the sums and the reach of
    ``MultinomialDescent``."""

    serves: ClassVar[Serves] = Serves(PrivateMultinomial)


@dataclass(frozen=True)
class PublicOnlyMultinomial(PublicOnlyRegression):
    """Equal chances of all classes, or the point of the set that comes nearest to them: no private row is read."""

    serves: ClassVar[Serves] = Serves(PrivateMultinomial)


MULTINOMIAL_DESCENT = MultinomialDescent()
MULTINOMIAL_SUBSAMPLED = MultinomialSubsampled()
PUBLIC_ONLY_MULTINOMIAL = PublicOnlyMultinomial()
__all__ = [
    "MULTINOMIAL_DESCENT",
    "MULTINOMIAL_SUBSAMPLED",
    "PUBLIC_ONLY_MULTINOMIAL",
    "MultinomialDescent",
    "MultinomialSubsampled",
    "PublicOnlyMultinomial",
]
