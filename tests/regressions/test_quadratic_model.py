"""Minimisers of quadratics over simple sets, against their optimality conditions and another solver."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from dpmodel.regressions.perturbed_objective import (
    SimplePart,
    minimise_quadratic,
    solve_positive,
)
from dpmodel.regressions.sets import Box, Domain, FreeSpace, L1Ball, L2Ball, Product, Simplex

P = 20
PARTS: dict[str, tuple[Domain, float]] = {
    "l1": (L1Ball(P, 3.0), 0.0),
    "l1 wide": (L1Ball(P, 1e3), 0.0),
    "l2": (L2Ball(P, 1.0), 0.0),
    "box": (Box(np.full(P, -0.5), np.full(P, 0.3)), 0.0),
    "half": (Box(np.zeros(P), np.full(P, np.inf)), 0.0),
    "simplex": (Simplex(P, 1.0), 0.0),
    "solid": (Simplex(P, 2.0, solid=True), 0.0),
    "product": (Product(((L1Ball(P - 4, 1.0), 0), (FreeSpace(1), P - 4), (L2Ball(3, 0.5), P - 3))), 0.0),
    "penalty": (FreeSpace(P), 1.0),
    "strong penalty": (FreeSpace(P), 1e3),
    "free": (FreeSpace(P), 0.0),
}


def quadratic(condition: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(P, P)))[0]
    hessian = (turn * np.logspace(0, np.log10(condition), P)) @ turn.T
    hessian = (hessian + hessian.T) / 2
    return hessian, -hessian @ rng.normal(size=P)


@pytest.mark.parametrize("condition", [1.0, 1e3, 1e7])
@pytest.mark.parametrize("kind", PARTS)
def test_optimality(kind: str, condition: float) -> None:
    """A proximal gradient step from the minimiser leads back to it."""
    domain, l1 = PARTS[kind]
    hessian, linear = quadratic(condition)
    part = SimplePart(domain, np.full(P, l1))
    for start in (domain.center(), domain.project(np.linspace(-1, 1, P))):
        v = minimise_quadratic(hessian, linear + hessian @ start, start, part, 1e-12)
        assert np.allclose(domain.project(v), v, rtol=0, atol=1e-12)
        moved = v - part.prox(v - (linear + hessian @ v) / condition, 1 / condition)
        assert np.abs(moved).max() <= 1e-11 * max(1.0, float(np.abs(v).max()))


@pytest.mark.parametrize("kind", ["l1", "l2", "simplex", "penalty"])
def test_against_another_solver(kind: str) -> None:
    domain, l1 = PARTS[kind]
    hessian, linear = quadratic(100.0)
    start = domain.center()
    v = minimise_quadratic(hessian, linear + hessian @ start, start, SimplePart(domain, np.full(P, l1)), 1e-12)
    w = cp.Variable(P)
    limits = {
        "l1": [cp.norm1(w) <= 3],
        "l2": [cp.norm(w) <= 1],
        "simplex": [w >= 0, cp.sum(w) == 1],
        "penalty": [],
    }[kind]
    cp.Problem(cp.Minimize(cp.quad_form(w, hessian) / 2 + linear @ w + l1 * cp.norm1(w)), limits).solve(cp.CLARABEL)
    assert w.value is not None and np.abs(w.value - v).max() < 1e-4


@pytest.mark.parametrize("kind", PARTS)
def test_derivative_of_the_prox(kind: str) -> None:
    domain, l1 = PARTS[kind]
    part, rng = SimplePart(domain, np.full(P, l1)), np.random.default_rng(1)
    for size in (0.02, 1.0, 30.0):
        x, way = rng.normal(size=P) * size, rng.normal(size=P)
        d, columns = part.bend(x, 0.1)
        numeric = (part.prox(x + 1e-7 * way, 0.1) - part.prox(x - 1e-7 * way, 0.1)) / 2e-7
        assert np.allclose(d * way - columns @ (columns.T @ way), numeric, atol=1e-5)


def test_no_positive_definite_matrix() -> None:
    assert not solve_positive(-np.eye(2), np.ones(2)).any()
