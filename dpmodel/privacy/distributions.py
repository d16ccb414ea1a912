"""Distributions of noise: what a release publishes of its noise, and what published numbers declare of theirs.

A distribution is public data: it holds parameters, and knows its moments and quantiles. ``sample`` simulates, for
forecasts and bootstraps; noise on private numbers is drawn by a source (`noise`), to which ``add_to`` hands the values.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import gammainc, ndtr, ndtri

from dpmodel.errors import SpecificationError
from dpmodel.privacy._checks import FloatArray, check_half_width, count_of, fraction
from dpmodel.privacy.sampling import LARGEST_SCALE, discrete_normal, two_sided_geometric, window_noise
from dpmodel.text import array_text, number

if TYPE_CHECKING:
    from dpmodel.privacy.noise import NoiseSource

# Scales are squared and inverted.
_LEAST, _MOST = 1e-150, 1e150
# Poisson summation converges above, the plain sum below; a dozen terms leave 1e-30 at worst.
_POISSON_FROM = 0.6
_TERMS = np.arange(1.0, 13.0)


@dataclass(frozen=True, eq=False, repr=False)
class Distribution:
    """Noise with one scale, or one per entry; noise of different entries is independent.

    Parameters
    ----------
    scale : positive number, or an array of them (kept as a read-only copy) that broadcasts to the values' shape.

    Raises
    ------
    SpecificationError
        For scales that are not positive finite numbers in [1e-150, 1e150] (discrete ones: up to 2^45).
    """

    scale: Any
    name: ClassVar[str] = ""
    discrete: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.name:
            raise SpecificationError(
                "Distribution has no density of its own", remedy="Laplace(scale) or Gaussian(scale)"
            )
        object.__setattr__(self, "scale", _checked(self.scale, type(self)))

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(self.scale, np.ndarray):
            self.scale.setflags(write=False)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(repr(self.to_dict()))

    @property
    def standard_deviation(self) -> Any:
        """Of every entry's noise: a number, or an array of the scale's shape."""
        raise NotImplementedError

    @property
    def absolute(self) -> Any:
        """Weight of |z| in the negative logarithm, ``absolute |z| + square z^2`` up to a constant (for discrete
        distributions, in its convex extension)."""
        raise NotImplementedError

    @property
    def square(self) -> Any:
        """Weight of z^2 in the negative logarithm."""
        raise NotImplementedError

    def max_abs_quantile(self, count: int, beta: float) -> float:
        """(1-beta) quantile of max |z_i| over ``count`` independent draws (0 for count 0), of one scale: exact but for
        discrete Gaussian noise, where it is at most 1 too large."""
        count, beta = count_of(count, "count", least=0), fraction(beta, "beta")
        return self._quantile(count, beta) if count else 0.0

    def _quantile(self, count: int, beta: float) -> float:
        raise NotImplementedError

    def sample(self, shape: tuple[int, ...], generator: np.random.Generator) -> FloatArray:
        """Simulated noise, for bootstrap and forecasts; never for a release.

        Parameters
        ----------
        shape : to which the scale must broadcast. generator : from ``dpmodel.privacy.public_generator``.
        """
        return np.asarray(self._draw(shape, generator), dtype=np.float64)

    def _draw(self, shape: tuple[int, ...], generator: np.random.Generator) -> Any:
        raise NotImplementedError

    def add_to(self, values: object, source: NoiseSource) -> FloatArray:
        """``values`` (finite, any shape) with independent noise of one scale on every entry, drawn by ``source``."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the name of the distribution and its scale (a number or nested lists)."""
        scale = self.scale.tolist() if isinstance(self.scale, np.ndarray) else self.scale
        return {"distribution": self.name.replace(" ", "_"), "scale": scale}

    def __str__(self) -> str:
        scale = array_text(self.scale) if isinstance(self.scale, np.ndarray) else number(self.scale)
        return f"{type(self).__name__}(scale={scale})"

    def __repr__(self) -> str:
        return str(self) if isinstance(self.scale, np.ndarray) else f"{type(self).__name__}(scale={self.scale:.10g})"


class Laplace(Distribution):
    """Density exp(-|z| / scale) / (2 scale). With scale = D1/epsilon it is epsilon-DP."""

    name = "laplace"

    @property
    def standard_deviation(self) -> Any:
        return math.sqrt(2.0) * self.scale

    @property
    def absolute(self) -> Any:
        return 1.0 / self.scale

    @property
    def square(self) -> Any:
        return 0.0 * self.scale

    def _quantile(self, count: int, beta: float) -> float:
        return _exponential_quantile(self.scale, 0.0, count, beta)

    def _draw(self, shape: tuple[int, ...], generator: np.random.Generator) -> Any:
        return generator.laplace(scale=self.scale, size=shape)

    def add_to(self, values: object, source: NoiseSource) -> FloatArray:
        return source.laplace(values, self.scale)


class Gaussian(Distribution):
    """Density exp(-z^2 / (2 scale^2)) / (scale sqrt(2 pi)): ``scale`` is the standard deviation.

    mu = D2/scale in Gaussian DP, rho = mu^2/2 in zCDP.
    """

    name = "gaussian"

    @property
    def standard_deviation(self) -> Any:
        return self.scale

    @property
    def absolute(self) -> Any:
        return 0.0 * self.scale

    @property
    def square(self) -> Any:
        return 0.5 / (self.scale * self.scale)

    def _quantile(self, count: int, beta: float) -> float:
        return float(-self.scale * ndtri(_tail_share(count, beta) / 2.0))

    def _draw(self, shape: tuple[int, ...], generator: np.random.Generator) -> Any:
        return generator.normal(scale=self.scale, size=shape)

    def add_to(self, values: object, source: NoiseSource) -> FloatArray:
        return source.gaussian(values, self.scale)


class _Whole(Distribution):
    """On integers: drawn by sources that can (``DiscreteNoiseSource``)."""

    discrete = True

    def add_to(self, values: object, source: NoiseSource) -> FloatArray:
        raise NotImplementedError


class DiscreteLaplace(_Whole, Laplace):
    """Mass proportional to exp(-|k| / scale) on the integers (the two-sided geometric distribution)."""

    name = "discrete laplace"

    @property
    def standard_deviation(self) -> Any:
        """sqrt(2 q) / (1 - q) with q = exp(-1 / scale)."""
        half = np.exp(-0.5 / np.asarray(self.scale))
        return _like(self.scale, math.sqrt(2.0) * half / -np.expm1(-1.0 / np.asarray(self.scale)))

    def _quantile(self, count: int, beta: float) -> float:
        """The least m with P(|Z| > m) = 2 q^(m + 1) / (1 + q) at most the share of one draw."""
        far = math.log(2.0 / (_tail_share(count, beta) * (1 + math.exp(-1.0 / self.scale))))
        return float(max(math.ceil(self.scale * far * (1 + 1e-12) - 1), 0))

    def _draw(self, shape: tuple[int, ...], generator: np.random.Generator) -> Any:
        return two_sided_geometric(self.scale, shape, generator)


class DiscreteGaussian(_Whole, Gaussian):
    """Mass proportional to exp(-k^2 / (2 scale^2)) on the integers; its standard deviation is below ``scale``."""

    name = "discrete gaussian"

    @property
    def standard_deviation(self) -> Any:
        """Root of ``sum k^2 w_k / sum w_k`` with w_k = exp(-k^2 / (2 s^2)).

        Summed as it stands for small s; otherwise by Poisson summation of the theta function ``sum w_k``, of which
        the variance is a logarithmic derivative: with v_m = exp(-2 pi^2 s^2 m^2),
        ``s^2 - 4 pi^2 s^4 sum m^2 v_m / sum v_m``.
        """
        s = np.asarray(self.scale, dtype=np.float64)[..., None]
        low, high = np.minimum(s, _POISSON_FROM), np.maximum(s, _POISSON_FROM)
        k2 = _TERMS**2
        w = np.exp(-0.5 * k2 / (low * low))
        v = np.exp(-2.0 * math.pi**2 * k2 * (high * high))
        direct = 2 * (k2 * w).sum(axis=-1) / (1 + 2 * w.sum(axis=-1))
        # As a share of s^2, because s^4 may be large where v is nothing.
        share = 4 * math.pi**2 * high[..., 0] ** 2 * 2 * (k2 * v).sum(axis=-1) / (1 + 2 * v.sum(axis=-1))
        s = s[..., 0]
        return _like(self.scale, np.where(s < _POISSON_FROM, np.sqrt(direct), s * np.sqrt(np.maximum(1 - share, 0.0))))

    def _quantile(self, count: int, beta: float) -> float:
        """At most 1 too large: P(Z >= m + 1) <= P(N >= m) for normal N (Canonne, Kamath and Steinke 2020)."""
        return float(math.ceil(super()._quantile(count, beta)))

    def _draw(self, shape: tuple[int, ...], generator: np.random.Generator) -> Any:
        return discrete_normal(self.scale, shape, generator)


Geometric = DiscreteLaplace


@dataclass(frozen=True, eq=False, repr=False)
class Truncated(Distribution):
    """Noise conditioned on |z| <= half_width: bounded error for a delta > 0.

    Parameters
    ----------
    scale : one number, of the distribution before truncation.
    half_width : float >= scale / 1024; `truncated_laplace_half_width` or `truncated_gaussian_width` (in scales) gives
        it for (epsilon, delta).
    """

    half_width: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.scale, float):
            raise SpecificationError(f"{type(self).__name__}: an array of scales", remedy="one scale")
        object.__setattr__(self, "half_width", check_half_width(self.scale, self.half_width))

    def _draw(self, shape: tuple[int, ...], generator: np.random.Generator) -> Any:
        return window_noise(self.scale, self.half_width, isinstance(self, TruncatedGaussian), shape, generator)

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "half_width": self.half_width}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(scale={self.scale:.10g}, half_width={self.half_width:.10g})"


class TruncatedLaplace(Truncated):
    """Density exp(-|z| / scale) on |z| <= half_width, up to a factor."""

    name = "truncated laplace"

    @property
    def standard_deviation(self) -> float:
        ratio = self.half_width / self.scale
        # E z^2 = scale^2 * (integral of x^2 e^-x over [0, ratio]) / (1 - e^-ratio), free of cancellation.
        return float(self.scale * math.sqrt(2.0 * float(gammainc(3.0, ratio)) / -math.expm1(-ratio)))

    def _quantile(self, count: int, beta: float) -> float:
        cut = math.exp(-self.half_width / self.scale)
        return min(_exponential_quantile(self.scale, cut, count, beta), self.half_width)

    def add_to(self, values: object, source: NoiseSource) -> FloatArray:
        return source.truncated_laplace(values, self.scale, self.half_width)


class TruncatedGaussian(Truncated):
    """Density exp(-z^2 / (2 scale^2)) on |z| <= half_width, up to a factor."""

    name = "truncated gaussian"

    @property
    def standard_deviation(self) -> float:
        half = (self.half_width / self.scale) ** 2 / 2
        # Of z^2 / scale^2 on |z| <= r: P(chi^2_3 <= r^2) / P(chi^2_1 <= r^2), free of cancellation.
        return float(self.scale * math.sqrt(float(gammainc(1.5, half)) / float(gammainc(0.5, half))))

    def _quantile(self, count: int, beta: float) -> float:
        share, cut = _tail_share(count, beta), 2.0 * float(ndtr(-self.half_width / self.scale))
        return min(-float(self.scale) * float(ndtri((share + cut * (1.0 - share)) / 2.0)), self.half_width)

    def add_to(self, values: object, source: NoiseSource) -> FloatArray:
        return source.truncated_gaussian(values, self.scale, self.half_width)


def _like(scale: Any, value: Any) -> Any:
    return value if isinstance(scale, np.ndarray) else float(value)


def _tail_share(count: int, beta: float) -> float:
    """Tail p of one draw such that the largest of ``count`` draws stays below it w.p. 1 - beta.

    (1 - p)^count = 1 - beta, solved by log1p and expm1 so that p = 1e-21 keeps its digits.
    """
    return -math.expm1(math.log1p(-beta) / count)


def _exponential_quantile(scale: float, cut: float, count: int, beta: float) -> float:
    """Quantile of the maximum of ``count`` exponentials conditioned on survival function >= ``cut``."""
    tail = _tail_share(count, beta)
    survival = tail + cut * (1.0 - tail)
    if survival < 0.5:
        return -scale * math.log(survival)
    # Near 1 the logarithm would lose its digits; 1 - survival = (1 - tail)(1 - cut) does not.
    return -scale * math.log1p(-math.exp(math.log1p(-beta) / count) * (1.0 - cut))


def _checked(scale: Any, kind: type[Distribution]) -> Any:
    """A float, or a read-only float64 copy."""
    where = kind.__name__
    given = type(scale).__name__
    try:
        array = np.asarray(scale)
        if array.dtype == object and all(is_number(each) for each in array.ravel()):
            array = array.astype(np.float64)  # columns of a data frame
    except (TypeError, ValueError, OverflowError):
        array = np.asarray(None)
    if array.dtype.kind not in "iuf":
        raise SpecificationError(
            f"{where}: scale of type {given if array.ndim == 0 else f'{given} with entries of type {array.dtype}'}",
            why="the scale says how wide the noise is",
            remedy=f"{where}(2.0), or an array with one positive number per published entry",
        )
    if array.size == 0:
        raise SpecificationError(f"{where}: an empty array of scales", remedy="one scale, or one per published entry")
    most = LARGEST_SCALE if kind.discrete else _MOST
    floats = np.array(array, dtype=np.float64)
    # NaN fails every comparison.
    good = (floats >= _LEAST) & (floats <= most)
    if not good.all():
        wrong = floats.ravel()[int(np.argmin(good.ravel()))]
        raise SpecificationError(
            f"{where}: scale {wrong:g}",
            why="a scale is positive and finite"
            + (f", between {_LEAST:g} and {most:g}" if 0 < wrong < math.inf else ""),
            remedy="the scale the data was published with; numbers published without noise are constraints, not Noisy",
        )
    if floats.ndim == 0:
        return float(floats)
    floats.setflags(write=False)
    return floats


def is_number(item: Any) -> bool:
    """Whether an element of a column of objects is a real number."""
    return isinstance(item, numbers.Real) and not isinstance(item, bool | np.bool_)
