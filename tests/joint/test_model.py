"""What plans see of people with shares: cells of Table 1, refusals before anything is spent, forecasts, their order."""

from __future__ import annotations

import math
import re
import warnings
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from models_of_shares import advertisers, appointments, charging, marked, timetables

import dpmodel as dpm
from dpmodel.contract import Options
from dpmodel.errors import SpecificationError, UnsupportedModelError
from dpmodel.forecast import Forecast, ShareOfOptimum
from dpmodel.joint.cells import classified
from dpmodel.joint.model import JointModel
from dpmodel.joint.read import read
from dpmodel.marks import vault
from dpmodel.programs.classifier import Classification
from dpmodel.programs.taxonomy import JOINT
from dpmodel.release import Release

JOINTLY: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "release": "joint"}
N = 60


def _capacity(**declared: Any) -> dpm.Problem:
    """Room for people is the number who left, which is private too."""
    people = dpm.Records("people")
    v = dpm.Private(np.ones((N, 3)), unit="row", records=people, name="values", bounds=[0, 1])
    room = dpm.Private([9.0, 8, 7], linf=1, l1=1, records=people, name="room", **declared)
    x = dpm.Shares((N, 3), records=people, nonneg=True, name="x")
    return dpm.Problem(cp.Maximize(cp.sum(cp.multiply(v, x))), [cp.sum(x, axis=0) <= room, x <= 1])


# ------------------------------------------------------------------ cells
CELLS = {
    "charging": (
        lambda: marked(charging(N))[0],
        {("values", "objective", "high"), ("power", "column", "low"), ("wish", "scalar", "low")},
    ),
    "timetables": (
        lambda: marked(timetables(N, private=True))[0],
        {("values", "objective", "high"), ("meetings", "column", "low")},
    ),
    "appointments": (lambda: marked(appointments(N))[0], {("values", "objective", "high")}),
    "advertisers": (
        lambda: marked(advertisers(N))[0],
        {("bids", "objective", "low"), ("bids", "column", "low")},
    ),
    "a private capacity": (
        lambda: _capacity(bounds=[0, 20]),
        {("values", "objective", "low"), ("room", "scalar", "low")},
    ),
}


@pytest.mark.parametrize("name", CELLS)
def test_cells_are_those_that_publishing_would_have(name: str) -> None:
    build, cells = CELLS[name]
    problem = build()
    found = problem.classify()
    assert {
        ((cell.part == "scalar" and cell.parameter) or cell.parameter, cell.part, cell.level) for cell in found.cells
    } == cells
    assert problem.is_dp() and all(cell.joint for cell in found.cells)
    for cell in found.cells:
        assert cell.theorem == cell.taxonomy.theorem and "solvable jointly; published" in cell.verdict
        assert cell.words[0] == JOINT[cell.part].summary
    assert JOINT["objective"].others_learn in found.joint and JOINT["objective"].person_learns in found.joint
    again = Classification.from_json(found.to_json())
    assert again == found and str(again) == str(found) and "others learn prices" in " ".join(str(found).split())


def test_a_limit_with_private_coefficients_is_a_row() -> None:
    people = dpm.Records("people")
    a = dpm.Private(np.ones((N, 3)), unit="row", records=people, name="a")
    x = dpm.Shares((N, 3), records=people, nonneg=True, name="x")
    limits = [cp.sum(cp.multiply(a, x), axis=1) <= 1, cp.sum(x, axis=0) <= 5]
    found = dpm.Problem(cp.Maximize(cp.sum(x)), limits).classify()
    assert [(cell.parameter, cell.part, cell.level) for cell in found.cells] == [("a", "row", "high")]


def test_parameters_of_one_name_are_told_by_their_columns() -> None:
    people = dpm.Records("people")
    v, w = (dpm.Private(np.ones((N, 3)), unit="row", records=people, name="p", **d) for d in ({}, {"bounds": [0, 1]}))
    x = dpm.Shares((N, 3), records=people, nonneg=True, name="x")
    found = classified(read(dpm.Problem(cp.Maximize(cp.sum(cp.multiply(v, x))), [x <= w, cp.sum(x, axis=0) <= 5])))
    assert [(cell.part, cell.level) for cell in found.cells] == [("objective", "high"), ("scalar", "low")]


def test_the_figure_lights_joint_cells() -> None:
    pytest.importorskip("matplotlib")
    texts = [t.get_text() for t in marked(charging(N))[0].classify().plot().axes[0].texts]
    assert texts.count("solvable jointly") == 3


# ------------------------------------------------------------------ before anything is spent
@pytest.fixture(scope="module")
def street() -> dpm.Problem:
    return marked(charging(1000, 6))[0]


REFUSED = {
    "release='Joint'": ({"release": "Joint"}, 'release="public" or release="joint"'),
    "release=int": ({"release": 1}, 'release="public" or release="joint"'),
    "feasibility='safe'": ({"feasibility": "safe"}, "choose beta"),
    "feasibility=": ({"feasibility": dpm.Priced()}, "choose beta"),
    "goal=": ({"goal": dpm.Search()}, "leave goal out"),
    "solver='CLARABEL'": ({"solver": "CLARABEL"}, "leave solver out"),
    "mechanism='laplace-once'": ({"mechanism": "laplace-once"}, "'noisy-prices' or 'even-shares'"),
    "certify='a tenth'": ({"certify": "a tenth"}, "certify=0.1"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_makes_no_sense_is_refused_before_anything_is_read(
    what: str, street: dpm.Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, remedy = REFUSED[what]
    monkeypatch.setattr(vault, "unseal", lambda parameter: pytest.fail("a private value was read"))
    budget = dpm.Budget(1, 1e-6)
    with pytest.raises((SpecificationError, UnsupportedModelError), match=re.escape(what)) as caught:
        street.solve(**{**JOINTLY, "budget": budget, **given})
    assert remedy in caught.value.remedy and budget.spent.epsilon == 0


def test_shares_of_numbers_with_bounds_need_the_word_too() -> None:
    problem = marked(advertisers(N))[0]
    with pytest.raises(SpecificationError, match="release='public'") as caught:
        problem.solve(1.0, 1e-6)
    assert 'release="joint"' in caught.value.remedy


def test_an_unbounded_number_is_refused_by_its_theorem(street: dpm.Problem) -> None:
    with pytest.raises(dpm.ImpossibilityError, match="all shares, published") as caught:
        street.plan(1.0)
    assert (caught.value.theorem, caught.value.constraint) == ("Theorem 37", "objective")


def test_a_model_without_shares_is_refused_the_word() -> None:
    d = dpm.Private([3.0, 5.0], unit="entry", linf=1, name="d")
    x = cp.Variable(2)
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= d])
    for method in (problem.plan, problem.solve):
        with pytest.raises(SpecificationError, match="release='joint'") as caught:
            method(1.0, release="joint")
        assert "dpm.Shares" in caught.value.remedy
    assert problem.plan(1.0, release="public").chosen


def test_shares_of_people_without_private_data_are_refused() -> None:
    x = dpm.Shares((N, 3), records=dpm.Records("people"), nonneg=True)
    problem = dpm.Problem(cp.Maximize(cp.sum(x)), [cp.sum(x, axis=0) <= 5, x <= 1])
    with pytest.raises(SpecificationError, match="nothing is private"):
        problem.solve(**JOINTLY)
    assert str(problem.classify()) and problem.classify().joint == ""


# ------------------------------------------------------------------ plans
def test_a_plan_reads_nothing_fits_a_screen_and_says_first_what_is_expected(
    street: dpm.Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vault, "unseal", lambda parameter: pytest.fail("a private value was read"))
    plan = street.plan(**JOINTLY)
    lines = str(plan).splitlines()
    assert lines[0] == f"Plan for epsilon 1, delta 1e-6: {plan.chosen.mechanism}" and "% of the optimum" in lines[1]
    assert len(lines) <= 24 and {each.mechanism for each in plan.candidates} == {"noisy-prices", "even-shares"}
    assert "nothing says how large the numbers in values are" in " ".join(str(plan).split())
    again = type(plan).from_json(plan.to_json())
    assert str(again) == str(plan) and again.to_dict() == plan.to_dict()
    told = plan.explain()
    assert {row["change"] for row in told.changes} >= {"twice the records"} and "for all others" in told.meaning[0]


def _forecast(error: ShareOfOptimum) -> Forecast:
    return Forecast("", 1.0, 1e-6, 0.05, error)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (ShareOfOptimum(0.9, 0.5), ShareOfOptimum(0.8, 0.1)),
        (ShareOfOptimum(math.nan, 0.1), ShareOfOptimum(math.nan, math.nan)),  # even shares, which are not simulated
        (ShareOfOptimum(math.nan, math.nan), ShareOfOptimum(math.nan, 0.9)),
        (ShareOfOptimum(0.5, math.nan), ShareOfOptimum(math.nan, 1.5)),
    ],
)
def test_the_larger_share_is_chosen(better: ShareOfOptimum, worse: ShareOfOptimum) -> None:
    options = Options(1.0)
    assert ShareOfOptimum.best([_forecast(worse), _forecast(better)], options).error is better
    assert better.rank < worse.rank <= 1


def test_noise_as_large_as_the_capacities_makes_shares_even() -> None:
    problem = marked(charging(30, 6))[0]
    plan = problem.plan(0.05, 1e-9, release="joint")
    assert plan.chosen.mechanism == "even-shares" and plan.chosen.forecast.spends_nothing
    budget = dpm.Budget(1, 1e-6)
    problem.solve(0.05, 1e-9, release="joint", budget=budget)
    assert budget.spent.epsilon == 0 == problem.release.guarantee.epsilon


def test_without_delta_even_shares_are_left_and_the_plan_says_what_delta_brings() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan = marked(charging(N, 6))[0].plan(1.0, release="joint")
    assert plan.chosen.mechanism == "even-shares" and "delta > 0" in str(plan)
    assert "delta > 0" in plan.why("noisy-prices")


def test_more_people_of_the_same_kind_are_forecast_more(street: dpm.Problem) -> None:
    model = JointModel.of(street)
    twice = model.varied("records", 2.0)
    assert twice.count == 2000 and np.allclose(twice.capacity, 2 * model.capacity)
    assert model.varies == ("records",) and JointModel.of(_capacity(bounds=[0, 20])).varies == ()
    with pytest.raises(SpecificationError):
        model.varied("sensitivity", 0.5)


def test_all_that_is_private_is_in_the_guarantee() -> None:
    problem = _capacity(bounds=[0, 20])
    assert "room" in JointModel.of(problem).protects
    problem.solve(**JOINTLY, rng=0)
    record = problem.release.guarantee.record
    assert "room" in record and "values" in record and "own share may show" in record and "NOT PRIVATE" in record


def test_explain_says_what_others_learn(street: dpm.Problem) -> None:
    for told in (street.explain(), street.explain(**JOINTLY)):
        text = " ".join(str(told).split())
        assert "others learn prices" in text and "1000 people with a share of 6 numbers" in text
    assert 'release="joint" hands each record' in street.explain(1.0).unplanned
    assert "others learn" in street.explain()._repr_html_()


def test_a_release_of_shares_is_a_release(street: dpm.Problem) -> None:
    assert street.solve(**JOINTLY) is None and street.value is None
    assert isinstance(street.release, Release) and street.variables()[0].value is None
    with pytest.raises(SpecificationError, match="released an answer and no numbers"):
        street.resolve()


def test_what_cannot_be_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    """Nothing to gain, a private capacity of no known level, rows in two places."""
    people, rng, budget = dpm.Records("people"), np.random.default_rng(0), dpm.Budget(1, 1e-6)
    worth = dpm.Private(rng.random((30, 2)), unit="row", records=people, bounds=[0, 1], name="worth")
    x = dpm.Shares((30, 2), records=people, nonneg=True)
    gained, own = cp.sum(cp.multiply(worth, x)), cp.sum(x, axis=1) <= 1
    supply = dpm.Private(np.full(2, 9.0), unit="entry", linf=1, records=people, name="supply")
    refused = [
        (dpm.Problem(cp.Minimize(gained), [cp.sum(x, axis=0) <= 9, own]), "no share is worth anything"),
        (dpm.Problem(cp.Maximize(gained), [cp.sum(x, axis=0) <= supply, own]), "without a public level"),
    ]
    pd.DataFrame(rng.random((30, 2)), columns=["a", "b"]).to_parquet(tmp_path / "people.parquet")
    data = dpm.Dataset.scan(tmp_path / "people.parquet", bounds={"a": (0, 1), "b": (0, 1)})
    values = data.rows(["a", "b"], in_blocks=True, name="values")
    wish = dpm.Private(np.ones(30), unit="entry", records=data.records, bounds=[0, 2], name="wish")
    y = dpm.Shares((30, 2), records=data.records, nonneg=True)
    rows = [cp.sum(y, axis=0) <= 9, cp.sum(y, axis=1) <= wish]
    refused.append((dpm.Problem(cp.Maximize(cp.sum(cp.multiply(values, y))), rows), "in blocks"))
    for problem, said in refused:
        with pytest.raises(SpecificationError, match=said):
            problem.solve(1.0, 1e-6, release="joint", budget=budget)
    assert budget.spent.epsilon == 0


def test_plans_know_what_a_private_capacity_costs() -> None:
    """At 200 people its noise is as large as itself, so that next to nothing is left."""
    people, rng, shares = dpm.Records("people"), np.random.default_rng(0), []
    for n in (200, 5000):
        worth = dpm.Private(rng.random((n, 2)), unit="row", records=people, bounds=[0, 1], name="worth")
        x = dpm.Shares((n, 2), records=people, nonneg=True)
        full = np.full(2, 0.15 * n)
        supply = dpm.Private(full, unit="entry", linf=1, records=people, name="supply", typical=0.15 * n)
        for capacity in (full, supply):
            rows = [cp.sum(x, axis=0) <= capacity, cp.sum(x, axis=1) <= 1]
            problem = dpm.Problem(cp.Maximize(cp.sum(cp.multiply(worth, x))), rows)
            plan = problem.plan(1.0, 1e-6, release="joint", mechanism="noisy-prices")
            shares.append(plan.chosen.forecast.error.share)
    assert shares[1] < shares[0] - 0.3 and shares[2] - 0.2 < shares[3] < shares[2]
    problem.solve(1.0, 1e-6, release="joint", rng=0)
    assert "private" in str(problem.release.summary()) and np.isnan(problem.release.capacity).all()


def test_few_people_get_a_forecast() -> None:
    """Some synthetic people of whom there are few want nothing at all: the others tell what to expect."""
    for n in (1, 5):
        people = dpm.Records("people")
        worth = dpm.Private(np.full((n, 2), 0.5), unit="row", records=people, bounds=[0, 1], name="worth")
        x = dpm.Shares((n, 2), records=people, nonneg=True)
        rows = [cp.sum(x, axis=0) <= 0.3 * n, cp.sum(x, axis=1) <= 1]
        plan = dpm.Problem(cp.Maximize(cp.sum(cp.multiply(worth, x))), rows).plan(1.0, 1e-6, release="joint")
        shares = {each.mechanism: each.forecast.error.share for each in plan.candidates}
        assert plan.chosen.mechanism == "even-shares" and 0 < shares["noisy-prices"] < shares["even-shares"] <= 1
