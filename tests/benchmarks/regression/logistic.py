"""Private classification on real data: descents as planned against a plain one.

FOLDER holds ``05_reg_adult``, ``05_reg_highdim`` and ``05_reg_rdatasets``. Adult (``adult_pgm.csv.gz``, whose codes
give scikit-learn's logistic regression the accuracy and AUC of the literature): every column one-hot over its declared
domain, rows divided by the root of the number of columns. Mushrooms: one-hot rows divided by their common root.
Replace-one, delta 1e-6; every repetition has its own 80/20 split and noise. Nothing is tuned: settings are what plans
choose from n, p, bounds and budget. ``plain`` is full-batch descent with 100 steps of length 4 (one over the
curvature), noise on whole derivatives, exact Gaussian accounting, the last point.

The numeric sets, too small to split, are read here for ``regression_planner numeric``.
"""

from __future__ import annotations

import gzip
import json
import math
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.svm import LinearSVC

from dpmodel.contract import Options
from dpmodel.errors import NotPrivateWarning
from dpmodel.privacy import SeededSource
from dpmodel.privacy.accounting import Spend
from dpmodel.regressions.descent import NOISY_DESCENT, NoisyDescent
from dpmodel.regressions.noisy_gradient import Settings, StepNoise, descend, descent_metric, private_gradient
from tests.benchmarks.measuring import Expectations, Table, data_path, header, parser, spread
from tests.support.regressions import regression

DELTA = 1e-6
# name -> (file, label, label bounds, columns with public bounds)
NUMERIC: dict[str, tuple[str, str, tuple[float, float], dict[str, tuple[float, float]]]] = {
    "engel": ("quantreg_engel.csv", "foodexp", (0, 2500), {"income": (0, 5000)}),
    "stackloss": (
        "datasets_stackloss.csv",
        "stack.loss",
        (0, 50),
        {"Air.Flow": (40, 90), "Water.Temp": (10, 30), "Acid.Conc.": (60, 100)},
    ),
    "CPS1985": ("AER_CPS1985.csv", "wage", (0, 50), {"education": (0, 20), "experience": (0, 60), "age": (16, 70)}),
    "wage1": ("wooldridge_wage1.csv", "wage", (0, 30), {"educ": (0, 20), "exper": (0, 60), "tenure": (0, 50)}),
    "ISLR Wage": ("ISLR_Wage.csv.gz", "wage", (0, 350), {"age": (16, 90), "year": (2003, 2009)}),
}


def adult(folder: Path) -> tuple[Any, np.ndarray]:
    table = pd.read_csv(folder / "05_reg_adult" / "adult_pgm.csv.gz")
    domain = json.loads((folder / "05_reg_adult" / "adult-domain.json").read_text())
    y = np.where(table.pop("income>50K") > 0, 1.0, -1.0)
    starts = np.concatenate([[0], np.cumsum([domain[name] for name in table])])
    columns = (table.to_numpy(dtype=np.int64) + starts[:-1]).ravel().astype(np.int32)
    n, k = table.shape
    X = sp.csr_array(
        (np.full(n * k, 1 / math.sqrt(k)), columns, np.arange(0, n * k + 1, k, dtype=np.int32)), shape=(n, starts[-1])
    )
    return X, y


def mushrooms(folder: Path) -> tuple[Any, np.ndarray]:
    blocks, labels = [], []
    for part in ("train", "test"):
        with np.load(folder / "05_reg_highdim" / f"agaricus_{part}.npz") as held:
            shape, indices, pointers = tuple(held["shape"]), held["indices"].astype(np.int32), held["indptr"]
            blocks.append(sp.csr_array((np.ones(indices.size), indices, pointers), shape=shape))
            labels.append(np.where(held["y"] > 0, 1.0, -1.0))
    X = sp.csr_array(sp.vstack(blocks))
    return X / math.sqrt(float(np.diff(X.indptr).max())), np.concatenate(labels)


def plain(model: Any, options: Options, source: Any) -> np.ndarray:
    spend, metric = Spend.of(options.epsilon, options.delta, gaussian_only=True), descent_metric(model)
    noise = StepNoise(model, metric, spend, 100, 0.0)
    gradient = private_gradient(noise, model.read_rows(), source)
    return descend(model, metric, Settings(100, 4.0, 0.0, 0.0, "last"), gradient)["last"]


def mechanisms(quick: bool) -> dict[str, Any]:
    def run(mechanism: Any) -> Any:
        return lambda model, options, source: mechanism.run(model, options, source).x

    found = {"noisy-descent": run(NOISY_DESCENT), "plain descent": plain}
    return found if quick else found | {"on samples": run(NoisyDescent(steps=64, rate=1 / 32))}


def scores(score: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    return float(np.mean((score > 0) == (y > 0))), float(roc_auc_score(y, score))


def classify(name: str, X: Any, y: np.ndarray, loss: str, options: Any) -> dict[tuple[str, float], tuple[float, float]]:
    """Medians of (accuracy, AUC) by method and epsilon (inf: not private)."""
    table = Table(("data", 10), ("loss", 9), ("method", 19), ("epsilon", 8), ("accuracy", 22), ("AUC", 22), ("s", 8))
    found: dict[tuple[str, float], list[tuple[float, float, float]]] = {}
    for number in range(options.repeats):
        order = np.random.default_rng(number).permutation(y.size)
        train, test = order[: int(0.8 * y.size)], order[int(0.8 * y.size) :]
        Xtrain, Xtest = X[train], X[test]
        for epsilon in options.epsilons:
            model = regression(Xtrain, y[train], loss, l2=1.0)
            for method, fit in mechanisms(loss != "logistic").items():
                start = time.perf_counter()
                w = fit(model, Options(epsilon, DELTA), SeededSource(1000 * number + 1))
                seconds = time.perf_counter() - start
                found.setdefault((method, epsilon), []).append((*scores(Xtest @ w, y[test]), seconds))
        start = time.perf_counter()
        if loss == "logistic":
            peer: Any = LogisticRegression(C=1.0, max_iter=1000, fit_intercept=False)
        else:
            peer = LinearSVC(loss="hinge", C=1.0, fit_intercept=False, max_iter=5000)
        peer.fit(Xtrain, y[train])
        seconds = time.perf_counter() - start
        found.setdefault(("scikit-learn", math.inf), []).append(
            (*scores(peer.decision_function(Xtest), y[test]), seconds)
        )
    medians = {}
    for (method, epsilon), runs in sorted(found.items(), key=lambda item: (item[0][1], item[0][0])):
        accuracy, area, seconds = (list(part) for part in zip(*runs, strict=True))
        medians[method, epsilon] = float(np.median(accuracy)), float(np.median(area))
        table.row(name, loss, method, epsilon, spread(accuracy, 4), spread(area, 4), f"{np.median(seconds):.2g}")
    print()
    return medians


def numeric_set(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]:
    """Clipped columns and labels, bounds of the columns, and half the width of the labels' bounds."""
    file, label, bounds, columns = NUMERIC[name]
    path = folder / "05_reg_rdatasets" / file
    with gzip.open(path) if file.endswith(".gz") else path.open("rb") as stream:
        data = pd.read_csv(stream)
    low, high = (np.array(ends, dtype=float) for ends in zip(*columns.values(), strict=True))
    X = np.clip(data[list(columns)].to_numpy(dtype=float), low, high)
    # Labels from the middle of their range: a public shift, absorbed by the intercept.
    half = (bounds[1] - bounds[0]) / 2
    return X, np.clip(data[label].to_numpy(dtype=float), *bounds) - bounds[0] - half, low, high, half


def main() -> int:
    arguments = parser(__doc__, repeats=10, epsilons=[0.1, 1.0, 10.0], parts=["adult", "hinge", "mushrooms"])
    arguments.add_argument("folder", type=data_path("adult_pgm.csv.gz", "agaricus_train.npz"))
    options = arguments.parse_args()
    warnings.simplefilter("ignore", NotPrivateWarning)
    header(("dpmodel", "numpy", "scipy", "scikit-learn", "dp-accounting"))
    expectations = Expectations()
    if "adult" in options.parts:
        found = classify("adult", *adult(options.folder), "logistic", options)
        for epsilon, accuracy, area in ((1.0, 0.845, 0.890), (0.1, 0.815, 0.855)):
            if epsilon in options.epsilons:
                ours = found["noisy-descent", epsilon]
                words = f"adult at epsilon {epsilon:g}: at least {accuracy}/{area}, got {ours[0]:.4f}/{ours[1]:.4f}"
                expectations.expect(ours[0] >= accuracy and ours[1] >= area, words)
    if "hinge" in options.parts:
        classify("adult", *adult(options.folder), "hinge", options)
    if "mushrooms" in options.parts:
        found = classify("mushrooms", *mushrooms(options.folder), "logistic", options)
        for epsilon in options.epsilons:
            ours, other = found["noisy-descent", epsilon], found["plain descent", epsilon]
            words = f"mushrooms at epsilon {epsilon:g}: accuracy {ours[0]:.4f} against plain {other[0]:.4f}"
            expectations.expect(ours[0] >= other[0] - 0.01, words)
    return expectations.close()


if __name__ == "__main__":
    sys.exit(main())
