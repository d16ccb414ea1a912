"""Looking for private numbers in everything that can be reached from an object.

The walk follows containers, ``__dict__``, ``__slots__``, properties and arrays of objects of this package, CVXPY,
numpy and scipy. It does not enter modules, classes or functions (their globals hold the vault itself).
"""

from __future__ import annotations

import inspect
import types
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

_CLOSED = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.FrameType)
_ROOMS = ("dpmodel", "cvxpy", "tests", "test_", "models")
# Uninteresting numbers that any model holds; private values under test must avoid them.
_TRIVIAL = (0.0, 1.0, -1.0, 2.0, 0.5)


def numbers_in(objects: Iterable[Any], *, limit: int = 200_000) -> Iterator[tuple[str, np.ndarray]]:
    """(path, flat array of floats) of every number, numeric array and text reachable from ``objects``."""
    pending: list[tuple[str, Any]] = [(f"objects[{i}]", o) for i, o in enumerate(objects)]
    seen: set[int] = set()
    kept: list[Any] = []  # properties build new objects: alive, so that ids are not used twice
    while pending:
        path, thing = pending.pop()
        if thing is None or isinstance(thing, (bool, *_CLOSED)) or len(seen) > limit or path.count(".") > 12:
            continue
        if isinstance(thing, (int, float, complex, np.number)):
            yield path, np.atleast_1d(np.asarray(thing, dtype=complex).real)
            continue
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        kept.append(thing)
        if isinstance(thing, (str, bytes)):
            continue
        if isinstance(thing, np.ndarray):
            if thing.dtype.kind in "biufc":
                yield path, np.real(thing).astype(float).ravel()
            elif thing.dtype.kind == "O":
                pending += [(f"{path}[{i}]", item) for i, item in enumerate(thing.ravel())]
            continue
        if sp.issparse(thing):
            yield path, np.real(sp.coo_array(thing).data).astype(float)
            continue
        if isinstance(thing, dict):
            pending += [(f"{path}[{k!r}]" if isinstance(k, str) else f"{path}[...]", v) for k, v in thing.items()]
            pending += [(f"{path}.key", k) for k in thing]
            continue
        if isinstance(thing, (list, tuple, set, frozenset)):
            pending += [(f"{path}[{i}]", item) for i, item in enumerate(thing)]
            continue
        if isinstance(thing, BaseException):
            pending += [(f"{path}.args", thing.args), (f"{path}.__cause__", thing.__cause__)]
            pending += [(f"{path}.__context__", thing.__context__), (f"{path}.__dict__", vars(thing))]
            continue
        pending += [(f"{path}.{name}", value) for name, value in attributes_of(thing)]


def attributes_of(thing: Any) -> Iterator[tuple[str, Any]]:
    """Instance attributes, slots and properties (those that raise are skipped)."""
    yield from getattr(thing, "__dict__", {}).items()
    if not type(thing).__module__.startswith(_ROOMS):
        return
    for name in dir(type(thing)):
        if name.startswith("__"):
            continue
        static = inspect.getattr_static(type(thing), name)
        if isinstance(static, (property, types.MemberDescriptorType)) or hasattr(static, "func"):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    yield name, getattr(thing, name)
            except Exception:
                continue


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
    for path, numbers in numbers_in(objects):
        for candidate in (numbers, -numbers):
            found = candidate[np.isclose(candidate[:, None], secrets, rtol=1e-12, atol=0).any(axis=1)]
            assert not found.size, f"private numbers at {path}"
    for path, text in texts_of(objects):
        for secret in secrets:
            assert not _stands_in(float(secret), text), f"a private number in {path}"


def _flat(array: Any) -> np.ndarray:
    return sp.coo_array(array).data if sp.issparse(array) else np.asarray(array, dtype=float).ravel()


def _stands_in(secret: float, text: str) -> bool:
    forms = {repr(secret), f"{secret:g}", f"{secret:.2f}", f"{secret:.4f}", f"{secret:.8f}".rstrip("0")}
    return any(form in text for form in forms if len(form.strip("-").replace(".", "")) >= 4)
