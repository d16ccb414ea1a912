"""Whole-number noise: checks, and exact simulation from a numpy generator (never for a release).

Discrete Laplace with parameter ``scale``: P(k) ~ exp(-|k| / scale). Discrete Gaussian: P(k) ~ exp(-k^2 / (2 scale^2)),
whose standard deviation is ``scale`` or a little less (Canonne, Kamath and Steinke 2020).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dpmodel.errors import SpecificationError
from dpmodel.privacy._checks import FloatArray, check_scale, finite_array

IntArray = npt.NDArray[np.int64]

# Beyond these, integers leave the floats that hold them exactly, or 64 bits.
_LARGEST_VALUE = 2.0**53
LARGEST_SCALE = 2.0**45


def check_discrete_scale(value: object) -> float:
    """Return a scale in (0, 2^45], or raise SpecificationError."""
    number = check_scale(value)
    if number > LARGEST_SCALE:
        raise SpecificationError(
            f"scale = {number} is too large for discrete noise",
            why=f"above {LARGEST_SCALE:g} its draws leave the 64-bit integers",
            remedy="the continuous distribution, which hardly differs at that scale",
        )
    return number


def whole_array(values: object) -> IntArray:
    """Return ``values`` as int64, or raise SpecificationError unless all are whole and at most 2^53 in size."""
    array = finite_array(values, "values")
    if (array != np.rint(array)).any() or (np.abs(array) > _LARGEST_VALUE).any():
        raise SpecificationError(
            "values has an entry that is no integer of at most 2^53 in size",
            why="discrete noise keeps integers whole; rounding them here could enlarge a record's change",
            remedy="continuous noise, or integers",
        )
    return np.asarray(values if np.asarray(values).dtype.kind in "iu" else array).astype(np.int64)


def two_sided_geometric(scale: Any, shape: tuple[int, ...], generator: np.random.Generator) -> IntArray:
    """Draws of P(k) ~ exp(-|k| / scale): the difference of two geometric ones. ``scale`` : number or array."""
    success = -np.expm1(-1.0 / np.asarray(scale, dtype=np.float64))
    one = generator.geometric(success, size=shape)
    return np.asarray(one - generator.geometric(success, size=shape), dtype=np.int64)


def discrete_normal(scale: Any, shape: tuple[int, ...], generator: np.random.Generator) -> IntArray:
    """Draws of P(k) ~ exp(-k^2 / (2 scale^2)), by rejection from discrete Laplace noise of scale floor(scale) + 1.

    With t that scale, exp(-k^2 / (2 s^2)) / exp(-|k| / t) = exp(-(|k| - s^2/t)^2 / (2 s^2)) exp(s^2 / (2 t^2)): the
    first factor is the probability of acceptance (Canonne, Kamath and Steinke 2020, Algorithm 3), about a half.
    """
    spread: FloatArray = np.broadcast_to(np.asarray(scale, dtype=np.float64), shape).ravel()
    out = np.zeros(spread.size, dtype=np.int64)
    left = np.arange(spread.size)
    while left.size:
        s = spread[left]
        t = np.floor(s) + 1.0
        k = two_sided_geometric(t, (left.size,), generator)
        accepted = generator.random(left.size) < np.exp(-(((np.abs(k) - s * s / t) / s) ** 2) / 2.0)
        out[left[accepted]] = k[accepted]
        left = left[~accepted]
    return out.reshape(shape)
