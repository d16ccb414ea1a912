"""diffprivlib's linear models on Adult and mushrooms: what the peer library reaches, in the same splits as ours.

Runs in an environment where diffprivlib imports (0.6 needs scikit-learn below 1.6); it does not import dpmodel.
Prints one JSON line per data set, model and epsilon: medians and quartiles of accuracy and AUC over the repetitions
(each with its own 80/20 split and noise), of seconds, and of the share that failed.

Data
    Adult (``adult_pgm.csv.gz``, ``adult-domain.json``): every column one-hot over its domain, each row divided by the
    root of the number of columns, so that its 2-norm is 1. Mushrooms (``agaricus_train.npz``, ``agaricus_test.npz``,
    stacked): one-hot rows divided by the public root of the largest count of ones. Rows and splits are those of
    ``logistic.py`` and ``regression_planner.py``.
Models
    LogisticRegression(epsilon, data_norm=1, C): C from ``--C``, the best in hindsight marked by ``best`` (a choice that
    nobody pays for, in the peer's favour). LinearRegression(epsilon, bounds_X=(0, 1/root), bounds_y=(-1, 1)) on labels
    -1 and 1, its sign taken. ``--trivial`` : the majority class, and scikit-learn without privacy.
Caveats on the peer's guarantee (diffprivlib 0.6.6)
    LinearRegression takes the sensitivity of sum_i x_ij^2 as max(|lower|, |lower|)^2, the lower bound twice
    (models/linear_regression.py, line 144): with ``fit_intercept=False`` and a lower bound of 0 these sums get no noise
    at all, which ``--defect`` shows; with an intercept, bounds shifted by the noisy mean m give |lower - m| where
    max(|lower - m|, |upper - m|) is due. LogisticRegression does not regularise the intercept, so that the curvature
    its proof divides by is not there, and its solver's tolerance (1e-4) is not counted.

    python tests/benchmarks/regression/diffprivlib_peer.py --adult FOLDER --mushrooms FOLDER [--repeats 10]
    python tests/benchmarks/regression/diffprivlib_peer.py --splits FILE.npz ... --epsilons .5 1 5
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from diffprivlib.models import LinearRegression, LogisticRegression
from sklearn.linear_model import LogisticRegression as Plain
from sklearn.metrics import roc_auc_score


def adult(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """(n, p) one-hot rows of 2-norm 1, and labels 0/1: those of ``logistic.py``."""
    table = pd.read_csv(folder / "adult_pgm.csv.gz")
    domain = json.loads((folder / "adult-domain.json").read_text())
    y = (table.pop("income>50K") > 0).to_numpy().astype(int)
    starts = np.concatenate([[0], np.cumsum([domain[name] for name in table])])
    n, k = table.shape
    X = np.zeros((n, starts[-1]))
    X[np.repeat(np.arange(n), k), (table.to_numpy(dtype=np.int64) + starts[:-1]).ravel()] = 1 / np.sqrt(k)
    return X, y


def mushrooms(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """(n, p) one-hot rows of 2-norm at most 1, and labels 0/1."""
    parts, labels = [], []
    for name in ("agaricus_train.npz", "agaricus_test.npz"):
        with np.load(folder / name, allow_pickle=False) as file:
            block = np.zeros(file["shape"])
            block[np.repeat(np.arange(block.shape[0]), np.diff(file["indptr"])), file["indices"]] = 1.0
            parts.append(block)
            labels.append(np.asarray(file["y"], dtype=int))
    X = np.vstack(parts)
    return X / np.sqrt(X.sum(axis=1).max()), np.concatenate(labels)


def split(n: int, repeat: int) -> tuple[np.ndarray, np.ndarray]:
    """80 % and 20 % of the rows; the same for every method."""
    order = np.random.default_rng(repeat).permutation(n)
    return order[: int(0.8 * n)], order[int(0.8 * n) :]


def scores(y: np.ndarray, values: np.ndarray) -> dict[str, float]:
    return {"accuracy": float(((values > 0) == y).mean()), "auc": float(roc_auc_score(y, values))}


def logistic(X: np.ndarray, y: np.ndarray, epsilon: float, C: float, seed: int) -> Any:
    model = LogisticRegression(epsilon=epsilon, data_norm=1.0, C=C, max_iter=1000, random_state=seed)
    return model.fit(X, y).decision_function


def linear(X: np.ndarray, y: np.ndarray, epsilon: float, top: float, seed: int) -> Any:
    model = LinearRegression(epsilon=epsilon, bounds_X=(0.0, top), bounds_y=(-1.0, 1.0), random_state=seed)
    return model.fit(X, 2.0 * y - 1.0).predict


def plain(X: np.ndarray, y: np.ndarray, epsilon: float, C: float, seed: int) -> Any:
    return Plain(C=1e3, max_iter=2000).fit(X, y).decision_function


def measure(name: str, fit: Any, X: np.ndarray, y: np.ndarray, repeats: int, *args: Any) -> dict[str, Any]:
    found: dict[str, list[float]] = {"accuracy": [], "auc": [], "seconds": []}
    failed = 0
    for repeat in range(repeats):
        train, test = split(y.size, repeat)
        start = time.perf_counter()
        try:
            decide = fit(X[train], y[train], *args, repeat)
            values = np.nan_to_num(np.asarray(decide(X[test])).ravel())
        except (ValueError, FloatingPointError):
            failed += 1
            continue
        found["seconds"].append(time.perf_counter() - start)
        for key, value in scores(y[test], values).items():
            found[key].append(value)
    line: dict[str, Any] = {"model": name, "repeats": repeats, "failed": failed}
    for key, values_ in found.items():
        low, middle, high = np.quantile(values_, [0.25, 0.5, 0.75]) if values_ else (np.nan,) * 3
        line[key] = {"median": round(float(middle), 4), "quartiles": [round(float(low), 4), round(float(high), 4)]}
    return line


def show_defect() -> dict[str, Any]:
    """Fit twice at epsilon 1e-6 without intercept: the sums of squares come out exact, whatever the noise."""
    rng = np.random.default_rng(0)
    X, y = rng.random((50, 3)), rng.random(50)
    released = []
    for seed in range(2):
        model = LinearRegression(
            epsilon=1e-6, bounds_X=(0.0, 1.0), bounds_y=(0.0, 1.0), fit_intercept=False, random_state=seed
        ).fit(X, y)
        released.append(np.diag(model._obj_coefs[2]))
    exact = (X**2).sum(axis=0)
    return {
        "defect": "sum of squares",
        "epsilon": 1e-6,
        "largest error": float(np.abs(np.array(released) - exact).max()),
    }


def held_out(file: Path, epsilons: list[float], many: list[float]) -> None:
    """Median log loss on the splits that ``pure_logistic.py --splits`` wrote, for every C."""
    with np.load(file, allow_pickle=False) as given:
        count, norm = sum(name.startswith("X") for name in given.files), float(given["norm"])
        for epsilon in epsilons:
            line = {}
            for C in many:
                losses = []
                for k in range(count):
                    model = LogisticRegression(epsilon=epsilon, data_norm=norm, C=C, max_iter=1000, random_state=k)
                    chances = model.fit(given[f"X{k}"], given[f"y{k}"]).predict_proba(given[f"test{k}"])[:, 1]
                    right = np.where(given[f"labels{k}"] == 1, chances, 1 - chances)
                    losses.append(-float(np.mean(np.log(np.maximum(right, 1e-12)))))
                line[C] = round(float(np.median(losses)), 4)
            print(json.dumps({"data": file.stem, "epsilon": epsilon, "log loss by C": line}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--adult", type=Path, help="folder with adult_pgm.csv.gz and adult-domain.json")
    parser.add_argument("--mushrooms", type=Path, help="folder with agaricus_train.npz and agaricus_test.npz")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 1.0, 10.0])
    parser.add_argument("--C", type=float, nargs="+", default=[0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0])
    parser.add_argument("--linear", action="store_true", help="also LinearRegression")
    parser.add_argument("--trivial", action="store_true", help="also the majority class and a fit without privacy")
    parser.add_argument("--defect", action="store_true", help="also the sums of squares that are released exactly")
    parser.add_argument("--splits", type=Path, nargs="+", default=[], help="files of pure_logistic.py --splits")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for file in args.splits:
        held_out(file, args.epsilons, args.C)
    if args.defect:
        print(json.dumps(show_defect()), flush=True)
    for name, read, folder in (("adult", adult, args.adult), ("mushrooms", mushrooms, args.mushrooms)):
        if folder is None:
            continue
        X, y = read(folder)
        facts = {"data": name, "rows": int(X.shape[0]), "columns": int(X.shape[1]), "positives": round(y.mean(), 4)}
        print(json.dumps(facts), flush=True)
        if args.trivial:
            print(json.dumps({"data": name} | measure("no privacy", plain, X, y, 3, np.inf, 0.0)), flush=True)
        top = float(X.max())
        for epsilon in args.epsilons:
            lines = []
            for C in args.C:
                line = measure("LogisticRegression", logistic, X, y, args.repeats, epsilon, C)
                lines.append({"data": name, "epsilon": epsilon, "C": C} | line)
            best = max(lines, key=lambda line: line["accuracy"]["median"])
            for line in lines:
                print(json.dumps(line | {"best": line is best}), flush=True)
            if not args.linear:
                continue
            line = measure("LinearRegression", linear, X, y, args.repeats, epsilon, top)
            print(json.dumps({"data": name, "epsilon": epsilon} | line), flush=True)


if __name__ == "__main__":
    main()
