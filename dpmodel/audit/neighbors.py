"""What an audit runs on: models whose private numbers it may replace, and the neighbours of their data.

A model is a function of ``private``, which stands where private numbers enter: ``private(numbers, name=..., unit=...)``
takes what ``dpm.Private`` takes. It returns an objective and constraints, or a ``dpm.Problem``. So the same model is
written with data, with a neighbour of the data, and with plain numbers, by which its true optimum is found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.errors import SpecificationError
from dpmodel.marks import Private
from dpmodel.privacy import Budget
from dpmodel.privacy.noise import PublicGenerator
from dpmodel.problem import Problem

Write = Callable[[Callable[..., Any]], Any]
# A parameter that one record may move arbitrarily far is moved so far.
_FAR = 1e4
# So many numbers are looked for: of many more, one would stand in a text by chance.
_SECRETS = 40


@dataclass(frozen=True)
class Data:
    """A model with data. ``write`` : the function; ``options`` : further arguments of ``solve``; ``numbers`` : what its
    private parameters hold instead of what it says, by their order."""

    write: Write
    options: Mapping[str, Any] = field(default_factory=dict)
    numbers: tuple[Any, ...] | None = None
    name: str = ""

    @cached_property
    def problem(self) -> Problem:
        return self._written[0]

    @cached_property
    def private(self) -> list[Private]:
        return self._written[1]

    @cached_property
    def values(self) -> tuple[Any, ...]:
        """The numbers, as they were given."""
        return tuple(self._written[2])

    @cached_property
    def _written(self) -> tuple[Problem, list[Private], list[Any]]:
        private: list[Private] = []
        values: list[Any] = []

        def make(numbers: Any, **declared: Any) -> Private:
            values.append(numbers if self.numbers is None else self.numbers[len(private)])
            private.append(Private(values[-1], **declared))
            return private[-1]

        written = self.write(make)
        return (written if isinstance(written, Problem) else Problem(*written)), private, values

    @cached_property
    def truth(self) -> cp.Problem:
        """The model with plain numbers: those that the parameters hold, in their bounds."""
        numbers = iter(map(clipped, self.private, self.values))

        def make(_: Any, **declared: Any) -> cp.Constant:
            constant = cp.Constant(next(numbers))
            constant.records = declared.get("records")  # models hand on whose records they are
            return constant

        written = self.write(make)
        return (
            cp.Problem(written.objective, written.constraints) if isinstance(written, Problem) else cp.Problem(*written)
        )

    def release(self, mechanism: Any, epsilon: float, delta: float, account: Budget, source: Any) -> dict[str, Any]:
        """All that leaves, as plain data."""
        self.problem.solve(epsilon, delta, mechanism=mechanism, budget=account, rng=source, **self.options)
        release = self.problem.release
        if release is None:
            raise SpecificationError("nothing was released", why="no private parameter is in the problem")
        return release.to_dict()

    def moved(self, rng: PublicGenerator) -> tuple[Data, Data]:
        """Two neighbours: one record at a corner of what is declared, and the same record elsewhere or absent."""
        people = self.private[int(rng.integers(len(self.private)))].records.people
        at = int(rng.integers(1 << 30))
        ends = [
            _ends(p, dense(p, value), at, rng) if p.records.people is people else (value, value)
            for p, value in zip(self.private, self.values, strict=True)
        ]
        return tuple(replace(self, numbers=numbers) for numbers in zip(*ends, strict=True))  # type: ignore[return-value]

    def elsewhere(self, rng: PublicGenerator) -> Data:
        """Other data altogether, within what is declared."""
        numbers = []
        for p, value in zip(self.private, self.values, strict=True):
            given = dense(p, value)
            low, high = (np.broadcast_to(np.asarray(end, dtype=float), given.shape) for end in _bounds(p, given.shape))
            wide = np.abs(given).max(initial=1.0)
            low, high = (np.where(np.isfinite(end), end, side * wide) for end, side in ((low, -1), (high, 1)))
            drawn = low + (high - low) * rng.uniform(size=given.shape)
            numbers.append(_fitting(p, drawn))
        return replace(self, numbers=tuple(numbers))

    def told_apart(self, rng: PublicGenerator) -> Data:
        """Data near these with digits of their own, by which a trace of them is found."""
        numbers = []
        for p, value in zip(self.private, self.values, strict=True):
            given = dense(p, value)
            numbers.append(_fitting(p, given * (1 - 1e-3 * rng.uniform(size=given.shape))))
        return replace(self, numbers=tuple(numbers))

    def secrets(self) -> Floats:
        """Some numbers that nobody meets by chance: of at least six digits."""
        flat = np.concatenate(
            [np.zeros(0), *(np.ravel(clipped(p, v)) for p, v in zip(self.private, self.values, strict=True))]
        )
        flat = np.unique(np.abs(flat[np.isfinite(flat)]))
        flat = flat[[len(f"{number:.12g}".replace(".", "").strip("0")) >= 6 for number in flat]]
        return flat[:: max(flat.size // _SECRETS, 1)]


@dataclass(frozen=True)
class System:
    """A call of ``dpm.linalg`` on rows of records. ``other`` : a row that another record may hold (rows of both arrays,
    where there are two). ``options`` : further arguments of ``function``."""

    function: Callable[..., Any]
    rows: tuple[Any, ...]
    other: tuple[Any, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    def release(self, mechanism: Any, epsilon: float, delta: float, account: Budget, source: Any) -> dict[str, Any]:
        budget = {"epsilon": epsilon, "delta": delta, "budget": account, "rng": source}
        plain: dict[str, Any] = self.function(*self.rows, mechanism=mechanism, **budget, **self.options).to_dict()
        return plain

    def moved(self, rng: PublicGenerator) -> tuple[System, System]:
        at, rows = int(rng.integers(len(self.rows[0]))), []
        for given, other in zip(self.rows, self.other, strict=True):
            rows.append(np.array(given))
            rows[-1][at] = other
        return self, replace(self, rows=tuple(rows))


# ------------------------------------------------------------------ one record of one parameter
def dense(p: Private, value: Any) -> Floats:
    """Numbers in the parameter's shape."""
    return np.asarray(value.toarray() if sp.issparse(value) else value, dtype=float).reshape(p.shape)


def clipped(p: Private, value: Any) -> Floats:
    """What the parameter holds of ``value``: within its bounds, its units scaled to their largest norms."""
    held = dense(p, value)
    low, high = _bounds(p, held.shape)
    held = np.clip(held, low, high)
    for name, order in (("max_l1", 1), ("max_l2", 2), ("max_linf", np.inf)):
        limit = p.magnitude.get(name, math.inf)
        if math.isfinite(limit):
            for index in _units(p):
                norm = float(np.linalg.norm(np.ravel(held[index]), order))
                held[index] = held[index] * min(1.0, limit / norm if norm else 1.0)
    return held


def _bounds(p: Private, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
    low, high = (-np.inf, np.inf) if p.bounds is None else p.bounds
    if p.attributes["nonneg"]:
        low = np.maximum(low, 0.0)
    return np.broadcast_to(np.asarray(low, dtype=float), shape), np.broadcast_to(np.asarray(high, dtype=float), shape)


def _units(p: Private) -> list[Any]:
    """An index of the entries of every unit."""
    if p.unit == "all" or not p.shape:
        return [...]
    if p.unit == "entry":
        return list(np.ndindex(p.shape) if p.sparse_idx is None else zip(*p.sparse_idx, strict=True))
    return [(slice(None),) * (p.unit == "column") + (i,) for i in range(p.shape[p.unit == "column"])]


def _ends(p: Private, value: Floats, at: int, rng: PublicGenerator) -> tuple[Any, Any]:
    """What the parameter holds with the record at a corner of what is declared, and on its neighbour."""
    units = _units(p)
    owned = np.zeros(value.shape, dtype=bool)
    owned[units[at % len(units)]] = True
    if p.sparse_idx is not None:
        stored = np.zeros(value.shape, dtype=bool)
        stored[p.sparse_idx] = True
        owned &= stored
    low, high = _bounds(p, value.shape)
    one = value.copy()
    ends = np.where(rng.uniform(size=value.shape) < 0.5, low, high)
    corner = owned & np.isfinite(ends) & (rng.uniform() < 0.75)
    one[corner] = ends[corner]
    if p.vanishes:
        gone = one.copy()
        gone[owned] = 0.0
        return _fitting(p, one), _fitting(p, gone)
    limits = {1: p.l1, 2: p.l2, np.inf: p.linf}
    size = min(limits.values())
    mine = np.flatnonzero(owned)
    if mine.size and math.isfinite(size) and rng.uniform() < 0.6:  # as few entries as may move as far as one may
        most = int(rng.choice([1.0, p.l1 / p.linf, (p.l2 / p.linf) ** 2]) * (1 + 1e-9))
        chosen = rng.choice(mine, min(max(most, 1), mine.size), replace=False)
        owned &= np.isin(np.arange(value.size).reshape(value.shape), chosen)
    d = np.where(owned, rng.choice([-1.0, 1.0], value.shape) * (size if math.isfinite(size) else _FAR), 0.0)
    inside = np.clip(one, low, high)
    d = np.where((inside + d > high) | (inside + d < low), -d, d)  # back from the end that it is at
    d = np.clip(inside + d, low, high) - inside
    norms = {order: float(np.linalg.norm(d.ravel(), order)) for order in limits}
    shrink = min([1.0, *(limit / norms[order] for order, limit in limits.items() if norms[order] > 0)])
    return _fitting(p, inside), _fitting(p, inside + d * shrink)


def _fitting(p: Private, value: Floats) -> Any:
    """As the parameter takes it: integers, symmetric, stored entries alone."""
    if p.attributes["integer"]:
        value = np.rint(value)
    if p.attributes["symmetric"] or p.attributes["PSD"]:
        value = np.triu(value) + np.triu(value, 1).T
    if p.sparse_idx is not None:
        return sp.coo_array((value[p.sparse_idx], p.sparse_idx), shape=p.shape)
    return value


def opened(model: Any) -> Data | System:
    """What is audited, as the checks take it: a function of ``private``, ``Data`` or a ``System``.
    Errors: SpecificationError, for anything else, such as a problem whose numbers are sealed."""
    if isinstance(model, (Data, System)):
        return model
    if not callable(model) or isinstance(model, Problem):
        raise SpecificationError(
            f"{type(model).__name__} is no model that can be audited",
            why="an audit replaces private numbers, and those of a problem are sealed",
            remedy="def model(private): b = private([3, 5], name='b', linf=1); ...; return objective, constraints",
        )
    return Data(model, name=getattr(model, "__name__", "model"))
