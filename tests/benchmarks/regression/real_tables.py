"""Plans of regressions on real tables: held-out loss as planned, by the best constant's and by every own mechanism's.

FOLDER holds ``05_reg_*``. Tables as they are: columns of at most 30 texts or 10 different numbers are lists, others
numbers, whose bounds are their ends, rounded outwards to one digit (public knowledge, in the experiment's words).
Without ``--report`` the tables that settings may be chosen on, with it the others. A cell is one table, loss, size and
epsilon, and its number the median over ``--seeds`` splits and draws of noise. The constant is the best of the training
rows, without privacy. ``--alone``: what is planned and the constant, nothing else. ``--peer``: write nothing but the
lines of diffprivlib's logistic and linear regression (in an environment that has it, which needs no dpmodel), at its
own defaults.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tests.benchmarks.measuring import data_path, header, parser

# name -> file, label, how it becomes a number (None: it is one), columns left out
Label = Callable[[pd.Series], Any] | None
SETS: dict[str, tuple[str, str, Label, list[str]]] = {
    "adult": ("adult/adult_fairml.csv.gz", "income", lambda y: y == ">50K", ["education", "native_country"]),
    "bank": ("fairml/bank.csv.gz", "subscribed", lambda y: y == "yes", ["euribor3m", "nr_employed"]),
    "german": ("fairml/german_credit.csv.gz", "Credit_risk", lambda y: y == "GOOD", []),
    "mobility": ("acs/ACSmobility_train.csv.gz", "MIG", lambda y: y == 1, ["ANC"]),
    "affairs": ("rdatasets/AER_Affairs.csv", "affairs", lambda y: y > 0, []),
    "married": ("acs/PUMS_california_1000.csv", "married", lambda y: y == 1, []),
    "disability": ("acs/acs12.csv", "disability", lambda y: y == "yes", ["income"]),
    "private": ("rdatasets/ISLR_College.csv.gz", "Private", lambda y: y == "Yes", []),
    "income": ("acs/PUMS_california_1000.csv", "income", None, []),
    "hours": ("adult/adult_fairml.csv.gz", "hours_per_week", None, ["education", "native_country", "income"]),
    "wages": ("rdatasets/ISLR_Wage.csv.gz", "wage", None, ["logwage", "region"]),
    "wage1": ("rdatasets/wooldridge_wage1.csv", "wage", None, ["lwage"]),
    "cps": ("rdatasets/AER_CPS1985.csv", "wage", None, []),
    "college": ("rdatasets/ISLR_College.csv.gz", "Grad.Rate", None, []),
    "boston": ("rdatasets/MASS_Boston.csv", "medv", None, []),
    "balance": ("rdatasets/ISLR_Credit.csv", "Balance", None, ["ID"]),
    **{name: (f"uci_wang18/{name}.npz", "y", None, []) for name in ("airfoil", "bike", "concrete", "energy", "wine")},
}
LOSSES = {"classes": ("logistic", "hinge"), "numbers": ("squared", "absolute", "quantile .9", "huber")}


def table_of(folder: Path, name: str) -> tuple[pd.DataFrame, np.ndarray]:
    file, label, number, out = SETS[name]
    path = folder / f"05_reg_{file}"
    if path.suffix == ".npz":
        with np.load(path) as given:
            frame = pd.DataFrame(given["X"], columns=[f"x{k}" for k in range(given["X"].shape[1])])
            frame["y"] = given["y"].ravel()
    else:
        frame = pd.read_csv(path).drop(columns=["rownames", *out], errors="ignore").dropna()
    y = frame.pop(label)
    return frame, np.asarray(y if number is None else number(y), dtype=np.float64)


def rounded(values: Any) -> tuple[float, float]:
    low, high = float(np.min(values)), float(np.max(values))
    unit = 10.0 ** math.floor(math.log10(max(high - low, 1e-9)))
    return math.floor(low / unit) * unit, math.ceil(high / unit) * unit


def encoded(frame: pd.DataFrame) -> tuple[np.ndarray, float]:
    """Rows in [-1, 1], and their largest 2-norm."""
    parts, square = [], 0.0
    for name in frame:
        column = frame[name]
        if not pd.api.types.is_numeric_dtype(column) or column.nunique() <= 10:
            if column.nunique() <= 30:
                parts.append(pd.get_dummies(column).to_numpy(dtype=float))
                square += 1
            continue
        low, high = rounded(column)
        parts.append((2 * column.to_numpy(dtype=float) - low - high)[:, None] / (high - low))
        square += 1
    return np.hstack(parts), math.sqrt(square)


def loss_of(kind: str, z: np.ndarray, y: np.ndarray) -> float:
    """Mean loss; labels of classes are 0 and 1, Huber's threshold is 1."""
    r, sign = y - z, 2 * y - 1
    if kind == "huber":
        return float(np.where(abs(r) <= 1, r * r, 2 * abs(r) - 1).mean())
    if kind.startswith("quantile"):
        return float(np.maximum(0.9 * r, -0.1 * r).mean())
    each = {"logistic": np.logaddexp(0, -sign * z), "hinge": np.maximum(1 - sign * z, 0.0), "squared": r * r}
    return float((each[kind] if kind in each else abs(r)).mean())


def constant_of(kind: str, y: np.ndarray) -> float:
    mean = float(y.mean())
    if kind == "logistic":
        return math.log(max(mean, 1e-9) / max(1 - mean, 1e-9))
    if kind in ("hinge", "squared"):
        return float(np.sign(2 * mean - 1)) if kind == "hinge" else mean
    if kind == "huber":
        grid = np.quantile(y, np.linspace(0, 1, 201))
        return float(grid[np.argmin([loss_of(kind, t, y) for t in grid])])
    return float(np.quantile(y, 0.9 if kind.startswith("quantile") else 0.5))


def estimator(kind: str, norm: float, ends: tuple[float, float], **own: Any) -> Any:
    from dpmodel import learn

    own |= {"max_l2": norm, "bounds": (-1, 1)}
    if kind in ("logistic", "hinge"):
        made = learn.PrivateLogisticRegression if kind == "logistic" else learn.PrivateLinearSVC
        return made(classes=(0, 1), C=1e6, **own)
    own["label_bounds"] = ends
    if kind == "huber":
        return learn.PrivateHuberRegressor(threshold=1.0, alpha=0.0, **own)
    if kind == "squared":
        return learn.PrivateLinearRegression(**own)
    return learn.PrivateQuantileRegressor(quantile=0.9 if kind.startswith("quantile") else 0.5, **own)


def peer(kind: str, norm: float, ends: tuple[float, float], epsilon: float, seed: int) -> Any:
    from diffprivlib import models

    if kind == "logistic":
        return models.LogisticRegression(epsilon=epsilon, data_norm=norm, max_iter=1000, random_state=seed)
    return models.LinearRegression(epsilon=epsilon, bounds_X=(-1, 1), bounds_y=ends, random_state=seed)


def predictions(fitted: Any, X: np.ndarray) -> np.ndarray:
    return np.asarray(fitted.decision_function(X) if hasattr(fitted, "decision_function") else fitted.predict(X))


def cell(X: np.ndarray, y: np.ndarray, norm: float, kind: str, n: int, epsilon: float, given: Any) -> dict[str, Any]:
    """Median losses by name."""
    ends, found = rounded(y), dict[str, list[float]]()
    chosen = set()
    for seed in range(given.seeds):
        order = np.random.default_rng(seed).permutation(len(y))
        train, test = order[:n], order[n:][:10_000]

        def score(name: str, fitted: Any, test: np.ndarray = test) -> None:
            found.setdefault(name, []).append(loss_of(kind, predictions(fitted, X[test]), y[test]))

        found.setdefault("constant", []).append(loss_of(kind, np.full(test.size, constant_of(kind, y[train])), y[test]))
        if given.peer:
            score("diffprivlib", peer(kind, norm, ends, epsilon, seed).fit(X[train], y[train]))
            continue
        own = {"epsilon": epsilon, "delta": given.delta, "random_state": seed, "neighbors": given.neighbors}
        planned = estimator(kind, norm, ends, **own).fit(X[train], y[train])
        score("planned", planned)
        chosen.add(planned.release_.mechanism)
        if given.alone:
            if kind in LOSSES["classes"]:
                right = (predictions(planned, X[test]) > 0) == (y[test] > 0)
                found.setdefault("accuracy", []).append(float(right.mean()))
            continue
        for line in planned.release_.plan["candidates"]:
            if (name := line["mechanism"]) == "public-only" or not line.get("forecast"):
                continue
            same = name == planned.release_.mechanism  # the same seed gives it the same noise
            score(name, planned if same else estimator(kind, norm, ends, mechanism=name, **own).fit(X[train], y[train]))
    return {name: float(np.median(values)) for name, values in found.items()} | {"chosen": sorted(chosen)}


def main() -> int:
    arguments = parser(
        __doc__, seeds=5, epsilons=[0.1, 0.5, 1.0, 5.0], delta=0.0, neighbors="replace-one", report=False, alone=False
    )
    arguments.add_argument("folder", type=data_path("adult_fairml.csv.gz"))
    arguments.add_argument(
        "--losses", nargs="*", default=["logistic", "hinge", "squared", "absolute", "quantile .9", "huber"]
    )
    arguments.add_argument("--tables", nargs="*", default=list(SETS))
    arguments.add_argument("--peer", action="store_true")
    given = arguments.parse_args()
    warnings.simplefilter("ignore")
    header()
    beyond: dict[str, list[str]] = {"constant": [], "own": []}
    worst, cells = {"constant": 0.0, "own": 0.0}, 0
    for name in [each for k, each in enumerate(SETS) if k % 2 == given.report and each in given.tables]:
        frame, y = table_of(given.folder, name)
        X, norm = encoded(frame)
        for kind in LOSSES["numbers" if SETS[name][2] is None else "classes"]:
            if kind not in given.losses or (given.peer and kind not in ("logistic", "squared")):
                continue
            z = y / np.std(y) if SETS[name][2] is None else y
            for n in sorted({min(1000, int(0.8 * len(y))), min(20_000, int(0.8 * len(y)))}):
                for epsilon in given.epsilons:
                    line = cell(X, z, norm, kind, n, epsilon, given)
                    facts = {"table": name, "loss": kind, "n": n, "p": X.shape[1], "epsilon": epsilon}
                    shown = {key: float(f"{v:.4g}") if isinstance(v, float) else v for key, v in line.items()}
                    print(json.dumps(facts | shown), flush=True)
                    if given.peer or given.alone:
                        continue
                    others = [v for key, v in line.items() if key not in ("planned", "constant", "chosen")]
                    cells += 1
                    for which, base, limit in (("constant", line["constant"], 1.02), ("own", min(others), 1.1)):
                        ratio = line["planned"] / base
                        worst[which] = max(worst[which], ratio)
                        if ratio > limit:
                            beyond[which].append(f"{name}, {kind}, {n}, {epsilon:g}: {ratio:.3f} {line['chosen']}")
    for which, what in (("constant", "2 % above the constant"), ("own", "10 % above another own mechanism")):
        print(f"{what}: {len(beyond[which])} of {cells} cells, at most {worst[which]:.3f}")
        print("".join(f"    {each}\n" for each in beyond[which]), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
