"""Types of arrays, which say more than their shape: the bottom of the house, which imports nothing of it."""

from __future__ import annotations

from typing import Any, NewType

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]
# Of an array: per axis its name (or None) and its categories in order; () where the axis has no names.
Axis = tuple[Any, tuple[Any, ...]]
Labels = tuple[Axis, ...]
# Computed from private values: it may go into sums, scores and noise, never into a choice, a message or a result.
PrivateArray = NewType("PrivateArray", np.ndarray[Any, np.dtype[np.float64]])
