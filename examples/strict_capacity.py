"""Never exceed a private capacity: ``feasibility="strict"`` with public bounds.

A hospital plans elective treatments. How many beds each ward has free next week follows from its present
patients, so the number is private: one patient occupies at most one bed, in one ward. How many beds a ward has in all
is public. Every released plan must fit into the true free beds, for every draw of the noise. So noise of bounded
support (truncated Laplace, after Munoz, Syed, Vassilvitskii and Vitercik 2021) is subtracted from the capacities.
(The numbers are invented.)

    python examples/strict_capacity.py
"""

import cvxpy as cp
import numpy as np

import dpmodel as dpm

WARDS = ["surgery", "cardiology", "orthopaedics", "neurology"]
BEDS = np.array([220.0, 140.0, 180.0, 90.0])  # public
FREE = np.array([96.0, 51.0, 74.0, 38.0])  # private
TREATMENTS = ["hip", "knee", "bypass", "stent", "spine", "tumour"]
BENEFIT = np.array([3.0, 2.0, 6.0, 4.0, 5.0, 7.0])
DAYS = np.array(  # beds that one treatment needs in each ward
    [
        [0.3, 0.2, 1.0, 0.0, 0.8, 1.2],
        [0.0, 0.0, 0.9, 1.0, 0.0, 0.0],
        [1.0, 0.9, 0.0, 0.0, 0.6, 0.0],
        [0.0, 0.0, 0.0, 0.0, 0.5, 0.6],
    ]
)
RUNS = 200


def main() -> None:
    free = dpm.Private(FREE, name="free beds", unit="entry", linf=1, bounds=[0, BEDS])
    x = cp.Variable(6, nonneg=True, name="treatments")
    capacity = (DAYS @ x <= free).set_label("capacity")
    problem = dpm.Problem(cp.Maximize(BENEFIT @ x), [capacity, (x <= 60).set_label("staff")])

    print(problem.plan(epsilon=1, delta=1e-6, feasibility="strict"))
    value = problem.solve(epsilon=1, delta=1e-6, feasibility="strict")
    print(problem.release)
    print(f"\nReleased plan, benefit {value:.0f}:")
    for treatment, number in zip(TREATMENTS, x.value, strict=True):
        print(f"   {treatment:8}{number:7.1f}")

    # A simulation may compare with the truth; a release must not. Seeded noise, for the simulation only.
    exceeded = {"strict": 0, "relaxed": 0}
    for feasibility in exceeded:
        rng = np.random.default_rng(0)
        for _ in range(RUNS):
            problem.solve(epsilon=1, delta=1e-6, feasibility=feasibility, rng=rng)
            exceeded[feasibility] += bool((DAYS @ x.value > FREE + 1e-6).any())
    print(f"\nIn {RUNS} simulated runs a true capacity was exceeded {exceeded['strict']} times when strict, "
          f"{exceeded['relaxed']} times when relaxed.")  # fmt: skip


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore", dpm.errors.NotPrivateWarning)
    main()
