"""What is asked of mechanisms that leave constraints out: each wrong wish has its own error, before any spending."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.contract import Options
from dpmodel.programs.options import program_options


def cover(maximize: bool = False, **private: Any) -> dpm.Problem:
    A = dpm.Private(shape=(6, 3), name="A", unit="row", **{"bounds": [0, 1], **private})
    x = cp.Variable(3, bounds=[0, 1], name="x")
    sense = cp.Maximize(-cp.sum(x)) if maximize else cp.Minimize(cp.sum(x))
    return dpm.Problem(sense, [A @ x >= 1])


def asked(problem: dpm.Problem, **wishes: Any) -> Any:
    options = Options(1.0, 1e-6, **wishes)
    return program_options(problem, problem._model(None), options)


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"feasibility": dpm.AllBut(rows=7)}, "there are 6 private constraints"),
        ({"feasibility": dpm.AllBut(rows=0)}, "1 <= rows <= 6"),
        ({"feasibility": dpm.AllBut(rows=-1)}, "1 <= rows <= 6"),
        ({"feasibility": dpm.AllBut(rows=2.5)}, "an integer"),
        ({"feasibility": dpm.AllBut(rows=True)}, "an integer"),
        ({"feasibility": dpm.AllBut(rows="2")}, "an integer"),
        ({"feasibility": dpm.AllBut(alpha=1.0)}, "beyond the width"),
        ({"feasibility": dpm.AllBut(alpha=5)}, "beyond the width"),
        ({"feasibility": dpm.AllBut(alpha=0)}, "alpha is positive"),
        ({"feasibility": dpm.AllBut(alpha=-0.1)}, "alpha is positive"),
        ({"feasibility": dpm.AllBut(alpha=float("nan"))}, "finite number"),
        ({"feasibility": dpm.AllBut(alpha="0.1")}, "finite number"),
        ({"feasibility": dpm.AllBut()}, "without rows and alpha"),
        ({"feasibility": dpm.AllBut}, "it is a class"),
        ({"feasibility": "saf"}, "'safe'; one of"),
        ({"goal": "optimum"}, "dpm.Search()"),
        ({"goal": 3}, "goal=int"),
        ({"goal": dpm.Search}, "goal=dpm.Search(...)"),
        ({"goal": dpm.Target(None)}, "Target(None)"),
        ({"goal": dpm.Target(float("inf"))}, "finite number"),
        ({"goal": dpm.Penalty(0)}, "weight is positive"),
    ],
)
def test_wrong_wishes(wishes: dict[str, Any], words: str) -> None:
    with pytest.raises(dpm.errors.SpecificationError) as refused:
        asked(cover(), **wishes)
    assert words in str(refused.value)


@pytest.mark.parametrize("maximize", [False, True])
def test_a_target_that_no_public_point_reaches(maximize: bool) -> None:
    sign = -1 if maximize else 1
    assert asked(cover(maximize), goal=dpm.Target(sign * 0.5)).target == 0.5  # in minimisation form
    with pytest.raises(dpm.errors.InfeasibleError, match="no public point reaches it"):
        asked(cover(maximize), goal=dpm.Target(sign * -0.1))


def test_slack_rows_without_private_constraints() -> None:
    c = dpm.Private(shape=3, name="c", linf=1)
    x = cp.Variable(3, bounds=[0, 1])
    problem = dpm.Problem(cp.Minimize(c @ x), [cp.sum(x) == 1])
    for wish in ({"rows": 1}, {"alpha": 0.1}):
        with pytest.raises(dpm.errors.SpecificationError, match="no constraint is private"):
            asked(problem, feasibility=dpm.AllBut(**wish))


def test_what_is_asked_arrives() -> None:
    options = asked(cover(), feasibility=dpm.AllBut(np.int64(2), 0.25), goal=dpm.Penalty(3))
    assert (options.slack_rows, options.violation, options.goal, options.penalty) == (2, 0.25, "penalty", 3.0)


def test_wishes_are_checked_before_the_budget_is_charged() -> None:
    problem = cover()
    problem.parameters()[0].value = np.ones((6, 3))
    budget = dpm.Budget(1.0, 1e-6)
    with pytest.raises(dpm.errors.SpecificationError):
        problem.solve(epsilon=1, delta=1e-6, budget=budget, feasibility=dpm.AllBut(rows=7))
    assert budget.spent == (0, 0)
