"""The laws that published noise may have, as declared by whoever published it."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpmodel._types import Floats
from dpmodel.errors import SpecificationError
from dpmodel.privacy import PublicGenerator
from dpmodel.privacy.discrete import LARGEST_SCALE, discrete_normal, two_sided_geometric
from dpmodel.text import array_text, number

# Scales are squared and inverted.
_LEAST, _MOST = 1e-150, 1e150
# Poisson summation converges above, the plain sum below; a dozen terms leave 1e-30 at worst.
_POISSON_FROM = 0.6
_TERMS = np.arange(1.0, 13.0)


@dataclass(frozen=True, eq=False, repr=False)
class Law:
    """A law with one scale, or one per entry; noise of different entries is independent.

    ``absolute`` and ``square`` are the weights of its negative logarithm: ``absolute |z| + square z^2`` up to a
    constant (for discrete laws, its convex extension).

    Parameters
    ----------
    scale : positive number, or an array of them (kept as a read-only copy) that broadcasts to the values' shape.

    Raises
    ------
    SpecificationError
        For scales that are not positive finite numbers in [1e-150, 1e150] (discrete laws: up to 2^45).
    """

    scale: Any
    name: ClassVar[str] = ""
    discrete: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if type(self) is Law:
            raise SpecificationError("Law has no density of its own", remedy="Laplace(scale) or Gaussian(scale)")
        object.__setattr__(self, "scale", _checked(self.scale, type(self)))

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(self.scale, np.ndarray):
            self.scale.setflags(write=False)

    @property
    def standard_deviation(self) -> Any:
        """Of every entry's noise: a number, or an array of the scale's shape."""
        raise NotImplementedError

    @property
    def absolute(self) -> Any:
        """Weight of |z| in the negative logarithm."""
        raise NotImplementedError

    @property
    def square(self) -> Any:
        """Weight of z^2 in the negative logarithm."""
        raise NotImplementedError

    def sample(self, shape: tuple[int, ...], generator: PublicGenerator) -> Floats:
        """Simulated noise, for bootstrap and forecasts; never for a release.

        Parameters
        ----------
        shape : to which the scale must broadcast. generator : from ``dpmodel.privacy.public_generator``.
        """
        return np.asarray(self._draw(shape, generator), dtype=np.float64)

    def _draw(self, shape: tuple[int, ...], generator: PublicGenerator) -> Any:
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the name of the law and its scale (a number or nested lists)."""
        scale = self.scale.tolist() if isinstance(self.scale, np.ndarray) else self.scale
        return {"law": self.name.replace(" ", "_"), "scale": scale}

    def __str__(self) -> str:
        scale = array_text(self.scale) if isinstance(self.scale, np.ndarray) else number(self.scale)
        return f"{type(self).__name__}(scale={scale})"

    def __repr__(self) -> str:
        return str(self) if isinstance(self.scale, np.ndarray) else f"{type(self).__name__}(scale={self.scale:.10g})"


class Laplace(Law):
    """Density exp(-|z| / scale) / (2 scale)."""

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

    def _draw(self, shape: tuple[int, ...], generator: PublicGenerator) -> Any:
        return generator.laplace(scale=self.scale, size=shape)


class Gaussian(Law):
    """Density exp(-z^2 / (2 scale^2)) / (scale sqrt(2 pi)): ``scale`` is the standard deviation."""

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

    def _draw(self, shape: tuple[int, ...], generator: PublicGenerator) -> Any:
        return generator.normal(scale=self.scale, size=shape)


class DiscreteLaplace(Laplace):
    """Mass proportional to exp(-|k| / scale) on the whole numbers (the two-sided geometric law)."""

    name = "discrete laplace"
    discrete = True

    @property
    def standard_deviation(self) -> Any:
        """sqrt(2 q) / (1 - q) with q = exp(-1 / scale)."""
        half = np.exp(-0.5 / np.asarray(self.scale))
        return _like(self.scale, math.sqrt(2.0) * half / -np.expm1(-1.0 / np.asarray(self.scale)))

    def _draw(self, shape: tuple[int, ...], generator: PublicGenerator) -> Any:
        return two_sided_geometric(self.scale, shape, generator)


class DiscreteGaussian(Gaussian):
    """Mass proportional to exp(-k^2 / (2 scale^2)) on the whole numbers; its standard deviation is below ``scale``."""

    name = "discrete gaussian"
    discrete = True

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

    def _draw(self, shape: tuple[int, ...], generator: PublicGenerator) -> Any:
        return discrete_normal(self.scale, shape, generator)


Geometric = DiscreteLaplace

LAWS: tuple[type[Law], ...] = (Laplace, Gaussian, DiscreteLaplace, DiscreteGaussian)


def _like(scale: Any, value: Any) -> Any:
    return value if isinstance(scale, np.ndarray) else float(value)


def _checked(scale: Any, law: type[Law]) -> Any:
    """A float, or a read-only float64 copy."""
    where = law.__name__
    kind = type(scale).__name__
    try:
        array = np.asarray(scale)
        if array.dtype == object and all(_is_number(each) for each in array.ravel()):
            array = array.astype(np.float64)  # columns of a data frame
    except (TypeError, ValueError, OverflowError):
        array = np.asarray(None)
    if array.dtype.kind not in "iuf":
        raise SpecificationError(
            f"{where}: scale of type {kind if array.ndim == 0 else f'{kind} with entries of type {array.dtype}'}",
            why="the scale says how wide the published noise is",
            remedy=f"{where}(2.0), or an array with one positive number per published entry",
        )
    if array.size == 0:
        raise SpecificationError(f"{where}: an empty array of scales", remedy="one scale, or one per published entry")
    most = LARGEST_SCALE if law.discrete else _MOST
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


def _is_number(item: Any) -> bool:
    return isinstance(item, numbers.Real) and not isinstance(item, bool | np.bool_)
