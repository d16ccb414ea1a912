"""A point in the convex hull of private points of a public grid."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dpmodel._text import table
from dpmodel.annotate.records import NEIGHBORS, Neighbors
from dpmodel.errors import SpecificationError
from dpmodel.linalg.conduct import ProgressArgument, conduct
from dpmodel.linalg.inequalities_input import EXPECTED
from dpmodel.mechanisms.linalg.entries import integers, matrix, rational
from dpmodel.mechanisms.linalg.systems import PrivatePoints
from dpmodel.plan.comparison import Plan
from dpmodel.plan.request import basic_request
from dpmodel.privacy import Budget
from dpmodel.release.release import Accuracy, Guarantee

__all__ = ["PointInHull", "point_in_hull"]

_WHERE = "point_in_hull"
# Positions are kept in 64 bits.
_MOST_LEVELS = 2**40


@dataclass(frozen=True, eq=False)
class PointInHull:
    """What ``point_in_hull`` released.

    ``found`` : whether there is a point. ``point`` (d,) : exact coordinates, or None. ``accuracy`` : how many points
    its statement needs, and whether it is proved. ``levels`` : of the public grid, per coordinate. ``expected`` : the
    public number of points, or guess of it. ``plan``, ``guarantee``, ``mechanism``, ``notes`` : as in a release.
    """

    found: bool
    point: tuple[Fraction, ...] | None
    mechanism: str
    guarantee: Guarantee
    accuracy: Accuracy
    plan: Plan
    levels: tuple[int, ...]
    expected: int
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        rows: list[tuple[str, object]] = [
            ("status", "found" if self.found else "nothing found"),
            ("point", "-" if self.point is None else f"({', '.join(map(str, self.point))})"),
            ("guarantee", self.guarantee),
            ("accuracy", self.accuracy),
        ]
        rows += [("note", note) for note in self.notes]
        return table(("", ""), rows, title=f"Point in the convex hull by {self.mechanism}")

    def to_dict(self) -> dict[str, Any]:
        """Plain data; Fractions as text."""
        return {
            "found": self.found,
            "point": None if self.point is None else [str(entry) for entry in self.point],
            "mechanism": self.mechanism,
            "guarantee": self.guarantee.to_dict(),
            "accuracy": self.accuracy.to_dict(),
            "plan": self.plan.to_dict(),
            "levels": list(self.levels),
            "expected": self.expected,
            "notes": list(self.notes),
        }


def point_in_hull(
    points: Any,
    *,
    lower: Any,
    upper: Any,
    step: Any,
    epsilon: float,
    delta: float = 0.0,
    neighbors: Neighbors = "add-remove",
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
    points : (n, d) numbers, one row per record: whole numbers, floats, Fractions, Decimals or text.
    lower, upper : public box, one number for all coordinates or one each.
    step : > 0, public: the grid has the points ``lower + step * i`` up to ``upper``. Write "0.1", ``Decimal`` or
        ``Fraction``: as a float 0.1 is not a tenth. The points are moved to the nearest grid point of the box (public
        policy), and the hull is that of the moved points.
    epsilon, delta : the budget. ``tukey-depth`` spends no delta.
    neighbors : "add-remove" (one point more or less; their number is private) or "replace-one" (it is public).
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
    request = basic_request(epsilon, delta, beta, options={})
    if neighbors not in NEIGHBORS:
        raise SpecificationError(
            f"{_WHERE}: neighbors is neither 'add-remove' nor 'replace-one'",
            why="it decides what one record may change",
            remedy="neighbors='add-remove' or neighbors='replace-one'",
        )
    given = matrix(points, "points")
    n, d = given.shape
    if n == 0 and neighbors == "replace-one":
        raise SpecificationError(f"{_WHERE}: no points", remedy="one row per record")
    low, high = _corner(lower, d, "lower"), _corner(upper, d, "upper")
    width = _exact(step, "step")
    if width <= 0:
        raise SpecificationError(f"{_WHERE}: step is not positive", remedy='step="0.1"')
    if any(b < a for a, b in zip(low, high, strict=True)):
        raise SpecificationError(f"{_WHERE}: upper is below lower", remedy="lower <= upper in every coordinate")
    levels = tuple(math.floor((b - a) / width) + 1 for a, b in zip(low, high, strict=True))
    if max(levels) > _MOST_LEVELS:
        raise SpecificationError(
            f"{_WHERE}: more than {_MOST_LEVELS:,} grid points along a coordinate",
            why="positions are machine integers",
            remedy="a larger step",
        )
    positions = _positions(given, low, width, levels)
    records = n if neighbors == "replace-one" else None
    model = PrivatePoints(low, width, levels, neighbors, records, _expected(expected, records), lambda: positions)
    conducted = conduct(
        model,
        request,
        mechanism=mechanism,
        budget=budget,
        rng=rng,
        progress=progress,
        label="linalg.point_in_hull",
        record="a record is one point",
    )
    plan, found = conducted.plan, conducted.found
    forecast = plan.chosen.forecast
    assert forecast is not None
    promised = not forecast.vacuous
    return PointInHull(
        found=found.status == "found",
        point=model.coordinates(found.answer) if found.status == "found" else None,
        mechanism=plan.chosen.mechanism,
        guarantee=conducted.guarantee,
        accuracy=Accuracy(
            0.0 if promised else None, forecast.beta, 0 if promised else None, forecast.proved, forecast.statement
        ),
        plan=plan,
        levels=levels,
        expected=model.expected,
        notes=(*found.notes, *forecast.caveats),
    )


def _corner(value: Any, d: int, name: str) -> tuple[Fraction, ...]:
    """(d,) exact numbers."""
    one = isinstance(value, str) or not isinstance(value, Sequence | np.ndarray)
    entries = [value] * d if one else list(value)
    if len(entries) != d:
        raise SpecificationError(f"{_WHERE}: {name} has {len(entries)} entries", why=f"points have {d} coordinates")
    return tuple(_exact(entry, name) for entry in entries)


def _exact(value: Any, name: str) -> Fraction:
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return Fraction(int(value))
    try:
        return rational(value, name)
    except SpecificationError as error:
        raise SpecificationError(
            f"{_WHERE}: {name} is not an exact number",
            why="as a float, 0.1 is not a tenth" if isinstance(value, float | np.floating) else error.why,
            remedy=f'{name}="0.1", Fraction(1, 10), Decimal("0.1") or a whole number',
        ) from None


def _positions(
    given: npt.NDArray[Any], low: tuple[Fraction, ...], step: Fraction, levels: tuple[int, ...]
) -> npt.NDArray[np.int64]:
    """(n, d) nearest positions in the box: a function of each entry alone."""
    most = np.array(levels, dtype=np.int64) - 1
    if given.dtype.kind == "f" or (given.dtype.kind == "O" and all(type(v) is float for v in given.flat)):
        wide = given.astype(np.float64)
        if not np.isfinite(wide).all():
            raise SpecificationError(
                f"{_WHERE}: the points hold NaN or infinite entries",
                why="every entry must be a number (the entries are not shown)",
                remedy="drop or fill these rows by a public rule",
            )
        with np.errstate(over="ignore"):
            at = (wide - np.array([float(a) for a in low])) / float(step)
        nearest: npt.NDArray[np.int64] = np.clip(np.floor(at + 0.5), 0, most).astype(np.int64)
        return nearest
    if given.dtype.kind in "biu":
        exact = integers(given).astype(object)
    else:
        exact = np.empty(given.size, dtype=object)
        exact[:] = [_entry(value) for value in given.flat]
        exact = exact.reshape(given.shape)
    # floor((x - a) / s + 1/2), in whole numbers where x is whole.
    columns = [
        np.array([_nearest(x, a, step, k - 1) for x in exact[:, j]], dtype=np.int64)
        for j, (a, k) in enumerate(zip(low, levels, strict=True))
    ]
    return np.column_stack(columns)


def _nearest(x: Fraction | int, low: Fraction, step: Fraction, most: int) -> int:
    return min(max(math.floor((x - low) / step + Fraction(1, 2)), 0), most)


def _entry(value: Any) -> Fraction:
    if isinstance(value, float | np.floating) and math.isfinite(value):
        return Fraction(float(value))
    if isinstance(value, float | np.floating):
        raise SpecificationError(
            f"{_WHERE}: the points hold NaN or infinite entries",
            why="every entry must be a number (the entries are not shown)",
            remedy="drop or fill these rows by a public rule",
        )
    return rational(value, "points")


def _expected(expected: Any, records: int | None) -> int:
    if expected is not None and (
        isinstance(expected, bool) or not isinstance(expected, numbers.Integral) or expected < 1
    ):
        raise SpecificationError(
            f"{_WHERE}: expected is not a whole number of at least 1",
            why="it is a public guess of the number of points, by which mechanisms are compared",
            remedy=f"expected={EXPECTED}",
        )
    if records is not None:
        return records
    return EXPECTED if expected is None else int(expected)
