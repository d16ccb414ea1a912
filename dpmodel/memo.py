"""Public facts of a model that are computed once and kept with it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, is_dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound="PublicFacts")
_MISSING: Any = object()


@dataclass(frozen=True, eq=False)
class PublicFacts:
    """A model that keeps the public facts that were computed of it. Nothing private may be kept here."""

    _memo: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False, kw_only=True)

    def cached(self, key: Hashable, build: Callable[[], T]) -> T:
        """``build()``, called once for each ``key``."""
        value: T = self._memo.get(key, _MISSING)
        if value is _MISSING:
            value = self._memo[key] = build()
        return value


def cached(function: Callable[Concatenate[F, P], T]) -> Callable[Concatenate[F, P], T]:
    """``function(model, ...)``, kept with the model under its name and its other arguments."""

    name = function.__module__, function.__qualname__

    @wraps(function)
    def kept(model: F, /, *given: P.args, **named: P.kwargs) -> T:
        key = (*name, *map(key_of, given), key_of(named) if named else ()) if given or named else name
        return model.cached(key, lambda: function(model, *given, **named))

    return kept


def latest(problem: Any, name: str, key: Hashable, build: Callable[[], T]) -> T:
    """``build()``, kept with a ``Problem`` under ``name`` until ``key`` is another one."""
    found = problem.facts.get(name)
    if found is None or found[0] != key:
        found = problem.facts[name] = key, build()
    value: T = found[1]
    return value


def key_of(value: Any) -> Hashable:
    """``value`` as part of a key; equal for equal settings."""
    try:
        hash(value)
    except TypeError:
        if is_dataclass(value):
            return type(value), key_of(vars(value))
        if isinstance(value, Mapping):
            return tuple((name, key_of(each)) for name, each in value.items())
        if isinstance(value, (list, tuple)):
            return tuple(map(key_of, value))
        if isinstance(value, np.ndarray):
            return value.shape, value.dtype.str, value.tobytes()
        return repr(value)  # what users hand to a solver may be anything
    key: Hashable = value
    return key
