"""A point in the convex hull of private points of a public grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dpmodel.errors import SpecificationError
from dpmodel.linalg.public_facts import each_of, expected_of, not_finite, require_neighbors
from dpmodel.linalg.results import Result
from dpmodel.linalg.solve import ProgressArgument, solve_system
from dpmodel.marks.records import Neighbors
from dpmodel.mechanisms.linalg.systems import PrivatePoints
from dpmodel.models.request import basic_request
from dpmodel.numerics.fields.entries import integers, matrix, rational
from dpmodel.privacy import Budget

_WHERE = "point_in_hull"
# Positions are kept in 64 bits.
_MOST_LEVELS = 2**40


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PointInHull(Result):
    """What ``point_in_hull`` released.

    ``point`` (d,) : exact coordinates, or None. ``accuracy`` : how many points its statement needs. ``levels`` : of the
    public grid, per coordinate. ``expected`` : the public number of points, or guess of it.
    """

    point: tuple[Fraction, ...] | None
    levels: tuple[int, ...]
    expected: int
    _title = "Point in the convex hull"

    def _rows(self) -> list[tuple[str, object]]:
        return [("point", "-" if self.point is None else f"({', '.join(map(str, self.point))})")]

    def _plain(self) -> dict[str, Any]:
        point = None if self.point is None else [str(entry) for entry in self.point]
        return {"point": point, "levels": list(self.levels), "expected": self.expected}


def point_in_hull(
    points: Any,
    *,
    lower: Any,
    upper: Any,
    step: Any,
    epsilon: float,
    delta: float = 0.0,
    neighbors: Neighbors = "replace-one",
    budget: Budget | None = None,
    expected: int | None = None,
    beta: float = 0.05,
    mechanism: Any = "auto",
    rng: Any = None,
    progress: ProgressArgument = None,
) -> PointInHull:
    """Find a point in the convex hull of the points; each is one person's record.

    The plan says beforehand how many points are needed, from the grid and the budget. No private algorithm does without
    a grid (the number needed grows, if slowly, with its size).

    Parameters
    ----------
    points : (n, d) numbers, one row per record: integers, floats, Fractions, Decimals or text.
    lower, upper : public box, one number for all coordinates or one each.
    step : > 0, public: the grid has the points ``lower + step * i`` up to ``upper``. Write "0.1", ``Decimal`` or
        ``Fraction``: as a float 0.1 is not a tenth. The points are moved to the nearest grid point of the box (public
        policy), and the hull is that of the moved points.
    epsilon, delta : the budget. ``tukey-depth`` spends no delta.
    neighbors : "replace-one" (their number is public) or "add-remove" (one point more or less; it is private).
    budget : a ``Budget`` to charge.
    expected : a public guess of the number of points, for forecasts under "add-remove"; never taken from the points.
    beta : probability with which the accuracy statement may fail.
    mechanism : "auto" for the plan's choice, "tukey-depth", "pin-hull", or an object with settings of its own.
    rng : a seed, for tests only and not private. ``progress`` : True, or a function (stage, share done).

    Returns
    -------
    PointInHull

    Raises
    ------
    SpecificationError
        Before anything is spent: no points, NaN, wrong shapes, upper < lower, step <= 0, a bad epsilon, delta, beta,
        budget or neighbor relation.
    UnsupportedModelError, BudgetExceededError
        As ``Problem.solve``: more than 5 coordinates, for one, or a public number of points that is too small for any
        statement, with the number needed.

    Notes
    -----
    ``tukey-depth`` (up to four coordinates, a grid of up to two million points) is proved; ``pin-hull`` (KMMST24,
    Algorithm 7) serves larger grids with far more points, by prediction.
    """
    request = basic_request(epsilon, delta, beta)
    require_neighbors(neighbors, _WHERE)
    given = matrix(points, "points")
    n, d = given.shape
    if given.dtype.kind in "US":
        raise SpecificationError(
            f"{_WHERE}: points is an array of text",
            why="the array may have turned floats into text, which stands for other numbers",
            remedy="lists, or an array of objects, in which every entry keeps its own type",
        )
    if n == 0 and neighbors == "replace-one":
        raise SpecificationError(f"{_WHERE}: no points", why="there is no hull", remedy="one row per record")
    low, high = (
        tuple(_exact(entry, name) for entry in each_of(value, d, f"{_WHERE}: {name}"))
        for name, value in (("lower", lower), ("upper", upper))
    )
    width = _exact(step, "step")
    if width <= 0:
        raise SpecificationError(f"{_WHERE}: step is not positive", why="it is the grid's", remedy='step="0.1"')
    if any(b < a for a, b in zip(low, high, strict=True)):
        raise SpecificationError(
            f"{_WHERE}: upper is below lower", why="the box is empty", remedy="lower <= upper in every coordinate"
        )
    levels = tuple(math.floor((b - a) / width) + 1 for a, b in zip(low, high, strict=True))
    require_levels(levels, _WHERE)
    positions = _positions(given, low, width, levels)
    records = n if neighbors == "replace-one" else None
    guess = expected_of(expected, records, _WHERE)
    model = PrivatePoints(low, width, levels, neighbors, records, guess, lambda: positions)
    found, shared = solve_system(
        model, request, mechanism=mechanism, budget=budget, rng=rng, progress=progress, label=f"linalg.{_WHERE}",
        record="a record is one point",
    )  # fmt: skip
    point = model.coordinates(found.answer) if shared["found"] else None
    return PointInHull(point=point, levels=levels, expected=model.expected, **shared)


def require_levels(levels: Sequence[int], where: str) -> None:
    """SpecificationError for a grid that positions in 64 bits cannot number."""
    if max(levels) > _MOST_LEVELS:
        raise SpecificationError(
            f"{where}: more than {_MOST_LEVELS:,} grid points along a coordinate",
            why="positions are machine integers",
            remedy="a larger step",
        )


def _exact(value: Any, name: str) -> Fraction:
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return Fraction(int(value))
    try:
        return rational(value, name)
    except SpecificationError as error:
        raise SpecificationError(
            f"{_WHERE}: {name} is not an exact number",
            why="as a float, 0.1 is not a tenth, and NaN is no number" if isinstance(value, float) else error.why,
            remedy=f'{name}="0.1", Fraction(1, 10), Decimal("0.1") or an integer',
        ) from None


def _positions(
    given: npt.NDArray[Any], low: tuple[Fraction, ...], step: Fraction, levels: tuple[int, ...]
) -> npt.NDArray[np.int64]:
    """(n, d) nearest positions in the box, exactly: a function of the value of each entry alone, however the others are
    written (one record with a fraction in it turns a list of integers into floats, or floats into Fractions)."""
    most = np.array(levels, dtype=np.int64) - 1
    if given.dtype.kind == "f" or (given.dtype.kind == "O" and all(type(v) is float for v in given.flat)):
        wide = given.astype(np.float64)
        if not np.isfinite(wide).all():
            raise not_finite(f"{_WHERE}: points")
        corner = np.array([float(a) for a in low])
        with np.errstate(over="ignore", invalid="ignore"):
            at = (wide - corner) / float(step) + 0.5
            unsure = np.abs(at - np.rint(at)) <= 2.0**-50 * (np.abs(wide) + np.abs(corner) + float(step)) / float(step)
        nearest: npt.NDArray[np.int64] = np.clip(np.floor(at), 0, most).astype(np.int64)
        for i, j in np.argwhere(unsure & (at > -1.0) & (at < most + 2.0)):
            nearest[i, j] = _nearest(Fraction(float(wide[i, j])), low[j], step, int(most[j]))
        return nearest
    if given.dtype.kind in "biu":
        exact = integers(given).astype(object)
    else:
        exact = np.empty(given.size, dtype=object)
        exact[:] = [_entry(value) for value in given.flat]
        exact = exact.reshape(given.shape)
    # floor((x - a) / s + 1/2), in integers where x is whole.
    columns = [
        np.array([_nearest(x, a, step, k - 1) for x in exact[:, j]], dtype=np.int64)
        for j, (a, k) in enumerate(zip(low, levels, strict=True))
    ]
    return np.column_stack(columns)


def _nearest(x: Fraction | int, low: Fraction, step: Fraction, most: int) -> int:
    return min(max(math.floor((x - low) / step + Fraction(1, 2)), 0), most)


def _entry(value: Any) -> Fraction:
    if not isinstance(value, float | np.floating):
        return rational(value, "points")
    if not math.isfinite(value):
        raise not_finite(f"{_WHERE}: points")
    return Fraction(float(value))
