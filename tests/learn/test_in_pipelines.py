"""Estimators in pipelines: warnings name the user's line, coefficients the encoder's columns."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import dpmodel as dpm
from dpmodel.errors import CompositionWarning
from dpmodel.learn import PrivateRidge, PublicEncoder


def test_a_pipeline_that_learns_is_warned_of_where_it_is_fitted() -> None:
    X, y = np.ones((40, 2)), np.zeros(40)
    ridge = PrivateRidge(
        epsilon=1, bounds=(-1, 1), label_bounds=(-1, 1), mechanism="sufficient-statistics", random_state=0
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make_pipeline(StandardScaler(), ridge).fit(X, y)
    (found,) = [each for each in caught if each.category is CompositionWarning]
    assert found.filename == __file__
    assert {each.filename for each in caught if issubclass(each.category, dpm.errors.NotPrivateWarning)} == {__file__}


def test_coefficients_in_a_pipeline_have_the_names_of_its_encoder() -> None:
    frame = pd.DataFrame({"age": [20.0, 60.0] * 20, "town": ["Ulm", "Bonn"] * 20})
    encoder = PublicEncoder(bounds={"age": (0, 80)}, domain={"town": ["Bonn", "Ulm"]})
    ridge = PrivateRidge(
        epsilon=1, bounds=(-1, 1), label_bounds=(-1, 1), mechanism="sufficient-statistics", random_state=0
    )
    fitted = make_pipeline(encoder, ridge).fit(frame, np.zeros(40))
    assert fitted[-1].release_.labels["coef"][0] == ("feature", ("age", "town=Bonn", "town=Ulm"))
    assert fitted.predict(frame).shape == (40,)
    with pytest.warns(CompositionWarning):  # categories that a step found are no names
        learnt = make_pipeline(OneHotEncoder(sparse_output=False), ridge).fit(frame[["town"]], np.zeros(40))
    assert learnt[-1].release_.labels["coef"][0] == ("feature", ())


def test_progress_is_a_parameter_of_every_estimator() -> None:
    from dpmodel.learn import PrivateSearchCV

    assert PrivateRidge(progress=False).get_params()["progress"] is False
    assert PrivateSearchCV(PrivateRidge(), {"alpha": [1.0]}).get_params(deep=False)["progress"] is None
