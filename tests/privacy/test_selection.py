"""Selection: exact distributions on three scores, forecasts, sparse vector and its broken twin."""

import itertools
import math

import numpy as np
import pytest
from auditing import epsilon_lower_bound, fits_frequencies

from dpmodel.errors import SpecificationError
from dpmodel.privacy import (
    AboveThreshold,
    ExactSource,
    SeededSource,
    above_threshold_error,
    exponential_mechanism,
    exponential_mechanism_error,
    permute_and_flip,
    permute_and_flip_error,
)
from dpmodel.privacy.opendp_source import OpenDPSource

SCORES = np.array([0.0, 1.0, 3.0])
RANGE, EPSILON = 3.0, 2.0  # scale 1.5


def exponential_distribution(scores, scale):
    weights = np.exp((scores - scores.max()) / scale)
    return weights / weights.sum()


def permute_and_flip_distribution(scores, scale):
    heads = np.exp((scores - scores.max()) / scale)
    distribution = np.zeros(scores.size)
    orders = list(itertools.permutations(range(scores.size)))
    for order in orders:
        left = 1.0
        for r in order:
            distribution[r] += left * heads[r] / len(orders)
            left *= 1 - heads[r]
    return distribution


SELECTIONS = [  # private sources draw both kinds; the budgets are the same arithmetic for all sources
    (exponential_mechanism, {"epsilon": EPSILON}, exponential_distribution, ExactSource()),
    (permute_and_flip, {"epsilon": EPSILON}, permute_and_flip_distribution, ExactSource()),
    (exponential_mechanism, {"epsilon": EPSILON}, exponential_distribution, OpenDPSource()),
    (permute_and_flip, {"epsilon": EPSILON}, permute_and_flip_distribution, OpenDPSource()),
    (exponential_mechanism, {"epsilon": EPSILON}, exponential_distribution, SeededSource(21)),
    (exponential_mechanism, {"rho": EPSILON**2 / 8}, exponential_distribution, SeededSource(22)),
]


@pytest.mark.parametrize("select, budget, distribution, source", SELECTIONS)
@pytest.mark.slow
def test_law_on_three_scores(select, budget, distribution, source):
    """Chi-square, false alarm 1e-7; both neighbours of the distribution must be rejected."""
    runs = 3000 if isinstance(source, OpenDPSource) else 7000  # it builds a measurement each time
    draws = [select(SCORES, RANGE, source=source, **budget) for _ in range(runs)]
    scale = RANGE / EPSILON
    counts = np.bincount(draws, minlength=3)
    assert fits_frequencies(counts, distribution(SCORES, scale))
    assert not fits_frequencies(counts, distribution(SCORES, 1.3 * scale))
    other = permute_and_flip_distribution if distribution is exponential_distribution else exponential_distribution
    assert not fits_frequencies(counts, other(SCORES, scale))


@pytest.mark.parametrize("distribution", [exponential_distribution, permute_and_flip_distribution])
def test_range_bound_is_what_counts(distribution):
    """Exact check of the claim: the log ratio of every outcome is at most R/scale, for random neighbours."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        scores = rng.normal(size=4) * 3
        sensitivity = rng.uniform(0, 1.0, size=4) + rng.normal() * 10  # range at most 1, shift anything
        loss = np.log(distribution(scores, 0.7)) - np.log(distribution(scores + sensitivity, 0.7))
        assert np.abs(loss).max() <= np.ptp(sensitivity) / 0.7 + 1e-9
        if distribution is exponential_distribution:
            assert np.ptp(loss) <= np.ptp(sensitivity) / 0.7 + 1e-9  # bounded range, hence rho = eps^2/8


@pytest.mark.parametrize(
    "select, forecast",
    [
        (exponential_mechanism, exponential_mechanism_error),
        (permute_and_flip, permute_and_flip_error),
    ],
)
def test_forecast_holds_in_the_worst_case(select, forecast):
    """One good candidate and 199 that are worse by exactly the forecast."""
    beta, trials, source = 0.1, 3500, SeededSource(22)
    bound = forecast(200, 1.0, 0.5, beta)
    scores = np.full(200, -bound * 1.0001)
    scores[77] = 0.0
    misses = sum(select(scores, 1.0, epsilon=0.5, source=source) != 77 for _ in range(trials))
    assert misses / trials < beta + 0.05  # Hoeffding: 3e-8
    assert misses / trials > 0.02  # and the bound is not idle


@pytest.mark.parametrize("scores", [[], [[1.0, 2.0]], [math.nan, 123456.0], [math.inf, 123456.0], 3.0, "a", None])
@pytest.mark.parametrize("select", [exponential_mechanism, permute_and_flip])
def test_bad_scores(select, scores):
    with pytest.raises(SpecificationError) as caught:
        select(scores, 1.0, epsilon=1.0, source=SeededSource(0))
    assert "123456" not in str(caught.value)


@pytest.mark.parametrize("select", [exponential_mechanism, permute_and_flip])
def test_bad_budget(select):
    source = SeededSource(0)
    both = ({}, {"epsilon": 1.0, "rho": 1.0}, {"rho": math.nan}) if select is exponential_mechanism else ()
    for budget in (*both, {"epsilon": 0.0}, {"epsilon": True}):
        with pytest.raises(SpecificationError):
            select([1.0], 1.0, source=source, **budget)
    for bound in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(SpecificationError):
            select([1.0], bound, epsilon=1.0, source=source)
    with pytest.raises(SpecificationError, match="kind"):
        source.noisy_max([1.0], 1.0, kind="argmax")


# --- sparse vector ----------------------------------------------------------------------------------


class CheapThreshold(AboveThreshold):
    """The broken twin: the threshold is compared without noise of its own."""

    def __init__(self, threshold, **options):
        super().__init__(threshold, **options)
        self._noisy_threshold = threshold


def no_positive(kind, sensitivity, runs, seed):
    """(runs,) whether six queries, which all move the same way (R = Delta = 1), were all negative."""
    source, values = SeededSource(seed), np.full(6, 0.5 * sensitivity)
    svt = {"sensitivity": 1.0, "range_bound": 1.0, "epsilon": 2.0, "source": source}
    return np.array([kind(0.0, **svt).first_above(values) is None for _ in range(runs)], dtype=float)


def audit(experiment, kind, runs):
    """Lower bound on epsilon between neighbours whose queries differ by 1; false alarm 1e-7."""
    return epsilon_lower_bound(experiment(kind, -1, runs, 31), experiment(kind, 1, runs, 32))


def test_many_negatives_cost_nothing_but_only_with_a_noisy_threshold():
    assert audit(no_positive, AboveThreshold, 6000) <= 2.0
    assert audit(no_positive, CheapThreshold, 6000) > 2.2


def test_sparse_vector_halts():
    svt = AboveThreshold(0.0, sensitivity=1e-9, epsilon=1.0, source=ExactSource())
    assert not svt.test(-1.0)
    assert svt.first_above([-1.0, -1.0, 1.0, 1.0]) == 2
    for _ in range(2):
        with pytest.raises(SpecificationError, match="its positive answer"):
            svt.test(1.0)
    with pytest.raises(SpecificationError):
        svt.first_above([])


def test_sparse_vector_scales_are_the_optimal_split():
    source = SeededSource(0)
    svt = AboveThreshold(0.0, sensitivity=2.0, epsilon=0.5, source=source)
    eps1 = 0.5 / (1 + 2 ** (2 / 3))
    assert svt._query_scale == pytest.approx(2 * 2.0 / (0.5 - eps1))
    monotone = AboveThreshold(0.0, sensitivity=2.0, range_bound=2.0, epsilon=0.5, source=source)
    assert monotone._query_scale < svt._query_scale


def test_sparse_vector_forecast():
    """Answers are off by more than alpha with probability at most beta."""
    source, beta, wrong = SeededSource(33), 0.1, 0
    alpha = above_threshold_error(50, 1.0, 1.0, beta)
    values = np.full(50, -alpha)
    values[-1] = alpha
    trials = 2000
    for _ in range(trials):
        wrong += AboveThreshold(0.0, sensitivity=1.0, epsilon=1.0, source=source).first_above(values) != 49
    assert wrong / trials < beta + 0.07  # Hoeffding: 3e-9


@pytest.mark.parametrize(
    "options",
    [{"sensitivity": 0.0}, {"epsilon": math.nan}, {"range_bound": -1.0}],
)
def test_sparse_vector_bad_arguments(options):
    arguments = {"sensitivity": 1.0, "epsilon": 1.0, "source": SeededSource(0)} | options
    with pytest.raises(SpecificationError):
        AboveThreshold(0.0, **arguments)
    for threshold in (math.nan, [0.0, 1.0], "x"):
        with pytest.raises(SpecificationError):
            AboveThreshold(threshold, sensitivity=1.0, epsilon=1.0, source=SeededSource(0))
