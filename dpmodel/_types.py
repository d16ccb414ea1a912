"""Types of arrays that say more than their shape. This module imports nothing of the package."""

from __future__ import annotations

from typing import Any, NewType

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]
# Labels of an array: for each axis its name (or None) and its categories in order, () where they have no names.
Axis = tuple[Any, tuple[Any, ...]]
Labels = tuple[Axis, ...]
# Computed from private values: for sums, scores and noise, never for a choice, a message or a result.
PrivateArray = NewType("PrivateArray", np.ndarray[Any, np.dtype[np.float64]])
