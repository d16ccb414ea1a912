"""Sources of noise: what a source is, which one a caller gets, and the default one.

`ExactSource` is the default; `OpenDPSource` draws the same distributions by other code; `SeededSource` is numpy's
generator for tests, which is reproducible and therefore not private.

Noise is never added to a value by hand: ``value + noise`` in floating point has gaps that depend on the value (Mironov
2012), so the value goes through the source, which rounds it to a grid and adds discrete noise in exact integer
arithmetic. What no noise can mend is rounding that happened before: callers put the rounding error of their own sums
into the sensitivity.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from dpmodel.errors import NotPrivateWarning, SpecificationError, users_line
from dpmodel.privacy._checks import FloatArray, check_half_width, check_scale, count_of, finite_array, score_vector
from dpmodel.privacy.sampling import (
    IntArray,
    Scale,
    check_discrete_scale,
    discrete_gaussian,
    discrete_laplace,
    discrete_normal,
    exact_choice,
    integer_array,
    truncated,
    two_sided_geometric,
    window_noise,
)


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

    def truncated_gaussian(self, values: object, scale: float, half_width: float) -> FloatArray:
        """``values`` plus independent N(0, scale^2) noise conditioned on |z| <= half_width."""

    def noisy_max(self, scores: object, scale: float, *, kind: SelectionKind) -> int:
        """Index drawn by the exponential mechanism, ~ exp(score/scale), or by permute-and-flip."""


@runtime_checkable
class DiscreteNoiseSource(Protocol):
    """A source that can also add integer noise. Entries must be integers of at most 2^53 in size; results are int64."""

    def discrete_laplace(self, values: object, scale: float) -> IntArray:
        """``values`` plus independent noise of P(k) ~ exp(-|k| / scale): D1/scale-DP for integer changes of size D1."""

    def discrete_gaussian(self, values: object, scale: float) -> IntArray:
        """``values`` plus independent noise of P(k) ~ exp(-k^2 / (2 scale^2)): rho = D2^2 / (2 scale^2) in zCDP."""


class CheckedSource:
    """The methods of `NoiseSource` and `DiscreteNoiseSource`, checked; a source fills in the four at the end."""

    def laplace(self, values: object, scale: float) -> FloatArray:
        return self._real(finite_array(values, "values"), check_scale(scale), False)

    def gaussian(self, values: object, scale: float) -> FloatArray:
        return self._real(finite_array(values, "values"), check_scale(scale), True)

    def discrete_laplace(self, values: object, scale: float) -> IntArray:
        return self._integer(integer_array(values), check_discrete_scale(scale), False)

    def discrete_gaussian(self, values: object, scale: float) -> IntArray:
        return self._integer(integer_array(values), check_discrete_scale(scale), True)

    def truncated_laplace(self, values: object, scale: float, half_width: float) -> FloatArray:
        scale = check_scale(scale)
        half_width = check_half_width(scale, half_width)
        return self._truncated(finite_array(values, "values"), scale, half_width, False)

    def truncated_gaussian(self, values: object, scale: float, half_width: float) -> FloatArray:
        scale = check_scale(scale)
        half_width = check_half_width(scale, half_width)
        return self._truncated(finite_array(values, "values"), scale, half_width, True)

    def noisy_max(self, scores: object, scale: float, *, kind: SelectionKind) -> int:
        vector, scale = score_vector(scores), check_scale(scale)
        if kind not in ("exponential", "permute_and_flip"):
            raise SpecificationError(
                f"unknown kind of selection {kind!r}",
                why="two kinds of selection are known",
                remedy="pass kind='exponential' or kind='permute_and_flip'",
            )
        return self._selected(vector, scale, kind == "exponential")

    def _real(self, array: FloatArray, scale: float, gaussian: bool) -> FloatArray:
        raise NotImplementedError

    def _integer(self, array: IntArray, scale: float, gaussian: bool) -> IntArray:
        raise NotImplementedError

    def _truncated(self, array: FloatArray, scale: float, half_width: float, gaussian: bool) -> FloatArray:
        raise NotImplementedError

    def _selected(self, scores: FloatArray, scale: float, exponential: bool) -> int:
        raise NotImplementedError


class SeededSource(CheckedSource):
    """Reproducible noise from a numpy generator, for tests and teaching. NOT private.

    ``seed`` : int or numpy Generator.
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

    def _integer(self, array: IntArray, scale: float, gaussian: bool) -> IntArray:
        draw = discrete_normal if gaussian else two_sided_geometric
        return np.asarray(array + draw(scale, array.shape, self._rng))

    def _truncated(self, array: FloatArray, scale: float, half_width: float, gaussian: bool) -> FloatArray:
        return np.asarray(array + window_noise(scale, half_width, gaussian, array.shape, self._rng))

    def _selected(self, scores: FloatArray, scale: float, exponential: bool) -> int:
        """Gumbel noise gives the exponential mechanism, exponential noise permute-and-flip (Ding et al.
        2021, "The Permute-and-Flip Mechanism Is Identical to Report-Noisy-Max with Exponential Noise").
        """
        draw = self._rng.gumbel if exponential else self._rng.exponential
        return int(np.argmax(scores + draw(scale=scale, size=scores.shape)))


def noise_source(rng: int | str | np.random.Generator | NoiseSource | None = None) -> NoiseSource:
    """Return the source that ``rng`` asks for.

    ``rng`` : None for `ExactSource`, "opendp" for `OpenDPSource` (both private); an int or numpy Generator for a
        `SeededSource` (not private, with a warning); a source for itself.
    """
    if rng is None:
        return ExactSource()
    if isinstance(rng, str) and rng == "opendp":
        from dpmodel.privacy.opendp_source import OpenDPSource

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


def public_generator(seed: int | Sequence[int]) -> PublicGenerator:
    """A generator for simulations on public facts (forecasts), and for coins that all may know. Never for noise on
    private numbers."""
    return np.random.default_rng(seed)


def public_coins() -> PublicGenerator:
    """The same from a seed of the system's, for statements whose probability is over coins too: they are independent of
    all noise, and other ones every time. Never for noise on private numbers."""
    return np.random.default_rng()


SelectionKind = Literal["exponential", "permute_and_flip"]


# ---- The default source: exact integer noise, carried to real numbers
#
# Real numbers. Let g = 2^k be the power of two with 2^80 g <= scale < 2^81 g. A value v counts as the nearest multiple
# w g of g, and what is released of it is a function of the integer w + Z, Z integer noise of scale ``scale / g``
# (`sampling`).
#
# Privacy. Rounding moves two values apart by at most g, so it adds at most n g to the l1 (sqrt(n) g to the l2) distance
# of two vectors of n entries: n 2^-80 at most to epsilon, 1e-15 for n = 10^9. Beyond that the privacy is that of
# discrete noise: D1 / scale for Laplace, rho = D2^2 / (2 scale^2) for Gaussian. Discrete Gaussian noise this fine is a
# rounded Gaussian up to relative changes of 2^-70 in its tails, far inside the margin that `accounting.gaussian_mu`
# leaves. So it counts as Gaussian noise in mu too: a Gaussian rounded to the grid, whose steps all shifts are whole
# multiples of, is the same function of both neighbors' sums. Likewise Laplace noise this fine is a rounded Laplace
# variable up to relative changes of 2^-80, and costs `laplace_rho`; on integers, whose steps count, it does not.
#
# All the rest is post-processing, if what is computed in floating point is a function of the integer S = w + Z and of
# nothing else (`add_on_grid`). It is. With B = 2^61:
#
# - w = top B + rest, ``top`` a whole float and |rest| <= B: multiplying by powers of two, cutting digits off and taking
# away what was cut are exact. Z = high B + low with |low| < B.
# - rest + low = carry B + digit with -B/2 <= digit < B/2, in 64-bit integers: all sums stay below 2^63.
# - So S = (top + high + carry) B + digit, and S alone decides the integer top + high + carry and ``digit``.
# - The float sum of ``top`` and ``high + carry`` is that integer, correctly rounded: a function of the integer, not of
# how it was split. All that follows is computed from this float and ``digit``.
#
# No branch depends on a value. Values beyond 2^1000 scale are clipped there or farther out, which moves no two apart.
#
# Selection is `exact_choice`. Truncated noise is cut as an integer, before it meets the value.


_GRID_BITS = 80
_DIGIT_BITS = 61  # those of Scale.of(scale, grid)
_LARGEST = sys.float_info.max


class ExactSource(CheckedSource):
    """Noise with exactly the stated distribution, from the operating system's random bits, vectorised."""

    is_private = True

    def _real(self, array: FloatArray, scale: float, gaussian: bool) -> FloatArray:
        grid = _grid(scale)
        draw = discrete_gaussian if gaussian else discrete_laplace
        return add_on_grid(array, draw(Scale.of(scale, grid), array.size), grid)

    def _integer(self, array: IntArray, scale: float, gaussian: bool) -> IntArray:
        draw, parts = discrete_gaussian if gaussian else discrete_laplace, Scale.of(scale)
        # Scales up to 2^45 have bits <= 26, so |noise| < 2^62; values are at most 2^53.
        high, low = draw(parts, array.size).reshape(2, *array.shape)
        return np.asarray(array + (high << parts.bits) + low)

    def _truncated(self, array: FloatArray, scale: float, half_width: float, gaussian: bool) -> FloatArray:
        """Noise beyond half_width is drawn again: exactly the distribution around the rounded value, conditioned on the
        window. The result is rounded to a float, which shifts its window by at most half an ulp; like all rounding it
        belongs in the sensitivity, and the relative 1e-9 by which `truncated_laplace_half_width` and
        `truncated_gaussian_width` round up leaves room for it at ordinary magnitudes. About 1 + scale/half_width draws
        are made for one."""
        grid = _grid(scale)
        most = Fraction(half_width) // Fraction(2) ** grid
        draw = discrete_gaussian if gaussian else discrete_laplace
        return add_on_grid(array, truncated(draw, Scale.of(scale, grid), array.size, most), grid)

    def _selected(self, scores: FloatArray, scale: float, exponential: bool) -> int:
        return exact_choice(scores, scale, exponential)


def _grid(scale: float) -> int:
    """k with 2^(k + 80) <= scale < 2^(k + 81)."""
    return math.frexp(scale)[1] - 1 - _GRID_BITS


def add_on_grid(values: FloatArray, noise: IntArray, grid: int) -> FloatArray:
    """``values``, rounded to multiples of 2^grid, plus ``noise`` (2, size) in that unit: a function of the sums."""
    high, low = noise.reshape(2, *values.shape)
    unit = grid + _DIGIT_BITS
    # Whatever numpy was told to warn of: values decide nothing but the result. What leaves the floats is cut.
    with np.errstate(all="ignore"):
        limit = np.ldexp(_LARGEST, unit)
        values = np.clip(values, -limit, limit)
        top = np.trunc(np.ldexp(values, -unit))
        rest = np.rint(np.ldexp(values - np.ldexp(top, unit), -grid)).astype(np.int64)
        carry = (rest + low + 2 ** (_DIGIT_BITS - 1)) >> _DIGIT_BITS
        digit = rest + low - (carry << _DIGIT_BITS)
        sums = np.ldexp(top + (high + carry), unit) + np.ldexp(digit.astype(np.float64), grid)
        return np.asarray(np.clip(sums, -_LARGEST, _LARGEST))
