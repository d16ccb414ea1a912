"""Subsampling: coins, the accountant against integration and against dp_accounting, and its refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from dpmodel.errors import SpecificationError
from dpmodel.privacy import (
    SeededSource,
    poisson_sample,
    subsampled_epsilon,
    subsampled_multiplier,
)
from dpmodel.privacy.accounting import _LEAST_MULTIPLIER
from dpmodel.privacy.opendp_source import OpenDPSource

pytestmark = pytest.mark.filterwarnings("ignore::dpmodel.errors.NotPrivateWarning")


def _delta(epsilon: float, multiplier: float, rate: float, replace: bool) -> float:
    """Hockey-stick divergence of one step, by integration; the larger of both directions."""

    x = np.linspace(-1, 1, 200_001) * (12 * multiplier + 1)

    def density(shift: float) -> np.ndarray:
        return np.asarray((1 - rate) * norm.pdf(x, scale=multiplier) + rate * norm.pdf(x, loc=shift, scale=multiplier))

    first, second = density(1.0), density(-1.0 if replace else 0.0)
    ahead = (np.maximum(p - math.exp(epsilon) * q, 0.0) for p, q in ((first, second), (second, first)))
    return max(float(np.trapezoid(one, x)) for one in ahead)


@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize(("multiplier", "rate"), [(1.0, 0.1), (2.0, 0.3), (0.8, 0.02)])
def test_one_step_is_the_integral(multiplier: float, rate: float, replace: bool) -> None:
    delta = 1e-4
    epsilon = subsampled_epsilon(multiplier, rate, 1, delta, replace=replace)
    assert _delta(epsilon, multiplier, rate, replace) <= delta * (1 + 1e-6)
    assert _delta(epsilon - 0.01, multiplier, rate, replace) > delta


def test_opposite_records_are_the_worst() -> None:
    """The lemma of the module: no pair of vectors of norm at most 1 diverges more (Monte Carlo in the plane)."""
    rng = np.random.default_rng(0)
    rate, epsilon = 0.3, 0.3
    noise = rng.standard_normal((100_000, 2))

    def density(x: np.ndarray, shift: np.ndarray) -> np.ndarray:
        one = np.exp(-((x - shift) ** 2).sum(1) / 2)
        return np.asarray((1 - rate) * np.exp(-(x**2).sum(1) / 2) + rate * one)

    def divergence(x: np.ndarray, other: np.ndarray) -> float:
        drawn = noise + np.where(rng.random(noise.shape[0]) < rate, 1.0, 0.0)[:, None] * x
        return float(np.maximum(1 - math.exp(epsilon) * density(drawn, other) / density(drawn, x), 0).mean())

    worst = divergence(np.array([1.0, 0.0]), np.array([-1.0, 0.0]))
    for angle in np.linspace(0, np.pi, 7):
        for size in (0.5, 1.0):
            other = size * np.array([math.cos(angle), math.sin(angle)])
            assert divergence(np.array([1.0, 0.0]), other) <= worst + 5e-4


@pytest.mark.parametrize("replace", [True, False])
def test_composition_agrees_with_the_library_and_is_conservative(replace: bool) -> None:
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.privacy_accountant import NeighboringRelation

    relation = NeighboringRelation.REPLACE_ONE if replace else NeighboringRelation.ADD_OR_REMOVE_ONE
    accountant = PLDAccountant(relation, value_discretization_interval=1e-4)
    accountant.compose(SelfComposedDpEvent(PoissonSampledDpEvent(0.05, GaussianDpEvent(2.0)), 50))
    fine = accountant.get_epsilon(1e-6)
    ours = subsampled_epsilon(2.0, 0.05, 50, 1e-6, replace=replace)
    assert fine <= ours * (1 + 1e-9) <= fine * 1.01


@pytest.mark.parametrize(
    ("epsilon", "rate", "steps", "replace"), [(1.0, 0.03, 64, True), (0.1, 0.125, 64, False), (8.0, 0.01, 100, True)]
)
def test_multipliers_are_valid_and_nearly_least(epsilon: float, rate: float, steps: int, replace: bool) -> None:
    multiplier = subsampled_multiplier(epsilon, 1e-6, rate, steps, replace=replace)
    assert subsampled_epsilon(multiplier, rate, steps, 1e-6, replace=replace) <= epsilon * 1.03  # a coarser grid
    if multiplier > _LEAST_MULTIPLIER:
        assert subsampled_epsilon(multiplier / 1.03, rate, steps, 1e-6, replace=replace) > epsilon * 0.99


def test_coins() -> None:
    for source in (SeededSource(3), OpenDPSource()):
        for rate in (0.03, 0.5, 0.9):
            hits = int(poisson_sample(source, 200_000, rate).sum())
            assert binom.ppf(1e-9, 200_000, rate) <= hits <= binom.isf(1e-9, 200_000, rate)
        assert poisson_sample(source, 5, 1.0).all()
    assert (poisson_sample(SeededSource(1), 100, 0.4) == poisson_sample(SeededSource(1), 100, 0.4)).all()
    assert (poisson_sample(OpenDPSource(), 500, 0.5) != poisson_sample(OpenDPSource(), 500, 0.5)).any()


def test_bad_input() -> None:
    with pytest.raises(SpecificationError, match="rate"):
        poisson_sample(OpenDPSource(), 10, 1.5)
    with pytest.raises(SpecificationError, match="rate"):
        subsampled_multiplier(1.0, 1e-6, 1e-9, 10, replace=True)
    with pytest.raises(SpecificationError, match="delta"):
        subsampled_multiplier(1.0, 1e-12, 0.1, 10, replace=True)
    with pytest.raises(SpecificationError):
        subsampled_epsilon(0.0, 0.1, 10, 1e-6, replace=True)
