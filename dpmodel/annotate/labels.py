"""Names and categories of the axes of labelled data (pandas, xarray and the like), by duck typing."""

from __future__ import annotations

from typing import Any

from dpmodel._types import Axis, Labels
from dpmodel.annotate.elements import elements


def labels_of(value: Any, shape: tuple[int, ...]) -> Labels:
    """(ndim,) labels of a Series, data frame or labelled array; () for anything else, or where they do not fit."""
    axes: list[Axis] = []
    if hasattr(value, "dims") and hasattr(value, "coords") and hasattr(value, "values"):
        for dimension, length in zip(value.dims, shape, strict=False):
            known = dimension in value.coords
            axes.append((dimension, _categories(value.coords[dimension]) if known else tuple(range(length))))
    elif hasattr(value, "index") and hasattr(value, "to_numpy"):
        axes.append((_name(value.index), _categories(value.index)))
        if hasattr(value, "columns"):
            axes.append((_name(value.columns), _categories(value.columns)))
    fits = len(axes) == len(shape) and all(len(c) == n for (_, c), n in zip(axes, shape, strict=True))
    return tuple(axes) if fits else ()


def taken(labels: Labels, index: Any) -> Labels:
    """Labels after basic indexing by integers and slices; () after any other."""
    items = index if isinstance(index, tuple) else (index,)
    if not labels or len(items) > len(labels) or not all(isinstance(item, int | slice) for item in items):
        return ()
    if any(isinstance(item, bool) for item in items):
        return ()
    out: list[Axis] = []
    for (name, categories), item in zip(labels, [*items, *[slice(None)] * (len(labels) - len(items))], strict=True):
        if isinstance(item, slice):
            out.append((name, categories[item]))
    return tuple(out)


def _name(index: Any) -> Any:
    """The name of an index; a tuple of them where it has levels."""
    names = tuple(getattr(index, "names", ()) or ())
    return names if len(names) > 1 else getattr(index, "name", None)


def _categories(index: Any) -> tuple[Any, ...]:
    return tuple(elements(index if hasattr(index, "to_list") else getattr(index, "values", index)))
