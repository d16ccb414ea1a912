"""Private weights of records: what one record moves, brute-forced; what serves them; what is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.contract import Options
from dpmodel.errors import UnsupportedModelError
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.pure_objective_perturbation import PureObjectivePerturbation
from dpmodel.solve.registry import KINDS

RNG = np.random.default_rng(0)
MOST = 4.0  # the largest weight
LOSSES: dict[str, Any] = {
    "logistic": lambda z, y: cp.logistic(-cp.multiply(y, z)),
    "hinge": lambda z, y: cp.pos(1 - cp.multiply(y, z)),
    "squared hinge": lambda z, y: cp.square(cp.pos(1 - cp.multiply(y, z))),
    "squared": lambda z, y: cp.square(z - y),
    "huber": lambda z, y: cp.huber(z - y, 0.5),
    "quantile": lambda z, y: cp.maximum(0.3 * (y - z), -0.7 * (y - z)),
}


def problem(loss: str, rows: Any, labels: Any, weights: Any, form: str = "product", **given: Any) -> dpm.Problem:
    """Of coefficients in a box and an intercept; ``weights`` private unless ``form`` is "public"."""
    people = dpm.Records(neighbors=given.get("neighbors", "replace-one"))
    X = dpm.Private(rows, name="X", unit="row", bounds=[-1, 1], records=people)
    y = dpm.Private(labels, name="y", unit="entry", bounds=[-1, 1], records=people)
    w, b = cp.Variable(rows.shape[1], bounds=[-1, 1]), cp.Variable(bounds=[-1, 1])
    each = LOSSES[loss](X @ w + b, y)
    if form != "public":
        weights = dpm.Private(weights, name="weights", unit="entry", bounds=[0, MOST], records=people)
    total = cp.sum(cp.multiply(weights, each)) if form == "sum" else weights @ each
    return dpm.Problem(cp.Minimize(total / len(labels) + 0.01 * cp.sum_squares(w)))


def model_of(*given: Any, **named: Any) -> PrivateRegression:
    return PrivateRegression.of(problem(*given, **named))  # type: ignore[return-value]


N = 5
ROWS, LABELS, WEIGHTS = RNG.uniform(-1, 1, (N, 2)), RNG.choice([-1.0, 1.0], N), RNG.uniform(0, MOST, N)


@pytest.mark.parametrize("form", ["sum", "product"])
@pytest.mark.parametrize("loss", LOSSES)
def test_it_is_the_regression_of_public_weights_with_bounds_for_their_numbers(loss: str, form: str) -> None:
    ours, public = model_of(loss, ROWS, LABELS, WEIGHTS, form), model_of(loss, ROWS, LABELS, WEIGHTS, "public")
    assert ours.weighed and not public.weighed and ours.loss == public.loss
    assert (ours.total, ours.largest_weight, ours.scale) == (N, 1.0, pytest.approx(MOST / N))
    np.testing.assert_allclose(ours.scale * ours.read_rows().weights, public.scale * public.read_rows().weights)
    assert {p.name() for p in ours.private} == {"X", "y", "weights"}
    assert "weights" in str(problem(loss, ROWS, LABELS, WEIGHTS).classify())


def moved(loss: str, neighbors: str, clipped: bool = True) -> tuple[float, float]:
    """How far a record moves the sum that mechanisms add noise to, over all corners and weights of 0, in between, the
    largest and beyond, in the 2-norm; and what is said of it."""
    w = np.array([1.0, -1.0, 0.5])

    model = model_of(loss, ROWS, LABELS, WEIGHTS, neighbors=neighbors)
    sealed = {parameter.name(): parameter for parameter in model.private}

    def gradient(row: Any, label: float, weight: float) -> Any:
        rows, labels, weights = ROWS.copy(), LABELS.copy(), WEIGHTS.copy()
        rows[2], labels[2], weights[2] = row, label, weight
        sealed["X"].value, sealed["y"].value, sealed["weights"].value = rows, labels, weights
        table = model.read_rows()
        table = table if clipped else replace(table, weights=weights / MOST)
        return np.asarray(table.combine(model.loss.derivative(table.predict(w), table.labels)))

    corners = product(product([-1.0, 1.0], repeat=2), [-1.0, 1.0], [0.0, 1.7, MOST, 3 * MOST])
    found = [gradient(*each) for each in corners]
    others = found if neighbors == "replace-one" else [gradient(0.0, 0.0, 0.0)]  # an absent record
    most = max(float(np.linalg.norm(one - two)) for one, two in product(found, others))
    return most, model.gradient_sensitivity(2.0)


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared"])
def test_no_record_moves_a_gradient_further_than_its_sensitivity(loss: str, neighbors: str) -> None:
    most, said = moved(loss, neighbors)
    assert 0.4 * said < most <= said
    most, said = moved(loss, neighbors, clipped=False)
    assert most > said  # a twin that takes weights as they are


def test_the_density_of_a_perturbed_minimiser_moves_by_epsilon_at_most_whatever_the_weight() -> None:
    """One coefficient: ``ln p(w) = -|b(w)| / scale + ln J(w)``, b the random term that w is the minimiser for. Two
    records whose gradients have opposite signs at w have sizes of at most 1 together: half of epsilon is all."""
    people = dpm.Records()
    X = dpm.Private(np.ones((50, 1)), name="X", unit="row", bounds=[-1, 1], records=people)
    y = dpm.Private(np.ones(50), name="y", unit="entry", bounds=[-1, 1], records=people)
    weights = dpm.Private(np.ones(50), name="weights", unit="entry", bounds=[0, MOST], records=people)
    w = cp.Variable(1)
    model: Any = PrivateRegression.of(dpm.Problem(cp.Minimize(weights @ cp.logistic(-cp.multiply(y, X @ w)))))
    epsilon = 1.0
    plan = PureObjectivePerturbation().chosen(model, Options(epsilon, 0.0))[0]
    scale, ridge = plan.scale, plan.ridge
    grid = np.linspace(-30, 30, 2001)

    def log_density(weight: float, x: float, label: float) -> Any:
        s = label / (1 + np.exp(label * x * grid))
        others = 3 * 0.5 / (1 + np.exp(0.5 * grid)) - 2 * 0.7 / (1 + np.exp(-0.7 * grid))
        bend = 3 * 0.25 / (2 + 2 * np.cosh(0.5 * grid)) + 2 * 0.49 / (2 + 2 * np.cosh(0.7 * grid))
        b = weight * s * x + others - ridge * grid
        return -np.abs(b) / scale + np.log(ridge + bend + weight * np.abs(s) * (1 - np.abs(s)) * x * x)

    def worst(weights: Any) -> float:
        found = [log_density(*each) for each in product(weights, [-1.0, 0.4, 1.0], [-1.0, 1.0])]
        return max(float(np.abs(one - two).max()) for one, two in product(found, found))

    assert 0.45 * epsilon < worst([0.0, 0.3, 1.0]) <= epsilon / 2
    assert worst([0.0, 0.3, 1.5]) > epsilon / 2  # a twin that does not clip


def test_mechanisms_that_use_weights_as_public_numbers_do_not_serve_and_others_find_the_fit() -> None:
    n = 4000
    rows = RNG.uniform(-1, 1, (n, 2))
    labels = np.where(rows[:, 0] + 0.3 * RNG.normal(size=n) > 0, 1.0, -1.0)
    weights = np.where(rows[:, 1] > 0, MOST, 0.2)  # in the lower half a record says little
    labels = np.where(rows[:, 1] > 0, labels, -labels)
    found = problem("huber", rows, labels, weights)
    with pytest.raises(UnsupportedModelError, match="these are private"):
        problem("squared", rows, labels, weights).solve(epsilon=1, mechanism="sufficient-statistics", rng=0)
    serving = [m for m in KINDS[PrivateRegression].mechanisms if m.serves.weights and not m.serves.reads_nothing]
    assert {m.name for m in serving} >= {"noisy-descent", "objective-perturbation", "pure-objective-perturbation"}
    for name in ("noisy-descent", "objective-perturbation"):
        found.solve(epsilon=20, delta=1e-6, mechanism=name, rng=0)
        assert found.variables()[0].value[0] > 0.8  # the other half would say -1


def test_several_classes_and_outputs_of_private_weights() -> None:
    n = 40
    people = dpm.Records()
    X = dpm.Private(RNG.uniform(-1, 1, (n, 2)), name="X", unit="row", bounds=[-1, 1], records=people)
    weights = dpm.Private(RNG.uniform(0, MOST, n), name="weights", unit="entry", bounds=[0, MOST], records=people)
    one_hot = np.eye(3)[RNG.integers(3, size=n)]
    y = dpm.Private(one_hot, name="y", unit="row", bounds=[0, 1], max_l1=1, records=people)
    w = cp.Variable((2, 3))
    z = X @ w
    softmax = cp.log_sum_exp(z, axis=1) - cp.sum(cp.multiply(y, z), axis=1)
    model: Any = PrivateRegression.of(dpm.Problem(cp.Minimize(weights @ softmax)))
    assert model.weighed and model.scores == 3 and model.total == n
    by_losses = dpm.losses.softmax(z, y, weights=weights)
    again: Any = PrivateRegression.of(dpm.Problem(cp.Minimize(by_losses)))
    assert again.weighed and again.scores == 3
    squares = weights @ cp.sum(cp.square(z - y), axis=1)
    outputs: Any = dpm.Problem(cp.Minimize(squares))
    assert "weights" in str(outputs.classify()) and outputs.is_dp()


def test_what_is_no_weight_is_refused_as_before() -> None:
    people = dpm.Records()
    X = dpm.Private(ROWS, name="X", unit="row", bounds=[-1, 1], records=people)
    y = dpm.Private(LABELS, name="y", unit="entry", bounds=[-1, 1], records=people)

    def vector(name: str, bounds: Any) -> dpm.Private:
        return dpm.Private(WEIGHTS, name=name, unit="entry", bounds=bounds, records=people)

    w = cp.Variable(2)
    loss = cp.square(X @ w - y)
    strangers = dpm.Private(WEIGHTS, name="s", unit="entry", bounds=[0, 1], records=dpm.Records())
    for weighed in (
        vector("a", [-1, 1]) @ loss,
        vector("a", [0, 1]) @ cp.multiply(vector("b", [0, 1]), loss),
        cp.multiply(vector("a", [0, 1]), loss)[:3] @ np.ones(3),
        cp.sum(loss) + vector("a", [0, 1]) @ loss,
        strangers @ loss,
    ):
        with pytest.raises(dpm.errors.DPModelError):
            dpm.Problem(cp.Minimize(weighed)).plan(epsilon=1)
    t = dpm.Private((LABELS > 0) * 1.0, name="t", unit="entry", bounds=[0, 1], records=people)
    z = X @ w
    entropy = cp.sum(cp.multiply(t, cp.logistic(-z)) + cp.multiply(1 - t, cp.logistic(z)))
    model: Any = PrivateRegression.of(dpm.Problem(cp.Minimize(entropy)))
    assert model.loss.name == "binary_logistic" and not model.weighed  # labels, not weights
