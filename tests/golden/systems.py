"""Twelve exact systems: spans and equations over a finite field and the rationals, inequalities, hulls, equations of a
program."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np

from .face import Case, Exact, Noted, NotedSource, Private, Problem, Records, linalg, released, solved

BUDGETS = ((0.3, 1e-6), (1.0, 1e-6), (5.0, 1e-6))
GF7, GF5 = linalg.GF(7), linalg.GF(5)
CASES: list[Case] = []


def _add(name: str, function: Callable[..., Any], rows: Callable[[Any], Any], quick: bool, **given: Any) -> None:
    def run(epsilon: float, delta: float, source: NotedSource) -> Noted:
        data = rows(np.random.default_rng(30))
        parts = data if isinstance(data, tuple) else (data,)
        found = function(*parts, epsilon=epsilon, delta=delta, rng=source, **given)
        noted = released(found, {})
        noted["x"] = _exactly(found)
        return noted

    CASES.append(Case(f"{len(CASES):02d} {name}", run, BUDGETS, quick))


def _exactly(found: Any) -> str:
    """What was released, as text; its beginning."""
    plain = found.to_dict()
    kept = {key: plain[key] for key in plain.keys() - {"mechanism", "guarantee", "accuracy", "plan", "notes"}}
    return json.dumps(kept, sort_keys=True, default=str)[:240]


def _plane(count: int, field: int = 7) -> Callable[[Any], Any]:
    def rows(rng: np.random.Generator) -> Any:
        free = rng.integers(0, field, (count, 2))
        return np.hstack([free, (free @ [[1, 1], [0, 1]]) % field])

    return rows


def _equations(rng: np.random.Generator) -> Any:
    A = rng.integers(7, size=(900, 3))
    return A, A @ [3, 1, 4] % 7


def _noisy_equations(rng: np.random.Generator) -> Any:
    A, b = _equations(rng)
    b[:5] += 1
    return A, b % 7


def _inequalities(rng: np.random.Generator) -> Any:
    A = rng.normal(size=(3000, 2))
    return A, A @ [1.0, 2.0] + np.linalg.norm(A, axis=1)


def _integer_inequalities(rng: np.random.Generator) -> Any:
    A = rng.integers(-3, 4, (4000, 2))
    return A, A @ [2, 1] + rng.integers(0, 3, 4000)


def _points(count: int, d: int) -> Callable[[Any], Any]:
    return lambda rng: rng.integers(0, 11, (count, d))


one, away = {"neighbors": "replace-one"}, {"neighbors": "add-remove"}
_add("span, field", linalg.span, _plane(900), True, field=GF7, **one)
_add("span, field, add-remove", linalg.span, _plane(600, 5), True, field=GF5, **away)
_add("span, rationals", linalg.span, _plane(900), True, field=linalg.QQ, **one)
_add("affine span", linalg.affine_span, _plane(900), True, field=GF7, **one)
_add("equations", linalg.solve_equations, _equations, True, field=GF7, **one)
_add("equations, some wrong", linalg.solve_equations, _noisy_equations, True, field=GF7, **away)
_add(
    "inequalities with a margin", linalg.feasible_point, _inequalities, False, margin={"radius": 1, "within": 3}, **one
)
_add("inequalities in integers", linalg.feasible_point, _integer_inequalities, False, bound=20, **one)
_add("hull, one dimension", linalg.point_in_hull, _points(6000, 1), False, lower=0, upper=10, step=1, **one)
_add("hull, two dimensions", linalg.point_in_hull, _points(300, 2), True, lower=0, upper=10, step=1, **away)


def _program(epsilon: float, delta: float, source: NotedSource) -> Noted:
    people = Records("people", neighbors="add-remove")
    rng = np.random.default_rng(30)
    A = np.vstack([np.tile([1, 2, 1], (700, 1)), np.tile([0, 1, -1], (700, 1))])[rng.permutation(1400)]
    rows = Private(A, name="A", unit="row", integer=True, records=people)
    x = cp.Variable(3, name="x")
    return solved(Problem(cp.Minimize(cp.norm1(x)), [rows @ x == A @ np.array([4, 1, 1])]), epsilon, delta, source)


def _exact_rows(epsilon: float, delta: float, source: NotedSource) -> Noted:
    rng = np.random.default_rng(30)
    A = rng.uniform(0, 1, (2000, 3))
    rows = Private(A, name="A", unit="row", bounds=[0, 1], records=Records("people"))
    x = cp.Variable(3, nonneg=True, name="x")
    problem = Problem(cp.Minimize(0), [rows @ x <= 4, cp.sum(x) == 1])
    return solved(problem, epsilon, delta, source, feasibility=Exact(margin=0.2))


CASES.append(Case("10 equations of a program", _program, BUDGETS))
CASES.append(Case("11 inequalities of a program, exactly", _exact_rows, BUDGETS, False))
