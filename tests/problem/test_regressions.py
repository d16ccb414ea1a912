"""Regressions from end to end: written in CVXPY, planned, solved, released; and the wrong inputs people really make."""

from __future__ import annotations

import json

import cvxpy as cp
import numpy as np
import pytest
from families import PORTFOLIO, REGRESSIONS
from regressions import objective as true_objective

import dpmodel as dpm
from dpmodel.regressions.frank_wolfe import FrankWolfe
from dpmodel.regressions.model import PrivateRegression

N, P = 4000, 6
RNG = np.random.default_rng(0)
FEATURES = RNG.choice([-1.0, 1.0], (N, P))
TRUTH = np.array([0.5, -0.3, 0.0, 0.0, 0.0, 0.1])
SCORES = FEATURES @ TRUTH + 0.1 * RNG.normal(size=N)
SIGNS = np.where(SCORES + 0.2 * RNG.normal(size=N) > 0, 1.0, -1.0)


class Written:
    """A regression with everything within reach; ``features`` and ``labels`` are options of their Privates."""

    def __init__(self, features=None, labels=None, values=SCORES, X=FEATURES, neighbors="replace-one"):
        self.records = dpm.Records("people", neighbors=neighbors)
        features = {"bounds": [-1, 1]} if features is None else features
        labels = {"bounds": [-1, 1]} if labels is None else labels
        self.X = dpm.Private(X, name="X", unit="row", records=self.records, **features)
        self.y = dpm.Private(values, name="y", unit="entry", records=self.records, **labels)
        self.w = cp.Variable(X.shape[1], name="w")

    def squared(self):
        return cp.sum_squares(self.X @ self.w - self.y) / N

    def problem(self, *constraints, objective=None):
        return dpm.Problem(cp.Minimize(self.squared() if objective is None else objective), list(constraints))


LOSSES = {
    "squared": lambda m: cp.sum_squares(m.X @ m.w - m.y) / N,
    "absolute": lambda m: cp.norm1(m.X @ m.w - m.y) / N,
    "huber": lambda m: cp.sum(cp.huber(m.X @ m.w - m.y, 0.3)) / N,
    "quantile": lambda m: cp.sum(cp.maximum(0.3 * (m.y - m.X @ m.w), -0.7 * (m.y - m.X @ m.w))) / N,
    "logistic": lambda m: cp.sum(cp.logistic(-cp.multiply(m.y, m.X @ m.w))) / N,
    "hinge": lambda m: cp.sum(cp.pos(1 - cp.multiply(m.y, m.X @ m.w))) / N,
    "squared_hinge": lambda m: cp.sum(cp.square(cp.pos(1 - cp.multiply(m.y, m.X @ m.w)))) / N,
}


REPRESENTATIVES = {("squared", "l2"), ("logistic", "l2")}
# One loss of residuals and one of margins by default.
EACH = [
    pytest.param(loss, ball, id=f"{loss}-{name}", marks=() if (loss, name) in REPRESENTATIVES else pytest.mark.slow)
    for loss in LOSSES
    for name, ball in {"l1": cp.norm1, "l2": cp.norm, "linf": cp.norm_inf}.items()
]


@pytest.mark.parametrize(("loss", "ball"), EACH)
def test_every_loss_over_every_ball_is_released_near_its_minimum(loss, ball):
    written = Written(values=SIGNS if loss in ("logistic", "hinge", "squared_hinge") else SCORES)
    problem = written.problem(ball(written.w) <= 1, objective=LOSSES[loss](written))
    assert problem.is_dp()
    problem.solve(epsilon=2, delta=1e-6, rng=3)
    model = problem._model(None)
    assert isinstance(model, PrivateRegression) and model.loss.name == loss
    best = cp.Variable(P)
    plain = Written.__new__(Written)
    plain.X, plain.y, plain.w = FEATURES, SIGNS if model.loss.labels == "sign" else np.clip(SCORES, -1, 1), best
    minimum = cp.Problem(cp.Minimize(LOSSES[loss](plain)), [ball(best) <= 1]).solve()
    released = np.asarray(problem.release.variables["w"])
    assert ball(cp.Constant(released)).value <= 1 + 1e-6
    excess = true_objective(model, released) - minimum
    nothing = true_objective(model, np.zeros(P)) - minimum
    assert -1e-6 <= excess <= 0.2 * nothing
    assert problem.release.mechanism in {m.name for m in REGRESSIONS}
    assert problem.release.value is None and problem.value is None  # it would speak of private rows
    assert "clipped" in " ".join(problem.release.notes)
    json.dumps(problem.release.to_dict())


@pytest.mark.slow
def test_plan_and_explanation_speak_of_excess_risk_and_need_no_values():
    written = Written()
    written.X.value = written.y.value = None
    problem = written.problem(cp.norm1(written.w) <= 1)
    plan = problem.plan(epsilon=1, delta=1e-6, as_printed=True)
    assert [c.mechanism for c in plan.candidates] == [m.name for m in REGRESSIONS]
    best = min(c.forecast.error.predicted for c in plan.candidates if c.eligible and not c.forecast.vacuous)
    assert plan.chosen.forecast.error.predicted == best
    assert "excess risk" in str(plan) and "lower bound" in str(plan.table()) and "excess risk" in plan._repr_html_()
    assert "squared loss" in str(problem.explain()) and "l1 set" in str(problem.explain())
    cells = problem.classify().cells
    assert {(c.part, c.level, c.parameter) for c in cells} == {("objective", "low", "X"), ("objective", "low", "y")}
    json.dumps([plan.to_dict(), problem.explain().to_dict(), problem.classify().to_dict()])


def test_a_mechanism_with_settings_of_its_own():
    written = Written()
    problem = written.problem(cp.norm1(written.w) <= 1)
    mine = FrankWolfe(steps=3)
    problem.solve(epsilon=1, delta=1e-6, mechanism=mine, rng=0)
    chosen = next(c for c in problem.release.plan["candidates"] if c["mechanism"] == "frank-wolfe")
    assert chosen["forecast"]["noise"]["steps"] == 3
    plan = problem.plan(epsilon=1, delta=1e-6, mechanism=mine)
    assert plan.chosen.mechanism == "frank-wolfe"


@pytest.mark.slow
def test_mechanisms_of_the_other_kind_say_so():
    written = Written()
    problem = written.problem(cp.norm1(written.w) <= 1)
    with pytest.raises(dpm.errors.UnsupportedModelError, match="linear and cone programs"):
        problem.solve(epsilon=1, delta=1e-6, mechanism="laplace-once")
    c = dpm.Private(np.ones(3), name="c", l1=1)
    x = cp.Variable(3, nonneg=True)
    linear = dpm.Problem(cp.Minimize(c @ x), [cp.sum(x) == 1])
    with pytest.raises(dpm.errors.UnsupportedModelError, match="serves regressions"):
        linear.solve(epsilon=1, delta=1e-6, mechanism="noisy-descent")
    names = [[m.name for m in family] for family in (PORTFOLIO, REGRESSIONS)]
    assert all(len(set(family)) == len(family) for family in names)
    assert set(names[0]) & set(names[1]) == {"public-only"}  # the point that reads nothing stands in every plan


@pytest.mark.slow
def test_a_public_parameter_may_change_between_solves():
    written, weight = Written(), cp.Parameter(nonneg=True, name="weight", value=0.1)
    problem = written.problem(
        cp.norm1(written.w) <= 1, objective=written.squared() + weight * cp.sum_squares(written.w)
    )
    assert problem._model(None).penalty.ridge[0] == pytest.approx(0.1)
    weight.value = 5.0
    assert problem._model(None).penalty.ridge[0] == pytest.approx(5.0)
    problem.solve(epsilon=5, delta=1e-6, rng=0)
    assert np.abs(written.w.value).max() < 0.2  # pulled to zero


@pytest.mark.slow
def test_several_variables_and_auxiliary_ones_come_back():
    written = Written()
    b, t = cp.Variable(name="b"), cp.Variable(P, name="t")
    loss = cp.sum_squares(written.X @ written.w + b - written.y) / N
    problem = written.problem(cp.abs(written.w) <= t, cp.sum(t) <= 1, cp.abs(b) <= 1, objective=loss)
    problem.solve(epsilon=2, delta=1e-6, mechanism="sufficient-statistics", rng=0)
    assert set(problem.release.variables) == {"w", "b", "t"}
    assert (np.abs(written.w.value) <= t.value + 1e-5).all() and t.value.sum() <= 1 + 1e-5
    assert np.abs(written.w.value - TRUTH).max() < 0.3 and abs(b.value) < 0.3


# ------------------------------------------------------------------ wrong inputs
def refused(call, kind, *words, budget):
    with pytest.raises(kind) as caught:
        call()
    text = str(caught.value)
    assert all(word in text for word in words), text
    assert "why" in text and "try" in text, text
    assert budget.history == ()
    return text


@pytest.fixture
def budget():
    return dpm.Budget(10, 1e-3)


def test_rows_without_bounds(budget):
    written = Written(features={})
    problem = written.problem(cp.norm1(written.w) <= 1)
    refused(lambda: problem.solve(1, 1e-6, budget=budget), dpm.errors.SpecificationError, "X", "max_l2", budget=budget)


def test_labels_without_bounds(budget):
    written = Written(labels={})
    problem = written.problem(cp.norm1(written.w) <= 1)
    refused(lambda: problem.solve(1, 1e-6, budget=budget), dpm.errors.SpecificationError, "y", "bounds", budget=budget)


def test_labels_declared_too_wide_for_signs(budget):
    written = Written(values=SIGNS, labels={"bounds": [0, 2]})
    problem = written.problem(objective=LOSSES["logistic"](written))
    refused(lambda: problem.plan(1, 1e-6), dpm.errors.SpecificationError, "y", "[-1, 1]", budget=budget)


def test_missing_labels(budget):
    written = Written()
    written.y.value = None
    problem = written.problem(cp.norm1(written.w) <= 1)
    call = lambda: problem.solve(1, 1e-6, mechanism="sufficient-statistics", budget=budget)  # noqa: E731
    refused(call, dpm.errors.MissingValueError, "y", budget=budget)


def test_a_clip_where_there_is_no_regression(budget):
    c = dpm.Private(np.ones(3), name="c", l1=1)
    x = cp.Variable(3, nonneg=True)
    problem = dpm.Problem(cp.Minimize(c @ x), [cp.sum(x) == 1], clip=1.0)
    refused(lambda: problem.solve(1, budget=budget), dpm.errors.SpecificationError, "regression", budget=budget)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"feasibility": dpm.AllBut(rows=3)}, "AllBut"),
        ({"feasibility": dpm.Exact()}, "Exact"),
        ({"goal": dpm.Target(1.0)}, "Target"),
        ({"goal": "best"}, "goal='best'"),
        ({"mechanism": dpm.mechanisms.VertexExponential(vertices=[[0.0] * P])}, "vertices"),
    ],
)
def test_options_of_linear_programs(given, words, budget):
    written = Written()
    problem = written.problem(cp.norm1(written.w) <= 1)
    call = lambda: problem.solve(1, 1e-6, budget=budget, **given)  # noqa: E731
    refused(call, dpm.errors.SpecificationError, words, budget=budget)


def test_unbounded_coefficients_where_the_mechanism_needs_a_set(budget):
    written = Written()
    problem = written.problem()
    call = lambda: problem.solve(1, 1e-6, mechanism="frank-wolfe", budget=budget)  # noqa: E731
    refused(call, dpm.errors.UnsupportedModelError, "vertices", "sufficient-statistics", budget=budget)
    problem.solve(1, 1e-6, mechanism="sufficient-statistics", budget=budget, rng=0)  # others need none
    assert np.abs(written.w.value - TRUTH).max() < 0.2


def test_a_free_intercept_beside_an_l1_ball(budget):
    """The ball does not cover the intercept: what needs a bounded set says so, the others serve."""
    written, b = Written(), cp.Variable(name="b")
    loss = cp.sum_squares(written.X @ written.w + b - written.y) / N
    problem = written.problem(cp.norm1(written.w) <= 1, objective=loss)
    plan = problem.plan(1, 1e-6)
    reasons = {c.mechanism: c.reason for c in plan.candidates if not c.eligible}
    assert "frank-wolfe" in reasons and "gaussian-frank-wolfe" in reasons
    assert plan.chosen.eligible


def test_an_infeasible_set(budget):
    written = Written()
    problem = written.problem(cp.norm1(written.w) <= 1, cp.sum(written.w) >= 3)
    with pytest.raises(dpm.errors.InfeasibleError):
        problem.solve(1, 1e-6, budget=budget)
    assert budget.history == ()


def test_a_term_that_does_not_fit_is_named():
    written = Written()
    problem = written.problem(objective=written.squared() + cp.sum(cp.exp(written.X @ written.w)))
    text = ""
    with pytest.raises(dpm.errors.UnsupportedModelError) as caught:
        problem.classify()
    text = str(caught.value)
    assert "exp" in text and not problem.is_dp()


# ------------------------------------------------------------------------------------ spellings and data by hand
MIX = np.linalg.qr(np.random.default_rng(1).normal(size=(P, 2)))[0]
FEW = slice(0, 200)
CLIPPED = np.clip(SCORES[FEW], -1, 1)


def _private(name, values, records, unit, **declared):
    return dpm.Private(values, name=name, unit=unit, records=records, **declared)


def _by_hand(features, labels, loss, **declared):
    """(records) -> objective and variable, of data transformed before they are declared."""

    def write(records):
        X = _private("X", features, records, "row", **declared)
        y = _private("y", labels, records, "entry", bounds=[-1, 1])
        w = cp.Variable(features.shape[1], name="w")
        return loss(X @ w, y) / len(labels), w

    return write


def _squares(z, y):
    return cp.sum_squares(z - y)


def _logistic(z, y):
    return cp.sum(cp.logistic(-cp.multiply(y, z)))


def _spelled_picked(records):
    X, y = FEATURES[FEW], CLIPPED
    w = cp.Variable(2, name="w")
    X, y = _private("X", X, records, "row", bounds=[-1, 1]), _private("y", 2 * y, records, "entry", bounds=[-2, 2])
    return cp.sum_squares(X[:, [0, 5]] @ w - y / 2) / y.size, w


def _spelled_mixed(records):
    X, y = FEATURES[FEW], CLIPPED
    w = cp.Variable(2, name="w")
    X, y = _private("X", X / np.sqrt(P), records, "row", max_l2=1), _private("y", y, records, "entry", bounds=[-1, 1])
    return cp.sum_squares((X @ MIX) @ w - y) / y.size, w


def _spelled_columns(records):
    X, y = FEATURES[FEW], CLIPPED
    w = cp.Variable(P, name="w")
    X, y = _private("X", X.T, records, "column", bounds=[-1, 1]), _private("y", y, records, "entry", bounds=[-1, 1])
    return (cp.sum_squares(X.T @ w) - 2 * y @ (w @ X)) / y.size, w


def _spelled_recoded(records):
    X, y = FEATURES[FEW], CLIPPED
    w, size = cp.Variable(P, name="w"), len(y)
    X = _private("X", X, records, "row", bounds=[-1, 1])
    y = _private("y", (SIGNS[FEW] > 0) * 1.0, records, "entry", bounds=[0, 1])
    return sum(cp.logistic((1 - 2 * y[i]) * (X[i] @ w)) for i in range(size)) / size, w


TABLE = FEATURES[FEW]
PAIRS = {
    "picked": ("sufficient-statistics", _spelled_picked, _by_hand(TABLE[:, [0, 5]], CLIPPED, _squares, bounds=[-1, 1])),
    "mixed": ("sufficient-statistics", _spelled_mixed, _by_hand(TABLE @ MIX / np.sqrt(P), CLIPPED, _squares, max_l2=1)),
    "columns": ("sufficient-statistics", _spelled_columns, _by_hand(TABLE, CLIPPED, _squares, bounds=[-1, 1])),
    "recoded": ("objective-perturbation", _spelled_recoded, _by_hand(TABLE, SIGNS[FEW], _logistic, bounds=[-1, 1])),
}


@pytest.mark.parametrize("name", [*list(PAIRS)[:-1], pytest.param("recoded", marks=pytest.mark.slow)])
def test_a_spelling_releases_what_data_transformed_by_hand_release(name):
    """The same draws give the same coefficients: bounds, clipping and noise are the same."""
    mechanism, *written = PAIRS[name]
    released = []
    for write in written:
        objective, w = write(dpm.Records("people"))
        problem = dpm.Problem(cp.Minimize(objective), [cp.norm(w) <= 1])
        problem.solve(epsilon=1, delta=1e-6, mechanism=mechanism, rng=5)
        released.append(np.asarray(problem.release.variables["w"]))
    np.testing.assert_allclose(released[0], released[1], rtol=1e-5, atol=1e-7)
