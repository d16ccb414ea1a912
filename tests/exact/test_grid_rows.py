"""Rows on the grid: products, sums and moments are exact, in any order, and a record's numbers are its own."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from inequalities import unit

from dpmodel.exact import cones as grid_rows
from dpmodel.exact.cones import GridRows, grid_direction, row_norm


def some_rows(n: int, size: int) -> np.ndarray:
    """Unit rows, a tenth of them zero."""
    draw = np.random.default_rng(n)
    rows = unit(draw.standard_normal((n, size)))
    rows[draw.random(n) < 0.1] = 0
    return rows


def test_products_and_sums_are_those_of_fractions() -> None:
    draw = np.random.default_rng(1)
    rows = GridRows.of(some_rows(60, 7))
    y, mask = grid_direction(draw.standard_normal(7)), draw.random(60) < 0.5
    exact = [sum((Fraction(a) * Fraction(b) for a, b in zip(row, y, strict=True)), Fraction(0)) for row in rows.rows]
    assert [Fraction(v) for v in rows.values(y)] == exact
    total = [sum((Fraction(v) for v in rows.rows[mask, j]), Fraction(0)) for j in range(7)]
    assert [Fraction(v) for v in rows.sum(mask)] == total
    assert np.linalg.norm(rows.rows, axis=1).max() <= row_norm(7)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_nothing_depends_on_order_or_on_how_long_sums_are_put_together(
    form: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(2)
    rows, shuffle, sensitivity = some_rows(3001, 7), draw.permutation(3001), draw.standard_normal((7, 7))
    one, two = GridRows.of(form(rows)), GridRows.of(form(rows[shuffle]))
    for a, b in ((one, two), (one.rescaled(sensitivity), two.rescaled(sensitivity))):
        for y in map(grid_direction, draw.standard_normal((20, 7))):
            mask = a.below(y, 0.1)
            assert (mask[shuffle] == b.below(y, 0.1)).all()
            assert (a.sum(mask) == b.sum(mask[shuffle])).all()
        assert (a.second_moments() == b.second_moments()).all()
    moments, total = one.second_moments(), one.sum(one.live)
    assert np.abs(moments - rows.T @ rows).max() < 3001 * 2.0**-13
    monkeypatch.setattr(grid_rows, "_BLOCK", 99)
    monkeypatch.setattr(grid_rows, "_MOMENT_BLOCK", 99)
    assert (one.sum(one.live) == total).all() and (one.second_moments() == moments).all()


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_zero_rows_do_nothing(form: Any) -> None:
    rows = GridRows.of(form(np.array([[0.0, 0.0], [1.0, 0.0]])))
    assert rows.below(np.zeros(2), 1.0).tolist() == rows.live.tolist() == [False, True]
    assert GridRows.of(form(np.zeros((0, 2)))).sum(np.zeros(0, dtype=bool)).tolist() == [0.0, 0.0]
