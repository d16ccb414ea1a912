"""What ordinary models cost under each treatment of their private rows, and how many of the true rows are short.

Models: of ``tests.benchmarks.regret.models``, with the price of a unit short that each brings. Cost: what the release
costs at the true numbers, shortage paid for, over the least such cost, in percent of it. Means over seeds 0 to
``--runs``; data are drawn from seed 0. "priced" tells the models' prices to the plan; "priced by
itself" does not.

    python -m tests.benchmarks.programs.treatments [--size medium] [--runs 5] [--models transport flow]
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

import dpmodel as dpm
from tests.benchmarks.measuring import Table, header, parser
from tests.benchmarks.regret.models import MODELS, Case
from tests.benchmarks.regret.programs import DELTA, treatments

SHOWN = ("transport", "flow", "storage", "inventory", "beds", "facility", "staffing")


class Told(NamedTuple):
    """``mechanism`` : of the last run. Means: ``cost`` beyond the least, over it; ``short`` over the numbers of the
    private rows; ``rows`` : share of them that are short."""

    mechanism: str
    cost: float
    short: float
    rows: float


def measured(case: Case, seeds: Iterable[int], epsilon: float = 1.0, **how: Any) -> Told:
    """What releases of ``case`` cost and are short by."""
    found = []
    for seed in seeds:
        case.problem.solve(epsilon, DELTA, rng=seed, **how)
        short = case.short()
        found.append((case.cost() / case.best - 1, short.sum() / case.size, (short > 1e-6).mean()))
    return Told(case.problem.release.mechanism, *np.mean(found, axis=0).tolist())  # type: ignore[union-attr]


def cell(case: Case, budgets: Sequence[float], runs: int, feasibility: Any) -> tuple[str, str]:
    """Costs at the budgets and rows short, in percent; why not, where the treatment is refused."""
    try:
        told = [measured(case, range(runs), epsilon, feasibility=feasibility) for epsilon in budgets]
    except dpm.errors.DPModelError:
        return "refused", "-"
    return "/".join(f"{100 * each.cost:.3g}" for each in told), "/".join(f"{100 * each.rows:.0f}" for each in told)


def main() -> int:
    cli = parser(__doc__, models=list(SHOWN), size="medium", runs=5, budgets=[0.5, 1.0, 2.0])
    given = cli.parse_args()
    warnings.simplefilter("ignore")
    header()
    cases = {name: MODELS[name](0, given.size) for name in given.models}
    names = list(dict.fromkeys(name for case in cases.values() for name in treatments(case)))
    rows = []
    print(f"cost over the least, in percent, at epsilon {given.budgets}")
    table = Table(("model", 16), *((name, 16) for name in names))
    for name, case in cases.items():
        found = [cell(case, given.budgets, given.runs, treatments(case).get(each, "none")) for each in names]
        table.row(name, *(cost for cost, _ in found))
        rows.append((name, *(short for _, short in found)))
    print("\nrows short, in percent")
    table = Table(("model", 16), *((name, 16) for name in names))
    for row in rows:
        table.row(*row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
