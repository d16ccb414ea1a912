"""Releases, plans and classifications written as JSON and read back are what they were."""

from __future__ import annotations

import copy
import json
import math
import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dpmodel as dpm
from dpmodel.contract import Candidate, Options
from dpmodel.forecast import Forecast, Violation
from dpmodel.release import Accuracy, Guarantee


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
    noisy = dpm.Noisy([3.0, -1.0], dpm.noise.Laplace(1.0), name="counts")
    return dpm.Problem(cp.Minimize(dpm.released.neg_log_likelihood(cp.Variable(2, nonneg=True, name="x"), noisy)))


PROBLEMS = (program, unbounded_rows, regression, published)


@pytest.mark.filterwarnings("ignore::dpmodel.errors.NoGuaranteeWarning")
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


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])  # its own first draws, on a busy machine
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
        (chosen, other), chosen, Options(1.0, 0.0, vertices=points, solver_options={"n": size}), (words,), "x"
    )
    read = dpm.Plan.from_json(plan.to_json())
    assert read.to_json() == plan.to_json() and read.chosen.forecast is not None
    same = read.chosen.forecast.error.objective
    assert same == alpha or (math.isnan(same) and math.isnan(alpha))
    assert read.candidates[1] == other


WRONG = [None, True, -1, 0.5, 10**400, "", "x", [], {}, [1, "x"], {"x": 1}, [[[]]], float("inf"), "inf"]


def damaged(data: Any, rng: random.Random) -> Any:
    """One value somewhere inside replaced by another type, taken away, or given another name."""
    data = json.loads(json.dumps(data))
    places = []

    def walk(item: Any) -> None:
        for key in list(item) if isinstance(item, dict) else range(len(item)):
            places.append((item, key))
            if isinstance(item[key], dict | list):
                walk(item[key])

    walk(data)
    item, key = rng.choice(places)
    kind = rng.randrange(4)
    if kind == 0:
        del item[key]
    elif kind == 1 and isinstance(item, dict):
        item[f"{key}?"] = item.pop(key)
    else:
        item[key] = rng.choice(WRONG)
    return data


def texts(text: str, count: int) -> Iterator[str]:
    rng = random.Random(0)
    for _ in range(count):
        if rng.random() < 0.3:
            at = rng.randrange(len(text))
            yield rng.choice([text[:at], text[:at] + rng.choice('{}[],:"x0') + text[at + 1 :], text[at:]])
        else:
            yield json.dumps(damaged(json.loads(text), rng))
    yield from ("", "[1, 2]", "null", "3", "{}", "[" * 100_000, '{"cells": 3, "mechanism": "m"}', "\x00")


def one_of_each() -> dict[str, Any]:
    x, b = cp.Variable(2, bounds=[0, 9], name="x"), dpm.Private([1.0, 2.0], name="b", unit="entry", linf=1)
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b])
    problem.solve(1, rng=0)
    plan = problem.plan(1, compare="all")
    return {"release": problem.release, "plan": plan, "classification": problem.classify(), "told": problem.explain(1)}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["release", "plan", "classification"])
def test_damaged_text_is_refused_with_the_place_or_reads_as_something_that_prints(name: str) -> None:
    written = one_of_each()[name]
    kind, placed = type(written), 0
    for text in texts(written.to_json(), 150):
        try:
            read = kind.from_json(text)
        except dpm.errors.SpecificationError as error:
            assert f"no {kind.__name__} in JSON" in error.what and error.remedy
            assert error.__context__ is None or error.__suppress_context__
            placed += ": at " in error.what
        else:
            assert str(read) and repr(read) and read._repr_html_() and json.loads(read.to_json())
    assert placed > 40
    with pytest.raises(dpm.errors.SpecificationError, match="no JSON"):
        kind.from_json(None)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))])
def test_everything_told_pickles_and_copies(copied: Callable[[Any], Any]) -> None:
    things = one_of_each()
    cells = [*things["classification"].cells, *dpm.taxonomy(), dpm.taxonomy()]
    for thing in (*things.values(), *cells):
        if isinstance(thing, dpm.Plan):
            continue  # without the model, what would help cannot be looked for: tests/solve has its copies
        again = copied(thing)
        assert type(again) is type(thing) and str(again) == str(thing)
    (cell,) = copied(things["classification"]).cells
    with pytest.raises(TypeError):
        cell.sensitivity["linf"] = 0.0
