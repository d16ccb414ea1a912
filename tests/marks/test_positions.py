"""``positions="private"``: a sparse value whose pattern is protected too, and that stays sparse."""

from __future__ import annotations

import copy
import pickle
import tracemalloc
import warnings
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from walking import assert_no_trace

from dpmodel.errors import SpecificationError
from dpmodel.marks import Private, vault
from dpmodel.marks.layout import Layout

LOW, HIGH = np.array([-1.0, 0.0, -30.0, 0.0]), np.array([1.0, 25.0, 0.0, 1e-3])


def drawn(n: int = 30, p: int = 4, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, p)) * 40 * (rng.random((n, p)) < 0.4)


def hidden(value: Any, **given: Any) -> Private:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return Private(value, positions="private", **{"unit": "row", "max_l2": 1, **given})


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array, sp.coo_array, sp.csr_matrix, sp.lil_array, np.asarray])
@pytest.mark.parametrize(
    "given",
    [
        {"bounds": [-5, 20], "max_l2": None},
        {"bounds": [LOW, HIGH], "max_l2": None},
        {"bounds": [np.tile(LOW, (30, 1)), np.tile(HIGH, (30, 1))], "max_l2": None},
        {"max_l2": 3},
        {"max_l1": 4, "max_l2": 3, "unit": "column"},
        {"max_l2": 3, "unit": "all"},
        {"max_l1": 3, "unit": "entry"},
        {"max_l2": None},
    ],
    ids=str,
)
def test_clipped_and_scaled_like_a_dense_value(form: Any, given: dict[str, Any]) -> None:
    X = drawn()
    p = hidden(form(X), **given)
    dense = Private(X, **{"unit": "row", "max_l2": 1, **given})
    kept = vault.unseal(p)
    assert isinstance(kept, sp.csr_array) and kept.has_canonical_format and kept.shape == (30, 4)
    assert np.count_nonzero(kept.data) == kept.nnz
    np.testing.assert_allclose(kept.toarray(), vault.unseal(dense).reshape((30, 4), order="F"), rtol=1e-12)
    assert p.sparse_idx is None and not p.attributes["sparsity"] and p.positions == "private"
    assert p.sensitivity == dense.sensitivity and dense.positions == "public"


def test_duplicates_are_added_up_and_the_source_is_left_alone() -> None:
    source = sp.coo_array(([1.0, 2.0, 5.0], ([0, 0, 1], [0, 0, 1])), shape=(2, 2))
    p = hidden(source, max_l2=None, bounds=[-4, 4])
    np.testing.assert_array_equal(vault.unseal(p).toarray(), [[3, 0], [0, 4]])
    assert source.nnz == 3
    rows = sp.csr_array(np.diag([7.0, 8.0]))
    p = hidden(rows)
    rows.data[:] = 99.0
    np.testing.assert_array_equal(vault.unseal(p).toarray(), np.eye(2))
    with pytest.raises(ValueError, match="read-only"):
        vault.unseal(p).data[0] = 5.0


def test_one_record_never_moves_another_by_a_bit() -> None:
    X = drawn(50)
    before = vault.unseal(hidden(sp.csr_array(X), max_l1=2)).toarray()
    X[7] = [1e6, 0, 1e-6, 3]
    after = vault.unseal(hidden(sp.csr_array(X), max_l1=2)).toarray()
    assert (np.delete(before, 7, axis=0) == np.delete(after, 7, axis=0)).all()


def test_no_trace_of_values_or_copies() -> None:
    secret = np.array([7321.4375, 8642.8125, 9753.15625])
    p = hidden(sp.csr_array(np.diag(secret)), max_l2=1e4)
    x = cp.Variable(3)
    problem = cp.Problem(cp.Minimize(cp.sum(x)), [p @ x >= 1])
    assert p.value is None and p.has_value
    assert_no_trace([p, problem, repr(p)], [secret])
    data = pickle.dumps(p)
    assert not any(number.tobytes() in data for number in secret)
    assert pickle.loads(data).positions == "private" and not pickle.loads(data).has_value
    twin = copy.deepcopy(p)
    np.testing.assert_array_equal(vault.unseal(twin).toarray(), np.diag(secret))


REFUSED: dict[str, dict[str, Any]] = {
    "bounds without zero": {"bounds": [1, 5], "max_l2": None},
    "one column without zero": {"bounds": [[1, -1, -1, -1], np.ones(4) * 3], "max_l2": None},
    "another word": {"positions": "hidden"},
    "no word": {"positions": np.zeros(3)},
    "a declared pattern": {"sparsity": ([0], [0])},
    "diagonal": {"diag": True, "shape": (4, 4)},
    "NaN": {"value": sp.csr_array([[1.0, np.nan]])},
    "complex": {"value": sp.csr_array([[1.0, 1j]])},
    "wrong shape": {"shape": (3, 4)},
    "a vector": {"value": np.ones(3)},
    "sign": {"nonneg": True},
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    given = {
        "value": sp.csr_array(drawn()),
        "unit": "row",
        "max_l2": 1,
        "positions": "private",
        "name": "rows",
        **REFUSED[case],
    }
    if case == "diagonal":
        given["value"] = None
    with pytest.raises(SpecificationError) as caught:
        Private(**given)
    assert "40" not in str(caught.value).split("Try")[0]


def test_nothing_of_the_full_size_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(self: Layout) -> None:
        raise AssertionError("an array of the full size was asked for")

    for name in ("rows", "columns", "units"):
        monkeypatch.setattr(Layout, name, property(never))
    rng = np.random.default_rng(0)
    place = rng.integers(0, 200_000, 20_000), rng.integers(0, 5_000, 20_000)
    X = sp.csr_array((rng.random(20_000), place), shape=(200_000, 5_000))  # 8 GB if dense
    tracemalloc.start()
    p = hidden(X, bounds=[-1, np.linspace(0, 1, 5_000)])
    p.value = X * 2
    assert p.l2 == 2 and p.layout.unit_size == 5_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60e6
