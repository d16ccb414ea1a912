"""Right-hand sides that are integers by declaration are rounded where the true ones can be, and integers in x take the
multipliers out of statements."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.programs.feasibility import integer_sides, relaxed_program


def batches(need: float, **declared: Any) -> dpm.Problem:
    """Batches of 7, at 1000 each, for a need."""
    d, x = dpm.Private(need, name="d", linf=1.0, **declared), cp.Variable(integer=True, nonneg=True, name="x")
    return dpm.Problem(cp.Minimize(1000 * x), [7 * x >= d])


@pytest.mark.parametrize("mode", ["safe", "relaxed"])
@pytest.mark.parametrize("need", [7, 14, 8])
def test_a_side_just_beyond_an_integer_costs_no_step(mode: str, need: int) -> None:
    """7 x >= 7: one batch. A side of 7.000002 takes two."""
    problem = batches(need, integer=True)
    value = problem.solve(epsilon=1e6, feasibility=mode, mechanism="laplace-once", rng=0)
    assert value == pytest.approx(1000 * -(-need // 7))


def test_without_the_declaration_nothing_is_rounded() -> None:
    """A number that may be 7.000001 needs two batches."""
    for declared, value in (({}, 2000), ({"integer": True}, 1000)):
        found = batches(7.0, **declared).solve(epsilon=1e6, feasibility="safe", mechanism="laplace-once", rng=0)
        assert found == pytest.approx(value)


@pytest.mark.parametrize("integer", [False, True])
def test_multipliers_are_told_of_continuous_variables_alone(integer: bool) -> None:
    d, x = dpm.Private(7.0, name="d", linf=1.0), cp.Variable(integer=integer, nonneg=True, name="x")
    problem = dpm.Problem(cp.Minimize(1000 * x), [7 * x >= d])
    problem.solve(epsilon=1, feasibility="safe", mechanism="laplace-once", rng=0)
    texts = [problem.release.accuracy.statement, problem.last_plan.chosen.forecast.statement]
    assert [("multipliers" in text) for text in texts] == [not integer] * 2
    assert any("tightening made" in note for note in problem.release.notes) != integer


def rounding(write: Any, amount: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Private sides b of a model's rows ``A x <= b``, and what noise below ``amount`` and rounding make of them."""
    model = write()._model(None)
    rows = model.form.private_rows
    b = model.form.scalar.apply(model.read_private())
    noise = np.random.default_rng(3).uniform(-1, 1, (200, b.size)) * amount * rows
    noise[0], noise[1] = amount * rows, -amount * rows
    relax = np.where(rows, -amount, 0.0)
    inwards = [integer_sides(model, relaxed_program(model, None, b + e, None, relax), relax).b for e in noise]
    outwards = [integer_sides(model, relaxed_program(model, None, b + e, None, -relax), -relax).b for e in noise]
    true = model.form.b0 + b
    return true[rows], np.array(inwards)[:, rows], np.array(outwards)[:, rows]


def one_row_each() -> dpm.Problem:
    d, x = dpm.Private([7.0, 0, -4], name="d", unit="entry", linf=1, integer=True), cp.Variable(3)
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= d, 3 * x <= 40.5 - 2 * d])


def sums() -> dpm.Problem:
    d, x = dpm.Private([7.0, 0, 4], name="d", unit="all", l1=1, integer=True), cp.Variable(3, integer=True)
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= np.tril(np.ones((3, 3))) @ d + 0.25])


def flags() -> dpm.Problem:
    d, x = dpm.Private([1.0, 0, 1], name="d", unit="entry", boolean=True), cp.Variable(3)
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= d])


INTEGER = [one_row_each, sums, flags]


@pytest.mark.parametrize("amount", [1e-7, 0.3, 1.0, 2.7])
@pytest.mark.parametrize("write", INTEGER, ids=lambda write: write.__name__)
def test_rounding_keeps_every_side_that_noise_within_the_margin_leaves(write: Any, amount: float) -> None:
    """Tightened sides stay at most the true ones, relaxed ones at least; and they come nearer to them."""
    true, inwards, outwards = rounding(write, amount)
    assert (inwards <= true + 1e-9).all() and (outwards >= true - 1e-9).all()
    assert np.abs(inwards - true - np.rint(inwards - true)).max() < 1e-9  # a whole number of steps away
    assert (true - inwards <= 2 * amount + 1e-9).all()
    if amount < 0.5:
        assert np.abs(inwards - true).max() < 1e-9 and np.abs(outwards - true).max() < 1e-9


def half_bounds() -> dpm.Problem:
    d, x = dpm.Private([7.0], name="d", linf=1, bounds=[0, 7.5], integer=True), cp.Variable(1)
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= d])


def scaled() -> dpm.Problem:
    d, x = dpm.Private([7.0, 1], name="d", max_l1=5, integer=True), cp.Variable(2)
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= d])


def half_coefficients() -> dpm.Problem:
    d, x = dpm.Private([7.0], name="d", linf=1, integer=True), cp.Variable(1)
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= d / 2])


def two_numbers() -> dpm.Problem:
    """An integer and a number that is none, in one row."""
    d, e = dpm.Private([7.0], name="d", linf=1, integer=True), dpm.Private([0.5], name="e", linf=1)
    x = cp.Variable(1)
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= d + e])


@pytest.mark.parametrize("write", [half_bounds, scaled, half_coefficients, two_numbers], ids=lambda w: w.__name__)
def test_what_may_be_no_integer_is_not_rounded(write: Any) -> None:
    model = write()._model(None)
    b = model.form.scalar.apply(model.read_private())
    relax = np.where(model.form.private_rows, -0.1, 0.0)
    program = relaxed_program(model, None, b, None, relax)
    assert integer_sides(model, program, relax) is program


def test_relaxed_rows_with_private_coefficients_keep_the_true_optimum() -> None:
    """a x <= b: the side covers the noise on a as well, and rounded down to an integer it would cut off x = 10."""
    for seed in range(10):
        a = dpm.Private([[1.0]], name="a", linf=1e-3, bounds=[0.5, 1.5], records=dpm.Records("one"))
        b = dpm.Private([10.0], name="b", unit="entry", linf=1, integer=True, records=dpm.Records("other"))
        x = cp.Variable(1, nonneg=True)
        problem = dpm.Problem(cp.Maximize(cp.sum(x)), [a @ x <= b, x <= 1000])
        found = problem.solve(epsilon=200, feasibility="relaxed", mechanism="laplace-once", rng=seed)
        assert found >= 10 - 1e-6
