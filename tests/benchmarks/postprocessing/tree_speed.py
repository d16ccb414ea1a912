"""Time to the maximum-likelihood tree under Laplace noise: our solvers and general ones, at equal objective.

Complete binary trees, seven in ten leaves empty, the others geometric with mean 50; Laplace noise of scale
levels/epsilon on every node; leaves non-negative. General solvers get one variable per node (consistency as
equalities, the sparsest form), directly, without a modelling layer; each runs in its own process and is ended at
--cap seconds. A solver is charged for its loosest tolerance at which its objective equals the exact one to 1e-4 and
no constraint is broken by more than a hundredth of the noise scale. ``wall`` counts building the solver's arrays,
``own`` is its own clock. Ours: median [quartiles] of --repetitions, wall: ``first`` on a tree never seen, nothing
cached (this is what the ratios take), and ``again`` with other noise on the same tree.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from dpmodel.released.tree_of import form_of_nodes
from dpmodel.released.trees import Tree, TreeProblem
from tests.benchmarks.measuring import Expectations, Table, header, parser, quartiles, short, spread
from tests.benchmarks.postprocessing.solvers import GENERAL, admm_tree, exact_tree, laddered, timed

Floats = npt.NDArray[np.float64]
OURS: dict[str, Callable[[TreeProblem], Floats]] = {"exact tree": exact_tree, "ADMM tree": admm_tree}


def problem_of(leaves: int, epsilon: float, seed: int, tree: Tree | None = None) -> TreeProblem:
    rng = np.random.default_rng(seed)
    tree = tree or Tree.complete(leaves)
    truth = np.where(rng.random(leaves) < 0.7, 0, rng.geometric(0.02, leaves)).astype(float)
    scale = len(tree.levels) / epsilon
    noisy = tree.sums(truth) + rng.laplace(scale=scale, size=tree.size)
    k = tree.size
    weight = np.full(k, 1 / scale)
    return TreeProblem(tree, np.arange(k), noisy, weight, np.zeros(k), np.zeros(k), np.full(k, np.inf), np.arange(k))


def main() -> int:
    reading = parser(__doc__, epsilon=1.0, repetitions=5)
    reading.add_argument("--powers", type=int, nargs="+", default=[10, 14, 17, 20], help="leaves are 2^power")
    reading.add_argument("--solvers", nargs="*", default=list(GENERAL), choices=list(GENERAL))
    reading.add_argument("--largest", type=int, default=17, help="general solvers up to 2^this")
    reading.add_argument("--cap", type=float, default=300.0, help="seconds for one solve of a general solver")
    options = reading.parse_args()
    header(("dpmodel", "numpy", "scipy", "highspy", "osqp", "clarabel", "scs"))
    print(f"load at the start: {os.getloadavg()[0]:.2f}\n")
    expected = Expectations()
    exact: dict[int, float] = {}
    for solver in OURS.values():  # imports are not what is timed
        solver(problem_of(64, 1.0, 0))
    columns = (
        ("wall s", 26),
        ("own s or again", 26),
        ("objective - exact", 17),
        ("violation", 9),
        ("x exact", 8),
        ("tolerance", 24),
    )
    table = Table(("leaves", 8), ("solver", 15), *columns)
    for power in options.powers:
        problem = problem_of(1 << power, options.epsilon, power)
        form, best, base, fastest = form_of_nodes(problem), math.nan, math.nan, math.inf
        for name, solver in OURS.items():
            first, again = [], []
            for seed in range(options.repetitions):
                other = problem_of(1 << power, options.epsilon, 1000 + seed)
                first += timed(partial(solver, other), 1)[0]
                again += timed(partial(solver, problem_of(1 << power, options.epsilon, 2000 + seed, other.tree)), 1)[0]
            x = solver(problem)
            objective, violation = problem.objective(x), form.violation(x)
            wall = quartiles(first)[0]
            if name == "exact tree":
                best, base, exact[power] = objective, wall, wall
            else:
                away = abs(objective / best - 1)
                expected.expect(away <= 1e-4, f"2^{power}: ADMM has the exact objective to 1e-4, off by {away:.1e}")
            apart = f"{objective / best - 1:.1e}"
            table.row(
                f"2^{power}", name, spread(first), spread(again), apart, f"{violation:.0e}", f"{wall / base:.3g}", ""
            )
        for name in options.solvers if power <= options.largest else ():
            found = laddered(name, form, best, options.cap)
            apart = f"{found.objective / best - 1:.1e}" if math.isfinite(found.objective) else "-"
            right = math.isfinite(found.objective) and not found.note.startswith("not")
            fastest = min(fastest, found.wall) if right else fastest
            broken = f"{found.violation:.0e}" if math.isfinite(found.violation) else "-"
            ratio = short(found.wall / base)
            table.row(f"2^{power}", name, short(found.wall), short(found.own), apart, broken, ratio, found.note)
        if power == 17 and math.isfinite(fastest):
            expected.expect(
                fastest >= 100 * base, f"2^17: {fastest / base:.0f} times faster than the best general solver"
            )
        if power == 20:
            expected.expect(base < 1, f"2^20: {base:.3g} s, under 1 s")
    large = sorted(power for power in exact if power >= 14)
    if len(large) > 1:
        slope = float(np.polyfit(large, np.log2([exact[power] for power in large]), 1)[0])
        per_leaf = ", ".join(f"2^{power}: {exact[power] / (1 << power) * 1e6:.3f}" for power in sorted(exact))
        print(f"\nexact tree, microseconds per leaf: {per_leaf}; time grows as leaves^{slope:.2f} from 2^14")
        expected.expect(slope < 1.2, f"linear in the leaves: exponent {slope:.2f}")
    print(f"load at the end: {os.getloadavg()[0]:.2f}")
    return expected.close()


if __name__ == "__main__":
    sys.exit(main())
