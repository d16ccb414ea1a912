"""Numbers that a mechanism released, with the law of their noise and what they are functions of: public data."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from dpmodel._types import Floats
from dpmodel.errors import SpecificationError
from dpmodel.marks.noisy import Noisy
from dpmodel.privacy.distributions import Gaussian, Laplace
from dpmodel.text import plain_fields

Law = Literal["laplace", "gaussian", "none"]


@dataclass(frozen=True, eq=False, repr=False)
class Measured:
    """k released numbers, ``S theta`` plus independent noise, where theta are the private parameters of a program.

    Whatever is computed from them is free: ``Problem.resolve`` answers again from them.

    ``values`` : (k,). ``law``, ``scale`` : of the noise on each; "none" where no record can move them. Coefficient
    ``coefficient[i]`` of number ``row[i]`` is on free entry ``entry[i]`` (columns first) of the parameter that
    ``parameters[parameter[i]]`` names; ``sizes`` : free entries of each. ``epsilon``, ``delta`` : of all numbers of the
    release together.
    """

    values: Floats
    law: Law
    scale: float
    parameters: tuple[str, ...]
    row: Any = field(repr=False)
    parameter: Any = field(repr=False)
    entry: Any = field(repr=False)
    coefficient: Floats = field(repr=False)
    sizes: tuple[int, ...] = ()
    epsilon: float = 0.0
    delta: float = 0.0

    def __post_init__(self) -> None:
        for name, kind in (("values", float), ("coefficient", float), ("row", int), ("parameter", int), ("entry", int)):
            array = np.array(getattr(self, name), dtype=np.float64 if kind is float else np.int64)
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()

    @cached_property
    def distribution(self) -> Laplace | Gaussian | None:
        """Of the noise on every number."""
        if self.law == "none":
            return None
        return Laplace(self.scale) if self.law == "laplace" else Gaussian(self.scale)

    @property
    def noisy(self) -> Noisy:
        """The numbers for ``dpm.released``: in units of the parameter where each is one entry of it.

        Raises
        ------
        SpecificationError
            Where no record can move them, so that they have no noise.
        """
        if self.distribution is None:
            what = f"{', '.join(self.parameters)}: released without noise"
            raise SpecificationError(what, why="no record can move these numbers", remedy="measured.values")
        scale: Any = self.scale
        values, one_each = self.values, self.row.size == self.values.size
        if one_each and not np.array_equal(self.coefficient, np.ones(self.row.size)):
            factor = np.ones(self.row.size)
            factor[self.row] = self.coefficient
            values, scale = values / factor, self.scale / np.abs(factor)
        noise = type(self.distribution)(scale)
        return Noisy(values, noise, name=", ".join(self.parameters), epsilon=self.epsilon, delta=self.delta)

    def to_dict(self) -> dict[str, Any]:
        """The fields in JSON types."""
        return plain_fields(self)

    def __repr__(self) -> str:
        return f"Measured({self.values.size} numbers of {', '.join(self.parameters)}, {self.law} noise)"
