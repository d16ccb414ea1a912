"""Published noisy data with the law of its noise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dpmodel.annotate.noise_laws import Law
from dpmodel.errors import SpecificationError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Noisy:
    """Numbers that were published with noise, and the law of that noise: public data.

    Parameters
    ----------
    value : array of any shape (or number, pandas Series or DataFrame), the published numbers.
    noise : ``Laplace(scale)``, ``Gaussian(scale)``, ``DiscreteLaplace(scale)`` or ``DiscreteGaussian(scale)``; the
        scale is one number or an array of the value's shape.
    name : shown in messages. ``epsilon``, ``delta``, ``neighbors``, ``record`` : what publishing it cost, if known
        (``measure`` fills them in; they are shown, never charged again).
    """

    value: Floats
    noise: Law
    name: str = ""
    epsilon: float | None = None
    delta: float | None = None
    neighbors: str = ""
    record: str = ""
    labels: tuple[Any, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.noise, Law):
            raise SpecificationError("Noisy without the law of its noise", remedy="noise=Laplace(scale)")
        value = np.array(self.value, dtype=np.float64)
        value.setflags(write=False)
        object.__setattr__(self, "value", value)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def size(self) -> int:
        return int(self.value.size)

    @property
    def scale(self) -> Floats:
        """Scale of every entry's noise, of the value's shape."""
        return np.broadcast_to(np.asarray(self.noise.scale, dtype=np.float64), self.shape)

    @property
    def standard_deviation(self) -> Floats:
        """Standard deviation of every entry's noise, of the value's shape."""
        return np.broadcast_to(np.asarray(self.noise.standard_deviation, dtype=np.float64), self.shape)
