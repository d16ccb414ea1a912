"""Declared bounds of features: what is accepted, and the public map to comparable units."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from dpmodel.errors import SpecificationError
from dpmodel.learn.features import features_of, pair_of
from dpmodel.marks import Records, vault

LOW, HIGH = np.array([0.0, -2.0, 5.0]), np.array([100.0, 3.0, 6.0])
PAIRS = np.column_stack([LOW, HIGH])
NAMES = ["age", "sensitivity", "size"]


def drawn(n: int = 40) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, 3)) * 60


def sealed(features: Any, X: Any, neighbors: Any = "replace-one") -> np.ndarray:
    parameter = features.private(X, Records("people", neighbors=neighbors))
    kept = vault.unseal(parameter)
    return kept.toarray() if sp.issparse(kept) else kept.reshape(parameter.shape, order="F")


@pytest.mark.parametrize(
    "form",
    [
        (LOW, HIGH),
        [LOW.tolist(), HIGH.tolist()],
        np.array([LOW, HIGH]),
        dict(zip(NAMES, PAIRS.tolist(), strict=True)),
        dict(enumerate(PAIRS.tolist())),
        PAIRS,
        [tuple(pair) for pair in PAIRS.tolist()],
    ],
)
def test_spellings_of_bounds(form: Any) -> None:
    features = features_of(form, None, NAMES, 3, centre=True, where="here")
    np.testing.assert_allclose(features.middle - features.half, LOW)
    np.testing.assert_allclose(features.middle + features.half, HIGH)
    one = features_of((0, 100), None, None, 3, centre=True, where="here")
    np.testing.assert_array_equal(one.middle, 50)


@pytest.mark.parametrize("centre", [True, False])
def test_coefficients_come_back_in_the_units_of_the_data(centre: bool) -> None:
    features = features_of((LOW, HIGH), None, None, 3, centre=centre, where="here")
    X, w = np.clip(drawn(), LOW, HIGH), np.array([1.0, -2.0, 3.0])
    mapped = sealed(features, X)
    assert np.abs(mapped).max() <= 1 and (centre or (mapped[:, 0] >= 0).all())
    coefficients, shift = features.back(w)
    np.testing.assert_allclose(X @ coefficients + shift, mapped @ w, atol=1e-12)
    assert centre or shift == 0


def test_values_beyond_the_bounds_are_clipped() -> None:
    features = features_of((LOW, HIGH), None, None, 3, centre=True, where="here")
    X = drawn()
    X[0] = [1e308, -1e308, 1e308]
    np.testing.assert_array_equal(sealed(features, X), sealed(features, np.clip(X, LOW, HIGH)))
    assert features.private(X, Records("people")).linf == 2


def test_sparse_rows_stay_sparse_and_are_divided_only() -> None:
    X = drawn() * (np.random.default_rng(1).random((40, 3)) < 0.3)
    pairs = [(0, 100), (-2, 3), (-6, 5)]
    features = features_of(dict(enumerate(pairs)), None, None, 3, centre=False, where="here")
    parameter = features.private(sp.csr_array(X), Records("people"))
    assert isinstance(vault.unseal(parameter), sp.csr_array) and parameter.positions == "private"
    np.testing.assert_allclose(vault.unseal(parameter).toarray(), np.clip(X, *np.transpose(pairs)) / [100, 3, 6])


def test_norms_of_rows() -> None:
    features = features_of(None, 2.0, None, 3, centre=True, where="here")
    X = drawn()
    np.testing.assert_allclose(np.linalg.norm(sealed(features, X), axis=1), 2.0)
    assert features.unit == 2.0 and features.back(np.ones(3))[1] == 0
    both = features_of((-50, 50), 2.0, None, 3, centre=True, where="here")
    parameter = both.private(X, Records("people"))
    assert parameter.l2 == 4 and np.linalg.norm(sealed(both, X), axis=1).max() <= 2 + 1e-12


def test_add_remove_blanks_a_row() -> None:
    features = features_of((LOW, HIGH), None, None, 3, centre=True, where="here")
    parameter = features.private(drawn(), Records("people", neighbors="add-remove"))
    assert parameter.linf == 1 and parameter.vanishes


REFUSED: dict[str, tuple[Any, Any, Any]] = {
    "nothing": (None, None, None),
    "crossed": (([0, 1, 0], [1, 0, 1]), None, None),
    "constant": (([0, 1, 0], [1, 1, 1]), None, None),
    "infinite": ((0, np.inf), None, None),
    "NaN": ((0, np.nan), None, None),
    "two pairs for three columns": ([(0, 1), (0, 1)], None, None),
    "crossed pairs": (PAIRS[:, ::-1].tolist(), None, None),
    "words": (("low", "high"), None, None),
    "ragged": ([(0, 1), (0,)], None, None),
    "a number": (3.0, None, None),
    "names without names": ({"age": (0, 1)}, None, None),
    "a column is missing": ({"age": (0, 1), "sensitivity": (0, 1)}, None, NAMES),
    "an unknown column": (dict.fromkeys([*NAMES, "more"], (0, 1)), None, NAMES),
    "a pair of one": ({"age": (0,), "sensitivity": (0, 1), "size": (0, 1)}, None, NAMES),
    "negative norm": (None, -1.0, None),
    "zero norm": (None, 0, None),
    "infinite norm": (None, np.inf, None),
    "truth as norm": (None, True, None),
    "words as norm": (None, "1", None),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    bounds, norm, names = REFUSED[case]
    with pytest.raises(SpecificationError) as caught:
        features_of(bounds, norm, names, 3, centre=True, where="PrivateRidge")
    assert "PrivateRidge" in caught.value.what and caught.value.remedy


@pytest.mark.parametrize("value", [None, 1.0, (1, 2, 3), (2, 1), (1, 1), (0, np.inf), "ab", [[0, 1]]])
def test_pairs_refused(value: Any) -> None:
    with pytest.raises(SpecificationError):
        pair_of(value, "label_bounds", "here")
