"""Accounting: table values, closed formulas, other accountants, known-true epsilons, round trips."""

import math
from decimal import Decimal, getcontext

import dp_accounting  # here, so that no timed example pays for the import
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import erfcx
from scipy.stats import norm

from dpmodel.errors import SpecificationError
from dpmodel.privacy import (
    SeededSource,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    laplace_rho,
    per_step,
    pure_composition_delta,
    pure_rho,
    truncated_gaussian_width,
    truncated_laplace_half_width,
    validate_privacy,
    zcdp_epsilon,
    zcdp_rho,
)

DELTA = 1e-6
epsilons = st.floats(-4, 2).map(lambda x: 10.0**x)
deltas = st.floats(-30, -0.05).map(lambda x: 10.0**x)


# --- zCDP -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon, rho", [(0.1, 3.21e-4), (0.5, 6.64e-3), (1, 0.02436), (2, 0.0882), (4, 0.311)])
def test_zcdp_table(epsilon, rho):
    assert zcdp_rho(epsilon, DELTA) == pytest.approx(rho, rel=2e-3)
    # The classical formula epsilon = rho + 2 sqrt(rho ln 1/delta) is never better.
    classical = (math.sqrt(math.log(1 / DELTA) + epsilon) - math.sqrt(math.log(1 / DELTA))) ** 2
    assert zcdp_rho(epsilon, DELTA) > classical


def tight_rho(epsilon, delta):
    """Canonne, Kamath and Steinke 2020, proposition 12, solved for rho on a dense grid of orders."""
    a = np.logspace(-3, 9, 200_001)
    rho = (epsilon - np.log(a) + np.log1p(a) + (math.log(delta) + np.log1p(a)) / a) / (1 + a)
    return max(float(rho.max()), -math.log1p(-delta * delta))


@pytest.mark.parametrize("epsilon", [1e-3, 1e-2, 0.1, 1, 5, 20])
@pytest.mark.parametrize("delta", [0.1, 1e-3, 1e-6, 1e-12])
def test_zcdp_against_the_closed_formula(epsilon, delta):
    exact = tight_rho(epsilon, delta)
    assert exact * (1 - 1e-5) <= zcdp_rho(epsilon, delta) <= exact * (1 - 1e-10)
    assert zcdp_epsilon(exact * (1 + 1e-6), delta) >= epsilon
    assert zcdp_epsilon(exact * (1 - 1e-5), delta) <= epsilon


@settings(deadline=None, max_examples=40)
@given(epsilons, deltas)
def test_round_trips_are_never_optimistic_and_lose_nothing(epsilon, delta):
    assert zcdp_epsilon(zcdp_rho(epsilon, delta), delta) <= epsilon
    assert gaussian_epsilon(gaussian_mu(epsilon, delta), delta) <= epsilon
    assert gaussian_delta(gaussian_mu(epsilon, delta), epsilon) <= delta
    # (epsilon, delta) from rho must hold for the Gaussian mechanism of that rho, whose delta is exact.
    assert gaussian_delta(math.sqrt(2 * zcdp_rho(epsilon, delta)), epsilon) <= delta
    if delta < 0.1:
        assert zcdp_rho(epsilon, delta) >= 0.25 * gaussian_mu(epsilon, delta) ** 2 / 2


def renyi_of_laplace(epsilon, alpha):
    terms = [math.log(alpha / (2 * alpha - 1)) + (alpha - 1) * epsilon]
    terms.append(math.log((alpha - 1) / (2 * alpha - 1)) - alpha * epsilon)
    return float(np.logaddexp(*terms)) / (alpha - 1)


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 1.0, 3.0, 10.0])
def test_laplace_rho_bounds_every_renyi_order_and_is_attained(epsilon):
    ratios = [renyi_of_laplace(epsilon, 1 + a) / (1 + a) for a in np.logspace(-4, 4, 300)]
    assert max(ratios) <= laplace_rho(epsilon) * (1 + 1e-9)
    assert max(ratios) >= laplace_rho(epsilon) * (1 - 1e-2)
    assert laplace_rho(epsilon) <= pure_rho(epsilon) <= epsilon
    theirs = dp_accounting.rdp.RdpAccountant([1.0]).compose(dp_accounting.LaplaceDpEvent(1 / epsilon)).rdp
    assert laplace_rho(epsilon) == pytest.approx(theirs[0], rel=1e-6)


# --- Gaussian ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "epsilon, delta",
    [(1, 1e-6), (0.01, 1e-9), (1e-4, 1e-6), (10, 1e-5), (0.5, 0.1), (100, 1e-5), (3, 0.9), (30, 1e-30)],
)
def test_gaussian_mu_against_dp_accounting(epsilon, delta):
    from dp_accounting.pld.common import DifferentialPrivacyParameters
    from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss

    mu = gaussian_mu(epsilon, delta)
    theirs = GaussianPrivacyLoss.from_privacy_guarantee(DifferentialPrivacyParameters(epsilon, delta))
    assert mu == pytest.approx(1 / theirs.standard_deviation, rel=1e-6)
    assert GaussianPrivacyLoss(1 / mu).get_delta_for_epsilon(epsilon) <= delta
    # and not idle: one part in a million more is too much
    assert GaussianPrivacyLoss(1 / (mu * (1 + 1e-6))).get_delta_for_epsilon(epsilon) > delta


def test_gaussian_delta_is_one_function_across_its_three_formulas():
    def textbook(mu, epsilon):
        a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
        return norm.cdf(a) - math.exp(epsilon + norm.logcdf(b))

    for mu, epsilon in [(0.4999, 0.7), (0.5001, 0.7), (10.1, 0.5), (9.9, 0.5), (12, 1), (0.01, 0.0), (3, 20)]:
        assert gaussian_delta(mu, epsilon) == pytest.approx(textbook(mu, epsilon), rel=1e-8)
    assert gaussian_delta(0.0, 1.0) == 0.0 and gaussian_delta(1e-9, 100.0) == 0.0
    assert gaussian_delta(100.0, 0.0) <= 1.0


@pytest.mark.parametrize("mu", [1e-6, 1e-4, 0.01, 0.3, 2.0])
@pytest.mark.parametrize("t", [-0.4, 0.0, 2.0, 7.0, 12.0])
def test_gaussian_delta_is_rounded_up_where_it_cancels(mu, t):
    """Against the integral of 1 - x M(x) with the Mills ratio M, which does not cancel."""
    epsilon = max(mu * (t + mu / 2), 0.0)
    t = epsilon / mu - mu / 2

    def integrand(x):
        return 1 - x * math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2))

    exact = norm.pdf(t) * quad(integrand, t, t + mu, epsabs=0, epsrel=1e-12)[0]
    assert exact <= gaussian_delta(mu, epsilon) <= exact * (1 + 1e-8 + 1e-10 / mu)
    assert epsilon * (1 - 1e-12) <= gaussian_epsilon(mu, exact) <= epsilon * (1 + 1e-8) + 1e-9


def test_conversions_at_the_edges():
    assert gaussian_epsilon(0.0, DELTA) == zcdp_epsilon(0.0, DELTA) == 0.0
    assert 0 <= gaussian_epsilon(1e-300, 1e-200) < 1e-6  # a tiny mu counts as 1e-9
    assert gaussian_mu(1e-12, 1e-30) > 0
    assert gaussian_epsilon(1e3, DELTA) == pytest.approx(504752.4, rel=1e-6)
    for number in (zcdp_rho(1, DELTA), zcdp_epsilon(1, DELTA), gaussian_mu(1, DELTA), gaussian_delta(1, 1)):
        assert type(number) is float


# --- truncated Laplace ------------------------------------------------------------------------------


@given(st.floats(0.01, 20), st.floats(1e-12, 0.2), st.lists(st.floats(0.01, 1), min_size=1, max_size=6))
def test_truncated_laplace_mass_outside_the_common_support(epsilon, delta, shares):
    """The exact mass is at most delta however D1 is split, and equal to it for one entry."""
    scale = 1 / epsilon
    s = truncated_laplace_half_width(scale, epsilon, delta)
    moves = np.array(shares) / sum(shares)

    def outside(move):  # mass of noise in (s - move, s], by the exact distribution
        if move >= 2 * s:
            return 1.0
        full = -2 * math.expm1(-s / scale)
        start = s - move
        if start >= 0:
            return math.exp(-s / scale) * math.expm1(move / scale) / full
        return (2 - math.exp(start / scale) - math.exp(-s / scale)) / full

    lost = 1 - np.prod([1 - outside(m) for m in moves])
    assert lost <= delta * (1 + 1e-6)
    if moves.size == 1 and s > 1:
        assert lost == pytest.approx(delta, rel=1e-5)


def test_truncated_laplace_width_at_large_epsilon_and_refusals():
    assert truncated_laplace_half_width(1.0, 500.1, 1e-6) == pytest.approx(
        truncated_laplace_half_width(1.0, 499.9, 1e-6), rel=1e-3
    )
    for arguments in [(0, 1, 0.1), (1, 0, 0.1), (1, 1, 0), (1, 1, 1), (1, math.nan, 0.1)]:
        with pytest.raises(SpecificationError):
            truncated_laplace_half_width(*arguments)
    noise = SeededSource(1).truncated_laplace(np.zeros(1000), 1.0, truncated_laplace_half_width(1.0, 1.0, 1e-6))
    assert np.isfinite(noise).all()


# --- composition ------------------------------------------------------------------------------------


def exact_pure_delta(step, steps, epsilon):
    """Kairouz-Oh-Viswanath by summation with sixty digits."""
    getcontext().prec = 60
    e = Decimal(step).exp()
    p, q = e / (1 + e), 1 / (1 + e)
    terms = (
        math.comb(steps, x) * (p**x * q ** (steps - x) - Decimal(epsilon).exp() * q**x * p ** (steps - x))
        for x in range(steps + 1)
        if (2 * x - steps) * Decimal(step) > Decimal(epsilon)
    )
    return float(sum(terms, Decimal(0)))


@pytest.mark.parametrize(
    "step, steps, epsilon",
    [(0.1, 10, 0.9), (0.024, 100, 1.0), (0.0075, 1000, 1.0), (0.5, 50, 3.0), (2, 5, 4)],
)
def test_optimal_composition_of_pure_steps(step, steps, epsilon):
    exact = exact_pure_delta(step, steps, epsilon)
    assert exact <= pure_composition_delta(step, steps, epsilon) <= exact * (1 + 1e-6)


@pytest.mark.parametrize("steps, epsilon", [(1, 1), (5, 0.1), (9, 5), (30, 1), (100, 1), (1000, 5)])
def test_optimal_composition_against_dp_accounting(steps, epsilon):
    """Where its Fourier transform is accurate: few steps, delta far above 1e-12."""
    from dp_accounting.pld.common import DifferentialPrivacyParameters
    from dp_accounting.pld.privacy_loss_distribution import from_privacy_parameters

    delta = 1e-4
    step = per_step(epsilon, delta, steps).value
    theirs = from_privacy_parameters(DifferentialPrivacyParameters(step, 0.0), step).self_compose(steps)
    found = pure_composition_delta(step, steps, epsilon)
    assert found == pytest.approx(theirs.get_delta_for_epsilon(epsilon), rel=1e-4)
    assert found >= theirs.get_delta_for_epsilon(epsilon) * (1 - 1e-9)


@pytest.mark.parametrize(
    "steps, kind, value, rule",
    [
        (10, "laplace", 0.1001, "optimal"),
        (100, "laplace", 0.0240, "optimal"),
        (1000, "laplace", 0.0075, "optimal"),
        (10_000, "laplace", 0.0024, "optimal"),
        (10, "exponential", 0.1396, "zCDP"),
        (100, "exponential", 0.0441, "zCDP"),
        (1000, "exponential", 0.0140, "zCDP"),
        (10_000, "exponential", 0.0044, "zCDP"),
        (1, "exponential", 1.0, "optimal"),
    ],
)
def test_per_step_table(steps, kind, value, rule):
    found = per_step(1.0, DELTA, steps, kind)
    assert found.value == pytest.approx(value, rel=0.02) and found.rule.startswith(rule)


@settings(deadline=None, max_examples=30)
@given(epsilons, deltas, st.integers(1, 300), st.sampled_from(["laplace", "exponential", "gaussian"]))
def test_steps_keep_to_the_total(epsilon, delta, steps, kind):
    """By some rule that holds for them; a hundredth more by none of them."""

    def holds(value):
        if kind == "gaussian":
            return gaussian_delta(value * math.sqrt(steps), epsilon) <= delta
        rho = laplace_rho(value) if kind == "laplace" else value**2 / 8
        by_rho = zcdp_epsilon(steps * rho, delta) <= epsilon * (1 + 1e-12)
        return by_rho or pure_composition_delta(value, steps, epsilon) <= delta

    step = per_step(epsilon, delta, steps, kind).value
    assert holds(step) and not holds(step * 1.01)
    assert step >= (epsilon / steps if kind != "gaussian" else 0)


def test_pure_budget_takes_basic_composition():
    assert per_step(1.0, 0.0, 10).value == 0.1
    with pytest.raises(SpecificationError, match="delta > 0"):
        per_step(1.0, 0.0, 10, "gaussian")


# --- refusals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0, -1, math.inf, -math.inf, math.nan, "1", None, True, 1j, [1.0], 10**400])
def test_bad_epsilon(epsilon):
    with pytest.raises(SpecificationError) as caught:
        validate_privacy(epsilon, 1e-6)
    assert caught.value.why and caught.value.remedy and ("is missing" in str(caught.value)) == (epsilon is None)


@pytest.mark.parametrize("delta", [-1e-9, 1, 1.5, math.nan, math.inf, "0", None, False, 1e-250])
def test_bad_delta(delta):
    with pytest.raises(SpecificationError):
        validate_privacy(1.0, delta)


def test_conversions_need_delta():
    for convert in (zcdp_rho, zcdp_epsilon, gaussian_mu, gaussian_epsilon):
        with pytest.raises(SpecificationError, match="delta > 0"):
            convert(1.0, 0.0)


@pytest.mark.parametrize("steps", [0, -1, 1.5, True, "3"])
def test_bad_steps(steps):
    with pytest.raises(SpecificationError):
        per_step(1.0, DELTA, steps)
    with pytest.raises(SpecificationError):
        per_step(1.0, DELTA, 3, "staircase")


# --- truncated Gaussian -----------------------------------------------------------------------------


def lost_by_truncated(epsilon, window, moves):
    """The exact delta of unit Gaussian noise truncated at ``window``, between 0 and ``moves`` of one or two entries:
    the integral of (p - e^epsilon p')^+, a grid of midpoints for the first entry, a root for the second."""
    inside = 1 - 2 * norm.sf(window)
    edges = np.linspace(-window, window, 40_001)
    y = (edges[1:] + edges[:-1]) / 2
    p = norm.pdf(y) / inside
    other = np.where(np.abs(y - moves[0]) <= window, norm.pdf(y - moves[0]) / inside, 0.0)
    if len(moves) == 1:
        return float(np.maximum(p - math.exp(epsilon) * other, 0).sum() * (y[1] - y[0]))
    d = moves[1]
    with np.errstate(divide="ignore"):
        # log p(z) / p'(z) = d^2 / 2 - d z is above left where z is below root; beyond z < d - window p' is nothing.
        left = epsilon - np.log(p) + np.log(other)
    root = np.clip((d * d / 2 - left) / d, d - window, window)
    one, two = ((norm.cdf(root - m) - norm.cdf(-window)) / inside for m in (0.0, d))
    return float((p * one - math.exp(epsilon) * other * two).sum() * (y[1] - y[0]))


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (1.0, 1e-2), (0.2, 1e-4), (4.0, 1e-3), (0.05, 0.3)])
def test_truncated_gaussian_noise_loses_no_more_than_delta(epsilon, delta):
    """By exact integrals, however the change is split over the entries; half the window is found out."""
    for count, splits in ((1, [[1.0]]), (2, [[1.0, 1e-9], [0.9, math.sqrt(0.19)], [math.sqrt(0.5)] * 2])):
        mu, window = truncated_gaussian_width(epsilon, delta, count)
        lost = [lost_by_truncated(epsilon, window, [mu * part for part in split]) for split in splits]
        assert max(lost) <= delta * (1 + 1e-3)
        assert max(lost) >= 0.3 * delta
        assert lost_by_truncated(epsilon, window / 2, [mu * part for part in splits[0]]) > delta


def test_truncated_gaussian_windows_grow_slowly_and_bad_arguments_are_refused():
    shift = {k: math.sqrt(k) * window / mu for k in (1, 5, 10, 100, 1000)
             for mu, window in [truncated_gaussian_width(1.0, 1e-6, k)]}  # fmt: skip
    laplace = truncated_laplace_half_width(1.0, 1.0, 1e-6)
    assert shift[1] == pytest.approx(22.2, rel=0.01) and shift[100] == pytest.approx(257, rel=0.01)
    assert laplace < shift[1] and shift[5] < 5 * laplace and shift[1000] < 1000 * laplace / 15
    assert truncated_gaussian_width(600.0, 1e-6, 3)[1] > 1
    for arguments in [(0, 0.1, 1), (1, 0, 1), (1, 1, 1)]:
        with pytest.raises(SpecificationError):
            truncated_gaussian_width(*arguments)
