"""Several classes: one multinomial model, one model of each class against the rest, and scikit-learn's own of both.

Synthetic rows of 10 columns, 10,000 to learn from and 10,000 to be scored on: ``softmax`` draws labels by their chances
under random coefficients, ``blobs`` rows around a centre for each class, ``ordered`` labels by where one sum of the
columns lies, with noise. Nothing is tuned; plans choose.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from dpmodel.errors import CompositionWarning, NotPrivateWarning
from dpmodel.learn import PrivateLogisticRegression
from tests.benchmarks.measuring import Table, header, parser, spread

N, P = 10_000, 10


def drawn(kind: str, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """(2 N, P) rows and (2 N,) labels."""
    rng = np.random.default_rng(classes)
    if kind == "softmax":
        X = rng.uniform(-1, 1, (2 * N, P))
        scores = X @ (rng.normal(size=(P, classes)) * 1.5) + np.linspace(0, -1, classes)
        return X, (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    if kind == "blobs":
        centres, y = rng.uniform(-0.5, 0.5, (classes, P)), rng.integers(classes, size=2 * N)
        return np.clip(centres[y] + 0.4 * rng.normal(size=(2 * N, P)), -1, 1), y
    X = rng.uniform(-1, 1, (2 * N, P))
    along = X @ rng.normal(size=P) + 0.3 * rng.normal(size=2 * N)
    return X, np.searchsorted(np.quantile(along, np.linspace(0, 1, classes + 1)[1:-1]), along)


def scored(fitted: Any, X: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Accuracy and mean negative log-likelihood."""
    chances = fitted.predict_proba(X)[np.arange(y.size), y]
    return float(fitted.score(X, y)), float(-np.log(np.maximum(chances, 1e-300)).mean())


def main() -> int:
    options = parser(
        __doc__, repeats=5, epsilons=[1.0], deltas=[1e-6, 0.0], classes=[3, 4, 5], kinds=["softmax", "blobs", "ordered"]
    ).parse_args()
    for known in (NotPrivateWarning, CompositionWarning):
        warnings.simplefilter("ignore", known)
    header(("dpmodel", "numpy", "scipy", "scikit-learn"))
    table = Table(("data", 10), ("K", 2), ("model", 12), ("epsilon, delta", 15), ("accuracy", 22), ("log loss", 22))
    for kind in options.kinds:
        for classes in options.classes:
            X, y = drawn(kind, classes)
            train, test = slice(N), slice(N, None)
            plain = LogisticRegression(max_iter=1000)
            for name, fit in (("multinomial", plain), ("ovr", OneVsRestClassifier(plain))):
                accuracy, loss = scored(fit.fit(X[train], y[train]), X[test], y[test])
                table.row(kind, classes, name, "not private", f"{accuracy:.4f}", f"{loss:.3f}")
            for epsilon, delta in ((e, d) for d in options.deltas for e in options.epsilons):
                for name in ("multinomial", "ovr"):
                    given = {"bounds": (-1, 1), "classes": range(classes), "multi_class": name}
                    runs = [
                        scored(
                            PrivateLogisticRegression(**given, epsilon=epsilon, delta=delta, random_state=seed).fit(
                                X[train], y[train]
                            ),
                            X[test],
                            y[test],
                        )
                        for seed in range(options.repeats)
                    ]
                    accuracy, loss = (list(part) for part in zip(*runs, strict=True))
                    budget = f"{epsilon:g}, {delta:g}"
                    table.row(kind, classes, name, budget, spread(accuracy, 4), spread(loss))
    return 0


if __name__ == "__main__":
    sys.exit(main())
