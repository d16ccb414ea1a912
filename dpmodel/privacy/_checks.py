"""Argument checks of this room. Messages name arguments and rules, never entries of an array."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from dpmodel.errors import SpecificationError

FloatArray = npt.NDArray[np.float64]

_SMALLEST_SCALE, _LARGEST_SCALE = 1e-290, 1e290
_LEAST_TRUNCATION = 2.0**-10  # half_width / scale below this: rejection would take > 1000 rounds


def _real(value: object, name: str) -> float:
    if value is None and name == "epsilon":
        raise SpecificationError(
            "epsilon is missing",
            why="a release spends it for good, so that no default could be right",
            remedy="epsilon=1.0, or what your records may lose by this release",
        )
    # bool is a Real in Python, and np.bool_ would pass float(): True is nobody's epsilon.
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise SpecificationError(
            f"{name} must be a number, not {type(value).__name__}",
            why="a privacy parameter that is not a plain real number has no meaning",
            remedy=f"pass a float, for example {name}=1.0",
        )
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isnan(number):
        raise SpecificationError(
            f"{name} is NaN",
            why="comparisons with NaN are all false, so no check could hold",
            remedy=f"find the computation that produced NaN and pass a finite {name}",
        )
    return number


def _refuse(number: float, name: str, rule: str, why: str, remedy: str) -> NoReturn:
    raise SpecificationError(f"{name} = {number} is {rule}", why=why, remedy=remedy)


def positive(value: object, name: str) -> float:
    """Return a finite float > 0, or raise SpecificationError."""
    number = _real(value, name)
    if not 0.0 < number < math.inf:
        _refuse(number, name, "not finite and positive", f"{name} must lie in (0, inf)", f"pass a finite {name} > 0")
    return number


def non_negative(value: object, name: str) -> float:
    """Return a finite float >= 0, or raise SpecificationError."""
    number = _real(value, name)
    if not 0.0 <= number < math.inf:
        rule = "not finite and non-negative"
        _refuse(number, name, rule, f"{name} must lie in [0, inf)", f"pass a finite {name} >= 0")
    return number


def fraction(value: object, name: str, *, zero: bool = False) -> float:
    """Return a float in (0, 1), or in [0, 1) with ``zero=True``; otherwise raise SpecificationError."""
    number = _real(value, name)
    if not (0.0 < number < 1.0 or (zero and number == 0.0)):
        rule = f"outside {'[0, 1)' if zero else '(0, 1)'}"
        why = f"{name} is a probability; at 1 or more it promises nothing"
        remedy = f"pass a small {name}, for example 1e-6" + (", or 0 for a pure guarantee" if zero else "")
        _refuse(number, name, rule, why, remedy)
    return number


def count_of(value: object, name: str, *, least: int = 1) -> int:
    """Return an int >= ``least``, or raise SpecificationError."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Integral) or int(value) < least:
        raise SpecificationError(
            f"{name} must be an integer of at least {least}",
            why=f"{name} counts things",
            remedy=f"pass an int, for example {name}={max(least, 1)}",
        )
    return int(value)


def finite_array(values: object, name: str) -> FloatArray:
    """Return ``values`` as a finite float64 array of the same shape, or raise SpecificationError.

    NaN and infinities are errors, and the message holds neither the entries nor their positions.
    """
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "fiu":
        raise SpecificationError(
            f"{name} must be an array of real numbers, not of dtype {array.dtype}",
            why="noise is added to 64-bit floats",
            remedy=f"convert {name} with numpy.asarray(..., dtype=float)",
        )
    array = array.astype(np.float64, copy=False)
    if not np.isfinite(array).all():
        raise SpecificationError(
            f"{name} has an entry that is NaN or infinite",
            why="no sensitivity bound covers such an entry",
            remedy=f"clip or clean {name} by a rule that does not depend on who is in the data",
        )
    return array


def score_vector(scores: object, name: str = "scores") -> FloatArray:
    """Return ``scores`` as a finite 1-D float64 array with at least one entry."""
    array = finite_array(scores, name)
    if array.ndim != 1 or array.size == 0:
        raise SpecificationError(
            f"{name} must be a vector with at least one entry, not of shape {array.shape}",
            why="a selection returns the index of one candidate",
            remedy=f"pass {name} as a 1-D array, one entry per candidate",
        )
    return array


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
