"""Discrete noise: the sources draw the stated distribution (chi-square, false alarm 1e-7) and refuse what they cannot
serve."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from auditing import epsilon_lower_bound, fits_frequencies

from dpmodel.errors import SpecificationError
from dpmodel.privacy.noise import DiscreteNoiseSource, NoiseSource, SeededSource, noise_source

FALSE_ALARM = 1e-7
DISTRIBUTIONS = ("discrete_laplace", "discrete_gaussian")


def masses(distribution: str, scale: float, cells: np.ndarray) -> np.ndarray:
    """Mass of each cell {k}, the outermost ones with everything beyond; summed from the definition."""
    k = np.arange(-4000.0, 4001.0)
    weight = np.exp(-np.abs(k) / scale) if distribution == "discrete_laplace" else np.exp(-k * k / (2 * scale * scale))
    weight /= weight.sum()
    out = np.array([weight[k == cell].sum() for cell in cells])
    out[0], out[-1] = weight[k <= cells[0]].sum(), weight[k >= cells[-1]].sum()
    return out


def fits(draws: np.ndarray, distribution: str, scale: float) -> bool:
    width = max(1, int(3 * scale))
    cells = np.arange(-width, width + 1)
    counts = np.array([(np.clip(draws, -width, width) == cell).sum() for cell in cells])
    return fits_frequencies(counts, masses(distribution, scale, cells), FALSE_ALARM)


def source_of(kind: str) -> Any:
    return noise_source({"exact": None, "opendp": "opendp", "seeded": 7}[kind])


@pytest.mark.parametrize("scale", [0.4, 1.0, 3.3])
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("kind", ["exact", "opendp", "seeded"])
def test_draws_follow_the_law_around_the_value(kind: str, distribution: str, scale: float) -> None:
    runs = 8_000 if kind == "opendp" else 100_000
    value = -(10**6)
    draws = getattr(source_of(kind), distribution)(np.full(runs, value), scale) - value
    assert draws.dtype == np.int64
    assert fits(draws, distribution, scale)
    assert not fits(draws, distribution, scale * 1.3) and not fits(draws, distribution, scale / 1.3)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_shift_of_one_is_worth_the_stated_epsilon(distribution: str) -> None:
    source, runs = SeededSource(3), 100_000
    p, q = (getattr(source, distribution)(np.full(runs, v), 2.0) for v in (0, 1))
    found = epsilon_lower_bound(p, q, delta=1e-3 if distribution == "discrete_gaussian" else 0.0)
    # Laplace: exactly 1/2. Gaussian: (epsilon, 1e-3) with epsilon below the continuous curve's 1.4 at mu = 1/2.
    assert found <= (0.5 if distribution == "discrete_laplace" else 1.4)
    halved = [getattr(source, distribution)(np.full(runs, v), 1.0) for v in (0, 1)]
    assert epsilon_lower_bound(*halved, delta=1e-3 if distribution == "discrete_gaussian" else 0.0) > (
        0.9 if distribution == "discrete_laplace" else 1.4
    )


@pytest.mark.parametrize("kind", ["exact", "opendp", "seeded"])
def test_shapes_types_and_refusals(kind: str) -> None:
    source = source_of(kind)
    assert isinstance(source, DiscreteNoiseSource) and isinstance(source, NoiseSource)
    for distribution in DISTRIBUTIONS:
        draw = getattr(source, distribution)
        assert draw(np.zeros((2, 3)), 1).shape == (2, 3)
        assert draw([], 1.0).shape == (0,) and draw(5, 1e-9).shape == ()
        assert int(draw(2**53, 1e-9)) == 2**53 and int(draw(-4.0, 1e-9)) == -4
        for bad in ([1.5], [np.nan], [2.0**54], ["a"], [1j]):
            with pytest.raises(SpecificationError) as caught:
                draw(bad, 1.0)
            assert "1.5" not in str(caught.value)
        for scale in (0, -1.0, np.inf, np.nan, True, "1", 2.0**46):
            with pytest.raises(SpecificationError):
                draw([1], scale)
