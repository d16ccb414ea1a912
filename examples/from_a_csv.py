"""From a csv file to three private answers: a table, a staffing plan and a logistic regression, with names to the end.

Run: python examples/from_a_csv.py  (needs the extra "data": DuckDB reads the file)
"""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path

import cvxpy as cp
import numpy as np

import dpmodel as dpm

TOWNS = ["Bonn", "Kiel", "Ulm"]


def write_visits(path: Path) -> None:
    """Synthetic visits to three clinics: some people come several times, and some cells are empty."""
    rng = np.random.default_rng(0)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["person", "town", "age", "urgent"])
        for person in range(4_000):
            town, age = rng.choice(TOWNS, p=[0.5, 0.2, 0.3]), rng.integers(1, 95)
            for _ in range(rng.integers(1, 4)):
                urgent = "yes" if rng.random() < 1 / (1 + np.exp((50 - age) / 12)) else "no"
                rows.writerow([person, town, age if rng.random() > 0.01 else "", urgent])


def main(seed: int | None = None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "visits.csv"
        write_visits(path)
        people = dpm.Dataset.scan(
            path,
            privacy_id="person",
            max_rows=2,  # the first two visits of everybody count
            bounds={"age": (0, 100)},
            domain={"town": TOWNS, "urgent": ["no", "yes"]},
            outside="drop",  # visits without an age are left out where the age is used
        )

        # A table: one person moves it by at most four visits in all.
        visits = dpm.measure(people.crosstab("town", "urgent"), epsilon=0.5, rng=seed)
        print(visits.to_frame().to_string(index=False), end="\n\n")

        # A linear program: staff for the visits of every town, at least cost; noise may not leave a town short.
        staff = cp.Variable(3, nonneg=True, name="staff")
        demand = people.count("town", name="visits")
        plan = dpm.Problem(
            cp.Minimize(cp.Constant([1.0, 1.4, 1.2], name="wages") @ staff),
            [(50 * staff >= demand).set_label("enough staff")],
        )
        plan.solve(epsilon=0.5, feasibility="safe", rng=seed)
        print(plan.release, end="\n\n")

        # A logistic regression of one row per person: urgent cases by age and town.
        X, y = people.rows(["age", "town"], scale=True, first=True), people.rows("urgent", first=True)
        w = cp.Variable(4, name="w")
        losses = cp.logistic(-cp.multiply(2 * y - 1, X @ w))
        fit = dpm.Problem(cp.Minimize(cp.sum(losses) / X.shape[0]), [cp.norm(w) <= 10])
        fit.solve(epsilon=1, delta=1e-6, rng=seed)
        print(fit.release)


if __name__ == "__main__":
    main()
