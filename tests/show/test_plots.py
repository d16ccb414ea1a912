"""Figures hold the numbers that they claim to show, and say what they leave out."""

from __future__ import annotations

import re
import sys
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm

pytest.importorskip("matplotlib")


def texts(figure: Any) -> str:
    from matplotlib.text import Text

    return " ".join(t.get_text() for t in figure.findobj(Text)).replace("\n", " ")


@pytest.fixture(scope="module")
def solved() -> dpm.Problem:
    need = dpm.Private([20.0, 30.0, 12.0], name="need", unit="entry", linf=1, bounds=[0, 60])
    x = cp.Variable(3, bounds=[0, 100], name="x")
    problem = dpm.Problem(
        cp.Minimize(cp.sum(x)),
        [(x >= need).set_label("wards"), x[0] + x[1] <= need[2] + 200, (cp.sum(x) <= 250).set_label("beds")],
    )
    problem.solve(epsilon=1, feasibility="centred", rng=0)
    return problem


DRAWS = {
    "taxonomy": lambda p: dpm.taxonomy().plot,
    "classification": lambda p: p.classify().plot,
    "budget": lambda p: dpm.Budget(1.0).plot,
    "constraints": lambda p: p.release.plot_constraints,
    "values": lambda p: p.release.plot_values,
    "rows": lambda p: p.release.plot,
    "plan": lambda p: p.plan(1.0).plot,
}


@pytest.mark.parametrize("name", DRAWS)
def test_each_figure_draws_alone_on_given_axes_and_in_a_notebook(name: str, solved: dpm.Problem) -> None:
    from matplotlib.figure import Figure

    draw = DRAWS[name](solved)
    figure = draw()
    shown = figure._repr_svg_()
    assert shown.startswith("<svg role=") and "<metadata>" not in shown and shown == draw()._repr_svg_()
    axes = Figure().subplots()
    assert draw(ax=axes) is axes.figure and axes.get_title() in texts(figure)
    assert "matplotlib.pyplot" not in sys.modules, "no state and no window"
    with pytest.raises(dpm.errors.SpecificationError, match="Axes"):
        draw(ax=3)


@pytest.mark.parametrize("name", DRAWS)
def test_without_matplotlib_the_error_names_the_extra(name: str, solved: dpm.Problem, monkeypatch: Any) -> None:
    draw = DRAWS[name](solved)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(dpm.errors.MissingExtraError, match=r"\.\[plot\]"):
        draw()


def test_the_grid_has_the_verdicts_of_table_1() -> None:
    table = dpm.taxonomy()
    bars = {patch.get_gid(): patch for patch in table.plot().axes[0].patches}
    assert set(bars) == {f"{cell.label}:{cell.level}" for cell in table}
    colours = {}
    for cell in table:
        colours.setdefault(bars[f"{cell.label}:{cell.level}"].get_facecolor(), set()).add(cell.verdict)
    assert sorted(map(sorted, colours.values())) == [["no"], ["yes"], ["yes*"]]


def test_the_cells_of_a_model_are_lit(solved: dpm.Problem) -> None:
    figure = solved.classify().plot()
    framed = [p.get_gid() for p in figure.axes[0].patches if p.get_linewidth() == 3]
    assert framed == ["scalar b:low"] and "here: need" in texts(figure)
    cost = dpm.Private([1.0, 2.0], name="cost", unit="entry")
    impossible = dpm.Problem(cp.Minimize(cost @ cp.Variable(2, bounds=[0, 1]))).classify()
    lit = [p for p in impossible.plot().axes[0].patches if p.get_linewidth() == 3]
    red = next(p for p in dpm.taxonomy().plot().axes[0].patches if p.get_gid() == "objective c:high")
    assert not impossible.solvable and lit[0].get_facecolor() == red.get_facecolor()
    with pytest.raises(dpm.errors.SpecificationError, match="no cell"):
        dpm.Problem(cp.Minimize(cp.Variable(nonneg=True))).classify().plot()


def test_a_budget_shows_every_charge_and_what_is_left() -> None:
    budget = dpm.Budget(2.0, 1e-5)
    amounts = [0.1, 0.5, 0.25]
    for k, amount in enumerate(amounts):
        budget.charge(amount, 1e-6 * k, f"release {k}")
    epsilon, delta = budget.plot().axes
    assert [bar.get_width() for bar in epsilon.patches] == pytest.approx([*amounts, 2.0 - sum(amounts)])
    assert [bar.get_x() for bar in epsilon.patches] == pytest.approx([0, 0.1, 0.6, 0.85])
    assert [bar.get_width() for bar in delta.patches] == pytest.approx([0, 1e-6, 2e-6, 7e-6])
    assert [label.get_text() for label in epsilon.get_yticklabels()] == ["release 0", "release 1", "release 2", "left"]
    for k in range(30):
        budget.charge(0.01, 0, f"late {k}")
    figure = budget.plot()
    assert sum(bar.get_width() for bar in figure.axes[0].patches) == pytest.approx(2.0)
    assert "14 earlier charges" in texts(figure) and "33 charges" in texts(figure)


@pytest.mark.parametrize("feasibility, sign", [("relaxed", 1), ("safe", -1), ("centred", 0)])
def test_constraints_are_drawn_as_far_as_they_were_moved(feasibility: str, sign: int) -> None:
    need = dpm.Private([20.0, 30.0], name="need", unit="entry", linf=1, bounds=[0, 60])
    x = cp.Variable(2, bounds=[0, 100], name="x")
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [(x >= need).set_label("wards"), x[0] <= need[1] + 300])
    problem.solve(epsilon=1, rng=0, feasibility=feasibility)
    release = dpm.Release.from_json(problem.release.to_json()) if feasibility == "safe" else problem.release
    figure = release.plot_constraints()
    bars = [p for p in figure.axes[0].patches if (p.get_gid() or "").startswith("moved:")]
    assert [np.sign(bar.get_width()) for bar in bars] == [sign, sign] == [np.sign(bars[1].get_width())] * 2
    assert f"wards{' *'}" in texts(figure), "it binds"
    if feasibility == "relaxed":
        words = next(note for note in release.notes if note.startswith("wards"))
        assert f"made easier by {dpm.text.number(bars[0].get_width())} " in words
        dashed = [line.get_xdata()[0] for line in figure.axes[0].lines if line.get_linestyle() == "--"]
        assert dashed == [release.accuracy.violation_alpha]


def test_released_values_with_names_and_intervals(solved: dpm.Problem) -> None:
    figure = solved.release.plot_values("x")
    assert figure.axes[0].lines[0].get_xdata().tolist() == solved.release.variables["x"].tolist()
    assert "no interval of a single one is known" in texts(figure)
    with pytest.raises(dpm.errors.SpecificationError, match="no variable"):
        solved.release.plot_values("y")

    noisy = dpm.Noisy([3.0, -1.0, 8.0], dpm.noise.Laplace(1.0), name="counts")
    x = cp.Variable(3, nonneg=True, name="x")
    fit = dpm.Problem(cp.Minimize(dpm.released.neg_log_likelihood(x, noisy)))
    fit.solve()
    ends = dpm.released.intervals(fit, x)
    figure = fit.release.plot_values(intervals=ends)
    drawn = figure.axes[0].collections[0].get_segments()
    assert [[s[0][0], s[1][0]] for s in drawn] == np.transpose([ends.low, ends.high]).tolist()
    with pytest.raises(dpm.errors.SpecificationError, match="intervals for 2"):
        fit.release.plot_values(intervals=([0, 0], [1, 1]))
    low, high = np.array(ends.low), np.array(ends.high)
    high[0] = np.inf
    assert "1 unbounded, not drawn" in texts(fit.release.plot_values(intervals=(low, high)))


def test_private_rows_stand_in_the_users_signs_beside_what_the_answer_has() -> None:
    """Bounds from below and above, an equality, sums that CVXPY writes with columns of its own; unequal noise."""
    numbers = np.array([20.0, 30.0, 12.0, 8.0])
    need = dpm.Private(numbers, name="need", unit="entry", linf=1)
    x = cp.Variable(4, bounds=[0, 100], name="x")
    rows = [cp.cumsum(x) >= cp.cumsum(need), (x[0] <= 3 * need[1]).set_label("above"), x[3] - x[2] == -need[3]]
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), rows)
    problem.solve(epsilon=1, feasibility="centred", mechanism="laplace-once", rng=0)
    axes = problem.release.plot().axes[0]
    released, has = (line.get_xdata() for line in axes.get_lines())
    names = [label.get_text() for label in axes.get_yticklabels()]
    values = problem.release.variables["x"]
    provided = {f"constraint 0[{k}]": sum(values[: k + 1]) for k in range(4)}
    provided |= {"above": values[0], "constraint 2": values[3] - values[2]}
    assert set(names) == set(provided)
    assert has == pytest.approx([provided[name] for name in names], abs=1e-6)
    numbers = dict(zip(names, released, strict=True))
    assert numbers["constraint 2"] == pytest.approx(provided["constraint 2"], abs=1e-6), "an equality holds as released"
    assert all(provided[f"constraint 0[{k}]"] >= numbers[f"constraint 0[{k}]"] - 1e-6 for k in range(4))
    assert provided["above"] <= numbers["above"] + 1e-6 and "upper limits" in texts(axes.figure)
    bands = axes.collections[0].get_segments()
    width = {name: high - low for name, ((low, _), (high, _)) in zip(names, bands, strict=True)}
    assert width["above"] == pytest.approx(3 * width["constraint 2"], rel=0.02) and all(
        wide > 0 for wide in width.values()
    )


def test_all_true_numbers_lie_in_their_bands_as_often_as_it_says() -> None:
    """400 draws of 5 rows at beta .2; a false alarm has probability 1e-7."""
    from scipy.stats import binom

    from dpmodel.show import rows_figure

    numbers, missed = np.arange(10.0, 15.0), 0
    need = dpm.Private(numbers, name="need", unit="entry", linf=1)
    x = cp.Variable(5, bounds=[0, 100], name="x")
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= need])
    drawn: list[Any] = []
    original, rows_figure.private_rows = rows_figure.private_rows, lambda *given: drawn.append(given[3])
    try:
        for seed in range(400):
            problem.solve(epsilon=1, feasibility="centred", mechanism="laplace-once", rng=seed)
            problem.release.plot(beta=0.2)
            low, high = drawn.pop()
            missed += bool(((numbers < low) | (numbers > high)).any())
    finally:
        rows_figure.private_rows = original
    assert missed <= binom.isf(1e-7, 400, 0.2)


def test_rows_that_were_not_released_are_not_drawn(solved: dpm.Problem) -> None:
    import pickle

    with pytest.raises(dpm.errors.SpecificationError, match="its problem is gone"):
        pickle.loads(pickle.dumps(solved.release)).plot()
    prices = dpm.Private([2.0, 3.0], name="prices", unit="entry", linf=1, bounds=[0, 5])
    x = cp.Variable(2, bounds=[0, 1], name="x")
    problem = dpm.Problem(cp.Minimize(prices @ x), [cp.sum(x) >= 1])
    problem.solve(epsilon=1, mechanism="laplace-once", rng=0)
    with pytest.raises(dpm.errors.SpecificationError, match="no constraint is private"):
        problem.release.plot()


def test_a_plan_draws_every_treatment(solved: dpm.Problem) -> None:
    plan = solved.plan(1.0, feasibility="centred")
    proved, expected = plan.plot([0.5, 1.0]).axes
    labels = {line.get_label(): line for line in expected.get_lines()}
    assert {"centred (chosen)", "safe", "relaxed", "priced"} <= labels.keys() and "expected" in expected.get_ylabel()
    cost = plan.chosen.forecast.expected["safe"].cost
    assert labels["safe"].get_ydata()[1] == pytest.approx(cost) and labels["safe"].get_linestyle() == "--"
    assert {line.get_label() for line in proved.get_lines()} >= {"laplace-once (chosen)", "relaxed"}
    priced = solved.plan(1.0, feasibility=dpm.Priced())
    assert priced.chosen.mechanism == "laplace-once"
    assert not re.search(r"Not drawn[^.]*laplace-once", " ".join(texts(priced.plot([0.5, 1.0])).split()))
