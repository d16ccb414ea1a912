"""Rows of a program that lie in cones of one kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ConeKind = Literal["zero", "nonneg", "soc", "psd", "exp", "pow3d"]


@dataclass(frozen=True)
class ConeBlock:
    """Rows ``start`` to ``start + size`` of the standard form, lying in cones of one kind.

    ``sizes`` : rows of each cone in the block (one per row for zero and nonneg, omitted there).
    ``alphas`` : exponents of 3-d power cones. ``constraint`` : number of the user's constraint or -1
    for rows that lowering added (epigraphs, variable attributes). ``shape`` : of the user's constraint.
    """

    kind: ConeKind
    start: int
    size: int
    sizes: tuple[int, ...]
    alphas: tuple[float, ...]
    constraint: int
    constraint_id: int
    label: str
    shape: tuple[int, ...] = ()

    @property
    def rows(self) -> slice:
        return slice(self.start, self.start + self.size)
