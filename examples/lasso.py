"""LASSO over private rows: who smokes, say, and what goes with it, from answers that nobody may trace back.

Run: python examples/lasso.py
"""

from __future__ import annotations

import cvxpy as cp
import numpy as np

import dpmodel as dpm


def main(seed: int | None = None) -> None:
    # Synthetic survey: 20,000 people, 100 yes-or-no questions coded -1 and 1, five of which matter.
    rng = np.random.default_rng(0)
    people, questions = 20_000, 100
    answers = rng.choice([-1.0, 1.0], (people, questions))
    truth = np.zeros(questions)
    truth[:5] = [0.3, -0.25, 0.2, 0.15, -0.1]
    score = answers @ truth + 0.1 * rng.normal(size=people)

    survey = dpm.Records("people")
    X = dpm.Private(answers, name="answers", unit="row", bounds=[-1, 1], records=survey)
    y = dpm.Private(score, name="score", unit="entry", bounds=[-1.5, 1.5], records=survey)
    w = cp.Variable(questions, name="w")
    problem = dpm.Problem(cp.Minimize(cp.sum_squares(X @ w - y) / people), [cp.norm1(w) <= 1])

    print(problem.classify(), end="\n\n")
    print(problem.plan(epsilon=1, delta=1e-6), end="\n\n")
    problem.solve(epsilon=1, delta=1e-6, rng=seed)
    print(problem.release, end="\n\n")

    # Not part of the release: how far it is from the truth, which only a simulation can know.
    missed = float(np.mean((answers @ (np.asarray(w.value) - truth)) ** 2))
    print(f"mean squared distance of the predictions from the true ones: {missed:.4f} (all zeros: {truth @ truth:.4f})")


if __name__ == "__main__":
    main()
