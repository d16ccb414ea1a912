"""The same mechanisms with scikit-learn's face: fit, predict, score. Needs the extra: pip install ".[learn]".

Run: python examples/scikit_learn.py
"""

from __future__ import annotations

import numpy as np

import dpmodel as dpm
from dpmodel.learn import PrivateLogisticRegression, PrivateRidge, PrivateSearchCV


def main(seed: int | None = None) -> None:
    rng = np.random.default_rng(2)
    people = 20_000
    X = np.column_stack([rng.uniform(0, 100, people), rng.uniform(0, 1, (people, 3))])
    y = 0.05 * X[:, 0] + X[:, 1] - X[:, 2] + 0.5 * rng.normal(size=people)
    bounds = ([0, 0, 0, 0], [100, 1, 1, 1])
    budget = dpm.Budget(3, 1e-5)

    ridge = PrivateRidge(
        bounds=bounds, label_bounds=(-3, 8), epsilon=1, delta=1e-6, budget=budget, random_state=seed
    ).fit(X, y)
    print(f"ridge: R2 {ridge.score(X, y):.3f}; {ridge.guarantee_}")

    classifier = PrivateLogisticRegression(
        bounds=bounds, classes=(False, True), epsilon=1, delta=1e-6, budget=budget, random_state=seed
    )
    classifier.fit(X, y > y.mean())
    print(f"logistic: accuracy {classifier.score(X, y > y.mean()):.3f}; mechanism {classifier.release_.mechanism}")

    candidates = PrivateRidge(bounds=bounds, label_bounds=(-3, 8))
    search = PrivateSearchCV(candidates, {"alpha": [1, 1e5]}, epsilon=1, budget=budget, random_state=seed).fit(X, y)
    print(f"search: {search.best_params_} by {search.strategy_}, R2 {search.score(X, y):.3f}; {search.guarantee_}")
    print(f"spent: {budget.spent}")


if __name__ == "__main__":
    main()
