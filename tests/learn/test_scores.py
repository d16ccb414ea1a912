"""Scores by name: how far one held-out row moves each, brute-forced, and that they order candidates as scikit-learn's
do."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import get_scorer

from dpmodel.errors import SpecificationError
from dpmodel.learn import PrivateLinearSVC, PrivateLogisticRegression, PrivateQuantileRegressor, PrivateRidge
from dpmodel.learn.scores import GRID, LEAST_CHANCE, Score, ordered_pairs, score_of

RNG = np.random.default_rng(0)
LOGISTIC = PrivateLogisticRegression(classes=("no", "yes"))
RIDGE = PrivateRidge(label_bounds=(-2, 6))
QUANTILE = PrivateQuantileRegressor(label_bounds=(-2, 6), quantile=0.8)


class Model:
    """Its margin or prediction is a public multiple of the first column."""

    def __init__(self, times: float, classes: Any = None) -> None:
        self.times, self.classes_ = times, None if classes is None else np.asarray(classes)
        self._estimator_type = "regressor" if classes is None else "classifier"

    def decision_function(self, X: Any) -> Any:
        return self.times * X[:, 0]

    def predict(self, X: Any) -> Any:
        z = self.decision_function(X)
        return z if self.classes_ is None else self.classes_[(z > 0).astype(int)]

    def predict_proba(self, X: Any) -> Any:
        one = 1 / (1 + np.exp(-self.decision_function(X)))
        return np.column_stack([1 - one, one])


def moved(score: Score, model: Model, labels: Any, features: Any, rows: int) -> int:
    """The most that replacing one of ``rows`` rows moves the score, over all tables of these labels and features."""
    kinds = list(product(features, labels))
    most = 0
    for rest in product(kinds, repeat=rows - 1):
        found = []
        for row in kinds:
            X, y = np.array([[x] for x, _ in (*rest, row)]), np.array([label for _, label in (*rest, row)])
            found.append(score.of(model, X, y))
        most = max(most, max(found) - min(found))
    return most


NAMES = [
    *((LOGISTIC, name) for name in ("accuracy", "neg_log_loss", "neg_brier_score", "recall")),
    *((LOGISTIC, name) for name in ("roc_auc", "balanced_accuracy")),
    *((RIDGE, name) for name in ("neg_mean_squared_error", "neg_root_mean_squared_error", "r2")),
    *((RIDGE, name) for name in ("neg_mean_absolute_error",)),
    (QUANTILE, "neg_mean_pinball_loss"),
]


@pytest.mark.parametrize(("final", "name"), NAMES, ids=[name for _, name in NAMES])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_one_row_moves_a_score_by_what_is_said_and_no_less_would_do(final: Any, name: str) -> None:
    score = score_of(final, name)
    classifies = final is LOGISTIC
    labels: Any = ["no", "yes"] if classifies else [-1e300, -2.0, 6.0, 7.0]  # and just beyond the bounds
    features = [-1e300, -1.0, 2.0, np.nan] if classifies else [-np.inf, -2.0, 6.5]
    rows = 4 if classifies else 3
    found = moved(score, Model(1.0, labels if classifies else None), labels, features, rows)
    assert found == score.moves(rows)


def test_a_twin_that_claims_half_for_pairs_is_found_and_one_that_clips_no_label() -> None:
    """The sensitivity of pairs if a record could only change its class; that of errors of labels as they are."""
    score, unclipped = score_of(LOGISTIC, "roc_auc"), score_of(PrivateRidge(label_bounds=(-2, 2)), "r2")
    assert moved(score, Model(1.0, ["no", "yes"]), ["no", "yes"], [-1.0, 0.0, 1.0], 4) > 4 - 1
    twin = Score(lambda model, X, y: int(np.rint(((y - model.predict(X)) ** 2 / 16 * GRID).sum())))
    assert moved(unclipped, Model(1.0), [-2.0, 6.0], [-2.0, 2.0], 2) <= GRID
    assert moved(twin, Model(1.0), [-2.0, 6.0], [-2.0, 2.0], 2) > GRID


def test_pairs_are_counted_one_by_one() -> None:
    for _ in range(50):
        scores, positive = RNG.integers(0, 4, 9).astype(float), RNG.random(9) < 0.4
        by_hand = sum(np.sign(a - b) for a in scores[positive] for b in scores[~positive])
        assert ordered_pairs(scores, positive) == by_hand
    assert ordered_pairs([np.nan, np.inf, -np.inf], np.array([True, False, False])) == -1


@pytest.mark.parametrize(("final", "name"), NAMES[:-1], ids=[name for _, name in NAMES[:-1]])
def test_candidates_are_ordered_as_by_scikit_learn(final: Any, name: str) -> None:
    """By its metrics on 60 rows, within the bounds; log losses with chances clipped as ours."""
    X, scorer = RNG.normal(size=(60, 2)), get_scorer(name)
    y: Any = X[:, 0] + RNG.normal(size=60)
    classes = ["no", "yes"] if final is LOGISTIC else None
    models = [Model(times, classes) for times in (-1.0, 0.3, 1.2, 3.0)]
    given: dict[str, Any] = {}
    seen = Model.predict
    if classes is not None:
        y = np.where(y > 0.7, "yes", "no")
        given = {"pos_label": "yes"} if name in ("recall", "neg_brier_score") else {}
        chances = {"neg_log_loss": lambda m, X: np.clip(m.predict_proba(X), LEAST_CHANCE, 1 - LEAST_CHANCE)}
        chances |= {"neg_brier_score": lambda m, X: m.predict_proba(X)[:, 1], "roc_auc": Model.decision_function}
        seen = chances.get(name, Model.predict)
    score = score_of(final if final is LOGISTIC else PrivateRidge(label_bounds=(-20, 20)), name)
    ours = np.array([score.of(model, X, y) for model in models])
    theirs = np.array([scorer._sign * scorer._score_func(y, seen(model, X), **given) for model in models])
    assert np.all(np.diff(ours[np.argsort(theirs)]) >= 0) and np.unique(ours).size > 1
    if score.mean is not None:
        np.testing.assert_allclose([score.mean(each / GRID / 60) for each in ours], theirs, atol=0.01)


def test_what_has_no_sensitivity_is_refused_with_the_reason() -> None:
    for final, name, why in (
        (LOGISTIC, "f1", "denominator"),
        (LOGISTIC, "precision_macro", "denominator"),
        (LOGISTIC, "r2", "no bound"),
        (PrivateLinearSVC(classes=(0, 1)), "neg_log_loss", "no bound"),
        (PrivateLogisticRegression(classes=(0, 1, 2)), "roc_auc", "no bound"),
        (RIDGE, "neg_median_absolute_error", "one row"),
        (RIDGE, "no-such", "no such score"),
        (RIDGE, lambda model, X, y: 0.0, "a function"),
    ):
        with pytest.raises(SpecificationError, match=why):
            score_of(final, name)
    assert {"roc_auc", "recall"} < set(_names(PrivateLogisticRegression(classes="public")))
    assert LEAST_CHANCE == 0.01


def _names(final: Any) -> list[str]:
    with pytest.raises(SpecificationError) as caught:
        score_of(final, "no-such")
    return [name.strip(" '") for name in caught.value.remedy.removeprefix("scoring=").split(",")]
