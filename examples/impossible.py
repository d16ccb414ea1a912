"""What cannot be solved privately, why, and what to do about it.

A shop sells five articles from one shelf, and what each supplier charges it is to stay private. Each supplier
owns one coefficient of the objective and may change it arbitrarily: by Theorem 37 of Hsu, Roth,
Roughgarden and Ullman (2014) no private algorithm is accurate then. The error says so, with the theorem, the
lower bound and the remedies, each with its forecast. Applied, a remedy makes the same program solvable: here the
second, a declared change. The first is for models whose records own variables: then each supplier is told how many
units of its article the shop takes, nobody else is, and its price may be anything.

    python examples/impossible.py
"""

import cvxpy as cp
import numpy as np

import dpmodel as dpm

PROFIT = np.array([4.0, 2.5, 3.0, 1.0, 3.6])  # private, in dollars per unit (invented)
# Public. A named constant says so; a plain array of the private parameter's shape would be warned of.
SPACE = cp.Constant(np.array([2.0, 1.0, 1.5, 0.5, 1.2]), name="space")


def shelf(profit: dpm.Private) -> dpm.Problem:
    units = cp.Variable(5, nonneg=True, name="units")
    return dpm.Problem(
        cp.Maximize(profit @ units),
        [(SPACE @ units <= 100).set_label("shelf"), (units <= 40).set_label("stock")],
    )


def main() -> None:
    arbitrary = shelf(dpm.Private(PROFIT, name="profit", unit="entry", typical=3))  # typical: a public guess
    print("Can it be solved?", arbitrary.is_dp())
    try:
        arbitrary.solve(epsilon=1, delta=1e-6)
    except dpm.ImpossibilityError as error:
        print(f"\n{type(error).__name__}: {error}\n")
        print(f"theorem: {error.theorem}; parameter: {error.parameter}; lower bound: {error.lower_bound:.4f}")
        for number, remedy in enumerate(error.remedies, start=1):
            print(f"remedy {number}: {remedy}")
        declared = next(remedy for remedy in error.remedies if remedy.name == "declared-change")

    print("\nA remedy, applied: a supplier can move a profit by at most 5 cents.")
    bounded = declared.apply(linf=0.05)
    print(bounded.plan(epsilon=1, delta=1e-6))
    bounded.solve(epsilon=1, delta=1e-6)
    print(f"released by {bounded.release.mechanism}; {bounded.release.accuracy.statement}")
    print("units:", np.round(bounded.release.variables["units"], 1))


if __name__ == "__main__":
    main()
