"""Models without symmetry, and neighbours of them: random signs and sizes everywhere, so that no two mistakes cancel.

Each family draws the model of one cell from a generator: several tables of one ``Records`` with units of their own,
unequal costs, ``row_l1`` above ``linf``, coefficients of both signs, both neighbor relations. Neighbours are those of
``neighbours.py``, which knows the declarations and none of the package's footprint; the changes are chosen so that some
norm of what a mechanism measures is large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import cvxpy as cp
import numpy as np
from games import Game, game
from neighbours import Owned, Unit, candidates, owned_of, records_of

from dpmodel._types import Floats
from dpmodel.marks import Private, Records

Declared = dict[str, dict[str, Any]]
Model = tuple[Game, Declared]


def _signed(rng: np.random.Generator, *shape: int) -> cp.Constant:
    """Public numbers of both signs and of several sizes, some of them zero."""
    sizes = rng.choice([0.1, 1.0, 3.0], shape) * rng.choice([-1.0, 1.0], shape)
    return cp.Constant(sizes * rng.uniform(0.5, 1.5, shape) * (rng.random(shape) < 0.8), name="W")


def _made(objective: Any, rows: list[Any], declared: Declared, private: dict[str, Private]) -> Model:
    made = game(objective, rows, *private.values())
    made.seal(**{name: _inside(p.bounds, p.shape, np.random.default_rng(1)) for name, p in private.items()})
    return made, declared


def _inside(bounds: Any, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    low, high = (np.broadcast_to(np.asarray(end, dtype=float), shape) for end in bounds)
    return np.asarray(rng.uniform(low, high))


def _set(rng: np.random.Generator, x: cp.Variable) -> list[Any]:
    """A simplex, a box with one more row, or a weighted budget."""
    costs = rng.uniform(0.5, 3.0, x.size)
    return [
        [cp.sum(x) == 2, x >= 0],
        [x >= -1, x <= rng.uniform(0.5, 3.0, x.size), costs @ x <= 4],
        [costs @ x <= 3, x >= 0],
    ][int(rng.integers(3))]


def sides(rng: np.random.Generator) -> Model:
    """Two tables of right-hand sides of the same people, of different lengths and units, mixed with both signs."""
    people = Records("people", neighbors=str(rng.choice(["replace-one", "add-remove"])))  # type: ignore[arg-type]
    declared: Declared = {
        "b": {"unit": "entry", "linf": float(rng.uniform(0.02, 0.1)), "bounds": [-2, 3], "records": people},
        "d": {"unit": "all", "linf": 0.05, "l1": float(rng.uniform(0.06, 0.12)), "bounds": [-1, 4], "records": people},
    }
    private = {
        "b": Private(shape=int(rng.integers(2, 5)), name="b", **declared["b"]),
        "d": Private(shape=3, name="d", **declared["d"]),
    }
    b, d, x = private["b"], private["d"], cp.Variable(4, name="x")
    rows = [_signed(rng, 3, 4) @ x <= _signed(rng, 3, b.size) @ b - d, _signed(rng, 3, 4) @ x >= -2 * d]
    return _made(cp.Minimize(0), [*rows, *_set(rng, x)], declared, private)


def prices(rng: np.random.Generator) -> Model:
    """Unequal private costs from two tables of the same people."""
    people = Records("people")
    declared: Declared = {
        "c": {"unit": "entry", "linf": float(rng.uniform(0.02, 0.1)), "bounds": [-2, 3], "records": people},
        "e": {"unit": "all", "l2": float(rng.uniform(0.05, 0.1)), "bounds": [-1, 4], "records": people},
    }
    private = {"c": Private(shape=4, name="c", **declared["c"]), "e": Private(shape=3, name="e", **declared["e"])}
    x = cp.Variable(4, name="x")
    cost = cp.multiply(_signed(rng, 4), private["c"]) + _signed(rng, 4, 3) @ private["e"]
    return _made(cp.Minimize(cost @ x + x[0] - 2 * x[1]), _set(rng, x), declared, private)


def tables(rng: np.random.Generator) -> Model:
    """Coefficients of two tables with units of their own, ``row_l1`` above ``linf`` in one of them."""
    people, linf = Records("people"), float(rng.uniform(0.01, 0.05))
    declared: Declared = {
        "A": {
            "unit": str(rng.choice(["row", "all"])), "linf": linf, "row_l1": 3 * linf, "bounds": [-2, 1],
            "records": people,
        },
        "B": {"unit": "column", "linf": 0.03, "l1": float(rng.uniform(0.04, 0.06)), "bounds": [-1, 3],
              "records": people},
    }  # fmt: skip
    private = {
        "A": Private(shape=(3, 4), name="A", **declared["A"]),
        "B": Private(shape=(2, 4), name="B", **declared["B"]),
    }
    A, B, x = private["A"], private["B"], cp.Variable(4, name="x")
    rows = [_signed(rng, 3, 3) @ A @ x <= 2, _signed(rng, 3, 2) @ B @ x - A @ x >= -3]
    return _made(cp.Minimize(0), [*rows, *_set(rng, x)], declared, private)


def tables_alone(rng: np.random.Generator) -> Model:
    """The same with the coefficients as they are, which the published variants serve."""
    linf = float(rng.uniform(2e-5, 1e-4))
    unit = str(rng.choice(["row", "all", "column"]))
    declared: Declared = {"A": {"unit": unit, "linf": linf, "bounds": [-1, 2]}}
    if unit != "column":
        declared["A"]["row_l1"] = 3 * linf
    private = {"A": Private(shape=(3, 4), name="A", **declared["A"])}
    x = cp.Variable(4, nonneg=True, name="x")
    return _made(cp.Minimize(0), [private["A"] @ x <= 0.1, cp.sum(x) == 2], declared, private)


def owners(rng: np.random.Generator) -> Model:
    """Every record owns a row in two tables of unequal size and sign, used in two constraints."""
    people = Records("people", neighbors=str(rng.choice(["replace-one", "add-remove"])))  # type: ignore[arg-type]
    low = -float(rng.uniform(0.2, 1.0))
    declared: Declared = {
        "A": {"unit": "row", "bounds": [low, float(rng.uniform(0.5, 2.0))], "records": people},
        "b": {"unit": "entry", "bounds": [-1, 2], "records": people},
    }
    private = {
        "A": Private(shape=(40, 3), name="A", **declared["A"]),
        "b": Private(shape=40, name="b", **declared["b"]),
    }
    A, b, x = private["A"], private["b"], cp.Variable(3, name="x")
    twice = [A @ x >= -3 * b - 2] if rng.random() < 0.5 else []
    return _made(cp.Minimize(0), [2 * A @ x <= b, *twice, *_set(rng, x)], declared, private)


FAMILIES: dict[str, Callable[[np.random.Generator], Model]] = {
    each.__name__: each for each in (sides, prices, tables, tables_alone, owners)
}


# ------------------------------------------------------------------ neighbours
def pairs(made: Game, declared: Declared, rng: np.random.Generator, count: int) -> Iterator[tuple[Floats, Floats]]:
    """``count`` pairs (theta, theta') of neighbours inside the declared bounds."""
    affine, theta = made.model.affine, made.model.read_private()
    every = list(records_of(list(made.private.values()), declared))
    for number in range(count):
        units = every[int(rng.integers(len(every)))]
        owned = owned_of(affine, units)
        M = max(owned.matrices.values(), key=lambda part: float(np.abs(part).sum()))
        found = [_widest(owned, M)] if number % 3 == 0 else list(candidates(owned, M, rng, 2))
        d = found[int(rng.integers(len(found)))] if number % 3 < 2 else max(found, key=lambda d: np.abs(M @ d).sum())
        one, two = theta.copy(), theta.copy()
        for unit, sensitivity in zip(units, owned.split(d), strict=True):
            block = next(b for b in affine.parameters if b.name == unit.name)
            before, after = _ends(unit, sensitivity, declared[unit.name], rng)
            mine = unit.full(np.ones(len(unit.cells))).ravel(order="F") != 0
            for values, end in ((one, before), (two, after)):
                part = values[block.columns]
                part[mine] = end.ravel(order="F")[mine]
                values[block.columns] = part
        yield one, two


def _widest(owned: Owned, M: Floats) -> Floats:
    """The change that moves two of the numbers that a mechanism compares furthest apart; 0 is one of them."""
    rows = np.vstack([M, np.zeros(M.shape[1])])
    rows = np.unique(np.round(rows, 12), axis=0)[:12]
    sensitivities = [owned.largest(a - b) for a in rows for b in rows]
    return max(sensitivities, key=lambda d: float(np.ptp(rows @ d)))


def _ends(unit: Unit, sensitivity: Floats, declared: dict[str, Any], rng: np.random.Generator) -> tuple[Floats, Floats]:
    """The record's entries before and after: inside the bounds, ``sensitivity`` apart, or absent (zero) before."""
    d = unit.full(sensitivity)
    low, high = (np.broadcast_to(np.asarray(end, dtype=float), d.shape) for end in declared["bounds"])
    stated = {"l1", "l2", "linf", "row_l1"} & set(declared)
    if declared.get("records") is not None and declared["records"].neighbors == "add-remove" and not stated:
        return np.zeros(d.shape), np.clip(d, low, high)
    room = high - low - np.abs(d)
    start = np.where(d >= 0, low, high) + np.where(d >= 0, 1, -1) * rng.random(d.shape) * np.maximum(room, 0)
    return start, start + d
