"""The sources: all draw the stated distributions, private ones keep low bits, bad values are refused silently."""

import math

import numpy as np
import pytest
from auditing import kolmogorov_distance, kolmogorov_limit
from scipy.stats import laplace, norm

from dpmodel.errors import NotPrivateWarning, SpecificationError
from dpmodel.privacy import (
    ExactSource,
    Gaussian,
    Laplace,
    SeededSource,
    TruncatedGaussian,
    TruncatedLaplace,
    noise_source,
    opendp_source,
)
from dpmodel.privacy.opendp_source import OpenDPSource

PRIVATE = [ExactSource(), OpenDPSource()]
SOURCES = [*PRIVATE, SeededSource(11)]
FALSE_ALARM = 1e-7  # per test of a true distribution; private sources cannot be seeded


def cdf_of(distribution, scale):
    if isinstance(distribution, Laplace):
        return lambda z: laplace.cdf(z, scale=scale)
    if isinstance(distribution, Gaussian):
        return lambda z: norm.cdf(z, scale=scale)
    law = laplace if isinstance(distribution, TruncatedLaplace) else norm
    low = law.cdf(-distribution.half_width, scale=scale)
    return lambda z: (law.cdf(z, scale=scale) - low) / (1 - 2 * low)


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize(
    "distribution",
    [Laplace(3.0), Gaussian(0.5), TruncatedLaplace(3.0, 12.0), TruncatedGaussian(3.0, 9.0)],
    ids=repr,
)
def test_two_sided_scale(source, distribution):
    """Fits the distribution, and rejects scale x 0.7 and x 1.3.

    A true distribution is rejected with probability <= 1e-7 (DKW). The wrong scales are 0.04 or more away and the
    limit is 0.0183, so missing one has probability < 2 exp(-2 25000 0.0217^2) < 1e-9.
    """
    draws = distribution.add_to(np.full(25_000, 1234.5), source) - 1234.5
    limit = kolmogorov_limit(draws.size, FALSE_ALARM)
    assert kolmogorov_distance(draws, cdf_of(distribution, distribution.scale)) < limit
    for wrong in (0.7, 1.3):
        assert kolmogorov_distance(draws, cdf_of(distribution, wrong * distribution.scale)) > limit
    assert np.abs(draws).max() <= getattr(distribution, "half_width", math.inf) * (1 + 1e-9)


def clipped(distribution, values):
    """The planted twin: a draw beyond the window is moved to its end, where it should be drawn again."""
    kind = "laplace" if isinstance(distribution, TruncatedLaplace) else "gaussian"
    noise = getattr(SeededSource(13), kind)(values, distribution.scale) - values
    return np.clip(noise, -distribution.half_width, distribution.half_width)


def fits(z, distribution):
    """The stated distribution, without atoms at the ends: of a true distribution at most 25,000 x 1e-12 / (2 half
    widths) lie there."""
    near = kolmogorov_distance(z, cdf_of(distribution, distribution.scale)) < kolmogorov_limit(z.size, FALSE_ALARM)
    return (
        near
        and not (np.abs(z) >= distribution.half_width * (1 - 1e-12)).any()
        and np.abs(z).max() > 0.98 * distribution.half_width
    )


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize(
    "distribution",
    [*(TruncatedLaplace(1.0, w) for w in (0.25, 1.0, 4.0)), *(TruncatedGaussian(1.0, w) for w in (0.25, 1.0, 2.0))],
    ids=repr,
)
def test_truncated_draws_follow_the_law_up_to_the_ends(source, distribution):
    """False alarm below 1e-6: DKW, the atoms, and that no draw of 25,000 is in the last fiftieth (e^-20 or less; of the
    Gaussian on |z| <= 2, .0045 of the mass is)."""
    assert fits(distribution.add_to(np.zeros(25_000), source), distribution)
    assert not fits(clipped(distribution, np.zeros(25_000)), distribution)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_entries_are_independent_across_blocks(kind):
    z = getattr(ExactSource(), kind)(np.zeros(200_000), 1.0)
    assert np.unique(z).size == z.size
    signs = np.sign(z)
    for lag in (1, 2, 65536, 131072):
        # Products of independent signs are independent signs: Hoeffding gives 2 exp(-18) = 3e-8 at 6 sigma.
        products = signs[lag:] * signs[:-lag]
        assert abs(products.mean()) < 6 / math.sqrt(products.size)


def low_bit_share(draw, centre):
    """Share of outputs in (1/4, 1/2), where floats are multiples of 2^-54, that are multiples of 2^-53."""
    out = draw(np.full(50_000, centre))
    out = out[(out > 0.25) & (out < 0.5)]
    scaled = out * 2.0**53
    return np.mean(scaled == np.floor(scaled)), out.size


@pytest.mark.parametrize("source", PRIVATE, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.slow
def test_low_bits_do_not_tell_the_centre(kind, source):
    def draw(values):
        return getattr(source, kind)(values, 1.0)

    (a, n), (b, m) = low_bit_share(draw, 0.0), low_bit_share(draw, 1.0)
    # Both shares are 1/2; each is off by t with probability <= 2 exp(-2 n t^2) = 4e-8 at n t^2 = 8.9.
    assert abs(a - b) < math.sqrt(8.9 / n) + math.sqrt(8.9 / m) < 0.1


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: type(s).__name__)
def test_shapes_and_types(source):
    assert source.laplace(np.zeros((0,)), 1.0).shape == (0,)
    assert source.gaussian(np.zeros((3, 0)), 1.0).shape == (3, 0)
    assert source.truncated_laplace(np.zeros((0, 2)), 1.0, 2.0).shape == (0, 2)
    assert source.laplace(np.zeros((2, 3)), 1.0).shape == (2, 3)
    assert source.laplace(5.0, 1.0).shape == ()
    assert source.gaussian([1, 2, 3], 1.0).dtype == np.float64
    assert source.gaussian(np.zeros(3, dtype=np.float32), 1.0).dtype == np.float64
    values = np.arange(6.0).reshape(2, 3)[:, ::2]  # not contiguous, and not to be written to
    kept = values.copy()
    assert np.abs(source.truncated_laplace(values, 1e-6, 1e-5) - values).max() <= 1e-5 * (1 + 1e-9)
    assert (values == kept).all()


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize(
    "values",
    [[1.0, math.nan], [math.inf], ["7777"], [7777j], [True], [None], [[7777.0], [1.0, 2.0]]],
    ids=repr,
)
def test_bad_values_are_refused_without_printing_them(source, values):
    for draw in (
        lambda: source.laplace(values, 1.0),
        lambda: source.gaussian(values, 1.0),
        lambda: source.truncated_laplace(values, 1.0, 2.0),
        lambda: source.truncated_gaussian(values, 1.0, 2.0),
        lambda: source.noisy_max(values, 1.0, kind="exponential"),
    ):
        with pytest.raises(SpecificationError) as caught:
            draw()
        assert "7777" not in str(caught.value)


def test_wrong_privacy_map_stops_the_release():
    """If OpenDP promised less than we rely on, nothing would be drawn."""
    with pytest.raises(RuntimeError, match="privacy map"):
        opendp_source._measurement(lambda k: _Twice(), 1.0, lambda t: t)


class _Twice:
    def map(self, distance):
        return 2 * distance


def test_coarse_grid_that_inflates_the_map_is_not_used():
    built = []

    class Grid:
        def __init__(self, k):
            built.append(k)
            self.k = k

        def map(self, distance):
            return distance + (0.0 if self.k is None else 1e-3)

    assert opendp_source._measurement(Grid, 1.0, lambda t: t).k is None
    assert len(built) == 2 and built[0] is not None


def test_noise_source_dispatch():
    assert isinstance(noise_source(), ExactSource) and noise_source().is_private
    assert isinstance(noise_source("opendp"), OpenDPSource) and noise_source("opendp").is_private
    with pytest.warns(NotPrivateWarning, match="NOT private"):
        seeded = noise_source(3)
    assert not seeded.is_private
    with pytest.warns(NotPrivateWarning):
        assert isinstance(noise_source(np.random.default_rng(0)), SeededSource)
    assert noise_source(seeded) is seeded
    for bad in ("seed", 1.5, True, object()):
        with pytest.raises(SpecificationError):
            noise_source(bad)
    with pytest.raises(SpecificationError):
        noise_source(-1)
