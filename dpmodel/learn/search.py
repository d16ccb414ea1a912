"""Choosing one of k candidates within one budget: the private core of ``PrivateSearchCV``.

The rows are cut by position, by public numbers alone, into rows T that candidates are fitted on and rows V that are
held out. A record is one row (``features.one_row_each`` of people with several), so one record is in T or in V and
never in both.

Scores. ``scores`` has them: integers, and how far one held-out row moves each, D. Differences between two candidates
move by at most 2 D.

Every candidate once (``every``)
    Privacy. The k fits read T alone and compose to (epsilon, delta) (``share_of_each``). Given the fitted models,
    ``permute_and_flip`` over the scores reads V alone and is epsilon-DP, with the range bound 2 D. Neighbors
    that differ in T: the selection is post-processing of the models for this fixed V, (epsilon, delta). Neighbors that
    differ in V: the models are the same random variables, and whatever they are the selection is epsilon-DP. Both
    together are (epsilon, delta)-DP (parallel composition), and all k models may be released.
Random stopping (``stopped``)
    Source. Liu and Talwar 2019, "Private Selection from Private Candidates"; Papernot and Steinke 2022,
    "Hyperparameter Tuning with Renyi Differential Privacy", whose number of runs is a truncated negative binomial:
    (2 + eta) epsilon, the geometric one with eta = 1. What is used is proved here.
    Claim. Let Q be e-DP with outcomes y that have a public order of scores, and run Q independently K times, K
    geometric on 1, 2, ... with stopping probability g whatever the data are. The outcome with the best score, the first
    of them where several are best, is 3e-DP.
    Proof. Let b be the probability under Q of a score below that of y, c of one not above it. The best score of k runs
    is that of y with probability c^k - b^k, and by symmetry the first run with it shows y with probability Q(y)/(c - b)
    of that. Summed over k with weights g (1 - g)^(k - 1), with f(s) = g s / (1 - (1 - g) s),

        P(y) = Q(y) / (c - b) * (f(c) - f(b)) = g Q(y) / ((1 - (1 - g) c) (1 - (1 - g) b)).

    The factors of the denominator are g + (1 - g)(1 - c) and g + (1 - g)(1 - b): a constant plus a multiple of the
    probability of an event under Q, so that each shrinks by a factor of at most exp(e) between neighbors, and Q(y)
    grows by at most exp(e). (Where outcomes have a density, the same holds of it.)
    Here one run draws a candidate uniformly, fits it on T at e, and adds discrete Laplace noise of scale D / e to
    its score over V: e-DP by parallel composition. The cost does not depend on k or on g.
    K is not released, and neither is anything of the other runs: with K known, K runs cost K e. Whoever can time the
    search can guess K.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import product
from typing import Any, TypeVar

import numpy as np
from sklearn import config_context
from sklearn.base import MetaEstimatorMixin, clone
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, get_tags, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_is_fitted

from dpmodel.errors import CompositionWarning, SpecificationError, unsaid
from dpmodel.learn.classifier import PrivateClassifier, classes_and_places, require_classes
from dpmodel.learn.costs import Counted, Lineage, learners
from dpmodel.learn.features import ONE_ROW_EACH, checked, one_row_each
from dpmodel.learn.linear_model import PrivateLinearModel, PrivateRegressor, _rng
from dpmodel.learn.scores import GRID, score_of
from dpmodel.marks.domain import elements
from dpmodel.privacy import (
    Budget,
    Charge,
    Cost,
    noise_source,
    permute_and_flip,
    public_generator,
    pure_composition_delta,
)
from dpmodel.privacy.ledger import Charges
from dpmodel.release import Guarantee
from dpmodel.solve.progress import shown, silent
from dpmodel.solve.wall import ChargeReached, RunError, before_charges, charge_then_run, check_budget
from dpmodel.text import number

_DOWN = 1 - 1e-9  # shares are rounded down
M = TypeVar("M")


def every(scores: Sequence[int], moves: int, epsilon: float, source: Any) -> int:
    """The place of a candidate with a large score, epsilon-DP about the held-out rows, one of which moves a score by at
    most ``moves``."""
    return permute_and_flip(np.array(scores, dtype=np.float64), 2.0 * moves, epsilon=epsilon, source=source)


def stopped(
    run: Callable[[int], tuple[M, int]], count: int, runs: int, moves: int, epsilon: float, source: Any
) -> tuple[int, M, int]:
    """The candidate with the best noisy score among a geometric number of runs, 3 epsilon-DP.

    Parameters
    ----------
    run : fits candidate j at ``epsilon`` and hands back the model and its exact score.
    count : of candidates. ``runs`` : their mean number. ``moves`` : how far one row moves a score. ``epsilon`` : of one
        run.

    Returns
    -------
    place, model, score : of the best run; ``score`` is the noisy one.
    """
    best: tuple[int, M, int] | None = None
    while True:
        place = _uniform(count, source)
        model, total = run(place)
        noisy = int(source.discrete_laplace(np.array([total]), moves / epsilon)[0])
        if best is None or noisy > best[2]:
            best = place, model, noisy
        if _uniform(runs, source) == 0:
            return best


def _uniform(count: int, source: Any) -> int:
    """A number below ``count``, each as likely."""
    return int(source.noisy_max(np.zeros(count), 1.0, kind="exponential"))


def share_of_each(count: int, epsilon: float, delta: float) -> tuple[float, float]:
    """The (epsilon, delta) of each of ``count`` fits that compose to at most (epsilon, delta).

    Basic composition; or, with delta > 0, half of delta for the fits and half for the optimal composition of their pure
    parts (Kairouz, Oh and Viswanath 2015), where that gives each fit more epsilon than the other half of delta is
    worth.
    """
    if count == 1:
        return epsilon, delta
    basic = epsilon / count * _DOWN, delta / count * _DOWN
    if delta == 0:
        return basic
    own = delta / (2 * count) * _DOWN

    def holds(each: float) -> bool:
        return pure_composition_delta(each, count, epsilon) <= delta - count * own

    low, high = basic[0], epsilon
    while high - low > 1e-6 * high:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return (low, own) if holds(low) and low > 1.1 * basic[0] else basic


# ---- ``PrivateSearchCV``: a search over parameters within one budget


_OURS = ("epsilon", "delta", "budget", "random_state", "progress")
_PUBLIC = (*_OURS, "neighbors", "label_bounds", "classes")  # what a candidate may not change
_JUST_BELOW = 1 - 1e-6


def _can(name: str) -> Callable[[Any], bool]:
    return lambda self: hasattr(getattr(self, "best_estimator_", self.estimator), name)


@dataclass(eq=False, repr=False)
class PrivateSearchCV(MetaEstimatorMixin, Counted):  # type: ignore[misc]
    """Choose the parameters of a private estimator, and fit it, within one budget.

    ``GridSearchCV`` fits every candidate on every fold at all of epsilon and shows exact scores of private rows.
    Here a public part of the rows is held out; candidates are fitted on the others, one is chosen by noisy scores on
    the rows held out, and it is fitted again on all rows. All of it together is (epsilon, delta)-DP;
    ``dpmodel/learn/search.py`` has the proof.

    Parameters
    ----------
    estimator : a private regression or classifier of ``dpmodel.learn``, or a ``Pipeline`` that ends in one, whose other
        steps learn nothing and act on each row by itself (``PublicEncoder``; what is frozen was fitted on public data).
        Its own epsilon, delta, budget and random_state are not used.
    param_grid : as in ``GridSearchCV``; public. Not the privacy parameters, nor what scores depend on (classes,
        label_bounds).
    epsilon, delta : of the whole search with its refit; an epsilon is required.
    scoring : a name of scikit-learn's. Classifiers: "accuracy" (the default), "neg_log_loss" (chances below .01 count
        as .01), "neg_brier_score"; of two classes "roc_auc", "balanced_accuracy" and "recall" too. Regressions, of
        labels and predictions clipped to ``label_bounds``: "neg_mean_squared_error" (the default), "r2",
        "neg_root_mean_squared_error", "neg_mean_absolute_error", and "neg_mean_pinball_loss" at the ``quantile`` of
        the estimator, whose default it is. Others are refused with the reason (``dpmodel/learn/scores.py``). Areas
        under curves compare pairs of rows and take several times the rows that means take.
    held_out : the public share of the rows that candidates are scored on. ``split_state`` : a public number that says
        which, by position and whatever the rows hold.
    refit : whether the chosen candidate is fitted again on all rows, with ``refit_share`` of epsilon and delta. Without
        it, the one that was scored is released.
    strategy : "every" fits each of k candidates once, on a k-th of epsilon (with delta > 0, more where composition
        allows); "random-stopping" (delta = 0) draws candidates at random, a geometric number of times, each at a third
        of epsilon however many there are. Its scores are noisier, it may miss the best candidate, it makes more fits:
        "auto" takes it where a fit gets over four times the epsilon, for more than 12 candidates and delta = 0.
    runs : random stopping: the mean number of fits, 5 k by default. The best candidate is never drawn in about one of
        runs / k + 1 searches. More of them cost time and no privacy.
    budget : a ``Budget`` that the whole search charges at once, before it reads a row.
    random_state : None for secure noise. A number makes it repeatable: for tests, and NOT private.
    progress : as in ``Problem.solve``. How many fits there were is private where a search stops early, so fits are not
        told one by one.

    Attributes
    ----------
    best_estimator_, best_params_, best_index_ : what was chosen. Its ``guarantee_`` is that of the search.
    best_score_ : random stopping only, which pays for it: the noisy score of the best run; not of "r2", "recall" and
        areas, which take numbers of the held-out labels that are not paid for.
    cv_results_ : "params", "selected", and "epsilon" and "delta" of a fit; with "every", which pays for all of them,
        the fitted candidates ("estimator"). No scores.
    guarantee_, release_ : of the whole search. ``strategy_`` : the one taken.

    Notes
    -----
    How many fits random stopping made is private, and so is the time it took: whoever can time it learns more than is
    guaranteed. Warnings of fits are given before the charge, by public facts.

    Raises
    ------
    SpecificationError, BudgetExceededError
        By ``fit``, before anything is spent: steps that learn from the rows, parameters of privacy in the grid,
        unusable rows and labels, and whatever a fit of any candidate is refused for. (So every candidate is planned
        twice.)

    Examples
    --------
    >>> from dpmodel.learn import PrivateRidge, PrivateSearchCV
    >>> ridge = PrivateRidge(bounds=(-1, 1), label_bounds=(0, 10))
    >>> search = PrivateSearchCV(ridge, {"alpha": [0.1, 1, 10]}, epsilon=1.0)
    """

    estimator: Any
    param_grid: Any
    _: KW_ONLY
    epsilon: float | None = None
    delta: float = 0.0
    scoring: str | None = None
    held_out: float = 0.25
    split_state: int = 0
    refit: bool = True
    refit_share: float = 0.5
    strategy: str = "auto"
    runs: int | None = None
    budget: Budget | None = None
    random_state: Any = None
    progress: Any = None

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None, **fit_params: Any) -> PrivateSearchCV:
        """Search over rows X (n, p) and labels y (n,) and charge the budget; see the class for errors.

        ``groups`` : (n,) ids of the people whose rows they are, where people have several: of each the first counts.
        ``sample_weight`` : (n,) weights in the fits, as ``max_weight`` of the estimator declares them; not in scores.
        Of a Pipeline also by the name of its last step, ``step__sample_weight``.
        """
        named = f"{_final(self.estimator)[0]}sample_weight"
        if sample_weight is None:
            sample_weight = fit_params.pop(named, None)
        if fit_params:
            raise SpecificationError(
                f"PrivateSearchCV.fit: {next(iter(fit_params))!r}",
                remedy="groups=, sample_weight=",
            )
        with shown(self.progress) as report:
            report("search over parameters", 0.0)
            self._notes = () if groups is None else (ONE_ROW_EACH,)
            return self._searched(*one_row_each("PrivateSearchCV", groups, X, y, sample_weight))

    def _searched(self, X: Any, y: Any, weights: Any) -> PrivateSearchCV:
        self.__dict__.pop("best_score_", None)  # of an earlier fit
        candidates, final = self._candidates(), _final(self.estimator)[1]
        total = self._loss
        part = self._share("refit_share") if self.refit else 0.0
        searched = total.epsilon * (1 - part), total.delta * (1 - part)
        each, self.strategy_ = self._each(len(candidates), *searched)
        score = score_of(final, self.scoring)
        fixed = self._read(final, X, y)
        X, y, weights = indexable(X, y, weights)
        fitted_on, held = self._split(_num_samples(X))
        moves = score.moves(len(held))
        given = _rng(self.random_state)
        seeds = public_generator(int(given)) if isinstance(given, int | np.integer) else None
        source = noise_source(given if seeds is None else seeds)
        account = _PaidFor()
        self._warn_of_costs()

        def fit_one(params: Any, places: Any, cost: tuple[float, float]) -> Any:
            seed = given if seeds is None else int(seeds.integers(2**31))
            ours = dict(zip(_OURS, (*cost, account, seed, False), strict=True)) | fixed
            model = clone(self.estimator).set_params(**params)
            name = _final(model)[0]
            model.set_params(**{f"{name}{key}": value for key, value in ours.items()})
            weighed = {} if weights is None else {f"{name}sample_weight": _rows(weights, places)}
            with config_context(enable_metadata_routing=False):  # these go to the last step, whoever asks for them
                return unsaid(lambda: model.fit(_rows(X, places), _rows(y, places), **weighed), _failed)

        def run(place: int) -> tuple[Any, int]:
            model = fit_one(candidates[place], fitted_on, each)
            with np.errstate(all="ignore"):  # a huge number in one row would warn of itself
                return model, unsaid(lambda: score.of(model, _rows(X, held), _rows(y, held)), _unscored)

        def search(told: Any) -> tuple[int, Any, Sequence[Any], int | None]:
            """What is released: the chosen place, its last fit, the models, and the noisy score."""
            models: Sequence[Any]
            noisy = None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what public facts warn of was said; the rest is of rows
                if self.strategy_ == "every":
                    models, sums = zip(*(run(j) for j in range(len(candidates))), strict=True)
                    place = every(sums, moves, searched[0], source)
                    best = models[place]
                else:
                    runs = 5 * len(candidates) if self.runs is None else self.runs
                    place, best, noisy = stopped(run, len(candidates), runs, moves, each[0], source)
                    models = [best]
                if self.refit:
                    best = fit_one(candidates[place], None, (total.epsilon * part, total.delta * part))
            return place, best, models, noisy

        # What public facts refuse in any candidate is told before the first of them is paid for.
        rehearsals = [(fitted_on, each), *[(None, (total.epsilon * part, total.delta * part))] * bool(self.refit)]
        for params, (places, cost) in product(candidates, rehearsals):
            with warnings.catch_warnings(), contextlib.suppress(ChargeReached), before_charges():
                warnings.simplefilter("ignore", CompositionWarning)  # said above, of all together
                fit_one(params, places, cost)

        # Scores that are not paid for stay behind the wall, where a fit fails too.
        found, failure = charge_then_run(
            search, name="the search", budget=self.budget, cost=Cost.approximate(*total),
            label="learn.PrivateSearchCV", report=silent, charged=self._count,
            records=_num_samples(X),  # replace-one: public
        )  # fmt: skip
        if failure is not None:
            raise failure
        assert found is not None
        place, best, models, noisy = found
        if noisy is not None and score.mean is not None:
            self.best_score_ = score.mean(noisy / GRID / len(held))
        self._keep(candidates, place, best, models, each)
        return self

    # ------------------------------------------------------------------ what is public
    def _candidates(self) -> list[Any]:
        """The grid, with every candidate checked: nothing in it may learn beside the guarantee."""
        check_budget(self.budget)
        grid = list(ParameterGrid(self.param_grid))
        if not grid:
            raise SpecificationError("PrivateSearchCV: an empty grid", remedy="param_grid={'alpha': [0.1, 1, 10]}")
        for params in grid:
            model = clone(self.estimator).set_params(**params)
            name, final = _final(model)
            if not isinstance(final, PrivateLinearModel):
                raise SpecificationError(
                    f"PrivateSearchCV: {type(final).__name__} is not a private regression or classifier",
                    remedy="an estimator of dpmodel.learn, or a Pipeline that ends in one",
                )
            ours = [key for key in params if key.removeprefix(name) in _PUBLIC]
            if ours:
                raise SpecificationError(
                    f"PrivateSearchCV: {ours[0]!r} in the grid",
                    why="candidates share one budget, and are scored alike",
                    remedy="epsilon=, delta=, budget= and random_state= of the search; the others of the estimator",
                )
            if final.neighbors != "replace-one":
                raise SpecificationError(
                    f"PrivateSearchCV: neighbors={final.neighbors!r}",
                    why="rows are held out by position, which adding or removing a row would shift",
                    remedy="neighbors='replace-one'",
                )
            learning = [learner for step in _steps(model) for learner in learners(step)]
            if learning:
                raise SpecificationError(
                    f"PrivateSearchCV: {', '.join(learning)} would learn from the rows",
                    why="means, variances and categories of private rows are in no guarantee",
                    remedy="dpm.learn.PublicEncoder, from public bounds and categories",
                )
        return grid

    def _each(self, count: int, epsilon: float, delta: float) -> tuple[tuple[float, float], str]:
        """(epsilon, delta) of one fit, and the strategy: a public comparison."""
        once, third = share_of_each(count, epsilon, delta), (epsilon / 3 * (1 - 1e-9), 0.0)
        if self.runs is not None and not (isinstance(self.runs, int | np.integer) and self.runs >= 1):
            raise SpecificationError("PrivateSearchCV: runs is not a positive integer", remedy="runs=50")
        if self.strategy not in ("auto", "every", "random-stopping"):
            raise SpecificationError("PrivateSearchCV: unknown strategy", remedy="'auto', 'every', 'random-stopping'")
        if self.strategy == "random-stopping" and delta:
            raise SpecificationError(
                "PrivateSearchCV: random stopping with delta > 0",
                why="its proof here is of pure privacy",
                remedy="delta=0, or strategy='every'",
            )
        if self.strategy == "every" or delta or (self.strategy == "auto" and 4 * once[0] >= third[0] * _JUST_BELOW):
            return once, "every"
        return third, "random-stopping"

    def _share(self, name: str) -> float:
        value = getattr(self, name)
        if not isinstance(value, float | np.floating) or not 0 < value < 1:
            raise SpecificationError(f"PrivateSearchCV: {name} is not between 0 and 1", remedy=f"{name}=0.5")
        return float(value)

    def _split(self, count: int) -> tuple[Any, Any]:
        """Places of the rows to fit on and of those held out: public."""
        held = max(1, round(self._share("held_out") * count))
        if held >= count:
            raise SpecificationError(
                f"PrivateSearchCV: n_samples = {count}, of which {held} are held out", remedy="more rows"
            )
        order = public_generator(self.split_state).permutation(count)
        return np.sort(order[held:]), np.sort(order[:held])

    # ------------------------------------------------------------------ before the charge
    def _read(self, final: Any, X: Any, y: Any) -> dict[str, Any]:
        """Refuse unusable rows and labels, held-out ones too. Returns parameters that all candidates share."""
        if isinstance(final, PrivateClassifier):
            require_classes(final)
        reader = clone(final)
        _, read = checked(
            reader,
            _transformed(_steps(self.estimator), X),
            y,
            fitting=True,
            numeric_y=isinstance(final, PrivateRegressor),
        )
        if not isinstance(final, PrivateClassifier):
            return {}
        # Which labels occur may be public of all rows, and is not of a part of them.
        return {"classes": elements(classes_and_places(reader, y, read, final._most_classes)[0])}

    def _count(self) -> None:
        if self.budget is None:
            self._shared_lineage.spent.append((self._loss.epsilon, self._loss.delta))

    @property
    def _shared_lineage(self) -> Lineage:
        lineage: Lineage = _final(self.estimator)[1]._shared_lineage
        return lineage

    # ------------------------------------------------------------------ what leaves
    def _keep(self, candidates: list[Any], place: int, best: Any, models: Sequence[Any], each: Any) -> None:
        one = _final(best)[1].guarantee_
        words = f"{one.record}; all fits of a search over {len(candidates)} candidates and their scores together"
        self.guarantee_ = Guarantee(self._loss.epsilon, self._loss.delta, "replace-one", words)
        for model in {id(m): m for m in [*models, best]}.values():
            _final(model)[1].budget = self.budget  # a later fit is a charge of its own
        found = _final(best)[1]
        note = f"chosen by {self.strategy_}, epsilon {number(each[0])} for a fit; the accuracy is that of the last fit"
        found.guarantee_ = self.guarantee_
        found.release_ = replace(
            found.release_,
            guarantee=self.guarantee_,
            spent=(self.guarantee_.epsilon, self.guarantee_.delta),
            notes=(*found.release_.notes, *self._notes, note),
        )
        self.release_ = found.release_
        self.best_estimator_, self.best_index_, self.best_params_ = best, place, candidates[place]
        self.cv_results_: dict[str, Any] = {
            "params": candidates,
            "selected": np.arange(len(candidates)) == place,
            "epsilon": np.full(len(candidates), each[0]),
            "delta": np.full(len(candidates), each[1]),
        }
        if self.strategy_ == "every":
            self.cv_results_["estimator"] = list(models)

    def predict(self, X: Any) -> Any:
        """Predictions of ``best_estimator_``."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict(X)

    def score(self, X: Any, y: Any) -> float:
        """The score of ``best_estimator_``, exact: of rows that are not private."""
        check_is_fitted(self, "best_estimator_")
        return float(self.best_estimator_.score(X, y))

    @available_if(_can("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Any:
        """That of ``best_estimator_``."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.decision_function(X)

    @available_if(_can("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """Those of ``best_estimator_``."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict_proba(X)

    @property
    def classes_(self) -> Any:
        """Those of ``best_estimator_``."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.classes_

    @property
    def n_features_in_(self) -> int:
        """Number of columns of X."""
        check_is_fitted(self, "best_estimator_")
        return int(self.best_estimator_.n_features_in_)

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        tags.input_tags, tags.target_tags = inner.input_tags, inner.target_tags
        return tags


class _PaidFor(Budget):
    """The account of the fits of one search, which has paid for all of them."""

    history = Charges()
    composition = "auto"

    def __init__(self) -> None:
        pass

    def require(self, epsilon: float | Cost, delta: float = 0.0, *, after: Sequence[Cost] = ()) -> None:
        pass

    def charge(self, epsilon: float | Cost, delta: float = 0.0, label: str = "") -> Charge:
        return Charge(epsilon if isinstance(epsilon, Cost) else Cost.approximate(epsilon, delta), label, "", "")

    def __str__(self) -> str:
        return "the budget of a search"

    __repr__ = __str__


def _final(estimator: Any) -> tuple[str, Any]:
    """The last step of a pipeline (of pipelines), and what its parameters' names begin with."""
    name = ""
    while isinstance(estimator, Pipeline):
        name += f"{estimator.steps[-1][0]}__"
        estimator = estimator.steps[-1][1]
    return name, estimator


def _steps(estimator: Any) -> list[Any]:
    """Those before the last one, in pipelines of pipelines too."""
    steps = []
    while isinstance(estimator, Pipeline):
        steps += [step for _, step in estimator.steps[:-1]]
        estimator = estimator.steps[-1][1]
    return steps


def _transformed(steps: Sequence[Any], X: Any) -> Any:
    """What the last step of a pipeline gets; what a step says when it fails may hold values, and is not shown."""

    def through() -> Any:
        found = X
        for step in steps:
            if step is not None and not isinstance(step, str):
                found = clone(step).fit(found).transform(found)
        return found

    return unsaid(through, _failed)


def _failed(failed: str) -> SpecificationError:
    return SpecificationError(
        f"PrivateSearchCV: a step of the pipeline failed ({failed})",
        why="its message may hold values of records, so it is not shown",
        remedy="the same step by itself, where you may look at the data",
    )


def _unscored(failed: str) -> RunError:
    return RunError(f"scoring stopped with {failed}")


def _rows(data: Any, places: Any) -> Any:
    return data if places is None else _safe_indexing(data, places)
