"""The auditor itself: right on known mechanisms, quiet on private ones."""

import math

import numpy as np
import pytest
from auditing import clopper_pearson, epsilon_lower_bound, fits_frequencies


def test_finds_most_of_the_epsilon_of_laplace():
    rng = np.random.default_rng(1)
    p, q = rng.laplace(size=200_000), 1.0 + rng.laplace(size=200_000)
    bound = epsilon_lower_bound(p, q)
    assert 0.9 < bound <= 1.0


def test_finds_the_epsilon_of_a_discrete_output():
    rng = np.random.default_rng(2)
    e = math.exp(1.5)
    p, q = rng.random(100_000) < e / (1 + e), rng.random(100_000) < 1 / (1 + e)
    assert 1.4 < epsilon_lower_bound(p, q, lambda bits: bits) <= 1.5


def test_two_equal_laws_give_nothing():
    rng = np.random.default_rng(3)
    alarms = [epsilon_lower_bound(rng.normal(size=2000), rng.normal(size=2000), confidence=0.9) > 0 for _ in range(100)]
    # Each alarm has probability <= 0.1; 30 of 100 have probability below 100 KL(0.3, 0.1): 3e-7 (Chernoff).
    assert sum(alarms) < 30


def test_delta_is_subtracted():
    # With probability 0.01 the input is published: (0, 0.01)-DP and nothing less.
    rng = np.random.default_rng(4)
    p = np.where(rng.random(100_000) < 0.01, 5.0, 0.0)
    q = np.where(rng.random(100_000) < 0.01, 7.0, 0.0)
    assert epsilon_lower_bound(p, q, delta=0.0) > 3
    assert epsilon_lower_bound(p, q, delta=0.01) < 0.05


def test_clopper_pearson_covers_exactly():
    low, high = clopper_pearson(np.array([0, 10, 100]), 100, 0.025)
    assert low[0] == 0 and high[2] == 1
    assert low[1] == pytest.approx(0.0490047, abs=1e-6) and high[1] == pytest.approx(0.1762226, abs=1e-6)


def test_chi_square_can_fail():
    assert fits_frequencies([100, 200], [1 / 3, 2 / 3])
    assert not fits_frequencies([1000, 1000], [1 / 3, 2 / 3])
