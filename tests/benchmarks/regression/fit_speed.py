"""Whole private fits beside scikit-learn's, and plans of wide regressions beside a pass over their rows.

``python -m tests.benchmarks.regression.fit_speed``, about 500 MB.

First table: ``dpmodel.learn`` on 100,000 x 50 at epsilon 1, delta 1e-6, and scikit-learn without privacy, interleaved.
``ratio`` is the median of whole fits over scikit-learn's beside them; next to it the same of the plan and of all else.
Every fit leaves out one row more, so that no plan of the one before is found again. ``--cpu`` : seconds of this process
and not of the clock, which other work on the machine stretches (with one thread they are the same).

Second table: a plan that compares all mechanisms, 2,000 x 5,000, in passes (``X'(Xw)``) over such rows.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import cvxpy as cp
import numpy as np
from sklearn.linear_model import Lasso, LogisticRegression, Ridge

import dpmodel as dpm
from dpmodel.learn import PrivateLasso, PrivateLogisticRegression, PrivateRidge
from dpmodel.solve import execute as conductor
from tests.benchmarks.measuring import Expectations, Table, header, parser

DELTA = 1e-6
WANTED = {"lasso": 10, "ridge": 10, "logistic": 4}
LIMIT = 0.3  # seconds of a plan


CLOCKS: dict[bool, Callable[[], float]] = {False: time.perf_counter, True: time.process_time}
clock = CLOCKS[False]


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = clock()
    found = work()
    return clock() - start, found


@contextmanager
def planning() -> Iterator[list[float]]:
    """Seconds of the plans that are made meanwhile."""
    spent, make_plan = list[float](), conductor.make_plan

    def timed_plan(*args: Any, **named: Any) -> Any:
        seconds, plan = timed(lambda: make_plan(*args, **named))
        spent.append(seconds)
        return plan

    conductor.make_plan = timed_plan
    try:
        yield spent
    finally:
        conductor.make_plan = make_plan


def fits(options: Any, expected: Expectations) -> None:
    n, p = options.rows, options.columns
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, p))
    z = X[:, :10] @ np.linspace(-1, 1, 10)
    y, signs = np.clip(z + 0.5 * rng.normal(size=n), -4, 4), np.where(z + rng.logistic(size=n) > 0, 1, 0)
    asked: dict[str, Any] = {"epsilon": 1.0, "delta": DELTA, "bounds": (-1, 1)}
    pairs: dict[str, tuple[Any, Any, Any]] = {
        "lasso": (lambda: PrivateLasso(label_bounds=(-4, 4), **asked), lambda: Lasso(alpha=1e-3), y),
        "ridge": (lambda: PrivateRidge(label_bounds=(-4, 4), **asked), Ridge, y),
        "logistic": (lambda: PrivateLogisticRegression(classes=(0, 1), **asked), LogisticRegression, signs),
    }
    names = (("fit", 9), ("mechanism", 22), ("scikit-learn, s", 15), ("ratio", 6), ("plan", 6), ("rest", 6))
    table = Table(*names, ("score", 6), ("not private", 11))
    for name, (ours, theirs, labels) in pairs.items():
        whole, plans, peers = list[float](), list[float](), list[float]()
        for k in range(options.repeats):
            with planning() as spent:
                seconds, fitted = timed(partial(ours().fit, X[: n - k], labels[: n - k]))
            whole.append(seconds)
            plans.append(sum(spent))
            seconds, plain = timed(partial(theirs().fit, X, labels))
            peers.append(seconds)
        share = np.array([whole, plans, np.subtract(whole, plans)]) / peers  # of neighbouring runs
        peer, ratios = float(np.median(peers)), np.median(share, axis=1).tolist()
        scores = fitted.score(X, labels), plain.score(X, labels)
        cells = f"{peer:.3f}", *(f"{each:.1f}" for each in ratios), *(f"{each:.4f}" for each in scores)
        table.row(name, fitted.release_.mechanism, *cells)
        expected.expect(
            ratios[0] <= WANTED[name], f"{name}: {ratios[0]:.1f} fits of scikit-learn, {WANTED[name]} wanted"
        )


def plans(options: Any, expected: Expectations) -> None:
    n, p = options.plan_rows, options.plan_columns
    X, w = np.ones((n, p)), np.ones(p)
    one_pass = min(timed(lambda: X.T @ (X @ w))[0] for _ in range(5))
    table = Table(("plan", 22), ("chosen", 22), ("seconds", 7), ("passes", 6))
    kinds: dict[str, tuple[Any, Any]] = {
        "lasso": (lambda z, y: cp.square(z - y), lambda w: [cp.norm1(w) <= 1]),
        "logistic, no set": (lambda z, y: cp.logistic(-cp.multiply(y, z)), lambda w: []),
        "absolute, 2-norm ball": (lambda z, y: cp.abs(z - y), lambda w: [cp.norm(w) <= 1]),
    }
    for kind, (loss, within) in kinds.items():
        found = list[float]()
        for k in range(options.repeats):
            rows = n - k
            people = dpm.Records("people")
            A = dpm.Private(X[:rows], name="X", unit="row", bounds=[-1, 1], records=people)
            b = dpm.Private(np.ones(rows), name="y", unit="entry", bounds=[-1, 1], records=people)
            x = cp.Variable(p, name="w")
            problem = dpm.Problem(cp.Minimize(cp.sum(loss(A @ x, b)) / rows), within(x))
            problem.classify()  # reads the model: a plan is what comes above that
            seconds, plan = timed(partial(problem.plan, 1.0, DELTA))
            found.append(seconds)
        table.row(kind, plan.chosen.mechanism, f"{min(found):.2f}", f"{min(found) / one_pass:.0f}")
        expected.expect(min(found) <= LIMIT, f"plan, {kind}: {min(found):.2f} s, {LIMIT} wanted")


def main() -> int:
    made = parser(__doc__, repeats=3, rows=100_000, columns=50, plan_rows=2_000, plan_columns=5_000, cpu=False)
    global clock
    options = made.parse_args()
    clock = CLOCKS[options.cpu]
    warnings.simplefilter("ignore")
    header()
    expected = Expectations()
    fits(options, expected)
    print()
    plans(options, expected)
    return expected.close()


if __name__ == "__main__":
    sys.exit(main())
