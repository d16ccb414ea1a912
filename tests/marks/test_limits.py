"""Declared bounds of rows that others computed: held entry by entry, whatever stands in the entries."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dpmodel.marks.rows import Columns, Limits

NONE = {"max_l1": math.inf, "max_l2": math.inf}
# Just within, at and beyond the ends, far beyond, and no number. Sums of a block may be finite, infinite or none.
ODD = [-1.0, 5.0, np.nextafter(5.0, 9), np.nextafter(-1.0, -9), 1e300, -1e300, 1e308, math.inf, -math.inf, math.nan]
RANGES = {
    "closed": ((-1.0, 5.0), 2.0),
    "above": ((-1.0, math.inf), 0.0),
    "above zero": ((3.0, math.inf), 3.0),
    "below": ((-math.inf, 5.0), 0.0),
    "open": ((-math.inf, math.inf), 0.0),
}


@pytest.mark.parametrize("kind", ["array", "columns"])
@pytest.mark.parametrize("which", RANGES)
def test_entries_are_held_each_by_itself(which: str, kind: str) -> None:
    """Two odd entries in a block of 3 rows and 2 columns, of unequal ranges, in all places."""
    (low, high), middle = RANGES[which]
    limits = Limits((np.array([[low, 0.0]]), np.array([[high, 1.0]])), NONE, "row", 2)
    for first, second in itertools.product(ODD, repeat=2):
        given = np.array([[1.0, 0.25], [first, second], [second, 0.5]])
        before = given.copy()
        ends, middles = np.array([[low, 0.0], [high, 1.0]]), np.array([middle, 0.5])
        expected = np.clip(np.where(np.isfinite(given), given, middles), *ends)
        numbers = Columns(tuple(given.T)) if kind == "columns" else given
        for out in (None, np.full((3, 2), np.nan, order="F"), np.zeros((2, 2), order="F")):
            np.testing.assert_array_equal(limits.hold(numbers, out), expected)
        np.testing.assert_array_equal(given, before)


@pytest.mark.parametrize("name", ["max_l1", "max_l2"])
def test_rows_are_scaled_each_by_itself(name: str) -> None:
    limits = Limits((np.array(-math.inf), np.array(math.inf)), NONE | {name: 2.0}, "row", 2)
    order = {"max_l1": 1, "max_l2": 2}[name]
    for first, second in itertools.product(ODD, repeat=2):
        found = np.asarray(limits.hold(np.array([[0.5, 0.5], [first, second], [1.0, -1.0]])))
        assert (np.linalg.norm(found, order, axis=1) <= 2 * (1 + 1e-12)).all()
        np.testing.assert_array_equal(found[[0, 2]], [[0.5, 0.5], [1.0, -1.0]])
