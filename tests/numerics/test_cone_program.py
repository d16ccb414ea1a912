"""Every answer of a solver is handled: stubs that say everything and raise everything; after a charge, a release."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.numerics import cone_program, solvers
from dpmodel.numerics.array_program import Answer
from dpmodel.numerics.cone_program import SolverFailure
from dpmodel.numerics.solvers import SOLVER_ERROR

SAYS = [
    *("optimal", "optimal_inaccurate", "infeasible", "infeasible_inaccurate", "unbounded", "unbounded_inaccurate"),
    *("infeasible_or_unbounded", "user_limit", "solver_error", "unknown", "", None),
]
RAISES = [
    *(
        cp.SolverError("no"),
        ValueError("Cannot unpack invalid solution"),
        RuntimeError("7321.4375"),
        ZeroDivisionError(),
    ),
    *(MemoryError(), AttributeError("x"), OverflowError(), AssertionError(), KeyError("k"), RecursionError()),
]
real_way = solvers._straight


def stubbed(monkeypatch: Any, answer: Any, *, mute: Any = lambda number: True) -> list[Any]:
    """Replace the ways to solvers: the calls whose number ``mute`` picks get ``answer``, others are solved.

    An exception is raised; a status comes without a point. Returns the solvers that were asked.
    """
    asked: list[Any] = []

    def stub(*given: Any) -> Answer:
        if isinstance(answer, BaseException):
            raise answer
        return Answer(answer)

    def way(program: Any, solver: Any, options: Any) -> Any:
        asked.append(solver)
        return stub if mute(len(asked) - 1) else real_way(program, solver, options)

    monkeypatch.setattr(solvers, "_straight", way)
    return asked


NAMES = ["b", "c", "A", "no objective", "cone", "integer", "equality"]


def model(name: str) -> dpm.Problem:
    """One problem of each kind of program and of noise."""
    x = cp.Variable(2, name="x", integer=name == "integer", bounds=[-9, 9])
    p = dpm.Private([1.0, 2.0], name="p", unit="entry", linf=0.1, bounds=[0, 3])
    goal: Any = {"c": p @ x, "no objective": 0, "cone": cp.norm(x)}.get(name, cp.sum(x))
    row = {"c": x >= 0, "A": p @ x >= 1, "equality": x == p}.get(name, x >= p)
    return dpm.Problem(cp.Minimize(goal), [row])


def solved(name: str, monkeypatch: Any, answer: Any, mute: Any) -> tuple[dpm.Problem, list[Any], dpm.Budget]:
    problem, budget = model(name), dpm.Budget(2, 1e-5)
    how = {"epsilon": 1, "delta": 1e-6, "mechanism": "laplace-once", "rng": 0}
    problem.solve(**how)  # public facts and probes are remembered: what follows is the solve on released numbers
    asked = stubbed(monkeypatch, answer, mute=mute)
    problem.solve(**how, budget=budget)
    return problem, asked, budget


ALL = [("b", answer) for answer in (*SAYS, *RAISES)]
ALL += [(name, answer) for name in NAMES[1:] for answer in ("optimal", "unknown", RAISES[1])]


@pytest.mark.parametrize(("name", "answer"), ALL, ids=repr)
def test_after_a_charge_there_is_a_release_whatever_solvers_say(name: str, answer: Any, monkeypatch: Any) -> None:
    problem, asked, budget = solved(name, monkeypatch, answer, lambda number: True)
    release = problem.release
    assert asked and budget.spent.epsilon == 1
    assert release.spent == (1, 0) and release.value is None and not release.variables
    assert release.accuracy.alpha is None and "no point" in release.accuracy.statement
    assert release.status == problem.status
    known = isinstance(answer, str) and answer not in ("", "unknown", "solver_error")
    if not known:
        assert release.status == SOLVER_ERROR and "7321" not in str(release)
        assert any("no answer" in note for note in release.notes)


@pytest.mark.parametrize(("name", "answer"), zip(NAMES, ["unknown", "user_limit", *RAISES], strict=False), ids=repr)
def test_another_solver_answers_for_one_that_does_not(name: str, answer: Any, monkeypatch: Any) -> None:
    problem, asked, _ = solved(name, monkeypatch, answer, lambda number: number == 0)
    assert len(asked) > 1 and asked[0] != asked[1]
    assert problem.release.variables and any("no answer" in note for note in problem.release.notes)
    if problem.value is not None:
        second = problem.value
        monkeypatch.setattr(solvers, "_straight", real_way)
        problem.solve(epsilon=1, delta=1e-6, mechanism="laplace-once", rng=0)
        assert second == pytest.approx(problem.value, abs=1e-3)


def test_a_limit_that_the_user_set_is_kept(monkeypatch: Any) -> None:
    problem = model("cone")
    problem.solve(epsilon=1, rng=0)
    options = {"solver": "CLARABEL", "solver_options": {"max_iter": 1}}
    problem.solve(epsilon=1, rng=0, **options)
    asked = stubbed(monkeypatch, "user_limit")
    problem.solve(epsilon=1, rng=0, **options)
    assert asked == ["CLARABEL"] and problem.status == "user_limit"


def test_points_with_nan_are_no_answer(monkeypatch: Any) -> None:
    problem = model("b")
    problem.solve(epsilon=1, rng=0)

    def nowhere(program: Any, solver: Any, options: Any) -> Answer:
        return Answer("optimal", np.full(program.size, np.nan))

    monkeypatch.setattr(solvers, "_straight", lambda *given: nowhere)
    problem.solve(epsilon=1, rng=0)
    assert problem.release.status == SOLVER_ERROR and not problem.release.variables


@pytest.mark.parametrize("private", ["b", "c"])
def test_crossed_bounds_are_infeasible_before_the_charge(private: str) -> None:
    x, budget = cp.Variable(2, name="x"), dpm.Budget(1)
    p = dpm.Private([1.0, 2.0], name="p", unit="entry", linf=1)
    cost, rows = (p @ x, []) if private == "c" else (cp.sum(x), [x <= p])
    problem = dpm.Problem(cp.Minimize(cost), [*rows, x[0] <= 1, x[0] >= 2, x[1] >= 0])
    with pytest.raises(dpm.errors.InfeasibleError):
        problem.solve(epsilon=1, rng=0, budget=budget)
    assert budget.spent.epsilon == 0


def test_public_facts_without_an_answer_are_refused_before_the_charge(monkeypatch: Any) -> None:
    x, budget = cp.Variable(2, name="x"), dpm.Budget(1)
    p = dpm.Private([1.0, 2.0], name="p", unit="entry", linf=1)
    # With a cone: points of linear constraints are found in another way.
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= p, cp.sum(x) == 7, cp.norm(x) <= 90])
    stubbed(monkeypatch, "unknown")
    with pytest.raises(SolverFailure, match="public constraints"):
        problem.solve(epsilon=1, rng=0, budget=budget)
    assert budget.spent.epsilon == 0


def test_nothing_private_and_no_answer_is_an_error(monkeypatch: Any) -> None:
    x = cp.Variable(2, name="x")
    hidden = dpm.Private([1.0, 2.0], name="p", unit="entry", linf=1)
    problem = dpm.Problem(cp.Minimize(cp.sum(x) + cp.sum(hidden)), [x >= 1])
    problem.solve(epsilon=1, rng=0)
    stubbed(monkeypatch, ValueError("Cannot unpack invalid solution"))
    with pytest.raises(SolverFailure):
        problem.solve(epsilon=1, rng=0)


def test_every_solver_is_asked_once() -> None:
    for linear in (True, False):
        program = cone_program.ConeProgram(*([None] * 4), cones=(), boolean=np.zeros(0), integer=np.zeros(0), **_REST)
        if not linear:
            program = program.with_(cones=(_SOC,))
        for solver in (None, "CLARABEL", "SCS", "HIGHS"):
            names = cone_program._solvers(program, solver)
            assert len(set(names)) == len(names) > 1 and (solver is None or names[0] == solver)


_REST: dict[str, Any] = {"lower": None, "upper": None, "band": None, "keep": None}
_SOC = cone_program.ConeBlock("soc", 0, 3, (3,), (), 0, 0, "")
