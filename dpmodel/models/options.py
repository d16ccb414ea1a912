"""What a caller may ask of a solve, as small objects: what becomes of private constraints and of the objective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class AllBut:
    """``feasibility=AllBut(rows=, alpha=)``: private constraints hold to within alpha, but for a few.

    For problems in which one record owns one constraint. ``rows`` : how many may be left out; ``alpha`` : how far the
    others may be violated, in the constraints' units. With one of them given, the plan finds the best other.
    """

    rows: int | None = None
    alpha: float | None = None


@dataclass(frozen=True)
class Exact:
    """``feasibility=Exact(margin=)``: private constraints hold exactly, but for a few (KMMST24).

    Equalities with integers are satisfied by sanitised equations; inequalities need a ``margin``, or integers
    of declared bounds; an objective then needs a ``Target``.

    ``margin`` : a public promise in (0, 1]: with the rows (b_i, -a_i) of ``a_i x <= b_i`` scaled to unit norm, some
    unit vector y = (x0, x) of the public cone has a product of at least this with each. If it does not hold, more rows
    may be missed; privacy does not depend on it.
    """

    margin: float | None = None


@dataclass(frozen=True)
class Target:
    """``goal=Target(value)``: mechanisms that find nearly feasible points look for one whose objective reaches a public
    ``value``."""

    value: float


@dataclass(frozen=True)
class Search:
    """``goal=Search()``: they find the best value of the objective by bisection, which is paid for."""


@dataclass(frozen=True)
class Penalty:
    """``goal=Penalty(weight)``: they add the violation to the objective, with this ``weight`` (None: one chosen from
    public facts)."""

    weight: float | None = None


@dataclass(frozen=True)
class Options:
    """The arguments of ``Problem.solve`` and ``plan`` that a family of problems looks at, as they were given."""

    epsilon: Any = None
    delta: Any = 0.0
    beta: Any = 0.05
    mechanism: Any = "auto"
    feasibility: Any = "centred"
    goal: Any = "auto"
    solver: str | None = None
    solver_options: Mapping[str, Any] | None = None
