"""What people get under joint privacy: share of the optimum, overloads, seconds, beside rationing and two papers.

Instances of ``instances.py``: the first variant of each kind, or all (``--variants``), with ``--people``. Seconds are
those of the processor, without other work on the machine.
Optimum
    By the dual of the linear program without privacy and without a limit on one person's use (``optimum.py``).
``noisy-prices``
    ``problem.solve(epsilon, delta=1e-6, beta=.005, release="joint")`` of the CVXPY model, with other noise in each of
    ``--runs``; settings are the package's own, from public facts. ``forecast`` is what its plan expects.
    ``over`` counts runs in which some resource was used beyond its capacity: of 20 runs .1 at most are allowed.
``even-shares``
    Everybody may use b / n of every resource, which reads nothing.
``--anchors``
    Algorithm 1 of Hsu, Huang, Roth and Wu 2016 and the noisy dual mirror descent of Chen and Chua 2024, each with its
    best settings in hindsight (``hindsight.py``), over none of the capacities in any run; "-" : none of the settings
    had that.
``--anchors-only``
    Nothing but these, which take by far the longest: minutes for each cell.
``--ceiling``
    The most that any prices could bring with these statements: the dual of the same people with a limit on one person's
    use, and with capacities less the margin, for the best limit. Where entries share resources it is near to that.
``--add-remove``
    People may be absent, in place of having other data.
Expectations (replace-one, first variants)
    No run of 20 over; at epsilon 1 at least the shares that are wanted: charging .77, .92, .965 of 1,000, 4,000, 10,000
    people; timetables .58, .85, .95; advertisers .82, .95 (1,000 and 10,000); ahead of every anchor.

    python -m tests.benchmarks.joint.shares [--people 1000 4000 10000] [--epsilon .5 1 4] [--runs 20] [--anchors]
"""

from __future__ import annotations

import sys
import warnings
from time import process_time

import numpy as np

from dpmodel.contract import Options
from dpmodel.joint import simulation
from dpmodel.joint.descent import margin
from dpmodel.joint.model import JointModel
from dpmodel.privacy import gaussian_mu
from tests.benchmarks.joint.hindsight import ANCHORS, best_of
from tests.benchmarks.joint.instances import KINDS, Instance, instances
from tests.benchmarks.joint.optimum import Optimum, handed, optimum
from tests.benchmarks.measuring import Expectations, Table, header, parser, short, spread

DELTA, BETA = 1e-6, 0.005
WANTED = {
    ("charging", 1000): 0.77,
    ("charging", 4000): 0.92,
    ("charging", 10_000): 0.965,
    ("charging", 100_000): 0.99,
    ("timetables", 1000): 0.58,
    ("timetables", 4000): 0.85,
    ("timetables", 10_000): 0.95,
    ("timetables", 100_000): 0.99,
    ("advertisers", 1000): 0.82,
    ("advertisers", 10_000): 0.95,
}


def ours(of: Instance, best: Optimum, epsilon: float, runs: int, neighbors: str, table: Table) -> tuple[float, int]:
    """Mean share and runs over; prints the line of the plan's choice, and that of even shares beside it."""
    problem = of.problem(neighbors)
    ask = {"delta": DELTA, "beta": BETA, "release": "joint"}
    start = process_time()
    plan = problem.plan(epsilon, **ask)
    planning = process_time() - start
    chosen = plan.chosen
    shares, over, taken = [], 0, []
    for seed in range(runs):
        start = process_time()
        problem.solve(epsilon, rng=seed, mechanism=chosen.mechanism, **ask)
        taken.append(process_time() - start)
        found = handed(of, problem.release.rule.prices)
        shares.append(found.value / best.value)
        over += found.over(of.capacity) > 0
    prices = problem.release.rule.prices
    told = f"forecast {short(chosen.forecast.error.share)}, plan {planning:.1f} s, T {len(prices.weights)}"
    used = f", use at most {prices.radius:.3g}"
    table.row(
        *_who(of), epsilon, chosen.mechanism, spread(shares), f"{over}/{runs}", short(np.median(taken)), told + used
    )
    return float(np.mean(shares)), over


def even(of: Instance, best: Optimum, table: Table) -> None:
    problem = of.problem()
    problem.solve(1.0, DELTA, beta=BETA, release="joint", mechanism="even-shares")
    found = handed(of, problem.release.rule.prices)
    table.row(*_who(of), "-", "even-shares", short(found.value / best.value), found.over(of.capacity), "", "")


def theirs(of: Instance, best: Optimum, epsilon: float, runs: int, neighbors: str, table: Table) -> float:
    """The largest mean share of the papers' algorithms."""
    largest, reached = JointModel.of(of.problem()).largest_use, 0.0
    for anchor in ANCHORS:
        start = process_time()
        found = best_of(anchor, of, best, largest, neighbors, Options(epsilon, DELTA, BETA), runs)
        searched = f"found in {process_time() - start:.0f} s"
        if found is None:
            table.row(*_who(of), epsilon, anchor.name, "-", "", "", searched)
            continue
        cells = f"0/{runs}", short(found.seconds), f"{found.settings}; {searched}"
        table.row(*_who(of), epsilon, anchor.name, spread(found.shares), *cells)
        reached = max(reached, float(np.mean(found.shares)))
    return reached


def ceiling(of: Instance, best: Optimum, epsilon: float, neighbors: str, table: Table) -> None:
    model, people = JointModel.of(of.problem(neighbors)), of.form.people(of.table.rows)
    found = {}
    for limit in simulation._limits(model):
        noise = model.sensitivity(limit) / gaussian_mu(epsilon, DELTA)
        left = np.maximum(of.capacity - margin(noise, BETA, of.capacity.size), 0.0)
        found[limit] = simulation._best_worth(of.form, people, left, limit)[0] / best.value
    limit = max(found, key=found.__getitem__)
    table.row(*_who(of), epsilon, "the most in the margin", short(found[limit]), "", "", f"use at most {limit:.3g}")


def _who(of: Instance) -> tuple[str, int]:
    return f"{of.kind}, {of.variant}", of.people


def main() -> int:
    arguments = parser(
        __doc__,
        people=[1000, 4000, 10_000],
        epsilon=[1.0],
        runs=20,
        kinds=list(KINDS),
        variants=False,
        anchors=False,
        anchors_only=False,
        add_remove=False,
        ceiling=False,
    ).parse_args()
    warnings.filterwarnings("ignore")  # the noise has a seed
    header()
    neighbors, met = "add-remove" if arguments.add_remove else "replace-one", Expectations()
    table = Table(
        ("instance", 34),
        ("people", 7),
        ("epsilon", 7),
        ("algorithm", 28),
        ("share", 20),
        ("over", 6),
        ("s", 6),
        ("", 1),
    )
    with_ours, with_anchors = not arguments.anchors_only, arguments.anchors or arguments.anchors_only
    for people in arguments.people:
        for of in instances(arguments.kinds, people, arguments.variants):
            best, first = optimum(of), of.variant == KINDS[of.kind][0]
            if with_ours and not of.form.integral:
                even(of, best, table)
            for epsilon in arguments.epsilon:
                share = None
                if with_ours:
                    share, over = ours(of, best, epsilon, arguments.runs, neighbors, table)
                    where = f"{of.kind}, {of.variant}, {people} people, epsilon {epsilon:g}"
                    met.expect(not over, f"{where}: {over} runs over")
                    least = WANTED.get((of.kind, people)) if epsilon == 1 and first else None
                    if least is not None:
                        met.expect(share >= least, f"{where}: {share:.3f} of {least} wanted")
                if arguments.ceiling:
                    ceiling(of, best, epsilon, neighbors, table)
                if with_anchors and not of.form.integral:
                    reached = theirs(of, best, epsilon, arguments.runs, neighbors, table)
                    if share is not None:
                        met.expect(
                            share > reached, f"{where}: {share:.3f}, and {reached:.3f} of the best of the others"
                        )
    return met.close()


if __name__ == "__main__":
    sys.exit(main())
