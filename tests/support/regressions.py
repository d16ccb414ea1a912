"""Private regressions made from arrays, for tests and benchmarks of mechanisms that need no CVXPY model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel.programs.classifier import Classification
from dpmodel.regressions.features import RowBounds
from dpmodel.regressions.losses import Loss
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.penalties import Penalty
from dpmodel.regressions.rows import Rows
from dpmodel.regressions.sets import Domain, FreeSpace


def regression(
    X: Any,
    y: np.ndarray,
    loss: Loss | str = "squared",
    *,
    domain: Domain | None = None,
    ridge: float = 0.0,
    lower: Any = -math.inf,
    upper: Any = math.inf,
    l1: float = math.inf,
    l2: float = math.inf,
    label: tuple[float, float] = (-1.0, 1.0),
    intercept: bool = False,
    absent: bool = False,
    mean: bool = True,
    weights: np.ndarray | None = None,
) -> PrivateRegression:
    """The model of rows X (n, p) (dense or CSR) and labels y (n,), which are taken as they are: not clipped.

    ``lower``, ``upper`` : scalars or (p,); ``ridge`` : added as ridge * ||w||^2 (not on the intercept);
    ``mean`` : the objective is a mean of losses, otherwise their sum. An intercept is the last coefficient.
    """
    n, p = X.shape
    size = p + intercept
    lows, highs = np.ones(size), np.ones(size)
    lows[:p], highs[:p] = lower, upper
    constant = np.arange(size) >= p
    row = RowBounds.of(lows, highs, constant, l1=l1, l2=l2, label=label, absent=absent)
    blocks: list[tuple[Any, int]] = [(sp.csr_array(X) if sp.issparse(X) else np.asarray(X, dtype=float), 0)]
    if intercept:
        blocks.append((np.ones((n, 1)), p))
    rows = Rows(tuple(blocks), np.asarray(y, dtype=float), size, weights=weights)
    penalty = Penalty(np.where(constant, 0.0, ridge), np.zeros(size), np.zeros(size))
    total = float(n if weights is None else weights.sum())
    return PrivateRegression(
        loss=Loss(loss) if isinstance(loss, str) else loss,  # type: ignore[arg-type]
        count=n,
        scale=1.0 / n if mean else 1.0,
        row=row,
        domain=FreeSpace(size) if domain is None else domain,
        penalty=penalty,
        classification=Classification(()),
        read=lambda: rows,
        total=total,
        largest_weight=1.0 if weights is None else float(weights.max()),
    )


def objective(model: PrivateRegression, w: np.ndarray) -> float:
    """The true objective at w. Test-only: it reads the rows."""
    rows = model.read_rows()
    losses = model.loss.value(rows.predict(w), rows.labels)
    if rows.weights is not None:
        losses = losses * rows.weights
    return model.scale * float(losses.sum()) + model.penalty.value(w)
