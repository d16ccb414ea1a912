"""Points needed for a point in their convex hull: what the plans say, and the least number that does in fact.

Data: "spread", uniform on the grid; "corner", uniform in the corner box of a tenth of the width (at least three
levels), where the first centres of pin-hull lie outside. Success is decided in rationals. Measured: the least n on a
ladder of steps of a quarter, found by doubling and bisection, with at least 95 % successes among the trials.

    python -m tests.benchmarks.linear_algebra.point_in_hull --trials 20
    python -m tests.benchmarks.linear_algebra.point_in_hull --trials 20 --mechanisms tukey-depth --dimensions 1 2
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from dpmodel.contract import Options
from dpmodel.errors import NotPrivateWarning
from dpmodel.exact.model import PrivatePoints
from dpmodel.exact.pin_hull import PIN_HULL
from dpmodel.exact.tukey_depth import TUKEY_DEPTH
from dpmodel.privacy import SeededSource
from tests.benchmarks.measuring import Expectations, Table, header, parser, short
from tests.support.hull_membership import in_hull

MECHANISMS: dict[str, Any] = {"tukey-depth": TUKEY_DEPTH, "pin-hull": PIN_HULL}
# expected=150: tukey-depth in three dimensions takes all points, as with few expected.
EXPECTED = 150


def drawn(data: str, d: int, levels: int, n: int, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, levels if data == "spread" else max(3, levels // 10), size=(n, d))


def model_of(points: np.ndarray, d: int, levels: int) -> PrivatePoints:
    return PrivatePoints((Fraction(0),) * d, Fraction(1), (levels,) * d, "add-remove", None, EXPECTED, lambda: points)


def successes(mechanism: Any, data: str, d: int, levels: int, n: int, trials: int, options: Options) -> int:
    """How many trials give a point of the hull; stops when 95 % are out of reach."""
    good, allowed = 0, trials - int(np.ceil(0.95 * trials))
    for trial in range(trials):
        points = drawn(data, d, levels, n, np.random.default_rng([trial, n]))
        found = mechanism.run(model_of(points, d, levels), options, SeededSource(trial))
        good += found.status == "found" and in_hull(points, found.answer)
        if trial + 1 - good > allowed:
            break
    return good


def least(enough: Callable[[int], bool], start: int, most: int) -> int | None:
    """Least rung of the ladder from which on it is enough, by doubling and bisection."""
    low, high = 0, start
    while not enough(high):
        low, high = high, 2 * high
        if high > most:
            return None
    while high > 1.25 * low + 1 and high - low > 1:
        middle = round((low * high) ** 0.5) if low else high // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def main() -> int:
    settings = parser(
        __doc__,
        trials=20,
        epsilon=1.0,
        delta=1e-6,
        dimensions=[1, 2, 3],
        levels=[11, 101, 1001],
        mechanisms=list(MECHANISMS),
        data=["spread", "corner"],
        most=200_000,
        no_measuring=False,
    )
    asked = settings.parse_args()
    header(("dpmodel", "numpy", "scipy", "highspy", "python-flint"))
    warnings.simplefilter("ignore", NotPrivateWarning)
    options, expectations = Options(asked.epsilon, asked.delta), Expectations()
    columns = [("mechanism", 12), ("d", 2), ("levels", 6), ("needed, by the plan", 10)]
    if not asked.no_measuring:
        columns += [(f"least n, {data}", 10) for data in asked.data] + [("seconds of a run", 6)]
    rows = Table(*columns)
    for name in asked.mechanisms:
        mechanism = MECHANISMS[name]
        for d in asked.dimensions:
            for levels in asked.levels:
                model = model_of(np.zeros((0, d), dtype=np.int64), d, levels)
                verdict = mechanism.eligible(model, options)
                if not verdict.eligible:
                    rows.row(name, d, levels, verdict.reason)
                    continue
                needed = mechanism.forecast(model, options).error.needed
                line: list[Any] = [name, d, levels, short(needed, 4)]
                if not asked.no_measuring:
                    for data in asked.data:
                        n = least(
                            lambda n, m=mechanism, c=data, d=d, k=levels: (
                                successes(m, c, d, k, n, asked.trials, options) >= 0.95 * asked.trials
                            ),
                            4 if name == "tukey-depth" else 512,
                            asked.most,
                        )
                        line.append(str(n) if n is not None else f"> {asked.most}")
                        if n is not None:
                            expectations.expect(n <= needed, f"{name}, d={d}, {levels} levels, {data}: {n} <= needed")
                    begun = time.perf_counter()
                    successes(mechanism, asked.data[-1], d, levels, n or asked.most, 1, options)
                    line.append(short(time.perf_counter() - begun))
                rows.row(*line)
    return expectations.close()


if __name__ == "__main__":
    raise SystemExit(main())
