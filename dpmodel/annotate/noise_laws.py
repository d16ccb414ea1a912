"""The laws that published noise may have, as declared by whoever published it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Law:
    """A law with one scale, or one per entry. ``absolute`` and ``square`` are the weights of its negative logarithm:
    ``absolute |z| + square z^2`` up to a constant."""

    scale: Any
    name: ClassVar[str] = ""
    discrete: ClassVar[bool] = False

    @property
    def standard_deviation(self) -> Any:
        raise NotImplementedError

    @property
    def absolute(self) -> Any:
        raise NotImplementedError

    @property
    def square(self) -> Any:
        raise NotImplementedError

    def sample(self, shape: tuple[int, ...], generator: np.random.Generator) -> Floats:
        """Simulated noise, for bootstrap and forecasts; never for a release."""
        raise NotImplementedError


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

    def sample(self, shape: tuple[int, ...], generator: np.random.Generator) -> Floats:
        return generator.laplace(scale=self.scale, size=shape)


class Gaussian(Law):
    """Density exp(-z^2 / (2 scale^2)) / (scale sqrt(2 pi))."""

    name = "gaussian"

    @property
    def standard_deviation(self) -> Any:
        return self.scale

    @property
    def absolute(self) -> Any:
        return 0.0 * self.scale

    @property
    def square(self) -> Any:
        return 0.5 / np.square(self.scale)

    def sample(self, shape: tuple[int, ...], generator: np.random.Generator) -> Floats:
        return generator.normal(scale=self.scale, size=shape)


class DiscreteLaplace(Laplace):
    """Mass proportional to exp(-|k| / scale) on the integers (the two-sided geometric law)."""

    name = "discrete laplace"
    discrete = True


class DiscreteGaussian(Gaussian):
    """Mass proportional to exp(-k^2 / (2 scale^2)) on the integers."""

    name = "discrete gaussian"
    discrete = True
