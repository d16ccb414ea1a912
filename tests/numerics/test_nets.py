"""Nets: their points lie in the polyhedron, and every point of it is as near to one of them as the drift says."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpmodel.numerics.nets import (
    CubeNet,
    Net,
    ProductNet,
    RowBounds,
    _inside_equalities,
    _project_all,
    net_of,
)
from dpmodel.numerics.polyhedron import Polyhedron, _fold

QUICK = settings(deadline=None, max_examples=25, derandomize=True, suppress_health_check=list(HealthCheck))
INF = np.inf


def polytope(lower: Any, upper: Any, A: Any = None, b: Any = (), A_eq: Any = None, b_eq: Any = ()) -> Polyhedron:
    lower, upper = np.asarray(lower, dtype=float), np.asarray(upper, dtype=float)
    A, A_eq = (np.zeros((0, lower.size)) if M is None else np.asarray(M, dtype=float) for M in (A, A_eq))
    sides = (np.asarray(v, dtype=float) for v in (b, b_eq))
    first, second = sides
    return _fold(Polyhedron(sp.csr_array(A), first, sp.csr_array(A_eq), second, lower, upper))


def rows_in(bounds: RowBounds, rng: np.random.Generator, count: int = 40) -> np.ndarray:
    """Rows inside the bounds, many of them extreme."""
    n = bounds.lower.size
    ends = np.where(rng.random((count, n)) < 0.5, bounds.lower, bounds.upper)
    G = np.where(rng.random((count, n)) < 0.7, ends, rng.uniform(bounds.lower, bounds.upper, size=(count, n)))
    G[:n] = np.diag(bounds.upper)
    size = np.maximum(np.abs(G).sum(axis=1) / bounds.norm1, np.linalg.norm(G, axis=1) / bounds.norm2)
    return np.asarray(G / np.maximum(size, 1)[:, None])


def random_points(polyhedron: Polyhedron, rng: np.random.Generator, count: int = 40) -> np.ndarray:
    """Vertices and mixtures of them."""
    vertices = [polyhedron.minimise(rng.normal(size=polyhedron.size)) for _ in range(8)]
    weights = rng.dirichlet(np.full(8, 0.4), size=count)
    return np.vstack([np.array(vertices), weights @ np.array(vertices)])


def worst_drift(points: np.ndarray, x: np.ndarray, G: np.ndarray) -> float:
    """Over x and rows: the change to the kept point that is best for x (the same one for all rows)."""
    return max(float(np.abs((points - one) @ G.T).max(axis=1).min()) for one in x)


def check(net: Net, polyhedron: Polyhedron, bounds: RowBounds, level: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, promised = net.levels[level]
    points, drift = net.points(level)
    assert 1 <= points.shape[0] <= size
    assert drift <= promised * (1 + 1e-6)
    assert max(polyhedron.violation(p) for p in points[:: max(1, size // 300)]) <= 1e-9 * (1 + np.abs(points).max())
    found = worst_drift(points, random_points(polyhedron, rng), rows_in(bounds, rng))
    assert found <= drift + 1e-9


def bounds_for(n: int, kind: str, rng: np.random.Generator) -> RowBounds:
    low, high = {
        "covering": (-np.ones(n), np.zeros(n)),
        "signs": (-np.ones(n), np.ones(n)),
        "mixed": (-rng.random(n), 3 * rng.random(n)),
    }[kind]
    size = np.maximum(np.abs(low), np.abs(high))
    norm1 = min(float(size.sum()), 1.5) if kind == "signs" else float(size.sum())
    return RowBounds(low, high, norm1, min(float(np.linalg.norm(size)), norm1))


PRODUCTS = {
    "interval": polytope([-1], [3]),
    "box": polytope([0, -1, 2], [1, 1, 12]),
    "simplex": polytope([0] * 4, [INF] * 4, None, (), [[1, 2, 1, 0.5]], [2]),
    "below": polytope([0] * 3, [INF] * 3, [[1, 1, 1]], [2]),
    "two columns": polytope([1, 1], [INF, INF], None, (), [[1, 1]], [3]),
    "product": polytope([0, 0, 0, 0, 5], [INF, INF, 1, 2, 5], [[1, 1, 0, 0, 0]], [3]),
    "nothing free": polytope([2, 3], [2, 3]),
}
OTHERS = {
    "cut simplex": polytope([0] * 4, [0.6, INF, INF, INF], None, (), [[1, 1, 1, 1]], [1]),
    "cut box": polytope([0, 0, 0], [1, 1, 1], [[3, 2, 1], [-1, 1, 0]], [2.5, 0.5]),
    "triangle": polytope([-INF, -INF], [INF, INF], [[-1, 0.2], [0.3, -1], [1, 1]], [0, 0, 1]),
    "sliver": polytope([0, 0], [1, 1], [[1, -1.02], [-1, 1]], [0, 0.01]),
    "a line": polytope([0, 0, 0], [1, 1, 1], None, (), [[1, -1, 0], [0, 1, -2]], [0, 0]),
    "fixed columns": polytope([0, 0, 2], [1, 1, 2], [[1, 1, 1]], [3.2]),
    "octahedron": polytope([-1] * 3, [1] * 3, list(itertools.product([-1, 1], repeat=3)), [1] * 8),
    "a point": polytope([0, 0], [1, 1], None, (), [[1, 1], [1, -1]], [1, 0]),
}


@pytest.mark.parametrize("kind", ["covering", "signs", "mixed"])
@pytest.mark.parametrize("name", [*PRODUCTS, *OTHERS])
def test_every_point_is_near_a_kept_one(name: str, kind: str) -> None:
    polyhedron = {**PRODUCTS, **OTHERS}[name]
    bounds = bounds_for(polyhedron.size, kind, np.random.default_rng(5))
    net = net_of(polyhedron, bounds, 3000)
    assert isinstance(net, ProductNet if name in PRODUCTS else CubeNet)
    sizes, drifts = zip(*net.levels, strict=True)
    assert list(sizes) == sorted(sizes) and sizes[-1] <= 3000
    for level in {0, len(sizes) // 2, len(sizes) - 1}:
        check(net, polyhedron, bounds, level, level)
    if sizes[-1] > 100:
        assert drifts[-1] < drifts[0] / 3


@QUICK
@given(st.integers(0, 2**32 - 1))
def test_random_polyhedra(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, p, q = int(rng.integers(2, 6)), int(rng.integers(1, 5)), int(rng.integers(0, 2))
    if n - q > 4:
        q = n - 4
    point = rng.random(n)
    A, A_eq = rng.normal(size=(p, n)), rng.normal(size=(q, n))
    polyhedron = polytope(np.zeros(n), np.ones(n) * 2, A, A @ point + 0.2 * rng.random(p), A_eq, A_eq @ point)
    bounds = bounds_for(n, "signs", rng)
    net = net_of(polyhedron, bounds, 1500)
    if net is not None:
        check(net, polyhedron, bounds, len(net.levels) - 1, seed)


def test_a_drift_that_is_too_small_is_caught() -> None:
    """The check above can fail: a third of the promised drift does not hold."""
    for name in ("box", "simplex", "cut box"):
        polyhedron = {**PRODUCTS, **OTHERS}[name]
        bounds = bounds_for(polyhedron.size, "covering", np.random.default_rng(5))
        net = net_of(polyhedron, bounds, 500)
        assert net is not None
        points, drift = net.points(len(net.levels) // 2)
        rng = np.random.default_rng(0)
        assert worst_drift(points, random_points(polyhedron, rng, 400), rows_in(bounds, rng)) > drift / 3


def test_the_lattice_of_a_simplex() -> None:
    polyhedron = polytope([0] * 3, [INF] * 3, None, (), [[1, 1, 1]], [1])
    net = net_of(polyhedron, RowBounds(np.zeros(3), np.ones(3), 3.0, 2.0), 10)
    assert net is not None
    assert [size for size, _ in net.levels] == [3, 6, 10]
    points, drift = net.points(2)
    assert sorted(map(tuple, np.round(points * 3).astype(int).tolist())) == sorted(
        {k for k in itertools.product(range(4), repeat=3) if sum(k) == 3}
    )
    assert drift == pytest.approx(2 / 3 / 3, rel=1e-6)  # the centre of a cell: two thirds of a step move


@pytest.mark.parametrize(("choices", "cells"), [(4, 2), (4, 4), (5, 3), (6, 3), (6, 1), (3, 5)])
def test_the_worst_point_of_a_lattice(choices: int, cells: int) -> None:
    """Remainders that are all alike are rounded worst; for approvals the promised drift is attained there."""
    polyhedron = polytope([0] * choices, [INF] * choices, None, (), [[1] * choices], [1])
    bounds = RowBounds(np.zeros(choices), np.ones(choices), float(choices), float(choices))
    net = net_of(polyhedron, bounds, 1000)
    assert net is not None
    sizes = [size for size, _ in net.levels]
    level = sizes.index(math.comb(cells + choices - 1, choices - 1))
    points, drift = net.points(level)
    r = min(cells, choices // 2)
    whole = np.zeros(choices)
    whole[0] = cells - r
    x = (whole + r / choices) / cells
    rows = np.array(list(itertools.product([0.0, 1.0], repeat=choices)))
    assert worst_drift(points, x[None, :], rows) == pytest.approx(drift, rel=1e-6)


def test_all_near_centres_are_kept_and_projected() -> None:
    """Against OSQP's projections: nothing within the radius is lost, nothing clearly beyond it is kept."""
    rng = np.random.default_rng(2)
    for name in ("triangle", "cut box", "sliver", "octahedron"):
        polyhedron = OTHERS[name]
        flat = _inside_equalities(polyhedron)
        assert flat is not None
        centres = rng.uniform(flat.lower - 1, flat.upper + 1, size=(150, flat.lower.size))
        exact = np.array([polyhedron.project(flat.origin + c @ flat.basis.T) for c in centres])
        distance = np.linalg.norm(exact - (flat.origin + centres @ flat.basis.T), axis=1)
        found, error = _project_all(flat, centres, 0.3)
        assert (distance <= 0.3 - 1e-4).sum() <= found.shape[0] <= (distance <= 0.3 + 1e-2).sum()
        points = flat.origin + found @ flat.basis.T
        near = exact[distance <= 0.3 - 1e-4]
        assert max(float(np.linalg.norm(points - p, axis=1).min()) for p in near) <= error + 1e-4
        assert error <= 1e-3 * 0.3


@pytest.mark.parametrize(
    "polyhedron",
    [
        polytope([0] * 6, [1] * 6, [[1, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, -1]], [2, 0]),  # six dimensions
        polytope([0, 0], [1, 1], [[1, 1], [-1, -1]], [1, -1]),  # flat, but not by equalities
        polytope([0, 0], [INF, INF], [[1, -1], [-1, 1]], [1, 1]),  # unbounded
        polytope([0, 0], [1, 1], [[-1, -1]], [-3]),  # empty
    ],
)
def test_sets_without_a_net(polyhedron: Polyhedron) -> None:
    n = polyhedron.size
    assert net_of(polyhedron, RowBounds(-np.ones(n), np.ones(n), float(n), n**0.5)) is None
