"""Releases, plans and classifications written as JSON and read back are what they were."""

from __future__ import annotations

import json
import math
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodel as dpm
from dpmodel.mechanisms.contract import Request
from dpmodel.mechanisms.forecast import Forecast, Violation
from dpmodel.plan.comparison import Candidate
from dpmodel.release.release import Accuracy, Guarantee


def program() -> dpm.Problem:
    b = dpm.Private([20.0, 30.0], name="b", unit="entry", linf=1, bounds=[0, 50])
    x = cp.Variable(2, bounds=[0, 60], name="x")
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b])


def unbounded_rows() -> dpm.Problem:
    A = dpm.Private(np.ones((40, 2)), name="A", unit="row")
    x = cp.Variable(2, bounds=[0, 1], name="x")
    return dpm.Problem(cp.Minimize(cp.sum(x)), [A @ x >= 0.5])


def regression() -> dpm.Problem:
    records = dpm.Records("people")
    X = dpm.Private(np.ones((50, 2)), name="X", unit="row", bounds=[-1, 1], records=records)
    y = dpm.Private(np.ones(50), name="y", unit="entry", bounds=[-1, 1], records=records)
    return dpm.Problem(cp.Minimize(cp.sum_squares(X @ cp.Variable(2, name="w") - y)))


def published() -> dpm.Problem:
    noisy = dpm.Noisy([3.0, -1.0], dpm.Laplace(1.0), name="counts")
    return dpm.Problem(cp.Minimize(dpm.neg_log_likelihood(cp.Variable(2, nonneg=True, name="x"), noisy)))


PROBLEMS = (program, unbounded_rows, regression, published)


@pytest.mark.filterwarnings("ignore::dpmodel.NoGuaranteeWarning")
@pytest.mark.parametrize("build", PROBLEMS)
def test_what_a_problem_says_comes_back(build: Any) -> None:
    problem = build()
    forced = {"mechanism": "sufficient-statistics"} if build is regression else {}
    problem.solve(epsilon=1.0, delta=1e-6, rng=0, **forced)
    plan = problem.plan(1.0, 1e-6, **forced)
    for written in (problem.release, plan, problem.classify()):
        text = written.to_json()
        read = type(written).from_json(text)
        assert read.to_json() == text and str(read) == str(written)
        assert read._repr_html_() == written._repr_html_()
        assert "Infinity" not in text and "NaN" not in text
    assert dpm.Classification.from_json(problem.classify().to_json()) == problem.classify()


FLOATS = st.floats(allow_nan=False)
WORDS = st.text(max_size=20)


ACCURACIES = st.builds(
    Accuracy, FLOATS | st.none(), st.floats(0, 1), st.integers(0, 9), st.booleans(), WORDS, vacuous=st.booleans()
)


@settings(max_examples=40)
@given(ACCURACIES,
       st.builds(Guarantee, st.floats(0, 1e308), st.floats(0, 1), WORDS, WORDS),
       st.dictionaries(WORDS, st.lists(FLOATS, max_size=4)))  # fmt: skip
def test_any_release_comes_back(accuracy: Accuracy, guarantee: Guarantee, variables: dict[str, list[float]]) -> None:
    release = dpm.Release(mechanism="m", guarantee=guarantee, accuracy=accuracy, status="s", variables=variables)
    read = dpm.Release.from_json(release.to_json(indent=1))
    assert read.accuracy == accuracy and read.guarantee == guarantee
    assert {k: v.tolist() for k, v in read.variables.items()} == {
        k: np.asarray(v, float).tolist() for k, v in variables.items()
    }


@settings(max_examples=40)
@given(alpha=st.floats(), width=st.floats(), size=st.integers(0, 5), words=WORDS, ends=st.lists(FLOATS, max_size=3))
def test_any_plan_comes_back(alpha: float, width: float, size: int, words: str, ends: list[float]) -> None:
    noise = {"part": {"largest_noise": alpha, "ends": tuple(ends), "words": words}}
    forecast = Forecast(
        words, 1.0, 0.0, 0.05, Violation(alpha, width=width, slack_rows=size), noise=noise, caveats=(words,)
    )
    chosen = Candidate("a", words, True, "", forecast)
    other = Candidate("b", words, False, "why not", None)
    points = np.array([ends]) if ends else None
    plan = dpm.Plan(
        (chosen, other), chosen, Request(1.0, 0.0, vertices=points, options={"n": size}), False, (words,), "x"
    )
    read = dpm.Plan.from_json(plan.to_json())
    assert read.to_json() == plan.to_json() and read.chosen.forecast is not None
    same = read.chosen.forecast.error.objective
    assert same == alpha or (math.isnan(same) and math.isnan(alpha))
    assert read.candidates[1] == other


def test_other_text_is_refused() -> None:
    for kind in (dpm.Release, dpm.Plan, dpm.Classification):
        with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
            kind.from_json("[1, 2]")
        with pytest.raises((KeyError, TypeError, ValueError)):
            kind.from_json(json.dumps({"cells": 3, "mechanism": "m"}))
