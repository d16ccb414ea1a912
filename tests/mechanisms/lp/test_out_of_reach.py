"""What is said to be out of reach of every public point is: of the points that are found, and of random ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.classify.private_lp import PrivateLP
from dpmodel.mechanisms.lp.public import out_of_reach as quick
from dpmodel.mechanisms.lp.public.out_of_reach import out_of_reach, some_point_is_best
from dpmodel.mechanisms.lp.public.points import _safest, public_points, regret, unkept, worst_violation

SIZES = 0.0, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0


def needs(rng: np.random.Generator) -> dpm.Problem:
    """Private right-hand sides; the corner of least cost is public."""
    b = dpm.Private(shape=4, name="b", unit="entry", linf=1, bounds=[0, 6])
    x = cp.Variable(5, bounds=[0, 9], name="x")
    A = rng.integers(0, 3, (4, 5))
    return dpm.Problem(cp.Minimize(rng.uniform(0.5, 3, 5) @ x), [A @ x >= b, cp.sum(x) <= 40])


def stores(rng: np.random.Generator) -> dpm.Problem:
    """The same, with columns that cost nothing and go both ways."""
    b = dpm.Private(shape=4, name="b", unit="entry", linf=1, bounds=[0, 6])
    x, y = cp.Variable(5, bounds=[0, 9], name="x"), cp.Variable(4, bounds=[-2, 1], name="y")
    A = rng.integers(0, 3, (4, 5)) + np.eye(4, 5)
    return dpm.Problem(
        cp.Minimize(rng.uniform(0.5, 3, 5) @ x), [A @ x + cp.multiply(rng.uniform(-1, 2, 4), y) >= b, cp.sum(x) <= 40]
    )


def limits(rng: np.random.Generator) -> dpm.Problem:
    """The corner is not public, and rows go both ways."""
    b = dpm.Private(shape=3, name="b", unit="entry", linf=1, bounds=[2, 8])
    x = cp.Variable(5, bounds=[-1, 9], name="x")
    A = rng.integers(-1, 3, (3, 5))
    return dpm.Problem(cp.Minimize(rng.normal(size=5) @ x), [A @ x <= b, cp.sum(x) == 7])


def equalities(rng: np.random.Generator) -> dpm.Problem:
    b = dpm.Private(shape=2, name="b", unit="entry", linf=1, bounds=[1, 4])
    x = cp.Variable(5, bounds=[0, 9], name="x")
    return dpm.Problem(cp.Minimize(rng.uniform(-1, 2, 5) @ x), [rng.integers(0, 3, (2, 5)) @ x == b, x[0] + x[1] <= 5])


def entries(rng: np.random.Generator) -> dpm.Problem:
    """Private coefficients."""
    A = dpm.Private(shape=(3, 4), name="A", unit="entry", linf=0.1, bounds=[0, 2])
    x = cp.Variable(4, bounds=[0, 5], name="x")
    return dpm.Problem(cp.Maximize(rng.uniform(0.5, 2, 4) @ x), [A @ x <= rng.uniform(2, 6, 3)])


def without_bounds(rng: np.random.Generator) -> dpm.Problem:
    """Private coefficients of which nothing is declared but how far one record moves them."""
    A = dpm.Private(shape=(2, 4), name="A", unit="entry", linf=0.1)
    x = cp.Variable(4, bounds=[0, 5], name="x")
    return dpm.Problem(cp.Maximize(rng.integers(0, 3, 4) @ x), [A @ x <= rng.uniform(2, 6, 2)])


def costs(rng: np.random.Generator) -> dpm.Problem:
    c = dpm.Private(shape=5, name="c", unit="entry", linf=0.1, bounds=[-1, 2])
    x = cp.Variable(5, bounds=[0, 4], name="x")
    return dpm.Problem(cp.Minimize(c @ x), [rng.uniform(0, 2, (2, 5)) @ x >= 3])


def both(rng: np.random.Generator) -> dpm.Problem:
    c = dpm.Private(shape=4, name="c", unit="entry", linf=0.1, bounds=[-1, 2])
    b = dpm.Private(shape=2, name="b", unit="entry", linf=1, bounds=[1, 4])
    x = cp.Variable(4, bounds=[0, 4], name="x")
    return dpm.Problem(cp.Minimize(c @ x), [rng.integers(0, 3, (2, 4)) @ x >= b, cp.sum(x) <= 9])


def curved(rng: np.random.Generator) -> dpm.Problem:
    """Private right-hand sides beside second-order cones."""
    b = dpm.Private(shape=4, name="b", unit="entry", linf=1, bounds=[0, 6])
    x = cp.Variable(5, bounds=[0, 9], name="x")
    A = rng.integers(0, 3, (4, 5))
    return dpm.Problem(cp.Minimize(cp.norm(x - rng.uniform(0, 2, 5)) + 0.1 * cp.sum_squares(x)), [A @ x >= b])


def logarithms(rng: np.random.Generator) -> dpm.Problem:
    b = dpm.Private(shape=3, name="b", unit="entry", linf=1, bounds=[2, 8])
    x = cp.Variable(5, bounds=[0.1, 9], name="x")
    return dpm.Problem(cp.Maximize(cp.sum(cp.log(x))), [rng.integers(0, 3, (3, 5)) @ x <= b, cp.sum(x) <= 7])


BUILDS = [needs, stores, limits, equalities, entries, without_bounds, costs, both, curved]
LINEAR = [build for build in BUILDS if build not in (curved, logarithms)]


def test_the_best_whole_point_may_cost_more_than_what_lies_between() -> None:
    """(0, 1) violates nothing, and no whole point costs less."""
    b = dpm.Private(shape=2, name="b", unit="entry", linf=0.001, bounds=[0.6, 0.9])
    x = cp.Variable(2, integer=True, bounds=[0, 9])
    rows = [2 * x[0] + 2 * x[1] >= 1, np.ones((2, 2)) @ x >= b]
    problem = dpm.Problem(cp.Minimize(100 * cp.sum(x)), rows)
    assert not out_of_reach(problem._door(None).data, 0.0, 0.0)
    assert problem.plan(1.0, 1e-6).chosen.mechanism == "public-only"


@pytest.mark.parametrize("seed", range(12))
def test_no_listed_whole_point_is_out_of_reach(seed: int) -> None:
    rng = np.random.default_rng(seed)
    b = dpm.Private(shape=2, name="b", unit="entry", linf=0.1, bounds=[0.4, 2.6])
    x = cp.Variable(2, integer=True, bounds=[0, 4], name="x")
    A, fixed, c = rng.integers(0, 3, (2, 2)) + np.eye(2), rng.integers(1, 4, 2), rng.uniform(0.5, 3, 2)
    least = rng.uniform(0.5, 4)
    model = dpm.Problem(cp.Minimize(c @ x), [A @ x >= b, fixed @ x >= least])._door(None).data
    listed = np.array([(i, j) for i in range(5) for j in range(5)], dtype=float)
    public = listed[(listed @ fixed >= least) & (listed @ A.T >= 0.4).all(axis=1)]
    for point in public:
        lost, missed = float(c @ point - (public @ c).min()), float(np.maximum(2.6 - A @ point, 0.0).max())
        assert not out_of_reach(model, lost, missed)


def found(model: PrivateLP, rng: np.random.Generator) -> list[tuple[float, float]]:
    """Loss and violation, on the worst data, of the public points that plans look at and of random ones."""
    points = [(each.loss, each.violation) for each in public_points(model)]
    linear, c = model.affine.is_linear(), model.form.c0
    least = model.public.polyhedron.minimise if linear else model.public.cheapest
    for _ in range(20):
        # Columns of epigraphs keep their cost, or nothing is least.
        costs = (np.where((c == 0) | linear, rng.normal(size=c.size), c) for _ in range(2))
        x, y = map(least, costs)
        if x is not None and y is not None:
            x = x + rng.uniform() * (y - x)
            points.append((regret(model, x), worst_violation(model, x)))
    return points


def wrong(build: Any, seed: int) -> tuple[int, int]:
    """How often something was said to be out of reach, and how often a point was found that reaches it."""
    rng = np.random.default_rng(seed)
    model = build(rng)._door(None).data
    if not model.public.feasible:
        return 0, 0
    points = found(model, rng)
    said = [(a, v) for a in SIZES for v in SIZES if out_of_reach(model, a, v)]
    return len(said), sum(any(loss <= a and missed <= v for loss, missed in points) for a, v in said)


@pytest.mark.slow
@pytest.mark.parametrize("build", BUILDS)
def test_no_point_reaches_what_is_out_of_reach(build: Any) -> None:
    told = [wrong(build, seed) for seed in range(12)]
    assert sum(misses for _, misses in told) == 0
    assert sum(said for said, _ in told) > 0  # something is seen at all


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "name"),
    [
        (needs, "_corner"),
        (stores, "_corner"),
        (limits, "_tangent"),
        (curved, "_tangent"),
        (curved, "_from_the_loosest"),
        (costs, "_lost_between"),
    ],
)
def test_a_proof_that_is_none_is_found_out(build: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: prices, optima and regrets that are ten times too large."""
    inner = getattr(quick, name)

    def larger(model: PrivateLP, *given: Any) -> Any:
        if name == "_corner":
            missed, free, price, zeroing, tolerance = inner(model)
            if build is stores:  # as if nothing were free
                return missed, 0 * free, price, zeroing, tolerance
            return missed, free, 10 * price, zeroing, tolerance
        if name == "_tangent":
            tangent = inner(model, *given)
            return replace(tangent, value=tangent.value + 9 * abs(tangent.value) + 5, falls=tangent.falls / 10)
        if name == "_from_the_loosest":
            line, reached = inner(model)
            return replace(line, value=line.value + 9 * abs(line.value) + 5), reached
        return 10 * inner(model, *given)

    monkeypatch.setattr(quick, name, larger)
    if build is costs:  # else it is not asked for losses as large as those of the points
        monkeypatch.setattr(quick, "objective_span", lambda model: np.inf)
    assert sum(wrong(build, seed)[1] for seed in range(12)) > 0


@pytest.mark.parametrize("build", [curved, logarithms])
def test_one_program_tells_less_than_those_of_every_violation(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    for seed in range(6):
        model = build(np.random.default_rng(seed))._door(None).data
        least = -model.public.support(-model.form.c0)
        line, reached = quick._from_the_loosest(model)
        for violation in (1e-5, 0.3, 2.0):
            robust = quick._tangent(model, violation).value
            assert line.value - line.falls * violation <= robust + 1e-4 * (1 + abs(robust))
        assert not out_of_reach(model, 0.0, reached) and quick._tangent(model, reached).value <= least + 1e-3
        asked += not line.exceeds(least, 1e-4)
        if line.exceeds(least, 1e-4):  # another program is not solved
            with monkeypatch.context() as patch:
                patch.delattr(quick, "_tangent")
                assert out_of_reach(model, 0.0, 0.0)
    assert asked < 6 or build is curved  # at whose loosest no private row binds


@pytest.mark.parametrize("seed", range(6))
def test_no_point_loses_less_than_is_lost_between_two(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = costs(rng)._door(None).data
    y, seen = quick._best_in_the_middle(model), 0.0
    assert y is not None
    for _ in range(20):
        z = model.public.polyhedron.minimise(rng.normal(size=5))
        assert z is not None
        seen = max(seen, quick._lost_between(model, y, z))
    assert 0 < seen <= min(loss for loss, _ in found(model, rng))


@pytest.mark.parametrize("build", LINEAR)
def test_a_best_point_is_one_that_loses_nothing(build: Any) -> None:
    for seed in range(6):
        model = build(np.random.default_rng(seed))._door(None).data
        if model.public.feasible:
            assert some_point_is_best(model) == (build not in (costs, both))
            assert not some_point_is_best(model) or any(point.loss == 0 for point in public_points(model))


@pytest.mark.parametrize("build", [needs, limits, equalities])
def test_a_point_beside_another_is_public_and_no_worse(build: Any) -> None:
    moved = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        model = build(rng)._door(None).data
        public, c = model.public, model.form.c0
        x = public.polyhedron.minimise(rng.normal(size=c.size)) if public.feasible else None
        if x is not None:
            near = public.beside(x, c)
            assert near is not None and public.polyhedron.violation(near) <= 1e-7
            assert c @ near <= c @ x + 1e-9
            moved += c @ near < c @ x - 1e-3
        assert public.beside(np.full(c.size, 1e3), c) is None  # no public point
    assert moved or build is not needs


@pytest.mark.parametrize("build", [needs, limits, equalities, entries])
def test_what_programs_told_does_not_change_the_safest_point(build: Any) -> None:
    told = 0
    for seed in range(8):
        asked, fresh = (build(np.random.default_rng(seed))._door(None).data for _ in range(2))
        if not asked.public.feasible:
            continue
        for loss in SIZES:
            for violation in SIZES:
                out_of_reach(asked, loss, violation)
        told += bool(unkept(asked))
        points = _safest(asked), _safest(fresh)
        assert all(points) or not any(points)
        if all(points):
            assert points[0].violation == pytest.approx(points[1].violation, abs=1e-5)
            assert points[0].loss == pytest.approx(points[1].loss, abs=1e-4)
    assert told or build is not limits
