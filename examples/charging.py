"""Who charges when: every household is told its own hours, and nothing of the others.

A street of 1,000 households has one cable, which carries 150 cars in each of twelve hours of the night. What an hour
of charging is worth to a household, and how much it wants, shows when somebody is at home, so both are private, and
nobody can say how large they may be. By Theorems 36 and 37 of Hsu, Roth, Roughgarden and Ullman (2014) no private
timetable for everybody to see can be any good. Under joint differential privacy prices are published, each household is
handed its own hours (``dpm.Shares``, ``release="joint"``), and what all others together learn of it is differentially
private. (Invented wishes.)

    python examples/charging.py
"""

import cvxpy as cp
import numpy as np

import dpmodel as dpm
from dpmodel.joint.rule import Rule

HOUSEHOLDS, HOURS, CABLE = 1000, 12, 150.0


def wishes() -> tuple[np.ndarray, np.ndarray]:
    """(households, hours) what an hour is worth, dearer in the beginning; (households,) how many hours are wanted."""
    rng = np.random.default_rng(3)
    early = np.linspace(0.3, 0, HOURS)
    worth = rng.uniform(0.2, 1, (HOUSEHOLDS, HOURS)) * rng.uniform(0.5, 1.5, (HOUSEHOLDS, 1)) + early
    return worth, rng.uniform(1, 4, HOUSEHOLDS)


def main() -> None:
    worth, wish = wishes()
    households = dpm.Records("households")
    value = dpm.Private(worth, name="worth", unit="row", records=households, typical=0.8)  # typical: a public guess
    most = dpm.Private(wish, name="wish", unit="entry", records=households, typical=2.5)
    charge = dpm.Shares((HOUSEHOLDS, HOURS), records=households, bounds=[0, 1], name="charge")
    own = cp.sum(charge, axis=1) <= most
    cable = (cp.sum(charge, axis=0) <= CABLE).set_label("cable")
    problem = dpm.Problem(cp.Maximize(cp.sum(cp.multiply(value, charge))), [own, cable])

    try:
        problem.solve(epsilon=1, delta=1e-6)
    except dpm.ImpossibilityError as error:
        print(f"A timetable for everybody: {error.theorem} forbids it.\n")

    print(problem.plan(epsilon=1, delta=1e-6, release="joint"))
    problem.solve(epsilon=1, delta=1e-6, release="joint")
    print("\n", problem.release, sep="")

    # Published are the rule and its prices; a household computes its hours at home.
    published = problem.release.rule.to_json()
    at_home = Rule.from_json(published).share(worth=worth[7], wish=wish[7])
    print(f"\nHousehold 7, told by letter and computed at home: {np.allclose(at_home, problem.release.share(7))}")
    print("Its hours:", at_home.round(2))

    # A benchmark may look into all letters and wishes; nobody else may.
    used, gained = np.zeros(HOURS), 0.0

    def note(household: int, share: np.ndarray) -> None:
        nonlocal used, gained
        used, gained = used + share, gained + worth[household] @ share

    problem.release.deliver(note)
    x = cp.Variable((HOUSEHOLDS, HOURS), bounds=[0, 1])
    limits = [cp.sum(x, axis=1) <= wish, cp.sum(x, axis=0) <= CABLE]
    best = cp.Problem(cp.Maximize(cp.sum(cp.multiply(worth, x))), limits).solve(solver=cp.HIGHS)
    print(f"Worth {gained / best:.1%} of the best timetable; the fullest hour uses {used.max():.1f} of {CABLE:g}")


if __name__ == "__main__":
    main()
