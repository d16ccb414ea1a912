"""The laws of noise that are published with a release: what was added, and how large it can be.

A law is public data: it holds parameters and knows its quantiles. Randomness is in `noise`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scipy.special import gammainc, ndtri

from dpmodel.errors import SpecificationError
from dpmodel.privacy._checks import FloatArray, count_of, fraction, positive

if TYPE_CHECKING:
    from dpmodel.privacy.noise import NoiseSource

__all__ = ["Gaussian", "Laplace", "NoiseLaw", "TruncatedLaplace", "check_half_width", "check_scale"]

_SMALLEST_SCALE, _LARGEST_SCALE = 1e-290, 1e290
_LEAST_TRUNCATION = 2.0**-10  # half_width / scale below this: rejection would take > 1000 rounds


def check_scale(value: object, name: str = "scale") -> float:
    """Return a scale > 0 that 64-bit arithmetic can handle, or raise SpecificationError."""
    number = positive(value, name)
    if not _SMALLEST_SCALE <= number <= _LARGEST_SCALE:
        raise SpecificationError(
            f"{name} = {number} is too extreme for 64-bit floats",
            why=f"it must lie in [{_SMALLEST_SCALE}, {_LARGEST_SCALE}] for the privacy map to be exact",
            remedy="rescale the model to sensible units",
        )
    return number


def check_half_width(scale: float, value: object) -> float:
    """Return a half width > 0 that rejection can serve, or raise SpecificationError."""
    number = positive(value, "half_width")
    if number < _LEAST_TRUNCATION * scale:
        raise SpecificationError(
            f"half_width = {number} is far below scale = {scale}",
            why="such noise is practically uniform and its delta is useless; drawing it would take for ever",
            remedy="take half_width from truncated_laplace_half_width(scale, epsilon, delta)",
        )
    return number


def _tail_share(count: int, beta: float) -> float:
    """Tail p of one draw such that the largest of ``count`` draws stays below it w.p. 1 - beta.

    (1 - p)^count = 1 - beta, solved by log1p and expm1 so that p = 1e-21 keeps its digits.
    """
    return -math.expm1(math.log1p(-beta) / count)


@dataclass(frozen=True, slots=True)
class Laplace:
    """Laplace noise: density exp(-|z|/scale) / (2 scale). With scale = D1/epsilon it is epsilon-DP.

    Parameters
    ----------
    scale : float > 0, in the unit of the values.
    """

    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", check_scale(self.scale))

    @property
    def standard_deviation(self) -> float:
        """Standard deviation, in the unit of the values."""
        return math.sqrt(2.0) * self.scale

    @property
    def support(self) -> float:
        """Largest possible |z|."""
        return math.inf

    def max_abs_quantile(self, count: int, beta: float) -> float:
        """Exact (1-beta) quantile of max |z_i| over ``count`` independent draws (0 for count 0)."""
        count, beta = count_of(count, "count", least=0), fraction(beta, "beta")
        return _exponential_quantile(self.scale, 0.0, count, beta) if count else 0.0

    def sample(self, values: object, source: NoiseSource) -> FloatArray:
        """Return ``values`` (finite, any shape) with independent noise on every entry."""
        return source.laplace(values, self.scale)

    def to_dict(self) -> dict[str, str | float]:
        """Plain data for a release."""
        return {"law": "laplace", "scale": self.scale}


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Gaussian noise of standard deviation ``scale``; mu = D2/scale in Gaussian DP, rho = mu^2/2 in zCDP.

    Parameters
    ----------
    scale : float > 0, the standard deviation, in the unit of the values.
    """

    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", check_scale(self.scale))

    @property
    def standard_deviation(self) -> float:
        """Standard deviation, in the unit of the values."""
        return self.scale

    @property
    def support(self) -> float:
        """Largest possible |z|."""
        return math.inf

    def max_abs_quantile(self, count: int, beta: float) -> float:
        """Exact (1-beta) quantile of max |z_i| over ``count`` independent draws (0 for count 0)."""
        count, beta = count_of(count, "count", least=0), fraction(beta, "beta")
        return -self.scale * float(ndtri(_tail_share(count, beta) / 2.0)) if count else 0.0

    def sample(self, values: object, source: NoiseSource) -> FloatArray:
        """Return ``values`` (finite, any shape) with independent noise on every entry."""
        return source.gaussian(values, self.scale)

    def to_dict(self) -> dict[str, str | float]:
        """Plain data for a release."""
        return {"law": "gaussian", "scale": self.scale}


@dataclass(frozen=True, slots=True)
class TruncatedLaplace:
    """Laplace noise conditioned on |z| <= half_width: bounded error for a delta > 0.

    Parameters
    ----------
    scale : float > 0, of the Laplace law before truncation, in the unit of the values.
    half_width : float >= scale / 1024; `truncated_laplace_half_width` gives it for (epsilon, delta).
    """

    scale: float
    half_width: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", check_scale(self.scale))
        object.__setattr__(self, "half_width", check_half_width(self.scale, self.half_width))

    @property
    def standard_deviation(self) -> float:
        """Standard deviation, in the unit of the values."""
        ratio = self.half_width / self.scale
        # E z^2 = scale^2 * (integral of x^2 e^-x over [0, ratio]) / (1 - e^-ratio), free of cancellation.
        return self.scale * math.sqrt(2.0 * float(gammainc(3.0, ratio)) / -math.expm1(-ratio))

    @property
    def support(self) -> float:
        """Largest possible |z|."""
        return self.half_width

    def max_abs_quantile(self, count: int, beta: float) -> float:
        """Exact (1-beta) quantile of max |z_i| over ``count`` independent draws (0 for count 0)."""
        count, beta = count_of(count, "count", least=0), fraction(beta, "beta")
        if not count:
            return 0.0
        cut = math.exp(-self.half_width / self.scale)
        return min(_exponential_quantile(self.scale, cut, count, beta), self.half_width)

    def sample(self, values: object, source: NoiseSource) -> FloatArray:
        """Return ``values`` (finite, any shape) with independent noise on every entry."""
        return source.truncated_laplace(values, self.scale, self.half_width)

    def to_dict(self) -> dict[str, str | float]:
        """Plain data for a release."""
        return {"law": "truncated_laplace", "scale": self.scale, "half_width": self.half_width}


NoiseLaw = Laplace | Gaussian | TruncatedLaplace


def _exponential_quantile(scale: float, cut: float, count: int, beta: float) -> float:
    """Quantile of the maximum of ``count`` exponentials conditioned on survival function >= ``cut``."""
    tail = _tail_share(count, beta)
    survival = tail + cut * (1.0 - tail)
    if survival < 0.5:
        return -scale * math.log(survival)
    # Near 1 the logarithm would lose its digits; 1 - survival = (1 - tail)(1 - cut) does not.
    return -scale * math.log1p(-math.exp(math.log1p(-beta) / count) * (1.0 - cut))
