"""Several outputs: what their runs spend together, that statements add up and hold, and twins that are caught."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from faces import _model_face
from hypothesis import given, settings
from hypothesis import strategies as st
from private_data.test_what_leaves import test_the_same_answers_release_the_same_on_a_neighbour as same_answers

import dpmodel as dpm
from dpmodel.contract import Options
from dpmodel.privacy import SeededSource, gaussian_delta, gaussian_mu, subsampled_epsilon
from dpmodel.regressions import each_output
from dpmodel.regressions.descent import NoisyDescent
from dpmodel.regressions.each_output import EachOutput, _basic, _gaussian
from dpmodel.regressions.excess import PUBLIC_ONLY_REGRESSION
from dpmodel.regressions.frank_wolfe import FRANK_WOLFE
from dpmodel.regressions.model import PrivateOutputs
from dpmodel.regressions.objective_perturbation import OBJECTIVE_PERTURBATION
from dpmodel.regressions.sufficient_statistics import SUFFICIENT_STATISTICS

pytestmark = pytest.mark.filterwarnings("ignore")


def problem(n: int = 400, outputs: int = 2, seed: int = 0, radius: float | None = 1.0) -> dpm.Problem:
    """Least squares over an l1 ball for each output, on rows at the corners of their bounds."""
    rng = np.random.default_rng(seed)
    people = dpm.Records("people")
    rows = rng.choice([-1.0, 1.0], (n, 3))
    labels = np.clip(rows @ rng.uniform(-0.4, 0.4, (3, outputs)) + rng.normal(size=(n, outputs)) / 4, -1, 1)
    X = dpm.Private(rows, name="X", unit="row", bounds=[-1, 1], records=people)
    Y = dpm.Private(labels, name="Y", unit="row", bounds=[-1, 1], records=people)
    W = cp.Variable((3, outputs), name="W")
    goal = cp.sum_squares(X @ W - Y) / n
    return dpm.Problem(cp.Minimize(goal), [] if radius is None else [cp.norm1(W, axis=0) <= radius])


def model_of(asked: dpm.Problem) -> PrivateOutputs:
    model = asked._model(None)
    assert isinstance(model, PrivateOutputs)
    return model


MECHANISMS = [PUBLIC_ONLY_REGRESSION, SUFFICIENT_STATISTICS, FRANK_WOLFE, NoisyDescent(steps=4), OBJECTIVE_PERTURBATION]


# ------------------------------------------------------------------ budget
@pytest.mark.parametrize(
    ("outputs", "rate", "steps"),
    [(2, 0.05, 8), (10, 0.05, 8), *(pytest.param(k, 1e-4, 1, marks=pytest.mark.slow) for k in (2, 10))],
)
def test_secret_samples_compose_basically(outputs: int, rate: float, steps: int, monkeypatch: Any) -> None:
    """k outputs of T steps on samples are k T sampled steps, whose price is known; a step on a sample is no Gaussian
    mechanism, so that sqrt(k) would be a false claim, which is planted and costs too much."""
    model = replace(MODEL, parts=(MODEL.parts[0],) * outputs)
    mechanism, options = EachOutput(NoisyDescent(rate=rate, steps=steps)), Options(1.0, 1e-6)

    def price() -> float:
        noise = mechanism.forecast(model, options).noise
        (multiplier,) = {each["noise multiplier"] for each in noise["outputs"]}
        return subsampled_epsilon(multiplier, rate, outputs * steps, 1e-6, replace=True)

    assert price() <= 1.0 and not mechanism.serves.adds_up
    monkeypatch.setattr(NoisyDescent, "mu_gdp", True)
    assert rate > 1e-3 or outputs < 10 or price() > 1.0


@given(
    outputs=st.integers(2, 30),
    epsilon=st.floats(1e-3, 100),
    delta=st.sampled_from([0.0, 1e-12, 1e-6, 1e-2]),
)
@settings(max_examples=40, deadline=None)
def test_shares_compose_to_the_budget(outputs: int, epsilon: float, delta: float) -> None:
    model = replace(MODEL, parts=(MODEL.parts[0],) * outputs)
    whole = Options(epsilon, delta, beta=0.05)
    basic, gaussian = _basic(model, whole), _gaussian(model, whole)
    assert outputs * basic.epsilon <= epsilon and outputs * basic.delta <= delta
    assert outputs * basic.beta == pytest.approx(0.05)
    if gaussian is None:
        return
    each = gaussian_mu(gaussian.epsilon, gaussian.delta)  # the noise that a run draws at its share
    assert gaussian_delta(math.sqrt(outputs) * each, epsilon) <= delta
    assert each >= gaussian_mu(basic.epsilon, basic.delta), "no worse than basic composition"


MODEL = model_of(problem())


@pytest.mark.parametrize("engine", MECHANISMS, ids=lambda engine: engine.name)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_forecast_spends_what_was_asked_and_adds_up(engine: Any, delta: float) -> None:
    mechanism, options = EachOutput(engine), Options(2.0, delta)
    if not mechanism.eligible(MODEL, options).eligible:
        assert engine.name == "objective-perturbation" and delta == 0
        return
    whole = mechanism.forecast(MODEL, options)
    share, found = mechanism._shared(MODEL, options)
    free = engine is PUBLIC_ONLY_REGRESSION
    assert whole.epsilon == (0.0 if free else 2.0) and whole.delta in (0.0, delta)
    assert whole.error.predicted == pytest.approx(sum(forecast.error.predicted for forecast in found))
    assert whole.error.predicted >= 2 * engine.forecast(MODEL.parts[0], options).error.predicted * (1 - 1e-9) or free
    assert whole.noise["composition"] == ("Gaussian" if share.delta == delta > 0 else "basic")
    json.dumps(whole.to_dict(), default=float)


def test_laplace_noise_is_taken_where_it_is_predicted_to_do_better() -> None:
    mechanism = EachOutput(SUFFICIENT_STATISTICS)
    few = mechanism.forecast(MODEL, Options(1.0, 1e-12))
    share, found = mechanism._shared(MODEL, Options(1.0, 1e-12))
    gaussian = _gaussian(MODEL, Options(1.0, 1e-12))
    assert gaussian is not None
    distribution = sum(SUFFICIENT_STATISTICS.forecast_as_given(part, gaussian).error.predicted for part in MODEL.parts)
    assert (
        few.error.predicted == pytest.approx(sum(forecast.error.predicted for forecast in found))
        and few.error.predicted <= distribution
    )
    assert few.delta == (0.0 if share != gaussian else 1e-12)


# ------------------------------------------------------------------ statements
def test_statements_proved_for_any_data_hold() -> None:
    """beta = 1e-8 and 10 runs: a false alarm has probability at most 1e-7. Seeds 0 to 9."""
    mechanism, options = EachOutput(SUFFICIENT_STATISTICS), Options(1e4, 1e-6, beta=1e-8)
    forecast = mechanism.forecast(MODEL, options)
    given = options if forecast.delta else replace(options, delta=0.0)  # the noise that was predicted to do better
    alone = SUFFICIENT_STATISTICS.forecast_as_given(MODEL.parts[0], given)
    assert forecast.proved and "; all 2 outputs together" in forecast.statement
    assert 2 * alone.error.alpha < forecast.error.alpha < 5 * alone.error.alpha
    for seed in range(10):
        model = model_of(problem(seed=seed))
        outcome = mechanism.run(model, options, SeededSource(seed))
        assert outcome.x is not None
        excess = 0.0
        for j, (part, data) in enumerate(zip(model.parts, model.read(), strict=True)):
            assert part.public is not None
            points = (
                outcome.x[3 * j : 3 * j + 3],
                part.public.minimise_quadratic(data.gram(), data.combine(data.labels)),
            )
            mine, best = (part.scale * part.loss.value(data.predict(w), data.labels).sum() for w in points)
            excess += mine - best
        assert -1e-9 <= excess <= forecast.error.alpha


def test_what_says_nothing_warns_before_the_charge() -> None:
    asked, budget = problem(n=20), dpm.Budget(1.0)
    with warnings.catch_warnings(), pytest.raises(dpm.errors.NoGuaranteeWarning, match="frank-wolfe promises no more"):
        warnings.simplefilter("error", dpm.errors.NoGuaranteeWarning)
        asked.solve(epsilon=1e-3, rng=0, budget=budget, mechanism="frank-wolfe")
    assert budget.spent.epsilon == 0 and asked.release is None
    asked.solve(epsilon=1e-3, rng=0, budget=budget, mechanism="public-only")
    assert asked.release is not None and asked.release.accuracy.vacuous and budget.spent.epsilon == 0
    assert not asked.variables()[0].value.any() and asked.variables()[0].value.shape == (3, 2)


# ------------------------------------------------------------------ the way through the house
def test_solve_charges_once_and_writes_back() -> None:
    asked, budget = problem(n=5000), dpm.Budget(1.0, 1e-6)
    asked.solve(1.0, 1e-6, rng=1, budget=budget, mechanism="sufficient-statistics")
    release = asked.release
    assert release is not None and tuple(budget.spent) == (1.0, release.spent[1]) and len(budget.history) == 1
    W = asked.variables()[0].value
    assert W.shape == (3, 2) and (np.abs(W).sum(axis=0) <= 1 + 1e-6).all()
    np.testing.assert_array_equal(release.variables["W"], W)
    assert dpm.Release.from_json(release.to_json()).to_dict() == release.to_dict()
    again = dpm.Plan.from_json(asked.last_plan.to_json())  # type: ignore[union-attr]
    assert str(again) == str(asked.last_plan)
    assert "Regression of 2 outputs: squared loss, 5000 rows, 6 coefficients, l1 set" in str(asked.explain())
    assert "in each of 2 outputs" in str(asked.classify().cells[0])
    plain = problem(n=5000)
    values = [cp.Constant(dict_of(plain)[name]) for name in ("X", "Y")]
    V = cp.Variable((3, 2))
    cp.Problem(cp.Minimize(cp.sum_squares(values[0] @ V - values[1])), [cp.norm1(V, axis=0) <= 1]).solve()
    assert np.abs(W - V.value).max() < 0.2


def dict_of(asked: dpm.Problem) -> dict[str, np.ndarray]:
    from dpmodel.marks.vault import unseal

    return {p.name(): np.reshape(unseal(p), p.shape, order="F") for p in asked.parameters()}


def test_settings_of_a_mechanism_reach_every_output() -> None:
    plan = problem().plan(1.0, 1e-6, mechanism=NoisyDescent(steps=4))
    assert plan.chosen.forecast is not None
    assert [noise["steps"] for noise in plan.chosen.forecast.noise["outputs"]] == [4, 4]
    with pytest.raises(dpm.errors.UnsupportedModelError, match="cannot serve"):
        problem().plan(1.0, mechanism="objective-perturbation")


# ------------------------------------------------------------------ twins that are caught
def six_outputs(values: np.ndarray) -> dpm.Problem:
    people = dpm.Records("people")
    X = dpm.Private(np.resize(values, (300, 2)), name="X", unit="row", bounds=[0, 1e4], records=people)
    Y = dpm.Private(np.resize(values[3:], (300, 6)), name="Y", unit="row", bounds=[0, 1e4], records=people)
    return dpm.Problem(cp.Minimize(cp.sum_squares(X @ cp.Variable((2, 6), name="W") - Y)))


FACE = _model_face(six_outputs, "sufficient-statistics", {})


def test_a_share_too_large_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The contract holds for six outputs, and not where each of them takes the whole budget."""
    same_answers(FACE, 0)
    monkeypatch.setattr(each_output, "_gaussian", lambda model, options: options)
    with pytest.raises(AssertionError, match="lost"):
        same_answers(FACE, 0)


def test_a_forecast_of_more_than_the_budget_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs without composition would spend twice what was asked; the plan takes what reads nothing."""
    monkeypatch.setattr(each_output, "_total", lambda spent, share, whole: sum(spent))
    monkeypatch.setattr(each_output, "_basic", lambda model, options: options)
    with pytest.raises(dpm.errors.UnsupportedModelError, match="would spend epsilon 2"):
        problem().plan(1.0, mechanism="sufficient-statistics")


def test_rows_read_for_each_output_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        each_output,
        "replace",
        lambda part, **sensitivity: replace(part) if "read" in sensitivity else replace(part, **sensitivity),
    )
    with pytest.raises(AssertionError, match="one read of each"):
        same_answers(FACE, 0)
