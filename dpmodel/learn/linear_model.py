"""The regressors, and what all estimators share: the model in CVXPY, the solve, the fitted attributes."""

from __future__ import annotations

import math
import numbers
import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dpmodel._types import Floats, Mask, PrivateArray
from dpmodel.contract import no_progress
from dpmodel.errors import ClippedWarning, SpecificationError, users_line
from dpmodel.learn.costs import Counted, bounds_before, called, names_before, norms_before
from dpmodel.learn.features import (
    ONE_ROW_EACH,
    Features,
    Weights,
    checked,
    features_of,
    one_row_each,
    pair_of,
    weights_of,
)
from dpmodel.marks import Private, Records
from dpmodel.marks.dataset.estimates import Estimates
from dpmodel.marks.domain import elements
from dpmodel.marks.layout import Unit
from dpmodel.marks.measured import Moments
from dpmodel.marks.records import Neighbors
from dpmodel.privacy import Budget, Cost, Laplace, noise_source
from dpmodel.problem import Problem
from dpmodel.solve.wall import charge_then_run
from dpmodel.text import TextTable, interval_ends, number

# Parameters are fields, passed by name and stored as given. Text and equality are scikit-learn's.
estimator = dataclass(kw_only=True, eq=False, repr=False)


@estimator
class PrivateLinearModel(Counted):
    """A linear model fitted under differential privacy. The parameters that all estimators have:

    Parameters
    ----------
    epsilon, delta : the budget of one ``fit``. It requires an epsilon: no default could be right for what is spent for
        good. The default delta is 0, pure differential privacy: a positive delta must be small against 1/n, so no
        number would be right for every data set. Where a small delta (1e-6, say) is acceptable, Gaussian noise usually
        makes better models.
    bounds : range of the features, which is public and must not be looked up in the data: (lo, hi), numbers for all
        columns or arrays (p,), or one pair per column in order, or {column: (lo, hi)} by index, or by name for frames.
        Values beyond are clipped.
    max_l2 : largest 2-norm of a row; longer rows are scaled to it. Alone or together with ``bounds`` (which must then
        hold 0). One of the two is required, but right after a ``PublicEncoder`` in a pipeline, which has bounds.
    neighbors : "replace-one" (one record is replaced by another) or "add-remove" (one record's row is blank, which
        means every column and the label in the middle of their bounds, or zero where nothing is centred). The number of
        rows is public in both.
    budget : a ``Budget`` that every ``fit`` charges before it reads the data. Copies of the estimator
        (``sklearn.base.clone``, cross-validation in this process) charge the same one; every fit of a search over
        parameters is a charge of its own. Without one, the second and later fits of an estimator and its copies warn of
        what they cost together (``CompositionWarning``).
    max_weight : what ``sample_weight`` of ``fit`` is: a number, if weights belong to the records and are as private as
        these (larger ones are clipped to it); "public", if they say nothing about the records.
    fit_intercept : whether to fit an intercept.
    mechanism : "auto" for the plan's choice, or a mechanism's name.
    random_state : None for secure noise. A number makes the noise repeatable: for tests, and NOT private (a warning
        and the guarantee say so).
    progress : as in ``Problem.solve``: False for no bar.

    Attributes
    ----------
    coef_, intercept_ : coefficients of the features as given.
    n_features_in_, feature_names_in_ : as in scikit-learn.
    guarantee_, release_ : the privacy of the fit, and all that it released: ``coef`` and ``intercept`` in the units of
        the data, with the features' names, and the excess risk in those of the label. ``plan_`` : the mechanisms
        compared, in the same units.

    Notes
    -----
    Columns with bounds are mapped to [-1, 1] first (divided by their largest size where there is no intercept, and for
    sparse X), so penalties and radii speak of coefficients in these units whatever units a column has; with
    ``max_l2``, of rows of norm 1. ``coef_`` is mapped back. Whether a column is constant in the data is private and
    not looked at. A sparse X stays sparse, and which of its entries are not zero is protected too.

    A record that weighs w counts as w records in the sum of losses; no record counts more than ``max_weight`` ones, and
    the noise grows with it. The penalty is as without weights.

    Raises
    ------
    SpecificationError
        By ``fit``, before anything is spent: no epsilon, missing or impossible bounds, NaN, wrong shapes,
        unusable labels.
    BudgetExceededError, UnsupportedModelError
        By ``fit``, before anything is spent, as by ``Problem.solve``.
    """

    epsilon: float | None = None
    delta: float = 0.0
    bounds: Any = None
    max_l2: float | None = None
    neighbors: Neighbors = "replace-one"
    budget: Budget | None = None
    max_weight: Any = None
    fit_intercept: bool = True
    mechanism: str = "auto"
    random_state: Any = None
    progress: Any = None

    def _fit(
        self,
        X: Any,
        sealed: Any,
        labels: tuple[float, float],
        weights: Weights | None,
        risk_unit: float = 1.0,
        max_l1: float | None = None,
        clipped: Callable[[Features], Mask] | None = None,
    ) -> tuple[Floats, Floats]:
        """Solve for checked rows X (n, p) and mapped labels ``sealed`` (n,), or (n, K) for K outputs, in the public
        range ``labels``.

        ``risk_unit`` : what a loss of 1 in mapped labels is in units of the label, in which forecasts are. ``max_l1`` :
        largest 1-norm of a row of labels. ``clipped`` : the rows beyond their bounds, of which a noisy number is
        released with the share ``count_clipped`` of epsilon.

        Returns the coefficients (p,) or (p, K) of the features as given and the intercept () or (K,), both in units of
        the mapped labels.
        """
        if weights is not None and weights.public and not weights.each.all():
            counted = weights.each > 0
            X, sealed, weights = X[counted], sealed[counted], replace(weights, each=weights.each[counted])
        features = self._features(X)
        records = Records(neighbors=self.neighbors)
        rows = features.private(X, records)
        outputs = np.shape(sealed)[1:]
        owned: Unit = "row" if outputs else "entry"
        y = Private(sealed, name="y", unit=owned, bounds=list(labels), max_l1=max_l1, records=records)
        w = cp.Variable((rows.shape[1], *outputs), name="w")
        b: Any = cp.Variable(outputs, name="b") if self.fit_intercept else None
        z = rows @ w if b is None else rows @ w + b
        losses, penalty, constraints = self._model(z, y, w, b, features.unit)
        each = risk_unit / rows.shape[0]
        objective = each * (cp.sum(losses) if weights is None else _weighed(losses, weights, records))
        problem = Problem(cp.Minimize(objective if penalty is None else objective + each * penalty), constraints)
        requested: dict[str, Any] = {"epsilon": self.epsilon, "delta": self.delta, "mechanism": self.mechanism}
        share = 0.0 if clipped is None else getattr(self, "count_clipped", 0.0) * self._loss.epsilon
        requested["epsilon"] = self._loss.epsilon - share
        with self._counted() as budget:
            if share:
                forecast = problem.plan(**requested, budget=budget).chosen.forecast
                assert forecast is not None
                budget.require(Cost.pure(share), after=(forecast.cost,))
            problem.solve(**requested, budget=budget, rng=_rng(self.random_state), progress=self.progress)
            assert problem.release is not None
            self.clipped_ = None
            if share and clipped is not None:
                self.clipped_ = clipped_rows(lambda: clipped(features), share, budget, records, self.random_state)
        assert problem.last_plan is not None
        self.plan_, self.release_ = problem.last_plan.without_model(), problem.release
        if self.clipped_ is not None:
            paid = replace(self.release_.guarantee, epsilon=self._loss.epsilon)
            spent = self.release_.spent[0] + share, self.release_.spent[1]
            notes = (*self.release_.notes, str(self.clipped_).splitlines()[0])
            self.release_ = replace(self.release_, guarantee=paid, spent=spent, notes=notes)
        self.guarantee_ = self.release_.guarantee
        coefficients, shift = features.back(np.asarray(w.value, dtype=np.float64))
        return coefficients, np.zeros(outputs) if b is None else np.asarray(b.value, dtype=np.float64) + shift

    def _of_people(self, groups: Any, *data: Any) -> tuple[Any, ...]:
        """``data`` with one row for each person; what the release says of it is kept for ``_say``."""
        found = one_row_each(called(self), groups, *data)
        self._notes = () if groups is None else (ONE_ROW_EACH,)
        return found

    def _say(self, *classes: Any) -> None:
        """Put ``coef_`` and ``intercept_`` into the release. ``classes`` : of the rows of ``coef_``, if several."""
        names = getattr(self, "feature_names_in_", None)
        features = [("feature", names_before(self.n_features_in_) if names is None else tuple(names.tolist()))]
        outputs = [("class", tuple(elements(classes[0])))] if classes else []
        self.release_ = replace(
            self.release_,
            notes=(*self.release_.notes, *self._notes),
            variables={"coef": self.coef_, "intercept": self.intercept_},
            labels={"coef": (*outputs, *features), "intercept": tuple(outputs)},
        )

    def summary(self, level: float = 0.95) -> TextTable:
        """What was fitted, with intervals, as statistics packages print it: ``Release.summary`` of ``release_``.

        ``release_.intervals(level, at=X)`` has the same as arrays, and intervals for predictions. Where the mechanism
        that fitted it releases no law there are the coefficients alone, and what to ask for.
        """
        check_is_fitted(self, "coef_")
        table, said = self.release_.summary(level), [f"{note[0].upper()}{note[1:]}" for note in self._notes]
        if getattr(self, "clipped_", None) is None:
            more = " (count_clipped=0.05 does)" if hasattr(self, "count_clipped") else ""
            said.append(f"Values beyond the declared bounds were cut: nobody counted how many{more}")
        else:
            said.append(" ".join(line.strip() for line in str(self.clipped_).splitlines()[:2]))
        return replace(table, footer=(*table.footer, *(f"{each}." for each in said)))

    @abstractmethod
    def _model(self, z: Any, y: Private, w: Any, b: Any, unit: float) -> tuple[Any, Any, list[Any]]:
        """Losses of predictions z and labels y, (n,) or (n, K); a penalty to add to their sum, or None; constraints.

        ``b`` : the intercept, or None. ``unit`` times w are the coefficients of features of size 1.
        """

    def _check(self) -> None:
        """Refuse impossible parameters."""

    def _features(self, X: Any) -> Features:
        centre = bool(self.fit_intercept) and not sp.issparse(X)
        names = getattr(self, "feature_names_in_", None)
        where = called(self)
        bounds = bounds_before() if self.bounds is None and self.max_l2 is None else self.bounds
        found = features_of(bounds, self.max_l2, names, X.shape[1], centre=centre, where=where)
        norms = norms_before() if self.max_l2 is None else None
        low, high = found.middle + found.half * found.lower, found.middle + found.half * found.upper
        if norms is None or norms[1] >= math.sqrt(X.shape[1]) or max(-low.min(), high.max()) > 1:
            return found
        # Centred, columns of categories would have size 1 in every row.
        one, two, lists = norms
        return Features(low, high, np.zeros(low.size), np.ones(low.size), max_l2=two, max_l1=one, lists=lists)

    def _linear(self, X: Any) -> Floats:
        check_is_fitted(self, "coef_")
        X = checked(self, X, fitting=False)
        return np.asarray(X @ self.coef_.T + self.intercept_, dtype=np.float64)

    def _require_bounds(self) -> None:
        """Refuse missing bounds before the data is read."""
        if self.bounds is None and self.max_l2 is None and bounds_before() is None:
            features_of(None, None, None, 1, centre=False, where=called(self))

    def _number(self, name: str, *, least: float = 0.0, strict: bool = False) -> float:
        """A public parameter that must be a finite number of at least (or above) ``least``."""
        value = getattr(self, name)
        number = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(float(value))
        if not number or float(value) < least or (strict and float(value) == least):
            raise SpecificationError(
                f"{called(self)}: {name} is not a number {'above' if strict else 'of at least'} {least:g}",
                remedy=f"{name}=1.0",
            )
        return float(value)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _weighed(losses: Any, weights: Weights, records: Records) -> Any:
    """The sum of the records' losses (n,), or (n, K) of each against the rest, times their weights."""
    bounds = [0.0, weights.largest]
    each = (
        weights.each
        if weights.public
        else Private(weights.each, name="weights", unit="entry", bounds=bounds, records=records)
    )
    return each @ (losses if losses.ndim == 1 else cp.sum(losses, axis=1))


def _rng(random_state: Any) -> Any:
    """None, or a seed; of a NumPy ``RandomState``, which scikit-learn allows, one that is drawn from it."""
    return int(random_state.randint(2**31 - 1)) if hasattr(random_state, "randint") else random_state


# ------------------------------------------------------------------ how many rows are clipped


_MANY = 0.01  # of the rows


def _beyond(X: Any, y: Any, low: float, high: float, features: Features) -> Mask:
    """(n,) rows with a column, a norm or a label beyond its bounds. PRIVATE."""
    y = np.asarray(y, dtype=np.float64)
    return np.asarray(features.beyond(X) | (y < low) | (y > high))


def clipped_rows(beyond: Callable[[], Mask], epsilon: float, budget: Budget, records: Records, rng: Any) -> Estimates:
    """A noisy number of the rows that are clipped, epsilon-DP.

    Whether a row is clipped depends on its record and public bounds alone. Replacing, adding or removing one record
    moves the number, an integer, by at most 1: Laplace noise of scale 1 / epsilon.
    """
    source, law = noise_source(rng + 1 if isinstance(rng, int) else _rng(rng)), Laplace(1 / epsilon)
    rows = 0

    def run(report: Any) -> float:
        nonlocal rows
        wide = beyond()
        rows = wide.size
        return float(law.add_to(PrivateArray(np.array([float(wide.sum())])), source)[0])

    found, failure = charge_then_run(
        run, name="count_clipped", budget=budget, cost=Cost.pure(epsilon), label="clipped rows", report=no_progress
    )
    if found is None:
        assert failure is not None
        raise failure
    far = law.max_abs_quantile(1, 0.05)
    value, lower, upper = (min(max(each, 0.0), float(rows)) for each in (found, found - far, found + far))
    if value > _MANY * rows:
        warnings.warn(
            f"about {number(100 * value / rows)} % of {rows} rows are beyond their bounds "
            f"({' to '.join(interval_ends(lower, upper))} rows) and were clipped: coefficients are those of the "
            "clipped rows, with or without privacy: try wider bounds, or label_bounds",
            ClippedWarning,
            stacklevel=users_line(),
        )
    return Estimates(
        name="clipped rows",
        value=np.array(value),
        lower=np.array(lower),
        upper=np.array(upper),
        level=0.95,
        statement=f"of {rows} rows, with a column, a norm or a label beyond its bounds",
        epsilon=epsilon,
        delta=0.0,
        neighbors=records.neighbors,
        record="a record is one row",
    )


# ------------------------------------------------------------------ regressors: labels with declared bounds


@estimator
class PrivateRegressor(RegressorMixin, PrivateLinearModel):  # type: ignore[misc]
    """A regressor. Besides the parameters of ``PrivateLinearModel``:

    Parameters
    ----------
    label_bounds : (lo, hi) range of the labels, public and required; labels beyond are clipped.
    count_clipped : the share of epsilon, in [0, 0.5], that buys a noisy number of the rows that were clipped
        (``clipped_``, in ``summary()``); a ``ClippedWarning`` says if it is more than 1 %. The default spends none: how
        many rows are clipped is private.

    Notes
    -----
    Labels are mapped to [-1, 1] (without an intercept: divided by their largest size) and the fit is mapped back.
    """

    label_bounds: Any = None
    count_clipped: float = 0.0

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> PrivateRegressor:
        """Fit the model to rows X (n, p) and labels y (n,) and charge the budget; see the class for errors.

        ``groups`` : (n,) ids of the people whose rows they are, where people have several: of each the first counts.
        ``sample_weight`` : (n,) weights of the records, as ``max_weight`` declares them.
        """
        self._require_bounds()
        low, high = self._label_range()
        self._check()
        if self._number("count_clipped") > 0.5:
            raise SpecificationError(
                f"{called(self)}: count_clipped is above 0.5",
                why="it is the share of epsilon that counts clipped rows, and the rest fits",
                remedy="count_clipped=0.05",
            )
        X, y, sample_weight = self._of_people(groups, X, y, sample_weight)
        X, y = checked(self, X, y, fitting=True, numeric_y=True)
        weights = weights_of(sample_weight, self.max_weight, X.shape[0], called(self))
        middle = low / 2 + high / 2 if self.fit_intercept else 0.0
        mapped = (np.clip(np.asarray(y, dtype=np.float64), low, high) - middle) / self._label_half
        labels = (low - middle) / self._label_half, (high - middle) / self._label_half
        clipped = partial(_beyond, X, y, low, high)
        unit = self._label_half**self._degree
        coefficients, intercept = self._fit(X, mapped, labels, weights, unit, clipped=clipped)
        self.coef_: Floats = coefficients * self._label_half
        self.intercept_: float = float(intercept) * self._label_half + middle if self.fit_intercept else 0.0
        self._say()
        features, half = self._features(X), self._label_half
        measured = (
            each.rescaled(features.middle, features.half, middle, half, {"w": "coef", "b": "intercept"})
            for each in self.release_.measured
            if isinstance(each, Moments)
        )
        self.release_ = replace(self.release_, measured=tuple(measured))
        return self

    def predict(self, X: Any) -> Floats:
        """(n,) predictions."""
        return self._linear(X)

    def _label_range(self) -> tuple[float, float]:
        where = called(self)
        if self.label_bounds is None:
            raise SpecificationError(
                f"{where} has no label_bounds",
                why="how far one label moves the fit must be known without looking at the data",
                remedy="label_bounds=(lo, hi)",
            )
        return pair_of(self.label_bounds, "label_bounds", where)

    @property
    def _label_half(self) -> float:
        """The label that is 1 in the fitted model, less the middle."""
        low, high = self._label_range()
        return high / 2 - low / 2 if self.fit_intercept else max(abs(low), abs(high))

    @property
    def _degree(self) -> int:
        """The power of the label's unit that losses of small residuals are in."""
        return 2

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # small data under a small budget has no good private model
        return tags


@estimator
class PrivateLinearRegression(PrivateRegressor):
    """Ordinary least squares: minimise ``sum_i (x_i' w + b - y_i)^2``.

    Parameters
    ----------
    all : see ``PrivateLinearModel`` and ``PrivateRegressor``.
    """

    def _model(self, z: Any, y: Private, w: Any, b: Any, unit: float) -> tuple[Any, Any, list[Any]]:
        return cp.square(z - y), None, []


@estimator
class PrivateRidge(PrivateRegressor):
    """Least squares with a squared penalty: minimise ``sum_i (x_i' w + b - y_i)^2 + alpha ||w||^2``.

    Parameters
    ----------
    alpha : as in ``sklearn.linear_model.Ridge``, for features mapped to [-1, 1]; the intercept is free.
    others : see ``PrivateLinearModel`` and ``PrivateRegressor``.
    """

    alpha: float = 1.0

    def _check(self) -> None:
        self._number("alpha")

    def _model(self, z: Any, y: Private, w: Any, b: Any, unit: float) -> tuple[Any, Any, list[Any]]:
        return cp.square(z - y), self.alpha * unit**2 * cp.sum_squares(w), []


@estimator
class PrivateLasso(PrivateRegressor):
    """Least squares with the 1-norm of the coefficients at most ``radius``: few features count.

    minimise ``(1/n) sum_i (x_i' w + b - y_i)^2`` subject to ``||w||_1 <= radius``.

    The intercept is constrained: the prediction at the middle of the features' bounds lies within ``label_bounds``.

    A ball and not a penalty: over it the error of private fits grows only with the logarithm of the number of features
    (Talwar, Thakurta and Zhang 2015, "Nearly Optimal Private LASSO"). Which penalty belongs to a ball depends on the
    data.

    Parameters
    ----------
    radius : in units of the label, for features mapped to [-1, 1]: how far all features together can move a prediction
        from the intercept. None: half the width of ``label_bounds`` (the largest size, without an intercept).
    others : see ``PrivateLinearModel`` and ``PrivateRegressor``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpmodel.learn import PrivateLasso
    >>> lasso = PrivateLasso(epsilon=1.0, bounds=(0, 100), label_bounds=(0, 10), radius=5)
    """

    radius: float | None = None

    def _check(self) -> None:
        if self.radius is not None:
            self._number("radius", strict=True)

    def _model(self, z: Any, y: Private, w: Any, b: Any, unit: float) -> tuple[Any, Any, list[Any]]:
        radius = self._label_half if self.radius is None else self.radius
        ball = [cp.norm1(w) <= radius / self._label_half / unit]
        # A bounded set has vertices, among which the best private solvers for many features choose.
        return cp.square(z - y), None, ball if b is None else [*ball, b >= -1, b <= 1]


@estimator
class PrivateHuberRegressor(PrivateRegressor):
    """Robust regression: minimise ``sum_i huber(x_i' w + b - y_i) + alpha ||w||^2``.

    ``huber(r) = r^2`` up to ``threshold`` and ``2 threshold |r| - threshold^2`` beyond.

    Parameters
    ----------
    threshold : in units of the label; ``epsilon`` is the privacy parameter here and not the threshold, as it is in
        ``sklearn.linear_model.HuberRegressor``, and no scale is estimated. None: a tenth of the width of
        ``label_bounds``.
    alpha : as in scikit-learn, for features mapped to [-1, 1].
    others : see ``PrivateLinearModel`` and ``PrivateRegressor``.
    """

    threshold: float | None = None
    alpha: float = 0.0001

    def _check(self) -> None:
        self._number("alpha")
        if self.threshold is not None:
            self._number("threshold", strict=True)

    def _model(self, z: Any, y: Private, w: Any, b: Any, unit: float) -> tuple[Any, Any, list[Any]]:
        low, high = self._label_range()
        threshold = (high - low) / 10 if self.threshold is None else self.threshold
        penalty = self.alpha * unit**2 * cp.sum_squares(w)
        return cp.huber(z - y, threshold / self._label_half), penalty, []


@estimator
class PrivateQuantileRegressor(PrivateRegressor):
    """Quantile regression: minimise ``(1/n) sum_i pinball(y_i - x_i' w - b) + alpha ||w||_1``.

    ``pinball(r) = quantile * max(r, 0) + (1 - quantile) * max(-r, 0)``; the median's is half the absolute value.

    Parameters
    ----------
    quantile : in (0, 1).
    alpha : as in ``sklearn.linear_model.QuantileRegressor``, for features mapped to [-1, 1]. The default is 0 and not
        scikit-learn's 1, which sets all coefficients of features of this size to zero.
    others : see ``PrivateLinearModel`` and ``PrivateRegressor``.
    """

    quantile: float = 0.5
    alpha: float = 0.0

    @property
    def _degree(self) -> int:
        return 1

    def _check(self) -> None:
        self._number("alpha")
        if not 0 < self._number("quantile") < 1:
            raise SpecificationError("PrivateQuantileRegressor: quantile is not in (0, 1)", remedy="quantile=0.5")

    def _model(self, z: Any, y: Private, w: Any, b: Any, unit: float) -> tuple[Any, Any, list[Any]]:
        r = y - z
        penalty = self.alpha * y.shape[0] * unit * cp.norm1(w) if self.alpha else None
        return cp.maximum(self.quantile * r, (self.quantile - 1) * r), penalty, []
