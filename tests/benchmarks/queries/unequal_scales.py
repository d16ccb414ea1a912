"""Likelihood, least squares and the default on hierarchies whose levels were published with different noise.

    python -m tests.benchmarks.queries.unequal_scales [--runs 40]

Simulated counts, Laplace noise of one scale per level, top first. Mean absolute error of each level: as published, by
form="likelihood", by form="least-squares" and by the default. Expectation: the default is within 10 % of the better of
the two in the mean over levels of the error relative to that published.
"""

from __future__ import annotations

import sys

import numpy as np

import dpmodel as dpm
from dpmodel.released.faces.hierarchy import Hierarchy
from tests.benchmarks.measuring import Expectations, Table, header, parser

CASES = {
    # name: children of a node per level, scales, share of cells that are not empty, their mean
    "a total of 50 blocks": ((50,), (8.0, 3.0), 1.0, 100.0),
    "regions, districts, blocks": ((12, 20, 15), (5.0, 20.0, 8.0, 3.0), 1.0, 150.0),
    "the same, mostly empty": ((12, 20, 15), (5.0, 20.0, 8.0, 3.0), 0.05, 150.0),
    "precise totals, mostly empty": ((16, 16), (1.0, 10.0, 10.0), 0.05, 1000.0),
    "equal scales": ((16, 16), (10.0, 10.0, 10.0), 1.0, 100.0),
    "equal scales, mostly empty": ((16, 16), (10.0, 10.0, 10.0), 0.05, 1000.0),
}


def nested(children: tuple[int, ...]) -> Hierarchy:
    parents: dict[str, str | None] = {"n": None}
    last = ["n"]
    for k in children:
        below = [(f"{up}.{i}", up) for up in last for i in range(k)]
        parents |= dict(below)
        last = [name for name, _ in below]
    return dpm.released.hierarchy(parents)


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--runs", type=int, default=40)
    given = options.parse_args()
    header()
    expected = Expectations()
    forms = (("published", 22), ("likelihood", 22), ("least squares", 22), ("default", 22))
    table = Table(("hierarchy", 30), ("scales", 14), *forms)
    for name, (children, scales, share, mean) in CASES.items():
        places = nested(children)
        found = {form: np.zeros(len(scales)) for form in ("published", "likelihood", "least-squares", "auto")}
        for run in range(given.runs):
            rng = np.random.default_rng(run)
            leaves = rng.poisson(mean, len(places.leaves)) * (rng.random(len(places.leaves)) < share)
            truth = places.answers(leaves)
            noisy = {}
            for place, (level, scale) in enumerate(zip(places.levels, scales, strict=True)):
                exact = truth[places.tree.levels[level]]
                values = exact + rng.laplace(scale=scale, size=exact.size)
                noisy[level] = dpm.Noisy(values, noise=dpm.noise.Laplace(scale))
                found["published"][place] += np.abs(values - exact).mean() / given.runs
            for form in ("likelihood", "least-squares", "auto"):
                fit = places.fit(noisy, form=form)
                fit.solve()
                off = [np.abs(fit.x[at] - truth[at]).mean() for at in places.tree.levels]
                found[form] += np.array(off) / given.runs
        shown = [" ".join(f"{e:.3g}" for e in errors) for errors in found.values()]
        table.row(name, " ".join(f"{s:g}" for s in scales), *shown)
        mean_of = {form: float((errors / found["published"]).mean()) for form, errors in found.items()}
        better = min(mean_of["likelihood"], mean_of["least-squares"])
        expected.expect(mean_of["auto"] <= 1.1 * better, f"{name}: {mean_of['auto']:.3g} against {better:.3g}")
    return expected.close()


if __name__ == "__main__":
    sys.exit(main())
