"""Named numbers as data frames, one row per entry."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from dpmodel._types import Array, Labels
from dpmodel.errors import MissingExtraError, SpecificationError


def long_frame(columns: Mapping[str, Array], labels: Labels, backend: str) -> Any:
    """A frame with a column for every axis, its categories (or 0, 1, ... where it has none), and one per array.

    Parameters
    ----------
    columns : name -> array, all of one shape. ``labels`` : of its axes, or (). ``backend`` : "pandas", "polars" or
        "pyarrow".

    Raises
    ------
    SpecificationError, MissingExtraError
        For other backends, and for one that is not installed.
    """
    if backend not in ("pandas", "polars", "pyarrow"):
        raise SpecificationError("to_frame: unknown backend", remedy="backend='pandas', 'polars' or 'pyarrow'")
    shape = next(iter(columns.values())).shape
    axes = labels if len(labels) == len(shape) else ((None, ()),) * len(shape)
    places = np.indices(shape).reshape(len(shape), -1)
    data: dict[str, Any] = {}
    for number, ((name, categories), place) in enumerate(zip(axes, places, strict=True)):
        names = name if isinstance(name, tuple) else (name,)
        listed = [(c if isinstance(name, tuple) else (c,)) for c in categories] or [(i,) for i in range(shape[number])]
        for level, said in enumerate(names):
            called = str(said) if said is not None else f"axis {number}"
            data[_fresh(called, data)] = [listed[i][level] for i in place.tolist()]
    for name, array in columns.items():
        data[_fresh(name, data)] = np.asarray(array).ravel()
    with contextlib.suppress(ImportError):
        engine = import_module(backend)
        return engine.table(data) if backend == "pyarrow" else engine.DataFrame(data)
    raise MissingExtraError(
        f"to_frame: {backend} is not installed", why="it is an optional part", remedy=f"pip install {backend}"
    )


def _fresh(name: str, taken: Mapping[str, Any]) -> str:
    while name in taken:
        name = f"{name}_"
    return name
