"""Counts of keys that nobody lists: the guarantee exactly, on all neighbors of small tables, and what is counted."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from small_tables import ENGINES, SOME_SLOW

import dpmodel as dpm
from dpmodel.errors import SpecificationError
from dpmodel.released.faces import unknown_keys
from dpmodel.released.faces.unknown_keys import interval, tail, threshold

pytestmark = pytest.mark.filterwarnings("ignore:SeededSource")

MOST = 30  # noisy counts beyond are one outcome, which makes two laws no more different than they are


def law(count: int, scale: float, least: int) -> np.ndarray:
    """(outcomes,) not released; least, least + 1, ...; a key that no row has is not released."""
    if count == 0:
        return np.eye(1, MOST + 2)[0]
    upto = tail(scale, np.arange(least, least + MOST + 1) - count)
    return np.concatenate([[1 - upto[0]], upto[:-1] - upto[1:], upto[-1:]])


def excess(one: tuple[int, ...], two: tuple[int, ...], epsilon: float, scale: float, least: int) -> float:
    """max over sets of releases of P(one) - exp(epsilon) P(two), exactly: keys are independent."""
    p, q = np.ones(1), np.ones(1)
    for a, b in zip(one, two, strict=True):
        if a != b:  # equal laws of a key change nothing
            p, q = np.outer(p, law(a, scale, least)).ravel(), np.outer(q, law(b, scale, least)).ravel()
    return float(np.maximum(p - np.exp(epsilon) * q, 0).sum())


def contributions(rows: int, keys: int, distinct: bool) -> list[tuple[int, ...]]:
    out = set()
    for count in range(rows + 1):
        choose = itertools.combinations if distinct else itertools.combinations_with_replacement
        for cells in choose(range(keys), count):
            out.add(tuple(np.bincount(cells, minlength=keys).tolist()) if cells else (0,) * keys)
    return sorted(out)


def worst(rows: int, distinct: bool, neighbors: str, delta: float, lower: int = 0, factor: float = 1.0) -> float:
    epsilon, keys = 1.0, 3
    scale = rows * (1 if neighbors == "add-remove" else 2) / epsilon
    least = threshold(scale, rows, delta, distinct) - lower
    people = contributions(rows, keys, distinct)
    if rows == 1 and neighbors == "replace-one":
        people = [each for each in people if sum(each)]
    found = 0.0
    for others in itertools.product((0, 1, 22), repeat=keys):
        for one, two in itertools.product(people, people if neighbors == "replace-one" else [(0,) * keys]):
            a, b = (tuple(x + y for x, y in zip(others, each, strict=True)) for each in (one, two))
            found = max(found, *(excess(x, y, epsilon, scale * factor, least) for x, y in ((a, b), (b, a))))
    return found


CASES = [(1, False, "add-remove"), (1, False, "replace-one"), (2, False, "add-remove"), (2, True, "add-remove")]


@pytest.mark.parametrize(
    ("rows", "distinct", "neighbors"),
    [*CASES, pytest.param(2, False, "replace-one", marks=pytest.mark.slow),
     pytest.param(2, True, "replace-one", marks=pytest.mark.slow)],
)  # fmt: skip
@pytest.mark.parametrize("delta", [0.05, 1e-4])
def test_no_neighbor_is_told_apart_by_more(rows: int, distinct: bool, neighbors: str, delta: float) -> None:
    found = worst(rows, distinct, neighbors, delta)
    assert 0 < found <= delta * (1 + 1e-9)


@pytest.mark.parametrize("rows", [1, 2])
def test_twins_are_caught(rows: int) -> None:
    """A threshold that is lower by one, noise of half the scale, and a threshold without the rows of a person."""
    assert worst(rows, False, "add-remove", 1e-3, lower=1) > 1e-3
    assert worst(rows, False, "add-remove", 1e-3, factor=0.5) > 1e-3
    if rows == 2:
        assert (
            worst(rows, False, "add-remove", 1e-3, lower=threshold(2.0, 2, 1e-3, False) - threshold(2.0, 1, 1e-3, True))
            > 1e-3
        )


def test_parts_of_a_person_are_no_worse_than_one_key_or_single_rows() -> None:
    for rows, scale, delta in itertools.product((1, 2, 5, 7), (0.5, 3.0, 40.0), (1e-2, 1e-6)):
        least = threshold(scale, rows, delta, False)
        for parts in itertools.chain.from_iterable(
            itertools.combinations_with_replacement(range(1, rows + 1), n) for n in range(1, rows + 1)
        ):
            if sum(parts) <= rows:
                assert 1 - np.prod(1 - tail(scale, least - np.array(parts))) <= delta * (1 + 1e-9)


@pytest.mark.parametrize(("scale", "least", "beta"), [(1.0, 12, 0.05), (8.0, 90, 0.1), (0.3, 4, 0.05)])
def test_intervals_hold_for_keys_that_are_released(scale: float, least: int, beta: float) -> None:
    noisy = np.arange(least, least + 60 + int(60 * scale))
    low, high = interval(noisy, scale, least, beta)
    for count in range(1, least + int(10 * scale)):
        chance = tail(scale, noisy - count) - tail(scale, noisy + 1 - count)
        inside = (low <= count) & (count <= high)
        assert chance[inside].sum() / tail(scale, least - count) >= 1 - beta - 1e-9


# ------------------------------------------------------------------ through a Dataset
ROWS: list[Any] = [(i % 40, "flu", 0.0) for i in range(60)] + [(i, "3", 0.0) for i in range(40)] + [(7, "rare", 0.0)]


def dataset(rows: Any = None, engine: str = "polars", **options: Any) -> dpm.Dataset:
    return dpm.Dataset(ENGINES[engine](ROWS if rows is None else rows), **options)


@pytest.mark.parametrize("engine", SOME_SLOW)
def test_keys_and_counts_without_noise(engine: str) -> None:
    found = dataset(engine=engine).count("town", keys="private", epsilon=50, delta=1e-6, rng=1)
    assert found.labels == (("town", ("flu", 3)),) and list(found) == [60, 40]  # written like a number: that number
    people = dataset(engine=engine, privacy_id="person", max_rows=2)
    found = people.count("town", distinct=True, keys="private", epsilon=50, delta=1e-6, rng=1)
    assert {key: found[key] for key in (3, "flu")} == {3: 40, "flu": 40}
    both = dataset(engine=engine, domain={"town": ["flu", "3", "rare"]}, outside="drop")
    found = both.count(["town", "income"], keys="private", epsilon=50, delta=1e-6, rng=1)
    assert found.labels == ((("town", "income"), (("flu", 0), ("3", 0))),)


def test_one_person_moves_few_rows_and_no_other_is_read_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every replacement of one person's rows, odd ones included, under ``max_rows`` and ``outside='drop'``."""
    seen: list[dict[Any, int]] = []
    honest = unknown_keys._found
    monkeypatch.setattr(unknown_keys, "_found", lambda *given: seen.append(honest(*given)) or seen[-1])
    universe = [("flu", 0.0), ("new", 0.0), ("3.0", 0.0), (None, 0.0), ("other", float("nan"))]
    others = [(1, "flu", 0.0), (1, "flu", 1.0), (2, "3", 0.0), (3, "gout", 0.0)]
    for distinct in (False, True):
        seen.clear()
        for count in range(4):
            for mine in itertools.combinations_with_replacement(universe, count):
                people = dataset(
                    [*others, *((9, *row) for row in mine)], privacy_id="person", max_rows=2, outside="drop"
                )
                people.count("town", keys="private", distinct=distinct, epsilon=1, delta=1e-6)
        keys = sorted({key for found in seen for key in found}, key=str)
        counts = np.array([[found.get(key, 0) for key in keys] for found in seen])
        assert set(keys) == {"flu", "new", 3, "gout", "other"} and (counts >= counts[0]).all()
        assert (counts - counts[0]).sum(axis=1).max() == 2
        assert np.abs(counts[:, None] - counts[None]).sum(axis=2).max() == 4


def test_odd_cells_of_objects_are_the_same_keys() -> None:
    pd = pytest.importorskip("pandas")
    odd = pd.DataFrame({"code": [3, 3.0, "3", " 3.0", True, "x", b"x", -0.0, "0"]}, dtype=object)
    found = unknown_keys._found(dpm.Dataset(odd)._people, ("code",), False, 1)
    assert found == {3: 4, 1: 1, "x": 2, 0: 2}


def test_charges_once() -> None:
    budget = dpm.Budget(1.0, 1e-5)
    dataset().count("town", keys="private", epsilon=0.5, delta=1e-6, budget=budget, rng=1)
    assert [(c.epsilon, c.delta) for c in budget.history] == [(0.5, 1e-6)]


@pytest.mark.parametrize(
    ("release", "words"),
    [
        (lambda d: d.count("town", keys="private", epsilon=1), "delta=0"),
        (lambda d: d.count("town", keys="private", epsilon=1, delta=0.9), "delta=0.9"),
        (lambda d: d.count("town", keys="private", delta=1e-6), "epsilon"),
        (lambda d: d.count("twn", keys="private", epsilon=1, delta=1e-6), "no column"),
        (lambda d: d.count(keys="private", epsilon=1, delta=1e-6), "no column"),
        (lambda d: d.count("income", keys="private", epsilon=1, delta=1e-6), "bounds"),
        (lambda d: d.count("town", keys="private", distinct=True, epsilon=1, delta=1e-6), "privacy_id"),
        (lambda d: d.count("town", epsilon=1), "measure"),
        (lambda d: d.count("town", keys="secret"), "no such keys"),
    ],
)
def test_wrong_inputs(release: Any, words: str) -> None:
    with pytest.raises(SpecificationError, match=words):
        release(dataset(bounds={"income": (0, 1)}))


def test_a_missing_key_is_refused_or_dropped() -> None:
    rows = [*ROWS, (99, None, 0.0)]
    with pytest.raises(SpecificationError, match="outside='drop'"):
        dataset(rows).count("town", keys="private", epsilon=1, delta=1e-6)
    assert dataset(rows, outside="drop").count("town", keys="private", epsilon=9, delta=1e-6, rng=1).value.size == 2
