"""A subspace has one canonical basis, whatever spanned it."""

from __future__ import annotations

import json
import pickle
from fractions import Fraction

import numpy as np
import pytest

from dpmodel.exact.fields import GF, QQ
from dpmodel.exact.subspaces import solve

FIELDS = [QQ, GF(2), GF(7), GF(8), GF(9), GF(2**31 - 1)]


def random_rows(field, rng, n, d):
    return field.exact_rows(rng.integers(0, min(field.order or 9, 50), (n, d)))


@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_same_for_any_order_and_any_generators(field):
    rng = np.random.default_rng(1)
    for _ in range(15):
        d = int(rng.integers(1, 6))
        rows = random_rows(field, rng, int(rng.integers(1, 7)), d)
        basis = field.echelon(rows)
        assert field.echelon(rows[rng.permutation(len(rows))]) == basis
        combined = field.matmul(field.elements(random_rows(field, rng, 4, len(rows))), field.elements(rows))
        longer = np.vstack([rows, field.exact_rows(combined)])
        assert field.echelon(longer[rng.permutation(len(longer))]) == basis
        assert hash(field.echelon(longer)) == hash(basis)


@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_reduced_row_echelon_form(field):
    rng = np.random.default_rng(2)
    for _ in range(10):
        rows = random_rows(field, rng, 5, 7)
        basis = field.echelon(rows)
        assert list(basis.pivots) == sorted(set(basis.pivots))
        identity = basis.rows[:, list(basis.pivots)]
        assert (identity == np.eye(basis.dimension, dtype=int)).all()
        for row, pivot in zip(basis.rows, basis.pivots, strict=True):
            assert (row[:pivot] == 0).all()
        assert basis.contains(rows).all()
        assert field.echelon(rows[:-1]).dimension >= basis.dimension - 1


def test_what_vanishes_modulo_the_hint_is_found():
    p = 4_194_301
    rows = np.array([[p, 0, 0], [1, 1, 0], [1, 1 + p, 0], [0, 0, p * p]])
    assert QQ.echelon(rows).dimension == 3
    assert QQ.echelon(rows[:1]).rows.tolist() == [[1, 0, 0]]


@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_contains(field):
    rng = np.random.default_rng(4)
    for _ in range(10):
        rows = random_rows(field, rng, 3, 5)
        basis = field.echelon(rows)
        others = random_rows(field, rng, 30, 5)
        others[:10] = others[:10] * 0 + rows[rng.integers(0, 3, 10)]
        wanted = [len(field.rref(np.vstack([rows, x[None]]))[1]) == basis.dimension for x in others]
        assert basis.contains(others).tolist() == wanted


def test_contains_is_exact_for_big_numbers():
    big = 10**30
    basis = QQ.echelon(QQ.exact_rows([[big, 1, 0], [0, 1, big]]))
    exact = [[big, 2, big], [big + 1, 2, big], [0, 0, 0], [10 * big, 10, 0]]
    assert basis.contains(QQ.exact_rows(exact)).tolist() == [True, False, True, True]
    assert basis.contains(QQ.exact_rows([[1, 2, 3]])).tolist() == [False]
    edge = QQ.echelon(np.array([[2**40, 2**40 + 1]]))
    assert edge.contains(np.array([[2**41, 2**41 + 2], [2**41, 2**41 + 1]])).tolist() == [True, False]


@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_null_space(field):
    rng = np.random.default_rng(5)
    for n in (0, 1, 3, 5):
        basis = field.echelon(random_rows(field, rng, n, 5))
        null = basis.null_space()
        assert null.dimension == 5 - basis.dimension
        if null.dimension and basis.dimension:
            assert (field.matmul(basis.rows, null.rows.T) == 0).all()
        assert null.null_space() == basis


@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_solve(field):
    rng = np.random.default_rng(6)
    for _ in range(10):
        C = field.elements(random_rows(field, rng, 4, 5))
        x = field.elements(random_rows(field, rng, 1, 5))[0]
        d = field.matmul(C, x[:, None])[:, 0]
        found = solve(field, C, d)
        assert (field.matmul(C, found[:, None])[:, 0] == d).all()
        free = sorted(set(range(5)) - set(field.echelon(field.integral(C)).pivots))
        assert (found[free] == 0).all()
    assert solve(field, field.elements([[1, 1], [1, 1]]), field.elements([1, 0])) is None
    assert solve(field, field.elements([[0, 0]]), field.elements([0])).tolist() == [0, 0]


def test_solutions_over_the_rationals_are_fractions():
    assert solve(QQ, QQ.elements([[2, 0], [0, 3]]), QQ.elements([1, 1])).tolist() == [Fraction(1, 2), Fraction(1, 3)]


def test_equality_text_and_plain_data():
    basis = QQ.echelon(QQ.exact_rows([[2, 1, 0], [0, 0, 5]]))
    assert basis.dimension == 2
    assert basis.ambient == 3
    assert "1/2" in str(basis)
    assert "dimension 2" in str(basis)
    assert basis.to_dict()["rows"] == [["1", "1/2", "0"], ["0", "0", "1"]]
    assert basis != QQ.echelon(QQ.exact_rows([[1, 0, 0], [0, 0, 5]]))
    assert GF(5).echelon(np.array([[1, 0]])) != GF(7).echelon(np.array([[1, 0]]))
    assert basis != "a basis"
    assert str(QQ.echelon(np.zeros((0, 2), dtype=int))) == "subspace of QQ^2 of dimension 0"
    assert "more rows" in str(QQ.echelon(np.eye(20, dtype=int)))
    for field in FIELDS:
        other = field.echelon(field.exact_rows([[1, 0, 1]]))
        assert json.loads(json.dumps(other.to_dict()))["field"] == field.name
        assert pickle.loads(pickle.dumps(other)) == other
