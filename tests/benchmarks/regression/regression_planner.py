"""Private regression through ``dpmodel.Problem``: the plan's choice, every eligible mechanism beside it, and the time.

Parts (with a folder of data where one is named):

``lasso``     least squares in the 1-norm ball of radius 1, rows of +-1, ten true coefficients of .1, noise of size .1,
              labels clipped to +-1.5 (see ``lasso.py``): mean squared error of new rows, .01 with the truth and .11
              without data. ``--signal other``: 40 coefficients of random sizes and signs, 1-norm .5, noise of size .3
              (.09 with the truth), which no synthetic population of the plan resembles.
``uci``       FOLDER as in ``uci_regression.py``: cross-validated error, one plan per set and epsilon.
``classify``  FOLDER as in ``logistic.py``: accuracy and AUC of mean logistic (or hinge) loss on Adult and mushrooms, no
              penalty, no set; 80/20 split drawn anew in every repetition.
``numeric``   FOLDER as in ``logistic.py``: mean absolute and quantile loss against the best constant and no privacy.

Replace-one unless said otherwise, delta 1e-6. Regret: the choice's error over the least measured.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

import dpmodel as dpm
from tests.benchmarks.measuring import Expectations, Table, data_path, header, parser, spread
from tests.benchmarks.regression.lasso import rows_of
from tests.benchmarks.regression.logistic import NUMERIC, adult, mushrooms, numeric_set, scores
from tests.benchmarks.regression.uci_regression import baselines, folds, prepared

DELTA = 1e-6


class Asked:
    """A problem over rows that can be replaced by others of the same shape, and its plan."""

    def __init__(
        self, loss: Any, X: Any, y: np.ndarray, bounds: dict[str, Any], label: tuple[float, float], **options: Any
    ):
        records = dpm.Records("people", options.get("neighbors", "replace-one"))
        hidden: dict[str, Any] = {"positions": "private"} if sp.issparse(X) else {}
        self.X = dpm.Private(X, name="X", unit="row", records=records, **bounds, **hidden)
        self.y = dpm.Private(y, name="y", unit="entry", bounds=list(label), records=records)
        self.w = cp.Variable(X.shape[1], name="w")
        self.b = cp.Variable(name="b") if options.get("intercept") else None
        z = self.X @ self.w if self.b is None else self.X @ self.w + self.b
        within = options.get("within", lambda w: [])
        self.problem = dpm.Problem(cp.Minimize(cp.sum(loss(z, self.y)) / y.size), within(self.w))

    def plan(self, epsilon: float, published: bool = False) -> tuple[Any, float]:
        start = time.perf_counter()
        plan = self.problem.plan(epsilon, DELTA, published=published)
        return plan, time.perf_counter() - start

    def solve(self, epsilon: float, mechanism: str, seed: int) -> tuple[np.ndarray, float]:
        start = time.perf_counter()
        self.problem.solve(epsilon, DELTA, mechanism=mechanism, rng=seed)
        return np.append(self.w.value, [] if self.b is None else self.b.value), time.perf_counter() - start


def squared(z: Any, y: Any) -> Any:
    return cp.square(z - y)


def logistic(z: Any, y: Any) -> Any:
    return cp.logistic(-cp.multiply(y, z))


def hinge(z: Any, y: Any) -> Any:
    return cp.pos(1 - cp.multiply(y, z))


def quantile(tau: float) -> tuple[Any, Any]:
    """The loss in CVXPY, and its mean over residuals; absolute for the median."""
    if tau == 0.5:
        return (lambda z, y: cp.abs(z - y)), lambda r: float(np.abs(r).mean())
    pinball = lambda r: float(np.maximum(tau * r, (tau - 1) * r).mean())  # noqa: E731
    return (lambda z, y: cp.maximum(tau * (y - z), (tau - 1) * (y - z))), pinball


def eligible(plan: Any, skip: list[str]) -> list[str]:
    """The choice first, then the others by forecast."""
    names = sorted((c.forecast.error.predicted, c.mechanism) for c in plan.candidates if c.eligible)
    ordered = [plan.chosen.mechanism, *(name for _, name in names if name != plan.chosen.mechanism)]
    return [name for name in ordered if name == plan.chosen.mechanism or name not in skip]


def noted(plan: Any, name: str) -> str:
    forecast = next(c.forecast for c in plan.candidates if c.mechanism == name)
    return f"{forecast.error.predicted:.3g}{' (says nothing)' if forecast.vacuous else ''}"


def signal(p: int, kind: str) -> tuple[np.ndarray, float]:
    truth = np.zeros(p)
    if kind == "yardstick":
        truth[:10] = 0.1
        return truth, 0.1
    draw = np.random.default_rng(5).normal(size=40)
    truth[:40] = 0.5 * draw / np.abs(draw).sum()
    return truth, 0.3


def lasso(options: Any, expected: Expectations) -> None:
    table = Table(("n", 7), ("p", 5), ("mechanism", 24), ("MSE", 26), ("excess forecast", 22), ("s", 6))
    for n in options.sizes or (2_000, 20_000, 200_000):
        for p in options.columns or (50, 500, 5000):
            if n * p > 1.2e8:
                print(f"n={n} p={p}: {8e-9 * n * p:.0f} GB of rows, and a copy: not run")
                continue
            truth, noise = signal(p, options.signal)
            X, y = rows_of(n, p, truth, noise)
            y = np.clip(y, -1.5, 1.5)
            bounds, lower_bound = {"bounds": [-1, 1]}, noise**2
            asked = Asked(squared, X, y, bounds, (-1.5, 1.5), within=lambda w: [cp.norm1(w) <= 1])
            del X
            plan, seconds = asked.plan(1.0, as_printed=True)
            print(
                f"n={n} p={p}: plan {seconds:.1f} s, without data {lower_bound + float(truth @ truth):.4f}", flush=True
            )
            medians = {}
            for name in eligible(plan, options.skip):
                errors, spent = [], []
                for seed in range(options.repeats):
                    w, each = asked.solve(1.0, name, seed)
                    errors.append(lower_bound + float(((w - truth) ** 2).sum()))
                    spent.append(each)
                    if sum(spent) > options.patience:
                        break
                medians[name] = float(np.median(errors))
                told = spread(errors, 4) if len(errors) > 1 else f"{errors[0]:.4g} (one run)"
                mark = "-> " if name == plan.chosen.mechanism else "   "
                table.row(n, p, mark + name, told, noted(plan, name), f"{np.median(spent):.2g}")
            regret = medians[plan.chosen.mechanism] / min(medians.values())
            expected.expect(regret <= 1.2, f"n={n} p={p}: {plan.chosen.mechanism}, chosen / best {regret:.2f}")


def uci(options: Any, expected: Expectations) -> None:
    table = Table(
        ("set", 9),
        ("epsilon", 7),
        ("zero", 7),
        ("ridge", 7),
        ("chosen", 22),
        ("its MSE", 24),
        ("best", 22),
        ("MSE", 7),
        ("regret", 6),
    )
    regrets: dict[float, list[float]] = {}
    for path in sorted(options.folder.glob("*.npz")):
        if options.only and path.stem not in options.only:
            continue
        X, y = prepared(path)
        tests = folds(y.size)
        size = y.size - max(test.size for test in tests)  # the same for every fold: one plan serves them all
        for epsilon in options.epsilons:
            asked: Any = None
            plan: Any = None
            names: list[str] = []
            found: dict[str, np.ndarray] = {}
            for number, test in enumerate(tests):
                keep = np.setdiff1d(np.arange(y.size), test)[:size]
                if asked is None:
                    asked = Asked(squared, X[keep], y[keep], {"max_l2": 1.0}, (-1.0, 1.0), neighbors=options.neighbors)
                    plan, _ = asked.plan(epsilon)
                    names = eligible(plan, options.skip)
                    found = {name: np.zeros(options.repeats) for name in names}
                else:
                    asked.X.value, asked.y.value = X[keep], y[keep]
                for name in names:
                    for seed in range(options.repeats):
                        w, _ = asked.solve(epsilon, name, 1000 * seed + number)
                        found[name][seed] += float(np.mean((y[test] - X[test] @ w) ** 2)) / len(tests)
            medians = {name: float(np.median(errors)) for name, errors in found.items()}
            chosen, best = plan.chosen.mechanism, min(medians, key=lambda name: medians[name])
            regrets.setdefault(epsilon, []).append(medians[chosen] / medians[best])
            zero, ridge = baselines(X, y)
            table.row(
                path.stem,
                f"{epsilon:g}",
                f"{zero:.4f}",
                f"{ridge:.4f}",
                chosen,
                spread(list(found[chosen])),
                best,
                f"{medians[best]:.4f}",
                f"{regrets[epsilon][-1]:.2f}",
            )
    for epsilon, values in regrets.items():
        what = f"epsilon {epsilon:g}: regret {spread(values)}, largest {max(values):.2f} over {len(values)} sets"
        expected.expect(max(values) <= 1.2, what)


def classify(options: Any, expected: Expectations) -> None:
    read = {"adult": adult, "mushrooms": mushrooms}
    table = Table(
        ("data", 9),
        ("loss", 8),
        ("epsilon", 7),
        ("mechanism", 26),
        ("accuracy", 24),
        ("AUC", 24),
        ("excess forecast", 22),
        ("s", 5),
    )
    goals = {("adult", 1.0): (0.845, 0.890), ("adult", 0.1): (0.815, 0.855)}
    for name in options.data:
        X, y = read[name](options.folder)
        largest = float(X.max())
        bounds: dict[str, Any] = {"max_l2": 1.0} if options.norm_only else {"max_l2": 1.0, "bounds": [0.0, largest]}
        loss = {"logistic": logistic, "hinge": hinge}[options.loss]
        for epsilon in options.epsilons:
            asked: Any = None
            plan: Any = None
            names: list[str] = []
            seconds = 0.0
            found: dict[str, list[tuple[float, float, float]]] = {}
            for number in range(options.repeats):
                order = np.random.default_rng(number).permutation(y.size)
                train, test = order[: int(0.8 * y.size)], order[int(0.8 * y.size) :]
                if asked is None:
                    asked = Asked(loss, X[train], y[train], bounds, (-1.0, 1.0))
                    plan, seconds = asked.plan(epsilon)
                    names = eligible(plan, options.skip)
                    print(f"{name}: {train.size} rows of {X.shape[1]} columns, plan {seconds:.1f} s", flush=True)
                else:
                    asked.X.value, asked.y.value = X[train], y[train]
                for mechanism in names:
                    w, each = asked.solve(epsilon, mechanism, 1000 * number + 1)
                    found.setdefault(mechanism, []).append((*scores(X[test] @ w, y[test]), each))
            for mechanism, runs in found.items():
                accuracy, area, spent = (list(part) for part in zip(*runs, strict=True))
                mark = "-> " if mechanism == plan.chosen.mechanism else "   "
                table.row(
                    name,
                    options.loss,
                    f"{epsilon:g}",
                    mark + mechanism,
                    spread(accuracy, 4),
                    spread(area, 4),
                    noted(plan, mechanism),
                    f"{np.median(spent):.2g}",
                )
                goal = goals.get((name, epsilon)) if options.loss == "logistic" else None
                if goal is not None and mechanism == plan.chosen.mechanism:
                    ours = float(np.median(accuracy)), float(np.median(area))
                    what = (
                        f"{name} at epsilon {epsilon:g}: at least {goal[0]}/{goal[1]}, got {ours[0]:.4f}/{ours[1]:.4f}"
                    )
                    expected.expect(ours[0] >= goal[0] and ours[1] >= goal[1], what)


def numeric(options: Any, expected: Expectations) -> None:
    from sklearn.linear_model import QuantileRegressor

    table = Table(
        ("data", 10),
        ("n", 5),
        ("tau", 4),
        ("epsilon", 7),
        ("chosen", 22),
        ("loss", 24),
        ("best", 22),
        ("its loss", 9),
        ("constant", 9),
        ("no privacy", 10),
    )
    for name in NUMERIC:
        X, y, low, high, half = numeric_set(options.folder, name)
        for tau in (0.5, 0.9):
            loss, pinball = quantile(tau)
            peer = QuantileRegressor(quantile=tau, alpha=0.0).fit(X, y)
            free, constant = pinball(y - peer.predict(X)), pinball(y - np.quantile(y, tau))
            asked = Asked(loss, X, y, {"bounds": [low, high]}, (-half, half), intercept=True)
            for epsilon in options.epsilons:
                plan, _ = asked.plan(epsilon)
                found = {}
                for mechanism in eligible(plan, options.skip):
                    runs = [asked.solve(epsilon, mechanism, seed)[0] for seed in range(options.repeats)]
                    found[mechanism] = [pinball(y - X @ w[:-1] - w[-1]) for w in runs]
                chosen = plan.chosen.mechanism
                best = min(found, key=lambda each: float(np.median(found[each])))
                table.row(
                    name,
                    y.size,
                    tau,
                    f"{epsilon:g}",
                    chosen,
                    spread(found[chosen]),
                    best,
                    f"{np.median(found[best]):.3g}",
                    f"{constant:.3g}",
                    f"{free:.3g}",
                )
                if epsilon >= 1 and name != "stackloss":
                    ours = float(np.median(found[chosen]))
                    what = f"{name}, tau {tau}, epsilon {epsilon:g}: {ours:.3g}, the best constant {constant:.3g}"
                    expected.expect(ours < constant, what)


def main() -> int:
    arguments = parser(__doc__, repeats=3, epsilons=[0.1, 1.0, 10.0], data=["adult", "mushrooms"])
    parts = {"lasso": lasso, "uci": uci, "classify": classify, "numeric": numeric}
    arguments.add_argument("part", choices=list(parts))
    arguments.add_argument("folder", type=data_path("*.npz", "*.csv.gz"), nargs="?")
    arguments.add_argument("--sizes", type=int, nargs="*")
    arguments.add_argument("--columns", type=int, nargs="*")
    arguments.add_argument("--signal", choices=("yardstick", "other"), default="yardstick")
    arguments.add_argument("--neighbors", choices=("replace-one", "add-remove"), default="replace-one")
    arguments.add_argument("--loss", choices=("logistic", "hinge"), default="logistic")
    arguments.add_argument(
        "--norm-only", action="store_true", help="declare the norm of one-hot rows, not their bounds"
    )
    arguments.add_argument("--only", nargs="+", help="names of sets")
    arguments.add_argument("--skip", nargs="*", default=[], help="mechanisms left out, unless chosen")
    arguments.add_argument("--patience", type=float, default=math.inf, help="seconds after which one run is enough")
    options = arguments.parse_args()
    if options.part in ("uci", "classify", "numeric") and options.folder is None:
        arguments.error(f"{options.part} needs a folder")
    warnings.simplefilter("ignore")
    header()
    expected = Expectations()
    parts[options.part](options, expected)
    return expected.close()


if __name__ == "__main__":
    sys.exit(main())
