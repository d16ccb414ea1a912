"""Split a grant among projects by private scores: an objective over a simplex, and the exponential mechanism.

500 committee members score eight projects from 0 to 10 (an invented poll, drawn from a fixed seed). The whole grant
is divided so that the mean score of a unit of money is as large as it can be. The optimum is a vertex: everything
to the best project. So the planner chooses among eight points, by permute-and-flip, with the
exponential mechanism's guarantee, and its loss is far below that of noise on the scores as Theorem 34
of Hsu, Roth, Roughgarden and Ullman (2014) has it.

    python examples/portfolio_of_private_scores.py
"""

import cvxpy as cp
import numpy as np

import dpmodel as dpm

PROJECTS = ["library", "bicycle path", "playground", "clinic", "orchestra", "nursery", "night bus", "swimming pool"]
MEMBERS = 500


def main() -> None:
    rng = np.random.default_rng(1)
    ballots = np.clip(np.round(rng.normal(np.linspace(3, 8, 8), 2, (MEMBERS, 8))), 0, 10)

    # One member replaces one ballot: every mean moves by at most 10 / 500.
    scores = dpm.Private(ballots.mean(axis=0), name="mean scores", unit="all", linf=10 / MEMBERS, bounds=[0, 10])
    share = cp.Variable(8, nonneg=True, name="share")
    problem = dpm.Problem(cp.Maximize(scores @ share), [(cp.sum(share) == 1).set_label("whole grant")])

    print(problem.classify())
    plan = problem.plan(epsilon=1, delta=1e-6, as_printed=True)
    print(plan)
    forecast = {c.mechanism: c.forecast.alpha for c in plan.candidates if c.eligible}
    print(f"\nTheorem 34 as published would lose up to {forecast['theorem-34'] / plan.chosen.forecast.alpha:.0f} "
          "times as much score.")  # fmt: skip

    problem.solve(epsilon=1)
    winner = int(np.argmax(share.value))
    print(f"Chosen by {problem.release.mechanism} at {problem.release.guarantee}:")
    print(f"   all of the grant to the {PROJECTS[winner]}")


if __name__ == "__main__":
    main()
