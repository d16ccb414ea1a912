"""The regret of plans of regressions: by hand, and against optima that a solver finds."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from tests.benchmarks.regret.regressions import DEVELOP, REPORT, Cell, Trial


def test_regret_is_scored_on_the_draws_that_did_not_pick() -> None:
    costs = {"a": [1.0, 4.0, 1.0, 4.0], "b": [2.0, 2.0, 2.0, 2.0], "nothing": [2.0] * 4}
    cell = Cell("model", "1, delta 0", 1.0, costs, "b", "nothing")
    # Even draws pick a, which costs 4 in the others; odd draws pick b.
    assert cell.regret == pytest.approx((2 + 2) / (4 + 2)) and cell.best == "b" and cell.over_public == 1.0
    assert Cell("model", "1, delta 0", 1.0, costs, "a").regret == pytest.approx((4 + 1) / (4 + 2))


@pytest.mark.parametrize("name", ["squared box, 12", "absolute, 5", "logistic ridge, 10", "hinge l1, 100"])
def test_optima_are_those_of_a_solver(name: str) -> None:
    case = next(case for case in (*REPORT, *DEVELOP) if case.name == name)
    trial = Trial(case, {})
    X, y = case.rows()
    w, b = cp.Variable(case.p), cp.Variable() if case.intercept else 0.0
    loss = cp.sum(case.loss[0](X @ w + b, y)) / case.n + case.ridge * cp.sum_squares(w)
    best = cp.Problem(cp.Minimize(loss), case.within(w)).solve(solver=cp.CLARABEL)
    assert trial.optimum == pytest.approx(best, abs=2e-5)


def test_no_model_stands_in_both_banks() -> None:
    assert len({case.name for case in (*REPORT, *DEVELOP)}) == len(REPORT) + len(DEVELOP) == 40
    kinds = [{case.columns.__name__ for case in bank} for bank in (REPORT, DEVELOP)]
    assert not kinds[0] & kinds[1] and np.all([case.n <= 20_000 for case in (*REPORT, *DEVELOP)])
