"""Means in groups before they are measured: two sums of each group, from which a quotient follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from dpmodel._types import Labels
from dpmodel.annotate.private import Private
from dpmodel.errors import SpecificationError


@dataclass(frozen=True)
class Means:
    """Means of a column, for ``measure``, which divides what it measured.

    ``ends`` : (2, cells) in the column's units, in each group the sums of v - low and of high - v. ``low``, ``high`` :
    public ends of the values. ``shape``, ``labels`` : of the means.

    The two sums are the centred sum and the count in other coordinates. With c the middle of the bounds and h half
    their width, 2 sum(v - c) is the first less the second, and 2 h count is both together. The mean is c plus h times
    the quotient of the two. A row adds (v - low, high - v) to one group: both at least 0, together 2 h whatever v is.
    So a row moves the two sums by 2 h in the 1-norm (``moves.of_shares``), where a sum of |v - c| <= h and a count,
    each with half of epsilon, are moved by as much twice. With Laplace noise of scale b on both sums the error of a
    mean near t h from the middle, in a group of n rows, has the variance b^2 (1 + t^2) / n^2, and 2 b^2 (1 + t^2) / n^2
    with a centred sum and a count at half of epsilon each: half of it, wherever the mean is. With Gaussian noise they
    are equal (the coordinates are a rotation).
    """

    ends: Private
    low: float
    high: float
    shape: tuple[int, ...]
    labels: Labels
    name: str

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        raise SpecificationError(
            f"{self.name} as an array or in an expression",
            why="how far one record moves the mean of a group has no bound that helps, as its size is private",
            remedy="measure(people.mean(...), epsilon), whose value is public",
        )
