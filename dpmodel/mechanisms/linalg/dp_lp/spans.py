"""Sanitised equations for dp-lp: all levels of the stable partition that are well supported, for the price of one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dpmodel.annotate.records import Neighbors
from dpmodel.mechanisms.contract import Request
from dpmodel.mechanisms.linalg.stable_span.mechanism import release_flag
from dpmodel.mechanisms.linalg.systems import PrivateVectors
from dpmodel.numerics.fields.field import QQ
from dpmodel.numerics.fields.integer_rows import IntegerRows
from dpmodel.privacy import NoiseSource


def supported_levels(
    vectors: IntegerRows, epsilon: float, delta: float, neighbors: Neighbors, source: NoiseSource
) -> list[npt.NDArray[Any]]:
    """Canonical bases (k, D) of the spans of all well-supported levels of the stable partition, largest first.

    Source
        KMMST24, Algorithms 1 and 2, with one noise draw per dimension for all comparisons, and every level that passes
        released, not the largest alone: the caller takes the largest that agrees with the public constraints.
    Privacy
        (epsilon, delta)-DP by the proof of ``StableSpan``, which is for the noisy counts together with the spans of all
        levels that pass and exist. In short: one vector more changes M(k), the number of sets of at least k vectors, at
        one k by 1, and the spans that only one of the two inputs has are those of levels with one set in it; the
        thresholds make it less likely than delta that such a level passes. Rows are whole numbers, ranks exact.
    Utility
        A level with ``gap`` sets and some of the noise's spread more passes.
    Cost
        The partition; one draw per dimension.
    """
    D = vectors.shape[1]
    system = PrivateVectors(QQ, D, "span", neighbors, D, None, 0, lambda: vectors)
    return [np.asarray(basis.rows, dtype=object) for basis in release_flag(system, Request(epsilon, delta), source)]
