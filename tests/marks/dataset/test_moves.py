"""Sensitivities of tables against all neighbors of small worlds: never less than what happens, and attained."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dpmodel.marks.dataset import declared as moves
from dpmodel.marks.dataset.declared import Move

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


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize(("rows", "cells"), [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1)])
def test_sums_from_both_ends(rows: int, cells: int, neighbors: str) -> None:
    """Values at the ends and between them; attained, and missed by a bound that forgets one of the ends."""
    given = []
    for count in range(rows + 1):
        for mine in itertools.product(itertools.product(range(cells), (-1.0, 0.5, 2.0)), repeat=count):
            u = np.zeros((2, cells))
            for cell, v in mine:
                u[:, cell] += v + 1.0, 2.0 - v
            given.append(u.ravel())
    seen = largest(given, neighbors)
    assert_same(moves.of_shares(rows, 3.0, cells, neighbors), seen)  # type: ignore[arg-type]
    if neighbors == "replace-one":
        assert moves.of_sums(rows, 0.0, 3.0, 1, "replace-one").l1 < seen.l1
