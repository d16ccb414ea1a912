"""Choose projects so that every voter gets something, without showing anybody's ballot: one person, one constraint.

Participatory budgeting: 40,000 people approve up to four of twelve projects, and a budget is to be shared out so that
everybody is covered by approved projects, ``A[i] @ x >= 1``, where x_j is how much of project j is paid for. A ballot
is private and owns a whole constraint, so no private algorithm can satisfy them all (Hsu, Roth, Roughgarden and Ullman
2014, section 3): some people must be given up. The plan says, before anything is read, for how many it can give a
guarantee; at epsilon 1 for nine in ten of 40,000 people, and for none of 4,000 (dpmodel then warns before it draws).
``noisy-hinge-descent`` lowers the mean shortfall step by step, with noise on each step, and in practice does far better
than what can be proved. (Invented ballots.)

    python examples/set_cover.py
"""

import cvxpy as cp
import numpy as np

import dpmodel as dpm

PROJECTS = ["playground", "library", "cycle lane", "trees", "benches", "theatre", "sports hall", "pond", "youth club",
            "lighting", "crossing", "market"]  # fmt: skip
COST = np.array([40, 90, 60, 25, 10, 120, 150, 30, 45, 35, 20, 50.0])  # thousand
BUDGET, VOTERS = 260.0, 40_000


def ballots() -> np.ndarray:
    """(voters, projects) zeros and ones: two districts with tastes of their own."""
    rng = np.random.default_rng(11)
    taste = np.array([[9, 6, 5, 7, 2, 1, 3, 1, 6, 2, 3, 1], [1, 2, 2, 8, 4, 3, 2, 7, 1, 6, 6, 3.0]])
    rows = np.zeros((VOTERS, len(PROJECTS)))
    for row, home in zip(rows, rng.random(VOTERS) < 0.35, strict=True):
        likes = taste[int(home)] / taste[int(home)].sum()
        row[rng.choice(len(PROJECTS), size=rng.integers(2, 5), replace=False, p=likes)] = 1
    return rows


def main() -> None:
    votes = ballots()
    A = dpm.Private(votes, name="ballots", unit="row", bounds=[0, 1], max_l1=4)
    x = cp.Variable(len(PROJECTS), bounds=[0, 1], name="paid")
    everybody = (A @ x >= 1).set_label("everybody covered")
    problem = dpm.Problem(cp.Minimize(0), [everybody, (COST @ x <= BUDGET).set_label("budget")])

    # A statement is asked for: without, the plan takes what does best on synthetic ballots, and proves little of it.
    nearly = dpm.AllBut(alpha=0.2)
    plan = problem.plan(epsilon=1, delta=1e-6, feasibility=nearly, compare="all")
    for candidate in plan.candidates:
        if candidate.eligible:
            print(f"{candidate.mechanism}: {candidate.forecast.statement}")
    problem.solve(epsilon=1, delta=1e-6, feasibility=nearly)
    print("\n", problem.release, sep="")
    print(f"\nReleased plan, {COST @ x.value:.0f} of {BUDGET:.0f} thousand:")
    for project, paid, cost in zip(PROJECTS, x.value, COST, strict=True):
        if paid > 0.005:
            print(f"   {project:12}{paid:6.0%} of {cost:3.0f}")

    # A benchmark may look at the ballots again; a release must not.
    y, missing = cp.Variable(len(PROJECTS), bounds=[0, 1]), cp.Variable(VOTERS, nonneg=True)
    cp.Problem(cp.Minimize(cp.sum(missing)), [votes @ y + missing >= 1, COST @ y <= BUDGET]).solve(solver=cp.HIGHS)
    for words, point in (("private", x.value), ("best without privacy", y.value)):
        print(f"{words}: {np.mean(votes @ point < 0.9 - 1e-6):.1%} of the voters short by more than a tenth, "
              f"mean shortfall {np.maximum(1 - votes @ point, 0).mean():.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
