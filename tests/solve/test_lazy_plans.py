"""Plans forecast what can win: the choice is that of a full comparison, and bounds are bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.contract import Candidate, Model, Options, Serves, Verdict
from dpmodel.forecast import Forecast, Violation
from dpmodel.numerics import cone_program, polyhedron
from dpmodel.programs import simulation
from dpmodel.programs.model import Program
from dpmodel.programs.vertex import VertexExponential
from dpmodel.solve.planner import BEHIND
from dpmodel.solve.registry import by_name
from tests.zoo import cones, finance, flows, health, places, production, systems, tables  # noqa: F401
from tests.zoo.registry import MODELS, Case

# By default one of a kind: right-hand sides, coefficients, objectives, cones; nothing chosen but the public point.
USUAL = "transportation", "diet", "best_supplier", "ballots", "blending", "proportional_fairness", "chebyshev_centre"
PROGRAMS = [
    pytest.param(each, id=each.name, marks=[] if each.name in USUAL else pytest.mark.slow)
    for each in MODELS
    if each.quick and each.family != "pipelines"
]


def early(mechanism: Any, model: Model, options: Options) -> bool:
    """Whether the bound of ``mechanism`` is one: its forecast, held against what is known, says no less."""
    bound = mechanism.bound(model, options)
    forecast = mechanism.forecast(model, options)
    if isinstance(forecast, Verdict):
        return True
    held = model.capped(options, Candidate(mechanism.name, "", True, "", forecast)).forecast
    assert held is not None
    return held.vacuous or getattr(held.error, "relative", False) or bound <= held.error.rank * (1 + 1e-6)


@pytest.mark.parametrize("model", PROGRAMS)
def test_the_choice_is_that_of_a_full_comparison(model: Any) -> None:
    problem = Case(model, "small").problem
    for epsilon, delta in ((0.3, 0.0), (1.0, 1e-6), (30.0, 1e-6)):
        try:
            full = problem.plan(epsilon, delta, compare="all")
        except dpm.DPModelError as refused:
            with pytest.raises(type(refused)):
                problem.plan(epsilon, delta)
            continue
        lazy = problem.plan(epsilon, delta)
        assert lazy.chosen == full.chosen and lazy.answer == full.answer
        assert [c.mechanism for c in lazy.candidates] == [c.mechanism for c in full.candidates]
        for one, other in zip(lazy.candidates, full.candidates, strict=True):
            if one != other:
                assert one.eligible and one.forecast is None and one.reason.startswith(BEHIND)
        door = problem._model(None)
        for each in full.candidates:
            if each.forecast is not None:
                assert early(by_name(each.mechanism, door.kind), door, full.options), (each.mechanism, epsilon)


def needs(**options: Any) -> dpm.Problem:
    b = dpm.Private(np.full(6, 10.0), name="b", unit="entry", linf=1, bounds=[0, 100])
    x = cp.Variable(6, bounds=[0, 50], name="x")
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b], **options)


@dataclass(eq=False)
class Plugin(dpm.mechanisms.Mechanism[Any]):
    """Forecasts ``alpha`` and promises to forecast no less than ``least``."""

    serves: ClassVar[Serves] = Serves(Program, ("scalar low",))
    name: str = ""
    alpha: float = 0.0
    least: float = 0.0
    proved: bool = True
    source: str = "test"
    asked: int = 0

    def eligible(self, model: Any, options: Options) -> Verdict:
        return Verdict(True, "")

    def bound(self, model: Any, options: Options) -> float:
        return self.least

    def forecast(self, model: Any, options: Options) -> Forecast:
        self.asked += 1
        return Forecast("said", 1.0, 0.0, 0.05, Violation(violation=self.alpha), self.proved)

    def run(self, model: Any, options: Options, noise: Any, progress: Any = None) -> Any:
        raise AssertionError


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Any:
    from dpmodel.solve import registry

    monkeypatch.setattr(registry, "KINDS", dict(registry.KINDS))
    monkeypatch.setattr("dpmodel.solve.planner.KINDS", registry.KINDS)
    return dpm.register_mechanism


def test_what_cannot_win_is_not_asked(register: Any) -> None:
    behind, better = Plugin("behind", 1e6, 1e5), Plugin("better", 1e-3, 1e-3)
    silent = Plugin("silent", 1.0, math.inf)
    for each in (behind, better, silent):
        register(each)
    plan = needs().plan(1.0)
    assert plan.chosen.mechanism == "better"
    assert (behind.asked, better.asked, silent.asked) == (0, 1, 0)
    reasons = {c.mechanism: c.reason for c in plan.candidates}
    assert reasons["behind"].startswith(BEHIND) and "would say nothing" in reasons["silent"]
    assert BEHIND in plan.why("behind")
    assert needs().plan(1.0, compare="all").chosen.mechanism == "better"
    assert behind.asked == silent.asked == 1


def test_a_bound_that_is_none_is_found_out(register: Any) -> None:
    """Planted: a mechanism that promises to be worse than it is. The comparison above sees it."""
    wrong = Plugin("wrong", 1e-3, 1e5)
    register(wrong)
    problem = needs()
    assert problem.plan(1.0).chosen.mechanism != problem.plan(1.0, compare="all").chosen.mechanism == "wrong"
    assert not early(wrong, problem._model(None), problem.plan(1.0).options)


def test_settings_of_a_mechanism_are_never_those_of_another() -> None:
    """Points to look at are no part of what makes two mechanisms equal."""
    c, x = dpm.Private([1.0, 2.0, 3.0], name="c", linf=0.1), cp.Variable(3, nonneg=True, name="x")
    problem = dpm.Problem(cp.Minimize(c @ x), [cp.sum(x) == 1])
    points = np.eye(3)
    for listed in (points, points[:2]):
        plan = problem.plan(1.0, mechanism=VertexExponential(vertices=listed))
        assert plan._algorithm.vertices is listed
        assert plan.chosen.forecast is not None and f"{len(listed)}" in plan.chosen.forecast.work


@pytest.mark.parametrize("name", ["transportation", "diet", "portfolio_quadratic", "blending"])
def test_another_epsilon_solves_the_released_program_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Public facts are found once for all solves of a problem."""
    asked: list[str] = []

    def counted(owner: Any, function: str) -> None:
        inner = getattr(owner, function)
        monkeypatch.setattr(owner, function, lambda *given: asked.append(function) or inner(*given))

    counted(cone_program, "ask")
    counted(polyhedron.LinearMinimiser, "minimise")
    model = next(each for each in MODELS if each.name == name)
    problem = Case(model, "small").problem
    problem.solve(1.0, 1e-6, rng=0, feasibility="centred", **model.asked)
    assert asked
    asked.clear()
    problem.solve(1.1, 1e-6, rng=0, feasibility="centred", **model.asked)
    assert asked == ["ask"]


@pytest.mark.parametrize("compare", ["needed", "all"])
def test_nothing_is_simulated_where_a_public_point_misses_nothing(monkeypatch: Any, compare: Any) -> None:
    """The cheapest roster keeps every private limit, whatever the data are."""
    tried = []
    monkeypatch.setattr(simulation, "against_public", lambda mechanism, *others: tried.append(mechanism.name) or 2.0)
    case = Case(next(model for model in MODELS if model.name == "staff_wishes"), "small")
    plan = case.problem.plan(1.0, 1e-6, compare=compare)
    forecast = plan.chosen.forecast
    assert plan.chosen.mechanism == "public-only" and forecast is not None and forecast.unbeatable
    assert not tried
    first = ("laplace-once", "gaussian-once")  # of few entries: asked before all others
    others = [c for c in plan.candidates if c is not plan.chosen and c.eligible and c.mechanism not in first]
    assert others and all((each.forecast is None) == (compare == "needed") for each in others)


def test_a_full_comparison_chooses_alike_where_data_are_predicted_to_help() -> None:
    case = Case(next(model for model in MODELS if model.name == "battery"), "small")
    plan = case.problem.plan(1.0, feasibility="centred")
    chosen = plan.chosen.forecast
    assert chosen is not None and chosen.vacuous and chosen.error.against_public < 0.999
    for feasibility in ("centred", "auto"):
        whole = case.problem.plan(1.0, compare="all", feasibility=feasibility)
        assert whole.chosen.mechanism == plan.chosen.mechanism


def test_a_statement_that_leaves_something_open_can_be_beaten() -> None:
    nothing = Forecast("", 0.0, 0.0, 0.0, Violation(0.0, math.nan))
    assert nothing.unbeatable
    assert not replace(nothing, proved=False).unbeatable and not replace(nothing, vacuous=True).unbeatable
    for error in (Violation(1e-9, 0.0), Violation(math.nan, 1e-9), Violation(0.0, 0.0, slack_rows=1)):
        assert not replace(nothing, error=error).unbeatable


def test_what_leaves_rows_out_is_not_compared_where_nobody_owns_one() -> None:
    """No statement says anything, and noise is predicted to help."""
    case = Case(next(model for model in MODELS if model.name == "chebyshev_centre"), "small")
    plans = {compare: case.problem.plan(10.0, compare=compare, feasibility="centred") for compare in ("needed", "all")}
    for plan in plans.values():
        chosen = plan.chosen.forecast
        assert plan.chosen.mechanism == "laplace-once" and chosen is not None and chosen.vacuous and chosen.error.helps
    told = {compare: {c.mechanism: c.forecast for c in plan.candidates} for compare, plan in plans.items()}
    for name in ("noisy-hinge-descent", "dense-multiplicative-weights"):
        assert told["all"][name] is told["needed"][name] is None
