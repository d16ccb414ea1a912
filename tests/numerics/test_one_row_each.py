"""Linear minimisation by filling rows: a point of the set, and the value of a linear program."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from dpmodel.numerics.one_row_each import OneRowEach
from dpmodel.numerics.polyhedron import LinearMinimiser, Polyhedron


def random_set(rng: np.random.Generator) -> Polyhedron:
    """Every column in one row or none; rows that the box implies on top of them."""
    n, rows = int(rng.integers(2, 12)), int(rng.integers(1, 4))
    owner = rng.integers(-1, rows, n)
    A = np.zeros((rows, n))
    A[owner[owner >= 0], np.flatnonzero(owner >= 0)] = rng.choice([-2.0, -1.0, 0.5, 1.0, 3.0], int((owner >= 0).sum()))
    lower, upper = rng.uniform(-2, 0, n), rng.uniform(0.5, 3, n)
    inside = rng.uniform(lower, upper)
    b = A @ inside
    equality = rng.random(rows) < 0.4
    implied = rng.uniform(-1, 1, n)
    most = np.maximum(implied * lower, implied * upper).sum()
    if rng.random() < 0.5:  # open ends, all of a row on the side from which no column starts, or all on the other
        i = int(rng.integers(rows))
        up = (owner == i) & (np.sign(A[i]) == rng.choice([-1.0, 1.0]))
        A[i, (owner == i) & ~up] = 0.0
        upper[up], implied, b[i] = np.inf, np.zeros(n), A[i] @ inside
    A_ub = sp.csr_array(np.vstack([A[~equality], implied]))
    slack = np.r_[b[~equality] + rng.uniform(0, 1, int((~equality).sum())), max(most, 0.0) + 1e-9]
    return Polyhedron(A_ub, slack, sp.csr_array(A[equality]), b[equality], lower, upper)


@pytest.mark.parametrize("seed", range(200))
def test_value_and_point(seed: int) -> None:
    rng = np.random.default_rng(seed)
    polytope = random_set(rng)
    fast = polytope.one_row_each
    assert fast is not None
    for _ in range(3):
        cost = np.round(rng.standard_normal(polytope.size), 1)
        mine, theirs = fast.minimise(cost), LinearMinimiser(polytope).minimise(cost)
        assert (mine is None) == (theirs is None)
        if mine is not None and theirs is not None:
            assert polytope.violation(mine) <= 1e-9
            assert cost @ mine == pytest.approx(cost @ theirs, abs=1e-6)


def test_open_sets_are_found_unbounded() -> None:
    whole = Polyhedron(
        sp.csr_array((0, 2)), np.zeros(0), sp.csr_array((0, 2)), np.zeros(0), np.zeros(2), np.full(2, np.inf)
    )
    assert whole.minimise(np.array([1.0, -1.0])) is None and whole.support(np.array([1.0, 0.0])) == np.inf
    assert np.array_equal(whole.minimise(np.array([1.0, 0.0])), [0, 0])


def of(**changed: Any) -> OneRowEach | None:
    parts = {
        "A_ub": sp.csr_array([[1.0, 2.0]]), "b_ub": np.array([1.0]), "A_eq": sp.csr_array((0, 2)),
        "b_eq": np.zeros(0), "lower": np.zeros(2), "upper": np.full(2, 5.0),
    }  # fmt: skip
    return Polyhedron(**{**parts, **changed}).one_row_each


def test_what_it_does_not_serve_is_left_to_a_linear_program() -> None:
    assert of() is not None
    assert of(A_ub=sp.csr_array([[1.0, 2.0], [1.0, 0.0]]), b_ub=np.array([1.0, 0.5])) is None  # two rows of one column
    assert of(lower=np.array([-np.inf, 0.0]), upper=np.array([5.0, np.inf])) is None  # nowhere to start from
    assert of(b_ub=np.array([-1.0])) is None and of(upper=np.array([-1.0, 1.0])) is None  # empty
    assert (
        of(A_eq=sp.csr_array([[1.0, 1.0]]), b_eq=np.array([11.0]), A_ub=sp.csr_array((0, 2)), b_ub=np.zeros(0)) is None
    )


def test_a_row_that_is_there_already_moves() -> None:
    """A budget and a target of one cost stay one row; another row is added."""
    budget = Polyhedron(
        sp.csr_array([[1.0, 2.0]]), np.array([3.0]), sp.csr_array((0, 2)), np.zeros(0), np.zeros(2), np.full(2, 5.0)
    )
    for target, b in ((2.0, 2.0), (4.0, 3.0)):
        cut = budget.with_row(np.array([1.0, 2.0]), target)
        assert cut.A_ub.shape[0] == 1 and cut.b_ub.tolist() == [b]
    assert budget.b_ub.tolist() == [3.0]
    assert budget.with_row(np.array([1.0, 2.5]), 2.0).A_ub.shape[0] == 2
    assert budget.with_row(np.array([0.0, 2.0]), 2.0).upper.tolist() == [5.0, 1.0]


def test_a_wrong_price_is_caught() -> None:
    """Planted: rows filled by cost, not by cost per unit of what is left."""
    fast = of(A_ub=sp.csr_array([[1.0, 4.0]]))
    assert fast is not None
    cost = np.array([-1.0, -2.0])
    wrong = replace(fast, value=np.ones(2)).minimise(cost)
    right = fast.minimise(cost)
    assert right is not None and wrong is not None
    assert cost @ right == pytest.approx(-1.0) and cost @ right != pytest.approx(cost @ wrong)
