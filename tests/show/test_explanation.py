"""``problem.explain()``: the model's analyser in words and as data, from public facts and the release alone."""

from __future__ import annotations

import json

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm

SECRET = np.array([7321.4375, 5128.8125])


def problem_with(value=SECRET, **declared):
    b = dpm.Private(value, shape=2, name="demand", **(declared or {"unit": "entry", "linf": 1.5}))
    x = cp.Variable(2, nonneg=True, name="x")
    rows = [(x >= b).set_label("need"), (x >= b / 2).set_label("half"), cp.norm(x) <= 1e5]
    return dpm.Problem(cp.Minimize(cp.sum(x)), rows)


def test_the_size_of_the_standard_form():
    # x and the epigraph of the norm; x >= 0, need, half, norm <= 1e5; the cone of the norm.
    assert "3 variables, 7 nonneg, 3 soc rows" in problem_with().explain().size


def test_parameters_are_described_without_values():
    (row,) = problem_with().explain().parameters
    assert row["name"] == "demand"
    assert row["shape"] == "(2,)"
    assert "replace-one" in row["a record"]
    assert row["a record"].endswith("owns: entry")
    assert (row["l1"], row["l2"], row["linf"]) == ("1.5", "1.5", "1.5")
    assert row["value"] == "sealed"
    (row,) = problem_with(None).explain().parameters
    assert row["value"] == "none yet"


def test_what_one_record_does_to_the_standard_form():
    (row,) = problem_with().explain().sensitivities
    assert row == {"part": "b", "l1": "2.25", "l2": "1.677", "linf": "1.5", "bounds are": "attained"}


def test_parts_that_nothing_private_reaches_are_left_out():
    c = dpm.Private(shape=2, name="c", unit="entry", linf=1)
    x = cp.Variable(2, bounds=[0, 1])
    sensitivities = dpm.Problem(cp.Minimize(c @ x + cp.sum(c)), []).explain().sensitivities
    assert [row["part"] for row in sensitivities] == ["c", "constant term"]


def test_an_impossible_problem_gets_remedies():
    explanation = problem_with(unit="entry").explain()
    assert not explanation.classification.solvable
    assert explanation.advice
    assert any("linf=1" in line for line in explanation.advice)
    assert all(line.startswith("demand: ") for line in explanation.advice)
    assert "advice: demand" in str(explanation)
    assert len(set(explanation.advice)) == len(explanation.advice)


@pytest.mark.parametrize("value", [SECRET, None])
def test_explaining_spends_and_shows_nothing(value):
    explanation = problem_with(value).explain()
    text = str(explanation) + explanation._repr_html_() + json.dumps(explanation.to_dict())
    assert "7321" not in text
    assert "5128" not in text


def test_the_release_is_told_once_it_is_there():
    problem = problem_with()
    assert problem.explain().release == "Not solved yet."
    problem.solve(epsilon=1, rng=0)
    told, release = problem.explain().release, problem.release
    assert told.startswith(release.title) and str(release.accuracy) in told and "print(problem.release)" in told


def test_every_table_is_in_text_and_html():
    explanation = problem_with().explain()
    for words in ("Private parameters", "What one record does to the standard form", "Classification", "need"):
        assert words in str(explanation)
        assert words in explanation._repr_html_()


def test_to_dict_is_plain():
    data = json.loads(json.dumps(problem_with().explain().to_dict()))
    assert set(data) == {
        "size", "parameters", "sensitivities", "classification", "advice", "release", "reached", "sentences", "choice",
        "unplanned",
    }  # fmt: skip
    assert data["classification"]["cells"][0]["parameter"] == "demand"


def test_which_entries_of_the_standard_form_records_reach():
    told = problem_with().explain().reached
    assert [(row["part"], row["where"], row["entries"], row["one record"]) for row in told] == [
        ("b", "need", 2, 1),
        ("b", "half", 2, 1),
    ]
    A = dpm.Private(shape=(3, 2), name="A", unit="row", linf=1)
    x = cp.Variable(2, bounds=[0, 1], name="x")
    (row,) = dpm.Problem(cp.Minimize(cp.sum(x)), [(A @ x <= 4).set_label("rows")]).explain().reached
    assert (row["part"], row["where"]) == ("A", "rows, coefficients of x")
    assert (row["entries"], row["one record"]) == (6, 2)
    c = dpm.Private(shape=2, name="c", l1=2)
    (row,) = dpm.Problem(cp.Minimize(c @ x), []).explain().reached
    assert (row["part"], row["where"], row["entries"], row["one record"]) == ("c", "x", 2, 2)


def test_each_cell_has_a_sentence_with_the_numbers_of_this_problem():
    (said,) = problem_with().explain().sentences
    assert said.startswith("demand: ") and "at most 1.5 each and 2.25 in all" in said and "Theorem 22" in said
    (said,) = problem_with(unit="entry").explain().sentences
    assert "no private algorithm" in said and "Theorem 36" in said


def test_asked_with_a_budget_it_tells_the_choice_and_without_one_that_of_the_last_solve():
    problem = problem_with()
    assert problem.explain().choice is None and "explain(epsilon, delta)" in str(problem.explain())
    told = problem.explain(1.0)
    assert told.choice.plan.options.epsilon == 1 and "What would do better" in str(told) and "gaussian" in str(told)
    data = json.loads(json.dumps(told.to_dict()))["choice"]
    assert set(data) == {"answer", "statement", "meaning", "others", "changes"}
    problem.solve(epsilon=0.5, rng=0)
    assert problem.explain().choice.plan.options.epsilon == 0.5


def test_an_impossible_problem_is_explained_with_its_lower_bound():
    told = problem_with(unit="entry").explain(1.0)
    assert told.choice is None and "no plan: by Theorem 36" in str(told) and "0.5" in told.unplanned
    assert "no plan" in told._repr_html_() and "explain(epsilon" not in str(told)
