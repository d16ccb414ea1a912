"""HRRU14's Algorithm 6 with the constants of Theorem 32, corrected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpmodel.mechanisms.lp.multiplicative_weights.matrix_rows import MatrixRows
from dpmodel.mechanisms.published.algorithm_5 import Algorithm5


@dataclass(frozen=True)
class Algorithm6(Algorithm5):
    """``algorithm-5`` with Delta the 1-norm of the change of a row.

    Source
        HRRU14, Algorithm 6, Theorems 31 and 32, with 24 for the constant 12, ln(m/gamma), and the 1-norm in
        Definition 29.
    Privacy
        As ``algorithm-5``, but Laplace noise of scale ``Delta / epsilon'`` on a named row hides the change of the whole
        row: two pure releases a step.
    Utility
        As ``algorithm-5``, with this Delta.
    Cost
        As ``algorithm-5``.
    """

    as_printed: ClassVar[bool] = True
    name = "algorithm-6"
    source = "HRRU14, Algorithm 6 and Theorem 32, constants corrected"

    def _moved(self, rows: MatrixRows) -> float:
        return rows.row_l1

    def _score_sensitivity(self, rows: MatrixRows, l1: float, linf: float) -> float:
        return rows.row_l1 * linf

    def _releases(self, rows: MatrixRows, columns: int) -> tuple[int, int]:
        return 1, 1


ALGORITHM_6 = Algorithm6()
