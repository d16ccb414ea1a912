"""Models with two of something (people, tables, row orders, parameters in a row, blocks that overlap), of unequal size.

Every private number stands in c, b and A through a public matrix of the model's own, and the changes of one record have
few extreme points. So all that one record can do is listed here, from the declarations and these matrices alone: no
``layout``, ``footprint`` or affine map of the package is asked.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import cvxpy as cp
import numpy as np
from games import Game, game

from dpmodel._types import Floats
from dpmodel.marks import Private, Records

PARTS = ("objective", "scalar", "matrix")
# Numbers of each part: costs, right-hand sides, entries of two rows of A.
SIZES = {"objective": 3, "scalar": 4, "matrix": 6}
_SHAPES = {"entry": [(2,), (3,)], "row": [(3, 2), (2, 3)], "column": [(2, 3), (3, 2)], "all": [(), (2,), (3,), (2, 2)]}


@dataclass
class Twos:
    """``maps`` : parameter and part -> (numbers of the part, size) how it stands there, entries in Fortran order."""

    private: list[Private] = field(default_factory=list)
    declared: dict[str, dict[str, Any]] = field(default_factory=dict)
    maps: dict[tuple[str, str], Floats] = field(default_factory=dict)

    def expression(self, part: str) -> Any:
        """(numbers of the part,) as CVXPY sees them."""
        terms = [self.maps[p.name(), part] @ _flat(p) for p in self.private]
        return sum(terms[1:], terms[0])

    def game(self, parts: tuple[str, ...] = PARTS) -> Game:
        x, rng = cp.Variable(3, bounds=[0, 1], name="x"), np.random.default_rng(0)
        cost = self.expression("objective") if "objective" in parts else np.array([1.0, -2.0, 3.0])
        rows = [rng.normal(size=(4, 3)) @ x <= 9 + (self.expression("scalar") if "scalar" in parts else 0)]
        if "matrix" in parts:
            rows.append(cp.reshape(self.expression("matrix"), (2, 3), order="F") @ x <= 9)
        made = game(cp.Minimize(cost @ x), rows, *self.private)
        made.seal(**{p.name(): np.zeros(p.shape) for p in self.private})
        return made

    # ------------------------------------------------------------------ what one record can do
    def records(self) -> Iterator[tuple[Records, list[tuple[Private, list[int]]]]]:
        """(whose, the entries that it owns) of every record: which units it owns together is in the declarations."""
        people: dict[Records, dict[Any, list[tuple[Private, list[list[int]]]]]] = {}
        for p in self.private:
            units, whose = _units(p, self.declared[p.name()]["unit"]), p.records
            numbered = self.declared[p.name()]["unit"] in ("row", "column", "entry") and p.ndim > 0
            numbered &= p.ndim == 1 or self.declared[p.name()]["unit"] != "entry"
            key = (id(whose), len(units)) if numbered else p.name()
            people.setdefault(whose.people, {}).setdefault(key, []).append((p, units))
        for whose, tables in people.items():
            choices: list[Any] = []
            for members in tables.values():
                together = self.declared[members[0][0].name()]["records"] is not None
                together |= any(self.declared[p.name()]["unit"] in ("row", "column") for p, _ in members)
                for group in [members] if together else [[member] for member in members]:
                    count = len(group[0][1])
                    choices.append([[(p, units[i]) for p, units in group] for i in range(count)])
            for owned in itertools.product(*choices):
                yield whose, [pair for pairs in owned for pair in pairs]

    def extremes(self, owned: list[tuple[Private, list[int]]]) -> Iterator[dict[str, Floats]]:
        """Every extreme change of one record: parameter -> (size,) in Fortran order."""
        corners = [list(_corners(self.declared[p.name()], cells, p.size)) for p, cells in owned]
        for chosen in itertools.product(*corners):
            change: dict[str, Floats] = {}
            for (p, _), d in zip(owned, chosen, strict=True):
                change[p.name()] = change.get(p.name(), 0) + d
            yield change

    def moved(self, change: Mapping[str, Floats], part: str) -> Floats:
        return np.asarray(sum(self.maps[name, part] @ d for name, d in change.items()))

    def worst(self) -> dict[Records, dict[str, dict[str, float]]]:
        """Whose -> part -> norm -> the largest over all records and all their extreme changes."""
        out: dict[Records, dict[str, dict[str, float]]] = {}
        for whose, owned in self.records():
            found = out.setdefault(whose, {part: {"l1": 0.0, "l2": 0.0, "linf": 0.0} for part in PARTS})
            changes = list(self.extremes(owned))
            for part in PARTS:
                size = np.abs([self.moved(change, part) for change in changes])
                norms = {"l1": size.sum(axis=1), "l2": np.linalg.norm(size, axis=1), "linf": size.max(axis=1)}
                for norm, values in norms.items():
                    found[part][norm] = max(found[part][norm], float(values.max()))
        return out


def _flat(p: Private) -> Any:
    return cp.reshape(p, (p.size,), order="F")


def _units(p: Private, unit: str) -> list[list[int]]:
    """Numbers of the entries of every unit, in Fortran order."""
    at = np.arange(p.size).reshape(p.shape, order="F")
    if unit == "all":
        return [list(range(p.size))]
    if unit == "entry":
        return [[i] for i in range(p.size)]
    return [list(row) for row in (at if unit == "row" else at.T)]


def _corners(declared: Mapping[str, Any], cells: list[int], size: int) -> Iterator[Floats]:
    """Extreme points of a box (``linf``, ``bounds``) or of a 1-norm ball (``l1``) on these entries."""
    if "l1" in declared:
        points = [sign * declared["l1"] * row for row in np.eye(len(cells)) for sign in (1.0, -1.0)]
    else:
        points = [declared["linf"] * np.array(signs) for signs in itertools.product((1.0, -1.0), repeat=len(cells))]
    for point in points:
        out = np.zeros(size)
        out[cells] = point
        yield out


# ------------------------------------------------------------------ drawing them
def _whose(rng: np.random.Generator) -> list[Records | None]:
    """Records of three parameters: nobody said, one people, two people, two tables of one people or of nobody's."""
    a, b = Records("a"), Records("b")
    of = {
        "nobody said": (None, None, None),
        "one": (a, a, a),
        "two": (a, b, a),
        "two tables": (*(Records.of_table(None, "replace-one", a) for _ in range(2)), a),
        "two tables of nobody's": (*(Records.of_table(None, "replace-one", None) for _ in range(2)), None),
    }
    found = list(of[str(rng.choice(list(of)))])
    return [found[i] for i in rng.permutation(3)]


def drawn(seed: int) -> Twos:
    """Two or three parameters; every part mixes them with signs, zeros and sizes of its own."""
    rng, out = np.random.default_rng([seed, 2]), Twos()
    for number, records in enumerate(_whose(rng)[: int(rng.integers(2, 4))]):
        unit = str(rng.choice(["entry", "entry", "entry", "row", "column", "all"]))
        shape = _SHAPES[unit][int(rng.integers(len(_SHAPES[unit])))]
        size = float(rng.choice([0.2, 1.0, 5.0]) * rng.uniform(0.5, 1.5))
        declared = {"unit": unit, str(rng.choice(["l1", "linf"])): size, "records": records}
        p = Private(shape=shape, name=f"p{number}", **declared)
        out.private.append(p)
        out.declared[p.name()] = declared
        for part, height in SIZES.items():
            signs = rng.choice([-1.0, 1.0, 2.0], (height, p.size)) * (rng.random((height, p.size)) < 0.4)
            # In some parts it stands in a few rows alone, so that blocks overlap here and there.
            out.maps[p.name(), part] = signs * (rng.random((height, 1)) < rng.choice([0.4, 1.0]))
    return out


def entries(*blocks: tuple[Records | None, float, str, Mapping[int, float]]) -> Twos:
    """One number per block: whose, how far it moves, the part it stands in, and there its factors by number."""
    out = Twos()
    for number, (records, size, part, factors) in enumerate(blocks):
        declared = {"unit": "all", "linf": size, "records": records}
        p = Private(shape=(), name=f"p{number}", **declared)
        out.private.append(p)
        out.declared[p.name()] = declared
        for each, height in SIZES.items():
            column = np.zeros((height, 1))
            if each == part:
                column[list(factors), 0] = list(factors.values())
            out.maps[p.name(), each] = column
    return out


def largest(worst: Mapping[Records, Mapping[str, Mapping[str, float]]], part: str, norm: str) -> float:
    return max((found[part][norm] for found in worst.values()), default=math.nan)
