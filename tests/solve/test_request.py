"""Arguments as people give them who know CVXPY: each wrong one is named, with the argument that says it here."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import pytest

import dpmodel as dpm
from dpmodel.errors import SpecificationError


def problem(private: bool = True) -> dpm.Problem:
    x = cp.Variable(2, name="x", nonneg=True)
    b = dpm.Private([1.0, 2.0], name="b", unit="entry", linf=1, bounds=[0, 3]) if private else 1
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b])


# Positional arguments, keywords, and what the remedy says.
WRONG: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    ((cp.CLARABEL,), {}, "solver='CLARABEL'"),
    (("highs",), {}, "solver='HIGHS'"),
    (("laplace-once",), {}, "mechanism='laplace-once'"),
    ((1, "gaussian-once"), {}, "mechanism='gaussian-once'"),
    ((1, cp.SCS), {}, "solver='SCS'"),
    ((), {"max_iter": 10}, "solver_options={'max_iter': 10}"),
    ((1,), {"max_iters": 10}, "solver_options={'max_iters': 10}"),
    ((1,), {"abstol": 1e-3, "feastol": 1e-3}, "solver_options={'abstol': 0.001}"),
    ((1,), {"time_limit": 3}, "solver_options="),
    ((1,), {"solver": "clarabel"}, "solver='CLARABEL'"),
    ((1,), {"solver": 3}, "HIGHS"),
    ((1,), {"solver": ["CLARABEL", "SCS"]}, "HIGHS"),
    ((1,), {"solver": "GUROBIX"}, "HIGHS"),
    ((1,), {"solver_options": "x"}, "solver_options={'"),
    ((1,), {"solver_options": [("max_iter", 3)]}, "solver_options={'"),
    ((1,), {"solver_options": {1: 2}}, "solver_options={'"),
    ((1,), {"solver_options": ""}, "solver_options={'"),
    ((1,), {"solver_opts": {}}, "solver_options=..."),
    ((1,), {"solver_path": ["CLARABEL"]}, "leave it out"),
    ((1,), {"gp": True}, "leave it out"),
    ((1,), {"warm_start": True}, "leave it out"),
    ((1,), {"seed": 0}, "rng=..."),
    ((1,), {"random_state": 0}, "rng=..."),
    ((), {"eps": 1}, "epsilon=..."),
    ((), {"epsilonn": 1}, "epsilon=..."),
    ((1,), {"mechansim": "laplace-once"}, "mechanism=..."),
    ((1,), {"feasibility": "Safe"}, "'safe'"),
    ((1,), {"feasibility": "centered"}, "'centred'"),
    ((1,), {"feasibility": None}, "'relaxed'"),
    ((1,), {"budget": 3.0}, "Budget("),
    ((1,), {"progress": 5}, "progress"),
    (("1",), {}, "epsilon=1.0"),
]
_SOLVE_ONLY = {"solver_options", "seed", "random_state", "budget", "progress", "solver_opts"}


@pytest.mark.parametrize(("given", "named", "remedy"), WRONG, ids=repr)
def test_a_wrong_argument_is_told_the_right_one(given: Any, named: Any, remedy: str) -> None:
    made, budget = problem(), dpm.Budget(2, 1e-5)
    with pytest.raises(SpecificationError) as caught:
        made.solve(*given, **{"rng": 0, "budget": budget, **named})
    assert remedy in caught.value.remedy
    assert budget.spent.epsilon == 0 and made.release is None
    if not _SOLVE_ONLY & set(named):
        with pytest.raises(SpecificationError) as caught:
            made.plan(*given, **named)
        assert remedy in caught.value.remedy.replace("plan(", "solve(")


@pytest.mark.parametrize("named", [{"max_iter": 10}, {"solver_options": "x"}, {"seed": 3}], ids=repr)
def test_also_where_nothing_is_private(named: dict[str, Any]) -> None:
    with pytest.raises(SpecificationError):
        problem(private=False).solve(**named)


def test_right_arguments_pass() -> None:
    for named in (
        {"solver": cp.CLARABEL},
        {"solver_options": None},
        {"solver": "SCS", "solver_options": {"eps": 1e-6}},
    ):
        made = problem()
        made.solve(1, 1e-6, rng=0, mechanism="laplace-once", **named)
        assert made.status == "optimal"
