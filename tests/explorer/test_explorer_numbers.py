"""What the page computes or looks up is what the package says, on grids of its controls."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.stats as st

import dpmodel as dpm
from dpmodel.privacy import SeededSource
from dpmodel.programs.theorems import lower_bound
from dpmodel.teach import gadgets, quiz

pytestmark = pytest.mark.slow

# Numbers of the page have four digits.
CLOSE = {"rel": 1e-3, "abs": 1e-3}
QUANTILES = (0.003, 0.2, 0.45, 0.5, 0.81, 0.996)


class Drawn(SeededSource):
    """A source of noise that draws these quantiles."""

    def __init__(self, quantiles: list[float]) -> None:
        super().__init__(0)
        self.quantiles = quantiles

    def laplace(self, values: Any, scale: float) -> Any:
        return np.asarray(values) + st.laplace.ppf(self.quantiles, scale=scale).reshape(np.shape(values))

    def truncated_laplace(self, values: Any, scale: float, half_width: float) -> Any:
        below = st.laplace.cdf(-half_width, scale=scale)
        inside = below + np.array(self.quantiles) * (1 - 2 * below)
        return np.asarray(values) + st.laplace.ppf(inside, scale=scale).reshape(np.shape(values))


def model(code: str) -> tuple[dict[str, Any], Any]:
    scope: dict[str, Any] = {}
    exec(code, scope)
    return scope, scope["problem"]


def released(problem: Any, variable: Any, **asked: Any) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpm.errors.NoGuaranteeWarning)
        problem.solve(**asked)
    return np.asarray(variable.value, dtype=float)


def test_draws_have_the_distributions(page: Any) -> None:
    quantiles = list(np.linspace(0.001, 0.999, 41))
    found = page.evaluate("us => us.map(u => [Random.laplace(u, 0.7), Random.truncated(u, 0.7, 2)])", quantiles)
    below = st.laplace.cdf(-2, scale=0.7)
    assert np.allclose([pair[0] for pair in found], st.laplace.ppf(quantiles, scale=0.7))
    inside = below + np.array(quantiles) * (1 - 2 * below)
    assert np.allclose([pair[1] for pair in found], st.laplace.ppf(inside, scale=0.7))


@pytest.mark.parametrize("part", ["scalar", "objective"])
def test_optima_before_and_after_one_record(page: Any, part: str) -> None:
    import cvxpy as cp

    page.check(f"input[name=plane-part][value={part}]")
    page.check("input[name=plane-level][value=high]")
    for moved in (-6, -2.25, 0, 0.5, 3.75):
        found, value = page.evaluate(
            "t => { Plane.handle.set(t); return [Plane.optimum(), Plane.state.moved]; }", moved
        )
        assert value == moved
        hours, worth = (8 + moved, [3, 2]) if part == "scalar" else (8, [10, 9.75 + moved])
        visits = cp.Variable(2, nonneg=True)
        cp.Problem(cp.Maximize(np.array(worth) @ visits), [cp.sum(visits) <= hours, visits <= 6]).solve(solver=cp.HIGHS)
        assert found == pytest.approx(visits.value, abs=1e-6)


@pytest.mark.parametrize("mode", ["relaxed", "centred", "safe", "strict", "priced"])
def test_noisy_optima_of_a_private_row(page: Any, mode: str) -> None:
    """The same quantiles of the noise give the package's release and the page's dot."""
    page.check(f"input[name=plane-mode][value={mode}]")
    epsilons = page.evaluate("DPMODEL.epsilons")
    scope, problem = model(page.evaluate("DPMODEL.plane.code.scalar"))
    price = dpm.Priced({scope["time"]: page.evaluate("DPMODEL.plane.price")})
    feasibility = price if mode == "priced" else mode
    for epsilon in (0.2, 1, 5):
        page.evaluate("k => { Plane.state.epsilon = k; Plane.show(); }", epsilons.index(epsilon))
        plan = problem.plan(epsilon, 1e-6, feasibility=feasibility)
        said = page.inner_text("#plane-statement")
        name = page.evaluate(f"DPMODEL.plane.scalar.{mode}[Plane.state.epsilon].mechanism")
        assert said.startswith(name)
        named = problem.plan(epsilon, 1e-6, feasibility=feasibility, mechanism=name).chosen.forecast
        if mode == "priced":
            assert page.evaluate("Plane.forecast()") is None
            assert page.evaluate("Plane.noise().cost") == pytest.approx(named.error.cost, **CLOSE)
        else:
            assert page.evaluate("Plane.forecast()") == pytest.approx(named.error.violation, **CLOSE)
        if epsilon >= 1:
            assert plan.chosen.mechanism == name
        for u in QUANTILES:
            asked = {"epsilon": epsilon, "delta": 1e-6, "feasibility": feasibility, "mechanism": name}
            expected = released(problem, scope["visits"], rng=Drawn([u]), **asked)
            found = page.evaluate("u => Plane.answer([u, u])", u)
            assert found == pytest.approx(expected, abs=3e-2 if epsilon < 1 else 2e-3)
            assert page.evaluate("u => Plane.error(Plane.answer([u, u]))", u) == pytest.approx(
                expected.sum() - 8, abs=4e-2
            )


def test_noisy_optima_of_a_private_objective(page: Any) -> None:
    page.check("input[name=plane-part][value=objective]")
    epsilons = page.evaluate("DPMODEL.epsilons")
    scope, problem = model(page.evaluate("DPMODEL.plane.code.objective"))
    for epsilon in (0.2, 1, 5):
        page.evaluate("k => { Plane.state.epsilon = k; Plane.show(); }", epsilons.index(epsilon))
        chosen = problem.plan(epsilon, 1e-6, mechanism="laplace-once").chosen
        assert page.evaluate("Plane.forecast()") == pytest.approx(chosen.forecast.error.objective, **CLOSE)
        for pair in itertools.combinations(QUANTILES[1:-1], 2):  # beyond, a worth of 0 leaves several optima
            asked = {"epsilon": epsilon, "delta": 1e-6, "mechanism": "laplace-once", "rng": Drawn(list(pair))}
            expected = released(problem, scope["visits"], **asked)
            assert page.evaluate("u => Plane.answer(u)", list(pair)) == pytest.approx(expected, abs=1e-5)


def cells() -> list[tuple[str, str]]:
    return [(cell.part, cell.level) for cell in dpm.taxonomy()]


def test_the_map_is_the_taxonomy_and_marks_what_is_ours(page: Any) -> None:
    for cell in dpm.taxonomy():
        button = page.locator(f"[data-cell='{cell.part} {cell.level}']")
        button.click()
        row = button.locator("xpath=ancestor::tr").locator("th").inner_text()
        assert row == cell.label and ("(ours)" in row) == bool(cell.ours)
        assert cell.theorem in button.inner_text() and cell.summary in page.inner_text("#map-sentence")
        assert cell.ours in page.inner_text("#map-sentence")
    assert page.locator("#map-table button").count() == len(dpm.taxonomy())


@pytest.mark.parametrize(("part", "level"), cells())
def test_the_code_to_paste_has_the_forecasts_that_are_shown(page: Any, part: str, level: str) -> None:
    """Random settings of all knobs: the pasted code is run, and its plan compared bar by bar."""
    random = np.random.default_rng(len(part) + (level == "low"))
    page.click(f"[data-cell='{part} {level}']")
    assert page.get_attribute(f"[data-cell='{part} {level}']", "aria-pressed") == "true"
    for _ in range(4):
        for knob in ("unit", "d", "m", "delta"):
            options = page.eval_on_selector_all(f"#map-{knob} option", "all => all.map(each => each.value)")
            if page.is_enabled(f"#map-{knob}"):
                page.select_option(f"#map-{knob}", str(random.choice(options)))
        if level == "low":
            page.select_option("#map-bound", str(random.choice([1, 10])))
        for knob in ("n", "epsilon"):
            if page.is_enabled(f"#map-{knob}"):
                most = int(page.get_attribute(f"#map-{knob}", "max"))
                page.fill(f"#map-{knob}", str(random.integers(most + 1)))
        code = page.text_content("#map-code")
        assert not set("$") & set(code)
        head, _, call = code.strip().rpartition("\n")
        scope, problem = model(head)
        (found,) = problem.classify().cells
        assert (found.part, found.level) == (part, level)
        asked = call.removeprefix("print(").removesuffix(")")
        if not found.solvable:
            with pytest.raises(dpm.ImpossibilityError, match=found.theorem):
                eval(asked, scope)
            assert page.locator("#map-bars li").count() == 0 and found.theorem in page.inner_text("#map-cell")
            continue
        plan = eval(asked.removesuffix(")") + ', compare="all")', scope)
        shown = page.evaluate("Table1.forecasts().map(row => [DPMODEL.table1.mechanisms[row[0]], ...row.slice(1)])")
        assert shown[0][0] == plan.chosen.mechanism
        served = {each.mechanism: each.forecast for each in plan.candidates if each.forecast is not None}
        assert {row[0] for row in shown} == set(served)
        for name, rank, objective, violation, rows, kind in shown:
            error = served[name].error
            for number, expected in ((rank, error.rank), (objective, error.objective), (violation, error.violation)):
                assert (number is None) == (not np.isfinite(expected)), name
                assert number is None or number == pytest.approx(expected, rel=2e-3, abs=1e-6)
            assert rows == pytest.approx(error.slack_rows, abs=1)
            assert kind == (2 if served[name].spends_nothing else int(served[name].vacuous))
            assert page.locator(f"#map-bars li[data-mechanism='{name}']").count() == 1


def test_where_each_record_owns_its_variables_a_no_is_a_yes(page: Any) -> None:
    """By keys alone; the pasted code is run, and its plan compared bar by bar."""
    for cell in dpm.taxonomy():
        page.click(f"[data-cell='{cell.part} {cell.level}']")
        assert page.input_value("#map-sees") == "all" and page.is_enabled("#map-sees") == (cell.verdict == "no")
        if cell.verdict == "no":
            page.focus("#map-sees")
            page.keyboard.press("ArrowDown")
            assert "yes, jointly" in page.inner_text("#map-cell") and cell.joint.theorem in page.inner_text("#map-cell")
            assert page.inner_text("#map-sentence") == cell.joint.summary and page.is_enabled("#map-n")
            assert cell.joint.others_learn in page.inner_text("#map-bound-told")
    page.click("[data-cell='column high']")
    page.select_option("#map-sees", "own")
    for n, epsilon, delta, d in ((0, 2, "1", "5"), (1, 4, "1", "50"), (2, 2, "0", "5")):
        page.fill("#map-n", str(n))
        page.fill("#map-epsilon", str(epsilon))
        page.select_option("#map-delta", delta)
        page.select_option("#map-d", d)
        head, _, call = page.text_content("#map-code").strip().rpartition("\n")
        scope, problem = model(head)
        assert {cell.level for cell in problem.classify().cells} == {"high"}
        plan = eval(call.removeprefix("print(").removesuffix("))") + ', compare="all")', scope)
        shown = page.evaluate("Joint.forecasts(Table1.state)")
        assert shown[0][0] == plan.chosen.mechanism
        served = {each.mechanism: each.forecast.error for each in plan.candidates if each.forecast is not None}
        assert [name for name, *_ in shown] == page.eval_on_selector_all(
            "#map-bars li", "all => all.map(each => each.dataset.mechanism)"
        )
        assert {name: share for name, share, _ in shown} == pytest.approx(
            {n: e.share for n, e in served.items()}, **CLOSE
        )
    page.click("[data-cell='scalar low']")
    assert page.input_value("#map-sees") == "all" and "jointly" not in page.inner_text("#map-cell")


@pytest.mark.parametrize(("part", "level"), [cell for cell in cells() if cell not in (("row", "high"),)])
def test_lower_bounds(page: Any, part: str, level: str) -> None:
    page.click(f"[data-cell='{part} {level}']")
    page.select_option("#map-d", "50")
    table = page.evaluate("({budgets: DPMODEL.table1.budgets, deltas: DPMODEL.table1.deltas})")
    for (i, epsilon), (j, delta) in itertools.product(enumerate(table["budgets"]), enumerate(table["deltas"])):
        page.fill("#map-epsilon", str(i))
        page.select_option("#map-delta", str(j))
        found = page.evaluate("Table1.lowerBound()")
        if level == "low" and part != "objective":  # inequalities, which a point may keep for all data
            assert found is None
            continue
        moves = 1 / 1000 if level == "low" else 1  # one of 1000 people moves an average
        expected = lower_bound(part, epsilon, delta, 0.05).scaled(moves).value * (1 if part == "scalar" else 50)
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-12)


@pytest.mark.parametrize("part", ["objective", "scalar"])
def test_the_attack(page: Any, part: str) -> None:
    """Solutions, bits read back, errors and lower bounds are those of the gadget."""
    page.check(f"input[name=attack-part][value={part}]")
    bits = page.evaluate("Attack.state.bits")
    gadget = gadgets.build(part, bits, sensitivity=1, sharp=part == "objective")
    epsilons = page.evaluate("DPMODEL.epsilons")
    for k in (0, 6, 12):
        page.evaluate("k => Attack.handle.set(k)", k)
        bound = page.evaluate(f"DPMODEL.attack.gadgets.{part}.lowerBound[{k}]")
        assert bound == pytest.approx(gadget.lower_bound(epsilons[k]).value, rel=1e-3)
        for who in ("plain", "response", "laplace-once"):
            page.check(f"input[name=attack-who][value={who}]")
            quantiles = page.evaluate("Attack.state.u")
            x = page.evaluate("Attack.state.bits.map((bit, i) => Attack.solved(bit, Attack.state.u[i]))")
            if who == "plain":
                assert x == pytest.approx(gadget.solve_without_privacy(), abs=1e-6)
            elif who == "laplace-once":
                asked = {"epsilon": epsilons[k], "mechanism": who, "rng": Drawn(quantiles)}
                assert x == pytest.approx(released(gadget.problem, gadget.variable, **asked), abs=2e-3)
            else:
                assert page.evaluate("DPMODEL.attack.wrong")[k] == pytest.approx(
                    1 / (1 + np.exp(epsilons[k])), rel=1e-3
                )
            assert page.evaluate("x => Attack.error(Attack.state.bits, x)", x) == pytest.approx(gadget.error(x))
            read = page.evaluate("x => x.map(Attack.readBack)", x)
            assert read == gadgets.reconstruct(gadget, x).bits.tolist()
            right = sum(a == b for a, b in zip(read, bits, strict=True))
            assert page.inner_text("#attack-told").startswith(f"{right} of 20 bits")
    line = page.evaluate(f"[DPMODEL.attack.line, DPMODEL.attack.gadgets.{part}.line]")
    for epsilon, value in zip(*line, strict=True):
        assert value == pytest.approx(gadget.lower_bound(epsilon).value, rel=2e-3, abs=1e-4)


def test_private_answers_do_not_beat_the_lower_bound(page: Any) -> None:
    """95% quantiles of 100 databases, seeded; randomised response has far more than the lower bound at epsilon .1."""
    page.check("input[name=attack-who][value=response]")
    page.evaluate("Attack.handle.set(0)")
    most = page.evaluate("Random.quantile(Attack.runs(), 0.95)")
    allowed = page.evaluate("DPMODEL.attack.mostWrong[0]") / (2 * 20)
    assert 0.2237 <= most == pytest.approx(allowed, abs=2 / 40)


def test_the_models_of_the_last_part_are_the_quiz(page: Any) -> None:
    models = page.evaluate("Cells.models")
    assert {(each["part"], each["level"]) for each in models} == set(cells())
    for each in models:
        question = quiz(rng=each["seed"])
        cell, told = question.cell, question.cell.taxonomy
        assert question.code == page.text_content("#cells-code")
        assert (cell.part, cell.level) == (each["part"], each["level"])
        right = {"part": cell.part, "level": cell.level, "theorem": told.theorem, "verdict": told.verdict}
        for name, value in right.items():
            options = page.eval_on_selector_all(f"#cells-{name} option", "all => all.map(each => each.value)")
            assert set(options) == {getattr(one, name) for one in dpm.taxonomy()}
            page.select_option(f"#cells-{name}", value)
        page.select_option("#cells-theorem", next(t for t in options_of_theorems() if t != told.theorem))
        page.click("#cells-check")
        assert page.inner_text("#cells-told").startswith("Not quite: look at theorem.")
        page.select_option("#cells-theorem", told.theorem)
        page.click("#cells-check")
        said = page.inner_text("#cells-told")
        assert said.startswith("Right.") and cell.reason in said
        page.click("#cells-next")


def options_of_theorems() -> list[str]:
    return [cell.theorem for cell in dpm.taxonomy()]
