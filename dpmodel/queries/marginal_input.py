"""Marginals as people have them: names in any order, labelled or flat, brought to the order of the domain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dpmodel._types import Integers
from dpmodel.errors import SpecificationError
from dpmodel.marks.domain import Domain, key
from dpmodel.marks.noisy import Noisy
from dpmodel.queries.workload import Marginal

# Columns along one axis, and their values there (None: in the order of the domain).
Axis = tuple[tuple[str, ...], tuple[Any, ...] | None]


def axis_names(noisy: Noisy) -> Marginal:
    """Axis names of labelled numbers, index levels included."""
    names = tuple(n for name, _ in noisy.labels for n in (name if isinstance(name, tuple) else (name,)))
    if not names or not all(isinstance(name, str) for name in names):
        raise SpecificationError(
            "measured: numbers without names of their axes",
            remedy="{('age', 'sex'): Noisy(...)}, or a pandas Series whose index levels have names",
        )
    return names


def placed(given: Noisy, key: Any, marginal: Marginal, domain: Domain) -> tuple[Integers, Integers]:
    """Which cells of the marginal the numbers are: (k,) order of the flat numbers, and (k,) their cells, ascending.

    Labelled numbers may leave cells out.

    Raises
    ------
    SpecificationError
        For sizes that do not fit, labels outside the domain, and cells that are there twice.
    """
    names = (key,) if isinstance(key, str) else tuple(key)
    said = f"the marginal {' x '.join(names) or 'total'}"
    axes = _labelled(given, names)
    if axes is None:
        shape = domain.shape(names)
        if given.shape not in (shape, (domain.size(names),)) and not (given.size == 1 and not names):
            raise SpecificationError(
                f"{said} has {shape or 'one'} cells, its numbers have the shape {given.shape}",
                why="axes follow the order in which the columns are named",
                remedy="one number per cell of the domain, or flat in C order",
            )
        codes = dict(zip(names, np.unravel_index(np.arange(given.size), shape), strict=True)) if names else {}
    else:
        codes = _codes(given, axes, domain, said)
    if not marginal:
        return np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    cells = np.ravel_multi_index(tuple(codes[c] for c in marginal), domain.shape(marginal)).astype(np.int64)
    order = np.argsort(cells, kind="stable")
    cells = cells[order]
    if (cells[1:] == cells[:-1]).any():
        raise SpecificationError(f"{said} has a cell twice", remedy="a list of two measurements, where it is one")
    return order, cells


def _labelled(given: Noisy, names: tuple[str, ...]) -> list[Axis] | None:
    """The labels' axes if they are those of ``names``: by name, and one after the other where they have none."""
    spread = [name if isinstance(name, tuple) else (name,) for name, _ in given.labels]
    flat = [name for each in spread for name in each]
    if not names or len(flat) != len(names):
        return None
    other = next((name for name in flat if name is not None and name not in names), None)
    if other is not None:
        raise SpecificationError(
            f"the marginal {' x '.join(names)} has an axis called {other!r}",
            why="columns are called by name",
            remedy="axes with the names of the columns, or without names",
        )
    rest, out = iter([name for name in names if name not in flat]), []
    for each, (_, labels) in zip(spread, given.labels, strict=True):
        mine = tuple(next(rest) if name is None else name for name in each)
        # pandas numbers rows and columns when nobody named them.
        numbered = None in each and labels == tuple(range(len(labels)))
        out.append((mine, None if numbered else labels))
    return out


def _codes(given: Noisy, axes: list[Axis], domain: Domain, said: str) -> dict[str, Integers]:
    """(size,) codes of each column for the flat numbers."""
    out = {}
    for axis, (columns, labels) in enumerate(axes):
        view = [1] * given.ndim
        view[axis] = -1
        if labels is None and given.shape[axis] != domain.size(columns):
            raise SpecificationError(
                f"{said}: {given.shape[axis]} values of {columns[0]!r}, not {domain.size(columns)}"
            )
        for place, column in enumerate(columns):
            if labels is None:
                code = np.arange(given.shape[axis])
            else:
                values = labels if len(columns) == 1 else tuple(label[place] for label in labels)
                number = domain.numbers(column)
                absent = next((each for each in values if key(each) not in number), None)
                if absent is not None:
                    raise SpecificationError(f"{said}: {column!r} has the label {absent!r}, which is not in the domain")
                code = np.array([number[key(each)] for each in values], dtype=np.int64)
            out[column] = np.broadcast_to(code.reshape(view), given.shape).ravel()
    return out


def listed(measured: Any) -> Iterable[tuple[Any, Any]]:
    """(columns, Noisy) pairs of everything that ``consistent_table`` takes."""
    if isinstance(measured, Noisy):
        measured = [measured]
    if isinstance(measured, Mapping):
        return [(k, each) for k, v in measured.items() for each in (v if isinstance(v, list | tuple) else [v])]
    return [(axis_names(each) if isinstance(each, Noisy) else None, each) for each in measured]
