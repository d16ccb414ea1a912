"""Capacities that are private themselves, such as next week's supply: published once, with noise, before any price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np

from dpmodel._types import Floats, PrivateArray
from dpmodel.compile.bridge import lower
from dpmodel.compile.footprint import largest, sensitivity_of
from dpmodel.compile.form import private_entries
from dpmodel.errors import SpecificationError
from dpmodel.marks.private import Private


@dataclass(frozen=True, eq=False)
class PrivateCapacity:
    """``constant + matrix @ entries`` (m,), entries of ``limits`` one after the other."""

    limits: Sequence[Private]
    matrix: Any
    constant: Floats

    @cached_property
    def sensitivity(self) -> float:
        """How far one record moves it in the 2-norm."""
        if not self.limits:
            return 0.0
        affine = lower(cp.Problem(cp.Minimize(0), [self._written() == cp.Variable()])).affine
        return float(largest(sensitivity_of(affine, affine.private_parts["scalar"]).values()).l2)

    def _written(self) -> Any:
        starts = np.cumsum([0, *(int(parameter.size) for parameter in self.limits)])
        pieces = zip(self.limits, starts[:-1], starts[1:], strict=True)
        return sum(self.matrix[:, a:b] @ cp.vec(parameter, order="F") for parameter, a, b in pieces)

    @property
    def level(self) -> Floats:
        """(m,) a public guess: ``typical=``, or the middle of the bounds.
        Errors: SpecificationError, without any."""
        return self._of([_guess(parameter) for parameter in self.limits])

    def read(self) -> PrivateArray:
        """(m,) the private numbers. For a mechanism's ``run`` only."""
        return PrivateArray(self._of([private_entries(parameter) for parameter in self.limits]))

    def _of(self, entries: Sequence[Floats]) -> Floats:
        return np.asarray(self.constant + self.matrix @ np.concatenate([np.zeros(0), *entries]))


def _guess(parameter: Private) -> Floats:
    if parameter.typical is not None:
        return parameter.typical
    low, high = parameter.entry_range
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise SpecificationError(
            f"private capacity {parameter.name()} without a public level",
            why="how much of each share is left for the noise is planned by it",
            remedy="typical=, a guess that is not computed from the data, or bounds=[lo, hi]",
        )
    return np.asarray(low / 2 + high / 2)
