"""Half-spaces that must be right about nearly all records exactly: rows violated by every mechanism of the cell.

FOLDER holds ``agaricus_train.npz`` and ``agaricus_test.npz`` (mushrooms). Iris (setosa or not; in scaled and in whole
millimetres, for the mechanism of integers) and breast cancer come with scikit-learn. Every record is one row
``label * (features, 1) w >= 0``; ``violated`` counts those below zero, all rows where the mechanism found nothing. The
public margin is ``--share`` of the true one, which a linear program computes from the data: it stands for a promise
from elsewhere. Mechanisms of integers get ``>= 1`` instead of ``>= 0`` (the same half-spaces). ``*`` marks what
the plan picks; ``forecast`` is its bound, ``vacuous`` where it says nothing; mechanisms that are not eligible are named
once per data set.

Yardsticks: the better of "always yes" and "always no" (no data needed beyond one bit), the half-space of widest margin
without privacy, and diffprivlib's LogisticRegression (pure epsilon, replace-one, rows of unit norm, no intercept of its
own, the C that is best in hindsight at each epsilon), run in the interpreter ``--peer`` where diffprivlib imports.

    python -m tests.benchmarks.linear_algebra.half_spaces FOLDER [--peer PYTHON] [--repeats 10]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from dpmodel.contract import YES, Options
from dpmodel.errors import DPModelError, NotPrivateWarning
from dpmodel.exact.model import PrivateInequalities
from dpmodel.privacy import SeededSource
from dpmodel.solve.planner import make_plan
from dpmodel.solve.registry import KINDS
from tests.benchmarks.linear_algebra.data import HalfSpace, half_space
from tests.benchmarks.measuring import Expectations, Table, data_path, header, parser, quartiles, short, spread

SETS = ("mushrooms", "iris", "iris in mm", "breast cancer")
PEER = Path(__file__).with_name("peer.py")


def peer(data: HalfSpace, settings: Any) -> dict[float, tuple[float, list[int]]]:
    """epsilon -> (C, violated rows), or nothing where diffprivlib does not import."""
    if settings.peer is None:
        return {}
    rows = data.signed * data.labels[:, None] / np.linalg.norm(data.signed, axis=1, keepdims=True)
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "given.npz"
        np.savez(given, rows=rows, labels=data.labels, epsilons=settings.epsilons, runs=settings.repeats)
        done = subprocess.run([settings.peer, str(PEER), str(given)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return {}
    found = (json.loads(line) for line in done.stdout.splitlines())
    return {line["epsilon"]: (line["C"], line["violated"]) for line in found}


def yardsticks(table: Table, data: HalfSpace, settings: Any) -> None:
    table.row(data.name, "-", "-", "always yes or no", min((data.labels > 0).sum(), (data.labels < 0).sum()))
    table.row(data.name, "-", "-", "widest, not private", data.wrong(data.widest))
    others = peer(data, settings)
    for epsilon in settings.epsilons:
        if epsilon in others:
            size, violated = others[epsilon]
            table.row(data.name, "replace-one", f"{epsilon:g}", f"diffprivlib, C={size:g}", spread(violated, 4))
        else:
            table.row(data.name, "replace-one", f"{epsilon:g}", "diffprivlib", "not installed")


def measure(table: Table, data: HalfSpace, neighbors: str, epsilon: float, settings: Any) -> dict[str, Any]:
    """Medians of the violated rows by mechanism; "chosen": what the plan picks."""
    model, options = data.model(neighbors, settings.share), Options(epsilon, settings.delta, settings.beta)
    chosen = "none"
    try:
        chosen = make_plan(model, options, "auto").chosen.mechanism
    except DPModelError as error:
        print(f"plan: {error.what}")
    medians: dict[str, Any] = {"chosen": chosen}
    for mechanism in KINDS[PrivateInequalities].mechanisms:
        mark = "*" if mechanism.name == chosen else " "
        if settings.mechanisms and mechanism.name not in settings.mechanisms:
            continue
        head = data.name, neighbors, f"{epsilon:g}", mark + mechanism.name
        posed, verdict = model, mechanism.eligible(model, options)
        if not verdict.eligible and data.largest is not None and mechanism.eligible(data.offset(neighbors), options)[0]:
            posed, verdict = data.offset(neighbors), YES
        if not verdict.eligible:
            if (neighbors, epsilon) == (settings.neighbors[0], settings.epsilons[0]):
                table.row(*head, "not eligible", "-", "-", verdict.reason)
            continue
        forecast = mechanism.forecast(posed, options)
        told = short(forecast.error.missed, 4) + (" vacuous" if forecast.vacuous else "")
        violated, seconds, nothing = [], [], 0
        for number in range(settings.repeats):
            start = time.perf_counter()
            found = mechanism.run(posed, options, SeededSource(number))
            seconds.append(time.perf_counter() - start)
            violated.append(data.wrong(found.answer))
            nothing += found.status == "nothing"
            if sum(seconds) > settings.most_seconds:
                break
        above = sum(count > forecast.error.missed for count in violated)
        notes = f"{len(seconds)} runs, {above} above the forecast, most {max(violated)}"
        notes += f", {nothing} found nothing" if nothing else ""
        notes += "" if posed is model else ", posed as >= 1"
        table.row(*head, spread(violated, 4), told, short(float(np.median(seconds)), 2), notes)
        medians[mechanism.name] = quartiles(violated)[0]
        if mechanism.name == chosen:
            medians["forecast"] = forecast.error.missed
    return medians


def main() -> int:
    arguments = parser(
        __doc__, repeats=10, epsilons=[1.0, 2.0, 4.0], delta=1e-6, beta=0.05, neighbors=["add-remove", "replace-one"]
    )
    arguments.add_argument("folder", type=data_path("agaricus_train.npz"))
    arguments.add_argument("--share", type=float, default=0.5, help="public margin over the true one")
    arguments.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    arguments.add_argument("--mechanisms", nargs="+", default=[])
    arguments.add_argument("--most-seconds", type=float, default=60.0, help="of the runs of one line")
    arguments.add_argument("--peer", help="interpreter in which diffprivlib imports")
    settings = arguments.parse_args()
    warnings.simplefilter("ignore", NotPrivateWarning)
    header(("dpmodel", "numpy", "scipy", "scikit-learn"))
    expectations = Expectations()
    for name in settings.sets:
        data = half_space(name, settings.folder)
        n, d = data.signed.shape
        margin = f"margin {data.margin:.4g}, promised {settings.share * data.margin:.4g}"
        print(f"{name}: {n} rows, {d} variables with the intercept, {margin}\n")
        columns = ("data", 13), ("neighbors", 11), ("epsilon", 7), ("mechanism", 22), ("violated", 22)
        table = Table(*columns, ("forecast", 14), ("seconds", 8), ("notes", 20))
        yardsticks(table, data, settings)
        trivial = min((data.labels > 0).sum(), (data.labels < 0).sum())
        for neighbors in settings.neighbors:
            for epsilon in settings.epsilons:
                medians = measure(table, data, neighbors, epsilon, settings)
                chosen, told = medians.pop("chosen"), medians.pop("forecast", np.inf)
                if chosen in medians:
                    words = f"{name}, {neighbors}, epsilon {epsilon:g}: {chosen} violates {medians[chosen]:g}"
                    expectations.expect(medians[chosen] <= told, f"{words}, {told:.4g} forecast")
                if name == "mushrooms" and chosen in medians:
                    expectations.expect(medians[chosen] < trivial, f"{words}, fewer than {trivial} without data")
                    best = min(medians.values())
                    expectations.expect(medians[chosen] <= 2 * best + 10, f"{words}, the best mechanism {best:g}")
        print()
    return expectations.close()


if __name__ == "__main__":
    sys.exit(main())
