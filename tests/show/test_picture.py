"""The figure of a plan holds its forecasts, and simulated runs are of synthetic data alone."""

from __future__ import annotations

import math
import pickle
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.marks import vault

pytest.importorskip("matplotlib")
EPSILONS = [0.5, 1.0, 4.0]


def program(value: Any = (20.0, 30.0, 12.0), linf: float = 1, equal: bool = False) -> dpm.Problem:
    need = dpm.Private(value, name="need", unit="entry", linf=linf, bounds=[0, 60])
    x = cp.Variable(3, bounds=[0, 100], name="x")
    return dpm.Problem(cp.Minimize(cp.sum(x)), [((x == need) if equal else (x >= need)).set_label("wards")])


def lines(figure: Any, panel: int = 0) -> dict[str, Any]:
    return {line.get_label(): line for line in figure.axes[panel].get_lines()}


def caption(figure: Any) -> str:
    return figure.get_supxlabel().replace("\n", " ")


def test_the_lines_are_the_forecasts_of_plans_at_these_epsilons() -> None:
    problem = program()
    figure = problem.plan(1.0, 1e-6, feasibility="centred").plot(EPSILONS)
    drawn = lines(figure)
    assert "laplace-once (chosen)" in drawn and "gaussian-once" in drawn
    for k, epsilon in enumerate(EPSILONS):
        for candidate in problem.plan(epsilon, 1e-6, compare="all", feasibility="centred").candidates:
            forecast, name = candidate.forecast, candidate.mechanism
            line = drawn.get(name, drawn.get(f"{name} (chosen)"))
            said = forecast is not None and not forecast.vacuous and not forecast.spends_nothing
            if said:
                assert line is not None, name
                assert line.get_ydata()[k] == pytest.approx(forecast.error.violation)
                assert (line.get_linestyle() == "-") or not forecast.proved
            elif line is not None:
                assert math.isnan(line.get_ydata()[k])
            elif candidate.eligible and not (forecast is not None and forecast.spends_nothing):
                assert name in caption(figure), "what is not drawn is named"


def test_the_lower_bound_is_that_of_the_theorem_in_the_units_of_the_problem() -> None:
    for linf in (1.0, 3.0):
        equal = program(linf=linf, equal=True)
        figure = equal.plan(1.0, feasibility="centred").plot(EPSILONS)
        x, y = lines(figure)["lower bound (worst program)"].get_data()
        alive = math.log(0.95 / 0.05)
        assert min(x) == pytest.approx(0.5) and 0.95 * alive < max(x) < alive and set(y) == {linf / 2}
        assert "worst program of this cell" in caption(figure) and "wards" in caption(figure)
    assert "lower bound (worst program)" not in lines(equal.plan(1.0, feasibility="centred").plot([3.0, 4.0]))
    # Enough beds for everybody never miss: no theorem on equalities is drawn beside that.
    assert "lower bound (worst program)" not in lines(program().plan(1.0, feasibility="centred").plot(EPSILONS))


def test_strict_plans_draw_by_how_much_right_hand_sides_are_tightened() -> None:
    plan = program().plan(1.0, 1e-6, feasibility="strict")
    figure = plan.plot(EPSILONS)
    assert "tightened" in figure.axes[0].get_ylabel() and len(figure.axes) == 1
    drawn = lines(figure)["strict-truncated-laplace (chosen)"].get_ydata()
    assert drawn[1] == pytest.approx(plan.chosen.forecast.error.tightening)
    assert "An error of 0 is below the axis: strict-truncated-gaussian, strict-truncated-laplace" in caption(figure)


def test_two_kinds_of_error_have_a_panel_each() -> None:
    cost = dpm.Private([1.0, 2.0, 1.5], name="cost", unit="entry", linf=0.1, bounds=[0, 5])
    need = dpm.Private([20.0, 30.0, 12.0], name="need", unit="entry", linf=1, bounds=[0, 60])
    x = cp.Variable(3, bounds=[0, 100], name="x")
    plan = dpm.Problem(cp.Minimize(cost @ x), [(x >= need).set_label("wards")]).plan(2.0, feasibility="centred")
    figure, error = plan.plot([2.0]), plan.chosen.forecast.error
    assert [axes.get_ylabel() for axes in figure.axes] == [
        "private constraint missed by, at most",
        "objective lost, at most",
        "expected cost beyond the best",
    ]
    for panel, value in enumerate((error.violation, error.objective)):
        assert lines(figure, panel)[f"{plan.chosen.mechanism} (chosen)"].get_ydata()[0] == pytest.approx(value)
    from matplotlib.figure import Figure

    given = Figure().subplots()
    plan.plot([2.0], ax=given)
    assert "Not on this axes: objective lost" in " ".join(t.get_text().replace("\n", " ") for t in given.texts)


def test_a_copy_draws_its_own_epsilon_and_says_why_not_others() -> None:
    plan = program().plan(1.0, feasibility="centred")
    copy = pickle.loads(pickle.dumps(plan))
    for other in (copy, type(plan).from_json(plan.to_json())):
        figure = other.plot()
        assert lines(figure)["laplace-once (chosen)"].get_data()[0].tolist() == [1.0]
        assert "need the problem" in caption(figure)
        with pytest.raises(dpm.errors.SpecificationError, match="need the problem"):
            other.plot(EPSILONS)
        with pytest.raises(dpm.errors.SpecificationError, match="copy of a plan"):
            other.simulate()


def test_what_cannot_be_drawn_says_so() -> None:
    with pytest.raises(dpm.errors.SpecificationError, match="known without data"):
        program().plan(1e-4, feasibility="centred").plot([1e-4, 2e-4])
    x = cp.Variable(2, nonneg=True)
    fit = dpm.Problem(
        cp.Minimize(dpm.released.neg_log_likelihood(x, dpm.Noisy([3.0, -1.0], dpm.noise.Laplace(1.0), name="n")))
    )
    with pytest.raises(dpm.errors.SpecificationError, match="costs no privacy"):
        fit.plan().plot()


def test_private_values_reach_neither_figure_nor_simulation(monkeypatch: Any) -> None:
    plans = [program(value).plan(1.0, feasibility="centred") for value in ((20.0, 30.0, 12.0), (59.0, 0.5, 7.7777))]

    def read(*_: Any) -> Any:
        raise AssertionError("a private value was read")

    monkeypatch.setattr(vault, "unseal", read)
    one, other = (plan.simulate([1.0], runs=3) for plan in plans)
    assert one.to_dict() == other.to_dict()
    drawn = [plan.plot([1.0, 2.0], simulated=one)._repr_svg_() for plan in plans]
    assert drawn[0] == drawn[1]


def test_simulated_runs_keep_what_is_proved_and_are_drawn() -> None:
    plan = program().plan(1.0, feasibility="centred")
    simulated = plan.simulate(EPSILONS, runs=20, mechanisms=["laplace-once"])
    assert set(simulated.errors) == {("laplace-once", epsilon) for epsilon in EPSILONS}
    forecasts = lines(plan.plot(EPSILONS))["laplace-once (chosen)"].get_ydata()
    for epsilon, most in zip(EPSILONS, forecasts, strict=True):
        missed = simulated.errors["laplace-once", epsilon]["violation within"]
        assert len(missed) == 20
        assert sum(value > most for value in missed) <= 4, "beta = .05 of 20 runs, with room"
        assert np.mean(missed) > most / 20, "they are errors of this mechanism, not of none"
    figure = plan.plot(EPSILONS, simulated=simulated)
    points = lines(figure)["laplace-once, measured"]
    assert len(points.get_xdata()) == 60 and "synthetic databases" in caption(figure)
    assert "laplace-once" in str(simulated)


def test_simulations_that_cannot_be_told_are_refused() -> None:
    need = dpm.Private([20.0], name="need", unit="entry", linf=1)
    open_range = dpm.Problem(cp.Minimize((x := cp.Variable(1, bounds=[0, 99]))[0]), [x >= need])
    with pytest.raises(dpm.errors.SpecificationError, match="declared range"):
        open_range.plan(1.0).simulate()
    cone = dpm.Private([20.0], name="cone", unit="entry", linf=1, bounds=[0, 60])
    y = cp.Variable(2, bounds=[-99, 99])
    with pytest.raises(dpm.errors.SpecificationError, match="cones"):
        dpm.Problem(cp.Minimize(cp.sum(y)), [cp.norm2(y) <= cone[0]]).plan(1.0).simulate()
    with pytest.raises(dpm.errors.SpecificationError, match="does not apply"):
        program().plan(1.0, feasibility="centred").simulate(mechanisms=["frank-wolfe"])
    with pytest.raises(dpm.errors.SpecificationError, match="runs"):
        program().plan(1.0, feasibility="centred").simulate(runs=0)


@pytest.mark.slow
def test_a_regression_draws_its_predictions() -> None:
    records = dpm.Records("people")
    rng = np.random.default_rng(0)
    X = dpm.Private(rng.uniform(-1, 1, (400, 2)), name="X", unit="row", bounds=[-1, 1], records=records)
    y = dpm.Private(rng.uniform(-1, 1, 400), name="y", unit="entry", bounds=[-1, 1], records=records)
    w = cp.Variable(2, name="w")
    problem = dpm.Problem(cp.Minimize(cp.sum_squares(X @ w - y)), [cp.norm1(w) <= 1])
    plan = problem.plan(2.0, 1e-6, feasibility="centred")
    figure = plan.plot([2.0, 8.0])
    drawn = lines(figure)[f"{plan.chosen.mechanism} (chosen)"]
    assert drawn.get_ydata()[0] == pytest.approx(plan.chosen.forecast.error.predicted)
    assert {line.get_linestyle() for name, line in lines(figure).items() if "_" not in name} <= {"--", ":"}, "predicted"
    proved = {name: line for name, line in lines(figure, 1).items() if name in ("sufficient-statistics",)}
    assert proved and all(line.get_linestyle() == "-" for line in proved.values())
    assert "predicted" in figure.axes[0].get_ylabel() and "proved" in figure.axes[1].get_ylabel()
    assert set(plan.simulate([1.0], runs=1).points("excess risk")) == {plan.chosen.mechanism, plan.runner_up}
