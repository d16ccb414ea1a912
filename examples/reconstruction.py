"""Why some programs have no private solver: their solution is the database.

Twenty members voted, ten of them yes. The program of Theorem 37 of Hsu, Roth, Roughgarden and Ullman (2014)
looks harmless: share ten units out to those who said yes, at most one each. Its optimum tells every vote. dpmodel
refuses to solve it. With declared bounds it does solve it, and then loses what every private mechanism must lose.

    python examples/reconstruction.py
"""

import warnings

import dpmodel as dpm

VOTES = [0, 1, 1, 0, 1, 0, 0, 1, 0, 1, 1, 1, 0, 0, 1, 0, 1, 0, 1, 0]  # private (invented)


def main() -> None:
    gadget = dpm.teach.gadgets.objective(VOTES)
    print(gadget)
    attack = dpm.teach.gadgets.reconstruct(gadget, gadget.solve_without_privacy(), truth=VOTES)
    print("From the plain solver's solution:", attack)

    try:
        gadget.problem.solve(epsilon=1)
    except dpm.ImpossibilityError as error:
        print(f"\nPrivately: {type(error).__name__}, {error.theorem}.")
    print(f"A neighbor, one swap away: {gadget.neighbor(0).tolist()}")

    bounded = dpm.teach.gadgets.objective(VOTES, sensitivity=1.0)
    # Left to itself, the plan would take a point that reads no vote: noise promises nothing for twenty. dpmodel warns
    # before it draws; here the warning is part of the story, so it is caught and printed.
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", dpm.errors.NoGuaranteeWarning)
        bounded.problem.solve(epsilon=1, mechanism="laplace-once")
    print(*(f"\nWarned before anything was read: {warning.message}" for warning in told))
    attack = dpm.teach.gadgets.reconstruct(bounded, truth=VOTES)
    print(
        f"\nWith changes of at most 1, by {bounded.problem.release.mechanism}: {100 * attack.share:.0f}% of the votes"
    )
    loss = bounded.error(bounded.variable.value)
    print(f"Loss / n {loss:.3f}; lower bound: {bounded.lower_bound(epsilon=1).statement}\n")

    print(dpm.teach.gadgets.demonstrate(n=40, epsilons=(0.2, 1.0), repetitions=20), "\n")
    print(dpm.teach.gadgets.lower_bounds())


if __name__ == "__main__":
    main()
