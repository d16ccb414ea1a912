"""Means in groups as quotients of two measured sums."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpmodel._types import Floats, Labels
from dpmodel.marks.dataset.aggregates import Means
from dpmodel.marks.noisy import Noisy
from dpmodel.release.frames import long_frame
from dpmodel.text import named_text, wrapped


@dataclass(frozen=True, eq=False)
class MeasuredMeans:
    """Means in groups, released. Works as an array in NumPy.

    ``value`` : the means, within the bounds. ``count`` : rows in each group, as measured. ``standard_deviation`` : of
    the noise in each mean, to first order in noise over count: an estimate, and too small where the count is as small
    as its own noise. There the divisor is that noise's standard deviation, so that means go to the middle of the
    bounds.
    ``ends`` : the two sums that were measured, with their cost.
    """

    value: Floats
    count: Floats
    standard_deviation: Floats
    labels: Labels
    name: str
    ends: Noisy

    @staticmethod
    def of(means: Means, ends: Noisy, name: str | None) -> MeasuredMeans:
        """Post-processing of two noisy sums: c + h (above - below) / (above + below), with c the middle, h half the
        width of the bounds."""
        half, middle = (means.high - means.low) / 2, (means.high + means.low) / 2
        above, below = ends.value
        spread = float(ends.standard_deviation.flat[0])
        both = np.maximum(above + below, math.sqrt(2) * spread)
        share = np.clip((above - below) / both, -1, 1)
        deviation = half * spread * np.sqrt(2 * (1 + share**2)) / both
        arrays = (middle + half * share, (above + below) / (2 * half), deviation)
        value, count, deviation = (array.reshape(means.shape) for array in arrays)
        return MeasuredMeans(value, count, deviation, means.labels, name or means.name, ends)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        return np.array(self.value, dtype=dtype)

    def to_frame(self, *, backend: str = "pandas") -> Any:
        """A data frame with a row per group: ``value``, ``standard_deviation``, ``count``; as ``Noisy.to_frame``."""
        columns = {"value": self.value, "standard_deviation": self.standard_deviation, "count": self.count}
        return long_frame(columns, self.labels, backend)

    def __str__(self) -> str:
        lines = [
            f"{self.name}: {named_text(self.value, self.labels)}",
            f"standard deviation of the noise, about: {named_text(self.standard_deviation, self.labels)}",
            f"cost: {self.ends.cost}; {self.ends.record}",
        ]
        return "\n".join(wrapped(line, "  " if k else "") for k, line in enumerate(lines))
