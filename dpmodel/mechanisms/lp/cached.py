"""Public facts of a linear program that are computed once per problem, and once per request where they depend on it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from dpmodel.classify.private_lp import PrivateLP
from dpmodel.mechanisms.contract import Request

P = ParamSpec("P")
T = TypeVar("T")


def cached(function: Callable[Concatenate[PrivateLP, P], T]) -> Callable[Concatenate[PrivateLP, P], T]:
    """``function(model, ...)``, kept with the model under its name and its other arguments."""

    @wraps(function)
    def kept(model: PrivateLP, /, *given: P.args, **named: P.kwargs) -> T:
        key = (function.__module__, function.__qualname__, *map(_key, given), _key(named))
        return model.remember(key, lambda: function(model, *given, **named))

    return kept


def _key(value: Any) -> Hashable:
    if isinstance(value, Request):
        return _key(vars(value))
    if isinstance(value, Mapping):
        return tuple((name, _key(each)) for name, each in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(map(_key, value))
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    return value if isinstance(value, Hashable) else repr(value)  # what users hand to a solver may be anything
