"""Counts, sums and means of a table as private parameters: one query each, exact in integers."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import narwhals as nw
import numpy as np

from dpmodel._types import Axis, Floats, Integers, Labels
from dpmodel.errors import SpecificationError
from dpmodel.marks.dataset import declared as moves
from dpmodel.marks.dataset.declared import Grid, Move, names_in
from dpmodel.marks.dataset.reading import WHO
from dpmodel.marks.dataset.table import Groups, People
from dpmodel.marks.private import Private

_CELL = "cell"
By = str | Sequence[str] | None


def count(people: People, by: By, distinct: bool, name: str | None) -> Private:
    """``Dataset.count``."""
    names = names_in(by)
    if people.person is None and not names and people.records.neighbors == "replace-one":
        raise SpecificationError(
            "Dataset.count: the number of rows is public",
            why="under replace-one neighbors have as many rows, so there is nothing to protect",
            remedy="by= a column, or neighbors='add-remove'",
        )
    if distinct and people.person is None:
        raise SpecificationError("Dataset.count: distinct without privacy_id", remedy="privacy_id='person'")
    shape, labels, size = _cells(people, names)
    most, table = people.most("count"), people.used(names)
    if distinct and people.person is not None:
        table = table.distinct([WHO, *map(people.declared.place, names)])
    bounded = people.bounded(table, most, [nw.col(people.declared.place(c)) for c in names] if distinct else None)
    groups = people.summed(bounded, _places(people, names), {}, names)
    move = (moves.of_distinct if distinct else moves.of_counts)(most, size, people.records.neighbors)
    return _counts(people, _placed(people, groups, names)[0], shape, labels, move, name or _called("count", names))


def cell_counts(people: People, names: Sequence[str], among: Sequence[str]) -> Integers:
    """``Dataset.cell_counts``.

    Raises
    ------
    SpecificationError
        Where a person may have several rows, or rows may be left out of a number that is public.
    """
    if people.person is not None or (people.outside == "drop" and people.records.neighbors == "replace-one"):
        raise SpecificationError(
            "query_release: a Dataset with privacy_id, or with outside='drop' under replace-one",
            why="a record is one row there, and under replace-one the number of rows is public",
            remedy="consistent_table of measure(people.count(...)), or a table with one row a person",
        )
    groups = people.summed(people.used(among), _places(people, names), {}, among)
    counts: Integers = _placed(people, groups, names)[0]
    return counts


def sums(people: People, column: str, by: By, name: str | None) -> Private:
    """``Dataset.sum``."""
    names = names_in(by)
    low, high = people.declared.range(column, "how far one record moves a sum follows from them")
    shape, labels, size = _cells(people, names)
    grid = _grid(people, column, low, high)
    most = people.most("sum")
    steps = _rows_and_steps(people, column, names, grid, most)[1]
    move = moves.of_sums(most, grid.low * grid.step, grid.high * grid.step, size, people.records.neighbors)
    called = name or _called(f"sum of {column}", names)
    return _private(people, steps * grid.step, shape, labels, move, called, integer=grid.integer, bounded=True)


def mean(people: People, column: str, by: By, name: str | None) -> Private | Means:
    """``Dataset.mean``."""
    names = names_in(by)
    low, high = people.declared.range(column, "how far one record moves a mean follows from them")
    shape, labels, size = _cells(people, names)
    grid, most = _grid(people, column, low, high), people.most("mean")
    rows, steps = _rows_and_steps(people, column, names, grid, most)
    called = name or _called(f"mean of {column}", names)
    low, high = grid.low * grid.step, grid.high * grid.step
    counted = people.outside == "error" and people.person is None and not names
    if counted and people.records.neighbors == "replace-one":
        count = max(int(rows[0]), 1)  # the number of rows, which is public: all are counted
        # The quotient rounds by 2^-53 of the larger end, for both neighbors; that is no small part of width / count.
        width = (high - low) / count + 2.0**-51 * max(abs(low), abs(high))
        mean = steps * grid.step / count
        private = _private(people, mean, shape, labels, Move(width, width, width), called, bounded=True)
        private.mean_bounds = (low, high)
        return private
    ends = np.stack([steps - grid.low * rows, grid.high * rows - steps]) * grid.step  # exact: integers below 2^53
    move = moves.of_shares(most, high - low, size, people.records.neighbors)
    private = _private(people, ends, (2, size), (), move, called, bounded=True)
    return Means(private, low, high, shape, labels, called)


def histogram(people: People, column: str, edges: Iterable[float], name: str | None) -> Private:
    """``Dataset.histogram``."""
    ends = _increasing(edges, "edges", 2)
    value = _clipped(people, column, *people.declared.range(column, "a histogram counts numbers"))
    most, bins = people.most("histogram"), ends.size - 1
    place = nw.lit(0)
    for edge in ends[1:-1].tolist():
        place = place + (value >= edge).cast(nw.Int64)
    groups = people.summed(people.bounded(people.used([column]), most), {_CELL: place}, {}, [column])
    counts = _at(groups, [bins])[0]
    labels: Labels = ((column, tuple(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True))),)
    move = moves.of_counts(most, bins, people.records.neighbors)
    return _counts(people, counts, (bins,), labels, move, name or f"histogram of {column}")


def quantile_counts(people: People, column: str, thresholds: Iterable[float], name: str | None) -> Private:
    """``Dataset.quantile_counts``."""
    grid = _increasing(thresholds, "thresholds", 1)
    value = _clipped(people, column, *people.declared.range(column, "quantiles are of numbers"))
    most = people.most("quantile_counts")
    below = {f"{_CELL}{i}": (value <= t).cast(nw.Int64) for i, t in enumerate(grid.tolist())}
    groups = people.summed(people.bounded(people.used([column]), most), {}, below, [column])
    counts = _at(groups, [], len(below))[1:, 0]
    move = moves.of_thresholds(most, grid.size)
    labels: Labels = ((column, tuple(grid.tolist())),)
    return _private(people, counts, (grid.size,), labels, move, name or f"quantile counts of {column}", integer=True)


def _rows_and_steps(people: People, column: str, names: Sequence[str], grid: Grid, most: int) -> Integers:
    """(2, cells) numbers of rows, and sums of the column in steps of the grid."""
    used = list(dict.fromkeys([*names, column]))
    clipped = _clipped(people, column, grid.low * grid.step, grid.high * grid.step)
    # Not round(): engines take twice as long for it, because of its rules for digits.
    steps = {_CELL: (clipped * (1 / grid.step) + 0.5).floor().cast(nw.Int64)}
    table = people.bounded(people.used(used), most)
    return _placed(people, people.summed(table, _places(people, names), steps, used), names)


def _clipped(people: People, column: str, low: float, high: float) -> nw.Expr:
    """Not clip(): engines take twice as long for it, because of its rules for missing values. What is no number, and
    has been dropped or will be refused, ends at one of the bounds: it has no integer."""
    value = people.declared.value(column)
    return nw.when(value > high).then(high).otherwise(nw.when(value >= low).then(value).otherwise(low))


def _cells(people: People, names: Sequence[str]) -> tuple[tuple[int, ...], Labels, int]:
    """Shape, labels and number of the cells of these columns; more than two are flat, in C order."""
    axes: list[Axis] = [(column, people.declared.categories(column)) for column in names]
    shape = tuple(len(categories) for _, categories in axes)
    size = math.prod(shape)
    if len(axes) <= 2:
        return shape, tuple(axes), size
    places = np.indices(shape).reshape(len(shape), -1).T.tolist()
    flat = tuple(tuple(axes[j][1][i] for j, i in enumerate(place)) for place in places)
    return (size,), ((tuple(names), flat),), size


def _places(people: People, names: Sequence[str]) -> dict[str, nw.Expr]:
    return {people.declared.place(c): people.declared.value(c) for c in names}


def _placed(people: People, groups: Groups, names: Sequence[str]) -> Integers:
    return _at(groups, [len(people.declared.categories(c)) for c in names])


def _at(groups: Groups, shape: Sequence[int], values: int = 1) -> Integers:
    """(1 + values, cells) the integers of every group at its cell, in C order. Groups of no cell are left out."""
    width = len(next(iter(groups.values()), (0,) * (1 + values)))
    out = np.zeros((width, math.prod(shape)), dtype=np.int64)
    places = np.array(list(groups), dtype=np.int64).reshape(len(groups), len(shape))
    strides = np.array([math.prod(shape[axis + 1 :]) for axis in range(len(shape))], dtype=np.int64)
    inside = (places >= 0).all(axis=1)
    out[:, places[inside] @ strides] = np.array(list(groups.values()), dtype=np.int64).reshape(-1, width)[inside].T
    return out


def _grid(people: People, column: str, low: float, high: float) -> Grid:
    return Grid.of(low, high, integers=column in people.declared.integers)


def _private(
    people: People,
    values: Any,
    shape: tuple[int, ...],
    labels: Labels,
    move: Move,
    name: str,
    *,
    integer: bool = False,
    bounded: bool = False,
) -> Private:
    private = Private(
        np.asarray(values, dtype=np.float64).reshape(shape),
        name=name,
        unit="all",
        l1=move.l1,
        l2=move.l2,
        linf=move.linf,
        records=people.records,
        integer=integer,
    )
    private.labels = labels
    private.cut_by = (*(("bounds",) if bounded else ()), *people.cut_by)
    return private


def _counts(people: People, counts: Integers, shape: tuple[int, ...], labels: Labels, move: Move, name: str) -> Private:
    """Counts of rows or people in disjoint cells."""
    private = _private(people, counts, shape, labels, move, name, integer=True)
    if people.records.neighbors == "replace-one" and people.person is None and people.outside == "error":
        private.total = int(counts.sum())  # the number of rows, which is public: all are counted
    return private


def _called(what: str, names: Sequence[str]) -> str:
    return f"{what} by {' and '.join(names)}" if names else what


def _increasing(given: Iterable[float], name: str, least: int) -> Floats:
    found = np.zeros(0)
    with contextlib.suppress(TypeError, ValueError):
        found = np.array([float(e) for e in given], dtype=np.float64)
    if found.size < least or not np.isfinite(found).all() or not (np.diff(found) > 0).all():
        raise SpecificationError(
            f"Dataset: {name} are not {least} or more increasing numbers",
            why="they are public, and chosen without looking at the data",
            remedy=f"{name}=range(0, 101, 10)",
        )
    return found


# ---- Means in groups before they are measured: two sums of each group, from which a quotient follows


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
