"""Release marginals of a table of people so that no single person can be told from them.

A synthetic survey of 3,000 people, five questions. The workload is every pair of questions. ``query_release`` measures
the residuals of the tables once and fits tables that are non-negative, agree with each other and can be summed further.
``problem`` is the same workload as a private linear program (x is the synthetic table, the rows are the cells).

    python examples/query_release.py
"""

from itertools import combinations

import numpy as np

from dpmodel.released import query_release

DOMAIN = {
    "age": 8,  # decades
    "works": ["no", "part time", "full time"],
    "commute": ["none", "walk", "bicycle", "bus", "car"],
    "children": 5,
    "town": ["A", "B", "C", "D"],
}
PEOPLE = 3000


def survey() -> dict[str, np.ndarray]:
    """Synthetic answers: age decides about work and children, work about the commute."""
    rng = np.random.default_rng(1)
    age = rng.binomial(7, 0.5, PEOPLE)
    works = np.where(age < 2, 0, np.where(rng.random(PEOPLE) < 0.2, 1, 2)) * (age < 6)
    commute = np.where(works == 0, 0, rng.choice([1, 2, 3, 4], p=[0.1, 0.2, 0.3, 0.4], size=PEOPLE))
    children = np.minimum(rng.poisson(np.where(age > 2, 1.2, 0.1)), 4)
    codes = {"age": age, "works": works, "commute": commute, "children": children, "town": rng.integers(0, 4, PEOPLE)}
    return {name: np.array(DOMAIN[name])[c] if isinstance(DOMAIN[name], list) else c for name, c in codes.items()}


def main() -> None:
    query = query_release(survey(), list(combinations(DOMAIN, 2)), domain=DOMAIN, neighbors="add-remove")
    print(query.plan(epsilon=1, delta=1e-6))
    cell = query.problem.classify().cells[0]
    print(f"each cell: {cell.part}, {cell.level}; one person moves b by {cell.sensitivity['l2']:.2f} in the 2-norm")
    release = query.solve(epsilon=1, delta=1e-6)
    print(f"by {release.mechanism}, {release.guarantee}")
    errors = release.standard_errors()
    print(f"after the fit, by simulation: {min(errors.values()):.1f} to {max(errors.values()):.1f} a cell")
    table = release.answers(("works", "commute"))
    print("\nworks \\ commute " + "".join(f"{name:>10}" for name in table.categories[1]))
    for name, row in zip(table.categories[0], table.values, strict=True):
        print(f"{name:16}" + "".join(f"{value:10.0f}" for value in row))
    print(f"\npeople: {table.values.sum():.0f} (the number is private too)")


if __name__ == "__main__":
    main()
