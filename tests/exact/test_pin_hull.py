"""pin-hull: degenerate points, rates of success, the sensitivity of its scores."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hull_membership import in_hull
from replaying import Transcript

from dpmodel.contract import Options
from dpmodel.exact import pin_hull
from dpmodel.exact.model import PrivatePoints
from dpmodel.exact.pin_hull import (
    PIN_HULL,
    Cuts,
    Left,
    around_box,
    directions,
    pin_hull_plan,
)
from dpmodel.privacy import SeededSource

OPTIONS = Options(1.0, 1e-6)


def model_of(points: Any, levels: tuple[int, ...], neighbors: Any = "add-remove") -> PrivatePoints:
    rows = np.asarray(points, dtype=np.int64).reshape(-1, len(levels))
    records = len(rows) if neighbors == "replace-one" else None
    return PrivatePoints((Fraction(0),) * len(levels), Fraction(1), levels, neighbors, records, 10_000, lambda: rows)


# ------------------------------------------------------------------ privacy
@pytest.mark.parametrize("q", [1, 2, 3])
def test_scores_move_by_at_most_one_and_alike(q: int) -> None:
    """Brute force: numbers of points beyond each direction, and who is deleted, with one point more or replaced."""
    rng = np.random.default_rng(q)
    levels = (9, 7, 5)[:q]
    polytope = around_box(levels)
    for _ in range(12):
        cuts = Cuts.of(directions(q)[:: max(1, len(directions(q)) // 64)], polytope, levels)
        rows = np.column_stack([rng.integers(0, k, size=8) for k in levels])
        extra = np.array([[rng.integers(0, k) for k in levels]])
        one, two = Left.of(rows), Left.of(np.vstack([rows, extra]))
        moves = cuts.beyond(two) - cuts.beyond(one)
        assert set(np.unique(moves)) <= {0.0, 1.0}
        swapped = cuts.beyond(Left.of(np.vstack([rows[1:], extra]))) - cuts.beyond(one)
        assert np.abs(swapped).max() <= 1 and np.ptp(swapped) <= 2
        # a point is judged alone, and by the same rule that counts it
        chosen = int(rng.integers(len(cuts.normals)))
        each = [bool(cuts.within(Left.of(row[None, :]), chosen)[0]) for row in one.points]
        assert cuts.within(one, chosen).tolist() == each
        assert cuts.beyond(one)[chosen] == one.counts[~np.array(each)].sum()
        polytope = polytope.cut(cuts.normals[chosen].astype(float), pin_hull.MOST_BITS, 2.0**-9)


def test_cuts_are_exact() -> None:
    polytope = around_box((1001, 1001))
    for u in ([1.0, 1.0], [1.0, 1.01]):
        for _ in range(8):
            polytope = polytope.cut(np.array(u), pin_hull.MOST_BITS, 2.0**-9)
    cuts = Cuts.of(directions(2)[::64], polytope, (1001, 1001))
    rng = np.random.default_rng(0)
    left = Left.of(rng.integers(0, 1001, size=(50, 2)))
    for i, u in enumerate(cuts.normals):
        exact = [
            sum(int(a) * (int(x) - c) for a, x, c in zip(u, z, polytope.centre, strict=True)) >= 0 for z in left.points
        ]
        assert cuts.within(left, i).tolist() == exact
        assert cuts.beyond(left)[i] == len(exact) - sum(exact)


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
def test_what_is_drawn_is_what_is_planned(neighbors: str) -> None:
    """One threshold, and searches, tests and spans at the planned scales and no more of them than were paid for."""
    reach = 1.0 if neighbors == "add-remove" else 2.0
    points = np.repeat([[3, 2]], 4000, axis=0)
    points[:600] = [[40, 80]]
    model = model_of(points, (101, 101), neighbors)
    plan, source = pin_hull_plan(model, OPTIONS), Transcript(1)
    PIN_HULL.run(model, OPTIONS, source)
    scales: dict[str, list[float]] = {"laplace": [], "discrete_laplace": [], "noisy_max": []}
    for draw in source.draws:
        scales[draw.distribution].append(draw.arguments[0])
    (threshold, *queries), searches, spans = scales["laplace"], scales["noisy_max"], scales["discrete_laplace"]
    assert 3 < len(queries) == len(searches) <= plan.rounds and 1 < len(spans) <= plan.spans
    assert searches == pytest.approx([reach / plan.search] * len(searches))
    assert spans == pytest.approx([reach / plan.span_options.epsilon] * len(spans))
    assert [1 / threshold + reach / query for query in queries] == pytest.approx([plan.test] * len(queries))


# ------------------------------------------------------------------ what it finds
def cases(n: int, levels: int, d: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    along = rng.integers(0, levels // 3, size=n)
    return {
        "everywhere": rng.integers(0, levels, size=(n, d)),
        "in a corner": rng.integers(0, max(3, levels // 10), size=(n, d)),
        "one place": np.full((n, d), 7),
        "a slanted line": np.column_stack([along + 1, 2 * along] + [along] * (d - 2))[:, :d],
    }


KINDS = ["everywhere", "in a corner", "one place", "a slanted line"]


def check(points: np.ndarray, levels: tuple[int, ...], seed: int) -> None:
    found = PIN_HULL.run(model_of(points, levels), OPTIONS, SeededSource(seed))
    assert found.status == "found"
    assert in_hull(points, found.answer)


def test_finds_a_point_of_a_degenerate_hull() -> None:
    check(cases(8000, 31, 2)["a slanted line"], (31, 31), 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_finds_a_point_in_the_plane(name: str, seed: int) -> None:
    check(cases(15_000, 31, 2)[name], (31, 31), seed)


@pytest.mark.parametrize("n", [0, 1, 30])
def test_too_few_points_give_nothing_and_no_error(n: int) -> None:
    points = np.arange(2 * n).reshape(n, 2) % 11
    for neighbors in ("add-remove", "replace-one"):
        found = PIN_HULL.run(model_of(points, (11, 11), neighbors), OPTIONS, SeededSource(n))
        assert found.status == "nothing" and found.answer is None


# ------------------------------------------------------------------ public facts
def test_forecast() -> None:
    forecast = PIN_HULL.forecast(model_of([], (101, 101)), OPTIONS)
    assert not forecast.proved and forecast.vacuous
    assert 10_000 < forecast.error.needed < 200_000
    twice = PIN_HULL.forecast(model_of([], (101, 101), "replace-one"), OPTIONS)
    assert twice.error.needed > forecast.error.needed
    assert math.isfinite(PIN_HULL.forecast(model_of([], (1001,) * 5), OPTIONS).error.needed)


def test_refusals() -> None:
    assert "5 dimensions" in PIN_HULL.eligible(model_of([], (3,) * 6), OPTIONS).reason
    assert "delta" in PIN_HULL.eligible(model_of([], (3, 3)), Options(1.0, 0.0)).reason
    assert "levels" in PIN_HULL.eligible(model_of([], (2**21,)), OPTIONS).reason
