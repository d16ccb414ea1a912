"""Numbers and arrays of other packages: exact rationals of any kind are read, elements of another field are refused."""

from __future__ import annotations

import numbers
from types import SimpleNamespace

import numpy as np
import pytest

from dpmodel.errors import SpecificationError
from dpmodel.linalg import GF, QQ, solve_equations, span


class Third(numbers.Rational):
    """A rational of another package: known by ``numbers.Rational`` alone, as those of sympy and gmpy2 are."""

    def __init__(self, numerator: int, denominator: int) -> None:
        self._parts = numerator, denominator

    numerator = property(lambda self: self._parts[0])
    denominator = property(lambda self: self._parts[1])


for _name in numbers.Rational.__abstractmethods__ | numbers.Real.__abstractmethods__:
    if _name not in ("numerator", "denominator"):
        setattr(Third, _name, lambda self, *others: NotImplemented)
Third.__abstractmethods__ = frozenset()


def of_another_package(order: int, modulus: tuple[int, ...]) -> type:
    """An array class as galois makes them: its order and polynomial (highest power first) stand on the class."""
    declared = {"order": order, "irreducible_poly": SimpleNamespace(coeffs=modulus[::-1])}
    return type("FieldArray", (np.ndarray,), declared)


def array_in(kind: type, rows) -> np.ndarray:
    return np.asarray(rows, dtype=np.int64).view(kind)


OURS = GF(256).modulus
AES = (1, 1, 0, 1, 1, 0, 0, 0, 1)  # x^8 + x^4 + x^3 + x + 1
assert AES != OURS


def test_any_rational_is_read_exactly() -> None:
    assert QQ.exact_rows([[Third(1, 3), 1, "1/2"]]).tolist() == [[2, 6, 3]]
    assert GF(7).exact_rows([[np.int16(9), True]]).tolist() == [[2, 1]]


SHAPES = {
    "array": lambda a: a,
    "list of rows": lambda a: [a[0], a[1]],
    "list of entries": lambda a: [[a[0, :1].reshape(()), a[0, 1:].reshape(())], [1, 2]],
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "kind, field",
    [
        (of_another_package(256, AES), GF(256)),
        (of_another_package(256, OURS), GF(2)),
        (of_another_package(256, OURS), QQ),
        (of_another_package(7, (3, 1)), GF(5)),
        (of_another_package(7, (3, 1)), QQ),
    ],
    ids=["another polynomial", "another size", "rationals", "another prime", "a prime field for rationals"],
)
def test_elements_of_another_field_are_refused_wherever_they_are_given(kind, field, shape) -> None:
    given = SHAPES[shape](array_in(kind, [[1, 2], [3, 4]]))
    with pytest.raises(SpecificationError, match="not an element"):
        field.exact_rows(given)
    with pytest.raises(SpecificationError, match="not an element"):
        solve_equations(given, [1, 2], field=field, epsilon=1, delta=1e-6)
    with pytest.raises(SpecificationError, match="not an element"):
        solve_equations([[1, 2], [3, 4]], array_in(kind, [1, 2]), field=field, epsilon=1, delta=1e-6)


@pytest.mark.parametrize(
    "kind, field", [(of_another_package(256, OURS), GF(256)), (of_another_package(7, (3, 1)), GF(7))]
)
def test_elements_of_the_same_field_are_read_without_their_own_arithmetic(kind, field) -> None:
    rows = field.exact_rows(array_in(kind, [[1, 2], [3, 4]]))
    assert type(rows) is np.ndarray and rows.tolist() == [[1, 2], [3, 4]]


def test_masked_entries_are_missing() -> None:
    with pytest.raises(SpecificationError, match="missing"):
        span(np.ma.array([[1, 2], [3, 4]], mask=[[0, 1], [0, 0]]), field=QQ, epsilon=1, delta=1e-6)


@pytest.mark.slow  # galois takes seconds to import
def test_arrays_of_galois_itself() -> None:
    """The stand-ins above have the face of its classes."""
    galois = pytest.importorskip("galois")
    own, aes = galois.GF(2**8), galois.GF(2**8, irreducible_poly="x^8 + x^4 + x^3 + x + 1")
    rows = np.random.default_rng(0).integers(0, 256, (6, 3))
    assert GF(256).exact_rows(own(rows)).tolist() == rows.tolist()
    assert GF(256).echelon(GF(256).exact_rows(own(rows))).dimension == np.linalg.matrix_rank(own(rows))
    with pytest.raises(SpecificationError, match="other elements"):
        GF(256).exact_rows(aes(rows))
