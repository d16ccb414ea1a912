"""``linalg.solve_equations``: planted systems, wrong equations, inconsistent ones."""

from __future__ import annotations

import functools
import json
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from dpmodel.errors import SpecificationError, UnsupportedModelError
from dpmodel.exact.fields import GF, QQ
from dpmodel.exact.inputs import equation_rows
from dpmodel.linalg import solve_equations as _solve_equations

solve_equations = functools.partial(_solve_equations, neighbors="add-remove")  # unless a test says otherwise

pytestmark = pytest.mark.filterwarnings("ignore::dpmodel.errors.NotPrivateWarning")


def system(field, d=4, n=500, wrong=0.0, seed=0):
    generator = np.random.default_rng(seed)
    top = 10 if field.order is None else field.order
    A = generator.integers(0, top, size=(n, d))
    x = generator.integers(0, top, size=d)
    b = field.matmul(A, x[:, None])[:, 0]
    bad = generator.random(n) < wrong
    b = np.where(bad, field.add(b, generator.integers(1, top, size=n)), b)
    return A, b.astype(np.int64), x


def solved(A, b, field, **more):
    return solve_equations(A, b, **({"field": field, "epsilon": 1.0, "delta": 1e-6, "rng": 0} | more))


@pytest.mark.parametrize("field", [QQ, GF(2), GF(7), GF(256)], ids=lambda f: f.name)
def test_a_planted_solution(field):
    A, b, x = system(field)
    found = solved(A, b, field)
    assert found.consistent and found.dimension == 0
    assert found.x.tolist() == x.tolist()
    C, d = found.equations
    assert (field.matmul(C, x[:, None])[:, 0] == d).all()
    assert found.accuracy.proved


@pytest.mark.parametrize(("field", "d"), [(QQ, 5), (GF(2), 10), (GF(256), 5)])
def test_recovery_with_wrong_equations(field, d):
    A, b, x = system(field, d, 2_000, wrong=0.02, seed=d)
    found = solved(A, b, field)
    assert found.x.tolist() == x.tolist()
    # The system that stands out contradicts itself.
    assert not found.accuracy.proved and found.accuracy.slack_rows is None
    assert found.missed is not None


def test_free_variables_are_zero_and_the_null_space_is_told():
    generator = np.random.default_rng(0)
    half = generator.integers(-5, 6, size=(600, 2))
    A = np.hstack([half, half])  # x1 + x3 and x2 + x4 only
    found = solved(A, half @ np.array([3, -4]), QQ)
    assert found.x.tolist() == [3, -4, 0, 0]
    assert found.dimension == found.null_space.dimension == 2
    assert found.null_space.contains(np.array([[1, 0, -1, 0], [0, 1, 0, -1]])).all()


def test_impossible_equations_are_told():
    A = np.zeros((500, 2), dtype=int)
    found = solved(A, np.ones(500, dtype=int), QQ)
    assert (found.found, found.consistent, found.x, found.dimension) == (True, False, None, -1)
    assert "contradict" in str(found)


def test_nothing_found():
    found = solved([[1, 0]], [1], QQ)
    assert (found.found, found.x, found.equations[0].shape) == (False, None, (0, 2))
    assert found.consistent and found.dimension == 2
    assert "nothing found" in str(found)


def test_kinds_of_numbers_may_differ_between_sides():
    A, b, x = system(QQ)
    halves = solved(A, [Fraction(int(v), 2) for v in b], QQ)
    assert halves.x.tolist() == [Fraction(int(v), 2) for v in x]
    assert solved(A, [Decimal(int(v)) for v in b], QQ).x.tolist() == x.tolist()
    assert solved(A, b / 4, QQ, grid="0.25").x.tolist() == [Fraction(int(v), 4) for v in x]
    assert solved(A.tolist(), b[:, None], QQ).x.tolist() == x.tolist()
    exact = equation_rows([[2**70, 1]], [0.5], QQ, "0.5", "test")
    assert exact.tolist() == [[2**71, 2, -1]]


def test_prints_and_plain_data():
    A, b, x = system(QQ)
    found = solved(A, b, QQ)
    assert "free dimensions" in str(found)
    data = json.loads(json.dumps(found.to_dict()))
    assert data["x"] == [str(v) for v in x.tolist()] and data["consistent"] is True
    assert len(data["equations"]["C"]) == len(data["equations"]["d"]) == 4
    assert not found.x.flags.writeable and not found.equations[0].flags.writeable
    assert not hasattr(found, "satisfied")


@pytest.mark.parametrize("b", [[1, 2], 3, "12", [[1, 2], [3, 4]], None, [1.5, 1, 1], [1, None, 2]])
def test_right_hand_sides_that_do_not_fit(b):
    with pytest.raises(SpecificationError) as caught:
        solved([[1, 2], [3, 4], [5, 6]], b, QQ)
    assert "3" not in str(caught.value)  # how many records there are may be private


def test_other_bad_input():
    A, b, _ = system(QQ)
    with pytest.raises(SpecificationError, match="grid"):
        solved(A.astype(float), b, QQ)
    with pytest.raises(SpecificationError, match="rank"):
        solved(A, b, QQ, rank=6)
    with pytest.raises(UnsupportedModelError, match="delta"):
        solved(A, b, QQ, delta=0)
    with pytest.raises(SpecificationError):
        solved([], [], QQ)
