"""Print the table of exact audits of mechanisms of many steps: run this file.

What the worst pair of neighbours of each mechanism's own test costs, either as the least epsilon for the delta claimed,
or as a share of the budget (epsilon when pure, rho otherwise) that the costliest transcript uses. Twins are broken on
purpose and must come out above the claim.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
for _path in (
    HERE,
    HERE.parent / "programs",
    HERE.parent / "support",
    HERE.parent,
    HERE.parent / "compile",
    HERE.parent.parent,
):
    if str(_path) not in sys.path:
        sys.path.insert(0, str(_path))

import numpy as np  # noqa: E402
import pytest  # noqa: E402
import test_dense_multiplicative_weights as dense  # noqa: E402
import test_matrix_multiplicative_weights as matrix  # noqa: E402
import test_noisy_hinge_descent as hinge  # noqa: E402
import test_point_selection as points  # noqa: E402
import test_scalar_multiplicative_weights as scalar  # noqa: E402
from scipy.optimize import brentq  # noqa: E402
from scipy.stats import norm  # noqa: E402

from dpmodel.as_printed.algorithm_2 import ALGORITHM_2  # noqa: E402
from dpmodel.as_printed.algorithms_4_to_6 import ALGORITHM_4  # noqa: E402
from dpmodel.privacy.spend import Spend  # noqa: E402
from dpmodel.programs import hinge as hinge_forecast  # noqa: E402
from dpmodel.programs import weights as primal_weights  # noqa: E402
from dpmodel.programs.hinge import NOISY_HINGE_DESCENT  # noqa: E402
from dpmodel.programs.weights import MULTIPLICATIVE_WEIGHTS  # noqa: E402

EPSILON, SHARE = "epsilon", "share of the budget"
Row = tuple[str, ...]


def exact() -> Iterator[Row]:
    """mechanism, epsilon, delta, measure, found, and the same for every broken twin."""
    for mechanism, epsilon, delta, measure, twins, found in _exact():
        honest = f"{found(''):.3f}"
        broken = "; ".join(f"{twin} {found(twin):.3f}" for twin in twins)
        yield mechanism, f"{epsilon:g}", f"{delta:g}", measure, honest, broken or "-"


def _exact() -> Iterator[tuple[str, float, float, str, tuple[str, ...], Callable[[str], float]]]:
    for delta in (0.0, 1e-3):
        twins = ("noise halved", "steps forgotten")
        yield "noisy-hinge-descent", 1, delta, EPSILON, twins, lambda twin, delta=delta: descent(twin, delta)
    twins = ("range halved", "composition forgotten")
    yield "dense-multiplicative-weights", 2, 0, EPSILON, twins, lambda twin: selections(twin, 3, 2.0, 0.0)
    yield "dense-multiplicative-weights", 1, 1e-6, EPSILON, twins, lambda twin: selections(twin, 6, 1.0, 1e-6)
    yield "algorithm-2", 1, 1e-3, EPSILON, (), lambda twin: dense.worst_pair(24, 5, 0.0, 1.0, 1e-3, ALGORITHM_2)
    yield "point-exponential", 1, 0, EPSILON, ("range halved",), one_choice
    for delta in (0.0, 1e-3):
        twins = tuple(name for name in scalar.TWINS if name)
        yield "multiplicative-weights", 1, delta, EPSILON, twins, lambda twin, delta=delta: scalar_game(twin, delta)
    yield "algorithm-4", 1, 1e-3, EPSILON, (), lambda twin: published_game()
    for unit in ("row", "column"):
        for delta in (0.0, 1e-6):
            twins = tuple(name for name in matrix.TWINS if name) if unit == "row" else ()
            found = lambda twin, unit=unit, delta=delta: matrix_game(unit, delta, twin)  # noqa: E731
            yield f"noisy-multiplicative-weights, {unit}", 1, delta, SHARE, twins, found


def descent(twin: str, delta: float) -> float:
    """The sums of all steps are numbers with independent noise: their distribution has a closed form."""
    task, _, thetas = hinge.worst_pair("replace-one")
    task = replace(task, spend=Spend.of(1.0, delta, gaussian_only=True), delta=delta)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hinge_forecast, "_MOST_STEPS", 2)
        promise = NOISY_HINGE_DESCENT.promise(task)
    one, two = (hinge.transcript(task, promise, theta, 0) for theta in thetas)
    gap, scale = np.concatenate(one.sums) - np.concatenate(two.sums), one.scales[0]
    steps = len(one.sums)
    scale /= {"noise halved": 2.0, "steps forgotten": steps if delta == 0 else math.sqrt(steps)}.get(twin, 1.0)
    return float(np.abs(gap).sum() / scale) if delta == 0 else gaussian_epsilon(np.linalg.norm(gap) / scale, delta)


def gaussian_epsilon(mu: Any, delta: float) -> float:
    """Least epsilon of Gaussian noise of one standard deviation on a difference of ``mu`` (Balle and Wang 2018, Theorem
    8)."""

    def excess(epsilon: float) -> float:
        return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)) - delta

    return float(brentq(excess, 0.0, 50.0))


def selections(twin: str, steps: int, epsilon: float, delta: float) -> float:
    return float(dense.worst_pair(24, steps, 0.0, epsilon, delta, twin=twin))


def one_choice(twin: str) -> float:
    high, low, _ = points.privacy_loss(1.0, 0.0, twin=0.5 if twin else 1.0)
    return max(high, -low)


def scalar_game(twin: str, delta: float) -> float:
    with pytest.MonkeyPatch.context() as patch:
        return scalar.spent(MULTIPLICATIVE_WEIGHTS, twin, delta, patch)


def published_game() -> float:
    """Four steps of the published epsilon each."""
    made, one, two = scalar.tiny(1.0, 1e-3, 0.0)
    promise = made.promise(ALGORITHM_4)
    each = 1.0 / math.sqrt(8 * 4 * math.log(1e3))
    promise = replace(promise, plan=replace(promise.plan, count=4, epsilon=each))
    return scalar.exact_epsilon(*scalar.distributions(made, ALGORITHM_4, promise, one, two), 1e-3)


def matrix_game(unit: str, delta: float, twin: str) -> float:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(primal_weights, "MOST_STEPS", 4)
        return matrix.cost(unit, delta, twin)


def show(table: list[Row]) -> None:
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def main() -> None:
    warnings.simplefilter("ignore")
    show([("mechanism", "epsilon", "delta", "measure", "found", "broken twins"), *exact()])


if __name__ == "__main__":
    main()
