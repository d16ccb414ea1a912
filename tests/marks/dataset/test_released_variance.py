"""Variances that a ``Dataset`` releases: how far a row moves the sums, the boxes of their intervals, coverage."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from small_tables import ENGINES, SOME_SLOW, value_of

import dpmodel as dpm
from dpmodel.errors import SpecificationError
from dpmodel.released.faces import variance
from dpmodel.released.faces.variance import of_three, of_two

pytestmark = pytest.mark.filterwarnings("ignore:SeededSource")

INCOMES = [3.0, 8.0, 1.0, 4.0, 4.0, -1.0, 6.25, 2.0]
ROWS = [(i // 2, ["Ulm", "Bonn", "Ulm"][i % 3], v) for i, v in enumerate(INCOMES)]


def dataset(rows: Any = ROWS, engine: str = "polars", **options: Any) -> dpm.Dataset:
    return dpm.Dataset(ENGINES[engine](rows), bounds={"income": (-1, 8)}, domain={"town": ["Bonn", "Ulm"]}, **options)


@pytest.mark.parametrize("engine", SOME_SLOW)
@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_without_noise_it_is_the_variance(engine: str, neighbors: Any) -> None:
    people = dataset(engine=engine, neighbors=neighbors)
    assert float(people.variance("income", 1e6, rng=1)) == pytest.approx(np.var(INCOMES), rel=1e-3)
    assert float(people.std("income", 1e6, rng=1)) == pytest.approx(np.std(INCOMES), rel=1e-3)
    towns = people.variance("income", 1e6, by="town", rng=1)
    for town in ("Bonn", "Ulm"):
        assert towns[town] == pytest.approx(np.var([r[2] for r in ROWS if r[1] == town]), rel=1e-3)


def captured(monkeypatch: pytest.MonkeyPatch, people: dpm.Dataset, **options: Any) -> Any:
    """What ``measure`` would be given."""
    seen: list[Any] = []
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(variance, "measure", lambda private, *_, **__: seen.append(private) or 1 // 0)
        people.variance("income", 1.0, **options)
    return seen[0]


@pytest.mark.parametrize("pivot", [-1.0, -0.4, 0.0, 0.7, 1.0])
def test_one_row_moves_the_mean_and_the_squares_about_any_number_as_declared(
    monkeypatch: pytest.MonkeyPatch, pivot: float
) -> None:
    """The squares in a unit that depends on the number; a unit of the middle for all is a planted fault."""
    tables = []
    for last in [*np.linspace(-1, 8, 13), 3.5 + 4.5 * pivot]:
        people, seen = dataset([*ROWS, (9, "Ulm", last)]), []

        def measured(private: Any, *_: Any, seen: list[Any] = seen, **__: Any) -> Any:
            seen.append(private)
            noise = SimpleNamespace(max_abs_quantile=lambda *_: 0.0)
            return SimpleNamespace(value=pivot * (len(ROWS) + 1) / 2, noise=noise)

        with monkeypatch.context() as patch:
            patch.setattr(variance, "measure", measured)
            people.variance("income", 1e6)
        tables.append(seen)
    for step in (0, 1):
        values = np.array([float(value_of(each[step])) for each in tables])
        moved = np.abs(values[:, None] - values[None]).max()
        assert moved == pytest.approx(tables[0][step].l1, rel=1e-4)
    assert moved * (1 + abs(pivot)) ** 2 > 1.5 * tables[0][1].l1 or abs(pivot) < 0.3


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["honest", "fault"])
def test_the_release_of_a_variance_loses_what_it_says(monkeypatch: pytest.MonkeyPatch, unit: str) -> None:
    """Forty rows at one end, against one of them at the other. 5 deviations: a false alarm below 1e-6 for an event."""
    if unit == "fault":  # noise for a number in the middle, wherever it is
        real = variance.measure
        monkeypatch.setattr(variance, "measure", lambda private, part, **options: real(private, 4 * part, **options))
    epsilon, runs, found = 1.0, 600, []
    for last in (-1.0, 8.0):
        people = dataset([*((i, "Ulm", -1.0) for i in range(39)), (39, "Ulm", last)])
        source = np.random.default_rng(5)
        found.append(np.array([float(people.variance("income", epsilon, rng=source)) for _ in range(runs)]))
    worst = -np.inf
    for at in np.quantile(np.concatenate(found), np.linspace(0.1, 0.9, 17)):
        for one, two in itertools.permutations(found):
            for p, q in (((one <= at).mean(), (two <= at).mean()), ((one > at).mean(), (two > at).mean())):
                spread = np.sqrt((p * (1 - p) + np.exp(2 * epsilon) * q * (1 - q)) / runs)
                worst = max(worst, (p - np.exp(epsilon) * q) / max(spread, 1 / runs))
    assert (worst > 5) == (unit == "fault")


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_one_person_moves_three_sums_as_declared(monkeypatch: pytest.MonkeyPatch, neighbors: Any) -> None:
    """Two rows of a person in two groups, beyond the bounds and missing ones among them."""
    universe = [("Ulm", -7.0), ("Ulm", 8.0), ("Bonn", 1e9), ("Bonn", 3.5), ("Ulm", float("nan")), (None, 1.0)]
    found = []
    for count in range(3):
        for mine in itertools.combinations_with_replacement(universe, count):
            rows = [*ROWS, *((9, *row) for row in mine)]
            people = dataset(rows, neighbors=neighbors, privacy_id="person", max_rows=2, outside="drop")
            found.append(captured(monkeypatch, people, by="town"))
    values = np.array([value_of(each).ravel() for each in found])
    moved = values[:, None] - (values[None] if neighbors == "replace-one" else values[:1])
    assert np.abs(moved).sum(axis=2).max() == pytest.approx(found[0].l1, rel=1e-5)
    assert np.linalg.norm(moved, axis=2).max() == pytest.approx(found[0].l2, rel=1e-5)


def test_intervals_are_the_range_over_the_box() -> None:
    draw = np.random.default_rng(2)
    for _ in range(60):
        most, off, pivot = draw.exponential(0.2), draw.exponential(0.2), draw.uniform(-1, 1)
        mean, about = draw.normal(0, 1), draw.uniform(0, 2)
        three = draw.normal(1, 4, (3, 1))
        means = np.clip(mean + off * np.r_[-1, 1, draw.uniform(-1, 1, 400)], -1, 1)
        squares = about + most * np.r_[-1, 1, draw.uniform(-1, 1, 400)]
        inside = squares[:, None] - (means - pivot) ** 2
        inside = inside[(inside >= 0) & (inside <= 1 - means**2)]
        _, low, high = (float(each) for each in of_two(mean, off, pivot, about, most))
        assert not inside.size or (low <= inside.min() + 1e-12 and inside.max() <= high + 1e-12)
        most = draw.exponential(2.0)
        cube = np.maximum(three + draw.uniform(-most, most, (3, 4000)), 0)
        cube = cube[:, cube.sum(axis=0) > 0]
        inside = np.clip(4 * (cube[0] * cube[2] - cube[1] ** 2 / 4) / cube.sum(axis=0) ** 2, 0, 1)
        _, low, high = (float(each[0]) for each in of_three(three, most))
        assert not inside.size or (low <= inside.min() + 1e-12 and inside.max() <= high + 1e-12)


@pytest.mark.parametrize(
    ("neighbors", "delta"),
    [
        ("replace-one", 0.0),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in (("add-remove", 0.0), ("replace-one", 1e-6))),
        ("add-remove", 1e-6),
    ],
)
def test_coverage(neighbors: Any, delta: float) -> None:
    """100 releases at .9: fewer than 74 covered would come by chance with probability below 1e-6."""
    values = np.r_[np.full(20, 8.0), np.full(21, -1.0), np.linspace(0, 1, 20)]
    people = dataset([(i, "Ulm", float(v)) for i, v in enumerate(values)], neighbors=neighbors)
    found = [people.variance("income", 1.0, delta, level=0.9, rng=seed) for seed in range(100)]
    assert sum(bool(f.lower <= np.var(values) <= f.upper) for f in found) >= 85


def test_an_empty_group_says_nothing() -> None:
    found = dataset([r for r in ROWS if r[1] == "Ulm"]).variance("income", 1.0, by="town", rng=1)
    assert found.lower[0] == 0 and found.upper[0] == pytest.approx(81 / 4)


def test_charges_once_and_wrong_inputs() -> None:
    budget = dpm.Budget(1.0, 1e-5)
    dataset().variance("income", 0.5, 1e-6, by="town", budget=budget, rng=1)
    assert len(budget.history) == 1 and budget.history[0].epsilon == 0.5
    for release, words in (
        (lambda d: d.variance("town", 1), "categories"),
        (lambda d: d.variance("person", 1), "no bounds"),
        (lambda d: d.std("incme", 1), "no column"),
        (lambda d: d.std("income", 1, level=0.2), "level"),
        (lambda d: d.std("income", -1), "epsilon"),
    ):
        with pytest.raises(SpecificationError, match=words):
            release(dataset())


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize("epsilon", [1e-160, 1e300])
def test_noise_beyond_double_precision_is_refused_before_the_charge(neighbors: Any, epsilon: float) -> None:
    budget = dpm.Budget(1e301, 0.0)
    people = dpm.Dataset(pl.DataFrame({"x": [0.0, 1.0, 0.5]}), bounds={"x": (0, 1)}, neighbors=neighbors)
    with pytest.raises(SpecificationError, match="scale"):
        people.variance("x", epsilon, budget=budget, rng=1)
    assert budget.history == ()


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_intervals_hold_where_rounding_is_more_than_the_noise(neighbors: Any) -> None:
    """All values are rounded outwards by nearly half a step; integers are not rounded."""
    pl, step = pytest.importorskip("polars"), 1.0 / variance._HALF
    for rows in (1001, 200_000):
        odd = np.where(np.arange(rows) % 2, 0.5 + 0.51 * step, -0.5 - 0.51 * step)
        people = dpm.Dataset(pl.DataFrame({"x": odd}), bounds={"x": (-1, 1)}, neighbors=neighbors)
        integers = np.where(np.arange(rows) % 2, 13, 87)
        others = dpm.Dataset(pl.DataFrame({"x": integers}), bounds={"x": (0, 99)}, integers="x", neighbors=neighbors)
        for epsilon in (50.0, 1e4):
            for given, true in ((people, odd.var()), (others, integers.var())):
                found = given.variance("x", epsilon, level=1 - 1e-8, rng=1)
                assert float(found.lower) <= true <= float(found.upper)
                assert float(found.upper) - float(found.lower) <= max(1e-3, 30 / epsilon / rows) * 99**2
