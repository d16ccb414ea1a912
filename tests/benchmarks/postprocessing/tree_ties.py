"""Which optimum of absolute deviations on a tree to take: mean squared errors of the rules for ties.

Counts under Laplace noise of scale levels / epsilon at every node (the total included), leaves at least 0. Errors, in
units of the squared scale: of single leaves, of ranges of 16 leaves, of random ranges. With --folder, the shapes of its
1-D NAME.npz (key x) are used as well, scaled to the same totals.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np

from dpmodel.released.exact_tree import Ties, solve_exact_tree
from dpmodel.released.trees import Tree, TreeProblem
from tests.benchmarks.measuring import Expectations, Table, data_path, header, parser

RULES = get_args(Ties)
QUERIES = 300
SHORT = 16


def simulated(leaves: int, g: np.random.Generator) -> dict[str, np.ndarray]:
    """Shares of the leaves."""
    sparse = np.zeros(leaves)
    some = g.choice(leaves, max(1, int(0.03 * leaves)), replace=False)
    sparse[some] = g.pareto(1.0, some.size) + 1
    places = np.arange(leaves)
    bumps = sum(np.exp(-0.5 * ((places - m) / (leaves / 100)) ** 2) for m in g.integers(0, leaves, 4))
    shapes = {
        "dense": g.dirichlet(np.full(leaves, 5.0)),
        "97% zeros": sparse,
        "power distribution": (1.0 + places) ** -1.2,
        "bumps": bumps,
    }
    return {name: shape / shape.sum() for name, shape in shapes.items()}


def stored(folder: Path, leaves: int) -> dict[str, np.ndarray]:
    """Shares of the leaves of 1-D sets with at least that many, neighbours added up."""
    found = {}
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as held:
            x = np.asarray(held["x"], dtype=float) if "x" in held else np.zeros(0)
        if x.ndim == 1 and x.size >= leaves:
            x = x[: x.size // leaves * leaves].reshape(leaves, -1).sum(axis=1)
            found[path.stem[:16]] = x / x.sum()
    if not found:
        raise SystemExit(f"{folder}: no 1-D histogram (key x) of {leaves} bins or more")
    return found


def errors(
    tree: Tree, share: np.ndarray, total: float, epsilon: float, repeats: int, g: np.random.Generator
) -> dict[str, np.ndarray]:
    """(3,) errors of each rule: leaves, short ranges, random ranges."""
    leaves, nodes = share.size, np.arange(tree.size)
    scale = len(tree.levels) / epsilon
    counts = g.multinomial(int(total), share).astype(float)
    truth = tree.sums(counts)
    lower = np.where(tree.is_leaf, 0.0, -np.inf)
    nothing, free = np.zeros(tree.size), np.full(tree.size, np.inf)
    problem = TreeProblem(tree, nodes, truth, np.full(tree.size, 1 / scale), nothing, lower, free, nodes)
    starts = g.integers(0, leaves - SHORT + 1, QUERIES)
    ranges = np.sort(g.integers(0, leaves + 1, (QUERIES, 2)), axis=1).T
    out = {rule: np.zeros(3) for rule in RULES}
    for _ in range(repeats):
        noisy = replace(problem, value=truth + g.laplace(scale=scale, size=tree.size))
        for rule in RULES:
            wrong = (solve_exact_tree(noisy, rule)[tree.is_leaf] - counts) / scale
            sums = np.concatenate([[0.0], np.cumsum(wrong)])
            parts = (wrong, sums[starts + SHORT] - sums[starts], sums[ranges[1]] - sums[ranges[0]])
            out[rule] += [np.mean(part**2) / repeats for part in parts]
    return out


def main() -> int:
    reading = parser(
        __doc__,
        leaves=1024,
        branching=[2, 16],
        totals=[10000.0, 100000.0, 1000000.0, 10000000.0],
        epsilons=[0.1, 1.0],
        repeats=10,
    )
    reading.add_argument("--folder", type=data_path("*.npz"))
    options = reading.parse_args()
    header(("dpmodel", "numpy", "scipy"))
    expected = Expectations()
    for branching in options.branching:
        g = np.random.default_rng(0)
        shapes = simulated(options.leaves, g)
        if options.folder is not None:
            shapes |= stored(options.folder, options.leaves)
        tree = Tree.complete(options.leaves, branching)
        print(f"\n{options.leaves} leaves, branching {branching}: error of leaves, {SHORT} leaves, random ranges")
        table = Table(("shape", 16), ("total", 7), ("eps", 4), *((rule, 22) for rule in RULES))
        logs: dict[str, list[np.ndarray]] = {rule: [] for rule in RULES}
        for name, share in shapes.items():
            for total in options.totals:
                for epsilon in options.epsilons:
                    found = errors(tree, share, total, epsilon, options.repeats, g)
                    cells = [" ".join(f"{e:.3g}" for e in found[rule]) for rule in RULES]
                    table.row(name, f"{total:.0e}", f"{epsilon:g}", *cells)
                    for rule in RULES:
                        logs[rule].append(np.log(found[rule]))
        means = {rule: np.exp(np.mean(logs[rule], axis=0)) for rule in RULES}
        table.row("geometric mean", "", "", *(" ".join(f"{e:.3g}" for e in means[rule]) for rule in RULES))
        for which, what in enumerate(("leaves", f"{SHORT} leaves", "random ranges")):
            best = min(RULES, key=lambda rule: means[rule][which])
            expected.expect(best == "nearest", f"branching {branching}, {what}: least geometric mean error by {best}")
    return expected.close()


if __name__ == "__main__":
    sys.exit(main())
