"""Mechanisms without privacy for tests of what stands around mechanisms: exact answers by plain algorithms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from dpmodel.contract import YES, Mechanism, Serves
from dpmodel.exact import hinge_descent
from dpmodel.exact import rescaling_perceptron as perceptron
from dpmodel.exact.model import Found
from dpmodel.forecast import Forecast, RowsMissed


@dataclass(frozen=True)
class PlainSystem(Mechanism[Any]):
    """The widest point of inequalities by linear programming, the plain span of vectors, or a fixed ``answer``."""

    answer: Any = None
    status: str = "found"
    missed: float = 3.5
    name: str = "plain"
    source: str = "for tests"
    serves: ClassVar[Serves] = Serves(object)

    def eligible(self, model: Any, options: Any) -> Any:
        return YES

    def forecast(self, model: Any, options: Any) -> Forecast:
        return Forecast(
            "all but 4 rows",
            options.epsilon,
            options.delta,
            options.beta,
            caveats=("a caveat",),
            error=RowsMissed(missed=self.missed),
        )

    def run(self, model: Any, options: Any, noise: Any, progress: Any = None) -> Found:
        rows = model.read_rows()
        if self.answer is not None or self.status != "found":
            return Found(self.status, self.answer, 2.0, ("a note",))
        if hasattr(model, "field"):
            return Found("found", model.field.echelon(rows))
        return Found("found", model.lowered(widest(model.lifted(*rows), model.cone)))


def widest(rows: Any, cone: np.ndarray) -> np.ndarray:
    """y in the unit box with ``cone y >= 0`` and the largest t with ``rows y >= t``."""
    rows = rows.toarray() if sp.issparse(rows) else rows
    rows = rows[np.abs(rows).max(axis=1) > 0]
    n, d = rows.shape
    A = np.vstack([np.hstack([-rows, np.ones((n, 1))]), np.hstack([-cone, np.zeros((len(cone), 1))])])
    done = linprog(-np.eye(d + 1)[d], A_ub=A, b_ub=np.zeros(len(A)), bounds=[(-1, 1)] * d + [(None, 1)])
    point: np.ndarray = done.x[:d]
    return point


def quick_forecasts(patch: Any) -> None:
    """Few simulations of few steps for one candidate: forecasts are worse and quick."""
    patch.setattr(hinge_descent, "_SIMULATED_STEPS", 50)
    for module, names in ((hinge_descent, ("_FEW_SEEDS", "_MANY_SEEDS")), (perceptron, ("_SEEDS",))):
        for name in names:
            patch.setattr(module, name, 3)
