"""Plain values for JSON and back: what ``to_json`` and ``from_json`` of releases, plans and classifications share."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from dpmodel.errors import SpecificationError

T = TypeVar("T")


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


class Misfit(Exception):
    """A value that does not fit; ``where`` : the way to it, innermost part last."""

    def __init__(self, what: str, *where: str) -> None:
        super().__init__(what)
        self.what, self.where = what, where


def read(cls: type[T], text: str, build: Callable[[Mapping[str, Any]], T]) -> T:
    """``build`` of the JSON in ``text``, which ``cls`` wrote.

    Raises
    ------
    SpecificationError
        For anything else; it says where.
    """
    try:
        data = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        where = f"line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise _not_written(cls, "it is no JSON", where) from None
    return built(cls, data, build)


def built(cls: type[T], data: Any, build: Callable[[Mapping[str, Any]], T]) -> T:
    """`read`, of what the text holds."""
    if not isinstance(data, Mapping):
        raise _not_written(cls, f"it is a {type(data).__name__}, not fields by name", "")
    try:
        return build(data)
    except Misfit as error:
        raise _not_written(cls, error.what, ".".join(error.where)) from None
    except Exception as error:  # of the constructor: fields that are missing, unknown, or contradict each other
        raise _not_written(cls, str(error) or type(error).__name__, "") from None


def _not_written(cls: type, why: str, where: str) -> SpecificationError:
    return SpecificationError(
        f"this is no {cls.__name__} in JSON" + (f": at {where[:200]}" if where else ""),
        why=why[:200],
        remedy=f"the text that to_json() of a {cls.__name__} wrote, whole and unchanged",
    )


def part(kind: Any, data: Any, name: str | int) -> Any:
    """``revived(kind, data[name])``; a `Misfit` says that it is there."""
    try:
        return revived(kind, data[name])
    except Misfit as error:
        raise Misfit(error.what, str(name), *error.where) from None
    except KeyError:
        raise Misfit("it is missing", str(name)) from None
    except Exception as error:  # of whatever a wrong type does in a constructor
        raise Misfit(str(error) or type(error).__name__, str(name)) from None


def revived(kind: Any, value: Any) -> Any:
    """The value of type ``kind`` (a dataclass, or the annotation of a field) that ``plain`` turned into ``value``.

    A float that is None is nan. Of several dataclasses the one is taken whose ``kind`` is the value's. Keys that are no
    fields are left out; missing ones take their defaults.

    Raises
    ------
    Misfit
        For values that do not fit the type.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if kind is float:
        if isinstance(value, bool | list | dict) or (isinstance(value, str) and value not in ("inf", "-inf", "nan")):
            raise Misfit("not a number")
        return math.nan if value is None else float(value)
    if kind in (str, bool, int):
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise Misfit(f"not of type {kind.__name__}")
        return value
    if kind is Any or kind is object:
        return _any(value)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        kind = value.get("kind") if isinstance(value, Mapping) else None
        kinds = [each for each in inner if each is not type(None)]
        return revived(next((each for each in kinds if getattr(each, "kind", None) == kind), kinds[0]), value)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise Misfit("not a list")
        each = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        if len(each) != len(value):
            raise Misfit(f"{len(value)} items instead of {len(each)}")
        return tuple(part(kind, value, place) for place, kind in enumerate(each))
    if origin is np.ndarray:
        return np.asarray(value, dtype=float)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {key: part(inner[1], value, key) for key in _named(value)}
    if origin is Literal and value not in inner:
        raise Misfit(f"none of {', '.join(map(str, inner))}")
    if origin is Literal or not is_dataclass(kind):
        return value
    hints = get_type_hints(kind)
    value = _named(value)
    given = {entry.name: part(hints[entry.name], value, entry.name) for entry in fields(kind) if entry.name in value}
    build: Any = kind
    return build(**given)


def _named(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Misfit("not fields by name")
    return value


def _any(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _any(item) for key, item in value.items()}
    if isinstance(value, list):
        return tuple(_any(item) for item in value)
    return float(value) if value in ("inf", "-inf", "nan") else value
