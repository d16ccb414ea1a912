"""What each shortcut buys: the median ratio of private solves to plain CVXPY on the zoo, with one of them switched off.

A shortcut that buys less than .2 of the median goes. ``first`` and ``same`` as in ``programs.zoo_speed``.

    python -m tests.benchmarks.ablation --sizes medium --repetitions 3
"""

from __future__ import annotations

import sys
import warnings
from unittest import mock

import numpy as np

from tests.benchmarks.measuring import Table, header, parser
from tests.benchmarks.programs.zoo_speed import measured
from tests.zoo import cones, finance, flows, health, places, production, systems, tables  # noqa: F401
from tests.zoo.registry import MODELS, SIZES

OFF = {
    "nothing": [],
    "direct interfaces of solvers": [mock.patch("dpmodel.numerics.solvers._straight", lambda *given: None)],
    "bounds in the planner": [mock.patch("dpmodel.solve.planner._behind", lambda *given: "")],
    "no presolve of small programs": [mock.patch.dict("dpmodel.numerics.solvers.CONTINUOUS", clear=True)],
}


def main() -> int:
    cli = parser(__doc__, repetitions=3, epsilon=1.0, delta=1e-6)
    cli.add_argument("--sizes", nargs="+", default=["medium"], choices=SIZES)
    cli.add_argument("--only", nargs="+", default=[], help="names of models")
    given = cli.parse_args()
    header()
    warnings.simplefilter("ignore")
    table = Table(("switched off", 32), ("first", 6), ("same", 6), ("models", 6))
    chosen = [each for each in MODELS if each.family != "pipelines" and (not given.only or each.name in given.only)]
    measured(MODELS[0], SIZES[0], given)  # imports
    for name, patches in OFF.items():
        for patch in patches:
            patch.start()
        found = [
            measured(each, size, given) for each in chosen for size in given.sizes if size in SIZES[: len(each.sizes)]
        ]
        for patch in patches:
            patch.stop()
        good = [each for each in found if not isinstance(each, str)]
        medians = (float(np.median([each[kind] / each["plain"] for each in good])) for kind in ("first", "same"))
        table.row(name, *(f"{median:.2f}" for median in medians), len(good))
    return 0


if __name__ == "__main__":
    sys.exit(main())
