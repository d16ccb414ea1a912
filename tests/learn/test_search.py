"""PrivateSearchCV: one budget for a whole search, refusals before it is charged, and what leaves."""

from __future__ import annotations

import pickle
import traceback
import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import make_scorer, r2_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer, OneHotEncoder, StandardScaler
from walking import assert_no_trace

import dpmodel as dpm
from dpmodel.errors import BudgetExceededError, CompositionWarning, DPModelError, SpecificationError
from dpmodel.learn import (
    AffineSubspaceClassifier,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSearchCV,
    PublicEncoder,
)
from dpmodel.learn import scores as scoring
from dpmodel.learn import search as searching
from dpmodel.learn.scores import GRID as GRID_OF_SCORES
from dpmodel.learn.scores import sum_of_scores
from dpmodel.solve.wall import _public_only

N = 3000
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(N, 3))
Y = X @ [1.0, -2.0, 0.5] + 0.1 * RNG.normal(size=N)


def ridge() -> PrivateRidge:
    """A new one: copies of one estimator count their fits together."""
    return PrivateRidge(bounds=(-1, 1), label_bounds=(-4, 4), mechanism="sufficient-statistics")


# A penalty that leaves nothing of the coefficients, and one that leaves everything.
GRID = {"alpha": [1e7, 1.0]}
SECRET = 7321.4375


def search(**given: Any) -> PrivateSearchCV:
    return PrivateSearchCV(ridge(), GRID, **{"epsilon": 4.0, "random_state": 0} | given)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["every", "random-stopping"])
@pytest.mark.parametrize("refit", [True, False])
def test_the_better_candidate_is_found_within_one_charge(strategy: str, refit: bool) -> None:
    budget = dpm.Budget(5.0)
    found = search(strategy=strategy, refit=refit, budget=budget).fit(X, Y)
    assert found.best_params_ == {"alpha": 1.0} and found.best_index_ == 1 and found.score(X, Y) > 0.9
    (charge,) = budget.history
    assert (charge.epsilon, charge.delta, charge.label) == (4.0, 0.0, "learn.PrivateSearchCV")
    best = found.best_estimator_
    for guarantee in (found.guarantee_, found.release_.guarantee, best.guarantee_, best.release_.guarantee):
        assert guarantee.epsilon == 4.0 and "2 candidates" in guarantee.record and "NOT PRIVATE" in guarantee.record
    assert found.release_.spent == (4.0, 0.0)
    assert found.cv_results_["selected"].tolist() == [False, True]
    # Only what is paid for.
    assert ("estimator" in found.cv_results_) == (strategy == "every") != hasattr(found, "best_score_")
    if strategy == "random-stopping":
        assert -6 < found.best_score_ <= 0  # of errors of up to 64
    assert_no_trace([vars(found)], [X[:5], Y[:5]])
    assert pickle.loads(pickle.dumps(clone(found).set_params(budget=None).fit(X, Y))).predict(X).shape == (N,)


def test_a_fit_of_what_was_found_is_a_charge_of_its_own() -> None:
    budget = dpm.Budget(4.5)
    found = search(strategy="every", budget=budget).fit(X, Y)
    for each in (found.best_estimator_, *found.cv_results_["estimator"]):
        assert each.budget is budget
        with pytest.raises(BudgetExceededError):
            clone(each).set_params(epsilon=1.0).fit(X, Y)
    with pytest.raises(BudgetExceededError):
        found.fit(X, Y)
    assert budget.spent.epsilon == 4.0


@pytest.mark.parametrize("strategy", ["every", "random-stopping"])
@pytest.mark.parametrize("refused", [{"alpha": [-1.0]}, {"mechanism": ["no-such"]}, {"mechanism": ["gaussian-once"]}])
def test_a_refusal_of_a_later_candidate_comes_before_the_charge(strategy: str, refused: Any, unread: None) -> None:
    budget = dpm.Budget(4.0)
    found = PrivateSearchCV(ridge(), [GRID, refused], epsilon=4.0, strategy=strategy, budget=budget)
    with pytest.raises(DPModelError):
        found.fit(X, Y)
    assert budget.spent.epsilon == 0 and budget.history == ()


@pytest.mark.slow
def test_without_a_budget_what_it_cost_is_counted() -> None:
    found = search()
    with warnings.catch_warnings():
        warnings.simplefilter("error", CompositionWarning)  # the fits of one search are not said
        found.fit(X, Y)
    with pytest.warns(CompositionWarning, match="epsilon = 6 together"):
        found.best_estimator_.fit(X, Y)
    outer = GridSearchCV(PrivateSearchCV(ridge(), GRID, epsilon=1), {"held_out": [0.2, 0.3]}, cv=2)
    with pytest.warns(CompositionWarning, match="epsilon = 5 together"):
        outer.fit(X, Y)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dpmodel.errors.CompositionWarning")
def test_pipelines_and_frames() -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(town=np.where(Y > 0, "Ulm", "Bonn"))
    encoder = PublicEncoder(bounds=dict.fromkeys("abc", (-1, 1)), domain={"town": ["Bonn", "Ulm"]})
    pipe = make_pipeline(encoder.set_output(transform="pandas"), ridge())
    given = {"param_grid": {"privateridge__alpha": [1e7, 1.0]}, "epsilon": 4.0, "random_state": 0}
    plain = PrivateSearchCV(pipe, **given).fit(frame, frame["a"])
    for form, y in (
        (pl.from_pandas(frame), pl.Series(frame["a"])),
        (pa.Table.from_pandas(frame), pa.chunked_array([frame["a"]])),
        (frame.set_axis([1] * N), list(frame["a"])),
    ):
        found = PrivateSearchCV(pipe, **given).fit(form, y)
        np.testing.assert_array_equal(found.best_estimator_[-1].coef_, plain.best_estimator_[-1].coef_)
        assert found.predict(form).shape == (N,)
    assert plain.release_.labels["coef"] == (("feature", ("a", "b", "c", "town=Bonn", "town=Ulm")),)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateLinearSVC])
def test_classifiers(kind: Any) -> None:
    labels = np.where(Y > 0, "high", "low").tolist()
    base = kind(bounds=(-1, 1), classes="public", mechanism="noisy-descent")
    found = PrivateSearchCV(base, {"C": [1e-6, 1.0]}, epsilon=4.0, delta=1e-6, random_state=0).fit(X, labels)
    assert found.best_params_ == {"C": 1.0} and found.score(X, labels) > 0.9
    assert found.classes_.tolist() == ["high", "low"] and found.decision_function(X).shape == (N,)
    assert hasattr(found, "predict_proba") == (kind is PrivateLogisticRegression)
    assert is_classifier(found) and is_regressor(search())


WRONG: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "a scaler": ({"estimator": make_pipeline(StandardScaler(), ridge()), "param_grid": {}}, X, Y),
    "a scaler inside": (
        {
            "estimator": Pipeline([("a", Normalizer()), ("b", make_pipeline(StandardScaler(), ridge()))]),
            "param_grid": {},
        },
        X,
        Y,
    ),
    "a scaler in the grid": (
        {
            "estimator": Pipeline([("a", Normalizer()), ("b", ridge())]),
            "param_grid": {"a": [Normalizer(), StandardScaler()]},
        },
        X,
        Y,
    ),
    "no private estimator": ({"estimator": StandardScaler(), "param_grid": {}}, X, Y),
    "exact subspaces": ({"estimator": AffineSubspaceClassifier(), "param_grid": {}}, X, Y),
    "epsilon in the grid": ({"param_grid": {"epsilon": [1, 100]}}, X, Y),
    "labels in the grid": ({"param_grid": {"label_bounds": [(0, 1)]}}, X, Y),
    "neighbors in the grid": ({"param_grid": {"neighbors": ["add-remove"]}}, X, Y),
    "another relation": ({"estimator": ridge().set_params(neighbors="add-remove")}, X, Y),
    "an empty grid": ({"param_grid": []}, X, Y),
    "an empty list": ({"param_grid": {"alpha": []}}, X, Y),
    "a negative candidate": ({"param_grid": {"alpha": [-1.0]}}, X, Y),
    "no epsilon": ({"epsilon": 0}, X, Y),
    "all held out": ({"held_out": 1.0}, X, Y),
    "one row": ({"held_out": 0.9}, X[:1], Y[:1]),
    "no refit": ({"refit_share": 1.0}, X, Y),
    "an unknown strategy": ({"strategy": "halving"}, X, Y),
    "no runs": ({"runs": 0, "strategy": "random-stopping"}, X, Y),
    "stopping with delta": ({"delta": 1e-6, "strategy": "random-stopping"}, X, Y),
    "an unknown score": ({"scoring": "explained_variance"}, X, Y),
    "a score of classifiers": ({"scoring": "accuracy"}, X, Y),
    "a function as score": ({"scoring": make_scorer(r2_score)}, X, Y),
    "two scores": ({"scoring": ["r2", "neg_mean_squared_error"]}, X, Y),
    "a quantile's score": ({"scoring": "neg_mean_pinball_loss"}, X, Y),
    "no label bounds": ({"estimator": PrivateRidge(bounds=(-1, 1))}, X, Y),
    "no bounds": ({"estimator": PrivateRidge(label_bounds=(-1, 1))}, X, Y),
    "NaN": ({}, np.where(np.arange(N)[:, None] == 3, np.nan, X), Y),
    "words": ({}, np.where(np.arange(N)[:, None] == 3, f"secret {SECRET}", X.astype(object)), Y),
    "words before a step": (
        {"estimator": make_pipeline(Normalizer(), ridge()), "param_grid": {}},
        np.where(np.arange(N)[:, None] == 3, f"secret {SECRET}", X.astype(object)),
        Y,
    ),
    "lengths differ": ({}, X, Y[:-1]),
    "a number as budget": ({"budget": 3.0}, X, Y),
}


@pytest.mark.parametrize("case", WRONG)
def test_refused_before_anything_is_spent(case: str) -> None:
    given, rows, labels = WRONG[case]
    budget = dpm.Budget(10, 1e-3)
    parameters = {"estimator": ridge(), "param_grid": GRID, "budget": budget, "random_state": 0} | given
    with pytest.raises((DPModelError, ValueError)) as caught:
        PrivateSearchCV(**{"epsilon": 1.0} | parameters).fit(rows, labels)
    assert budget.spent.epsilon == 0 and "7321" not in str(caught.value)
    with pytest.raises(NotFittedError):
        PrivateSearchCV(**{"epsilon": 1.0} | parameters).predict(X)


def test_odd_rows_that_are_held_out_are_refused_too() -> None:
    held = search()._split(N)[1]
    for place in (held[0], held[-1]):
        rows, labels = X.copy(), Y.copy()
        rows[place, 0] = labels[place] = np.inf
        budget = dpm.Budget(10)
        for bad in ((rows, Y), (X, labels)):
            with pytest.raises(SpecificationError):
                search(budget=budget).fit(*bad)
        assert budget.spent.epsilon == 0


def test_one_odd_row_that_is_held_out_shows_in_no_warning_and_no_error() -> None:
    held = search()._split(N)[1]
    rows, labels = X.copy(), Y.copy()
    rows[held[:3]] = [[1e308, 1e308, 1e308], [-1e308, 1e308, 1e308], [SECRET, 0, 0]]
    labels[held[0]] = -1e308
    said = []
    for each in ((X, Y), (rows, labels)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert search(strategy="every").fit(*each).best_index_ == 1
        said.append([str(w.message)[:50] for w in caught])
    # Old versions of numpy now and then warn in the first search of a process, of made-up data.
    assert set(said[1]) <= set(said[0])

    class Broken(PrivateRidge):
        def predict(self, X: Any) -> Any:
            raise RuntimeError(f"a row holds {X.max()}")

    budget = dpm.Budget(10)
    base = Broken(**ridge().get_params())
    with pytest.raises(dpm.DPModelError, match="scoring stopped with RuntimeError") as caught_error:
        PrivateSearchCV(base, GRID, epsilon=1, budget=budget, random_state=0).fit(rows, labels)
    assert caught_error.value.__context__ is None and "7321" not in str(caught_error.value)
    assert budget.spent.epsilon == 1.0


class FailsLate(PrivateRidge):
    """Solves, then fails in one of its fits or predictions; copies count together."""

    left: Any = None
    error: BaseException = RuntimeError()

    def fit(self, X: Any, y: Any) -> Any:
        if self.left["fit"] == 0 and len(X) == self.left["rows"] and not _public_only.get():
            raise self.error
        found = super().fit(X, y)
        self.left["fit"] -= len(X) == self.left["rows"]
        return found

    def predict(self, X: Any) -> Any:
        self.left["predict"] -= 1
        if self.left["predict"] == -1:
            raise self.error
        return super().predict(X)


@pytest.mark.parametrize(
    ("where", "strategy", "error"),
    [
        pytest.param(
            where,
            strategy,
            error(SECRET),
            id=f"{where}-{strategy}-{error.__name__}",
            marks=() if (at % 2 == kind) and (at % 3 == 0) == (error is KeyboardInterrupt) else pytest.mark.slow,
        )
        for at, where in enumerate(["first fit", "choice", "second fit", "first score", "second score", "refit"])
        for kind, strategy in enumerate(("every", "random-stopping"))
        for error in (RuntimeError, KeyboardInterrupt)
    ],
)
def test_a_failure_leaves_no_score_in_any_frame(
    where: str, strategy: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a search ends, what its traceback and it hold knows no more than before."""
    made: list[int] = []
    count, place = ("first", "second").index(where.split()[0]) if " " in where else 0, where.split()[-1]
    left = {"fit": -1, "predict": -1, "rows": N if place == "refit" else N - round(N / 4)}
    monkeypatch.setattr(FailsLate, "left", left | {{"refit": "fit", "score": "predict"}.get(place, place): count})
    monkeypatch.setattr(FailsLate, "error", error)

    def noted(scores: Any) -> int:
        made.append(sum_of_scores(scores))
        return made[-1]

    def broken(*given: Any, **named: Any) -> Any:
        raise error

    monkeypatch.setattr(scoring, "sum_of_scores", noted)
    if where == "choice":
        monkeypatch.setattr(searching, "every" if strategy == "every" else "stopped", broken)
    budget = dpm.Budget(4.0)
    base = FailsLate(**ridge().get_params())
    found = PrivateSearchCV(
        base, GRID, epsilon=4.0, strategy=strategy, runs=9 * (strategy == "random-stopping") or None, budget=budget,
        random_state=0,
    )  # fmt: skip
    with pytest.raises((DPModelError, KeyboardInterrupt)) as caught:
        found.fit(X, Y)
    failure = caught.value
    assert isinstance(failure, KeyboardInterrupt) == isinstance(error, KeyboardInterrupt)
    assert failure.__cause__ is None is failure.__context__ and str(SECRET) not in str(failure)
    frames = [frame for frame, _ in traceback.walk_tb(failure.__traceback__) if "dpmodel" in frame.f_code.co_filename]
    assert [frame.f_code.co_name for frame in frames][-1] == "_searched"
    # Only the call itself, and of it only what was there before the charge: data of the caller, and public plans.
    held = [value for frame in frames for name, value in frame.f_locals.items() if name not in ("X", "y")]
    assert_no_trace([held, vars(found), failure], [[*made, *(s / GRID_OF_SCORES for s in made), SECRET]])
    assert budget.spent.epsilon == 4.0 and not hasattr(found, "best_estimator_")
    assert made or where in ("first fit", "first score") or (where, strategy) == ("choice", "random-stopping")


def test_an_exhausted_budget_is_refused_before_a_row_is_read() -> None:
    budget = dpm.Budget(3.0)
    found = search(budget=budget)
    with pytest.raises(BudgetExceededError):
        found.fit(X, Y)
    assert budget.spent.epsilon == 0 and not hasattr(found, "best_estimator_")


@pytest.mark.slow
def test_how_many_runs_there_were_does_not_show() -> None:
    """Nothing that is kept, and no warning, depends on the number of fits."""
    seen = []
    for seed in range(4):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = search(strategy="random-stopping", runs=6, random_state=seed).fit(X, Y)
        seen.append(
            (
                [str(w.message)[:40] for w in caught if w.category is not dpm.errors.NotPrivateWarning],
                sorted(vars(found)),
                vars(found.best_estimator_._shared_lineage),
            )
        )
    assert all(each == seen[0] for each in seen)


def test_a_candidate_whose_step_fails_says_nothing_of_a_record() -> None:
    """A frozen encoder names the categories that it does not know: they are people's."""
    frame = pd.DataFrame({"ward": ["a", "b"] * 19 + ["a", "SECRETVILLE"]})
    frozen = FrozenEstimator(OneHotEncoder(sparse_output=False).fit(pd.DataFrame({"ward": ["a", "b"]})))
    public = PublicEncoder(domain={"ward": ["a", "b"]})
    pipeline = Pipeline([("e", public), ("r", PrivateRidge(bounds=(-1, 1), label_bounds=(0, 1)))])
    budget = dpm.Budget(1.0)
    search = PrivateSearchCV(pipeline, {"e": [public, frozen]}, epsilon=1.0, budget=budget)
    with pytest.raises(SpecificationError) as caught:
        search.fit(frame, np.zeros(40))
    assert "ValueError" in str(caught.value) and "SECRETVILLE" not in str(caught.value)
    assert caught.value.__context__ is None and budget.spent.epsilon == 0
