"""Classifiers by exact linear algebra: affine subspaces over any field, and half-spaces of separable data."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from dpmodel._types import Floats
from dpmodel.errors import SpecificationError
from dpmodel.exact.arguments import expected_of, field_of, is_integer
from dpmodel.exact.fields import GF, QQ
from dpmodel.exact.inputs import checked_margin, sealed, vectors_model
from dpmodel.exact.results import AffineSubspace, Result
from dpmodel.exact.subspaces import ExactRows, Field
from dpmodel.learn.classifier import PrivateClassifier, classes_and_places, require_classes
from dpmodel.learn.costs import Counted, called
from dpmodel.learn.features import ONE_ROW_EACH, checked, one_row_each
from dpmodel.learn.linear_model import _rng, estimator
from dpmodel.linalg import Request, feasible_point
from dpmodel.marks.records import Neighbors
from dpmodel.privacy import Budget
from dpmodel.release import Accuracy, Release


def keep_release(estimator: Any, result: Result, variables: Mapping[str, Any], records: int, what: str) -> None:
    """Set ``plan_``, ``guarantee_``, ``release_`` and ``error_forecast_`` of a fit.

    ``records`` : public number, or guess, of those (``what``) that may be misclassified; 0: none was given.
    """
    slack, notes, guarantee = result.accuracy.slack_rows, result.notes, result.guarantee
    share = math.nan if slack is None or not records else min(1.0, slack / records)
    if slack is not None:
        of = f" of about {records}" if records else ""
        notes = (*notes, f"at most {slack}{of} {what} misclassified: {_how(result.accuracy)}")
    estimator.plan_, estimator.guarantee_, estimator.error_forecast_ = result.plan, guarantee, share
    estimator.release_ = Release(
        mechanism=result.mechanism,
        guarantee=guarantee,
        accuracy=result.accuracy,
        status="found" if result.found else "nothing",
        variables=variables,
        spent=(guarantee.epsilon, guarantee.delta),
        plan=result.plan.to_dict(),
        notes=notes,
    )


def _how(accuracy: Accuracy) -> str:
    chance = "" if accuracy.beta is None else f", except with probability {accuracy.beta:g}"
    return f"{'proved' if accuracy.proved else 'a forecast'}{chance}, if the promises about the data hold"


# ---- Affine subspaces: is a point in the affine span of the positive examples? Exact, over any field


_WHOLE = 2.0**53  # up to here a float that is whole is the number that was meant


@estimator
class AffineSubspaceClassifier(ClassifierMixin, Counted):  # type: ignore[misc]
    """Learn ``h(x) = 1[x in V]`` for an affine subspace V of QQ^p or GF(q)^p (KMMST24, Algorithm 8).

    V is estimated by the private affine span of the positive examples; for examples labelled by a subspace h is never
    wrong on a negative one, and wrong on few positive ones. All arithmetic is exact: x is in the span or it is not.

    Parameters
    ----------
    field : "QQ", "GF(q)" for a prime power q, or a field object of ``dpmodel.linalg``. Entries of GF(q) are whole
        numbers (see ``linalg.GF``).
    grid : the exact step to which floats are rounded over QQ, such as "0.01"; None: all entries must be whole, of at
        most 2^53 in size. Features are read as floats, so fractions need a grid.
    epsilon, delta : the budget of one ``fit``. An epsilon is required; delta must be positive (and small against 1/n).
    classes : the two labels (negative, positive), public and required, or "public"; as in ``PrivateClassifier``.
    rank : public bound on the dimension of V, or None: the error then grows with it and not with p (Remark 26).
    corrupted : public guess of the share of positive examples that lie outside V (wrong labels), or None: none do,
        as Algorithm 8 has it. The smallest subspace that leaves out no more than this share is then preferred.
    neighbors : "replace-one" (one example, features and label, is replaced; the number of examples is public, that of
        the positive ones is not) or "add-remove" (one more or less; both numbers are private).
    expected : a public guess of the number of positive examples, for forecasts. None: of the examples.
    beta : probability with which the accuracy statement may fail.
    budget, mechanism, random_state, progress : as in ``PrivateLinearModel``.

    Attributes
    ----------
    classes_ : (2,) the labels. ``subspace_`` : the ``linalg.AffineSubspace`` released; empty where nothing was found,
        and then no point is positive. ``dimension_`` : its dimension, -1 where it is empty.
    n_features_in_, feature_names_in_, guarantee_, release_, plan_ : as in the other estimators. ``error_forecast_`` :
        the share of the positive examples that may be misclassified by the forecast (nan: no statement).

    Notes
    -----
    *Privacy.* The mechanism sees one row per example, in their order: (x, 1) for a positive example, zeros for a
    negative one. Zero rows lie in every span and change nothing that is released. An example more or less is a row
    more or less, and one that is replaced, be it by one with the other label, is one row replaced. So either neighbor
    relation on examples is the same relation on rows, at the same cost. (On the subsequence of positive examples,
    which Algorithm 8 speaks of, replacing an example adds, removes or replaces one element; Algorithm 8 is thus
    private under "add-remove" as it stands, and under "replace-one" at the cost of two changes, which is what the
    mechanism charges.)

    *Theorem C* (KMMST24): for m examples of a distribution D, labelled by an affine subspace, the risk is L_D(h) =
    O(d^2 ln(d / delta) / m) except with probability O(delta), for epsilon = O(1); by Remark 26 with dim V for d. It
    follows from Theorem 5, L_D <= e^(2 epsilon) (L_S + O(ln(1/delta)) / (epsilon m)) (whose print lacks the 1/m). The
    training error L_S is what is forecast here, with its constants: at most the positive examples missed, over m.

    Raises
    ------
    SpecificationError, UnsupportedModelError, BudgetExceededError
        By ``fit``, before anything is spent: floats without a grid, NaN, elements that the field does not have, delta
        = 0, unusable labels, a public number of examples that is too small for any statement.
    """

    field: Any = "QQ"
    grid: Any = None
    epsilon: float | None = None
    delta: float = 1e-6
    classes: Any = None
    rank: int | None = None
    corrupted: float | None = None
    neighbors: Neighbors = "replace-one"
    budget: Budget | None = None
    expected: int | None = None
    beta: float = 0.05
    mechanism: Any = "auto"
    random_state: Any = None
    progress: Any = None

    def fit(self, X: Any, y: Any, groups: Any = None) -> AffineSubspaceClassifier:
        """Learn from rows X (n, p) and labels y (n,) and charge the budget; see the class for errors.

        ``groups`` : (n,) ids of the people whose rows they are, where people have several: of each the first counts.
        """
        require_classes(self)
        where = called(self)
        field = self._field()
        X, y = one_row_each(where, groups, X, y)
        given = y
        X, y = checked(self, X, y, fitting=True)
        classes, places = classes_and_places(self, given, y)
        rows = self._lifted(field, X)
        rows[places == 0] = 0
        # More dimensions than there are columns promise nothing.
        rank: Any = self.rank
        rank = min(int(rank), X.shape[1]) if is_integer(rank, 0) else rank
        facts = {"neighbors": self.neighbors, "rank": rank, "corrupted": self.corrupted, "expected": self.expected}
        model = vectors_model(field, rows.shape, sealed(rows), task="affine span", where=where, **facts)
        if self.expected is not None:  # positive examples, of which there are fewer than rows
            guess = expected_of(self.expected, None, where)
            model = replace(model, expected=guess if model.records is None else min(guess, model.records))
        with self._counted() as budget:
            request = Request(
                where, self._loss.epsilon, self.delta, self.neighbors, budget, self.expected, self.beta, self.mechanism,
                _rng(self.random_state), self.progress, room="learn",
            )  # fmt: skip
            record = "a record is one row of X with its label" if groups is None else ONE_ROW_EACH
            found, shared = request.solve(model, record)
        self.classes_ = classes
        self.subspace_ = AffineSubspace(homogeneous=found.answer, **shared, _grid=self.grid)
        self.dimension_: int = self.subspace_.dimension
        point, directions = self.subspace_.point, self.subspace_.directions
        variables = {} if point is None else {"point": point, "directions": directions.rows}
        keep_release(self, self.subspace_, variables, model.expected, "positive examples")
        return self

    def predict(self, X: Any) -> Any:
        """(n,) labels: the second class for points in V.

        Raises
        ------
        SpecificationError
            For entries that the field (or the grid) does not have.
        """
        check_is_fitted(self, "subspace_")
        X = checked(self, X, fitting=False)
        basis = self.subspace_.homogeneous
        inside = basis.contains(self._lifted(basis.field, X))
        return self.classes_[np.asarray(inside, dtype=np.intp)]

    def _lifted(self, field: Field, X: Any) -> ExactRows:
        """(n, p + 1) exact rows (x, 1), each times a positive rational."""
        X = X.toarray() if sp.issparse(X) else X
        exact: Any = X
        if field.order is not None or self.grid is None:
            if not bool((np.abs(X) <= _WHOLE).all() and (np.floor(X) == X).all()):
                raise SpecificationError(
                    "AffineSubspaceClassifier: X holds numbers that are not whole, or above 2^53",
                    why="membership in a span is decided exactly, and the fractions of floats are not what was meant",
                    remedy="integers" if field.order is not None else 'grid="0.01", to round them, or integers',
                )
            exact = X.astype(np.int64)
        grid = None if field.order is not None else self.grid
        return np.array(field.exact_rows(exact, grid=grid, what="X", ones=True))

    def _field(self) -> Field:
        field: Any = self.field
        if isinstance(field, str):
            found = re.fullmatch(r"GF\((\d{1,10})\)", field)
            if field != "QQ" and not found:
                raise SpecificationError(
                    "AffineSubspaceClassifier: unknown field", remedy='field="QQ", "GF(2)" or a field of dpmodel.linalg'
                )
            field = QQ if field == "QQ" else GF(int(found[1]) if found else 0)
        checked = field_of(field, "AffineSubspaceClassifier")
        if checked.order is not None and self.grid is not None:
            raise SpecificationError(
                "AffineSubspaceClassifier: a grid for a finite field", why="it has no fractions", remedy="grid=None"
            )
        return checked

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True  # most data lie in no subspace, and small data have no private one
        return tags


# ---- Half-spaces: a linear classifier that is right, exactly, on all but a few records of separable data


_ROW = "one row of A"  # what feasible_point calls a record


class HalfspaceClassifier(PrivateClassifier):
    """Find w and b with ``y_i (x_i'w + b) >= 0`` for nearly all records, for data that a half-space separates.

    Each record, features and label together, is one inequality, and ``linalg.feasible_point`` solves the system
    (KMMST24, sections 2.3 and 4). A record's row ``(x_i, s)`` is divided by its own norm, which depends on that record
    alone, so features need no bounds and nothing is clipped.

    Parameters
    ----------
    margin : rho0 in (0, 1], required: the public promise that some unit vector (w, b / s) has
        ``y_i (x_i'w + b) / ||(x_i, s)|| >= rho0`` for all records. With ``||x_i|| <= R``, a unit w, ``|b| <= R``, every
        record at least g on its side of the hyperplane and s = R, rho0 = g / (2 R) is enough. Where it is broken,
        more records may be on the wrong side than stated; privacy does not depend on it.
    epsilon, delta, neighbors, classes, budget, mechanism, random_state, progress : see ``PrivateLinearModel`` and
        ``PrivateClassifier``. Here the number of rows is private under "add-remove".
    fit_intercept : whether there is a b. ``intercept_scaling`` : s, a public size of the rows.
    expected : a public guess of the number of records, for forecasts under "add-remove".
    beta : probability with which the accuracy statement may fail.

    Attributes
    ----------
    classes_, coef_, intercept_, n_features_in_, feature_names_in_, guarantee_, release_, plan_ : as in
        ``PrivateClassifier``. ``release_.status`` is "nothing" where nothing was found; then all coefficients are zero
        and the first class is predicted everywhere. ``error_forecast_`` : the share of the records that may be
        misclassified by the plan's forecast (nan: no statement).

    Notes
    -----
    Generalisation: a half-space found privately from m examples of a distribution has risk
    L_D <= e^(2 epsilon) (L_S + O(ln(1/delta)) / (epsilon m)) except with probability O(delta) (KMMST24, Theorem 5, with
    the 1/m that the proof of Theorem C uses and the print lacks), where L_S is at most ``error_forecast_``.
    Records exactly on the hyperplane count as
    satisfied and are predicted as the first class; without an intercept so are rows of zeros.

    Raises
    ------
    SpecificationError, UnsupportedModelError, BudgetExceededError
        By ``fit``, before anything is spent: no margin or one outside (0, 1], NaN, wrong shapes, unusable labels, a
        public number of records that is too small for any statement.
    """

    _most_classes = 2

    def __init__(
        self,
        *,
        margin: float | None = None,
        epsilon: float | None = None,
        delta: float = 0.0,
        classes: Any = None,
        neighbors: Neighbors = "replace-one",
        budget: Budget | None = None,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        expected: int | None = None,
        beta: float = 0.05,
        mechanism: Any = "auto",
        random_state: Any = None,
        progress: Any = None,
    ) -> None:
        self.margin = margin
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.neighbors = neighbors
        self.budget = budget
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.expected = expected
        self.beta = beta
        self.mechanism = mechanism
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: Any, groups: Any = None) -> HalfspaceClassifier:  # type: ignore[override]
        """Fit the model to rows X (n, p) and labels y (n,) and charge the budget; see the class for errors.

        ``groups`` : (n,) ids of the people whose rows they are, where people have several: of each the first counts.
        """
        require_classes(self)
        self._check()
        X, y = self._of_people(groups, X, y)
        given = y
        X, y = checked(self, X, y, fitting=True)
        classes, places = classes_and_places(self, given, y)
        signs, count = np.where(places, 1.0, -1.0), X.shape[1]
        with self._counted() as budget:
            point = feasible_point(
                _rows(X, signs, self._scale),
                epsilon=self._loss.epsilon,
                delta=self.delta,
                margin=self.margin,
                neighbors=self.neighbors,
                budget=budget,
                expected=self.expected,
                beta=self.beta,
                mechanism=self.mechanism,
                rng=_rng(self.random_state),
                progress=self.progress,
            )
        w = np.zeros(count + 1)
        if point.x is not None:
            w[: len(point.x)] = point.x
        self.classes_ = classes
        self.coef_: Floats = w[None, :count].copy()
        self.intercept_: Floats = w[count:] * self._scale
        guarantee = replace(point.guarantee, record=point.guarantee.record.replace(_ROW, "one row of X with its label"))
        keep_release(self, replace(point, guarantee=guarantee), {}, point.expected, "records")
        self._say(classes[1:])
        return self

    @property
    def _scale(self) -> float:
        """The entry that stands for the intercept; 0 without one."""
        return float(self.intercept_scaling) if self.fit_intercept else 0.0

    def _check(self) -> None:
        if self.margin is None:
            raise SpecificationError(
                "HalfspaceClassifier has no margin",
                why="without a public promise of room between the classes no number of records is enough",
                remedy="margin=0.1, or another classifier of dpmodel.learn where the data are not separable",
            )
        self._number("intercept_scaling", strict=True)
        checked_margin(self.margin, "HalfspaceClassifier: ")


def _rows(X: Any, signs: Floats, scale: float) -> Any:
    """(n, p) or (n, p + 1): ``-y_i (x_i, scale)``, dense or CSR."""
    if sp.issparse(X):
        rows = sp.csr_array(sp.diags_array(-signs) @ sp.csr_array(X))
        return sp.csr_array(sp.hstack([rows, sp.csr_array(-signs[:, None] * scale)])) if scale else rows
    rows = -signs[:, None] * X
    return np.column_stack([rows, -signs * scale]) if scale else rows
