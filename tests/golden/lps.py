"""Forty linear programs from one seed: every part, level, feasibility, records of one and of two kinds, blocks.

``written(number)`` draws a program. What is varied in turn (part, level, feasibility) follows from the number, all else
from a generator seeded with it.
"""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

from .face import AllBut, Case, Noted, NotedSource, Penalty, Private, Problem, Records, Search, Target, solved

COUNT = 40
PARTS = ("c", "b", "row", "column", "all of A", "c and b", "b twice", "A and b")
EPSILONS = (0.2, 1.0, 5.0)


def written(number: int) -> tuple[Problem, dict[str, Any], str]:
    """(the program, what is requested of it beside a budget, its name)."""
    rng = np.random.default_rng([number, 30])
    part, high = PARTS[number % len(PARTS)], number // len(PARTS) % 3 == 2
    feasibility: Any = ("centred", "relaxed", "safe", "strict", "centred")[number // len(PARTS) % 5]
    many = part in ("row", "A and b") and high
    n, m = int(rng.integers(3, 7)), 300 if many else int(rng.integers(2, 6))
    integer, equality = number % 7 == 3 and not many, number % 6 == 4 and part in ("b", "b twice", "c and b")
    neighbors = str(rng.choice(["replace-one", "add-remove"]))
    people = Records("people", neighbors=neighbors)
    A = rng.uniform(0, 2, (m, n)).round(2)
    middle = rng.uniform(5, 15, n)
    rows_at = A @ middle
    x = cp.Variable(n, bounds=[0, 40], integer=integer, name="x")
    c, b = rng.uniform(1, 5, n).round(2), rows_at.round(1)
    sense = str(rng.choice(["<=", ">="])) if feasibility != "strict" or number % 3 == 0 else "<="
    size = float(rng.choice([0.05, 0.5, 2.0]))
    cost: Any = c
    right: Any = b
    left: Any = A @ x
    if part in ("c", "c and b"):
        whose = people if part == "c" or rng.random() < 0.5 else Records("others")
        declared = {"unit": "all", "linf": size / 10, "l1": size / 4} if not high else {"unit": "entry"}
        cost = Private(c, name="c", bounds=[0, 8], records=whose, **declared)
    if part in ("b", "c and b", "b twice", "A and b"):
        declared = {"unit": "entry", "linf": size} if rng.random() < 0.5 else {"unit": "all", "l1": 2 * size}
        if high and part == "b":
            declared = {"unit": "entry"}
        if part == "A and b" and high:
            declared = {"unit": "entry", "bounds": [0, 100]}
        elif rng.random() < 0.7 or high:
            declared["bounds"] = [0, 200]
        right = Private(b, name="b", records=people, **declared)
    if part == "b twice":
        second = Private((b[:2] / 2).round(1), name="extra", unit="all", l2=size, linf=size, records=people)
        right = right + cp.hstack([second, np.zeros(m - 2)])
    if part in ("row", "column", "all of A", "A and b"):
        unit = {"row": "row", "column": "column", "all of A": "all", "A and b": "row"}[part]
        declared = {"unit": unit, "bounds": [0, 2]} if high else {"unit": unit, "linf": size / 200, "bounds": [0, 2]}
        left = Private(A, name="A", records=people, **declared) @ x
    rows = [left <= right if sense == "<=" else left >= right] if not equality else [left == right]
    if rng.random() < 0.6:
        rows.append(cp.sum(x) <= 20.0 * n)
    if many:
        rows.append(cp.sum(x) == 10 * n)
    goal = cp.Maximize(cost @ x) if sense == "<=" else cp.Minimize(cost @ x)
    requested: dict[str, Any] = {"feasibility": feasibility}
    if many:
        requested = {"feasibility": AllBut(rows=60)} if number % 2 else {"goal": [Search(), Penalty()][number % 4 // 2]}
        if number % 16 == 7:
            requested["goal"] = Target(float(c.sum() * 10))
    requested["delta"] = 0.0 if number % 4 == 1 else 1e-6
    marks = [part, "high" if high else "low", "integer" * integer, "==" * equality, sense, neighbors]
    marks += ["many rows" * many, str(requested.get("feasibility", requested.get("goal"))).partition("(")[0]]
    return Problem(goal, rows), requested, f"{number:02d} " + ", ".join(filter(None, marks))


def _case(number: int) -> Case:
    requested, name = written(number)[1:]

    def run(epsilon: float, delta: float, source: NotedSource) -> Noted:
        options = {key: value for key, value in requested.items() if key != "delta"}
        return solved(written(number)[0], epsilon, delta, source, **options)

    return Case(name, run, tuple((epsilon, requested["delta"]) for epsilon in EPSILONS), number != 18)


def cases() -> list[Case]:
    return [_case(number) for number in range(COUNT)]
