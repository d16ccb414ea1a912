"""People with several rows: one row of each is left, whatever the others of a person hold and wherever they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from dpmodel.errors import SpecificationError
from dpmodel.learn import PrivateLogisticRegression, PrivateRidge, PrivateSearchCV, PublicEncoder
from dpmodel.learn.features import one_row_each

RNG = np.random.default_rng(0)
IDS = np.repeat([7, 3, 9, 4, 2**60 + 1, 2**60], [1, 3, 2, 1, 2, 1])
X, Y = RNG.uniform(-1, 1, size=(IDS.size, 2)), RNG.uniform(-1, 1, size=IDS.size)
RIDGE: dict[str, Any] = {"epsilon": 1.0, "bounds": (-1, 1), "label_bounds": (-1, 1), "random_state": 0}


def test_the_first_row_of_each_is_left_in_the_order_of_ids() -> None:
    rows, labels = one_row_each("here", IDS, X, Y)
    first = [1, 6, 0, 4, 9, 7]  # of 3, 4, 7, 9, 2^60, 2^60 + 1, which no float tells apart
    first = [int(np.flatnonzero(each == IDS)[0]) for each in sorted(set(IDS.tolist()))]
    np.testing.assert_array_equal(rows, X[first])
    np.testing.assert_array_equal(labels, Y[first])
    texts = [f"person {i:20d}" for i in IDS]
    for form, ids in ((pd.DataFrame(X), pd.Series(texts)), (pl.DataFrame(X), pl.Series(texts)), (X.tolist(), texts)):
        np.testing.assert_array_equal(np.asarray(one_row_each("here", ids, form)[0]), X[first])
    np.testing.assert_array_equal(one_row_each("here", IDS.tolist(), sp.csr_array(X))[0].toarray(), X[first])
    assert one_row_each("here", None, X)[0] is X


def changed_rows(kept: Any) -> int:
    """The most rows that change when all rows of one person are replaced by others, in number and place too."""
    most = 0
    for person in (3, 9, 7):
        others = person != IDS
        for count in (1, 2, 5):
            ids = np.concatenate([IDS[others], np.full(count, person)])
            rows = np.concatenate([X[others], RNG.uniform(-1, 1, (count, 2))])
            order = RNG.permutation(ids.size)
            order = order[np.argsort(np.where(ids[order] == person, 0.5, order), kind="stable")]
            order = np.concatenate([order[ids[order] == person], np.flatnonzero(ids != person)])
            before, after = (
                {tuple(row) for row in np.asarray(kept(i, r))} for i, r in ((IDS, X), (ids[order], rows[order]))
            )
            most = max(most, len(before - after), len(after - before))
    return most


def test_one_person_owns_one_row_and_twins_in_which_another_count_are_found() -> None:
    assert changed_rows(lambda ids, rows: one_row_each("here", ids, rows)[0]) == 1
    assert changed_rows(lambda ids, rows: rows) > 1
    two = lambda ids, rows: np.concatenate([rows[np.flatnonzero(ids == i)[:2]] for i in np.unique(ids)])  # noqa: E731
    assert changed_rows(two) > 1


def test_a_place_belongs_to_an_id_so_that_nobody_else_changes_sides_in_a_search() -> None:
    rows = one_row_each("here", IDS, X)[0]
    swapped = np.concatenate([np.flatnonzero(IDS == 9), np.flatnonzero(IDS != 9)])  # person 9 comes first now
    other = one_row_each("here", IDS[swapped], np.where(IDS[swapped][:, None] == 9, 0.0, X[swapped]))[0]
    assert (rows != other).any(axis=1).sum() == 1


@pytest.mark.parametrize(
    "groups", [IDS.astype(float), IDS[:-1], [1, "1", *range(8)], [None, *range(9)], pd.Series([np.nan, *range(9)])]
)
def test_ids_that_may_have_been_rounded_are_mixed_or_missing_are_refused(groups: Any) -> None:
    with pytest.raises(SpecificationError, match="groups"):
        PrivateRidge(**RIDGE).fit(X, Y, groups=groups)


@pytest.mark.filterwarnings("ignore::dpmodel.errors.CompositionWarning")
def test_fits_of_people_in_pipelines_and_searches() -> None:
    ids = np.repeat(np.arange(200), RNG.integers(1, 4, 200))
    frame = pd.DataFrame({"a": RNG.uniform(-1, 1, ids.size)})
    labels = frame["a"] / 2
    encoder = PublicEncoder(bounds={"a": (-1, 1)})
    ridge = PrivateRidge(epsilon=1.0, label_bounds=(-1, 1), random_state=0, mechanism="sufficient-statistics")
    found = make_pipeline(encoder, clone(ridge)).fit(frame, labels, privateridge__groups=ids)[-1]
    first = np.unique(ids, return_index=True)[1]
    alone = make_pipeline(encoder, clone(ridge)).fit(frame.iloc[first], labels.iloc[first])[-1]
    np.testing.assert_array_equal(found.coef_, alone.coef_)
    assert any("a record is a person" in note for note in found.release_.notes)
    assert not any("a record is a person" in note for note in alone.release_.notes)
    search = PrivateSearchCV(make_pipeline(encoder, ridge), {"privateridge__alpha": [1, 2]}, epsilon=1, random_state=0)
    assert search.fit(frame, labels, groups=ids).predict(frame).shape == (ids.size,)
    assert any("a record is a person" in note for note in search.release_.notes)
    with sklearn.config_context(enable_metadata_routing=True):
        asked = clone(ridge).set_fit_request(groups=True)
        routed = make_pipeline(encoder, asked).fit(frame, labels, groups=ids)[-1]
    np.testing.assert_array_equal(routed.coef_, found.coef_)
    towns = np.where(labels > 0, "Ulm", "Bonn").tolist()
    logistic = PrivateLogisticRegression(epsilon=1.0, bounds=(-1, 1), classes=("Bonn", "Ulm"), random_state=0)
    assert logistic.fit(frame, towns, groups=ids.astype(str)).coef_.shape == (1, 1)
    for model in (found, logistic):
        assert "of each one's rows the first was used." in " ".join(str(model.summary()).split())
