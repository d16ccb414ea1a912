"""The registry, the taxonomy and the docstrings agree."""

from __future__ import annotations

import inspect
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from families import INEQUALITIES, POINTS, PORTFOLIO, POSTPROCESSING, REGRESSIONS, VECTORS

import dpmodel as dpm
from dpmodel.contract import Mechanism, Options
from dpmodel.solve.registry import KINDS, by_name

SYSTEMS = (*VECTORS, *INEQUALITIES, *POINTS)
# Rows with which a statement about exact equations, or a choice among points, says something.
ENOUGH = 400


def test_taxonomy_names_exactly_the_registered_mechanisms() -> None:
    named = {name for cell in dpm.taxonomy() for name in cell.mechanisms}
    assert named == {mechanism.name for mechanism in PORTFOLIO}
    assert dpm.taxonomy().to_dict()["regressions"] == [mechanism.name for mechanism in REGRESSIONS]
    assert dpm.taxonomy().to_dict()["postprocessing"] == [mechanism.name for mechanism in POSTPROCESSING]
    assert set(dpm.taxonomy().to_dict()["systems"]) == {mechanism.name for mechanism in SYSTEMS}
    beyond = (*REGRESSIONS, *POSTPROCESSING, *SYSTEMS)
    assert all(mechanism.name in dpm.taxonomy()._repr_html_() for mechanism in beyond)


@pytest.mark.parametrize("mechanism", (*PORTFOLIO, *REGRESSIONS, *POSTPROCESSING, *SYSTEMS), ids=lambda m: m.name)
def test_every_mechanism_states_source_privacy_utility_and_cost(mechanism: Mechanism) -> None:
    assert isinstance(mechanism, Mechanism)
    text = inspect.getdoc(type(mechanism)) or ""
    for heading in ("Source", "Privacy", "Utility", "Cost"):
        assert f"\n{heading}" in text, heading
    assert mechanism.source
    # A name may stand for one mechanism of each kind.
    assert any(by_name(mechanism.name, kind) is mechanism for kind in KINDS)


def objective_cell() -> dpm.Problem:
    c = dpm.Private(shape=3, name="c", l1=1)
    x = cp.Variable(3, nonneg=True)
    return dpm.Problem(cp.Minimize(c @ x), [cp.sum(x) == 1])


def scalar_cell(**bounds: Any) -> dpm.Problem:
    b = dpm.Private(shape=4, name="b", unit="entry", **bounds)
    x = cp.Variable(3, nonneg=True)
    return dpm.Problem(cp.Minimize(0), [cp.sum(x) == 1, TABLE @ x <= b])


def equality_cell() -> dpm.Problem:
    b = dpm.Private(shape=4, name="b", unit="entry", linf=1, bounds=[0, 9])
    x = cp.Variable(3, nonneg=True)
    return dpm.Problem(cp.Minimize(0), [cp.sum(x) == 1, TABLE @ x == b])


def scalar_with_cost() -> dpm.Problem:
    """As many rows as a choice among several points needs."""
    b = dpm.Private(shape=100, name="b", unit="entry", linf=1, bounds=[0, 9])
    x = cp.Variable(3, bounds=[0, 1])
    return dpm.Problem(cp.Minimize(cp.sum(x)), [np.tile(TABLE, (25, 1)) @ x >= b])


def few_binding_cell() -> dpm.Problem:
    """One record moves every right-hand side, and few of many bind."""
    b = dpm.Private(shape=2000, name="b", linf=1, bounds=[500, 1000])
    x = cp.Variable(4, bounds=[0, 1e4])
    A = cp.Constant(np.sin(np.arange(8000.0)).reshape(2000, 4) ** 2, name="A")
    return dpm.Problem(cp.Maximize(cp.sum(x)), [A @ x <= b])


def least_rows_cell(**bounds: Any) -> dpm.Problem:
    """As many rows as a choice among several points needs."""
    A = dpm.Private(shape=(ENOUGH, 2), name="A", unit="row", **bounds)
    x = cp.Variable(2, bounds=[0, 1])
    return dpm.Problem(cp.Minimize(cp.sum(x)), [A @ x >= 1])


def row_cell(**bounds: Any) -> dpm.Problem:
    A = dpm.Private(shape=(4, 3), name="A", unit="row", **bounds)
    x = cp.Variable(3, nonneg=True)
    return dpm.Problem(cp.Minimize(0), [cp.sum(x) == 1, A @ x <= 50])


def integer_sides(rows: int) -> dpm.Problem:
    b = dpm.Private(shape=rows, name="b", unit="entry", linf=1, integer=True)
    return dpm.Problem(cp.Minimize(0), [np.arange(3 * rows).reshape(rows, 3) @ cp.Variable(3) == b])


def exact_cell(rows: int, **bounds: Any) -> dpm.Problem:
    A = dpm.Private(shape=(rows, 3), name="A", unit="row", integer=True, **bounds)
    x = cp.Variable(3)
    return dpm.Problem(cp.Minimize(0), [A @ x == 1])


def column_cell() -> dpm.Problem:
    A = dpm.Private(shape=(4, 3), name="A", unit="column", linf=0.1, bounds=[0, 1])
    x = cp.Variable(3, nonneg=True)
    return dpm.Problem(cp.Minimize(0), [cp.sum(x) == 1, A @ x <= 50])


def matrix_cell() -> dpm.Problem:
    A = dpm.Private(shape=(4, 3), name="A", linf=0.1, bounds=[0, 1])
    x = cp.Variable(3, nonneg=True)
    return dpm.Problem(cp.Minimize(0), [cp.sum(x) == 1, A @ x <= 50])


TABLE = np.arange(12.0).reshape(4, 3) / 12
CELLS: dict[tuple[str, str], list[dpm.Problem]] = {
    ("objective", "low"): [objective_cell()],
    ("scalar", "low"): [
        scalar_cell(linf=1, bounds=[40, 90]),
        equality_cell(),
        few_binding_cell(),
        scalar_with_cost(),
        integer_sides(4),
        integer_sides(ENOUGH),
    ],
    ("row", "low"): [
        row_cell(linf=0.1, bounds=[0, 1]),
        least_rows_cell(linf=0.1, bounds=[0, 1]),
        exact_cell(4, linf=1),
        exact_cell(ENOUGH, linf=1),
    ],
    ("row", "high"): [row_cell(), least_rows_cell(), least_rows_cell(nonneg=True), exact_cell(4), exact_cell(ENOUGH)],
    ("matrix", "low"): [matrix_cell()],
    ("column", "low"): [column_cell()],
}


@pytest.mark.parametrize("part_and_level", CELLS, ids="-".join)
def test_taxonomy_lists_what_serves_each_cell(part_and_level: tuple[str, str]) -> None:
    """A model of each solvable cell is planned, relaxed and strict: whoever is eligible there stands in the table."""
    eligible = set()
    for problem in CELLS[part_and_level]:
        assert {(c.part, c.level) for c in problem.classify().cells} == {part_and_level}
        for feasibility in ("relaxed", "strict"):
            model = problem._model(None)
            options = Options(1.0, 1e-6, feasibility=feasibility)
            eligible |= {m.name for m in PORTFOLIO if m.eligible(model, options).eligible}
    assert eligible == set(next(c for c in dpm.taxonomy() if (c.part, c.level) == part_and_level).mechanisms)


def test_the_other_cells_are_impossible() -> None:
    for cell in dpm.taxonomy():
        assert ((cell.part, cell.level) in CELLS) == cell.solvable
        assert cell.solvable or not cell.mechanisms


def test_unknown_name_lists_the_names_that_would_do() -> None:
    with pytest.raises(dpm.errors.SpecificationError) as refused:
        by_name("laplce")
    assert all(mechanism.name in str(refused.value) for mechanism in PORTFOLIO)


def test_exact_satisfaction_is_asked_of_those_who_give_it() -> None:
    exact = {mechanism.name for mechanism in PORTFOLIO if mechanism.serves.exact}
    assert exact
    plan = exact_cell(ENOUGH).plan(1.0, 1e-6, feasibility=dpm.Exact())
    assert {c.mechanism for c in plan.candidates if c.eligible} == exact
