"""Planted systems of equations, one per record, a share of them corrupted: how often the private release solves them.

Per release: how many of ``--instances`` systems times ``--repeats`` releases recover x (the released equations have
one solution, the planted one); the others are ``i`` inconsistent, ``l`` less (the solution stays open, or nothing is
said) or ``w`` wrong (one solution, another one). Then the forecast's number of records needed (``-``: none is enough),
in brackets where it is more than there are. Add-remove, delta 1e-6. ``sets`` is what the stable partition (KMMST24,
Algorithm 1) makes of the first system: sets of d + 1 vectors, each with a wrong equation, and sets of d vectors that
span the planted system; a release needs about ``threshold`` of one kind.

Every wrong equation that finds d others makes a set of dimension d + 1. So as soon as the wrong equations exceed the
threshold, the largest dimension that passes, which Algorithm 2 releases, is the whole space: inconsistent. That is what
``published`` does, and ``largest``, the tightened release with that rule. ``stable-span`` releases the largest
*consistent* span that passes, and ``told`` knows the share. All need right equations that wrong ones do not use up:
share (d + 1) < 1.

    python -m tests.benchmarks.linear_algebra.planted [--sizes 2000 20000] [--fields QQ 2 7 256]
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from itertools import product
from typing import Any

import numpy as np

from dpmodel.as_printed.stable_span import STABLE_SPAN_AS_PRINTED
from dpmodel.contract import Options
from dpmodel.errors import NotPrivateWarning
from dpmodel.exact.fields import GF, QQ
from dpmodel.exact.model import VectorTask
from dpmodel.exact.partition import stable_partition
from dpmodel.exact.stable_span import STABLE_SPAN
from dpmodel.exact.subspaces import Basis
from dpmodel.privacy import SeededSource
from tests.benchmarks.linear_algebra.data import Planted, partitioned_once, planted, vectors
from tests.benchmarks.measuring import Expectations, Table, header, parser, short

# What is shown -> (mechanism, task, whether it is told the share)
RELEASES: dict[str, tuple[Any, VectorTask, bool]] = {
    "published": (STABLE_SPAN_AS_PRINTED, "equations", False),
    "largest": (STABLE_SPAN, "span", False),
    "stable-span": (STABLE_SPAN, "equations", False),
    "told": (STABLE_SPAN, "equations", True),
}


def judged(system: Planted, basis: Basis) -> str:
    d = system.x.size
    if d in basis.pivots:
        return "inconsistent"
    if basis.dimension < d:
        return "less"
    side = -system.x if basis.field.order is None else basis.field.subtract(np.zeros_like(system.x), system.x)
    return "recovered" if bool(np.all(basis.rows[:, d] == side)) else "wrong"


def cell(table: Table, field: Any, d: int, share: float, m: int, settings: Any) -> dict[str, tuple[float, bool]]:
    """By release: how often it recovers x, and whether its forecast says anything."""
    systems = [planted(field, d, m, share, 1000 * d + number) for number in range(settings.instances)]
    options = Options(settings.epsilon, settings.delta, settings.beta)
    seen: dict[str, Counter[str]] = {name: Counter() for name in RELEASES}
    told: dict[str, Any] = {}
    sets = stable_partition(field, systems[0].rows).counts
    for number, system in enumerate(systems):
        with partitioned_once():
            for name in settings.releases:
                mechanism, task, knows = RELEASES[name]
                model = vectors(field, system.rows, task, corrupted=share if knows else None)
                if name not in told:
                    told[name] = mechanism.forecast(model, options)
                for repeat in range(settings.repeats):
                    found = mechanism.run(model, options, SeededSource(100 * number + repeat))
                    seen[name][judged(system, found.answer)] += 1
    runs = settings.instances * settings.repeats
    shown = []
    for name in RELEASES:
        if name not in settings.releases:
            shown.append("-")
            continue
        counts, needed = seen[name], short(told[name].error.needed)
        others = "".join(f" {what[0]}{counts[what]}" for what in ("inconsistent", "less", "wrong") if counts[what])
        shown.append(f"{counts['recovered']}{others}; " + (f"({needed})" if told[name].vacuous else needed))
    table.row(field.name, d, f"{share:.0%}", m, systems[0].wrong, f"{sets[d + 1]} + {sets[d]}", *shown)
    return {name: (seen[name]["recovered"] / runs, not told[name].vacuous) for name in settings.releases}


def main() -> int:
    arguments = parser(
        __doc__,
        dimensions=[5, 10, 20, 50],
        shares=[0.01, 0.02, 0.05],
        sizes=[2000, 20000],
        instances=4,
        repeats=5,
        epsilon=1.0,
        delta=1e-6,
        beta=0.05,
    )
    arguments.add_argument("--fields", nargs="+", default=["QQ", "2", "7", "256"], help="QQ or the order of a field")
    arguments.add_argument("--releases", nargs="+", choices=list(RELEASES), default=list(RELEASES))
    settings = arguments.parse_args()
    warnings.simplefilter("ignore", NotPrivateWarning)
    header(("dpmodel", "python-flint", "numpy"))
    expectations = Expectations()
    table = Table(
        ("field", 7), ("d", 2), ("share", 5), ("m", 6), ("wrong", 5), ("sets", 11), ("published", 20), ("largest", 20),
        ("stable-span", 20), ("told", 16),
    )  # fmt: skip
    kept: dict[str, list[str]] = {name: [] for name in settings.releases if RELEASES[name][2]}
    broken: dict[str, list[str]] = {name: [] for name in kept}
    for text in settings.fields:
        field = QQ if text == "QQ" else GF(int(text))
        for d, share, m in product(settings.dimensions, settings.shares, settings.sizes):
            rates = cell(table, field, d, share, m, settings)
            for name in kept:
                rate, promised = rates[name]
                if promised:
                    where = kept if rate >= 1 - 2 * settings.beta else broken
                    where[name].append(f"{field.name} d={d} {share:.0%} m={m}: {rate:.0%}")
    for name in kept:
        words = f"{name}: recovers x at least {1 - 2 * settings.beta:.0%} of the time in {len(kept[name])} cells"
        expectations.expect(
            not broken[name], f"{words}, all with a forecast that is not vacuous; except {broken[name] or 'none'}"
        )
    return expectations.close()


if __name__ == "__main__":
    sys.exit(main())
