"""What a caller may ask of a solve besides words: ``feasibility=`` and ``goal=`` as objects with settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dpmodel._types import Floats, Mask

Feasibility = Literal["auto", "centred", "relaxed", "safe", "strict", "priced"]
Goal = Literal["auto", "target", "search", "penalty"]
Satisfy = Literal["nearly", "exact"]


@dataclass(frozen=True)
class AllBut:
    """``feasibility=AllBut(rows=, alpha=)``: all private constraints but ``rows`` hold to within ``alpha``.

    For problems in which one record owns one constraint. ``alpha`` is in the constraints' units. With one of the two
    given, the plan finds the best other.
    """

    rows: int | None = None
    alpha: float | None = None


@dataclass(frozen=True)
class Exact:
    """``feasibility=Exact(margin=)``: all private constraints but a few hold exactly (KMMST24).

    Equalities need integers. Inequalities need a ``margin``, or integers with declared bounds; an objective then needs
    a ``Target``.

    ``margin`` : a public promise in (0, 1]: with the rows (b_i, -a_i) of ``a_i x <= b_i`` scaled to unit norm, some
    unit vector y = (x0, x) of the public cone has an inner product of at least ``margin`` with every row. If the
    promise is broken, more rows may be missed; privacy does not depend on it.
    """

    margin: float | None = None


@dataclass(frozen=True, eq=False)
class Priced:
    """``feasibility=Priced(prices)``: a unit by which a private row is missed costs money, and the noise is priced in.

    ``prices`` : what a unit short costs, in units of the objective, in all private rows; or a mapping from constraints
    (or labels) to prices: numbers, arrays of the constraint's shape, and for equalities pairs (short, surplus). An
    equality is short where it provides less than the private number. ``service`` : instead of prices, the share of
    cases in which a row should not be short: its price is its multiplier over ``1 - service``. By default 0.9.
    """

    prices: Any = None
    service: float | None = None


@dataclass(frozen=True, eq=False)
class Prices:
    """Money for a unit by which rows of the standard form are missed: row i costs
    ``above_i (A_i x - b_i)^+ + below_i (b_i - A_i x)^+`` in the minimised objective.

    ``above``, ``below`` : (m,), not negative; 0 below for inequalities. Rows without both stand as they are.
    """

    above: Floats
    below: Floats

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prices) and hash(self) == hash(other) and np.array_equal(self.above, other.above)

    def __hash__(self) -> int:
        return hash((self.above.tobytes(), self.below.tobytes()))

    @property
    def rows(self) -> Mask:
        """(m,) which rows have a price."""
        return (self.above > 0) | (self.below > 0)


@dataclass(frozen=True)
class Target:
    """``goal=Target(value)``: mechanisms that find nearly feasible points look for one whose objective reaches a public
    ``value``."""

    value: float


@dataclass(frozen=True)
class Search:
    """``goal=Search()``: such mechanisms find the best value of the objective by bisection, which costs budget."""


@dataclass(frozen=True)
class Penalty:
    """``goal=Penalty(weight)``: such mechanisms add the violation, times ``weight``, to the objective (None: a weight
    chosen from public facts)."""

    weight: float | None = None
