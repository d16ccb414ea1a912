"""scikit-learn's own checks of the estimators.

Instances are constructed with public bounds, because the classes refuse to fit without any; scikit-learn's checks then
clone them. They set ``random_state``, so the noise is repeatable here (and not private).
"""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from dpmodel import learn
from dpmodel.learn import (
    PrivateHuberRegressor,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateQuantileRegressor,
    PrivateRidge,
    PrivateSearchCV,
    PublicEncoder,
)

# scikit-learn copies and fits again and again.
pytestmark = pytest.mark.filterwarnings("ignore::dpmodel.errors.CompositionWarning")

REGRESSION: dict[str, Any] = {"bounds": (-10, 10), "label_bounds": (-5, 5), "epsilon": 10.0, "max_weight": "public"}
CLASSIFICATION: dict[str, Any] = {"bounds": (-10, 10), "classes": "public", "epsilon": 10.0, "max_weight": "public"}

# What is expected to fail stands in ``EXPECTED``, with the reason. Of ``PublicEncoder`` scikit-learn checks little: it
# takes frames, and its tags say so. The tests of the exact classifiers check these.
# One by default, with a mechanism named: the plans of others take most of the time.
FIRST = [PrivateRidge(**REGRESSION, mechanism="sufficient-statistics")]
OTHERS = [
    PrivateLinearSVC(**CLASSIFICATION),
    PrivateLasso(**REGRESSION),
    PrivateLinearRegression(**REGRESSION),
    PrivateQuantileRegressor(**REGRESSION),
    PrivateHuberRegressor(**REGRESSION),
    PrivateLogisticRegression(**CLASSIFICATION),
    PrivateSearchCV(FIRST[0], {"alpha": [1.0, 2.0]}, epsilon=10.0, random_state=0),
    PublicEncoder(bounds={"a": (0, 1)}),
]


def test_every_estimator_is_checked() -> None:
    checked = {type(each).__name__ for each in (*FIRST, *OTHERS)} | {"HalfspaceClassifier", "AffineSubspaceClassifier"}
    assert checked == {name for name in learn.__all__ if hasattr(getattr(learn, name), "fit")}


NOISE = "a record that weighs 2 and two records have other sensitivities, and so another noise"
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": NOISE,
    "check_sample_weight_equivalence_on_sparse_data": NOISE,
}


@pytest.mark.slow
@parametrize_with_checks(FIRST, expected_failed_checks=lambda estimator: EXPECTED)
def test_one_estimator_passes_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(OTHERS, expected_failed_checks=lambda estimator: EXPECTED)
def test_all_others_pass_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)
