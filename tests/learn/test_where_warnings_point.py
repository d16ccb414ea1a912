"""Warnings of estimators name the user's line, whoever calls ``fit`` in between; and bars can be switched off."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dpmodel.learn import PrivateRidge
from dpmodel.learn.costs import CompositionWarning


def test_a_pipeline_that_learns_is_warned_of_where_it_is_fitted() -> None:
    X, y = np.ones((40, 2)), np.zeros(40)
    ridge = PrivateRidge(bounds=(-1, 1), label_bounds=(-1, 1), mechanism="sufficient-statistics", random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make_pipeline(StandardScaler(), ridge).fit(X, y)
    (found,) = [each for each in caught if each.category is CompositionWarning]
    assert found.filename == __file__


def test_progress_is_a_parameter_of_every_estimator() -> None:
    from dpmodel.learn import PrivateSearchCV

    assert PrivateRidge(progress=False).get_params()["progress"] is False
    assert PrivateSearchCV(PrivateRidge(), {"alpha": [1.0]}).get_params(deep=False)["progress"] is None
