"""What a joint mechanism releases: prices, and how a share follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpmodel._types import Floats
from dpmodel.text import PlainData


@dataclass(frozen=True, eq=False)
class Prices(PlainData):
    """Public: a person's share is ``scales`` times the mean of their best answers to the ``prices``, by ``weights``.

    ``prices`` (T, m), ``weights`` (T,), ``scales`` (m,) : an entry of a share is multiplied by the least scale of the
    resources that it may use. ``radius`` : of one person's use, in the 2-norm. ``ceiling`` (m,) : what one person may
    use of each resource, or None. ``demand`` (T, m) : as released, with noise. ``at_most`` (m,) : what is used of each
    resource at most, except with probability ``beta``. ``lost`` : what the answers may be worth less than the best that
    the radius allows, except with probability ``beta``, before they are scaled; nan where it is not known. ``seed`` :
    of the public coins by which whole shares are drawn, else None. ``seats`` (m,) : how many times the ceiling is dealt
    by these coins to the ``people``, None where everybody may use as much of it.
    """

    status: str
    prices: NDArray[Any]
    weights: NDArray[Any]
    scales: NDArray[Any]
    radius: float
    demand: NDArray[Any]
    at_most: NDArray[Any]
    beta: float
    lost: float = float("nan")
    statement: str = ""
    seed: int | None = None
    ceiling: NDArray[Any] | None = None
    seats: NDArray[Any] | None = None
    people: int = 0
    notes: tuple[str, ...] = ()

    @property
    def x(self) -> Self | None:
        """Itself: what a certificate is measured of; None where nobody gets anything."""
        return self if self.weights.size else None

    @classmethod
    def none(cls, resources: int, status: str, note: str) -> Self:
        """Of a run that ended with an error: nobody gets anything."""
        nothing = np.zeros(resources)
        empty = np.zeros((0, resources))
        return cls(status, empty, np.zeros(0), nothing, 0.0, empty, nothing, 0.0, notes=(note,))

    def fault(self, resources: int) -> str:
        """What is wrong with it, in words without its numbers; "" for nothing."""
        steps = np.shape(self.weights)
        shapes: list[tuple[Floats, tuple[int, ...]]] = [
            (self.prices, (*steps, resources)),
            (self.scales, (resources,)),
            (self.at_most, (resources,)),
            (self.demand, (np.shape(self.demand)[0] if np.ndim(self.demand) == 2 else 0, resources)),
        ]
        if len(steps) != 1 or any(np.shape(array) != shape for array, shape in shapes):
            return "prices, weights, scales or demands of other shapes than the resources"
        if not all(np.isfinite(array).all() for array, _ in shapes) or not np.isfinite(self.weights).all():
            return "prices, weights, scales or demands that are not finite"
        if (self.prices < 0).any() or (self.scales < 0).any() or (self.scales > 1).any() or not self.radius >= 0:
            return "prices, scales or a radius out of their range"
        return ""
