"""Ship goods from two plants to three markets when the demands are private.

The costs and supplies are the transportation problem of Dantzig, "Linear Programming and Extensions" (Princeton,
1963), chapter 3-3, known to users of GAMS as TRNSPORT: Seattle and San Diego ship cases to New York, Chicago and
Topeka, at 90 dollars per case and thousand miles. Here each case is one customer's order, so a customer
moves one market's demand by at most one.

    python examples/transportation.py
"""

import cvxpy as cp
import numpy as np

import dpmodel as dpm

PLANTS = ["Seattle", "San Diego"]
MARKETS = ["New York", "Chicago", "Topeka"]
SUPPLY = np.array([350.0, 600.0])  # cases
DEMAND = np.array([325.0, 300.0, 275.0])  # cases ordered: the private numbers
MILES = np.array([[2.5, 1.7, 1.8], [2.5, 1.8, 1.4]])  # thousands
COST = 90 * MILES / 1000  # thousand dollars per case


def main() -> None:
    demand = dpm.Private(DEMAND, name="demand", unit="entry", linf=1)  # a customer moves their market by at most 1
    x = cp.Variable((2, 3), nonneg=True, name="cases")
    problem = dpm.Problem(
        cp.Minimize(cp.sum(cp.multiply(COST, x))),
        [
            (cp.sum(x, axis=1) <= SUPPLY).set_label("supply"),
            (cp.sum(x, axis=0) >= demand).set_label("demand"),
        ],
    )

    print(problem.classify())
    print(problem.plan(epsilon=1, delta=1e-6))
    value = problem.solve(epsilon=1, delta=1e-6)
    print(problem.release)

    print("\nCases to ship, from the release:")
    print(f"{'':12}" + "".join(f"{market:>10}" for market in MARKETS))
    for plant, row in zip(PLANTS, x.value, strict=True):
        print(f"{plant:12}" + "".join(f"{amount:10.1f}" for amount in row))
    print(f"Cost: {value:.2f} thousand dollars")


if __name__ == "__main__":
    main()
