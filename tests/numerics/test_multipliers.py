"""Projections by Newton's method on multipliers: nearest by the optimality conditions, with dense and sparse rows, from
any earlier answer; None where there is nothing to end at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog

from dpmodel.numerics import nearest_point
from dpmodel.numerics.nearest_point import Multipliers, Projector

INF = np.inf


def rows(rng: np.random.Generator, n: int, p: int, q: int) -> tuple[Any, ...]:
    """A set with a known point: rows, their low and high ends, the box, the point."""
    point = rng.normal(size=n)
    lower, upper = point - rng.exponential(size=n), point + rng.exponential(size=n)
    lower[rng.random(n) < 0.2], upper[rng.random(n) < 0.2] = -INF, INF
    A = rng.normal(size=(p + q, n)) * (rng.random((p + q, n)) < 0.5) * 10.0 ** rng.uniform(-2, 2, (p + q, 1))
    high = A @ point + np.r_[rng.exponential(size=p), np.zeros(q)]
    return sp.csr_array(A), np.r_[np.full(p, -INF), high[p:]], high, lower, upper, point


def further(A: Any, low: np.ndarray, high: np.ndarray, lower: np.ndarray, upper: np.ndarray, near: Any, x: Any) -> bool:
    """Whether ``near`` is in the set and no point of a sample of it is on the side of x: (x - near)'(z - near) <= 0."""
    size = 1e-7 * (1 + np.abs(high) + abs(A) @ np.abs(near))
    assert (near >= lower).all() and (near <= upper).all()
    assert (A @ near <= high + size).all() and (A @ near >= low - size).all()
    equal = np.isfinite(low)
    bounds = np.c_[lower, upper]
    cost = -(x - near)
    made = linprog(
        cost, A[~equal] if (~equal).any() else None, high[~equal] if (~equal).any() else None,
        A[equal] if equal.any() else None, high[equal] if equal.any() else None, bounds,
    )  # fmt: skip
    scale = 1e-6 * (1 + float(np.abs(cost) @ np.abs(near)))
    return bool(made.status == 0 and made.fun < float(cost @ near) - scale)


@pytest.mark.parametrize("dense", [True, False])
def test_no_point_of_the_set_is_nearer(dense: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest_point, "_DENSE", 10**9 if dense else 0)
    ended = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        *given, point = rows(rng, int(rng.integers(5, 40)), int(rng.integers(0, 6)), int(rng.integers(0, 3)))
        found = Multipliers(*given)
        for _ in range(3):  # from the multipliers of the last
            x = point + rng.normal(size=point.size) * 10.0 ** rng.uniform(-1, 2)
            near = found.project(x)
            if near is not None:
                ended += 1
                assert not further(*given, near, x)
    assert ended >= 110  # of 120: where the rows leave next to nothing, another method takes over


def test_a_set_without_points_is_left_to_others() -> None:
    one = sp.csr_array(np.ones((1, 3)))
    box = np.zeros(3), np.ones(3)
    assert Multipliers(one, np.array([-INF]), np.array([-1.0]), *box).project(np.zeros(3)) is None


def test_another_method_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    A, _, high, lower, upper, point = rows(rng, 20, 3, 0)
    x = point + 5 * rng.normal(size=20)
    none = sp.csr_array((0, 20)), np.zeros(0)
    by_newton = Projector(A, high, *none, lower, upper).project(x)
    monkeypatch.setattr(Multipliers, "project", lambda self, x: None)
    assert np.allclose(Projector(A, high, *none, lower, upper).project(x), by_newton, atol=1e-5)
    assert not np.allclose(by_newton, x)
