"""What a candidate of ``PrivateSearchCV`` is scored by: an integer that one held-out row moves by a public number.

All candidates are scored on the same held-out rows, so a score may be anything that orders them as scikit-learn's score
of the name does: what all of them share (the variance of the labels in r2, the number of records of each class in an
area under the curve) is left out. Integers are exact: no rounding is left to allow for.

Means over rows (accuracy, recall, neg_log_loss, neg_brier_score, errors, r2)
    Each row gives an integer in {0, ..., GRID} by itself. One row that is replaced moves the sum by at most GRID.
    r2 is 1 - (sum of squared errors) / (that of the labels), and the second sum is that of the labels alone. The recall
    is (positive ones that are found) / (positive ones).
Pairs of rows (roc_auc, balanced_accuracy), two classes
    S = sum over i positive, j negative of sign(s_i - s_j). The area is (1 + S / (a b)) / 2 for a positive and b
    negative rows, and a b belongs to the labels. Balanced accuracy is the area of predictions that are 0 or 1.
    Claim. Among h rows, one that is replaced moves S by at most 2 (h - 1), for predictions of 0 or 1 by at most h - 1,
    and no less will do.
    Proof. Let the other h - 1 rows have a' positive and b' negative ones. A positive row adds b' signs, a negative one
    a', and a' + b' = h - 1. Of another class than before, it moves S by at most a' + b'. Of the same one each sign
    moves by at most 2, and beside a prediction of 0 or 1 by at most 1: by at most 2 b' or 2 a', or half of it. All
    others negative, and a positive row that falls from above all of them to below: 2 (h - 1).

What has no such number is refused: precision, f1 and average precision divide by how many the candidate calls positive,
a median and a maximum may rest on one row.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import get_scorer_names

from dpmodel._types import Integers
from dpmodel.errors import SpecificationError
from dpmodel.learn.classifier import PrivateClassifier, flat, places_of
from dpmodel.learn.linear_model import PrivateQuantileRegressor, PrivateRegressor

GRID = 1 << 20  # of a row's score
LEAST_CHANCE = 0.01  # a smaller one counts as this in neg_log_loss, so that no row costs more than ln 100


@dataclass(frozen=True)
class Score:
    """``of(model, X, y)`` : the integer. ``moves(h)`` : how far one of h rows moves it. ``mean(s)`` : the score in the
    unit of its name, of a mean over the rows of s in [0, 1]; None where that takes private numbers of the labels."""

    of: Callable[[Any, Any, Any], int]
    moves: Callable[[int], int] = lambda rows: GRID
    mean: Callable[[float], float] | None = None


def sum_of_scores(scores: Any) -> int:
    """Of numbers in [0, 1], one for each held-out row, each rounded to the grid by itself; no number counts nothing."""
    inside = np.clip(np.nan_to_num(np.asarray(scores, dtype=np.float64), nan=0.0), 0.0, 1.0)
    integers: Integers = np.rint(inside * GRID).astype(np.int64)
    return int(integers.sum())


def ordered_pairs(scores: Any, positive: Any) -> int:
    """S of the module's text: pairs of a positive and a negative row in the right order, less those in the wrong one.

    What is no number counts as the least.
    """
    scores = np.nan_to_num(np.asarray(scores, dtype=np.float64), nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    above, below = scores[positive], np.sort(scores[~positive])
    under = np.searchsorted(below, above, side="left") + np.searchsorted(below, above, side="right")
    return int(under.sum()) - int(above.size) * int(below.size)


def score_of(final: Any, scoring: Any) -> Score:
    """The score of this name for candidates like ``final``; None: accuracy, or what the regression minimises.

    Raises
    ------
    SpecificationError
        For names without a score whose sensitivity is known, and for functions.
    """
    classifies = isinstance(final, PrivateClassifier)
    if scoring is None:
        scoring = "accuracy" if classifies else _LOSS.get(type(final), "neg_mean_squared_error")
    found = _classifiers(final) if classifies else _regressors(final)
    if not isinstance(scoring, str) or scoring not in found:
        raise _refused(scoring, sorted(found))
    return found[scoring]


_LOSS = {PrivateQuantileRegressor: "neg_mean_pinball_loss"}
_QUOTIENT = "its denominator differs from candidate to candidate, and of few records one row may move it from 0 to 1"
_ONE_ROW = "it may rest on one row"
_REASONS = {
    **dict.fromkeys(("precision", "f1", "average_precision", "jaccard"), _QUOTIENT),
    **dict.fromkeys(("max_error", "neg_max_error", "neg_median_absolute_error"), _ONE_ROW),
    "matthews_corrcoef": _QUOTIENT,
    "neg_mean_absolute_percentage_error": "a row whose label is nearly 0 moves it arbitrarily far",
}


def _refused(scoring: Any, names: list[str]) -> SpecificationError:
    remedy = "scoring=" + ", ".join(map(repr, names))
    if callable(scoring) or not isinstance(scoring, str):
        why = "how far one row moves what a function computes is not known; and candidates are chosen by one score"
        return SpecificationError("PrivateSearchCV: scoring is no name of a score", why=why, remedy=remedy)
    reason = next((why for name, why in _REASONS.items() if scoring == name or scoring.startswith(f"{name}_")), None)
    if reason is None and scoring in get_scorer_names():
        reason = "how far one held-out row moves it has no bound here for this estimator"
    return SpecificationError(f"PrivateSearchCV: scoring={scoring!r}", why=reason or "no such score", remedy=remedy)


def _by_row(each: Callable[[Any, Any, Any], Any], mean: Callable[[float], float] | None = None) -> Score:
    return Score(lambda model, X, y: sum_of_scores(each(model, X, y)), mean=mean)


# ------------------------------------------------------------------ classifiers
def _places(model: Any, y: Any) -> Integers:
    return places_of(flat(y), model.classes_)


def _predicted(model: Any, X: Any) -> Integers:
    return places_of(model.predict(X), model.classes_)


def _recalled(model: Any, X: Any, y: Any) -> Any:
    return (_places(model, y) == 1) & (_predicted(model, X) == 1)


def _log_loss(model: Any, X: Any, y: Any) -> Any:
    """1 - ln(chance of the label) / ln(least chance)."""
    chance = np.take_along_axis(model.predict_proba(X), _places(model, y)[:, None], axis=1)[:, 0]
    return 1 - np.log(np.clip(np.nan_to_num(chance), LEAST_CHANCE, 1.0)) / np.log(LEAST_CHANCE)


def _brier(model: Any, X: Any, y: Any) -> Any:
    """1 - half the squared distance between the chances and the label."""
    chances = model.predict_proba(X)
    return 1 - ((chances - (_places(model, y)[:, None] == np.arange(chances.shape[1]))) ** 2).sum(axis=1) / 2


def _pairs(scored: Callable[[Any, Any], Any], each: int) -> Score:
    """``each`` : how far a row moves its sign with another one."""
    return Score(
        lambda model, X, y: ordered_pairs(scored(model, X), _places(model, y) == 1),
        moves=lambda rows: max(each * (rows - 1), 1),
    )


def _classifiers(final: Any) -> dict[str, Score]:
    found = {"accuracy": _by_row(lambda model, X, y: _predicted(model, X) == _places(model, y), mean=lambda s: s)}
    listed = () if isinstance(final.classes, str) or final.classes is None else final.classes
    with contextlib.suppress(TypeError):  # refused by the fit
        if len(listed) <= 2:
            found["roc_auc"] = _pairs(lambda model, X: model.decision_function(X), 2)
            found["balanced_accuracy"] = _pairs(_predicted, 1)
            found["recall"] = _by_row(_recalled)
    if hasattr(final, "predict_proba"):
        found["neg_log_loss"] = _by_row(_log_loss, mean=lambda s: (1 - s) * float(np.log(LEAST_CHANCE)))
        found["neg_brier_score"] = _by_row(_brier, mean=lambda s: s - 1)
    return found


# ------------------------------------------------------------------ regressions
def _regressors(final: PrivateRegressor) -> dict[str, Score]:
    """Labels and predictions are clipped to ``label_bounds``, errors divided by the largest that they can be."""
    low, high = final._label_range()
    width = high - low

    def by(loss: Callable[[Any], Any]) -> Callable[[Any, Any, Any], Any]:
        def near(model: Any, X: Any, y: Any) -> Any:
            r = np.clip(np.asarray(y, dtype=np.float64).reshape(-1), low, high) - np.clip(model.predict(X), low, high)
            return 1 - loss(r / width)

        return near

    def least(power: float, unit: float) -> Callable[[float], float]:
        return lambda s: -(max(1 - s, 0.0) ** power) * unit

    squared, absolute = by(np.square), by(np.abs)
    found = {
        "neg_mean_squared_error": _by_row(squared, least(1, width**2)),
        "neg_root_mean_squared_error": _by_row(squared, least(0.5, width)),
        "neg_mean_absolute_error": _by_row(absolute, least(1, width)),
        "r2": _by_row(squared),
    }
    if isinstance(final, PrivateQuantileRegressor):
        up, down = final.quantile, 1 - final.quantile
        most = max(up, down)
        pinball = by(lambda r: np.maximum(up * r, -down * r) / most)
        found["neg_mean_pinball_loss"] = _by_row(pinball, least(1, width * most))
    return found
