"""Finite fields against python-flint."""

from __future__ import annotations

import numpy as np
import pytest

from dpmodel.errors import SpecificationError
from dpmodel.exact.fields import GF

flint = pytest.importorskip("flint")


def digits(field, i):
    out = []
    for _ in range(field.degree):
        i, digit = divmod(int(i), field.characteristic)
        out.append(digit)
    return out


def as_flint(field, i):
    return flint.fq_default_ctx(field.characteristic, field.degree)(digits(field, i))


def as_integer(field, x):
    return sum(int(c) * field.characteristic**i for i, c in enumerate(x.to_list()))


@pytest.mark.parametrize("q", [2, 7, 4, 9, 125, 256, 3**8, 2**31 - 1])
def test_arithmetic(q):
    field = GF(q)
    rng = np.random.default_rng(q)
    a, b = rng.integers(0, q, 60), rng.integers(0, q, 60)
    a[:5] = 0
    b[3:9] = 0
    b[20:30] = field.subtract(np.zeros(10, dtype=np.int64), a[20:30])  # opposites
    x, y = ([as_flint(field, i) for i in values] for values in (a, b))
    for mine, theirs in ((field.add, "__add__"), (field.subtract, "__sub__"), (field.multiply, "__mul__")):
        expected = [as_integer(field, getattr(s, theirs)(t)) for s, t in zip(x, y, strict=True)]
        assert mine(a, b).tolist() == expected
    nonzero = a[a > 0]
    assert (field.multiply(nonzero, field.invert(nonzero)) == 1).all()


@pytest.mark.parametrize("q", [2, 7, 4, 9, 243, 256, 65521, 2**31 - 1])
def test_matrix_product(q):
    field = GF(q)
    rng = np.random.default_rng(q)
    for n, m, k in ((3, 70, 4), (1, 300, 2), (2, 0, 3)):
        a, b = rng.integers(0, q, (n, m)), rng.integers(0, q, (m, k))
        a[:1], b[:, :1] = q - 1, q - 1  # the largest sums
        total = np.zeros((n, k), dtype=np.int64)
        for j in range(m):
            total = field.add(total, field.multiply(a[:, j, None], b[j]))
        assert (field.matmul(a, b) == total).all()


def test_modulus_is_the_conway_polynomial():
    assert GF(4).modulus == (1, 1, 1)
    assert GF(9).modulus == (2, 2, 1)
    assert GF(256).modulus == (1, 0, 1, 1, 1, 0, 0, 0, 1)


def test_integers_are_read_modulo_p():
    rows = GF(7).exact_rows([[7, 8, -1], [2**70, 0, 10**30]])
    assert rows.dtype == np.int64
    assert rows.tolist() == [[0, 1, 6], [2**70 % 7, 0, 10**30 % 7]]
    assert GF(2**31 - 1).exact_rows(np.array([[-1, 127]], dtype=np.int8)).tolist() == [[2**31 - 2, 127]]
    assert GF(7).exact_rows(np.array([[2**64 - 1]], dtype=np.uint64)).tolist() == [[(2**64 - 1) % 7]]
    assert GF(2).exact_rows(np.array([[True, False]])).tolist() == [[1, 0]]
    assert GF(7).exact_rows([[3]], ones=True).tolist() == [[3, 1]]


def test_elements_of_python_flint():
    assert GF(7).exact_rows([[flint.nmod(3, 7), 1]]).tolist() == [[3, 1]]
    z = flint.fq_default_ctx(2, 8).gen()
    assert GF(256).exact_rows([[z, z**8]]).tolist() == [[2, 0b11101]]


@pytest.mark.parametrize(
    "q, data",
    [
        (7, [[1.0, 2.0]]),
        (7, np.array([[1.0]])),
        (7, [[1, 2.5]]),
        (7, [["1"]]),
        (7, [[flint.nmod(1, 5)]]),
        (7, [[flint.fq_default_ctx(2, 8).gen()]]),
        (256, [[256]]),
        (256, [[-1]]),
        (256, np.array([[2**40]])),
        (256, [[10**30]]),
        (256, [[flint.fq_default_ctx(2, 4).gen()]]),
        (9, [[flint.nmod(1, 3)]]),
        (7, [[1j]]),
        (7, [[None]]),
    ],
)
def test_what_is_no_element_is_refused(q, data):
    with pytest.raises(SpecificationError, match="some entry"):
        GF(q).exact_rows(data)


def test_a_grid_is_refused():
    with pytest.raises(SpecificationError, match="grid"):
        GF(7).exact_rows([[1]], grid=1)
