"""Noise: what a source is, and which one is asked for.

`ExactSource` is the default; `OpenDPSource` draws the same distributions by other code; `SeededSource` is numpy's
generator for tests, which is reproducible and therefore not private.

Noise is never added to a value by hand: ``value + noise`` in floating point has gaps that depend on the value (Mironov
2012), so the value goes through the source, which rounds it to a grid and adds discrete noise in exact integer
arithmetic. What no noise can mend is rounding that happened before: callers put the rounding error of their own sums
into the sensitivity.
"""

from __future__ import annotations

import math
import warnings
from typing import Protocol, runtime_checkable

import numpy as np

from dpmodel.errors import SpecificationError
from dpmodel.privacy._checks import FloatArray, count_of
from dpmodel.privacy.checked_source import CheckedSource, SelectionKind
from dpmodel.privacy.discrete import IntArray, discrete_normal, two_sided_geometric
from dpmodel.privacy.exact_source import ExactSource
from dpmodel.privacy.opendp_source import OpenDPSource
from dpmodel.users_line import users_line


class NotPrivateWarning(UserWarning):
    """The noise is reproducible: whoever knows the seed can subtract it."""


@runtime_checkable
class NoiseSource(Protocol):
    """Where randomness comes from. Arrays keep their shape; entries must be finite floats."""

    @property
    def is_private(self) -> bool:
        """Whether the draws are unpredictable, so that a privacy guarantee may be stated."""

    def laplace(self, values: object, scale: float) -> FloatArray:
        """``values`` plus independent Laplace(scale) noise."""

    def gaussian(self, values: object, scale: float) -> FloatArray:
        """``values`` plus independent N(0, scale^2) noise."""

    def truncated_laplace(self, values: object, scale: float, half_width: float) -> FloatArray:
        """``values`` plus independent Laplace(scale) noise conditioned on |z| <= half_width."""

    def noisy_max(self, scores: object, scale: float, *, kind: SelectionKind) -> int:
        """Index drawn by the exponential mechanism, ~ exp(score/scale), or by permute-and-flip."""


@runtime_checkable
class DiscreteNoiseSource(Protocol):
    """A source that can also add integer noise. Entries must be whole, at most 2^53 in size; results are int64."""

    def discrete_laplace(self, values: object, scale: float) -> IntArray:
        """``values`` plus independent noise of P(k) ~ exp(-|k| / scale): D1/scale-DP for whole changes of size D1."""

    def discrete_gaussian(self, values: object, scale: float) -> IntArray:
        """``values`` plus independent noise of P(k) ~ exp(-k^2 / (2 scale^2)): rho = D2^2 / (2 scale^2) in zCDP."""


class SeededSource(CheckedSource):
    """Reproducible noise from a numpy generator, for tests and teaching. NOT private.

    Parameters
    ----------
    seed : int or numpy Generator.
    """

    is_private = False

    def __init__(self, seed: int | np.random.Generator) -> None:
        # default_rng(None) would be an unseeded generator, which is not private either.
        if not isinstance(seed, np.random.Generator):
            seed = np.random.default_rng(count_of(seed, "seed", least=0))
        self._rng = seed
        warnings.warn(
            "SeededSource is NOT private: its noise can be recomputed and subtracted. Use it for tests only; "
            "leave rng=None for a release.",
            NotPrivateWarning,
            stacklevel=users_line(),
        )

    def _real(self, array: FloatArray, scale: float, gaussian: bool) -> FloatArray:
        draw = self._rng.normal if gaussian else self._rng.laplace
        return np.asarray(array + draw(scale=scale, size=array.shape))

    def _whole(self, array: IntArray, scale: float, gaussian: bool) -> IntArray:
        draw = discrete_normal if gaussian else two_sided_geometric
        return np.asarray(array + draw(scale, array.shape, self._rng))

    def _truncated(self, array: FloatArray, scale: float, half_width: float) -> FloatArray:
        inside = -math.expm1(-half_width / scale)  # mass of the window before truncation
        size = np.minimum(-scale * np.log1p(-self._rng.random(array.shape) * inside), half_width)
        return array + np.where(self._rng.random(array.shape) < 0.5, -size, size)

    def _selected(self, scores: FloatArray, scale: float, exponential: bool) -> int:
        """Gumbel noise gives the exponential mechanism, exponential noise permute-and-flip (Ding et al.
        2021, "The Permute-and-Flip Mechanism Is Identical to Report-Noisy-Max with Exponential Noise").
        """
        draw = self._rng.gumbel if exponential else self._rng.exponential
        return int(np.argmax(scores + draw(scale=scale, size=scores.shape)))


def noise_source(rng: int | str | np.random.Generator | NoiseSource | None = None) -> NoiseSource:
    """Return the source that ``rng`` asks for.

    Parameters
    ----------
    rng : None for `ExactSource`, "opendp" for `OpenDPSource` (both private); an int or numpy Generator for a
        `SeededSource` (not private, with a warning); a source for itself.
    """
    if rng is None:
        return ExactSource()
    if isinstance(rng, str) and rng == "opendp":
        return OpenDPSource()
    if isinstance(rng, (np.random.Generator, int, np.integer)) and not isinstance(rng, bool):
        return SeededSource(rng if isinstance(rng, np.random.Generator) else int(rng))
    if isinstance(rng, NoiseSource):
        return rng
    raise SpecificationError(
        f"rng of type {type(rng).__name__} is not a source of noise",
        why="noise is drawn through dpmodel.privacy only",
        remedy="pass None or 'opendp' (private), an int seed (tests only), or an object with NoiseSource's methods",
    )


# What forecasts draw synthetic data and noise from.
PublicGenerator = np.random.Generator


def public_generator(seed: int) -> PublicGenerator:
    """A generator for simulations on public facts (forecasts). Never for noise on private numbers."""
    return np.random.default_rng(seed)
