"""Plans that other problems of this process may use: a plan is a function of public facts alone.

A program that is written anew with the same declarations, sizes, names and public numbers has the same plan, found by a
digest of all of these. A model with something in it that the digest does not know is planned anew: regressions and
exact systems, which hold the function that reads their rows. What is charged never rests on a digest: the chosen
mechanism forecasts anew for the model that it will run on, and a plan whose choice says something else then is not used
(``planner``).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from hashlib import blake2b
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel.compile.form import StandardForm
from dpmodel.marks.private import Private
from dpmodel.marks.records import DEFAULT_RECORDS, Records
from dpmodel.memo import PublicFacts
from dpmodel.solve.plan import Plan

_MOST_PLANS = 128
# Seconds from which a plan is worth its digest, which is taken when it is kept and again whenever it may be found.
WORTH = 0.02
# Numbers beyond which a digest would take long beside the plan itself.
_MOST_BYTES = 64 * 2**20
# What was computed, and CVXPY's numbers for objects.
_LEFT_OUT = {"_memo", "problem", "lowered", "variable_columns", "constraint_id"}
# What a private parameter declares.
_DECLARED = (
    "shape", "unit", "records", "positions", "layout", "magnitude", "entry_range", "column_range", "entry_caps", "ball",
    "sensitivity", "vanishes", "attributes",
)  # fmt: skip

_plans: OrderedDict[tuple[bytes | None, Hashable], Plan] = OrderedDict()
_lock = threading.Lock()


def find(data: PublicFacts, key: Hashable) -> Plan | None:
    """The plan of the same ``key`` for a model whose public facts are those of ``data``, or None."""
    with _lock:
        if all(key != of for _, of in _plans):
            return None
    facts = data.cached("digest", lambda: digest(data))
    with _lock:
        if (facts, key) in _plans:
            _plans.move_to_end((facts, key))
        return _plans.get((facts, key))


def keep(data: PublicFacts, key: Hashable, plan: Plan) -> None:
    """Keep ``plan``, unless some mechanism failed in it, which may do better next time."""
    facts = data.cached("digest", lambda: digest(data))
    if facts is None or any(candidate.code == "failed" for candidate in plan.candidates):
        return
    with _lock:
        # Without what holds the model, and with it its private data.
        _plans[facts, key] = plan.alone()
        if len(_plans) > _MOST_PLANS:
            _plans.popitem(last=False)


def forget() -> None:
    """Drop all plans."""
    with _lock:
        _plans.clear()


def digest(data: Any) -> bytes | None:
    """Of everything public in a model that mechanisms are given; None where it holds something unknown, or too much."""
    facts = _Facts()
    try:
        facts.add(data)
    except _Unknown:
        return None
    found = blake2b(digest_size=32)
    for part in facts.parts:
        found.update(memoryview(part).nbytes.to_bytes(8, "big"))
        found.update(part)
    return found.digest()


_SIMPLE = {type(None), bool, int, float, complex, str, bytes}


def _simple(value: Any) -> bool:
    if type(value) in (tuple, list):
        return all(type(each) in _SIMPLE for each in value)
    if type(value) is dict:
        return all(type(each) in _SIMPLE for item in value.items() for each in item)
    return type(value) in _SIMPLE


class _Unknown(Exception):
    """Something that no rule below covers."""


class _Facts:
    """What to digest; the private parameters' records in the order in which they were met; and everything else that
    was met, which is written once (and held, so that nothing else takes its identity)."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.bytes = 0
        self.records: dict[int, int] = {}
        self.met: dict[int, tuple[int, Any]] = {}

    def add(self, value: Any) -> None:
        """Every value is written with its type and its length, so that two different ones differ in what is written."""
        if _simple(value):  # what Python writes in full, in one go
            self._write(repr(value).encode())
            return
        if id(value) in self.met:
            self._write(f"number {self.met[id(value)][0]}".encode())
            return
        self.met[id(value)] = len(self.met), value
        self._write(f"{type(value).__module__}.{type(value).__qualname__}".encode())
        if isinstance(value, np.generic | Fraction):
            self._write(repr(value).encode())
        elif isinstance(value, type):
            self._write(f"{value.__module__}.{value.__qualname__}".encode())
        elif isinstance(value, np.ndarray):
            if value.dtype.hasobject:
                raise _Unknown
            alike = value.size > 1 and not any(value.strides)  # one number for all entries
            self._write(f"{value.dtype.str} {value.shape} {alike}".encode())
            self._write(np.ascontiguousarray(value[(slice(1),) * value.ndim] if alike else value).data)
        elif sp.issparse(value):
            entries = value.tocoo()
            self.each((value.shape, *entries.coords, entries.data))
        elif isinstance(value, Mapping):
            self.each(part for item in value.items() for part in item)
        elif isinstance(value, list | tuple):
            self.each(value)
        elif isinstance(value, Records):
            number, people = (self.records.setdefault(id(each), len(self.records)) for each in (value, value.people))
            self.each((number, people, value is DEFAULT_RECORDS, value.name, value.people.name, value.neighbors))
        elif isinstance(value, Private):
            self.each((value.name(), *(getattr(value, name) for name in _DECLARED)))
        elif isinstance(value, StandardForm):  # the rest are coefficients of the affine map
            self.each((value.affine, value.c0, value.d0, value.b0, value.A0))
        elif isinstance(value, cp.Parameter):  # its numbers are in the arrays
            self.each((value.name(), value.shape, value.attributes))
        elif is_dataclass(value):
            names = [each.name for each in fields(value) if each.name not in _LEFT_OUT]
            self.each(part for name in names for part in (name, getattr(value, name)))
        else:
            raise _Unknown

    def each(self, values: Any) -> None:
        for value in values:
            self.add(value)
        self._write(b"end")

    def _write(self, part: Any) -> None:
        self.bytes += memoryview(part).nbytes
        if self.bytes > _MOST_BYTES:
            raise _Unknown
        self.parts.append(part)
