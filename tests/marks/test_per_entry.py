"""Numbers that are the same for all entries stay one number."""

from __future__ import annotations

import numpy as np

from dpmodel.marks.layout import all_equal, each, same_for_all, some


def test_one_number_stays_one() -> None:
    one, two, many = np.broadcast_to(2.0, (5,)), np.broadcast_to(np.array([3.0]), (5,)), np.arange(5.0)
    for numbers in (one, two, many):
        assert np.array_equal(each(np.add, one, numbers), one + numbers)
        assert np.array_equal(some(numbers, np.array([0, 3])), numbers[[0, 3]])
        assert np.array_equal(some(numbers, np.arange(5) > 2), numbers[3:])
    assert same_for_all(each(np.multiply, one, two)) and same_for_all(some(one, np.arange(5) > 2))
    assert not same_for_all(each(np.multiply, one, many)) and not same_for_all(some(many, np.arange(3)))
    assert all_equal(one) and all_equal(np.full(5, 2.0)) and all_equal(np.zeros(0)) and not all_equal(many)
