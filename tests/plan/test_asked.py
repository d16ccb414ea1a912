"""What is asked of mechanisms that leave constraints out: each wrong wish has its own error, before any spending."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.plan.asked import Asked
from dpmodel.plan.request import make_request


def cover(maximize: bool = False, **private: Any) -> dpm.Problem:
    A = dpm.Private(shape=(6, 3), name="A", unit="row", **{"bounds": [0, 1], **private})
    x = cp.Variable(3, bounds=[0, 1], name="x")
    sense = cp.Maximize(-cp.sum(x)) if maximize else cp.Minimize(cp.sum(x))
    return dpm.Problem(sense, [A @ x >= 1])


def asked(problem: dpm.Problem, **wishes: Any) -> Any:
    model = problem._model(None)
    return make_request(problem, model, 1.0, 1e-6, 0.05, "relaxed", None, None, {}, Asked(**wishes))


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"slack_rows": 7}, "there are 6 private constraints"),
        ({"slack_rows": 0}, "1 <= slack_rows <= 6"),
        ({"slack_rows": -1}, "1 <= slack_rows <= 6"),
        ({"slack_rows": 2.5}, "a whole number"),
        ({"slack_rows": True}, "a whole number"),
        ({"slack_rows": "2"}, "a whole number"),
        ({"alpha": 1.0}, "beyond the width"),
        ({"alpha": 5}, "beyond the width"),
        ({"alpha": 0}, "alpha is positive"),
        ({"alpha": -0.1}, "alpha is positive"),
        ({"alpha": float("nan")}, "finite number"),
        ({"alpha": "0.1"}, "finite number"),
        ({"goal": "optimum"}, "'search'"),
        ({"goal": 3}, "goal=int"),
        ({"goal": "target"}, "without target"),
        ({"target": 1, "goal": "search"}, "one of the two"),
        ({"target": float("inf")}, "finite number"),
        ({"penalty": 0}, "penalty is positive"),
        ({"penalty": 2, "goal": "search"}, 'goal="penalty"'),
    ],
)
def test_wrong_wishes(wishes: dict[str, Any], words: str) -> None:
    with pytest.raises(dpm.SpecificationError) as refused:
        asked(cover(), **wishes)
    assert words in str(refused.value)


@pytest.mark.parametrize("maximize", [False, True])
def test_a_target_that_no_public_point_reaches(maximize: bool) -> None:
    sign = -1 if maximize else 1
    assert asked(cover(maximize), target=sign * 0.5).target == 0.5  # in minimisation form
    with pytest.raises(dpm.InfeasibleError, match="no public point reaches it"):
        asked(cover(maximize), target=sign * -0.1)


def test_slack_rows_without_private_constraints() -> None:
    c = dpm.Private(shape=3, name="c", linf=1)
    x = cp.Variable(3, bounds=[0, 1])
    problem = dpm.Problem(cp.Minimize(c @ x), [cp.sum(x) == 1])
    for wish in ({"slack_rows": 1}, {"alpha": 0.1}):
        with pytest.raises(dpm.SpecificationError, match="no constraint is private"):
            asked(problem, **wish)


def test_what_is_asked_arrives() -> None:
    request = asked(cover(), slack_rows=np.int64(2), alpha=0.25, penalty=3)
    assert (request.slack_rows, request.violation, request.goal, request.penalty) == (2, 0.25, "penalty", 3.0)


def test_wishes_are_checked_before_the_budget_is_charged() -> None:
    problem = cover()
    problem.parameters()[0].value = np.ones((6, 3))
    budget = dpm.Budget(1.0, 1e-6)
    with pytest.raises(dpm.SpecificationError):
        problem.solve(epsilon=1, delta=1e-6, budget=budget, slack_rows=7)
    assert budget.spent == (0, 0)
