"""What one record may change, written a second time and from the declarations alone.

Nothing here uses ``layout``, ``ball``, ``entry_caps`` or ``extremes`` of the package: units are lists of positions,
bounds are the arguments as typed. ``check`` draws changes and compares them with a footprint.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import clarabel
import numpy as np
import scipy.sparse as sp

from dpmodel.compile.affine_map import AffineMap, LinearMap
from dpmodel.marks import DEFAULT_RECORDS

PARTS = ("objective", "offset", "scalar", "matrix")
# Solver answers are shrunk by this to lie inside the bounds for certain.
_INSIDE = 1 - 1e-7


class FootprintExceededError(AssertionError):
    """An allowed change of one record moves the standard form further than the footprint says."""


@dataclass(frozen=True)
class Unit:
    """One unit of one parameter: positions (i, j) of its free entries, and the set of its changes."""

    name: str
    shape: tuple[int, ...]
    cells: tuple[tuple[int, ...], ...]
    mirrored: bool
    caps: np.ndarray
    l1: float
    l2: float
    row_l1: float

    def full(self, d: np.ndarray) -> np.ndarray:
        """The change as a full-size array."""
        out = np.zeros(self.shape)
        for cell, amount in zip(self.cells, d, strict=True):
            out[cell] = amount
            if self.mirrored:
                out[cell[::-1]] = amount
        return out

    def allows(self, d: np.ndarray) -> bool:
        slack = 1 + 1e-9
        rows: dict[int, float] = {}
        for cell, amount in zip(self.cells, d, strict=True):
            rows[cell[0] if cell else 0] = rows.get(cell[0] if cell else 0, 0.0) + abs(amount)
        return bool(
            (np.abs(d) <= self.caps * slack).all()
            and np.abs(d).sum() <= self.l1 * slack
            and np.linalg.norm(d) <= self.l2 * slack
            and max(rows.values(), default=0.0) <= self.row_l1 * slack
        )

    def largest(self, weights: np.ndarray) -> np.ndarray:
        """A change that maximises ``weights @ d``."""
        signs, w = np.where(weights < 0, -1.0, 1.0), np.abs(weights)
        if not math.isfinite(self.l2):
            return signs * self._greedy(w)
        start = self._greedy(w)
        if np.linalg.norm(start) <= self.l2:
            return signs * start
        if not math.isfinite(self.l1) and not math.isfinite(self.row_l1):
            return signs * self._box_and_ball(w) * _INSIDE
        return signs * self._by_solver(w) * _INSIDE

    def _greedy(self, w: np.ndarray) -> np.ndarray:
        left, rows, d = self.l1, {}, np.zeros(len(w))  # type: ignore[var-annotated]
        for j in sorted(range(len(w)), key=lambda j: -w[j]):
            row = self.cells[j][0] if self.cells[j] else 0
            d[j] = min(self.caps[j], left, rows.get(row, self.row_l1)) if w[j] > 0 else 0.0
            left -= d[j]
            rows[row] = rows.get(row, self.row_l1) - d[j]
        return d

    def _box_and_ball(self, w: np.ndarray) -> np.ndarray:
        low, high = 0.0, float(w.max()) / min(self.l2, 1e-9 + self.caps.max()) * 1e3 * len(w)
        for _ in range(100):
            middle = (low + high) / 2
            d = np.minimum(self.caps, w / max(middle, 1e-300))
            low, high = (middle, high) if np.linalg.norm(d) > self.l2 else (low, middle)
        return np.minimum(self.caps, w / high)

    def _by_solver(self, w: np.ndarray) -> np.ndarray:
        rows = [cell[0] if cell else 0 for cell in self.cells]
        sums = [np.ones(len(w))] + [np.equal(rows, row).astype(float) for row in sorted(set(rows))]
        limits = [self.l1] + [self.row_l1] * (len(sums) - 1)
        d = largest_by_clarabel(w, self.caps, self.l2, np.array(sums), np.array(limits))
        return np.clip(d, 0, self.caps) * _INSIDE


def largest_by_clarabel(w: np.ndarray, caps: np.ndarray, l2: float, sums: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """argmax of ``w'd`` over ``0 <= d <= caps``, ``||d||_2 <= l2``, ``sums @ d <= limits`` (inf for none)."""
    n = len(w)
    identity = np.eye(n)
    rows = np.vstack([-identity, identity[np.isfinite(caps)], sums[np.isfinite(limits)]])
    sides = np.r_[np.zeros(n), caps[np.isfinite(caps)], limits[np.isfinite(limits)]]
    cones: list[Any] = [clarabel.NonnegativeConeT(len(sides))]
    if math.isfinite(l2):
        rows, sides = np.vstack([rows, np.zeros((1, n)), -identity]), np.r_[sides, l2, np.zeros(n)]
        cones.append(clarabel.SecondOrderConeT(n + 1))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    solver = clarabel.DefaultSolver(sp.csc_matrix((n, n)), -w, sp.csc_matrix(rows), sides, cones, settings)
    return np.asarray(solver.solve().x)


def units_of(parameter: Any, declared: Mapping[str, Any]) -> tuple[str, list[Unit]]:
    """How the units are numbered ("n records", or a kind of its own), and the units."""
    shape = parameter.shape
    cells = list(np.ndindex(*shape))
    symmetric = bool(declared.get("symmetric") or declared.get("PSD"))
    if declared.get("sparsity") is not None:
        stored = set(zip(*(np.asarray(i).tolist() for i in declared["sparsity"]), strict=True))
        cells = [c for c in cells if c in stored]
    if declared.get("diag"):
        cells = [c for c in cells if c[0] == c[1]]
    if symmetric:
        cells = [c for c in cells if c[0] <= c[1]]
    kind = declared.get("unit", "all")
    if kind == "all":
        groups, numbering = [cells], f"all of {parameter.name()}"
    elif kind == "entry" and len(shape) >= 2:
        groups, numbering = [[c] for c in cells], f"entries of {parameter.name()}"
    else:
        axis = 1 if kind == "column" else 0
        count = shape[axis] if shape else 1
        groups = [[c for c in cells if (c[axis] if c else 0) == i] for i in range(count)]
        numbering = f"{count} records"
    return numbering, [_unit(parameter, declared, group, symmetric) for group in groups]


def _unit(parameter: Any, declared: Mapping[str, Any], cells: list[tuple[int, ...]], symmetric: bool) -> Unit:
    def given(key: str) -> float:
        value = declared.get(key)
        return math.inf if value is None else float(value)

    # Neither an aggregate nor a unit with a declared change is ever absent: one record less moves it between any two
    # allowed values.
    replace = (
        declared.get("records", DEFAULT_RECORDS).neighbors == "replace-one"
        or declared.get("unit", "all") == "all"
        or any(declared.get(key) is not None for key in ("l1", "l2", "linf", "row_l1"))
    )
    times = 2.0 if replace else 1.0
    low, high = np.full(parameter.shape, -np.inf), np.full(parameter.shape, np.inf)
    if declared.get("bounds") is not None:
        low, high = (np.broadcast_to(np.asarray(b, dtype=float), parameter.shape) for b in declared["bounds"])
    if declared.get("nonneg"):
        low = np.maximum(low, 0)
    size = min(given("max_l1"), given("max_l2"), given("max_linf"))
    low, high = np.maximum(low, -size), np.minimum(high, size)
    reach = high - low if replace else np.maximum(np.abs(low), np.abs(high))
    caps = np.array([min(reach[c], given("linf"), given("l1"), given("l2"), given("row_l1")) for c in cells])
    return Unit(
        parameter.name(),
        parameter.shape,
        tuple(cells),
        symmetric,
        caps,
        min(given("l1"), times * given("max_l1")),
        min(given("l2"), times * given("max_l2")),
        given("row_l1"),
    )


def records_of(private: list[Any], declared: Mapping[str, Mapping[str, Any]]) -> Iterator[list[Unit]]:
    """For every record of every Records (or pair of units it may hit): the units that it owns."""
    people: dict[Any, dict[str, list[list[Unit]]]] = {}
    tables = {
        units_of(p, declared[p.name()])[0] for p in private if declared[p.name()].get("unit") in ("row", "column")
    }
    for parameter in private:
        numbering, units = units_of(parameter, declared[parameter.name()])
        records = declared[parameter.name()].get("records", DEFAULT_RECORDS)
        if records is DEFAULT_RECORDS and numbering not in tables:
            numbering = f"{numbering} of {parameter.name()}"  # nobody said that entry i of two vectors is one record
        people.setdefault(records, {}).setdefault(numbering, []).append(units)
    for numbered in people.values():
        choices = [[list(same) for same in zip(*parameters, strict=True)] for parameters in numbered.values()]
        for owned in itertools.product(*choices):
            yield [unit for group in owned for unit in group]


@dataclass(frozen=True)
class Owned:
    """One record: its units, and per part the matrix from its changes to changes of the standard form."""

    units: list[Unit]
    matrices: Mapping[str, np.ndarray]

    def split(self, vector: np.ndarray) -> list[np.ndarray]:
        ends = np.cumsum([len(u.cells) for u in self.units])[:-1]
        return np.split(vector, ends)

    def largest(self, weights: np.ndarray) -> np.ndarray:
        pieces = zip(self.units, self.split(weights), strict=True)
        return np.concatenate([unit.largest(w) for unit, w in pieces])

    def inside(self, rng: np.random.Generator) -> np.ndarray:
        """A random change: inside, or at an extreme point, of a random face."""
        size = sum(len(u.cells) for u in self.units)
        weights = rng.normal(size=size) * (rng.random(size) < rng.choice([0.3, 0.7, 1.0]))
        return self.largest(weights) * rng.choice([1.0, rng.random()])


def owned_of(affine: AffineMap, units: list[Unit]) -> Owned:
    matrices = {}
    for part in PARTS:
        linear: LinearMap = getattr(affine, part)
        dense = np.zeros((linear.height, affine.theta_size))
        np.add.at(dense, (linear.row, linear.column), linear.coefficient)
        columns = []
        for unit in units:
            block = next(b for b in affine.parameters if b.name == unit.name)
            # The order of free entries is CVXPY's: checked number by number in test_affine_map.
            order = _theta_cells(block.parameter)
            columns += [dense[:, block.offset + order[cell]] for cell in unit.cells]
        matrices[part] = np.array(columns).T.reshape(linear.height, -1)
    return Owned(units, matrices)


def _theta_cells(parameter: Any) -> dict[tuple[int, ...], int]:
    shape, attributes = parameter.shape, parameter.attributes
    if parameter.sparse_idx is not None and shape:
        cells = list(zip(*(np.asarray(i).tolist() for i in parameter.sparse_idx), strict=True))
    elif attributes["diag"]:
        cells = [(i, i) for i in range(shape[0])]
    elif attributes["symmetric"] or attributes["PSD"]:
        cells = [(i, j) for i in range(shape[0]) for j in range(i, shape[0])]
    else:
        cells = [index[::-1] for index in np.ndindex(*shape[::-1])]
    return {tuple(cell): number for number, cell in enumerate(cells)}


def norms(sensitivity: np.ndarray, rows: int | None) -> dict[str, float]:
    size = np.abs(sensitivity)
    out = {"l1": size.sum(), "l2": np.linalg.norm(sensitivity), "linf": size.max(initial=0.0)}
    if rows:
        table = size.reshape((rows, -1), order="F")
        out["row_l1"], out["column_l1"] = table.sum(axis=1).max(initial=0), table.sum(axis=0).max(initial=0)
    return {key: float(value) for key, value in out.items()}


def candidates(owned: Owned, M: np.ndarray, rng: np.random.Generator, draws: int) -> Iterator[np.ndarray]:
    """Changes at which some norm of ``M d`` is likely to be large."""
    for row in {tuple(np.round(r, 12)) for r in M if r.any()}:
        yield owned.largest(np.array(row))
    starts = [owned.inside(rng) for _ in range(draws)]
    starts += [owned.largest(np.eye(M.shape[1])[j]) for j in range(M.shape[1])]
    starts.append(owned.largest(np.abs(M).sum(axis=0)))
    starts.append(owned.largest(np.sqrt((M**2).sum(axis=0))))
    for start in starts:
        yield start
        for climb in (np.sign, lambda v: v):
            d, best = start, -1.0
            for _ in range(20):  # each step can only raise a convex norm
                image = M @ d
                value = float(np.abs(image).sum() if climb is np.sign else np.linalg.norm(image))
                if value <= best * (1 + 1e-9):
                    break
                best = value
                d = owned.largest(M.T @ climb(image))
                yield d


def check(
    affine: AffineMap,
    private: list[Any],
    declared: Mapping[str, Mapping[str, Any]],
    footprint: Any,
    *,
    rng: np.random.Generator,
    draws: int = 8,
) -> dict[tuple[str, str], float]:
    """The largest change found per (part, norm); raises FootprintExceededError above the footprint."""
    found: dict[tuple[str, str], float] = {}
    for units in records_of(private, declared):
        owned = owned_of(affine, units)
        for part in PARTS:
            M = owned.matrices[part]
            if not M.any():
                continue
            moved = np.unique(np.nonzero(M)[1])
            if any(math.isinf(c) for c in np.concatenate([u.caps for u in units])[moved]):
                if not math.isinf(footprint[part].linf):
                    raise FootprintExceededError(f"{part}: finite footprint of an unbounded change")
                continue
            rows = affine.rows if part == "matrix" else None
            for d in candidates(owned, M, rng, draws):
                assert all(u.allows(x) for u, x in zip(units, owned.split(d), strict=True)), "the sampler is wrong"
                for norm, value in norms(M @ d, rows).items():
                    limit = getattr(footprint[part], norm)
                    if not value <= limit * (1 + 1e-9):
                        raise FootprintExceededError(
                            f"{part}.{norm}: {value} above {limit} by {[u.name for u in units]}"
                        )
                    found[part, norm] = max(found.get((part, norm), 0.0), value)
    return found
