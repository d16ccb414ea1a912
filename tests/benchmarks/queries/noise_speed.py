"""Time of a million noise draws, of a selection, and of measuring a tree, beside numpy and OpenDP in the same run.

``draws``: values of size 100 with noise of scale 3, shortest of --repeats; OpenDP draws --opendp of them, once, and
its time is scaled to --count. numpy's column is its generator's draw added by hand, which is not private.
``selection``: among 200,000 scores. ``tree``: all nodes over 2^17 bins, through ``TreeQuery.private`` and ``measure``,
and the fit of a named form; the ratios are to numpy drawing as many Laplace numbers.
"""

from __future__ import annotations

import sys
from functools import partial
from time import perf_counter

import numpy as np

import dpmodel as dpm
from dpmodel.privacy import ExactSource, SeededSource
from dpmodel.privacy.opendp_source import OpenDPSource
from tests.benchmarks.measuring import Expectations, Table, header, parser, seconds, short

KINDS = ("discrete_laplace", "discrete_gaussian", "laplace", "gaussian")
SCALE, CANDIDATES, BINS = 3.0, 200_000, 2**17
# .2 and .6 s for a million where OpenDP took 4.9 and 9.6; .15 and .05 s where numpy's draw took .0045.
TIMES_FASTER = {"laplace": 4.9 / 0.2, "gaussian": 9.6 / 0.6}
TIMES_NUMPY = {"measure": 0.15 / 0.0045, "fit": 0.05 / 0.0045}


def main() -> int:
    reading = parser(__doc__, count=1_000_000, opendp=100_000, repeats=7)
    options = reading.parse_args()
    header(("dpmodel", "numpy", "opendp", "python-flint"))
    expected = Expectations()
    rng = np.random.default_rng(0)
    exact, opendp, plain = ExactSource(), OpenDPSource(), SeededSource(0)
    opendp.laplace(np.zeros(1), 1.0)  # its import is not what is timed

    columns = ("exact s", 8), ("numpy s", 8), ("OpenDP s", 8), ("exact / numpy", 13), ("OpenDP / exact", 14)
    table = Table(("what", 28), *columns)

    def line(what: str, mine: float, numpys: float, theirs: float) -> None:
        cells = short(mine), short(numpys), short(theirs), short(mine / numpys), short(theirs / mine)
        table.row(what, *cells)

    values = np.rint(rng.normal(size=options.count) * 100)
    for kind in KINDS:
        given = values if kind.startswith("discrete") else values * 1.1
        mine = seconds(partial(getattr(exact, kind), given, SCALE), options.repeats)
        numpys = seconds(partial(getattr(plain, kind), given, SCALE), options.repeats)
        some = given[: options.opendp]
        theirs = seconds(partial(getattr(opendp, kind), some, SCALE), 1) * (options.count / some.size)
        line(f"{options.count:,} {kind.replace('_', ' ')}", mine, numpys, theirs)
        least = TIMES_FASTER[kind.removeprefix("discrete_")]
        expected.expect(theirs >= least * mine, f"{kind}: {theirs / mine:.3g} times faster, at least {least:.3g}")
    scores = rng.normal(size=CANDIDATES)
    for selection in ("exponential", "permute_and_flip"):
        times = [
            seconds(partial(source.noisy_max, scores, 1.0, kind=selection), options.repeats)
            for source in (exact, plain, opendp)
        ]
        line(selection.replace("_", " "), *times)
        expected.expect(times[0] <= times[2], f"{selection}: not slower than OpenDP")

    counts = np.where(rng.random(BINS) < 0.7, 0, rng.geometric(0.02, BINS)).astype(float)
    tree = dpm.released.tree_query(BINS)
    noise = seconds(lambda: rng.laplace(size=tree.size), options.repeats)
    steps: dict[str, list[float]] = {"measure": [], "fit, likelihood": [], "fit, least squares": []}
    for _ in range(options.repeats):
        private = tree.private(counts, neighbors="add-remove")
        start = perf_counter()
        noisy = dpm.measure(private, 1.0)
        steps["measure"].append(perf_counter() - start)
        for form in ("likelihood", "least-squares"):
            start = perf_counter()
            tree.fit(noisy, form=form).solve()
            steps[f"fit, {form.replace('-', ' ')}"].append(perf_counter() - start)
    print(f"\ntree over 2^17 bins, {tree.size:,} nodes; numpy draws as many Laplace numbers in {short(noise)} s")
    for what, taken in steps.items():
        ratio, most = min(taken) / noise, TIMES_NUMPY[what.split(",")[0]]
        print(f"{what}: {short(min(taken))} s, {short(ratio)} times numpy's draw")
        expected.expect(ratio <= most, f"{what}: {ratio:.3g} times numpy's draw, at most {most:.3g}")
    return expected.close()


if __name__ == "__main__":
    sys.exit(main())
