"""Exact rows over the rationals."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from dpmodel.errors import SpecificationError
from dpmodel.exact.fields import QQ

SECRET = 918273645


@pytest.mark.parametrize(
    "data, rows",
    [
        ([[1, 2], [3, 4]], [[1, 2], [3, 4]]),
        ([["1/3", "0.25"], [" 2 ", "-1e-1"]], [[4, 3], [20, -1]]),
        ([[Fraction(1, 2), 3], [Decimal("0.2"), Fraction(2, 3)]], [[1, 6], [3, 10]]),
        (np.array([["1/2", "1/4"]]), [[2, 1]]),
        (np.array([[True, False]]), [[1, 0]]),
        (np.array([[1, 2]], dtype=np.uint8), [[1, 2]]),
        (np.array([[2**64 - 1, 0]], dtype=np.uint64), [[2**64 - 1, 0]]),
        ([[2**63, -1]], [[2**63, -1]]),
        (np.array([[-(2**63), 1]]), [[-(2**63), 1]]),
        (sp.csr_array(np.array([[0, 5], [7, 0]])), [[0, 5], [7, 0]]),
        (pd.DataFrame({"a": [1, 2], "b": [3, 4]}), [[1, 3], [2, 4]]),
        (pd.DataFrame({"a": ["1/2"], "b": [3]}), [[1, 6]]),
        ([[np.int64(3), np.bool_(True)]], [[3, 1]]),
        (np.zeros((0, 3), dtype=int), []),
    ],
)
def test_exact_rows(data, rows):
    exact = QQ.exact_rows(data)
    assert exact.tolist() == rows
    assert exact.dtype == (np.int64 if not rows or max(abs(x) for r in rows for x in r) < 2**63 else object)


def test_numbers_of_python_flint():
    flint = pytest.importorskip("flint")
    assert QQ.exact_rows([[flint.fmpz(3), flint.fmpq(1, 2)]]).tolist() == [[6, 1]]


def test_floats_go_onto_the_grid():
    assert QQ.exact_rows([[0.29, -0.5]], grid="0.01").tolist() == [[29, -50]]
    assert QQ.exact_rows(np.array([[1.0, 2.0]], dtype=np.float32), grid=1).tolist() == [[1, 2]]
    assert QQ.exact_rows([[1.1, 2.9]], grid=Fraction(3, 2)).tolist() == [[1, 2]]
    assert QQ.exact_rows(np.array([[1e40, 1.0]]), grid=1).tolist() == [[int(1e40), 1]]
    # Exact numbers beside floats stay as they are.
    assert QQ.exact_rows([[0.26, "1/3"]], grid="1/4").tolist() == [[3, 4]]
    assert QQ.exact_rows([[1, 2]], grid="1/4").tolist() == [[1, 2]]


def test_a_column_of_ones_is_appended_before_scaling():
    assert QQ.exact_rows([[1, 2]], ones=True).tolist() == [[1, 2, 1]]
    assert QQ.exact_rows([["1/2", 2]], ones=True).tolist() == [[1, 4, 2]]
    assert QQ.exact_rows([[0.5, 0.25]], grid="1/4", ones=True).tolist() == [[2, 1, 4]]
    assert QQ.exact_rows([[3.0, 1.4]], grid="3/2", ones=True).tolist() == [[6, 3, 2]]
    assert QQ.exact_rows([[0.5, "1/3"]], grid="1/4", ones=True).tolist() == [[3, 2, 6]]
    assert QQ.exact_rows([[2**62, 0]], ones=True).tolist() == [[2**62, 0, 1]]


@pytest.mark.parametrize(
    "data",
    [
        [[1.0, SECRET]],
        np.array([[float(SECRET)]]),
        np.array([[1.0]], dtype=np.float16),
        [["1/3", 0.5]],
        [[np.float64(3)]],
        sp.csr_array(np.array([[1.0]])),
        pd.DataFrame({"a": [1.0]}),
        [[2**70, 1.0]],
    ],
)
def test_floats_without_a_grid_are_refused(data):
    with pytest.raises(SpecificationError, match="floating-point") as error:
        QQ.exact_rows(data)
    assert str(SECRET) not in str(error.value)


@pytest.mark.parametrize(
    "data",
    [
        [1, 2],
        5,
        [[1, SECRET], [2]],
        [],
        [[]],
        [[1j]],
        [["abc"]],
        [["1/0"]],
        [["nan"]],
        [[Decimal("nan")]],
        [[Decimal("inf")]],
        [[None, SECRET]],
        [[f"{SECRET}x"]],
        np.array([["2020-01-01"]], dtype="datetime64[D]"),
        [[[1]]],
    ],
)
def test_bad_data_is_refused_without_a_value(data):
    with pytest.raises(SpecificationError) as error:
        QQ.exact_rows(data, what="points")
    assert str(SECRET) not in str(error.value)
    assert "points" in str(error.value)


def test_elements_of_other_fields_are_refused():
    flint = pytest.importorskip("flint")
    for element in (flint.nmod(3, 7), flint.fq_default_ctx(2, 8).gen()):
        with pytest.raises(SpecificationError):
            QQ.exact_rows([[element]])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_missing_floats_are_refused(value):
    with pytest.raises(SpecificationError, match="NaN"):
        QQ.exact_rows([[1.0, value]], grid=1)


@pytest.mark.parametrize("grid", [0.1, 0, -1, "0", "x", None, np.float64(1)])
def test_bad_grids_are_refused(grid):
    with pytest.raises(SpecificationError):
        QQ.exact_rows([[1.0]], grid=grid)


def test_too_large_for_the_grid():
    for grid in ("1e-300", "1e-400", "1e400"):
        with pytest.raises(SpecificationError, match="grid"):
            QQ.exact_rows([[1e300]], grid=grid)
