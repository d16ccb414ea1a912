"""Plain values for JSON and back: what ``to_json`` and ``from_json`` of releases, plans and classifications share."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np


def plain_fields(item: Any) -> dict[str, Any]:
    """The fields of a dataclass in JSON types; see ``plain``."""
    return {entry.name: plain(getattr(item, entry.name)) for entry in fields(item)}


def plain(item: Any) -> Any:
    """Turn a value into JSON types: inf and nan become strings, objects that JSON does not know their text."""
    if item is None or isinstance(item, bool | str | int):
        return item
    if isinstance(item, float | np.floating):
        value = float(item)
        return value if math.isfinite(value) else str(value)
    if isinstance(item, np.ndarray | np.generic):
        return plain(item.tolist())
    if isinstance(item, Mapping):
        return {str(key): plain(value) for key, value in item.items()}
    if isinstance(item, list | tuple):
        return [plain(value) for value in item]
    if isinstance(item, set | frozenset):
        return sorted((plain(value) for value in item), key=str)
    if hasattr(item, "to_dict"):
        return plain(item.to_dict())
    if is_dataclass(item) and not isinstance(item, type):
        return plain_fields(item)
    return str(item)


def revived(kind: Any, value: Any) -> Any:
    """The value of type ``kind`` (a dataclass, or the annotation of a field) that ``plain`` turned into ``value``.

    A float that is None is nan. Of several dataclasses the one is taken whose ``kind`` is the value's. Keys that are no
    fields are left out; missing ones take their defaults.

    Raises
    ------
    TypeError, ValueError
        For values that do not fit the type.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if kind is float:
        return math.nan if value is None else float(value)
    if kind is Any or kind is object:
        return _any(value)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        kind = value.get("kind") if isinstance(value, Mapping) else None
        kinds = [each for each in inner if each is not type(None)]
        return revived(next((each for each in kinds if getattr(each, "kind", None) == kind), kinds[0]), value)
    if origin is tuple:
        each = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return tuple(revived(part, item) for part, item in zip(each, value, strict=True))
    if origin is np.ndarray:
        return np.asarray(value, dtype=float)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {key: revived(inner[1], item) for key, item in value.items()}
    if origin is Literal or not is_dataclass(kind):
        return value
    hints = get_type_hints(kind)
    given = {entry.name: revived(hints[entry.name], value[entry.name]) for entry in fields(kind) if entry.name in value}
    build: Any = kind
    return build(**given)


def _any(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _any(item) for key, item in value.items()}
    if isinstance(value, list):
        return tuple(_any(item) for item in value)
    return float(value) if value in ("inf", "-inf", "nan") else value
