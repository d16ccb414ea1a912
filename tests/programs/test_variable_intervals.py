"""Intervals for the variables at the true optimum: coverage, draws that leave no point too, ranges by brute force."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy.stats import binom

import dpmodel as dpm
from dpmodel.errors import SpecificationError
from dpmodel.programs import variables as found_by
from dpmodel.programs.elastic import Elastic
from tests.zoo import finance, places, production, registry, systems  # noqa: F401

LEVEL, FALSE_ALARM = 0.8, 1e-8  # by variable: some hundred are tested
SAME = "The same rows bind"


def transport(private: Any, supply: float = 1.3) -> tuple[Any, list[Any]]:
    """Two plants, three markets; just above a supply of 1 noise leaves no point in half of the draws."""
    need, cost = np.array([9.0, 14.0, 5.0]), np.array([[2.0, 5, 7], [6.0, 3, 2.5]])
    x = cp.Variable((2, 3), nonneg=True, name="x")
    demand = private(need, name="need", unit="entry", linf=1)
    rows = [cp.sum(x, axis=0) >= demand, cp.sum(x, axis=1) <= need.sum() * supply / 2]
    return cp.Minimize(cp.sum(cp.multiply(cost, x))), rows


def public(value: Any, **declared: Any) -> Any:
    return cp.Constant(value)


def truth_of(made: tuple[Any, list[Any]]) -> np.ndarray:
    problem = cp.Problem(*made)
    problem.solve(solver=cp.HIGHS)
    return np.concatenate([np.ravel(v.value) for v in problem.variables()])


def covered(problem: dpm.Problem, truth: np.ndarray, runs: int, epsilon: float, **asked: Any) -> tuple[Any, int, int]:
    """How often each variable is covered, how often the same rows bound, and how often no point was left."""
    inside, same, none = np.zeros(truth.size), 0, 0
    asked = {"mechanism": "laplace-once", "feasibility": "centred", **asked}
    for seed in range(runs):
        problem.solve(epsilon, rng=seed, **asked)
        none += problem.release.status != "optimal"
        try:
            table = problem.release.intervals(LEVEL)
        except SpecificationError:
            continue  # no point: it covers nothing
        room = 1e-6 * (1 + np.abs(truth))
        inside += (table.low - room <= truth) & (truth <= table.high + room)
        same += table.notes[0].startswith(SAME)
    return inside, same, none


@pytest.mark.parametrize(("supply", "epsilon", "none"), [(1.3, 30.0, False), (1.02, 1.0, True)])
def test_quick_coverage(supply: float, epsilon: float, none: bool) -> None:
    truth, runs = truth_of(transport(public, supply)), 25
    inside, same, without = covered(dpm.Problem(*transport(dpm.Private, supply)), truth, runs, epsilon)
    assert inside.min() >= binom.ppf(FALSE_ALARM, runs, LEVEL)
    assert without >= 5 if none else same >= 5


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 5.0])
@pytest.mark.parametrize(
    "name", ["relief_fund", "production_and_storage", "best_supplier", "trade_table", "crop_rotation"]
)
def test_coverage(name: str, epsilon: float) -> None:
    """Private rows, stores, costs, tables that no draw leaves a point (equalities), and costs with rows."""
    case, runs = next(model for model in registry.MODELS if model.name == name).case("small"), 60
    truth = truth_of((case.truth.objective, case.truth.constraints))
    inside, _, none = covered(case.problem, truth, runs, epsilon)
    assert inside.min() >= binom.ppf(FALSE_ALARM, runs, LEVEL)
    assert none == (runs if name == "trade_table" else 0)


def two_sources(number: Any) -> tuple[Any, list[Any]]:
    x, y = cp.Variable(name="cheap", bounds=[0, 10]), cp.Variable(name="dear", nonneg=True)
    return cp.Minimize(x + 3 * y), [x + y >= number]


def test_without_the_region_the_law_alone_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    """10.01 are needed, 10 are cheap: a draw below 10 says that nothing dear is bought, whatever the noise. A twin that
    does not check where rows bind believes it."""
    problem, runs = dpm.Problem(*two_sources(dpm.Private(np.array(10.01), name="need", linf=1))), 80
    problem.solve(1.0, rng=1, mechanism="laplace-once", feasibility="centred")
    model, options = problem.release._model_options()
    (measured,) = problem.release.measured
    draws = measured.distribution.sample((runs, 1), np.random.default_rng(9))
    releases = [replace(problem.release, measured=(replace(measured, values=10.01 + noise),)) for noise in draws]

    def inside() -> float:
        found = [found_by.variable_intervals(model, each, options, LEVEL) for each in releases]
        return sum(bool(table.low[1] <= 0.01 <= table.high[1]) for table in found)

    least, checked = binom.ppf(1e-6, runs, LEVEL), found_by._same_rows
    assert measured.coefficient.tolist() == [1.0] and inside() >= least
    monkeypatch.setattr(found_by, "_same_rows", lambda programs, *a: checked(replace(programs, beta=1 - 1e-9), *a))
    assert inside() < least


def costs_and_needs(private: Any) -> tuple[Any, list[Any]]:
    x = cp.Variable(3, name="x", bounds=[0, 20])
    cost = private(np.array([1.0, 2.0, 2.4]), name="cost", unit="entry", linf=0.05)
    need = private(np.array([12.0, 4.0]), name="need", unit="entry", linf=1)
    return cp.Minimize(cost @ x), [x[0] + x[1] >= need[0], x[1] + 0.5 * x[2] >= need[1], x[2] <= 6]


def shares(private: Any) -> tuple[Any, list[Any]]:
    x = cp.Variable(3, name="x", bounds=[0, 20])
    share = private(np.array([0.5, 0.3, 0.8]), name="share", unit="entry", linf=0.05, bounds=(0, 1))
    return cp.Minimize(np.array([1.0, 1.5, 3.0]) @ x), [share @ x >= 6, cp.sum(x) <= 30]


@pytest.mark.parametrize("write", [transport, costs_and_needs, shares])
@pytest.mark.parametrize("epsilon", [1.0, 20.0])
def test_every_optimum_of_the_region_is_inside(write: Any, epsilon: float) -> None:
    """Optima at numbers anywhere in the region, by CVXPY, lie in the range; and in what the same rows give for all."""
    problem = dpm.Problem(*write(dpm.Private))
    problem.solve(epsilon, rng=3, mechanism="laplace-once", feasibility="centred")
    table = problem.release.intervals(LEVEL)
    generator, most = np.random.default_rng(5), {}
    for each in problem.release.measured:
        count = each.values.size
        most[each.parameters] = each.distribution.max_abs_quantile(
            count, (1 - LEVEL) / 2 / len(problem.release.measured)
        )
    wide = not table.notes[0].startswith(SAME)
    tried = 0
    for _ in range(25):
        moved = {}
        for each in problem.release.measured:
            assert each.row.size == each.values.size  # a number for each entry
            noise = generator.choice([-1.0, 1.0, generator.uniform(-1, 1)], each.values.size) * most[each.parameters]
            entries = np.zeros(each.values.size)
            entries[each.entry] = ((each.values + noise)[each.row]) / each.coefficient
            moved[each.parameters[0]] = entries

        def number(value: Any, name: str, bounds: Any = None, moved: Any = moved, **declared: Any) -> Any:
            near = moved[name].reshape(np.shape(value), order="F")
            return cp.Constant(near if bounds is None else np.clip(near, *bounds))

        made = cp.Problem(*write(number))
        made.solve(solver=cp.HIGHS)
        if made.status != "optimal":
            continue
        tried += 1
        x = np.concatenate([np.ravel(v.value) for v in made.variables()])
        room = 1e-6 * (1 + np.abs(x))
        if wide:
            assert ((table.low - room <= x) & (x <= table.high + room)).all()
        else:  # slopes are at most these in each number
            assert (np.abs(x - table.estimate) <= room + 3 * sum(most.values()) * (table.error > 0)).all()
    assert tried >= 5


def test_what_is_not_moved_is_certain_and_lengths_follow_the_law() -> None:
    problem = dpm.Problem(*transport(dpm.Private))
    problem.solve(20.0, rng=1, mechanism="laplace-once", feasibility="safe")
    low, high = table = problem.release.intervals(0.95)
    (measured,) = problem.release.measured
    alone = measured.distribution.max_abs_quantile(1, 0.025)
    assert table.notes[0].startswith(SAME) and "elsewhere on purpose" in table.notes[1]
    half = (high - low) / 2
    assert table.names[1] == "x[0, 1]" and half[1] > alone * 1.2  # takes what two numbers leave
    assert half[[0, 4]] == pytest.approx(alone) and half[[2, 3]].max() == 0.0
    assert not np.isfinite(table.privacy).any() and "privacy" not in str(table)


def test_gaussian_noise_and_public_costs_chosen_later() -> None:
    problem = dpm.Problem(*transport(dpm.Private))
    problem.solve(100.0, 1e-6, rng=1, mechanism="gaussian-once", feasibility="centred")
    first = problem.release.intervals()
    assert first.notes[0].startswith(SAME)
    problem.resolve(feasibility="relaxed")
    again = problem.release.intervals()
    assert np.allclose(again.low, first.low) and again.released != pytest.approx(first.released)
    problem.resolve(feasibility=dpm.Priced({problem.constraints[0]: 60.0}))
    chosen = problem.release.intervals()  # prices may have been chosen after the numbers: no law of one program
    assert not chosen.notes[0].startswith(SAME) and "given prices" in chosen.of
    x = truth_of(transport(public))
    assert ((chosen.low - 1e-4 <= x) & (x <= chosen.high + 1e-4)).all()


def test_private_equalities_bind_on_both_sides() -> None:
    x = cp.Variable(2, name="x", nonneg=True)
    total = dpm.Private(np.array(8.0), name="total", linf=0.1)
    problem = dpm.Problem(cp.Minimize(x[0] + 2 * x[1]), [x[0] + x[1] == total, x[0] <= 5])
    inside, same, _ = covered(problem, np.array([5.0, 3.0]), 25, 1.0)
    assert same >= 20 and inside.min() >= binom.ppf(FALSE_ALARM, 25, LEVEL)


def test_prints_the_answer_first_within_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    problem = dpm.Problem(*transport(dpm.Private))
    problem.solve(1.0, rng=2)
    text = str(problem.release.summary())
    assert max(map(len, text.splitlines())) <= 80 and text.splitlines()[0].startswith("Private release by")
    assert "x[0, 0]" in text.splitlines()[3] and "true numbers" in text
    frame = problem.release.intervals().to_frame()
    assert len(frame) == 6 and (frame["lower"] <= frame["upper"]).all()


def test_refusals_say_why() -> None:
    need = dpm.Private(np.array(3.5), name="need", linf=1)
    x = cp.Variable(integer=True)
    whole = dpm.Problem(cp.Minimize(x), [x >= need, x <= 9])
    whole.solve(1.0, rng=1, mechanism="laplace-once")
    with pytest.raises(SpecificationError, match="integer"):
        whole.release.intervals()
    y = cp.Variable(2)
    cone = dpm.Problem(cp.Minimize(cp.sum_squares(y)), [cp.sum(y) >= need])
    cone.solve(1.0, rng=1, mechanism="laplace-once")
    with pytest.raises(SpecificationError, match="linear programs"):
        cone.release.intervals()
    z = cp.Variable(nonneg=True)
    line = dpm.Problem(cp.Minimize(z), [z >= need])
    line.solve(1.0, rng=1, mechanism="laplace-once")
    with pytest.raises(SpecificationError, match="problem is gone"):
        pickle.loads(pickle.dumps(line.release)).intervals()
    with pytest.raises(SpecificationError, match="coefficients"):
        line.release.intervals(at=[1.0])
    with pytest.raises(SpecificationError, match="between 0 and 1"):
        line.release.intervals(95)


def test_no_point_for_any_number_in_the_region() -> None:
    z = cp.Variable(nonneg=True)
    problem = dpm.Problem(cp.Minimize(z), [z >= dpm.Private(np.array(30.0), name="need", linf=1), z <= 5])
    problem.solve(5.0, rng=1, mechanism="laplace-once", feasibility="centred")
    with pytest.raises(SpecificationError, match="no point"):
        problem.release.intervals()


def test_elastic_is_what_optimum_solves() -> None:
    """At the released numbers, no row moved, it has the optimum that CVXPY has there."""
    problem = dpm.Problem(*transport(dpm.Private))
    model = problem._model(None)
    from dpmodel.contract import Options
    from dpmodel.programs.noise_once import LAPLACE_ONCE

    options = Options(1.0, 0.0, 0.1)
    design = LAPLACE_ONCE.design(model, options)
    b = model.form.with_noise(None, None, None)[1]
    moved = b.copy() * 0.0
    moved[design.parts["scalar"].measurement.positions] = -np.array([9.0, 14.0, 5.0])
    end = Elastic.of(model, design, options, None).solve((None, moved, None), 0.0, 0, None)
    truth = cp.Problem(*transport(public))
    truth.solve(solver=cp.HIGHS)
    assert end.value == pytest.approx(truth.value, rel=1e-6)
