"""What plans and releases print of what is expected: known or not and why, beside what is proved, in one unit."""

from __future__ import annotations

import math
import re
import warnings
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.errors import SpecificationError
from dpmodel.forecast import Expected

NEED = np.array([40.0, 55.0, 70.0, 65.0])
FREIGHT = np.array([[2.0, 4.0, 7.0, 3.0], [5.0, 2.0, 3.0, 6.0]])


def transport(**declared: Any) -> tuple[dpm.Problem, Any]:
    demand = dpm.Private(NEED, name="demand", unit="entry", linf=1, **declared)
    x = cp.Variable((2, 4), nonneg=True, name="ship")
    served = cp.sum(x, axis=0) >= demand
    return dpm.Problem(cp.Minimize(cp.sum(cp.multiply(FREIGHT, x))), [cp.sum(x, axis=1) <= 300, served]), served


def staffing(rows: int, whole: bool) -> dpm.Problem:
    need = dpm.Private(np.arange(rows) % 7 + 10.0, name="need", unit="entry", linf=1, typical=12)
    staff = cp.Variable(rows, integer=whole, name="staff")
    return dpm.Problem(cp.Minimize(cp.sum(staff)), [staff >= need, staff <= 90])


def choices(count: int, **declared: Any) -> dpm.Problem:
    """In each of ``count`` pairs the one is taken that is worth more: 2 against 1."""
    worth = dpm.Private(np.tile([1.0, 2.0], count), name="worth", unit="entry", linf=1, **declared)
    take = cp.Variable((count, 2), nonneg=True, name="take")
    value = worth @ cp.reshape(take, (2 * count,), order="C")
    return dpm.Problem(cp.Maximize(value), [cp.sum(take, axis=1) == 1])


def printed(thing: Any) -> str:
    return " ".join(str(thing).split())


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({}, ": unknown before the release: no public level of demand is declared; Private(typical=) would tell"),
        (
            {"typical": 1e4},
            ": unknown before the release: at Private(typical=) of demand the program has no point; another typical= "
            "would tell",
        ),
        (
            {"bounds": [0, 1000]},
            ": unknown before the release: at the middle of the declared bounds the program has no point; "
            "Private(typical=) would tell",
        ),
        ({"typical": 60}, ", priced: cost +"),
    ],
)
def test_a_plan_tells_what_is_expected_or_why_it_is_unknown(declared: dict[str, Any], words: str) -> None:
    plan = transport(**declared)[0].plan(1.0)
    assert f"expected{words}" in printed(plan) and f"expected{words}" in printed(plan.table())
    assert printed(type(plan).from_json(plan.to_json())) == printed(plan)


@pytest.mark.parametrize(("rows", "whole"), [(60, True), (61, True), (2000, False), (2001, False)])
def test_what_is_cheaper_and_not_taken_has_its_reason(rows: int, whole: bool) -> None:
    plan = staffing(rows, whole).plan(1.0)
    forecast = plan.chosen.forecast
    assert forecast is not None
    assert forecast.expected["priced"].cost < forecast.expected["centred"].cost
    small = rows in (60, 2000)
    assert plan.options.feasibility == ("priced" if small else "centred")
    reason = f"it may take minutes with {rows} private rows{' and integers' * whole}: feasibility=dpm.Priced()"
    assert (reason in printed(plan)) is not small
    assert reason not in printed(staffing(rows, whole).plan(1.0, feasibility="centred")), "it was asked for"


def test_noise_on_costs_has_an_expected_cost_where_they_are_guessed() -> None:
    """Of two the worse is taken with probability P(N - M > 1) = (1 + 1/2) e^-1 / 2 for Laplace noise of scale 1 (the
    difference of two has this tail), and loses 1. In 1,600 draws the deviation is .0112."""
    plan = choices(200, typical=np.tile([1.0, 2.0], 200)).plan(1.0)
    expected = plan.chosen.forecast.expected["centred"]  # type: ignore[union-attr]
    assert expected.cost / 200 == pytest.approx(0.75 * math.exp(-1), abs=0.06)
    assert expected.share == pytest.approx(expected.cost / 400)
    assert f"expected: value {expected.cost_words}" in printed(plan) and expected.cost_words.startswith("-")
    assert "expected: unknown before the release: no public level of worth" in printed(choices(2).plan(1.0))
    middle = printed(choices(2, bounds=[0, 9]).plan(1.0))
    assert "expected: unknown before the release: the middle of declared bounds tells no costs apart" in middle
    alike = choices(2, typical=1.5).plan(1.0)
    assert "expected: unknown before the release: one guess for all tells no costs apart" in printed(alike)
    pytest.importorskip("matplotlib.figure")  # whose own warnings are not at stake
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "expected" not in " ".join(axes.get_ylabel() for axes in alike.plot().axes)
    apart = [np.tile([0.0, 1.0], 200), np.tile([2.0, 3.0], 200)]
    assert choices(200, bounds=apart).plan(1.0).chosen.forecast.expected["centred"].cost > 0  # type: ignore[union-attr]


def test_noise_on_costs_adds_to_noise_on_rows() -> None:
    def expected(**declared: Any) -> tuple[float, str]:
        need = dpm.Private([3.0, 4.0], name="need", unit="entry", linf=1, typical=3.5)
        price = dpm.Private(np.tile([1.0, 2.0], 40), name="price", unit="entry", linf=1, **declared)
        x = cp.Variable((40, 2), nonneg=True)
        total = cp.sum(x, axis=0)
        cost = price @ cp.reshape(x, (80,), order="C") + 5 * total[1]
        problem = dpm.Problem(cp.Minimize(cost), [cp.sum(x, axis=1) == 1, total[0] >= need[0], total[1] >= need[1]])
        forecast = problem.plan(1.0, feasibility="centred").chosen.forecast
        assert forecast is not None
        return forecast.expected["centred"].cost, forecast.remark

    with_costs, nothing = expected(typical=np.tile([1.0, 2.0], 40))
    without, remark = expected(bounds=[0, 3])
    assert nothing == "" and "noise on costs loses" in remark and with_costs > without > 0


def test_a_priced_plan_has_numbers_and_whole_sentences() -> None:
    problem, served = transport(typical=60)
    by_itself = problem.plan(1.0)
    assert re.search(r"prices: 20 to 30 a unit", printed(by_itself)), printed(by_itself)
    assert "prices: 20 to 30 a unit" in by_itself.chosen.to_dict()["forecast"]["remark"]
    plan = problem.plan(1.0, 1e-6, feasibility=dpm.Priced({served: 50.0}))
    assert "expected, priced: cost +" in printed(plan) and "prices: 50 a unit" in printed(plan)
    rows = plan.table().to_dict()["rows"]
    costs = {row["mechanism"]: float(row["expected extra cost"]) for row in rows}
    assert costs["laplace-once"] == pytest.approx(plan.chosen.forecast.error.cost, rel=1e-3)  # type: ignore[union-attr]
    assert costs["gaussian-once"] > costs["laplace-once"] > 0
    assert re.search(r"runner-up: gaussian-once, expected extra cost \d", printed(plan))
    assert "twice the epsilon, expected extra cost" in printed(plan)
    unknown = transport()[0].plan(1.0, 1e-6, feasibility=dpm.Priced(50.0))
    assert {row["missed on average before pricing"] for row in unknown.table().to_dict()["rows"]} != {"-"}
    assert not any(line.endswith(",") for line in str(unknown).splitlines() if line.startswith("runner-up"))
    pytest.importorskip("matplotlib")
    with pytest.raises(SpecificationError, match="expected: unknown before the release"):
        unknown.plot()


def test_few_rows_short_are_not_none() -> None:
    assert str(Expected(1.0, 0.01, 0.0003, 0.4)) == "cost +1 %, under 0.1 % of the private rows short"
    assert str(Expected(1.0, 0.01, 0.0, 0.0)) == "cost +1 %"
    assert str(Expected(1.0, 0.01, 0.0123, 0.4)) == "cost +1 %, 1.2 % of the private rows short, by 0.4 each"
    assert str(Expected(2.5, math.nan, 0.0, 0.0, maximised=True)) == "value -2.5"
    assert str(Expected(0.0, 0.0, 0.0, 0.0, maximised=True)) == "value +0 %"


def test_a_release_says_the_same_of_its_rows_twice() -> None:
    problem, served = transport(typical=60)
    problem.solve(1.0, feasibility=dpm.Priced({served: 50.0}), rng=0)
    release = problem.release
    assert release is not None
    short, amount = release.expected["short"], release.expected["shortage"]
    assert f"of 4 private rows short, by {amount:.4g} in all ({amount / short:.4g} each)" in printed(release)
    note = next(line for line in release.notes if "short with probability" in line)
    assert f"by {amount / short:.4g} each where short; by {amount:.4g} in all, expected" in note


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_treatments_that_the_program_cannot_have_are_not_offered() -> None:
    """A diet without a bound on its food: nothing covers or prices noise that is multiplied by it."""
    content = np.array([[3.0, 7.0, 5.0], [6.0, 2.0, 8.0]])
    for upper, offered in ((None, {"centred"}), (20.0, {"centred", "priced", "safe", "relaxed"})):
        a = dpm.Private(content, name="content", unit="entry", linf=0.02, typical=5)
        x = cp.Variable(3, nonneg=True, name="kg")
        rows = [a @ x >= np.array([30.0, 25.0]), *([] if upper is None else [x <= upper])]
        problem = dpm.Problem(cp.Minimize(cp.sum(x)), rows)
        plan = problem.plan(1.0)
        assert plan.chosen.forecast is not None and set(plan.chosen.forecast.expected) == offered
        assert "within unbounded" not in printed(plan)
        problem.solve(1.0, rng=0)
        assert problem.release is not None
        table = problem.release.compare().to_dict()["rows"]
        assert {row["feasibility"] for row in table if row["status"] == "optimal"} == offered


def test_compare_marks_what_was_chosen() -> None:
    problem, _ = transport(typical=60)
    problem.solve(1.0, rng=0)

    def marked() -> list[str]:
        assert problem.release is not None
        table = problem.release.compare()
        rows = table.to_dict()["rows"]
        assert [row["feasibility"] for row in rows][table.marked or 0] in [r["feasibility"] for r in rows if r[""]]
        return [row["feasibility"] for row in rows if row[""] == "->"]

    assert marked() == ["priced"], "auto took it"
    for word in ("safe", "centred"):
        problem.resolve(word)
        assert marked() == [word]
    problem.resolve()
    assert marked() == ["priced"]


def test_prices_without_their_name_are_recognised() -> None:
    problem, served = transport()
    for given in ({served: 50.0}, 50.0):
        with pytest.raises(SpecificationError, match=r"dpm\.Priced\((\{constraint: price\}|50\.0)\), if prices"):
            problem.plan(1.0, feasibility=given)  # type: ignore[arg-type]
    with pytest.raises(SpecificationError) as wrong:
        problem.plan(1.0, feasibility="saef")  # type: ignore[arg-type]
    assert "if prices" not in str(wrong.value)


@pytest.mark.parametrize(
    ("typical", "words"),
    [
        ("200", "typical of type str"),
        (math.nan, "typical with NaN or infinite numbers"),
        ([1.0, 2.0, math.inf, 3.0], "typical with NaN or infinite numbers"),
        ([1.0, 2.0], r"typical of shape \(2,\)"),
        ([[1.0], [2.0, 3.0]], "typical of type list"),
        (True, r"typical of shape \(\)"),
        (-1, "typical outside what was declared in 4 of 4 entries"),
        ([1.0, 501.0, 500.0, 502.0], "typical outside what was declared in 2 of 4 entries"),
        (500, ""),
        (None, ""),
        (200, ""),
        (np.float64(200), ""),
        ([1, 2, 3, 4], ""),
    ],
)
def test_a_guess_is_numbers(typical: Any, words: str) -> None:
    if not words:
        transport(typical=typical, bounds=[0, 500])
        return
    with pytest.raises(SpecificationError, match=words):
        transport(typical=typical, bounds=[0, 500])


def test_a_guess_goes_with_a_twin_of_tighter_bounds() -> None:
    guess = np.array([40.0, 50, 60, 70])
    demand = dpm.Private(NEED, name="demand", unit="entry", linf=1, typical=guess)
    twin = demand.twin(bounds=[0, 55])
    assert twin.typical is not None and twin.typical.tolist() == [40, 50, 55, 55]
    assert twin.twin(bounds=[0, 45]).typical.tolist() == [40, 45, 45, 45]  # type: ignore[union-attr]
    with pytest.raises(SpecificationError, match="the private array itself"):
        twin.value = guess


def test_the_data_are_no_guess() -> None:
    """By identity and memory: whether numbers are equal would tell something to whoever guesses them."""
    counts, cells = np.array([5.0, 6.0]), [5.0, 6.0]
    for value, typical in ((counts, counts), (counts, counts[:]), (cells, cells)):
        with pytest.raises(SpecificationError, match="the private array itself") as refused:
            dpm.Private(value, name="cells", unit="entry", linf=1, typical=typical)
        assert "5" not in str(refused.value) and "6" not in str(refused.value)
    for value, typical in ((counts, counts.copy()), (cells, list(cells)), (5, 5), (counts[0], counts[0])):
        dpm.Private(value, unit="entry", linf=1, typical=typical)
