"""A linear program that grows by cuts, re-solved by HiGHS from its last basis; public and released numbers only."""

from __future__ import annotations

import highspy
import numpy as np

from dpmodel._types import Floats, Integers
from dpmodel.numerics.cone_program import SolverFailure
from dpmodel.numerics.polyhedron import Polyhedron, highs

# The least violation is kept to this when the objective is minimised after it.
_TOLERANCE = 1e-7


class CutProgram:
    """Minimise ``cost'x`` over ``polytope`` and cuts ``a'x <= b``, which give way by one common amount if they must.

    ``give`` : that amount, 0 as long as the cuts leave a point of ``polytope``.
    """

    def __init__(self, polytope: Polyhedron, cost: Floats) -> None:
        self.give = 0.0
        self._n = polytope.size
        size = float(np.abs(cost).max(initial=0.0))
        self._cost = np.append(cost / size if size > 0 else cost, 0.0)
        self._bounds = polytope.lower, polytope.upper
        self._highs = highs(polytope, self._cost, np.append(polytope.lower, 0.0), np.append(polytope.upper, 0.0))

    def cut(self, columns: Integers, values: Floats, b: float) -> None:
        """Add the row ``sum values_j x_columns_j <= b`` (plus what it gives way)."""
        index = np.append(columns, self._n).astype(np.int32)
        self._highs.addRow(-np.inf, b, index.size, index, np.append(values, -1.0))

    def solve(self) -> Floats:
        """(n,) a minimiser; raises ``give`` to the least amount needed first.

        Raises
        ------
        SolverFailure
            When ``polytope`` is empty, the program unbounded, or HiGHS stops early.
        """
        status = self._run()
        if status == highspy.HighsModelStatus.kInfeasible:
            columns = np.arange(self._n + 1, dtype=np.int32)
            self._highs.changeColBounds(self._n, 0.0, np.inf)
            self._highs.changeColsCost(columns.size, columns, np.append(np.zeros(self._n), 1.0))
            status = self._run()
            if status == highspy.HighsModelStatus.kOptimal:
                least = max(float(self._highs.getSolution().col_value[self._n]), 0.0)
                self.give = least * (1 + _TOLERANCE) + _TOLERANCE
                self._highs.changeColBounds(self._n, 0.0, self.give)
                self._highs.changeColsCost(columns.size, columns, self._cost)
                status = self._run()
        if status != highspy.HighsModelStatus.kOptimal:
            words = self._highs.modelStatusToString(status)
            raise SolverFailure("HiGHS found no optimal point of the public set and the cuts", why=str(words))
        x = np.asarray(self._highs.getSolution().col_value, dtype=np.float64)[: self._n]
        return np.clip(x, *self._bounds)

    def _run(self) -> highspy.HighsModelStatus:
        self._highs.run()
        status: highspy.HighsModelStatus = self._highs.getModelStatus()
        return status
