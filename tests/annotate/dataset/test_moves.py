"""Sensitivities of tables against all neighbors of small worlds: never less than what happens, and attained."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from dpmodel.annotate.dataset import moves
from dpmodel.annotate.dataset.moves import Move

RANGES = [(0.0, 1.0), (-1.0, 2.0), (-3.0, 1.0), (1.0, 3.0), (-2.0, -1.0)]


def contributions(rows: int, cells: int, values: tuple[float, ...]) -> list[np.ndarray]:
    """Everything that a person with at most this many rows can add to the cells."""
    out = {tuple(np.zeros(cells))}
    for count in range(1, rows + 1):
        for where in itertools.product(range(cells), repeat=count):
            for what in itertools.product(values, repeat=count):
                u = np.zeros(cells)
                np.add.at(u, list(where), what)
                out.add(tuple(u))
    return [np.array(u) for u in out]


def largest(given: list[np.ndarray], neighbors: str) -> Move:
    differences = given if neighbors == "add-remove" else [u - v for u in given for v in given]
    return Move(*(max(float(np.linalg.norm(d, order)) for d in differences) for order in (1, 2, np.inf)))


def assert_same(found: Move, expected: Move) -> None:
    np.testing.assert_allclose((found.l1, found.l2, found.linf), (expected.l1, expected.l2, expected.linf))


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize(("rows", "cells"), [(1, 1), (1, 3), (2, 1), (2, 3), (3, 2)])
def test_counts_and_sums_attain_their_sensitivity(rows: int, cells: int, neighbors: str) -> None:
    assert_same(
        moves.of_counts(rows, cells, neighbors),  # type: ignore[arg-type]
        largest(contributions(rows, cells, (1.0,)), neighbors),
    )
    for low, high in RANGES:
        assert_same(
            moves.of_sums(rows, low, high, cells, neighbors),  # type: ignore[arg-type]
            largest(contributions(rows, cells, (low, high)), neighbors),
        )


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize(("most", "cells"), [(1, 1), (1, 2), (2, 3), (2, 5), (4, 3)])
def test_people_counted_once_per_cell(most: int, cells: int, neighbors: str) -> None:
    sets = [c for n in range(most + 1) for c in itertools.combinations(range(cells), min(n, cells))]
    given = [np.isin(np.arange(cells), c).astype(float) for c in sets]
    assert_same(moves.of_distinct(most, cells, neighbors), largest(given, neighbors))  # type: ignore[arg-type]


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_thresholds(neighbors: str) -> None:
    for rows, q in [(1, 1), (1, 4), (2, 3)]:
        below = [np.arange(q) >= place for place in range(q + 1)]
        given = [
            np.sum(c, axis=0).astype(float) for n in range(1, rows + 1) for c in itertools.product(below, repeat=n)
        ]
        assert_same(moves.of_thresholds(rows, q), largest([*given, np.zeros(q)], neighbors))


def mean_moves(rows: int, least: int, cells: int, neighbors: str, divisor: Callable[[int, int], float]) -> Move:
    """The largest moves of the means by one person's rows, over tables of other people's rows at the ends."""
    values, worst = (-1.0, 1.0), np.zeros(3)
    mine = [c for n in range(rows + 1) for c in itertools.product(itertools.product(range(cells), values), repeat=n)]
    others = list(itertools.product(range(5), range(5)))  # rows at the lower and at the upper end, of one cell
    for rest in itertools.product(others, repeat=cells):
        sums = np.array([high - low for low, high in rest], dtype=float)
        counts = np.array([low + high for low, high in rest])

        def means(
            extra: tuple[tuple[int, float], ...], sums: np.ndarray = sums, counts: np.ndarray = counts
        ) -> np.ndarray:
            s, n = sums.copy(), counts.copy()
            for cell, value in extra:
                s[cell] += value
                n[cell] += 1
            return np.array([a / divisor(b, least) for a, b in zip(s, n, strict=True)])

        given = [means(extra) for extra in mine]
        pairs = [(given[0], g) for g in given] if neighbors == "add-remove" else itertools.combinations(given, 2)
        for a, b in pairs:
            worst = np.maximum(worst, [np.linalg.norm(a - b, order) for order in (1, 2, np.inf)])
    return Move(*worst.tolist())


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize(("least", "cells"), [(1, 1), (2, 1), (3, 1), (1, 2), (3, 2)])
def test_means_of_one_row_a_person(least: int, cells: int, neighbors: str) -> None:
    """Attained, and with a smallest group of one fewer the same bound is caught."""
    bound = moves.of_means(1, 2.0, least, cells, neighbors)  # type: ignore[arg-type]
    assert_same(bound, mean_moves(1, least, cells, neighbors, max))
    if least > 1:
        broken = mean_moves(1, least, cells, neighbors, lambda n, m: max(n, m - 1))
        assert broken.linf > bound.linf * 1.01


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_means_of_several_rows_a_person(neighbors: str) -> None:
    bound, seen = moves.of_means(2, 2.0, 2, 1, neighbors), mean_moves(2, 2, 1, neighbors, max)  # type: ignore[arg-type]
    assert (
        seen.l1 <= bound.l1 * (1 + 1e-12)
        and seen.l2 <= bound.l2 * (1 + 1e-12)
        and seen.linf <= bound.linf * (1 + 1e-12)
    )
