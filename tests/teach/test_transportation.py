"""The textbook transportation problem."""

from __future__ import annotations

import numpy as np
import pytest

from dpmodel.teach import transportation
from dpmodel.teach.lower_bounds import DEMAND


def test_optimum_of_the_book_at_almost_no_privacy() -> None:
    model = transportation()
    value = model.problem.solve(epsilon=1e7)
    # Dantzig's optimum is 153.675 thousand dollars.
    assert value == pytest.approx(153_675, abs=1)


def test_other_demands_may_be_given() -> None:
    model = transportation(DEMAND / 2, linf=2)
    assert model.problem.classify().cells[0].sensitivity["linf"] == 2
    model.problem.solve(epsilon=1e7)
    assert np.allclose(model.shipments.value.sum(axis=0), DEMAND / 2, atol=1e-2)
