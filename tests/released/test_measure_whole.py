"""Which distribution ``measure`` takes, and when numbers count as whole."""

from __future__ import annotations

import math
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from dpmodel.errors import SpecificationError
from dpmodel.marks import Private
from dpmodel.privacy import gaussian_mu, zcdp_rho
from dpmodel.privacy.distributions import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
from dpmodel.released.faces.measure import measure

CLOSE = 1.1e-3  # rounding allowances enlarge scales by less than this share
DELTA = 1e-6


def test_auto_takes_the_least_deviation() -> None:
    few = Private(np.zeros(8), name="p", unit="entry", linf=1)
    many = Private(np.zeros(100), name="q", unit="all", l2=1.0)
    assert type(measure(few, 1.0, DELTA, rng=0).noise) is Laplace
    noisy = measure(many, 1.0, DELTA, rng=0)
    assert type(noisy.noise) is Gaussian and noisy.delta == DELTA
    assert noisy.noise.scale == pytest.approx(1 / gaussian_mu(1.0, DELTA), rel=CLOSE)
    assert type(measure(many, 1.0, rng=0).noise) is Laplace
    assert measure(few, 1.0, DELTA, rng=0).delta == 0.0


def test_whole_numbers_stay_whole() -> None:
    p = Private([3, 4, 5], name="p", unit="entry", linf=1, integer=True)
    q = Private(np.zeros(100), name="q", unit="all", l2=3.0, boolean=True)
    for expression in (p, cp.sum(p), 2 * p - 7, cp.cumsum(p), p + cp.Parameter(3, value=[1.0, 2, 3], name="r")):
        noisy = measure(expression, 0.5, rng=0)
        assert type(noisy.noise) is DiscreteLaplace and (noisy.value == np.rint(noisy.value)).all()
    assert measure(2 * p - 7, 0.5, rng=0).noise.scale == 4.0 and measure(p, 0.5, rng=0).noise.scale == 2.0
    noisy = measure(q, 1.0, DELTA, rng=0)
    assert type(noisy.noise) is DiscreteGaussian
    assert noisy.noise.scale == pytest.approx(3 / math.sqrt(2 * zcdp_rho(1.0, DELTA)), rel=1e-12)
    assert type(measure(p, 0.5, distribution="laplace", rng=0).noise) is Laplace
    assert type(measure(q, 0.5, DELTA, distribution="gaussian", rng=0).noise) is Gaussian
    # A whole change of at most 1.5 is at most 1.
    half = Private([3, 4], name="h", unit="entry", linf=1.5, integer=True)
    assert measure(half, 1.0, rng=0).noise.scale == 1.0
    exact = Private([2**52, -(2**52)], name="e", unit="entry", linf=1, integer=True)
    assert measure(exact, 50.0, rng=0).value.tolist() == [2.0**52, -(2.0**52)]
    assert measure(cp.sum(exact) + 3 * exact[0], 50.0, rng=0).value == 2.0**52  # clamped, by public policy


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1 / 3, 0.7, 3.0])
def test_the_quotient_is_never_rounded_in_favour_of_noise(epsilon: float) -> None:
    from fractions import Fraction

    for reach in (1, 3, 7):
        p = Private([3], name="p", unit="entry", linf=reach, integer=True)
        scale = measure(p, epsilon, rng=0).noise.scale
        assert Fraction(reach) / Fraction(scale) <= Fraction(epsilon)


def test_what_is_not_whole_by_declaration() -> None:
    def whole(**more: Any) -> Private:
        return Private(shape=3, value=[1, 2, 1], name="p", unit="entry", **({"linf": 1, "integer": True} | more))

    p = whole()
    fractional = [
        whole(integer=False), whole(bounds=[0, 2.5]), p / 2, p + 0.5, p * 2.0**40, cp.sum(p) / 3,
        whole(max_linf=1.5), p + Private([1, 2, 3], name="r", unit="entry", linf=1), whole(max_l2=2), whole(max_l1=2),
    ]  # fmt: skip
    for expression in fractional:
        assert type(measure(expression, 1.0, rng=0).noise) is Laplace
        with pytest.raises(SpecificationError, match="not declared whole") as caught:
            measure(expression, 1.0, distribution="discrete-laplace", rng=0)
        assert caught.value.why
    assert type(measure(whole(bounds=[0, 5]), 1.0, rng=0).noise) is DiscreteLaplace


SECOND: list[dict[str, Any]] = [{name: True} for name in ("nonneg", "pos", "symmetric", "PSD", "diag", "boolean")]
SECOND += [{"bounds": [0, 9]}, {"sparsity": ((0, 1), (0, 1))}, {"positions": "private"}]
SECOND += [{"nonneg": True, "symmetric": True}]


@pytest.mark.parametrize("second", SECOND, ids=lambda second: "+".join(second))
def test_a_second_attribute_does_not_switch_off_the_check_of_integers(second: dict[str, Any]) -> None:
    """CVXPY's projection does nothing where a leaf has two attributes. 0.4 and 1.6 differ by 1.2, so one step of
    discrete noise would be paid for; rounded, they differ by 2."""
    p = Private(shape=(2, 2), name="p", unit="all", l1=1.2, linf=1.2, integer=True, **second)
    for value in (0.4, 0.6, 1e-6):
        with pytest.raises(SpecificationError, match=r"attributes \(integer\)"):
            p.value = np.diag([value, 0.0])
    p.value = np.diag([1.0, 1e-10])
    assert type(measure(p, 1.0, rng=0).noise) is DiscreteLaplace


def test_integers_by_positions() -> None:
    for second in ({}, {"nonneg": True}):
        with pytest.raises(SpecificationError, match="integer"):
            Private([1.5, 2.5], unit="entry", linf=1, integer=[(1,)], **second)
        some = Private([1.5, 2.0], unit="entry", linf=1, integer=[(1,)], **second)
        assert type(measure(some, 1.0, rng=0).noise) is Laplace
    for value in (0.5, 3.0):
        with pytest.raises(SpecificationError, match="integer"):
            Private(value, linf=1, boolean=True)


def test_integers_that_no_record_can_change_are_refused() -> None:
    """The 2-norm allows none, the 1-norm alone would allow five."""
    p = Private(np.zeros(100), name="p", unit="all", l2=0.5, integer=True)
    for options in ({}, {"delta": 1e-6}, {"delta": 1e-6, "distribution": "discrete-gaussian"}):
        with pytest.raises(SpecificationError, match="no record can change"):
            measure(p, 1.0, rng=0, **options)
