"""The zoo's table: model, size, chosen mechanism, error, statement, seconds beside plain CVXPY; as markdown.

    python -m tests.benchmarks.programs.zoo_table --sizes small medium

Loss: true objective of the release minus that of plain CVXPY. Violation: largest violation of a true private row.
Both are medians over seeded runs on the same data; "stated" is what the release says of them (a dash: nothing is
stated; "empty": the statement says no more than is known without data). Seconds are of one
processor: the first solve with everything that is public (compile, plan), a later one, and CVXPY without privacy.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from tests.benchmarks.measuring import header, parser, short
from tests.zoo import cones, finance, flows, health, pipelines, places, production, systems  # noqa: F401
from tests.zoo.examination import Examination, examine
from tests.zoo.registry import MODELS, MODES, SIZES, Case

COLUMNS = (
    "model, variables",
    "feasibility",
    "chosen",
    "optimum",
    "loss",
    "stated",
    "violation",
    "stated",
    "seconds: first, again, CVXPY",
)


def line(case: Case, mode: str, found: Examination, seconds: float) -> tuple[str, ...]:
    name = f"{case.model.name}, {case.variables():,}"
    if not found.runs:
        return name, mode, "refused" if found.refusal else "error", *["-"] * (len(COLUMNS) - 3)
    release = found.runs[-1].release
    accuracy = release.accuracy
    forecasts = {candidate["mechanism"]: candidate["forecast"] for candidate in release.plan["candidates"]}
    empty = " (empty)" if forecasts[release.mechanism]["vacuous"] else ""
    first, again = found.runs[0].seconds, float(np.median([run.seconds for run in found.runs[1:]]))
    return (
        name,
        mode,
        release.mechanism,
        short(case.optimum, 4),
        short(float(np.median([run.loss for run in found.runs]))),
        short(accuracy.objective_alpha) + empty,
        short(float(np.median([run.violation for run in found.runs]))),
        short(accuracy.violation_alpha) + (f", all but {accuracy.slack_rows}" if accuracy.slack_rows else "") + empty,
        f"{first:.2g}, {again:.2g}, {seconds:.2g}",
    )


def main() -> int:
    arguments = parser(__doc__, epsilon=1.0, runs=5)
    arguments.add_argument("--sizes", nargs="+", default=["small"], choices=SIZES)
    arguments.add_argument("--modes", nargs="+", default=["centred"], choices=MODES)
    arguments.add_argument("--only", nargs="+", default=[], help="names of models or families")
    given = arguments.parse_args()
    unknown = set(given.only) - {model.name for model in MODELS} - {model.family for model in MODELS}
    if unknown:
        arguments.error(f"no model or family is called {', '.join(sorted(unknown))}")
    if given.runs < 2:
        arguments.error("--runs: two at least, a first and a later one")
    header()
    print("|", " | ".join(COLUMNS), "|")
    print("|" + "---|" * len(COLUMNS))
    broken = []
    for model in MODELS:
        if given.only and not {model.name, model.family} & set(given.only):
            continue
        for size in given.sizes:
            if SIZES.index(size) >= len(model.sizes):
                continue
            case = Case(model, size)
            started = time.process_time()
            assert np.isfinite(case.optimum)
            seconds = time.process_time() - started
            for mode in (mode for mode in given.modes if mode in model.modes):
                found = examine(case, mode, epsilon=given.epsilon, beta=0.05, seeds=range(given.runs))
                print("|", " | ".join(line(case, mode, found, seconds)), "|", flush=True)
                broken += [f"{case} {mode}: {what}" for what in found.broken]
    print(*broken, sep="\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
