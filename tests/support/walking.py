"""Looking for private numbers in everything that can be reached from an object.

The walk follows containers, arrays, exceptions, and ``__dict__``, ``__slots__`` and properties of objects. It does
not enter modules, classes or functions (their globals hold the vault itself).
"""

from __future__ import annotations

import inspect
import types
import warnings
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp

_CLOSED = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.FrameType,
)
_ROOMS = ("dpmodel", "cvxpy", "tests", "test_", "models")
_MOST_PROPERTIES = 2
# Uninteresting numbers that any model holds; private values under test must avoid them.
_TRIVIAL = (0.0, 1.0, -1.0, 2.0, 0.5)


def numbers_in(objects: Iterable[Any]) -> Iterator[tuple[str, np.ndarray]]:
    """(path, flat array of floats) of every number, numeric array and text reachable from ``objects``."""
    # The third item counts properties passed on the way: each may build new objects, without end.
    pending: list[tuple[str, Any, int]] = [(f"objects[{i}]", o, 0) for i, o in enumerate(objects)]
    seen: set[int] = set()
    kept: list[Any] = []  # alive, so that ids are not used twice
    while pending:
        path, thing, built = pending.pop()
        if thing is None or isinstance(thing, (bool, str, bytes, *_CLOSED)):
            continue
        if isinstance(thing, (int, float, complex, np.number)):
            yield path, np.array([thing.real], dtype=float)
            continue
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        kept.append(thing)
        if isinstance(thing, np.ndarray) and thing.dtype.kind in "biufc":
            yield path, np.real(thing).astype(float).ravel()
        elif sp.issparse(thing):
            yield path, np.real(sp.coo_array(thing).data).astype(float)
        else:
            pending += [(path + name, value, built + new) for name, value, new in _inside(thing, built)]


def _inside(thing: Any, built: int) -> Iterator[tuple[str, Any, int]]:
    """What an object holds: (name, value, 1 if a property made it)."""
    if isinstance(thing, np.ndarray):
        if thing.dtype.kind == "O":
            yield from ((f"[{i}]", item, 0) for i, item in enumerate(thing.ravel()))
    elif isinstance(thing, dict):
        for key, value in thing.items():
            yield (f"[{key!r}]" if isinstance(key, str) else "[...]"), value, 0
            yield ".key", key, 0
    elif isinstance(thing, (list, tuple, set, frozenset)):
        yield from ((f"[{i}]", item, 0) for i, item in enumerate(thing))
    elif isinstance(thing, BaseException):
        for name in ("args", "__cause__", "__context__", "__dict__"):
            yield f".{name}", getattr(thing, name), 0
    else:
        yield from ((f".{name}", value, 0) for name, value in getattr(thing, "__dict__", {}).items())
        if type(thing).__module__.startswith(_ROOMS):
            yield from _properties(thing, built)


def _properties(thing: Any, built: int) -> Iterator[tuple[str, Any, int]]:
    """Slots always; properties as long as few were passed on the way. Those that raise are skipped."""
    for name, slot in _readable(type(thing)):
        if not (slot or built < _MOST_PROPERTIES):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield f".{name}", getattr(thing, name), 0 if slot else 1
        except Exception:
            continue


@cache
def _readable(kind: type) -> list[tuple[str, bool]]:
    """(name, whether a slot) of the slots and properties of a class."""
    found = []
    for name in dir(kind):
        static = inspect.getattr_static(kind, name)
        slot = isinstance(static, types.MemberDescriptorType)
        if not name.startswith("__") and (slot or isinstance(static, property) or hasattr(static, "func")):
            found.append((name, slot))
    return found


def texts_of(objects: Iterable[Any]) -> Iterator[tuple[str, str]]:
    for i, thing in enumerate(objects):
        for render in (str, repr):
            yield f"{render.__name__}(objects[{i}])", render(thing)


def assert_no_trace(objects: Iterable[Any], private_arrays: Iterable[Any]) -> None:
    """Fail if a private number is reachable from ``objects`` or stands in their texts.

    Private values under test should be unmistakable (such as 7321.4375), because any equal number is a trace.
    """
    objects = list(objects)
    secrets = np.unique(np.concatenate([_flat(array) for array in private_arrays]))
    secrets = np.setdiff1d(secrets, _TRIVIAL)
    assert secrets.size, "nothing to look for: use values that differ from 0, 1 and 2"
    held = list(numbers_in(objects))
    paths, arrays = [path for path, _ in held], [array for _, array in held]
    numbers = np.concatenate([np.zeros(0), *arrays])
    signed = np.unique(np.concatenate([secrets, -secrets]))
    above = np.searchsorted(signed, numbers).clip(1, signed.size - 1)
    near = [np.isclose(numbers, signed[above - below], rtol=1e-12, atol=0) for below in (0, 1)]
    found = np.flatnonzero(near[0] | near[1])
    owner = np.repeat(np.arange(len(paths)), [array.size for array in arrays])
    assert not found.size, f"private numbers at {sorted({paths[i] for i in owner[found]})[:5]}"
    for path, text in texts_of(objects):
        for secret in secrets:
            assert not _stands_in(float(secret), text), f"a private number in {path}"


def _flat(array: Any) -> np.ndarray:
    return sp.coo_array(array).data if sp.issparse(array) else np.asarray(array, dtype=float).ravel()


def _stands_in(secret: float, text: str) -> bool:
    forms = {repr(secret), f"{secret:g}", f"{secret:.2f}", f"{secret:.4f}", f"{secret:.8f}".rstrip("0")}
    return any(form in text for form in forms if len(form.strip("-").replace(".", "")) >= 4)
