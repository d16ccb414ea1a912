"""Intervals from noisy sums of squares and products: sensitivity, law of the noise, coverage, refusals, printing."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from regressions import regression
from scipy.stats import binom

import dpmodel as dpm
from dpmodel.contract import Options
from dpmodel.errors import ClippedWarning, SpecificationError
from dpmodel.intervals import Fit, table_of
from dpmodel.learn import PrivateLasso, PrivateLinearRegression, PrivateLogisticRegression, PrivateRidge
from dpmodel.learn.features import features_of
from dpmodel.learn.linear_model import _beyond
from dpmodel.marks.measured import Moments
from dpmodel.privacy import SeededSource
from dpmodel.regressions.moments import Layout, layout_of, square_weight, summed, to_vector
from dpmodel.regressions.sufficient_statistics import SUFFICIENT_STATISTICS
from dpmodel.release import Release
from dpmodel.text import number

pytestmark = pytest.mark.filterwarnings("ignore::dpmodel.errors.NotPrivateWarning")

TRUTH = np.array([0.4, -0.2, 0.0])


def rows_of(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    X = generator.uniform(-1, 1, (n, 3))
    return X, X @ TRUTH + 0.1 + 0.08 * generator.standard_normal(n)


def solved(n: int = 3000, epsilon: float = 1.0, delta: float = 1e-6, seed: int = 0, **more: Any) -> Release:
    X, y = rows_of(n, seed)
    records = dpm.Records(neighbors=more.pop("neighbors", "replace-one"))
    A = dpm.Private(X, name="X", unit="row", bounds=[-1, 1], records=records)
    b = dpm.Private(y, name="y", unit="entry", bounds=[-1, 1], records=records)
    w, c = cp.Variable(3, name="w"), cp.Variable(name="c")
    penalty = more.pop("penalty", lambda w: 0)
    problem = dpm.Problem(cp.Minimize(cp.sum_squares(A @ w + c - b) / n + penalty(w)), more.pop("set", lambda w: [])(w))
    problem.solve(epsilon=epsilon, delta=delta, mechanism="sufficient-statistics", rng=seed, **more)
    assert problem.release is not None
    return problem.release


# ---------------------------------------------------------------------------------------- the squares cost nothing


CASES = {
    "replaced": {"lower": -1.0, "upper": 1.0, "intercept": True},
    "replaced, no intercept": {"lower": -1.0, "upper": 1.0},
    "one column": {"lower": 0.0, "upper": 1.0, "intercept": True},
    "norm": {"l2": 1.0},
    "absent": {"lower": -1.0, "upper": 1.0, "absent": True, "intercept": True},
    "absent, no intercept": {"lower": 0.0, "upper": 1.0, "absent": True},
}


def vectors(layout: Layout, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(n, entries) what each record adds to the measured numbers."""
    u = (X - layout.middle) / layout.width
    r = (y - layout.label_middle) / layout.label_width
    upper = np.triu_indices(u.shape[1])
    triangle = u[:, upper[0]] * u[:, upper[1]]
    triangle = triangle if layout.pure else np.where(upper[0] == upper[1], triangle, math.sqrt(2) * triangle)
    parts = [triangle, layout.beta * r[:, None] * u]
    parts += [layout.alpha * u, layout.gamma * r[:, None]] if layout.shifted else []
    return np.c_[*parts, layout.kappa * (r * r - layout.less * (u * u).sum(1))]


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_no_record_moves_more_with_the_squares(name: str, pure: bool) -> None:
    """Ends and odd values of rows and labels; labels from end to end. Half the pairs have one row in common."""
    declared, columns = CASES[name], 1 if name == "one column" else 3
    layout = layout_of(regression(np.zeros((1, columns)), np.zeros(1), **declared), pure)
    assert layout is not None and layout.kappa > 0
    generator, n = np.random.default_rng(0), 20_000
    low = declared.get("lower", -1.0)
    X = np.where(generator.random((n, columns)) < 0.8, generator.choice([low, 1.0], (n, columns)), 0.3)
    X = X / np.linalg.norm(X, axis=1, keepdims=True) if "l2" in declared else X
    y = np.where(generator.random(n) < 0.8, generator.choice([-1.0, 1.0], n), generator.uniform(-1, 1, n))
    one = regression(X[:1], y[:1], **declared)
    measured = vectors(layout, X, y)
    np.testing.assert_allclose(to_vector(layout, summed(layout, one.read_rows())), measured[0], atol=1e-12)
    if layout.less:  # a record against none
        moved = measured
    else:
        other = vectors(
            layout, np.where(generator.random((n, 1)) < 0.5, X, X[::-1]), np.where(X[:, 0] > 0, -y, y[::-1])
        )
        moved = measured - other
    size = np.linalg.norm(moved, ord=1 if pure else 2, axis=1).max()
    assert 0.6 * layout.sensitivity <= size <= layout.sensitivity * (1 + 1e-9)


@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("pure", [False, True])
def test_the_weight_of_squares_is_free_and_a_larger_one_is_not(absent: bool, pure: bool) -> None:
    """Over a grid of (|u|, r) with parallel rows, which is where labels alone differ; the twin has ten times kappa."""
    k, weights = 1, (1.0, 1.2, 0.6)
    alpha, beta, gamma = weights
    kappa = square_weight(k, 1.0, True, absent, pure, weights)
    ends = np.linspace(-1, 1, 21)
    u, r, v, q = (each.ravel() for each in np.meshgrid(ends, ends, ends, ends))
    if absent:
        v, q = np.zeros(1), np.zeros(1)
        u, r = (each.ravel() for each in np.meshgrid(ends, ends))

    def largest(kappa: float) -> float:
        less = float(absent)
        parts = u * u - v * v, alpha * (u - v), beta * (r * u - q * v), gamma * (r - q)
        squares = kappa * ((r * r - less * u * u) - (q * q - less * v * v))
        moved = np.array([*parts, squares])
        return float((np.abs(moved).sum(0) if pure else np.sqrt((moved**2).sum(0))).max())

    assert largest(kappa) <= largest(0.0) * (1 + 1e-12)
    assert largest(10 * kappa) > largest(0.0) * 1.05


# ---------------------------------------------------------------------------------------- the law of the noise


def moments_of(n: int, epsilon: float, delta: float, seed: int, **declared: Any) -> Moments:
    X, y = rows_of(n, seed)
    given = {"lower": -1.0, "upper": 1.0, "intercept": True, **declared}
    out = SUFFICIENT_STATISTICS.run(regression(X, y, **given), Options(epsilon, delta), SeededSource(seed))
    (found,) = out.measured
    assert isinstance(found, Moments)
    return found


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_variance_of_the_noise_is_as_stated(delta: float) -> None:
    """2,000 draws: a variance deviates by 1 / sqrt(1,000), or twice that for Laplace noise; 7 deviations."""
    m, generator = moments_of(500, 1.0, delta, 0), np.random.default_rng(1)
    fit = Fit(m)
    alpha, b = np.array([[1.0, -0.5, 0.2, 0.4]]).T, np.array([[0.3, 0.7, -0.2, 0.5]]).T
    draws = []
    for _ in range(2000):
        shape = m.values.shape
        noise = generator.laplace(size=shape) if m.law == "laplace" else generator.standard_normal(shape)
        gram, right, _ = Fit(replace(m, values=m.scale * noise, total=0.0)).sums
        draws.append(float((alpha.T @ (right[:, None] - gram @ b))[0, 0]))
    stated = fit.noise(alpha, b, b)[0]
    assert np.var(draws) == pytest.approx(stated, rel=7 * (2 if delta == 0 else 1) / math.sqrt(1000))
    # What the error of b adds is the mean over draws of b.
    root = np.linalg.cholesky(fit.covariance + 1e-12 * np.eye(4))
    at = root @ generator.standard_normal((4, 20_000))
    wide = np.repeat(alpha, 20_000, 1)
    still = fit.noise(wide, 0 * at, 0 * at)
    assert np.mean(fit.noise(wide, at, at) - still) == pytest.approx(fit.doubt(alpha)[0], rel=0.1)


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_without_noise_they_are_the_classical_ones(neighbors: str) -> None:
    X, y = rows_of(3000)
    release = solved(epsilon=1e7, delta=0.0, neighbors=neighbors)
    table = release.intervals(0.9)
    A = np.c_[X, np.ones(len(y))]
    w = np.linalg.solve(A.T @ A, A.T @ y)
    half = 1.6448536 * np.sqrt(np.square(y - A @ w).sum() / (len(y) - 4) * np.diag(np.linalg.inv(A.T @ A)))
    np.testing.assert_allclose(table.estimate, w, atol=1e-5)
    np.testing.assert_allclose(np.array([table.low, table.high]), [w - half, w + half], atol=2e-4)
    assert (table.privacy < 0.05).all() and table.names == ("w[0]", "w[1]", "w[2]", "c")
    at = release.intervals(0.9, at=X[:2])
    np.testing.assert_allclose(at.estimate, A[:2] @ w, atol=1e-5)
    low, high = at
    deviation = np.sqrt(np.einsum("ij,jk,ik->i", A[:2], np.linalg.inv(A.T @ A), A[:2]))
    wanted = 2 * 1.6448536 * deviation * np.sqrt(np.square(y - A @ w).sum() / (len(y) - 4))
    np.testing.assert_allclose(high - low, wanted, rtol=0.05)


def test_public_factors_and_penalties_are_those_of_the_model() -> None:
    """Coefficients 2 w and -c: intervals are for the variables; a ridge moves the estimate as it moves the optimum."""
    X, y = rows_of(2000)
    A = dpm.Private(X, name="X", unit="row", bounds=[-1, 1])
    b = dpm.Private(y, name="y", unit="entry", bounds=[-1, 1])
    w = cp.Variable(3, name="w")
    problem = dpm.Problem(cp.Minimize(cp.sum_squares(A @ (-2 * w) - b) / 2000 + 0.3 * cp.sum_squares(w) + w[0]))
    problem.solve(epsilon=1e7, mechanism="sufficient-statistics", rng=0)
    assert problem.release is not None
    table = problem.release.intervals()
    np.testing.assert_allclose(table.estimate, w.value, atol=1e-4)
    np.testing.assert_allclose(table.released, w.value)
    assert "public penalty" in table.of and (table.low < table.estimate).all() and (table.estimate < table.high).all()


def test_a_design_that_drowns_has_no_ends() -> None:
    release = solved(n=60, epsilon=0.1)
    table = release.intervals()
    assert np.isinf(table.high[:3]).all() and np.isinf(table.low[:3]).all() and (table.privacy[:3] == 1).all()
    assert "inf" in str(table)


def test_chance_ends_of_a_design_that_drowns_are_noted() -> None:
    """Narrow columns with large coefficients: of 400 draws few have ends, which mostly miss; nearly all are noted."""
    generator = np.random.default_rng(0)
    X = generator.uniform(-0.1, 0.1, (3000, 2))
    y = X @ [4.0, -2.0] + 0.1 + 0.1 * generator.standard_normal(3000)
    given: dict[str, Any] = {"lower": -1.0, "upper": 1.0, "intercept": True}
    out = SUFFICIENT_STATISTICS.run(regression(X, y, **given), Options(0.2, 0.0), SeededSource(0))
    m, layout = out.measured[0], layout_of(regression(X, y, **given), True)
    assert isinstance(m, Moments) and layout is not None and m.law == "laplace"
    named = replace(m, variable=("w",) * 3, place=np.arange(3))
    exact, finite, hits, noted = vectors(layout, X, y).sum(axis=0), 0, 0, 0
    for _ in range(400):
        values = exact + m.scale * generator.laplace(size=exact.size)
        table = table_of(replace(named, values=values), 0.95, {"w": np.zeros(3)}, {})
        ends = np.isfinite(table.high[:2])
        finite += ends.sum()
        hits += (ends & (table.low[:2] <= [4, -2]) & (table.high[:2] >= [4, -2])).sum()
        noted += ends.sum() * any("chance" in note for note in table.notes)
    assert 5 < finite < 80 and hits < 0.7 * finite and noted > 0.9 * finite
    assert not any("chance" in note for note in solved().intervals().notes)


def covered(delta: float, n: int, epsilon: float, runs: int, **declared: Any) -> float:
    """The share of intervals that hold the truth: new rows and new noise for each run, of one layout."""
    truth = np.r_[TRUTH, 0.1]
    m = moments_of(n, epsilon, delta, 0, **declared)  # with Laplace noise where that is less
    layout = layout_of(regression(*rows_of(n), lower=-1.0, upper=1.0, intercept=True, **declared), m.law == "laplace")
    assert layout is not None
    named = replace(m, variable=("w",) * 4, place=np.arange(4))
    generator, inside = np.random.default_rng(7), []
    for seed in range(runs):
        exact = vectors(layout, *rows_of(n, seed + 1)).sum(axis=0)
        noise = generator.laplace(size=exact.size) if layout.pure else generator.standard_normal(exact.size)
        low, high = table_of(replace(named, values=exact + m.scale * noise), 0.95, {"w": np.zeros(4)}, {})
        inside.append(((low <= truth) & (truth <= high)).mean())
    return float(np.mean(inside))


@pytest.mark.slow
@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize(("n", "epsilon"), [(400, 1.0), (2000, 0.5), (2000, 5.0)])
def test_they_cover(delta: float, n: int, epsilon: float, absent: bool) -> None:
    """The coefficients of a run count as one draw, of 1,000; a share below .91 is chance with less than 1e-6."""
    share = covered(delta, n, epsilon, 1000, absent=absent)
    assert binom.cdf(round(1000 * share), 1000, 0.95) > 1e-6 and share > 0.93


def test_they_cover_in_few_runs() -> None:
    for delta in (0.0, 1e-6):
        assert binom.cdf(round(100 * covered(delta, 800, 1.0, 100)), 100, 0.95) > 1e-6


# ---------------------------------------------------------------------------------------- copies, refusals, printing


def test_copies_have_them_too() -> None:
    release = solved()
    table = release.intervals()
    for again in (Release.from_json(release.to_json()), pickle.loads(pickle.dumps(release)), copy.deepcopy(release)):
        other = again.intervals()
        np.testing.assert_array_equal([other.low, other.high], [table.low, table.high])
        assert str(again.summary()) == str(release.summary())
    assert table.to_frame()["lower"].tolist() == table.low.tolist()
    assert table.to_dict()["names"] == ["w[0]", "w[1]", "w[2]", "c"]


def test_what_has_no_law_is_refused_with_the_reason() -> None:
    for release, why in (
        (solved(set=lambda w: [cp.norm1(w) <= 0.1]), "a constraint binds"),
        (solved(penalty=lambda w: 0.1 * cp.norm1(w)), "a penalty with a kink"),
    ):
        with pytest.raises(SpecificationError, match=why):
            release.intervals()
    assert np.isfinite(solved(set=lambda w: [cp.norm1(w) <= 50]).intervals().low).all()
    release = solved()
    for wrong in ({"level": 95}, {"level": True}, {"level": "0.9"}, {"at": np.zeros((2, 4))}, {"at": "rows"}):
        with pytest.raises(SpecificationError):
            release.intervals(**wrong)
    assert release.intervals(at=[0.0, 0.0, 0.0]).low.shape == (1,)


def test_estimators_speak_of_the_data_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    generator = np.random.default_rng(3)
    X = np.c_[generator.uniform(20, 80, 4000), generator.uniform(0, 5, 4000)]
    y = 0.5 * X[:, 0] - 3 * X[:, 1] + 10 + generator.standard_normal(4000)
    given: dict[str, Any] = {"bounds": {0: (20, 80), 1: (0, 5)}, "label_bounds": (0, 60), "random_state": 0}
    given["mechanism"] = "sufficient-statistics"
    for intercept in (True, False):
        model = PrivateLinearRegression(epsilon=1e6, fit_intercept=intercept, **given).fit(X, y)
        table = model.release_.intervals()
        np.testing.assert_allclose(table.estimate[:2], model.coef_, rtol=1e-3)
        np.testing.assert_allclose(model.release_.intervals(at=X[:3]).estimate, model.predict(X[:3]), rtol=1e-3)
        if intercept:
            assert table.estimate[2] == pytest.approx(model.intercept_, rel=1e-3)
            assert table.names[-1] == "intercept"
            np.testing.assert_allclose(table.estimate, [0.5, -3, 10], atol=0.5)
    text = str(PrivateRidge(epsilon=1, **given).fit(X, y).summary())
    assert max(map(len, text.splitlines())) <= 80 and "4000 records, epsilon 1" in text.splitlines()[0]
    bound = PrivateLasso(epsilon=100, radius=1, **given).fit(X, y)
    with pytest.raises(SpecificationError, match="binds"):
        bound.release_.intervals()
    assert "binds" in " ".join(str(bound.summary()).split())
    with pytest.raises(SpecificationError, match="level"):
        bound.summary(95)
    del given["label_bounds"]
    given["mechanism"] = "auto"
    for model, labels in (
        (PrivateLogisticRegression(epsilon=1, classes=(0, 1), **given), (y > 20).astype(int)),
        (PrivateLinearRegression(epsilon=1, delta=1e-6, label_bounds=(0, 60), **given), y),
    ):
        fitted = model.set_params(mechanism="noisy-descent" if labels is y else "auto").fit(X, labels)
        text = str(fitted.summary())
        assert max(map(len, text.splitlines())) <= 80 and number(float(np.ravel(fitted.coef_)[1])) in text
        assert "No intervals: no law is known" in text and "sufficient-statistics" in text and "intercept" in text
        with pytest.raises(SpecificationError, match="no law is known"):
            fitted.release_.intervals()


# ---------------------------------------------------------------------------------------- the number of clipped rows


def fitted(**given: Any) -> PrivateLinearRegression:
    """3,000 rows, of which 300 have a label and 60 a column beyond their bounds, 20 both."""
    X, y = rows_of(3000)
    y[:300], X[280:340, 1] = 5.0, -7.0
    bounds: dict[str, Any] = {"bounds": (-1, 1), "label_bounds": (-1, 1), "mechanism": "sufficient-statistics"}
    return PrivateLinearRegression(**{"epsilon": 1e4, "random_state": 0, **bounds, **given}).fit(X, y)


def test_clipped_rows_are_counted_when_paid_for() -> None:
    silent, uncounted = fitted(), "nobody counted how many (count_clipped"
    assert silent.clipped_ is None and uncounted in " ".join(str(silent.summary()).split())
    budget = dpm.Budget(1e4)
    with pytest.warns(ClippedWarning, match="of 3000 rows"):
        model = fitted(count_clipped=0.1, budget=budget)
    assert float(model.clipped_) == pytest.approx(340, abs=0.05)  # noise of scale .001
    assert model.guarantee_.epsilon == 1e4 == model.release_.guarantee.epsilon
    assert [charge.epsilon for charge in budget.history] == pytest.approx([9e3, 1e3])
    text = " ".join(str(model.summary()).split())
    assert "clipped rows: 340" in text and uncounted not in text
    assert Release.from_json(model.release_.to_json()).guarantee.epsilon == 1e4
    wide = fitted(count_clipped=0.1, bounds=(-8, 8), label_bounds=(-6, 6))  # no warning
    assert float(wide.clipped_) == pytest.approx(0, abs=0.05)
    with pytest.raises(dpm.errors.BudgetExceededError):
        fitted(count_clipped=0.1, budget=dpm.Budget(9.5e3))
    for wrong in (0.6, -0.1, "0.1", True):
        with pytest.raises(SpecificationError, match="count_clipped"):
            fitted(count_clipped=wrong)


def test_one_record_moves_the_number_of_clipped_rows_by_one_at_most() -> None:
    """By brute force over replacements; norms and sparse rows too. The noise has the scale of 1 / its share."""
    generator = np.random.default_rng(0)
    for max_l2, sparse in ((None, False), (1.2, False), (1.2, True), (None, True)):
        features = features_of((-1, 1), max_l2, None, 2, centre=False, where="test")
        for _ in range(50):
            X, y = generator.normal(size=(6, 2)), generator.normal(size=6)
            other, label = X.copy(), y.copy()
            other[2], label[2] = generator.normal(size=2) * 3, generator.normal() * 3
            given = [sp.csr_array(each) if sparse else each for each in (X, other)]
            counts = [
                int(_beyond(rows, each, -1, 1, features).sum()) for rows, each in zip(given, (y, label), strict=True)
            ]
            long = np.linalg.norm(X, axis=1) > (np.inf if max_l2 is None else max_l2)
            assert counts[0] == (long | (np.abs(X) > 1).any(axis=1) | (np.abs(y) > 1)).sum()
            assert abs(counts[0] - counts[1]) <= 1
    # A row of exactly that norm is not clipped, however its squares and the norm are rounded; one just beyond is.
    for lists in (2, 3, 6):
        X = np.eye(2)[generator.integers(0, 2, (200, lists))].reshape(200, -1)
        features = features_of(None, math.sqrt(lists), None, 2 * lists, centre=False, where="test")
        assert [features.beyond(make(t * X)).sum() for make in (np.asarray, sp.csr_array) for t in (1, 1 + 1e-6)] == [
            0, 200, 0, 200
        ]  # fmt: skip
    X = generator.normal(size=(200, 5))
    features = features_of(None, 1.0, None, 5, centre=False, where="test")
    assert not features.beyond(X / np.linalg.norm(X, axis=1, keepdims=True)).any()
    with pytest.warns(ClippedWarning):
        far = [float(fitted(epsilon=2.0, count_clipped=0.25, random_state=seed).clipped_) - 340 for seed in range(12)]
    assert 0.2 < np.mean(np.abs(far)) < 8  # scale 2


def test_counting_clipped_rows_asks_a_budget_for_what_is_charged() -> None:
    """A fit with Gaussian noise and a pure count, not a black box of both; a search has paid for both."""
    pytest.importorskip("sklearn")
    from dpmodel.learn import PrivateRidge, PrivateSearchCV

    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (300, 2))
    budget = dpm.Budget(1, 1e-6, composition="gaussian")
    ridge = PrivateRidge(
        epsilon=0.1, delta=1e-8, bounds=(-1, 1), label_bounds=(-1, 1), count_clipped=0.1, budget=budget, random_state=0
    )
    ridge.fit(X, X[:, 0])
    assert [charge.epsilon for charge in budget.history] == pytest.approx([0.09, 0.01])
    tight = dpm.Budget(1, 1e-6)  # by sums it holds both; with the fit's Gaussian noise charged first no count
    with pytest.raises(dpm.errors.BudgetExceededError):
        ridge.set_params(epsilon=0.6, delta=6e-7, count_clipped=0.5, budget=tight).fit(X, X[:, 0])
    assert not tight.history
    own = PrivateRidge(bounds=(-1, 1), label_bounds=(-1, 1), count_clipped=0.1)
    search = PrivateSearchCV(own, {"alpha": [0.1, 1]}, epsilon=1.0, random_state=0).fit(X, X[:, 0])
    assert search.best_estimator_.clipped_ is not None
