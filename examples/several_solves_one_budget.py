"""Several releases about the same people, and one budget that they share, kept in a file.

A utility plans its power stations every day from the private demand of its districts (invented numbers). All
days' releases together may cost epsilon 1. The ledger is an SQLite file: it survives crashes and is shared
by processes, a charge is written before the data are read, and what does not fit is refused.

    python examples/several_solves_one_budget.py
"""

import tempfile
import warnings
from pathlib import Path

import cvxpy as cp
import numpy as np

import dpmodel as dpm

COST = np.array([20.0, 35.0, 60.0])  # dollars per megawatt-hour
CAPACITY = np.array([120.0, 90.0, 80.0])
DEMAND = {
    "Monday": [61.2, 44.9, 30.3, 52.8],
    "Tuesday": [63.0, 46.1, 29.4, 55.5],
    "Wednesday": [58.7, 47.3, 33.0, 51.9],
    "Thursday": [64.4, 45.2, 31.1, 57.2],
}
HOUSEHOLD = 0.05  # megawatt-hours that one household can move its district's demand by, at most


def main() -> None:
    demand = dpm.Private(shape=4, name="district demand", unit="entry", linf=HOUSEHOLD)
    power = cp.Variable(3, nonneg=True, name="power")
    sent = cp.Variable((3, 4), nonneg=True, name="sent")
    problem = dpm.Problem(
        cp.Minimize(COST @ power),
        [power <= CAPACITY, cp.sum(sent, axis=1) <= power, cp.sum(sent, axis=0) >= demand],
    )

    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "utility.db"
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "a new ledger")  # that a new account begins is meant here
            budget = dpm.Budget(epsilon=1.0, delta=1e-6, ledger=ledger)
        for day, amounts in DEMAND.items():
            demand.value = amounts  # the compiled problem is used again
            try:
                cost = problem.solve(epsilon=0.3, budget=budget)
            except dpm.errors.BudgetExceededError as error:
                print(f"{day:10} refused, nothing was read:\n{error}")
            else:
                print(f"{day:10} cost {cost:9.2f} dollars, power {np.round(power.value, 1)}; "
                      f"epsilon left {budget.remaining.epsilon:g}")  # fmt: skip

        reopened = dpm.Budget.open(ledger)  # as another process would
        spent, left = reopened.spent, reopened.remaining
        print(f"\nIn the file: spent epsilon {spent.epsilon:g}, remaining epsilon {left.epsilon:g}")
        for charge in reopened.history:
            print(f"   epsilon {charge.epsilon:g}, delta {charge.delta:g}: {charge.label}")


if __name__ == "__main__":
    main()
