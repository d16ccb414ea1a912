"""Statements are about the numbers after the declarations cut them, and the release says so: a public note."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest

import dpmodel as dpm

CUT = "statements are about"


def _note(*private, safe=True):
    """What a release of ``x >= private`` says of cut numbers, and the released x."""
    rows, xs = [], []
    for each in private:
        x = cp.Variable(each.shape, nonneg=True)
        rows.append(x >= each)
        xs.append(x)
    problem = dpm.Problem(cp.Minimize(sum(cp.sum(x) for x in xs)), rows)
    problem.solve(epsilon=200, feasibility="safe" if safe else "auto", rng=7)
    return [note for note in problem.release.notes if CUT in note], [x.value for x in xs]


def test_bounds_that_cut_are_in_the_release():
    told, (x,) = _note(dpm.Private([325.0, 300, 75], name="demand", unit="entry", bounds=[0, 100]))
    assert x[0] < 110  # 325 as given
    assert told == ["statements are about demand after bounds: what is beyond is cut (how much is private)"]


def test_the_note_does_not_depend_on_the_data():
    inside = _note(dpm.Private([25.0, 30, 75], name="demand", unit="entry", bounds=[0, 100]))
    beyond = _note(dpm.Private([325.0, 300, 75], name="demand", unit="entry", bounds=[0, 100]))
    assert inside[0] == beyond[0] != []


def test_a_declared_change_alone_cuts_nothing():
    told, _ = _note(dpm.Private([325.0, 300, 275], name="demand", unit="entry", linf=1, nonneg=True))
    assert told == []


@pytest.mark.parametrize("safe", (True, False))
def test_each_declaration_is_named_once_with_its_parameters(safe):
    bounds = {"unit": "entry", "bounds": [0, 100]}
    told, _ = _note(
        dpm.Private([25.0, 30], name="north", **bounds),
        dpm.Private([25.0], name="south", **bounds),
        dpm.Private([1.0, 2, 3], name="votes", unit="all", max_l1=6, max_linf=3),
        dpm.Private([1.0, 2], name="free", unit="entry", linf=1),
        safe=safe,
    )
    assert told == [
        "statements are about north, south after bounds; votes after max_l1 and max_linf: what is beyond is cut "
        "(how much is private)"
    ]


def _people(max_rows=2, outside="error"):
    table = pd.DataFrame({"person": np.repeat(np.arange(50), 4), "town": ["Bonn", "Kiel"] * 100, "age": 30.0})
    return dpm.Dataset(
        table,
        privacy_id="person",
        max_rows=max_rows,
        domain={"town": ["Bonn", "Kiel"]},
        bounds={"age": (0, 20)},
        outside=outside,
    )


def test_rows_of_a_table_that_do_not_count():
    told, (x,) = _note(_people().count(by="town", name="orders"))
    assert x.sum() < 150  # of 200 rows
    assert told == ["statements are about orders after max_rows=2: what is beyond is cut (how much is private)"]


def test_sums_of_a_table_are_cut_by_all_three():
    told, _ = _note(_people(3, "drop").sum("age", name="years"))
    assert "years after bounds and max_rows=3 and outside='drop':" in told[0]


def test_a_table_with_a_row_a_person_cuts_no_count():
    table = pd.DataFrame({"town": ["Bonn", "Kiel", "Kiel"]})
    told, _ = _note(dpm.Dataset(table, domain={"town": ["Bonn", "Kiel"]}).count(by="town"))
    assert told == []


def test_a_twin_is_cut_by_both():
    first = dpm.Private([325.0, 300], name="demand", unit="entry", max_linf=310)
    assert first.twin(bounds=[0, 100]).cut_by == ("max_linf", "bounds")
    assert _people().count(by="town").twin(bounds=[0, 99]).cut_by == ("max_rows=2", "bounds")
