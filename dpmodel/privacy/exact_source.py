"""The default source: exact integer noise, carried to real numbers.

Real numbers. Let g = 2^k be the power of two with 2^80 g <= scale < 2^81 g. A value v counts as the nearest multiple
w g of g, and what is released of it is a function of the integer w + Z, Z integer noise of scale ``scale / g``
(`exact_noise`).

Privacy. Rounding moves two values apart by at most g, so it adds at most n g to the l1 (sqrt(n) g to the l2) distance
of two vectors of n entries: n 2^-80 at most to epsilon, 1e-15 for n = 10^9. Beyond that the privacy is that of
discrete noise: D1 / scale for Laplace, rho = D2^2 / (2 scale^2) for Gaussian. Discrete Gaussian noise this fine is a
rounded Gaussian up to relative changes of 2^-70 in its tails, far inside the margin that `accounting.gaussian_mu`
leaves.

All the rest is post-processing, if what is computed in floating point is a function of the integer S = w + Z and of
nothing else (`add_on_grid`). It is. With B = 2^61:

- w = top B + rest, ``top`` a whole float and |rest| <= B: multiplying by powers of two, cutting digits off and taking
  away what was cut are exact. Z = high B + low with |low| < B.
- rest + low = carry B + digit with -B/2 <= digit < B/2, in 64-bit integers: all sums stay below 2^63.
- So S = (top + high + carry) B + digit, and S alone decides the integer top + high + carry and ``digit``.
- The float sum of ``top`` and ``high + carry`` is that integer, correctly rounded: a function of the integer, not of
  how it was split. All that follows is computed from this float and ``digit``.

No branch depends on a value. Values beyond 2^1000 scale are clipped there or farther out, which moves no two apart.

Selection is `exact_choice`. Truncated noise is cut as an integer, before it meets the value.
"""

from __future__ import annotations

import math
import sys
from fractions import Fraction

import numpy as np

from dpmodel.privacy._checks import FloatArray
from dpmodel.privacy.checked_source import CheckedSource
from dpmodel.privacy.discrete import IntArray
from dpmodel.privacy.exact_choice import exact_choice
from dpmodel.privacy.exact_noise import Scale, discrete_gaussian, discrete_laplace, truncated_laplace

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

    def _whole(self, array: IntArray, scale: float, gaussian: bool) -> IntArray:
        draw, parts = discrete_gaussian if gaussian else discrete_laplace, Scale.of(scale)
        # Scales up to 2^45 have bits <= 26, so |noise| < 2^62; values are at most 2^53.
        high, low = draw(parts, array.size).reshape(2, *array.shape)
        return np.asarray(array + (high << parts.bits) + low)

    def _truncated(self, array: FloatArray, scale: float, half_width: float) -> FloatArray:
        """Noise beyond half_width is drawn again: exactly the distribution around the rounded value, conditioned on the
        window. The result is rounded to a float, which shifts its window by at most half an ulp; like all rounding it
        belongs in the sensitivity, and the relative 1e-9 by which `truncated_laplace_half_width` rounds up leaves
        room for it at ordinary magnitudes. About 1 + scale/half_width draws are made for one."""
        grid = _grid(scale)
        most = Fraction(half_width) // Fraction(2) ** grid
        return add_on_grid(array, truncated_laplace(Scale.of(scale, grid), array.size, most), grid)

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
