"""The distributions: quantiles against simulation and closed forms, moments, refusals."""

import math

import numpy as np
import pytest

from dpmodel.errors import SpecificationError
from dpmodel.privacy import Gaussian, Laplace, SeededSource, TruncatedGaussian, TruncatedLaplace

DISTRIBUTIONS = [Laplace(2.0), Gaussian(2.0), TruncatedLaplace(2.0, 5.0), TruncatedLaplace(2.0, 0.5)]
DISTRIBUTIONS += [TruncatedGaussian(2.0, 5.0), TruncatedGaussian(2.0, 0.5)]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=repr)
@pytest.mark.parametrize("count", [1, 7, 100])
@pytest.mark.parametrize("beta", [0.5, 0.05])
def test_quantile_of_the_maximum(distribution, count, beta):
    trials = 20_000
    draws = distribution.add_to(np.zeros((trials, count)), SeededSource(5))
    share = np.mean(np.abs(draws).max(axis=1) > distribution.max_abs_quantile(count, beta))
    # Hoeffding: false alarm below 2 exp(-2 trials 0.02^2) = 2.3e-7; a scale off by 10 % shows.
    assert abs(share - beta) < 0.02


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=repr)
def test_standard_deviation(distribution):
    draws = distribution.add_to(np.zeros(400_000), SeededSource(6))
    assert np.std(draws) == pytest.approx(distribution.standard_deviation, rel=0.01)
    assert abs(np.mean(draws)) < 0.02 * distribution.standard_deviation


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=repr)
def test_extreme_quantiles_keep_their_digits(distribution):
    count, beta = 10**9, 1e-12
    t = distribution.max_abs_quantile(count, beta)
    p = beta / count  # to 21 digits
    if isinstance(distribution, Laplace):
        assert t == pytest.approx(-2.0 * math.log(p), rel=1e-9)
    elif isinstance(distribution, Gaussian):
        assert math.erfc(t / 2.0 / math.sqrt(2)) == pytest.approx(p, rel=1e-6)
    else:
        assert t <= distribution.half_width and t == pytest.approx(distribution.half_width)
    assert distribution.max_abs_quantile(0, 0.1) == 0.0


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf, "1", None, True, 1e-300])
def test_bad_parameters(bad):
    truncated = [lambda s, law=law: law(s, 1.0) for law in (TruncatedLaplace, TruncatedGaussian)]
    for make in (
        Laplace,
        Gaussian,
        *truncated,
        lambda s: TruncatedLaplace(1.0, s),
        lambda s: TruncatedGaussian(1.0, s),
    ):
        with pytest.raises(SpecificationError):
            make(bad)


def test_a_useless_window_is_refused():
    with pytest.raises(SpecificationError, match="half_width"):
        TruncatedLaplace(1.0, 1e-4)
    with pytest.raises(SpecificationError, match="half_width"):
        TruncatedGaussian(1.0, 1e-4)


@pytest.mark.parametrize("beta", [0, 1, -0.1, math.nan, "x"])
def test_bad_beta(beta):
    with pytest.raises(SpecificationError):
        Laplace(1.0).max_abs_quantile(3, beta)


def test_plain_data_and_equality():
    assert Laplace(2) == Laplace(2.0) != Gaussian(2.0) and len({Laplace(2), Laplace(2.0), Laplace(3)}) == 2
    assert TruncatedLaplace(1, 2) != TruncatedLaplace(1, 3)
    assert TruncatedLaplace(1, 2).to_dict() == {"distribution": "truncated_laplace", "scale": 1.0, "half_width": 2.0}
    assert Laplace(1).to_dict() == {"distribution": "laplace", "scale": 1.0}
    assert Gaussian(1).to_dict() == {"distribution": "gaussian", "scale": 1.0}
