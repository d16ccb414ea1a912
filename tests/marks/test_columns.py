"""Bounds per column: what they mean, what CVXPY is told, and that they take no memory of the matrix's size."""

from __future__ import annotations

import tracemalloc
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from dpmodel.compile.bridge import lower
from dpmodel.compile.footprint import footprint
from dpmodel.errors import SpecificationError
from dpmodel.marks import Private, Records, vault

LOW, HIGH = np.array([0.0, -2.0, 5.0]), np.array([100.0, 3.0, 6.0])


def drawn(n: int = 7, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 3)) * 40


def value_of(parameter: Private) -> np.ndarray:
    entries = vault.unseal(parameter)
    return entries.toarray() if sp.issparse(entries) else entries.reshape(parameter.shape, order="F")


@pytest.mark.parametrize("form", [list, np.asarray, lambda b: b[None, :], lambda b: np.broadcast_to(b, (7, 3))])
@pytest.mark.parametrize("unit", ["row", "entry", "column", "all"])
def test_a_vector_of_bounds_is_the_matrix_of_its_rows(form: Any, unit: Any) -> None:
    X = drawn()
    short = Private(X, unit=unit, bounds=[form(LOW), form(HIGH)])
    full = Private(X, unit=unit, bounds=[np.tile(LOW, (7, 1)), np.tile(HIGH, (7, 1))])
    np.testing.assert_array_equal(value_of(short), np.clip(X, LOW, HIGH))
    np.testing.assert_array_equal(vault.unseal(full), vault.unseal(short))
    np.testing.assert_array_equal(short.entry_caps, full.entry_caps)
    np.testing.assert_array_equal(short.entry_range, full.entry_range)
    np.testing.assert_array_equal(short.column_range, (LOW, HIGH))
    np.testing.assert_array_equal(full.column_range, (LOW, HIGH))
    assert short.sensitivity == full.sensitivity and short.ball == full.ball and short.linf == 100


def test_one_end_may_be_a_number_nothing_or_a_full_matrix() -> None:
    X = drawn()
    np.testing.assert_array_equal(value_of(Private(X, unit="row", bounds=[-1, HIGH])), np.clip(X, -1, HIGH))
    np.testing.assert_array_equal(value_of(Private(X, unit="row", bounds=[None, HIGH])), np.minimum(X, HIGH))
    np.testing.assert_array_equal(value_of(Private(X, unit="row", bounds=[LOW, None])), np.maximum(X, LOW))
    full = np.linspace(100, 200, 21).reshape(7, 3)
    np.testing.assert_array_equal(value_of(Private(X, unit="row", bounds=[LOW, full])), np.clip(X, LOW, full))
    one = Private(X, unit="row", bounds=[LOW, None], max_linf=8)
    np.testing.assert_array_equal(one.column_range, (LOW, [8, 8, 8]))


def test_a_vector_parameter_keeps_its_bounds_entry_by_entry() -> None:
    p = Private([-5.0, 50.0, 20.0], unit="entry", bounds=[LOW, HIGH])
    np.testing.assert_array_equal(vault.unseal(p), [0, 3, 6])
    np.testing.assert_array_equal(p.entry_caps, HIGH - LOW)
    np.testing.assert_array_equal(p.column_range, ([-2], [100]))


def test_columns_of_a_public_pattern() -> None:
    pattern = ([0, 0, 2], [0, 1, 1])
    p = Private(sp.coo_array(([500.0, -9.0, 9.0], pattern), shape=(3, 3)), unit="row", sparsity=pattern, linf=300,
                bounds=[[0, -2, -1], [100, 3, 1]])  # fmt: skip
    np.testing.assert_array_equal(vault.unseal(p), [100, -2, 3])
    np.testing.assert_array_equal(p.entry_caps, [100, 5, 5])


def test_absent_rows_move_a_column_by_its_size() -> None:
    people = Records("people", neighbors="add-remove")
    p = Private(shape=(7, 3), unit="row", records=people, bounds=[-HIGH, HIGH])
    np.testing.assert_array_equal(p.entry_caps.reshape((7, 3), order="F")[0], HIGH)
    assert p.vanishes and not Private(shape=(7, 3), unit="row", records=people, bounds=[LOW, HIGH]).vanishes


def test_footprints_agree_with_full_bounds() -> None:
    x = cp.Variable(3)
    sensitivities = []
    for bounds in ([LOW, HIGH], [np.tile(LOW, (7, 1)), np.tile(HIGH, (7, 1))]):
        for unit in ("row", "column", "all", "entry"):
            p = Private(shape=(7, 3), unit=unit, bounds=bounds)
            sensitivities.append(dict(footprint(lower(cp.Problem(cp.Minimize(cp.sum(x)), [p @ x <= 1])).affine).parts))
    assert sensitivities[:4] == sensitivities[4:]


REFUSED: dict[str, dict[str, Any]] = {
    "crossed": {"bounds": [HIGH, LOW]},
    "NaN": {"bounds": [[0, np.nan, 0], HIGH]},
    "one per row": {"bounds": [np.zeros(7), np.ones(7)]},
    "zero excluded with scaling": {"bounds": [LOW, HIGH], "max_l2": 1},
    "impossible": {"bounds": [[0, 0, np.inf], [1, 1, np.inf]]},
    "words": {"bounds": [["a", "b", "c"], HIGH]},
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    with pytest.raises(SpecificationError):
        Private(drawn(), unit="row", **REFUSED[case])


@pytest.mark.parametrize(
    "given", [{"max_l2": 1.0}, {"bounds": [-1, 1]}, {"bounds": [-np.ones(50), np.ones(50)]}], ids=str
)
def test_a_large_matrix_is_copied_once(given: dict[str, Any]) -> None:
    X = np.random.default_rng(0).normal(size=(40_000, 50))  # 16 MB
    tracemalloc.start()
    p = Private(X, unit="row", **given)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * X.nbytes
    assert np.isfinite(value_of(p)).all() and p.has_value


def blocks_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpmodel.marks.values._BLOCK", 5)
    monkeypatch.setattr("dpmodel.marks.values._BLOCK", 5)


@pytest.mark.parametrize("unit", ["row", "column", "entry", "all"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_blocks_change_nothing(unit: Any, order: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks_forced(monkeypatch)
    X = np.asarray(drawn(), order=order)
    p = Private(X, unit=unit, max_l1=9.0, max_l2=7.0)
    units = {"row": list(X), "column": list(X.T), "entry": list(X.reshape(-1, 1)), "all": [X.ravel()]}[unit]
    wanted = []
    for each in units:
        each = each * min(1.0, 9.0 / np.abs(each).sum())
        wanted.append(each * min(1.0, 7.0 / np.linalg.norm(each)))
    out = value_of(p)
    found = {"row": list(out), "column": list(out.T), "entry": list(out.reshape(-1, 1)), "all": [out.ravel()]}[unit]
    np.testing.assert_allclose(np.concatenate(found), np.concatenate(wanted), rtol=1e-12)


PATTERN = (np.array([0, 0, 2]), np.array([0, 1, 1]))


def stored_in_part(*entries: float) -> sp.coo_array:
    return sp.coo_array((list(entries), PATTERN), shape=(3, 3))


STORED: dict[str, dict[str, Any]] = {
    "sparsity": {"sparsity": PATTERN},
    "diag": {"diag": True},
    "hidden": {"positions": "private"},
}
ENDS: dict[str, tuple[Any, Any]] = {
    "entries above zero": (stored_in_part(2.0, 2.0, 2.0), stored_in_part(3.0, 4.0, 5.0)),
    "entries below zero": (stored_in_part(-3.0, -3.0, -3.0), stored_in_part(-2.0, -2.0, -2.0)),
    "columns": ([2.0, -7.0, 4.0], [3.0, -5.0, 9.0]),
    "around zero": (-1.0, 2.0),
}


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("stored", STORED)
def test_ranges_of_columns_hold_every_entry_of_a_matrix_that_is_stored_in_part(stored: str, ends: str) -> None:
    """Entries that are not stored are zero, whatever the bounds of the others are."""
    if "entries" in ends and stored != "sparsity":
        pytest.skip("bounds of these entries are no bounds of that pattern")
    X = np.zeros((3, 3))
    X[(np.arange(3), np.arange(3)) if stored == "diag" else PATTERN] = 99.0
    if stored == "hidden" and ends != "around zero":
        with pytest.raises(SpecificationError, match="exclude 0"):
            Private(sp.coo_array(X), unit="row", bounds=ENDS[ends], **STORED[stored])
        return
    value = X if stored == "diag" else sp.coo_array(X)
    p = Private(value, unit="entry" if stored == "diag" else "row", bounds=ENDS[ends], **STORED[stored])
    dense = np.zeros((3, 3))
    if stored == "hidden":
        dense = value_of(p)
    else:
        dense[p.layout.rows, p.layout.columns] = vault.unseal(p)
    low, high = p.column_range
    assert (low <= dense).all() and (dense <= high).all()


def test_one_convention_for_bounds() -> None:
    pd = pytest.importorskip("pandas")
    X = drawn()
    wanted = np.clip(X, LOW, HIGH)
    pairs = list(zip(LOW.tolist(), HIGH.tolist(), strict=True))
    by_index = dict(enumerate(pairs))
    by_name = dict(reversed(list(zip("abc", pairs, strict=True))))
    frame = pd.DataFrame(X, columns=list("abc"))
    for value, bounds in [
        (X, (LOW, HIGH)),
        (X, np.array([LOW, HIGH])),
        (X, by_index),
        (frame, by_name),
        (frame, by_index),
    ]:
        np.testing.assert_array_equal(value_of(Private(value, unit="row", bounds=bounds)), wanted)
    two = X[:, :2]
    np.testing.assert_array_equal(
        value_of(Private(two, unit="row", bounds=(np.array([0, 10]), np.array([5, 20])))),
        np.clip(two, [0, 10], [5, 20]),
    )
    half_open = Private(X, unit="row", linf=1, bounds={0: (0, None), 1: (None, 3), 2: (-1, 1)})
    np.testing.assert_array_equal(half_open.column_range, ([0, -np.inf, -1], [np.inf, 3, 1]))


BOTH_WAYS = [[(0, 5), (10, 20)], np.array([[0, 5], [10, 20]]), [[0, 5], [10, 20]], ((0, 5), [10, 20])]


@pytest.mark.parametrize("bounds", BOTH_WAYS, ids=str)
def test_pairs_that_could_be_read_both_ways_are_refused_with_both_readings(bounds: Any) -> None:
    with pytest.raises(SpecificationError) as caught:
        Private(drawn()[:, :2], unit="row", bounds=bounds)
    (a, b), (c, d) = bounds
    assert f"lows ({a}, {b}) and highs ({c}, {d})" in caught.value.why
    assert f"column 0 in ({a}, {b}) and column 1 in ({c}, {d})" in caught.value.why


@pytest.mark.parametrize("bounds", [[(0, 1), (0, 1)], np.array([[0, 5], [-4, 2]]), ((0, 5), [-4, 0])], ids=str)
def test_pairs_of_two_columns_that_are_no_lows_and_highs_are_pairs_of_columns(bounds: Any) -> None:
    low, high = Private(drawn()[:, :2], unit="row", bounds=bounds).column_range
    np.testing.assert_array_equal(np.column_stack([low, high]), np.asarray(bounds))


CONSTANT = [(1, 1), (LOW, LOW), ([0, 1, 0], [1, 1, 1]), {0: (0, 1), 1: (2, 2), 2: (0, 1)}]
UNKNOWN = [
    {0: (0, 1)},
    {"a": (0, 1), "b": (0, 1), "c": (0, 1)},
    {0: (0, 1), 1: (0, 1), 2: (0, 1), 3: (0, 1)},
    3.0,
    [(0, 1)] * 4,
    [(0, 1), (0, 1), (1, 0)],
]


@pytest.mark.parametrize("bounds", [*CONSTANT, *UNKNOWN], ids=str)
def test_constants_and_other_columns_are_refused(bounds: Any) -> None:
    with pytest.raises(SpecificationError):
        Private(drawn(), unit="row", bounds=bounds)
