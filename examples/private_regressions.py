"""One table of private rows, three questions: the median, a probability, and a yes-or-no rule.

Run: python examples/private_regressions.py
"""

from __future__ import annotations

import cvxpy as cp
import numpy as np

import dpmodel as dpm


def main(seed: int | None = None) -> None:
    # Synthetic: age in years (18 to 90), schooling in years (0 to 20), income in thousands.
    rng = np.random.default_rng(1)
    people = 30_000
    table = np.column_stack([rng.uniform(18, 90, people), rng.uniform(0, 20, people)])
    income = 10 + 0.2 * table[:, 0] + 2 * table[:, 1] + rng.exponential(8, people)
    owns = np.where(income + rng.normal(0, 10, people) > 45, 1.0, -1.0)

    # Bounds are public policy: what is beyond them is clipped, and they set the noise.
    census = dpm.Records("people")
    X = dpm.Private(
        table, name="table", unit="row", bounds=[np.array([18.0, 0.0]), np.array([90.0, 20.0])], records=census
    )
    money = dpm.Private(income, name="income", unit="entry", bounds=[0, 100], records=census)
    home = dpm.Private(owns, name="home", unit="entry", bounds=[-1, 1], records=census)
    w, b = cp.Variable(2, name="w"), cp.Variable(name="b")
    budget = dpm.Budget(3, 1e-5)

    residual = money - (X @ w + b)
    median = dpm.Problem(cp.Minimize(cp.norm1(residual) / people))  # no set needed: its derivatives are bounded
    median.solve(epsilon=1, delta=1e-6, budget=budget, rng=seed)
    print(median.release, end="\n\n")
    print("median income at 40 with 12 years:", float(np.array([40, 12]) @ w.value + b.value), end="\n\n")

    margin = cp.multiply(home, X @ w + b)
    for name, loss in (("logistic", cp.logistic(-margin)), ("hinge", cp.pos(1 - margin))):
        problem = dpm.Problem(cp.Minimize(cp.sum(loss) / people), [cp.norm_inf(w) <= 1, b >= -20, b <= 20])
        problem.solve(epsilon=1, delta=1e-6, budget=budget, rng=seed)
        right = float(np.mean(np.sign(table @ w.value + b.value) == owns))  # not part of the release
        print(f"{name}: {problem.release.mechanism}, {right:.1%} of the rows on the right side")
    print(f"\nspent: {budget.spent}")


if __name__ == "__main__":
    main()
