"""How share of the optimum, time and memory grow with the number of people.

Charging, 24 hours (and ``--kinds``). For each of ``--people``, in a process of its own: construction of the CVXPY model
(values are sealed), plan, solve (epsilon 1, delta 1e-6, beta .005, private noise), and the delivery of all shares;
processor seconds of the first three; peak resident memory beyond that of a process that solves a small one and makes
the same data. Beside it, in another process, the dual of the problem without privacy (with up to ``--optimum`` people;
beyond that the optimum is taken to be in proportion). ``--parquet``: charging again, from a file that is read anew in
every pass.
Expectations
    From 10,000 people on, time is at most linear (exponent 1.1 between 10,000 and the most), and a million people are
    planned and solved within two minutes.

    python -m tests.benchmarks.joint.growth [--people 1000 10000 100000 1000000] [--parquet]
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd

import dpmodel as dpm
from tests.benchmarks.joint.instances import Instance, instance
from tests.benchmarks.joint.optimum import handed, optimum
from tests.benchmarks.measuring import Expectations, Table, header, parser, short
from tests.benchmarks.programs.compile_cost import peak_of_this_process

PARQUET = "parquet"
PHASES = ("construct", "plan", "solve", "deliver")
_SMALL = 200


def from_file(of: Instance, path: Path) -> dpm.Problem:
    """The model of charging over a file of its numbers."""
    hours = [f"hour {h}" for h in range(of.capacity.size)]
    columns = dict(zip(hours, of.private["worth"].T, strict=True))
    columns |= {name: of.private[name] for name in ("power", "hours")}
    pd.DataFrame(columns).to_parquet(path)
    bounds = dict.fromkeys(hours, (0, 3)) | {"power": (0.5, 1), "hours": (3, 8)}
    data = dpm.Dataset.scan(path, bounds=bounds)
    worth = data.rows(hours, in_blocks=True, name="worth")
    power, wish = (data.rows(name, in_blocks=True, name=name) for name in ("power", "hours"))
    charge = dpm.Shares(worth.shape, records=data.records, nonneg=True, name="charge")
    rows = [power @ charge <= of.capacity, charge <= 1, cp.sum(charge, axis=1) <= wish]
    return dpm.Problem(cp.Maximize(cp.sum(cp.multiply(worth, charge))), rows)


def ours(kind: str, people: int) -> dict[str, Any]:
    """Seconds of each phase, peak memory, and what was handed out."""
    file = kind == PARQUET
    kind = "charging" if file else kind
    warm = instance(kind, _SMALL).problem()
    warm.solve(1.0, 1e-6, release="joint")
    of, folder = instance(kind, people), tempfile.TemporaryDirectory()
    before, marks, used = peak_of_this_process(), [perf_counter()], process_time()
    problem = from_file(of, Path(folder.name) / "people.parquet") if file else of.problem()
    marks.append(perf_counter())
    plan = problem.plan(1.0, 1e-6, beta=0.005, release="joint")
    marks.append(perf_counter())
    problem.solve(1.0, 1e-6, beta=0.005, release="joint")
    marks.append(perf_counter())
    used = process_time() - used
    problem.release.deliver(lambda person, share: None)
    marks.append(perf_counter())
    memory = peak_of_this_process() - before
    found = handed(of, problem.release.rule.prices)
    phases = dict(zip(PHASES, np.diff(marks).tolist(), strict=True))
    forecast = float(plan.chosen.forecast.error.share)
    handed_out = {"value": found.value, "over": found.over(of.capacity)}
    return {**phases, **handed_out, "processor": used, "memory": memory, "forecast": forecast}


def best(kind: str, people: int) -> dict[str, Any]:
    of, start = instance("charging" if kind == PARQUET else kind, people), perf_counter()
    return {"value": optimum(of).value, "seconds": perf_counter() - start}


def alone(what: str, kind: str, people: int) -> dict[str, Any]:
    """In a process of its own."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.benchmarks.joint.growth", "--one", what, kind, str(people)]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def main() -> int:
    if sys.argv[1:2] == ["--one"]:
        warnings.filterwarnings("ignore")
        print(json.dumps({"ours": ours, "best": best}[sys.argv[2]](sys.argv[3], int(sys.argv[4]))))
        return 0
    arguments = parser(
        __doc__, people=[1000, 10_000, 100_000, 1_000_000], kinds=["charging"], optimum=100_000, parquet=False
    ).parse_args()
    header()
    met = Expectations()
    columns = [("kind", 12), ("people", 8), ("share", 6), ("forecast", 8), ("over", 4)]
    table = Table(
        *columns,
        *((f"{phase}, s", 12) for phase in PHASES),
        ("processor, s", 12),
        ("memory, MB", 10),
        ("optimum, s", 10),
    )
    for kind in [*arguments.kinds, *([PARQUET] if arguments.parquet else [])]:
        total, each = {}, math.nan
        for people in arguments.people:
            reference = alone("best", kind, people) if people <= arguments.optimum else None
            each = reference["value"] / people if reference else each
            found = alone("ours", kind, people)
            share = found["value"] / (each * people)
            total[people] = found["plan"] + found["solve"]
            seconds = [short(found[phase]) for phase in (*PHASES, "processor")]
            memory, searched = f"{found['memory'] / 2**20:.0f}", short(reference["seconds"]) if reference else "-"
            table.row(
                kind, people, f"{share:.3f}", f"{found['forecast']:.3f}", found["over"], *seconds, memory, searched
            )
            met.expect(found["over"] == 0, f"{kind}, {people}: nothing over its capacity")
        most = max(total)
        if most > 10_000 and 10_000 in total:
            exponent = float(np.log(total[most] / total[10_000]) / np.log(most / 10_000))
            met.expect(exponent <= 1.1, f"{kind}: time grows with the power {exponent:.2f} of people")
        if 1_000_000 in total:
            met.expect(total[1_000_000] <= 120, f"{kind}: a million people in {total[1_000_000]:.0f} s")
    return met.close()


if __name__ == "__main__":
    sys.exit(main())
