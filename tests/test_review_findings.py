"""Breaks that a review found and that must not come back, each with the smallest model that shows it."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm


def _change(problem: dpm.Problem) -> dict[str, float]:
    return dict(problem.classify().cells[0].change)


def test_an_aggregate_under_add_remove_moves_by_its_whole_range() -> None:
    records = dpm.Records("people", neighbors="add-remove")
    total = dpm.Private([5.0], unit="all", bounds=[-5, 5], records=records)
    owned = dpm.Private([5.0], unit="entry", bounds=[-5, 5], records=records)
    assert total.linf == 10  # one record less may turn -5 into 5
    assert owned.linf == 5  # the record's own entry is there or zero


def test_two_vectors_nobody_said_anything_about_are_not_paired() -> None:
    x = cp.Variable()
    p, q = (dpm.Private([0.0, 0.0], unit="entry", linf=1, name=n) for n in "pq")
    assert _change(dpm.Problem(cp.Minimize(x), [x >= p[0] + q[1]]))["linf"] == 2
    same = dpm.Records("customers")
    p, q = (dpm.Private([0.0, 0.0], unit="entry", linf=1, name=n, records=same) for n in "pq")
    assert _change(dpm.Problem(cp.Minimize(x), [x >= p[0] + q[1]]))["linf"] == 1


def test_a_row_and_its_right_hand_side_are_paired_by_default() -> None:
    x = cp.Variable(2)
    A = dpm.Private(np.ones((3, 2)), unit="row", linf=0.1, name="A")
    b = dpm.Private(np.ones(3), unit="entry", linf=1, name="b")
    assert {cell.part for cell in dpm.Problem(cp.Minimize(cp.sum(x)), [A @ x >= b]).classify().cells} == {"row"}


@pytest.mark.parametrize("value", [[2**60 + 128, 2**60], np.array([1, 2], dtype=np.longdouble)], ids=str)
def test_numbers_that_double_precision_would_round_are_refused(value: object) -> None:
    if isinstance(value, np.ndarray) and value.dtype.itemsize <= 8:
        pytest.skip("long doubles are doubles on this platform")
    with pytest.raises(dpm.SpecificationError, match="rounded"):
        dpm.Private(value, unit="entry", linf=1)


@pytest.mark.parametrize("linf", [1e-170, 1e170])
def test_changes_that_cannot_be_squared_are_refused(linf: float) -> None:
    with pytest.raises(dpm.SpecificationError, match="squared"):
        dpm.Private([1.0], unit="entry", linf=linf)


def test_constraints_that_lowering_would_drop_are_refused() -> None:
    x = cp.Variable(2)
    p = dpm.Private([1.0, 1.0], unit="entry", linf=1, name="p")
    with pytest.raises(dpm.UnsupportedModelError, match="FiniteSet"):
        dpm.Problem(cp.Minimize(cp.sum(x)), [x >= p, cp.FiniteSet(x[0], [5, 7])]).classify()


def test_public_points_are_not_taken_on_trust() -> None:
    c = dpm.Private([1.0, 2.0], unit="entry", linf=1, name="c")
    x = cp.Variable(2)
    in_a_cone = dpm.Problem(cp.Maximize(c @ x), [cp.norm(x) <= 1])
    with pytest.raises(dpm.SpecificationError):
        in_a_cone.plan(1, 1e-6, mechanism=dpm.mechanisms.VertexExponential(vertices=[[5, 5], [7, 7]]))
    whole = cp.Variable(2, integer=True)
    integers = dpm.Problem(cp.Maximize(c @ whole), [whole >= 0, whole <= 3])
    with pytest.raises(dpm.SpecificationError, match="integer"):
        integers.plan(1, 1e-6, mechanism=dpm.mechanisms.VertexExponential(vertices=[[0.5, 1], [1, 1]]))


def test_a_pickled_budget_whose_ledger_is_gone_stays_spent(tmp_path: Path) -> None:
    path = tmp_path / "spent.db"
    budget = dpm.Budget(1, ledger=path)
    budget.charge(0.9)
    dumped = pickle.dumps(budget)
    path.unlink()
    with pytest.raises(dpm.SpecificationError, match="forget"):
        pickle.loads(dumped)


def test_statements_name_the_clamp_beyond_which_they_do_not_hold() -> None:
    x = cp.Variable(1)
    unbounded = dpm.Problem(cp.Minimize(x[0]), [x >= dpm.Private([5e12], unit="entry", linf=1, name="b")])
    bounded = dpm.Private([5.0], unit="entry", linf=1, bounds=[0, 9], name="b")
    plan = unbounded.plan(1)
    assert plan.chosen.forecast is not None
    assert any("for private numbers up to" in caveat for caveat in plan.chosen.forecast.caveats)
    assert "for private numbers up to" in str(plan)
    within = dpm.Problem(cp.Minimize(x[0]), [x >= bounded]).plan(1).chosen.forecast
    assert within is not None and not any("private numbers up to" in caveat for caveat in within.caveats)


@pytest.mark.parametrize("objective", [False, True])
def test_expressions_split_into_rows_are_not_called_proved(objective: bool) -> None:
    """norm1 has a row per entry; each gives way, and the misses add up to far more than one row's alpha."""
    rng = np.random.default_rng(0)
    centre = rng.normal(size=50)
    p = dpm.Private(centre, unit="entry", linf=0.1, name="p")
    x = cp.Variable(50, name="x")
    if objective:
        problem = dpm.Problem(cp.Minimize(cp.norm1(x - p)), [cp.sum(x) == 3])
    else:
        problem = dpm.Problem(cp.Maximize(cp.sum(x)), [cp.norm1(x - p) <= 5])
    value = problem.solve(epsilon=1, rng=0)
    release = problem.release
    assert release is not None and not release.accuracy.proved
    assert "row of the standard form" in release.accuracy.statement
    chosen = next(c for c in release.plan["candidates"] if c["mechanism"] == release.mechanism)  # type: ignore[index]
    assert any("split" in caveat for caveat in chosen["forecast"]["caveats"])
    if objective:
        assert value is None and any("objective" in note for note in release.notes)
        assert "objective" not in release.accuracy.statement
    else:
        assert value == pytest.approx(x.value.sum())
        assert np.abs(x.value - centre).sum() - 5 > release.accuracy.alpha  # what the statement must not promise


def test_the_cell_of_a_paired_right_hand_side_reports_its_own_change() -> None:
    x = cp.Variable(2)
    same = dpm.Records("people")
    A = dpm.Private(np.ones((3, 2)), unit="row", linf=0.1, name="A", records=same)
    b = dpm.Private(np.ones(3), unit="entry", linf=50, name="b", records=same)
    cells = {c.parameter: c for c in dpm.Problem(cp.Minimize(cp.sum(x)), [A @ x >= b]).classify().cells}
    assert (cells["A"].change["linf"], cells["b"].change["linf"]) == (0.1, 50)
    assert "row_l1" not in cells["b"].change


def test_vertex_selection_refuses_where_public_scores_drown_private_ones() -> None:
    c = dpm.Private([1.0, 2.0], unit="entry", linf=1, name="c")
    x = cp.Variable(2, nonneg=True)
    known = cp.Constant([3e13, 2e13], name="known")
    plan = dpm.Problem(cp.Minimize(c @ x + known @ x), [cp.sum(x) == 1]).plan(1, 1e-6)
    refused = next(each for each in plan.candidates if each.mechanism == "vertex-exponential")
    assert not refused.eligible and "drown" in refused.reason


def test_strict_rows_never_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if a solver calls the tightened program infeasible: then there is no point, and not one that violates."""
    from dpmodel.compile.cone_program import ConeSolution
    from dpmodel.mechanisms.lp import solve_released

    x = cp.Variable(2, nonneg=True)
    b = dpm.Private([50.0, 60.0], unit="entry", linf=1, bounds=[40, 70], name="b")
    problem = dpm.Problem(cp.Maximize(cp.sum(x)), [x <= b])
    calls = []

    def infeasible(*given: object, **named: object) -> ConeSolution:
        calls.append(named)
        return ConeSolution("infeasible", None, None, None, 0.0)

    monkeypatch.setattr(solve_released, "solve_cone_program", infeasible)
    assert problem.solve(epsilon=1, delta=1e-6, feasibility="strict", rng=0) is None
    assert len(calls) == 1 and problem.release is not None
    assert problem.release.status == "infeasible" and x.value is None
    assert problem.release.accuracy.alpha is None


@pytest.mark.parametrize("declared", [{"bounds": [1, 2]}, {"linf": 1.0, "bounds": [0, 9]}, {"bounds": [-1, 1]}])
def test_a_row_is_absent_only_where_records_come_and_go_whole(declared: dict[str, Any]) -> None:
    """Counts move by one and bounds without zero keep a row present: neither is a row that reads 0 <= 0."""
    from dpmodel.mechanisms.lp.private_rows import private_rows

    records = dpm.Records(neighbors="add-remove")
    q = dpm.Private(shape=(3, 2), name="q", unit="row", records=records, **declared)
    x = cp.Variable(2, bounds=[0, 1])
    rows = private_rows(dpm.Problem(cp.Minimize(0), [q @ x <= 1])._model(None))
    assert rows.absent == q.vanishes == (declared == {"bounds": [-1, 1]})
    assert rows.sum_change(2) == (rows.norm2 if rows.absent else rows.swing(2))


def test_numbers_that_overflow_end_no_solve_and_give_no_warning() -> None:
    """One record's huge number must not decide whether a solve fails or warns."""
    people = dpm.Records("people")
    A = dpm.Private(np.ones((4, 2)), unit="row", name="A", records=people)
    b = dpm.Private(np.array([1.7e308, 1.0, 1.0, 1.0]), unit="entry", name="b", records=people)
    x = cp.Variable(2, bounds=[0, 1])
    problem = dpm.Problem(cp.Minimize(0), [A @ x <= 2 * b])
    for mechanism in ("dense-multiplicative-weights", "noisy-hinge-descent", "point-exponential"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", dpm.NotPrivateWarning)
            warnings.simplefilter("ignore", dpm.NoGuaranteeWarning)
            problem.solve(10.0, 1e-6, mechanism=mechanism, rng=0)
        assert x.value is not None and np.isfinite(x.value).all()
