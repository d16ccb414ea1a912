"""The cheapest diet when the nutrient requirements, or the tastes, come from private records.

Nine foods and nine nutrients of Stigler, "The Cost of Subsistence", Journal of Farm Economics 27 (1945): the
foods that are in the optimal diet of 1939 or near it. Numbers are nutrients per dollar spent, so x is in dollars
per day. The daily allowances are those of the National Research Council as printed there.

Twice private:

* the requirements b: a clinic averages what its 2,000 patients need. One patient moves each mean by at most
  his range divided by 2,000;
* the objective c: a poll of 2,000 patients says how disliked each food is, on a scale from 0 to 1, and the
  total dislike is minimised at a public price limit.

    python examples/diet.py
"""

import cvxpy as cp
import numpy as np

import dpmodel as dpm

FOODS = ["wheat flour", "corn meal", "evaporated milk", "margarine", "cheese", "liver", "cabbage", "spinach",
         "navy beans"]  # fmt: skip
NUTRIENTS = ["calories (1000)", "protein (g)", "calcium (g)", "iron (mg)", "vitamin A (1000 IU)", "thiamine (mg)",
             "riboflavin (mg)", "niacin (mg)", "ascorbic acid (mg)"]  # fmt: skip
PER_DOLLAR = np.array(
    [
        [44.7, 1411, 2.0, 365, 0.0, 55.4, 33.3, 441, 0],
        [36.0, 897, 1.7, 99, 30.9, 17.4, 7.9, 106, 0],
        [8.4, 422, 15.1, 9, 26.0, 3.0, 23.5, 11, 60],
        [20.6, 17, 0.6, 6, 55.8, 0.2, 0.0, 0, 0],
        [7.4, 448, 16.4, 19, 28.1, 0.8, 10.3, 4, 0],
        [2.2, 333, 0.2, 139, 169.2, 6.4, 50.8, 316, 525],
        [2.6, 125, 4.0, 36, 7.2, 9.0, 4.5, 26, 5369],
        [1.1, 106, 0.0, 138, 918.4, 5.7, 13.8, 33, 2755],
        [26.9, 1691, 11.4, 792, 0.0, 38.4, 24.6, 217, 0],
    ]
)
NEEDED = np.array([3.0, 70, 0.8, 12, 5.0, 1.8, 2.7, 18, 75])
RANGE = np.array([2.0, 60, 0.8, 10, 4.0, 1.2, 2.0, 12, 60])  # between the least and the most that anyone needs
PATIENTS = 2000


def private_requirements() -> None:
    print("== Private requirements: the cheapest diet ==")
    # In units of each nutrient's allowance all requirements are about 1, and so comparable.
    step = RANGE / NEEDED / PATIENTS  # how far one patient moves each mean
    means = dpm.Private(np.ones(9), name="requirements", unit="all", linf=step.max(), l1=step.sum(), bounds=[0.5, 1.5])
    dollars = cp.Variable(9, nonneg=True, name="dollars")
    nutrition = ((PER_DOLLAR / NEEDED).T @ dollars >= means).set_label("nutrition")
    problem = dpm.Problem(cp.Minimize(cp.sum(dollars)), [nutrition])
    for feasibility in ("relaxed", "strict"):
        cost = problem.solve(epsilon=1, delta=1e-6, feasibility=feasibility)
        release = problem.release
        print(f"{feasibility}, by {release.mechanism}: {365 * cost:.2f} dollars a year")
        print("   " + release.accuracy.statement)
        worst = int(np.argmin((PER_DOLLAR / NEEDED).T @ dollars.value))
        print(f"   scarcest nutrient in the released diet: {NUTRIENTS[worst]}")
    for food, amount in zip(FOODS, dollars.value, strict=True):
        if amount > 1e-4:
            print(f"   {food:16}{365 * amount:8.2f} dollars a year")


def private_tastes() -> None:
    print("\n== Private tastes: the least disliked diet for 30 cents a day ==")
    dislike = np.array([0.2, 0.5, 0.3, 0.4, 0.2, 0.9, 0.6, 0.7, 0.4])  # means of the private poll
    poll = dpm.Private(dislike, name="dislike", unit="all", linf=1 / PATIENTS, bounds=[0, 1])
    dollars = cp.Variable(9, nonneg=True, name="dollars")
    problem = dpm.Problem(
        cp.Minimize(poll @ dollars),
        [
            ((PER_DOLLAR / NEEDED).T @ dollars >= 1).set_label("nutrition"),
            (cp.sum(dollars) <= 0.30).set_label("price"),
        ],
    )
    print(problem.plan(epsilon=1, delta=1e-6))
    problem.solve(epsilon=1, delta=1e-6)
    print(f"released diet: {cp.sum(dollars).value:.3f} dollars a day, all requirements met exactly: "
          f"{bool(((PER_DOLLAR / NEEDED).T @ dollars.value >= 1 - 1e-6).all())}")  # fmt: skip


if __name__ == "__main__":
    private_requirements()
    private_tastes()
